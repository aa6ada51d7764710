/* SPDX-License-Identifier: Apache-2.0 */
#include "store/tenant_rows.h"
#include "store/db.h"

static sqlite3_stmt *tenant_writing(struct store *s, enum sql sql, struct err *err)
{
    return db_write(s, err) < 0 ? NULL : db_stmt(s, sql, err);
}

static int tenant_read_end(sqlite3_stmt *q, int r)
{
    db_done(q);
    return r < 0 ? -1 : 0;
}

static int tenant_run_u64(struct store *s, enum sql sql, uint64_t number, struct err *err)
{
    sqlite3_stmt *q = tenant_writing(s, sql, err);
    if (!q)
        return -1;
    db_bind_u64(q, 1, number);
    return db_run(s, q, "forget a tenant", 0, err);
}

static int tenant_run_text(struct store *s, enum sql sql, const char *id, const char *what, struct err *err)
{
    sqlite3_stmt *q = tenant_writing(s, sql, err);
    if (!q)
        return -1;
    db_bind_text(q, 1, id);
    return db_run(s, q, what, 0, err);
}

int tenant_rows_insert(struct store *s, const char *name, usec_t created_at, uint64_t *ret_number, struct err *err)
{
    sqlite3_stmt *q = tenant_writing(s, SQL_TENANT_INSERT, err);
    if (!q)
        return -1;
    db_bind_text(q, 1, name);
    db_bind_u64(q, 2, created_at);
    if (db_run(s, q, "record a tenant", DB_MAY_EXIST, err) < 0)
        return -1;
    *ret_number = (uint64_t)db_last_rowid(s);
    return 0;
}

int tenant_rows_delete(struct store *s, uint64_t number, struct err *err)
{
    if (tenant_run_u64(s, SQL_TENANT_DELETE_KEYS, number, err) < 0 ||
        tenant_run_u64(s, SQL_TENANT_DELETE_LIMITS, number, err) < 0)
        return -1;
    return tenant_run_u64(s, SQL_TENANT_DELETE, number, err);
}

int tenant_rows_each(struct store *s, void (*fn)(void *ctx, const struct store_tenant *row), void *ctx, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_TENANT_EACH, err);
    int r = q ? 0 : -1;
    while (q && (r = db_row(s, q, "read the tenants", err)) == 1)
        fn(ctx, &(struct store_tenant){.number = db_u64(q, 0), .name = db_text(q, 1), .created_at = db_u64(q, 2)});
    return tenant_read_end(q, r);
}

int tenant_rows_put_limit(struct store *s, uint64_t number, const char *what, uint64_t most, struct err *err)
{
    sqlite3_stmt *q = tenant_writing(s, SQL_LIMIT_PUT, err);
    if (!q)
        return -1;
    db_bind_u64(q, 1, number);
    db_bind_text(q, 2, what);
    db_bind_u64(q, 3, most);
    return db_run(s, q, "record a limit", 0, err);
}

int tenant_rows_each_limit(struct store *s, void (*fn)(void *ctx, uint64_t number, const char *what, uint64_t most),
                           void *ctx, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_LIMIT_EACH, err);
    int r = q ? 0 : -1;
    while (q && (r = db_row(s, q, "read the limits of tenants", err)) == 1)
        fn(ctx, db_u64(q, 0), db_text(q, 1), db_u64(q, 2));
    return tenant_read_end(q, r);
}

int key_rows_put(struct store *s, const struct store_key *row, struct err *err)
{
    sqlite3_stmt *q = tenant_writing(s, SQL_KEY_PUT, err);
    int at = 0;
    if (!q)
        return -1;
    db_bind_text(q, ++at, row->id);
    db_bind_u64(q, ++at, row->tenant);
    db_bind_text(q, ++at, row->name);
    db_bind_u64(q, ++at, (uint64_t)row->scope);
    db_bind_text(q, ++at, row->sandbox);
    db_bind_blob(q, ++at, row->hash);
    db_bind_blob(q, ++at, row->old_hash);
    db_bind_u64(q, ++at, row->old_until);
    db_bind_u64(q, ++at, row->created_at);
    db_bind_u64(q, ++at, row->expires_at);
    return db_run(s, q, "record a key", 0, err);
}

int key_rows_delete(struct store *s, const char *id, struct err *err)
{
    return tenant_run_text(s, SQL_KEY_DELETE, id, "forget a key", err);
}

int key_rows_each(struct store *s, void (*fn)(void *ctx, const struct store_key *row), void *ctx, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_KEY_EACH, err);
    int r = q ? 0 : -1;
    while (q && (r = db_row(s, q, "read the keys", err)) == 1)
        fn(ctx, &(struct store_key){.id = db_text(q, 0),
                                    .tenant = db_u64(q, 1),
                                    .name = db_text(q, 2),
                                    .scope = (int)db_u64(q, 3),
                                    .sandbox = db_text(q, 4),
                                    .hash = db_str(q, 5),
                                    .old_hash = db_str(q, 6),
                                    .old_until = db_u64(q, 7),
                                    .created_at = db_u64(q, 8),
                                    .expires_at = db_u64(q, 9)});
    return tenant_read_end(q, r);
}

int owner_rows_put(struct store *s, const char *volume, uint64_t tenant, struct err *err)
{
    sqlite3_stmt *q = tenant_writing(s, SQL_OWNER_PUT, err);
    if (!q)
        return -1;
    db_bind_text(q, 1, volume);
    db_bind_u64(q, 2, tenant);
    return db_run(s, q, "record whose a volume is", 0, err);
}

int owner_rows_get(struct store *s, const char *volume, uint64_t *ret_tenant, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_OWNER_GET, err);
    if (!q)
        return -1;
    db_bind_text(q, 1, volume);
    int r = db_row(s, q, "look whose a volume was", err);
    *ret_tenant = r == 1 ? db_u64(q, 0) : TENANT_DEFAULT;
    db_done(q);
    return r;
}

int owner_rows_delete(struct store *s, const char *volume, struct err *err)
{
    return tenant_run_text(s, SQL_OWNER_DELETE, volume, "forget whose a volume was", err);
}
