/* SPDX-License-Identifier: Apache-2.0 */
#include "store/life_rows.h"
#include "store/db.h"
#include "store/tenant_rows.h"

static const struct db_column life_columns[] = {DB_COLUMN(life_row, cursor),
                                                DB_COLUMN(life_row, time),
                                                DB_COLUMN(life_row, kind),
                                                DB_COLUMN(life_row, data),
                                                DB_COLUMN(life_row, hash),
                                                DB_COLUMN(life_row, sandbox),
                                                DB_COLUMN(life_row, tenant),
                                                DB_COLUMN(life_row, template_id),
                                                DB_COLUMN(life_row, metadata),
                                                DB_COLUMN(life_row, started_at),
                                                DB_COLUMN(life_row, cpu_milli),
                                                DB_COLUMN(life_row, memory_bytes),
                                                {0}};

static const struct db_column webhook_columns[] = {DB_COLUMN(store_webhook, id),
                                                   DB_COLUMN(store_webhook, tenant),
                                                   DB_COLUMN(store_webhook, cursor),
                                                   DB_COLUMN(store_webhook, config),
                                                   {0}};

int life_rows_each(struct store *s, const struct life_want *want, life_rows_fn fn, void *ctx, struct err *err)
{
    sqlite3_stmt *q = DB_ASK(s, want->is_back ? SQL_LIFE_BACK : SQL_LIFE, err, DB(want->after), DB(want->to),
                             DB(want->tenant == TENANT_ANY), DB(want->tenant), DB(want->sandbox));
    struct life_row row;
    int r;
    while ((r = db_load(s, q, "read the lives of sandboxes", life_columns, &row, err)) == 1 && fn(ctx, &row))
        ;
    return db_end(q, r);
}

int webhook_rows_put(struct store *s, const struct store_webhook *row, struct err *err)
{
    return db_put(s, SQL_WEBHOOK_PUT, "record a webhook", 0, webhook_columns, row, err);
}

int webhook_rows_put_cursor(struct store *s, const char *id, uint64_t cursor, struct err *err)
{
    return DB_DO(s, SQL_WEBHOOK_CURSOR, "record what a webhook was told", 0, err, DB(id), DB(cursor));
}

int webhook_rows_delete(struct store *s, const char *id, struct err *err)
{
    return DB_DO(s, SQL_WEBHOOK_DELETE, "forget a webhook", 0, err, DB(id));
}

int webhook_rows_each(struct store *s, void (*fn)(void *ctx, const struct store_webhook *row), void *ctx,
                      struct err *err)
{
    return DB_EACH(s, db_stmt(s, SQL_WEBHOOK_EACH, err), "read the webhooks", store_webhook, webhook_columns, fn, ctx,
                   err);
}
