/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that cove-egress sees, whatever version of HTTP carries them: h1.c and h2.c parse, strictly, and serialise;
 * in between the connection's owner judges each request and may edit its head. Bodies stream through as they are,
 * unless the owner asks for one as a whole.
 *
 * Hop-by-hop fields (Connection and what it names, Proxy-*, Keep-Alive, TE but "trailers") are gone before the head is
 * judged, so that nobody can have an injected field removed again. Upgrade is kept for WebSocket alone: after 101 the
 * connection is bytes both ways. Content-Length and Transfer-Encoding are not shown: what frames a body is how it was
 * read. Nobody can set one of these names.
 *
 * What does not go through is answered here, with a JSON body that is the same for all versions:
 *   {"error":{"code":CODE,"message":TEXT}}
 *   CODE  bad_request 400, denied 403, method_not_allowed 405, timeout 408, expectation_failed 417, misdirected 421, too_large 431, internal 500,
 *         bad_gateway 502, timeout 504; "refused" for others
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "egress/flow/side.h"
#include "http/message.h"

struct exchange_head {
    struct arena *arena; /* of this request: for new texts */
    struct str method;
    struct str authority;       /* Host or :authority, which must agree; as sent. Empty: HTTP/1.0 without Host */
    struct str path;            /* with query, as sent: "/..." or "*" */
    struct http_header *fields; /* lower-case names; without Host and pseudo-headers */
    size_t n_fields, cap_fields;
    enum { EXCHANGE_BODY_UNREAD, EXCHANGE_BODY_WHOLE, EXCHANGE_BODY_PASSED } body_is; /* passed: goes on as it comes */
    struct str body; /* EXCHANGE_BODY_WHOLE: may be replaced, by one of the arena's */
};

/*
 * Replaces all of that name; both are copied. A name or a value that can't be sent ends the request with 500 instead of
 * going on without it.
 */
void exchange_set(struct exchange_head *h, struct str name, struct str value);
void exchange_remove(struct exchange_head *h, struct str name);

struct exchange_refusal {
    /*
     * Not refused, but to be asked about once more: when exchange_resume() is called (HTTP/1 alone), or when the body
     * is there; it was not yet. One of more than EXCHANGE_BODY_MAX bytes is passed on then.
     */
    enum { EXCHANGE_WANTS_NOTHING, EXCHANGE_WANTS_TIME, EXCHANGE_WANTS_BODY } wants;
    int status;     /* 403, 421, ... */
    char text[512]; /* goes into the body, for people and programs: {"error":{...}} is made of it */
    bool close;     /* and ends the connection */
};

struct exchange_ops {
    /*
     * The head of a request. False: refused, nothing of it goes on. `id` tells requests of a connection apart. An
     * exchange without an upstream side asks for one by this call: whoever allows the request starts to dial and calls
     * exchange_upstream().
     */
    bool (*on_request)(void *ctx, uint64_t id, struct exchange_head *head, struct exchange_refusal *ret_refusal);
    /* The final status of the answer, when its head is there; 0: there was none. Once for each request that on_request
     * allowed. */
    void (*on_answer)(void *ctx, uint64_t id, int status);
    /* May be NULL. Fields of an answer, also of a preliminary one, or its trailers: values may be replaced by others of
     * the arena's. */
    void (*on_fields)(void *ctx, uint64_t id, struct arena *arena, struct http_header *fields, size_t n);
    /* May be NULL. HTTP/2: nothing more comes of an answer that on_answer told of. */
    void (*on_through)(void *ctx, uint64_t id);
    /* Both sides are done with, or failed: close the exchange. err NULL: in good order. */
    void (*on_end)(void *ctx, const struct err *err);
};

struct exchange;

enum {
    EXCHANGE_HEAD_MAX = 64 * 1024,
    EXCHANGE_BODY_MAX = 1024 * 1024,
    EXCHANGE_FIELDS_MAX = 200,
    EXCHANGE_STREAMS_MAX = 100
};

enum {
    EXCHANGE_HEAD_MS = 10 * 1000,    /* from a head's first byte to its last */
    EXCHANGE_IDLE_MS = 60 * 1000,    /* between requests */
    EXCHANGE_STALL_MS = 3600 * 1000, /* within one, when nothing moves either way */
    EXCHANGE_BLOCKED_MS =
        60 * 1000, /* HTTP/2: an answer of which the client takes nothing is reset after one to two of these */
    EXCHANGE_SKIP_MAX = 256 * 1024, /* of a refused request's body; a longer one ends the connection */
};

enum { EXCHANGE_SHARE_MAX = 64 * 1024 * 1024, EXCHANGE_SHARE_LEAST = 64 * 1024 };

/*
 * What several exchanges keep because it is not taken: answers, requests, and their heads. Above EXCHANGE_SHARE_MAX
 * bytes in all, one that keeps more than EXCHANGE_SHARE_LEAST of answers reads no more of its upstream until its client
 * has taken some, and the other way round for requests; and heads of HTTP/2 that would come on top of others are
 * refused. Its owner may add what else it keeps. Begins as 0, and outlives them.
 */
struct exchange_share {
    size_t held;
};

/*
 * Take both sides. first: bytes of the client that were read already (h1: part of a head; h2: of the preface). upstream
 * may still be connecting, or (h1 alone) be NULL: nobody is dialled before a request was allowed. exchange_close()
 * resets what has not ended, and frees; it is always allowed, and nothing is told afterwards.
 */
struct exchange *h1_exchange(uv_loop_t *loop, struct side *client, struct side *upstream, struct str first,
                             const struct exchange_ops *ops, void *ctx);
struct exchange *h2_exchange(uv_loop_t *loop, struct side *client, struct side *upstream, struct str first,
                             const struct exchange_ops *ops, void *ctx);

/* Not from within on_request. upstream NULL: it could not be reached; what waits is answered 502 with `why`, and the
 * connection ends. */
void exchange_upstream(struct exchange *x, struct side *upstream, const char *why);

/* What waits for it (EXCHANGE_WANTS_TIME) is asked about again, from the loop. */
void exchange_resume(struct exchange *x);

void exchange_set_share(struct exchange *x, struct exchange_share *share);

/* Payload so far: what the client sent and upstream took, what upstream sent and the client took; heads included. */
void exchange_counts(const struct exchange *x, uint64_t *ret_sent, uint64_t *ret_received);
void exchange_close(struct exchange *x);
