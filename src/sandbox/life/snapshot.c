/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clones of a sandbox's files as layers: one at a time per sandbox, in the order in which they were asked for. What
 * pauses, resumes or ends it waits for the one that coved is at (pause.c); the others fail when it ends.
 */
#include "sandbox/life/snapshot.h"
#include "base/fault.h"
#include "base/mem.h"
#include "sandbox/exec/exec_life.h"
#include "sandbox/life/layers.h"
#include "sandbox/life/life.h"
#include "sandbox/life/sleep.h"
#include "sandbox/life/store.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"
#include "sandbox/tenant.h"
#include "template/builds.h"
#include "template/name.h"
#include "wire/tiers.h"

enum { DRAIN_MS = 1000, DRAIN_LOOK_MS = 1 };

struct storing {
    struct list node;
    struct sandbox *sb; /* a reference */
    char layer[LAYER_NAME_LEN + 1];
    char unlike[LAYER_NAME_LEN + 1];
    enum event_kind kind;
    uint64_t seq;
    bool asked, memory, passes;
    struct session *before; /* owned: that was open until its memory is to be saved; NULL: it is closed by now */
    struct loop_alarm drain;
    usec_t drain_until; /* monotonic; 0: that has not begun */
    store_fn fn;
    void *ctx;
};

void layer_name_new(char ret_name[static LAYER_NAME_LEN + 1])
{
    char random[LAYER_NAME_LEN - 6 + 1];
    id_token(random, sizeof(random) - 1);
    (void)snprintf(ret_name, LAYER_NAME_LEN + 1, "layer-%s", random);
}

bool layer_name_is(const char *name)
{
    struct str s = str_of(name);
    if (str_starts(s, STR("layer-")))
        return s.n == LAYER_NAME_LEN && str_is_of(str_sub(s, 6), "a-z0-9");
    return s.n == TEMPLATE_LAYER_LEN && str_starts(s, STR("sha256-")) && str_is_hex(str_sub(s, 7));
}

static void snapshot_finish(struct storing *s, const struct sup_stored *stored, const struct err *err)
{
    struct sandbox *sb = s->sb;
    store_fn fn = s->fn;
    void *ctx = s->ctx;
    if (s->drain_until && sb->session && !sb->core->closing)
        resume_attach_to(sb);
    list_remove(&s->node);
    mem_free(s);
    fn(ctx, stored, err);
    stores_go(sb);
    sandbox_unref(sb);
}

static void on_stored(void *ctx, const union sup_message *answer, const struct err *err)
{
    struct storing *s = ctx;
    struct sandbox *sb = s->sb;
    struct err why;
    if (sb->core->closing) {
        snapshot_finish(s, NULL, err ? err : &(struct err){.code = ERR_UNAVAILABLE, .msg = "the service is stopping"});
        return;
    }
    fault_point("core.store.answered");
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("layer", s->layer));
    if (answer && answer->stored.is_unchanged) {
        layers_settled(sb->core, s->layer);
        snapshot_finish(s, &answer->stored, NULL);
        return;
    }
    if (answer) {
        if (!s->memory) /* then its tier holds it, for as long as it takes */
            event_data_u64(&d, "frozen_us", answer->stored.frozen_usec);
        event_data_u64(&d, "us", answer->stored.total_usec);
        layers_fresh(sb->core, s->layer);
    } else {
        why = *err;
        layers_settled(sb->core, s->layer);
        (void)err_prefix(&why, "snapshot of sandbox %s", sb->info.id);
        event_data_str(&d, "failed", str_of(why.msg));
    }
    if (sb->info.state != SANDBOX_ENDED && sb->info.state != SANDBOX_FAILED)
        action_observe(sb, s->seq, s->kind, EVENT_OBSERVED_HOST, event_data_end(&d));
    snapshot_finish(s, answer ? &answer->stored : NULL, answer ? NULL : &why);
}

/* ---- no session is open while memory is saved ---- */

static void storing_on_drain(struct loop_alarm *alarm)
{
    struct storing *s = container_of(alarm, struct storing, drain);
    struct err why;
    if (!session_is_idle(s->before) && clock_mono() < s->drain_until) {
        loop_alarm_set(s->sb->core->loop, &s->drain, clock_mono() + DRAIN_LOOK_MS * USEC_PER_MS, storing_on_drain);
        return;
    }
    (void)err_set(&why, ERR_UNAVAILABLE, "the sandbox's memory is being saved: try again");
    session_drop(TAKE_PTR(s->before), &why);
    stores_go(s->sb);
}

/* What comes from here on waits for the session after; what is under way has a moment to come to an end. */
static void storing_drain(struct storing *s)
{
    struct sandbox *sb = s->sb;
    s->before = sb->session;
    s->drain_until = clock_mono() + DRAIN_MS * USEC_PER_MS;
    sb->session = sandbox_session_new(sb);
    exec_move(sb);
    loop_alarm_set(sb->core->loop, &s->drain, clock_mono(), storing_on_drain);
}

static void storing_undrain(struct storing *s, const struct err *why)
{
    loop_alarm_clear(s->sb->core->loop, &s->drain);
    if (s->before)
        session_drop(TAKE_PTR(s->before), why);
}

void stores_go(struct sandbox *sb)
{
    struct storing *s = LIST_FIRST(struct storing, &sb->stores, node);
    if (!s) {
        if (!sandbox_state_is_over(sb->info.state) && !sb->core->closing)
            pause_go(sb);
        return;
    }
    if (s->asked || s->before)
        return;
    if (s->memory && sb->session && !s->drain_until) {
        if (!sb->attaching) /* else with the answer: a session that has just begun is not open before */
            storing_drain(s);
        return;
    }
    struct err err;
    const uint32_t how = !s->memory ? SUP_MEMORY_NOT : s->passes ? SUP_MEMORY_PASSES : SUP_MEMORY_LASTS;
    union sup_message m = {.snapshot = {.head = {.type = SUP_SNAPSHOT}, .memory = how}};
    memcpy(m.snapshot.id, sb->info.id, ID_SANDBOX_LEN);
    memcpy(m.snapshot.layer, s->layer, strlen(s->layer));
    memcpy(m.snapshot.unlike, s->unlike, strlen(s->unlike));
    s->asked = true;
    if (supervisor_call(sb->core->supervisor, &m, on_stored, s, &err) == 0)
        fault_point("core.store.asked");
    else
        supervisor_answer(sb->core->supervisor, on_stored, s, &err);
}

void stores_end(struct sandbox *sb, const struct err *why)
{
    LIST_FOREACH (struct storing, s, &sb->stores, node) {
        if (s->asked)
            continue;
        store_fn fn = s->fn;
        void *ctx = s->ctx;
        layers_settled(sb->core, s->layer);
        storing_undrain(s, why);
        list_remove(&s->node);
        mem_free(s);
        fn(ctx, NULL, why);
        sandbox_unref(sb);
    }
}

int store_permitted(const struct sandbox *sb, struct err *err)
{
    if (sandbox_state_is_over(sb->info.state))
        return err_set(err, ERR_NOT_FOUND, "sandbox %s has ended", sb->info.id);
    if (sb->core->closing)
        return err_set(err, ERR_UNAVAILABLE, "the service is stopping");
    if (sb->info.state != SANDBOX_RUNNING && sb->info.state != SANDBOX_PAUSED)
        return err_set(err, ERR_FAILED_PRECONDITION, "sandbox %s is %s", sb->info.id,
                       sandbox_state_name(sb->info.state));
    return 0;
}

int store_memory_permitted(const struct sandbox *sb, struct err *err)
{
    if (tier_list_saves(sb->core->config.engine.tiers, sb->info.tier, err) < 0)
        return -1;
    if (sb->info.state != SANDBOX_RUNNING)
        return err_set(err, ERR_FAILED_PRECONDITION,
                       "sandbox %s is %s: resume it for a snapshot or a fork with its memory", sb->info.id,
                       sandbox_state_name(sb->info.state));
    if (start_is_under_way(sb))
        return err_set(err, ERR_FAILED_PRECONDITION, "sandbox %s is still being started", sb->info.id);
    return 0;
}

int store_files(struct sandbox *sb, const char *layer, const struct store_what *what, store_fn fn, void *ctx,
                struct err *err)
{
    enum { WAITING_MAX = 64 };
    size_t n = 0;
    LIST_FOREACH (struct storing, other, &sb->stores, node) {
        (void)other;
        n++;
    }
    if (n >= WAITING_MAX)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "%d snapshots of sandbox %s are already in progress", WAITING_MAX,
                       sb->info.id);
    struct storing *s = mem_new(struct storing);
    *s = (struct storing){.sb = sandbox_ref(sb),
                          .kind = what->kind,
                          .memory = what->memory,
                          .passes = what->passes,
                          .seq = what->seq,
                          .fn = fn,
                          .ctx = ctx};
    (void)memccpy(s->unlike, what->unlike ? what->unlike : "", 0, sizeof(s->unlike));
    (void)memccpy(s->layer, layer, 0, sizeof(s->layer));
    list_append(&sb->stores, &s->node);
    layers_making(sb->core, s->layer);
    stores_go(sb);
    return 0;
}

/* ---- snapshots ---- */

struct snapshot {
    struct sandbox *sb; /* a reference */
    char layer[LAYER_NAME_LEN + 1];
    char *name;
    bool memory;
    snapshot_fn done;
    void *ctx;
};

static int snapshot_add(const struct snapshot *s, const struct template **ret_template, struct err *err)
{
    struct core *core = s->sb->core;
    const struct sandbox_info *i = &s->sb->info;
    struct template_snapshot new = {.tenant = i->tenant,
                                    .layer = s->layer,
                                    .source = i->id,
                                    .tier = i->tier,
                                    .has_memory = s->memory,
                                    .name = str_of(s->name),
                                    .cpu_milli = i->cpu_milli,
                                    .memory_bytes = i->memory_bytes,
                                    .disk_bytes = i->disk_bytes};
    struct template_info made;
    struct err none;
    if (template_resolve(core->templates, TENANT_ANY, str_of(i->template_id), &new.of, NULL, &none) < 0)
        new.of = NULL;
    if (template_add_snapshot(core->templates, &new, ret_template, err) < 0)
        return -1;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("template", (*ret_template)->id));
    if (template_info_find(core->templates, TENANT_ANY, str_of((*ret_template)->id), &made, &none) == 0 && made.name)
        event_data_str(&d, "name", str_of(made.name));
    EVENT_DATA_PUT(&d, DATA_STR("layer", s->layer), DATA_STR("sandbox", i->id));
    action_note(core, tenant_log(core, i->tenant), NULL, 0, EVENT_TEMPLATE_BUILT, event_data_end(&d));
    fault_point("core.snapshot.added");
    keeper_settle(core->keeper);
    return keeper_commit(core->keeper, err);
}

static void snapshot_on_files(void *ctx, const struct sup_stored *stored UNUSED, const struct err *err)
{
    struct snapshot *s = ctx;
    const struct template *t = NULL;
    struct err local;
    if (!err && snapshot_add(s, &t, &local) < 0) {
        (void)err_prefix(&local, "keep the snapshot");
        err = &local;
    }
    fault_point("core.snapshot.committed");
    if (!err)
        layers_settled(s->sb->core, s->layer);
    s->done(s->ctx, err ? NULL : t, err);
    sandbox_unref(s->sb);
    MEM_FREE(s->name, s);
}

int sandbox_snapshot(struct sandbox *sb, const struct actor *actor, struct str name, bool memory, snapshot_fn done,
                     void *ctx, struct err *err)
{
    uint64_t seq;
    struct template_name parsed;
    char layer[LAYER_NAME_LEN + 1];
    if ((name.n && template_name_parse(name, &parsed, err) < 0) || store_permitted(sb, err) < 0 ||
        (memory && store_memory_permitted(sb, err) < 0))
        return -1;
    if (quota_check_template(sb->core, sb->info.tenant,
                             template_count_beside(sb->core->templates, sb->info.tenant, name), err) < 0)
        return -1;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    if (name.n)
        event_data_str(&d, "name", name);
    EVENT_DATA_PUT(&d, DATA_FLAG("memory", memory));
    if (action_permit(sb, actor, EVENT_SANDBOX_SNAPSHOT, event_data_end(&d), &seq, err) < 0)
        return -1;
    layer_name_new(layer);
    struct snapshot *s = mem_new(struct snapshot);
    *s = (struct snapshot){.sb = sandbox_ref(sb),
                           .name = mem_strndup(name.p ? name.p : "", name.n),
                           .memory = memory,
                           .done = done,
                           .ctx = ctx};
    memcpy(s->layer, layer, sizeof(layer));
    if (store_files(sb, layer, &(struct store_what){EVENT_SANDBOX_SNAPSHOTTED, seq, .memory = memory},
                    snapshot_on_files, s, err) == 0)
        return 0;
    sandbox_unref(sb);
    MEM_FREE(s->name, s);
    return -1;
}

/* ---- for builders ---- */

struct build_layer {
    struct sandbox *sb; /* a reference */
    layer_fn done;
    void *ctx;
};

static void on_build_layer(void *ctx, const struct sup_stored *stored, const struct err *err)
{
    struct build_layer *b = ctx;
    b->done(b->ctx, err ? NULL : b->sb, stored ? stored->layer_bytes : 0, err);
    sandbox_unref(b->sb);
    mem_free(b);
}

int sandbox_store_layer(struct sandbox *sb, const struct actor *actor, const char *layer, bool memory, layer_fn done,
                        void *ctx, struct err *err)
{
    uint64_t seq;
    if (!layer_name_is(layer) || strlen(layer) != LAYER_NAME_LEN)
        return err_set(err, ERR_INVALID_ARGUMENT, "'%.80s' is not the name of a new layer", layer);
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("layer", layer), DATA_FLAG("memory", memory));
    if (store_permitted(sb, err) < 0 || (memory && store_memory_permitted(sb, err) < 0) ||
        action_permit(sb, actor, EVENT_SANDBOX_SNAPSHOT, event_data_end(&d), &seq, err) < 0)
        return -1;
    struct build_layer *b = mem_new(struct build_layer);
    *b = (struct build_layer){sandbox_ref(sb), done, ctx};
    if (store_files(sb, layer, &(struct store_what){EVENT_SANDBOX_SNAPSHOTTED, seq, .memory = memory}, on_build_layer,
                    b, err) == 0)
        return 0;
    sandbox_unref(sb);
    mem_free(b);
    return -1;
}
