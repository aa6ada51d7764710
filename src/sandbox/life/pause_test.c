/* SPDX-License-Identifier: Apache-2.0 */
/* Paused and resumed: what goes on, what ends, who is told, and every order in which it can be disturbed. */
#include "base/mem.h"
#include "sandbox/life/pause.h"
#include "sandbox/test_world.h"

#include <setjmp.h>

#include <cmocka.h>

static enum sandbox_state state_of(const struct sandbox *sb)
{
    return sandbox_info(sb)->state;
}

struct client {
    struct follow *follow;
    uint32_t pid;
    size_t bytes;
    unsigned exits, errors;
    struct err err;
};

static void on_start(void *ctx, uint32_t pid)
{
    ((struct client *)ctx)->pid = pid;
}

static void on_output(void *ctx, enum wire_channel channel, struct str bytes)
{
    struct client *c = ctx;
    (void)channel;
    c->bytes += bytes.n;
    exec_ack(c->follow, bytes.n);
}

static void on_end(void *ctx, const struct exec_exit *exit, const struct err *err)
{
    struct client *c = ctx;
    c->exits += exit != NULL;
    c->errors += err != NULL;
    if (err)
        c->err = *err;
}

static const struct exec_ops ops = {on_start, on_output, on_end, NULL};

static void run(struct world *w, struct sandbox *sb, struct client *c, const char *cmd, uint64_t timeout_ms)
{
    struct err err;
    struct exec_spec spec = {.cmd = str_of(cmd), .stdin_open = true, .timeout_ms = timeout_ms};
    if (exec_start(sb, &test_actor, &spec, &ops, c, &c->follow, &err) < 0)
        fail_msg("exec: %s", err.msg);
    WAIT(w, c->pid || c->exits);
}

static void on_input_done(void *ctx, const struct err *err)
{
    assert_null(err);
    ++*(unsigned *)ctx;
}

static void feed(struct world *w, struct sandbox *sb, uint32_t pid, const char *text)
{
    struct err err;
    struct exec_call *call;
    unsigned done = 0;
    assert_int_equal(exec_input(sb, &test_actor, &(struct exec_select){.pid = pid}, false, str_of(text), on_input_done,
                                &done, &call, &err),
                     0);
    WAIT(w, done);
}

/* ---- with memory ---- */

static void goes_on_where_it_was(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct sandbox_info before = *sandbox_info(sb);
    static struct client cat;
    cat = (struct client){0};
    static struct world_outcome o;
    o = (struct world_outcome){0};
    struct err err;
    struct exec_spec spec = {.cmd = STR("echo")};
    struct follow *f;
    run(w, sb, &cat, "cat", 0);
    feed(w, sb, cat.pid, "before");
    WAIT(w, cat.bytes == 6);
    world_pause(w, sb, true);
    assert_true(world_agent(w, sb)->is_frozen);
    assert_int_equal(sandbox_count(w->core), 1);
    assert_ptr_equal(sandbox_find(w->core, str_of(before.id)), sb);
    assert_int_equal(exec_start(sb, &test_actor, &spec, &ops, &cat, &f, &err), -1);
    assert_int_equal(err.code, ERR_FAILED_PRECONDITION);
    assert_int_equal(sandbox_pause(sb, &test_actor, true, world_on_done, &o, &err), -1);
    assert_int_equal(err.code, ERR_FAILED_PRECONDITION);
    assert_int_equal(sandbox_set_timeout(sb, &test_actor, 1000, false, &err), -1);
    assert_int_equal(err.code, ERR_FAILED_PRECONDITION);
    world_resume(w, sb, NULL);
    assert_int_equal(cat.exits + cat.errors, 0);
    feed(w, sb, cat.pid, "after");
    WAIT(w, cat.bytes == 11);
    assert_int_equal(w->attaches, 0);
    assert_int_equal(w->creates, 1);
    assert_true(sandbox_info(sb)->end_at > before.end_at); /* its time begins anew */
    assert_int_equal(sandbox_info(sb)->started, before.started);
    assert_int_equal(world_resume_begin(sb, NULL, &o, &err), -1);
    assert_int_equal(err.code, ERR_FAILED_PRECONDITION);
    assert_int_equal(o.calls, 0);
    assert_int_equal(world_count_events(w, before.id, EVENT_SANDBOX_PAUSE), 1);
    assert_int_equal(world_count_events(w, before.id, EVENT_SANDBOX_PAUSED), 1);
    assert_int_equal(world_count_events(w, before.id, EVENT_SANDBOX_RESUME), 1);
    assert_int_equal(world_count_events(w, before.id, EVENT_SANDBOX_RESUMED), 1);
}

/* Who joins a resume may ask for a longer life: that is an action of his own. */
static void who_joins_a_resume_is_on_record(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    const char *id = sandbox_info(sb)->id;
    struct world_outcome o[2] = {{0}};
    struct err err;
    world_pause(w, sb, true);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            world_resume_begin(sb, &(struct sandbox_resume){.has_timeout = true, .timeout_ms = 60000u * (i + 1)}, &o[i],
                               &err),
            0);
    WAIT(w, o[0].calls && o[1].calls);
    assert_int_equal(sandbox_info(sb)->timeout_ms, 120000);
    assert_int_equal(world_count_events(w, id, EVENT_SANDBOX_RESUME), 2);
    assert_int_equal(world_count_events(w, id, EVENT_SANDBOX_RESUMED), 1);
    assert_non_null(strstr(world_event_data(w, id, EVENT_SANDBOX_RESUME), "\"joins\":true"));
}

static void deadlines_of_processes_wait(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    static struct client c;
    c = (struct client){0};
    run(w, sb, &c, "cat", 300);
    world_pause(w, sb, true);
    world_turns(w, 600);
    assert_int_equal(c.errors, 0);
    world_resume(w, sb, NULL);
    assert_int_equal(c.errors, 0);
    WAIT(w, c.errors == 1);
    assert_int_equal(c.err.code, ERR_DEADLINE_EXCEEDED);
    WAIT(w, world_agent(w, sb)->signals == 1);
}

struct ping {
    unsigned ends;
    enum err_code code;
};

static void on_pong(void *user, struct str tail, const struct err *err)
{
    struct ping *p = user;
    (void)tail;
    p->ends++;
    p->code = err ? err->code : ERR_OK;
}

/* What was asked before the agent stood still. */
static void questions_wait(void **state)
{
    static const struct stream_ops ping_ops = {.on_end = on_pong};
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct ping p = {0};
    struct stream *st;
    struct err err;
    world_agent(w, sb)->deaf = true; /* what is in the socket when it is frozen */
    fake_flush(world_agent(w, sb));
    assert_int_equal(stream_open(sb->session, session_request(sb->session, WIRE_PING), &ping_ops, &p, 200, &st, &err),
                     0);
    world_pause(w, sb, true);
    world_turns(w, 500);
    assert_int_equal(p.ends, 0);
    world_resume(w, sb, NULL);
    WAIT(w, p.ends == 1);
    assert_int_equal(p.code, ERR_OK);
}

static void at_the_deadline(void **state)
{
    struct world *w = *state;
    struct sandbox_spec spec = {.pause_on_timeout = true};
    struct sandbox *sb = world_expiring(w, &spec, 200);
    usec_t end_at = sandbox_info(sb)->end_at;
    WAIT(w, state_of(sb) == SANDBOX_PAUSED);
    usec_t now = clock_real();
    assert_true(now >= end_at);
    assert_int_equal(sandbox_info(sb)->end_at, end_at);
    assert_true(sandbox_info(sb)->has_memory);
    assert_int_equal(world_count_events(w, sandbox_info(sb)->id, EVENT_SANDBOX_EXPIRED), 1);
    assert_int_equal(world_count_events(w, sandbox_info(sb)->id, EVENT_SANDBOX_PAUSE), 1);
    assert_int_equal(world_count_events(w, sandbox_info(sb)->id, EVENT_SANDBOX_PAUSED), 1);
    world_turns(w, 400);
    assert_int_equal(state_of(sb), SANDBOX_PAUSED);
    world_resume(w, sb, &(struct sandbox_resume){.has_timeout = true, .timeout_ms = 60000});
    assert_int_equal(sandbox_info(sb)->timeout_ms, 60000);
    assert_true(sandbox_info(sb)->end_at > clock_real() + 50 * USEC_PER_SEC);
    world_pause(w, sb, true);
    world_resume(w, sb, &(struct sandbox_resume){.has_timeout = true});
    assert_int_equal(sandbox_info(sb)->end_at, 0);
}

static void at_the_deadline_files_only(void **state)
{
    struct world *w = *state;
    struct sandbox_spec spec = {.pause_on_timeout = true, .pause_files_only = true};
    struct sandbox *sb = world_expiring(w, &spec, 100);
    WAIT(w, state_of(sb) == SANDBOX_PAUSED);
    assert_false(sandbox_info(sb)->has_memory);
    assert_int_equal(map_count(&w->kept), 1);
}

/* ---- without ---- */

static void files_alone(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    static struct client cat;
    cat = (struct client){0};
    const char *id = sandbox_info(sb)->id;
    run(w, sb, &cat, "cat", 0);
    WAIT(w, w->egress.n_policies == 1);
    world_pause(w, sb, false);
    assert_int_equal(cat.errors, 1);
    assert_int_equal(cat.err.code, ERR_UNAVAILABLE);
    assert_int_equal(map_count(&w->agents), 0);
    assert_int_equal(map_count(&w->kept), 1);
    WAIT(w, w->egress.n_forgets == 1);
    world_resume(w, sb, NULL);
    assert_int_equal(w->creates, 2);
    assert_int_equal(map_count(&w->kept), 0);
    WAIT(w, w->egress.n_policies == 2);
    static struct client again;
    again = (struct client){0};
    run(w, sb, &again, "cat", 0);
    feed(w, sb, again.pid, "x");
    WAIT(w, again.bytes == 1);
    assert_ptr_equal(sandbox_find(w->core, str_of(id)), sb);
    exec_close(again.follow);
}

static void memory_given_up(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    static struct client cat;
    cat = (struct client){0};
    run(w, sb, &cat, "cat", 0);
    world_pause(w, sb, true);
    world_resume(w, sb, &(struct sandbox_resume){.cold = true});
    assert_int_equal(w->creates, 2);
    assert_int_equal(cat.errors, 1);
    assert_int_equal(w->pauses, 2);
    assert_int_equal(w->resumes, 1); /* the start is done */
}

/* The agent's end is heard of before coved's answer, and then not at all: the service stops, which is no reason to end
 * it. */
static void sessions_that_break(void **state)
{
    struct world *w = *state;
    static struct world_outcome o;
    struct err err;
    struct sandbox *sb = world_sandbox(w, NULL);
    world_pause(w, sb, true);
    w->holds = true;
    o = (struct world_outcome){0};
    assert_int_equal(world_resume_begin(sb, &(struct sandbox_resume){.cold = true}, &o, &err), 0);
    WAIT(w, w->held_tag);
    world_turns(w, 30);
    assert_int_equal(state_of(sb), SANDBOX_RESUMING);
    w->holds = false;
    world_answer(w, ERR_OK);
    WAIT(w, o.calls == 1);
    assert_int_equal(o.err.code, ERR_OK);
    world_pause(w, sb, true);
    fake_hang_up(world_agent(w, sb));
    world_turns(w, 30);
    assert_int_equal(state_of(sb), SANDBOX_PAUSED);
    assert_null(sb->session);
    world_resume(w, sb, NULL); /* it was only its socket */
    assert_int_equal(w->attaches, 1);
    w->holds = true;
    o = (struct world_outcome){0};
    assert_int_equal(sandbox_pause(sb, &test_actor, true, world_on_done, &o, &err), 0);
    WAIT(w, w->held_tag);
    fake_hang_up(world_agent(w, sb));
    world_turns(w, 30);
    w->holds = false;
    world_answer(w, ERR_OK);
    WAIT(w, o.calls == 1);
    assert_int_equal(state_of(sb), SANDBOX_PAUSED);
    /* One whose agent is not there when it should answer ends. */
    w->agents_mute = true;
    o = (struct world_outcome){0};
    assert_int_equal(world_resume_begin(sb, NULL, &o, &err), 0);
    WAIT(w, w->attaches == 2);
    world_turns(w, 20);
    fake_hang_up(world_agent(w, sb));
    WAIT(w, o.calls == 1);
    assert_int_equal(o.err.code, ERR_UNAVAILABLE);
    WAIT(w, sandbox_state_is_over(state_of(sb)));
}

/* ---- what fails ---- */

static void refused_by_coved(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    static struct client cat;
    cat = (struct client){0};
    static struct world_outcome o;
    o = (struct world_outcome){0};
    struct err err;
    run(w, sb, &cat, "cat", 0);
    w->pause_error = ERR_INTERNAL;
    assert_int_equal(sandbox_pause(sb, &test_actor, true, world_on_done, &o, &err), 0);
    WAIT(w, o.calls == 1);
    assert_int_equal(o.err.code, ERR_INTERNAL);
    assert_int_equal(state_of(sb), SANDBOX_RUNNING);
    feed(w, sb, cat.pid, "still there");
    WAIT(w, cat.bytes == 11);
    w->pause_error = 0;
    world_pause(w, sb, true);
    w->resume_error = ERR_INTERNAL;
    assert_int_equal(world_resume_begin(sb, NULL, &o, &err), 0);
    assert_int_equal(state_of(sb), SANDBOX_RESUMING);
    assert_int_equal(world_resume_begin(sb, NULL, &o, &err), 0); /* the same one */
    WAIT(w, o.calls == 3);
    assert_int_equal(o.err.code, ERR_INTERNAL);
    assert_int_equal(state_of(sb), SANDBOX_PAUSED);
    /* An answer that is late may be that it runs. */
    w->resume_error = ERR_DEADLINE_EXCEEDED;
    unsigned pauses = w->pauses;
    assert_int_equal(world_resume_begin(sb, NULL, &o, &err), 0);
    world_agent(w, sb)->is_frozen = false;
    WAIT(w, o.calls == 4 && w->pauses == pauses + 1);
    assert_int_equal(state_of(sb), SANDBOX_PAUSED);
    assert_true(world_agent(w, sb)->is_frozen);
    w->resume_error = 0;
    world_resume(w, sb, NULL);
    feed(w, sb, cat.pid, "!");
    WAIT(w, cat.bytes == 12);
}

static void cold_start_fails(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    static struct world_outcome o;
    o = (struct world_outcome){0};
    struct err err;
    world_pause(w, sb, false);
    w->create_error = ERR_RESOURCE_EXHAUSTED;
    assert_int_equal(world_resume_begin(sb, NULL, &o, &err), 0);
    WAIT(w, o.calls == 1);
    assert_int_equal(o.err.code, ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(state_of(sb), SANDBOX_PAUSED);
    w->create_error = 0;
    /* The agent that says nothing for five seconds costs the start, not the files. */
    w->agents_mute = true;
    assert_int_equal(world_resume_begin(sb, NULL, &o, &err), 0);
    WAIT(w, map_count(&w->agents) == 1);
    fake_hang_up(world_agent(w, sb));
    WAIT(w, o.calls == 2);
    assert_int_equal(o.err.code, ERR_UNAVAILABLE);
    assert_int_equal(state_of(sb), SANDBOX_PAUSED);
    assert_int_equal(map_count(&w->kept), 1);
    w->agents_mute = false;
    world_resume(w, sb, NULL);
}

/* ---- what crosses ---- */

static void killed_on_the_way(void **state)
{
    struct world *w = *state;
    struct err err;
    for (int i = 0; i < 4; i++) {
        struct sandbox *sb = sandbox_ref(world_sandbox(w, NULL));
        struct world_outcome paused = {0}, resumed = {0}, killed = {0};
        bool memory = i & 1;
        w->holds = true;
        assert_int_equal(sandbox_pause(sb, &test_actor, memory, world_on_done, &paused, &err), 0);
        WAIT(w, w->held_tag);
        if (i & 2) {
            world_answer(w, ERR_OK);
            WAIT(w, paused.calls == 1);
            w->create_mute = true;
            assert_int_equal(world_resume_begin(sb, NULL, &resumed, &err), 0);
            world_turns(w, 30);
            assert_int_equal(state_of(sb), SANDBOX_RESUMING);
        }
        assert_int_equal(sandbox_kill(sb, &test_actor, world_on_done, &killed, &err), 0);
        assert_int_equal(paused.calls, 1);
        assert_int_equal(resumed.calls, i & 2 ? 1 : 0);
        if (i & 2)
            assert_int_equal(resumed.err.code, ERR_UNAVAILABLE);
        if (w->held_tag)
            world_answer(w, ERR_OK); /* too late */
        WAIT(w, killed.calls == 1 && state_of(sb) == SANDBOX_ENDED);
        assert_string_equal(sandbox_info(sb)->end_cause, "killed");
        assert_int_equal(paused.calls, 1);
        w->holds = w->create_mute = false;
        sandbox_unref(sb);
    }
    assert_int_equal(sandbox_count(w->core), 0);
}

static void killed_while_paused(void **state)
{
    struct world *w = *state;
    struct err err;
    for (int i = 0; i < 3; i++) {
        struct sandbox *sb = world_sandbox(w, NULL);
        struct world_outcome killed = {0};
        world_pause(w, sb, i == 0);
        w->kill_is_plain = i == 2;
        assert_int_equal(sandbox_kill(sb, &test_actor, world_on_done, &killed, &err), 0);
        WAIT(w, state_of(sb) == SANDBOX_ENDED && killed.calls == 1);
        assert_int_equal(map_count(&w->kept), 0);
    }
}

static void ends_by_itself(void **state)
{
    struct world *w = *state;
    static struct world_outcome o;
    o = (struct world_outcome){0};
    struct err err;
    struct sandbox *sb = world_sandbox(w, NULL);
    w->holds = true;
    assert_int_equal(sandbox_pause(sb, &test_actor, true, world_on_done, &o, &err), 0);
    WAIT(w, w->held_tag);
    world_end_agent(w, world_agent(w, sb), SUP_CAUSE_OOM);
    WAIT(w, state_of(sb) == SANDBOX_ENDED);
    assert_int_equal(o.calls, 1);
    assert_int_equal(o.err.code, ERR_UNAVAILABLE);
    assert_string_equal(sandbox_info(sb)->end_cause, "oom");
    world_answer(w, ERR_OK);
    world_turns(w, 20);
    assert_int_equal(o.calls, 1);
    assert_int_equal(state_of(sb), SANDBOX_ENDED);
}

static void expires_while_it_is_paused_by_hand(void **state)
{
    struct world *w = *state;
    static struct world_outcome o;
    o = (struct world_outcome){0};
    struct err err;
    struct sandbox *sb = world_expiring(w, NULL, 150);
    w->holds = true;
    assert_int_equal(sandbox_pause(sb, &test_actor, true, world_on_done, &o, &err), 0);
    world_turns(w, 300);
    assert_int_equal(state_of(sb), SANDBOX_PAUSING); /* it was in time */
    world_answer(w, ERR_OK);
    WAIT(w, o.calls == 1);
    assert_int_equal(state_of(sb), SANDBOX_PAUSED);
}

static void service_stops_meanwhile(void **state)
{
    struct world *w = *state;
    static struct world_outcome o;
    o = (struct world_outcome){0};
    struct err err;
    struct sandbox *sb = world_sandbox(w, NULL);
    w->holds = true;
    assert_int_equal(sandbox_pause(sb, &test_actor, true, world_on_done, &o, &err), 0);
    WAIT(w, w->held_tag);
    world_close(w);
    assert_int_equal(o.calls, 1);
    assert_int_equal(o.err.code, ERR_UNAVAILABLE);
}

/* ---- limits ---- */

static void paused_ones_do_not_count(void **state)
{
    struct world *w = *state;
    struct err err;
    static struct world_outcome o;
    o = (struct world_outcome){0};
    struct sandbox *sb = world_sandbox(w, NULL);
    w->core->config.max_sandboxes = 1;
    world_pause(w, sb, true);
    struct sandbox *other = world_sandbox(w, NULL);
    assert_int_equal(world_resume_begin(sb, NULL, &o, &err), -1);
    assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(state_of(sb), SANDBOX_PAUSED);
    struct world_outcome killed = {0};
    assert_int_equal(sandbox_kill(other, &test_actor, world_on_done, &killed, &err), 0);
    world_resume(w, sb, NULL);
    w->core->config.max_sandboxes = 1200;
}

/* ---- woken by traffic ---- */

struct waking {
    struct sandbox_wake wake;
    unsigned calls;
    enum err_code code;
};

static void on_woken(struct sandbox_wake *wake, struct sandbox *sb, const struct err *err)
{
    struct waking *g = container_of(wake, struct waking, wake);
    assert_true(err || state_of(sb) == SANDBOX_RUNNING);
    g->calls++;
    g->code = err ? err->code : ERR_OK;
}

static void woken(void **state)
{
    struct world *w = *state;
    struct err err;
    struct sandbox_spec spec = {.timeout_ms = 60000, .auto_resume = true};
    struct sandbox *sb = world_sandbox(w, &spec);
    struct waking a[3] = {{.wake.fn = on_woken}, {.wake.fn = on_woken}, {.wake.fn = on_woken}};
    assert_int_equal(sandbox_wake(sb, &test_actor, &a[0].wake, &err), 0); /* it runs */
    assert_int_equal(a[0].calls, 0);
    WAIT(w, a[0].calls == 1);
    static struct world_outcome o;
    o = (struct world_outcome){0};
    assert_int_equal(sandbox_pause(sb, &test_actor, true, world_on_done, &o, &err), 0);
    assert_true(sandbox_can_wake(sb));
    for (int i = 0; i < 3; i++)
        assert_int_equal(sandbox_wake(sb, &test_actor, &a[i].wake, &err), 0);
    sandbox_unwake(&a[2].wake); /* its client has left */
    WAIT(w, a[0].calls == 2 && a[1].calls == 1);
    assert_int_equal(a[0].code, ERR_OK);
    assert_int_equal(a[2].calls, 0);
    assert_int_equal(o.calls, 1);
    assert_int_equal(w->resumes, 1);
    assert_true(sandbox_info(sb)->end_at > clock_real() + 290 * USEC_PER_SEC);
    world_pause(w, sb, true);
    w->resume_error = ERR_INTERNAL;
    assert_int_equal(sandbox_wake(sb, &test_actor, &a[2].wake, &err), 0);
    WAIT(w, a[2].calls == 1);
    assert_int_equal(a[2].code, ERR_INTERNAL);
    w->resume_error = 0;
    w->holds = true;
    assert_int_equal(sandbox_wake(sb, &test_actor, &a[2].wake, &err), 0);
    WAIT(w, w->held_tag);
    assert_int_equal(sandbox_kill(sb, &test_actor, world_on_done, &o, &err), 0);
    WAIT(w, a[2].calls == 2);
    assert_int_equal(a[2].code, ERR_NOT_FOUND);
}

static void not_woken(void **state)
{
    struct world *w = *state;
    struct err err;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct waking g = {.wake.fn = on_woken};
    world_pause(w, sb, true);
    assert_false(sandbox_can_wake(sb));
    assert_int_equal(sandbox_wake(sb, &test_actor, &g.wake, &err), -1);
    assert_int_equal(err.code, ERR_FAILED_PRECONDITION);
}

/* ---- another worker, another coved ---- */

static void another_worker(void **state)
{
    struct world *w = *state;
    char id[2][ID_SANDBOX_LEN + 1];
    struct sandbox_spec spec = {.pause_on_timeout = true, .pause_files_only = true};
    struct sandbox *sb = world_sandbox(w, NULL);
    static struct client cat;
    cat = (struct client){0};
    run(w, sb, &cat, "cat", 0);
    memcpy(id[0], sandbox_info(sb)->id, sizeof(id[0]));
    world_pause(w, sb, true);
    sb = world_expiring(w, &spec, 200);
    memcpy(id[1], sandbox_info(sb)->id, sizeof(id[1]));
    WAIT(w, state_of(sb) == SANDBOX_PAUSED);
    sb = world_restart(w, id[0]);
    assert_int_equal(sandbox_count(w->core), 2);
    assert_int_equal(state_of(sb), SANDBOX_PAUSED);
    assert_true(sandbox_info(sb)->has_memory);
    struct sandbox *other = sandbox_find(w->core, str_of(id[1]));
    assert_int_equal(state_of(other), SANDBOX_PAUSED);
    assert_false(sandbox_info(other)->has_memory);
    assert_true(sandbox_info(other)->pause_files_only);
    world_turns(w, 300); /* its deadline is long past */
    assert_int_equal(state_of(other), SANDBOX_PAUSED);
    world_resume(w, sb, NULL);
    assert_int_equal(w->attaches, 1);
    WAIT(w, !list_empty(&sb->processes));
    feed(w, sb, cat.pid, "x");
    world_resume(w, other, NULL);
    assert_int_equal(world_count_events(w, id[0], EVENT_SANDBOX_PAUSED), 1);
}

static void another_coved(void **state)
{
    struct world *w = *state;
    char id[ID_SANDBOX_LEN + 1];
    struct sandbox *sb = world_sandbox(w, NULL);
    memcpy(id, sandbox_info(sb)->id, sizeof(id));
    world_pause(w, sb, true);
    world_lose_memory(w);
    char *stranger = mem_strdup("i0123456789abcdefghij");
    (void)map_put(&w->kept, str_of(stranger), stranger);
    sb = world_restart(w, id);
    assert_int_equal(state_of(sb), SANDBOX_PAUSED);
    assert_false(sandbox_info(sb)->has_memory);
    assert_int_equal(world_count_events(w, id, EVENT_SANDBOX_PAUSED), 2);
    assert_non_null(strstr(world_event_data(w, id, EVENT_SANDBOX_PAUSED), "\"lost\":"));
    WAIT(w, w->kills == 1); /* of the stranger */
    world_resume(w, sb, NULL);
    assert_int_equal(w->creates, 2);
}

/* The worker died between its request and the answer. */
static void half_way(void **state)
{
    struct world *w = *state;
    char id[ID_SANDBOX_LEN + 1];
    static struct world_outcome o;
    o = (struct world_outcome){0};
    struct err err;
    struct sandbox *sb = world_sandbox(w, NULL);
    memcpy(id, sandbox_info(sb)->id, sizeof(id));
    w->holds = true;
    assert_int_equal(sandbox_pause(sb, &test_actor, true, world_on_done, &o, &err), 0);
    WAIT(w, w->held_tag);
    w->held_tag = 0;
    sb = world_restart(w, id); /* it is frozen, and that was wanted */
    assert_int_equal(state_of(sb), SANDBOX_PAUSED);
    w->holds = false;
    world_resume(w, sb, NULL);
    world_pause(w, sb, true);
    w->holds = true;
    assert_int_equal(world_resume_begin(sb, NULL, &o, &err), 0);
    WAIT(w, w->held_tag);
    sb = world_restart(w, id); /* it runs, and that was wanted */
    assert_int_equal(state_of(sb), SANDBOX_RUNNING);
    assert_false(sandbox_info(sb)->has_memory);
    w->holds = false;
    world_agent(w, sb)->is_frozen = true; /* nobody knows why */
    world_agent(w, sb)->deaf = true;
    sb = world_restart(w, id);
    WAIT(w, state_of(sb) == SANDBOX_RUNNING);
    assert_false(world_agent(w, sb)->is_frozen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(goes_on_where_it_was, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(who_joins_a_resume_is_on_record, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(deadlines_of_processes_wait, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(questions_wait, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(at_the_deadline, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(at_the_deadline_files_only, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(files_alone, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(memory_given_up, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(sessions_that_break, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(refused_by_coved, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(cold_start_fails, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(killed_on_the_way, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(killed_while_paused, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(ends_by_itself, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(expires_while_it_is_paused_by_hand, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(service_stops_meanwhile, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(paused_ones_do_not_count, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(woken, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(not_woken, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(another_worker, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(another_coved, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(half_way, world_setup, world_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
