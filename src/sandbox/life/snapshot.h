/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots and forks of sandboxes. Both begin with a clone of its files as a layer, for which it is frozen for a
 * moment; running or paused, it is afterwards what it was before. Memory is not part of it: its template's start
 * command is run again in whatever is made from it.
 *
 * Unless that is asked for, on tiers that can (ERR_UNIMPLEMENTED; the message says which). Then files and memory are of
 * one moment, of a sandbox that runs, and what is made of it goes on from there, with an id, name, network and tokens
 * of its own. For that the session with its agent is closed for a moment: whoever follows a process does not notice;
 * requests that have not come to an end within DRAIN_MS, and watches, end with ERR_UNAVAILABLE.
 */
#pragma once

#include "sandbox/sandbox.h"
#include "template/template.h"

enum { LAYER_NAME_LEN = 26, FORKS_MAX = 1000 };

/*
 * A snapshot is a template. name: "" for none, else [namespace/]name[:tag] as templates have it; a name that is in use
 * gets the new one under that tag. t is valid during the call. ERR_INVALID_ARGUMENT (not a name),
 * ERR_FAILED_PRECONDITION (being paused or resumed).
 */
typedef void (*snapshot_fn)(void *ctx, const struct template *t, const struct err *err);
int sandbox_snapshot(struct sandbox *sb, const struct actor *actor, struct str name, bool memory, snapshot_fn done,
                     void *ctx, struct err *err) WARN_UNUSED;

/* One result for each of `count`, in any order: done(ctx, i, fork or NULL, err); then done(ctx, count, NULL, NULL)
 * once. timeout_ms UINT64_MAX: as the original was given. */
typedef void (*fork_fn)(void *ctx, size_t i, struct sandbox *fork, const struct err *err);
int sandbox_fork(struct sandbox *sb, const struct actor *actor, bool memory, size_t count, uint64_t timeout_ms,
                 fork_fn done, void *ctx, struct err *err) WARN_UNUSED;

/*
 * For builders: the files, with `memory` that, too, as a layer that nobody has registered; it is collected as garbage
 * when nobody does (layers.h). layer: of layer_name_new().
 */
void layer_name_new(char ret_name[static LAYER_NAME_LEN + 1]); /* "layer-" and 20 of [a-z0-9] */
/* bytes: of all that the layer holds; 0: not known. */
typedef void (*layer_fn)(void *ctx, struct sandbox *sb, uint64_t bytes, const struct err *err);
int sandbox_store_layer(struct sandbox *sb, const struct actor *actor, const char *layer, bool memory, layer_fn done,
                        void *ctx, struct err *err) WARN_UNUSED;
