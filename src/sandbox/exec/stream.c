/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/exec/stream.h"

enum { PLAIN_CREDIT_MIN = WIRE_WINDOW / 4 };

/* ---- what the agent says ---- */

static const char *check_data(struct stream *st, const struct wire_frame *f)
{
    if (!st->ops->on_data)
        return "DATA on a verb that has none";
    if (st->ops->on_reply && !st->replied)
        return "DATA before REPLY";
    if (st->agent_eof)
        return "DATA after EOF";
    if (f->flags > st->ops->flags_max)
        return "unknown flags";
    if (f->size > st->recv_credit)
        return "DATA beyond its credit";
    st->session->useless += f->size == 0;
    st->recv_credit -= f->size;
    st->held += f->size;
    return NULL;
}

static const char *check_credit(struct stream *st, const struct wire_frame *f, struct str payload)
{
    struct wire_reader r = wire_reader_of(payload);
    uint32_t n = wire_get_u32(&r);
    if (f->flags || !wire_done(&r))
        return "malformed CREDIT";
    if (!st->ops->on_room || n > WIRE_WINDOW - st->send_credit)
        return "CREDIT for more than it was sent";
    st->session->useless += n == 0;
    st->send_credit += n;
    return NULL;
}

const char *stream_check_frame(struct stream *st, const struct wire_frame *f, struct str payload)
{
    switch (f->type) {
    case WIRE_REPLY:
        if (!st->ops->on_reply)
            return "REPLY on a verb that has none";
        if (st->replied)
            return "a second REPLY";
        st->replied = true;
        return f->flags ? "unknown flags" : NULL;
    case WIRE_DATA:
        return check_data(st, f);
    case WIRE_CREDIT:
        return check_credit(st, f, payload);
    case WIRE_EOF:
        if (!st->ops->on_eof || !st->replied || f->size || f->flags)
            return "EOF where it can't be";
        if (st->agent_eof)
            return "a second EOF";
        st->agent_eof = true;
        return NULL;
    case WIRE_END:
        return f->flags ? "unknown flags" : NULL;
    default:
        return "a frame that only the host sends";
    }
}

const char *stream_check_end(struct stream *st, struct str payload, struct str *ret_tail, struct err *ret_err)
{
    struct wire_reader r = wire_reader_of(payload);
    uint16_t code = wire_get_u16(&r);
    struct str message = wire_get_str(&r);
    if (r.bad)
        return "malformed END";
    struct err err = {0};
    if (!err_unpack(code, &err) || (code && !err.code))
        return "an unknown error code";
    if (code && r.n)
        return "an error with a tail";
    if (!code && st->ops->on_reply && !st->replied && !st->closed)
        return "success without REPLY";
    *ret_tail = str_n(r.p, r.n);
    *ret_err = err;
    if (code)
        text_clean(message, ret_err->msg, sizeof(ret_err->msg));
    return NULL;
}

bool stream_was_answered(const struct stream *st)
{
    return st && st->ended && !st->lied;
}

void stream_violation(struct stream *st, const char *what)
{
    st->lied = true;
    session_lie(st->session, st->id, what);
}

/* ---- what we say ---- */

static void put_credit(struct stream *st, struct buf *out, uint32_t *due, uint8_t flags)
{
    if (!*due)
        return;
    size_t at = wire_begin(out, WIRE_CREDIT, flags, st->id);
    wire_put_u32(out, *due);
    wire_end(out, at);
    st->recv_credit += *due;
    *due = 0;
}

void stream_put_credit(struct stream *st, struct buf *out)
{
    /* Delivered bytes come first in the stream: whoever stops delivering never begins again. */
    put_credit(st, out, &st->due_delivered, WIRE_CREDIT_DELIVERED);
    put_credit(st, out, &st->due_plain, 0);
}

void stream_grant(struct stream *st, size_t bytes, bool delivered)
{
    if (st->closed || st->ended)
        return;
    assert(bytes <= st->held);
    st->held -= (uint32_t)bytes;
    *(delivered ? &st->due_delivered : &st->due_plain) += (uint32_t)bytes;
    if (!st->due_delivered && st->due_plain < PLAIN_CREDIT_MIN)
        return;
    if (list_empty(&st->credit_node))
        list_append(&st->session->credits, &st->credit_node);
    session_touch(st->session);
}

size_t stream_send(struct stream *st, struct str bytes)
{
    if (st->closed || st->ended || session_is_over(st->session))
        return 0;
    assert(st->ops->on_room && !st->host_eof);
    size_t n = session_send_data(st->session, st->id, str_n(bytes.p, MIN(bytes.n, (size_t)st->send_credit)));
    st->send_credit -= (uint32_t)n;
    if (n < bytes.n && list_empty(&st->starved_node))
        list_append(&st->session->starved, &st->starved_node);
    return n;
}

static void send_empty(struct stream *st, enum wire_type type)
{
    struct session *s = st->session;
    if (session_is_over(s))
        return;
    wire_end(&s->outbox, wire_begin(&s->outbox, (uint8_t)type, 0, st->id));
    session_touch(s);
}

void stream_eof(struct stream *st)
{
    if (st->closed || st->ended || st->host_eof)
        return;
    st->host_eof = true;
    send_empty(st, WIRE_EOF);
}

void stream_close(struct stream *st)
{
    if (!st || st->closed)
        return;
    st->closed = true;
    if (st->ended)
        return;
    loop_alarm_clear(st->session->loop, &st->alarm);
    list_remove(&st->starved_node);
    st->user = NULL;
    list_remove(&st->credit_node);
    if (!session_is_over(st->session))
        stream_put_credit(st, &st->session->outbox); /* behind CLOSE nobody would count it */
    send_empty(st, WIRE_CLOSE);
}

/* ---- text of a sandbox ---- */

static size_t char_len(struct str s)
{
    unsigned char c = (unsigned char)s.p[0];
    size_t n = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 0;
    return n && n <= s.n && str_is_utf8(str_n(s.p, n)) ? n : 0;
}

void text_clean(struct str s, char *ret_text, size_t size)
{
    size_t at = 0;
    while (s.n) {
        size_t n = char_len(s);
        bool bad = n == 0 || (n == 1 && ((unsigned char)s.p[0] < 0x20 || s.p[0] == 0x7f));
        if (at + MAX(n, (size_t)1) >= size)
            break;
        if (bad)
            ret_text[at++] = '?';
        else
            for (size_t i = 0; i < n; i++)
                ret_text[at++] = s.p[i];
        s = str_sub(s, MAX(n, (size_t)1));
    }
    ret_text[at] = 0;
}
