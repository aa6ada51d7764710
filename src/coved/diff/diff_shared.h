/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of two files need not be read because they share it: clones have the same bytes in the same place of the disk
 * (kernel/pool/extents.h).
 *
 *  1. Bytes are taken for the same only when both files have them in one place, and that place cannot have become
 *     another's between the two questions: one of the files is no living sandbox's, so that it does not change, or the
 *     file system had the same age before and after. Otherwise they are read, and so they are after any error.
 *  2. Bytes that are not on disk yet have no place, and those that they replace still have theirs. So both files are
 *     written out before what they share is believed; once, and only when they seem to share enough. What a sandbox
 *     writes to them after that may or may not be seen, as when they are read.
 *  3. Asking costs look-ups, fewer than it saves: a window in which little is shared, or in very many pieces, is read
 *     whole before anything is asked again.
 */
#pragma once

#include "coved/diff/diff_stack.h"
#include "kernel/pool/extents.h"

enum { DIFF_SHARED_WORTH = 512 << 10 /* bytes of a window */, DIFF_SHARED_WINDOW = 64 << 20 };

struct diff_shared {
    int fd_a, fd_b; /* borrowed */
    uint64_t size;
    bool is_kept; /* one of them does not change */
    bool is_off, is_settled;
    uint64_t until; /* what they share from here on is not known yet */
    size_t n, i;
    struct extent common[2 * EXTENTS_MAX];
};

/*
 * Regular files, both of this size. a_lives, b_lives: the file belongs to a living sandbox, which may change it during
 * the comparison.
 */
void diff_shared_init(struct diff_shared *s, int fd_a, int fd_b, off_t size, bool a_lives, bool b_lives);

/* Until where they share the bytes from `at` on; `at` itself when they must be read. Each call's `at` is at or behind
 * the last one's. -errno: effort_spend(). */
int diff_shared_skip(struct diff_shared *s, struct effort *e, off_t at, off_t *ret_at) WARN_UNUSED;
