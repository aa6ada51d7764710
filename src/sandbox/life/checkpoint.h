/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints: clones of a sandbox's files that Cove makes by itself, so that they can be put back, or another sandbox
 * be made of them. A checkpoint's seq says what it is of: the files as they were when that event of the sandbox's log
 * had happened, and nothing after it.
 *
 * When one is made is the sandbox's own mode, else that of the guard's rules (guard/rules.h). By number: after each so
 * many actions that may have changed files, if they did; the first one before the first of these actions. On risk:
 * before each action that the guard's rules rate medium or high. At most CHECKPOINTS_MAX are kept: the oldest one, and
 * of the others the fewer the older. They go with the sandbox.
 */
#pragma once

#include "sandbox/life/snapshot.h"

enum { CHECKPOINTS_MAX = 32 };

struct checkpoint {
    uint64_t seq;
    usec_t at; /* real time */
    char layer[LAYER_NAME_LEN + 1];
};

#define CHECKPOINT_LABEL "cove.checkpoint" /* metadata that says the mode, for clients that have no other way */

int checkpoint_mode(const struct sandbox *sb);                                     /* in force */
const struct checkpoint *checkpoint_list(const struct sandbox *sb, size_t *ret_n); /* oldest first; borrowed */
const struct checkpoint *checkpoint_find(const struct sandbox *sb, uint64_t seq);  /* the last one up to there; NULL */
size_t checkpoint_count(const struct core *core, uint64_t tenant);

/*
 * False: none is being made. Else fn is called in a later turn, when none is being made any more and a request by seq
 * gets the right one.
 */
bool checkpoint_await(struct sandbox *sb, sandbox_fn fn, void *ctx);

/*
 * Puts back the files of the last checkpoint up to seq. Running, it is paused without its memory first: its processes
 * end, and it is started anew on these files, as one that was paused so is. Paused, its memory is given up. Volumes are
 * not touched. It runs afterwards, for its last timeout from then on; when that fails it is paused. ERR_NOT_FOUND:
 * there is no such checkpoint.
 */
int sandbox_rewind(struct sandbox *sb, const struct actor *actor, uint64_t seq, sandbox_fn done, void *ctx,
                   struct err *err) WARN_UNUSED;

/* sandbox_fork() of the last checkpoint up to seq. The sandbox may be busy with anything. */
int sandbox_fork_at(struct sandbox *sb, const struct actor *actor, uint64_t seq, size_t count, uint64_t timeout_ms,
                    fork_fn done, void *ctx, struct err *err) WARN_UNUSED;
