/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kind btrfs: each entry is a subvolume. A snapshot writes out what its source has not on disk yet and commits, so a
 * clone is on disk, with the small files that were put into its source before. Renames of subvolumes are those of
 * directories.
 */
#include "base/fd.h"
#include "kernel/pool/btrfs.h"
#include "kernel/pool/pool_internal.h"
#include "kernel/tree/tree.h"

static int pool_btrfs_clone(struct pool *p UNUSED, int from_at, const char *from, int to_at, const char *to,
                            bool bounded UNUSED)
{
    AUTO_CLOSE int source = -1;
    int r = pool_entry_open(from_at, from, &source);
    return r ? r : btrfs_snapshot(source, to_at, to);
}

static int pool_btrfs_make(struct pool *p UNUSED, int at, const char *name, bool bounded UNUSED)
{
    return btrfs_subvolume_make(at, name);
}

static int pool_btrfs_remove_entry(struct pool *p UNUSED, int at, const char *name)
{
    int r = btrfs_subvolume_remove(at, name);
    return r == -EINVAL || r == -ENOTDIR ? tree_remove(at, name) : r;
}

/* Of this subvolume alone: a sync of the file system would write what all others have, too. */
static int pool_btrfs_settle(struct pool *p, int at, const char *name)
{
    char unique[POOL_ENTRY_MAX];
    pool_unique(name, unique);
    int r = pool_btrfs_clone(p, at, name, p->trash_fd, unique, false);
    if (r == 0) {
        int ignored UNUSED = btrfs_subvolume_remove(p->trash_fd, unique);
    }
    return r;
}

static int pool_btrfs_limit(struct pool *p, int entry_fd, uint64_t bytes)
{
    return btrfs_quota_limit(p->fd, entry_fd, bytes);
}

static int pool_btrfs_usage(struct pool *p, int entry_fd, uint64_t *ret_bytes)
{
    return btrfs_quota_usage(entry_fd, p->figures_fd, ret_bytes);
}

const struct pool_ops pool_btrfs_ops = {"btrfs",
                                        true,
                                        true,
                                        pool_btrfs_make,
                                        pool_btrfs_clone,
                                        pool_btrfs_settle,
                                        pool_btrfs_remove_entry,
                                        pool_btrfs_limit,
                                        pool_btrfs_usage};
