/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the store, for the modules of this folder alone: statements, binding, and what a failure means for the batch. */
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
 * Runs a writing statement to its end and gives it back. `what` is for the message ("append an event"). An error undoes the batch;
 * only DB_MAY_EXIST makes a key that is taken an ordinary ERR_ALREADY_EXISTS.
 */
enum { DB_MAY_EXIST = 1 };
int db_run(struct store *s, sqlite3_stmt *q, const char *what, int flags, struct err *err) WARN_UNUSED;

/* For reading: 1 a row, 0 no more, -1. The columns are valid until the next call. */
int db_row(struct store *s, sqlite3_stmt *q, const char *what, struct err *err) WARN_UNUSED;
void db_done(sqlite3_stmt *q); /* NULL is fine */

int db_changes(struct store *s); /* rows that the last writing statement touched */
int64_t db_last_rowid(struct store *s);

/* Bound text and blobs are borrowed until the statement is given back. */
void db_bind_u64(sqlite3_stmt *q, int at, uint64_t v);        /* at most INT64_MAX is stored */
void db_bind_text(sqlite3_stmt *q, int at, const char *text); /* NULL is "" */
void db_bind_str(sqlite3_stmt *q, int at, struct str text);
void db_bind_blob(sqlite3_stmt *q, int at, struct str bytes);

uint64_t db_u64(sqlite3_stmt *q, int column);     /* negative ones are 0 */
const char *db_text(sqlite3_stmt *q, int column); /* never NULL */
struct str db_str(sqlite3_stmt *q, int column);
