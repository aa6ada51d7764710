/* SPDX-License-Identifier: Apache-2.0 */
/* The egress service: their policy is a view of ours. Errors are plain text. */
#include "api/opensandbox/handlers.h"
#include "policy/policy.h"

void egress_set(struct call *c, json_t *policy, const json_t *fields, network_fn done)
{
    const char *otherwise = json_string_value(json_object_get(policy, "default"));
    const struct network_spec spec = {
        .policy = policy, .fields = fields, .allow_internet = otherwise && strcmp(otherwise, "allow") == 0};
    call_held(c, network_set(c->sandbox, &c->actor, &spec, done, call_hold(c), &c->err));
}

json_t *egress_read_policy(const json_t *network, struct err *err)
{
    AUTO_JSON json_t *rules = json_array();
    struct str otherwise = STR("deny"), action, target;
    json_t *egress = NULL;
    if (!json_is_object(network)) {
        (void)err_set(err, ERR_INVALID_ARGUMENT, "networkPolicy must be an object");
        return NULL;
    }
    if (JSON_WANTS(network, NULL, err, JSON_WANT_STR("defaultAction", &otherwise), JSON_WANT_ARRAY("egress", &egress)) <
        0) {
        (void)err_prefix(err, "networkPolicy");
        return NULL;
    }
    JSON_FOREACH_AT (i, one, egress) {
        action = STR("deny");
        target = STR("");
        if (!json_is_object(one) ||
            JSON_WANTS(one, NULL, err, JSON_WANT_STR("action", &action), JSON_NEED_STR("target", &target)) < 0 ||
            (!str_eqc(action, "allow") && !str_eqc(action, "deny"))) {
            (void)err_set(err, ERR_INVALID_ARGUMENT,
                          "networkPolicy.egress[%zu] must be {\"action\": \"allow\" or \"deny\", \"target\": a "
                          "name, \"*.name\", an address or a network}",
                          i);
            return NULL;
        }
        (void)json_array_append_new(
            rules, json_pack("{s:s%}", str_eqc(action, "allow") ? "allow" : "deny", target.p, target.n));
    }
    if (!str_eqc(otherwise, "allow") && !str_eqc(otherwise, "deny")) {
        (void)err_set(err, ERR_INVALID_ARGUMENT, "networkPolicy.defaultAction must be \"allow\" or \"deny\"");
        return NULL;
    }
    return json_pack("{s:s%,s:O}", "default", otherwise.p, otherwise.n, "rules", rules);
}

/* Ours as theirs. Rules that they have no words for (ports, requests) are shown by their target. */
static json_t *egress_policy_json(const struct sandbox *sb)
{
    const json_t *ours = network_policy(sb), *rules = json_object_get(ours, "rules");
    const char *otherwise = json_string_value(json_object_get(ours, "default"));
    json_t *egress = json_array();
    JSON_FOREACH (rule, rules) {
        json_t *allow = json_object_get(rule, "allow");
        (void)json_array_append_new(egress, json_pack("{s:s,s:O}", "action", allow ? "allow" : "deny", "target",
                                                      allow ? allow : json_object_get(rule, "deny")));
    }
    return json_pack("{s:s,s:o}", "defaultAction", otherwise ? otherwise : "deny", "egress", egress);
}

static json_t *egress_status_json(const struct sandbox *sb, const char *reason)
{
    json_t *answer = json_pack("{s:s,s:s,s:s,s:o}", "status", network_is_up(sb) ? "ok" : "unavailable", "mode",
                               "enforce", "enforcementMode", "dns+nft", "policy", egress_policy_json(sb));
    if (reason)
        (void)json_object_set_new(answer, "reason", json_string(reason));
    return answer;
}

static void get_policy(struct call *c)
{
    call_value(c, 200, egress_status_json(c->sandbox, NULL));
}

static void on_set(void *ctx, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (c)
        call_value(c, 200, egress_status_json(c->sandbox, NULL));
}

/* Steals policy, which is ours. What is injected stays. */
static void set_policy(struct call *c, json_t *policy)
{
    json_t *inject = json_object_get(network_policy(c->sandbox), "inject");
    if (inject)
        (void)json_object_set(policy, "inject", inject);
    egress_set(c, policy, network_fields(c->sandbox), on_set);
    json_decref(policy);
}

static const char *target_of(const json_t *rule)
{
    const json_t *allow = json_object_get(rule, "allow");
    return json_string_value(allow ? allow : json_object_get(rule, "deny"));
}

static bool egress_is_named(const json_t *rules, const char *target)
{
    JSON_FOREACH (rule, rules)
        if (target && target_of(rule) && strcmp(target_of(rule), target) == 0)
            return true;
    return false;
}

/* In front of what is there go the new rules, the first of each target; old ones of the same targets go. */
static json_t *merged(const json_t *ours, const json_t *rules)
{
    json_t *all = json_array(), *policy = json_copy((json_t *)ours);
    JSON_FOREACH (rule, rules)
        if (!egress_is_named(all, target_of(rule)))
            (void)json_array_append(all, rule);
    JSON_FOREACH (rule, json_object_get(ours, "rules"))
        if (!egress_is_named(rules, target_of(rule)))
            (void)json_array_append(all, rule);
    (void)json_object_set_new(policy, "rules", all);
    return policy;
}

/* False: answered. */
static bool egress_has_list(struct call *c)
{
    if (!c->body && c->err.code == ERR_OUT_OF_RANGE)
        call_fail(c, 413, "the body is too large");
    else if (!json_array_size(c->body))
        call_fail(c, 400, "the body must be a non-empty list");
    return json_array_size(c->body);
}

static void patch_policy(struct call *c)
{
    if (!egress_has_list(c))
        return;
    const json_t *ours = network_policy(c->sandbox);
    AUTO_JSON json_t *wanted = json_pack("{s:O}", "egress", c->body);
    AUTO_JSON json_t *theirs = egress_read_policy(wanted, &c->err);
    if (!theirs)
        call_fail_err(c, &c->err);
    else if (json_array_size(json_object_get(ours, "rules")) + json_array_size(c->body) > POLICY_RULES_MAX)
        call_fail(c, 413, "a policy has at most %d rules", POLICY_RULES_MAX);
    else
        set_policy(c, merged(ours, json_object_get(theirs, "rules")));
}

static void remove_rules(struct call *c)
{
    const json_t *ours = network_policy(c->sandbox);
    AUTO_JSON json_t *kept = json_array();
    if (!egress_has_list(c))
        return;
    JSON_FOREACH (rule, json_object_get(ours, "rules")) {
        bool goes = false;
        JSON_FOREACH (target, c->body)
            goes |=
                json_is_string(target) && target_of(rule) && strcmp(json_string_value(target), target_of(rule)) == 0;
        if (!goes)
            (void)json_array_append(kept, rule);
    }
    if (json_array_size(kept) == json_array_size(json_object_get(ours, "rules"))) {
        call_value(c, 200, egress_status_json(c->sandbox, "no rule has such a target"));
        return;
    }
    json_t *policy = json_copy((json_t *)ours);
    (void)json_object_set(policy, "rules", kept);
    set_policy(c, policy);
}

static void replace_policy(struct call *c)
{
    json_t *policy = egress_read_policy(c->body, &c->err);
    if (call_ok(c, policy ? 0 : -1))
        set_policy(c, policy);
}

static void egress_health(struct call *c)
{
    call_respond(c, network_is_up(c->sandbox) ? 200 : 503, "text/plain",
                 network_is_up(c->sandbox) ? STR("ok") : STR("not ready"));
}

/* ---- extensions: resources of other APIs, of which this one knows none ---- */

static json_t *extensions_json(void)
{
    return json_pack("{s:i,s:[],s:[]}", "revision", 0, "resources", "conditions");
}

static void get_capabilities(struct call *c)
{
    call_value(c, 200, json_pack("{s:s,s:[]}", "protocolVersion", "extensions.opensandbox.io/v1alpha1", "resources"));
}

static void get_extensions(struct call *c)
{
    call_value(c, 200, extensions_json());
}

static void replace_extensions(struct call *c)
{
    json_t *resources = NULL;
    int64_t expected = 0;
    if (!CALL_WANTS(c, JSON_WANT_INT("expectedRevision", 0, INT32_MAX, &expected),
                    JSON_WANT_ARRAY("resources", &resources)))
        return;
    if (json_array_size(resources))
        opensandbox_fail(c, 422, "UNSUPPORTED_EXTENSION", "no extension resource is known here: see /capabilities");
    else if (expected)
        opensandbox_fail(c, 409, "REVISION_CONFLICT", "the revision is 0");
    else
        call_value(c, 200, extensions_json());
}

const struct route egress_routes[] = {
    {HTTP_METHOD_GET, "/policy", get_policy, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_PATCH, "/policy", patch_policy, ROUTE_LIST | ROUTE_SANDBOX | ROUTE_WIDE, NULL},
    {HTTP_METHOD_DELETE, "/policy", remove_rules, ROUTE_LIST | ROUTE_SANDBOX | ROUTE_WIDE, NULL},
    {HTTP_METHOD_POST, "/policy", replace_policy, ROUTE_BODY_MAY | ROUTE_SANDBOX | ROUTE_WIDE, NULL},
    {HTTP_METHOD_PUT, "/policy", replace_policy, ROUTE_BODY_MAY | ROUTE_SANDBOX | ROUTE_WIDE, NULL},
    {HTTP_METHOD_GET, "/capabilities", get_capabilities, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/extensions", get_extensions, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_PUT, "/extensions", replace_extensions, ROUTE_BODY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/healthz", egress_health, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/credential-vault", credential_vault_make, ROUTE_BODY | ROUTE_SANDBOX | ROUTE_WIDE, NULL},
    {HTTP_METHOD_GET, "/credential-vault", credential_vault_get, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_PATCH, "/credential-vault", credential_vault_patch, ROUTE_BODY | ROUTE_SANDBOX | ROUTE_WIDE, NULL},
    {HTTP_METHOD_DELETE, "/credential-vault", credential_vault_remove, ROUTE_SANDBOX | ROUTE_WIDE, NULL},
    {HTTP_METHOD_GET, "/credential-vault/credentials", credential_vault_get, ROUTE_SANDBOX, "credentials"},
    {HTTP_METHOD_GET, "/credential-vault/bindings", credential_vault_get, ROUTE_SANDBOX, "bindings"},
    {HTTP_METHOD_GET, "/credential-vault/credentials/{}", credential_vault_get_one, ROUTE_SANDBOX, "credentials"},
    {HTTP_METHOD_GET, "/credential-vault/bindings/{}", credential_vault_get_one, ROUTE_SANDBOX, "bindings"},
};
const size_t egress_n_routes = ARRAY_SIZE(egress_routes);
