/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/mem.h"
#include "kernel/pool.h"
#include "kernel/tree.h"

#include <fcntl.h>
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define DIGEST "sha256-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

struct place {
    char top[64];
    struct pool *pool;
};

static int set_up(void **state)
{
    struct place *p = mem_new(struct place);
    (void)snprintf(p->top, sizeof(p->top), "/tmp/cove-pool-test.XXXXXX");
    if (!mkdtemp(p->top) || pool_open(p->top, &p->pool) < 0)
        return -1;
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct place *p = *state;
    pool_close(p->pool);
    int r = tree_remove(AT_FDCWD, p->top);
    mem_free(p);
    return r;
}

static bool is_there(const struct place *p, const char *pattern)
{
    char full[256];
    glob_t found;
    (void)snprintf(full, sizeof(full), "%s/%s", p->top, pattern);
    int r = glob(full, 0, NULL, &found);
    globfree(&found);
    return r == 0;
}

static void make_box(struct place *p, const char *name)
{
    const struct pool_file files[] = {{"etc/hosts", "127.0.0.1 localhost\n"}, {"top", ""}};
    AUTO_CLOSE int fd = -1;
    assert_int_equal(pool_box_make(p->pool, name, files, ARRAY_SIZE(files), &fd), 0);
    assert_true(fd >= 0);
}

static void test_box_holds_its_files(void **state)
{
    struct place *p = *state;
    make_box(p, "a");
    assert_true(is_there(p, "boxes/*/a/u/etc/hosts"));
    assert_true(is_there(p, "boxes/*/a/u/top"));
    assert_true(is_there(p, "boxes/*/a/w"));
}

static void test_box_name_is_taken_once(void **state)
{
    struct place *p = *state;
    AUTO_CLOSE int fd = -1;
    make_box(p, "a");
    assert_int_equal(pool_box_make(p->pool, "a", NULL, 0, &fd), -EEXIST);
    assert_true(is_there(p, "boxes/*/a/u/etc/hosts"));
}

static void test_dropped_box_is_gone_at_once_and_swept_later(void **state)
{
    struct place *p = *state;
    make_box(p, "a");
    make_box(p, "b");
    assert_int_equal(pool_box_drop(p->pool, "a"), 0);
    assert_false(is_there(p, "boxes/*/a"));
    assert_true(is_there(p, "boxes/*/b"));
    assert_int_equal(pool_box_drop(p->pool, "a"), 0);
    make_box(p, "a");
    assert_int_equal(pool_sweep(p->pool), 1);
    assert_int_equal(pool_sweep(p->pool), 0);
    assert_true(is_there(p, "boxes/*/a"));
}

static void count(void *ctx, const char *name)
{
    (void)name;
    ++*(int *)ctx;
}

static void test_reset_clears_what_a_crash_left(void **state)
{
    struct place *p = *state;
    char half_made[128];
    int boxes = 0;
    make_box(p, "a");
    make_box(p, "b");
    (void)snprintf(half_made, sizeof(half_made), "%s/new/base.1", p->top);
    assert_int_equal(mkdir(half_made, 0755), 0);
    assert_int_equal(pool_reset(p->pool, count, &boxes), 0);
    assert_int_equal(boxes, 2);
    assert_false(is_there(p, "boxes/*/a"));
    assert_false(is_there(p, "new/base.1"));
    assert_int_equal(pool_sweep(p->pool), 3);
}

static void test_layers_are_found_by_digest_only(void **state)
{
    struct place *p = *state;
    char layer[160];
    AUTO_CLOSE int fd = -1;
    assert_int_equal(pool_layer_open(p->pool, DIGEST, &fd), -ENOENT);
    (void)snprintf(layer, sizeof(layer), "%s/layers/" DIGEST, p->top);
    assert_int_equal(mkdir(layer, 0755), 0);
    assert_int_equal(pool_layer_open(p->pool, DIGEST, &fd), 0);
    static const char *const wrong[] = {
        "", "..", "../boxes", "sha256-", "sha256-../../etc", "SHA256-" DIGEST, DIGEST "/..", DIGEST "0"};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        assert_int_equal(pool_layer_open(p->pool, wrong[i], &fd), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_box_holds_its_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_box_name_is_taken_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_dropped_box_is_gone_at_once_and_swept_later, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_reset_clears_what_a_crash_left, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_layers_are_found_by_digest_only, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
