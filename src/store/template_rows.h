/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of templates that were built and of snapshots (for src/template), and of the cache of build steps (for
 * src/build). Nothing is checked here. Strings are borrowed; from reading they are valid during the call of fn, which
 * must not call the store. Times are real-clock microseconds, 0: none.
 */
#pragma once

#include "base/clock.h"
#include "store/store.h"

struct store_template {
    const char *id, *name;
    bool is_public;
    usec_t created_at, updated_at;
    uint64_t tenant; /* tenant_rows.h */
};

struct store_build {
    const char *id, *template_id, *layer, *source;
    bool is_snapshot, has_memory;
    int status;
    uint32_t cpu_milli;
    uint64_t memory_bytes, disk_bytes, size_bytes;
    usec_t created_at, started_at, finished_at;
    const char *start_cmd, *ready_cmd, *workdir, *user, *image;
    struct str envs; /* "NAME=value", each with a NUL behind it */
    const char *reason, *reason_step;
    const char *tier;
    uint64_t n_logs; /* when read */
};

struct store_tag {
    const char *template_id, *tag, *build_id;
    usec_t created_at;
};

struct store_use {
    const char *template_id;
    uint64_t count;
    usec_t last_at;
};

struct store_log {
    uint64_t seq; /* from 1 */
    usec_t at;
    int level;
    struct str step, message;
};

struct store_cached {
    const char *key, *layer, *result;
    uint64_t bytes;
    usec_t made_at, used_at;
};

/* Put: new or in place of the one with the same key. Delete: no error when there is none. */
int template_rows_put(struct store *s, const struct store_template *row, struct err *err) WARN_UNUSED;
int template_rows_delete(struct store *s, const char *id,
                         struct err *err) WARN_UNUSED; /* with its uses; not its builds */
int template_rows_each(struct store *s, void (*fn)(void *ctx, const struct store_template *row), void *ctx,
                       struct err *err) WARN_UNUSED;

int template_rows_put_build(struct store *s, const struct store_build *row, struct err *err) WARN_UNUSED;
int template_rows_delete_build(struct store *s, const char *id, struct err *err) WARN_UNUSED; /* with its log */
int template_rows_each_build(struct store *s, void (*fn)(void *ctx, const struct store_build *row), void *ctx,
                             struct err *err) WARN_UNUSED; /* oldest first */

int template_rows_put_tag(struct store *s, const struct store_tag *row, struct err *err) WARN_UNUSED;
int template_rows_delete_tag(struct store *s, const char *template_id, const char *tag, struct err *err) WARN_UNUSED;
int template_rows_each_tag(struct store *s, void (*fn)(void *ctx, const struct store_tag *row), void *ctx,
                           struct err *err) WARN_UNUSED;

int template_rows_put_use(struct store *s, const struct store_use *row, struct err *err) WARN_UNUSED;
int template_rows_each_use(struct store *s, void (*fn)(void *ctx, const struct store_use *row), void *ctx,
                           struct err *err) WARN_UNUSED;

int template_rows_append_log(struct store *s, const char *build_id, const struct store_log *row,
                             struct err *err) WARN_UNUSED;
/* Of those behind `after` with at least that level: without the first `skip`, at most `limit`. */
int template_rows_read_log(struct store *s, const char *build_id, uint64_t after, int level, uint64_t skip,
                           uint64_t limit, void (*fn)(void *ctx, const struct store_log *row), void *ctx,
                           struct err *err) WARN_UNUSED;

int cache_rows_put(struct store *s, const struct store_cached *row, struct err *err) WARN_UNUSED;
int cache_rows_delete(struct store *s, const char *key, struct err *err) WARN_UNUSED;
int cache_rows_each(struct store *s, void (*fn)(void *ctx, const struct store_cached *row), void *ctx,
                    struct err *err) WARN_UNUSED;
