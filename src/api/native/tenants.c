/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants and their limits. */
#include "api/native/handlers.h"
#include "sandbox/tenant.h"

enum { TENANTS_LIST_BYTES = 16 << 20 };

static void append_figures(struct buf *b, const char *name, const uint64_t *figures, size_t n)
{
    buf_printf(b, ",\"%s\":{", name);
    for (size_t i = 0; i < n; i++)
        buf_printf(b, "%s\"%s\":%llu", i ? "," : "", quota_names[i], (unsigned long long)figures[i]);
    buf_append_char(b, '}');
}

static void append_tenant(struct buf *b, const struct tenant_info *info)
{
    uint64_t used[QUOTA_MAX] = {0};
    memcpy(used, info->quota->used, sizeof(info->quota->used));
    used[QUOTA_TEMPLATES] = info->n_templates;
    used[QUOTA_CHECKPOINTS] = info->n_checkpoints;
    json_open(b, "name", str_of(info->name));
    buf_printf(b, ",\"number\":%llu", (unsigned long long)info->number);
    native_append_time(b, "created_at", info->created);
    append_figures(b, "limits", info->quota->limits, QUOTA_MAX);
    append_figures(b, "used", used, QUOTA_MAX);
    buf_printf(b, ",\"keys\":%zu}", info->n_keys);
}

static void tenants_append_one(void *ctx, const struct tenant_info *info)
{
    append_tenant(ctx, info);
}

void native_tenants_list(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(TENANTS_LIST_BYTES);
    buf_append_cstr(&b, "{\"tenants\":[");
    tenant_each(call_core(c), tenants_append_one, &b);
    buf_append_cstr(&b, "]}");
    call_json_buf(c, 200, &b);
}

static void tenants_answer(struct call *c, int status, struct str name)
{
    AUTO_BUF struct buf b = BUF_INIT(8192);
    struct tenant_info info;
    if (!call_ok(c, tenant_info(call_core(c), name, &info, &c->err)))
        return;
    append_tenant(&b, &info);
    call_json(c, status, buf_str(&b));
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
