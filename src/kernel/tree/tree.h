/* SPDX-License-Identifier: Apache-2.0 */
/* Whole directory trees of foreign making, as root: links are never followed, mounts never crossed, depth costs no
 * stack or descriptors. */
#pragma once

#include "base/def.h"

/* Deletes dirfd/name and all below it. A file is deleted too. */
int tree_remove(int dirfd, const char *name) WARN_UNUSED;

/*
 * Copies the directory from/name to to/to_name, which must not be there, with owners, modes, times, extended attributes
 * (user, security, trusted.overlay, ACLs), hard links, holes, fifos and whiteouts (character device 0:0). Sockets and
 * other devices are left out. share: files' bytes are shared where the file system can (FICLONE). The tree must stand
 * still: -ESTALE when it was seen not to. -errno leaves what was made so far, and perhaps to/".links". Nothing is
 * synced. ret_bytes (may be NULL): what the tree that was copied takes on disk, counted on the way.
 */
int tree_clone(int from, const char *name, int to, const char *to_name, bool share, uint64_t *ret_bytes) WARN_UNUSED;

/* The file system of this directory lets files share bytes. */
bool tree_can_share(int dirfd);
