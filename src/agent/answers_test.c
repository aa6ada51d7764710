/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/answers.h"
#include "agent/test_rig.h"
#include "base/fd.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static struct rig rig;

static int setup(void **state)
{
    (void)state;
    rig_start(&rig);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rig_stop(&rig);
    return 0;
}

static void put(struct buf *b, const char *path, const char *type, const char *body, bool figures)
{
    wire_put_str(b, str_of(path));
    wire_put_str(b, str_of(type));
    wire_put_str(b, str_of(body));
    wire_put_u8(b, figures);
}

/* A port that nobody has, for a moment. */
static uint16_t free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(at);
    AUTO_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, n), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    return ntohs(at.sin_port);
}

static int dial(uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    return fd;
}

/* The whole answer; until the next call. */
static const char *ask(uint16_t port, const char *request)
{
    static char answer[8192];
    AUTO_CLOSE int fd = dial(port);
    size_t n = 0;
    assert_int_equal(write(fd, request, strlen(request)), (ssize_t)strlen(request));
    for (ssize_t r; (r = read(fd, answer + n, sizeof(answer) - 1 - n)) > 0;)
        n += (size_t)r;
    answer[n] = 0;
    return answer;
}

static void programs_inside_are_answered(void **state)
{
    uint16_t port = free_port();
    (void)state;
    struct buf *b = rig_request(WIRE_ANSWERS);
    wire_put_u16(b, port);
    wire_put_u32(b, 3);
    put(b, "/health", "", "", false);
    put(b, "/envs", "application/json", "{\"A\":\"$1\"}", false);
    put(b, "/metrics", "application/json", "{\"n\":$1,\"total\":$3}", true);
    rig_expect_end(&rig, rig_open(&rig, b), ERR_OK, "");

    assert_non_null(strstr(ask(port, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"), "HTTP/1.1 204 No Content\r\n"));
    assert_non_null(strstr(ask(port, "GET /envs?x=y HTTP/1.0\r\n\r\n"), "Content-Length: 10\r\n\r\n{\"A\":\"$1\"}"));
    assert_null(strstr(ask(port, "HEAD /envs HTTP/1.1\r\n\r\n"), "{"));
    assert_non_null(strstr(ask(port, "POST /envs HTTP/1.1\r\n\r\n"), "405 Method Not Allowed\r\nAllow: GET, HEAD"));
    assert_non_null(strstr(ask(port, "GET /other HTTP/1.1\r\n\r\n"), "404 Not Found"));
    assert_non_null(strstr(ask(port, "nonsense\r\n\r\n"), "400 Bad Request"));
    struct str metrics = str_of(strstr(ask(port, "GET /metrics HTTP/1.1\r\n\r\n"), "{\"n\":")), cpus, total;
    uint64_t n = 0;
    (void)str_split(&metrics, ',', &cpus);
    (void)str_split(&metrics, '}', &total);
    assert_int_equal(str_to_u64(str_sub(cpus, strlen("{\"n\":")), &n), 0);
    assert_true(n >= 1);
    assert_int_equal(str_to_u64(str_sub(total, strlen("\"total\":")), &n), 0);
    assert_true(n > 1 << 20);

    /* Who says much, or nothing, holds nobody up. */
    char long_head[ANSWERS_REQUEST_MAX + 1];
    memset(long_head, 'x', sizeof(long_head));
    long_head[ANSWERS_REQUEST_MAX] = 0;
    assert_non_null(strstr(ask(port, long_head), "431 "));
    int silent[40];
    for (size_t i = 0; i < ARRAY_SIZE(silent); i++)
        silent[i] = dial(port);
    rig_expect_end(&rig, rig_open(&rig, rig_request(WIRE_PING)), ERR_OK, "");
    for (size_t i = 0; i < ARRAY_SIZE(silent); i++)
        close(silent[i]);
    const char *answer;
    do
        answer = ask(port, "GET /health HTTP/1.1\r\n\r\n");
    while (!*answer); /* it may not have seen yet that they left */
    assert_non_null(strstr(answer, "204"));

    /* It is for those inside: the host's clients have their own. */
    b = rig_request(WIRE_DIAL);
    wire_put_u16(b, port);
    char text[64];
    (void)snprintf(text, sizeof(text), "port %u is for programs inside alone", port);
    rig_expect_end(&rig, rig_open(&rig, b), ERR_UNAVAILABLE, text);

    /* Another table, in another session. */
    rig_connect(&rig);
    b = rig_request(WIRE_ANSWERS);
    wire_put_u16(b, port);
    wire_put_u32(b, 1);
    put(b, "/other", "text/plain", "new", false);
    rig_expect_end(&rig, rig_open(&rig, b), ERR_OK, "");
    assert_non_null(strstr(ask(port, "GET /other HTTP/1.1\r\n\r\n"), "\r\n\r\nnew"));
    assert_non_null(strstr(ask(port, "GET /envs HTTP/1.1\r\n\r\n"), "404"));
}

static void a_port_that_is_taken_is_told(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(at);
    AUTO_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char text[64];
    (void)state;
    assert_int_equal(bind(fd, (struct sockaddr *)&at, n), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    struct buf *b = rig_request(WIRE_ANSWERS);
    wire_put_u16(b, ntohs(at.sin_port));
    wire_put_u32(b, 0);
    (void)snprintf(text, sizeof(text), "listen on port %u: Address already in use", ntohs(at.sin_port));
    rig_expect_end(&rig, rig_open(&rig, b), ERR_UNAVAILABLE, text);

    b = rig_request(WIRE_ANSWERS);
    wire_put_u16(b, 1);
    wire_put_u32(b, 0xffffffff);
    uint32_t stream = rig_open(&rig, b);
    struct result x;
    rig_result(&rig, stream, false, &x);
    assert_int_not_equal(x.code, ERR_OK);
    result_fini(&x);
}

static void figures_are_put_in(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(100);
    (void)state;
    answers_format(&b, STR("$0 $9$$1 $x$"), (double[ANSWERS_FIGURES]){1.5, 2, [9] = 1e12});
    assert_true(str_eq(buf_str(&b), STR("1.5 1000000000000$2 $x$")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(programs_inside_are_answered, setup, teardown),
        cmocka_unit_test_setup_teardown(a_port_that_is_taken_is_told, setup, teardown),
        cmocka_unit_test(figures_are_put_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
