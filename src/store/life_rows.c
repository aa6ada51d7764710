/* SPDX-License-Identifier: Apache-2.0 */
#include "store/life_rows.h"
#include "store/db.h"
#include "store/tenant_rows.h"

int life_rows_each(struct store *s, const struct life_want *want, life_rows_fn fn, void *ctx, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, want->is_back ? SQL_LIFE_BACK : SQL_LIFE, err);
    int r = q ? 1 : -1;
    if (q) {
        db_bind_u64(q, 1, want->after);
        db_bind_u64(q, 2, want->to);
        db_bind_u64(q, 3, want->tenant == TENANT_ANY);
        db_bind_u64(q, 4, want->tenant);
        db_bind_text(q, 5, want->sandbox);
        db_bind_u64(q, 6, want->limit);
        db_bind_u64(q, 7, want->skip);
    }
    while (r == 1 && (r = db_row(s, q, "read the lives of sandboxes", err)) == 1)
        r = fn(ctx, &(struct life_row){.cursor = db_u64(q, 0),
                                       .time = db_u64(q, 1),
                                       .kind = db_text(q, 2),
                                       .data = db_text(q, 3),
                                       .hash = db_str(q, 4),
                                       .sandbox = db_text(q, 5),
                                       .tenant = db_u64(q, 6),
                                       .template_id = db_text(q, 7),
                                       .metadata = db_text(q, 8),
                                       .started_at = db_u64(q, 9),
                                       .cpu_milli = (uint32_t)db_u64(q, 10),
                                       .memory_bytes = db_u64(q, 11)});
    db_done(q);
    return r < 0 ? -1 : 0;
}

static sqlite3_stmt *webhook_writing(struct store *s, enum sql sql, const char *id, struct err *err)
{
    sqlite3_stmt *q = db_write(s, err) < 0 ? NULL : db_stmt(s, sql, err);
    if (q)
        db_bind_text(q, 1, id);
    return q;
}

int webhook_rows_put(struct store *s, const struct store_webhook *row, struct err *err)
{
    sqlite3_stmt *q = webhook_writing(s, SQL_WEBHOOK_PUT, row->id, err);
    if (!q)
        return -1;
    db_bind_u64(q, 2, row->tenant);
    db_bind_u64(q, 3, row->cursor);
    db_bind_text(q, 4, row->config);
    return db_run(s, q, "record a webhook", 0, err);
}

int webhook_rows_put_cursor(struct store *s, const char *id, uint64_t cursor, struct err *err)
{
    sqlite3_stmt *q = webhook_writing(s, SQL_WEBHOOK_CURSOR, id, err);
    if (!q)
        return -1;
    db_bind_u64(q, 2, cursor);
    return db_run(s, q, "record what a webhook was told", 0, err);
}

int webhook_rows_delete(struct store *s, const char *id, struct err *err)
{
    sqlite3_stmt *q = webhook_writing(s, SQL_WEBHOOK_DELETE, id, err);
    return q ? db_run(s, q, "forget a webhook", 0, err) : -1;
}

int webhook_rows_each(struct store *s, void (*fn)(void *ctx, const struct store_webhook *row), void *ctx,
                      struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_WEBHOOK_EACH, err);
    int r = q ? 0 : -1;
    while (q && (r = db_row(s, q, "read the webhooks", err)) == 1)
        fn(ctx, &(struct store_webhook){
                    .id = db_text(q, 0), .tenant = db_u64(q, 1), .cursor = db_u64(q, 2), .config = db_text(q, 3)});
    db_done(q);
    return r < 0 ? -1 : 0;
}
