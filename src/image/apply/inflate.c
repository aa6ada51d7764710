/* SPDX-License-Identifier: Apache-2.0 */
#include "image/apply/inflate.h"
#include "base/mem.h"

#include <zlib.h>
#include <zstd.h>

enum { MAGIC_BYTES = 4 };

struct inflate {
    enum packing packing; /* PACKING_ANY until the first bytes are here */
    bool started;
    inflate_fn fn;
    void *ctx;
    uint64_t max_bytes, in, out;
    unsigned char magic[MAGIC_BYTES]; /* the first bytes, until there are enough to judge by */
    size_t n_magic;
    z_stream z;
    ZSTD_DStream *zstd;
    bool open; /* in the middle of a member or frame */
    unsigned char *room;
};

struct inflate *inflate_new(enum packing packing, uint64_t max_bytes, inflate_fn fn, void *ctx)
{
    struct inflate *f = mem_new(struct inflate);
    f->packing = packing;
    f->max_bytes = max_bytes;
    f->fn = fn;
    f->ctx = ctx;
    return f;
}

void inflate_free(struct inflate *f)
{
    if (!f)
        return;
    if (f->started && f->packing == PACKING_GZIP)
        (void)inflateEnd(&f->z);
    (void)ZSTD_freeDStream(f->zstd);
    MEM_FREE(f->room, f);
}

static int inflate_broken(struct err *err, const char *what)
{
    return err_set(err, ERR_INVALID_ARGUMENT, "the layer is not valid %s", what);
}

static int inflate_emit(struct inflate *f, const void *p, size_t n, struct err *err)
{
    if (n == 0)
        return 0;
    if (n > f->max_bytes - f->out)
        return err_set(err, ERR_OUT_OF_RANGE, "the image unpacks to more than the %llu bytes that are allowed",
                       (unsigned long long)f->max_bytes);
    f->out += n;
    if (f->out > INFLATE_RATIO_FROM && f->out / INFLATE_RATIO_MAX > f->in)
        return err_set(err, ERR_OUT_OF_RANGE, "a layer unpacks to more than %d times its size, as a zip bomb does",
                       INFLATE_RATIO_MAX);
    return f->fn(f->ctx, p, n, err);
}

/* ---- gzip ---- */

static int push_gzip(struct inflate *f, const unsigned char *p, size_t n, struct err *err)
{
    f->z.next_in = (unsigned char *)(uintptr_t)p;
    f->z.avail_in = (unsigned)n;
    do {
        if (!f->open && f->z.avail_in == 0)
            break;
        if (!f->open && f->z.total_in > 0 && f->z.next_in[0] == 0) { /* padding behind the last member */
            f->z.next_in++;
            f->z.avail_in--;
            continue;
        }
        if (!f->open && inflateReset(&f->z) != Z_OK)
            return err_set(err, ERR_INTERNAL, "zlib does not start");
        f->open = true;
        f->z.next_out = f->room;
        f->z.avail_out = INFLATE_CHUNK;
        int r = inflate(&f->z, Z_NO_FLUSH);
        if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR)
            return inflate_broken(err, "gzip");
        if (inflate_emit(f, f->room, INFLATE_CHUNK - f->z.avail_out, err) < 0)
            return -1;
        if (r == Z_STREAM_END)
            f->open = false;
    } while (f->z.avail_in > 0 || (f->open && f->z.avail_out == 0));
    return 0;
}

/* ---- zstd ---- */

static int push_zstd(struct inflate *f, const unsigned char *p, size_t n, struct err *err)
{
    ZSTD_inBuffer in = {p, n, 0};
    ZSTD_outBuffer out;
    size_t r;
    do {
        out = (ZSTD_outBuffer){f->room, INFLATE_CHUNK, 0};
        r = ZSTD_decompressStream(f->zstd, &out, &in);
        if (ZSTD_isError(r))
            return inflate_broken(err, "zstd");
        if (inflate_emit(f, f->room, out.pos, err) < 0)
            return -1;
        f->open = r != 0;
    } while (in.pos < in.size || (f->open && out.pos == out.size));
    return 0;
}

/* ---- both ---- */

static enum packing sniff(const unsigned char *p, size_t n)
{
    if (n >= 2 && p[0] == 0x1f && p[1] == 0x8b)
        return PACKING_GZIP;
    if (n >= 4 && memcmp(p, "\x28\xb5\x2f\xfd", 4) == 0)
        return PACKING_ZSTD;
    return n >= 4 && (p[0] & 0xf0) == 0x50 && memcmp(p + 1, "\x2a\x4d\x18", 3) == 0 ? PACKING_ZSTD : PACKING_NONE;
}

static int inflate_start(struct inflate *f, struct err *err)
{
    enum packing is = sniff(f->magic, f->n_magic);
    if (f->packing == PACKING_ANY)
        f->packing = is;
    else if (f->packing != PACKING_NONE && f->packing != is)
        return inflate_broken(err, f->packing == PACKING_GZIP ? "gzip, although its media type says so"
                                                              : "zstd, although its media type says so");
    if (f->packing == PACKING_GZIP && inflateInit2(&f->z, 15 + 16) != Z_OK)
        return err_set(err, ERR_INTERNAL, "zlib does not start");
    f->started = true;
    if (f->packing == PACKING_ZSTD) {
        f->zstd = ZSTD_createDStream();
        if (!f->zstd || ZSTD_isError(ZSTD_DCtx_setParameter(f->zstd, ZSTD_d_windowLogMax, INFLATE_WINDOW_LOG)))
            return err_set(err, ERR_INTERNAL, "libzstd does not start");
    }
    f->room = mem_alloc(INFLATE_CHUNK);
    return 0;
}

static int image_inflate_push(struct inflate *f, const unsigned char *p, size_t n, struct err *err)
{
    switch (f->packing) {
    case PACKING_GZIP:
        return push_gzip(f, p, n, err);
    case PACKING_ZSTD:
        return push_zstd(f, p, n, err);
    case PACKING_NONE:
    case PACKING_ANY:
        break;
    }
    for (size_t part; n > 0; p += part, n -= part) {
        part = MIN(n, (size_t)INFLATE_CHUNK);
        if (inflate_emit(f, p, part, err) < 0)
            return -1;
    }
    return 0;
}

int inflate_push(struct inflate *f, const void *p, size_t n, struct err *err)
{
    const unsigned char *from = p;
    f->in += n;
    while (!f->started) {
        if (f->n_magic < MAGIC_BYTES) {
            if (n == 0)
                return 0;
            f->magic[f->n_magic++] = *from++;
            n--;
            continue;
        }
        if (inflate_start(f, err) < 0 || image_inflate_push(f, f->magic, f->n_magic, err) < 0)
            return -1;
    }
    for (size_t part; n > 0; from += part, n -= part) { /* zlib counts in int */
        part = MIN(n, (size_t)1 << 20);
        if (image_inflate_push(f, from, part, err) < 0)
            return -1;
    }
    return 0;
}

int inflate_end(struct inflate *f, struct err *err)
{
    if (!f->started && f->n_magic > 0 &&
        (inflate_start(f, err) < 0 || image_inflate_push(f, f->magic, f->n_magic, err) < 0))
        return -1;
    if (f->open || (f->n_magic == 0 && f->packing != PACKING_NONE && f->packing != PACKING_ANY))
        return inflate_broken(err, "stream: it ends in the middle");
    return 0;
}
