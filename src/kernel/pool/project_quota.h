/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Project quotas of XFS: every file has the number of a project, new ones that of their directory, and the kernel
 * counts and bounds what each project has. Here a directory gets a project of its own, so that its size is known and
 * can be limited. Whoever reaches a limit is told ENOSPC, and statfs(2) shows the project's share. It takes Linux 5.14,
 * CAP_SYS_ADMIN and a file system that is mounted with prjquota. ext4 has such quotas, too, but they bind nobody with
 * CAP_SYS_RESOURCE, which whoever mounted an overlay may have: they are not used.
 *
 * All functions return 0 or -errno; descriptors are directories that are open for reading.
 */
#pragma once

#include "base/def.h"

/* On XFS, limits are enforced, and new directories in it belong to no project yet: whoever put all of it into one wants
 * it bounded as one. */
bool project_quota_is_on(int dir_fd);

/*
 * The directory, which must be empty, gets a project that nothing else belongs to, without a limit, and so does all
 * that is made in it. Those inside can't leave it from another user namespace. A number is free again when nothing of
 * it is left, files that somebody has open included. cursor: where to look for one, moved on; start with any. -EUSERS:
 * all are taken.
 */
int project_quota_begin(int dir_fd, uint32_t *cursor) WARN_UNUSED;

/* 0: none. Files are bounded with it, one for 4 KiB and some more: those that are empty take space that is not counted.
 * -ENODATA: it has no project. */
int project_quota_limit(int dir_fd, uint64_t bytes) WARN_UNUSED;
/* Includes what is not on disk yet; bytes shared with other files count in full. -ENODATA */
int project_quota_usage(int dir_fd, uint64_t *ret_bytes) WARN_UNUSED;

uint32_t project_quota_id(int dir_fd); /* 0: it has none of ours */
