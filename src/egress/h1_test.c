/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/test_exchange.h"

#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define GET "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
#define GET_OUT "GET / HTTP/1.1\r\nhost: a\r\n\r\n"
#define OK2 "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

static void open_h1(struct rig *r)
{
    rig_open(r, h1_exchange_timed, NULL, NULL);
}

/* One plain request is answered: the connection is as good as new. */
static void again(struct rig *r)
{
    rig_say(r, CLIENT, GET);
    rig_expect(r, UPSTREAM, GET_OUT);
    rig_say(r, UPSTREAM, OK2);
    rig_expect(r, CLIENT, OK2);
}

static void expect_log(struct rig *r, const char *text)
{
    assert_int_equal(buf_append_char(&r->log, 0), 0);
    assert_string_equal(buf_data(&r->log), text);
    buf_clear(&r->log);
}

static void ended_well(struct rig *r)
{
    RIG_UNTIL(r, r->end_seen);
    assert_false(r->failed);
    assert_int_equal(r->ends, 1);
    rig_close(r);
}

static void ended_badly(struct rig *r)
{
    RIG_UNTIL(r, r->end_seen);
    assert_true(r->failed);
    rig_close(r);
}

/* ---- what goes through ---- */

static void test_keep_alive(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, h1_exchange_timed, "GET /first?x=1 HTTP/1.1\r\nHo", NULL);
    rig_say(&r, CLIENT, "st: a:80\r\nUser-Agent:  me \r\nX-A: 1\r\nx-a: 2\r\n\r\n");
    rig_expect(&r, UPSTREAM, "GET /first?x=1 HTTP/1.1\r\nhost: a:80\r\nuser-agent: me\r\nx-a: 1\r\nx-a: 2\r\n\r\n");
    expect_log(&r, "GET a:80 /first?x=1\nuser-agent: me\nx-a: 1\nx-a: 2\n\n");
    rig_say(
        &r, UPSTREAM,
        "HTTP/1.1 404 Gone Fishing\r\nSet-Cookie: a\r\nset-cookie: b\r\nContent-Length: 3\r\nKeep-Alive: x\r\n\r\nabc");
    rig_expect(&r, CLIENT,
               "HTTP/1.1 404 Gone Fishing\r\nSet-Cookie: a\r\nset-cookie: b\r\ncontent-length: 3\r\n\r\nabc");
    assert_int_equal(r.last_status, 404);
    for (int i = 0; i < 1000; i++)
        again(&r);
    assert_int_equal(r.requests, 1001);
    assert_int_equal(r.answers, 1001);
    assert_int_equal(r.last_answered, 1001);
    rig_shut(&r, CLIENT);
    rig_expect_end(&r, UPSTREAM, false);
    ended_well(&r);
}

static void test_pipelining(void **state)
{
    (void)state;
    struct rig r;
    open_h1(&r);
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
    open_h1(&r);
    rig_say(
        &r, CLIENT,
        "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: mine\r\nConnection: keep-alive, Authorization , X-B\r\nX-B: 1\r\n"
        "Connection: x-c,host,content-length\r\nX-C: 1\r\nProxy-Authorization: p\r\nProxy-Connection: close\r\nKeep-Alive: 5\r\n"
        "TE: trailers, deflate;q=0.5\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nX-D: 2\r\n\r\n");
    rig_expect(&r, UPSTREAM, "GET / HTTP/1.1\r\nhost: a\r\nte: trailers\r\nx-d: 2\r\nconnection: te\r\n\r\n");
    expect_log(&r, "GET a /\nte: trailers\nx-d: 2\n\n");
    rig_say(
        &r, UPSTREAM,
        "HTTP/1.1 200 OK\r\nConnection: X-E\r\nX-E: 1\r\nX-F: 2\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    rig_expect(&r, CLIENT, "HTTP/1.1 200 OK\r\nX-F: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n");
    again(&r);
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
    open_h1(&r);
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
        open_h1(&r);
        r.edit = edits[i];
        rig_say(&r, CLIENT, GET);
        rig_expect_answer(&r, "HTTP/1.1 500 ", NULL);
        rig_expect_end(&r, CLIENT, false);
        rig_expect_end(&r, UPSTREAM, false);
        assert_int_equal(r.answers, 1);
        assert_int_equal(r.last_status, 500);
        ended_well(&r);
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
        open_h1(&r);
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
    open_h1(&r);
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
        ended_well(&r);
    }
}

/* ---- refusals ---- */

static void test_refusals(void **state)
{
    (void)state;
    struct rig r;
    open_h1(&r);
    AUTO_BUF struct buf body = BUF_INIT(4096);
    rig_say(&r, CLIENT, "POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
    rig_expect_answer(&r, "HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\n", &body);
    assert_true(str_eqc(buf_str(&body), "{\"error\":{\"code\":\"denied\",\"message\":\"rule 1 says \\\"no\\\"\"}}\n"));
    char *filler = mem_zalloc(200000);
    rig_send(&r, CLIENT, str_n(filler, 200000));
    again(&r); /* the body was read: it goes on */
    rig_say(&r, CLIENT,
            "POST /refused HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    rig_expect_answer(&r, "HTTP/1.1 403 ", NULL);
    again(&r);
    rig_say(&r, CLIENT, "HEAD /refused HTTP/1.1\r\nHost: a\r\n\r\n");
    rig_expect(&r, CLIENT, "HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\ncontent-length: 59\r\n\r\n");
    again(&r);
    r.refuse = 421;
    rig_say(&r, CLIENT, "GET /refused HTTP/1.1\r\nHost: b\r\n\r\n");
    buf_clear(&body);
    rig_expect_answer(&r, "HTTP/1.1 421 Misdirected Request\r\n", &body);
    assert_non_null(memmem(buf_data(&body), buf_len(&body), "\"misdirected\"", 13));
    again(&r);
    assert_int_equal(r.answers, 4); /* of the four that were allowed */
    rig_say(&r, CLIENT, "POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n");
    rig_send(&r, CLIENT, str_n(filler, 200000));
    rig_expect_answer(&r, "HTTP/1.1 421 ", NULL);
    rig_expect_end(&r, CLIENT, false);
    rig_expect_end(&r, UPSTREAM, false);
    mem_free(filler);
    ended_well(&r);
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
        open_h1(&r);
        r.refuse_closes = i == 0;
        rig_say(&r, CLIENT, requests[i]);
        rig_expect_answer(&r, "HTTP/1.1 403 ", NULL);
        rig_expect_end(&r, CLIENT, false);
        rig_expect_end(&r, UPSTREAM, false);
        assert_int_equal(r.requests, 1);
        ended_well(&r);
    }
}

/* ---- framing ---- */

static void test_chunks_and_trailers(void **state)
{
    (void)state;
    struct rig r;
    open_h1(&r);
    rig_say(&r, CLIENT, "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nab");
    rig_expect(&r, UPSTREAM,
               "PUT / HTTP/1.1\r\nhost: a\r\ntrailer: X-Sum\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n");
    rig_say(&r, CLIENT, "c\r\n0\r\nX-Sum: 1\r\nAuthorization: x\r\nIf-Match: b\r\n\r\n");
    rig_expect(&r, UPSTREAM, "1\r\nc\r\n0\r\nx-sum: 1\r\n\r\n");
    rig_say(
        &r, UPSTREAM,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n2;x\r\n\x1f\x8b\r\n0\r\nGrpc-Status: 0\r\n\r\n");
    rig_expect(
        &r, CLIENT,
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n2\r\n\x1f\x8b\r\n0\r\nGrpc-Status: 0\r\n\r\n");
    again(&r);
    rig_close(&r);
}

static void test_continue(void **state)
{
    (void)state;
    struct rig r;
    open_h1(&r);
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
    again(&r);
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
    open_h1(&r);
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
        again(&r);
    }
    rig_close(&r);
}

static void test_http10(void **state)
{
    (void)state;
    struct rig r;
    open_h1(&r);
    rig_say(&r, CLIENT, "GET / HTTP/1.0\r\nConnection: keep-alive\r\nExpect: 100-continue\r\n\r\n");
    rig_expect(&r, UPSTREAM, "GET / HTTP/1.1\r\nhost: \r\n\r\n");
    rig_say(&r, UPSTREAM, "HTTP/1.1 100 Continue\r\n\r\n" OK2);
    rig_expect(&r, CLIENT, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: keep-alive\r\n\r\nok");
    rig_say(&r, CLIENT, "GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n");
    rig_expect(&r, UPSTREAM, GET_OUT);
    rig_say(&r, UPSTREAM, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n");
    rig_expect(&r, CLIENT, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nok");
    rig_expect_end(&r, CLIENT, false);
    ended_well(&r);
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
    ended_well(&r);
}

static void test_connection_close(void **state)
{
    (void)state;
    struct rig r;
    open_h1(&r);
    rig_say(&r, CLIENT, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /never HTTP/1.1\r\n");
    rig_expect(&r, UPSTREAM, "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    rig_say(&r, UPSTREAM, OK2);
    rig_expect(&r, CLIENT, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
    rig_expect_end(&r, CLIENT, false);
    rig_expect_end(&r, UPSTREAM, false);
    ended_well(&r);

    open_h1(&r);
    rig_say(&r, CLIENT, GET);
    rig_expect(&r, UPSTREAM, GET_OUT);
    rig_say(&r, UPSTREAM, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
    rig_expect(&r, CLIENT, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
    rig_expect_end(&r, CLIENT, false);
    ended_well(&r);
}

/* ---- upgrade ---- */

static void test_websocket(void **state)
{
    (void)state;
    struct rig r;
    open_h1(&r);
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
    ended_well(&r);
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
        open_h1(&r);
        rig_say(&r, CLIENT, requests[i]);
        rig_expect(&r, UPSTREAM, GET_OUT);
        rig_say(&r, UPSTREAM, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        rig_expect_answer(&r, "HTTP/1.1 502 ", NULL);
        rig_expect_end(&r, CLIENT, false);
        ended_well(&r);
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
        open_h1(&r);
        rig_say(&r, CLIENT, GET);
        rig_expect(&r, UPSTREAM, GET_OUT);
        rig_say(&r, UPSTREAM, answers[i]);
        rig_expect_answer(&r, "HTTP/1.1 502 Bad Gateway\r\n", NULL);
        rig_expect_end(&r, CLIENT, false);
        assert_int_equal(r.last_status, 502);
        ended_well(&r);
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
        ended_badly(&r);
    }
}

static void test_upstream_ends(void **state)
{
    (void)state;
    struct rig r;
    open_h1(&r); /* the first request: it is told */
    rig_say(&r, CLIENT, GET);
    rig_expect(&r, UPSTREAM, GET_OUT);
    rig_say(&r, UPSTREAM, "HTTP/1.1 2");
    rig_leave(&r, UPSTREAM);
    rig_expect_answer(&r, "HTTP/1.1 502 ", NULL);
    rig_expect_end(&r, CLIENT, false);
    ended_well(&r);

    open_h1(&r); /* a later one: the client shall try again */
    again(&r);
    rig_say(&r, CLIENT, GET);
    rig_expect(&r, UPSTREAM, GET_OUT);
    rig_leave(&r, UPSTREAM);
    rig_expect_end(&r, CLIENT, false);
    assert_int_equal(r.answers, 2);
    assert_int_equal(r.last_status, 0);
    ended_well(&r);

    open_h1(&r); /* between two */
    again(&r);
    rig_leave(&r, UPSTREAM);
    rig_expect_end(&r, CLIENT, false);
    ended_well(&r);

    open_h1(&r); /* before the first */
    rig_leave(&r, UPSTREAM);
    rig_turn(&r);
    rig_say(&r, CLIENT, GET);
    rig_expect_answer(&r, "HTTP/1.1 502 ", NULL);
    rig_expect_end(&r, CLIENT, false);
    ended_well(&r);

    open_h1(&r); /* speaks unasked */
    again(&r);
    rig_say(&r, UPSTREAM, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    rig_expect_end(&r, CLIENT, false);
    ended_well(&r);
}

static void test_early_answer(void **state)
{
    (void)state;
    struct rig r;
    open_h1(&r);
    rig_say(&r, CLIENT, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab");
    rig_expect(&r, UPSTREAM, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nab");
    rig_say(&r, UPSTREAM, OK2);
    rig_expect(&r, CLIENT, OK2);
    rig_say(&r, CLIENT, "cd"); /* the rest goes on */
    rig_expect(&r, UPSTREAM, "cd");
    again(&r);
    rig_say(&r, CLIENT, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab");
    rig_expect(&r, UPSTREAM, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nab");
    rig_say(&r, UPSTREAM, "HTTP/1.1 413 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    rig_leave(&r, UPSTREAM);
    rig_expect(&r, CLIENT, "HTTP/1.1 413 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    rig_expect_end(&r, CLIENT, false);
    ended_well(&r);
}

static void test_client_leaves(void **state)
{
    (void)state;
    struct rig r;
    open_h1(&r); /* half-close behind a whole request is fine */
    rig_say(&r, CLIENT, GET);
    rig_shut(&r, CLIENT);
    rig_expect(&r, UPSTREAM, GET_OUT);
    rig_say(&r, UPSTREAM, OK2);
    rig_expect(&r, CLIENT, OK2);
    rig_expect_end(&r, CLIENT, false);
    ended_well(&r);

    rig_open_tcp(&r, h1_exchange_timed, false); /* within a body: upstream sees a failure */
    rig_say(&r, CLIENT, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n");
    rig_expect(&r, UPSTREAM, "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n");
    rig_leave(&r, CLIENT);
    rig_expect_end(&r, UPSTREAM, true);
    assert_int_equal(r.answers, 1);
    assert_int_equal(r.last_status, 0);
    ended_badly(&r);

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
    ended_badly(&r);

    open_h1(&r); /* within a head */
    rig_say(&r, CLIENT, "GET / HT");
    rig_shut(&r, CLIENT);
    rig_expect_end(&r, CLIENT, false);
    rig_expect_end(&r, UPSTREAM, false);
    assert_int_equal(r.requests, 0);
    ended_well(&r);
}

static void test_time_limits(void **state)
{
    (void)state;
    static const struct exchange_times head = {20, 100000, 100000}, idle = {100000, 20, 100000},
                                       stall = {100000, 100000, 20};
    struct rig r;
    rig_open(&r, h1_exchange_timed, NULL, &head);
    rig_say(&r, CLIENT, "GET / HTTP/1.1\r\nHost: a\r\n");
    rig_expect_answer(&r, "HTTP/1.1 408 ", NULL);
    rig_expect_end(&r, CLIENT, false);
    ended_well(&r);

    rig_open(&r, h1_exchange_timed, NULL, &idle);
    rig_expect_end(&r, CLIENT, false);
    ended_well(&r);

    rig_open(&r, h1_exchange_timed, NULL, &stall);
    rig_say(&r, CLIENT, GET);
    rig_expect_answer(&r, "HTTP/1.1 504 ", NULL);
    rig_expect_end(&r, CLIENT, false);
    ended_well(&r);
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
    again(&r);
    rig_close(&r);

    rig_open_tcp(&r, h1_exchange_timed, true);
    rig_say(&r, CLIENT, GET);
    RIG_UNTIL(&r, r.requests == 1);
    exchange_upstream(r.x, NULL, "nobody there");
    AUTO_BUF struct buf body = BUF_INIT(1000);
    rig_expect_answer(&r, "HTTP/1.1 502 ", &body);
    assert_non_null(memmem(buf_data(&body), buf_len(&body), "nobody there", 12));
    rig_expect_end(&r, CLIENT, false);
    ended_well(&r);
}

static void test_closed_from_within(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct rig r;
        open_h1(&r);
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
    open_h1(&r);
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
    again(&r);
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
    open_h1(&r);
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
    again(&r);
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
        cmocka_unit_test(test_keep_alive),
        cmocka_unit_test(test_pipelining),
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
        cmocka_unit_test(test_websocket),
        cmocka_unit_test(test_upgrades_that_are_none),
        cmocka_unit_test(test_upstream_garbage),
        cmocka_unit_test(test_truncated_answers),
        cmocka_unit_test(test_upstream_ends),
        cmocka_unit_test(test_early_answer),
        cmocka_unit_test(test_client_leaves),
        cmocka_unit_test(test_time_limits),
        cmocka_unit_test(test_dialled_late),
        cmocka_unit_test(test_closed_from_within),
        cmocka_unit_test(test_closed_in_between),
        cmocka_unit_test(test_events_come_at_once),
        cmocka_unit_test(test_large_bodies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
