/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where commits come from, as Git notes in refs/notes/cove: one JSON object a line, so that notes of several people
 * merge by joining lines ("cat_sort_uniq").
 *
 *  1. A line is written when commits are received, on each that is new: after which command they came (`command`, a
 *     receipt), of which environment and sandbox, under which policy, what was reached and refused until then. The
 *     record gets an event with the commits and the line's digest (env.received), whose `seq` and `hash` the line ends
 *     with. A proposal is a line as well, with those of the last event.
 *  2. It says after what a commit came, not that nothing else made it: what runs inside may commit when it likes.
 *  3. The record shows later that the line is the one it was told of, and the commit one of those: provenance_why()
 *     asks it.
 */
#pragma once

#include "cli/env/env.h"

enum { PROVENANCE_COMMITS_MAX = 100, PROVENANCE_LINE_MAX = 256 * 1024 };

/* env_receive(), with a line on each commit that is new. -1: ctx->err. */
int provenance_receive(struct env *e) WARN_UNUSED;

/* Appends a line to a commit's note. */
int provenance_append(struct env *e, const char *commit, const json_t *line) WARN_UNUSED;

/* The policy as a line keeps it: without what is injected but the names. NULL: ctx->err. */
json_t *provenance_policy(struct env *e);

/* Which commit, command, policy and hosts a line of a file comes from. An exit code: 1 when there is no note, or the
 * record does not bear it out. */
int provenance_why(struct context *ctx, const char *path, const char *file, uint64_t line);
