/* SPDX-License-Identifier: Apache-2.0 */
/* The start of a sandbox, whatever it starts from. The theory of operation is in start.c. Internal to src/sandbox. */
#pragma once

#include "base/err.h"

struct sandbox;

enum start_way {
    START_CREATE,  /* a new box on a layer: create, fork */
    START_CLAIM,   /* a spare that runs becomes somebody's */
    START_COLD,    /* a new box on files that were kept */
    START_THAW,    /* the box that was frozen */
    START_RESTORE, /* a new box that goes on from a snapshot's memory */
    START_WAKE,    /* a new box on files that were kept, which goes on from the memory beside them */
    START_WAYS,
};

enum start_step {
    START_FORGET,
    START_REWIND,
    START_NETWORK,
    START_BOX,
    START_AGENT,
    START_VOLUMES,
    START_CERTIFICATE,
    START_COMMAND,
    START_CONFIRM,
    START_RUNNING,
    START_TOLD,
    START_STEPS,
};

/* seq: the event of the action that wants it. Who waits in sb->starters hears what came of it, in a later turn. */
void start_begin(struct sandbox *sb, enum start_way way, uint64_t seq);

/* A step that was begun has ended, or (err) failed. Notes it, and is ignored when no start waits for it. */
void start_done(struct sandbox *sb, enum start_step step, const struct err *err);

/* Its agent is gone: the steps done so far don't count any more. */
void start_broke(struct sandbox *sb, const struct err *err);

bool start_is_under_way(const struct sandbox *sb);                 /* who asked for it was not told yet */
bool start_awaits(const struct sandbox *sb, enum start_step step); /* it has begun, and not ended */

/* Forgets the start: the sandbox ends, is paused, or the core closes. What its steps set up stays. */
void start_drop(struct sandbox *sb);

/* Takes back what the steps of a start set up, the last first: nothing of its processes, its network or its volumes is
 * left. Its box is not touched. */
void start_undo(struct sandbox *sb, const struct err *why);
