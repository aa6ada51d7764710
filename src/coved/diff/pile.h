/* SPDX-License-Identifier: Apache-2.0 */
/* The directories in the pool that make up the files of a sandbox, or of a layer with all below it. */
#pragma once

#include "coved/boxes/boxes.h"
#include "coved/diff/diff.h"

struct pile {
    size_t n; /* topmost first */
    int fds[DIFF_STACK_MAX];
    char names[DIFF_STACK_MAX][SUP_DIGEST_MAX]; /* of layers; "": a sandbox's own files */
};

/* ret_pile: empty before; what it holds open goes with the process. -ENOENT: one of them is not there. */
int pile_open(struct pool *pool, const struct boxes_files *files, struct pile *ret_pile) WARN_UNUSED;

/*
 * Once all was read: -ESTALE when any is not where it was. What is removed is moved away as a whole before anything in
 * it goes, so while this says 0 nothing was missing.
 */
int pile_check(struct pool *pool, const struct boxes_files *files, const struct pile *pile) WARN_UNUSED;
