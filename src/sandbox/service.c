/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 *  1. What a service is, is JSON that never changes: it is the sandbox's row, what forks inherit, and what is told.
 *     Where it is, is enum service_state; moves are in the functions service_begin(), service_ready() and
 *     service_ends().
 *  2. A start makes the nest, starts the program in it, and tries each port, then the ready command, until
 *     SERVICE_READY_MS are over. Where that fails, a new service is forgotten, one of before has exited.
 *  3. A nest isn't ended within a callback of its own: `turn` does that, as all that follows such a callback.
 *  4. The first start is the client's action, with the client's name and rights; later ones, on the same words, are our
 *     own.
 */
#include "sandbox/service.h"
#include "base/log.h"
#include "base/mem.h"
#include "sandbox/exec/exec.h"
#include "sandbox/files/files.h"
#include "sandbox/nest.h"
#include "sandbox/network/network_life.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"
#include "sandbox/templates.h"

#include <stdio.h>
#include <string.h>

enum { SERVICE_READY_MS = 60000, SERVICE_AGAIN_MS = 50, SERVICE_AGAIN_MOST_MS = 1000, SERVICE_SAID_MAX = 200 };
#define SERVICE_STOPS "its sandbox has ended or was paused"

enum service_state { SERVICE_STOPPED, SERVICE_STARTING, SERVICE_RUNNING, SERVICE_EXITED };

struct sandbox_service {
    struct list node; /* of its sandbox, which goes after it */
    struct sandbox *sb;
    json_t *spec; /* owned */
    enum service_state state;
    bool is_making;       /* its nest; until then it stays */
    bool has_code;        /* its program ended by itself */
    struct sandbox *nest; /* owned */
    struct actor actor;   /* of the first start; its strings are in the arena */
    struct arena arena;
    struct follow *run, *try;
    struct file_call *dial;
    struct ca_install *trust;
    size_t n_open; /* of its ports, as found so far */
    unsigned tries;
    usec_t until; /* monotonic */
    struct loop_alarm turn;
    int code;
    char said[SERVICE_SAID_MAX + 1]; /* the last of it; once it has exited, why */
    service_fn done;                 /* of a new one */
    void *ctx;
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

static void service_free(struct sandbox_service *s)
{
    assert(!s->nest && !s->is_making);
    list_remove(&s->node);
    loop_alarm_clear(s->sb->core->loop, &s->turn);
    json_decref(s->spec);
    arena_fini(&s->arena);
    mem_free(s);
}

/* ---- ends ---- */

static void service_let_go(struct sandbox_service *s)
{
    exec_close(TAKE_PTR(s->run));
    exec_close(TAKE_PTR(s->try));
    if (s->dial)
        file_call_cancel(TAKE_PTR(s->dial));
    ca_install_cancel(TAKE_PTR(s->trust));
    loop_alarm_clear(s->sb->core->loop, &s->turn);
    if (s->nest)
        nest_end(TAKE_PTR(s->nest));
}

static void service_tell_failure(struct sandbox_service *s)
{
    service_fn done = TAKE_PTR(s->done);
    struct err err;
    (void)err_set(&err, ERR_FAILED_PRECONDITION, "service '%s': %s", service_text(s, "name"), s->said);
    done(s->ctx, NULL, &err);
}

static void service_is_over(struct loop_alarm *alarm)
{
    struct sandbox_service *s = container_of(alarm, struct sandbox_service, turn);
    service_let_go(s);
    if (!s->done)
        return;
    service_tell_failure(s);
    service_free(s);
}

/* why NULL: what it said last is all that is known. */
static void service_ends(struct sandbox_service *s, enum service_state state, const char *why)
{
    if (why)
        (void)snprintf(s->said, sizeof(s->said), "%s", why);
    s->state = state;
    if (!s->sb->core->closing)
        loop_alarm_set(s->sb->core->loop, &s->turn, clock_mono(), service_is_over);
    else if (s->done)
        service_tell_failure(s);
}

static void service_remember(struct sandbox_service *s, struct str bytes)
{
    size_t have = strlen(s->said);
    if (bytes.n > SERVICE_SAID_MAX)
        bytes = str_sub(bytes, bytes.n - SERVICE_SAID_MAX);
    size_t keep = MIN(have, SERVICE_SAID_MAX - bytes.n);
    memmove(s->said, s->said + have - keep, keep);
    for (size_t i = 0; i < bytes.n; i++)
        s->said[keep + i] = bytes.p[i] >= ' ' && bytes.p[i] <= '~' ? bytes.p[i] : ' ';
    s->said[keep + bytes.n] = 0;
}

/* ---- is it ready? ---- */

static void service_look(struct loop_alarm *alarm);

static void service_turn(struct sandbox_service *s, unsigned ms)
{
    if (s->state == SERVICE_STARTING)
        loop_alarm_set(s->sb->core->loop, &s->turn, clock_mono() + ms * USEC_PER_MS, service_look);
}

static void service_look_again(struct sandbox_service *s)
{
    service_turn(s, MIN((unsigned)SERVICE_AGAIN_MS << MIN(s->tries, 5U), (unsigned)SERVICE_AGAIN_MOST_MS));
    s->tries++;
}

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

static void service_dialled(void *ctx)
{
    struct sandbox_service *s = ctx;
    s->n_open++;
    service_turn(s, 0);
}

static void service_hears(void *ctx, struct str bytes UNUSED)
{
    (void)ctx; /* what it greets with is nobody's: the connection is closed in the next turn */
}

static void service_nothing(void *ctx UNUSED)
{
}

static void service_undialled(void *ctx, const struct err *err UNUSED)
{
    struct sandbox_service *s = ctx;
    s->dial = NULL;
    if (!s->turn.slot)
        service_look_again(s);
}

static void service_tried(void *ctx, const struct exec_exit *exit)
{
    struct sandbox_service *s = ctx;
    s->try = NULL;
    if (exit->signaled || exit->code)
        service_look_again(s);
    else if (s->state == SERVICE_STARTING)
        service_ready(s);
}

static void service_try_fails(void *ctx, const struct err *err UNUSED)
{
    struct sandbox_service *s = ctx;
    s->try = NULL;
    service_look_again(s);
}

static void service_try_says(void *ctx, enum wire_channel channel UNUSED, struct str bytes)
{
    struct sandbox_service *s = ctx;
    service_remember(s, bytes);
    exec_ack(s->try, bytes.n);
}

static int service_try(struct sandbox_service *s, const char *ready, uint64_t left_ms, struct err *err)
{
    static const struct exec_ops ops = {
        .on_output = service_try_says, .on_exit = service_tried, .on_error = service_try_fails};
    const struct str args[] = {STR("-c"), str_of(ready)};
    const struct exec_spec spec = {
        .cmd = STR("/bin/sh"), .args = args, .n_args = ARRAY_SIZE(args), .timeout_ms = left_ms};
    return exec_start(s->nest, &service_actor, &spec, &ops, s, &s->try, err);
}

static void service_look(struct loop_alarm *alarm)
{
    static const struct dial_ops dial = {.on_open = service_dialled,
                                         .on_data = service_hears,
                                         .on_writable = service_nothing,
                                         .on_eof = service_nothing,
                                         .on_end = service_undialled};
    struct sandbox_service *s = container_of(alarm, struct sandbox_service, turn);
    const json_t *ports = json_object_get(s->spec, "ports");
    const char *ready = service_text(s, "ready");
    usec_t now = clock_mono();
    struct err err;
    if (s->dial)
        file_call_cancel(TAKE_PTR(s->dial));
    if (s->sb->info.state != SANDBOX_RUNNING) { /* paused with its memory */
        s->until = now + SERVICE_READY_MS * USEC_PER_MS;
        service_look_again(s);
        return;
    }
    if (now >= s->until) {
        char why[SERVICE_SAID_MAX];
        (void)snprintf(why, sizeof(why), "it was not ready within %d s%s%.120s", SERVICE_READY_MS / 1000,
                       *s->said ? ": " : "", s->said);
        service_ends(s, SERVICE_EXITED, why);
        return;
    }
    int r = 0;
    if (s->n_open < json_array_size(ports))
        r = dial_open(s->nest, &service_actor, (uint16_t)json_integer_value(json_array_get(ports, s->n_open)), &dial, s,
                      &s->dial, &err);
    else if (*ready)
        r = service_try(s, ready, (s->until - now) / USEC_PER_MS + 1, &err);
    else
        service_ready(s);
    if (r < 0)
        service_ends(s, SERVICE_EXITED, err.msg);
}

/* ---- its program ---- */

static void service_runs(void *ctx, uint32_t pid UNUSED)
{
    service_turn(ctx, 0);
}

static void service_says(void *ctx, enum wire_channel channel UNUSED, struct str bytes)
{
    struct sandbox_service *s = ctx;
    service_remember(s, bytes);
    exec_ack(s->run, bytes.n);
}

static void service_exits(void *ctx, const struct exec_exit *exit)
{
    struct sandbox_service *s = ctx;
    char why[SERVICE_SAID_MAX];
    s->run = NULL;
    s->has_code = !exit->signaled;
    s->code = (int)exit->code;
    (void)snprintf(why, sizeof(why), "its program ended with %s %u%s%.140s", exit->signaled ? "signal" : "status",
                   exit->code, *s->said ? ": " : "", s->said);
    service_ends(s, SERVICE_EXITED, why);
}

static void service_fails(void *ctx, const struct err *err)
{
    struct sandbox_service *s = ctx;
    s->run = NULL;
    service_ends(s, SERVICE_EXITED, err->msg);
}

static void service_run(struct sandbox_service *s)
{
    static const struct exec_ops ops = {
        .on_start = service_runs, .on_output = service_says, .on_exit = service_exits, .on_error = service_fails};
    const json_t *argv = json_object_get(s->spec, "argv");
    struct str args[64];
    struct err err;
    struct exec_spec spec = {.cmd = json_str(json_array_get(argv, 0)), .args = args};
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
    if (!err && s->state != SERVICE_STARTING) {
        (void)err_set(&local, ERR_ABORTED, SERVICE_STOPS);
        err = &local;
    }
    if (err)
        service_ends(s, s->state == SERVICE_STARTING ? SERVICE_EXITED : s->state, err->msg);
    else if (network_install_ca_in(nest, service_trusts, s, &s->trust, &local) != 0)
        service_run(s);
}

static int service_begin(struct sandbox_service *s, const struct actor *actor, struct err *err)
{
    const struct nest_root root = {service_text(s, "name"), service_text(s, "template"), service_text(s, "layer"),
                                   service_text(s, "user"), service_text(s, "workdir")};
    const json_t *envs = json_object_get(s->spec, "env");
    struct pair *pairs = arena_alloc(&s->arena, (json_object_size(envs) + 1) * sizeof(*pairs));
    struct nest_spec spec = {.root = &root, .envs = pairs};
    JSON_FOREACH_MEMBER (key, value, envs)
        pairs[spec.n_envs++] = (struct pair){str_of(key), json_str(value)};
    if (nest_make(s->sb, actor, &spec, service_made, s, err) < 0)
        return -1;
    s->state = SERVICE_STARTING;
    s->is_making = true;
    s->has_code = false;
    s->said[0] = 0;
    s->n_open = s->tries = 0;
    s->until = clock_mono() + SERVICE_READY_MS * USEC_PER_MS;
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

static int service_check(const struct sandbox *sb, const struct service_spec *spec, const struct template *t,
                         struct err *err)
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
    return 0;
}

/* What it runs: {"argv","user","workdir"}; NULL: it isn't known. */
static json_t *service_command(const struct template *t, struct str command)
{
    json_t *image = t->image ? json_loads(t->image, 0, NULL) : NULL;
    const char *start = t->start_cmd;
    if (command.n || (start && !json_array_size(json_object_get(image, "argv")))) {
        if (!image)
            image = json_pack("{s:s,s:s}", "user", t->user ? t->user : "root", "workdir", t->workdir ? t->workdir : "");
        (void)json_object_set_new(
            image, "argv",
            json_pack("[s,s,o]", "/bin/sh", "-c", command.n ? json_stringn(command.p, command.n) : json_string(start)));
    }
    if (image && !*json_string_value(json_object_get(image, "user")))
        (void)json_object_set_new(image, "user", json_string("root"));
    if (image && !*json_string_value(json_object_get(image, "workdir")))
        (void)json_object_set_new(image, "workdir", json_string("/"));
    return image;
}

static json_t *service_json_text(struct str s)
{
    return s.n ? json_stringn(s.p, s.n) : NULL;
}

static json_t *service_describe(const struct service_spec *spec, const struct template *t, struct err *err)
{
    json_t *all = service_command(t, spec->command), *env = json_object(), *ports = json_array();
    for (size_t i = 0; i < t->n_envs; i++) {
        const char *eq = strchr(t->envs[i], '=');
        (void)json_object_setn_new(env, t->envs[i], (size_t)(eq - t->envs[i]), json_string(eq + 1));
    }
    for (size_t i = 0; i < spec->n_envs; i++)
        (void)json_object_setn_new(env, spec->envs[i].key.p, spec->envs[i].key.n,
                                   json_stringn(spec->envs[i].value.p, spec->envs[i].value.n));
    for (size_t i = 0; i < spec->n_ports; i++)
        (void)json_array_append_new(ports, json_integer(spec->ports[i]));
    AUTO_JSON json_t *own =
        json_pack("{s:o,s:s,s:s,s:o,s:o,s:o*,s:o*}", "name", json_stringn(spec->name.p, spec->name.n), "template",
                  t->id, "layer", t->layer, "env", env, "ports", ports, "command", service_json_text(spec->command),
                  "ready", service_json_text(spec->ready));
    size_t n = json_array_size(json_object_get(all, "argv"));
    if (n && n <= 64 && json_object_update(all, own) == 0)
        return all;
    json_decref(all);
    (void)err_set(err, ERR_FAILED_PRECONDITION, "template '%s' doesn't say what it is to run: give a command", t->id);
    return NULL;
}

int service_add(struct sandbox *sb, const struct actor *actor, const struct service_spec *spec, service_fn done,
                void *ctx, struct err *err)
{
    const struct template *t;
    if (sandbox_usable(sb, err) < 0 || core_template_find(sb->core, actor->who.view, spec->template_ref, &t, err) < 0 ||
        service_check(sb, spec, t, err) < 0)
        return -1;
    json_t *words = service_describe(spec, t, err);
    if (!words)
        return -1;
    struct sandbox_service *s = service_find(sb, spec->name);
    if (s) { /* it has exited */
        service_let_go(s);
        service_free(s);
    }
    s = service_new(sb, words);
    const struct principal *who = &actor->who;
    s->done = done;
    s->ctx = ctx;
    s->actor = (struct actor){.name = arena_strndup(&s->arena, actor->name, strlen(actor->name)), .who = *who};
    s->actor.who.key = who->key ? arena_strndup(&s->arena, who->key, strlen(who->key)) : NULL;
    s->actor.who.name = who->name ? arena_strndup(&s->arena, who->name, strlen(who->name)) : NULL;
    s->actor.who.sandbox = who->sandbox ? arena_strndup(&s->arena, who->sandbox, strlen(who->sandbox)) : NULL;
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
    if (s->state == SERVICE_EXITED && s->has_code)
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
        service_let_go(s);
        s->state = SERVICE_STOPPED;
        if (s->done && !s->is_making)
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
