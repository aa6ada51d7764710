/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deletes what is in the pool's trash, in a process of its own at low priority: a sandbox may have left a million
 * files. It does so while nobody makes or ends sandboxes, or after two seconds. It also lets the pool grow, where it
 * can, and makes empty boxes ready.
 */
#pragma once

#include "base/err.h"

struct pool;
struct sweeper;

int sweeper_start(struct pool *pool, struct sweeper **ret_sweeper, struct err *err) WARN_UNUSED;
void sweeper_tick(struct sweeper *s); /* something may be in the trash; cheap */
void sweeper_stop(struct sweeper *s); /* ends and reaps the process; the rest is left to sweeper_last() */

/*
 * At the end, when nothing more comes: deletes the rest for at most bound_ms, and logs that. Returns how many boxes are
 * left.
 */
size_t sweeper_last(struct pool *pool, uint32_t bound_ms) WARN_UNUSED;
