/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/loop.h"
#include "base/fd.h"
#include "base/mem.h"

#include <sys/epoll.h>

enum { EVENTS = 64 };

struct coved_loop {
    int epoll_fd;
    struct epoll_event events[EVENTS];
    int n, at; /* events[at..n) are still to be delivered */
};

int loop_new(struct coved_loop **ret_loop)
{
    int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0)
        return -errno;
    struct coved_loop *l = mem_new(struct coved_loop);
    l->epoll_fd = fd;
    *ret_loop = l;
    return 0;
}

void loop_free(struct coved_loop *l)
{
    (void)fd_close(l->epoll_fd);
    mem_free(l);
}

int loop_add(struct coved_loop *l, struct source *s, int fd, uint32_t events,
             void (*fn)(struct source *s, uint32_t events))
{
    struct epoll_event e = {.events = events, .data.ptr = s};
    if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0)
        return -errno;
    s->fd = fd;
    s->fn = fn;
    return 0;
}

int loop_change(struct coved_loop *l, struct source *s, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = s};
    return epoll_ctl(l->epoll_fd, EPOLL_CTL_MOD, s->fd, &e) < 0 ? -errno : 0;
}

void loop_remove(struct coved_loop *l, struct source *s)
{
    if (s->fd < 0)
        return;
    (void)epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
    s->fd = -1;
    for (int i = l->at; i < l->n; i++)
        if (l->events[i].data.ptr == s)
            l->events[i].data.ptr = NULL;
}

int loop_turn(struct coved_loop *l, usec_t deadline)
{
    usec_t now = clock_mono();
    uint64_t wait = deadline <= now ? 0 : MIN(deadline - now, 60 * USEC_PER_SEC);
    const struct timespec timeout = {.tv_sec = (time_t)(wait / USEC_PER_SEC),
                                     .tv_nsec = (long)(wait % USEC_PER_SEC) * 1000};
    /* Linux 5.11: finer than a millisecond. */
    int n = epoll_pwait2(l->epoll_fd, l->events, EVENTS, deadline == UINT64_MAX ? NULL : &timeout, NULL);
    if (n < 0)
        return errno == EINTR ? 0 : -errno;
    l->n = n;
    for (l->at = 0; l->at < l->n;) {
        struct epoll_event e = l->events[l->at++];
        struct source *s = e.data.ptr;
        if (s)
            s->fn(s, e.events);
    }
    l->n = l->at = 0;
    return n;
}
