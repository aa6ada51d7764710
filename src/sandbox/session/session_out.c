/* SPDX-License-Identifier: Apache-2.0 */
/* Output of a session: one write per turn, large data at once, and who waits for room. */
#include "sandbox/exec/stream.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum {
    OUTBOX_SOFT = 1 << 20,
    OUTBOX_ROOM = OUTBOX_SOFT / 2, /* streams that wait are told below this */
    OUTBOX_KEEP = 16 * 1024,       /* an empty outbox keeps at most this much memory */
    DIRECT_MIN = 4096,
};

static void want_write(struct session *s, bool want)
{
    if (s->wants_write == want)
        return;
    s->wants_write = want;
    (void)uv_poll_start(&s->poll, want ? UV_READABLE | UV_WRITABLE : UV_READABLE, session_on_poll);
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

void session_write(struct session *s)
{
    while (buf_len(&s->outbox) && !s->is_held) {
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
    want_write(s, buf_len(&s->outbox) > 0 && !s->is_held);
    if (!list_empty(&s->starved) && buf_len(&s->outbox) < OUTBOX_ROOM)
        loop_later(s->loop, &s->room);
}

void session_put_credits(struct session *s)
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
    session_break(s, true, "it reads nothing of %d MiB", SESSION_OUTBOX_MAX >> 20);
    return false;
}

static void session_out_flush(struct session *s)
{
    if (!session_is_ready(s))
        return;
    session_put_credits(s);
    if (outbox_fits(s))
        session_write(s);
}

void session_flush_job(struct loop_job *job)
{
    session_out_flush(container_of(job, struct session, flush));
}

void session_send_now(struct session *s)
{
    if (!s->wants_write)
        session_out_flush(s);
    session_touch(s);
}

void session_touch(struct session *s)
{
    if (outbox_fits(s) && session_is_ready(s))
        loop_before_sleep(s->loop, &s->flush);
}

void session_hold(struct session *s, bool holds)
{
    s->is_held = holds;
    if (!holds)
        session_touch(s);
}

bool session_has_room(const struct session *s)
{
    return buf_len(&s->outbox) < OUTBOX_SOFT;
}

void session_room_job(struct loop_job *job)
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
        if (st->send_credit && session_has_room(s))
            st->ops->on_room(st->user);
        else
            list_append(&s->starved, &st->starved_node);
    }
}

size_t session_send_data(struct session *s, uint32_t stream, struct str bytes)
{
    size_t sent = 0;
    while (sent < bytes.n && session_is_ready(s) && session_has_room(s)) {
        struct str piece = str_n(bytes.p + sent, MIN(bytes.n - sent, (size_t)WIRE_PAYLOAD_MAX));
        uint8_t header[WIRE_HEADER_SIZE];
        wire_header_put(&(struct wire_frame){.size = (uint32_t)piece.n, .stream = stream, .type = WIRE_DATA}, header);
        size_t done = 0;
        if (piece.n >= DIRECT_MIN && !s->wants_write && !s->is_held) {
            session_out_flush(s);
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
