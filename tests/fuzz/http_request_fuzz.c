/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client sends: the requests that the handler sees, and the answers, must not depend on how the bytes were cut
 * into pieces.
 */
#include "base/buf.h"
#include "base/fd.h"
#include "http/conn.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uv_loop_t loop;
static struct http_server *server;
static struct listener listener;
static struct buf seen = BUF_INIT(16 << 20);
static unsigned requests, closes;

static void on_close(struct http_request *req, void *ctx)
{
    (void)req;
    (void)ctx;
    closes++;
}

static void on_body(struct http_request *req, int error, struct str body, void *ctx)
{
    (void)ctx;
    buf_printf(&seen, "body %d %.*s\n", error, STR_ARG(body));
    if (error == -EMSGSIZE || error == 0)
        (void)http_respond(req, error ? 413 : 200, NULL, 0, body);
}

static void on_request(struct http_request *req, void *ctx)
{
    (void)ctx;
    struct str path = http_path(req), value;
    requests++;
    http_on_close(req, on_close, NULL);
    buf_printf(&seen, "%.*s %.*s %.*s %d\n", STR_ARG(http_method_name(req)), STR_ARG(path), STR_ARG(http_raw_path(req)),
               http_query_get(req, "q", &value));
    for (size_t i = 0; i < http_header_count(req); i++) {
        struct http_header h = http_header_at(req, i);
        if (!http_is_token(h.name) || !http_is_field_value(h.value))
            abort();
        buf_printf(&seen, "%.*s: %.*s\n", STR_ARG(h.name), STR_ARG(h.value));
    }
    if (http_method(req) == HTTP_METHOD_GET)
        (void)http_respond(req, 200, NULL, 0, path);
    else
        http_read_body(req, 1000, NULL, on_body, NULL);
}

static void turn(void)
{
    for (int i = 0; i < 3; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
}

/* Which of several faults is found first does depend on the pieces: a refusal counts as such. */
static void forget_reason(struct buf *out)
{
    char *code = buf_len(out) ? memmem(buf_data(out), buf_len(out), "\r\n\r\n{\"code\":", 12) : NULL;
    for (char *p = code; p && p >= buf_data(out); p--) {
        if (memcmp(p, "HTTP/1.1 ", 9) == 0) {
            out->end = (size_t)(p + 9 - out->data);
            return;
        }
    }
}

/* Is not sent to who has sent the body already. */
static void forget_continue(struct buf *out)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    size_t n = sizeof(text) - 1;
    for (char *p; buf_len(out) && (p = memmem(buf_data(out), buf_len(out), text, n)); out->end -= n)
        memmove(p, p + n, (size_t)(out->data + out->end - p) - n);
}

static void converse(struct str bytes, size_t step, struct buf *out)
{
    int pair[2];
    char piece[65536];
    ssize_t n;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
        abort();
    conn_open(server, &listener, pair[0]);
    requests = closes = 0;
    buf_clear(&seen);
    while (bytes.n) {
        struct str part = str_n(bytes.p, MIN(step, bytes.n));
        bytes = str_sub(bytes, part.n);
        if (send(pair[1], part.p, part.n, MSG_NOSIGNAL) < 0)
            break;
        turn();
    }
    (void)shutdown(pair[1], SHUT_WR);
    turn();
    while ((n = recv(pair[1], piece, sizeof(piece), 0)) > 0)
        (void)!buf_append(out, piece, (size_t)n);
    (void)close(pair[1]);
    turn();
    if (requests != closes || http_server_connections(server))
        abort();
    forget_reason(out);
    forget_continue(out);
    buf_append_str(out, buf_str(&seen));
    for (char *p; buf_len(out) && (p = memmem(buf_data(out), buf_len(out), "date: ", 6));)
        memset(p, '-', MIN((size_t)36, (size_t)(out->data + out->end - p)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!server) {
        uv_loop_init(&loop);
        server = http_server_new(&loop, &HTTP_LIMITS_DEFAULT, on_request, NULL);
        listener = (struct listener){.server = server, .is_unix = true, .fd = -1};
    }
    if (size < 1 || size > 60000)
        return 0;
    AUTO_BUF struct buf whole = BUF_INIT(64 << 20), pieces = BUF_INIT(64 << 20);
    struct str bytes = str_n(data + 1, size - 1);
    converse(bytes, size, &whole);
    converse(bytes, MAX((size_t)data[0], 1 + size / 500), &pieces);
    if (!str_eq(buf_str(&whole), buf_str(&pieces)))
        abort();
    return 0;
}
