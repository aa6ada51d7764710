/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pool/btrfs.h"
#include "base/buf.h"
#include "base/child.h"
#include "base/dir.h"
#include "base/fd.h"
#include "kernel/mount.h"

#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <unistd.h>

/* Of Linux 6.7, in no header yet: BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA, BTRFS_QGROUP_STATUS_FLAG_SIMPLE_MODE */
enum { ENABLE_SIMPLE = 4, IS_SIMPLE = 1 << 3, MKFS_SECONDS = 60 };

bool btrfs_is(int fd)
{
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 && fs.f_type == BTRFS_SUPER_MAGIC;
}

static int copy_name(char *to, size_t size, const char *name)
{
    int n = snprintf(to, size, "%s", name);
    return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

int btrfs_subvolume_make(int at, const char *name)
{
    struct btrfs_ioctl_vol_args args = {0};
    int r = copy_name(args.name, sizeof(args.name), name);
    return r < 0 ? r : ioctl(at, BTRFS_IOC_SUBVOL_CREATE, &args) < 0 ? -errno : 0;
}

int btrfs_snapshot(int subvolume_fd, int at, const char *name)
{
    struct btrfs_ioctl_vol_args_v2 args = {.fd = subvolume_fd};
    int r = copy_name(args.name, sizeof(args.name), name);
    return r < 0 ? r : ioctl(at, BTRFS_IOC_SNAP_CREATE_V2, &args) < 0 ? -errno : 0;
}

int btrfs_subvolume_remove(int at, const char *name)
{
    struct btrfs_ioctl_vol_args args = {0};
    int r = copy_name(args.name, sizeof(args.name), name);
    return r < 0 ? r : ioctl(at, BTRFS_IOC_SNAP_DESTROY, &args) < 0 ? -errno : 0;
}

int btrfs_commit_begin(int fd)
{
    return ioctl(fd, BTRFS_IOC_START_SYNC, NULL) < 0 ? -errno : 0;
}

int btrfs_subvolume_transactions(int subvolume_fd, uint64_t *ret_made, uint64_t *ret_changed)
{
    struct btrfs_ioctl_get_subvol_info_args info = {0};
    if (ioctl(subvolume_fd, BTRFS_IOC_GET_SUBVOL_INFO, &info) < 0)
        return -errno;
    *ret_made = info.otransid;
    *ret_changed = info.ctransid;
    return 0;
}

int btrfs_quota_enable(int fd)
{
    if (btrfs_quota_is_on(fd))
        return -EEXIST;
    struct btrfs_ioctl_quota_ctl_args args = {.cmd = ENABLE_SIMPLE};
    if (ioctl(fd, BTRFS_IOC_QUOTA_CTL, &args) == 0)
        return 0;
    if (errno != EINVAL)
        return -errno;
    args = (struct btrfs_ioctl_quota_ctl_args){.cmd = BTRFS_QUOTA_CTL_ENABLE};
    return ioctl(fd, BTRFS_IOC_QUOTA_CTL, &args) < 0 ? -errno : 0;
}

/* The first item of this type of this object, from *offset on, which is where it was found afterwards. */
static int find_item(int fd, uint64_t tree, uint64_t object, uint32_t type, uint64_t *offset, uint64_t last,
                     void *ret_item, size_t size)
{
    enum { SPACE = 4096, FIRST = sizeof(struct btrfs_ioctl_search_args_v2) };
    union {
        struct btrfs_ioctl_search_args_v2 args;
        char bytes[FIRST + SPACE];
    } s = {.args = {.buf_size = SPACE}};
    s.args.key = (struct btrfs_ioctl_search_key){
        .tree_id = tree,
        .min_objectid = object,
        .max_objectid = object,
        .min_offset = *offset,
        .max_offset = last,
        .max_transid = UINT64_MAX,
        .min_type = type,
        .max_type = type,
        .nr_items = 1,
    };
    if (ioctl(fd, BTRFS_IOC_TREE_SEARCH_V2, &s) < 0)
        return -errno;
    if (s.args.key.nr_items == 0)
        return -ENODATA;
    struct btrfs_ioctl_search_header header;
    memcpy(&header, s.bytes + FIRST, sizeof(header));
    if (header.type != type || header.len < size)
        return -ENODATA;
    memcpy(ret_item, s.bytes + FIRST + sizeof(header), size);
    *offset = header.offset;
    return 0;
}

static int find_quota_item(int fd, uint32_t type, uint64_t first, uint64_t last, void *ret_item, size_t size)
{
    return find_item(fd, BTRFS_QUOTA_TREE_OBJECTID, 0, type, &first, last, ret_item, size);
}

static bool quota_is(int fd, uint64_t flags)
{
    struct btrfs_qgroup_status_item status = {0};
    return find_quota_item(fd, BTRFS_QGROUP_STATUS_KEY, 0, UINT64_MAX, &status, sizeof(status)) == 0 &&
           (le64toh(status.flags) & flags) == flags;
}

bool btrfs_quota_is_on(int fd)
{
    return quota_is(fd, BTRFS_QGROUP_STATUS_FLAG_ON);
}

bool btrfs_quota_is_simple(int fd)
{
    return quota_is(fd, BTRFS_QGROUP_STATUS_FLAG_ON | IS_SIMPLE);
}

static int subvolume_id(int fd, uint64_t *ret_id)
{
    struct btrfs_ioctl_ino_lookup_args args = {.objectid = BTRFS_FIRST_FREE_OBJECTID};
    if (ioctl(fd, BTRFS_IOC_INO_LOOKUP, &args) < 0)
        return -errno;
    *ret_id = args.treeid;
    return 0;
}

static int quota_limit(int fd, uint64_t id, uint64_t bytes)
{
    struct btrfs_ioctl_qgroup_limit_args args = {
        .qgroupid = id, .lim = {.flags = BTRFS_QGROUP_LIMIT_MAX_RFER, .max_rfer = bytes ? bytes : UINT64_MAX}};
    return ioctl(fd, BTRFS_IOC_QGROUP_LIMIT, &args) < 0 ? -errno : 0;
}

int btrfs_quota_limit(int at, int subvolume_fd, uint64_t bytes)
{
    uint64_t id = 0;
    int r = subvolume_id(subvolume_fd, &id);
    return r < 0 ? r : quota_limit(at, id, bytes);
}

static uint64_t group_id(uint64_t number)
{
    return 1ULL << BTRFS_QGROUP_LEVEL_SHIFT | number;
}

int btrfs_group_limit(int fd, uint64_t number, uint64_t bytes)
{
    struct btrfs_ioctl_qgroup_create_args args = {.create = 1, .qgroupid = group_id(number)};
    struct btrfs_qgroup_limit_item there = {0};
    if (find_quota_item(fd, BTRFS_QGROUP_LIMIT_KEY, args.qgroupid, args.qgroupid, &there, sizeof(there)) == 0 &&
        (le64toh(there.flags) & BTRFS_QGROUP_LIMIT_MAX_RFER) && le64toh(there.max_rfer) == (bytes ? bytes : UINT64_MAX))
        return 0; /* each change is a transaction of the file system's */
    if (ioctl(fd, BTRFS_IOC_QGROUP_CREATE, &args) < 0 && errno != EEXIST)
        return -errno;
    return quota_limit(fd, args.qgroupid, bytes);
}

int btrfs_group_join(int at, int subvolume_fd, uint64_t number)
{
    struct btrfs_ioctl_qgroup_assign_args args = {.assign = 1, .dst = group_id(number)};
    uint64_t id = 0;
    int r = subvolume_id(subvolume_fd, &id);
    args.src = id;
    return r < 0 ? r : ioctl(at, BTRFS_IOC_QGROUP_ASSIGN, &args) < 0 && errno != EEXIST ? -errno : 0;
}

int btrfs_figures_open(int fd, int *ret_figures)
{
    struct btrfs_ioctl_fs_info_args info = {0};
    AUTO_CLOSE int sys = -1;
    char path[64] = "fs/btrfs/";
    if (ioctl(fd, BTRFS_IOC_FS_INFO, &info) < 0)
        return -errno;
    size_t n = strlen(path);
    for (size_t i = 0; i < BTRFS_FSID_SIZE; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        n += (size_t)snprintf(path + n, sizeof(path) - n, "%s%02x", dash ? "-" : "", info.fsid[i]);
    }
    int r =
        mount_new("sysfs", NULL, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, &sys);
    if (r < 0)
        return r;
    int figures = openat(sys, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (figures < 0)
        return -errno;
    *ret_figures = figures;
    return 0;
}

static int figure(int figures_fd, const char *path, uint64_t *ret_value)
{
    AUTO_BUF struct buf b = BUF_INIT(8192); /* sysfs says that its files are a page long */
    struct str text, line = STR_NULL;
    int r = figures_fd < 0 ? -ENOENT : fd_read_file(figures_fd, path, &b);
    text = buf_str(&b);
    return r < 0 ? r : str_split(&text, '\n', &line) ? str_to_u64(line, ret_value) : -ENODATA;
}

uint64_t btrfs_promised(int figures_fd)
{
    uint64_t bytes = 0;
    return figure(figures_fd, "allocation/data/bytes_may_use", &bytes) < 0 ? 0 : bytes;
}

static int quota_figure(int figures_fd, uint64_t id, const char *name, uint64_t *ret_value)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "qgroups/%llu_%llu/%s", (unsigned long long)(id >> BTRFS_QGROUP_LEVEL_SHIFT),
                   (unsigned long long)(id & ((1ULL << BTRFS_QGROUP_LEVEL_SHIFT) - 1)), name);
    return figure(figures_fd, path, ret_value);
}

int btrfs_quota_promised(int subvolume_fd, int figures_fd, uint64_t *ret_bytes)
{
    uint64_t id = 0;
    int r = subvolume_id(subvolume_fd, &id);
    return r ? r : quota_figure(figures_fd, id, "rsv_data", ret_bytes);
}

static int quota_usage(int fd, int figures_fd, uint64_t id, uint64_t *ret_bytes)
{
    uint64_t referenced = 0, promised = 0;
    struct btrfs_qgroup_info_item info = {0};
    int r = quota_figure(figures_fd, id, "referenced", &referenced);
    r = r ? r : quota_figure(figures_fd, id, "rsv_data", &promised);
    if (r == 0) {
        *ret_bytes = referenced + promised;
        return 0;
    }
    r = find_quota_item(fd, BTRFS_QGROUP_INFO_KEY, id, id, &info, sizeof(info));
    if (r == 0)
        *ret_bytes = le64toh(info.rfer);
    return r;
}

int btrfs_quota_usage(int subvolume_fd, int figures_fd, uint64_t *ret_bytes)
{
    uint64_t id = 0;
    int r = subvolume_id(subvolume_fd, &id);
    return r < 0 ? r : quota_usage(subvolume_fd, figures_fd, id, ret_bytes);
}

int btrfs_group_usage(int fd, int figures_fd, uint64_t number, uint64_t *ret_bytes)
{
    return quota_usage(fd, figures_fd, group_id(number), ret_bytes);
}

int btrfs_quota_tidy(int fd, int figures_fd, uint64_t *last)
{
    AUTO(dir_close) DIR *dir = dir_open(figures_fd, "qgroups");
    uint64_t newest = *last;
    if (!dir)
        return -errno;
    for (const struct dirent *e; (e = dir_next(dir));) {
        uint64_t id = 0, bytes = 0;
        if (strncmp(e->d_name, "0_", 2) != 0 || str_to_u64(str_of(e->d_name + 2), &id) < 0)
            continue;
        newest = MAX(newest, id);
        struct btrfs_ioctl_qgroup_create_args args = {.create = 0, .qgroupid = id};
        if (id <= *last && quota_figure(figures_fd, id, "referenced", &bytes) == 0 && bytes == 0)
            (void)ioctl(fd, BTRFS_IOC_QGROUP_CREATE, &args); /* a later look finds it again */
    }
    *last = newest;
    return 0;
}

int btrfs_resize_max(int fd)
{
    struct btrfs_ioctl_vol_args args = {.name = "max"};
    return ioctl(fd, BTRFS_IOC_RESIZE, &args) < 0 ? -errno : 0;
}

int btrfs_metadata_next(int fd, uint64_t *from, uint64_t *ret_at, uint64_t *ret_bytes)
{
    struct btrfs_chunk chunk = {0};
    int r;
    while ((r = find_item(fd, BTRFS_CHUNK_TREE_OBJECTID, BTRFS_FIRST_CHUNK_TREE_OBJECTID, BTRFS_CHUNK_ITEM_KEY, from,
                          UINT64_MAX, &chunk, sizeof(chunk))) == 0) {
        *from += le64toh(chunk.length);
        if (!(le64toh(chunk.type) & (BTRFS_BLOCK_GROUP_METADATA | BTRFS_BLOCK_GROUP_SYSTEM)))
            continue;
        *ret_at = le64toh(chunk.stripe.offset);
        *ret_bytes = le64toh(chunk.length);
        return 1;
    }
    return r == -ENODATA ? 0 : r;
}

int btrfs_format(const char *path)
{
    /* One copy of the metadata: what the pool lies on is asked to keep what it is given. No discard: the file has holes
     * only. */
    char *const *argv =
        CHILD_ARGV("mkfs.btrfs", "-q", "-f", "-K", "-m", "single", "-d", "single", "-L", "cove-pool", path);
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        (void)dup2(null, STDIN_FILENO);
        (void)dup2(null, STDOUT_FILENO);
        (void)alarm(MKFS_SECONDS);
        (void)execvp(argv[0], argv);
        (void)execv("/usr/sbin/mkfs.btrfs", argv);
        _exit(CHILD_NO_PROGRAM);
    }
    int r = pid < 0 ? -errno : child_wait(pid);
    return r == CHILD_NO_PROGRAM ? -ENOENT : r > 0 ? -EIO : r;
}
