/* SPDX-License-Identifier: Apache-2.0 */
/* The storage pool: what it is, what nobody needs any more, what is kept ready. */
#include "api/json_read.h"
#include "api/native/call.h"
#include "build/builder.h"
#include "sandbox/layers.h"
#include "sandbox/templates.h"

enum { ANSWER_MAX = 4 << 20, WARM_MAX = 64 };

static void told(void *ctx, const struct pool_figures *p, const struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    struct call *c = native_wait_take(ctx);
    if (!c)
        return;
    if (err) {
        native_error(c, err);
        return;
    }
    buf_printf(&b, "{\"kind\":\"%s\",\"limits\":%s,\"total_bytes\":%llu,\"free_bytes\":%llu,\"layers\":%zu}", p->kind,
               p->limits ? "true" : "false", (unsigned long long)p->total_bytes, (unsigned long long)p->free_bytes,
               p->layers);
    native_json(c, 200, &b);
}

void native_pool_get(struct call *c)
{
    struct err err;
    struct wait *w = native_wait_new(c);
    if (pool_figures(c->native->config.core, "", told, w, &err) < 0)
        native_error(native_wait_take(w), &err);
}

static void collected(void *ctx, const struct layers_garbage *found, size_t n, const struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(ANSWER_MAX);
    struct call *c = native_wait_take(ctx);
    if (!c)
        return;
    if (err) {
        native_error(c, err);
        return;
    }
    buf_append_cstr(&b, "{\"layers\":[");
    for (size_t i = 0; i < n; i++)
        buf_printf(&b, "%s{\"layer\":\"%s\",\"bytes\":%llu,\"dropped\":%s}", i ? "," : "", found[i].layer,
                   (unsigned long long)found[i].bytes, found[i].dropped ? "true" : "false");
    buf_append_cstr(&b, "]}");
    native_json(c, 200, &b);
}

static void collect_body(struct http_request *req, int error, struct str body, void *ctx)
{
    (void)req;
    struct call *c = ctx;
    AUTO_JSON json_t *json = NULL;
    static const char *const known[] = {"dry_run", "cache"};
    bool dry_run = false, cache = false;
    struct err err;
    if (!native_read_object(c, error, body, &json))
        return;
    if (json_only(json, known, ARRAY_SIZE(known), &err) < 0 || json_get_bool(json, "dry_run", &dry_run, &err) < 0 ||
        json_get_bool(json, "cache", &cache, &err) < 0) {
        native_error(c, &err);
        return;
    }
    if (dry_run && cache) {
        native_refuse(c, ERR_INVALID_ARGUMENT, "dry_run and cache: what is cached is forgotten or it is not");
        return;
    }
    if (cache && c->native->config.builder &&
        (builder_forget_cache(c->native->config.builder, &c->actor, &err) < 0 ||
         core_templates_commit(c->native->config.core, &err) < 0)) {
        native_error(c, &err);
        return;
    }
    struct wait *w = native_wait_new(c);
    if (layers_collect(c->native->config.core, &c->actor, dry_run, collected, w, &err) < 0)
        native_error(native_wait_take(w), &err);
}

void native_pool_collect(struct call *c)
{
    http_read_body(c->req, NATIVE_BODY_MAX, collect_body, c);
}

/* ---- warm ---- */

static void warm_body(struct http_request *req, int error, struct str body, void *ctx)
{
    (void)req;
    struct call *c = ctx;
    AUTO_JSON json_t *json = NULL;
    static const char *const known[] = {"template", "count"};
    struct str template = STR("");
    int64_t count = -1;
    struct err err;
    if (!native_read_object(c, error, body, &json))
        return;
    if (json_only(json, known, ARRAY_SIZE(known), &err) < 0 || json_get_str(json, "template", &template, &err) < 0 ||
        json_get_int(json, "count", 0, WARM_MAX, &count, &err) < 0) {
        native_error(c, &err);
        return;
    }
    if (!template.n || count < 0)
        native_refuse(c, ERR_INVALID_ARGUMENT, "\"template\" and \"count\" are needed");
    else if (core_warm_set(c->native->config.core, &c->actor, template, (uint32_t)count, &err) < 0)
        native_error_hint(c, &err,
                          err.code == ERR_NOT_FOUND ? "'cove template ls' lists the templates there are" : NULL);
    else
        native_empty(c, 204);
}

void native_pool_warm(struct call *c)
{
    http_read_body(c->req, NATIVE_BODY_MAX, warm_body, c);
}
