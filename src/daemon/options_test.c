/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/options.h"
#include "wire/supervisor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { ARGS_MAX = 40 };

/* Descriptors 0, 1 and 2 are there whatever runs the test. */
#define NEEDED "--supervisor-fd", "0", "--listen-fd", "1:tcp", "--state", "/s", "--data", "/d"

static int parse(struct options *o, struct err *err, const char *const *arguments)
{
    char *argv[ARGS_MAX] = {(char[]){"cove-api"}};
    int argc = 1;
    while (*arguments)
        argv[argc++] = (char *)(uintptr_t)*arguments++;
    return options_parse(argc, argv, o, err);
}

#define PARSE(o, err, ...) parse(o, err, (const char *const[]){__VA_ARGS__, NULL})

static void what_coved_says_is_understood(void **state)
{
    (void)state;
    struct options o;
    struct err err = {0};
    assert_int_equal(PARSE(&o, &err, NEEDED, "--listen-fd", "2:unix", "--pulse-fd", "2", "--key-fd", "0", "--domain",
                           "d.example", "--owner-uid", "7", "--log-level", "2", "--default-memory", "1048576",
                           "--default-disk", "2097152", "--default-cpu-milli", "1500", "--default-timeout-ms", "1000",
                           "--max-timeout-ms", "2000", "--max-sandboxes", "3", "--keep", "5:0:7"),
                     0);
    assert_int_equal(o.core.engine.supervisor_fd, 0);
    assert_int_equal(o.pulse_fd, 2);
    assert_int_equal(o.core.keep_events, 5);
    assert_int_equal(o.core.keep_ended, 0);
    assert_int_equal(o.core.keep_ended_ms, 7);
    assert_int_equal(o.key_fd, 0);
    assert_int_equal(o.n_listen, 2);
    assert_int_equal(o.listen_fd[1], 2);
    assert_int_equal(o.tls_fd, -1);
    assert_false(o.listen_tls[1]);
    assert_string_equal(o.core.state_dir, "/s");
    assert_string_equal(o.data_dir, "/d");
    assert_string_equal(o.core.domain, "d.example");
    assert_int_equal(o.owner_uid, 7);
    assert_int_equal(o.log_level, LOG_WARN);
    assert_int_equal(o.core.default_memory_bytes, 1048576);
    assert_int_equal(o.core.default_disk_bytes, 2097152);
    assert_int_equal(o.core.default_cpu_milli, 1500);
    assert_int_equal(o.default_timeout_ms, 1000);
    assert_int_equal(o.core.max_timeout_ms, 2000);
    assert_int_equal(o.core.max_sandboxes, 3);
}

/* Programs were replaced under a service that runs: what coved says would be misread. */
static void coved_of_another_version_is_refused(void **state)
{
    (void)state;
    struct options o;
    struct err err = {0};
    char own[16], other[16];
    (void)snprintf(own, sizeof(own), "%d", SUP_VERSION);
    (void)snprintf(other, sizeof(other), "%d", SUP_VERSION - 1);
    assert_int_equal(PARSE(&o, &err, NEEDED, "--protocol", own), 0);
    assert_int_equal(PARSE(&o, &err, NEEDED, "--protocol", other), -1);
    assert_int_equal(err.code, ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(err.msg, "restart the service"));
}

static void the_rest_has_defaults(void **state)
{
    (void)state;
    struct options o;
    struct err err = {0};
    assert_int_equal(PARSE(&o, &err, NEEDED, "--domain", ""), 0);
    assert_int_equal(o.pulse_fd, -1);
    assert_int_equal(o.key_fd, -1);
    assert_null(o.core.domain);
    assert_int_equal(o.owner_uid, 0);
    assert_string_equal(o.core.version, COVE_VERSION);
    assert_true(o.core.max_sandboxes > 0 && o.core.max_timeout_ms >= o.default_timeout_ms);
}

static void assert_wrong(const char *option, const char *value)
{
    struct options o = {.n_listen = 77};
    struct err err = {0};
    assert_int_equal(PARSE(&o, &err, NEEDED, option, value), -1);
    assert_int_not_equal(err.code, ERR_OK);
    assert_non_null(strstr(err.msg, option));
    assert_int_equal(o.n_listen, 77);
}

static void wrong_values_are_refused(void **state)
{
    (void)state;
    assert_wrong("--key-fd", "1000000"); /* not open */
    assert_wrong("--key-fd", "-1");
    assert_wrong("--key-fd", "x");
    assert_wrong("--listen-fd", "0:udp");
    assert_wrong("--tls-fd", "1000000");
    assert_wrong("--listen-fd", ":tcp");
    assert_wrong("--log-level", "8");
    assert_wrong("--owner-uid", "4294967295");
    assert_wrong("--max-sandboxes", "4294967296");
    assert_wrong("--default-memory", "1M");
    assert_wrong("--keep", "");
    assert_wrong("--keep", "1:2");
    assert_wrong("--keep", "1:2:3:4");
    assert_wrong("--keep", "4294967296:2:3");
    assert_wrong("--keep", "1::3");
    assert_wrong("--nothing", "1");
}

static void what_is_needed_is_needed(void **state)
{
    (void)state;
    struct options o;
    struct err err = {0};
    assert_int_equal(PARSE(&o, &err, "--supervisor-fd", "0", "--listen-fd", "1", "--state", "/s"), -1);
    assert_int_equal(PARSE(&o, &err, "--supervisor-fd", "0", "--state", "/s", "--data", "/d"), -1);
    assert_int_equal(PARSE(&o, &err, "--listen-fd", "1", "--state", "/s", "--data", "/d"), -1);
    assert_int_equal(PARSE(&o, &err, NEEDED, "operand"), -1);
    assert_int_equal(PARSE(&o, &err, NEEDED, "--listen-fd", "2:tls"), -1);
    assert_int_equal(PARSE(&o, &err, NEEDED, "--listen-fd", "2:tls", "--tls-fd", "0"), 0);
    assert_true(o.listen_tls[1] && !o.listen_tls[0]);
    assert_int_equal(PARSE(&o, &err, NEEDED, "--domain"), -1);
}

static void listeners_are_bounded(void **state)
{
    (void)state;
    const char *arguments[2 * (OPTIONS_LISTEN_MAX + 1) + 1];
    struct options o;
    struct err err = {0};
    char *argv[2 * (OPTIONS_LISTEN_MAX + 1) + 2] = {(char[]){"cove-api"}};
    for (size_t i = 0; i <= OPTIONS_LISTEN_MAX; i++) {
        arguments[2 * i] = "--listen-fd";
        arguments[2 * i + 1] = "1";
    }
    for (size_t i = 0; i < 2 * (OPTIONS_LISTEN_MAX + 1); i++)
        argv[i + 1] = (char *)(uintptr_t)arguments[i];
    assert_int_equal(options_parse(1 + 2 * (OPTIONS_LISTEN_MAX + 1), argv, &o, &err), -1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_coved_says_is_understood),
        cmocka_unit_test(the_rest_has_defaults),
        cmocka_unit_test(coved_of_another_version_is_refused),
        cmocka_unit_test(wrong_values_are_refused),
        cmocka_unit_test(what_is_needed_is_needed),
        cmocka_unit_test(listeners_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
