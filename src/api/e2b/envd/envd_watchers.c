/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filesystem.CreateWatcher, GetWatcherEvents, RemoveWatcher: watching by polling. A watcher lives until it is removed
 * or its sandbox ends. Events that nobody fetched are not acknowledged, so the core delivers at most its window of them
 * (1,024), and what overflows behind that ends the watch with an error that the next poll tells; so does what the
 * tenant has no memory for.
 */
#include "api/e2b/envd/envd.h"
#include "api/e2b/envd/rpc.h"
#include "base/mem.h"
#include "sandbox/quota.h"

enum { WATCHERS_MAX = 4096, WATCHERS_OF_SANDBOX_MAX = 64, EVENTS_MAX = 4 * 1024 * 1024 };

struct watcher {
    struct e2b *e2b;
    char id[22];
    struct sandbox *sandbox; /* referenced */
    struct sandbox_watch end;
    struct file_call *watch; /* NULL once it failed */
    struct call *creator;    /* until it was answered; NULL when its client left */
    struct buf events;       /* JSON, separated by commas */
    size_t unacked;
    struct charge charge; /* of events */
    bool is_full;         /* and so much the tenant has no more */
    struct err err;       /* why it failed */
};

static void envd_watchers_clear(struct watcher *w)
{
    buf_fini(&w->events);
    charge_release(&w->charge);
}

static void watcher_free(void *watcher)
{
    struct watcher *w = watcher;
    map_del(&w->e2b->watchers, str_of(w->id));
    if (w->creator)
        w->creator->cleanup = NULL;
    file_call_cancel(w->watch);
    sandbox_unwatch(&w->end);
    sandbox_unref(w->sandbox);
    envd_watchers_clear(w);
    mem_free(w);
}

void envd_watchers_free(struct e2b *e2b)
{
    facade_drain(&e2b->watchers, watcher_free);
}

static void on_sandbox_end(struct sandbox_watch *end, struct sandbox *sb UNUSED)
{
    watcher_free(container_of(end, struct watcher, end));
}

static void envd_watchers_on_start(void *ctx)
{
    AUTO_BUF struct buf b = BUF_INIT(128);
    struct watcher *w = ctx;
    if (!w->creator || w->creator->answered)
        return;
    w->creator->cleanup = NULL;
    buf_printf(&b, "{\"watcherId\":\"%s\"}", w->id);
    call_json(TAKE_PTR(w->creator), 200, buf_str(&b));
}

static void envd_watchers_on_event(void *ctx, enum wire_watch_kind kind, struct str name,
                                   const struct file_entry *entry)
{
    struct watcher *w = ctx;
    struct err err;
    w->unacked++;
    if (w->is_full)
        return;
    if (buf_len(&w->events))
        buf_append_char(&w->events, ',');
    watch_event_append(&w->events, kind, name, entry);
    const size_t bytes = buf_len(&w->events);
    w->charge.core = w->e2b->facade.core;
    if (bytes <= w->charge.bytes || charge_memory(&w->charge, 2 * bytes - w->charge.bytes, &err) == 0)
        return;
    w->is_full = true;
    envd_watchers_clear(w);
}

static void envd_watchers_on_end(void *ctx, const struct err *err)
{
    struct watcher *w = ctx;
    struct call *c;
    w->watch = NULL;
    if (err)
        w->err = *err;
    else
        err_set(&w->err, ERR_INTERNAL, "the watch has ended");
    if (!w->creator)
        return;
    c = TAKE_PTR(w->creator);
    c->cleanup = NULL;
    call_fail_err(c, &w->err);
    watcher_free(w);
}

static const struct file_watch_ops envd_watchers_ops = {envd_watchers_on_start, envd_watchers_on_event,
                                                        envd_watchers_on_end};

/* The client left before it learned the watcher's id: nobody can ever use it. */
static void creator_gone(struct call *c)
{
    struct watcher *w = c->state;
    w->creator = NULL;
    watcher_free(w);
}

static bool has_room(struct call *c)
{
    const uint64_t tenant = sandbox_info(c->sandbox)->tenant;
    size_t of_sandbox = 0, own = 0;
    MAP_FOREACH (const struct watcher, w, &e2b_of(c)->watchers) {
        of_sandbox += w->sandbox == c->sandbox;
        own += w->charge.tenant == tenant;
    }
    return quota_has_room(call_core(c), WATCHERS_MAX, map_count(&e2b_of(c)->watchers), own) &&
           of_sandbox < WATCHERS_OF_SANDBOX_MAX;
}

void envd_create_watcher(struct call *c)
{
    struct watcher *w;
    struct str path;
    uint8_t flags;
    struct err err;
    if (!call_ok(c, watch_request_read(c->body, &path, &flags, &c->err)))
        return;
    if (!has_room(c)) {
        rpc_fail(c, ERR_RESOURCE_EXHAUSTED, "too many watchers, remove some");
        return;
    }
    w = mem_new(struct watcher);
    w->e2b = e2b_of(c);
    w->creator = c;
    buf_init(&w->events, EVENTS_MAX);
    w->id[0] = 'w';
    id_token(w->id + 1, 20);
    w->sandbox = sandbox_ref(c->sandbox);
    w->charge.tenant = sandbox_info(c->sandbox)->tenant;
    w->end.fn = on_sandbox_end;
    sandbox_watch_end(w->sandbox, &w->end);
    map_put(&w->e2b->watchers, str_of(w->id), w);
    c->state = w;
    c->cleanup = creator_gone;
    if (file_watch(c->sandbox, &c->actor, c->user, path, flags, &envd_watchers_ops, w, &w->watch, &err) < 0) {
        c->cleanup = NULL;
        call_fail_err(c, &err);
        watcher_free(w);
    }
}

/* NULL after answering when this sandbox has no such watcher. */
static struct watcher *envd_watchers_find(struct call *c)
{
    struct str id = STR("");
    struct watcher *w;
    if (!CALL_WANTS(c, JSON_WANT_STR("watcherId", &id)))
        return NULL;
    w = map_get(&e2b_of(c)->watchers, id);
    if (w && w->sandbox == c->sandbox && !w->creator)
        return w;
    rpc_fail(c, ERR_NOT_FOUND, "watcher with id %.*s not found", STR_ARG(id));
    return NULL;
}

void envd_get_watcher_events(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(EVENTS_MAX + 64);
    struct watcher *w = envd_watchers_find(c);
    if (!w)
        return;
    if (w->watch && (w->is_full || buf_error(&w->events) < 0)) {
        err_set(&w->err, ERR_RESOURCE_EXHAUSTED, "too many events are pending: fetch them more often");
        file_call_cancel(TAKE_PTR(w->watch));
    }
    if (!w->watch) {
        call_fail_err(c, &w->err);
        return;
    }
    if (buf_len(&w->events)) {
        buf_append_cstr(&b, "{\"events\":[");
        buf_append_str(&b, buf_str(&w->events));
        buf_append_cstr(&b, "]}");
    } else {
        buf_append_cstr(&b, "{}");
    }
    envd_watchers_clear(w);
    if (w->unacked)
        file_watch_ack(w->watch, w->unacked);
    w->unacked = 0;
    rpc_answer(c, &b);
}

void envd_remove_watcher(struct call *c)
{
    struct watcher *w = envd_watchers_find(c);
    if (!w)
        return;
    watcher_free(w);
    call_json(c, 200, STR("{}"));
}
