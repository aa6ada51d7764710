/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies in both directions: back-pressure, cuts, clients that leave, bodies nobody wants, raw take-over, shutdown. */
#include "base/fd.h"
#include "base/mem.h"
#include "http/test_server.h"

#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define HOST "Host: a\r\n"
#define GET(path) "GET " path " HTTP/1.1\r\n" HOST "\r\n"

static struct test_server t;

static int open_server(void **state)
{
    test_server_open(&t, NULL, *state != NULL);
    return 0;
}

static int close_server(void **state)
{
    (void)state;
    test_server_close(&t);
    return 0;
}

/* Receives n bytes in all, beginning with what is in b. */
static void receive_bytes(int fd, struct buf *b, size_t n)
{
    for (int idle = 0; buf_len(b) < n && idle < 100000;) {
        char *to = buf_reserve(b, 64 * 1024);
        assert_non_null(to);
        ssize_t got = recv(fd, to, MIN((size_t)64 * 1024, n - buf_len(b)), 0);
        if (got > 0) {
            buf_commit(b, (size_t)got);
            continue;
        }
        assert_true(got < 0 && errno == EAGAIN);
        idle++;
        uv_run(&t.loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(buf_len(b), n);
}

static void test_back_pressure_down(void **state)
{
    (void)state;
    enum { SIZE = 64 * 1024 * 1024 };
    AUTO_BUF struct buf b = BUF_INIT(SIZE + 2 * 65536);
    int fd = test_connect(&t);
    test_send(&t, fd, STR("GET /big?n=67108864 HTTP/1.1\r\n" HOST "\r\n"));
    for (int i = 0; i < 100; i++)
        uv_run(&t.loop, UV_RUN_NOWAIT);
    assert_int_equal(t.closes, 0);
    test_receive(&t, fd, &b, STR("\r\n\r\n"));
    size_t head = (size_t)((char *)memmem(buf_data(&b), buf_len(&b), "\r\n\r\n", 4) + 4 - buf_data(&b));
    receive_bytes(fd, &b, head + SIZE);
    test_send(&t, fd, STR(GET("/hello")));
    buf_clear(&b);
    test_receive(&t, fd, &b, STR("hello GET"));
    assert_int_equal(t.closes, 2);
    (void)close(fd);
}

static void test_queue_is_bounded(void **state)
{
    (void)state;
    static char block[1024 * 1024];
    int fd = test_connect(&t);
    test_send(&t, fd, STR(GET("/hold")));
    assert_non_null(t.held);
    assert_int_equal(http_response_begin(t.held, 200, NULL, 0, -1), 0);
    ssize_t r = 0;
    for (int i = 0; i < 100 && r >= 0; i++) {
        r = http_response_write(t.held, str_n(block, sizeof(block)));
        if (r > 256 * 1024)
            assert_true(http_response_full(t.held));
    }
    assert_int_equal(r, -ENOBUFS);
    assert_in_range(http_response_queued(t.held), 7 * 1024 * 1024, 8 * 1024 * 1024);
    (void)close(fd);
    test_turn(&t);
    assert_null(t.held);
}

struct counted {
    size_t now, most, room;
};

static bool counted_fits(void *ctx, size_t before, size_t now)
{
    struct counted *c = ctx;
    assert_int_equal(before, c->now);
    if (now > c->room)
        return false;
    c->now = now;
    c->most = MAX(c->most, now);
    return true;
}

/* What waits for a client that reads nothing is somebody's memory, who may have no more of it. */
static void test_queues_are_counted(void **state)
{
    (void)state;
    static char block[100 * 1024];
    struct counted c = {.room = 1 << 20};
    AUTO_BUF struct buf b = BUF_INIT(64 << 20);
    int fd = test_connect(&t);
    test_send(&t, fd, STR(GET("/hold")));
    test_turn(&t);
    http_count_queue(t.held, counted_fits, &c);
    (void)http_response_begin(t.held, 200, NULL, 0, -1);
    size_t written = 0;
    for (; !http_response_full(t.held); written += sizeof(block))
        assert_true(http_response_write(t.held, str_n(block, sizeof(block))) >= 0);
    assert_in_range(c.now, http_response_queued(t.held) - 16 * 1024, 1 << 20);
    receive_bytes(fd, &b, written);
    test_turn(&t);
    assert_int_equal(c.now, 0); /* taken */
    ssize_t r = 0;
    for (int i = 0; i < 1000 && r >= 0; i++)
        r = http_response_write(t.held, str_n(block, sizeof(block)));
    assert_int_equal(r, -ENOBUFS);
    assert_in_range(c.most, 400 * 1024, 1 << 20);
    test_turn(&t);
    assert_null(t.held);
    (void)close(fd);
}

static void test_upload(void **state)
{
    (void)state;
    static char block[3 * 1024 * 1024 + 17];
    AUTO_BUF struct buf b = BUF_INIT(65536);
    int fd = test_connect(&t);
    test_send(&t, fd, STR("PUT /count HTTP/1.1\r\n" HOST "Content-Length: 31457450\r\n\r\n"));
    for (int i = 0; i < 10; i++)
        test_send(&t, fd, str_n(block, sizeof(block)));
    test_receive(&t, fd, &b, STR("31457450"));
    test_send(&t, fd, STR("PUT /count HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"));
    for (int i = 0; i < 10; i++) {
        char size[32];
        (void)snprintf(size, sizeof(size), "%zx\r\n", sizeof(block));
        test_send(&t, fd, str_of(size));
        test_send(&t, fd, str_n(block, sizeof(block)));
        test_send(&t, fd, STR("\r\n"));
    }
    buf_clear(&b);
    test_send(&t, fd, STR("0\r\n\r\n"));
    test_receive(&t, fd, &b, STR("31457450"));
    (void)close(fd);
}

/* A handler that pauses after each piece, and a clock that resumes. */
static void paused_data(struct http_request *req, struct str data, void *ctx)
{
    struct buf *got = ctx;
    assert_int_equal(buf_append_str(got, data), 0);
    buf_append_char(got, '|');
    http_pause_body(req);
}

static void paused_end(struct http_request *req, void *ctx)
{
    (void)http_respond(req, 200, NULL, 0, buf_str(ctx));
}

static struct buf *taken; /* of the request that is paused, in its arena */

static void count_close(struct http_request *req, void *ctx)
{
    struct test_server *s = ctx;
    (void)req;
    s->closes++;
    if (taken)
        buf_fini(taken);
    taken = NULL;
}

static void on_paused_request(struct http_request *req, void *ctx)
{
    static const struct http_body_ops ops = {paused_data, paused_end, NULL};
    struct test_server *s = ctx;
    struct buf *got = arena_alloc(http_arena(req), sizeof(*got));
    buf_init(got, 4096);
    s->requests++;
    s->held = req;
    taken = got;
    http_on_close(req, count_close, s);
    http_stream_body(req, &ops, got);
}

static void test_pause(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(65536);
    struct test_server p;
    test_server_open_with(&p, NULL, false, on_paused_request);
    int fd = test_connect(&p);
    test_send(&p, fd,
              STR("PUT / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbb\r\n3\r\nccc\r\n"));
    static const char *const so_far[] = {"a|", "a|bb|", "a|bb|ccc|"};
    struct buf *got = taken;
    for (size_t i = 0; i < ARRAY_SIZE(so_far); i++) {
        test_turn(&p);
        assert_str(buf_str(got), so_far[i]);
        http_resume_body(p.held);
    }
    test_send(&p, fd, STR("4\r\ndddd\r\n0\r\n\r\n"));
    assert_str(buf_str(got), "a|bb|ccc|dddd|");
    test_turn(&p);
    assert_false(http_response_begun(p.held));
    http_resume_body(p.held);
    test_receive(&p, fd, &b, STR("\r\n\r\na|bb|ccc|dddd|"));

    /* One piece that ends the body, and the pause falls between it and the end. */
    test_send(&p, fd, STR("PUT / HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nxyz"));
    got = taken;
    assert_str(buf_str(got), "xyz|");
    buf_clear(&b);
    http_resume_body(p.held);
    test_receive(&p, fd, &b, STR("\r\n\r\nxyz|"));

    /* The client leaves while paused: noticed at the latest when going on. */
    test_send(&p, fd, STR("PUT / HTTP/1.1\r\n" HOST "Content-Length: 30\r\n\r\nxyz"));
    (void)close(fd);
    test_turn(&p);
    if (p.closes < p.requests)
        http_resume_body(p.held);
    test_turn(&p);
    assert_int_equal(p.closes, p.requests);
    test_server_close(&p);
}

static void test_abort(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(65536);
    int fd = test_connect(&t);
    test_send(&t, fd, STR(GET("/cut")));
    test_receive(&t, fd, &b, STR("\r\n3\r\none\r\n"));
    http_abort(t.held);
    assert_int_equal(t.closes, 0); /* not from inside */
    assert_int_equal(http_response_write(t.held, STR("two")), -EPIPE);
    test_receive(&t, fd, &b, STR_NULL);
    assert_true(str_ends(buf_str(&b), STR("3\r\none\r\n")));
    (void)close(fd);

    buf_clear(&b);
    test_exchange(&t, STR(GET("/short")), false, &b);
    assert_false(str_ends(buf_str(&b), STR("\r\n0\r\n\r\n")));

    /* Before any response, and of HTTP/1.0, whose stream has no other end: a reset. */
    int before = test_connect(&t), old = test_connect(&t);
    char c;
    test_send(&t, before, STR(GET("/hold")));
    http_abort(t.held);
    assert_true(test_is_closed(&t, before));
    test_send(&t, old, STR("GET /cut HTTP/1.0\r\n\r\n"));
    buf_clear(&b);
    test_receive(&t, old, &b, STR("one"));
    http_abort(t.held);
    test_turn(&t);
    if (!t.unix_path[0]) {
        assert_int_equal(recv(old, &c, 1, 0), -1);
        assert_int_equal(errno, ECONNRESET);
    }
    (void)close(before);
    (void)close(old);
}

static void test_client_leaves(void **state)
{
    (void)state;
    static const char *const requests[] = {GET("/hold"),
                                           GET("/cut"),
                                           GET("/endless"),
                                           "POST /count HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\nabc",
                                           "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\nabc",
                                           "POST /stream HTTP/1.1\r\n" HOST
                                           "Transfer-Encoding: chunked\r\n\r\n5\r\nabc"};
    for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
        for (int reset = 0; reset <= 1; reset++) {
            int fd = test_connect(&t);
            unsigned closes = t.closes;
            t.body_error = 0;
            test_send(&t, fd, str_of(requests[i]));
            assert_int_equal(t.closes, closes);
            struct linger hard = {.l_onoff = reset, .l_linger = 0};
            assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard)), 0);
            (void)close(fd);
            test_turn(&t);
            /* A FIN alone does not take an answer of known length away from the client. */
            if (i == 0 && !reset && !t.unix_path[0]) {
                assert_int_equal(t.closes, closes);
                (void)http_respond(t.held, 204, NULL, 0, STR(""));
                test_turn(&t);
            }
            assert_int_equal(t.closes, closes + 1);
            assert_int_equal(t.body_error, i >= 3 ? -EPIPE : 0);
        }
    }
    assert_int_equal(http_server_connections(t.server), 0);
}

static void test_half_closed(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(4 * 1024 * 1024);
    test_exchange(&t, STR(GET("/hello") GET("/later") GET("/hello")), true, &b);
    assert_true(str_ends(buf_str(&b), STR("hello GET")));
    assert_has(buf_str(&b), "later");
    buf_clear(&b);
    test_exchange(&t, STR(GET("/big?n=3000000")), true, &b);
    assert_true(buf_len(&b) > 3000000);
}

static void test_unwanted_body(void **state)
{
    (void)state;
    static char block[1024 * 1024];
    AUTO_BUF struct buf b = BUF_INIT(65536);
    int fd = test_connect(&t);
    /* A small one is skipped, and nothing of it taken for a request. */
    test_send(&t, fd, STR("POST /hello HTTP/1.1\r\n" HOST "Content-Length: 39\r\n\r\n"));
    test_receive(&t, fd, &b, STR("hello POST"));
    test_send(&t, fd, STR("GET /evil HTTP/1.1\r\nHost: a.example\r\n\r\n" GET("/hello")));
    test_receive(&t, fd, &b, STR("hello GET"));
    assert_null(memmem(buf_data(&b), buf_len(&b), "404", 3));
    assert_null(memmem(buf_data(&b), buf_len(&b), "close", 5));

    /* A large one is not worth it. The answer arrives all the same. */
    buf_clear(&b);
    test_send(&t, fd, STR("POST /hello HTTP/1.1\r\n" HOST "Content-Length: 1000000000\r\n\r\n"));
    for (int i = 0; i < 8; i++)
        test_send(&t, fd, str_n(block, sizeof(block)));
    test_receive(&t, fd, &b, STR_NULL);
    assert_has(buf_str(&b), "connection: close\r\n");
    assert_true(str_ends(buf_str(&b), STR("hello POST")));
    (void)close(fd);

    /* Chunked: its length is anybody's guess. */
    buf_clear(&b);
    fd = test_connect(&t);
    test_send(&t, fd, STR("POST /hello HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\r\nab"));
    test_receive(&t, fd, &b, STR_NULL);
    assert_true(str_ends(buf_str(&b), STR("hello POST")));
    (void)close(fd);

    /* Too large for the handler that asked for it, found while reading. */
    buf_clear(&b);
    fd = test_connect(&t);
    test_send(&t, fd, STR("POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n100000\r\n"));
    test_send(&t, fd, str_n(block, sizeof(block)));
    test_receive(&t, fd, &b, STR_NULL);
    assert_true(str_starts(buf_str(&b), STR("HTTP/1.1 413 ")));
    assert_true(str_ends(buf_str(&b), STR("{\"code\":413,\"message\":\"too much\"}")));
    (void)close(fd);
}

static void test_upgrade(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(4 * 1024 * 1024);
    int fd = test_connect(&t);
    /* Raw bytes may come with the head. */
    test_send(&t, fd, STR("GET /up HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: raw\r\n\r\nearly"));
    test_receive(&t, fd, &b, STR("early"));
    assert_str(buf_str(&b), "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: raw\r\n\r\nearly");
    buf_clear(&b);
    test_send(&t, fd, STR("GET / HTTP/1.1\r\n\r\n\0\1\2"));
    test_receive(&t, fd, &b, STR("\0\1\2"));
    assert_int_equal(buf_len(&b), 21);
    (void)shutdown(fd, SHUT_WR);
    test_receive(&t, fd, &b, STR_NULL);
    assert_int_equal(t.closes, 1);
    (void)close(fd);

    /* Who asks for another protocol and does not get it goes on with this one. */
    buf_clear(&b);
    test_exchange(&t,
                  STR("GET /hello HTTP/1.1\r\n" HOST
                      "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n" GET("/nothing")),
                  true, &b);
    assert_has(buf_str(&b), "hello GETHTTP/1.1 404");
    assert_int_equal(t.closes, 3);
}

static void test_peer(void **state)
{
    (void)state;
    struct http_peer peer;
    int fd = test_connect(&t);
    test_send(&t, fd, STR(GET("/hold")));
    assert_non_null(t.held);
    assert_int_equal(http_peer_get(t.held, &peer), 0);
    if (t.unix_path[0]) {
        assert_true(peer.is_unix);
        assert_int_equal(peer.uid, getuid());
        assert_int_equal(peer.pid, getpid());
    } else {
        assert_false(peer.is_unix);
        assert_int_equal(peer.uid, (uid_t)-1);
        assert_true(str_starts(str_of(peer.address), STR("127.0.0.1:")));
    }
    (void)close(fd);
    http_abort(t.held);
}

static void test_added_headers(struct http_request *req, void *ctx)
{
    struct test_server *s = ctx;
    s->requests++;
    http_on_close(req, count_close, s);
    http_add_header(req, STR("access-control-allow-origin"), STR("*"));
    http_add_header(req, STR("bad name"), STR("x"));
    http_add_header(req, STR("bad-value"), STR("x\r\ny: z"));
    http_add_header(req, STR("content-length"), STR("77"));
    (void)http_respond(req, 204, &HTTP_HEADER("x", "y"), 1, STR("no such thing as a body"));
    assert_int_equal(http_respond(req, 200, NULL, 0, STR("twice")), -EPIPE);
}

static void test_head_is_safe(void **state)
{
    (void)state;
    struct test_server s;
    AUTO_BUF struct buf b = BUF_INIT(65536);
    test_server_open_with(&s, NULL, false, test_added_headers);
    test_exchange(&s, STR("GET / HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n"), false, &b);
    assert_str(buf_str(&b),
               "HTTP/1.1 204 No Content\r\nx: y\r\naccess-control-allow-origin: *\r\nconnection: close\r\n\r\n");
    test_server_close(&s);
}

/* Answers at the first piece of a body, cuts at it, or takes the connection over behind it. */
static void early_data(struct http_request *req, struct str data, void *ctx)
{
    (void)data;
    (void)ctx;
    assert_false(http_response_begun(req));
    if (str_eqc(http_path(req), "/cut"))
        http_abort(req);
    else
        (void)http_respond(req, 507, NULL, 0, STR("full"));
}

static void never_end(struct http_request *req, void *ctx)
{
    (void)req;
    (void)ctx;
    fail_msg("the body's end was told to a handler that had answered");
}

static void never_error(struct http_request *req, int error, void *ctx)
{
    (void)req;
    (void)ctx;
    fail_msg("error %d was told to a handler that had answered", error);
}

static void raw_data(struct http_request *req, struct str data, void *ctx)
{
    (void)ctx;
    (void)http_response_write(req, data);
}

static void raw_end(struct http_request *req, void *ctx)
{
    (void)ctx;
    (void)http_response_end(req);
}

static void take_over(struct http_request *req, int error, struct str body, void *ctx)
{
    static const struct http_body_ops ops = {raw_data, raw_end, never_error};
    assert_int_equal(error, 0);
    assert_str(body, "{}");
    assert_int_equal(http_upgrade(req, &HTTP_HEADER("upgrade", "raw"), 1), 0);
    http_stream_body(req, &ops, ctx);
}

static void never_whole(struct http_request *req, int error, struct str body, void *ctx)
{
    (void)req, (void)error, (void)body, (void)ctx;
    fail();
}

static bool room_for_ten(void *ctx, size_t n)
{
    struct test_server *s = ctx;
    s->body_bytes += n;
    if (s->body_bytes > 10)
        (void)http_respond(s->held, 429, NULL, 0, STR("no room"));
    return s->body_bytes <= 10;
}

static void on_early_request(struct http_request *req, void *ctx)
{
    static const struct http_body_ops ops = {early_data, never_end, never_error};
    struct test_server *s = ctx;
    s->requests++;
    http_on_close(req, count_close, s);
    if (str_eqc(http_path(req), "/now")) {
        http_stream_body(req, &ops, s);
        (void)http_respond(req, 200, NULL, 0, STR("now"));
    } else if (str_eqc(http_path(req), "/room")) {
        s->held = req;
        s->body_bytes = 0;
        http_read_body(req, 100, room_for_ten, never_whole, s);
    } else if (http_wants_upgrade(req)) {
        assert_int_equal(http_upgrade(req, NULL, 0), -EBUSY);
        http_read_body(req, 100, NULL, take_over, s);
    } else {
        http_stream_body(req, &ops, s);
    }
}

static void test_early_answers(void **state)
{
    (void)state;
    static char block[1024 * 1024];
    struct test_server s;
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    test_server_open_with(&s, NULL, false, on_early_request);
    int fd = test_connect(&s);
    test_send(&s, fd, STR("PUT / HTTP/1.1\r\n" HOST "Content-Length: 6\r\n\r\nabc"));
    test_receive(&s, fd, &b, STR("\r\n\r\nfull"));
    test_send(&s, fd, STR("def" GET("/now")));
    test_receive(&s, fd, &b, STR("\r\n\r\nnow"));
    test_send(&s, fd, STR("PUT / HTTP/1.1\r\n" HOST "Content-Length: 100000000\r\n\r\n"));
    for (int i = 0; i < 10; i++)
        test_send(&s, fd, str_n(block, sizeof(block)));
    buf_clear(&b);
    test_receive(&s, fd, &b, STR_NULL);
    assert_has(buf_str(&b), "connection: close\r\n");
    assert_true(str_ends(buf_str(&b), STR("\r\n\r\nfull")));
    (void)close(fd);

    /* Without memory for it, whether it comes in pieces or at once; the connection is good for more. */
    fd = test_connect(&s);
    test_send(&s, fd, STR("PUT /room HTTP/1.1\r\n" HOST "Content-Length: 20\r\n\r\n0123456789"));
    test_turn(&s);
    test_send(&s, fd,
              STR("0123456789"
                  "PUT /room HTTP/1.1\r\n" HOST "Content-Length: 11\r\n\r\n01234567890" GET("/now")));
    buf_clear(&b);
    test_receive(&s, fd, &b, STR("\r\n\r\nno room"));
    test_receive(&s, fd, &b, STR("\r\n\r\nno room"));
    test_receive(&s, fd, &b, STR("\r\n\r\nnow"));
    (void)close(fd);

    buf_clear(&b);
    test_exchange(&s,
                  STR("PUT /cut HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n"),
                  false, &b);
    assert_str(buf_str(&b), "");

    test_exchange(
        &s,
        STR("POST /up HTTP/1.1\r\n" HOST "Connection: upgrade\r\nUpgrade: raw\r\nContent-Length: 2\r\n\r\n{}raw bytes"),
        true, &b);
    assert_str(buf_str(&b), "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: raw\r\n\r\nraw bytes");
    test_server_close(&s);
}

static void test_out_of_descriptors(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(65536);
    struct rlimit limit, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    int fd = test_connect(&t); /* the highest descriptor there is */
    few = limit;
    few.rlim_cur = (rlim_t)fd + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    test_turn(&t);
    assert_int_equal(http_server_connections(t.server), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    test_send(&t, fd, STR(GET("/hello")));
    test_receive(&t, fd, &b, STR("hello GET"));

    /* Whoever is connected and says nothing makes room. */
    int next = test_connect(&t);
    few.rlim_cur = (rlim_t)next + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    test_send(&t, next, STR(GET("/hello")));
    buf_clear(&b);
    test_receive(&t, next, &b, STR("hello GET"));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_true(test_is_closed(&t, fd));
    (void)close(fd);
    (void)close(next);
}

static void test_drain(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(65536);
    int idle = test_connect(&t), busy = test_connect(&t);
    test_send(&t, busy, STR(GET("/hold")));
    http_server_drain(t.server);
    assert_true(test_is_closed(&t, idle));
    (void)http_respond(t.held, 200, NULL, 0, STR("the last"));
    test_receive(&t, busy, &b, STR_NULL);
    assert_has(buf_str(&b), "connection: close\r\n");
    assert_true(str_ends(buf_str(&b), STR("the last")));
    assert_int_equal(http_server_connections(t.server), 0);
    (void)close(idle);
    (void)close(busy);
}

static void test_close_cuts(void **state)
{
    (void)state;
    int fds[4];
    static const char *const requests[] = {GET("/hold"), GET("/endless"),
                                           "POST /count HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\nabc", "GET /x"};
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        fds[i] = test_connect(&t);
        test_send(&t, fds[i], str_of(requests[i]));
    }
    assert_int_equal(t.requests, 3);
    test_server_close(&t);
    assert_int_equal(t.closes, 3);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        (void)close(fds[i]);
    test_server_open(&t, NULL, false);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, open_server, close_server)
#define TEST_UNIX(fn)                                                                                                  \
    {                                                                                                                  \
#fn " (unix)", fn, open_server, close_server, &t                                                               \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_early_answers),
        TEST(test_out_of_descriptors),
        TEST(test_back_pressure_down),
        TEST(test_queue_is_bounded),
        TEST(test_queues_are_counted),
        TEST(test_upload),
        TEST(test_pause),
        TEST(test_abort),
        TEST(test_client_leaves),
        TEST(test_half_closed),
        TEST(test_unwanted_body),
        TEST(test_upgrade),
        TEST(test_peer),
        TEST(test_head_is_safe),
        TEST(test_drain),
        TEST(test_close_cuts),
        TEST_UNIX(test_upload),
        TEST_UNIX(test_abort),
        TEST_UNIX(test_half_closed),
        TEST_UNIX(test_client_leaves),
        TEST_UNIX(test_peer),
        TEST_UNIX(test_upgrade),
        TEST_UNIX(test_back_pressure_down),
        TEST_UNIX(test_unwanted_body),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
