/* SPDX-License-Identifier: Apache-2.0 */
/* The way back; the theory of operation is in pause.c. */
#include "base/log.h"
#include "sandbox/exec/exec_life.h"
#include "sandbox/life/checkpoint_life.h"
#include "sandbox/life/life.h"
#include "sandbox/life/pause.h"
#include "sandbox/life/sleep.h"
#include "sandbox/life/store.h"
#include "sandbox/object.h"
#include "sandbox/owner.h"
#include "sandbox/record/record.h"

int resume_limit(const struct core *core, struct err *err)
{
    if (core->n_live - core->n_paused + core->n_creating < core->config.max_sandboxes)
        return 0;
    (void)err_set(err, ERR_RESOURCE_EXHAUSTED, "%u sandboxes are running, which is the limit",
                  core->config.max_sandboxes);
    return err_because(err, ERR_SANDBOXES_FULL);
}

void resume_runs(struct sandbox *sb)
{
    struct sandbox_info *i = &sb->info;
    struct err err;
    bool memory = i->has_memory && !sb->resume_cold;
    if (sb->session)
        session_go_on(sb->session);
    exec_go_on(sb);
    i->timeout_ms = sb->resume_timeout_ms;
    i->end_at = i->timeout_ms ? clock_real() + i->timeout_ms * USEC_PER_MS : 0;
    i->has_memory = i->on_disk = false;
    sb->end_retry = 0;
    rows_end_at(sb);
    AUTO_EVENT_DATA struct event_data d =
        EVENT_DATA(DATA_BOOL("memory", memory), DATA_U64("us", clock_mono() - sb->pause_began));
    if (!memory && sb->info.start_failed)
        event_data_str(&d, "start_failed", str_of(sb->info.start_failed));
    if (!memory && sb->info.volumes_failed)
        event_data_str(&d, "volumes_failed", str_of(sb->info.volumes_failed));
    if (!memory && (sb->info.start_failed || sb->info.volumes_failed))
        rows_extra(sb);
    pause_move(sb, SANDBOX_RUNNING, EVENT_SANDBOX_RESUMED, &d);
    sandbox_arm_end(sb);
    usage_start(sb);
    /* It runs whether the store takes it or not: a new worker finds that out from coved. */
    if (keeper_commit(sb->core->keeper, &err) < 0)
        core_unrecorded(sb->core, &err);
}

void resume_failed(struct sandbox *sb, const struct err *err)
{
    struct err why = *err;
    (void)err_prefix(&why, "resume sandbox %s", sb->info.id);
    start_drop(sb);
    rewind_forget(sb);
    if (sb->session_broke)
        pause_drop_session(sb);
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("failed", "resume"), DATA_STR("message", why.msg),
                                                     DATA_BOOL("memory", sb->info.has_memory));
    pause_move(sb, SANDBOX_PAUSED, EVENT_SANDBOX_PAUSED, &d);
    rows_extra(sb);
    keeper_wrote(sb->core->keeper);
    sb->wake_err = why;
    waiters_tell(&sb->starters, NULL, &why);
    wake_later(sb);
}

void resume_put_away(struct sandbox *sb, enum sup_pause_kind how, supervisor_fn fn)
{
    struct err err;
    sandbox_ref(sb);
    if (supervisor_pause(sb->core->supervisor, sb->info.id, how, fn, sb, &err) < 0)
        supervisor_answer(sb->core->supervisor, fn, sb, &err);
}

/* ---- with memory ---- */

static void on_attached(void *ctx, const union sup_message *answer, const struct err *err)
{
    struct sandbox *sb = ctx;
    struct err local;
    const bool is_last = --sb->attaching == 0;
    if (!sb->core->closing && sb->session && is_last) {
        int fd = supervisor_take_fd(sb->core->supervisor);
        if (!answer || fd < 0 || session_start(sb->session, fd, &local) < 0)
            pause_lost(sb, !answer ? err->msg : fd < 0 ? "the supervisor sent no socket" : local.msg);
    }
    if (!list_empty(&sb->stores) && !sb->core->closing)
        stores_go(sb);
    sandbox_unref(sb);
}

void resume_attach(struct sandbox *sb)
{
    assert(!sb->session);
    sb->session = sandbox_session_new(sb);
    exec_recover(sb);
    resume_attach_to(sb);
}

void resume_attach_to(struct sandbox *sb)
{
    struct err err;
    sandbox_ref(sb);
    sb->attaching++;
    if (supervisor_call_id(sb->core->supervisor, SUP_ATTACH, sb->info.id, on_attached, sb, &err) < 0)
        supervisor_answer(sb->core->supervisor, on_attached, sb, &err);
}

static void on_thawed(void *ctx, const union sup_message *answer, const struct err *err)
{
    struct sandbox *sb = ctx;
    struct err local;
    if (start_awaits(sb, START_BOX) && !sb->core->closing) {
        /* Who did not answer in time may do it all the same: nothing may run in what is told of as paused, with no
         * deadline. */
        if (!answer && err->code == ERR_DEADLINE_EXCEEDED &&
            supervisor_pause(sb->core->supervisor, sb->info.id, SUP_PAUSE_MEMORY, NULL, NULL, &local) < 0)
            log_warn("pause sandbox %s: %s", sb->info.id, local.msg);
        start_done(sb, START_BOX, answer ? NULL : err);
    }
    sandbox_unref(sb);
}

int resume_thaw(struct sandbox *sb, struct err *err)
{
    sandbox_ref(sb);
    if (supervisor_call_id(sb->core->supervisor, SUP_RESUME, sb->info.id, on_thawed, sb, err) == 0)
        return 0;
    sandbox_unref(sb);
    return -1;
}

void resume_go(struct sandbox *sb)
{
    bool cold = sb->resume_cold || !sb->info.has_memory;
    sb->resume_asked = true;
    start_begin(sb, cold ? START_COLD : sb->info.on_disk ? START_WAKE : START_THAW, sb->pause_seq);
}

/* ---- what is asked for ---- */

void resume_begin(struct sandbox *sb, uint64_t timeout_ms, bool cold, uint64_t seq)
{
    sb->resume_timeout_ms = timeout_ms;
    sb->resume_cold = cold;
    sb->resume_asked = sb->session_broke = false;
    sb->pause_seq = seq;
    sb->pause_began = clock_mono();
    sb->wake_err = (struct err){0};
    (void)sandbox_move(sb, SANDBOX_RESUMING, &(struct event_draft){0});
    pause_go(sb);
}

int sandbox_resume(struct sandbox *sb, const struct actor *actor, const struct sandbox_resume *how, sandbox_fn done,
                   void *ctx, struct err *err)
{
    uint64_t seq, timeout_ms = how->has_timeout ? how->timeout_ms : sb->info.timeout_ms;
    if (sandbox_state_is_over(sb->info.state))
        return err_set(err, ERR_NOT_FOUND, "sandbox %s has ended", sb->info.id);
    if (sb->core->closing)
        return err_set(err, ERR_UNAVAILABLE, "the service is stopping");
    if (deadline_check(sb->core, timeout_ms, err) < 0)
        return -1;
    if (sb->info.state == SANDBOX_RESUMING) {
        /* The longest that somebody asked for; 0 is for ever. */
        uint64_t before = sb->resume_timeout_ms;
        uint64_t longest = !how->has_timeout ? before : before && timeout_ms ? MAX(before, timeout_ms) : 0;
        AUTO_EVENT_DATA struct event_data joins = EVENT_DATA(DATA_U64("timeout_ms", longest), DATA_BOOL("joins", true));
        if (action_permit(sb, actor, EVENT_SANDBOX_RESUME, event_data_end(&joins), &seq, err) < 0)
            return -1;
        sb->resume_timeout_ms = longest;
        waiters_add(&sb->starters, done, ctx);
        return 0;
    }
    if (sb->info.state != SANDBOX_PAUSED)
        return err_set(err, ERR_FAILED_PRECONDITION, "sandbox %s is %s", sb->info.id,
                       sandbox_state_name(sb->info.state));
    AUTO_EVENT_DATA struct event_data d =
        EVENT_DATA(DATA_U64("timeout_ms", timeout_ms), DATA_BOOL("memory", sb->info.has_memory && !how->cold));
    const bool on_files = how->cold || !sb->info.has_memory || sb->info.on_disk;
    if (resume_limit(sb->core, err) < 0 || (on_files && owner_check(sb->core, sb->info.tenant, err) < 0) ||
        action_permit(sb, actor, EVENT_SANDBOX_RESUME, event_data_end(&d), &seq, err) < 0)
        return -1;
    waiters_add(&sb->starters, done, ctx);
    resume_begin(sb, timeout_ms, how->cold, seq);
    return 0;
}
