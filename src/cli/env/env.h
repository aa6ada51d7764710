/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Environments: a sandbox with a copy of a Git repository's commit at the same absolute path as here, and what came of
 * it as refs here.
 *
 *  1. Nothing of the repository here is visible inside, and nothing inside is visible here, but for commits that were
 *     received and checked: each object by git's own fsck, each changed entry of a tree by review_check(). What is
 *     refused leaves nothing here.
 *  2. What an environment is stands in two places: the sandbox's labels (cove.env, cove.repo; cove.common, the .git
 *     that all its working trees have; cove.maker, the directory of our own that it was made from; cove.user,
 *     cove.ports of a devcontainer.json; cove.copy, the kept copy that it began with) and refs:
 *        refs/heads/cove/NAME    what was committed inside, as it was received last
 *        refs/cove/work/NAME     a commit on top of that with what was not committed inside
 *        refs/cove/base/NAME     where it began; keeps `git gc` from taking it
 *        refs/cove/proposal/NAME what was proposed last
 *        refs/cove/sandbox/NAME/ID the sandbox that was made for it here
 *  3. A sandbox may lie about everything: what it says is a pack of objects and two names of commits.
 */
#pragma once

#include "cli/env/repo.h"
#include "cli/exec/exec.h"

enum { ENV_NAME_MAX = 64 };
#define ENV_TAG "cove-env" /* of the commands that are ours: what puts the copy there and gets it */

struct env {
    struct context *ctx;
    struct service *service;
    struct repo repo;
    char *name;
    char *id;                 /* the sandbox; NULL: it is gone */
    char *state;              /* its state, NULL without one */
    char *user;               /* who works in the copy; NULL: the template's user */
    const char *prompt;       /* what the agent was asked, by COVE_PROMPT; borrowed; NULL: the client doesn't say */
    char *copy;               /* the kept one that it began with, "NAME:COMMIT"; NULL: none */
    char *head, *work, *base; /* names of refs */
    struct env_commits {
        char *head, *work, *base;
    } at; /* where these led when env_open(), env_look() or env_receive() saw them last; NULL: not known */
};

/* -1: ctx->err. name NULL: of the repository alone. There need be no such environment yet. */
int env_open(struct context *ctx, const char *path, const char *name, struct env *ret_env) WARN_UNUSED;
void env_fini(struct env *e);

/* All sandboxes of the repository: an array. */
int env_sandboxes(struct env *e, json_t **ret_array) WARN_UNUSED;
/* Adds the sandbox that was made here for the environment, if it is another tenant's that the caller may see. */
void env_look_elsewhere(struct env *e, const char *name, json_t *all);
const char *env_label(const json_t *sandbox, const char *key); /* NULL: it has none */

/* Makes the sandbox of `spec` (the native API's; it gets labels), gives it the commit and runs `setup`, an array of
 * commands for the shell (may be NULL). */
int env_create(struct env *e, const char *commit, json_t *spec, const json_t *setup, bool whole_history) WARN_UNUSED;

/* Ends what creations that were killed left of the repository: sandboxes that never became environments. Returns how
 * many. */
int env_sweep(struct env *e);

/* Wakes it if it is paused. */
int env_wake(struct env *e) WARN_UNUSED;

/* The directory of the copy in which we are here, its top if we are elsewhere or the copy has no such one. Free with
 * mem_free(). */
char *env_here(struct env *e);

/* Runs a command in that directory of the copy; as exec_in_sandbox(). It is prolonged meanwhile. The status for the
 * shell is *ret_status. */
int env_run(struct env *e, const char *cwd, char *const *argv, json_t *variables, bool has_pty,
            int *ret_status) WARN_UNUSED;

/* The same of any request, which names the sandbox and the directory itself; signals are passed on. */
int env_exec(struct env *e, const struct exec_request *request, const struct exec_io *streams,
             struct exec_result *result) WARN_UNUSED;

/* A script in the copy, with `words` as $1 and on ($1 is the path of the copy). in, out: -1 none. Its failure is -1. */
int env_script(struct env *e, const char *script, char *const *words, int in, int out, const char *user) WARN_UNUSED;

/* Where its refs lead. ERR_NOT_FOUND: there is no such environment. */
int env_look(struct env *e) WARN_UNUSED;

/* Receives what is inside. -1: ctx->err; ERR_PERMISSION_DENIED when it was refused. */
int env_receive(struct env *e) WARN_UNUSED;

/* Gives the copy another commit of here and rebases what was committed onto it; to be received then. */
int env_rebase(struct env *e, const char *onto) WARN_UNUSED;

/* Ends the sandbox; `all`: and forgets the branch. */
int env_remove(struct env *e, bool all) WARN_UNUSED;
