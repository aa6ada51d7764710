/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files without processes.
 *
 *  1. Pausing without memory: the body is killed and reaped, then a job puts the files away; from the moment at which
 *     it is reaped the sandbox is told of as kept. There is no way back, so a job that fails is tried again; when
 *     KEEP_TRIES have failed the files go, and its end is reported.
 *  2. Resuming takes them: they are a box's again. When that ends before SUP_RESUME has said that the start is done, by
 *     itself or with coved, they are put away again, and no end is told of; so they are when the resume is called off.
 *     Whether what was saved of its memory is still of worth then, only who resumes it can say (boxes_kept_stay()).
 *  3. Of a frozen sandbox a copy is kept, where that costs little: the loss of its memory is not that of its files, by
 *     a power cut neither. The copy goes before the sandbox runs. Until it is there, and where there is none, a note
 *     says whose files the box has (boxes_note.c).
 *  4. What is killed while somebody is at it (busy) goes when nobody is any more; its end is reported then.
 */
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "coved/boxes/boxes_internal.h"
#include "coved/workers/job.h"
#include "tier/files.h"
#include "tier/memory.h"

#include <signal.h>
#include <unistd.h>

enum {
    COPY_AFTER_MS = 100, /* who pauses for a moment only is not made to wait for it */
    FULL_TRIES =
        100, /* its processes are gone: a disk that is full at this moment is waited for, 20 s, before its files are lost too */
    FULL_WAIT_USEC = 200000,
    KEEP_TRIES = 20,
    KEEP_AGAIN_USEC = 250000,
};

/* ---- what there is ---- */

struct kept *boxes_kept_find(struct boxes *b, const char *id)
{
    struct kept *k = map_get(&b->kept, str_of(id));
    return k && !k->is_doomed ? k : NULL;
}

static struct kept *boxes_keep_add(struct boxes *b, const char *id, const char *stands_on)
{
    struct kept *k = mem_new(struct kept);
    k->owner = b;
    (void)snprintf(k->id, sizeof(k->id), "%s", id);
    (void)snprintf(k->stands_on, sizeof(k->stands_on), "%s", stands_on);
    (void)map_put(&b->kept, str_of(k->id), k);
    return k;
}

static void boxes_keep_forget(struct kept *k)
{
    struct boxes *b = k->owner;
    (void)map_del(&b->kept, str_of(k->id));
    b->n_doomed -= k->is_doomed;
    mem_free(k);
}

void boxes_kept_release(struct kept *k)
{
    assert(k->busy > 0);
    k->busy--;
}

void boxes_kept_taken(struct kept *k)
{
    boxes_kept_release(k);
    boxes_keep_forget(k);
}

void boxes_kept_doom(struct kept *k)
{
    k->is_doomed = true;
    k->owner->n_doomed++;
}

static void report_end(struct boxes *b, const char *id, enum sup_cause cause)
{
    struct sup_ended ended = {.head = {.type = SUP_ENDED}, .cause = cause, .status = SIGKILL};
    (void)snprintf(ended.id, sizeof(ended.id), "%s", id);
    b->events.ended(b->events.ctx, &ended);
}

static void drop_doomed(struct kept *k)
{
    int r = pool_kept_drop(k->owner->host->pool, k->id);
    if (r < 0 && r != -ENOENT)
        log_error("delete the kept files of sandbox %s: %s", k->id, strerror(-r));
    boxes_memory_drop(k->owner, k->id);
    report_end(k->owner, k->id, SUP_CAUSE_KILLED);
    boxes_keep_forget(k);
}

static void load(void *ctx, const char *sandbox, const char *stands_on)
{
    struct boxes *b = ctx;
    struct kept *k = boxes_keep_add(b, sandbox, stands_on);
    k->is_whole = true;
    k->has_memory = memory_is_good(b->host, sandbox);
}

int boxes_keep_load(struct boxes *b, struct err *err)
{
    int r = files_kept_each(b->host, load, b);
    return r < 0 ? err_errno(err, r, "list the paused sandboxes in the storage pool (they are left alone)") : 0;
}

void boxes_keep_fini(struct boxes *b)
{
    size_t it = 0;
    for (struct kept *k; (k = map_next(&b->kept, &it));)
        mem_free(k);
    map_fini(&b->kept);
}

/* ---- pausing without memory ---- */

static int keep_run(void *ctx)
{
    const struct task *t = ctx;
    const struct tier_host *host = t->owner->host;
    char stands_on[POOL_LAYER_MAX];
    fault_point("coved.keep.begin");
    int r = fault_error("coved.keep");
    if (r < 0)
        return r;
    for (int i = 0; i < FULL_TRIES; i++, (void)usleep(FULL_WAIT_USEC)) {
        r = files_keep(host, t->box, t->id, t->stands_on);
        if (r != -ENOSPC && r != -EDQUOT)
            break;
    }
    /* One that was ended before it could answer may have done it. */
    return r == -ENOENT && t->tries && files_kept_below(host, t->id, stands_on) == 0 ? 0 : r;
}

static void keep_failed(struct task *t, int r, struct err *err)
{
    struct boxes *b = t->owner;
    (void)err_errno(err, r, "keep the files of sandbox %s", t->id);
    log_error("%s", err->msg);
    r = pool_box_drop(b->host->pool, t->box);
    if (r < 0)
        log_error("delete the files of sandbox %s: %s", t->id, strerror(-r));
    if (!t->kept->is_doomed)
        boxes_kept_doom(t->kept);
}

static void keep_done(void *ctx, int r)
{
    struct task *t = ctx;
    struct boxes *b = t->owner;
    struct err err;
    err.code = ERR_OK;
    t->job = NULL;
    fault_point("coved.keep.made");
    /* No process to be had, no descriptors, one that was killed: none of it is the files' fault. A full disk was waited
     * for. */
    bool is_full = r == -ENOSPC || r == -EDQUOT;
    if (r < 0 && !is_full && !t->kept->is_doomed && ++t->tries < KEEP_TRIES) {
        log_warn("keep the files of sandbox %s: %s; trying again", t->id, strerror(-r));
        t->again_at = clock_mono() + KEEP_AGAIN_USEC;
        b->n_again++;
        return;
    }
    boxes_kept_release(t->kept);
    if (r == 0) {
        t->kept->is_whole = true;
        if (!t->is_early)
            boxes_memory_back(t->kept, t->memory);
    } else {
        keep_failed(t, r, &err);
    }
    boxes_unnote(b, t->id);
    if (err.code == ERR_OK && t->kept->is_doomed)
        (void)err_set(&err, ERR_ABORTED, "sandbox %s was killed meanwhile", t->id);
    boxes_task_end(t, err.code == ERR_OK ? NULL : &err);
}

static void keep_start(struct task *t)
{
    const struct job_spec spec = {.name = "keep files", .run = keep_run, .done = keep_done, .ctx = t};
    t->job = job_add(t->owner->jobs, &spec);
}

void boxes_stop_begin(struct task *t)
{
    struct box_entry *e = t->entry;
    if (e->tier->writes_late && e->state != BOX_FROZEN)
        boxes_freeze(e); /* boxes_stop_frozen() */
    else
        boxes_stop_frozen(t, 0);
}

/* What could not be written out in time is lost, as by a power cut: nobody is kept from a pause by that. */
void boxes_stop_frozen(struct task *t, int r)
{
    struct box_entry *e = t->entry;
    if (r < 0)
        log_warn("sandbox %s ended before its data was written to disk: %s", e->id, strerror(-r));
    boxes_note(e->owner, e->id, e->box.name, e->stands_on);
    boxes_record(e);
    fault_point("coved.stop.recorded");
    boxes_kill_body(e); /* boxes_stop_reaped() */
}

/* What asked for that, or asks when another task is done that never will be; or one that nobody asked for. */
static struct task *keep_task(struct box_entry *e)
{
    struct task early = {.kind = TASK_STOP, .is_early = true};
    LIST_FOREACH (struct task, t, &e->tasks, node) {
        if (t->kind == TASK_STOP)
            return boxes_task_loosen(t);
    }
    memcpy(early.id, e->id, sizeof(early.id));
    return boxes_task_loose(e->owner, &early);
}

void boxes_stop_reaped(struct box_entry *e)
{
    struct task *t = keep_task(e);
    struct boxes *b = e->owner;
    struct box_copy *copy = e->copy;
    memcpy(t->box, e->box.name, sizeof(t->box));
    memcpy(t->stands_on, e->stands_on, sizeof(t->stands_on));
    fault_point("coved.keep.reaped");
    t->kept = boxes_keep_add(b, e->id, e->stands_on);
    t->kept->busy = 1;
    e->box.has_files = false; /* the task's */
    e->has_copy = false;      /* it takes that one's place */
    e->is_silent = true;
    e->copy = NULL;
    if (copy) { /* under the same name */
        copy->entry = NULL;
        copy->next = t;
    } else {
        keep_start(t);
    }
}

void boxes_give_back(struct box_entry *e)
{
    struct kept *k = TAKE_PTR(e->kept);
    if (!e->box.has_files || k->is_doomed) {
        boxes_unnote(k->owner, k->id);
        k->is_whole = !e->box.has_files;
        boxes_kept_release(k);
        boxes_serve(e->owner);
        return;
    }
    struct task task = {.kind = TASK_STOP, .kept = k, .memory = k->has_memory};
    memcpy(task.id, k->id, sizeof(task.id));
    memcpy(task.box, e->box.name, sizeof(task.box));
    memcpy(task.stands_on, e->stands_on, sizeof(task.stands_on));
    e->box.has_files = false;
    keep_start(boxes_task_loose(e->owner, &task));
}

void boxes_kept_stay(struct kept *k, bool memory)
{
    struct boxes *b = k->owner;
    struct err err;
    (void)err_set(&err, ERR_ABORTED, "sandbox %s is paused again", k->id);
    LIST_FOREACH (struct waiting, w, &b->waiting, node) {
        if (!w->request.kept || strcmp(w->request.id, k->id) != 0)
            continue;
        list_remove(&w->node);
        b->n_waiting--;
        boxes_refuse(b, w, &err);
    }
    LIST_FOREACH (struct box_entry, e, &b->lists[BOX_DRESSING], node) {
        if (e->kept != k || !e->request)
            continue;
        boxes_refuse(b, TAKE_PTR(e->request), &err);
        boxes_kill_unused(e); /* boxes_give_back() */
    }
    boxes_memory_back(k, memory);
}

/* ---- copies of frozen ones ---- */

static int copy_run(void *ctx)
{
    const struct box_copy *c = ctx;
    fault_point("coved.copy.begin");
    int r = fault_error("coved.copy");
    return r ? r : files_copy(c->owner->host, c->box, c->id, c->stands_on);
}

static void copy_done(void *ctx, int r)
{
    struct box_copy *c = ctx;
    struct boxes *b = c->owner;
    struct box_entry *e = c->entry;
    bool is_good = e && !c->is_stale;
    if (r < 0) {
        pool_forget(b->host->pool, c->id);
        int ignored UNUSED = c->next ? 0 : pool_kept_drop(b->host->pool, c->id); /* it may have died right after it */
    }
    if (r < 0)
        log_warn("copy the files of paused sandbox %s (until then a power cut would lose them): %s", c->id,
                 strerror(-r));
    if (r == 0 && is_good) {
        e->has_copy = true;
        boxes_unnote(b, e->id);
    }
    if (r == 0 && !is_good && !c->next && (r = pool_kept_drop(b->host->pool, c->id)) < 0 && r != -ENOENT)
        log_error("delete a copy of the files of sandbox %s: %s", c->id, strerror(-r));
    if (e)
        e->copy = NULL;
    if (e && !is_good && e->state == BOX_FROZEN)
        boxes_copy_later(e); /* it was resumed and paused again meanwhile */
    if (c->next)
        keep_start(c->next);
    b->n_copies--;
    mem_free(c);
}

static void copy_begin(struct box_entry *e)
{
    struct boxes *b = e->owner;
    struct box_copy *c = mem_new(struct box_copy);
    list_remove(&e->to_copy);
    c->owner = b;
    c->entry = e;
    memcpy(c->id, e->id, sizeof(c->id));
    memcpy(c->box, e->box.name, sizeof(c->box));
    memcpy(c->stands_on, e->stands_on, sizeof(c->stands_on));
    e->copy = c;
    b->n_copies++;
    const struct job_spec spec = {
        .name = "copy files", .run = copy_run, .done = copy_done, .ctx = c, .is_background = true};
    (void)job_add(b->jobs, &spec);
}

void boxes_copy_later(struct box_entry *e)
{
    struct boxes *b = e->owner;
    if (!pool_features(b->host->pool)->cheap_clones || e->copy)
        return;
    e->copy_at = clock_mono() + COPY_AFTER_MS * USEC_PER_MS;
    list_append(&b->to_copy, &e->to_copy);
}

void boxes_copy_is_stale(struct box_entry *e)
{
    list_remove(&e->to_copy);
    if (e->copy)
        e->copy->is_stale = true;
    /* Under way, it may be there already; then copy_done() comes too late to drop it before the sandbox runs, and drops
     * it if not. */
    int r = e->has_copy || e->copy ? pool_kept_drop(e->owner->host->pool, e->id) : 0;
    if (r < 0 && r != -ENOENT)
        log_error("delete the copy of the files of sandbox %s: %s", e->id, strerror(-r));
    e->has_copy = false;
    boxes_unnote(e->owner, e->id);
}

/* ---- */

/* Those of keep_done(). */
static usec_t keep_again(struct boxes *b, usec_t now)
{
    usec_t next = UINT64_MAX;
    if (!b->n_again)
        return next;
    LIST_FOREACH (struct task, t, &b->loose, node) {
        if (!t->again_at)
            continue;
        if (now < t->again_at) {
            next = MIN(next, t->again_at);
            continue;
        }
        t->again_at = 0;
        b->n_again--;
        keep_start(t);
    }
    return next;
}

usec_t boxes_keep_tick(struct boxes *b)
{
    usec_t now = clock_mono(), again = keep_again(b, now);
    if (b->n_doomed) {
        struct kept *gone[16];
        size_t n = 0, it = 0;
        for (struct kept *k; n < ARRAY_SIZE(gone) && (k = map_next(&b->kept, &it));)
            if (k->is_doomed && k->busy == 0)
                gone[n++] = k;
        for (size_t i = 0; i < n; i++)
            drop_doomed(gone[i]);
        if (n == ARRAY_SIZE(gone))
            return 0;
    }
    struct box_entry *e;
    while ((e = LIST_FIRST(struct box_entry, &b->to_copy, to_copy)) && now >= e->copy_at)
        copy_begin(e);
    return MIN(e ? e->copy_at : UINT64_MAX, again);
}
