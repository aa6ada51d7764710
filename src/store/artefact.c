/* SPDX-License-Identifier: Apache-2.0 */
#include "store/artefact.h"
#include "store/db.h"

enum {
    CHUNK_COST = 32, /* what a row costs beside its bytes: counted, so that tiny appends can't outgrow the cap */
    ERASE_BYTES = 4 << 20,
    ERASE_ARTEFACTS = 256,
};

struct artefact {
    int64_t id;
    uint64_t stored, dropped;
};

static int find(struct store *s, const struct artefact_key *key, struct artefact *ret_artefact, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_ARTEFACT_GET, err);
    if (!q)
        return -1;
    db_bind_text(q, 1, key->sandbox);
    db_bind_u64(q, 2, key->seq);
    db_bind_u64(q, 3, key->part);
    int r = db_row(s, q, "find an artefact", err);
    if (r == 1)
        *ret_artefact = (struct artefact){(int64_t)db_u64(q, 0), db_u64(q, 1), db_u64(q, 2)};
    db_done(q);
    return r;
}

static int create(struct store *s, const struct artefact_key *key, struct artefact *ret_artefact, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_ARTEFACT_CREATE, err);
    if (!q)
        return -1;
    db_bind_text(q, 1, key->sandbox);
    db_bind_u64(q, 2, key->seq);
    db_bind_u64(q, 3, key->part);
    if (db_run(s, q, "create an artefact", 0, err) < 0)
        return -1;
    *ret_artefact = (struct artefact){.id = db_last_rowid(s)};
    return 0;
}

static int get_total(struct store *s, const char *sandbox, uint64_t *ret_bytes, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_ARTEFACT_TOTAL_GET, err);
    if (!q)
        return -1;
    db_bind_text(q, 1, sandbox);
    int r = db_row(s, q, "count the artefacts of a sandbox", err);
    *ret_bytes = r == 1 ? db_u64(q, 0) : 0;
    db_done(q);
    return r < 0 ? -1 : 0;
}

static int put_total(struct store *s, const char *sandbox, uint64_t bytes, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_ARTEFACT_TOTAL_PUT, err);
    if (!q)
        return -1;
    db_bind_text(q, 1, sandbox);
    db_bind_u64(q, 2, bytes);
    return db_run(s, q, "count the artefacts of a sandbox", 0, err);
}

static int put_chunk(struct store *s, int64_t artefact, uint64_t start, struct str data, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_ARTEFACT_CHUNK_PUT, err);
    if (!q)
        return -1;
    db_bind_u64(q, 1, (uint64_t)artefact);
    db_bind_u64(q, 2, start);
    db_bind_blob(q, 3, data);
    return db_run(s, q, "append to an artefact", 0, err);
}

static int update(struct store *s, const struct artefact *a, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_ARTEFACT_UPDATE, err);
    if (!q)
        return -1;
    db_bind_u64(q, 1, (uint64_t)a->id);
    db_bind_u64(q, 2, a->stored);
    db_bind_u64(q, 3, a->dropped);
    return db_run(s, q, "append to an artefact", 0, err);
}

int artefact_append(struct store *s, const struct artefact_key *key, struct str data, struct err *err)
{
    struct artefact a = {0};
    uint64_t total = 0;
    if (db_write(s, err) < 0)
        return -1;
    int found = find(s, key, &a, err);
    if (found < 0 || (found == 0 && create(s, key, &a, err) < 0) || get_total(s, key->sandbox, &total, err) < 0)
        return -1;

    bool any = false;
    while (data.n && a.dropped == 0) {
        uint64_t room = MIN((uint64_t)ARTEFACT_MAX - MIN(a.stored, (uint64_t)ARTEFACT_MAX),
                            (uint64_t)ARTEFACT_SANDBOX_MAX - MIN(total + CHUNK_COST, (uint64_t)ARTEFACT_SANDBOX_MAX));
        size_t n = MIN(data.n, (size_t)MIN(room, (uint64_t)ARTEFACT_CHUNK_MAX));
        if (n == 0)
            break;
        if (put_chunk(s, a.id, a.stored, str_n(data.p, n), err) < 0)
            return -1;
        a.stored += n;
        total += n + CHUNK_COST;
        data = str_sub(data, n);
        any = true;
    }
    /* From the first byte that is dropped on all are: what is stored stays one run from the start. */
    a.dropped += data.n;
    if (((any || data.n) && update(s, &a, err) < 0) || (any && put_total(s, key->sandbox, total, err) < 0))
        return -1;
    return data.n > 0;
}

static int must_find(struct store *s, const struct artefact_key *key, struct artefact *ret_artefact, struct err *err)
{
    static const char *const parts[] = {"stdout", "stderr", "pty"};
    int found = find(s, key, ret_artefact, err);
    if (found == 0)
        return err_set(err, ERR_NOT_FOUND, "sandbox %.64s: no output was kept for event %llu, channel %s", key->sandbox,
                       (unsigned long long)key->seq, key->part < ARRAY_SIZE(parts) ? parts[key->part] : "unknown");
    return found < 0 ? -1 : 0;
}

int artefact_stat(struct store *s, const struct artefact_key *key, struct artefact_info *ret_info, struct err *err)
{
    struct artefact a = {0};
    if (must_find(s, key, &a, err) < 0)
        return -1;
    *ret_info = (struct artefact_info){.stored = a.stored, .dropped = a.dropped};
    return 0;
}

int artefact_read(struct store *s, const struct artefact_key *key, uint64_t offset, size_t n, struct buf *ret_data,
                  struct err *err)
{
    struct artefact a = {0};
    if (must_find(s, key, &a, err) < 0)
        return -1;
    if (offset >= a.stored || n == 0)
        return 0;
    sqlite3_stmt *q = db_stmt(s, SQL_ARTEFACT_CHUNK_READ, err);
    if (!q)
        return -1;
    db_bind_u64(q, 1, (uint64_t)a.id);
    db_bind_u64(q, 2, offset);
    int r;
    while (n && (r = db_row(s, q, "read an artefact", err)) == 1) {
        uint64_t start = db_u64(q, 0);
        struct str chunk = db_str(q, 1);
        if (start > offset || offset - start >= chunk.n) {
            r = err_set(err, ERR_DATA_LOSS, "store %s: a part of an artefact of sandbox %.64s is missing",
                        store_path(s), key->sandbox);
            break;
        }
        chunk = str_sub(chunk, (size_t)(offset - start));
        chunk.n = MIN(chunk.n, n);
        if (buf_append_str(ret_data, chunk) < 0) {
            r = err_errno(err, buf_error(ret_data), "read an artefact of sandbox %.64s", key->sandbox);
            break;
        }
        offset += chunk.n;
        n -= chunk.n;
    }
    db_done(q);
    return r < 0 ? -1 : 0;
}

static int run_for(struct store *s, enum sql sql, int64_t artefact, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, sql, err);
    if (!q)
        return -1;
    db_bind_u64(q, 1, (uint64_t)artefact);
    return db_run(s, q, "erase an artefact", 0, err);
}

/* Of the statement's row, which names an artefact and its size. 1: erased one of *ret_bytes, which cost *ret_cost; 0: there was none. */
static int erase_found(struct store *s, sqlite3_stmt *q, uint64_t *ret_bytes, uint64_t *ret_cost, struct err *err)
{
    int r = db_row(s, q, "find an artefact", err);
    int64_t id = r == 1 ? (int64_t)db_u64(q, 0) : 0;
    *ret_bytes = r == 1 ? db_u64(q, 1) : 0;
    db_done(q);
    if (r != 1)
        return r;
    if (run_for(s, SQL_ARTEFACT_CHUNK_DELETE, id, err) < 0)
        return -1;
    *ret_cost = *ret_bytes + (uint64_t)db_changes(s) * CHUNK_COST;
    return run_for(s, SQL_ARTEFACT_DELETE, id, err) < 0 ? -1 : 1;
}

static int erase_one(struct store *s, const char *sandbox, uint64_t *ret_bytes, struct err *err)
{
    uint64_t cost;
    sqlite3_stmt *q = db_stmt(s, SQL_ARTEFACT_FIRST, err);
    if (!q)
        return -1;
    db_bind_text(q, 1, sandbox);
    return erase_found(s, q, ret_bytes, &cost, err);
}

int artefact_next(struct store *s, const char *sandbox, uint64_t from, uint64_t *ret_seq, struct err *err)
{
    sqlite3_stmt *q = db_stmt(s, SQL_ARTEFACT_NEXT, err);
    if (!q)
        return -1;
    db_bind_text(q, 1, sandbox);
    db_bind_u64(q, 2, from);
    int r = db_row(s, q, "find an artefact", err);
    *ret_seq = r == 1 ? db_u64(q, 0) : 0;
    db_done(q);
    return r < 0 ? -1 : 0;
}

int artefact_remove(struct store *s, const char *sandbox, uint64_t seq, struct err *err)
{
    uint64_t total = 0, bytes, cost = 0;
    int r;
    if (db_write(s, err) < 0 || get_total(s, sandbox, &total, err) < 0)
        return -1;
    do {
        sqlite3_stmt *q = db_stmt(s, SQL_ARTEFACT_OF, err);
        if (!q)
            return -1;
        db_bind_text(q, 1, sandbox);
        db_bind_u64(q, 2, seq);
        r = erase_found(s, q, &bytes, &cost, err);
        total -= r == 1 ? MIN(cost, total) : 0;
    } while (r == 1);
    return r < 0 ? -1 : put_total(s, sandbox, total, err);
}

int artefact_erase(struct store *s, const char *sandbox, struct err *err)
{
    if (db_write(s, err) < 0)
        return -1;
    uint64_t erased = 0;
    for (int i = 0; i < ERASE_ARTEFACTS && erased < ERASE_BYTES; i++) {
        uint64_t bytes;
        int r = erase_one(s, sandbox, &bytes, err);
        if (r < 0)
            return -1;
        if (r == 0) {
            sqlite3_stmt *q = db_stmt(s, SQL_ARTEFACT_TOTAL_DELETE, err);
            if (!q)
                return -1;
            db_bind_text(q, 1, sandbox);
            return db_run(s, q, "erase the artefacts of a sandbox", 0, err);
        }
        erased += bytes;
    }
    return 1;
}
