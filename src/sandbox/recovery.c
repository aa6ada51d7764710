/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking over from a worker that died: what the store says was alive, against what coved says lives.
 *
 *   in both           taken over: a session of its own, its deadline, its processes' output, as if nothing had been; paused, when it is
 *   in the store only lost: nobody saw its end
 *   in coved only     killed: it was never promised to anybody
 *   half made         killed if it is there, failed in any case; half made of files that were kept: made again
 *   stopping          killed again
 *   being rewound     goes on with that, once its processes are gone; before, it runs on
 *
 * When coved died and was started again, less can differ: an end that it had seen and nobody heard of, a kill that did
 * not come through.
 */
#include "base/log.h"
#include "base/mem.h"
#include "sandbox/life/checkpoint_life.h"
#include "sandbox/life/life.h"
#include "sandbox/life/sleep.h"
#include "sandbox/network/network_life.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"
#include "sandbox/service.h"
#include "sandbox/volume/mounts.h"

struct unknown {
    struct list node;
    char id[ID_SANDBOX_LEN + 1];
};

struct recovery {
    struct core *core;
    struct list unknown;
};

static bool recovery_load(const struct store_sandbox *row, void *ctx)
{
    struct recovery *r = ctx;
    if (!id_is_sandbox(str_of(row->id))) {
        log_warn("the store has a sandbox with the id '%s': ignored", row->id);
        return true;
    }
    struct sandbox *sb = sandbox_new(r->core, row->id);
    rows_fill(sb, row);
    if (!sb->info.hidden)
        charge_take_over(&sb->charge, r->core, sb->info.tenant,
                         (const uint64_t[QUOTA_CHARGED]){[QUOTA_SANDBOXES] = 1,
                                                         [QUOTA_MEMORY] = sb->info.memory_bytes,
                                                         [QUOTA_CPU] = sb->info.cpu_milli,
                                                         [QUOTA_DISK] = sb->info.disk_bytes});
    if (sb->info.state == SANDBOX_CREATING)
        sandbox_count_creating(sb, true);
    return true;
}

static void recovery_on_listed(void *ctx, const struct sup_listed *listed)
{
    struct recovery *r = ctx;
    struct sandbox *sb = map_get(&r->core->by_id, str_of(listed->id));
    if (sb) {
        sb->listed = true;
        sb->life = listed->life;
    } else {
        struct unknown *u = mem_new(struct unknown);
        memcpy(u->id, listed->id, sizeof(u->id));
        list_append(&r->unknown, &u->node);
    }
}

/* The state that it is taken over in, so that the log alone tells it. */
static void recovery_note(struct sandbox *sb)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("state", sandbox_state_name(sb->info.state)));
    action_observe(sb, 0, EVENT_SERVICE_RECOVERED, EVENT_OBSERVED_HOST, event_data_end(&d));
}

static void take_over(struct sandbox *sb)
{
    struct sandbox_info *i = &sb->info;
    bool was_paused = i->state == SANDBOX_PAUSED || i->state == SANDBOX_RESUMING;
    /* Nobody was told that it runs, nor until when. */
    if (was_paused) {
        i->end_at = i->timeout_ms ? clock_real() + i->timeout_ms * USEC_PER_MS : 0;
        rows_end_at(sb);
    }
    if (i->has_memory) {
        i->has_memory = i->on_disk = false;
        rows_extra(sb);
    }
    /* The worker that died may have asked for the pause, and coved not have come to it yet. */
    struct err err;
    if (i->state == SANDBOX_PAUSING &&
        supervisor_call_id(sb->core->supervisor, SUP_RESUME, i->id, NULL, NULL, &err) < 0)
        log_warn("resume sandbox %s: %s", i->id, err.msg);
    rewind_forget(sb);
    bool is_new = i->state != SANDBOX_RUNNING;
    i->state = SANDBOX_RUNNING;
    if (is_new)
        rows_state(sb);
    sandbox_enlist(sb);
    recovery_note(sb);
    sandbox_arm_end(sb);
    usage_start(sb);
    network_recover(sb);
    resume_attach(sb);
    services_start(sb);
}

/* Paused, in whichever way it is now. */
static void leave_paused(struct sandbox *sb)
{
    struct sandbox_info *i = &sb->info;
    bool is_frozen = sb->life == SUP_FROZEN, has_memory = is_frozen || sb->life == SUP_ON_DISK,
         was_paused = i->state == SANDBOX_PAUSED;
    bool is_lost = was_paused && i->has_memory && !has_memory;
    i->has_memory = has_memory;
    i->on_disk = sb->life == SUP_ON_DISK;
    if (!is_frozen) {
        i->start_failed = i->volumes_failed = NULL;
        usage_forget(sb);
    }
    i->state = SANDBOX_PAUSED;
    rows_state(sb);
    rows_extra(sb);
    sandbox_enlist(sb);
    recovery_note(sb);
    if (is_frozen)
        network_recover(sb);
    else
        network_forget(sb);
    if (!is_frozen)
        volume_log_unmounted(sb);
    if (was_paused && !is_lost)
        return;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_BOOL("memory", has_memory));
    if (is_lost)
        event_data_str(&d, "lost", STR("the service was stopped: what was in memory is gone, its files are there"));
    action_observe(sb, 0, EVENT_SANDBOX_PAUSED, EVENT_OBSERVED_HOST, event_data_end(&d));
}

/*
 * A start on its files that was not finished. Nobody was told that it runs, and what was done in it (volumes, the
 * template's start command) is not known: its files are put away again, and it is started from the beginning.
 */
static void start_again(struct sandbox *sb)
{
    sb->info.state = SANDBOX_PAUSED;
    sb->is_half_made = true;
    sandbox_enlist(sb);
    recovery_note(sb);
    resume_begin(sb, sb->info.timeout_ms, true, 0);
}

/* Frozen, but nobody was told that it is paused. */
static void thaw(struct sandbox *sb)
{
    sb->info.state = SANDBOX_PAUSED;
    sb->info.has_memory = true;
    sandbox_enlist(sb);
    recovery_note(sb);
    network_recover(sb);
    resume_begin(sb, sb->info.timeout_ms, rewind_layer(sb) != NULL, 0);
}

static void decide(struct sandbox *sb)
{
    struct err err;
    enum sandbox_state state = sb->info.state;
    if (state == SANDBOX_ENDED || state == SANDBOX_FAILED)
        return; /* coved reported its end while we asked */
    (void)err_set(&err, ERR_UNAVAILABLE, "the service was interrupted while the sandbox was made");
    if (state == SANDBOX_CREATING && sb->listed)
        sandbox_end(sb, &(struct ending){.cause = "failed", .fails = true, .what = err.msg});
    else if (state == SANDBOX_CREATING)
        sandbox_failed(sb, &err);
    else if (state == SANDBOX_STOPPING && sb->listed)
        sandbox_kill_leftover(sb);
    else if (sb->info.hidden && sb->listed)
        sandbox_end(sb, &(struct ending){.cause = "shutdown", .what = "who it was made for is gone"});
    else if (!sb->listed)
        sandbox_lost(sb);
    else if (sb->life == SUP_FROZEN && (state == SANDBOX_RUNNING || state == SANDBOX_RESUMING))
        thaw(sb);
    else if (sb->life == SUP_KEPT && rewind_layer(sb))
        start_again(sb);
    else if (sb->life != SUP_LIVES)
        leave_paused(sb);
    else if ((state == SANDBOX_RESUMING || state == SANDBOX_PAUSED) && (!sb->info.has_memory || sb->info.on_disk))
        start_again(sb);
    else
        take_over(sb);
}

int recovery_run(struct core *core, struct err *err)
{
    struct recovery r = {.core = core};
    struct err local;
    list_init(&r.unknown);
    if (sandbox_rows_each_live(core->config.store, recovery_load, &r, err) < 0)
        return -1;
    int result = supervisor_list(core->supervisor, recovery_on_listed, &r, err);
    while (!list_empty(&r.unknown)) {
        struct unknown *u = LIST_FIRST(struct unknown, &r.unknown, node);
        list_remove(&u->node);
        if (result == 0) {
            log_warn("sandbox %s belongs to nobody: it is killed", u->id);
            if (supervisor_call_id(core->supervisor, SUP_KILL, u->id, NULL, NULL, &local) < 0)
                log_error("kill sandbox %s: %s", u->id, local.msg);
        }
        mem_free(u);
    }
    if (result < 0)
        return -1;
    size_t lost = 0;
    MAP_FOREACH (struct sandbox, sb, &core->by_id) {
        decide(sb);
        lost += sandbox_state_is_over(sb->info.state);
    }
    if (map_count(&core->by_id))
        log_info("%zu sandboxes taken over, %zu lost or ended", core->n_live, lost);
    /* A full disk must not keep us from serving what lives: what is decided here is decided again by the next
     * worker. */
    if (keeper_commit(core->keeper, &local) < 0)
        core_unrecorded(core, &local);
    return 0;
}

/* ---- another coved ---- */

struct comparison {
    struct core *core;
    struct map here; /* id -> struct sandbox, of those that it should know */
};

static bool should_be_there(const struct sandbox *sb)
{
    enum sandbox_state s = sb->info.state;
    return s == SANDBOX_RUNNING || s == SANDBOX_PAUSED || s == SANDBOX_STOPPING;
}

static void on_compared_one(void *ctx, const union sup_message *item)
{
    struct comparison *c = ctx;
    struct sandbox *sb = map_del(&c->here, str_of(item->listed.id));
    if (!sb)
        return;
    sb->life = item->listed.life;
    if (sb->info.state == SANDBOX_STOPPING)
        sandbox_kill_leftover(sb);
    sandbox_unref(sb);
}

static void on_compared(void *ctx, const union sup_message *answer, const struct err *err)
{
    struct comparison *c = ctx;
    if (!answer)
        log_warn("compare sandboxes with those that coved has: %s", err->msg);
    MAP_FOREACH (struct sandbox, sb, &c->here)
        if (answer && should_be_there(sb))
            sandbox_lost(sb);
    for (struct sandbox *sb; (sb = map_any(&c->here));) {
        (void)map_del(&c->here, str_of(sb->info.id));
        sandbox_unref(sb);
    }
    map_fini(&c->here);
    mem_free(c);
}

void recovery_compare(struct core *core)
{
    struct comparison *c = mem_new(struct comparison);
    union sup_message m = {.head = {.type = SUP_LIST}};
    struct err err;
    c->core = core;
    MAP_FOREACH (struct sandbox, sb, &core->by_id)
        if (should_be_there(sb))
            (void)map_put(&c->here, str_of(sb->info.id), sandbox_ref(sb));
    if (supervisor_call_with(core->supervisor, &m, -1, on_compared_one, on_compared, c, &err) < 0)
        on_compared(c, NULL, &err);
}
