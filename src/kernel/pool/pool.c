/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/dir.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/mem.h"
#include "kernel/pool/btrfs.h"
#include "kernel/pool/pool_internal.h"
#include "kernel/pool/project_quota.h"
#include "kernel/tree/tree.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEED_STEP = 4096 };

static const struct pool_ops *const kinds[] = {
    [POOL_COPY] = &pool_copy_ops,
    [POOL_REFLINK] = &pool_reflink_ops,
    [POOL_BTRFS] = &pool_btrfs_ops,
};

/* The same name always lies in the same shard. */
int pool_shard(const struct pool *p, const char *box)
{
    uint32_t hash = 2166136261U; /* FNV-1a */
    for (; *box; box++)
        hash = (hash ^ (unsigned char)*box) * 16777619U;
    return p->shard_fds[hash % POOL_SHARDS];
}

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

/*
 * Shards: ext4 keeps a directory's new inodes near it and, when it looks for one, steps over all that were freed in the
 * last five seconds. With hundreds of boxes coming and going a second that costs more than all else, so boxes are
 * spread over directories that lie far apart.
 */
static int open_shards(struct pool *p)
{
    /* ext4: lay the directories below out like top-level ones, each in a block group of its own. Others don't know the
     * flag, or the trouble. */
    int flags = 0;
    if (ioctl(p->boxes_fd, FS_IOC_GETFLAGS, &flags) == 0 && !(flags & FS_TOPDIR_FL)) {
        flags |= FS_TOPDIR_FL;
        (void)ioctl(p->boxes_fd, FS_IOC_SETFLAGS, &flags);
    }
    int r = 0;
    for (size_t i = 0; r == 0 && i < POOL_SHARDS; i++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "%02zx", i);
        r = open_dir(p->boxes_fd, name, 0755, &p->shard_fds[i]);
    }
    return r;
}

static bool is_in(int at, const char *name, const char *part)
{
    char path[POOL_ENTRY_MAX * 3];
    (void)snprintf(path, sizeof(path), "%s/%s", name, part);
    return faccessat(at, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT;
}

static int look_at_layer(void *ctx, const char *name)
{
    struct pool *p = ctx;
    AUTO_CLOSE int entry = -1;
    if (!is_in(p->layers_fd, name, "u"))
        return pool_to_trash(p, p->layers_fd, name); /* of an earlier version */
    if (!is_in(p->layers_fd, name, "w"))
        return 0;
    /* Whoever cloned it died then. It is in nobody's way. */
    int ignored UNUSED = pool_entry_open(p->layers_fd, name, &entry);
    ignored = ignored ? ignored : pool_entry_strip(entry, "below");
    return 0;
}

static int open_dirs(struct pool *p)
{
    const struct {
        const char *name;
        int *fd;
    } dirs[] = {{"layers", &p->layers_fd}, {"boxes", &p->boxes_fd}, {"kept", &p->kept_fd}, {"volumes", &p->volumes_fd},
                {"memory", &p->memory_fd}, {"trash", &p->trash_fd}, {"new", &p->new_fd}};
    int r = 0;
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(dirs); i++)
        r = open_dir(p->fd, dirs[i].name, 0755, dirs[i].fd);
    r = r ? r : open_shards(p);
    return r ? r : pool_each(p->layers_fd, look_at_layer, p);
}

static struct pool *pool_new(void)
{
    struct pool *p = mem_new(struct pool);
    p->fd = p->layers_fd = p->boxes_fd = p->kept_fd = p->volumes_fd = p->memory_fd = p->trash_fd = p->new_fd =
        p->figures_fd = -1;
    p->seeds_fd = p->stock_fd = p->dying_fd = -1;
    p->seed_step = SEED_STEP;
    for (size_t i = 0; i < POOL_SHARDS; i++)
        p->shard_fds[i] = -1;
    return p;
}

static bool is_possible(const struct pool *p, enum pool_kind kind)
{
    return kind == POOL_COPY || (kind == POOL_REFLINK ? tree_can_share(p->fd) : btrfs_is(p->fd));
}

static int open_numbers(struct pool *p)
{
    int r = open_dir(p->fd, "seeds", 0755, &p->seeds_fd);
    return r ? r : open_dir(p->fd, "stock", 0755, &p->stock_fd);
}

static int open_kind(const char *dir, bool any, enum pool_kind kind, struct pool **ret_pool)
{
    struct pool *p = pool_new();
    int r = open_dir(AT_FDCWD, dir, 0700, &p->fd);
    if (r == 0 && any)
        for (kind = POOL_BTRFS; !is_possible(p, kind); kind--)
            ;
    if (r == 0 && !is_possible(p, kind))
        r = -EOPNOTSUPP;
    if (r == 0) {
        p->ops = kinds[kind];
        p->features.kind = kind;
        p->features.limits = kind == POOL_BTRFS ? btrfs_quota_is_on(p->fd) : project_quota_is_on(p->fd);
        p->features.owners = kind == POOL_BTRFS && btrfs_quota_is_simple(p->fd);
        p->features.cheap_clones = p->ops->cheap_clones;
        r = open_dirs(p);
    }
    if (r == 0 && kind == POOL_BTRFS)
        r = open_numbers(p);
    if (r == 0 && kind == POOL_BTRFS)
        r = open_dir(p->fd, "dying", 0755, &p->dying_fd);
    if (r == 0 && kind == POOL_BTRFS) {
        int unknown UNUSED = btrfs_figures_open(p->fd, &p->figures_fd); /* without them some figures are older */
    }
    if (r < 0) {
        pool_close(p);
        return r;
    }
    *ret_pool = p;
    return 0;
}

int pool_open(const char *dir, struct pool **ret_pool)
{
    return open_kind(dir, true, POOL_COPY, ret_pool);
}

int pool_open_as(const char *dir, enum pool_kind kind, struct pool **ret_pool)
{
    return open_kind(dir, false, kind, ret_pool);
}

void pool_close(struct pool *p)
{
    int *const fds[] = {&p->layers_fd, &p->boxes_fd,   &p->kept_fd,  &p->volumes_fd, &p->trash_fd, &p->new_fd,
                        &p->memory_fd, &p->figures_fd, &p->seeds_fd, &p->stock_fd,   &p->dying_fd, &p->fd};
    for (size_t i = 0; i < POOL_SHARDS; i++)
        (void)fd_close(p->shard_fds[i]);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        (void)fd_close(*fds[i]);
    mem_free(p);
}

const struct pool_features *pool_features(const struct pool *p)
{
    return &p->features;
}

const char *pool_kind(const struct pool *p)
{
    return p->ops->name;
}

const char *pool_kind_name(enum pool_kind kind)
{
    static const char *const names[] = {[POOL_COPY] = "copy", [POOL_REFLINK] = "reflink", [POOL_BTRFS] = "btrfs"};
    return names[kind];
}

int pool_fd(const struct pool *p)
{
    return p->fd;
}

int pool_step(struct pool *p, const char *step)
{
    return p->on_step ? p->on_step(p->step_ctx, step) : fault_error(step);
}

/* ---- entries ---- */

bool pool_is_name(const char *name)
{
    size_t n = strnlen(name, POOL_NAME_MAX);
    return n > 0 && n < POOL_NAME_MAX && name[0] != '.' && str_is_of(str_n(name, n), "A-Za-z0-9._-");
}

void pool_unique(const char *name, char ret_name[static POOL_ENTRY_MAX])
{
    char token[13];
    id_token(token, sizeof(token) - 1);
    (void)snprintf(ret_name, POOL_ENTRY_MAX, "%.*s.%s", POOL_LAYER_MAX, name, token);
}

int pool_to_trash(struct pool *p, int at, const char *name)
{
    char to[POOL_ENTRY_MAX];
    fault_point("pool.trash");
    pool_unique(name, to);
    if (renameat(at, name, p->trash_fd, to) == 0)
        return 0;
    /* A full btrfs has room set aside for deletions, and for nothing else. */
    return errno == ENOSPC && p->ops->cheap_clones ? p->ops->remove(p, at, name) : -errno;
}

void pool_discard(struct pool *p, int at, const char *name)
{
    /* What can't be moved away now lies where the next pool_reset() looks. */
    int ignored UNUSED = pool_to_trash(p, at, name);
}

int pool_each(int dir_fd, int (*fn)(void *ctx, const char *name), void *ctx)
{
    AUTO(dir_close) DIR *dir = dir_open(dir_fd, ".");
    int r = dir ? 0 : -errno;
    while (r >= 0) {
        errno = 0; /* a disk that fails has not no entries */
        const struct dirent *e = dir_next(dir);
        if (!e)
            return errno ? -errno : r;
        r = fn(ctx, e->d_name);
    }
    return r;
}

struct named {
    bool (*is)(const char *name);
    void (*fn)(void *ctx, const char *name);
    void *ctx;
};

static int each_named(void *ctx, const char *name)
{
    const struct named *n = ctx;
    if (n->is(name))
        n->fn(n->ctx, name);
    return 0;
}

int pool_each_named(int dir_fd, bool (*is)(const char *name), void (*fn)(void *ctx, const char *name), void *ctx)
{
    struct named n = {is, fn, ctx};
    return pool_each(dir_fd, each_named, &n);
}

int pool_entry_open(int at, const char *name, int *ret_fd)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

int pool_entry_strip(int entry_fd, const char *note)
{
    static const char *const files[] = {"w", "below", "bytes", "limit"};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        int r = note && strcmp(files[i], note) == 0 ? 0 : tree_remove(entry_fd, files[i]);
        if (r < 0 && r != -ENOENT)
            return r;
    }
    return 0;
}

int pool_note_u64(int entry_fd, const char *file, uint64_t *ret_value)
{
    AUTO_BUF struct buf b = BUF_INIT(32);
    struct str text, line = STR_NULL;
    int r = fd_read_file(entry_fd, file, &b);
    text = buf_str(&b);
    return r < 0 ? r : str_split(&text, '\n', &line) ? str_to_u64(line, ret_value) : -EBADMSG;
}

/* Where nothing is known, 0 is what it says. */
int pool_note_bytes(struct pool *p, int entry_fd, int used_fd, uint64_t copied)
{
    char text[24];
    uint64_t bytes = copied;
    int r UNUSED = p->features.limits ? p->ops->usage(p, used_fd, &bytes) : 0;
    int n = snprintf(text, sizeof(text), "%llu\n", (unsigned long long)bytes);
    return fd_write_file(entry_fd, "bytes", str_n(text, (size_t)n), 0600);
}

/* The name's place on disk. When that fails, what had it before has it again. */
static int settle_name(struct pool *p, int from_at, const char *from, int to_at, const char *to, bool exchanged)
{
    int r = pool_step(p, "pool.named");
    if (r == 0 && fsync(to_at) < 0)
        r = -errno;
    if (r < 0)
        (void)renameat2(to_at, to, from_at, from, exchanged ? RENAME_EXCHANGE : RENAME_NOREPLACE);
    return r;
}

static int put_new(struct pool *p, int from_at, const char *from, int to_at, const char *to)
{
    if (renameat2(from_at, from, to_at, to, RENAME_NOREPLACE) < 0)
        return -errno;
    return settle_name(p, from_at, from, to_at, to, false);
}

static int put_in_exchange(struct pool *p, int from_at, const char *from, int to_at, const char *to)
{
    int r = put_new(p, from_at, from, to_at, to);
    if (r != -EEXIST)
        return r;
    if (renameat2(from_at, from, to_at, to, RENAME_EXCHANGE) < 0)
        return -errno;
    r = settle_name(p, from_at, from, to_at, to, true);
    if (r == 0)
        pool_discard(p, from_at, from);
    return r;
}

static int put_after(struct pool *p, int from_at, const char *from, int to_at, const char *to)
{
    char aside[POOL_ENTRY_MAX];
    pool_unique(to, aside);
    bool was_there = renameat(to_at, to, p->new_fd, aside) == 0;
    if (!was_there && errno != ENOENT)
        return -errno;
    int r = put_new(p, from_at, from, to_at, to);
    if (was_there && r == 0)
        pool_discard(p, p->new_fd, aside);
    else if (was_there)
        (void)renameat2(p->new_fd, aside, to_at, to, RENAME_NOREPLACE);
    return r;
}

int pool_put(struct pool *p, int from_at, const char *from, int to_at, const char *to, enum pool_put how)
{
    int r = pool_step(p, "pool.put");
    if (r < 0)
        return r;
    switch (how) {
    case POOL_PUT_EXCHANGE:
        return put_in_exchange(p, from_at, from, to_at, to);
    case POOL_PUT_AFTER:
        return put_after(p, from_at, from, to_at, to);
    default:
        return put_new(p, from_at, from, to_at, to);
    }
}

/* ---- the whole ---- */

struct half_made {
    struct pool *p;
    const char *name;
};

static int forget_one(void *ctx, const char *entry)
{
    const struct half_made *h = ctx;
    size_t n = strlen(h->name);
    if (strncmp(entry, h->name, n) == 0 && entry[n] == '.')
        pool_discard(h->p, h->p->new_fd, entry);
    return 0;
}

void pool_forget(struct pool *p, const char *name)
{
    struct half_made h = {p, name};
    int ignored UNUSED = pool_each(p->new_fd, forget_one, &h); /* the next pool_reset() looks there, too */
}

struct reset {
    struct pool *p;
    int from_fd;
    bool (*spares)(void *ctx, const char *name);
    void *ctx;
};

static int reset_one(void *ctx, const char *name)
{
    struct reset *r = ctx;
    return r->spares && r->spares(r->ctx, name) ? 0 : pool_to_trash(r->p, r->from_fd, name);
}

int pool_reset(struct pool *p, bool (*spares)(void *ctx, const char *name), void *ctx)
{
    struct reset half_made = {p, p->new_fd, NULL, NULL};
    int r = pool_each(p->new_fd, reset_one, &half_made);
    for (size_t i = 0; r >= 0 && i < POOL_SHARDS; i++) {
        struct reset boxes = {p, p->shard_fds[i], spares, ctx};
        r = pool_each(p->shard_fds[i], reset_one, &boxes);
    }
    return r;
}

struct sweep {
    struct pool *p;
    int most, done;
    int failed; /* the first error */
};

static int sweep_at(struct sweep *s, int at, const char *name)
{
    int r = s->p->ops->remove(s->p, at, name);
    if (r == 0)
        s->done++;
    else if (r != -ENOENT && s->failed == 0)
        s->failed = r; /* what one sandbox left must not keep that of the others */
    return s->done < s->most ? 0 : -ECANCELED;
}

static int sweep_dying(void *ctx, const char *name)
{
    struct sweep *s = ctx;
    return sweep_at(s, s->p->dying_fd, name);
}

/*
 * While btrfs drops a subvolume, it holds the directory that the subvolume is in, until it has forgotten each name
 * below: seconds, after half a million files. Who moves something to the trash would wait for that.
 */
static int sweep_trash(void *ctx, const char *name)
{
    struct sweep *s = ctx;
    const struct pool *p = s->p;
    bool is_moved = p->dying_fd >= 0 && renameat(p->trash_fd, name, p->dying_fd, name) == 0;
    return sweep_at(s, is_moved ? p->dying_fd : p->trash_fd, name);
}

int pool_sweep_some(struct pool *p, int most)
{
    struct sweep s = {p, most, 0, 0};
    int r = p->dying_fd >= 0 ? pool_each(p->dying_fd, sweep_dying, &s) : 0;
    r = r < 0 ? r : pool_each(p->trash_fd, sweep_trash, &s);
    int ignored UNUSED = s.done && p->features.kind == POOL_BTRFS ? btrfs_commit_begin(p->trash_fd) : 0;
    return r < 0 && r != -ECANCELED ? r : s.failed < 0 ? s.failed : s.done;
}

int pool_sweep(struct pool *p)
{
    return pool_sweep_some(p, INT_MAX);
}
