/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation: how a sandbox starts
 *
 *  1. A start takes a sandbox to where it runs and whoever asked for it was told. It is one struct start, from
 *     start_begin() until the last of its steps is done. Its way says what it starts from, which steps it has, and what
 *     a failure means (ways[]).
 *  2. A step begins when those that it needs are done and those that it follows have begun, of those that this start
 *     has (steps[]). Steps that don't need each other go on side by side: cove-egress is told the policy while coved
 *     makes the box.
 *  3. Steps begin, and their ends are judged, in on_turn(), a job of the loop; start_done() only notes. So no step
 *     begins within a callback of another, and nobody hears of a start within the call that began it.
 *  4. Nobody waits for the end of the certificate's step, only for its beginning: an agent does one thing after the
 *     other, so nothing runs, and nobody reads a file, before the certificate is inside.
 *  5. A failed step ends the start, unless its way forgives that. A new sandbox fails then. One that was paused is
 *     paused again: its files stay, and so does its memory until it was given up. A box made for its files is put away
 *     first, and the sandbox ends only when that fails too. coved does that by itself when the box ends before it was
 *     told that the start is done: SUP_RESUME, once all that may fail is done. What ends after that has run.
 *  6. What the steps set up is taken back by their undo, the last first (start_undo): before a failed start is put
 *     away, and in a pause without memory. The end of a sandbox takes its box away, and does the rest itself (life.c).
 *  7. A sandbox whose end has begun has no start any more. What a step still says then is nobody's; a box that was made
 *     meanwhile is killed.
 *  8. Nobody hears of a new sandbox before its row is stored. One that starts on its kept files is told of as resuming
 *     in the store until all of that is done: a worker that finds it so begins anew.
 */
#include "sandbox/start/start.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "sandbox/exec/exec_life.h"
#include "sandbox/life/checkpoint_life.h"
#include "sandbox/life/life.h"
#include "sandbox/life/sleep.h"
#include "sandbox/network/network_life.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"
#include "sandbox/service.h"
#include "sandbox/start/make.h"
#include "sandbox/start/spare.h"
#include "sandbox/volume/mounts.h"

enum { RESTORE_MS = 60000 }; /* memory is read, and many may go on at once */

#define START_BIT(step) (1U << (step))
#define START_ALL (START_BIT(START_STEPS) - 1)
#define START_LAST (START_BIT(START_CONFIRM) | START_BIT(START_RUNNING) | START_BIT(START_TOLD))

struct start {
    struct sandbox *sb; /* whose we are */
    enum start_way way;
    uint64_t seq;
    unsigned wants, begun, done;      /* START_BIT(enum start_step) */
    usec_t at, begun_at[START_STEPS]; /* monotonic */
    bool has_box;                     /* coved has one for it, or may have */
    bool is_failing;                  /* its way sees to the failure */
    struct err failure;               /* of the first step that failed; code 0: none */
    enum start_step failed;
    struct loop_job turn;
};

/* ---- the steps: 1 done, 0 start_done() follows, -1 failed ---- */

static void start_forgotten(struct sandbox *sb)
{
    sb->info.start_failed = sb->info.volumes_failed = NULL;
    usage_forget(sb);
}

static void on_forgotten(void *ctx, const union sup_message *answer, const struct err *err)
{
    struct sandbox *sb = ctx;
    struct err local;
    if (start_awaits(sb, START_FORGET) && !sb->core->closing) {
        bool is_gone = answer || (sb->is_half_made && err->code == ERR_NOT_FOUND);
        if (is_gone) {
            pause_let_go(sb);
            sb->info.has_memory = sb->info.on_disk = sb->is_half_made = false;
            rows_extra(sb);
            if (keeper_commit(sb->core->keeper, &local) < 0)
                core_unrecorded(sb->core, &local);
            start_forgotten(sb);
        }
        start_done(sb, START_FORGET, is_gone ? NULL : err);
    }
    sandbox_unref(sb);
}

static int forget_begin(struct sandbox *sb, struct err *err UNUSED)
{
    if ((sb->info.has_memory && !sb->info.on_disk) || sb->is_half_made) {
        resume_put_away(sb, SUP_PAUSE_FILES, on_forgotten);
        return 0;
    }
    start_forgotten(sb);
    return 1;
}

static void on_rewound(void *ctx, const union sup_message *answer, const struct err *err)
{
    struct sandbox *sb = ctx;
    if (start_awaits(sb, START_REWIND) && !sb->core->closing) {
        if (answer)
            rewind_done(sb);
        start_done(sb, START_REWIND, answer ? NULL : err);
    }
    sandbox_unref(sb);
}

static int rewind_begin(struct sandbox *sb, struct err *err)
{
    const char *layer = rewind_layer(sb);
    union sup_message m = {.snapshot = {.head = {.type = SUP_REWIND}}};
    if (!layer)
        return 1;
    memcpy(m.snapshot.id, sb->info.id, ID_SANDBOX_LEN);
    memcpy(m.snapshot.layer, layer, strlen(layer));
    if (supervisor_call(sb->core->supervisor, &m, on_rewound, sb, err) < 0)
        return -1;
    (void)sandbox_ref(sb);
    return 0;
}

static int network_step(struct sandbox *sb, struct err *err)
{
    return network_begin(sb, sb->start->seq, err);
}

static void network_undo(struct sandbox *sb, const struct err *why UNUSED)
{
    network_forget(sb);
    network_end_log(sb);
}

/* Another version or size, or nothing is there: the files, and the start command, make the same sandbox later. */
static bool start_without_memory(struct sandbox *sb, const struct err *why)
{
    struct start *s = sb->start;
    bool is_unfit = why->code == ERR_FAILED_PRECONDITION || why->code == ERR_NOT_FOUND || why->code == ERR_DATA_LOSS;
    if (s->way != START_RESTORE || !sb->may_start || !is_unfit || s->failure.code)
        return false;
    log_info("sandbox %s runs its start command: %s", sb->info.id, why->msg);
    s->way = START_CREATE;
    s->wants |= START_BIT(START_COMMAND);
    s->begun &= ~START_BIT(START_BOX);
    sb->goes_on = s->has_box = false;
    loop_later(sb->core->loop, &s->turn);
    return true;
}

static void on_box(void *ctx, const union sup_message *answer, const struct err *err)
{
    struct sandbox *sb = ctx;
    struct start *s = sb->start;
    struct err local;
    int fd;
    if (sb->core->closing) {
        ;
    } else if (!s) {
        /* It ended meanwhile, and coved may have answered that KILL before it made it. */
        if (answer && supervisor_call_id(sb->core->supervisor, SUP_KILL, sb->info.id, NULL, NULL, &local) < 0)
            log_warn("kill sandbox %s: %s", sb->info.id, local.msg);
    } else if (!answer && start_without_memory(sb, err)) {
        ;
    } else if (!answer) {
        s->has_box = err->code == ERR_DEADLINE_EXCEEDED;
        if (err->code == ERR_RESOURCE_EXHAUSTED)
            spares_short(sb->core);
        start_done(sb, START_BOX, err);
    } else if (s->failure.code) {
        ; /* what was made is put away */
    } else if ((fd = supervisor_take_fd(sb->core->supervisor)) < 0) {
        start_done(sb, START_BOX, &(struct err){.code = ERR_INTERNAL, .msg = "the supervisor sent no socket"});
    } else {
        sb->session = sandbox_session_new(sb);
        if (s->way == START_RESTORE || s->way == START_WAKE)
            session_expect_in(sb->session, RESTORE_MS);
        start_done(sb, START_BOX, session_start(sb->session, fd, &local) < 0 ? &local : NULL);
    }
    sandbox_unref(sb);
}

static int box_begin(struct sandbox *sb, struct err *err)
{
    struct start *s = sb->start;
    union sup_message m;
    if (s->way == START_THAW)
        return resume_thaw(sb, err);
    create_message(sb, &m);
    if (s->way == START_COLD || s->way == START_WAKE) {
        memset(m.create.layer, 0, sizeof(m.create.layer));
        m.create.kept = 1;
        m.create.memory = s->way == START_WAKE;
    }
    sandbox_ref(sb);
    if (supervisor_call(sb->core->supervisor, &m, on_box, sb, err) < 0) {
        sandbox_unref(sb);
        return -1;
    }
    s->has_box = true;
    return 0;
}

static int agent_begin(struct sandbox *sb, struct err *err UNUSED)
{
    if (sb->start->way != START_THAW)
        return session_is_ready(sb->session);
    if (sb->session && !sb->session_broke)
        return 1;
    pause_drop_session(sb);
    resume_attach(sb);
    return 0;
}

static void agent_undo(struct sandbox *sb, const struct err *why)
{
    if (sb->session)
        session_drop(TAKE_PTR(sb->session), why);
    services_stop(sb);
    exec_sandbox_gone(sb);
}

static int volumes_begin(struct sandbox *sb, struct err *err UNUSED)
{
    if (!sb->info.n_mounts)
        return 1;
    mounts_begin(sb);
    return 0;
}

static void volumes_undo(struct sandbox *sb, const struct err *why UNUSED)
{
    volume_log_unmounted(sb);
}

static int certificate_begin(struct sandbox *sb, struct err *err)
{
    return network_wants_ca(sb) ? network_install_ca(sb, err) : 1;
}

static int command_begin(struct sandbox *sb, struct err *err UNUSED)
{
    if (!sb->start_cmd || sb->info.volumes_failed)
        return 1;
    launch_begin(sb);
    return 0;
}

static void command_undo(struct sandbox *sb, const struct err *why UNUSED)
{
    launch_cancel(sb);
}

static void create_runs(struct sandbox *sb)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_U64("ms", (clock_real() - sb->info.started) / USEC_PER_MS));
    (void)sandbox_move(sb, SANDBOX_RUNNING,
                       &(struct event_draft){.kind = EVENT_SANDBOX_STARTED,
                                             .source = EVENT_HOST,
                                             .grade = EVENT_OBSERVED_HOST,
                                             .cause = sb->create_seq,
                                             .data = event_data_end(&d)});
    sandbox_count_creating(sb, false);
    sandbox_enlist(sb);
    usage_start(sb);
}

static void on_confirmed(void *ctx, const union sup_message *answer, const struct err *err)
{
    struct sandbox *sb = ctx;
    if (!sb->core->closing)
        start_done(sb, START_CONFIRM, answer ? NULL : err);
    sandbox_unref(sb);
}

static int confirm_begin(struct sandbox *sb, struct err *err)
{
    if (keeper_commit(sb->core->keeper, err) < 0 ||
        supervisor_call_id(sb->core->supervisor, SUP_RESUME, sb->info.id, on_confirmed, sb, err) < 0)
        return -1;
    (void)sandbox_ref(sb);
    return 0;
}

static int running_begin(struct sandbox *sb, struct err *err)
{
    struct sandbox_info *i = &sb->info;
    enum start_way way = sb->start->way;
    if (way == START_RESTORE || way == START_WAKE)
        exec_recover(sb);
    if (way == START_THAW || way == START_COLD || way == START_WAKE) {
        resume_runs(sb);
        return 1;
    }
    if (way == START_CREATE || way == START_RESTORE)
        create_runs(sb);
    /* It is handed over: what it took to make it is not part of the time that was asked for. */
    if (i->timeout_ms && sb->start_cmd) {
        i->end_at = clock_add_ms(clock_real(), i->timeout_ms);
        rows_end_at(sb);
        sandbox_arm_end(sb);
    }
    if (keeper_commit(sb->core->keeper, err) < 0)
        return err_prefix(err, "create sandbox");
    sb->stored = true;
    return 1;
}

static int told_begin(struct sandbox *sb, struct err *err UNUSED)
{
    services_start(sb);
    waiters_tell(&sb->starters, sb, NULL);
    wake_later(sb);
    return 1;
}

static const struct step {
    const char *point; /* at which a test makes us die when the step is done */
    unsigned needs;    /* that are done */
    unsigned follows;  /* that have begun */
    int (*begin)(struct sandbox *sb, struct err *err);
    void (*undo)(struct sandbox *sb, const struct err *why); /* NULL: nothing to take back */
} steps[START_STEPS] = {
    [START_FORGET] = {"core.start.forget", 0, 0, forget_begin, NULL},
    [START_REWIND] = {"core.start.rewind", START_BIT(START_FORGET), 0, rewind_begin, NULL},
    [START_NETWORK] = {"core.start.network", START_BIT(START_REWIND), START_BIT(START_BOX), network_step, network_undo},
    [START_BOX] = {"core.start.box", START_BIT(START_REWIND), 0, box_begin, NULL},
    [START_AGENT] = {"core.start.agent", START_BIT(START_BOX), 0, agent_begin, agent_undo},
    [START_VOLUMES] = {"core.start.volumes", START_BIT(START_AGENT) | START_BIT(START_NETWORK), 0, volumes_begin,
                       volumes_undo},
    [START_CERTIFICATE] = {"core.start.certificate",
                           START_BIT(START_VOLUMES) | START_BIT(START_AGENT) | START_BIT(START_NETWORK), 0,
                           certificate_begin, NULL},
    [START_COMMAND] = {"core.start.command",
                       START_BIT(START_VOLUMES) | START_BIT(START_AGENT) | START_BIT(START_NETWORK),
                       START_BIT(START_CERTIFICATE), command_begin, command_undo},
    [START_CONFIRM] = {"core.start.confirm", START_ALL & ~(START_BIT(START_CERTIFICATE) | START_LAST),
                       START_BIT(START_CERTIFICATE), confirm_begin, NULL},
    [START_RUNNING] = {"core.start.running",
                       (START_ALL & ~(START_BIT(START_CERTIFICATE) | START_LAST)) | START_BIT(START_CONFIRM),
                       START_BIT(START_CERTIFICATE), running_begin, NULL},
    [START_TOLD] = {"core.start.told", START_BIT(START_RUNNING), 0, told_begin, NULL},
};

/* ---- the ways ---- */

static void create_fails(struct sandbox *sb)
{
    const struct start *s = sb->start;
    struct err why = s->failure;
    if (!s->has_box) {
        sandbox_failed(sb, &why);
        return;
    }
    if (s->failed == START_RUNNING)
        waiters_tell(&sb->starters, NULL, &why);
    /* Its template's fault: the next one would fail, too. */
    const bool is_templates = s->failed == START_COMMAND && why.code == ERR_FAILED_PRECONDITION;
    if (s->failed == START_COMMAND)
        (void)err_prefix(&why, "start sandbox ('cove template show %s' has its commands)", sb->info.template_id);
    if (!sandbox_state_is_over(sb->info.state))
        sandbox_end(sb, &(struct ending){.seq = sb->create_seq,
                                         .cause = "failed",
                                         .fails = true,
                                         .code = is_templates ? why.code : ERR_OK,
                                         .what = why.msg});
}

static void on_put_away(void *ctx, const union sup_message *answer, const struct err *err)
{
    struct sandbox *sb = ctx;
    if (sb->start && !sb->core->closing) {
        struct err why = sb->start->failure;
        if (answer)
            resume_failed(sb, &why);
        else if (supervisor_is_lost(sb->core->supervisor))
            waiters_tell(&sb->starters, NULL, &why); /* what has become of it, the next worker is told */
        else
            sandbox_end(sb, &(struct ending){.seq = sb->pause_seq, .cause = "failed", .fails = true, .what = err->msg});
    }
    sandbox_unref(sb);
}

static void cold_fails(struct sandbox *sb)
{
    const struct start *s = sb->start;
    struct err why = s->failure;
    if (s->failed != START_FORGET)
        pause_let_go(sb);
    if (s->has_box)
        resume_put_away(sb, SUP_PAUSE_FILES, on_put_away);
    else
        resume_failed(sb, &why); /* its files are where they were */
}

/* As long as its agent has said nothing, it counts as one that never ran. */
static void wake_fails(struct sandbox *sb)
{
    const struct start *s = sb->start;
    struct err why = s->failure;
    bool has_run = s->done & START_BIT(START_AGENT);
    start_undo(sb, &why);
    if (!s->has_box) {
        resume_failed(sb, &why); /* ends `s` */
        return;
    }
    if (has_run)
        sb->info.has_memory = sb->info.on_disk = false;
    resume_put_away(sb, has_run ? SUP_PAUSE_FILES : SUP_PAUSE_BACK, on_put_away);
}

static void thaw_fails(struct sandbox *sb)
{
    struct err why = sb->start->failure;
    if (sb->start->failed != START_BOX)
        pause_lost(sb, why.msg);
    else if (why.code == ERR_NOT_FOUND)
        pause_lost(sb, "the supervisor does not know it");
    else
        resume_failed(sb, &why);
}

static const struct way {
    unsigned steps;
    unsigned forgives; /* steps that may fail */
    void (*fails)(struct sandbox *sb);
} ways[] = {
    [START_CREATE] = {START_ALL & ~(START_BIT(START_FORGET) | START_BIT(START_REWIND) | START_BIT(START_CONFIRM)), 0,
                      create_fails},
    [START_CLAIM] = {START_BIT(START_NETWORK) | START_BIT(START_CERTIFICATE) | START_BIT(START_RUNNING) |
                         START_BIT(START_TOLD),
                     0, create_fails},
    [START_COLD] = {START_ALL, START_BIT(START_CERTIFICATE) | START_BIT(START_COMMAND), cold_fails},
    [START_THAW] = {START_BIT(START_BOX) | START_BIT(START_AGENT) | START_BIT(START_CERTIFICATE) |
                        START_BIT(START_RUNNING) | START_BIT(START_TOLD),
                    START_BIT(START_CERTIFICATE), thaw_fails},
    [START_RESTORE] = {START_ALL & ~(START_BIT(START_FORGET) | START_BIT(START_REWIND) | START_BIT(START_COMMAND) |
                                     START_BIT(START_CONFIRM)),
                       0, create_fails},
    [START_WAKE] = {START_ALL & ~(START_BIT(START_FORGET) | START_BIT(START_REWIND) | START_BIT(START_COMMAND)),
                    START_BIT(START_CERTIFICATE), wake_fails},
};

/* ---- the machine ---- */

static bool start_may_begin(const struct start *s, enum start_step step)
{
    unsigned needs = steps[step].needs & s->wants, follows = steps[step].follows & s->wants;
    return (s->wants & ~s->begun & START_BIT(step)) && (needs & ~s->done) == 0 && (follows & ~s->begun) == 0;
}

/* True: a step has begun, and perhaps ended the start. */
static bool start_next(struct sandbox *sb)
{
    struct start *s = sb->start;
    struct err err;
    for (enum start_step i = 0; i < START_STEPS; i++) {
        if (!start_may_begin(s, i))
            continue;
        s->begun |= START_BIT(i);
        s->begun_at[i] = clock_mono();
        int r = steps[i].begin(sb, &err);
        if (r != 0)
            start_done(sb, i, r < 0 ? &err : NULL);
        return true;
    }
    return false;
}

static void on_turn(struct loop_job *job)
{
    struct start *s = container_of(job, struct start, turn);
    struct sandbox *sb = sandbox_ref(s->sb);
    while (sb->start == s && !s->failure.code && start_next(sb))
        ;
    if (sb->start == s && s->failure.code && !s->is_failing) {
        s->is_failing = true;
        sb->core->figures.failed_starts[s->way]++;
        ways[s->way].fails(sb);
    } else if (sb->start == s && s->done == s->wants) {
        start_drop(sb);
    }
    sandbox_unref(sb);
}

void start_begin(struct sandbox *sb, enum start_way way, uint64_t seq)
{
    struct start *s = mem_new(struct start);
    start_drop(sb);
    *s = (struct start){
        .sb = sb, .way = way, .seq = seq, .wants = ways[way].steps, .has_box = way == START_CLAIM, .at = clock_mono()};
    loop_job_init(&s->turn, on_turn);
    sb->start = s;
    sb->n_starts++;
    loop_later(sb->core->loop, &s->turn);
}

static void start_forgive(struct sandbox *sb, enum start_step step, const struct err *err)
{
    log_warn("resume sandbox %s: %s", sb->info.id, err->msg);
    if (step == START_COMMAND)
        sb->info.start_failed = arena_strdup(&sb->arena, err->msg);
}

/* Those of our own are nobody's wait. */
static void start_measure(const struct start *s, enum start_step step)
{
    struct figures *f = &s->sb->core->figures;
    usec_t now = clock_mono();
    if (s->sb->info.hidden)
        return;
    metric_observe(&f->steps[step], now - s->begun_at[step]);
    if (step == START_TOLD)
        metric_observe(&f->starts[s->way], now - s->at);
}

void start_done(struct sandbox *sb, enum start_step step, const struct err *err)
{
    struct start *s = sb->start;
    if (!start_awaits(sb, step) || s->failure.code)
        return;
    bool is_forgiven = err && (ways[s->way].forgives & START_BIT(step));
    if (is_forgiven)
        start_forgive(sb, step, err);
    if (!err || is_forgiven) {
        fault_point(steps[step].point);
        s->done |= START_BIT(step);
        start_measure(s, step);
    } else {
        s->failure = *err;
        s->failed = step;
    }
    loop_later(sb->core->loop, &s->turn);
}

void start_broke(struct sandbox *sb, const struct err *err)
{
    struct start *s = sb->start;
    if (!s || s->failure.code)
        return;
    s->failure = *err;
    s->failed = START_AGENT;
    loop_later(sb->core->loop, &s->turn);
}

bool start_awaits(const struct sandbox *sb, enum start_step step)
{
    return sb->start && (sb->start->begun & ~sb->start->done & START_BIT(step));
}

bool start_is_under_way(const struct sandbox *sb)
{
    return sb->start && !(sb->start->done & START_BIT(START_TOLD));
}

void start_drop(struct sandbox *sb)
{
    struct start *s = TAKE_PTR(sb->start);
    if (!s)
        return;
    loop_job_cancel(&s->turn);
    mem_free(s);
}

void start_undo(struct sandbox *sb, const struct err *why)
{
    for (int i = START_STEPS - 1; i >= 0; i--)
        if (steps[i].undo)
            steps[i].undo(sb, why);
}
