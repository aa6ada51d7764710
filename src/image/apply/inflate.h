/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacks gzip and zstd as the bytes come. Several members or frames after one another are one stream, as both formats
 * say. */
#pragma once

#include "base/err.h"
#include "image/registry/manifest.h"

enum {
    INFLATE_CHUNK = 256 * 1024,
    INFLATE_RATIO_MAX =
        250, /* refused beyond it once INFLATE_RATIO_FROM bytes came out: nothing that people ship is packed that well */
    INFLATE_WINDOW_LOG = 27, /* zstd: 128 MiB, the most that its own tools take unasked */
};
#define INFLATE_RATIO_FROM (UINT64_C(1) << 30)

typedef int (*inflate_fn)(void *ctx, const void *p, size_t n, struct err *err);

struct inflate;

/* fn gets what comes out, at most INFLATE_CHUNK bytes at a time; more than max_bytes in all is an error. */
struct inflate *inflate_new(enum packing packing, uint64_t max_bytes, inflate_fn fn, void *ctx);
void inflate_free(struct inflate *f);
DEFINE_AUTO(struct inflate *, inflate_free)

int inflate_push(struct inflate *f, const void *p, size_t n, struct err *err) WARN_UNUSED;
int inflate_end(struct inflate *f, struct err *err) WARN_UNUSED; /* refuses a stream that was cut */
