/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A coding agent on an environment of its own: `cove agent`, `cove shell`, `cove attach`.
 *
 *  1. It is the process with the tag AGENT_TAG of the environment's sandbox. There is one at a time; who finds one
 *     running can attach to it.
 *  2. It runs on when its client leaves, on purpose or not, and when the service starts anew. While a client is there
 *     the sandbox is prolonged; who leaves on purpose gives it a day.
 *  3. What it changed is received when it ends, by whoever is there then, or by the next `cove env`.
 */
#pragma once

#include "cli/net_flags.h"

#define AGENT_TAG "agent"

enum { AGENT_MOUNTS_MAX = 16 };

struct agent_options {
    const char *kit, *path, *name, *from, *profile, *template; /* NULL: not given */
    const char *mounts[AGENT_MOUNTS_MAX];                      /* PATH, PATH:ro or PATH:copy */
    size_t n_mounts;
    bool trusts; /* what the repository's own kit and settings want */
    struct net_flags net;
    char *const *rest;  /* arguments of the agent */
    bool takes_command; /* it is bash, and they are a command, unless they begin with an option of bash's */
};

/* Exit codes. */
int agent_run(struct context *ctx, const struct agent_options *o);
int agent_attach(struct context *ctx, const char *what); /* an environment of the repository here, or a sandbox */
int agent_list(struct context *ctx);
