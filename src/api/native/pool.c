/* SPDX-License-Identifier: Apache-2.0 */
/* The storage pool: what it is, what nobody needs any more, what is kept ready. */
#include "api/native/handlers.h"
#include "build/builder.h"
#include "sandbox/templates.h"

enum { WARM_MAX = 64 };

static void told(void *ctx, const struct pool_figures *p, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (c)
        call_value(c, 200,
                   json_pack("{s:s,s:b,s:I,s:I,s:I}", "kind", p->kind, "limits", p->limits, "total_bytes",
                             (json_int_t)p->total_bytes, "free_bytes", (json_int_t)p->free_bytes, "layers",
                             (json_int_t)p->layers));
}

void native_pool_get(struct call *c)
{
    call_held(c, pool_figures(call_core(c), "", told, call_hold(c), &c->err));
}

static void collected(void *ctx, const struct layers_garbage *found, size_t n, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    json_t *all = json_array();
    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(all, json_pack("{s:s,s:I,s:b}", "layer", found[i].layer, "bytes",
                                                   (json_int_t)found[i].bytes, "dropped", found[i].dropped));
    json_t *answer = json_pack("{s:o}", "layers", all);
    if (c)
        call_value(c, 200, answer);
    else
        json_decref(answer);
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
    json_t *all;
};

static bool pool_warm_one(void *ctx, const struct template *t)
{
    const struct pool_warm *w = ctx;
    uint32_t ready, n = core_warm_count(w->core, t, &ready);
    if (n || ready)
        (void)json_array_append_new(w->all,
                                    json_pack("{s:s,s:s,s:i,s:i}", "template", t->n_aliases ? t->aliases[0] : t->id,
                                              "template_id", t->id, "count", (int)n, "ready", (int)ready));
    return true;
}

void native_pool_warm_list(struct call *c)
{
    struct pool_warm w = {call_core(c), json_array()};
    core_templates_each(w.core, c->actor.who.view, pool_warm_one, &w);
    call_value(c, 200, json_pack("{s:o}", "warm", w.all));
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
