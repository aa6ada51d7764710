/* SPDX-License-Identifier: Apache-2.0 */
#include "store/feed_rows.h"
#include "store/db.h"

#include <stdio.h>

int feed_rows_put(struct store *s, const struct feed_run *run, struct err *err)
{
    sqlite3_stmt *q;
    if (db_write(s, err) < 0 || !(q = db_stmt(s, SQL_FEED_PUT, err)))
        return -1;
    db_bind_u64(q, 1, run->cursor);
    db_bind_u64(q, 2, (uint64_t)run->log);
    db_bind_u64(q, 3, run->seq);
    db_bind_u64(q, 4, run->n);
    return db_run(s, q, "write the feed", 0, err);
}

int feed_rows_get(struct store *s, uint64_t cursor, struct feed_run *ret_run, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_FEED_GET, err);
    int r;
    if (!q)
        return -1;
    db_bind_u64(q, 1, cursor);
    while ((r = db_row(s, q, "read the feed", err)) == 1) {
        struct feed_run run = {
            .cursor = db_u64(q, 0), .log = (int64_t)db_u64(q, 1), .seq = db_u64(q, 2), .n = db_u64(q, 3)};
        if (run.n == 0 || run.cursor + run.n <= cursor)
            continue;
        (void)snprintf(run.name, sizeof(run.name), "%s", db_text(q, 4));
        *ret_run = run;
        break;
    }
    db_done(q);
    return r;
}

static int feed_rows_number(struct store *s, sqlite3_stmt *q, uint64_t *ret_n, struct err *err)
{
    int r = db_row(s, q, "read the feed", err);
    *ret_n = r == 1 ? db_u64(q, 0) : 0;
    db_done(q);
    return r < 0 ? -1 : 0;
}

int feed_rows_bounds(struct store *s, uint64_t *ret_first, uint64_t *ret_last, struct err *err)
{
    sqlite3_stmt *first = db_stmt(s, SQL_FEED_FIRST, err), *last = db_stmt(s, SQL_FEED_LAST, err);
    return first && last && feed_rows_number(s, first, ret_first, err) == 0 ? feed_rows_number(s, last, ret_last, err)
                                                                            : -1;
}

int feed_rows_sweep(struct store *s, uint64_t *at, uint64_t n, struct err *err)
{
    uint64_t to;
    sqlite3_stmt *q = db_stmt(s, SQL_FEED_NTH, err);
    if (!q)
        return -1;
    db_bind_u64(q, 1, *at);
    db_bind_u64(q, 2, n);
    if (feed_rows_number(s, q, &to, err) < 0)
        return -1;
    if (to) {
        if (db_write(s, err) < 0 || !(q = db_stmt(s, SQL_FEED_SWEEP, err)))
            return -1;
        db_bind_u64(q, 1, *at);
        db_bind_u64(q, 2, to);
        if (db_run(s, q, "shorten the feed", 0, err) < 0)
            return -1;
    }
    *at = to;
    return 0;
}

/* The newest events of a log, back to the cursor `after`. */
static int feed_rows_newest(struct store *s, struct feed_run *run, uint64_t after, feed_rows_fn fn, void *ctx,
                            struct err *err)
{
    int r;
    sqlite3_stmt *q = db_stmt(s, SQL_FEED_EVENTS, err);
    if (!q)
        return -1;
    db_bind_u64(q, 1, (uint64_t)run->log);
    db_bind_u64(q, 2, run->seq);
    while ((r = db_row(s, q, "read the feed", err)) == 1 && db_u64(q, 1) > after) {
        run->seq = db_u64(q, 0);
        run->cursor = db_u64(q, 1);
        fn(run, ctx);
    }
    db_done(q);
    return MIN(r, 0);
}

int feed_rows_unlisted(struct store *s, uint64_t after, feed_rows_fn fn, void *ctx, uint64_t *ret_last, struct err *err)
{
    int r;
    sqlite3_stmt *q = db_stmt(s, SQL_FEED_HEADS, err);
    if (!q)
        return -1;
    db_bind_u64(q, 1, after);
    *ret_last = after;
    while ((r = db_row(s, q, "read the feed", err)) == 1) {
        struct feed_run run = {.log = (int64_t)db_u64(q, 0), .seq = db_u64(q, 2), .n = 1};
        (void)snprintf(run.name, sizeof(run.name), "%s", db_text(q, 1));
        *ret_last = MAX(*ret_last, db_u64(q, 3));
        r = feed_rows_newest(s, &run, after, fn, ctx, err);
        if (r < 0)
            break;
    }
    db_done(q);
    return MIN(r, 0);
}
