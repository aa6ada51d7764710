/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judging: one walk along the rules.
 *
 *  1. What is not known can't match a deny rule. An address that is not known matches no address or network; but when
 *     networks have denied all of IPv4 and all of IPv6, they have denied.
 *  2. An allow rule that does not name what is not public (struct rule, opens) does not match there, and the walk goes
 *     on.
 *  3. Deny rules see through wrapped addresses, allow rules don't.
 *  4. The first rule whose request is not seen ends the walk of policy_judge(). policy_judge_name() asks whether any
 *     request could be allowed, so there an allow rule about requests matches and a deny rule doesn't;
 *     policy_judge_worst() asks whether any could be denied: the other way round.
 */
#include "policy/policy_internal.h"

enum unseen { UNSEEN_DECIDES, UNSEEN_BEST, UNSEEN_WORST }; /* 4 */

struct judging {
    const struct policy_query *q;
    enum unseen unseen;
    struct str name;
    enum net_class class;
    struct netaddr inner[NETADDR_WRAPPED_MAX];
    size_t n_inner;
    bool is_any_name; /* a name is what a deny rule asks for, and never what an allow rule does */
    bool is_path_read;
    bool was_request_refused; /* a rule about requests was about this host and port, and not about this request */
    struct request_path *path;
};

enum match { MATCH_NO, MATCH_YES, MATCH_UNKNOWN };

static void judging_init(struct judging *j, const struct policy_query *q, enum unseen unseen, struct request_path *path)
{
    *j = (struct judging){.q = q, .unseen = unseen, .name = str_of(q->name), .class = NET_PUBLIC, .path = path};
    if (q->is_host)
        j->class = NET_HOST;
    else if (q->addr.family != 0)
        j->class = netaddr_class(&q->addr);
    if (q->addr.family != 0)
        j->n_inner = netaddr_wrapped(&q->addr, j->inner);
}

static const struct request_path *path_of(struct judging *j)
{
    if (!j->is_path_read)
        (void)request_path_read(j->q->path, j->path);
    j->is_path_read = true;
    return j->path;
}

static bool target_matches(const struct target *t, bool is_allow, const struct judging *j)
{
    if (t->kind == TARGET_ANY)
        return true;
    if (t->kind != TARGET_NET)
        return j->is_any_name ? !is_allow : j->name.p && target_has_name(t, j->name);
    if (netcidr_has(&t->net, &j->q->addr))
        return true;
    for (size_t i = 0; i < j->n_inner && !is_allow; i++)
        if (netcidr_has(&t->net, &j->inner[i]))
            return true;
    return false;
}

static bool opens(const struct rule *r, enum net_class class)
{
    if (class == NET_PUBLIC)
        return true;
    return class == NET_METADATA || class == NET_HOST ? r->opens_special : r->opens;
}

static enum match match_port(const struct scope *s, uint16_t port)
{
    if (s->n_ports == 0)
        return MATCH_YES;
    if (port == 0)
        return MATCH_UNKNOWN;
    for (size_t i = 0; i < s->n_ports; i++)
        if (port >= s->ports[i].first && port <= s->ports[i].last)
            return MATCH_YES;
    return MATCH_NO;
}

/* Methods have a case (RFC 9110, section 9.1), but not every server knows. */
static bool has_method(const struct scope *s, bool is_allow, const char *method)
{
    for (size_t i = 0; i < s->n_methods; i++)
        if (is_allow ? strcmp(method, s->methods[i]) == 0 : str_eq_nocase(str_of(method), str_of(s->methods[i])))
            return true;
    return false;
}

static enum match match_request(const struct scope *s, bool is_allow, struct judging *j)
{
    const struct policy_query *q = j->q;
    bool is_known = (s->n_methods == 0 || q->method) && (!s->path || q->path.p);
    if (s->n_methods > 0 && q->method && !has_method(s, is_allow, q->method))
        return MATCH_NO;
    if (s->path && q->path.p &&
        !(is_allow ? path_pattern_matches_all(s->path, path_of(j)) : path_pattern_matches_any(s->path, path_of(j))))
        return MATCH_NO;
    return is_known ? MATCH_YES : MATCH_UNKNOWN;
}

/* Such a rule has nothing particular in mind, so its denials come with a suggestion. */
static bool is_about_everything(const struct rule *r)
{
    return (r->target.kind == TARGET_ANY || (r->target.kind == TARGET_NET && r->target.net.bits == 0)) &&
           !scope_is_about_requests(&r->scope);
}

static bool denies_family(const struct rule *r, uint8_t family)
{
    return !r->is_allow && r->target.kind == TARGET_NET && r->target.net.bits == 0 &&
           r->target.net.addr.family == family;
}

/* A rule of which it is not known whether it matches. */
static bool passes_over(const struct judging *j, const struct rule *r)
{
    return r->is_allow == (j->unseen == UNSEEN_WORST);
}

/* Returns the rule that decides, NULL: none. *ret_verdict is the rule's, or POLICY_NEEDS_REQUEST. */
static const struct rule *policy_judge_walk(const struct policy *p, struct judging *j, enum policy_verdict *ret_verdict)
{
    bool is_denied_v4 = false, is_denied_v6 = false;
    for (size_t i = 0; i < p->n_rules; i++) {
        const struct rule *r = &p->rules[i];
        bool is_family = j->q->addr.family == 0 && (denies_family(r, 4) || denies_family(r, 6));
        enum match match;
        if (!is_family && !target_matches(&r->target, r->is_allow, j))
            continue;
        if (r->is_allow && !opens(r, j->class))
            continue;
        match = match_port(&r->scope, j->q->port);
        if (match == MATCH_NO || (match == MATCH_UNKNOWN && passes_over(j, r)))
            continue;
        match = scope_is_about_requests(&r->scope) ? match_request(&r->scope, r->is_allow, j) : MATCH_YES;
        if (match == MATCH_NO) {
            j->was_request_refused = true;
            continue;
        }
        if (is_family) {
            is_denied_v4 |= match == MATCH_YES && r->target.net.addr.family == 4;
            is_denied_v6 |= match == MATCH_YES && r->target.net.addr.family == 6;
            if (!is_denied_v4 || !is_denied_v6)
                continue;
        }
        if (match == MATCH_UNKNOWN && j->unseen != UNSEEN_DECIDES && passes_over(j, r))
            continue;
        *ret_verdict = match == MATCH_UNKNOWN && j->unseen == UNSEEN_DECIDES ? POLICY_NEEDS_REQUEST
                       : r->is_allow                                         ? POLICY_ALLOW
                                                                             : POLICY_DENY;
        return r;
    }
    return NULL;
}

static void policy_judge_say(struct policy_answer *answer, const char *fmt, ...) PRINTF_LIKE(2, 3);

static void policy_judge_say(struct policy_answer *answer, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(answer->reason, sizeof(answer->reason), fmt, ap);
    va_end(ap);
}

static void say_not_public(const struct judging *j, struct policy_answer *answer)
{
    char address[NETADDR_TEXT_MAX];
    netaddr_print(&j->q->addr, address);
    if (j->class == NET_HOST)
        policy_judge_say(answer, "%s is this machine's own: no rule names this very address", address);
    else if (j->class == NET_METADATA)
        policy_judge_say(answer, "%s tells a cloud's machines their secrets: no rule names this very address", address);
    else
        policy_judge_say(answer, "%s is %s: no rule names it", address, net_class_name(j->class));
}

/* Text that could not be put into JSON as it is, or that would mean more in a rule than it says, is not suggested. */
static bool is_suggestible(struct str text, const char *set)
{
    return text.n > 0 && str_is_of(text, set);
}

static bool policy_judge_add(struct policy_answer *answer, const char *fmt, ...) PRINTF_LIKE(2, 3);

static bool policy_judge_add(struct policy_answer *answer, const char *fmt, ...)
{
    size_t n = strlen(answer->suggestion), room = sizeof(answer->suggestion) - n;
    va_list ap;
    int r;
    va_start(ap, fmt);
    r = vsnprintf(answer->suggestion + n, room, fmt, ap);
    va_end(ap);
    return r >= 0 && (size_t)r < room;
}

static bool add_request(struct judging *j, struct policy_answer *answer)
{
    const char *method = j->q->method;
    const struct request_path *path;
    if (!method || !j->q->path.p)
        return false;
    path = path_of(j);
    for (const char *c = method; *c; c++)
        if (!(*c >= 'A' && *c <= 'Z') && *c != '-' && *c != '_')
            return false;
    if (path->n != 1 || !is_suggestible(path->readings[0], "A-Za-z0-9._~!$&'()+,=:@/%-") ||
        strlen(method) > POLICY_METHOD_MAX)
        return false;
    return policy_judge_add(answer, ",\"methods\":[\"%s\"],\"path\":\"%.*s\"", method, STR_ARG(path->readings[0]));
}

static void suggest(struct judging *j, struct policy_answer *answer)
{
    char address[NETADDR_TEXT_MAX];
    bool fits;
    netaddr_print(&j->q->addr, address);
    if (j->class == NET_PRIVATE || j->class == NET_SHARED)
        fits = policy_judge_add(answer, "{\"allow\":\"%s\"", address);
    else if (j->class == NET_PUBLIC && (j->name.p || j->q->addr.family != 0))
        fits = policy_judge_add(answer, "{\"allow\":\"%s\"", j->name.p ? j->name.p : address);
    else
        return;
    if (fits && j->q->port != 0)
        fits = policy_judge_add(answer, ",\"ports\":[%u]", (unsigned)j->q->port);
    if (fits && j->was_request_refused)
        fits = add_request(j, answer);
    if (!fits || !policy_judge_add(answer, "}"))
        answer->suggestion[0] = '\0';
}

static void policy_judge_judge(const struct policy *p, struct judging *j, struct policy_answer *ret_answer)
{
    const struct rule *r = policy_judge_walk(p, j, &ret_answer->verdict);
    ret_answer->reason[0] = ret_answer->suggestion[0] = '\0';
    ret_answer->allows_ech = r && r->allows_ech;
    if (r) {
        ret_answer->rule = (int)(r - p->rules);
        policy_judge_say(ret_answer, "rule %d (%s %s)%s", ret_answer->rule, r->is_allow ? "allow" : "deny",
                         r->target.text, ret_answer->verdict == POLICY_NEEDS_REQUEST ? " is about requests" : "");
        if (ret_answer->verdict == POLICY_DENY && is_about_everything(r))
            suggest(j, ret_answer);
        return;
    }
    ret_answer->rule = j->class == NET_PUBLIC ? POLICY_RULE_DEFAULT : POLICY_RULE_BUILTIN;
    ret_answer->verdict = p->allows_by_default && j->class == NET_PUBLIC ? POLICY_ALLOW : POLICY_DENY;
    if (j->class != NET_PUBLIC)
        say_not_public(j, ret_answer);
    else
        policy_judge_say(ret_answer, "no rule matches, and the default is to %s",
                         p->allows_by_default ? "allow" : "deny");
    if (ret_answer->verdict == POLICY_DENY)
        suggest(j, ret_answer);
}

void policy_judge(const struct policy *p, const struct policy_query *q, struct policy_answer *ret_answer)
{
    struct request_path path;
    struct judging j;
    judging_init(&j, q, UNSEEN_DECIDES, &path);
    policy_judge_judge(p, &j, ret_answer);
}

void policy_judge_worst(const struct policy *p, const struct policy_query *q, struct policy_answer *ret_answer)
{
    struct request_path path;
    struct judging j;
    assert(q->addr.family != 0);
    judging_init(&j, q, UNSEEN_WORST, &path);
    policy_judge_judge(p, &j, ret_answer);
}

void policy_judge_any_name(const struct policy *p, const struct policy_query *q, struct policy_answer *ret_answer)
{
    struct request_path path;
    struct judging j;
    assert(q->addr.family != 0 && !q->name);
    judging_init(&j, q, UNSEEN_WORST, &path);
    j.is_any_name = true;
    policy_judge_judge(p, &j, ret_answer);
}

void policy_judge_name(const struct policy *p, const char *name, struct policy_answer *ret_answer)
{
    const struct policy_query q = {.name = name};
    struct request_path path;
    struct judging j;
    assert(name);
    judging_init(&j, &q, UNSEEN_BEST, &path);
    policy_judge_judge(p, &j, ret_answer);
}

bool policy_intercepts(const struct policy *p, const char *name, uint16_t port)
{
    const struct policy_query q = {.name = name, .port = port};
    enum policy_verdict verdict = POLICY_DENY;
    struct request_path path;
    struct judging j;
    assert(name);
    if (!p->intercepts)
        return false;
    judging_init(&j, &q, UNSEEN_DECIDES, &path);
    if (policy_judge_walk(p, &j, &verdict) && verdict == POLICY_NEEDS_REQUEST)
        return true;
    return policy_injects(p, name, port, false);
}

static bool goes_by(const struct injection *in, bool is_plain)
{
    return is_plain ? in->by_plain : in->by_tls;
}

bool policy_injects(const struct policy *p, const char *name, uint16_t port, bool is_plain)
{
    for (size_t i = 0; i < p->n_injections; i++)
        if (goes_by(&p->injections[i], is_plain) && target_has_name(&p->injections[i].host, str_of(name)) &&
            match_port(&p->injections[i].scope, port) != MATCH_NO)
            return true;
    return false;
}

void policy_each_inject(const struct policy *p, const struct policy_query *q,
                        void (*fn)(void *ctx, const struct policy_inject *i), void *ctx)
{
    struct request_path path;
    struct judging j;
    judging_init(&j, q, UNSEEN_DECIDES, &path);
    for (size_t i = 0; i < p->n_injections && j.name.p; i++) {
        const struct injection *in = &p->injections[i];
        if (goes_by(in, q->is_plain) && target_has_name(&in->host, j.name) &&
            match_port(&in->scope, q->port) == MATCH_YES && match_request(&in->scope, true, &j) == MATCH_YES)
            fn(ctx, &in->what);
    }
}
