/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_messages(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(err_set(&err, ERR_NOT_FOUND, "no sandbox %s", "i1"), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(err.errnum, 0);
    assert_int_equal(err_prefix(&err, "connect %d", 7), -1);
    assert_string_equal(err.msg, "connect 7: no sandbox i1");
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(err_errno(&err, -ENOSPC, "write %s", "x"), -1);
    assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(err.errnum, ENOSPC);
    assert_string_equal(err.msg, "write x: No space left on device");
}

static void test_long_messages_are_cut(void **state)
{
    (void)state;
    struct err err;
    char text[1000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    (void)err_set(&err, ERR_INTERNAL, "%s", text);
    assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
    (void)err_prefix(&err, "%s", text);
    (void)err_prefix(&err, "front");
    assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
    assert_memory_equal(err.msg, "front: xxx", 10);
    (void)err_errno(&err, EIO, "%s", text);
    assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
}

static void test_codes(void **state)
{
    (void)state;
    for (int c = 0; c < ERR_CODE_MAX; c++) {
        assert_non_null(err_code_name((enum err_code)c));
        for (int other = 0; other < c; other++)
            assert_string_not_equal(err_code_name((enum err_code)c), err_code_name((enum err_code)other));
    }
    assert_string_equal(err_code_name(ERR_DEADLINE_EXCEEDED), "deadline_exceeded");
    assert_string_equal(err_code_name((enum err_code)99), "unknown");
    assert_int_equal(err_code_from_errno(-ENOENT), ERR_NOT_FOUND);
    assert_int_equal(err_code_from_errno(ENOENT), ERR_NOT_FOUND);
    assert_int_equal(err_code_from_errno(0), ERR_OK);
    assert_int_equal(err_code_from_errno(12345), ERR_INTERNAL);
}

static void test_reasons_go_along(void **state)
{
    struct err err, other = {.msg = "as it was"};
    (void)state;
    assert_int_equal(err_errno(&err, EDQUOT, "write"), -1);
    assert_int_equal(err.reason, ERR_NO_QUOTA);
    assert_true(err_unpack(err_pack(err.code, err.reason), &other));
    assert_int_equal(other.code, ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(other.reason, ERR_NO_QUOTA);
    assert_string_equal(other.msg, "as it was");
    assert_int_equal(err_set(&err, ERR_INTERNAL, "another"), -1);
    assert_int_equal(err.reason, ERR_NO_REASON);
    assert_false(err_unpack(ERR_CODE_MAX, &other));
    assert_false(err_unpack(ERR_REASON_MAX << 8, &other));
    assert_false(err_unpack(UINT32_MAX, &other));
    assert_false(err_unpack(err_pack(ERR_PERMISSION_DENIED, ERR_HELD), &other));
}

static void what_is_too_long_ends_behind_a_word(void **state)
{
    (void)state;
    struct err err;
    char words[400] = "", letters[400];
    for (int i = 0; i < 50; i++)
        memcpy(words + i * 7, "sieben ", 8);
    (void)err_set(&err, ERR_INTERNAL, "%s", words);
    assert_true(strlen(err.msg) > 200);
    assert_string_equal(err.msg + strlen(err.msg) - 9, "sieben...");
    (void)err_prefix(&err, "%s", "a prefix");
    assert_string_equal(err.msg + strlen(err.msg) - 9, "sieben...");
    for (size_t i = 0; i + 2 < sizeof(letters); i += 2)
        memcpy(letters + i, "\xc3\xa4", 3);
    (void)err_set(&err, ERR_INTERNAL, "%s", letters);
    assert_true(str_is_utf8(str_of(err.msg)) && strcmp(err.msg + strlen(err.msg) - 3, "...") == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_too_long_ends_behind_a_word),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_long_messages_are_cut),
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_reasons_go_along),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
