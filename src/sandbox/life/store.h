/* SPDX-License-Identifier: Apache-2.0 */
/* Clones of a sandbox's files, and the layers that nobody names. Not for façades. */
#pragma once

#include "sandbox/object.h"

/* snapshot.c */
/* Clones its files as a layer. fn is called once, later; the event has the layer's figures. seq: its cause. */
typedef void (*store_fn)(void *ctx, const struct sup_stored *stored, const struct err *err);
struct store_what {
    enum event_kind kind; /* of what is recorded when it is there, or could not be */
    uint64_t seq;
    bool memory;        /* its memory with them, of one that runs */
    bool passes;        /* that memory is for those that are made of it next, and of no use after a crash */
    const char *unlike; /* nothing is made, and recorded, when its files are still those of this layer; NULL: is made */
};
int store_files(struct sandbox *sb, const char *layer, const struct store_what *what, store_fn fn, void *ctx,
                struct err *err) WARN_UNUSED;
int store_permitted(const struct sandbox *sb, struct err *err) WARN_UNUSED;        /* it runs or is paused */
int store_memory_permitted(const struct sandbox *sb, struct err *err) WARN_UNUSED; /* its tier can, and it runs */
void stores_end(struct sandbox *sb, const struct err *why); /* those that coved does not know of yet */
void stores_go(struct sandbox *sb);                         /* the first of them, if nothing is in its way */
bool layer_name_is(const char *name);

/* layers.c */
struct layers *layers_new(struct core *core);
void layers_free(struct layers *l);
void layers_making(struct core *core, const char *layer); /* no garbage, though nobody names it yet, */
void layers_fresh(struct core *core,
                  const char *layer); /* and for a while after it is made, or until layers_settled() */
bool layers_is_fresh(const struct core *core, const char *layer);
