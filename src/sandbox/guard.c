/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/guard.h"

static struct guard_rules guard_no_rules = {.otherwise = GUARD_ALLOW};
const struct guard guard_open = {.decide = guard_rules_decide, .ctx = &guard_no_rules};

enum guard_verdict guard_rules_decide(void *ctx, const struct guard_question *q, const char **ret_rule)
{
    const struct guard_rules *g = ctx;
    for (size_t i = 0; i < g->n; i++) {
        const struct guard_rule *rule = &g->rules[i];
        if (rule->kind != EVENT_KIND_UNKNOWN && rule->kind != q->kind)
            continue;
        if (rule->actor && !str_starts(q->actor, str_of(rule->actor)))
            continue;
        *ret_rule = rule->name;
        return rule->verdict;
    }
    *ret_rule = "default";
    return g->otherwise;
}
