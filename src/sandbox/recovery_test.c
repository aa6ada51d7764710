/* SPDX-License-Identifier: Apache-2.0 */
/* A worker dies and another takes over: what lived lives, what was half done is undone, and the record goes on. */
#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/exec/exec_life.h"
#include "sandbox/exec/process.h"
#include "sandbox/record/record.h"
#include "sandbox/test_world.h"

#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

struct client {
    struct follow *follow;
    uint32_t pid;
    size_t bytes;
    char first;
    unsigned ends;
    bool slow;
};

static void on_start(void *ctx, uint32_t pid)
{
    ((struct client *)ctx)->pid = pid;
}

static void on_output(void *ctx, enum wire_channel channel, struct str bytes)
{
    struct client *c = ctx;
    (void)channel;
    if (!c->bytes)
        c->first = bytes.p[0];
    c->bytes += bytes.n;
    if (!c->slow)
        exec_ack(c->follow, bytes.n);
}

static void on_end(void *ctx, const struct exec_exit *exit, const struct err *err)
{
    struct client *c = ctx;
    (void)exit, (void)err;
    c->ends++;
}

static const struct exec_ops ops = {on_start, on_output, on_end, NULL};

static void run(struct sandbox *sb, struct client *c, const char *cmd, const char *arg, uint64_t timeout_ms)
{
    struct err err;
    struct str args[] = {str_of(arg)};
    struct exec_spec spec = {.cmd = str_of(cmd), .args = args, .n_args = arg ? 1 : 0, .timeout_ms = timeout_ms};
    assert_int_equal(exec_start(sb, &test_actor, &spec, &ops, c, &c->follow, &err), 0);
}

static void restart(struct world *w)
{
    world_close(w);
    world_open(w);
}

static struct sandbox *again(struct world *w, const char *id)
{
    struct sandbox *sb = sandbox_find(w->core, str_of(id));
    assert_non_null(sb);
    return sb;
}

static void taken_over(void **state)
{
    struct world *w = *state;
    struct pair metadata[] = {{STR("z"), STR("\"quoted\"\n")}, {STR("a"), STR("")}},
                envs[] = {{STR("TOKEN"), STR("x=y")}};
    struct sandbox_spec spec = {
        .timeout_ms = 600000, .secure = true, .metadata = metadata, .n_metadata = 2, .envs = envs, .n_envs = 1};
    struct sandbox *sb = world_sandbox(w, &spec), *newer = world_sandbox(w, NULL);
    struct err err;
    char id[ID_SANDBOX_LEN + 1], newer_id[ID_SANDBOX_LEN + 1], token[64];
    memcpy(id, sandbox_info(sb)->id, sizeof(id));
    memcpy(newer_id, sandbox_info(newer)->id, sizeof(id));
    (void)snprintf(token, sizeof(token), "%s", sandbox_info(sb)->access_token);
    assert_int_equal(sandbox_set_timeout(sb, &test_actor, 700000, false, &err), 0);
    struct sandbox_info before = *sandbox_info(sb);
    restart(w);
    sb = again(w, id);
    const struct sandbox_info *i = sandbox_info(sb);
    assert_int_equal(i->state, SANDBOX_RUNNING);
    assert_int_equal(i->end_at, before.end_at);
    assert_int_equal(i->started, before.started);
    assert_int_equal(i->timeout_ms, 700000);
    assert_string_equal(i->access_token, token);
    assert_string_equal(i->template_id, "base-1");
    assert_string_equal(i->template_alias, "base");
    assert_null(i->traffic_token);
    assert_int_equal(i->n_metadata, 2);
    assert_true(str_eqc(i->metadata[0].key, "z"));
    assert_true(str_eqc(i->metadata[0].value, "\"quoted\"\n"));
    assert_int_equal(i->n_envs, 2);
    assert_true(str_eqc(i->envs[1].value, "x=y"));
    assert_int_equal(sandbox_count(w->core), 2);
    assert_ptr_equal(LIST_FIRST(struct sandbox, &w->core->live, node), again(w, newer_id));
    /* Usable at once, before the agent said HELLO again. */
    struct client c = {0};
    run(sb, &c, "echo", "hi", 0);
    WAIT(w, c.ends);
    assert_int_equal(c.bytes, 3);
    assert_int_equal(world_count_events(w, id, EVENT_SERVICE_RECOVERED), 1);
    assert_int_equal(w->attaches, 2);
    assert_int_equal(w->kills, 0);
}

static void deadline_survives(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_expiring(w, NULL, 150);
    char id[ID_SANDBOX_LEN + 1];
    memcpy(id, sandbox_info(sb)->id, sizeof(id));
    world_close(w);
    world_open(w);
    sb = again(w, id);
    WAIT(w, sandbox_info(sb)->state == SANDBOX_ENDED);
    assert_string_equal(sandbox_info(sb)->end_cause, "timeout");
    assert_true(sandbox_info(sb)->ended >= sandbox_info(sb)->end_at);
}

static void lost_and_unknown(void **state)
{
    struct world *w = *state;
    struct sandbox *lost = world_sandbox(w, NULL), *stays = world_sandbox(w, NULL);
    char lost_id[ID_SANDBOX_LEN + 1], stays_id[ID_SANDBOX_LEN + 1];
    memcpy(lost_id, sandbox_info(lost)->id, sizeof(lost_id));
    memcpy(stays_id, sandbox_info(stays)->id, sizeof(stays_id));
    struct fake_agent *dead = world_agent(w, lost), *stranger = mem_new(struct fake_agent);
    world_close(w);
    (void)map_del(&w->agents, str_of(lost_id));
    fake_free(dead);
    id_sandbox(stranger->id);
    stranger->w = w;
    stranger->fd = -1;
    (void)map_put(&w->agents, str_of(stranger->id), stranger);
    world_open(w);
    assert_int_equal(sandbox_info(again(w, lost_id))->state, SANDBOX_ENDED);
    assert_string_equal(sandbox_info(again(w, lost_id))->end_cause, "lost");
    assert_int_equal(sandbox_info(again(w, stays_id))->state, SANDBOX_RUNNING);
    WAIT(w, map_count(&w->agents) == 1);
    assert_int_equal(w->kills, 1);
    assert_int_equal(world_count_events(w, lost_id, EVENT_SANDBOX_ENDED), 1);
    restart(w); /* ended ones are not looked at again */
    assert_null(sandbox_find(w->core, str_of(lost_id)));
    assert_int_equal(sandbox_count(w->core), 1);
}

static void on_made(void *ctx, struct sandbox *sb, const struct err *err)
{
    unsigned *calls = ctx;
    assert_null(sb);
    assert_int_equal(err->code, ERR_UNAVAILABLE);
    ++*calls;
}

static void half_made(void **state)
{
    struct world *w = *state;
    struct sandbox_spec spec = {.template_ref = STR("base"), .timeout_ms = 60000};
    struct err err;
    unsigned calls = 0;
    w->agents_mute = true;
    assert_int_equal(sandbox_create(w->core, &test_actor, &spec, on_made, &calls, &err), 0);
    WAIT(w, map_count(&w->agents) == 1);
    world_turns(w, 20);
    restart(w);
    assert_int_equal(calls, 1);
    assert_int_equal(sandbox_count(w->core), 0);
    assert_int_equal(w->core->n_creating, 0);
    WAIT(w, map_count(&w->agents) == 0);
    /* The same, but coved never heard of it. */
    w->create_mute = true;
    assert_int_equal(sandbox_create(w->core, &test_actor, &spec, on_made, &calls, &err), 0);
    world_turns(w, 20);
    restart(w);
    assert_int_equal(calls, 2);
    assert_int_equal(w->core->n_creating, 0);
    size_t failed = 0, it = 0;
    for (struct sandbox *sb; (sb = map_next(&w->core->by_id, &it));)
        failed += sandbox_info(sb)->state == SANDBOX_FAILED;
    assert_int_equal(failed, 1);
}

static void killed_but_not_dead(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct err err;
    w->kill_mute = true;
    assert_int_equal(sandbox_kill(sb, &test_actor, NULL, NULL, &err), 0);
    world_turns(w, 20);
    w->kill_mute = false;
    restart(w);
    assert_int_equal(sandbox_count(w->core), 0);
    WAIT(w, map_count(&w->agents) == 0);
}

/* The seq of the only action that has something kept of its output. */
static uint64_t kept_of(struct world *w, const char *id)
{
    assert_int_equal(test_sql_number(w->dir->db, "SELECT count(*) FROM artefacts WHERE sandbox = '%s'", id), 1);
    return (uint64_t)test_sql_number(w->dir->db, "SELECT seq FROM artefacts WHERE sandbox = '%s'", id);
}

/* All that "spew" writes. */
static void assert_artefact(struct world *w, const char *id, size_t n)
{
    struct err err;
    struct exec_kept kept;
    AUTO_BUF struct buf stored = BUF_INIT(1 << 20);
    world_turns(w, 20);
    assert_int_equal(exec_kept_output(w->core, id, kept_of(w, id), WIRE_STDOUT, &kept, &err), 0);
    assert_int_equal(kept.bytes, n);
    assert_int_equal(fd_read_all(kept.fd, &stored), 0);
    (void)fd_close(kept.fd);
    assert_int_equal(buf_len(&stored), n);
    for (size_t i = 0; i < n; i++)
        if (buf_data(&stored)[i] != (char)('a' + i % 23))
            fail_msg("byte %zu of the artefact is wrong", i);
    assert_non_null(strstr(world_event_data(w, id, EVENT_EXEC_EXIT), "\"sha256\":\""));
}

enum { DEADLINE_MS = 60000 };

/* That of a process which another worker started, and which nobody waits for. */
static void deadline_comes(struct world *w, struct sandbox *sb, uint32_t pid)
{
    const struct exec_select which = {.pid = pid};
    WAIT(w, process_find(sb, &which) && process_find(sb, &which)->alarm.slot);
    struct process *p = process_find(sb, &which);
    assert_true(p->alarm.at < clock_add_ms(clock_mono(), DEADLINE_MS));
    process_arm(p, clock_mono());
}

static void processes_go_on(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    char id[ID_SANDBOX_LEN + 1];
    memcpy(id, sandbox_info(sb)->id, sizeof(id));
    struct client silent = {0}, loud = {.slow = true}, ends_soon = {0}, deadline = {0};
    run(sb, &silent, "cat", NULL, 0);
    run(sb, &loud, "spew", "200000", 0);
    run(sb, &ends_soon, "echo", "gone", 0);
    run(sb, &deadline, "sleep", NULL, DEADLINE_MS);
    WAIT(w, silent.pid && loud.bytes == 200000 && ends_soon.ends && deadline.pid);
    exec_ack(loud.follow, 150000);
    WAIT(w, world_agent(w, sb)->processes->next->next->seen == 150000);
    world_turns(w, 20);
    restart(w);
    assert_int_equal(silent.ends + loud.ends + deadline.ends, 3); /* their clients were told */
    sb = again(w, id);
    struct fake_agent *a = world_agent(w, sb);
    WAIT(w, map_count(&a->streams) == 3);
    assert_int_equal(world_count_events(w, id, EVENT_EXEC_EXIT), 1);

    /* A client comes back: what nobody got, nothing twice. */
    struct client back = {0};
    struct err err;
    assert_int_equal(
        exec_attach(sb, &test_actor, &(struct exec_select){.pid = loud.pid}, 0, &ops, &back, &back.follow, &err), 0);
    WAIT(w, back.bytes == 50000);
    assert_int_equal(back.first, 'a' + 150000 % 23);

    /* The deadline of before still kills, when it has come. */
    deadline_comes(w, sb, deadline.pid);
    WAIT(w, a->signals >= 1);
    WAIT(w, world_count_events(w, id, EVENT_EXEC_EXIT) == 2);

    /* And the end is recorded under the action that another worker recorded, with all of its output. */
    struct exec_call *call;
    assert_int_equal(exec_signal(sb, &test_actor, &(struct exec_select){.pid = loud.pid}, 9, NULL, NULL, &call, &err),
                     0);
    exec_call_cancel(call);
    WAIT(w, back.ends && world_count_events(w, id, EVENT_EXEC_EXIT) == 3);
    assert_non_null(strstr(world_event_data(w, id, EVENT_EXEC_EXIT), "\"signal\":9,\"output_bytes\":200000"));
    assert_int_equal(world_count_events(w, id, EVENT_EXEC_OUTPUT), 2); /* not recorded again */
    assert_artefact(w, id, 200000);
}

enum { KEPT = 100, FLOOD = 5000 };

/* Much happens, and the log is shortened to the last of it. */
static void forget_the_beginning(struct world *w, struct sandbox *sb)
{
    struct event_bounds there;
    struct err err;
    for (int i = 0; i < FLOOD; i++)
        action_observe(sb, 0, EVENT_FILE_DONE, EVENT_CLAIMED, STR("{}"));
    world_turns(w, 20);
    history_look(sb);
    WAIT(w, !sb->history_alarm.slot);
    world_turns(w, 20);
    assert_int_equal(event_bounds_get(w->events, sandbox_info(sb)->id, &there, &err), 0);
    assert_in_range(there.last - there.first, KEPT, 2 * KEPT);
}

static bool runs(struct sandbox *sb, uint64_t cause)
{
    LIST_FOREACH (struct process, p, &sb->processes, node) {
        if (!p->ended && p->log.cause == cause)
            return true;
    }
    return false;
}

static void processes_outlive_their_beginning(void **state)
{
    struct world *w = *state;
    w->config.keep_events = KEPT;
    restart(w);
    struct sandbox *sb = world_sandbox(w, NULL);
    char id[ID_SANDBOX_LEN + 1];
    memcpy(id, sandbox_info(sb)->id, sizeof(id));
    struct client silent = {0}, loud = {.slow = true}, over = {0}, deadline = {0};
    run(sb, &over, "count", "100000", 0); /* something is kept of its output, too */
    WAIT(w, over.ends);
    run(sb, &silent, "cat", NULL, 0);
    run(sb, &loud, "spew", "200000", 0);
    run(sb, &deadline, "sleep", NULL, DEADLINE_MS);
    WAIT(w, silent.pid && loud.bytes == 200000 && deadline.pid);
    exec_ack(loud.follow, 150000);
    world_turns(w, 20);
    forget_the_beginning(w, sb);
    assert_int_equal(world_count_events(w, id, EVENT_EXEC_CARRIED), 3);
    assert_int_equal(world_count_events(w, id, EVENT_EXEC_START), 0);
    struct event_bounds there;
    struct err err;
    assert_true(runs(sb, kept_of(w, id)));

    /* The next worker knows them all the same, and so does the one after what was carried was carried again. */
    for (int i = 0; i < 2; i++) {
        restart(w);
        sb = again(w, id);
        struct fake_agent *a = world_agent(w, sb);
        WAIT(w, map_count(&a->streams) == 3);
        WAIT(w, !sb->taking_over);
        assert_int_equal(world_count_events(w, id, EVENT_EXEC_EXIT),
                         0); /* that of `over` is not recorded a second time */
        if (i == 0)
            forget_the_beginning(w, sb);
        assert_int_equal(world_count_events(w, id, EVENT_EXEC_CARRIED), 3);
    }
    assert_int_equal(event_bounds_get(w->events, id, &there, &err), 0);
    deadline_comes(w, sb, deadline.pid);
    WAIT(w, world_agent(w, sb)->signals >= 1);
    WAIT(w, world_count_events(w, id, EVENT_EXEC_EXIT) == 1);
    struct exec_call *call;
    assert_int_equal(exec_signal(sb, &test_actor, &(struct exec_select){.pid = loud.pid}, 9, NULL, NULL, &call, &err),
                     0);
    exec_call_cancel(call);
    WAIT(w, world_count_events(w, id, EVENT_EXEC_EXIT) == 2);
    assert_non_null(strstr(world_event_data(w, id, EVENT_EXEC_EXIT), "\"signal\":9,\"output_bytes\":200000"));
    assert_artefact(w, id, 200000);
}

static void ends_meanwhile(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    char id[ID_SANDBOX_LEN + 1];
    memcpy(id, sandbox_info(sb)->id, sizeof(id));
    struct client before = {0}, ends = {0};
    run(sb, &before, "echo", "recorded", 0);
    run(sb, &ends, "cat", NULL, 0);
    WAIT(w, before.ends && ends.pid);
    world_turns(w, 20);
    world_close(w);
    struct fake_agent *a = map_get(&w->agents, str_of(id));
    for (struct fake_process *p = a->processes; p; p = p->next) {
        if (p->pid != ends.pid)
            continue;
        (void)buf_append_cstr(&p->output, "last words");
        p->exited = true;
        p->code = 7;
    }
    world_open(w);
    WAIT(w, world_count_events(w, id, EVENT_EXEC_EXIT) == 2);
    assert_non_null(strstr(world_event_data(w, id, EVENT_EXEC_EXIT), "\"exit_code\":7,\"output_bytes\":10"));
    assert_non_null(strstr(world_event_data(w, id, EVENT_EXEC_OUTPUT), "last words"));
    world_turns(w, 20);
    restart(w); /* now all ends are recorded */
    world_turns(w, 100);
    assert_int_equal(world_count_events(w, id, EVENT_EXEC_EXIT), 2);
    assert_int_equal(world_count_events(w, id, EVENT_EXEC_OUTPUT), 2);
    struct client late = {0};
    struct err err;
    sb = again(w, id);
    assert_int_equal(
        exec_attach(sb, &test_actor, &(struct exec_select){.pid = ends.pid}, 0, &ops, &late, &late.follow, &err), 0);
    WAIT(w, late.ends && late.bytes == 10);
}

static void dies_before_the_start_is_stored(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    char id[ID_SANDBOX_LEN + 1];
    memcpy(id, sandbox_info(sb)->id, sizeof(id));
    struct client c = {0};
    run(sb, &c, "cmd", NULL, DEADLINE_MS); /* as the fake agent lists it */
    WAIT(w, c.pid);
    store_rollback(w->store); /* what a kill leaves of a batch */
    restart(w);
    assert_int_equal(world_count_events(w, id, EVENT_EXEC_START), 1); /* the action was stored before its answer came */
    struct fake_agent *a = map_get(&w->agents, str_of(id));
    deadline_comes(w, again(w, id), c.pid);
    WAIT(w, a->signals >= 1);
    WAIT(w, world_count_events(w, id, EVENT_EXEC_EXIT) == 1);
    assert_int_equal(world_count_events(w, id, EVENT_EXEC_STARTED), 1);
}

static void dies_at_each_step(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    char id[ID_SANDBOX_LEN + 1];
    memcpy(id, sandbox_info(sb)->id, sizeof(id));
    for (unsigned turns = 0; turns < 8; turns++) {
        struct client c = {0}, more = {0};
        run(sb, &c, "spew", "30000", 0);
        run(sb, &more, "cat", NULL, 0);
        for (unsigned i = 0; i < turns; i++)
            world_turn(w);
        restart(w);
        assert_int_equal(c.ends + more.ends, 2);
        for (unsigned i = 0; i < turns; i++) /* the taking over is interrupted as well */
            world_turn(w);
        restart(w);
        sb = again(w, id);
        assert_int_equal(sandbox_info(sb)->state, SANDBOX_RUNNING);
    }
    struct client c = {0};
    run(sb, &c, "echo", "still here", 0);
    WAIT(w, c.ends);
    assert_int_equal(w->kills, 0);
}

static void many(void **state)
{
    enum { N = 300 };
    struct world *w = *state;
    struct client c = {0};
    for (int i = 0; i < N; i++) {
        struct sandbox *sb = world_sandbox(w, NULL);
        if (i % 10 == 0) {
            run(sb, &c, "sleep", NULL, 0);
            WAIT(w, c.pid);
            exec_close(TAKE_PTR(c.follow));
        }
    }
    restart(w);
    assert_int_equal(sandbox_count(w->core), N);
    WAIT(w, w->attaches == N);
    world_turns(w, 50);
    assert_int_equal(sandbox_count(w->core), N);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(taken_over),
                                       TEST(deadline_survives),
                                       TEST(lost_and_unknown),
                                       TEST(half_made),
                                       TEST(killed_but_not_dead),
                                       TEST(processes_go_on),
                                       TEST(processes_outlive_their_beginning),
                                       TEST(ends_meanwhile),
                                       TEST(dies_at_each_step),
                                       TEST(many),
                                       TEST(dies_before_the_start_is_stored)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
