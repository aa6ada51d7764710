/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/build_options.h"
#include "guard/rules.h"
#include "policy/policy.h"
#include "sandbox/network/network.h"

/* "network.allow=NAME": the rule goes behind those before it; with one that allows, the rest is denied. */
static bool build_options_rule(struct str key, struct str value, json_t **policies)
{
    const int k = str_word(key, "network.allow network.deny builds.allow builds.deny");
    if (k < 0)
        return false;
    json_t **policy = &policies[k / 2];
    if (!*policy)
        *policy = json_pack("{s:s,s:[]}", "default", "allow", "rules");
    if (k % 2 == 0)
        (void)json_object_set_new(*policy, "default", json_string("deny"));
    (void)json_array_append_new(json_object_get(*policy, "rules"),
                                json_pack("{s:s%}", k % 2 ? "deny" : "allow", value.p, value.n));
    return true;
}

/* Each registry by the variables that its clients read. */
static bool build_options_env(struct str key, struct str value, struct arena *arena, struct core_config *core)
{
    static const struct {
        const char *key, *names[3];
    } known[] = {{"mirrors.pip", {"PIP_INDEX_URL", "UV_DEFAULT_INDEX", NULL}},
                 {"mirrors.npm", {"npm_config_registry", "YARN_NPM_REGISTRY_SERVER", NULL}}};
    struct pair *envs = (struct pair *)(uintptr_t)core->envs;
    ssize_t eq = str_find_char(value, '=');
    if (str_eqc(key, "mirrors.env") && eq > 0 && core->n_envs < BUILD_ENVS_MAX) {
        envs[core->n_envs++] = (struct pair){arena_str(arena, str_n(value.p, (size_t)eq)),
                                             arena_str(arena, str_sub(value, (size_t)eq + 1))};
        return true;
    }
    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        if (!str_eqc(key, known[i].key))
            continue;
        for (size_t k = 0; known[i].names[k] && core->n_envs < BUILD_ENVS_MAX; k++)
            envs[core->n_envs++] = (struct pair){str_of(known[i].names[k]), arena_str(arena, value)};
        return true;
    }
    return false;
}

static int build_options_apply(struct str key, struct str value, struct arena *arena, struct builder_config *config,
                               struct core_config *core, struct build_alias *aliases, const char **insecure,
                               json_t **ret_policy, struct err *err)
{
    uint64_t concurrency = config->concurrency;
    const struct {
        const char *key;
        uint64_t most, *to;
    } numbers[] = {{"concurrency", 64, &concurrency},
                   {"step-timeout-ms", INT64_MAX / 2000, &config->step_timeout_ms},
                   {"timeout-ms", INT64_MAX / 2000, &config->timeout_ms},
                   {"disk", INT64_MAX, &config->disk_bytes},
                   {"disk-reserve", INT64_MAX, &config->disk_reserve_bytes}};
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        if (!str_eqc(key, numbers[i].key))
            continue;
        if (str_to_u64(value, numbers[i].to) < 0 || *numbers[i].to > numbers[i].most)
            return err_set(err, ERR_INVALID_ARGUMENT, "--builds: '%.*s' is out of range", STR_ARG(value));
        if (numbers[i].to == &config->disk_reserve_bytes && !config->disk_reserve_bytes)
            config->disk_reserve_bytes = UPLOADS_RESERVE_NONE;
        config->concurrency = (unsigned)concurrency;
        return 0;
    }
    if (str_eqc(key, "checkpoint"))
        return checkpoint_mode_parse(value, &core->checkpoint) == 0
                   ? 0
                   : err_set(err, ERR_INVALID_ARGUMENT, "--builds: checkpoint is " CHECKPOINT_WORDS);
    if (str_eqc(key, "webhook")) {
        if (!*ret_policy)
            *ret_policy = json_pack("{s:s,s:[]}", "default", "allow", "rules");
        (void)json_array_append_new(json_object_get(*ret_policy, "rules"),
                                    json_pack("{s:s%}", "allow", value.p, value.n));
        return 0;
    }
    ssize_t eq = -1;
    for (size_t i = 0; i < value.n; i++)
        if (value.p[i] == '=')
            eq = (ssize_t)i; /* the last one: templates' names have none */
    if (str_eqc(key, "alias") && eq > 0 && config->n_aliases < BUILD_ALIASES_MAX) {
        aliases[config->n_aliases++] =
            (struct build_alias){arena_strndup(arena, value.p, (size_t)eq),
                                 arena_strndup(arena, value.p + eq + 1, value.n - (size_t)eq - 1)};
        return 0;
    }
    if (str_eqc(key, "insecure") && config->n_insecure < BUILD_INSECURE_MAX) {
        insecure[config->n_insecure++] = arena_strndup(arena, value.p, value.n);
        return 0;
    }
    return err_set(err, ERR_INVALID_ARGUMENT, "--builds: '%.*s=%.*s' makes no sense", STR_ARG(key), STR_ARG(value));
}

int build_options_parse(struct str text, struct arena *arena, struct builder_config *config, struct core_config *core,
                        json_t **ret_policy, struct err *err)
{
    json_t *policies[2] = {NULL, NULL};
    struct build_alias *aliases = arena_alloc(arena, BUILD_ALIASES_MAX * sizeof(*aliases));
    const char **insecure = arena_alloc(arena, BUILD_INSECURE_MAX * sizeof(*insecure));
    struct str line;
    core->envs = arena_alloc(arena, BUILD_ENVS_MAX * sizeof(*core->envs));
    config->aliases = aliases;
    config->insecure = insecure;
    while (str_split(&text, '\n', &line)) {
        ssize_t eq = str_find_char(line, '=');
        if (!line.n)
            continue;
        if (eq <= 0)
            return err_set(err, ERR_INVALID_ARGUMENT, "--builds: '%.*s' is not key=value", STR_ARG(line));
        struct str key = str_n(line.p, (size_t)eq), value = str_sub(line, (size_t)eq + 1);
        if (build_options_rule(key, value, policies) || build_options_env(key, value, arena, core))
            continue;
        if (build_options_apply(key, value, arena, config, core, aliases, insecure, ret_policy, err) < 0)
            return -1;
    }
    core->network = policies[0];
    config->network = policies[1] ? policies[1] : json_incref(policies[0]);
    for (size_t i = 0; i < ARRAY_SIZE(policies); i++)
        if (policies[i] && network_check_policy(policies[i], err) < 0)
            return err_prefix(err, "the configuration's %s", i ? "builds" : "network");
    struct policy *policy = NULL;
    if (*ret_policy && policy_parse(*ret_policy, &policy, err) < 0)
        return err_prefix(err, "webhooks.allow");
    policy_unref(policy);
    return 0;
}
