/* SPDX-License-Identifier: Apache-2.0 */
#include "store/volume_rows.h"
#include "store/db.h"

static sqlite3_stmt *writing(struct store *s, enum sql sql, struct err *err)
{
    return db_write(s, err) < 0 ? NULL : db_stmt(s, sql, err);
}

int volume_rows_insert(struct store *s, const struct store_volume *row, struct err *err)
{
    sqlite3_stmt *q = writing(s, SQL_VOLUME_INSERT, err);
    if (!q)
        return -1;
    db_bind_text(q, 1, row->id);
    db_bind_text(q, 2, row->name);
    db_bind_text(q, 3, row->token);
    db_bind_u64(q, 4, row->limit_bytes);
    db_bind_u64(q, 5, row->created_at);
    db_bind_u64(q, 6, row->tenant);
    return db_run(s, q, "record a volume", DB_MAY_EXIST, err);
}

int volume_rows_delete(struct store *s, const char *id, struct err *err)
{
    sqlite3_stmt *q = writing(s, SQL_VOLUME_DELETE, err);
    if (!q)
        return -1;
    db_bind_text(q, 1, id);
    return db_run(s, q, "forget a volume", 0, err);
}

int volume_rows_each(struct store *s, void (*fn)(void *ctx, const struct store_volume *row), void *ctx, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_VOLUME_EACH, err);
    int r = q ? 0 : -1;
    while (q && (r = db_row(s, q, "read the volumes", err)) == 1)
        fn(ctx, &(struct store_volume){.id = db_text(q, 0),
                                       .name = db_text(q, 1),
                                       .token = db_text(q, 2),
                                       .limit_bytes = db_u64(q, 3),
                                       .created_at = db_u64(q, 4),
                                       .tenant = db_u64(q, 5)});
    db_done(q);
    return r < 0 ? -1 : 0;
}

int volume_rows_log_expired(struct store *s, usec_t before, void (*fn)(void *ctx, const char *id), void *ctx,
                            struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_VOLUME_LOG_EXPIRED, err);
    if (!q)
        return -1;
    db_bind_u64(q, 1, before);
    int r = db_row(s, q, "look for logs of volumes that are gone", err);
    if (r == 1)
        fn(ctx, db_text(q, 0));
    db_done(q);
    return r < 0 ? -1 : 0;
}

int spare_rows_put(struct store *s, const char *template_id, uint32_t count, uint32_t most, struct err *err)
{
    sqlite3_stmt *q = writing(s, SQL_SPARES_PUT, err);
    if (!q)
        return -1;
    db_bind_text(q, 1, template_id);
    db_bind_u64(q, 2, count);
    db_bind_u64(q, 3, most);
    return db_run(s, q, "record what is kept ready", 0, err);
}

int spare_rows_each(struct store *s, void (*fn)(void *ctx, const char *template_id, uint32_t count, uint32_t most),
                    void *ctx, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_SPARES_EACH, err);
    int r = q ? 0 : -1;
    while (q && (r = db_row(s, q, "read what is kept ready", err)) == 1)
        fn(ctx, db_text(q, 0), (uint32_t)db_u64(q, 1), (uint32_t)db_u64(q, 2));
    db_done(q);
    return r < 0 ? -1 : 0;
}
