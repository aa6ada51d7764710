/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of a query: answered at once, or resolved and then answered. The table in dns_server.h is what this
 * implements. */
#include "base/mem.h"
#include "egress/dns/dns_server_internal.h"

static void reply(struct dns_server *s, const struct dns_query *q, const struct dns_origin *to,
                  const struct dns_answer *answer)
{
    uint8_t message[DNS_MESSAGE_MAX];
    size_t n = dns_answer_format(q, answer, !to->conn, message);
    if (to->conn)
        dns_conn_send(to->conn, message, n);
    else
        dns_server_send(s, to, message, n);
}

static void reply_code(struct dns_server *s, const struct dns_query *q, const struct dns_origin *to,
                       enum dns_rcode rcode)
{
    reply(s, q, to, &(struct dns_answer){.rcode = rcode});
}

struct refusal {
    struct policy_answer why;
    enum dns_ede ede;
    bool is_told;
    bool is_limit; /* for asking too much: a musl client gets no second answer, it may as well wait */
};

static void dns_judge_refuse(struct dns_server *s, const struct dns_query *q, const char *name,
                             const struct dns_origin *to, const struct refusal *refusal)
{
    char type[12];
    reply(s, q, to, &(struct dns_answer){.rcode = DNS_REFUSED, .ede = refusal->ede, .text = refusal->why.reason});
    /* musl passes over REFUSED and waits for another answer until its time is up, so here it is. All others have left
     * with the first one. */
    if (!to->conn && !q->has_edns && !refusal->is_limit)
        reply_code(s, q, to, DNS_NXDOMAIN);
    if (refusal->is_told)
        s->ops->refused(s->ctx, name, dns_type_name(q->type, type), &refusal->why);
}

/* Refusals that no rule of the policy could undo. */
static struct refusal builtin(enum dns_ede ede)
{
    return (struct refusal){{.verdict = POLICY_DENY, .rule = POLICY_RULE_BUILTIN}, ede, true, false};
}

static struct refusal dns_judge_limit(bool is_told)
{
    return (struct refusal){{.verdict = POLICY_DENY, .rule = POLICY_RULE_BUILTIN}, DNS_EDE_BLOCKED, is_told, true};
}

#define SAY(refusal, ...) (void)snprintf((refusal).why.reason, sizeof((refusal).why.reason), __VA_ARGS__)

static bool is_or_ends(const char *name, struct str domain)
{
    struct str s = str_of(name);
    return s.n >= domain.n && str_eq_nocase(str_sub(s, s.n - domain.n), domain) &&
           (s.n == domain.n || s.p[s.n - domain.n - 1] == '.');
}

/* Types and names that have an answer of our own. */
static bool answer_here(struct dns_server *s, const struct dns_query *q, const struct dns_origin *from)
{
    static const struct netaddr loopback[] = {{4, {127, 0, 0, 1}}, {6, {[15] = 1}}};
    if (is_or_ends(q->name, STR("localhost"))) {
        reply(s, q, from, &(struct dns_answer){.addrs = loopback, .n_addrs = 2, .ttl_s = DNS_SERVER_TTL_S});
        return true;
    }
    bool is_reverse = is_or_ends(q->name, STR("in-addr.arpa")) || is_or_ends(q->name, STR("ip6.arpa"));
    if (q->type == DNS_PTR && is_reverse) {
        reply_code(s, q, from, DNS_NXDOMAIN);
        return true;
    }
    if (q->type == DNS_HTTPS || q->type == DNS_SVCB) {
        reply_code(s, q, from, DNS_NOERROR);
        return true;
    }
    return false;
}

static void dns_judge_on_resolved(void *ctx, const struct resolver_answer *found)
{
    struct dns_ask *a = ctx;
    struct dns_server *s = a->s;
    struct netaddr addrs[DNS_ADDRS_MAX];
    struct dns_answer answer = {.addrs = addrs, .ttl_s = DNS_SERVER_TTL_S};
    a->lookup = NULL;
    switch (found->status) {
    case 0:
        answer.n_addrs = MIN(found->n_addrs, DNS_ADDRS_MAX);
        memcpy(addrs, found->addrs, answer.n_addrs * sizeof(*addrs));
        answer.n_addrs = s->ops->resolved(s->ctx, a->name, addrs, answer.n_addrs, found->ttl_s);
        assert(answer.n_addrs <= MIN(found->n_addrs, DNS_ADDRS_MAX));
        if (answer.n_addrs == 0) {
            answer.ede = DNS_EDE_BLOCKED;
            answer.text = "none of its addresses may be reached";
        }
        break;
    case -ENODATA:
        break;
    case -ENOENT:
        answer.rcode = DNS_NXDOMAIN;
        s->ops->failed(s->ctx, a->name, "there is no such name");
        break;
    default:
        answer.rcode = DNS_SERVFAIL;
        answer.ede = DNS_EDE_NETWORK_ERROR;
        answer.text =
            found->status == -ETIMEDOUT ? "the host's DNS servers don't answer" : "the host's DNS servers fail";
        s->ops->failed(s->ctx, a->name, answer.text);
    }
    struct dns_conn *conn = a->origin.conn;
    reply(s, &a->q, &a->origin, &answer);
    dns_ask_free(a);
    if (conn)
        dns_conn_settle(conn);
}

static void resolve(struct dns_server *s, const struct dns_query *q, const char *name, const struct dns_origin *from)
{
    struct dns_ask *a = mem_new(struct dns_ask);
    a->s = s;
    a->origin = *from;
    a->q = *q;
    assert(q->question.n <= sizeof(a->question));
    memcpy(a->question, q->question.p, q->question.n);
    a->q.question.p = a->question;
    memcpy(a->name, name, strlen(name) + 1);
    list_append(&s->asks, &a->node);
    s->n_asks++;
    list_init(&a->of_conn);
    if (from->conn)
        list_append(dns_conn_asks(from->conn), &a->of_conn);
    a->lookup = resolver_resolve(s->resolver, name, q->type == DNS_A ? 4 : 6, dns_judge_on_resolved, a);
}

void dns_ask_free(struct dns_ask *a)
{
    struct dns_server *s = a->s;
    resolver_cancel(a->lookup);
    list_remove(&a->node);
    list_remove(&a->of_conn);
    if (--s->n_asks <= DNS_SERVER_OPEN_MAX / 2)
        s->told_open = false;
    mem_free(a);
}

/* Names that the default allows are not counted: where everything may be reached, a tunnel has better ways than DNS. */
static enum dns_names_verdict count_name(struct dns_server *s, int rule, const char *name,
                                         struct policy_answer *ret_why)
{
    enum dns_names_verdict verdict =
        rule == POLICY_RULE_DEFAULT ? DNS_NAMES_FINE : dns_names_count(&s->names, s->now(), rule, name);
    if (verdict != DNS_NAMES_FINE)
        (void)snprintf(ret_why->reason, sizeof(ret_why->reason), "more than %d different names a minute below rule %d",
                       DNS_SERVER_NAMES_MAX, rule);
    return verdict;
}

bool dns_server_may_ask(struct dns_server *s, int rule, const char *name, struct policy_answer *ret_answer)
{
    return count_name(s, rule, name, ret_answer) == DNS_NAMES_FINE;
}

/* A and AAAA of a name that is one. */
static void judge_name(struct dns_server *s, const struct dns_query *q, const char *name, const struct dns_origin *from)
{
    struct refusal refusal = {.ede = DNS_EDE_BLOCKED, .is_told = true};
    if (!s->ops->may(s->ctx, name, &refusal.why)) {
        dns_judge_refuse(s, q, name, from, &refusal);
        return;
    }
    int rule = refusal.why.rule;
    refusal = dns_judge_limit(true);
    size_t most = MIN((size_t)DNS_SERVER_OPEN_MAX, resolver_room(s->resolver));
    if (s->n_asks >= most) {
        SAY(refusal, "more than %zu DNS queries at a time", most);
        refusal.is_told = !s->told_open;
        s->told_open = true;
        dns_judge_refuse(s, q, name, from, &refusal);
        return;
    }
    enum dns_names_verdict verdict = count_name(s, rule, name, &refusal.why);
    if (verdict != DNS_NAMES_FINE) {
        refusal.is_told = verdict == DNS_NAMES_OVER_NOW;
        dns_judge_refuse(s, q, name, from, &refusal);
        return;
    }
    resolve(s, q, name, from);
}

void dns_judge(struct dns_server *s, struct str message, const struct dns_origin *from)
{
    struct dns_query q;
    char name[HOSTNAME_MAX + 1], type[12];
    usec_t now = s->now();
    int rcode = dns_query_parse(message, &q);
    if (rcode < 0)
        return;
    if (rcode == 0 && message.n > DNS_QUERY_MAX)
        rcode = DNS_FORMERR;
    if (dns_bucket_is_half_full(&s->rate, now, DNS_SERVER_RATE, DNS_SERVER_BURST))
        s->told_rate = false;
    if (!dns_bucket_take(&s->rate, now, DNS_SERVER_RATE, DNS_SERVER_BURST)) {
        struct refusal refusal = dns_judge_limit(!s->told_rate);
        SAY(refusal, "more than %d DNS queries a second", DNS_SERVER_RATE);
        s->told_rate = true;
        dns_judge_refuse(s, &q, q.name, from, &refusal);
        return;
    }
    if (rcode > 0) {
        reply_code(s, &q, from, rcode);
        return;
    }
    bool is_internet = q.class == 1, is_address = q.type == DNS_A || q.type == DNS_AAAA;
    if (is_internet && answer_here(s, &q, from))
        return;
    bool is_name = hostname_normalise(str_of(q.name), name);
    if (is_internet && is_address && is_name) {
        judge_name(s, &q, name, from);
        return;
    }
    struct refusal refusal = builtin(DNS_EDE_NOT_SUPPORTED);
    if (is_internet && is_address)
        SAY(refusal, "not the name of a host");
    else
        SAY(refusal, "DNS here has addresses only, no %s", is_internet ? dns_type_name(q.type, type) : "other classes");
    dns_judge_refuse(s, &q, is_name ? name : q.name, from, &refusal);
}
