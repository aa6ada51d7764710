/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/fd.h"
#include "coved/foreign.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

enum { LINGER_S = 3600 };

/* Of a connection: one with more under way than the other takes, which is to be closed within an hour. */
static void make_slow(int *ret_slow, int *ret_peer)
{
    static const struct linger linger = {.l_onoff = 1, .l_linger = LINGER_S};
    static const char zeros[65536];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(at);
    AUTO_CLOSE int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &n), 0);
    int slow = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(slow, (struct sockaddr *)&at, n), 0);
    *ret_peer = accept4(listener, (struct sockaddr *)&at, &n, SOCK_CLOEXEC);
    assert_true(*ret_peer >= 0);
    while (send(slow, zeros, sizeof(zeros), MSG_DONTWAIT) > 0)
        ;
    assert_int_equal(setsockopt(slow, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
    *ret_slow = slow;
}

static void what_does_not_want_to_be_closed_is_cut_short(void **state UNUSED)
{
    int slow, peer;
    make_slow(&slow, &peer);
    unsigned before = foreign_cuts();
    assert_int_equal(foreign_close(slow), -1);
    assert_int_equal(foreign_cuts(), before + 1);
    assert_int_equal(fcntl(slow, F_GETFD), -1);
    (void)fd_close(peer);
}

static void so_are_many_that_were_left_in_a_socket(void **state UNUSED)
{
    int pair[2], slow[8], peer[8];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    for (size_t i = 0; i < ARRAY_SIZE(slow); i++) {
        make_slow(&slow[i], &peer[i]);
        assert_int_equal(fd_send(pair[0], "x", 1, &slow[i], 1), 0);
        (void)fd_close(slow[i]); /* not the last one */
    }
    unsigned before = foreign_cuts();
    assert_int_equal(foreign_close(pair[1]), -1);
    assert_int_equal(foreign_cuts(), before + 1);
    (void)fd_close(pair[0]);
    for (size_t i = 0; i < ARRAY_SIZE(peer); i++)
        (void)fd_close(peer[i]);
}

static void others_are_just_closed(void **state UNUSED)
{
    struct itimerval left;
    int p[2];
    unsigned before = foreign_cuts();
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    assert_int_equal(foreign_close(p[0]), -1);
    assert_int_equal(foreign_close(p[1]), -1);
    assert_int_equal(foreign_close(-1), -1);
    assert_int_equal(foreign_cuts(), before);
    assert_int_equal(getitimer(ITIMER_REAL, &left), 0);
    assert_int_equal(left.it_value.tv_sec + left.it_value.tv_usec, 0);
}

/* On a busy machine, in the middle of it. */
static void who_does_not_get_the_processor_has_not_waited(void **state UNUSED)
{
    unsigned before = foreign_cuts();
    foreign_begin();
    for (usec_t end = clock_mono() + 200 * USEC_PER_MS; clock_mono() < end;)
        ;
    foreign_end();
    assert_int_equal(foreign_cuts(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_want_to_be_closed_is_cut_short),
        cmocka_unit_test(so_are_many_that_were_left_in_a_socket),
        cmocka_unit_test(others_are_just_closed),
        cmocka_unit_test(who_does_not_get_the_processor_has_not_waited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
