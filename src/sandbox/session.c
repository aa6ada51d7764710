/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 *  1. Input. One read fills the loop's shared buffer; frames are handled where they lie. Payload of DATA goes on as it comes, so only the
 *     beginning of another kind of frame is ever kept (`partial`, at most one frame). Nothing is allocated by a size that the agent says.
 *  2. Every frame is checked against the state of its stream before anybody hears of it (take_frame, begin_data). The first thing that
 *     can't be breaks the session: no frame behind it is looked at, no byte is sent any more, and the owner hears so once, in a later turn.
 *  3. Output. Frames gather in `outbox` and go out in one write before the loop sleeps; large DATA goes straight to the socket while the
 *     outbox is empty. DATA stops at OUTBOX_SOFT (the stream waits for on_room), requests at OUTBOX_OPEN; what is left (CREDIT, CLOSE)
 *     can reach OUTBOX_MAX only when the agent makes us say much and reads nothing of it, which is a violation.
 *  4. Credit to the agent is gathered per stream and turn. Delivered bytes are reported in the same turn, before any later OPEN; others only when
 *     a quarter of the window is due. Credit from the agent never exceeds the window: it can only give back what it was sent.
 *  5. A stream stays in the table from OPEN to END. stream_close() only takes its user away: what the agent sends until END is checked, then
 *     dropped. So ids are unambiguous, and the number of streams is bounded even when the agent never ends them (they time out
 *     with the session).
 *  6. `closing` and `broken` are looked at after every callback: a callback may close the session, whose memory lives until a later turn.
 */
#include "sandbox/session.h"
#include "base/fd.h"
#include "base/map.h"
#include "base/mem.h"
#include "sandbox/stream.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum {
    OUTBOX_SOFT = 1 << 20,
    OUTBOX_ROOM = OUTBOX_SOFT / 2, /* streams that wait are told below this */
    OUTBOX_OPEN = 4 << 20,
    OUTBOX_MAX = 8 << 20,
    OUTBOX_KEEP = 16 * 1024, /* an empty outbox keeps at most this much memory */
    DIRECT_MIN = 4096,
    HELLO_MS = 5000,
    READS_PER_TURN = 4, /* then the others' turn */
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

static void PRINTF_LIKE(3, 4) session_break(struct session *s, bool violation, const char *fmt, ...)
{
    if (session_is_over(s))
        return;
    char text[160];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
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

/* ---- output ---- */

static void on_poll(uv_poll_t *handle, int status, int events);

static void want_write(struct session *s, bool want)
{
    if (s->wants_write == want)
        return;
    s->wants_write = want;
    (void)uv_poll_start(&s->poll, want ? UV_READABLE | UV_WRITABLE : UV_READABLE, on_poll);
}

/* Returns what the socket took, -1 when the session broke. */
static ssize_t write_some(struct session *s, const struct iovec *iov, size_t n)
{
    ssize_t done;
    do
        done = sendmsg(s->fd, &(struct msghdr){.msg_iov = (struct iovec *)iov, .msg_iovlen = n},
                       MSG_NOSIGNAL | MSG_DONTWAIT);
    while (done < 0 && errno == EINTR);
    if (done >= 0)
        return done;
    if (errno == EAGAIN || errno == ENOBUFS)
        return 0;
    session_break(s, false, "the agent's socket: %s", strerror(errno));
    return -1;
}

static void write_outbox(struct session *s)
{
    while (buf_len(&s->outbox)) {
        struct iovec iov = {buf_data(&s->outbox), buf_len(&s->outbox)};
        ssize_t done = write_some(s, &iov, 1);
        if (done < 0)
            return;
        buf_consume(&s->outbox, (size_t)done);
        if ((size_t)done < iov.iov_len)
            break;
    }
    if (!buf_len(&s->outbox) && s->outbox.cap > OUTBOX_KEEP)
        buf_fini(&s->outbox);
    want_write(s, buf_len(&s->outbox) > 0);
    if (!list_empty(&s->starved) && buf_len(&s->outbox) < OUTBOX_ROOM)
        loop_later(s->loop, &s->room);
}

static void put_credits(struct session *s)
{
    struct list *it;
    while ((it = s->credits.next) != &s->credits) {
        list_remove(it);
        stream_put_credit(container_of(it, struct stream, credit_node), &s->outbox);
    }
}

static bool outbox_fits(struct session *s)
{
    if (!buf_error(&s->outbox))
        return true;
    session_break(s, true, "it reads nothing of %d MiB", OUTBOX_MAX >> 20);
    return false;
}

static void flush(struct session *s)
{
    if (!session_is_ready(s))
        return;
    put_credits(s);
    if (outbox_fits(s))
        write_outbox(s);
}

static void on_flush_job(struct loop_job *job)
{
    flush(container_of(job, struct session, flush));
}

void session_touch(struct session *s)
{
    if (outbox_fits(s) && session_is_ready(s))
        loop_before_sleep(s->loop, &s->flush);
}

static void on_room_job(struct loop_job *job)
{
    struct session *s = container_of(job, struct session, room);
    struct list now = LIST_INIT(now);
    while (!list_empty(&s->starved)) {
        struct list *it = s->starved.next;
        list_remove(it);
        list_append(&now, it);
    }
    while (!list_empty(&now)) {
        struct stream *st = container_of(now.next, struct stream, starved_node);
        list_remove(&st->starved_node);
        if (session_is_over(s) || st->closed)
            continue;
        if (st->send_credit && buf_len(&s->outbox) < OUTBOX_SOFT)
            st->ops->on_room(st->user);
        else
            list_append(&s->starved, &st->starved_node);
    }
}

size_t session_send_data(struct session *s, uint32_t stream, struct str bytes)
{
    size_t sent = 0;
    while (sent < bytes.n && session_is_ready(s) && buf_len(&s->outbox) < OUTBOX_SOFT) {
        struct str piece = str_n(bytes.p + sent, MIN(bytes.n - sent, (size_t)WIRE_PAYLOAD_MAX));
        uint8_t header[WIRE_HEADER_SIZE];
        wire_header_put(&(struct wire_frame){.size = (uint32_t)piece.n, .stream = stream, .type = WIRE_DATA}, header);
        size_t done = 0;
        if (piece.n >= DIRECT_MIN && !s->wants_write) {
            flush(s);
            if (!buf_len(&s->outbox) && session_is_ready(s)) {
                struct iovec iov[2] = {{header, sizeof(header)}, {(void *)piece.p, piece.n}};
                ssize_t n = write_some(s, iov, 2);
                if (n < 0)
                    break;
                done = (size_t)n;
            }
        }
        if (done < sizeof(header)) {
            (void)buf_append(&s->outbox, header + done, sizeof(header) - done);
            done = sizeof(header);
        }
        (void)buf_append_str(&s->outbox, str_sub(piece, done - sizeof(header)));
        sent += piece.n;
    }
    session_touch(s);
    return sent;
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

static void stream_arm(struct stream *st)
{
    if (st->timeout_ms && !st->closed)
        loop_alarm_set(st->session->loop, &st->alarm, clock_mono() + st->timeout_ms * USEC_PER_MS, on_stream_alarm);
}

int stream_open(struct session *s, struct buf *request, const struct stream_ops *ops, void *user, unsigned timeout_ms,
                struct stream **ret_stream, struct err *err)
{
    if (session_is_over(s))
        return err_set(err, ERR_UNAVAILABLE, "the sandbox is no longer reachable");
    if (buf_error(request))
        return err_set(err, ERR_INVALID_ARGUMENT, "the request is larger than %d KiB", WIRE_PAYLOAD_MAX / 1024);
    if (map_count(&s->streams) >= WIRE_STREAMS_MAX || s->last_id == UINT32_MAX || buf_len(&s->outbox) > OUTBOX_OPEN)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "too much is going on in this sandbox: try again later");
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
    put_credits(s);
    struct wire_frame f = {
        .size = (uint32_t)(buf_len(request) - WIRE_HEADER_SIZE), .stream = st->id, .type = WIRE_OPEN};
    wire_header_put(&f, (uint8_t *)buf_data(request));
    (void)buf_append_str(&s->outbox, buf_str(request));
    session_touch(s);
    stream_arm(st);
    *ret_stream = st;
    return 0;
}

static void stream_free(struct stream *st)
{
    loop_alarm_clear(st->session->loop, &st->alarm);
    list_remove(&st->credit_node);
    list_remove(&st->starved_node);
    mem_free(st);
}

/* ---- input ---- */

static void take_hello(struct session *s, const struct wire_frame *f, struct str payload)
{
    struct wire_reader r = wire_reader_of(payload);
    uint32_t version = wire_get_u32(&r);
    if (f->type != WIRE_HELLO || f->stream || f->flags || !wire_done(&r)) {
        session_lie(s, f->stream, "its first frame is not HELLO");
    } else if (version != WIRE_VERSION) {
        session_break(s, true, "it speaks version %u of the protocol, not %d", version, WIRE_VERSION);
    } else {
        s->ready = true;
        loop_alarm_clear(s->loop, &s->hello);
        session_touch(s);
        if (s->ops->on_ready)
            s->ops->on_ready(s->ctx);
    }
}

static void take_end(struct session *s, struct stream *st, struct str payload)
{
    struct str tail;
    struct err err;
    const char *lie = stream_check_end(st, payload, &tail, &err);
    if (lie) {
        session_lie(s, st->id, lie);
        return;
    }
    (void)map_del_u64(&s->streams, st->id);
    const struct stream_ops *ops = st->ops;
    void *user = st->user;
    bool closed = st->closed;
    /* Its user may look at the stream during on_end (stream_violation), but it is in no table any more. */
    st->ended = true;
    loop_alarm_clear(s->loop, &st->alarm);
    if (!closed)
        ops->on_end(user, tail, err.code ? &err : NULL);
    stream_free(st);
}

static void take_frame(struct session *s, const struct wire_frame *f, struct str payload)
{
    if (!s->ready) {
        take_hello(s, f, payload);
        return;
    }
    struct stream *st = map_get_u64(&s->streams, f->stream);
    if (!st) {
        session_break(s, true, "a frame of type %u for stream %u, which is not open", f->type, f->stream);
        return;
    }
    const char *lie = stream_check_frame(st, f, payload);
    if (lie) {
        session_lie(s, f->stream, lie);
        return;
    }
    if (f->type == WIRE_END) {
        take_end(s, st, payload);
        return;
    }
    if (!st->ops->long_lived)
        stream_arm(st);
    else if (st->replied)
        loop_alarm_clear(s->loop, &st->alarm);
    if (st->closed)
        return;
    switch (f->type) {
    case WIRE_REPLY:
        st->ops->on_reply(st->user, payload);
        break;
    case WIRE_DATA:
        if (payload.n)
            st->ops->on_data(st->user, f->flags, payload);
        break;
    case WIRE_EOF:
        st->ops->on_eof(st->user);
        break;
    case WIRE_CREDIT:
        if (!list_empty(&st->starved_node) && buf_len(&s->outbox) < OUTBOX_SOFT) {
            list_remove(&st->starved_node);
            st->ops->on_room(st->user);
        }
        break;
    }
}

/* DATA that need not come whole: checked once, by its header. */
static bool begin_data(struct session *s, const struct wire_frame *f)
{
    struct stream *st = f->type == WIRE_DATA && s->ready ? map_get_u64(&s->streams, f->stream) : NULL;
    if (!st || st->ops->whole)
        return false;
    const char *lie = stream_check_frame(st, f, STR_NULL);
    if (lie) {
        session_lie(s, f->stream, lie);
        return true;
    }
    if (!st->ops->long_lived)
        stream_arm(st);
    s->data = f->size ? st : NULL;
    s->data_flags = f->flags;
    s->data_left = f->size;
    return true;
}

static size_t take_piece(struct session *s, const char *p, size_t n)
{
    struct stream *st = s->data;
    n = MIN(n, s->data_left);
    s->data_left -= n;
    if (!s->data_left)
        s->data = NULL;
    if (!st->closed)
        st->ops->on_data(st->user, s->data_flags, str_n(p, n));
    return n;
}

/* Returns how many bytes were used; 0 only for n 0. */
static size_t take(struct session *s, const char *p, size_t n)
{
    if (s->data_left)
        return take_piece(s, p, n);
    struct wire_frame f;
    size_t have = buf_len(&s->partial);
    if (have == 0 && n >= WIRE_HEADER_SIZE) {
        if (wire_header_get((const uint8_t *)p, &f) < 0) {
            session_lie(s, 0, "not a frame");
            return n;
        }
        if (begin_data(s, &f))
            return WIRE_HEADER_SIZE;
        if (n - WIRE_HEADER_SIZE >= f.size) {
            take_frame(s, &f, str_n(p + WIRE_HEADER_SIZE, f.size));
            return WIRE_HEADER_SIZE + f.size;
        }
    }
    size_t want = WIRE_HEADER_SIZE;
    if (have >= WIRE_HEADER_SIZE) {
        (void)!wire_header_get((const uint8_t *)buf_data(&s->partial), &f);
        want += f.size;
    }
    size_t more = MIN(want - have, n);
    if (buf_append(&s->partial, p, more) < 0) {
        session_break(s, false, "out of memory");
        return n;
    }
    if (have + more < want)
        return more;
    if (want == WIRE_HEADER_SIZE) {
        if (wire_header_get((const uint8_t *)buf_data(&s->partial), &f) < 0) {
            session_lie(s, 0, "not a frame");
            return n;
        }
        if (begin_data(s, &f))
            buf_clear(&s->partial);
        if (f.size || !buf_len(&s->partial))
            return more;
    }
    /* Out of the session, so that a callback finds it in order. */
    struct buf whole = s->partial;
    buf_init(&s->partial, whole.max);
    take_frame(s, &f, str_sub(buf_str(&whole), WIRE_HEADER_SIZE));
    buf_fini(&whole);
    return more;
}

bool session_input(struct session *s, const char *p, size_t n)
{
    while (n && !session_is_over(s)) {
        size_t used = take(s, p, n);
        p += used;
        n -= used;
    }
    return !session_is_over(s);
}

static void on_poll(uv_poll_t *handle, int status, int events)
{
    struct session *s = handle->data;
    if ((events & UV_WRITABLE) && !session_is_over(s))
        write_outbox(s);
    if (status == 0 && !(events & UV_READABLE))
        return;
    for (int i = 0; i < READS_PER_TURN && !session_is_over(s); i++) {
        char *to = loop_read_buffer(s->loop);
        ssize_t n = recv(s->fd, to, LOOP_READ_SIZE, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            session_break(s, false, n ? "the agent's socket failed" : "the agent is gone");
            return;
        }
        if (!session_input(s, to, (size_t)n) || n < LOOP_READ_SIZE / 2)
            return;
    }
}

/* ---- life ---- */

static void on_hello_alarm(struct loop_alarm *alarm)
{
    session_break(container_of(alarm, struct session, hello), false, "the agent did not answer within %d s",
                  HELLO_MS / 1000);
}

static void on_closed(uv_handle_t *handle)
{
    mem_free(handle->data);
}

static void tear_down(struct session *s)
{
    assert(s->closing);
    loop_job_cancel(&s->closed_job);
    loop_job_cancel(&s->broken_job);
    /* Nobody can open a stream any more; on_end may close others. */
    size_t it = 0;
    for (struct stream *st; (st = map_next(&s->streams, &it));) {
        loop_alarm_clear(s->loop, &st->alarm);
        if (!st->closed) {
            st->closed = true;
            st->ops->on_end(st->user, STR_NULL, &s->why);
        }
    }
    it = 0;
    for (struct stream *st; (st = map_next(&s->streams, &it));)
        stream_free(st);
    map_fini(&s->streams);
    buf_fini(&s->outbox);
    buf_fini(&s->partial);
    if (s->fd < 0) {
        mem_free(s);
        return;
    }
    uv_close((uv_handle_t *)&s->poll, on_closed);
    (void)fd_close(s->fd);
}

static void on_closed_job(struct loop_job *job)
{
    tear_down(container_of(job, struct session, closed_job));
}

static void close_with(struct session *s, const struct err *why)
{
    stop_io(s);
    s->why = *why;
    s->closing = true;
}

void session_close(struct session *s, const struct err *why)
{
    assert(!s->closing);
    close_with(s, why);
    loop_later(s->loop, &s->closed_job);
}

void session_drop(struct session *s, const struct err *why)
{
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
    buf_init(&s->outbox, OUTBOX_MAX);
    buf_init(&s->partial, WIRE_HEADER_SIZE + WIRE_PAYLOAD_MAX);
    list_init(&s->credits);
    list_init(&s->starved);
    loop_job_init(&s->flush, on_flush_job);
    loop_job_init(&s->room, on_room_job);
    loop_job_init(&s->broken_job, on_broken_job);
    loop_job_init(&s->closed_job, on_closed_job);
    return s;
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
    r = uv_poll_start(&s->poll, UV_READABLE, on_poll);
    if (r < 0)
        return err_errno(err, r, "watch the agent's socket");
    loop_alarm_set(s->loop, &s->hello, clock_mono() + HELLO_MS * USEC_PER_MS, on_hello_alarm);
    return 0;
}
