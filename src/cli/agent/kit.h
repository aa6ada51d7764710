/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kit says how a coding agent is run: a YAML file NAME.yaml with `summary`, `template` (a recipe of `cove template
 * add`, or any template), `memory`, `command`, `setup` (commands for the shell, once), `env`, `allow` (targets as
 * --allow takes them), `credentials` and `caches`.
 *
 *  1. It comes from /etc/cove/kits or else from those that come with Cove.
 *  2. On top of it the repository may have .cove/kits/NAME.yaml, as it is in the commit: written by whoever could write
 *     there, an agent too. What of it reaches beyond the sandbox - hosts, credentials, caches - holds only when a
 *     person says so, each time that an environment is made.
 *  3. A credential is a variable: the sandbox gets a stand-in for it, and requests to the credential's hosts leave with
 *     the value.
 */
#pragma once

#include "cli/env/repo.h"
#include "cli/net_flags.h"

/*
 * The kit as one object; *ret_asks: what the repository's own wants beyond the sandbox, as texts for a person. -1:
 * ctx->err.
 */
int kit_read(struct repo *r, const char *commit, const char *name, json_t **ret_kit, json_t **ret_asks) WARN_UNUSED;

/* An array of {"name", "summary", "from"}. */
json_t *kit_list(void);

/*
 * Puts what the kit says into `spec`, the native API's for a sandbox that has a policy already: rules, credentials,
 * variables, volumes. `key` tells volumes of one repository from those of another. Credentials of the caller's
 * environment go into the vault; *ret_missing are those that there are not.
 */
int kit_apply(struct context *ctx, const json_t *kit, const char *key, json_t *spec, json_t **ret_missing) WARN_UNUSED;

/* Hands the vault what the caller's environment has now. */
int kit_renew(struct context *ctx, const json_t *kit) WARN_UNUSED;
