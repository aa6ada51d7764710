/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares two stacks of overlayfs directories (layers and uppers, unmounted) and writes what differs (wire/diff.h).
 *
 *  1. Everything in them is hostile. Nothing is opened over a link; of files only those that turn out to be regular;
 *     depth, lengths and descriptors are bounded; memory does not grow with what is there.
 *  2. Only directories are entered in which the stacks differ: layers below that both have are not walked.
 *  3. Whiteouts, opaque directories and redirected ones (a directory that was renamed) mean what they mean to
 *     overlayfs.
 *  4. What it costs is counted, in look-ups: of a name in one directory of one layer, of the next name in a list, of
 *     the next 64 KiB of a file that must be read, and of what the next 64 MiB of two files share. It is bounded by
 *     what is there and how many layers there are; beyond `lookups_most` it ends with -EDQUOT.
 *  5. It ends with -EPIPE once nobody reads `out` any more, also when it has nothing to write.
 */
#pragma once

#include "base/def.h"

enum { DIFF_STACK_MAX = 32, DIFF_LOOKUPS_MAX = 20 * 1000 * 1000 };

struct diff {
    int a[DIFF_STACK_MAX], b[DIFF_STACK_MAX]; /* directories, topmost first; borrowed */
    size_t n_a, n_b;
    size_t n_common; /* how many at the end of both are the same */
    int out;         /* written to, a pipe; whoever reads there has 30 s each time */
    uint64_t lookups_most;
    /* What the boxes are called whose files a and b begin with; NULL: they are no living box's (diff_own.h). */
    const char *a_box, *box;
};

/*
 * -ENAMETOOLONG: all was told but what lies too deep or is called too long (wire/diff.h). What is removed while this
 * reads it looks as if it had never been there: whoever called makes sure that it was not. Reading overlayfs's
 * attributes takes CAP_SYS_ADMIN; without it, renamed directories look empty. May take long. ret_lookups: what it took,
 * also when it failed.
 */
int diff_write(const struct diff *d, uint64_t *ret_lookups) WARN_UNUSED;

/* In a process of its own: gives up all rights but to read whatever there is, for a user that nobody is. From then on
 * it ends with its parent. */
int diff_confine(uid_t uid) WARN_UNUSED;
