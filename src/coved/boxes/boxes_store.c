/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots: a sandbox's own files cloned into a layer; and back, for a sandbox of which only the files are kept.
 *
 *  1. The process that clones is there before the sandbox is told to stand still, and the sandbox goes on before
 *     anybody is answered. When the sandbox has written much that is not on disk yet, which a clone would have to wait
 *     for, that is written out before.
 *  2. It goes on in every way in which this can end: boxes_snapshot_frozen() is only called when it stands still, the
 *     job's end thaws, and whoever kills a body thaws it.
 *  3. A sandbox that ends meanwhile does not wait. The layer that is made of it is dropped then, unless somebody who
 *     did not wait for an answer has made a sandbox on it.
 */
#include "base/fault.h"
#include "base/log.h"
#include "coved/boxes/boxes_internal.h"
#include "coved/workers/job.h"
#include "tier/files.h"
#include "tier/memory.h"

enum { DIRTY_BYTES = 4 << 20 };

static int boxes_store_settle(void *ctx)
{
    const struct task *t = ctx;
    return pool_box_settle(t->owner->host->pool, t->box);
}

static int boxes_store_run(void *ctx)
{
    const struct task *t = ctx;
    const struct tier_host *host = t->owner->host;
    fault_point("coved.snapshot.begin");
    if (t->kept)
        return pool_layer_of_kept(host->pool, t->id, t->layer);
    int r = fault_error("coved.snapshot");
    return r ? r : t->tier->snapshot(host, t->box, t->stands_on, t->layer);
}

static int store_error(const struct task *t, int r, struct err *err)
{
    switch (r) {
    case -EEXIST:
        return err_set(err, ERR_ALREADY_EXISTS, "layer %s exists", t->layer);
    case -E2BIG:
        return err_set(err, ERR_FAILED_PRECONDITION,
                       "sandbox %s already has %d layers, and this storage pool can't merge them: rebuild its "
                       "template",
                       t->id, POOL_CHAIN_MAX - 1);
    case -ENOSPC:
    case -EDQUOT:
        (void)err_set(err, ERR_RESOURCE_EXHAUSTED, "the storage pool is full");
        return err_because(err, ERR_POOL_FULL);
    case -ENOENT:
        return err_set(err, ERR_INTERNAL, "a layer of sandbox %s is not in the storage pool", t->id);
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

static int boxes_store_drop(struct boxes *b, const char *layer)
{
    char user[ID_SANDBOX_LEN + 1];
    if (boxes_stands(b, layer, user))
        return 0;
    boxes_drop_unused(b, layer);
    return files_layer_drop(b->host, layer);
}

static void boxes_store_done(void *ctx, int r)
{
    struct task *t = ctx;
    struct boxes *b = t->owner;
    struct err err;
    t->job = NULL;
    fault_point("coved.snapshot.frozen");
    thaw(t);
    if (t->memory && t->entry)
        boxes_save_over(t->entry, r);
    fault_point("coved.snapshot.made");
    if (r < 0)
        pool_forget(b->host->pool, t->layer);
    if (r < 0 && r != -EEXIST) { /* its process may have died behind the clone */
        int ignored UNUSED = files_layer_drop(b->host, t->layer);
    }
    if (t->aborted) {
        if (r == 0 && (r = boxes_store_drop(b, t->layer)) < 0)
            log_error("drop layer %s: %s", t->layer, strerror(-r));
        (void)err_set(&err, ERR_ABORTED, "sandbox %s ended meanwhile", t->id);
    } else if (r == 0) {
        err.code = ERR_OK;
        t->layer_bytes = pool_layer_bytes(b->host->pool, t->layer);
    } else if (t->failed && t->entry) {
        (void)boxes_freeze_error(t->entry, t->failed, &err);
    } else if (t->memory && r != -EEXIST && r != -E2BIG) {
        (void)boxes_save_error(t, r, &err);
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

/* Whoever asks for a snapshot of what changed alone. The sandbox runs on: what it does meanwhile is for the next
 * one. */
static bool is_unchanged(const struct task *t)
{
    bool is_all_there = t->entry && (!t->tier->writes_late || t->entry->state == BOX_FROZEN);
    return is_all_there && t->unlike[0] && !pool_box_changed(t->owner->host->pool, t->box, t->unlike);
}

static void boxes_store_memory(struct task *t)
{
    struct err err;
    if (!t->entry || t->entry->state == BOX_FROZEN)
        (void)err_set(&err, ERR_FAILED_PRECONDITION,
                      "sandbox %s is paused: resume it for a snapshot or a fork with its memory", t->id);
    else if (tier_list_saves(&t->owner->set->list, t->tier->name, &err) == 0) {
        boxes_save_start(t, boxes_store_done);
        return;
    }
    if (t->kept)
        boxes_kept_release(t->kept);
    boxes_task_end(t, &err);
}

void boxes_snapshot_begin(struct task *t)
{
    if (t->memory) {
        boxes_store_memory(t);
        return;
    }
    struct job_spec spec = {.name = "snapshot",
                            .run = boxes_store_run,
                            .done = boxes_store_done,
                            .begun = begun,
                            .ctx = t,
                            .is_held = true};
    t->begun = clock_mono();
    if (t->entry && t->entry->state != BOX_FROZEN &&
        pool_box_dirty_bytes(t->owner->host->pool, t->entry->box.name) > DIRTY_BYTES)
        spec.prepare = boxes_store_settle;
    if (t->entry) {
        memcpy(t->box, t->entry->box.name, sizeof(t->box));
        memcpy(t->stands_on, t->entry->stands_on, sizeof(t->stands_on));
    }
    if (is_unchanged(t)) {
        t->is_unchanged = true;
        boxes_task_end(t, NULL);
        return;
    }
    t->job = job_add(t->owner->jobs, &spec);
}

static int take_kept(struct kept *k, struct task *task, struct err *err)
{
    if (!k->is_whole)
        return err_set(err, ERR_FAILED_PRECONDITION, "sandbox %s is being paused or resumed", k->id);
    if (k->busy >= TASKS_MAX)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "too many operations on sandbox %s are in progress", k->id);
    memcpy(task->id, k->id, sizeof(task->id));
    memcpy(task->stands_on, k->stands_on, sizeof(task->stands_on));
    task->kept = k;
    k->busy++;
    return 0;
}

static void boxes_store_told(struct boxes *b, uint64_t asked, uint64_t bytes, const struct err *err)
{
    b->events.stored(b->events.ctx, asked, &(struct stored){.bytes = bytes}, err);
}

void boxes_snapshot(struct boxes *b, uint64_t asked, const struct sup_snapshot *m, bool is_again)
{
    struct task task = {
        .kind = TASK_SNAPSHOT, .asked = asked, .memory = m->memory, .passes = m->memory == SUP_MEMORY_PASSES};
    const char *id = m->id, *layer = m->layer;
    memcpy(task.layer, layer, sizeof(task.layer));
    memcpy(task.unlike, m->unlike, sizeof(task.unlike));
    struct kept *k = boxes_kept_find(b, id);
    bool is_half = m->memory && !memory_is_good(b->host, layer);
    if (is_again && is_half && pool_layer_exists(b->host->pool, layer)) {
        int ignored UNUSED = boxes_store_drop(b, layer); /* begun again */
    } else if (is_again && pool_layer_exists(b->host->pool, layer)) {
        boxes_store_told(b, asked, pool_layer_bytes(b->host->pool, layer), NULL);
        return;
    }
    /* What fails drops what it began under that name: it must be nobody else's. */
    if (pool_layer_exists(b->host->pool, layer) || map_get(&b->making, str_of(layer))) {
        struct err taken;
        (void)store_error(&task, -EEXIST, &taken);
        boxes_store_told(b, asked, 0, &taken);
        return;
    }
    if (!k || b->stopping) {
        boxes_task_add(b, id, &task);
        return;
    }
    struct err err;
    if (take_kept(k, &task, &err) < 0)
        boxes_store_told(b, asked, 0, &err);
    else
        boxes_snapshot_begin(boxes_task_loose(b, &task));
}

/* ---- and back ---- */

static int rewind_run(void *ctx)
{
    const struct task *t = ctx;
    fault_point("coved.rewind.begin");
    int r = fault_error("coved.rewind");
    return r ? r : pool_keep_layer(t->owner->host->pool, t->layer, t->id);
}

static void rewind_done(void *ctx, int r)
{
    struct task *t = ctx;
    struct err err;
    t->job = NULL;
    fault_point("coved.rewind.made");
    r = r ? r : files_kept_below(t->owner->host, t->id, t->kept->stands_on);
    if (r == -ENOENT)
        (void)err_set(&err, ERR_NOT_FOUND, "layer %s is not in the storage pool", t->layer);
    else if (r < 0)
        (void)store_error(t, r, &err);
    boxes_kept_release(t->kept);
    boxes_task_end(t, r < 0 ? &err : NULL);
}

void boxes_rewind(struct boxes *b, uint64_t asked, const char *id, const char *layer)
{
    struct task task = {.kind = TASK_REWIND, .asked = asked};
    struct kept *k = boxes_kept_find(b, id);
    struct err err;
    (void)snprintf(task.layer, sizeof(task.layer), "%s", layer);
    if (!k || b->stopping)
        (void)err_set(&err, ERR_NOT_FOUND, "no files of sandbox %s are kept", id);
    else if (k->busy)
        (void)err_set(&err, ERR_FAILED_PRECONDITION, "the files of sandbox %s are being read", id);
    else if (take_kept(k, &task, &err) == 0)
        err.code = ERR_OK;
    if (err.code != ERR_OK) {
        b->events.done(b->events.ctx, asked, &err);
        return;
    }
    boxes_memory_back(k, false); /* it is of other files */
    struct task *t = boxes_task_loose(b, &task);
    const struct job_spec spec = {.name = "rewind", .run = rewind_run, .done = rewind_done, .ctx = t};
    t->job = job_add(b->jobs, &spec);
}
