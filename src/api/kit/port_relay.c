/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *  1. The relay of http/client/proxy.h starts at once; what it writes waits in a queue until the connection inside is
 *     open. Programs that were just started need a moment until they listen, so a refused connection is tried again a
 *     few times.
 *  2. Towards the sandbox the queue is bounded because the relay stops above HTTP_PROXY_HIGH. From the sandbox, bytes
 *     are acknowledged when they are handed on, unless the relay has said that its client is slow: then not until it
 *     resumes.
 *  3. Whoever can reach a port may be anybody. What relays hold of a sandbox's streams and of our memory is bounded, so
 *     that its owner's own calls still get through.
 *  4. Two parties hold the relay: the proxy until it calls close(), the request until port_on_done(). The last one
 *     frees it.
 */
#include "api/kit/port_relay.h"
#include "base/mem.h"
#include "http/client/proxy.h"
#include "sandbox/files/files.h"
#include "sandbox/key.h"
#include "sandbox/quota.h"

enum { TRIES_MAX = 5, PAUSE_MS = 100, QUEUE_MAX = 4 * HTTP_PROXY_HIGH, LOOK_UPS_MAX = 64 };

struct port_relay {
    struct facade *facade;
    const struct port_way *way;
    struct sandbox *sandbox; /* referenced */
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

static void port_relay_unref(struct port_relay *r)
{
    if (--r->refs)
        return;
    charge_release(&r->charge);
    sandbox_relay_leave(r->sandbox);
    sandbox_unref(r->sandbox);
    buf_fini(&r->queue);
    mem_free(r);
}

/* ---- to the sandbox ---- */

static void port_flush(struct port_relay *r)
{
    if (!r->open || !r->dial)
        return;
    while (buf_len(&r->queue)) {
        size_t n = file_write_data(r->dial, buf_str(&r->queue));
        if (n == 0)
            return;
        buf_consume(&r->queue, n);
    }
    if (r->eof_wanted && !r->eof_sent) {
        r->eof_sent = true;
        file_write_eof(r->dial);
    }
}

static ssize_t port_upstream_write(void *upstream, const struct str *parts, size_t n)
{
    struct port_relay *r = upstream;
    if (r->ended)
        return -EPIPE;
    for (size_t i = 0; i < n; i++) {
        struct str part = parts[i];
        if (r->open && r->dial && buf_len(&r->queue) == 0)
            part = str_sub(part, file_write_data(r->dial, part));
        if (part.n)
            buf_append_str(&r->queue, part);
    }
    if (buf_error(&r->queue) < 0)
        return buf_error(&r->queue);
    r->stalled = buf_len(&r->queue) > HTTP_PROXY_HIGH;
    return (ssize_t)buf_len(&r->queue);
}

static void port_upstream_end(void *upstream)
{
    struct port_relay *r = upstream;
    r->eof_wanted = true;
    port_flush(r);
}

static void port_upstream_pause(void *upstream)
{
    struct port_relay *r = upstream;
    r->paused = true;
}

static void port_upstream_resume(void *upstream)
{
    struct port_relay *r = upstream;
    r->paused = false;
    if (r->dial && r->unacked)
        file_read_ack(r->dial, r->unacked);
    r->unacked = 0;
}

static void port_upstream_close(void *upstream)
{
    struct port_relay *r = upstream;
    r->ended = true;
    r->proxy = NULL;
    timer_stop(&r->retry);
    file_call_cancel(TAKE_PTR(r->dial));
    port_relay_unref(r);
}

static const struct http_upstream_ops port_upstream_ops = {
    .write = port_upstream_write,
    .end = port_upstream_end,
    .pause = port_upstream_pause,
    .resume = port_upstream_resume,
    .close = port_upstream_close,
};

/* ---- from the sandbox ---- */

static void port_on_writable(void *ctx)
{
    struct port_relay *r = ctx;
    port_flush(r);
    if (r->stalled && buf_len(&r->queue) < HTTP_PROXY_HIGH / 4) {
        r->stalled = false;
        http_proxy_writable(r->proxy);
    }
}

static void port_on_open(void *ctx)
{
    struct port_relay *r = ctx;
    r->open = true;
    port_on_writable(r);
}

static void port_on_data(void *ctx, struct str bytes)
{
    struct port_relay *r = ctx;
    if (r->paused)
        r->unacked += bytes.n;
    else
        file_read_ack(r->dial, bytes.n);
    http_proxy_feed(r->proxy, bytes); /* may end the relay */
}

static void port_on_eof(void *ctx)
{
    struct port_relay *r = ctx;
    r->eof_seen = true;
    http_proxy_eof(r->proxy);
}

static void port_on_end(void *ctx, const struct err *err)
{
    struct port_relay *r = ctx;
    r->dial = NULL;
    if (err && !r->open && err->code == ERR_UNAVAILABLE && r->tries < TRIES_MAX &&
        sandbox_info(r->sandbox)->state == SANDBOX_RUNNING) {
        timer_set(&r->facade->timers, &r->retry, r->tries * PAUSE_MS);
        return;
    }
    r->ended = true;
    if (err)
        http_proxy_failed(r->proxy, r->open ? -ECONNRESET : -ECONNREFUSED);
    else if (!r->eof_seen)
        http_proxy_eof(r->proxy);
}

static const struct dial_ops port_dial_ops = {port_on_open, port_on_data, port_on_writable, port_on_eof, port_on_end};

static void port_try_to_dial(struct port_relay *r)
{
    struct err err;
    r->tries++;
    if (dial_open(r->sandbox, r->way->actor, r->port, &port_dial_ops, r, &r->dial, &err) < 0) {
        r->dial = NULL;
        r->ended = true;
        http_proxy_failed(r->proxy, err.code == ERR_RESOURCE_EXHAUSTED  ? -EMFILE
                                    : err.code == ERR_PERMISSION_DENIED ? -EACCES
                                                                        : -ECONNREFUSED);
    }
}

static void port_on_retry(struct timer *t)
{
    port_try_to_dial(container_of(t, struct port_relay, retry));
}

/* ---- the request ---- */

static void port_on_bad_gateway(struct http_request *req, int error, void *ctx)
{
    struct port_relay *r = ctx;
    const struct sandbox_info *info = sandbox_info(r->sandbox);
    r->way->refuse(req, info, r->port,
                   info->state != SANDBOX_RUNNING ? PORT_ASLEEP
                   : error == -ECONNREFUSED       ? PORT_CLOSED
                   : error == -EMFILE             ? PORT_BUSY
                   : error == -EACCES             ? PORT_DENIED
                                                  : PORT_BAD_ANSWER);
}

static void port_on_done(struct http_request *req UNUSED, void *ctx)
{
    port_relay_unref(ctx);
}

struct port_token_search {
    struct str given;
    bool found;
};

static bool port_token_is_ours(void *ctx, struct sandbox *sb)
{
    struct port_token_search *s = ctx;
    const char *token = sandbox_info(sb)->access_token;
    s->found = s->found || (token && str_eq_secret(s->given, str_of(token)));
    return !s->found;
}

static bool port_is_key(struct core *core, struct str text)
{
    struct principal who;
    return key_authenticate(core, str_trim(text), &who);
}

/*
 * Is one of the words of a header's value what opens us: the API's key, or a sandbox's access token? Tokens of programs
 * are left to them. Each look-up walks through all sandboxes, and anybody may ask: once *left are used up, whatever
 * looks like a token counts as one. A key that the operator chose may be of any signs, and is known where a key
 * stands: alone, behind a scheme, behind a name.
 */
static bool port_opens_us(struct core *core, struct str value, unsigned *left)
{
    const ssize_t space = str_find_char(value, ' '), colon = str_find_char(value, ':');
    if (port_is_key(core, value) || (space >= 0 && port_is_key(core, str_sub(value, (size_t)space + 1))) ||
        (colon >= 0 && port_is_key(core, str_sub(value, (size_t)colon + 1))))
        return true;
    while (value.p && value.n) {
        const size_t n = str_span(value, "A-Za-z0-9_-");
        struct port_token_search s = {.given = str_n(value.p, n)};
        s.found = n == SANDBOX_TOKEN_LEN && !*left;
        if (n == SANDBOX_TOKEN_LEN && !s.found) {
            --*left;
            sandbox_each(core, port_token_is_ours, &s);
        }
        if (s.found || port_is_key(core, s.given))
            return true;
        value = str_sub(value, MIN(n + 1, value.n));
    }
    return false;
}

/* The API of SandboxFusion takes the key as a password: "Basic base64(name:KEY)". */
static bool port_basic_opens_us(struct core *core, struct str value, unsigned *left)
{
    AUTO_BUF struct buf plain = BUF_INIT(64 * 1024);
    return value.n >= 6 && str_eq_nocase(str_n(value.p, 6), STR("basic ")) &&
           buf_append_unbase64(&plain, str_trim(str_sub(value, 6))) == 0 && port_opens_us(core, buf_str(&plain), left);
}

/* What is in there must not get what opens us, in whichever header a client sends it along. */
static const char *const *port_headers_to_drop(struct core *core, const struct port_way *way, struct http_request *req)
{
    size_t n = 0, count = http_header_count(req);
    unsigned left = LOOK_UPS_MAX;
    const char **names = arena_alloc(http_arena(req), (count + PORT_DROPS_MAX + 1) * sizeof(*names));
    while (n < PORT_DROPS_MAX && way->drop[n]) {
        names[n] = way->drop[n];
        n++;
    }
    for (size_t i = 0; i < count; i++) {
        struct http_header h = http_header_at(req, i);
        if (port_opens_us(core, h.value, &left) || port_basic_opens_us(core, h.value, &left))
            names[n++] = arena_strndup(http_arena(req), h.name.p, h.name.n);
    }
    names[n] = NULL;
    return names;
}

void port_relay(struct facade *f, const struct port_way *way, struct http_request *req, struct sandbox *sb,
                uint16_t port, struct str target, struct str host)
{
    struct http_proxy_options options = {.target = target,
                                         .host = host,
                                         .drop = port_headers_to_drop(f->core, way, req),
                                         .hide = way->hide,
                                         .on_bad_gateway = port_on_bad_gateway,
                                         .on_done = port_on_done};
    static const uint64_t one[QUOTA_CHARGED] = {[QUOTA_CONNECTIONS] = 1};
    struct charge charge = {0};
    struct port_relay *r;
    struct err err;
    if (charge_take(&charge, f->core, sandbox_info(sb)->tenant, one, &err) < 0 || !sandbox_relay_join(sb)) {
        charge_release(&charge);
        way->refuse(req, sandbox_info(sb), port, PORT_BUSY);
        return;
    }
    r = mem_new(struct port_relay);
    r->facade = f;
    r->way = way;
    r->sandbox = sandbox_ref(sb);
    r->charge = charge;
    r->port = port;
    r->refs = 2;
    buf_init(&r->queue, QUEUE_MAX);
    timer_init(&r->retry, port_on_retry);
    options.ctx = r;
    if (http_proxy_start(req, &port_upstream_ops, r, &options, &r->proxy) < 0) {
        r->refs = 1;
        port_relay_unref(r);
        http_respond_error(req, 400, "the request can't be forwarded");
        return;
    }
    http_count_queue(req, charge_queue, &r->charge);
    port_try_to_dial(r);
}
