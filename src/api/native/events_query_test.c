/* SPDX-License-Identifier: Apache-2.0 */
#include "api/native/events_query.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void test_last_event_id(void **state)
{
    static const char *const bad[] = {"",
                                      "-1",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "0x1",
                                      "1.0",
                                      "18446744073709551615",
                                      "18446744073709551616",
                                      "99999999999999999999999"};
    uint64_t next = 7;
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(events_next_parse(str_of(bad[i]), &next), -EINVAL);
    assert_int_equal(next, 7);
    assert_int_equal(events_next_parse(STR("0"), &next), 0);
    assert_int_equal(next, 1);
    assert_int_equal(events_next_parse(STR("18446744073709551614"), &next), 0);
    assert_true(next == UINT64_MAX);
}

static void test_kinds(void **state)
{
    const struct str exit = STR("exec.exit");
    (void)state;
    assert_true(events_kind_fits(STR_NULL, exit));
    assert_true(events_kind_fits(STR(""), exit));
    assert_true(events_kind_fits(STR(","), exit));
    assert_true(events_kind_fits(STR("exec."), exit));
    assert_true(events_kind_fits(STR("net.,exec.exit"), exit));
    assert_true(events_kind_fits(STR("net.,,exec."), exit));
    assert_false(events_kind_fits(STR("net.,"), exit));
    assert_false(events_kind_fits(STR("exec.exit.more"), exit));
    assert_false(events_kind_fits(STR("xec."), exit));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_last_event_id), cmocka_unit_test(test_kinds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
