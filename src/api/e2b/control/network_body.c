/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allowing comes first, as it beats denying there; what no rule names is allowed. Names can only be allowed where all
 * else is denied; they can be denied anywhere, which is more than E2B offers, since a host may have addresses of both
 * families. Headers are injected under "rules"; their values go to the core and nowhere else: what is kept to be shown
 * again has stars in their place.
 */
#include "api/e2b/control/network_body.h"
#include "base/mem.h"
#include "policy/hostname.h"
#include "policy/netaddr.h"

#define ALL_TRAFFIC "0.0.0.0/0"

enum {
    RULE_HOSTS_MAX = 10,
    RULE_HEADERS_MAX = 20,
    RULE_HOST_MAX = 128,
    RULE_NAME_MAX = 64,
    RULE_VALUE_MAX = 2048,
    MASK_MAX = 255,
};

static int invalid(struct err *err, const char *what, struct str value)
{
    return err_set(err, ERR_INVALID_ARGUMENT, "%s: %.*s", what, STR_ARG_MAX(value, 128));
}

/* ---- allowOut and denyOut ---- */

static bool network_body_is_name(struct str text)
{
    char name[HOSTNAME_MAX + 3];
    return hostname_pattern_normalise(text, name) && strcmp(name, "*") != 0;
}

static void add_rule(json_t *rules, const char *verdict, struct str target)
{
    if (str_eqc(target, ALL_TRAFFIC))
        target = STR("*");
    (void)json_array_append_new(rules, json_pack("{s:s%}", verdict, target.p, target.n));
}

static int read_targets(const json_t *network, const char *member, const char *verdict, json_t *rules, json_t *fields,
                        bool *ret_names, bool *ret_all, struct err *err)
{
    json_t *list = NULL;
    struct netcidr cidr;
    int r = json_get_array(network, member, &list, err);
    if (r <= 0 || json_array_size(list) == 0)
        return r;
    JSON_FOREACH (entry, list) {
        struct str text = json_str(entry);
        bool is_net = json_is_string(entry) && netcidr_parse(text, &cidr);
        if (!is_net && json_is_string(entry) && network_body_is_name(text))
            *ret_names = true;
        else if (!is_net)
            return err_set(err, ERR_INVALID_ARGUMENT, "%s has something that is no address, network or domain: %.*s",
                           member, STR_ARG_MAX(text, 128));
        *ret_all |= str_eqc(text, ALL_TRAFFIC);
        add_rule(rules, verdict, text);
    }
    (void)json_object_set_new(fields, member, json_deep_copy(list));
    return 0;
}

/* ---- rules ---- */

/* "${e2b.secrets.NAME}" becomes the vault's; any other $ stands for itself. */
static int convert_value(struct str value, struct buf *to, struct err *err)
{
    static const struct str secret = {"${e2b.secrets.", 14}, identity = {"${e2b.identity.", 15};

    while (value.n) {
        ssize_t end = str_find_char(value, '}');

        if (str_starts(value, identity))
            return err_set(err, ERR_UNIMPLEMENTED, "workload identities are not available yet");
        if (str_starts(value, secret) && end > (ssize_t)secret.n) {
            (void)buf_printf(to, "${secret:%.*s}", (int)end - (int)secret.n, value.p + secret.n);
            value = str_sub(value, (size_t)end + 1);
            continue;
        }
        (void)buf_append_cstr(to, value.p[0] == '$' ? "$$" : "");
        if (value.p[0] != '$')
            (void)buf_append_char(to, value.p[0]);
        value = str_sub(value, 1);
    }
    return 0;
}

static int read_headers(const json_t *headers, json_t *injected, json_t *shown, struct err *err)
{
    if (json_object_size(headers) > RULE_HEADERS_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "rules: more than %d headers for one host", RULE_HEADERS_MAX);
    JSON_FOREACH_MEMBER (name, value, headers) {
        AUTO_BUF struct buf converted = BUF_INIT(2 * RULE_VALUE_MAX + 1024);
        struct str text = json_str(value);
        json_t *copy;
        if (strlen(name) > RULE_NAME_MAX)
            return err_set(err, ERR_INVALID_ARGUMENT, "rules: a header's name is longer than %d characters",
                           RULE_NAME_MAX);
        if (!json_is_string(value) || !text.n || text.n > RULE_VALUE_MAX)
            return err_set(err, ERR_INVALID_ARGUMENT,
                           "rules: the value of the header \"%.64s\" must be 1 to %d characters", name, RULE_VALUE_MAX);
        if (convert_value(text, &converted, err) < 0)
            return -1;
        copy = json_stringn(buf_data(&converted), buf_len(&converted));
        mem_wipe(buf_data(&converted), buf_len(&converted));
        (void)json_array_append_new(injected, json_pack("{s:s,s:o}", "name", name, "value", copy));
        (void)json_object_set_new(shown, name, json_string("***"));
    }
    return 0;
}

static int read_host(const char *host, const json_t *list, json_t *inject, json_t *shown, struct err *err)
{
    static const char *const in_list[] = {"transform"}, *const in_transform[] = {"headers"};
    json_t *transform = NULL, *headers = NULL, *injected, *stars;
    if (strlen(host) > RULE_HOST_MAX || !network_body_is_name(str_of(host)))
        return invalid(err, "rules: not a domain of at most 128 characters", str_of(host));
    if (!json_is_array(list) || json_array_size(list) > 1)
        return invalid(err, "rules: there must be a list of one transform for the host", str_of(host));
    if (json_array_size(list) == 0)
        return 0;
    if (!json_is_object(json_array_get(list, 0)) || json_only(json_array_get(list, 0), in_list, 1, err) < 0 ||
        json_get_object(json_array_get(list, 0), "transform", &transform, err) < 0 ||
        (transform &&
         (json_only(transform, in_transform, 1, err) < 0 || json_get_object(transform, "headers", &headers, err) < 0)))
        return invalid(err, "rules: malformed transform for the host", str_of(host));
    if (!headers || json_object_size(headers) == 0)
        return 0;

    injected = json_array();
    stars = json_object();
    (void)json_array_append_new(inject, json_pack("{s:s,s:o}", "host", host, "headers", injected));
    (void)json_object_set_new(shown, host, json_pack("[{s:{s:o}}]", "transform", "headers", stars));
    return read_headers(headers, injected, stars, err);
}

static int read_rules(const json_t *network, json_t *inject, json_t *fields, struct err *err)
{
    json_t *rules = NULL, *shown = json_object();
    int r = json_get_object(network, "rules", &rules, err);
    if (r > 0 && json_object_size(rules) > RULE_HOSTS_MAX)
        r = err_set(err, ERR_INVALID_ARGUMENT, "rules: more than %d hosts", RULE_HOSTS_MAX);
    if (r > 0) {
        JSON_FOREACH_MEMBER (host, list, rules)
            if (r > 0 && read_host(host, list, inject, shown, err) < 0)
                r = -1;
    }
    if (json_object_size(shown))
        (void)json_object_set(fields, "rules", shown);
    json_decref(shown);
    return r < 0 ? -1 : 0;
}

/* ---- the others ---- */

static void mask_of(struct str mask, uint16_t port, struct buf *to)
{
    while (mask.n) {
        if (str_starts(mask, STR("${PORT}"))) {
            (void)buf_printf(to, "%u", port);
            mask = str_sub(mask, 7);
        } else {
            (void)buf_append_char(to, mask.p[0]);
            mask = str_sub(mask, 1);
        }
    }
}

bool network_mask_host(const json_t *fields, uint16_t port, struct buf *to)
{
    const json_t *mask = json_object_get(fields, "maskRequestHost");
    if (!mask)
        return false;
    mask_of(json_str(mask), port, to);
    return buf_error(to) == 0;
}

static int read_mask(const json_t *network, json_t *fields, struct err *err)
{
    AUTO_BUF struct buf sample = BUF_INIT(2 * MASK_MAX);
    struct str mask = STR_NULL, name;
    uint16_t port;
    int r = json_get_str(network, "maskRequestHost", &mask, err);
    if (r <= 0)
        return r;
    mask_of(mask, 65535, &sample);
    if (!mask.n || mask.n > MASK_MAX || buf_error(&sample) || str_split_host(buf_str(&sample), &name, &port) < 0)
        return invalid(err, "maskRequestHost is no host with or without a port", mask);
    (void)json_object_set_new(fields, "maskRequestHost", json_stringn(mask.p, mask.n));
    return 0;
}

static int read_inbound(const json_t *network, const json_t *kept, struct network_body *body, json_t *fields,
                        struct err *err)
{
    bool is_public = true;
    int r;
    if (kept) {
        static const char *const names[] = {"allowPublicTraffic", "maskRequestHost"};
        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
            if (json_object_get(kept, names[i]))
                (void)json_object_set(fields, names[i], json_object_get(kept, names[i]));
        return 0;
    }
    r = json_get_bool(network, "allowPublicTraffic", &is_public, err);
    if (r < 0)
        return -1;
    if (r > 0)
        (void)json_object_set_new(fields, "allowPublicTraffic", json_boolean(is_public));
    body->private_traffic = !is_public;
    return read_mask(network, fields, err);
}

static int read_all(const json_t *network, bool allow_internet, json_t *policy, json_t *fields, bool *ret_rules,
                    struct err *err)
{
    json_t *rules = json_array(), *inject = json_array();
    bool names = false, all = !allow_internet, ignored = false;
    (void)json_object_set_new(policy, "default", json_string(allow_internet ? "allow" : "deny"));
    (void)json_object_set_new(policy, "rules", rules);
    (void)json_object_set_new(policy, "inject", inject);
    if (!json_asks_nothing(network, "egressProxy"))
        return err_set(err, ERR_UNIMPLEMENTED, "egress proxies are not available");
    if (!json_asks_nothing(network, "httpsPorts"))
        return err_set(err, ERR_UNIMPLEMENTED, "ports that speak TLS inside of the sandbox are not available yet");
    if (read_targets(network, "allowOut", "allow", rules, fields, &names, &ignored, err) < 0 ||
        read_targets(network, "denyOut", "deny", rules, fields, &ignored, &all, err) < 0 ||
        read_rules(network, inject, fields, err) < 0)
        return -1;
    if (names && !all)
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "allowOut can only have domains when denyOut has " ALL_TRAFFIC
                       ", which blocks all other traffic");
    *ret_rules = json_array_size(rules) || json_array_size(inject);
    if (!json_array_size(inject))
        (void)json_object_del(policy, "inject");
    return 0;
}

/*
 * A member that nobody knows may have been meant to close something. So may null: E2B uses it only to say that there is
 * no proxy.
 */
static int check_members(const json_t *network, bool is_update, struct err *err)
{
    static const char *const members[] = {"allowOut",        "denyOut",
                                          "rules",           "egressProxy",
                                          "httpsPorts",      "allowPublicTraffic",
                                          "maskRequestHost", "allow_internet_access"};
    if (json_only(network, members, ARRAY_SIZE(members) - (is_update ? 0 : 1), err) < 0)
        return err_prefix(err, "network");
    JSON_FOREACH_MEMBER (key, value, network)
        if (json_is_null(value) && strcmp(key, "egressProxy") != 0 && strcmp(key, "egress_proxy") != 0)
            return err_set(err, ERR_INVALID_ARGUMENT, "network: \"%.64s\" can't be null: leave it out", key);
    return 0;
}

int network_body_read(const json_t *network, bool allow_internet, const json_t *kept, struct network_body *ret_body,
                      struct err *err)
{
    struct network_body body = {.spec.allow_internet = allow_internet};
    json_t *policy = json_object(), *fields = json_object();
    bool has_rules = false;
    int r = network ? check_members(network, kept != NULL, err) : 0;
    if (r == 0 && network)
        r = read_all(network, allow_internet, policy, fields, &has_rules, err);
    if (r == 0)
        r = read_inbound(network, kept, &body, fields, err);
    if (r == 0 && has_rules)
        body.spec.policy = json_incref(policy); /* whoever makes something of it checks it */
    if (r == 0 && json_object_size(fields))
        body.spec.fields = json_incref(fields);
    json_decref(policy);
    json_decref(fields);
    if (r < 0)
        network_body_fini(&body);
    else
        *ret_body = body;
    return r;
}

void network_body_fini(struct network_body *body)
{
    json_decref((json_t *)body->spec.policy);
    json_decref((json_t *)body->spec.fields);
    body->spec.policy = body->spec.fields = NULL;
}
