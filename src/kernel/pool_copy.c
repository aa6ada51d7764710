/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds copy and reflink: entries are plain directories; a clone walks the tree. Sizes are neither known nor bounded. */
#include "base/fd.h"
#include "kernel/pool_internal.h"
#include "kernel/tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static int make(struct pool *p UNUSED, int at, const char *name)
{
    return mkdirat(at, name, 0755) < 0 ? -errno : 0;
}

static int clone_with(bool share, int from_at, const char *from, int to_at, const char *to)
{
    AUTO_CLOSE int source = -1, target = -1;
    int r = pool_entry_open(from_at, from, &source);
    r = r ? r : mkdirat(to_at, to, 0755) < 0 ? -errno : 0;
    if (r < 0)
        return r;
    r = pool_entry_open(to_at, to, &target);
    return r ? r : tree_clone(source, "u", target, "u", share);
}

static int clone_copy(struct pool *p UNUSED, int from_at, const char *from, int to_at, const char *to)
{
    return clone_with(false, from_at, from, to_at, to);
}

static int clone_reflink(struct pool *p UNUSED, int from_at, const char *from, int to_at, const char *to)
{
    return clone_with(true, from_at, from, to_at, to);
}

static int remove_entry(struct pool *p UNUSED, int at, const char *name)
{
    return tree_remove(at, name);
}

const struct pool_ops pool_copy_ops = {"copy", false, make, clone_copy, remove_entry, NULL, NULL};
const struct pool_ops pool_reflink_ops = {"reflink", false, make, clone_reflink, remove_entry, NULL, NULL};
