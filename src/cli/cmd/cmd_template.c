/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/build/template_add.h"
#include "cli/cmd/commands.h"
#include "cli/exec/terminal.h"
#include "cli/print.h"
#include "cli/service.h"
#include "cli/things.h"
#include "config/units.h"

#include <stdlib.h>
#include <unistd.h>

static const struct flag template_flags[] = {
    {'f', "file", "FILE",
     "build: the Dockerfile. Default: Dockerfile in the directory; with a --from option, only if the directory is "
     "named."},
    {'t', "name", "NAME[:TAG]", "build: its name. Default: the directory's name."},
    {0, "tag", "TAG", "build: another tag. May be given several times."},
    {0, "from-image", "IMAGE", "build: start from this image, whatever FROM says."},
    {0, "from-template", "TEMPLATE", "build: start from this template."},
    {0, "from-oci", "FILE", "build: start from the image in this archive (OCI or docker save)."},
    {0, "start-cmd", "COMMAND", "build: runs in each sandbox from its start."},
    {0, "ready-cmd", "COMMAND", "build: succeeds when the start command is ready."},
    {0, "tier", "NAME", "build: where steps run; the weakest tier its sandboxes may ask for."},
    {0, "cpus", "N", "build, add: processors of its sandboxes. Default: those of what it starts from."},
    {0, "memory", "SIZE", "build, add: memory of its sandboxes. Default: that of what it starts from."},
    {0, "build-arg", "NAME=VALUE", "build, add: a value for ARG. May be given several times."},
    {0, "allow", "TARGET", "build, add: steps may connect only there, as with 'cove run --allow'."},
    {0, "deny", "TARGET", "build, add: steps may not connect there."},
    {0, "no-cache", NULL, "build, add: run every step again."},
    {0, "no-memory", NULL, "build: sandboxes run the start command, on every tier."},
    {0, "registry-user", "NAME", "build: the registry's user name."},
    {0, "registry-password-stdin", NULL, "build: reads that user's password from stdin."},
    {0, "docker-config", NULL, "build: takes the registry's user and password from Docker's configuration."},
    {0, "docker-config-file", "FILE", "build: the same from this file."},
    {0, "off", NULL, "tag: removes the tags; publish: makes it private again."},
    {0, "list", NULL, "add: lists the recipes, and which of them are built."},
    {'q', "quiet", NULL, "build, add: prints only the template's id; ls: only names; tag, publish: nothing."},
};

struct template_options {
    struct template_build_options build;
    bool off, lists;
};

/* ---- ls, show ---- */

enum { NAME_SHOWN = 40, TAGS_SHOWN = 24, REASON_SHOWN = 60 }; /* of a column; -q and --json have all of it */

static bool has_failed(const json_t *one)
{
    return strcmp(things_text(one, "status"), "failed") == 0;
}

static void template_name(struct table *t, const json_t *one, const char *name)
{
    table_add_cut(t, str_of(things_text(one, name)), NAME_SHOWN);
}

static void template_tags(struct table *t, const json_t *one, const char *name)
{
    AUTO_BUF struct buf tags = BUF_INIT(65536);
    JSON_FOREACH_AT (i, tag, json_object_get(one, name))
        buf_printf(&tags, "%s%s", i ? "," : "", things_text(tag, "tag"));
    table_add_cut(t, buf_len(&tags) ? buf_str(&tags) : STR("-"), TAGS_SHOWN);
}

/* On one line, and no longer than a person reads in a table: show has all of it. */
static void template_reason(struct table *t, const json_t *one, const char *name)
{
    AUTO_BUF struct buf b = BUF_INIT(8192);
    const char *step = json_string_value(json_object_get(one, "step"));
    if (!has_failed(one)) {
        table_add(t, STR("-"));
        return;
    }
    if (step)
        buf_printf(&b, "step %s: ", step);
    buf_append_cstr(&b, things_text(one, name));
    struct str s = buf_str(&b);
    for (size_t i = 0; i < s.n; i++)
        if (buf_data(&b)[i] == '\n' || buf_data(&b)[i] == '\t')
            buf_data(&b)[i] = ' ';
    table_add_cut(t, s, REASON_SHOWN);
}

/* Of one without a good build nothing is said of what its sandboxes get. */
static const struct things_column template_columns[] = {
    {"NAME", "name", template_name},      {"ID", "id", NULL},
    {"STATUS", "status", NULL},           {"TAGS", "tags", template_tags},
    {"AGE", "updated_at", things_ago},    {"MEMORY", "memory_bytes", things_size},
    {"CPUS", "cpu_milli", things_cpus},   {"USES", "spawns", things_number},
    {"REASON", "reason", template_reason}};

/* By name; those without one come last, by id. */
static int template_compare(const void *left, const void *right)
{
    const json_t *a = *(json_t *const *)left, *b = *(json_t *const *)right;
    const char *first = json_string_value(json_object_get(a, "name")),
               *second = json_string_value(json_object_get(b, "name"));
    if (!first != !second)
        return first ? -1 : 1;
    int r = first ? strcmp(first, second) : 0;
    return r ? r : strcmp(things_text(a, "id"), things_text(b, "id"));
}

static int template_list(struct context *ctx, void *options)
{
    const bool quiet = ((struct template_options *)options)->build.quiet;
    AUTO_JSON json_t *answer = NULL;
    if (service_ask(ctx, "GET", "/cove/v1/templates", NULL, NULL, &answer) < 0)
        return context_fail(ctx, STATUS_FAILED);
    json_t *all = json_object_get(answer, "templates");
    things_sort(all, template_compare);
    bool has_reasons = false;
    JSON_FOREACH (one, all) {
        has_reasons |= has_failed(one);
        if (quiet && !ctx->json)
            print_line(things_text(one, json_is_string(json_object_get(one, "name")) ? "name" : "id"));
    }
    return quiet && !ctx->json ? STATUS_OK
                               : things_table(ctx, all, template_columns, ARRAY_SIZE(template_columns) - !has_reasons);
}

/* What its sandboxes get; of one without a good build nothing is said. */
static void print_size(const json_t *one)
{
    char memory[UNIT_TEXT_MAX];
    const json_t *cpus = json_object_get(one, "cpu_milli");
    if (!cpus)
        return;
    unit_format_size((uint64_t)json_integer_value(json_object_get(one, "memory_bytes")), memory);
    (void)printf("%-12s%s\n%-12s%g\n", "memory", memory, "cpus", (double)json_integer_value(cpus) / 1000);
}

static int template_show(struct context *ctx, void *options UNUSED)
{
    const char *ref = ctx->argv[ctx->argi];
    static const char *const fields[] = {"id",   "name",      "status",    "created_at", "updated_at", "reason",
                                         "step", "start_cmd", "ready_cmd", "user",       "workdir"};
    AUTO_FREE char *target = service_path(ctx, "/cove/v1/templates?ref=", ref, "");
    AUTO_JSON json_t *answer = NULL;
    if (service_ask(ctx, "GET", target, NULL, NULL, &answer) < 0)
        return context_fail(ctx, STATUS_FAILED);
    const json_t *one = json_array_get(json_object_get(answer, "templates"), 0);
    if (ctx->json) {
        print_json(one);
        return STATUS_OK;
    }
    for (size_t k = 0; k < ARRAY_SIZE(fields); k++) {
        bool is_of_failed = strcmp(fields[k], "reason") == 0 || strcmp(fields[k], "step") == 0;
        if (is_of_failed && !has_failed(one))
            continue;
        terminal_line(stdout, "%-12s%s", fields[k], things_text(one, fields[k]));
    }
    print_size(one);
    JSON_FOREACH_AT (i, tag, json_object_get(one, "tags"))
        terminal_line(stdout, "%-12s%s  build %s", i ? "" : "tags", things_text(tag, "tag"), things_text(tag, "build"));
    return STATUS_OK;
}

/* ---- changes ---- */

static int change(struct context *ctx, const char *method, const char *ref, const json_t *body)
{
    AUTO_FREE char *target = service_path(ctx, "/cove/v1/templates?ref=", ref, "");
    AUTO_JSON json_t *answer = NULL;
    if (service_ask(ctx, method, target, body, NULL, body ? &answer : NULL) < 0)
        return -1;
    if (ctx->json && answer)
        print_json(answer);
    return 0;
}

/* What was done, where a person sees it; programs have the exit code, and --json. */
static void template_tell(const struct context *ctx, bool quiet, const char *ref, const char *text)
{
    if (!quiet && !ctx->json && isatty(STDOUT_FILENO) == 1)
        terminal_line(stderr, "%s: %s", ref, text);
}

static int tag(struct context *ctx, void *options)
{
    const struct template_options *o = options;
    const char *ref = ctx->argv[ctx->argi];
    AUTO_BUF struct buf names = BUF_INIT(65536);
    AUTO_JSON json_t *body = json_object();
    json_t *tags = json_array();
    (void)json_object_set_new(body, o->off ? "remove_tags" : "add_tags", tags);
    for (int i = ctx->argi + 1; i < ctx->argc; i++) {
        (void)json_array_append_new(tags, json_string(ctx->argv[i]));
        buf_printf(&names, "%s%s", i == ctx->argi + 1 ? "" : ", ", ctx->argv[i]);
    }
    if (change(ctx, "PATCH", ref, body) < 0)
        return context_fail(ctx, STATUS_FAILED);
    buf_append_cstr(&names, o->off ? " taken away" : context_operands(ctx) > 2 ? " lead to it" : " leads to it");
    AUTO_FREE char *said = buf_take(&names);
    if (said)
        template_tell(ctx, o->build.quiet, ref, said);
    return STATUS_OK;
}

static int publish(struct context *ctx, void *options)
{
    const struct template_options *o = options;
    AUTO_JSON json_t *body = json_pack("{s:b}", "public", !o->off);
    if (change(ctx, "PATCH", ctx->argv[ctx->argi], body) < 0)
        return context_fail(ctx, STATUS_FAILED);
    template_tell(ctx, o->build.quiet, ctx->argv[ctx->argi], o->off ? "private again" : "public");
    return STATUS_OK;
}

static int template_remove_one(struct context *ctx, void *arg UNUSED, const char *ref)
{
    if (change(ctx, "DELETE", ref, NULL) == 0)
        return 0;
    if (ctx->err.code == ERR_FAILED_PRECONDITION && !*ctx->hint)
        context_hint(ctx, "%s",
                     !strstr(ctx->err.msg, "comes from a file") ? "'cove rm' ends the sandboxes that stand on it"
                     : strcmp(ref, "base") == 0
                         ? "what is made without --template needs it; 'coved prepare --force' builds it anew"
                         : "");
    return -1;
}

static int template_remove(struct context *ctx, void *options UNUSED)
{
    return things_each(ctx, "removed", template_remove_one, NULL);
}

/* ---- all ---- */

/* --tag, --build-arg */
static int template_take(struct context *ctx, void *build, const char *flag, const char *value)
{
    struct template_build_options *o = build;
    const bool is_tag = *flag == 't';
    if (is_tag && o->n_tags == ARRAY_SIZE(o->tags))
        return context_usage(ctx, "--tag: too many");
    if (!is_tag && (o->n_build_args == ARRAY_SIZE(o->build_args) || !strchr(value, '=')))
        return context_usage(ctx, "--build-arg: write NAME=VALUE");
    *(is_tag ? &o->tags[o->n_tags++] : &o->build_args[o->n_build_args++]) = value;
    return 0;
}

static int check_build(struct context *ctx, const struct template_build_options *o)
{
    bool has_auth = o->registry_user || o->docker_config;
    if ((o->from_image != NULL) + (o->from_template != NULL) + (o->from_oci != NULL) > 1)
        return context_usage(ctx, "--from-image, --from-template and --from-oci exclude each other");
    if ((o->registry_user != NULL) != o->registry_password_stdin)
        return context_usage(ctx, "--registry-user and --registry-password-stdin go together");
    if (o->registry_user && o->docker_config)
        return context_usage(ctx, "--registry-user and --docker-config exclude each other");
    if (o->registry_user && !*o->registry_user)
        return context_usage(ctx, "--registry-user: the name is empty");
    if (has_auth && (o->from_template || o->from_oci))
        return context_usage(ctx, "only an image from a registry needs credentials");
    return STATUS_OK;
}

static int template_build(struct context *ctx, void *options)
{
    struct template_build_options *o = &((struct template_options *)options)->build;
    int r = check_build(ctx, o);
    o->names_context = context_operands(ctx) > 0;
    o->context = o->names_context ? ctx->argv[ctx->argi] : ".";
    return r == STATUS_OK ? template_build_run(ctx, o) : r;
}

static int template_add(struct context *ctx, void *options)
{
    struct template_options *o = options;
    if (o->lists == (context_operands(ctx) > 0))
        return context_usage(ctx, "add takes one recipe, or --list");
    return o->lists ? template_add_list(ctx) : template_add_run(ctx, ctx->argv[ctx->argi], &o->build);
}

static int template_run(struct context *ctx)
{
    static const struct command_form forms[] = {
        {"add", template_add, 0, 1, "add takes one recipe, or --list"},
        {"build", template_build, 0, 1, "build takes one directory at most"},
        {"ls", template_list, 0, 0, "ls takes no operand"},
        {"show", template_show, 1, 1, "show takes one template"},
        {"rm", template_remove, 1, FORM_MANY, "rm takes a template, or several"},
        {"tag", tag, 2, FORM_MANY, "tag takes a template and its tags"},
        {"publish", publish, 1, 1, "publish takes one template"}};
    struct template_options o = {.build = {.context = "."}};
    struct template_build_options *b = &o.build;
    bool has_docker_config = false;
    const struct flag_into into[] = {
        {"file", .text = &b->file},
        {"name", .text = &b->name},
        {"from-image", .text = &b->from_image},
        {"from-template", .text = &b->from_template},
        {"from-oci", .text = &b->from_oci},
        {"start-cmd", .text = &b->start_cmd},
        {"ready-cmd", .text = &b->ready_cmd},
        {"tier", .text = &b->tier},
        {"no-memory", .on = &b->no_memory},
        {"registry-user", .text = &b->registry_user},
        {"registry-password-stdin", .on = &b->registry_password_stdin},
        {"docker-config", .on = &has_docker_config},
        {"docker-config-file", .text = &b->docker_config},
        {"cpus", .number = &b->cpu_milli, .kind = FLAG_CPUS, .least = 1, .wanted = "a number such as 1.5"},
        {"memory", .number = &b->memory_bytes, .kind = FLAG_SIZE},
        {"no-cache", .on = &b->no_cache},
        {"quiet", .on = &b->quiet},
        {"off", .on = &o.off},
        {"list", .on = &o.lists},
        {"tag", .take = template_take, .arg = b},
        {"build-arg", .take = template_take, .arg = b},
        {"", .take = net_flags_take, .arg = &b->net}};
    if (context_read(ctx, into) < 0)
        return context_exit(ctx);
    if (has_docker_config && !b->docker_config)
        b->docker_config = "";
    int status = context_form(ctx, forms, ARRAY_SIZE(forms), &o);
    net_flags_fini(&b->net);
    return status;
}

const struct command cmd_template = {
    .name = "template",
    .summary = "build templates, list and change them",
    .text = &text_template,
    .operands = "=add build ls show rm tag publish|path",
    COMMAND_FLAGS(template_flags),
    .run = template_run,
};
