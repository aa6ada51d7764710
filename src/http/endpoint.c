/* SPDX-License-Identifier: Apache-2.0 */
#include "http/endpoint.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

int endpoint_parse(const char *text, struct endpoint *ret)
{
    struct str s = str_of(text), name;
    uint16_t port;
    if (str_starts(s, STR("unix:")))
        s = str_sub(s, 5);
    if (s.n && s.p[0] == '/') {
        if (s.n >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
            return -ENAMETOOLONG;
        *ret = (struct endpoint){.path = mem_strndup(s.p, s.n), .authority = mem_strdup("localhost")};
        return 0;
    }
    const bool has_tls = str_starts(s, STR("https://"));
    if (has_tls || str_starts(s, STR("http://")))
        s = str_sub(s, has_tls ? 8 : 7);
    if (s.n && s.p[s.n - 1] == '/')
        s.n--;
    if (str_find_char(s, '/') >= 0 || str_split_host(s, &name, &port) < 0)
        return -EINVAL;
    *ret = (struct endpoint){
        .host = mem_strndup(name.p, name.n),
        .port = mem_printf("%u", port      ? port
                                 : has_tls ? 443U
                                           : 80U),
        .has_tls = has_tls,
        .authority = mem_strndup(s.p, s.n),
    };
    return 0;
}

void endpoint_fini(struct endpoint *e)
{
    MEM_FREE(e->path, e->host, e->port, e->authority);
    *e = (struct endpoint){.path = NULL};
}

int endpoint_wait(int fd, short events, int timeout_ms, short *ret_events)
{
    struct pollfd p = {.fd = fd, .events = events};
    usec_t end = clock_mono() + (usec_t)MAX(timeout_ms, 0) * USEC_PER_MS;
    for (;;) {
        usec_t now = clock_mono();
        int ms = timeout_ms < 0 ? -1 : now >= end ? 0 : (int)((end - now + USEC_PER_MS - 1) / USEC_PER_MS);
        int r = poll(&p, 1, ms);
        if (r > 0) {
            *ret_events = p.revents;
            return 0;
        }
        if (r == 0)
            return -ETIMEDOUT;
        if (errno != EINTR)
            return -errno;
    }
}

/*
 * There is no waiting for a full backlog by poll(2), so connect() itself has to wait. With a time-out it is not
 * restarted behind a signal, whatever its handler's SA_RESTART says (signal(7)).
 */
static int connect_unix(const char *path, int timeout_ms, int *ret_fd)
{
    AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    usec_t now = clock_mono(), end = now + (usec_t)MAX(timeout_ms, 0) * USEC_PER_MS;
    if (fd < 0)
        return -errno;
    memcpy(addr.sun_path, path, MIN(strlen(path), sizeof(addr.sun_path) - 1));
    do {
        usec_t left = MAX(end - MIN(now, end), USEC_PER_MS); /* 0 would be for ever */
        struct timeval tv = {.tv_sec = (time_t)(left / USEC_PER_SEC), .tv_usec = (suseconds_t)(left % USEC_PER_SEC)};
        if (timeout_ms >= 0)
            (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
        if (connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) == 0) {
            *ret_fd = TAKE_FD(fd);
            return 0;
        }
        if (errno != EINTR)
            return errno == EAGAIN ? -ETIMEDOUT : -errno;
        now = clock_mono();
    } while (timeout_ms < 0 || now < end);
    return -ETIMEDOUT;
}

static int connect_tcp(const struct addrinfo *a, int timeout_ms, int *ret_fd)
{
    AUTO_CLOSE int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
        short events;
        int error = 0;
        socklen_t len = sizeof(error);
        if (errno != EINPROGRESS)
            return -errno;
        int r = endpoint_wait(fd, POLLOUT, timeout_ms, &events);
        if (r < 0)
            return r;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
            return -errno;
        if (error)
            return -error;
    }
    int yes = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int endpoint_connect(const struct endpoint *e, int timeout_ms, int *ret_fd)
{
    if (e->path)
        return connect_unix(e->path, timeout_ms, ret_fd);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG}, *list = NULL;
    /* Names below localhost are this machine (RFC 6761, section 6.3), which not every resolver knows. */
    const char *host = str_ends(str_of(e->host), STR(".localhost")) ? "localhost" : e->host;
    if (getaddrinfo(host, e->port, &hints, &list) != 0)
        return -EHOSTUNREACH;
    int r = -EHOSTUNREACH;
    for (const struct addrinfo *a = list; a && r < 0; a = a->ai_next)
        r = connect_tcp(a, timeout_ms, ret_fd);
    freeaddrinfo(list);
    return r;
}
