/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sandbox_rows.h"
#include "store/db.h"
#include "store/tenant_rows.h"

#define SANDBOX_COLUMN(name) DB_COLUMN(store_sandbox, name),
static const struct db_column sandbox_columns[] = {SANDBOX_COLUMN(id) SANDBOX_ROW(SANDBOX_COLUMN){0}};

int sandbox_rows_insert(struct store *s, const struct store_sandbox *row, struct err *err)
{
    assert(row->id && row->id[0]);
    return db_put(s, SQL_SANDBOX_INSERT, "record a sandbox", DB_MAY_EXIST, sandbox_columns, row, err);
}

static int missing(const char *id, struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, "sandbox %.64s is not in the store", id);
}

/* values: the first one is the id. */
static int update(struct store *s, enum sql sql, struct err *err, const struct db_value *values, size_t n)
{
    if (db_do(s, sql, "update a sandbox", 0, err, values, n) < 0)
        return -1;
    return db_changes(s) == 0 ? missing(values[0].s.p, err) : 0;
}

int sandbox_rows_update_state(struct store *s, const char *id, int state, struct err *err)
{
    return update(s, SQL_SANDBOX_STATE, err, DB_VALUES(DB(id), DB(state)));
}

int sandbox_rows_update_end_at(struct store *s, const char *id, usec_t end_at, usec_t timeout, struct err *err)
{
    return update(s, SQL_SANDBOX_END_AT, err, DB_VALUES(DB(id), DB(end_at), DB(timeout)));
}

int sandbox_rows_update_ended(struct store *s, const char *id, int state, usec_t ended_at, const char *end_cause,
                              struct err *err)
{
    return update(s, SQL_SANDBOX_ENDED, err, DB_VALUES(DB(id), DB(state), DB(ended_at), DB(end_cause)));
}

int sandbox_rows_update_network(struct store *s, const char *id, const char *network, struct err *err)
{
    return update(s, SQL_SANDBOX_NETWORK, err, DB_VALUES(DB(id), DB(network)));
}

int sandbox_rows_update_extra(struct store *s, const char *id, const char *extra, struct err *err)
{
    return update(s, SQL_SANDBOX_EXTRA, err, DB_VALUES(DB(id), DB(extra)));
}

DB_DOES(sandbox_rows_delete, SQL_SANDBOX_DELETE, "delete a sandbox", 0, (DB(id)), const char *id)

int sandbox_rows_get(struct store *s, const char *id, struct arena *arena, struct store_sandbox *ret_row,
                     struct err *err)
{
    sqlite3_stmt *q = DB_ASK(s, SQL_SANDBOX_GET, err, DB(id));
    struct store_sandbox row;
    int r = db_load(s, q, "read a sandbox", sandbox_columns, &row, err);
    for (const struct db_column *c = sandbox_columns; r == 1 && c->kind; c++) {
        const char **text = (const char **)((char *)&row + c->at);
        if (c->kind == DB_COLUMN_TEXT)
            *text = arena_strdup(arena, *text);
    }
    db_done(q);
    if (r == 1)
        *ret_row = row;
    return r == 0 ? missing(id, err) : MIN(r, 0);
}

static int sandbox_rows_each(struct store *s, sqlite3_stmt *q, sandbox_rows_fn fn, void *ctx, struct err *err)
{
    struct store_sandbox row;
    int r;
    while ((r = db_load(s, q, "list sandboxes", sandbox_columns, &row, err)) == 1 && fn(&row, ctx))
        ;
    return db_end(q, r);
}

int sandbox_rows_each_live(struct store *s, sandbox_rows_fn fn, void *ctx, struct err *err)
{
    return sandbox_rows_each(s, db_stmt(s, SQL_SANDBOX_EACH_LIVE, err), fn, ctx, err);
}

int sandbox_rows_each_ended(struct store *s, uint64_t view, size_t limit, sandbox_rows_fn fn, void *ctx,
                            struct err *err)
{
    return sandbox_rows_each(s, DB_ASK(s, SQL_SANDBOX_EACH_ENDED, err, DB(view == TENANT_ANY), DB(view), DB(limit)), fn,
                             ctx, err);
}

int sandbox_rows_each_expired(struct store *s, usec_t before, size_t limit, sandbox_rows_fn fn, void *ctx,
                              struct err *err)
{
    return sandbox_rows_each(s, DB_ASK(s, SQL_SANDBOX_EACH_EXPIRED, err, DB(before), DB(limit)), fn, ctx, err);
}

int sandbox_rows_each_surplus(struct store *s, size_t keep, sandbox_rows_fn fn, void *ctx, struct err *err)
{
    return sandbox_rows_each(s, DB_ASK(s, SQL_SANDBOX_EACH_SURPLUS, err, DB(keep)), fn, ctx, err);
}
