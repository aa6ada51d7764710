/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The credential vault of the egress service, onto what our policies inject (docs/NETWORK.md, "Secrets").
 *
 *  1. Its rows (names, revisions, bindings) are the network's fields, in which no secret is. Values stand in the
 *     policy's "inject" alone: each credential in a header for a host that does not exist (VAULT_STORE_HOST), where
 *     cove-egress seals it before anything is stored, so that it is there also while no binding uses it.
 *  2. Every change makes all of "inject" anew: the store's headers as they are, sealed, and one entry for each host and
 *     path of a binding, whose headers refer to the same sealed text. A value that has just come stands there as it is,
 *     and is sealed on the way.
 *  3. The change is one network_set(): the gate is asked, it is in force when it is answered, and a value is never read
 *     back.
 */
#include "api/opensandbox/handlers.h"
#include "base/mem.h"
#include "sandbox/network/network.h"

#define FIELDS_KEY "credentialVault"
enum { CREDENTIALS_MAX = 128, BINDINGS_MAX = 32, HEADERS_PER_ENTRY = 20 };

/* What is being made of it. */
struct osb_vault {
    json_t *rows;   /* {"revision","credentials":{name: revision},"bindings":{name: {...}}}; owned */
    json_t *values; /* name -> the header's value that stands for it, sealed or new; owned */
    int64_t revision;
};

static json_t *vault_rows(const struct sandbox *sb)
{
    return json_object_get(network_fields(sb), FIELDS_KEY);
}

static void vault_fini(struct osb_vault *v)
{
    json_decref(v->rows);
    json_decref(v->values);
}

/* ---- changes of it ---- */

enum vault_verb { VAULT_ADD, VAULT_REPLACE };

/* May this name be put there? all: credentials, or bindings. */
static int vault_may_put(const json_t *all, const char *what, struct str name, enum vault_verb verb, size_t most,
                         struct err *err)
{
    bool is_there = json_object_get(all, name.p);
    if (is_there == (verb == VAULT_ADD))
        return err_set(err, is_there ? ERR_ALREADY_EXISTS : ERR_NOT_FOUND, "%s '%.*s' %s", what, STR_ARG(name),
                       is_there ? "is there already" : "is not there");
    return json_object_size(all) == most ? err_set(err, ERR_RESOURCE_EXHAUSTED, "at most %zu %ss", most, what) : 0;
}

static int vault_put_credentials(struct osb_vault *v, const json_t *list, enum vault_verb verb, struct err *err)
{
    json_t *all = json_object_get(v->rows, "credentials");
    JSON_FOREACH (one, list) {
        AUTO_BUF struct buf value = BUF_INIT(2 * VAULT_VALUE_MAX + 1);
        struct str name = STR_NULL;
        if (vault_read_value(one, &name, &value, err) < 0 ||
            vault_may_put(all, "credential", name, verb, CREDENTIALS_MAX, err) < 0)
            return -1;
        (void)json_object_set_new(all, name.p, json_integer(v->revision));
        (void)json_object_set_new(v->values, name.p, json_stringn(buf_data(&value), buf_len(&value)));
        mem_wipe(buf_data(&value), buf_len(&value));
    }
    return 0;
}

static int vault_put_bindings(struct osb_vault *v, const json_t *policy, const json_t *list, enum vault_verb verb,
                              struct err *err)
{
    json_t *all = json_object_get(v->rows, "bindings");
    JSON_FOREACH (one, list) {
        struct str name = STR_NULL;
        if (vault_check_binding(v->values, policy, one, &name, err) < 0 ||
            vault_may_put(all, "binding", name, verb, BINDINGS_MAX, err) < 0)
            return -1;
        json_t *row AUTO_JSON = vault_row(one, v->revision);
        JSON_FOREACH_MEMBER (key, other, all)
            if (!str_eqc(name, key) && vault_collide(row, other))
                return err_set(err, ERR_INVALID_ARGUMENT, "bindings '%.*s' and '%.64s' match the same requests",
                               STR_ARG(name), key);
        (void)json_object_set(all, name.p, row);
    }
    return 0;
}

static int vault_delete(struct osb_vault *v, const char *of, const json_t *names, struct err *err)
{
    json_t *all = json_object_get(v->rows, of);
    JSON_FOREACH (one, names) {
        const char *name = json_string_value(one);
        if (!name || json_object_del(all, name) < 0)
            return err_set(err, ERR_NOT_FOUND, "%s: '%.64s' is not there", of, name ? name : "");
        JSON_FOREACH_MEMBER (key, binding, json_object_get(v->rows, "bindings"))
            for (size_t k = 0; strcmp(of, "credentials") == 0 && vault_used(binding, k); k++)
                if (strcmp(vault_used(binding, k), name) == 0)
                    return err_set(err, ERR_FAILED_PRECONDITION, "credential '%.64s' is used by binding '%.64s'", name,
                                   key);
        (void)json_object_del(v->values, name);
    }
    return 0;
}

/* ---- as "inject" ---- */

static json_t *vault_header(const struct osb_vault *v, const char *name, const char *scheme, const char *credential)
{
    return json_pack("{s:s,s:o}", "name", name, "value",
                     json_sprintf("%s%s", scheme, json_string_value(json_object_get(v->values, credential))));
}

static json_t *vault_headers(const struct osb_vault *v, const json_t *auth)
{
    const char *type = json_string_value(json_object_get(auth, "type"));
    const char *credential = json_string_value(json_object_get(auth, "credential"));
    json_t *headers = json_array();
    if (strcmp(type, "bearer") == 0 || strcmp(type, "basic") == 0)
        (void)json_array_append_new(
            headers, vault_header(v, "authorization", strcmp(type, "basic") ? "Bearer " : "Basic ", credential));
    else if (credential)
        (void)json_array_append_new(headers,
                                    vault_header(v, json_string_value(json_object_get(auth, "name")), "", credential));
    JSON_FOREACH (one, json_object_get(auth, "headers"))
        (void)json_array_append_new(headers, vault_header(v, json_string_value(json_object_get(one, "name")), "",
                                                          json_string_value(json_object_get(one, "credential"))));
    return headers;
}

static json_t *vault_placeholders(const struct osb_vault *v, const json_t *auth)
{
    json_t *all = json_array();
    JSON_FOREACH (one, json_object_get(auth, "substitutions")) {
        const char *credential = json_string_value(json_object_get(one, "credential"));
        (void)json_array_append_new(
            all, json_pack("{s:O,s:O,s:O,s:[s]}", "sentinel", json_object_get(one, "placeholder"), "value",
                           json_object_get(v->values, credential), "in", json_object_get(one, "in"), "headers", "*"));
    }
    return all;
}

/* One entry for each host, path and scheme: a port is that of the scheme, unless the binding has others. */
static void vault_inject_entry(const json_t *match, const json_t *what, json_t *host, const char *path,
                               const char *scheme, json_t *inject)
{
    json_t *entry = json_copy((json_t *)(uintptr_t)what), *ports = json_object_get(match, "ports");
    (void)json_object_set(entry, "host", host);
    (void)json_object_set_new(entry, "schemes", json_pack("[s]", scheme));
    (void)json_object_set_new(entry, "ports",
                              json_array_size(ports) ? json_incref(ports)
                                                     : json_pack("[i]", strcmp(scheme, "http") ? 443 : 80));
    (void)json_object_set(entry, "methods", json_object_get(match, "methods"));
    if (path && strcmp(path, "/*") != 0 && strcmp(path, "*") != 0)
        (void)json_object_set_new(entry, "path", json_string(path));
    (void)json_array_append_new(inject, entry);
}

static void vault_inject_binding(const struct osb_vault *v, const json_t *binding, json_t *inject)
{
    json_t *match = json_object_get(binding, "match"), *paths = json_object_get(match, "paths"),
           *schemes = json_object_get(match, "schemes"), *auth = json_object_get(binding, "auth"),
           *parts[] = {vault_headers(v, auth), vault_placeholders(v, auth)}, *what AUTO_JSON = json_object();
    static const char *const names[] = {"headers", "placeholders"};
    size_t i, n = MAX(json_array_size(paths), (size_t)1), n_schemes = MAX(json_array_size(schemes), (size_t)1);
    for (i = 0; i < ARRAY_SIZE(parts); i++) {
        if (json_array_size(parts[i]))
            (void)json_object_set(what, names[i], parts[i]);
        json_decref(parts[i]);
    }
    JSON_FOREACH (host, json_object_get(match, "hosts")) {
        for (size_t k = 0; k < n * n_schemes && json_object_size(what); k++) {
            const char *scheme = json_string_value(json_array_get(schemes, k / n));
            vault_inject_entry(match, what, host, json_string_value(json_array_get(paths, k % n)),
                               scheme ? scheme : "https", inject);
        }
    }
}

/* The order of the store's headers is kept, so that they are found again. */
static json_t *vault_inject(const struct osb_vault *v)
{
    json_t *inject = json_array(), *headers = NULL, *order = json_array();
    size_t n = 0;
    char name[16];
    (void)json_object_set_new(v->rows, "order", order);
    JSON_FOREACH_MEMBER (key, one, json_object_get(v->rows, "bindings")) {
        vault_inject_binding(v, one, inject);
    }
    JSON_FOREACH_MEMBER (key, one, json_object_get(v->rows, "credentials")) {
        if (n % HEADERS_PER_ENTRY == 0) {
            headers = json_array();
            (void)json_array_append_new(inject, json_pack("{s:s,s:o}", "host", VAULT_STORE_HOST, "headers", headers));
        }
        (void)snprintf(name, sizeof(name), "x-%zu", n++);
        (void)json_array_append_new(headers, vault_header(v, name, "", key));
        (void)json_array_append_new(order, json_string(key));
    }
    return inject;
}

/* The rows and the sealed values of a sandbox; empty ones when it has no vault. */
static void vault_load(const struct sandbox *sb, struct osb_vault *v)
{
    json_t *rows = vault_rows(sb);
    size_t n = 0;
    v->rows = rows ? json_deep_copy(rows) : json_pack("{s:i,s:{},s:{}}", "revision", 0, "credentials", "bindings");
    v->values = json_object();
    v->revision = json_integer_value(json_object_get(v->rows, "revision")) + 1;
    JSON_FOREACH (entry, json_object_get(network_policy(sb), "inject")) {
        if (strcmp(json_string_value(json_object_get(entry, "host")), VAULT_STORE_HOST) != 0)
            continue;
        JSON_FOREACH (header, json_object_get(entry, "headers")) {
            const char *name = json_string_value(json_array_get(json_object_get(v->rows, "order"), n++));
            if (name)
                (void)json_object_set(v->values, name, json_object_get(header, "value"));
        }
    }
}

/* ---- routes ---- */

static json_t *vault_credential_json(const char *name, const json_t *revision)
{
    return json_pack("{s:s,s:s,s:O}", "name", name, "sourceType", "inline", "revision", revision);
}

/* How it authenticates, without what: no credential's name, and no placeholder. */
static json_t *vault_binding_json(const json_t *row)
{
    const json_t *auth = json_object_get(row, "auth");
    json_t *shown = json_copy((json_t *)(uintptr_t)row);
    (void)json_object_set_new(
        shown, "auth",
        json_pack("{s:O,s:O*}", "type", json_object_get(auth, "type"), "name", json_object_get(auth, "name")));
    return shown;
}

static void vault_answer(struct call *c, int status, const char *part)
{
    const json_t *rows = vault_rows(c->sandbox);
    json_t *answer =
        json_pack("{s:O,s:[],s:[]}", "revision", json_object_get(rows, "revision"), "credentials", "bindings");
    JSON_FOREACH_MEMBER (key, one, json_object_get(rows, "credentials"))
        (void)json_array_append_new(json_object_get(answer, "credentials"), vault_credential_json(key, one));
    JSON_FOREACH_MEMBER (key, one, json_object_get(rows, "bindings")) {
        (void)json_array_append_new(json_object_get(answer, "bindings"), vault_binding_json(one));
    }
    if (part)
        (void)json_object_del(answer, strcmp(part, "credentials") == 0 ? "bindings" : "credentials");
    call_value(c, status, answer);
}

static bool vault_is_there(struct call *c)
{
    if (!vault_rows(c->sandbox))
        call_fail(c, 404, "the sandbox has no credential vault");
    return vault_rows(c->sandbox) != NULL;
}

void credential_vault_get(struct call *c)
{
    if (vault_is_there(c))
        vault_answer(c, 200, c->route->what);
}

void credential_vault_get_one(struct call *c)
{
    const json_t *one = json_object_get(json_object_get(vault_rows(c->sandbox), c->route->what), c->args[0].p);
    if (!one)
        call_fail(c, 404, "%s: '%.*s' is not there", c->route->what, STR_ARG_MAX(c->args[0], 64));
    else
        call_value(c, 200, json_is_object(one) ? vault_binding_json(one) : vault_credential_json(c->args[0].p, one));
}

static void vault_is_set(void *ctx, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (c && http_method(c->req) == HTTP_METHOD_DELETE)
        call_empty(c, 204);
    else if (c)
        vault_answer(c, http_method(c->req) == HTTP_METHOD_POST ? 201 : 200, NULL);
}

/* v->rows NULL: there is no vault any more. */
static void vault_set(struct call *c, struct osb_vault *v)
{
    json_t *policy = json_copy((json_t *)(uintptr_t)network_policy(c->sandbox));
    json_t *fields =
        network_fields(c->sandbox) ? json_copy((json_t *)(uintptr_t)network_fields(c->sandbox)) : json_object();
    if (v->rows) {
        (void)json_object_set_new(v->rows, "revision", json_integer(v->revision));
        (void)json_object_set(fields, FIELDS_KEY, v->rows);
        (void)json_object_set_new(policy, "inject", vault_inject(v));
    } else {
        (void)json_object_del(fields, FIELDS_KEY);
        (void)json_object_del(policy, "inject");
    }
    egress_set(c, policy, fields, vault_is_set);
    json_decref(policy);
    json_decref(fields);
}

void credential_vault_make(struct call *c)
{
    json_t *credentials = NULL, *bindings = NULL;
    const json_t *policy = network_policy(c->sandbox);
    struct osb_vault v;
    if (!CALL_WANTS(c, JSON_WANT_ARRAY("credentials", &credentials), JSON_WANT_ARRAY("bindings", &bindings)))
        return;
    if (vault_rows(c->sandbox)) {
        call_fail(c, 409, "the sandbox has a credential vault already");
        return;
    }
    if (json_array_size(json_object_get(policy, "inject"))) {
        call_fail(c, 412, "something else already injects into this sandbox's requests: see 'cove policy show'");
        return;
    }
    vault_load(c->sandbox, &v);
    if (call_ok(c, vault_put_credentials(&v, credentials, VAULT_ADD, &c->err)) &&
        call_ok(c, vault_put_bindings(&v, policy, bindings, VAULT_ADD, &c->err)))
        vault_set(c, &v);
    vault_fini(&v);
}

void credential_vault_patch(struct call *c)
{
    json_t *credentials = NULL, *bindings = NULL;
    const json_t *policy = network_policy(c->sandbox);
    int64_t expected = -1;
    struct osb_vault v;
    struct err *err = &c->err;
    if (!vault_is_there(c) ||
        !CALL_WANTS(c, JSON_WANT_INT("expectedRevision", 0, INT32_MAX, &expected),
                    JSON_WANT_OBJECT("credentials", &credentials), JSON_WANT_OBJECT("bindings", &bindings)))
        return;
    vault_load(c->sandbox, &v);
    if (expected >= 0 && expected != v.revision - 1)
        call_fail(c, 409, "the vault's revision is %lld", (long long)v.revision - 1);
    else if (call_ok(
                 c,
                 vault_put_credentials(&v, json_object_get(credentials, "add"), VAULT_ADD, err) < 0 ||
                         vault_put_credentials(&v, json_object_get(credentials, "replace"), VAULT_REPLACE, err) < 0 ||
                         vault_delete(&v, "bindings", json_object_get(bindings, "delete"), err) < 0 ||
                         vault_put_bindings(&v, policy, json_object_get(bindings, "replace"), VAULT_REPLACE, err) < 0 ||
                         vault_put_bindings(&v, policy, json_object_get(bindings, "add"), VAULT_ADD, err) < 0 ||
                         vault_delete(&v, "credentials", json_object_get(credentials, "delete"), err) < 0
                     ? -1
                     : 0))
        vault_set(c, &v);
    vault_fini(&v);
}

void credential_vault_remove(struct call *c)
{
    struct osb_vault nothing = {.rows = NULL};
    if (vault_is_there(c))
        vault_set(c, &nothing);
}
