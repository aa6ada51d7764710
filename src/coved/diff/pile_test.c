/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "coved/diff/pile.h"
#include "kernel/pool/pool.h"
#include "kernel/tree/tree.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define BELOW "layer-0000000000000000base"
#define ABOVE "layer-00000000000000second"

static char top[] = "/var/tmp/cove-pile-test.XXXXXX";
static struct pool *pool;

static void make_layer(const char *layer, const struct pool_chain *below)
{
    AUTO_CLOSE int fd = -1;
    assert_int_equal(pool_layer_begin(pool, "job", &fd), 0);
    assert_int_equal(pool_layer_commit(pool, "job", layer, below), 0);
}

static int set_up(void **state)
{
    (void)state;
    const struct pool_chain none = {.n = 0};
    struct pool_chain chain;
    int fd = -1;
    memcpy(strrchr(top, '.') + 1, "XXXXXX", 6);
    assert_non_null(mkdtemp(top));
    assert_int_equal(pool_open_as(top, POOL_COPY, &pool), 0);
    make_layer(BELOW, &none);
    assert_int_equal(pool_chain_read(pool, BELOW, &chain), 0);
    make_layer(ABOVE, &chain);
    const struct pool_box box = {.name = "box", .chain = &chain};
    assert_int_equal(pool_box_make(pool, &box, &fd), 0);
    (void)fd_close(fd);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    pool_close(pool);
    return tree_remove(AT_FDCWD, top);
}

static void close_all(struct pile *p)
{
    for (size_t i = 0; i < p->n; i++)
        (void)fd_close(p->fds[i]);
}

static void test_what_is_there(void **state)
{
    (void)state;
    const struct boxes_files files = {.box = "box", .stands_on = BELOW}, layer = {.stands_on = ABOVE};
    struct pile p = {.n = 0}, q = {.n = 0};
    assert_int_equal(pile_open(pool, &files, &p), 0);
    assert_int_equal(pile_open(pool, &layer, &q), 0);
    assert_int_equal(p.n, 2);
    assert_string_equal(p.names[0], "");
    assert_string_equal(p.names[1], BELOW);
    assert_int_equal(q.n, 2);
    assert_int_equal(pile_check(pool, &files, &p), 0);
    assert_int_equal(pile_check(pool, &layer, &q), 0);
    close_all(&p);
    close_all(&q);
}

static void test_a_sandbox_that_is_removed(void **state)
{
    (void)state;
    const struct boxes_files files = {.box = "box", .stands_on = BELOW};
    struct pile p = {.n = 0};
    assert_int_equal(pile_open(pool, &files, &p), 0);
    assert_int_equal(pool_box_drop(pool, "box"), 0);
    assert_int_equal(pile_check(pool, &files, &p), -ESTALE);
    assert_true(pool_sweep(pool) >= 0);
    assert_int_equal(pile_check(pool, &files, &p), -ESTALE);
    close_all(&p);
}

static void test_a_layer_that_is_removed_or_another_one(void **state)
{
    (void)state;
    const struct pool_chain none = {.n = 0};
    const struct boxes_files files = {.stands_on = ABOVE}, box = {.box = "box", .stands_on = BELOW};
    struct pile p = {.n = 0}, q = {.n = 0};
    assert_int_equal(pile_open(pool, &files, &p), 0);
    assert_int_equal(pile_open(pool, &box, &q), 0);
    assert_int_equal(pool_layer_drop(pool, BELOW), 0);
    assert_int_equal(pile_check(pool, &files, &p), -ESTALE);
    assert_int_equal(pile_check(pool, &box, &q), -ESTALE);
    make_layer(BELOW, &none); /* the same name, other files */
    assert_int_equal(pile_check(pool, &files, &p), -ESTALE);
    close_all(&p);
    close_all(&q);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_what_is_there),
        TEST(test_a_sandbox_that_is_removed),
        TEST(test_a_layer_that_is_removed_or_another_one),
    };
    if (geteuid() != 0) {
        print_message("SKIP: a pool needs root\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
