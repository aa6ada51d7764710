/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What overlayfs would show of directories that lie on top of one another.
 *
 *  1. A directory's place in each layer is found once, when its parent is entered; what is looked up in it starts from
 *     there.
 *  2. A directory that was renamed is called otherwise below. As in overlayfs, its path is followed in one layer at a
 *     time, and what is renamed on the way changes the path for the layers below that one. So it costs at most the
 *     parts of a path for each layer, however often what was renamed. Where the last such path of a layer led is
 *     remembered: what was renamed beside it costs one look-up.
 *  3. Each look-up is counted, and so are names that are listed and blocks that are read (struct effort).
 */
#pragma once

#include "coved/diff/diff.h"
#include "wire/diff.h"

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
    bool lives;       /* it belongs to a living sandbox, and may change during the comparison */
    int dir_fd;       /* borrowed: where it is; not for directories */
    char name[256];   /* its name there */
    struct view view; /* of a directory */
};

/* What a comparison has cost, and may. */
struct effort {
    uint64_t used, most;
    int out; /* a pipe that the reader of the results waits on */
};

/* Before each look-up. -EDQUOT: it was one too many; -EPIPE: nobody waits any more, which is seen within a thousand. */
int effort_spend(struct effort *e) WARN_UNUSED;

/* Where an absolute path leads in one layer. */
struct diff_place {
    bool is_known, is_last /* no layer below has anything of it */;
    int fd; /* owned; -1: there is nothing */
    char path[DIFF_PATH_MAX + 1];
    char below[DIFF_PATH_MAX + 1]; /* what it is called in the layers below this one */
};

struct stack {
    struct view root;
    bool lives;            /* the topmost layer is a living sandbox's own files */
    struct effort *effort; /* borrowed */
    struct diff_place places[DIFF_STACK_MAX];
};

/* Zeroed before; fds are borrowed. Close it also after a failure. */
int stack_open(struct stack *s, const int *fds, size_t n, struct effort *effort) WARN_UNUSED;
void stack_close(struct stack *s);

/* v: of this stack. ret_found is overwritten; close its view. -ENAMETOOLONG: where it lies below has too long a
 * path. */
int view_find(struct stack *s, const struct view *v, const char *name, struct found *ret_found) WARN_UNUSED;
void view_close(struct view *v);
