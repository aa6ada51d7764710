/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration in force: a copy of the file that people write, in run_dir (wire/keeper.h has the names), which
 * each coved of this service reads. */
#pragma once

#include "base/err.h"

struct accepted {
    char *from;          /* owned: what people write */
    bool may_be_missing; /* `from` may: an empty one then */
    char *path, *before; /* owned */
};

/* Copies the file; coved and its children are led to the copy by COVE_CONFIG from here on. */
int accepted_open(const char *run_dir, struct accepted *ret_accepted, struct err *err) WARN_UNUSED;
void accepted_say_from(const struct accepted *a); /* in a child: back to what people write */

int accepted_take(struct accepted *a) WARN_UNUSED; /* the file as it is now; 0 or -errno: all is as it was */
void accepted_works(const struct accepted *a);     /* the new configuration stays */
void accepted_take_back(
    const struct accepted
        *a); /* the new configuration doesn't work: restores the previous one; does nothing if there is none */
