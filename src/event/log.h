/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event log: one append-only, hash-chained sequence of events per sandbox, kept in the store.
 *
 * Theory of operation
 *  1. seq is gapless per sandbox and starts with 1. An append takes part in the store's current batch: it is there for
 *     good, with all that was written beside it, when store_commit() says so, and gone, its seq free again, when that
 *     fails.
 *  2. Nobody is shown what is not committed: reads, subscriptions and verification end at the last committed event.
 *  3. The last seq and hash of each sandbox stand in a row of their own (the head), written in the same batch. The
 *     chain ends there, so a cut tail is found. The chain itself is defined in event/chain.h.
 *  4. Nothing is changed afterwards. Pruning takes away the oldest part, keeps the hash it ended with, and is an event
 *     itself.
 *  5. A subscription is a cursor that its owner pulls from, and a call that says "there is more". So a slow reader
 *     costs nothing.
 *
 * Thread: that of the store. Functions return 0 or positive, or -1 with *err filled.
 */
#pragma once

#include "base/err.h"
#include "event/event.h"

struct store;
struct event_log;
struct event_cursor;

/* The store is borrowed and outlives the log; over a reader store there are event_bounds_get(), event_read() and
 * verify.h. */
int event_log_open(struct store *store, struct event_log **ret_log, struct err *err) WARN_UNUSED;
void event_log_close(struct event_log *log); /* cursors must be gone; NULL is fine */
DEFINE_AUTO(struct event_log *, event_log_close)

/* ---- appending ---- */

struct event_draft {
    const char *sandbox;
    enum event_kind kind;
    enum event_source source;
    enum event_grade grade;
    struct str actor;
    uint64_t cause;
    struct str data; /* JSON object text; empty: {} */
    usec_t time;     /* 0: now */
    uint32_t count;  /* of things that it tells of, for event_append_limited(); 0: one */
};

/*
 * Appends to the current batch. Data that is longer than EVENT_DATA_MAX, or is no JSON object, is not lost silently: it
 * becomes {"truncated":true,"bytes":<length>,"head":"<its first bytes>"}, or the same with "malformed". ret_seq may be
 * NULL.
 */
int event_append(struct event_log *log, const struct event_draft *draft, uint64_t *ret_seq,
                 struct err *err) WARN_UNUSED;

/*
 * The same for what somebody else can cause without end: at most `burst` events of this kind per window and sandbox.
 * An event of several things counts as so many, and the last one is not cut.
 * Returns 1 when appended, 0 when suppressed (*ret_seq is 0 then). The next one that is let through is preceded by one
 * log.suppressed event with the count; sandbox.ended and sandbox.failed are preceded by all that is due.
 */
struct event_limit {
    uint32_t burst;
    usec_t window;
};
int event_append_limited(struct event_log *log, const struct event_draft *draft, const struct event_limit *limit,
                         uint64_t *ret_seq, struct err *err) WARN_UNUSED;

/*
 * The limit for what goes on for as long as the sandbox does: the more of it is in the log, the less is added. `told`
 * are there; after EVENT_TOLD_IN_FULL a tenth of per_sec is, after EVENT_TOLD_CLOSELY a tenth in a minute.
 */
enum { EVENT_TOLD_IN_FULL = 20000, EVENT_TOLD_CLOSELY = 100000 };
struct event_limit event_limit_after(uint64_t told, uint32_t per_sec);

/* How many of each kind were committed since the log was opened. */
const uint64_t *event_counts(const struct event_log *log);

/* Writes the log.suppressed events that are due now, of all sandboxes. For a timer of a second or so. */
int event_flush_suppressed(struct event_log *log, struct err *err) WARN_UNUSED;

/* ---- reading ---- */

struct event_bounds {
    uint64_t first; /* oldest seq still kept; last + 1 when nothing is */
    uint64_t last;  /* newest committed seq, 0: none yet */
};

/* ERR_NOT_FOUND when the sandbox never had an event. Works for ended sandboxes, as all below. */
int event_bounds_get(struct event_log *log, const char *sandbox, struct event_bounds *ret_bounds,
                     struct err *err) WARN_UNUSED;

uint64_t event_newest(struct event_log *log, const char *sandbox); /* its seq, also of the current batch; 0: none */

/* The event is valid during the call. Return false to stop. Must not call the log or the store. */
typedef bool (*event_fn)(const struct event *event, void *ctx);

/*
 * Up to `limit` events from from_seq on (0 is 1), oldest first. A range that was pruned is skipped: the first event's
 * seq tells. Returns how many were handed over.
 */
int event_read(struct event_log *log, const char *sandbox, uint64_t from_seq, size_t limit, event_fn fn, void *ctx,
               struct err *err) WARN_UNUSED;

/* ---- following ---- */

/* "There is more": once after each time the cursor was drained. Comes out of store_commit(); may pull, close, not
 * append. */
typedef void (*event_wake_fn)(void *ctx);

/*
 * A cursor before from_seq (0 is 1: all; bounds.last + 1: only what comes). The sandbox need not have an event yet. No
 * gap, no duplicate between history and live. Beyond last + 1 is ERR_OUT_OF_RANGE: the client knows a log that this is
 * not. wake may be NULL.
 */
int event_subscribe(struct event_log *log, const char *sandbox, uint64_t from_seq, event_wake_fn wake, void *ctx,
                    struct event_cursor **ret_cursor, struct err *err) WARN_UNUSED;
void event_cursor_close(struct event_cursor *cursor);
DEFINE_AUTO(struct event_cursor *, event_cursor_close)

enum event_next {
    EVENT_NEXT_DRAINED = 0, /* nothing now; wake will be called */
    EVENT_NEXT_EVENT = 1,   /* *ret_event, valid until the next call on this event log */
    EVENT_NEXT_GAP = 2,     /* *ret_gap was pruned before it could be delivered; the cursor goes on behind it */
};

struct event_gap {
    uint64_t from, to; /* both included */
};

/* One step; -1 with *err when the store can't be read. ret_event and ret_gap are set for their own result only. */
int event_cursor_next(struct event_cursor *cursor, struct event *ret_event, struct event_gap *ret_gap,
                      struct err *err) WARN_UNUSED;

/* ---- keeping ---- */

/*
 * Prunes events before keep_from, a bounded number per call, and appends log.pruned. Returns 1 when there is more to
 * prune: call again in a later turn. The newest committed event always stays.
 */
int event_prune(struct event_log *log, const char *sandbox, uint64_t keep_from, struct err *err) WARN_UNUSED;

/* Takes the whole log of an ended sandbox away, a bounded number of events per call. Returns 1 when there is more. */
int event_erase(struct event_log *log, const char *sandbox, struct err *err) WARN_UNUSED;
