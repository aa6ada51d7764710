/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/each.h"
#include "cli/service.h"
#include "cli/template_build.h"
#include "cli/terminal.h"
#include "config/units.h"
#include "http/url.h"

#include <unistd.h>

enum {
    FLAG_NAME = 256,
    FLAG_TAG,
    FLAG_FROM_IMAGE,
    FLAG_FROM_TEMPLATE,
    FLAG_FROM_OCI,
    FLAG_START,
    FLAG_READY,
    FLAG_CPUS,
    FLAG_MEMORY,
    FLAG_ARG,
    FLAG_NO_CACHE,
    FLAG_OFF
};

static const struct flag flags[] = {
    {'f', 'f', "file", "FILE", "build: the Dockerfile. Default: Dockerfile in the directory."},
    {FLAG_NAME, 0, "name", "NAME[:TAG]", "build: what it is called. Default: the directory's name."},
    {FLAG_TAG, 0, "tag", "TAG", "build: another tag; may be repeated."},
    {FLAG_FROM_IMAGE, 0, "from-image", "IMAGE", "build: begin with this image, whatever FROM says."},
    {FLAG_FROM_TEMPLATE, 0, "from-template", "TEMPLATE", "build: begin with this template."},
    {FLAG_FROM_OCI, 0, "from-oci", "FILE", "build: begin with the image in this archive (OCI or docker save)."},
    {FLAG_START, 0, "start-cmd", "COMMAND", "build: runs in each sandbox from its beginning."},
    {FLAG_READY, 0, "ready-cmd", "COMMAND", "build: succeeds when what was started is ready."},
    {FLAG_CPUS, 0, "cpus", "N", "build: processors of its sandboxes."},
    {FLAG_MEMORY, 0, "memory", "SIZE", "build: memory of its sandboxes."},
    {FLAG_ARG, 0, "build-arg", "NAME=VALUE", "build: a value for ARG; may be repeated."},
    {FLAG_NO_CACHE, 0, "no-cache", NULL, "build: run every step again."},
    {FLAG_OFF, 0, "off", NULL, "tag: takes the tags away; publish: makes it private again."},
    {'q', 'q', "quiet", NULL, "build: prints the template's id alone; ls: names alone."},
};

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "-";
}

static char *target_of(const char *ref)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    buf_append_cstr(&b, "/v1/templates?ref=");
    (void)url_encode(&b, str_of(ref), false);
    return buf_take(&b);
}

static void print_json(const json_t *json)
{
    (void)json_dumpf(json, stdout, JSON_INDENT(2));
    (void)fputc('\n', stdout);
}

/* ---- ls, show ---- */

static void add_row(struct table *t, const json_t *one)
{
    char memory[UNIT_TEXT_MAX], age[UNIT_TEXT_MAX];
    usec_t at = 0, now = clock_real();
    AUTO_BUF struct buf tags = BUF_INIT(65536);
    const json_t *tag;
    size_t i;
    int ignored UNUSED = clock_parse(str_of(text_of(one, "updated_at")), &at);
    unit_format_size((uint64_t)json_integer_value(json_object_get(one, "memory_bytes")), memory);
    unit_format_duration((now - MIN(at, now)) / USEC_PER_SEC * 1000, age);
    json_array_foreach(json_object_get(one, "tags"), i, tag)
    {
        buf_printf(&tags, "%s%s", i ? "," : "", text_of(tag, "tag"));
    }
    table_add(t, str_of(text_of(one, "name")));
    table_add(t, str_of(text_of(one, "id")));
    table_add(t, str_of(text_of(one, "status")));
    table_add(t, buf_len(&tags) ? buf_str(&tags) : STR("-"));
    table_add(t, at ? str_of(age) : STR("-"));
    table_add(t, str_of(memory));
    table_addf(t, "%g", (double)json_integer_value(json_object_get(one, "cpu_milli")) / 1000);
    table_addf(t, "%lld", (long long)json_integer_value(json_object_get(one, "spawns")));
}

static int list(struct context *ctx, bool quiet)
{
    static const char *const heads[] = {"NAME", "ID", "STATUS", "TAGS", "AGE", "MEMORY", "CPUS", "USES"};
    AUTO_JSON json_t *answer = NULL;
    AUTO(service_close) struct service *s = service_open(ctx);
    const json_t *one;
    struct table t;
    size_t i;
    if (!s || service_call(s, "GET", "/v1/templates", NULL, NULL, &answer) < 0)
        return context_fail(ctx, STATUS_FAILED);
    const json_t *all = json_object_get(answer, "templates");
    if (ctx->json) {
        print_json(all);
        return STATUS_OK;
    }
    table_init(&t, ARRAY_SIZE(heads));
    for (size_t h = 0; h < ARRAY_SIZE(heads); h++)
        table_add(&t, str_of(heads[h]));
    json_array_foreach(all, i, one)
    {
        if (quiet)
            (void)printf("%s\n",
                         json_is_string(json_object_get(one, "name")) ? text_of(one, "name") : text_of(one, "id"));
        else
            add_row(&t, one);
    }
    if (!quiet)
        table_print(&t, stdout);
    table_fini(&t);
    return STATUS_OK;
}

static int show(struct context *ctx, const char *ref)
{
    static const char *const fields[] = {"id",        "name",      "status", "created_at", "updated_at",
                                         "start_cmd", "ready_cmd", "user",   "workdir"};
    AUTO_FREE char *target = target_of(ref);
    AUTO_JSON json_t *answer = NULL;
    AUTO(service_close) struct service *s = service_open(ctx);
    const json_t *tag;
    size_t i;
    if (!s || service_call(s, "GET", target, NULL, NULL, &answer) < 0)
        return context_fail(ctx, STATUS_FAILED);
    const json_t *one = json_array_get(json_object_get(answer, "templates"), 0);
    if (ctx->json) {
        print_json(one);
        return STATUS_OK;
    }
    for (size_t k = 0; k < ARRAY_SIZE(fields); k++) {
        (void)printf("%-12s", fields[k]);
        terminal_print(stdout, isatty(STDOUT_FILENO) == 1, str_of(text_of(one, fields[k])));
        (void)fputc('\n', stdout);
    }
    json_array_foreach(json_object_get(one, "tags"), i, tag)
    {
        (void)printf("%-12s%s  %s\n", i ? "" : "tags", text_of(tag, "tag"), text_of(tag, "build"));
    }
    return STATUS_OK;
}

/* ---- changes ---- */

static int change(struct context *ctx, const char *method, const char *ref, const json_t *body)
{
    AUTO_FREE char *target = target_of(ref);
    AUTO_JSON json_t *answer = NULL;
    AUTO(service_close) struct service *s = service_open(ctx);
    bool tells = strcmp(method, "DELETE") != 0;
    if (!s || service_call(s, method, target, body, NULL, tells ? &answer : NULL) < 0) {
        if (!tells && ctx->err.code == ERR_FAILED_PRECONDITION && !*ctx->hint)
            (void)snprintf(ctx->hint, sizeof(ctx->hint), "'cove rm' ends the sandboxes that stand on it");
        return context_fail(ctx, STATUS_FAILED);
    }
    if (ctx->json && answer)
        print_json(answer);
    return STATUS_OK;
}

static int tag(struct context *ctx, const char *ref, bool off)
{
    AUTO_JSON json_t *body = json_object();
    json_t *tags = json_array();
    (void)json_object_set_new(body, off ? "remove_tags" : "add_tags", tags);
    for (int i = ctx->argi + 2; i < ctx->argc; i++)
        (void)json_array_append_new(tags, json_string(ctx->argv[i]));
    return change(ctx, "PATCH", ref, body);
}

static int publish(struct context *ctx, const char *ref, bool off)
{
    AUTO_JSON json_t *body = json_pack("{s:b}", "public", !off);
    return change(ctx, "PATCH", ref, body);
}

static int remove_all(struct context *ctx)
{
    int status = STATUS_OK;
    AUTO_JSON json_t *removed = json_array();
    for (int i = ctx->argi + 1; i < ctx->argc; i++) {
        *ctx->hint = '\0';
        int r = change(ctx, "DELETE", ctx->argv[i], NULL);
        if (r != STATUS_OK) {
            status = r;
            continue;
        }
        (void)json_array_append_new(removed, json_string(ctx->argv[i]));
        if (!ctx->json)
            (void)printf("%s\n", ctx->argv[i]);
    }
    if (ctx->json)
        each_print_json(json_pack("{s:O}", "removed", removed));
    return status;
}

/* ---- all ---- */

static int take_size(struct context *ctx, struct template_build_options *o, int flag, const char *value)
{
    if (flag == FLAG_CPUS && (unit_parse_cpus(str_of(value), &o->cpu_milli) < 0 || o->cpu_milli == 0))
        return context_usage(ctx, "--cpus: \"%s\" is no number such as 1.5", value);
    if (flag == FLAG_MEMORY && unit_parse_size(str_of(value), &o->memory_bytes) < 0)
        return context_usage(ctx, "--memory: \"%s\" is no size such as 512MiB", value);
    return STATUS_OK;
}

static int take(struct context *ctx, struct template_build_options *o, bool *off, int flag, const char *value)
{
    const char **texts[] = {&o->name,     NULL,          &o->from_image, &o->from_template,
                            &o->from_oci, &o->start_cmd, &o->ready_cmd};
    switch (flag) {
    case 'f':
        o->file = value;
        return STATUS_OK;
    case 'q':
        o->quiet = true;
        return STATUS_OK;
    case FLAG_NO_CACHE:
        o->no_cache = true;
        return STATUS_OK;
    case FLAG_OFF:
        *off = true;
        return STATUS_OK;
    case FLAG_TAG:
        if (o->n_tags == ARRAY_SIZE(o->tags))
            return context_usage(ctx, "--tag: too many");
        o->tags[o->n_tags++] = value;
        return STATUS_OK;
    case FLAG_ARG:
        if (o->n_build_args == ARRAY_SIZE(o->build_args) || !strchr(value, '='))
            return context_usage(ctx, "--build-arg: write NAME=VALUE");
        o->build_args[o->n_build_args++] = value;
        return STATUS_OK;
    case FLAG_CPUS:
    case FLAG_MEMORY:
        return take_size(ctx, o, flag, value);
    default:
        *texts[flag - FLAG_NAME] = value;
        return STATUS_OK;
    }
}

/* None of the forms: because of the word, or of what stands behind it. */
static int wrong_form(struct context *ctx, const char *what)
{
    static const char *const forms[][2] = {
        {"build", "one directory at most"}, {"ls", "no operand"},
        {"show", "one template"},           {"rm", "a template, or several"},
        {"tag", "a template and its tags"}, {"publish", "one template"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(forms); i++)
        if (strcmp(what, forms[i][0]) == 0)
            return context_usage(ctx, "%s takes %s", what, forms[i][1]);
    return context_usage(ctx,
                         *what ? "there is build, ls, show, rm, tag and publish, but no \"%.32s\""
                               : "what to do? build, ls, show, rm, tag or publish%s",
                         what);
}

static int run(struct context *ctx)
{
    struct template_build_options o = {.context = "."};
    const char *value;
    bool off = false;
    int flag;
    while ((flag = context_next_flag(ctx, &value)) > 0) {
        int r = take(ctx, &o, &off, flag, value);
        if (r != STATUS_OK)
            return r;
    }
    if (flag < 0)
        return context_exit(ctx);
    int n = context_operands(ctx);
    const char *what = n ? ctx->argv[ctx->argi] : "", *ref = n > 1 ? ctx->argv[ctx->argi + 1] : NULL;
    if (strcmp(what, "ls") == 0 && n == 1)
        return list(ctx, o.quiet);
    if (strcmp(what, "build") == 0 && n <= 2) {
        if ((o.from_image != NULL) + (o.from_template != NULL) + (o.from_oci != NULL) > 1)
            return context_usage(ctx, "--from-image, --from-template and --from-oci exclude each other");
        o.context = ref ? ref : ".";
        return template_build_run(ctx, &o);
    }
    if (strcmp(what, "show") == 0 && n == 2)
        return show(ctx, ref);
    if (strcmp(what, "rm") == 0 && n >= 2)
        return remove_all(ctx);
    if (strcmp(what, "tag") == 0 && n >= 3)
        return tag(ctx, ref, off);
    if (strcmp(what, "publish") == 0 && n == 2)
        return publish(ctx, ref, off);
    return wrong_form(ctx, what);
}

const struct command cmd_template = {
    .name = "template",
    .summary = "build templates, list and change them",
    .synopsis = "build [-f FILE] [--name NAME] [OPTION]... [DIRECTORY]\nls [-q]\nshow TEMPLATE\nrm TEMPLATE...\n"
                "tag [--off] TEMPLATE TAG...\npublish [--off] TEMPLATE",
    .description =
        "A template is what sandboxes are made from. build makes one: of a Dockerfile and the files of the directory (less those that .dockerignore names), of an "
        "image, or of another template. Each step runs in a sandbox and is kept, so that the next build begins where something changed. The log goes to "
        "stderr, the template's id to stdout; with --json both go there, one object a line.\n"
        "\n"
        "Dockerfiles: FROM, RUN, COPY, ADD of local files, ENV, ARG, WORKDIR, USER, CMD and ENTRYPOINT (the start command). Stages that copy from each other and "
        "here-documents are refused.\n"
        "\n"
        "tag leads tags to what TEMPLATE (a name with or without a tag) names now.",
    .examples = "cove template build --name app\n"
                "cove template build --name tools:v2 --from-template base -f Dockerfile .\n"
                "cove run --template app -- ./server\n"
                "cove template tag app:v2 stable",
    .operands = "=build ls show rm tag publish",
    COMMAND_FLAGS(flags),
    .run = run,
};
