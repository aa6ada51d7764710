/* SPDX-License-Identifier: Apache-2.0 */
/* The limits, by running into them. */
#include "base/clock.h"
#include "base/fd.h"
#include "kernel/cgroup/cgroup.h"
#include "kernel/probe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_MB = 16, TOUCH_MB = 64, PROBE_PIDS = 4, CPU_MILLI = 200, CPU_WALL_MS = 400, FROZEN_MS = 50, HELD_MB = 8 };

struct probe_group {
    struct cgroup_tree *tree;
    int version;
};

static int group_open(struct probe_group *g, const struct cgroup_limits *limits, struct probe_result *r)
{
    char name[CGROUP_NAME_MAX];
    (void)snprintf(name, sizeof(name), "cove-probe-%d", (int)getpid());
    int e = cgroup_open(name, 0, &g->tree);
    if (e < 0) {
        g->tree = NULL;
        probe_say(r, PROBE_FAILED, "no control groups with memory and pids controllers can be had: %s", strerror(-e));
        return e;
    }
    g->version = cgroup_features(g->tree)->version;
    e = cgroup_make(g->tree, "t");
    e = e ? e : cgroup_limit(g->tree, "t", limits);
    if (e < 0)
        probe_say(r, PROBE_FAILED, "control group version %d: %s", g->version, strerror(-e));
    return e;
}

static void group_close(struct probe_group *g)
{
    if (!g->tree)
        return;
    for (int i = 0; i < 200 && cgroup_remove(g->tree, "t") == -EBUSY; i++)
        (void)poll(NULL, 0, 5);
    cgroup_close(g->tree, true);
}

static int probe_join(const struct probe_group *g)
{
    return cgroup_attach(g->tree, "t", 0);
}

static int eat_memory(const void *arg)
{
    if (probe_join(arg) < 0)
        return 1;
    size_t n = (size_t)TOUCH_MB << 20;
    char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return 2;
    for (size_t i = 0; i < n; i += 4096)
        p[i] = 1;
    return 3; /* the limit did not hold */
}

void probe_cgroup_memory(const struct probe_env *env UNUSED, struct probe_result *r)
{
    struct probe_group g = {0};
    const struct cgroup_limits limits = {.memory_bytes = (uint64_t)LIMIT_MB << 20};
    if (group_open(&g, &limits, r) == 0) {
        int status = probe_in_child(eat_memory, &g);
        struct cgroup_usage u = {0};
        int e = cgroup_usage(g.tree, "t", &u);
        if (status == 256 + SIGKILL && e == 0)
            probe_say(r, PROBE_OK, "control groups v%d: %d MB in a %d MB group were killed, %u kill counted", g.version,
                      TOUCH_MB, LIMIT_MB, u.oom_kills);
        else
            probe_say(r, PROBE_FAILED, "control groups v%d: %d MB could be used in a %d MB group (status %d)",
                      g.version, TOUCH_MB, LIMIT_MB, status);
    }
    group_close(&g);
}

static int fork_on(const void *arg)
{
    int made = 0;
    if (probe_join(arg) < 0)
        return 1;
    for (int i = 0; i < 4 * PROBE_PIDS; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            (void)pause();
            _exit(0);
        }
        if (pid < 0)
            break;
        made++;
    }
    return made == PROBE_PIDS - 1 ? 0 : 2;
}

void probe_cgroup_pids(const struct probe_env *env UNUSED, struct probe_result *r)
{
    struct probe_group g = {0};
    const struct cgroup_limits limits = {.pids = PROBE_PIDS};
    if (group_open(&g, &limits, r) == 0) {
        int status = probe_in_child(fork_on, &g);
        int e = cgroup_kill(g.tree, "t");
        if (status == 0 && e == 0)
            probe_say(r, PROBE_OK,
                      "control groups v%d: fork number %d of a group of %d was refused, all of it killed at once",
                      g.version, PROBE_PIDS, PROBE_PIDS);
        else
            probe_say(r, PROBE_FAILED, "control groups v%d: the limit of processes did not hold (status %d)", g.version,
                      status);
    }
    group_close(&g);
}

static int burn(const void *arg)
{
    if (probe_join(arg) < 0)
        return 255;
    struct rusage u;
    usec_t until = clock_mono() + CPU_WALL_MS * USEC_PER_MS;
    while (clock_mono() < until)
        continue;
    (void)getrusage(RUSAGE_SELF, &u);
    uint64_t used_ms = (uint64_t)u.ru_utime.tv_sec * 1000 + (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1000;
    return (int)MIN(used_ms * 100 / CPU_WALL_MS, (uint64_t)200);
}

void probe_cgroup_cpu(const struct probe_env *env UNUSED, struct probe_result *r)
{
    struct probe_group g = {0};
    const struct cgroup_limits limits = {.cpu_milli = CPU_MILLI};
    if (group_open(&g, &limits, r) == 0) {
        int percent = probe_in_child(burn, &g);
        if (percent >= 0 && percent <= CPU_MILLI / 10 * 3)
            probe_say(r, PROBE_OK, "control groups v%d: a busy process in a group of %d %% of a CPU got %d %%",
                      g.version, CPU_MILLI / 10, percent);
        else
            probe_say(r, PROBE_DEGRADED, "control groups v%d: a busy process in a group of %d %% of a CPU got %d %%",
                      g.version, CPU_MILLI / 10, percent);
    }
    group_close(&g);
}

void probe_cgroup_freeze(const struct probe_env *env UNUSED, struct probe_result *r)
{
    struct probe_group g = {0};
    const struct cgroup_limits none = {0};
    if (group_open(&g, &none, r) == 0) {
        struct cgroup_usage before = {0}, after = {0};
        pid_t pid = fork();
        if (pid == 0) {
            if (probe_join(&g) == 0)
                for (;;)
                    continue;
            _exit(1);
        }
        (void)poll(NULL, 0, FROZEN_MS);
        int e = cgroup_freeze(g.tree, "t", true);
        (void)poll(NULL, 0, FROZEN_MS);
        e = e ? e : cgroup_usage(g.tree, "t", &before);
        (void)poll(NULL, 0, FROZEN_MS);
        e = e ? e : cgroup_usage(g.tree, "t", &after);
        uint64_t ran = after.cpu_usec - before.cpu_usec;
        (void)kill(pid, SIGKILL);
        int thawed UNUSED = cgroup_freeze(g.tree, "t", false);
        (void)waitpid(pid, NULL, 0);
        if (e == 0 && before.cpu_usec && ran == 0)
            probe_say(r, PROBE_OK, "control groups v%d: a busy process stood still for %d ms", g.version, FROZEN_MS);
        else
            probe_say(r, PROBE_DEGRADED, "control groups v%d: a frozen process ran for %llu us (%s)", g.version,
                      (unsigned long long)ran, strerror(-e));
    }
    group_close(&g);
}

/* Memory of both sorts: of a file, and of none. Says 'x' when it has it, then waits. */
NORETURN static void hold_memory(const struct probe_group *g, int file, int said)
{
    size_t n = (size_t)HELD_MB << 20;
    static char block[1 << 20];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (probe_join(g) < 0)
        _exit(1);
    for (int i = 0; i < HELD_MB; i++)
        if (write(file, block, sizeof(block)) != sizeof(block))
            _exit(2);
    volatile char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    volatile const char *f = mmap(NULL, n, PROT_READ, MAP_SHARED, file, 0);
    if (fsync(file) < 0 || p == MAP_FAILED || f == MAP_FAILED)
        _exit(3);
    for (size_t i = 0; i < n; i += 4096)
        p[i] = (char)(f[i] + 1);
    if (write(said, "x", 1) == 1)
        (void)pause();
    _exit(4);
}

/* 0 once it has all of it, and stands still. */
static int start_holding(struct probe_group *g, int file, pid_t *ret_pid)
{
    int p[2];
    char byte;
    if (pipe2(p, O_CLOEXEC) < 0)
        return -errno;
    *ret_pid = fork();
    if (*ret_pid == 0)
        hold_memory(g, file, p[1]);
    (void)fd_close(p[1]);
    bool is_there = *ret_pid > 0 && read(p[0], &byte, 1) == 1;
    (void)fd_close(p[0]);
    return is_there ? cgroup_freeze(g->tree, "t", true) : -ECHILD;
}

void probe_cgroup_reclaim(const struct probe_env *env, struct probe_result *r)
{
    struct probe_group g = {0};
    const struct cgroup_limits none = {0};
    struct cgroup_usage before = {0}, after = {0};
    struct sysinfo machine = {0};
    pid_t pid = 0;
    AUTO_CLOSE int file = open(env->scratch_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    (void)sysinfo(&machine);
    if (group_open(&g, &none, r) == 0) {
        int e = file < 0 ? -errno : start_holding(&g, file, &pid);
        (void)poll(NULL, 0, FROZEN_MS);
        e = e ? e : cgroup_yield_memory(g.tree, "t", true);
        e = e ? e : cgroup_usage(g.tree, "t", &before);
        e = e ? e : cgroup_reclaim(g.tree, "t");
        e = e ? e : cgroup_usage(g.tree, "t", &after);
        uint64_t taken = (before.memory_bytes - MIN(after.memory_bytes, before.memory_bytes)) >> 20;
        if (pid > 0) {
            (void)kill(pid, SIGKILL);
            int thawed UNUSED = cgroup_freeze(g.tree, "t", false);
            (void)waitpid(pid, NULL, 0);
        }
        const char *no_swap = machine.totalswap ? "" : "; there is no swap, so what is in no file stays in memory";
        if (e < 0)
            probe_say(r, PROBE_DEGRADED, "control groups v%d: memory of paused sandboxes can't be given to others: %s",
                      g.version, strerror(-e));
        else
            probe_say(r, taken >= HELD_MB / 2 && machine.totalswap ? PROBE_OK : PROBE_DEGRADED,
                      "control groups v%d: of a frozen process with %d MB of a file and %d MB of its own, %llu MB were"
                      " given to others%s",
                      g.version, HELD_MB, HELD_MB, (unsigned long long)taken, no_swap);
    }
    group_close(&g);
}
