/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sandbox_rows.h"
#include "store/db.h"

/* The order of the columns is that of SANDBOX_COLUMNS in sql.c, here and in sandbox_rows_load(). */
static void bind_row(sqlite3_stmt *q, const struct store_sandbox *row)
{
    int at = 0;
    db_bind_text(q, ++at, row->id);
    db_bind_u64(q, ++at, (uint64_t)row->state);
    db_bind_text(q, ++at, row->tier);
    db_bind_text(q, ++at, row->template_id);
    db_bind_text(q, ++at, row->template_alias);
    db_bind_text(q, ++at, row->layer_digest);
    db_bind_u64(q, ++at, row->created_at);
    db_bind_u64(q, ++at, row->started_at);
    db_bind_u64(q, ++at, row->end_at);
    db_bind_u64(q, ++at, row->timeout);
    db_bind_u64(q, ++at, row->cpu_milli);
    db_bind_u64(q, ++at, row->memory_bytes);
    db_bind_u64(q, ++at, row->disk_bytes);
    db_bind_text(q, ++at, row->access_token);
    db_bind_text(q, ++at, row->traffic_token);
    db_bind_u64(q, ++at, row->on_timeout);
    db_bind_u64(q, ++at, row->auto_resume);
    db_bind_u64(q, ++at, row->secure);
    db_bind_u64(q, ++at, row->allow_internet);
    db_bind_text(q, ++at, row->metadata);
    db_bind_text(q, ++at, row->envs);
    db_bind_text(q, ++at, row->network);
    db_bind_text(q, ++at, row->extra);
    db_bind_u64(q, ++at, row->ended_at);
    db_bind_text(q, ++at, row->end_cause);
    db_bind_u64(q, ++at, row->tenant);
}

static void sandbox_rows_load(sqlite3_stmt *q, struct store_sandbox *ret_row)
{
    int at = 0;
    ret_row->id = db_text(q, at++);
    ret_row->state = (int)db_u64(q, at++);
    ret_row->tier = db_text(q, at++);
    ret_row->template_id = db_text(q, at++);
    ret_row->template_alias = db_text(q, at++);
    ret_row->layer_digest = db_text(q, at++);
    ret_row->created_at = db_u64(q, at++);
    ret_row->started_at = db_u64(q, at++);
    ret_row->end_at = db_u64(q, at++);
    ret_row->timeout = db_u64(q, at++);
    ret_row->cpu_milli = (uint32_t)db_u64(q, at++);
    ret_row->memory_bytes = db_u64(q, at++);
    ret_row->disk_bytes = db_u64(q, at++);
    ret_row->access_token = db_text(q, at++);
    ret_row->traffic_token = db_text(q, at++);
    ret_row->on_timeout = db_u64(q, at++) ? STORE_ON_TIMEOUT_PAUSE : STORE_ON_TIMEOUT_KILL;
    ret_row->auto_resume = db_u64(q, at++) != 0;
    ret_row->secure = db_u64(q, at++) != 0;
    ret_row->allow_internet = db_u64(q, at++) != 0;
    ret_row->metadata = db_text(q, at++);
    ret_row->envs = db_text(q, at++);
    ret_row->network = db_text(q, at++);
    ret_row->extra = db_text(q, at++);
    ret_row->ended_at = db_u64(q, at++);
    ret_row->end_cause = db_text(q, at++);
    ret_row->tenant = db_u64(q, at++);
}

int sandbox_rows_insert(struct store *s, const struct store_sandbox *row, struct err *err)
{
    assert(row->id && row->id[0]);
    sqlite3_stmt *q;
    if (db_write(s, err) < 0 || !(q = db_stmt(s, SQL_SANDBOX_INSERT, err)))
        return -1;
    bind_row(q, row);
    return db_run(s, q, "record a sandbox", DB_MAY_EXIST, err);
}

/* A statement whose first parameter is the id; the others are bound by the caller between update_of() and update(). */
static sqlite3_stmt *update_of(struct store *s, enum sql sql, const char *id, struct err *err)
{
    sqlite3_stmt *q;
    if (db_write(s, err) < 0 || !(q = db_stmt(s, sql, err)))
        return NULL;
    db_bind_text(q, 1, id);
    return q;
}

static int update(struct store *s, sqlite3_stmt *q, const char *id, struct err *err)
{
    if (db_run(s, q, "update a sandbox", 0, err) < 0)
        return -1;
    if (db_changes(s) == 0)
        return err_set(err, ERR_NOT_FOUND, "sandbox %.64s is not in the store", id);
    return 0;
}

int sandbox_rows_update_state(struct store *s, const char *id, int state, struct err *err)
{
    sqlite3_stmt *q = update_of(s, SQL_SANDBOX_STATE, id, err);
    if (!q)
        return -1;
    db_bind_u64(q, 2, (uint64_t)state);
    return update(s, q, id, err);
}

int sandbox_rows_update_started(struct store *s, const char *id, int state, usec_t started_at, usec_t end_at,
                                struct err *err)
{
    sqlite3_stmt *q = update_of(s, SQL_SANDBOX_STARTED, id, err);
    if (!q)
        return -1;
    db_bind_u64(q, 2, (uint64_t)state);
    db_bind_u64(q, 3, started_at);
    db_bind_u64(q, 4, end_at);
    return update(s, q, id, err);
}

int sandbox_rows_update_end_at(struct store *s, const char *id, usec_t end_at, usec_t timeout, struct err *err)
{
    sqlite3_stmt *q = update_of(s, SQL_SANDBOX_END_AT, id, err);
    if (!q)
        return -1;
    db_bind_u64(q, 2, end_at);
    db_bind_u64(q, 3, timeout);
    return update(s, q, id, err);
}

int sandbox_rows_update_ended(struct store *s, const char *id, int state, usec_t ended_at, const char *end_cause,
                              struct err *err)
{
    sqlite3_stmt *q = update_of(s, SQL_SANDBOX_ENDED, id, err);
    if (!q)
        return -1;
    db_bind_u64(q, 2, (uint64_t)state);
    db_bind_u64(q, 3, ended_at);
    db_bind_text(q, 4, end_cause);
    return update(s, q, id, err);
}

static int update_text(struct store *s, enum sql sql, const char *id, const char *text, struct err *err)
{
    sqlite3_stmt *q = update_of(s, sql, id, err);
    if (!q)
        return -1;
    db_bind_text(q, 2, text);
    return update(s, q, id, err);
}

int sandbox_rows_update_metadata(struct store *s, const char *id, const char *metadata, struct err *err)
{
    return update_text(s, SQL_SANDBOX_METADATA, id, metadata, err);
}

int sandbox_rows_update_network(struct store *s, const char *id, const char *network, struct err *err)
{
    return update_text(s, SQL_SANDBOX_NETWORK, id, network, err);
}

int sandbox_rows_update_extra(struct store *s, const char *id, const char *extra, struct err *err)
{
    return update_text(s, SQL_SANDBOX_EXTRA, id, extra, err);
}

int sandbox_rows_delete(struct store *s, const char *id, struct err *err)
{
    sqlite3_stmt *q = update_of(s, SQL_SANDBOX_DELETE, id, err);
    return q ? db_run(s, q, "delete a sandbox", 0, err) : -1;
}

static void sandbox_rows_keep(struct arena *arena, const char **text)
{
    *text = arena_strndup(arena, *text, strlen(*text));
}

int sandbox_rows_get(struct store *s, const char *id, struct arena *arena, struct store_sandbox *ret_row,
                     struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_SANDBOX_GET, err);
    if (!q)
        return -1;
    db_bind_text(q, 1, id);
    int r = db_row(s, q, "read a sandbox", err);
    if (r == 1) {
        struct store_sandbox row;
        sandbox_rows_load(q, &row);
        const char **const texts[] = {&row.id,           &row.tier,         &row.template_id,   &row.template_alias,
                                      &row.layer_digest, &row.access_token, &row.traffic_token, &row.metadata,
                                      &row.envs,         &row.network,      &row.extra,         &row.end_cause};
        for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
            sandbox_rows_keep(arena, texts[i]);
        *ret_row = row;
    }
    db_done(q);
    if (r == 0)
        return err_set(err, ERR_NOT_FOUND, "sandbox %.64s is not in the store", id);
    return r < 0 ? -1 : 0;
}

static int sandbox_rows_each(struct store *s, sqlite3_stmt *q, sandbox_rows_fn fn, void *ctx, struct err *err)
{
    int r;
    while ((r = db_row(s, q, "list sandboxes", err)) == 1) {
        struct store_sandbox row;
        sandbox_rows_load(q, &row);
        if (!fn(&row, ctx)) {
            r = 0;
            break;
        }
    }
    db_done(q);
    return r;
}

int sandbox_rows_each_live(struct store *s, sandbox_rows_fn fn, void *ctx, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_SANDBOX_EACH_LIVE, err);
    return q ? sandbox_rows_each(s, q, fn, ctx, err) : -1;
}

static int each_before(struct store *s, enum sql sql, usec_t before, size_t limit, sandbox_rows_fn fn, void *ctx,
                       struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, sql, err);
    if (!q)
        return -1;
    db_bind_u64(q, 1, before);
    db_bind_u64(q, 2, limit);
    return sandbox_rows_each(s, q, fn, ctx, err);
}

int sandbox_rows_each_ended(struct store *s, usec_t before, size_t limit, sandbox_rows_fn fn, void *ctx,
                            struct err *err)
{
    return each_before(s, SQL_SANDBOX_EACH_ENDED, before ? before : UINT64_MAX, limit, fn, ctx, err);
}

int sandbox_rows_each_expired(struct store *s, usec_t before, size_t limit, sandbox_rows_fn fn, void *ctx,
                              struct err *err)
{
    return each_before(s, SQL_SANDBOX_EACH_EXPIRED, before, limit, fn, ctx, err);
}

int sandbox_rows_ended_cut(struct store *s, size_t keep, usec_t *ret_ended_at, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_SANDBOX_ENDED_CUT, err);
    if (!q)
        return -1;
    db_bind_u64(q, 1, keep);
    int r = db_row(s, q, "look for sandboxes to forget", err);
    usec_t at = r == 1 ? db_u64(q, 0) : 0;
    db_done(q);
    if (r < 0)
        return r;
    *ret_ended_at = at;
    return 0;
}
