/* SPDX-License-Identifier: Apache-2.0 */
#include "event/log.h"
#include "event/test_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void count(void *ctx)
{
    ++*(int *)ctx;
}

static struct event_cursor *subscribe(struct test_log *t, const char *sandbox, uint64_t from, int *wakes)
{
    struct event_cursor *c = NULL;
    struct err err;
    if (event_subscribe(t->log, sandbox, from, wakes ? count : NULL, wakes, &c, &err) < 0)
        fail_msg("%s", err.msg);
    return c;
}

static int next(struct event_cursor *c, struct event *e, struct event_gap *gap)
{
    struct err err;
    int r = event_cursor_next(c, e, gap, &err);
    if (r < 0)
        fail_msg("%s", err.msg);
    return r;
}

/* Pulls all there is; asserts that it is from `from` on without a gap. Returns the seq that comes next. */
static uint64_t drain(struct event_cursor *c, uint64_t from)
{
    struct event e;
    struct event_gap gap;
    int r;
    while ((r = next(c, &e, &gap)) == EVENT_NEXT_EVENT)
        assert_int_equal(e.seq, from++);
    assert_int_equal(r, EVENT_NEXT_DRAINED);
    return from;
}

static void test_history_then_live(void **state)
{
    struct test_log t = test_log_open(state);
    int wakes = 0;
    struct event e;
    struct event_gap gap;
    /* Even before the first event. */
    struct event_cursor *early = subscribe(&t, "i1", 0, &wakes);
    assert_int_equal(next(early, &e, &gap), EVENT_NEXT_DRAINED);
    test_append_n(&t, "i1", 3);
    assert_int_equal(next(early, &e, &gap), EVENT_NEXT_DRAINED); /* not committed */
    assert_int_equal(wakes, 0);
    test_commit(&t);
    assert_int_equal(wakes, 1);
    test_append_n(&t, "i1", 2);
    test_commit(&t);
    assert_int_equal(wakes, 1); /* told already, and has not pulled since */
    assert_int_equal(next(early, &e, &gap), EVENT_NEXT_EVENT);
    assert_int_equal(e.seq, 1);
    assert_int_equal(e.kind, EVENT_EXEC_OUTPUT);
    assert_true(str_eqc(e.data, "{\"n\":0}"));
    assert_true(str_eqc(e.source, "client"));
    assert_true(str_eqc(e.sandbox, "i1"));
    assert_int_equal(drain(early, 2), 6);

    struct event_cursor *late = subscribe(&t, "i1", 4, NULL), *fresh = subscribe(&t, "i1", 6, NULL);
    assert_int_equal(drain(late, 4), 6);
    assert_int_equal(drain(fresh, 6), 6);
    test_append_n(&t, "i1", 1);
    test_append_n(&t, "i2", 1);
    test_commit(&t);
    assert_int_equal(wakes, 2);
    assert_int_equal(drain(late, 6), 7);
    assert_int_equal(drain(fresh, 6), 7);
    test_append_n(&t, "i2", 1);
    test_commit(&t);
    assert_int_equal(wakes, 2); /* another sandbox's */
    event_cursor_close(early);
    event_cursor_close(late);
    event_cursor_close(fresh);

    struct event_cursor *c = NULL;
    struct err err;
    assert_int_equal(event_subscribe(t.log, "i1", 8, NULL, NULL, &c, &err), -1);
    assert_int_equal(err.code, ERR_OUT_OF_RANGE);
    assert_null(c);
    test_log_close(&t);
}

struct follower {
    struct event_cursor *cursor;
    uint64_t expected;
    bool woken;
};

static void wake_follower(void *ctx)
{
    struct follower *f = ctx;
    assert_false(f->woken);
    f->woken = true;
}

/* Writers, commits, undone batches and readers of all speeds, in any order: each reader sees 1, 2, 3, ... exactly
 * once. */
static void test_interleaved(void **state)
{
    struct test_log t = test_log_open(state);
    struct err err;
    static const char *const ids[] = {"i1", "i2", "i3"};
    uint64_t committed[3] = {0}, pending[3] = {0};
    struct follower followers[12] = {0};
    srand(7);
    for (int step = 0; step < 20000; step++) {
        int what = rand() % 100, k = rand() % 3, f = rand() % 12;
        struct follower *one = &followers[f];
        struct event e;
        struct event_gap gap;
        if (what < 40) {
            test_append_n(&t, ids[k], 1);
            pending[k]++;
        } else if (what < 50) {
            test_commit(&t);
            for (int i = 0; i < 3; i++) {
                committed[i] += pending[i];
                pending[i] = 0;
            }
        } else if (what < 52) {
            store_rollback(t.store);
            memset(pending, 0, sizeof(pending));
        } else if (!one->cursor) {
            one->expected = 1 + (uint64_t)rand() % (committed[f % 3] + 1);
            one->woken = false;
            assert_int_equal(event_subscribe(t.log, ids[f % 3], one->expected, wake_follower, one, &one->cursor, &err),
                             0);
        } else if (what == 99) {
            event_cursor_close(one->cursor);
            one->cursor = NULL;
        } else {
            int r = next(one->cursor, &e, &gap);
            if (r == EVENT_NEXT_EVENT) {
                assert_int_equal(e.seq, one->expected);
                one->expected++;
            } else {
                assert_int_equal(r, EVENT_NEXT_DRAINED);
                assert_int_equal(one->expected, committed[f % 3] + 1);
                one->woken = false;
            }
        }
    }
    for (int f = 0; f < 12; f++)
        event_cursor_close(followers[f].cursor);
    test_commit(&t);
    for (int i = 0; i < 3; i++)
        test_intact(&t, ids[i], committed[i] + pending[i]);
    test_log_close(&t);
}

static void test_gaps(void **state)
{
    struct test_log t = test_log_open(state);
    struct event e;
    struct event_gap gap;
    struct err err;
    test_append_n(&t, "i1", 20);
    test_commit(&t);
    struct event_cursor *slow = subscribe(&t, "i1", 5, NULL);
    assert_int_equal(next(slow, &e, &gap), EVENT_NEXT_EVENT);
    assert_int_equal(event_prune(t.log, "i1", 11, &err), 0);
    test_commit(&t);
    assert_int_equal(next(slow, &e, &gap), EVENT_NEXT_GAP);
    assert_int_equal(gap.from, 6);
    assert_int_equal(gap.to, 10);
    assert_int_equal(drain(slow, 11), 22); /* the last one is log.pruned */
    event_cursor_close(slow);

    struct event_cursor *old = subscribe(&t, "i1", 1, NULL);
    assert_int_equal(next(old, &e, &gap), EVENT_NEXT_GAP);
    assert_int_equal(gap.from, 1);
    assert_int_equal(gap.to, 10);
    assert_int_equal(next(old, &e, &gap), EVENT_NEXT_EVENT);
    assert_int_equal(e.seq, 11);

    /* Rows that somebody took away are a gap too: a reader never hangs. */
    event_cursor_close(old);
    test_sql(t.dir->db, "DELETE FROM events WHERE seq IN (12, 13, 20, 21)");
    test_log_reopen(&t); /* nothing is remembered */
    old = subscribe(&t, "i1", 12, NULL);
    assert_int_equal(next(old, &e, &gap), EVENT_NEXT_GAP);
    assert_int_equal(gap.from, 12);
    assert_int_equal(gap.to, 13);
    while (next(old, &e, &gap) == EVENT_NEXT_EVENT)
        ;
    assert_int_equal(gap.from, 20);
    assert_int_equal(gap.to, 21);
    assert_int_equal(next(old, &e, &gap), EVENT_NEXT_DRAINED);

    while (event_erase(t.log, "i1", &err) == 1)
        ;
    test_commit(&t);
    assert_int_equal(event_cursor_next(old, &e, &gap, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    event_cursor_close(old);
    test_log_close(&t);
}

struct pair {
    struct event_cursor **victim, **self;
    int wakes;
};

static void close_both(void *ctx)
{
    struct pair *p = ctx;
    p->wakes++;
    event_cursor_close(*p->victim);
    event_cursor_close(*p->self);
    *p->victim = *p->self = NULL;
}

/* What is woken may close itself and others that wait to be woken. */
static void test_closing_while_waking(void **state)
{
    struct test_log t = test_log_open(state);
    struct event_cursor *a = NULL, *b = NULL;
    struct pair for_a = {&b, &a, 0}, for_b = {&a, &b, 0};
    struct event e;
    struct event_gap gap;
    struct err err;
    assert_int_equal(event_subscribe(t.log, "i1", 0, close_both, &for_a, &a, &err), 0);
    assert_int_equal(event_subscribe(t.log, "i1", 0, close_both, &for_b, &b, &err), 0);
    assert_int_equal(next(a, &e, &gap), EVENT_NEXT_DRAINED);
    assert_int_equal(next(b, &e, &gap), EVENT_NEXT_DRAINED);
    test_append_n(&t, "i1", 1);
    test_commit(&t);
    assert_int_equal(for_a.wakes + for_b.wakes, 1);
    assert_null(a);
    assert_null(b);
    test_log_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, test_dir_setup, test_dir_teardown)
        TEST(test_history_then_live),
        TEST(test_interleaved),
        TEST(test_gaps),
        TEST(test_closing_while_waking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
