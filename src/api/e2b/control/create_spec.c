/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/control/create_spec.h"
#include "base/path.h"
#include "sandbox/volume/volumes.h"

#include <ctype.h>

static bool create_spec_is_name(struct str s, const char *set)
{
    return s.n > 0 && str_is_of(s, set);
}

int template_ref_read(struct str given, struct arena *arena, struct str *ret_ref, struct err *err)
{
    struct str trimmed = str_trim(given), name, tag, namespace;
    char *lower = arena_strndup(arena, trimmed.p ? trimmed.p : "", trimmed.n);
    ssize_t colon, slash;
    for (size_t i = 0; i < trimmed.n; i++)
        lower[i] = (char)tolower((unsigned char)lower[i]);
    name = str_n(lower, trimmed.n);
    colon = str_find_char(name, ':');
    if (colon >= 0) {
        tag = str_sub(name, (size_t)colon + 1);
        name.n = (size_t)colon;
        if (!create_spec_is_name(tag, "a-z0-9_.-"))
            return err_set(err, ERR_INVALID_ARGUMENT, "Invalid template reference: invalid tag: %.*s", STR_ARG(tag));
        if (str_eq(tag, STR("default")))
            trimmed.n = name.n;
    }
    slash = str_find_char(name, '/');
    if (slash >= 0) {
        namespace = str_n(name.p, (size_t)slash);
        name = str_sub(name, (size_t)slash + 1);
        if (!create_spec_is_name(namespace, "a-z0-9_-"))
            return err_set(err, ERR_INVALID_ARGUMENT, "Invalid template reference: invalid namespace: %.*s",
                           STR_ARG(namespace));
    }
    if (!create_spec_is_name(name, "a-z0-9_.-"))
        return err_set(err, ERR_INVALID_ARGUMENT, "Invalid template reference: invalid template ID: %.*s",
                       STR_ARG(given));
    *ret_ref = str_n(lower, trimmed.n);
    return 0;
}

static int create_spec_not_yet(struct err *err, const char *what)
{
    return err_set(err, ERR_UNIMPLEMENTED, "%s are not available yet", what);
}

/* Errors are those of the members; *ret_network is the caller's to end. */
static int create_spec_read_network(const json_t *body, struct sandbox_spec *spec, struct network_body *ret_network,
                                    struct err *err)
{
    json_t *network = NULL;
    if (json_get_object(body, "network", &network, err) < 0 ||
        network_body_read(network, spec->allow_internet, NULL, ret_network, err) < 0)
        return -1;
    if (ret_network->private_traffic && !spec->secure) {
        network_body_fini(ret_network);
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "allowPublicTraffic=false needs a secure sandbox: set \"secure\" to true");
    }
    spec->private_traffic = ret_network->private_traffic;
    spec->network = ret_network->spec.policy || ret_network->spec.fields ? &ret_network->spec : NULL;
    return 0;
}

static int check_later(const json_t *body, struct err *err)
{
    json_t *iam = NULL;
    if (json_get_object(body, "iam", &iam, err) < 0)
        return -1;
    if (iam && !json_asks_nothing(iam, "tokens"))
        return create_spec_not_yet(err, "workload identities");
    return 0;
}

static int read_mounts(const json_t *body, struct arena *arena, struct sandbox_spec *spec, struct err *err)
{
    struct volume_mount *mounts;
    json_t *list = NULL;
    if (json_get_array(body, "volumeMounts", &list, err) < 0)
        return -1;
    if (json_array_size(list) > VOLUME_MOUNTS_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "a sandbox has at most %d volume mounts", VOLUME_MOUNTS_MAX);
    mounts = arena_alloc(arena, (json_array_size(list) + 1) * sizeof(*mounts));
    JSON_FOREACH_AT (i, one, list) {
        struct volume_mount *m = &mounts[i];
        char clean[PATH_TEXT_MAX];
        *m = (struct volume_mount){.name = STR_NULL};
        if (!json_is_object(one))
            return err_set(err, ERR_INVALID_ARGUMENT, "volumeMounts must be objects");
        if (json_get_str(one, "name", &m->name, err) < 0 || json_get_str(one, "path", &m->path, err) < 0)
            return -1;
        if (!m->name.n || !m->path.n)
            return err_set(err, ERR_INVALID_ARGUMENT, "volumeMounts need a name and a path");
        if (m->path.p[0] != '/' || path_clean(m->path, clean) < 0 || !str_eqc(m->path, clean) || m->path.n == 1)
            return err_set(err, ERR_INVALID_ARGUMENT,
                           "volume mount path '%.*s' must be absolute, and without '.', '..' and double slashes",
                           STR_ARG_MAX(m->path, 128));
        for (size_t k = 0; k < i; k++)
            if (str_eq(mounts[k].path, m->path))
                return err_set(err, ERR_INVALID_ARGUMENT, "volume mount path '%.*s' is there twice",
                               STR_ARG_MAX(m->path, 128));
    }
    spec->mounts = mounts;
    spec->n_mounts = json_array_size(list);
    return 0;
}

static int read_lifecycle(const json_t *body, struct sandbox_spec *spec, struct err *err)
{
    json_t *resume = NULL;
    bool keeps_memory = true;
    if (json_get_bool(body, "autoPause", &spec->pause_on_timeout, err) < 0 ||
        json_get_bool(body, "autoPauseMemory", &keeps_memory, err) < 0 ||
        json_get_object(body, "autoResume", &resume, err) < 0)
        return -1;
    if (resume && json_get_bool(resume, "enabled", &spec->auto_resume, err) < 0)
        return -1;
    if (!keeps_memory && !spec->pause_on_timeout)
        return err_set(err, ERR_INVALID_ARGUMENT, "autoPauseMemory=false only applies when autoPause is true.");
    if (!keeps_memory && spec->auto_resume)
        return err_set(
            err, ERR_INVALID_ARGUMENT,
            "autoPauseMemory=false cannot be combined with autoResume: without its memory a sandbox is not resumed "
            "by traffic");
    spec->pause_files_only = !keeps_memory;
    return 0;
}

static int read_timeout(const json_t *body, enum create_version version, uint64_t max_timeout_ms, uint64_t *ret_ms,
                        struct err *err)
{
    int64_t seconds = version == CREATE_V2 ? 300 : 15;
    if (json_get_int(body, "timeout", 0, INT32_MAX, &seconds, err) < 0)
        return -1;
    if (seconds == 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "Timeout must be greater than 0");
    if (max_timeout_ms && (uint64_t)seconds * 1000 > max_timeout_ms)
        return err_set(err, ERR_INVALID_ARGUMENT, "Timeout cannot be greater than %llu hours",
                       (unsigned long long)(max_timeout_ms / 3600000));
    *ret_ms = (uint64_t)seconds * 1000;
    return 0;
}

/*
 * Other members that we don't know are left alone, as E2B's service does: SDKs send what came after us. One whose name
 * speaks of the network would close something, were it spelt as it should be.
 */
static int check_misspelt(const json_t *body, struct err *err)
{
    static const char *const words[] = {"network", "internet", "egress",   "ingress",       "allowout",
                                        "denyout", "outbound", "firewall", "publictraffic", "offline"};
    JSON_FOREACH_MEMBER (key, value, body) {
        char folded[64];
        size_t n = 0;
        if (strcmp(key, "network") == 0 || strcmp(key, "allow_internet_access") == 0) {
            if (json_is_null(value))
                return err_set(err, ERR_INVALID_ARGUMENT, "property \"%s\" can't be null: leave it out", key);
            continue;
        }
        for (const char *c = key; *c && n + 1 < sizeof(folded); c++)
            if (isalnum((unsigned char)*c))
                folded[n++] = (char)tolower((unsigned char)*c);
        folded[n] = '\0';
        for (size_t i = 0; i < ARRAY_SIZE(words); i++)
            if (strstr(folded, words[i]) || strcmp(folded, "net") == 0)
                return err_set(
                    err, ERR_INVALID_ARGUMENT,
                    "unknown property \"%.64s\": the network is set by \"allow_internet_access\" and \"network\"", key);
    }
    return 0;
}

int create_spec_read(const json_t *body, enum create_version version, uint64_t max_timeout_ms, struct arena *arena,
                     struct sandbox_spec *ret_spec, struct network_body *ret_network, struct err *err)
{
    struct sandbox_spec spec = {.allow_internet = true, .secure = version != CREATE_V1_TOKENLESS};
    struct str template = STR_NULL;
    bool ignored = false;
    if (JSON_WANTS_OF(body, arena, err, JSON_WANT_STR("templateID", &template),
                      JSON_WANT_BOOL("secure", version == CREATE_V2 ? &ignored : &spec.secure),
                      JSON_WANT_BOOL("allow_internet_access", &spec.allow_internet),
                      JSON_WANT_PAIRS("metadata", &spec.metadata, &spec.n_metadata),
                      JSON_WANT_PAIRS("envVars", &spec.envs, &spec.n_envs)) < 0 ||
        (!template.p && err_set(err, ERR_INVALID_ARGUMENT, "property \"templateID\" is missing") < 0) ||
        check_misspelt(body, err) < 0)
        return err_prefix(err, "validation error: request body has an error");
    for (size_t i = 0; i < spec.n_metadata; i++)
        if (str_eqc(spec.metadata[i].key, "cove.tier")) /* E2B's API has no word for it */
            spec.tier = spec.metadata[i].value;
    if (template_ref_read(template, arena, &spec.template_ref, err) < 0 ||
        read_timeout(body, version, max_timeout_ms, &spec.timeout_ms, err) < 0 ||
        read_lifecycle(body, &spec, err) < 0 || check_later(body, err) < 0 ||
        read_mounts(body, arena, &spec, err) < 0 || create_spec_read_network(body, &spec, ret_network, err) < 0)
        return -1;
    *ret_spec = spec;
    return 0;
}
