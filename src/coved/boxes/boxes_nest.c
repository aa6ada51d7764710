/* SPDX-License-Identifier: Apache-2.0 */
/* Namespaces within a sandbox's own: made by a child of coved, and nothing to remember (tier/container_nest.c). */
#include "base/mem.h"
#include "coved/boxes/boxes_internal.h"
#include "coved/foreign.h"
#include "coved/workers/job.h"
#include "tier/root.h"

#include <string.h>

enum { NEST_MS = 2000, SERVICE_MS = 10000 };

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
    else if (r < 0 && *t->nest->asked.root)
        r = r == -ENOENT  ? err_set(&err, ERR_NOT_FOUND, "layer %s, or one below it, is not in the storage pool",
                                    t->nest->asked.root)
            : r == -E2BIG ? err_set(&err, ERR_RESOURCE_EXHAUSTED, "the service and the sandbox have too many layers")
            : r == -EMEDIUMTYPE
                ? err_set(&err, ERR_FAILED_PRECONDITION, "its template is the disk of a virtual machine")
                : err_errno(&err, r, "make service '%s' in sandbox %s", t->nest->asked.name, t->id);
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
                                  .limit_ms = *t->nest->asked.root ? SERVICE_MS : NEST_MS,
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
    struct nest_order *order = t->nest;
    memcpy(order->group, e->box.group, sizeof(order->group));
    memcpy(order->box, e->box.name, sizeof(order->box));
    memcpy(order->stands_on, e->stands_on, sizeof(order->stands_on));
    *how = (struct tier_nest){.group = order->group,
                              .box = order->box,
                              .stands_on = order->stands_on,
                              .pid = e->box.pid,
                              .base = root_base(t->owner->host, &e->box),
                              .asked = &order->asked};
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
