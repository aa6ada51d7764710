/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation.
 *
 *  1. The poll handle is level-triggered and changing what it waits for costs two system calls. So it is changed late:
 *     what fires although nobody waits for it is switched off then, and an owner that always reads to the end never
 *     causes a change.
 *  2. A connection that was reset still holds what came before. A write that fails therefore breaks only the writing;
 *     the side fails when reading has come to the end, whether the kernel calls that end a reset or, having told the
 *     error to the writer already, an end of file.
 */
#include "egress/flow/side_tcp.h"
#include "base/fd.h"
#include "base/mem.h"
#include "egress/flow/side_internal.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

enum { KEEP_IDLE_S = 60, KEEP_INTERVAL_S = 15, KEEP_COUNT = 4 };

struct tcp {
    struct side side;
    uv_poll_t poll;
    int fd;          /* owned; -1: there was none to be had */
    int armed;       /* what poll waits for */
    int write_error; /* invariant 2 */
    unsigned limit_ms;
    char peer[INET6_ADDRSTRLEN + 8]; /* of connect: "1.2.3.4:443", "[::1]:443" */
};

static const struct side_kind tcp_kind;
static void side_tcp_on_poll(uv_poll_t *p, int status, int events);

static struct tcp *tcp_of(struct side *s)
{
    assert(s->kind == &tcp_kind);
    return container_of(s, struct tcp, side);
}

static void side_tcp_arm(struct tcp *t, int events)
{
    if (events == t->armed || t->fd < 0)
        return;
    t->armed = events;
    if (events)
        (void)uv_poll_start(&t->poll, events, side_tcp_on_poll);
    else
        (void)uv_poll_stop(&t->poll);
}

static int wanted(const struct tcp *t)
{
    const struct side *s = &t->side;
    if (s->failure)
        return 0;
    if (!s->ready)
        return UV_WRITABLE;
    if (!s->ops)
        return 0;
    return (s->want_read && !s->ended ? UV_READABLE : 0) | (s->want_write && !t->write_error ? UV_WRITABLE : 0);
}

static void tcp_watch(struct side *s)
{
    struct tcp *t = tcp_of(s);
    if (s->failure)
        side_tcp_arm(t, 0);
    else
        side_tcp_arm(t, wanted(t) | t->armed); /* invariant 1 */
}

static void fail_connect(struct tcp *t, int errnum)
{
    struct err err;
    (void)err_errno(&err, errnum, "connect to %s", t->peer);
    side_fail(&t->side, &err);
}

static void side_tcp_on_limit(uv_timer_t *timer)
{
    struct tcp *t = tcp_of(timer->data);
    struct err err;
    (void)err_set(&err, ERR_DEADLINE_EXCEEDED, "connect to %s: no answer within %u ms", t->peer, t->limit_ms);
    err.errnum = ETIMEDOUT;
    side_fail(&t->side, &err);
}

static void finish_connect(struct tcp *t)
{
    int error = 0;
    socklen_t n = sizeof(error);
    if (getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
        error = errno;
    if (error == EINPROGRESS)
        return;
    if (error)
        fail_connect(t, error);
    else
        side_become_ready(&t->side);
}

/* Options that a unix socket lacks are none of our business. */
static void set_option(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value, sizeof(value));
}

static void watch_peer(int fd)
{
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEP_INTERVAL_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEP_COUNT);
}

static void side_tcp_on_poll(uv_poll_t *p, int status, int events)
{
    struct side *s = p->data;
    struct tcp *t = tcp_of(s);
    if (status < 0) { /* libuv has stopped the handle: an error waits for whoever reads or writes next */
        t->armed = 0;
        events = UV_READABLE | UV_WRITABLE;
    }
    if (!s->ready) {
        finish_connect(t);
        if (s->closed)
            return;
        side_tcp_arm(t, wanted(t));
        watch_peer(t->fd); /* now that the first bytes are on their way */
        return;
    }
    if (events & UV_READABLE)
        side_tell_readable(s);
    if (events & UV_WRITABLE)
        side_tell_writable(s);
    if (s->closed)
        return;
    /* Only what fired is switched off: invariant 1. */
    side_tcp_arm(t, wanted(t) | (t->armed & ~events & (s->failure ? 0 : -1)));
}

static ssize_t tcp_failed(struct tcp *t, int errnum, const char *what)
{
    side_fail_errno(&t->side, errnum, what);
    return -errnum;
}

/* What reading gave, n or -1 with errno, judged by invariant 2. */
static ssize_t judge_read(struct tcp *t, ssize_t n)
{
    if (n > 0)
        return n;
    if (n == 0)
        return t->write_error ? tcp_failed(t, t->write_error, "write") : 0;
    if (errno == EAGAIN || errno == EINTR)
        return -EAGAIN;
    return tcp_failed(t, errno, "read");
}

static ssize_t judge_write(struct tcp *t, ssize_t n)
{
    if (n >= 0)
        return n;
    int errnum = errno;
    if (errnum == EAGAIN || errnum == EINTR)
        return -EAGAIN;
    t->write_error = errnum;
    if (t->side.ended)
        return tcp_failed(t, errnum, "write");
    return -errnum;
}

static ssize_t tcp_read(struct side *s, void *to, size_t room)
{
    struct tcp *t = tcp_of(s);
    return judge_read(t, recv(t->fd, to, room, 0));
}

static ssize_t tcp_write(struct side *s, const void *from, size_t n)
{
    struct tcp *t = tcp_of(s);
    if (t->write_error)
        return -t->write_error;
    return judge_write(t, send(t->fd, from, n, MSG_NOSIGNAL));
}

static void tcp_shut(struct side *s)
{
    (void)shutdown(tcp_of(s)->fd, SHUT_WR);
}

static bool tcp_pending(const struct side *s UNUSED)
{
    return false;
}

static bool tcp_flushed(const struct side *s UNUSED)
{
    return true;
}

static void tcp_close(struct side *s, bool abandon)
{
    struct tcp *t = tcp_of(s);
    if (t->fd < 0)
        return;
    side_close_handle(s, (uv_handle_t *)&t->poll);
    if (abandon)
        (void)setsockopt(t->fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    (void)fd_close(t->fd);
    t->fd = -1;
}

static void tcp_released(struct side *s)
{
    mem_free(tcp_of(s));
}

static int tcp_fd(const struct side *s)
{
    return container_of(s, const struct tcp, side)->fd;
}

static const struct side_kind tcp_kind = {
    .read = tcp_read,
    .write = tcp_write,
    .shut = tcp_shut,
    .watch = tcp_watch,
    .pending = tcp_pending,
    .flushed = tcp_flushed,
    .close = tcp_close,
    .released = tcp_released,
    .fd = tcp_fd,
};

ssize_t side_splice_in(struct side *s, int pipe, size_t n)
{
    struct tcp *t = tcp_of(s);
    assert(!s->closed && s->ready);
    if (s->failure || s->ended)
        return s->failure ? -EIO : 0;
    ssize_t got = judge_read(t, splice(t->fd, NULL, pipe, NULL, n, SPLICE_F_MOVE | SPLICE_F_NONBLOCK));
    if (got > 0) {
        s->bytes_in += (uint64_t)got;
    } else if (got == 0) {
        s->ended = true;
    } else if (got == -EAGAIN) {
        s->want_read = true;
        tcp_watch(s);
    }
    return got;
}

ssize_t side_splice_out(struct side *s, int pipe, size_t n)
{
    struct tcp *t = tcp_of(s);
    assert(!s->closed && s->ready && !s->shut && n > 0);
    if (s->failure || t->write_error)
        return s->failure ? -EIO : -t->write_error;
    ssize_t took = judge_write(t, splice(pipe, NULL, t->fd, NULL, n, SPLICE_F_MOVE | SPLICE_F_NONBLOCK));
    if (took > 0)
        s->bytes_out += (uint64_t)took;
    if (took == -EAGAIN) {
        s->want_write = true;
        tcp_watch(s);
    }
    return took;
}

void side_tcp_listener(int fd)
{
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    watch_peer(fd);
}

/* 0, or -errno: then there is no descriptor any more. */
static int adopt(struct tcp *t, int fd)
{
    int r = uv_poll_init(t->side.loop, &t->poll, fd);
    if (r < 0) {
        (void)fd_close(fd);
        return r;
    }
    t->poll.data = &t->side;
    side_add_handle(&t->side);
    t->fd = fd;
    return 0;
}

static struct tcp *tcp_new(uv_loop_t *loop, const struct side_ops *ops, void *ctx)
{
    struct tcp *t = mem_new(struct tcp);
    t->fd = -1;
    side_init(&t->side, &tcp_kind, loop, ops, ctx);
    return t;
}

struct side *side_tcp_accept(uv_loop_t *loop, int fd)
{
    struct tcp *t = tcp_new(loop, NULL, NULL);
    int r = adopt(t, fd);
    if (r < 0)
        side_fail_errno(&t->side, -r, "accept");
    else
        t->side.ready = t->side.ready_told = true;
    return &t->side;
}

bool side_tcp_is_connected(struct side *s)
{
    struct tcp *t = tcp_of(s);
    uint8_t state = 0; /* the first byte of struct tcp_info */
    socklen_t n = sizeof(state);
    if (s->ready || s->failure)
        return s->ready && !s->failure;
    if (getsockopt(t->fd, IPPROTO_TCP, TCP_INFO, &state, &n) < 0 || state != TCP_ESTABLISHED)
        return false;
    side_become_ready(s);
    s->ready_told = true;
    watch_peer(t->fd);
    return true;
}

void side_tcp_bound(struct side *s, int bytes)
{
    int fd = tcp_of(s)->fd;
    if (fd < 0)
        return;
    set_option(fd, SOL_SOCKET, SO_SNDBUF, bytes);
    set_option(fd, SOL_SOCKET, SO_RCVBUF, bytes);
}

static void format_peer(struct tcp *t, const struct sockaddr *to)
{
    char ip[INET6_ADDRSTRLEN] = "?";
    (void)uv_ip_name(to, ip, sizeof(ip));
    if (to->sa_family == AF_INET6)
        (void)snprintf(t->peer, sizeof(t->peer), "[%s]:%u", ip, ntohs(((const struct sockaddr_in6 *)to)->sin6_port));
    else
        (void)snprintf(t->peer, sizeof(t->peer), "%s:%u", ip, ntohs(((const struct sockaddr_in *)to)->sin_port));
}

static int start_connect(struct tcp *t, const struct sockaddr *to)
{
    if (to->sa_family != AF_INET && to->sa_family != AF_INET6)
        return -EAFNOSUPPORT;
    format_peer(t, to);
    int fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    int r = adopt(t, fd);
    if (r < 0)
        return r;
    socklen_t n = to->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    return connect(fd, to, n) < 0 && errno != EINPROGRESS ? -errno : 0;
}

struct side *side_tcp_connect(uv_loop_t *loop, const struct sockaddr *to, unsigned timeout_ms,
                              const struct side_ops *ops, void *ctx)
{
    struct tcp *t = tcp_new(loop, ops, ctx);
    int r = start_connect(t, to);
    if (r < 0) {
        fail_connect(t, -r);
        return &t->side;
    }
    t->limit_ms = timeout_ms;
    side_limit(&t->side, timeout_ms, side_tcp_on_limit);
    side_tcp_arm(t, UV_WRITABLE);
    return &t->side;
}
