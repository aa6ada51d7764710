/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/mem.h"
#include "egress/http/test_h2.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void test_requests(void **state)
{
    (void)state;
    struct ends w;
    ends_open(&w, NULL);
    int32_t id =
        ends_ask(&w,
                 ":method: POST\n:scheme: https\n:authority: a:443\n:path: /x?y\nhost: A:443\ncontent-length: 5\n"
                 "te: trailers\nauthorization: mine\ncookie: a=b\ncookie: c=d\nproxy-authorization: z\n",
                 "hello", true);
    ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 1)->ended);
    ends_expect(&ends_at(&w, UPSTREAM, 1)->head,
                ":method: POST\n:scheme: https\n:authority: a:443\n:path: /x?y\nte: trailers\nauthorization: mine\n"
                "cookie: a=b\ncookie: c=d\ncontent-length: 5\n");
    ends_expect(&w.r.log, "POST a:443 /x?y\nte: trailers\nauthorization: mine\ncookie: a=b\ncookie: c=d\n\n");
    ends_expect(&ends_at(&w, UPSTREAM, 1)->body, "hello");
    nghttp2_nv early[] = {h2_nv(STR(":status"), STR("103")), h2_nv(STR("link"), STR("</x>"))};
    assert_int_equal(nghttp2_submit_headers(w.half[UPSTREAM]->session, 0, 1, NULL, early, 2, NULL), 0);
    ENDS_UNTIL(&w, buf_len(&ends_at(&w, CLIENT, id)->informed));
    ends_expect(&ends_at(&w, CLIENT, id)->informed, ":status: 103\nlink: </x>\n");
    assert_int_equal(w.r.answers, 0);
    ends_at(&w, UPSTREAM, 1)->out_trailer = "0";
    ends_answer(&w, 1, ":status: 404\nx: y\n", "", false);
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->has_head); /* before any of the body */
    assert_int_equal(w.r.last_status, 404);
    ends_give(&w, UPSTREAM, 1, "first", false);
    ENDS_UNTIL(&w, buf_len(&ends_at(&w, CLIENT, id)->body) == 5);
    ends_give(&w, UPSTREAM, 1, "last", true);
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->closed);
    ends_expect(&ends_at(&w, CLIENT, id)->head, ":status: 404\nx: y\n");
    ends_expect(&ends_at(&w, CLIENT, id)->body, "firstlast");
    ends_expect(&ends_at(&w, CLIENT, id)->trailers, "grpc-status: 0\nauthorization: x\nx_forwarded_host: b\n");
    for (int i = 0; i < 100; i++)
        (void)ends_again(&w);
    assert_int_equal(w.r.requests, 101);
    assert_int_equal(w.r.answers, 101);
    ends_close(&w);
}

static void test_request_trailers(void **state)
{
    (void)state;
    struct ends w;
    ends_open(&w, NULL);
    int32_t id = ends_ask(&w, ENDS_ASK, "hi", false);
    ends_at(&w, CLIENT, id)->out_trailer = "7";
    ends_give(&w, CLIENT, id, "", true);
    ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 1)->ended);
    ends_expect(&ends_at(&w, UPSTREAM, 1)->trailers, "grpc-status: 7\n"); /* and no authorization that nobody judged */
    ends_answer(&w, 1, ":status: 200\n", NULL, true);
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->closed);
    assert_true(ends_at(&w, CLIENT, id)->ended);
    ends_close(&w);
}

#define ENDS_BODY ":method: POST\n:scheme: https\n:authority: a\n:path: /body\n"

static void test_bodies_that_are_wanted_whole(void **state)
{
    (void)state;
    enum { MANY = 8, PIECE = 64 * 1024, PIECES = 8 }; /* more together than the connection's window */
    static char piece[PIECE + 1];
    struct ends w;
    int32_t ids[MANY];
    ends_open(&w, NULL);
    int32_t id = ends_ask(&w, ENDS_BODY "x-a: 1\ncontent-length: 6\n", "abc", false);
    ENDS_UNTIL(&w, w.r.waits == 1);
    assert_int_equal(w.r.requests, 0);
    ends_give(&w, CLIENT, id, "def", true);
    ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 1)->ended);
    ends_expect(&ends_at(&w, UPSTREAM, 1)->head, ENDS_BODY "x-a: 1\ncontent-length: 17\n");
    ends_expect(&ends_at(&w, UPSTREAM, 1)->body, "body=abcdefabcdef");
    ends_answer(&w, 1, ":status: 200\nx: secret\n", NULL, true);
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->closed);
    ends_expect(&ends_at(&w, CLIENT, id)->head, ":status: 200\nx: masked\n");
    id = ends_ask(&w, ENDS_BODY, NULL, true); /* there is none */
    ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 3)->ended);
    ends_expect(&ends_at(&w, UPSTREAM, 3)->body, "");
    id = ends_ask(&w, ENDS_BODY, "gone", false);
    ENDS_UNTIL(&w, w.r.waits == 3);
    (void)nghttp2_submit_rst_stream(w.half[CLIENT]->session, 0, id, NGHTTP2_CANCEL);
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->closed);
    id = ends_ask(&w, ENDS_BODY, "hi", false);
    ends_at(&w, CLIENT, id)->out_trailer = "7";
    ends_give(&w, CLIENT, id, "", true);
    ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 5)->ended);
    ends_expect(&ends_at(&w, UPSTREAM, 5)->body, "body=hihi");
    ends_expect(&ends_at(&w, UPSTREAM, 5)->trailers, "grpc-status: 7\n");
    memset(piece, 'x', PIECE);
    for (int i = 0; i < MANY; i++)
        ids[i] = ends_ask(&w, ENDS_BODY, piece, false);
    for (int k = 1; k < PIECES; k++)
        for (int i = 0; i < MANY; i++)
            ends_give(&w, CLIENT, ids[i], piece, k == PIECES - 1);
    for (int i = 0; i < MANY; i++) {
        ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 7 + 2 * i)->ended);
        assert_int_equal(buf_len(&ends_at(&w, UPSTREAM, 7 + 2 * i)->body), 5 + 2 * PIECE * PIECES);
    }
    ends_close(&w);
}

static void test_bodies_that_are_too_long_to_be_whole(void **state)
{
    (void)state;
    enum { PIECE = 64 * 1024, PIECES = EXCHANGE_BODY_MAX / PIECE + 2 };
    static char piece[PIECE + 1];
    memset(piece, 'x', PIECE);
    for (int with_length = 0; with_length < 2; with_length++) {
        struct ends w;
        ends_open(&w, NULL);
        int32_t id = ends_ask(&w, with_length ? ENDS_BODY "content-length: 1179648\n" : ENDS_BODY, piece, false);
        for (int i = 1; i < PIECES; i++)
            ends_give(&w, CLIENT, id, piece, i == PIECES - 1);
        ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 1)->ended);
        assert_int_equal(buf_len(&ends_at(&w, UPSTREAM, 1)->body), PIECE * PIECES);
        assert_int_equal(w.r.waits, 1);
        ends_answer(&w, 1, ":status: 200\n", NULL, true);
        ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->closed);
        (void)ends_again(&w);
        ends_close(&w);
    }
}

static void inject(struct exchange_head *h)
{
    exchange_set(h, STR("authorization"), STR("Bearer real"));
}

static void inject_pseudo(struct exchange_head *h)
{
    exchange_set(h, STR(":path"), STR("/other"));
}

static void test_edits(void **state)
{
    (void)state;
    struct ends w;
    ends_open(&w, NULL);
    w.r.edit = inject;
    (void)ends_ask(&w, ENDS_ASK "authorization: a\nauthorization: b\n", NULL, true);
    ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 1)->ended);
    ends_expect(&ends_at(&w, UPSTREAM, 1)->head, ENDS_ASK "authorization: Bearer real\n");
    w.r.edit = inject_pseudo;
    int32_t id = ends_ask(&w, ENDS_ASK, NULL, true);
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->closed);
    assert_true(str_starts(buf_str(&ends_at(&w, CLIENT, id)->head), STR(":status: 500\n")));
    w.r.edit = NULL;
    (void)ends_again(&w);
    ends_close(&w);
}

static void test_refusals(void **state)
{
    (void)state;
    struct ends w;
    ends_open(&w, NULL);
    static const struct {
        const char *fields, *status;
    } cases[] = {
        {":method: GET\n:scheme: https\n:authority: a\n:path: /refused\n", ":status: 403\n"},
        {":method: GET\n:scheme: https\n:authority: a\n:path: /\nhost: b\n", ":status: 400\n"},
        {":method: GET\n:scheme: https\n:authority: a b\n:path: /\n", NULL},
        {":method: GET\n:scheme: https\n:authority: x@a\n:path: /\n", ":status: 400\n"},
        {":method: GET\n:scheme: https\n:authority: a%00b\n:path: /\n", ":status: 400\n"},
        {":method: GET\n:scheme: https\n:authority: a\n:path: /\nhost: a\nhost: b\n", NULL},
        {":method: GET\n:scheme: ftp\n:authority: a\n:path: /\n", ":status: 400\n"},
        {":method: GET\n:scheme: https\n:authority: a\n:path: /a b\n", NULL},
        {":method: GET\n:scheme: https\n:authority: a\n:path: /a#b\n", ":status: 400\n"},
        {":method: GET\n:scheme: https\n:authority: a\n:path: http://b/\n", NULL},
        {":method: GET\n:scheme: https\n:path: /\n", NULL},
        {":method: GET\n:authority: a\n:path: /\n", NULL},
        {":method: GET\n:scheme: https\n:authority: a\n:path: /\n:path: /b\n", NULL},
        {":method: GET\n:scheme: https\n:authority: a\nx: y\n:path: /b\n", NULL},
        {":method: TRACE\n:scheme: https\n:authority: a\n:path: /\n", ":status: 405\n"},
        {":method: connect\n:scheme: https\n:authority: a\n:path: /\n", ":status: 405\n"},
        {":method: CONNECT\n:authority: a:443\n", ":status: 405\n"},
        {":method: CONNECT\n:protocol: websocket\n:scheme: https\n:authority: a\n:path: /\n", NULL},
        {ENDS_ASK "connection: authorization\n", NULL},
        {ENDS_ASK "transfer-encoding: chunked\n", NULL},
        {ENDS_ASK "upgrade: websocket\n", NULL},
        {ENDS_ASK "te: gzip\n", NULL},
        {ENDS_ASK "bad name: x\n", NULL},
        {ENDS_ASK "x: a\rb\n", NULL},
        {ENDS_ASK "content-length: +5\n", NULL},
        {ENDS_ASK "content-length: 5\ncontent-length: 6\n", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int32_t id = ends_ask(&w, cases[i].fields, NULL, true);
        ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->closed);
        struct str head = buf_str(&ends_at(&w, CLIENT, id)->head);
        bool good =
            cases[i].status ? str_starts(head, str_of(cases[i].status)) : head.n == 0 && ends_at(&w, CLIENT, id)->code;
        if (!good)
            print_message("%s -> %.*s, code %u\n", cases[i].fields, STR_ARG(head), ends_at(&w, CLIENT, id)->code);
        assert_true(good);
        assert_false(ends_at(&w, UPSTREAM, 1)->has_head);
    }
    assert_int_equal(w.r.requests, 1);
    assert_int_equal(w.r.answers, 0);
    assert_int_equal(ends_again(&w), 1);
    w.r.refuse = 421;
    int32_t id = ends_ask(&w, ":method: POST\n:scheme: https\n:authority: b\n:path: /refused\n", "part", false);
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->closed); /* nobody waits for the rest */
    assert_int_equal(ends_at(&w, CLIENT, id)->code, NGHTTP2_NO_ERROR);
    assert_true(ends_at(&w, CLIENT, id)->ended);
    ends_expect(&ends_at(&w, CLIENT, id)->body,
                "{\"error\":{\"code\":\"misdirected\",\"message\":\"rule 1 says \\\"no\\\"\"}}\n");
    (void)ends_again(&w);
    w.r.refuse_closes = true;
    id = ends_ask(&w, ":method: HEAD\n:scheme: https\n:authority: b\n:path: /refused\n", NULL, true);
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->closed);
    assert_int_equal(buf_len(&ends_at(&w, CLIENT, id)->body), 0);
    ENDS_UNTIL(&w, w.r.end_seen);
    assert_false(w.r.failed);
    ENDS_UNTIL(&w, w.half[CLIENT]->goaways == 1 && w.r.eof[CLIENT]);
    ends_close(&w);
}

static void test_large_heads(void **state)
{
    (void)state;
    struct ends w;
    ends_open(&w, NULL);
    AUTO_BUF struct buf fields = BUF_INIT(1024 * 1024);
    buf_append_cstr(&fields, ENDS_ASK);
    for (int i = 0; i < EXCHANGE_FIELDS_MAX + 1; i++)
        buf_append_cstr(&fields, "x: y\n");
    buf_append_char(&fields, 0);
    int32_t id = ends_ask(&w, buf_data(&fields), NULL, true);
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->closed);
    assert_true(str_starts(buf_str(&ends_at(&w, CLIENT, id)->head), STR(":status: 431\n")));
    buf_clear(&fields);
    buf_append_cstr(&fields, ENDS_ASK);
    for (int k = 0; k < 5; k++) { /* too much in all, none of them alone */
        buf_append_cstr(&fields, "x: ");
        for (int i = 0; i < 13200; i++)
            buf_append_char(&fields, (char)('a' + (i + k) % 26));
        buf_append_char(&fields, '\n');
    }
    buf_append_char(&fields, 0);
    id = ends_ask(&w, buf_data(&fields), NULL, true);
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->closed);
    assert_true(str_starts(buf_str(&ends_at(&w, CLIENT, id)->head), STR(":status: 431\n")));
    buf_clear(&fields);
    buf_append_cstr(&fields, ENDS_ASK);
    for (int i = 0; i < 120; i++) { /* a byte each, but for the first: much more than anybody looks at */
        buf_append_cstr(&fields, "x: ");
        for (int k = 0; k < 2900; k++)
            buf_append_char(&fields, 'x');
        buf_append_char(&fields, '\n');
    }
    buf_append_char(&fields, 0);
    id = ends_ask(&w, buf_data(&fields), NULL, true);
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->closed);
    assert_int_equal(buf_len(&ends_at(&w, CLIENT, id)->head), 0);
    assert_int_equal(w.r.requests, 0);
    (void)ends_again(&w);
    ends_close(&w);
}

static void test_many_early_heads(void **state)
{
    (void)state;
    struct ends w;
    ends_open(&w, NULL);
    int32_t id = ends_ask(&w, ENDS_ASK, NULL, true);
    ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 1)->ended);
    nghttp2_nv early[] = {h2_nv(STR(":status"), STR("103"))};
    for (int i = 0; i < 2 * H2_INFORMED_MAX; i++)
        assert_int_equal(nghttp2_submit_headers(w.half[UPSTREAM]->session, 0, 1, NULL, early, 1, NULL), 0);
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->closed && ends_at(&w, UPSTREAM, 1)->closed);
    assert_true(str_starts(buf_str(&ends_at(&w, CLIENT, id)->head), STR(":status: 502\n")));
    (void)ends_again(&w);
    ends_close(&w);
}

static void test_resets(void **state)
{
    (void)state;
    struct ends w;
    ends_open(&w, NULL);
    int32_t id = ends_ask(&w, ENDS_ASK, "part", false); /* by the client */
    ENDS_UNTIL(&w, buf_len(&ends_at(&w, UPSTREAM, 1)->body) == 4);
    assert_int_equal(nghttp2_submit_rst_stream(w.half[CLIENT]->session, 0, id, NGHTTP2_CANCEL), 0);
    ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 1)->closed);
    assert_int_equal(ends_at(&w, UPSTREAM, 1)->code, NGHTTP2_CANCEL);
    ENDS_UNTIL(&w, w.r.answers == 1);
    assert_int_equal(w.r.last_status, 0);

    id = ends_ask(&w, ENDS_ASK, NULL, true); /* by upstream, with nothing said */
    ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 3)->ended);
    assert_int_equal(nghttp2_submit_rst_stream(w.half[UPSTREAM]->session, 0, 3, NGHTTP2_REFUSED_STREAM), 0);
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->closed);
    assert_int_equal(ends_at(&w, CLIENT, id)->code, NGHTTP2_REFUSED_STREAM);
    assert_int_equal(w.r.answers, 2);

    id = ends_ask(&w, ENDS_ASK, NULL, true); /* within an answer */
    ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 5)->ended);
    ends_answer(&w, 5, ":status: 200\n", "part", false);
    ENDS_UNTIL(&w, buf_len(&ends_at(&w, CLIENT, id)->body) == 4);
    assert_int_equal(nghttp2_submit_rst_stream(w.half[UPSTREAM]->session, 0, 5, NGHTTP2_INTERNAL_ERROR), 0);
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->closed);
    assert_int_equal(ends_at(&w, CLIENT, id)->code, NGHTTP2_INTERNAL_ERROR);
    assert_false(ends_at(&w, CLIENT, id)->ended);
    assert_int_equal(w.r.answers, 3);

    id = ends_ask(&w, ENDS_ASK, "part", false); /* answered and closed before all was sent */
    ENDS_UNTIL(&w, buf_len(&ends_at(&w, UPSTREAM, 7)->body) == 4);
    ends_answer(&w, 7, ":status: 413\n", "no", true);
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->ended);
    assert_int_equal(nghttp2_submit_rst_stream(w.half[UPSTREAM]->session, 0, 7, NGHTTP2_NO_ERROR), 0);
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->closed);
    assert_int_equal(ends_at(&w, CLIENT, id)->code, NGHTTP2_NO_ERROR);
    (void)ends_again(&w);
    ends_close(&w);
}

static void test_upstream_leaves(void **state)
{
    (void)state;
    struct ends w;
    ends_open(&w, NULL); /* GOAWAY: what is begun is finished */
    int32_t id = ends_ask(&w, ENDS_ASK, NULL, true);
    ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 1)->ended);
    assert_int_equal(nghttp2_submit_goaway(w.half[UPSTREAM]->session, 0, 1, 0, NULL, 0), 0);
    ENDS_UNTIL(&w, w.half[CLIENT]->goaways == 1);
    ends_answer(&w, 1, ":status: 200\n", "ok", true);
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->closed);
    ends_expect(&ends_at(&w, CLIENT, id)->body, "ok");
    ENDS_UNTIL(&w, w.r.end_seen && w.r.eof[CLIENT]);
    assert_false(w.r.failed);
    ends_close(&w);

    ends_open(&w, NULL); /* lost: before and within an answer */
    id = ends_ask(&w, ENDS_ASK, NULL, true);
    int32_t other = ends_ask(&w, ENDS_ASK, NULL, true);
    ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 1)->ended && ends_at(&w, UPSTREAM, 3)->ended);
    ends_answer(&w, 3, ":status: 200\n", "part", false);
    ENDS_UNTIL(&w, buf_len(&ends_at(&w, CLIENT, other)->body) == 4);
    rig_leave(&w.r, UPSTREAM);
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->closed && ends_at(&w, CLIENT, other)->closed);
    assert_true(str_starts(buf_str(&ends_at(&w, CLIENT, id)->head), STR(":status: 502\n")));
    assert_int_equal(ends_at(&w, CLIENT, other)->code, NGHTTP2_INTERNAL_ERROR);
    assert_false(ends_at(&w, CLIENT, other)->ended);
    ENDS_UNTIL(&w, w.r.end_seen && w.r.eof[CLIENT]);
    assert_int_equal(w.r.answers, 2);
    ends_close(&w);

    ends_open_tcp(&w); /* lost without an end: nothing else moves then */
    id = ends_ask(&w, ENDS_ASK, NULL, true);
    ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 1)->ended);
    const struct linger now = {1, 0};
    assert_int_equal(setsockopt(w.r.fd[UPSTREAM], SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    rig_leave(&w.r, UPSTREAM);
    for (int i = 0; i < 1000 && !ends_at(&w, CLIENT, id)->closed; i++)
        ends_turn(&w);
    assert_true(ends_at(&w, CLIENT, id)->closed);
    assert_true(str_starts(buf_str(&ends_at(&w, CLIENT, id)->head), STR(":status: 502\n")));
    ENDS_UNTIL(&w, w.r.end_seen && w.r.eof[CLIENT]);
    ends_close(&w);

    ends_open(&w, NULL); /* before the first request */
    rig_leave(&w.r, UPSTREAM);
    ends_turn(&w);
    id = ends_ask(&w, ENDS_ASK, NULL, true);
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->closed);
    assert_true(str_starts(buf_str(&ends_at(&w, CLIENT, id)->head), STR(":status: 502\n")));
    ENDS_UNTIL(&w, w.r.end_seen && w.r.eof[CLIENT]);
    ends_close(&w);

    ends_open(&w, NULL); /* not HTTP/2 at all */
    w.half[UPSTREAM]->dead = true;
    id = ends_ask(&w, ENDS_ASK, NULL, true);
    rig_say(&w.r, UPSTREAM, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->closed);
    assert_true(str_starts(buf_str(&ends_at(&w, CLIENT, id)->head), STR(":status: 502\n")));
    ENDS_UNTIL(&w, w.r.end_seen && w.r.eof[CLIENT]);
    ends_close(&w);
}

static void test_client_leaves(void **state)
{
    (void)state;
    struct ends w;
    ends_open(&w, NULL);
    (void)ends_ask(&w, ENDS_ASK, "part", false);
    ENDS_UNTIL(&w, buf_len(&ends_at(&w, UPSTREAM, 1)->body) == 4);
    rig_leave(&w.r, CLIENT);
    ENDS_UNTIL(&w, w.r.end_seen && (w.r.eof[UPSTREAM] || w.r.error[UPSTREAM]));
    assert_false(ends_at(&w, UPSTREAM, 1)->ended);
    assert_int_equal(w.r.answers, 1);
    assert_int_equal(w.r.last_status, 0);
    ends_close(&w);
}

/* A reader that sleeps makes the sender wait, and what is kept meanwhile is bounded; other streams go on. */
static void sleeping_reader(enum peer from)
{
    enum { TOTAL = 8 * 1024 * 1024 };
    enum peer to = from == CLIENT ? UPSTREAM : CLIENT;
    struct ends w;
    ends_open(&w, NULL);
    char *body = mem_alloc(TOTAL + 1);
    for (size_t i = 0; i < TOTAL; i++)
        body[i] = (char)('a' + i % 23);
    body[TOTAL] = 0;
    w.half[to]->no_credit = true;
    int32_t id = ends_ask(&w, ENDS_ASK, from == CLIENT ? body : NULL, true);
    ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 1)->has_head);
    if (from == UPSTREAM)
        ends_answer(&w, 1, ":status: 200\n", body, true);
    struct seen *s = ends_at(&w, to, from == CLIENT ? 1 : id);
    ENDS_UNTIL(&w, buf_len(&s->body) == 65535); /* the reader's window */
    for (int i = 0; i < 300; i++)
        ends_turn(&w);
    assert_int_equal(buf_len(&s->body), 65535);
    size_t left = buf_len(&ends_at(&w, from, from == CLIENT ? id : 1)->out);
    assert_true(left > TOTAL - 65535 - 2 * H2_UPSTREAM_WINDOW);
    w.half[to]->no_credit = false;
    assert_int_equal(nghttp2_session_consume(w.half[to]->session, from == CLIENT ? 1 : id, 65535), 0);
    ENDS_UNTIL(&w, s->ended);
    assert_int_equal(buf_len(&s->body), TOTAL);
    assert_memory_equal(buf_data(&s->body), body, TOTAL);
    if (from == CLIENT)
        ends_answer(&w, 1, ":status: 200\n", NULL, true);
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->closed);
    (void)ends_again(&w);
    mem_free(body);
    ends_close(&w);
}

static void test_flow_control(void **state)
{
    (void)state;
    sleeping_reader(CLIENT);
    sleeping_reader(UPSTREAM);
}

static void test_many_streams(void **state)
{
    (void)state;
    struct ends w;
    ends_open(&w, NULL);
    (void)ends_again(&w); /* the limit is known now */
    int32_t ids[150];
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
        ids[i] = ends_ask(&w, ENDS_ASK, "x", true);
    ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 3 + 2 * (EXCHANGE_STREAMS_MAX - 1))->ended);
    for (int i = 0; i < 50; i++)
        ends_turn(&w);
    assert_int_equal(w.r.requests, 1 + EXCHANGE_STREAMS_MAX);
    for (int32_t i = 0; i < (int32_t)ARRAY_SIZE(ids); i++) {
        ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 3 + 2 * i)->ended);
        ends_answer(&w, 3 + 2 * i, ":status: 200\n", "y", true);
    }
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        ENDS_UNTIL(&w, ends_at(&w, CLIENT, ids[i])->closed);
        ends_expect(&ends_at(&w, CLIENT, ids[i])->body, "y");
    }
    ends_close(&w);
}

/* Frames that cost and bring nothing: the connection is ended, whatever is said. */
static void flood(struct str frame, size_t times)
{
    struct ends w;
    ends_open(&w, NULL);
    (void)ends_again(&w);
    assert_int_equal(ends_ask(&w, ENDS_ASK, "part", false), 3); /* one that DATA may belong to */
    ENDS_UNTIL(&w, buf_len(&ends_at(&w, UPSTREAM, 3)->body) == 4);
    for (size_t i = 0; i < times && !w.r.end_seen && !w.r.error[CLIENT] && !w.r.eof[CLIENT]; i++) {
        ssize_t n;
        while ((n = send(w.r.fd[CLIENT], frame.p, frame.n, MSG_NOSIGNAL | MSG_DONTWAIT)) < 0 && errno == EAGAIN &&
               !w.r.end_seen)
            rig_turn(&w.r);
        if (n != (ssize_t)frame.n)
            break;
    }
    ENDS_UNTIL(&w, w.r.end_seen);
    ends_close(&w);
}

static void test_floods(void **state)
{
    (void)state;
    static const char ping[] = "\0\0\x08\x06\0\0\0\0\0abcdefgh", settings[] = "\0\0\0\x04\0\0\0\0\0",
                      priority[] = "\0\0\x05\x02\0\0\0\0\x09\0\0\0\0\0", data[] = "\0\0\0\0\0\0\0\0\x03";
    flood(str_n(ping, sizeof(ping) - 1), 100000);
    flood(str_n(settings, sizeof(settings) - 1), 100000);
    flood(str_n(priority, sizeof(priority) - 1), 100000);
    flood(str_n(data, sizeof(data) - 1), 100000);
    /* HEADERS without end, and CONTINUATION for ever. */
    static const char headers[] = "\0\0\x01\x01\0\0\0\0\x03\x82", more[] = "\0\0\x01\x09\0\0\0\0\x03\x84";
    struct ends w;
    ends_open(&w, NULL);
    (void)ends_again(&w);
    rig_send(&w.r, CLIENT, str_n(headers, sizeof(headers) - 1));
    for (int i = 0; i < 1000 && send(w.r.fd[CLIENT], more, sizeof(more) - 1, MSG_NOSIGNAL | MSG_DONTWAIT) > 0; i++)
        rig_turn(&w.r);
    ENDS_UNTIL(&w, w.r.end_seen);
    ends_close(&w);
}

static void test_rapid_reset(void **state)
{
    (void)state;
    struct ends w;
    ends_open(&w, NULL);
    (void)ends_again(&w);
    /* GET / of a, by the static table, then RST_STREAM. */
    for (uint32_t id = 3; id < 100000 && !w.r.end_seen; id += 2) {
        char two[9 + 7 + 9 + 4] = {0, 0, 6, 1, 5, 0, 0, 0, 0, '\x82', '\x87', '\x84', 0x01, 0x01, 'a'};
        two[7] = (char)(id >> 8), two[8] = (char)id;
        char *reset = two + 15;
        reset[2] = 4, reset[3] = 3, reset[7] = (char)(id >> 8), reset[8] = (char)id, reset[12] = 8;
        if (id > 65535)
            break;
        while (send(w.r.fd[CLIENT], two, 15 + 13, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EAGAIN && !w.r.end_seen)
            ends_turn(&w);
    }
    ENDS_UNTIL(&w, w.r.end_seen);
    assert_true(w.r.requests < 3000);
    assert_int_equal(w.r.requests, w.r.answers);
    w.half[UPSTREAM]->dead = w.half[CLIENT]->dead = true;
    ends_close(&w);
}

static void test_time_limits(void **state)
{
    (void)state;
    static const struct exchange_times head = {20, 100000, 100000, 100000}, idle = {100000, 20, 100000, 100000},
                                       stall = {100000, 100000, 20, 100000};
    struct rig r;
    rig_open(&r, h2_exchange_timed, "PRI * HTTP/2.0\r\n", &head); /* and no more of the preface */
    RIG_UNTIL(&r, r.end_seen);
    rig_close(&r);

    struct ends w;
    ends_open(&w, &head);
    (void)ends_again(&w);
    static const char headers[] = "\0\0\x20\x01\x05\0\0\0\x03\x82";
    rig_send(&w.r, CLIENT, str_n(headers, sizeof(headers) - 1));
    ENDS_UNTIL(&w, w.r.end_seen);
    ends_close(&w);

    ends_open(&w, &idle);
    (void)ends_again(&w);
    ENDS_UNTIL(&w, w.r.end_seen && w.half[CLIENT]->goaways);
    assert_false(w.r.failed);
    ends_close(&w);

    ends_open(&w, &stall);
    (void)ends_ask(&w, ENDS_ASK, NULL, true);
    ENDS_UNTIL(&w, w.r.end_seen);
    assert_true(w.r.failed);
    assert_int_equal(w.r.answers, 1);
    ends_close(&w);
}

static void test_closed_from_within(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct ends w;
        ends_open(&w, NULL);
        w.r.close_in_request = i == 0;
        w.r.close_in_answer = i == 1;
        w.r.close_in_end = i == 2;
        (void)ends_ask(&w, ENDS_ASK, NULL, true);
        (void)ends_ask(&w, ENDS_ASK, NULL, true);
        if (i > 0) {
            ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 1)->ended);
            ends_answer(&w, 1, ":status: 200\n", NULL, true);
        }
        if (i == 2) {
            ENDS_UNTIL(&w, w.r.answers == 1);
            rig_leave(&w.r, CLIENT);
        }
        ENDS_UNTIL(&w, !w.r.x);
        ends_close(&w);
    }
}

/* ---- a real client ---- */

/* Runs curl with these arguments, its output to *ret_out. False: there is none. */
static bool start_curl(const char *const *arguments, pid_t *ret_pid, int *ret_out)
{
    int out[2];
    posix_spawn_file_actions_t actions;
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO), 0);
    int r = posix_spawnp(ret_pid, "curl", &actions, NULL, (char *const *)(uintptr_t)arguments, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)fd_close(out[1]);
    *ret_out = out[0];
    if (r)
        (void)fd_close(out[0]);
    return r == 0;
}

static bool curl_speaks_h2(void)
{
    static const char *const arguments[] = {"curl", "-q", "-V", NULL};
    AUTO_BUF struct buf text = BUF_INIT(65536);
    pid_t pid;
    int out;
    if (!start_curl(arguments, &pid, &out))
        return false;
    assert_int_equal(fd_read_all(out, &text), 0);
    (void)fd_close(out);
    (void)waitpid(pid, NULL, 0);
    return memmem(buf_data(&text), buf_len(&text), " HTTP2 ", 7) != NULL;
}

static void test_curl(void **state)
{
    (void)state;
    if (!curl_speaks_h2()) {
        print_message("no curl with HTTP/2\n");
        skip();
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), out;
    assert_int_equal(bind(listener, (struct sockaddr *)&address, n), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &n), 0);
    char authority[32], url[64];
    (void)snprintf(authority, sizeof(authority), "127.0.0.1:%u", ntohs(address.sin_port));
    (void)snprintf(url, sizeof(url), "http://%s/x?y", authority);
    const char *const arguments[] = {
        "curl", "-qsSi",   "--noproxy",     "*",     "-m", "20", "--http2-prior-knowledge", "-H", "user-agent:",
        "-H",   "accept:", "--data-binary", "hello", url,  NULL};
    pid_t pid;
    assert_true(start_curl(arguments, &pid, &out));
    struct ends w;
    rig_open_fd(&w.r, h2_exchange_timed, accept4(listener, (struct sockaddr *)&address, &n, SOCK_CLOEXEC));
    w.half[CLIENT] = ends_half(false);
    w.half[UPSTREAM] = ends_half(true);
    ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 1)->ended);
    ends_expect(&ends_at(&w, UPSTREAM, 1)->body, "hello");
    ends_answer(&w, 1, ":status: 201\nx: y\n", "there", true);
    ENDS_UNTIL(&w, w.r.end_seen);
    AUTO_BUF struct buf text = BUF_INIT(65536);
    int status;
    assert_int_equal(fd_read_all(out, &text), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    ends_expect(&text, "HTTP/2 201 \r\nx: y\r\n\r\nthere");
    AUTO_FREE char *log = mem_printf("POST %s /x?y\ncontent-type: application/x-www-form-urlencoded\n\n", authority);
    ends_expect(&w.r.log, log);
    (void)fd_close(out);
    (void)fd_close(listener);
    ends_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_request_trailers),
        cmocka_unit_test(test_bodies_that_are_wanted_whole),
        cmocka_unit_test(test_bodies_that_are_too_long_to_be_whole),
        cmocka_unit_test(test_edits),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_large_heads),
        cmocka_unit_test(test_resets),
        cmocka_unit_test(test_many_early_heads),
        cmocka_unit_test(test_upstream_leaves),
        cmocka_unit_test(test_client_leaves),
        cmocka_unit_test(test_flow_control),
        cmocka_unit_test(test_many_streams),
        cmocka_unit_test(test_floods),
        cmocka_unit_test(test_rapid_reset),
        cmocka_unit_test(test_time_limits),
        cmocka_unit_test(test_closed_from_within),
        cmocka_unit_test(test_curl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
