/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A nest: namespaces within a sandbox's own, with an agent of their own. Processes in it see neither those of the
 * sandbox nor of another nest; of the sandbox's files, which are read-only for them, a workspace is theirs. It ends
 * with its last owner's nest_end(), its sandbox, or this worker.
 *
 * With a service's root it sees none of the sandbox's files, and has those of another template.
 *
 * What is made is a struct sandbox for exec.h and files.h, and for nothing else: it has the id of the sandbox that it
 * is in, whose log and rules are its own. Its state is SANDBOX_ENDED once it is gone.
 */
#pragma once

#include "sandbox/sandbox.h"
#include "wire/supervisor.h"

struct nest_bind {
    struct str source, path; /* directories, absolute and clean, as below */
    bool read_only;
};

struct nest_root {
    const char *name, *template_id, *layer;
    const char *user, *workdir; /* of processes that say none */
};

struct nest_spec {
    const struct nest_root *root; /* NULL: the sandbox's files; else of what follows the variables alone count */
    struct str workspace;         /* a directory that is there */
    enum sup_nest_mode mode;
    bool own_tmp, own_network;
    const struct nest_bind *binds; /* SUP_NEST_BINDS_MAX at most */
    size_t n_binds;
    const struct pair *envs; /* of all that runs in it, in place of the sandbox's */
    size_t n_envs;
};

/* What nest_make() would refuse at once. */
int nest_check(const struct sandbox *sb, const struct nest_spec *spec, struct err *err) WARN_UNUSED;

/* done gets a reference, or NULL. ERR_UNIMPLEMENTED: the sandbox's tier has none. */
int nest_make(struct sandbox *sb, const struct actor *actor, const struct nest_spec *spec, sandbox_fn done, void *ctx,
              struct err *err) WARN_UNUSED;
void nest_end(struct sandbox *nest); /* takes the reference; what runs in it ends in a later turn */
