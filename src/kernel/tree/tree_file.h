/* SPDX-License-Identifier: Apache-2.0 */
/* One file of a tree that is cloned: its bytes, and what else there is to it. For tree_clone.c. */
#pragma once

#include "base/def.h"

#include <sys/stat.h>

struct tree_file {
    bool share;
    char *block;         /* owned: for bytes that must be copied here */
    char *names, *value; /* owned: extended attributes */
};

void tree_file_init(struct tree_file *t, bool share);
void tree_file_fini(struct tree_file *t);

/* Anything but a directory. */
int tree_file_copy(struct tree_file *t, int from_at, const char *name, const struct stat *st, int to_at) WARN_UNUSED;

/* Owner, attributes, mode and times of one open directory or file, for another. */
int tree_file_dress(struct tree_file *t, int from, int to) WARN_UNUSED;
