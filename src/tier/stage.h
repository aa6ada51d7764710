/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stage: the small mount namespace in which sandboxes are built. A new mount namespace copies its parent's whole mount table, so
 * coved leaves the host's (dozens of mounts) for one of its own with three: a tmpfs as root, /proc and the storage pool.
 *
 *   /proc             for maps and namespaces of children
 *   /pool             the storage pool (kernel/pool.h)
 *   /trees/dev        what every sandbox sees as /dev: null, zero, full, random, urandom, tty, links, and mount points
 *   /trees/sys        what it sees as /sys: the few files that runtimes read; nothing of the real one
 *   /trees/empty      an empty directory, /trees/null a link-free null device: what masked paths show
 *   /build/{proc,dev,sys,tmp}, /root      mount points for a child's own mounts, private to its mount namespace
 *   /scratch          mount points for overlay layers on kernels that need them attached
 */
#pragma once

#include "base/err.h"

struct stage {
    int host_mount_ns; /* owned: to start the workers and tools where the host's files are */
    int host_root;     /* owned: the host's root directory */
};

/*
 * Enters the stage for good: the calling process's root and working directory change. pool_dir: the pool's directory on the host. scratch_on: an existing host
 * directory that the tmpfs may cover while it is being made, in our private namespace only.
 */
int stage_enter(const char *pool_dir, const char *scratch_on, struct stage *ret_stage, struct err *err) WARN_UNUSED;
