/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host that a policy blocks can be asked about (the guard's "blocked_hosts: ask"): the connection is refused, as any,
 * and an approval waits. When it is allowed, the rule that cove-egress suggested goes to the front of the sandbox's
 * policy, and the next connection gets through. What was denied is not asked again.
 */
#include "base/mem.h"
#include "sandbox/guard/guard_life.h"
#include "sandbox/hold.h"
#include "sandbox/network/network_internal.h"

enum { ASKS_MAX = 8, REFUSED_MAX = 64 };

struct network_ask {
    struct list node; /* of its network */
    struct network *network;
    struct holder holder;
    json_t *rule;
    char *data; /* the rule, as text */
};

static const struct actor ask_actor = {.name = "guard", .is_own = true};

static void ask_free(struct network_ask *a)
{
    list_remove(&a->node);
    holder_fini(&a->holder);
    json_decref(a->rule);
    MEM_FREE(a->data, a);
}

static int ask_hold(struct network_ask *a, struct hold **ret_hold, struct err *err)
{
    struct sandbox *sb = a->network->sb;
    const struct guard_question q = {.id = sb->info.id,
                                     .kind = EVENT_NET_POLICY,
                                     .actor = str_of(ask_actor.name),
                                     .data = str_of(a->data),
                                     .tenant = sb->info.tenant};
    const char *why = NULL;
    return hold_ask(sb->core, &a->holder, &q, &(struct guard_answer){.rule = "blocked_hosts", .risk = RISK_UNKNOWN},
                    ret_hold, &why, err);
}

static void ask_on_set(void *ctx, const struct err *err)
{
    (void)err; /* it is in the log, and the next connection asks again */
    sandbox_unref(ctx);
}

/* The rule in front of all others. */
static void ask_allow(struct network_ask *a)
{
    struct sandbox *sb = a->network->sb;
    json_t *policy = json_deep_copy(network_policy(sb)), *rules = json_object_get(policy, "rules");
    const struct network_spec spec = {
        .policy = policy, .fields = network_fields(sb), .allow_internet = sb->info.allow_internet};
    struct err err;
    if (!rules)
        (void)json_object_set_new(policy, "rules", rules = json_array());
    (void)json_array_insert(rules, 0, a->rule);
    if (network_set(sb, &ask_actor, &spec, ask_on_set, sandbox_ref(sb), &err) < 0) {
        action_fruitless(sb->core, sb->info.tenant, 0, EVENT_NET_POLICY, &err);
        sandbox_unref(sb);
    }
    json_decref(policy);
}

static void ask_again(struct holder *holder)
{
    struct network_ask *a = container_of(holder, struct network_ask, holder);
    struct network *n = a->network;
    struct hold *hold = NULL;
    struct err err;
    if (ask_hold(a, &hold, &err) == 0) {
        (void)hold_use(hold);
        ask_allow(a);
    } else if (json_array_size(n->refused) < REFUSED_MAX) {
        n->refused = n->refused ? n->refused : json_array();
        (void)json_array_append(n->refused, a->rule);
    }
    ask_free(a);
}

static bool ask_has(const json_t *rules, json_t *rule)
{
    JSON_FOREACH (one, rules)
        if (json_equal(one, rule))
            return true;
    return false;
}

/* It waits, was denied, or was allowed meanwhile: denials are told with a delay. */
static bool ask_is_known(struct network *n, json_t *rule, size_t *ret_n)
{
    *ret_n = 0;
    LIST_FOREACH (struct network_ask, a, &n->asks, node) {
        ++*ret_n;
        if (json_equal(a->rule, rule))
            return true;
    }
    return ask_has(n->refused, rule) || ask_has(json_object_get(n->policy, "rules"), rule);
}

void network_ask(struct network *n, const char *suggestion)
{
    json_t *rule = suggestion ? json_loads(suggestion, JSON_REJECT_DUPLICATES, NULL) : NULL;
    struct hold *hold;
    struct err err = {0};
    size_t asks;
    if (!json_object_get(rule, "allow") || !guard_asks_hosts(n->sb) || ask_is_known(n, rule, &asks) ||
        asks >= ASKS_MAX) {
        json_decref(rule);
        return;
    }
    struct network_ask *a = mem_new(struct network_ask);
    *a = (struct network_ask){.network = n, .rule = rule, .data = json_dumps(rule, JSON_COMPACT)};
    holder_init(&a->holder, ask_again);
    list_append(&n->asks, &a->node);
    if (ask_hold(a, &hold, &err) < 0 && err.reason != ERR_HELD)
        ask_free(a);
}

void network_asks_free(struct network *n)
{
    LIST_FOREACH (struct network_ask, a, &n->asks, node)
        ask_free(a);
    json_decref(n->refused);
}
