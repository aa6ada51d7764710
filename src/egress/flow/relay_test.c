/* SPDX-License-Identifier: Apache-2.0 */
/* What two peers of a relay see of each other: all bytes in order, each end, each failure, and no more speed than the
 * slower one takes. */
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "egress/flow/relay.h"
#include "egress/flow/side_internal.h"
#include "egress/flow/side_tcp.h"
#include "egress/tls/side_tls.h"
#include "egress/tls/test_tls.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

struct relayed {
    struct test_rig *rig;
    struct relay_pool *pool;
    struct relay *relay;
    int a, b; /* the peers' ends */
    bool is_ended, close_in_end;
    enum relay_end how;
    struct err err;
    uint64_t ab, ba;
};

static void on_end(void *ctx, enum relay_end how, const struct err *err)
{
    struct relayed *r = ctx;
    assert_false(r->is_ended);
    r->is_ended = true;
    r->how = how;
    assert_int_equal(err == NULL, how == RELAY_DONE);
    if (err)
        r->err = *err;
    relay_counts(r->relay, &r->ab, &r->ba);
    if (r->close_in_end)
        relay_close(TAKE_PTR(r->relay));
}

static void start(struct relayed *r, struct test_rig *rig, struct side *a, struct side *b, struct str first,
                  unsigned idle_ms)
{
    r->rig = rig;
    r->pool = relay_pool_new();
    r->relay = relay_start(r->pool, &rig->loop, a, b, first, idle_ms, on_end, r);
}

static void open_tcp(struct relayed *r, struct test_rig *rig, struct str first, unsigned idle_ms)
{
    int a[2], b[2];
    *r = (struct relayed){0};
    test_tcp_pair(a);
    test_tcp_pair(b);
    r->a = a[0];
    r->b = b[0];
    start(r, rig, side_tcp_accept(&rig->loop, a[1]), side_tcp_accept(&rig->loop, b[1]), first, idle_ms);
}

static void fini(struct relayed *r)
{
    relay_close(TAKE_PTR(r->relay));
    relay_pool_free(TAKE_PTR(r->pool));
    (void)fd_close(TAKE_FD(r->a));
    (void)fd_close(TAKE_FD(r->b));
}

static void expect_end_of_file(struct relayed *r, int fd)
{
    char c;
    assert_int_equal(test_peer_wait(r->rig, fd, &c, 1), 0);
}

static void test_both_ways_and_half_close(void **state)
{
    (void)state;
    struct test_rig rig;
    struct relayed r;
    test_rig_open(&rig);
    for (int i = 0; i < 2; i++) {
        open_tcp(&r, &rig, STR("first "), 0);
        int near = i ? r.b : r.a, far = i ? r.a : r.b;
        test_peer_send(r.a, "question", 8);
        test_peer_expect(&rig, r.b, STR("first question"));
        test_peer_send(r.b, "answer", 6);
        test_peer_expect(&rig, r.a, STR("answer"));
        assert_int_equal(shutdown(near, SHUT_WR), 0);
        expect_end_of_file(&r, far);
        test_turn(&rig);
        assert_false(r.is_ended);
        test_peer_send(far, "afterwards", 10);
        test_peer_expect(&rig, near, STR("afterwards"));
        r.close_in_end = i;
        assert_int_equal(shutdown(far, SHUT_WR), 0);
        expect_end_of_file(&r, near);
        test_until_true(&rig, &r.is_ended);
        assert_int_equal(r.how, RELAY_DONE);
        assert_int_equal(r.ab, 14 + (i ? 10 : 0));
        assert_int_equal(r.ba, 6 + (i ? 0 : 10));
        fini(&r);
    }
    test_rig_close(&rig);
}

static char pattern(size_t i)
{
    return (char)((i * 2654435761u) >> 13);
}

struct bulk {
    int from, to;
    size_t sent, got, total;
    size_t step_out, step_in;
};

enum { BULK_MAX = 6000007 };

static const char *bulk_bytes(void)
{
    static char bytes[BULK_MAX];
    for (size_t i = 0; !bytes[BULK_MAX - 1] && i < BULK_MAX; i++)
        bytes[i] = pattern(i);
    return bytes;
}

/* Moves what can be moved now, in steps of those sizes; checks each byte. */
static void bulk_step(struct bulk *k)
{
    const char *bytes = bulk_bytes();
    char part[200 * 1000];
    size_t n = MIN(MIN(k->step_out, sizeof(part)), k->total - k->sent);
    ssize_t sent = n ? send(k->from, bytes + k->sent, n, MSG_NOSIGNAL) : 0;
    if (sent > 0)
        k->sent += (size_t)sent;
    else if (n)
        assert_int_equal(errno, EAGAIN);
    ssize_t got = recv(k->to, part, MIN(k->step_in, sizeof(part)), 0);
    if (got < 0)
        assert_int_equal(errno, EAGAIN);
    if (got > 0)
        assert_memory_equal(part, bytes + k->got, (size_t)got);
    k->got += got > 0 ? (size_t)got : 0;
}

static void bulk_run(struct relayed *r, struct bulk *each, size_t n)
{
    usec_t until = clock_mono() + 40 * USEC_PER_SEC;
    for (;;) {
        bool is_done = true;
        for (size_t i = 0; i < n; i++) {
            bulk_step(&each[i]);
            is_done &= each[i].got == each[i].total;
        }
        if (is_done)
            return;
        (void)uv_run(&r->rig->loop, UV_RUN_NOWAIT);
        if (clock_mono() > until)
            fail_msg("got %zu of %zu", each[0].got, each[0].total);
    }
}

static size_t n_pipes(void)
{
    char path[64], to[64];
    size_t n = 0;
    for (int fd = 0; fd < 128; fd++) {
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        ssize_t len = readlink(path, to, sizeof(to) - 1);
        n += len > 5 && memcmp(to, "pipe:", 5) == 0;
    }
    return n;
}

/* Pieces of all sizes, a fast direction beside a slow one, switching between copying and pipes. */
static void test_bulk(void **state)
{
    (void)state;
    static const size_t steps[][2] = {{200000, 200000}, {1000, 200000}, {200000, 30000}, {70000, 1500}, {16384, 65536}};
    struct test_rig rig;
    struct relayed r;
    test_rig_open(&rig);
    size_t pipes = n_pipes();
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        open_tcp(&r, &rig, STR_NULL, 0);
        const size_t *other = steps[(i + 1) % ARRAY_SIZE(steps)];
        struct bulk each[2] = {
            {.from = r.a, .to = r.b, .total = 6000001, .step_out = steps[i][0], .step_in = steps[i][1]},
            {.from = r.b, .to = r.a, .total = BULK_MAX, .step_out = other[0], .step_in = other[1]},
        };
        bulk_run(&r, each, 2);
        test_turn(&rig);
        if (i == 0)
            assert_true(n_pipes() > pipes); /* it did go that way */
        relay_counts(r.relay, &r.ab, &r.ba);
        assert_int_equal(r.ab, 6000001);
        assert_int_equal(r.ba, BULK_MAX);
        (void)shutdown(r.a, SHUT_WR);
        (void)shutdown(r.b, SHUT_WR);
        test_until_true(&rig, &r.is_ended);
        assert_int_equal(r.how, RELAY_DONE);
        fini(&r);
        assert_int_equal(n_pipes(), pipes);
    }
    test_rig_close(&rig);
}

/* Who does not read holds up the sender, and us with no more than a pipe; who ends then ends behind what is under
 * way. */
static void test_slow_reader(void **state)
{
    (void)state;
    struct test_rig rig;
    struct relayed r;
    test_rig_open(&rig);
    open_tcp(&r, &rig, STR_NULL, 0);
    size_t before = test_heap_bytes();
    AUTO_FREE char *part = mem_alloc(100000);
    size_t sent = 0;
    for (int quiet = 0; quiet < 50;) {
        for (size_t i = 0; i < 100000; i++)
            part[i] = pattern(sent + i);
        ssize_t n = send(r.a, part, 100000, MSG_NOSIGNAL);
        sent += n > 0 ? (size_t)n : 0;
        quiet = n > 0 ? 0 : quiet + 1;
        (void)uv_run(&rig.loop, UV_RUN_NOWAIT);
    }
    assert_in_range(sent, 100000, 64u * 1024 * 1024);
    assert_in_range(test_heap_bytes(), 0, before + 100000 + SIDE_BUFFER + 4096);
    /* The other way is free. */
    test_peer_send(r.b, "hello", 5);
    test_peer_expect(&rig, r.a, STR("hello"));
    assert_int_equal(shutdown(r.a, SHUT_WR), 0);
    test_turn(&rig);
    size_t got = 0;
    ssize_t n;
    while ((n = test_peer_wait(&rig, r.b, part, 100000)) > 0) {
        for (ssize_t i = 0; i < n; i++)
            assert_true(part[i] == pattern(got + (size_t)i));
        got += (size_t)n;
    }
    assert_int_equal(n, 0);
    assert_int_equal(got, sent);
    assert_false(r.is_ended);
    fini(&r);
    test_rig_close(&rig);
}

/* Given up while a pipe is full: nobody gets those bytes later. */
static void test_pipes_are_not_mixed(void **state)
{
    (void)state;
    struct test_rig rig;
    struct relayed r;
    struct relay_pool *pool = relay_pool_new();
    AUTO_FREE char *zeros = mem_zalloc(500000);
    test_rig_open(&rig);
    for (int round = 0; round < 3; round++) {
        open_tcp(&r, &rig, STR_NULL, 0);
        for (int quiet = 0; quiet < 20;) {
            ssize_t n = send(r.a, zeros, 500000, MSG_NOSIGNAL);
            quiet = n > 0 ? 0 : quiet + 1;
            (void)uv_run(&rig.loop, UV_RUN_NOWAIT);
        }
        relay_close(TAKE_PTR(r.relay));
        int a[2], b[2];
        test_tcp_pair(a);
        test_tcp_pair(b);
        (void)fd_close(r.a);
        (void)fd_close(r.b);
        r.a = a[0];
        r.b = b[0];
        r.relay = relay_start(r.pool, &rig.loop, side_tcp_accept(&rig.loop, a[1]), side_tcp_accept(&rig.loop, b[1]),
                              STR_NULL, 0, on_end, &r);
        struct bulk k = {.from = r.a, .to = r.b, .total = 3000000, .step_out = 200000, .step_in = 200000};
        bulk_run(&r, &k, 1);
        fini(&r);
    }
    relay_pool_free(pool);
    relay_pool_free(NULL);
    test_rig_close(&rig);
}

static void reset_peer(int fd)
{
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger)), 0);
    assert_int_equal(close(fd), 0);
}

static void test_reset_is_passed_on(void **state)
{
    (void)state;
    struct test_rig rig;
    struct relayed r;
    char c;
    test_rig_open(&rig);
    for (int i = 0; i < 2; i++) {
        open_tcp(&r, &rig, STR_NULL, 0);
        test_peer_send(r.a, "x", 1);
        test_peer_expect(&rig, r.b, STR("x"));
        reset_peer(i ? TAKE_FD(r.b) : TAKE_FD(r.a));
        test_until_true(&rig, &r.is_ended);
        assert_int_equal(r.how, i ? RELAY_B_FAILED : RELAY_A_FAILED);
        assert_int_equal(r.err.errnum, ECONNRESET);
        assert_int_equal(r.ab, 1);
        relay_close(TAKE_PTR(r.relay));
        assert_int_equal(test_peer_wait(&rig, i ? r.a : r.b, &c, 1), -ECONNRESET);
        fini(&r);
    }

    /* The policy changed: cut from here, both see a failure. */
    open_tcp(&r, &rig, STR_NULL, 0);
    test_turn(&rig);
    relay_close(TAKE_PTR(r.relay));
    assert_int_equal(test_peer_wait(&rig, r.a, &c, 1), -ECONNRESET);
    assert_int_equal(test_peer_wait(&rig, r.b, &c, 1), -ECONNRESET);
    assert_false(r.is_ended);
    fini(&r);
    test_rig_close(&rig);
}

/* An answer that comes before a reset arrives, although the question still flows the other way. */
static void test_answer_before_reset(void **state)
{
    (void)state;
    struct test_rig rig;
    struct relayed r;
    test_rig_open(&rig);
    open_tcp(&r, &rig, STR_NULL, 0);
    AUTO_FREE char *body = mem_zalloc(500000);
    test_peer_send(r.b, "413 too large", 13);
    reset_peer(TAKE_FD(r.b));
    (void)send(r.a, body, 500000, MSG_NOSIGNAL);
    test_until_true(&rig, &r.is_ended);
    assert_int_equal(r.how, RELAY_B_FAILED);
    assert_int_equal(r.ba, 13);
    test_peer_expect(&rig, r.a, STR("413 too large"));
    fini(&r);
    test_rig_close(&rig);
}

static void test_upstream_that_connects_later(void **state)
{
    (void)state;
    struct test_rig rig;
    struct relayed r = {0};
    struct sockaddr_storage addr;
    int a[2];
    test_rig_open(&rig);
    int listener = test_listen(8, &addr);
    test_tcp_pair(a);
    r.a = a[0];
    test_peer_send(r.a, "hello", 5);
    (void)shutdown(r.a, SHUT_WR);
    struct side *b = side_tcp_connect(&rig.loop, (struct sockaddr *)&addr, 5000, NULL, NULL);
    start(&r, &rig, side_tcp_accept(&rig.loop, a[1]), b, STR("first "), 0);
    (void)poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, 5000);
    r.b = test_accept(listener);
    test_peer_expect(&rig, r.b, STR("first hello"));
    expect_end_of_file(&r, r.b);
    fini(&r);

    (void)close(listener); /* and one that never does */
    test_tcp_pair(a);
    r = (struct relayed){.a = a[0], .b = -1};
    b = side_tcp_connect(&rig.loop, (struct sockaddr *)&addr, 5000, NULL, NULL);
    start(&r, &rig, side_tcp_accept(&rig.loop, a[1]), b, STR("first "), 0);
    test_until_true(&rig, &r.is_ended);
    assert_int_equal(r.how, RELAY_B_FAILED);
    assert_int_equal(r.err.errnum, ECONNREFUSED);
    assert_int_equal(r.ab, 0);
    fini(&r);
    test_rig_close(&rig);
}

static void test_idle_limit(void **state)
{
    (void)state;
    struct test_rig rig;
    struct relayed r;
    test_rig_open(&rig);
    open_tcp(&r, &rig, STR_NULL, 1500);
    usec_t start_at = clock_mono();
    for (int i = 0; i < 4; i++) { /* what moves is not idle */
        test_peer_send(r.a, "x", 1);
        test_peer_expect(&rig, r.b, STR("x"));
        (void)usleep(400000);
        uv_update_time(&rig.loop);
    }
    assert_false(r.is_ended);
    usec_t last = clock_mono();
    test_until_true(&rig, &r.is_ended);
    assert_int_equal(r.how, RELAY_IDLE);
    assert_int_equal(r.err.code, ERR_DEADLINE_EXCEEDED);
    assert_int_equal(r.ab, 4);
    assert_true(clock_mono() - start_at > 2500 * USEC_PER_MS && clock_mono() - last > 1000 * USEC_PER_MS);
    fini(&r);
    test_rig_close(&rig);
}

/* Many at once, with no descriptor left for a pipe: copying does it as well. */
static void test_many(void **state)
{
    (void)state;
    enum { N = 100 };
    struct test_rig rig;
    static struct relayed each[N];
    static struct bulk bulks[N];
    test_rig_open(&rig);
    struct relay_pool *pool = relay_pool_new();
    for (size_t i = 0; i < N; i++) {
        int a[2], b[2];
        test_tcp_pair(a);
        test_tcp_pair(b);
        each[i] = (struct relayed){.rig = &rig, .a = a[0], .b = b[0]};
        each[i].relay = relay_start(pool, &rig.loop, side_tcp_accept(&rig.loop, a[1]), side_tcp_accept(&rig.loop, b[1]),
                                    STR_NULL, 0, on_end, &each[i]);
        bulks[i] = (struct bulk){
            .from = a[0], .to = b[0], .total = 1500000, .step_out = 200000, .step_in = i % 2 ? 200000 : 20000};
    }
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, old.rlim_max}), 0);
    bulk_run(&each[0], bulks, N);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    for (size_t i = 0; i < N; i++) {
        (void)shutdown(each[i].a, SHUT_WR);
        (void)shutdown(each[i].b, SHUT_WR);
        test_until_true(&rig, &each[i].is_ended);
        fini(&each[i]);
    }
    relay_pool_free(pool);
    test_rig_close(&rig);
}

/* TLS on both sides, as when a sandbox is intercepted: bulk, half-close, and a cut upstream that must not look like an
 * end. */
static void test_over_tls(void **state)
{
    (void)state;
    enum { TOTAL = 5 * 1000 * 1000 };
    struct test_tls t;
    struct err err;
    const struct ca_leaf *leaf;
    test_tls_open(&t);
    AUTO_FREE char *data = mem_alloc(TOTAL);
    for (size_t i = 0; i < TOTAL; i++)
        data[i] = pattern(i);
    for (int cut = 0; cut < 2; cut++) {
        struct relayed r = {.a = -1, .b = -1};
        struct test_ssl client, server;
        struct test_owner owner;
        int a[2], b[2];
        char c;
        test_tcp_pair(a);
        test_tcp_pair(b);
        assert_int_equal(ca_leaf(t.ca, "a.example", &leaf, &err), 0);
        test_ssl_open(&client, &t, a[0], true, NULL);
        test_ssl_open(&server, &t, b[0], false, leaf);
        test_owner_open(&owner, NULL);
        owner.side = side_tls_client(side_tcp_accept(&t.rig.loop, b[1]), t.world, "a.example", STR_NULL, 5000,
                                     &test_owner_ops, &owner);
        assert_true(test_ssl_handshake(&server));
        test_until_true(&t.rig, &owner.is_ready);
        struct side *front =
            side_tls_server(side_tcp_accept(&t.rig.loop, a[1]), t.sandbox, leaf, STR_NULL, STR_NULL, 5000, NULL, NULL);
        start(&r, &t.rig, front, TAKE_PTR(owner.side), STR_NULL, 0);
        assert_true(test_ssl_handshake(&client));
        test_ssl_send(&client, "GET", 3);
        test_ssl_expect(&server, STR("GET"));
        size_t sent = 0, got = 0;
        while (got < TOTAL) {
            char part[50000];
            int n = sent < TOTAL ? SSL_write(server.ssl, data + sent, (int)MIN((size_t)TOTAL - sent, 70000u)) : 0;
            sent += n > 0 ? (size_t)n : 0;
            (void)uv_run(&t.rig.loop, UV_RUN_NOWAIT);
            n = SSL_read(client.ssl, part, sizeof(part));
            if (n > 0) {
                assert_memory_equal(part, data + got, n);
                got += (size_t)n;
            }
            assert_false(r.is_ended);
        }
        if (cut) {
            assert_int_equal(shutdown(b[0], SHUT_WR), 0);
            test_until_true(&t.rig, &r.is_ended);
            assert_int_equal(r.how, RELAY_B_FAILED);
            assert_int_equal(r.err.errnum, ECONNABORTED);
            relay_close(TAKE_PTR(r.relay));
            assert_true(test_ssl_receive(&client, &c, 1) < 0);
        } else {
            assert_int_equal(SSL_shutdown(server.ssl), 0);
            assert_int_equal(test_ssl_receive(&client, &c, 1), 0);
            test_ssl_send(&client, "after", 5);
            test_ssl_expect(&server, STR("after"));
            assert_true(SSL_shutdown(client.ssl) >= 0);
            test_until_true(&t.rig, &r.is_ended);
            assert_int_equal(r.how, RELAY_DONE);
            assert_int_equal(r.ab, 8);
            assert_int_equal(r.ba, TOTAL);
        }
        fini(&r);
        test_owner_fini(&owner);
        test_ssl_fini(&client);
        test_ssl_fini(&server);
    }
    test_tls_close(&t);
}

/* Both have ended, and one of them has not read yet: what TLS still holds for it is no end. */
static void test_tls_tail(void **state)
{
    (void)state;
    struct test_tls t;
    struct err err;
    const struct ca_leaf *leaf;
    test_tls_open(&t);
    struct relayed r = {.a = -1, .b = -1};
    struct test_ssl client;
    int a[2], b[2];
    test_tcp_pair(a);
    test_tcp_pair(b);
    r.b = b[0];
    assert_int_equal(ca_leaf(t.ca, "a.example", &leaf, &err), 0);
    test_ssl_open(&client, &t, a[0], true, NULL);
    struct side *front =
        side_tls_server(side_tcp_accept(&t.rig.loop, a[1]), t.sandbox, leaf, STR_NULL, STR_NULL, 5000, NULL, NULL);
    start(&r, &t.rig, front, side_tcp_accept(&t.rig.loop, b[1]), STR_NULL, 0);
    assert_true(test_ssl_handshake(&client));
    assert_true(SSL_shutdown(client.ssl) >= 0);
    expect_end_of_file(&r, r.b);
    /* As much as the kernel takes, one record more, and then the end. */
    AUTO_FREE char *part = mem_alloc(100000);
    size_t sent = 0;
    while (front->kind->flushed(front)) {
        for (size_t i = 0; i < 10000; i++)
            part[i] = pattern(sent + i);
        test_peer_send(r.b, part, 10000);
        sent += 10000;
        test_turn(&t.rig);
        assert_true(sent < 64u * 1024 * 1024);
    }
    assert_int_equal(shutdown(r.b, SHUT_WR), 0);
    r.close_in_end = true;
    test_turn(&t.rig);
    assert_false(r.is_ended);
    size_t got = 0;
    int n;
    while ((n = test_ssl_receive(&client, part, 100000)) > 0) {
        for (int i = 0; i < n; i++)
            assert_true(part[i] == pattern(got + (size_t)i));
        got += (size_t)n;
    }
    assert_int_equal(n, 0);
    assert_int_equal(got, sent);
    test_until_true(&t.rig, &r.is_ended);
    assert_int_equal(r.how, RELAY_DONE);
    assert_int_equal(r.ba, sent);
    fini(&r);
    test_ssl_fini(&client);
    test_tls_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_ways_and_half_close),
        cmocka_unit_test(test_bulk),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_pipes_are_not_mixed),
        cmocka_unit_test(test_reset_is_passed_on),
        cmocka_unit_test(test_answer_before_reset),
        cmocka_unit_test(test_upstream_that_connects_later),
        cmocka_unit_test(test_idle_limit),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_over_tls),
        cmocka_unit_test(test_tls_tail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
