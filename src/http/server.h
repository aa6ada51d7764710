/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An HTTP/1.1 server on a libuv loop: keep-alive, pipelining (one request of a connection at a time, in order), chunked
 * bodies both ways, Expect: 100-continue, HTTP/1.0. What a handler does with a request is in http/request.h.
 *
 *   struct http_server *server = http_server_new(loop, &HTTP_LIMITS_DEFAULT, on_request, ctx);
 *   http_server_listen(server, fd);
 *   ...
 *   http_server_close(server, on_closed, ctx);
 *
 * Framing is strict: Content-Length with Transfer-Encoding, a bad chunk, a folded header, NUL, a bare LF, two Hosts and
 * the like are answered with 400 and a close. Whatever the server refuses by itself (400 408 413 414 431 501 503 505)
 * has the JSON body {"code":<status>,"message":"..."} and never reaches a handler.
 */
#pragma once

#include "http/request.h"

#include <uv.h>

struct http_server;

struct http_limits {
    size_t url_bytes;           /* 8 KiB: beyond 414 */
    size_t header_bytes;        /* 32 KiB for the request line and all headers together: beyond 431 */
    unsigned headers;           /* 100: beyond 431 */
    size_t heads_bytes;         /* 64 MiB of memory for heads that are not complete: beyond, the oldest is closed */
    unsigned connections;       /* 16,384 of all listeners together: beyond, one that is idle is closed, else 503 */
    unsigned handshakes;        /* 1,024 of TLS at a time, each some 50 KiB: beyond, the oldest is closed */
    unsigned header_timeout_ms; /* 10 s from a request's first byte to the end of its headers: 408 */
    unsigned body_timeout_ms;   /* 60 s without a byte of a wanted body: 408; upgraded and ended on our side: cut */
    unsigned idle_timeout_ms;   /* 620 s between two requests: closed */
    unsigned write_timeout_ms;  /* 120 s without the client taking a byte of what is queued for it: cut */
    size_t write_high;          /* 256 KiB queued: the writer should stop */
    size_t write_low;           /* 64 KiB: http_on_drain */
    size_t write_max;           /* 8 MiB: -ENOBUFS */
};

extern const struct http_limits HTTP_LIMITS_DEFAULT;

/* Called when a request's headers are complete, outside of any other callback. See http/request.h for what it owes. */
typedef void (*http_request_fn)(struct http_request *req, void *ctx);

/* NULL only when the loop or the process is out of descriptors. limits are copied. */
struct http_server *http_server_new(uv_loop_t *loop, const struct http_limits *limits, http_request_fn on_request,
                                    void *ctx);

/* Accepts on fd, a listening TCP or unix stream socket, from now on; fd belongs to the server, also on failure. */
int http_server_listen(struct http_server *server, int fd) WARN_UNUSED;

/*
 * The same with TLS (http/tls/tls.h), which is borrowed until the server is closed. A client has header_timeout_ms for
 * the handshake; one that speaks plain HTTP is told so, in plain HTTP, with 400. A client that cuts the connection
 * without saying so in TLS is gone, whatever it had sent before.
 */
struct http_tls;
int http_server_listen_tls(struct http_server *server, int fd, const struct http_tls *tls) WARN_UNUSED;

/*
 * Stops accepting; idle connections are closed at once, the others after their current response, which says connection:
 * close. For a planned end: call http_server_close() when http_server_connections() is 0 or patience is over.
 */
void http_server_drain(struct http_server *server);

/*
 * Cuts what is left (each open request gets its on_close from a later loop turn), then frees the server and calls done.
 */
void http_server_close(struct http_server *server, void (*done)(void *ctx), void *ctx);

unsigned http_server_connections(const struct http_server *server);
