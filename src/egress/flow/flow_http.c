/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests, each judged by itself: plain HTTP by its Host, which must be a name that belongs to the address; in
 * intercepted TLS by its path and method, and its authority must be the name that the certificate was for (421 else).
 * Only what goes to the world in TLS gets secrets; a sentinel that goes elsewhere stays what it is, and is told.
 */
#include "base/mem.h"
#include "egress/dns/names.h"
#include "egress/flow/flow.h"
#include "egress/http/override.h"
#include "policy/request_path.h"

#include <sys/socket.h>

/* A policy can't read a longer path (request_path.h), so after a change of it the part that was kept is judged as the
 * whole path was. */
enum { URL_MAX = 2048, PATH_KEPT = REQUEST_PATH_MAX + 1, READINGS_MAX = 8 };

static void request_free(struct flow *f, struct flow_request *r)
{
    f->net->share.held -= r->kept;
    list_remove(&r->node);
    json_decref(r->injected);
    MEM_FREE(r->method, r->path, r);
}

/* A change of policy judges it again. On a connection that is not HTTP/2 the next one begins when this one has
 * ended. */
static void keep_answered(struct flow *f, struct flow_request *r)
{
    list_remove(&r->node);
    list_append(&f->answered, &r->node);
    unsigned most = f->proto == FLOW_HTTP ? 1 : flow_is_full(f) ? FLOW_REQUESTS_LEAST : FLOW_ANSWERED_MAX;
    f->n_answered++;
    struct flow_request *oldest;
    while (f->n_answered > most && (oldest = LIST_FIRST(struct flow_request, &f->answered, node))) {
        f->forgot_secret |= json_array_size(oldest->injected) > 0;
        request_free(f, oldest);
        f->n_answered--;
        f->forgot |= f->proto != FLOW_HTTP;
    }
}

/* Told when its answer came, or when none can come any more (status 0). */
static void request_done(struct flow *f, struct flow_request *r, int status)
{
    char url[URL_MAX + HOSTNAME_MAX + 32];
    char port[8] = "";
    if (f->port != (f->intercepted ? 443 : 80))
        (void)snprintf(port, sizeof(port), ":%u", f->port);
    (void)snprintf(url, sizeof(url), "%s://%s%s%.*s", f->intercepted ? "https" : "http", r->authority, port,
                   (int)URL_MAX, r->path);
    for (char *c = url; *c; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f)
            *c = '?';
    link_tell(f->net->egress->link,
              json_pack("{s:s,s:s,s:I,s:I,s:s,s:s,s:i,s:i,s:O}", "op", "request", "id", f->net->id, "flow",
                        (json_int_t)f->id, "at", (json_int_t)r->at, "method", r->method, "url", url, "status", status,
                        "rule", r->rule, "injected", r->injected));
    f->n_requests--;
    if (status)
        keep_answered(f, r);
    else
        request_free(f, r);
}

void flow_requests_fini(struct flow *f)
{
    LIST_FOREACH (struct flow_request, r, &f->requests, node)
        request_done(f, r, 0);
    LIST_FOREACH (struct flow_request, r, &f->answered, node)
        request_free(f, r);
}

static bool flow_http_refuse(struct exchange_refusal *to, int status, const struct policy_answer *why)
{
    to->status = status;
    (void)snprintf(to->text, sizeof(to->text), "%s%s%s", why->reason, why->suggestion[0] ? "; to allow it: " : "",
                   why->suggestion);
    return false;
}

static bool deny(struct flow *f, const struct exchange_head *h, const char *name, const struct policy_answer *why,
                 int status, struct exchange_refusal *ret_refusal)
{
    report_denied(
        f->net,
        &(struct report_target){
            .proto = "http", .name = name, .addr = &f->to, .port = f->port, .method = h->method, .path = h->path},
        why);
    return flow_http_refuse(ret_refusal, status, why);
}

static bool denyf(struct flow *f, const struct exchange_head *h, const char *name, int status,
                  struct exchange_refusal *ret_refusal, const char *reason)
{
    struct policy_answer why = {.verdict = POLICY_DENY, .rule = POLICY_RULE_BUILTIN};
    (void)snprintf(why.reason, sizeof(why.reason), "%s", reason);
    return deny(f, h, name, &why, status, ret_refusal);
}

/* ---- what a server may take it for ---- */

/* Unless every request would be allowed, and nothing is put into any. */
static bool is_told_apart(struct flow *f, const char *name, bool belongs)
{
    struct policy_answer answer;
    flow_judge_pair(f, name, belongs, STR_NULL, STR_NULL, &answer);
    return f->intercepted || answer.verdict != POLICY_ALLOW ||
           (name && policy_injects(f->net->policy, name, f->port, true));
}

static void drop_origins(struct exchange_head *h)
{
    size_t to = 0;
    for (size_t i = 0; i < h->n_fields; i++)
        if (override_of(h->fields[i].name) != OVERRIDE_ORIGIN)
            h->fields[to++] = h->fields[i];
    h->n_fields = to;
}

/*
 * What the request line says, and what the request becomes where a server obeys fields that override it: frameworks do,
 * for methods that some clients can't send, and IIS's URL rewriting and what came after it, for paths. 0: too many.
 */
static size_t flow_http_read_request(const struct exchange_head *h, struct flow_reading ret_all[static READINGS_MAX])
{
    size_t n = 1;
    ret_all[0] = (struct flow_reading){h->method, h->path};
    for (size_t i = 0; i < h->n_fields; i++) {
        const struct http_header *f = &h->fields[i];
        enum override_kind kind = override_of(f->name);
        if (kind != OVERRIDE_METHOD && kind != OVERRIDE_PATH)
            continue;
        if (2 * n > READINGS_MAX)
            return 0;
        for (size_t k = 0; k < n; k++)
            ret_all[n + k] = kind == OVERRIDE_METHOD ? (struct flow_reading){f->value, ret_all[k].path}
                                                     : (struct flow_reading){ret_all[k].method, f->value};
        n *= 2;
    }
    return n;
}

/* Allowed when all of them are. Some servers take "DELETE, x" for DELETE, so what is no method is not compared with
 * any. */
static void judge_readings(struct flow *f, const char *name, bool belongs, const struct flow_reading *all, size_t n,
                           struct policy_answer *ret_answer)
{
    for (size_t i = 0; i < n; i++) {
        if (!http_is_token(all[i].method)) {
            *ret_answer = (struct policy_answer){.verdict = POLICY_DENY, .rule = POLICY_RULE_BUILTIN};
            (void)snprintf(ret_answer->reason, sizeof(ret_answer->reason),
                           "a header overrides the method, and not with a method");
            return;
        }
        flow_judge_pair(f, name, belongs, all[i].method, all[i].path, ret_answer);
        if (ret_answer->verdict != POLICY_ALLOW)
            return;
    }
}

/* ---- a request ---- */

static void on_upstream_failed(void *ctx, const struct err *err)
{
    struct flow *f = ctx;
    if (f->exchange)
        exchange_upstream(f->exchange, NULL, err->msg);
}

static void on_upstream_ready(void *ctx)
{
    struct flow *f = ctx;
    exchange_upstream(f->exchange, TAKE_PTR(f->upstream), NULL);
}

static void flow_http_dial(struct flow *f)
{
    static const struct side_ops ops = {.on_ready = on_upstream_ready, .on_failed = on_upstream_failed};
    if (f->told || f->intercepted)
        return;
    flow_tell_open(f);
    flow_connect(f, &ops);
}

/* The name that the authority holds, normalised; "" when it is the address itself. False: neither. */
static bool authority_name(const struct flow *f, struct str authority, char ret_name[static HOSTNAME_MAX + 1])
{
    struct str host;
    struct netaddr literal;
    uint16_t port = 0;
    if (str_split_host(authority, &host, &port) < 0 || (port && port != f->port))
        return false;
    ret_name[0] = 0;
    if (netaddr_parse(host, &literal))
        return netaddr_eq(&literal, &f->to);
    return hostname_normalise(host, ret_name);
}

/* path: as the client asked, for there may be a secret in the head's. */
static void remember(struct flow *f, uint64_t id, const struct exchange_head *h, struct str path, const char *name,
                     bool belongs, int rule, json_t *injected)
{
    struct flow_request *r = mem_new(struct flow_request);
    char address[NETADDR_TEXT_MAX];
    netaddr_print(&f->to, address);
    r->id = id;
    r->at = clock_real();
    r->method = mem_strndup(h->method.p, h->method.n);
    r->path = mem_strndup(path.p, MIN(path.n, (size_t)PATH_KEPT));
    r->kept = sizeof(*r) + strlen(r->method) + strlen(r->path);
    f->net->share.held += r->kept;
    r->belongs = belongs;
    r->rule = rule;
    r->injected = injected;
    (void)snprintf(r->authority, sizeof(r->authority), !name && f->to.family == 6 ? "[%s]" : "%s",
                   name ? name : address);
    list_init(&r->node);
    list_append(&f->requests, &r->node);
    f->n_requests++;
}

/*
 * What goes into the request, where the address is the name's. A path that a secret changed is judged as if it had been
 * asked for, and nothing is said of it. False: refused, or its body is wanted first.
 */
static bool flow_http_inject(struct flow *f, struct exchange_head *h, const char *name, bool belongs,
                             struct flow_reading readings[static READINGS_MAX], size_t n, json_t *names,
                             struct exchange_refusal *ret_refusal)
{
    const struct str asked = h->path;
    struct flow_injections in = {.n = 0}, again;
    struct policy_answer answer = {.verdict = POLICY_DENY};
    struct err err;
    if (belongs)
        flow_injections(f, name, readings, n, &in);
    if (flow_inject_wants_body(h, &in)) {
        ret_refusal->wants = EXCHANGE_WANTS_BODY;
        return false;
    }
    bool is_good = flow_inject(f, h, &in, names, &err) == 0;
    if (is_good && h->path.p != asked.p) {
        n = flow_http_read_request(h, readings);
        judge_readings(f, name, belongs, readings, n, &answer);
        flow_injections(f, name, readings, n, &again);
        is_good = answer.verdict == POLICY_ALLOW && flow_injections_same(&in, &again);
        (void)err_set(&err, ERR_PERMISSION_DENIED, "a secret in its path makes it a request that is not allowed");
    }
    if (is_good) {
        flow_notice_misuse(f, h, name);
        return true;
    }
    h->path = asked;
    return denyf(f, h, name, 403, ret_refusal, err.msg);
}

/* What goes on is what was judged: of two names that mean the same, like "a." and "a", a server may know one. */
static void flow_http_name(struct exchange_head *h, const char *name)
{
    struct str host;
    uint16_t port = 0;
    if (str_split_host(h->authority, &host, &port) == 0 && !str_eqc(host, name))
        h->authority = str_of(port ? arena_printf(h->arena, "%s:%u", name, port) : arena_printf(h->arena, "%s", name));
}

static bool flow_http_on_request(void *ctx, uint64_t id, struct exchange_head *h, struct exchange_refusal *ret_refusal)
{
    struct flow *f = ctx;
    char room[HOSTNAME_MAX + 1];
    if (!f->net->policy)
        return denyf(f, h, NULL, 403, ret_refusal, "no policy is set");
    if (f->n_requests >= FLOW_REQUESTS_MAX)
        return denyf(f, h, NULL, 503, ret_refusal, "too many requests of this connection are not answered yet");
    if (f->n_requests >= FLOW_REQUESTS_LEAST && flow_is_full(f))
        return denyf(f, h, NULL, 503, ret_refusal, "this sandbox's connections hold too much data that nobody reads");
    if (!authority_name(f, h->authority, room))
        return denyf(f, h, NULL, 421, ret_refusal, "the Host of this request is neither a name nor this address");
    const char *name = room[0] ? room : NULL;
    if (f->intercepted && (!name || strcmp(name, f->name) != 0))
        return denyf(f, h, name, 421, ret_refusal, "this connection was opened to another host");
    bool belongs = f->intercepted || (name && names_has(f->net->names, &f->to, name));
    if (!belongs && name && policy_injects(f->net->policy, name, f->port, true) && flow_look_up(f, name)) {
        ret_refusal->wants = EXCHANGE_WANTS_TIME;
        return false;
    }
    struct policy_answer answer;
    struct flow_reading readings[READINGS_MAX] = {{h->method, h->path}};
    size_t n_readings = 1;
    if (is_told_apart(f, name, belongs)) {
        n_readings = flow_http_read_request(h, readings);
        drop_origins(h);
    }
    if (n_readings == 0)
        return denyf(f, h, name, 400, ret_refusal, "too many headers override the method or the path");
    judge_readings(f, name, belongs, readings, n_readings, &answer);
    if (answer.verdict != POLICY_ALLOW)
        return deny(f, h, name, &answer, 403, ret_refusal);

    json_t *names = json_array();
    const struct str asked = h->path;
    if (!flow_http_inject(f, h, name, belongs, readings, n_readings, names, ret_refusal)) {
        json_decref(names);
        return false;
    }
    if (name && (f->intercepted || json_array_size(names)))
        flow_http_name(h, name);
    if (!f->intercepted && name && !f->name[0])
        (void)snprintf(f->name, sizeof(f->name), "%s", name);
    f->rule = answer.rule;
    remember(f, id, h, asked, name, belongs, answer.rule, names);
    flow_http_dial(f);
    return true;
}

static void flow_http_on_answer(void *ctx, uint64_t id, int status)
{
    struct flow *f = ctx;
    LIST_FOREACH (struct flow_request, r, &f->requests, node) {
        if (r->id == id) {
            request_done(f, r, status);
            return;
        }
    }
}

static void flow_http_on_fields(void *ctx, uint64_t id, struct arena *arena, struct http_header *fields, size_t n)
{
    struct flow *f = ctx;
    struct list *lists[] = {&f->requests, &f->answered};
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
        LIST_FOREACH (struct flow_request, r, lists[i], node) {
            if (r->id == id) {
                flow_mask(f, r, arena, fields, n);
                return;
            }
        }
    if (f->forgot_secret)
        flow_mask_all(fields, n);
}

static void flow_http_on_through(void *ctx, uint64_t id)
{
    struct flow *f = ctx;
    LIST_FOREACH (struct flow_request, r, &f->answered, node) {
        if (r->id == id) {
            list_remove(&r->node);
            list_prepend(&f->answered, &r->node);
            return;
        }
    }
}

static void on_exchange_end(void *ctx, const struct err *err)
{
    flow_end(ctx, err ? err->msg : NULL);
}

static const struct exchange_ops exchange_ops = {.on_request = flow_http_on_request,
                                                 .on_answer = flow_http_on_answer,
                                                 .on_fields = flow_http_on_fields,
                                                 .on_through = flow_http_on_through,
                                                 .on_end = on_exchange_end};

void flow_http(struct flow *f)
{
    f->state = FLOW_OPEN;
    struct side *client = TAKE_PTR(f->client),
                *upstream = TAKE_PTR(f->upstream); /* NULL, unless it was silent at first */
    f->exchange = h1_exchange(f->net->egress->loop, client, upstream, buf_str(&f->first), &exchange_ops, f);
    exchange_set_share(f->exchange, &f->net->share);
    flow_forget_first(f);
}

void flow_http_open(struct flow *f, struct str alpn)
{
    struct side *client = TAKE_PTR(f->client), *upstream = TAKE_PTR(f->upstream);
    bool h2 = str_eqc(alpn, "h2");
    f->exchange = (h2 ? h2_exchange : h1_exchange)(f->net->egress->loop, client, upstream, STR_NULL, &exchange_ops, f);
    exchange_set_share(f->exchange, &f->net->share);
}
