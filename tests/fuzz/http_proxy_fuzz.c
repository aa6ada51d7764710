/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an upstream answers, relayed: whatever it is, the relay ends, the client gets an answer or a cut, and nothing
 * leaks.
 */
#include "base/buf.h"
#include "base/fd.h"
#include "http/client/proxy.h"
#include "http/conn.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uv_loop_t loop;
static struct http_server *server;
static struct listener listener;
static struct http_proxy *proxy;
static unsigned opens, closes;

static ssize_t up_write(void *ctx, const struct str *parts, size_t n)
{
    (void)ctx;
    (void)parts;
    return (ssize_t)n;
}

static void up_nothing(void *ctx)
{
    (void)ctx;
}

static void up_close(void *ctx)
{
    (void)ctx;
    closes++;
    proxy = NULL;
}

static const struct http_upstream_ops ops = {up_write, up_nothing, up_nothing, up_nothing, up_close};

static void on_request(struct http_request *req, void *ctx)
{
    (void)ctx;
    opens++;
    if (http_proxy_start(req, &ops, NULL, &(struct http_proxy_options){.on_done = NULL}, &proxy) < 0)
        abort();
}

static void turn(void)
{
    for (int i = 0; i < 3; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const requests[] = {
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"};
    int pair[2];
    char piece[65536];
    if (!server) {
        uv_loop_init(&loop);
        server = http_server_new(&loop, &HTTP_LIMITS_DEFAULT, on_request, NULL);
        listener = (struct listener){.server = server, .is_unix = true, .fd = -1};
    }
    if (size < 2 || size > 60000 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
        return 0;
    opens = closes = 0;
    conn_open(server, &listener, pair[0]);
    struct str request = str_of(requests[data[0] % ARRAY_SIZE(requests)]), answer = str_n(data + 2, size - 2);
    if (send(pair[1], request.p, request.n, MSG_NOSIGNAL) < 0)
        abort();
    turn();
    while (proxy && answer.n) {
        struct str part = str_n(answer.p, MIN(MAX((size_t)data[1], 1 + size / 500), answer.n));
        answer = str_sub(answer, part.n);
        http_proxy_feed(proxy, part);
        turn();
    }
    if (proxy)
        http_proxy_eof(proxy);
    (void)shutdown(pair[1], SHUT_WR);
    turn();
    while (recv(pair[1], piece, sizeof(piece), 0) > 0)
        ;
    (void)close(pair[1]);
    turn();
    if (opens != 1 || closes != 1 || http_server_connections(server))
        abort();
    return 0;
}
