/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints on disk: the directory in the pool (kernel/pool/pool.h, memory) that a tier fills and goes on from, with
 * a file `cove` that says what made it and which files there are. What another version made, or what is not whole, is
 * refused with words.
 */
#pragma once

#include "base/err.h"

struct box;
struct tier;
struct tier_host;
struct tier_limits;
struct tier_saving;

struct memory_maker {
    const struct tier *tier;
    const char *version; /* struct tier_powers */
    const struct tier_limits *limits;
};

/* Both of a job. The first is what a tier's checkpoint() is called by; `saving` lacks only its dir_fd. -errno; nothing
 * is left of it then. */
int memory_save(const struct tier_host *host, const char *name, const struct memory_maker *by, const struct box *box,
                struct tier_saving *saving) WARN_UNUSED;

/* ERR_NOT_FOUND; ERR_FAILED_PRECONDITION: it is not for this one, and why; ERR_DATA_LOSS. */
int memory_open(const struct tier_host *host, const char *name, const struct memory_maker *want, int *ret_fd,
                struct err *err) WARN_UNUSED;

/*
 * A mark that something goes on from it: from then on, what is kept under that name may not be as it was, until the
 * mark is taken off again. memory_is_good(): it is there, and has none.
 */
int memory_mark(const struct tier_host *host, const char *name, bool marked) WARN_UNUSED;
bool memory_is_good(const struct tier_host *host, const char *name);
