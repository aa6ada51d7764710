/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of boxes in the storage pool (kernel/pool/pool.h), as coved/boxes handles them: by names of boxes, sandboxes
 * and layers. `stands_on` is the topmost layer below a box's own files, "" for none. 0 or -errno, as the pool has it.
 * What is "a job's" may take long, and is called in a child of coved.
 */
#pragma once

#include "base/err.h"

/* The file in a box or a layer that is a machine's whole disk (tier/vm/disks.c); other tiers can't use such a layer. */
#define FILES_DISK ".cove-disk"
#define FILES_IMAGES "images" /* of the pool: made of layers */
#define FILES_BOOTS "boots"   /* the same: machines that have booted on them (tier/vm/boot.h) */

struct pool_chain;
struct tier_host;

/* What the files of a new box are made of. */
struct files_plan {
    struct pool_chain *chain; /* owned: the layers below its own files */
    bool from_layer;          /* its own files begin as those of the topmost layer, and lie above the rest */
    const char *from_kept;    /* or as those that are kept under this name; NULL; borrowed */
    const char *stands_on;    /* of `chain`, or "" */
};

/* kept: the sandbox whose kept files it gets; NULL: it is based on `layer`. ERR_NOT_FOUND. */
int files_plan(const struct tier_host *host, const char *layer, const char *kept, struct files_plan *ret_plan,
               struct err *err) WARN_UNUSED;
void files_plan_fini(struct files_plan *plan);
#define AUTO_PLAN __attribute__((cleanup(files_plan_fini)))

int files_box_drop(const struct tier_host *host, const char *box) WARN_UNUSED;
int files_own(const struct tier_host *host, const char *box, uint64_t owner) WARN_UNUSED; /* pool_own() */
uint64_t files_dirty_bytes(const struct tier_host *host, const char *box);   /* written, not on disk; 0: not known */
int files_settle(const struct tier_host *host, const char *box) WARN_UNUSED; /* writes them out; a job's */

/* ---- layers ---- */

enum { FILES_LAYER_MAX = 72 };  /* room for a name */
enum { FILES_LAYERS_MAX = 23 }; /* that a sandbox can have; -E2BIG: one more */

int files_snapshot(const struct tier_host *host, const char *box, const char *stands_on,
                   const char *layer) WARN_UNUSED; /* a job's, as the next one */
int files_snapshot_kept(const struct tier_host *host, const char *sandbox, const char *layer) WARN_UNUSED;
bool files_changed(const struct tier_host *host, const char *box, const char *layer); /* since that was made of it */
bool files_layer_exists(const struct tier_host *host, const char *layer);
uint64_t files_layer_bytes(const struct tier_host *host, const char *layer); /* 0: not known */
int files_layer_below(const struct tier_host *host, const char *layer,
                      char ret_below[static FILES_LAYER_MAX]) WARN_UNUSED; /* the one directly below it; -ENOENT */
int files_layer_drop(const struct tier_host *host, const char *layer) WARN_UNUSED;
void files_forget(const struct tier_host *host, const char *name); /* what a job that died left half-made */

/* ---- kept files ---- */

/*
 * Removes the box and keeps its files as `sandbox`'s. A job calls it, and the next one, which keeps them while the box
 * lives on.
 */
int files_keep(const struct tier_host *host, const char *box, const char *sandbox, const char *stands_on) WARN_UNUSED;
int files_copy(const struct tier_host *host, const char *box, const char *sandbox, const char *stands_on) WARN_UNUSED;
bool files_copies_are_cheap(const struct tier_host *host);
int files_kept_drop(const struct tier_host *host, const char *sandbox) WARN_UNUSED; /* -ENOENT */
int files_kept_below(const struct tier_host *host, const char *sandbox,
                     char ret_stands_on[static FILES_LAYER_MAX]) WARN_UNUSED; /* -ENOENT: there are none */
/* Back to those of a layer: they take the place of the kept ones. A job's. */
int files_keep_layer(const struct tier_host *host, const char *layer, const char *sandbox) WARN_UNUSED;
int files_kept_each(const struct tier_host *host, void (*fn)(void *ctx, const char *sandbox, const char *stands_on),
                    void *ctx) WARN_UNUSED;

/* ---- the whole ---- */

int files_dir(const struct tier_host *host); /* borrowed: the pool's directory */
bool files_are_limited(const struct tier_host *host);
int files_sweep(const struct tier_host *host) WARN_UNUSED; /* deletes dropped files; may take long */
