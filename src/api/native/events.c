/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record: the log of a sandbox, of a volume or of the service, or the feed of all of them; as a stream of events or
 * as lines, and the check of the chain.
 *
 * A stream is pulled: from the log as long as the client's queue is short, again when that was drained
 * (stream_pump), again when the log has more (wake), at most every PACE_MS, so that many events leave in one
 * piece. Of a long log it takes one slice per turn of the loop, also when nothing in it is what was asked for. A client
 * that does not read has its cursor and what is queued for it, which is bounded; it goes on from there when it reads
 * again. It ends when the log is drained and nothing is followed, or when the sandbox has ended.
 */
#include "api/native/events_query.h"
#include "api/native/handlers.h"
#include "base/mem.h"
#include "event/feed.h"
#include "event/log.h"
#include "event/verify.h"
#include "http/sse.h"
#include "http/websocket.h"
#include "sandbox/action.h"
#include "sandbox/tenant.h"
#include "sandbox/volume/volumes.h"

#include <uv.h>

enum {
    FEEDS_MAX = 256,
    VERIFICATIONS_MAX = 32,
    KEEPALIVE_MS = 15000,
    LAST_MS = 5000,
    PACE_MS = 20,
    PIECE_BYTES = 32 * 1024,
    OUT_MAX = 4 << 20
};

struct native_event_stream {
    struct call *call;
    struct event_cursor *cursor; /* this one */
    struct feed_reader *feed;    /* or that */
    struct timer pace;
    struct websocket *socket; /* NULL: it is none */
    usec_t pumped;            /* when it was looked at last; monotonic */
    bool is_sse, is_follow, is_ended;
    bool is_logs;      /* as lines for people */
    bool is_gone;      /* a write failed: on_close follows */
    bool shows_hidden; /* sandboxes of our own, too */
    struct str kinds;  /* events_kind_fits() */
    uint64_t seq;      /* of the event at hand */
    struct buf out;    /* while it is pumped */
};

static void stream_closed(struct call *c)
{
    struct native_event_stream *s = c->state;
    native_of(c)->n_followers -= s->cursor || s->feed;
    list_remove(&c->node);
    event_cursor_close(s->cursor);
    feed_close(s->feed);
    s->cursor = NULL;
    s->feed = NULL;
    timer_stop(&s->pace);
    timer_stop(&c->timer);
}

static void stream_gone(struct call *c)
{
    struct native_event_stream *s = c->state;
    stream_closed(c);
    websocket_free(s->socket);
}

static void on_last(struct call *c)
{
    http_abort(c->req);
}

/* A client that doesn't close its end of a socket is cut. */
static void stream_end(struct native_event_stream *s)
{
    struct call *c = s->call;
    stream_closed(c);
    if (!s->socket) {
        (void)http_response_end(c->req);
        return;
    }
    websocket_close(s->socket);
    call_set_timer(c, LAST_MS, on_last);
}

static void stream_flush(struct native_event_stream *s)
{
    if (buf_len(&s->out) && !s->is_gone && http_response_write(s->call->req, buf_str(&s->out)) < 0)
        s->is_gone = true;
    buf_clear(&s->out);
}

/* What is one object on a line of its own, or one server-sent event. id NULL: it has none. */
static void stream_put(struct native_event_stream *s, const uint64_t *id, struct str kind, struct str json)
{
    if (s->socket) {
        websocket_append(&s->out, json);
        return;
    }
    if (!s->is_sse) {
        buf_append_str(&s->out, json);
        buf_append_char(&s->out, '\n');
        return;
    }
    AUTO_BUF struct buf number = BUF_INIT(32);
    if (id)
        buf_append_u64(&number, *id);
    (void)sse_append(&s->out, &(struct sse_event){.id = buf_str(&number), .event = kind, .data = json});
}

static void stream_put_event(struct native_event_stream *s, const struct event *e)
{
    if (s->cursor) {
        stream_put(s, &e->seq, e->kind_name, e->json);
        return;
    }
    AUTO_BUF struct buf json = BUF_INIT(EVENT_JSON_MAX + 64);
    buf_printf(&json, "{\"cursor\":%llu,", (unsigned long long)e->cursor);
    buf_append_str(&json, str_sub(e->json, 1));
    stream_put(s, &e->cursor, e->kind_name, buf_str(&json));
}

static void stream_put_gap(struct native_event_stream *s, const struct event_gap *gap)
{
    AUTO_BUF struct buf json = BUF_INIT(128);
    buf_printf(&json, "{\"gap\":{\"from\":%llu,\"to\":%llu}}", (unsigned long long)gap->from,
               (unsigned long long)gap->to);
    stream_put(s, NULL, STR("gap"), buf_str(&json));
}

static void stream_put_error(struct native_event_stream *s, const struct err *err)
{
    AUTO_BUF struct buf json = BUF_INIT(4096);
    json_put_value(&json, native_error(err, NULL));
    stream_put(s, NULL, STR("error"), buf_str(&json));
}

static bool stream_put_line(void *ctx, usec_t at, const char *level, const char *logger, const char *message)
{
    struct native_event_stream *s = ctx;
    buf_printf(&s->out, "{\"seq\":%llu", (unsigned long long)s->seq);
    json_put_time(&s->out, "at", at, 6);
    json_put_str(&s->out, "level", str_of(level));
    json_put_str(&s->out, "logger", str_of(logger));
    json_put_str(&s->out, "message", str_of(message));
    buf_append_cstr(&s->out, "}\n");
    return true;
}

static bool stream_is_last(const struct native_event_stream *s, const struct event *e)
{
    return s->cursor &&
           (e->kind == EVENT_SANDBOX_ENDED || e->kind == EVENT_SANDBOX_FAILED || e->kind == EVENT_VOLUME_DROPPED);
}

/* One step. False: there is nothing more to be done now. */
static bool stream_step(struct native_event_stream *s)
{
    struct event e;
    struct event_gap gap;
    struct err err;
    int r = s->cursor ? event_cursor_next(s->cursor, &e, &gap, &err) : feed_next(s->feed, &e, &gap, &err);
    if (r < 0)
        stream_put_error(s, &err);
    if (r < 0 || (r == EVENT_NEXT_DRAINED && (!s->is_follow || s->is_ended))) {
        stream_flush(s);
        stream_end(s);
        return false;
    }
    if (r == EVENT_NEXT_GAP && !s->is_logs)
        stream_put_gap(s, &gap);
    if (r == EVENT_NEXT_EVENT) {
        s->is_ended = s->is_ended || stream_is_last(s, &e);
        s->seq = e.seq;
        if (s->is_logs)
            (void)sandbox_log_line(&e, stream_put_line, s);
        else if (events_kind_fits(s->kinds, e.kind_name))
            stream_put_event(s, &e);
    }
    return r != EVENT_NEXT_DRAINED;
}

static void stream_pump(struct call *c)
{
    struct native_event_stream *s = c->state;
    s->pumped = clock_mono();
    buf_init(&s->out, OUT_MAX);
    for (int steps = 0; (s->cursor || s->feed) && !s->is_gone && !http_response_full(c->req); steps++) {
        if (steps == SLICE_STEPS || (steps && clock_mono() >= s->pumped + SLICE_USEC)) {
            call_later(c, stream_pump);
            break;
        }
        if (!stream_step(s))
            break;
        if (buf_len(&s->out) >= PIECE_BYTES)
            stream_flush(s);
    }
    stream_flush(s);
    buf_fini(&s->out);
}

static void on_wake(void *ctx)
{
    struct native_event_stream *s = ctx;
    if (clock_mono() >= s->pumped + PACE_MS * USEC_PER_MS)
        stream_pump(s->call);
    else
        timer_set(&s->call->facade->timers, &s->pace, PACE_MS);
}

static void on_pace(struct timer *timer)
{
    call_later(container_of(timer, struct native_event_stream, pace)->call, stream_pump);
}

static void on_keepalive(struct call *c)
{
    const struct native_event_stream *s = c->state;
    if (http_response_queued(c->req) == 0 && s->socket)
        websocket_ping(s->socket);
    else if (http_response_queued(c->req) == 0)
        (void)http_response_write(c->req, STR(":\n\n"));
    call_set_timer(c, KEEPALIVE_MS, on_keepalive);
}

/* Of the service itself, or of what the tenant did there; of a sandbox, or of a volume, by its name too: those that are
 * gone may have a log still. False: answered. */
static bool find_log(struct call *c, bool may_be_volume)
{
    if (!c->args[0].p) {
        c->args[0] = str_of(tenant_log(call_core(c), c->actor.who.tenant));
        return true;
    }
    const struct volume *v = may_be_volume ? volume_find(call_core(c), c->actor.who.view, c->args[0]) : NULL;
    if (v)
        c->args[0] = arena_str(http_arena(c->req), str_of(v->id));
    bool is_id = v || id_is_sandbox(c->args[0]) ||
                 (may_be_volume && c->args[0].n == VOLUME_ID_LEN && str_starts(c->args[0], STR("vol-")) &&
                  !str_has_nul(c->args[0]));
    if (is_id && access_has_log(c, c->args[0].p))
        return true;
    return call_refuse(c, ERR_NOT_FOUND, "there is no sandbox%s %.*s", may_be_volume ? " or volume" : "",
                       STR_ARG_MAX(c->args[0], 64));
}

/* Of what costs everybody: calls of this list. False: answered. */
static bool events_has_share(struct call *c, const struct list *all, size_t most, const char *what)
{
    size_t n = 0, own = 0;
    for (const struct list *it = all->next; it != all; it = it->next) {
        n++;
        own += container_of(it, const struct call, node)->actor.who.tenant == c->actor.who.tenant;
    }
    if (quota_is_share(most, n, own, 1))
        return true;
    return call_refuse(c, ERR_RESOURCE_EXHAUSTED, "your tenant has %zu %s already: wait until one has ended", own,
                       what);
}

static struct native_event_stream *stream_new(struct call *c)
{
    struct native_event_stream *s = arena_alloc(http_arena(c->req), sizeof(*s));
    s->call = c;
    timer_init(&s->pace, on_pace);
    core_flush(call_core(c)); /* a sandbox that has ended may have done so just now */
    return s;
}

static void stream_begin(struct call *c, struct native_event_stream *s)
{
    struct http_header headers[] = {
        HTTP_HEADER_STR("content-type", s->is_sse ? STR("text/event-stream") : STR("application/x-ndjson")),
        HTTP_HEADER("cache-control", "no-store")};
    c->state = s;
    c->cleanup = stream_gone;
    native_of(c)->n_followers++;
    if (s->is_logs || !websocket_is_wanted(c->req)) {
        (void)http_response_begin(c->req, 200, headers, ARRAY_SIZE(headers), -1);
    } else if (websocket_accept(c->req, NULL, NULL, &s->socket) < 0) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "the WebSocket handshake is not of version 13");
        return;
    }
    call_on_drain(c, stream_pump);
    if ((s->is_sse || s->socket) && s->is_follow)
        call_set_timer(c, KEEPALIVE_MS, on_keepalive);
    stream_pump(c);
}

/* The log may still be there when the sandbox is long gone. -1: answered. */
static int stream_open_log(struct call *c, struct native_event_stream *s, uint64_t from, bool may_be_volume)
{
    struct event_bounds bounds;
    bool follow;
    if (!find_log(c, may_be_volume) || call_query_bool(c, "follow", &follow) < 0)
        return -1;
    const struct sandbox *sb = sandbox_find(call_core(c), c->args[0]);
    bool lives =
        sb ? sandbox_info(sb)->ended == 0
           : str_starts(c->args[0], STR(SERVICE_LOG_ID)) || volume_find(call_core(c), TENANT_ANY, c->args[0]) != NULL;
    s->is_follow = follow && lives;
    struct event_log *log = native_of(c)->config.events;
    return call_ok(c, event_bounds_get(log, c->args[0].p, &bounds, &c->err)) &&
                   call_ok(c, event_subscribe(log, c->args[0].p, from, on_wake, s, &s->cursor, &c->err))
               ? 0
               : -1;
}

/* Which events, and from where on. -1: answered. */
static int stream_ask(struct call *c, struct native_event_stream *s, uint64_t *ret_from)
{
    struct str accept = http_header_get(c->req, "accept"), last = http_header_get(c->req, "last-event-id");
    if (call_query_u64(c, "from", ret_from) < 0)
        return -1;
    if (last.n && events_next_parse(last, ret_from) < 0) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "Last-Event-ID: not the id of an event of this log");
        return -1;
    }
    (void)call_query(c, "kind", &s->kinds);
    s->is_sse = accept.p && str_starts(accept, STR("text/event-stream"));
    return 0;
}

void native_events_stream(struct call *c)
{
    uint64_t from;
    struct native_event_stream *s = stream_new(c);
    if (stream_ask(c, s, &from) == 0 && stream_open_log(c, s, from, true) == 0)
        stream_begin(c, s);
}

void native_events_logs(struct call *c)
{
    uint64_t from;
    struct native_event_stream *s = stream_new(c);
    s->is_logs = true;
    if (call_query_u64(c, "from", &from) == 0 && stream_open_log(c, s, from, false) == 0)
        stream_begin(c, s);
}

/* Whose events the client may see. */
static bool stream_sees(void *ctx, const char *log)
{
    const struct native_event_stream *s = ctx;
    return access_has_log(s->call, log) && (s->shows_hidden || !sandbox_is_hidden(call_core(s->call), str_of(log)));
}

void native_events_feed(struct call *c)
{
    struct event_log *log = native_of(c)->config.events;
    struct native_event_stream *s = stream_new(c);
    struct event_bounds bounds;
    struct str text;
    uint64_t from, last;
    if (stream_ask(c, s, &from) < 0 || call_query_u64(c, "last", &last) < 0 ||
        call_query_bool(c, "follow", &s->is_follow) < 0 || call_query_bool(c, "hidden", &s->shows_hidden) < 0)
        return;
    struct feed_want want = {.after = from - (from > 0), .filter = stream_sees, .wake = on_wake, .ctx = s};
    if (!call_ok(c, feed_bounds(log, &bounds, &c->err)))
        return;
    if (from == 0 && call_query(c, "last", &text))
        want.after = bounds.last - MIN(last, bounds.last);
    if (!events_has_share(c, &native_of(c)->feeds, FEEDS_MAX, "readers of the feed") ||
        !call_ok(c, feed_open(log, &want, &s->feed, &c->err)))
        return;
    list_append(&native_of(c)->feeds, &c->node);
    stream_begin(c, s);
}

/* ---- verify: off the loop ---- */

struct verification {
    uv_work_t work;
    struct native_config config;
    struct call *call; /* held */
    char id[EVENT_ID_MAX + 1];
    struct event_verdict verdict;
    struct buf signed_text; /* with what is signed; max 0: it is a verification */
    struct err err;
    int r;
};

static void verify_work(uv_work_t *work)
{
    struct verification *v = container_of(work, struct verification, work);
    v->r = v->signed_text.max ? v->config.sign(v->config.sign_ctx, v->id, &v->signed_text, &v->err)
                              : v->config.verify(v->config.verify_ctx, v->id, &v->verdict, &v->err);
}

static void verify_done(uv_work_t *work, int status)
{
    struct verification *v = container_of(work, struct verification, work);
    const struct event_verdict *is = &v->verdict;
    list_remove(&v->call->node);
    struct call *c = call_back(v->call, NULL);
    if (c && status < 0)
        call_refuse(c, ERR_CANCELED, "the service is stopping");
    else if (c && v->r < 0)
        call_fail_err(c, &v->err);
    else if (c && v->signed_text.max)
        call_json_buf(c, 200, &v->signed_text);
    else if (c)
        call_value(c, 200,
                   json_pack("{s:b,s:s?,s:I,s:I,s:I,s:I,s:o}", "intact", is->fault == EVENT_INTACT, "fault",
                             is->fault == EVENT_INTACT ? NULL : event_fault_name(is->fault), "bad_seq",
                             (json_int_t)is->bad_seq, "first", (json_int_t)is->first, "last", (json_int_t)is->last,
                             "checked", (json_int_t)is->checked, "detail", call_cstr(is->detail)));
    buf_fini(&v->signed_text);
    mem_free(v);
}

/* They wait for two threads, which the store's checkpoints need, too, and go on when their client has left. */
static void verify_begin(struct call *c, struct str id, size_t signed_max)
{
    if (!events_has_share(c, &native_of(c)->verifying, VERIFICATIONS_MAX, "verifications"))
        return;
    list_append(&native_of(c)->verifying, &c->node);
    struct verification *v = mem_new(struct verification);
    v->config = native_of(c)->config;
    assert(id.n < sizeof(v->id));
    memcpy(v->id, id.p, id.n);
    buf_init(&v->signed_text, signed_max);
    v->call = call_hold(c);
    int r = uv_queue_work(core_loop(call_core(c)), &v->work, verify_work, verify_done);
    assert(r == 0); /* fails for a NULL callback only */
    (void)r;
}

void native_events_verify(struct call *c)
{
    if (find_log(c, true))
        verify_begin(c, c->args[0], 0);
}

void native_events_evidence(struct call *c)
{
    struct str what = str_of(c->route->what), day;
    if (c->route->what && strcmp(c->route->what, "heads") == 0 && call_query(c, "day", &day)) {
        what = str_of(arena_printf(http_arena(c->req), "heads/%.*s", STR_ARG_MAX(day, 16)));
    } else if (!c->route->what) {
        if (!find_log(c, true))
            return;
        what = c->args[0];
    }
    if (native_of(c)->config.sign)
        verify_begin(c, what, CALL_REPLY_MAX);
    else
        call_refuse(c, ERR_UNIMPLEMENTED, "this service can't sign evidence");
}
