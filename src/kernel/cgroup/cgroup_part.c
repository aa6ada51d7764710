/* SPDX-License-Identifier: Apache-2.0 */
/* Version 1 has a part in the hierarchy that freezes alone. In version 2 it gets no controllers. */
#include "kernel/cgroup/cgroup_internal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define PART "/still"

struct cgroup_part {
    char name[CGROUP_NAME_MAX + sizeof(PART)];
};

static struct cgroup_part cgroup_part_of(const char *name)
{
    struct cgroup_part p;
    (void)snprintf(p.name, sizeof(p.name), "%.*s" PART, CGROUP_NAME_MAX - 1, name);
    return p;
}

int cgroup_part_make(struct cgroup_tree *t, const char *name)
{
    if (!t->features.freeze)
        return -EOPNOTSUPP;
    return mkdirat(t->freezer_fd, cgroup_part_of(name).name, 0755) < 0 && errno != EEXIST ? -errno : 0;
}

bool cgroup_part_is_there(struct cgroup_tree *t, const char *name)
{
    return t->features.freeze && faccessat(t->freezer_fd, cgroup_part_of(name).name, F_OK, 0) == 0;
}

int cgroup_part_remove(struct cgroup_tree *t, const char *name)
{
    if (!t->features.freeze || unlinkat(t->freezer_fd, cgroup_part_of(name).name, AT_REMOVEDIR) == 0)
        return 0;
    return errno == ENOENT ? 0 : -errno;
}

int cgroup_part_processes(struct cgroup_tree *t, const char *name, bool in_part, struct buf *ret_pids)
{
    return cgroup_read_file(t->freezer_fd, in_part ? cgroup_part_of(name).name : name, "cgroup.procs", ret_pids);
}

int cgroup_part_move(struct cgroup_tree *t, const char *name, pid_t pid, bool into)
{
    return cgroup_write_u64(t->freezer_fd, into ? cgroup_part_of(name).name : name, "cgroup.procs", (uint64_t)pid);
}

int cgroup_part_freeze(struct cgroup_tree *t, const char *name, bool frozen)
{
    return cgroup_freeze(t, cgroup_part_of(name).name, frozen);
}

int cgroup_part_is_frozen(struct cgroup_tree *t, const char *name)
{
    return cgroup_is_frozen(t, cgroup_part_of(name).name);
}
