/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/slices.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { N = 5 };

static struct {
    uv_loop_t loop;
    struct slices slices;
    struct slice slices_of[N];
    unsigned runs[N];
    bool is_slow, is_endless, cancels;
} w;

static void on_slice(struct slice *slice)
{
    usec_t until = clock_mono() + SLICES_TURN_USEC;
    w.runs[slice - w.slices_of]++;
    while (w.is_slow && clock_mono() < until) {
    }
    if (w.is_endless)
        slice_later(&w.slices, slice);
    for (int i = 0; w.cancels && i < N; i++)
        slice_cancel(&w.slices_of[i]);
}

static int setup(void **state)
{
    (void)state;
    memset(&w, 0, sizeof(w));
    assert_int_equal(uv_loop_init(&w.loop), 0);
    slices_init(&w.slices, &w.loop);
    for (int i = 0; i < N; i++) {
        slice_init(&w.slices_of[i], on_slice);
        slice_later(&w.slices, &w.slices_of[i]);
        slice_later(&w.slices, &w.slices_of[i]);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    slices_fini(&w.slices);
    (void)uv_run(&w.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w.loop), 0);
    return 0;
}

static void turn(void)
{
    (void)uv_run(&w.loop, UV_RUN_NOWAIT);
}

static void each_runs_once_and_then_the_loop_may_sleep(void **state)
{
    (void)state;
    for (int i = 0; i < 100 && !list_empty(&w.slices.waiting); i++)
        turn();
    for (int i = 0; i < N; i++)
        assert_int_equal(w.runs[i], 1);
    assert_false(uv_loop_alive(&w.loop));
}

static void who_comes_back_waits_for_the_next_turn(void **state)
{
    (void)state;
    w.is_endless = true;
    for (unsigned turns = 1; turns <= 20; turns++) {
        turn();
        for (int i = 0; i < N; i++)
            assert_true(w.runs[i] <= turns);
    }
}

static void a_turn_is_bounded_and_nobody_is_left_out(void **state)
{
    (void)state;
    w.is_slow = w.is_endless = true;
    for (unsigned turns = 0; turns < 3 * N; turns++) {
        for (unsigned i = 0; i < N; i++)
            assert_int_equal(w.runs[i], turns / N + (i < turns % N));
        turn();
    }
}

static void who_is_cancelled_does_not_run(void **state)
{
    (void)state;
    w.cancels = w.is_endless = true;
    slice_cancel(&w.slices_of[0]);
    slice_cancel(&w.slices_of[0]);
    for (int i = 0; i < 3; i++)
        turn();
    for (int i = 0; i < N; i++)
        assert_int_equal(w.runs[i], i == 1);
    assert_false(uv_loop_alive(&w.loop));
}

static void some_may_wait_at_the_end(void **state)
{
    (void)state;
    slices_fini(&w.slices);
    slice_cancel(&w.slices_of[2]);
    turn();
    for (int i = 0; i < N; i++)
        assert_int_equal(w.runs[i], 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_runs_once_and_then_the_loop_may_sleep),
        TEST(who_comes_back_waits_for_the_next_turn),
        TEST(a_turn_is_bounded_and_nobody_is_left_out),
        TEST(who_is_cancelled_does_not_run),
        TEST(some_may_wait_at_the_end),
    };
    return cmocka_run_group_tests_name("slices", tests, NULL, NULL);
}
