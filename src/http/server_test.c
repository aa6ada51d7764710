/* SPDX-License-Identifier: Apache-2.0 */
/* The server as a client on the wire sees it: framing in all pieces, strictness, limits, time-outs. */
#include "base/clock.h"
#include "http/conn.h"
#include "http/test_server.h"

#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define HOST "Host: a\r\n"
#define OK_HEAD(n) "HTTP/1.1 200 OK\r\ncontent-length: " n "\r\n"
#define CLOSE "connection: close\r\n"

static const char conversation[] = "GET /hello HTTP/1.1\r\n" HOST "\r\n"
                                   "\r\n" /* an empty line too many */
                                   "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nfirst"
                                   "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
                                   "4;x=y\r\nsome\r\nA\r\n more text\r\n0\r\nTrailer: x\r\n\r\n"
                                   "HEAD /hello HTTP/1.1\r\n" HOST "\r\n"
                                   "POST /hello HTTP/1.1\r\n" HOST "Content-Length: 7\r\n\r\nskipped"
                                   "GET /later HTTP/1.1\r\n" HOST "Empty:\r\nBlank: \t x \r\n\r\n"
                                   "POST /stream HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc"
                                   "PUT /echo HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n"
                                   "GET /x%zz HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n";

static const char expected_start[] =
    OK_HEAD("9") "\r\nhello GET" OK_HEAD("5") "\r\nfirst" OK_HEAD("14") "\r\nsome more text" OK_HEAD(
        "10") "\r\n" OK_HEAD("10") "\r\nhello POST" OK_HEAD("5") "\r\nlater"
                                                                 "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
static const char expected_end[] =
    "0\r\n\r\n" OK_HEAD("0") "\r\n"
                             "HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: 37\r\n" CLOSE
                             "\r\n{\"code\":404,\"message\":\"no such path\"}";

static void check_conversation(struct buf *b)
{
    /* "abc" may come as one to three chunks. */
    AUTO_BUF struct buf plain = BUF_INIT(64 * 1024);
    struct str got = buf_str(b);
    assert_true(str_starts(got, str_of(expected_start)));
    assert_true(str_ends(got, str_of(expected_end)));
    struct str chunks =
        str_n(got.p + sizeof(expected_start) - 1, got.n - sizeof(expected_start) - sizeof(expected_end) + 2);
    for (struct str line; str_split(&chunks, '\n', &line);) {
        struct str data;
        if (line.n && str_split(&chunks, '\n', &data))
            buf_append(&plain, data.p, data.n - 1);
    }
    assert_str(buf_str(&plain), "abc");
}

static void test_split_everywhere(void **state)
{
    (void)state;
    struct test_server t;
    test_server_open(&t, NULL, false);
    size_t n = sizeof(conversation) - 1;
    for (size_t at = 0; at <= n; at++) {
        AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
        int fd = test_connect(&t);
        test_send(&t, fd, str_n(conversation, at));
        test_send(&t, fd, str_n(conversation + at, n - at));
        test_receive(&t, fd, &b, STR_NULL);
        test_strip_dates(&b);
        check_conversation(&b);
        (void)close(fd);
    }
    test_server_close(&t);
}

static void test_byte_by_byte(void **state)
{
    (void)state;
    struct test_server t;
    AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
    test_server_open(&t, NULL, true);
    int fd = test_connect(&t);
    for (size_t i = 0; i < sizeof(conversation) - 1; i++)
        test_send(&t, fd, str_n(conversation + i, 1));
    test_receive(&t, fd, &b, STR_NULL);
    test_strip_dates(&b);
    check_conversation(&b);
    (void)close(fd);
    test_server_close(&t);
}

#define GET "GET /hello HTTP/1.1\r\n"
#define POST "POST /echo HTTP/1.1\r\n" HOST
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        int status;
        struct str bytes;
    } cases[] = {
        {400, {GET "\r\n", sizeof(GET "\r\n") - 1}},
#define CASE(status, text)                                                                                             \
    {                                                                                                                  \
        status,                                                                                                        \
        {                                                                                                              \
            text, sizeof(text) - 1                                                                                     \
        }                                                                                                              \
    }
        CASE(400, GET HOST "Host: b\r\n\r\n"),
        CASE(400, GET "Host: a b\r\n\r\n"),
        CASE(400, GET "Host: a/b\r\n\r\n"),
        CASE(400, "GET /hello HTTP/1.1\nHost: a\r\n\r\n"),
        CASE(400, GET "Host: a\n\r\n"),
        CASE(400, GET "Host: a\r\n\n"),
        CASE(400, GET "Host: a\r\n folded\r\n\r\n"),
        CASE(400, GET "Host: a\r\n\tfolded: x\r\n\r\n"),
        CASE(400, GET HOST "X: a\0b\r\n\r\n"),
        CASE(400, GET HOST "X: a\001b\r\n\r\n"),
        CASE(400, GET HOST "X: a\rb\r\n\r\n"),
        CASE(400, GET HOST "X : a\r\n\r\n"),
        CASE(400, GET HOST "X y: a\r\n\r\n"),
        CASE(400, GET HOST ": a\r\n\r\n"),
        CASE(400, GET HOST "no colon\r\n\r\n"),
        CASE(400, "GET /a\0b HTTP/1.1\r\n" HOST "\r\n"),
        CASE(400, "GET /a#b HTTP/1.1\r\n" HOST "\r\n"),
        CASE(400, "GET /\xff HTTP/1.1\r\n" HOST "\r\n"),
        CASE(400, "GET hello HTTP/1.1\r\n" HOST "\r\n"),
        CASE(400, "GET ftp://a/b HTTP/1.1\r\n" HOST "\r\n"),
        CASE(400, "GET http://b/hello HTTP/1.1\r\n" HOST "\r\n"),
        CASE(400, "GET http://a:8/hello HTTP/1.1\r\n" HOST "\r\n"),
        CASE(400, "GET http://b?q HTTP/1.1\r\n" HOST "\r\n"),
        CASE(400, "GET /hello HTTP/1.2\r\n" HOST "\r\n"),
        CASE(505, "GET /hello\r\n\r\n"),
        CASE(505, "GET /hello HTTP/2.0\r\n" HOST "\r\n"),
        CASE(400, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        CASE(501, "CONNECT a:1 HTTP/1.1\r\n" HOST "\r\n"),
        CASE(400, "BREW /pot HTTP/1.1\r\n" HOST "\r\n"),
        CASE(400, "\x16\x03\x01\x02\x00\x01"),
        CASE(501, "SETUP / RTSP/1.0\r\n\r\n"),
        CASE(400, POST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc"),
        CASE(400, POST "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc"),
        CASE(400, POST "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc"),
        CASE(400, POST "Content-Length: 3, 3\r\n\r\nabc"),
        CASE(400, POST "Content-Length: +3\r\n\r\nabc"),
        CASE(400, POST "Content-Length: -3\r\n\r\nabc"),
        CASE(400, POST "Content-Length: 0x3\r\n\r\nabc"),
        CASE(400, POST "Content-Length: 18446744073709551617\r\n\r\nabc"),
        CASE(413, POST "Content-Length: 18446744073709551615\r\n\r\nabc"),
        CASE(413, POST "Content-Length: 5000\r\n\r\nabc"),
        CASE(400, POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        CASE(400, POST "Transfer-Encoding: gzip\r\n\r\nabc"),
        CASE(400, POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        CASE(400, POST "Transfer-Encoding: identity\r\n\r\n"),
        CASE(400, "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        CASE(400, POST "Expect: 200-maybe\r\nContent-Length: 1\r\n\r\na"),
        CASE(400, CHUNKED "3\nabc\r\n0\r\n\r\n"),
        CASE(400, CHUNKED "3\r\nabc\n0\r\n\r\n"),
        CASE(400, CHUNKED "3\r\nabcXX0\r\n\r\n"),
        CASE(400, CHUNKED "3\rXabc\r\n0\r\n\r\n"),
        CASE(400, CHUNKED "3\r\nabcd\r\n0\r\n\r\n"),
        CASE(400, CHUNKED "-3\r\nabc\r\n0\r\n\r\n"),
        CASE(400, CHUNKED "0x3\r\nabc\r\n0\r\n\r\n"),
        CASE(400, CHUNKED "3 \r\nabc\r\n0\r\n\r\n"),
        CASE(400, CHUNKED "fffffffffffffffff\r\nabc"),
        CASE(400, CHUNKED "3;a=b\nabc\r\n0\r\n\r\n"),
        CASE(400, CHUNKED "3\r\nabc\r\n0\r\n\n"),
        CASE(400, CHUNKED "3\r\nabc\r\n0\r\n\rX"),
        CASE(400, CHUNKED "3\r\nabc\r\n0\r\nT: a\n\r\n"),
    };
    struct test_server t;
    test_server_open(&t, NULL, false);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
        char start[32], code[32];
        test_exchange(&t, cases[i].bytes, false, &b);
        (void)snprintf(start, sizeof(start), "HTTP/1.1 %d ", cases[i].status);
        (void)snprintf(code, sizeof(code), "{\"code\":%d,\"message\":\"", cases[i].status);
        if (!str_starts(buf_str(&b), str_of(start)))
            fail_msg("case %zu \"%.*s\" got \"%.*s\"", i, STR_ARG(cases[i].bytes), STR_ARG(buf_str(&b)));
        assert_has(buf_str(&b), code);
        assert_has(buf_str(&b), CLOSE);
        assert_int_equal(http_server_connections(t.server), 0);
    }
    test_server_close(&t);
}

static void repeat(struct buf *b, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_int_equal(buf_append_cstr(b, text), 0);
}

static void expect_status(struct test_server *t, struct str request, const char *start)
{
    AUTO_BUF struct buf b = BUF_INIT(256 * 1024);
    test_exchange(t, request, true, &b);
    if (!str_starts(buf_str(&b), str_of(start)))
        fail_msg("\"%s\" expected, got \"%.*s\"", start, STR_ARG(buf_str(&b)));
}

static void test_limits(void **state)
{
    (void)state;
    struct test_server t;
    test_server_open(&t, NULL, false);
    for (int beyond = 0; beyond <= 1; beyond++) {
        AUTO_BUF struct buf url = BUF_INIT(1 << 20), count = BUF_INIT(1 << 20), bytes = BUF_INIT(1 << 20),
                            blanks = BUF_INIT(1 << 20);
        buf_append_cstr(&url, "GET /");
        repeat(&url, "a", 8 * 1024 - 1 + (size_t)beyond);
        buf_append_cstr(&url, " HTTP/1.1\r\n" HOST "\r\n");
        expect_status(&t, buf_str(&url), beyond ? "HTTP/1.1 414 " : "HTTP/1.1 404 ");

        buf_append_cstr(&count, GET HOST);
        repeat(&count, "a: b\r\n", 99 + (size_t)beyond);
        buf_append_cstr(&count, "\r\n");
        expect_status(&t, buf_str(&count), beyond ? "HTTP/1.1 431 " : "HTTP/1.1 200 ");

        buf_append_cstr(&bytes, GET HOST "X: ");
        repeat(&bytes, "x", 32 * 1024 - buf_len(&bytes) - 4 + (size_t)beyond);
        buf_append_cstr(&bytes, "\r\n\r\n");
        expect_status(&t, buf_str(&bytes), beyond ? "HTTP/1.1 431 " : "HTTP/1.1 200 ");

        /* Blanks, which are not kept, count too. */
        buf_append_cstr(&blanks, GET HOST "X:");
        repeat(&blanks, " ", beyond ? 40 * 1024 : 30 * 1024);
        buf_append_cstr(&blanks, "x\r\n\r\n");
        expect_status(&t, buf_str(&blanks), beyond ? "HTTP/1.1 431 " : "HTTP/1.1 200 ");
    }
    AUTO_BUF struct buf trailers = BUF_INIT(1 << 20), extension = BUF_INIT(1 << 20);
    buf_append_cstr(&trailers, CHUNKED "0\r\n");
    repeat(&trailers, "a: b\r\n", 10000);
    expect_status(&t, buf_str(&trailers), "HTTP/1.1 400 ");
    buf_append_cstr(&extension, CHUNKED "1;");
    repeat(&extension, "x", 20000);
    expect_status(&t, buf_str(&extension), "HTTP/1.1 400 ");
    test_server_close(&t);
}

static const struct http_limits impatient = {
    .url_bytes = 1024,
    .header_bytes = 2048,
    .headers = 10,
    .heads_bytes = 1 << 20,
    .connections = 4,
    .header_timeout_ms = 40,
    .body_timeout_ms = 40,
    .idle_timeout_ms = 40,
    .write_timeout_ms = 40,
    .write_high = 64 * 1024,
    .write_low = 16 * 1024,
    .write_max = 1024 * 1024,
};

static void test_timeouts(void **state)
{
    (void)state;
    struct test_server t;
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    test_server_open(&t, &impatient, false);
    int idle = test_connect(&t);
    test_receive(&t, idle, &b, STR_NULL);
    assert_int_equal(buf_len(&b), 0);
    (void)close(idle);

    /* Each byte of a slow head is in time, the whole is not. */
    int slow = test_connect(&t);
    char peek;
    test_send(&t, slow, STR("\r\n" GET "X: "));
    for (int i = 0; i < 1000 && recv(slow, &peek, 1, MSG_PEEK) < 0; i++) {
        (void)usleep(5000);
        test_send(&t, slow, STR("a"));
    }
    test_receive(&t, slow, &b, STR_NULL);
    (void)close(slow);
    assert_true(str_starts(buf_str(&b), STR("HTTP/1.1 408 ")));
    buf_clear(&b);

    /* So it is with a body that nobody has asked for. */
    int late = test_connect(&t);
    test_send(&t, late, STR(GET HOST "Content-Length: 60000\r\n\r\n"));
    unsigned sent = 0;
    for (; sent < 1000 && http_server_connections(t.server); sent++) {
        (void)usleep(5000);
        (void)!send(late, "a", 1, MSG_NOSIGNAL);
        test_turn(&t);
    }
    assert_true(sent < 1000);
    (void)close(late);

    int head = test_connect(&t);
    test_send(&t, head, STR("GET /hello HTTP/1.1\r\n"));
    test_receive(&t, head, &b, STR_NULL);
    (void)close(head);
    assert_true(str_starts(buf_str(&b), STR("HTTP/1.1 408 ")));
    buf_clear(&b);

    int body = test_connect(&t);
    test_send(&t, body, STR(POST "Content-Length: 10\r\n\r\nabc"));
    test_receive(&t, body, &b, STR_NULL);
    (void)close(body);
    assert_true(str_starts(buf_str(&b), STR("HTTP/1.1 408 ")));
    assert_int_equal(t.body_error, -ETIMEDOUT);
    buf_clear(&b);

    /* With the response begun already there is nothing to say any more. */
    t.body_error = 0;
    int both = test_connect(&t);
    test_send(&t, both, STR("POST /stream HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\nabc"));
    test_receive(&t, both, &b, STR_NULL);
    (void)close(both);
    assert_has(buf_str(&b), "abc\r\n");
    assert_false(str_ends(buf_str(&b), STR("0\r\n\r\n")));
    assert_int_equal(t.body_error, -ETIMEDOUT);

    /* Nor with a stream both ways that only the client has not ended. */
    unsigned ended = t.closes;
    int away = test_connect(&t);
    test_send(&t, away, STR("GET /up-and-away HTTP/1.1\r\n" HOST "Connection: upgrade\r\nUpgrade: raw\r\n\r\nbytes"));
    for (int i = 0; i < 1000 && t.closes == ended; i++)
        uv_run(&t.loop, UV_RUN_ONCE);
    assert_int_equal(t.closes, ended + 1);
    assert_int_equal(t.body_bytes, 5);
    (void)close(away);

    /* A client that takes nothing. */
    unsigned closes = t.closes;
    int deaf = test_connect(&t);
    test_send(&t, deaf, STR("GET /endless HTTP/1.1\r\n" HOST "\r\n"));
    for (int i = 0; i < 1000 && t.closes == closes; i++)
        uv_run(&t.loop, UV_RUN_ONCE);
    assert_int_equal(t.closes, closes + 1);
    (void)close(deaf);

    /* A handler may take its time. */
    int held = test_connect(&t);
    test_send(&t, held, STR("GET /hold HTTP/1.1\r\n" HOST "\r\n"));
    for (int i = 0; i < 30; i++)
        uv_run(&t.loop, UV_RUN_ONCE);
    assert_non_null(t.held);
    buf_clear(&b);
    (void)http_respond(t.held, 200, NULL, 0, STR("at last"));
    test_receive(&t, held, &b, STR("at last"));
    (void)close(held);
    test_server_close(&t);
}

static void test_too_many_connections(void **state)
{
    (void)state;
    struct test_server t;
    struct http_limits limits = HTTP_LIMITS_DEFAULT;
    limits.connections = 3;
    test_server_open(&t, &limits, false);
    int fds[3];
    AUTO_BUF struct buf b = BUF_INIT(4096);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        fds[i] = test_connect(&t);
        test_send(&t, fds[i], STR(POST "Content-Length: 10\r\n\r\n"));
    }
    test_turn(&t);
    assert_int_equal(http_server_connections(t.server), 3);
    test_exchange(&t, STR(""), false, &b);
    assert_has(buf_str(&b), "HTTP/1.1 503 ");
    assert_has(buf_str(&b), "\r\n\r\n{\"code\":503,\"message\":\"too many connections\"}");
    (void)close(fds[0]);
    test_turn(&t);
    expect_status(&t, STR(GET HOST "Connection: close\r\n\r\n"), "HTTP/1.1 200 ");
    (void)close(fds[1]);
    (void)close(fds[2]);
    test_server_close(&t);
}

/* Else whoever opens connections and leaves them would keep all others out, for as long as that costs nothing. */
static void test_idle_connections_make_room(void **state)
{
    (void)state;
    struct test_server t;
    struct http_limits limits = HTTP_LIMITS_DEFAULT;
    limits.connections = 3;
    test_server_open(&t, &limits, false);
    int fds[3];
    char byte;
    AUTO_BUF struct buf b = BUF_INIT(4096);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        fds[i] = test_connect(&t);
        test_turn(&t);
    }
    test_send(&t, fds[0], STR(GET HOST "\r\n"));
    test_receive(&t, fds[0], &b, STR("hello GET"));
    expect_status(&t, STR(GET HOST "Connection: close\r\n\r\n"), "HTTP/1.1 200 ");
    assert_int_equal(recv(fds[1], &byte, 1, MSG_DONTWAIT), 0); /* the one that nothing was heard of for longest */
    for (size_t i = 0; i < ARRAY_SIZE(fds); i += 2) {
        buf_clear(&b);
        test_send(&t, fds[i], STR(GET HOST "\r\n"));
        test_receive(&t, fds[i], &b, STR("hello GET"));
    }
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        (void)close(fds[i]);
    test_server_close(&t);
}

/* Nor may whoever begins to say something, or goes on although the answer is there. */
static void test_slow_strangers_make_room(void **state)
{
    (void)state;
    static const char *const said[] = {"GET /hello HTT", GET HOST "Content-Length: 10\r\n\r\nabc"};
    for (size_t k = 0; k < ARRAY_SIZE(said); k++) {
        struct test_server t;
        struct http_limits limits = HTTP_LIMITS_DEFAULT;
        limits.connections = 3;
        test_server_open(&t, &limits, false);
        int fds[3];
        char answer[4096];
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
            fds[i] = test_connect(&t);
            test_send(&t, fds[i], str_of(said[k]));
            test_turn(&t);
        }
        assert_int_equal(http_server_connections(t.server), 3);
        expect_status(&t, STR(GET HOST "Connection: close\r\n\r\n"), "HTTP/1.1 200 ");
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
            ssize_t n;
            do /* to the answer of the second kind */
                n = recv(fds[i], answer, sizeof(answer), MSG_DONTWAIT);
            while (n > 0);
            assert_true(i == 0 ? n == 0 || errno == ECONNRESET : n < 0 && errno == EAGAIN);
            (void)close(fds[i]);
        }
        test_server_close(&t);
    }
}

/* What isn't a whole head is kept for as long as it may take, but not any amount of it. */
static void test_long_heads_make_room(void **state)
{
    (void)state;
    struct test_server t;
    struct http_limits limits = HTTP_LIMITS_DEFAULT;
    AUTO_BUF struct buf head = BUF_INIT(32 * 1024);
    buf_append_cstr(&head, GET HOST "X: ");
    repeat(&head, "y", 30000);
    limits.heads_bytes = 200 * 1000;
    test_server_open(&t, &limits, false);
    int fds[20];
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        fds[i] = test_connect(&t);
        test_send(&t, fds[i], buf_str(&head));
        test_turn(&t);
    }
    unsigned left = http_server_connections(t.server);
    assert_in_range(left, 3, 6);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        char byte;
        bool is_open = recv(fds[i], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
        assert_int_equal(is_open, i >= ARRAY_SIZE(fds) - left);
    }
    AUTO_BUF struct buf b = BUF_INIT(4096);
    test_send(&t, fds[ARRAY_SIZE(fds) - 1], STR("\r\nConnection: close\r\n\r\n"));
    test_receive(&t, fds[ARRAY_SIZE(fds) - 1], &b, STR("hello GET"));
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        (void)close(fds[i]);
    test_server_close(&t);
}

/* What nobody reads is ours to count: the kernel's memory for TCP is one for the whole machine. */
static void test_unread_answers_are_not_the_kernel_s(void **state)
{
    (void)state;
    struct test_server t;
    test_server_open(&t, NULL, false);
    int fd = test_connect(&t), size = 4096, unsent = 0;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)), 0);
    test_send(&t, fd, STR("GET /endless HTTP/1.1\r\n" HOST "\r\n"));
    test_turn(&t);
    struct conn *c = LIST_FIRST(struct conn, &t.server->conns, node);
    assert_true(buf_len(&c->out) >= HTTP_LIMITS_DEFAULT.write_high);
    assert_int_equal(ioctl(c->fd, SIOCOUTQ, &unsent), 0);
    assert_in_range(unsent, 1, 512 * 1024);
    (void)close(fd);
    test_server_close(&t);
}

/* Nor whoever has an answer and doesn't read it. One that is still being made is waited for. */
static void test_unread_answers_make_room(void **state)
{
    (void)state;
    static const char *const asked[] = {"/endless", "/big?n=500000", "/big?n=500000"};
    struct test_server t;
    struct http_limits limits = HTTP_LIMITS_DEFAULT;
    limits.connections = ARRAY_SIZE(asked);
    limits.write_high = 1 << 20;
    test_server_open(&t, &limits, true);
    int fds[ARRAY_SIZE(asked)];
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        char said[64];
        (void)snprintf(said, sizeof(said), "GET %s HTTP/1.1\r\n" HOST "\r\n", asked[i]);
        fds[i] = test_connect(&t);
        test_send(&t, fds[i], str_of(said));
    }
    assert_int_equal(http_server_connections(t.server), ARRAY_SIZE(fds));
    expect_status(&t, STR(GET HOST "Connection: close\r\n\r\n"), "HTTP/1.1 200 ");
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        struct pollfd is = {.fd = fds[i]};
        assert_true(poll(&is, 1, 0) >= 0);
        assert_int_equal((is.revents & POLLHUP) != 0, i == 1);
        (void)close(fds[i]);
    }
    test_server_close(&t);
}

/* However many connections ask however much, one more is answered soon. */
static void test_a_crowd_leaves_others_their_turn(void **state)
{
    (void)state;
    enum { CROWD = 128, ASKED = 40, ALL = RUN_REQUESTS * RUN_CROWD };
    struct test_server t;
    AUTO_BUF struct buf asked = BUF_INIT(4096), b = BUF_INIT(4096);
    test_server_open(&t, NULL, true);
    int fds[CROWD + 1];
    repeat(&asked, GET HOST "\r\n", ASKED);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        fds[i] = test_connect(&t);
        test_turn(&t);
    }
    for (size_t i = 0; i < CROWD; i++)
        assert_int_equal(send(fds[i], buf_data(&asked), buf_len(&asked), MSG_NOSIGNAL), buf_len(&asked));
    assert_true(send(fds[CROWD], GET HOST "\r\n", strlen(GET HOST "\r\n"), MSG_NOSIGNAL) > 0);
    test_receive(&t, fds[CROWD], &b, STR("hello GET"));
    assert_true(t.requests <= 2 * ALL + CROWD); /* twice: those who were read, and those whose turn it is again */
    for (int i = 0; i < 10000 && t.requests <= CROWD * ASKED; i++)
        test_turn(&t);
    assert_int_equal(t.requests, CROWD * ASKED + 1);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        (void)close(fds[i]);
    test_server_close(&t);
}

static void test_http10(void **state)
{
    (void)state;
    struct test_server t;
    AUTO_BUF struct buf b = BUF_INIT(4096);
    test_server_open(&t, NULL, false);
    test_exchange(&t, STR("GET /hello HTTP/1.0\r\n\r\n"), false, &b);
    assert_str(buf_str(&b), OK_HEAD("9") CLOSE "\r\nhello GET");
    buf_clear(&b);
    test_exchange(
        &t,
        STR("GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\nPOST /stream HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc"),
        false, &b);
    assert_str(buf_str(&b), OK_HEAD("9") "connection: keep-alive\r\n\r\nhello GET"
                                         "HTTP/1.1 200 OK\r\n" CLOSE "\r\nabc");
    test_server_close(&t);
}

static void test_expect_continue(void **state)
{
    (void)state;
    struct test_server t;
    AUTO_BUF struct buf b = BUF_INIT(4096);
    test_server_open(&t, NULL, false);
    int fd = test_connect(&t);
    test_send(&t, fd, STR(POST "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n"));
    test_receive(&t, fd, &b, STR("HTTP/1.1 100 Continue\r\n\r\n"));
    assert_str(buf_str(&b), "HTTP/1.1 100 Continue\r\n\r\n");
    test_send(&t, fd, STR("abc"));
    test_receive(&t, fd, &b, STR("abc"));

    /* Refused before it was sent: no 100, and no waiting for a body that does not come. */
    buf_clear(&b);
    test_send(&t, fd, STR(POST "Expect: 100-continue\r\nContent-Length: 5000\r\n\r\n"));
    test_receive(&t, fd, &b, STR_NULL);
    (void)close(fd);
    assert_true(str_starts(buf_str(&b), STR("HTTP/1.1 413 ")));
    assert_has(buf_str(&b), CLOSE);
    test_server_close(&t);
}

static void test_headers(void **state)
{
    (void)state;
    struct test_server t;
    AUTO_BUF struct buf b = BUF_INIT(4096);
    test_server_open(&t, NULL, false);
    test_exchange(
        &t,
        STR("GET http://[::1]:80/headers?x HTTP/1.1\r\nHOST: [::1]:80\r\nEmpty:\r\nX-a:  \t b c\t \r\nx-A: \xc3\xa4\r\nConnection: close\r\n\r\n"),
        false, &b);
    assert_has(buf_str(&b), "\r\n\r\nHOST=[::1]:80\nEmpty=\nX-a=b c\nx-A=\xc3\xa4\nConnection=close\n");
    test_server_close(&t);
}

static void count_close(struct http_request *req, void *ctx)
{
    (void)req;
    ((struct test_server *)ctx)->closes++;
}

static void on_slow(struct http_request *req, void *ctx)
{
    struct test_server *t = ctx;
    usec_t until = clock_mono() + 10 * USEC_PER_MS;
    t->requests++;
    http_on_close(req, count_close, t);
    while (clock_mono() < until) {
    }
    (void)http_respond(req, 200, NULL, 0, STR("done"));
}

/* Many clients at once whose requests take long: a turn of the loop takes a few of them, and all get their answer. */
static void test_turns_are_bounded(void **state)
{
    (void)state;
    enum { N = 40, MOST = 8 };
    struct test_server t;
    int fds[N];
    unsigned before, turns = 0;
    test_server_open_with(&t, NULL, false, on_slow);
    for (int i = 0; i < N; i++)
        fds[i] = test_connect(&t);
    test_turn(&t);
    for (int i = 0; i < N; i++)
        assert_true(send(fds[i], GET HOST "\r\n", sizeof(GET HOST "\r\n") - 1, 0) > 0);
    for (; t.requests < N; turns++) {
        before = t.requests;
        (void)uv_run(&t.loop, UV_RUN_NOWAIT);
        assert_in_range(t.requests - before, 0, MOST);
        assert_true(turns < 1000);
    }
    assert_true(turns >= N / MOST);
    for (int i = 0; i < N; i++) {
        AUTO_BUF struct buf b = BUF_INIT(4096);
        test_receive(&t, fds[i], &b, STR("done"));
        (void)close(fds[i]);
    }
    test_server_close(&t);
}

static void test_small(void **state)
{
    (void)state;
    /* An idle connection is this and its socket. */
    assert_true(sizeof(struct conn) < 600);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split_everywhere),
        cmocka_unit_test(test_byte_by_byte),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_timeouts),
        cmocka_unit_test(test_too_many_connections),
        cmocka_unit_test(test_idle_connections_make_room),
        cmocka_unit_test(test_slow_strangers_make_room),
        cmocka_unit_test(test_long_heads_make_room),
        cmocka_unit_test(test_unread_answers_are_not_the_kernel_s),
        cmocka_unit_test(test_unread_answers_make_room),
        cmocka_unit_test(test_a_crowd_leaves_others_their_turn),
        cmocka_unit_test(test_http10),
        cmocka_unit_test(test_expect_continue),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_turns_are_bounded),
        cmocka_unit_test(test_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
