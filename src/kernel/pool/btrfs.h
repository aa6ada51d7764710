/* SPDX-License-Identifier: Apache-2.0 */
/*
 * btrfs: subvolumes, snapshots and the sizes of subvolumes. All functions return 0 or -errno; descriptors are open
 * directories on the file system, a subvolume's that of its root.
 */
#pragma once

#include "base/def.h"

bool btrfs_is(int fd);

int btrfs_subvolume_make(int at, const char *name) WARN_UNUSED;
/* What the source has not on disk is written out first; the snapshot is on disk afterwards. */
int btrfs_snapshot(int subvolume_fd, int at, const char *name) WARN_UNUSED;
/*
 * Its name is gone at once, its blocks are freed later. -ENOTEMPTY: it contains another subvolume; -EINVAL: it is not a
 * subvolume.
 */
int btrfs_subvolume_remove(int at, const char *name) WARN_UNUSED;
/*
 * Begins a commit, with which the kernel begins to free the blocks of removed subvolumes; otherwise up to 30 s later.
 */
int btrfs_commit_begin(int fd) WARN_UNUSED;

/* The transaction that made this subvolume, and the last one that changed anything in it, committed or not. */
int btrfs_subvolume_transactions(int subvolume_fd, uint64_t *ret_made, uint64_t *ret_changed) WARN_UNUSED;

/*
 * Quotas of the whole file system. Simple ones (Linux 6.7) charge an extent to the subvolume that wrote it, for good;
 * full ones count who refers to what, and make snapshots and deletions slow. -EEXIST: they are on.
 */
int btrfs_quota_enable(int fd) WARN_UNUSED; /* simple where the kernel has them, else full */
bool btrfs_quota_is_on(int fd);
bool btrfs_quota_is_simple(int fd);
/* 0: none. Beyond it writing says EDQUOT. So does this, and btrfs_group_join(), but for an `at` outside of it. */
int btrfs_quota_limit(int at, int subvolume_fd, uint64_t bytes) WARN_UNUSED;
/*
 * With figures (below): includes what is not on disk yet. Without (-1): as of the last commit, which is at most some 30
 * s old.
 */
int btrfs_quota_usage(int subvolume_fd, int figures_fd, uint64_t *ret_bytes) WARN_UNUSED;

/* What the kernel tells of this file system as it is now, below a sysfs that nobody else sees: a directory. */
int btrfs_figures_open(int fd, int *ret_figures) WARN_UNUSED;
/* Bytes that were promised to writers and lie nowhere yet; statvfs(3) does not count them. 0: none, or not known. */
uint64_t btrfs_promised(int figures_fd);

/* The same of one subvolume, to its writers. -ENOENT: not known. */
int btrfs_quota_promised(int subvolume_fd, int figures_fd, uint64_t *ret_bytes) WARN_UNUSED;

/*
 * Groups of simple quotas count what the subvolumes in them have written, that of deleted ones too as long as others
 * have it. `number`: of level 1, below 2^48. A limit of 0 bytes: none.
 */
int btrfs_group_limit(int fd, uint64_t number, uint64_t bytes) WARN_UNUSED; /* makes it, if need be */
int btrfs_group_join(int at, int subvolume_fd,
                     uint64_t number) WARN_UNUSED; /* it may be in it. -EINVAL: no such group */
int btrfs_group_usage(int fd, int figures_fd, uint64_t number, uint64_t *ret_bytes) WARN_UNUSED;
/*
 * Forgets subvolumes that are gone and nobody shares anything with any more, of those up to *last, and puts the newest
 * there is into it: what is just being made has no bytes either.
 */
int btrfs_quota_tidy(int fd, int figures_fd, uint64_t *last) WARN_UNUSED;

/* After its one device has grown. */
int btrfs_resize_max(int fd) WARN_UNUSED;

/*
 * Where on its device the next piece of metadata may lie, of those from *from on: 1, and *from is behind it; 0: there
 * is no other. Pieces are added, and seldom go.
 */
int btrfs_metadata_next(int fd, uint64_t *from, uint64_t *ret_at, uint64_t *ret_bytes) WARN_UNUSED;

/* By mkfs.btrfs, into a file. -ENOENT: it is not installed. */
int btrfs_format(const char *path) WARN_UNUSED;
