/* SPDX-License-Identifier: Apache-2.0 */
/* -e NAME=VALUE, or -e NAME for the value that we have ourselves: gathered as a JSON object. */
#pragma once

#include "base/json.h"
#include "cli/command.h"

/*
 * env: a json_t ** to add to, which is made when it is NULL. A name that we don't have ourselves is left out, as if it
 * were not said. -1: ctx->err.
 */
int environment_take(struct context *ctx, void *env, const char *flag, const char *text) WARN_UNUSED;

/* `env` (may be NULL) of a command on a terminal: with TERM, when that says none; `term` when it is the name of one,
 * else xterm. A new reference. */
json_t *environment_of_terminal(const json_t *env, const char *term) WARN_UNUSED;
