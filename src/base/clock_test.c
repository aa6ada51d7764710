/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_format(void **state)
{
    (void)state;
    char text[CLOCK_TEXT_MAX];
    clock_format(0, 0, text);
    assert_string_equal(text, "1970-01-01T00:00:00Z");
    clock_format(1790000000123456, 6, text);
    assert_string_equal(text, "2026-09-21T14:13:20.123456Z");
    clock_format(1790000000123456, 3, text);
    assert_string_equal(text, "2026-09-21T14:13:20.123Z");
    clock_format(1790000000999999, 1, text);
    assert_string_equal(text, "2026-09-21T14:13:20.9Z"); /* cut, not rounded */
    clock_format(1790000000000005, 6, text);
    assert_string_equal(text, "2026-09-21T14:13:20.000005Z");
    clock_format(UINT64_MAX, 6, text);
    assert_true(strlen(text) < CLOCK_TEXT_MAX);
    assert_int_equal(text[strlen(text) - 1], 'Z');
}

static void parses(const char *text, usec_t want)
{
    usec_t got = 1;
    if (clock_parse(str_of(text), &got) != 0 || got != want)
        fail_msg("%s gave %llu instead of %llu", text, (unsigned long long)got, (unsigned long long)want);
}

static void test_parse(void **state)
{
    (void)state;
    const usec_t t = 1790000000 * USEC_PER_SEC;
    parses("1970-01-01T00:00:00Z", 0);
    parses("2026-09-21T14:13:20Z", t);
    parses("2026-09-21t14:13:20z", t);
    parses("2026-09-21 14:13:20Z", t);
    parses("2026-09-21T14:13:20.5Z", t + 500000);
    parses("2026-09-21T14:13:20.123456Z", t + 123456);
    parses("2026-09-21T14:13:20.123456789Z", t + 123456);
    parses("2026-09-21T16:13:20+02:00", t);
    parses("2026-09-21T08:43:20.25-05:30", t + 250000);
    parses("2026-09-21T14:13:20+00:00", t);
    parses("1970-01-01T01:00:00+01:00", 0);
    parses("2024-02-29T00:00:00Z", 1709164800 * USEC_PER_SEC);
    parses("2000-02-29T00:00:00Z", 951782400 * USEC_PER_SEC);
    parses("2016-12-31T23:59:60Z", 1483228800 * USEC_PER_SEC); /* a leap second is the next one */
    parses("9999-12-31T23:59:59Z", 253402300799 * USEC_PER_SEC);
    static const char *const bad[] = {
        "",
        "2026",
        "2026-09-21",
        "2026-09-21T14:13:20",
        "2026-09-21T14:13:20.Z",
        "2026-09-21T14:13:20.1234567890Z",
        "2026-09-21T14:13:20Zx",
        "2026-09-21T14:13:20+0200",
        "2026-09-21T14:13:20+02",
        "2026-09-21T14:13:20+24:00",
        "2026-09-21T14:13:20+02:60",
        "2026-09-21X14:13:20Z",
        "2026/09/21T14:13:20Z",
        "2026-9-21T14:13:20Z",
        "2026-00-21T14:13:20Z",
        "2026-13-21T14:13:20Z",
        "2026-09-00T14:13:20Z",
        "2026-09-31T14:13:20Z",
        "2026-02-29T14:13:20Z",
        "2100-02-29T14:13:20Z",
        "2026-04-31T14:13:20Z",
        "2026-09-21T24:13:20Z",
        "2026-09-21T14:60:20Z",
        "2026-09-21T14:13:61Z",
        "1969-12-31T23:59:59Z",
        "1970-01-01T00:00:00+01:00",
        " 2026-09-21T14:13:20Z",
        "2026-09-21T14:13:20 Z",
        "-026-09-21T14:13:20Z",
    };
    usec_t untouched = 7;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (clock_parse(str_of(bad[i]), &untouched) != -EINVAL)
            fail_msg("accepted: %s", bad[i]);
    assert_int_equal(untouched, 7);
    assert_int_equal(clock_parse(str_n("2026-09-21T14:13:20\0", 20), &untouched), -EINVAL);
}

static void test_round_trips(void **state)
{
    (void)state;
    usec_t t = 0, back, last = 253402300799ULL * USEC_PER_SEC;
    for (int i = 0; t < last; i++, t += 1000000007ULL * 997 * (usec_t)(i % 7 + 1)) {
        char text[CLOCK_TEXT_MAX];
        clock_format(t, 6, text);
        parses(text, t);
        for (int digits = 0; digits < 6; digits++) {
            usec_t unit = USEC_PER_SEC;
            for (int d = 0; d < digits; d++)
                unit /= 10;
            clock_format(t, digits, text);
            assert_int_equal(clock_parse(str_of(text), &back), 0);
            assert_int_equal(back, t / unit * unit);
        }
    }
    usec_t before = clock_mono();
    assert_true(clock_mono() >= before);
    assert_true(clock_real() > 1700000000 * USEC_PER_SEC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_format), cmocka_unit_test(test_parse),
                                       cmocka_unit_test(test_round_trips)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
