/* SPDX-License-Identifier: Apache-2.0 */
#include "http/test_server.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { PATIENCE_S = 20 };

static const char block[64 * 1024] = {0};

static void count_close(struct http_request *req, void *ctx)
{
    struct test_server *t = ctx;
    t->closes++;
    if (t->held == req)
        t->held = NULL;
}

static void whole(struct http_request *req, int error, struct str body, void *ctx)
{
    struct test_server *t = ctx;
    if (error == -EMSGSIZE)
        (void)http_respond_error(req, 413, "too much");
    else if (error)
        t->body_error = error;
    else
        (void)http_respond(req, 200, NULL, 0, body);
}

static void echo_data(struct http_request *req, struct str data, void *ctx)
{
    struct test_server *t = ctx;
    t->body_bytes += data.n;
    (void)http_response_write(req, data);
}

static void echo_end(struct http_request *req, void *ctx UNUSED)
{
    (void)http_response_end(req);
}

static void body_error(struct http_request *req UNUSED, int error, void *ctx)
{
    struct test_server *t = ctx;
    assert_int_equal(t->body_error, 0);
    t->body_error = error;
}

static const struct http_body_ops echo_ops = {echo_data, echo_end, body_error};

static void count_data(struct http_request *req UNUSED, struct str data, void *ctx)
{
    struct test_server *t = ctx;
    t->body_bytes += data.n;
}

static void count_end(struct http_request *req, void *ctx)
{
    struct test_server *t = ctx;
    char text[32];
    int n = snprintf(text, sizeof(text), "%llu", (unsigned long long)t->body_bytes);
    (void)http_respond(req, 200, NULL, 0, str_n(text, (size_t)n));
}

static const struct http_body_ops count_ops = {count_data, count_end, body_error};

static void pump(struct http_request *req, void *ctx)
{
    uint64_t *left = ctx;
    while (*left && !http_response_full(req)) {
        size_t n = MIN(*left, sizeof(block));
        if (http_response_write(req, str_n(block, n)) < 0)
            return;
        *left -= n;
    }
    if (*left == 0)
        (void)http_response_end(req);
}

static void start_pump(struct http_request *req, bool chunked, uint64_t n)
{
    uint64_t *left = arena_alloc(http_arena(req), sizeof(*left));
    *left = n;
    http_on_drain(req, pump, left);
    (void)http_response_begin(req, 200, NULL, 0, chunked ? -1 : (int64_t)n);
    pump(req, left);
}

static void timer_closed(uv_handle_t *handle)
{
    mem_free(handle);
}

static void answer_later(uv_timer_t *timer)
{
    (void)http_respond(timer->data, 200, NULL, 0, STR("later"));
    uv_close((uv_handle_t *)timer, timer_closed);
}

static void respond_headers(struct http_request *req)
{
    AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
    for (size_t i = 0; i < http_header_count(req); i++) {
        struct http_header h = http_header_at(req, i);
        buf_printf(&b, "%.*s=%.*s\n", STR_ARG(h.name), STR_ARG(h.value));
    }
    (void)http_respond(req, 200, NULL, 0, buf_str(&b));
}

static void on_request(struct http_request *req, void *ctx)
{
    struct test_server *t = ctx;
    struct str path = http_path(req), n_text;
    uint64_t n = 0;
    t->requests++;
    t->body_bytes = 0;
    http_on_close(req, count_close, t);
    if (http_query_get(req, "n", &n_text) == 1)
        assert_int_equal(str_to_u64(n_text, &n), 0);

    if (str_eqc(path, "/hello")) {
        char *text = arena_printf(http_arena(req), "hello %.*s", STR_ARG(http_method_name(req)));
        (void)http_respond(req, 200, NULL, 0, str_of(text));
    } else if (str_eqc(path, "/headers")) {
        respond_headers(req);
    } else if (str_eqc(path, "/echo")) {
        http_read_body(req, 4096, NULL, whole, t);
    } else if (str_eqc(path, "/stream")) {
        (void)http_response_begin(req, 200, NULL, 0, -1);
        http_stream_body(req, &echo_ops, t);
    } else if (str_eqc(path, "/count")) {
        http_stream_body(req, &count_ops, t);
    } else if (str_eqc(path, "/later")) {
        uv_timer_t *timer = mem_new(uv_timer_t);
        uv_timer_init(&t->loop, timer);
        timer->data = req;
        uv_timer_start(timer, answer_later, 1, 0);
    } else if (str_eqc(path, "/hold")) {
        t->held = req;
    } else if (str_eqc(path, "/big")) {
        start_pump(req, false, n);
    } else if (str_eqc(path, "/chunked")) {
        start_pump(req, true, n);
    } else if (str_eqc(path, "/endless")) {
        start_pump(req, true, UINT64_MAX);
    } else if (str_eqc(path, "/cut")) {
        (void)http_response_begin(req, 200, NULL, 0, -1);
        (void)http_response_write(req, STR("one"));
        t->held = req;
    } else if (str_eqc(path, "/short")) {
        (void)http_response_begin(req, 200, NULL, 0, 10);
        (void)http_response_write(req, str_n(block, 3));
        assert_int_equal(http_response_write(req, str_n(block, 8)), -EMSGSIZE);
        assert_int_equal(http_response_end(req), -EPIPE);
    } else if (str_eqc(path, "/up")) {
        assert_true(http_wants_upgrade(req));
        assert_int_equal(http_upgrade(req, &HTTP_HEADER("upgrade", "raw"), 1), 0);
        http_stream_body(req, &echo_ops, t);
    } else if (str_eqc(path, "/up-and-away")) {
        assert_int_equal(http_upgrade(req, &HTTP_HEADER("upgrade", "raw"), 1), 0);
        http_stream_body(req, &count_ops, t);
        assert_int_equal(http_response_end(req), 0);
    } else {
        (void)http_respond_error(req, 404, "no such path");
    }
}

static void open_it(struct test_server *t, const struct http_limits *limits, bool is_unix, http_request_fn fn,
                    const struct http_tls *tls)
{
    *t = (struct test_server){.port = 0};
    assert_int_equal(uv_loop_init(&t->loop), 0);
    t->server = http_server_new(&t->loop, limits ? limits : &HTTP_LIMITS_DEFAULT, fn, t);
    assert_non_null(t->server);
    int fd = socket(is_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (is_unix) {
        struct sockaddr_un addr = {.sun_family = AF_UNIX};
        (void)snprintf(t->unix_path, sizeof(t->unix_path), "/tmp/cove-http-test-%d.sock", (int)getpid());
        (void)unlink(t->unix_path);
        memcpy(addr.sun_path, t->unix_path, sizeof(t->unix_path));
        assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    } else {
        struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof(addr);
        assert_int_equal(bind(fd, (struct sockaddr *)&addr, len), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
        t->port = ntohs(addr.sin_port);
    }
    assert_int_equal(listen(fd, 128), 0);
    assert_int_equal(tls ? http_server_listen_tls(t->server, fd, tls) : http_server_listen(t->server, fd), 0);
}

void test_server_open_with(struct test_server *t, const struct http_limits *limits, bool is_unix, http_request_fn fn)
{
    open_it(t, limits, is_unix, fn, NULL);
}

void test_server_open_tls(struct test_server *t, const struct http_limits *limits, const struct http_tls *tls)
{
    open_it(t, limits, false, on_request, tls);
}

void test_server_open(struct test_server *t, const struct http_limits *limits, bool is_unix)
{
    test_server_open_with(t, limits, is_unix, on_request);
}

static void set_closed(void *ctx)
{
    *(bool *)ctx = true;
}

void test_server_close(struct test_server *t)
{
    bool closed = false;
    test_turn(t);
    http_server_close(t->server, set_closed, &closed);
    assert_false(closed);
    usec_t end = clock_mono() + PATIENCE_S * USEC_PER_SEC;
    while ((!closed || uv_loop_alive(&t->loop)) && clock_mono() < end)
        uv_run(&t->loop, UV_RUN_ONCE);
    assert_true(closed);
    assert_int_equal(t->requests, t->closes);
    assert_int_equal(uv_loop_close(&t->loop), 0);
    if (t->unix_path[0])
        (void)unlink(t->unix_path);
}

int test_connect(struct test_server *t)
{
    int fd, r;
    if (t->unix_path[0]) {
        struct sockaddr_un addr = {.sun_family = AF_UNIX};
        memcpy(addr.sun_path, t->unix_path, sizeof(t->unix_path));
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        r = connect(fd, (struct sockaddr *)&addr, sizeof(addr));
    } else {
        struct sockaddr_in addr = {
            .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)t->port)};
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        r = connect(fd, (struct sockaddr *)&addr, sizeof(addr));
    }
    assert_int_equal(r, 0);
    assert_int_equal(fd_nonblock(fd, true), 0);
    return fd;
}

void test_turn(struct test_server *t)
{
    /* Loopback delivers within the call that sends; a few turns let work that is put off to the next one be done. */
    for (int i = 0; i < 4; i++)
        uv_run(&t->loop, UV_RUN_NOWAIT);
}

void test_send(struct test_server *t, int fd, struct str bytes)
{
    usec_t end = clock_mono() + PATIENCE_S * USEC_PER_SEC;
    while (bytes.n) {
        ssize_t n = send(fd, bytes.p, bytes.n, MSG_NOSIGNAL);
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
            return; /* what the server thinks of it shows when receiving */
        assert_true(n > 0 || errno == EAGAIN);
        if (n > 0) {
            bytes = str_sub(bytes, (size_t)n);
            end = clock_mono() + PATIENCE_S * USEC_PER_SEC;
        }
        uv_run(&t->loop, UV_RUN_NOWAIT);
        assert_true(clock_mono() < end);
    }
    test_turn(t);
}

void test_receive(struct test_server *t, int fd, struct buf *b, struct str until)
{
    usec_t end = clock_mono() + PATIENCE_S * USEC_PER_SEC;
    while (!until.p || buf_len(b) < until.n || !memmem(buf_data(b), buf_len(b), until.p, until.n)) {
        char piece[64 * 1024];
        ssize_t n = recv(fd, piece, sizeof(piece), 0);
        if (n == 0 || (n < 0 && errno == ECONNRESET)) {
            if (!until.p)
                return;
            fail_msg("closed before \"%.*s\", after \"%.*s\"", STR_ARG(until), STR_ARG(buf_str(b)));
        }
        if (n > 0) {
            assert_int_equal(buf_append(b, piece, (size_t)n), 0);
            end = clock_mono() + PATIENCE_S * USEC_PER_SEC;
            continue;
        }
        assert_int_equal(errno, EAGAIN);
        if (clock_mono() > end)
            fail_msg("nothing came after \"%.*s\"", STR_ARG(buf_str(b)));
        /* Sleeps in the loop, at most until the server's timer. */
        uv_run(&t->loop, UV_RUN_ONCE);
    }
}

bool test_is_closed(struct test_server *t, int fd)
{
    char c;
    test_turn(t);
    ssize_t n = recv(fd, &c, 1, MSG_PEEK);
    return n == 0 || (n < 0 && errno == ECONNRESET);
}

void test_strip_dates(struct buf *b)
{
    for (char *p; buf_len(b) && (p = memmem(buf_data(b), buf_len(b), "date: ", 6));) {
        char *end = memchr(p, '\n', (size_t)(buf_data(b) + buf_len(b) - p));
        assert_non_null(end);
        memmove(p, end + 1, (size_t)(b->data + b->end - end - 1));
        b->end -= (size_t)(end + 1 - p);
    }
}

void test_exchange(struct test_server *t, struct str bytes, bool half_close, struct buf *ret)
{
    int fd = test_connect(t);
    test_send(t, fd, bytes);
    if (half_close)
        (void)shutdown(fd, SHUT_WR);
    test_receive(t, fd, ret, STR_NULL);
    test_strip_dates(ret);
    (void)close(fd);
    test_turn(t);
}
