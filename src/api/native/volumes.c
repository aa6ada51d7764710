/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes: named directories that outlive sandboxes. Their tokens are for the content API alone and are not told
 * here. */
#include "sandbox/volume/volumes.h"
#include "api/native/handlers.h"

static json_t *volume_json(const struct volume *v)
{
    return json_pack("{s:s,s:s,s:o?,s:I,s:I,s:b}", "id", v->id, "name", v->name, "created_at", call_time(v->created),
                     "limit_bytes", (json_int_t)v->limit_bytes, "mounted", (json_int_t)v->mounted, "in_pool",
                     volume_is_in_pool(v));
}

struct native_volumes_listing {
    json_t *all;
    bool has_usage;
};

static bool volumes_add(void *ctx, const struct volume *v)
{
    const struct native_volumes_listing *l = ctx;
    json_t *one = volume_json(v);
    if (l->has_usage)
        (void)json_object_set_new(one, "used_bytes",
                                  v->used_bytes ? json_integer((json_int_t)v->used_bytes) : json_null());
    (void)json_array_append_new(l->all, one);
    return true;
}

static void volumes_answer_list(struct call *c, bool has_usage)
{
    struct native_volumes_listing l = {json_array(), has_usage};
    volume_each(call_core(c), c->actor.who.view, volumes_add, &l);
    call_value(c, 200, json_pack("{s:o}", "volumes", l.all));
}

static void all_used(void *ctx, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (c)
        volumes_answer_list(c, true);
}

void native_volumes_list(struct call *c)
{
    bool usage;
    if (call_query_bool(c, "usage", &usage) < 0)
        return;
    if (usage)
        call_held(c, volume_usages(call_core(c), all_used, call_hold(c), &c->err));
    else
        volumes_answer_list(c, false);
}

static void made(void *ctx, const struct volume *v, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (c)
        call_value(c, 201, volume_json(v));
}

void native_volumes_create(struct call *c)
{
    struct str name = STR("");
    int64_t limit = 0;
    if (CALL_WANTS(c, JSON_WANT_STR("name", &name), JSON_WANT_INT("limit_bytes", 0, INT64_MAX, &limit)))
        call_held(c, volume_make(call_core(c), &c->actor, name, (uint64_t)limit, made, call_hold(c), &c->err));
}

static void dropped(void *ctx, const struct volume *v UNUSED, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (c)
        call_empty(c, 204);
}

/* The route's argument is an id or a name. */
void native_volumes_remove(struct call *c)
{
    call_held(c, volume_drop(call_core(c), &c->actor, c->args[0], dropped, call_hold(c), &c->err));
}

static void used(void *ctx, uint64_t bytes, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (c)
        call_value(c, 200, json_pack("{s:I}", "used_bytes", (json_int_t)bytes));
}

void native_volumes_usage(struct call *c)
{
    call_held(c, volume_usage(call_core(c), c->actor.who.view, c->args[0], used, call_hold(c), &c->err));
}
