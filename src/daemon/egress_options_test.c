/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { ARGS_MAX = 32 };

/* Descriptors 0, 1 and 2 are there whatever runs the test. */
#define NEEDED "--control-fd", "0", "--vault-fd", "1", "--state-fd", "2"

static int parse(struct egress_options *o, struct err *err, const char *const *arguments)
{
    char *argv[ARGS_MAX] = {(char[]){"cove-egress"}};
    int argc = 1;
    while (*arguments)
        argv[argc++] = (char *)(uintptr_t)*arguments++;
    return egress_options_parse(argc, argv, o, err);
}

#define PARSE(o, err, ...) parse(o, err, (const char *const[]){__VA_ARGS__, NULL})

static void what_coved_says_is_understood(void **state)
{
    (void)state;
    struct egress_options o;
    struct err err = {0};
    assert_int_equal(PARSE(&o, &err, NEEDED, "--pulse-fd", "2", "--owner-uid", "7", "--log-level", "0", "--resolver",
                           "127.0.0.1:53", "--trust", "/ca.pem"),
                     0);
    assert_int_equal(o.control_fd, 0);
    assert_int_equal(o.pulse_fd, 2);
    assert_int_equal(o.vault_fd, 1);
    assert_int_equal(o.state_fd, 2);
    assert_int_equal(o.owner_uid, 7);
    assert_int_equal(o.log_level, LOG_DEBUG);
    assert_string_equal(o.resolver, "127.0.0.1:53");
    assert_string_equal(o.trust, "/ca.pem");

    assert_int_equal(PARSE(&o, &err, NEEDED), 0);
    assert_int_equal(o.pulse_fd, -1);
    assert_int_equal(o.owner_uid, 0);
    assert_int_equal(o.log_level, LOG_INFO);
    assert_null(o.resolver);
    assert_null(o.trust);
}

static void assert_wrong(const char *option, const char *value)
{
    struct egress_options o = {.owner_uid = 77};
    struct err err = {0};
    assert_int_equal(PARSE(&o, &err, NEEDED, option, value), -1);
    assert_int_not_equal(err.code, ERR_OK);
    assert_non_null(strstr(err.msg, option));
    assert_int_equal(o.owner_uid, 77);
}

static void wrong_values_are_refused(void **state)
{
    (void)state;
    assert_wrong("--control-fd", "1000000"); /* not open */
    assert_wrong("--pulse-fd", "x");
    assert_wrong("--vault-fd", "-1");
    assert_wrong("--state-fd", "x");
    assert_wrong("--owner-uid", "4294967295");
    assert_wrong("--log-level", "8");
    assert_wrong("--resolver", "");
    assert_wrong("--trust", "");
    assert_wrong("--nothing", "1");
}

static void what_is_needed_is_needed(void **state)
{
    (void)state;
    struct egress_options o;
    struct err err = {0};
    assert_int_equal(PARSE(&o, &err, "--vault-fd", "1", "--state-fd", "2"), -1);
    assert_int_equal(PARSE(&o, &err, "--control-fd", "0", "--state-fd", "2"), -1);
    assert_int_equal(PARSE(&o, &err, "--control-fd", "0", "--vault-fd", "1"), -1);
    assert_int_equal(PARSE(&o, &err, NEEDED, "operand"), -1);
    assert_int_equal(PARSE(&o, &err, NEEDED, "--trust"), -1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_coved_says_is_understood),
        cmocka_unit_test(wrong_values_are_refused),
        cmocka_unit_test(what_is_needed_is_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
