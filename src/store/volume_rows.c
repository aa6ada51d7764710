/* SPDX-License-Identifier: Apache-2.0 */
#include "store/volume_rows.h"
#include "store/db.h"

static const struct db_column volume_columns[] = {DB_COLUMN(store_volume, id),
                                                  DB_COLUMN(store_volume, name),
                                                  DB_COLUMN(store_volume, token),
                                                  DB_COLUMN(store_volume, limit_bytes),
                                                  DB_COLUMN(store_volume, created_at),
                                                  DB_COLUMN(store_volume, tenant),
                                                  {0}};

int volume_rows_insert(struct store *s, const struct store_volume *row, struct err *err)
{
    return db_put(s, SQL_VOLUME_INSERT, "record a volume", DB_MAY_EXIST, volume_columns, row, err);
}

int volume_rows_delete(struct store *s, const char *id, struct err *err)
{
    return DB_DO(s, SQL_VOLUME_DELETE, "forget a volume", 0, err, DB(id));
}

int volume_rows_each(struct store *s, void (*fn)(void *ctx, const struct store_volume *row), void *ctx, struct err *err)
{
    return DB_EACH(s, db_stmt(s, SQL_VOLUME_EACH, err), "read the volumes", store_volume, volume_columns, fn, ctx, err);
}

int volume_rows_log_expired(struct store *s, usec_t before, void (*fn)(void *ctx, const char *id), void *ctx,
                            struct err *err)
{
    sqlite3_stmt *q = DB_ASK(s, SQL_VOLUME_LOG_EXPIRED, err, DB(before));
    int r = q ? db_row(s, q, "look for logs of volumes that are gone", err) : -1;
    if (r == 1)
        fn(ctx, db_text(q, 0));
    return db_end(q, r);
}

int spare_rows_put(struct store *s, const char *template_id, uint32_t count, uint32_t most, struct err *err)
{
    return DB_DO(s, SQL_SPARES_PUT, "record what is kept ready", 0, err, DB(template_id), DB(count), DB(most));
}

int spare_rows_each(struct store *s, void (*fn)(void *ctx, const char *template_id, uint32_t count, uint32_t most),
                    void *ctx, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_SPARES_EACH, err);
    int r = -1;
    while (q && (r = db_row(s, q, "read what is kept ready", err)) == 1)
        fn(ctx, db_text(q, 0), (uint32_t)db_u64(q, 1), (uint32_t)db_u64(q, 2));
    return db_end(q, r);
}
