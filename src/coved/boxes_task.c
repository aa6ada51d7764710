/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "coved/boxes_internal.h"

enum { TASKS_MAX = 16 }; /* of one sandbox */

static const struct {
    void (*begin)(struct task *t);
    void (*frozen)(struct task *t, int r);
} kinds[TASK_KINDS] = {
    [TASK_PAUSE] = {boxes_pause_begin, boxes_pause_frozen},
    [TASK_RESUME] = {boxes_resume_begin, NULL},
};

static void answer(struct boxes *b, const struct task *t, const struct err *err)
{
    if (t->asked)
        b->events.done(b->events.ctx, t->asked, err);
}

void boxes_task_add(struct boxes *b, const char *id, const struct task *task)
{
    struct err err;
    struct entry *e = boxes_find(b, id, &err);
    if (e && b->stopping)
        (void)err_set(&err, ERR_UNAVAILABLE, "the service is stopping");
    else if (e && e->ended.cause)
        (void)err_set(&err, ERR_NOT_FOUND, "sandbox %s is ending", id);
    else if (e && e->n_tasks >= TASKS_MAX)
        (void)err_set(&err, ERR_RESOURCE_EXHAUSTED, "too much is being done to sandbox %s already", id);
    else if (e)
        err.code = ERR_OK;
    if (err.code != ERR_OK) {
        answer(b, task, &err);
        return;
    }
    struct task *t = mem_dup(task, sizeof(*task));
    t->owner = b;
    t->entry = e;
    list_init(&t->node);
    list_append(&e->tasks, &t->node);
    if (e->n_tasks++ == 0)
        kinds[t->kind].begin(t);
}

void boxes_task_end(struct task *t, const struct err *err)
{
    struct entry *e = t->entry;
    answer(t->owner, t, err);
    list_remove(&t->node);
    mem_free(t);
    e->n_tasks--;
    struct task *next = LIST_FIRST(struct task, &e->tasks, node);
    if (next)
        kinds[next->kind].begin(next);
}

void boxes_tasks_abort(struct entry *e, const struct err *err)
{
    LIST_FOREACH (struct task, t, &e->tasks, node) {
        answer(t->owner, t, err);
        list_remove(&t->node);
        mem_free(t);
    }
    e->n_tasks = 0;
}

void boxes_frozen(struct entry *e, int r)
{
    struct task *t = LIST_FIRST(struct task, &e->tasks, node);
    assert(t && kinds[t->kind].frozen);
    kinds[t->kind].frozen(t, r);
}
