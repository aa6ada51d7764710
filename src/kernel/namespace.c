/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/namespace.h"
#include "base/fd.h"
#include "kernel/caps.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
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

pid_t namespace_spawn(int cgroup_fd, uid_t owner, bool is_sibling, int *ret_pidfd)
{
    int pidfd = -1;
    struct clone_args args = {
        .flags = CLONE_PIDFD | CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS,
        .pidfd = (uint64_t)(uintptr_t)&pidfd,
        .exit_signal = SIGCHLD,
    };
    if (is_sibling) { /* the signal at its end is the one that ours would be */
        args.flags |= CLONE_PARENT;
        args.exit_signal = 0;
    }
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

static int write_map(int proc_fd, pid_t pid, const char *file, uid_t base)
{
    char path[48], map[48];
    (void)snprintf(path, sizeof(path), "%d/%s", (int)pid, file);
    int n = snprintf(map, sizeof(map), "0 %u %d\n", (unsigned)base, NAMESPACE_IDS);
    return fd_write_existing(proc_fd, path, str_n(map, (size_t)n));
}

int namespace_map_ids(int proc_fd, pid_t pid, uid_t base)
{
    int r = write_map(proc_fd, pid, "uid_map", base);
    return r < 0 ? r : write_map(proc_fd, pid, "gid_map", base);
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
