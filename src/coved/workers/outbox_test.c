/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "coved/workers/outbox.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { MANY = 70000, SIZE = 168 };

static void make_pair(int pair[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
}

/* Reads one message; returns its number, or -1 when there is none. */
static int take(int sock, bool has_fd)
{
    char message[SIZE];
    int number, fd = -1;
    size_t n_fds = 0;
    ssize_t n = fd_recv(sock, message, sizeof(message), &fd, 1, &n_fds);
    if (n == -EAGAIN)
        return -1;
    assert_int_equal(n, SIZE);
    assert_int_equal(n_fds, has_fd);
    if (has_fd)
        assert_int_equal(fd_close(fd), -1);
    memcpy(&number, message, sizeof(number));
    return number;
}

static int put(struct outbox *o, int sock, int number, int fd)
{
    char message[SIZE] = {0};
    memcpy(message, &number, sizeof(number));
    return outbox_send(o, sock, message, sizeof(message), &fd, fd >= 0);
}

static void all_of_it_arrives_in_order(void **state UNUSED)
{
    struct outbox o;
    int pair[2], next = 0, got;
    outbox_init(&o);
    make_pair(pair);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(put(&o, pair[0], i, -1), 0);
    assert_false(outbox_is_empty(&o));
    while (next < MANY) {
        while ((got = take(pair[1], false)) >= 0)
            assert_int_equal(got, next++);
        assert_int_equal(outbox_flush(&o, pair[0]), 0);
    }
    assert_true(outbox_is_empty(&o));
    assert_int_equal(o.bytes, 0);
    (void)fd_close(pair[0]);
    (void)fd_close(pair[1]);
}

/* The sender's own may be closed as soon as it was given. */
static void descriptors_wait_too(void **state UNUSED)
{
    struct outbox o;
    int pair[2], n = 0, got;
    outbox_init(&o);
    make_pair(pair);
    while (outbox_is_empty(&o)) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_int_equal(put(&o, pair[0], n++, fd), 0);
        (void)fd_close(fd);
    }
    for (int i = 0; i < n;) {
        while ((got = take(pair[1], true)) >= 0)
            assert_int_equal(got, i++);
        assert_int_equal(outbox_flush(&o, pair[0]), 0);
    }
    (void)fd_close(pair[0]);
    (void)fd_close(pair[1]);
}

static void there_is_an_end(void **state UNUSED)
{
    struct outbox o;
    int pair[2], r = 0, last_before = dup(0);
    static char large[1 << 16];
    (void)fd_close(last_before);
    outbox_init(&o);
    make_pair(pair);
    for (size_t i = 0; r == 0 && i < OUTBOX_MAX / sizeof(large) + 64; i++)
        r = outbox_send(&o, pair[0], large, sizeof(large), pair, 1);
    assert_int_equal(r, -ENOBUFS);
    assert_true(o.bytes <= OUTBOX_MAX && o.bytes > OUTBOX_MAX - 2 * sizeof(large));
    outbox_clear(&o);
    assert_int_equal(o.bytes, 0);
    (void)fd_close(pair[1]);
    r = put(&o, pair[0], 1, -1);
    assert_true(r == -EPIPE || r == -ECONNRESET);
    assert_true(outbox_is_empty(&o));
    (void)fd_close(pair[0]);
    int last = dup(0);
    assert_int_equal(last, last_before); /* none is left open */
    (void)fd_close(last);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_of_it_arrives_in_order),
        cmocka_unit_test(descriptors_wait_too),
        cmocka_unit_test(there_is_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
