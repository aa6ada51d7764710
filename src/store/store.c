/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "store/db.h"
#include "store/schema.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LOCK_WAIT_MS = 1000, /* a worker that was killed may need a moment to be gone */
    BUSY_WAIT_MS = 100,  /* only an administrator's own sqlite3 can make us wait */
    CACHE_KIB = 4096,
    WAL_KEEP_BYTES = 64 << 20, /* a larger log file is cut back once it was folded */
};

enum batch { BATCH_NONE, BATCH_OPEN, BATCH_LOST /* undone; failure says why */ };

struct store {
    sqlite3 *db;
    char *path;
    int lock_fd;
    bool reader;
    enum batch batch;
    struct err failure;
    int wal_pages;
    struct list hooks;
    sqlite3_stmt *stmts[SQL_MAX];
};

static enum err_code store_code_of(int rc, int sys)
{
    switch (rc & 0xff) {
    case SQLITE_FULL:
    case SQLITE_NOMEM:
    case SQLITE_TOOBIG:
        return ERR_RESOURCE_EXHAUSTED;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return ERR_DATA_LOSS;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return ERR_UNAVAILABLE;
    case SQLITE_CONSTRAINT:
        return ERR_ALREADY_EXISTS;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
        if (sys == EFBIG || rc == SQLITE_IOERR_NOMEM || err_code_from_errno(sys) == ERR_RESOURCE_EXHAUSTED)
            return ERR_RESOURCE_EXHAUSTED;
        return ERR_INTERNAL;
    default: /* also what the store may not do: it is not the client who is refused */
        return ERR_INTERNAL;
    }
}

int db_set_error(sqlite3 *db, const char *path, const char *what, struct err *err)
{
    /* SQLite keeps the errno of some failures only; that of a failed write is where write(2) left it. */
    int left = errno, rc = sqlite3_extended_errcode(db), sys = 0;
    if ((rc & 0xff) == SQLITE_IOERR || (rc & 0xff) == SQLITE_CANTOPEN)
        sys = sqlite3_system_errno(db) ? sqlite3_system_errno(db) : left;
    enum err_code code = store_code_of(rc, sys);
    const char *why = sqlite3_errmsg(db), *next = "";
    if (code == ERR_RESOURCE_EXHAUSTED && (rc & 0xff) != SQLITE_NOMEM)
        next = " (the disk is full: free some space)";
    else if (code == ERR_DATA_LOSS)
        next = " (the file is damaged or no store: restore it, or move it away to start empty)";
    (void)err_set(err, code, "store %s: %s: %s%s%s%s", path, what, why, sys ? ": " : "", sys ? strerror(sys) : "",
                  next);
    err->errnum = sys;
    return -1;
}

/* ---- opening ---- */

static int take_lock(const char *path, int *ret_fd, struct err *err)
{
    AUTO_FREE char *lock = mem_printf("%s.lock", path);
    AUTO_CLOSE int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_errno(err, errno, "store %s: create its lock file", path);
    usec_t until = clock_mono() + LOCK_WAIT_MS * USEC_PER_MS;
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_errno(err, errno, "store %s: lock it", path);
        if (clock_mono() >= until)
            return err_set(err, ERR_FAILED_PRECONDITION, "store %s: another process has it open; stop that one first",
                           path);
        (void)usleep(10000);
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* SQLite would create it with the umask; the log and the shared memory file take the mode of this one. */
static int touch_private(const char *path, struct err *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd < 0)
        return err_errno(err, errno, "store %s: open it", path);
    struct stat st;
    bool regular = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    (void)fd_close(fd);
    if (!regular)
        return err_set(err, ERR_INVALID_ARGUMENT, "store %s: not a regular file; choose another path", path);
    return 0;
}

static int pragma(struct store *s, const char *sql, struct err *err)
{
    if (sqlite3_exec(s->db, sql, NULL, NULL, NULL) != SQLITE_OK)
        return db_set_error(s->db, s->path, "set it up", err);
    return 0;
}

static int set_wal(struct store *s, struct err *err)
{
    sqlite3_stmt *q = NULL;
    int rc = sqlite3_prepare_v2(s->db, "PRAGMA journal_mode = WAL", -1, &q, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(q);
    bool wal = rc == SQLITE_ROW && strcmp((const char *)sqlite3_column_text(q, 0), "wal") == 0;
    (void)sqlite3_finalize(q);
    if (rc != SQLITE_ROW)
        return db_set_error(s->db, s->path, "switch it to write-ahead logging", err);
    if (!wal)
        return err_set(
            err, ERR_FAILED_PRECONDITION,
            "store %s: its file system can't do write-ahead logging (no shared memory mapping); use a local one",
            s->path);
    return 0;
}

static int on_wal(void *ctx, sqlite3 *db UNUSED, const char *name UNUSED, int pages)
{
    ((struct store *)ctx)->wal_pages = pages;
    return SQLITE_OK;
}

static int connect_db(const char *path, int flags, sqlite3 **ret_db, struct err *err)
{
    sqlite3 *db = NULL;
    errno = 0;
    if (sqlite3_open_v2(path, &db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE, NULL) != SQLITE_OK) {
        if (db)
            (void)db_set_error(db, path, "open it", err);
        else
            (void)err_set(err, ERR_RESOURCE_EXHAUSTED, "store %s: open it: out of memory", path);
        (void)sqlite3_close(db);
        return -1;
    }
    (void)sqlite3_extended_result_codes(db, 1);
    (void)sqlite3_busy_timeout(db, BUSY_WAIT_MS);
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    *ret_db = db;
    return 0;
}

static struct store *store_new(const char *path, bool reader)
{
    struct store *s = mem_new(struct store);
    s->path = mem_strdup(path);
    s->lock_fd = -1;
    s->reader = reader;
    list_init(&s->hooks);
    return s;
}

int store_open(const char *path, struct store **ret_store, struct err *err)
{
    AUTO(store_close) struct store *s = store_new(path, false);
    if (take_lock(path, &s->lock_fd, err) < 0 || touch_private(path, err) < 0 ||
        connect_db(path, SQLITE_OPEN_READWRITE, &s->db, err) < 0)
        return -1;
    size_t version;
    if (schema_check(s->db, path, schema_n_steps, &version, err) < 0 || set_wal(s, err) < 0 ||
        schema_apply(s->db, path, schema_steps, schema_n_steps, version, err) < 0)
        return -1;
    AUTO_FREE char *settings =
        mem_printf("PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = %d;"
                   "PRAGMA cache_size = -%d; PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON",
                   (int)WAL_KEEP_BYTES, (int)CACHE_KIB);
    if (pragma(s, settings, err) < 0)
        return -1;
    (void)sqlite3_wal_hook(s->db, on_wal, s);
    *ret_store = TAKE_PTR(s);
    return 0;
}

int store_open_reader(const char *path, struct store **ret_store, struct err *err)
{
    AUTO(store_close) struct store *s = store_new(path, true);
    size_t version;
    if (connect_db(path, SQLITE_OPEN_READONLY, &s->db, err) < 0 ||
        schema_check(s->db, path, schema_n_steps, &version, err) < 0)
        return -1;
    if (version < schema_n_steps)
        return err_set(err, ERR_FAILED_PRECONDITION,
                       "store %s: its format is older than this Cove; start the service once to bring it up to date",
                       path);
    if (pragma(s, "PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON", err) < 0)
        return -1;
    *ret_store = TAKE_PTR(s);
    return 0;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    assert(list_empty(&s->hooks));
    struct err ignored;
    if (s->db && store_commit(s, &ignored) < 0)
        store_rollback(s);
    for (size_t i = 0; i < SQL_MAX; i++)
        (void)sqlite3_finalize(s->stmts[i]);
    int rc = sqlite3_close(s->db);
    assert(rc == SQLITE_OK);
    (void)rc;
    (void)fd_close(s->lock_fd);
    MEM_FREE(s->path, s);
}

const char *store_path(const struct store *s)
{
    return s->path;
}

/* ---- batches ---- */

void store_hook_add(struct store *s, struct store_hook *hook)
{
    list_append(&s->hooks, &hook->node);
}

void store_hook_remove(struct store_hook *hook)
{
    list_remove(&hook->node);
}

static void end_batch(struct store *s, bool committed)
{
    s->batch = BATCH_NONE;
    LIST_FOREACH (struct store_hook, hook, &s->hooks, node) {
        void (*tell)(void *) = committed ? hook->committed : hook->rolled_back;
        if (tell)
            tell(hook->ctx);
    }
}

static void undo(struct store *s)
{
    /* SQLite may have undone it by itself. What is left of a failed ROLLBACK is undone with the next one that works. */
    if (!sqlite3_get_autocommit(s->db))
        (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    end_batch(s, false);
}

/* A write went wrong: nothing of the batch shall stay, and who ends it shall know. */
static int lose_batch(struct store *s, const struct err *err)
{
    if (s->batch == BATCH_OPEN) {
        undo(s);
        s->failure = *err;
        s->batch = BATCH_LOST;
    }
    return -1;
}

bool store_pending(const struct store *s)
{
    return s->batch != BATCH_NONE;
}

void store_rollback(struct store *s)
{
    if (s->batch == BATCH_OPEN)
        undo(s);
    s->batch = BATCH_NONE;
}

static int commit(struct store *s, struct err *err)
{
    LIST_FOREACH (struct store_hook, hook, &s->hooks, node)
        if (hook->committing && hook->committing(hook->ctx, err) < 0)
            return -1;
    sqlite3_stmt *q = db_stmt(s, SQL_COMMIT, err);
    return q ? db_run(s, q, "commit", 0, err) : -1;
}

int store_commit(struct store *s, struct err *err)
{
    if (s->batch == BATCH_OPEN && commit(s, err) < 0)
        (void)lose_batch(s, err);
    if (s->batch == BATCH_LOST) {
        *err = s->failure;
        s->batch = BATCH_NONE;
        return -1;
    }
    if (s->batch == BATCH_OPEN)
        end_batch(s, true);
    return 0;
}

int store_read_begin(struct store *s, struct err *err)
{
    if (s->reader && sqlite3_exec(s->db, "BEGIN", NULL, NULL, NULL) != SQLITE_OK)
        return db_set_error(s->db, s->path, "begin to read", err);
    return 0;
}

void store_read_end(struct store *s)
{
    if (s->reader && !sqlite3_get_autocommit(s->db))
        (void)sqlite3_exec(s->db, "COMMIT", NULL, NULL, NULL);
}

int store_wal_pages(const struct store *s)
{
    return s->wal_pages;
}

static int checkpoint(sqlite3 *db, const char *path, struct err *err)
{
    errno = 0;
    int rc = sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    if (rc != SQLITE_OK && (rc & 0xff) != SQLITE_BUSY) /* another checkpoint is at it */
        return db_set_error(db, path, "checkpoint", err);
    return 0;
}

int store_checkpoint(const char *path, struct err *err)
{
    sqlite3 *db = NULL;
    if (connect_db(path, SQLITE_OPEN_READWRITE, &db, err) < 0)
        return -1;
    (void)sqlite3_busy_timeout(db, 0);
    /* When the service has just stopped, this would be the last one out and SQLite would clean up: harmless, but
     * slow. */
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    /* A connection does not know that there is a log before it read something. */
    int r = sqlite3_exec(db, "PRAGMA schema_version", NULL, NULL, NULL) != SQLITE_OK
                ? db_set_error(db, path, "read it", err)
                : checkpoint(db, path, err);
    (void)sqlite3_close(db);
    return r;
}

/* ---- statements ---- */

int db_write(struct store *s, struct err *err)
{
    if (s->batch == BATCH_OPEN)
        return 0;
    if (s->batch == BATCH_LOST) {
        *err = s->failure;
        return -1;
    }
    if (s->reader)
        return err_set(err, ERR_FAILED_PRECONDITION, "store %s: opened for reading only", s->path);
    if (!sqlite3_get_autocommit(s->db))
        (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    sqlite3_stmt *q = db_stmt(s, SQL_BEGIN, err);
    if (!q || db_run(s, q, "begin to write", 0, err) < 0)
        return -1;
    s->batch = BATCH_OPEN;
    return 0;
}

sqlite3_stmt *db_stmt(struct store *s, enum sql id, struct err *err)
{
    if (!s->stmts[id] &&
        sqlite3_prepare_v3(s->db, sql_texts[id], -1, SQLITE_PREPARE_PERSISTENT, &s->stmts[id], NULL) != SQLITE_OK) {
        (void)db_set_error(s->db, s->path, "prepare a statement", err);
        return NULL;
    }
    return s->stmts[id];
}

int db_run(struct store *s, sqlite3_stmt *q, const char *what, int flags, struct err *err)
{
    errno = 0;
    int rc = sqlite3_step(q);
    if (rc == SQLITE_DONE || rc == SQLITE_ROW) {
        db_done(q);
        return 0;
    }
    (void)db_set_error(s->db, s->path, what, err);
    db_done(q);
    if (flags & DB_MAY_EXIST && err->code == ERR_ALREADY_EXISTS)
        return -1;
    return lose_batch(s, err);
}

int db_row(struct store *s, sqlite3_stmt *q, const char *what, struct err *err)
{
    errno = 0;
    int rc = sqlite3_step(q);
    if (rc == SQLITE_ROW)
        return 1;
    if (rc == SQLITE_DONE)
        return 0;
    (void)db_set_error(s->db, s->path, what, err);
    if (s->batch == BATCH_OPEN && sqlite3_get_autocommit(s->db)) /* some errors make SQLite undo all */
        (void)lose_batch(s, err);
    return -1;
}

void db_done(sqlite3_stmt *q)
{
    if (!q)
        return;
    (void)sqlite3_reset(q);
    (void)sqlite3_clear_bindings(q);
}

int db_changes(struct store *s)
{
    return sqlite3_changes(s->db);
}

int64_t db_last_rowid(struct store *s)
{
    return sqlite3_last_insert_rowid(s->db);
}

struct db_value db_of_number(uint64_t n)
{
    return (struct db_value){.kind = DB_NUMBER, .n = n};
}

struct db_value db_of_text(const char *text)
{
    return db_of_str(str_of(text));
}

struct db_value db_of_str(struct str text)
{
    return (struct db_value){.kind = DB_TEXT, .s = text};
}

struct db_value db_of_blob(struct str bytes)
{
    return (struct db_value){.kind = DB_BLOB, .s = bytes};
}

/* Fails only for a wrong index, which is a bug, or when it runs out of memory for what it need not copy: never. */
static void db_bind(sqlite3_stmt *q, int at, const struct db_value *v)
{
    const char *p = v->s.p ? v->s.p : "";
    int rc = v->kind == DB_NUMBER ? sqlite3_bind_int64(q, at, (sqlite3_int64)MIN(v->n, (uint64_t)INT64_MAX))
             : v->kind == DB_TEXT ? sqlite3_bind_text64(q, at, p, v->s.n, SQLITE_STATIC, SQLITE_UTF8)
                                  : sqlite3_bind_blob64(q, at, p, v->s.n, SQLITE_STATIC);
    assert(rc == SQLITE_OK);
    (void)rc;
}

sqlite3_stmt *db_ask(struct store *s, enum sql id, struct err *err, const struct db_value *values, size_t n)
{
    sqlite3_stmt *q = db_stmt(s, id, err);
    for (size_t i = 0; q && i < n; i++)
        db_bind(q, (int)i + 1, &values[i]);
    return q;
}

int db_do(struct store *s, enum sql id, const char *what, int flags, struct err *err, const struct db_value *values,
          size_t n)
{
    sqlite3_stmt *q = db_write(s, err) < 0 ? NULL : db_ask(s, id, err, values, n);
    return q ? db_run(s, q, what, flags, err) : -1;
}

static struct db_value db_member(const struct db_column *c, const char *row)
{
    const void *at = row + c->at;
    switch (c->kind) {
    case DB_COLUMN_TEXT:
        return db_of_text(*(const char *const *)at);
    case DB_COLUMN_STR:
        return db_of_str(*(const struct str *)at);
    case DB_COLUMN_BLOB:
        return db_of_blob(*(const struct str *)at);
    case DB_COLUMN_U64:
        return db_of_number(*(const uint64_t *)at);
    case DB_COLUMN_U32:
        return db_of_number(*(const uint32_t *)at);
    case DB_COLUMN_INT:
        return db_of_number((uint64_t) * (const int *)at);
    default:
        return db_of_number(*(const bool *)at);
    }
}

int db_put(struct store *s, enum sql id, const char *what, int flags, const struct db_column *columns, const void *row,
           struct err *err)
{
    struct db_value values[32];
    size_t n = 0;
    for (; columns[n].kind; n++) {
        assert(n < ARRAY_SIZE(values));
        values[n] = db_member(&columns[n], row);
    }
    return db_do(s, id, what, flags, err, values, n);
}

int db_load(struct store *s, sqlite3_stmt *q, const char *what, const struct db_column *columns, void *ret_row,
            struct err *err)
{
    int r = q ? db_row(s, q, what, err) : -1;
    for (int i = 0; r == 1 && columns[i].kind; i++) {
        void *at = (char *)ret_row + columns[i].at;
        switch (columns[i].kind) {
        case DB_COLUMN_TEXT:
            *(const char **)at = db_text(q, i);
            break;
        case DB_COLUMN_STR:
        case DB_COLUMN_BLOB:
            *(struct str *)at = db_str(q, i);
            break;
        case DB_COLUMN_U64:
            *(uint64_t *)at = db_u64(q, i);
            break;
        case DB_COLUMN_U32:
            *(uint32_t *)at = (uint32_t)db_u64(q, i);
            break;
        case DB_COLUMN_INT:
            *(int *)at = (int)db_u64(q, i);
            break;
        default:
            *(bool *)at = db_u64(q, i) != 0;
        }
    }
    return r;
}

int db_end(sqlite3_stmt *q, int r)
{
    db_done(q);
    return q && r >= 0 ? 0 : -1;
}

int db_number(struct store *s, sqlite3_stmt *q, const char *what, uint64_t *ret_n, struct err *err)
{
    int r = q ? db_row(s, q, what, err) : -1;
    if (r >= 0)
        *ret_n = r == 1 ? db_u64(q, 0) : 0;
    return db_end(q, r);
}

uint64_t db_u64(sqlite3_stmt *q, int column)
{
    sqlite3_int64 v = sqlite3_column_int64(q, column);
    return v < 0 ? 0 : (uint64_t)v;
}

const char *db_text(sqlite3_stmt *q, int column)
{
    const char *text = (const char *)sqlite3_column_text(q, column);
    return text ? text : "";
}

struct str db_str(sqlite3_stmt *q, int column)
{
    const void *p =
        sqlite3_column_blob(q, column); /* of text, too: no conversion, and its length counts what follows a NUL */
    return str_n(p ? p : "", p ? (size_t)sqlite3_column_bytes(q, column) : 0);
}

/* ---- settings ---- */

int meta_get(struct store *s, const char *key, struct buf *ret_value, struct err *err)
{
    sqlite3_stmt *q = DB_ASK(s, SQL_META_GET, err, DB(key));
    int r = q ? db_row(s, q, "read a setting", err) : -1;
    if (r == 1 && buf_append_str(ret_value, db_str(q, 0)) < 0)
        r = err_errno(err, buf_error(ret_value), "store %s: setting %s", store_path(s), key);
    db_done(q);
    return r;
}

DB_DOES(meta_put, SQL_META_PUT, "write a setting", 0, (DB(key), db_of_blob(value)), const char *key, struct str value)
DB_DOES(meta_delete, SQL_META_DELETE, "delete a setting", 0, (DB(key)), const char *key)
