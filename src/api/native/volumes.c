/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes: named directories that outlive sandboxes. Their tokens are for the content API alone and are not told here. */
#include "sandbox/volumes.h"
#include "api/json_read.h"
#include "api/native/call.h"

enum { LIST_BYTES = 32 << 20 };

static void append_members(struct buf *b, const struct volume *v)
{
    char at[CLOCK_TEXT_MAX];
    buf_append_cstr(b, "{\"id\":");
    buf_append_json_string(b, str_of(v->id));
    buf_append_cstr(b, ",\"name\":");
    buf_append_json_string(b, str_of(v->name));
    clock_format(v->created, 3, at);
    buf_printf(b, ",\"created_at\":\"%s\",\"limit_bytes\":%llu,\"mounted\":%zu,\"in_pool\":%s", at,
               (unsigned long long)v->limit_bytes, v->mounted, volume_is_in_pool(v) ? "true" : "false");
}

static void append_volume(struct buf *b, const struct volume *v)
{
    append_members(b, v);
    buf_append_char(b, '}');
}

struct listing {
    struct buf b;
    bool has_usage;
};

static bool append_one(void *ctx, const struct volume *v)
{
    struct listing *l = ctx;
    if (buf_data(&l->b)[buf_len(&l->b) - 1] != '[')
        buf_append_char(&l->b, ',');
    append_members(&l->b, v);
    if (l->has_usage && v->used_bytes)
        buf_printf(&l->b, ",\"used_bytes\":%llu", (unsigned long long)v->used_bytes);
    else if (l->has_usage)
        buf_append_cstr(&l->b, ",\"used_bytes\":null");
    buf_append_char(&l->b, '}');
    return true;
}

static void answer_list(struct call *c, bool has_usage)
{
    struct listing l = {.b = BUF_INIT(LIST_BYTES), .has_usage = has_usage};
    buf_append_cstr(&l.b, "{\"volumes\":[");
    volume_each(c->native->config.core, append_one, &l);
    buf_append_cstr(&l.b, "]}");
    native_json(c, 200, &l.b);
    buf_fini(&l.b);
}

static void all_used(void *ctx, const struct err *err)
{
    struct call *c = native_wait_take(ctx);
    if (c && err)
        native_error(c, err);
    else if (c)
        answer_list(c, true);
}

void native_volumes_list(struct call *c)
{
    bool usage;
    struct err err;
    if (native_query_bool(c, "usage", &usage) < 0)
        return;
    if (!usage) {
        answer_list(c, false);
        return;
    }
    struct wait *w = native_wait_new(c);
    if (volume_usages(c->native->config.core, all_used, w, &err) < 0)
        native_error(native_wait_take(w), &err);
}

static void made(void *ctx, const struct volume *v, const struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    struct call *c = native_wait_take(ctx);
    if (c && err) {
        native_error(c, err);
    } else if (c) {
        append_volume(&b, v);
        native_json(c, 201, &b);
    }
}

static void make_body(struct http_request *req, int error, struct str body, void *ctx)
{
    (void)req;
    struct call *c = ctx;
    AUTO_JSON json_t *json = NULL;
    static const char *const known[] = {"name", "limit_bytes"};
    struct str name = STR("");
    int64_t limit = 0;
    struct err err;
    if (!native_read_object(c, error, body, &json))
        return;
    if (json_only(json, known, ARRAY_SIZE(known), &err) < 0 || json_get_str(json, "name", &name, &err) < 0 ||
        json_get_int(json, "limit_bytes", 0, INT64_MAX, &limit, &err) < 0) {
        native_error(c, &err);
        return;
    }
    struct wait *w = native_wait_new(c);
    if (volume_make(c->native->config.core, &c->actor, name, (uint64_t)limit, made, w, &err) < 0)
        native_error(native_wait_take(w), &err);
}

void native_volumes_create(struct call *c)
{
    http_read_body(c->req, NATIVE_BODY_MAX, make_body, c);
}

static void dropped(void *ctx, const struct volume *v, const struct err *err)
{
    struct call *c = native_wait_take(ctx);
    (void)v;
    if (c && err)
        native_error(c, err);
    else if (c)
        native_empty(c, 204);
}

/* '*' of the route: id or name. */
void native_volumes_remove(struct call *c)
{
    struct err err;
    struct wait *w = native_wait_new(c);
    if (volume_drop(c->native->config.core, &c->actor, c->id, dropped, w, &err) < 0)
        native_error(native_wait_take(w), &err);
}

static void used(void *ctx, uint64_t bytes, const struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(256);
    struct call *c = native_wait_take(ctx);
    if (c && err) {
        native_error(c, err);
    } else if (c) {
        buf_printf(&b, "{\"used_bytes\":%llu}", (unsigned long long)bytes);
        native_json(c, 200, &b);
    }
}

void native_volumes_usage(struct call *c)
{
    struct err err;
    struct wait *w = native_wait_new(c);
    if (volume_usage(c->native->config.core, c->id, used, w, &err) < 0)
        native_error(native_wait_take(w), &err);
}
