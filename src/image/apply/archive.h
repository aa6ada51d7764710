/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An image in a file: an OCI layout as a tar, or a docker-archive ("docker save"); plain, gzip or zstd. Where it is
 * both, the layout is taken, because it has digests for everything. What can't be read at will, a pipe or what is
 * packed, is first unpacked into `spool`.
 */
#pragma once

#include "base/err.h"
#include "image/registry/manifest.h"

enum { ARCHIVE_FILES_MAX = 100000, ARCHIVE_NAMES_BYTES = 16 << 20 };

struct archive_image;

/* fd: borrowed. spool: an empty file, borrowed, for at most spool_max bytes. canceled is asked while reading what may
 * be long. */
struct archive_config {
    int fd, spool;
    uint64_t spool_max;
    bool (*canceled)(void *ctx);
    void *ctx;
};
int archive_image_open(const struct archive_config *config, struct archive_image **ret_archive,
                       struct err *err) WARN_UNUSED;
void archive_image_free(struct archive_image *a);
DEFINE_AUTO(struct archive_image *, archive_image_free)

bool archive_is_docker(const struct archive_image *a); /* and no OCI layout */

/* A file's bytes by its name; of a blob, those of blobs/sha256/<digest>, or of its name in a docker-archive.
 * ERR_NOT_FOUND. */
int archive_read_text(struct archive_image *a, const char *name, struct buf *ret_text, struct err *err) WARN_UNUSED;
typedef int (*archive_fn)(void *ctx, const void *p, size_t n, struct err *err);
int archive_blob(struct archive_image *a, const struct image_blob *blob, archive_fn fn, void *ctx,
                 struct err *err) WARN_UNUSED;
int archive_blob_size(struct archive_image *a, const struct image_blob *blob, uint64_t *ret_size,
                      struct err *err) WARN_UNUSED;
