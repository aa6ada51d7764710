/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "daemon/pulse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

struct rig {
    uv_loop_t loop;
    struct pulse pulse;
    int ours, theirs;
};

static int set_up(void **state)
{
    static struct rig r;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    r.ours = pair[0];
    r.theirs = pair[1];
    assert_int_equal(uv_loop_init(&r.loop), 0);
    assert_int_equal(pulse_start(&r.pulse, &r.loop, r.theirs), 0);
    *state = &r;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;
    pulse_stop(&r->pulse);
    (void)uv_run(&r->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&r->loop), 0);
    (void)fd_close(r->ours);
    (void)fd_close(r->theirs);
    return 0;
}

static int count_answers(struct rig *r)
{
    char answer[16];
    int n = 0;
    while (recv(r->ours, answer, sizeof(answer), 0) > 0)
        n++;
    return n;
}

static void questions_are_answered_by_the_loop(void **state)
{
    struct rig *r = *state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(send(r->ours, "?", 1, 0), 1);
        assert_int_equal(count_answers(r), 0);
        (void)uv_run(&r->loop, UV_RUN_ONCE);
        assert_int_equal(count_answers(r), 1);
    }
}

static void the_question_says_how_coved_is(void **state)
{
    struct rig *r = *state;
    static const struct {
        char question;
        enum pulse_said said;
    } each[] = {{'r', PULSE_SAYS_NO_ROOM}, {'s', PULSE_SAYS_STOPS}, {'?', PULSE_SAYS_FINE}};
    assert_int_equal(pulse_said(&r->pulse, clock_mono()), PULSE_SAYS_NOTHING);
    for (size_t i = 0; i < ARRAY_SIZE(each); i++) {
        assert_int_equal(send(r->ours, &each[i].question, 1, 0), 1);
        (void)uv_run(&r->loop, UV_RUN_ONCE);
        assert_int_equal(pulse_said(&r->pulse, r->pulse.asked + 15 * USEC_PER_SEC), each[i].said);
        assert_int_equal(pulse_said(&r->pulse, r->pulse.asked + 15 * USEC_PER_SEC + 1), PULSE_SAYS_NOTHING);
    }
}

static void its_end_does_not_keep_the_loop_busy(void **state)
{
    struct rig *r = *state;
    r->ours = fd_close(r->ours);
    (void)uv_run(&r->loop, UV_RUN_ONCE);
    assert_false(uv_is_active((uv_handle_t *)&r->pulse.poll));
}

static void answers_that_nobody_reads_do_no_harm(void **state)
{
    struct rig *r = *state;
    for (int i = 0; i < 2000; i++) {
        assert_int_equal(send(r->ours, "?", 1, 0), 1);
        (void)uv_run(&r->loop, UV_RUN_ONCE);
    }
    assert_in_range(count_answers(r), 1, 2000);
    assert_int_equal(send(r->ours, "?", 1, 0), 1);
    (void)uv_run(&r->loop, UV_RUN_ONCE);
    assert_int_equal(count_answers(r), 1);
}

static void without_a_socket_nobody_asks(void **state)
{
    (void)state;
    uv_loop_t loop;
    struct pulse p;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(pulse_start(&p, &loop, -1), 0);
    assert_int_equal(uv_loop_alive(&loop), 0);
    assert_int_equal(pulse_said(&p, clock_mono()), PULSE_SAYS_NOTHING);
    pulse_stop(&p);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(questions_are_answered_by_the_loop, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_question_says_how_coved_is, set_up, tear_down),
        cmocka_unit_test_setup_teardown(its_end_does_not_keep_the_loop_busy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(answers_that_nobody_reads_do_no_harm, set_up, tear_down),
        cmocka_unit_test(without_a_socket_nobody_asks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
