/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of boxes in the storage pool (kernel/pool/pool.h), as coved/boxes handles them: by names of boxes, sandboxes
 * and layers. `stands_on` is the topmost layer below a box's own files, "" for none. 0 or -errno, as the pool has it.
 * What is "a job's" may take long, and is called in a child of coved.
 */
#pragma once

#include "base/err.h"
#include "kernel/pool/pool.h"

/* The file in a box or a layer that is a machine's whole disk (tier/vm/disks.c); other tiers can't use such a layer. */
#define FILES_DISK ".cove-disk"
#define FILES_IMAGES "images" /* of the pool: made of layers */
#define FILES_BOOTS "boots"   /* the same: machines that have booted on them (tier/vm/boot.h) */

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

/* ---- layers ---- */

int files_snapshot(const struct tier_host *host, const char *box, const char *stands_on,
                   const char *layer) WARN_UNUSED; /* a job's, as the next one */
int files_layer_below(const struct tier_host *host, const char *layer,
                      char ret_below[static POOL_LAYER_MAX]) WARN_UNUSED; /* the one directly below it; -ENOENT */
int files_layer_drop(const struct tier_host *host, const char *layer) WARN_UNUSED;

/* ---- kept files ---- */

/*
 * Removes the box and keeps its files as `sandbox`'s. A job calls it, and the next one, which keeps them while the box
 * lives on.
 */
int files_keep(const struct tier_host *host, const char *box, const char *sandbox, const char *stands_on) WARN_UNUSED;
int files_copy(const struct tier_host *host, const char *box, const char *sandbox, const char *stands_on) WARN_UNUSED;
int files_kept_below(const struct tier_host *host, const char *sandbox,
                     char ret_stands_on[static POOL_LAYER_MAX]) WARN_UNUSED; /* -ENOENT: there are none */
int files_kept_each(const struct tier_host *host, void (*fn)(void *ctx, const char *sandbox, const char *stands_on),
                    void *ctx) WARN_UNUSED;
