/* SPDX-License-Identifier: Apache-2.0 */
/* Namespaces: making a process in new ones, mapping its ids, its network. */
#pragma once

#include "base/def.h"

enum { NAMESPACE_IDS = 65536 };

/*
 * A child in new user, mount, pid, ipc and uts namespaces, through clone3(). Returns its pid (0 in the child) or
 * -errno. cgroup_fd >= 0 places it in that cgroup v2 group at birth. Until namespace_map_ids() the child has no ids and
 * must do nothing.
 *
 * owner: an id on the host, another for each child. What the users of a namespace take of inotify instances, pending
 * signals, message queues and locked memory is charged to whom it belongs, too: were that the caller, then all children
 * and the host's root would share one purse. Changes the calling thread's effective id for its duration; the child
 * keeps it.
 *
 * flags: more of clone3()'s. CLONE_NEWNET: a network namespace without anything in it. CLONE_PARENT: the child's parent
 * is the caller's parent, so it outlives the caller, and only that parent can wait for it. CLONE_FILES: until the child
 * calls namespace_take_files().
 */
pid_t namespace_spawn(int cgroup_fd, uid_t owner, uint64_t flags, int *ret_pidfd) WARN_UNUSED;

/* In the child: what is open below FD_LASTING (base/fd.h), as descriptors of its own, and nothing else. */
int namespace_take_files(void) WARN_UNUSED;

/* The same with the caller's ids and capabilities: new mount, pid, ipc and uts namespaces, a sibling. */
pid_t namespace_spawn_root(int cgroup_fd, int *ret_pidfd) WARN_UNUSED;

/* fork(), but the child's parent is the caller's parent, as above. */
pid_t namespace_fork_sibling(int *ret_pidfd) WARN_UNUSED;

/* Maps 0..65535 of the child to base..base+65535. proc_fd: a directory descriptor of /proc. */
int namespace_map_ids(int proc_fd, pid_t pid, uid_t base) WARN_UNUSED;

/*
 * How soon the out-of-memory killer takes the child. Set from outside by somebody with CAP_SYS_RESOURCE, it is also the
 * least that the child and its children can set themselves. 0 as well when it may not be lowered to that.
 */
int namespace_set_oom_score(int proc_fd, pid_t pid, int score) WARN_UNUSED;

/* The child's user namespace, for idmapped mounts. */
int namespace_open_user(int proc_fd, pid_t pid, int *ret_fd) WARN_UNUSED;

/*
 * A user namespace for a mount in which uid of the host, and its first group, are `inside` of the child's ids, and
 * nobody else is anybody. -ESRCH: the files that can be seen name no such account, or one of the group root.
 */
int namespace_make_user(int proc_fd, pid_t pid, uid_t uid, unsigned inside, int *ret_fd) WARN_UNUSED;

/* In the child: become root of the new user namespace. */
int namespace_become_root(void) WARN_UNUSED;

/*
 * In the child: a network namespace of its own, lo up. Not made by namespace_spawn(): it takes as long as all the
 * others together, and waits where those that end are taken down; the child has the time, its parent has not.
 */
int namespace_network(void) WARN_UNUSED;
