/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What cove-api asks of coved, over one SOCK_SEQPACKET pair: each message is one struct below, exactly as long as its type says, with the
 * descriptors that its comment names. coved answers every request once, with the same tag, in any order, and reports ends on its own.
 *
 * Both are our processes on one machine, started by the same coved: native byte order and alignment. coved treats every field as hostile
 * all the same (a worker may have been taken over): lengths are fixed, texts are checked against their grammar, numbers against limits.
 */
#pragma once

#include "base/def.h"
#include "base/id.h"

enum { SUP_VERSION = 1, SUP_TEXT_MAX = 256, SUP_DIGEST_MAX = 72, SUP_SANDBOXES_MAX = 4096 };

enum sup_type {
    SUP_CREATE = 1, /* struct sup_create -> SUP_CREATED with a session socket: the agent runs */
    SUP_KILL,   /* struct sup_id -> SUP_DONE once SIGKILL was sent to all of it; SUP_ENDED follows when all is gone */
    SUP_LIST,   /* struct sup_head -> SUP_LISTED for each live sandbox, then SUP_DONE */
    SUP_ATTACH, /* struct sup_id -> SUP_ATTACHED with a new session socket; the session before it is gone */
    SUP_USAGE,  /* struct sup_id -> SUP_USED */

    SUP_CREATED = 64,
    SUP_DONE,
    SUP_LISTED,
    SUP_ATTACHED,
    SUP_USED,
    SUP_ENDED,  /* struct sup_ended, tag 0: unasked */
    SUP_EGRESS, /* struct sup_head, tag 0, with one descriptor: unasked; a new socket to cove-egress (wire/egress.h), the one before is dead */
};

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
    char layer[SUP_DIGEST_MAX]; /* "sha256-<64 hex>", NUL-terminated */
    char template_id[64];       /* for /run/e2b and E2B_TEMPLATE_ID inside; [A-Za-z0-9._-]* */
    uint64_t memory_bytes;      /* 0: no limit */
    uint32_t cpu_milli;         /* thousandths of a CPU; 0: no limit */
    uint32_t pids;              /* 0: the service's default */
    uint64_t disk_bytes;        /* 0: no limit; enforced when the pool can */
};

/* Answer to CREATE, KILL, ATTACH, and the end of LIST. */
struct sup_done {
    struct sup_head head;
    int32_t code; /* enum err_code, 0: success */
    char message[SUP_TEXT_MAX];
};

struct sup_listed {
    struct sup_head head;
    char id[ID_SANDBOX_LEN + 1];
    uint64_t started; /* us since 1970 */
};

struct sup_used {
    struct sup_head head;
    int32_t code;          /* 0, or enum err_code: the rest is zero then */
    uint64_t cpu_usec;     /* consumed since the start */
    uint64_t memory_bytes; /* charged now, with page cache */
    uint64_t cache_bytes;  /* of which page cache */
    uint64_t memory_limit_bytes;
    uint32_t pids;
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

/* The largest of them. */
union sup_message {
    struct sup_head head;
    struct sup_id id;
    struct sup_create create;
    struct sup_done done;
    struct sup_listed listed;
    struct sup_used used;
    struct sup_ended ended;
};

/* Length of a message of this type, 0 for an unknown one. */
size_t sup_size(uint32_t type);
