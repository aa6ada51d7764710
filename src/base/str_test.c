/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void test_compare(void **state)
{
    (void)state;
    assert_true(str_eq(STR("a\0b"), str_n("a\0b", 3)));
    assert_false(str_eq(STR("a\0b"), STR("a\0c")));
    assert_true(str_eq(STR_NULL, STR("")));
    assert_true(str_eqc(STR(""), NULL));
    assert_false(str_eqc(STR("ab"), "abc"));
    assert_true(str_eq_nocase(STR("Content-LENGTH"), STR("content-length")));
    assert_false(str_eq_nocase(STR("\xc3\x84"), STR("\xc3\xa4"))); /* ASCII only */
    assert_false(str_eq_nocase(STR("@"), STR("`")));
    assert_true(str_starts(STR("abc"), STR("ab")) && str_starts(STR("abc"), STR_NULL));
    assert_false(str_starts(STR("ab"), STR("abc")));
    assert_true(str_ends(STR("abc"), STR("bc")) && str_ends(STR_NULL, STR_NULL));
    assert_false(str_ends(STR("bc"), STR("abc")));
    assert_true(str_eq_secret(STR("token"), STR("token")) && str_eq_secret(STR_NULL, STR("")));
    assert_false(str_eq_secret(STR("token"), STR("tokem")));
    assert_false(str_eq_secret(STR("token"), STR("toke")));
}

static void test_pieces(void **state)
{
    (void)state;
    assert_int_equal(str_find_char(STR("a=b=c"), '='), 1);
    assert_int_equal(str_find_char(STR("abc"), '='), -1);
    assert_int_equal(str_find_char(STR_NULL, '='), -1);
    assert_true(str_eqc(str_trim(STR(" \t a b\t ")), "a b"));
    assert_true(str_eqc(str_trim(STR(" \t ")), ""));
    assert_true(str_eqc(str_trim(STR("\na\n")), "\na\n"));
    assert_true(str_eqc(str_sub(STR("abc"), 1), "bc"));
    assert_true(str_eqc(str_sub(STR("abc"), 3), ""));
    assert_true(str_eqc(str_sub(STR("abc"), 99), ""));
    assert_int_equal(str_sub(STR_NULL, 1).n, 0);
    assert_true(str_has_nul(STR("a\0")) && !str_has_nul(STR("a")) && !str_has_nul(STR_NULL));
}

static void splits(struct str s, const char *const *parts, size_t n)
{
    struct str part;
    for (size_t i = 0; i < n; i++) {
        assert_true(str_split(&s, ',', &part));
        assert_true(str_eqc(part, parts[i]));
    }
    assert_false(str_split(&s, ',', &part));
}

static void test_sets(void **state)
{
    (void)state;
    assert_true(str_is_of(STR("aZ_-0"), "A-Za-z0-9_-"));
    assert_false(str_is_of(STR("a.b"), "A-Za-z0-9_-"));
    assert_false(str_is_of(STR("a\0b"), "a-z"));
    assert_false(str_is_of(STR("\xe4"), "a-z"));
    assert_true(str_is_of(STR("+/="), "A-Za-z0-9+/="));
    assert_false(str_is_of(STR(","), "+-"));
    assert_true(str_is_of(STR("-"), "+-"));
    assert_true(str_is_of(STR_NULL, ""));
    assert_false(str_is_of(STR("x"), ""));
    assert_true(str_is_of(STR("!#[]~"), "!#-[]-~"));
    assert_false(str_is_of(STR("\\"), "!#-[]-~") || str_is_of(STR("\""), "!#-[]-~") || str_set_has("!-~", '\0'));
    assert_int_equal(str_span(STR("12a"), "0-9"), 2);
    assert_int_equal(str_span(STR_NULL, "0-9"), 0);
    assert_int_equal(str_span_variable(STR("_a1-b")), 3);
    assert_int_equal(str_span_variable(STR("1a")), 0);
    assert_int_equal(str_word(STR("ab"), "abc ab b"), 1);
    assert_int_equal(str_word(STR(""), "a b"), -1);
    assert_int_equal(str_word(STR("a b"), "a b"), -1);
}

static void test_before(void **state)
{
    (void)state;
    assert_true(str_eqc(str_before(STR("a;b;c"), ';'), "a"));
    assert_true(str_eqc(str_before(STR("abc"), ';'), "abc"));
    assert_int_equal(str_before(STR(";abc"), ';').n, 0);
    assert_null(str_before(STR_NULL, ';').p);
}

static void test_split(void **state)
{
    (void)state;
    splits(STR("a,b,c"), (const char *const[]){"a", "b", "c"}, 3);
    splits(STR("a"), (const char *const[]){"a"}, 1);
    splits(STR(",a,,"), (const char *const[]){"", "a", "", ""}, 4);
    splits(STR(""), (const char *const[]){""}, 1);
    splits(STR_NULL, NULL, 0);
}

static void test_numbers(void **state)
{
    (void)state;
    uint64_t u = 7;
    int64_t i = 7;
    assert_int_equal(str_to_u64(STR("0"), &u), 0);
    assert_int_equal(u, 0);
    assert_int_equal(str_to_u64(STR("18446744073709551615"), &u), 0);
    assert_int_equal(u, UINT64_MAX);
    assert_int_equal(str_to_u64(STR("007"), &u), 0);
    assert_int_equal(u, 7);
    assert_int_equal(str_to_u64(STR("18446744073709551616"), &u), -ERANGE);
    assert_int_equal(str_to_u64(STR("99999999999999999999999"), &u), -ERANGE);
    static const char *const bad[] = {"", "-1", "+1", " 1", "1 ", "0x1", "1.0", "1e3", "a"};
    for (size_t k = 0; k < ARRAY_SIZE(bad); k++) {
        assert_int_equal(str_to_u64(str_of(bad[k]), &u), -EINVAL);
        if (k != 1)
            assert_int_equal(str_to_i64(str_of(bad[k]), &i), -EINVAL);
    }
    assert_int_equal(str_to_u64(STR("1\0"), &u), -EINVAL);
    assert_int_equal(str_to_u64(STR_NULL, &u), -EINVAL);
    assert_int_equal(u, 7); /* untouched by failures */
    assert_int_equal(i, 7);
    assert_int_equal(str_to_i64(STR("-9223372036854775808"), &i), 0);
    assert_true(i == INT64_MIN);
    assert_int_equal(str_to_i64(STR("9223372036854775807"), &i), 0);
    assert_true(i == INT64_MAX);
    assert_int_equal(str_to_i64(STR("-0"), &i), 0);
    assert_int_equal(i, 0);
    assert_int_equal(str_to_i64(STR("9223372036854775808"), &i), -ERANGE);
    assert_int_equal(str_to_i64(STR("-9223372036854775809"), &i), -ERANGE);
    assert_int_equal(str_to_i64(STR("-"), &i), -EINVAL);
    assert_int_equal(str_to_i64(STR("--1"), &i), -EINVAL);
}

static size_t encode(uint32_t c, unsigned len, char *to)
{
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    if (len == 1) {
        to[0] = (char)c;
        return 1;
    }
    for (unsigned k = len - 1; k > 0; k--, c >>= 6)
        to[k] = (char)(0x80 | (c & 0x3f));
    to[0] = (char)(lead[len] | c);
    return len;
}

/* Every code point in its shortest form is good, every longer form, surrogate and value beyond the last is not. */
static void test_utf8(void **state)
{
    (void)state;
    char s[8];
    for (uint32_t c = 0; c < 0x200000; c++) {
        unsigned need = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        bool exists = c <= 0x10ffff && (c < 0xd800 || c > 0xdfff);
        for (unsigned len = need; len <= 4; len++)
            if (str_is_utf8(str_n(s, encode(c, len, s))) != (exists && len == need))
                fail_msg("U+%04X in %u bytes", c, len);
    }
    static const char *const bad[] = {"\x80",     "a\xbf",     "\xc3",         "\xc3(",
                                      "\xe2\x82", "\xe2(\xa1", "\xf0\x9f\x98", "\xf8\x88\x80\x80\x80",
                                      "\xfe",     "\xff",      "\xc3\xa4\xc3"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_false(str_is_utf8(str_of(bad[i])));
    assert_true(str_is_utf8(STR_NULL) && str_is_utf8(STR("a\0\xc3\xa4")));
}

static void test_hex(void **state)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    char text[9];

    (void)state;
    str_hex("\x00\x9a\xff", 3, text);
    assert_string_equal(text, "009aff");
    str_hex(NULL, 0, text);
    assert_string_equal(text, "");
    for (int c = CHAR_MIN; c <= CHAR_MAX; c++) {
        const char *at = c ? strchr(digits, c) : NULL;
        long value = at ? at - digits : -1;

        assert_int_equal(str_hex_value((char)c), value > 15 ? value - 6 : value);
        assert_int_equal(str_is_hex(str_n(&(char){(char)c}, 1)), value >= 0 && value < 16);
    }
    assert_false(str_is_hex(STR("0g")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compare), cmocka_unit_test(test_pieces),  cmocka_unit_test(test_split),
        cmocka_unit_test(test_before),  cmocka_unit_test(test_numbers), cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_hex),     cmocka_unit_test(test_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
