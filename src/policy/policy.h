/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox may reach: an ordered list of rules, the first that matches decides, else the default ("deny" when it
 * is not given) does. Immutable once parsed, counted.
 *
 *   {"default": "deny",
 *    "rules": [{"deny": "bad.example.com"},
 *              {"allow": "*.example.com", "ports": [443, "8000-8099"], "methods": ["GET", "HEAD"], "path": "/v1*"},
 *              {"allow": "cdn.example", "ech": "allow"},
 *              {"allow": "10.1.0.0/16"}],
 *    "inject": [{"host": "api.example.com", "ports": [443], "methods": ["POST"], "path": "/v1*",
 *                "headers": [{"name": "authorization", "value": "Bearer ${secret:EXAMPLE}"}],
 *                "placeholders": [{"sentinel": "sk-cove-...", "secret": "EXAMPLE", "headers": ["x-team"]},
 *                                 {"sentinel": "__key__", "value": "${sealed:...}", "in": ["query", "body"]}]},
 *               {"host": "old.example.com", "schemes": ["http"], "headers": [...]}]}
 *
 *  1. A target is a name, "*.name", "*" (everything, by name or address), an address or a network. Names match what the
 *     client says that it wants (DNS question, SNI, Host); addresses match what is dialled. An address in a rule
 *     matches connections by name too: a denied network stays denied whatever its hosts are called, unless an earlier
 *     rule allowed the name. As long as the address is not known, no address matches.
 *  2. Without "ports" all ports. With "methods" or "path" a rule is about HTTP requests: it can only be judged where
 *     the request is seen, so TLS to such a host is intercepted. Paths match by prefix when they end in "*", else
 *     whole; they are compared after removing dot segments and decoding what needs no encoding. Where servers read a
 *     path differently ("%2F", ";", "//"), an allow rule must match all readings and a deny rule any; a path that can't
 *     be normalised matches no allow rule and every deny rule (request_path.h).
 *  3. What is not public (netaddr_class(), or the host's own addresses) is refused whatever the rules say, unless the
 *     rule that decides is an address or a network without a public address in it; the host's own and metadata
 *     addresses ask for that very address. A name never opens it, and neither does the default: an allow rule that
 *     can't open an address does not match there.
 *  4. Nothing is answered in DNS but names that the default or a rule with a name or "*" could allow
 *     (policy_judge_name): a rule with an address lets no names be resolved, or each would be a way out for data.
 *  5. Of a ClientHello with an encrypted part (ECH) only the outer name is seen. Where it is passed through, it is
 *     allowed when the rule that decides says "ech": "allow", or when whatever name would be (policy_judge_any_name).
 *  6. "inject" is not about allowing: what is injected where must be allowed as well. Values are templates;
 *     ${secret:NAME} stands for a secret of the vault, ${sealed:BASE64} for one that only the vault can open. Nothing
 *     goes out in the clear unless "schemes" says "http".
 */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "policy/hostname.h"
#include "policy/netaddr.h"

enum {
    POLICY_RULES_MAX = 1024,
    POLICY_INJECT_MAX = 64,
    POLICY_HEADERS_MAX = 20,
    POLICY_PORT_RANGES_MAX = 16,
    POLICY_METHODS_MAX = 16,
    POLICY_JSON_MAX = 192 * 1024,
};

struct policy;

enum policy_verdict {
    POLICY_DENY,
    POLICY_ALLOW,
    POLICY_NEEDS_REQUEST /* rules about HTTP requests decide: show one */
};

/* Unknown members, wrong types, bad targets and too many of anything are ERR_INVALID_ARGUMENT with a message that names
 * the place ("rules[3].ports[0]: ..."). */
int policy_parse(const json_t *json, struct policy **ret_policy, struct err *err) WARN_UNUSED;
json_t *policy_json(const struct policy *p); /* new reference: what it was parsed from, normalised */

/* What is probably not what was meant, as an array of texts for people; NULL: nothing. New reference. */
json_t *policy_warnings(const struct policy *p);

struct policy *policy_ref(struct policy *p);
void policy_unref(struct policy *p);
DEFINE_AUTO(struct policy *, policy_unref)

struct policy_query {
    const char *name;    /* normalised; NULL: none, judge by address */
    struct netaddr addr; /* family 0: not known yet */
    bool is_host;        /* the address is one of this machine's own */
    uint16_t port;       /* 0: not known (DNS) */
    bool is_plain;       /* HTTP without TLS; about injections alone */
    const char *method;  /* NULL: not seen */
    struct str path;     /* of the request, raw, with query; p NULL: not seen */
};

enum { POLICY_RULE_DEFAULT = -1, POLICY_RULE_BUILTIN = -2 };

struct policy_answer {
    enum policy_verdict verdict;
    int rule;         /* index of the rule that decided, or POLICY_RULE_* */
    bool allows_ech;  /* that rule does */
    char reason[160]; /* "rule 3 (deny 10.0.0.0/8)", "10.0.0.1 is private: no rule names it" */
    /* The rule, as JSON, that would allow it; empty when it is allowed or when none should be suggested. */
    char suggestion[320];
};

void policy_judge(const struct policy *p, const struct policy_query *q, struct policy_answer *ret_answer);

/* As long as no request is seen: of the worst that could follow, so never POLICY_NEEDS_REQUEST. The address and the
 * port must be known. */
void policy_judge_worst(const struct policy *p, const struct policy_query *q, struct policy_answer *ret_answer);

/* The same, and of the worst that any name would bring; q->name is NULL. What is allowed then is so whatever a client
 * hides. */
void policy_judge_any_name(const struct policy *p, const struct policy_query *q, struct policy_answer *ret_answer);

/* May this name be resolved? Allowed when some connection to it could be. */
void policy_judge_name(const struct policy *p, const char *name, struct policy_answer *ret_answer);

/*
 * Must TLS to this name and port be intercepted, because rules ask about requests, or something is injected?
 * POLICY_NEEDS_REQUEST says that it must, too, and knows the address.
 */
bool policy_intercepts(const struct policy *p, const char *name, uint16_t port);
bool policy_injects(const struct policy *p, const char *name, uint16_t port, bool is_plain); /* into some requests */
bool policy_intercepts_anything(const struct policy *p);

/* What to do to a request that was allowed. Borrowed from the policy. */
struct policy_header {
    const char *name; /* lower case */
    const char *value;
};
enum policy_place {
    POLICY_IN_HEADER = 1 << 0,
    POLICY_IN_PATH = 1 << 1,
    POLICY_IN_QUERY = 1 << 2,
    POLICY_IN_BODY = 1 << 3,
};
struct policy_placeholder {
    const char *sentinel;
    const char *secret;         /* name in the vault; NULL: there is a value */
    const char *value;          /* a template, as a header's; of a secret, a reference to it */
    unsigned places;            /* enum policy_place */
    const char *const *headers; /* in lower case: in these alone it is replaced; "*": in all */
    size_t n_headers;           /* 0: in those whose names say that they carry credentials */
};
struct policy_inject {
    const struct policy_header *headers;
    size_t n_headers;
    const struct policy_placeholder *placeholders;
    size_t n_placeholders;
};
/* Calls fn for each injection that matches, in order. That q->is_plain says whether the request goes out in the clear
 * is the caller's to see to. */
void policy_each_inject(const struct policy *p, const struct policy_query *q,
                        void (*fn)(void *ctx, const struct policy_inject *i), void *ctx);

/* Is it replaced in a header of this name? */
bool policy_placeholder_is_for(const struct policy_placeholder *p, struct str header);

/* Every sentinel of the policy, wherever it belongs: to notice one that goes elsewhere. */
size_t policy_sentinels(const struct policy *p, const struct policy_placeholder **ret_all);
