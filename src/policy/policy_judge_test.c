/* SPDX-License-Identifier: Apache-2.0 */
/* Judging by tables: a policy, what is asked, which rule decides. Every suggestion is put in front of the rules and
 * must then allow what was asked. */
#include "base/mem.h"
#include "policy/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { DEFAULT = POLICY_RULE_DEFAULT, BUILTIN = POLICY_RULE_BUILTIN };
enum { DENY = POLICY_DENY, ALLOW = POLICY_ALLOW, NEEDS = POLICY_NEEDS_REQUEST };

static struct policy *parse_json(const json_t *json)
{
    struct policy *p = NULL;
    struct err err = {0};
    if (policy_parse(json, &p, &err) < 0)
        fail_msg("%s", err.msg);
    return p;
}

/* In these texts ' stands for ". */
static json_t *load(const char *text)
{
    AUTO_FREE char *copy = mem_strdup(text);
    json_error_t error;
    json_t *json;
    for (char *c = copy; *c; c++)
        if (*c == '\'')
            *c = '"';
    json = json_loads(copy, JSON_REJECT_DUPLICATES, &error);
    if (!json)
        fail_msg("%s: %s", text, error.text);
    return json;
}

static struct policy *parse(const char *text)
{
    json_t *json = load(text);
    struct policy *p = parse_json(json);
    json_decref(json);
    return p;
}

/* p as it would be with the suggestion taken. */
static struct policy *taken(const struct policy *p, const char *suggestion)
{
    json_t *json = policy_json(p), *rule = json_loads(suggestion, JSON_REJECT_DUPLICATES, NULL);
    struct policy *better;
    if (!rule)
        fail_msg("%s is no JSON", suggestion);
    json_array_insert_new(json_object_get(json, "rules"), 0, rule);
    better = parse_json(json);
    json_decref(json);
    return better;
}

struct ask {
    const char *name, *addr; /* NULL: none, unknown */
    uint16_t port;
    const char *method, *path; /* NULL: not seen */
    bool is_host;
};

#define REQUEST(n, a, p, m, t)                                                                                         \
    {                                                                                                                  \
        .name = (n), .addr = (a), .port = (p), .method = (m), .path = (t)                                              \
    }
#define TO(n, a, p) REQUEST(n, a, p, NULL, NULL)
#define HOST(n, a, p)                                                                                                  \
    {                                                                                                                  \
        .name = (n), .addr = (a), .port = (p), .is_host = true                                                         \
    }

static struct policy_query query_of(const struct ask *a)
{
    struct policy_query q = {
        .name = a->name, .port = a->port, .method = a->method, .path = str_of(a->path), .is_host = a->is_host};
    if (a->addr)
        assert_true(netaddr_parse(str_of(a->addr), &q.addr));
    return q;
}

static void check(const char *text, const struct ask *a, int verdict, int rule)
{
    struct policy *p = parse(text);
    struct policy_query q = query_of(a);
    struct policy_answer answer;
    memset(&answer, 0x55, sizeof(answer));
    policy_judge(p, &q, &answer);
    if ((int)answer.verdict != verdict || answer.rule != rule)
        fail_msg("%s\n  %s %s port %u %s %s\n  verdict %d rule %d (%s), and not %d %d", text, a->name ? a->name : "-",
                 a->addr ? a->addr : "-", a->port, a->method ? a->method : "-", a->path ? a->path : "-", answer.verdict,
                 answer.rule, answer.reason, verdict, rule);
    assert_true(answer.reason[0] && memchr(answer.reason, 0, sizeof(answer.reason)));
    assert_non_null(memchr(answer.suggestion, 0, sizeof(answer.suggestion)));
    if (verdict != DENY)
        assert_string_equal(answer.suggestion, "");
    if (answer.suggestion[0]) {
        struct policy *better = taken(p, answer.suggestion);
        policy_judge(better, &q, &answer);
        if (answer.verdict != POLICY_ALLOW || answer.rule != 0)
            fail_msg("%s was suggested and does not help: %s", answer.suggestion, answer.reason);
        policy_unref(better);
    }
    policy_unref(p);
}

struct judged {
    const char *policy;
    struct ask ask;
    int verdict, rule;
};

static void check_all(const struct judged *cases, size_t n)
{
    for (size_t i = 0; i < n; i++)
        check(cases[i].policy, &cases[i].ask, cases[i].verdict, cases[i].rule);
}

#define OPEN "{'default':'allow'}"
#define CLOSED "{'default':'deny'}"

static void the_first_rule_that_matches_decides(void **state)
{
    static const struct judged cases[] = {
        {OPEN, TO("a.test", "8.8.8.8", 443), ALLOW, DEFAULT},
        {OPEN, TO(NULL, "8.8.8.8", 443), ALLOW, DEFAULT},
        {CLOSED, TO("a.test", "8.8.8.8", 443), DENY, DEFAULT},
        {CLOSED, TO(NULL, "8.8.8.8", 443), DENY, DEFAULT},
        {"{}", TO("a.test", "8.8.8.8", 443), DENY, DEFAULT},
        {"{'rules':[{'allow':'*'}]}", TO("a.test", "8.8.8.8", 443), ALLOW, 0},
        {"{'rules':[{'allow':'*'}]}", TO(NULL, "8.8.8.8", 443), ALLOW, 0},
        {"{'default':'allow','rules':[{'deny':'*'}]}", TO("a.test", "8.8.8.8", 443), DENY, 0},
        {"{'default':'allow','rules':[{'deny':'*'}]}", TO(NULL, "8.8.8.8", 443), DENY, 0},
        {"{'default':'allow','rules':[{'deny':'*'}]}", TO(NULL, "10.0.0.1", 443), DENY, 0},

        /* names: exactly, or below */
        {"{'rules':[{'allow':'allowed.test'}]}", TO("allowed.test", "8.8.8.8", 443), ALLOW, 0},
        {"{'rules':[{'allow':'allowed.test'}]}", TO("www.allowed.test", "8.8.8.8", 443), DENY, DEFAULT},
        {"{'rules':[{'allow':'allowed.test'}]}", TO("notallowed.test", "8.8.8.8", 443), DENY, DEFAULT},
        {"{'rules':[{'allow':'allowed.test'}]}", TO("allowed.test.evil.test", "8.8.8.8", 443), DENY, DEFAULT},
        {"{'rules':[{'allow':'allowed.test'}]}", TO("allowed-test", "8.8.8.8", 443), DENY, DEFAULT},
        {"{'rules':[{'allow':'allowed.test'}]}", TO("allowed.tes", "8.8.8.8", 443), DENY, DEFAULT},
        {"{'rules':[{'allow':'*.allowed.test'}]}", TO("www.notallowed.test", "8.8.8.8", 443), DENY, DEFAULT},
        {"{'rules':[{'allow':'*.allowed.test'}]}", TO("www.allowed.test.evil.test", "8.8.8.8", 443), DENY, DEFAULT},
        {"{'rules':[{'allow':'*.test'}]}", TO("test", "8.8.8.8", 443), DENY, DEFAULT},
        {"{'rules':[{'allow':'allowed.test'}]}", TO("allowed-test.x", "8.8.8.8", 443), DENY, DEFAULT},
        {"{'rules':[{'allow':'allowed.test'}]}", TO(NULL, "8.8.8.8", 443), DENY, DEFAULT},
        {"{'rules':[{'allow':'*.allowed.test'}]}", TO("allowed.test", "8.8.8.8", 443), DENY, DEFAULT},
        {"{'rules':[{'allow':'*.allowed.test'}]}", TO("a.b.allowed.test", "8.8.8.8", 443), ALLOW, 0},
        {"{'rules':[{'allow':'*.allowed.test'}]}", TO("notallowed.test", "8.8.8.8", 443), DENY, DEFAULT},
        {"{'rules':[{'allow':'ALLOWED.test.'}]}", TO("allowed.test", "8.8.8.8", 443), ALLOW, 0},

        /* order */
        {"{'rules':[{'deny':'bad.allowed.test'},{'allow':'*.allowed.test'}]}", TO("bad.allowed.test", "8.8.8.8", 443),
         DENY, 0},
        {"{'rules':[{'deny':'BAD.Allowed.test.'},{'allow':'*.allowed.test'}]}", TO("bad.allowed.test", "8.8.8.8", 443),
         DENY, 0},
        {"{'rules':[{'deny':'bad.allowed.test'},{'allow':'*.allowed.test'}]}", TO("x.allowed.test", "8.8.8.8", 443),
         ALLOW, 1},
        {"{'rules':[{'allow':'*.allowed.test'},{'deny':'bad.allowed.test'}]}", TO("bad.allowed.test", "8.8.8.8", 443),
         ALLOW, 0},
        {"{'default':'allow','rules':[{'deny':'a.test'}]}", TO("a.test", "8.8.8.8", 443), DENY, 0},
        {"{'default':'allow','rules':[{'deny':'a.test'}]}", TO("b.test", "8.8.8.8", 443), ALLOW, DEFAULT},
        {"{'default':'allow','rules':[{'deny':'a.test'}]}", TO(NULL, "8.8.8.8", 443), ALLOW, DEFAULT},
    };

    (void)state;
    check_all(cases, ARRAY_SIZE(cases));
}

static void names_and_addresses_in_one_order(void **state)
{
    static const struct judged cases[] = {
        /* a denied network stays denied whatever its hosts are called ... */
        {"{'rules':[{'deny':'198.20.0.0/16'},{'allow':'a.test'}]}", TO("a.test", "198.20.1.1", 443), DENY, 0},
        {"{'rules':[{'deny':'198.20.0.0/16'},{'allow':'a.test'}]}", TO("a.test", "8.8.8.8", 443), ALLOW, 1},
        /* ... unless an earlier rule allowed the name */
        {"{'rules':[{'allow':'a.test'},{'deny':'198.20.0.0/16'}]}", TO("a.test", "198.20.1.1", 443), ALLOW, 0},
        {"{'rules':[{'allow':'a.test'},{'deny':'198.20.0.0/16'}]}", TO(NULL, "198.20.1.1", 443), DENY, 1},
        /* an allowed network allows by any name, unless the name was denied before */
        {"{'rules':[{'allow':'198.20.0.0/16'}]}", TO("x.test", "198.20.1.1", 443), ALLOW, 0},
        {"{'rules':[{'allow':'198.20.0.0/16'},{'deny':'x.test'}]}", TO("x.test", "198.20.1.1", 443), ALLOW, 0},
        {"{'rules':[{'deny':'x.test'},{'allow':'198.20.0.0/16'}]}", TO("x.test", "198.20.1.1", 443), DENY, 0},
        {"{'rules':[{'deny':'x.test'},{'allow':'198.20.0.0/16'}]}", TO(NULL, "198.20.1.1", 443), ALLOW, 1},
        /* single addresses, both families, and none for the other */
        {"{'rules':[{'allow':'1.1.1.1'}]}", TO(NULL, "1.1.1.1", 443), ALLOW, 0},
        {"{'rules':[{'allow':'1.1.1.1'}]}", TO(NULL, "1.1.1.2", 443), DENY, DEFAULT},
        {"{'rules':[{'allow':'2606:4700::/32'}]}", TO(NULL, "2606:4700::1111", 443), ALLOW, 0},
        {"{'rules':[{'allow':'0.0.0.0/0'}]}", TO(NULL, "2606:4700::1111", 443), DENY, DEFAULT},
        {"{'rules':[{'allow':'0.0.0.0/0'}]}", TO(NULL, "8.8.8.8", 443), ALLOW, 0},
        {"{'rules':[{'allow':'::/0'}]}", TO(NULL, "8.8.8.8", 443), DENY, DEFAULT},
        {"{'default':'allow','rules':[{'deny':'0.0.0.0/0'}]}", TO(NULL, "2606:4700::1111", 443), ALLOW, DEFAULT},
        /* in IPv6's clothes */
        {"{'default':'allow','rules':[{'deny':'8.8.8.0/24'}]}", TO(NULL, "::ffff:8.8.8.8", 443), DENY, 0},
        {"{'default':'allow','rules':[{'deny':'::ffff:8.8.8.0/120'}]}", TO(NULL, "8.8.8.8", 443), DENY, 0},
        {"{'default':'allow','rules':[{'deny':'8.8.8.0/24'}]}", TO(NULL, "64:ff9b::8.8.8.8", 443), DENY, 0},
        {"{'default':'allow','rules':[{'deny':'8.8.8.0/24'}]}", TO(NULL, "64:ff9b::8.8.4.4", 443), ALLOW, DEFAULT},
        {"{'rules':[{'allow':'8.8.8.0/24'}]}", TO(NULL, "64:ff9b::8.8.8.8", 443), DENY, DEFAULT},
        {"{'rules':[{'allow':'64:ff9b::8.8.8.0/120'}]}", TO(NULL, "64:ff9b::8.8.8.8", 443), ALLOW, 0},

        /* as long as the address is not known, no address matches */
        {"{'rules':[{'deny':'198.20.0.0/16'},{'allow':'a.test'}]}", TO("a.test", NULL, 443), ALLOW, 1},
        {"{'rules':[{'allow':'198.20.0.0/16'}]}", TO("x.test", NULL, 443), DENY, DEFAULT},
        {OPEN, TO("x.test", NULL, 443), ALLOW, DEFAULT},
        {OPEN, TO(NULL, NULL, 443), ALLOW, DEFAULT},
        {CLOSED, TO(NULL, NULL, 443), DENY, DEFAULT},
        /* ... but when there is none left, that is known */
        {"{'default':'allow','rules':[{'deny':'0.0.0.0/0'},{'deny':'::/0'}]}", TO("x.test", NULL, 443), DENY, 1},
        {"{'default':'allow','rules':[{'deny':'::/0'},{'deny':'0.0.0.0/0'}]}", TO("x.test", NULL, 443), DENY, 1},
        {"{'default':'allow','rules':[{'deny':'::/0'},{'allow':'x.test'},{'deny':'0.0.0.0/0'}]}",
         TO("x.test", NULL, 443), ALLOW, 1},
        {"{'default':'allow','rules':[{'deny':'::/0'},{'deny':'0.0.0.0/0','ports':[80]}]}", TO("x.test", NULL, 443),
         ALLOW, DEFAULT},
        {"{'default':'allow','rules':[{'deny':'::/0'},{'deny':'0.0.0.0/1'}]}", TO("x.test", NULL, 443), ALLOW, DEFAULT},
    };

    (void)state;
    check_all(cases, ARRAY_SIZE(cases));
}

static void ports_narrow_a_rule(void **state)
{
    static const char some[] = "{'rules':[{'allow':'a.test','ports':[443,'8000-8099',22]}]}";
    static const struct judged cases[] = {
        {some, TO("a.test", "8.8.8.8", 443), ALLOW, 0},
        {some, TO("a.test", "8.8.8.8", 442), DENY, DEFAULT},
        {some, TO("a.test", "8.8.8.8", 444), DENY, DEFAULT},
        {some, TO("a.test", "8.8.8.8", 22), ALLOW, 0},
        {some, TO("a.test", "8.8.8.8", 25), DENY, DEFAULT},
        {some, TO("a.test", "8.8.8.8", 7999), DENY, DEFAULT},
        {some, TO("a.test", "8.8.8.8", 8000), ALLOW, 0},
        {some, TO("a.test", "8.8.8.8", 8099), ALLOW, 0},
        {some, TO("a.test", "8.8.8.8", 8100), DENY, DEFAULT},
        {some, TO("b.test", "8.8.8.8", 443), DENY, DEFAULT},
        {"{'rules':[{'allow':'a.test','ports':['1-65535']}]}", TO("a.test", "8.8.8.8", 65535), ALLOW, 0},
        {"{'default':'allow','rules':[{'deny':'*','ports':[25]}]}", TO(NULL, "8.8.8.8", 25), DENY, 0},
        {"{'default':'allow','rules':[{'deny':'*','ports':[25]}]}", TO(NULL, "8.8.8.8", 26), ALLOW, DEFAULT},
        {"{'default':'allow','rules':[{'deny':'8.8.8.8','ports':[53]},{'deny':'a.test'}]}",
         TO("a.test", "8.8.8.8", 443), DENY, 1},
        /* an unknown port can't be denied, and may be the allowed one */
        {some, TO("a.test", "8.8.8.8", 0), ALLOW, 0},
        {"{'default':'allow','rules':[{'deny':'*','ports':[25]}]}", TO(NULL, "8.8.8.8", 0), ALLOW, DEFAULT},
    };
    (void)state;
    check_all(cases, ARRAY_SIZE(cases));
}

static void what_is_not_public_needs_a_rule_that_names_it(void **state)
{
    static const char *const addresses[] = {
        "0.0.0.0",
        "127.0.0.1",
        "127.8.8.8",
        "10.0.0.1",
        "172.17.0.1",
        "192.168.1.1",
        "169.254.1.1",
        "100.64.0.1",
        "224.0.0.251",
        "239.255.255.250",
        "255.255.255.255",
        "192.0.2.1",
        "198.18.0.1",
        "240.0.0.1",
        "::",
        "::1",
        "fe80::1",
        "fec0::1",
        "fc00::1",
        "fd12::1",
        "ff02::fb",
        "2001:db8::1",
        "100::1",
        "64:ff9b::7f00:1",
        "64:ff9b::10.0.0.1",
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2002:808:808::1",
        "::7f00:1",
        "2001::1",
        "3fff::1",
        "5f00::1",
        /* metadata */
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd20:ce::254",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::",
    };
    static const char *const open_policies[] = {
        OPEN,
        "{'rules':[{'allow':'*'}]}",
        "{'rules':[{'allow':'a.test'}]}",
        "{'rules':[{'allow':'*.test'},{'allow':'*'}]}",
        "{'rules':[{'allow':'0.0.0.0/0'},{'allow':'::/0'}]}",
        "{'rules':[{'allow':'0.0.0.0/1'},{'allow':'128.0.0.0/1'},{'allow':'::/1'},{'allow':'fc00::/6'},{'allow':'2000::/3'}]}",
        "{'default':'allow','rules':[{'allow':'a.test','methods':['GET']},{'allow':'*','path':'/*'}]}",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(addresses); i++) {
        struct ask by_name = TO("a.test", addresses[i], 443), by_addr = TO(NULL, addresses[i], 443);
        char text[160];
        for (size_t k = 0; k < ARRAY_SIZE(open_policies); k++) {
            if (k == 5 && strchr(addresses[i], ':') &&
                strncmp(addresses[i], "64:", 3) != 0) /* fc00::/6 has nothing public in it */
                continue;
            check(open_policies[k], &by_name, DENY, BUILTIN);
            check(open_policies[k], &by_addr, DENY, BUILTIN);
        }
        snprintf(text, sizeof(text), "{'rules':[{'allow':'a.test'},{'allow':'%s'}]}", addresses[i]);
        check(text, &by_name, ALLOW, 1);
        check(text, &by_addr, ALLOW, 1);
        snprintf(text, sizeof(text), "{'default':'allow','rules':[{'deny':'%s'},{'allow':'%s'}]}", addresses[i],
                 addresses[i]);
        check(text, &by_name, DENY, 0);
    }
}

static void which_rules_name_what_is_not_public(void **state)
{
    static const struct judged cases[] = {
        {"{'rules':[{'allow':'10.0.0.0/8'}]}", TO(NULL, "10.1.2.3", 5432), ALLOW, 0},
        {"{'rules':[{'allow':'10.0.0.0/8','ports':[5432]}]}", TO(NULL, "10.1.2.3", 5433), DENY, BUILTIN},
        {"{'rules':[{'allow':'10.0.0.0/7'}]}", TO(NULL, "10.1.2.3", 5432), DENY, BUILTIN},
        {"{'rules':[{'allow':'10.0.0.0/8'}]}", TO("db.test", "10.1.2.3", 5432), ALLOW, 0},
        {"{'rules':[{'allow':'fc00::/7'}]}", TO(NULL, "fd12::1", 5432), ALLOW, 0},
        {"{'rules':[{'allow':'100.64.0.0/10'}]}", TO(NULL, "100.64.0.1", 22), ALLOW, 0},
        {"{'rules':[{'allow':'224.0.0.0/3'}]}", TO(NULL, "240.0.0.1", 22), ALLOW, 0},
        /* a rule that can't open does not match: the order of the name and of its network does not matter */
        {"{'rules':[{'allow':'db.test'},{'allow':'10.0.0.0/8'}]}", TO("db.test", "10.1.2.3", 5432), ALLOW, 1},
        {"{'rules':[{'allow':'10.0.0.0/8'},{'allow':'db.test'}]}", TO("db.test", "10.1.2.3", 5432), ALLOW, 0},
        {"{'rules':[{'allow':'db.test'},{'deny':'*'},{'allow':'10.0.0.0/8'}]}", TO("db.test", "10.1.2.3", 5432), DENY,
         1},
        {"{'rules':[{'deny':'db.test'},{'allow':'10.0.0.0/8'}]}", TO("db.test", "10.1.2.3", 5432), DENY, 0},
        {"{'rules':[{'allow':'db.test','methods':['GET']},{'allow':'10.0.0.0/8'}]}", TO("db.test", "10.1.2.3", 80),
         ALLOW, 1},
        /* metadata and the machine itself want their very address */
        {"{'rules':[{'allow':'169.254.0.0/16'}]}", TO(NULL, "169.254.169.254", 80), DENY, BUILTIN},
        {"{'rules':[{'allow':'169.254.169.254/31'}]}", TO(NULL, "169.254.169.254", 80), DENY, BUILTIN},
        {"{'rules':[{'allow':'169.254.169.254'}]}", TO(NULL, "169.254.169.254", 80), ALLOW, 0},
        {"{'rules':[{'allow':'169.254.169.254/32','ports':[80]}]}", TO("x.test", "169.254.169.254", 80), ALLOW, 0},
        {"{'rules':[{'allow':'169.254.0.0/16'}]}", TO(NULL, "169.254.1.1", 80), ALLOW, 0},
        {"{'rules':[{'allow':'100.64.0.0/10'}]}", TO(NULL, "100.100.100.200", 80), DENY, BUILTIN},
        {"{'rules':[{'allow':'fd00::/8'}]}", TO(NULL, "fd00:ec2::254", 80), DENY, BUILTIN},
        {"{'rules':[{'allow':'169.254.169.254'}]}", TO(NULL, "64:ff9b::a9fe:a9fe", 80), DENY, BUILTIN},
        {OPEN, HOST(NULL, "8.8.8.8", 80), DENY, BUILTIN},
        {"{'rules':[{'allow':'*'}]}", HOST("a.test", "8.8.8.8", 80), DENY, BUILTIN},
        {"{'rules':[{'allow':'8.8.8.0/24'}]}", HOST(NULL, "8.8.8.8", 80), DENY, BUILTIN},
        {"{'rules':[{'allow':'8.8.8.8','ports':[80]}]}", HOST(NULL, "8.8.8.8", 80), ALLOW, 0},
        {"{'rules':[{'allow':'8.8.8.8','ports':[80]}]}", HOST(NULL, "8.8.8.8", 81), DENY, BUILTIN},
        {"{'rules':[{'allow':'192.168.0.0/16'}]}", HOST(NULL, "192.168.1.5", 80), DENY, BUILTIN},
        {"{'rules':[{'allow':'192.168.1.5'}]}", HOST(NULL, "192.168.1.5", 80), ALLOW, 0},
        {"{'rules':[{'allow':'127.0.0.1'}]}", HOST("rebind.test", "127.0.0.1", 80), ALLOW, 0},
        {"{'rules':[{'deny':'192.168.0.0/16'}]}", HOST(NULL, "192.168.1.5", 80), DENY, 0},
    };
    (void)state;
    check_all(cases, ARRAY_SIZE(cases));
}

static void requests_are_judged_where_they_are_seen(void **state)
{
    static const char scoped[] =
        "{'rules':[{'allow':'a.test','ports':[443],'methods':['GET','HEAD'],'path':'/v1*'},{'deny':'b.test','methods':"
        "['POST']},{'allow':'b.test'},{'allow':'c.test','path':'/only'},{'allow':'c.test','methods':['PUT']}]}";
    static const struct judged cases[] = {
        {scoped, TO("a.test", "8.8.8.8", 443), NEEDS, 0},
        {scoped, TO("a.test", NULL, 443), NEEDS, 0},
        {scoped, TO("a.test", "8.8.8.8", 80), DENY, DEFAULT},
        {scoped, TO("a.test", "10.0.0.1", 443), DENY, BUILTIN},
        {scoped, TO("x.test", "8.8.8.8", 443), DENY, DEFAULT},
        {scoped, REQUEST("a.test", "8.8.8.8", 443, "GET", "/v1/x"), ALLOW, 0},
        {scoped, REQUEST("a.test", "8.8.8.8", 443, "HEAD", "/v1?x"), ALLOW, 0},
        {scoped, REQUEST("a.test", "8.8.8.8", 443, "POST", "/v1/x"), DENY, DEFAULT},
        {scoped, REQUEST("a.test", "8.8.8.8", 443, "get", "/v1/x"), DENY, DEFAULT},
        {scoped, REQUEST("a.test", "8.8.8.8", 443, "GE", "/v1/x"), DENY, DEFAULT},
        {scoped, REQUEST("a.test", "8.8.8.8", 443, "GET", "/v2"), DENY, DEFAULT},
        {scoped, REQUEST("a.test", "8.8.8.8", 443, "GET", "/"), DENY, DEFAULT},
        {scoped, REQUEST("a.test", "8.8.8.8", 443, "GET", "/?/v1"), DENY, DEFAULT},
        {scoped, REQUEST("a.test", "8.8.8.8", 443, "GET", "/v1/../v2"), DENY, DEFAULT},
        {scoped, REQUEST("a.test", "8.8.8.8", 443, "GET", "/v1/%2e%2e/v2"), DENY, DEFAULT},
        {scoped, REQUEST("a.test", "8.8.8.8", 443, "GET", "/v1/%2E%2E%2fv2"), DENY, DEFAULT},
        {scoped, REQUEST("a.test", "8.8.8.8", 443, "GET", "/v1/..\\v2"), DENY, DEFAULT},
        {scoped, REQUEST("a.test", "8.8.8.8", 443, "GET", "/v1/..;/v2"), DENY, DEFAULT},
        {scoped, REQUEST("a.test", "8.8.8.8", 443, "GET", "//v1/x"), DENY, DEFAULT},
        {scoped, REQUEST("a.test", "8.8.8.8", 443, "GET", "*"), DENY, DEFAULT},
        {scoped, REQUEST("a.test", "8.8.8.8", 443, "GET", ""), DENY, DEFAULT},
        {scoped, REQUEST("a.test", "8.8.8.8", 443, "GET", "/%76%31/x"), ALLOW, 0},
        /* half a request */
        {scoped, REQUEST("a.test", "8.8.8.8", 443, "GET", NULL), NEEDS, 0},
        {scoped, REQUEST("a.test", "8.8.8.8", 443, "POST", NULL), DENY, DEFAULT},
        {scoped, REQUEST("a.test", "8.8.8.8", 443, NULL, "/v1"), NEEDS, 0},
        {scoped, REQUEST("a.test", "8.8.8.8", 443, NULL, "/v2"), DENY, DEFAULT},
        /* a deny rule in front */
        {scoped, TO("b.test", "8.8.8.8", 443), NEEDS, 1},
        {scoped, REQUEST("b.test", "8.8.8.8", 443, "POST", "/"), DENY, 1},
        {scoped, REQUEST("b.test", "8.8.8.8", 443, "post", "/"), DENY, 1},
        {scoped, REQUEST("b.test", "8.8.8.8", 443, "PUT", "/"), ALLOW, 2},
        /* several about one host */
        {scoped, TO("c.test", "8.8.8.8", 443), NEEDS, 3},
        {scoped, REQUEST("c.test", "8.8.8.8", 443, "GET", "/only"), ALLOW, 3},
        {scoped, REQUEST("c.test", "8.8.8.8", 443, "PUT", "/other"), ALLOW, 4},
        {scoped, REQUEST("c.test", "8.8.8.8", 443, "PUT", "/a\\b"), ALLOW, 4},
        {scoped, REQUEST("c.test", "8.8.8.8", 443, "GET", "/other"), DENY, DEFAULT},
        {scoped, REQUEST("c.test", "8.8.8.8", 443, "GET", "/only/"), DENY, DEFAULT},
        /* a rule in front that decides without the request */
        {"{'rules':[{'deny':'a.test'},{'allow':'*','methods':['GET']}]}", TO("a.test", "8.8.8.8", 443), DENY, 0},
        {"{'rules':[{'allow':'a.test'},{'deny':'*','methods':['GET']}]}", TO("a.test", "8.8.8.8", 443), ALLOW, 0},
        /* by address */
        {"{'rules':[{'allow':'10.0.0.0/8','methods':['GET']}]}", TO(NULL, "10.0.0.1", 80), NEEDS, 0},
        {"{'rules':[{'allow':'10.0.0.0/8','methods':['GET']}]}", REQUEST("a.test", "10.0.0.1", 80, "GET", "/"), ALLOW,
         0},
        {"{'rules':[{'allow':'10.0.0.0/8','methods':['GET']}]}", REQUEST("a.test", "10.0.0.1", 80, "PUT", "/"), DENY,
         BUILTIN},
        /* what can't be normalised is denied by every path */
        {"{'default':'allow','rules':[{'deny':'a.test','path':'/admin*'}]}",
         REQUEST("a.test", "8.8.8.8", 443, "GET", "/%61dmin"), DENY, 0},
        {"{'default':'allow','rules':[{'deny':'a.test','path':'/admin*'}]}",
         REQUEST("a.test", "8.8.8.8", 443, "GET", "/x\\y"), DENY, 0},
        {"{'default':'allow','rules':[{'deny':'a.test','path':'/admin*'}]}",
         REQUEST("a.test", "8.8.8.8", 443, "GET", "//admin"), DENY, 0},
        {"{'default':'allow','rules':[{'deny':'a.test','path':'/admin*'}]}",
         REQUEST("a.test", "8.8.8.8", 443, "GET", "/x;y"), ALLOW, DEFAULT},
        {"{'default':'allow','rules':[{'deny':'a.test','path':'/admin*'}]}",
         REQUEST("a.test", "8.8.8.8", 443, "GET", "/x/%00"), DENY, 0},
        /* the networks of both families are only closed when no request may pass */
        {"{'default':'allow','rules':[{'deny':'0.0.0.0/0'},{'deny':'::/0','methods':['PUT']}]}",
         REQUEST("a.test", NULL, 443, "GET", "/"), ALLOW, DEFAULT},
        {"{'default':'allow','rules':[{'deny':'0.0.0.0/0'},{'deny':'::/0','methods':['PUT']}]}",
         REQUEST("a.test", NULL, 443, "PUT", "/"), DENY, 1},
    };
    (void)state;
    check_all(cases, ARRAY_SIZE(cases));
}

/* How a sandbox's network fields of E2B become a policy: allowOut first, then denyOut, 0.0.0.0/0 being everything. */
static void as_e2b_maps(void **state)
{
    static const char only[] =
        "{'default':'allow','rules':[{'allow':'api.test'},{'allow':'*.good.test'},{'allow':'1.1.1.1'},{'deny':'*'}]}";
    static const char but[] =
        "{'default':'allow','rules':[{'allow':'8.8.8.8'},{'deny':'8.8.0.0/16'},{'deny':'2001:4860::/32'}]}";
    static const struct judged cases[] = {
        {only, TO("api.test", "8.8.8.8", 443), ALLOW, 0},
        {only, TO("x.good.test", "8.8.8.8", 443), ALLOW, 1},
        {only, TO(NULL, "1.1.1.1", 443), ALLOW, 2},
        {only, TO("one.test", "1.1.1.1", 443), ALLOW, 2},
        {only, TO("good.test", "8.8.8.8", 443), DENY, 3},
        {only, TO(NULL, "8.8.8.8", 443), DENY, 3},
        {only, TO(NULL, "2606:4700::1111", 443), DENY, 3},
        {only, TO("api.test", "10.0.0.1", 443), DENY, 3},
        {only, TO("bad.test", NULL, 443), DENY, 3},
        {but, TO(NULL, "8.8.8.8", 443), ALLOW, 0},
        {but, TO(NULL, "8.8.4.4", 443), DENY, 1},
        {but, TO("dns.test", "8.8.4.4", 443), DENY, 1},
        {but, TO("dns.test", "2001:4860:4860::8888", 443), DENY, 2},
        {but, TO("dns.test", "9.9.9.9", 443), ALLOW, DEFAULT},
        {but, TO(NULL, "169.254.169.254", 80), DENY, BUILTIN},
    };
    (void)state;
    check_all(cases, ARRAY_SIZE(cases));
}

static void which_names_may_be_resolved(void **state)
{
    static const struct {
        const char *policy, *name;
        int verdict, rule;
    } cases[] = {
        {OPEN, "a.test", ALLOW, DEFAULT},
        {CLOSED, "a.test", DENY, DEFAULT},
        {"{'rules':[{'allow':'a.test'}]}", "a.test", ALLOW, 0},
        {"{'rules':[{'allow':'a.test'}]}", "secret.a.test", DENY, DEFAULT},
        {"{'rules':[{'allow':'a.test'}]}", "b.test", DENY, DEFAULT},
        {"{'rules':[{'allow':'a.test','ports':[443]}]}", "a.test", ALLOW, 0},
        {"{'rules':[{'allow':'a.test','methods':['GET'],'path':'/v1'}]}", "a.test", ALLOW, 0},
        {"{'rules':[{'allow':'*','ports':[443]}]}", "a.test", ALLOW, 0},
        {"{'default':'allow','rules':[{'deny':'a.test'}]}", "a.test", DENY, 0},
        {"{'default':'allow','rules':[{'deny':'a.test','ports':[25]}]}", "a.test", ALLOW, DEFAULT},
        {"{'default':'allow','rules':[{'deny':'a.test','methods':['POST']}]}", "a.test", ALLOW, DEFAULT},
        {"{'default':'allow','rules':[{'deny':'a.test','path':'/x'},{'deny':'a.test'}]}", "a.test", DENY, 1},
        {"{'rules':[{'deny':'a.test'},{'allow':'*'}]}", "a.test", DENY, 0},
        {"{'rules':[{'allow':'*.test'},{'deny':'a.test'}]}", "a.test", ALLOW, 0},
        /* addresses let no names be resolved, and stop none, unless nothing is left */
        {"{'rules':[{'allow':'10.0.0.0/8'},{'allow':'0.0.0.0/0'}]}", "a.test", DENY, DEFAULT},
        {"{'default':'allow','rules':[{'deny':'8.0.0.0/8'},{'deny':'0.0.0.0/0'}]}", "a.test", ALLOW, DEFAULT},
        {"{'default':'allow','rules':[{'deny':'0.0.0.0/0'},{'deny':'::/0'}]}", "a.test", DENY, 1},
        {"{'default':'allow','rules':[{'deny':'0.0.0.0/0'},{'deny':'::/0','ports':[80]}]}", "a.test", ALLOW, DEFAULT},
        {"{'default':'allow','rules':[{'deny':'0.0.0.0/0'},{'deny':'::/0','methods':['GET']}]}", "a.test", ALLOW,
         DEFAULT},
        {"{'default':'allow','rules':[{'allow':'api.test'},{'deny':'*'}]}", "bad.test", DENY, 1},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct policy *p = parse(cases[i].policy);
        struct policy_answer answer;
        policy_judge_name(p, cases[i].name, &answer);
        if ((int)answer.verdict != cases[i].verdict || answer.rule != cases[i].rule)
            fail_msg("%s %s: %d by %d (%s)", cases[i].policy, cases[i].name, answer.verdict, answer.rule,
                     answer.reason);
        if (answer.suggestion[0]) {
            struct policy *better = taken(p, answer.suggestion);
            policy_judge_name(better, cases[i].name, &answer);
            assert_int_equal(answer.verdict, POLICY_ALLOW);
            policy_unref(better);
        }
        policy_unref(p);
    }
}

static void reasons_and_suggestions(void **state)
{
    static const struct {
        const char *policy;
        struct ask ask;
        const char *reason, *suggestion;
    } cases[] = {
        {OPEN, TO("a.test", "8.8.8.8", 443), "no rule matches, and the default is to allow", ""},
        {CLOSED, TO("a.test", "8.8.8.8", 443), "no rule matches, and the default is to deny",
         "{\"allow\":\"a.test\",\"ports\":[443]}"},
        {CLOSED, TO(NULL, "8.8.8.8", 443), "no rule matches, and the default is to deny",
         "{\"allow\":\"8.8.8.8\",\"ports\":[443]}"},
        {CLOSED, TO("a.test", NULL, 0), "no rule matches, and the default is to deny", "{\"allow\":\"a.test\"}"},
        {CLOSED, TO(NULL, NULL, 443), "no rule matches, and the default is to deny", ""},
        {CLOSED, TO(NULL, "2606:4700::1111", 53), "no rule matches, and the default is to deny",
         "{\"allow\":\"2606:4700::1111\",\"ports\":[53]}"},
        {"{'rules':[{'deny':'*'}]}", TO("a.test", "8.8.8.8", 443), "rule 0 (deny *)",
         "{\"allow\":\"a.test\",\"ports\":[443]}"},
        {"{'rules':[{'deny':'*','ports':[443]}]}", TO("a.test", "8.8.8.8", 443), "rule 0 (deny *)",
         "{\"allow\":\"a.test\",\"ports\":[443]}"},
        {"{'rules':[{'deny':'*','methods':['PUT']}]}", REQUEST("a.test", "8.8.8.8", 443, "PUT", "/"), "rule 0 (deny *)",
         ""},
        {"{'rules':[{'deny':'0.0.0.0/0'}]}", TO("a.test", "8.8.8.8", 443), "rule 0 (deny 0.0.0.0/0)",
         "{\"allow\":\"a.test\",\"ports\":[443]}"},
        /* what somebody has denied by name is not suggested */
        {"{'rules':[{'allow':'b'},{'deny':'a.test'}]}", TO("a.test", "8.8.8.8", 443), "rule 1 (deny a.test)", ""},
        {"{'rules':[{'deny':'*.test'}]}", TO("a.test", "8.8.8.8", 443), "rule 0 (deny *.test)", ""},
        {"{'rules':[{'deny':'8.0.0.0/8'}]}", TO("a.test", "8.8.8.8", 443), "rule 0 (deny 8.0.0.0/8)", ""},
        {"{'rules':[{'allow':'*.test'}]}", TO("a.test", "8.8.8.8", 443), "rule 0 (allow *.test)", ""},
        {"{'rules':[{'allow':'*.test','path':'/'}]}", TO("a.test", "8.8.8.8", 443),
         "rule 0 (allow *.test) is about requests", ""},
        /* what is not public */
        {OPEN, TO(NULL, "10.0.0.1", 22), "10.0.0.1 is private: no rule names it",
         "{\"allow\":\"10.0.0.1\",\"ports\":[22]}"},
        {OPEN, TO("db.test", "10.0.0.1", 22), "10.0.0.1 is private: no rule names it",
         "{\"allow\":\"10.0.0.1\",\"ports\":[22]}"},
        {"{'rules':[{'deny':'*'}]}", TO("db.test", "10.0.0.1", 22), "rule 0 (deny *)",
         "{\"allow\":\"10.0.0.1\",\"ports\":[22]}"},
        {OPEN, TO(NULL, "100.64.0.1", 22), "100.64.0.1 is shared: no rule names it",
         "{\"allow\":\"100.64.0.1\",\"ports\":[22]}"},
        {OPEN, TO(NULL, "127.0.0.1", 22), "127.0.0.1 is loopback: no rule names it", ""},
        {OPEN, TO(NULL, "fe80::1", 22), "fe80::1 is link-local: no rule names it", ""},
        {OPEN, TO(NULL, "ff02::fb", 22), "ff02::fb is multicast: no rule names it", ""},
        {OPEN, TO(NULL, "192.0.2.1", 22), "192.0.2.1 is reserved: no rule names it", ""},
        {OPEN, TO(NULL, "0.0.0.0", 22), "0.0.0.0 is unspecified: no rule names it", ""},
        {OPEN, TO(NULL, "169.254.169.254", 80),
         "169.254.169.254 tells a cloud's machines their secrets: no rule names this very address", ""},
        {"{'rules':[{'deny':'*'}]}", TO(NULL, "169.254.169.254", 80), "rule 0 (deny *)", ""},
        {OPEN, HOST(NULL, "192.168.1.5", 80), "192.168.1.5 is this machine's own: no rule names this very address", ""},
        /* requests */
        {"{'rules':[{'allow':'a.test','methods':['GET']}]}", REQUEST("a.test", "8.8.8.8", 443, "POST", "/gists?x=1"),
         "no rule matches, and the default is to deny",
         "{\"allow\":\"a.test\",\"ports\":[443],\"methods\":[\"POST\"],\"path\":\"/gists\"}"},
        {"{'rules':[{'allow':'a.test','path':'/v1*'}]}", REQUEST("a.test", "8.8.8.8", 80, "GET", "/a/../%7e%20b"),
         "no rule matches, and the default is to deny",
         "{\"allow\":\"a.test\",\"ports\":[80],\"methods\":[\"GET\"],\"path\":\"/~%20b\"}"},
        {"{'rules':[{'allow':'a.test','path':'/v1*'}]}", REQUEST("a.test", "8.8.8.8", 80, "GET", "/v1/..;/x"),
         "no rule matches, and the default is to deny", ""},
        {"{'rules':[{'allow':'a.test','path':'/v1*'}]}", REQUEST("a.test", "8.8.8.8", 80, "GET", "/x*"),
         "no rule matches, and the default is to deny", ""},
        {"{'rules':[{'allow':'a.test','path':'/v1*'}]}", REQUEST("a.test", "8.8.8.8", 80, "get", "/x"),
         "no rule matches, and the default is to deny", ""},
        {"{'rules':[{'allow':'b.test','path':'/v1*'}]}", REQUEST("a.test", "8.8.8.8", 80, "GET", "/x"),
         "no rule matches, and the default is to deny", "{\"allow\":\"a.test\",\"ports\":[80]}"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct policy *p = parse(cases[i].policy);
        struct policy_query q = query_of(&cases[i].ask);
        struct policy_answer answer;
        policy_judge(p, &q, &answer);
        assert_string_equal(answer.reason, cases[i].reason);
        assert_string_equal(answer.suggestion, cases[i].suggestion);
        policy_unref(p);
    }
}

static void what_is_too_long_is_not_suggested(void **state)
{
    struct policy *p = parse("{'rules':[{'allow':'a.test','path':'/v1'}]}");
    char name[HOSTNAME_MAX + 1], path[400];
    struct policy_query q = {.name = "a.test", .port = 443, .method = "GET"};
    struct policy_answer answer;
    size_t longest = sizeof(answer.suggestion) - 1 -
                     strlen("{\"allow\":\"a.test\",\"ports\":[443],\"methods\":[\"GET\"],\"path\":\"\"}");
    (void)state;
    memset(path, 'p', sizeof(path));
    path[0] = '/';
    q.path = str_n(path, longest);
    policy_judge(p, &q, &answer);
    assert_int_equal(strlen(answer.suggestion), sizeof(answer.suggestion) - 1);
    q.path = str_n(path, longest + 1);
    policy_judge(p, &q, &answer);
    assert_string_equal(answer.suggestion, "");

    memset(name, 'n', HOSTNAME_MAX);
    name[63] = name[127] = name[191] = '.';
    name[HOSTNAME_MAX] = '\0';
    q = (struct policy_query){.name = name, .port = 65535};
    policy_judge(p, &q, &answer);
    assert_int_equal(strlen(answer.suggestion), HOSTNAME_MAX + strlen("{\"allow\":\"\",\"ports\":[65535]}"));
    policy_unref(p);
}

static void what_is_intercepted(void **state)
{
    static const struct {
        const char *policy, *name;
        uint16_t port;
        bool is_intercepted;
    } cases[] = {
        {OPEN, "a.test", 443, false},
        {"{'rules':[{'allow':'a.test'}]}", "a.test", 443, false},
        {"{'rules':[{'allow':'a.test','methods':['GET']}]}", "a.test", 443, true},
        {"{'rules':[{'allow':'a.test','methods':['GET']}]}", "b.test", 443, false},
        {"{'rules':[{'allow':'a.test','path':'/','ports':[443]}]}", "a.test", 443, true},
        {"{'rules':[{'allow':'a.test','path':'/','ports':[443]}]}", "a.test", 8443, false},
        {"{'rules':[{'deny':'*.a.test','methods':['POST']}]}", "x.a.test", 443, true},
        {"{'rules':[{'deny':'*.a.test','methods':['POST']}]}", "a.test", 443, false},
        {"{'rules':[{'allow':'a.test'},{'deny':'*','methods':['POST']}]}", "a.test", 443, false},
        {"{'rules':[{'allow':'a.test'},{'deny':'*','methods':['POST']}]}", "b.test", 443, true},
        /* an address is not known here: policy_judge() says */
        {"{'rules':[{'allow':'10.0.0.0/8','methods':['GET']}]}", "a.test", 443, false},
        {"{'default':'allow','inject':[{'host':'a.test','headers':[{'name':'x','value':'y'}]}]}", "a.test", 443, true},
        {"{'default':'allow','inject':[{'host':'a.test','headers':[{'name':'x','value':'y'}]}]}", "b.a.test", 443,
         false},
        {"{'default':'allow','inject':[{'host':'*.a.test','ports':[443],'path':'/x','headers':[{'name':'x','value':'y'}]}]}",
         "b.a.test", 443, true},
        {"{'default':'allow','inject':[{'host':'*.a.test','ports':[443],'path':'/x','headers':[{'name':'x','value':'y'}]}]}",
         "b.a.test", 80, false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct policy *p = parse(cases[i].policy);
        if (policy_intercepts(p, cases[i].name, cases[i].port) != cases[i].is_intercepted)
            fail_msg("%s %s", cases[i].policy, cases[i].name);
        assert_int_equal(policy_intercepts_anything(p), strstr(cases[i].policy, "methods") ||
                                                            strstr(cases[i].policy, "path") ||
                                                            strstr(cases[i].policy, "inject"));
        policy_unref(p);
    }
}

static void note(void *ctx, const struct policy_inject *in)
{
    char *seen = ctx;
    size_t n = strlen(seen);
    snprintf(seen + n, 64 - n, "%s ", in->n_headers > 0 ? in->headers[0].value : in->placeholders[0].secret);
}

static void what_is_injected_where(void **state)
{
    static const char text[] =
        "{'default':'allow','inject':["
        "{'host':'a.test','headers':[{'name':'Authorization','value':'one'},{'name':'x-b','value':'two'}]},"
        "{'host':'*.a.test','ports':[443],'methods':['POST'],'path':'/v1/*','placeholders':[{'sentinel':'sentinel-1','secret':'THREE'}]},"
        "{'host':'b.a.test','headers':[{'name':'x','value':'four'}],'placeholders':[{'sentinel':'sentinel-2','secret':'A'},"
        "{'sentinel':'sentinel-3','secret':'B'}]}]}";
    static const struct {
        struct ask ask;
        const char *seen;
    } cases[] = {
        {REQUEST("a.test", "8.8.8.8", 443, "GET", "/"), "one "},
        {REQUEST("a.test", NULL, 8443, NULL, NULL), "one "},
        {REQUEST("x.a.test", "8.8.8.8", 443, "POST", "/v1/x"), "THREE "},
        {REQUEST("b.a.test", "8.8.8.8", 443, "POST", "/v1/x"), "THREE four "},
        {REQUEST("b.a.test", "8.8.8.8", 80, "POST", "/v1/x"), "four "},
        {REQUEST("b.a.test", "8.8.8.8", 443, "PUT", "/v1/x"), "four "},
        {REQUEST("b.a.test", "8.8.8.8", 443, "post", "/v1/x"), "four "},
        {REQUEST("b.a.test", "8.8.8.8", 443, NULL, "/v1/x"), "four "},
        {REQUEST("b.a.test", "8.8.8.8", 443, "POST", NULL), "four "},
        {REQUEST("x.a.test", "8.8.8.8", 0, "POST", "/v1/x"), ""},
        {REQUEST("x.a.test", "8.8.8.8", 443, "POST", "/v1/../x"), ""},
        {REQUEST("x.a.test", "8.8.8.8", 443, "POST", "/v1/..;/x"), ""},
        {REQUEST("x.a.test", "8.8.8.8", 443, "POST", "/v1/%2e%2e%2fx"), ""},
        {REQUEST("x.a.test", "8.8.8.8", 443, "POST", "/v1/a\\b"), ""},
        {REQUEST("xa.test", "8.8.8.8", 443, "POST", "/v1/x"), ""},
        {REQUEST("a.test.evil.test", "8.8.8.8", 443, "POST", "/v1/x"), ""},
        {REQUEST(NULL, "8.8.8.8", 443, "POST", "/v1/x"), ""},
    };
    struct policy *p = parse(text), *none = parse(OPEN);
    const struct policy_placeholder *all = NULL;
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct policy_query q = query_of(&cases[i].ask);
        char seen[64] = "";
        policy_each_inject(p, &q, note, seen);
        assert_string_equal(seen, cases[i].seen);
    }
    assert_int_equal(policy_sentinels(p, &all), 3);
    assert_string_equal(all[0].sentinel, "sentinel-1");
    assert_string_equal(all[0].secret, "THREE");
    assert_string_equal(all[2].sentinel, "sentinel-3");
    assert_string_equal(all[2].secret, "B");
    assert_int_equal(policy_sentinels(none, &all), 0);
    policy_unref(none);
    policy_unref(p);
}

/* The last of as many rules as there may be. */
static void a_full_policy(void **state)
{
    json_t *json = json_pack("{s[]}", "rules"), *rules = json_object_get(json, "rules");
    struct policy_query q = {.name = "host-1023.example.com", .port = 443};
    struct policy_answer answer;
    struct policy *p;
    (void)state;
    for (int i = 0; i < POLICY_RULES_MAX; i++) {
        char name[64];
        snprintf(name, sizeof(name), "host-%d.example.com", i);
        json_array_append_new(rules, json_pack("{ss}", i % 2 ? "allow" : "deny", name));
    }
    p = parse_json(json);
    json_decref(json);
    policy_judge(p, &q, &answer);
    assert_int_equal(answer.verdict, POLICY_ALLOW);
    assert_int_equal(answer.rule, 1023);
    assert_string_equal(answer.reason, "rule 1023 (allow host-1023.example.com)");
    q.name = "host-1024.example.com";
    policy_judge(p, &q, &answer);
    assert_int_equal(answer.rule, POLICY_RULE_DEFAULT);
    policy_unref(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_rule_that_matches_decides),
        cmocka_unit_test(names_and_addresses_in_one_order),
        cmocka_unit_test(ports_narrow_a_rule),
        cmocka_unit_test(what_is_not_public_needs_a_rule_that_names_it),
        cmocka_unit_test(which_rules_name_what_is_not_public),
        cmocka_unit_test(requests_are_judged_where_they_are_seen),
        cmocka_unit_test(as_e2b_maps),
        cmocka_unit_test(which_names_may_be_resolved),
        cmocka_unit_test(reasons_and_suggestions),
        cmocka_unit_test(what_is_too_long_is_not_suggested),
        cmocka_unit_test(what_is_intercepted),
        cmocka_unit_test(what_is_injected_where),
        cmocka_unit_test(a_full_policy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
