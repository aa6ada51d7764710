/* SPDX-License-Identifier: Apache-2.0 */
/* Policies as JSON: checked, described for the record, and what of them must be sealed. */
#include "base/mem.h"
#include "policy/policy.h"
#include "sandbox/network/network_internal.h"
#include "sandbox/tenant.h"

json_t *policy_normalise(const json_t *policy, struct err *err)
{
    struct policy *p;
    if (policy_parse(policy, &p, err) < 0)
        return NULL;
    json_t *normal = policy_json(p);
    policy_unref(p);
    return normal;
}

int network_check_policy(const json_t *policy, struct err *err)
{
    json_t *normal = policy_normalise(policy, err);
    int r = normal ? 0 : -1;
    json_decref(normal);
    return r;
}

json_t *network_warnings(const json_t *policy)
{
    const char *otherwise = json_string_value(json_object_get(policy, "default"));
    struct policy *p;
    struct err err;
    if (!otherwise || strcmp(otherwise, "allow") != 0 || policy_parse(policy, &p, &err) < 0)
        return NULL; /* who denies all else has nothing that stays open */
    json_t *warnings = policy_warnings(p);
    policy_unref(p);
    return warnings;
}

json_t *policy_default(bool allow_internet)
{
    return json_pack("{s:s}", "default", allow_internet ? "allow" : "deny");
}

json_t *network_default(const struct core *core, bool allow_internet)
{
    struct err err;
    json_t *policy = allow_internet && core->config.network ? policy_normalise(core->config.network, &err) : NULL;
    return policy ? policy : policy_default(allow_internet && !core->config.network);
}

/* ---- for the record ---- */

static void append_names(json_t *to, const char *key, const json_t *list, const char *member)
{
    json_t *names = json_array();
    JSON_FOREACH (one, list)
        (void)json_array_append(names, json_object_get(one, member));
    if (json_array_size(names))
        (void)json_object_set(to, key, names);
    json_decref(names);
}

static void put_json(struct event_data *d, const char *name, json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (text)
        event_data_json(d, name, str_of(text));
    mem_free(text);
}

void policy_describe(const json_t *policy, struct event_data *d)
{
    const char *otherwise = json_string_value(json_object_get(policy, "default"));
    json_t *rules = json_object_get(policy, "rules"), *inject = json_object_get(policy, "inject");
    json_t *shown = json_array();
    event_data_str(d, "default", str_of(otherwise ? otherwise : "deny"));
    JSON_FOREACH (one, inject) {
        json_t *entry = json_object();
        (void)json_object_set(entry, "host", json_object_get(one, "host"));
        append_names(entry, "headers", json_object_get(one, "headers"), "name");
        append_names(entry, "secrets", json_object_get(one, "placeholders"), "secret");
        (void)json_array_append_new(shown, entry);
    }
    if (json_array_size(shown))
        put_json(d, "inject", shown);
    json_decref(shown);
    event_data_u64(d, "n_rules", json_array_size(rules));
    if (json_array_size(rules))
        put_json(d, "rules", rules);
    json_t *warnings = network_warnings(policy);
    if (warnings)
        put_json(d, "warnings", warnings);
    json_decref(warnings);
}

/* ---- whose secrets are meant ---- */

#define SECRET_OF_TENANT "_tenant-"
#define SECRET_OF_UID "_uid-"

/* The default tenant's secrets go by their names, but for those that are called as another one's: these it has none
 * of. */
static void append_secret(struct buf *b, const struct policy_owner *o, const char *name)
{
    const uint64_t tenant = o->tenant;
    uid_t uid;
    if (tenant_is_uid(o->name, &uid))
        buf_printf(b, SECRET_OF_UID "%u.", (unsigned)uid);
    else if (tenant != TENANT_DEFAULT || str_starts(str_of(name), STR(SECRET_OF_TENANT)) ||
             str_starts(str_of(name), STR(SECRET_OF_UID)))
        buf_printf(b, SECRET_OF_TENANT "%llu.", (unsigned long long)tenant);
}

static json_t *value_of_tenant(const char *value, const struct policy_owner *tenant)
{
    static const char mark[] = "${secret:";
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    for (const char *at; (at = strstr(value, mark)); value = at + strlen(mark)) {
        buf_append(&b, value, (size_t)(at - value) + strlen(mark));
        append_secret(&b, tenant, at + strlen(mark));
    }
    buf_append_cstr(&b, value);
    return json_stringn(buf_data(&b), buf_len(&b));
}

static json_t *name_of_tenant(const char *name, const struct policy_owner *tenant)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    append_secret(&b, tenant, name);
    buf_append_cstr(&b, name);
    return json_stringn(buf_data(&b), buf_len(&b));
}

/* Of an injection, the lists whose elements have a "value". */
static const char *const policy_values[] = {"headers", "placeholders"};

json_t *policy_of_tenant(const json_t *policy, const struct policy_owner *tenant)
{
    if (!json_object_get(policy, "inject"))
        return json_incref((json_t *)policy);
    json_t *own = json_deep_copy(policy);
    JSON_FOREACH (one, json_object_get(own, "inject")) {
        for (size_t part = 0; part < ARRAY_SIZE(policy_values); part++)
            JSON_FOREACH (what, json_object_get(one, policy_values[part])) {
                const char *value = json_string_value(json_object_get(what, "value"));
                const char *name = json_string_value(json_object_get(what, "secret"));
                if (value)
                    (void)json_object_set_new(what, "value", value_of_tenant(value, tenant));
                if (name)
                    (void)json_object_set_new(what, "secret", name_of_tenant(name, tenant));
            }
    }
    return own;
}

json_t *policy_of_sandbox(const json_t *policy, const struct sandbox *sb)
{
    const struct policy_owner owner = {sb->info.tenant, tenant_name(sb->core, sb->info.tenant)};
    return policy_of_tenant(policy, &owner);
}

/* ---- what must be sealed ---- */

/* "Bearer ", followed by a reference: a word and one blank. */
static bool is_scheme(struct str value, size_t from, size_t to)
{
    return from == 0 && to < value.n && to >= 2 && value.p[to - 1] == ' ' &&
           str_is_of(str_n(value.p, to - 1), "A-Za-z");
}

static bool has_word(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if ((c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c >= 0x80)
            return true;
    }
    return false;
}

static size_t literal_end(struct str value, size_t from)
{
    size_t i = from;
    while (i < value.n && !(value.p[i] == '$' && i + 1 < value.n && value.p[i + 1] == '{'))
        i += value.p[i] == '$' && i + 1 < value.n ? 2 : 1;
    return i;
}

static bool find_in(json_t *header, struct policy_literal *ret_literal)
{
    const json_t *text = json_object_get(header, "value");
    struct str value = json_str(text);
    for (size_t from = 0; from < value.n;) {
        size_t to = literal_end(value, from);
        if (to > from && !is_scheme(value, from, to) && has_word(str_n(value.p + from, to - from))) {
            *ret_literal = (struct policy_literal){header, from, to};
            return true;
        }
        ssize_t end = str_find_char(str_sub(value, to), '}');
        if (end < 0)
            break;
        from = to + (size_t)end + 1;
    }
    return false;
}

bool policy_next_literal(const json_t *policy, struct policy_literal *ret_literal)
{
    JSON_FOREACH (one, json_object_get(policy, "inject")) {
        for (size_t part = 0; part < ARRAY_SIZE(policy_values); part++)
            JSON_FOREACH (header, json_object_get(one, policy_values[part]))
                if (find_in(header, ret_literal))
                    return true;
    }
    return false;
}

void policy_literal_text(const struct policy_literal *l, struct buf *to)
{
    const char *value = json_string_value(json_object_get(l->header, "value"));
    char *ignored UNUSED = buf_reserve(to, l->to - l->from); /* so that it needn't move, and leave a copy behind */
    for (size_t i = l->from; i < l->to; i++) {
        (void)buf_append_char(to, value[i]);
        i += value[i] == '$'; /* "$$" */
    }
}

void policy_literal_sealed(const struct policy_literal *l, struct str sealed)
{
    const char *value = json_string_value(json_object_get(l->header, "value"));
    char *whole = mem_printf("%.*s${sealed:%.*s}%s", (int)l->from, value, (int)sealed.n, sealed.p, value + l->to);
    (void)json_object_set_new(l->header, "value", json_string(whole));
    mem_free_wiped(whole);
}
