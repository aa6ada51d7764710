/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/json_read.h"
#include "base/buf.h"
#include "sandbox/sandbox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static void refused(struct str text, const char *because)
{
    json_t *json = NULL;
    struct err err;
    assert_int_equal(json_read(text, &json, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    if (!strstr(err.msg, because))
        fail_msg("\"%s\" does not say \"%s\"", err.msg, because);
    assert_null(json);
}

static void what_is_not_clean_json_is_refused(void **state)
{
    (void)state;
    refused(STR(""), "invalid JSON");
    refused(STR("{"), "invalid JSON");
    refused(STR("{\"a\":1} x"), "invalid JSON");
    refused(STR("7"), "invalid JSON");
    refused(STR("{\"a\":1,\"a\":2}"), "duplicate");
    refused(STR("{\"a\":\"\xff\"}"), "invalid JSON");
    refused(STR("{\"a\":\"\xc0\xaf\"}"), "invalid JSON");
    refused(STR("{\"a\":\"x\\u0000y\"}"), "invalid JSON");
    refused(STR("{\"a\":\"x\0y\"}"), "invalid JSON");
    refused(STR("{\"a\":\"\\"), "invalid JSON");
    refused(STR("{\"a\":99999999999999999999}"), "invalid JSON");
}

static void depth_and_count_are_limited_before_anything_is_built(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    AUTO_JSON json_t *json = NULL;
    struct err err;
    (void)state;
    for (int i = 0; i < JSON_DEPTH_MAX; i++)
        buf_append_char(&b, '[');
    buf_append_cstr(&b, "\"[[[[{{{{\"");
    for (int i = 0; i < JSON_DEPTH_MAX; i++)
        buf_append_char(&b, ']');
    assert_int_equal(json_read(buf_str(&b), &json, &err), 0);

    buf_clear(&b);
    for (int i = 0; i < 100000; i++)
        buf_append_char(&b, '[');
    refused(buf_str(&b), "nested");

    buf_clear(&b);
    buf_append_cstr(&b, "[0");
    for (int i = 0; i < JSON_VALUES_MAX; i++)
        buf_append_cstr(&b, ",0");
    buf_append_char(&b, ']');
    refused(buf_str(&b), "values");
}

static void fields_are_typed(void **state)
{
    AUTO_ARENA struct arena arena = ARENA_INIT;
    AUTO_JSON json_t *json = NULL;
    const struct str *strs = NULL;
    const struct pair *pairs = NULL;
    struct str s = STR("kept");
    int64_t i = 7;
    bool flag = true;
    size_t n = 0;
    struct err err;
    (void)state;
    assert_int_equal(json_read_object(STR("{\"s\":\"h\xc3\xa9\",\"i\":-3,\"f\":300.0,\"h\":0.5,\"no\":null,\"t\":false,"
                                          "\"list\":[\"a\",\"b\"],\"map\":{\"z\":\"1\",\"a\":\"2\"},\"mixed\":[1],"
                                          "\"include_entry\":true}"),
                                      false, &json, &err),
                     0);
    assert_int_equal(json_get_str(json, "s", &s, &err), 1);
    assert_true(str_eqc(s, "h\xc3\xa9"));
    assert_int_equal(json_get_str(json, "no", &s, &err), 0);
    assert_int_equal(json_get_str(json, "absent", &s, &err), 0);
    assert_int_equal(json_get_str(json, "i", &s, &err), -1);
    assert_string_equal(err.msg, "field \"i\" must be a string");

    assert_int_equal(json_get_int(json, "i", -5, 5, &i, &err), 1);
    assert_int_equal(i, -3);
    assert_int_equal(json_get_int(json, "i", 0, 5, &i, &err), -1);
    assert_int_equal(json_get_int(json, "f", 0, 1000, &i, &err), 1);
    assert_int_equal(i, 300);
    assert_int_equal(json_get_int(json, "h", 0, 5, &i, &err), -1);
    assert_int_equal(json_get_int(json, "s", 0, 5, &i, &err), -1);

    assert_int_equal(json_get_bool(json, "t", &flag, &err), 1);
    assert_false(flag);
    assert_int_equal(json_get_bool(json, "includeEntry", &flag, &err), 1);
    assert_true(flag);

    assert_int_equal(json_get_strs(json, "list", &arena, &strs, &n, &err), 1);
    assert_int_equal(n, 2);
    assert_true(str_eqc(strs[1], "b"));
    assert_int_equal(json_get_strs(json, "mixed", &arena, &strs, &n, &err), -1);

    assert_int_equal(json_get_pairs(json, "map", &arena, &pairs, &n, &err), 1);
    assert_int_equal(n, 2);
    assert_true(str_eqc(pairs[0].key, "z") && str_eqc(pairs[0].value, "1"));
    assert_int_equal(json_get_pairs(json, "list", &arena, &pairs, &n, &err), -1);
}

static void unknown_members_are_named(void **state)
{
    (void)state;
    static const char *const names[] = {"cmd", "pty"};
    json_t *json = NULL;
    struct err err;
    assert_int_equal(json_read_object(STR("{\"pty\":null,\"cmd\":[]}"), false, &json, &err), 0);
    assert_int_equal(json_only(json, names, 2, &err), 0);
    assert_int_equal(json_only(json, names, 1, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    assert_string_equal(err.msg, "unknown field \"pty\"");
    assert_int_equal(json_only(json, NULL, 0, &err), -1);
    json_decref(json);

    static const char *const deny[] = {"denyOut"};
    assert_int_equal(json_read_object(STR("{\"denyOut\":[],\"deny_out\":[\"*\"]}"), false, &json, &err), 0);
    assert_int_equal(json_only(json, deny, 1, &err), -1);
    assert_string_equal(err.msg, "field \"denyOut\" is there twice: \"deny_out\", too");
    json_decref(json);
}

static void a_blank_body_may_stand_for_an_empty_object(void **state)
{
    AUTO_JSON json_t *json = NULL;
    struct err err;
    (void)state;
    assert_int_equal(json_read_object(STR_NULL, true, &json, &err), 0);
    assert_int_equal(json_object_size(json), 0);
    json_decref(TAKE_PTR(json));
    assert_int_equal(json_read_object(STR(" \r\n"), true, &json, &err), 0);
    json_decref(TAKE_PTR(json));
    assert_int_equal(json_read_object(STR(""), false, &json, &err), -1);
    assert_int_equal(json_read_object(STR("[]"), false, &json, &err), -1);
}

static void loops_see_each_member_once_and_can_be_left(void **state)
{
    AUTO_JSON json_t *json = json_pack("{s:[i,i,i,i],s:i,s:i}", "list", 0, 1, 2, 3, "a", 10, "b", 20);
    const json_t *list = json_object_get(json, "list");
    json_int_t sum = 0;
    size_t n = 0;
    (void)state;
    JSON_FOREACH_AT (i, one, list) {
        assert_int_equal(json_integer_value(one), i);
        if (i == 1)
            continue;
        if (i == 3)
            break;
        sum += json_integer_value(one);
    }
    assert_int_equal(sum, 2);
    JSON_FOREACH (one, list)
        JSON_FOREACH (other, list)
            n += json_integer_value(one) < json_integer_value(other);
    assert_int_equal(n, 6);
    JSON_FOREACH (one, NULL)
        fail_msg("NULL has a member");
    JSON_FOREACH_MEMBER (name, value, NULL)
        fail_msg("NULL has a member");
    JSON_FOREACH_MEMBER (name, value, json) {
        if (json_is_array(value))
            continue;
        assert_string_equal(name, json_integer_value(value) == 10 ? "a" : "b");
        sum += json_integer_value(value);
    }
    assert_int_equal(sum, 32);
    n = 0;
    JSON_FOREACH_MEMBER (name, value, json) {
        n++;
        if (strcmp(name, "a") == 0 || json_is_array(value))
            break;
    }
    assert_int_equal(n, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_clean_json_is_refused),
        cmocka_unit_test(depth_and_count_are_limited_before_anything_is_built),
        cmocka_unit_test(fields_are_typed),
        cmocka_unit_test(unknown_members_are_named),
        cmocka_unit_test(a_blank_body_may_stand_for_an_empty_object),
        cmocka_unit_test(loops_see_each_member_once_and_can_be_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
