/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots: a sandbox's own files cloned into a layer.
 *
 *  1. The process that clones is there before the sandbox is told to stand still, and the sandbox goes on before anybody is answered. When the sandbox has
 *     written much that is not on disk yet, which a clone would have to wait for, that is written out before.
 *  2. It goes on in every way in which this can end: boxes_snapshot_frozen() is only called when it stands still, the job's end thaws, and whoever kills a
 *     body thaws it.
 *  3. A sandbox that ends meanwhile does not wait. The layer that is made of it is dropped then, unless somebody who did not wait for an answer has made a
 *     sandbox on it.
 */
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "coved/boxes/boxes_internal.h"
#include "coved/workers/job.h"
#include "kernel/cgroup/cgroup.h"
#include "kernel/pool/pool.h"

#include <stdio.h>
#include <string.h>

enum { DIRTY_BYTES = 4 << 20 };

static int settle(void *ctx)
{
    const struct task *t = ctx;
    return pool_box_settle(t->owner->host->pool, t->box);
}

static int run(void *ctx)
{
    const struct task *t = ctx;
    struct pool *pool = t->owner->host->pool;
    struct pool_chain below = {.n = 0};
    fault_point("coved.snapshot.begin");
    if (t->kept)
        return pool_layer_of_kept(pool, t->id, t->layer);
    int r = t->stands_on[0] ? pool_chain_read(pool, t->stands_on, &below) : 0;
    r = r ? r : fault_error("coved.snapshot");
    return r ? r : pool_layer_of_box(pool, t->box, t->layer, &below);
}

static int store_error(const struct task *t, int r, struct err *err)
{
    switch (r) {
    case -EEXIST:
        return err_set(err, ERR_ALREADY_EXISTS, "layer %s exists", t->layer);
    case -E2BIG:
        return err_set(err, ERR_FAILED_PRECONDITION,
                       "sandbox %s stands on %d layers already, and this storage pool can't shorten that: build its"
                       " template anew",
                       t->id, POOL_CHAIN_MAX - 1);
    case -ENOSPC:
    case -EDQUOT:
        (void)err_set(err, ERR_RESOURCE_EXHAUSTED, "the storage pool is full");
        return err_because(err, ERR_POOL_FULL);
    case -ENOENT:
        return err_set(err, ERR_INTERNAL, "a layer that sandbox %s stands on is not in the storage pool", t->id);
    default:
        return err_errno(err, r, "store the files of sandbox %s", t->id);
    }
}

static void thaw(struct task *t)
{
    if (t->froze && t->entry) {
        boxes_thaw(t->entry);
        t->frozen_for = clock_mono() - t->froze;
    }
}

static int drop(struct boxes *b, const char *layer)
{
    char user[ID_SANDBOX_LEN + 1];
    if (boxes_stands(b, layer, user))
        return 0;
    boxes_drop_unused(b, layer);
    return pool_layer_drop(b->host->pool, layer);
}

static void done(void *ctx, int r)
{
    struct task *t = ctx;
    struct boxes *b = t->owner;
    struct err err;
    t->job = NULL;
    fault_point("coved.snapshot.frozen");
    thaw(t);
    fault_point("coved.snapshot.made");
    if (r < 0)
        pool_forget(b->host->pool, t->layer);
    if (r < 0 && r != -EEXIST) { /* its process may have died behind the clone */
        int ignored UNUSED = pool_layer_drop(b->host->pool, t->layer);
    }
    if (t->aborted) {
        if (r == 0 && (r = drop(b, t->layer)) < 0)
            log_error("drop layer %s: %s", t->layer, strerror(-r));
        (void)err_set(&err, ERR_ABORTED, "sandbox %s ended meanwhile", t->id);
    } else if (r == 0) {
        err.code = ERR_OK;
        t->layer_bytes = pool_layer_bytes(b->host->pool, t->layer);
    } else if (t->failed && t->entry) {
        (void)boxes_freeze_error(t->entry, t->failed, &err);
    } else {
        (void)store_error(t, r, &err);
    }
    if (t->kept)
        boxes_kept_release(t->kept);
    boxes_task_end(t, err.code == ERR_OK ? NULL : &err);
}

static void begun(void *ctx)
{
    struct task *t = ctx;
    if (t->aborted)
        return;
    if (t->entry && t->entry->state != BOX_FROZEN) {
        t->froze = clock_mono();
        boxes_freeze(t->entry);
        return;
    }
    t->gone = true;
    job_go(t->job);
}

void boxes_snapshot_frozen(struct task *t, int r)
{
    if (r < 0) {
        t->failed = r;
        t->froze = 0;
        job_kill(t->job);
        return;
    }
    t->gone = true;
    job_go(t->job);
}

void boxes_snapshot_begin(struct task *t)
{
    struct job_spec spec = {.name = "snapshot", .run = run, .done = done, .begun = begun, .ctx = t, .is_held = true};
    t->begun = clock_mono();
    if (t->entry && t->entry->state != BOX_FROZEN &&
        cgroup_dirty_bytes(t->owner->host->cgroups, t->entry->box.group) > DIRTY_BYTES)
        spec.prepare = settle;
    if (t->entry) {
        memcpy(t->box, t->entry->box.name, sizeof(t->box));
        memcpy(t->stands_on, t->entry->stands_on, sizeof(t->stands_on));
    }
    t->job = job_add(t->owner->jobs, &spec);
}

void boxes_snapshot(struct boxes *b, uint64_t asked, const char *id, const char *layer, bool is_again)
{
    struct task task = {.kind = TASK_SNAPSHOT, .asked = asked};
    (void)snprintf(task.layer, sizeof(task.layer), "%s", layer);
    struct kept *k = boxes_kept_find(b, id);
    if (is_again && pool_layer_exists(b->host->pool, layer)) {
        b->events.stored(b->events.ctx, asked, 0, 0, pool_layer_bytes(b->host->pool, layer), NULL);
        return;
    }
    /* What fails drops what it began under that name: it must be nobody else's. */
    if (pool_layer_exists(b->host->pool, layer) || map_get(&b->making, str_of(layer))) {
        struct err taken;
        (void)store_error(&task, -EEXIST, &taken);
        b->events.stored(b->events.ctx, asked, 0, 0, 0, &taken);
        return;
    }
    if (!k || b->stopping) {
        boxes_task_add(b, id, &task);
        return;
    }
    struct err err;
    if (!k->is_whole) {
        (void)err_set(&err, ERR_FAILED_PRECONDITION, "sandbox %s is being paused or resumed", id);
        b->events.stored(b->events.ctx, asked, 0, 0, 0, &err);
        return;
    }
    if (k->busy >= TASKS_MAX) {
        (void)err_set(&err, ERR_RESOURCE_EXHAUSTED, "too much is being done to sandbox %s already", id);
        b->events.stored(b->events.ctx, asked, 0, 0, 0, &err);
        return;
    }
    memcpy(task.id, k->id, sizeof(task.id));
    memcpy(task.stands_on, k->stands_on, sizeof(task.stands_on));
    task.kept = k;
    k->busy++;
    boxes_snapshot_begin(boxes_task_loose(b, &task));
}
