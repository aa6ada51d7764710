/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What cove-api asks of coved, over one SOCK_SEQPACKET pair: each message is one struct below, exactly as long as its
 * type says, with the descriptors that its comment names. coved answers every request once, with the same tag, in any
 * order, and reports ends on its own.
 *
 * coved may die and be started again while cove-api goes on; the socket stays the same. The next coved says
 * SUP_RESTARTED and drops what it finds in the socket until cove-api answers SUP_AGAIN with the same tag. Behind that
 * come all requests that have no answer yet, with SUP_REPEATED in their type; those that had a descriptor are not
 * repeated. What was done already is not done twice. So each request is answered once, by whichever coved.
 *
 * Both are our processes on one machine, started by the same coved: native byte order and alignment. coved treats every
 * field as hostile all the same (a worker may have been taken over): lengths are fixed, texts are checked against their
 * grammar, numbers against limits.
 */
#pragma once

#include "base/def.h"
#include "base/id.h"

enum {
    SUP_VERSION = 14, /* of what follows: coved tells cove-api, which refuses another one */
    SUP_TEXT_MAX = 256,
    SUP_KEY_LEAST = 16, /* signs of the clients' key; those of tenants are longer */
    SUP_DIGEST_MAX = 72,
    SUP_TIER_MAX = 16,    /* "container", NUL-terminated */
    SUP_VOLUME_MAX = 28,  /* "vol-" and 20 of [a-z0-9], NUL-terminated */
    SUP_VOLUMES_MAX = 32, /* that are asked about at a time */
    SUP_PATH_MAX = 1024,
    SUP_SANDBOXES_MAX = 4096,
    SUP_SEEN_TEXT = 4096,
    SUP_SEEN_PER_SEC = 200, /* of each kind are told of */
    SUP_SEEN_SECONDS = 2,   /* so seldom coved tells of many programs */
    SUP_NEST_PATH_MAX = 256,
    SUP_NEST_BINDS_MAX = 8,
    SUP_NEST_NAME_MAX = 33,
};

enum sup_type {
    SUP_CREATE = 1, /* struct sup_create -> SUP_CREATED with a session socket: the agent runs */
    SUP_KILL,   /* struct sup_id -> SUP_DONE once SIGKILL was sent to all of it; SUP_ENDED follows when all is gone */
    SUP_LIST,   /* struct sup_head -> SUP_LISTED for each live sandbox, then SUP_DONE */
    SUP_ATTACH, /* struct sup_id -> SUP_ATTACHED with a new session socket; the session before it is gone */
    SUP_USAGE,  /* struct sup_id -> SUP_USED */

    /*
     * struct sup_pause -> SUP_DONE. With memory: once no process of it runs any more. Otherwise once all of it is gone
     * and its files are kept; no SUP_ENDED comes for that, and from then on SUP_LIST tells of it as SUP_KEPT or
     * SUP_ON_DISK. Before SUP_PAUSE_DISK the session is closed.
     */
    SUP_PAUSE,
    /*
     * struct sup_id -> SUP_DONE: its processes run again. One whose files are kept comes back by SUP_CREATE; this says
     * then that its start is done. Until it is answered they are kept again should its first process end, which no
     * SUP_ENDED tells (after this: ERR_ABORTED or ERR_NOT_FOUND), and what was saved of its memory stays.
     */
    SUP_RESUME,
    SUP_SNAPSHOT, /* struct sup_snapshot -> SUP_STORED. Of a running sandbox, which is frozen while it is taken, or of one that is paused in either way */
    SUP_WARM,     /* struct sup_warm -> SUP_DONE: from now on `count` sandboxes are kept ready on this layer */

    SUP_LAYERS,     /* struct sup_head -> SUP_LAYER for each in the pool, then SUP_DONE */
    SUP_LAYER_DROP, /* struct sup_layer_id -> SUP_DONE; ERR_FAILED_PRECONDITION while a sandbox or another layer uses it */
    /*
     * struct sup_layer_id, with one descriptor -> SUP_DONE once the layer is in the pool. A process that fetches and
     * unpacks an image is started, and talks over the descriptor with whoever has its other end (image/job.h).
     */
    SUP_IMAGE,
    SUP_DIFF, /* struct sup_diff, with one descriptor that is written to (wire/diff.h) -> SUP_DONE at its end */

    SUP_VOLUMES,      /* struct sup_head -> SUP_VOLUME for each, without figures, then SUP_DONE */
    SUP_VOLUME_MAKE,  /* struct sup_volume_id -> SUP_DONE */
    SUP_VOLUME_DROP,  /* struct sup_volume_id -> SUP_DONE; ERR_FAILED_PRECONDITION while a sandbox has it mounted */
    SUP_VOLUME_MOUNT, /* struct sup_volume_mount -> SUP_DONE; the path must be a directory inside already */

    SUP_POOL, /* struct sup_head -> SUP_POOLED */

    /* struct sup_volumes -> SUP_VOLUME for each of these that is in the pool, then SUP_DONE. Who wants the figures of
     * many asks so for some after the other. */
    SUP_VOLUME_USAGE,

    /* struct sup_snapshot -> SUP_DONE: what is kept of a sandbox that is paused without memory are the files of this
     * layer, on what lies below it */
    SUP_REWIND,

    /*
     * struct sup_nest, with one descriptor, a connected stream socket -> SUP_DONE once an agent of its own answers
     * there, in namespaces of its own inside the sandbox. It ends when the other end is closed, and with the sandbox.
     * ERR_UNIMPLEMENTED: not in that tier.
     */
    SUP_NEST,

    /* struct sup_owner -> for the owner itself SUP_VOLUME of no name, where the pool counts what it has; then SUP_DONE */
    SUP_OWNER,

    SUP_AGAIN, /* struct sup_head, no answer: the tag is that of SUP_RESTARTED */

    SUP_CREATED = 64,
    SUP_DONE,
    SUP_LISTED,
    SUP_ATTACHED,
    SUP_USED,
    SUP_ENDED, /* struct sup_ended, tag 0: unasked */
    SUP_STORED,
    SUP_LAYER,
    SUP_VOLUME,
    SUP_POOLED,
    SUP_EGRESS, /* struct sup_head, tag 0, with one descriptor: unasked; a new socket to cove-egress (wire/egress.h), the one before is dead */
    SUP_RESTARTED, /* struct sup_head, unasked: this is another coved. The tag is for SUP_AGAIN */
    SUP_SEEN,      /* struct sup_seen, several: unasked; before SUP_ENDED of that sandbox */
};

enum { SUP_REPEATED = 1 << 30 }; /* beside the type of a request */

struct sup_head {
    uint32_t type; /* enum sup_type */
    uint32_t tag;  /* chosen by cove-api, echoed */
};

struct sup_id {
    struct sup_head head;
    char id[ID_SANDBOX_LEN + 1];
};

struct sup_create {
    struct sup_head head;
    char id[ID_SANDBOX_LEN + 1];
    /* "sha256-<64 hex>" or "layer-<20 of a-z0-9>", NUL-terminated; the pool knows which layers are below it. */
    char layer[SUP_DIGEST_MAX];
    char template_id[64];    /* for COVE_TEMPLATE_ID inside; [A-Za-z0-9._-]* */
    uint64_t memory_bytes;   /* 0: no limit */
    uint32_t cpu_milli;      /* thousandths of a CPU; 0: no limit */
    uint32_t pids;           /* 0: the service's default */
    uint64_t disk_bytes;     /* 0: no limit; enforced when the pool can */
    uint32_t kept;           /* 1: from the files that are kept under its id; `layer` is "" then */
    char tier[SUP_TIER_MAX]; /* which boundary; never another one */
    uint32_t memory;         /* 1: it goes on from what is saved with the layer, or with the kept files */
    uint32_t once;           /* 1: nobody will ask for this layer later */
    uint64_t owner;          /* of struct sup_owner; 0: nobody */
};

enum sup_pause_kind {
    /*
     * Its processes end, only its files are kept. Of one that is kept: not its memory; a create that has not been
     * answered is refused.
     */
    SUP_PAUSE_FILES = 0,
    SUP_PAUSE_MEMORY = 1, /* its processes are frozen and stay in memory */
    SUP_PAUSE_DISK = 2,   /* its memory is saved, its files are kept */
    SUP_PAUSE_BACK = 3,   /* as FILES, of one that was to go on from saved memory and never ran: that is kept too */
};

struct sup_pause {
    struct sup_head head;
    char id[ID_SANDBOX_LEN + 1];
    uint32_t kind; /* enum sup_pause_kind */
};

enum sup_memory {
    SUP_MEMORY_NOT,
    SUP_MEMORY_LASTS,
    SUP_MEMORY_PASSES, /* for those that are made of it next: need not survive the machine's own end */
    SUP_MEMORY_KINDS,
};

struct sup_snapshot {
    struct sup_head head;
    char id[ID_SANDBOX_LEN + 1];
    char layer[SUP_DIGEST_MAX]; /* the new layer that is made of its files: "layer-<20 of a-z0-9>" */
    char unlike
        [SUP_DIGEST_MAX]; /* nothing is made when its files did not change since this one of it was; "": is always made */
    uint32_t memory;      /* enum sup_memory. Saved: it runs, and its session is closed */
};

struct sup_stored {
    struct sup_head head;
    int32_t code; /* 0, or err_pack() with the message; the rest is zero then */
    char message[SUP_TEXT_MAX];
    uint64_t frozen_usec; /* how long it was frozen for this; 0 when it was paused */
    uint64_t total_usec;
    uint64_t layer_bytes;  /* the layer's size: the sandbox's own files; 0: not known */
    uint32_t is_unchanged; /* so there is no such layer */
};

struct sup_warm {
    struct sup_head head;
    char layer[SUP_DIGEST_MAX];
    uint32_t count; /* 0: none any more */
    uint64_t memory_bytes;
    uint32_t cpu_milli, pids; /* as in sup_create */
    uint64_t disk_bytes;
    char tier[SUP_TIER_MAX]; /* the same */
};

struct sup_layer_id {
    struct sup_head head;
    char layer[SUP_DIGEST_MAX];
    uint64_t owner; /* SUP_IMAGE; as in sup_create */
};

struct sup_layer {
    struct sup_head head;
    char layer[SUP_DIGEST_MAX];
    char below[SUP_DIGEST_MAX]; /* the one directly under it; "": none */
    uint64_t bytes;             /* its own; 0: not known */
    uint32_t in_use;            /* sandboxes that use it directly, running, paused or kept */
};

/*
 * How b differs from a. Each is the id of a live or kept sandbox, or a layer's name; a may be "": the layer that b is
 * based on.
 */
struct sup_diff {
    struct sup_head head;
    char a[SUP_DIGEST_MAX], b[SUP_DIGEST_MAX];
};

struct sup_volume_id {
    struct sup_head head;
    char volume[SUP_VOLUME_MAX];
    uint64_t limit_bytes; /* SUP_VOLUME_MAKE; 0: none */
    uint64_t owner;       /* the same; as in sup_create */
};

/*
 * All that an owner has on disk, of which it may have so much; told of before the owner is named elsewhere. Or, of one
 * that was told of: this sandbox or volume is its, too. ERR_NOT_FOUND.
 */
struct sup_owner {
    struct sup_head head;
    char what[SUP_VOLUME_MAX]; /* id of a sandbox or volume; "": the owner itself */
    uint64_t owner;            /* from 1 on */
    uint64_t limit_bytes;      /* 0: none, and of a sandbox or volume */
};

struct sup_volumes {
    struct sup_head head;
    uint32_t n; /* 1 to SUP_VOLUMES_MAX */
    char volumes[SUP_VOLUMES_MAX][SUP_VOLUME_MAX];
};

struct sup_volume {
    struct sup_head head;
    char volume[SUP_VOLUME_MAX];
    uint64_t used_bytes, limit_bytes; /* 0: not known, none */
};

struct sup_volume_mount {
    struct sup_head head;
    char id[ID_SANDBOX_LEN + 1];
    char volume[SUP_VOLUME_MAX]; /* "": a directory of the host */
    char path[SUP_PATH_MAX];     /* absolute, clean */
    char source[SUP_PATH_MAX];   /* of the host: absolute, clean; of a volume: relative, a directory in it, or "" */
    uint32_t read_only;
    /* of the host's directory: it must be this one's, and is seen as the sandbox's user's; UINT32_MAX: as it is */
    uint32_t uid;
};

enum sup_nest_mode { SUP_NEST_RW, SUP_NEST_OVERLAY, SUP_NEST_RO, SUP_NEST_MODES };

/* A directory of the sandbox's, and where in the nest it is. Paths are absolute and clean. */
struct sup_nest_bind {
    char source[SUP_NEST_PATH_MAX], path[SUP_NEST_PATH_MAX];
    uint32_t read_only;
};

struct sup_nest {
    struct sup_head head;
    char id[ID_SANDBOX_LEN + 1];
    char workspace[SUP_NEST_PATH_MAX]; /* the same */
    uint32_t mode;                     /* enum sup_nest_mode, of the workspace; the rest is read-only */
    uint32_t own_tmp;                  /* 1: /tmp is its own */
    uint32_t own_network;              /* 1: a loopback, and nothing else */
    uint32_t n_binds;
    struct sup_nest_bind binds[SUP_NEST_BINDS_MAX];
    /*
     * A service: its root is this layer with files of its own on top, which are kept with the sandbox's, and of all
     * above counts the id alone. "": none
     */
    char root[SUP_DIGEST_MAX];
    char name[SUP_NEST_NAME_MAX]; /* of [a-z0-9-]: its host name, which leads to 127.0.0.1 inside */
};

enum sup_pool_kind { SUP_POOL_COPY, SUP_POOL_REFLINK, SUP_POOL_BTRFS };

struct sup_pooled {
    struct sup_head head;
    uint32_t kind;   /* enum sup_pool_kind */
    uint32_t limits; /* 1: the pool can limit the size of a sandbox or volume */
    uint64_t total_bytes, free_bytes;
};

/* The answer to every request that has no other, and the end of a list. */
struct sup_done {
    struct sup_head head;
    int32_t code; /* err_pack(), 0: success */
    char message[SUP_TEXT_MAX];
};

enum sup_life {
    SUP_LIVES = 0,   /* runs */
    SUP_FROZEN = 1,  /* paused with its memory */
    SUP_KEPT = 2,    /* only its files are there */
    SUP_ON_DISK = 3, /* the same, and its memory beside them */
};

struct sup_listed {
    struct sup_head head;
    char id[ID_SANDBOX_LEN + 1];
    uint32_t life;    /* enum sup_life */
    uint64_t started; /* us since 1970; 0 when kept */
};

struct sup_used {
    struct sup_head head;
    int32_t code;          /* 0, or enum err_code: the rest is zero then */
    uint64_t cpu_usec;     /* consumed since the start */
    uint64_t memory_bytes; /* charged now, with page cache */
    uint64_t cache_bytes;  /* of which page cache */
    uint64_t memory_limit_bytes;
    uint64_t disk_bytes; /* of its own files, 0 when the pool doesn't know */
    uint64_t disk_limit_bytes;
    uint32_t pids;
    uint32_t pids_limit;   /* 0: none */
    uint32_t pids_refused; /* how often it could not have another one for that */
    uint32_t oom_kills;
};

enum sup_cause {
    SUP_CAUSE_KILLED = 1, /* SUP_KILL */
    SUP_CAUSE_EXITED,     /* PID 1 ended by itself */
    SUP_CAUSE_SIGNALED,   /* PID 1 was killed by something else */
    SUP_CAUSE_OOM,        /* PID 1 was killed for the memory limit */
    SUP_CAUSE_SHUTDOWN,   /* the service stops */
};

struct sup_ended {
    struct sup_head head;
    char id[ID_SANDBOX_LEN + 1];
    uint32_t cause;  /* enum sup_cause */
    uint32_t status; /* exit code or signal of PID 1 */
    uint32_t oom_kills;
};

enum sup_seen_kind {
    SUP_SEEN_EXEC = 1, /* text: argv, program, path of the working directory; not terminated, except in argv */
    SUP_SEEN_EXIT,
    SUP_SEEN_WRITE, /* text: path of the file */
    SUP_SEEN_MOVE,  /* the same: it got this name */
    SUP_SEEN_LOST, /* nothing but `lost`; 0: some, nobody knows how many (coved died). id "": files of some sandboxes */
    SUP_SEEN_MORE, /* as WRITE and MOVE, beyond what is told of: nothing but `lost`, how many */
};

/*
 * What the kernel saw a sandbox's processes do. A message has several, one behind the other: each ends with its text,
 * filled up to SUP_SEEN_ALIGN, and has its length as its tag.
 */
struct sup_seen {
    struct sup_head head;
    char id[ID_SANDBOX_LEN + 1];
    uint32_t kind; /* enum sup_seen_kind */
    uint32_t lost; /* SUP_SEEN_EXEC and _EXIT before it that nobody told of; of LOST and MORE, see there */
    uint32_t host_pid, pid, parent; /* the last two as they are inside; 0: unknown, of elsewhere */
    uint32_t uid;                   /* as it is inside; UINT32_MAX: none of the sandbox's */
    uint32_t has_ended;             /* SUP_SEEN_EXEC: it has, and no SUP_SEEN_EXIT comes */
    uint32_t status;                /* SUP_SEEN_EXIT, has_ended: as of wait(2) */
    uint32_t argv_bytes;            /* of all arguments; those beyond `argv` were cut */
    uint32_t argv, program, path;   /* bytes of the text */
    uint64_t bytes;                 /* of the file, when it was looked at */
    uint64_t at;                    /* SUP_SEEN_EXEC and _EXIT: when, by the real clock, in microseconds */
    char text[SUP_SEEN_TEXT];
};

/* Room for any of them. */
union sup_message {
    struct sup_head head;
    struct sup_id id;
    struct sup_create create;
    struct sup_pause pause;
    struct sup_snapshot snapshot;
    struct sup_warm warm;
    struct sup_layer_id layer_id;
    struct sup_diff diff;
    struct sup_volume_id volume_id;
    struct sup_owner owner;
    struct sup_volumes volumes;
    struct sup_volume_mount volume_mount;
    struct sup_nest nest;
    struct sup_done done;
    struct sup_stored stored;
    struct sup_layer layer;
    struct sup_volume volume;
    struct sup_pooled pooled;
    struct sup_listed listed;
    struct sup_used used;
    struct sup_ended ended;
    struct sup_seen seen;
};

enum { SUP_SEEN_ALIGN = 8, SUP_SEEN_MESSAGE = 32768 /* bytes of a message of these */ };
static inline size_t sup_seen_size(const struct sup_seen *s)
{
    size_t n = offsetof(struct sup_seen, text) + s->argv + s->program + s->path;
    return (n + SUP_SEEN_ALIGN - 1) / SUP_SEEN_ALIGN * SUP_SEEN_ALIGN;
}

/* Length of a message of this type, of SUP_SEEN the greatest; 0 for an unknown one. */
size_t sup_size(uint32_t type);
