/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/policy.h"
#include "base/mem.h"
#include "policy/policy_internal.h"

struct policy *policy_ref(struct policy *p)
{
    assert(p->refs > 0);
    p->refs++;
    return p;
}

void policy_unref(struct policy *p)
{
    if (!p)
        return;
    assert(p->refs > 0);
    if (--p->refs == 0) {
        arena_wipe(&p->arena); /* header values that are not sealed yet */
        mem_free(p);
    }
}

const char *const policy_places[POLICY_PLACES] = {"header", "path", "query", "body"};

/* Like mem_alloc(), these do not fail: texts were checked, and running out of memory for a bounded object is not
 * survivable. */
static void policy_put(json_t *object, const char *name, json_t *value)
{
    int r = json_object_set_new(object, name, value);
    assert(r == 0);
}

static void policy_append(json_t *array, json_t *value)
{
    int r = json_array_append_new(array, value);
    assert(r == 0);
}

static void put_scope(json_t *object, const struct scope *s)
{
    if (s->n_ports > 0) {
        json_t *ports = json_array();
        for (size_t i = 0; i < s->n_ports; i++) {
            const struct port_range *r = &s->ports[i];
            char text[16];
            if (r->first != r->last)
                snprintf(text, sizeof(text), "%u-%u", (unsigned)r->first, (unsigned)r->last);
            policy_append(ports, r->first == r->last ? json_integer(r->first) : json_string(text));
        }
        policy_put(object, "ports", ports);
    }
    if (s->n_methods > 0) {
        json_t *methods = json_array();
        for (size_t i = 0; i < s->n_methods; i++)
            policy_append(methods, json_string(s->methods[i]));
        policy_put(object, "methods", methods);
    }
    if (s->path)
        policy_put(object, "path", json_string(s->path->text));
}

static json_t *rule_json(const struct rule *r)
{
    json_t *object = json_object();
    policy_put(object, r->is_allow ? "allow" : "deny", json_string(r->target.text));
    put_scope(object, &r->scope);
    if (r->allows_ech)
        policy_put(object, "ech", json_string("allow"));
    return object;
}

static json_t *placeholder_json(const struct policy_placeholder *p)
{
    json_t *object = json_object(), *headers = json_array(), *places = json_array();
    policy_put(object, "sentinel", json_string(p->sentinel));
    policy_put(object, p->secret ? "secret" : "value", json_string(p->secret ? p->secret : p->value));
    for (size_t i = 0; i < POLICY_PLACES; i++)
        if (p->places & (1u << i))
            policy_append(places, json_string(policy_places[i]));
    if (p->places != POLICY_IN_HEADER || strlen(p->sentinel) < POLICY_SENTINEL_MIN)
        policy_put(object, "in", json_incref(places));
    json_decref(places);
    for (size_t i = 0; i < p->n_headers; i++)
        policy_append(headers, json_string(p->headers[i]));
    if (p->n_headers > 0)
        policy_put(object, "headers", json_incref(headers));
    json_decref(headers);
    return object;
}

static json_t *injection_json(const struct injection *in)
{
    const struct policy_inject *what = &in->what;
    json_t *object = json_object(), *headers = json_array(), *placeholders = json_array(), *item;
    policy_put(object, "host", json_string(in->host.text));
    if (in->by_plain)
        policy_put(object, "schemes", json_pack(in->by_tls ? "[ss]" : "[s]", "http", "https"));
    put_scope(object, &in->scope);
    for (size_t i = 0; i < what->n_headers; i++) {
        policy_append(headers, item = json_object());
        policy_put(item, "name", json_string(what->headers[i].name));
        policy_put(item, "value", json_string(what->headers[i].value));
    }
    for (size_t i = 0; i < what->n_placeholders; i++)
        policy_append(placeholders, placeholder_json(&what->placeholders[i]));
    if (what->n_headers > 0)
        policy_put(object, "headers", json_incref(headers));
    if (what->n_placeholders > 0)
        policy_put(object, "placeholders", json_incref(placeholders));
    json_decref(headers);
    json_decref(placeholders);
    return object;
}

json_t *policy_json(const struct policy *p)
{
    json_t *object = json_object(), *rules = json_array(), *injections = json_array();
    policy_put(object, "default", json_string(p->allows_by_default ? "allow" : "deny"));
    for (size_t i = 0; i < p->n_rules; i++)
        policy_append(rules, rule_json(&p->rules[i]));
    policy_put(object, "rules", rules);
    for (size_t i = 0; i < p->n_injections; i++)
        policy_append(injections, injection_json(&p->injections[i]));
    if (p->n_injections > 0)
        policy_put(object, "inject", json_incref(injections));
    json_decref(injections);
    return object;
}

/* One address, and nothing of the other family is denied: a host that has addresses of both stays open by the other. */
static bool denies_half_a_host(const struct policy *p, const struct rule *r)
{
    if (r->is_allow || r->target.kind != TARGET_NET || !r->opens_special)
        return false;
    for (size_t i = 0; i < p->n_rules; i++) {
        const struct rule *other = &p->rules[i];
        if (!other->is_allow &&
            (other->target.kind == TARGET_ANY ||
             (other->target.kind == TARGET_NET && other->target.net.addr.family != r->target.net.addr.family)))
            return false;
    }
    return true;
}

json_t *policy_warnings(const struct policy *p)
{
    const struct rule *first = NULL;
    char text[256];
    size_t n = 0;
    for (size_t i = 0; i < p->n_rules && p->allows_by_default; i++) {
        if (!denies_half_a_host(p, &p->rules[i]))
            continue;
        first = first ? first : &p->rules[i];
        n++;
    }
    if (!first)
        return NULL;
    snprintf(
        text, sizeof(text),
        "rules[%zu] denies %s and no IPv%d address%s: a host that has both stays open by the other one; deny it by "
        "its name, too",
        (size_t)(first - p->rules), first->target.text, first->target.net.addr.family == 4 ? 6 : 4,
        n > 1 ? ", as others do" : "");
    json_t *all = json_array();
    policy_append(all, json_string(text));
    return all;
}

bool policy_intercepts_anything(const struct policy *p)
{
    return p->intercepts;
}

size_t policy_sentinels(const struct policy *p, const struct policy_placeholder **ret_all)
{
    *ret_all = p->placeholders;
    return p->n_placeholders;
}
