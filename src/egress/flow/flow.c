/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/flow/flow.h"
#include "base/fd.h"
#include "base/mem.h"
#include "egress/flow/relay.h"
#include "egress/flow/side_tcp.h"
#include "egress/tls/side_tls.h"
#include "http/message.h"
#include "kernel/netns.h"

#include <sys/socket.h>

enum { METHOD_LEAST = 3, SNIFF_READ = 8192 };

static const char *flow_proto_name(const struct flow *f)
{
    static const char *const names[] = {[FLOW_TCP] = "tcp", [FLOW_TLS] = "tls", [FLOW_HTTP] = "http"};
    return names[f->proto];
}

/* 0: none */
static void flow_timer(struct flow *f, unsigned ms, uv_timer_cb fn)
{
    if (ms)
        (void)uv_timer_start(&f->timer, fn, ms, 0);
    else
        (void)uv_timer_stop(&f->timer);
}

/* ---- what is told ---- */

static json_t *event_of(const struct flow *f, const char *what)
{
    char address[NETADDR_TEXT_MAX];
    netaddr_print(&f->to, address);
    return json_pack("{s:s,s:s,s:I,s:I,s:s,s:s,s:s,s:i,s:i,s:b,s:o*}", "op", "flow", "id", f->net->id, "flow",
                     (json_int_t)f->id, "at", (json_int_t)clock_real(), "what", what, "proto", flow_proto_name(f),
                     "address", address, "port", (int)f->port, "rule", f->rule, "intercepted", (int)f->intercepted,
                     "name", f->name[0] ? json_string(f->name) : NULL);
}

void flow_tell_open(struct flow *f)
{
    if (f->told)
        return;
    f->told = true;
    link_tell_soon(f->net->egress->link, event_of(f, "open"));
}

static void tell_closed(struct flow *f, const char *error)
{
    json_t *event = event_of(f, "close");
    (void)json_object_set_new(event, "sent", json_integer((json_int_t)f->sent));
    (void)json_object_set_new(event, "received", json_integer((json_int_t)f->received));
    (void)json_object_set_new(event, "us", json_integer((json_int_t)(clock_mono() - f->opened)));
    if (error) {
        (void)json_object_set_new(event, "error", json_string(error));
        link_tell(f->net->egress->link, event);
    } else {
        link_tell_soon(f->net->egress->link, event);
    }
}

/* ---- the end ---- */

static void flow_on_closed(uv_handle_t *handle)
{
    struct flow *f = container_of((uv_timer_t *)handle, struct flow, timer);
    struct egress *e = f->net->egress;
    net_unref(f->net);
    mem_free(f);
    egress_handle_gone(e);
}

static void flow_count(struct flow *f)
{
    if (f->relay)
        relay_counts(f->relay, &f->sent, &f->received);
    else if (f->exchange)
        exchange_counts(f->exchange, &f->sent, &f->received);
}

void flow_end(struct flow *f, const char *error)
{
    if (f->state == FLOW_ENDED)
        return;
    if (f->upstream)
        flow_tell_open(f);
    f->state = FLOW_ENDED;
    flow_count(f);
    flow_cancel_lookup(f);
    if (f->relay)
        relay_close(TAKE_PTR(f->relay));
    if (f->exchange)
        exchange_close(TAKE_PTR(f->exchange));
    if (f->client && error)
        side_reset(TAKE_PTR(f->client));
    else if (f->client)
        side_close(TAKE_PTR(f->client));
    if (f->upstream)
        side_reset(TAKE_PTR(f->upstream));
    if (f->told)
        tell_closed(f, error);
    flow_requests_fini(f);
    flow_forget_first(f);
    list_remove(&f->node);
    list_remove(&f->turn);
    f->net->n_flows--;
    f->net->egress->n_flows--;
    f->net->n_intercepted -= f->intercepted_counted;
    f->net->egress->n_intercepted -= f->intercepted_counted;
    (void)uv_timer_stop(&f->timer);
    uv_close((uv_handle_t *)&f->timer, flow_on_closed);
}

void flow_refuse(struct flow *f, const struct policy_answer *why)
{
    report_denied(
        f->net,
        &(struct report_target){
            .proto = flow_proto_name(f), .name = f->name[0] ? f->name : NULL, .addr = &f->to, .port = f->port},
        why);
    if (f->proto == FLOW_TLS && f->client && f->state < FLOW_TLS_SANDBOX) {
        side_tls_alert(f->client, TLS_ALERT_ACCESS_DENIED);
        side_linger(TAKE_PTR(f->client));
    }
    flow_end(f, "refused");
}

void flow_refusef(struct flow *f, const char *fmt, ...)
{
    struct policy_answer why = {.verdict = POLICY_DENY, .rule = POLICY_RULE_BUILTIN};
    FORMAT_ARGS(why.reason, fmt);
    flow_refuse(f, &why);
}

void flows_cut_all(struct net *n, const char *why)
{
    struct flow *f;
    while ((f = LIST_FIRST(struct flow, &n->flows, node)))
        flow_end(f, why);
}

void flows_judge_again(struct net *n)
{
    LIST_FOREACH (struct flow, f, &n->flows, node) {
        if (f->state != FLOW_ENDED && !flow_still_allowed(f))
            flow_end(f, "the policy was changed");
    }
}

/* ---- the client's first bytes ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Servers skip these in front of a request line. */
static size_t leading_blanks(struct str s)
{
    size_t n = 0;
    while (s.p && n < s.n && (is_blank(s.p[n]) || s.p[n] == '\r' || s.p[n] == '\n'))
        n++;
    return n;
}

/* What a request is for: a path, "*", or a URL. 1 yes, 0 no, -1 not to be said yet. */
static int looks_like_target(struct str s)
{
    static const struct str behind = {"://", 3};
    if (!s.n || s.p[0] == '/' || s.p[0] == '*')
        return s.n ? 1 : -1;
    const size_t n = str_set_has("A-Za-z0-9", s.p[0]) ? str_span(s, "A-Za-z0-9+.-") : 0;
    s = str_sub(s, n);
    size_t there = MIN(s.n, behind.n);
    return n == 0 || !str_eq(str_n(s.p, there), str_n(behind.p, there)) ? 0 : there == behind.n ? 1 : -1;
}

/* A line of text that ends with a version of HTTP. 1 yes, 0 no, -1 not to be said yet. */
static int looks_like_request_line(struct str s)
{
    static const struct str version = {"HTTP/", 5};
    size_t word = 0, n = 0;
    for (; n < s.n && s.p[n] != '\n'; n++) {
        if (is_blank(s.p[n]) && n + 1 < s.n && !is_blank(s.p[n + 1]) && s.p[n + 1] != '\r' && s.p[n + 1] != '\n')
            word = n + 1;
        if ((unsigned char)s.p[n] < ' ' && s.p[n] != '\t' && s.p[n] != '\r')
            return 0;
    }
    if (n == s.n)
        return s.n < SNIFF_READ ? -1 : 1;
    return n - word >= version.n && str_eq_nocase(str_n(s.p + word, version.n), version);
}

/*
 * "GET /": a method, as far as it is there. 1 yes, 0 no, -1 not to be said yet. A method is any token (RFC 9110 section
 * 9.1), and some servers take one that they have never heard of, or other blanks than one, for a request like others.
 * Other protocols have lines like that, too ("get /key", "NICK me"), and only the line's end tells.
 */
static int looks_like_http(struct str s)
{
    size_t n = 0;
    bool is_usual = true;
    if (!s.n)
        return -1;
    s = str_sub(s, leading_blanks(s));
    for (; n < s.n && http_is_token(str_n(s.p + n, 1)); n++)
        is_usual &= str_set_has("A-Z-", s.p[n]);
    if (n == s.n)
        return n < SNIFF_READ ? -1 : 1;
    if (n == 0 || !is_blank(s.p[n]))
        return 0;
    is_usual &= n >= METHOD_LEAST && s.p[n] == ' ';
    bool is_connect = is_usual && str_eqc(str_n(s.p, n), "CONNECT");
    for (s = str_sub(s, n); s.n && is_blank(s.p[0]);)
        s = str_sub(s, 1);
    int target = looks_like_target(s);
    if (is_usual && s.n && (is_connect || s.p[0] == '/' || s.p[0] == '*'))
        return 1;
    if (target > 0 || (is_usual && target == 0))
        return looks_like_request_line(s);
    return target;
}

static void on_silence(uv_timer_t *timer)
{
    struct flow *f = container_of(timer, struct flow, timer);
    if (buf_len(&f->first)) {
        flow_refusef(f, "it began like TLS or HTTP, and then sent nothing more");
    } else if (!f->patient && flow_lacks_a_name(f)) { /* perhaps it is only slow; with a name it would be allowed */
        f->patient = true;
        flow_timer(f, FLOW_HELLO_MS, on_silence);
    } else {
        f->silent = true;
        flow_judge_address(f);
    }
}

static void on_still(uv_timer_t *timer)
{
    struct flow *f = container_of(timer, struct flow, timer);
    flow_end(f, "nothing was sent for too long");
}

/* It was dialled by its address, because the client said nothing; now it says for whom it is. */
static void undial(struct flow *f)
{
    f->state = FLOW_SNIFF;
    f->silent = false;
    if (f->upstream)
        side_reset(TAKE_PTR(f->upstream));
}

void flow_forget_first(struct flow *f)
{
    buf_fini(&f->first);
    f->net->share.held -= f->first_kept;
    f->first_kept = 0;
}

static void keep_first(struct flow *f, size_t n)
{
    buf_commit(&f->first, n);
    f->first_kept += n;
    f->net->share.held += n;
}

/* True: decided, or ended. */
static bool classify(struct flow *f)
{
    switch (hello_feed(&f->hello, buf_str(&f->first))) {
    case HELLO_NEED_MORE:
        return false;
    case HELLO_COMPLETE:
        f->proto = FLOW_TLS;
        flow_timer(f, 0, NULL);
        undial(f);
        flow_judge_name(f, hello_name(&f->hello));
        return true;
    case HELLO_BAD:
        f->proto = FLOW_TLS;
        undial(f);
        flow_refusef(f, "a ClientHello that is not passed on: %s", f->hello.reason);
        return true;
    case HELLO_NOT_TLS:
        break;
    }
    int http = looks_like_http(buf_str(&f->first));
    if (http < 0)
        return false;
    flow_timer(f, 0, NULL);
    if (http) {
        f->proto = FLOW_HTTP;
        buf_consume(&f->first, leading_blanks(buf_str(&f->first)));
        flow_http(f);
    } else if (f->state == FLOW_WATCH) {
        flow_relay(f);
    } else {
        flow_judge_address(f);
    }
    return true;
}

static void on_first(void *ctx)
{
    struct flow *f = ctx;
    for (;;) {
        char *room = buf_reserve(&f->first, SNIFF_READ);
        ssize_t n = room ? side_read(f->client, room, SNIFF_READ) : -ENOBUFS;
        if (n == -EAGAIN)
            return;
        if (n < 0) {
            flow_end(f, n == -ENOBUFS ? "its first bytes are too many for TLS or HTTP" : "the client went away");
            return;
        }
        if (n == 0) {
            /* It said all that it has to say: whatever that is, it is neither TLS nor a request that could be
             * judged. */
            flow_timer(f, 0, NULL);
            if (f->state == FLOW_WATCH)
                flow_relay(f);
            else
                flow_judge_address(f);
            return;
        }
        if (buf_len(&f->first) == 0)
            flow_timer(f, FLOW_HELLO_MS, on_silence);
        keep_first(f, (size_t)n);
        if (classify(f))
            return;
        if (flow_is_full(f) && f->first_kept > FLOW_FIRST_LEAST) {
            flow_refusef(f, "the first bytes of this sandbox's connections take too much memory");
            return;
        }
    }
}

static void on_client_failed(void *ctx, const struct err *err UNUSED)
{
    flow_end(ctx, "the client went away");
}

void flow_wait(struct flow *f)
{
    static const struct side_ops ops = {.on_failed = on_client_failed};
    side_set(f->client, &ops, f);
}

static void on_server(void *ctx)
{
    struct flow *f = ctx;
    flow_timer(f, 0, NULL);
    flow_relay(f); /* what the client has begun to say is no request to this server, or it would wait for it */
}

static void on_server_failed(void *ctx, const struct err *err)
{
    flow_end(ctx, err->msg);
}

void flow_watch(struct flow *f)
{
    static const struct side_ops client = {.on_readable = on_first, .on_failed = on_client_failed},
                                 server = {.on_readable = on_server, .on_failed = on_server_failed};
    f->state = FLOW_WATCH;
    flow_tell_open(f);
    flow_timer(f, f->net->egress->config.still_ms, on_still);
    side_set(f->client, &client, f);
    side_set(f->upstream, &server, f);
}

/* Where the server speaks first, waiting for the client only costs time. */
static bool server_speaks(uint16_t port)
{
    static const uint16_t ports[] = {21, 22, 23, 25, 110, 143, 587, 3306};
    for (size_t i = 0; i < ARRAY_SIZE(ports); i++)
        if (ports[i] == port)
            return true;
    return false;
}

static void reset(int fd)
{
    const struct linger now = {1, 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    (void)fd_close(fd);
}

/* The kernel's buffers grow with a connection's rate, to several MiB each way: right for a few, and not for thousands
 * of which an end stands still. */
static int buffer_bytes(const struct net *n)
{
    return n->n_flows <= FLOW_FAST_MAX ? 0 : n->n_flows <= FLOW_MEDIUM_MAX ? FLOW_MEDIUM_BYTES : FLOW_SLOW_BYTES;
}

struct flow *flow_new(struct net *n, int fd, const struct netaddr *to, uint16_t port)
{
    struct flow *f = mem_new(struct flow);
    f->net = net_ref(n);
    f->id = ++n->last_flow;
    f->to = *to;
    f->port = port;
    f->rule = POLICY_RULE_DEFAULT;
    f->opened = clock_mono();
    buf_init(&f->first, HELLO_BYTES_MAX + SNIFF_READ);
    hello_init(&f->hello);
    list_init(&f->requests);
    list_init(&f->answered);
    list_init(&f->node);
    list_init(&f->turn);
    list_append(&n->flows, &f->node);
    n->n_flows++;
    n->egress->n_flows++;
    (void)uv_timer_init(n->egress->loop, &f->timer);
    n->egress->handles++;
    f->client = side_tcp_accept(n->egress->loop, fd);
    f->buffer_bytes = buffer_bytes(n);
    if (f->buffer_bytes)
        side_tcp_bound(f->client, f->buffer_bytes);
    return f;
}

void flow_begin(struct flow *f)
{
    static const struct side_ops ops = {.on_readable = on_first, .on_failed = on_client_failed};
    if (!f->net->policy) {
        flow_refusef(f, "no policy is set");
    } else if (!f->port) { /* to a policy 0 means that the port is not known yet */
        flow_refusef(f, "there is no port 0");
    } else if (server_speaks(f->port)) {
        f->silent = true;
        flow_judge_address(f);
    } else {
        side_set(f->client, &ops, f);
        flow_timer(f, FLOW_SNIFF_MS, on_silence);
        on_first(f);
    }
}

void flow_accept(struct net *n, int fd)
{
    struct sockaddr_storage to;
    struct netaddr addr;
    uint16_t port;
    int r = netns_original(fd, &to);
    if (r < 0 || !netaddr_from_sockaddr((const struct sockaddr *)&to, &addr, &port) || n->gone) {
        reset(fd); /* it was not redirected here but came to our port itself, or the sandbox is gone */
        return;
    }
    if (n->n_flows >= net_flows_max(n)) {
        struct policy_answer why = {.verdict = POLICY_DENY, .rule = POLICY_RULE_BUILTIN};
        (void)snprintf(why.reason, sizeof(why.reason), "%u connections are open, which is the limit%s", n->n_flows,
                       n->n_flows < NET_FLOWS_MAX ? " while all sandboxes have as many" : "");
        report_denied(n, &(struct report_target){.proto = "tcp"}, &why);
        reset(fd);
        return;
    }
    flow_begin(flow_new(n, fd, &addr, port));
}
