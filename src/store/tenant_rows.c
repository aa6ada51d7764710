/* SPDX-License-Identifier: Apache-2.0 */
#include "store/tenant_rows.h"
#include "store/db.h"

static const struct db_column tenant_columns[] = {
    DB_COLUMN(store_tenant, number), DB_COLUMN(store_tenant, name), DB_COLUMN(store_tenant, created_at), {0}};

/* The order is that of KEY_COLUMNS in sql.c. */
static const struct db_column key_columns[] = {
    DB_COLUMN(store_key, id),
    DB_COLUMN(store_key, tenant),
    DB_COLUMN(store_key, name),
    DB_COLUMN(store_key, scope),
    DB_COLUMN(store_key, sandbox),
    {DB_COLUMN_BLOB, offsetof(struct store_key, hash)},
    {DB_COLUMN_BLOB, offsetof(struct store_key, old_hash)},
    DB_COLUMN(store_key, old_until),
    DB_COLUMN(store_key, created_at),
    DB_COLUMN(store_key, expires_at),
    {0},
};

int tenant_rows_insert(struct store *s, const char *name, usec_t created_at, uint64_t *ret_number, struct err *err)
{
    int r = DB_DO(s, SQL_TENANT_INSERT, "record a tenant", DB_MAY_EXIST, err, DB(name), DB(created_at));
    if (r < 0)
        return r;
    *ret_number = (uint64_t)db_last_rowid(s);
    return 0;
}

int tenant_rows_delete(struct store *s, uint64_t number, struct err *err)
{
    static const enum sql all[] = {SQL_TENANT_DELETE_KEYS, SQL_TENANT_DELETE_LIMITS, SQL_TENANT_DELETE};
    int r = 0;
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(all); i++)
        r = DB_DO(s, all[i], "forget a tenant", 0, err, DB(number));
    return r;
}

DB_LISTS(tenant_rows_each, SQL_TENANT_EACH, "read the tenants", store_tenant, tenant_columns)
DB_DOES(tenant_rows_put_limit, SQL_LIMIT_PUT, "record a limit", 0, (DB(number), DB(what), DB(most)), uint64_t number,
        const char *what, uint64_t most)

int tenant_rows_each_limit(struct store *s, void (*fn)(void *ctx, uint64_t number, const char *what, uint64_t most),
                           void *ctx, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_LIMIT_EACH, err);
    int r = -1;
    while (q && (r = db_row(s, q, "read the limits of tenants", err)) == 1)
        fn(ctx, db_u64(q, 0), db_text(q, 1), db_u64(q, 2));
    return db_end(q, r);
}

DB_PUTS(key_rows_put, SQL_KEY_PUT, "record a key", 0, store_key, key_columns)
DB_DOES(key_rows_delete, SQL_KEY_DELETE, "forget a key", 0, (DB(id)), const char *id)
DB_LISTS(key_rows_each, SQL_KEY_EACH, "read the keys", store_key, key_columns)
DB_DOES(owner_rows_put, SQL_OWNER_PUT, "record whose a volume is", 0, (DB(volume), DB(tenant)), const char *volume,
        uint64_t tenant)

int owner_rows_get(struct store *s, const char *volume, uint64_t *ret_tenant, struct err *err)
{
    sqlite3_stmt *q = DB_ASK(s, SQL_OWNER_GET, err, DB(volume));
    int r = q ? db_row(s, q, "look whose a volume was", err) : -1;
    if (q)
        *ret_tenant = r == 1 ? db_u64(q, 0) : TENANT_DEFAULT;
    db_done(q);
    return r;
}

DB_DOES(owner_rows_delete, SQL_OWNER_DELETE, "forget whose a volume was", 0, (DB(volume)), const char *volume)
