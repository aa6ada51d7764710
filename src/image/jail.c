/* SPDX-License-Identifier: Apache-2.0 */
#include "image/jail.h"
#include "base/fd.h"
#include "kernel/caps.h"
#include "kernel/mount.h"
#include "kernel/namespace.h"
#include "kernel/seccomp.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FILES_FETCH = 64, FILES_UNPACK = 2048 };
/* zstd's widest window takes fetch to 190 MiB, a million entries take unpack to 160. */
#define MEMORY_BYTES (UINT64_C(512) << 20)

static const uint64_t plain = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;

static int jail_limit(struct err *err, uint64_t files, uint64_t file_bytes)
{
    const struct {
        __rlimit_resource_t resource;
        rlim_t most;
    } limits[] = {
        {RLIMIT_NOFILE, files},    {RLIMIT_FSIZE, file_bytes}, {RLIMIT_CORE, 0}, {RLIMIT_NPROC, 0}, {RLIMIT_MEMLOCK, 0},
#ifndef __SANITIZE_ADDRESS__
        {RLIMIT_AS, MEMORY_BYTES},
#endif
    };
    for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
        struct rlimit r;
        if (getrlimit(limits[i].resource, &r) < 0)
            return err_errno(err, errno, "read a limit");
        r.rlim_cur = r.rlim_max = MIN(r.rlim_max, limits[i].most);
        if (setrlimit(limits[i].resource, &r) < 0)
            return err_errno(err, errno, "set a limit");
    }
    return 0;
}

/* Makes a mount the root: on top of the old one, which goes. */
static int jail_enter(int mount_fd)
{
    int r = mount_attach(mount_fd, AT_FDCWD, "/");
    return r < 0 ? r : mount_pivot(mount_fd);
}

static int close_up(struct err *err)
{
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_errno(err, errno, "give up gaining privileges");
    return 0;
}

/* ---- fetch ---- */

static int enter_nothing(void)
{
    static const char *const options[] = {"mode", "0555", "size", "4k", "nr_inodes", "1", NULL};
    AUTO_CLOSE int fd = -1;
    int r = mount_unshare();
    if (r == 0 && unshare(CLONE_NEWIPC | CLONE_NEWUTS) < 0)
        r = -errno;
    if (r == 0)
        r = mount_new("tmpfs", options, plain | MOUNT_ATTR_RDONLY, &fd);
    return r < 0 ? r : jail_enter(fd);
}

int jail_fetch(uid_t uid, pid_t parent, struct err *err)
{
    int r = enter_nothing();
    if (r < 0)
        return err_errno(err, r, "enter an empty file system");
    if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0)
        return err_errno(err, errno, "leave all groups");
    if (jail_limit(err, FILES_FETCH, RLIM_INFINITY) < 0)
        return -1;
    r = caps_keep_only(0, uid);
    if (r < 0)
        return err_errno(err, r, "become an unprivileged user");
    if (close_up(err) < 0)
        return -1;
    /* After the last change of ids, which would clear it. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent)
        return err_set(err, ERR_CANCELED, "the parent is gone");
    r = seccomp_load(SECCOMP_FETCH);
    return r < 0 ? err_errno(err, r, "load the filter on system calls") : 0;
}

/* ---- unpack ---- */

int jail_door_open(struct jail_door *ret_door, struct err *err)
{
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
        return err_errno(err, errno, "make a socket pair");
    *ret_door = (struct jail_door){.ours = fds[0], .theirs = fds[1]};
    return 0;
}

pid_t jail_spawn_unpack(const struct jail_door *door, uid_t ids_base, int *ret_pidfd, struct err *err)
{
    pid_t pid = namespace_spawn(-1, ids_base, 0, ret_pidfd);
    if (pid < 0)
        return err_errno(err, (int)pid, "make the namespaces of the process that unpacks");
    if (pid == 0)
        (void)fd_close(door->ours);
    return pid;
}

int jail_admit(const struct jail_door *door, pid_t child, uid_t ids_base, int root_fd, struct err *err)
{
    AUTO_CLOSE int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC), userns = -1, mount = -1;
    if (proc < 0)
        return err_errno(err, errno, "open /proc");
    int r = namespace_map_ids(proc, child, ids_base);
    if (r == 0)
        r = namespace_open_user(proc, child, &userns);
    if (r == 0)
        r = mount_clone(root_fd, "", &mount);
    if (r == 0)
        r = mount_set(mount, plain, userns);
    if (r < 0)
        return err_errno(err, r, "map the ids of the layer's directory");
    r = fd_send(door->ours, "m", 1, &mount, 1);
    return r < 0 ? err_errno(err, r, "admit the process that unpacks") : 0;
}

int jail_unpack(const struct jail_door *door, uint64_t max_bytes, int *ret_root, struct err *err)
{
    const uint64_t caps =
        1ULL << CAP_CHOWN | 1ULL << CAP_DAC_OVERRIDE | 1ULL << CAP_FOWNER | 1ULL << CAP_FSETID | 1ULL << CAP_SETFCAP;
    AUTO_CLOSE int mount = -1;
    size_t n_fds = 0;
    char message;
    if (fd_recv(door->theirs, &message, 1, &mount, 1, &n_fds) != 1 || n_fds != 1)
        return err_set(err, ERR_CANCELED, "the parent is gone");
    int r = namespace_become_root();
    if (r == 0 && unshare(CLONE_NEWNET) < 0)
        r = -errno;
    if (r == 0)
        r = jail_enter(mount);
    if (r < 0)
        return err_errno(err, r, "enter the layer's directory");
    if (jail_limit(err, FILES_UNPACK, max_bytes) < 0)
        return -1;
    r = caps_keep_only(caps, 0);
    if (r < 0)
        return err_errno(err, r, "give up capabilities");
    if (close_up(err) < 0)
        return -1;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || recv(door->theirs, &message, 1, MSG_DONTWAIT) == 0)
        return err_set(err, ERR_CANCELED, "the parent is gone");
    int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return err_errno(err, errno, "open the layer's directory");
    r = seccomp_load(SECCOMP_UNPACK);
    if (r < 0) {
        (void)fd_close(root);
        return err_errno(err, r, "load the filter on system calls");
    }
    *ret_root = root;
    return 0;
}
