/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/test_facade.h"
#include "base/fd.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { ANSWER_MAX = 96 * 1024 * 1024 };

static void on_request(struct http_request *req, void *ctx)
{
    struct test_facade *f = ctx;
    if (claims_serve(f->claims, f->n_claims, req))
        return;
    f->unclaimed++;
    http_respond_error(req, 404, "no such route");
}

struct test_facade *facade_open(void)
{
    struct test_facade *f = mem_new(struct test_facade);
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    void *world;
    int fd;
    assert_int_equal(world_setup(&world), 0);
    f->w = world;
    f->server = http_server_new(&f->w->loop, &HTTP_LIMITS_DEFAULT, on_request, f);
    assert_non_null(f->server);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    assert_int_equal(listen(fd, 64), 0);
    f->port = ntohs(addr.sin_port);
    assert_int_equal(http_server_listen(f->server, fd), 0);
    return f;
}

void facade_claim(struct test_facade *f, const struct claim *claim)
{
    assert_true(f->n_claims < ARRAY_SIZE(f->claims));
    f->claims[f->n_claims++] = *claim;
}

static void on_closed(void *ctx)
{
    *(bool *)ctx = true;
}

int facade_close(struct test_facade *f, void (*free_facade)(void *facade))
{
    void *world = f->w;
    bool closed = false;
    int r;
    http_server_close(f->server, on_closed, &closed);
    WAIT(f->w, closed);
    free_facade(f->claims[0].facade);
    mem_free(f);
    r = world_teardown(&world);
    return r;
}

struct sandbox *facade_sandbox(struct test_facade *f, bool secure)
{
    return world_sandbox(f->w, &(struct sandbox_spec){.timeout_ms = 300000, .secure = secure, .allow_internet = true});
}

int facade_connect(struct test_facade *f)
{
    struct sockaddr_in addr = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)f->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(fd_nonblock(fd, true), 0);
    return fd;
}

void facade_send(struct test_facade *f, int fd, struct str bytes)
{
    usec_t until = clock_mono() + 20 * USEC_PER_SEC;
    while (bytes.n) {
        ssize_t n = send(fd, bytes.p, bytes.n, MSG_NOSIGNAL);
        if (n > 0) {
            bytes = str_sub(bytes, (size_t)n);
            continue;
        }
        if (errno == EPIPE || errno == ECONNRESET)
            return;
        assert_true(clock_mono() < until);
        world_turn(f->w);
    }
}

bool facade_receive(struct test_facade *f, int fd, struct buf *b, const char *until)
{
    usec_t limit = clock_mono() + 20 * USEC_PER_SEC;
    for (;;) {
        char *to = buf_reserve(b, 65536);
        ssize_t n;
        assert_non_null(to);
        n = recv(fd, to, 65536, 0);
        if (n > 0) {
            buf_commit(b, (size_t)n);
            limit = clock_mono() + 20 * USEC_PER_SEC;
            if (until && memmem(buf_data(b), buf_len(b), until, strlen(until)))
                return true;
            continue;
        }
        if (n == 0 || errno == ECONNRESET)
            return !until;
        if (clock_mono() > limit)
            fail_msg("no answer, only %.*s", STR_ARG(buf_str(b)));
        world_turn(f->w);
    }
}

/* Joins chunks. False when the last one is missing. */
static bool join_chunks(struct str in, struct buf *out)
{
    while (in.n) {
        char *end = memmem(in.p, in.n, "\r\n", 2);
        size_t head = end ? (size_t)(end - in.p) + 2 : 0, n;
        if (!end)
            return false;
        n = strtoul(in.p, NULL, 16);
        if (n == 0)
            return true;
        if (in.n < head + n + 2)
            return false;
        buf_append(out, in.p + head, n);
        in = str_sub(in, head + n + 2);
    }
    return false;
}

/* Behind its end, so that tests can search it as a string. */
static void terminate(struct buf *b)
{
    char *end = b ? buf_reserve(b, 1) : NULL;
    if (end)
        *end = 0;
}

/* Of bytes that nothing terminates. */
static uint64_t leading_number(struct str s)
{
    uint64_t v = 0;
    for (size_t i = 0; i < s.n && s.p[i] >= '0' && s.p[i] <= '9'; i++)
        v = v * 10 + (uint64_t)(s.p[i] - '0');
    return v;
}

int facade_call(struct test_facade *f, const char *method, const char *target, const char *headers, struct str body,
                struct buf *ret_head, struct buf *ret_body)
{
    AUTO_BUF struct buf request = BUF_INIT(16384), answer = BUF_INIT(ANSWER_MAX);
    AUTO_CLOSE int fd = facade_connect(f);
    struct str head, rest;
    char *end;
    buf_clear(ret_body);
    buf_printf(&request, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n%s", method, target, headers);
    if (body.p)
        buf_printf(&request, "Content-Length: %zu\r\n", body.n);
    buf_append_cstr(&request, "\r\n");
    assert_int_equal(buf_error(&request), 0);
    facade_send(f, fd, buf_str(&request));
    facade_send(f, fd, body);
    facade_receive(f, fd, &answer, NULL);

    end = memmem(buf_data(&answer) ? buf_data(&answer) : "", buf_len(&answer), "\r\n\r\n", 4);
    if (!end)
        return 0;
    head = str_n(buf_data(&answer), (size_t)(end - buf_data(&answer)) + 2);
    rest = str_sub(buf_str(&answer), head.n + 2);
    if (ret_head) {
        buf_clear(ret_head);
        buf_append_str(ret_head, head);
    }
    if (memmem(head.p, head.n, "chunked", 7)) {
        if (!join_chunks(rest, ret_body))
            return 0;
    } else {
        const char *length = memmem(head.p, head.n, "content-length: ", 16);
        buf_append_str(ret_body, rest);
        if (length && strcmp(method, "HEAD") != 0 &&
            leading_number(str_sub(head, (size_t)(length + 16 - head.p))) != rest.n)
            return 0;
    }
    terminate(ret_head);
    terminate(ret_body);
    return (int)leading_number(str_sub(head, 9));
}
