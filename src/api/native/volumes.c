/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes: named directories that outlive sandboxes. Their tokens are for the content API alone and are not told
 * here. */
#include "sandbox/volume/volumes.h"
#include "api/native/handlers.h"

enum { VOLUMES_LIST_BYTES = 32 << 20 };

static void append_members(struct buf *b, const struct volume *v)
{
    json_open(b, "id", str_of(v->id));
    json_put_str(b, "name", str_of(v->name));
    json_put_time(b, "created_at", v->created, 3);
    buf_printf(b, ",\"limit_bytes\":%llu,\"mounted\":%zu,\"in_pool\":%s", (unsigned long long)v->limit_bytes,
               v->mounted, volume_is_in_pool(v) ? "true" : "false");
}

static void append_volume(struct buf *b, const struct volume *v)
{
    append_members(b, v);
    buf_append_char(b, '}');
}

struct native_volumes_listing {
    struct buf b;
    bool has_usage;
};

static bool append_one(void *ctx, const struct volume *v)
{
    struct native_volumes_listing *l = ctx;
    append_members(&l->b, v);
    if (l->has_usage && v->used_bytes)
        buf_printf(&l->b, ",\"used_bytes\":%llu", (unsigned long long)v->used_bytes);
    else if (l->has_usage)
        buf_append_cstr(&l->b, ",\"used_bytes\":null");
    buf_append_char(&l->b, '}');
    return true;
}

static void volumes_answer_list(struct call *c, bool has_usage)
{
    struct native_volumes_listing l = {.b = BUF_INIT(VOLUMES_LIST_BYTES), .has_usage = has_usage};
    buf_append_cstr(&l.b, "{\"volumes\":[");
    volume_each(call_core(c), c->actor.who.view, append_one, &l);
    buf_append_cstr(&l.b, "]}");
    call_json_buf(c, 200, &l.b);
    buf_fini(&l.b);
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
    if (!usage) {
        volumes_answer_list(c, false);
        return;
    }
    call_held(c, volume_usages(call_core(c), all_used, call_hold(c), &c->err));
}

static void made(void *ctx, const struct volume *v, const struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    struct call *c = call_back(ctx, err);
    if (!c)
        return;
    append_volume(&b, v);
    call_json_buf(c, 201, &b);
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
    AUTO_BUF struct buf b = BUF_INIT(256);
    struct call *c = call_back(ctx, err);
    if (!c)
        return;
    buf_printf(&b, "{\"used_bytes\":%llu}", (unsigned long long)bytes);
    call_json_buf(c, 200, &b);
}

void native_volumes_usage(struct call *c)
{
    call_held(c, volume_usage(call_core(c), c->actor.who.view, c->args[0], used, call_hold(c), &c->err));
}
