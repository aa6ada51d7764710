/* SPDX-License-Identifier: Apache-2.0 */
/* Pools: the sandboxes of a template that are kept ready (sandbox/life/layers.h). A pool is named as its template is;
 * bufferMax says how many are. */
#include "api/opensandbox/handlers.h"
#include "sandbox/life/layers.h"
#include "sandbox/templates.h"

enum { POOL_MAX = 1 << 20 };

struct pools_asked {
    struct str name;
    int64_t buffer_max, buffer_min, pool_max, pool_min;
};

struct pools_count {
    const char *name;
    uint32_t n;
};

static bool pools_count_one(void *ctx, struct sandbox *sb)
{
    struct pools_count *p = ctx;
    struct str pool = sandbox_label(sb, STR(OPENSANDBOX_RESERVED POOL_KEY));
    p->n += pool.p && str_eqc(pool, p->name);
    return true;
}

uint32_t pools_allocated(const struct core *core, const struct template *t)
{
    struct pools_count p = {.name = t->id};
    sandbox_each((struct core *)(uintptr_t)core, pools_count_one, &p);
    return p.n;
}

static json_t *pool_json(struct call *c, const struct template *t)
{
    uint32_t ready, n = core_warm_count(call_core(c), t, &ready), most = core_warm_most(call_core(c), t),
                    allocated = pools_allocated(call_core(c), t);
    return json_pack("{s:s,s:{s:i,s:i,s:i,s:i},s:{s:i,s:i,s:i,s:s?}}", "name", t->n_aliases ? t->aliases[0] : t->id,
                     "capacitySpec", "bufferMax", (int)n, "bufferMin", (int)n, "poolMax", most ? (int)most : POOL_MAX,
                     "poolMin", 0, "status", "total", (int)(ready + allocated), "allocated", (int)allocated,
                     "available", (int)ready, "revision", t->build_id);
}

/* NULL: answered. */
static const struct template *pool_find(struct call *c, struct str name, bool must_be_one)
{
    const struct template *t;
    struct err err;
    uint32_t ready;
    if (core_template_find(call_core(c), c->actor.who.view, name, &t, &err) == 0 &&
        (!must_be_one || core_warm_count(call_core(c), t, &ready)))
        return t;
    call_fail(c, 404,
              must_be_one ? "there is no pool %.*s" : "there is no template %.*s, as which the pool would be named",
              STR_ARG_MAX(name, 64));
    return NULL;
}

static bool pools_one(void *ctx, const struct template *t)
{
    void **to = ctx;
    uint32_t ready;
    if (core_warm_count(call_core(to[0]), t, &ready))
        (void)json_array_append_new(to[1], pool_json(to[0], t));
    return true;
}

void pools_list(struct call *c)
{
    json_t *items = json_array();
    core_templates_each(call_core(c), c->actor.who.view, pools_one, (void *[]){c, items});
    call_value(c, 200, json_pack("{s:o}", "items", items));
}

void pools_get(struct call *c)
{
    const struct template *t = pool_find(c, c->args[0], true);
    if (t)
        call_value(c, 200, pool_json(c, t));
}

static void pools_answer(struct call *c, struct str name, int64_t n, int64_t most, int status)
{
    const struct template *t;
    uint32_t max = most == POOL_MAX ? 0 : (uint32_t)most;
    if (!call_ok(c, core_warm_set(call_core(c), &c->actor, name, (uint32_t)n, max, &c->err)) ||
        !call_ok(c, core_template_find(call_core(c), c->actor.who.view, name, &t, &c->err)))
        return;
    if (status == 204)
        call_empty(c, status);
    else
        call_value(c, status, pool_json(c, t));
}

/* False: answered. */
static bool pools_read(struct call *c, struct pools_asked *p, bool is_new)
{
    json_t *capacity = NULL, *pod = NULL;
    struct str image = STR("");
    struct err err;
    if (!CALL_WANTS(c, JSON_WANT_STR("name", &p->name), JSON_WANT_OBJECT("template", &pod),
                    JSON_WANT_OBJECT("capacitySpec", &capacity)))
        return false;
    if (!capacity || JSON_WANTS(capacity, NULL, &err, JSON_WANT_INT("bufferMax", 0, POOL_MAX, &p->buffer_max),
                                JSON_WANT_INT("bufferMin", 0, POOL_MAX, &p->buffer_min),
                                JSON_WANT_INT("poolMax", 0, POOL_MAX, &p->pool_max),
                                JSON_WANT_INT("poolMin", 0, POOL_MAX, &p->pool_min)) < 0)
        return call_fail(c, 422, "capacitySpec: %s", capacity ? err.msg : "it is needed");
    if (p->pool_max && p->pool_max < MAX(MAX(p->buffer_max, p->buffer_min), p->pool_min))
        return call_fail(c, 422, "capacitySpec.poolMax is less than the buffer, or than poolMin");
    const json_t *container = json_array_get(json_object_get(json_object_get(pod, "spec"), "containers"), 0);
    if (container && json_get_str(container, "image", &image, &err) < 0)
        return call_fail(c, 422, "template.spec.containers[0]: %s", err.msg);
    if (is_new && image.n && !str_eq(image, p->name))
        return call_fail(c, 422,
                         "a pool is named as the template whose sandboxes it holds: \"name\" and the image differ");
    return true;
}

void pools_make(struct call *c)
{
    struct pools_asked p = {.name = STR("")};
    uint32_t ready;
    if (!pools_read(c, &p, true))
        return;
    const struct template *t = pool_find(c, p.name, false);
    if (t && core_warm_count(call_core(c), t, &ready))
        call_fail(c, 409, "the pool %.*s already exists", STR_ARG(p.name));
    else if (t)
        pools_answer(c, p.name, MAX(p.buffer_max, p.buffer_min), p.pool_max, 201);
}

void pools_set(struct call *c)
{
    struct pools_asked p = {.name = STR("")};
    if (pools_read(c, &p, false) && pool_find(c, c->args[0], true))
        pools_answer(c, c->args[0], MAX(p.buffer_max, p.buffer_min), p.pool_max, 200);
}

void pools_remove(struct call *c)
{
    if (pool_find(c, c->args[0], true))
        pools_answer(c, c->args[0], 0, 0, 204);
}
