/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tenant may have at a time. Whatever counts is charged to its tenant when it begins, and the charge is returned
 * exactly once, however it ends. A limit of 0 means none. Lowering a limit takes nothing away, it only refuses more.
 */
#pragma once

#include "base/clock.h"
#include "sandbox/core.h"

enum quota {
    QUOTA_SANDBOXES, /* running or paused */
    QUOTA_MEMORY,    /* bytes, of all sandboxes */
    QUOTA_CPU,       /* thousandths of a CPU */
    QUOTA_DISK,      /* bytes, of all sandboxes and volumes */
    QUOTA_CONNECTIONS,
    QUOTA_CHARGED,
    QUOTA_CREATES = QUOTA_CHARGED, /* of sandboxes, in a minute */
    QUOTA_TEMPLATES,               /* and snapshots: counted where they are */
    QUOTA_CHECKPOINTS,             /* the same */
    QUOTA_MAX
};

extern const char *const quota_names[QUOTA_MAX]; /* as in JSON and in the store: "sandboxes", "memory_bytes" */

/* Of one tenant. */
struct quota_user {
    uint64_t limits[QUOTA_MAX], used[QUOTA_CHARGED];
    size_t bytes;      /* of this worker's memory */
    usec_t creates_at; /* monotonic: the creates so far would have been due until then, one after the other */
};

/* Embedded in what is charged; all zeroes: nothing is. */
struct charge {
    struct core *core;
    uint64_t tenant;
    uint64_t amounts[QUOTA_CHARGED];
    size_t bytes; /* charge_memory() */
};

/* ERR_RESOURCE_EXHAUSTED: not now; ERR_PERMISSION_DENIED: it would never fit. */
int charge_take(struct charge *charge, struct core *core, uint64_t tenant, const uint64_t amounts[static QUOTA_CHARGED],
                struct err *err) WARN_UNUSED;
/* A sandbox of that size, and that it is made now. disk_bytes 0: has no limit. */
int charge_sandbox(struct charge *charge, struct core *core, uint64_t tenant, uint64_t memory_bytes, uint32_t cpu_milli,
                   uint64_t disk_bytes, struct err *err) WARN_UNUSED;
/* A volume with this limit; 0: none, which a tenant with limited disk can't have. */
int charge_volume(struct charge *charge, struct core *core, uint64_t tenant, uint64_t limit_bytes,
                  struct err *err) WARN_UNUSED;
/* What is there already: never refused. */
void charge_take_over(struct charge *charge, struct core *core, uint64_t tenant,
                      const uint64_t amounts[static QUOTA_CHARGED]);
void charge_release(struct charge *charge);
/* More for what is charged already: bytes of this worker's memory, of which each tenant has a share. */
int charge_memory(struct charge *charge, size_t bytes, struct err *err) WARN_UNUSED;
void charge_return(struct charge *charge, size_t bytes); /* of that memory */
/* For http_count_queue(): of what waits for a client. */
bool charge_queue(void *charge, size_t before, size_t now);

/*
 * Of max for all, of which `all` are taken: may a tenant that has `own` have so many more? Up to as much as it leaves,
 * so whoever comes finds some, and one alone has half.
 */
static inline bool quota_is_share(size_t max, size_t all, size_t own, size_t more)
{
    return all <= max && more <= max - all && own + more <= max - all - more;
}

/* One more of what is scarce: its share, or where there is but the default tenant all. */
bool quota_has_room(const struct core *core, size_t max, size_t all, size_t own);

/* One more than these `n` templates. */
int quota_check_template(struct core *core, uint64_t tenant, size_t n, struct err *err) WARN_UNUSED;
int quota_check_checkpoint(struct core *core, uint64_t tenant, size_t n, struct err *err) WARN_UNUSED;
