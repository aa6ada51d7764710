/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kinds copy and reflink: entries are plain directories; a clone walks the tree, and counts what it takes. Sizes are
 * bounded where the file system has project quotas: a box and a volume are a project each.
 */
#include "base/fd.h"
#include "kernel/pool/pool_internal.h"
#include "kernel/pool/project_quota.h"
#include "kernel/tree/tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static int pool_copy_make(struct pool *p, int at, const char *name, bool bounded)
{
    AUTO_CLOSE int entry = -1;
    if (mkdirat(at, name, 0755) < 0)
        return -errno;
    if (!bounded || !p->features.limits)
        return 0;
    int r = pool_entry_open(at, name, &entry);
    r = r ? r : project_quota_begin(entry, &p->project_cursor);
    if (r < 0)
        (void)unlinkat(at, name, AT_REMOVEDIR);
    return r;
}

static int pool_copy_clone(struct pool *p, int from_at, const char *from, int to_at, const char *to, bool bounded)
{
    AUTO_CLOSE int source = -1, target = -1;
    int r = pool_entry_open(from_at, from, &source);
    r = r ? r : pool_copy_make(p, to_at, to, bounded);
    if (r < 0)
        return r;
    const bool shares = p->features.kind == POOL_REFLINK;
    uint64_t services = 0;
    r = pool_entry_open(to_at, to, &target);
    r = r ? r : tree_clone(source, "u", target, "u", shares, &p->copied);
    if (r == 0 && faccessat(source, "services", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        r = tree_clone(source, "services", target, "services", shares, &services);
    p->copied += services;
    return r;
}

static int pool_copy_settle(struct pool *p, int at UNUSED, const char *name UNUSED)
{
    return syncfs(p->fd) < 0 ? -errno : 0;
}

static int pool_copy_remove_entry(struct pool *p UNUSED, int at, const char *name)
{
    return tree_remove(at, name);
}

static int pool_copy_limit(struct pool *p UNUSED, int entry_fd, uint64_t bytes)
{
    return project_quota_limit(entry_fd, bytes);
}

static int pool_copy_usage(struct pool *p UNUSED, int entry_fd, uint64_t *ret_bytes)
{
    return project_quota_usage(entry_fd, ret_bytes);
}

const struct pool_ops pool_copy_ops = {
    "copy",          false,          false, pool_copy_make, pool_copy_clone, pool_copy_settle, pool_copy_remove_entry,
    pool_copy_limit, pool_copy_usage};
const struct pool_ops pool_reflink_ops = {
    "reflink",       false,          false, pool_copy_make, pool_copy_clone, pool_copy_settle, pool_copy_remove_entry,
    pool_copy_limit, pool_copy_usage};
