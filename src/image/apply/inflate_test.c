/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/mem.h"
#include "image/apply/inflate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <zlib.h>
#include <zstd.h>

#include <cmocka.h>

enum { SIZE = 700000 };

static char *text(void)
{
    char *t = mem_alloc(SIZE);
    for (size_t i = 0; i < SIZE; i++)
        t[i] = (char)(i * 7919 >> 5);
    return t;
}

static void gzip_into(struct buf *out, const char *p, size_t n)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    size_t room = deflateBound(&z, n) + 64;
    char *to = buf_reserve(out, room);
    assert_non_null(to);
    z.next_in = (unsigned char *)(uintptr_t)p;
    z.avail_in = (unsigned)n;
    z.next_out = (unsigned char *)to;
    z.avail_out = (unsigned)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    buf_commit(out, room - z.avail_out);
    assert_int_equal(deflateEnd(&z), Z_OK);
}

static void zstd_into(struct buf *out, const char *p, size_t n)
{
    size_t room = ZSTD_compressBound(n);
    char *to = buf_reserve(out, room);
    assert_non_null(to);
    size_t r = ZSTD_compress(to, room, p, n, 3);
    assert_false(ZSTD_isError(r));
    buf_commit(out, r);
}

static int keep(void *ctx, const void *p, size_t n, struct err *err)
{
    (void)err;
    assert_in_range(n, 1, INFLATE_CHUNK);
    return buf_append(ctx, p, n);
}

/* 0, or the code of the error. */
static int run(enum packing packing, struct str in, size_t step, uint64_t max, struct buf *out)
{
    struct err err = {.code = ERR_OK};
    AUTO(inflate_free) struct inflate *f = inflate_new(packing, max, keep, out);
    buf_clear(out);
    for (size_t i = 0; i < in.n; i += step)
        if (inflate_push(f, in.p + i, MIN(step, in.n - i), &err) < 0)
            return (int)err.code;
    if (inflate_end(f, &err) < 0)
        return (int)err.code;
    return 0;
}

static void test_streams(void **state)
{
    (void)state;
    AUTO_FREE char *t = text();
    AUTO_BUF struct buf in = BUF_INIT(4 << 20), out = BUF_INIT(4 << 20);
    for (int kind = 0; kind < 3; kind++) {
        buf_clear(&in);
        if (kind == 0) {
            buf_append(&in, t, SIZE);
        } else if (kind == 1) { /* two members, and padding */
            gzip_into(&in, t, 1000);
            gzip_into(&in, t + 1000, SIZE - 1000);
            buf_append(&in, "\0\0\0\0\0", 5);
        } else { /* two frames */
            zstd_into(&in, t, 1000);
            zstd_into(&in, t + 1000, SIZE - 1000);
        }
        static const enum packing packings[] = {PACKING_NONE, PACKING_GZIP, PACKING_ZSTD};
        static const size_t steps[] = {1, 3, 4096, 1 << 22};
        for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
            assert_int_equal(run(packings[kind], buf_str(&in), steps[i], SIZE, &out), 0);
            assert_true(str_eq(buf_str(&out), str_n(t, SIZE)));
            assert_int_equal(run(PACKING_ANY, buf_str(&in), steps[i], SIZE, &out), 0);
            assert_int_equal(run(packings[kind], buf_str(&in), steps[i], SIZE - 1, &out), ERR_OUT_OF_RANGE);
        }
        struct str cut = str_n(buf_data(&in), buf_len(&in) - (kind == 1 ? 20 : 9));
        assert_int_equal(run(packings[kind], cut, 4096, SIZE, &out), kind == 0 ? 0 : ERR_INVALID_ARGUMENT);
        if (kind > 0) {
            assert_int_equal(run(packings[3 - kind], buf_str(&in), 4096, SIZE, &out), ERR_INVALID_ARGUMENT);
            if (kind == 1) { /* zstd has no checksum unless it was asked for */
                buf_data(&in)[buf_len(&in) / 2] ^= 0x55;
                assert_int_equal(run(packings[kind], buf_str(&in), 4096, SIZE, &out), ERR_INVALID_ARGUMENT);
            }
        }
    }
}

static void test_short_streams(void **state)
{
    (void)state;
    AUTO_BUF struct buf out = BUF_INIT(4096);
    assert_int_equal(run(PACKING_NONE, STR(""), 1, 10, &out), 0);
    assert_int_equal(run(PACKING_ANY, STR("ab"), 1, 10, &out), 0);
    assert_int_equal(buf_len(&out), 2);
    assert_int_equal(run(PACKING_GZIP, STR(""), 1, 10, &out), ERR_INVALID_ARGUMENT);
    assert_int_equal(run(PACKING_GZIP, STR("\x1f\x8b"), 1, 10, &out), ERR_INVALID_ARGUMENT);
    assert_int_equal(run(PACKING_ZSTD, STR("\x28\xb5\x2f"), 1, 10, &out), ERR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_short_streams),
    };
    return cmocka_run_group_tests_name("image/inflate", tests, NULL, NULL);
}
