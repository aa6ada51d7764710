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

DB_PUTS(template_rows_put, SQL_TEMPLATE_PUT, "record a template", 0, store_template, template_columns)

int template_rows_delete(struct store *s, const char *id, struct err *err)
{
    return delete_by(s, SQL_TEMPLATE_DELETE, id, err) < 0 ? -1 : delete_by(s, SQL_USE_DELETE, id, err);
}

DB_LISTS(template_rows_each, SQL_TEMPLATE_EACH, "read the templates", store_template, template_columns)

/* ---- builds ---- */

DB_PUTS(template_rows_put_build, SQL_BUILD_PUT, "record a build", 0, store_build, build_columns)

int template_rows_delete_build(struct store *s, const char *id, struct err *err)
{
    return delete_by(s, SQL_BUILD_DELETE, id, err) < 0 ? -1 : delete_by(s, SQL_LOG_DELETE, id, err);
}

DB_LISTS(template_rows_each_build, SQL_BUILD_EACH, "read the builds", store_build, build_columns_read)

/* ---- tags ---- */

DB_PUTS(template_rows_put_tag, SQL_TAG_PUT, "record a tag", 0, store_tag, tag_columns)
DB_DOES(template_rows_delete_tag, SQL_TAG_DELETE, "forget a tag", 0, (DB(template_id), DB(tag)),
        const char *template_id, const char *tag)
DB_LISTS(template_rows_each_tag, SQL_TAG_EACH, "read the tags", store_tag, tag_columns)

/* ---- uses ---- */

DB_PUTS(template_rows_put_use, SQL_USE_PUT, "count the uses of a template", 0, store_use, use_columns)
DB_LISTS(template_rows_each_use, SQL_USE_EACH, "read the uses of templates", store_use, use_columns)

/* ---- logs ---- */

DB_DOES(template_rows_append_log, SQL_LOG_APPEND, "append to a build's log", 0,
        (DB(build_id), DB(row->seq), DB(row->at), DB(row->level), DB(row->step), DB(row->message)),
        const char *build_id, const struct store_log *row)

int template_rows_read_log(struct store *s, const char *build_id, uint64_t after, int level, uint64_t skip,
                           uint64_t limit, void (*fn)(void *ctx, const struct store_log *row), void *ctx,
                           struct err *err)
{
    return DB_EACH(s, DB_ASK(s, SQL_LOG_READ, err, DB(build_id), DB(after), DB(level), DB(limit), DB(skip)),
                   "read a build's log", store_log, log_columns, fn, ctx, err);
}

/* ---- the cache of steps ---- */

DB_PUTS(cache_rows_put, SQL_CACHE_PUT, "record a build's step", 0, store_cached, cache_columns)

int cache_rows_delete(struct store *s, const char *key, struct err *err)
{
    return delete_by(s, SQL_CACHE_DELETE, key, err);
}

DB_LISTS(cache_rows_each, SQL_CACHE_EACH, "read the cache of builds", store_cached, cache_columns)
