/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the two halves of cove-image live. Both end with their parent (SIGKILL), can't be traced or gain anything, and
 * start nothing.
 *
 *   fetch    an id without account, no capabilities; the host's network; an empty read-only file system as its root, and no call to open files
 *   unpack   a user namespace of 65,536 ids; mount, pid, ipc, uts and network namespaces of its own; the layer's directory is its root and all that it sees;
 *            capabilities over files alone
 */
#pragma once

#include "base/err.h"

/* In a child of our own: never to return from. Call with all descriptors but those that are to stay closed. */
int jail_fetch(uid_t uid, pid_t parent, struct err *err) WARN_UNUSED;

/* The parent's part of the second jail: the process. The child gets 0 and must call jail_unpack() first. */
struct jail_door {
    int ours, theirs; /* a socket pair: who closes both ends the wait */
};
int jail_door_open(struct jail_door *ret_door, struct err *err) WARN_UNUSED;
pid_t jail_spawn_unpack(const struct jail_door *door, uid_t ids_base, int *ret_pidfd, struct err *err) WARN_UNUSED;
/* Maps the child's ids and lets it in, with its directory. */
int jail_admit(const struct jail_door *door, pid_t child, uid_t ids_base, int root_fd, struct err *err) WARN_UNUSED;

/* In the child: waits to be admitted. *ret_root is its root directory. */
int jail_unpack(const struct jail_door *door, uint64_t max_bytes, int *ret_root, struct err *err) WARN_UNUSED;
