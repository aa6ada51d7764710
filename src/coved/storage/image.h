/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SUP_IMAGE: has cove-image (image/job.h) fill a layer in the making, and commits it when that was done well. coved
 * passes the socket on and reads nothing from it. A cove-image ends with coved, and with the cove-api that asked for
 * it; what it left is thrown away then.
 */
#pragma once

#include "base/err.h"
#include "coved/loop.h"

enum { IMAGES_MAX = 2 * 64 }; /* as many as builds run: builds.concurrency, and as many for other tenants */

struct images;
struct jobs;
struct stage;
struct tier_host;

/*
 * Everything is borrowed. program: its path on the host. mount_on: an existing directory there, which the layer covers
 * in the process's own mount namespace, so that it can be mounted with other ids. `done` gets what image_start() was
 * given.
 */
struct images *images_new(struct coved_loop *loop, struct jobs *jobs, const struct tier_host *host,
                          const struct stage *stage, const char *program, const char *mount_on,
                          void (*done)(void *ctx, uint64_t asked, const struct err *err), void *ctx);
void images_free(struct images *images);
size_t images_left(const struct images *images);

/* fd: taken, also when this fails. ERR_RESOURCE_EXHAUSTED: IMAGES_MAX are under way. */
int image_start(struct images *images, const char *layer, uint64_t owner, int fd, uint64_t asked,
                struct err *err) WARN_UNUSED;
void images_cancel(struct images *images); /* all */
