/* SPDX-License-Identifier: Apache-2.0 */
/* What differs between two file trees, one change after the other, as fast as it is taken. */
#pragma once

#include "base/err.h"
#include "sandbox/life/layers.h"

struct diff_read;

/* From the loop. A change is valid during the call. */
struct diff_read_ops {
    void (*on_change)(void *ctx, const struct layers_change *change);
    bool (*is_full)(void *ctx);                       /* no more for now: diff_read_resume() goes on. May be NULL */
    void (*on_end)(void *ctx, const struct err *err); /* once, the last; err NULL: that was all */
};

/* As layers_diff(). */
int diff_read_start(struct core *core, uint64_t view, struct str a, struct str b, const struct diff_read_ops *ops,
                    void *ctx, struct diff_read **ret_read, struct err *err) WARN_UNUSED;
void diff_read_resume(struct diff_read *d);
void diff_read_close(struct diff_read *d); /* always, also after the end: no callback afterwards */

/* What to do about ERR_RESOURCE_EXHAUSTED. */
#define DIFF_READ_HINT                                                                                                 \
    "wait until other comparisons have ended, or compare what is closer, such as a sandbox with its last snapshot"
