/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation: asleep and awake again (pause.c, resume.c, wake.c; the way back is a start: start.c)
 *
 *  1. The state says where it is on its way; one request to coved is under way at a time, and its answer only counts
 *     while the state is still the one that asked. Whatever ends the sandbox meanwhile wins: coved gets its KILL, a
 *     late answer is dropped.
 *  2. With memory its session stays open: bytes wait in sockets on both sides, and every clock of ours that waits for
 *     the sandbox (time-outs of streams, deadlines of processes) stands still. Without memory the session is dropped
 *     when coved says that its files are kept.
 *  3. A pause that fails leaves it running. From the pause to the end of the resume a session that breaks says nothing
 *     by itself: the agent may have been killed so that its files are kept, by our request or because the service
 *     stops. What coved says counts (`session_broke` until then); who is thawed without a session gets a new one.
 *  4. A resume that fails leaves it paused (rule 5 of start.c).
 *  5. A pause or a resume waits until clones of the files that were begun before it are made (snapshot.c).
 *  6. Its deadline is looked at while it runs, and is set anew when it is resumed.
 *  7. At the deadline a pause comes to an end: what can't be stopped FREEZES_MOST times (a process can see to that)
 *     loses its memory and its processes, and what is not paused then either is ended. Only who can't be reached, or is
 *     busy, is asked again without end. A pause that a client asked for fails, and that is all.
 */
#include "sandbox/life/pause.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "sandbox/exec/exec_life.h"
#include "sandbox/life/checkpoint_life.h"
#include "sandbox/life/life.h"
#include "sandbox/life/sleep.h"
#include "sandbox/life/store.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"
#include "wire/tiers.h"

enum { PAUSE_AGAIN_MS = 5000, DOUBLED_MOST = 4, FREEZES_MOST = 3 };

void waiters_add(struct list *waiters, sandbox_fn done, void *ctx)
{
    struct waiter *w = mem_new(struct waiter);
    w->done = done;
    w->ctx = ctx;
    list_append(waiters, &w->node);
}

void waiters_tell(struct list *waiters, struct sandbox *sb, const struct err *err)
{
    struct waiter *w;
    while ((w = LIST_FIRST(struct waiter, waiters, node))) {
        sandbox_fn done = w->done;
        void *ctx = w->ctx;
        list_remove(&w->node);
        mem_free(w);
        done(ctx, err ? NULL : sb, err);
    }
}

void pause_ends(struct sandbox *sb, const struct err *why)
{
    stores_end(sb, why);
    waiters_tell(&sb->pausers, NULL, why);
    waiters_tell(&sb->starters, NULL, why);
    wake_later(sb);
}

void pause_let_go(struct sandbox *sb)
{
    struct err why;
    (void)err_set(&why, ERR_UNAVAILABLE, "the sandbox was paused without its memory, so its processes have ended");
    usage_forget(sb);
    sb->info.start_failed = sb->info.volumes_failed = NULL;
    start_undo(sb, &why);
}

void pause_drop_session(struct sandbox *sb)
{
    struct err why;
    (void)err_set(&why, ERR_UNAVAILABLE, "the agent closed its socket");
    sb->session_broke = false;
    if (sb->session)
        session_drop(TAKE_PTR(sb->session), &why);
}

bool pause_explains(struct sandbox *sb, const struct err *what)
{
    switch (sb->info.state) {
    case SANDBOX_PAUSED:
        pause_drop_session(sb);
        return true;
    case SANDBOX_PAUSING:
        sb->session_broke = true;
        return true;
    case SANDBOX_RESUMING:
        if (sb->info.has_memory && !sb->info.on_disk && start_awaits(sb, START_AGENT))
            return false;
        if (sb->info.has_memory && !sb->info.on_disk)
            sb->session_broke = true;
        else
            start_broke(sb, what);
        return true;
    default:
        return false;
    }
}

void pause_move(struct sandbox *sb, enum sandbox_state to, enum event_kind kind, struct event_data *d)
{
    (void)sandbox_move(sb, to,
                       &(struct event_draft){.kind = kind,
                                             .source = EVENT_HOST,
                                             .grade = EVENT_OBSERVED_HOST,
                                             .cause = sb->pause_seq,
                                             .data = event_data_end(d)});
}

void pause_lost(struct sandbox *sb, const char *what)
{
    sandbox_end(
        sb, &(struct ending){.kind = EVENT_AGENT_LOST, .grade = EVENT_OBSERVED_HOST, .cause = "lost", .what = what});
}

static void still(struct sandbox *sb)
{
    usage_stop(sb);
    loop_alarm_clear(sb->core->loop, &sb->end_alarm);
    if (!sb->session)
        return;
    session_stand_still(sb->session);
    exec_stand_still(sb);
}

static void paused(struct sandbox *sb)
{
    struct err err;
    bool memory = sb->pause_memory;
    if (!memory || sb->pause_to_disk)
        pause_let_go(sb);
    else if (sb->session_broke)
        pause_drop_session(sb);
    still(sb);
    sb->end_tries = sb->end_stuck = 0;
    sb->info.has_memory = memory;
    sb->info.on_disk = sb->pause_to_disk;
    rows_extra(sb);
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_BOOL("memory", memory), DATA_FLAG("disk", sb->pause_to_disk),
                                                     DATA_U64("us", clock_mono() - sb->pause_began));
    pause_move(sb, SANDBOX_PAUSED, EVENT_SANDBOX_PAUSED, &d);
    /* It is asleep whether the store takes it or not: a new worker finds that out from coved. */
    if (keeper_commit(sb->core->keeper, &err) < 0)
        core_unrecorded(sb->core, &err);
    keeper_settle(sb->core->keeper);
    waiters_tell(&sb->pausers, sb, NULL);
    wake_later(sb);
}

static bool wants_memory(const struct sandbox *sb)
{
    return !sb->info.pause_files_only && sb->end_stuck < FREEZES_MOST;
}

/* A pause at its deadline did. It runs again; true: its end has begun. */
static bool failed_at_the_end(struct sandbox *sb, const struct err *why)
{
    bool passes = why->code == ERR_UNAVAILABLE || why->code == ERR_RESOURCE_EXHAUSTED;
    /* Less and less often: each try is in its log, and the disk may be what is full. */
    sb->end_retry = clock_mono() + (PAUSE_AGAIN_MS * USEC_PER_MS << sb->end_tries);
    sb->end_tries = MIN(sb->end_tries + 1, (unsigned)DOUBLED_MOST);
    if (passes || sb->info.pause_files_only)
        return false;
    if (sb->pause_memory) {
        if (++sb->end_stuck == FREEZES_MOST)
            sb->end_retry = 0;
        return false;
    }
    sandbox_end(sb, &(struct ending){.kind = EVENT_SANDBOX_EXPIRED,
                                     .grade = EVENT_OBSERVED_HOST,
                                     .actor = STR("timer"),
                                     .cause = "timeout",
                                     .what = why->msg});
    keeper_wrote(sb->core->keeper);
    return true;
}

static void pause_failed(struct sandbox *sb, const struct err *err)
{
    struct err why = *err;
    rewind_forget(sb);
    if (sb->session_broke) {
        (void)err_prefix(&why, "sandbox %s has ended, it could not be paused", sb->info.id);
        waiters_tell(&sb->pausers, NULL, &why);
        pause_lost(sb, "the agent closed its socket");
        return;
    }
    (void)err_prefix(&why, "pause sandbox %s", sb->info.id);
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("failed", "pause"), DATA_STR("message", why.msg));
    pause_move(sb, SANDBOX_RUNNING, EVENT_SANDBOX_RESUMED, &d);
    keeper_wrote(sb->core->keeper);
    if (!sb->session)
        resume_attach(sb);
    if (list_empty(&sb->pausers) && failed_at_the_end(sb, &why))
        return;
    sandbox_arm_end(sb);
    waiters_tell(&sb->pausers, NULL, &why);
    wake_later(sb);
}

static void on_paused(void *ctx, const union sup_message *answer, const struct err *err)
{
    struct sandbox *sb = ctx;
    struct err local;
    fault_point("core.pause.answered");
    if (sb->info.state != SANDBOX_PAUSING || sb->core->closing) {
        /* It ends, and coved knows. */
    } else if (answer) {
        paused(sb);
    } else if (supervisor_is_lost(sb->core->supervisor)) {
        /* Its session may have ended because it was to be paused, or with coved: what has become of it, the next coved
         * tells the next worker. */
        local = *err;
        (void)err_prefix(&local, "pause sandbox %s", sb->info.id);
        waiters_tell(&sb->pausers, NULL, &local);
    } else if (err->code == ERR_NOT_FOUND) {
        pause_lost(sb, "the supervisor does not know it");
    } else {
        /* Who did not answer in time may have done it all the same. */
        if (err->code == ERR_DEADLINE_EXCEEDED &&
            supervisor_call_id(sb->core->supervisor, SUP_RESUME, sb->info.id, NULL, NULL, &local) < 0)
            log_warn("resume sandbox %s: %s", sb->info.id, local.msg);
        pause_failed(sb, err);
    }
    sandbox_unref(sb);
}

/* No session is open while memory is saved. */
static void pause_close_session(struct sandbox *sb)
{
    struct err why;
    (void)err_set(&why, ERR_UNAVAILABLE,
                  "the sandbox is paused to disk: once it is resumed, its processes can be attached again");
    exec_let_go(sb, &why);
    if (sb->session)
        session_drop(TAKE_PTR(sb->session), &why);
}

void pause_go(struct sandbox *sb)
{
    if (!list_empty(&sb->stores))
        return; /* which comes here when it is done */
    if (sb->info.state == SANDBOX_RESUMING && !sb->resume_asked) {
        resume_go(sb);
        return;
    }
    if (sb->info.state != SANDBOX_PAUSING || sb->pause_asked)
        return;
    fault_point("core.pause.begun");
    sb->pause_asked = true;
    if (sb->pause_to_disk)
        pause_close_session(sb);
    resume_put_away(sb,
                    sb->pause_to_disk  ? SUP_PAUSE_DISK
                    : sb->pause_memory ? SUP_PAUSE_MEMORY
                                       : SUP_PAUSE_FILES,
                    on_paused);
}

/* event: of the move, when the action was not recorded before. */
static uint64_t pause_begin(struct sandbox *sb, enum sup_pause_kind kind, const struct event_draft *event)
{
    sb->pause_memory = kind != SUP_PAUSE_FILES;
    sb->pause_to_disk = kind == SUP_PAUSE_DISK;
    sb->pause_asked = sb->session_broke = false;
    sb->pause_began = clock_mono();
    start_drop(sb); /* its certificate is seen to when it wakes up */
    loop_alarm_clear(sb->core->loop, &sb->end_alarm);
    return sandbox_move(sb, SANDBOX_PAUSING, event);
}

void pause_start(struct sandbox *sb, enum sup_pause_kind kind, uint64_t seq)
{
    (void)pause_begin(sb, kind, &(struct event_draft){0});
    sb->pause_seq = seq;
    pause_go(sb);
}

static int pause_ask(struct sandbox *sb, const struct actor *actor, enum sup_pause_kind kind, sandbox_fn done,
                     void *ctx, struct err *err)
{
    uint64_t seq;
    AUTO_EVENT_DATA struct event_data d =
        EVENT_DATA(DATA_BOOL("memory", kind != SUP_PAUSE_FILES), DATA_FLAG("disk", kind == SUP_PAUSE_DISK));
    if (sb->info.state == SANDBOX_RUNNING && start_is_under_way(sb))
        return err_set(err, ERR_FAILED_PRECONDITION, "sandbox %s is still being started", sb->info.id);
    if (action_begin(sb, actor, EVENT_SANDBOX_PAUSE, event_data_end(&d), &seq, err) < 0)
        return -1;
    waiters_add(&sb->pausers, done, ctx);
    pause_start(sb, kind, seq);
    return 0;
}

int sandbox_pause(struct sandbox *sb, const struct actor *actor, bool memory, sandbox_fn done, void *ctx,
                  struct err *err)
{
    return pause_ask(sb, actor, memory ? SUP_PAUSE_MEMORY : SUP_PAUSE_FILES, done, ctx, err);
}

int sandbox_pause_to_disk(struct sandbox *sb, const struct actor *actor, sandbox_fn done, void *ctx, struct err *err)
{
    if (tier_list_saves(sb->core->config.engine.tiers, sb->info.tier, err) < 0)
        return -1;
    return pause_ask(sb, actor, SUP_PAUSE_DISK, done, ctx, err);
}

void pause_expired(struct sandbox *sb)
{
    bool memory = wants_memory(sb);
    struct event_draft expired = {.sandbox = sb->info.id,
                                  .kind = EVENT_SANDBOX_EXPIRED,
                                  .source = EVENT_HOST,
                                  .grade = EVENT_OBSERVED_HOST,
                                  .actor = STR("timer"),
                                  .cause = sb->create_seq,
                                  .data = STR("{}")};
    struct err err;
    uint64_t seq = 0;
    if (event_append(sb->core->config.events, &expired, &seq, &err) < 0)
        core_unrecorded(sb->core, &err);
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_BOOL("memory", memory));
    if (!memory && !sb->info.pause_files_only)
        event_data_str(&d, "reason",
                       STR("its processes can't be stopped where they are: they are ended, its files are kept"));
    sb->pause_seq = pause_begin(sb, memory ? SUP_PAUSE_MEMORY : SUP_PAUSE_FILES,
                                &(struct event_draft){.kind = EVENT_SANDBOX_PAUSE,
                                                      .source = EVENT_HOST,
                                                      .grade = EVENT_OBSERVED_HOST,
                                                      .actor = STR("timer"),
                                                      .cause = seq,
                                                      .data = event_data_end(&d)});
    keeper_wrote(sb->core->keeper);
    pause_go(sb);
}
