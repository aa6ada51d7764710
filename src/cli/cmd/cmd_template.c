/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/mem.h"
#include "cli/build/template_add.h"
#include "cli/cmd/commands.h"
#include "cli/exec/terminal.h"
#include "cli/print.h"
#include "cli/service.h"
#include "cli/things.h"
#include "config/units.h"
#include "http/url.h"

#include <stdlib.h>
#include <unistd.h>

enum {
    FLAG_NAME = 256,
    FLAG_TAG,
    FLAG_FROM_IMAGE,
    FLAG_FROM_TEMPLATE,
    FLAG_FROM_OCI,
    FLAG_START,
    FLAG_READY,
    FLAG_TIER,
    FLAG_CPUS,
    FLAG_MEMORY,
    FLAG_ARG,
    FLAG_NO_CACHE,
    FLAG_NO_MEMORY,
    FLAG_REGISTRY_USER,
    FLAG_REGISTRY_PASSWORD,
    FLAG_DOCKER_CONFIG,
    FLAG_DOCKER_CONFIG_FILE,
    FLAG_OFF,
    FLAG_LIST
};

static const struct flag flags[] = {
    {'f', 'f', "file", "FILE", "build: the Dockerfile. Default: Dockerfile in the directory."},
    {FLAG_NAME, 0, "name", "NAME[:TAG]", "build: its name. Default: the directory's name."},
    {FLAG_TAG, 0, "tag", "TAG", "build: another tag. May be given several times."},
    {FLAG_FROM_IMAGE, 0, "from-image", "IMAGE", "build: start from this image, whatever FROM says."},
    {FLAG_FROM_TEMPLATE, 0, "from-template", "TEMPLATE", "build: start from this template."},
    {FLAG_FROM_OCI, 0, "from-oci", "FILE", "build: start from the image in this archive (OCI or docker save)."},
    {FLAG_START, 0, "start-cmd", "COMMAND", "build: runs in each sandbox from its start."},
    {FLAG_READY, 0, "ready-cmd", "COMMAND", "build: succeeds when the start command is ready."},
    {FLAG_TIER, 0, "tier", "NAME", "build: where steps run; the weakest tier its sandboxes may ask for."},
    {FLAG_CPUS, 0, "cpus", "N", "build, add: processors of its sandboxes. Default: those of what it starts from."},
    {FLAG_MEMORY, 0, "memory", "SIZE", "build, add: memory of its sandboxes. Default: that of what it starts from."},
    {FLAG_ARG, 0, "build-arg", "NAME=VALUE", "build, add: a value for ARG. May be given several times."},
    {FLAG_ALLOW, 0, "allow", "TARGET", "build: steps may connect only there, as with 'cove run --allow'."},
    {FLAG_DENY, 0, "deny", "TARGET", "build: steps may not connect there."},
    {FLAG_NO_CACHE, 0, "no-cache", NULL, "build, add: run every step again."},
    {FLAG_NO_MEMORY, 0, "no-memory", NULL, "build: sandboxes run the start command, on every tier."},
    {FLAG_REGISTRY_USER, 0, "registry-user", "NAME", "build: the registry's user name."},
    {FLAG_REGISTRY_PASSWORD, 0, "registry-password-stdin", NULL, "build: reads that user's password from stdin."},
    {FLAG_DOCKER_CONFIG, 0, "docker-config", NULL,
     "build: takes the registry's user and password from Docker's configuration."},
    {FLAG_DOCKER_CONFIG_FILE, 0, "docker-config-file", "FILE", "build: the same from this file."},
    {FLAG_OFF, 0, "off", NULL, "tag: removes the tags; publish: makes it private again."},
    {FLAG_LIST, 0, "list", NULL, "add: lists the recipes, and which of them are built."},
    {'q', 'q', "quiet", NULL, "build, add: prints only the template's id; ls: only names; tag, publish: nothing."},
};

static char *target_of(const char *ref)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    buf_append_cstr(&b, "/cove/v1/templates?ref=");
    (void)url_encode(&b, str_of(ref), false);
    return buf_take(&b);
}

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
    const json_t *tag;
    size_t i;
    json_array_foreach(json_object_get(one, name), i, tag)
    {
        buf_printf(&tags, "%s%s", i ? "," : "", things_text(tag, "tag"));
    }
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
static const struct things_column columns[] = {
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

/* A new array of the same templates. */
static json_t *sorted(const json_t *all)
{
    size_t n = json_array_size(all);
    AUTO_FREE json_t **each = mem_alloc((n + 1) * sizeof(json_t *));
    json_t *to = json_array();
    for (size_t i = 0; i < n; i++)
        each[i] = json_array_get(all, i);
    qsort(each, n, sizeof(json_t *), template_compare);
    for (size_t i = 0; i < n; i++)
        (void)json_array_append(to, each[i]);
    return to;
}

static int template_list(struct context *ctx, bool quiet)
{
    AUTO_JSON json_t *answer = NULL;
    AUTO(service_close) struct service *s = service_open(ctx);
    const json_t *one;
    size_t i;
    if (!s || service_call(s, "GET", "/cove/v1/templates", NULL, NULL, &answer) < 0)
        return context_fail(ctx, STATUS_FAILED);
    AUTO_JSON json_t *all = sorted(json_object_get(answer, "templates"));
    bool has_reasons = false;
    json_array_foreach(all, i, one)
    {
        has_reasons |= has_failed(one);
        if (quiet && !ctx->json)
            print_line(things_text(one, json_is_string(json_object_get(one, "name")) ? "name" : "id"));
    }
    return quiet && !ctx->json ? STATUS_OK : things_table(ctx, all, columns, ARRAY_SIZE(columns) - !has_reasons);
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

static int template_show(struct context *ctx, const char *ref)
{
    static const char *const fields[] = {"id",   "name",      "status",    "created_at", "updated_at", "reason",
                                         "step", "start_cmd", "ready_cmd", "user",       "workdir"};
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
        bool is_of_failed = strcmp(fields[k], "reason") == 0 || strcmp(fields[k], "step") == 0;
        if (is_of_failed && !has_failed(one))
            continue;
        (void)printf("%-12s", fields[k]);
        print_line(things_text(one, fields[k]));
    }
    print_size(one);
    json_array_foreach(json_object_get(one, "tags"), i, tag)
    {
        (void)printf("%-12s", i ? "" : "tags");
        print_text(things_text(tag, "tag"));
        (void)fputs("  build ", stdout);
        print_line(things_text(tag, "build"));
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
            (void)snprintf(ctx->hint, sizeof(ctx->hint), "%s",
                           !strstr(ctx->err.msg, "comes from a file") ? "'cove rm' ends the sandboxes that stand on it"
                           : strcmp(ref, "base") == 0
                               ? "what is made without --template needs it; 'coved prepare --force' builds it anew"
                               : "");
        return context_fail(ctx, STATUS_FAILED);
    }
    if (ctx->json && answer)
        print_json(answer);
    return STATUS_OK;
}

/* What was done, where a person sees it; programs have the exit code, and --json. */
static void template_tell(const struct context *ctx, bool quiet, const char *ref, const char *text)
{
    if (quiet || ctx->json || isatty(STDOUT_FILENO) != 1)
        return;
    terminal_print(stderr, isatty(STDERR_FILENO) == 1, str_of(ref));
    (void)fputs(": ", stderr);
    terminal_print(stderr, isatty(STDERR_FILENO) == 1, str_of(text));
    (void)fputc('\n', stderr);
}

static int tag(struct context *ctx, const char *ref, bool off, bool quiet)
{
    AUTO_BUF struct buf names = BUF_INIT(65536);
    AUTO_JSON json_t *body = json_object();
    json_t *tags = json_array();
    (void)json_object_set_new(body, off ? "remove_tags" : "add_tags", tags);
    for (int i = ctx->argi + 2; i < ctx->argc; i++) {
        (void)json_array_append_new(tags, json_string(ctx->argv[i]));
        buf_printf(&names, "%s%s", i == ctx->argi + 2 ? "" : ", ", ctx->argv[i]);
    }
    int status = change(ctx, "PATCH", ref, body);
    buf_append_cstr(&names, off ? " taken away" : ctx->argc - ctx->argi > 3 ? " lead to it" : " leads to it");
    buf_append_char(&names, '\0');
    if (status == STATUS_OK && buf_error(&names) == 0)
        template_tell(ctx, quiet, ref, buf_data(&names));
    return status;
}

static int publish(struct context *ctx, const char *ref, bool off, bool quiet)
{
    AUTO_JSON json_t *body = json_pack("{s:b}", "public", !off);
    int status = change(ctx, "PATCH", ref, body);
    if (status == STATUS_OK)
        template_tell(ctx, quiet, ref, off ? "private again" : "public");
    return status;
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
    if (ctx->json) {
        AUTO_JSON json_t *answer = json_pack("{s:O}", "removed", removed);
        print_json(answer);
    }
    return status;
}

/* ---- all ---- */

static int take_size(struct context *ctx, struct template_build_options *o, int flag, const char *value)
{
    if (flag == FLAG_CPUS && (unit_parse_cpus(str_of(value), &o->cpu_milli) < 0 || o->cpu_milli == 0))
        return context_usage(ctx, "--cpus: \"%s\" is not a number such as 1.5", value);
    if (flag == FLAG_MEMORY && unit_parse_size(str_of(value), &o->memory_bytes) < 0)
        return context_usage(ctx, "--memory: \"%s\" is not a size such as 512MiB", value);
    return STATUS_OK;
}

static int template_take(struct context *ctx, struct template_build_options *o, bool *off, bool *lists, int flag,
                         const char *value)
{
    const char **texts[] = {&o->name,     NULL,          &o->from_image, &o->from_template,
                            &o->from_oci, &o->start_cmd, &o->ready_cmd,  &o->tier};
    switch (flag) {
    case 'f':
        o->file = value;
        return STATUS_OK;
    case 'q':
        o->quiet = true;
        return STATUS_OK;
    case FLAG_ALLOW:
    case FLAG_DENY:
        return net_flags_take(ctx, &o->net, flag, value) < 0 ? context_fail(ctx, STATUS_USAGE) : STATUS_OK;
    case FLAG_NO_CACHE:
        o->no_cache = true;
        return STATUS_OK;
    case FLAG_NO_MEMORY:
        o->no_memory = true;
        return STATUS_OK;
    case FLAG_REGISTRY_USER:
        o->registry_user = value;
        return STATUS_OK;
    case FLAG_REGISTRY_PASSWORD:
        o->registry_password_stdin = true;
        return STATUS_OK;
    case FLAG_DOCKER_CONFIG:
        o->docker_config = o->docker_config ? o->docker_config : "";
        return STATUS_OK;
    case FLAG_DOCKER_CONFIG_FILE:
        o->docker_config = value;
        return STATUS_OK;
    case FLAG_LIST:
        *lists = true;
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
        {"add", "one recipe, or --list"},   {"show", "one template"},
        {"rm", "a template, or several"},   {"tag", "a template and its tags"},
        {"publish", "one template"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(forms); i++)
        if (strcmp(what, forms[i][0]) == 0)
            return context_usage(ctx, "%s takes %s", what, forms[i][1]);
    return context_usage(ctx,
                         *what ? "there is add, build, ls, show, rm, tag and publish, but no \"%.32s\""
                               : "what to do? add, build, ls, show, rm, tag or publish%s",
                         what);
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

static int template_run(struct context *ctx)
{
    struct template_build_options o = {.context = "."};
    const char *value;
    bool off = false, lists = false;
    int flag;
    while ((flag = context_next_flag(ctx, &value)) > 0) {
        int r = template_take(ctx, &o, &off, &lists, flag, value);
        if (r != STATUS_OK)
            return r;
    }
    if (flag < 0)
        return context_exit(ctx);
    int n = context_operands(ctx);
    const char *what = n ? ctx->argv[ctx->argi] : "", *ref = n > 1 ? ctx->argv[ctx->argi + 1] : NULL;
    if (n && context_check_form(ctx, what) != STATUS_OK)
        return STATUS_USAGE;
    if (strcmp(what, "ls") == 0 && n == 1)
        return template_list(ctx, o.quiet);
    if (strcmp(what, "build") == 0 && n <= 2) {
        int r = check_build(ctx, &o);
        o.context = ref ? ref : ".";
        return r == STATUS_OK ? template_build_run(ctx, &o) : r;
    }
    if (strcmp(what, "add") == 0 && n == (lists ? 1 : 2))
        return lists ? template_add_list(ctx) : template_add_run(ctx, ref, &o);
    if (strcmp(what, "show") == 0 && n == 2)
        return template_show(ctx, ref);
    if (strcmp(what, "rm") == 0 && n >= 2)
        return remove_all(ctx);
    if (strcmp(what, "tag") == 0 && n >= 3)
        return tag(ctx, ref, off, o.quiet);
    if (strcmp(what, "publish") == 0 && n == 2)
        return publish(ctx, ref, off, o.quiet);
    return wrong_form(ctx, what);
}

const struct command cmd_template = {
    .name = "template",
    .summary = "build templates, list and change them",
    .synopsis =
        "add RECIPE\nadd --list\nbuild [-f FILE] [--name NAME] [OPTION]... [DIRECTORY]\nls [-q]\nshow TEMPLATE\nrm "
        "TEMPLATE...\ntag [--off] TEMPLATE TAG...\npublish [--off] TEMPLATE",
    .description =
        "A template is what sandboxes start from. build makes one: from a Dockerfile and the files of the directory "
        "(except those in .dockerignore), from an image, or from another template. Each step runs in a sandbox and "
        "is kept, so the next build starts where something changed. The log, with the time and size of each step, "
        "goes to stderr, and the template's id to stdout; with --json both go to stdout, one object a line. Without "
        "--cpus and --memory it inherits those of the template that it starts from.\n\nFROM means the template with "
        "this name, if there is one here, otherwise an image of a registry; docker.io/library/NAME always means the "
        "image. Credentials of a private registry come from stdin (--registry-user, --registry-password-stdin) or, "
        "if you ask for it, from the \"auths\" of Docker's configuration. The service uses them for this build and "
        "does not keep them.\n\nDockerfiles: FROM, RUN, COPY, ADD of local files, ENV, ARG, WORKDIR, USER, CMD and "
        "ENTRYPOINT (the start command); several stages, and COPY --from a stage or an image. Here-documents are "
        "refused.\n\nadd builds a template from a recipe that comes with Cove, under its name and its other names. "
        "It does nothing if that version exists. With a newer recipe it builds the new version, which replaces the "
        "old one when it is ready. add --list shows the recipes.\n\nls shows why the build failed if a template has "
        "no good one; rm removes it.\n\ntag points tags to what TEMPLATE (a name with or without a tag) means now.",
    .examples = "cove template add code-interpreter\n"
                "cove template build --name app\n"
                "cove template build --name tools:v2 --from-template base -f Dockerfile .\n"
                "cove run --template app -- ./server\n"
                "cove template build --from-image ghcr.io/me/tool --docker-config\n"
                "cove template tag app:v2 stable",
    .operands = "=add build ls show rm tag publish|path",
    COMMAND_FLAGS(flags),
    .run = template_run,
};
