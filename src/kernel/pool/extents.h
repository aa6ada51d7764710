/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which bytes of a file are shared with others, and in which place of the disk they lie (FS_IOC_FIEMAP). Clones on
 * btrfs and XFS have them in the same place until one of the two is written to; the file system never writes over a
 * place that is shared.
 *
 *  1. Only what the file system itself calls shared is told, and of that only plain data: nothing that is compressed,
 *     inline, unwritten, or not on disk yet.
 *  2. What is being replaced is told with its old place until the new bytes are on disk. So call extents_settle()
 *     first: what was written before that is told as it is.
 *  3. A place that no file has any more is given to others. So of two files that are asked about one after the other,
 *     the same place means the same bytes only when nobody changes one of them, or when the file system had the same
 *     age before and after both. An age is a transaction of btrfs: what is freed in one is not given away before the
 *     next.
 */
#pragma once

#include "base/def.h"

enum { EXTENTS_MAX = 128 /* reported in one call */ };

/* A file system that extents can be asked of. */
struct extents_disk {
    uint64_t kind, id[2];
    bool has_age;
    uint64_t age;
};

/* That of an open file. -EOPNOTSUPP: another kind, or XFS with a realtime device, where a place does not say of which
 * device it is. */
int extents_disk(int fd, struct extents_disk *ret_disk) WARN_UNUSED;
/* Whatever their age. Subvolumes of btrfs are of one file system, though their device numbers differ. */
bool extents_on_one(const struct extents_disk *a, const struct extents_disk *b);

struct extent {
    uint64_t at, n; /* in the file */
    uint64_t place; /* of the first byte */
};

struct extents {
    uint64_t until; /* nothing is known from here on */
    size_t n;
    struct extent all[EXTENTS_MAX]; /* ascending, disjoint */
};

/*
 * Writes out what is not on disk yet of the file, which may take long. It may include a part of what is written while
 * it runs.
 */
int extents_settle(int fd) WARN_UNUSED;

/* From `from` to `until`, or as far as EXTENTS_MAX pieces of the file reach; at least one byte further than `from`. */
int extents_read(int fd, uint64_t from, uint64_t until, struct extents *ret_extents) WARN_UNUSED;

/* What two files have at the same offset in the same place. Returns how many pieces these are; they always fit. */
size_t extents_common(const struct extents *a, const struct extents *b,
                      struct extent ret_common[static 2 * EXTENTS_MAX]);
