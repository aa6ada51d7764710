/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/packets.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

enum { MESSAGES = 64 };

static bool packets_test_on_message(void *ctx, json_t *message)
{
    (void)message;
    ++*(unsigned *)ctx;
    (void)usleep(1000);
    return true;
}

static void packets_test_on_lost(void *ctx, int error)
{
    (void)ctx;
    fail_msg("lost: %d", error);
}

/* Whoever sends what takes long to read keeps nothing else of the loop waiting for all of it. */
static void test_a_flood_has_its_turn(void **state)
{
    (void)state;
    static const struct packets_ops ops = {packets_test_on_message, packets_test_on_lost, NULL};
    uv_loop_t loop;
    struct packets p;
    unsigned seen = 0;
    int fds[2];
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    packets_init(&p, &loop, &ops, &seen);
    assert_int_equal(packets_attach(&p, fds[0]), 0);
    for (int i = 0; i < MESSAGES; i++)
        assert_int_equal(send(fds[1], "{}", 2, 0), 2);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    assert_in_range(seen, 1, MESSAGES / 4);
    while (seen < MESSAGES)
        (void)uv_run(&loop, UV_RUN_ONCE);
    packets_close(&p);
    while (uv_run(&loop, UV_RUN_ONCE))
        ;
    assert_int_equal(uv_loop_close(&loop), 0);
    (void)close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_flood_has_its_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
