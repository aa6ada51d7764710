/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the files of a tar lie in it: name, offset, size. For archives of images, which hold few files with plain
 * names; ustar, GNU long names and PAX paths and sizes are read, links of both kinds lead to the file that they name.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

struct tarindex;

struct tarindex_limits {
    size_t files, names_bytes;
};

/* fd: read by pread() from its beginning. */
int tarindex_open(int fd, const struct tarindex_limits *limits, struct tarindex **ret_index,
                  struct err *err) WARN_UNUSED;
void tarindex_free(struct tarindex *t);
DEFINE_AUTO(struct tarindex *, tarindex_free)

/* name: without "./" in front. Of several files of one name the last. */
bool tarindex_find(const struct tarindex *t, const char *name, uint64_t *ret_offset, uint64_t *ret_size);
