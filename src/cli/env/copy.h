/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copy of a commit in an environment's sandbox: sent as a pack with its index, or continued from one that was kept.
 */
#pragma once

#include "cli/env/env.h"

/* Into a new sandbox. */
int copy_fill(struct env *e, const char *commit, bool whole_history) WARN_UNUSED;

/* In a sandbox that began with a kept copy, e->copy. */
int copy_continue(struct env *e, const char *commit) WARN_UNUSED;

/* Keeps it for the next one, under this name; what can't be kept isn't. */
int copy_keep(struct env *e, const char *name, const char *commit) WARN_UNUSED;

/* What git pack-objects makes of the revisions is the script's input. */
int copy_send(struct env *e, const char *const *args, const char *revisions, const char *script,
              char *const *words) WARN_UNUSED;
