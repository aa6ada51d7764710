/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of the event log, for src/event alone: heads (one per sandbox) and events. Nothing is checked or computed
 * here; what the rows mean stands in event/log.h and event/chain.h.
 */
#pragma once

#include "base/str.h"
#include "store/store.h"

enum { EVENT_ROWS_HASH_SIZE = 32 };

struct event_head_row {
    int64_t log; /* the number of the sandbox's log in the events table */
    uint64_t last_seq, base_seq;
    uint64_t last_cursor; /* of the last event */
    unsigned char last_hash[EVENT_ROWS_HASH_SIZE], base_hash[EVENT_ROWS_HASH_SIZE];
};

/* Texts and hash are borrowed; from reading they are valid until the next call on this store. */
struct event_row {
    uint64_t seq, time, cause;
    uint64_t cursor; /* written, not read: the feed knows */
    struct str kind, source, grade, actor, data;
    struct str hash;
};

int event_rows_head_get(struct store *s, const char *sandbox, struct event_head_row *ret_head,
                        struct err *err) WARN_UNUSED; /* 1, 0 */
/* last is base: an empty log. Fills head->log. */
int event_rows_head_create(struct store *s, const char *sandbox, struct event_head_row *head,
                           struct err *err) WARN_UNUSED;
int event_rows_head_update(struct store *s, const struct event_head_row *head,
                           struct err *err) WARN_UNUSED; /* its last_* */
int event_rows_head_rebase(struct store *s, const struct event_head_row *head,
                           struct err *err) WARN_UNUSED; /* its base_* */
int event_rows_head_delete(struct store *s, int64_t log, struct err *err) WARN_UNUSED;

int event_rows_heads_each(struct store *s,
                          void (*fn)(void *ctx, const char *sandbox, uint64_t last, const unsigned char *hash),
                          void *ctx, struct err *err) WARN_UNUSED;

int event_rows_append(struct store *s, int64_t log, const struct event_row *row, struct err *err) WARN_UNUSED;

/* First row with from <= seq <= to: 1, or 0. The row stays valid until event_rows_done(). */
int event_rows_get(struct store *s, int64_t log, uint64_t from, uint64_t to, struct event_row *ret_row,
                   struct err *err) WARN_UNUSED;
void event_rows_done(struct store *s);

typedef bool (*event_rows_fn)(const struct event_row *row, void *ctx);
/* Ordered by seq. Returns how many rows fn() saw. */
int64_t event_rows_each(struct store *s, int64_t log, uint64_t from, uint64_t to, uint64_t limit, event_rows_fn fn,
                        void *ctx, struct err *err) WARN_UNUSED;

/* The seq of the `limit`th oldest row (of the newest, when there are fewer), 0 when there is none. */
int event_rows_nth(struct store *s, int64_t log, uint64_t limit, uint64_t *ret_seq, struct err *err) WARN_UNUSED;
int event_rows_delete_before(struct store *s, int64_t log, uint64_t seq, struct err *err) WARN_UNUSED;
