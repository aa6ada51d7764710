/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One side of a connection through cove-egress: a byte stream to the sandbox or to the world, over TCP or TLS. Whoever
 * owns the two sides of a connection moves bytes between them (relay.h, exchange.h); a side knows nothing of what they
 * mean.
 *
 *  1. Callbacks come from the loop only, never from within a call of these functions.
 *  2. Reading is pulled: on_readable says that side_read() will give something; it is not said again before side_read()
 *     has returned 0 with nothing left (-EAGAIN). Writing takes what fits; on_writable comes once after side_write()
 *     took less than it was given.
 *  3. A side holds at most SIDE_BUFFER bytes each way besides what the kernel holds. A TLS record that is begun is
 *     finished.
 *  4. Half-close is kept: end of file one way leaves the other open. For TLS it is close_notify; a TCP end without it
 *     is -ECONNABORTED (truncation).
 *  5. After on_failed nothing more comes; close it. side_close() is always allowed, also from callbacks, and no
 *     callback comes afterwards.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <uv.h>

struct side;

enum { SIDE_BUFFER = 64 * 1024 };

struct side_ops {
    void (*on_ready)(void *ctx); /* connected, TLS handshake done */
    void (*on_readable)(void *ctx);
    void (*on_writable)(void *ctx);
    /* Refused, reset, time-out, TLS alert: err says which, for people. */
    void (*on_failed)(void *ctx, const struct err *err);
};

/* Changes who is called; on_readable comes again if there is something to read. Callbacks of ops may be NULL, and ops
 * itself: then nobody is called. */
void side_set(struct side *s, const struct side_ops *ops, void *ctx);

/* Bytes now (>0), 0: end of file, -EAGAIN: later (also while it is not ready), other -errno: broken, and on_failed will
 * say why. */
ssize_t side_read(struct side *s, void *to, size_t room);
ssize_t side_write(struct side *s, const void *from, size_t n);
void side_shut(struct side *s); /* no more writes: FIN or close_notify behind what is queued */
/* Frees it; NULL is fine. What TLS holds and could not write yet is tried for a while, as by side_linger(). */
void side_close(struct side *s);
/* Closes behind side_shut(), but stays for the peer to read what was written and to end, 2 s and 1 MiB at most: for
 * last words. */
void side_linger(struct side *s);
void side_reset(struct side *s); /* closes with a TCP reset, so that the peer sees a failure and not an end */

uint64_t side_bytes_in(const struct side *s); /* payload */
int side_fd(const struct side *s);            /* of plain TCP, for splice(); -1: TLS, or bytes are buffered here */
