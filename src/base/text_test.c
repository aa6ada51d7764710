/* SPDX-License-Identifier: Apache-2.0 */
/* JSON strings, base64, hexadecimal. */
#include "base/buf.h"
#include "base/id.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void json_is(struct str s, const char *want)
{
    AUTO_BUF struct buf b = BUF_INIT(1024);
    assert_int_equal(buf_append_json_string(&b, s), 0);
    if (!str_eqc(buf_str(&b), want))
        fail_msg("%.*s instead of %s", STR_ARG(buf_str(&b)), want);
}

static void test_json_string(void **state)
{
    (void)state;
    json_is(STR(""), "\"\"");
    json_is(STR_NULL, "\"\"");
    json_is(STR("abc"), "\"abc\"");
    json_is(STR("a\"b\\c/d"), "\"a\\\"b\\\\c/d\"");
    json_is(STR("\n\r\t\b\x1b\x7f"), "\"\\n\\r\\t\\u0008\\u001b\\u007f\"");
    json_is(STR("a\0b"), "\"a\\u0000b\"");
    json_is(STR("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"), "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"");
    json_is(STR("\xff"), "\"\\ufffd\"");
    json_is(STR("a\xc3"), "\"a\\ufffd\"");
    json_is(STR("\xc3(\xc3\xa4"), "\"\\ufffd(\xc3\xa4\"");
    json_is(STR("\xed\xa0\x80"), "\"\\ufffd\\ufffd\\ufffd\""); /* a surrogate */
    json_is(STR("\xc0\x80"), "\"\\ufffd\\ufffd\"");
    AUTO_BUF struct buf small = BUF_INIT(4);
    assert_int_equal(buf_append_json_string(&small, STR("abc")), -ENOBUFS);
}

static void base64_is(struct str s, const char *want)
{
    AUTO_BUF struct buf b = BUF_INIT(256), back = BUF_INIT(256);
    assert_int_equal(buf_append_base64(&b, s), 0);
    assert_true(str_eqc(buf_str(&b), want));
    assert_int_equal(buf_append_unbase64(&back, buf_str(&b)), 0);
    assert_true(str_eq(buf_str(&back), s));
}

static void test_base64(void **state)
{
    (void)state;
    /* RFC 4648, section 10 */
    base64_is(STR(""), "");
    base64_is(STR("f"), "Zg==");
    base64_is(STR("fo"), "Zm8=");
    base64_is(STR("foo"), "Zm9v");
    base64_is(STR("foob"), "Zm9vYg==");
    base64_is(STR("fooba"), "Zm9vYmE=");
    base64_is(STR("foobar"), "Zm9vYmFy");
    base64_is(STR("\xfb\xff\xfe"), "+//+");
    for (size_t n = 0; n < 100; n++) {
        unsigned char bytes[100];
        AUTO_BUF struct buf b = BUF_INIT(256), back = BUF_INIT(256);
        id_random_bytes(bytes, n);
        assert_int_equal(buf_append_base64(&b, str_n(bytes, n)), 0);
        while (buf_len(&b) && b.data[b.end - 1] == '=') /* padding is optional */
            b.end--;
        assert_int_equal(buf_append_unbase64(&back, buf_str(&b)), 0);
        assert_true(str_eq(buf_str(&back), str_n(bytes, n)));
    }
    static const char *const bad[] = {"A",     "AAAAA",    "A===",   "====",  "=",    "AA=",  "AA=A",
                                      "A=AA",  "Zg==Zg==", "Zm9v\n", " Zm9v", "Zm-_", "Zm9!", "\xff\xff\xff\xff",
                                      "AAA==", "AA==="};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        AUTO_BUF struct buf b = BUF_INIT(64);
        assert_int_equal(buf_append_cstr(&b, "kept"), 0);
        if (buf_append_unbase64(&b, str_of(bad[i])) != -EILSEQ)
            fail_msg("accepted: %s", bad[i]);
        assert_true(str_eqc(buf_str(&b), "kept"));
        assert_int_equal(buf_error(&b), 0);
    }
    AUTO_BUF struct buf small = BUF_INIT(2);
    assert_int_equal(buf_append_unbase64(&small, STR("Zm9v")), -ENOBUFS);
    AUTO_BUF struct buf none = BUF_INIT(3);
    assert_int_equal(buf_append_base64(&none, STR("f")), -ENOBUFS);
}

static void test_hex(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(8);
    assert_int_equal(buf_append_hex(&b, STR("\x00\x7f\xff")), 0);
    assert_true(str_eqc(buf_str(&b), "007fff"));
    assert_int_equal(buf_append_hex(&b, STR_NULL), 0);
    assert_int_equal(buf_append_hex(&b, STR("ab")), -ENOBUFS);
    assert_true(str_eqc(buf_str(&b), "007fff"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_json_string), cmocka_unit_test(test_base64),
                                       cmocka_unit_test(test_hex)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
