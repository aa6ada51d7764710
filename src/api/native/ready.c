/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Can a sandbox be made now? Whoever asks often, without a key, costs coved one question in READY_FRESH at most:
 * requests that come while one is under way wait for its answer, though not for long, and an answer serves all that
 * come soon after it.
 */
#include "api/native/handlers.h"
#include "base/mem.h"
#include "sandbox/templates.h"

static const usec_t READY_FRESH = 2 * USEC_PER_SEC;
enum { READY_WAIT_MS = 2000 };
static const uint64_t READY_FREE_BYTES = 32 << 20; /* below that no sandbox can begin */

static void ready_add(json_t *reasons, struct native_obstacle obstacle)
{
    (void)json_array_append_new(reasons, json_pack("{s:s,s:s}", "code", obstacle.code, "message", obstacle.message));
}

static void ready_answer(struct call *c)
{
    static const struct native_obstacle no_template = {
        "template", "there is no base template: 'coved prepare' makes it while the service is down"};
    static const struct native_obstacle no_layer = {
        "template", "the files of the base template are gone: 'coved prepare' makes them while the service is down"};
    static const struct native_obstacle no_room = {
        "disk", "the storage pool has no room for another sandbox: 'cove pool' and 'cove gc'"};
    static const struct native_obstacle no_pool = {"supervisor", "coved does not answer what is in the storage pool"};
    const struct native_config *k = &native_of(c)->config;
    const struct native_pool *pool = &native_of(c)->pool;
    const struct template *base;
    struct native_obstacle supervisor = {NULL, NULL};
    AUTO_JSON json_t *reasons = json_array();
    struct err err;
    if (k->supervisor)
        supervisor = k->supervisor(k->supervisor_ctx);
    if (supervisor.message)
        ready_add(reasons, supervisor);
    else if (pool->failed)
        ready_add(reasons, no_pool);
    else if (!pool->has_room)
        ready_add(reasons, no_room);
    if (core_template_find(k->core, TENANT_DEFAULT, STR("base"), &base, &err) < 0)
        ready_add(reasons, no_template);
    else if (!pool->failed && !pool->has_base)
        ready_add(reasons, no_layer);
    bool any = json_array_size(reasons);
    call_value(c, any ? 503 : 200,
               json_pack("{s:s,s:O*}", "status", any ? "not ready" : "ready", "reasons", any ? reasons : NULL));
}

static void ready_answer_all(struct native *n)
{
    (void)uv_timer_stop(n->pool.timer);
    while (!list_empty(&n->pool.waiting)) {
        struct call *c = LIST_FIRST(struct call, &n->pool.waiting, node);
        list_remove(&c->node);
        const struct native_asker *asker = c->state;
        c->cleanup = NULL;
        asker->answer(c);
    }
}

static void ready_on_silence(uv_timer_t *timer)
{
    struct native *n = timer->data;
    n->pool.failed = true;
    ready_answer_all(n);
}

static void ready_on_figures(void *ctx, const struct pool_figures *figures, const struct err *err)
{
    struct ready_question *q = ctx;
    struct native *n = q->native;
    mem_free(q);
    if (!n)
        return;
    n->pool.question = NULL;
    n->pool.looked = clock_mono();
    n->pool.failed = err != NULL;
    if (figures)
        n->pool.figures = *figures;
    n->pool.has_base = !err && figures && figures->has_layer;
    n->pool.has_room = !err && figures && figures->free_bytes >= READY_FREE_BYTES;
    ready_answer_all(n);
}

static void ready_closed(struct call *c)
{
    list_remove(&c->node);
}

void native_look_at_pool(struct call *c, const struct native_asker *asker)
{
    struct native *n = native_of(c);
    const struct template *base = NULL;
    struct err err;
    if (n->pool.looked && clock_mono() - n->pool.looked < READY_FRESH) {
        asker->answer(c);
        return;
    }
    if (core_template_find(n->config.core, TENANT_DEFAULT, STR("base"), &base, &err) < 0)
        base = NULL;
    if (!n->pool.question) {
        n->pool.question = mem_new(struct ready_question);
        n->pool.question->native = n;
        if (pool_figures(n->config.core, base ? base->layer : "", ready_on_figures, n->pool.question, &err) < 0) {
            mem_free(TAKE_PTR(n->pool.question));
            n->pool.failed = true;
            asker->answer(c);
            return;
        }
    }
    c->state = (void *)asker;
    c->cleanup = ready_closed;
    if (list_empty(&n->pool.waiting))
        (void)uv_timer_start(n->pool.timer, ready_on_silence, READY_WAIT_MS, 0);
    list_append(&n->pool.waiting, &c->node);
}

void native_ready(struct call *c)
{
    static const struct native_asker asker = {ready_answer};
    native_look_at_pool(c, &asker);
}

void native_ready_init(struct native *n, uv_loop_t *loop)
{
    n->pool.timer = mem_new(uv_timer_t);
    (void)uv_timer_init(loop, n->pool.timer);
    n->pool.timer->data = n;
    list_init(&n->pool.waiting);
}

static void ready_timer_closed(uv_handle_t *handle)
{
    mem_free(handle);
}

void native_ready_fini(struct native *n)
{
    if (n->pool.question)
        n->pool.question->native = NULL;
    uv_close((uv_handle_t *)n->pool.timer, ready_timer_closed);
}
