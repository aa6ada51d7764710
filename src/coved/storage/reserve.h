/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stays free on the storage pool's disk: below that, no sandbox is created. Sandboxes that run can still fill it;
 * this keeps more of them from beginning what none can finish. A pool in a file (kernel/pool/pool.h) must have room
 * inside, too.
 */
#pragma once

#include "base/clock.h"
#include "base/err.h"

#include <sys/statvfs.h>

/* bytes, or by itself (CONFIG_RESERVE_AUTO): 2 % of the disk, but 1 GiB at least and 8 GiB at most. 0: there is
 * none. */
uint64_t reserve_bytes(const struct statvfs *fs, uint64_t bytes);

/* ERR_RESOURCE_EXHAUSTED when less than that, or less than 2 % of the inodes, is free; the message says what to do. 0:
 * none is kept. */
int reserve_judge(const struct statvfs *fs, uint64_t bytes, struct err *err) WARN_UNUSED;

struct pool;

/*
 * What a sandbox that says nothing may write. bytes, or by itself (CONFIG_DISK_AUTO) a quarter of what the pool can
 * hold, in whole MiB and 20 GiB at most: one alone can't take what all need. 0: no limit, and what a pool that knows
 * none has.
 */
uint64_t reserve_share(uint64_t pool_bytes, uint64_t bytes);
uint64_t reserve_share_of(struct pool *pool, uint64_t bytes);

struct reserve {
    int fd;            /* borrowed: a directory on the host's file system */
    struct pool *pool; /* borrowed: a pool in a file needs room of its own; NULL: not checked */
    uint64_t bytes;    /* as configured */
    usec_t looked;     /* monotonic; 0: never */
    struct statvfs fs;
    enum err_code told; /* why sandboxes are not created */
};

/* The same for the file system as it was at most 100 ms ago. Logs when it begins and ceases to be short. */
int reserve_check(struct reserve *r, struct err *err) WARN_UNUSED;
