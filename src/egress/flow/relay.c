/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. A direction reads from one side and writes to the other.
 *
 *  1. It reads only when all that it has read before is written: what it holds is the rest of one read, at most
 *     SIDE_BUFFER bytes in a buffer of its own, or one pipe's content.
 *  2. It goes on until its source has no more for now, its target takes no more (then the side says when to go on), or
 *     it has moved TURN bytes: then the other connections of the loop have their turn first.
 *  3. A pipe is held while there is something in it. It is used once VOLUME bytes came in pieces that are mostly large:
 *     below that, two system calls for a copy of a few bytes cost more than the copy.
 */
#include "egress/flow/relay.h"
#include "base/fd.h"
#include "base/mem.h"
#include "egress/flow/side_internal.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

enum {
    TURN = 1024 * 1024,
    VOLUME = 256 * 1024,
    LARGE = 16 * 1024,
    PIPE_BYTES = 512 * 1024, /* asked for; what the kernel gives without privilege may be less */
    PIPES_FREE_MAX = 16,
    PIPES_MAX = 128, /* with those in use: more directions than that copy */
};

struct pipe {
    int in, out;
};

struct relay_pool {
    struct pipe free[PIPES_FREE_MAX];
    unsigned n_free, n_used;
    char buffer[SIDE_BUFFER];
};

struct direction {
    struct relay *relay;
    struct side *from, *to;
    char *rest; /* owned; bytes [rest_at, rest_end) are not written yet */
    size_t rest_at, rest_end;
    struct pipe pipe;
    size_t in_pipe;
    size_t volume;        /* that came in large pieces; small ones let it fade */
    uint64_t moved;       /* bytes that `to` took */
    bool ended, finished; /* the source is at its end; the target was shut */
    bool again;           /* had its turn, and has more */
};

struct relay {
    struct relay_pool *pool;
    uv_loop_t *loop;
    struct direction ways[2]; /* from a, from b */
    uv_idle_t idle;           /* runs while a direction wants another turn */
    uv_timer_t timer;
    unsigned idle_ms;
    uint64_t moved_at;
    relay_end_fn *on_end;
    void *ctx;
    bool ended, in_order, closed;
    unsigned handles;
};

struct relay_pool *relay_pool_new(void)
{
    struct sigaction was;
    if (sigaction(SIGPIPE, NULL, &was) == 0 && was.sa_handler == SIG_DFL)
        (void)signal(SIGPIPE, SIG_IGN);
    return mem_new(struct relay_pool);
}

static void pipe_close(struct pipe p)
{
    (void)fd_close(p.in);
    (void)fd_close(p.out);
}

void relay_pool_free(struct relay_pool *p)
{
    if (!p)
        return;
    assert(p->n_used == 0);
    while (p->n_free)
        pipe_close(p->free[--p->n_free]);
    mem_free(p);
}

static bool has_pipe(const struct direction *d)
{
    return d->pipe.out >= 0;
}

/* False: there are none, which is no failure. */
static bool take_pipe(struct direction *d)
{
    struct relay_pool *p = d->relay->pool;
    if (has_pipe(d))
        return true;
    if (p->n_used == PIPES_MAX)
        return false;
    if (p->n_free) {
        d->pipe = p->free[--p->n_free];
    } else {
        int fds[2];
        if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
            return false;
        (void)fcntl(fds[0], F_SETPIPE_SZ, PIPE_BYTES);
        d->pipe = (struct pipe){.out = fds[0], .in = fds[1]};
    }
    p->n_used++;
    return true;
}

static void give_pipe(struct direction *d)
{
    struct relay_pool *p = d->relay->pool;
    if (!has_pipe(d))
        return;
    p->n_used--;
    /* A pipe with bytes of one connection in it is never given to another. */
    if (d->in_pipe == 0 && p->n_free < PIPES_FREE_MAX)
        p->free[p->n_free++] = d->pipe;
    else
        pipe_close(d->pipe);
    d->pipe = (struct pipe){-1, -1};
    d->in_pipe = 0;
}

static void took(struct direction *d, size_t n)
{
    d->moved += n;
    d->relay->moved_at = uv_now(d->relay->loop);
}

static void keep_rest(struct direction *d, const char *p, size_t n)
{
    assert(!d->rest && n <= SIDE_BUFFER);
    d->rest = mem_dup(p, n);
    d->rest_at = 0;
    d->rest_end = n;
}

/* True when nothing is held any more. */
static bool write_held(struct direction *d)
{
    while (d->rest) {
        ssize_t n = side_write(d->to, d->rest + d->rest_at, d->rest_end - d->rest_at);
        if (n < 0)
            return false;
        took(d, (size_t)n);
        d->rest_at += (size_t)n;
        if (d->rest_at == d->rest_end)
            mem_free(TAKE_PTR(d->rest));
    }
    while (d->in_pipe) {
        ssize_t n = side_splice_out(d->to, d->pipe.out, d->in_pipe);
        if (n < 0)
            return false;
        took(d, (size_t)n);
        d->in_pipe -= (size_t)n;
    }
    return true;
}

static void note_size(struct direction *d, size_t n)
{
    d->volume = n >= LARGE ? MIN(d->volume + n, (size_t)VOLUME) : d->volume / 2;
}

/* Both return the bytes read, 0 at the end, or -errno. */
static ssize_t move_by_pipe(struct direction *d)
{
    ssize_t n = side_splice_in(d->from, d->pipe.in, PIPE_BYTES);
    if (n > 0) {
        d->in_pipe = (size_t)n;
        note_size(d, (size_t)n);
    }
    return n;
}

/* As much as fits: a TLS side gives one record at a time. A connection gives all that it has at once, and is asked
 * again when that is on its way. */
static ssize_t move_by_buffer(struct direction *d)
{
    char *buffer = d->relay->pool->buffer;
    size_t have = 0;
    ssize_t n = 0;
    while (have < SIDE_BUFFER && (n = side_read(d->from, buffer + have, SIDE_BUFFER - have)) > 0) {
        have += (size_t)n;
        if (side_fd(d->from) >= 0)
            break;
    }
    if (have == 0)
        return n;
    note_size(d, have);
    ssize_t wrote = side_write(d->to, buffer, have);
    size_t done = wrote > 0 ? (size_t)wrote : 0;
    took(d, done);
    if (done < have)
        keep_rest(d, buffer + done, have - done);
    if (n == 0)
        d->ended = true;
    return (ssize_t)have;
}

static bool is_plain(const struct direction *d)
{
    return side_fd(d->from) >= 0 && side_fd(d->to) >= 0;
}

static void relay_on_idle(uv_idle_t *h);

static void pump(struct direction *d)
{
    struct relay *r = d->relay;
    size_t turn = 0;
    d->again = false;
    while (write_held(d) && !d->ended) {
        if (turn >= TURN) {
            d->again = true;
            (void)uv_idle_start(&r->idle, relay_on_idle);
            return;
        }
        bool piped = d->volume >= VOLUME && is_plain(d) && take_pipe(d);
        ssize_t n = piped ? move_by_pipe(d) : move_by_buffer(d);
        if (n == 0)
            d->ended = true;
        else if (n < 0)
            break;
        else
            turn += (size_t)n;
    }
    if (d->in_pipe == 0)
        give_pipe(d);
    if (d->ended && !d->rest && d->in_pipe == 0 && !d->finished) {
        d->finished = true;
        side_shut(d->to);
        d->to->want_write = !d->to->kind->flushed(d->to);
    }
}

static void end(struct relay *r, enum relay_end how, const struct err *err)
{
    if (r->ended)
        return;
    r->ended = true;
    r->in_order = how == RELAY_DONE;
    (void)uv_idle_stop(&r->idle);
    (void)uv_timer_stop(&r->timer);
    side_set(r->ways[0].from, NULL, NULL);
    side_set(r->ways[1].from, NULL, NULL);
    r->on_end(r->ctx, how, err);
}

static bool relay_is_over(const struct direction *d)
{
    return d->finished && d->to->kind->flushed(d->to);
}

static void end_if_finished(struct relay *r)
{
    if (relay_is_over(&r->ways[0]) && relay_is_over(&r->ways[1]))
        end(r, RELAY_DONE, NULL);
}

static void relay_go_on(struct direction *d)
{
    pump(d);
    end_if_finished(d->relay);
}

static void relay_on_idle(uv_idle_t *h)
{
    struct relay *r = h->data;
    (void)uv_idle_stop(h);
    for (size_t i = 0; i < 2; i++) {
        if (r->ways[i].again)
            pump(&r->ways[i]);
    }
    end_if_finished(r);
}

/* Callbacks of a side have the direction from it as their context. */

static struct direction *opposite(struct direction *d)
{
    return d == &d->relay->ways[0] ? &d->relay->ways[1] : &d->relay->ways[0];
}

static void relay_on_readable(void *ctx)
{
    relay_go_on(ctx);
}

static void relay_on_writable(void *ctx)
{
    relay_go_on(opposite(ctx));
}

static void relay_on_failed(void *ctx, const struct err *err)
{
    struct direction *d = ctx;
    end(d->relay, d == &d->relay->ways[0] ? RELAY_A_FAILED : RELAY_B_FAILED, err);
}

static const struct side_ops ops = {
    .on_readable = relay_on_readable, .on_writable = relay_on_writable, .on_failed = relay_on_failed};

static void relay_on_timer(uv_timer_t *t)
{
    struct relay *r = t->data;
    uint64_t still = uv_now(r->loop) - r->moved_at;
    if (still < r->idle_ms) {
        (void)uv_timer_start(t, relay_on_timer, r->idle_ms - still, 0);
        return;
    }
    struct err err;
    (void)err_set(&err, ERR_DEADLINE_EXCEEDED, "nothing was sent for %u ms", r->idle_ms);
    end(r, RELAY_IDLE, &err);
}

struct relay *relay_start(struct relay_pool *pool, uv_loop_t *loop, struct side *a, struct side *b, struct str first,
                          unsigned idle_ms, relay_end_fn *on_end, void *ctx)
{
    struct relay *r = mem_new(struct relay);
    r->pool = pool;
    r->loop = loop;
    r->ways[0] = (struct direction){.relay = r, .from = a, .to = b, .pipe = {-1, -1}};
    r->ways[1] = (struct direction){.relay = r, .from = b, .to = a, .pipe = {-1, -1}};
    r->idle_ms = idle_ms;
    r->on_end = on_end;
    r->ctx = ctx;
    r->moved_at = uv_now(loop);
    (void)uv_idle_init(loop, &r->idle);
    (void)uv_timer_init(loop, &r->timer);
    r->idle.data = r->timer.data = r;
    r->handles = 2;
    side_set(a, &ops, &r->ways[0]);
    side_set(b, &ops, &r->ways[1]);
    if (first.n) {
        keep_rest(&r->ways[0], first.p, first.n);
        (void)write_held(&r->ways[0]);
    }
    if (idle_ms)
        (void)uv_timer_start(&r->timer, relay_on_timer, idle_ms, 0);
    return r;
}

void relay_counts(const struct relay *r, uint64_t *ret_ab, uint64_t *ret_ba)
{
    *ret_ab = r->ways[0].moved;
    *ret_ba = r->ways[1].moved;
}

static void relay_on_closed(uv_handle_t *h)
{
    struct relay *r = h->data;
    if (--r->handles == 0)
        mem_free(r);
}

void relay_close(struct relay *r)
{
    if (!r)
        return;
    assert(!r->closed);
    r->closed = r->ended = true;
    for (size_t i = 0; i < 2; i++) {
        struct direction *d = &r->ways[i];
        give_pipe(d);
        mem_free(TAKE_PTR(d->rest));
        if (r->in_order)
            side_close(d->from);
        else
            side_reset(d->from);
    }
    uv_close((uv_handle_t *)&r->idle, relay_on_closed);
    uv_close((uv_handle_t *)&r->timer, relay_on_closed);
}
