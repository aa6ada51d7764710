/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A volume into a container that runs. The path is the sandbox's, and hostile: it is walked by a child of coved that
 * has entered the sandbox's mount namespace, from the root there, over no link at all. The child opens directories and
 * nothing else, so nothing in there can make it wait; it has a few seconds all the same.
 */
#include "tier/container_mount.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "kernel/mount.h"
#include "kernel/namespace.h"
#include "kernel/pool/pool.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CONTAINER_MOUNT_USER = 1000 }; /* inside: "user" of the base template */

static int container_mount_below(int dir, const char *path, int *ret_fd)
{
    const struct open_how how = {
        .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    *ret_fd = (int)syscall(SYS_openat2, dir, *path ? path : ".", &how, sizeof(how));
    return *ret_fd < 0 ? -errno : 0;
}

static const char *container_mount_allowed(const struct tier_host *host, const char *path)
{
    for (size_t i = 0; i < host->n_host_paths; i++) {
        if (path_is_below(str_of(path), str_of(host->host_paths[i])))
            return host->host_paths[i];
    }
    return NULL;
}

static int container_mount_of_host(const struct tier_host *host, const struct tier_mount *m, int *ret_fd)
{
    const char *path = m->source, *top = container_mount_allowed(host, path);
    AUTO_CLOSE int at = -1;
    struct stat st;
    if (!path || !top)
        return -EACCES;
    if (setns(m->fds[TIER_MOUNT_HOST_NS], CLONE_NEWNS) < 0)
        return -errno;
    int r = container_mount_below(m->fds[TIER_MOUNT_HOST_ROOT], top[1] ? top + 1 : ".", &at);
    path += strlen(top);
    r = r ? r : container_mount_below(at, *path == '/' ? path + 1 : path, ret_fd);
    if (r == 0 && m->uid != UINT32_MAX && (fstat(*ret_fd, &st) < 0 || st.st_uid != m->uid))
        r = -EPERM;
    return r;
}

/* A detached mount of the volume for this sandbox. The pool itself is mounted noexec. */
static int container_mount_clone(const struct tier_host *host, const struct tier_mount *m, int *ret_fd)
{
    AUTO_CLOSE int whole = -1, dir = -1, users = -1, fd = -1;
    int r = *m->volume ? pool_volume_open(host->pool, m->volume, &whole) : container_mount_of_host(host, m, &dir);
    if (r == 0 && dir < 0)
        r = container_mount_below(whole, m->source, &dir);
    /* With a uid, among the host's files by now: its accounts are there. */
    r = r                      ? r
        : m->uid == UINT32_MAX ? namespace_open_user(host->proc_fd, m->pid, &users)
                               : namespace_make_user(host->proc_fd, m->pid, m->uid, CONTAINER_MOUNT_USER, &users);
    r = r ? r : mount_clone(dir, "", &fd);
    if (r < 0)
        return r;
    struct mount_attr attr = {
        .attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (m->read_only ? MOUNT_ATTR_RDONLY : 0U),
        .attr_clr = MOUNT_ATTR_NOEXEC,
        .userns_fd = (uint64_t)users,
    };
    if (mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
        return errno == EINVAL || errno == EPERM ? -EOPNOTSUPP : -errno; /* it can't, or is mapped already */
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int container_mount(const struct tier_host *host, const struct tier_mount *m)
{
    const struct open_how how = {
        .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    AUTO_CLOSE int volume = -1, root = -1, at = -1;
    int r = container_mount_clone(host, m, &volume);
    if (r < 0)
        return r;
    /* By the descriptor (Linux 5.8): should the process have been reaped, its number may be another's by now, and what
     * was opened by it before. */
    if (setns(m->fds[TIER_MOUNT_PIDFD], CLONE_NEWNS) < 0)
        return -errno;
    root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    at = root < 0 ? -1 : (int)syscall(SYS_openat2, root, m->path, &how, sizeof(how));
    fault_point("coved.mount.open");
    return at < 0 ? -errno : mount_attach(volume, at, "");
}
