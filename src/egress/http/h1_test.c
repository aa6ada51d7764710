/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "egress/http/test_h1.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- what goes through ---- */

static void test_keep_alive(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, h1_exchange_timed, "GET /first?x=1 HTTP/1.1\r\nHo", NULL);
    rig_say(&r, CLIENT, "st: a:80\r\nUser-Agent:  me \r\nX-A: 1\r\nx-a: 2\r\n\r\n");
    rig_expect(&r, UPSTREAM, "GET /first?x=1 HTTP/1.1\r\nhost: a:80\r\nuser-agent: me\r\nx-a: 1\r\nx-a: 2\r\n\r\n");
    h1_expect_log(&r, "GET a:80 /first?x=1\nuser-agent: me\nx-a: 1\nx-a: 2\n\n");
    rig_say(
        &r, UPSTREAM,
        "HTTP/1.1 404 Gone Fishing\r\nSet-Cookie: a\r\nset-cookie: b\r\nContent-Length: 3\r\nKeep-Alive: x\r\n\r\nabc");
    rig_expect(&r, CLIENT, "HTTP/1.1 404 Not Found\r\nSet-Cookie: a\r\nset-cookie: b\r\ncontent-length: 3\r\n\r\nabc");
    assert_int_equal(r.last_status, 404);
    for (int i = 0; i < 1000; i++)
        h1_again(&r);
    assert_int_equal(r.requests, 1001);
    assert_int_equal(r.answers, 1001);
    assert_int_equal(r.last_answered, 1001);
    rig_shut(&r, CLIENT);
    rig_expect_end(&r, UPSTREAM, false);
    h1_ended_well(&r);
}

static unsigned n_busy;

static bool busy_round(struct exchange *x UNUSED)
{
    return ++n_busy < 10000;
}

static void busy_settle(struct exchange *x UNUSED, bool moved UNUSED)
{
}

static void busy_release(struct exchange *x)
{
    mem_free(x);
}

static struct exchange *busy_exchange(uv_loop_t *loop, struct side *client, struct side *upstream, struct str first,
                                      const struct exchange_ops *ops, void *ctx, const struct exchange_times *times)
{
    static const struct exchange_kind kind = {.round = busy_round, .settle = busy_settle, .release = busy_release};
    struct exchange *x = mem_new(struct exchange);
    *x = (struct exchange){0};
    exchange_init(x, &kind, loop, client, upstream, first, ops, ctx, times);
    return x;
}

/* One that always finds something to do leaves all others their turns. */
static void test_others_have_turns(void **state)
{
    (void)state;
    struct rig r;
    n_busy = 0;
    rig_open(&r, busy_exchange, NULL, NULL);
    for (unsigned turn = 1; turn < 10; turn++) {
        (void)uv_run(&r.loop, UV_RUN_NOWAIT);
        assert_in_range(n_busy, turn, 3 * turn * (EXCHANGE_ROUNDS + 1));
    }
    rig_close(&r);
}

static void test_pipelining(void **state)
{
    (void)state;
    struct rig r;
    h1_open(&r);
    rig_say(&r, CLIENT,
            "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhiGET /refused HTTP/1.1\r\nHost: a\r\n\r\n" GET);
    rig_expect(&r, UPSTREAM, "POST /1 HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi");
    assert_int_equal(r.requests, 1);
    rig_say(&r, UPSTREAM, OK2);
    rig_expect(&r, CLIENT, OK2);
    rig_expect_answer(&r, "HTTP/1.1 403 Forbidden\r\n", NULL);
    rig_expect(&r, UPSTREAM, GET_OUT);
    rig_say(&r, UPSTREAM, OK2);
    rig_expect(&r, CLIENT, OK2);
    assert_int_equal(r.requests, 3);
    assert_int_equal(r.answers, 2);
    rig_close(&r);
}

static void test_hop_by_hop(void **state)
{
    (void)state;
    struct rig r;
    h1_open(&r);
    rig_say(
        &r, CLIENT,
        "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: mine\r\nConnection: keep-alive, Authorization , X-B\r\nX-B: 1\r\n"
        "Connection: x-c,host,content-length\r\nX-C: 1\r\nProxy-Authorization: p\r\nProxy-Connection: close\r\nKeep-Alive: 5\r\n"
        "TE: trailers, deflate;q=0.5\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nX-D: 2\r\n\r\n");
    rig_expect(&r, UPSTREAM, "GET / HTTP/1.1\r\nhost: a\r\nte: trailers\r\nx-d: 2\r\nconnection: te\r\n\r\n");
    h1_expect_log(&r, "GET a /\nte: trailers\nx-d: 2\n\n");
    rig_say(
        &r, UPSTREAM,
        "HTTP/1.1 200 OK\r\nConnection: X-E\r\nX-E: 1\r\nX-F: 2\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    rig_expect(&r, CLIENT, "HTTP/1.1 200 OK\r\nX-F: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n");
    h1_again(&r);
    rig_close(&r);
}

static void inject(struct exchange_head *h)
{
    exchange_set(h, STR("Authorization"), STR("Bearer real"));
    exchange_remove(h, STR("x-gone"));
}

static void test_edits(void **state)
{
    (void)state;
    struct rig r;
    h1_open(&r);
    r.edit = inject;
    rig_say(
        &r, CLIENT,
        "GET / HTTP/1.1\r\nHost: a\r\nAUTHORIZATION: a\r\nX-Gone: 1\r\nauthorization: b\r\nConnection: authorization\r\n\r\n");
    rig_expect(&r, UPSTREAM, "GET / HTTP/1.1\r\nhost: a\r\nauthorization: Bearer real\r\n\r\n");
    rig_close(&r);
}

static void inject_framing(struct exchange_head *h)
{
    exchange_set(h, STR("Content-Length"), STR("5"));
}

static void inject_lines(struct exchange_head *h)
{
    exchange_set(h, STR("x-key"), STR("a\r\nx-other: b"));
}

static void inject_path(struct exchange_head *h)
{
    h->path = STR("/ HTTP/1.1\r\nhost: b\r\n\r\nGET /");
}

static void test_edits_that_cannot_be_sent(void **state)
{
    (void)state;
    static void (*const edits[])(struct exchange_head *) = {inject_framing, inject_lines, inject_path};
    for (size_t i = 0; i < ARRAY_SIZE(edits); i++) {
        struct rig r;
        h1_open(&r);
        r.edit = edits[i];
        rig_say(&r, CLIENT, GET);
        rig_expect_answer(&r, "HTTP/1.1 500 ", NULL);
        rig_expect_end(&r, CLIENT, false);
        rig_expect_end(&r, UPSTREAM, false);
        assert_int_equal(r.answers, 1);
        assert_int_equal(r.last_status, 500);
        h1_ended_well(&r);
    }
}

static void test_targets(void **state)
{
    (void)state;
    static const struct {
        const char *request, *out;
    } good[] = {
        {"GET http://A/x HTTP/1.1\r\nHost: a\r\n\r\n", "GET /x HTTP/1.1\r\nhost: A\r\n\r\n"},
        {"GET http://a HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nhost: a\r\n\r\n"},
        {"GET HTTPS://a:8443?q HTTP/1.1\r\nHost: a:8443\r\n\r\n", "GET /?q HTTP/1.1\r\nhost: a:8443\r\n\r\n"},
        {"OPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "OPTIONS * HTTP/1.1\r\nhost: [::1]:80\r\n\r\n"},
        {"GET //x/../y HTTP/1.1\r\nHost: a\r\n\r\n", "GET //x/../y HTTP/1.1\r\nhost: a\r\n\r\n"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        struct rig r;
        h1_open(&r);
        rig_say(&r, CLIENT, good[i].request);
        rig_expect(&r, UPSTREAM, good[i].out);
        rig_close(&r);
    }
}

/* Answered, closed, and nothing of it upstream. */
static void expect_refused(struct str request, int status)
{
    struct rig r;
    char line[32];
    h1_open(&r);
    rig_send(&r, CLIENT, request);
    rig_shut(&r, CLIENT);
    (void)snprintf(line, sizeof(line), "HTTP/1.1 %d ", status);
    AUTO_BUF struct buf body = BUF_INIT(4096);
    bool head_only = str_starts(request, STR("HEAD"));
    if (head_only)
        rig_expect(&r, CLIENT, line);
    else
        rig_expect_answer(&r, line, &body);
    if (!head_only)
        assert_true(str_starts(buf_str(&body), STR("{\"error\":{\"code\":\"")));
    RIG_UNTIL(&r, r.end_seen && (r.eof[CLIENT] || r.error[CLIENT]) && (r.eof[UPSTREAM] || r.error[UPSTREAM]));
    assert_int_equal(buf_len(&r.got[UPSTREAM]), 0);
    assert_int_equal(r.requests, r.answers);
    rig_close(&r);
}

static void test_bad_heads(void **state)
{
    (void)state;
    static const struct {
        const char *request;
        int status;
    } bad[] = {
        {"GET / HTTP/1.1\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost:\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: x@a\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: denied.test%00.allowed.test\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a%2eb\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a:\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a:0\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a:+443\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a:443:80\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: \xef\xbc\x8e.test\r\n\r\n", 400},
        {"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET http://a:80/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET http://x@a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET http://a/ HTTP/1.1\r\n\r\n", 400},
        {"GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET /#x HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 405},
        {"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 405},
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
        {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
        {"BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a\r\nExpect: a-miracle\r\n\r\n", 417},
        {"HEAD / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\n\r\n",
         400},
        {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n Transfer-Encoding: chunked\r\n\r\n", 400},
        {"GET / HTTP/1.1\nHost: a\n\n", 400},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello", 400},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5,5\r\n\r\nhello", 400},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        expect_refused(str_of(bad[i].request), bad[i].status);
    }
    AUTO_BUF struct buf many = BUF_INIT(EXCHANGE_HEAD_MAX); /* each of which every field would be held against */
    buf_append_cstr(&many, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close");
    for (int i = 0; i < 32; i++)
        buf_append_cstr(&many, ",a");
    buf_append_cstr(&many, "\r\n\r\n");
    expect_refused(buf_str(&many), 400);
    static const char nul[] = "GET / HTTP/1.1\r\nHost: denied.test\0.allowed.test\r\n\r\n";
    expect_refused(str_n(nul, sizeof(nul) - 1), 400);
}

/* Malformed only behind its head: upstream has that, but never an end. */
static void test_bad_chunks(void **state)
{
    (void)state;
    static const char *const bad[] = {"5;a=b\r\nhello\r\n0\r\n\r\n",
                                      "5\r\nhello\r\n0\r\n\n",
                                      "+5\r\nhello\r\n0\r\n\r\n",
                                      "5\nhello\r\n0\r\n\r\n",
                                      "5\r\nhello\r\n0\r\nContent-Length: 9\r\n\r\n",
                                      "0\r\nHost: b\r\n\r\n",
                                      "0\r\nTransfer-Encoding: chunked\r\n\r\n",
                                      "5\r\nhellohello\r\n0\r\n\r\n"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct rig r;
        rig_open_tcp(&r, h1_exchange_timed, false);
        rig_say(&r, CLIENT, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        rig_expect(&r, UPSTREAM, "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n");
        rig_say(&r, CLIENT, bad[i]);
        rig_expect_answer(&r, "HTTP/1.1 400 ", NULL);
        RIG_UNTIL(&r, r.error[UPSTREAM]);
        assert_int_equal(r.error[UPSTREAM], ECONNRESET);
        assert_null(memmem(buf_data(&r.got[UPSTREAM]), buf_len(&r.got[UPSTREAM]), "\r\n0\r\n", 5));
        assert_int_equal(r.last_status, 400);
        h1_ended_well(&r);
    }
}

/* ---- refusals ---- */

static void test_refusals(void **state)
{
    (void)state;
    struct rig r;
    h1_open(&r);
    AUTO_BUF struct buf body = BUF_INIT(4096);
    rig_say(&r, CLIENT, "POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
    rig_expect_answer(&r, "HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\n", &body);
    assert_true(str_eqc(buf_str(&body), "{\"error\":{\"code\":\"denied\",\"message\":\"rule 1 says \\\"no\\\"\"}}\n"));
    char *filler = mem_zalloc(200000);
    rig_send(&r, CLIENT, str_n(filler, 200000));
    h1_again(&r); /* the body was read: it goes on */
    rig_say(&r, CLIENT,
            "POST /refused HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    rig_expect_answer(&r, "HTTP/1.1 403 ", NULL);
    h1_again(&r);
    rig_say(&r, CLIENT, "HEAD /refused HTTP/1.1\r\nHost: a\r\n\r\n");
    rig_expect(&r, CLIENT, "HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\ncontent-length: 59\r\n\r\n");
    h1_again(&r);
    r.refuse = 421;
    rig_say(&r, CLIENT, "GET /refused HTTP/1.1\r\nHost: b\r\n\r\n");
    buf_clear(&body);
    rig_expect_answer(&r, "HTTP/1.1 421 Misdirected Request\r\n", &body);
    assert_non_null(memmem(buf_data(&body), buf_len(&body), "\"misdirected\"", 13));
    h1_again(&r);
    assert_int_equal(r.answers, 4); /* of the four that were allowed */
    rig_say(&r, CLIENT, "POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n");
    rig_send(&r, CLIENT, str_n(filler, 200000));
    rig_expect_answer(&r, "HTTP/1.1 421 ", NULL);
    rig_expect_end(&r, CLIENT, false);
    rig_expect_end(&r, UPSTREAM, false);
    mem_free(filler);
    h1_ended_well(&r);
}

static void test_refusals_that_close(void **state)
{
    (void)state;
    static const char *const requests[] = {
        ("GET /refused HTTP/1.1\r\nHost: a\r\n\r\n" GET),
        "POST /refused HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
        "GET /refused HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET /refused HTTP/1.0\r\n\r\n",
    };
    for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
        struct rig r;
        h1_open(&r);
        r.refuse_closes = i == 0;
        rig_say(&r, CLIENT, requests[i]);
        rig_expect_answer(&r, "HTTP/1.1 403 ", NULL);
        rig_expect_end(&r, CLIENT, false);
        rig_expect_end(&r, UPSTREAM, false);
        assert_int_equal(r.requests, 1);
        h1_ended_well(&r);
    }
}

/* ---- framing ---- */

static void test_chunks_and_trailers(void **state)
{
    (void)state;
    struct rig r;
    h1_open(&r);
    rig_say(&r, CLIENT, "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nab");
    rig_expect(&r, UPSTREAM,
               "PUT / HTTP/1.1\r\nhost: a\r\ntrailer: X-Sum\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n");
    rig_say(&r, CLIENT, "c\r\n0\r\nX-Sum: 1\r\nAuthorization: x\r\nIf-Match: b\r\nX_HTTP_Method: PUT\r\n\r\n");
    rig_expect(&r, UPSTREAM, "1\r\nc\r\n0\r\nx-sum: 1\r\n\r\n");
    rig_say(
        &r, UPSTREAM,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n2;x\r\n\x1f\x8b\r\n0\r\nGrpc-Status: 0\r\n\r\n");
    rig_expect(
        &r, CLIENT,
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n2\r\n\x1f\x8b\r\n0\r\nGrpc-Status: 0\r\n\r\n");
    h1_again(&r);
    rig_close(&r);
}

static void test_continue(void **state)
{
    (void)state;
    struct rig r;
    h1_open(&r);
    rig_say(&r, CLIENT, "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n");
    rig_expect(&r, UPSTREAM, "PUT / HTTP/1.1\r\nhost: a\r\nexpect: 100-Continue\r\ncontent-length: 2\r\n\r\n");
    rig_say(&r, UPSTREAM,
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\nContent-Length: 7\r\n\r\n");
    rig_expect(&r, CLIENT, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n");
    assert_int_equal(r.answers, 0);
    rig_say(&r, CLIENT, "hi");
    rig_expect(&r, UPSTREAM, "hi");
    rig_say(&r, UPSTREAM, OK2);
    rig_expect(&r, CLIENT, OK2);
    h1_again(&r);
    rig_close(&r);
}

static void test_answers_without_body(void **state)
{
    (void)state;
    static const struct {
        const char *request, *answer, *out;
    } cases[] = {
        {"HEAD", "200 OK\r\nContent-Length: 5\r\n", "200 OK\r\ncontent-length: 5\r\n"},
        {"HEAD", "200 OK\r\nTransfer-Encoding: chunked\r\n", "200 OK\r\ntransfer-encoding: chunked\r\n"},
        {"HEAD", "200 OK\r\n", "200 OK\r\n"},
        {"GET", "204 No Content\r\nContent-Length: 5\r\n", "204 No Content\r\n"},
        {"GET", "304 Not Modified\r\nContent-Length: 5\r\nETag: x\r\n",
         "304 Not Modified\r\nETag: x\r\ncontent-length: 5\r\n"},
        {"GET", "200 OK\r\nContent-Length: 0\r\n", "200 OK\r\ncontent-length: 0\r\n"},
    };
    struct rig r;
    h1_open(&r);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[256];
        (void)snprintf(text, sizeof(text), "%s / HTTP/1.1\r\nHost: a\r\n\r\n", cases[i].request);
        rig_say(&r, CLIENT, text);
        (void)snprintf(text, sizeof(text), "%s / HTTP/1.1\r\nhost: a\r\n\r\n", cases[i].request);
        rig_expect(&r, UPSTREAM, text);
        (void)snprintf(text, sizeof(text), "HTTP/1.1 %s\r\n", cases[i].answer);
        rig_say(&r, UPSTREAM, text);
        (void)snprintf(text, sizeof(text), "HTTP/1.1 %s\r\n", cases[i].out);
        rig_expect(&r, CLIENT, text);
        h1_again(&r);
    }
    rig_close(&r);
}

static void test_http10(void **state)
{
    (void)state;
    struct rig r;
    h1_open(&r);
    rig_say(&r, CLIENT, "GET / HTTP/1.0\r\nConnection: keep-alive\r\nExpect: 100-continue\r\n\r\n");
    rig_expect(&r, UPSTREAM, "GET / HTTP/1.1\r\nhost: \r\n\r\n");
    rig_say(&r, UPSTREAM, "HTTP/1.1 100 Continue\r\n\r\n" OK2);
    rig_expect(&r, CLIENT, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: keep-alive\r\n\r\nok");
    rig_say(&r, CLIENT, "GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n");
    rig_expect(&r, UPSTREAM, GET_OUT);
    rig_say(&r, UPSTREAM, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n");
    rig_expect(&r, CLIENT, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nok");
    rig_expect_end(&r, CLIENT, false);
    h1_ended_well(&r);
}

static void test_until_close(void **state)
{
    (void)state;
    struct rig r;
    rig_open_tcp(&r, h1_exchange_timed, false);
    rig_say(&r, CLIENT, GET);
    rig_expect(&r, UPSTREAM, GET_OUT);
    rig_say(&r, UPSTREAM, "HTTP/1.0 200 OK\r\n\r\nall ");
    rig_expect(&r, CLIENT, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nall ");
    rig_say(&r, UPSTREAM, "of it");
    rig_leave(&r, UPSTREAM);
    rig_expect(&r, CLIENT, "of it");
    rig_expect_end(&r, CLIENT, false);
    h1_ended_well(&r);
}

static void test_connection_close(void **state)
{
    (void)state;
    struct rig r;
    h1_open(&r);
    rig_say(&r, CLIENT, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /never HTTP/1.1\r\n");
    rig_expect(&r, UPSTREAM, "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    rig_say(&r, UPSTREAM, OK2);
    rig_expect(&r, CLIENT, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
    rig_expect_end(&r, CLIENT, false);
    rig_expect_end(&r, UPSTREAM, false);
    h1_ended_well(&r);

    h1_open(&r);
    rig_say(&r, CLIENT, GET);
    rig_expect(&r, UPSTREAM, GET_OUT);
    rig_say(&r, UPSTREAM, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
    rig_expect(&r, CLIENT, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
    rig_expect_end(&r, CLIENT, false);
    h1_ended_well(&r);
}

/* ---- what is asked about later ---- */

static void test_bodies_that_are_wanted_whole(void **state)
{
    (void)state;
    struct rig r;
    h1_open(&r);
    rig_say(&r, CLIENT, "POST /body HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nContent-Length: 6\r\n\r\nab");
    RIG_UNTIL(&r, r.waits == 1);
    rig_say(&r, CLIENT, "c");
    rig_turn(&r);
    assert_int_equal(r.requests, 0);
    rig_say(&r, CLIENT, "def" GET);
    rig_expect(&r, UPSTREAM, "POST /body HTTP/1.1\r\nhost: a\r\nx-a: 1\r\ncontent-length: 17\r\n\r\nbody=abcdefabcdef");
    rig_say(&r, UPSTREAM, "HTTP/1.1 200 OK\r\nX: secret\r\nY: secrets\r\ncontent-length: 0\r\n\r\n");
    rig_expect(&r, CLIENT, "HTTP/1.1 200 OK\r\nX: masked\r\nY: secrets\r\ncontent-length: 0\r\n\r\n");
    rig_expect(&r, UPSTREAM, GET_OUT);
    rig_say(&r, UPSTREAM, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nt: secret\r\n\r\n");
    rig_expect(&r, CLIENT, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nt: masked\r\n\r\n");
    rig_say(&r, CLIENT, "POST /body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n");
    rig_expect(&r, CLIENT, "HTTP/1.1 100 Continue\r\n\r\n");
    rig_say(&r, CLIENT, "1\r\na\r\n2\r\nbc\r\n0\r\nt: 1\r\n\r\n");
    rig_expect(
        &r, UPSTREAM,
        "POST /body HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nb\r\nbody=abcabc\r\n0\r\nt: 1\r\n\r\n");
    rig_say(&r, UPSTREAM, OK2);
    rig_expect(&r, CLIENT, OK2);
    rig_say(&r, CLIENT, "GET /body HTTP/1.1\r\nHost: a\r\n\r\n"); /* there is none */
    rig_expect(&r, UPSTREAM, "GET /body HTTP/1.1\r\nhost: a\r\n\r\n");
    rig_say(&r, UPSTREAM, OK2);
    rig_expect(&r, CLIENT, OK2);
    assert_int_equal(r.requests, 4);
    assert_int_equal(r.answers, 4);
    h1_again(&r);
    rig_close(&r);
}

static void test_bodies_that_are_too_long_to_be_whole(void **state)
{
    (void)state;
    enum { LONG = EXCHANGE_BODY_MAX + 1 };
    static const char *const heads[][2] = {
        {"Content-Length: 1048577\r\n\r\n", "content-length: 1048577\r\n\r\n"},
        {"Transfer-Encoding: chunked\r\n\r\n100001\r\n", "transfer-encoding: chunked\r\n\r\n"}};
    for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
        AUTO_BUF struct buf text = BUF_INIT(2 * LONG);
        struct rig r;
        size_t n = 0;
        buf_printf(&text, "POST /body HTTP/1.1\r\nHost: a\r\n%s", heads[i][0]);
        for (size_t k = 0; k < LONG; k++)
            buf_append_char(&text, (char)('p' + k % 7));
        buf_append_cstr(&text, i ? "\r\n0\r\n\r\n" : "");
        h1_open(&r);
        rig_send(&r, CLIENT, buf_str(&text));
        RIG_UNTIL(&r, buf_len(&r.got[UPSTREAM]) > 100);
        buf_clear(&text);
        buf_printf(&text, "POST /body HTTP/1.1\r\nhost: a\r\n%s", heads[i][1]);
        buf_append_char(&text, 0);
        rig_expect(&r, UPSTREAM, buf_data(&text));
        while (n < LONG) { /* sizes of chunks lie between */
            RIG_UNTIL(&r, buf_len(&r.got[UPSTREAM]));
            char c = buf_data(&r.got[UPSTREAM])[0];
            if (c >= 'p')
                assert_int_equal(c, 'p' + n++ % 7);
            buf_consume(&r.got[UPSTREAM], 1);
        }
        rig_expect(&r, UPSTREAM, i ? "\r\n0\r\n\r\n" : "");
        assert_int_equal(r.waits, 1);
        assert_int_equal(r.requests, 1);
        rig_say(&r, UPSTREAM, OK2);
        rig_expect(&r, CLIENT, OK2);
        rig_close(&r);
    }
}

static void test_bodies_that_break_off(void **state)
{
    (void)state;
    static const char *const heads[] = {
        "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc",
        "POST /body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"};
    for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
        struct rig r;
        h1_open(&r);
        rig_say(&r, CLIENT, heads[i]);
        RIG_UNTIL(&r, r.waits == 1);
        rig_shut(&r, CLIENT);
        h1_ended_well(&r); /* upstream never heard of it */
        h1_open(&r);
        rig_say(&r, CLIENT, heads[1]);
        rig_say(&r, CLIENT, "nonsense\r\n");
        rig_expect_answer(&r, "HTTP/1.1 400 Bad Request\r\n", NULL);
        assert_int_equal(r.requests, 0);
        rig_close(&r);
    }
}

static void test_time_that_is_wanted(void **state)
{
    (void)state;
    struct rig r;
    h1_open(&r);
    rig_say(&r, CLIENT, "POST /wait HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi" GET);
    RIG_UNTIL(&r, r.waits == 1);
    for (int i = 0; i < 3; i++)
        rig_turn(&r);
    assert_int_equal(r.requests, 0);
    r.is_told = true;
    exchange_resume(r.x);
    rig_expect(&r, UPSTREAM, "POST /wait HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi");
    rig_say(&r, UPSTREAM, OK2);
    rig_expect(&r, CLIENT, OK2);
    rig_expect(&r, UPSTREAM, GET_OUT);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keep_alive),
        cmocka_unit_test(test_pipelining),
        cmocka_unit_test(test_others_have_turns),
        cmocka_unit_test(test_hop_by_hop),
        cmocka_unit_test(test_edits),
        cmocka_unit_test(test_edits_that_cannot_be_sent),
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_bad_heads),
        cmocka_unit_test(test_bad_chunks),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_refusals_that_close),
        cmocka_unit_test(test_chunks_and_trailers),
        cmocka_unit_test(test_continue),
        cmocka_unit_test(test_answers_without_body),
        cmocka_unit_test(test_http10),
        cmocka_unit_test(test_until_close),
        cmocka_unit_test(test_connection_close),
        cmocka_unit_test(test_bodies_that_are_wanted_whole),
        cmocka_unit_test(test_bodies_that_are_too_long_to_be_whole),
        cmocka_unit_test(test_bodies_that_break_off),
        cmocka_unit_test(test_time_that_is_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
