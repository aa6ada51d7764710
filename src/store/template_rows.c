/* SPDX-License-Identifier: Apache-2.0 */
#include "store/template_rows.h"
#include "store/db.h"

static const struct db_column template_columns[] = {DB_COLUMN(store_template, id),
                                                    DB_COLUMN(store_template, name),
                                                    DB_COLUMN(store_template, is_public),
                                                    DB_COLUMN(store_template, created_at),
                                                    DB_COLUMN(store_template, updated_at),
                                                    DB_COLUMN(store_template, tenant),
                                                    {0}};

/* The order is that of BUILD_COLUMNS in sql.c. */
#define BUILD_ROW                                                                                                      \
    DB_COLUMN(store_build, id), DB_COLUMN(store_build, template_id), DB_COLUMN(store_build, is_snapshot),              \
        DB_COLUMN(store_build, status), DB_COLUMN(store_build, layer), DB_COLUMN(store_build, source),                 \
        DB_COLUMN(store_build, cpu_milli), DB_COLUMN(store_build, memory_bytes), DB_COLUMN(store_build, disk_bytes),   \
        DB_COLUMN(store_build, size_bytes), DB_COLUMN(store_build, created_at), DB_COLUMN(store_build, started_at),    \
        DB_COLUMN(store_build, finished_at), DB_COLUMN(store_build, start_cmd), DB_COLUMN(store_build, ready_cmd),     \
        DB_COLUMN(store_build, workdir), DB_COLUMN(store_build, user),                                                 \
        {DB_COLUMN_BLOB, offsetof(struct store_build, envs)}, DB_COLUMN(store_build, reason),                          \
        DB_COLUMN(store_build, reason_step), DB_COLUMN(store_build, tier), DB_COLUMN(store_build, has_memory),         \
        DB_COLUMN(store_build, image)
static const struct db_column build_columns[] = {BUILD_ROW, {0}};
static const struct db_column build_columns_read[] = {BUILD_ROW, DB_COLUMN(store_build, n_logs), {0}};

static const struct db_column tag_columns[] = {DB_COLUMN(store_tag, template_id),
                                               DB_COLUMN(store_tag, tag),
                                               DB_COLUMN(store_tag, build_id),
                                               DB_COLUMN(store_tag, created_at),
                                               {0}};

static const struct db_column use_columns[] = {
    DB_COLUMN(store_use, template_id), DB_COLUMN(store_use, count), DB_COLUMN(store_use, last_at), {0}};

static const struct db_column log_columns[] = {DB_COLUMN(store_log, seq),     DB_COLUMN(store_log, at),
                                               DB_COLUMN(store_log, level),   DB_COLUMN(store_log, step),
                                               DB_COLUMN(store_log, message), {0}};

static const struct db_column cache_columns[] = {DB_COLUMN(store_cached, key),
                                                 DB_COLUMN(store_cached, layer),
                                                 DB_COLUMN(store_cached, result),
                                                 DB_COLUMN(store_cached, bytes),
                                                 DB_COLUMN(store_cached, made_at),
                                                 DB_COLUMN(store_cached, used_at),
                                                 {0}};

static int delete_by(struct store *s, enum sql sql, const char *key, struct err *err)
{
    return DB_DO(s, sql, "forget a part of a template", 0, err, DB(key));
}

/* ---- templates ---- */

int template_rows_put(struct store *s, const struct store_template *row, struct err *err)
{
    return db_put(s, SQL_TEMPLATE_PUT, "record a template", 0, template_columns, row, err);
}

int template_rows_delete(struct store *s, const char *id, struct err *err)
{
    return delete_by(s, SQL_TEMPLATE_DELETE, id, err) < 0 ? -1 : delete_by(s, SQL_USE_DELETE, id, err);
}

int template_rows_each(struct store *s, void (*fn)(void *ctx, const struct store_template *row), void *ctx,
                       struct err *err)
{
    return DB_EACH(s, db_stmt(s, SQL_TEMPLATE_EACH, err), "read the templates", store_template, template_columns, fn,
                   ctx, err);
}

/* ---- builds ---- */

int template_rows_put_build(struct store *s, const struct store_build *row, struct err *err)
{
    return db_put(s, SQL_BUILD_PUT, "record a build", 0, build_columns, row, err);
}

int template_rows_delete_build(struct store *s, const char *id, struct err *err)
{
    return delete_by(s, SQL_BUILD_DELETE, id, err) < 0 ? -1 : delete_by(s, SQL_LOG_DELETE, id, err);
}

int template_rows_each_build(struct store *s, void (*fn)(void *ctx, const struct store_build *row), void *ctx,
                             struct err *err)
{
    return DB_EACH(s, db_stmt(s, SQL_BUILD_EACH, err), "read the builds", store_build, build_columns_read, fn, ctx,
                   err);
}

/* ---- tags ---- */

int template_rows_put_tag(struct store *s, const struct store_tag *row, struct err *err)
{
    return db_put(s, SQL_TAG_PUT, "record a tag", 0, tag_columns, row, err);
}

int template_rows_delete_tag(struct store *s, const char *template_id, const char *tag, struct err *err)
{
    return DB_DO(s, SQL_TAG_DELETE, "forget a tag", 0, err, DB(template_id), DB(tag));
}

int template_rows_each_tag(struct store *s, void (*fn)(void *ctx, const struct store_tag *row), void *ctx,
                           struct err *err)
{
    return DB_EACH(s, db_stmt(s, SQL_TAG_EACH, err), "read the tags", store_tag, tag_columns, fn, ctx, err);
}

/* ---- uses ---- */

int template_rows_put_use(struct store *s, const struct store_use *row, struct err *err)
{
    return db_put(s, SQL_USE_PUT, "count the uses of a template", 0, use_columns, row, err);
}

int template_rows_each_use(struct store *s, void (*fn)(void *ctx, const struct store_use *row), void *ctx,
                           struct err *err)
{
    return DB_EACH(s, db_stmt(s, SQL_USE_EACH, err), "read the uses of templates", store_use, use_columns, fn, ctx,
                   err);
}

/* ---- logs ---- */

int template_rows_append_log(struct store *s, const char *build_id, const struct store_log *row, struct err *err)
{
    return DB_DO(s, SQL_LOG_APPEND, "append to a build's log", 0, err, DB(build_id), DB(row->seq), DB(row->at),
                 DB(row->level), DB(row->step), DB(row->message));
}

int template_rows_read_log(struct store *s, const char *build_id, uint64_t after, int level, uint64_t skip,
                           uint64_t limit, void (*fn)(void *ctx, const struct store_log *row), void *ctx,
                           struct err *err)
{
    return DB_EACH(s, DB_ASK(s, SQL_LOG_READ, err, DB(build_id), DB(after), DB(level), DB(limit), DB(skip)),
                   "read a build's log", store_log, log_columns, fn, ctx, err);
}

/* ---- the cache of steps ---- */

int cache_rows_put(struct store *s, const struct store_cached *row, struct err *err)
{
    return db_put(s, SQL_CACHE_PUT, "record a build's step", 0, cache_columns, row, err);
}

int cache_rows_delete(struct store *s, const char *key, struct err *err)
{
    return delete_by(s, SQL_CACHE_DELETE, key, err);
}

int cache_rows_each(struct store *s, void (*fn)(void *ctx, const struct store_cached *row), void *ctx, struct err *err)
{
    return DB_EACH(s, db_stmt(s, SQL_CACHE_EACH, err), "read the cache of builds", store_cached, cache_columns, fn, ctx,
                   err);
}
