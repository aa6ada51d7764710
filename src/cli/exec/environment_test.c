/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/exec/environment.h"
#include "cli/service.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void assert_term(const char *term, const char *expected)
{
    AUTO_JSON json_t *env = environment_of_terminal(NULL, term);
    assert_string_equal(json_string_value(json_object_get(env, "TERM")), expected);
}

static void a_terminal_has_a_name(void **state)
{
    (void)state;
    assert_term("screen.xterm-256color", "screen.xterm-256color");
    assert_term("xterm+256color", "xterm+256color");
    assert_term(NULL, "xterm");
    assert_term("", "xterm");
    assert_term("../../etc/passwd", "xterm");
    assert_term("..", "xterm");
    assert_term("-x", "xterm");
    assert_term("a b", "xterm");
    assert_term("\xff", "xterm");
    assert_term("a\n", "xterm");
    assert_term("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "xterm");
}

static void what_was_said_stays(void **state)
{
    (void)state;
    AUTO_JSON json_t *said = json_pack("{s:s}", "TERM", "dumb"), *other = json_pack("{s:s}", "A", "b");
    AUTO_JSON json_t *first = environment_of_terminal(said, "linux"), *second = environment_of_terminal(other, "linux");
    assert_string_equal(json_string_value(json_object_get(first, "TERM")), "dumb");
    assert_string_equal(json_string_value(json_object_get(second, "TERM")), "linux");
    assert_string_equal(json_string_value(json_object_get(second, "A")), "b");
    assert_int_equal(json_object_size(other), 1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_terminal_has_a_name),
        cmocka_unit_test(what_was_said_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
