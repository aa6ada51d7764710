/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/http/exchange_internal.h"

/* ---- the turn ---- */

static void close_now(struct exchange *x);

/* Bytes of answers that the client has not taken yet. */
static size_t answers(const struct exchange *x)
{
    return buf_len(&x->upstream.in) + x->bodies + buf_len(&x->client.out);
}

/* Bytes of requests that upstream has not taken yet. */
static size_t requests(const struct exchange *x)
{
    return buf_len(&x->client.in) + x->uploads + buf_len(&x->upstream.out);
}

static size_t kept(const struct exchange *x)
{
    return answers(x) + requests(x) + x->heads + x->held;
}

static void share(struct exchange *x, size_t n)
{
    if (!x->share)
        return;
    x->share->held += n - x->shared;
    x->shared = n;
}

bool exchange_is_full(const struct exchange *x)
{
    return x->share && x->share->held - x->shared + kept(x) > EXCHANGE_SHARE_MAX;
}

/* True: this end is not read for now. An exchange that keeps so much waits for its other end to take some, which wakes
 * it. */
static bool said_too_much(const struct exchange_end *e)
{
    const struct exchange *x = e->x;
    return x->share && x->share->held > EXCHANGE_SHARE_MAX &&
           (e == &x->upstream ? answers(x) : requests(x)) > EXCHANGE_SHARE_LEAST;
}

static void rounds(struct exchange *x)
{
    bool any = false;
    for (int i = 0;; i++) {
        bool moved = x->kind->round(x);
        if (exchange_over(x))
            return;
        moved |= end_flush(&x->client);
        moved |= end_flush(&x->upstream);
        any |= moved;
        if (!moved && !x->client.unwritable)
            break;
        if (i == EXCHANGE_ROUNDS) {
            exchange_kick(x);
            break;
        }
    }
    share(x, kept(x));
    x->kind->settle(x, any);
}

static void exchange_run(struct exchange *x, bool late)
{
    if (x->running || exchange_over(x))
        return;
    x->running = true;
    if (late)
        x->kind->on_timeout(x);
    if (!exchange_over(x))
        rounds(x);
    x->running = false;
    if (x->closed) {
        close_now(x);
    } else if (x->ended && !x->end_told) {
        x->end_told = true;
        x->ops->on_end(x->ctx, x->end_failed ? &x->end_err : NULL);
    }
}

static void exchange_on_timer(uv_timer_t *t)
{
    struct exchange *x = t->data;
    exchange_run(x, !x->kicked && uv_now(x->loop) >= x->deadline);
    if (!exchange_over(x) && !uv_is_active((uv_handle_t *)t))
        (void)uv_timer_start(t, exchange_on_timer, MAX(x->deadline, uv_now(x->loop) + 1) - uv_now(x->loop), 0);
}

static void exchange_on_idle(uv_idle_t *idle)
{
    struct exchange *x = idle->data;
    (void)uv_idle_stop(idle);
    x->kicked = false;
    exchange_run(x, false);
}

/* No timer: libuv 1.44 lets one of 0 ms that is set from within itself ring again before anything is polled. */
void exchange_kick(struct exchange *x)
{
    x->kicked = true;
    (void)uv_idle_start(&x->idle, exchange_on_idle);
}

/* The timer is not moved for a deadline that went further away: firing early costs less. */
void exchange_deadline(struct exchange *x, unsigned ms)
{
    x->deadline = uv_now(x->loop) + ms;
    if (!uv_is_active((uv_handle_t *)&x->timer) || uv_timer_get_due_in(&x->timer) > ms)
        (void)uv_timer_start(&x->timer, exchange_on_timer, ms, 0);
}

void exchange_end(struct exchange *x, const struct err *err)
{
    if (x->ended)
        return;
    x->ended = true;
    x->end_failed = err != NULL;
    if (err)
        x->end_err = *err;
}

/* ---- ends ---- */

static void exchange_on_ready(void *ctx)
{
    struct exchange_end *e = ctx;
    e->may_read = true;
    exchange_run(e->x, false);
}

static void exchange_on_readable(void *ctx)
{
    struct exchange_end *e = ctx;
    e->may_read = true;
    exchange_run(e->x, false);
}

static void exchange_on_writable(void *ctx)
{
    struct exchange_end *e = ctx;
    exchange_run(e->x, false);
}

static void exchange_on_failed(void *ctx, const struct err *err)
{
    struct exchange_end *e = ctx;
    e->failed = true;
    e->may_read = false;
    e->err = *err;
    exchange_run(e->x, false);
}

static const struct side_ops end_ops = {
    .on_ready = exchange_on_ready,
    .on_readable = exchange_on_readable,
    .on_writable = exchange_on_writable,
    .on_failed = exchange_on_failed,
};

static void end_attach(struct exchange_end *e, struct side *side)
{
    e->side = side;
    e->may_read = true;
    side_set(side, &end_ops, e);
}

bool end_read(struct exchange_end *e)
{
    if (!e->may_read || e->eof || e->failed || !e->side || buf_len(&e->in) >= END_READ || said_too_much(e))
        return false;
    char *to = buf_reserve(&e->in, END_READ);
    assert(to);
    ssize_t n = side_read(e->side, to, END_READ);
    if (n > 0)
        buf_commit(&e->in, (size_t)n);
    else if (n == 0)
        e->eof = true;
    else
        e->may_read = false; /* on_readable follows, or on_failed */
    if (buf_len(&e->in) == 0)
        buf_fini(&e->in); /* a connection that waits keeps no buffer */
    return n >= 0;
}

static ssize_t write_some(struct exchange_end *e, struct str s)
{
    if (!e->side || e->unwritable || e->failed || e->shut)
        return 0;
    ssize_t n = side_write(e->side, s.p, s.n);
    if (n < 0 && n != -EAGAIN)
        e->unwritable = true;
    return MAX(n, 0);
}

bool end_flush(struct exchange_end *e)
{
    if (e->unwritable || e->failed)
        buf_clear(&e->out);
    if (buf_len(&e->out) == 0)
        return false;
    ssize_t n = write_some(e, buf_str(&e->out));
    buf_consume(&e->out, (size_t)n);
    return n > 0;
}

void end_put(struct exchange_end *e, struct str s)
{
    if (e->unwritable || e->failed)
        return;
    int r = buf_append_str(&e->out, s);
    assert(r == 0); /* END_OUT_HIGH is looked at before anything is made */
}

void end_put_now(struct exchange_end *e, struct str s)
{
    enum { WORTH_IT = 8 * 1024 };
    if (s.n >= WORTH_IT) {
        (void)end_flush(e);
        if (buf_len(&e->out) == 0)
            s = str_sub(s, (size_t)write_some(e, s));
    }
    if (s.n)
        end_put(e, s);
}

/* Takes the side out, to be given away; what was not parsed or not written yet is dropped. */
static struct side *end_take(struct exchange_end *e)
{
    if (e->side)
        e->counted = side_bytes_in(e->side);
    e->may_read = false;
    buf_fini(&e->in);
    buf_fini(&e->out);
    return TAKE_PTR(e->side);
}

void end_linger(struct exchange_end *e)
{
    side_linger(end_take(e));
}

void end_reset(struct exchange_end *e)
{
    side_reset(end_take(e));
}

/* ---- life ---- */

void exchange_init(struct exchange *x, const struct exchange_kind *kind, uv_loop_t *loop, struct side *client,
                   struct side *upstream, struct str first, const struct exchange_ops *ops, void *ctx,
                   const struct exchange_times *times)
{
    static const struct exchange_times usual = {EXCHANGE_HEAD_MS, EXCHANGE_IDLE_MS, EXCHANGE_STALL_MS,
                                                EXCHANGE_BLOCKED_MS};
    x->kind = kind;
    x->loop = loop;
    x->ops = ops;
    x->ctx = ctx;
    x->times = times ? *times : usual;
    struct exchange_end *ends[] = {&x->client, &x->upstream};
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        ends[i]->x = x;
        buf_init(&ends[i]->in, MAX((size_t)2 * END_READ, first.n + END_READ));
        buf_init(&ends[i]->out, END_OUT_MAX);
    }
    if (first.n)
        (void)buf_append_str(&x->client.in, first);
    (void)uv_timer_init(loop, &x->timer);
    (void)uv_idle_init(loop, &x->idle);
    x->timer.data = x->idle.data = x;
    end_attach(&x->client, client);
    if (upstream)
        end_attach(&x->upstream, upstream);
    exchange_kick(x);
}

void exchange_upstream(struct exchange *x, struct side *upstream, const char *why)
{
    assert(!x->running && !x->closed && !x->upstream.side);
    if (x->ended) {
        side_close(upstream);
        return;
    }
    if (upstream)
        end_attach(&x->upstream, upstream);
    else
        x->kind->on_no_upstream(x, why);
    exchange_kick(x);
}

void exchange_resume(struct exchange *x)
{
    x->resumed = true;
    exchange_kick(x);
}

static void exchange_on_closed(uv_handle_t *h)
{
    struct exchange *x = h->data;
    if (!uv_is_closing((uv_handle_t *)&x->timer))
        uv_close((uv_handle_t *)&x->timer, exchange_on_closed);
    else
        x->kind->release(x);
}

static void close_now(struct exchange *x)
{
    struct exchange_end *ends[] = {&x->client, &x->upstream};
    share(x, 0);
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
        end_reset(ends[i]); /* what is still there did not end: nobody shall take it for complete */
    (void)uv_timer_stop(&x->timer);
    uv_close((uv_handle_t *)&x->idle, exchange_on_closed);
}

void exchange_close(struct exchange *x)
{
    if (!x || x->closed)
        return;
    x->closed = true;
    if (!x->running)
        close_now(x);
}

void exchange_set_share(struct exchange *x, struct exchange_share *s)
{
    assert(!x->share);
    x->share = s;
}

static uint64_t came_from(const struct exchange_end *e)
{
    return e->side ? side_bytes_in(e->side) : e->counted;
}

void exchange_counts(const struct exchange *x, uint64_t *ret_sent, uint64_t *ret_received)
{
    *ret_sent = came_from(&x->client);
    *ret_received = came_from(&x->upstream);
}
