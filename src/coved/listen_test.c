/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/mem.h"
#include "config/config.h"
#include "coved/listen.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const usec_t long_enough = 60 * USEC_PER_SEC;

/* An address that somebody listens at, and the config of a service that wants it, too. */
struct rig {
    char dir[32];
    struct config config;
    struct listeners listeners;
    struct err err;
    int taken;
    pid_t holder; /* 0: this process alone */
};

static int set_up(void **state)
{
    static struct rig r;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(at);
    r = (struct rig){.dir = "/tmp/cove-listen-XXXXXX", .listeners.local = LOCAL_SOCKET_NONE};
    assert_non_null(mkdtemp(r.dir));
    r.taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(r.taken >= 0);
    assert_int_equal(bind(r.taken, (const struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(r.taken, 1), 0);
    assert_int_equal(getsockname(r.taken, (struct sockaddr *)&at, &length), 0);
    r.config.run_dir = r.dir;
    r.config.n_listen = r.config.n_listen_tls = 1;
    r.config.listen[0] = (struct config_listen){.text = (char *)"it", .address_len = sizeof(at), .is_loopback = true};
    memcpy(&r.config.listen[0].address, &at, sizeof(at));
    r.config.listen_tls[0] = r.config.listen[0];
    *state = &r;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;
    int status;
    listen_close(&r->listeners);
    (void)fd_close(r->taken);
    if (r->holder)
        assert_int_equal(waitpid(r->holder, &status, 0), r->holder);
    return rmdir(r->dir);
}

/* A worker of a coved that was killed: it ends a moment after this has begun. */
static void leave_to_a_worker(struct rig *r)
{
    r->holder = fork();
    assert_true(r->holder >= 0);
    if (r->holder == 0) {
        (void)usleep(100 * 1000);
        _exit(0);
    }
    r->taken = fd_close(r->taken);
}

static void waits_for_who_is_about_to_leave(void **state)
{
    struct rig *r = *state;
    leave_to_a_worker(r);
    assert_int_equal(listen_open(&r->config, long_enough, NULL, &r->listeners, &r->err), 0);
    assert_true(r->listeners.n >= 2);
}

static void waits_with_tls_too(void **state)
{
    struct rig *r = *state;
    leave_to_a_worker(r);
    assert_int_equal(listen_open_tls(&r->config, long_enough, &r->listeners, &r->err), 0);
    assert_true(r->listeners.n >= 1 && r->listeners.at[0].is_tls);
    listen_close_tls(&r->listeners);
}

static void another_service_is_told(void **state)
{
    struct rig *r = *state;
    assert_int_equal(listen_open(&r->config, 50 * USEC_PER_MS, NULL, &r->listeners, &r->err), -1);
    assert_non_null(strstr(r->err.msg, "is another service there? set COVE_LISTEN)"));
    assert_int_equal(r->listeners.n, 0);
    assert_int_equal(listen_open_tls(&r->config, 0, &r->listeners, &r->err), -1);
    assert_non_null(strstr(r->err.msg, "is another service there? set COVE_LISTEN_TLS)"));
    assert_int_equal(r->listeners.n, 0);
}

/* Only an address that is taken becomes free by itself: this would not end in the test's time. */
static void nothing_else_is_waited_for(void **state)
{
    struct rig *r = *state;
    struct sockaddr_in *at = (struct sockaddr_in *)&r->config.listen[0].address;
    at->sin_addr.s_addr = htonl(0xcb007107); /* 203.0.113.7, which is no machine's */
    assert_int_equal(listen_open(&r->config, 3600 * USEC_PER_SEC, NULL, &r->listeners, &r->err), -1);
    assert_non_null(strstr(r->err.msg, "annot assign requested address"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(waits_for_who_is_about_to_leave, set_up, tear_down),
        cmocka_unit_test_setup_teardown(waits_with_tls_too, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_service_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_else_is_waited_for, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("listen", tests, NULL, NULL);
}
