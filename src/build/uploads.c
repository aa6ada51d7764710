/* SPDX-License-Identifier: Apache-2.0 */
#include "build/uploads.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "build/spec.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TICKETS_MAX = 4096, TICKET_S = 3600, RUNNING_MAX = 64 };

struct ticket {
    struct list node; /* oldest first */
    char hash[UPLOAD_HASH_LEN + 1], token[UPLOAD_TOKEN_LEN + 1];
    usec_t until;
};

struct uploads {
    char *path;
    int dirfd;
    struct map tickets; /* by token */
    struct list by_age;
    size_t n_running;
    uint64_t bytes; /* of all, those under way too */
    uint64_t serial;
};

struct upload {
    struct uploads *all;
    int fd;
    char hash[UPLOAD_HASH_LEN + 1], name[32];
    uint64_t bytes;
};

/* ---- the directory ---- */

struct found {
    char hash[UPLOAD_HASH_LEN + 1];
    struct timespec sent;
    uint64_t bytes;
};

static int by_time(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    if (x->sent.tv_sec != y->sent.tv_sec)
        return x->sent.tv_sec < y->sent.tv_sec ? -1 : 1;
    return x->sent.tv_nsec < y->sent.tv_nsec ? -1 : x->sent.tv_nsec > y->sent.tv_nsec;
}

/* All whole ones, oldest first. Removes the half ones when `clean`. */
static size_t list_all(struct uploads *u, bool clean, struct found **ret_found)
{
    struct found *all = NULL;
    size_t n = 0;
    int fd = openat(u->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        (void)fd_close(fd);
        *ret_found = NULL;
        return 0;
    }
    for (const struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        if (e->d_name[0] == '.')
            continue;
        if (!build_is_hash(str_of(e->d_name))) {
            if (clean)
                (void)unlinkat(u->dirfd, e->d_name, 0);
            continue;
        }
        if (fstatat(u->dirfd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
            continue;
        all = mem_realloc(all, (n + 1) * sizeof(*all));
        all[n] = (struct found){.sent = st.st_mtim, .bytes = (uint64_t)st.st_size};
        memcpy(all[n++].hash, e->d_name, UPLOAD_HASH_LEN + 1);
    }
    (void)closedir(dir);
    if (n)
        qsort(all, n, sizeof(*all), by_time);
    *ret_found = all;
    return n;
}

static void make_room(struct uploads *u)
{
    AUTO_FREE struct found *all = NULL;
    if (u->bytes <= UPLOADS_BYTES_MAX)
        return;
    size_t n = list_all(u, false, &all);
    for (size_t i = 0; i < n && u->bytes > UPLOADS_BYTES_MAX / 10 * 9; i++)
        if (unlinkat(u->dirfd, all[i].hash, 0) == 0)
            u->bytes -= MIN(all[i].bytes, u->bytes);
}

int uploads_new(const char *data_dir, struct uploads **ret_uploads, struct err *err)
{
    AUTO_FREE char *path = mem_printf("%s/uploads", data_dir);
    AUTO_FREE struct found *all = NULL;
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_errno(err, errno, "make %s", path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return err_errno(err, errno, "open %s", path);
    struct uploads *u = mem_new(struct uploads);
    u->path = TAKE_PTR(path);
    u->dirfd = fd;
    list_init(&u->by_age);
    size_t n = list_all(u, true, &all);
    for (size_t i = 0; i < n; i++)
        u->bytes += all[i].bytes;
    make_room(u);
    *ret_uploads = u;
    return 0;
}

static void drop(struct uploads *u, struct ticket *t)
{
    (void)map_del(&u->tickets, str_of(t->token));
    list_remove(&t->node);
    mem_free(t);
}

void uploads_free(struct uploads *u)
{
    if (!u)
        return;
    assert(u->n_running == 0);
    LIST_FOREACH (struct ticket, t, &u->by_age, node)
        drop(u, t);
    map_fini(&u->tickets);
    (void)fd_close(u->dirfd);
    mem_free(u->path);
    mem_free(u);
}

bool uploads_has(struct uploads *u, const char *hash)
{
    struct stat st;
    assert(build_is_hash(str_of(hash)));
    return fstatat(u->dirfd, hash, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

int uploads_open(struct uploads *u, const char *hash, int *ret_fd, uint64_t *ret_size, struct err *err)
{
    struct stat st;
    AUTO_CLOSE int fd = uploads_has(u, hash) ? openat(u->dirfd, hash, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(err, ERR_NOT_FOUND, "the files %.12s... were not uploaded", hash);
    *ret_fd = TAKE_FD(fd);
    *ret_size = (uint64_t)st.st_size;
    return 0;
}

/* ---- tickets ---- */

void uploads_grant(struct uploads *u, const char *hash, char ret_token[static UPLOAD_TOKEN_LEN + 1])
{
    usec_t now = clock_mono();
    LIST_FOREACH (struct ticket, old, &u->by_age, node)
        if (old->until < now || map_count(&u->tickets) >= TICKETS_MAX)
            drop(u, old);
    struct ticket *t = mem_new(struct ticket);
    memcpy(t->hash, hash, UPLOAD_HASH_LEN);
    id_token(t->token, UPLOAD_TOKEN_LEN);
    t->until = now + TICKET_S * USEC_PER_SEC;
    list_append(&u->by_age, &t->node);
    (void)map_put(&u->tickets, str_of(t->token), t);
    memcpy(ret_token, t->token, UPLOAD_TOKEN_LEN + 1);
}

bool uploads_is_granted(struct uploads *u, struct str hash, struct str token)
{
    const struct ticket *t = token.n == UPLOAD_TOKEN_LEN ? map_get(&u->tickets, token) : NULL;
    return t && str_eqc(hash, t->hash) && clock_mono() <= t->until;
}

/* ---- one ---- */

static int too_large(struct err *err)
{
    return err_set(err, ERR_OUT_OF_RANGE, "the files are larger than %llu GiB",
                   (unsigned long long)(UPLOAD_BYTES_MAX >> 30));
}

int upload_begin(struct uploads *u, const char *hash, int64_t size, struct upload **ret_upload, struct err *err)
{
    if (size > 0 && (uint64_t)size > UPLOAD_BYTES_MAX)
        return too_large(err);
    if (u->n_running >= RUNNING_MAX)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "%d uploads are under way: try again in a moment", RUNNING_MAX);
    struct upload *up = mem_new(struct upload);
    up->all = u;
    memcpy(up->hash, hash, UPLOAD_HASH_LEN);
    (void)snprintf(up->name, sizeof(up->name), "part-%llu", (unsigned long long)++u->serial);
    up->fd = openat(u->dirfd, up->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (up->fd < 0) {
        mem_free(up);
        return err_errno(err, errno, "make a file for the upload");
    }
    u->n_running++;
    *ret_upload = up;
    return 0;
}

static void forget(struct upload *up)
{
    up->all->n_running--;
    (void)fd_close(up->fd);
    mem_free(up);
}

int upload_write(struct upload *up, struct str bytes, struct err *err)
{
    if (up->bytes + bytes.n > UPLOAD_BYTES_MAX)
        return too_large(err);
    int r = fd_write_all(up->fd, bytes.p, bytes.n);
    if (r < 0)
        return err_errno(err, r, "keep the upload");
    up->bytes += bytes.n;
    up->all->bytes += bytes.n;
    make_room(up->all);
    return 0;
}

int upload_end(struct upload *up, struct err *err)
{
    struct uploads *u = up->all;
    struct stat old;
    bool replaces = fstatat(u->dirfd, up->hash, &old, AT_SYMLINK_NOFOLLOW) == 0;
    AUTO_FREE char *from = mem_printf("%s/%s", u->path, up->name);
    AUTO_FREE char *to = mem_printf("%s/%s", u->path, up->hash);
    if (rename(from, to) < 0) { /* renameat() is not among the calls of this process */
        int r = errno;
        upload_cancel(up);
        return err_errno(err, r, "keep the upload");
    }
    if (replaces)
        u->bytes -= MIN((uint64_t)old.st_size, u->bytes);
    forget(up);
    return 0;
}

void upload_cancel(struct upload *up)
{
    if (!up)
        return;
    (void)unlinkat(up->all->dirfd, up->name, 0);
    up->all->bytes -= MIN(up->bytes, up->all->bytes);
    forget(up);
}
