/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/exec/terminal.h"
#include "cli/print.h"
#include "cli/size_flag.h"
#include "cli/things.h"
#include "config/units.h"

#include <unistd.h>

enum { FLAG_SIZE = 256, SIZE_LEAST = 1 << 20 };

static const struct flag flags[] = {
    {FLAG_SIZE, 0, "size", "SIZE", "create: most that may be in it: 2GiB. Default: no limit but the pool's."},
    {'q', 'q', "quiet", NULL, "ls: prints names only, one a line."},
};

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
    if (!s || service_call(s, "POST", "/cove/v1/volumes", body, "making a volume", &made) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (ctx->json)
        print_json(made);
    else
        print_line(things_text(made, "name"));
    return STATUS_OK;
}

static bool is_elsewhere(const json_t *one)
{
    return json_is_false(json_object_get(one, "in_pool"));
}

static void say_elsewhere(const json_t *one, size_t n)
{
    bool is_tty = isatty(STDERR_FILENO) == 1;
    char others[32] = "";
    if (n > 1)
        (void)snprintf(others, sizeof(others), " and %zu more", n - 1);
    (void)fflush(stdout);
    (void)fputs("cove volume: ", stderr);
    terminal_print(stderr, is_tty, str_of(things_text(one, "name")));
    (void)fprintf(stderr,
                  "%s can't be used: not in this pool, but made in another one, or taken away from it\n"
                  "  start the service with that pool again (pool.kind, COVE_POOL), or give them up with "
                  "'cove volume rm'\n",
                  others);
}

static void print_table(const json_t *all)
{
    static const char *const heads[] = {"NAME", "ID", "AGE", "SIZE", "LIMIT", "MOUNTED IN"};
    struct table t;
    const json_t *elsewhere = NULL;
    size_t n_elsewhere = 0;
    json_t *one;
    size_t i;
    table_heads(&t, heads, ARRAY_SIZE(heads));
    json_array_foreach(all, i, one)
    {
        char limit[UNIT_TEXT_MAX], size[UNIT_TEXT_MAX];
        uint64_t used = number_of(one, "used_bytes"); /* 0: not known */
        unit_format_size(used, size);
        unit_format_size(number_of(one, "limit_bytes"), limit);
        table_add(&t, str_of(things_text(one, "name")));
        table_add(&t, str_of(things_text(one, "id")));
        things_add_time(&t, one, "created_at", true);
        table_add(&t, is_elsewhere(one) ? STR("not in pool") : used ? str_of(size) : STR("-"));
        table_add(&t, number_of(one, "limit_bytes") ? str_of(limit) : STR("-"));
        table_addf(&t, "%llu", (unsigned long long)number_of(one, "mounted"));
        if (is_elsewhere(one) && !n_elsewhere++)
            elsewhere = one;
    }
    table_print(&t, stdout);
    table_fini(&t);
    if (elsewhere)
        say_elsewhere(elsewhere, n_elsewhere);
}

static const struct things volumes = {
    .one = "volume",
    .all = "volumes",
    .name = "name",
    .how_made = "'cove volume create NAME' makes one",
    .how_free = "'cove rm' ends the sandboxes that have it mounted",
    .remove = "/cove/v1/volumes/",
    .print = print_table,
};

static int list(struct context *ctx, bool quiet)
{
    AUTO(service_close) struct service *s = service_open(ctx);
    return s ? things_list(ctx, s, &volumes, quiet ? "/cove/v1/volumes" : "/cove/v1/volumes?usage=true", quiet)
             : context_fail(ctx, STATUS_FAILED);
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
        else if (size_flag_parse(ctx, "size", value, SIZE_LEAST, &size) < 0)
            return STATUS_USAGE;
    }
    if (flag < 0)
        return context_exit(ctx);
    int n = context_operands(ctx);
    char *const *operands = ctx->argv + ctx->argi;
    const char *what = n ? operands[0] : "";
    bool creates = strcmp(what, "create") == 0, lists = strcmp(what, "ls") == 0;
    if (n && context_check_form(ctx, what) != STATUS_OK)
        return STATUS_USAGE;
    if (creates)
        return n == 2 ? create(ctx, operands[1], size) : context_usage(ctx, "create takes one name");
    if (lists)
        return n == 1 ? list(ctx, quiet) : context_usage(ctx, "ls takes no operand");
    if (strcmp(what, "rm") == 0)
        return n > 1 ? things_remove(ctx, &volumes, operands + 1, n - 1)
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
        "create prints the name: letters, digits, '.', '_' and '-', which is not the first, up to 63. ls shows how much is in each (- where the pool does not know; with --json used_bytes, or null), and which are not in the pool that the service has now "
        "(in_pool): these can't be used until it has theirs again. rm removes volumes with all that is in them, and refuses one that a sandbox has mounted.",
    .exit_status = " 0  it worked\n 1  it did not; stderr says why\n 2  the command line is wrong",
    .examples = "cove volume create cache --size 2GiB\n"
                "cove run --volume cache:/cache -- sh -c 'echo kept > /cache/file'\n"
                "cove run --volume cache:/cache:ro -- cat /cache/file\n"
                "cove volume rm cache",
    .operands = "=create ls rm",
    COMMAND_FLAGS(flags),
    .run = run,
};
