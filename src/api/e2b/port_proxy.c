/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *  1. The relay of http/client/proxy.h starts at once; what it writes waits in a queue until the connection inside is open. Programs that
 *     were just started need a moment until they listen, so a refused connection is tried again a few times.
 *  2. Towards the sandbox the queue is bounded because the relay stops above HTTP_PROXY_HIGH. From the sandbox, bytes are acknowledged when
 *     they are handed on, unless the relay has said that its client is slow: then not until it resumes.
 *  3. Whoever can reach a port may be anybody. What relays hold of a sandbox's streams and of our memory is bounded, so that its owner's own calls still get
 *     through.
 *  4. Two parties hold the relay: the proxy until it calls close(), the request until on_done(). The last one frees it.
 */
#include "api/e2b/port_proxy.h"

#include "api/e2b/control/network_body.h"
#include "api/e2b/proxy_error.h"
#include "api/e2b/wake.h"
#include "base/mem.h"
#include "http/client/proxy.h"
#include "sandbox/quota.h"
#include "sandbox/tenant.h"

enum { TRIES_MAX = 5, PAUSE_MS = 100, QUEUE_MAX = 4 * HTTP_PROXY_HIGH };

/* The relays of one sandbox; there while it has any. */
struct traffic {
    unsigned n;
};

struct relay {
    struct e2b *e2b;
    struct sandbox *sandbox; /* referenced */
    struct traffic *traffic;
    struct charge charge;
    struct http_proxy *proxy;
    struct file_call *dial; /* NULL between tries and once it ended */
    struct timer retry;
    struct buf queue; /* for the sandbox */
    size_t unacked;
    unsigned tries, refs;
    uint16_t port;
    bool open, ended, paused, eof_wanted, eof_sent, eof_seen, stalled;
};

static const struct actor actor = {.name = "e2b:traffic"};

/* NULL: it has as many as it may. */
static struct traffic *traffic_join(struct e2b *e2b, struct sandbox *sb)
{
    struct traffic *t = map_get_u64(&e2b->traffic, (uintptr_t)sb);

    if (t && t->n >= PORT_PROXY_RELAYS_MAX)
        return NULL;
    if (!t) {
        t = mem_new(struct traffic);
        (void)map_put_u64(&e2b->traffic, (uintptr_t)sb, t);
    }
    t->n++;
    return t;
}

static void traffic_leave(struct relay *r)
{
    charge_release(&r->charge);
    if (--r->traffic->n)
        return;
    (void)map_del_u64(&r->e2b->traffic, (uintptr_t)r->sandbox);
    mem_free(r->traffic);
}

static void relay_unref(struct relay *r)
{
    if (--r->refs)
        return;
    traffic_leave(r);
    sandbox_unref(r->sandbox);
    buf_fini(&r->queue);
    mem_free(r);
}

/* ---- to the sandbox ---- */

static void flush(struct relay *r)
{
    if (!r->open || !r->dial)
        return;
    while (buf_len(&r->queue)) {
        size_t n = dial_write(r->dial, buf_str(&r->queue));

        if (n == 0)
            return;
        buf_consume(&r->queue, n);
    }
    if (r->eof_wanted && !r->eof_sent) {
        r->eof_sent = true;
        dial_eof(r->dial);
    }
}

static ssize_t upstream_write(void *upstream, const struct str *parts, size_t n)
{
    struct relay *r = upstream;

    if (r->ended)
        return -EPIPE;
    for (size_t i = 0; i < n; i++) {
        struct str part = parts[i];

        if (r->open && r->dial && buf_len(&r->queue) == 0)
            part = str_sub(part, dial_write(r->dial, part));
        if (part.n)
            buf_append_str(&r->queue, part);
    }
    if (buf_error(&r->queue) < 0)
        return buf_error(&r->queue);
    r->stalled = buf_len(&r->queue) > HTTP_PROXY_HIGH;
    return (ssize_t)buf_len(&r->queue);
}

static void upstream_end(void *upstream)
{
    struct relay *r = upstream;

    r->eof_wanted = true;
    flush(r);
}

static void upstream_pause(void *upstream)
{
    struct relay *r = upstream;

    r->paused = true;
}

static void upstream_resume(void *upstream)
{
    struct relay *r = upstream;

    r->paused = false;
    if (r->dial && r->unacked)
        dial_ack(r->dial, r->unacked);
    r->unacked = 0;
}

static void upstream_close(void *upstream)
{
    struct relay *r = upstream;

    r->ended = true;
    r->proxy = NULL;
    timer_stop(&r->retry);
    if (r->dial)
        file_call_cancel(TAKE_PTR(r->dial));
    relay_unref(r);
}

static const struct http_upstream_ops upstream_ops = {
    .write = upstream_write,
    .end = upstream_end,
    .pause = upstream_pause,
    .resume = upstream_resume,
    .close = upstream_close,
};

/* ---- from the sandbox ---- */

static void on_open(void *ctx)
{
    struct relay *r = ctx;

    r->open = true;
    flush(r);
    if (r->stalled && buf_len(&r->queue) < HTTP_PROXY_HIGH / 4) {
        r->stalled = false;
        http_proxy_writable(r->proxy);
    }
}

static void on_data(void *ctx, struct str bytes)
{
    struct relay *r = ctx;

    if (r->paused)
        r->unacked += bytes.n;
    else
        dial_ack(r->dial, bytes.n);
    http_proxy_feed(r->proxy, bytes); /* may end the relay */
}

static void on_writable(void *ctx)
{
    struct relay *r = ctx;

    flush(r);
    if (r->stalled && buf_len(&r->queue) < HTTP_PROXY_HIGH / 4) {
        r->stalled = false;
        http_proxy_writable(r->proxy);
    }
}

static void on_eof(void *ctx)
{
    struct relay *r = ctx;

    r->eof_seen = true;
    http_proxy_eof(r->proxy);
}

static void on_end(void *ctx, const struct err *err)
{
    struct relay *r = ctx;

    r->dial = NULL;
    if (err && !r->open && err->code == ERR_UNAVAILABLE && r->tries < TRIES_MAX &&
        sandbox_info(r->sandbox)->state == SANDBOX_RUNNING) {
        timer_set(&r->e2b->facade.timers, &r->retry, r->tries * PAUSE_MS);
        return;
    }
    r->ended = true;
    if (err)
        http_proxy_failed(r->proxy, r->open ? -ECONNRESET : -ECONNREFUSED);
    else if (!r->eof_seen)
        http_proxy_eof(r->proxy);
}

static const struct dial_ops dial_callbacks = {on_open, on_data, on_writable, on_eof, on_end};

static void try_to_dial(struct relay *r)
{
    struct err err;

    r->tries++;
    if (dial_open(r->sandbox, &actor, r->port, &dial_callbacks, r, &r->dial, &err) < 0) {
        r->dial = NULL;
        r->ended = true;
        http_proxy_failed(r->proxy, err.code == ERR_RESOURCE_EXHAUSTED  ? -EMFILE
                                    : err.code == ERR_PERMISSION_DENIED ? -EACCES
                                                                        : -ECONNREFUSED);
    }
}

static void on_retry(struct timer *t)
{
    try_to_dial(container_of(t, struct relay, retry));
}

/* ---- the request ---- */

static void on_bad_gateway(struct http_request *req, int error, void *ctx)
{
    struct relay *r = ctx;
    struct str id = str_of(sandbox_info(r->sandbox)->id);

    if (sandbox_info(r->sandbox)->state != SANDBOX_RUNNING)
        wake_refuse(req, sandbox_info(r->sandbox));
    else if (error == -ECONNREFUSED)
        proxy_error_port_closed(req, id, r->port);
    else if (error == -EMFILE)
        proxy_error_too_many(req, id);
    else if (error == -EACCES)
        http_respond_error(req, 403, "connections to this port are not allowed");
    else
        proxy_error_bad_answer(req, id, r->port);
}

static void on_done(struct http_request *req, void *ctx)
{
    (void)req;
    relay_unref(ctx);
}

/*
 * Who comes without one tries nothing: any visitor of
 * what is served there does, and must not use up what may be told of others.
 */
bool port_proxy_refuses(struct e2b *e2b, struct http_request *req, const struct sandbox_info *info)
{
    struct str given = http_header_get(req, "e2b-traffic-access-token");

    if (!info->traffic_token || str_eq_secret(given, str_of(info->traffic_token)))
        return false;
    if (given.n)
        facade_note_refusal(&e2b->facade, req, REFUSAL_WRONG_TOKEN);
    proxy_error_traffic_token(req, str_of(info->id), given.n == 0);
    return true;
}

struct token_search {
    struct str given;
    bool found;
};

static bool token_is_ours(void *ctx, struct sandbox *sb)
{
    struct token_search *s = ctx;
    const char *token = sandbox_info(sb)->access_token;

    s->found = s->found || (token && str_eq_secret(s->given, str_of(token)));
    return !s->found;
}

/* Is one of the words of a header's value what opens us: the API's key, or a sandbox's access token? Tokens of programs are left to them. */
static bool opens_us(const struct e2b *e2b, struct str value)
{
    static const char between[] = " \t,;=\"";
    struct principal who;

    while (value.n) {
        size_t n = 0;

        while (n < value.n && !memchr(between, value.p[n], sizeof(between) - 1))
            n++;
        struct token_search s = {.given = str_n(value.p, n)};
        if (n == SANDBOX_TOKEN_LEN)
            sandbox_each(e2b->facade.core, token_is_ours, &s);
        if (s.found || (n && tenant_authenticate(e2b->facade.core, s.given, &who)))
            return true;
        value = str_sub(value, MIN(n + 1, value.n));
    }
    return false;
}

/* What is in there must not get what opens us, in whichever header a client sends it along. */
static const char *const *headers_to_drop(const struct e2b *e2b, struct http_request *req)
{
    size_t n = 0, count = http_header_count(req);
    const char **names = arena_alloc(http_arena(req), (count + 3) * sizeof(*names));

    names[n++] = "x-api-key";
    names[n++] = "e2b-traffic-access-token";
    for (size_t i = 0; i < count; i++) {
        struct http_header h = http_header_at(req, i);

        if (opens_us(e2b, h.value))
            names[n++] = arena_strndup(http_arena(req), h.name.p, h.name.n);
    }
    names[n] = NULL;
    return names;
}

static void relay(struct e2b *e2b, struct http_request *req, struct sandbox *sb, uint16_t port)
{
    struct http_proxy_options options = {
        .drop = headers_to_drop(e2b, req), .on_bad_gateway = on_bad_gateway, .on_done = on_done};
    AUTO_BUF struct buf host = BUF_INIT(1024);
    static const uint64_t one[QUOTA_CHARGED] = {[QUOTA_CONNECTIONS] = 1};
    struct charge charge = {0};
    struct traffic *traffic;
    struct relay *r;
    struct err err;

    if (charge_take(&charge, e2b->facade.core, sandbox_info(sb)->tenant, one, &err) < 0 ||
        !(traffic = traffic_join(e2b, sb))) {
        charge_release(&charge);
        proxy_error_too_many(req, str_of(sandbox_info(sb)->id));
        return;
    }
    if (network_mask_host(network_fields(sb), port, &host))
        options.host = buf_str(&host);
    r = mem_new(struct relay);
    r->e2b = e2b;
    r->sandbox = sandbox_ref(sb);
    r->traffic = traffic;
    r->charge = charge;
    r->port = port;
    r->refs = 2;
    buf_init(&r->queue, QUEUE_MAX);
    timer_init(&r->retry, on_retry);
    options.ctx = r;
    if (http_proxy_start(req, &upstream_ops, r, &options, &r->proxy) < 0) {
        r->refs = 1;
        relay_unref(r);
        http_respond_error(req, 400, "the request can't be relayed");
        return;
    }
    try_to_dial(r);
}

void port_proxy_handle(struct e2b *e2b, struct http_request *req, struct sandbox *sb, uint16_t port)
{
    const struct sandbox_info *info = sandbox_info(sb);

    /* One that stays paused is none to whoever asks, token or not. */
    if (info->state != SANDBOX_RUNNING && !info->auto_resume)
        wake_refuse(req, info);
    else if (!port_proxy_refuses(e2b, req, info) && wake_first(e2b, req, sb, port, true, relay))
        relay(e2b, req, sb, port);
}
