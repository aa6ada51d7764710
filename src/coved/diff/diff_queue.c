/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/diff/diff_queue.h"
#include "base/list.h"
#include "base/mem.h"

#include <poll.h>

enum { LIMIT_MS = 900 * 1000 };

struct diff_entry {
    struct list node;
    struct diff_queue *queue;
    struct diff_order order;
    bool is_running; /* its job is there */
};

struct diff_queue {
    struct jobs *jobs;
    struct list list; /* in the order in which they came */
    size_t n, n_running;
};

struct diff_queue *diff_queue_new(struct jobs *jobs)
{
    struct diff_queue *q = mem_new(struct diff_queue);
    q->jobs = jobs;
    list_init(&q->list);
    return q;
}

void diff_queue_free(struct diff_queue *q)
{
    assert(q->n == 0);
    mem_free(q);
}

static size_t diff_queue_count(struct diff_queue *q, const char *walked, bool running_only)
{
    size_t n = 0;
    LIST_FOREACH (struct diff_entry, e, &q->list, node) {
        bool found = false;
        for (size_t i = 0; i < e->order.n_walked && (e->is_running || !running_only); i++)
            found |= strcmp(e->order.walked[i], walked) == 0;
        n += found;
    }
    return n;
}

static bool is_under(struct diff_queue *q, const struct diff_order *o, size_t most, bool running_only)
{
    for (size_t i = 0; i < o->n_walked; i++)
        if (diff_queue_count(q, o->walked[i], running_only) >= most)
            return false;
    return true;
}

static bool is_left(int fd)
{
    struct pollfd p = {.fd = fd};
    return poll(&p, 1, 0) == 1 && p.revents & (POLLERR | POLLHUP);
}

static void go_on(struct diff_queue *q);

static void diff_queue_done(void *ctx, int r)
{
    struct diff_entry *e = ctx;
    struct diff_queue *q = e->queue;
    const struct diff_order order = e->order;
    list_remove(&e->node);
    mem_free(e);
    q->n--;
    q->n_running--;
    order.done(order.ctx, r);
    go_on(q);
}

static int diff_queue_run(void *ctx)
{
    const struct diff_entry *e = ctx;
    return e->order.run(e->order.ctx);
}

static struct job *diff_queue_begin(struct diff_entry *e)
{
    const struct job_spec spec = {.name = "compare files",
                                  .run = diff_queue_run,
                                  .done = diff_queue_done,
                                  .ctx = e,
                                  .is_background = true,
                                  .limit_ms = LIMIT_MS,
                                  .fds = &e->order.fd,
                                  .n_fds = 1};
    e->is_running = true;
    e->queue->n_running++;
    return job_add(e->queue->jobs, &spec);
}

static void go_on(struct diff_queue *q)
{
    LIST_FOREACH (struct diff_entry, e, &q->list, node) {
        if (e->is_running)
            continue;
        if (is_left(e->order.fd)) {
            e->order.n_walked = 0;         /* it takes nothing from anybody */
            job_kill(diff_queue_begin(e)); /* to be reported in its time */
        } else if (q->n_running < JOBS_MAX && is_under(q, &e->order, DIFF_EACH_RUNNING, true)) {
            (void)diff_queue_begin(e);
        }
    }
}

int diff_queue_add(struct diff_queue *q, const struct diff_order *order, struct err *err)
{
    go_on(q); /* without those whose readers have left */
    if (q->n >= DIFF_MOST)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "too many comparisons are running");
    if (!is_under(q, order, DIFF_EACH_MOST, false))
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "too many comparisons of the same files are running");
    struct diff_entry *e = mem_new(struct diff_entry);
    e->queue = q;
    e->order = *order;
    q->n++;
    list_append(&q->list, &e->node);
    go_on(q);
    return 0;
}
