/* SPDX-License-Identifier: Apache-2.0 */
/* Shared between apply.c (a stream's entries), apply_place.c (where they go) and apply_meta.c (owners, modes,
 * attributes, times). */
#pragma once

#include "base/map.h"
#include "base/path.h"
#include "image/apply/apply.h"

#include <time.h>

struct archive_entry;

enum {
    APPLY_NAME_MAX = 255,
    APPLY_DIRS_BYTES =
        32 << 20,           /* of directories whose times are still to be set; when it is full they are set early */
    APPLY_HIDE_DEPTH = 512, /* of directories of one layer inside one another below a whiteout */
};

/* A directory that was opened last, by its name in the stream. */
struct place_slot {
    char *path; /* owned; NULL: empty */
    int fd;     /* O_PATH */
    ino_t ino;
    bool stale; /* open for who works in it, but not to be found by its name again */
};

struct apply_dir {
    char *path;
    struct timespec mtime;
};

struct apply {
    struct apply_config config;
    uint64_t bytes, entries;
    bool lower;                 /* there are layers below this one */
    struct map seen;            /* what this layer brought: place_key() of each */
    struct place_slot slots[2]; /* parents of entries, parents of what hard links name */
    struct apply_dir *dirs;
    size_t n_dirs, cap_dirs, dirs_bytes;
    unsigned warned; /* bits of what is warned of once */
};

/* ---- apply_place.c ---- */

/*
 * An entry's name, cleaned: without leading, doubled and trailing slashes and "."; "" is the root. False: "..", too
 * long, empty, or below a whiteout.
 */
bool place_clean(const char *name, char ret_path[static PATH_TEXT_MAX]);

/* Where an entry goes: an open directory and a name in it. */
struct apply_place {
    int dir; /* borrowed from a slot: valid until the next place_find() of that slot */
    ino_t ino;
    const char *name; /* in path */
};

/* path: clean, not "". make: missing directories are made, as root's, 0755. -ENOENT without. */
int place_find(struct apply *a, unsigned slot, const char *path, bool make, struct apply_place *ret_place) WARN_UNUSED;
int place_open_directory(struct apply *a, const char *path,
                         int *ret_fd) WARN_UNUSED; /* O_RDONLY; a link at its end is none */

/* Deletes what is there, a whole tree too. */
int place_clear(struct apply *a, const struct apply_place *at) WARN_UNUSED;

void place_saw(struct apply *a, const struct apply_place *at); /* it is of this layer now */

/* Deletes what layers below put there; of a directory that this layer brought as well, what they put in it. */
int place_hide(struct apply *a, int dir, ino_t ino, const char *name, int depth) WARN_UNUSED;
int place_hide_below(struct apply *a, int dir, int depth) WARN_UNUSED; /* the same for all in the directory */

void place_forget(struct apply *a); /* slots, and what was seen */

/* ---- apply_meta.c ---- */

/* Owner, mode and attributes of an open file or directory, in the order in which the kernel keeps them. had: it may
 * have attributes already. */
int meta_apply(struct apply *a, int fd, struct archive_entry *e, const char *path, bool had,
               struct err *err) WARN_UNUSED;
int meta_apply_link(int dir, const char *name, struct archive_entry *e, const char *path, struct err *err) WARN_UNUSED;
int meta_times(int fd, struct archive_entry *e) WARN_UNUSED;
int meta_times_at(int dir, const char *name, struct archive_entry *e) WARN_UNUSED;

/* A directory's time is set when its layer is complete, since what comes into it changes it. */
void meta_later(struct apply *a, const char *path, struct archive_entry *e);
void meta_settle(struct apply *a);

enum { WARN_XATTR = 1, WARN_OVERLAY = 2, WARN_NO_XATTRS = 4 };
