/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/refusals.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const usec_t minute = 60 * USEC_PER_SEC;

static struct rig {
    uv_loop_t loop;
    struct refusals *r;
    usec_t now;
    unsigned events;
    uint64_t counted;
    uint64_t count; /* of the last one */
    char from[REFUSALS_FROM_MAX], api[16];
    enum refusal why;
} rig;

static void tell(void *ctx, const char *api, enum refusal why, const char *from, uint64_t count)
{
    struct rig *g = ctx;
    g->events++;
    g->counted += count;
    g->count = count;
    g->why = why;
    (void)snprintf(g->from, sizeof(g->from), "%s", from);
    (void)snprintf(g->api, sizeof(g->api), "%s", api);
}

static int set_up(void **state)
{
    (void)state;
    rig = (struct rig){0};
    assert_int_equal(uv_loop_init(&rig.loop), 0);
    rig.r = refusals_new(&rig.loop, tell, &rig);
    rig.now = clock_mono();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    refusals_free(rig.r);
    (void)uv_run(&rig.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&rig.loop), 0);
    return 0;
}

static void note(const char *from)
{
    refusals_note_at(rig.r, "native", REFUSAL_WRONG_KEY, from, rig.now);
}

static void the_first_is_told_at_once(void **state)
{
    (void)state;
    note("203.0.113.7");
    assert_int_equal(rig.events, 1);
    assert_int_equal(rig.count, 1);
    assert_string_equal(rig.from, "203.0.113.7");
    assert_string_equal(rig.api, "native");
    assert_int_equal(rig.why, REFUSAL_WRONG_KEY);
    note("203.0.113.8");
    refusals_note_at(rig.r, "native", REFUSAL_NO_KEY, "203.0.113.7", rig.now);
    refusals_note_at(rig.r, "e2b", REFUSAL_NO_KEY, "203.0.113.7", rig.now);
    assert_int_equal(rig.events, 4);
}

static void what_follows_is_counted(void **state)
{
    (void)state;
    for (int i = 0; i < 1000; i++)
        note("203.0.113.7");
    assert_int_equal(rig.events, 1);
    refusals_tick(rig.r, rig.now + minute - 1);
    assert_int_equal(rig.events, 1);
    refusals_tick(rig.r, rig.now + minute);
    assert_int_equal(rig.events, 2);
    assert_int_equal(rig.count, 999);
    refusals_tick(rig.r, rig.now + 1000 * minute);
    assert_int_equal(rig.events, 2);
}

/* A day of one attempt in a second. */
static void one_that_goes_on_is_told_more_and_more_rarely(void **state)
{
    (void)state;
    for (int i = 0; i < 86400; i++, rig.now += USEC_PER_SEC)
        note("203.0.113.7");
    assert_in_range(rig.events, 24, 24 + 8);
    refusals_tick(rig.r, rig.now + 120 * minute);
    assert_int_equal(rig.counted, 86400);
}

static void one_that_comes_back_much_later_is_told_at_once(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        note("203.0.113.7");
        assert_int_equal(rig.events, i + 1);
        rig.now += 10 * minute;
    }
}

/* A day of an attempt a second, each from elsewhere: what is told is bounded, what happened is counted. */
static void many_addresses_do_not_fill_the_log(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 86400; i++, rig.now += USEC_PER_SEC) {
        char from[REFUSALS_FROM_MAX];
        (void)snprintf(from, sizeof(from), "10.%u.%u.%u", i >> 16 & 255, i >> 8 & 255, i & 255);
        note(from);
        if (i % 10 == 0)
            refusals_tick(rig.r, rig.now);
    }
    assert_in_range(rig.events, 60, 60 + 86400 / 300 + 1);
    refusals_free(rig.r);
    (void)uv_run(&rig.loop, UV_RUN_DEFAULT);
    assert_string_equal(rig.from, "others");
    assert_string_equal(rig.api, "");
    assert_int_equal(rig.counted, 86400);
    rig.r = NULL;
}

static void assert_from(const char *address, const char *from)
{
    struct http_peer peer = {.uid = (uid_t)-1};
    char found[REFUSALS_FROM_MAX];
    (void)snprintf(peer.address, sizeof(peer.address), "%s", address);
    refusals_from(&peer, found);
    assert_string_equal(found, from);
}

static void whom_an_address_stands_for(void **state)
{
    (void)state;
    assert_from("203.0.113.7:54321", "203.0.113.7");
    assert_from("[::1]:54321", "::1");
    assert_from("[2001:db8:1:2:3:4:5:6]:1", "2001:db8:1:2::/64");
    assert_from("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535", "ffff:ffff:ffff:ffff::/64");
    assert_from("[::ffff:203.0.113.7]:1", "203.0.113.7");
    assert_from("", "");
    const struct http_peer local = {.is_unix = true, .uid = 1000};
    char found[REFUSALS_FROM_MAX];
    refusals_from(&local, found);
    assert_string_equal(found, "uid=1000");
}

static void the_timer_runs_only_for_a_reason(void **state)
{
    (void)state;
    const struct http_peer peer = {.address = "203.0.113.7:1"};
    refusals_note(rig.r, "native", REFUSAL_NO_KEY, &peer);
    assert_false(uv_loop_alive(&rig.loop));
    refusals_note(rig.r, "native", REFUSAL_NO_KEY, &peer);
    assert_true(uv_loop_alive(&rig.loop));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_first_is_told_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_follows_is_counted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_goes_on_is_told_more_and_more_rarely, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_comes_back_much_later_is_told_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many_addresses_do_not_fill_the_log, set_up, tear_down),
        cmocka_unit_test_setup_teardown(whom_an_address_stands_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_timer_runs_only_for_a_reason, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("refusals", tests, NULL, NULL);
}
