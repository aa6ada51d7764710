/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A proposal: what an environment committed, with evidence for who decides. It stands as a line of the head's note
 * (provenance.h), and as refs/cove/proposal/NAME.
 *
 *  1. The checks are those of .cove/env.yaml in the commit that the environment began with: what it changed of them
 *     inside counts for nothing.
 *  2. They run in a fork, on what was committed alone, with a policy that denies everything. The fork has the files of
 *     the sandbox: programs that were replaced there are replaced in it, too, so what a check says is claimed.
 */
#pragma once

#include "cli/env/env.h"

/* profile: NULL for none. *ret_proposal: as it is noted. -1: ctx->err. */
int proposal_make(struct env *e, const char *profile, const char *message, json_t **ret_proposal) WARN_UNUSED;
void proposal_print(const json_t *proposal);

/* May who asks apply? -1: ctx->err. */
int proposal_may_apply(struct env *e) WARN_UNUSED;
