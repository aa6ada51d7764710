/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tier is a kind of boundary around a sandbox. Each implements this small table; coved drives it and owns the boxes.
 *
 * Life of a box:
 *   blank()   namespaces, id maps, control groups, loopback, /proc, /dev, /sys: all that doesn't depend on what it will be for.
 *             The body tells 'R' over its socket when it is ready
 *   dress()   a root file system on top of a template's layer, and the agent in it: 'X' when the agent runs, 'E' with the reason when not
 *   start()   somebody's: limits, name, the agent's first session
 *   SIGKILL through pidfd -> pidfd readable -> reaped by the keeper (coved/workers/keeper.h), whose child it is -> clean()
 *
 * Nothing before start() knows of a user, so all of it is done ahead of need: a create costs what start() costs.
 */
#pragma once

#include "base/err.h"
#include "base/id.h"
#include "kernel/cgroup/cgroup.h"
#include "kernel/netns.h"
#include "tier/inside.h"

struct pool;
struct pool_chain;
struct stage;

enum { TIER_GROUP_MAX = 16, TIER_NAME_MAX = 24, TIER_MESSAGE_MAX = 512 };

/* What boxes are made with; borrowed from coved for its whole life. */
struct tier_host {
    struct stage *stage;
    struct pool *pool;
    struct cgroup_tree *cgroups;
    int proc_fd;      /* /proc of the stage */
    int agent_fd;     /* sealed memfd with cove-agent */
    uid_t first_uid;  /* slot n owns 65,536 ids from first_uid + n * 65536 */
    int overlay_mode; /* enum overlay_mode, as probed */
    int net_fd;       /* our own network namespace */
};

struct box {
    uint32_t slot; /* set by coved before blank() */
    pid_t pid;     /* 0: none */
    int pidfd;     /* owned, -1: none */
    int sock;      /* owned: SOCK_SEQPACKET to the body, from 'X' on the agent's control socket */
    int userns_fd; /* owned until it is dressed */
    /* Owned; set by coved before blank(), or NETNS_NONE: a loopback of its own, nothing captured. `ns` goes once the body is born in it. */
    struct netns net;
    bool has_group;
    bool has_files;
    bool has_tree;
    uint32_t tree; /* of the stage */
    struct inside inside;
    char group[TIER_GROUP_MAX];
    char name[TIER_NAME_MAX];    /* host name inside, and name in the storage pool; unique */
    struct cgroup_limits limits; /* in force */
    uint64_t disk_bytes;         /* the same; 0: no limit */
};

/* What a box's root file system is made of, and the limits that it will probably be started with. */
struct tier_dress {
    const struct pool_chain *chain; /* the layers below its own files */
    bool from_layer;                /* its own files begin as those of chain->names[0], and lie above the rest */
    const char *from_kept;          /* or as those that are kept under this name; NULL */
    struct cgroup_limits limits;
    uint64_t disk_bytes;
};

struct tier_spec {
    const char *id;
    const char *template_id;
    struct cgroup_limits limits;
    uint64_t disk_bytes; /* 0: no limit; in force where the pool can */
};

/* Messages between coved and a body that the agent has not taken over yet; one byte, then text or descriptors. */
enum tier_message {
    TIER_MAPPED = 'M', /* to the body: its ids are set */
    TIER_READY = 'R',  /* from it: blank */
    TIER_DRESS = 'G',  /* to it: box.name, with the root mount */
    TIER_RUNS = 'X',   /* from it: the agent is executed next */
    TIER_FAILED = 'E', /* from it: errno as uint16_t, reason as text */
};

struct tier {
    const char *name;
    int (*blank)(const struct tier_host *host, struct box *box, struct err *err);
    int (*dress)(const struct tier_host *host, struct box *box, const struct tier_dress *how, struct err *err);
    /* *ret_session_fd: our end of the agent's first session. */
    int (*start)(const struct tier_host *host, struct box *box, const struct tier_spec *spec, int *ret_session_fd,
                 struct err *err);
    /* What the sandbox reads about itself follows this. age: how long it has been somebody's. */
    void (*sampled)(const struct tier_host *host, struct box *box, const struct cgroup_usage *usage, usec_t age);
    /* Of one that a coved of before has made. tree_fd: inside.tree_fd of then, or -1; becomes the box's. */
    void (*adopt)(const struct tier_host *host, struct box *box, int tree_fd);
    /* After the body was reaped: drops groups, files, descriptors. 0, or -EBUSY: again a little later. */
    int (*clean)(const struct tier_host *host, struct box *box);
};

extern const struct tier tier_container;

/* A session for the agent in the box: one end goes in, *ret_fd is ours. */
int tier_open_session(struct box *box, const char *id, const char *template_id, int *ret_fd,
                      struct err *err) WARN_UNUSED;
