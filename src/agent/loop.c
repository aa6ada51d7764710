/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/loop.h"
#include "base/fd.h"

#include <limits.h>
#include <sys/epoll.h>

enum { BATCH_MAX = 64 };

int loop_init(struct agent_loop *l)
{
    *l = (struct agent_loop){.epoll = epoll_create1(EPOLL_CLOEXEC)};
    list_init(&l->timers);
    return l->epoll < 0 ? -errno : 0;
}

void loop_fini(struct agent_loop *l)
{
    l->epoll = fd_close(l->epoll);
}

static int control(struct agent_loop *l, struct loop_io *io, int op, uint32_t events)
{
    /* The kernel always reports what has hung up. Once only, then: what is paused must not keep the loop turning. */
    struct epoll_event e = {.events = events ? events : (uint32_t)EPOLLONESHOT, .data.ptr = io};
    return epoll_ctl(l->epoll, op, io->fd, &e) < 0 ? -errno : 0;
}

/* What it was ready for is not told any more in this turn. */
static void forget_ready(struct agent_loop *l, const struct loop_io *io)
{
    for (int i = 0; i < l->batch_n; i++)
        if (l->batch[i] == io)
            l->batch[i] = NULL;
}

int loop_set(struct agent_loop *l, struct loop_io *io, uint32_t events)
{
    if (io->events == events || io->fd < 0)
        return 0;
    int r = control(l, io, io->is_in_set ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, events);
    if (r < 0)
        return r;
    io->is_in_set = true;
    io->events = events;
    if (!events)
        forget_ready(l, io);
    return 0;
}

void loop_close(struct agent_loop *l, struct loop_io *io)
{
    if (io->is_in_set)
        (void)control(l, io, EPOLL_CTL_DEL, 0); /* others may have the file open, and closing it would not do */
    forget_ready(l, io);
    io->is_in_set = false;
    io->events = 0;
    io->fd = fd_close(io->fd);
}

void loop_move(struct agent_loop *l, struct loop_io *from, struct loop_io *to)
{
    to->fd = from->fd;
    to->is_in_set = from->is_in_set;
    to->events = 0;
    if (to->is_in_set)
        (void)control(l, to, EPOLL_CTL_MOD, 0);
    forget_ready(l, from);
    from->is_in_set = false;
    from->events = 0;
    from->fd = -1;
}

void loop_timer_init(struct loop_timer *t, void (*fire)(struct loop_timer *timer))
{
    *t = (struct loop_timer){.fire = fire};
    list_init(&t->node);
}

void loop_timer_set(struct agent_loop *l, struct loop_timer *t, usec_t after)
{
    list_remove(&t->node);
    t->at = clock_mono() + after;
    /* There are few different durations, so a timer's place is mostly near the end. */
    struct list *before = l->timers.prev;
    while (before != &l->timers && container_of(before, struct loop_timer, node)->at > t->at)
        before = before->prev;
    list_prepend(before, &t->node);
}

void loop_timer_clear(struct loop_timer *t)
{
    list_remove(&t->node);
}

static int wait_ms(const struct agent_loop *l, bool busy)
{
    if (busy)
        return 0;
    if (list_empty(&l->timers))
        return -1;
    usec_t now = clock_mono(), at = container_of(l->timers.next, struct loop_timer, node)->at;
    return at <= now ? 0 : (int)MIN((at - now + USEC_PER_MS - 1) / USEC_PER_MS, (usec_t)INT_MAX);
}

int loop_turn(struct agent_loop *l, bool busy)
{
    struct epoll_event events[BATCH_MAX];
    struct loop_io *batch[BATCH_MAX];
    int n = epoll_wait(l->epoll, events, BATCH_MAX, wait_ms(l, busy));
    if (n < 0)
        return errno == EINTR ? 0 : -errno;
    for (int i = 0; i < n; i++)
        batch[i] = events[i].data.ptr;
    l->batch = batch;
    l->batch_n = n;
    for (int i = 0; i < n; i++)
        if (batch[i] && batch[i]->events)
            batch[i]->ready(batch[i], events[i].events);
    l->batch = NULL;
    l->batch_n = 0;

    /* Due by the time they were looked at: one that sets itself again has to wait for the next round. */
    usec_t now = list_empty(&l->timers) ? 0 : clock_mono();
    while (!list_empty(&l->timers)) {
        struct loop_timer *t = container_of(l->timers.next, struct loop_timer, node);
        if (t->at > now)
            break;
        list_remove(&t->node);
        t->fire(t);
    }
    return 0;
}
