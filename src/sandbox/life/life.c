/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation: the end of a sandbox
 *
 *  1. coved says what lives. The end is final when it says SUP_ENDED, or that it knows no such sandbox; a KILL is
 *     repeated until then.
 *  2. As soon as the end is decided (killed, expired, the agent lied or is gone) the sandbox is stopping: out of the
 *     list, its session closed, every waiting call answered, every watcher told (all in later turns), and nobody can
 *     use it any more.
 *  3. kill_done is called exactly once, from the loop, never from within the call that gave it.
 *  4. A client hears of an end only when the row is committed.
 *  5. An agent's socket closes before coved can reap the agent: a KILL at once would hide why it died. It comes
 *     LOST_WAIT_MS later, for the agent that lives and only closed its socket.
 *  6. The end is the last event of a sandbox but for what a client asks of the dead: every open call has ended before
 *     it is recorded.
 */
#include "sandbox/life/life.h"
#include "base/log.h"
#include "sandbox/exec/exec_life.h"
#include "sandbox/hold.h"
#include "sandbox/life/checkpoint_life.h"
#include "sandbox/life/sleep.h"
#include "sandbox/network/network_life.h"
#include "sandbox/record/record.h"
#include "sandbox/service.h"
#include "sandbox/start/make.h"
#include "sandbox/start/spare.h"
#include "sandbox/volume/mounts.h"

enum { KILL_AGAIN_MS = 5000, LOST_WAIT_MS = 500 };

static void kill_again(struct loop_alarm *alarm);

static void life_forget(struct loop_alarm *alarm);

/* By the alarm: whoever walks the table of sandboxes may be what ends them. */
static void forget_surplus(struct core *core)
{
    if (core->n_ended > SANDBOX_KEEP_ENDED_MAX)
        loop_alarm_set(core->loop, &LIST_FIRST(struct sandbox, &core->ended, node)->forget_alarm, 0, life_forget);
}

void sandbox_forget(struct sandbox *sb)
{
    struct core *core = sb->core;
    list_remove(&sb->node);
    core->n_ended--;
    sandbox_untable(sb);
    sandbox_unref(sb);
    forget_surplus(core);
}

static void life_forget(struct loop_alarm *alarm)
{
    sandbox_forget(container_of(alarm, struct sandbox, forget_alarm));
}

static void sandbox_forget_later(struct sandbox *sb)
{
    struct core *core = sb->core;
    list_append(&core->ended, &sb->node);
    core->n_ended++;
    loop_alarm_set(core->loop, &sb->forget_alarm, clock_mono() + SANDBOX_KEEP_ENDED_MS * USEC_PER_MS, life_forget);
    forget_surplus(core);
}

static void tell_killer(struct sandbox *sb, const struct err *err)
{
    if (!sb->kill_done)
        return;
    sandbox_fn done = sb->kill_done;
    sb->kill_done = NULL;
    done(sb->kill_ctx, err ? NULL : sb, err);
}

void sandbox_abandon(struct sandbox *sb, const struct err *why)
{
    start_drop(sb);
    network_forget(sb);
    launch_cancel(sb);
    spare_gone(sb);
    if (sb->session)
        session_drop(TAKE_PTR(sb->session), why);
    if (sb->closing)
        session_drop(TAKE_PTR(sb->closing), why);
    services_stop(sb);
    exec_sandbox_gone(sb);
    tell_killer(sb, why);
    pause_ends(sb, why);
    wake_drop(sb);
    sandbox_delist(sb);
    if (!list_empty(&sb->watch_job.node)) {
        loop_job_cancel(&sb->watch_job);
        sandbox_unref(sb);
    }
}

void sandbox_kill_leftover(struct sandbox *sb)
{
    if (!sb->end_cause)
        sb->end_cause = "killed";
    sb->was_kept = sb->life == SUP_KEPT || sb->life == SUP_ON_DISK;
    kill_again(&sb->kill_alarm);
}

/* Nobody can use it from here on. */
static void life_let_go(struct sandbox *sb, const struct err *why)
{
    struct core *core = sb->core;
    if (sb->info.state == SANDBOX_CREATING)
        sandbox_count_creating(sb, false);
    sandbox_delist(sb);
    holds_end(core, sb->info.id, "ended");
    start_drop(sb);
    network_forget(sb);
    launch_cancel(sb);
    spare_gone(sb);
    loop_alarm_clear(core->loop, &sb->end_alarm);
    usage_stop(sb);
    if (sb->session) {
        session_close(sb->session, why);
        sb->closing = TAKE_PTR(sb->session);
    }
    if (!list_empty(&sb->watches) && list_empty(&sb->watch_job.node))
        loop_later(sandbox_ref(sb)->core->loop, &sb->watch_job);
}

static void say_why(const struct sandbox *sb, struct err *ret_err)
{
    if (sb->failure.code)
        *ret_err = sb->failure;
    else
        (void)err_set(ret_err, ERR_UNAVAILABLE, "the sandbox has ended (%s)",
                      sb->end_cause ? sb->end_cause : "unknown");
}

/* All of it is gone. */
static void life_finish(struct sandbox *sb, const struct event_draft *event)
{
    struct err why;
    say_why(sb, &why);
    if (!sandbox_state_is_over(sb->info.state))
        life_let_go(sb, &why);
    else if (sb->info.state != SANDBOX_STOPPING)
        return;
    if (sb->closing) {
        /* Who is told now sees a sandbox that has ended. */
        if (sb->info.state != SANDBOX_STOPPING)
            (void)sandbox_move(sb, SANDBOX_STOPPING, &(struct event_draft){0});
        session_drop(TAKE_PTR(sb->closing), &why);
    }
    loop_alarm_clear(sb->core->loop, &sb->kill_alarm);
    network_end_log(sb);
    volume_log_unmounted(sb);
    sb->info.ended = clock_real();
    sb->info.end_cause = sb->fails ? "failed" : sb->end_cause;
    (void)sandbox_move_to_end(sb, sb->fails ? SANDBOX_FAILED : SANDBOX_ENDED, event);
    services_stop(sb);
    exec_sandbox_gone(sb);
    checkpoint_drop(sb);
    sandbox_forget_later(sb);
    tell_killer(sb, NULL);
    pause_ends(sb, &why);
}

static void finish_with(struct sandbox *sb, enum event_grade grade, const struct sup_ended *ended)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("cause", sb->fails ? "failed" : sb->end_cause));
    if (sb->failure.code)
        event_data_str(&d, "message", str_of(sb->failure.msg));
    if (ended) {
        EVENT_DATA_PUT(&d, DATA_U64("status", ended->status), DATA_U64("oom_kills", ended->oom_kills));
    }
    life_finish(sb, &(struct event_draft){.kind = sb->fails ? EVENT_SANDBOX_FAILED : EVENT_SANDBOX_ENDED,
                                          .source = grade == EVENT_OBSERVED_KERNEL ? EVENT_KERNEL : EVENT_HOST,
                                          .grade = grade,
                                          .cause = sb->ending_seq ? sb->ending_seq : sb->create_seq,
                                          .data = event_data_end(&d)});
}

void sandbox_failed(struct sandbox *sb, const struct err *err)
{
    sb->fails = true;
    sb->failure = *err;
    finish_with(sb, EVENT_OBSERVED_HOST, NULL);
}

void sandbox_lost(struct sandbox *sb)
{
    /* Only the end of one that was stopping is no surprise. */
    if (sb->info.state != SANDBOX_STOPPING || !sb->end_cause)
        sb->end_cause = "lost";
    sb->fails |= strcmp(sb->end_cause, "failed") == 0;
    finish_with(sb, EVENT_OBSERVED_HOST, NULL);
}

/* ---- the end ---- */

static void on_killed(void *ctx, const union sup_message *answer, const struct err *err)
{
    struct sandbox *sb = ctx;
    if (sb->info.state == SANDBOX_STOPPING && !sb->core->closing) {
        if (answer && sb->was_kept) {
            finish_with(sb, EVENT_OBSERVED_HOST, NULL);
        } else if (answer) {
            tell_killer(sb, NULL);
        } else if (err->code == ERR_NOT_FOUND) {
            finish_with(sb, EVENT_OBSERVED_HOST, NULL);
        } else {
            log_warn("kill sandbox %s: %s", sb->info.id, err->msg);
            tell_killer(sb, err);
            loop_alarm_set(sb->core->loop, &sb->kill_alarm, clock_mono() + KILL_AGAIN_MS * USEC_PER_MS, kill_again);
        }
    }
    sandbox_unref(sb);
}

static int ask_kill(struct sandbox *sb, struct err *err)
{
    sandbox_ref(sb);
    if (supervisor_call_id(sb->core->supervisor, SUP_KILL, sb->info.id, on_killed, sb, err) == 0)
        return 0;
    sandbox_unref(sb);
    return -1;
}

static void kill_again(struct loop_alarm *alarm)
{
    struct sandbox *sb = container_of(alarm, struct sandbox, kill_alarm);
    struct err err;
    if (ask_kill(sb, &err) < 0)
        loop_alarm_set(sb->core->loop, &sb->kill_alarm, clock_mono() + KILL_AGAIN_MS * USEC_PER_MS, kill_again);
}

void sandbox_end(struct sandbox *sb, const struct ending *e)
{
    struct err why, err;
    sb->end_cause = e->cause;
    sb->fails = e->fails;
    sb->was_kept = sb->info.state == SANDBOX_PAUSED && (!sb->info.has_memory || sb->info.on_disk);
    if (e->fails)
        (void)err_set(&sb->failure, e->code ? e->code : ERR_UNAVAILABLE, "the sandbox failed: %s", e->what);
    say_why(sb, &why);
    life_let_go(sb, &why);
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_SOME("what", e->what));
    uint64_t seq = sandbox_move(sb, SANDBOX_STOPPING,
                                &(struct event_draft){.kind = e->kind,
                                                      .source = EVENT_HOST,
                                                      .grade = e->grade,
                                                      .actor = e->actor,
                                                      .cause = sb->create_seq,
                                                      .data = event_data_end(&d)});
    sb->ending_seq = e->seq ? e->seq : seq;
    pause_ends(sb, &why);
    if (e->kind == EVENT_AGENT_LOST)
        loop_alarm_set(sb->core->loop, &sb->kill_alarm, clock_mono() + LOST_WAIT_MS * USEC_PER_MS, kill_again);
    else if (ask_kill(sb, &err) < 0)
        loop_alarm_set(sb->core->loop, &sb->kill_alarm, clock_mono() + KILL_AGAIN_MS * USEC_PER_MS, kill_again);
}

/* Its agent has said nothing yet. */
static void say_not_restored(const struct sandbox *sb, struct err *err)
{
    if (sb->goes_on && start_awaits(sb, START_AGENT))
        (void)err_prefix(err, "saved memory could not be restored (its files can be used: \"memory\": false)");
}

void sandbox_on_ended(void *ctx, const struct sup_ended *ended)
{
    static const char *const names[] = {
        [SUP_CAUSE_KILLED] = "killed", [SUP_CAUSE_EXITED] = "exited",     [SUP_CAUSE_SIGNALED] = "signaled",
        [SUP_CAUSE_OOM] = "oom",       [SUP_CAUSE_SHUTDOWN] = "shutdown",
    };
    struct core *core = ctx;
    struct sandbox *sb = map_get(&core->by_id, str_of(ended->id));
    if (!sb || sb->info.state == SANDBOX_ENDED || sb->info.state == SANDBOX_FAILED)
        return;
    const char *cause = ended->cause < ARRAY_SIZE(names) && names[ended->cause] ? names[ended->cause] : "exited";
    if (ended->oom_kills > sb->oom_kills) {
        AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_U64("kills", ended->oom_kills - sb->oom_kills));
        sb->oom_kills = ended->oom_kills;
        action_observe(sb, 0, EVENT_LIMIT_OOM, EVENT_OBSERVED_KERNEL, event_data_end(&d));
    }
    /* Our own reason for killing it says more than that it was killed; an agent that was gone has coved's. */
    if (ended->cause != SUP_CAUSE_KILLED) {
        if (!sb->end_cause || strcmp(sb->end_cause, "lost") == 0)
            sb->end_cause = cause;
        if (sb->info.state == SANDBOX_CREATING) {
            sb->fails = true;
            (void)err_set(&sb->failure, ERR_UNAVAILABLE, "the sandbox did not start: its first process ended (%s)",
                          cause);
            say_not_restored(sb, &sb->failure);
        }
    } else if (!sb->end_cause) {
        sb->end_cause = cause;
    } else if (strcmp(sb->end_cause, "lost") == 0) {
        sb->fails = true; /* it lived, and had closed its socket */
        (void)err_set(&sb->failure, ERR_UNAVAILABLE, "the sandbox failed: its agent closed the connection");
    }
    finish_with(sb, EVENT_OBSERVED_KERNEL, ended);
}

/* ---- what is asked for ---- */

int sandbox_kill(struct sandbox *sb, const struct actor *actor, sandbox_fn done, void *ctx, struct err *err)
{
    uint64_t seq;
    if (sandbox_state_is_over(sb->info.state) || sb->info.state == SANDBOX_CREATING)
        return err_set(err, ERR_NOT_FOUND, "sandbox %s has ended", sb->info.id);
    if (sb->core->closing)
        return err_set(err, ERR_UNAVAILABLE, "the service is stopping");
    if (action_permit(sb, actor, EVENT_SANDBOX_KILL, STR("{}"), &seq, err) < 0)
        return -1;
    sb->kill_done = done;
    sb->kill_ctx = ctx;
    sandbox_end(sb, &(struct ending){.seq = seq, .cause = "killed"});
    return 0;
}

/* ---- its session ---- */

static void life_on_ready(void *ctx)
{
    answers_give(ctx);
    start_done(ctx, START_AGENT, NULL);
}

static void on_broken(void *ctx, bool violation, const struct err *err)
{
    struct sandbox *sb = ctx;
    struct err what = *err; /* the session's own goes with it */
    if (!violation && pause_explains(sb, &what))
        return;
    if (!violation)
        say_not_restored(sb, &what);
    /* An agent that is gone is coved's to explain: its SUP_ENDED follows. */
    sandbox_end(sb, &(struct ending){.kind = violation ? EVENT_AGENT_VIOLATION : EVENT_AGENT_LOST,
                                     .grade = EVENT_OBSERVED_HOST,
                                     .cause = violation ? "failed" : "lost",
                                     .fails = violation || sb->info.state == SANDBOX_CREATING,
                                     .what = what.msg});
}

static void life_on_closed(void *ctx)
{
    ((struct sandbox *)ctx)->closing = NULL;
}

struct session *sandbox_session_new(struct sandbox *sb)
{
    static const struct session_ops ops = {
        .on_ready = life_on_ready, .on_broken = on_broken, .on_closed = life_on_closed};
    return sandbox_session_like(sb, &ops, sb);
}

struct session *sandbox_session_like(const struct sandbox *sb, const struct session_ops *ops, void *ctx)
{
    static const struct core_guest none = {0};
    const struct core_guest *g = sb->core->config.guest ? sb->core->config.guest : &none;
    /* An agent that coved can't reach but by this stream knows by it whose it is. */
    const struct pair env[] = {{STR("COVE_SANDBOX"), STR("true")},
                               {STR("COVE_SANDBOX_ID"), str_of(sb->info.id)},
                               {STR("COVE_TEMPLATE_ID"), str_of(sb->info.template_id)},
                               {str_of(g->marker), STR("true")},
                               {str_of(g->id), str_of(sb->info.id)},
                               {str_of(g->template_id), str_of(sb->info.template_id)}};
    struct session *s = session_new(sb->core->loop, ops, ctx);
    session_greet(s, g->attributes, env, ARRAY_SIZE(env));
    return s;
}
