/* SPDX-License-Identifier: Apache-2.0 */
/* Clones of a sandbox's files, and the layers that nobody names. Not for façades. */
#pragma once

#include "sandbox/object.h"

/* snapshot.c */
/* Clones its files as a layer. fn comes once, later; the event has what was told of it. seq: of the action that wants it. */
struct sup_stored;
typedef void (*store_fn)(void *ctx, const struct sup_stored *stored, const struct err *err);
int store_files(struct sandbox *sb, const char *layer, uint64_t seq, store_fn fn, void *ctx,
                struct err *err) WARN_UNUSED;
int store_permitted(const struct sandbox *sb, struct err *err) WARN_UNUSED; /* it runs or is paused */
void stores_end(struct sandbox *sb, const struct err *why);                 /* those that coved does not know of yet */
bool layer_name_is(const char *name);

/* layers.c */
struct layers *layers_new(struct core *core);
void layers_free(struct layers *l);
void layers_making(struct core *core, const char *layer); /* no garbage, though nobody names it yet, */
void layers_fresh(struct core *core,
                  const char *layer); /* and for a while after it is made, or until layers_settled() */
