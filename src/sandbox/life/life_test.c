/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes from their creation to their end, and what clients are told. */
#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/life/life.h"
#include "sandbox/test_world.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

struct watching {
    struct sandbox_watch watch;
    unsigned calls;
};

static void on_watched(struct sandbox_watch *w, struct sandbox *sb)
{
    assert_true(sandbox_state_is_over(sandbox_info(sb)->state));
    container_of(w, struct watching, watch)->calls++;
}

static int create(struct world *w, const char *ref, struct world_outcome *o, struct err *err)
{
    struct sandbox_spec spec = {.template_ref = str_of(ref), .timeout_ms = 300000};
    return sandbox_create(w->core, &test_actor, &spec, world_on_done, o, err);
}

static void create_and_kill(void **state)
{
    struct world *w = *state;
    struct pair metadata[] = {{STR("b"), STR("2")}, {STR("a"), STR("1 \xc3\xa9")}};
    struct pair envs[] = {{STR("TOKEN"), STR("x")}};
    struct sandbox_spec spec = {
        .timeout_ms = 60000, .secure = true, .metadata = metadata, .n_metadata = 2, .envs = envs, .n_envs = 1};
    struct sandbox *sb = world_sandbox(w, &spec);
    const struct sandbox_info *i = sandbox_info(sb);
    assert_int_equal(i->state, SANDBOX_RUNNING);
    assert_true(id_is_sandbox(str_of(i->id)));
    assert_string_equal(i->template_id, "base-1");
    assert_string_equal(i->template_alias, "base");
    assert_int_equal(i->cpu_milli, 1000);
    assert_int_equal(i->memory_bytes, 268435456);
    assert_int_equal(i->end_at, i->started + 60000 * USEC_PER_MS);
    assert_int_equal(strlen(i->access_token), 40);
    assert_int_equal(i->n_metadata, 2);
    assert_true(str_eqc(i->metadata[0].key, "b"));
    assert_int_equal(i->n_envs, 2); /* the template's, too */
    assert_ptr_equal(sandbox_find(w->core, str_of(i->id)), sb);
    char longer[64];
    (void)snprintf(longer, sizeof(longer), "%s-abcdef", i->id);
    assert_ptr_equal(sandbox_find(w->core, str_of(longer)), sb);
    assert_null(sandbox_find(w->core, STR("i0000000000000000000x")));
    assert_ptr_equal(sandbox_only(w->core, &test_actor.who), sb);
    assert_int_equal(sandbox_count(w->core), 1);

    struct world_outcome killed = {0};
    struct err err;
    struct watching watching = {.watch.fn = on_watched};
    sandbox_watch_end(sb, &watching.watch);
    assert_int_equal(sandbox_kill(sb, &test_actor, world_on_done, &killed, &err), 0);
    assert_int_equal(killed.calls, 0);
    assert_int_equal(watching.calls, 0);
    assert_int_equal(sandbox_count(w->core), 0);
    assert_null(sandbox_only(w->core, &test_actor.who));
    assert_int_equal(sandbox_kill(sb, &test_actor, world_on_done, &killed, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    WAIT(w, killed.calls == 1 && i->state == SANDBOX_ENDED);
    assert_ptr_equal(killed.sb, sb);
    assert_int_equal(watching.calls, 1);
    assert_string_equal(i->end_cause, "killed");
    assert_true(i->ended >= i->started);
    assert_ptr_equal(sandbox_find(w->core, str_of(i->id)), sb);
    sandbox_watch_end(sb, &watching.watch); /* too late, but told all the same */
    assert_int_equal(watching.calls, 1);
    WAIT(w, watching.calls == 2);
    assert_int_equal(world_count_events(w, i->id, EVENT_SANDBOX_CREATE), 1);
    assert_int_equal(world_count_events(w, i->id, EVENT_SANDBOX_STARTED), 1);
    assert_int_equal(world_count_events(w, i->id, EVENT_SANDBOX_KILL), 1);
    assert_int_equal(world_count_events(w, i->id, EVENT_SANDBOX_ENDED), 1);
    assert_string_equal(world_event_data(w, i->id, EVENT_SANDBOX_ENDED),
                        "{\"cause\":\"killed\",\"status\":0,\"oom_kills\":0}");
    assert_int_equal(sandbox_set_timeout(sb, &test_actor, 1000, false, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void refused_at_once(void **state)
{
    struct world *w = *state;
    struct world_outcome o = {0};
    struct err err;
    assert_int_equal(create(w, "nothing", &o, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(create(w, "", &o, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    assert_int_equal(create(w, "base:other", &o, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    struct pair bad[] = {{STR("A=B"), STR("")}};
    struct sandbox_spec spec = {.template_ref = STR("base"), .envs = bad, .n_envs = 1};
    assert_int_equal(sandbox_create(w->core, &test_actor, &spec, world_on_done, &o, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    bad[0].key = STR("X\0Y");
    assert_int_equal(sandbox_create(w->core, &test_actor, &spec, world_on_done, &o, &err), -1);
    spec.n_envs = 0;
    spec.pause_files_only = true; /* when? */
    assert_int_equal(sandbox_create(w->core, &test_actor, &spec, world_on_done, &o, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    spec.pause_files_only = false;
    spec.timeout_ms = w->config.max_timeout_ms + 1;
    assert_int_equal(sandbox_create(w->core, &test_actor, &spec, world_on_done, &o, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    assert_int_equal(o.calls, 0);
    assert_int_equal(w->creates, 0);
}

static void supervisor_refuses(void **state)
{
    struct world *w = *state;
    struct world_outcome o = {0};
    struct err err;
    w->create_error = ERR_RESOURCE_EXHAUSTED;
    assert_int_equal(create(w, "base", &o, &err), 0);
    WAIT(w, o.calls == 1);
    assert_null(o.sb);
    assert_int_equal(o.err.code, ERR_RESOURCE_EXHAUSTED);
    assert_string_equal(o.err.msg, "mount overlay: no space left on device");
    assert_int_equal(w->core->n_creating, 0);
    assert_int_equal(sandbox_count(w->core), 0);
}

static void agent_never_answers(void **state)
{
    struct world *w = *state;
    struct world_outcome o = {0};
    struct err err;
    w->agents_mute = true;
    assert_int_equal(create(w, "base", &o, &err), 0);
    WAIT(w, o.calls == 1);
    assert_null(o.sb);
    assert_int_equal(o.err.code, ERR_UNAVAILABLE);
    WAIT(w, map_count(&w->agents) == 0);
    assert_int_equal(w->kills, 1);
    assert_int_equal(w->core->n_creating, 0);
}

static void dies_while_made(void **state)
{
    struct world *w = *state;
    struct world_outcome o = {0};
    struct err err;
    w->agents_mute = true;
    assert_int_equal(create(w, "base", &o, &err), 0);
    WAIT(w, map_count(&w->agents) == 1);
    size_t it = 0;
    world_end_agent(w, map_next(&w->agents, &it), SUP_CAUSE_EXITED);
    WAIT(w, o.calls == 1);
    assert_null(o.sb);
    assert_int_equal(o.err.code, ERR_UNAVAILABLE);
    world_turns(w, 20);
    assert_int_equal(o.calls, 1);
}

static void ends_by_itself(void **state)
{
    static const struct {
        enum sup_cause cause;
        const char *name;
    } ends[] = {{SUP_CAUSE_EXITED, "exited"},
                {SUP_CAUSE_SIGNALED, "signaled"},
                {SUP_CAUSE_OOM, "oom"},
                {SUP_CAUSE_SHUTDOWN, "shutdown"}};
    struct world *w = *state;
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        struct sandbox *sb = world_sandbox(w, NULL);
        world_end_agent(w, world_agent(w, sb), ends[i].cause);
        WAIT(w, sandbox_info(sb)->state == SANDBOX_ENDED);
        assert_string_equal(sandbox_info(sb)->end_cause, ends[i].name);
        assert_int_equal(world_count_events(w, sandbox_info(sb)->id, EVENT_SANDBOX_ENDED), 1);
    }
}

struct last_words {
    struct sandbox *sb;
    unsigned errors;
    size_t events;
    enum event_kind kinds[16];
};

static const struct exec_spec sleeper = {.cmd = STR("sleep")};

static void on_exec_end(void *ctx, const struct exec_exit *exit, const struct err *err);

static const struct exec_ops exec_ops = {.on_end = on_exec_end};

static void on_exec_end(void *ctx, const struct exec_exit *exit, const struct err *err)
{
    struct last_words *l = ctx;
    assert_null(exit);
    struct follow *follow;
    struct err local;
    assert_int_equal(err->code, ERR_UNAVAILABLE);
    l->errors++;
    /* Who hears of the end can't begin anything any more. */
    assert_int_equal(exec_start(l->sb, &test_actor, &sleeper, &exec_ops, l, &follow, &local), -1);
    assert_int_equal(local.code, ERR_NOT_FOUND);
}

static bool note_kind(const struct event *e, void *ctx)
{
    struct last_words *l = ctx;
    assert_true(l->events < ARRAY_SIZE(l->kinds));
    l->kinds[l->events++] = e->kind;
    return true;
}

/* coved's word comes before its sandbox's socket closes, or before the session that a kill closes has ended its
 * streams. */
static void end_is_last(void **state)
{
    struct world *w = *state;
    for (int killed = 0; killed <= 1; killed++) {
        struct last_words l = {.sb = world_sandbox(w, NULL)};
        struct sup_ended ended = {.cause = killed ? SUP_CAUSE_KILLED : SUP_CAUSE_EXITED};
        struct world_outcome o = {0};
        struct follow *follow;
        struct err err;
        const char *id = sandbox_info(l.sb)->id;
        assert_int_equal(exec_start(l.sb, &test_actor, &sleeper, &exec_ops, &l, &follow, &err), 0);
        WAIT(w, world_count_events(w, id, EVENT_EXEC_STARTED) == 1);
        memcpy(ended.id, id, ID_SANDBOX_LEN);
        if (killed)
            assert_int_equal(sandbox_kill(l.sb, &test_actor, world_on_done, &o, &err), 0);
        assert_int_equal(l.errors, 0);
        sandbox_on_ended(w->core, &ended);
        assert_int_equal(sandbox_info(l.sb)->state, SANDBOX_ENDED);
        assert_int_equal(l.errors, 1);
        world_turns(w, 30);
        assert_int_equal(l.errors, 1);
        assert_int_equal(o.calls, killed);
        assert_int_equal(world_count_events(w, id, EVENT_EXEC_FAILED), 1);
        assert_true(event_read(w->events, id, 0, 100, note_kind, &l, &err) > 0);
        assert_int_equal(l.kinds[l.events - 1], EVENT_SANDBOX_ENDED);
    }
}

/* However many end, the latest alone stay in memory, and the first goes before its time. */
static void ended_ones_are_bounded(void **state)
{
    struct world *w = *state;
    char first[ID_SANDBOX_LEN + 1], id[ID_SANDBOX_LEN + 1] = "";
    for (size_t i = 0; i <= SANDBOX_KEEP_ENDED_MAX; i++) {
        struct sup_ended ended = {.cause = SUP_CAUSE_EXITED};
        memcpy(id, sandbox_info(world_sandbox(w, NULL))->id, sizeof(id));
        if (i == 0)
            memcpy(first, id, sizeof(first));
        if (i == SANDBOX_KEEP_ENDED_MAX)
            assert_non_null(sandbox_find(w->core, str_of(first)));
        memcpy(ended.id, id, ID_SANDBOX_LEN);
        sandbox_on_ended(w->core, &ended);
    }
    WAIT(w, w->core->n_ended == SANDBOX_KEEP_ENDED_MAX);
    assert_null(sandbox_find(w->core, str_of(first)));
    assert_non_null(sandbox_find(w->core, str_of(id)));
}

static void agent_hangs_up(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    fake_hang_up(world_agent(w, sb)); /* but lives on */
    WAIT(w, sandbox_info(sb)->state == SANDBOX_FAILED);
    assert_int_equal(map_count(&w->agents), 0);
    assert_int_equal(world_count_events(w, sandbox_info(sb)->id, EVENT_AGENT_LOST), 1);
}

static void expires(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_expiring(w, NULL, 60), *other = world_sandbox(w, NULL);
    WAIT(w, sandbox_info(sb)->state == SANDBOX_ENDED);
    assert_true(sandbox_info(sb)->ended >= sandbox_info(sb)->end_at);
    assert_string_equal(sandbox_info(sb)->end_cause, "timeout");
    assert_int_equal(world_count_events(w, sandbox_info(sb)->id, EVENT_SANDBOX_EXPIRED), 1);
    assert_int_equal(sandbox_info(other)->state, SANDBOX_RUNNING);

    struct err err;
    usec_t end_at = sandbox_info(other)->end_at;
    assert_int_equal(sandbox_set_timeout(other, &test_actor, 1000, true, &err), 0);
    assert_int_equal(sandbox_info(other)->end_at, end_at); /* never earlier */
    assert_int_equal(sandbox_set_timeout(other, &test_actor, 600000, true, &err), 0);
    assert_true(sandbox_info(other)->end_at > end_at);
    assert_int_equal(sandbox_set_timeout(other, &test_actor, 0, false, &err), 0);
    assert_int_equal(sandbox_info(other)->state, SANDBOX_RUNNING); /* not from within */
    WAIT(w, sandbox_info(other)->state == SANDBOX_ENDED);
}

static void expires_while_made(void **state)
{
    struct world *w = *state;
    struct world_outcome o = {0};
    struct err err;
    struct sandbox_spec spec = {.template_ref = STR("base"), .timeout_ms = 20};
    w->agents_mute = true;
    assert_int_equal(sandbox_create(w->core, &test_actor, &spec, world_on_done, &o, &err), 0);
    WAIT(w, o.calls == 1);
    assert_null(o.sb);
    WAIT(w, map_count(&w->agents) == 0);
    world_turns(w, 20);
    assert_int_equal(o.calls, 1);
}

static void end_comes_late(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct world_outcome o = {0};
    struct err err;
    w->ended_is_late = true;
    assert_int_equal(sandbox_kill(sb, &test_actor, world_on_done, &o, &err), 0);
    WAIT(w, o.calls == 1);
    assert_int_equal(sandbox_info(sb)->state, SANDBOX_STOPPING);
    assert_int_equal(sandbox_set_timeout(sb, &test_actor, 5000, false, &err), -1);
    world_end_agent(w, world_agent(w, sb), SUP_CAUSE_KILLED);
    WAIT(w, sandbox_info(sb)->state == SANDBOX_ENDED);
    assert_int_equal(o.calls, 1);
}

static bool take_id(void *ctx, struct sandbox *sb)
{
    struct sandbox ***at = ctx;
    *(*at)++ = sb;
    return true;
}

static void many(void **state)
{
    enum { N = 1000 };
    struct world *w = *state;
    struct world_outcome *o = mem_array(N, sizeof(*o));
    struct sandbox **list = mem_array(N, sizeof(*list)), **at = list;
    struct err err;
    for (unsigned i = 0; i < N; i++) {
        assert_int_equal(create(w, "base", &o[i], &err), 0);
        if (i % 50 == 49)
            WAIT(w, o[i].calls == 1 && w->core->n_creating == 0);
    }
    assert_int_equal(sandbox_count(w->core), N);
    sandbox_each(w->core, take_id, &at);
    assert_int_equal(at - list, N);
    for (unsigned i = 1; i < N; i++)
        assert_true(sandbox_info(list[i - 1])->started >= sandbox_info(list[i])->started);
    for (unsigned i = 0; i < N; i++) {
        assert_int_equal(o[i].calls, 1);
        assert_int_equal(sandbox_kill(o[i].sb, &test_actor, world_on_done, &o[i], &err), 0);
        if (i % 50 == 49)
            world_turn(w);
    }
    WAIT(w, map_count(&w->agents) == 0);
    WAIT(w, o[N - 1].calls == 2);
    assert_int_equal(sandbox_count(w->core), 0);
    mem_free(o);
    mem_free(list);
}

static void too_many(void **state)
{
    struct world *w = *state;
    struct world_outcome o = {0};
    struct err err;
    w->core->config.max_sandboxes = 2;
    (void)world_sandbox(w, NULL);
    struct sandbox *sb = world_sandbox(w, NULL);
    assert_int_equal(create(w, "base", &o, &err), -1);
    assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(sandbox_kill(sb, &test_actor, world_on_done, &o, &err), 0);
    assert_int_equal(create(w, "base", &o, &err), 0);
    WAIT(w, o.calls == 2);
}

static void guarded(void **state)
{
    static const struct guard_rule rules[] = {
        {"no-kill", EVENT_SANDBOX_KILL, "test", GUARD_DENY},
        {"no-robots", EVENT_KIND_UNKNOWN, "robot:", GUARD_DENY},
    };
    static struct guard_rules table = {rules, ARRAY_SIZE(rules), GUARD_ALLOW};
    static const struct guard guard = {guard_rules_decide, &table};
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct world_outcome o = {0};
    struct err err;
    w->core->guard = &guard;
    assert_int_equal(sandbox_kill(sb, &test_actor, world_on_done, &o, &err), -1);
    assert_int_equal(err.code, ERR_PERMISSION_DENIED);
    assert_int_equal(sandbox_info(sb)->state, SANDBOX_RUNNING);
    assert_int_equal(sandbox_set_timeout(sb, &(struct actor){.name = "robot:1"}, 5000, false, &err), -1);
    assert_int_equal(err.code, ERR_PERMISSION_DENIED);
    assert_int_equal(sandbox_set_timeout(sb, &test_actor, 5000, false, &err), 0);
    assert_int_equal(world_count_events(w, sandbox_info(sb)->id, EVENT_GUARD_DENIED), 2);
    assert_int_equal(world_count_events(w, sandbox_info(sb)->id, EVENT_SANDBOX_KILL), 0);
}

static void on_sample(void *ctx, const struct sandbox_sample *sample, const struct err *err)
{
    struct sandbox_sample *to = ctx;
    assert_null(err);
    *to = *sample;
}

static void figures(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct sandbox_sample sample = {0};
    struct err err;
    size_t n;
    (void)sandbox_samples(sb, &n);
    assert_int_equal(n, 0);
    assert_int_equal(sandbox_sample_now(sb, on_sample, &sample, &err), 0);
    assert_int_equal(sample.at, 0);
    WAIT(w, sample.at != 0);
    assert_int_equal(sample.memory_used, 5 << 20);
    assert_int_equal(sample.cpu_count, 1);
    WAIT(w, sandbox_samples(sb, &n) && n > 0);
}

static bool count_line(void *ctx, usec_t at, const char *level, const char *logger, const char *message)
{
    unsigned *n = ctx;
    assert_true(at > 0 && level[0] && logger[0] && message[0]);
    return ++*n < 3;
}

static void logs(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct err err;
    unsigned n = 0;
    for (int i = 0; i < 5; i++)
        assert_int_equal(sandbox_set_timeout(sb, &test_actor, 100000, false, &err), 0);
    world_turns(w, 20);
    struct str id = str_of(sandbox_info(sb)->id);
    assert_int_equal(sandbox_logs_back(w->core, id, 0, UINT64_MAX, 100, count_line, &n, &err), 0);
    assert_int_equal(n, 3);
    n = 0;
    usec_t later = clock_real() + USEC_PER_SEC;
    assert_int_equal(sandbox_logs_back(w->core, id, later, UINT64_MAX, 100, count_line, &n, &err), 0);
    assert_int_equal(n, 0);
    assert_int_equal(sandbox_logs_back(w->core, STR("../etc"), 0, UINT64_MAX, 100, count_line, &n, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void supervisor_dies(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct world_outcome o = {0};
    struct err err;
    w->kill_mute = true;
    assert_int_equal(sandbox_kill(sb, &test_actor, world_on_done, &o, &err), 0);
    world_turns(w, 20);
    assert_int_equal(o.calls, 0);
    world_hang_up(w);
    WAIT(w, w->supervisor_lost);
    assert_int_equal(o.calls, 1);
    assert_int_equal(o.err.code, ERR_UNAVAILABLE);
    assert_int_equal(create(w, "base", &o, &err), 0);
    WAIT(w, o.calls == 2);
    assert_int_equal(o.err.code, ERR_UNAVAILABLE);
}

static int refuse(void *ctx, struct err *err)
{
    (*(unsigned *)ctx)++;
    return err_set(err, ERR_RESOURCE_EXHAUSTED, "the disk is full");
}

static bool is_ended_in_store(struct world *w, const char *id, const char *cause)
{
    AUTO_ARENA struct arena arena = ARENA_INIT;
    struct store_sandbox row;
    struct err err;
    assert_int_equal(sandbox_rows_get(w->store, id, &arena, &row, &err), 0);
    return row.ended_at != 0 && strcmp(row.end_cause, cause) == 0;
}

/* The store takes nothing while they end, one killed and one by itself; it is told when it does again, be it at the
 * last moment. */
static void ends_wait_for_the_store(void **state)
{
    struct world *w = *state;
    static struct store_hook hook; /* outlives a test that fails */
    static unsigned refused;
    for (int closes = 0; closes <= 1; closes++) {
        struct sandbox *killed = world_sandbox(w, NULL), *exited = world_sandbox(w, NULL),
                       *lives = world_sandbox(w, NULL);
        char killed_id[ID_SANDBOX_LEN + 1], exited_id[ID_SANDBOX_LEN + 1];
        struct world_outcome o = {0};
        struct err err;
        refused = 0;
        hook = (struct store_hook){.committing = refuse, .ctx = &refused};
        memcpy(killed_id, sandbox_info(killed)->id, sizeof(killed_id));
        memcpy(exited_id, sandbox_info(exited)->id, sizeof(exited_id));
        world_turns(w, 20);
        store_hook_add(w->store, &hook);
        assert_int_equal(sandbox_kill(killed, &test_actor, world_on_done, &o, &err), 0);
        world_end_agent(w, world_agent(w, exited), SUP_CAUSE_OOM);
        WAIT(w, o.calls == 1 && sandbox_info(killed)->state == SANDBOX_ENDED);
        WAIT(w, sandbox_info(exited)->state == SANDBOX_ENDED);
        unsigned before = refused;
        WAIT(w, refused >= before + (closes ? 1 : 3)); /* it is tried again */
        assert_false(is_ended_in_store(w, killed_id, "killed"));
        assert_false(is_ended_in_store(w, exited_id, "oom"));
        store_hook_remove(&hook);
        if (closes) {
            world_close(w);
            world_open(w);
        }
        WAIT(w, is_ended_in_store(w, killed_id, "killed"));
        WAIT(w, is_ended_in_store(w, exited_id, "oom"));
        assert_int_equal(world_count_events(w, killed_id, EVENT_SANDBOX_ENDED), 1);
        assert_int_equal(world_count_events(w, exited_id, EVENT_SANDBOX_ENDED), 1);
        assert_string_equal(world_event_data(w, exited_id, EVENT_SANDBOX_ENDED),
                            "{\"cause\":\"oom\",\"status\":0,\"oom_kills\":0}");
        if (!closes)
            assert_int_equal(sandbox_info(lives)->state, SANDBOX_RUNNING);
    }
}

static bool is_stored(struct world *w, const char *id)
{
    AUTO_ARENA struct arena arena = ARENA_INIT;
    struct store_sandbox row;
    struct err err;
    return sandbox_rows_get(w->store, id, &arena, &row, &err) == 0;
}

static void old_ones_are_forgotten(void **state)
{
    struct world *w = *state;
    char ids[3][ID_SANDBOX_LEN + 1];
    struct err err;
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        struct sandbox *sb = world_sandbox(w, NULL);
        struct world_outcome o = {0};
        memcpy(ids[i], sandbox_info(sb)->id, sizeof(ids[i]));
        assert_int_equal(sandbox_kill(sb, &test_actor, world_on_done, &o, &err), 0);
        WAIT(w, o.calls == 1 && o.sb && sandbox_info(o.sb)->state == SANDBOX_ENDED);
        assert_true(world_count_events(w, ids[i], EVENT_SANDBOX_CREATE) == 1);
    }
    world_close(w);
    w->config.keep_ended = 1;
    world_open(w);
    WAIT(w, !is_stored(w, ids[0]) && !is_stored(w, ids[1]));
    assert_true(is_stored(w, ids[2]));
    assert_true(world_count_events(w, ids[0], EVENT_SANDBOX_CREATE) == 0);
    assert_true(world_count_events(w, ids[2], EVENT_SANDBOX_CREATE) == 1);
}

static void moves(void **state)
{
    (void)state;
    assert_true(sandbox_state_may(SANDBOX_CREATING, SANDBOX_RUNNING));
    assert_false(sandbox_state_may(SANDBOX_CREATING, SANDBOX_ENDED));
    for (int to = SANDBOX_CREATING; to <= SANDBOX_FAILED; to++) {
        assert_false(sandbox_state_may(SANDBOX_ENDED, (enum sandbox_state)to));
        assert_false(sandbox_state_may(SANDBOX_FAILED, (enum sandbox_state)to));
        assert_false(sandbox_state_may((enum sandbox_state)to, SANDBOX_CREATING));
    }
    assert_string_equal(sandbox_state_name(SANDBOX_PAUSED), "paused");
}

static void never_and_at_once(void **state)
{
    struct world *w = *state;
    struct sandbox_spec spec = {.timeout_ms = 60000, .pause_on_timeout = true};
    struct sandbox *sb = world_sandbox(w, &spec);
    const struct sandbox_info *i = sandbox_info(sb);
    struct err err;
    assert_int_equal(sandbox_set_timeout(sb, &test_actor, UINT64_MAX, true, &err), 0);
    assert_int_equal(i->end_at, 0);
    assert_int_equal(sandbox_set_timeout(sb, &test_actor, 1000, true, &err), 0); /* for ever is longer */
    assert_int_equal(i->end_at, 0);
    char id[ID_SANDBOX_LEN + 1];
    memcpy(id, i->id, sizeof(id));
    world_close(w);
    world_open(w);
    sb = sandbox_find(w->core, str_of(id));
    i = sandbox_info(sb);
    assert_int_equal(i->end_at, 0);
    WAIT(w, sb->session && session_is_ready(sb->session));
    assert_int_equal(sandbox_set_timeout(sb, &test_actor, 70000, false, &err), 0);
    assert_int_equal(sandbox_set_timeout(sb, &test_actor, 0, false, &err), 0);
    WAIT(w, i->state == SANDBOX_PAUSED);
    assert_int_equal(i->timeout_ms, 70000); /* what it is resumed for */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

/* Told once when it is full, and again only after there was room. */
static void disk_fills(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    const char *id = sandbox_info(sb)->id;
    static const struct {
        uint64_t used;
        size_t events;
    } steps[] = {{10, 0}, {990, 1}, {1000, 1}, {950, 1}, {995, 1}, {500, 1}, {1000, 2}, {0, 2}};
    w->disk_limit = 1000;
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        struct sandbox_sample sample = {0};
        struct err err;
        w->disk_used = steps[i].used;
        assert_int_equal(sandbox_sample_now(sb, on_sample, &sample, &err), 0);
        WAIT(w, sample.at != 0);
        assert_int_equal(world_count_events(w, id, EVENT_LIMIT_DISK), steps[i].events);
        if (steps[i].used) {
            assert_int_equal(sample.disk_used, steps[i].used);
            assert_int_equal(sample.disk_total, 1000);
            assert_true(sample.disk_is_counted && sample.disk_is_limited);
        }
    }
}

/* One of the samples that come by themselves, now. */
static void sample_regularly(struct world *w, struct sandbox *sb)
{
    unsigned usages = w->usages;
    sb->disk_asked = true;
    loop_alarm_set(sb->core->loop, &sb->sample_alarm, clock_mono(), sb->sample_alarm.fn);
    WAIT(w, w->usages > usages);
    world_turns(w, 10);
}

/* Of many sandboxes each keeps less, the oldest in the longest steps. */
static void samples_are_bounded_for_all(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    size_t n, live = w->core->n_live;
    const struct sandbox_sample *samples;
    for (int i = 0; i < SANDBOX_SAMPLES_LEAST + 40; i++)
        sample_regularly(w, sb);
    samples = sandbox_samples(sb, &n);
    assert_true(n > SANDBOX_SAMPLES_LEAST);
    usec_t first = samples[0].at, last = samples[n - 1].at;
    w->core->n_live = 1 << 20;
    sample_regularly(w, sb);
    w->core->n_live = live;
    samples = sandbox_samples(sb, &n);
    assert_true(n <= SANDBOX_SAMPLES_LEAST && sb->cap_samples <= SANDBOX_SAMPLES_LEAST);
    assert_int_equal(samples[0].at, first);
    assert_true(samples[n - 1].at > last);
    for (size_t i = 1; i < n; i++)
        assert_true(samples[i].at > samples[i - 1].at);
}

/* Told once while it is refused more, and again only after a period in which it was not. What is looked at out of turn
 * ends no period. */
static void processes_run_out(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    const char *id = sandbox_info(sb)->id;
    static const struct {
        bool is_regular;
        uint32_t refused;
        size_t events;
    } steps[] = {{true, 0, 0},   {false, 7, 1},   {true, 7, 1},   {true, 900, 1},  {false, 950, 1}, {true, 950, 1},
                 {true, 950, 1}, {false, 950, 1}, {true, 960, 2}, {false, 961, 2}, {true, 961, 2}};
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        struct sandbox_sample sample = {0};
        struct err err;
        w->pids_refused = steps[i].refused;
        if (steps[i].is_regular) {
            sample_regularly(w, sb);
        } else {
            assert_int_equal(sandbox_sample_now(sb, on_sample, &sample, &err), 0);
            WAIT(w, sample.at != 0);
        }
        assert_int_equal(world_count_events(w, id, EVENT_LIMIT_PIDS), steps[i].events);
    }
    assert_string_equal(world_event_data(w, id, EVENT_LIMIT_PIDS), "{\"limit\":64,\"refused\":953}");
}

/* What one worker told the next one does not tell again, and what came in between is not lost. */
static void told_by_the_worker_before(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    char id[ID_SANDBOX_LEN + 1];
    memcpy(id, sandbox_info(sb)->id, sizeof(id));
    w->pids_refused = w->oom_kills = 3;
    w->disk_used = w->disk_limit = 1000;
    sample_regularly(w, sb);
    for (unsigned more = 0; more < 2; more++) {
        w->oom_kills += more;
        sb = world_restart(w, id);
        sample_regularly(w, sb);
        assert_int_equal(world_count_events(w, id, EVENT_LIMIT_PIDS), 1);
        assert_int_equal(world_count_events(w, id, EVENT_LIMIT_DISK), 1);
        assert_int_equal(world_count_events(w, id, EVENT_LIMIT_OOM), 1 + more);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(create_and_kill),
        TEST(refused_at_once),
        TEST(supervisor_refuses),
        TEST(agent_never_answers),
        TEST(dies_while_made),
        TEST(ends_by_itself),
        TEST(end_is_last),
        TEST(agent_hangs_up),
        TEST(expires),
        TEST(expires_while_made),
        TEST(end_comes_late),
        TEST(many),
        TEST(too_many),
        TEST(guarded),
        TEST(figures),
        TEST(disk_fills),
        TEST(processes_run_out),
        TEST(samples_are_bounded_for_all),
        TEST(told_by_the_worker_before),
        TEST(never_and_at_once),
        TEST(logs),
        TEST(supervisor_dies),
        TEST(ends_wait_for_the_store),
        TEST(old_ones_are_forgotten),
        TEST(ended_ones_are_bounded),
        cmocka_unit_test(moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
