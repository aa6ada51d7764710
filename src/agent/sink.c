/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/sink.h"
#include "agent/agent.h"
#include "base/mem.h"

#include <sys/epoll.h>
#include <unistd.h>

/* One block, then a pause: a writer that never ends costs its sandbox next to nothing, and is slowed down to some
 * megabytes a second. */
enum { BLOCK = 16 * 1024, PAUSE_USEC = 2000 };

struct sink_sink {
    struct agent *agent;
    struct list node;
    struct loop_io io;
    struct loop_timer timer;
};

static void sink_free(struct sink_sink *s)
{
    loop_close(&s->agent->loop, &s->io);
    loop_timer_clear(&s->timer);
    list_remove(&s->node);
    s->agent->n_sinks--;
    mem_free(s);
}

static void readable(struct loop_io *io, uint32_t events UNUSED)
{
    struct sink_sink *s = container_of(io, struct sink_sink, io);
    char block[BLOCK];
    ssize_t r = read(io->fd, block, sizeof(block));
    if (r < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (r <= 0 || loop_set(&s->agent->loop, io, 0) < 0)
        sink_free(s);
    else
        loop_timer_set(&s->agent->loop, &s->timer, PAUSE_USEC);
}

static void rested(struct loop_timer *t)
{
    struct sink_sink *s = container_of(t, struct sink_sink, timer);
    if (loop_set(&s->agent->loop, &s->io, EPOLLIN) < 0)
        sink_free(s);
}

void sink_take(struct agent *a, struct loop_io *io)
{
    if (io->fd < 0)
        return;
    if (a->n_sinks >= SINKS_MAX) {
        loop_close(&a->loop, io);
        return;
    }
    struct sink_sink *s = mem_new(struct sink_sink);
    s->agent = a;
    s->io = LOOP_IO(readable);
    loop_move(&a->loop, io, &s->io);
    loop_timer_init(&s->timer, rested);
    list_append(&a->sinks, &s->node);
    a->n_sinks++;
    if (loop_set(&a->loop, &s->io, EPOLLIN) < 0)
        sink_free(s);
}

void sink_close_all(struct agent *a)
{
    LIST_FOREACH (struct sink_sink, s, &a->sinks, node)
        sink_free(s);
}
