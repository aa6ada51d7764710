/* SPDX-License-Identifier: Apache-2.0 */
#include "http/gzip.h"
#include "base/mem.h"

#include <limits.h>
#include <zlib.h>

enum {
    WINDOW = 15,
    GZIP_FORMAT = 16, /* added to the window: write gzip */
    AUTO_FORMAT = 32, /* read gzip or zlib */
    RATIO_DEFAULT = 200,
    RATIO_FREE = 1024 * 1024, /* output that may come from however little input */
    PIECE = 16 * 1024,
};

struct gunzip {
    z_stream z;
    uint64_t max_bytes, in_bytes, out_bytes;
    unsigned max_ratio;
    bool between; /* a member is complete; the next or the end may follow */
    bool started, single;
    int error;
};

static void *z_alloc(void *opaque UNUSED, unsigned count, unsigned size)
{
    return mem_array(count, size);
}

static void z_free(void *opaque UNUSED, void *p)
{
    mem_free(p);
}

struct gunzip *gunzip_new(uint64_t max_bytes, unsigned max_ratio)
{
    struct gunzip *g = mem_new(struct gunzip);
    g->max_bytes = max_bytes;
    g->max_ratio = max_ratio ? max_ratio : RATIO_DEFAULT;
    g->z.zalloc = z_alloc;
    g->z.zfree = z_free;
    int r = inflateInit2(&g->z, WINDOW + AUTO_FORMAT);
    assert(r == Z_OK);
    return g;
}

void gunzip_free(struct gunzip *g)
{
    if (!g)
        return;
    (void)inflateEnd(&g->z);
    mem_free(g);
}

/* zlib counts in unsigned int; larger pieces go in parts. */
static unsigned piece(size_t n)
{
    return n > UINT_MAX ? UINT_MAX : (unsigned)n;
}

static int gunzip_step(struct gunzip *g, struct str *in, char *out, size_t cap, size_t *ret_n)
{
    if (g->between && in->n) {
        /* Members may follow each other in gzip; zlib has one stream. */
        if (g->single || inflateReset(&g->z) != Z_OK)
            return -EPROTO;
        g->between = false;
    }
    if (!g->started && in->n) {
        g->started = true;
        g->single = (unsigned char)in->p[0] != 0x1f;
    }
    unsigned given = piece(in->n), room = piece(cap);
    g->z.next_in = (Bytef *)(uintptr_t)in->p;
    g->z.avail_in = given;
    g->z.next_out = (Bytef *)out;
    g->z.avail_out = room;
    int r = inflate(&g->z, Z_NO_FLUSH);
    *ret_n = room - g->z.avail_out;
    g->in_bytes += given - g->z.avail_in;
    g->out_bytes += *ret_n;
    *in = str_sub(*in, given - g->z.avail_in);
    if (g->out_bytes > g->max_bytes || (g->out_bytes > RATIO_FREE && g->out_bytes / g->max_ratio > g->in_bytes))
        return -EFBIG;
    if (r == Z_STREAM_END) {
        g->between = true;
        return in->n ? GZIP_OUTPUT : GZIP_END;
    }
    if (r == Z_BUF_ERROR && in->n == 0 && *ret_n == 0)
        return GZIP_NEED_MORE;
    if (r != Z_OK)
        return -EPROTO;
    return in->n == 0 && g->z.avail_out ? GZIP_NEED_MORE : GZIP_OUTPUT;
}

int gunzip_next(struct gunzip *g, struct str *in, char *out, size_t cap, size_t *ret_n)
{
    *ret_n = 0;
    if (g->error)
        return g->error;
    if (in->n == 0 && g->between)
        return GZIP_END;
    int r;
    do
        r = gunzip_step(g, in, out, cap, ret_n);
    while (r == GZIP_OUTPUT && *ret_n == 0);
    if (r < 0) {
        *ret_n = 0;
        g->error = r;
    }
    return r;
}

int gunzip_end(const struct gunzip *g)
{
    return g->error ? g->error : g->between ? 0 : -EPROTO;
}

struct gzip {
    z_stream z;
    bool ended;
};

struct gzip *gzip_new(int level)
{
    struct gzip *g = mem_new(struct gzip);
    g->z.zalloc = z_alloc;
    g->z.zfree = z_free;
    int r = deflateInit2(&g->z, level, Z_DEFLATED, WINDOW + GZIP_FORMAT, 8, Z_DEFAULT_STRATEGY);
    assert(r == Z_OK);
    return g;
}

void gzip_free(struct gzip *g)
{
    if (!g)
        return;
    (void)deflateEnd(&g->z);
    mem_free(g);
}

int gzip_next(struct gzip *g, struct str *in, enum gzip_flush flush, char *out, size_t cap, size_t *ret_n)
{
    static const int flushes[] = {[GZIP_NO_FLUSH] = Z_NO_FLUSH, [GZIP_SYNC] = Z_SYNC_FLUSH, [GZIP_FINISH] = Z_FINISH};
    *ret_n = 0;
    if (g->ended)
        return in->n ? -EINVAL : GZIP_END;
    unsigned given = piece(in->n), room = piece(cap);
    g->z.next_in = (Bytef *)(uintptr_t)in->p;
    g->z.avail_in = given;
    g->z.next_out = (Bytef *)out;
    g->z.avail_out = room;
    int r = deflate(&g->z, given == in->n ? flushes[flush] : Z_NO_FLUSH);
    *ret_n = room - g->z.avail_out;
    *in = str_sub(*in, given - g->z.avail_in);
    if (r == Z_STREAM_END) {
        g->ended = true;
        return GZIP_END;
    }
    if (r != Z_OK && r != Z_BUF_ERROR)
        return -EINVAL;
    return in->n || g->z.avail_out == 0 ? GZIP_OUTPUT : GZIP_NEED_MORE;
}

int gunzip_append(struct buf *b, struct str packed)
{
    AUTO(gunzip_free) struct gunzip *g = gunzip_new(b->max - buf_len(b), 0);
    char piece_of[PIECE];
    size_t n;
    int r;
    do {
        r = gunzip_next(g, &packed, piece_of, sizeof(piece_of), &n);
        if (r < 0 || buf_append(b, piece_of, n) < 0)
            return r < 0 ? r : -EFBIG;
    } while (r == GZIP_OUTPUT);
    return gunzip_end(g);
}

int gzip_append(struct buf *b, struct str plain, int level)
{
    AUTO(gzip_free) struct gzip *g = gzip_new(level);
    char piece_of[PIECE];
    size_t n;
    int r;
    do {
        r = gzip_next(g, &plain, GZIP_FINISH, piece_of, sizeof(piece_of), &n);
        if (r < 0 || buf_append(b, piece_of, n) < 0)
            return r < 0 ? r : -EFBIG;
    } while (r != GZIP_END);
    return 0;
}
