/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pool/test_disk.h"
#include "base/fd.h"
#include "kernel/mount.h"
#include "kernel/pool/btrfs.h"
#include "kernel/pool/loopfile.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int format_xfs(const char *path)
{
    char *argv[] = {(char[]){"mkfs.xfs"}, (char[]){"-q"},        (char[]){"-m"},          (char[]){"reflink=1"},
                    (char[]){"-s"},       (char[]){"size=4096"}, (char *)(uintptr_t)path, NULL};
    pid_t pid = fork();
    if (pid == 0) {
        (void)execvp(argv[0], argv);
        (void)execv("/usr/sbin/mkfs.xfs", argv);
        _exit(127);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return -errno;
    return !WIFEXITED(status) || WEXITSTATUS(status) == 127 ? -ENOENT : WEXITSTATUS(status) ? -EIO : 0;
}

static int mount_it(struct test_disk *d, const char *kind)
{
    bool is_xfs = strncmp(kind, "xfs", 3) == 0;
    const char *const options[] = {"source", d->device_name, strcmp(kind, "xfs with quotas") == 0 ? "prjquota" : NULL,
                                   NULL, NULL};
    AUTO_CLOSE int fd = -1;
    int r = mount_new(is_xfs ? "xfs" : kind, options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME, &fd);
    r = r ? r : mount_attach(fd, AT_FDCWD, d->dir);
    if (r < 0 || is_xfs)
        return r;
    AUTO_CLOSE int top = open(d->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return top < 0 ? -errno : btrfs_quota_enable(top);
}

bool test_disk_open(struct test_disk *d, const char *kind)
{
    char file[96];
    static bool is_private;
    *d = (struct test_disk){.file = -1, .device = -1};
    (void)snprintf(d->top, sizeof(d->top), "/var/tmp/cove-test-disk.XXXXXX");
    if (geteuid() != 0 || !mkdtemp(d->top)) {
        (void)printf("# no %s to test on: not root\n", kind);
        return false;
    }
    (void)snprintf(d->dir, sizeof(d->dir), "%s/mounted", d->top);
    (void)snprintf(file, sizeof(file), "%s/file", d->top);
    int r = is_private ? 0 : mount_unshare();
    is_private = r == 0;
    if (r == 0 && mkdir(d->dir, 0755) < 0)
        r = -errno;
    r = r ? r : loopfile_open(file, true, 0, &d->file);
    r = r ? r : loopfile_grow(d->file, -1, (uint64_t)TEST_DISK_MIB << 20);
    r = r ? r : strncmp(kind, "xfs", 3) == 0 ? format_xfs(file) : btrfs_format(file);
    r = r ? r : loopfile_attach(d->file, &d->device, d->device_name);
    r = r ? r : mount_it(d, kind);
    if (r < 0) {
        (void)printf("# no %s to test on: loop device, mkfs or mounting: %s\n", kind, strerror(-r));
        test_disk_close(d);
    }
    return r == 0;
}

void test_disk_close(struct test_disk *d)
{
    char file[96];
    (void)snprintf(file, sizeof(file), "%s/file", d->top);
    (void)umount2(d->dir, MNT_DETACH);
    d->device = fd_close(d->device);
    d->file = fd_close(d->file);
    (void)unlink(file);
    (void)rmdir(d->dir);
    (void)rmdir(d->top);
}

void test_disk_absent(void **state UNUSED)
{
    skip(); /* test_disk_open() has said why */
}
