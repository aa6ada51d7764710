/* SPDX-License-Identifier: Apache-2.0 */
/* The storage pool: what it is, what nobody needs any more, what is kept ready. */
#include "api/native/handlers.h"
#include "build/builder.h"
#include "sandbox/life/layers.h"
#include "sandbox/templates.h"

enum { ANSWER_MAX = 4 << 20, WARM_MAX = 64 };

static void told(void *ctx, const struct pool_figures *p, const struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    struct call *c = call_back(ctx, err);
    if (!c)
        return;
    buf_printf(&b, "{\"kind\":\"%s\",\"limits\":%s,\"total_bytes\":%llu,\"free_bytes\":%llu,\"layers\":%zu}", p->kind,
               p->limits ? "true" : "false", (unsigned long long)p->total_bytes, (unsigned long long)p->free_bytes,
               p->layers);
    call_json_buf(c, 200, &b);
}

void native_pool_get(struct call *c)
{
    call_held(c, pool_figures(call_core(c), "", told, call_hold(c), &c->err));
}

static void collected(void *ctx, const struct layers_garbage *found, size_t n, const struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(ANSWER_MAX);
    struct call *c = call_back(ctx, err);
    if (!c)
        return;
    buf_append_cstr(&b, "{\"layers\":[");
    for (size_t i = 0; i < n; i++)
        buf_printf(&b, "%s{\"layer\":\"%s\",\"bytes\":%llu,\"dropped\":%s}", i ? "," : "", found[i].layer,
                   (unsigned long long)found[i].bytes, found[i].dropped ? "true" : "false");
    buf_append_cstr(&b, "]}");
    call_json_buf(c, 200, &b);
}

static void collect_step(struct call *c)
{
    bool dry_run = false;
    if (CALL_WANTS(c, JSON_WANT_BOOL("dry_run", &dry_run), JSON_WANT_ANY("cache")))
        call_held(c, layers_collect(call_core(c), &c->actor, dry_run, collected, call_hold(c), &c->err));
}

void native_pool_collect(struct call *c)
{
    struct builder *builder = native_of(c)->config.builder;
    bool dry_run = false, cache = false;
    if (!CALL_WANTS(c, JSON_WANT_BOOL("dry_run", &dry_run), JSON_WANT_BOOL("cache", &cache)))
        return;
    if (dry_run && cache)
        call_refuse(c, ERR_INVALID_ARGUMENT, "dry_run and cache exclude each other");
    else if (!cache || !builder ||
             (call_ok(c, builder_forget_cache(builder, &c->actor, &c->err)) &&
              call_ok(c, core_templates_commit(call_core(c), &c->err))))
        call_step(c, collect_step);
}

struct pool_warm {
    struct core *core;
    struct buf *b;
    size_t n;
};

static bool pool_warm_one(void *ctx, const struct template *t)
{
    struct pool_warm *w = ctx;
    uint32_t ready, n = core_warm_count(w->core, t, &ready);
    if (!n && !ready)
        return true;
    if (w->n++)
        buf_append_char(w->b, ',');
    json_open(w->b, "template", str_of(t->n_aliases ? t->aliases[0] : t->id));
    json_put_text(w->b, "template_id", t->id);
    buf_printf(w->b, ",\"count\":%u,\"ready\":%u}", n, ready);
    return true;
}

void native_pool_warm_list(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(ANSWER_MAX);
    buf_append_cstr(&b, "{\"warm\":[");
    core_templates_each(call_core(c), c->actor.who.view, pool_warm_one,
                        &(struct pool_warm){.core = call_core(c), .b = &b});
    buf_append_cstr(&b, "]}");
    call_json_buf(c, 200, &b);
}

void native_pool_warm(struct call *c)
{
    struct str template = STR("");
    int64_t count = 0;
    struct err err;
    if (!CALL_WANTS(c, JSON_NEED_STR("template", &template), JSON_NEED_INT("count", 0, WARM_MAX, &count)))
        return;
    if (core_warm_set(call_core(c), &c->actor, template, (uint32_t)count, WARM_MOST_KEPT, &err) < 0)
        call_fail_hint(c, &err, err.code == ERR_NOT_FOUND ? CALL_HINT_TEMPLATE : NULL);
    else
        call_empty(c, 204);
}
