/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A blocking HTTP/1.1 client over one connection, for command-line programs.
 *
 *   AUTO(http_client_free) struct http_client *c = NULL;
 *   r = http_client_open("unix:/run/cove/api.sock", 5000, &c);
 *   r = http_client_send(c, "POST", "/x", headers, n, STR("{}"));        or _begin(), _write()..., _end()
 *   r = http_client_receive(c);                                          status and headers are there
 *   while ((n = http_client_read(c, buf, sizeof(buf))) > 0) ...
 *
 * A connection is used again for the next request when the last response was read to its end and allows it; else it is
 * opened anew.
 */
#pragma once

#include "base/clock.h"
#include "http/message.h"

struct http_client;

/*
 * endpoint: "unix:/path", "/path", "http://host[:port]" (port 80), "https://host[:port]" (443), "host:port". -EINVAL
 * for anything else, -ENOENT and -ECONNREFUSED as the socket says, -EHOSTUNREACH for a name that does not resolve,
 * -EKEYREJECTED for a certificate that is not to be trusted or for another host, -EPROTO for what is no TLS. timeout_ms
 * bounds connecting, and each later wait for a byte (http_client_timeout() changes that).
 */
int http_client_open(const char *endpoint, int timeout_ms, struct http_client **ret_client) WARN_UNUSED;
void http_client_free(struct http_client *c);
DEFINE_AUTO(struct http_client *, http_client_free)

void http_client_timeout(struct http_client *c, int timeout_ms); /* -1: waits for ever */
void http_client_until(struct http_client *c, usec_t until); /* of clock_mono(): no wait lasts longer, whatever comes */

/*
 * A request in one go. Host, content-length, transfer-encoding and connection are written by the client. -errno of the
 * socket.
 */
int http_client_send(struct http_client *c, const char *method, const char *target, const struct http_header *headers,
                     size_t n_headers, struct str body) WARN_UNUSED;

/* A request whose body follows: content_length, or -1 for chunked. */
int http_client_begin(struct http_client *c, const char *method, const char *target, const struct http_header *headers,
                      size_t n_headers, int64_t content_length) WARN_UNUSED;
/* -EPIPE usually means that the server answered early and stopped listening: go on with http_client_receive(). */
int http_client_write(struct http_client *c, struct str data) WARN_UNUSED;
int http_client_end(struct http_client *c) WARN_UNUSED;

/*
 * Waits for the response's head; 100 Continue and the like are skipped. -EPROTO for garbage, -ETIMEDOUT, -EPIPE when
 * closed.
 */
int http_client_receive(struct http_client *c) WARN_UNUSED;
int http_client_status(const struct http_client *c);
/* p is NULL when it is absent. Borrowed until the next request. */
struct str http_client_header(const struct http_client *c, const char *name);

/* Of what came behind the body; also of one that was cut there. */
struct str http_client_trailer(const struct http_client *c, const char *name);

/* Body bytes as they come; 0 at its clean end; -EPIPE when it was cut, -ETIMEDOUT, -EPROTO. */
ssize_t http_client_read(struct http_client *c, void *p, size_t n) WARN_UNUSED;
int http_client_read_all(struct http_client *c, struct buf *b) WARN_UNUSED; /* -ENOBUFS beyond its maximum */

/*
 * For programs that wait for several things: poll the descriptor for POLLIN, and read when it is readable or
 * http_client_pending() says that bytes are there already. After a 101, http_client_read() and http_client_write() are
 * raw, and http_client_end() half-closes. http_client_write_some() waits for nothing: how much went, -EAGAIN, -errno.
 */
ssize_t http_client_write_some(struct http_client *c, struct str data) WARN_UNUSED;
int http_client_fd(const struct http_client *c);
bool http_client_pending(const struct http_client *c);
