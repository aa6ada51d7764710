/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Isolated sessions (OSEP-0013): namespaces within the sandbox's own (sandbox/nest.h), by id.
 *
 *  1. A session is known as long as its sandbox lives, until it is deleted or was idle for too long. One whose
 *     processes are gone is "dead" until then.
 *  2. What is done in one is done by the handlers of commands and files: isolated_nest() puts the nest in the place of
 *     the sandbox.
 *  3. That programs and files keep within their bounds is the kernel's matter. Nothing is decided here by a path.
 */
#include "api/opensandbox/handlers.h"
#include "base/id.h"
#include "base/mem.h"
#include "sandbox/nest.h"

#include <fnmatch.h>

enum {
    ISOLATED_MAX = 16, /* of a sandbox */
    ISOLATED_IDLE_S = 1800,
    ISOLATED_RUN_S = 300,
    ISOLATED_IDLE_MAX_S = 30 * 24 * 3600,
};
#define ISOLATED_PREFIX "/v1/isolated/session/"

struct isolated {
    struct opensandbox *o;
    char id[ID_UUID_LEN + 1];
    struct sandbox *sb, *nest; /* references */
    struct sandbox_watch watch;
    struct timer idle;
    usec_t created, used; /* real time; used: without its commands */
    unsigned n_held;      /* runs that wait for an answer (sandbox/hold.h) */
    int64_t idle_s, uid, gid;
    bool read_only;
    json_t *asked;        /* owned: what is told of how it was made */
    struct charge charge; /* of this memory */
    char *workspace;
};

/* ---- their table ---- */

static void isolated_free(void *session)
{
    struct isolated *s = session;
    (void)map_del(&s->o->isolated, str_of(s->id));
    sandbox_unwatch(&s->watch);
    timer_stop(&s->idle);
    nest_end(s->nest);
    sandbox_unref(s->sb);
    json_decref(s->asked);
    charge_release(&s->charge);
    MEM_FREE(s->workspace, s);
}

void isolated_free_all(struct opensandbox *o)
{
    facade_drain(&o->isolated, isolated_free);
}

static void isolated_sandbox_ends(struct sandbox_watch *w, struct sandbox *sb UNUSED)
{
    isolated_free(container_of(w, struct isolated, watch));
}

static void isolated_unknown(struct call *c)
{
    opensandbox_fail(c, 404, "CONTEXT_NOT_FOUND", "there is no such isolated session");
}

/* NULL: answered. */
static struct isolated *isolated_find(struct call *c, const struct sandbox *sb, struct str id)
{
    struct isolated *s = map_get(&opensandbox_of_execd(c)->isolated, id);
    if (s && s->sb == sb)
        return s;
    isolated_unknown(c);
    return NULL;
}

/* ---- in the place of the sandbox ---- */

struct str isolated_rest(struct str path, struct str *ret_id)
{
    if (!str_starts(path, STR(ISOLATED_PREFIX)))
        return STR_NULL;
    path = str_sub(path, strlen(ISOLATED_PREFIX));
    *ret_id = str_before(path, '/');
    return ret_id->n && ret_id->n < path.n ? str_sub(path, ret_id->n) : STR_NULL;
}

struct sandbox *isolated_nest(struct call *c, struct sandbox *sb, struct str path)
{
    struct str id, rest = isolated_rest(path, &id);
    if (!rest.p)
        return sb;
    struct isolated *s = isolated_find(c, sb, id);
    if (!s)
        return NULL;
    if (sandbox_info(s->nest)->state == SANDBOX_ENDED) {
        isolated_unknown(c);
        return NULL;
    }
    if (s->read_only && !str_eqc(rest, "/run") && c->route->method != HTTP_METHOD_GET) {
        call_fail(c, 403, "the workspace of this session is read-only");
        return NULL;
    }
    return s->nest;
}

/* ---- how long ---- */

/* Real time; UINT64_MAX: while something runs, or waits to. */
static usec_t isolated_used(const struct isolated *s)
{
    return s->n_held ? UINT64_MAX : MAX(s->used, command_last(s->o, s->nest));
}

static void isolated_idle(struct timer *t)
{
    struct isolated *s = container_of(t, struct isolated, idle);
    usec_t used = isolated_used(s), now = clock_real(), idle = (usec_t)s->idle_s * USEC_PER_SEC;
    if (used == UINT64_MAX || used + idle > now)
        timer_set(&s->o->execd.timers, &s->idle, (used == UINT64_MAX ? idle : used + idle - now) / USEC_PER_MS + 1);
    else
        isolated_free(s);
}

/* ---- what is told of one ---- */

static json_t *isolated_json(const struct isolated *s, bool is_summary)
{
    bool is_dead = sandbox_info(s->nest)->state == SANDBOX_ENDED;
    usec_t now = clock_real(), used = MIN(isolated_used(s), now), idle = (usec_t)s->idle_s * USEC_PER_SEC;
    json_t *j = json_pack("{s:s,s:s,s:o,s:o}", "session_id", s->id, "status", is_dead ? "dead" : "active", "created_at",
                          call_time(s->created), "last_run_at", call_time(used));
    (void)json_object_set_new(j, "idle_remaining_seconds",
                              idle ? json_integer((json_int_t)((used + idle - MIN(now, used + idle)) / USEC_PER_SEC))
                                   : json_null());
    if (!is_summary)
        (void)json_object_update_missing(j, s->asked);
    return j;
}

void isolated_capabilities(struct call *c)
{
    bool is_there = strcmp(sandbox_info(c->sandbox)->tier, "container") == 0;
    call_value(c, 200,
               json_pack("{s:b,s:s,s:s,s:[s,s],s:b,s:b,s:b,s:b,s:b,s:s*}", "available", is_there, "isolator", "cove",
                         "version", core_config(call_core(c))->version, "profiles", "strict", "balanced",
                         "share_net_overridable", 1, "setpriv_available", is_there, "userns_available", 0,
                         "commit_supported", 0, "diff_supported", 0, "message",
                         is_there ? NULL : "only sandboxes of the tier 'container' have isolated sessions"));
}

void isolated_list(struct call *c)
{
    struct opensandbox *o = opensandbox_of_execd(c);
    json_t *all = json_array();
    MAP_FOREACH (struct isolated, s, &o->isolated)
        if (s->sb == c->sandbox)
            (void)json_array_append_new(all, isolated_json(s, true));
    call_value(c, 200, json_pack("{s:o}", "sessions", all));
}

void isolated_get(struct call *c)
{
    const struct isolated *s = isolated_find(c, c->sandbox, c->args[0]);
    if (s)
        call_value(c, 200, isolated_json(s, false));
}

void isolated_remove(struct call *c)
{
    struct isolated *s = isolated_find(c, c->sandbox, c->args[0]);
    if (!s)
        return;
    isolated_free(s);
    call_empty(c, 200);
}

void isolated_stub(struct call *c)
{
    opensandbox_fail(c, 503, "NOT_SUPPORTED", "changes of an overlay are not kept");
}

/* ---- making one ---- */

struct isolating {
    struct list node; /* of those that are being made */
    const struct sandbox *sb;
    struct nest_spec spec;
    int64_t idle_s, uid, gid;
    json_t *asked;        /* owned by the call's cleanup */
    struct charge charge; /* the same */
};

/* Those that are being made count. */
static size_t isolated_count(struct opensandbox *o, const struct sandbox *sb)
{
    size_t n = 0;
    MAP_FOREACH (struct isolated, s, &o->isolated)
        n += s->sb == sb;
    LIST_FOREACH (struct isolating, m, &o->isolating, node)
        n += m->sb == sb;
    return n;
}

/* What the profile 'strict' keeps from a session; case doesn't matter. */
static bool isolated_is_secret(const char *name)
{
    static const char *const patterns[] = {"*_API_KEY", "*_TOKEN",  "*_SECRET", "*_PASSWORD", "AWS_*",
                                           "ALI_*",     "ALIYUN_*", "K8S_*",    "KUBE_*"};
    for (size_t i = 0; i < ARRAY_SIZE(patterns); i++)
        if (fnmatch(patterns[i], name, FNM_CASEFOLD) == 0)
            return true;
    return false;
}

static void isolated_envs(struct call *c, struct nest_spec *spec, bool is_strict, bool allows, const struct str *keys,
                          size_t n_keys)
{
    const struct sandbox_info *i = sandbox_info(c->sandbox);
    struct pair *envs = arena_alloc(http_arena(c->req), (i->n_envs + 1) * sizeof(*envs));
    for (size_t k = 0; k < i->n_envs; k++) {
        AUTO_FREE char *name = mem_strndup(i->envs[k].key.p, i->envs[k].key.n);
        bool is_named = false;
        for (size_t j = 0; j < n_keys; j++)
            is_named |= str_eq(keys[j], i->envs[k].key);
        if (allows ? is_named : !is_named && !(is_strict && isolated_is_secret(name)))
            envs[spec->n_envs++] = i->envs[k];
    }
    spec->envs = envs;
}

/* False: answered. */
static bool isolated_binds(struct call *c, struct nest_spec *spec, const json_t *list, const struct str *writable,
                           size_t n_writable)
{
    struct nest_bind *binds =
        arena_alloc(http_arena(c->req), (json_array_size(list) + n_writable + 1) * sizeof(*binds));
    size_t i;
    struct err err;
    JSON_FOREACH (one, list) {
        struct nest_bind *b = &binds[spec->n_binds++];
        *b = (struct nest_bind){.path = STR_NULL};
        if (!json_is_object(one) ||
            JSON_WANTS(one, NULL, &err, JSON_NEED_STR("source", &b->source), JSON_WANT_STR("dest", &b->path),
                       JSON_WANT_BOOL("readonly", &b->read_only)) < 0)
            return call_fail(c, 400, "a bind is {\"source\", \"dest\", \"readonly\"}");
        if (!b->path.n)
            b->path = b->source;
    }
    for (i = 0; i < n_writable; i++)
        binds[spec->n_binds++] = (struct nest_bind){.source = writable[i], .path = writable[i]};
    spec->binds = binds;
    return true;
}

/* False: answered. */
static bool isolated_read(struct call *c, struct isolating *m)
{
    static const char *const modes[] = {[SUP_NEST_RW] = "rw", [SUP_NEST_OVERLAY] = "overlay", [SUP_NEST_RO] = "ro"};
    json_t *workspace = NULL, *binds = NULL, *pass = NULL;
    struct str profile = STR("strict"), mode = STR_NULL, uid_mode = STR("setpriv"), pass_mode = STR("deny");
    const struct str *writable = NULL, *keys = NULL;
    size_t n_writable = 0, n_keys = 0, k = 0;
    bool share_net = true;
    struct err err;
    if (!CALL_WANTS(c, JSON_WANT_OBJECT("workspace", &workspace), JSON_WANT_STR("profile", &profile),
                    JSON_WANT_STRS("extra_writable", &writable, &n_writable), JSON_WANT_ARRAY("binds", &binds),
                    JSON_WANT_BOOL("share_net", &share_net), JSON_WANT_OBJECT("env_passthrough", &pass),
                    JSON_WANT_INT("uid", 0, INT32_MAX, &m->uid), JSON_WANT_INT("gid", 0, INT32_MAX, &m->gid),
                    JSON_WANT_STR("uid_mode", &uid_mode),
                    JSON_WANT_INT("idle_timeout_seconds", 0, ISOLATED_IDLE_MAX_S, &m->idle_s)))
        return false;
    bool is_strict = str_eqc(profile, "strict");
    if (!workspace ||
        JSON_WANTS(workspace, NULL, &err, JSON_NEED_STR("path", &m->spec.workspace), JSON_WANT_STR("mode", &mode)) < 0)
        return call_fail(c, 400, "workspace: it is {\"path\", \"mode\"}");
    if (pass && JSON_WANTS(pass, http_arena(c->req), &err, JSON_WANT_STR("mode", &pass_mode),
                           JSON_WANT_STRS("keys", &keys, &n_keys)) < 0)
        return call_fail(c, 400, "env_passthrough: %s", err.msg);
    mode = mode.p ? mode : is_strict ? STR("overlay") : STR("rw");
    while (k < ARRAY_SIZE(modes) && !str_eqc(mode, modes[k]))
        k++;
    if (k == ARRAY_SIZE(modes) || (!is_strict && !str_eqc(profile, "balanced")) ||
        (!str_eqc(pass_mode, "allow") && !str_eqc(pass_mode, "deny")) || (m->gid >= 0 && m->uid < 0)) {
        call_fail(c, 400,
                  "a workspace's mode is rw, overlay or ro; a profile is strict or balanced; env_passthrough's mode is "
                  "allow or deny; gid goes with uid");
        return false;
    }
    if (!str_eqc(uid_mode, "setpriv") ||
        json_is_true(json_object_get(json_object_get(workspace, "persist"), "enabled")))
        return opensandbox_fail(c, str_eqc(uid_mode, "setpriv") || str_eqc(uid_mode, "userns") ? 503 : 400,
                                "NOT_SUPPORTED", "uid_mode is setpriv, and the changes of an overlay are not kept");
    m->spec.mode = (enum sup_nest_mode)k;
    m->spec.own_tmp = is_strict;
    m->spec.own_network = !share_net;
    isolated_envs(c, &m->spec, is_strict, str_eqc(pass_mode, "allow"), keys, n_keys);
    if (!isolated_binds(c, &m->spec, binds, writable, n_writable))
        return false;
    m->asked = json_pack("{s:s%,s:{s:s%,s:s},s:b,s:s,s:I}", "profile", profile.p, profile.n, "workspace", "path",
                         m->spec.workspace.p, m->spec.workspace.n, "mode", modes[k], "share_net", share_net, "uid_mode",
                         "setpriv", "idle_timeout_seconds", (json_int_t)m->idle_s);
    static const char *const echoed[] = {"binds", "extra_writable", "env_passthrough", "uid", "gid"};
    for (size_t i = 0; i < ARRAY_SIZE(echoed); i++)
        if (!json_asks_nothing(c->body, echoed[i]) || json_is_integer(json_object_get(c->body, echoed[i])))
            (void)json_object_set(m->asked, echoed[i], json_object_get(c->body, echoed[i]));
    return true;
}

static void isolated_made(void *ctx, struct sandbox *nest, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (!c) {
        if (nest)
            nest_end(nest);
        return;
    }
    struct isolating *m = c->state;
    struct isolated *s = mem_new(struct isolated);

    *s = (struct isolated){.o = opensandbox_of_execd(c),
                           .sb = sandbox_ref(c->sandbox),
                           .nest = nest,
                           .watch = {.fn = isolated_sandbox_ends},
                           .created = clock_real(),
                           .used = clock_real(),
                           .idle_s = m->idle_s,
                           .uid = m->uid,
                           .gid = m->gid,
                           .read_only = m->spec.mode == SUP_NEST_RO,
                           .asked = json_incref(m->asked),
                           .charge = m->charge,
                           .workspace = mem_strndup(m->spec.workspace.p, m->spec.workspace.n)};
    id_uuid(s->id);
    list_init(&s->watch.node);
    sandbox_watch_end(s->sb, &s->watch);
    timer_init(&s->idle, isolated_idle);
    if (s->idle_s)
        timer_set(&s->o->execd.timers, &s->idle, (uint64_t)s->idle_s * 1000);
    m->charge = (struct charge){.core = NULL};
    list_remove(&m->node);
    (void)map_put(&s->o->isolated, str_of(s->id), s);
    call_value(c, 201, isolated_json(s, false));
}

static void isolated_begin(struct call *c)
{
    const struct isolating *m = c->state;
    call_held(c, nest_make(c->sandbox, &c->actor, &m->spec, isolated_made, call_hold(c), &c->err));
}

static void isolated_workspace(struct call *c, const struct file_entry *entry UNUSED, const struct err *err)
{
    if (err && err->code != ERR_ALREADY_EXISTS)
        call_fail_err(c, err);
    else
        call_step(c, isolated_begin);
}

static void isolated_closed(struct call *c)
{
    struct isolating *m = c->state;
    list_remove(&m->node);
    json_decref(m->asked);
    charge_release(&m->charge);
}

void isolated_make(struct call *c)
{
    struct isolating *m = call_state(c, sizeof(*m), isolated_closed);
    *m = (struct isolating){.sb = c->sandbox, .idle_s = ISOLATED_IDLE_S, .uid = -1, .gid = -1};
    list_init(&m->node);
    if (!isolated_read(c, m))
        return;
    if (isolated_count(opensandbox_of_execd(c), c->sandbox) >= ISOLATED_MAX) {
        call_fail(c, 429, "the sandbox has %d isolated sessions already", ISOLATED_MAX);
        return;
    }
    list_append(&opensandbox_of_execd(c)->isolating, &m->node);
    m->charge = (struct charge){.core = call_core(c), .tenant = sandbox_info(c->sandbox)->tenant};
    if (call_ok(c, charge_memory(&m->charge, c->holder.bytes, &c->err)) &&
        call_ok(c, nest_check(c->sandbox, &m->spec, &c->err)))
        call_ok(c, file_make_dir(c->sandbox, &c->actor, STR("root"), m->spec.workspace,
                                 CALL_FILE_END(c, isolated_workspace)));
}

/* ---- running in one ---- */

/* It goes on, or its client left. */
static void isolated_unheld(struct call *c)
{
    struct isolated *s = map_get(&opensandbox_of_execd(c)->isolated, c->args[0]);
    if (s) {
        s->n_held--;
        s->used = clock_real();
    }
}

void isolated_run(struct call *c)
{
    struct isolated *s = map_get(&opensandbox_of_execd(c)->isolated, c->args[0]);
    struct str code = STR(""), cwd = STR_NULL;
    int64_t timeout_s = ISOLATED_RUN_S;
    bool is_background = false;
    struct exec_spec spec = {.user = STR("root")};
    const char *id = command_id_once(c); /* with another one it would be another action, which was not allowed yet */

    if (!s) { /* deleted while this run was held */
        isolated_unknown(c);
        return;
    }
    if (!CALL_WANTS(c, JSON_NEED_STR("code", &code), JSON_WANT_STR("cwd", &cwd),
                    JSON_WANT_INT("timeout_seconds", 1, INT32_MAX, &timeout_s),
                    JSON_WANT_BOOL("background", &is_background), JSON_WANT_PAIRS("envs", &spec.envs, &spec.n_envs)))
        return;
    if (!json_asks_nothing(c->body, "hooks")) {
        call_refuse(c, ERR_UNIMPLEMENTED, "runs of an isolated session have no hooks");
        return;
    }
    spec.cwd = cwd.n ? cwd : str_of(s->workspace);
    spec.timeout_ms = is_background ? 0 : (uint64_t)timeout_s * 1000;
    session_shell(c, &spec, is_background ? str_of(id) : STR(""), s->uid, s->gid, code);
    command_run(c, &spec, code, is_background, id);
    if (c->is_held) {
        s->n_held++;
        c->cleanup = isolated_unheld;
    }
}

void isolated_began(struct call *c, const char *id, usec_t started)
{
    call_value(c, 202,
               json_pack("{s:s,s:s,s:o}", "session_id", c->args[0].p, "run_id", id, "started_at", call_time(started)));
}

/* As of a command. */
static void isolated_of_run(struct call *c, void (*handler)(struct call *c))
{
    struct str session = c->args[0];
    c->args[0] = c->args[1];
    c->args[1] = session;
    handler(c);
}

void isolated_run_status(struct call *c)
{
    if (command_is_elsewhere(c, c->args[1]))
        call_fail(c, 404, "the session has no such run");
    else
        isolated_of_run(c, command_status);
}

void isolated_run_log(struct call *c)
{
    isolated_of_run(c, report_log);
}
