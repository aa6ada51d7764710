/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/policy_parse.h"
#include "base/mem.h"
#include "policy/presets.h"

static void print_place(const struct parse *p, char *text, size_t room)
{
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; i < p->depth && n < room; i++)
        n += (size_t)(p->place[i].name ? snprintf(text + n, room - n, "%s%s", i ? "." : "", p->place[i].name)
                                       : snprintf(text + n, room - n, "[%zu]", p->place[i].index));
}

int parse_refuse(struct parse *p, const char *fmt, ...)
{
    char text[200], place[96];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    print_place(p, place, sizeof(place));
    (void)err_set(p->err, ERR_INVALID_ARGUMENT, "%s%s%s", place, place[0] ? ": " : "", text);
    return -1;
}

void parse_enter(struct parse *p, const char *name)
{
    assert(p->depth < PARSE_DEPTH);
    p->place[p->depth].name = name;
    p->depth++;
}

bool parse_at(struct parse *p, const json_t *array, size_t index)
{
    p->depth -= index > 0;
    if (index == json_array_size(array))
        return false;
    assert(p->depth < PARSE_DEPTH);
    p->place[p->depth].name = NULL;
    p->place[p->depth].index = index;
    p->depth++;
    return true;
}

void parse_leave(struct parse *p)
{
    p->depth--;
}

enum { QUOTED_MAX = 96 };

/* For messages: short, and nothing in it that a terminal would obey. */
static const char *quoted(struct str text, char ret_text[static QUOTED_MAX])
{
    size_t n = MIN(text.n, (size_t)QUOTED_MAX - 6), at = 0;
    ret_text[at++] = '"';
    for (size_t i = 0; i < n; i++)
        ret_text[at++] = text.p[i] < ' ' || text.p[i] > '~' ? '?' : text.p[i];
    memcpy(ret_text + at, n < text.n ? "...\"" : "\"", n < text.n ? 5 : 2);
    return ret_text;
}

int parse_check_object(struct parse *p, const json_t *object, const char *members)
{
    char shown[QUOTED_MAX];
    if (!json_is_object(object))
        return parse_refuse(p, "must be an object");
    JSON_FOREACH_MEMBER (name, value, object) {
        if (str_word(str_of(name), members) < 0)
            return parse_refuse(p, "unknown member %s", quoted(str_of(name), shown));
    }
    return 0;
}

int parse_check_array(struct parse *p, const json_t *array, size_t min, size_t max)
{
    if (!json_is_array(array))
        return parse_refuse(p, "must be an array");
    if (json_array_size(array) < min)
        return parse_refuse(p, "is empty: leave it out to say nothing about it");
    if (json_array_size(array) > max)
        return parse_refuse(p, "has %zu elements; at most %zu are possible", json_array_size(array), max);
    return 0;
}

int parse_string(struct parse *p, const json_t *value, struct str *ret_text)
{
    if (!json_is_string(value))
        return parse_refuse(p, "must be a string");
    if (str_has_nul(json_str(value)))
        return parse_refuse(p, "has a NUL in it");
    *ret_text = json_str(value);
    return 0;
}

int parse_target(struct parse *p, const json_t *json, struct target *ret_target)
{
    struct arena *arena = &p->policy->arena;
    char pattern[HOSTNAME_MAX + 3], address[NETADDR_TEXT_MAX + 4], shown[QUOTED_MAX];
    struct target t = {.kind = TARGET_NET};
    struct str text = STR_NULL;
    if (parse_string(p, json, &text) < 0)
        return -1;
    if (netcidr_parse(text, &t.net)) {
        netcidr_print(&t.net, address);
        t.text = arena_strdup(arena, address);
        *ret_target = t;
        return 0;
    }
    if (!hostname_pattern_normalise(text, pattern))
        return parse_refuse(p, "%s is not a name, \"*.name\", \"*\", an address or a network%s", quoted(text, shown),
                            text.n && *text.p == '@'      ? " ('cove policy presets' shows those there are)"
                            : memchr(text.p, ':', text.n) ? " (ports go into \"ports\")"
                                                          : "");
    t.text = arena_strdup(arena, pattern);
    if (pattern[0] != '*') {
        t.kind = TARGET_NAME;
        t.name = str_of(t.text);
    } else if (pattern[1] == '.') {
        t.kind = TARGET_BELOW;
        t.name = str_of(t.text + 1);
    } else {
        t.kind = TARGET_ANY;
    }
    *ret_target = t;
    return 0;
}

static bool parse_port(struct str text, uint16_t *ret_port)
{
    uint64_t value;
    if (text.n == 0 || text.n > 5 || text.p[0] == '0' || str_to_u64(text, &value) < 0 || value > UINT16_MAX)
        return false;
    *ret_port = (uint16_t)value;
    return true;
}

static int parse_port_range(struct parse *p, const json_t *json, struct port_range *ret_range)
{
    struct str text, first;
    struct port_range r;
    if (json_is_integer(json)) {
        json_int_t value = json_integer_value(json);
        if (value < 1 || value > UINT16_MAX)
            return parse_refuse(p, "a port is a number from 1 to 65535");
        ret_range->first = ret_range->last = (uint16_t)value;
        return 0;
    }
    text = json_str(json);
    if (!json_is_string(json) || !str_split(&text, '-', &first) || !parse_port(first, &r.first) ||
        !parse_port(text, &r.last) || r.first > r.last)
        return parse_refuse(p, "must be a port (443) or a range of them (\"8000-8099\")");
    *ret_range = r;
    return 0;
}

static int parse_ports(struct parse *p, const json_t *json, struct scope *scope)
{
    struct port_range *ports;
    if (parse_check_array(p, json, 1, POLICY_PORT_RANGES_MAX) < 0)
        return -1;
    ports = arena_alloc(&p->policy->arena, json_array_size(json) * sizeof(*ports));
    scope->n_ports = (uint8_t)json_array_size(json);
    scope->ports = ports;
    for (size_t i = 0; parse_at(p, json, i); i++)
        if (parse_port_range(p, json_array_get(json, i), &ports[i]) < 0)
            return -1;
    return 0;
}

bool parse_is_token(struct str text)
{
    return text.n > 0 && str_is_of(text, "!#$%&'*+.^_`|~0-9a-zA-Z-");
}

static char upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

static int parse_methods(struct parse *p, const json_t *json, struct scope *scope)
{
    if (parse_check_array(p, json, 1, POLICY_METHODS_MAX) < 0)
        return -1;
    scope->n_methods = (uint8_t)json_array_size(json);
    scope->methods = arena_alloc(&p->policy->arena, scope->n_methods * sizeof(*scope->methods));
    for (size_t i = 0; parse_at(p, json, i); i++) {
        struct str text = STR_NULL;
        char *method;

        if (parse_string(p, json_array_get(json, i), &text) < 0)
            return -1;
        if (!parse_is_token(text) || text.n > POLICY_METHOD_MAX)
            return parse_refuse(p, "is not an HTTP method");
        method = arena_strndup(&p->policy->arena, text.p, text.n);
        for (char *c = method; *c; c++)
            *c = upper(*c);
        scope->methods[i] = method;
    }
    return 0;
}

static int parse_path(struct parse *p, const json_t *json, struct scope *scope)
{
    struct path_pattern *path = arena_alloc(&p->policy->arena, sizeof(*path));
    char shown[QUOTED_MAX];
    struct str text = STR_NULL;
    if (parse_string(p, json, &text) < 0)
        return -1;
    if (!path_pattern_parse(text, &p->policy->arena, path))
        return parse_refuse(p, "%s is not a path: \"/whole/path\" or \"/beginning*\", without dot segments or a query",
                            quoted(text, shown));
    scope->path = path;
    return 0;
}

int parse_scope(struct parse *p, const json_t *object, struct scope *ret_scope)
{
    static const struct {
        const char *name;
        int (*parse)(struct parse *p, const json_t *json, struct scope *scope);
    } members[] = {{"ports", parse_ports}, {"methods", parse_methods}, {"path", parse_path}};
    for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
        const json_t *value = json_object_get(object, members[i].name);
        parse_enter(p, members[i].name);
        if (value && members[i].parse(p, value, ret_scope) < 0)
            return -1;
        parse_leave(p);
    }
    p->policy->intercepts |= scope_is_about_requests(ret_scope);
    return 0;
}

static int parse_ech(struct parse *p, const json_t *json, struct rule *rule)
{
    struct str text = STR_NULL;
    if (!json)
        return 0;
    if (parse_string(p, json, &text) < 0)
        return -1;
    if (!str_eqc(text, "allow"))
        return parse_refuse(p, "must be \"allow\", or not there");
    if (!rule->is_allow)
        return parse_refuse(p, "goes with \"allow\"");
    rule->allows_ech = true;
    return 0;
}

/* host: of a preset; NULL: the rule's own target. */
static int parse_rule(struct parse *p, const json_t *json, const char *host, struct rule *rule)
{
    const json_t *allow, *deny;
    if (parse_check_object(p, json, "allow deny ports methods path ech") < 0)
        return -1;
    allow = json_object_get(json, "allow");
    deny = json_object_get(json, "deny");
    if (!allow == !deny)
        return parse_refuse(p, "needs either \"allow\" or \"deny\"");
    rule->is_allow = allow;
    parse_enter(p, allow ? "allow" : "deny");
    json_t *named = host ? json_string(host) : NULL;
    int r = parse_target(p, named ? named : allow ? allow : deny, &rule->target);
    json_decref(named);
    if (r < 0)
        return -1;
    parse_leave(p);
    if (rule->target.kind == TARGET_NET) {
        const struct netcidr *net = &rule->target.net;
        rule->opens_special = net->bits == (net->addr.family == 4 ? 32 : 128);
        rule->opens = rule->opens_special || !netcidr_has_public(net);
    }
    parse_enter(p, "ech");
    if (parse_ech(p, json_object_get(json, "ech"), rule) < 0)
        return -1;
    parse_leave(p);
    return parse_scope(p, json, &rule->scope);
}

static int parse_default(struct parse *p, const json_t *json)
{
    struct str text = STR("deny");
    if (json && parse_string(p, json, &text) < 0)
        return -1;
    if (!str_eq(text, STR("allow")) && !str_eq(text, STR("deny")))
        return parse_refuse(p, "must be \"allow\" or \"deny\"");
    p->policy->allows_by_default = str_eq(text, STR("allow"));
    return 0;
}

static const struct preset *parse_preset(const json_t *rule)
{
    const json_t *allow = json_object_get(rule, "allow"), *target = allow ? allow : json_object_get(rule, "deny");
    return json_is_string(target) ? preset_find(json_str(target)) : NULL;
}

static void parse_preset_ports(struct parse *p, const struct preset *preset, struct scope *scope)
{
    struct port_range *ports = arena_alloc(&p->policy->arena, ARRAY_SIZE(preset->ports) * sizeof(*ports));
    for (size_t i = 0; i < ARRAY_SIZE(preset->ports) && preset->ports[i]; i++)
        ports[scope->n_ports++] = (struct port_range){preset->ports[i], preset->ports[i]};
    scope->ports = ports;
}

static int parse_rules(struct parse *p, const json_t *json)
{
    struct policy *policy = p->policy;
    if (!json)
        return 0;
    if (parse_check_array(p, json, 0, POLICY_RULES_MAX) < 0)
        return -1;
    const size_t n = json_array_size(json);
    size_t room = n;
    for (size_t i = 0; i < n; i++) {
        const struct preset *preset = parse_preset(json_array_get(json, i));
        for (size_t k = 1; preset && k < ARRAY_SIZE(preset->hosts) && preset->hosts[k]; k++)
            room++;
    }
    p->expands = room > n;
    if (room > POLICY_RULES_MAX)
        return parse_refuse(p, "are %zu with what presets stand for; at most %d are possible", room, POLICY_RULES_MAX);
    policy->rules = arena_alloc(&policy->arena, room * sizeof(*policy->rules));
    for (size_t i = 0; parse_at(p, json, i); i++) {
        const json_t *one = json_array_get(json, i);
        const struct preset *preset = parse_preset(one);
        for (size_t k = 0; k == 0 || (preset && k < ARRAY_SIZE(preset->hosts) && preset->hosts[k]); k++) {
            struct rule *rule = &policy->rules[policy->n_rules];
            if (parse_rule(p, one, preset ? preset->hosts[k] : NULL, rule) < 0)
                return -1;
            if (preset && !rule->scope.n_ports)
                parse_preset_ports(p, preset, &rule->scope);
            policy->n_rules++;
        }
    }
    return 0;
}

static int parse_injections(struct parse *p, const json_t *json)
{
    struct policy *policy = p->policy;
    if (!json)
        return 0;
    if (parse_check_array(p, json, 0, POLICY_INJECT_MAX) < 0)
        return -1;
    policy->n_injections = json_array_size(json);
    policy->injections = arena_alloc(&policy->arena, policy->n_injections * sizeof(*policy->injections));
    policy->placeholders =
        arena_alloc(&policy->arena, policy->n_injections * POLICY_HEADERS_MAX * sizeof(*policy->placeholders));
    for (size_t i = 0; parse_at(p, json, i); i++)
        if (parse_injection(p, json_array_get(json, i), &policy->injections[i]) < 0)
            return -1;
    return 0;
}

static int parse_all(struct parse *p, const json_t *json)
{
    static const struct {
        const char *name;
        int (*parse)(struct parse *p, const json_t *json);
    } members[] = {{"default", parse_default}, {"rules", parse_rules}, {"inject", parse_injections}};
    if (parse_check_object(p, json, "default rules inject") < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
        parse_enter(p, members[i].name);
        if (members[i].parse(p, json_object_get(json, members[i].name)) < 0)
            return -1;
        parse_leave(p);
    }
    return 0;
}

/*
 * An upper bound of the length of its JSON text, also of that of what it is normalised to: a byte becomes six at most.
 * More than POLICY_JSON_MAX says nothing: then the length has to be measured.
 */
static size_t bound(const json_t *json, size_t depth)
{
    size_t n = 32;
    if (depth > PARSE_DEPTH)
        return POLICY_JSON_MAX + 1;
    if (json_is_string(json))
        n += 6 * json_string_length(json);
    JSON_FOREACH_MEMBER (name, value, json) {
        n += 6 * strlen(name) + bound(value, depth + 1);
        if (n > POLICY_JSON_MAX)
            return n;
    }
    JSON_FOREACH (value, json) {
        n += bound(value, depth + 1);
        if (n > POLICY_JSON_MAX)
            return n;
    }
    return n;
}

static int check_size(struct parse *p, const json_t *json)
{
    size_t n = json_dumpb(json, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);
    if (n > POLICY_JSON_MAX)
        return parse_refuse(p, "a policy of %zu bytes is more than %d", n, POLICY_JSON_MAX);
    return 0;
}

/* What is kept and shown is the normalised policy, which may be longer than the one that was given. */
static int check_normalised(struct parse *p)
{
    json_t *normalised = policy_json(p->policy);
    int r = check_size(p, normalised);
    json_decref(normalised);
    return r;
}

static void unref_auto(struct policy **p)
{
    policy_unref(*p);
}

int policy_parse(const json_t *json, struct policy **ret_policy, struct err *err)
{
    __attribute__((cleanup(unref_auto))) struct policy *policy = mem_new(struct policy);
    struct parse p = {.policy = policy, .err = err};
    bool is_short = bound(json, 0) <= POLICY_JSON_MAX;

    policy->refs = 1;
    if (!is_short && check_size(&p, json) < 0)
        return -1;
    if (parse_all(&p, json) < 0 || ((!is_short || p.expands) && check_normalised(&p) < 0))
        return -1;
    *ret_policy = TAKE_PTR(policy);
    return 0;
}
