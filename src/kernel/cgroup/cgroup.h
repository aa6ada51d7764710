/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control groups: one parent group for the service, one child group for each sandbox, named by the caller ([a-z0-9-]).
 * Version 2 where its controllers are to be had, else version 1 (then one directory for each controller). All functions
 * return 0 or -errno.
 */
#pragma once

#include "base/def.h"

struct buf;

enum { CGROUP_NAME_MAX = 32, CGROUP_PATH_MAX = 512 };

struct cgroup_tree;

struct cgroup_limits {
    uint64_t memory_bytes; /* 0: none. Swap is not given on top */
    uint32_t cpu_milli;    /* thousandths of a CPU; 0: none */
    uint32_t pids;         /* 0: none */
    bool serves_many;      /* its sockets are those of all sandboxes: version 1's limit of their buffers is not set */
};

struct cgroup_usage {
    uint64_t cpu_usec;
    uint64_t memory_bytes; /* with page cache */
    uint64_t cache_bytes;
    uint64_t shmem_bytes, active_bytes, inactive_bytes, active_file_bytes, inactive_file_bytes;
    uint64_t socket_bytes; /* of memory_bytes in version 2, beside them in version 1: buffers of TCP and UDP sockets */
    uint32_t pids;
    /* how often a process or thread could not be started for the limit; 0 where the kernel does not count */
    uint32_t pids_refused;
    uint32_t oom_kills;
};

/* What this machine's tree can limit, by probing the files that do it. */
struct cgroup_features {
    int version; /* 1 or 2 */
    bool memory, cpu, pids, freeze;
    bool reclaim; /* memory can be taken from a group that has no need of it now */
};

/* Finds the mounted hierarchies and makes the parent group `name` in them. force_version: 0, or 1 or 2 for tests. */
int cgroup_open(const char *name, int force_version, struct cgroup_tree **ret_tree) WARN_UNUSED;
void cgroup_close(struct cgroup_tree *t, bool remove_parent);

/*
 * The directory of the control group of this process, when systemd has given it to the service that this process is of
 * (Delegate=yes) and version 2 is all there is. -ENOENT: it has not, or nobody can tell.
 */
int cgroup_delegated(char ret_dir[static CGROUP_PATH_MAX]) WARN_UNUSED;

/*
 * As cgroup_open(), of version 2, with the parent group in that directory: what limits the service limits all of it.
 * Its processes, this one among them, move to a group `init` in it, since a group with processes gives its children no
 * limits.
 */
int cgroup_open_in(const char *dir, const char *name, struct cgroup_tree **ret_tree) WARN_UNUSED;

const struct cgroup_features *cgroup_features(const struct cgroup_tree *t);

int cgroup_make(struct cgroup_tree *t, const char *name) WARN_UNUSED;
int cgroup_remove(struct cgroup_tree *t,
                  const char *name) WARN_UNUSED; /* -EBUSY while a task is in it; gone already is success */
int cgroup_limit(struct cgroup_tree *t, const char *name, const struct cgroup_limits *limits) WARN_UNUSED;
int cgroup_limit_all(struct cgroup_tree *t, uint64_t pids) WARN_UNUSED; /* processes and threads of all groups */

/*
 * How a new process gets into its group. Version 2: at birth (group_fd is for CLONE_INTO_CGROUP). Version 1: it enters
 * by itself, through files that its parent opened, which is what counts; that may take milliseconds when the tree was
 * quiet before (it waits for an RCU grace period). fds not used are -1.
 */
enum { CGROUP_DOOR_MAX = 5 };
struct cgroup_door {
    int group_fd;
    int procs_fds[CGROUP_DOOR_MAX];
};
#define CGROUP_DOOR_NONE ((struct cgroup_door){-1, {-1, -1, -1, -1, -1}})
int cgroup_door_open(struct cgroup_tree *t, const char *name, struct cgroup_door *ret_door) WARN_UNUSED;
int cgroup_door_enter(const struct cgroup_door *d) WARN_UNUSED; /* nothing to do in version 2 */
void cgroup_door_close(struct cgroup_door *d);

int cgroup_attach(struct cgroup_tree *t, const char *name, pid_t pid) WARN_UNUSED;

int cgroup_usage(struct cgroup_tree *t, const char *name, struct cgroup_usage *ret_usage) WARN_UNUSED;
uint32_t cgroup_oom_kills(struct cgroup_tree *t,
                          const char *name); /* that figure alone: one file instead of five; 0 when it can't be read */

/*
 * Asked for; the kernel gets there soon, or never when a process can't be stopped where it is. cgroup_is_frozen(): 1
 * once nothing in it runs any more, 0 before. Version 1: who is frozen does not die of SIGKILL before it is thawed.
 */
int cgroup_freeze(struct cgroup_tree *t, const char *name, bool frozen) WARN_UNUSED;
int cgroup_is_frozen(struct cgroup_tree *t, const char *name) WARN_UNUSED;

/*
 * A part of a group, frozen while the rest of the group runs. It has no limits of its own, and goes with the group.
 * Processes begin in the group; cgroup_part_move() takes them to the part, which may be frozen, and back. It waits for
 * an RCU grace period, often 15 ms, if the tree was quiet before.
 */
int cgroup_part_make(struct cgroup_tree *t, const char *name) WARN_UNUSED; /* -EOPNOTSUPP: groups can't be frozen */
bool cgroup_part_is_there(struct cgroup_tree *t, const char *name);
int cgroup_part_processes(struct cgroup_tree *t, const char *name, bool in_part,
                          struct buf *ret_pids) WARN_UNUSED; /* lines; only those in the part, or only the others */
int cgroup_part_move(struct cgroup_tree *t, const char *name, pid_t pid, bool into) WARN_UNUSED;
int cgroup_part_freeze(struct cgroup_tree *t, const char *name, bool frozen) WARN_UNUSED;
int cgroup_part_is_frozen(struct cgroup_tree *t, const char *name) WARN_UNUSED;

/*
 * first: when the machine runs out of memory, it is taken from this group before others, where the kernel can (version
 * 1: the soft limit), and may be swapped out beyond what the group may swap otherwise (version 2).
 */
int cgroup_yield_memory(struct cgroup_tree *t, const char *name, bool first) WARN_UNUSED;

/*
 * Takes the group's memory now, as much as can be had: pages of files are dropped, or written out; what is no file's
 * goes to the swap, where there is any. For what stands still: what runs gets it back at once. Works for as long as
 * there is something to take: milliseconds for each 100 MiB that is clean. A signal ends it. Version 1:
 * memory.force_empty. Version 2: memory.reclaim (Linux 5.19). Nothing that a signal could leave in force, as
 * memory.high would be. -EOPNOTSUPP: not there.
 */
int cgroup_reclaim(struct cgroup_tree *t, const char *name) WARN_UNUSED;

/* SIGKILL to every process in the group. Where the kernel has no call for that, blocks until they are gone (half a
 * second at most, then -EBUSY). */
int cgroup_kill(struct cgroup_tree *t, const char *name) WARN_UNUSED;

/* Names of all child groups, for cleaning up after a crash. */
int cgroup_each(struct cgroup_tree *t, void (*fn)(void *ctx, const char *name), void *ctx) WARN_UNUSED;
