/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tier is a kind of boundary around a sandbox. Each implements this small table; coved drives it and owns the boxes.
 *
 * Life of a box:  tier->blank()  -> the body tells 'R' over its socket: ready, belongs to nobody yet
 *                 tier->start()  -> 'X': its agent runs from here on;  'E': it failed, with the reason
 *                 SIGKILL through pidfd, pidfd readable -> reaped by coved -> tier->clean()
 *
 * A blank is all of a sandbox that doesn't depend on what it will be for: namespaces, id maps, control groups, loopback, /proc, /dev and
 * /sys. Making one takes about a millisecond, and more when the control groups were quiet; it is done ahead of need.
 */
#pragma once

#include "base/err.h"
#include "base/id.h"

struct cgroup_tree;
struct pool;

enum { TIER_GROUP_MAX = 16, TIER_MESSAGE_MAX = 512 };

/* What boxes are made with; borrowed from coved for its whole life. */
struct tier_host {
    struct pool *pool;
    struct cgroup_tree *cgroups;
    int proc_fd;      /* /proc of the stage */
    int agent_fd;     /* sealed memfd with cove-agent */
    uid_t first_uid;  /* slot n owns 65,536 ids from first_uid + n * 65536 */
    int overlay_mode; /* enum overlay_mode, as probed */
};

struct box {
    uint32_t slot;    /* set by coved before blank() */
    pid_t pid;        /* 0: none */
    int pidfd;        /* owned, -1: none */
    int sock;         /* owned: SOCK_SEQPACKET to the body, later the agent's control socket */
    int userns_fd;    /* owned until the box was started */
    bool has_group;
    bool has_files;
    char group[TIER_GROUP_MAX];
    char id[ID_SANDBOX_LEN + 1]; /* "" while blank */
};

struct tier_spec {
    const char *id;
    const char *template_id;
    int layer_fd;     /* borrowed: O_PATH directory of the root file system's layer */
    uint64_t memory_bytes;
    uint32_t cpu_milli;
    uint32_t pids;
};

/* Messages on a box's socket; one byte, then text or a struct. */
enum tier_message {
    TIER_MAPPED = 'M',  /* to the body: ids and groups are set */
    TIER_READY = 'R',   /* from it: blank */
    TIER_GO = 'G',      /* to it: struct container_go, with the root mount */
    TIER_RUNS = 'X',    /* from it: the agent is executed next */
    TIER_FAILED = 'E',  /* from it: reason as text */
    TIER_SESSION = 'S', /* to the agent: a new session socket */
};

struct tier {
    const char *name;
    int (*blank)(const struct tier_host *host, struct box *box, struct err *err);
    int (*start)(const struct tier_host *host, struct box *box, const struct tier_spec *spec, struct err *err);
    /* After the body was reaped: drops groups, files, descriptors. 0, or -EBUSY: again a little later. */
    int (*clean)(const struct tier_host *host, struct box *box);
};

extern const struct tier tier_container;

/* A session for the agent in the box: one end goes in, *ret_fd is ours. */
int tier_open_session(struct box *box, int *ret_fd, struct err *err) WARN_UNUSED;
