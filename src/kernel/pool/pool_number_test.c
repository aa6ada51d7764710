/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "kernel/pool/pool_internal.h"
#include "kernel/pool/test_pool.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define BASE TEST_BASE
#define SECOND TEST_SECOND
#define THIRD TEST_THIRD

static const struct pool_file box_files[] = {{"etc/hosts", "127.0.0.1 localhost\n"}, {"top", ""}};

enum { NUMBERS_MAX = 128 };

struct numbers {
    size_t n;
    ino_t all[NUMBERS_MAX];
};

static void note_numbers(const struct test_pool *p, const char *path, struct numbers *numbers)
{
    AUTO_CLOSE int fd = openat(pool_fd(p->pool), path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fdopendir(TAKE_FD(fd));
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (strcmp(e->d_name, "..") == 0)
            continue;
        for (size_t i = 0; i < numbers->n; i++)
            assert_int_not_equal(numbers->all[i], e->d_ino);
        assert_true(numbers->n < NUMBERS_MAX);
        numbers->all[numbers->n++] = e->d_ino;
    }
    (void)closedir(dir);
}

static void make_box_above(struct test_pool *p, const char *name, const struct pool_chain *chain)
{
    AUTO_CLOSE int fd = -1;
    const struct pool_box box = {.name = name, .chain = chain, .files = box_files, .n_files = 2};
    assert_int_equal(pool_box_make(p->pool, &box, &fd), 0);
    AUTO_CLOSE int u = test_pool_upper(p, name);
    for (int i = 0; i < 5; i++) {
        char file[16];
        (void)snprintf(file, sizeof(file), "%s%d", name, i);
        test_pool_write(u, file, "x");
    }
}

/* An overlay shows them as they are: two of the same would be taken for one file. */
static void test_numbers_of_inodes_differ_from_those_below(void **state)
{
    struct test_pool *p = *state;
    struct pool_chain chain = {1, {BASE}}, below = chain;
    struct numbers numbers = {0};
    test_pool_layer(p, BASE, NULL);
    make_box_above(p, "a", &chain);
    assert_int_equal(pool_layer_of_box(p->pool, "a", SECOND, &below), 0);
    assert_int_equal(pool_chain_read(p->pool, SECOND, &chain), 0);
    below = chain;
    make_box_above(p, "b", &chain);
    assert_int_equal(pool_keep(p->pool, "b", "kept", &below), 0);
    assert_int_equal(pool_layer_of_kept(p->pool, "kept", THIRD), 0);
    assert_int_equal(pool_chain_read(p->pool, THIRD, &chain), 0);
    assert_int_equal(chain.n, 3);
    make_box_above(p, "c", &chain);
    note_numbers(p, "layers/" BASE "/u", &numbers);
    note_numbers(p, "layers/" SECOND "/u", &numbers);
    note_numbers(p, "layers/" THIRD "/u", &numbers);
    AUTO_CLOSE int u = test_pool_upper(p, "c");
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", u);
    note_numbers(p, path, &numbers);
    assert_true(numbers.n > 15);
    assert_false(pool_chain_is_long(p->pool, &chain));
}

static void test_stock_is_taken_and_filled_again(void **state)
{
    struct test_pool *p = *state;
    struct pool_chain chain = {1, {BASE}}, below = chain;
    test_pool_layer(p, BASE, NULL);
    make_box_above(p, "a", &chain);
    assert_int_equal(pool_layer_of_box(p->pool, "a", SECOND, &below), 0);
    assert_int_equal(pool_chain_read(p->pool, SECOND, &chain), 0);
    make_box_above(p, "b", &chain); /* there is none yet */
    if (p->kind != POOL_BTRFS) {
        assert_int_equal(pool_stock_fill(p->pool, 1000), 0);
        return;
    }
    int made = pool_stock_fill(p->pool, 1000);
    assert_true(made == POOL_STOCK || made == 2 * POOL_STOCK); /* one kind is always wanted */
    assert_int_equal(pool_stock_fill(p->pool, 1000), 0);
    make_box_above(p, "c", &chain);
    make_box_above(p, "d", &chain);
    assert_int_equal(pool_stock_fill(p->pool, 1), 1);
    assert_int_equal(pool_stock_fill(p->pool, 1000), 1);
    for (int i = 0; i <= POOL_STOCK; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "box%d", i);
        make_box_above(p, name, &chain);
    }
    assert_int_equal(pool_stock_fill(p->pool, 1000), POOL_STOCK);
}

/* One that goes on where another stopped, again and again, until there are no numbers to begin with any more. */
static void test_numbers_of_a_long_line_differ(void **state)
{
    struct test_pool *p = *state;
    enum { GENERATIONS = 40 };
    struct pool_chain chain = {1, {BASE}};
    bool was_long = false;
    test_pool_layer(p, BASE, NULL);
    for (int i = 0; i < GENERATIONS; i++) {
        char box[16], layer[POOL_LAYER_MAX];
        struct numbers numbers = {0};
        AUTO_CLOSE int fd = -1;
        (void)snprintf(box, sizeof(box), "b%d", i);
        (void)snprintf(layer, sizeof(layer), "layer-%020d", i);
        bool is_long = pool_chain_is_long(p->pool, &chain), cut = is_long || chain.n > 6;
        was_long |= is_long;
        const struct pool_box spec = {.name = box, .from_layer = cut, .chain = &chain};
        assert_int_equal(pool_box_make(p->pool, &spec, &fd), 0);
        AUTO_CLOSE int u = test_pool_upper(p, box);
        for (int k = 0; k < 60; k++) { /* more than seeds are apart */
            test_pool_write(u, "passing", "x");
            assert_int_equal(unlinkat(u, "passing", 0), 0);
        }
        test_pool_write(u, box, "x");
        struct pool_chain below = {.n = chain.n - cut};
        for (size_t k = 0; k < below.n; k++)
            memcpy(below.names[k], chain.names[k + cut], POOL_LAYER_MAX);
        assert_int_equal(pool_layer_of_box(p->pool, box, layer, &below), 0);
        assert_int_equal(pool_box_drop(p->pool, box), 0);
        assert_int_equal(pool_chain_read(p->pool, layer, &chain), 0);
        for (size_t k = 0; k < chain.n; k++) {
            char path[POOL_LAYER_MAX + 16];
            (void)snprintf(path, sizeof(path), "layers/%s/u", chain.names[k]);
            note_numbers(p, path, &numbers);
        }
    }
    assert_int_equal(was_long, p->kind == POOL_BTRFS);
}

static int run(const char *name, int limit UNUSED)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_numbers_of_inodes_differ_from_those_below, test_pool_set_up,
                                        test_pool_tear_down),
        cmocka_unit_test_setup_teardown(test_stock_is_taken_and_filled_again, test_pool_set_up, test_pool_tear_down),
        cmocka_unit_test_setup_teardown(test_numbers_of_a_long_line_differ, test_pool_set_up, test_pool_tear_down),
    };
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void)
{
    return test_pool_on_each(run);
}
