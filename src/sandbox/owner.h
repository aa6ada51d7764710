/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tenant with limited disk really has there, by coved's count (wire/supervisor.h, struct sup_owner): with what
 * snapshots and clones still have of sandboxes and volumes that are gone. coved is asked again and again: less often
 * while it fails, more often while there is little room left.
 */
#pragma once

#include "sandbox/core.h"
#include "sandbox/loop.h"

/* Of each tenant; all zeroes: its disk isn't limited, or the pool doesn't count. */
struct owner {
    uint64_t used_bytes, most_bytes; /* as of the last answer; most_bytes 0: not known */
    bool is_full;                    /* and that was told */
    unsigned failures;               /* to put the limit in force, in a row */
    struct err why;                  /* of the last one */
    struct loop_alarm alarm;         /* the next question */
    struct core *core;
    uint64_t tenant;
};

uint64_t owner_of(struct core *core, uint64_t tenant);               /* 0: its disk isn't limited */
void owner_take(struct core *core, uint64_t tenant, const char *id); /* a sandbox that was nobody's is its, too */
void owner_tell(struct core *core, uint64_t tenant);                 /* its limit may have changed */
void owners_tell(struct core *core);                                 /* at the start: all, with what they have */
/* Of what would begin on new files. ERR_UNAVAILABLE: the limit is not in force; ERR_RESOURCE_EXHAUSTED: no room. */
int owner_check(struct core *core, uint64_t tenant, struct err *err) WARN_UNUSED;
