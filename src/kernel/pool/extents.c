/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pool/extents.h"

#include <linux/btrfs.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>

/* Of XFS's interface, which is in no header of the kernel's. */
struct xfs_geometry {
    uint32_t before[8];
    uint64_t blocks, realtime_blocks, after[2];
    unsigned char id[16];
    uint32_t rest[8];
};
#define XFS_GEOMETRY _IOR('X', 100, struct xfs_geometry)
static_assert(sizeof(struct xfs_geometry) == 112, "XFS_IOC_FSGEOMETRY_V1");

static int find_btrfs(int fd, struct extents_disk *ret_disk)
{
    struct btrfs_ioctl_fs_info_args args = {.flags = BTRFS_FS_INFO_FLAG_GENERATION};
    if (ioctl(fd, BTRFS_IOC_FS_INFO, &args) < 0)
        return -errno;
    static_assert(sizeof(args.fsid) == sizeof(ret_disk->id), "an id fits");
    memcpy(ret_disk->id, args.fsid, sizeof(args.fsid));
    ret_disk->has_age = args.flags & BTRFS_FS_INFO_FLAG_GENERATION; /* Linux 5.10 */
    ret_disk->age = ret_disk->has_age ? args.generation : 0;
    return 0;
}

static int find_xfs(int fd, struct extents_disk *ret_disk)
{
    struct xfs_geometry geometry;
    struct stat st;
    if (ioctl(fd, XFS_GEOMETRY, &geometry) < 0 || fstat(fd, &st) < 0)
        return -errno;
    ret_disk->id[0] = st.st_dev;
    return geometry.realtime_blocks ? -EOPNOTSUPP : 0;
}

int extents_disk(int fd, struct extents_disk *ret_disk)
{
    struct statfs fs;
    if (fstatfs(fd, &fs) < 0)
        return -errno;
    struct extents_disk disk = {.kind = (uint64_t)fs.f_type};
    int r = fs.f_type == BTRFS_SUPER_MAGIC ? find_btrfs(fd, &disk)
            : fs.f_type == XFS_SUPER_MAGIC ? find_xfs(fd, &disk)
                                           : -EOPNOTSUPP;
    if (r == 0)
        *ret_disk = disk;
    return r;
}

bool extents_on_one(const struct extents_disk *a, const struct extents_disk *b)
{
    return a->kind == b->kind && a->id[0] == b->id[0] && a->id[1] == b->id[1];
}

int extents_settle(int fd)
{
    struct fiemap map = {.fm_length = 1, .fm_flags = FIEMAP_FLAG_SYNC};
    return ioctl(fd, FS_IOC_FIEMAP, &map) < 0 ? -errno : 0;
}

static int extents_add(const struct fiemap_extent *e, uint64_t from, uint64_t until, uint64_t *end, struct extents *x)
{
    if (e->fe_length > UINT64_MAX - e->fe_logical || e->fe_logical < *end)
        return -EIO;
    *end = e->fe_logical + e->fe_length;
    uint64_t first = MAX(e->fe_logical, from), last = MIN(*end, until);
    if (first < last && (e->fe_flags & ~(uint32_t)FIEMAP_EXTENT_LAST) == FIEMAP_EXTENT_SHARED)
        x->all[x->n++] = (struct extent){first, last - first, e->fe_physical + (first - e->fe_logical)};
    return 0;
}

int extents_read(int fd, uint64_t from, uint64_t until, struct extents *ret_extents)
{
    union {
        struct fiemap map;
        char bytes[sizeof(struct fiemap) + EXTENTS_MAX * sizeof(struct fiemap_extent)];
    } told;
    struct extents *x = ret_extents;
    uint64_t end = 0;
    if (from >= until)
        return -EINVAL;
    memset(&told, 0, sizeof(told));
    told.map.fm_start = from;
    told.map.fm_length = until - from;
    told.map.fm_extent_count = EXTENTS_MAX;
    if (ioctl(fd, FS_IOC_FIEMAP, &told.map) < 0)
        return -errno;
    const size_t n = told.map.fm_mapped_extents;
    int r = n > EXTENTS_MAX ? -EIO : 0;
    x->n = 0;
    for (size_t i = 0; r == 0 && i < n; i++)
        r = extents_add(&told.map.fm_extents[i], from, until, &end, x);
    x->until = n == EXTENTS_MAX ? MIN(end, until) : until;
    return r == 0 && x->until <= from ? -EIO : r;
}

size_t extents_common(const struct extents *a, const struct extents *b,
                      struct extent ret_common[static 2 * EXTENTS_MAX])
{
    size_t n = 0;
    for (size_t i = 0, j = 0; i < a->n && j < b->n;) {
        const struct extent *x = &a->all[i], *y = &b->all[j];
        uint64_t first = MAX(x->at, y->at), last = MIN(x->at + x->n, y->at + y->n);
        if (first < last && x->place + (first - x->at) == y->place + (first - y->at))
            ret_common[n++] = (struct extent){first, last - first, x->place + (first - x->at)};
        if (x->at + x->n == last)
            i++;
        else
            j++;
    }
    return n;
}
