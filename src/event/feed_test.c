/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "event/feed.h"
#include "event/test_log.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void count_wake(void *ctx)
{
    ++*(int *)ctx;
}

static struct feed_reader *open_at(struct test_log *t, uint64_t after, int *wakes)
{
    struct feed_reader *r = NULL;
    struct err err;
    const struct feed_want want = {.after = after, .wake = wakes ? count_wake : NULL, .ctx = wakes};
    if (feed_open(t->log, &want, &r, &err) < 0)
        fail_msg("%s", err.msg);
    return r;
}

static int step(struct feed_reader *r, struct event *e, struct event_gap *gap)
{
    struct err err;
    int got = feed_next(r, e, gap, &err);
    if (got < 0)
        fail_msg("%s", err.msg);
    return got;
}

/* "i1:1 i2:1 -2-3 i1:4 " */
static void expect(struct test_log *t, struct feed_reader *r, const char *text)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 16);
    AUTO(feed_close) struct feed_reader *own = r ? NULL : open_at(t, 0, NULL);
    struct event e;
    struct event_gap gap;
    int got;
    r = r ? r : own;
    while ((got = step(r, &e, &gap)) != EVENT_NEXT_DRAINED) {
        if (got == EVENT_NEXT_EVENT) {
            assert_int_equal(e.cursor, feed_after(r));
            buf_printf(&b, "%.*s:%llu ", STR_ARG(e.sandbox), (unsigned long long)e.seq);
        } else if (got == EVENT_NEXT_GAP) {
            assert_int_equal(gap.to, feed_after(r));
            buf_printf(&b, "-%llu-%llu ", (unsigned long long)gap.from, (unsigned long long)gap.to);
        }
    }
    buf_append_char(&b, 0);
    assert_string_equal(buf_data(&b), text);
}

static void test_order_of_commits(void **state)
{
    struct test_log t = test_log_open(state);
    struct event_bounds bounds;
    struct err err;
    int wakes = 0;
    assert_int_equal(feed_bounds(t.log, &bounds, &err), 0);
    assert_int_equal(bounds.first, 0);
    assert_int_equal(bounds.last, 0);
    struct feed_reader *live = open_at(&t, 0, &wakes);
    expect(&t, live, "");
    test_append_n(&t, "i1", 2);
    test_append_n(&t, "i2", 1);
    test_append_n(&t, "i1", 1);
    expect(&t, live, ""); /* not committed */
    assert_int_equal(wakes, 0);
    test_commit(&t);
    assert_int_equal(wakes, 1);
    test_append_n(&t, "i2", 1);
    test_commit(&t);
    assert_int_equal(wakes, 1);
    expect(&t, live, "i1:1 i1:2 i2:1 i1:3 i2:2 ");
    expect(&t, NULL, "i1:1 i1:2 i2:1 i1:3 i2:2 ");

    test_append_n(&t, "i3", 2); /* undone: its cursors are given out again */
    store_rollback(t.store);
    expect(&t, live, "");
    test_append_n(&t, "i2", 1);
    test_commit(&t);
    assert_int_equal(wakes, 2);
    expect(&t, live, "i2:3 ");
    assert_int_equal(feed_after(live), 6);
    feed_close(live);

    test_log_reopen(&t);
    expect(&t, NULL, "i1:1 i1:2 i2:1 i1:3 i2:2 i2:3 ");
    struct feed_reader *late = open_at(&t, 4, &wakes);
    expect(&t, late, "i2:2 i2:3 ");
    test_append_n(&t, "i1", 1);
    test_commit(&t);
    assert_int_equal(wakes, 3);
    expect(&t, late, "i1:4 ");
    feed_close(late);

    struct feed_reader *none = NULL;
    assert_int_equal(feed_open(t.log, &(struct feed_want){.after = 8}, &none, &err), -1);
    assert_int_equal(err.code, ERR_OUT_OF_RANGE);
    assert_int_equal(feed_open(t.log, &(struct feed_want){.after = UINT64_MAX}, &none, &err), -1);
    assert_null(none);
    test_log_close(&t);
}

static void prune(struct test_log *t, const char *id, uint64_t keep_from)
{
    struct err err;
    int more;
    while ((more = event_prune(t->log, id, keep_from, &err)) > 0)
        test_commit(t);
    assert_int_equal(more, 0);
    test_commit(t);
}

static void erase(struct test_log *t, const char *id)
{
    struct err err;
    int more;
    while ((more = event_erase(t->log, id, &err)) > 0)
        test_commit(t);
    assert_int_equal(more, 0);
    test_commit(t);
}

static void sweep_all(struct test_log *t)
{
    struct err err;
    assert_int_equal(feed_sweep(t->log, &err), 0);
    test_commit(t);
}

static void test_what_is_gone_is_a_gap(void **state)
{
    struct test_log t = test_log_open(state);
    struct event_bounds bounds;
    struct err err;
    test_append_n(&t, "i1", 3);
    test_append_n(&t, "i2", 2);
    test_append_n(&t, "i1", 2);
    test_commit(&t);
    struct feed_reader *slow = open_at(&t, 1, NULL);
    struct event e;
    struct event_gap gap;
    assert_int_equal(step(slow, &e, &gap), EVENT_NEXT_EVENT);
    prune(&t, "i1", 5); /* appends log.pruned: i1:6 */
    expect(&t, NULL, "-1-3 i2:1 i2:2 -6-6 i1:5 i1:6 ");
    expect(&t, slow, "-3-3 i2:1 i2:2 -6-6 i1:5 i1:6 ");
    feed_close(slow);
    erase(&t, "i2");
    expect(&t, NULL, "-1-3 -4-5 -6-6 i1:5 i1:6 ");
    test_log_reopen(&t);
    expect(&t, NULL, "-1-3 -4-5 -6-6 i1:5 i1:6 ");

    sweep_all(&t); /* what is wholly gone needs no row */
    assert_int_equal(feed_bounds(t.log, &bounds, &err), 0);
    assert_int_equal(bounds.first, 6);
    assert_int_equal(bounds.last, 8);
    expect(&t, NULL, "-1-5 -6-6 i1:5 i1:6 ");

    erase(&t, "i1"); /* nothing is left, and yet no cursor comes again */
    test_log_reopen(&t);
    sweep_all(&t);
    test_log_reopen(&t);
    assert_int_equal(feed_bounds(t.log, &bounds, &err), 0);
    assert_int_equal(bounds.last, 8);
    test_append_n(&t, "i1", 1);
    test_commit(&t);
    struct feed_reader *after = open_at(&t, 8, NULL);
    expect(&t, after, "i1:1 ");
    feed_close(after);
    test_log_close(&t);
}

static bool only_i2(void *ctx, const char *id)
{
    ++*(int *)ctx;
    return strcmp(id, "i2") == 0;
}

static void test_filter(void **state)
{
    struct test_log t = test_log_open(state);
    struct err err;
    int asked = 0;
    test_append_n(&t, "i1", 1000);
    test_append_n(&t, "i2", 2);
    test_append_n(&t, "i1", 1000);
    test_commit(&t);
    struct feed_reader *r = NULL;
    assert_int_equal(feed_open(t.log, &(struct feed_want){.filter = only_i2, .ctx = &asked}, &r, &err), 0);
    expect(&t, r, "i2:1 i2:2 ");
    assert_int_equal(asked, 3); /* a run is one step */
    assert_int_equal(feed_after(r), 2002);
    feed_close(r);
    test_log_close(&t);
}

/* More runs than stay in memory; a batch that would write them and is undone. */
static void test_many_runs(void **state)
{
    struct test_log t = test_log_open(state);
    struct feed_reader *live = open_at(&t, 0, NULL);
    uint64_t seen = 0, seqs[3] = {0};
    srand(3);
    for (int batch = 0; batch < 1500; batch++) {
        static const char *const ids[] = {"i1", "i2", "i3"};
        for (int i = rand() % 3; i >= 0; i--)
            test_append_n(&t, ids[rand() % 3], 1);
        if (rand() % 8 == 0) {
            store_rollback(t.store);
            continue;
        }
        test_commit(&t);
        struct event e;
        struct event_gap gap;
        while (rand() % 16 && step(live, &e, &gap) == EVENT_NEXT_EVENT) {
            assert_int_equal(e.cursor, ++seen);
            assert_int_equal(e.seq, ++seqs[e.sandbox.p[1] - '1']);
        }
    }
    struct event e;
    struct event_gap gap;
    while (step(live, &e, &gap) == EVENT_NEXT_EVENT) {
        assert_int_equal(e.cursor, ++seen);
        assert_int_equal(e.seq, ++seqs[e.sandbox.p[1] - '1']);
    }
    assert_true(seen > 1000);
    feed_close(live);
    for (int again = 0; again < 2; again++) {
        struct feed_reader *r = open_at(&t, 0, NULL);
        uint64_t n = 0;
        while (step(r, &e, &gap) == EVENT_NEXT_EVENT)
            assert_int_equal(e.cursor, ++n);
        assert_int_equal(n, seen);
        feed_close(r);
        test_log_reopen(&t);
    }
    test_log_close(&t);
}

/* ---- kills: writers and followers die at any moment; every follower sees every cursor once, and each cursor is one
 * event for ever ---- */

enum { FOLLOWERS = 4, CURSORS_MAX = 1 << 20 };

struct shared {
    _Atomic uint64_t after[FOLLOWERS];    /* what each follower is done with */
    _Atomic uint64_t events[CURSORS_MAX]; /* by cursor: which event it is; 0: nobody saw it */
    _Atomic uint64_t gaps;
    _Atomic bool broken;
};

static uint64_t event_mark(const struct event *e)
{
    return ((uint64_t)(unsigned char)e->sandbox.p[1] << 48) | e->seq;
}

static void follow(struct shared *shared, int i, struct feed_reader *r)
{
    struct err err;
    struct event e;
    struct event_gap gap;
    int got;
    while (rand() % 32 && (got = feed_next(r, &e, &gap, &err)) != EVENT_NEXT_DRAINED) {
        uint64_t expected = shared->after[i] + 1, none = 0;
        if (got == EVENT_NEXT_EVENT && e.cursor == expected && e.cursor < CURSORS_MAX) {
            if (!atomic_compare_exchange_strong(&shared->events[e.cursor], &none, event_mark(&e)))
                shared->broken |= none != event_mark(&e);
            shared->after[i] = e.cursor;
        } else if (got == EVENT_NEXT_GAP && gap.from == expected) {
            shared->gaps++;
            shared->after[i] = gap.to;
        } else {
            shared->broken = true;
            return;
        }
    }
}

NORETURN static void child(void *dir, struct shared *shared, unsigned seed)
{
    struct test_log t = test_log_open(&dir);
    struct feed_reader *readers[FOLLOWERS];
    struct err err;
    srand(seed);
    for (int i = 0; i < FOLLOWERS; i++)
        readers[i] = open_at(&t, shared->after[i], NULL);
    for (;;) {
        char id[] = "i1";
        id[1] = (char)('1' + rand() % 5);
        for (int n = rand() % 4; n >= 0; n--)
            test_append_n(&t, id, rand() % 3);
        int what = rand() % 200;
        if (what == 0 && (event_erase(t.log, id, &err) < 0))
            break;
        if (what == 1 && event_prune(t.log, id, UINT64_MAX, &err) < 0)
            break;
        if (what == 2 && feed_sweep(t.log, &err) < 0)
            break;
        if (what == 3)
            store_rollback(t.store);
        else if (store_commit(t.store, &err) < 0)
            break;
        for (int i = 0; i < FOLLOWERS; i++)
            follow(shared, i, readers[i]);
    }
    shared->broken = true;
    _exit(0);
}

static void test_killed_at_any_time(void **state)
{
    struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    srand(5);
    for (unsigned round = 0; round < 25 || (shared->gaps == 0 && round < 200); round++) {
        uint64_t before = shared->after[0];
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            child(*state, shared, round);
        for (int i = 0; i < 5000 && shared->after[0] == before && !shared->broken; i++)
            (void)usleep(1000);
        (void)usleep((useconds_t)(rand() % 20000));
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_false(shared->broken);
        assert_true(shared->after[0] > before);
    }
    struct test_log t = test_log_open(state);
    struct feed_reader *r = open_at(&t, 0, NULL);
    struct event e;
    struct event_gap gap;
    uint64_t events = 0;
    for (int got; (got = step(r, &e, &gap)) != EVENT_NEXT_DRAINED;) {
        if (got == EVENT_NEXT_EVENT && e.cursor <= shared->after[0]) {
            assert_int_equal(shared->events[e.cursor], event_mark(&e));
            events++;
        }
    }
    assert_true(events > 10);
    assert_true(shared->gaps > 0);
    for (int i = 0; i < FOLLOWERS; i++)
        assert_true(shared->after[i] <= feed_after(r));
    feed_close(r);
    test_log_close(&t);
    assert_int_equal(munmap(shared, sizeof(*shared)), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_dir_setup, test_dir_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_order_of_commits), TEST(test_what_is_gone_is_a_gap), TEST(test_filter),
        TEST(test_many_runs),        TEST(test_killed_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
