/* SPDX-License-Identifier: Apache-2.0 */
/* Version 2: one hierarchy. Where a hybrid machine mounts it without the controllers we need, version 1 is used
 * instead. */
#include "base/fd.h"
#include "kernel/cgroup/cgroup_internal.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#define TOP "/sys/fs/cgroup"

enum { V2_PERIOD_USEC = 100000, V2_QUOTA_MIN_USEC = 1000, PROCS_MAX = 1 << 20, VACATE_ROUNDS = 100 };

/* memory.max holds for buffers of sockets, too (Documentation/admin-guide/cgroup-v2.rst, "Memory": what is tracked, and
 * "sock" of memory.stat). */
static int cgroup_v2_limit(struct cgroup_tree *t, const char *name, const struct cgroup_limits *l)
{
    const int fd = t->parent_fds[0];
    int r = 0;
    if (t->features.memory) {
        r = l->memory_bytes ? cgroup_write_u64(fd, name, "memory.max", l->memory_bytes)
                            : cgroup_write(fd, name, "memory.max", "max");
        if (r == 0) {
            r = cgroup_write(fd, name, "memory.swap.max", l->memory_bytes ? "0" : "max");
            r = r == -ENOENT ? 0 : r;
        }
    }
    if (r == 0 && t->features.cpu) {
        char text[48];
        uint64_t quota = MAX((uint64_t)l->cpu_milli * (V2_PERIOD_USEC / 1000), (uint64_t)V2_QUOTA_MIN_USEC);
        (void)snprintf(text, sizeof(text), "%llu %d", (unsigned long long)quota, V2_PERIOD_USEC);
        r = cgroup_write(fd, name, "cpu.max", l->cpu_milli ? text : "max");
    }
    return r == 0 && t->features.pids ? cgroup_limit_pids(fd, name, l->pids) : r;
}

static uint32_t cgroup_v2_oom_kills(struct cgroup_tree *t, const char *name)
{
    uint64_t n = 0;
    if (t->features.memory && cgroup_read_key(t->parent_fds[0], name, "memory.events", "oom_kill", &n) < 0)
        return 0;
    return (uint32_t)n;
}

static int cgroup_v2_usage(struct cgroup_tree *t, const char *name, struct cgroup_usage *ret_usage)
{
    struct cgroup_usage u = {0};
    int fd = t->parent_fds[0];
    int r = cgroup_read_key(fd, name, "cpu.stat", "usage_usec", &u.cpu_usec);
    if (r == 0 && t->features.memory) {
        r = cgroup_read_u64(fd, name, "memory.current", &u.memory_bytes);
        r = r ? r : cgroup_read_memory(fd, name, "file", &u);
        u.oom_kills = cgroup_v2_oom_kills(t, name);
    }
    if (r == 0 && t->features.pids)
        r = cgroup_read_pids(fd, name, &u);
    if (r == 0)
        *ret_usage = u;
    return r;
}

static int cgroup_v2_freeze(struct cgroup_tree *t, const char *name, bool frozen)
{
    return cgroup_write(t->parent_fds[0], name, "cgroup.freeze", frozen ? "1" : "0");
}

static int cgroup_v2_is_frozen(struct cgroup_tree *t, const char *name)
{
    uint64_t v = 0;
    int r = cgroup_read_key(t->parent_fds[0], name, "cgroup.events", "frozen", &v);
    return r < 0 ? r : v == 1;
}

/* A group with a limit may not swap (cgroup_v2_limit()); while it stands still it may, and what is out by then
 * stays. */
static int cgroup_v2_yield_memory(struct cgroup_tree *t, const char *name, bool first)
{
    bool is_limited = cgroup_is(t->parent_fds[0], name, "memory.max", "max") == 0;
    int r = cgroup_write(t->parent_fds[0], name, "memory.swap.max", first || !is_limited ? "max" : "0");
    return r == -ENOENT ? 0 : r;
}

static int cgroup_v2_reclaim(struct cgroup_tree *t, const char *name)
{
    int fd = t->parent_fds[0];
    uint64_t bytes = 0;
    int r = cgroup_read_u64(fd, name, "memory.current", &bytes);
    r = r ? r : cgroup_write_u64(fd, name, "memory.reclaim", bytes);
    return r == -EAGAIN ? 0 : r; /* all that could be had */
}

static const struct cgroup_ops cgroup_v2_ops = {cgroup_v2_limit,  cgroup_v2_usage,     cgroup_v2_oom_kills,
                                                cgroup_v2_freeze, cgroup_v2_is_frozen, cgroup_v2_yield_memory,
                                                cgroup_v2_reclaim};

static bool is_cgroup2(const char *path)
{
    struct statfs fs;
    return statfs(path, &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC;
}

/*
 * A container sees its own group as the top of the tree, and its processes lie right in it, as those of a service lie
 * in the group that systemd gave it; such a group gives its children no memory controller (EBUSY). So they move to a
 * group beside ours, as the init of a container does it where there is one. The machine's real top has no such rule.
 */
static int vacate(int top)
{
    if (mkdirat(top, "init", 0755) < 0 && errno != EEXIST)
        return -errno;
    for (int round = 0; round < VACATE_ROUNDS; round++) { /* those that moved may have just forked */
        AUTO_BUF struct buf b = BUF_INIT(PROCS_MAX);
        int r = fd_read_file(top, "cgroup.procs", &b);
        if (r < 0)
            return r;
        if (buf_len(&b) == 0)
            return 0;
        struct str rest = buf_str(&b), pid;
        while (str_split(&rest, '\n', &pid)) {
            r = pid.n ? fd_write_existing(top, "init/cgroup.procs", pid) : 0;
            if (r < 0 && r != -ESRCH) /* gone */
                return r;
        }
    }
    return -EBUSY;
}

static int give_controller(struct cgroup_tree *t, const char *controller)
{
    const struct str text = str_of(controller);
    int r = fd_write_existing(t->mount_fds[0], "cgroup.subtree_control", text);
    if (r == -EBUSY) {
        r = vacate(t->mount_fds[0]);
        r = r ? r : fd_write_existing(t->mount_fds[0], "cgroup.subtree_control", text);
    }
    return r ? r : fd_write_existing(t->parent_fds[0], "cgroup.subtree_control", text);
}

int cgroup_v2_open_at(struct cgroup_tree *t, const char *top)
{
    static const char *const controllers[] = {"+memory", "+cpu", "+pids"};
    int r = cgroup_add_hierarchy(t, 0, top);
    if (r < 0)
        return r;
    int why = 0;
    for (size_t i = 0; i < ARRAY_SIZE(controllers); i++) {
        /* Each alone: one that is missing must not take the others along. What is really there is looked at below. */
        r = give_controller(t, controllers[i]);
        why = why ? why : r;
    }
    t->ops = &cgroup_v2_ops;
    t->features = (struct cgroup_features){
        .version = 2,
        .memory = cgroup_has(t->parent_fds[0], "memory.max"),
        .cpu = cgroup_has(t->parent_fds[0], "cpu.max"),
        .pids = cgroup_has(t->parent_fds[0], "pids.max"),
        .freeze = cgroup_has(t->parent_fds[0], "cgroup.freeze"),
        .reclaim = cgroup_has(t->parent_fds[0], "memory.reclaim"),
    };
    t->freezer_fd = t->features.freeze ? t->parent_fds[0] : -1;
    if (t->features.memory && t->features.pids)
        return 0;
    return why == -EBUSY || why == -EROFS || why == -EPERM || why == -EACCES ? why : -EOPNOTSUPP;
}

int cgroup_v2_open(struct cgroup_tree *t)
{
    static const char *const paths[] = {TOP, TOP "/unified"};
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
        if (is_cgroup2(paths[i]))
            return cgroup_v2_open_at(t, paths[i]);
    return -ENOENT;
}

/* ---- where systemd lets us ---- */

int cgroup_of_service(struct str text, struct str *ret_path)
{
    static const struct str service = {".service", 8}, v2 = {"0::", 3}, vacated = {"/init", 5};
    struct str line;
    bool is_one = str_split(&text, '\n', &line) && text.n == 0; /* each hierarchy of version 1 has a line of its own */
    if (!is_one || !str_starts(line, v2))
        return -ENOENT;
    line = str_sub(line, v2.n);
    if (str_ends(line, vacated)) /* where an earlier process of the same service has put us: vacate() */
        line.n -= vacated.n;
    if (!str_starts(line, STR("/")) || str_starts(line, STR("/../")) || !str_ends(line, service) || str_has_nul(line))
        return -ENOENT;
    *ret_path = line;
    return 0;
}

/* systemd.resource-control(5), Delegate=: set by the manager of the machine, or of a user. */
static bool is_given(const char *dir)
{
    static const char *const names[] = {"trusted.delegate", "user.delegate"};
    char value[2];
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (getxattr(dir, names[i], value, sizeof(value)) == 1 && value[0] == '1')
            return true;
    return false;
}

int cgroup_delegated(char ret_dir[static CGROUP_PATH_MAX])
{
    AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
    char dir[CGROUP_PATH_MAX];
    struct str path = STR_NULL;
    int r = fd_read_file(AT_FDCWD, "/proc/self/cgroup", &b);
    r = r ? r : cgroup_of_service(buf_str(&b), &path);
    if (r < 0 || path.n + sizeof(TOP) > sizeof(dir))
        return -ENOENT;
    (void)snprintf(dir, sizeof(dir), TOP "%.*s", STR_ARG(path));
    if (!is_cgroup2(dir) || !is_given(dir))
        return -ENOENT;
    memcpy(ret_dir, dir, sizeof(dir));
    return 0;
}
