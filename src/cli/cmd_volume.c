/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/each.h"
#include "cli/terminal.h"
#include "config/units.h"
#include "http/url.h"

#include <unistd.h>

enum { FLAG_SIZE = 256, TARGET_MAX = 1024 };

static const struct flag flags[] = {
    {FLAG_SIZE, 0, "size", "SIZE", "create: most that may be in it: 2GiB. Default: no limit but the pool's."},
    {'q', 'q', "quiet", NULL, "ls: prints names only, one a line."},
};

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "-";
}

static uint64_t number_of(const json_t *object, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(object, name));
}

static int create(struct context *ctx, const char *name, uint64_t size)
{
    AUTO_JSON json_t *body = json_pack("{s:s,s:I}", "name", name, "limit_bytes", (json_int_t)size), *made = NULL;
    if (!body)
        return context_usage(ctx, "the name must be UTF-8");
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s || service_call(s, "POST", "/v1/volumes", body, "making a volume", &made) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (ctx->json)
        each_print_json(json_incref(made));
    else
        (void)printf("%s\n", text_of(made, "name"));
    return STATUS_OK;
}

/* "/v1/volumes/<name><suffix>". */
static char *target_of(const char *name, const char *suffix)
{
    AUTO_BUF struct buf b = BUF_INIT(TARGET_MAX);
    buf_append_cstr(&b, "/v1/volumes/");
    (void)url_encode(&b, str_of(name), true);
    buf_append_cstr(&b, suffix);
    return buf_error(&b) < 0 ? NULL : mem_strndup(buf_data(&b), buf_len(&b));
}

/* How much is in it; "-" where the pool does not know. */
static void add_usage(struct table *t, struct service *s, const char *id)
{
    AUTO_FREE char *target = target_of(id, "/usage");
    AUTO_JSON json_t *answer = NULL;
    char size[UNIT_TEXT_MAX];
    bool known = target && service_call(s, "GET", target, NULL, "asking", &answer) == 0;
    unit_format_size(number_of(answer, "used_bytes"), size);
    table_add(t, known && number_of(answer, "used_bytes") ? str_of(size) : STR("-"));
}

static void print_table(struct service *s, const json_t *all)
{
    static const char *const heads[] = {"NAME", "ID", "AGE", "SIZE", "LIMIT", "MOUNTED IN"};
    struct table t;
    json_t *one;
    size_t i;
    table_init(&t, ARRAY_SIZE(heads));
    for (size_t h = 0; h < ARRAY_SIZE(heads); h++)
        table_add(&t, str_of(heads[h]));
    json_array_foreach(all, i, one)
    {
        char age[UNIT_TEXT_MAX], limit[UNIT_TEXT_MAX];
        usec_t at = 0, now = clock_real();
        int ignored UNUSED = clock_parse(str_of(text_of(one, "created_at")), &at);
        unit_format_duration((now - MIN(at, now)) / USEC_PER_SEC * 1000, age);
        unit_format_size(number_of(one, "limit_bytes"), limit);
        table_add(&t, str_of(text_of(one, "name")));
        table_add(&t, str_of(text_of(one, "id")));
        table_add(&t, now < at + USEC_PER_SEC ? STR("0s") : str_of(age));
        add_usage(&t, s, text_of(one, "id"));
        table_add(&t, number_of(one, "limit_bytes") ? str_of(limit) : STR("-"));
        table_addf(&t, "%llu", (unsigned long long)number_of(one, "mounted"));
    }
    table_print(&t, stdout);
    table_fini(&t);
}

static int list(struct context *ctx, bool quiet)
{
    AUTO_JSON json_t *answer = NULL;
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s || service_call(s, "GET", "/v1/volumes", NULL, "listing volumes", &answer) < 0)
        return context_fail(ctx, STATUS_FAILED);
    json_t *all = json_object_get(answer, "volumes"), *one;
    size_t i;
    if (ctx->json) {
        (void)json_dumpf(all, stdout, JSON_INDENT(2));
        (void)fputc('\n', stdout);
    } else if (quiet) {
        json_array_foreach(all, i, one)(void) printf("%s\n", text_of(one, "name"));
    } else if (json_array_size(all)) {
        print_table(s, all);
    } else if (isatty(STDOUT_FILENO)) {
        (void)fputs("there is no volume yet; 'cove volume create NAME' makes one\n", stderr);
    }
    return STATUS_OK;
}

static int remove_all(struct context *ctx, char *const *names, int n)
{
    int status = STATUS_OK;
    AUTO_JSON json_t *removed = json_array();
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s)
        return context_fail(ctx, STATUS_FAILED);
    for (int i = 0; i < n; i++) {
        AUTO_FREE char *target = target_of(names[i], "");
        *ctx->hint = '\0';
        if (!target || service_call(s, "DELETE", target, NULL, "removing", NULL) < 0) {
            if (!target)
                (void)err_set(&ctx->err, ERR_INVALID_ARGUMENT, "\"%.64s...\" is no volume's name", names[i]);
            if (ctx->err.code == ERR_NOT_FOUND && !*ctx->hint)
                (void)snprintf(ctx->hint, sizeof(ctx->hint), "'cove volume ls' lists those there are");
            else if (ctx->err.code == ERR_FAILED_PRECONDITION && !*ctx->hint)
                (void)snprintf(ctx->hint, sizeof(ctx->hint), "'cove rm' ends the sandboxes that have it mounted");
            status = context_fail(ctx, STATUS_FAILED);
            continue;
        }
        (void)json_array_append_new(removed, json_string(names[i]));
        if (!ctx->json)
            (void)printf("%s\n", names[i]);
    }
    if (ctx->json)
        each_print_json(json_pack("{s:O}", "removed", removed));
    return status;
}

static int run(struct context *ctx)
{
    const char *value;
    bool quiet = false;
    uint64_t size = 0;
    int flag;
    while ((flag = context_next_flag(ctx, &value)) > 0) {
        if (flag == 'q')
            quiet = true;
        else if (unit_parse_size(str_of(value), &size) < 0 || size == 0 || size > INT64_MAX)
            return context_usage(ctx, "--size %s: write a size such as 512M or 2GiB", value);
    }
    if (flag < 0)
        return context_exit(ctx);
    int n = context_operands(ctx);
    char *const *operands = ctx->argv + ctx->argi;
    const char *what = n ? operands[0] : "";
    bool creates = strcmp(what, "create") == 0, lists = strcmp(what, "ls") == 0;
    if ((size && !creates) || (quiet && !lists))
        return context_usage(ctx, size ? "--size goes with create only" : "--quiet goes with ls only");
    if (creates)
        return n == 2 ? create(ctx, operands[1], size) : context_usage(ctx, "create takes one name");
    if (lists)
        return n == 1 ? list(ctx, quiet) : context_usage(ctx, "ls takes no operand");
    if (strcmp(what, "rm") == 0)
        return n > 1 ? remove_all(ctx, operands + 1, n - 1)
                     : context_usage(ctx, "which volume? give its name, or several");
    return context_usage(ctx, n ? "there is create, ls and rm, but no \"%.32s\"" : "what to do? create, ls or rm%s",
                         what);
}

const struct command cmd_volume = {
    .name = "volume",
    .summary = "make, list and remove volumes",
    .synopsis = "create NAME [--size SIZE]\nls [-q]\nrm NAME...",
    .description =
        "A volume is a directory with a name that outlives sandboxes: 'cove run --volume NAME:/PATH' mounts it, into several sandboxes at a "
        "time if wanted, and what one writes the others see. It belongs to the sandbox's user when it is new.\n"
        "\n"
        "create prints the name: letters, digits, '.', '_' and '-', up to 63. ls shows how much is in each (- where the pool does not know). rm "
        "removes volumes with all that is in them, and refuses one that a sandbox has mounted.",
    .exit_status = " 0  it worked\n 1  it did not; stderr says why\n 2  the command line is wrong",
    .examples = "cove volume create cache --size 2GiB\n"
                "cove run --volume cache:/cache -- sh -c 'echo kept > /cache/file'\n"
                "cove run --volume cache:/cache:ro -- cat /cache/file\n"
                "cove volume rm cache",
    .operands = "=create ls rm",
    COMMAND_FLAGS(flags),
    .run = run,
};
