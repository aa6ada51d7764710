/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .cove/env.yaml of a repository, as it is in a commit: what an environment changes in its own copy holds for none
 * until somebody committed it here. Keys: template, services, setup, checks, env, allow, profiles. Others are refused.
 * Without that file a devcontainer.json counts (devcontainer.h).
 */
#pragma once

#include "base/json.h"
#include "cli/env/repo.h"

/*
 * Adds to `spec`, the native API's for a sandbox, and "services", an array of what its route for them takes.
 * *ret_setup, *ret_checks (which may be NULL): arrays of strings, or NULL. profile may be NULL. -1: ctx->err.
 */
int settings_read(struct repo *r, const char *commit, const char *profile, json_t *spec, json_t **ret_setup,
                  json_t **ret_checks) WARN_UNUSED;

bool settings_are_texts(const json_t *all); /* an array of strings */
