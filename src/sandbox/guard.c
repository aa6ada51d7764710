/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/guard.h"

const struct guard guard_open = {.otherwise = GUARD_ALLOW};

enum guard_verdict guard_decide(const struct guard *g, enum event_kind kind, struct str actor, const char **ret_rule)
{
    for (size_t i = 0; i < g->n; i++) {
        const struct guard_rule *rule = &g->rules[i];
        if (rule->kind != EVENT_KIND_UNKNOWN && rule->kind != kind)
            continue;
        if (rule->actor && !str_starts(actor, str_of(rule->actor)))
            continue;
        *ret_rule = rule->name;
        return rule->verdict;
    }
    *ret_rule = "default";
    return g->otherwise;
}
