/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: stacks made by hand in a directory of their own, which is the current one. Layers are called by a digit,
 * "0" to "9", each is there. */
#pragma once

#include "base/buf.h"

int diff_rig_set_up(void **state);
int diff_rig_tear_down(void **state);
const char *diff_rig_top(void);

void diff_rig_file(const char *path, const char *text);
void diff_rig_dir(const char *path);
void diff_rig_whiteout(const char *path);
void diff_rig_mark(const char *path, const char *name, const char *value); /* "trusted.overlay.<name>" */
/* As overlayfs would: from has a redirect, and there is a whiteout where it was. Both in `layer`; paths are
 * absolute. */
void diff_rig_rename(char layer, const char *from, const char *to);

/* What a comparison is made with; 0 and NULL: the usual. */
struct diff_rig_run {
    uint64_t lookups_most;
    const char *a_box, *box;
    bool reader_leaves; /* before it begins */
};

/* a, b: layers by their digits, topmost first. Appends what was told; returns what diff_write() did. */
int diff_rig_run(const struct diff_rig_run *how, const char *a, const char *b, size_t n_common, struct buf *out,
                 uint64_t *ret_lookups);

/* wanted: "path Af" and so on, sorted by path, joined by ", ". Returns the look-ups. */
uint64_t diff_rig_expect(const char *a, const char *b, size_t n_common, const char *wanted);
uint64_t diff_rig_expect_of(const struct diff_rig_run *how, const char *a, const char *b, size_t n_common,
                            const char *wanted);
