/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Standing still.
 *
 *  1. A group that was told to stand still is thawed, or all in it is killed, in every way out of here: e->is_held says
 *     that it was told.
 *  2. What is frozen dies of SIGKILL only when it is thawed (version 1): who kills a body thaws it afterwards.
 *  3. Nobody waits in a call. The kernel is asked again after 50 us, then in longer steps, for FREEZE_USEC; what has
 *     not stopped by then (it waits for a disk, say) goes on.
 *  4. Who asked for a pause is answered when coved's death would not take the files along any more (boxes_note.c).
 */
#include "base/fault.h"
#include "base/log.h"
#include "coved/boxes/boxes_internal.h"

enum { FREEZE_USEC = 2000000, LOOK_FIRST_USEC = 50, LOOK_MOST_USEC = 10000 };

void boxes_thaw(struct box_entry *e)
{
    list_remove(&e->freezing);
    if (!e->is_held && !e->is_saving) /* whose tier may have frozen it */
        return;
    e->is_held = false;
    int r = e->tier->freeze(e->owner->host, &e->box, false);
    if (r < 0)
        log_error("thaw box %s: %s", e->box.name, strerror(-r));
}

void boxes_yield_memory(struct box_entry *e, bool first)
{
    int r = e->tier->yield(e->owner->host, &e->box, first);
    if (r < 0)
        log_warn("%s the memory of box %s: %s", first ? "release" : "keep", e->box.name, strerror(-r));
}

static void give_up(struct box_entry *e, int r)
{
    boxes_thaw(e);
    boxes_frozen(e, r);
}

static void boxes_pause_look(struct box_entry *e)
{
    usec_t now = clock_mono();
    int r = e->tier->is_frozen(e->owner->host, &e->box);
    if (r == 0 && now - e->freeze_since > FREEZE_USEC)
        r = -ETIMEDOUT;
    if (r < 0) {
        give_up(e, r);
    } else if (r > 0) {
        list_remove(&e->freezing);
        boxes_frozen(e, 0);
    } else {
        e->look_at = now + e->look_usec;
        e->look_usec = MIN(e->look_usec * 2, (usec_t)LOOK_MOST_USEC);
    }
}

void boxes_freeze(struct box_entry *e)
{
    struct boxes *b = e->owner;
    e->is_held = true;
    int r = e->tier->freeze(b->host, &e->box, true);
    if (r < 0) {
        give_up(e, r);
        return;
    }
    e->freeze_since = clock_mono();
    e->look_usec = LOOK_FIRST_USEC;
    list_append(&b->freezing, &e->freezing);
    boxes_pause_look(e);
}

usec_t boxes_watch_freezing(struct boxes *b)
{
    usec_t now = clock_mono(), next = UINT64_MAX;
    LIST_FOREACH (struct box_entry, e, &b->freezing, freezing) {
        if (now >= e->look_at)
            boxes_pause_look(e);
    }
    LIST_FOREACH (struct box_entry, e, &b->freezing, freezing) {
        next = MIN(next, e->look_at);
    }
    return next;
}

int boxes_freeze_error(const struct box_entry *e, int r, struct err *err)
{
    if (r == -ETIMEDOUT)
        return err_set(
            err, ERR_DEADLINE_EXCEEDED,
            "sandbox %s could not be stopped within %d s (perhaps one of its processes waits for the disk): it keeps "
            "running",
            e->id, FREEZE_USEC / 1000000);
    return err_errno(err, r, "freeze sandbox %s", e->id);
}

/* ---- pause and resume ---- */

void boxes_pause_begin(struct task *t)
{
    if (t->entry->state == BOX_FROZEN)
        boxes_task_end(t, NULL);
    else
        boxes_freeze(t->entry);
}

void boxes_pause_frozen(struct task *t, int r)
{
    struct box_entry *e = t->entry;
    struct err err;
    if (r < 0) {
        (void)boxes_freeze_error(e, r, &err);
        if (r == -ETIMEDOUT)
            (void)err_set(
                &err, ERR_DEADLINE_EXCEEDED,
                "sandbox %s could not be stopped within %d s (one of its processes waits for a disk or a lock): it "
                "keeps running. A pause that keeps only its files works, and ends its processes",
                e->id, FREEZE_USEC / 1000000);
        boxes_task_end(t, &err);
        return;
    }
    boxes_enter(e, BOX_FROZEN);
    boxes_yield_memory(e, true);
    boxes_note(e->owner, e->id, e->box.name, e->stands_on);
    fault_point("coved.pause.noted");
    boxes_record(e);
    fault_point("coved.pause.recorded");
    boxes_copy_later(e);
    e->has_given = false;
    boxes_task_end(t, NULL);
}

void boxes_resume_begin(struct task *t)
{
    struct box_entry *e = t->entry;
    if (e->state == BOX_FROZEN) {
        boxes_yield_memory(e, false);
        boxes_copy_is_stale(e);
        boxes_memory_stays(e);
        boxes_enter(e, BOX_RUNNING);
        fault_point("coved.resume.begun");
        boxes_record(e);
        fault_point("coved.resume.recorded");
        boxes_thaw(e);
    } else if (e->may_return && boxes_body_dies(e)) {
        struct err err;
        (void)err_set(&err, ERR_ABORTED, "the first process of sandbox %s has ended", e->id);
        boxes_task_end(t, &err);
        return;
    } else if (e->may_return) {
        e->may_return = false;
        boxes_record(e);
        fault_point("coved.resume.recorded");
        boxes_unnote(e->owner, e->id);
        boxes_memory_drop(e->owner, e->id); /* it has come back with that, or gone on without */
    }
    boxes_task_end(t, NULL);
}

/* The coved before has put its files away, or had begun to. */
static bool stop_again(struct boxes *b, uint64_t asked, const char *id)
{
    const struct kept *k = boxes_kept_find(b, id);
    struct box_entry *e = map_get(&b->by_id, str_of(id));
    struct task *t = e && boxes_is_stopping(e) ? LIST_FIRST(struct task, &e->tasks, node) : NULL;
    if (k && k->is_whole)
        b->events.done(b->events.ctx, asked, NULL);
    LIST_FOREACH (struct task, one, &b->loose, node)
        if (one->kind == TASK_STOP && strcmp(one->id, id) == 0)
            t = one;
    if (t && !t->asked)
        t->asked = asked;
    return (k && k->is_whole) || (t && t->asked == asked);
}

void boxes_pause(struct boxes *b, uint64_t asked, const char *id, enum sup_pause_kind kind, bool is_again)
{
    static const struct task tasks[] = {[SUP_PAUSE_FILES] = {.kind = TASK_STOP},
                                        [SUP_PAUSE_MEMORY] = {.kind = TASK_PAUSE},
                                        [SUP_PAUSE_DISK] = {.kind = TASK_SAVE},
                                        [SUP_PAUSE_BACK] = {.kind = TASK_STOP, .memory = true}};
    struct kept *k = boxes_kept_find(b, id);
    if (is_again && kind != SUP_PAUSE_MEMORY && stop_again(b, asked, id))
        return;
    if (k && (kind == SUP_PAUSE_FILES || kind == SUP_PAUSE_BACK)) {
        boxes_kept_stay(k, kind == SUP_PAUSE_BACK);
        b->events.done(b->events.ctx, asked, NULL);
        return;
    }
    struct task task = tasks[kind];
    task.asked = asked;
    boxes_task_add(b, id, &task);
}

void boxes_resume(struct boxes *b, uint64_t asked, const char *id)
{
    boxes_task_add(b, id, &(struct task){.kind = TASK_RESUME, .asked = asked});
}
