/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 *  1. What a service is, is JSON that never changes: it is the sandbox's row, what forks inherit, and what is told.
 *     Where it is, is enum service_state; moves are in service_begin(), service_ready(), service_ends() and
 *     services_stop().
 *  2. A start makes the nest, starts the program in it, and waits for each port in turn, then for the ready command:
 *     each for at most SERVICE_READY_MS in which the sandbox runs. The agent waits for ports, a shell for the command.
 *     When a start fails, a new service is forgotten; one that ran before has exited.
 *  3. The first start is the client's action, with the client's name and rights; later ones, on the same words, are our
 *     own.
 */
#include "sandbox/service.h"
#include "base/mem.h"
#include "sandbox/exec/exec.h"
#include "sandbox/nest.h"
#include "sandbox/network/network_life.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"
#include "sandbox/templates.h"

#include <stdio.h>
#include <string.h>

enum { SERVICE_READY_MS = 60000, SERVICE_SAID_MAX = 200, SERVICE_ARGS_MAX = 64 };
#define SERVICE_STOPS "its sandbox has ended or was paused"

enum service_state { SERVICE_STOPPED, SERVICE_STARTING, SERVICE_RUNNING, SERVICE_EXITED };

struct sandbox_service {
    struct list node; /* of its sandbox, which goes after it */
    struct sandbox *sb;
    json_t *spec; /* owned */
    enum service_state state;
    bool is_making;       /* its nest; until then it stays */
    struct sandbox *nest; /* owned */
    struct follow *run, *ready;
    struct ca_install *trust;
    struct stream *dial;             /* the port that is waited for */
    size_t n_open;                   /* of its ports */
    int code;                        /* its program ended by itself; or -1 */
    char said[SERVICE_SAID_MAX + 1]; /* the last of it; once it has exited, why */
    service_fn done;                 /* of a new one */
    void *ctx;
    struct actor actor; /* the same; its strings are in the arena */
    struct arena arena;
};

static const struct actor service_actor = {.name = "services", .is_own = true, .who.view = TENANT_ANY};

static const char *service_text(const struct sandbox_service *s, const char *name)
{
    const char *text = json_string_value(json_object_get(s->spec, name));
    return text ? text : "";
}

static struct list *services_of(const struct sandbox *sb)
{
    return (struct list *)(uintptr_t)&sb->services;
}

/* ---- its end ---- */

static void service_let_go(struct sandbox_service *s)
{
    exec_close(TAKE_PTR(s->run));
    exec_close(TAKE_PTR(s->ready));
    stream_close(TAKE_PTR(s->dial));
    ca_install_cancel(TAKE_PTR(s->trust));
    if (s->nest)
        nest_end(TAKE_PTR(s->nest));
}

static void service_free(struct sandbox_service *s)
{
    service_let_go(s);
    assert(!s->is_making);
    list_remove(&s->node);
    json_decref(s->spec);
    arena_fini(&s->arena);
    mem_free(s);
}

/* A new one is gone behind it. */
static void service_ends(struct sandbox_service *s, enum service_state state, const char *why)
{
    service_fn done = TAKE_PTR(s->done);
    void *ctx = s->ctx;
    struct err err;
    service_let_go(s);
    s->state = state;
    (void)snprintf(s->said, sizeof(s->said), "%s", why);
    if (!done)
        return;
    (void)err_set(&err, ERR_FAILED_PRECONDITION, "service '%s': %s", service_text(s, "name"), why);
    service_free(s);
    done(ctx, NULL, &err);
}

/* what, and what it said last. */
static void service_exits(struct sandbox_service *s, const char *what)
{
    char why[SERVICE_SAID_MAX + 1];
    (void)snprintf(why, sizeof(why), "%s%s%.120s", what, *s->said ? ": " : "", s->said);
    service_ends(s, SERVICE_EXITED, why);
}

static void service_fails(struct sandbox_service *s, const struct err *err)
{
    if (err->code == ERR_DEADLINE_EXCEEDED)
        service_exits(s, "it was not ready within 60 s");
    else
        service_ends(s, SERVICE_EXITED, err->msg);
}

/* ---- is it ready? ---- */

static void service_look(struct sandbox_service *s);

static void service_ready(struct sandbox_service *s)
{
    service_fn done = TAKE_PTR(s->done);
    struct err err;
    s->state = SERVICE_RUNNING;
    if (!done)
        return;
    rows_extra(s->sb);
    if (keeper_commit(s->sb->core->keeper, &err) < 0)
        core_unrecorded(s->sb->core, &err);
    done(s->ctx, s, NULL);
}

static void service_dialled(void *ctx, struct str tail UNUSED, const struct err *err)
{
    struct sandbox_service *s = ctx;
    s->dial = NULL;
    s->n_open++;
    if (err)
        service_fails(s, err);
    else
        service_look(s);
}

static int service_dial(struct sandbox_service *s, uint16_t port, struct err *err)
{
    static const struct stream_ops ops = {.on_end = service_dialled};
    struct buf *b = session_request(s->nest->session, WIRE_DIAL);
    wire_put_u16(b, port);
    wire_put_u8(b, WIRE_DIAL_AWAIT);
    return stream_open(s->nest->session, b, &ops, s, SERVICE_READY_MS, &s->dial, err);
}

static void service_tried(void *ctx, const struct exec_exit *exit, const struct err *err)
{
    if (err)
        service_fails(ctx, err);
    else if (exit->signaled || exit->code)
        service_exits(ctx, "its ready command can't be tried");
    else
        service_ready(ctx);
}

static int service_try(struct sandbox_service *s, const char *ready, struct err *err)
{
    static const struct exec_ops ops = {.on_end = service_tried};
    const struct str args[] = {
        STR("-c"),
        STR("set -- 0.05 0.1 0.2 0.5 1; until /bin/sh -c \"$0\"; do sleep $1 || sleep 1 || exit; "
            "[ $# = 1 ] || shift; done"),
        str_of(ready)};
    const struct exec_spec spec = {.cmd = STR("/bin/sh"),
                                   .args = args,
                                   .n_args = ARRAY_SIZE(args),
                                   .timeout_ms = SERVICE_READY_MS,
                                   .said = s->said,
                                   .said_size = sizeof(s->said)};
    return exec_start(s->nest, &service_actor, &spec, &ops, s, &s->ready, err);
}

/* What is next. */
static void service_look(struct sandbox_service *s)
{
    const json_t *ports = json_object_get(s->spec, "ports");
    const char *ready = service_text(s, "ready");
    struct err err;
    int r = 0;
    if (s->n_open < json_array_size(ports))
        r = service_dial(s, (uint16_t)json_integer_value(json_array_get(ports, s->n_open)), &err);
    else if (*ready)
        r = service_try(s, ready, &err);
    else
        service_ready(s);
    if (r < 0)
        service_fails(s, &err);
}

/* ---- its program ---- */

static void service_runs(void *ctx, uint32_t pid UNUSED)
{
    service_look(ctx);
}

static void service_run_ends(void *ctx, const struct exec_exit *exit, const struct err *err)
{
    struct sandbox_service *s = ctx;
    char what[64];
    if (err) {
        service_ends(s, SERVICE_EXITED, err->msg);
        return;
    }
    s->code = exit->signaled ? -1 : (int)exit->code;
    (void)snprintf(what, sizeof(what), "its program ended with %s %u", exit->signaled ? "signal" : "status",
                   exit->code);
    service_exits(s, what);
}

static void service_run(struct sandbox_service *s)
{
    static const struct exec_ops ops = {.on_start = service_runs, .on_end = service_run_ends};
    const json_t *argv = json_object_get(s->spec, "argv");
    struct str args[SERVICE_ARGS_MAX];
    struct err err;
    struct exec_spec spec = {
        .cmd = json_str(json_array_get(argv, 0)), .args = args, .said = s->said, .said_size = sizeof(s->said)};
    JSON_FOREACH_AT (i, arg, argv)
        if (i)
            args[spec.n_args++] = json_str(arg);
    if (exec_start(s->nest, s->done ? &s->actor : &service_actor, &spec, &ops, s, &s->run, &err) < 0)
        service_ends(s, SERVICE_EXITED, err.msg);
}

/* Not every image has a place for the certificate. */
static void service_trusts(void *ctx, const struct err *err)
{
    struct sandbox_service *s = ctx;
    s->trust = NULL;
    s->nest->has_own_ca = !err;
    service_run(s);
}

static void service_made(void *ctx, struct sandbox *nest, const struct err *err)
{
    struct sandbox_service *s = ctx;
    struct err local;
    s->is_making = false;
    s->nest = nest;
    if (s->state != SERVICE_STARTING)
        service_ends(s, s->state, SERVICE_STOPS);
    else if (err)
        service_ends(s, SERVICE_EXITED, err->msg);
    else if (network_install_ca_in(nest, service_trusts, s, &s->trust, &local) != 0)
        service_run(s);
}

static int service_begin(struct sandbox_service *s, const struct actor *actor, struct err *err)
{
    const char *user = service_text(s, "user"), *workdir = service_text(s, "workdir");
    const struct nest_root root = {service_text(s, "name"), service_text(s, "template"), service_text(s, "layer"),
                                   *user ? user : "root", *workdir ? workdir : "/"};
    const json_t *envs = json_object_get(s->spec, "env");
    struct pair *pairs = arena_alloc(&s->arena, (json_object_size(envs) + 1) * sizeof(*pairs));
    struct nest_spec spec = {.root = &root, .envs = pairs};
    JSON_FOREACH_MEMBER (key, value, envs)
        pairs[spec.n_envs++] = (struct pair){str_of(key), json_str(value)};
    s->code = -1;
    s->said[0] = 0;
    s->n_open = 0;
    if (nest_make(s->sb, actor, &spec, service_made, s, err) < 0)
        return -1;
    s->state = SERVICE_STARTING;
    s->is_making = true;
    return 0;
}

/* ---- what is asked for ---- */

static struct sandbox_service *service_new(struct sandbox *sb, json_t *spec)
{
    struct sandbox_service *s = mem_new(struct sandbox_service);
    s->sb = sb;
    s->spec = spec;
    s->arena = ARENA_INIT;
    list_init(&s->node);
    list_append(&sb->services, &s->node);
    return s;
}

static struct sandbox_service *service_find(const struct sandbox *sb, struct str name)
{
    LIST_FOREACH (struct sandbox_service, s, services_of(sb), node)
        if (str_eqc(name, service_text(s, "name")))
            return s;
    return NULL;
}

static int service_check(const struct sandbox *sb, const struct actor *actor, const struct service_spec *spec,
                         const struct template *t, struct err *err)
{
    const struct nest_root root = {.name = ""};
    size_t n = 0;
    LIST_FOREACH (struct sandbox_service, s, services_of(sb), node)
        n++;
    if (nest_check(sb, &(struct nest_spec){.root = &root}, err) < 0)
        return -1;
    if (!spec->name.n || spec->name.n > SERVICE_NAME_MAX || !str_is_of(spec->name, "a-z0-9-") ||
        spec->name.p[0] == '-' || str_eqc(spec->name, "localhost"))
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "a service's name has at most %d letters a-z, digits and '-', and is not 'localhost'",
                       SERVICE_NAME_MAX);
    const struct sandbox_service *there = service_find(sb, spec->name);
    if (there && there->state != SERVICE_EXITED)
        return err_set(err, ERR_ALREADY_EXISTS, "there is a service '%.*s' already", STR_ARG(spec->name));
    if (n >= SERVICES_MAX || spec->n_ports > SERVICE_PORTS_MAX)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "a sandbox has at most %d services, each with at most %d ports",
                       SERVICES_MAX, SERVICE_PORTS_MAX);
    if (pairs_check("environment", spec->envs, spec->n_envs, true, err) < 0)
        return -1;
    if (t->tier && strcmp(t->tier, sb->info.tier) != 0)
        return err_set(err, ERR_FAILED_PRECONDITION, "template '%s' is for the tier '%s'", t->id, t->tier);
    if (actor->who.sandbox && strcmp(t->id, sb->info.template_id) != 0) /* whose files it would read */
        return err_set(err, ERR_PERMISSION_DENIED, "this API key is for one sandbox, and so for its template alone");
    return 0;
}

static json_t *service_json_text(struct str s)
{
    return s.n ? json_stringn(s.p, s.n) : NULL;
}

static json_t *service_describe(const struct service_spec *spec, const struct template *t, struct err *err)
{
    AUTO_JSON json_t *all =
        t->image ? json_loads(t->image, 0, NULL) : json_pack("{s:s*,s:s*}", "user", t->user, "workdir", t->workdir);
    bool is_told = t->start_cmd && !json_array_size(json_object_get(all, "argv"));
    struct str command = spec->command.n || !is_told ? spec->command : str_of(t->start_cmd);
    json_t *env = json_object(), *ports = json_array();
    for (size_t i = 0; i < t->n_envs; i++) {
        const char *eq = strchr(t->envs[i], '=');
        (void)json_object_setn_new(env, t->envs[i], (size_t)(eq - t->envs[i]), json_string(eq + 1));
    }
    for (size_t i = 0; i < spec->n_envs; i++)
        (void)json_object_setn_new(env, spec->envs[i].key.p, spec->envs[i].key.n,
                                   json_stringn(spec->envs[i].value.p, spec->envs[i].value.n));
    for (size_t i = 0; i < spec->n_ports; i++)
        (void)json_array_append_new(ports, json_integer(spec->ports[i]));
    if (command.n)
        (void)json_object_set_new(all, "argv", json_pack("[s,s,s%]", "/bin/sh", "-c", command.p, command.n));
    AUTO_JSON json_t *own =
        json_pack("{s:o,s:s,s:s,s:o,s:o,s:o*,s:o*}", "name", json_stringn(spec->name.p, spec->name.n), "template",
                  t->id, "layer", t->layer, "env", env, "ports", ports, "command", service_json_text(spec->command),
                  "ready", service_json_text(spec->ready));
    size_t n = json_array_size(json_object_get(all, "argv"));
    if (n && n <= SERVICE_ARGS_MAX && json_object_update(all, own) == 0)
        return json_incref(all);
    (void)err_set(err, ERR_FAILED_PRECONDITION, "template '%s' doesn't say what it is to run: give a command", t->id);
    return NULL;
}

int service_add(struct sandbox *sb, const struct actor *actor, const struct service_spec *spec, service_fn done,
                void *ctx, struct err *err)
{
    const struct template *t;
    if (sandbox_usable(sb, err) < 0 || core_template_find(sb->core, actor->who.view, spec->template_ref, &t, err) < 0 ||
        service_check(sb, actor, spec, t, err) < 0)
        return -1;
    json_t *words = service_describe(spec, t, err);
    if (!words)
        return -1;
    struct sandbox_service *s = service_find(sb, spec->name);
    if (s) /* it has exited */
        service_free(s);
    s = service_new(sb, words);
    s->done = done;
    s->ctx = ctx;
    actor_take(&s->actor, &s->arena, actor->name, &actor->who);
    if (service_begin(s, actor, err) == 0)
        return 0;
    service_free(s);
    return -1;
}

json_t *service_json(const struct sandbox_service *s)
{
    static const char *const states[] = {"stopped", "starting", "running", "exited"};
    json_t *j = json_pack("{s:O,s:O,s:O,s:O*,s:s}", "name", json_object_get(s->spec, "name"), "template",
                          json_object_get(s->spec, "template"), "ports", json_object_get(s->spec, "ports"), "command",
                          json_object_get(s->spec, "command"), "state", states[s->state]);
    if (s->state == SERVICE_EXITED && s->code >= 0)
        (void)json_object_set_new(j, "exit_code", json_integer(s->code));
    if (s->state == SERVICE_EXITED)
        (void)json_object_set_new(j, "error", json_string(s->said));
    return j;
}

json_t *services_json(const struct sandbox *sb)
{
    json_t *all = json_array();
    LIST_FOREACH (struct sandbox_service, s, services_of(sb), node)
        (void)json_array_append_new(all, service_json(s));
    return all;
}

/* ---- with their sandbox ---- */

void services_start(struct sandbox *sb)
{
    struct err err;
    LIST_FOREACH (struct sandbox_service, s, services_of(sb), node)
        if (s->state == SERVICE_STOPPED && !s->is_making && service_begin(s, &service_actor, &err) < 0)
            service_ends(s, SERVICE_EXITED, err.msg);
}

void services_stop(struct sandbox *sb)
{
    LIST_FOREACH (struct sandbox_service, s, services_of(sb), node) {
        if (s->is_making)
            s->state = SERVICE_STOPPED;
        else
            service_ends(s, SERVICE_STOPPED, SERVICE_STOPS);
    }
}

void services_free(struct sandbox *sb)
{
    LIST_FOREACH (struct sandbox_service, s, services_of(sb), node)
        service_free(s);
}

json_t *services_row(const struct sandbox *sb)
{
    json_t *all = list_empty(&sb->services) ? NULL : json_array();
    LIST_FOREACH (struct sandbox_service, s, services_of(sb), node)
        if (!s->done)
            (void)json_array_append(all, s->spec);
    return all;
}

void services_fill(struct sandbox *sb, const json_t *row)
{
    JSON_FOREACH (spec, row)
        (void)service_new(sb, json_incref(spec));
}

void services_each_layer(const struct sandbox *sb, void (*fn)(void *ctx, const char *layer), void *ctx)
{
    LIST_FOREACH (struct sandbox_service, s, services_of(sb), node)
        fn(ctx, service_text(s, "layer"));
}
