/* SPDX-License-Identifier: Apache-2.0 */
/* Input of a session: bytes to frames to checked frames to their stream's user. */
#include "sandbox/exec/stream.h"

#include <sys/socket.h>

enum {
    READS_PER_TURN = 4, /* then the others' turn, */
    TURN_USEC = 500,    /* or when they took that long */
    USELESS_MAX = 100000,
};

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

static const char *session_in_check(struct session *s, struct stream *st, const struct wire_frame *f,
                                    struct str payload)
{
    const char *lie = stream_check_frame(st, f, payload);
    return !lie && s->useless > USELESS_MAX ? "a flood of frames that say nothing" : lie;
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
    const char *lie = session_in_check(s, st, f, payload);
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
        if (!list_empty(&st->starved_node) && session_has_room(s)) {
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
    const char *lie = session_in_check(s, st, f, STR_NULL);
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
static size_t session_in_take(struct session *s, const char *p, size_t n)
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
        size_t used = session_in_take(s, p, n);
        p += used;
        n -= used;
    }
    return !session_is_over(s);
}

void session_on_poll(uv_poll_t *handle, int status, int events)
{
    struct session *s = handle->data;
    if ((events & UV_WRITABLE) && !session_is_over(s))
        session_write(s);
    if (status == 0 && !(events & UV_READABLE))
        return;
    usec_t until = clock_mono() + TURN_USEC;
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
        if (!session_input(s, to, (size_t)n) || n < LOOP_READ_SIZE / 2 || clock_mono() > until)
            return;
    }
}
