/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Garbage collection of layers.
 *
 *  1. What coved has in the pool is asked for first, what is needed is marked after that, in one turn: a layer that is
 *     made meanwhile is not in the answer.
 *  2. Needed is what a root names (templates, registered roots, sandboxes that are not over) and all that lies below
 *     it. coved refuses to drop what something stands on, so a mistake here costs nothing.
 *  3. A layer is made before whoever wants it can say so: it is *fresh* from before its making until it is registered
 *     or FRESH_MS have gone by.
 *  4. The timer drops what two of its rounds have found to be garbage; layers_collect() what one finds. From the top of
 *     a chain down, one at a time.
 *  5. Whoever has just been told that a sandbox is being killed may collect what that stood on: layers_collect() waits
 *     for the ends that are under way, but not for ever.
 */
#include "sandbox/life/layers.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "sandbox/action.h"
#include "sandbox/life/checkpoint_life.h"
#include "sandbox/life/store.h"
#include "sandbox/object.h"
#include "sandbox/service.h"

#include <stdlib.h>

enum { ROUND_MS = 60 * 1000, FRESH_MS = 120 * 1000, ENDS_MS = 2000, ENDS_LOOK_MS = 5, LAYERS_MAX = 65536 };

struct fresh {
    char *name;
    usec_t until; /* monotonic; 0: it is being made */
};

struct layers {
    struct core *core;
    struct list roots;   /* struct layers_root */
    struct map fresh;    /* name -> struct fresh */
    struct map suspects; /* name -> the same, owned: garbage in the last round of the timer */
    struct loop_alarm timer;
    struct collecting *collecting; /* NULL: nobody is */
};

struct layer {
    char name[SUP_DIGEST_MAX], below[SUP_DIGEST_MAX];
    uint64_t bytes;
    uint32_t in_use;
    unsigned depth;
    bool needed;
};

struct collecting {
    struct core *core;
    struct layer *all;
    size_t n, cap;
    struct map by_name;     /* -> struct layer */
    struct layer **garbage; /* from the top of chains down */
    struct layers_garbage *found;
    size_t n_garbage, at;
    bool dry_run, is_timer;
    struct loop_alarm ends_alarm;
    usec_t ends_until; /* monotonic */
    uint64_t cause;
    layers_collect_fn done;
    void *ctx;
};

/* ---- fresh ones ---- */

static void layers_forget(struct map *map, const char *name)
{
    struct fresh *f = map_del(map, str_of(name));
    if (f)
        mem_free(f->name);
    mem_free(f);
}

static void put_fresh(struct core *core, const char *name, usec_t until)
{
    struct fresh *f = map_get(&core->layers->fresh, str_of(name));
    if (!f) {
        f = mem_new(struct fresh);
        f->name = mem_strdup(name);
        (void)map_put(&core->layers->fresh, str_of(name), f);
    }
    f->until = until;
}

void layers_making(struct core *core, const char *layer)
{
    put_fresh(core, layer, 0);
}

void layers_fresh(struct core *core, const char *layer)
{
    put_fresh(core, layer, clock_mono() + FRESH_MS * USEC_PER_MS);
}

void layers_settled(struct core *core, const char *layer)
{
    layers_forget(&core->layers->fresh, layer);
}

bool layers_is_fresh(const struct core *core, const char *layer)
{
    return map_get(&core->layers->fresh, str_of(layer)) != NULL;
}

static void forget_old(struct layers *l)
{
    usec_t now = clock_mono();
    size_t it = 0;
    for (struct fresh *f; (f = map_next(&l->fresh, &it));) {
        if (f->until && f->until < now) {
            layers_forget(&l->fresh, f->name);
            it = 0;
        }
    }
}

/* ---- what is needed ---- */

static void need(void *ctx, const char *name)
{
    struct collecting *c = ctx;
    struct layer *l = map_get(&c->by_name, str_of(name));
    for (; l && !l->needed; l = map_get(&c->by_name, str_of(l->below)))
        l->needed = true;
}

static int mark(struct collecting *c, struct err *err)
{
    struct core *core = c->core;
    forget_old(core->layers);
    if (template_each_layer(core->templates, need, c, err) < 0)
        return -1;
    LIST_FOREACH (struct layers_root, root, &core->layers->roots, node)
        root->each(root, need, c);
    MAP_FOREACH (struct sandbox, sb, &core->by_id)
        if (sb->info.state != SANDBOX_ENDED && sb->info.state != SANDBOX_FAILED) {
            need(c, sb->layer);
            services_each_layer(sb, need, c);
        }
    checkpoint_each(core, need, c);
    MAP_FOREACH (struct fresh, f, &core->layers->fresh)
        need(c, f->name);
    return 0;
}

static unsigned depth_of(struct collecting *c, struct layer *l)
{
    unsigned depth = 1;
    /* Bounded, in case that coved says what can't be. */
    for (struct layer *below = l; depth < LAYERS_MAX && (below = map_get(&c->by_name, str_of(below->below)));)
        depth++;
    return depth;
}

static int by_depth(const void *a, const void *b)
{
    const struct layer *x = *(struct layer *const *)a, *y = *(struct layer *const *)b;
    return x->depth != y->depth ? (x->depth < y->depth ? 1 : -1) : strcmp(x->name, y->name);
}

static int find_garbage(struct collecting *c, struct err *err)
{
    for (size_t i = 0; i < c->n; i++)
        (void)map_put(&c->by_name, str_of(c->all[i].name), &c->all[i]);
    if (mark(c, err) < 0)
        return -1;
    c->garbage = mem_array(c->n + 1, sizeof(struct layer *));
    for (size_t i = 0; i < c->n; i++) {
        struct layer *l = &c->all[i];
        if (l->in_use)
            need(c, l->name); /* of a sandbox that we know nothing of, or one that has ended and is still there */
    }
    for (size_t i = 0; i < c->n; i++) {
        struct layer *l = &c->all[i];
        if (l->needed || !layer_name_is(l->name))
            continue;
        l->depth = depth_of(c, l);
        c->garbage[c->n_garbage++] = l;
    }
    qsort(c->garbage, c->n_garbage, sizeof(struct layer *), by_depth);
    c->found = mem_array(c->n_garbage + 1, sizeof(struct layers_garbage));
    for (size_t i = 0; i < c->n_garbage; i++)
        c->found[i] = (struct layers_garbage){.layer = c->garbage[i]->name, .bytes = c->garbage[i]->bytes};
    return 0;
}

/* Of the timer: only what was garbage in its last round, too. */
static void keep_suspects(struct collecting *c)
{
    struct map *suspects = &c->core->layers->suspects;
    struct map now = MAP_INIT;
    size_t n = 0;
    for (size_t i = 0; i < c->n_garbage; i++) {
        if (map_get(suspects, str_of(c->found[i].layer))) {
            c->found[n++] = c->found[i];
            continue;
        }
        char *name = mem_strdup(c->found[i].layer);
        (void)map_put(&now, str_of(name), name);
    }
    MAP_FOREACH (char, name, suspects)
        mem_free(name);
    map_fini(suspects);
    *suspects = now;
    c->n_garbage = n;
}

/* ---- a round ---- */

static void record(const struct collecting *c, const struct err *err)
{
    uint64_t n = 0, bytes = 0;
    for (size_t i = 0; i < c->at; i++) {
        n += c->found[i].dropped;
        bytes += c->found[i].dropped ? c->found[i].bytes : 0;
    }
    if (c->dry_run || c->core->closing || (!n && !c->cause))
        return;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_U64("layers", n), DATA_U64("bytes", bytes));
    if (err)
        action_describe_error(&d, err);
    (void)action_note(c->core, SERVICE_LOG_ID, NULL, c->cause, EVENT_POOL_COLLECTED, event_data_end(&d));
}

static void layers_finish(struct collecting *c, const struct err *err)
{
    c->core->layers->collecting = NULL;
    record(c, err);
    if (c->done)
        c->done(c->ctx, err ? NULL : c->found, err ? 0 : c->n_garbage, err);
    map_fini(&c->by_name);
    MEM_FREE(c->all, c->garbage, c->found, c);
}

static void drop_next(struct collecting *c);

static void layers_on_dropped(void *ctx, const union sup_message *answer, const struct err *err)
{
    struct collecting *c = ctx;
    struct layers_garbage *g = &c->found[c->at++];
    fault_point("core.gc.dropped");
    g->dropped = answer != NULL;
    if (answer)
        log_debug("layer %s was needed by nobody: dropped", g->layer);
    else if (err->code != ERR_FAILED_PRECONDITION)
        log_warn("drop layer %s: %s", g->layer, err->msg);
    drop_next(c);
}

static void drop_next(struct collecting *c)
{
    struct err err;
    union sup_message m = {.layer_id = {.head = {.type = SUP_LAYER_DROP}}};
    while (c->at < c->n_garbage && layers_is_fresh(c->core, c->found[c->at].layer))
        c->at++; /* somebody is about to use it again */
    if (c->at == c->n_garbage || c->dry_run || c->core->closing) {
        layers_finish(c, NULL);
        return;
    }
    memcpy(m.layer_id.layer, c->found[c->at].layer, strlen(c->found[c->at].layer));
    if (supervisor_call(c->core->supervisor, &m, layers_on_dropped, c, &err) < 0)
        layers_finish(c, &err);
}

static void layers_on_layer(void *ctx, const union sup_message *item)
{
    struct collecting *c = ctx;
    if (item->head.type != SUP_LAYER || c->n == LAYERS_MAX)
        return;
    if (c->n == c->cap) {
        c->cap = MAX((size_t)64, c->cap * 2);
        c->all = mem_realloc(c->all, c->cap * sizeof(struct layer));
    }
    struct layer *l = &c->all[c->n++];
    *l = (struct layer){.bytes = item->layer.bytes, .in_use = item->layer.in_use};
    memcpy(l->name, item->layer.layer, sizeof(l->name));
    memcpy(l->below, item->layer.below, sizeof(l->below));
}

static void layers_on_layers(void *ctx, const union sup_message *answer, const struct err *err)
{
    struct collecting *c = ctx;
    if (!answer || c->core->closing) {
        layers_finish(c, err ? err : &(struct err){.code = ERR_UNAVAILABLE, .msg = "the service is stopping"});
        return;
    }
    if (c->n == LAYERS_MAX) {
        layers_finish(
            c, &(struct err){.code = ERR_RESOURCE_EXHAUSTED, .msg = "there are too many layers to look through"});
        return;
    }
    fault_point("core.gc.listed");
    struct err local;
    if (find_garbage(c, &local) < 0) {
        layers_finish(c, &local);
        return;
    }
    if (c->is_timer)
        keep_suspects(c);
    drop_next(c);
}

static bool is_any_ending(const struct core *core)
{
    MAP_FOREACH (const struct sandbox, sb, &core->by_id)
        if (sb->info.state == SANDBOX_STOPPING)
            return true;
    return false;
}

static void layers_ask(struct loop_alarm *alarm)
{
    struct collecting *c = container_of(alarm, struct collecting, ends_alarm);
    union sup_message m = {.head = {.type = SUP_LAYERS}};
    struct err err;
    usec_t now = clock_mono();
    if (!c->is_timer && now < c->ends_until && is_any_ending(c->core))
        loop_alarm_set(c->core->loop, alarm, now + ENDS_LOOK_MS * USEC_PER_MS, layers_ask);
    else if (supervisor_call_with(c->core->supervisor, &m, -1, layers_on_layer, layers_on_layers, c, &err) < 0)
        layers_finish(c, &err);
}

static int layers_gather(struct core *core, bool dry_run, uint64_t cause, layers_collect_fn done, void *ctx,
                         struct err *err)
{
    if (core->closing)
        return err_set(err, ERR_UNAVAILABLE, "the service is stopping");
    if (core->layers->collecting)
        return err_set(err, ERR_ABORTED, "layers are being collected already: try again");
    struct collecting *c = mem_new(struct collecting);
    *c = (struct collecting){
        .core = core, .dry_run = dry_run, .is_timer = !done, .cause = cause, .done = done, .ctx = ctx};
    c->ends_until = clock_mono() + ENDS_MS * USEC_PER_MS;
    core->layers->collecting = c;
    loop_alarm_set(core->loop, &c->ends_alarm, 0, layers_ask);
    return 0;
}

int layers_collect(struct core *core, const struct actor *actor, bool dry_run, layers_collect_fn done, void *ctx,
                   struct err *err)
{
    uint64_t seq = 0;
    if (!dry_run && action_on(core, SERVICE_LOG_ID, actor, EVENT_POOL_COLLECT, STR("{}"), &seq, err) < 0)
        return -1;
    int r = layers_gather(core, dry_run, seq, done, ctx, err);
    return dry_run ? r : action_end(core, actor, seq, EVENT_POOL_COLLECT, r, err);
}

static void layers_on_timer(struct loop_alarm *alarm)
{
    struct layers *l = container_of(alarm, struct layers, timer);
    struct err err;
    (void)!layers_gather(l->core, false, 0, NULL, NULL, &err);
    loop_alarm_set(l->core->loop, alarm, clock_mono() + ROUND_MS * USEC_PER_MS, layers_on_timer);
}

/* ---- roots ---- */

void layers_root_add(struct core *core, struct layers_root *root)
{
    list_append(&core->layers->roots, &root->node);
}

void layers_root_remove(struct layers_root *root)
{
    list_remove(&root->node);
}

/* ---- life ---- */

struct layers *layers_new(struct core *core)
{
    struct layers *l = mem_new(struct layers);
    l->core = core;
    list_init(&l->roots);
    loop_alarm_set(core->loop, &l->timer, clock_mono() + ROUND_MS * USEC_PER_MS, layers_on_timer);
    return l;
}

void layers_free(struct layers *l)
{
    if (l->collecting) { /* it has not asked yet */
        loop_alarm_clear(l->core->loop, &l->collecting->ends_alarm);
        layers_finish(l->collecting, &(struct err){.code = ERR_UNAVAILABLE, .msg = "the service is stopping"});
    }
    for (struct fresh *f; (f = map_any(&l->fresh));)
        layers_forget(&l->fresh, f->name);
    MAP_FOREACH (char, name, &l->suspects)
        mem_free(name);
    while (!list_empty(&l->roots))
        list_remove(l->roots.next);
    map_fini(&l->fresh);
    map_fini(&l->suspects);
    loop_alarm_clear(l->core->loop, &l->timer);
    mem_free(l);
}
