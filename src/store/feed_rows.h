/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of the feed, for src/event alone. A run is n events that follow one another both in the feed and in their
 * log. What the rows mean stands in event/feed.h.
 */
#pragma once

#include "store/store.h"

enum { FEED_ROWS_NAME_MAX = 63 };

struct feed_run {
    uint64_t cursor, seq, n; /* of its first event; how many they are */
    int64_t log;
    char name[FEED_ROWS_NAME_MAX + 1]; /* of the log; "": it is gone */
};

int feed_rows_put(struct store *s, const struct feed_run *run, struct err *err) WARN_UNUSED;

/* The run that holds the cursor, or else the first one behind it: 1, 0 when there is none. */
int feed_rows_get(struct store *s, uint64_t cursor, struct feed_run *ret_run, struct err *err) WARN_UNUSED;

/* The first and the last cursor that a row has; 0: there is no row. */
int feed_rows_bounds(struct store *s, uint64_t *ret_first, uint64_t *ret_last, struct err *err) WARN_UNUSED;

/* Looks at up to n rows behind *at and deletes those whose events are gone, but for the newest row. *at moves on; 0:
 * that was all. */
int feed_rows_sweep(struct store *s, uint64_t *at, uint64_t n, struct err *err) WARN_UNUSED;

/* Every event whose cursor is greater than `after`, as runs of one, in no order. *ret_last: the greatest cursor that
 * was given out. */
typedef void (*feed_rows_fn)(const struct feed_run *run, void *ctx);
int feed_rows_unlisted(struct store *s, uint64_t after, feed_rows_fn fn, void *ctx, uint64_t *ret_last,
                       struct err *err) WARN_UNUSED;
