/* SPDX-License-Identifier: Apache-2.0 */
#include "api/opensandbox/handlers.h"

int vault_read_value(const json_t *one, struct str *ret_name, struct buf *ret_value, struct err *err)
{
    json_t *source = NULL;
    struct str type = STR("inline"), value = STR_NULL;
    if (!json_is_object(one) ||
        JSON_WANTS(one, NULL, err, JSON_NEED_STR("name", ret_name), JSON_WANT_OBJECT("source", &source)) < 0 ||
        !source || JSON_WANTS(source, NULL, err, JSON_WANT_STR("type", &type), JSON_NEED_STR("value", &value)) < 0 ||
        !str_eqc(type, "inline") || ret_name->n > VAULT_NAME_MAX || value.n > VAULT_VALUE_MAX)
        return err_set(
            err, ERR_INVALID_ARGUMENT,
            "a credential is {\"name\", \"source\": {\"type\": \"inline\", \"value\"}}, with a name of at most %d "
            "bytes and a value of at most %d",
            VAULT_NAME_MAX, VAULT_VALUE_MAX);
    for (size_t i = 0; i < value.n; i++)
        if ((unsigned char)value.p[i] < 0x20 || value.p[i] == 0x7f)
            return err_set(err, ERR_INVALID_ARGUMENT, "credential '%.*s': its value has control characters",
                           STR_ARG(*ret_name));
    for (size_t i = 0; i < value.n; i++)
        buf_append_str(ret_value, value.p[i] == '$' ? STR("$$") : str_n(value.p + i, 1));
    return 0;
}

static bool vault_allows(const json_t *policy, const char *host)
{
    size_t n = strlen(host);
    JSON_FOREACH (rule, json_object_get(policy, "rules")) {
        const char *allow = json_string_value(json_object_get(rule, "allow"));
        size_t m = allow ? strlen(allow) : 0;
        if (allow && (strcmp(allow, host) == 0 ||
                      (m > 2 && allow[0] == '*' && n > m - 1 && strcmp(host + n - (m - 1), allow + 1) == 0)))
            return true;
    }
    return false;
}

const char *vault_used(const json_t *binding, size_t i)
{
    const json_t *auth = json_object_get(binding, "auth"), *headers = json_object_get(auth, "headers");
    const char *one = json_string_value(json_object_get(auth, "credential"));
    size_t n = one ? 1 : json_array_size(headers);
    if (one && i == 0)
        return one;
    return json_string_value(json_object_get(i < n ? json_array_get(headers, i)
                                                   : json_array_get(json_object_get(auth, "substitutions"), i - n),
                                             "credential"));
}

static int vault_check_substitution(const json_t *one, struct err *err)
{
    struct str credential = STR(""), placeholder = STR("");
    json_t *in = NULL;
    size_t i;
    if (!json_is_object(one))
        return err_set(err, ERR_INVALID_ARGUMENT, "substitutions are objects");
    if (JSON_WANTS(one, NULL, err, JSON_NEED_STR("credential", &credential), JSON_NEED_STR("placeholder", &placeholder),
                   JSON_WANT_ARRAY("in", &in)) < 0)
        return -1;
    for (i = 0; i < placeholder.n; i++)
        if (placeholder.p[i] <= ' ' || placeholder.p[i] > '~' || placeholder.p[i] == '"' || placeholder.p[i] == '\\')
            break;
    if (!placeholder.n || i < placeholder.n || placeholder.n > VAULT_PLACEHOLDER_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "a placeholder is 1 to %d visible characters without blanks, \" and \\", VAULT_PLACEHOLDER_MAX);
    JSON_FOREACH (place, in) {
        const char *text = json_is_string(place) ? json_string_value(place) : "";
        if (strcmp(text, "path") != 0 && strcmp(text, "query") != 0 && strcmp(text, "header") != 0 &&
            strcmp(text, "body") != 0)
            return err_set(err, ERR_INVALID_ARGUMENT, "a placeholder stands in path, query, header or body");
    }
    return json_array_size(in) ? 0 : err_set(err, ERR_INVALID_ARGUMENT, "a substitution has \"in\"");
}

/* What there is of "auth" is what its type wants, and nothing else, lest a value stand where it can be read. */
static int vault_check_auth(const json_t *auth, struct str type, struct err *err)
{
    struct str credential = STR(""), name = STR("");
    json_t *headers = NULL, *substitutions = NULL;
    bool has_one = str_eqc(type, "bearer") || str_eqc(type, "basic"), has_name = str_eqc(type, "apiKey"),
         has_headers = str_eqc(type, "customHeaders");
    if (!has_one && !has_name && !has_headers && !str_eqc(type, "passthrough"))
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "its type must be bearer, basic, apiKey, customHeaders or passthrough");
    const struct json_want all[] = {JSON_NEED_STR("type", &type), JSON_WANT_ARRAY("substitutions", &substitutions),
                                    JSON_NEED_STR("credential", &credential), JSON_NEED_STR("name", &name)},
                           of_headers[] = {all[0], all[1], JSON_WANT_ARRAY("headers", &headers)};
    if (has_headers
            ? json_wants(auth, of_headers, ARRAY_SIZE(of_headers), NULL, true, err) < 0
            : json_wants(auth, all, 2 + (has_one || has_name ? 1 : 0) + (has_name ? 1 : 0), NULL, true, err) < 0)
        return -1;
    JSON_FOREACH (one, substitutions)
        if (vault_check_substitution(one, err) < 0)
            return -1;
    if (!has_headers)
        return 0;
    JSON_FOREACH (one, headers) {
        if (!json_is_object(one))
            return err_set(err, ERR_INVALID_ARGUMENT, "headers are objects");
        if (JSON_WANTS(one, NULL, err, JSON_NEED_STR("name", &name), JSON_NEED_STR("credential", &credential)) < 0)
            return -1;
    }
    return json_array_size(headers) ? 0 : err_set(err, ERR_INVALID_ARGUMENT, "its headers are missing");
}

int vault_check_binding(const json_t *values, const json_t *policy, const json_t *one, struct str *ret_name,
                        struct err *err)
{
    json_t *match = NULL, *auth = NULL, *list = NULL, *schemes = NULL, *paths = NULL;
    struct str type = STR("");
    size_t i;
    if (!json_is_object(one))
        return err_set(err, ERR_INVALID_ARGUMENT, "bindings are objects");
    if (JSON_WANTS(one, NULL, err, JSON_NEED_STR("name", ret_name), JSON_WANT_OBJECT("match", &match),
                   JSON_WANT_OBJECT("auth", &auth)) < 0)
        return err_prefix(err, "bindings");
    if (!match || !auth || json_get_str(auth, "type", &type, err) <= 0 || ret_name->n > VAULT_NAME_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "a binding has \"name\", \"match\" and \"auth\" with its \"type\"");
    if (vault_check_auth(auth, type, err) < 0)
        return err_prefix(err, "binding '%.*s': auth", STR_ARG(*ret_name));
    if (JSON_WANTS(match, NULL, err, JSON_WANT_ARRAY("schemes", &schemes), JSON_WANT_ARRAY("hosts", &list),
                   JSON_WANT_ANY("ports"), JSON_WANT_ANY("methods"), JSON_WANT_ARRAY("paths", &paths)) < 0)
        return err_prefix(err, "binding '%.*s': match", STR_ARG(*ret_name));
    for (i = 0; vault_used(one, i); i++)
        if (!json_object_get(values, vault_used(one, i)))
            return err_set(err, ERR_INVALID_ARGUMENT, "binding '%.*s': there is no credential '%.64s'",
                           STR_ARG(*ret_name), vault_used(one, i));
    JSON_FOREACH (text, paths)
        if (!json_is_string(text))
            return err_set(err, ERR_INVALID_ARGUMENT, "binding '%.*s': paths must be strings", STR_ARG(*ret_name));
    JSON_FOREACH (text, schemes)
        if (!json_is_string(text) ||
            (strcmp(json_string_value(text), "https") != 0 && strcmp(json_string_value(text), "http") != 0))
            return err_set(err, ERR_INVALID_ARGUMENT, "binding '%.*s': schemes are http and https", STR_ARG(*ret_name));
    if (!json_array_size(list))
        return err_set(err, ERR_INVALID_ARGUMENT, "binding '%.*s': match.hosts is required", STR_ARG(*ret_name));
    JSON_FOREACH (text, list)
        if (!json_is_string(text) || strcmp(json_string_value(text), VAULT_STORE_HOST) == 0 ||
            !vault_allows(policy, json_string_value(text)))
            return err_set(err, ERR_INVALID_ARGUMENT, "binding '%.*s': no rule of the policy allows host '%.80s'",
                           STR_ARG(*ret_name), json_is_string(text) ? json_string_value(text) : "");
    return 0;
}

json_t *vault_row(const json_t *binding, int64_t revision)
{
    static const char *const parts[] = {"schemes", "methods", "paths"};
    json_t *row = json_deep_copy(binding), *match = json_object_get(row, "match"),
           *usual[] = {json_pack("[s]", "https"), json_pack("[sssss]", "GET", "POST", "PUT", "PATCH", "DELETE"),
                       json_pack("[s]", "/*")};
    bool says_more = false;
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        if (!json_array_size(json_object_get(match, parts[i])))
            (void)json_object_set(match, parts[i], usual[i]);
        json_decref(usual[i]);
    }
    JSON_FOREACH (port, json_object_get(match, "ports"))
        says_more |= json_integer_value(port) != 80 && json_integer_value(port) != 443;
    if (json_is_array(json_object_get(match, "ports")) && !says_more)
        (void)json_object_del(match, "ports");
    (void)json_object_set_new(row, "revision", json_integer(revision));
    return row;
}

/* "*.a.b" and "x.a.b", "/v1/..." and "/v1/": is there something that both match? A star stands in front of a host, or
 * behind a path. */
static bool vault_overlap(const json_t *a, const json_t *b)
{
    struct str one = json_str(a), other = json_str(b);
    if (json_equal(a, b) || !json_is_string(a) || !json_is_string(b))
        return json_equal(a, b);
    for (int turn = 0; turn < 2; turn++) {
        struct str swap = one;
        if (one.n && ((one.p[0] == '*' && str_ends(other, str_sub(one, 1))) ||
                      (one.p[one.n - 1] == '*' && str_starts(other, str_n(one.p, one.n - 1)))))
            return true;
        one = other;
        other = swap;
    }
    return false;
}

/* Do lists of strings or numbers have one in common? An absent one is all. */
static bool vault_share(const json_t *a, const json_t *b)
{
    if (!json_array_size(a) || !json_array_size(b))
        return true;
    JSON_FOREACH (one, a) {
        JSON_FOREACH (other, b)
            if (vault_overlap(one, other))
                return true;
    }
    return false;
}

bool vault_collide(const json_t *a, const json_t *b)
{
    static const char *const parts[] = {"schemes", "hosts", "ports", "methods", "paths"};
    bool all = true;
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        all &= vault_share(json_object_get(json_object_get(a, "match"), parts[i]),
                           json_object_get(json_object_get(b, "match"), parts[i]));
    return all;
}
