/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After an earlier worker died: which processes run, or have ended not long ago, is asked of the agent (PROCESSES);
 * which action each belongs to, what of it is recorded, and when it is to be killed stand in the event log, which is
 * read in steps so that a long one does not hold up the loop. An ended one whose end nobody recorded is followed like a
 * running one, and ends at once. One whose exec.started was still to be stored belongs to the first action with its
 * command that nothing came of. What is pruned of a log while its sandbox lives is no loss: what counts of processes
 * that run is recorded once more before (exec.carried).
 */
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "sandbox/exec/exec_life.h"
#include "sandbox/exec/process.h"
#include "sandbox/hold.h"

enum { EVENTS_PER_STEP = 2000 };

/* An exec.start that has not come to an end. */
struct begun {
    uint64_t seq;
    usec_t deadline; /* real; 0: none */
    char *cmd;
    bool started;
};

struct taking_over {
    struct sandbox *sb; /* a reference */
    struct process_query *query;
    struct map running; /* pid -> struct process, not in its table's streams yet */
    struct map ended;   /* pid -> non-NULL: of `running`, those that don't any more */
    struct map heads;   /* cause -> non-NULL: its exec.output is recorded */
    struct map exits;   /* cause -> non-NULL: its end is recorded */
    struct map begun;   /* seq of exec.start -> struct begun */
    struct map cmds;    /* pid -> command (char *) */
    uint64_t first_seq, next_seq;
    usec_t paused_at; /* real: when the pause that is read of began; 0: none */
    struct loop_job step;
    struct list waiting; /* jobs of those who want it to be over */
};

static void begun_free(struct begun *b)
{
    if (b)
        mem_free(b->cmd);
    mem_free(b);
}

static void exec_recover_finish(struct taking_over *t)
{
    loop_job_cancel(&t->step);
    t->sb->taking_over = NULL;
    for (struct loop_job *job; (job = LIST_FIRST(struct loop_job, &t->waiting, node));) {
        list_remove(&job->node);
        loop_later(t->sb->core->loop, job);
    }
    MAP_FOREACH (struct begun, b, &t->begun)
        begun_free(b);
    MAP_FOREACH (char, cmd, &t->cmds)
        mem_free(cmd);
    map_fini(&t->running);
    map_fini(&t->ended);
    map_fini(&t->heads);
    map_fini(&t->exits);
    map_fini(&t->begun);
    map_fini(&t->cmds);
    sandbox_unref(t->sb);
    mem_free(t);
}

static bool exec_recover_flag(struct str data, const char *name)
{
    json_t *object = json_loadb(data.p, data.n, JSON_ALLOW_NUL, NULL);
    bool is_true = json_is_true(json_object_get(object, name));
    json_decref(object);
    return is_true;
}

static json_int_t exec_recover_number(struct str data, const char *name)
{
    json_t *object = json_loadb(data.p, data.n, JSON_ALLOW_NUL, NULL);
    json_int_t v = json_integer_value(json_object_get(object, name));
    json_decref(object);
    return v;
}

static void on_exec_start(struct taking_over *t, const struct event *e)
{
    json_t *object = json_loadb(e->data.p, e->data.n, JSON_ALLOW_NUL, NULL);
    struct begun *b = mem_new(struct begun);
    b->seq = e->seq;
    json_int_t timeout_ms = json_integer_value(json_object_get(object, "timeout_ms"));
    b->deadline = timeout_ms > 0 ? clock_add_ms(e->time, (uint64_t)timeout_ms) : 0;
    b->cmd = mem_strdup(json_string_value(json_object_get(object, "cmd")));
    json_decref(object);
    begun_free(map_put_u64(&t->begun, e->seq, b));
}

static void on_carried(struct taking_over *t, const struct event *e)
{
    json_t *object = json_loadb(e->data.p, e->data.n, JSON_ALLOW_NUL, NULL);
    struct begun *b = mem_new(struct begun);
    b->seq = e->cause;
    b->deadline = (usec_t)json_integer_value(json_object_get(object, "deadline"));
    b->started = true;
    begun_free(map_put_u64(&t->begun, e->cause, b));
    if (json_is_true(json_object_get(object, "output")))
        (void)map_put_u64(&t->heads, e->cause, t);
    struct process *p = map_get_u64(&t->running, (uint64_t)json_integer_value(json_object_get(object, "pid")));
    if (p) {
        p->log.cause = e->cause;
        p->carried = e->seq;
    }
    json_decref(object);
}

/* A deadline counts only the time that the sandbox runs. */
static void on_pause(struct taking_over *t, const struct event *e)
{
    if (e->kind == EVENT_SANDBOX_PAUSED) {
        t->paused_at = e->time;
        return;
    }
    usec_t slept = t->paused_at && e->time > t->paused_at ? e->time - t->paused_at : 0;
    MAP_FOREACH (struct begun, b, &t->begun)
        b->deadline += b->deadline ? slept : 0;
    t->paused_at = 0;
}

static bool exec_recover_on_event(const struct event *e, void *ctx)
{
    struct taking_over *t = ctx;
    t->first_seq = t->first_seq ? t->first_seq : e->seq;
    t->next_seq = e->seq + 1;
    if (e->kind == EVENT_SANDBOX_PAUSED || e->kind == EVENT_SANDBOX_RESUMED) {
        on_pause(t, e);
    } else if (e->kind == EVENT_EXEC_STARTED) {
        struct process *p = map_get_u64(&t->running, (uint64_t)exec_recover_number(e->data, "pid"));
        struct begun *b = map_get_u64(&t->begun, e->cause);
        if (b)
            b->started = true;
        if (p)
            p->log.cause =
                exec_recover_flag(e->data, "found") ? e->seq : e->cause; /* pids come again: the last one is it */
    } else if (e->kind == EVENT_EXEC_CARRIED) {
        on_carried(t, e);
    } else if (e->kind == EVENT_EXEC_OUTPUT) {
        (void)map_put_u64(&t->heads, e->cause, t);
    } else if (e->kind == EVENT_EXEC_START) {
        on_exec_start(t, e);
    } else if (e->kind == EVENT_EXEC_EXIT || e->kind == EVENT_EXEC_FAILED) {
        begun_free(map_del_u64(&t->begun, e->cause));
        (void)map_del_u64(&t->heads, e->cause);
        if (map_count(&t->ended))
            (void)map_put_u64(&t->exits, e->cause, t);
    }
    return true;
}

/* Its exec.started was lost with the worker. */
static void find_cause(struct taking_over *t, struct process *p)
{
    const char *cmd = map_get_u64(&t->cmds, p->pid);
    struct begun *first = NULL;
    MAP_FOREACH (struct begun, b, &t->begun)
        if (!b->started && b->cmd && cmd && strcmp(b->cmd, cmd) == 0 && (!first || b->seq < first->seq))
            first = b;
    if (!first)
        return;
    first->started = true;
    p->log.cause = first->seq;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_U64("pid", p->pid));
    action_observe(t->sb, first->seq, EVENT_EXEC_STARTED, EVENT_CLAIMED, event_data_end(&d));
}

/* It came with a snapshot's memory: nobody started it here, so what is recorded of it is of this. */
static void exec_recover_found(struct taking_over *t, struct process *p)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_U64("pid", p->pid), DATA_BOOL("found", true));
    p->log.cause =
        action_note(t->sb->core, t->sb->info.id, NULL, t->sb->create_seq, EVENT_EXEC_STARTED, event_data_end(&d));
}

static void attach_all(struct taking_over *t)
{
    usec_t now = clock_real();
    MAP_FOREACH (struct process, p, &t->running) {
        struct err err;
        bool is_over = map_get_u64(&t->ended, p->pid) != NULL;
        bool is_pruned =
            is_over && !p->log.cause && t->first_seq > 1; /* its end would be there, or its beginning carried on */
        if (!p->log.cause && !is_pruned)
            find_cause(t, p);
        if (!p->log.cause && !is_over)
            exec_recover_found(t, p);
        const struct begun *begun = map_get_u64(&t->begun, p->log.cause);
        bool is_recorded = is_pruned || (is_over && map_get_u64(&t->exits, p->log.cause));
        if (is_recorded || !t->sb->session ||
            process_take_over(p, map_get_u64(&t->heads, p->log.cause) != NULL, &err) < 0) {
            process_free(p);
            continue;
        }
        if (begun && begun->deadline)
            process_arm(p, clock_mono() + (begun->deadline > now ? begun->deadline - now : 0));
    }
}

static void free_all(struct taking_over *t)
{
    MAP_FOREACH (struct process, p, &t->running)
        process_free(p);
}

static void on_step(struct loop_job *job)
{
    struct taking_over *t = container_of(job, struct taking_over, step);
    struct err err;
    int n = event_read(t->sb->core->config.events, t->sb->info.id, t->next_seq, EVENTS_PER_STEP, exec_recover_on_event,
                       t, &err);
    if (n < 0)
        log_warn("the log of sandbox %s can't be read: %s", t->sb->info.id, err.msg);
    if (n == EVENTS_PER_STEP) {
        loop_later(t->sb->core->loop, &t->step);
        return;
    }
    attach_all(t);
    exec_recover_finish(t);
}

void exec_recover_stop(struct sandbox *sb)
{
    struct taking_over *t = sb->taking_over;
    if (!t || t->query)
        return; /* the query's end comes with the session's */
    free_all(t);
    exec_recover_finish(t);
}

static void exec_recover_on_records(void *ctx, struct str records, const struct err *err)
{
    struct taking_over *t = ctx;
    struct wire_reader r = wire_reader_of(records);
    struct process_record record;
    struct process_query *query = TAKE_PTR(t->query);
    if (err) {
        if (!t->sb->core->closing)
            log_warn("the processes of sandbox %s: %s", t->sb->info.id, err->msg);
        exec_recover_finish(t);
        return;
    }
    while (map_count(&t->running) < WIRE_STREAMS_MAX / 2 && process_record_next(&r, &record)) {
        if (map_del_u64(&t->ended, record.pid))
            process_free(map_del_u64(&t->running, record.pid)); /* its pid was used again */
        if (map_get_u64(&t->running, record.pid) || process_find(t->sb, &(struct exec_select){.pid = record.pid}))
            continue; /* a client of this worker started it already */
        struct process *p = process_new(t->sb, 0, record.flags & WIRE_PROC_TAG ? record.tag : STR_NULL);
        usec_t now = clock_real(), mono = clock_mono();
        p->pid = p->log.pid = record.pid;
        p->pty = record.flags & WIRE_PROC_PTY;
        p->started = mono - MIN(mono, now - MIN(now, record.started));
        (void)map_put_u64(&t->running, record.pid, p);
        mem_free(map_put_u64(&t->cmds, record.pid, mem_strndup(record.cmd.p, record.cmd.n)));
        if (record.flags & WIRE_PROC_ENDED)
            (void)map_put_u64(&t->ended, record.pid, t);
    }
    if (r.bad)
        process_query_lie(query);
    if (t->sb->core->closing || sandbox_state_is_over(t->sb->info.state)) {
        free_all(t);
        exec_recover_finish(t);
        return;
    }
    loop_later(t->sb->core->loop, &t->step);
}

/* ---- for the worker after this one ---- */

void exec_carry(struct sandbox *sb, uint64_t before, uint64_t last)
{
    usec_t now = clock_mono();
    LIST_FOREACH (struct process, p, &sb->processes, node) {
        if (p->ended || !p->log.cause || p->log.cause >= before || p->carried >= before)
            continue;
        AUTO_EVENT_DATA struct event_data d =
            EVENT_DATA(DATA_U64("pid", p->pid), DATA_BOOL("output", p->log.head_done));
        if (p->expired || p->alarm.slot)
            event_data_u64(&d, "deadline", clock_real() + (p->expired ? 0 : p->alarm.at - MIN(now, p->alarm.at)));
        action_observe(sb, p->log.cause, EVENT_EXEC_CARRIED, EVENT_OBSERVED_HOST, event_data_end(&d));
        p->carried = last + 1;
    }
}

void exec_recover(struct sandbox *sb)
{
    struct err err;
    struct taking_over *t = mem_new(struct taking_over);
    t->sb = sandbox_ref(sb);
    sb->taking_over = t;
    loop_job_init(&t->step, on_step);
    list_init(&t->waiting);
    if (process_query(sb, exec_recover_on_records, t, &t->query, &err) < 0) {
        log_warn("the processes of sandbox %s: %s", sb->info.id, err.msg);
        exec_recover_finish(t);
    }
}

int exec_recovered(struct sandbox *sb, struct holder *holder, struct err *err)
{
    if (!sb->taking_over || !holder)
        return 0;
    list_append(&sb->taking_over->waiting, &holder->goes_on.node);
    (void)err_set(err, ERR_UNAVAILABLE, "the sandbox's processes are being taken over");
    return err_because(err, ERR_HELD);
}
