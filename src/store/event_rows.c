/* SPDX-License-Identifier: Apache-2.0 */
#include "store/event_rows.h"
#include "store/db.h"
#include "store/tenant_rows.h"

/* The order is that of EVENT_COLUMNS in sql.c. */
static const struct db_column event_columns[] = {DB_COLUMN(event_row, seq),   DB_COLUMN(event_row, time),
                                                 DB_COLUMN(event_row, kind),  DB_COLUMN(event_row, source),
                                                 DB_COLUMN(event_row, grade), DB_COLUMN(event_row, actor),
                                                 DB_COLUMN(event_row, cause), DB_COLUMN(event_row, data),
                                                 DB_COLUMN(event_row, hash),  {0}};

/* A hash of another length than ours was tampered with: cut or filled with zeros it will not fit either. */
static void load_hash(sqlite3_stmt *q, int column, unsigned char to[static EVENT_ROWS_HASH_SIZE])
{
    struct str hash = db_str(q, column);
    memset(to, 0, EVENT_ROWS_HASH_SIZE);
    memcpy(to, hash.p, MIN(hash.n, (size_t)EVENT_ROWS_HASH_SIZE));
}

static struct db_value hash_of(const unsigned char *hash)
{
    return db_of_blob(str_n(hash, EVENT_ROWS_HASH_SIZE));
}

int event_rows_head_get(struct store *s, const char *sandbox, struct event_head_row *ret_head, struct err *err)
{
    sqlite3_stmt *q = DB_ASK(s, SQL_HEAD_GET, err, DB(sandbox));
    int r = q ? db_row(s, q, "read the head of a log", err) : -1;
    if (r == 1) {
        ret_head->log = (int64_t)db_u64(q, 0);
        ret_head->last_seq = db_u64(q, 1);
        load_hash(q, 2, ret_head->last_hash);
        ret_head->base_seq = db_u64(q, 3);
        load_hash(q, 4, ret_head->base_hash);
        ret_head->last_cursor = db_u64(q, 5);
    }
    db_done(q);
    return r;
}

int event_rows_head_create(struct store *s, const char *sandbox, struct event_head_row *head, struct err *err)
{
    int r =
        DB_DO(s, SQL_HEAD_CREATE, "create a log", 0, err, DB(sandbox), DB(head->base_seq), hash_of(head->base_hash));
    if (r < 0)
        return r;
    head->log = db_last_rowid(s);
    return 0;
}

DB_DOES(event_rows_head_update, SQL_HEAD_UPDATE, "write the head of a log", 0,
        (DB(head->log), DB(head->last_seq), hash_of(head->last_hash), DB(head->last_cursor)),
        const struct event_head_row *head)
DB_DOES(event_rows_head_rebase, SQL_HEAD_REBASE, "write the head of a log", 0,
        (DB(head->log), DB(head->base_seq), hash_of(head->base_hash)), const struct event_head_row *head)
DB_DOES(event_rows_head_delete, SQL_HEAD_DELETE, "delete the head of a log", 0, (DB(log)), int64_t log)

int event_rows_heads_each(struct store *s,
                          void (*fn)(void *ctx, const char *sandbox, uint64_t last, const unsigned char *hash),
                          void *ctx, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_HEAD_EACH, err);
    unsigned char hash[EVENT_ROWS_HASH_SIZE];
    int r = -1;
    while (q && (r = db_row(s, q, "read the heads of all logs", err)) == 1) {
        load_hash(q, 2, hash);
        fn(ctx, db_text(q, 0), db_u64(q, 1), hash);
    }
    return db_end(q, r);
}

DB_DOES(event_rows_append, SQL_EVENT_APPEND, "append an event", 0,
        (DB(log), DB(row->seq), DB(row->time), DB(row->kind), DB(row->source), DB(row->grade), DB(row->actor),
         DB(row->cause), DB(row->data), db_of_blob(row->hash), DB(row->cursor)),
        int64_t log, const struct event_row *row)

int event_rows_get(struct store *s, int64_t log, uint64_t from, uint64_t to, struct event_row *ret_row, struct err *err)
{
    sqlite3_stmt *q = DB_ASK(s, SQL_EVENT_GET, err, DB(log), DB(from), DB(to));
    int r = db_load(s, q, "read an event", event_columns, ret_row, err);
    if (r != 1)
        db_done(q);
    return r;
}

void event_rows_done(struct store *s)
{
    struct err ignored;
    db_done(db_stmt(s, SQL_EVENT_GET, &ignored));
}

int64_t event_rows_each(struct store *s, int64_t log, uint64_t from, uint64_t to, uint64_t limit, event_rows_fn fn,
                        void *ctx, struct err *err)
{
    sqlite3_stmt *q = DB_ASK(s, SQL_EVENT_READ, err, DB(log), DB(from), DB(to), DB(limit));
    struct event_row row;
    int64_t n = 0;
    int r;
    while ((r = db_load(s, q, "read events", event_columns, &row, err)) == 1) {
        n++;
        if (!fn(&row, ctx))
            break;
    }
    return db_end(q, r) < 0 ? -1 : n;
}

int event_rows_nth(struct store *s, int64_t log, uint64_t limit, uint64_t *ret_seq, struct err *err)
{
    return db_number(s, DB_ASK(s, SQL_EVENT_NTH, err, DB(log), DB(limit)), "count events", ret_seq, err);
}

DB_DOES(event_rows_delete_before, SQL_EVENT_DELETE, "prune events", 0, (DB(log), DB(seq)), int64_t log, uint64_t seq)

/* ---- lives, and who is told of them ---- */

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

DB_PUTS(webhook_rows_put, SQL_WEBHOOK_PUT, "record a webhook", 0, store_webhook, webhook_columns)
DB_DOES(webhook_rows_put_cursor, SQL_WEBHOOK_CURSOR, "record what a webhook was told", 0, (DB(id), DB(cursor)),
        const char *id, uint64_t cursor)
DB_DOES(webhook_rows_delete, SQL_WEBHOOK_DELETE, "forget a webhook", 0, (DB(id)), const char *id)
DB_LISTS(webhook_rows_each, SQL_WEBHOOK_EACH, "read the webhooks", store_webhook, webhook_columns)
