/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/requests.h"
#include "base/mem.h"
#include "egress/dns/resolver.h"
#include "egress/tls/ca.h"
#include "egress/vault/vault.h"

enum { CA_PURPOSE_MAX = 64 };

/* ---- answers ---- */

json_t *requests_answer(const json_t *request, const char *op)
{
    json_t *tag = json_object_get(request, "tag");
    json_t *answer = json_pack("{s:s}", "op", op);
    if (tag)
        (void)json_object_set(answer, "tag", tag);
    return answer;
}

void requests_fail(struct egress *e, const json_t *request, const struct err *err)
{
    json_t *answer = requests_answer(request, "failed");
    (void)json_object_set_new(answer, "code", json_string(err_code_name(err->code)));
    (void)json_object_set_new(answer, "message", json_string(err->msg));
    link_answer(e->link, answer);
}

static void put_buf(json_t *object, const char *key, const struct buf *b)
{
    (void)json_object_set_new(object, key, json_stringn(buf_len(b) ? buf_data(b) : "", buf_len(b)));
}

static struct str text(const json_t *request, const char *key)
{
    const json_t *v = json_object_get(request, key);
    return json_is_string(v) ? json_str(v) : STR_NULL;
}

static const char *id_of(const json_t *request)
{
    return json_string_value(json_object_get(request, "id"));
}

/* ---- policies ---- */

static void ca_purpose(const char *id, char ret_purpose[static CA_PURPOSE_MAX])
{
    (void)snprintf(ret_purpose, CA_PURPOSE_MAX, "ca:%s", id);
}

/* The one that it had, when that can still be used; else a new one. */
static int make_ca(struct net *n, struct str sealed, struct err *err)
{
    struct vault *vault = n->egress->config.vault;
    AUTO_BUF struct buf b = BUF_INIT(CA_EXPORT_MAX);
    char purpose[CA_PURPOSE_MAX];
    struct err ignored;
    int r = -1;
    if (n->ca)
        return 0;
    ca_purpose(n->id, purpose);
    if (sealed.n && vault_unseal(vault, str_of(purpose), sealed, &b) == 0)
        r = ca_import(buf_str(&b), &n->ca, &ignored);
    if (b.data)
        mem_wipe(b.data, b.cap);
    return r == 0 ? 0 : ca_new(n->id, &n->ca, err);
}

static int tell_ca(struct net *n, json_t *answer, struct err *err)
{
    struct vault *vault = n->egress->config.vault;
    AUTO_BUF struct buf bytes = BUF_INIT(CA_EXPORT_MAX), sealed = BUF_INIT(SEALED_MAX), pem = BUF_INIT(CA_PEM_MAX);
    char purpose[CA_PURPOSE_MAX];
    ca_purpose(n->id, purpose);
    int r = ca_export(n->ca, &bytes, err);
    if (r == 0 && vault_seal(vault, str_of(purpose), buf_str(&bytes), &sealed) < 0)
        r = err_set(err, ERR_INTERNAL, "seal the sandbox's CA");
    if (bytes.data)
        mem_wipe(bytes.data, bytes.cap);
    if (r == 0)
        r = ca_pem(n->ca, &pem, err);
    put_buf(answer, "ca", &sealed);
    put_buf(answer, "ca_pem", &pem);
    return r;
}

static int on_policy(struct egress *e, json_t *request, struct err *err)
{
    AUTO(policy_unref) struct policy *p = NULL;
    AUTO_JSON json_t *answer = requests_answer(request, "done");
    const struct str sealed_for = text(request, "sealed_for");
    if (policy_parse(json_object_get(request, "policy"), &p, err) < 0)
        return -1;
    if (sealed_for.p && !id_is_sandbox(sealed_for))
        return err_set(err, ERR_INVALID_ARGUMENT, "sealed_for is not a sandbox's id");
    struct net *n = net_get(e, id_of(request), true);
    if (!n)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "there are too many networks");
    if (policy_intercepts_anything(p) && (make_ca(n, text(request, "ca"), err) < 0 || tell_ca(n, answer, err) < 0))
        return -1;
    (void)snprintf(n->sealed_for, sizeof(n->sealed_for), "%s", sealed_for.p ? sealed_for.p : n->id);
    net_set_policy(n, TAKE_PTR(p));
    link_answer(e->link, TAKE_PTR(answer));
    return 0;
}

static int on_forget(struct egress *e, json_t *request, struct err *err UNUSED)
{
    struct net *n = net_get(e, id_of(request), false);
    if (n && n->tcp_fd < 0)
        net_drop(n); /* was never more than a policy */
    else if (n)
        net_set_policy(n, NULL);
    return 0;
}

/* ---- check: what would become of a request ---- */

struct requests_check {
    struct list node;
    struct egress *egress;
    struct policy *policy; /* reference: the net's may be another one by the time, or none */
    json_t *request;
    struct resolver_lookup *lookup;
    struct requests_url url; /* in request */
    bool fell_back;
};

static void check_free(struct requests_check *c)
{
    resolver_cancel(c->lookup);
    list_remove(&c->node);
    json_decref(c->request);
    policy_unref(c->policy);
    mem_free(c);
}

void requests_stop(struct egress *e)
{
    struct requests_check *c;
    while ((c = LIST_FIRST(struct requests_check, &e->checks, node)))
        check_free(c);
    post_stop(e);
}

static const char *const verdicts[] = {
    [POLICY_DENY] = "deny", [POLICY_ALLOW] = "allow", [POLICY_NEEDS_REQUEST] = "needs-request"};

static void requests_judge(struct requests_check *c, const struct netaddr *a, struct policy_answer *ret_answer)
{
    struct str method = text(c->request, "method");
    struct policy_query q = {
        .name = c->url.name[0] ? c->url.name : NULL,
        .addr = *a,
        .is_host = a->family && egress_is_own(c->egress, a),
        .port = c->url.port,
        .method = method.n ? method.p : "GET",
        .path = c->url.path,
    };
    policy_judge(c->policy, &q, ret_answer);
}

/* Allowed when one of the addresses is: that is the one which would be dialled. */
static void check_answer(struct requests_check *c, const struct netaddr *addrs, size_t n_addrs)
{
    struct policy_answer best = {
        .verdict = POLICY_DENY, .rule = POLICY_RULE_BUILTIN, .reason = "the name has no address"};
    json_t *answer = requests_answer(c->request, "checked"), *list = json_array();
    for (size_t i = 0; i < n_addrs; i++) {
        struct policy_answer one;
        char address[NETADDR_TEXT_MAX];
        requests_judge(c, &addrs[i], &one);
        if (i == 0 || (best.verdict == POLICY_DENY && one.verdict != POLICY_DENY))
            best = one;
        if (!addrs[i].family)
            continue; /* the name alone was judged */
        netaddr_print(&addrs[i], address);
        (void)json_array_append_new(list, json_pack("{s:s,s:s,s:s}", "address", address, "verdict",
                                                    verdicts[one.verdict], "reason", one.reason));
    }
    bool intercepted = c->url.secure && c->url.name[0] && policy_intercepts(c->policy, c->url.name, c->url.port);
    (void)json_object_update_new(answer, json_pack("{s:s,s:i,s:s,s:b,s:o,s:o*}", "verdict", verdicts[best.verdict],
                                                   "rule", best.rule, "reason", best.reason, "intercepted", intercepted,
                                                   "addresses", list, "suggestion",
                                                   best.suggestion[0] ? json_string(best.suggestion) : NULL));
    link_answer(c->egress->link, answer);
    check_free(c);
}

static void requests_on_resolved(void *ctx, const struct resolver_answer *answer)
{
    struct requests_check *c = ctx;
    c->lookup = NULL;
    if (!answer->n_addrs && !c->fell_back) {
        c->fell_back = true;
        c->lookup = resolver_resolve(c->egress->resolver, c->url.name, 6, requests_on_resolved, c);
        return;
    }
    check_answer(c, answer->addrs, answer->n_addrs);
}

/* scheme://host[:port][/path][?query][#fragment]; https and 443 when it says neither. What is sent of it to a server
 * has no fragment. */
int requests_parse_url(struct requests_url *u, struct str url, struct netaddr *ret_literal, struct err *err)
{
    struct str host, authority = STR_NULL;
    url = str_before(url, '#');
    u->secure = !str_starts(url, STR("http://"));
    if (str_starts(url, STR("http://")) || str_starts(url, STR("https://")))
        url = str_sub(url, u->secure ? 8 : 7);
    authority.p = url.p;
    while (authority.n < url.n && url.p[authority.n] != '/' && url.p[authority.n] != '?')
        authority.n++;
    bool has_path = authority.n < url.n && url.p[authority.n] == '/';
    u->path = has_path ? str_sub(url, authority.n) : STR("/"); /* no rule is about the query */
    *ret_literal = (struct netaddr){0};
    if (str_ends(authority, STR(":")))
        return err_set(err, ERR_INVALID_ARGUMENT, "only http:// and https:// can be checked");
    if (str_split_host(authority, &host, &u->port) < 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "the URL names no host");
    if (!u->port)
        u->port = u->secure ? 443 : 80;
    if (!netaddr_parse(host, ret_literal) && !hostname_normalise(host, u->name))
        return err_set(err, ERR_INVALID_ARGUMENT, "'%.*s' is neither a host's name nor an address",
                       STR_ARG_MAX(host, 80));
    return 0;
}

static int on_check(struct egress *e, json_t *request, struct err *err)
{
    struct netaddr address;
    struct policy_answer by_name = {.verdict = POLICY_ALLOW};
    struct net *n = net_get(e, id_of(request), false);
    if (!n || !n->policy)
        return err_set(err, ERR_NOT_FOUND, "sandbox %s has no policy", id_of(request));
    struct requests_check *c = mem_new(struct requests_check);
    list_init(&c->node);
    list_append(&e->checks, &c->node);
    c->egress = e;
    c->policy = policy_ref(n->policy);
    c->request = json_incref(request);
    if (requests_parse_url(&c->url, text(request, "url"), &address, err) < 0) {
        check_free(c);
        return -1;
    }
    if (!address.family)
        policy_judge_name(c->policy, c->url.name, &by_name);
    /* A name that is denied is not resolved, just as for a connection. */
    if (address.family || by_name.verdict == POLICY_DENY)
        check_answer(c, &address, 1);
    else
        c->lookup = resolver_resolve(e->resolver, c->url.name, 4, requests_on_resolved, c);
    return 0;
}

/* ---- the vault ---- */

static int on_seal(struct egress *e, json_t *request, struct err *err)
{
    struct str value = text(request, "value");
    AUTO_BUF struct buf sealed = BUF_INIT(SEALED_MAX);
    if (!value.n || value.n > SECRET_VALUE_MAX || vault_seal(e->config.vault, text(request, "id"), value, &sealed) < 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "a value to seal must have 1 to %d bytes", SECRET_VALUE_MAX);
    json_t *answer = requests_answer(request, "sealed");
    put_buf(answer, "value", &sealed);
    link_answer(e->link, answer);
    return 0;
}

static bool add_name(void *ctx, const char *name, uint64_t set_at UNUSED)
{
    (void)json_array_append_new(ctx, json_string(name));
    return true;
}

static int on_secrets(struct egress *e, json_t *request, struct err *err UNUSED)
{
    json_t *answer = requests_answer(request, "secrets"), *names = json_array();
    vault_each(e->config.vault, add_name, names);
    (void)json_object_set_new(answer, "names", names);
    link_answer(e->link, answer);
    return 0;
}

bool requests_handle(struct egress *e, json_t *request)
{
    static const struct {
        const char *op;
        bool is_of_sandbox;
        int (*begin)(struct egress *e, json_t *request, struct err *err);
    } known[] = {{"policy", true, on_policy}, {"forget", true, on_forget},    {"check", true, on_check},
                 {"seal", true, on_seal},     {"secrets", false, on_secrets}, {"post", false, post_begin},
                 {"ask", false, ask_begin}};
    struct err err;
    size_t i = 0;
    while (i < ARRAY_SIZE(known) && !str_eqc(text(request, "op"), known[i].op))
        i++;
    if (i == ARRAY_SIZE(known) || (known[i].is_of_sandbox && !id_is_sandbox(text(request, "id"))))
        return false;
    if (known[i].begin(e, request, &err) < 0)
        requests_fail(e, request, &err);
    return true;
}
