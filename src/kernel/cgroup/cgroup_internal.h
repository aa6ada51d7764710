/* SPDX-License-Identifier: Apache-2.0 */
/* Shared between cgroup.c and the two versions. */
#pragma once

#include "base/buf.h"
#include "kernel/cgroup/cgroup.h"

enum { CGROUP_DIRS_MAX = CGROUP_DOOR_MAX };

struct cgroup_ops {
    int (*limit)(struct cgroup_tree *t, const char *name, const struct cgroup_limits *limits);
    int (*usage)(struct cgroup_tree *t, const char *name, struct cgroup_usage *ret_usage);
    uint32_t (*oom_kills)(struct cgroup_tree *t, const char *name);
    int (*freeze)(struct cgroup_tree *t, const char *name, bool frozen);
    int (*is_frozen)(struct cgroup_tree *t, const char *name);
    int (*yield_memory)(struct cgroup_tree *t, const char *name, bool first);
    int (*reclaim)(struct cgroup_tree *t, const char *name);
};

struct cgroup_tree {
    const struct cgroup_ops *ops;
    struct cgroup_features features;
    char parent[CGROUP_NAME_MAX];
    int mount_fds[CGROUP_DIRS_MAX]; /* roots of the hierarchies */
    /* the parent group in each; version 1: indexed by controller, -1 where there is none */
    int parent_fds[CGROUP_DIRS_MAX];
    size_t n;
    int freezer_fd; /* borrowed: the parent group where groups are frozen; -1: they can't be */
};

int cgroup_part_remove(struct cgroup_tree *t, const char *name);

int cgroup_v1_open(struct cgroup_tree *t);
int cgroup_v2_open(struct cgroup_tree *t);
int cgroup_v2_open_at(struct cgroup_tree *t, const char *top); /* with the parent group in this directory */

/* From /proc/PID/cgroup: the path of a process that is of a service and in its own group. -ENOENT: it is not, or
 * version 1 is there, too. */
int cgroup_of_service(struct str text, struct str *ret_path) WARN_UNUSED;

/* Opens root_path and makes and opens the parent group in it, as entry t->n. */
int cgroup_add_hierarchy(struct cgroup_tree *t, size_t index, const char *root_path);

/* Group files: "<name>/<file>" below a parent descriptor. */
int cgroup_write(int parent_fd, const char *name, const char *file, const char *text);
int cgroup_write_u64(int parent_fd, const char *name, const char *file, uint64_t v);
int cgroup_read_file(int parent_fd, const char *name, const char *file, struct buf *b);
int cgroup_read_u64(int parent_fd, const char *name, const char *file, uint64_t *ret_v);
int cgroup_read_key(int parent_fd, const char *name, const char *file, const char *key,
                    uint64_t *ret_v); /* "key N" lines */
/* Of memory.stat, in one reading; cache: what the version calls it. */
int cgroup_read_memory(int parent_fd, const char *name, const char *cache, struct cgroup_usage *usage);
int cgroup_read_pids(int parent_fd, const char *name, struct cgroup_usage *usage) WARN_UNUSED;
int cgroup_limit_pids(int parent_fd, const char *name, uint32_t pids) WARN_UNUSED;  /* 0: no limit */
int cgroup_is(int parent_fd, const char *name, const char *file, const char *text); /* 1: its first line is `text` */
bool cgroup_has(int parent_fd, const char *file);                                   /* in the parent group itself */
