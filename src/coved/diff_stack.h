/* SPDX-License-Identifier: Apache-2.0 */
/* What overlayfs would show of directories that lie on top of one another. */
#pragma once

#include "coved/diff.h"

#include <sys/stat.h>

/* A directory as it is merged of one in each of some layers, topmost first. */
struct view {
    size_t n;
    struct {
        int fd; /* owned */
        size_t layer;
    } at[DIFF_STACK_MAX];
};

struct found {
    bool is_there;
    struct stat st;   /* of the topmost */
    size_t layer;     /* that it is of */
    int dir_fd;       /* borrowed: where it lies; for what is no directory */
    char name[256];   /* its name there */
    struct view view; /* of a directory */
};

int view_root(const int *fds, size_t n, struct view *ret_view) WARN_UNUSED;
void view_close(struct view *v);

/* ret_found is overwritten; close its view. */
int view_find(const struct view *root, const struct view *v, const char *name, struct found *ret_found) WARN_UNUSED;
