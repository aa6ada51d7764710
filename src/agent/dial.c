/* SPDX-License-Identifier: Apache-2.0 */
/* DIAL: a connection to a port inside, as bytes both ways, either side of which may end its half first; or only the
 * wait until somebody listens there. */
#include "agent/agent.h"
#include "agent/verb.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { CONNECT_TIMEOUT = 5 * 1000 * 1000, CONNECT_AGAIN = 50 * 1000 };

struct dial {
    struct agent_stream stream;
    struct loop_io io;
    struct loop_timer timer; /* bounds the connecting; awaits: until it is tried again */
    uint16_t port;
    bool awaits, v6, connected;
    bool wants_in;  /* epoll shall say when the port has sent something */
    bool in_ended;  /* the port sends no more */
    bool out_ended; /* the port gets no more: half-closed, or it does not listen any more */
    struct buf out; /* the host's bytes that the socket did not take yet */
};

static struct dial *dial_of(struct agent_stream *s)
{
    return container_of(s, struct dial, stream);
}

static struct agent_loop *dial_loop(struct dial *d)
{
    return &d->stream.session->agent->loop;
}

static void wait_more(struct dial *d)
{
    (void)loop_set(dial_loop(d), &d->io, (d->wants_in ? EPOLLIN : 0u) | (buf_len(&d->out) ? EPOLLOUT : 0u));
}

/* True when the stream has ended. */
static bool end_when_both_did(struct dial *d)
{
    if (!d->in_ended || !d->out_ended)
        return false;
    stream_end(&d->stream);
    return true;
}

static int start_connect(struct dial *d)
{
    struct sockaddr_in v4 = {
        .sin_family = AF_INET, .sin_port = htons(d->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(d->port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int one = 1;
    d->io.fd = socket(d->v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (d->io.fd < 0)
        return -errno;
    (void)setsockopt(d->io.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    int r = d->v6 ? connect(d->io.fd, (struct sockaddr *)&v6, sizeof(v6))
                  : connect(d->io.fd, (struct sockaddr *)&v4, sizeof(v4));
    if (r < 0 && errno != EINPROGRESS)
        return -errno;
    return loop_set(dial_loop(d), &d->io, EPOLLOUT);
}

/* This address is not it: the next one, or the end, or all of it again later. */
static void connect_failed(struct dial *d, int errnum)
{
    loop_close(dial_loop(d), &d->io);
    if (!d->v6) {
        d->v6 = true;
        int r = start_connect(d);
        if (r == 0)
            return;
        loop_close(dial_loop(d), &d->io);
    }
    if (d->awaits)
        loop_timer_set(dial_loop(d), &d->timer, CONNECT_AGAIN);
    else
        stream_failf(&d->stream, ERR_UNAVAILABLE, "error connecting to port %u: %s", d->port, errno_text(errnum));
}

static void dial_begin(struct dial *d)
{
    d->v6 = false;
    loop_timer_set(dial_loop(d), &d->timer, CONNECT_TIMEOUT);
    int e = start_connect(d);
    if (e < 0)
        connect_failed(d, -e);
}

static void dial_timer(struct loop_timer *t)
{
    struct dial *d = container_of(t, struct dial, timer);
    loop_close(dial_loop(d), &d->io);
    if (d->awaits)
        dial_begin(d);
    else
        stream_failf(&d->stream, ERR_UNAVAILABLE, "error connecting to port %u: %s", d->port, errno_text(ETIMEDOUT));
}

/* The host's bytes to the socket. */
static void write_out(struct dial *d)
{
    while (!d->out_ended && buf_len(&d->out)) {
        ssize_t r = send(d->io.fd, buf_data(&d->out), buf_len(&d->out), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0 && errno == EAGAIN)
            break;
        if (r < 0) {
            d->out_ended = true;
            break;
        }
        buf_consume(&d->out, (size_t)r);
        stream_consumed(&d->stream, (size_t)r);
    }
    if (d->out_ended) {
        /* What is not wanted any more is taken all the same, so that the host is not stuck with it. */
        stream_consumed(&d->stream, buf_len(&d->out));
        buf_clear(&d->out);
    } else if (d->stream.got_eof && buf_len(&d->out) == 0) {
        (void)shutdown(d->io.fd, SHUT_WR);
        d->out_ended = true;
    }
    if (!end_when_both_did(d))
        wait_more(d);
}

static void dial_ready(struct loop_io *io, uint32_t events)
{
    struct dial *d = container_of(io, struct dial, io);
    if (!d->connected) {
        int why = 0;
        socklen_t n = sizeof(why);
        if (getsockopt(io->fd, SOL_SOCKET, SO_ERROR, &why, &n) < 0)
            why = errno;
        if (why) {
            connect_failed(d, why);
            return;
        }
        loop_timer_clear(&d->timer);
        if (d->awaits) {
            stream_end(&d->stream);
            return;
        }
        d->connected = d->wants_in = true;
        stream_reply(&d->stream);
        write_out(d); /* the host may have said all that it has to say */
        return;
    }
    if (events & ~(uint32_t)EPOLLOUT && d->wants_in) {
        d->wants_in = false;
        stream_ready(&d->stream);
    }
    write_out(d);
}

static void dial_open(struct agent_stream *s, struct wire_reader *r)
{
    struct dial *d = dial_of(s);
    d->io = LOOP_IO(dial_ready);
    d->port = wire_get_u16(r);
    d->awaits = r->n && wire_get_u8(r) == WIRE_DIAL_AWAIT;
    buf_init(&d->out, WIRE_WINDOW);
    loop_timer_init(&d->timer, dial_timer);
    if (!wire_done(r) || d->port == 0) {
        stream_malformed(s);
        return;
    }
    if (d->port == s->session->agent->answers.port) {
        stream_failf(s, ERR_UNAVAILABLE, "port %u is for programs inside alone", d->port);
        return;
    }
    dial_begin(d);
}

static void dial_data(struct agent_stream *s, struct str bytes)
{
    struct dial *d = dial_of(s);
    (void)buf_append_str(&d->out, bytes); /* fits: no more than the window is outstanding */
    if (d->connected)
        write_out(d);
}

static void dial_eof(struct agent_stream *s)
{
    if (dial_of(s)->connected)
        write_out(dial_of(s));
}

static void dial_credit(struct agent_stream *s, uint32_t bytes UNUSED, bool delivered UNUSED)
{
    struct dial *d = dial_of(s);
    if (d->connected && !d->wants_in && !d->in_ended)
        stream_ready(s);
}

static bool dial_produce(struct agent_stream *s)
{
    struct dial *d = dial_of(s);
    size_t room = stream_room(s);
    if (d->in_ended || d->wants_in || room == 0)
        return false;
    char *to = stream_scratch(s);
    ssize_t n = recv(d->io.fd, to, room, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR)
        return true;
    if (n < 0 && errno == EAGAIN) {
        d->wants_in = true;
        wait_more(d);
        return false;
    }
    if (n < 0) {
        stream_failf(s, ERR_UNAVAILABLE, "error reading from port %u: %s", d->port, errno_text(errno));
        return false;
    }
    if (n == 0) {
        d->in_ended = true;
        stream_eof(s);
        (void)end_when_both_did(d);
        return false;
    }
    stream_send_bytes(s, to, (size_t)n);
    return true;
}

static void dial_fini(struct agent_stream *s)
{
    struct dial *d = dial_of(s);
    loop_timer_clear(&d->timer);
    loop_close(dial_loop(d), &d->io);
    buf_fini(&d->out);
}

const struct verb verb_dial = {
    .size = sizeof(struct dial),
    .open = dial_open,
    .data = dial_data,
    .eof = dial_eof,
    .credit = dial_credit,
    .produce = dial_produce,
    .fini = dial_fini,
};
