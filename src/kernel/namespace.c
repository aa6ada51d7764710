/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/namespace.h"
#include "base/buf.h"
#include "base/child.h"
#include "base/fd.h"
#include "kernel/caps.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <net/if.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int set_effective(uid_t uid)
{
    if (setresuid((uid_t)-1, uid, (uid_t)-1) < 0)
        return -errno;
    return caps_raise_effective(); /* those that an effective id but 0 loses; the real one stays 0 */
}

pid_t namespace_fork_sibling(int *ret_pidfd)
{
    struct clone_args args = {.flags = CLONE_PIDFD | CLONE_PARENT, .pidfd = (uint64_t)(uintptr_t)ret_pidfd};
    long pid = syscall(SYS_clone3, &args, sizeof(args));
    return pid < 0 ? -errno : (pid_t)pid;
}

pid_t namespace_spawn_root(int cgroup_fd, int *ret_pidfd)
{
    struct clone_args args = {
        .flags = CLONE_PIDFD | CLONE_PARENT | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
                 (cgroup_fd >= 0 ? (uint64_t)CLONE_INTO_CGROUP : 0),
        .pidfd = (uint64_t)(uintptr_t)ret_pidfd,
        .cgroup = cgroup_fd >= 0 ? (uint64_t)cgroup_fd : 0,
    };
    long pid = syscall(SYS_clone3, &args, sizeof(args));
    return pid < 0 ? -errno : (pid_t)pid;
}

pid_t namespace_spawn(int cgroup_fd, uid_t owner, uint64_t flags, int *ret_pidfd)
{
    int pidfd = -1;
    struct clone_args args = {
        .flags = flags | CLONE_PIDFD | CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS,
        .pidfd = (uint64_t)(uintptr_t)&pidfd,
        .exit_signal =
            flags & CLONE_PARENT ? 0 : SIGCHLD, /* the signal at a sibling's end is the one that ours would be */
    };
    if (cgroup_fd >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)cgroup_fd;
    }
    long pid = set_effective(owner);
    if (pid == 0) {
        pid = syscall(SYS_clone3, &args, sizeof(args));
        if (pid == 0)
            return 0;
        pid = pid < 0 ? -errno : pid;
    }
    int back = set_effective(getuid());
    assert(back == 0);
    if (pid > 0)
        *ret_pidfd = pidfd;
    return (pid_t)pid;
}

int namespace_take_files(void)
{
    return close_range(FD_LASTING, ~0U, CLOSE_RANGE_UNSHARE) < 0 ? -errno : 0;
}

static int write_map(int proc_fd, pid_t pid, const char *file, uid_t first, uid_t base, int count)
{
    char path[48], map[48];
    (void)snprintf(path, sizeof(path), "%d/%s", (int)pid, file);
    int n = snprintf(map, sizeof(map), "%u %u %d\n", (unsigned)first, (unsigned)base, count);
    return fd_write_existing(proc_fd, path, str_n(map, (size_t)n));
}

int namespace_map_ids(int proc_fd, pid_t pid, uid_t base)
{
    int r = write_map(proc_fd, pid, "uid_map", 0, base, NAMESPACE_IDS);
    return r < 0 ? r : write_map(proc_fd, pid, "gid_map", 0, base, NAMESPACE_IDS);
}

int namespace_set_oom_score(int proc_fd, pid_t pid, int score)
{
    char path[48], text[16];
    (void)snprintf(path, sizeof(path), "%d/oom_score_adj", (int)pid);
    int n = snprintf(text, sizeof(text), "%d", score);
    int r = fd_write_existing(proc_fd, path, str_n(text, (size_t)n));
    return r == -EACCES ? 0 : r;
}

int namespace_open_user(int proc_fd, pid_t pid, int *ret_fd)
{
    char path[48];
    (void)snprintf(path, sizeof(path), "%d/ns/user", (int)pid);
    int fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

/* What id 0 of the process is here. */
static int namespace_base(int proc_fd, pid_t pid, uid_t *ret_base)
{
    AUTO_BUF struct buf text = BUF_INIT(4096);
    char path[48];
    struct str rest, word[2] = {STR_NULL, STR_NULL};
    uint64_t base;
    size_t n = 0;
    (void)snprintf(path, sizeof(path), "%d/uid_map", (int)pid);
    int r = fd_read_file(proc_fd, path, &text);
    for (rest = buf_str(&text); r == 0 && rest.n && n < ARRAY_SIZE(word);) {
        (void)str_split(&rest, ' ', &word[n]);
        n += word[n].n > 0;
    }
    if (r < 0 || !str_eqc(word[0], "0") || str_to_u64(word[1], &base) < 0 || base > UINT32_MAX)
        return r < 0 ? r : -EINVAL;
    *ret_base = (uid_t)base;
    return 0;
}

int namespace_make_user(int proc_fd, pid_t pid, uid_t uid, unsigned inside, int *ret_fd)
{
    const struct passwd *account = getpwuid(uid);
    uid_t base = 0;
    int ends[2], r = namespace_base(proc_fd, pid, &base);
    if (r < 0 || !account || !account->pw_gid)
        return r < 0 ? r : -ESRCH;
    const gid_t gid = account->pw_gid;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    pid_t child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        r = unshare(CLONE_NEWUSER) < 0 ? -errno : 0;
        (void)!write(ends[1], &r, sizeof(r));
        for (;;)
            (void)pause();
    }
    r = child < 0 ? -errno : 0;
    (void)close(ends[1]);
    if (r == 0 && read(ends[0], &r, sizeof(r)) != (ssize_t)sizeof(r))
        r = -EIO;
    (void)close(ends[0]);
    if (r == 0)
        r = write_map(proc_fd, child, "uid_map", uid, base + inside, 1);
    if (r == 0)
        r = write_map(proc_fd, child, "gid_map", gid, base + inside, 1);
    if (r == 0)
        r = namespace_open_user(proc_fd, child, ret_fd);
    child_kill(child);
    return r;
}

int namespace_become_root(void)
{
    if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        return -errno;
    return 0;
}

int namespace_network(void)
{
    if (unshare(CLONE_NEWNET) < 0)
        return -errno;
    AUTO_CLOSE int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    struct ifreq req;
    memset(&req, 0, sizeof(req));
    memcpy(req.ifr_name, "lo", 3);
    req.ifr_flags = IFF_UP | IFF_RUNNING;
    return ioctl(fd, SIOCSIFFLAGS, &req) < 0 ? -errno : 0;
}
