/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/range.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void is_part(const char *value, uint64_t size, uint64_t offset, uint64_t length)
{
    struct range ranges[RANGES_MAX];
    size_t n = 0;
    assert_int_equal(range_parse(str_of(value), size, ranges, &n), RANGE_PART);
    assert_int_equal(n, 1);
    assert_int_equal(ranges[0].offset, offset);
    assert_int_equal(ranges[0].length, length);
}

static void is(const char *value, uint64_t size, enum range_result expected)
{
    struct range ranges[RANGES_MAX];
    size_t n;
    assert_int_equal(range_parse(str_of(value), size, ranges, &n), expected);
}

static void one_range_is_served(void **state)
{
    (void)state;
    is_part("bytes=2-4", 10, 2, 3);
    is_part("bytes=0-0", 10, 0, 1);
    is_part("bytes=5-", 10, 5, 5);
    is_part("bytes=-3", 10, 7, 3);
    is_part("bytes=-30", 10, 0, 10);
    is_part("bytes=8-99", 10, 8, 2);
    is_part("bytes=0-18446744073709551615", UINT64_MAX, 0, UINT64_MAX);
}

static void the_rest_is_the_whole_or_an_error(void **state)
{
    (void)state;
    is(NULL, 10, RANGE_WHOLE);
    is("", 10, RANGE_WHOLE);
    is("lines=1-2", 10, RANGE_WHOLE);
    is("bytes=0-8,1-9", 10, RANGE_WHOLE);
    is("bytes=0-0,0-0,0-0,0-0,0-0,0-0,0-0,0-0,0-0,0-0,0-0,0-0,0-0,0-0,0-0,0-0,0-0", 100, RANGE_WHOLE);
    is("bytes=0-1,x", 10, RANGE_UNSATISFIABLE);
    is("bytes=10-,20-", 10, RANGE_UNSATISFIABLE);
    is("bytes=0-1", 0, RANGE_WHOLE);
    is("bytes=10-", 10, RANGE_UNSATISFIABLE);
    is("bytes=4-2", 10, RANGE_UNSATISFIABLE);
    is("bytes=-0", 10, RANGE_UNSATISFIABLE);
    is("bytes=-", 10, RANGE_UNSATISFIABLE);
    is("bytes=x", 10, RANGE_UNSATISFIABLE);
    is("bytes=99999999999999999999-", 10, RANGE_UNSATISFIABLE);
}

static void several_ranges_are_served(void **state)
{
    struct range ranges[RANGES_MAX];
    size_t n = 0;
    (void)state;
    assert_int_equal(range_parse(STR("bytes=0-1, 10-20, -3"), 10, ranges, &n), RANGE_PART);
    assert_int_equal(n, 2);
    assert_int_equal(ranges[0].length, 2);
    assert_int_equal(ranges[1].offset, 7);
    assert_int_equal(ranges[1].length, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_range_is_served),
        cmocka_unit_test(several_ranges_are_served),
        cmocka_unit_test(the_rest_is_the_whole_or_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
