/* SPDX-License-Identifier: Apache-2.0 */
/* The blocking client against our own server in another thread, and against scripted answers. */
#include "base/fd.h"
#include "base/mem.h"
#include "http/client/client.h"
#include "http/test_server.h"
#include "http/tls/tls.h"
#include "http/tls/tls_cert.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

static struct test_server t;
static uv_thread_t thread;
static uv_async_t stop;

static void on_stop(uv_async_t *async)
{
    uv_close((uv_handle_t *)async, NULL);
    uv_stop(&t.loop);
}

static void run_loop(void *arg)
{
    (void)arg;
    uv_run(&t.loop, UV_RUN_DEFAULT);
}

static int open_server(void **state)
{
    test_server_open(&t, NULL, *state != NULL);
    assert_int_equal(uv_async_init(&t.loop, &stop, on_stop), 0);
    assert_int_equal(uv_thread_create(&thread, run_loop, NULL), 0);
    return 0;
}

static int close_server(void **state)
{
    (void)state;
    uv_async_send(&stop);
    uv_thread_join(&thread);
    test_server_close(&t);
    return 0;
}

/* With TLS, by a certificate of an authority that SSL_CERT_FILE makes known. */
static struct http_tls *tls;
static char ca_path[64];

static int open_tls_server(void **state)
{
    AUTO_BUF struct buf ca = BUF_INIT(16 * 1024), ca_key = BUF_INIT(16 * 1024);
    AUTO_BUF struct buf chain = BUF_INIT(16 * 1024), key = BUF_INIT(16 * 1024);
    (void)state;
    assert_int_equal(tls_ca_make("box.localhost", &ca, &ca_key), 0);
    assert_int_equal(tls_cert_issue(buf_str(&ca), buf_str(&ca_key), "box.localhost", &chain, &key), 0);
    assert_int_equal(http_tls_new(buf_str(&chain), buf_str(&key), &tls), 0);
    (void)snprintf(ca_path, sizeof(ca_path), "/tmp/cove-client-test-%d.pem", (int)getpid());
    AUTO_CLOSE int fd = open(ca_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fd_write_all(fd, buf_data(&ca), buf_len(&ca)), 0);
    assert_int_equal(setenv("SSL_CERT_FILE", ca_path, 1), 0);
    test_server_open_tls(&t, NULL, tls);
    assert_int_equal(uv_async_init(&t.loop, &stop, on_stop), 0);
    assert_int_equal(uv_thread_create(&thread, run_loop, NULL), 0);
    return 0;
}

static int close_tls_server(void **state)
{
    (void)close_server(state);
    http_tls_free(TAKE_PTR(tls));
    (void)unlink(ca_path);
    (void)unsetenv("SSL_CERT_FILE");
    return 0;
}

static struct http_client *connect_client(void)
{
    char endpoint[128];
    struct http_client *c = NULL;
    if (tls)
        (void)snprintf(endpoint, sizeof(endpoint), "https://api.box.localhost:%d", t.port);
    else if (t.unix_path[0])
        (void)snprintf(endpoint, sizeof(endpoint), "unix:%s", t.unix_path);
    else
        (void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d/", t.port);
    assert_int_equal(http_client_open(endpoint, 10000, &c), 0);
    return c;
}

static void expect(struct http_client *c, const char *method, const char *target, struct str body, int status,
                   const char *wanted)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    assert_int_equal(http_client_send(c, method, target, NULL, 0, body), 0);
    assert_int_equal(http_client_receive(c), 0);
    assert_int_equal(http_client_status(c), status);
    assert_int_equal(http_client_read_all(c, &b), 0);
    assert_str(buf_str(&b), wanted);
    char more;
    assert_int_equal(http_client_read(c, &more, 1), 0);
}

static void test_requests(void **state)
{
    (void)state;
    AUTO(http_client_free) struct http_client *c = connect_client();
    int fd = http_client_fd(c);
    expect(c, "GET", "/hello", STR(""), 200, "hello GET");
    expect(c, "HEAD", "/hello", STR(""), 200, "");
    assert_str(http_client_header(c, "Content-Length"), "10");
    expect(c, "POST", "/echo", STR("a body"), 200, "a body");
    expect(c, "POST", "/stream", STR("a body"), 200, "a body");
    expect(c, "DELETE", "/later", STR(""), 200, "later");
    assert_int_equal(http_client_fd(c), fd); /* one connection for all of these */
    assert_int_equal(http_client_send(c, "GET", "/headers", &HTTP_HEADER("x-key", "v"), 1, STR_NULL), 0);
    assert_int_equal(http_client_receive(c), 0);
    AUTO_BUF struct buf b = BUF_INIT(1000);
    assert_int_equal(http_client_read_all(c, &b), 0);
    assert_has(buf_str(&b), "x-key=v\n");
    /* Not read to its end: the next request goes on a new connection. */
    assert_int_equal(http_client_send(c, "GET", "/endless", NULL, 0, STR_NULL), 0);
    assert_int_equal(http_client_receive(c), 0);
    expect(c, "GET", "/hello", STR(""), 200, "hello GET");
}

static void test_streams(void **state)
{
    (void)state;
    AUTO(http_client_free) struct http_client *c = connect_client();
    static char block[100000];
    char digits[64];
    static const int64_t lengths[] = {-1, 100 * (int64_t)sizeof(block)};
    for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
        assert_int_equal(http_client_begin(c, "PUT", "/count", NULL, 0, lengths[i]), 0);
        for (int k = 0; k < 100; k++)
            assert_int_equal(http_client_write(c, str_n(block, sizeof(block))), 0);
        if (lengths[i] > 0)
            assert_int_equal(http_client_write(c, STR("x")), -EMSGSIZE);
        assert_int_equal(http_client_end(c), 0);
        assert_int_equal(http_client_receive(c), 0);
        ssize_t n = http_client_read(c, digits, sizeof(digits));
        assert_str(str_n(digits, (size_t)n), "10000000");
        assert_int_equal(http_client_read(c, digits, sizeof(digits)), 0);
    }
    /* Both sides full at once must not end in both waiting. */
    assert_int_equal(http_client_begin(c, "PUT", "/stream", NULL, 0, -1), 0);
    for (int k = 0; k < 20; k++)
        assert_int_equal(http_client_write(c, str_n(block, sizeof(block))), 0);
    assert_int_equal(http_client_end(c), 0);
    assert_int_equal(http_client_receive(c), 0);
    size_t total = 0;
    ssize_t n;
    while ((n = http_client_read(c, block, sizeof(block))) > 0)
        total += (size_t)n;
    assert_int_equal(n, 0);
    assert_int_equal(total, 20 * sizeof(block));
    assert_int_equal(http_client_send(c, "GET", "/chunked?n=5000000", NULL, 0, STR_NULL), 0);
    assert_int_equal(http_client_receive(c), 0);
    for (total = 0; (n = http_client_read(c, block, 777)) > 0;)
        total += (size_t)n;
    assert_int_equal(total, 5000000);
}

static void test_upgrade(void **state)
{
    (void)state;
    AUTO(http_client_free) struct http_client *c = connect_client();
    char piece[64];
    assert_int_equal(http_client_send(c, "GET", "/up", &HTTP_HEADER("upgrade", "raw"), 1, STR_NULL), 0);
    assert_int_equal(http_client_receive(c), 0);
    assert_int_equal(http_client_status(c), 101);
    assert_str(http_client_header(c, "upgrade"), "raw");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(http_client_write(c, STR("ping")), 0);
        struct pollfd p = {.fd = http_client_fd(c), .events = POLLIN};
        assert_int_equal(poll(&p, 1, 10000), 1);
        assert_int_equal(http_client_read(c, piece, sizeof(piece)), 4);
    }
    assert_int_equal(http_client_end(c), 0);
    assert_int_equal(http_client_read(c, piece, sizeof(piece)), 0);
}

/* An authority that nobody knows, another name, the address of a certificate for a name, and what is no TLS. */
static void test_who_is_not_trusted(void **state)
{
    char endpoint[128];
    struct http_client *c = NULL;
    (void)state;
    static const char *const others[] = {"other.localhost", "127.0.0.1"};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        (void)snprintf(endpoint, sizeof(endpoint), "https://%s:%d", others[i], t.port);
        assert_int_equal(http_client_open(endpoint, 10000, &c), -EKEYREJECTED);
    }
    assert_int_equal(setenv("SSL_CERT_FILE", "/dev/null", 1), 0);
    (void)snprintf(endpoint, sizeof(endpoint), "https://box.localhost:%d", t.port);
    assert_int_equal(http_client_open(endpoint, 10000, &c), -EKEYREJECTED);
    assert_null(c);
}

static void test_no_tls(void **state)
{
    char endpoint[128];
    struct http_client *c = NULL;
    (void)state;
    (void)snprintf(endpoint, sizeof(endpoint), "https://127.0.0.1:%d", t.port);
    int r = http_client_open(endpoint, 10000, &c);
    assert_true(r == -EPROTO || r == -EPIPE);
    assert_null(c);
}

/* A client, and the other end of its connection. */
static int connect_pair(struct http_client **ret)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/tmp/cove-http-script-%d.sock", (int)getpid());
    (void)unlink(path);
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    memcpy(addr.sun_path, path, sizeof(path));
    int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listening, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(listening, 1), 0);
    assert_int_equal(http_client_open(path, 200, ret), 0);
    int fd = accept(listening, NULL, NULL);
    assert_true(fd >= 0);
    (void)close(listening);
    (void)unlink(path);
    return fd;
}

/* A server that says `answer` to whoever asks, and closes. */
static void answer_and_close(int fd, const char *answer)
{
    char drop[4096];
    assert_true(recv(fd, drop, sizeof(drop), 0) > 0);
    assert_int_equal(fd_write_all(fd, answer, strlen(answer)), 0);
    (void)close(fd);
}

static int script(const char *answer, struct http_client **ret)
{
    int fd = connect_pair(ret);
    assert_int_equal(http_client_send(*ret, "GET", "/", NULL, 0, STR_NULL), 0);
    answer_and_close(fd, answer);
    return http_client_receive(*ret);
}

static void test_who_is_refused_reads_why(void **state)
{
    (void)state;
    static char block[100000];
    for (int chunked = 0; chunked < 2; chunked++) {
        AUTO(http_client_free) struct http_client *c = NULL;
        AUTO_BUF struct buf b = BUF_INIT(1000);
        int fd = connect_pair(&c), r;
        assert_int_equal(http_client_begin(c, "PUT", "/", NULL, 0, chunked ? -1 : 100 * (int64_t)sizeof(block)), 0);
        answer_and_close(fd, "HTTP/1.1 507 Insufficient Storage\r\nContent-Length: 4\r\n\r\nfull");
        while ((r = http_client_write(c, str_n(block, sizeof(block)))) == 0)
            ;
        assert_int_equal(r, -EPIPE);
        assert_int_equal(http_client_end(c), -EPIPE);
        assert_int_equal(http_client_receive(c), 0);
        assert_int_equal(http_client_status(c), 507);
        assert_int_equal(http_client_read_all(c, &b), 0);
        assert_str(buf_str(&b), "full");
    }
}

static void test_scripted(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        int head, end;
        const char *body;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\n\r\nuntil close", 0, 0, "until close"},
        {"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabcdef", 0, 0, "abc"},
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", 0, 0, "a"},
        {"HTTP/1.1 204 No Content\r\n\r\n", 0, 0, ""},
        {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", 0, -EPIPE, "abc"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", 0, -EPIPE, "abc"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nX", 0, -EPROTO, "abc"},
        {"", -EPIPE, 0, ""},
        {"HTTP/1.1 200", -EPIPE, 0, ""},
        {"rubbish\r\n", -EPROTO, 0, ""},
        {"HTTP/1.1 200 OK\r\n: nameless\r\n\r\n", -EPROTO, 0, ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        AUTO(http_client_free) struct http_client *c = NULL;
        AUTO_BUF struct buf b = BUF_INIT(1000);
        assert_int_equal(script(cases[i].answer, &c), cases[i].head);
        if (cases[i].head == 0) {
            assert_int_equal(http_client_read_all(c, &b), cases[i].end);
            assert_str(buf_str(&b), cases[i].body);
        } else {
            assert_int_equal(http_client_read_all(c, &b), cases[i].head);
        }
    }
}

static void test_patience(void **state)
{
    (void)state;
    AUTO(http_client_free) struct http_client *c = connect_client();
    http_client_timeout(c, 20);
    assert_int_equal(http_client_send(c, "GET", "/hold", NULL, 0, STR_NULL), 0);
    assert_int_equal(http_client_receive(c), -ETIMEDOUT);
}

/* A server that sends something all the time is not waited for any longer than one that is silent. */
static void test_the_end_of_patience(void **state)
{
    (void)state;
    AUTO(http_client_free) struct http_client *c = connect_client();
    char piece[4096];
    ssize_t n;
    http_client_until(c, clock_mono() + 50 * USEC_PER_MS);
    assert_int_equal(http_client_send(c, "GET", "/endless", NULL, 0, STR_NULL), 0);
    assert_int_equal(http_client_receive(c), 0);
    do
        n = http_client_read(c, piece, sizeof(piece));
    while (n > 0);
    assert_int_equal(n, -ETIMEDOUT);
}

static void test_endpoints(void **state)
{
    (void)state;
    struct http_client *c = NULL;
    assert_int_equal(http_client_open("unix:/nonexistent/x.sock", 100, &c), -ENOENT);
    assert_int_equal(http_client_open("http://127.0.0.1:1", 1000, &c), -ECONNREFUSED);
    static const char *const bad[] = {"",        "unix:",      "http://", "https://", "https://a/b",
                                      "ftp://a", "http://a/b", "a:b"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(http_client_open(bad[i], 100, &c), -EINVAL);
    assert_null(c);
}

static void on_alarm(int sig)
{
    (void)sig;
}

/* Signals neither end nor prolong the wait for a server that is too busy to accept. */
static void test_signals_while_connecting(void **state)
{
    (void)state;
    enum { CLIENTS = 16 };
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct sigaction act = {.sa_handler = on_alarm, .sa_flags = SA_RESTART}, was;
    const struct itimerval often = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};
    struct http_client *c = NULL;
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), clients[CLIENTS], n = 0, full = 0;
    (void)snprintf(addr.sun_path, sizeof(addr.sun_path), "/tmp/cove-client-test-%d", getpid());
    (void)unlink(addr.sun_path);
    assert_int_equal(bind(server, (const struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(server, 0), 0);
    while (n < CLIENTS && !full) {
        clients[n] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        full = connect(clients[n++], (const struct sockaddr *)&addr, sizeof(addr)) < 0;
    }
    int why = errno;
    (void)sigaction(SIGALRM, &act, &was);
    (void)setitimer(ITIMER_REAL, &often, NULL);
    int r = http_client_open(addr.sun_path, 200, &c);
    (void)setitimer(ITIMER_REAL, &never, NULL);
    (void)sigaction(SIGALRM, &was, NULL);
    while (n)
        (void)close(clients[--n]);
    (void)close(server);
    (void)unlink(addr.sun_path);
    assert_true(full && why == EAGAIN);
    assert_int_equal(r, -ETIMEDOUT);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, open_server, close_server)
#define TEST_UNIX(fn)                                                                                                  \
    {                                                                                                                  \
#fn " (unix)", fn, open_server, close_server, &t                                                               \
    }

#define TEST_TLS(fn)                                                                                                   \
    {                                                                                                                  \
#fn " (tls)", fn, open_tls_server, close_tls_server, NULL                                                      \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_requests),
        TEST_UNIX(test_requests),
        TEST_TLS(test_requests),
        TEST(test_streams),
        TEST_UNIX(test_streams),
        TEST_TLS(test_streams),
        TEST(test_upgrade),
        TEST_UNIX(test_upgrade),
        TEST_TLS(test_upgrade),
        TEST(test_patience),
        TEST_TLS(test_patience),
        TEST(test_the_end_of_patience),
        TEST_TLS(test_the_end_of_patience),
        TEST_TLS(test_who_is_not_trusted),
        TEST(test_no_tls),
        cmocka_unit_test(test_scripted),
        cmocka_unit_test(test_who_is_refused_reads_why),
        cmocka_unit_test(test_endpoints),
        cmocka_unit_test(test_signals_while_connecting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
