/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "tier/vm/qmp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define GREETING                                                                                                       \
    "{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 22, \"minor\": 2, \"major\": 7}, \"package\": \"\"}, \"capabilities\": [\"oob\"]}}\r\n"
#define DONE "{\"return\": {}}\r\n"
#define EVENT "{\"timestamp\": {\"seconds\": 1, \"microseconds\": 2}, \"event\": \"STOP\"}\r\n"

enum { PATIENCE_USEC = 200 * 1000 };

static int ask(const char *says, enum vmm_order order, struct vmm_monitor *ret_m, char why[static VMM_WHY_MAX])
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(fd_write_all(pair[1], says, strlen(says)), 0);
    *ret_m = (struct vmm_monitor){.fd = pair[0]};
    why[0] = 0;
    int r = qmp_ask(ret_m, order, clock_mono() + PATIENCE_USEC, why);
    (void)close(pair[0]);
    (void)close(pair[1]);
    return r;
}

static void test_an_order_is_answered(void **state)
{
    (void)state;
    static struct vmm_monitor m;
    char why[VMM_WHY_MAX];
    assert_int_equal(ask(GREETING DONE EVENT EVENT DONE, VMM_HALT, &m, why), 0);
    assert_string_equal(m.version, "7.2");
    assert_int_equal(ask(GREETING DONE
                         "{\"return\": {\"status\": \"inmigrate\"}}\n{\"return\": {\"status\": \"paused\"}}\n",
                         VMM_AWAIT, &m, why),
                     0);
    assert_int_equal(
        ask(GREETING DONE "{\"error\": {\"class\": \"GenericError\", \"desc\": \"no room\"}}\n", VMM_SAVE, &m, why),
        -EREMOTEIO);
    assert_string_equal(why, "no room");
}

static void test_who_lies_or_hangs_is_told_apart(void **state)
{
    (void)state;
    static struct vmm_monitor m;
    static char endless[VMM_LINE_MAX + 100];
    char why[VMM_WHY_MAX];
    static const char *const senseless[] = {"\n",
                                            "7\n",
                                            "{}\n",
                                            "[[[[\n",
                                            "{\"return\"\n",
                                            "{\"QMP\": 7}\n",
                                            "{\"return\": {}}\n",
                                            GREETING GREETING,
                                            GREETING "{\"error\": 7}\n"};
    for (size_t i = 0; i < ARRAY_SIZE(senseless); i++)
        assert_int_equal(ask(senseless[i], VMM_HALT, &m, why), -EPROTO);
    memset(endless, '[', sizeof(endless) - 1);
    assert_int_equal(ask(endless, VMM_HALT, &m, why), -EPROTO);
    assert_int_equal(ask(GREETING DONE, VMM_HALT, &m, why), -ETIMEDOUT);
    assert_int_equal(ask(GREETING DONE EVENT EVENT, VMM_RUN, &m, why), -ETIMEDOUT);
    assert_int_equal(ask("", VMM_RUN, &m, why), -ETIMEDOUT);
    m = (struct vmm_monitor){.fd = -1, .version = "7.2"};
    assert_true(qmp_ask(&m, VMM_RUN, clock_mono() + PATIENCE_USEC, why) < 0);
    assert_true(why[0]);
}

static void test_a_descriptor_is_handed_over(void **state)
{
    (void)state;
    static struct vmm_monitor m;
    char why[VMM_WHY_MAX], said[256] = "";
    int pair[2], got = -1;
    size_t n_fds = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    m = (struct vmm_monitor){.fd = pair[0], .given = pair[0], .version = "7.2"};
    assert_int_equal(fd_write_all(pair[1], DONE, strlen(DONE)), 0);
    assert_int_equal(qmp_ask(&m, VMM_TAKE, clock_mono() + PATIENCE_USEC, why), 0);
    assert_true(fd_recv(pair[1], said, sizeof(said) - 1, &got, 1, &n_fds) > 0);
    assert_int_equal(n_fds, 1);
    assert_non_null(strstr(said, "getfd"));
    (void)close(got);
    (void)close(pair[0]);
    (void)close(pair[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_order_is_answered),
        cmocka_unit_test(test_who_lies_or_hangs_is_told_apart),
        cmocka_unit_test(test_a_descriptor_is_handed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
