/* SPDX-License-Identifier: Apache-2.0 */
#include "store/template_rows.h"
#include "store/db.h"

static sqlite3_stmt *writing(struct store *s, enum sql sql, struct err *err)
{
    return db_write(s, err) < 0 ? NULL : db_stmt(s, sql, err);
}

/* Ends a loop over rows: r is the last result of db_row(). */
static int read_end(sqlite3_stmt *q, int r)
{
    db_done(q);
    return r < 0 ? -1 : 0;
}

static int delete_by(struct store *s, enum sql sql, const char *key, struct err *err)
{
    sqlite3_stmt *q = writing(s, sql, err);
    if (!q)
        return -1;
    db_bind_text(q, 1, key);
    return db_run(s, q, "forget a part of a template", 0, err);
}

/* ---- templates ---- */

int template_rows_put(struct store *s, const struct store_template *row, struct err *err)
{
    sqlite3_stmt *q = writing(s, SQL_TEMPLATE_PUT, err);
    if (!q)
        return -1;
    db_bind_text(q, 1, row->id);
    db_bind_text(q, 2, row->name);
    db_bind_u64(q, 3, row->is_public);
    db_bind_u64(q, 4, row->created_at);
    db_bind_u64(q, 5, row->updated_at);
    db_bind_u64(q, 6, row->tenant);
    return db_run(s, q, "record a template", 0, err);
}

int template_rows_delete(struct store *s, const char *id, struct err *err)
{
    return delete_by(s, SQL_TEMPLATE_DELETE, id, err) < 0 ? -1 : delete_by(s, SQL_USE_DELETE, id, err);
}

int template_rows_each(struct store *s, void (*fn)(void *ctx, const struct store_template *row), void *ctx,
                       struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_TEMPLATE_EACH, err);
    int r = q ? 0 : -1;
    while (q && (r = db_row(s, q, "read the templates", err)) == 1)
        fn(ctx, &(struct store_template){.id = db_text(q, 0),
                                         .name = db_text(q, 1),
                                         .is_public = db_u64(q, 2) != 0,
                                         .created_at = db_u64(q, 3),
                                         .updated_at = db_u64(q, 4),
                                         .tenant = db_u64(q, 5)});
    return read_end(q, r);
}

/* ---- builds ---- */

/* The order of the columns is that of BUILD_COLUMNS in sql.c. */
int template_rows_put_build(struct store *s, const struct store_build *row, struct err *err)
{
    sqlite3_stmt *q = writing(s, SQL_BUILD_PUT, err);
    int at = 0;
    if (!q)
        return -1;
    db_bind_text(q, ++at, row->id);
    db_bind_text(q, ++at, row->template_id);
    db_bind_u64(q, ++at, row->is_snapshot);
    db_bind_u64(q, ++at, (uint64_t)row->status);
    db_bind_text(q, ++at, row->layer);
    db_bind_text(q, ++at, row->source);
    db_bind_u64(q, ++at, row->cpu_milli);
    db_bind_u64(q, ++at, row->memory_bytes);
    db_bind_u64(q, ++at, row->disk_bytes);
    db_bind_u64(q, ++at, row->size_bytes);
    db_bind_u64(q, ++at, row->created_at);
    db_bind_u64(q, ++at, row->started_at);
    db_bind_u64(q, ++at, row->finished_at);
    db_bind_text(q, ++at, row->start_cmd);
    db_bind_text(q, ++at, row->ready_cmd);
    db_bind_text(q, ++at, row->workdir);
    db_bind_text(q, ++at, row->user);
    db_bind_blob(q, ++at, row->envs);
    db_bind_text(q, ++at, row->reason);
    db_bind_text(q, ++at, row->reason_step);
    db_bind_text(q, ++at, row->tier);
    db_bind_u64(q, ++at, row->has_memory);
    return db_run(s, q, "record a build", 0, err);
}

int template_rows_delete_build(struct store *s, const char *id, struct err *err)
{
    return delete_by(s, SQL_BUILD_DELETE, id, err) < 0 ? -1 : delete_by(s, SQL_LOG_DELETE, id, err);
}

static void load_build(sqlite3_stmt *q, struct store_build *ret_row)
{
    int at = 0;
    ret_row->id = db_text(q, at++);
    ret_row->template_id = db_text(q, at++);
    ret_row->is_snapshot = db_u64(q, at++) != 0;
    ret_row->status = (int)db_u64(q, at++);
    ret_row->layer = db_text(q, at++);
    ret_row->source = db_text(q, at++);
    ret_row->cpu_milli = (uint32_t)db_u64(q, at++);
    ret_row->memory_bytes = db_u64(q, at++);
    ret_row->disk_bytes = db_u64(q, at++);
    ret_row->size_bytes = db_u64(q, at++);
    ret_row->created_at = db_u64(q, at++);
    ret_row->started_at = db_u64(q, at++);
    ret_row->finished_at = db_u64(q, at++);
    ret_row->start_cmd = db_text(q, at++);
    ret_row->ready_cmd = db_text(q, at++);
    ret_row->workdir = db_text(q, at++);
    ret_row->user = db_text(q, at++);
    ret_row->envs = db_str(q, at++);
    ret_row->reason = db_text(q, at++);
    ret_row->reason_step = db_text(q, at++);
    ret_row->tier = db_text(q, at++);
    ret_row->has_memory = db_u64(q, at++) != 0;
    ret_row->n_logs = db_u64(q, at++);
}

int template_rows_each_build(struct store *s, void (*fn)(void *ctx, const struct store_build *row), void *ctx,
                             struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_BUILD_EACH, err);
    int r = q ? 0 : -1;
    while (q && (r = db_row(s, q, "read the builds", err)) == 1) {
        struct store_build row;
        load_build(q, &row);
        fn(ctx, &row);
    }
    return read_end(q, r);
}

/* ---- tags ---- */

int template_rows_put_tag(struct store *s, const struct store_tag *row, struct err *err)
{
    sqlite3_stmt *q = writing(s, SQL_TAG_PUT, err);
    if (!q)
        return -1;
    db_bind_text(q, 1, row->template_id);
    db_bind_text(q, 2, row->tag);
    db_bind_text(q, 3, row->build_id);
    db_bind_u64(q, 4, row->created_at);
    return db_run(s, q, "record a tag", 0, err);
}

int template_rows_delete_tag(struct store *s, const char *template_id, const char *tag, struct err *err)
{
    sqlite3_stmt *q = writing(s, SQL_TAG_DELETE, err);
    if (!q)
        return -1;
    db_bind_text(q, 1, template_id);
    db_bind_text(q, 2, tag);
    return db_run(s, q, "forget a tag", 0, err);
}

int template_rows_each_tag(struct store *s, void (*fn)(void *ctx, const struct store_tag *row), void *ctx,
                           struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_TAG_EACH, err);
    int r = q ? 0 : -1;
    while (q && (r = db_row(s, q, "read the tags", err)) == 1)
        fn(ctx, &(struct store_tag){.template_id = db_text(q, 0),
                                    .tag = db_text(q, 1),
                                    .build_id = db_text(q, 2),
                                    .created_at = db_u64(q, 3)});
    return read_end(q, r);
}

/* ---- uses ---- */

int template_rows_put_use(struct store *s, const struct store_use *row, struct err *err)
{
    sqlite3_stmt *q = writing(s, SQL_USE_PUT, err);
    if (!q)
        return -1;
    db_bind_text(q, 1, row->template_id);
    db_bind_u64(q, 2, row->count);
    db_bind_u64(q, 3, row->last_at);
    return db_run(s, q, "count the uses of a template", 0, err);
}

int template_rows_each_use(struct store *s, void (*fn)(void *ctx, const struct store_use *row), void *ctx,
                           struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_USE_EACH, err);
    int r = q ? 0 : -1;
    while (q && (r = db_row(s, q, "read the uses of templates", err)) == 1)
        fn(ctx, &(struct store_use){.template_id = db_text(q, 0), .count = db_u64(q, 1), .last_at = db_u64(q, 2)});
    return read_end(q, r);
}

/* ---- logs ---- */

int template_rows_append_log(struct store *s, const char *build_id, const struct store_log *row, struct err *err)
{
    sqlite3_stmt *q = writing(s, SQL_LOG_APPEND, err);
    if (!q)
        return -1;
    db_bind_text(q, 1, build_id);
    db_bind_u64(q, 2, row->seq);
    db_bind_u64(q, 3, row->at);
    db_bind_u64(q, 4, (uint64_t)row->level);
    db_bind_str(q, 5, row->step);
    db_bind_str(q, 6, row->message);
    return db_run(s, q, "append to a build's log", 0, err);
}

int template_rows_read_log(struct store *s, const char *build_id, uint64_t after, int level, uint64_t skip,
                           uint64_t limit, void (*fn)(void *ctx, const struct store_log *row), void *ctx,
                           struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_LOG_READ, err);
    int r = q ? 0 : -1;
    if (q) {
        db_bind_text(q, 1, build_id);
        db_bind_u64(q, 2, after);
        db_bind_u64(q, 3, (uint64_t)level);
        db_bind_u64(q, 4, limit);
        db_bind_u64(q, 5, skip);
    }
    while (q && (r = db_row(s, q, "read a build's log", err)) == 1)
        fn(ctx, &(struct store_log){.seq = db_u64(q, 0),
                                    .at = db_u64(q, 1),
                                    .level = (int)db_u64(q, 2),
                                    .step = db_str(q, 3),
                                    .message = db_str(q, 4)});
    return read_end(q, r);
}

/* ---- the cache of steps ---- */

int cache_rows_put(struct store *s, const struct store_cached *row, struct err *err)
{
    sqlite3_stmt *q = writing(s, SQL_CACHE_PUT, err);
    if (!q)
        return -1;
    db_bind_text(q, 1, row->key);
    db_bind_text(q, 2, row->layer);
    db_bind_text(q, 3, row->result);
    db_bind_u64(q, 4, row->bytes);
    db_bind_u64(q, 5, row->made_at);
    db_bind_u64(q, 6, row->used_at);
    return db_run(s, q, "record a build's step", 0, err);
}

int cache_rows_delete(struct store *s, const char *key, struct err *err)
{
    return delete_by(s, SQL_CACHE_DELETE, key, err);
}

int cache_rows_each(struct store *s, void (*fn)(void *ctx, const struct store_cached *row), void *ctx, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_CACHE_EACH, err);
    int r = q ? 0 : -1;
    while (q && (r = db_row(s, q, "read the cache of builds", err)) == 1)
        fn(ctx, &(struct store_cached){.key = db_text(q, 0),
                                       .layer = db_text(q, 1),
                                       .result = db_text(q, 2),
                                       .bytes = db_u64(q, 3),
                                       .made_at = db_u64(q, 4),
                                       .used_at = db_u64(q, 5)});
    return read_end(q, r);
}
