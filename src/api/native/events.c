/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record of a sandbox, of a volume, or of the service: events as a stream, log lines, and the check of the chain.
 *
 * A stream is pulled: from the log as long as the client's queue is short, again when that was drained (on_drain), again when the log has
 * more (wake). Of a long log it takes one slice per turn of the loop, also when nothing in it is what was asked for. It ends when the log
 * is drained and nothing is followed, or when the sandbox has ended.
 */
#include "api/native/handlers.h"
#include "base/mem.h"
#include "event/log.h"
#include "event/verify.h"
#include "http/sse.h"
#include "sandbox/action.h"
#include "sandbox/volumes.h"

#include <uv.h>

enum { KEEPALIVE_MS = 15000 };

struct native_event_stream {
    struct call *call;
    struct event_cursor *cursor;
    struct slice slice;
    uv_timer_t *keepalive; /* heap: it outlives the request until the loop has closed it; SSE only */
    bool is_sse, is_follow, is_ended;
    bool is_logs;    /* as lines for people */
    bool is_gone;    /* a write failed: on_close follows */
    struct str kind; /* only kinds that begin so; empty: all */
    uint64_t seq;    /* of the event at hand */
};

static void timer_closed(uv_handle_t *handle)
{
    mem_free(handle);
}

static void stream_closed(struct call *c)
{
    struct native_event_stream *s = c->state;
    if (s->cursor)
        event_cursor_close(s->cursor);
    s->cursor = NULL;
    slice_cancel(&s->slice);
    if (s->keepalive)
        uv_close((uv_handle_t *)s->keepalive, timer_closed);
    s->keepalive = NULL;
}

static void stream_end(struct native_event_stream *s)
{
    stream_closed(s->call);
    (void)http_response_end(s->call->req);
}

static bool can_send(const struct native_event_stream *s)
{
    return !s->is_gone && !call_is_full(s->call);
}

static void send_text(struct native_event_stream *s, struct str text)
{
    if (http_response_write(s->call->req, text) < 0)
        s->is_gone = true;
}

static void write_event(struct native_event_stream *s, const struct event *e)
{
    AUTO_BUF struct buf json = BUF_INIT(EVENT_JSON_MAX + 1);
    event_format_json(e, &json);
    if (!s->is_sse) {
        buf_append_char(&json, '\n');
        send_text(s, buf_str(&json));
        return;
    }
    AUTO_BUF struct buf text = BUF_INIT(2 * EVENT_JSON_MAX);
    AUTO_BUF struct buf id = BUF_INIT(32);
    buf_append_u64(&id, e->seq);
    struct sse_event sse = {.id = buf_str(&id), .event = e->kind_name, .data = buf_str(&json)};
    if (sse_append(&text, &sse) == 0)
        send_text(s, buf_str(&text));
}

static void write_gap(struct native_event_stream *s, const struct event_gap *gap)
{
    AUTO_BUF struct buf json = BUF_INIT(128), text = BUF_INIT(256);
    buf_printf(&json, "{\"gap\":{\"from\":%llu,\"to\":%llu}}", (unsigned long long)gap->from,
               (unsigned long long)gap->to);
    if (s->is_sse)
        (void)sse_append(&text, &(struct sse_event){.event = STR("gap"), .data = buf_str(&json)});
    else
        buf_printf(&text, "%.*s\n", STR_ARG(buf_str(&json)));
    send_text(s, buf_str(&text));
}

static void write_error(struct native_event_stream *s, const struct err *err)
{
    AUTO_BUF struct buf json = BUF_INIT(4096), text = BUF_INIT(8192);
    native_error_json(&json, err);
    if (s->is_sse)
        (void)sse_append(&text, &(struct sse_event){.event = STR("error"), .data = buf_str(&json)});
    else
        buf_printf(&text, "%.*s\n", STR_ARG(buf_str(&json)));
    send_text(s, buf_str(&text));
}

static bool write_line(void *ctx, usec_t at, const char *level, const char *logger, const char *message)
{
    struct native_event_stream *s = ctx;
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    char text[CLOCK_TEXT_MAX];
    clock_format(at, 6, text);
    buf_printf(&b, "{\"seq\":%llu,\"at\":\"%s\",\"level\":", (unsigned long long)s->seq, text);
    buf_append_json_string(&b, str_of(level));
    buf_append_cstr(&b, ",\"logger\":");
    buf_append_json_string(&b, str_of(logger));
    buf_append_cstr(&b, ",\"message\":");
    buf_append_json_string(&b, str_of(message));
    buf_append_cstr(&b, "}\n");
    send_text(s, buf_str(&b));
    return true;
}

static void write_as_asked(struct native_event_stream *s, const struct event *e)
{
    s->seq = e->seq;
    if (s->is_logs)
        (void)sandbox_log_line(e, write_line, s);
    else if (str_starts(e->kind_name, s->kind))
        write_event(s, e);
}

static void pump(struct native_event_stream *s)
{
    struct event e;
    struct event_gap gap;
    struct err err;
    usec_t until = clock_mono() + SLICE_USEC;

    for (int steps = 0; s->cursor && can_send(s); steps++) {
        if (steps == SLICE_STEPS || (steps && clock_mono() >= until)) {
            slice_later(&s->call->facade->slices, &s->slice);
            return;
        }
        int r = event_cursor_next(s->cursor, &e, &gap, &err);
        if (r < 0) {
            write_error(s, &err);
            stream_end(s);
            return;
        }
        if (r == EVENT_NEXT_DRAINED) {
            if (!s->is_follow || s->is_ended)
                stream_end(s);
            return;
        }
        if (r == EVENT_NEXT_GAP && !s->is_logs)
            write_gap(s, &gap);
        if (r == EVENT_NEXT_EVENT) {
            s->is_ended = s->is_ended || e.kind == EVENT_SANDBOX_ENDED || e.kind == EVENT_SANDBOX_FAILED ||
                          e.kind == EVENT_VOLUME_DROPPED;
            write_as_asked(s, &e);
        }
    }
}

static void on_wake(void *ctx)
{
    pump(ctx);
}

static void on_slice(struct slice *slice)
{
    pump(container_of(slice, struct native_event_stream, slice));
}

static void native_events_on_drain(struct http_request *req, void *ctx)
{
    (void)req;
    pump(ctx);
}

static void on_keepalive(uv_timer_t *timer)
{
    struct native_event_stream *s = timer->data;
    if (http_response_queued(s->call->req) == 0)
        (void)http_response_write(s->call->req, STR(":\n\n"));
}

/* Of the service itself; of a sandbox, or of a volume, by its name too: those that are gone may have a log still. False: answered. */
static bool find_log(struct call *c, bool may_be_volume)
{
    if (!c->args[0].p) {
        c->args[0] = STR(SERVICE_LOG_ID);
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
    call_refuse(c, ERR_NOT_FOUND, "there is no sandbox%s %.*s", may_be_volume ? " or volume" : "",
                (int)MIN(c->args[0].n, 64), c->args[0].p);
    return false;
}

/* The log may still be there when the sandbox is long gone. NULL: answered. */
static struct native_event_stream *stream_new(struct call *c, uint64_t from, bool may_be_volume)
{
    struct err err;
    struct event_bounds bounds;
    bool follow;
    if (!find_log(c, may_be_volume))
        return NULL;
    const struct sandbox *sb = sandbox_find(call_core(c), c->args[0]);
    bool lives =
        sb ? sandbox_info(sb)->ended == 0
           : str_eq(c->args[0], STR(SERVICE_LOG_ID)) || volume_find(call_core(c), TENANT_ANY, c->args[0]) != NULL;
    if (call_query_bool(c, "follow", &follow) < 0)
        return NULL;
    struct native_event_stream *s = arena_alloc(http_arena(c->req), sizeof(*s));
    s->call = c;
    slice_init(&s->slice, on_slice);
    s->is_follow = follow && lives;
    if (event_bounds_get(native_of(c)->config.events, c->args[0].p, &bounds, &err) < 0 ||
        event_subscribe(native_of(c)->config.events, c->args[0].p, from, on_wake, s, &s->cursor, &err) < 0) {
        call_fail_err(c, &err);
        return NULL;
    }
    c->state = s;
    c->cleanup = stream_closed;
    return s;
}

void native_events_stream(struct call *c)
{
    uint64_t from, last_id;
    struct str accept = http_header_get(c->req, "accept"), last = http_header_get(c->req, "last-event-id");
    if (call_query_u64(c, "from", &from) < 0)
        return;
    if (last.p && str_to_u64(last, &last_id) == 0 && last_id < UINT64_MAX)
        from = last_id + 1;

    struct native_event_stream *s = stream_new(c, from, true);
    if (!s)
        return;
    (void)call_query(c, "kind", &s->kind);
    s->is_sse = accept.p && str_starts(accept, STR("text/event-stream"));
    struct http_header headers[] = {
        HTTP_HEADER_STR("content-type", s->is_sse ? STR("text/event-stream") : STR("application/x-ndjson")),
        HTTP_HEADER("cache-control", "no-store")};
    (void)http_response_begin(c->req, 200, headers, ARRAY_SIZE(headers), -1);
    http_on_drain(c->req, native_events_on_drain, s);
    if (s->is_sse && s->is_follow) {
        s->keepalive = mem_new(uv_timer_t);
        (void)uv_timer_init(core_loop(call_core(c)), s->keepalive);
        s->keepalive->data = s;
        (void)uv_timer_start(s->keepalive, on_keepalive, KEEPALIVE_MS, KEEPALIVE_MS);
    }
    pump(s);
}

void native_events_logs(struct call *c)
{
    uint64_t from;
    if (call_query_u64(c, "from", &from) < 0)
        return;
    struct native_event_stream *s = stream_new(c, from, false);
    if (!s)
        return;
    s->is_logs = true;
    struct http_header headers[] = {HTTP_HEADER("content-type", "application/x-ndjson"),
                                    HTTP_HEADER("cache-control", "no-store")};
    (void)http_response_begin(c->req, 200, headers, ARRAY_SIZE(headers), -1);
    http_on_drain(c->req, native_events_on_drain, s);
    pump(s);
}

/* ---- verify: off the loop ---- */

struct verification {
    uv_work_t work;
    struct native_config config;
    struct call *call; /* held */
    char id[EVENT_ID_MAX + 1];
    struct event_verdict verdict;
    struct err err;
    int r;
};

static void verify_work(uv_work_t *work)
{
    struct verification *v = container_of(work, struct verification, work);
    v->r = v->config.verify(v->config.verify_ctx, v->id, &v->verdict, &v->err);
}

static void verify_done(uv_work_t *work, int status)
{
    struct verification *v = container_of(work, struct verification, work);
    struct call *c = call_back(v->call, NULL);
    AUTO_BUF struct buf b = BUF_INIT(4096);
    bool is_intact = v->verdict.fault == EVENT_INTACT;
    if (c && status < 0) {
        call_refuse(c, ERR_CANCELED, "the service stops");
    } else if (c && v->r < 0) {
        call_fail_err(c, &v->err);
    } else if (c) {
        buf_printf(
            &b,
            "{\"intact\":%s,\"fault\":%s%s%s,\"bad_seq\":%llu,\"first\":%llu,\"last\":%llu,\"checked\":%llu,\"detail\":",
            is_intact ? "true" : "false", is_intact ? "" : "\"",
            is_intact ? "null" : event_fault_name(v->verdict.fault), is_intact ? "" : "\"",
            (unsigned long long)v->verdict.bad_seq, (unsigned long long)v->verdict.first,
            (unsigned long long)v->verdict.last, (unsigned long long)v->verdict.checked);
        buf_append_json_string(&b, str_of(v->verdict.detail));
        buf_append_char(&b, '}');
        call_json_buf(c, 200, &b);
    }
    mem_free(v);
}

void native_events_verify(struct call *c)
{
    if (!find_log(c, true))
        return;
    struct verification *v = mem_new(struct verification);
    v->config = native_of(c)->config;
    memcpy(v->id, c->args[0].p, c->args[0].n);
    v->call = call_hold(c);
    int r = uv_queue_work(core_loop(call_core(c)), &v->work, verify_work, verify_done);
    assert(r == 0); /* fails for a NULL callback only */
    (void)r;
}
