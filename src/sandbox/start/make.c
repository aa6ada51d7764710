/* SPDX-License-Identifier: Apache-2.0 */
/* The object of a new sandbox: of a template and what was asked for, or as another one is. */
#include "sandbox/start/make.h"
#include "guard/rules.h"
#include "sandbox/guard/guard_life.h"
#include "sandbox/life/checkpoint.h"
#include "sandbox/network/network_life.h"
#include "sandbox/service.h"
#include "sandbox/templates.h"
#include "sandbox/tenant.h"

static const char *token(struct arena *a, bool wanted, const char *promised)
{
    char *text = wanted ? arena_alloc(a, SANDBOX_TOKEN_LEN + 1) : NULL;
    if (text)
        id_token(text, SANDBOX_TOKEN_LEN);
    if (text && promised)
        memcpy(text, promised, SANDBOX_TOKEN_LEN);
    return text;
}

static const struct volume_mount *mounts_copy(struct arena *a, const struct volume_mount *mounts, size_t n)
{
    struct volume_mount *all = n ? arena_alloc(a, n * sizeof(*all)) : NULL;
    for (size_t i = 0; i < n; i++)
        all[i] = (struct volume_mount){arena_str(a, mounts[i].name), arena_str(a, mounts[i].path), mounts[i].read_only,
                                       mounts[i].is_host, arena_str(a, mounts[i].sub)};
    return all;
}

/* The template's variables, then the request's on top. */
static void merge_envs(struct sandbox *sb, const struct template *t, const struct sandbox_spec *spec)
{
    struct pair *all = arena_alloc(&sb->arena, (t->n_envs + spec->n_envs + 1) * sizeof(*all));
    size_t n = 0;
    for (size_t i = 0; i < t->n_envs; i++) {
        struct str text = str_of(t->envs[i]);
        size_t eq = (size_t)str_find_char(text, '=');
        struct str name = str_n(text.p, eq);
        bool replaced = false;
        for (size_t k = 0; k < spec->n_envs; k++)
            replaced |= str_eq(spec->envs[k].key, name);
        if (!replaced)
            all[n++] = (struct pair){arena_str(&sb->arena, name), arena_str(&sb->arena, str_sub(text, eq + 1))};
    }
    for (size_t k = 0; k < spec->n_envs; k++)
        all[n++] = (struct pair){arena_str(&sb->arena, spec->envs[k].key), arena_str(&sb->arena, spec->envs[k].value)};
    sb->info.envs = all;
    sb->info.n_envs = n;
}

static struct sandbox *new_one(struct core *core, const char *promised, uint64_t timeout_ms)
{
    char id[ID_SANDBOX_LEN + 1];
    id_sandbox(id);
    if (promised)
        memcpy(id, promised, ID_SANDBOX_LEN);
    struct sandbox *sb = sandbox_new(core, id);
    struct sandbox_info *i = &sb->info;
    i->state = SANDBOX_CREATING;
    i->started = clock_real();
    i->timeout_ms = timeout_ms;
    i->end_at = timeout_ms ? i->started + timeout_ms * USEC_PER_MS : 0;
    return sb;
}

void make_own(struct sandbox *sb, const struct template *t, const char *alias, const struct sandbox_spec *spec)
{
    struct arena *a = &sb->arena;
    struct sandbox_info *i = &sb->info;
    i->template_alias = arena_strdup(a, alias);
    i->pause_on_timeout = spec->pause_on_timeout;
    i->pause_files_only = spec->pause_files_only;
    i->auto_resume = spec->auto_resume;
    i->secure = spec->secure;
    i->access_token = token(a, spec->secure, spec->access_token);
    i->allow_internet = spec->allow_internet;
    i->traffic_token = token(a, spec->private_traffic, NULL);
    i->hidden = spec->hidden;
    i->checkpoint = spec->checkpoint;
    for (size_t k = 0; k < spec->n_metadata && !i->checkpoint; k++)
        if (str_eqc(spec->metadata[k].key, CHECKPOINT_LABEL))
            (void)!checkpoint_mode_parse(spec->metadata[k].value, &i->checkpoint);
    i->metadata = pairs_copy(a, spec->metadata, spec->n_metadata);
    i->n_metadata = spec->n_metadata;
    i->mounts = mounts_copy(a, spec->mounts, spec->n_mounts);
    i->n_mounts = spec->n_mounts;
    merge_envs(sb, t, spec);
    answers_give(sb);
}

struct sandbox *make_sandbox(struct core *core, const struct template *t, const char *alias, const char *tier,
                             const struct sandbox_spec *spec)
{
    struct sandbox *sb = new_one(core, spec->id, spec->timeout_ms);
    struct arena *a = &sb->arena;
    struct sandbox_info *i = &sb->info;
    i->template_id = arena_strdup(a, t->id);
    i->tier = arena_strdup(a, tier);
    sb->layer = arena_strdup(a, spec->layer ? spec->layer : t->layer);
    sb->may_start = !t->is_snapshot;
    /* A build's start command is to see the variables that are asked for. */
    sb->goes_on = t->has_memory && !spec->layer && !spec->is_cold && !(sb->may_start && spec->n_envs);
    sb->user = arena_strdup(a, t->user);
    sb->workdir = arena_strdup(a, t->workdir);
    i->cpu_milli = spec->cpu_milli ? spec->cpu_milli : core_template_cpu_milli(core, t);
    i->memory_bytes = spec->memory_bytes ? spec->memory_bytes : core_template_memory_bytes(core, t);
    i->disk_bytes = spec->disk_bytes ? spec->disk_bytes : core_template_disk_bytes(core, t);
    make_own(sb, t, alias, spec);
    network_new(sb, spec);
    return sb;
}

void make_launch(struct sandbox *sb, const struct template *t)
{
    sb->start_cmd = arena_strdup(&sb->arena, t->start_cmd);
    sb->ready_cmd = arena_strdup(&sb->arena, t->ready_cmd);
}

struct sandbox *make_fork(const struct sandbox *of, const char *layer, uint64_t timeout_ms)
{
    struct sandbox *sb = new_one(of->core, NULL, timeout_ms);
    struct arena *a = &sb->arena;
    struct sandbox_info *i = &sb->info;
    const struct sandbox_info *from = &of->info;
    sb->is_fork = true;
    i->tenant = from->tenant;
    i->template_id = arena_strdup(a, from->template_id);
    i->template_alias = arena_strdup(a, from->template_alias);
    i->tier = arena_strdup(a, from->tier);
    sb->layer = arena_strdup(a, layer);
    sb->user = arena_strdup(a, of->user);
    sb->workdir = arena_strdup(a, of->workdir);
    i->cpu_milli = from->cpu_milli;
    i->memory_bytes = from->memory_bytes;
    i->disk_bytes = from->disk_bytes;
    i->pause_on_timeout = from->pause_on_timeout;
    i->pause_files_only = from->pause_files_only;
    i->auto_resume = from->auto_resume;
    i->checkpoint = from->checkpoint;
    i->secure = from->secure;
    i->access_token = token(a, from->access_token, NULL);
    i->allow_internet = from->allow_internet;
    i->traffic_token = token(a, from->traffic_token, NULL);
    i->metadata = pairs_copy(a, from->metadata, from->n_metadata);
    i->n_metadata = from->n_metadata;
    i->envs = pairs_copy(a, from->envs, from->n_envs);
    i->n_envs = from->n_envs;
    i->mounts = mounts_copy(a, from->mounts, from->n_mounts);
    i->n_mounts = from->n_mounts;
    sb->start_cmd = arena_strdup(a, of->start_cmd);
    sb->ready_cmd = arena_strdup(a, of->ready_cmd);
    AUTO_JSON json_t *services = services_row(of);
    services_fill(sb, services);
    network_new_like(sb, of);
    guard_inherit(sb, of);
    return sb;
}

void make_describe(const struct sandbox *sb, struct event_data *d)
{
    const struct sandbox_info *i = &sb->info;
    EVENT_DATA_PUT(d, DATA_STR("template", i->template_id), DATA_SOME("alias", i->template_alias),
                   DATA_STR("layer", sb->layer), DATA_STR("tier", i->tier), DATA_U64("timeout_ms", i->timeout_ms),
                   DATA_U64("cpu_milli", i->cpu_milli), DATA_U64("memory_bytes", i->memory_bytes),
                   DATA_COUNT("disk_bytes", i->disk_bytes));
    if (i->tenant && tenant_name(sb->core, i->tenant))
        event_data_str(d, "tenant", str_of(tenant_name(sb->core, i->tenant)));
    EVENT_DATA_PUT(d, DATA_BOOL("secure", i->secure), DATA_BOOL("allow_internet", i->allow_internet),
                   DATA_FLAG("pause_on_timeout", i->pause_on_timeout));
    if (i->pause_files_only)
        event_data_bool(d, "pause_memory", false);
    EVENT_DATA_PUT(d, DATA_FLAG("auto_resume", i->auto_resume));
    if (i->checkpoint) {
        char mode[CHECKPOINT_TEXT_MAX];
        event_data_str(d, "checkpoint", checkpoint_mode_format(i->checkpoint, mode));
    }
    EVENT_DATA_PUT(d, DATA_FLAG("private_traffic", i->traffic_token), DATA_FLAG("hidden", i->hidden),
                   DATA_COUNT("mounts", i->n_mounts), DATA_U64("metadata", i->n_metadata), DATA_U64("envs", i->n_envs));
}
