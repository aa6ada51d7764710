/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of the machine itself: what cove-api, which can't connect to anything, has to tell somebody outside.
 *
 *  1. A target is judged by the policy that comes with the request, as a sandbox's connection would be: by name before
 *     it is resolved, then by the address that is dialled. So a name can't lead to this machine or its network, unless
 *     a rule names that address.
 *  2. It has POST_MS, whatever its target does; POSTS_MAX at a time, of which each tenant leaves as many free as it
 *     has; the rest fail at once. One request a connection, and no redirect is followed.
 *  3. Of the answer the status line is read, and nothing else: no byte of it goes further than the three digits.
 */
#include "base/mem.h"
#include "egress/dns/resolver.h"
#include "egress/flow/side_tcp.h"
#include "egress/requests.h"
#include "egress/tls/side_tls.h"
#include "http/message.h"
#include "wire/egress.h"

enum { POST_MS = 10000, POSTS_MAX = 256, POST_HEAD_MAX = 8192, STATUS_LINE_MIN = 12 };

struct post {
    struct list node;
    struct egress *egress;
    json_t *request;
    json_int_t tenant;
    struct policy *policy;
    struct requests_url url; /* in request */
    struct resolver_lookup *lookup;
    struct side *side;
    struct buf out; /* what is still to be sent */
    char line[STATUS_LINE_MIN];
    size_t n_line;
    bool fell_back;
    uv_timer_t *timer; /* freed when it is closed */
};

static const char *post_text(const json_t *request, const char *key)
{
    return json_string_value(json_object_get(request, key));
}

static void post_timer_closed(uv_handle_t *timer)
{
    mem_free(timer);
}

static void post_free(struct post *p)
{
    resolver_cancel(p->lookup);
    side_close(p->side);
    uv_close((uv_handle_t *)p->timer, post_timer_closed);
    list_remove(&p->node);
    p->egress->n_posts--;
    policy_unref(p->policy);
    json_decref(p->request);
    buf_fini(&p->out);
    mem_free(p);
}

void post_stop(struct egress *e)
{
    for (struct post *p; (p = LIST_FIRST(struct post, &e->posts, node));)
        post_free(p);
}

static void post_fail(struct post *p, enum err_code code, const char *why)
{
    struct err err;
    (void)err_set(&err, code, "%s", why);
    requests_fail(p->egress, p->request, &err);
    post_free(p);
}

static void post_on_timer(uv_timer_t *timer)
{
    post_fail(timer->data, ERR_DEADLINE_EXCEEDED, "there was no answer in time");
}

/* ---- the exchange ---- */

static void post_on_writable(void *ctx)
{
    struct post *p = ctx;
    while (buf_len(&p->out)) {
        ssize_t n = side_write(p->side, buf_data(&p->out), buf_len(&p->out));
        if (n <= 0)
            return; /* on_writable, or on_failed, follows */
        buf_consume(&p->out, (size_t)n);
    }
}

static void post_answered(struct post *p)
{
    const char *s = p->line + strlen("HTTP/1.1 ");
    bool ok = memcmp(p->line, "HTTP/1.", 7) == 0 && (p->line[7] == '0' || p->line[7] == '1') && p->line[8] == ' ';
    int status = 0;
    for (size_t i = 0; i < 3; i++) {
        ok = ok && s[i] >= '0' && s[i] <= '9';
        status = status * 10 + (s[i] - '0');
    }
    if (!ok) {
        post_fail(p, ERR_UNAVAILABLE, "what answered does not speak HTTP/1.1");
        return;
    }
    json_t *answer = requests_answer(p->request, "posted");
    (void)json_object_set_new(answer, "status", json_integer(status));
    link_answer(p->egress->link, answer);
    post_free(p);
}

static void post_on_readable(void *ctx)
{
    struct post *p = ctx;
    ssize_t n = side_read(p->side, p->line + p->n_line, sizeof(p->line) - p->n_line);
    if (n == 0) {
        post_fail(p, ERR_UNAVAILABLE, "the connection ended without an answer");
        return;
    }
    p->n_line += n > 0 ? (size_t)n : 0;
    if (p->n_line == sizeof(p->line))
        post_answered(p);
    else if (n > 0)
        post_on_readable(p);
}

static void post_on_failed(void *ctx, const struct err *err)
{
    post_fail(ctx, ERR_UNAVAILABLE, err->msg);
}

static void post_dial(struct post *p, const struct netaddr *a)
{
    static const struct side_ops ops = {post_on_writable, post_on_readable, post_on_writable, post_on_failed};
    struct sockaddr_storage to;
    (void)netaddr_to_sockaddr(a, p->url.port, &to);
    p->side = side_tcp_connect(p->egress->loop, (const struct sockaddr *)&to, POST_MS, p->url.secure ? NULL : &ops, p);
    if (p->url.secure)
        p->side = side_tls_client(p->side, p->egress->world, p->url.name, STR("\x08http/1.1"), POST_MS, &ops, p);
}

/* ---- where to ---- */

static bool post_judge(struct post *p, const struct netaddr *a, struct policy_answer *ret_answer)
{
    const struct policy_query q = {.name = p->url.name[0] ? p->url.name : NULL,
                                   .addr = *a,
                                   .is_host = egress_is_own(p->egress, a),
                                   .port = p->url.port,
                                   .method = "POST",
                                   .path = p->url.path};
    policy_judge(p->policy, &q, ret_answer);
    return ret_answer->verdict == POLICY_ALLOW;
}

static void post_go(struct post *p, const struct netaddr *addrs, size_t n)
{
    struct policy_answer verdict = {.reason = "the name has no address"};
    for (size_t i = 0; i < n; i++) {
        if (post_judge(p, &addrs[i], &verdict)) {
            post_dial(p, &addrs[i]);
            return;
        }
    }
    post_fail(p, n ? ERR_PERMISSION_DENIED : ERR_UNAVAILABLE, verdict.reason);
}

static void post_on_resolved(void *ctx, const struct resolver_answer *answer)
{
    struct post *p = ctx;
    p->lookup = NULL;
    if (answer->n_addrs || p->fell_back) {
        post_go(p, answer->addrs, answer->n_addrs);
        return;
    }
    p->fell_back = true;
    p->lookup = resolver_resolve(p->egress->resolver, p->url.name, 6, post_on_resolved, p);
}

/* ---- what ---- */

static int post_write(struct post *p, struct err *err)
{
    const char *url = post_text(p->request, "url"), *body = post_text(p->request, "body");
    json_t *headers = json_object_get(p->request, "headers");
    struct str host = str_of(strstr(url, "://") + 3);
    host.n = strcspn(host.p, "/?#");
    buf_printf(&p->out, "POST %.*s HTTP/1.1\r\nhost: %.*s\r\nconnection: close\r\ncontent-length: %zu\r\n",
               STR_ARG(p->url.path), STR_ARG(host), strlen(body));
    bool ok = true;
    JSON_FOREACH_MEMBER (name, value, headers) {
        struct str v = json_str(value);
        ok = ok && json_is_string(value) && http_is_token(str_of(name)) && http_is_field_value(v);
        buf_printf(&p->out, "%s: %.*s\r\n", name, STR_ARG(v));
    }
    if (!ok || buf_len(&p->out) > POST_HEAD_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "an invalid header");
    buf_append_cstr(&p->out, "\r\n");
    buf_append_cstr(&p->out, body);
    return buf_error(&p->out) ? err_errno(err, buf_error(&p->out), "a request") : 0;
}

/* The path and the host go into the request as they are. */
static bool post_url_is_clean(const char *url)
{
    bool ok = url && (strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0) && !strchr(url, '@');
    for (const char *c = url; ok && *c; c++)
        ok = *c > ' ' && *c < 0x7f;
    return ok;
}

static int post_parse(struct post *p, struct netaddr *ret_literal, struct err *err)
{
    const char *url = post_text(p->request, "url");
    if (!post_url_is_clean(url) || !post_text(p->request, "body"))
        return err_set(err, ERR_INVALID_ARGUMENT, "this is not the URL of a request");
    if (policy_parse(json_object_get(p->request, "policy"), &p->policy, err) < 0 ||
        requests_parse_url(&p->url, str_of(url), ret_literal, err) < 0)
        return -1;
    if (p->url.secure && !p->url.name[0])
        return err_set(err, ERR_INVALID_ARGUMENT, "https needs the name of a host, not an address");
    return post_write(p, err);
}

static bool post_has_room(struct egress *e, json_int_t tenant)
{
    size_t own = 0;
    LIST_FOREACH (const struct post, p, &e->posts, node)
        own += p->tenant == tenant;
    return own + e->n_posts + 2 <= POSTS_MAX;
}

int post_begin(struct egress *e, json_t *request, struct err *err)
{
    const json_int_t tenant = json_integer_value(json_object_get(request, "tenant"));
    struct netaddr literal;
    struct policy_answer by_name;
    if (!post_has_room(e, tenant))
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "too many requests are under way");
    struct post *p = mem_new(struct post);
    p->egress = e;
    p->request = json_incref(request);
    p->tenant = tenant;
    p->timer = mem_new(uv_timer_t);
    p->timer->data = p;
    buf_init(&p->out, POST_HEAD_MAX + EGRESS_MESSAGE_MAX);
    list_init(&p->node);
    list_append(&e->posts, &p->node);
    e->n_posts++;
    (void)uv_timer_init(e->loop, p->timer);
    (void)uv_timer_start(p->timer, post_on_timer, POST_MS, 0);
    if (post_parse(p, &literal, err) < 0) {
        post_free(p);
        return -1;
    }
    if (literal.family) {
        post_go(p, &literal, 1);
        return 0;
    }
    policy_judge_name(p->policy, p->url.name, &by_name);
    if (by_name.verdict == POLICY_DENY)
        post_fail(p, ERR_PERMISSION_DENIED, by_name.reason);
    else
        p->lookup = resolver_resolve(e->resolver, p->url.name, 4, post_on_resolved, p);
    return 0;
}
