/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/mount.h"
#include "base/fd.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

static int clone_with(int dirfd, const char *path, unsigned deep, uint64_t attrs, int *ret_fd)
{
    struct mount_attr attr = {.attr_set = attrs, .propagation = MS_PRIVATE};
    AUTO_CLOSE int fd = open_tree(dirfd, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | deep);
    if (fd < 0 || mount_setattr(fd, "", AT_EMPTY_PATH | deep, &attr, sizeof(attr)) < 0)
        return -errno;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int mount_clone(int dirfd, const char *path, int *ret_fd)
{
    return clone_with(dirfd, path, 0, 0, ret_fd);
}

int mount_clone_tree(int dirfd, const char *path, uint64_t attrs, int *ret_fd)
{
    return clone_with(dirfd, path, AT_RECURSIVE, attrs, ret_fd);
}

int mount_set(int fd, uint64_t attrs, int userns_fd)
{
    struct mount_attr attr = {.attr_set = attrs};
    if (userns_fd >= 0) {
        attr.attr_set |= MOUNT_ATTR_IDMAP;
        attr.userns_fd = (uint64_t)userns_fd;
    }
    return mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 ? -errno : 0;
}

int mount_attach(int fd, int dirfd, const char *path)
{
    return move_mount(fd, "", dirfd, path, MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0 ? -errno : 0;
}

int mount_new(const char *fs_type, const char *const *options, uint64_t attrs, int *ret_fd)
{
    AUTO_CLOSE int fs = fsopen(fs_type, FSOPEN_CLOEXEC);
    if (fs < 0)
        return -errno;
    for (const char *const *o = options; o && o[0]; o += 2) {
        int r =
            o[1] ? fsconfig(fs, FSCONFIG_SET_STRING, o[0], o[1], 0) : fsconfig(fs, FSCONFIG_SET_FLAG, o[0], NULL, 0);
        if (r < 0)
            return -errno;
    }
    if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -errno;
    int fd = fsmount(fs, FSMOUNT_CLOEXEC, (unsigned int)attrs);
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

int mount_bind(const char *from, const char *to, bool read_only)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
    if (mount(from, to, NULL, MS_BIND, NULL) < 0 ||
        (read_only && mount_setattr(AT_FDCWD, to, AT_SYMLINK_NOFOLLOW, &attr, sizeof(attr)) < 0))
        return -errno;
    return 0;
}

int mount_pivot(int fd)
{
    /* With the same directory as new and old root, the old one ends up mounted on top of the new one: no directory for
     * it is needed. */
    if (fchdir(fd) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return -errno;
    return 0;
}

int mount_unshare(void)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -errno;
    return 0;
}
