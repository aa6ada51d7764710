/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/sha1.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void expect(struct sha1 *s, const char *want)
{
    uint8_t digest[SHA1_BYTES];
    AUTO_BUF struct buf hex = BUF_INIT(64);
    sha1_end(s, digest);
    (void)buf_append_hex(&hex, str_n((const char *)digest, sizeof(digest)));
    assert_int_equal(buf_len(&hex), 40);
    assert_memory_equal(buf_data(&hex), want, 40);
}

static void one(const char *text, const char *want)
{
    struct sha1 s;
    sha1_init(&s);
    sha1_add(&s, str_of(text));
    expect(&s, want);
}

/* FIPS 180-2, appendix A. */
static void test_known(void **state)
{
    (void)state;
    one("", "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    one("abc", "a9993e364706816aba3e25717850c26c9cd0d89d");
    one("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
}

static void test_pieces(void **state)
{
    (void)state;
    static const char as[1000] = {[0 ... 999] = 'a'};
    static const size_t steps[] = {1000, 1, 63, 64, 65, 127};
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        struct sha1 s;
        sha1_init(&s);
        for (size_t left = 1000000; left;) {
            size_t n = MIN(steps[i], left);
            sha1_add(&s, str_n(as, n));
            left -= n;
        }
        expect(&s, "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_known), cmocka_unit_test(test_pieces)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
