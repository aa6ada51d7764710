/* SPDX-License-Identifier: Apache-2.0 */
/* Pauses that fail, at the deadline of a sandbox and before it: what is tried again, what is tried otherwise, and what
 * ends. */
#include "sandbox/life/life.h"
#include "sandbox/life/pause.h"
#include "sandbox/test_world.h"

#include <setjmp.h>

#include <cmocka.h>

static enum sandbox_state state_of(const struct sandbox *sb)
{
    return sandbox_info(sb)->state;
}

/* It does not move the deadline of one that is to end then. */
static void a_pause_that_failed_before_the_deadline(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_expiring(w, NULL, 1000);
    static struct world_outcome o;
    struct err err;
    o = (struct world_outcome){0};
    w->pause_error = ERR_RESOURCE_EXHAUSTED;
    assert_int_equal(sandbox_pause(sb, &test_actor, true, world_on_done, &o, &err), 0);
    WAIT(w, o.calls == 1);
    assert_int_equal(state_of(sb), SANDBOX_RUNNING);
    assert_true(sb->end_alarm.at <= clock_mono() + USEC_PER_SEC);
    WAIT(w, state_of(sb) == SANDBOX_ENDED);
}

/* What can't be paused at its deadline for a reason that passes goes on, and its log does not fill up with the
 * tries. */
static void pauses_that_fail_at_the_deadline(void **state)
{
    struct world *w = *state;
    struct sandbox_spec spec = {.pause_on_timeout = true};
    w->pause_error = ERR_RESOURCE_EXHAUSTED;
    struct sandbox *sb = world_expiring(w, &spec, 1);
    usec_t wait_before = 0;
    for (int i = 0; i < 4; i++) {
        WAIT(w, w->pauses == (unsigned)i + 1 && state_of(sb) == SANDBOX_RUNNING && sb->end_retry);
        usec_t wait = sb->end_retry - clock_mono();
        assert_true(wait > wait_before && sb->end_alarm.at >= sb->end_retry);
        wait_before = wait;
        w->pause_error = ERR_UNAVAILABLE;
        sb->end_retry = 0; /* as if that time had gone by */
        sandbox_arm_end(sb);
    }
    w->pause_error = 0;
    WAIT(w, state_of(sb) == SANDBOX_PAUSED);
    assert_true(sandbox_info(sb)->has_memory);
    assert_int_equal(sb->end_tries, 0);
}

/* A sandbox that can't be stopped, which its processes can see to: three times, the last one just now. */
static struct sandbox *stuck_at_its_deadline(struct world *w)
{
    struct sandbox_spec spec = {.pause_on_timeout = true};
    w->pause_error = ERR_DEADLINE_EXCEEDED;
    struct sandbox *sb = world_expiring(w, &spec, 1);
    unsigned before = w->pauses;
    for (unsigned i = 1; i < 3; i++) {
        WAIT(w, w->pauses == before + i && state_of(sb) == SANDBOX_RUNNING && sb->end_stuck == i);
        assert_true(sb->end_retry > clock_mono() && sb->end_alarm.at >= sb->end_retry);
        assert_non_null(strstr(world_event_data(w, sandbox_info(sb)->id, EVENT_SANDBOX_PAUSE), "\"memory\":true"));
        sb->end_retry = 0;
        sandbox_arm_end(sb);
    }
    WAIT(w, sb->end_stuck == 3);
    assert_int_equal(w->pauses, before + 3);
    return sb;
}

static void stuck_ones_lose_their_memory(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = stuck_at_its_deadline(w);
    const char *id = sandbox_info(sb)->id;
    w->pause_error = 0;
    WAIT(w, state_of(sb) == SANDBOX_PAUSED);
    assert_false(sandbox_info(sb)->has_memory);
    assert_int_equal(map_count(&w->kept), 1);
    assert_int_equal(w->pauses, 4);
    assert_non_null(strstr(world_event_data(w, id, EVENT_SANDBOX_PAUSE),
                           "\"memory\":false,\"reason\":\"its processes can't be stopped"));
    assert_non_null(strstr(world_event_data(w, id, EVENT_SANDBOX_PAUSED), "\"memory\":false"));
    assert_int_equal(world_count_events(w, id, EVENT_SANDBOX_PAUSE), 4);
    /* That is over then. */
    world_resume(w, sb, &(struct sandbox_resume){.has_timeout = true, .timeout_ms = 50});
    WAIT(w, state_of(sb) == SANDBOX_PAUSED);
    assert_true(sandbox_info(sb)->has_memory);
}

static void stuck_ones_that_can_not_be_kept_end(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = sandbox_ref(stuck_at_its_deadline(w));
    const char *id = sandbox_info(sb)->id;
    WAIT(w, state_of(sb) == SANDBOX_ENDED);
    assert_string_equal(sandbox_info(sb)->end_cause, "timeout");
    assert_int_equal(w->pauses, 4);
    assert_non_null(strstr(world_event_data(w, id, EVENT_SANDBOX_EXPIRED), "not paused"));
    assert_non_null(strstr(world_event_data(w, id, EVENT_SANDBOX_ENDED), "\"cause\":\"timeout\""));
    sandbox_unref(sb);
}

static void stuck_ones_that_coved_does_not_answer_for_are_asked_again(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = stuck_at_its_deadline(w);
    w->pause_error = ERR_UNAVAILABLE;
    WAIT(w, w->pauses == 4 && state_of(sb) == SANDBOX_RUNNING);
    assert_true(sb->end_retry > clock_mono());
    w->pause_error = 0;
    sb->end_retry = 0;
    sandbox_arm_end(sb);
    WAIT(w, state_of(sb) == SANDBOX_PAUSED);
    assert_false(sandbox_info(sb)->has_memory);
}

/* They are the client's affair, however many. */
static void pauses_of_clients_that_fail(void **state)
{
    struct world *w = *state;
    struct sandbox_spec spec = {.timeout_ms = 60000, .pause_on_timeout = true};
    struct sandbox *sb = world_sandbox(w, &spec);
    static struct world_outcome o;
    struct err err;
    w->pause_error = ERR_DEADLINE_EXCEEDED;
    o = (struct world_outcome){0};
    for (unsigned i = 1; i <= 5; i++) {
        assert_int_equal(sandbox_pause(sb, &test_actor, true, world_on_done, &o, &err), 0);
        WAIT(w, o.calls == i);
        assert_int_equal(o.err.code, ERR_DEADLINE_EXCEEDED);
        assert_int_equal(state_of(sb), SANDBOX_RUNNING);
    }
    assert_true(sb->end_stuck == 0 && sb->end_tries == 0 && sb->end_retry == 0);
    /* Who gives one more time that could not be paused begins anew. */
    w->pause_error = ERR_DEADLINE_EXCEEDED;
    assert_int_equal(sandbox_set_timeout(sb, &test_actor, 0, false, &err), 0);
    WAIT(w, sb->end_stuck == 1 && state_of(sb) == SANDBOX_RUNNING);
    assert_int_equal(sandbox_set_timeout(sb, &test_actor, 60000, false, &err), 0);
    assert_true(sb->end_stuck == 0 && sb->end_alarm.at > clock_mono() + 20 * USEC_PER_SEC);
}

/* Its processes had ended already, as was wanted: what is left of it are its files, and the next coved has them. */
static void coved_dies_before_it_answers(void **state)
{
    struct world *w = *state;
    char id[ID_SANDBOX_LEN + 1];
    static struct world_outcome o;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct err err;
    memcpy(id, sandbox_info(sb)->id, sizeof(id));
    o = (struct world_outcome){0};
    w->holds = true;
    assert_int_equal(sandbox_pause(sb, &test_actor, false, world_on_done, &o, &err), 0);
    WAIT(w, w->held_tag && sb->session_broke);
    world_hang_up(w);
    WAIT(w, w->supervisor_lost);
    assert_int_equal(o.calls, 1);
    assert_int_equal(o.err.code, ERR_UNAVAILABLE);
    assert_int_equal(state_of(sb), SANDBOX_PAUSING);
    w->holds = false;
    w->held_tag = 0;
    sb = world_restart(w, id);
    assert_int_equal(state_of(sb), SANDBOX_PAUSED);
    assert_false(sandbox_info(sb)->has_memory);
    world_resume(w, sb, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_pause_that_failed_before_the_deadline, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(pauses_that_fail_at_the_deadline, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(stuck_ones_lose_their_memory, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(stuck_ones_that_can_not_be_kept_end, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(stuck_ones_that_coved_does_not_answer_for_are_asked_again, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(pauses_of_clients_that_fail, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(coved_dies_before_it_answers, world_setup, world_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
