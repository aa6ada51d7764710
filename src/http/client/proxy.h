/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Relays one request to an upstream HTTP/1.1 server over a byte stream which the caller provides (for instance a
 * connection that the agent dialled inside a sandbox), and the response back; after a 101 both directions are raw.
 * Bodies stream with back-pressure.
 *
 * The caller opens its stream first, then calls http_proxy_start() and delivers what the stream says by
 * http_proxy_feed(), _eof(), _failed() and _writable(); the proxy uses the stream through struct http_upstream_ops. The
 * relay ends by itself: when the response is complete, the client gone or the upstream broken it calls close() once,
 * from the loop, never from inside one of these calls, and must not be called afterwards.
 *
 * Sent upstream: the request line, all headers but the hop-by-hop ones (and those that Connection names), "connection:
 * close" (or upgrade). The answer's hop-by-hop headers are dropped likewise. An upstream that dies after its response
 * has begun makes the client's connection be cut, never ended cleanly.
 */
#pragma once

#include "http/request.h"

struct http_proxy;

struct http_upstream_ops {
    /*
     * Takes all of it. Returns how many bytes wait in the caller's queue afterwards (the proxy stops above
     * HTTP_PROXY_HIGH until http_proxy_writable()), or -errno, which counts as http_proxy_failed().
     */
    ssize_t (*write)(void *upstream, const struct str *parts, size_t n);
    void (*end)(void *upstream);   /* nothing more will be written: half-close, if the stream can */
    void (*pause)(void *upstream); /* the client is slow: grant no more credit; what is under way may still be fed */
    void (*resume)(void *upstream);
    void (*close)(void *upstream); /* the relay is over; the struct http_proxy is gone when this returns */
};

enum { HTTP_PROXY_HIGH = 256 * 1024 };

struct http_proxy_options {
    struct str target;       /* p NULL: as the client sent it */
    struct str host;         /* replaces Host, the original goes to X-Forwarded-Host; p NULL: as the client sent it */
    const char *const *drop; /* names of request headers not passed on (keys, routing), NULL-terminated; may be NULL */
    const char *const *hide; /* likewise of the answer's; has to last as long as the relay */
    /*
     * Answers instead of an upstream that gave no valid response head (refused, garbage, gone, too long): 502 by
     * http_respond...(). error: -EPROTO garbage, -EPIPE closed without an answer, else what http_proxy_failed() was
     * given.
     */
    void (*on_bad_gateway)(struct http_request *req, int error, void *ctx); /* NULL: a 502 of the server's own shape */
    void (*on_done)(struct http_request *req, void *ctx);                   /* the request's on_close; may be NULL */
    void *ctx;
};

/*
 * Takes over the request: its body, its on_close and on_drain, its response. Before any of these were used. The
 * options' other strings are only used during the call, the callbacks until the end. -EINVAL when the request can't be
 * relayed (a malformed target); nothing was taken over then.
 */
int http_proxy_start(struct http_request *req, const struct http_upstream_ops *ops, void *upstream,
                     const struct http_proxy_options *options, struct http_proxy **ret_proxy) WARN_UNUSED;

void http_proxy_feed(struct http_proxy *p, struct str data); /* bytes from upstream, any number */
void http_proxy_eof(struct http_proxy *p);                   /* upstream closed its sending side */
void http_proxy_failed(struct http_proxy *p, int error);     /* upstream is broken; error is a -errno */
void http_proxy_writable(struct http_proxy *p); /* upstream's queue went down to less than HTTP_PROXY_HIGH / 4 */
