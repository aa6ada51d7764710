/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "egress/http/h1_parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

/* "H(fields) B(bytes) E(trailers)" or "!status", of one message; and what is left. Fed `step` bytes at a time. */
static void parse(struct buf *to, bool is_answer, bool head_only, struct str text, size_t step)
{
    struct h1_parser *p = mem_new(struct h1_parser);
    h1_parser_init(p, is_answer);
    h1_parser_begin(p, head_only);
    AUTO_BUF struct buf in = BUF_INIT(1024 * 1024);
    size_t body = 0;
    bool over = false;
    while (!over) {
        struct str left = buf_str(&in), piece;
        enum h1_event e = h1_parser_next(p, &left, &piece);
        switch (e) {
        case H1_MORE:
            if (text.n == 0)
                over = true;
            break;
        case H1_HEAD:
            buf_printf(to, "H%u ", p->fields.n);
            break;
        case H1_BODY:
            body += piece.n;
            break;
        case H1_END:
            buf_printf(to, "B%zu E%u", body, p->fields.n);
            over = true;
            break;
        case H1_BAD:
            buf_printf(to, "!%d", p->bad_status);
            over = true;
            break;
        }
        buf_consume(&in, buf_len(&in) - left.n);
        if (e == H1_MORE && text.n) {
            size_t n = MIN(step, text.n);
            assert_int_equal(buf_append(&in, text.p, n), 0);
            text = str_sub(text, n);
        } else if (e == H1_END && buf_len(&in) + text.n) {
            buf_printf(to, " +%zu", buf_len(&in) + text.n);
        }
    }
    h1_parser_fini(p);
    mem_free(p);
}

struct line {
    const char *text, *is;
};

static void check(const struct line *lines, size_t n, bool is_answer, bool head_only)
{
    static const size_t steps[] = {1, 2, 3, 7, 100000};
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < ARRAY_SIZE(steps); k++) {
            AUTO_BUF struct buf is = BUF_INIT(1000);
            parse(&is, is_answer, head_only, str_of(lines[i].text), steps[k]);
            assert_int_equal(buf_append_char(&is, 0), 0);
            if (strcmp(buf_data(&is), lines[i].is) != 0)
                print_message("%zu bytes at a time: %s\n", steps[k], lines[i].text);
            assert_string_equal(buf_data(&is), lines[i].is);
        }
    }
}

#define G "GET / HTTP/1.1\r\nHost: a\r\n"
#define P "POST / HTTP/1.1\r\nHost: a\r\n"
#define C P "Transfer-Encoding: chunked\r\n\r\n"

static void test_requests(void **state)
{
    (void)state;
    static const struct line good[] = {
        {G "\r\n", "H1 B0 E0"},
        {"\r\n" G "\r\n", "H1 B0 E0"},
        {G "\r\n" G "\r\n", "H1 B0 E0 +27"},
        {"GET / HTTP/1.0\r\n\r\n", "H0 B0 E0"},
        {G "X: \r\nY:  a b \t\r\nZ:\r\n\r\n", "H4 B0 E0"},
        {P "Content-Length: 5\r\n\r\nhello", "H2 B5 E0"},
        {P "Content-Length: 0\r\n\r\n", "H2 B0 E0"},
        {P "Content-Length: 5\r\n\r\nhellofrom", "H2 B5 E0 +4"},
        {P "Content-Length: 5\r\n\r\nhel", "H2 "},
        {C "5\r\nhello\r\n0\r\n\r\n", "H2 B5 E0"},
        {C "005\r\nhello\r\n1\r\n!\r\n0\r\n\r\nX", "H2 B6 E0 +1"},
        {C "5\r\nhello\r\n0\r\nA: b\r\nC: d\r\n\r\n", "H2 B5 E2"},
        {P "Transfer-Encoding: CHUNKED\r\n\r\n0\r\n\r\n", "H2 B0 E0"},
        {"GET /a?b=c|d HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nraw", "H3 B0 E0 +3"},
    };
    check(good, ARRAY_SIZE(good), false, false);
}

static void test_smuggling(void **state)
{
    (void)state;
    static const struct line bad[] = {
        {P "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "!400"},
        {P "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", "!400"},
        {P "Transfer-Encoding : chunked\r\n\r\n", "!400"},
        {P "Transfer-Encoding: chunked, identity\r\n\r\n", "!400"},
        {P "Transfer-Encoding: identity\r\n\r\n", "!400"},
        {P "Transfer-Encoding: gzip, chunked\r\n\r\n", "!400"},
        {P "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "!400"},
        {P "Transfer-Encoding: xchunked\r\n\r\n", "!400"},
        {P "Transfer-Encoding: \"chunked\"\r\n\r\n", "!400"},
        {P "Transfer-Encoding:\vchunked\r\n\r\n", "!400"},
        {"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", "!400"},
        {P "Content-Length: +5\r\n\r\n", "!400"},
        {P "Content-Length: 5,5\r\n\r\n", "!400"},
        {P "Content-Length: 5 5\r\n\r\n", "!400"},
        {P "Content-Length: -5\r\n\r\n", "!400"},
        {P "Content-Length: 0x5\r\n\r\n", "!400"},
        {P "Content-Length: \r\n\r\n", "!400"},
        {P "Content-Length: 99999999999999999999\r\n\r\n", "!400"},
        {P "Content-Length: 18446744073709551615\r\n\r\n", "!400"},
        {P "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", "!400"},
        {G "X: a\r\n b\r\n\r\n", "!400"},
        {G "X: a\r\n\tb\r\n\r\n", "!400"},
        {"GET / HTTP/1.1\r\n Host: a\r\n\r\n", "!400"},
        {" GET / HTTP/1.1\r\nHost: a\r\n\r\n", "!400"},
        {"\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", "!400"},
        {"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "!400"},
        {"GET / HTTP/1.1\nHost: a\n\n", "!400"},
        {"GET / HTTP/1.1\r\nHost: a\n\r\n", "!400"},
        {"GET / HTTP/1.1\r\nHost: a\r\n\n", "!400"},
        {"GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n", "!400"},
        {"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", "!400"},
        {"GET /  HTTP/1.1\r\nHost: a\r\n\r\n", "!400"},
        {"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", "!400"},
        {"GET /\tx HTTP/1.1\r\nHost: a\r\n\r\n", "!400"},
        {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", "!400"},
        {"GET / HTTP/1.1\r\nHo st: a\r\n\r\n", "!400"},
        {"GET / HTTP/1.1\r\n: a\r\n\r\n", "!400"},
        {"GET / HTTP/1.1\r\nHost\r\n\r\n", "!400"},
        {G "X: a\x01\r\n\r\n", "!400"},
        {"GET /\r\n\r\n", "!400"},
        {"GET / HTTP/0.9\r\n\r\n", "!400"},
        {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", "!505"},
        {"GET / HTTP/1.2\r\nHost: a\r\n\r\n", "!400"},
        {"GET / HTTP/11\r\nHost: a\r\n\r\n", "!400"},
        {"GET / RTSP/1.0\r\nHost: a\r\n\r\n", "!400"},
        {"SOURCE / ICE/1.0\r\nHost: a\r\n\r\n", "!400"},
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "!400"},
        {"get / HTTP/1.1\r\nHost: a\r\n\r\n", "!400"},
        {C "5;a=b\r\nhello\r\n0\r\n\r\n", "H2 !400"},
        {C "5 \r\nhello\r\n0\r\n\r\n", "H2 !400"},
        {C " 5\r\nhello\r\n0\r\n\r\n", "H2 !400"},
        {C "5\nhello\r\n0\r\n\r\n", "H2 !400"},
        {C "0x5\r\nhello\r\n0\r\n\r\n", "H2 !400"},
        {C "+5\r\nhello\r\n0\r\n\r\n", "H2 !400"},
        {C "-5\r\nhello\r\n0\r\n\r\n", "H2 !400"},
        {C "\r\nhello\r\n0\r\n\r\n", "H2 !400"},
        {C "00000000000000005\r\nhello\r\n0\r\n\r\n", "H2 !400"},
        {C "ffffffffffffffff0\r\n", "H2 !400"},
        {C "5\r\nhelloX0\r\n\r\n", "H2 !400"},
        {C "5\r\nhello\n0\r\n\r\n", "H2 !400"},
        {C "5\r\nhello\r\n0\r\n\n", "H2 !400"},
        {C "5\r\nhello\r\n0\n\r\n", "H2 !400"},
        {C "5\r\nhello\r\n0\r\nA: b\n\r\n", "H2 !400"},
        {C "5\r\nhello\r\n0\r\nA: b\r\n c\r\n\r\n", "H2 !400"},
        {C "5\r\nhello\r\n0\r\nA : b\r\n\r\n", "H2 !400"},
        {C "5\r\nhello\r\n0\r\nContent-Length: 5\r\nA\r\n\r\n", "H2 !400"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        for (size_t step = 1; step < 200; step += 13) {
            /* The pieces of a body that come before the fault may be told or not. */
            AUTO_BUF struct buf is = BUF_INIT(1000);
            parse(&is, false, false, str_of(bad[i].text), step);
            assert_int_equal(buf_append_char(&is, 0), 0);
            if (strcmp(buf_data(&is), bad[i].is) != 0)
                print_message("%zu bytes at a time: %s\n", step, bad[i].text);
            assert_string_equal(buf_data(&is), bad[i].is);
        }
    }
    static const char nul[] = "GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n";
    AUTO_BUF struct buf is = BUF_INIT(1000);
    parse(&is, false, false, str_n(nul, sizeof(nul) - 1), 1000);
    assert_true(str_eqc(buf_str(&is), "!400"));
}

static void test_limits(void **state)
{
    (void)state;
    struct {
        const char *before, *repeated, *is;
        size_t times;
    } cases[] = {
        {"GET /", "a", "!431", EXCHANGE_HEAD_MAX},
        {G "X: ", "a", "!431", EXCHANGE_HEAD_MAX},
        {"GET / HTTP/1.1\r\n", "a", "!431", EXCHANGE_HEAD_MAX},
        {"", "\r\n", "!431", EXCHANGE_HEAD_MAX},
        {G "X:", " ", "!431", EXCHANGE_HEAD_MAX},
        {"GET / HTTP/1.1\r\n", "a: b\r\n", "!431", EXCHANGE_FIELDS_MAX + 1},
        {C "0\r\n", "a: b\r\n", "H2 !431", EXCHANGE_FIELDS_MAX + 1},
        {C "0\r\nA: ", "b", "H2 !431", EXCHANGE_HEAD_MAX},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        AUTO_BUF struct buf text = BUF_INIT(1024 * 1024), is = BUF_INIT(1000);
        buf_append_cstr(&text, cases[i].before);
        for (size_t k = 0; k < cases[i].times; k++)
            buf_append_cstr(&text, cases[i].repeated);
        parse(&is, false, false, buf_str(&text), 10000);
        assert_true(str_eqc(buf_str(&is), cases[i].is));
    }
}

static void test_answers(void **state)
{
    (void)state;
    static const struct line lines[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "H1 B2 E0"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=\"y\"\r\nhi\r\n0\r\n\r\n", "H1 B2 E0"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nA: b\r\n\r\n+", "H1 B2 E1 +1"},
        {"HTTP/1.1 204 No Content\r\n\r\nX", "H0 B0 E0 +1"},
        {"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nX", "H1 B0 E0 +1"},
        {"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nX", "H1 B0 E0 +1"},
        {"HTTP/1.1 100 Continue\r\n\r\nX", "H0 B0 E0 +1"},
        {"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nX", "H2 B0 E0 +1"},
        {"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "H1 B0 E0"},
        {"HTTP/1.0 200 OK\r\n\r\nuntil the end", "H0 "},
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi", "!400"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", "!400"},
        {"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "!400"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "!400"},
        {"HTTP/1.1 20 OK\r\n\r\n", "!400"},
        {"SSH-2.0-OpenSSH_9.2\r\n", "!400"},
    };
    check(lines, ARRAY_SIZE(lines), true, false);
    static const struct line heads[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nHTTP", "H1 B0 E0 +4"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nHTTP", "H1 B0 E0 +4"},
        {"HTTP/1.1 200 OK\r\n\r\nHTTP", "H0 B0 E0 +4"},
    };
    check(heads, ARRAY_SIZE(heads), true, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_smuggling),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
