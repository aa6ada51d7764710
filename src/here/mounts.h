/* SPDX-License-Identifier: Apache-2.0 */
/* What is mounted on this machine: the same file can be seen at several places (bind mounts, file systems that are
 * mounted twice), and the machine's processes wherever there is a procfs. */
#pragma once

#include "base/buf.h"

struct mounts {
    struct buf text;
    struct mounts_one *all;
    size_t n;
};

typedef int (*mounts_found)(void *ctx, const char *path);

int mounts_read(struct mounts *m) WARN_UNUSED; /* -errno */
void mounts_fini(struct mounts *m);

/* Other places at which what is at this path is, or a part of what is below it; the first answer other than 0 is
 * returned. `path` has no links. */
int mounts_aliases(const struct mounts *m, const char *path, mounts_found found, void *ctx) WARN_UNUSED;

/* Each procfs but that at /proc. */
int mounts_procs(const struct mounts *m, mounts_found found, void *ctx) WARN_UNUSED;
