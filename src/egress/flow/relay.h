/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes both ways between two sides, until both have ended or one has failed. A side that reads slowly slows the other
 * one and nobody else; an end of file one way leaves the other way open. Between two plain TCP connections the bytes of
 * a fast direction stay in the kernel (splice).
 */
#pragma once

#include "egress/flow/side.h"

struct relay;
struct relay_pool;

enum relay_end {
    RELAY_DONE,     /* both directions came to their end */
    RELAY_A_FAILED, /* err says how */
    RELAY_B_FAILED,
    RELAY_IDLE, /* nothing moved for idle_ms */
};

/* err: NULL for RELAY_DONE. Nothing comes afterwards; relay_counts() can be asked, then relay_close(). */
typedef void relay_end_fn(void *ctx, enum relay_end end, const struct err *err);

/* What all relays of a loop share: one buffer, and pipes that are not in use. Must outlive them. SIGPIPE, which
 * splice() raises, is ignored from now on. */
struct relay_pool *relay_pool_new(void);
void relay_pool_free(struct relay_pool *p);

/* Takes both sides; they may still be connecting. first: bytes of a that were read already, SIDE_BUFFER at most.
 * idle_ms 0: no limit. */
struct relay *relay_start(struct relay_pool *pool, uv_loop_t *loop, struct side *a, struct side *b, struct str first,
                          unsigned idle_ms, relay_end_fn *on_end, void *ctx);

/* Bytes that a sent and b took; that b sent and a took. */
void relay_counts(const struct relay *r, uint64_t *ret_ab, uint64_t *ret_ba);

/* Frees it with both sides: closed after RELAY_DONE, reset in all other cases, also before the end. NULL is fine;
 * always allowed. */
void relay_close(struct relay *r);
