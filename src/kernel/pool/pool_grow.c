/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fault.h"
#include "kernel/pool/btrfs.h"
#include "kernel/pool/loopfile.h"
#include "kernel/pool/pool_internal.h"

#include <sys/statvfs.h>

/* Less is not worth a step; more than a quarter free is enough; a step is half of what there is. */
enum { LEAST_STEP = 256 << 20, FREE_PARTS = 4, STEP_PARTS = 2 };

void pool_set_backing(struct pool *p, const struct pool_backing *backing)
{
    p->backing = *backing;
    p->is_backed = true;
}

bool pool_is_backed(const struct pool *p)
{
    return p->is_backed;
}

/* How large the file may be: what it has not taken yet of its size must find room on the host, beside the reserve. */
static int bounds(const struct pool_backing *b, uint64_t *ret_bytes, uint64_t *ret_most)
{
    struct statvfs fs;
    uint64_t bytes = 0, allocated = 0;
    int r = loopfile_size(b->file_fd, &bytes, &allocated);
    if (r < 0)
        return r;
    if (fstatvfs(b->host_fd, &fs) < 0)
        return -errno;
    uint64_t there = (uint64_t)fs.f_bavail * fs.f_frsize;
    uint64_t most = allocated + (there > b->reserve_bytes ? there - b->reserve_bytes : 0);
    *ret_bytes = bytes;
    *ret_most = b->most_bytes ? MIN(most, b->most_bytes) : most;
    return 0;
}

/* Of the file system as it is. What sits in memory still is taken. */
static int space_now(const struct pool *p, struct pool_space *ret_space)
{
    struct statvfs fs;
    if (fstatvfs(p->fd, &fs) < 0)
        return -errno;
    uint64_t there = (uint64_t)fs.f_bavail * fs.f_frsize, promised = btrfs_promised(p->figures_fd);
    *ret_space = (struct pool_space){(uint64_t)fs.f_blocks * fs.f_frsize, there - MIN(there, promised)};
    return 0;
}

int pool_space(struct pool *p, struct pool_space *ret_space)
{
    struct pool_space s = {0, 0};
    uint64_t bytes = 0, most = 0;
    int r = space_now(p, &s);
    if (r == 0 && p->is_backed)
        r = bounds(&p->backing, &bytes, &most);
    if (r < 0)
        return r;
    if (most > bytes) {
        s.total += most - bytes;
        s.free += most - bytes;
    } else {
        /* The host has less left than the file was promised. */
        s.free -= MIN(s.free, bytes - most);
    }
    *ret_space = s;
    return 0;
}

int pool_grow(struct pool *p)
{
    struct pool_space s = {0, 0};
    uint64_t bytes = 0, most = 0;
    if (!p->is_backed)
        return 0;
    int r = space_now(p, &s);
    if (r < 0 || s.free >= s.total / FREE_PARTS)
        return r;
    r = bounds(&p->backing, &bytes, &most);
    uint64_t wanted = (bytes + bytes / STEP_PARTS) & ~(uint64_t)(LEAST_STEP - 1);
    wanted = MIN(MAX(wanted, bytes + LEAST_STEP), most & ~(uint64_t)4095);
    if (r < 0 || wanted < bytes + LEAST_STEP)
        return r;
    r = loopfile_grow(p->backing.file_fd, p->backing.device_fd, wanted);
    fault_point("pool.grow.file");
    r = r ? r : btrfs_resize_max(p->fd);
    return r ? r : 1;
}

int pool_secure(struct pool *p)
{
    uint64_t from = p->secured, at, bytes;
    struct statvfs fs;
    int r = 0;
    while (p->is_backed && r == 0 && (r = btrfs_metadata_next(p->fd, &from, &at, &bytes)) > 0) {
        if (fstatvfs(p->backing.host_fd, &fs) < 0)
            return -errno;
        if ((uint64_t)fs.f_bavail * fs.f_frsize < p->backing.reserve_bytes + bytes)
            return 0;
        r = loopfile_back(p->backing.file_fd, at, bytes);
        p->secured = r == 0 ? from : p->secured;
    }
    return r;
}
