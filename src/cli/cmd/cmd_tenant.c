/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/exec/terminal.h"
#include "cli/print.h"
#include "cli/things.h"
#include "config/units.h"
#include "http/url.h"

#include <stdio.h>

enum limit_kind { LIMIT_COUNT, LIMIT_SIZE, LIMIT_CPUS };

/* A limit, as the service calls it; its flag is flags[] at the same place. */
static const struct {
    const char *name;
    enum limit_kind kind;
} limits[] = {
    {"sandboxes", LIMIT_COUNT}, {"memory_bytes", LIMIT_SIZE}, {"cpu_milli", LIMIT_CPUS},
    {"disk_bytes", LIMIT_SIZE}, {"connections", LIMIT_COUNT}, {"creates_per_minute", LIMIT_COUNT},
    {"templates", LIMIT_COUNT}, {"checkpoints", LIMIT_COUNT},
};

enum { FLAG_LIMITS = 256 };

static const struct flag flags[] = {
    {FLAG_LIMITS, 0, "sandboxes", "N", "create, set: the most sandboxes at a time, including paused ones."},
    {FLAG_LIMITS + 1, 0, "memory", "SIZE", "create, set: most memory of all sandboxes together."},
    {FLAG_LIMITS + 2, 0, "cpus", "N", "create, set: most CPUs of all sandboxes together."},
    {FLAG_LIMITS + 3, 0, "disk", "SIZE", "create, set: most disk of all sandboxes and volumes together."},
    {FLAG_LIMITS + 4, 0, "connections", "N", "create, set: most requests and streams under way at a time."},
    {FLAG_LIMITS + 5, 0, "creates", "N", "create, set: most new sandboxes in a minute."},
    {FLAG_LIMITS + 6, 0, "templates", "N", "create, set: most templates and snapshots."},
    {FLAG_LIMITS + 7, 0, "checkpoints", "N",
     "create, set: most checkpoints of all sandboxes. At the limit older ones go."},
    {'q', 'q', "quiet", NULL, "ls: prints names only, one a line."},
};

static int read_limit(struct context *ctx, json_t *body, size_t i, const char *text)
{
    uint64_t value = 0;
    uint32_t milli = 0;
    int r = limits[i].kind == LIMIT_SIZE   ? unit_parse_size(str_of(text), &value)
            : limits[i].kind == LIMIT_CPUS ? unit_parse_cpus(str_of(text), &milli)
                                           : str_to_u64(str_of(text), &value);
    if (limits[i].kind == LIMIT_CPUS)
        value = milli;
    if (r < 0 || value > INT64_MAX)
        return context_usage(ctx, "--%s %s: write %s; 0 is no limit", flags[i].name, text,
                             limits[i].kind == LIMIT_SIZE   ? "a size such as 8GiB"
                             : limits[i].kind == LIMIT_CPUS ? "a number of CPUs such as 4 or 1.5"
                                                            : "a number");
    (void)json_object_set_new(body, limits[i].name, json_integer((json_int_t)value));
    return STATUS_OK;
}

static void format(enum limit_kind kind, json_int_t value, char ret_text[static UNIT_TEXT_MAX])
{
    if (kind == LIMIT_SIZE)
        unit_format_size((uint64_t)value, ret_text);
    else if (kind == LIMIT_CPUS)
        (void)snprintf(ret_text, UNIT_TEXT_MAX, "%g", (double)value / 1000);
    else
        (void)snprintf(ret_text, UNIT_TEXT_MAX, "%" JSON_INTEGER_FORMAT, value);
}

static json_int_t figure(const json_t *one, const char *of, size_t i)
{
    return json_integer_value(json_object_get(json_object_get(one, of), limits[i].name));
}

/* "3 of 10", or "3" where there is no limit. */
static void add_figure(struct table *t, const json_t *one, size_t i)
{
    char used[UNIT_TEXT_MAX], most[UNIT_TEXT_MAX];
    bool is_rate = strcmp(limits[i].name, "creates_per_minute") == 0;
    format(limits[i].kind, figure(one, "used", i), used);
    format(limits[i].kind, figure(one, "limits", i), most);
    if (is_rate)
        table_addf(t, figure(one, "limits", i) ? "%s a minute" : "-", most);
    else if (figure(one, "limits", i))
        table_addf(t, "%s of %s", used, most);
    else
        table_add(t, str_of(used));
}

static void tenant_figure(struct table *t, const json_t *one, const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
        if (strcmp(limits[i].name, name) == 0)
            add_figure(t, one, i);
}

static const struct things_column columns[] = {{"NAME", "name", NULL},
                                               {"KEYS", "keys", things_number},
                                               {"SANDBOXES", "sandboxes", tenant_figure},
                                               {"MEMORY", "memory_bytes", tenant_figure},
                                               {"CPUS", "cpu_milli", tenant_figure},
                                               {"DISK", "disk_bytes", tenant_figure},
                                               {"TEMPLATES", "templates", tenant_figure}};

static const struct things tenants = {
    .one = "tenant",
    .all = "tenants",
    .name = "name",
    .how_made = "'cove tenant create NAME' makes one",
    .how_free = "'cove rm', 'cove volume rm', 'cove template rm' and 'cove snapshot rm' with --tenant NAME do so",
    .remove = "/cove/v1/tenants/",
    .columns = columns,
    .n_columns = ARRAY_SIZE(columns),
};

static int tenant_list(struct context *ctx, bool quiet)
{
    AUTO(service_close) struct service *s = service_open(ctx);
    return s ? things_list(ctx, s, &tenants, "/cove/v1/tenants", quiet) : context_fail(ctx, STATUS_FAILED);
}

static void print_one(const json_t *one)
{
    struct table t;
    table_init(&t, 2);
    table_add(&t, STR("name"));
    table_add(&t, str_of(things_text(one, "name")));
    table_add(&t, STR("keys"));
    table_addf(&t, "%" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(one, "keys")));
    for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
        table_add(&t, str_of(flags[i].name));
        add_figure(&t, one, i);
    }
    table_print(&t, stdout);
    table_fini(&t);
}

/* Makes, changes or shows the one of that name. */
static int tenant_ask(struct context *ctx, const char *method, const char *name, const json_t *body)
{
    AUTO_BUF struct buf target = BUF_INIT(4096);
    AUTO_JSON json_t *answer = NULL;
    buf_append_cstr(&target, "/cove/v1/tenants");
    if (strcmp(method, "POST") != 0) {
        buf_append_char(&target, '/');
        (void)url_encode(&target, str_of(name), true);
    }
    buf_append_char(&target, '\0');
    if (buf_error(&target) < 0) {
        (void)err_set(&ctx->err, ERR_INVALID_ARGUMENT, "\"%.64s...\" is not a tenant's name", name);
        return context_fail(ctx, STATUS_FAILED);
    }
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s || service_call(s, method, buf_data(&target), body, NULL, &answer) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (ctx->json)
        print_json(answer);
    else if (strcmp(method, "POST") == 0)
        print_line(things_text(answer, "name"));
    else
        print_one(answer);
    return STATUS_OK;
}

static int tenant_run(struct context *ctx)
{
    AUTO_JSON json_t *body = json_object();
    const char *value;
    bool quiet = false;
    int flag;
    while ((flag = context_next_flag(ctx, &value)) > 0) {
        if (flag == 'q')
            quiet = true;
        else if (read_limit(ctx, body, (size_t)flag - FLAG_LIMITS, value) != STATUS_OK)
            return STATUS_USAGE;
    }
    if (flag < 0)
        return context_exit(ctx);
    ctx->tenant = ""; /* tenants are none's */
    int n = context_operands(ctx) - 1;
    const char *what = n >= 0 ? ctx->argv[ctx->argi] : "";
    char *const *names = ctx->argv + ctx->argi + 1;
    if (*what && context_check_form(ctx, what) != STATUS_OK)
        return STATUS_USAGE;
    if (strcmp(what, "ls") == 0)
        return n ? context_usage(ctx, "ls takes no operand") : tenant_list(ctx, quiet);
    if (strcmp(what, "rm") == 0)
        return n > 0 ? things_remove(ctx, &tenants, names, n) : context_usage(ctx, "the tenant's name is missing");
    const char *method = strcmp(what, "create") == 0 ? "POST"
                         : strcmp(what, "set") == 0  ? "PATCH"
                         : strcmp(what, "show") == 0 ? "GET"
                                                     : NULL;
    if (!method)
        return context_usage(ctx,
                             *what ? "there is create, ls, show, set and rm, but no \"%.32s\""
                                   : "what to do? create, ls, show, set or rm%s",
                             what);
    if (n != 1)
        return context_usage(ctx, "%s takes the name of one tenant", what);
    if (method[1] == 'A' && !json_object_size(body))
        return context_usage(ctx, "set takes one of the limits, or several");
    if (method[1] == 'O' && json_object_set_new(body, "name", json_string(names[0])) < 0)
        return context_usage(ctx, "the name must be UTF-8");
    return tenant_ask(ctx, method, names[0], method[0] == 'G' ? NULL : body);
}

const struct command cmd_tenant = {
    .name = "tenant",
    .summary = "create, list, limit and remove tenants",
    .synopsis = "create NAME [OPTION]...\nls [-q]\nshow NAME\nset NAME [OPTION]...\nrm NAME...",
    .description =
        "Tenants share a service and can't see each other: each has its own sandboxes, templates, snapshots, "
        "volumes, logs and names. Everything that existed before belongs to the tenant 'default', whose public "
        "templates all can use. A tenant gets access through its keys: 'cove key create --tenant NAME'.\n\nOn the "
        "machine itself you see the things of all tenants. --tenant NAME (or COVE_TENANT) with any other command "
        "acts in one tenant, and sees only that one.\n\ncreate prints the name: lower case letters, digits and '-', "
        "up to 63. set changes the given limits; 0 means no limit. Lowering a limit takes nothing away. show tells "
        "what is in use. rm removes a tenant and its keys, and refuses one that has sandboxes, volumes, templates or "
        "snapshots.",
    .examples = "cove tenant create acme --sandboxes 20 --memory 32GiB\n"
                "cove key create --tenant acme --name acme-admin --scope admin\n"
                "cove tenant set acme --cpus 16 --creates 60\n"
                "cove ls --tenant acme\n"
                "cove tenant show acme --json",
    .operands = "=create ls show set rm",
    COMMAND_FLAGS(flags),
    .run = tenant_run,
};
