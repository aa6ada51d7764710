/* SPDX-License-Identifier: Apache-2.0 */
/* The relay between a real client connection and an upstream that the test plays byte by byte. */
#include "base/fd.h"
#include "base/mem.h"
#include "http/client/proxy.h"
#include "http/test_server.h"

#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define HOST "Host: a\r\n"
#define GET "GET /x?y=z HTTP/1.1\r\n" HOST "\r\n"

struct upstream {
    struct http_proxy *proxy; /* NULL after close() */
    struct buf written;
    ssize_t queued; /* what write() says */
    bool paused, ended;
    unsigned opens, closes, pauses, resumes;
};

static struct test_server t;
static struct upstream up;
static struct http_proxy_options options;

static ssize_t up_write(void *ctx, const struct str *parts, size_t n)
{
    struct upstream *u = ctx;
    for (size_t i = 0; i < n; i++)
        assert_int_equal(buf_append_str(&u->written, parts[i]), 0);
    return u->queued;
}

static void up_end(void *ctx)
{
    ((struct upstream *)ctx)->ended = true;
}

static void up_pause(void *ctx)
{
    struct upstream *u = ctx;
    assert_false(u->paused);
    u->paused = true;
    u->pauses++;
}

static void up_resume(void *ctx)
{
    struct upstream *u = ctx;
    assert_true(u->paused);
    u->paused = false;
    u->resumes++;
}

static void up_close(void *ctx)
{
    struct upstream *u = ctx;
    u->proxy = NULL;
    u->closes++;
}

static const struct http_upstream_ops ops = {up_write, up_end, up_pause, up_resume, up_close};

static void on_done(struct http_request *req, void *ctx)
{
    struct test_server *s = ctx;
    (void)req;
    s->closes++;
}

static void on_bad_gateway(struct http_request *req, int error, void *ctx)
{
    char text[32];
    (void)ctx;
    int n = snprintf(text, sizeof(text), "bad gateway %d", error);
    (void)http_respond(req, 502, NULL, 0, str_n(text, (size_t)n));
}

static void on_request(struct http_request *req, void *ctx)
{
    (void)ctx;
    assert_null(up.proxy);
    t.requests++;
    up.opens++;
    up.paused = up.ended = false;
    options.on_done = on_done;
    options.ctx = &t;
    assert_int_equal(http_proxy_start(req, &ops, &up, &options, &up.proxy), 0);
}

static int open_server(void **state)
{
    (void)state;
    up = (struct upstream){.written = BUF_INIT(64 << 20)};
    options = (struct http_proxy_options){.on_bad_gateway = on_bad_gateway};
    test_server_open_with(&t, NULL, false, on_request);
    return 0;
}

static int close_server(void **state)
{
    (void)state;
    test_server_close(&t);
    assert_null(up.proxy);
    assert_int_equal(up.opens, up.closes);
    buf_fini(&up.written);
    return 0;
}

static void feed(const char *bytes)
{
    if (up.proxy)
        http_proxy_feed(up.proxy, str_of(bytes));
}

/* One exchange: the upstream's answer in two pieces split at `at`, then its end of file. */
static void exchange(const char *request, struct str answer, size_t at, bool eof, struct buf *b)
{
    int fd = test_connect(&t);
    buf_clear(b);
    buf_clear(&up.written);
    test_send(&t, fd, str_of(request));
    assert_non_null(up.proxy);
    http_proxy_feed(up.proxy, str_n(answer.p, at));
    test_turn(&t);
    if (up.proxy)
        http_proxy_feed(up.proxy, str_sub(answer, at));
    test_turn(&t);
    if (eof && up.proxy)
        http_proxy_eof(up.proxy);
    (void)shutdown(fd, SHUT_WR);
    test_receive(&t, fd, b, STR_NULL);
    test_strip_dates(b);
    (void)close(fd);
    test_turn(&t);
    assert_null(up.proxy);
}

static void expect(const char *request, const char *answer, bool eof, const char *wanted)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct str a = str_of(answer);
    for (size_t at = 0; at <= a.n; at++) {
        exchange(request, a, at, eof, &b);
        /* Chunks are ours to cut: compared without them where the answer was split. */
        if (at == 0 || !memmem(buf_data(&b), buf_len(&b), "chunked", 7))
            assert_str(buf_str(&b), wanted);
        else
            assert_true(str_ends(buf_str(&b), STR("\r\n0\r\n\r\n")));
    }
}

static void test_answers(void **state)
{
    (void)state;
    expect(GET, "HTTP/1.1 200 Fine\r\nContent-Length: 5\r\nX-a: b\r\n\r\nhello", false,
           "HTTP/1.1 200 OK\r\nX-a: b\r\ncontent-length: 5\r\n\r\nhello");
    expect(GET, "HTTP/1.1 404 Never\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false,
           "HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    expect(GET, "HTTP/1.0 200 OK\r\nServer: x\r\n\r\nhello", true,
           "HTTP/1.1 200 OK\r\nServer: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    expect(
        GET,
        "HTTP/1.1 100 Continue\r\nA: b\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\nC: d\r\n\r\n",
        false, "HTTP/1.1 204 No Content\r\nC: d\r\n\r\n");
    expect("HEAD / HTTP/1.1\r\n" HOST "\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n", false,
           "HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n");
    expect(GET, "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 7\r\n\r\n", false,
           "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n");
    expect(
        GET,
        "HTTP/1.1 200 OK\r\nConnection: close, X-Private\r\nX-Private: 1\r\nKeep-Alive: 5\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nDate: today\r\n"
        "Content-Length: 0\r\n\r\nrubbish behind the end",
        false, "HTTP/1.1 200 OK\r\nSet-Cookie: a\r\nSet-Cookie: b\r\ncontent-length: 0\r\n\r\n");
}

static void test_bad_answers(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    static const struct {
        const char *answer;
        int error;
    } bad[] = {
        {"", -EPIPE},
        {"HTTP/1.1 200 OK\r\nX: ", -EPIPE},
        {"HTTP/1.1 100 Continue\r\n\r\n", -EPIPE},
        {"SSH-2.0-OpenSSH\r\n", -EPROTO},
        {"HTTP/1.1 20 OK\r\n\r\n", -EPROTO},
        {"HTTP/2.5 200 OK\r\n\r\n", -EPROTO},
        {"HTTP/1.1 200 OK\r\n: x\r\n\r\n", -EPROTO},
        {"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", -EPROTO},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", -EPROTO},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", -EPROTO},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", -EPROTO},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", -EPROTO},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        char wanted[64];
        exchange(GET, str_of(bad[i].answer), 0, true, &b);
        (void)snprintf(wanted, sizeof(wanted), "\r\n\r\nbad gateway %d", bad[i].error);
        if (!str_starts(buf_str(&b), STR("HTTP/1.1 502 ")) || !str_ends(buf_str(&b), str_of(wanted)))
            fail_msg("\"%s\" made \"%.*s\"", bad[i].answer, STR_ARG(buf_str(&b)));
    }
    /* A head without an end. */
    AUTO_BUF struct buf flood = BUF_INIT(1 << 20);
    buf_append_cstr(&flood, "HTTP/1.1 200 OK\r\n");
    for (int i = 0; i < 10000; i++)
        buf_append_cstr(&flood, "a: b\r\n");
    exchange(GET, buf_str(&flood), 100, false, &b);
    assert_true(str_ends(buf_str(&b), STR("bad gateway -71")));
    /* What the client sees nothing of, without an end. */
    buf_clear(&flood);
    for (int i = 0; i < 1001; i++)
        buf_append_cstr(&flood, "HTTP/1.1 103 Early Hints\r\n\r\n");
    exchange(GET, buf_str(&flood), 100, false, &b);
    assert_true(str_ends(buf_str(&b), STR("bad gateway -71")));

    options.on_bad_gateway = NULL;
    exchange(GET, STR("nonsense"), 0, true, &b);
    assert_has(buf_str(&b), "{\"code\":502,\"message\":\"");
}

static void test_cut_short(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    static const char *const cut[] = {"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello",
                                      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
                                      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nrubbish"};
    for (size_t i = 0; i < ARRAY_SIZE(cut); i++) {
        exchange(GET, str_of(cut[i]), strlen(cut[i]), true, &b);
        assert_true(str_starts(buf_str(&b), STR("HTTP/1.1 200 ")));
        assert_false(str_ends(buf_str(&b), STR("0\r\n\r\n")));
    }
    /* More trailers and extensions than anybody needs, which the client sees nothing of. */
    static const char *const much[][3] = {{"0\r\n", "a: b\r\n", "\r\n"}, {"1;x", "xxx", "\r\na\r\n0\r\n\r\n"}};
    for (size_t i = 0; i < ARRAY_SIZE(much); i++) {
        AUTO_BUF struct buf flood = BUF_INIT(1 << 20);
        buf_append_cstr(&flood, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        buf_append_cstr(&flood, much[i][0]);
        for (int k = 0; k < 9000; k++)
            buf_append_cstr(&flood, much[i][1]);
        buf_append_cstr(&flood, much[i][2]);
        exchange(GET, buf_str(&flood), 1000, false, &b);
        assert_true(str_starts(buf_str(&b), STR("HTTP/1.1 200 ")));
        assert_false(str_ends(buf_str(&b), STR("0\r\n\r\n")));
    }
}

static void test_request_head(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    const char *request =
        "GET http://80-i1.x:7070/x?y HTTP/1.1\r\nHost: 80-i1.x:7070\r\nAccept: */*\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\n"
        "X-Api-Key: secret\r\nCookie: c\r\nX-Forwarded-Host: forged\r\nX-Set: forged\r\n\r\n";
    exchange(request, STR("HTTP/1.1 204 No Content\r\n\r\n"), 0, false, &b);
    assert_str(buf_str(&up.written),
               "GET /x?y HTTP/1.1\r\nHost: 80-i1.x:7070\r\nAccept: */*\r\nX-Api-Key: secret\r\nCookie: c\r\n"
               "X-Forwarded-Host: forged\r\nX-Set: forged\r\nconnection: close\r\n\r\n");
    static const char *const drop[] = {"x-api-key", NULL};
    options.drop = drop;
    options.host = STR("localhost:80");
    options.target = STR("/other");
    exchange(request, STR("HTTP/1.1 204 No Content\r\n\r\n"), 0, false, &b);
    assert_str(
        buf_str(&up.written),
        "GET /other HTTP/1.1\r\nHost: localhost:80\r\nx-forwarded-host: 80-i1.x:7070\r\nAccept: */*\r\nCookie: c\r\n"
        "X-Set: forged\r\n"
        "connection: close\r\n\r\n");
}

static void test_request_body(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    exchange("POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello", STR("HTTP/1.1 204 No Content\r\n\r\n"), 0,
             false, &b);
    assert_str(buf_str(&up.written),
               "POST / HTTP/1.1\r\nHost: a\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello");
    exchange("POST / HTTP/1.1\r\n" HOST
             "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n5;ext\r\nhello\r\n0\r\nTrailer: x\r\n\r\n",
             STR("HTTP/1.1 204 No Content\r\n\r\n"), 0, false, &b);
    assert_str(
        buf_str(&up.written),
        "POST / HTTP/1.1\r\nHost: a\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    exchange("POST / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", STR("HTTP/1.1 204 No Content\r\n\r\n"), 0, false,
             &b);
    assert_str(buf_str(&up.written), "POST / HTTP/1.1\r\nHost: a\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");

    /* A body with bad framing: whatever went upstream, it never looks complete. */
    int fd = test_connect(&t);
    buf_clear(&b);
    buf_clear(&up.written);
    test_send(&t, fd, STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n"));
    test_receive(&t, fd, &b, STR_NULL);
    assert_true(str_starts(buf_str(&b), STR("HTTP/1.1 400 ")));
    assert_false(str_ends(buf_str(&up.written), STR("0\r\n\r\n")));
    (void)close(fd);
}

static void test_slow_upstream(void **state)
{
    (void)state;
    static char block[1024 * 1024];
    int fd = test_connect(&t);
    up.queued = HTTP_PROXY_HIGH + 1;
    test_send(&t, fd, STR("POST / HTTP/1.1\r\n" HOST "Content-Length: 50000000\r\n\r\n"));
    size_t sent = 0;
    for (int i = 0; i < 1000; i++) {
        ssize_t n = send(fd, block, sizeof(block), MSG_NOSIGNAL);
        sent += n > 0 ? (size_t)n : 0;
        test_turn(&t);
    }
    assert_true(sent < 40000000); /* the socket is full, and nobody reads */
    assert_true(buf_len(&up.written) < 600 * 1024);
    size_t before = buf_len(&up.written);
    http_proxy_writable(up.proxy);
    test_turn(&t);
    assert_true(buf_len(&up.written) > before);
    (void)close(fd);
    http_proxy_writable(up.proxy);
    up.queued = 0;
    for (int i = 0; i < 100 && up.proxy; i++) {
        http_proxy_writable(up.proxy);
        test_turn(&t);
    }
    assert_null(up.proxy);
}

static void test_slow_client(void **state)
{
    (void)state;
    static char block[64 * 1024];
    AUTO_BUF struct buf b = BUF_INIT(128 << 20);
    int fd = test_connect(&t);
    test_send(&t, fd, STR(GET));
    feed("HTTP/1.1 200 OK\r\nContent-Length: 67108864\r\n\r\n");
    size_t fed = 0;
    while (fed < 67108864 && !up.paused) {
        http_proxy_feed(up.proxy, str_n(block, sizeof(block)));
        fed += sizeof(block);
        test_turn(&t);
    }
    assert_true(up.paused);
    for (int i = 0; i < 16; i++, fed += sizeof(block)) /* what was under way */
        http_proxy_feed(up.proxy, str_n(block, sizeof(block)));
    assert_int_equal(up.pauses, 1);
    /* Now it reads, and all is there. */
    for (int idle = 0; idle < 100000 && buf_len(&b) < 67108864;) {
        ssize_t n = recv(fd, block, sizeof(block), 0);
        if (n > 0)
            assert_int_equal(buf_append(&b, block, (size_t)n), 0);
        idle += n <= 0;
        uv_run(&t.loop, UV_RUN_NOWAIT);
        while (up.proxy && !up.paused && fed < 67108864) {
            http_proxy_feed(up.proxy, str_n(block, sizeof(block)));
            fed += sizeof(block);
        }
    }
    assert_true(buf_len(&b) >= 67108864);
    assert_true(up.resumes > 0);
    (void)close(fd);
}

static void test_deaf_upstream(void **state)
{
    (void)state;
    static char block[1024 * 1024];
    int fd = test_connect(&t);
    test_send(&t, fd, STR(GET));
    feed("HTTP/1.1 200 OK\r\n\r\n");
    for (int i = 0; i < 100 && up.proxy; i++) {
        http_proxy_feed(up.proxy, str_n(block, sizeof(block)));
        if (i % 10 == 9)
            test_turn(&t);
    }
    assert_null(up.proxy); /* it was told to pause and did not: cut */
    (void)close(fd);
}

static void test_upgrade(void **state)
{
    (void)state;
    static const char head[] =
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n";
    for (size_t at = 0; at < sizeof(head); at++) {
        AUTO_BUF struct buf b = BUF_INIT(1 << 20);
        int fd = test_connect(&t);
        buf_clear(&up.written);
        test_send(&t, fd,
                  STR("GET /ws HTTP/1.1\r\n" HOST
                      "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n\x81\x01"));
        assert_str(
            buf_str(&up.written),
            "GET /ws HTTP/1.1\r\nHost: a\r\nSec-WebSocket-Key: k\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
        buf_clear(&up.written);
        http_proxy_feed(up.proxy, str_n(head, at));
        test_turn(&t);
        AUTO_BUF struct buf rest = BUF_INIT(1000);
        buf_append_cstr(&rest, head + at);
        buf_append_cstr(&rest, "welcome");
        http_proxy_feed(up.proxy, buf_str(&rest));
        test_receive(&t, fd, &b, STR("welcome"));
        assert_str(
            buf_str(&b),
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nSec-WebSocket-Accept: x\r\nupgrade: websocket\r\n\r\nwelcome");
        test_send(&t, fd, STR("x\0GET /"));
        assert_true(str_eq(buf_str(&up.written), STR("\x81\x01x\0GET /")));
        if (at % 3 == 0) { /* the client ends first, */
            (void)shutdown(fd, SHUT_WR);
            test_turn(&t);
            assert_true(up.ended);
            feed("last words");
            http_proxy_eof(up.proxy);
            test_receive(&t, fd, &b, STR("last words"));
        } else if (at % 3 == 1) { /* the upstream, */
            http_proxy_eof(up.proxy);
            test_receive(&t, fd, &b, STR_NULL);
            assert_non_null(up.proxy);
            test_send(&t, fd, STR("bye"));
            assert_true(str_ends(buf_str(&up.written), STR("bye")));
        } else { /* or it breaks */
            http_proxy_failed(up.proxy, -ECONNRESET);
            assert_true(test_is_closed(&t, fd));
        }
        (void)close(fd);
        test_turn(&t);
        assert_null(up.proxy);
    }
}

static void test_upgrade_refused(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    exchange("GET /ws HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
             STR("HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno"), 0, false, &b);
    assert_str(buf_str(&b), "HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno");
}

static void test_client_leaves(void **state)
{
    (void)state;
    static const char *const so_far[] = {"", "HTTP/1.1 200 OK\r\n",
                                         "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
                                         "HTTP/1.1 200 OK\r\n\r\nhello"};
    for (size_t i = 0; i < ARRAY_SIZE(so_far); i++) {
        int fd = test_connect(&t);
        test_send(&t, fd, STR(GET));
        feed(so_far[i]);
        struct linger hard = {.l_onoff = 1, .l_linger = 0};
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
        (void)close(fd);
        test_turn(&t);
        assert_null(up.proxy);
    }
}

static void test_keeps_client(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    int fd = test_connect(&t);
    for (int i = 0; i < 3; i++) {
        test_send(&t, fd, STR(GET));
        feed("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        buf_clear(&b);
        test_receive(&t, fd, &b, STR("\r\n\r\nok"));
        test_turn(&t);
        assert_null(up.proxy);
    }
    (void)close(fd);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, open_server, close_server)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_answers),      TEST(test_bad_answers),     TEST(test_cut_short),     TEST(test_request_head),
        TEST(test_request_body), TEST(test_slow_upstream),   TEST(test_slow_client),   TEST(test_deaf_upstream),
        TEST(test_upgrade),      TEST(test_upgrade_refused), TEST(test_client_leaves), TEST(test_keeps_client),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
