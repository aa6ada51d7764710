/* SPDX-License-Identifier: Apache-2.0 */
/* Filesystem.WatchDir: a directory's changes as a stream. */
#include "api/e2b/envd/envd.h"
#include "api/e2b/envd/rpc.h"
#include "api/e2b/envd/watch_event.h"
#include "http/client/connect.h"

struct watching {
    usec_t last, deadline; /* monotonic; 0: none */
    uint64_t keepalive_ms;
};

static void send_message(struct call *c, struct str message)
{
    struct watching *w = c->state;
    struct buf *b = &e2b_of(c)->scratch;
    connect_append(b, 0, message);
    rpc_send(c, buf_str(b));
    buf_clear(b);
    w->last = clock_mono();
}

static void envd_watch_on_timer(struct call *c);

static void set_timer(struct call *c)
{
    struct watching *w = c->state;
    usec_t due = w->last + w->keepalive_ms * USEC_PER_MS, now = clock_mono();
    if (w->deadline && w->deadline < due)
        due = w->deadline;
    call_set_timer(c, due > now ? (due - now + USEC_PER_MS - 1) / USEC_PER_MS : 0, envd_watch_on_timer);
}

static void envd_watch_on_timer(struct call *c)
{
    struct watching *w = c->state;
    usec_t now = clock_mono();
    if (w->deadline && now >= w->deadline) {
        rpc_fail(c, ERR_DEADLINE_EXCEEDED, "context deadline exceeded");
        return;
    }
    if (now - w->last >= w->keepalive_ms * USEC_PER_MS) {
        if (c->unacked)
            w->last = now;
        else
            send_message(c, STR("{\"keepalive\":{}}"));
    }
    set_timer(c);
}

static void envd_watch_on_start(void *ctx)
{
    struct call *c = ctx;
    if (c->answered)
        return;
    send_message(c, STR("{\"start\":{}}"));
    set_timer(c);
}

static void envd_watch_on_event(void *ctx, enum wire_watch_kind kind, struct str name, const struct file_entry *entry)
{
    AUTO_BUF struct buf event = BUF_INIT(BODY_MAX);
    struct call *c = ctx;
    if (c->answered)
        return;
    buf_append_cstr(&event, "{\"filesystem\":");
    watch_event_append(&event, kind, name, entry);
    buf_append_char(&event, '}');
    send_message(c, buf_str(&event));
    call_paced(c, 1);
}

static void envd_watch_ack(struct call *c, size_t n)
{
    if (c->file)
        file_watch_ack(c->file, n);
}

static void envd_watch_on_end(void *ctx, const struct err *err)
{
    struct call *c = ctx;
    c->file = NULL;
    if (err)
        call_fail_err(c, err);
    else
        rpc_end(c);
}

static const struct file_watch_ops envd_watch_ops = {envd_watch_on_start, envd_watch_on_event, envd_watch_on_end};

void envd_watch_dir(struct call *c)
{
    struct str path;
    uint8_t flags;
    if (!call_ok(c, watch_request_read(c->body, &path, &flags, &c->err)))
        return;
    struct watching *w = call_state(c, sizeof(*w), NULL);
    w->keepalive_ms = rpc_keepalive_ms(c->req);
    w->last = clock_mono();
    if (c->timeout_ms)
        w->deadline = w->last + c->timeout_ms * USEC_PER_MS;
    call_pace(c, envd_watch_ack);
    call_ok(c, file_watch(c->sandbox, &c->actor, c->user, path, flags, &envd_watch_ops, c, &c->file, &c->err));
}
