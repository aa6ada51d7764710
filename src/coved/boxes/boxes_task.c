/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "coved/boxes/boxes_internal.h"
#include "coved/workers/job.h"

static const struct {
    void (*begin)(struct task *t);
    void (*frozen)(struct task *t, int r);
} kinds[TASK_KINDS] = {
    [TASK_PAUSE] = {boxes_pause_begin, boxes_pause_frozen},
    [TASK_RESUME] = {boxes_resume_begin, NULL},
    [TASK_STOP] = {boxes_stop_begin, boxes_stop_frozen},
    [TASK_SNAPSHOT] = {boxes_snapshot_begin, boxes_snapshot_frozen},
    [TASK_MOUNT] = {boxes_mount_begin, NULL},
    [TASK_NEST] = {boxes_nest_begin, NULL},
    [TASK_SAVE] = {boxes_save_begin, NULL},
    [TASK_GO_ON] = {boxes_go_on_begin, NULL},
};

static struct task *task_new(struct boxes *b, const struct task *like)
{
    struct task *t = mem_dup(like, sizeof(*like));
    t->owner = b;
    list_init(&t->node);
    if (t->kind == TASK_SNAPSHOT)
        (void)map_put(&b->making, str_of(t->layer), t);
    return t;
}

static void free_task(struct task *t)
{
    if (t->kind == TASK_SNAPSHOT)
        (void)map_del(&t->owner->making, str_of(t->layer));
    mem_free(t->mount);
    boxes_nest_free(t->nest);
    mem_free(t);
}

static void boxes_task_answer(struct boxes *b, const struct task *t, const struct err *err)
{
    if (t->asked && t->kind == TASK_SNAPSHOT)
        b->events.stored(b->events.ctx, t->asked,
                         &(struct stored){.frozen = t->frozen_for,
                                          .total = t->begun ? clock_mono() - t->begun : 0,
                                          .bytes = t->layer_bytes,
                                          .is_unchanged = t->is_unchanged},
                         err);
    else if (t->asked)
        b->events.done(b->events.ctx, t->asked, err);
}

static struct task *task_queue(struct box_entry *e, const struct task *like)
{
    struct task *t = task_new(e->owner, like);
    t->entry = e;
    t->tier = e->tier;
    memcpy(t->id, e->id, sizeof(t->id));
    list_append(&e->tasks, &t->node);
    if (e->n_tasks++ == 0)
        kinds[t->kind].begin(t);
    return t;
}

void boxes_task_add(struct boxes *b, const char *id, const struct task *task)
{
    struct err err;
    struct box_entry *e = boxes_find(b, id, &err);
    if (e && b->stopping)
        (void)err_set(&err, ERR_UNAVAILABLE, "the service is stopping");
    else if (e && e->ended.cause)
        (void)err_set(&err, ERR_NOT_FOUND, "sandbox %s is ending", id);
    else if (e && e->n_tasks >= TASKS_MAX)
        (void)err_set(&err, ERR_RESOURCE_EXHAUSTED, "too many operations on sandbox %s are in progress", id);
    else if (e)
        err.code = ERR_OK;
    if (!e || err.code != ERR_OK) {
        boxes_task_answer(b, task, &err);
        mem_free(task->mount);
        boxes_nest_free(task->nest);
        return;
    }
    (void)task_queue(e, task);
}

void boxes_task_then(struct box_entry *e, enum task_kind kind)
{
    (void)task_queue(e, &(struct task){.kind = kind});
}

struct task *boxes_task_stop(struct box_entry *e)
{
    assert(e->n_tasks == 0);
    return task_queue(e, &(struct task){.kind = TASK_STOP});
}

struct task *boxes_task_loose(struct boxes *b, const struct task *task)
{
    struct task *t = task_new(b, task);
    list_append(&b->loose, &t->node);
    b->n_loose++;
    return t;
}

struct task *boxes_task_loosen(struct task *t)
{
    struct boxes *b = t->owner;
    list_remove(&t->node);
    t->entry->n_tasks--;
    t->entry = NULL;
    list_append(&b->loose, &t->node);
    b->n_loose++;
    return t;
}

void boxes_task_end(struct task *t, const struct err *err)
{
    struct box_entry *e = t->entry;
    struct boxes *b = t->owner;
    boxes_task_answer(b, t, err);
    list_remove(&t->node);
    if (!e) {
        b->n_loose--;
        free_task(t);
        boxes_serve(b); /* who waits for the files that it was at */
        return;
    }
    free_task(t);
    e->n_tasks--;
    struct task *next = LIST_FIRST(struct task, &e->tasks, node);
    if (next)
        kinds[next->kind].begin(next);
}

void boxes_tasks_abort(struct box_entry *e, const struct err *err)
{
    LIST_FOREACH (struct task, t, &e->tasks, node) {
        if (t->job) {
            t->aborted = true;
            if (!t->gone)
                job_kill(t->job);
            (void)boxes_task_loosen(t); /* answered when the job is done */
            continue;
        }
        boxes_task_answer(t->owner, t, err);
        list_remove(&t->node);
        free_task(t);
        e->n_tasks--;
    }
}

bool boxes_is_stopping(const struct box_entry *e)
{
    const struct task *t = LIST_FIRST(struct task, &e->tasks, node);
    return t && t->kind == TASK_STOP && !e->ended.cause;
}

void boxes_frozen(struct box_entry *e, int r)
{
    struct task *t = LIST_FIRST(struct task, &e->tasks, node);
    assert(t && kinds[t->kind].frozen);
    kinds[t->kind].frozen(t, r);
}
