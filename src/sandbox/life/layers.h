/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers of the storage pool as the core sees them: who needs which, what is garbage, what is kept ready.
 *
 * Roots are templates and their builds, whatever else registers itself with layers_root_add() (caches of builds), and
 * sandboxes, live or paused. What no root reaches is dropped: a while after it was made, by a timer, or at once by
 * layers_collect().
 */
#pragma once

#include "base/list.h"
#include "sandbox/core.h"
#include "template/template.h"

/* A source of roots: calls fn for each layer that it needs. Embedded in its owner. */
struct layers_root {
    struct list node;
    void (*each)(struct layers_root *root, void (*fn)(void *ctx, const char *layer), void *ctx);
};
void layers_root_add(struct core *core, struct layers_root *root);
void layers_root_remove(struct layers_root *root);
/* A layer that was just made has a root by now, or will have none: it may be collected as any other. */
void layers_settled(struct core *core, const char *layer);

/* What one round found. Strings are valid during the call. */
struct layers_garbage {
    const char *layer;
    uint64_t bytes; /* 0: not known */
    bool dropped;   /* false in a dry run, and when coved refused */
};
typedef void (*layers_collect_fn)(void *ctx, const struct layers_garbage *found, size_t n, const struct err *err);
int layers_collect(struct core *core, const struct actor *actor, bool dry_run, layers_collect_fn done, void *ctx,
                   struct err *err) WARN_UNUSED;

/* done comes once, in a later turn. */
typedef void (*pool_done_fn)(void *ctx, const struct err *err);

/*
 * An image as a new layer (layer_name_new()): coved starts a process that unpacks it and talks over fd (taken in any
 * case) with whoever has its other end (image/job.h). done: the layer is in the pool; like a stored one it is garbage
 * after a while unless somebody names it.
 */
int layers_image(struct core *core, uint64_t tenant, const char *layer, int fd, pool_done_fn done, void *ctx,
                 struct err *err) WARN_UNUSED;

/*
 * What b has that a has not, written to fd (taken in any case) as in coved/diff/diff.h. Each a living sandbox's id, a
 * layer, or a template or snapshot by id or name; a empty: what b stands on. ERR_NOT_FOUND.
 */
int layers_diff(struct core *core, uint64_t view, struct str a, struct str b, int fd, pool_done_fn done, void *ctx,
                struct err *err) WARN_UNUSED;

/* One record of it, from what was read from the other end of fd. */
enum { LAYERS_PATH_MAX = 4095 };
struct layers_change {
    const char *change; /* "added", "modified", "deleted" */
    const char *type;   /* "file", "directory", "link", ... */
    uint32_t mode;      /* only permissions; for deleted files, the one they had, like the other members */
    uint64_t size;
    struct str path; /* relative to the root, any byte but NUL; points into what was read */
};
/* Takes one from the front of *in. 1; 0: it is incomplete; -EPROTO. */
int layers_change_next(struct str *in, struct layers_change *ret_change) WARN_UNUSED;

/* The pool's figures. */
struct pool_figures {
    const char *kind; /* "btrfs", "reflink", "copy" */
    bool limits;
    uint64_t total_bytes, free_bytes;
    size_t layers;
    bool has_layer; /* the one that was asked about is there */
};
typedef void (*pool_figures_fn)(void *ctx, const struct pool_figures *figures, const struct err *err);
/* layer: is it among them? "": none is asked about. */
int pool_figures(struct core *core, const char *layer, pool_figures_fn done, void *ctx, struct err *err) WARN_UNUSED;

/*
 * Keeps n sandboxes of the template ready, made with its own sizes, its start command running and ready; filled up in
 * the background. Kept in the store. A create that asks for nothing that differs takes one. n 0: none (a template with
 * a start command has 1 by itself). most: so many may be taken at a time, which is for the façade that asked to see to;
 * 0: any number.
 */
#define WARM_MOST_KEPT UINT32_MAX /* as it was */
int core_warm_set(struct core *core, const struct actor *asker, struct str ref, uint32_t n, uint32_t most,
                  struct err *err) WARN_UNUSED;
uint32_t core_warm_most(const struct core *core, const struct template *t);
/* How many are asked for; how many are ready. */
uint32_t core_warm_count(const struct core *core, const struct template *t, uint32_t *ret_ready);
