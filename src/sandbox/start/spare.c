/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation: sandboxes that are there before anybody asks
 *
 *  1. A spare is a hidden sandbox of one build of a template: its agent answers, the template's start command, if it
 *     has one, runs and is ready, and so is the runner of its first context of code.
 *  2. How many there are is said by core_warm_set(). Without that a template with a start command has one, as long as
 *     creates come that could use it; others have none: what can be made ahead for any template coved makes.
 *  3. A spare is nobody's until a create takes it, for good. It differs in nothing from what that create would make:
 *     only what the asker alone decides about (make_own()), its network's policy, its row and its deadline are set
 *     then. Whatever asks for other sizes or volumes gets no spare, nor, of a template with a start command, who has
 *     variables of his own.
 *  4. Spares count for no limit. They go when their build does, when they have been of no use for SPARE_IDLE_MS, and
 *     when coved has no room.
 *  5. They do not survive the worker: the next one ends them and makes its own.
 */
#include "sandbox/start/spare.h"
#include "base/log.h"
#include "base/mem.h"
#include "sandbox/action.h"
#include "sandbox/code/code.h"
#include "sandbox/life/layers.h"
#include "sandbox/life/life.h"
#include "sandbox/record/record.h"
#include "sandbox/start/make.h"
#include "sandbox/templates.h"
#include "store/volume_rows.h"

enum {
    SPARE_LOOK_MS = 10 * 1000,
    REFILL_MS = 20, /* who takes one does not wait for the making of the next */
    SPARE_IDLE_MS = 10 * 60 * 1000,
    SPARE_RETRY_MS = 10 * 1000,
    SHORT_MS = 60 * 1000,
    SPARES_MAX = 64,
    SPARE_AT_A_TIME = 2,
};

static const struct actor spare_actor = {.name = "spares", .is_own = true, .who.view = TENANT_ANY};

struct stock {
    struct spares *all;
    char *key; /* template's and build's id: two files with the same layer have the same build */
    uint32_t wanted;
    struct list spares; /* struct sandbox, ready ones and others */
    size_t n_making;
    usec_t used_at, retry_at; /* monotonic */
    bool is_there;            /* its build is, in the present look */
};

struct spares {
    struct core *core;
    struct map stocks; /* template's and build's id -> struct stock */
    struct map counts; /* template id -> struct count */
    struct loop_alarm alarm;
    usec_t short_until;
};

struct count {
    char *template_id;
    uint32_t n, most; /* that are kept ready; that there may be, 0: any number */
};

void spare_gone(struct sandbox *sb)
{
    list_remove(&sb->spare_node);
}

static void spare_drop(struct sandbox *sb)
{
    struct err err;
    list_remove(&sb->spare_node);
    if (sandbox_state_is_over(sb->info.state))
        return;
    if (sb->info.state == SANDBOX_CREATING)
        sandbox_end(sb, &(struct ending){.cause = "killed", .seq = sb->create_seq});
    else if (sandbox_kill(sb, &spare_actor, sandbox_ignore, NULL, &err) < 0)
        log_warn("drop a spare: %s", err.msg);
}

static void drop_some(struct stock *s, size_t keep)
{
    size_t n = 0;
    LIST_FOREACH (struct sandbox, sb, &s->spares, spare_node) {
        if (n++ >= keep)
            spare_drop(sb);
    }
}

static void stock_free(struct stock *s)
{
    while (!list_empty(&s->spares))
        list_remove(s->spares.next);
    (void)map_del(&s->all->stocks, str_of(s->key));
    MEM_FREE(s->key, s);
}

static struct stock *find_stock(struct spares *all, const struct template *t, bool makes)
{
    AUTO_FREE char *key = mem_printf("%s %s", t->id, t->build_id ? t->build_id : "");
    struct stock *s = map_get(&all->stocks, str_of(key));
    if (s || !makes)
        return s;
    s = mem_new(struct stock);
    s->all = all;
    s->key = TAKE_PTR(key);
    list_init(&s->spares);
    (void)map_put(&all->stocks, str_of(s->key), s);
    return s;
}

/* ---- making ---- */

static void look_soon(struct spares *all)
{
    if (!all->core->closing)
        loop_alarm_set(all->core->loop, &all->alarm, clock_mono(), all->alarm.fn);
}

struct spare_making {
    struct spares *all;
    char *key;
};

static size_t length(const struct list *l)
{
    size_t n = 0;
    for (const struct list *it = l->next; it != l; it = it->next)
        n++;
    return n;
}

/* With its first context of code or, where that does not start, without: a cell says why. */
static void spare_warmed(void *ctx, const struct code_context_info *info UNUSED, const struct err *err)
{
    struct sandbox *sb = ctx;
    if (err)
        log_warn("start a spare context: %s", err->msg);
    sb->is_spare = true;
}

static void spare_on_made(void *ctx, struct sandbox *sb, const struct err *err)
{
    struct spare_making *m = ctx;
    struct stock *s = map_get(&m->all->stocks, str_of(m->key));
    struct err why;
    /* One that was dropped while it was made, because fewer are wanted now, is nobody's failure. */
    bool is_missed = s && length(&s->spares) < s->wanted;
    if (s) {
        s->n_making--;
        if (err)
            s->retry_at = clock_mono() + SPARE_RETRY_MS * USEC_PER_MS;
    }
    if (err && is_missed && !m->all->core->closing)
        log_warn("create a spare sandbox: %s", err->msg);
    else if (sb && code_warm(sb, &spare_actor, spare_warmed, sb, &why) != 0)
        sb->is_spare = true;
    if (!m->all->core->closing)
        look_soon(m->all);
    MEM_FREE(m->key, m);
}

static void make_one(struct stock *s, const struct template *t)
{
    struct sandbox_spec spec = {.hidden = true, .allow_internet = true};
    struct err err;
    const char *tier = core_tier(s->all->core, t, STR_NULL, &err);
    if (!tier) {
        log_warn("create a spare sandbox: %s", err.msg);
        s->retry_at = clock_mono() + SPARE_RETRY_MS * USEC_PER_MS;
        return;
    }
    struct spare_making *m = mem_new(struct spare_making);
    *m = (struct spare_making){s->all, mem_strdup(s->key)};
    struct sandbox *sb = make_sandbox(s->all->core, t, NULL, tier, &spec);
    make_launch(sb, t);
    list_append(&s->spares, &sb->spare_node);
    s->n_making++;
    sandbox_ref(sb);
    if (create_begin(sb, &spare_actor, NULL, spare_on_made, m, &err) < 0) {
        log_warn("create a spare sandbox: %s", err.msg);
        list_remove(&sb->spare_node);
        s->n_making--;
        s->retry_at = clock_mono() + SPARE_RETRY_MS * USEC_PER_MS;
        MEM_FREE(m->key, m);
    }
    sandbox_unref(sb);
}

/* ---- how many ---- */

static void spare_fill(struct stock *s, const struct template *t)
{
    usec_t now = clock_mono();
    const struct count *c = map_get(&s->all->counts, str_of(t->id));
    bool is_used = s->used_at && now - s->used_at < SPARE_IDLE_MS * USEC_PER_MS;
    s->is_there = true;
    s->wanted = c ? c->n : t->start_cmd && is_used;
    drop_some(s, s->wanted);
    if (now < s->retry_at || now < s->all->short_until)
        return;
    for (size_t n = length(&s->spares); n < s->wanted && s->n_making < SPARE_AT_A_TIME; n++)
        make_one(s, t);
}

static bool fill_one(void *ctx, const struct template *t)
{
    struct spares *all = ctx;
    struct stock *s = find_stock(all, t, map_get(&all->counts, str_of(t->id)) != NULL);
    if (s && !s->is_there)
        spare_fill(s, t);
    return true;
}

static void on_look(struct loop_alarm *alarm)
{
    struct spares *all = container_of(alarm, struct spares, alarm);
    size_t it = 0;
    for (struct stock *s; (s = map_next(&all->stocks, &it));)
        s->is_there = false;
    template_each(all->core->templates, TENANT_ANY, fill_one, all);
    it = 0;
    for (struct stock *s; (s = map_next(&all->stocks, &it));) {
        bool is_of_use = s->wanted || s->n_making || !list_empty(&s->spares);
        if (s->is_there && is_of_use)
            continue;
        drop_some(s, 0);
        stock_free(s);
        it = 0;
    }
    loop_alarm_set(all->core->loop, alarm, clock_mono() + SPARE_LOOK_MS * USEC_PER_MS, on_look);
}

void spares_look(struct core *core)
{
    look_soon(core->spares);
}

void spares_short(struct core *core)
{
    struct spares *all = core->spares;
    size_t it = 0;
    all->short_until = clock_mono() + SHORT_MS * USEC_PER_MS;
    for (struct stock *s; (s = map_next(&all->stocks, &it));)
        drop_some(s, 0);
}

static void set_count(struct spares *all, const char *template_id, uint32_t n, uint32_t most)
{
    struct count *c = map_get(&all->counts, str_of(template_id));
    if (!c) {
        c = mem_new(struct count);
        c->template_id = mem_strdup(template_id);
        (void)map_put(&all->counts, str_of(template_id), c);
    }
    c->n = MIN(n, (uint32_t)SPARES_MAX);
    c->most = most;
}

int core_warm_set(struct core *core, const struct actor *asker, struct str ref, uint32_t n, uint32_t most,
                  struct err *err)
{
    const struct template *t;
    if (core->closing)
        return err_set(err, ERR_UNAVAILABLE, "the service is stopping");
    if (n > SPARES_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "at most %d sandboxes of a template are kept ready", SPARES_MAX);
    uint64_t seq;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("template", ref), DATA_U64("count", n));
    if (action_on(core, SERVICE_LOG_ID, asker, EVENT_POOL_WARM, event_data_end(&d), &seq, err) < 0)
        return -1;
    if (template_resolve(core->templates, asker->who.view, ref, &t, NULL, err) < 0) {
        action_fruitless(core, asker->who.tenant, seq, EVENT_POOL_WARM, err);
        return -1;
    }
    const struct count *had = map_get(&core->spares->counts, str_of(t->id));
    if (most == WARM_MOST_KEPT)
        most = had ? had->most : 0;
    if (spare_rows_put(core->config.store, t->id, n, most, err) < 0 || keeper_commit(core->keeper, err) < 0)
        return -1;
    log_info("%u sandboxes of template %s are kept ready for %s", n, t->id, asker->name);
    set_count(core->spares, t->id, n, most);
    look_soon(core->spares);
    return 0;
}

uint32_t core_warm_count(const struct core *core, const struct template *t, uint32_t *ret_ready)
{
    const struct count *c = map_get(&core->spares->counts, str_of(t->id));
    struct stock *s = find_stock(core->spares, t, false);
    *ret_ready = 0;
    if (s)
        LIST_FOREACH (struct sandbox, sb, &s->spares, spare_node)
            *ret_ready += sb->is_spare && sb->info.state == SANDBOX_RUNNING;
    return c ? c->n : 0;
}

uint32_t core_warm_most(const struct core *core, const struct template *t)
{
    const struct count *c = map_get(&core->spares->counts, str_of(t->id));
    return c && c->n ? c->most : 0;
}

/* ---- taking one ---- */

static bool fits(const struct sandbox *sb, const char *tier, const struct sandbox_spec *spec)
{
    const struct sandbox_info *i = &sb->info;
    return sb->is_spare && i->state == SANDBOX_RUNNING && strcmp(i->tier, tier) == 0 &&
           (!spec->memory_bytes || spec->memory_bytes == i->memory_bytes) &&
           (!spec->cpu_milli || spec->cpu_milli == i->cpu_milli) &&
           (!spec->disk_bytes || spec->disk_bytes == i->disk_bytes);
}

struct sandbox *spare_take(struct core *core, const struct template *t, const char *tier,
                           const struct sandbox_spec *spec)
{
    struct spares *all = core->spares;
    bool is_asked_for = t->start_cmd || map_get(&all->counts, str_of(t->id));
    /* A start command has begun without what the asker would have it see. */
    bool is_late = t->start_cmd && spec->n_envs;
    if (!is_asked_for || spec->hidden || spec->layer || spec->id || spec->n_mounts || is_late)
        return NULL;
    struct stock *s = find_stock(all, t, true);
    s->used_at = clock_mono();
    s->wanted = MAX(s->wanted, 1u);
    loop_alarm_set(core->loop, &all->alarm, clock_mono() + REFILL_MS * USEC_PER_MS, all->alarm.fn);
    LIST_FOREACH (struct sandbox, sb, &s->spares, spare_node) {
        if (!fits(sb, tier, spec))
            continue;
        list_remove(&sb->spare_node);
        sb->is_spare = false;
        return sb;
    }
    return NULL;
}

/* ---- life ---- */

static void spare_load(void *ctx, const char *template_id, uint32_t n, uint32_t most)
{
    set_count(ctx, template_id, n, most);
}

struct spares *spares_new(struct core *core)
{
    struct spares *all = mem_new(struct spares);
    all->core = core;
    return all;
}

int spares_load(struct core *core, struct err *err)
{
    struct spares *all = core->spares;
    if (spare_rows_each(core->config.store, spare_load, all, err) < 0)
        return -1;
    loop_alarm_set(core->loop, &all->alarm, clock_mono(), on_look);
    return 0;
}

void spares_free(struct spares *all)
{
    size_t it = 0;
    for (struct stock *s; (s = map_next(&all->stocks, &it)); it = 0)
        stock_free(s);
    it = 0;
    for (struct count *c; (c = map_next(&all->counts, &it));) {
        MEM_FREE(c->template_id, c);
    }
    map_fini(&all->stocks);
    map_fini(&all->counts);
    loop_alarm_clear(all->core->loop, &all->alarm);
    mem_free(all);
}
