/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/agent/kit.h"
#include "base/dir.h"
#include "base/id.h"
#include "base/mem.h"
#include "cli/domain/vault_client.h"
#include "cli/env/settings.h"
#include "cli/service.h"
#include "cli/share.h"
#include "cli/things.h"
#include "config/units.h"
#include "config/yaml.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { KIT_STAND_IN_LEN = 40, KITS_MAX = 256 };

static const char kit_own[] = "/etc/cove/kits";

enum kit_type { KIT_TEXT, KIT_TEXTS, KIT_MAP, KIT_CREDENTIALS };
enum kit_merge { KIT_REPLACES, KIT_ADDS };

/* What a repository may add only with a person's word has a text for him. */
static const struct {
    const char *key;
    enum kit_type type;
    enum kit_merge merge;
    const char *asks;
} kit_keys[] = {
    {"summary", KIT_TEXT, KIT_REPLACES, NULL},
    {"template", KIT_TEXT, KIT_REPLACES, NULL},
    {"memory", KIT_TEXT, KIT_REPLACES, "have as much memory as"},
    {"command", KIT_TEXTS, KIT_REPLACES, NULL},
    {"setup", KIT_TEXTS, KIT_ADDS, NULL},
    {"env", KIT_MAP, KIT_ADDS, NULL},
    {"allow", KIT_TEXTS, KIT_ADDS, "connect to"},
    {"credentials", KIT_CREDENTIALS, KIT_ADDS, "use the credential"},
    {"caches", KIT_MAP, KIT_ADDS, "share between environments the directory"},
};

/* ---- what a file says ---- */

static bool kit_is_name(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_");
    return n > 0 && n <= 40 && !name[n] && name[0] != '-';
}

static bool kit_is_map(const json_t *all)
{
    JSON_FOREACH_MEMBER (name, one, all) {
        if (!json_is_string(one))
            return false;
    }
    return json_is_object(all);
}

/* NAME: {hosts: [...], stand_in: PREFIX} */
static bool kit_are_credentials(const json_t *all)
{
    JSON_FOREACH_MEMBER (name, one, all) {
        if (!settings_are_texts(json_object_get(one, "hosts")) || !json_array_size(json_object_get(one, "hosts")))
            return false;
        JSON_FOREACH_MEMBER (key, value, one)
            if (strcmp(key, "hosts") != 0 && !(strcmp(key, "stand_in") == 0 && json_is_string(value)))
                return false;
    }
    return json_is_object(all);
}

static bool kit_fits(enum kit_type type, const json_t *value)
{
    return type == KIT_TEXT    ? json_is_string(value)
           : type == KIT_TEXTS ? settings_are_texts(value)
           : type == KIT_MAP   ? kit_is_map(value)
                               : kit_are_credentials(value);
}

static void kit_ask(json_t *asks, const char *what, const json_t *value)
{
    if (json_is_string(value))
        (void)json_array_append_new(asks, json_sprintf("%s %s", what, json_string_value(value)));
    JSON_FOREACH (one, value)
        (void)json_array_append_new(asks, json_sprintf("%s %s", what, json_string_value(one)));
    JSON_FOREACH_MEMBER (name, one, value) {
        AUTO_FREE char *hosts = json_dumps(json_object_get(one, "hosts"), JSON_COMPACT);
        (void)json_array_append_new(asks, json_is_string(one)
                                              ? json_sprintf("%s %s", what, json_string_value(one))
                                              : json_sprintf("%s %s at %s", what, name, hosts ? hosts : "?"));
    }
}

/* asks NULL: the file is trusted. */
static int kit_merge(struct context *ctx, json_t *kit, const json_t *more, const char *file, json_t *asks)
{
    if (!json_is_object(more))
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "%s: not a mapping", file);
    JSON_FOREACH_MEMBER (key, value, more) {
        size_t i = 0;
        while (i < ARRAY_SIZE(kit_keys) && strcmp(kit_keys[i].key, key) != 0)
            i++;
        if (i == ARRAY_SIZE(kit_keys) || !kit_fits(kit_keys[i].type, value))
            return err_set(&ctx->err, ERR_INVALID_ARGUMENT,
                           "%s: %.64s: expected summary, template, memory, command, setup, env, allow, credentials and "
                           "caches, each of its own kind",
                           file, key);
        json_t *before = json_object_get(kit, key);
        if (asks && kit_keys[i].asks)
            kit_ask(asks, kit_keys[i].asks, value);
        if (!before || kit_keys[i].merge == KIT_REPLACES)
            (void)json_object_set(kit, key, value);
        else
            (void)(json_is_array(value) ? json_array_extend(before, value) : json_object_update(before, value));
    }
    return 0;
}

static char *kit_path(struct arena *a, const char *name)
{
    char *own = arena_printf(a, "%s/%s.yaml", kit_own, name);
    return access(own, R_OK) == 0 ? own : arena_printf(a, "%s/%s.yaml", share_find(a, "COVE_KITS", "kits"), name);
}

/* 1: there is one in the commit; 0: there is none. */
static int kit_of_repository(struct repo *r, const char *commit, const char *name, json_t **ret_more)
{
    AUTO_BUF struct buf text = BUF_INIT(YAML_TEXT_MAX);
    AUTO_FREE char *file = mem_printf(".cove/kits/%s.yaml", name);
    int found = repo_file(r, commit, file, &text);
    return found > 0 && yaml_parse(file, buf_str(&text), ret_more, &r->ctx->err) < 0 ? -1 : found;
}

int kit_read(struct repo *r, const char *commit, const char *name, json_t **ret_kit, json_t **ret_asks)
{
    AUTO_ARENA struct arena a = ARENA_INIT;
    AUTO_JSON json_t *kit = json_object(), *base = NULL, *more = NULL, *asks = json_array();
    struct context *ctx = r->ctx;
    if (!kit_is_name(name))
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "\"%.64s\" is not the name of a kit", name);
    const char *path = kit_path(&a, name);
    const bool has_base = access(path, R_OK) == 0;
    if (has_base && (yaml_read(path, &base, &ctx->err) < 0 || kit_merge(ctx, kit, base, path, NULL) < 0))
        return -1;
    int found = kit_of_repository(r, commit, name, &more);
    if (found < 0 || (found && kit_merge(ctx, kit, more, "the repository's .cove/kits", asks) < 0))
        return -1;
    if (!found && !has_base) {
        context_hint(ctx, "'cove agent --list' shows those there are");
        return err_set(&ctx->err, ERR_NOT_FOUND, "there is no kit %s", name);
    }
    if (!json_array_size(json_object_get(kit, "command")))
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "the kit %s has no command", name);
    *ret_kit = TAKE_PTR(kit);
    *ret_asks = TAKE_PTR(asks);
    return 0;
}

static int kit_compare(const void *a, const void *b)
{
    return strcmp(json_string_value(json_object_get(*(json_t *const *)a, "name")),
                  json_string_value(json_object_get(*(json_t *const *)b, "name")));
}

json_t *kit_list(void)
{
    AUTO_ARENA struct arena a = ARENA_INIT;
    const char *const places[] = {kit_own, share_find(&a, "COVE_KITS", "kits")};
    AUTO_JSON json_t *names = json_object();
    json_t *all = json_array();
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        AUTO(dir_close) DIR *dir = places[i] ? dir_open(AT_FDCWD, places[i]) : NULL;
        for (const struct dirent *e; json_object_size(names) < KITS_MAX && (e = dir_next(dir));) {
            struct str file = str_of(e->d_name);
            AUTO_FREE char *stem = mem_strndup(file.p, file.n > 5 ? file.n - 5 : 0);
            AUTO_JSON json_t *kit = NULL;
            struct err ignored = {0};
            if (!str_ends(file, STR(".yaml")) || !kit_is_name(stem) || json_object_get(names, stem) ||
                yaml_read(kit_path(&a, stem), &kit, &ignored) < 0)
                continue;
            const char *summary = json_string_value(json_object_get(kit, "summary"));
            (void)json_object_set_new(
                names, stem,
                json_pack("{s:s,s:s,s:s}", "name", stem, "summary", summary ? summary : "", "from", places[i]));
        }
    }
    JSON_FOREACH_MEMBER (name, one, names)
        (void)json_array_append(all, one);
    things_sort(all, kit_compare);
    return all;
}

/* ---- credentials ---- */

/* The secret's name in the vault, NULL with ctx->err or, when there is none, without. */
static char *kit_secret(struct context *ctx, const char *variable)
{
    AUTO_BUF struct buf bytes = BUF_INIT(VAULT_ANSWER_MAX);
    struct vault_answer answer = {0};
    AUTO_FREE char *own = mem_printf("agent.%s", variable), *prefix = NULL;
    const char *value = getenv(variable);
    if (value && *value) {
        const struct vault_request request = {VAULT_SET, str_of(own), str_of(value)};
        return vault_ask(ctx, &request, &bytes, &answer, &prefix) < 0 ? NULL : TAKE_PTR(own);
    }
    return vault_has(ctx, variable) > 0 ? mem_strdup(variable) : vault_has(ctx, own) > 0 ? TAKE_PTR(own) : NULL;
}

static int kit_bind(struct context *ctx, const char *variable, const json_t *credential, const char *secret,
                    json_t *spec)
{
    char token[KIT_STAND_IN_LEN + 1];
    const char *begins = json_string_value(json_object_get(credential, "stand_in"));
    json_t *policy = json_object_get(spec, "network");
    id_token(token, KIT_STAND_IN_LEN);
    AUTO_FREE char *stand_in = mem_printf("%s%s", begins ? begins : "cove-secret-", token);
    JSON_FOREACH (host, json_object_get(credential, "hosts")) {
        json_t *rule = net_flags_rule("allow", str_of(json_string_value(host)));
        if (!rule)
            return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "%s: %.100s is not a host", variable,
                           json_string_value(host));
        json_t *inject = json_pack("{s:O,s:[{s:s,s:s}]}", "host", json_object_get(rule, "allow"), "placeholders",
                                   "sentinel", stand_in, "secret", secret);
        if (json_object_get(rule, "ports"))
            (void)json_object_set(inject, "ports", json_object_get(rule, "ports"));
        else
            (void)json_object_set_new(rule, "ports", json_pack("[i]", 443));
        (void)json_array_append_new(json_object_get(policy, "inject"), inject);
        (void)json_array_append_new(json_object_get(policy, "rules"), rule);
    }
    (void)json_object_set_new(json_object_get(spec, "env"), variable, json_string(stand_in));
    return 0;
}

int kit_renew(struct context *ctx, const json_t *kit)
{
    JSON_FOREACH_MEMBER (variable, one, json_object_get(kit, "credentials")) {
        const char *value = getenv(variable);
        AUTO_FREE char *secret = value && *value ? kit_secret(ctx, variable) : NULL;
        if (value && *value && !secret)
            return -1;
    }
    return 0;
}

/* ---- all of it ---- */

static int kit_caches(struct context *ctx, const json_t *caches, const char *key, json_t *spec)
{
    if (!json_object_size(caches))
        return 0;
    AUTO(service_close) struct service *s = service_open(ctx);
    json_t *volumes = json_setdefault(spec, "volumes", json_array());
    JSON_FOREACH_MEMBER (name, path, caches) {
        AUTO_FREE char *volume = mem_printf("cache-%.40s-%s", name, key);
        AUTO_JSON json_t *body = json_pack("{s:s}", "name", volume);
        if (!s ||
            (service_call(s, "POST", "/cove/v1/volumes", body, NULL, NULL) < 0 && ctx->err.code != ERR_ALREADY_EXISTS))
            return -1;
        ctx->err.code = ERR_OK;
        (void)json_array_append_new(volumes, json_pack("{s:s,s:O}", "name", volume, "path", path));
    }
    return 0;
}

int kit_apply(struct context *ctx, const json_t *kit, const char *key, json_t *spec, json_t **ret_missing)
{
    AUTO_JSON json_t *missing = json_array();
    json_t *policy = json_object_get(spec, "network"), *rules = json_setdefault(policy, "rules", json_array());
    (void)json_setdefault(policy, "inject", json_array());
    (void)json_object_update_missing(json_setdefault(spec, "env", json_object()), json_object_get(kit, "env"));
    JSON_FOREACH (target, json_object_get(kit, "allow")) {
        json_t *rule = net_flags_rule("allow", str_of(json_string_value(target)));
        if (!rule)
            return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "the kit's allow: %.100s is not a target",
                           json_string_value(target));
        (void)json_array_append_new(rules, rule);
    }
    JSON_FOREACH_MEMBER (variable, one, json_object_get(kit, "credentials")) {
        ctx->err.code = ERR_OK;
        AUTO_FREE char *secret = kit_secret(ctx, variable);
        if (!secret && ctx->err.code != ERR_OK)
            return err_prefix(&ctx->err, "keep %s", variable);
        if (!secret)
            (void)json_array_append_new(missing, json_string(variable));
        else if (kit_bind(ctx, variable, one, secret, spec) < 0)
            return -1;
    }
    if (!json_array_size(json_object_get(policy, "inject")))
        (void)json_object_del(policy, "inject");
    const char *memory = json_string_value(json_object_get(kit, "memory"));
    uint64_t bytes = 0;
    if (memory && (unit_parse_size(str_of(memory), &bytes) < 0 || bytes > INT64_MAX))
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "the kit's memory: %.40s is not a size", memory);
    if (memory)
        (void)json_object_set_new(spec, "memory_bytes", json_integer((json_int_t)bytes));
    *ret_missing = TAKE_PTR(missing);
    return kit_caches(ctx, json_object_get(kit, "caches"), key, spec);
}
