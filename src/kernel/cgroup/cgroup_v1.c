/* SPDX-License-Identifier: Apache-2.0 */
/* Version 1: a hierarchy for each controller; several controllers may be mounted together (cpu,cpuacct). */
#include "base/fd.h"
#include "kernel/cgroup/cgroup_internal.h"

#include <fcntl.h>

enum controller { MEMORY, CPU, CPUACCT, V1_PIDS, FREEZER };

static const char *const names[CGROUP_DIRS_MAX] = {"memory", "cpu", "cpuacct", "pids", "freezer"};

enum { V1_PERIOD_USEC = 100000 /* the kernel's default */, V1_QUOTA_MIN_USEC = 1000 };

static bool has_option(struct str options, const char *wanted)
{
    struct str one;
    while (str_split(&options, ',', &one))
        if (str_eqc(one, wanted))
            return true;
    return false;
}

/* The kernel keeps memory <= memory with swap at every moment, so which of the two is written first depends on what was
 * there. */
static int limit_memory(int fd, const char *name, uint64_t bytes)
{
    char text[24] = "-1";
    if (bytes)
        (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
    int r = cgroup_write(fd, name, "memory.limit_in_bytes", text);
    if (r == -EINVAL) {
        r = cgroup_write(fd, name, "memory.memsw.limit_in_bytes", "-1");
        r = r ? r : cgroup_write(fd, name, "memory.limit_in_bytes", text);
    }
    if (r == 0 && bytes) {
        r = cgroup_write(fd, name, "memory.memsw.limit_in_bytes", text);
        r = r == -ENOENT ? 0 : r; /* swap accounting is off: there is no swap to give */
    }
    return r;
}

/*
 * Buffers of TCP and UDP sockets are in no other figure of version 1 (Documentation/admin-guide/cgroup-v1/memory.rst,
 * 2.7): without this limit a sandbox fills the machine with what it sends to itself and does not read. An eighth of the
 * memory limit is far more than a program needs that reads what it gets, and little beside the rest. At least 32 MiB:
 * five connections at the kernel's largest receive window (net.ipv4.tcp_rmem: 6 MiB). At most 128 MiB: net.ipv4.tcp_mem
 * is one for the machine, and a few sandboxes would fill it.
 */
static uint64_t socket_bytes(uint64_t memory_bytes)
{
    const uint64_t least = 32 << 20, most = 128 << 20;
    return MIN(MAX(memory_bytes / 8, least), most);
}

/* -ENOENT, -EOPNOTSUPP: a kernel without it. */
static int limit_sockets(int fd, const char *name, uint64_t memory_bytes)
{
    const char *file = "memory.kmem.tcp.limit_in_bytes";
    int r = memory_bytes ? cgroup_write_u64(fd, name, file, socket_bytes(memory_bytes))
                         : cgroup_write(fd, name, file, "-1");
    return r == -ENOENT || r == -EOPNOTSUPP ? 0 : r;
}

static int cgroup_v1_limit(struct cgroup_tree *t, const char *name, const struct cgroup_limits *l)
{
    const int memory = t->parent_fds[MEMORY], cpu = t->parent_fds[CPU], pids = t->parent_fds[V1_PIDS];
    int r = 0;
    if (t->features.memory)
        r = limit_memory(memory, name, l->memory_bytes);
    if (r == 0 && t->features.memory)
        r = limit_sockets(memory, name, l->serves_many ? 0 : l->memory_bytes);
    if (r == 0 && t->features.cpu) {
        uint64_t quota = MAX((uint64_t)l->cpu_milli * (V1_PERIOD_USEC / 1000), (uint64_t)V1_QUOTA_MIN_USEC);
        r = l->cpu_milli ? cgroup_write_u64(cpu, name, "cpu.cfs_quota_us", quota)
                         : cgroup_write(cpu, name, "cpu.cfs_quota_us", "-1");
    }
    return r == 0 && t->features.pids ? cgroup_limit_pids(pids, name, l->pids) : r;
}

static uint32_t cgroup_v1_oom_kills(struct cgroup_tree *t, const char *name)
{
    uint64_t n = 0;
    if (t->features.memory && cgroup_read_key(t->parent_fds[MEMORY], name, "memory.oom_control", "oom_kill", &n) < 0)
        return 0;
    return (uint32_t)n;
}

static int cgroup_v1_usage(struct cgroup_tree *t, const char *name, struct cgroup_usage *ret_usage)
{
    struct cgroup_usage u = {0};
    uint64_t v = 0;
    int r = 0;
    if (t->parent_fds[CPUACCT] >= 0) {
        r = cgroup_read_u64(t->parent_fds[CPUACCT], name, "cpuacct.usage", &v);
        u.cpu_usec = v / 1000;
    }
    if (r == 0 && t->features.memory) {
        r = cgroup_read_u64(t->parent_fds[MEMORY], name, "memory.usage_in_bytes", &u.memory_bytes);
        r = r ? r : cgroup_read_memory(t->parent_fds[MEMORY], name, "cache", &u);
        if (cgroup_read_u64(t->parent_fds[MEMORY], name, "memory.kmem.tcp.usage_in_bytes", &v) == 0)
            u.socket_bytes = v;
        u.oom_kills = cgroup_v1_oom_kills(t, name);
    }
    if (r == 0 && t->features.pids)
        r = cgroup_read_pids(t->parent_fds[V1_PIDS], name, &u);
    if (r == 0)
        *ret_usage = u;
    return r;
}

static int cgroup_v1_freeze(struct cgroup_tree *t, const char *name, bool frozen)
{
    return cgroup_write(t->parent_fds[FREEZER], name, "freezer.state", frozen ? "FROZEN" : "THAWED");
}

/* Reading it is what makes the kernel look whether all have stopped. */
static int cgroup_v1_is_frozen(struct cgroup_tree *t, const char *name)
{
    return cgroup_is(t->parent_fds[FREEZER], name, "freezer.state", "FROZEN");
}

static int cgroup_v1_yield_memory(struct cgroup_tree *t, const char *name, bool first)
{
    int r = cgroup_write(t->parent_fds[MEMORY], name, "memory.soft_limit_in_bytes", first ? "0" : "-1");
    return r == -ENOENT || r == -EOPNOTSUPP ? 0 : r; /* on its way out of the kernel */
}

static int cgroup_v1_reclaim(struct cgroup_tree *t, const char *name)
{
    return cgroup_write(t->parent_fds[MEMORY], name, "memory.force_empty", "0");
}

static const struct cgroup_ops cgroup_v1_ops = {cgroup_v1_limit,  cgroup_v1_usage,     cgroup_v1_oom_kills,
                                                cgroup_v1_freeze, cgroup_v1_is_frozen, cgroup_v1_yield_memory,
                                                cgroup_v1_reclaim};

int cgroup_v1_open(struct cgroup_tree *t)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    int r = fd_read_file(AT_FDCWD, "/proc/self/mounts", &b);
    if (r < 0)
        return r;
    struct str rest = buf_str(&b), line;
    while (r == 0 && str_split(&rest, '\n', &line)) {
        struct str source, dir, type, options;
        if (!str_split(&line, ' ', &source) || !str_split(&line, ' ', &dir) || !str_split(&line, ' ', &type) ||
            !str_split(&line, ' ', &options) || !str_eqc(type, "cgroup"))
            continue;
        for (size_t i = 0; i < CGROUP_DIRS_MAX && r == 0; i++) {
            char path[256];
            if (t->parent_fds[i] >= 0 || !has_option(options, names[i]) || dir.n >= sizeof(path))
                continue;
            memcpy(path, dir.p, dir.n);
            path[dir.n] = 0;
            r = cgroup_add_hierarchy(t, i, path);
        }
    }
    if (r < 0)
        return r;
    if (t->n == 0)
        return -ENOENT;
    t->ops = &cgroup_v1_ops;
    t->features = (struct cgroup_features){
        .version = 1,
        .memory = t->parent_fds[MEMORY] >= 0 && cgroup_has(t->parent_fds[MEMORY], "memory.limit_in_bytes"),
        .cpu = t->parent_fds[CPU] >= 0 && cgroup_has(t->parent_fds[CPU], "cpu.cfs_quota_us"),
        .pids = t->parent_fds[V1_PIDS] >= 0 && cgroup_has(t->parent_fds[V1_PIDS], "pids.max"),
        .freeze = t->parent_fds[FREEZER] >= 0 && cgroup_has(t->parent_fds[FREEZER], "freezer.state"),
        .reclaim = t->parent_fds[MEMORY] >= 0 && cgroup_has(t->parent_fds[MEMORY], "memory.force_empty"),
    };
    t->freezer_fd = t->features.freeze ? t->parent_fds[FREEZER] : -1;
    return t->features.memory && t->features.pids ? 0 : -EOPNOTSUPP;
}
