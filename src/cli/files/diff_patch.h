/* SPDX-License-Identifier: Apache-2.0 */
/* What `cove diff --patch` writes: the contents of both sides, fetched from them, as one patch (cli/files/patch.h). */
#pragma once

#include "cli/service.h"

/*
 * A side of a comparison. What is no sandbox is made one for as long as it takes: without a network, and gone within
 * ten minutes whatever happens to us.
 */
struct diff_side {
    char *id;
    bool is_made;
};
int diff_side_open(struct context *ctx, struct service *s, const char *text, struct diff_side *ret_side) WARN_UNUSED;
/* Of a sandbox: what it was made from. -1: `of` is none. */
int diff_side_open_base(struct context *ctx, struct service *s, const char *of, struct diff_side *ret_side) WARN_UNUSED;
void diff_side_close(struct context *ctx, struct diff_side *side);

/*
 * Writes the patch of what is below `root`, an absolute path, with names from there. lines: those of the comparison of
 * the two (cli/files/diff_line.h), n of them, NUL behind each, sorted by path.
 */
int diff_patch_print(struct context *ctx, const struct diff_side *a, const struct diff_side *b, const char *root,
                     const char *const *lines, size_t n) WARN_UNUSED;
