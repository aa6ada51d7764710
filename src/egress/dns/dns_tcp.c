/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DNS over TCP: queries one after the other, answers as they come, in any order (RFC 7766).
 *
 *  1. A connection holds at most one query that is not whole, DNS_TCP_ASKS_MAX that are being resolved, and OUT_MAX
 *     bytes of answers; while it can't take the answer to one more query it is not read.
 *  2. It ends DNS_SERVER_TCP_IDLE_MS after the last whole query came in or the last answer went out: a byte now and
 *     then keeps nothing open.
 *  3. The memory of one that was closed stays until libuv let go of its handle; `closed` is all that is looked at then.
 */
#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "egress/dns/dns_server_internal.h"

#include <sys/socket.h>

enum { DNS_TCP_ASKS_MAX = 16, OUT_MAX = 16 * 1024, ANSWER_MAX = 2 + DNS_MESSAGE_MAX, ACCEPT_MAX = 8, READS_MAX = 4 };

struct dns_conn {
    struct dns_server *s;
    struct list node; /* in s->conns */
    int fd;           /* owned */
    uv_poll_t poll;
    bool closed, ended; /* ended: the client sends no more */
    struct list asks;
    usec_t moved_at;
    struct buf out;
    size_t n_in;
    char in[2 + DNS_QUERY_MAX];
};

static void dns_tcp_on_closed(uv_handle_t *handle)
{
    mem_free(handle->data);
}

static void conn_close(struct dns_conn *c)
{
    struct dns_ask *a;
    if (c->closed)
        return;
    c->closed = true;
    while ((a = LIST_FIRST(struct dns_ask, &c->asks, of_conn)))
        dns_ask_free(a);
    list_remove(&c->node);
    c->s->n_conns--;
    dns_server_set_timer(c->s);
    buf_fini(&c->out);
    uv_close((uv_handle_t *)&c->poll, dns_tcp_on_closed);
    c->fd = fd_close(c->fd);
}

/* Asks plus the answers that are waiting: all of them together must have room. */
static bool can_take(const struct dns_conn *c)
{
    size_t n = 0;
    for (const struct list *l = c->asks.next; l != &c->asks; l = l->next)
        n++;
    return n < DNS_TCP_ASKS_MAX && buf_len(&c->out) + (n + 1) * ANSWER_MAX <= OUT_MAX;
}

static void judge_all(struct dns_conn *c)
{
    struct str message;
    size_t used = 0;
    int r = 0;
    while (!c->s->paused && can_take(c) && (r = dns_frame_get(str_n(c->in + used, c->n_in - used), &message)) == 1) {
        const struct dns_origin from = {.conn = c};
        used += 2 + message.n;
        c->moved_at = c->s->now();
        dns_server_was_read(c->s);
        dns_judge(c->s, message, &from);
    }
    c->n_in -= used;
    memmove(c->in, c->in + used, c->n_in);
    if (r < 0)
        conn_close(c);
}

static void write_out(struct dns_conn *c)
{
    while (buf_len(&c->out)) {
        ssize_t n = send(c->fd, buf_data(&c->out), buf_len(&c->out), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0) {
            conn_close(c);
            return;
        }
        buf_consume(&c->out, (size_t)n);
        c->moved_at = c->s->now();
    }
}

static void read_in(struct dns_conn *c)
{
    for (int i = 0; i < READS_MAX && !c->closed && !c->s->paused && can_take(c) && c->n_in < sizeof(c->in); i++) {
        ssize_t n = recv(c->fd, c->in + c->n_in, sizeof(c->in) - c->n_in, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0) {
            conn_close(c);
            return;
        }
        c->ended = n == 0;
        if (c->ended)
            return;
        c->n_in += (size_t)n;
        judge_all(c);
    }
}

static void dns_tcp_on_event(uv_poll_t *poll, int status, int events);

static void dns_tcp_watch(struct dns_conn *c)
{
    bool reads = !c->ended && !c->s->paused && can_take(c) && c->n_in < sizeof(c->in);
    (void)uv_poll_start(&c->poll, (reads ? UV_READABLE : 0) | (buf_len(&c->out) ? UV_WRITABLE : 0), dns_tcp_on_event);
}

void dns_conn_settle(struct dns_conn *c)
{
    size_t before = SIZE_MAX;
    while (!c->closed && before != c->n_in) {
        before = c->n_in;
        judge_all(c);
        if (!c->closed)
            write_out(c);
    }
    if (c->closed)
        return;
    if (c->ended && !c->s->paused && list_empty(&c->asks) && !buf_len(&c->out))
        conn_close(c);
    else
        dns_tcp_watch(c);
}

static void dns_tcp_on_event(uv_poll_t *poll, int status, int events)
{
    struct dns_conn *c = poll->data;
    if (status < 0)
        conn_close(c);
    else if (events & UV_READABLE)
        read_in(c);
    dns_conn_settle(c);
}

void dns_conn_send(struct dns_conn *c, const void *message, size_t n)
{
    char size[2] = {(char)(n >> 8), (char)n};
    buf_append(&c->out, size, sizeof(size));
    if (buf_append(&c->out, message, n) < 0) /* can_take() keeps room */
        abort();
}

struct list *dns_conn_asks(struct dns_conn *c)
{
    return &c->asks;
}

static void conn_new(struct dns_server *s, int fd)
{
    struct dns_conn *c = mem_new(struct dns_conn);
    if (uv_poll_init(s->loop, &c->poll, fd) < 0) {
        (void)fd_close(fd);
        mem_free(c);
        return;
    }
    c->s = s;
    c->fd = fd;
    c->poll.data = c;
    c->moved_at = s->now();
    buf_init(&c->out, OUT_MAX);
    list_init(&c->asks);
    list_append(&s->conns, &c->node);
    s->n_conns++;
    dns_server_set_timer(s);
    dns_conn_settle(c);
}

void dns_tcp_accept(struct dns_server *s)
{
    for (int i = 0; i < ACCEPT_MAX && !s->paused; i++) {
        /* cppcheck-suppress nullPointer ; both may be, says accept(2) */
        int fd = accept4(s->tcp_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && errno == EAGAIN)
            return;
        dns_server_was_read(s); /* also what failed: out of descriptors, it is ready again at once */
        if (fd < 0)
            return;
        if (s->n_conns < DNS_SERVER_TCP_MAX)
            conn_new(s, fd);
        else
            (void)fd_close(fd);
    }
}

void dns_tcp_pause(struct dns_server *s)
{
    LIST_FOREACH (struct dns_conn, c, &s->conns, node)
        dns_tcp_watch(c);
}

void dns_tcp_resume(struct dns_server *s)
{
    LIST_FOREACH (struct dns_conn, c, &s->conns, node)
        dns_conn_settle(c);
}

void dns_tcp_expire(struct dns_server *s)
{
    usec_t now = s->now();
    LIST_FOREACH (struct dns_conn, c, &s->conns, node)
        if (now - c->moved_at >= DNS_SERVER_TCP_IDLE_MS * USEC_PER_MS)
            conn_close(c);
}

void dns_tcp_end(struct dns_server *s)
{
    struct dns_conn *c;
    while ((c = LIST_FIRST(struct dns_conn, &s->conns, node)))
        conn_close(c);
}
