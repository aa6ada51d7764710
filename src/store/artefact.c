/* SPDX-License-Identifier: Apache-2.0 */
#include "store/artefact.h"
#include "base/buf.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/mem.h"
#include "store/db.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FORGET_ROWS = 256, DIRS = 256, DIR_NEW = DIRS /* the one of those that are written */, READ_BYTES = 256 * 1024 };

struct artefact_move {
    struct list node;
    char *key, digest[ARTEFACT_DIGEST_LEN + 1];
};

struct artefacts {
    struct store *store;
    struct store_hook hook;
    char *dir;
    uint64_t sandbox_max, total_max, total;
    bool total_known;
    struct list moves;      /* finished in this batch */
    bool unswept[DIRS + 1]; /* may hold files that are nobody's */
};

struct artefact_writer {
    struct artefacts *a;
    char *sandbox;
    struct artefact_key key;
    struct artefact_info info;
    EVP_MD_CTX *md; /* NULL: not all of it came through here */
};

/* ---- names ---- */

static char *artefact_new_path(const struct artefacts *a, const struct artefact_key *key)
{
    return mem_printf("%s/new/%s.%llu.%u", a->dir, key->sandbox, (unsigned long long)key->seq, key->part);
}

static char *artefact_path(const struct artefacts *a, const char *digest)
{
    return mem_printf("%s/%.2s/%s", a->dir, digest, digest);
}

static bool artefact_is_digest(struct str s)
{
    return s.n == ARTEFACT_DIGEST_LEN && str_is_hex(s);
}

static void artefact_unswept(struct artefacts *a, const char *digest)
{
    unsigned dir = 0;
    for (int i = 0; i < 2 && *digest; i++)
        dir = dir * 16 + (unsigned)(digest[i] <= '9' ? digest[i] - '0' : digest[i] - 'a' + 10);
    a->unswept[*digest ? dir % DIRS : (unsigned)DIR_NEW] = true;
}

/* ---- rows ---- */

#define ARTEFACT_KEY(key) DB((key)->sandbox), DB((key)->seq), DB((key)->part)

static void artefact_load(sqlite3_stmt *q, struct artefact_info *ret_info)
{
    *ret_info = (struct artefact_info){.bytes = db_u64(q, 0), .dropped = db_u64(q, 1)};
    if (artefact_is_digest(db_str(q, 2)))
        memcpy(ret_info->digest, db_text(q, 2), ARTEFACT_DIGEST_LEN);
}

static int artefact_find(struct artefacts *a, const struct artefact_key *key, struct artefact_info *ret_info,
                         struct err *err)
{
    sqlite3_stmt *q = DB_ASK(a->store, SQL_ARTEFACT_GET, err, ARTEFACT_KEY(key));
    int r = q ? db_row(a->store, q, "find an artefact", err) : -1;
    if (r == 1)
        artefact_load(q, ret_info);
    db_done(q);
    return r;
}

static int artefact_put(struct artefacts *a, const struct artefact_key *key, const struct artefact_info *info,
                        uint64_t until, struct err *err)
{
    return DB_DO(a->store, SQL_ARTEFACT_PUT, "write an artefact", 0, err, ARTEFACT_KEY(key), DB(info->bytes),
                 DB(info->dropped), db_of_text(info->digest), DB(until));
}

/* How much more one sandbox may have. */
static int artefact_room(struct artefacts *a, const char *sandbox, uint64_t *ret_bytes, struct err *err)
{
    uint64_t has;
    if (!a->total_known &&
        db_number(a->store, db_stmt(a->store, SQL_ARTEFACT_SUM_ALL, err), "count artefacts", &a->total, err) < 0)
        return -1;
    a->total_known = true;
    if (db_number(a->store, DB_ASK(a->store, SQL_ARTEFACT_SUM, err, DB(sandbox)), "count artefacts", &has, err) < 0)
        return -1;
    *ret_bytes = MIN(a->sandbox_max - MIN(has, a->sandbox_max), a->total_max - MIN(a->total, a->total_max));
    return 0;
}

static int artefact_missing(const struct artefact_key *key, struct err *err)
{
    static const char *const parts[] = {"stdout", "stderr", "pty"};
    return err_set(err, ERR_NOT_FOUND, "sandbox %.64s: no output was kept for event %llu, channel %s", key->sandbox,
                   (unsigned long long)key->seq, key->part < ARRAY_SIZE(parts) ? parts[key->part] : "unknown");
}

int artefact_stat(struct artefacts *a, const struct artefact_key *key, struct artefact_info *ret_info, struct err *err)
{
    int r = artefact_find(a, key, ret_info, err);
    return r == 0 ? artefact_missing(key, err) : MIN(r, 0);
}

/* ---- reading ---- */

int artefact_open(struct artefacts *a, const struct artefact_key *key, struct artefact_info *ret_info, int *ret_fd,
                  struct err *err)
{
    struct artefact_info info;
    struct stat st;
    if (artefact_stat(a, key, &info, err) < 0)
        return -1;
    AUTO_FREE char *path = artefact_path(a, info.digest), *new_path = artefact_new_path(a, key);
    AUTO_CLOSE int fd = info.digest[0] ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (fd < 0)
        fd = open(new_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) < 0 || (uint64_t)st.st_size < info.bytes)
        return err_set(err, ERR_DATA_LOSS, "sandbox %.64s: the output of event %llu was kept, and is damaged or gone",
                       key->sandbox, (unsigned long long)key->seq);
    *ret_info = info;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int artefact_open_digest(struct artefacts *a, const char *sandbox, struct str digest, struct artefact_info *ret_info,
                         int *ret_fd, struct err *err)
{
    struct artefact_key key = {.sandbox = sandbox};
    int r = 0;
    if (artefact_is_digest(digest)) {
        sqlite3_stmt *q = DB_ASK(a->store, SQL_ARTEFACT_OF_DIGEST, err, DB(digest), DB(sandbox));
        r = q ? db_row(a->store, q, "find an artefact", err) : -1;
        key.seq = r == 1 ? db_u64(q, 0) : 0;
        key.part = r == 1 ? (unsigned)db_u64(q, 1) : 0;
        db_done(q);
    }
    if (r == 0)
        return err_set(err, ERR_NOT_FOUND, "sandbox %.64s has no such artefact", sandbox);
    return r < 0 ? -1 : artefact_open(a, &key, ret_info, ret_fd, err);
}

/* ---- writing ---- */

int artefact_writer_new(struct artefacts *a, const struct artefact_key *key, struct artefact_writer **ret_writer,
                        struct err *err)
{
    struct artefact_info info = {0};
    int r = artefact_find(a, key, &info, err);
    if (r < 0)
        return -1;
    struct artefact_writer *w = mem_new(struct artefact_writer);
    w->a = a;
    w->sandbox = mem_strdup(key->sandbox);
    w->key = (struct artefact_key){w->sandbox, key->seq, key->part};
    w->info = info;
    w->info.digest[0] = 0; /* it is finished again */
    w->md = r == 0 ? EVP_MD_CTX_new() : NULL;
    if (w->md && EVP_DigestInit_ex(w->md, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(TAKE_PTR(w->md));
    }
    *ret_writer = w;
    return 0;
}

void artefact_writer_free(struct artefact_writer *w)
{
    if (!w)
        return;
    EVP_MD_CTX_free(w->md);
    MEM_FREE(w->sandbox, w);
}

const struct artefact_info *artefact_written(const struct artefact_writer *w)
{
    return &w->info;
}

/* At its place, whatever a process that was killed left behind it. */
static int artefact_store(struct artefact_writer *w, struct str data, struct err *err)
{
    AUTO_FREE char *path = artefact_new_path(w->a, &w->key);
    uint64_t at = w->info.bytes;
    AUTO_CLOSE int fd = open(path, O_WRONLY | (at ? 0 : O_CREAT) | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_errno(err, errno, "keep an output in %s", path);
    for (struct str rest = data; rest.n;) {
        ssize_t n = pwrite(fd, rest.p, rest.n, (off_t)at);
        if (n < 0 && errno != EINTR)
            return err_errno(err, errno, "keep an output in %s", path);
        at += n > 0 ? (uint64_t)n : 0;
        rest = str_sub(rest, n > 0 ? (size_t)n : 0);
    }
    return 0;
}

int artefact_write(struct artefact_writer *w, struct str data, struct err *err)
{
    uint64_t room = 0;
    if (!w->info.dropped && artefact_room(w->a, w->sandbox, &room, err) < 0)
        return -1;
    struct str kept = str_n(data.p, (size_t)MIN((uint64_t)data.n, room));
    if (kept.n && artefact_store(w, kept, err) < 0) {
        w->info.dropped += data.n; /* nothing after a hole */
        return -1;
    }
    if (w->md && kept.n && EVP_DigestUpdate(w->md, kept.p, kept.n) != 1) {
        EVP_MD_CTX_free(TAKE_PTR(w->md));
    }
    w->info.bytes += kept.n;
    w->info.dropped += data.n - kept.n;
    w->a->total += kept.n;
    return artefact_put(w->a, &w->key, &w->info, UINT64_MAX, err);
}

/* Of a file that an earlier process began. */
static int artefact_hash_file(struct artefact_writer *w, int fd, EVP_MD_CTX *md)
{
    AUTO_FREE char *piece = mem_alloc(READ_BYTES);
    for (uint64_t at = 0; at < w->info.bytes;) {
        ssize_t n = pread(fd, piece, (size_t)MIN(w->info.bytes - at, (uint64_t)READ_BYTES), (off_t)at);
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        if (EVP_DigestUpdate(md, piece, (size_t)n) != 1)
            return -ENOTSUP;
        at += (uint64_t)n;
    }
    return 0;
}

int artefact_finish(struct artefact_writer *w, struct err *err)
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    AUTO_FREE char *path = artefact_new_path(w->a, &w->key);
    AUTO_CLOSE int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    AUTO_BUF struct buf hex = BUF_INIT(ARTEFACT_DIGEST_LEN);
    int r = fd < 0 || ftruncate(fd, (off_t)w->info.bytes) < 0 ? -errno : 0;
    if (r == 0 && !w->md) {
        w->md = EVP_MD_CTX_new();
        r = w->md && EVP_DigestInit_ex(w->md, EVP_sha256(), NULL) == 1 ? artefact_hash_file(w, fd, w->md) : -ENOMEM;
    }
    if (r == 0 && EVP_DigestFinal_ex(w->md, hash, NULL) != 1)
        r = -ENOTSUP;
    EVP_MD_CTX_free(TAKE_PTR(w->md));
    if (r < 0)
        return err_errno(err, r, "finish an output in %s", path);
    buf_append_hex(&hex, str_n(hash, ARTEFACT_DIGEST_LEN / 2));
    memcpy(w->info.digest, buf_data(&hex), ARTEFACT_DIGEST_LEN);
    return 0;
}

int artefact_keep(struct artefact_writer *w, uint64_t event_seq, struct err *err)
{
    if (artefact_put(w->a, &w->key, &w->info, event_seq, err) < 0)
        return -1;
    struct artefact_move *move = mem_new(struct artefact_move);
    move->key = artefact_new_path(w->a, &w->key);
    memcpy(move->digest, w->info.digest, sizeof(move->digest));
    list_append(&w->a->moves, &move->node);
    return 0;
}

/* ---- batches ---- */

/* To its digest, or away when that is there. What fails is found again by the next sweep. */
static void artefact_settle(struct artefacts *a, const char *from, const char *digest)
{
    AUTO_FREE char *to = artefact_path(a, digest);
    AUTO_FREE char *dir = mem_printf("%s/%.2s", a->dir, digest);
    struct stat there, ours;
    /* One of another size was damaged by a power cut. */
    bool is_there = stat(to, &there) == 0 && stat(from, &ours) == 0 && there.st_size == ours.st_size;
    int r = is_there ? unlink(from) : rename(from, to);
    if (r < 0 && errno == ENOENT && mkdir(dir, 0700) == 0)
        r = rename(from, to);
    if (r < 0)
        a->unswept[DIR_NEW] = true;
}

static void artefact_batch_ended(struct artefacts *a, bool committed)
{
    LIST_FOREACH (struct artefact_move, m, &a->moves, node) {
        if (committed)
            artefact_settle(a, m->key, m->digest);
        list_remove(&m->node);
        MEM_FREE(m->key, m);
    }
    a->total_known = a->total_known && committed;
}

static void artefact_on_committed(void *ctx)
{
    artefact_batch_ended(ctx, true);
}

static void artefact_on_rolled_back(void *ctx)
{
    artefact_batch_ended(ctx, false);
}

int artefacts_open(struct store *store, const char *dir, uint64_t sandbox_max, uint64_t total_max,
                   struct artefacts **ret_artefacts, struct err *err)
{
    AUTO_FREE char *new_dir = mem_printf("%s/new", dir);
    if ((mkdir(dir, 0700) < 0 && errno != EEXIST) || (mkdir(new_dir, 0700) < 0 && errno != EEXIST))
        return err_errno(err, errno, "make %s", new_dir);
    struct artefacts *a = mem_new(struct artefacts);
    a->store = store;
    a->dir = mem_strdup(dir);
    a->sandbox_max = sandbox_max ? sandbox_max : ARTEFACT_SANDBOX_MAX;
    a->total_max = total_max ? total_max : ARTEFACT_TOTAL_MAX;
    list_init(&a->moves);
    memset(a->unswept, 1, sizeof(a->unswept));
    a->hook = (struct store_hook){.committed = artefact_on_committed, .rolled_back = artefact_on_rolled_back, .ctx = a};
    store_hook_add(store, &a->hook);
    *ret_artefacts = a;
    return 0;
}

void artefacts_close(struct artefacts *a)
{
    if (!a)
        return;
    struct err ignored;
    if (!list_empty(&a->moves) && store_commit(a->store, &ignored) < 0)
        store_rollback(a->store);
    store_hook_remove(&a->hook);
    MEM_FREE(a->dir, a);
}

/* ---- forgetting ---- */

int artefact_forget(struct artefacts *a, const char *sandbox, uint64_t before, struct err *err)
{
    for (int i = 0; i < FORGET_ROWS; i++) {
        struct artefact_key key = {.sandbox = sandbox};
        sqlite3_stmt *q = DB_ASK(a->store, SQL_ARTEFACT_OLD, err, DB(sandbox), DB(before));
        int r = q ? db_row(a->store, q, "find an artefact", err) : -1;
        if (r == 1) {
            key.seq = db_u64(q, 0);
            key.part = (unsigned)db_u64(q, 1);
            a->total -= MIN(a->total, db_u64(q, 2));
            artefact_unswept(a, db_text(q, 3));
            a->unswept[DIR_NEW] = true; /* where it may be still */
        }
        db_done(q);
        if (r <= 0)
            return r;
        r = DB_DO(a->store, SQL_ARTEFACT_DELETE, "forget an artefact", 0, err, ARTEFACT_KEY(&key));
        if (r < 0)
            return -1;
    }
    return 1;
}

/* Does a row want this file? 1: yes; then *ret_info. */
static int artefact_wanted(struct artefacts *a, unsigned dir, const char *name, struct artefact_info *ret_info,
                           struct err *err)
{
    char id[64];
    struct artefact_key key = {.sandbox = id};
    struct str rest = str_of(name), part;
    uint64_t number;
    if (dir == DIR_NEW) {
        if (!str_split(&rest, '.', &part) || part.n >= sizeof(id))
            return 0;
        (void)snprintf(id, sizeof(id), "%.*s", STR_ARG(part));
        if (!str_split(&rest, '.', &part) || str_to_u64(part, &key.seq) < 0 || str_to_u64(rest, &number) < 0 ||
            number >= ARTEFACT_PART_MAX)
            return 0;
        key.part = (unsigned)number;
        return artefact_find(a, &key, ret_info, err);
    }
    sqlite3_stmt *q = DB_ASK(a->store, SQL_ARTEFACT_HAS, err, DB(name));
    int r = q ? db_row(a->store, q, "find an artefact", err) : -1;
    db_done(q);
    return r;
}

int artefact_sweep(struct artefacts *a, struct err *err)
{
    unsigned dir = 0;
    while (dir <= DIR_NEW && !a->unswept[dir])
        dir++;
    if (dir > DIR_NEW)
        return 0;
    if (store_pending(a->store))
        return 1;
    AUTO_FREE char *path = dir == DIR_NEW ? mem_printf("%s/new", a->dir) : mem_printf("%s/%02x", a->dir, dir);
    AUTO(dir_close) DIR *d = dir_open(AT_FDCWD, path);
    int r = 0;
    a->unswept[dir] = false;
    for (const struct dirent *e; r >= 0 && (e = dir_next(d));) {
        struct artefact_info info = {0};
        if (e->d_name[0] == '.')
            continue;
        r = artefact_wanted(a, dir, e->d_name, &info, err);
        AUTO_FREE char *file = mem_printf("%s/%s", path, e->d_name);
        if (r == 0)
            (void)unlink(file);
        else if (r == 1 && dir == DIR_NEW && info.digest[0])
            artefact_settle(a, file, info.digest);
    }
    if (r < 0)
        a->unswept[dir] = true;
    return r < 0 ? -1 : 1;
}
