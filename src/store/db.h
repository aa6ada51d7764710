/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the store, for the modules of this folder alone: statements, binding, and what a failure means for the
 * batch. */
#pragma once

#include "base/str.h"
#include "store/sql.h"
#include "store/store.h"

#include <sqlite3.h>

/* Fills *err from the connection's last error: "store <path>: <what>: <why>". Returns -1. */
int db_set_error(sqlite3 *db, const char *path, const char *what, struct err *err);

/* Takes part in the batch: opens it when there is none. Refused when the batch was undone, and for readers. */
int db_write(struct store *s, struct err *err) WARN_UNUSED;

/* The prepared statement, without bindings; NULL with *err. Give it back with db_run() or db_done(). */
sqlite3_stmt *db_stmt(struct store *s, enum sql id, struct err *err) WARN_UNUSED;

/*
 * Runs a writing statement to its end and gives it back. `what` is for the message ("append an event"). An error undoes
 * the batch; only DB_MAY_EXIST makes a key that is taken an ordinary ERR_ALREADY_EXISTS.
 */
enum { DB_MAY_EXIST = 1 };
int db_run(struct store *s, sqlite3_stmt *q, const char *what, int flags, struct err *err) WARN_UNUSED;

/* For reading: 1 a row, 0 no more, -1. The columns are valid until the next call. */
int db_row(struct store *s, sqlite3_stmt *q, const char *what, struct err *err) WARN_UNUSED;
void db_done(sqlite3_stmt *q); /* NULL is fine */

int db_changes(struct store *s); /* rows that the last writing statement touched */
int64_t db_last_rowid(struct store *s);

/* A parameter. Text and blobs are borrowed until the statement is given back. DB() makes one of a number, a text (NULL
 * is "") or a struct str. */
struct db_value {
    enum { DB_NUMBER, DB_TEXT, DB_BLOB } kind;
    uint64_t n; /* at most INT64_MAX is stored */
    struct str s;
};
struct db_value db_of_number(uint64_t n);
struct db_value db_of_text(const char *text);
struct db_value db_of_str(struct str text);
struct db_value db_of_blob(struct str bytes);
#define DB(x)                                                                                                          \
    _Generic((x), const char * : db_of_text, char * : db_of_text, struct str : db_of_str, default : db_of_number)(x)
#define DB_VALUES(...)                                                                                                 \
    (const struct db_value[]){__VA_ARGS__}, sizeof((const struct db_value[]){__VA_ARGS__}) / sizeof(struct db_value)

/* db_stmt() with its parameters: DB_ASK(s, SQL_KEY_GET, err, DB(id), DB(tenant)). */
sqlite3_stmt *db_ask(struct store *s, enum sql id, struct err *err, const struct db_value *values,
                     size_t n) WARN_UNUSED;
#define DB_ASK(s, id, err, ...) db_ask(s, id, err, DB_VALUES(__VA_ARGS__))

/* db_write() and db_run() of it. */
int db_do(struct store *s, enum sql id, const char *what, int flags, struct err *err, const struct db_value *values,
          size_t n) WARN_UNUSED;
#define DB_DO(s, id, what, flags, err, ...) db_do(s, id, what, flags, err, DB_VALUES(__VA_ARGS__))

/* A column, and the member of a row that holds it; the last of a table is {0}. Tables are in the order of the
 * statement's columns. */
struct db_column {
    enum {
        DB_COLUMNS_END,
        DB_COLUMN_TEXT,
        DB_COLUMN_STR,
        DB_COLUMN_BLOB,
        DB_COLUMN_U64,
        DB_COLUMN_U32,
        DB_COLUMN_INT,
        DB_COLUMN_BOOL
    } kind;
    size_t at;
};
#define DB_COLUMN(type, member)                                                                                             \
    {                                                                                                                       \
        _Generic(((struct type *)NULL)->member, const char *: DB_COLUMN_TEXT, struct str: DB_COLUMN_STR,                  \
              uint64_t: DB_COLUMN_U64, uint32_t: DB_COLUMN_U32, int: DB_COLUMN_INT, bool: DB_COLUMN_BOOL),             \
     offsetof(struct type, member) \
    }

/* db_do() with a row as its parameters, and db_row() into one. q NULL: -1. */
int db_put(struct store *s, enum sql id, const char *what, int flags, const struct db_column *columns, const void *row,
           struct err *err) WARN_UNUSED;
int db_load(struct store *s, sqlite3_stmt *q, const char *what, const struct db_column *columns, void *ret_row,
            struct err *err) WARN_UNUSED;

/* Ends a loop over rows, whose last result is r: 0, or -1. q NULL: -1. */
int db_end(sqlite3_stmt *q, int r);

/* fn(ctx, row) for each row of the statement; its value is db_end()'s. */
#define DB_EACH(s, stmt, what, type, columns, fn, ctx, err)                                                            \
    __extension__({                                                                                                    \
        struct type row_;                                                                                              \
        sqlite3_stmt *q_ = (stmt);                                                                                     \
        int r_;                                                                                                        \
        while ((r_ = db_load((s), q_, (what), (columns), &row_, (err))) == 1)                                          \
            (fn)((ctx), &row_);                                                                                        \
        db_end(q_, r_);                                                                                                \
    })

/*
 * Functions that are one statement each: with the values in parentheses, of the parameters behind them; with a row's;
 * and for each row that there is.
 */
#define DB_DOES(name, sql, what, flags, values, ...)                                                                   \
    int name(struct store *s, __VA_ARGS__, struct err *err)                                                            \
    {                                                                                                                  \
        return db_do(s, (sql), (what), (flags), err, DB_VALUES values);                                                \
    }
#define DB_PUTS(name, sql, what, flags, type, columns)                                                                 \
    int name(struct store *s, const struct type *row, struct err *err)                                                 \
    {                                                                                                                  \
        return db_put(s, (sql), (what), (flags), (columns), row, err);                                                 \
    }
#define DB_LISTS(name, sql, what, type, columns)                                                                       \
    int name(struct store *s, void (*fn)(void *ctx, const struct type *row), void *ctx, struct err *err)               \
    {                                                                                                                  \
        return DB_EACH(s, db_stmt(s, (sql), err), (what), type, (columns), fn, ctx, err);                              \
    }

/* One number: 0, too, when there is no row. */
int db_number(struct store *s, sqlite3_stmt *q, const char *what, uint64_t *ret_n, struct err *err) WARN_UNUSED;

uint64_t db_u64(sqlite3_stmt *q, int column);     /* negative ones are 0 */
const char *db_text(sqlite3_stmt *q, int column); /* never NULL */
struct str db_str(sqlite3_stmt *q, int column);
