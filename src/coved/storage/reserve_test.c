/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"
#include "coved/storage/reserve.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GIB (1ULL << 30)

/* total and there: in GiB */
static struct statvfs disk(uint64_t total, uint64_t there, uint64_t files, uint64_t files_there)
{
    return (struct statvfs){
        .f_bsize = 1 << 20, /* not the unit of the counts */
        .f_frsize = 4096,
        .f_blocks = total * (GIB / 4096),
        .f_bavail = there * (GIB / 4096),
        .f_files = files,
        .f_favail = files_there,
    };
}

static void test_by_itself(void **state)
{
    (void)state;
    static const struct {
        uint64_t total, reserve;
    } sizes[] = {{0, 1}, {10, 1}, {50, 1}, {100, 2}, {400, 8}, {100000, 8}};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct statvfs fs = disk(sizes[i].total, 0, 0, 0);
        uint64_t got = reserve_bytes(&fs, CONFIG_RESERVE_AUTO), wanted = sizes[i].reserve * GIB;
        assert_in_range(got, wanted - 50 * 4096, wanted); /* whole blocks */
        assert_int_equal(reserve_bytes(&fs, 12345), 12345);
    }
}

static void assert_short(struct statvfs fs, uint64_t bytes, const char *says)
{
    struct err err = {0};
    assert_int_equal(reserve_judge(&fs, bytes, &err), -1);
    assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.msg, says));
    assert_true(strlen(err.msg) <
                sizeof(err.msg) - 64); /* all of it was there to be read, and room is left for prefixes */
}

static void assert_enough(struct statvfs fs, uint64_t bytes)
{
    struct err err = {0};
    assert_int_equal(reserve_judge(&fs, bytes, &err), 0);
}

static void test_what_is_short(void **state)
{
    (void)state;
    assert_enough(disk(100, 2, 1000, 20), CONFIG_RESERVE_AUTO);
    assert_short(disk(100, 1, 1000, 20), CONFIG_RESERVE_AUTO, "has 1 GiB free");
    assert_short(disk(100, 50, 1000, 19), CONFIG_RESERVE_AUTO, "has 19 of 1000 inodes free");
    assert_enough(disk(100, 50, 0, 0), CONFIG_RESERVE_AUTO); /* btrfs */
    assert_enough(disk(100, 5, 1000, 1000), 5 * GIB);
    assert_short(disk(100, 4, 1000, 1000), 5 * GIB, "reserve of 5 GiB");
    assert_short(disk(UINT64_MAX / GIB, 4, UINT64_MAX, 0), UINT64_MAX - 1, "set disk_reserve");
    assert_enough(disk(100, 0, 1000, 0), 0);
}

static void test_a_real_one(void **state)
{
    (void)state;
    struct err err = {0};
    int fd = open("/", O_PATH | O_CLOEXEC);
    struct reserve none = {.fd = fd}, all = {.fd = fd, .bytes = 1ULL << 60}, bad = {.fd = -1, .bytes = 1};
    assert_int_equal(reserve_check(&none, &err), 0);
    assert_int_equal(reserve_check(&all, &err), -1);
    assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED);
    all.bytes = 0;
    assert_int_equal(reserve_check(&all, &err), 0);
    assert_int_equal(reserve_check(&bad, &err), -1);
}

static void test_a_share(void **state)
{
    (void)state;
    static const struct {
        uint64_t pool, share;
    } sizes[] = {
        {0, 0}, {2 * GIB, GIB / 2}, {10 * GIB + 4096, 5 * GIB / 2}, {80 * GIB, 20 * GIB}, {UINT64_MAX, 20 * GIB}};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        assert_int_equal(reserve_share(sizes[i].pool, CONFIG_DISK_AUTO), sizes[i].share);
        assert_int_equal(reserve_share(sizes[i].pool, 12345), 12345);
        assert_int_equal(reserve_share(sizes[i].pool, 0), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_itself),
        cmocka_unit_test(test_what_is_short),
        cmocka_unit_test(test_a_real_one),
        cmocka_unit_test(test_a_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
