/* SPDX-License-Identifier: Apache-2.0 */
/* One sandbox can make the kernel lose files all the time: all are told that, and seldom. */
#include "coved/boxes/boxes_internal.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static size_t n_told;

static void seen(void *ctx, const struct sup_seen *s, size_t n)
{
    (void)ctx;
    assert_int_equal(n, sup_seen_size(s));
    assert_int_equal(s->kind, SUP_SEEN_LOST);
    assert_string_equal(s->id, "");
    n_told++;
}

static bool sees(void *ctx)
{
    (void)ctx;
    return true;
}

static void lost_files_are_told_at_once_and_then_seldom(void **state)
{
    static struct boxes b = {.events = {.seen = seen, .sees = sees}};
    (void)state;
    assert_true(boxes_seen_tick(&b) == UINT64_MAX);
    for (int i = 0; i < 100; i++)
        boxes_seen_files_lost(&b);
    assert_true(boxes_seen_tick(&b) <= clock_mono() + 10 * USEC_PER_SEC);
    assert_int_equal(n_told, 1);
    b.files_lost_at -= 10 * USEC_PER_SEC;
    (void)boxes_seen_tick(&b);
    assert_int_equal(n_told, 2);
    assert_true(boxes_seen_tick(&b) == UINT64_MAX);
    boxes_seen_files_lost(&b);
    assert_int_equal(n_told, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lost_files_are_told_at_once_and_then_seldom)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
