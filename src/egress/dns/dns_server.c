/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two sockets of a sandbox, and its datagrams.
 *
 *  1. What is read is bounded by DNS_SERVER_READ_RATE, refused or not. When that is used up, no socket of the sandbox
 *     is looked at before the next tick, and the kernel drops what its buffers can't hold: a flood costs the sandbox
 *     its own DNS and nobody else more than that.
 *  2. In one turn of the loop at most TURN_MAX datagrams are read.
 *  3. Callbacks of `ops` come from the loop only; dns_server_free() is not called by them.
 */
#include "base/fd.h"
#include "base/mem.h"
#include "egress/dns/dns_server_internal.h"

#include <sys/socket.h>

enum { TURN_MAX = 32, DNS_PAUSE_MS = 100, EXPIRE_MS = 1000, READ_BURST = DNS_SERVER_READ_RATE / 10 };

static void dns_server_on_timer(uv_timer_t *timer);
static void on_udp(uv_poll_t *poll, int status, int events);
static void on_tcp(uv_poll_t *poll, int status, int events);

void dns_server_set_timer(struct dns_server *s)
{
    uint64_t every = s->paused ? DNS_PAUSE_MS : s->n_conns ? EXPIRE_MS : 0;
    if (!every)
        uv_timer_stop(&s->timer);
    else if (!uv_is_active((uv_handle_t *)&s->timer) || uv_timer_get_repeat(&s->timer) != every)
        (void)uv_timer_start(&s->timer, dns_server_on_timer, every, every);
}

static void set_paused(struct dns_server *s, bool paused)
{
    if (s->paused == paused)
        return;
    s->paused = paused;
    (void)uv_poll_start(&s->udp, paused ? 0 : UV_READABLE, on_udp);
    (void)uv_poll_start(&s->tcp, paused ? 0 : UV_READABLE, on_tcp);
    if (paused)
        dns_tcp_pause(s);
    else
        dns_tcp_resume(s);
    dns_server_set_timer(s);
}

void dns_server_was_read(struct dns_server *s)
{
    if (!dns_bucket_take(&s->read_rate, s->now(), DNS_SERVER_READ_RATE, READ_BURST))
        set_paused(s, true);
}

static void dns_server_on_timer(uv_timer_t *timer)
{
    struct dns_server *s = timer->data;
    set_paused(s, false);
    dns_tcp_expire(s);
    dns_server_set_timer(s);
}

/* One datagram: its length, 0 for one that says nothing, or -errno. */
static ssize_t dns_server_receive(struct dns_server *s, uint8_t *to, size_t room, struct dns_origin *ret_from)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct in6_pktinfo)) + CMSG_SPACE(sizeof(struct in_pktinfo))];
    } control;
    struct iovec data = {to, room};
    *ret_from = (struct dns_origin){.client_len = 0};
    struct msghdr msg = {
        .msg_name = &ret_from->client,
        .msg_namelen = sizeof(ret_from->client),
        .msg_iov = &data,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control),
    };
    ssize_t n = recvmsg(s->udp_fd, &msg, MSG_DONTWAIT);
    if (n < 0)
        return -errno;
    ret_from->client_len = msg.msg_namelen;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo info;
            memcpy(&info, CMSG_DATA(c), sizeof(info));
            ret_from->asked4 = info.ipi_addr;
            ret_from->has_asked4 = true;
        } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
            memcpy(&ret_from->asked6, CMSG_DATA(c), sizeof(ret_from->asked6));
            if (!IN6_IS_ADDR_LINKLOCAL(&ret_from->asked6.ipi6_addr))
                ret_from->asked6.ipi6_ifindex = 0;
            ret_from->has_asked6 = true;
        }
    }
    return n;
}

void dns_server_send(struct dns_server *s, const struct dns_origin *to, const void *message, size_t n)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct in6_pktinfo))];
    } control = {.bytes = {0}};
    struct in_pktinfo asked4 = {.ipi_spec_dst = to->asked4};
    size_t size = to->has_asked6 ? sizeof(to->asked6) : sizeof(asked4);
    struct cmsghdr *c = &control.align;
    *c = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(size),
        .cmsg_level = to->has_asked6 ? IPPROTO_IPV6 : IPPROTO_IP,
        .cmsg_type = to->has_asked6 ? IPV6_PKTINFO : IP_PKTINFO,
    };
    memcpy(CMSG_DATA(c), to->has_asked6 ? (const void *)&to->asked6 : (const void *)&asked4, size);
    struct iovec data = {(void *)(uintptr_t)message, n};
    struct msghdr msg = {
        .msg_name = (void *)(uintptr_t)&to->client,
        .msg_namelen = to->client_len,
        .msg_iov = &data,
        .msg_iovlen = 1,
        .msg_control = to->has_asked4 || to->has_asked6 ? &control : NULL,
        .msg_controllen = to->has_asked4 || to->has_asked6 ? CMSG_SPACE(size) : 0,
    };
    /* What the socket has no room for is lost, as datagrams are; the client asks again. */
    (void)sendmsg(s->udp_fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void on_udp(uv_poll_t *poll, int status UNUSED, int events UNUSED)
{
    struct dns_server *s = poll->data;
    uint8_t message[DNS_QUERY_MAX + 1];
    struct dns_origin from;
    for (int i = 0; i < TURN_MAX && !s->paused; i++) {
        ssize_t n = dns_server_receive(s, message, sizeof(message), &from);
        if (n == -EAGAIN)
            break;
        dns_server_was_read(s);
        if (n > 0) /* an error belongs to a datagram that we sent, and is gone once it was read */
            dns_judge(s, str_n(message, (size_t)n), &from);
    }
}

static void on_tcp(uv_poll_t *poll, int status UNUSED, int events UNUSED)
{
    dns_tcp_accept(poll->data);
}

/* So that each datagram comes with the address that it was sent to. */
static int ask_for_addresses(int fd)
{
    struct sockaddr_storage sa = {.ss_family = AF_UNSPEC};
    socklen_t size = sizeof(sa);
    int on = 1;
    if (getsockname(fd, (struct sockaddr *)&sa, &size) < 0)
        return -errno;
    int r = sa.ss_family == AF_INET6 ? setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on))
                                     : setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on));
    return r < 0 ? -errno : fd_nonblock(fd, true);
}

int dns_server_new(uv_loop_t *loop, struct resolver *resolver, int udp_fd, int tcp_fd, const struct dns_server_ops *ops,
                   void *ctx, struct dns_server **ret_server)
{
    AUTO_CLOSE int udp = udp_fd;
    AUTO_CLOSE int tcp = tcp_fd;
    int r = ask_for_addresses(udp);
    if (r == 0)
        r = fd_nonblock(tcp, true);
    if (r < 0)
        return r;
    struct dns_server *s = mem_new(struct dns_server);
    s->udp.data = s->tcp.data = s->timer.data = s;
    s->loop = loop;
    s->resolver = resolver;
    s->ops = ops;
    s->ctx = ctx;
    s->now = clock_mono;
    list_init(&s->asks);
    list_init(&s->conns);
    r = uv_poll_init(loop, &s->udp, udp);
    if (r < 0) {
        mem_free(s);
        return r;
    }
    s->udp_fd = TAKE_FD(udp);
    s->handles = 1;
    s->tcp_fd = -1;
    r = uv_poll_init(loop, &s->tcp, tcp);
    if (r < 0) {
        dns_server_free(s);
        return r;
    }
    s->tcp_fd = TAKE_FD(tcp);
    (void)uv_timer_init(loop, &s->timer);
    s->handles = 3;
    (void)uv_poll_start(&s->udp, UV_READABLE, on_udp);
    (void)uv_poll_start(&s->tcp, UV_READABLE, on_tcp);
    *ret_server = s;
    return 0;
}

static void dns_server_on_closed(uv_handle_t *handle)
{
    struct dns_server *s = handle->data;
    if (--s->handles == 0)
        mem_free(s);
}

void dns_server_free(struct dns_server *s)
{
    struct dns_ask *a;
    dns_tcp_end(s);
    while ((a = LIST_FIRST(struct dns_ask, &s->asks, node)))
        dns_ask_free(a);
    dns_names_fini(&s->names);
    uv_close((uv_handle_t *)&s->udp, dns_server_on_closed);
    s->udp_fd = fd_close(s->udp_fd);
    if (s->tcp_fd < 0)
        return;
    uv_close((uv_handle_t *)&s->tcp, dns_server_on_closed);
    uv_close((uv_handle_t *)&s->timer, dns_server_on_closed);
    s->tcp_fd = fd_close(s->tcp_fd);
}

void dns_server_set_clock(struct dns_server *s, usec_t (*now)(void))
{
    s->now = now;
}
