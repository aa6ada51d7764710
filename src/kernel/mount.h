/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mounts as descriptors (the mount API of Linux 5.2 and later). A detached mount belongs to its descriptor and goes
 * with it unless it was attached by mount_attach(). All results are close-on-exec; all functions return 0 or -errno.
 */
#pragma once

#include "base/def.h"

/*
 * A detached copy of the mount at path (the directory `path` itself becomes its root). A private one, even of a mount
 * that is shared, as a host's are: what is mounted over the copy would come to lie over the original, too.
 */
int mount_clone(int dirfd, const char *path, int *ret_fd) WARN_UNUSED;

/*
 * The same with all that is mounted below, and attributes on all of it. The last component may be a link: what it
 * leads to is cloned.
 */
int mount_clone_tree(int dirfd, const char *path, uint64_t attrs, int *ret_fd) WARN_UNUSED;

/*
 * Sets mount attributes (MOUNT_ATTR_RDONLY, _NOSUID, _NODEV, _NOEXEC) on a detached mount. With userns_fd >= 0 its
 * ownership is shifted by that user namespace's map (idmapped mount, Linux 5.12; tmpfs since 6.3, -EINVAL before).
 */
int mount_set(int fd, uint64_t attrs, int userns_fd) WARN_UNUSED;

/* Attaches a detached mount at a path; "": at what dirfd is. */
int mount_attach(int fd, int dirfd, const char *path) WARN_UNUSED;

/* A new, detached instance of a file system. options: alternating key, value (value NULL: a flag), ended by NULL. */
int mount_new(const char *fs_type, const char *const *options, uint64_t attrs, int *ret_fd) WARN_UNUSED;

/* Binds a path onto another of the same mount namespace; read_only makes the new mount so. */
int mount_bind(const char *from, const char *to, bool read_only) WARN_UNUSED;

/* Makes the directory behind `fd` the root of the calling process's mount namespace and drops all that was mounted
 * before. */
int mount_pivot(int fd) WARN_UNUSED;

/* A private copy of the mount table for this process: changes go neither way. */
int mount_unshare(void) WARN_UNUSED;
