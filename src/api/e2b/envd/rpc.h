/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connect RPC as the data plane's services use it: JSON only. A unary call has a bare JSON body and tells errors by
 * HTTP status; a stream answers 200 with envelopes whatever happens, and ends with an envelope that says how.
 */
#pragma once

#include "api/e2b/call.h"

enum rpc_flags {
    RPC_UNARY = ROUTE_OWN,
    RPC_STREAM = ROUTE_OWN << 1, /* its answer is one */
    RPC_READS = ROUTE_OWN << 2,  /* the handler reads the body itself */
};

/*
 * Checks the headers, reads the one message of the request into c->body, an object, and runs the route's handler; what
 * is malformed is answered. BODY_MAX bounds it, also unpacked. After Connect-Timeout-Ms (or RPC_TIMEOUT_MS) a unary
 * call that is still unanswered fails; a stream has to see to c->timeout_ms itself.
 */
enum { RPC_TIMEOUT_MS = 600 * 1000 };
void rpc_run(struct call *c);

/*
 * For handlers that read the body themselves. A message that is there as a whole goes to rpc_read(), and before that,
 * when it is compressed, through rpc_unpack(), which answers its failures; a unary one is when rpc_has_gzip() says so,
 * one of a stream may be.
 */
bool rpc_has_gzip(const struct call *c);
int rpc_unpack(struct call *c, struct str packed, struct buf *b) WARN_UNUSED;
void rpc_read(struct call *c, struct str text, void (*then)(struct call *c));

/* Answers a unary call; takes the content. Compressed, as streams are, when the client would rather have it so and it
 * is worth it. */
void rpc_answer(struct call *c, struct buf *body);

/* Fails the call, of either kind. A sandbox that is gone cuts it. */
bool rpc_fail(struct call *c, enum err_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);
void rpc_end_failed(struct call *c, enum err_code code, struct str message);

/* Sends an envelope that is complete already. */
void rpc_send(struct call *c, struct str envelope);

/* The sandbox is gone: a stream says so in its end, anything else is cut. */
void rpc_cut(struct call *c);

/* Ends the stream well. */
void rpc_end(struct call *c);

/* What the state of a stream begins with whose client hears of it when there is nothing to say. */
struct rpc_stream {
    usec_t last, deadline; /* monotonic: when something was sent; when it fails, 0: never */
    uint64_t keepalive_ms;
    struct str keepalive; /* a message */
};
/* c->state: of this size, for struct rpc_stream and what the handler has behind it. */
void *rpc_stream_begin(struct call *c, size_t n, struct str keepalive);
void rpc_stream_send(struct call *c);  /* the envelopes in the scratch buffer */
void rpc_stream_alive(struct call *c); /* from now on: every Keepalive-Ping-Interval */

/* Base64 of either alphabet, as proto3 JSON allows. -EILSEQ, -ENOBUFS. */
int rpc_append_bytes(struct buf *b, struct str base64) WARN_UNUSED;
