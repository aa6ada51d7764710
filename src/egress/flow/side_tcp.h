/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sides that are TCP connections (or, in tests, unix sockets). Nothing is buffered here: what is read comes out of the
 * kernel, what it does not take is not taken. Both functions always give a side; what went wrong comes by on_failed.
 */
#pragma once

#include "egress/flow/side.h"

/* For a listening socket, from which connections inherit it: no waiting for more to send, and peers that are gone are
 * found out. */
void side_tcp_listener(int fd);

/* Takes the descriptor of a connected socket, which is close-on-exec, and is ready. Nobody is told anything before
 * side_set(). */
struct side *side_tcp_accept(uv_loop_t *loop, int fd);

/* on_failed: refused, unreachable, or no answer within timeout_ms. Until on_ready nothing can be read or written
 * (-EAGAIN; on_writable comes then). */
struct side *side_tcp_connect(uv_loop_t *loop, const struct sockaddr *to, unsigned timeout_ms,
                              const struct side_ops *ops, void *ctx);

/* Asks the kernel now rather than waiting for the loop to hear of it. Only while nobody is told (ops NULL); with true,
 * on_ready will not come any more. */
bool side_tcp_is_connected(struct side *s);

/* The kernel keeps about that much each way, instead of what it finds right for the connection's rate (up to several
 * MiB). Best before anything is sent. */
void side_tcp_bound(struct side *s, int bytes);
