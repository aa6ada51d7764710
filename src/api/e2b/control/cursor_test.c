/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/control/list_query.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void a_cursor_survives_the_way_to_the_client_and_back(void **state)
{
    struct cursor cursor = {.started = 1700000000123456, .id = "i0123456789abcdefghij"}, back;
    char text[CURSOR_TEXT_MAX];
    (void)state;
    cursor_format(&cursor, text);
    assert_int_equal(cursor_parse(str_of(text), &back), 0);
    assert_int_equal(back.started, cursor.started);
    assert_string_equal(back.id, cursor.id);
    assert_false(back.ascending);

    cursor.ascending = true;
    cursor_format(&cursor, text);
    assert_int_equal(cursor_parse(str_of(text), &back), 0);
    assert_true(back.ascending);
}

static void what_is_not_a_cursor_is_refused(void **state)
{
    struct cursor cursor;
    (void)state;
    assert_int_equal(cursor_parse(STR(""), &cursor), -EINVAL);
    assert_int_equal(cursor_parse(STR("!!"), &cursor), -EINVAL);
    assert_int_equal(cursor_parse(STR("aGVsbG8="), &cursor), -EINVAL); /* hello */
    assert_int_equal(cursor_parse(STR("eF9feQ=="), &cursor), -EINVAL); /* x__y */
    assert_int_equal(cursor_parse(STR("MjAyNi0wMS0wMVQwMDowMDowMFpfX2lhX19kZXNj"), &cursor),
                     -EINVAL);                                                                 /* ..__ia__desc */
    assert_int_equal(cursor_parse(STR("MjAyNi0wMS0wMVQwMDowMDowMFpfXw=="), &cursor), -EINVAL); /* no id */
    assert_int_equal(cursor_parse(STR("MjAyNi0wMS0wMVQwMDowMDowMFpfX2lh"), &cursor), 0);
    assert_string_equal(cursor.id, "ia");
}

static void newest_come_first_and_ascending_is_the_reverse(void **state)
{
    struct cursor cursor = {.started = 100, .id = "im"};
    (void)state;
    assert_true(cursor_is_before(&cursor, 99, "ia"));
    assert_false(cursor_is_before(&cursor, 101, "iz"));
    assert_true(cursor_is_before(&cursor, 100, "in"));
    assert_false(cursor_is_before(&cursor, 100, "im"));
    assert_false(cursor_is_before(&cursor, 100, "il"));

    cursor.ascending = true;
    assert_false(cursor_is_before(&cursor, 99, "ia"));
    assert_true(cursor_is_before(&cursor, 101, "iz"));
    assert_false(cursor_is_before(&cursor, 100, "in"));
    assert_false(cursor_is_before(&cursor, 100, "im"));
    assert_true(cursor_is_before(&cursor, 100, "il"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cursor_survives_the_way_to_the_client_and_back),
        cmocka_unit_test(what_is_not_a_cursor_is_refused),
        cmocka_unit_test(newest_come_first_and_ascending_is_the_reverse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
