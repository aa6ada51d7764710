/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/flow/flow.h"
#include "egress/flow/relay.h"
#include "egress/flow/side_tcp.h"

#include <sys/socket.h>

/* ---- bytes both ways ---- */

static void on_relay_end(void *ctx, enum relay_end end UNUSED, const struct err *err)
{
    flow_end(ctx, err ? err->msg : NULL);
}

void flow_relay(struct flow *f)
{
    f->state = FLOW_OPEN;
    f->relay = relay_start(f->net->egress->pipes, f->net->egress->loop, TAKE_PTR(f->client), TAKE_PTR(f->upstream),
                           buf_str(&f->first), f->net->egress->config.still_ms, on_relay_end, f);
    flow_forget_first(f);
    flow_tell_open(f); /* after the client's first bytes are on their way */
}

/* ---- upstream ---- */

static void on_connected(void *ctx)
{
    struct flow *f = ctx;
    if (f->intercepted)
        flow_tls(f);
    else if (f->silent)
        flow_watch(f);
    else
        flow_relay(f);
}

/* The sandbox sees a connection that breaks: it was told already that there is one. */
static void flow_dial_on_refused(void *ctx, const struct err *err)
{
    struct flow *f = ctx;
    flow_tell_open(f);
    flow_end(f, err->msg);
}

void flow_connect(struct flow *f, const struct side_ops *ops)
{
    struct sockaddr_storage to;
    (void)netaddr_to_sockaddr(&f->to, f->port, &to);
    f->upstream = side_tcp_connect(f->net->egress->loop, (const struct sockaddr *)&to, FLOW_DIAL_MS, ops, f);
    if (f->buffer_bytes)
        side_tcp_bound(f->upstream, f->buffer_bytes);
}

void flow_dial(struct flow *f)
{
    static const struct side_ops world = {.on_ready = on_connected, .on_failed = flow_dial_on_refused};
    assert(!f->upstream && f->state < FLOW_DIAL);
    f->state = FLOW_DIAL;
    /* A client that has said something was judged by that, and is not looked at again; one that has not is, once this
     * is connected. */
    flow_wait(f);
    flow_connect(f, NULL);
    if (side_tcp_is_connected(f->upstream)) { /* on this machine, or the next: the loop has other things to do first */
        on_connected(f);
        return;
    }
    side_set(f->upstream, &world, f);
}
