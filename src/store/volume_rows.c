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

DB_PUTS(volume_rows_insert, SQL_VOLUME_INSERT, "record a volume", DB_MAY_EXIST, store_volume, volume_columns)
DB_DOES(volume_rows_delete, SQL_VOLUME_DELETE, "forget a volume", 0, (DB(id)), const char *id)
DB_LISTS(volume_rows_each, SQL_VOLUME_EACH, "read the volumes", store_volume, volume_columns)

int volume_rows_log_expired(struct store *s, usec_t before, void (*fn)(void *ctx, const char *id), void *ctx,
                            struct err *err)
{
    sqlite3_stmt *q = DB_ASK(s, SQL_VOLUME_LOG_EXPIRED, err, DB(before));
    int r = q ? db_row(s, q, "look for logs of volumes that are gone", err) : -1;
    if (r == 1)
        fn(ctx, db_text(q, 0));
    return db_end(q, r);
}

DB_DOES(spare_rows_put, SQL_SPARES_PUT, "record what is kept ready", 0, (DB(template_id), DB(count), DB(most)),
        const char *template_id, uint32_t count, uint32_t most)

int spare_rows_each(struct store *s, void (*fn)(void *ctx, const char *template_id, uint32_t count, uint32_t most),
                    void *ctx, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_SPARES_EACH, err);
    int r = -1;
    while (q && (r = db_row(s, q, "read what is kept ready", err)) == 1)
        fn(ctx, db_text(q, 0), (uint32_t)db_u64(q, 1), (uint32_t)db_u64(q, 2));
    return db_end(q, r);
}
