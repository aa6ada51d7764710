/* SPDX-License-Identifier: Apache-2.0 */
/* A TCP side against a plain socket: ends one way and both, slow readers, resets from here and there, connections that
 * do not come about. */
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "egress/flow/side_internal.h"
#include "egress/flow/side_tcp.h"
#include "egress/flow/test_side.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static void reset_peer(int fd)
{
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger)), 0);
    assert_int_equal(close(fd), 0);
}

struct pair {
    struct test_rig rig;
    struct test_owner owner;
    int peer;
};

static void pair_open(struct pair *p)
{
    int fds[2];
    test_rig_open(&p->rig);
    test_tcp_pair(fds);
    test_owner_open(&p->owner, side_tcp_accept(&p->rig.loop, fds[0]));
    p->peer = fds[1];
}

static void pair_close(struct pair *p)
{
    test_owner_fini(&p->owner);
    (void)fd_close(p->peer);
    test_rig_close(&p->rig);
}

static bool owner_got_5(void *ctx)
{
    return buf_len(&((struct test_owner *)ctx)->got) >= 5;
}

static void test_both_ways_and_half_close(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    char c;
    assert_true(side_fd(p.owner.side) >= 0);
    test_peer_send(p.peer, "hello", 5);
    test_until(&p.rig, owner_got_5, &p.owner);
    assert_memory_equal(buf_data(&p.owner.got), "hello", 5);
    assert_false(p.owner.is_ended);

    assert_int_equal(side_write(p.owner.side, "answer", 6), 6);
    side_shut(p.owner.side);
    side_shut(p.owner.side);
    test_peer_expect(&p.rig, p.peer, STR("answer"));
    assert_int_equal(test_peer_wait(&p.rig, p.peer, &c, 1), 0);

    /* Our end is over, theirs is not. */
    test_peer_send(p.peer, " more", 5);
    assert_int_equal(shutdown(p.peer, SHUT_WR), 0);
    test_until_true(&p.rig, &p.owner.is_ended);
    assert_memory_equal(buf_data(&p.owner.got), "hello more", 10);
    assert_int_equal(side_read(p.owner.side, &c, 1), 0);
    assert_int_equal(side_bytes_in(p.owner.side), 10);
    assert_int_equal(p.owner.side->bytes_out, 6);
    test_turn(&p.rig);
    assert_false(p.owner.is_failed);
    assert_false(p.owner.is_ready);
    pair_close(&p);
}

static void test_peer_ends_first(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    assert_int_equal(shutdown(p.peer, SHUT_WR), 0);
    test_until_true(&p.rig, &p.owner.is_ended);
    unsigned told = p.owner.readable;
    test_turn(&p.rig);
    assert_int_equal(p.owner.readable, told); /* an end is said once */
    assert_int_equal(side_write(p.owner.side, "still", 5), 5);
    test_peer_expect(&p.rig, p.peer, STR("still"));
    pair_close(&p);
}

static void test_readable_is_said_once(void **state)
{
    (void)state;
    struct pair p;
    char c;
    pair_open(&p);
    p.owner.paused = true;
    test_peer_send(p.peer, "abc", 3);
    test_turn(&p.rig);
    assert_int_equal(p.owner.readable, 1);
    test_peer_send(p.peer, "def", 3);
    test_turn(&p.rig);
    assert_int_equal(p.owner.readable, 1);
    assert_int_equal(side_read(p.owner.side, &c, 1), 1);
    test_turn(&p.rig);
    assert_int_equal(p.owner.readable, 1);

    /* A new owner is told of what the old one left. */
    struct test_owner second;
    test_owner_open(&second, TAKE_PTR(p.owner.side));
    test_turn(&p.rig);
    assert_int_equal(second.readable, 1);
    assert_memory_equal(buf_data(&second.got), "bcdef", 5);
    side_set(second.side, NULL, NULL);
    test_peer_send(p.peer, "ghi", 3);
    test_turn(&p.rig);
    assert_int_equal(second.readable, 1);
    side_set(second.side, &test_owner_ops, &second);
    test_turn(&p.rig);
    assert_memory_equal(buf_data(&second.got), "bcdefghi", 8);
    test_owner_fini(&second);
    pair_close(&p);
}

static char pattern(size_t i)
{
    return (char)((i * 2654435761u) >> 13);
}

static void test_slow_reader(void **state)
{
    (void)state;
    enum { TOTAL = 24 * 1024 * 1024, STEP = 100 * 1000 };
    struct pair p;
    pair_open(&p);
    AUTO_FREE char *from = mem_alloc(STEP);
    AUTO_FREE char *to = mem_alloc(STEP);
    size_t sent = 0, got = 0;
    unsigned stops = 0;
    while (got < TOTAL) {
        while (sent < TOTAL) {
            size_t n = MIN((size_t)STEP, TOTAL - sent);
            for (size_t i = 0; i < n; i++)
                from[i] = pattern(sent + i);
            ssize_t took = side_write(p.owner.side, from, n);
            assert_true(took > 0 || took == -EAGAIN);
            sent += took > 0 ? (size_t)took : 0;
            if (took < (ssize_t)n)
                break;
        }
        if (sent < TOTAL) {
            stops++;
            p.owner.is_writable = false;
            test_turn(&p.rig);
            assert_false(p.owner.is_writable); /* nothing was read, so nothing fits */
        }
        while (got < TOTAL && (sent == TOTAL || !p.owner.is_writable)) {
            ssize_t n = test_peer_wait(&p.rig, p.peer, to, STEP);
            assert_true(n > 0);
            for (ssize_t i = 0; i < n; i++)
                assert_true(to[i] == pattern(got + (size_t)i));
            got += (size_t)n;
            (void)uv_run(&p.rig.loop, UV_RUN_NOWAIT);
        }
    }
    assert_int_equal(sent, TOTAL);
    assert_int_equal(p.owner.side->bytes_out, TOTAL);
    assert_true(stops > 0);
    assert_int_equal(p.owner.writable, stops);
    pair_close(&p);
}

static void test_reset_by_us(void **state)
{
    (void)state;
    struct pair p;
    char c;
    pair_open(&p);
    side_reset(TAKE_PTR(p.owner.side));
    assert_int_equal(test_peer_wait(&p.rig, p.peer, &c, 1), -ECONNRESET);
    pair_close(&p);
}

static void test_reset_by_peer(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    test_peer_send(p.peer, "last words", 10);
    reset_peer(TAKE_FD(p.peer));
    test_until_true(&p.rig, &p.owner.is_failed);
    assert_memory_equal(buf_data(&p.owner.got), "last words", 10);
    assert_int_equal(p.owner.read_error, ECONNRESET);
    assert_int_equal(p.owner.err.errnum, ECONNRESET);
    assert_int_equal(side_write(p.owner.side, "x", 1), -ECONNRESET);
    assert_int_equal(side_read(p.owner.side, &(char){0}, 1), -ECONNRESET);
    test_turn(&p.rig);
    pair_close(&p);
}

/* What came before a reset can be read, even when a write has met the reset already. */
static void test_answer_before_reset(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    p.owner.paused = true;
    test_peer_send(p.peer, "413", 3);
    test_turn(&p.rig);
    reset_peer(TAKE_FD(p.peer));
    assert_true(side_write(p.owner.side, "body", 4) < 0);
    assert_true(side_write(p.owner.side, "body", 4) < 0);
    test_turn(&p.rig);
    assert_false(p.owner.is_failed);
    test_owner_read(&p.owner);
    assert_memory_equal(buf_data(&p.owner.got), "413", 3);
    assert_false(p.owner.is_ended); /* a reset is no end */
    assert_true(p.owner.read_error != 0);
    test_until_true(&p.rig, &p.owner.is_failed);
    pair_close(&p);
}

/* The peer has closed in good order and wants no more: it can only be known by writing. */
static void test_write_to_closed(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    (void)close(TAKE_FD(p.peer));
    test_until_true(&p.rig, &p.owner.is_ended);
    usec_t until = clock_mono() + 10 * USEC_PER_SEC;
    while (side_write(p.owner.side, "x", 1) >= 0 && clock_mono() < until)
        test_turn(&p.rig);
    test_until_true(&p.rig, &p.owner.is_failed);
    assert_true(p.owner.err.errnum == EPIPE || p.owner.err.errnum == ECONNRESET);
    pair_close(&p);
}

static void test_connect(void **state)
{
    (void)state;
    struct pair p;
    struct sockaddr_storage addr;
    test_rig_open(&p.rig);
    int listener = test_listen(8, &addr);
    struct test_owner o;
    test_owner_open(&o, NULL);
    o.side = side_tcp_connect(&p.rig.loop, (struct sockaddr *)&addr, 5000, &test_owner_ops, &o);
    assert_int_equal(side_write(o.side, "early", 5), -EAGAIN);
    assert_int_equal(side_read(o.side, &(char){0}, 1), -EAGAIN);
    assert_int_equal(side_fd(o.side), -1);
    assert_false(o.is_ready);
    test_until_true(&p.rig, &o.is_writable);
    assert_true(o.is_ready);
    assert_int_equal(side_write(o.side, "early", 5), 5);
    int fd = test_accept(listener);
    test_peer_expect(&p.rig, fd, STR("early"));
    int on = 0;
    assert_int_equal(getsockopt(side_fd(o.side), IPPROTO_TCP, TCP_NODELAY, &on, &(socklen_t){sizeof(on)}), 0);
    assert_int_not_equal(on, 0);
    assert_int_equal(getsockopt(side_fd(o.side), SOL_SOCKET, SO_KEEPALIVE, &on, &(socklen_t){sizeof(on)}), 0);
    assert_int_not_equal(on, 0);
    test_owner_fini(&o);
    (void)close(fd);

    /* An end that was asked for before there was a connection. */
    test_owner_open(&o, NULL);
    o.side = side_tcp_connect(&p.rig.loop, (struct sockaddr *)&addr, 5000, &test_owner_ops, &o);
    side_shut(o.side);
    test_until_true(&p.rig, &o.is_ready);
    fd = test_accept(listener);
    assert_int_equal(test_peer_wait(&p.rig, fd, &on, 1), 0);
    test_owner_fini(&o);
    (void)close(fd);
    (void)close(listener);
    test_rig_close(&p.rig);
}

static void test_connect_fails(void **state)
{
    (void)state;
    struct test_rig rig;
    struct sockaddr_storage addr;
    struct test_owner o;
    test_rig_open(&rig);
    (void)close(test_listen(1, &addr));

    test_owner_open(&o, NULL);
    o.side = side_tcp_connect(&rig.loop, (struct sockaddr *)&addr, 5000, &test_owner_ops, &o);
    assert_false(o.is_failed);
    test_until_true(&rig, &o.is_failed);
    char text[128];
    (void)snprintf(text, sizeof(text), "connect to 127.0.0.1:%u: Connection refused",
                   ntohs(((struct sockaddr_in *)&addr)->sin_port));
    assert_string_equal(o.err.msg, text);
    assert_int_equal(o.err.errnum, ECONNREFUSED);
    assert_false(o.is_ready);
    test_owner_fini(&o);

    /* What can't even be begun. */
    struct sockaddr_in6 bad = {
        .sin6_family = AF_INET6, .sin6_port = htons(443), .sin6_addr.s6_addr = {0xfe, 0x80, [15] = 1}};
    test_owner_open(&o, NULL);
    o.side = side_tcp_connect(&rig.loop, (struct sockaddr *)&bad, 5000, &test_owner_ops, &o);
    assert_false(o.is_failed);
    test_until_true(&rig, &o.is_failed);
    assert_true(str_starts(str_of(o.err.msg), STR("connect to [fe80::1]:443: ")));
    test_owner_fini(&o);

    /* Nobody answers: the backlog is full, so the kernel drops what comes. */
    int listener = test_listen(0, &addr), waiting[4];
    for (size_t i = 0; i < ARRAY_SIZE(waiting); i++) {
        waiting[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(waiting[i], (struct sockaddr *)&addr, sizeof(struct sockaddr_in));
    }
    test_owner_open(&o, NULL);
    o.side = side_tcp_connect(&rig.loop, (struct sockaddr *)&addr, 50, &test_owner_ops, &o);
    test_until_true(&rig, &o.is_failed);
    assert_int_equal(o.err.code, ERR_DEADLINE_EXCEEDED);
    assert_true(str_ends(str_of(o.err.msg), STR(": no answer within 50 ms")));
    test_owner_fini(&o);
    for (size_t i = 0; i < ARRAY_SIZE(waiting); i++)
        (void)close(waiting[i]);
    (void)close(listener);
    test_rig_close(&rig);
}

/* No descriptor to be had is told like any other failure; a bad one to accept too. */
static void test_no_descriptor(void **state)
{
    (void)state;
    struct test_rig rig;
    struct test_owner o;
    struct sockaddr_storage addr;
    test_rig_open(&rig);
    int listener = test_listen(1, &addr);
    struct rlimit old, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = (struct rlimit){.rlim_cur = 3, .rlim_max = old.rlim_max};
    test_owner_open(&o, NULL);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    o.side = side_tcp_connect(&rig.loop, (struct sockaddr *)&addr, 5000, &test_owner_ops, &o);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    test_until_true(&rig, &o.is_failed);
    assert_int_equal(o.err.errnum, EMFILE);
    test_owner_fini(&o);
    test_owner_open(&o, side_tcp_accept(&rig.loop, -1));
    test_until_true(&rig, &o.is_failed);
    assert_int_equal(o.err.errnum, EBADF);
    test_owner_fini(&o);
    (void)close(listener);
    test_rig_close(&rig);
}

static bool is_closed(void *ctx)
{
    return ((struct test_owner *)ctx)->side == NULL;
}

static void test_close_in_callbacks(void **state)
{
    (void)state;
    struct test_rig rig;
    struct test_owner o;
    struct sockaddr_storage addr;
    test_rig_open(&rig);
    int listener = test_listen(8, &addr);

    test_owner_open(&o, NULL); /* on_ready */
    o.close_when_told = true;
    o.side = side_tcp_connect(&rig.loop, (struct sockaddr *)&addr, 5000, &test_owner_ops, &o);
    (void)side_write(o.side, "x", 1);
    test_until(&rig, is_closed, &o);
    assert_true(o.is_ready);
    assert_false(o.is_writable);

    for (int i = 0; i < 4; i++) { /* on_readable; both; a reset with both waiting; a side nobody heard of */
        int fds[2];
        test_tcp_pair(fds);
        test_owner_open(&o, side_tcp_accept(&rig.loop, fds[0]));
        o.close_when_told = true;
        AUTO_FREE char *much = mem_zalloc(16u * 1024 * 1024);
        if (i >= 1)
            assert_true(side_write(o.side, much, 16u * 1024 * 1024) > 0);
        if (i < 3)
            test_peer_send(fds[1], "x", 1);
        if (i == 2)
            reset_peer(TAKE_FD(fds[1]));
        if (i == 3)
            side_close(TAKE_PTR(o.side));
        test_until(&rig, is_closed, &o);
        test_turn(&rig);
        (void)fd_close(fds[1]);
    }

    test_owner_open(&o, NULL); /* while connecting, and on_failed */
    o.side = side_tcp_connect(&rig.loop, (struct sockaddr *)&addr, 5000, &test_owner_ops, &o);
    test_owner_fini(&o);
    (void)close(listener);
    o.close_when_told = true;
    o.side = side_tcp_connect(&rig.loop, (struct sockaddr *)&addr, 5000, &test_owner_ops, &o);
    test_until(&rig, is_closed, &o);
    test_turn(&rig);
    side_close(NULL);
    side_reset(NULL);
    side_linger(NULL);
    test_rig_close(&rig);
}

static bool fd_is_gone(void *ctx)
{
    return fcntl(*(int *)ctx, F_GETFD) < 0;
}

/* A refusal reaches a client that is still sending: without lingering, what was not read would make the kernel reset
 * the connection. */
static void test_linger(void **state)
{
    (void)state;
    struct pair p;
    AUTO_FREE char *upload = mem_zalloc(300 * 1000);
    char c;
    pair_open(&p);
    int fd = side_fd(p.owner.side);
    p.owner.paused = true;
    test_peer_send(p.peer, upload, 100 * 1000);
    test_turn(&p.rig);
    assert_int_equal(side_write(p.owner.side, "403", 3), 3);
    side_linger(TAKE_PTR(p.owner.side));
    test_turn(&p.rig);
    test_peer_send(p.peer, upload, 300 * 1000);
    test_turn(&p.rig);
    test_peer_expect(&p.rig, p.peer, STR("403"));
    assert_int_equal(test_peer_wait(&p.rig, p.peer, &c, 1), 0);
    assert_false(fd_is_gone(&fd));
    assert_int_equal(shutdown(p.peer, SHUT_WR), 0);
    test_until(&p.rig, fd_is_gone, &fd);
    assert_int_equal(p.owner.readable, 1);
    pair_close(&p);

    /* It ends with a peer that never ends, and with one that is gone. */
    for (int i = 0; i < 2; i++) {
        pair_open(&p);
        fd = side_fd(p.owner.side);
        side_linger(TAKE_PTR(p.owner.side));
        if (i)
            reset_peer(TAKE_FD(p.peer));
        test_until(&p.rig, fd_is_gone, &fd);
        pair_close(&p);
    }
}

/* Open connections that nothing happens on cost their struct and nothing else. */
static void test_thousand(void **state)
{
    (void)state;
    enum { N = 1000, EACH = 2048 };
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    if (files.rlim_max < 3000) {
        print_message("at most %lu descriptors\n", (unsigned long)files.rlim_max);
        skip();
    }
    files.rlim_cur = MAX(files.rlim_cur, 3000u);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    struct test_rig rig;
    test_rig_open(&rig);
    static struct test_owner owners[N];
    static int peers[N];
    size_t before = test_heap_bytes();
    for (size_t i = 0; i < N; i++) {
        int fds[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
        test_owner_open(&owners[i], side_tcp_accept(&rig.loop, fds[0]));
        peers[i] = fds[1];
    }
    test_turn(&rig);
    assert_in_range(test_heap_bytes() - before, 1, N * EACH);
    for (size_t i = 0; i < N; i++)
        test_peer_send(peers[i], "hello", 5);
    for (size_t i = 0; i < N; i++)
        test_until(&rig, owner_got_5, &owners[i]);
    for (size_t i = 0; i < N; i++) {
        test_owner_fini(&owners[i]);
        (void)close(peers[i]);
    }
    test_rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_ways_and_half_close),
        cmocka_unit_test(test_peer_ends_first),
        cmocka_unit_test(test_readable_is_said_once),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_reset_by_us),
        cmocka_unit_test(test_reset_by_peer),
        cmocka_unit_test(test_answer_before_reset),
        cmocka_unit_test(test_write_to_closed),
        cmocka_unit_test(test_connect),
        cmocka_unit_test(test_connect_fails),
        cmocka_unit_test(test_no_descriptor),
        cmocka_unit_test(test_close_in_callbacks),
        cmocka_unit_test(test_linger),
        cmocka_unit_test(test_thousand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
