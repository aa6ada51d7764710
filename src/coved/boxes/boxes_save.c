/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory on disk: with a snapshot, or of a sandbox that is paused to there (tier/memory.h).
 *
 *  1. The box is told by its tier to stand still, which coved can't take back by thawing: is_saving is recorded before,
 *     and whatever comes of the job, and of coved, a box that lives afterwards is told to go on.
 *  2. A snapshot's memory is named after its layer, and goes with it. That of a sandbox is named after the sandbox; it
 *     is of worth as long as its files are kept, and nothing has gone on from it: that begins with a mark. Who comes
 *     back and has not run takes the mark off.
 *  3. What is asked to save may be hostile and never answer: a job has places that it shares with such jobs alone, and
 *     time for what there is to be written. Who has let it pass waits behind all others.
 */
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "coved/boxes/boxes_internal.h"
#include "coved/workers/job.h"
#include "kernel/pool/pool.h"
#include "tier/memory.h"

enum { SAVE_MS = 60000, SAVE_BYTES_PER_MS = 16384 };

void boxes_memory_drop(struct boxes *b, const char *name)
{
    int r = pool_memory_drop(b->host->pool, name);
    if (r < 0 && r != -ENOENT)
        log_error("drop the saved memory of %s: %s", name, strerror(-r));
}

static struct memory_maker save_maker(const struct boxes *b, const struct tier *tier, const struct tier_limits *limits)
{
    return (struct memory_maker){tier, tier_set_powers(b->set, tier)->version, limits};
}

/* ---- the job ---- */

static int save_files(void *ctx)
{
    const struct task *t = ctx;
    int r = fault_error("coved.snapshot");
    return r ? r : t->tier->snapshot(t->owner->host, t->box, t->stands_on, t->layer);
}

static int save_run(void *ctx)
{
    const struct task *t = ctx;
    const struct box *box = &t->entry->box;
    const bool is_snapshot = t->kind == TASK_SNAPSHOT;
    const struct memory_maker by = save_maker(t->owner, t->tier, &box->limits);
    struct tier_saving saving = {
        .ends = !is_snapshot, .passes = t->passes, .files = is_snapshot ? save_files : NULL, .ctx = (void *)t};
    int r = fault_error("coved.save");
    return r ? r : memory_save(t->owner->host, is_snapshot ? t->layer : t->id, &by, box, &saving);
}

/* Of the box's, it has what its tier asks by. */
static void save_job(struct task *t, const char *name, int (*run)(void *ctx), void (*done)(void *ctx, int r))
{
    struct box_entry *e = t->entry;
    const int fds[] = {e->box.pidfd, e->box.sock, e->box.carried_fd};
    const uint64_t ms = SAVE_MS + boxes_memory_usage(e) / SAVE_BYTES_PER_MS;
    const struct job_spec spec = {.name = name,
                                  .run = run,
                                  .done = done,
                                  .ctx = t,
                                  .limit_ms = (uint32_t)MIN(ms, (uint64_t)UINT32_MAX),
                                  .place = JOB_SAVING,
                                  .is_background = e->stops_jobs,
                                  .fds = fds,
                                  .n_fds = e->box.carried_fd < 0 ? 2 : 3};
    t->gone = true;
    t->job = job_add(t->owner->jobs, &spec);
}

void boxes_save_start(struct task *t, void (*done)(void *ctx, int r))
{
    struct box_entry *e = t->entry;
    memcpy(t->box, e->box.name, sizeof(t->box));
    memcpy(t->stands_on, e->stands_on, sizeof(t->stands_on));
    t->begun = clock_mono();
    e->is_saving = true;
    boxes_record(e);
    save_job(t, "save memory", save_run, done);
}

void boxes_save_over(struct box_entry *e, int r)
{
    e->is_saving = false;
    e->stops_jobs = r == -ETIMEDOUT;
    if (r < 0)
        boxes_task_then(e, TASK_GO_ON);
    else
        boxes_record(e);
}

int boxes_save_error(const struct task *t, int r, struct err *err)
{
    if (r == -ENOSPC || r == -EDQUOT) {
        (void)err_set(err, ERR_RESOURCE_EXHAUSTED, "the storage pool is full");
        return err_because(err, ERR_POOL_FULL);
    }
    if (r == -EBUSY)
        return err_set(err, ERR_FAILED_PRECONDITION,
                       "tier %s can't save something that sandbox %s has open: it goes on", t->tier->name, t->id);
    if (r == -ETIMEDOUT)
        return err_set(err, ERR_DEADLINE_EXCEEDED, "the memory of sandbox %s was not saved in time", t->id);
    return err_errno(err, r, "save the memory of sandbox %s", t->id);
}

/* ---- to disk ---- */

static void save_done(void *ctx, int r)
{
    struct task *t = ctx;
    struct err err;
    t->job = NULL;
    fault_point("coved.save.done");
    if (r == 0 && t->entry && !t->aborted) {
        t->entry->is_saving = false;
        t->kind = TASK_STOP;
        t->memory = true;
        boxes_stop_frozen(t, 0);
        return;
    }
    boxes_memory_drop(t->owner, t->id);
    pool_forget(t->owner->host->pool, t->id);
    if (t->entry)
        boxes_save_over(t->entry, r < 0 ? r : -EINTR);
    if (t->aborted)
        (void)err_set(&err, ERR_ABORTED, "sandbox %s ended meanwhile", t->id);
    else
        (void)boxes_save_error(t, r, &err);
    boxes_task_end(t, &err);
}

void boxes_save_begin(struct task *t)
{
    struct err err;
    if (tier_list_saves(&t->owner->set->list, t->tier->name, &err) < 0)
        boxes_task_end(t, &err);
    else if (t->entry->state == BOX_FROZEN)
        boxes_task_end(t, err_set(&err, ERR_FAILED_PRECONDITION, "sandbox %s is paused", t->id) < 0 ? &err : NULL);
    else
        boxes_save_start(t, save_done);
}

/* ---- what was told to stand still goes on ---- */

static int go_on_run(void *ctx)
{
    const struct task *t = ctx;
    return t->tier->go_on ? t->tier->go_on(t->owner->host, &t->entry->box) : 0;
}

static void go_on_done(void *ctx, int r)
{
    struct task *t = ctx;
    struct err err;
    t->job = NULL;
    if (r < 0 && t->entry) /* it would stand still for ever */
        log_error("sandbox %s does not go on after its memory could not be saved: %s", t->id, strerror(-r));
    if (t->entry) {
        t->entry->stops_jobs |= r == -ETIMEDOUT;
        boxes_record(t->entry);
    }
    boxes_task_end(t, r < 0 ? (err_errno(&err, r, "go on") < 0 ? &err : NULL) : NULL);
}

void boxes_go_on_begin(struct task *t)
{
    save_job(t, "go on", go_on_run, go_on_done);
}

/* ---- and back ---- */

int boxes_memory_take(struct boxes *b, const struct outfit *outfit, struct kept *kept, int *ret_fd, struct err *err)
{
    const struct memory_maker want = save_maker(b, outfit->tier, &outfit->limits);
    const char *name = kept ? kept->id : outfit->layer;
    AUTO_CLOSE int fd = -1;
    if (!outfit->memory) {
        if (kept && kept->has_memory)
            boxes_memory_drop(b, kept->id);
        if (kept)
            kept->has_memory = false;
        return 0;
    }
    if (kept && !kept->has_memory)
        return err_set(err, ERR_FAILED_PRECONDITION, "no memory is saved of sandbox %s", kept->id);
    if (memory_open(b->host, name, &want, &fd, err) < 0)
        return -1;
    int r = kept ? memory_mark(b->host, name, true) : 0;
    if (r < 0)
        return err_errno(err, r, "mark the saved memory of %s", name);
    fault_point("coved.memory.marked");
    *ret_fd = TAKE_FD(fd);
    return 0;
}

void boxes_memory_back(struct kept *k, bool memory)
{
    int r = memory ? memory_mark(k->owner->host, k->id, false) : -ENOENT;
    k->has_memory = r == 0;
    if (!k->has_memory)
        boxes_memory_drop(k->owner, k->id);
}

static bool save_is_wanted(void *ctx, const char *name)
{
    struct boxes *b = ctx;
    struct box_entry *e = map_get(&b->by_id, str_of(name));
    const struct kept *k = map_get(&b->kept, str_of(name));
    return (k || (e && boxes_is_stopping(e))) && memory_is_good(b->host, name);
}

void boxes_memory_tidy(struct boxes *b)
{
    int r = pool_memory_tidy(b->host->pool, save_is_wanted, b);
    if (r < 0)
        log_error("look what memory is saved: %s", strerror(-r));
}
