/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a container sandbox: what runs in the new namespaces until cove-agent takes over. */
#pragma once

#include "base/def.h"

struct box;
struct cgroup_door;
struct tier_host;

/* What of /proc shows the machine and not the sandbox, or acts on it: it is covered wherever a procfs is mounted for a
 * sandbox. */
enum cover {
    COVER_FILE,      /* by nothing */
    COVER_TOLD,      /* by what it is told of itself; always there */
    COVER_DIRECTORY, /* by nothing */
    COVER_READ_ONLY, /* by itself */
};
struct container_cover {
    const char *name; /* below /proc; NULL at the end */
    enum cover how;
};
extern const struct container_cover container_covers[];

/*
 * Never returns. sock: the body's end. door: to its control group; it enters by itself, because that may wait, which
 * coved can't. box: its tree and whether it was born in its network are settled.
 */
NORETURN void container_child(int sock, const struct tier_host *host, const struct cgroup_door *door,
                              const struct box *box);
