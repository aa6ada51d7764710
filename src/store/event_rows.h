/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of the event log, for src/event alone: heads (one per sandbox) and events. Nothing is checked or computed
 * here; what the rows mean stands in event/log.h and event/chain.h.
 */
#pragma once

#include "base/clock.h"
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

/*
 * Events in the lives of sandboxes, from all logs together, each with columns of its sandbox's row; and the rows of
 * webhooks, which report them.
 */

/* Texts are borrowed: valid during the call of fn, which must not call the store. */
struct life_row {
    uint64_t cursor, time, tenant;
    const char *kind, *data, *sandbox, *template_id, *metadata; /* metadata: a JSON object */
    struct str hash;
    usec_t started_at;
    uint32_t cpu_milli;
    uint64_t memory_bytes;
};
typedef bool (*life_rows_fn)(void *ctx, const struct life_row *row);

struct life_want {
    uint64_t after, to;  /* cursors */
    uint64_t tenant;     /* or TENANT_ANY */
    const char *sandbox; /* NULL: all */
    bool is_back;        /* newest first */
};
/* Each event in between is looked at, whosever it is. */
int life_rows_each(struct store *s, const struct life_want *want, life_rows_fn fn, void *ctx,
                   struct err *err) WARN_UNUSED;

struct store_webhook {
    const char *id, *config; /* config: a JSON object */
    uint64_t tenant, cursor; /* it has been told everything up to here */
};
/* New, or in place of the one with the same id. */
int webhook_rows_put(struct store *s, const struct store_webhook *row, struct err *err) WARN_UNUSED;
int webhook_rows_put_cursor(struct store *s, const char *id, uint64_t cursor, struct err *err) WARN_UNUSED;
int webhook_rows_delete(struct store *s, const char *id, struct err *err) WARN_UNUSED;
int webhook_rows_each(struct store *s, void (*fn)(void *ctx, const struct store_webhook *row), void *ctx,
                      struct err *err) WARN_UNUSED;
