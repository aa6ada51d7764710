/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Following a log. Invariants:
 *  1. A cursor hands out next, and only up to tail->committed; so history and live are the same path, and nothing can
 *     fall between.
 *  2. `drained` is set exactly when the owner was told that there is nothing now; the commit that changes this clears
 *     it and calls wake once.
 *  3. The followers to be woken wait in log->woken, so that a wake may close any of them.
 */
#include "base/mem.h"
#include "event/tail.h"

int event_subscribe(struct event_log *log, const char *sandbox, uint64_t from_seq, event_wake_fn wake, void *ctx,
                    struct event_cursor **ret_cursor, struct err *err)
{
    struct tail *t = tail_get(log, sandbox, err);
    if (!t)
        return -1;
    if (from_seq > t->committed + 1)
        return err_set(err, ERR_OUT_OF_RANGE, "sandbox %s: its log ends with event %llu", sandbox,
                       (unsigned long long)t->committed);
    struct event_cursor *c = mem_new(struct event_cursor);
    c->log = log;
    c->tail = t;
    c->next = MAX(from_seq, (uint64_t)1);
    follower_init(&c->follower, &t->cursors, wake, ctx);
    *ret_cursor = c;
    return 0;
}

void event_cursor_close(struct event_cursor *c)
{
    if (!c)
        return;
    follower_fini(&c->follower);
    mem_free(c);
}

int event_cursor_next(struct event_cursor *c, struct event *ret_event, struct event_gap *ret_gap, struct err *err)
{
    struct event_log *log = c->log;
    struct tail *t = c->tail;
    assert(!log->busy);
    if (!t->loaded && tail_load(log, t, err) < 0)
        return -1;
    if (c->next > t->committed) {
        if (c->next > t->committed + 1)
            return err_set(err, ERR_NOT_FOUND, "sandbox %s: its event log is gone", t->sandbox);
        c->follower.drained = true;
        return EVENT_NEXT_DRAINED;
    }
    uint64_t kept_from = MAX(c->next, t->head.base_seq + 1);
    int r = kept_from > t->committed
                ? 0
                : event_fetch(log, t->head.log, t->sandbox, kept_from, t->committed, ret_event, err);
    if (r < 0)
        return -1;
    uint64_t found = r ? ret_event->seq : t->committed + 1;
    if (found == c->next) {
        c->next++;
        return EVENT_NEXT_EVENT;
    }
    *ret_gap = (struct event_gap){c->next, found - 1};
    c->next = found;
    return EVENT_NEXT_GAP;
}

void cursors_note(struct event_log *log, struct tail *t)
{
    LIST_FOREACH (struct event_cursor, c, &t->cursors, follower.node)
        if (c->next != t->committed + 1)
            follower_note(log, &c->follower);
}

/* ---- followers ---- */

void follower_init(struct follower *f, struct list *others, event_wake_fn wake, void *ctx)
{
    f->wake = wake;
    f->ctx = ctx;
    list_init(&f->woken_node);
    list_append(others, &f->node);
}

void follower_fini(struct follower *f)
{
    list_remove(&f->node);
    list_remove(&f->woken_node);
}

void follower_note(struct event_log *log, struct follower *f)
{
    if (!f->drained)
        return;
    f->drained = false;
    list_remove(&f->woken_node);
    list_append(&log->woken, &f->woken_node);
}

void followers_wake(struct event_log *log)
{
    while (!list_empty(&log->woken)) {
        struct follower *f = LIST_FIRST(struct follower, &log->woken, woken_node);
        list_remove(&f->woken_node);
        if (f->wake)
            f->wake(f->ctx);
    }
}
