/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON objects over a socket that keeps their bounds: the ends of wire/egress.h. A new socket replaces the one before,
 * and what waits for that is dropped. Messages may hold what is secret, so they are wiped.
 */
#pragma once

#include "base/json.h"
#include "base/list.h"

#include <uv.h>

struct packets_ops {
    bool (*on_message)(void *ctx, json_t *message); /* false: it makes no sense, and the socket is closed */
    /*
     * The socket is closed. error: 0, by the other side; -EMSGSIZE and -EBADMSG, for what that sent; or of the socket.
     */
    void (*on_lost)(void *ctx, int error);
    void (*on_sent)(void *ctx); /* nothing waits any more. May be NULL */
};

struct packets {
    uv_loop_t *loop;
    const struct packets_ops *ops;
    void *ctx;
    struct packets_socket *now; /* NULL: none */
    struct list queue;
    size_t queued; /* bytes */
};

void packets_init(struct packets *p, uv_loop_t *loop, const struct packets_ops *ops, void *ctx);
int packets_attach(struct packets *p, int fd) WARN_UNUSED; /* takes fd, closes the socket before */
void packets_close(struct packets *p);                     /* without on_lost() */

/* text: copied, at most EGRESS_MESSAGE_MAX bytes; for a later packets_send(). */
void packets_put(struct packets *p, struct str text);
void packets_send(struct packets *p);
