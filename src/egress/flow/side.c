/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "egress/flow/side_internal.h"

enum { LINGER_MS = 2000, LINGER_BYTES = 1024 * 1024 };

/* The last time of a side whose owner has left: it only waits for the peer's end. */
struct side_linger {
    uv_timer_t timer;
    size_t left; /* bytes of the peer that are dropped, at most */
};

static void on_handle_closed(uv_handle_t *h)
{
    struct side *s = h->data;
    if (--s->handles > 0)
        return;
    MEM_FREE(s->failure, s->linger);
    s->kind->released(s);
}

void side_init(struct side *s, const struct side_kind *kind, uv_loop_t *loop, const struct side_ops *ops, void *ctx)
{
    s->kind = kind;
    s->loop = loop;
    s->ops = ops;
    s->ctx = ctx;
    s->want_read = true;
    (void)uv_timer_init(loop, &s->timer);
    s->timer.data = s;
    s->handles = 1;
}

void side_add_handle(struct side *s)
{
    s->handles++;
}

void side_close_handle(struct side *s, uv_handle_t *h)
{
    assert(h->data == s);
    uv_close(h, on_handle_closed);
}

/* Each tell is one call at most; the callee may close the side. */

static void tell_failure(struct side *s)
{
    if (s->closed || s->failure_told || !s->ops)
        return;
    s->failure_told = true;
    if (s->ops->on_failed)
        s->ops->on_failed(s->ctx, s->failure);
}

static void tell_ready(struct side *s)
{
    if (s->closed || s->ready_told || !s->ops)
        return;
    s->ready_told = true;
    if (s->ops->on_ready)
        s->ops->on_ready(s->ctx);
}

static void on_later(uv_timer_t *t)
{
    struct side *s = t->data;
    if (s->failure)
        tell_failure(s);
    else if (s->ready)
        tell_ready(s);
    if (!s->closed && (s->ended || s->kind->pending(s)))
        side_tell_readable(s);
    if (!s->closed)
        s->kind->watch(s);
}

/* tells from the loop what was not told, and calls kind->watch */
static void side_later(struct side *s)
{
    if (!s->closed && (s->ready || s->failure))
        (void)uv_timer_start(&s->timer, on_later, 0, 0);
}

void side_limit(struct side *s, uint64_t ms, uv_timer_cb cb)
{
    assert(!s->ready);
    (void)uv_timer_start(&s->timer, cb, ms, 0);
}

void side_become_ready(struct side *s)
{
    assert(!s->ready && !s->failure);
    s->ready = true;
    (void)uv_timer_stop(&s->timer);
    if (s->shut)
        s->kind->shut(s);
    tell_ready(s);
}

void side_fail(struct side *s, const struct err *err)
{
    if (s->closed || s->failure)
        return;
    s->failure = mem_dup(err, sizeof(*err));
    s->kind->watch(s);
    side_later(s);
}

void side_fail_errno(struct side *s, int errnum, const char *what)
{
    struct err err;
    (void)err_errno(&err, errnum, "%s", what);
    side_fail(s, &err);
}

void side_tell_readable(struct side *s)
{
    if (s->closed || s->failure || !s->want_read || !s->ops)
        return;
    s->want_read = false;
    if (s->ops->on_readable)
        s->ops->on_readable(s->ctx);
}

void side_tell_writable(struct side *s)
{
    if (s->closed || s->failure || !s->want_write || !s->ops)
        return;
    s->want_write = false;
    if (s->ops->on_writable)
        s->ops->on_writable(s->ctx);
}

void side_set(struct side *s, const struct side_ops *ops, void *ctx)
{
    s->ops = ops;
    s->ctx = ctx;
    s->want_read = true;
    if (s->ended || (s->failure && !s->failure_told) || (s->ready && !s->ready_told) || s->kind->pending(s))
        side_later(s);
    s->kind->watch(s);
}

static ssize_t side_broken(const struct side *s)
{
    return s->failure->errnum ? -s->failure->errnum : -EIO;
}

ssize_t side_read(struct side *s, void *to, size_t room)
{
    assert(!s->closed && room > 0);
    if (s->failure)
        return side_broken(s);
    if (s->ended)
        return 0;
    ssize_t n = -EAGAIN;
    if (s->ready)
        n = s->kind->read(s, to, room);
    if (n > 0) {
        s->bytes_in += (uint64_t)n;
    } else if (n == 0) {
        s->ended = true;
    } else if (n == -EAGAIN) {
        s->want_read = true;
        s->kind->watch(s);
    }
    return n;
}

ssize_t side_write(struct side *s, const void *from, size_t n)
{
    assert(!s->closed && !s->shut);
    if (s->failure)
        return side_broken(s);
    if (n == 0)
        return 0;
    ssize_t took = -EAGAIN;
    if (s->ready)
        took = s->kind->write(s, from, n);
    if (took > 0)
        s->bytes_out += (uint64_t)took;
    if (took == -EAGAIN || (took >= 0 && (size_t)took < n)) {
        s->want_write = true;
        s->kind->watch(s);
    }
    return took == 0 ? -EAGAIN : took;
}

void side_shut(struct side *s)
{
    assert(!s->closed);
    if (s->shut)
        return;
    s->shut = true;
    s->want_write = false;
    if (s->ready && !s->failure)
        s->kind->shut(s);
}

static void side_let_go(struct side *s, bool abandon)
{
    if (!s)
        return;
    assert(!s->closed);
    s->closed = true;
    s->kind->close(s, abandon);
    if (s->linger)
        side_close_handle(s, (uv_handle_t *)&s->linger->timer);
    side_close_handle(s, (uv_handle_t *)&s->timer);
}

void side_reset(struct side *s)
{
    side_let_go(s, true);
}

static void linger_drop(void *ctx)
{
    struct side *s = ctx;
    char scrap[4096];
    ssize_t n;
    while ((n = side_read(s, scrap, sizeof(scrap))) > 0) {
        if ((size_t)n > s->linger->left) {
            side_let_go(s, false);
            return;
        }
        s->linger->left -= (size_t)n;
    }
    if (n == 0 && s->kind->flushed(s))
        side_let_go(s, false);
}

static void linger_failed(void *ctx, const struct err *err UNUSED)
{
    side_let_go(ctx, false);
}

static void on_linger_limit(uv_timer_t *t)
{
    side_let_go(t->data, false);
}

static const struct side_ops linger_ops = {
    .on_readable = linger_drop,
    .on_writable = linger_drop,
    .on_failed = linger_failed,
};

void side_linger(struct side *s)
{
    if (!s || s->failure || !s->ready) {
        side_let_go(s, false);
        return;
    }
    s->linger = mem_new(struct side_linger);
    s->linger->left = LINGER_BYTES;
    (void)uv_timer_init(s->loop, &s->linger->timer);
    s->linger->timer.data = s;
    side_add_handle(s);
    (void)uv_timer_start(&s->linger->timer, on_linger_limit, LINGER_MS, 0);
    side_shut(s);
    s->want_write = !s->kind->flushed(s);
    side_set(s, &linger_ops, s);
}

void side_close(struct side *s)
{
    if (s && s->ready && !s->failure && !s->kind->flushed(s))
        side_linger(s);
    else
        side_let_go(s, false);
}

uint64_t side_bytes_in(const struct side *s)
{
    return s->bytes_in;
}

int side_fd(const struct side *s)
{
    return s->ready && !s->failure ? s->kind->fd(s) : -1;
}
