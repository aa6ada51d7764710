/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Following a log. Invariants:
 *  1. A cursor hands out next, and only up to tail->committed; so history and live are the same path, and nothing can fall between.
 *  2. `drained` is set exactly when the owner was told that there is nothing now; the commit that changes this clears it and calls wake
 *     once.
 *  3. The cursors to be woken wait in log->woken, so that a wake may close any of them.
 */
#include "base/mem.h"
#include "event/tail.h"

enum { CURRENT_MAX = EVENT_DATA_MAX + EVENT_ACTOR_MAX + 4096 };

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
    c->wake = wake;
    c->ctx = ctx;
    buf_init(&c->current, CURRENT_MAX);
    list_init(&c->woken_node);
    list_append(&t->cursors, &c->node);
    *ret_cursor = c;
    return 0;
}

void event_cursor_close(struct event_cursor *c)
{
    if (!c)
        return;
    list_remove(&c->node);
    list_remove(&c->woken_node);
    buf_fini(&c->current);
    mem_free(c);
}

uint64_t event_cursor_seq(const struct event_cursor *c)
{
    return c->next;
}

/* Copies the texts of the row, since the row is gone with the next statement. */
static int hand_out(struct event_cursor *c, const struct event_row *row, struct event *ret_event, struct err *err)
{
    struct event e = event_of_row(c->tail->sandbox, row);
    struct str *const texts[] = {&e.kind_name, &e.source, &e.grade, &e.actor, &e.data};
    buf_clear(&c->current);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        buf_append_str(&c->current, *texts[i]);
    if (buf_error(&c->current))
        return err_set(err, ERR_DATA_LOSS, "sandbox %s: event %llu is longer than any: verify the log",
                       c->tail->sandbox, (unsigned long long)e.seq);
    const char *p = buf_data(&c->current);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        texts[i]->p = p;
        p += texts[i]->n;
    }
    memcpy(c->hash, e.hash, sizeof(c->hash));
    e.hash = c->hash;
    *ret_event = e;
    return 0;
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
        c->drained = true;
        return EVENT_NEXT_DRAINED;
    }
    struct event_row row;
    uint64_t kept_from = MAX(c->next, t->head.base_seq + 1);
    int r = kept_from > t->committed ? 0 : event_rows_get(log->store, t->head.log, kept_from, t->committed, &row, err);
    if (r < 0)
        return -1;
    uint64_t found = r ? row.seq : t->committed + 1;
    if (found == c->next) {
        r = hand_out(c, &row, ret_event, err);
        event_rows_done(log->store);
        if (r < 0)
            return -1;
        c->next++;
        return EVENT_NEXT_EVENT;
    }
    if (r)
        event_rows_done(log->store);
    *ret_gap = (struct event_gap){c->next, found - 1};
    c->next = found;
    return EVENT_NEXT_GAP;
}

void cursors_note(struct event_log *log, struct tail *t)
{
    LIST_FOREACH (struct event_cursor, c, &t->cursors, node) {
        if (!c->drained || c->next == t->committed + 1)
            continue;
        c->drained = false;
        list_remove(&c->woken_node);
        list_append(&log->woken, &c->woken_node);
    }
}

void cursors_wake(struct event_log *log)
{
    while (!list_empty(&log->woken)) {
        struct event_cursor *c = LIST_FIRST(struct event_cursor, &log->woken, woken_node);
        list_remove(&c->woken_node);
        if (c->wake)
            c->wake(c->ctx);
    }
}
