/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directories of one watch: the kernel's number of each, and its path, relative to the watch's root ("" is the
 * root's own), which changes when it or one above it is renamed. Those that still have to be read are in a queue.
 *
 *  1. A directory that is renamed inside the tree keeps its number, under its new path; one that left the tree is
 *     forgotten, with all below it. That it left is known when the next event is not the one of its arrival, so each
 *     event of a watch comes here first.
 *  2. Others may change the tree meanwhile: a directory that is gone, or is none any more, is no failure; only the
 *     root's is.
 */
#pragma once

#include "base/list.h"
#include "base/map.h"
#include "base/path.h"

struct inotify_event;

struct watch_dir {
    struct list todo; /* until it was read */
    int number;       /* the kernel's */
    bool is_new;      /* what is found in it is reported */
    char *path;       /* owned, relative */
};

struct watch_dirs {
    int fd;               /* of inotify; borrowed */
    char *root;           /* owned */
    struct map by_number; /* number + 1 -> struct watch_dir */
    struct list todo;
    void *reading;         /* DIR, of the first of todo */
    uint32_t moved_cookie; /* of a directory that left its place, 0: none */
    char *moved_from;      /* owned */
};

void watch_dirs_init(struct watch_dirs *w);
void watch_dirs_open(struct watch_dirs *w, int fd, const char *root); /* once, before what is below */
void watch_dirs_fini(struct watch_dirs *w);

/* The full path of root/dir/name; false when it is too long to be one. */
bool watch_dirs_path(const struct watch_dirs *w, const char *dir, const char *name,
                     char ret_path[static PATH_TEXT_MAX]);

/* Watches a directory and notes that it has to be read. -ENOSPC: there are too many. */
int watch_dirs_add(struct watch_dirs *w, const char *parent, const char *name, bool is_new) WARN_UNUSED;
struct watch_dir *watch_dirs_find(struct watch_dirs *w, int number); /* NULL: none of ours, or not any more */
void watch_dirs_drop(struct watch_dirs *w, struct watch_dir *d);     /* the kernel has forgotten it */

/* To be called with each event before anything else is done with it (see 1). */
void watch_dirs_settle(struct watch_dirs *w, const struct inotify_event *e);
/* A directory of this name has left d, or come to it. True when it came from a place where it was watched: nothing in
 * it is new. */
bool watch_dirs_moved(struct watch_dirs *w, const struct watch_dir *d, const struct inotify_event *e, const char *name);

/* The first that has to be read, NULL when none has to be. */
struct watch_dir *watch_dirs_first(struct watch_dirs *w);
/* The next name in it, valid until the next call, and whether it is a directory; NULL: it was read to its end, and
 * another one is the first. */
const char *watch_dirs_read(struct watch_dirs *w, bool *ret_is_dir);
/* Reads none of those that still had to be read. */
void watch_dirs_skip(struct watch_dirs *w);
