/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "kernel/pool/btrfs.h"
#include "kernel/pool/pool_internal.h"
#include "kernel/tree/tree.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

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

/*
 * A box that begins with files of a sandbox's: what lies at the path may be a link, a fifo, anything. What it made a
 * directory, or of the directory something else, is its own business.
 */
static int replace_box_file(int upper_fd, const struct pool_file *f)
{
    struct str dir = path_dir(str_of(f->path)), base = path_base(str_of(f->path));
    char name[64];
    AUTO_CLOSE int at = -1;
    if (MAX(dir.n, base.n) >= sizeof(name))
        return -ENAMETOOLONG;
    memcpy(name, dir.p, dir.n);
    name[dir.n] = 0;
    if (mkdirat(upper_fd, name, 0755) < 0 && errno != EEXIST)
        return -errno;
    int r = pool_entry_open(upper_fd, name, &at);
    if (r < 0)
        return r == -ENOTDIR || r == -ELOOP ? 0 : r;
    memcpy(name, base.p, base.n);
    name[base.n] = 0;
    if (unlinkat(at, name, 0) < 0 && errno != ENOENT)
        return errno == EISDIR ? 0 : -errno;
    AUTO_CLOSE int fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    return fd < 0 ? -errno : fd_write_all(fd, f->text, strlen(f->text));
}

static int write_files(int box_fd, const struct pool_box *box, bool is_new)
{
    AUTO_CLOSE int upper = -1;
    int r = box->n_files ? pool_entry_open(box_fd, "u", &upper) : 0;
    for (size_t i = 0; r == 0 && i < box->n_files; i++)
        r = is_new ? write_box_file(upper, &box->files[i]) : replace_box_file(upper, &box->files[i]);
    return r;
}

/* What was kept while the pool had no limits has none. */
static int limit(struct pool *p, int box_fd, const struct pool_box *box)
{
    int r = p->features.limits && box->limit_bytes ? p->ops->limit(p, box_fd, box->limit_bytes) : 0;
    return r == -ENODATA && box->from_kept ? 0 : r;
}

static int unlimit(struct pool *p, int entry_fd)
{
    int r = p->features.limits ? p->ops->limit(p, entry_fd, 0) : 0;
    return r == -ENODATA ? 0 : r;
}

/* What "/" belongs to and lets do is said by the topmost directory of an overlay: as in the layer below. */
static int make_upper(struct pool *p, int fd, const struct pool_box *box)
{
    char below[POOL_LAYER_MAX + 4];
    struct stat st;
    if (mkdirat(fd, "u", 0755) < 0 && errno != EEXIST)
        return -errno;
    if (!box->chain || box->chain->n == 0)
        return 0;
    (void)snprintf(below, sizeof(below), "%s/u", box->chain->names[0]);
    if (fstatat(p->layers_fd, below, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return -ENOTDIR;
    if ((st.st_uid || st.st_gid) && fchownat(fd, "u", st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    return (st.st_mode & 07777) != 0755 && fchmodat(fd, "u", st.st_mode & 07777, 0) < 0 ? -errno : 0;
}

/* u/ and w/ of an entry that nobody knows yet, or of one that was cloned or kept. */
static int pool_box_fill(struct pool *p, int at, const char *name, const struct pool_box *box, bool is_new)
{
    AUTO_CLOSE int fd = -1;
    int r = pool_entry_open(at, name, &fd);
    if (r == 0 && box->from_kept)
        r = unlimit(p, fd); /* its files may be at it, and there is to be made something beside them */
    if (r == 0 && !is_new)
        r = tree_remove(fd, "w");
    if (r == -ENOENT)
        r = 0;
    if (r == 0 && is_new)
        r = make_upper(p, fd, box);
    if (r == 0 && is_new && p->ops->clones_settled)
        r = pool_below_write(fd, box->chain); /* clones of it have it then */
    if (r == 0 && mkdirat(fd, "w", 0755) < 0)
        r = -errno;
    r = r ? r : pool_step(p, "pool.made");
    r = r ? r : write_files(fd, box, is_new);
    r = r ? r : pool_step(p, "pool.filled");
    return r ? r : limit(p, fd, box);
}

static int make_empty(struct pool *p, const struct pool_box *box)
{
    int at = pool_shard(p, box->name), r = pool_numbered_box(p, box->chain, at, box->name);
    if (r < 0)
        return r;
    r = pool_box_fill(p, at, box->name, box, true);
    if (r < 0)
        pool_discard(p, at, box->name);
    return r;
}

static int make_from_layer(struct pool *p, const struct pool_box *box)
{
    char name[POOL_ENTRY_MAX];
    AUTO_CLOSE int entry = -1;
    if (!box->chain || box->chain->n == 0)
        return -EINVAL;
    const char *layer = box->chain->names[0];
    int r = pool_chain_check(p, box->chain, POOL_CHAIN_MAX);
    if (r < 0)
        return r;
    pool_unique(box->name, name);
    r = p->ops->clone(p, p->layers_fd, layer, p->new_fd, name, true);
    r = r ? r : pool_step(p, "pool.cloned");
    r = r ? r : pool_entry_open(p->new_fd, name, &entry);
    r = r ? r : pool_entry_strip(entry, "below");
    r = r ? r : pool_box_fill(p, p->new_fd, name, box, false);
    if (r == 0 && renameat2(p->new_fd, name, pool_shard(p, box->name), box->name, RENAME_NOREPLACE) < 0)
        r = -errno;
    if (r < 0)
        pool_discard(p, p->new_fd, name);
    return r;
}

/* All that can fail is done to it in its place: until the rename it is kept, and whole. */
static int make_from_kept(struct pool *p, const struct pool_box *box)
{
    AUTO_CLOSE int entry = -1;
    int at = pool_shard(p, box->name);
    if (!pool_is_name(box->from_kept))
        return -EINVAL;
    if (faccessat(at, box->name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return -EEXIST;
    int r = pool_entry_open(p->kept_fd, box->from_kept, &entry);
    r = r ? r : pool_box_fill(p, p->kept_fd, box->from_kept, box, false);
    if (r == 0 && renameat2(p->kept_fd, box->from_kept, at, box->name, RENAME_NOREPLACE) < 0)
        r = -errno;
    return r;
}

int pool_box_make(struct pool *p, const struct pool_box *box, int *ret_fd)
{
    if (!pool_is_name(box->name) || (box->from_layer && box->from_kept))
        return -EINVAL;
    int r = box->from_kept ? make_from_kept(p, box) : box->from_layer ? make_from_layer(p, box) : make_empty(p, box);
    if (r < 0)
        return r;
    int fd = openat(pool_shard(p, box->name), box->name, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

/* What lies below: what services of that key have left in the box's layers, then the layers of the root. */
static int service_lower(struct pool *p, const struct pool_service *s, int *ret_lower, size_t *ret_n)
{
    char path[POOL_LAYER_MAX + 2 * POOL_ENTRY_MAX];
    size_t n = 0;
    for (size_t i = 0; i < s->below->n; i++) {
        (void)snprintf(path, sizeof(path), "%s/services/%s/u", s->below->names[i], s->key);
        int fd = openat(p->layers_fd, path, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 && errno != ENOENT)
            return -errno;
        if (fd >= 0)
            ret_lower[n++] = fd;
    }
    *ret_n = n + s->root->n;
    return *ret_n > POOL_LOWER_MAX ? -E2BIG : pool_chain_open(p, s->root, ret_lower + n);
}

int pool_service_make(struct pool *p, const struct pool_service *s, int *ret_fd, int ret_lower[static POOL_LOWER_MAX],
                      size_t *ret_n)
{
    const struct pool_box like = {.name = s->key, .chain = s->root, .files = s->files, .n_files = s->n_files};
    char upper[POOL_ENTRY_MAX + 4];
    AUTO_CLOSE int box = -1, services = -1, old = -1;
    if (!pool_is_name(s->box) || strlen(s->key) >= POOL_ENTRY_MAX || strchr(s->key, '/') || s->key[0] == '.')
        return -EINVAL;
    int r = pool_entry_open(pool_shard(p, s->box), s->box, &box);
    if (r == 0 && mkdirat(box, "services", 0700) < 0 && errno != EEXIST)
        r = -errno;
    r = r ? r : pool_entry_open(box, "services", &services);
    if (r == 0 && mkdirat(services, s->key, 0700) < 0 && errno != EEXIST)
        r = -errno;
    (void)snprintf(upper, sizeof(upper), "%s/u", s->key);
    bool is_new = r == 0 && faccessat(services, upper, F_OK, AT_SYMLINK_NOFOLLOW) < 0;
    r = r ? r : pool_box_fill(p, services, s->key, &like, is_new);
    /* Which lower root overlayfs found it above: that may be another by now. */
    if (r == 0 && !is_new && (r = pool_entry_open(services, upper, &old)) == 0)
        (void)fremovexattr(old, "trusted.overlay.origin");
    r = r ? r : pool_number_beyond(p, box, s->root);
    r = r ? r : service_lower(p, s, ret_lower, ret_n);
    if (r < 0)
        return r;
    *ret_fd = openat(services, s->key, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return *ret_fd < 0 ? -errno : 0;
}

static int open_box(struct pool *p, const char *name, int *ret_fd)
{
    if (!p->features.limits)
        return -EOPNOTSUPP;
    return pool_is_name(name) ? pool_entry_open(pool_shard(p, name), name, ret_fd) : -EINVAL;
}

int pool_box_limit(struct pool *p, const char *name, uint64_t limit_bytes)
{
    AUTO_CLOSE int fd = -1;
    int r = open_box(p, name, &fd);
    return r ? r : p->ops->limit(p, fd, limit_bytes);
}

int pool_box_usage(struct pool *p, const char *name, uint64_t *ret_bytes)
{
    AUTO_CLOSE int fd = -1;
    int r = open_box(p, name, &fd);
    return r ? r : p->ops->usage(p, fd, ret_bytes);
}

uint64_t pool_box_dirty_bytes(struct pool *p, const char *name)
{
    AUTO_CLOSE int fd = -1;
    uint64_t bytes = 0;
    if (p->features.kind != POOL_BTRFS || !pool_is_name(name) || pool_entry_open(pool_shard(p, name), name, &fd) < 0)
        return 0;
    return btrfs_quota_promised(fd, p->figures_fd, &bytes) < 0 ? btrfs_promised(p->figures_fd) : bytes;
}

int pool_box_settle(struct pool *p, const char *name)
{
    if (!pool_is_name(name))
        return -EINVAL;
    return p->ops->cheap_clones ? p->ops->settle(p, pool_shard(p, name), name) : 0;
}

int pool_box_drop(struct pool *p, const char *name)
{
    if (!pool_is_name(name))
        return -EINVAL;
    int r = pool_to_trash(p, pool_shard(p, name), name);
    return r == -ENOENT ? 0 : r;
}

/* ---- kept uppers ---- */

int pool_keep(struct pool *p, const char *box, const char *sandbox, const struct pool_chain *below)
{
    AUTO_CLOSE int entry = -1;
    int at = pool_shard(p, box);
    if (!pool_is_name(box) || !pool_is_name(sandbox))
        return -EINVAL;
    int r = pool_chain_check(p, below, POOL_CHAIN_MAX);
    r = r ? r : pool_entry_open(at, box, &entry);
    r = r ? r : unlimit(p, entry);                         /* it may be full, and nobody writes to it any more */
    bool is_noted = r == 0 && pool_below_is(entry, below); /* and the pool may be full, too */
    r = r ? r : pool_entry_strip(entry, is_noted ? "below" : NULL);
    r = r ? r : pool_step(p, "pool.stripped");
    if (r == 0 && !is_noted)
        r = pool_below_write(entry, below);
    r = r ? r : pool_step(p, "pool.noted");
    r = r ? r : p->ops->settle(p, at, box);
    return r ? r : pool_put(p, at, box, p->kept_fd, sandbox, POOL_PUT_AFTER);
}

static int keep_clone(struct pool *p, int at, const char *from, const char *sandbox, const struct pool_chain *below)
{
    char name[POOL_ENTRY_MAX];
    AUTO_CLOSE int entry = -1;
    int r = pool_chain_check(p, below, POOL_CHAIN_MAX);
    if (r < 0)
        return r;
    pool_unique(sandbox, name);
    r = p->ops->clone(p, at, from, p->new_fd, name, true);
    r = r ? r : pool_step(p, "pool.cloned");
    r = r ? r : pool_entry_open(p->new_fd, name, &entry);
    bool is_noted = r == 0 && pool_below_is(entry, below);
    r = r ? r : pool_entry_strip(entry, is_noted ? "below" : NULL);
    if (r == 0 && !is_noted)
        r = pool_below_write(entry, below);
    r = r ? r : pool_step(p, "pool.noted");
    if (r == 0 && !(is_noted && p->ops->clones_settled))
        r = p->ops->settle(p, p->new_fd, name);
    r = r ? r : pool_put(p, p->new_fd, name, p->kept_fd, sandbox, POOL_PUT_EXCHANGE);
    if (r < 0)
        pool_discard(p, p->new_fd, name);
    return r;
}

int pool_keep_copy(struct pool *p, const char *box, const char *sandbox, const struct pool_chain *below)
{
    if (!pool_is_name(box) || !pool_is_name(sandbox))
        return -EINVAL;
    return p->features.cheap_clones ? keep_clone(p, pool_shard(p, box), box, sandbox, below) : -EOPNOTSUPP;
}

int pool_keep_layer(struct pool *p, const char *layer, const char *sandbox)
{
    struct pool_chain below;
    int r = pool_is_name(sandbox) ? pool_chain_read(p, layer, &below) : -EINVAL;
    if (r < 0)
        return r;
    memmove(below.names[0], below.names[1], --below.n * sizeof(below.names[0]));
    return keep_clone(p, p->layers_fd, layer, sandbox, &below);
}

int pool_kept_chain(struct pool *p, const char *sandbox, struct pool_chain *ret_below)
{
    AUTO_CLOSE int entry = -1;
    int r = pool_is_name(sandbox) ? pool_entry_open(p->kept_fd, sandbox, &entry) : -EINVAL;
    return r ? r : pool_below_read(entry, POOL_CHAIN_MAX, ret_below);
}

int pool_kept_drop(struct pool *p, const char *sandbox)
{
    return pool_is_name(sandbox) ? pool_to_trash(p, p->kept_fd, sandbox) : -EINVAL;
}

int pool_kept_each(struct pool *p, void (*fn)(void *ctx, const char *sandbox), void *ctx)
{
    return pool_each_named(p->kept_fd, pool_is_name, fn, ctx);
}
