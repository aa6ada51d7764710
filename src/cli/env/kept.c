/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/env/kept.h"
#include "base/mem.h"

#include <openssl/sha.h>

#define KEPT_PREFIX "cove-copy-"

static char *kept_hash(const char *what, const char *of)
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    (void)SHA256((const unsigned char *)of, strlen(of), hash);
    return mem_printf("%s%02x%02x%02x%02x%02x%02x", what, hash[0], hash[1], hash[2], hash[3], hash[4], hash[5]);
}

static char *kept_of_repository(const struct env *e)
{
    return kept_hash(KEPT_PREFIX, e->repo.top);
}

static bool kept_is_covered(const struct env *e, const json_t *spec)
{
    AUTO_FREE char *top = mem_printf("%s/", e->repo.top);
    JSON_FOREACH (one, json_object_get(spec, "volumes")) {
        const char *path = json_string_value(json_object_get(one, "path"));
        AUTO_FREE char *place = mem_printf("%s/", path ? path : "");
        if (str_starts(str_of(top), str_of(place)) || str_starts(str_of(place), str_of(top)))
            return true;
    }
    return false;
}

char *kept_name(struct env *e, const json_t *spec, bool whole_history)
{
    const char *template = json_string_value(json_object_get(spec, "template"));
    AUTO_FREE char *target = service_path(e->ctx, "/cove/v1/templates?ref=", template ? template : "base", "");
    AUTO_JSON json_t *found = NULL;
    if (kept_is_covered(e, spec))
        return NULL;
    if (!target || service_call(e->service, "GET", target, NULL, NULL, &found) < 0) {
        e->ctx->err.code = ERR_OK;
        return NULL;
    }
    const json_t *one = json_array_get(json_object_get(found, "templates"), 0);
    AUTO_JSON json_t *key =
        json_pack("{s:O?,s:O?,s:O?,s:O?,s:O?,s:s*,s:b,s:s,s:s}", "id", json_object_get(one, "id"), "tags",
                  json_object_get(one, "tags"), "memory", json_object_get(spec, "memory_bytes"), "disk",
                  json_object_get(spec, "disk_bytes"), "tier", json_object_get(spec, "tier"), "user", e->user, "whole",
                  whole_history, "name", e->repo.name, "email", e->repo.email);
    AUTO_FREE char *text = json_dumps(key, JSON_COMPACT | JSON_SORT_KEYS), *top = kept_of_repository(e);
    AUTO_FREE char *begins = mem_printf("%s-", top);
    return text ? kept_hash(begins, text) : NULL;
}

static void kept_forget_errors(struct env *e)
{
    e->ctx->err.code = ERR_OK;
    *e->ctx->hint = '\0';
}

/* 0: there is none of that name. */
static int kept_begin(struct env *e, const char *ref, json_t *spec, json_t **ret_sandbox)
{
    json_t *before = json_incref(json_object_get(spec, "template")), *labels = json_object_get(spec, "metadata");
    (void)json_object_set_new(spec, "template", json_string(ref));
    (void)json_object_set_new(labels, "cove.copy", json_string(ref));
    int r = service_call(e->service, "POST", "/cove/v1/sandboxes", spec, "making a sandbox", ret_sandbox);
    if (before)
        (void)json_object_set_new(spec, "template", before);
    else
        (void)json_object_del(spec, "template");
    if (r == 0) {
        e->copy = mem_strdup(ref);
        return 1;
    }
    (void)json_object_del(labels, "cove.copy");
    if (e->ctx->err.code != ERR_NOT_FOUND)
        return -1;
    kept_forget_errors(e);
    return 0;
}

/* A snapshot's name, behind its namespace. */
static const char *kept_own(const json_t *snapshot)
{
    const char *ref = json_string_value(json_object_get(snapshot, "ref")), *slash = ref ? strchr(ref, '/') : NULL;
    return slash ? slash + 1 : ref;
}

/* Of a commit in that one's history: the copy shows nothing else. */
static char *kept_before(struct env *e, const char *name, const char *commit)
{
    AUTO_FREE char *begins = mem_printf("%s:", name);
    AUTO_JSON json_t *all = NULL;
    if (service_call(e->service, "GET", "/cove/v1/snapshots", NULL, NULL, &all) < 0)
        return NULL;
    JSON_FOREACH (one, json_object_get(all, "snapshots")) {
        const char *own = kept_own(one);
        if (!own || !str_starts(str_of(own), str_of(begins)))
            continue;
        const char *before = own + strlen(begins);
        if (str_is_hex(str_of(before)) &&
            REPO_GIT(&e->repo, REPO_THEIRS, "merge-base", "--is-ancestor", before, commit) == 0)
            return mem_strdup(own);
    }
    return NULL;
}

int kept_create(struct env *e, const char *name, const char *commit, bool whole_history, json_t *spec,
                json_t **ret_sandbox)
{
    AUTO_FREE char *ref = mem_printf("%s:%s", name, commit);
    int r = kept_begin(e, ref, spec, ret_sandbox);
    AUTO_FREE char *other = r == 0 && whole_history ? kept_before(e, name, commit) : NULL;
    if (r == 0)
        kept_forget_errors(e);
    return other ? kept_begin(e, other, spec, ret_sandbox) : r;
}

/* What an environment has changed is found by comparing it with the copy that it began with. */
static bool kept_is_needed(const json_t *sandboxes, const char *ref)
{
    JSON_FOREACH (one, sandboxes) {
        const char *copy = env_label(one, "cove.copy");
        if (copy && strcmp(copy, ref) == 0)
            return true;
    }
    return false;
}

/* Those that begin so and no environment needs, but one. */
static int kept_drop_others(struct env *e, const char *begins, const char *but)
{
    AUTO_JSON json_t *all = NULL, *sandboxes = NULL;
    int n = 0;
    if (env_sandboxes(e, &sandboxes) < 0 || service_call(e->service, "GET", "/cove/v1/snapshots", NULL, NULL, &all) < 0)
        return 0;
    JSON_FOREACH (one, json_object_get(all, "snapshots")) {
        const char *name = kept_own(one);
        if (!name || !str_starts(str_of(name), str_of(begins)) || (but && strcmp(name, but) == 0) ||
            kept_is_needed(sandboxes, name))
            continue;
        AUTO_FREE char *target = service_path(e->ctx, "/cove/v1/snapshots?ref=", service_text(one, "ref"), "");
        n += target && service_call(e->service, "DELETE", target, NULL, NULL, NULL) == 0;
    }
    return n;
}

void kept_keep(struct env *e, const char *name, const char *commit)
{
    AUTO_FREE char *ref = mem_printf("%s:%s", name, commit), *target = service_target(e->id, "/snapshots");
    AUTO_JSON json_t *body = json_pack("{s:s}", "name", ref);
    if (service_call(e->service, "POST", target, body, "keeping the copy for the next one", NULL) == 0)
        (void)kept_drop_others(e, name, ref);
    kept_forget_errors(e);
}

int kept_drop(struct env *e)
{
    AUTO_FREE char *begins = kept_of_repository(e);
    int n = kept_drop_others(e, begins, NULL);
    kept_forget_errors(e);
    return n;
}
