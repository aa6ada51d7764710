/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/eval/test_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void expect(const char *printed, const char *passed, const char *failed)
{
    json_t *results = json_object(), *other;
    const char *const names[] = {passed, failed};
    test_log_read(results, str_of(printed));
    for (int i = 0; i < 2; i++) {
        other = names[i] ? json_object_get(results, names[i]) : NULL;
        if (names[i] && !(i ? json_is_false(other) : json_is_true(other)))
            fail_msg("%s: %s", printed, names[i]);
    }
    json_decref(results);
}

static void what_runners_print_is_understood(void **state)
{
    (void)state;
    expect("PASSED t/a.py::b\nFAILED t/a.py::c - assert 1", "t/a.py::b", "t/a.py::c");
    expect("PASSED t/a.py::b[x y]\nERROR t/a.py", "t/a.py::b[x y]", "t/a.py");
    expect("PASSED t/a.py::b[x y]", "t/a.py::b[x", NULL);
    expect("t/a.py::b PASSED   [ 50%]\nt/a.py::c FAILED [100%]\r\n", "t/a.py::b", "t/a.py::c");
    expect("XFAIL t/a.py::b - reason", "t/a.py::b", NULL);
    expect("t_a (m.C.t_a) ... ok\nt_b (m.C.t_b) ... ERROR", "t_a (m.C.t_a)", "t_b (m.C.t_b)");
    expect("    --- PASS: T/sub (0.00s)\n--- FAIL: T (0.1s)", "T/sub", "T");
    expect("ok 1 - adds # time=3ms\nnot ok 12 - subtracts", "adds", "subtracts");
    expect("test a::b ... ok\ntest a::c ... FAILED", "a::b", "a::c");
    expect("\x1b[32mPASSED\x1b[0m t/a.py::\x1b[1mb\x1b[0m", "t/a.py::b", NULL);
}

static void what_failed_once_has_failed(void **state)
{
    (void)state;
    expect("FAILED a - x\nPASSED a\na PASSED", NULL, "a");
    expect("PASSED a\na FAILED", NULL, "a");
}

static void what_is_no_result_is_none(void **state)
{
    json_t *results = json_object();
    (void)state;
    test_log_read(results,
                  STR("\nPASSED\nPASSED \nhello\nSKIPPED [1] a.py: no\n\xff PASSED\nPASSED \xff\n... ok\n\x1b["));
    assert_int_equal(json_object_size(results), 0);
    json_decref(results);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_runners_print_is_understood),
        cmocka_unit_test(what_failed_once_has_failed),
        cmocka_unit_test(what_is_no_result_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
