/* SPDX-License-Identifier: Apache-2.0 */
#include "store/event_rows.h"
#include "store/db.h"

/* A hash of another length than ours was tampered with: cut or filled with zeros it will not fit either. */
static void load_hash(sqlite3_stmt *q, int column, unsigned char to[static EVENT_ROWS_HASH_SIZE])
{
    struct str hash = db_str(q, column);
    memset(to, 0, EVENT_ROWS_HASH_SIZE);
    memcpy(to, hash.p, MIN(hash.n, (size_t)EVENT_ROWS_HASH_SIZE));
}

static struct str hash_str(const unsigned char *hash)
{
    return str_n(hash, EVENT_ROWS_HASH_SIZE);
}

int event_rows_head_get(struct store *s, const char *sandbox, struct event_head_row *ret_head, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_HEAD_GET, err);
    if (!q)
        return -1;
    db_bind_text(q, 1, sandbox);
    int r = db_row(s, q, "read the head of a log", err);
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
    sqlite3_stmt *q;
    if (db_write(s, err) < 0 || !(q = db_stmt(s, SQL_HEAD_CREATE, err)))
        return -1;
    db_bind_text(q, 1, sandbox);
    db_bind_u64(q, 2, head->base_seq);
    db_bind_blob(q, 3, hash_str(head->base_hash));
    if (db_run(s, q, "create a log", 0, err) < 0)
        return -1;
    head->log = db_last_rowid(s);
    return 0;
}

/* cursor: for SQL_HEAD_UPDATE. */
static int set_head(struct store *s, enum sql sql, int64_t log, uint64_t seq, const unsigned char *hash,
                    const uint64_t *cursor, struct err *err)
{
    sqlite3_stmt *q;
    if (db_write(s, err) < 0 || !(q = db_stmt(s, sql, err)))
        return -1;
    db_bind_u64(q, 1, (uint64_t)log);
    db_bind_u64(q, 2, seq);
    db_bind_blob(q, 3, hash_str(hash));
    if (cursor)
        db_bind_u64(q, 4, *cursor);
    return db_run(s, q, "write the head of a log", 0, err);
}

int event_rows_head_update(struct store *s, const struct event_head_row *head, struct err *err)
{
    return set_head(s, SQL_HEAD_UPDATE, head->log, head->last_seq, head->last_hash, &head->last_cursor, err);
}

int event_rows_head_rebase(struct store *s, const struct event_head_row *head, struct err *err)
{
    return set_head(s, SQL_HEAD_REBASE, head->log, head->base_seq, head->base_hash, NULL, err);
}

int event_rows_head_delete(struct store *s, int64_t log, struct err *err)
{
    sqlite3_stmt *q;
    if (db_write(s, err) < 0 || !(q = db_stmt(s, SQL_HEAD_DELETE, err)))
        return -1;
    db_bind_u64(q, 1, (uint64_t)log);
    return db_run(s, q, "delete the head of a log", 0, err);
}

int event_rows_heads_each(struct store *s,
                          void (*fn)(void *ctx, const char *sandbox, uint64_t last, const unsigned char *hash),
                          void *ctx, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_HEAD_EACH, err);
    unsigned char hash[EVENT_ROWS_HASH_SIZE];
    int r = q ? 0 : -1;
    while (q && (r = db_row(s, q, "read the heads of all logs", err)) == 1) {
        load_hash(q, 2, hash);
        fn(ctx, db_text(q, 0), db_u64(q, 1), hash);
    }
    db_done(q);
    return r < 0 ? -1 : 0;
}

int event_rows_append(struct store *s, int64_t log, const struct event_row *row, struct err *err)
{
    sqlite3_stmt *q;
    if (db_write(s, err) < 0 || !(q = db_stmt(s, SQL_EVENT_APPEND, err)))
        return -1;
    int at = 0;
    db_bind_u64(q, ++at, (uint64_t)log);
    db_bind_u64(q, ++at, row->seq);
    db_bind_u64(q, ++at, row->time);
    db_bind_str(q, ++at, row->kind);
    db_bind_str(q, ++at, row->source);
    db_bind_str(q, ++at, row->grade);
    db_bind_str(q, ++at, row->actor);
    db_bind_u64(q, ++at, row->cause);
    db_bind_str(q, ++at, row->data);
    db_bind_blob(q, ++at, row->hash);
    db_bind_u64(q, ++at, row->cursor);
    return db_run(s, q, "append an event", 0, err);
}

static void event_rows_load(sqlite3_stmt *q, struct event_row *ret_row)
{
    int at = 0;
    ret_row->seq = db_u64(q, at++);
    ret_row->time = db_u64(q, at++);
    ret_row->kind = db_str(q, at++);
    ret_row->source = db_str(q, at++);
    ret_row->grade = db_str(q, at++);
    ret_row->actor = db_str(q, at++);
    ret_row->cause = db_u64(q, at++);
    ret_row->data = db_str(q, at++);
    ret_row->hash = db_str(q, at++);
}

static sqlite3_stmt *range(struct store *s, enum sql sql, int64_t log, uint64_t from, uint64_t to, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, sql, err);
    if (!q)
        return NULL;
    db_bind_u64(q, 1, (uint64_t)log);
    db_bind_u64(q, 2, from);
    db_bind_u64(q, 3, to);
    return q;
}

int event_rows_get(struct store *s, int64_t log, uint64_t from, uint64_t to, struct event_row *ret_row, struct err *err)
{
    sqlite3_stmt *q = range(s, SQL_EVENT_GET, log, from, to, err);
    if (!q)
        return -1;
    int r = db_row(s, q, "read an event", err);
    if (r == 1)
        event_rows_load(q, ret_row);
    else
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
    sqlite3_stmt *q = range(s, SQL_EVENT_READ, log, from, to, err);
    if (!q)
        return -1;
    db_bind_u64(q, 4, limit);
    int64_t n = 0;
    int r;
    while ((r = db_row(s, q, "read events", err)) == 1) {
        struct event_row row;
        event_rows_load(q, &row);
        n++;
        if (!fn(&row, ctx))
            break;
    }
    db_done(q);
    return r < 0 ? -1 : n;
}

int event_rows_nth(struct store *s, int64_t log, uint64_t limit, uint64_t *ret_seq, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_EVENT_NTH, err);
    if (!q)
        return -1;
    db_bind_u64(q, 1, (uint64_t)log);
    db_bind_u64(q, 2, limit);
    int r = db_row(s, q, "count events", err);
    if (r >= 0)
        *ret_seq = r == 1 ? db_u64(q, 0) : 0;
    db_done(q);
    return r < 0 ? -1 : 0;
}

int event_rows_delete_before(struct store *s, int64_t log, uint64_t seq, struct err *err)
{
    sqlite3_stmt *q;
    if (db_write(s, err) < 0 || !(q = db_stmt(s, SQL_EVENT_DELETE, err)))
        return -1;
    db_bind_u64(q, 1, (uint64_t)log);
    db_bind_u64(q, 2, seq);
    return db_run(s, q, "prune events", 0, err);
}
