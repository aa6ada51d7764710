/* SPDX-License-Identifier: Apache-2.0 */
#include "build/uploads.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "build/context.h"
#include "build/spec.h"
#include "sandbox/quota.h"
#include "sandbox/share.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { TICKETS_MAX = 4096, TICKET_S = 3600, FRESH_MS = 100, COMPARE = 16 * 1024 };
enum { RUNNING_MAX = 128, BY_LINK_MAX = 96 }; /* of all, each tenant a share; the rest is for keys */
enum { LINK_FREE_S = 30, LINK_RATE = 1024 };
enum { UPLOAD_OF_TENANT = 'T' }; /* no hash has it */

struct ticket {
    struct list node; /* oldest first */
    char hash[UPLOAD_HASH_LEN + 1], token[UPLOAD_TOKEN_LEN + 1];
    uint64_t tenant; /* who was given it */
    usec_t until;
    bool used, is_dropped; /* dropped: nobody finds it any more */
    unsigned refs;         /* of uploads */
};

/* A file that is whole. */
struct sent {
    struct list node; /* oldest first */
    uint64_t tenant;  /* of those before this worker, other tenants than the default one are one: TENANT_ANY */
    char hash[UPLOAD_HASH_LEN + 1];
    usec_t at; /* real time */
    uint64_t bytes;
};

struct uploads {
    char *path;
    int dirfd;
    uint64_t reserve_bytes;
    struct map tickets; /* by token */
    struct list by_age;
    struct map files; /* by hash */
    struct list by_time;
    struct list running;         /* struct upload */
    size_t n_running, n_by_link; /* the second: of the first */
    uint64_t bytes;              /* of all, those under way too */
    uint64_t serial;
    usec_t looked; /* monotonic; 0: look now */
    uint64_t room; /* above the reserve: what the disk had then, less what was written since */
};

struct upload {
    struct uploads *all;
    struct list node;
    uint64_t tenant;
    struct ticket *ticket; /* a reference; NULL: by the key */
    int fd;
    char hash[UPLOAD_HASH_LEN + 1], name[32];
    uint64_t bytes;
    usec_t since;
    bool repeats; /* fd is the file that is there already, to be compared */
};

/* ---- what there is ---- */

static struct sent *uploads_add(struct uploads *u, uint64_t tenant, const char *hash, usec_t at, uint64_t bytes)
{
    struct sent *s = mem_new(struct sent);
    memcpy(s->hash, hash, UPLOAD_HASH_LEN);
    s->tenant = tenant;
    s->at = at;
    s->bytes = bytes;
    list_append(&u->by_time, &s->node);
    (void)map_put(&u->files, str_of(s->hash), s);
    u->bytes += bytes;
    return s;
}

static void uploads_forget(struct uploads *u, struct sent *s)
{
    (void)map_del(&u->files, str_of(s->hash));
    list_remove(&s->node);
    u->bytes -= s->bytes;
    mem_free(s);
}

static bool discard(struct uploads *u, struct sent *s)
{
    if (unlinkat(u->dirfd, s->hash, 0) < 0 && errno != ENOENT)
        return false;
    uploads_forget(u, s);
    u->looked = 0;
    return true;
}

static int by_time(const void *a, const void *b)
{
    const struct sent *x = *(struct sent *const *)a, *y = *(struct sent *const *)b;
    return x->at != y->at ? (x->at < y->at ? -1 : 1) : strcmp(x->hash, y->hash);
}

static void sort(struct uploads *u)
{
    size_t n = map_count(&u->files), i = 0;
    AUTO_FREE struct sent **all = mem_array(n + 1, sizeof(struct sent *));
    LIST_FOREACH (struct sent, s, &u->by_time, node)
        all[i++] = s;
    if (n)
        qsort(all, n, sizeof(struct sent *), by_time);
    for (i = 0; i < n; i++) {
        list_remove(&all[i]->node);
        list_append(&u->by_time, &all[i]->node);
    }
}

/* A hash of the default tenant's, or what upload_name() makes of another's. */
static bool uploads_is_name(const char *name)
{
    return build_is_hash(str_of(name)) || (name[0] == UPLOAD_OF_TENANT && strlen(name) == UPLOAD_HASH_LEN &&
                                           strspn(name + 1, "0123456789abcdef") == UPLOAD_HASH_LEN - 1);
}

/* What an earlier worker left: whole ones are known from here on, half ones go. */
static int uploads_read_all(struct uploads *u, struct err *err)
{
    AUTO(dir_close) DIR *dir = dir_open(u->dirfd, ".");
    if (!dir)
        return err_errno(err, errno, "read %s", u->path);
    for (const struct dirent *e; (e = dir_next(dir));) {
        struct stat st;
        if (e->d_name[0] == '.')
            continue;
        if (!uploads_is_name(e->d_name))
            (void)unlinkat(u->dirfd, e->d_name, 0);
        else if (fstatat(u->dirfd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            (void)uploads_add(u, e->d_name[0] == UPLOAD_OF_TENANT ? TENANT_ANY : TENANT_DEFAULT, e->d_name,
                              (usec_t)st.st_mtim.tv_sec * USEC_PER_SEC + (usec_t)st.st_mtim.tv_nsec / 1000,
                              (uint64_t)st.st_size);
    }
    sort(u);
    return 0;
}

/* ---- room ---- */

static uint64_t reserve_of(const struct uploads *u, const struct statvfs *fs)
{
    const uint64_t least = UINT64_C(1) << 30, most = UINT64_C(8) << 30;
    return u->reserve_bytes != UPLOADS_RESERVE_AUTO ? u->reserve_bytes
                                                    : MIN(MAX(fs->f_blocks / 50 * fs->f_frsize, least), most);
}

static int uploads_look(struct uploads *u, struct err *err)
{
    struct statvfs fs;
    usec_t now = clock_mono();
    uint64_t there;
    if (u->looked && now - u->looked < FRESH_MS * USEC_PER_MS)
        return 0;
    if (fstatvfs(u->dirfd, &fs) < 0)
        return err_errno(err, errno, "look how much is free for uploads");
    if (__builtin_mul_overflow((uint64_t)fs.f_bavail, (uint64_t)fs.f_frsize, &there))
        there = UINT64_MAX;
    uint64_t reserve = reserve_of(u, &fs);
    u->room = there > reserve ? there - reserve : 0;
    u->looked = now;
    return 0;
}

static bool is_old(const struct sent *s)
{
    usec_t now = clock_real();
    return now > s->at && now - s->at > TICKET_S * USEC_PER_SEC;
}

/* The disk takes n more bytes and keeps its reserve. */
static int need_room(struct uploads *u, uint64_t n, struct err *err)
{
    if (u->reserve_bytes == UPLOADS_RESERVE_NONE)
        return 0;
    for (;;) {
        if (uploads_look(u, err) < 0)
            return -1;
        struct sent *oldest = LIST_FIRST(struct sent, &u->by_time, node);
        if (u->room >= n)
            return 0;
        if (!oldest || !is_old(oldest) || !discard(u, oldest))
            break;
    }
    (void)err_set(err, ERR_RESOURCE_EXHAUSTED,
                  "there is not enough room for the files: the disk has %llu MiB left above its reserve; remove "
                  "templates, sandboxes or other files",
                  (unsigned long long)(u->room >> 20));
    err->errnum = ENOSPC;
    return -1;
}

bool upload_is_full(const struct err *err)
{
    return err->code == ERR_RESOURCE_EXHAUSTED && (err->errnum == ENOSPC || err->errnum == EDQUOT);
}

static uint64_t sent_tenant(const struct list *node)
{
    return container_of(node, const struct sent, node)->tenant;
}

static uint64_t sent_bytes(const struct list *node)
{
    return container_of(node, const struct sent, node)->bytes;
}

/* All of them together stay within their bound, and those of a tenant that are under way within its share of it. */
static int keep_bound(struct uploads *u, uint64_t tenant, uint64_t more, struct err *err)
{
    uint64_t running = 0, own = 0;
    LIST_FOREACH (const struct upload, up, &u->running, node) {
        running += up->repeats ? 0 : up->bytes;
        own += up->repeats || up->tenant != tenant ? 0 : up->bytes;
    }
    const bool is_share = quota_is_share(UPLOADS_BYTES_MAX, running, own, more);
    while (!is_share || u->bytes + more > UPLOADS_BYTES_MAX) {
        struct list *oldest = is_share ? share_first(&u->by_time, sent_tenant, sent_bytes) : NULL;
        if (!oldest || !discard(u, container_of(oldest, struct sent, node)))
            return err_set(err, ERR_RESOURCE_EXHAUSTED, "the uploads in progress take %llu MiB: try again in a moment",
                           (unsigned long long)(running >> 20));
    }
    return 0;
}

/* ---- life ---- */

int uploads_new(const char *data_dir, uint64_t reserve_bytes, struct uploads **ret_uploads, struct err *err)
{
    AUTO_FREE char *path = mem_printf("%s/uploads", data_dir);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_errno(err, errno, "make %s", path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return err_errno(err, errno, "open %s", path);
    struct uploads *u = mem_new(struct uploads);
    u->path = TAKE_PTR(path);
    u->dirfd = fd;
    u->reserve_bytes = reserve_bytes;
    list_init(&u->by_age);
    list_init(&u->by_time);
    list_init(&u->running);
    if (uploads_read_all(u, err) < 0) {
        uploads_free(u);
        return -1;
    }
    struct err ignored;
    int r UNUSED = keep_bound(u, TENANT_DEFAULT, 0, &ignored);
    *ret_uploads = u;
    return 0;
}

static void release(struct ticket *t)
{
    if (t->is_dropped && t->refs == 0)
        mem_free(t);
}

static void uploads_drop(struct uploads *u, struct ticket *t)
{
    (void)map_del(&u->tickets, str_of(t->token));
    list_remove(&t->node);
    t->is_dropped = true;
    release(t);
}

void uploads_free(struct uploads *u)
{
    if (!u)
        return;
    assert(u->n_running == 0);
    LIST_FOREACH (struct ticket, t, &u->by_age, node)
        uploads_drop(u, t);
    LIST_FOREACH (struct sent, s, &u->by_time, node)
        uploads_forget(u, s);
    map_fini(&u->tickets);
    map_fini(&u->files);
    (void)fd_close(u->dirfd);
    MEM_FREE(u->path, u);
}

uint64_t uploads_bytes(const struct uploads *u)
{
    return u->bytes;
}

void upload_name(uint64_t tenant, const char *hash, char ret_name[static UPLOAD_HASH_LEN + 1])
{
    AUTO_FREE char *number = mem_printf("tenant %llu", (unsigned long long)tenant);
    (void)snprintf(ret_name, UPLOAD_HASH_LEN + 1, "%s", tenant ? "" : hash);
    if (!tenant)
        return;
    build_key_add(ret_name, (struct str[]){str_of(number), str_of(hash)}, 2);
    ret_name[0] = UPLOAD_OF_TENANT; /* or the default tenant's clients could name it: their hashes are names */
}

int uploads_open(struct uploads *u, const char *hash, int *ret_fd, uint64_t *ret_size, struct err *err)
{
    struct stat st;
    struct sent *s = map_get(&u->files, str_of(hash));
    AUTO_CLOSE int fd = s ? openat(u->dirfd, hash, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (s && fd < 0 && errno == ENOENT)
        uploads_forget(u, s); /* somebody has removed it */
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(err, ERR_NOT_FOUND, "the files %.12s... were not uploaded", hash);
    *ret_fd = TAKE_FD(fd);
    *ret_size = (uint64_t)st.st_size;
    return 0;
}

bool uploads_has(struct uploads *u, const char *hash)
{
    AUTO_CLOSE int fd = -1;
    uint64_t size;
    struct err ignored;
    assert(uploads_is_name(hash));
    return uploads_open(u, hash, &fd, &size, &ignored) == 0;
}

/* ---- links ---- */

static uint64_t ticket_tenant(const struct list *node)
{
    return container_of(node, const struct ticket, node)->tenant;
}

void uploads_grant(struct uploads *u, uint64_t tenant, const char *hash, char ret_token[static UPLOAD_TOKEN_LEN + 1])
{
    usec_t now = clock_mono();
    LIST_FOREACH (struct ticket, old, &u->by_age, node)
        if (old->until < now)
            uploads_drop(u, old);
    if (map_count(&u->tickets) >= TICKETS_MAX)
        uploads_drop(u, container_of(share_first(&u->by_age, ticket_tenant, NULL), struct ticket, node));
    struct ticket *t = mem_new(struct ticket);
    memcpy(t->hash, hash, UPLOAD_HASH_LEN);
    id_token(t->token, UPLOAD_TOKEN_LEN);
    t->tenant = tenant;
    t->until = now + TICKET_S * USEC_PER_SEC;
    list_append(&u->by_age, &t->node);
    (void)map_put(&u->tickets, str_of(t->token), t);
    memcpy(ret_token, t->token, UPLOAD_TOKEN_LEN + 1);
}

/* There is other content already. */
static int differs(const struct upload *up, struct err *err)
{
    return up->ticket ? err_set(err, ERR_PERMISSION_DENIED,
                                "this upload link was already used for other content: ask for a new one")
                      : err_set(err, ERR_ALREADY_EXISTS,
                                "other files were already uploaded as %.12s...: those are kept", up->hash);
}

/* ---- one ---- */

static int too_large(struct err *err)
{
    return err_set(err, ERR_OUT_OF_RANGE, "the files are larger than %llu GiB",
                   (unsigned long long)(UPLOAD_BYTES_MAX >> 30));
}

static void uploads_put(struct upload *up)
{
    list_remove(&up->node);
    up->all->n_running--;
    if (up->ticket) {
        up->all->n_by_link--;
        up->ticket->refs--;
        release(up->ticket);
    }
    (void)fd_close(up->fd);
    mem_free(up);
}

/* What its bytes are compared with, or the file they go to. */
static int uploads_open_file(struct upload *up, int64_t size, struct err *err)
{
    struct uploads *u = up->all;
    uint64_t there = 0;
    if (up->repeats) {
        if (uploads_open(u, up->hash, &up->fd, &there, err) < 0 || (size >= 0 && (uint64_t)size != there))
            return differs(up, err);
        return 0;
    }
    if (need_room(u, size > 0 ? (uint64_t)size : 1, err) < 0)
        return -1;
    (void)snprintf(up->name, sizeof(up->name), "part-%llu", (unsigned long long)++u->serial);
    up->fd = openat(u->dirfd, up->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return up->fd < 0 ? err_errno(err, errno, "make a file for the upload") : 0;
}

static bool uploads_may_begin(struct uploads *u, uint64_t tenant, bool by_link)
{
    size_t own = 0, own_by_link = 0;
    LIST_FOREACH (const struct upload, up, &u->running, node) {
        own += up->tenant == tenant;
        own_by_link += up->tenant == tenant && up->ticket;
    }
    return quota_is_share(RUNNING_MAX, u->n_running, own, 1) &&
           (!by_link || quota_is_share(BY_LINK_MAX, u->n_by_link, own_by_link, 1));
}

static int uploads_begin(struct uploads *u, uint64_t tenant, const char *hash, struct ticket *t, int64_t size,
                         struct upload **ret_upload, struct err *err)
{
    if (size > 0 && (uint64_t)size > UPLOAD_BYTES_MAX)
        return too_large(err);
    if (t && t->refs > 0)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "an upload by this link is in progress: wait until it ends");
    if (!uploads_may_begin(u, tenant, t))
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "%zu uploads are in progress: try again in a moment", u->n_running);
    struct upload *up = mem_new(struct upload);
    up->all = u;
    up->tenant = tenant;
    up->fd = -1;
    up->ticket = t;
    up->since = clock_mono();
    up->repeats = t ? t->used : uploads_has(u, hash);
    memcpy(up->hash, hash, UPLOAD_HASH_LEN);
    list_append(&u->running, &up->node);
    u->n_running++;
    if (t) {
        u->n_by_link++;
        t->refs++;
    }
    if (uploads_open_file(up, size, err) < 0) {
        uploads_put(up);
        return -1;
    }
    *ret_upload = up;
    return 0;
}

int upload_begin(struct uploads *u, uint64_t tenant, const char *hash, int64_t size, struct upload **ret_upload,
                 struct err *err)
{
    return uploads_begin(u, tenant, hash, NULL, size, ret_upload, err);
}

int upload_begin_by_link(struct uploads *u, struct str hash, struct str token, int64_t size, struct upload **ret_upload,
                         struct err *err)
{
    struct ticket *t = token.n == UPLOAD_TOKEN_LEN ? map_get(&u->tickets, token) : NULL;
    if (!t || !str_eqc(hash, t->hash) || clock_mono() > t->until)
        return err_set(err, ERR_PERMISSION_DENIED, "this upload link is invalid or has expired: ask for a new one");
    return uploads_begin(u, t->tenant, t->hash, t, size, ret_upload, err);
}

static int uploads_compare(struct upload *up, struct str bytes, struct err *err)
{
    char there[COMPARE];
    while (bytes.n) {
        ssize_t n = pread(up->fd, there, MIN(bytes.n, sizeof(there)), (off_t)up->bytes);
        if (n < 0)
            return err_errno(err, errno, "read the upload");
        if (n == 0 || memcmp(there, bytes.p, (size_t)n) != 0)
            return differs(up, err);
        up->bytes += (uint64_t)n;
        bytes = str_sub(bytes, (size_t)n);
    }
    return 0;
}

bool upload_is_slow(usec_t lasted, uint64_t bytes)
{
    uint64_t s = lasted / USEC_PER_SEC;
    return s > LINK_FREE_S && bytes < (s - LINK_FREE_S) * LINK_RATE;
}

int upload_write(struct upload *up, struct str bytes, struct err *err)
{
    struct uploads *u = up->all;
    if (up->ticket && upload_is_slow(clock_mono() - up->since, up->bytes + bytes.n))
        return err_set(err, ERR_DEADLINE_EXCEEDED,
                       "an upload by a link must bring at least 1 KiB/s after its first "
                       "%d s",
                       LINK_FREE_S);
    if (up->bytes + bytes.n > UPLOAD_BYTES_MAX)
        return too_large(err);
    if (up->repeats)
        return uploads_compare(up, bytes, err);
    if (keep_bound(u, up->tenant, bytes.n, err) < 0 || need_room(u, bytes.n, err) < 0)
        return -1;
    int r = fd_write_all(up->fd, bytes.p, bytes.n);
    if (r < 0)
        return err_errno(err, r, "keep the upload");
    up->bytes += bytes.n;
    u->bytes += bytes.n;
    u->room -= MIN(u->room, bytes.n);
    return 0;
}

static int end_repeated(struct upload *up, struct err *err)
{
    struct stat st;
    int r = fstat(up->fd, &st) < 0 || (uint64_t)st.st_size != up->bytes ? differs(up, err) : 0;
    upload_cancel(up);
    return r;
}

int upload_end(struct upload *up, struct err *err)
{
    struct uploads *u = up->all;
    if (up->repeats)
        return end_repeated(up, err);
    if (!up->ticket &&
        uploads_has(u, up->hash)) { /* another one was faster; they were not compared: sent once more they are */
        (void)differs(up, err);
        upload_cancel(up);
        return -1;
    }
    AUTO_FREE char *from = mem_printf("%s/%s", u->path, up->name);
    AUTO_FREE char *to = mem_printf("%s/%s", u->path, up->hash);
    if (rename(from, to) < 0) { /* renameat() is not among the calls of this process */
        int r = errno;
        upload_cancel(up);
        return err_errno(err, r, "keep the upload");
    }
    struct sent *old = map_get(&u->files, str_of(up->hash));
    if (old)
        uploads_forget(u, old);
    u->bytes -= up->bytes; /* uploads_add() counts them again */
    (void)uploads_add(u, up->tenant, up->hash, clock_real(), up->bytes);
    if (up->ticket)
        up->ticket->used = true;
    uploads_put(up);
    return 0;
}

void upload_cancel(struct upload *up)
{
    if (!up)
        return;
    if (!up->repeats) {
        (void)unlinkat(up->all->dirfd, up->name, 0);
        up->all->bytes -= up->bytes;
        up->all->looked = 0;
    }
    uploads_put(up);
}
