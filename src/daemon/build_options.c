/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/build_options.h"
#include "policy/policy.h"

static int number(struct str value, uint64_t most, uint64_t *ret_number, struct err *err)
{
    if (str_to_u64(value, ret_number) < 0 || *ret_number > most)
        return err_set(err, ERR_INVALID_ARGUMENT, "--builds: '%.*s' is out of range", STR_ARG(value));
    return 0;
}

static int apply(struct str key, struct str value, struct arena *arena, struct builder_config *config,
                 struct build_alias *aliases, const char **insecure, json_t **ret_policy, struct err *err)
{
    uint64_t concurrency = 0;
    if (str_eqc(key, "concurrency")) {
        if (number(value, 64, &concurrency, err) < 0)
            return -1;
        config->concurrency = (unsigned)concurrency;
        return 0;
    }
    if (str_eqc(key, "step-timeout-ms"))
        return number(value, INT64_MAX / 2000, &config->step_timeout_ms, err);
    if (str_eqc(key, "timeout-ms"))
        return number(value, INT64_MAX / 2000, &config->timeout_ms, err);
    if (str_eqc(key, "disk"))
        return number(value, INT64_MAX, &config->disk_bytes, err);
    if (str_eqc(key, "disk-reserve")) {
        if (number(value, INT64_MAX, &config->disk_reserve_bytes, err) < 0)
            return -1;
        config->disk_reserve_bytes = config->disk_reserve_bytes ? config->disk_reserve_bytes : UPLOADS_RESERVE_NONE;
        return 0;
    }
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

int build_options_parse(struct str text, struct arena *arena, struct builder_config *config, json_t **ret_policy,
                        struct err *err)
{
    struct build_alias *aliases = arena_alloc(arena, BUILD_ALIASES_MAX * sizeof(*aliases));
    const char **insecure = arena_alloc(arena, BUILD_INSECURE_MAX * sizeof(*insecure));
    struct str line;
    config->aliases = aliases;
    config->insecure = insecure;
    while (str_split(&text, '\n', &line)) {
        ssize_t eq = str_find_char(line, '=');
        if (!line.n)
            continue;
        if (eq <= 0)
            return err_set(err, ERR_INVALID_ARGUMENT, "--builds: '%.*s' is not key=value", STR_ARG(line));
        if (apply(str_n(line.p, (size_t)eq), str_sub(line, (size_t)eq + 1), arena, config, aliases, insecure,
                  ret_policy, err) < 0)
            return -1;
    }
    struct policy *policy = NULL;
    if (*ret_policy && policy_parse(*ret_policy, &policy, err) < 0)
        return err_prefix(err, "webhooks.allow");
    policy_unref(policy);
    return 0;
}
