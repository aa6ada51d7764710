/* SPDX-License-Identifier: Apache-2.0 */
/* TLS sides against each other: what is passed, what becomes of ends and of garbage. */
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "egress/flow/side_internal.h"
#include "egress/flow/side_tcp.h"
#include "egress/tls/test_both.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/tls1.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void test_both_ways_and_half_close(void **state)
{
    (void)state;
    struct both b;
    char c;
    both_open(&b);
    assert_true(str_eqc(side_tls_alpn(b.client.side), "h2"));
    assert_true(str_eqc(side_tls_alpn(b.server.side), "h2"));
    assert_int_equal(side_fd(b.client.side), -1);
    assert_int_equal(side_write(b.client.side, "question", 8), 8);
    both_expect(&b.tls.rig, &b.server, "question");
    side_shut(b.client.side);
    test_until_true(&b.tls.rig, &b.server.is_ended);
    assert_int_equal(side_write(b.server.side, "answer", 6), 6);
    both_expect(&b.tls.rig, &b.client, "answer");
    assert_false(b.client.is_ended);
    side_shut(b.server.side);
    test_until_true(&b.tls.rig, &b.client.is_ended);
    assert_int_equal(side_read(b.client.side, &c, 1), 0);
    assert_int_equal(b.client.side->bytes_out, 8);
    assert_int_equal(side_bytes_in(b.client.side), 6);
    test_turn(&b.tls.rig);
    assert_false(b.client.is_failed || b.server.is_failed);
    both_close(&b);
}

static void test_close_is_an_end(void **state)
{
    (void)state;
    struct both b;
    both_open(&b);
    assert_int_equal(side_write(b.server.side, "bye", 3), 3);
    side_close(TAKE_PTR(b.server.side));
    test_until_true(&b.tls.rig, &b.client.is_ended);
    assert_true(str_eqc(buf_str(&b.client.got), "bye"));
    both_close(&b);
    both_open(&b);
    side_reset(TAKE_PTR(b.server.side));
    test_until_true(&b.tls.rig, &b.client.is_failed);
    assert_int_equal(b.client.err.errnum, ECONNRESET);
    assert_false(b.client.is_ended);
    both_close(&b);
}

/* The peer says that it has ended and is gone when we write: that is told, although there is nothing left to read. */
static void test_gone_after_its_end(void **state)
{
    (void)state;
    struct test_tls t;
    struct test_owner o;
    struct test_ssl peer;
    int fds[2];
    test_tls_open(&t);
    for (int is_read_first = 0; is_read_first < 2; is_read_first++) {
        test_tcp_pair(fds);
        test_ssl_open(&peer, &t, fds[1], true, NULL);
        test_owner_open(&o, NULL);
        o.side = side_tls_server(side_tcp_accept(&t.rig.loop, fds[0]), t.sandbox, both_leaf(&t, NAME), STR_NULL,
                                 STR_NULL, TIMEOUT_MS, &test_owner_ops, &o);
        assert_true(test_ssl_handshake(&peer));
        test_until_true(&t.rig, &o.is_ready);
        test_turn(&t.rig);
        o.paused = true;
        assert_int_equal(SSL_shutdown(peer.ssl), 0);
        if (is_read_first) {
            test_turn(&t.rig);
            test_owner_read(&o);
            assert_true(o.is_ended);
        }
        assert_int_equal(
            setsockopt(fds[1], SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger)), 0);
        (void)close(TAKE_FD(peer.fd));
        for (int i = 0; i < 5; i++) {
            (void)side_write(o.side, "x", 1);
            test_turn(&t.rig);
        }
        if (!is_read_first)
            test_owner_read(&o);
        assert_int_equal(o.is_ended, is_read_first);
        test_until_true(&t.rig, &o.is_failed);
        test_owner_fini(&o);
        test_ssl_fini(&peer);
    }
    test_tls_close(&t);
}

static char pattern(size_t i)
{
    return (char)((i * 2654435761u) >> 13);
}

/* Large amounts, and a reader that stops: the writer is held up, with a bounded amount under way, and what arrives is
 * what was sent, although the writer does not come back with what it tried before. */
static void test_bulk_and_slow_reader(void **state)
{
    (void)state;
    enum { TOTAL = 20 * 1000 * 1000, STEP = 150 * 1000 };
    struct both b;
    both_open(&b);
    AUTO_FREE char *from = mem_alloc(STEP);
    b.client.paused = true;
    size_t sent = 0;
    unsigned stops = 0;
    while (sent < TOTAL) {
        size_t n = MIN((size_t)STEP - (sent % 1000), TOTAL - sent);
        for (size_t i = 0; i < n; i++)
            from[i] = pattern(sent + i);
        b.server.is_writable = false;
        ssize_t took = side_write(b.server.side, from, n);
        assert_true(took > 0 || took == -EAGAIN);
        sent += took > 0 ? (size_t)took : 0;
        if (took == (ssize_t)n)
            continue;
        stops++;
        test_turn(&b.tls.rig);
        if (b.server.is_writable)
            continue;
        assert_int_equal(side_write(b.server.side, from, n), -EAGAIN);
        assert_true(b.client.readable <= stops + 1); /* once it was ready, and once each time */
        test_owner_read(&b.client);
        test_until_true(&b.tls.rig, &b.server.is_writable);
    }
    b.client.paused = false;
    test_owner_read(&b.client);
    test_until(&b.tls.rig, both_has_amount, &(struct both_amount){&b.client, TOTAL});
    assert_int_equal(buf_len(&b.client.got), TOTAL);
    for (size_t i = 0; i < TOTAL; i++)
        if (buf_data(&b.client.got)[i] != pattern(i))
            fail_msg("byte %zu is another one", i);
    assert_true(stops > 3);
    both_close(&b);
}

/* What waits inside OpenSSL is told to a new owner, although the socket has nothing more. */
static void test_new_owner(void **state)
{
    (void)state;
    struct both b;
    char c;
    both_open(&b);
    test_turn(&b.tls.rig);
    b.client.paused = true;
    b.client.readable = 0;
    assert_int_equal(side_write(b.server.side, "abcdef", 6), 6);
    test_turn(&b.tls.rig);
    assert_int_equal(b.client.readable, 1);
    assert_int_equal(side_read(b.client.side, &c, 1), 1);
    struct test_owner second;
    test_owner_open(&second, TAKE_PTR(b.client.side));
    both_expect(&b.tls.rig, &second, "bcdef");
    side_shut(b.server.side);
    test_until_true(&b.tls.rig, &second.is_ended);
    struct test_owner third; /* and of an end that was read already */
    test_owner_open(&third, TAKE_PTR(second.side));
    test_until_true(&b.tls.rig, &third.is_ended);
    test_owner_fini(&second);
    test_owner_fini(&third);
    both_close(&b);
}

/* A TCP end without close_notify is no end. */
static void test_truncation(void **state)
{
    (void)state;
    struct test_tls t;
    struct test_owner o;
    struct test_ssl peer;
    test_tls_open(&t);
    for (int i = 0; i < 2; i++) {
        int fds[2];
        test_tcp_pair(fds);
        test_ssl_open(&peer, &t, fds[1], i == 0, i ? both_leaf(&t, NAME) : NULL);
        test_owner_open(&o, NULL);
        struct side *tcp = side_tcp_accept(&t.rig.loop, fds[0]);
        if (i)
            o.side = side_tls_client(tcp, t.world, NAME, STR_NULL, TIMEOUT_MS, &test_owner_ops, &o);
        else
            o.side = side_tls_server(tcp, t.sandbox, both_leaf(&t, NAME), STR_NULL, STR_NULL, TIMEOUT_MS,
                                     &test_owner_ops, &o);
        assert_true(test_ssl_handshake(&peer));
        test_until_true(&t.rig, &o.is_ready);
        test_ssl_send(&peer, "half of it", 10);
        assert_int_equal(shutdown(fds[1], SHUT_WR), 0);
        test_until_true(&t.rig, &o.is_failed);
        assert_true(str_eqc(buf_str(&o.got), "half of it"));
        assert_false(o.is_ended);
        assert_int_equal(o.read_error, ECONNABORTED);
        assert_int_equal(o.err.errnum, ECONNABORTED);
        test_owner_fini(&o);
        test_ssl_fini(&peer);
    }
    test_tls_close(&t);
}

static void test_ends_during_handshake(void **state)
{
    (void)state;
    struct test_tls t;
    struct test_owner o;
    char hello[4096];
    test_tls_open(&t);
    for (int i = 0; i < 4; i++) {
        int fds[2];
        test_tcp_pair(fds);
        test_owner_open(&o, NULL);
        struct side *tcp = side_tcp_accept(&t.rig.loop, fds[0]);
        if (i % 2)
            o.side = side_tls_client(tcp, t.world, NAME, STR_NULL, TIMEOUT_MS, &test_owner_ops, &o);
        else
            o.side = side_tls_server(tcp, t.sandbox, both_leaf(&t, NAME), STR_NULL, STR_NULL, TIMEOUT_MS,
                                     &test_owner_ops, &o);
        if (i % 2)
            assert_true(test_peer_wait(&t.rig, fds[1], hello, sizeof(hello)) > 0);
        if (i >= 2) /* a close_notify instead of a hello */
            test_peer_send(fds[1], "\x15\x03\x03\x00\x02\x01\x00", 7);
        (void)shutdown(fds[1], SHUT_WR);
        test_until_true(&t.rig, &o.is_failed);
        assert_true(str_starts(str_of(o.err.msg), STR("TLS handshake: ")));
        assert_false(o.is_ready);
        test_owner_fini(&o);
        (void)close(fds[1]);
    }
    test_tls_close(&t);
}

static void test_garbage(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
    } garbage[] = {
        {"HTTP/1.1 400 Bad Request\r\n\r\n", 28},
        {"\x16\x03\x01\xff\xff\x01\x00\x00\x00", 9},
        {"\x16\x03\x03\x00\x04\x01\x00\x00\x01x", 9},
        {"\x17\x03\x03\x00\x05hello", 10},
        {"\x14\x03\x03\x00\x01\x01\x14\x03\x03\x00\x01\x01", 12},
        {"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 36},
        {"\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10\x00\x00\x35\x00\x00\x2f", 17},
    };
    struct test_tls t;
    struct test_owner o;
    test_tls_open(&t);
    for (size_t i = 0; i < 2 * ARRAY_SIZE(garbage); i++) {
        int fds[2];
        struct str bytes = str_n(garbage[i / 2].bytes, garbage[i / 2].n);
        test_tcp_pair(fds);
        test_owner_open(&o, NULL);
        struct side *tcp = side_tcp_accept(&t.rig.loop, fds[0]);
        if (i % 2) {
            o.side = side_tls_client(tcp, t.world, NAME, STR_NULL, TIMEOUT_MS, &test_owner_ops, &o);
            test_peer_send(fds[1], bytes.p, bytes.n);
        } else { /* half of it was read before */
            o.side = side_tls_server(tcp, t.sandbox, both_leaf(&t, NAME), str_n(bytes.p, bytes.n / 2), STR_NULL,
                                     TIMEOUT_MS, &test_owner_ops, &o);
            test_peer_send(fds[1], bytes.p + bytes.n / 2, bytes.n - bytes.n / 2);
        }
        test_turn(&t.rig);
        (void)shutdown(fds[1], SHUT_WR); /* for what could be the beginning of something */
        test_until_true(&t.rig, &o.is_failed);
        assert_true(str_starts(str_of(o.err.msg), STR("TLS handshake: ")));
        assert_true(side_read(o.side, &(char){0}, 1) < 0);
        test_owner_fini(&o);
        (void)close(fds[1]);
    }
    test_tls_close(&t);
}

/* The ClientHello in any two pieces, the first of them read before there was a TLS side; and byte by byte. */
static void test_split_hello(void **state)
{
    (void)state;
    struct test_tls t;
    test_tls_open(&t);
    size_t size = 0;
    for (size_t at = 0; at == 0 || at <= size; at += at < 12 || at + 12 > size ? 1 : 37) {
        struct test_ssl peer;
        struct test_owner o;
        char hello[4096];
        int fds[2], between[2];
        test_tcp_pair(fds);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, between), 0);
        test_ssl_open(&peer, &t, between[0], true, NULL);
        assert_int_equal(SSL_set_tlsext_host_name(peer.ssl, NAME "."), 1);
        assert_int_equal(SSL_do_handshake(peer.ssl), -1);
        size = (size_t)recv(between[1], hello, sizeof(hello), 0);
        assert_in_range(size, 100, sizeof(hello));
        assert_int_equal(dup3(fds[1], between[0], O_CLOEXEC), between[0]); /* from here on it talks to the side */
        test_owner_open(&o, NULL);
        o.side = side_tls_server(side_tcp_accept(&t.rig.loop, fds[0]), t.sandbox, both_leaf(&t, NAME), str_n(hello, at),
                                 STR_NULL, TIMEOUT_MS, &test_owner_ops, &o);
        for (size_t i = at; i < size; i += at == 0 ? 1 : size) {
            test_peer_send(fds[1], hello + i, at == 0 ? 1 : size - i);
            test_turn(&t.rig);
        }
        assert_true(test_ssl_handshake(&peer));
        test_until_true(&t.rig, &o.is_ready);
        test_ssl_send(&peer, "x", 1);
        both_expect(&t.rig, &o, "x");
        test_owner_fini(&o);
        test_ssl_fini(&peer);
        (void)close(fds[1]);
        (void)close(between[1]);
    }
    test_tls_close(&t);
}

/* Last words of more than the socket takes arrive whole, with their end. */
static void test_linger(void **state)
{
    (void)state;
    static void (*const ways[])(struct side *) = {side_linger, side_close};
    AUTO_FREE char *much = mem_zalloc(8u * 1024 * 1024);
    for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
        struct both b;
        both_open(&b);
        b.client.paused = true;
        ssize_t took = side_write(b.server.side, much, 8u * 1024 * 1024);
        assert_in_range(took, 1, 8u * 1024 * 1024 - 1);
        ways[i](TAKE_PTR(b.server.side));
        test_turn(&b.tls.rig);
        b.client.paused = false;
        test_owner_read(&b.client);
        test_until_true(&b.tls.rig, &b.client.is_ended);
        assert_int_equal(buf_len(&b.client.got), took);
        test_owner_fini(&b.client);
        test_until_alone(&b.tls.rig);
        both_close(&b);
    }
}

static bool is_closed(void *ctx)
{
    return ((struct test_owner *)ctx)->side == NULL;
}

static void test_close_in_callbacks(void **state)
{
    (void)state;
    struct both b;
    test_tls_open(&b.tls);
    for (int i = 0; i < 2; i++) { /* on_ready; on_failed */
        both_start(&b, both_leaf(&b.tls, NAME), i ? "other.example" : NAME, STR_NULL, STR_NULL);
        b.client.close_when_told = b.server.close_when_told = true;
        test_until(&b.tls.rig, is_closed, &b.client);
        test_until(&b.tls.rig, is_closed, &b.server);
        both_fini(&b);
    }
    both_start(&b, both_leaf(&b.tls, NAME), NAME, STR_NULL, STR_NULL); /* at once, and half-way */
    side_close(TAKE_PTR(b.client.side));
    test_turn(&b.tls.rig);
    both_fini(&b);
    both_start(&b, both_leaf(&b.tls, NAME), NAME, STR_NULL, STR_NULL); /* on_readable */
    test_until(&b.tls.rig, both_are_ready, &b);
    b.client.close_when_told = true;
    assert_int_equal(side_write(b.server.side, "x", 1), 1);
    test_until(&b.tls.rig, is_closed, &b.client);
    both_fini(&b);
    test_tls_close(&b.tls);
}

/* What an open connection costs: TLS on both of its ends, after data went both ways. */
static void test_memory(void **state)
{
    (void)state;
    enum { N = 100, EACH = 64 * 1024 };
    struct test_tls t;
    static struct both each[N];
    test_tls_open(&t);
    size_t before = 0;
    for (size_t i = 0; i < N + 1; i++) {
        struct both *b = &each[i ? i - 1 : 0];
        b->tls = t;
        b->tls.rig.guard = t.rig.guard;
        int fds[2];
        test_tcp_pair(fds);
        test_owner_open(&b->client, NULL);
        test_owner_open(&b->server, NULL);
        b->client.side = side_tls_client(side_tcp_accept(&t.rig.loop, fds[0]), t.world, NAME, STR_NULL, TIMEOUT_MS,
                                         &test_owner_ops, &b->client);
        b->server.side = side_tls_server(side_tcp_accept(&t.rig.loop, fds[1]), t.sandbox, both_leaf(&t, NAME), STR_NULL,
                                         STR_NULL, TIMEOUT_MS, &test_owner_ops, &b->server);
        test_until(&t.rig, both_are_ready, b);
        assert_int_equal(side_write(b->client.side, "ping", 4), 4);
        both_expect(&t.rig, &b->server, "ping");
        assert_int_equal(side_write(b->server.side, "pong", 4), 4);
        both_expect(&t.rig, &b->client, "pong");
        buf_fini(&b->client.got);
        buf_fini(&b->server.got);
        if (i == 0) { /* what the first one alone makes OpenSSL allocate */
            both_fini(b);
            test_turn(&t.rig);
            before = test_heap_bytes();
        }
    }
    size_t cost = (test_heap_bytes() - before) / N;
    print_message("a connection with TLS on both sides: %zu bytes\n", cost);
    assert_in_range(cost, 1, EACH);
    for (size_t i = 0; i < N; i++)
        both_fini(&each[i]);
    test_tls_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_ways_and_half_close),
        cmocka_unit_test(test_close_is_an_end),
        cmocka_unit_test(test_gone_after_its_end),
        cmocka_unit_test(test_bulk_and_slow_reader),
        cmocka_unit_test(test_new_owner),
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_ends_during_handshake),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_split_hello),
        cmocka_unit_test(test_linger),
        cmocka_unit_test(test_close_in_callbacks),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
