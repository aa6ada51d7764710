/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What h1*.c and h2*.c share: the two ends with their buffers, the one place that calls the owner and lives through
 * being closed by it, and the rules for heads.
 *
 *  1. Everything happens in turns, from the loop only: rounds of kind->round(), which moves what can be moved, until
 *     nothing moves any more.
 *  2. The owner may close the exchange in any of its callbacks. `closed` is then set and the memory stays until the
 *     turn is over.
 *  3. After exchange_end() nothing is moved any more; the owner is told as the last thing of a turn.
 */
#pragma once

#include "base/buf.h"
#include "egress/http/exchange.h"

enum {
    END_READ = 32 * 1024,      /* one read */
    END_OUT_HIGH = 64 * 1024,  /* from here on nothing is added to an end's `out` */
    END_OUT_MAX = 1024 * 1024, /* what heads and frames may add beyond */
    EXCHANGE_ROUNDS = 8,       /* of one turn; then others have theirs */
};

struct exchange_times {
    unsigned head_ms, idle_ms, stall_ms, blocked_ms;
};

/* A side with what was read and not parsed yet, and what is to be written. */
struct exchange_end {
    struct exchange *x;
    struct side *side; /* owned; NULL: not yet, or no more */
    uint64_t counted;  /* bytes that came from it, when it is no more */
    struct buf in, out;
    struct err err;        /* of `failed` */
    bool may_read, eof;    /* eof: behind what is in `in` */
    bool unwritable, shut; /* unwritable: the peer takes no more, but may still say something */
    bool failed;
};

struct exchange_kind {
    bool (*round)(struct exchange *x); /* true: something moved */
    /* Behind the last round of a turn: what is waited for now, and how long. moved: by any of its rounds. */
    void (*settle)(struct exchange *x, bool moved);
    void (*on_timeout)(struct exchange *x); /* exchange_deadline() passed */
    void (*on_no_upstream)(struct exchange *x, const char *why);
    void (*release)(struct exchange *x); /* frees; the ends are closed already */
};

struct exchange {
    const struct exchange_kind *kind;
    uv_loop_t *loop;
    const struct exchange_ops *ops;
    void *ctx;
    struct exchange_times times;
    struct exchange_end client, upstream;
    uv_timer_t timer;
    uv_idle_t idle;    /* runs while it was kicked */
    uint64_t deadline; /* of the loop's clock */
    uint64_t last_id;
    struct exchange_share *share; /* NULL: none */
    size_t shared;                /* of share->held, this one's */
    size_t bodies, uploads;       /* of answers and of requests, between the ends */
    size_t held;                  /* of requests whose bodies are collected: reading on is what lets them go */
    size_t heads;                 /* of both, with what belongs to each request of HTTP/2 */
    bool kicked, running, closed, ended, end_told, end_failed, resumed;
    struct err end_err;
};

struct exchange *h1_exchange_timed(uv_loop_t *loop, struct side *client, struct side *upstream, struct str first,
                                   const struct exchange_ops *ops, void *ctx, const struct exchange_times *times);
struct exchange *h2_exchange_timed(uv_loop_t *loop, struct side *client, struct side *upstream, struct str first,
                                   const struct exchange_ops *ops, void *ctx, const struct exchange_times *times);

/* times NULL: those of exchange.h. Takes the sides; the first turn follows from the loop. */
void exchange_init(struct exchange *x, const struct exchange_kind *kind, uv_loop_t *loop, struct side *client,
                   struct side *upstream, struct str first, const struct exchange_ops *ops, void *ctx,
                   const struct exchange_times *times);
void exchange_kick(struct exchange *x); /* another turn, from the loop */
void exchange_deadline(struct exchange *x, unsigned ms);
void exchange_end(struct exchange *x, const struct err *err);

/* The exchanges of its share keep as much together as they may. One that keeps little goes on all the same. */
bool exchange_is_full(const struct exchange *x);

static inline bool exchange_over(const struct exchange *x)
{
    return x->closed || x->ended;
}

/* True: something moved. */
bool end_read(struct exchange_end *e);
bool end_flush(struct exchange_end *e);
void end_put(struct exchange_end *e, struct str s);     /* behind what is in `out` */
void end_put_now(struct exchange_end *e, struct str s); /* the same, past the buffer where that is possible */
void end_linger(struct exchange_end *e); /* gives the side away: what was written is read, then it is closed */
void end_reset(struct exchange_end *e);

/* ---- heads ---- */

/* Lower-case names of fields that are never shown to the owner nor copied: the connection's and the framing's. */
bool exchange_is_framing(struct str name);

/*
 * Fills the head's fields from raw ones (lower-case names): without Host (it becomes the authority, if that was not
 * known), hop-by-hop fields, or framing. NULL, or what is wrong: fields that can't be sent, two Hosts, a Host that is
 * no authority or another one than `authority`.
 */
const char *exchange_fill_head(struct exchange_head *h, const struct http_header *raw, size_t n);

/* Copies to its arena what a parser still has: what is asked about once more outlives that. */
void exchange_keep_head(struct exchange_head *h);

/* The request line's part. NULL, or what is wrong. */
const char *exchange_check_target(const struct exchange_head *h);
bool exchange_is_refused_method(struct str method); /* CONNECT, TRACE */

/* After the owner's edits: may it be sent as it is? */
bool exchange_is_sendable(const struct exchange_head *h);

/* May a trailer of a request have this name? Not what routes, frames, authenticates or qualifies it (RFC 9110 section
 * 6.5.1). */
bool exchange_is_trailer(struct str name);

const char *exchange_reason(int status);
void exchange_refusal_body(struct buf *b, int status, struct str message);
