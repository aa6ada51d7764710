/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies that were kept: a snapshot of an environment's sandbox with a commit in it, taken before anything of the
 * repository ran there. The next environment of that commit begins with it, and nothing is copied.
 */
#pragma once

#include "cli/env/env.h"

/* Of copies that fit the sandbox's spec; mem_free(). NULL: the service doesn't know its template, or a volume would
 * cover the copy. */
char *kept_name(struct env *e, const json_t *spec, bool whole_history);

/*
 * *ret_sandbox began with a copy, which is e->copy and a label: the commit's, or with the whole history that of a
 * commit before it. Else it stays NULL. -1: ctx->err.
 */
int kept_create(struct env *e, const char *name, const char *commit, bool whole_history, json_t *spec,
                json_t **ret_sandbox) WARN_UNUSED;

/* Keeps the environment's copy, and drops those of other commits. What can't be kept isn't. */
void kept_keep(struct env *e, const char *name, const char *commit);

/* Drops all of the repository that nothing stands on; returns how many. */
int kept_drop(struct env *e);
