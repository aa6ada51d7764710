/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds copy and reflink: entries are plain directories; a clone walks the tree, and counts what it takes. Nothing bounds sizes. */
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

static int clone(struct pool *p, int from_at, const char *from, int to_at, const char *to)
{
    AUTO_CLOSE int source = -1, target = -1;
    int r = pool_entry_open(from_at, from, &source);
    r = r ? r : make(p, to_at, to);
    if (r < 0)
        return r;
    r = pool_entry_open(to_at, to, &target);
    return r ? r : tree_clone(source, "u", target, "u", p->features.kind == POOL_REFLINK, &p->copied);
}

static int settle(struct pool *p, int at UNUSED, const char *name UNUSED)
{
    return syncfs(p->fd) < 0 ? -errno : 0;
}

static int remove_entry(struct pool *p UNUSED, int at, const char *name)
{
    return tree_remove(at, name);
}

const struct pool_ops pool_copy_ops = {"copy", false, false, make, clone, settle, remove_entry, NULL, NULL};
const struct pool_ops pool_reflink_ops = {"reflink", false, false, make, clone, settle, remove_entry, NULL, NULL};
