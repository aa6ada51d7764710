/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariants
 *  1. `runs` are committed and not in the table; `pending` belong to this batch. Ordered by cursor, `pending` goes on
 *     where `runs` ends, and `runs` where the table ends. A batch that `spills` writes all of both as it ends.
 *  2. `last` is the last committed cursor; `given` the last one given out, which is `last` when no batch is open.
 *  3. The newest row of the table is never swept, and a batch in which the head of a log goes spills; so after a
 *     restart the last cursor is known.
 */
#include "event/feed.h"
#include "base/mem.h"
#include "event/tail.h"

#include <stdlib.h>

enum {
    FEED_SPILL_RUNS = 256,
    FEED_SPILL_EVENTS = 16384, /* what a restart has to look for */
    FEED_SWEEP_ROWS = 2000,
};

struct feed_reader {
    struct event_log *log;
    struct follower follower;
    uint64_t next;
    struct feed_run run; /* n 0: none; holds `next`, or begins with it */
    bool sees;           /* its events */
    feed_filter_fn filter;
    void *ctx;
};

/* ---- runs ---- */

static void feed_runs_add(struct feed_runs *runs, const struct feed_run *run)
{
    struct feed_run *last = runs->n ? &runs->v[runs->n - 1] : NULL;
    runs->events += run->n;
    if (last && last->log == run->log && last->seq + last->n == run->seq && last->cursor + last->n == run->cursor) {
        last->n += run->n;
        return;
    }
    if (runs->n == runs->cap) {
        runs->cap = MAX(runs->cap * 2, (size_t)16);
        runs->v = mem_realloc(runs->v, runs->cap * sizeof(*runs->v));
    }
    assert(runs->v);
    runs->v[runs->n++] = *run;
}

static const struct feed_run *feed_runs_find(const struct feed_runs *runs, uint64_t cursor)
{
    size_t low = 0, high = runs->n;
    while (low < high) {
        size_t at = (low + high) / 2;
        if (runs->v[at].cursor + runs->v[at].n <= cursor)
            low = at + 1;
        else
            high = at;
    }
    return low < runs->n ? &runs->v[low] : NULL;
}

static void feed_note_unlisted(const struct feed_run *run, void *ctx)
{
    struct feed_runs *found = ctx;
    if (found->n == found->cap) {
        found->cap = MAX(found->cap * 2, (size_t)64);
        found->v = mem_realloc(found->v, found->cap * sizeof(*found->v));
    }
    found->v[found->n++] = *run;
}

static int feed_by_cursor(const void *a, const void *b)
{
    const struct feed_run *x = a, *y = b;
    return (x->cursor > y->cursor) - (x->cursor < y->cursor);
}

/* Lazily: who only verifies or replays a log needs none of it. */
static int feed_load(struct event_log *log, struct err *err)
{
    struct feed *f = &log->feed;
    struct feed_runs found = {0};
    uint64_t first, listed, last;
    if (f->is_loaded)
        return 0;
    if (feed_rows_bounds(log->store, &first, &listed, err) < 0 ||
        feed_rows_unlisted(log->store, listed, feed_note_unlisted, &found, &last, err) < 0) {
        mem_free(found.v);
        return -1;
    }
    if (found.n)
        qsort(found.v, found.n, sizeof(*found.v), feed_by_cursor);
    for (size_t i = 0; i < found.n; i++)
        feed_runs_add(&f->runs, &found.v[i]);
    mem_free(found.v);
    f->last = f->given = last;
    f->is_loaded = true;
    return 0;
}

void feed_init(struct feed *f)
{
    list_init(&f->readers);
}

void feed_fini(struct feed *f)
{
    assert(list_empty(&f->readers));
    MEM_FREE(f->runs.v, f->pending.v);
}

/* ---- appending ---- */

int feed_give(struct event_log *log, uint64_t *ret_cursor, struct err *err)
{
    if (feed_load(log, err) < 0)
        return -1;
    *ret_cursor = log->feed.given + 1;
    return 0;
}

void feed_add(struct event_log *log, const struct tail *t, const struct event_row *row)
{
    struct feed_run run = {.cursor = row->cursor, .seq = row->seq, .n = 1, .log = t->head.log};
    static_assert(sizeof(run.name) == sizeof(t->sandbox), "an id fits");
    memcpy(run.name, t->sandbox, sizeof(run.name));
    log->feed.given = row->cursor;
    feed_runs_add(&log->feed.pending, &run);
}

static int feed_spill(struct event_log *log, const struct feed_runs *runs, struct err *err)
{
    for (size_t i = 0; i < runs->n; i++)
        if (feed_rows_put(log->store, &runs->v[i], err) < 0)
            return -1;
    return 0;
}

int feed_head_gone(struct event_log *log, struct err *err)
{
    log->feed.spills = true;
    return feed_load(log, err);
}

int feed_batch_ending(struct event_log *log, struct err *err)
{
    struct feed *f = &log->feed;
    f->spills = f->spills || f->runs.n >= FEED_SPILL_RUNS || f->runs.events >= FEED_SPILL_EVENTS;
    return f->spills && (feed_spill(log, &f->runs, err) < 0 || feed_spill(log, &f->pending, err) < 0) ? -1 : 0;
}

void feed_batch_ended(struct event_log *log, bool committed)
{
    struct feed *f = &log->feed;
    if (committed && f->pending.n)
        LIST_FOREACH (struct feed_reader, r, &f->readers, follower.node)
            follower_note(log, &r->follower);
    if (committed && f->spills)
        f->runs.n = f->runs.events = 0;
    for (size_t i = 0; committed && !f->spills && i < f->pending.n; i++)
        feed_runs_add(&f->runs, &f->pending.v[i]);
    f->pending.n = f->pending.events = 0;
    f->spills = false;
    if (committed)
        f->last = f->given;
    f->given = f->last;
}

/* ---- reading ---- */

int feed_bounds(struct event_log *log, struct event_bounds *ret_bounds, struct err *err)
{
    const struct feed *f = &log->feed;
    uint64_t first, listed;
    if (feed_load(log, err) < 0 || feed_rows_bounds(log->store, &first, &listed, err) < 0)
        return -1;
    if (!first && f->runs.n)
        first = f->runs.v[0].cursor;
    *ret_bounds = (struct event_bounds){.first = first, .last = f->last};
    return 0;
}

int feed_open(struct event_log *log, const struct feed_want *want, struct feed_reader **ret_reader, struct err *err)
{
    if (feed_load(log, err) < 0)
        return -1;
    if (want->after > log->feed.last)
        return err_set(err, ERR_OUT_OF_RANGE, "the feed ends with cursor %llu", (unsigned long long)log->feed.last);
    struct feed_reader *r = mem_new(struct feed_reader);
    r->log = log;
    r->next = want->after + 1;
    r->filter = want->filter;
    r->ctx = want->ctx;
    follower_init(&r->follower, &log->feed.readers, want->wake, want->ctx);
    *ret_reader = r;
    return 0;
}

void feed_close(struct feed_reader *r)
{
    if (!r)
        return;
    follower_fini(&r->follower);
    mem_free(r);
}

uint64_t feed_after(const struct feed_reader *r)
{
    return r->next - 1;
}

/* The run that holds the next cursor, or the first one behind it: 1, 0 when there is none. */
static int feed_find(struct event_log *log, uint64_t cursor, struct feed_run *ret_run, struct err *err)
{
    const struct feed *f = &log->feed;
    if (!f->runs.n || cursor < f->runs.v[0].cursor) {
        int r = feed_rows_get(log->store, cursor, ret_run, err);
        if (r)
            return r;
    }
    const struct feed_run *run = feed_runs_find(&f->runs, cursor);
    if (run)
        *ret_run = *run;
    return run != NULL;
}

static int feed_gap(struct feed_reader *r, uint64_t n, struct event_gap *ret_gap)
{
    *ret_gap = (struct event_gap){r->next, r->next + n - 1};
    r->next += n;
    return EVENT_NEXT_GAP;
}

int feed_next(struct feed_reader *r, struct event *ret_event, struct event_gap *ret_gap, struct err *err)
{
    struct event_log *log = r->log;
    uint64_t last = log->feed.last;
    assert(!log->busy);
    if (r->next > last) {
        r->follower.drained = true;
        return EVENT_NEXT_DRAINED;
    }
    if (r->next >= r->run.cursor + r->run.n) {
        r->run.n = 0;
        int found = feed_find(log, r->next, &r->run, err);
        if (found < 0)
            return -1;
        if (found == 0)
            return feed_gap(r, last - r->next + 1, ret_gap);
        r->sees = !r->run.name[0] || !r->filter || r->filter(r->ctx, r->run.name);
        if (r->run.cursor > r->next)
            return feed_gap(r, r->run.cursor - r->next, ret_gap);
    }
    uint64_t done = r->next - r->run.cursor, left = r->run.n - done, seq = r->run.seq + done;
    if (!r->run.name[0])
        return feed_gap(r, left, ret_gap);
    if (!r->sees) {
        r->next += left;
        return FEED_NEXT_SKIPPED;
    }
    int found = event_fetch(log, r->run.log, r->run.name, seq, seq + left - 1, ret_event, err);
    if (found < 0)
        return -1;
    if (found == 0)
        return feed_gap(r, left, ret_gap);
    if (ret_event->seq > seq)
        return feed_gap(r, ret_event->seq - seq, ret_gap);
    ret_event->cursor = r->next++;
    return EVENT_NEXT_EVENT;
}

int feed_sweep(struct event_log *log, struct err *err)
{
    return feed_rows_sweep(log->store, &log->feed.swept, FEED_SWEEP_ROWS, err);
}
