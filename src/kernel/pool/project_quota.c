/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pool/project_quota.h"

#include <linux/dqblk_xfs.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/quota.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef PRJQUOTA
#define PRJQUOTA 2
#endif

/*
 * Numbers that people give to projects are small. Few of them, which are given out again: file systems keep a record of
 * each number that was ever used.
 */
enum { ID_FIRST = 0x43000000, IDS = 1 << 18, PROJECT_QUOTA_BLOCK = 512, FILES_LEAST = 4096, BYTES_PER_FILE = 4096 };

static int quota(int fd, int command, uint32_t id, void *arg)
{
    return syscall(SYS_quotactl_fd, fd, QCMD(command, PRJQUOTA), id, arg) < 0 ? -errno : 0;
}

static int read_quota(int fd, uint32_t id, struct fs_disk_quota *ret_quota)
{
    *ret_quota = (struct fs_disk_quota){0};
    int r = quota(fd, Q_XGETQUOTA, id, ret_quota);
    return r == -ENOENT ? 0 : r; /* nothing was ever counted */
}

static int set_limits(int fd, uint32_t id, uint64_t bytes)
{
    struct fs_disk_quota q = {
        .d_version = FS_DQUOT_VERSION,
        .d_flags = FS_PROJ_QUOTA,
        .d_fieldmask = FS_DQ_BHARD | FS_DQ_IHARD,
        .d_id = id,
        .d_blk_hardlimit = bytes ? MAX(bytes / PROJECT_QUOTA_BLOCK, 1) : 0,
        .d_ino_hardlimit = bytes ? FILES_LEAST + bytes / BYTES_PER_FILE : 0,
    };
    return quota(fd, Q_XSETQLIM, id, &q);
}

static int read_project(int fd, struct fsxattr *ret_attr)
{
    return ioctl(fd, FS_IOC_FSGETXATTR, ret_attr) < 0 ? -errno : 0;
}

static int set_project(int fd, uint32_t id)
{
    struct fsxattr attr;
    int r = read_project(fd, &attr);
    if (r < 0)
        return r;
    attr.fsx_projid = id;
    if (id)
        attr.fsx_xflags |= FS_XFLAG_PROJINHERIT;
    else
        attr.fsx_xflags &= ~(uint32_t)FS_XFLAG_PROJINHERIT;
    return ioctl(fd, FS_IOC_FSSETXATTR, &attr) < 0 ? -errno : 0;
}

bool project_quota_is_on(int dir_fd)
{
    struct fs_quota_statv state = {.qs_version = FS_QSTATV_VERSION1};
    struct fsxattr attr;
    struct statfs fs;
    const unsigned wanted = FS_QUOTA_PDQ_ACCT | FS_QUOTA_PDQ_ENFD;
    return fstatfs(dir_fd, &fs) == 0 && fs.f_type == XFS_SUPER_MAGIC && quota(dir_fd, Q_XGETQSTATV, 0, &state) == 0 &&
           (state.qs_flags & wanted) == wanted && read_project(dir_fd, &attr) == 0 &&
           !(attr.fsx_xflags & FS_XFLAG_PROJINHERIT);
}

/* Takes a number that looks free, and keeps it when nobody else did so meanwhile. 1: it is ours, 0: it is not. */
static int project_quota_take(int fd, uint32_t id)
{
    struct fs_disk_quota q;
    int r = read_quota(fd, id, &q);
    if (r < 0 || q.d_bcount || q.d_icount)
        return r;
    r = set_project(fd, id);
    r = r ? r : read_quota(fd, id, &q);
    if (r == 0 && q.d_icount > 1)
        return set_project(fd, 0);
    if (r == 0 && (q.d_blk_hardlimit || q.d_ino_hardlimit))
        r = set_limits(fd, id, 0); /* of whoever had it before */
    return r ? r : 1;
}

int project_quota_begin(int dir_fd, uint32_t *cursor)
{
    for (uint32_t i = 0; i < IDS; i++) {
        int r = project_quota_take(dir_fd, ID_FIRST + (*cursor)++ % IDS);
        if (r != 0)
            return MIN(r, 0);
    }
    return -EUSERS;
}

uint32_t project_quota_id(int dir_fd)
{
    struct fsxattr attr;
    bool has = read_project(dir_fd, &attr) == 0 && attr.fsx_projid >= ID_FIRST && attr.fsx_projid - ID_FIRST < IDS;
    return has ? attr.fsx_projid : 0;
}

int project_quota_limit(int dir_fd, uint64_t bytes)
{
    uint32_t id = project_quota_id(dir_fd);
    return id ? set_limits(dir_fd, id, bytes) : -ENODATA;
}

int project_quota_usage(int dir_fd, uint64_t *ret_bytes)
{
    struct fs_disk_quota q;
    uint32_t id = project_quota_id(dir_fd);
    int r = id ? read_quota(dir_fd, id, &q) : -ENODATA;
    if (r == 0)
        *ret_bytes = q.d_bcount * PROJECT_QUOTA_BLOCK;
    return r;
}
