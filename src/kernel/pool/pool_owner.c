/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owners, on btrfs with simple quotas (Linux 6.7). These charge bytes to the subvolume that wrote them, and go on when
 * it is deleted, as long as another one has them by a clone. So an owner is a group of subvolumes: what one in it wrote
 * counts there to the end, and a limit of the group is the kernel's to enforce.
 *
 * A clone (a layer, a copy that is kept) writes nothing that counts; it is in no group until somebody writes to it. The
 * groups are on the disk like all else, so there is nothing to restore after a crash. What died between its making and
 * its pool_own() gets that when its owner is told of again.
 */
#include "base/fd.h"
#include "kernel/pool/btrfs.h"
#include "kernel/pool/pool_internal.h"

#include <sys/stat.h>

/* The pool may lie in a file system with groups of somebody else's: "C", and something of the pool's own before it. */
static int group_of(const struct pool *p, uint64_t owner, uint64_t *ret_group)
{
    struct stat st;
    if (owner >> POOL_OWNER_BITS)
        return -ERANGE;
    if (fstat(p->fd, &st) < 0)
        return -errno;
    *ret_group = (uint64_t)'C' << 40 | (st.st_ino & 0xffff) << POOL_OWNER_BITS | owner;
    return 0;
}

int pool_own_entry(struct pool *p, int entry_fd, uint64_t owner)
{
    uint64_t group = 0;
    int r = owner && p->features.owners ? group_of(p, owner, &group) : 0;
    return r || !group ? r : btrfs_group_join(p->fd, entry_fd, group);
}

int pool_own(struct pool *p, enum pool_entry what, const char *name, uint64_t owner)
{
    const int ats[] = {[POOL_BOX] = pool_shard(p, name),
                       [POOL_KEPT] = p->kept_fd,
                       [POOL_VOLUME] = p->volumes_fd,
                       [POOL_JOB] = p->new_fd};
    char entry[POOL_ENTRY_MAX];
    AUTO_CLOSE int fd = -1;
    if (!owner || !p->features.owners)
        return 0;
    if (!pool_is_name(name))
        return -EINVAL;
    (void)snprintf(entry, sizeof(entry), "%s%s", what == POOL_JOB ? POOL_JOB_PREFIX : "", name);
    int r = pool_entry_open(ats[what], entry, &fd);
    return r ? r : pool_own_entry(p, fd, owner);
}

int pool_owner_limit(struct pool *p, uint64_t owner, uint64_t limit_bytes)
{
    uint64_t group = 0;
    int r = p->features.owners ? group_of(p, owner, &group) : 0;
    return r || !group ? r : btrfs_group_limit(p->fd, group, limit_bytes);
}

int pool_owner_usage(struct pool *p, uint64_t owner, uint64_t *ret_bytes)
{
    uint64_t group = 0;
    int r = p->features.owners ? group_of(p, owner, &group) : -EOPNOTSUPP;
    return r ? r : btrfs_group_usage(p->fd, p->figures_fd, group, ret_bytes);
}

int pool_owners_tidy(struct pool *p)
{
    return p->is_backed && p->features.owners ? btrfs_quota_tidy(p->fd, p->figures_fd, &p->tidied) : 0;
}
