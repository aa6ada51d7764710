/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox reads about its machine: memory, processors, load and control group, in files of its tree
 * (tier/stage.h) that lie, read-only, over those of the kernel. Runtimes size themselves by them; nobody answers each
 * read, as a FUSE daemon would.
 *
 *  1. Limits are exact, and written before the sandbox is anybody's. What moves (free memory, time used, load) is that
 *     of the last sample.
 *  2. A file is written in place, for a mount has hold of it: who reads it meanwhile may see some digits of before and
 *     some of now.
 *  3. Processors: as many as the limit, rounded up, the least used ones. They are the agent's affinity and so
 *     everybody's, which is what sched_getaffinity(2) and `nproc` say. It is advice: a sandbox may undo it, and still
 *     gets no more time than its limit. `possible` and `present` stay the machine's, since programs size by them what
 *     they index with the number of the processor that they run on.
 *  4. The control group is shown in the layout of the machine's version. Runtimes look for a mount of it: there is one,
 *     below these files, where it can't be reached.
 */
#pragma once

#include "base/clock.h"
#include "kernel/cgroup/cgroup.h"

#include <sched.h>

struct inside_machine; /* what is true of the machine, and how many boxes use each processor */

/* While the host's files can be seen. 0 or -errno. */
int inside_machine_new(struct inside_machine **ret_machine) WARN_UNUSED;

/* The mounts of invariant 4: name k of the hierarchies with something to show, as options for mount ("cpu,cpuacct");
 * NULL: no more of them. */
const char *inside_hierarchy(const struct inside_machine *m, int version, size_t k);

/* Of one box; embedded. */
struct inside {
    int tree_fd;    /* owned: its tree, O_PATH; -1: none */
    cpu_set_t cpus; /* of a box with fewer than the machine; else empty */
    usec_t sampled; /* monotonic; 0: never */
    uint64_t cpu_usec;
    double load[3];
};
#define INSIDE_NONE ((struct inside){.tree_fd = -1})

/* A boot of its own, as far as programs can tell. 0 or -errno. */
int inside_boot(const struct inside *f) WARN_UNUSED;

/*
 * Moves to other processors if it must, and writes what follows from the limits. pid: of the box's first process; 0:
 * none yet. 0 or -errno.
 */
int inside_limit(struct inside *f, struct inside_machine *m, int version, const struct cgroup_limits *limits,
                 pid_t pid) WARN_UNUSED;

/* What moves. age: how long the sandbox has been there. */
void inside_sample(struct inside *f, const struct inside_machine *m, int version, const struct cgroup_limits *limits,
                   const struct cgroup_usage *usage, usec_t age);

/* Of one that a coved of before has made: which processors it has. */
void inside_adopt(struct inside *f, struct inside_machine *m, int tree_fd, pid_t pid);

void inside_close(struct inside *f, struct inside_machine *m);
