/* SPDX-License-Identifier: Apache-2.0 */
#include "here/settings.h"
#include "base/mem.h"
#include "policy/hostname.h"
#include "policy/netaddr.h"
#include "policy/policy.h"

enum { DEPTH = 3, DEPTH_MAX = 10 };

struct settings_reader {
    struct settings *s;
    struct err *err;
    void *to; /* the member of s that the key is for */
};

/* ---- keys, a table for each object ---- */

struct settings_key {
    const char *name;
    int (*take)(struct settings_reader *r, const char *key, const json_t *value); /* NULL: means nothing here */
    bool is_required;
    size_t at; /* that member; 0: the function knows */
};

static int settings_refuse(struct settings_reader *r, const char *key, const char *why)
{
    return err_set(r->err, ERR_INVALID_ARGUMENT, "%.80s: %s", key, why);
}

static int settings_take_object(struct settings_reader *r, const char *place, const json_t *object,
                                const struct settings_key *keys, size_t n)
{
    if (!json_is_object(object))
        return settings_refuse(r, place[0] ? place : "settings", "must be an object");
    JSON_FOREACH_MEMBER (name, value, object) {
        AUTO_FREE char *full = mem_printf("%s%s%s", place, place[0] ? "." : "", name);
        size_t i = 0;
        while (i < n && strcmp(keys[i].name, name) != 0)
            i++;
        for (char *c = full; *c; c++)
            *c = *c < ' ' || *c > '~' ? '?' : *c;
        if (i == n)
            return settings_refuse(r, full, "there is no such key");
        r->to = (char *)r->s + keys[i].at;
        if (keys[i].take && keys[i].take(r, full, value) < 0)
            return -1;
    }
    for (size_t i = 0; i < n; i++)
        if (keys[i].is_required && !json_object_get(object, keys[i].name))
            return err_set(r->err, ERR_INVALID_ARGUMENT, "%s%s%s: is missing", place, place[0] ? "." : "",
                           keys[i].name);
    return 0;
}

static int settings_take_bool(struct settings_reader *r, const char *key, const json_t *value)
{
    if (!json_is_boolean(value))
        return settings_refuse(r, key, "must be true or false");
    *(bool *)r->to = json_is_true(value);
    return 0;
}

static int settings_check_strings(struct settings_reader *r, const char *key, const json_t *array)
{
    if (!json_is_array(array))
        return settings_refuse(r, key, "must be an array of strings");
    JSON_FOREACH (one, array)
        if (!json_string_length(one) || strlen(json_string_value(one)) != json_string_length(one))
            return settings_refuse(r, key, "must hold strings that are not empty");
    return 0;
}

static int settings_take_list(struct settings_reader *r, const char *key, const json_t *array)
{
    if (settings_check_strings(r, key, array) < 0)
        return -1;
    JSON_FOREACH (one, array)
        settings_list_add(r->to, json_string_value(one));
    return 0;
}

static int settings_refuse_key(struct settings_reader *r, const char *key, const json_t *value UNUSED)
{
    return settings_refuse(r, key, "is not supported: connections go through Cove's own engine and no other proxy");
}

/* ---- network ---- */

/* "host", "*.a.b", "[v6]", each with ":port" or without. may_be_any: "*" and "*:port" too. Appends a rule. */
static int settings_add_domain(struct settings_reader *r, const char *key, const char *text, const char *verb)
{
    bool is_deny = strcmp(verb, "deny") == 0;
    struct str host = str_of(text), port = STR_NULL;
    struct netaddr address;
    char pattern[HOSTNAME_MAX + 3];
    uint64_t number = 0;
    ssize_t colon = str_find_char(host, text[0] == '[' ? ']' : ':');
    if (text[0] == '[' && colon > 0) {
        port = str_sub(host, (size_t)colon + 1);
        host = str_n(text + 1, (size_t)colon - 1);
        if (port.n && port.p[0] != ':')
            return settings_refuse(r, key, "after ] only a port can follow");
    } else if (colon >= 0) {
        port = str_sub(host, (size_t)colon);
        host.n = (size_t)colon;
    }
    if (port.n && (port.n < 2 || port.p[1] < '1' || port.p[1] > '9' || str_to_u64(str_sub(port, 1), &number) < 0 ||
                   number > UINT16_MAX))
        return err_set(r->err, ERR_INVALID_ARGUMENT, "%s: \"%.80s\" has no valid port (HOST:PORT, no scheme)", key,
                       text);
    if (!netaddr_parse(host, &address)) {
        if (host.n > 2 && host.p[0] == '*' && !memchr(host.p + 2, '.', host.n - 2) && !is_deny)
            return err_set(r->err, ERR_INVALID_ARGUMENT, "%s: \"%.80s\" is too much: two labels must follow the star",
                           key, text);
        if (!hostname_pattern_normalise(host, pattern) || (!is_deny && str_eqc(host, "*")))
            return err_set(r->err, ERR_INVALID_ARGUMENT,
                           "%s: \"%.80s\" is not a host (no scheme, no path), *.name or an address", key, text);
        if (!is_deny && strcmp(pattern, "localhost") == 0)
            return settings_refuse(r, key, "localhost is the command's own loopback and can't mean this machine's");
    }
    json_t *rule = json_pack("{s:s%}", verb, host.p, host.n);
    if (port.n)
        (void)json_object_set_new(rule, "ports", json_pack("[i]", (int)number));
    /* What is denied goes first, and always wins. */
    (void)(is_deny ? json_array_insert_new(r->s->rules, 0, rule) : json_array_append_new(r->s->rules, rule));
    return 0;
}

static int settings_add_domains(struct settings_reader *r, const char *key, const json_t *value, const char *verb)
{
    if (settings_check_strings(r, key, value) < 0)
        return -1;
    JSON_FOREACH (one, value)
        if (settings_add_domain(r, key, json_string_value(one), verb) < 0)
            return -1;
    return 0;
}

static int settings_allowed(struct settings_reader *r, const char *key, const json_t *value)
{
    r->s->wants_network = json_array_size(value) > 0;
    return settings_add_domains(r, key, value, "allow");
}

static int settings_denied(struct settings_reader *r, const char *key, const json_t *value)
{
    return settings_add_domains(r, key, value, "deny");
}

static int settings_resolved(struct settings_reader *r, const char *key, const json_t *value)
{
    struct netcidr net;
    if (settings_check_strings(r, key, value) < 0)
        return -1;
    JSON_FOREACH (one, value) {
        if (!netcidr_parse(str_of(json_string_value(one)), &net))
            return settings_refuse(r, key, "must hold addresses and networks");
        (void)json_array_insert_new(r->s->rules, 0, json_pack("{s:O}", "deny", one));
    }
    return 0;
}

static int settings_reasons(struct settings_reader *r, const char *key, const json_t *value)
{
    if (!json_is_object(value))
        return settings_refuse(r, key, "must be an object");
    JSON_FOREACH_MEMBER (name, one, value) {
        if (!json_is_string(one))
            return settings_refuse(r, key, "must hold texts");
    }
    r->s->reasons = json_incref((json_t *)value);
    return 0;
}

static int settings_strict(struct settings_reader *r, const char *key, const json_t *value)
{
    return json_is_boolean(value) ? 0 : settings_refuse(r, key, "must be true or false"); /* nobody is ever asked */
}

static int settings_ca_files(struct settings_reader *r, const char *key, const json_t *value)
{
    if (settings_check_strings(r, key, value) < 0)
        return -1;
    if (json_array_size(value) > 1)
        return settings_refuse(r, key, "more than one file is not supported: put the certificates into one");
    r->s->trust = mem_strdup(json_string_value(json_array_get(value, 0)));
    return 0;
}

static int settings_tls(struct settings_reader *r, const char *key, const json_t *value)
{
    static const struct settings_key keys[] = {
        {"caCertPath", settings_refuse_key, false, 0},
        {"caKeyPath", settings_refuse_key, false, 0},
        {"excludeDomains", settings_refuse_key, false, 0},
        {"extraCaCertPaths", settings_ca_files, false, 0},
    };
    return settings_take_object(r, key, value, keys, ARRAY_SIZE(keys));
}

static int settings_network(struct settings_reader *r, const char *key, const json_t *value)
{
    static const struct settings_key keys[] = {
        {"allowedDomains", settings_allowed, true, 0},
        {"deniedDomains", settings_denied, true, 0},
        {"deniedDomainReasons", settings_reasons, false, 0},
        {"strictAllowlist", settings_strict, false, 0},
        {"deniedResolvedAddresses", settings_resolved, false, 0},
        {"allowAllUnixSockets", settings_take_bool, false, offsetof(struct settings, all_unix_sockets)},
        {"tlsTerminate", settings_tls, false, 0},
        {"httpProxyPort", settings_refuse_key, false, 0},
        {"socksProxyPort", settings_refuse_key, false, 0},
        {"mitmProxy", settings_refuse_key, false, 0},
        {"parentProxy", settings_refuse_key, false, 0},
        {"allowUnixSockets", NULL, false, 0}, /* macOS, as the next two */
        {"allowLocalBinding", NULL, false, 0},
        {"allowMachLookup", NULL, false, 0},
    };
    return settings_take_object(r, key, value, keys, ARRAY_SIZE(keys));
}

/* ---- files ---- */

static int settings_filesystem(struct settings_reader *r, const char *key, const json_t *value)
{
    static const struct settings_key keys[] = {
        {"disabled", settings_take_bool, false, offsetof(struct settings, files_disabled)},
        {"denyRead", settings_take_list, true, offsetof(struct settings, deny_read)},
        {"allowRead", settings_take_list, false, offsetof(struct settings, allow_read)},
        {"allowWrite", settings_take_list, true, offsetof(struct settings, allow_write)},
        {"denyWrite", settings_take_list, true, offsetof(struct settings, deny_write)},
        {"allowGitConfig", settings_take_bool, false, offsetof(struct settings, git_config)},
    };
    return settings_take_object(r, key, value, keys, ARRAY_SIZE(keys));
}

/* ---- credentials ---- */

static bool settings_covers(struct str pattern, struct str host)
{
    return str_eq_nocase(pattern, host) || (str_starts(pattern, STR("*.")) && host.n > pattern.n - 1 &&
                                            str_eq_nocase(str_sub(host, host.n - pattern.n + 1), str_sub(pattern, 1)));
}

/* The real value goes only where the command may go as well. */
static bool settings_is_allowed(const struct settings *s, struct str host)
{
    JSON_FOREACH (rule, s->rules) {
        const char *allow = json_string_value(json_object_get(rule, "allow"));
        if (allow && settings_covers(str_of(allow), host))
            return true;
    }
    return false;
}

json_t *settings_reason(const struct settings *s, const char *host)
{
    JSON_FOREACH_MEMBER (entry, text, s->reasons) {
        const struct str pattern = str_n(entry, strcspn(entry, ":"));
        if (str_eqc(pattern, "*") || settings_covers(pattern, str_of(host)))
            return text;
    }
    return NULL;
}

static int settings_add_secret(struct settings_reader *r, const char *key, const json_t *one, bool is_file)
{
    static const char *const known[] = {"mode", "injectHosts"};
    const char *name = json_string_value(json_object_get(one, is_file ? "path" : "name"));
    const char *mode = json_string_value(json_object_get(one, "mode"));
    json_t *hosts = json_object_get(one, "injectHosts");
    JSON_FOREACH_MEMBER (member, value, one)
        if (strcmp(member, is_file ? "path" : "name") != 0 && strcmp(member, known[0]) != 0 &&
            strcmp(member, known[1]) != 0)
            return err_set(r->err, ERR_INVALID_ARGUMENT, "%s: \"%.40s\" is not supported", key, member);
    if (!name || !name[0] || !mode || (strcmp(mode, "deny") != 0 && strcmp(mode, "mask") != 0))
        return settings_refuse(r, key,
                               is_file ? "each needs a path, and a mode: deny or mask"
                                       : "each wants a name, and a mode: deny or mask");
    struct settings_secret s = {.is_mask = mode[0] == 'm'};
    if (s.is_mask && (settings_check_strings(r, key, hosts) < 0 || !json_array_size(hosts)))
        return settings_refuse(r, key, "a masked variable or file needs injectHosts, a list of hosts");
    s.hosts = s.is_mask ? json_incref(hosts) : NULL;
    *(is_file ? &s.path : &s.name) = mem_strdup(name);
    struct settings *all = r->s;
    all->secrets = mem_realloc(all->secrets, (all->n_secrets + 1) * sizeof(s));
    all->secrets[all->n_secrets++] = s;
    return 0;
}

static int settings_add_secrets(struct settings_reader *r, const char *key, const json_t *value, bool is_file)
{
    if (!json_is_array(value))
        return settings_refuse(r, key, "must be an array");
    JSON_FOREACH (one, value)
        if (settings_add_secret(r, key, one, is_file) < 0)
            return -1;
    return 0;
}

static int settings_secret_files(struct settings_reader *r, const char *key, const json_t *value)
{
    return settings_add_secrets(r, key, value, true);
}

static int settings_secret_variables(struct settings_reader *r, const char *key, const json_t *value)
{
    return settings_add_secrets(r, key, value, false);
}

static int settings_plain(struct settings_reader *r, const char *key, const json_t *value)
{
    return json_is_false(value) ? 0 : settings_refuse(r, key, "is not supported: secrets are only sent over TLS");
}

static int settings_aws(struct settings_reader *r, const char *key, const json_t *value UNUSED)
{
    return settings_refuse(r, key, "is not supported: requests are not signed anew");
}

static int settings_credentials(struct settings_reader *r, const char *key, const json_t *value)
{
    static const struct settings_key keys[] = {
        {"files", settings_secret_files, false, 0},
        {"envVars", settings_secret_variables, false, 0},
        {"allowPlaintextInject", settings_plain, false, 0},
        {"awsPairs", settings_aws, false, 0},
        {"sigv4", settings_aws, false, 0},
    };
    return settings_take_object(r, key, value, keys, ARRAY_SIZE(keys));
}

/* ---- the whole ---- */

static int settings_muted(struct settings_reader *r, const char *key, const json_t *value)
{
    if (!json_is_object(value))
        return settings_refuse(r, key, "must be an object");
    JSON_FOREACH_MEMBER (name, one, value) {
        if (settings_check_strings(r, key, one) < 0)
            return -1;
    }
    r->s->muted = json_incref((json_t *)value);
    return 0;
}

static int settings_depth(struct settings_reader *r, const char *key, const json_t *value)
{
    if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > DEPTH_MAX)
        return settings_refuse(r, key, "must be a number from 1 to 10");
    r->s->search_depth = (unsigned)json_integer_value(value);
    return 0;
}

static int settings_git(struct settings_reader *r, const char *key, const json_t *value)
{
    static const struct settings_key keys[] = {
        {"safeDirectories", settings_take_list, false, offsetof(struct settings, safe_directories)}};
    return settings_take_object(r, key, value, keys, ARRAY_SIZE(keys));
}

static int settings_check(struct settings_reader *r)
{
    struct policy *policy;
    json_t *json = json_pack("{s:O}", "rules", r->s->rules);
    int e = policy_parse(json, &policy, r->err);
    json_decref(json);
    if (e < 0)
        return err_prefix(r->err, "network");
    policy_unref(policy);
    for (size_t i = 0; i < r->s->n_secrets; i++) {
        JSON_FOREACH (host, r->s->secrets[i].hosts)
            if (!settings_is_allowed(r->s, str_of(json_string_value(host))))
                return err_set(r->err, ERR_INVALID_ARGUMENT, "credentials: network.allowedDomains has no \"%.80s\"",
                               json_string_value(host));
    }
    return 0;
}

int settings_parse(const char *text, size_t n, struct settings **ret_settings, struct err *err)
{
    static const struct settings_key keys[] = {
        {"network", settings_network, true, 0},
        {"filesystem", settings_filesystem, true, 0},
        {"credentials", settings_credentials, false, 0},
        {"ignoreViolations", settings_muted, false, 0},
        {"enableWeakerNestedSandbox", settings_take_bool, false, offsetof(struct settings, weaker_nested)},
        {"mandatoryDenySearchDepth", settings_depth, false, 0},
        {"git", settings_git, false, 0},
        {"enableWeakerNetworkIsolation", NULL, false, 0}, /* macOS, as the next two */
        {"allowAppleEvents", NULL, false, 0},
        {"allowPty", NULL, false, 0},
        {"windows", NULL, false, 0},
        {"ripgrep", NULL, false, 0}, /* helpers of srt's own */
        {"seccomp", NULL, false, 0},
        {"bwrapPath", NULL, false, 0},
        {"socatPath", NULL, false, 0},
        {"javaAgentJarPath", NULL, false, 0},
    };
    AUTO(settings_free) struct settings *s = mem_new(struct settings);
    struct settings_reader r = {.s = s, .err = err};
    json_error_t why;
    s->rules = json_array();
    s->search_depth = DEPTH;
    if (text) {
        json_t *json = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
        if (!json)
            return err_set(err, ERR_INVALID_ARGUMENT, "line %d: %.160s", why.line, why.text);
        int e = settings_take_object(&r, "", json, keys, ARRAY_SIZE(keys));
        json_decref(json);
        if (e < 0 || settings_check(&r) < 0)
            return -1;
    }
    *ret_settings = TAKE_PTR(s);
    return 0;
}

void settings_list_add(struct settings_list *list, const char *item)
{
    list->items = mem_realloc(list->items, (list->n + 1) * sizeof(*list->items));
    list->items[list->n++] = mem_strdup(item);
}

static void settings_list_free(struct settings_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        mem_free(list->items[i]);
    mem_free(list->items);
}

void settings_free(struct settings *s)
{
    if (!s)
        return;
    settings_list_free(&s->deny_read);
    settings_list_free(&s->allow_read);
    settings_list_free(&s->allow_write);
    settings_list_free(&s->deny_write);
    settings_list_free(&s->safe_directories);
    for (size_t i = 0; i < s->n_secrets; i++) {
        mem_free(s->secrets[i].name);
        mem_free(s->secrets[i].path);
        json_decref(s->secrets[i].hosts);
    }
    mem_free(s->secrets);
    json_decref(s->rules);
    json_decref(s->reasons);
    json_decref(s->muted);
    MEM_FREE(s->trust, s);
}
