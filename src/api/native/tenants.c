/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants and their limits. */
#include "api/native/handlers.h"
#include "sandbox/tenant.h"

static json_t *tenant_figures(const uint64_t *figures)
{
    json_t *all = json_object();
    for (size_t i = 0; i < QUOTA_MAX; i++)
        (void)json_object_set_new(all, quota_names[i], json_integer((json_int_t)figures[i]));
    return all;
}

static json_t *tenant_json(const struct tenant_info *info)
{
    uint64_t used[QUOTA_MAX] = {0};
    memcpy(used, info->quota->used, sizeof(info->quota->used));
    used[QUOTA_TEMPLATES] = info->n_templates;
    used[QUOTA_CHECKPOINTS] = info->n_checkpoints;
    const struct owner *o = info->owner;
    json_t *on_disk = o->most_bytes ? json_pack("{s:I,s:I}", "used_bytes", (json_int_t)o->used_bytes, "limit_bytes",
                                                (json_int_t)o->most_bytes)
                                    : NULL;
    return json_pack("{s:s,s:I,s:o?,s:o,s:o,s:I,s:o?,s:o?}", "name", info->name, "number", (json_int_t)info->number,
                     "created_at", call_time(info->created), "limits", tenant_figures(info->quota->limits), "used",
                     tenant_figures(used), "keys", (json_int_t)info->n_keys, "on_disk", on_disk, "on_disk_failed",
                     o->failures ? call_cstr(o->why.msg) : NULL);
}

static void tenants_add(void *ctx, const struct tenant_info *info)
{
    (void)json_array_append_new(ctx, tenant_json(info));
}

void native_tenants_list(struct call *c)
{
    json_t *all = json_array();
    tenant_each(call_core(c), tenants_add, all);
    call_value(c, 200, json_pack("{s:o}", "tenants", all));
}

static void tenants_answer(struct call *c, int status, struct str name)
{
    struct tenant_info info;
    if (call_ok(c, tenant_info(call_core(c), name, &info, &c->err)))
        call_value(c, status, tenant_json(&info));
}

/* The body's limits; name NULL: it has none. False: answered. */
static bool read_limits(struct call *c, struct str *name, int64_t limits[static QUOTA_MAX])
{
    struct json_want wants[QUOTA_MAX + 1];
    for (size_t i = 0; i < QUOTA_MAX; i++) {
        limits[i] = -1;
        wants[i] = (struct json_want)JSON_WANT_INT(quota_names[i], 0, INT64_MAX, &limits[i]);
    }
    if (name)
        wants[QUOTA_MAX] = (struct json_want)JSON_NEED_STR("name", name);
    return call_wants(c, wants, QUOTA_MAX + (name ? 1 : 0));
}

void native_tenants_create(struct call *c)
{
    int64_t limits[QUOTA_MAX];
    struct str name = STR_NULL;
    if (!read_limits(c, &name, limits))
        return;
    if (call_ok(c, tenant_create(call_core(c), &c->actor, name, limits, &c->err)))
        tenants_answer(c, 201, name);
}

void native_tenants_get(struct call *c)
{
    tenants_answer(c, 200, c->args[0]);
}

void native_tenants_set(struct call *c)
{
    int64_t limits[QUOTA_MAX];
    if (!read_limits(c, NULL, limits))
        return;
    if (call_ok(c, tenant_set(call_core(c), &c->actor, c->args[0], limits, &c->err)))
        tenants_answer(c, 200, c->args[0]);
}

void native_tenants_remove(struct call *c)
{
    if (call_ok(c, tenant_remove(call_core(c), &c->actor, c->args[0], &c->err)))
        call_empty(c, 204);
}
