/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pool.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/str.h"
#include "kernel/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SHARDS = 64 };

struct pool {
    const struct pool_ops *ops;
    int fd, layers_fd, boxes_fd, trash_fd, new_fd;
    int shard_fds[SHARDS];
    uint64_t serial; /* of names in the trash */
};

/* The same name always lies in the same shard. */
static int shard_of(const struct pool *p, const char *name)
{
    uint32_t hash = 2166136261U; /* FNV-1a */
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619U;
    return p->shard_fds[hash % SHARDS];
}

static int directory_box_make(struct pool *p UNUSED, int at, const char *name)
{
    char path[POOL_NAME_MAX + 8];
    if (mkdirat(at, name, 0755) < 0)
        return -errno;
    (void)snprintf(path, sizeof(path), "%s/u", name);
    if (mkdirat(at, path, 0755) < 0)
        return -errno;
    (void)snprintf(path, sizeof(path), "%s/w", name);
    return mkdirat(at, path, 0755) < 0 ? -errno : 0;
}

/* Plain directories: a box costs three of them; disk use is not bounded. */
static const struct pool_ops directory_ops = {"directory", directory_box_make};

static int open_dir(int at, const char *name, mode_t mode, int *ret_fd)
{
    if (mkdirat(at, name, mode) < 0 && errno != EEXIST)
        return -errno;
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

static int open_shards(struct pool *p)
{
    /* ext4: lay the directories below out like top-level ones, each in a block group of its own. Others don't know the flag, or the trouble. */
    int flags = 0;
    if (ioctl(p->boxes_fd, FS_IOC_GETFLAGS, &flags) == 0 && !(flags & FS_TOPDIR_FL)) {
        flags |= FS_TOPDIR_FL;
        (void)ioctl(p->boxes_fd, FS_IOC_SETFLAGS, &flags);
    }
    int r = 0;
    for (size_t i = 0; r == 0 && i < SHARDS; i++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "%02zx", i);
        r = open_dir(p->boxes_fd, name, 0755, &p->shard_fds[i]);
    }
    return r;
}

int pool_open(const char *dir, struct pool **ret_pool)
{
    struct pool *p = mem_new(struct pool);
    p->ops = &directory_ops;
    p->fd = p->layers_fd = p->boxes_fd = p->trash_fd = p->new_fd = -1;
    for (size_t i = 0; i < SHARDS; i++)
        p->shard_fds[i] = -1;
    int r = open_dir(AT_FDCWD, dir, 0700, &p->fd);
    r = r ? r : open_dir(p->fd, "layers", 0755, &p->layers_fd);
    r = r ? r : open_dir(p->fd, "boxes", 0755, &p->boxes_fd);
    r = r ? r : open_dir(p->fd, "trash", 0755, &p->trash_fd);
    r = r ? r : open_dir(p->fd, "new", 0755, &p->new_fd);
    r = r ? r : open_shards(p);
    if (r < 0) {
        pool_close(p);
        return r;
    }
    *ret_pool = p;
    return 0;
}

void pool_close(struct pool *p)
{
    (void)fd_close(p->layers_fd);
    (void)fd_close(p->boxes_fd);
    (void)fd_close(p->trash_fd);
    (void)fd_close(p->new_fd);
    for (size_t i = 0; i < SHARDS; i++)
        (void)fd_close(p->shard_fds[i]);
    (void)fd_close(p->fd);
    mem_free(p);
}

const char *pool_kind(const struct pool *p)
{
    return p->ops->name;
}

int pool_fd(const struct pool *p)
{
    return p->fd;
}

bool pool_is_digest(const char *digest)
{
    size_t n = strnlen(digest, POOL_DIGEST_MAX);
    if (n != 7 + 64 || strncmp(digest, "sha256-", 7) != 0)
        return false;
    for (size_t i = 7; i < n; i++)
        if (!((digest[i] >= '0' && digest[i] <= '9') || (digest[i] >= 'a' && digest[i] <= 'f')))
            return false;
    return true;
}

int pool_layer_open(struct pool *p, const char *digest, int *ret_fd)
{
    if (!pool_is_digest(digest))
        return -EINVAL;
    int fd = openat(p->layers_fd, digest, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

static int write_box_file(int upper_fd, const struct pool_file *f)
{
    struct str dir = path_dir(str_of(f->path));
    if (!str_eqc(dir, ".")) {
        char name[64];
        if (dir.n >= sizeof(name))
            return -ENAMETOOLONG;
        memcpy(name, dir.p, dir.n);
        name[dir.n] = 0;
        if (mkdirat(upper_fd, name, 0755) < 0 && errno != EEXIST)
            return -errno;
    }
    return fd_write_file(upper_fd, f->path, str_of(f->text), 0644);
}

int pool_box_make(struct pool *p, const char *name, const struct pool_file *files, size_t n_files, int *ret_fd)
{
    int at = shard_of(p, name), r = p->ops->box_make(p, at, name);
    AUTO_CLOSE int box = -1;
    if (r == 0) {
        box = openat(at, name, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        r = box < 0 ? -errno : 0;
    }
    if (r == 0 && n_files) {
        AUTO_CLOSE int upper = openat(box, "u", O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        r = upper < 0 ? -errno : 0;
        for (size_t i = 0; r == 0 && i < n_files; i++)
            r = write_box_file(upper, &files[i]);
    }
    if (r < 0) {
        /* What can't be moved away now is found by the next pool_reset(). */
        int ignored UNUSED = r == -EEXIST ? 0 : pool_box_drop(p, name);
        return r;
    }
    *ret_fd = TAKE_FD(box);
    return 0;
}

static int to_trash(struct pool *p, int from_fd, const char *name)
{
    char to[POOL_NAME_MAX + 48];
    (void)snprintf(to, sizeof(to), "%.47s.%d.%llu", name, (int)getpid(), (unsigned long long)p->serial++);
    return renameat(from_fd, name, p->trash_fd, to) < 0 ? -errno : 0;
}

int pool_box_drop(struct pool *p, const char *name)
{
    int r = to_trash(p, shard_of(p, name), name);
    return r == -ENOENT ? 0 : r;
}

static int each_entry(int dir_fd, int (*fn)(void *ctx, const char *name), void *ctx)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        return fd < 0 ? -errno : (fd_close(fd), -ENOMEM);
    struct dirent *e;
    int r = 0;
    while (r >= 0 && (e = readdir(dir)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            r = fn(ctx, e->d_name);
    (void)closedir(dir);
    return r;
}

struct reset {
    struct pool *p;
    int from_fd;
    void (*fn)(void *ctx, const char *name);
    void *ctx;
};

static int reset_one(void *ctx, const char *name)
{
    struct reset *r = ctx;
    int e = to_trash(r->p, r->from_fd, name);
    if (e == 0 && r->fn)
        r->fn(r->ctx, name);
    return e;
}

int pool_reset(struct pool *p, void (*fn)(void *ctx, const char *name), void *ctx)
{
    struct reset half_made = {p, p->new_fd, NULL, NULL};
    int r = each_entry(p->new_fd, reset_one, &half_made);
    for (size_t i = 0; r >= 0 && i < SHARDS; i++) {
        struct reset boxes = {p, p->shard_fds[i], fn, ctx};
        r = each_entry(p->shard_fds[i], reset_one, &boxes);
    }
    return r;
}

struct sweep {
    struct pool *p;
    int done;
    int failed; /* the first error */
};

static int sweep_one(void *ctx, const char *name)
{
    struct sweep *s = ctx;
    int r = tree_remove(s->p->trash_fd, name);
    if (r == 0)
        s->done++;
    else if (r != -ENOENT && s->failed == 0)
        s->failed = r; /* what one sandbox left must not keep that of the others */
    return 0;
}

int pool_sweep(struct pool *p)
{
    struct sweep s = {p, 0, 0};
    int r = each_entry(p->trash_fd, sweep_one, &s);
    return r < 0 ? r : s.failed < 0 ? s.failed : s.done;
}
