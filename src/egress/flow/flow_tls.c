/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interception: TLS with the world first, with whatever protocols the client offers that we speak; only when the world
 * has shown a good certificate, TLS with the sandbox, under a leaf of the sandbox's own CA and with the protocol that
 * the world chose. A bad certificate is the client's to see: it gets the alert that says what was wrong.
 *
 * Handshakes are what a connection costs most: in each turn of the loop one begins, of one sandbox after the other. So
 * one that begins many at once delays its own, and others' by what some of them take.
 */
#include "egress/flow/flow.h"
#include "egress/tls/ca.h"
#include "egress/tls/side_tls.h"

enum { TLS_MS = 10000, ALPN_ROOM = 32 };

static void on_sandbox_ready(void *ctx)
{
    struct flow *f = ctx;
    f->state = FLOW_OPEN;
    flow_tell_open(f);
    flow_http_open(f, side_tls_alpn(f->upstream));
}

static void on_sandbox_failed(void *ctx, const struct err *err)
{
    flow_tell_open(ctx);
    flow_end(ctx, err->msg);
}

static void on_world_lost(void *ctx, const struct err *err)
{
    flow_tell_open(ctx);
    flow_end(ctx, err->msg);
}

static void on_world_ready(void *ctx)
{
    static const struct side_ops sandbox = {.on_ready = on_sandbox_ready, .on_failed = on_sandbox_failed};
    static const struct side_ops world = {.on_failed = on_world_lost};
    struct flow *f = ctx;
    const struct ca_leaf *leaf;
    struct err err;
    if (!f->net->ca || ca_leaf(f->net->ca, f->name, &leaf, &err) < 0) {
        side_tls_alert(f->client, TLS_ALERT_INTERNAL_ERROR);
        side_linger(TAKE_PTR(f->client));
        flow_tell_open(f);
        flow_end(f, f->net->ca ? err.msg : "there is no CA to intercept with");
        return;
    }
    f->state = FLOW_TLS_SANDBOX;
    side_set(f->upstream, &world, f);
    side_set(f->client, NULL, NULL);
    f->client = side_tls_server(f->client, f->net->egress->sandboxes, leaf, buf_str(&f->first),
                                side_tls_alpn(f->upstream), TLS_MS, &sandbox, f);
    flow_forget_first(f);
}

static void on_world_failed(void *ctx, const struct err *err)
{
    struct flow *f = ctx;
    side_tls_alert(f->client, side_tls_failure_alert(f->upstream));
    side_linger(TAKE_PTR(f->client));
    flow_tell_open(f);
    flow_end(f, err->msg);
}

/* What the client offers and we can judge, in wire form. Without an offer of its own HTTP/1.1 is meant. */
static struct str protocols(const struct hello *h, char room[static ALPN_ROOM])
{
    static const struct str known[] = {{"h2", 2}, {"http/1.1", 8}};
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        if (!hello_alpn_has(h, known[i]))
            continue;
        room[n++] = (char)known[i].n;
        memcpy(room + n, known[i].p, known[i].n);
        n += known[i].n;
    }
    return str_n(room, n);
}

static void tls_begin(struct flow *f)
{
    static const struct side_ops ops = {.on_ready = on_world_ready, .on_failed = on_world_failed};
    char room[ALPN_ROOM];
    struct str alpn = protocols(&f->hello, room);
    if (f->hello.alpn_len && !alpn.n) {
        flow_refusef(f, "TLS to %s is intercepted, and the client offers neither HTTP/1.1 nor HTTP/2 in it", f->name);
        return;
    }
    side_set(f->upstream, NULL, NULL);
    f->upstream = side_tls_client(f->upstream, f->net->egress->world, f->name, alpn, TLS_MS, &ops, f);
}

/* ---- turns ---- */

static void tls_on_turn(uv_idle_t *idle)
{
    struct egress *e = idle->data;
    struct net *n = LIST_FIRST(struct net, &e->turns, turn);
    struct flow *f = n ? LIST_FIRST(struct flow, &n->turns, turn) : NULL;
    if (!n) {
        (void)uv_idle_stop(idle);
        return;
    }
    list_remove(&n->turn);
    if (!f) /* those that waited have ended */
        return;
    list_remove(&f->turn);
    if (!list_empty(&n->turns))
        list_append(&e->turns, &n->turn);
    tls_begin(f);
}

void flow_tls(struct flow *f)
{
    static const struct side_ops waits = {.on_failed = on_world_lost};
    struct net *n = f->net;
    f->state = FLOW_TLS_WORLD;
    side_set(f->upstream, &waits, f);
    list_append(&n->turns, &f->turn);
    if (list_empty(&n->turn))
        list_append(&n->egress->turns, &n->turn);
    (void)uv_idle_start(&n->egress->turn, tls_on_turn);
}

void flow_turns_start(struct egress *e)
{
    list_init(&e->turns);
    (void)uv_idle_init(e->loop, &e->turn);
    e->turn.data = e;
    e->handles++;
}

static void tls_turns_on_closed(uv_handle_t *idle)
{
    egress_handle_gone(idle->data);
}

void flow_turns_stop(struct egress *e)
{
    uv_close((uv_handle_t *)&e->turn, tls_turns_on_closed);
}
