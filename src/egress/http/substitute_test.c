/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/http/substitute.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void check(const char *text, const struct substitute *all, size_t n, enum substitute_code code,
                  const char *expected)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    assert_int_equal(substitute(str_of(text), all, n, code, &b), 0);
    assert_int_equal(buf_len(&b), strlen(expected));
    assert_memory_equal(buf_data(&b), expected, strlen(expected));
}

static void test_once_from_the_left_and_the_longest(void **state)
{
    const struct substitute all[] = {
        {STR("key"), STR("xkey-longx")}, {STR("key-long"), STR("key")}, {STR("yke"), STR("")}};
    (void)state;
    check("", all, 3, SUBSTITUTE_RAW, "");
    check("nothing", all, 3, SUBSTITUTE_RAW, "nothing");
    check("key", all, 3, SUBSTITUTE_RAW, "xkey-longx");
    check("key-long", all, 3, SUBSTITUTE_RAW, "key");
    check("keykey-longkey", all, 3, SUBSTITUTE_RAW, "xkey-longxkeyxkey-longx");
    check("a ykey key-lon", all, 3, SUBSTITUTE_RAW, "a y xkey-longx-lon");
    check("keyke", all, 3, SUBSTITUTE_RAW, "xkey-longxke");
    assert_int_equal(substitute_find(STR("a key-long b"), all, 3), 3);
    assert_int_equal(substitute_find(STR("ke"), all, 3), 0);
    assert_int_equal(substitute_find(STR_NULL, all, 3), 0);
}

static void test_encodings(void **state)
{
    const struct substitute one = {STR("K"), STR("a \"b\\/?&=+%\x01\xc3\xbc~")};
    (void)state;
    check("<K>", &one, 1, SUBSTITUTE_RAW, "<a \"b\\/?&=+%\x01\xc3\xbc~>");
    check("<K>", &one, 1, SUBSTITUTE_URL, "<a%20%22b%5C%2F%3F%26%3D%2B%25%01%C3%BC~>");
    check("<K>", &one, 1, SUBSTITUTE_FORM, "<a+%22b%5C%2F%3F%26%3D%2B%25%01%C3%BC~>");
    check("<K>", &one, 1, SUBSTITUTE_JSON, "<a \\\"b\\\\/?&=+%\\u0001\xc3\xbc~>");
}

static void test_how_bodies_are_read(void **state)
{
    static const struct {
        const char *type;
        bool is_read;
        enum substitute_code code;
    } cases[] = {
        {"", true, SUBSTITUTE_RAW},
        {"text/plain", true, SUBSTITUTE_RAW},
        {"application/json", true, SUBSTITUTE_JSON},
        {"Application/JSON; charset=utf-8", true, SUBSTITUTE_JSON},
        {"application/vnd.api+json ;x", true, SUBSTITUTE_JSON},
        {"+json", true, SUBSTITUTE_RAW},
        {"application/jsonl", true, SUBSTITUTE_RAW},
        {"application/x-www-form-urlencoded", true, SUBSTITUTE_FORM},
        {"multipart/form-data; boundary=x", false, SUBSTITUTE_RAW},
        {"Multipart/mixed", false, SUBSTITUTE_RAW},
        {"multipart", true, SUBSTITUTE_RAW},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        enum substitute_code code;
        assert_int_equal(substitute_code_of(str_of(cases[i].type), &code), cases[i].is_read);
        assert_int_equal(code, cases[i].code);
    }
}

static void test_what_becomes_too_long(void **state)
{
    const struct substitute one = {STR("K"), STR("0123456789")};
    AUTO_BUF struct buf b = BUF_INIT(30);
    (void)state;
    assert_int_equal(substitute(STR("KKKK"), &one, 1, SUBSTITUTE_RAW, &b), -ENOBUFS);
    assert_null(b.data);
    assert_int_equal(substitute(STR("KKK"), &one, 1, SUBSTITUTE_RAW, &b), 0);
    assert_int_equal(buf_len(&b), 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_once_from_the_left_and_the_longest),
        cmocka_unit_test(test_encodings),
        cmocka_unit_test(test_how_bodies_are_read),
        cmocka_unit_test(test_what_becomes_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
