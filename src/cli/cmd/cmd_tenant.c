/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/exec/terminal.h"
#include "cli/things.h"
#include "config/units.h"

enum { TENANT_SIZE_LEAST = 1 << 20 };

/* A limit, as the service calls it; its flag is flags[] at the same place. */
static const struct {
    const char *name;
    enum flag_kind kind;
} limits[] = {
    {"sandboxes", FLAG_NUMBER}, {"memory_bytes", FLAG_SIZE},  {"cpu_milli", FLAG_CPUS},
    {"disk_bytes", FLAG_SIZE},  {"connections", FLAG_NUMBER}, {"creates_per_minute", FLAG_NUMBER},
    {"templates", FLAG_NUMBER}, {"checkpoints", FLAG_NUMBER},
};

static const struct flag tenant_flags[] = {
    {0, "sandboxes", "N", "create, set: the most sandboxes at a time, including paused ones."},
    {0, "memory", "SIZE", "create, set: most memory of all sandboxes together."},
    {0, "cpus", "N", "create, set: most CPUs of all sandboxes together."},
    {0, "disk", "SIZE", "create, set: most disk of all sandboxes and volumes together."},
    {0, "connections", "N", "create, set: most requests and streams under way at a time."},
    {0, "creates", "N", "create, set: most new sandboxes in a minute."},
    {0, "templates", "N", "create, set: most templates and snapshots."},
    {0, "checkpoints", "N", "create, set: most checkpoints of all sandboxes. At the limit older ones go."},
    {'q', "quiet", NULL, "ls: prints names only, one a line."},
};

static void format(enum flag_kind kind, json_int_t value, char ret_text[static UNIT_TEXT_MAX])
{
    if (kind == FLAG_SIZE)
        unit_format_size((uint64_t)value, ret_text);
    else if (kind == FLAG_CPUS)
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

static const struct things_column tenant_columns[] = {{"NAME", "name", NULL},
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
    .columns = tenant_columns,
    .n_columns = ARRAY_SIZE(tenant_columns),
};

struct tenant_options {
    json_t *body;
    bool quiet;
};

static int tenant_list(struct context *ctx, void *options)
{
    const struct tenant_options *o = options;
    return things_list(ctx, &tenants, "/cove/v1/tenants", o->quiet);
}

static int tenant_remove(struct context *ctx, void *options UNUSED)
{
    return things_remove(ctx, &tenants);
}

/* Where the pool counts that: with what snapshots and templates have of what is gone. */
static void print_on_disk(struct table *t, const json_t *one)
{
    const json_t *on_disk = json_object_get(one, "on_disk");
    const char *failed = json_string_value(json_object_get(one, "on_disk_failed"));
    char used[UNIT_TEXT_MAX], most[UNIT_TEXT_MAX];
    if (!failed && !on_disk)
        return;
    unit_format_size((uint64_t)json_integer_value(json_object_get(on_disk, "used_bytes")), used);
    unit_format_size((uint64_t)json_integer_value(json_object_get(on_disk, "limit_bytes")), most);
    table_add(t, STR("on disk"));
    if (failed)
        table_addf(t, "not limited, and so refused: %s", failed);
    else
        table_addf(t, "%s of %s", used, most);
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
        table_add(&t, str_of(tenant_flags[i].name));
        add_figure(&t, one, i);
    }
    print_on_disk(&t, one);
    table_print(&t, stdout);
    table_fini(&t);
}

static int tenant_ask(struct context *ctx, const char *method, const char *target, const json_t *body)
{
    AUTO_JSON json_t *answer = NULL;
    if (service_ask(ctx, method, target, body, NULL, &answer) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (ctx->json || strcmp(method, "POST") == 0)
        return things_answer(ctx, answer, "name");
    print_one(answer);
    return STATUS_OK;
}

static int tenant_create(struct context *ctx, void *options)
{
    struct tenant_options *o = options;
    if (json_object_set_new(o->body, "name", json_string(ctx->argv[ctx->argi])) < 0)
        return context_usage(ctx, "the name must be UTF-8");
    return tenant_ask(ctx, "POST", "/cove/v1/tenants", o->body);
}

static int tenant_show(struct context *ctx, void *options UNUSED)
{
    AUTO_FREE char *target = service_path(ctx, "/cove/v1/tenants/", ctx->argv[ctx->argi], "");
    return tenant_ask(ctx, "GET", target, NULL);
}

static int tenant_set(struct context *ctx, void *options)
{
    const struct tenant_options *o = options;
    AUTO_FREE char *target = service_path(ctx, "/cove/v1/tenants/", ctx->argv[ctx->argi], "");
    return json_object_size(o->body) ? tenant_ask(ctx, "PATCH", target, o->body)
                                     : context_usage(ctx, "set takes one of the limits, or several");
}

static int tenant_run(struct context *ctx)
{
    static const struct command_form forms[] = {{"create", tenant_create, 1, 1, "create takes the name of one tenant"},
                                                {"ls", tenant_list, 0, 0, "ls takes no operand"},
                                                {"show", tenant_show, 1, 1, "show takes the name of one tenant"},
                                                {"set", tenant_set, 1, 1, "set takes the name of one tenant"},
                                                {"rm", tenant_remove, 1, FORM_MANY, "the tenant's name is missing"}};
    static const char *const wanted[] = {[FLAG_NUMBER] = "a number; 0 is no limit",
                                         [FLAG_SIZE] = "a size such as 8GiB; 0 is no limit",
                                         [FLAG_CPUS] = "a number of CPUs such as 4 or 1.5; 0 is no limit"};
    AUTO_JSON json_t *body = json_object();
    struct tenant_options o = {.body = body};
    struct flag_into into[ARRAY_SIZE(limits) + 1] = {{.name = NULL}};
    for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
        into[i] = (struct flag_into){.name = tenant_flags[i].name,
                                     .json = body,
                                     .member = limits[i].name,
                                     .kind = limits[i].kind,
                                     .wanted = wanted[limits[i].kind]};
    into[ARRAY_SIZE(limits)] = (struct flag_into){.name = "", .on = &o.quiet};
    if (context_read(ctx, into) < 0)
        return context_exit(ctx);
    for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
        json_int_t n = json_integer_value(json_object_get(body, limits[i].name));
        if (limits[i].kind == FLAG_SIZE && n > 0 && n < TENANT_SIZE_LEAST)
            return context_usage(ctx,
                                 "--%s %" JSON_INTEGER_FORMAT ": a number alone counts bytes, and the least is 1 MiB; "
                                 "write a size such as 8GiB",
                                 tenant_flags[i].name, n);
    }
    ctx->tenant = ""; /* tenants are none's */
    return context_form(ctx, forms, ARRAY_SIZE(forms), &o);
}

const struct command cmd_tenant = {
    .name = "tenant",
    .summary = "create, list, limit and remove tenants",
    .text = &text_tenant,
    .operands = "=create ls show set rm",
    COMMAND_FLAGS(tenant_flags),
    .run = tenant_run,
};
