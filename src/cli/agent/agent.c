/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/agent/agent.h"
#include "base/mem.h"
#include "cli/agent/kit.h"
#include "cli/agent/receipt.h"
#include "cli/build/template_add.h"
#include "cli/domain/vault_client.h"
#include "cli/env/env.h"
#include "cli/env/provenance.h"
#include "cli/env/settings.h"
#include "cli/exec/terminal.h"
#include "cli/files/copy.h"
#include "cli/print.h"
#include "cli/things.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define AGENT_COPY ":copy"

enum { DETACHED_MS = 24 * 3600 * 1000, AGENT_WATCH_MS = 1000, AGENT_ANSWER_MAX = 16 };

struct agent_call {
    struct context *ctx;
    const struct agent_options *o;
    struct env e;
    json_t *kit, *asks;
};

static bool agent_has_terminal(void)
{
    return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
}

/* ---- making the environment ---- */

/* Whoever can write into the repository wrote these wishes, an agent before this one among them. */
static int agent_confirm(struct agent_call *a)
{
    AUTO_BUF struct buf text = BUF_INIT(64 * 1024);
    char answer[AGENT_ANSWER_MAX] = "";
    if (!json_array_size(a->asks) || a->o->trusts)
        return 0;
    JSON_FOREACH_AT (i, one, a->asks)
        buf_printf(&text, "%s%s", i ? ", " : "", json_string_value(one));
    if (isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1) {
        (void)fputs("The repository asks for more than the kit gives:\n", stderr);
        JSON_FOREACH (one, a->asks)
            terminal_line(stderr, "  %s", json_string_value(one));
        (void)fputs("Allow it? [y/N] ", stderr);
        if (fgets(answer, sizeof(answer), stdin) && (*answer == 'y' || *answer == 'Y'))
            return 0;
        return err_set(&a->ctx->err, ERR_CANCELED, "not allowed, so nothing was made");
    }
    context_hint(a->ctx, "look at its .cove directory, then say --trust-repository");
    return err_set(&a->ctx->err, ERR_FAILED_PRECONDITION, "the repository asks for more than the kit gives: %.*s",
                   (int)MIN(buf_len(&text), (size_t)160), buf_data(&text));
}

/* The flags', then what the repository's settings allow; the kit's come behind. */
static int agent_policy(struct agent_call *a, json_t *spec)
{
    struct net_flags net = a->o->net;
    json_t *policy = NULL, *variables = NULL, *theirs = json_object_get(spec, "network");
    if (net_flags_policy(a->ctx, &net, &variables, &policy) < 0)
        return -1;
    if (!policy)
        policy = json_object();
    if (!net.otherwise && !net.policy_file)
        (void)json_object_set_new(policy, "default", json_string("deny"));
    (void)json_array_extend(json_setdefault(policy, "rules", json_array()), json_object_get(theirs, "rules"));
    (void)json_object_set_new(spec, "network", policy);
    (void)json_object_update(json_setdefault(spec, "env", json_object()), variables);
    json_decref(variables);
    return vault_check_names(a->ctx, net.secrets, policy);
}

static int agent_settings(struct agent_call *a, const char *commit, json_t *spec, json_t **setup)
{
    if (settings_read(&a->e.repo, commit, a->o->profile, spec, setup, NULL) < 0)
        return -1;
    JSON_FOREACH (rule, json_object_get(json_object_get(spec, "network"), "rules"))
        (void)json_array_append_new(a->asks,
                                    json_sprintf("connect to %s", json_string_value(json_object_get(rule, "allow"))));
    return agent_confirm(a);
}

struct agent_built {
    struct service *s;
    const char *name;
    const json_t *mounts;
};

static int agent_refused(struct context *ctx)
{
    if (!*ctx->hint)
        context_hint(ctx, "--mount PATH" AGENT_COPY " gives it a copy to read");
    return -1;
}

/* Only the service knows what it lets be mounted: what it refuses is heard before minutes are spent on a template. */
static int agent_try_mounts(struct context *ctx, const struct agent_built *b)
{
    AUTO_JSON json_t *spec = json_pack("{s:O,s:i}", "volumes", b->mounts, "timeout_ms", 10000), *made = NULL;
    AUTO_FREE char *id = NULL;
    if (service_call(b->s, "POST", "/cove/v1/sandboxes", spec, "trying the mounts", &made) < 0)
        return agent_refused(ctx);
    if (service_id(ctx, made, &id) < 0)
        return -1;
    return service_remove(b->s, id, NULL);
}

static int agent_build(struct context *ctx, void *built)
{
    const struct agent_built *b = built;
    if (json_array_size(b->mounts) && agent_try_mounts(ctx, b) < 0)
        return -1;
    if (template_add_run(ctx, b->name, &(struct template_build_options){0}) == STATUS_OK)
        return 0;
    ctx->hint[0] = 0; /* it was said with what failed */
    return err_set(&ctx->err, ERR_FAILED_PRECONDITION, "the template %s could not be built", b->name);
}

/* A copy, at the same path, of root's: nothing inside can change it. */
static int agent_copy(struct agent_call *a, const char *text)
{
    static const char make[] = "mkdir -p \"$1\"", close[] = "chown -R root:root \"$1\" && chmod -R go-w,a+rX \"$1\"";
    AUTO_FREE char *given = mem_strndup(text, strlen(text) - strlen(AGENT_COPY));
    char path[PATH_MAX];
    if (!realpath(given, path))
        return err_errno(&a->ctx->err, errno, "copy %s", given);
    const char *slash = strrchr(path, '/');
    AUTO_FREE char *above = mem_strndup(path, (size_t)(slash - path) + (slash == path));
    char *const words[] = {path, NULL}, *const up[] = {above, NULL};
    AUTO(service_close) struct service *s = service_open(a->ctx);
    struct copy copy = {.ctx = a->ctx, .service = s, .id = a->e.id, .user = "root"};
    AUTO_FREE char *to = mem_printf("%s/", strcmp(above, "/") == 0 ? "" : above);
    return !s || env_script(&a->e, make, up, -1, -1, "root") < 0 || copy_to_sandbox(&copy, path, to) < 0 ||
                   env_script(&a->e, close, words, -1, -1, "root") < 0
               ? err_prefix(&a->ctx->err, "copy %s", path)
               : 0;
}

/* The directories themselves, where the operator allows it; the service looks whose they are. PATH:copy only has to be
 * there. */
static int agent_mounts(struct agent_call *a, json_t *spec)
{
    json_t *all = json_array();
    (void)json_object_set_new(spec, "volumes", all);
    for (size_t i = 0; i < a->o->n_mounts; i++) {
        struct str given = str_of(a->o->mounts[i]);
        const bool is_copy = str_ends(given, STR(AGENT_COPY)), is_read_only = str_ends(given, STR(":ro"));
        AUTO_FREE char *name = mem_strndup(given.p, given.n - (is_copy ? strlen(AGENT_COPY) : is_read_only ? 3 : 0));
        char path[PATH_MAX];
        struct stat st;
        if (!realpath(name, path) || stat(path, &st) < 0)
            return err_errno(&a->ctx->err, errno, "--mount %s", name);
        if (is_copy)
            continue;
        if (!S_ISDIR(st.st_mode)) {
            context_hint(a->ctx, "--mount %.100s" AGENT_COPY " gives it a copy of a file", name);
            return err_errno(&a->ctx->err, ENOTDIR, "--mount %s", name);
        }
        json_t *one = json_pack("{s:b,s:s,s:s,s:b}", "host", 1, "name", path, "path", path, "read_only", is_read_only);
        if (!one)
            return err_set(&a->ctx->err, ERR_INVALID_ARGUMENT, "--mount: the path must be UTF-8");
        (void)json_array_append_new(all, one);
    }
    return 0;
}

static void agent_tell_left_out(struct agent_call *a)
{
    AUTO_BUF struct buf changed = BUF_INIT(16 << 20);
    size_t n = 0;
    /* A submodule's own configuration may name filters, which nobody has switched off. */
    if (REPO_ASK(&a->e.repo, REPO_THEIRS, &changed, "status", "--porcelain", "-z", "--no-renames",
                 "--ignore-submodules=all") < 0)
        a->ctx->err.code = ERR_OK;
    for (size_t i = 0; i < buf_len(&changed); i++)
        n += !buf_data(&changed)[i];
    if (n)
        (void)fprintf(stderr, "cove agent: the copy is of the last commit: changes to %zu file%s stay out\n", n,
                      n == 1 ? "" : "s");
}

static void agent_tell_missing(const json_t *kit, const json_t *missing)
{
    if (!json_array_size(missing) || json_array_size(missing) < json_object_size(json_object_get(kit, "credentials")))
        return; /* any of them is enough */
    AUTO_BUF struct buf names = BUF_INIT(1024);
    JSON_FOREACH_AT (i, one, missing)
        buf_printf(&names, "%s %s", i ? " or" : "", json_string_value(one));
    terminal_line(stderr, "cove agent: there is neither a variable nor a secret%.*s: the agent has no key",
                  STR_ARG(buf_str(&names)));
    terminal_line(stderr, "  'cove secret set %s' stores one; an agent that logs in through a browser needs none",
                  json_string_value(json_array_get(missing, 0)));
}

static int agent_make(struct agent_call *a, const char *commit)
{
    AUTO_JSON json_t *spec = json_object(), *setup = NULL, *missing = NULL, *all = json_array(), *mounts = NULL;
    char key[17];
    uint64_t hash = 14695981039346656037U;
    for (const char *p = a->e.repo.top; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 1099511628211U;
    (void)snprintf(key, sizeof(key), "%016llx", (unsigned long long)hash);
    if (agent_mounts(a, spec) < 0 || agent_settings(a, commit, spec, &setup) < 0 || agent_policy(a, spec) < 0)
        return -1;
    mounts = json_copy(json_object_get(spec, "volumes")); /* which the kit's caches join */
    const char *kits = json_string_value(json_object_get(a->kit, "template"));
    const char *template = a->o->template ? a->o->template : kits;
    if (template && json_object_set_new(spec, "template", json_string(template)) < 0)
        return err_set(&a->ctx->err, ERR_INVALID_ARGUMENT, "--template must be UTF-8");
    if (kit_apply(a->ctx, a->kit, key, spec, &missing) < 0)
        return -1;
    agent_tell_missing(a->kit, missing);
    struct agent_built built = {a->e.service, template, mounts};
    if (template && template_build_first(a->ctx, a->e.service, template, a->o->template, agent_build, &built) < 0)
        return -1;
    agent_tell_left_out(a);
    (void)json_array_extend(all, json_object_get(a->kit, "setup"));
    (void)json_array_extend(all, setup);
    if (env_create(&a->e, commit, spec, all, true) < 0)
        return json_array_size(mounts) ? agent_refused(a->ctx) : -1;
    for (size_t i = 0; i < a->o->n_mounts; i++) {
        if (!str_ends(str_of(a->o->mounts[i]), STR(AGENT_COPY)) || agent_copy(a, a->o->mounts[i]) == 0)
            continue;
        struct err why = a->ctx->err;
        int ignored UNUSED = env_remove(&a->e, true);
        a->ctx->err = why;
        return -1;
    }
    return 0;
}

/* ---- its process ---- */

/* 1: it runs; *ret_pty: at a terminal. */
static int agent_is_running(struct context *ctx, const char *id, bool *ret_pty)
{
    AUTO(service_close) struct service *s = service_open(ctx);
    AUTO_FREE char *target = service_target(id, "/processes");
    AUTO_JSON json_t *all = NULL;
    if (!s || service_call(s, "GET", target, NULL, NULL, &all) < 0)
        return -1;
    JSON_FOREACH (one, json_object_get(all, "processes")) {
        const char *tag = json_string_value(json_object_get(one, "tag"));
        if (!tag || strcmp(tag, AGENT_TAG) != 0)
            continue;
        *ret_pty = json_is_true(json_object_get(one, "pty"));
        return 1;
    }
    return 0;
}

static void agent_leave(struct context *ctx, const char *id, const char *name)
{
    AUTO(service_close) struct service *s = service_open(ctx);
    AUTO_JSON json_t *body = json_pack("{s:i, s:b}", "timeout_ms", DETACHED_MS, "extend_only", 1);
    AUTO_FREE char *target = service_target(id, "/timeout");
    bool is_long = s && service_call(s, "POST", target, body, NULL, NULL) == 0;
    ctx->err.code = ERR_OK;
    (void)fprintf(stderr, "\r\ncove agent: it goes on%s; 'cove attach %s' comes back\n",
                  is_long ? " for a day" : " until its time is up", name);
}

static int agent_end(struct context *ctx, struct env *e, const struct exec_result *result, bool failed)
{
    int status = exec_status(result, failed);
    if (result->detached) {
        agent_leave(ctx, e->id, e->name);
        return status;
    }
    if (failed) {
        if (result->started)
            context_hint(ctx, "'cove attach %s' comes back, if it goes on", e->name);
        return context_fail(ctx, status);
    }
    return provenance_receive(e) < 0 || receipt_tell(ctx, e, AGENT_TAG, status) < 0 ? context_fail(ctx, STATUS_COVE)
                                                                                    : status;
}

/* With --json its output goes to stderr. */
static struct exec_io agent_io(const struct context *ctx)
{
    return (struct exec_io){.stdin_fd = STDIN_FILENO,
                            .stdout_fd = ctx->json ? STDERR_FILENO : STDOUT_FILENO,
                            .stderr_fd = STDERR_FILENO,
                            .tick_ms = AGENT_WATCH_MS};
}

static int agent_work(struct agent_call *a)
{
    struct exec_result result = {0};
    char *words[256] = {0};
    size_t n = 0;
    bool has_pty = agent_has_terminal();
    JSON_FOREACH (one, json_object_get(a->kit, "command"))
        if (n < ARRAY_SIZE(words) - 1)
            words[n++] = (char *)json_string_value(one);
    if (a->o->takes_command && *a->o->rest && **a->o->rest != '-' && n < ARRAY_SIZE(words) - 3) {
        words[n++] = (char *)"-c";
        words[n++] = (char *)PRINT_SHELL_LINE;
    }
    for (char *const *word = a->o->rest; *word && n < ARRAY_SIZE(words) - 1; word++)
        words[n++] = *word;
    AUTO_FREE char *cwd = env_here(&a->e);
    const struct exec_request request = {.id = a->e.id,
                                         .argv = words,
                                         .user = a->e.user,
                                         .cwd = cwd,
                                         .tag = AGENT_TAG,
                                         .has_pty = has_pty,
                                         .has_stdin = has_pty || !isatty(STDIN_FILENO),
                                         .detaches = has_pty};
    const struct exec_io io = agent_io(a->ctx);
    bool failed = env_exec(&a->e, &request, &io, &result) < 0;
    return agent_end(a->ctx, &a->e, &result, failed);
}

static int agent_begin(struct agent_call *a, const char *name)
{
    struct context *ctx = a->ctx;
    bool is_new = !a->e.id, pty;
    AUTO_FREE char *commit = repo_commit(&a->e.repo, REPO_THEIRS, a->o->from ? a->o->from : "HEAD");
    if (!commit || kit_read(&a->e.repo, commit, a->o->kit, &a->kit, &a->asks) < 0)
        return -1;
    if (is_new)
        return agent_make(a, commit);
    if (a->o->net.rules || a->o->net.policy_file || a->o->net.secrets || a->o->net.otherwise || a->o->n_mounts ||
        a->o->template || a->o->from || a->o->profile) {
        context_hint(ctx, "--name makes another one; 'cove policy' changes what it may reach");
        return err_set(&ctx->err, ERR_ALREADY_EXISTS,
                       "the environment %s is there already, and keeps what it was made with", name);
    }
    if (env_wake(&a->e) < 0 || kit_renew(ctx, a->kit) < 0)
        return -1;
    int running = agent_is_running(ctx, a->e.id, &pty);
    if (running > 0) {
        context_hint(ctx, "'cove attach %s' comes back to it; --name begins another", name);
        return err_set(&ctx->err, ERR_ALREADY_EXISTS, "an agent is already running in %s", name);
    }
    return running;
}

int agent_run(struct context *ctx, const struct agent_options *o)
{
    struct agent_call a = {.ctx = ctx, .o = o, .e.repo.lock = -1};
    const char *name = o->name ? o->name : o->kit;
    int status = env_open(ctx, o->path ? o->path : ".", name, &a.e) < 0 || agent_begin(&a, name) < 0
                     ? context_fail(ctx, STATUS_COVE)
                     : agent_work(&a);
    env_fini(&a.e);
    json_decref(a.kit);
    json_decref(a.asks);
    return status;
}

/* ---- coming back ---- */

static int agent_follow(struct context *ctx, struct env *e, const char *id, const char *name)
{
    struct exec_result result = {0};
    bool pty = false;
    if (e->id && env_wake(e) < 0)
        return context_fail(ctx, STATUS_COVE);
    int running = agent_is_running(ctx, id, &pty);
    if (running < 0)
        return context_fail(ctx, STATUS_COVE);
    if (running == 0) {
        (void)err_set(&ctx->err, ERR_NOT_FOUND, "no agent is running in %s", name);
        return context_fail(ctx, STATUS_COVE);
    }
    if (pty && !agent_has_terminal())
        return context_usage(ctx, "the agent needs a terminal");
    const struct exec_request request = {
        .id = id, .attaches = true, .tag = AGENT_TAG, .has_pty = pty, .has_stdin = pty, .detaches = pty};
    struct exec_io io = agent_io(ctx);
    AUTO(service_close) struct service *s = e->id ? NULL : service_open(ctx);
    io.forwards_signals = true;
    bool failed =
        e->id ? env_exec(e, &request, &io, &result) < 0 : !s || exec_in_sandbox(ctx, s, &request, &io, &result) < 0;
    if (e->id)
        return agent_end(ctx, e, &result, failed);
    if (result.detached)
        agent_leave(ctx, id, id);
    return failed ? context_fail(ctx, exec_status(&result, failed)) : exec_status(&result, failed);
}

int agent_attach(struct context *ctx, const char *what)
{
    struct env e = {.repo.lock = -1};
    AUTO_FREE char *id = NULL;
    AUTO_JSON json_t *sandbox = NULL;
    if (env_open(ctx, ".", what, &e) == 0 && e.id) {
        int status = agent_follow(ctx, &e, e.id, what);
        env_fini(&e);
        return status;
    }
    env_fini(&e);
    e = (struct env){.repo.lock = -1};
    ctx->err.code = ERR_OK;
    *ctx->hint = '\0';
    exec_block_signals();
    AUTO(service_close) struct service *s = service_open(ctx);
    AUTO_FREE char *target = s && service_resolve(s, what, &id) == 0 ? service_target(id, "%s", "") : NULL;
    if (!target || service_call(s, "GET", target, NULL, NULL, &sandbox) < 0)
        return context_fail(ctx, STATUS_COVE);
    /* Its label may name a repository that is not here, or not ours: then there is nothing to receive into. */
    const char *repo = env_label(sandbox, "cove.repo"), *name = env_label(sandbox, "cove.env");
    if (repo && name && env_open(ctx, repo, name, &e) == 0 && (!e.id || strcmp(e.id, id) != 0)) {
        env_fini(&e);
        e = (struct env){.repo.lock = -1};
    }
    ctx->err.code = ERR_OK;
    *ctx->hint = '\0';
    int status = agent_follow(ctx, &e, id, e.id ? e.name : id);
    env_fini(&e);
    return status;
}

int agent_list(struct context *ctx)
{
    static const struct things_column columns[] = {{"NAME", "name", NULL}, {"WHAT", "summary", NULL}};
    AUTO_JSON json_t *all = kit_list();
    return things_table(ctx, all, columns, ARRAY_SIZE(columns));
}
