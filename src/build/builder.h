/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds templates: base, steps, start command. Each step runs in a sandbox of our own, and what it leaves is stored as
 * a layer that the next build of the same steps finds again.
 *
 *  1. A build waits in a queue; so many run at a time. What happens is told in its log (template/builds.h), which is
 *     where its end stands too.
 *  2. A step is found in the cache by its key (context.h), unless it, or one before it, is forced. Once one step was
 *     run, all behind it are.
 *  3. Steps that follow each other share one sandbox; after each that may have changed files these are stored. ENV
 *     changes the context alone.
 *  4. The start command is tried in the end, until the ready command succeeds, and ended; what counts is stored before.
 *     Sandboxes run it again. On a tier that saves memory, what is stored is the sandbox as it is then, memory and
 *     files: others go on from there.
 *  5. That it began, and how it ended, stands in the log of the service (sandbox/action.h).
 *  6. A sandbox of a build is hidden, has the build's limits, and ends with the build, whatever happened. A build that
 *     was interrupted by the end of the service has failed.
 */
#pragma once

#include "build/spec.h"
#include "build/uploads.h"
#include "sandbox/core.h"

struct builder;

/* An image that is not fetched: the local template that stands for it. */
struct build_alias {
    const char *image, *template_ref;
};

/* Strings and lists are borrowed and outlive the builder. 0: the default. */
struct builder_config {
    struct core *core;
    const char *data_dir;        /* uploads/ is made here */
    unsigned concurrency;        /* 2 */
    uint64_t step_timeout_ms;    /* 1 h */
    uint64_t timeout_ms;         /* 2 h, of all */
    uint64_t ready_timeout_ms;   /* 10 min */
    uint64_t disk_bytes;         /* of a build's sandbox; 0: the service's */
    uint64_t disk_reserve_bytes; /* what uploads leave free: build/uploads.h; 0: by the disk's size */
    /* with its tag: the base template stands for it, unless an alias says otherwise; NULL: none */
    const char *base_image;
    const struct build_alias *aliases;
    size_t n_aliases;
    const json_t *network;       /* the policy of steps whose build has none; NULL: as other sandboxes */
    const char *const *insecure; /* registries, as image/job.h says */
    size_t n_insecure;
};

int builder_new(const struct builder_config *config, struct builder **ret_builder, struct err *err) WARN_UNUSED;
void builder_free(
    struct builder *b); /* before core_close(); builds that run have failed at the next start. Accepts NULL */

/* Begins a build that was requested. The spec is copied. ERR_NOT_FOUND, ERR_FAILED_PRECONDITION,
 * ERR_RESOURCE_EXHAUSTED: too many wait. */
int builder_start(struct builder *b, const struct actor *actor, const char *build_id, const struct build_spec *spec,
                  struct err *err) WARN_UNUSED;

/* It ends as failed, soon. ERR_FAILED_PRECONDITION: it does not run. */
int builder_cancel(struct builder *b, const struct actor *actor, const char *build_id, struct err *err) WARN_UNUSED;
/* All of a template. */
void builder_cancel_template(struct builder *b, const char *template_id, const char *why);

struct uploads *builder_uploads(struct builder *b);
/* The action that comes before upload_begin(). size: as announced, -1: it was not. */
int builder_upload(struct builder *b, const struct actor *actor, struct str hash, int64_t size,
                   struct err *err) WARN_UNUSED;

/*
 * What the steps of a build added, in their order: "base", "1" and on. Of the last 64 builds, as long as this process
 * lives. is_known: the pool could say; of a step from the cache: it could then.
 */
struct build_step_size {
    const char *step;
    uint64_t bytes;
    bool is_known, is_cached;
};
void builder_each_step(struct builder *b, const char *build_id,
                       void (*fn)(void *ctx, const struct build_step_size *size), void *ctx);

/* Forgets what is in the cache of steps; the layers go with the next collection of garbage. */
int builder_forget_cache(struct builder *b, const struct actor *actor, struct err *err) WARN_UNUSED;
