/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "sandbox/guard/guard_life.h"
#include "sandbox/life/checkpoint_life.h"
#include "sandbox/network/network_life.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"
#include "sandbox/service.h"

#include <jansson.h>

static void put_pairs(struct buf *b, const struct pair *pairs, size_t n)
{
    (void)buf_append_char(b, '{');
    for (size_t i = 0; i < n; i++) {
        if (i)
            (void)buf_append_char(b, ',');
        (void)buf_append_json_string(b, pairs[i].key);
        (void)buf_append_char(b, ':');
        (void)buf_append_json_string(b, pairs[i].value);
    }
    (void)buf_append(b, "}", 2); /* with its NUL */
}

/* What we wrote ourselves; damaged text is an empty object. */
static const struct pair *get_pairs(struct arena *a, const char *text, size_t *ret_n)
{
    *ret_n = 0;
    json_t *object = json_loads(text, JSON_ALLOW_NUL, NULL);
    struct pair *pairs = arena_alloc(a, json_object_size(object) * sizeof(struct pair)); /* 0 of what is no object */
    JSON_FOREACH_MEMBER (key, value, object) {
        struct str v = json_str(value);
        pairs[*ret_n] = (struct pair){arena_str(a, str_of(key)), arena_str(a, v.p ? v : STR(""))};
        ++*ret_n;
    }
    json_decref(object);
    return pairs;
}

static const char *text_or_null(struct arena *a, const char *s)
{
    return s && *s ? arena_strdup(a, s) : NULL;
}

static json_t *put_mounts(const struct sandbox_info *i)
{
    json_t *all = json_array();
    for (size_t k = 0; k < i->n_mounts; k++) {
        const struct volume_mount *m = &i->mounts[k];
        (void)json_array_append_new(all, json_pack("{s:s%,s:s%,s:b,s:b,s:s%}", "name", m->name.p, m->name.n, "path",
                                                   m->path.p, m->path.n, "read_only", m->read_only, "host", m->is_host,
                                                   "sub", m->sub.p ? m->sub.p : "", m->sub.n));
    }
    return all;
}

static void get_mounts(struct sandbox *sb, const json_t *all)
{
    size_t n = json_array_size(all);
    struct volume_mount *mounts = n ? arena_alloc(&sb->arena, n * sizeof(*mounts)) : NULL;
    for (size_t k = 0; k < n; k++) {
        const json_t *m = json_array_get(all, k);
        const char *name = json_string_value(json_object_get(m, "name"));
        const char *path = json_string_value(json_object_get(m, "path"));
        const char *below = json_string_value(json_object_get(m, "sub"));
        mounts[k] = (struct volume_mount){
            arena_str(&sb->arena, str_of(name ? name : "")), arena_str(&sb->arena, str_of(path ? path : "")),
            json_is_true(json_object_get(m, "read_only")), json_is_true(json_object_get(m, "host")),
            arena_str(&sb->arena, str_of(below ? below : ""))};
    }
    sb->info.mounts = mounts;
    sb->info.n_mounts = n;
}

/* NULL, as json_string() has it: there is no such member. */
static json_t *row_true(bool is_so)
{
    return is_so ? json_true() : NULL;
}

static json_t *row_number(uint64_t n)
{
    return n ? json_integer((json_int_t)n) : NULL;
}

/* What has no column of its own. */
static char *extra_row(const struct sandbox *sb)
{
    const struct sandbox_info *i = &sb->info;
    const json_t *guard = sb->rules ? rules_json(sb->rules) : NULL;
    json_t *extra = json_pack(
        "{s:o*,s:o*,s:o*,s:o*,s:o*,s:o*,s:o*,s:o*,s:o*,s:o*,s:o*,s:o*,s:o*,s:o*,s:o*,s:o*,s:O*,s:o*,s:o*,s:o*}",
        "port_alias", json_string(i->port_alias), "memory", row_true(i->has_memory), "disk", row_true(i->on_disk),
        "files_only", row_true(i->pause_files_only), "hidden", row_true(i->hidden), "user", json_string(sb->user),
        "workdir", json_string(sb->workdir), "start", json_string(sb->start_cmd), "ready", json_string(sb->ready_cmd),
        "start_failed", json_string(i->start_failed), "volumes_failed", json_string(i->volumes_failed), "mounts",
        i->n_mounts ? put_mounts(i) : NULL, "oom_kills", row_number(sb->oom_kills), "pids_refused",
        row_number(sb->pids_told), "pids_are_short", row_true(sb->pids_are_short), "disk_is_full",
        row_true(sb->disk_is_full), "guard", guard, "checkpoint", row_number(i->checkpoint), "checkpoints",
        checkpoint_row(sb), "services", services_row(sb));
    char *text = json_dumps(extra, JSON_COMPACT);
    json_decref(extra);
    return text;
}

static void extra_fill(struct sandbox *sb, const char *text)
{
    struct sandbox_info *i = &sb->info;
    json_t *extra = json_loads(text, 0, NULL);
    const char *alias = json_string_value(json_object_get(extra, "port_alias"));
    if (alias && id_is_port_alias(str_of(alias)))
        sandbox_set_port_alias(sb, alias);
    i->has_memory = json_is_true(json_object_get(extra, "memory"));
    i->on_disk = json_is_true(json_object_get(extra, "disk"));
    i->pause_files_only = json_is_true(json_object_get(extra, "files_only"));
    i->hidden = json_is_true(json_object_get(extra, "hidden"));
    sb->user = text_or_null(&sb->arena, json_string_value(json_object_get(extra, "user")));
    sb->workdir = text_or_null(&sb->arena, json_string_value(json_object_get(extra, "workdir")));
    sb->start_cmd = text_or_null(&sb->arena, json_string_value(json_object_get(extra, "start")));
    sb->ready_cmd = text_or_null(&sb->arena, json_string_value(json_object_get(extra, "ready")));
    i->start_failed = text_or_null(&sb->arena, json_string_value(json_object_get(extra, "start_failed")));
    i->volumes_failed = text_or_null(&sb->arena, json_string_value(json_object_get(extra, "volumes_failed")));
    get_mounts(sb, json_object_get(extra, "mounts"));
    sb->oom_kills = (uint32_t)json_integer_value(json_object_get(extra, "oom_kills"));
    sb->pids_refused = sb->pids_told = (uint32_t)json_integer_value(json_object_get(extra, "pids_refused"));
    sb->pids_are_short = json_is_true(json_object_get(extra, "pids_are_short"));
    sb->disk_is_full = json_is_true(json_object_get(extra, "disk_is_full"));
    guard_fill(sb, json_object_get(extra, "guard"));
    i->checkpoint = (int)json_integer_value(json_object_get(extra, "checkpoint"));
    checkpoint_fill(sb, json_object_get(extra, "checkpoints"));
    services_fill(sb, json_object_get(extra, "services"));
    json_decref(extra);
}

static void rows_done(struct sandbox *sb, int r, const struct err *err)
{
    if (r < 0)
        core_unrecorded(sb->core, err);
    else
        keeper_wrote(sb->core->keeper);
}

int rows_insert(struct sandbox *sb, struct err *err)
{
    const struct sandbox_info *i = &sb->info;
    AUTO_BUF struct buf metadata = BUF_INIT(16 << 20);
    AUTO_BUF struct buf envs = BUF_INIT(16 << 20);
    put_pairs(&metadata, i->metadata, i->n_metadata);
    put_pairs(&envs, i->envs, i->n_envs);
    if (buf_error(&metadata) || buf_error(&envs))
        return err_set(err, ERR_INVALID_ARGUMENT, "metadata and environment are too large");
    AUTO_FREE char *network = network_row(sb);
    AUTO_FREE char *extra = extra_row(sb);
    struct store_sandbox row = {
        .id = i->id,
        .tenant = i->tenant,
        .state = (int)i->state,
        .tier = i->tier,
        .template_id = i->template_id,
        .template_alias = i->template_alias,
        .layer_digest = sb->layer,
        .created_at = i->started,
        .started_at = i->started,
        .end_at = i->end_at,
        .timeout = i->timeout_ms * USEC_PER_MS,
        .cpu_milli = i->cpu_milli,
        .memory_bytes = i->memory_bytes,
        .disk_bytes = i->disk_bytes,
        .access_token = i->access_token,
        .traffic_token = i->traffic_token,
        .on_timeout = i->pause_on_timeout ? STORE_ON_TIMEOUT_PAUSE : STORE_ON_TIMEOUT_KILL,
        .auto_resume = i->auto_resume,
        .secure = i->secure,
        .allow_internet = i->allow_internet,
        .metadata = buf_data(&metadata),
        .envs = buf_data(&envs),
        .network = network,
        .extra = extra,
    };
    if (sandbox_rows_insert(sb->core->config.store, &row, err) < 0)
        return -1;
    keeper_wrote(sb->core->keeper);
    return 0;
}

int rows_replace(struct sandbox *sb, struct err *err)
{
    return sandbox_rows_delete(sb->core->config.store, sb->info.id, err) < 0 ? -1 : rows_insert(sb, err);
}

void rows_state(struct sandbox *sb)
{
    struct store *store = sb->core->config.store;
    int state = (int)sb->info.state;
    struct err err;
    /* Why it is on its way out is known before it is gone, and to the next worker too. */
    rows_done(sb,
              sb->info.state == SANDBOX_STOPPING
                  ? sandbox_rows_update_ended(store, sb->info.id, state, 0, sb->end_cause ? sb->end_cause : "", &err)
                  : sandbox_rows_update_state(store, sb->info.id, state, &err),
              &err);
}

void rows_end_at(struct sandbox *sb)
{
    struct err err;
    rows_done(sb,
              sandbox_rows_update_end_at(sb->core->config.store, sb->info.id, sb->info.end_at,
                                         sb->info.timeout_ms * USEC_PER_MS, &err),
              &err);
}

void rows_ended(struct sandbox *sb)
{
    struct err err;
    rows_done(sb,
              sandbox_rows_update_ended(sb->core->config.store, sb->info.id, (int)sb->info.state, sb->info.ended,
                                        sb->info.end_cause, &err),
              &err);
}

void rows_network(struct sandbox *sb)
{
    AUTO_FREE char *network = network_row(sb);
    struct err err;
    rows_done(sb, sandbox_rows_update_network(sb->core->config.store, sb->info.id, network, &err), &err);
}

void rows_extra(struct sandbox *sb)
{
    AUTO_FREE char *extra = extra_row(sb);
    struct err err;
    rows_done(sb, sandbox_rows_update_extra(sb->core->config.store, sb->info.id, extra, &err), &err);
}

void rows_fill(struct sandbox *sb, const struct store_sandbox *row)
{
    struct sandbox_info *i = &sb->info;
    struct arena *a = &sb->arena;
    sb->stored = true;
    i->state = row->state >= SANDBOX_CREATING && row->state <= SANDBOX_FAILED ? (enum sandbox_state)row->state
                                                                              : SANDBOX_STOPPING;
    i->tenant = row->tenant;
    i->template_id = arena_strdup(a, row->template_id);
    i->template_alias = text_or_null(a, row->template_alias);
    sb->layer = arena_strdup(a, row->layer_digest);
    i->tier = arena_strdup(a, row->tier);
    i->started = row->started_at;
    i->end_at = row->end_at;
    i->timeout_ms = row->timeout / USEC_PER_MS;
    i->cpu_milli = row->cpu_milli;
    i->memory_bytes = row->memory_bytes;
    i->disk_bytes = row->disk_bytes;
    i->access_token = text_or_null(a, row->access_token);
    i->traffic_token = text_or_null(a, row->traffic_token);
    i->pause_on_timeout = row->on_timeout == STORE_ON_TIMEOUT_PAUSE;
    i->auto_resume = row->auto_resume;
    i->secure = row->secure;
    i->allow_internet = row->allow_internet;
    i->metadata = get_pairs(a, row->metadata, &i->n_metadata);
    i->envs = get_pairs(a, row->envs, &i->n_envs);
    sb->end_cause = text_or_null(a, row->end_cause);
    extra_fill(sb, row->extra);
    bool is_kept = (!i->has_memory || i->on_disk) && (i->state == SANDBOX_PAUSED || i->state == SANDBOX_RESUMING);
    sb->n_mounted = is_kept || i->state == SANDBOX_CREATING ? 0 : i->n_mounts;
    network_from_row(sb, row->network);
}

/* ---- those that have ended ---- */

struct ended_visit {
    bool (*fn)(void *ctx, const struct sandbox_ended *one);
    void *ctx;
};

static bool ended_visit(const struct store_sandbox *row, void *ctx)
{
    const struct ended_visit *v = ctx;
    json_t *extra = json_loads(row->extra, 0, NULL);
    bool is_hidden = json_is_true(json_object_get(extra, "hidden"));
    json_decref(extra);
    const struct sandbox_ended one = {
        .id = row->id,
        .template_id = row->template_id,
        .template_alias = row->template_alias,
        .started = row->started_at,
        .ended = row->ended_at,
        .cpu_milli = row->cpu_milli,
        .memory_bytes = row->memory_bytes,
        .end_cause = row->end_cause,
        .metadata = *row->metadata ? row->metadata : "{}",
        .has_failed = row->state == SANDBOX_FAILED,
        .secure = row->secure,
    };
    return is_hidden || v->fn(v->ctx, &one);
}

int sandbox_each_ended(struct core *core, uint64_t view, size_t limit,
                       bool (*fn)(void *ctx, const struct sandbox_ended *one), void *ctx, struct err *err)
{
    struct ended_visit v = {fn, ctx};
    return sandbox_rows_each_ended(core->config.store, view, limit, ended_visit, &v, err);
}
