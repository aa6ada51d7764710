/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The feed: the events of all logs in the order in which they were committed, for the console, guards, webhooks and
 * exporters. Each event has a number in it, its cursor.
 *
 * Theory of operation
 *  1. Cursors are 1, 2, 3, ... They are given out by append and taken back when the batch is undone. The store has one
 *     writer, so committed cursors have no hole, and who sees an event can see all with smaller cursors. They survive
 *     restarts and never come again.
 *  2. A run is a number of events that follow one another both in the feed and in their log; runs are the index of the
 *     feed. They are written in bulk, because a row for each commit would cost a tenth of an append. Those not written
 *     yet are in memory, and are found again after a crash by the cursor that stands in each event's row
 *     (feed_rows_unlisted()).
 *  3. A reader holds its cursor and nothing else. It pulls, and is told once when there is more after it was drained.
 *  4. Logs are pruned and erased without a look at the feed. What is gone is told as a gap. feed_sweep() takes the runs
 *     of such events out of the index.
 *  5. The hash chains of the logs know nothing of the feed: it is an order, not evidence.
 */
#pragma once

#include "event/log.h"

struct feed_reader;

/* first: where the index begins (0 when nothing was ever committed); what has been pruned behind it is told as gaps. */
int feed_bounds(struct event_log *log, struct event_bounds *ret_bounds, struct err *err) WARN_UNUSED;

/* May this reader see events of this log? Asked once for each run, so its answer should not change while the reader is
 * open. */
typedef bool (*feed_filter_fn)(void *ctx, const char *log_id);

struct feed_want {
    uint64_t after;        /* the last cursor that the reader knows; 0: from the beginning */
    feed_filter_fn filter; /* NULL: everything */
    event_wake_fn wake;    /* NULL: it does not wait */
    void *ctx;
};

/* ERR_OUT_OF_RANGE: `after` is a cursor that was never given out, so the client knows another feed. */
int feed_open(struct event_log *log, const struct feed_want *want, struct feed_reader **ret_reader,
              struct err *err) WARN_UNUSED;
void feed_close(struct feed_reader *reader);
DEFINE_AUTO(struct feed_reader *, feed_close)

enum { FEED_NEXT_SKIPPED = 3 }; /* the filter hides some events; call again */

/*
 * One bounded step: an enum event_next or FEED_NEXT_SKIPPED, as event_cursor_next(), where the numbers of a gap are
 * cursors. ret_event->cursor is set.
 */
int feed_next(struct feed_reader *reader, struct event *ret_event, struct event_gap *ret_gap,
              struct err *err) WARN_UNUSED;

uint64_t
feed_after(const struct feed_reader *reader); /* the last cursor that it is done with: for the next feed_open() */

/* Drops a bounded part of the index that leads to nothing any more. For a timer. */
int feed_sweep(struct event_log *log, struct err *err) WARN_UNUSED;
