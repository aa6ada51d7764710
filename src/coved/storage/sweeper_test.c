/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a service waits for the deletion of files only so long; what is left then goes away after the next
 * start. */
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "coved/storage/sweeper.h"
#include "kernel/pool/pool.h"
#include "kernel/tree/tree.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { MANY = 2000, AWAIT_MS = 30000, BOUND_MS = 60000 };

static char top[] = "/tmp/cove-sweeper-test.XXXXXX";

static void make(int pool, const char *name, unsigned n)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "trash/%s", name);
    assert_int_equal(mkdirat(pool, path, 0755), 0);
    for (unsigned i = 0; i < n; i++) {
        (void)snprintf(path, sizeof(path), "trash/%s/%u", name, i);
        assert_int_equal(mkdirat(pool, path, 0755), 0);
    }
}

static bool is_there(int pool, const char *path)
{
    return faccessat(pool, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void test_all_that_can_be_deleted_is(void **state)
{
    struct pool *pool = *state;
    assert_int_equal(sweeper_last(pool, BOUND_MS), 0); /* nothing is there */
    make(pool_fd(pool), "some", 10);
    make(pool_fd(pool), "more", 0);
    assert_int_equal(sweeper_last(pool, BOUND_MS), 0);
    assert_false(is_there(pool_fd(pool), "trash/some"));
    assert_false(is_there(pool_fd(pool), "trash/more"));
}

static void test_what_takes_too_long_is_left_to_the_next_start(void **state)
{
    struct pool *pool = *state;
    struct sweeper *sweeper = NULL;
    struct err err;
    make(pool_fd(pool), "huge", MANY);
    assert_int_equal(sweeper_last(pool, 0), 1);
    assert_true(is_there(pool_fd(pool), "trash/huge"));

    assert_int_equal(sweeper_start(pool, &sweeper, &err), 0);
    for (int i = 0; i < AWAIT_MS / 10 && is_there(pool_fd(pool), "trash/huge"); i++)
        (void)usleep(10000);
    assert_false(is_there(pool_fd(pool), "trash/huge"));
    sweeper_stop(sweeper);
}

/* A snapshot would wait for what is deleted meanwhile. */
static void test_nothing_is_deleted_while_sandboxes_come_and_go(void **state)
{
    struct pool *pool = *state;
    struct sweeper *sweeper = NULL;
    struct err err;
    usec_t began = clock_mono();
    assert_int_equal(sweeper_start(pool, &sweeper, &err), 0);
    make(pool_fd(pool), "left", 1);
    for (int i = 0; i < 40; i++) {
        (void)usleep(10000);
        sweeper_tick(sweeper);
    }
    bool was_there = is_there(pool_fd(pool), "trash/left");
    usec_t took = clock_mono() - began;
    for (int i = 0; i < AWAIT_MS / 10 && is_there(pool_fd(pool), "trash/left"); i++)
        (void)usleep(10000);
    assert_false(is_there(pool_fd(pool), "trash/left"));
    sweeper_stop(sweeper);
    if (!was_there && took > 600 * USEC_PER_MS)
        skip(); /* we were late */
    assert_true(was_there);
}

static int set_up(void **state)
{
    struct pool *pool = NULL;
    if (!mkdtemp(top) || pool_open(top, &pool) < 0)
        return -1;
    *state = pool;
    return 0;
}

static int tear_down(void **state)
{
    pool_close(*state);
    return tree_remove(AT_FDCWD, top);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_that_can_be_deleted_is),
        cmocka_unit_test(test_what_takes_too_long_is_left_to_the_next_start),
        cmocka_unit_test(test_nothing_is_deleted_while_sandboxes_come_and_go),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
