/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "kernel/pool/btrfs.h"
#include "kernel/pool/pool_internal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static int job_entry(const char *job, char ret_name[static POOL_ENTRY_MAX])
{
    if (!pool_is_name(job))
        return -EINVAL;
    (void)snprintf(ret_name, POOL_ENTRY_MAX, POOL_JOB_PREFIX "%s", job);
    return 0;
}

bool pool_layer_exists(const struct pool *p, const char *layer)
{
    return faccessat(p->layers_fd, layer, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int pool_layer_begin(struct pool *p, const char *job, int *ret_fd)
{
    char name[POOL_ENTRY_MAX];
    AUTO_CLOSE int entry = -1, fd = -1;
    int r = job_entry(job, name);
    r = r ? r : pool_numbered_layer(p, p->new_fd, name);
    if (r < 0)
        return r;
    r = pool_step(p, "pool.made");
    r = r ? r : pool_entry_open(p->new_fd, name, &entry);
    if (r == 0 && ((mkdirat(entry, "u", 0755) < 0 && errno != EEXIST) || fchmodat(entry, "u", 0755, 0) < 0))
        r = -errno;
    r = r ? r : pool_entry_open(entry, "u", &fd);
    if (r < 0)
        pool_discard(p, p->new_fd, name);
    else
        *ret_fd = TAKE_FD(fd);
    return r;
}

int pool_layer_commit(struct pool *p, const char *job, const char *layer, const struct pool_chain *below)
{
    char name[POOL_ENTRY_MAX];
    AUTO_CLOSE int entry = -1;
    int r = job_entry(job, name);
    if (r < 0 || !pool_is_layer(layer))
        return -EINVAL;
    r = pool_chain_check(p, below, POOL_CHAIN_MAX - 1);
    r = r ? r : pool_entry_open(p->new_fd, name, &entry);
    if (r == 0 && pool_layer_exists(p, layer))
        return pool_to_trash(p, p->new_fd, name);
    r = r ? r : pool_below_write(entry, below);
    r = r ? r : pool_step(p, "pool.noted");
    r = r ? r : p->ops->settle(p, p->new_fd, name); /* only then its size is known */
    r = r ? r : pool_note_bytes(p, entry, entry, 0);
    r = r ? r : p->ops->settle(p, p->new_fd, name);
    r = r ? r : pool_put(p, p->new_fd, name, p->layers_fd, layer, POOL_PUT_NEW);
    return r == -EEXIST ? pool_to_trash(p, p->new_fd, name) : r;
}

int pool_layer_abandon(struct pool *p, const char *job)
{
    char name[POOL_ENTRY_MAX];
    int r = job_entry(job, name);
    return r ? r : pool_to_trash(p, p->new_fd, name);
}

/* What must be beside its files is there already: the clone is the layer, and on disk, at once. */
static int clone_whole(struct pool *p, int from_at, const char *from, int source, const char *layer)
{
    AUTO_CLOSE int entry = -1;
    int r = p->ops->clone(p, from_at, from, p->layers_fd, layer, false);
    if (r < 0)
        return r;
    r = pool_step(p, "pool.cloned");
    r = r ? r : pool_entry_open(p->layers_fd, layer, &entry);
    r = r ? r : pool_entry_strip(entry, "below");
    r = r ? r : pool_step(p, "pool.stripped");
    if (r < 0) {
        pool_discard(p, p->layers_fd, layer);
        return r;
    }
    int unknown UNUSED = pool_note_bytes(p, entry, source, 0);
    return 0;
}

static int clone_as(struct pool *p, int from_at, const char *from, const char *layer, const struct pool_chain *below)
{
    char name[POOL_ENTRY_MAX];
    AUTO_CLOSE int source = -1, entry = -1;
    if (!pool_is_name(from) || !pool_is_layer(layer))
        return -EINVAL;
    if (pool_layer_exists(p, layer))
        return -EEXIST;
    pool_unique(layer, name);
    int r = pool_chain_check(p, below, POOL_CHAIN_MAX - 1);
    r = r ? r : pool_entry_open(from_at, from, &source);
    if (r < 0)
        return r;
    if (p->ops->clones_settled && pool_below_is(source, below))
        return clone_whole(p, from_at, from, source, layer);
    r = p->ops->clone(p, from_at, from, p->new_fd, name, false);
    r = r ? r : pool_step(p, "pool.cloned");
    r = r ? r : pool_entry_open(p->new_fd, name, &entry);
    r = r ? r : pool_entry_strip(entry, NULL);
    r = r ? r : pool_step(p, "pool.stripped");
    r = r ? r : pool_note_bytes(p, entry, source, p->copied);
    r = r ? r : pool_below_write(entry, below);
    r = r ? r : pool_step(p, "pool.noted");
    r = r ? r : p->ops->settle(p, p->new_fd, name);
    r = r ? r : pool_put(p, p->new_fd, name, p->layers_fd, layer, POOL_PUT_NEW);
    if (r < 0)
        pool_discard(p, p->new_fd, name);
    return r;
}

int pool_layer_of_box(struct pool *p, const char *box, const char *layer, const struct pool_chain *below)
{
    return clone_as(p, pool_shard(p, box), box, layer, below);
}

int pool_layer_of_kept(struct pool *p, const char *sandbox, const char *layer)
{
    struct pool_chain below;
    int r = pool_kept_chain(p, sandbox, &below);
    return r ? r : clone_as(p, p->kept_fd, sandbox, layer, &below);
}

/*
 * A clone commits a transaction: what changes afterwards does so in a later one. Bytes that are written into a file
 * that is there do so when they go to disk; until then they are promised room.
 */
bool pool_box_changed(struct pool *p, const char *box, const char *layer)
{
    AUTO_CLOSE int box_fd = -1, layer_fd = -1;
    uint64_t made, changed, ignored, promised;
    return p->features.kind != POOL_BTRFS || !pool_is_layer(layer) ||
           pool_entry_open(pool_shard(p, box), box, &box_fd) < 0 ||
           pool_entry_open(p->layers_fd, layer, &layer_fd) < 0 ||
           btrfs_quota_promised(box_fd, p->figures_fd, &promised) < 0 || promised ||
           btrfs_subvolume_transactions(layer_fd, &made, &ignored) < 0 ||
           btrfs_subvolume_transactions(box_fd, &ignored, &changed) < 0 || changed > made;
}

int pool_layer_drop(struct pool *p, const char *layer)
{
    int r = pool_is_layer(layer) ? pool_to_trash(p, p->layers_fd, layer) : -EINVAL;
    int ignored UNUSED =
        r ? 0 : pool_memory_drop(p, layer); /* mostly there is none; else the next pool_memory_tidy() finds it */
    return r;
}

int pool_layer_each(struct pool *p, void (*fn)(void *ctx, const char *layer), void *ctx)
{
    return pool_each_named(p->layers_fd, pool_is_layer, fn, ctx);
}

uint64_t pool_layer_bytes(struct pool *p, const char *layer)
{
    AUTO_CLOSE int entry = -1;
    uint64_t bytes = 0;
    int r = pool_is_layer(layer) ? pool_entry_open(p->layers_fd, layer, &entry) : -EINVAL;
    r = r ? r : pool_note_u64(entry, "bytes", &bytes);
    return r < 0 ? 0 : bytes + pool_memory_bytes(p, layer);
}
