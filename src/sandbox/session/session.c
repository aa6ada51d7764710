/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 *  1. Input. One read fills the loop's shared buffer; frames are handled where they lie. Payload of DATA goes on as it
 *     comes, so only the beginning of another kind of frame is ever kept (`partial`, at most one frame). Nothing is
 *     allocated by a size that the agent says.
 *  2. Every frame is checked against the state of its stream before anybody hears of it (take_frame, begin_data). The
 *     first thing that can't be breaks the session: no frame behind it is looked at, no byte is sent any more, and the
 *     owner hears so once, in a later turn.
 *  3. Output. Frames gather in `outbox` and go out in one write before the loop sleeps, requests at once; large DATA
 *     goes straight to the socket while the outbox is empty. DATA stops at OUTBOX_SOFT (the stream waits for on_room),
 *     requests at OUTBOX_OPEN; what is left (CREDIT, CLOSE) can reach OUTBOX_MAX only when the agent makes us say much
 *     and reads nothing of it, which is a violation.
 *  4. Credit to the agent is gathered per stream and turn. Delivered bytes are reported in the same turn, before any
 *     later OPEN; others only when a quarter of the window is due. Credit from the agent never exceeds the window: it
 *     can only give back what it was sent.
 *  5. A stream stays in the table from OPEN to END. stream_close() only takes its user away: what the agent sends until
 *     END is checked, then dropped. So ids are unambiguous, and the number of streams is bounded even when the agent
 *     never ends them (they time out with the session).
 *  6. `closing` and `broken` are looked at after every callback: a callback may close the session, whose memory lives
 *     until a later turn.
 */
#include "sandbox/session/session.h"
#include "base/fd.h"
#include "base/map.h"
#include "base/mem.h"
#include "sandbox/exec/stream.h"
#include "sandbox/sandbox.h"

enum {
    OUTBOX_OPEN = 4 << 20,
    HELLO_MS = 15000, /* an emulated machine that goes on in a new monitor begins slowly */
};

bool session_is_ready(const struct session *s)
{
    return s->ready && !s->broken && !s->closing;
}

bool session_is_over(const struct session *s)
{
    return s->broken || s->closing;
}

/* ---- breaking ---- */

static void stop_io(struct session *s)
{
    if (s->fd >= 0)
        (void)uv_poll_stop(&s->poll);
    loop_job_cancel(&s->flush);
    loop_job_cancel(&s->room);
    loop_alarm_clear(s->loop, &s->hello);
}

static void on_broken_job(struct loop_job *job)
{
    struct session *s = container_of(job, struct session, broken_job);
    if (!s->closing)
        s->ops->on_broken(s->ctx, s->violation, &s->why);
}

void session_break(struct session *s, bool violation, const char *fmt, ...)
{
    if (session_is_over(s))
        return;
    char text[160];
    FORMAT_ARGS(text, fmt);
    s->broken = true;
    s->violation = violation;
    (void)err_set(&s->why, ERR_UNAVAILABLE, "%s", text);
    stop_io(s);
    loop_later(s->loop, &s->broken_job);
}

void session_lie(struct session *s, uint32_t stream, const char *what)
{
    session_break(s, true, "stream %u: %s", stream, what);
}

/* ---- streams ---- */

struct buf *session_request(struct session *s, enum wire_verb verb)
{
    struct buf *b = loop_scratch(s->loop);
    (void)wire_begin(b, WIRE_OPEN, 0, 0);
    wire_put_u8(b, (uint8_t)verb);
    return b;
}

static void on_stream_alarm(struct loop_alarm *alarm)
{
    struct stream *st = container_of(alarm, struct stream, alarm);
    const struct stream_ops *ops = st->ops;
    void *user = st->user;
    struct err err;
    (void)err_set(&err, ERR_DEADLINE_EXCEEDED, "the sandbox did not answer within %u s", (st->timeout_ms + 999) / 1000);
    stream_close(st);
    ops->on_end(user, STR_NULL, &err);
}

void stream_arm_in(struct stream *st, usec_t now, usec_t left)
{
    loop_alarm_set(st->session->loop, &st->alarm, now + left, on_stream_alarm);
}

void stream_arm(struct stream *st)
{
    if (st->timeout_ms && st->session->stands_still)
        st->left = st->timeout_ms * USEC_PER_MS;
    else if (st->timeout_ms && !st->closed)
        stream_arm_in(st, clock_mono(), st->timeout_ms * USEC_PER_MS);
}

int stream_open(struct session *s, struct buf *request, const struct stream_ops *ops, void *user, unsigned timeout_ms,
                struct stream **ret_stream, struct err *err)
{
    if (session_is_over(s))
        return err_set(err, ERR_UNAVAILABLE, "the sandbox is no longer reachable");
    if (buf_error(request))
        return err_set(err, ERR_INVALID_ARGUMENT, "the request is larger than %d KiB", WIRE_PAYLOAD_MAX / 1024);
    if (map_count(&s->streams) >= WIRE_STREAMS_MAX || s->last_id == UINT32_MAX || buf_len(&s->outbox) > OUTBOX_OPEN)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "this sandbox is too busy: try again later");
    struct stream *st = mem_new(struct stream);
    *st = (struct stream){.session = s,
                          .ops = ops,
                          .user = user,
                          .id = ++s->last_id,
                          .timeout_ms = timeout_ms,
                          .recv_credit = WIRE_WINDOW,
                          .send_credit = WIRE_WINDOW};
    list_init(&st->credit_node);
    list_init(&st->starved_node);
    (void)map_put_u64(&s->streams, st->id, st);
    session_put_credits(s);
    struct wire_frame f = {
        .size = (uint32_t)(buf_len(request) - WIRE_HEADER_SIZE), .stream = st->id, .type = WIRE_OPEN};
    wire_header_put(&f, (uint8_t *)buf_data(request));
    (void)buf_append_str(&s->outbox, buf_str(request));
    session_send_now(s); /* somebody waits for what it answers; what else the turn does can wait */
    stream_arm(st);
    *ret_stream = st;
    return 0;
}

void stream_free(struct stream *st)
{
    loop_alarm_clear(st->session->loop, &st->alarm);
    list_remove(&st->credit_node);
    list_remove(&st->starved_node);
    mem_free(st);
}

/* ---- life ---- */

static void on_hello_alarm(struct loop_alarm *alarm)
{
    struct session *s = container_of(alarm, struct session, hello);
    session_break(s, false, "the agent did not answer within %u s", s->hello_ms / 1000);
}

static void session_arm_hello(struct session *s, usec_t left)
{
    loop_alarm_set(s->loop, &s->hello, clock_mono() + left, on_hello_alarm);
}

static void session_on_closed(uv_handle_t *handle)
{
    mem_free(handle->data);
}

static void tear_down(struct session *s)
{
    assert(s->closing);
    loop_job_cancel(&s->closed_job);
    loop_job_cancel(&s->broken_job);
    /* Nobody can open a stream any more; on_end may close others. */
    MAP_FOREACH (struct stream, st, &s->streams) {
        loop_alarm_clear(s->loop, &st->alarm);
        if (!st->closed) {
            st->closed = true;
            st->ops->on_end(st->user, STR_NULL, &s->why);
        }
    }
    MAP_FOREACH (struct stream, st, &s->streams)
        stream_free(st);
    map_fini(&s->streams);
    buf_fini(&s->outbox);
    buf_fini(&s->partial);
    if (s->fd < 0) {
        mem_free(s);
        return;
    }
    uv_close((uv_handle_t *)&s->poll, session_on_closed);
    (void)fd_close(s->fd);
}

static void session_on_closed_job(struct loop_job *job)
{
    struct session *s = container_of(job, struct session, closed_job);
    const struct session_ops *ops = s->ops;
    void *ctx = s->ctx;
    tear_down(s);
    if (ops->on_closed)
        ops->on_closed(ctx);
}

static void close_with(struct session *s, const struct err *why)
{
    stop_io(s);
    s->why = *why;
    s->closing = true;
}

bool session_is_idle(const struct session *s)
{
    return session_is_over(s) || map_count(&s->streams) == 0;
}

void session_close(struct session *s, const struct err *why)
{
    assert(!s->closing);
    close_with(s, why);
    loop_later(s->loop, &s->closed_job);
}

void session_drop(struct session *s, const struct err *why)
{
    if (!s->closing)
        close_with(s, why);
    tear_down(s);
}

struct session *session_new(struct loop *loop, const struct session_ops *ops, void *ctx)
{
    struct session *s = mem_new(struct session);
    s->loop = loop;
    s->ops = ops;
    s->ctx = ctx;
    s->fd = -1;
    s->hello_ms = HELLO_MS;
    buf_init(&s->outbox, SESSION_OUTBOX_MAX);
    buf_init(&s->partial, WIRE_HEADER_SIZE + WIRE_PAYLOAD_MAX);
    list_init(&s->credits);
    list_init(&s->starved);
    loop_job_init(&s->flush, session_flush_job);
    loop_job_init(&s->room, session_room_job);
    loop_job_init(&s->broken_job, on_broken_job);
    loop_job_init(&s->closed_job, session_on_closed_job);
    return s;
}

void session_greet(struct session *s, const char *attributes, const struct pair *env, size_t n_env)
{
    size_t at = wire_begin(&s->outbox, WIRE_HELLO, 0, 0);
    wire_put_str(&s->outbox, str_of(attributes));
    uint32_t n = 0;
    for (size_t i = 0; i < n_env; i++)
        n += env[i].key.n > 0;
    wire_put_u32(&s->outbox, n);
    for (size_t i = 0; i < n_env; i++) {
        if (env[i].key.n == 0)
            continue;
        wire_put_str(&s->outbox, env[i].key);
        wire_put_str(&s->outbox, env[i].value);
    }
    wire_end(&s->outbox, at);
}

void session_expect_in(struct session *s, unsigned hello_ms)
{
    s->hello_ms = hello_ms;
}

int session_start(struct session *s, int fd, struct err *err)
{
    assert(s->fd < 0);
    int r = fd_nonblock(fd, true);
    if (r >= 0)
        r = uv_poll_init(loop_uv(s->loop), &s->poll, fd); /* libuv's codes are -errno */
    if (r < 0) {
        (void)fd_close(fd);
        return err_errno(err, r, "watch the agent's socket");
    }
    s->fd = fd;
    s->poll.data = s;
    r = uv_poll_start(&s->poll, UV_READABLE, session_on_poll);
    if (r < 0)
        return err_errno(err, r, "watch the agent's socket");
    session_arm_hello(s, s->hello_ms * USEC_PER_MS);
    return 0;
}

/* ---- an agent that is frozen: what it is waited for counts only the time that it runs ---- */

static usec_t session_still_stop(struct session *s, struct loop_alarm *alarm)
{
    usec_t now = clock_mono();
    if (!alarm->slot)
        return 0;
    usec_t left = alarm->at > now ? alarm->at - now : 1;
    loop_alarm_clear(s->loop, alarm);
    return left;
}

void session_stand_still(struct session *s)
{
    s->stands_still = true;
    s->hello_left = session_still_stop(s, &s->hello);
    MAP_FOREACH (struct stream, st, &s->streams)
        st->left = session_still_stop(s, &st->alarm);
}

void session_go_on(struct session *s)
{
    usec_t now = clock_mono();
    s->stands_still = false;
    if (session_is_over(s))
        return;
    if (s->hello_left && !s->ready)
        session_arm_hello(s, s->hello_left);
    MAP_FOREACH (struct stream, st, &s->streams) {
        if (st->left && !st->closed && !(st->ops->long_lived && st->replied))
            stream_arm_in(st, now, st->left);
        st->left = 0;
    }
}
