/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One row per sandbox, live or ended: what a new cove-api must know to take over from one that died. Times are
 * real-clock microseconds, 0 where there is none yet. The meaning of `state`, `tier` and the JSON texts is the
 * caller's.
 */
#pragma once

#include "base/arena.h"
#include "base/clock.h"
#include "store/store.h"

enum store_on_timeout { STORE_ON_TIMEOUT_KILL = 0, STORE_ON_TIMEOUT_PAUSE = 1 };

/* All strings are borrowed. NULL is written as "" and read back as "". */
struct store_sandbox {
    const char *id;
    int state;
    const char *tier;
    const char *template_id;
    const char *template_alias;
    const char *layer_digest;
    usec_t created_at;
    usec_t started_at;
    usec_t end_at;  /* 0: never */
    usec_t timeout; /* a duration, microseconds */
    uint32_t cpu_milli;
    uint64_t memory_bytes;
    uint64_t disk_bytes;
    const char *access_token;
    const char *traffic_token;
    enum store_on_timeout on_timeout;
    bool auto_resume;
    bool secure;
    bool allow_internet;
    const char *metadata; /* JSON text, as are the next three */
    const char *envs;
    const char *network;
    const char *extra; /* for fields that have no column yet */
    usec_t ended_at;   /* 0: live */
    const char *end_cause;
    uint64_t tenant; /* tenant_rows.h */
};

/* ERR_ALREADY_EXISTS when the id is taken; the batch goes on. */
int sandbox_rows_insert(struct store *s, const struct store_sandbox *row, struct err *err) WARN_UNUSED;

/* Each of these returns ERR_NOT_FOUND when there is no such row; the batch goes on. */
int sandbox_rows_update_state(struct store *s, const char *id, int state, struct err *err) WARN_UNUSED;
int sandbox_rows_update_end_at(struct store *s, const char *id, usec_t end_at, usec_t timeout,
                               struct err *err) WARN_UNUSED;
int sandbox_rows_update_ended(struct store *s, const char *id, int state, usec_t ended_at, const char *end_cause,
                              struct err *err) WARN_UNUSED;
int sandbox_rows_update_network(struct store *s, const char *id, const char *network, struct err *err) WARN_UNUSED;
int sandbox_rows_update_extra(struct store *s, const char *id, const char *extra, struct err *err) WARN_UNUSED;

/* Live or ended. Strings are copied into the arena. ERR_NOT_FOUND. */
int sandbox_rows_get(struct store *s, const char *id, struct arena *arena, struct store_sandbox *ret_row,
                     struct err *err) WARN_UNUSED;

/* The row and its strings are valid during the call. Return false to stop. Must not call the store. */
typedef bool (*sandbox_rows_fn)(const struct store_sandbox *row, void *ctx);

/* All without ended_at, oldest first. */
int sandbox_rows_each_live(struct store *s, sandbox_rows_fn fn, void *ctx, struct err *err) WARN_UNUSED;

/* Ended ones, latest end first, of that tenant or of all (TENANT_ANY), at most `limit`. */
int sandbox_rows_each_ended(struct store *s, uint64_t view, size_t limit, sandbox_rows_fn fn, void *ctx,
                            struct err *err) WARN_UNUSED;

int sandbox_rows_delete(struct store *s, const char *id, struct err *err) WARN_UNUSED; /* no error when there is none */

/*
 * Retention in bounded steps: finds up to `limit` sandboxes that ended before `before`, oldest first, whose ids go to
 * fn() so that the caller erases their logs and artefacts before it deletes each row. Collect first, write after.
 */
int sandbox_rows_each_expired(struct store *s, usec_t before, size_t limit, sandbox_rows_fn fn, void *ctx,
                              struct err *err) WARN_UNUSED;

/* If more than `keep` have ended: of the tenant of which most have, the one that ended first. */
int sandbox_rows_each_surplus(struct store *s, size_t keep, sandbox_rows_fn fn, void *ctx, struct err *err) WARN_UNUSED;
