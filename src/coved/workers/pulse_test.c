/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "coved/workers/pulse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>

#include <cmocka.h>

static const struct pulse_patience patience = {
    .every = 5 * USEC_PER_SEC, .first = 100 * USEC_PER_SEC, .silent = 30 * USEC_PER_SEC};

struct rig {
    struct worker_pulse pulse;
    int theirs;
    usec_t now;
};

static int set_up(void **state)
{
    static struct rig r;
    r.now = 1000 * USEC_PER_SEC;
    assert_int_equal(pulse_open(&r.pulse, &patience, r.now, &r.theirs), 0);
    *state = &r;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;
    pulse_close(&r->pulse);
    (void)fd_close(r->theirs);
    return 0;
}

static int count_questions(struct rig *r)
{
    char question[16];
    int n = 0;
    while (recv(r->theirs, question, sizeof(question), 0) > 0)
        n++;
    return n;
}

/* A turn at the moment that it asked for, and so much later. */
static bool turn(struct rig *r, usec_t late)
{
    r->now = r->pulse.due + late;
    return pulse_turn(&r->pulse, r->now, PULSE_FINE);
}

static void answer(struct rig *r)
{
    assert_int_equal(send(r->theirs, "!", 1, 0), 1);
    assert_true(pulse_heard(&r->pulse));
}

/* How many turns until it is given up; `most`: it is not. */
static int turns(struct rig *r, usec_t late, int most)
{
    int n = 0;
    while (n < most && turn(r, late))
        n++;
    return n;
}

static void one_that_answers_is_asked_for_ever(void **state)
{
    struct rig *r = *state;
    for (int i = 0; i < 1000; i++) {
        assert_true(turn(r, 0));
        assert_int_equal(count_questions(r), 1);
        assert_true(pulse_turn(&r->pulse, r->now + USEC_PER_SEC, PULSE_FINE)); /* a turn for something else */
        assert_int_equal(count_questions(r), 0);
        answer(r);
    }
}

static void one_that_falls_silent_is_given_up(void **state)
{
    struct rig *r = *state;
    assert_true(turn(r, 0));
    answer(r);
    assert_true(turn(r, 0)); /* asks */
    usec_t asked = r->now;
    assert_int_equal(turns(r, 0, 1000), 5);
    assert_int_equal(r->now - asked, patience.silent);
    assert_int_equal(r->pulse.silent, patience.silent);
    assert_int_equal(count_questions(r), 2);
}

static void an_answer_in_time_begins_the_count_anew(void **state)
{
    struct rig *r = *state;
    assert_true(turn(r, 0));
    answer(r);
    for (int i = 0; i < 100; i++) {
        assert_true(turn(r, 0));
        assert_int_equal(turns(r, 0, 5), 5);
        answer(r);
    }
}

static void the_first_answer_may_take_longer(void **state)
{
    struct rig *r = *state;
    assert_true(turn(r, 0));
    usec_t asked = r->now;
    assert_int_equal(turns(r, 0, 1000), 19);
    assert_int_equal(r->now - asked, patience.first);
}

static void what_stops_all_of_us_does_not_count(void **state)
{
    struct rig *r = *state;
    assert_true(turn(r, 0));
    answer(r);
    assert_true(turn(r, 0));
    assert_int_equal(turns(r, 3600 * USEC_PER_SEC, 100), 100); /* hours in which coved itself did not run */
    assert_int_equal(turns(r, USEC_PER_SEC / 2, 1000), 5);     /* a little late is punctual */
}

/* Late every second time: it takes twice as long. */
static void one_that_hangs_on_a_busy_machine_is_found(void **state)
{
    struct rig *r = *state;
    int n = 0;
    assert_true(turn(r, 0));
    answer(r);
    assert_true(turn(r, 0));
    while (turn(r, n % 2 ? 0 : 3 * USEC_PER_SEC))
        assert_in_range(++n, 0, 100);
    assert_int_equal(n, 11);
}

static void a_machine_that_is_always_late_ends_nobody(void **state)
{
    struct rig *r = *state;
    assert_true(turn(r, 0));
    answer(r);
    assert_int_equal(turns(r, 2 * USEC_PER_SEC, 1000), 1000);
}

static void one_that_closes_its_end_is_silent(void **state)
{
    struct rig *r = *state;
    assert_true(turn(r, 0));
    answer(r);
    r->theirs = fd_close(r->theirs);
    assert_false(pulse_heard(&r->pulse));
    assert_int_equal(turns(r, 0, 1000), 6);
}

static void more_than_was_asked_for_is_as_good_as_an_answer(void **state)
{
    struct rig *r = *state;
    static const char much[4096];
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    while (fd_send(r->theirs, much, sizeof(much), fds, 2) >= 0)
        ;
    (void)fd_close(fds[0]);
    (void)fd_close(fds[1]);
    while (r->pulse.fd >= 0 && recv(r->pulse.fd, (char[1]){0}, 1, MSG_DONTWAIT | MSG_PEEK) > 0)
        assert_true(pulse_heard(&r->pulse));
    assert_true(turn(r, 0));
    assert_int_equal(count_questions(r), 1);
}

static void the_question_says_how_coved_is(void **state)
{
    struct rig *r = *state;
    static const enum pulse_state states[] = {PULSE_FINE, PULSE_NO_ROOM, PULSE_STOPS};
    for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
        char question[16];
        assert_true(pulse_turn(&r->pulse, r->pulse.due, states[i]));
        assert_int_equal(recv(r->theirs, question, sizeof(question), 0), 1);
        assert_int_equal(question[0], states[i]);
        answer(r);
    }
}

static void one_that_could_not_be_asked_is_not_silent(void **state)
{
    struct rig *r = *state;
    while (send(r->pulse.fd, "x", 1, MSG_DONTWAIT) == 1)
        ; /* as when there is no memory for another one */
    assert_int_equal(turns(r, 0, 1000), 1000);
    assert_true(count_questions(r) > 0);
    assert_true(turn(r, 0));
    assert_int_equal(count_questions(r), 1);
    answer(r);
    assert_true(turn(r, 0)); /* asks, and from then on it counts */
    assert_int_equal(turns(r, 0, 1000), 5);
}

static void nobody_is_asked_where_there_is_none(void **state)
{
    (void)state;
    struct worker_pulse p = PULSE_NONE;
    assert_true(pulse_turn(&p, UINT64_MAX, PULSE_FINE));
    pulse_close(&p);
    assert_int_equal(p.fd, -1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_that_answers_is_asked_for_ever, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_falls_silent_is_given_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_answer_in_time_begins_the_count_anew, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_first_answer_may_take_longer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_stops_all_of_us_does_not_count, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_hangs_on_a_busy_machine_is_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_machine_that_is_always_late_ends_nobody, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_closes_its_end_is_silent, set_up, tear_down),
        cmocka_unit_test_setup_teardown(more_than_was_asked_for_is_as_good_as_an_answer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_question_says_how_coved_is, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_could_not_be_asked_is_not_silent, set_up, tear_down),
        cmocka_unit_test(nobody_is_asked_where_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
