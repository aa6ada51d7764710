/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tier is a kind of boundary around a sandbox. Each implements this table; coved drives it, owns the boxes, and may
 * have boxes of several tiers at once.
 *
 * Life of a box:
 *   blank()   namespaces, id maps, control groups, loopback, /proc, /dev, /sys: all that doesn't depend on what it will be for.
 *             The body tells 'R' over its socket when it is ready
 *   dress()   a root file system on top of a template's layer, and the agent in it: 'X' when the agent runs, 'E' with the reason when not
 *   start()   somebody's: limits, name, the agent's first session
 *   SIGKILL through pidfd -> pidfd readable -> reaped by the keeper (coved/workers/keeper.h), whose child it is -> clean()
 *
 * Nothing before start() knows of a user, so all of it is done ahead of need: a create costs what start() costs.
 *
 * A session is a byte stream to the agent (wire/proto.h), however it gets there. Functions that a job calls, in a child
 * of coved, say so; the others don't block. What returns int without a struct err returns 0 or -errno.
 */
#pragma once

#include "base/clock.h"
#include "base/err.h"
#include "base/id.h"
#include "kernel/netns.h"
#include "wire/tiers.h"

struct cgroup_tree;
struct container_birth;
struct files_plan;
struct inside;
struct pool;
struct stage;
struct sup_nest;

enum { TIER_GROUP_MAX = 16, TIER_NAME_MAX = 24, TIER_MESSAGE_MAX = 512, TIER_VERSION_MAX = 96 };

/* What boxes are made with; borrowed from coved for its whole life. */
struct tier_host {
    struct stage *stage;
    struct pool *pool;
    struct cgroup_tree *cgroups;
    int proc_fd;             /* /proc of the stage */
    int agent_fd;            /* sealed memfd with cove-agent */
    uid_t first_uid;         /* slot n owns 65,536 ids from first_uid + n * 65536 */
    int overlay_mode;        /* enum overlay_mode, as probed */
    int net_fd;              /* our own network namespace */
    const char *run_dir;     /* of this boot */
    char *const *host_paths; /* directories of the host that may be mounted; absolute, clean */
    size_t n_host_paths;
};

struct tier_limits {
    uint64_t memory_bytes; /* 0: none, as below */
    uint32_t cpu_milli;    /* thousandths of a CPU */
    uint32_t pids;
};

struct tier_usage {
    uint64_t cpu_usec;
    uint64_t memory_bytes, cache_bytes; /* the first with the second */
    uint64_t disk_bytes;                /* 0: not known */
    uint64_t socket_bytes;              /* buffers of its sockets */
    uint32_t pids, pids_refused, oom_kills;
};

struct box {
    uint32_t slot;                 /* set by coved before blank() */
    pid_t pid;                     /* 0: none */
    int pidfd;                     /* owned, -1: none */
    int sock;                      /* owned: SOCK_SEQPACKET to the body, from 'X' on the agent's control socket */
    int userns_fd;                 /* owned until it is dressed */
    struct container_birth *birth; /* owned; NULL: its body has all that it needs */
    /* Owned; set by coved before blank(), or NETNS_NONE: a loopback of its own, nothing captured. `ns` goes once the
     * body is born in it. */
    struct netns net;
    bool has_group;
    bool has_files;
    bool has_tree;
    bool sees_host;        /* tier/process.h */
    uint32_t tree;         /* of the stage */
    bool awaits;           /* dressed but for its memory */
    bool is_restored;      /* its first session says so to the agent (wire/wake.h) */
    struct inside *inside; /* owned; NULL: none */
    pid_t stiller;         /* tier/gvisor_still.c; 0: none */
    int carried_fd;        /* borrowed: what adopt() is to be given, -1: nothing */
    char group[TIER_GROUP_MAX];
    char name[TIER_NAME_MAX];  /* host name inside, and name in the storage pool; unique */
    struct tier_limits limits; /* in force */
    uint64_t disk_bytes;       /* the same; 0: no limit */
};

/* What a box's root file system is made of, and the limits that it will probably be started with. */
struct tier_dress {
    const struct files_plan *files; /* tier/files.h */
    struct tier_limits limits;
    uint64_t disk_bytes;
    int memory_fd; /* borrowed: the directory that a checkpoint() has filled; the box goes on from there. -1: it starts an agent */
    bool awaits_memory; /* there is none yet: see tier.waits_for_memory */
    bool is_ahead;      /* nobody waits for it */
};

/* A checkpoint in the making. */
struct tier_saving {
    int dir_fd;  /* borrowed: empty, to be filled with plain files that everybody may read */
    bool ends;   /* the box stands still afterwards, and is killed; else it goes on */
    bool passes; /* of no use after a crash of the machine: memory_save() doesn't wait for the disk */
    int (*files)(
        void *
            ctx); /* clones its files: to be called once, while it stands still. NULL: they are kept as they are then */
    void *ctx;
};

struct tier_spec {
    const char *id;
    const char *template_id;
    struct tier_limits limits;
    uint64_t disk_bytes; /* 0: no limit; in force where the pool can */
};

/* A volume for a box, or a directory of the host that tier_host.host_paths allows. */
enum { TIER_MOUNT_PIDFD, TIER_MOUNT_HOST_NS, TIER_MOUNT_HOST_ROOT, TIER_MOUNT_FDS };
struct tier_mount {
    const char *volume,
        *source;      /* volume "": source is a path of the host; else source is a path in the volume, or "" */
    const char *path; /* absolute and clean, inside */
    bool read_only;
    /*
     * of the host: who must own it; their files appear as the user's inside, all others as nobody's. UINT32_MAX: as it
     * is
     */
    uid_t uid;
    pid_t pid; /* of the box */
    /*
     * borrowed: the box's pidfd, so that no other namespace is entered by mistake; the host's mount namespace and root
     */
    int fds[TIER_MOUNT_FDS];
};

/* Namespaces within those of a box, for some of its processes. */
enum { TIER_NEST_PIDFD, TIER_NEST_SESSION, TIER_NEST_AGENT, TIER_NEST_FDS };
struct tier_nest {
    const char *group; /* of the box, as the next ones */
    const char *box, *stands_on;
    pid_t pid;
    uid_t base; /* the host's id of its root */
    const struct sup_nest *asked;
    /* Borrowed: the box's pidfd, so that what is entered is no other's; the session's end for the agent; the agent. */
    int fds[TIER_NEST_FDS];
};

/* What a tier can do on this machine, as probed. */
struct tier_powers {
    bool reclaim;                   /* takes memory from a box that stands still */
    bool memory;                    /* checkpoint(), and dress() with what that has made */
    char version[TIER_VERSION_MAX]; /* memory: of what makes and reads it; one goes on only from its own */
};

/* Messages between coved and a body that the agent has not taken over yet; one byte, then text or descriptors. */
enum tier_message {
    TIER_MAPPED = 'M', /* to the body: its ids are set */
    TIER_READY = 'R',  /* from it: blank */
    TIER_DRESS = 'G',  /* to it: box.name, with the root mount */
    TIER_AHEAD = 'A',  /* the same, with memory, of which nothing runs before a session is offered */
    TIER_RUNS = 'X',   /* from it: the agent is executed next */
    TIER_FAILED = 'E', /* from it: errno as uint16_t, reason as text */
};

/* In a body: its end of the socket, by which it says what it failed at and ends, or which message comes next; it ends,
 * too, when coved is gone. */
enum { TIER_BODY_SOCK = 3 };
NORETURN void tier_body_fail(const char *step, int error); /* an errno of either sign */
void tier_body_must(int r, const char *step);              /* not a negative one */
void tier_body_tell(char what);

struct tier {
    const char *name, *summary; /* summary: what it is, in a line */
    uint32_t ready;             /* at most this many spares are made */
    bool is_sized; /* with the memory that it is dressed with: one that waits is for requests of that size alone */
    bool halts;    /* dressed ahead with saved memory, nothing of that runs before start() */
    /*
     * dress() takes a box before there is memory to go on from, on the layer below that of the memory. It says that it
     * runs; a second dress() brings the memory with its layer, of which the box gets a copy, and it says so again.
     */
    bool waits_for_memory;
    bool is_named;           /* never had by who names none */
    bool writes_late;        /* its files are only complete while it is frozen */
    enum netns_kind network; /* a gate, where its network stack is not the kernel's of its namespace */
    /*
     * What it can do here. -1: it can't be had; err says what is missing and what would help. While the host's files
     * can be seen; host: as far as it is known then, NULL: not at all.
     */
    int (*probe)(const struct tier_host *host, struct tier_powers *ret_powers, struct err *err);

    /* What it does here, tried out for some seconds: in words. NULL: nothing that probe() would not know. */
    int (*try_out)(char *ret_seen, size_t size, struct err *err);

    int (*blank)(const struct tier_host *host, struct box *box, struct err *err);
    void (*born)(struct box *box); /* it has told that it is ready; NULL: nothing to do */
    int (*dress)(const struct tier_host *host, struct box *box, const struct tier_dress *how, struct err *err);
    int (*start)(const struct tier_host *host, struct box *box, const struct tier_spec *spec, int *ret_session_fd,
                 struct err *err);
    /* A new session, which takes the place of the one before; *ret_fd: our end of it. */
    int (*session)(struct box *box, const char *id, const char *template_id, int *ret_fd, struct err *err);
    /* Of one that a coved of before has made. carried_fd: as it was then, or -1; becomes the box's. */
    void (*adopt)(const struct tier_host *host, struct box *box, int carried_fd);
    /* After the body was reaped: drops groups, files, descriptors. 0, or -EBUSY: again a little later. */
    int (*clean)(const struct tier_host *host, struct box *box);

    /* Asked for; is_frozen(): 1 once nothing in it runs any more, 0 before. Frozen, it may not die of SIGKILL before it
     * is thawed. */
    int (*freeze)(const struct tier_host *host, struct box *box, bool frozen);
    int (*is_frozen)(const struct tier_host *host, struct box *box);
    int (*yield)(const struct tier_host *host, struct box *box, bool first); /* its memory goes before others' */
    int (*reclaim)(const struct tier_host *host, struct box *box); /* takes it now; a job's, NULL: see tier_powers */

    /* age: how long it has been somebody's. What the sandbox reads about itself follows the figures. */
    int (*usage)(const struct tier_host *host, struct box *box, usec_t age, struct tier_usage *ret_usage);
    uint32_t (*oom_kills)(const struct tier_host *host, struct box *box); /* that figure alone, which costs less */

    /* Makes its own files a layer; it is frozen while this runs. A job calls it. */
    int (*snapshot)(const struct tier_host *host, const char *box, const char *stands_on, const char *layer);
    /*
     * -EACCES: not allowed. -EPERM: another's. -ESRCH: uid has no account. -ELOOP, -ENOENT, -ENOTDIR: the path, or the
     * volume. -EOPNOTSUPP: its file system shows no other owners than it has. A job's.
     */
    int (*mount)(const struct tier_host *host, const struct tier_mount *m);
    /*
     * An agent of its own in new namespaces inside; it ends with its session, or with the box. -ENOENT, -ENOTDIR,
     * -ELOOP: a path, or the layer of its root. -EMEDIUMTYPE: that is a machine's disk. A job's. NULL: it has none of
     * that.
     */
    int (*nest)(const struct tier_host *host, const struct tier_nest *nest);
    /*
     * Memory and processes into a directory. Whoever has the session has closed it before. On failure the box goes on;
     * -EBUSY: something in it can't be saved. go_on(): the box does so, whatever a checkpoint() that died has left.
     * Jobs', which have the box's pidfd, sock and carried_fd. NULL: it has none of that.
     */
    int (*checkpoint)(const struct tier_host *host, const struct box *box, const struct tier_saving *saving);
    int (*go_on)(const struct tier_host *host, const struct box *box);
};

extern const struct tier tier_process, tier_container, tier_gvisor, tier_microvm;

/* All that are built in, weakest first; NULL at the end. */
extern const struct tier *const tiers[];

/* The same as they are on this machine. */
struct tier_set {
    struct tier_list list;
    const struct tier *tiers[TIER_LIST_MAX];
    struct tier_powers powers[TIER_LIST_MAX];
};

/* host: as probe() has it. allowed: names, of which none means all; minimum: the weakest that is allowed, NULL: any.
 * ERR_INVALID_ARGUMENT: an unknown one. */
int tier_set_probe(const struct tier_host *host, char *const *allowed, size_t n_allowed, const char *minimum,
                   struct tier_set *ret_set, struct err *err) WARN_UNUSED;
int tier_set_choose(const struct tier_set *set, const char *name, const struct tier **ret_tier,
                    struct err *err) WARN_UNUSED;                         /* errors: tier_list_choose() */
bool tier_set_needs(const struct tier_set *set, enum netns_kind network); /* one that is there does */
const struct tier_powers *tier_set_powers(const struct tier_set *set, const struct tier *tier);
