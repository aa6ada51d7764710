/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/storage/reserve.h"
#include "base/log.h"
#include "config/config.h"
#include "config/units.h"
#include "kernel/pool/pool.h"

enum { PARTS = 50 /* 2 % */, FRESH_MS = 100, POOL_LEAST = 256 << 20, SHARES = 4 };

static const uint64_t least = 1ULL << 30, most = 8ULL << 30, share_most = 20ULL << 30;

uint64_t reserve_bytes(const struct statvfs *fs, uint64_t bytes)
{
    if (bytes != CONFIG_RESERVE_AUTO)
        return bytes;
    uint64_t part = fs->f_blocks / PARTS * fs->f_frsize;
    return MIN(MAX(part, least), most);
}

uint64_t reserve_share(uint64_t pool_bytes, uint64_t bytes)
{
    if (bytes != CONFIG_DISK_AUTO)
        return bytes;
    return MIN(pool_bytes / SHARES, share_most) & ~(uint64_t)((1 << 20) - 1);
}

uint64_t reserve_share_of(struct pool *pool, uint64_t bytes)
{
    struct pool_space space = {0, 0};
    int r = bytes == CONFIG_DISK_AUTO && pool_features(pool)->limits ? pool_space(pool, &space) : 0;
    if (r < 0)
        log_warn("find the largest size of the storage pool: %s; sandboxes have no disk limit by default",
                 strerror(-r));
    return reserve_share(space.total, bytes);
}

int reserve_judge(const struct statvfs *fs, uint64_t bytes, struct err *err)
{
    uint64_t wanted = reserve_bytes(fs, bytes), there;
    if (wanted == 0)
        return 0;
    if (__builtin_mul_overflow((uint64_t)fs->f_bavail, (uint64_t)fs->f_frsize, &there))
        there = UINT64_MAX;
    if (there < wanted) {
        char has[UNIT_TEXT_MAX], needs[UNIT_TEXT_MAX];
        unit_format_size(there, has);
        unit_format_size(wanted, needs);
        return err_set(err, ERR_RESOURCE_EXHAUSTED,
                       "the storage pool's disk has %s free, less than the reserve of %s: remove sandboxes or other"
                       " files, or set disk_reserve in the configuration",
                       has, needs);
    }
    /* Some file systems make inodes as needed and say that they have none. */
    if (fs->f_files > 0 && fs->f_favail < fs->f_files / PARTS)
        return err_set(err, ERR_RESOURCE_EXHAUSTED,
                       "the storage pool's disk has %llu of %llu inodes free, less than 2 %%: remove sandboxes or other"
                       " files",
                       (unsigned long long)fs->f_favail, (unsigned long long)fs->f_files);
    return 0;
}

static int judge_state(const struct reserve *r, struct err *err)
{
    struct statvfs fs;
    if (!r->pool || !pool_is_backed(r->pool) || fstatvfs(pool_fd(r->pool), &fs) < 0 || !(fs.f_flag & ST_RDONLY))
        return 0;
    (void)err_set(err, ERR_UNAVAILABLE,
                  "the storage pool's file system has become read-only: the disk under it failed or was full;"
                  " restart the service once it has room, and see docs/STORAGE.md");
    return err_because(err, ERR_NEEDS_RESTART);
}

static int judge_pool(struct reserve *r, struct err *err)
{
    struct pool_space space;
    char has[UNIT_TEXT_MAX];
    if (!r->pool || !pool_is_backed(r->pool) || r->bytes == 0)
        return 0;
    int failed = pool_space(r->pool, &space);
    if (failed < 0)
        return err_errno(err, failed, "read the free space of the storage pool");
    if (space.free >= POOL_LEAST)
        return 0;
    unit_format_size(space.free, has);
    return err_set(err, ERR_RESOURCE_EXHAUSTED,
                   "the storage pool has %s free and can't grow: remove sandboxes, snapshots or templates, free "
                   "space on its disk, or raise pool.size in the configuration",
                   has);
}

int reserve_check(struct reserve *r, struct err *err)
{
    usec_t now = clock_mono();
    if (r->looked == 0 || now - r->looked >= FRESH_MS * USEC_PER_MS) {
        if (fstatvfs(r->fd, &r->fs) < 0)
            return err_errno(err, errno, "read the free space of the storage pool's disk");
        r->looked = now;
    }
    int failed = judge_state(r, err);
    failed = failed ? failed : reserve_judge(&r->fs, r->bytes, err);
    failed = failed ? failed : judge_pool(r, err);
    enum err_code why = failed < 0 ? err->code : ERR_OK;
    if (failed < 0 && why != r->told)
        log_warn("no more sandboxes are created: %s", err->msg);
    if (failed == 0 && r->told)
        log_info("the storage pool's disk has enough free again: sandboxes are created");
    r->told = why;
    return failed;
}
