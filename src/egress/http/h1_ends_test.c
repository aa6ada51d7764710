/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "egress/http/test_h1.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- upgrade ---- */

static void test_websocket(void **state)
{
    (void)state;
    struct rig r;
    h1_open(&r);
    rig_say(&r, CLIENT,
            "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Key: k\r\n\r\n");
    rig_expect(
        &r, UPSTREAM,
        "GET /ws HTTP/1.1\r\nhost: a\r\nupgrade: WebSocket\r\nsec-websocket-key: k\r\nconnection: upgrade\r\n\r\n");
    rig_say(&r, UPSTREAM,
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX: y\r\n\r\n\x81\x01x");
    rig_expect(
        &r, CLIENT,
        "HTTP/1.1 101 Switching Protocols\r\nX: y\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n\x81\x01x");
    assert_int_equal(r.last_status, 101);
    rig_say(&r, CLIENT, GET); /* bytes like any others now */
    rig_expect(&r, UPSTREAM, GET);
    assert_int_equal(r.requests, 1);
    rig_say(&r, CLIENT, "last");
    rig_shut(&r, CLIENT);
    rig_expect(&r, UPSTREAM, "last");
    rig_expect_end(&r, UPSTREAM, false);
    rig_say(&r, UPSTREAM, "words"); /* the other way is still open */
    rig_expect(&r, CLIENT, "words");
    rig_shut(&r, UPSTREAM);
    rig_expect_end(&r, CLIENT, false);
    h1_ended_well(&r);
}

static void test_upgrades_that_are_none(void **state)
{
    (void)state;
    static const char *const requests[] = {
        GET,
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket, h2c\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: a\r\nConnection: Upgrade, keep-alive\r\nUpgrade: websocket\r\n\r\n",
    };
    for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
        struct rig r;
        h1_open(&r);
        rig_say(&r, CLIENT, requests[i]);
        rig_expect(&r, UPSTREAM, GET_OUT);
        rig_say(&r, UPSTREAM, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        rig_expect_answer(&r, "HTTP/1.1 502 ", NULL);
        rig_expect_end(&r, CLIENT, false);
        h1_ended_well(&r);
    }
}

/* ---- things that go wrong ---- */

static void test_upstream_garbage(void **state)
{
    (void)state;
    static const char *const answers[] = {"SSH-2.0-x\r\n",
                                          "HTTP/1.1 200 OK\nX: y\n\n",
                                          "HTTP/1.1 99 OK\r\n\r\n",
                                          "\x16\x03\x01\x02\x03",
                                          "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
                                          "HTTP/2.0 200 OK\r\n\r\n"};
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        struct rig r;
        h1_open(&r);
        rig_say(&r, CLIENT, GET);
        rig_expect(&r, UPSTREAM, GET_OUT);
        rig_say(&r, UPSTREAM, answers[i]);
        rig_expect_answer(&r, "HTTP/1.1 502 Bad Gateway\r\n", NULL);
        rig_expect_end(&r, CLIENT, false);
        assert_int_equal(r.last_status, 502);
        h1_ended_well(&r);
    }
}

static void test_truncated_answers(void **state)
{
    (void)state;
    static const char *const answers[] = {
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
    };
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        struct rig r;
        rig_open_tcp(&r, h1_exchange_timed, false);
        rig_say(&r, CLIENT, GET);
        rig_expect(&r, UPSTREAM, GET_OUT);
        rig_say(&r, UPSTREAM, answers[i]);
        rig_expect(&r, CLIENT, answers[i]);
        rig_leave(&r, UPSTREAM);
        rig_expect_end(&r, CLIENT, true);
        assert_int_equal(r.last_status, 200);
        h1_ended_badly(&r);
    }
}

static void test_upstream_ends(void **state)
{
    (void)state;
    struct rig r;
    h1_open(&r); /* the first request: it is told */
    rig_say(&r, CLIENT, GET);
    rig_expect(&r, UPSTREAM, GET_OUT);
    rig_say(&r, UPSTREAM, "HTTP/1.1 2");
    rig_leave(&r, UPSTREAM);
    rig_expect_answer(&r, "HTTP/1.1 502 ", NULL);
    rig_expect_end(&r, CLIENT, false);
    h1_ended_well(&r);

    h1_open(&r); /* a later one: the client shall try again */
    h1_again(&r);
    rig_say(&r, CLIENT, GET);
    rig_expect(&r, UPSTREAM, GET_OUT);
    rig_leave(&r, UPSTREAM);
    rig_expect_end(&r, CLIENT, false);
    assert_int_equal(r.answers, 2);
    assert_int_equal(r.last_status, 0);
    h1_ended_well(&r);

    h1_open(&r); /* between two */
    h1_again(&r);
    rig_leave(&r, UPSTREAM);
    rig_expect_end(&r, CLIENT, false);
    h1_ended_well(&r);

    h1_open(&r); /* before the first */
    rig_leave(&r, UPSTREAM);
    rig_turn(&r);
    rig_say(&r, CLIENT, GET);
    rig_expect_answer(&r, "HTTP/1.1 502 ", NULL);
    rig_expect_end(&r, CLIENT, false);
    h1_ended_well(&r);

    h1_open(&r); /* speaks unasked */
    h1_again(&r);
    rig_say(&r, UPSTREAM, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    rig_expect_end(&r, CLIENT, false);
    h1_ended_well(&r);
}

static void test_early_answer(void **state)
{
    (void)state;
    struct rig r;
    h1_open(&r);
    rig_say(&r, CLIENT, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab");
    rig_expect(&r, UPSTREAM, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nab");
    rig_say(&r, UPSTREAM, OK2);
    rig_expect(&r, CLIENT, OK2);
    rig_say(&r, CLIENT, "cd"); /* the rest goes on */
    rig_expect(&r, UPSTREAM, "cd");
    h1_again(&r);
    rig_say(&r, CLIENT, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab");
    rig_expect(&r, UPSTREAM, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nab");
    rig_say(&r, UPSTREAM, "HTTP/1.1 413 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    rig_leave(&r, UPSTREAM);
    rig_expect(&r, CLIENT, "HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    rig_expect_end(&r, CLIENT, false);
    h1_ended_well(&r);
}

static void test_client_leaves(void **state)
{
    (void)state;
    struct rig r;
    h1_open(&r); /* half-close behind a whole request is fine */
    rig_say(&r, CLIENT, GET);
    rig_shut(&r, CLIENT);
    rig_expect(&r, UPSTREAM, GET_OUT);
    rig_say(&r, UPSTREAM, OK2);
    rig_expect(&r, CLIENT, OK2);
    rig_expect_end(&r, CLIENT, false);
    h1_ended_well(&r);

    rig_open_tcp(&r, h1_exchange_timed, false); /* within a body: upstream sees a failure */
    rig_say(&r, CLIENT, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n");
    rig_expect(&r, UPSTREAM, "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n");
    rig_leave(&r, CLIENT);
    rig_expect_end(&r, UPSTREAM, true);
    assert_int_equal(r.answers, 1);
    assert_int_equal(r.last_status, 0);
    h1_ended_badly(&r);

    rig_open_tcp(&r, h1_exchange_timed, false); /* within an answer */
    rig_say(&r, CLIENT, GET);
    rig_expect(&r, UPSTREAM, GET_OUT);
    rig_leave(&r, CLIENT);
    rig_say(&r, UPSTREAM, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    while (!r.end_seen) {
        rig_turn(&r);
        if (!r.end_seen && !r.error[UPSTREAM])
            (void)send(r.fd[UPSTREAM], "1\r\nx\r\n", 6, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    h1_ended_badly(&r);

    h1_open(&r); /* within a head */
    rig_say(&r, CLIENT, "GET / HT");
    rig_shut(&r, CLIENT);
    rig_expect_end(&r, CLIENT, false);
    rig_expect_end(&r, UPSTREAM, false);
    assert_int_equal(r.requests, 0);
    h1_ended_well(&r);
}

static void test_time_limits(void **state)
{
    (void)state;
    static const struct exchange_times head = {20, 100000, 100000, 100000}, idle = {100000, 20, 100000, 100000},
                                       stall = {100000, 100000, 20, 100000};
    struct rig r;
    rig_open(&r, h1_exchange_timed, NULL, &head);
    rig_say(&r, CLIENT, "GET / HTTP/1.1\r\nHost: a\r\n");
    rig_expect_answer(&r, "HTTP/1.1 408 ", NULL);
    rig_expect_end(&r, CLIENT, false);
    h1_ended_well(&r);

    rig_open(&r, h1_exchange_timed, NULL, &idle);
    rig_expect_end(&r, CLIENT, false);
    h1_ended_well(&r);

    rig_open(&r, h1_exchange_timed, NULL, &stall);
    rig_say(&r, CLIENT, GET);
    rig_expect_answer(&r, "HTTP/1.1 504 ", NULL);
    rig_expect_end(&r, CLIENT, false);
    h1_ended_well(&r);
}

static void test_dialled_late(void **state)
{
    (void)state;
    struct rig r;
    rig_open_tcp(&r, h1_exchange_timed, true);
    rig_say(&r, CLIENT, "GET /refused HTTP/1.1\r\nHost: a\r\n\r\n");
    rig_expect_answer(&r, "HTTP/1.1 403 ", NULL);
    rig_say(&r, CLIENT, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    RIG_UNTIL(&r, r.requests == 2);
    exchange_upstream(r.x, rig_dial(&r), NULL);
    rig_expect(&r, UPSTREAM, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi");
    rig_say(&r, UPSTREAM, OK2);
    rig_expect(&r, CLIENT, OK2);
    h1_again(&r);
    rig_close(&r);

    rig_open_tcp(&r, h1_exchange_timed, true);
    rig_say(&r, CLIENT, GET);
    RIG_UNTIL(&r, r.requests == 1);
    exchange_upstream(r.x, NULL, "nobody there");
    AUTO_BUF struct buf body = BUF_INIT(1000);
    rig_expect_answer(&r, "HTTP/1.1 502 ", &body);
    assert_non_null(memmem(buf_data(&body), buf_len(&body), "nobody there", 12));
    rig_expect_end(&r, CLIENT, false);
    h1_ended_well(&r);
}

static void test_closed_from_within(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct rig r;
        h1_open(&r);
        r.close_in_request = i == 0;
        r.close_in_answer = i == 1;
        r.close_in_end = i == 2;
        rig_say(&r, CLIENT, GET);
        if (i > 0) {
            rig_expect(&r, UPSTREAM, GET_OUT);
            rig_say(&r, UPSTREAM, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
        }
        RIG_UNTIL(&r, !r.x);
        RIG_UNTIL(&r, r.eof[UPSTREAM] || r.error[UPSTREAM]);
        assert_int_equal(buf_len(&r.got[UPSTREAM]), 0);
        rig_close(&r);
    }
}

/* Cut by the owner: neither side may take what it has for all. */
static void test_closed_in_between(void **state)
{
    (void)state;
    struct rig r;
    rig_open_tcp(&r, h1_exchange_timed, false);
    rig_say(&r, CLIENT, GET);
    rig_expect(&r, UPSTREAM, GET_OUT);
    rig_say(&r, UPSTREAM, "HTTP/1.1 200 OK\r\n\r\npart");
    rig_expect(&r, CLIENT, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\npart");
    exchange_close(TAKE_PTR(r.x));
    rig_expect_end(&r, CLIENT, true);
    rig_expect_end(&r, UPSTREAM, true);
    rig_close(&r);
}

/* ---- streams ---- */

/* Each event is there before the next one is made. */
static void test_events_come_at_once(void **state)
{
    (void)state;
    struct rig r;
    h1_open(&r);
    rig_say(&r, CLIENT, GET);
    rig_expect(&r, UPSTREAM, GET_OUT);
    rig_say(&r, UPSTREAM, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
    rig_expect(&r, CLIENT, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n");
    for (int i = 0; i < 100; i++) {
        rig_say(&r, UPSTREAM, "d\r\ndata: hello\n\n\r\n");
        rig_expect(&r, CLIENT, "d\r\ndata: hello\n\n\r\n");
    }
    rig_say(&r, UPSTREAM, "0\r\n\r\n");
    rig_expect(&r, CLIENT, "0\r\n\r\n");
    h1_again(&r);
    rig_close(&r);
}

static void fill(char *p, size_t n, uint32_t *seed)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (char)((*seed = *seed * 1664525 + 1013904223) >> 24);
}

/* What is sent here comes out there, chunked or not, and a reader that sleeps makes the writer wait. */
static void large_body(enum peer from, bool chunked)
{
    enum { PIECE = 48 * 1000, PIECES = 400 };
    enum peer to = from == CLIENT ? UPSTREAM : CLIENT;
    struct rig r;
    char *piece = mem_alloc(PIECE), head[128];
    uint32_t seed = 1, check = 1;
    h1_open(&r);
    const char *framing = chunked ? "transfer-encoding: chunked" : "content-length: 19200000";
    if (from == UPSTREAM) {
        rig_say(&r, CLIENT, GET);
        rig_expect(&r, UPSTREAM, GET_OUT);
    }
    (void)snprintf(head, sizeof(head), "%s\r\n%s\r\n\r\n",
                   from == CLIENT ? "PUT / HTTP/1.1\r\nhost: a" : "HTTP/1.1 200 OK", framing);
    rig_say(&r, from, head);
    rig_expect(&r, to, head);
    r.stop[to] = true;
    size_t sent = 0, total = (size_t)PIECE * PIECES, got = 0, left = 0;
    /* As much as goes in while nobody reads at the other end: sockets' buffers and ours, not more. */
    struct str pending = STR_NULL;
    AUTO_BUF struct buf text = BUF_INIT(PIECE + 64);
    unsigned quiet = 0;
    while (got < total) {
        if (pending.n == 0 && sent < total) {
            fill(piece, PIECE, &seed);
            sent += PIECE;
            buf_clear(&text);
            if (chunked)
                buf_printf(&text, "%x\r\n", PIECE);
            buf_append(&text, piece, PIECE);
            if (chunked)
                buf_append_cstr(&text, sent == total ? "\r\n0\r\n\r\n" : "\r\n");
            pending = buf_str(&text);
        }
        ssize_t n = pending.n ? send(r.fd[from], pending.p, pending.n, MSG_NOSIGNAL | MSG_DONTWAIT) : -1;
        if (n > 0)
            pending = str_sub(pending, (size_t)n);
        rig_turn(&r);
        quiet = n > 0 ? 0 : quiet + 1;
        if (r.stop[to] && quiet > 200) {
            assert_true(sent < total); /* somebody waited */
            r.stop[to] = false;
        }
        struct str in = buf_str(&r.got[to]);
        while (in.n) {
            if (chunked && left == 0) {
                ssize_t end = str_find_char(in, '\n');
                if (end < 0 || (size_t)end + 1 == in.n)
                    break;
                left = (size_t)strtoul(in.p, NULL, 16);
                in = str_sub(in, (size_t)end + 1);
                assert_true(left > 0);
            }
            size_t take = chunked ? MIN(left, in.n) : in.n;
            if (chunked && take == left && in.n < left + 2)
                break;
            for (size_t i = 0; i < take; i++)
                if (in.p[i] != (char)((check = check * 1664525 + 1013904223) >> 24))
                    fail_msg("byte %zu is another one", got + i);
            got += take;
            left -= chunked ? take : 0;
            in = str_sub(in, take + (chunked && left == 0 ? 2 : 0));
            if (got == total)
                break;
        }
        buf_consume(&r.got[to], buf_len(&r.got[to]) - in.n);
    }
    assert_true(r.peak < 400 * 1024);
    if (chunked)
        rig_expect(&r, to, "0\r\n\r\n");
    if (from == CLIENT) {
        rig_say(&r, UPSTREAM, OK2);
        rig_expect(&r, CLIENT, OK2);
    }
    h1_again(&r);
    rig_close(&r);
    mem_free(piece);
}

static void test_large_bodies(void **state)
{
    (void)state;
    large_body(CLIENT, false);
    large_body(CLIENT, true);
    large_body(UPSTREAM, false);
    large_body(UPSTREAM, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_websocket),         cmocka_unit_test(test_upgrades_that_are_none),
        cmocka_unit_test(test_upstream_garbage),  cmocka_unit_test(test_truncated_answers),
        cmocka_unit_test(test_upstream_ends),     cmocka_unit_test(test_early_answer),
        cmocka_unit_test(test_client_leaves),     cmocka_unit_test(test_time_limits),
        cmocka_unit_test(test_dialled_late),      cmocka_unit_test(test_closed_from_within),
        cmocka_unit_test(test_closed_in_between), cmocka_unit_test(test_events_come_at_once),
        cmocka_unit_test(test_large_bodies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
