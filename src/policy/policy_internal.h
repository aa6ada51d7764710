/* SPDX-License-Identifier: Apache-2.0 */
/* What a policy is made of. All of it lives in the policy's arena and never changes once policy_parse() returned. */
#pragma once

#include "base/arena.h"
#include "policy/policy.h"
#include "policy/request_path.h"

enum { POLICY_METHOD_MAX = 32, POLICY_VALUE_MAX = 40 * 1024, POLICY_HEADER_NAME_MAX = 64 };
enum { POLICY_SENTINEL_SHORT = 1, POLICY_SENTINEL_MIN = 8, POLICY_SENTINEL_MAX = 512, POLICY_SECRET_NAME_MAX = 64 };

enum target_kind { TARGET_ANY, TARGET_NAME, TARGET_BELOW /* "*.name" */, TARGET_NET };

struct target {
    enum target_kind kind;
    struct netcidr net; /* TARGET_NET */
    struct str name;    /* TARGET_NAME, TARGET_BELOW: then with the dot in front */
    const char *text;   /* as people write it, normalised */
};

struct port_range {
    uint16_t first, last;
};

/* Which connections to a target, and which requests in them. */
struct scope {
    const struct port_range *ports;
    const char **methods;
    const struct path_pattern *path; /* NULL: all */
    uint8_t n_ports, n_methods;      /* 0: all */
};

struct rule {
    bool is_allow;
    bool opens;         /* names what is not public: a single address, or a network without a public address in it */
    bool opens_special; /* a single address: names even this machine's own, and those of metadata */
    bool allows_ech;
    struct target target;
    struct scope scope;
};

struct injection {
    struct target host;
    struct scope scope;
    bool by_tls, by_plain;
    struct policy_inject what;
};

struct policy {
    unsigned refs;
    bool allows_by_default;
    bool intercepts;
    struct rule *rules;
    size_t n_rules;
    struct injection *injections;
    size_t n_injections;
    struct policy_placeholder *placeholders; /* of all injections, one behind the other */
    size_t n_placeholders;
    struct arena arena; /* owns all of the above */
};

enum { POLICY_PLACES = 4 };
extern const char *const policy_places[POLICY_PLACES]; /* by the bits of enum policy_place */

static inline bool scope_is_about_requests(const struct scope *s)
{
    return s->n_methods > 0 || s->path;
}

/* Whether the name (not NULL) is meant; a network is never. */
static inline bool target_has_name(const struct target *t, struct str name)
{
    switch (t->kind) {
    case TARGET_ANY:
        return true;
    case TARGET_NAME:
        return str_eq(t->name, name);
    case TARGET_BELOW:
        return name.n > t->name.n && memcmp(name.p + name.n - t->name.n, t->name.p, t->name.n) == 0;
    case TARGET_NET:
        break;
    }
    return false;
}
