/* SPDX-License-Identifier: Apache-2.0 */
#include "store/feed_rows.h"
#include "store/db.h"

DB_DOES(feed_rows_put, SQL_FEED_PUT, "write the feed", 0, (DB(run->cursor), DB(run->log), DB(run->seq), DB(run->n)),
        const struct feed_run *run)

int feed_rows_get(struct store *s, uint64_t cursor, struct feed_run *ret_run, struct err *err)
{
    sqlite3_stmt *q = DB_ASK(s, SQL_FEED_GET, err, DB(cursor));
    int r = -1;
    while (q && (r = db_row(s, q, "read the feed", err)) == 1) {
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

int feed_rows_bounds(struct store *s, uint64_t *ret_first, uint64_t *ret_last, struct err *err)
{
    sqlite3_stmt *first = db_stmt(s, SQL_FEED_FIRST, err), *last = first ? db_stmt(s, SQL_FEED_LAST, err) : NULL;
    return last && db_number(s, first, "read the feed", ret_first, err) == 0
               ? db_number(s, last, "read the feed", ret_last, err)
               : -1;
}

int feed_rows_sweep(struct store *s, uint64_t *at, uint64_t n, struct err *err)
{
    uint64_t to;
    int r = db_number(s, DB_ASK(s, SQL_FEED_NTH, err, DB(*at), DB(n)), "read the feed", &to, err);
    if (r == 0 && to)
        r = DB_DO(s, SQL_FEED_SWEEP, "shorten the feed", 0, err, DB(*at), DB(to));
    if (r < 0)
        return r;
    *at = to;
    return 0;
}

/* The newest events of a log, back to the cursor `after`. */
static int feed_rows_newest(struct store *s, struct feed_run *run, uint64_t after, feed_rows_fn fn, void *ctx,
                            struct err *err)
{
    sqlite3_stmt *q = DB_ASK(s, SQL_FEED_EVENTS, err, DB(run->log), DB(run->seq));
    int r = -1;
    while (q && (r = db_row(s, q, "read the feed", err)) == 1 && db_u64(q, 1) > after) {
        run->seq = db_u64(q, 0);
        run->cursor = db_u64(q, 1);
        fn(run, ctx);
    }
    return db_end(q, r);
}

int feed_rows_unlisted(struct store *s, uint64_t after, feed_rows_fn fn, void *ctx, uint64_t *ret_last, struct err *err)
{
    sqlite3_stmt *q = DB_ASK(s, SQL_FEED_HEADS, err, DB(after));
    int r = -1;
    *ret_last = after;
    while (q && (r = db_row(s, q, "read the feed", err)) == 1) {
        struct feed_run run = {.log = (int64_t)db_u64(q, 0), .seq = db_u64(q, 2), .n = 1};
        (void)snprintf(run.name, sizeof(run.name), "%s", db_text(q, 1));
        *ret_last = MAX(*ret_last, db_u64(q, 3));
        r = feed_rows_newest(s, &run, after, fn, ctx, err);
        if (r < 0)
            break;
    }
    return db_end(q, r);
}
