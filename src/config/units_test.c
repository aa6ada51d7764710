/* SPDX-License-Identifier: Apache-2.0 */
#include "config/units.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void sizes_are_understood(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"4096", 4096},
        {"17B", 17},
        {"1k", 1024},
        {"512MiB", 512ULL << 20},
        {"512M", 512ULL << 20},
        {"512Mi", 512ULL << 20},
        {"512m", 512ULL << 20},
        {"1.5G", 3ULL << 29},
        {"0.001K", 1},
        {"20GB", 20000000000ULL},
        {"3TiB", 3ULL << 40},
        {"16777215TiB", 16777215ULL << 40},
    };
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        uint64_t bytes = 99;
        assert_int_equal(unit_parse_size(str_of(good[i].text), &bytes), 0);
        assert_int_equal(bytes, good[i].bytes);
    }
}

static void wrong_sizes_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",      "M",   "-1",  "+1", " 1", "1 ",  "1 M",  "1.M",  ".5M", "1.2.3M", "1.0005M",
        "1MiBs", "1Mb", "1iB", "1E", "1P", "1.5", "1.5B", "0x10", "1e3", "1,5M",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        uint64_t bytes = 99;
        assert_int_equal(unit_parse_size(str_of(bad[i]), &bytes), -EINVAL);
        assert_int_equal(bytes, 99);
    }
    uint64_t bytes = 99;
    assert_int_equal(unit_parse_size(STR("18446744073709551616"), &bytes), -ERANGE);
    assert_int_equal(unit_parse_size(STR("16777216TiB"), &bytes), -ERANGE);
    assert_int_equal(unit_parse_size(STR("99999999999999999999999999999"), &bytes), -ERANGE);
    assert_int_equal(unit_parse_size(str_n("1\0M", 3), &bytes), -EINVAL);
    assert_int_equal(bytes, 99);
}

static void durations_are_understood(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t ms;
    } good[] = {
        {"0", 0},          {"90", 90000},      {"1.5", 1500},     {"250ms", 250},
        {"5m", 300000},    {"1h30m", 5400000}, {"2d", 172800000}, {"1d2h3m4s5ms", 93784005},
        {"1.5h", 5400000},
    };
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        uint64_t ms = 99;
        assert_int_equal(unit_parse_duration(str_of(good[i].text), &ms), 0);
        assert_int_equal(ms, good[i].ms);
    }
    static const char *const bad[] = {"", "m", "5x", "5m5m", "1m2h", "5m3", "5 m", "-5m", "1.5ms", "5M", "5minutes"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        uint64_t ms = 99;
        assert_true(unit_parse_duration(str_of(bad[i]), &ms) < 0);
        assert_int_equal(ms, 99);
    }
    uint64_t ms;
    assert_int_equal(unit_parse_duration(STR("18446744073709551d"), &ms), -ERANGE);
}

static void cpus_are_understood(void **state)
{
    (void)state;
    uint32_t milli = 99;
    assert_int_equal(unit_parse_cpus(STR("1.5"), &milli), 0);
    assert_int_equal(milli, 1500);
    assert_int_equal(unit_parse_cpus(STR("2"), &milli), 0);
    assert_int_equal(milli, 2000);
    assert_int_equal(unit_parse_cpus(STR("0.25"), &milli), 0);
    assert_int_equal(milli, 250);
    assert_int_equal(unit_parse_cpus(STR("2 "), &milli), -EINVAL);
    assert_int_equal(unit_parse_cpus(STR("0.0001"), &milli), -EINVAL);
    assert_int_equal(unit_parse_cpus(STR("4294968"), &milli), -ERANGE);
    assert_int_equal(milli, 250);
}

static void assert_size_text(uint64_t bytes, const char *text)
{
    char got[UNIT_TEXT_MAX];
    unit_format_size(bytes, got);
    assert_string_equal(got, text);
}

static void assert_duration_text(uint64_t ms, const char *text)
{
    char got[UNIT_TEXT_MAX];
    unit_format_duration(ms, got);
    assert_string_equal(got, text);
}

static void quantities_are_written_for_people(void **state)
{
    (void)state;
    assert_size_text(0, "0 B");
    assert_size_text(1023, "1023 B");
    assert_size_text(512ULL << 20, "512 MiB");
    assert_size_text(3ULL << 29, "1.5 GiB");
    assert_size_text(UINT64_MAX, "16777216 TiB");
    assert_duration_text(0, "0ms");
    assert_duration_text(250, "250ms");
    assert_duration_text(42000, "42s");
    assert_duration_text(300000, "5m");
    assert_duration_text(302000, "5m 2s");
    assert_duration_text(5400000, "1h 30m");
    assert_duration_text(3600000, "1h");
    assert_duration_text(86400000ULL, "24h");
    assert_duration_text(86400000ULL + 3600000, "1d 1h");
    assert_duration_text(86400000ULL * 3, "3d");
    assert_duration_text(86400000ULL * 3 + 3600000, "3d 1h");
    assert_duration_text(UINT64_MAX, "213503982334d 14h");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_understood),
        cmocka_unit_test(wrong_sizes_are_refused),
        cmocka_unit_test(durations_are_understood),
        cmocka_unit_test(cpus_are_understood),
        cmocka_unit_test(quantities_are_written_for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
