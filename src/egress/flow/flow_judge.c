/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who a connection is for. The address is what the client dialled; the name is what it says (SNI). They belong together
 * when the sandbox learned the address from our resolver as one of the name's, or when our resolver says so now. What
 * it dials is then that address: it was judged, and nobody resolves it again on the way.
 *
 * When they don't belong together (an entry in /etc/hosts, an address from elsewhere), the name proves nothing: then
 * name and address must both be allowed, each by itself. Without any name, the address must be; and when the sandbox
 * knows the address by names, none of them may be denied. Where nobody will see a request, a name is denied when one of
 * its requests is; and where only an outer name is seen, it proves nothing unless a rule says so, or no name could be
 * denied.
 */
#include "base/mem.h"
#include "egress/dns/dns_server.h"
#include "egress/dns/names.h"
#include "egress/dns/resolver.h"
#include "egress/flow/flow.h"

enum { ECH_NAME_SHOWN = 40 };

void flow_query(const struct flow *f, const char *name, struct policy_query *ret_query)
{
    *ret_query = (struct policy_query){
        .name = name,
        .addr = f->to,
        .is_host = egress_is_own(f->net->egress, &f->to),
        .port = f->port,
    };
}

/* ---- by the names that the sandbox knows the address by ---- */

struct known {
    const struct policy *policy;
    struct policy_query q;
    struct policy_answer answer; /* of a name that is denied, else of one that is allowed */
    size_t n;
    bool denied;
};

static bool judge_known(void *ctx, const char *name)
{
    struct known *k = ctx;
    struct policy_answer answer;
    k->q.name = name;
    policy_judge_worst(k->policy, &k->q, &answer);
    k->denied = answer.verdict == POLICY_DENY;
    if (k->n++ == 0 || k->denied)
        k->answer = answer;
    return !k->denied;
}

/* q: without a name. */
static struct known judge_all_known(const struct flow *f, const struct policy_query *q)
{
    struct known k = {.policy = f->net->policy, .q = *q};
    names_each_of(f->net->names, &f->to, judge_known, &k);
    return k;
}

void flow_judge_pair(struct flow *f, const char *name, bool belongs, struct str method, struct str path,
                     struct policy_answer *ret_answer)
{
    struct policy_query q;
    AUTO_FREE char *text = method.p ? mem_strndup(method.p, method.n) : NULL;
    flow_query(f, name, &q);
    q.method = text;
    q.path = path;
    policy_judge(f->net->policy, &q, ret_answer);
    if ((name && belongs) || ret_answer->verdict == POLICY_DENY)
        return;
    struct policy_answer alone;
    q.name = NULL;
    policy_judge(f->net->policy, &q, &alone);
    if (name && alone.verdict != POLICY_ALLOW) {
        *ret_answer = (struct policy_answer){.verdict = POLICY_DENY, .rule = POLICY_RULE_BUILTIN};
        (void)snprintf(ret_answer->reason, sizeof(ret_answer->reason), "the address does not belong to %.100s", name);
        return;
    }
    struct known k = judge_all_known(f, &q);
    if (k.denied)
        *ret_answer = k.answer;
}

/* False: refused. Intercepting TLS takes many times the memory of passing it on. */
static bool may_intercept(struct flow *f)
{
    struct net *n = f->net;
    if (n->n_intercepted >= net_intercepted_max(n)) {
        flow_refusef(f, "%u connections are intercepted, which is the limit for now", n->n_intercepted);
        return false;
    }
    f->intercepted_counted = true;
    n->n_intercepted++;
    n->egress->n_intercepted++;
    return true;
}

/*
 * An encrypted part that is real and one that is noise (GREASE) look alike, so the real one is what is judged: it may
 * name any host behind this address. Where TLS is intercepted, our end ignores it, and takes the outer name.
 */
static bool may_be_encrypted(const struct flow *f, const struct policy_answer *by_name)
{
    struct policy_query q;
    struct policy_answer any;
    if (!f->hello.offers_ech || f->intercepted || by_name->allows_ech)
        return true;
    flow_query(f, NULL, &q);
    policy_judge_any_name(f->net->policy, &q, &any);
    return any.verdict == POLICY_ALLOW;
}

static void refuse_encrypted(struct flow *f)
{
    struct policy_answer why = {.verdict = POLICY_DENY, .rule = POLICY_RULE_BUILTIN};
    (void)snprintf(
        why.reason, sizeof(why.reason),
        "the encrypted part of its ClientHello (ECH) may name another host; \"ech\": \"allow\" in the rule for "
        "%.*s lets it pass",
        ECH_NAME_SHOWN, f->name);
    (void)snprintf(why.suggestion, sizeof(why.suggestion), "{\"allow\":\"%s\",\"ports\":[%u],\"ech\":\"allow\"}",
                   f->name, f->port);
    flow_refuse(f, &why);
}

static void flow_judge_go_on(struct flow *f, const struct policy_answer *answer)
{
    if (answer->verdict == POLICY_DENY) {
        flow_refuse(f, answer);
        return;
    }
    f->rule = answer->rule;
    f->intercepted = f->proto == FLOW_TLS && f->name[0] &&
                     (answer->verdict == POLICY_NEEDS_REQUEST || policy_intercepts(f->net->policy, f->name, f->port));
    if (!may_be_encrypted(f, answer))
        refuse_encrypted(f);
    else if (!f->intercepted || may_intercept(f))
        flow_dial(f);
}

/* ---- by address ---- */

/* Where TLS or HTTP is expected, a rule that allows a name is about these; it does not allow other bytes to the name's
 * address. */
static bool is_web(const struct flow *f)
{
    return f->port == 80 || f->port == 443 || f->proto != FLOW_TCP;
}

static void judge_address(const struct flow *f, struct policy_answer *ret_answer)
{
    struct policy_query q;
    flow_query(f, NULL, &q);
    policy_judge(f->net->policy, &q, ret_answer);
    struct known k = judge_all_known(f, &q);
    if (ret_answer->verdict == POLICY_ALLOW ? k.denied : k.n && !k.denied && !is_web(f))
        *ret_answer = k.answer;
    else if (ret_answer->verdict != POLICY_ALLOW)
        ret_answer->verdict = POLICY_DENY;
}

static bool is_denied_too(void *ctx, const char *name)
{
    struct known *k = ctx;
    k->q.name = name;
    policy_judge(k->policy, &k->q, &k->answer);
    k->denied = k->answer.verdict == POLICY_DENY;
    return k->denied;
}

bool flow_lacks_a_name(const struct flow *f)
{
    struct policy_answer answer;
    struct known k = {.policy = f->net->policy, .denied = true};
    judge_address(f, &answer);
    flow_query(f, NULL, &k.q);
    names_each_of(f->net->names, &f->to, is_denied_too, &k);
    return answer.verdict != POLICY_ALLOW && !k.denied;
}

void flow_judge_address(struct flow *f)
{
    struct policy_answer answer;
    judge_address(f, &answer);
    flow_judge_go_on(f, &answer);
}

/* ---- by name ---- */

static void judge_resolved(struct flow *f, bool belongs)
{
    struct policy_answer answer;
    f->belongs = belongs;
    flow_judge_pair(f, f->name, belongs, STR_NULL, STR_NULL, &answer);
    flow_judge_go_on(f, &answer);
}

/* The address is one of that name's; the sandbox knows it from now on. */
static bool flow_judge_take(struct flow *f, const char *name, const struct resolver_answer *answer)
{
    bool belongs = false;
    f->lookup = NULL;
    f->net->n_lookups--;
    for (size_t i = 0; i < answer->n_addrs; i++)
        belongs |= netaddr_eq(&answer->addrs[i], &f->to);
    if (belongs)
        names_add(f->net->names, &f->to, name, answer->ttl_s);
    return belongs;
}

static void flow_judge_on_resolved(void *ctx, const struct resolver_answer *answer)
{
    struct flow *f = ctx;
    judge_resolved(f, flow_judge_take(f, f->name, answer));
}

static void flow_judge_on_looked_up(void *ctx, const struct resolver_answer *answer)
{
    struct flow *f = ctx;
    (void)flow_judge_take(f, f->looked_up, answer);
    exchange_resume(f->exchange);
}

/* A name in a ClientHello leaves the machine as one in a query does: the same limits hold. */
static bool may_look_up(struct flow *f, const char *name, int rule, struct policy_answer *ret_why)
{
    struct net *n = f->net;
    *ret_why = (struct policy_answer){.verdict = POLICY_DENY, .rule = POLICY_RULE_BUILTIN};
    size_t most = MIN((size_t)FLOW_LOOKUPS_MAX, resolver_room(n->egress->resolver));
    if (n->n_lookups < most)
        return !n->dns || dns_server_may_ask(n->dns, rule, name, ret_why);
    (void)snprintf(ret_why->reason, sizeof(ret_why->reason), "more than %zu names of connections at a time", most);
    return false;
}

void flow_cancel_lookup(struct flow *f)
{
    mem_free(TAKE_PTR(f->looked_up));
    if (!f->lookup)
        return;
    resolver_cancel(TAKE_PTR(f->lookup));
    f->net->n_lookups--;
}

bool flow_look_up(struct flow *f, const char *name)
{
    struct policy_answer answer;
    bool was_asked = f->looked_up && strcmp(f->looked_up, name) == 0;
    assert(!f->lookup);
    mem_free(TAKE_PTR(f->looked_up));
    policy_judge_name(f->net->policy, name, &answer);
    if (was_asked || answer.verdict == POLICY_DENY || !may_look_up(f, name, answer.rule, &answer))
        return false;
    f->looked_up = mem_strdup(name);
    f->net->n_lookups++;
    f->lookup = resolver_resolve(f->net->egress->resolver, name, f->to.family, flow_judge_on_looked_up, f);
    return true;
}

void flow_judge_name(struct flow *f, struct str sni)
{
    struct policy_answer answer;
    if (!sni.n && f->hello.offers_ech) {
        flow_refusef(f, "an encrypted ClientHello without an outer name");
        return;
    }
    if (!sni.n) {
        flow_judge_address(f);
        return;
    }
    if (!hostname_normalise(sni, f->name)) {
        f->name[0] = 0;
        flow_refusef(f, "the server name in the ClientHello is not a host's name");
        return;
    }
    policy_judge_name(f->net->policy, f->name, &answer);
    if (answer.verdict == POLICY_DENY) { /* then nobody is asked about it; a rule may allow the address all the same */
        judge_resolved(f, false);
        return;
    }
    if (names_has(f->net->names, &f->to, f->name)) {
        judge_resolved(f, true);
        return;
    }
    if (!may_look_up(f, f->name, answer.rule, &answer)) {
        flow_refuse(f, &answer);
        return;
    }
    f->state = FLOW_RESOLVE;
    f->net->n_lookups++;
    flow_wait(f);
    f->lookup = resolver_resolve(f->net->egress->resolver, f->name, f->to.family, flow_judge_on_resolved, f);
}

/* ---- again ---- */

static bool are_allowed(struct flow *f, struct list *requests)
{
    LIST_FOREACH (struct flow_request, r, requests, node) {
        struct policy_answer answer;
        char name[HOSTNAME_MAX + 1];
        bool named = hostname_normalise(str_of(r->authority), name);
        flow_judge_pair(f, named ? name : NULL, r->belongs, str_of(r->method), str_of(r->path), &answer);
        if (answer.verdict != POLICY_ALLOW)
            return false;
    }
    return true;
}

bool flow_still_allowed(struct flow *f)
{
    struct policy_answer answer;
    if (!f->net->policy)
        return false;
    if (f->state == FLOW_SNIFF || f->state == FLOW_RESOLVE)
        return true; /* is about to be judged */
    if (!are_allowed(f, &f->requests) || !are_allowed(f, &f->answered))
        return false;
    if (f->proto == FLOW_HTTP)
        return true; /* each further request is judged */
    if (!f->name[0]) {
        judge_address(f, &answer);
        return answer.verdict == POLICY_ALLOW;
    }
    /* Of an intercepted connection, the upstream's certificate has shown that the address belongs to the name. */
    flow_judge_pair(f, f->name, f->belongs || f->intercepted, STR_NULL, STR_NULL, &answer);
    if (f->intercepted)
        return answer.verdict == POLICY_ALLOW || (answer.verdict == POLICY_NEEDS_REQUEST && !f->forgot);
    return answer.verdict == POLICY_ALLOW && may_be_encrypted(f, &answer) &&
           !policy_intercepts(f->net->policy, f->name, f->port);
}
