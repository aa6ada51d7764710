/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/env/settings.h"
#include "base/mem.h"
#include "cli/env/devcontainer.h"
#include "cli/net_flags.h"
#include "config/yaml.h"

#include <string.h>

static const char file[] = ".cove/env.yaml";

static int settings_wrong(struct repo *r, const char *key, const char *what)
{
    return err_set(&r->ctx->err, ERR_INVALID_ARGUMENT, "%s: %.64s: %s", file, key, what);
}

bool settings_are_texts(const json_t *all)
{
    JSON_FOREACH (one, all)
        if (!json_is_string(one))
            return false;
    return json_is_array(all);
}

static int settings_allow(struct repo *r, const json_t *targets, json_t *spec)
{
    json_t *rules = json_array();
    JSON_FOREACH (one, targets) {
        json_t *rule = net_flags_rule("allow", str_of(json_string_value(one)));
        if (!rule) {
            json_decref(rules);
            return settings_wrong(r, json_string_value(one), "no target");
        }
        (void)json_array_append_new(rules, rule);
    }
    (void)json_object_set_new(spec, "network", json_pack("{s:s, s:o}", "default", "deny", "rules", rules));
    return 0;
}

/* What they say is the service's to judge: names of members alone are looked at here. */
static int settings_services(struct repo *r, const json_t *services, json_t *spec)
{
    json_t *all = json_array();
    JSON_FOREACH_MEMBER (name, one, services) {
        json_t *own = json_is_object(one) ? json_copy(one) : NULL;
        if (!own || json_object_set_new(own, "name", json_string(name)) < 0) {
            json_decref(own);
            json_decref(all);
            return settings_wrong(r, name, "a service is a mapping: image or template, command, env, ports, ready");
        }
        (void)json_array_append_new(all, own);
    }
    (void)json_object_set_new(spec, "services", all);
    return 0;
}

static int settings_take(struct repo *r, const json_t *from, bool is_profile, json_t *spec, json_t **ret_setup,
                         json_t **ret_checks)
{
    JSON_FOREACH_MEMBER (key, value, from) {
        if (strcmp(key, "profiles") == 0 && !is_profile && json_is_object(value))
            continue;
        if (strcmp(key, "template") == 0 && json_is_string(value)) {
            (void)json_object_set(spec, key, value);
        } else if (strcmp(key, "env") == 0 && json_is_object(value)) {
            JSON_FOREACH_MEMBER (name, text, value)
                if (!json_is_string(text))
                    return settings_wrong(r, name, "not a text; quote it");
            (void)json_object_set(spec, key, value);
        } else if (strcmp(key, "setup") == 0 && settings_are_texts(value)) {
            json_decref(*ret_setup);
            *ret_setup = json_incref(value);
        } else if (strcmp(key, "checks") == 0 && settings_are_texts(value)) {
            if (ret_checks) {
                json_decref(*ret_checks);
                *ret_checks = json_incref(value);
            }
        } else if (strcmp(key, "services") == 0 && json_is_object(value)) {
            if (settings_services(r, value, spec) < 0)
                return -1;
        } else if (strcmp(key, "allow") == 0 && settings_are_texts(value)) {
            if (settings_allow(r, value, spec) < 0)
                return -1;
        } else {
            return settings_wrong(
                r, key,
                "there is template (a text), env (texts by name), services (mappings by name), setup, checks, allow "
                "(lists of texts) and profiles (the same by name)");
        }
    }
    return 0;
}

int settings_read(struct repo *r, const char *commit, const char *profile, json_t *spec, json_t **ret_setup,
                  json_t **ret_checks)
{
    AUTO_BUF struct buf text = BUF_INIT(YAML_TEXT_MAX);
    AUTO_JSON json_t *all = NULL;
    int found = repo_file(r, commit, file, &text);
    if (found == 0)
        return profile ? err_set(&r->ctx->err, ERR_NOT_FOUND, "the commit has no %s, so there is no profile", file)
                       : devcontainer_read(r, commit, spec, ret_setup);
    if (found < 0 || yaml_parse(file, buf_str(&text), &all, &r->ctx->err) < 0)
        return -1;
    if (!json_is_object(all))
        return settings_wrong(r, "it", "not a mapping");
    const json_t *chosen = profile ? json_object_get(json_object_get(all, "profiles"), profile) : NULL;
    if (profile && !json_is_object(chosen))
        return settings_wrong(r, profile, "there is no such profile");
    return settings_take(r, all, false, spec, ret_setup, ret_checks) < 0
               ? -1
               : settings_take(r, chosen, true, spec, ret_setup, ret_checks);
}
