/* SPDX-License-Identifier: Apache-2.0 */
/* One row per volume; and how many sandboxes of a template are to be kept ready. Writes are part of the open batch. */
#pragma once

#include "base/clock.h"
#include "store/store.h"

/* Strings are borrowed. */
struct store_volume {
    const char *id, *name, *token;
    uint64_t limit_bytes; /* 0: none */
    usec_t created_at;    /* real time */
    uint64_t tenant;      /* tenant_rows.h */
};

/* ERR_ALREADY_EXISTS when the id is taken, or the name by another one of the tenant; the batch goes on. */
int volume_rows_insert(struct store *s, const struct store_volume *row, struct err *err) WARN_UNUSED;
int volume_rows_delete(struct store *s, const char *id, struct err *err) WARN_UNUSED; /* no error when there is none */

/* By name. The row is valid during the call, which must not call the store. */
int volume_rows_each(struct store *s, void (*fn)(void *ctx, const struct store_volume *row), void *ctx,
                     struct err *err) WARN_UNUSED;

/* The id of a volume that is in no row, and whose log had its last event before then: fn is called once, or not at
 * all. */
int volume_rows_log_expired(struct store *s, usec_t before, void (*fn)(void *ctx, const char *id), void *ctx,
                            struct err *err) WARN_UNUSED;

int spare_rows_put(struct store *s, const char *template_id, uint32_t count, uint32_t most,
                   struct err *err) WARN_UNUSED;
int spare_rows_each(struct store *s, void (*fn)(void *ctx, const char *template_id, uint32_t count, uint32_t most),
                    void *ctx, struct err *err) WARN_UNUSED;
