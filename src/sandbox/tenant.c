/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/tenant.h"
#include "base/mem.h"
#include "sandbox/guard/guard_life.h"
#include "sandbox/key.h"
#include "sandbox/life/checkpoint.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"
#include "sandbox/volume/volumes.h"
#include "template/builds.h"

#include <stdlib.h>

enum { TENANTS_MAX = 10000 };

struct tenant {
    uint64_t number;
    char *name;
    char log[sizeof(SERVICE_LOG_ID) + 21];
    usec_t created;
    struct quota_user quota;
    struct owner owner;
};

struct tenants {
    struct core *core;
    struct map by_name, by_number; /* struct tenant */
};

static struct tenant *tenant_get(const struct core *core, uint64_t number)
{
    return map_get_u64(&core->tenants->by_number, number);
}

struct quota_user *tenant_quota(struct core *core, uint64_t number)
{
    struct tenant *t = tenant_get(core, number);
    return t ? &t->quota : NULL;
}

struct owner *tenant_owner(struct core *core, uint64_t number)
{
    struct tenant *t = tenant_get(core, number);
    return t ? &t->owner : NULL;
}

bool tenant_has_others(const struct core *core)
{
    return map_count(&core->tenants->by_number) > 1;
}

const char *tenant_name(struct core *core, uint64_t number)
{
    const struct tenant *t = tenant_get(core, number);
    return t ? t->name : NULL;
}

static int tenant_of_name(struct core *core, struct str name, struct tenant **ret_tenant, struct err *err)
{
    *ret_tenant = map_get(&core->tenants->by_name, name);
    if (*ret_tenant)
        return 0;
    return err_set(err, ERR_NOT_FOUND, "there is no tenant '%.*s'", STR_ARG_MAX(name, 64));
}

int tenant_find(struct core *core, struct str name, uint64_t *ret_number, struct err *err)
{
    struct tenant *t;
    if (tenant_of_name(core, name, &t, err) < 0)
        return -1;
    *ret_number = t->number;
    return 0;
}

const char *tenant_log(struct core *core, uint64_t number)
{
    const struct tenant *t = tenant_get(core, number);
    return t ? t->log : SERVICE_LOG_ID;
}

int tenant_of_log(struct core *core, const char *id, uint64_t *ret_number, struct err *err)
{
    const struct str name = str_of(id);
    if (str_starts(name, STR(SERVICE_LOG_ID "-")))
        return str_to_u64(str_n(name.p + sizeof(SERVICE_LOG_ID), name.n - sizeof(SERVICE_LOG_ID)), ret_number) == 0
                   ? 0
                   : err_set(err, ERR_NOT_FOUND, "there is no log %s", id);
    const struct sandbox *sb = map_get(&core->by_id, str_of(id));
    const struct volume *v = volume_find(core, TENANT_ANY, str_of(id));
    if (sb || v) {
        *ret_number = sb ? sb->info.tenant : v->tenant;
        return 0;
    }
    if (!id_is_sandbox(str_of(id)))
        return owner_rows_get(core->config.store, id, ret_number, err) < 0 ? -1 : 0;
    struct arena arena = {0};
    struct store_sandbox row = {0};
    int r = sandbox_rows_get(core->config.store, id, &arena, &row, err);
    *ret_number = row.tenant;
    arena_fini(&arena);
    return r;
}

/* ---- the tables ---- */

static struct tenant *tenant_add(struct tenants *all, uint64_t number, struct str name, usec_t created)
{
    struct tenant *t = mem_new(struct tenant);
    t->number = number;
    t->name = mem_strndup(name.p, name.n);
    if (number == TENANT_DEFAULT)
        (void)snprintf(t->log, sizeof(t->log), SERVICE_LOG_ID);
    else
        (void)snprintf(t->log, sizeof(t->log), SERVICE_LOG_ID "-%llu", (unsigned long long)number);
    t->created = created;
    t->owner = (struct owner){.core = all->core, .tenant = number};
    (void)map_put(&all->by_name, name, t);
    (void)map_put_u64(&all->by_number, number, t);
    return t;
}

static void tenant_free(struct tenants *all, struct tenant *t)
{
    (void)map_del(&all->by_name, str_of(t->name));
    (void)map_del_u64(&all->by_number, t->number);
    loop_alarm_clear(all->core->loop, &t->owner.alarm);
    MEM_FREE(t->name, t);
}

static void load_tenant(void *ctx, const struct store_tenant *row)
{
    (void)tenant_add(ctx, row->number, str_of(row->name), row->created_at);
}

static void load_limit(void *ctx, uint64_t number, const char *what, uint64_t most)
{
    struct tenants *all = ctx;
    struct tenant *t = map_get_u64(&all->by_number, number);
    for (size_t i = 0; t && i < QUOTA_MAX; i++)
        if (strcmp(quota_names[i], what) == 0)
            t->quota.limits[i] = most;
}

struct tenants *tenants_new(struct core *core)
{
    struct tenants *all = mem_new(struct tenants);
    all->core = core;
    return all;
}

int tenants_load(struct core *core, struct err *err)
{
    struct store *s = core->config.store;
    struct tenants *all = core->tenants;
    return tenant_rows_each(s, load_tenant, all, err) < 0 ? -1 : tenant_rows_each_limit(s, load_limit, all, err);
}

void tenants_free(struct tenants *all)
{
    MAP_FOREACH (struct tenant, t, &all->by_name) {
        MEM_FREE(t->name, t);
    }
    map_fini(&all->by_name);
    map_fini(&all->by_number);
    mem_free(all);
}

/* ---- tenants ---- */

static void tenant_fill(struct core *core, const struct tenant *t, struct tenant_info *ret_info)
{
    *ret_info = (struct tenant_info){.name = t->name,
                                     .number = t->number,
                                     .created = t->created,
                                     .quota = &t->quota,
                                     .owner = &t->owner,
                                     .n_keys = key_count(core, t->number),
                                     .n_templates = template_count(core->templates, t->number),
                                     .n_checkpoints = checkpoint_count(core, t->number)};
}

static int tenant_by_name(const void *a, const void *b)
{
    return strcmp((*(struct tenant *const *)a)->name, (*(struct tenant *const *)b)->name);
}

void tenant_each(struct core *core, void (*fn)(void *ctx, const struct tenant_info *info), void *ctx)
{
    const struct map *all = &core->tenants->by_name;
    AUTO_FREE struct tenant **sorted = mem_array(map_count(all) + 1, sizeof(struct tenant *));
    size_t n = 0;
    MAP_FOREACH (struct tenant, t, all)
        sorted[n++] = t;
    qsort(sorted, n, sizeof(struct tenant *), tenant_by_name);
    for (size_t i = 0; i < n; i++) {
        struct tenant_info info;
        tenant_fill(core, sorted[i], &info);
        fn(ctx, &info);
    }
}

int tenant_info(struct core *core, struct str name, struct tenant_info *ret_info, struct err *err)
{
    struct tenant *t;
    if (tenant_of_name(core, name, &t, err) < 0)
        return -1;
    tenant_fill(core, t, ret_info);
    return 0;
}

static int put_limits(struct core *core, uint64_t number, const int64_t limits[static QUOTA_MAX], struct err *err)
{
    for (size_t i = 0; i < QUOTA_MAX; i++)
        if (limits[i] >= 0 &&
            tenant_rows_put_limit(core->config.store, number, quota_names[i], (uint64_t)limits[i], err) < 0)
            return -1;
    return 0;
}

static void describe_limits(struct event_data *d, const int64_t limits[static QUOTA_MAX])
{
    for (size_t i = 0; i < QUOTA_MAX; i++)
        if (limits[i] >= 0)
            event_data_u64(d, quota_names[i], (uint64_t)limits[i]);
}

static void take_limits(struct tenant *t, const int64_t limits[static QUOTA_MAX])
{
    for (size_t i = 0; i < QUOTA_MAX; i++)
        if (limits[i] >= 0)
            t->quota.limits[i] = (uint64_t)limits[i];
}

int tenant_create(struct core *core, const struct actor *actor, struct str name, const int64_t *limits, struct err *err)
{
    struct tenants *all = core->tenants;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    uint64_t seq, number = 0;
    usec_t now = clock_real();
    if (!name.n || name.n > TENANT_NAME_LEN_MAX || !str_is_of(str_n(name.p, 1), "a-z") || !str_is_of(name, "a-z0-9-"))
        return err_set(err, ERR_INVALID_ARGUMENT, "a tenant's name must be 1 to %d of [a-z0-9-], the first a letter",
                       TENANT_NAME_LEN_MAX);
    if (map_get(&all->by_name, name))
        return err_set(err, ERR_ALREADY_EXISTS, "the tenant '%.*s' already exists", STR_ARG(name));
    if (map_count(&all->by_name) >= TENANTS_MAX)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "there are %d tenants, which is the limit", TENANTS_MAX);
    AUTO_FREE char *text = mem_strndup(name.p, name.n);
    event_data_str(&d, "tenant", name);
    if (limits)
        describe_limits(&d, limits);
    if (action_service(core, actor, EVENT_TENANT_CREATE, &d, &seq, err) < 0)
        return -1;
    int r = tenant_rows_insert(core->config.store, text, now, &number, err);
    if (r == 0 && limits)
        r = put_limits(core, number, limits, err);
    if (action_stored(core, actor, seq, EVENT_TENANT_CREATE, r, err) < 0)
        return -1;
    struct tenant *made = tenant_add(all, number, name, now);
    if (limits) {
        take_limits(made, limits);
        owner_tell(core, number);
    }
    return 0;
}

bool tenant_is_uid(const char *name, uid_t *ret_uid)
{
    uint64_t uid;
    if (!name || strncmp(name, "uid-", 4) != 0 || name[4] == '0' || str_to_u64(str_of(name + 4), &uid) < 0 ||
        uid >= UINT32_MAX)
        return false;
    *ret_uid = (uid_t)uid;
    return true;
}

int tenant_of_uid(struct core *core, const struct actor *actor, uid_t uid, uint64_t *ret_number, struct err *err)
{
    char name[16];
    (void)snprintf(name, sizeof(name), "uid-%u", (unsigned)uid);
    if (tenant_find(core, str_of(name), ret_number, err) == 0)
        return 0;
    return tenant_create(core, actor, str_of(name), NULL, err) < 0 ? -1
                                                                   : tenant_find(core, str_of(name), ret_number, err);
}

int tenant_set(struct core *core, const struct actor *actor, struct str name, const int64_t limits[static QUOTA_MAX],
               struct err *err)
{
    struct tenant *t;
    uint64_t seq;
    if (tenant_of_name(core, name, &t, err) < 0)
        return -1;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("tenant", name));
    describe_limits(&d, limits);
    if (action_service(core, actor, EVENT_TENANT_SET, &d, &seq, err) < 0 ||
        action_stored(core, actor, seq, EVENT_TENANT_SET, put_limits(core, t->number, limits, err), err) < 0)
        return -1;
    take_limits(t, limits);
    if (limits[QUOTA_DISK] >= 0)
        owner_tell(core, t->number);
    return 0;
}

static bool count_volume(void *ctx, const struct volume *v UNUSED)
{
    ++*(size_t *)ctx;
    return true;
}

static int refuse_owner(struct core *core, const struct tenant *t, struct err *err)
{
    size_t sandboxes = 0, volumes = 0, templates = template_count(core->templates, t->number);
    MAP_FOREACH (const struct sandbox, sb, &core->by_id)
        sandboxes += sb->info.tenant == t->number && !sandbox_state_is_over(sb->info.state);
    volume_each(core, t->number, count_volume, &volumes);
    if (t->number == TENANT_DEFAULT)
        return err_set(err, ERR_FAILED_PRECONDITION, "the tenant '%s' can't be removed", t->name);
    if (sandboxes || volumes || templates)
        return err_set(err, ERR_FAILED_PRECONDITION,
                       "tenant '%s' has %zu sandboxes, %zu volumes and %zu templates and snapshots: remove those first",
                       t->name, sandboxes, volumes, templates);
    return 0;
}

int tenant_remove(struct core *core, const struct actor *actor, struct str name, struct err *err)
{
    struct tenants *all = core->tenants;
    struct tenant *t;
    uint64_t seq;
    if (tenant_of_name(core, name, &t, err) < 0 || refuse_owner(core, t, err) < 0)
        return -1;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("tenant", name));
    if (action_service(core, actor, EVENT_TENANT_REMOVE, &d, &seq, err) < 0 ||
        action_stored(core, actor, seq, EVENT_TENANT_REMOVE, tenant_rows_delete(core->config.store, t->number, err),
                      err) < 0)
        return -1;
    keys_forget_tenant(core, t->number);
    guard_forget_tenant(core, t->number);
    tenant_free(all, t);
    return 0;
}
