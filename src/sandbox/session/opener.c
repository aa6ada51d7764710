/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A volume's own sandbox: made for the first who wants to read or write files in it, gone OPENER_IDLE_MS after the last
 * one, or when VOLUMES_OPEN_MAX are there and another volume needs one: they count for no limit of sandboxes. Before
 * anybody gets it its agent has made the volume the root of all paths, for good: whatever lies in there, no path and no
 * link leads out.
 */
#include "base/log.h"
#include "base/mem.h"
#include "sandbox/life/sleep.h"
#include "sandbox/templates.h"
#include "sandbox/volume/volume_internal.h"

#include <stdio.h>

enum { OPENER_IDLE_MS = 60 * 1000 };
#define OPENER_PATH "/volume"

static const struct actor opener_actor = {.name = "volumes", .is_own = true, .who.view = TENANT_ANY};

static void kill_it(struct sandbox *sb)
{
    struct err err;
    if (!sandbox_state_is_over(sb->info.state) && sandbox_kill(sb, &opener_actor, sandbox_ignore, NULL, &err) < 0)
        log_warn("close a volume: %s", err.msg);
}

static void opener_on_idle(struct loop_alarm *alarm)
{
    struct opener *o = container_of(alarm, struct opener, idle);
    if (o->sb && !o->users)
        kill_it(o->sb);
}

static void opener_let_go(struct opener *o)
{
    if (!o->sb)
        return;
    loop_alarm_clear(o->sb->core->loop, &o->idle);
    sandbox_unwatch(&o->watch);
    o->users = 0;
    sandbox_unref(TAKE_PTR(o->sb));
}

static void tell_closed(struct vol *v)
{
    if (v->opener.closed && !v->opener.sb && !v->opener.is_making)
        loop_later(v->core->loop, &v->opener.closed_job);
}

static void opener_on_end(struct sandbox_watch *watch, struct sandbox *sb UNUSED)
{
    struct opener *o = container_of(watch, struct opener, watch);
    opener_let_go(o);
    tell_closed(container_of(o, struct vol, opener));
}

static void opener_on_closed_job(struct loop_job *job)
{
    struct opener *o = container_of(job, struct opener, closed_job);
    void (*closed)(void *ctx) = o->closed;
    o->closed = NULL;
    closed(o->closed_ctx);
}

static void opener_give(struct opener *o, struct sandbox *sb, const struct err *err)
{
    struct waiter *w;
    while ((w = LIST_FIRST(struct waiter, &o->waiting, node))) {
        sandbox_fn done = w->done;
        void *ctx = w->ctx;
        list_remove(&w->node);
        mem_free(w);
        if (!err) {
            o->users++;
            sandbox_ref(sb);
        }
        done(ctx, sb, err);
    }
}

static void made(struct vol *v, struct sandbox *sb, const struct err *err)
{
    struct opener *o = &v->opener;
    struct err busy;
    o->is_making = false;
    if (!sb || err || v->is_busy) {
        (void)err_set(&busy, ERR_NOT_FOUND, "volume %s is being removed", v->v.name);
        opener_give(o, NULL, err ? err : &busy);
        if (sb && !v->core->closing)
            kill_it(sb);
        if (!v->core->closing)
            tell_closed(v);
        return;
    }
    o->sb = sandbox_ref(sb);
    o->watch.fn = opener_on_end;
    sandbox_watch_end(sb, &o->watch);
    opener_give(o, sb, NULL);
}

struct confining {
    struct vol *v;
    struct sandbox *sb; /* a reference */
};

static void on_confined(void *user, struct str tail UNUSED, const struct err *err)
{
    struct confining *c = user;
    struct vol *v = c->v;
    struct sandbox *sb = c->sb;
    mem_free(c);
    made(v, sb, err);
    sandbox_unref(sb);
}

static void opener_on_made(void *ctx, struct sandbox *sb, const struct err *err)
{
    static const struct stream_ops ops = {.on_end = on_confined};
    struct vol *v = ctx;
    struct stream *st;
    struct err local;
    if (err) {
        made(v, NULL, err);
        return;
    }
    struct confining *c = mem_new(struct confining);
    *c = (struct confining){v, sandbox_ref(sb)};
    struct buf *b = session_request(sb->session, WIRE_CONFINE);
    wire_put_str(b, STR(OPENER_PATH));
    if (stream_open(sb->session, b, &ops, c, SESSION_UNARY_MS, &st, &local) == 0)
        return;
    sandbox_unref(c->sb);
    mem_free(c);
    made(v, sb, &local);
}

struct choice {
    char id[TEMPLATE_NAME_MAX + 1];
};

/* Any that can be had: "base" if there is one. */
static bool choose(void *ctx, const struct template *t)
{
    struct choice *c = ctx;
    bool is_base = false;
    for (size_t i = 0; i < t->n_aliases; i++)
        is_base |= strcmp(t->aliases[i], "base") == 0;
    if (!c->id[0] || is_base)
        (void)snprintf(c->id, sizeof(c->id), "%s", t->id);
    return true;
}

/* The one that was of no use for longest makes room. */
static int opener_make_room(struct core *core, uint64_t tenant, struct err *err)
{
    struct opener *oldest = NULL;
    size_t n = 0, n_used = 0, own = 0, it = 0;
    for (struct vol *v; (v = vol_next(core, &it));) {
        struct opener *o = &v->opener;
        bool is_there = o->sb && !sandbox_state_is_over(o->sb->info.state);
        bool is_used = o->is_making || (is_there && o->users);
        n += is_there || o->is_making;
        n_used += is_used;
        own += is_used && v->v.tenant == tenant;
        if (is_there && !o->users && o->idle.slot && (!oldest || o->idle.at < oldest->idle.at))
            oldest = o;
    }
    if (!quota_has_room(core, VOLUMES_OPEN_MAX, n_used, own))
        return err_set(err, ERR_RESOURCE_EXHAUSTED,
                       "the files of %zu volumes are already in use, %zu of them your tenant's: try again later",
                       n_used, own);
    if (n < VOLUMES_OPEN_MAX)
        return 0;
    if (!oldest)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "the files of %d volumes are already in use: try again later",
                       VOLUMES_OPEN_MAX);
    kill_it(oldest->sb);
    return 0;
}

static int opener_make(struct vol *v, struct err *err)
{
    struct choice c = {0};
    struct actor by = opener_actor;
    by.who.tenant = v->v.tenant;
    struct volume_mount mount = {.name = str_of(v->v.id), .path = STR(OPENER_PATH)};
    core_templates_each(v->core, TENANT_DEFAULT, choose, &c);
    struct sandbox_spec spec = {.template_ref = str_of(c.id), .hidden = true, .mounts = &mount, .n_mounts = 1};
    if (!c.id[0])
        return err_set(err, ERR_FAILED_PRECONDITION, "there is no template for the sandbox that opens the volume");
    if (opener_make_room(v->core, v->v.tenant, err) < 0)
        return -1;
    return sandbox_create(v->core, &by, &spec, opener_on_made, v, err);
}

struct opener_giving {
    struct loop_job job;
    struct vol *v;
};

/* In a later turn, to those who came when it was there. */
static void on_give_job(struct loop_job *job)
{
    struct opener_giving *g = container_of(job, struct opener_giving, job);
    struct opener *o = &g->v->opener;
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "the volume was closed: try again");
    if (!o->is_making)
        opener_give(o, o->sb, o->sb && o->sb->info.state == SANDBOX_RUNNING ? NULL : &err);
    mem_free(g);
}

int volume_open(struct core *core, const struct actor *asker, struct str ref, sandbox_fn done, void *ctx,
                struct err *err)
{
    struct vol *v = vol_find(core, asker->who.view, ref);
    if (core->closing)
        return err_set(err, ERR_UNAVAILABLE, "the service is stopping");
    if (!v)
        return err_set(err, ERR_NOT_FOUND, "there is no volume '%.*s'", STR_ARG_MAX(ref, 64));
    if (vol_check_there(v, err) < 0)
        return -1;
    struct opener *o = &v->opener;
    if (o->sb && o->sb->info.state != SANDBOX_RUNNING)
        opener_let_go(o);
    if (o->sb) {
        struct opener_giving *g = mem_new(struct opener_giving);
        g->v = v;
        loop_job_init(&g->job, on_give_job);
        loop_alarm_clear(core->loop, &o->idle);
        loop_later(core->loop, &g->job);
    } else if (!o->is_making) {
        if (opener_make(v, err) < 0)
            return -1;
        o->is_making = true;
    }
    waiters_add(&o->waiting, done, ctx);
    return 0;
}

static struct vol *vol_of(struct core *core, const struct sandbox *sb)
{
    return sb->info.n_mounts ? vol_find(core, sb->info.tenant, sb->info.mounts[0].name) : NULL;
}

void volume_release(struct core *core, struct sandbox *sb)
{
    struct vol *v = vol_of(core, sb);
    if (!v || v->opener.sb != sb || !v->opener.users || --v->opener.users)
        return;
    loop_alarm_set(core->loop, &v->opener.idle, clock_mono() + OPENER_IDLE_MS * USEC_PER_MS, opener_on_idle);
}

void opener_close(struct vol *v, void (*closed)(void *ctx), void *ctx)
{
    struct opener *o = &v->opener;
    o->closed = closed;
    o->closed_ctx = ctx;
    if (o->sb)
        kill_it(o->sb);
    tell_closed(v);
}

void opener_abandon(struct vol *v, const struct err *why)
{
    struct opener *o = &v->opener;
    opener_give(o, NULL, why);
    opener_let_go(o);
    o->is_making = false;
    tell_closed(v); /* runs once more before the end */
}

void opener_init(struct vol *v)
{
    list_init(&v->opener.waiting);
    list_init(&v->opener.watch.node);
    loop_job_init(&v->opener.closed_job, opener_on_closed_job);
}

void opener_fini(struct vol *v)
{
    assert(list_empty(&v->opener.waiting));
    opener_let_go(&v->opener);
    loop_job_cancel(&v->opener.closed_job);
}
