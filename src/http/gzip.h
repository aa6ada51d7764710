/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streaming gzip in bounded memory. The caller brings the output buffer and calls until all input is taken:
 *
 *   while ((r = gunzip_next(g, &in, out, sizeof(out), &n)) == GZIP_OUTPUT) use(out, n);
 */
#pragma once

#include "base/buf.h"

enum gzip_result {
    GZIP_NEED_MORE, /* all input was taken; n bytes (perhaps 0) were produced */
    GZIP_OUTPUT,    /* n > 0 bytes were produced and there may be more without new input: call again */
    GZIP_END,       /* n bytes were produced, the last ones: the stream is complete */
};

struct gunzip;

/*
 * Reads gzip (also several members in a row) and, as HTTP's "deflate", zlib. max_bytes bounds all output together.
 * max_ratio bounds output to input once more than 1 MiB came out (0: 200), so that a bomb ends early.
 */
struct gunzip *gunzip_new(uint64_t max_bytes, unsigned max_ratio);
void gunzip_free(struct gunzip *g);
DEFINE_AUTO(struct gunzip *, gunzip_free)

/*
 * An enum gzip_result, or -EPROTO (not gzip, damaged, bytes behind the end), -EFBIG (max_bytes or max_ratio). Errors
 * stick.
 */
int gunzip_next(struct gunzip *g, struct str *in, char *out, size_t cap, size_t *ret_n) WARN_UNUSED;

/* At the end of the input: 0 when the stream was complete, -EPROTO else. */
int gunzip_end(const struct gunzip *g) WARN_UNUSED;

struct gzip;

struct gzip *gzip_new(int level); /* 1 (fast) to 9 */
void gzip_free(struct gzip *g);
DEFINE_AUTO(struct gzip *, gzip_free)

enum gzip_flush {
    GZIP_NO_FLUSH, /* best compression */
    GZIP_SYNC,     /* everything given so far comes out: for live streams */
    GZIP_FINISH,   /* this was the last input: call until GZIP_END */
};
int gzip_next(struct gzip *g, struct str *in, enum gzip_flush flush, char *out, size_t cap, size_t *ret_n) WARN_UNUSED;

/* All of it at once, appended. -EPROTO (it is not gzip, or it is damaged), -EFBIG (a bomb, or more than the buffer may
 * hold). */
int gunzip_append(struct buf *b, struct str packed) WARN_UNUSED;
int gzip_append(struct buf *b, struct str plain, int level) WARN_UNUSED;
