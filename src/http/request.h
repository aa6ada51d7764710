/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request and its response, from the handler's side.
 *
 * The handler is called when the headers are complete. It may answer at once or from any later callback of the loop; it
 * answers exactly once, by one of
 *
 *   http_respond()                                         everything in one write
 *   http_response_begin(), ..._write()..., ..._end()       a stream
 *   http_upgrade()                                         101, then raw bytes both ways
 *   http_abort()                                           cuts the connection, which no clean response does
 *
 * Before that it may ask for the body: http_read_body() for the whole of it, http_stream_body() for pieces. A body that
 * nobody asked for is skipped when it is small, else the connection is closed behind the response.
 *
 * Lifetime. The request, its arena and all strings it lends are valid until the callback set by http_on_close() has
 * returned; that callback comes exactly once for every request: after the response was handed to the kernel as a whole,
 * or when the client is gone, or after http_abort(). Without http_on_close() a handler must not touch the request after
 * it answered, and must answer before it returns to the loop. After the client is gone the write functions return
 * -EPIPE and nothing else happens.
 *
 * Re-entrance. No function here calls a callback: callbacks come from the loop only, one at a time per request. All
 * functions may be called from all callbacks.
 *
 * A client that closes its sending side while it waits is still given a response of known length; a response of unknown
 * length (chunked) counts as abandoned then and is cut, because it may have no end.
 */
#pragma once

#include "base/arena.h"
#include "http/message.h"

struct http_request;

/* ---- what was asked ---- */

enum http_method http_method(const struct http_request *req);
struct str http_method_name(const struct http_request *req);
struct str http_raw_path(const struct http_request *req); /* "/files", escapes untouched */
struct str http_path(struct http_request *req); /* decoded; NULL, so no route matches, for a malformed escape or %00 */
struct str http_query(const struct http_request *req); /* "path=a%20b", for url_query_next(); empty when absent */

/*
 * The first parameter of that name, decoded, in the request's arena. 1, 0 when absent, -EINVAL for a malformed escape.
 */
int http_query_get(struct http_request *req, const char *name, struct str *ret_value) WARN_UNUSED;

struct str http_header_get(const struct http_request *req, const char *name); /* the first; p is NULL when absent */
size_t http_header_count(const struct http_request *req);
struct http_header http_header_at(const struct http_request *req, size_t i); /* in the order sent */

int64_t http_content_length(const struct http_request *req); /* -1 when chunked, 0 without a body */
bool http_wants_upgrade(const struct http_request *req);     /* Connection: upgrade and an Upgrade header */

bool http_is_tls(const struct http_request *req);

struct http_peer {
    bool is_unix;
    uid_t uid; /* unix only: by SO_PEERCRED, at the time it connected; else -1 */
    gid_t gid;
    pid_t pid;
    char address[64]; /* TCP only: "127.0.0.1:54321", "[::1]:54321"; else "" */
};
/* unix only: was it in this group when it connected, by SO_PEERCRED and SO_PEERGROUPS? */
bool http_peer_is_in(const struct http_request *req, gid_t group);
int http_peer_get(const struct http_request *req, struct http_peer *ret_peer) WARN_UNUSED;

struct arena *http_arena(struct http_request *req); /* freed after on_close */

/* While the answer may take as long as a person does, a client that closes its side of the connection has left:
 * on_close. */
void http_watch_client(struct http_request *req, bool is_on);

/* ---- being told ---- */

typedef void (*http_event_fn)(struct http_request *req, void *ctx);

void http_on_close(struct http_request *req, http_event_fn fn, void *ctx); /* exactly once; see above */
/* The queue was at write_high and is down to write_low, or it is empty and that was asked for by http_await_sent(). */
void http_on_drain(struct http_request *req, http_event_fn fn, void *ctx);
void http_await_sent(struct http_request *req);

/* ---- its body ---- */

/*
 * The whole body, at most max bytes, lent for the duration of fn. error is 0, -EMSGSIZE (more than max: body is empty,
 * the handler answers, usually 413; the rest is not read), or another -errno after which no answer is possible and
 * on_close follows: -EPIPE (client gone), -EPROTO (framing; the server answers 400), -ETIMEDOUT (the server answers
 * 408). Without a body fn gets an empty one.
 */
typedef void (*http_body_fn)(struct http_request *req, int error, struct str body, void *ctx);
/* Is there memory for n more bytes of it? False: that was answered, and fn is not called. NULL: there is. */
typedef bool (*http_room_fn)(void *ctx, size_t n);
void http_read_body(struct http_request *req, size_t max, http_room_fn room, http_body_fn fn, void *ctx);

/*
 * The body in pieces of up to 256 KiB, each lent for the duration of the call. on_end or on_error comes last, exactly
 * once, but neither after http_abort(). Errors as above, without -EMSGSIZE. A response may begin before the body ended;
 * once it has ended, nothing more of the body is delivered.
 */
struct http_body_ops {
    void (*on_data)(struct http_request *req, struct str data, void *ctx);
    void (*on_end)(struct http_request *req, void *ctx);
    void (*on_error)(struct http_request *req, int error, void *ctx);
};
void http_stream_body(struct http_request *req, const struct http_body_ops *ops, void *ctx); /* ops: static, borrowed */

/*
 * Stops deliveries (also of what was received already) and, through TCP, the client. Not counted: one resume undoes any
 * pauses.
 */
void http_pause_body(struct http_request *req);
void http_resume_body(struct http_request *req);

/* ---- the response ---- */

/*
 * Adds a header to whatever response this request gets, also one that the server makes by itself (413 and the like):
 * for CORS and such. Before the response begins; copied.
 */
void http_add_header(struct http_request *req, struct str name, struct str value);

/*
 * Response headers are the handler's, except these, which the server writes: date, connection, content-length,
 * transfer-encoding. A header that is not valid (http_is_token, http_is_field_value) is left out. Bodies are left out
 * for HEAD, 204 and 304, with the content-length they would have where that is allowed. All of the following copy what
 * they can't send at once, and return 0 or more, or -EPIPE (client gone, request aborted or answered already), or
 * -ENOBUFS (something is queued, and write_max would be exceeded, or there is no memory for it; the request is
 * aborted). Ignoring the result is fine: on_close comes in any case.
 */
int http_respond(struct http_request *req, int status, const struct http_header *headers, size_t n_headers,
                 struct str body);

/* {"code":<status>,"message":"<message>"} as application/json. */
int http_respond_error(struct http_request *req, int status, const char *message);

/*
 * content_length -1: chunked (HTTP/1.0: until close). The head leaves with the first write or at the end of this loop
 * turn.
 */
int http_response_begin(struct http_request *req, int status, const struct http_header *headers, size_t n_headers,
                        int64_t content_length);

/*
 * Bytes of the body; small ones are gathered and leave at the end of this loop turn. Returns how many bytes are queued;
 * once http_response_full() the caller should stop until http_on_drain. -EMSGSIZE when more than content_length would
 * be sent.
 */
ssize_t http_response_write(struct http_request *req, struct str data);
/* All parts as one chunk; n <= 16. */
ssize_t http_response_writev(struct http_request *req, const struct str *parts, size_t n);
size_t http_response_queued(const struct http_request *req);
bool http_response_full(const struct http_request *req); /* write_high was reached: stop; http_on_drain comes */

/*
 * Who counts the memory of what waits for the client, in steps of 16 KiB: `before` bytes are now `now`. False: there is
 * no room for more, and the request is aborted. It is given back when nothing waits; the end is not told.
 */
typedef bool (*http_queue_fn)(void *ctx, size_t before, size_t now);
void http_count_queue(struct http_request *req, http_queue_fn fn, void *ctx);

/*
 * All that was sent has been taken: over a unix socket, read by the client; over TCP, received by its kernel.
 */
bool http_client_has_read(const struct http_request *req);

/* The response is complete. One that is shorter than its content_length is cut like http_abort() does. */
int http_response_end(struct http_request *req);

bool http_response_begun(const struct http_request *req);

/*
 * Cuts the connection so that the client sees a failure: what the socket does not take at once is dropped, there is no
 * terminating chunk, and where a plain close would look like an end (HTTP/1.0 stream, raw) it is a reset. on_close
 * follows from the loop. Harmless after the end.
 */
void http_abort(struct http_request *req);

/*
 * The same of a chunked response, with a trailer that says why in front of it, as far as it can be sent at once; it is
 * not ended, so that nobody takes what came for the whole.
 */
void http_abort_saying(struct http_request *req, struct http_header trailer);

/* ---- raw take-over ---- */

/*
 * Answers 101 with these headers (which must hold "upgrade"; "connection: upgrade" is added) and turns the connection
 * into a duplex byte stream: http_stream_body() (again, if it was used before) delivers what the client sends, on_end
 * is its half-close, http_response_write() sends as is, http_response_end() half-closes, http_abort() closes. The
 * request ends when both sides have ended. The request's own body must have been read to its end before (most have
 * none), else -EBUSY.
 */
int http_upgrade(struct http_request *req, const struct http_header *headers, size_t n_headers);
