/* SPDX-License-Identifier: Apache-2.0 */
/* Namespaces within a sandbox's own: made by a child of coved, and nothing to remember (tier/container_nest.c). */
#include "base/mem.h"
#include "coved/boxes/boxes_internal.h"
#include "coved/foreign.h"
#include "coved/workers/job.h"

enum { NEST_MS = 2000 };

void boxes_nest_free(struct nest_order *order)
{
    if (!order)
        return;
    (void)foreign_close(order->session_fd);
    mem_free(order);
}

static int boxes_nest_run(void *ctx)
{
    const struct task *t = ctx;
    return t->tier->nest(t->owner->host, &t->nest->how);
}

static void boxes_nest_done(void *ctx, int r)
{
    struct task *t = ctx;
    struct err err;
    t->job = NULL;
    if (t->entry)
        t->entry->stops_jobs = r == -ETIMEDOUT;
    if (t->aborted)
        r = err_set(&err, ERR_ABORTED, "sandbox %s ended meanwhile", t->id);
    else if (r == -ENOENT || r == -ENOTDIR || r == -ELOOP)
        r = err_set(&err, ERR_INVALID_ARGUMENT,
                    "the workspace, or what is to be bound, is not a directory, or is reached over a symbolic link");
    else if (r < 0)
        r = err_errno(&err, r, "make namespaces in sandbox %s", t->id);
    boxes_task_end(t, r < 0 ? &err : NULL);
}

void boxes_nest_begin(struct task *t)
{
    struct box_entry *e = t->entry;
    struct tier_nest *how = &t->nest->how;
    const struct job_spec spec = {.name = "make namespaces in a sandbox",
                                  .run = boxes_nest_run,
                                  .done = boxes_nest_done,
                                  .ctx = t,
                                  .limit_ms = NEST_MS,
                                  .place = JOB_INSIDE,
                                  .is_background = e->stops_jobs,
                                  .fds = how->fds,
                                  .n_fds = TIER_NEST_FDS};
    struct err err;
    int r = 0;
    if (!t->tier->nest)
        r = err_set(&err, ERR_UNIMPLEMENTED, "sandboxes of the tier '%s' have no namespaces within", t->tier->name);
    else if (e->state == BOX_FROZEN)
        r = err_set(&err, ERR_FAILED_PRECONDITION, "sandbox %s is paused", e->id);
    if (r < 0) {
        boxes_task_end(t, &err);
        return;
    }
    *how = (struct tier_nest){.group = e->box.group, .asked = &t->nest->asked};
    how->fds[TIER_NEST_PIDFD] = e->box.pidfd;
    how->fds[TIER_NEST_SESSION] = t->nest->session_fd;
    how->fds[TIER_NEST_AGENT] = t->owner->host->agent_fd;
    t->job = job_add(t->owner->jobs, &spec);
}

void boxes_nest(struct boxes *b, uint64_t asked, const struct sup_nest *m, int session_fd)
{
    struct task task = {.kind = TASK_NEST, .asked = asked, .nest = mem_new(struct nest_order)};
    task.nest->asked = *m;
    task.nest->session_fd = session_fd;
    boxes_task_add(b, m->id, &task);
}
