/* SPDX-License-Identifier: Apache-2.0 */
/* Namespaces: making a process in new ones, mapping its ids, naming its host, bringing its loopback up. */
#pragma once

#include "base/def.h"

enum { NAMESPACE_IDS = 65536 };

/*
 * A child in new user, mount, pid, ipc, uts and network namespaces, through clone3(). Returns its pid (0 in the child) or -errno.
 * cgroup_fd >= 0 places it in that cgroup v2 group at birth. Until namespace_map_ids() the child has no ids and must do nothing.
 */
pid_t namespace_spawn(int cgroup_fd, int *ret_pidfd) WARN_UNUSED;

/* Maps 0..65535 of the child to base..base+65535. proc_fd: a directory descriptor of /proc. */
int namespace_map_ids(int proc_fd, pid_t pid, uid_t base) WARN_UNUSED;

/* The child's user namespace, for idmapped mounts. */
int namespace_open_user(int proc_fd, pid_t pid, int *ret_fd) WARN_UNUSED;

/* In the child: become root of the new user namespace. */
int namespace_become_root(void) WARN_UNUSED;

/* In the child: lo up. */
int namespace_loopback_up(void) WARN_UNUSED;
