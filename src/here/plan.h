/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of which path, made from the settings and from what lies on disk now. The box carries it out from the
 * outermost path to the innermost.
 *
 *  1. What nobody names can be read and not written.
 *  2. A path that may not be written, or not be read, can't be replaced either: each directory between it and what may
 *     be written is a mount of its own (PLAN_PIN), and mounts can't be renamed or removed. A link on the way is covered
 *     itself, after all else: so it shows nothing that is hidden where it leads.
 *  3. What must not come into being has a directory in its place, empty and for nobody to write, as long as a box needs
 *     it: mode 01555 says that it is ours. Git does not see empty directories. All boxes that need it hold a shared
 *     lock; the last one removes it.
 */
#pragma once

#include "here/settings.h"

enum plan_kind { PLAN_WRITE, PLAN_PIN, PLAN_READ, PLAN_FIXED, PLAN_MASK, PLAN_CONTENT };

struct plan_op {
    char *path; /* absolute, without links but perhaps the last component */
    enum plan_kind kind;
    bool is_directory, is_link;
    char *content; /* PLAN_CONTENT: what the file seems to hold */
    int fd;        /* for the box */
};

struct plan {
    struct plan_op *ops; /* in order */
    size_t n;
    struct plan_place *places;
    size_t n_places;
    bool all_writable;
};

/* A path of the plan, as O_PATH: over no link that is there since. What is a link itself is opened as one. */
int plan_open(const char *path, int *ret_fd) WARN_UNUSED;
int plan_make(const struct settings *s, const char *cwd, const char *home, struct plan *p, struct err *err) WARN_UNUSED;
void plan_add(struct plan *p, const char *path, enum plan_kind kind, const char *content);
void plan_sort(struct plan *p);
char *plan_resolve(const char *text, const char *cwd, const char *home); /* NULL: it isn't there. Owned by the caller */
bool plan_is_below(const char *path, const char *directory);             /* or the same */
void plan_fini(struct plan *p);                                          /* removes what it has put down */
