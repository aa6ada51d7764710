/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watching a directory: one frame is one event, and its credit returns when the client has taken the event. When
 * OUTSTANDING_MAX are with the client, what still comes (the window's worth at most) waits in `rest`, each with its
 * length before it.
 */
#include "base/mem.h"
#include "sandbox/files/file_call.h"

enum { OUTSTANDING_MAX = 1024 };

struct outstanding {
    struct list node;
    size_t bytes;
};

static void watch_on_reply(void *user, struct str head)
{
    struct file_call *c = user;
    if (head.n)
        stream_violation(c->stream, "a malformed head of WATCH");
    else if (c->to.watch->on_start)
        c->to.watch->on_start(c->ctx);
}

static void deliver(struct file_call *c, struct str bytes)
{
    struct wire_reader r = wire_reader_of(bytes);
    struct wire_entry entry;
    uint8_t kind = wire_get_u8(&r);
    struct str name = wire_get_str(&r);
    uint8_t has_entry = wire_get_u8(&r);
    bool sound = !has_entry || entry_get(&r, &entry);
    if (!sound || !wire_done(&r) || has_entry > 1 || kind < WIRE_WATCH_CREATE || kind > WIRE_WATCH_CHMOD ||
        str_has_nul(name)) {
        stream_violation(c->stream, "a malformed event of WATCH");
        return;
    }
    struct outstanding *o = mem_new(struct outstanding);
    o->bytes = bytes.n;
    list_append(&c->events, &o->node);
    c->in++;
    c->to.watch->on_event(c->ctx, (enum wire_watch_kind)kind, name, has_entry ? &entry.e : NULL);
}

static void watch_on_data(void *user, uint8_t flags UNUSED, struct str bytes)
{
    struct file_call *c = user;
    if (c->in < OUTSTANDING_MAX && !buf_len(&c->rest)) {
        deliver(c, bytes);
        return;
    }
    wire_put_str(&c->rest, bytes);
    if (buf_error(&c->rest)) /* the window's worth of real events fits, with their lengths */
        stream_violation(c->stream, "too many events");
}

static void on_more(struct loop_job *job)
{
    struct file_call *c = container_of(job, struct file_call, job);
    c->busy = true;
    while (c->in < OUTSTANDING_MAX && buf_len(&c->rest) && !c->gone) {
        struct wire_reader r = wire_reader_of(buf_str(&c->rest));
        struct str event = wire_get_str(&r);
        size_t used = buf_len(&c->rest) - r.n;
        deliver(c, event);
        buf_consume(&c->rest, used);
    }
    c->busy = false;
    if (c->gone)
        file_call_free(c);
}

void file_watch_ack(struct file_call *c, size_t events)
{
    while (events-- && !list_empty(&c->events)) {
        struct outstanding *o = LIST_FIRST(struct outstanding, &c->events, node);
        list_remove(&o->node);
        stream_grant(c->stream, o->bytes, false);
        mem_free(o);
        c->in--;
    }
    if (buf_len(&c->rest))
        loop_later(c->sb->core->loop, &c->job);
}

static void watch_on_end(void *user, struct str tail, const struct err *err)
{
    struct file_call *c = user;
    struct err local;
    if (!err) {
        if (tail.n)
            stream_violation(c->stream, "a malformed end of WATCH");
        (void)err_set(&local, ERR_UNAVAILABLE, "the watch ended");
        err = &local;
    }
    const struct file_watch_ops *ops = c->to.watch;
    void *ctx = c->ctx;
    file_call_free(c);
    ops->on_end(ctx, err);
}

static const struct stream_ops watch_ops = {
    .on_reply = watch_on_reply, .on_data = watch_on_data, .on_end = watch_on_end, .whole = true, .long_lived = true};

int file_watch(struct sandbox *sb, const struct actor *actor, struct str user, struct str path, uint8_t flags,
               const struct file_watch_ops *ops, void *ctx, struct file_call **ret_call, struct err *err)
{
    struct file_call *c;
    struct buf *b = file_begin(sb, actor, WIRE_WATCH, EVENT_FILE_WATCH, user, path, STR_NULL, ctx, &c, err);
    if (!b)
        return -1;
    c->to.watch = ops;
    c->job.fn = on_more;
    wire_put_u8(b, flags);
    return file_call_open(c, b, &watch_ops, ret_call, err);
}
