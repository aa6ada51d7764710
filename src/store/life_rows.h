/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events in the lives of sandboxes, from all logs together, each with columns of its sandbox's row; and the rows of
 * webhooks, which report them.
 */
#pragma once

#include "base/clock.h"
#include "store/store.h"

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
