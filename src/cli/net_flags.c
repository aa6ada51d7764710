/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/net_flags.h"
#include "base/id.h"
#include "base/mem.h"
#include "config/yaml.h"
#include "policy/policy.h"

enum { NET_FLAGS_STAND_IN_LEN = 32, PORTS_MAX = 16, NET_FLAGS_TARGET_MAX = 1024 };

/* ---- targets ---- */

static size_t count_of(struct str s, char c)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++)
        n += s.p[i] == c;
    return n;
}

/* "443" is a number, "8000-8099" stays a text; whether they are ports is the service's to say. */
static json_t *ports_of(struct str text)
{
    json_t *ports = json_array();
    struct str part;
    uint64_t number;
    while (str_split(&text, ',', &part)) {
        bool is_number = str_to_u64(part, &number) == 0 && number <= 65535;
        if (!part.n || json_array_size(ports) == PORTS_MAX) {
            json_decref(ports);
            return NULL;
        }
        (void)json_array_append_new(ports, is_number ? json_integer((json_int_t)number) : json_stringn(part.p, part.n));
    }
    return ports;
}

json_t *net_flags_rule(const char *verdict, struct str text)
{
    struct str target = text, ports = STR_NULL;
    if (text.n && text.p[0] == '[') {
        ssize_t end = str_find_char(text, ']');
        if (end < 0 || ((size_t)end + 1 < text.n && text.p[end + 1] != ':'))
            return NULL;
        target = str_n(text.p + 1, (size_t)end - 1);
        ports = (size_t)end + 1 < text.n ? str_sub(text, (size_t)end + 2) : STR_NULL;
    } else if (count_of(text, ':') == 1) {
        ssize_t colon = str_find_char(text, ':');
        target = str_n(text.p, (size_t)colon);
        ports = str_sub(text, (size_t)colon + 1);
    }
    json_t *list = ports.p ? ports_of(ports) : NULL;
    json_t *name = target.n && !(ports.p && !list) ? json_stringn(target.p, target.n) : NULL;
    if (!name || (list && json_array_size(list) == 0)) {
        json_decref(list);
        json_decref(name);
        return NULL;
    }
    json_t *rule = json_pack("{s:o}", verdict, name);
    if (list)
        (void)json_object_set_new(rule, "ports", list);
    return rule;
}

/* A name may be what a sandbox asked for, and people copy what they are shown into a shell. */
#define PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:/,_-"
#define TO_QUOTE "*[]"

bool net_flags_write(struct buf *b, const json_t *rule)
{
    AUTO_BUF struct buf value = BUF_INIT(NET_FLAGS_TARGET_MAX);
    const json_t *ports = json_object_get(rule, "ports");
    const char *allowed = json_string_value(json_object_get(rule, "allow"));
    const char *target = allowed ? allowed : json_string_value(json_object_get(rule, "deny"));
    if (!target || json_object_size(rule) != (ports ? 2 : 1))
        return false;
    bool is_bracketed = ports && strchr(target, ':');
    buf_printf(&value, "%s%s%s", is_bracketed ? "[" : "", target, is_bracketed ? "]" : "");
    JSON_FOREACH_AT (i, port, ports) {
        if (json_is_integer(port))
            buf_printf(&value, "%c%lld", i ? ',' : ':', (long long)json_integer_value(port));
        else
            buf_printf(&value, "%c%s", i ? ',' : ':', json_is_string(port) ? json_string_value(port) : "?");
    }
    AUTO_FREE char *text = buf_take(&value);
    AUTO_JSON json_t *back = text ? net_flags_rule(allowed ? "allow" : "deny", str_of(text)) : NULL;
    if (!back || !json_equal(back, rule) || text[strspn(text, PLAIN TO_QUOTE)])
        return false;
    const char *quote = strpbrk(text, TO_QUOTE) ? "'" : "";
    buf_printf(b, "--%s %s%s%s", allowed ? "allow" : "deny", quote, text, quote);
    return true;
}

void net_flags_suggest(struct buf *b, const char *rule)
{
    AUTO_JSON json_t *json = json_loads(rule, 0, NULL);
    if (net_flags_write(b, json))
        buf_append_cstr(b, " would allow it");
    else
        buf_printf(b, "would be allowed by the rule %s", rule);
}

/* Is it a name, as secrets are bound to? */
static bool net_flags_is_name(const char *target)
{
    struct str t = str_of(target);
    return !str_eqc(t, "*") && str_find_char(t, ':') < 0 && str_find_char(t, '/') < 0 && !str_is_of(t, "0-9.");
}

/* ---- taking ---- */

/* People have the address of what they want to reach at hand. A rule is about a host and its ports: to take those alone
 * would hide that the path counts for nothing. */
static int refuse_url(struct context *ctx, const char *flag, const char *value)
{
    const char *host = strstr(value, "://");
    if (!host)
        return 0;
    const char *port = strncmp(value, "https:", 6) == 0 ? ":443" : strncmp(value, "http:", 5) == 0 ? ":80" : "";
    host += 3;
    size_t n = strcspn(host, "/?#");
    const char *at = memrchr(host, '@', n); /* behind who is asked as */
    if (at) {
        n -= (size_t)(at + 1 - host);
        host = at + 1;
    }
    bool has_port = memchr(host, ':', n) && host[0] != '[';
    if (n)
        context_hint(ctx, "write --%s %.*s%s; rules about paths and methods are for a file, --policy", flag,
                     (int)MIN(n, 150), host, has_port ? "" : port);
    return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "--%s %.100s: that is a URL, and a rule names a host", flag, value);
}

static int take_secret(struct context *ctx, struct net_flags *f, const char *value)
{
    const char *eq = strchr(value, '=');
    if (eq && strstr(eq, "://"))
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT,
                       "--secret %.100s: write the host alone, without https:// and path", value);
    AUTO_FREE char *name = mem_strndup(value, eq ? (size_t)(eq - value) : strlen(value));
    if (!*name || (eq && !eq[1]))
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "--secret %s: write NAME or NAME=HOST", value);
    if (!f->secrets)
        f->secrets = json_object();
    json_t *hosts = json_object_get(f->secrets, name);
    if (!hosts && json_object_set_new(f->secrets, name, hosts = json_array()) < 0)
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "--secret must be UTF-8");
    if (eq && json_array_append_new(hosts, json_string(eq + 1)) < 0)
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "--secret must be UTF-8");
    return 0;
}

/* As the service will judge it, which would call it a failure of its own: what is wrong here is the command line. */
static int net_flags_check(struct context *ctx, const json_t *policy)
{
    struct policy *parsed = NULL;
    if (policy_parse(policy, &parsed, &ctx->err) < 0) {
        context_hint(ctx, "'cove policy --help' says what rules are");
        return -1;
    }
    policy_unref(parsed);
    return 0;
}

/* One that is alone needs no place in the list of all. */
static int check_rule(struct context *ctx, const char *flag, const char *value, json_t *rule)
{
    AUTO_JSON json_t *policy = json_pack("{s:[O]}", "rules", rule);
    if (net_flags_check(ctx, policy) == 0)
        return 0;
    const char *place = strstr(ctx->err.msg, ": ");
    struct err why = ctx->err;
    return err_set(&ctx->err, why.code, "--%s %.100s: %s", flag, value,
                   place ? why.msg + (place - ctx->err.msg) + 2 : why.msg);
}

static int take_rule(struct context *ctx, struct net_flags *f, const char *verdict, const char *value)
{
    if (refuse_url(ctx, verdict, value) < 0)
        return -1;
    AUTO_JSON json_t *rule = net_flags_rule(verdict, str_of(value));
    if (!rule)
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT,
                       "--%s %s: write a name, *.name, an address or a network, with :PORT behind it or without",
                       verdict, value);
    if (check_rule(ctx, verdict, value, rule) < 0)
        return -1;
    f->has_allow |= *verdict == 'a';
    if (!f->rules)
        f->rules = json_array();
    (void)json_array_append(f->rules, rule);
    return 0;
}

int net_flags_take(struct context *ctx, void *net, const char *flag, const char *value)
{
    struct net_flags *f = net;
    if (strcmp(flag, "secret") == 0)
        return take_secret(ctx, f, value);
    if (strcmp(flag, "allow") == 0 || strcmp(flag, "deny") == 0)
        return take_rule(ctx, f, flag, value);
    if (strcmp(flag, "policy") == 0)
        f->policy_file = value;
    else if (strcmp(value, "allow") == 0 || strcmp(value, "deny") == 0)
        f->otherwise = value;
    else
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "--net %s: write allow or deny", value);
    return 0;
}

/* ---- the policy ---- */

/* A variable can't have all the characters that a secret's name may. */
static char *variable_of(const char *name)
{
    char *variable = mem_strdup(name);
    for (char *c = variable; *c; c++)
        if (*c == '.' || *c == '-')
            *c = '_';
    return variable;
}

static json_t *allowed_names(const json_t *rules)
{
    json_t *names = json_array();
    JSON_FOREACH (rule, rules) {
        json_t *target = json_object_get(rule, "allow");
        if (target && net_flags_is_name(json_string_value(target)))
            (void)json_array_append(names, target);
    }
    return names;
}

static int add_secret(struct context *ctx, const struct net_flags *f, const char *name, json_t *hosts, json_t *policy,
                      json_t *env)
{
    char token[NET_FLAGS_STAND_IN_LEN + 1];
    AUTO_FREE char *variable = variable_of(name);
    AUTO_JSON json_t *all = json_array_size(hosts) ? json_incref(hosts) : allowed_names(f->rules);
    json_t *rules = json_object_get(policy, "rules"), *inject = json_object_get(policy, "inject");
    if (json_array_size(all) == 0)
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "--secret %s: say for which host: --secret %s=api.example.com",
                       name, name);
    if (json_object_get(env, variable))
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "--secret %s: the variable %s is set by -e too", name,
                       variable);
    id_token(token, NET_FLAGS_STAND_IN_LEN);
    AUTO_FREE char *stand_in = mem_printf("cove-secret-%s", token);
    (void)json_object_set_new(env, variable, json_string(stand_in));
    JSON_FOREACH (host, all) {
        (void)json_array_append_new(inject, json_pack("{s:O,s:[{s:s,s:s}]}", "host", host, "placeholders", "sentinel",
                                                      stand_in, "secret", name));
        if (json_array_size(hosts))
            (void)json_array_append_new(rules, json_pack("{s:O,s:[i]}", "allow", host, "ports", 443));
    }
    return 0;
}

/* The file's, with what the flags say put in front. */
static int base_policy(struct context *ctx, const struct net_flags *f, json_t **ret_policy)
{
    AUTO_JSON json_t *policy = NULL;
    static const char *const lists[] = {"rules", "inject"};
    if (f->policy_file && yaml_read(f->policy_file, &policy, &ctx->err) < 0)
        return err_prefix(&ctx->err, "--policy");
    if (!policy)
        policy = json_object();
    if (!json_is_object(policy))
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "--policy %s: a policy is a mapping", f->policy_file);
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        json_t *list = json_object_get(policy, lists[i]);
        if (list && !json_is_array(list))
            return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "--policy %s: %s must be a list", f->policy_file, lists[i]);
        if (!list)
            (void)json_object_set_new(policy, lists[i], json_array());
    }
    if (f->otherwise)
        (void)json_object_set_new(policy, "default", json_string(f->otherwise));
    else if (!f->policy_file)
        (void)json_object_set_new(policy, "default", json_string(f->has_allow ? "deny" : "allow"));
    for (size_t i = json_array_size(f->rules); i-- > 0;)
        (void)json_array_insert(json_object_get(policy, "rules"), 0, json_array_get(f->rules, i));
    *ret_policy = TAKE_PTR(policy);
    return 0;
}

int net_flags_policy(struct context *ctx, struct net_flags *f, json_t **env, json_t **ret_policy)
{
    AUTO_JSON json_t *policy = NULL;
    *ret_policy = NULL;
    if (!f->otherwise && !f->policy_file && !f->rules && !f->secrets)
        return 0;
    if (base_policy(ctx, f, &policy) < 0)
        return -1;
    if (f->secrets && !*env)
        *env = json_object();
    JSON_FOREACH_MEMBER (name, hosts, f->secrets)
        if (add_secret(ctx, f, name, hosts, policy, *env) < 0)
            return -1;
    if (json_array_size(json_object_get(policy, "inject")) == 0)
        (void)json_object_del(policy, "inject");
    if (net_flags_check(ctx, policy) < 0)
        return err_prefix(&ctx->err, "%s", f->policy_file ? f->policy_file : "--secret"); /* the rules are good */
    *ret_policy = TAKE_PTR(policy);
    return 0;
}

void net_flags_fini(struct net_flags *f)
{
    json_decref(f->rules);
    json_decref(f->secrets);
}
