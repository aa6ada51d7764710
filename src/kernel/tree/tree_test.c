/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/mem.h"
#include "kernel/tree/tree.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct place {
    char top[64];
    int fd;
};

static int set_up(void **state)
{
    struct place *p = mem_new(struct place);
    (void)snprintf(p->top, sizeof(p->top), "/tmp/cove-tree-test.XXXXXX");
    if (!mkdtemp(p->top))
        return -1;
    p->fd = open(p->top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *state = p;
    return p->fd < 0;
}

static int tear_down(void **state)
{
    struct place *p = *state;
    (void)fd_close(p->fd);
    int r = rmdir(p->top); /* every test leaves it empty */
    mem_free(p);
    return r;
}

static void touch(int at, const char *path)
{
    assert_int_equal(fd_write_file(at, path, STR("x"), 0600), 0);
}

static void test_file_link_and_nothing(void **state)
{
    struct place *p = *state;
    touch(p->fd, "file");
    assert_int_equal(symlinkat("/etc", p->fd, "link"), 0);
    assert_int_equal(tree_remove(p->fd, "file"), 0);
    assert_int_equal(tree_remove(p->fd, "link"), 0);
    assert_int_equal(tree_remove(p->fd, "file"), -ENOENT);
    assert_int_equal(access("/etc/passwd", F_OK), 0);
}

static void test_links_inside_are_not_followed(void **state)
{
    struct place *p = *state;
    assert_int_equal(mkdirat(p->fd, "keep", 0755), 0);
    touch(p->fd, "keep/me");
    assert_int_equal(mkdirat(p->fd, "d", 0755), 0);
    assert_int_equal(symlinkat("../keep", p->fd, "d/l"), 0);
    assert_int_equal(tree_remove(p->fd, "d"), 0);
    assert_int_equal(faccessat(p->fd, "keep/me", F_OK, 0), 0);
    assert_int_equal(tree_remove(p->fd, "keep"), 0);
}

static void test_hostile_modes_and_names(void **state)
{
    struct place *p = *state;
    assert_int_equal(mkdirat(p->fd, "d", 0755), 0);
    assert_int_equal(mkdirat(p->fd, "d/\n-rf", 0755), 0);
    touch(p->fd, "d/\n-rf/\xff\xfe");
    assert_int_equal(mkfifoat(p->fd, "d/fifo", 0), 0);
    assert_int_equal(mkdirat(p->fd, "d/closed", 0), 0);
    assert_int_equal(tree_remove(p->fd, "d"), 0);
}

static void make_deep(const struct place *p, int depth)
{
    int at = dup(p->fd);
    for (int i = 0; i < depth; i++) {
        assert_int_equal(mkdirat(at, "directory", 0755), 0);
        int next = openat(at, "directory", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        (void)fd_close(at);
        at = next;
    }
    touch(at, "file");
    (void)fd_close(at);
}

/* Far deeper than PATH_MAX and than the descriptors that one walk may hold. */
static void test_very_deep_tree(void **state)
{
    struct place *p = *state;
    make_deep(p, 3000);
    assert_int_equal(tree_remove(p->fd, "directory"), 0);
}

/* Whoever made it can't have taken the names that deleting it needs. */
static void test_names_that_are_in_the_way(void **state)
{
    struct place *p = *state;
    make_deep(p, 300);
    for (int i = 0; i < 10; i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "directory/.deep.%d.%d", (int)getpid(), i);
        assert_int_equal(mkdirat(p->fd, name, 0755), 0);
        (void)snprintf(name, sizeof(name), "directory/.deep.%d.%d/full", (int)getpid(), i);
        touch(p->fd, name);
    }
    assert_int_equal(tree_remove(p->fd, "directory"), 0);
}

static void test_wide_tree(void **state)
{
    struct place *p = *state;
    assert_int_equal(mkdirat(p->fd, "d", 0755), 0);
    for (int i = 0; i < 5000; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "d/%d", i);
        if (i % 10)
            touch(p->fd, name);
        else
            assert_int_equal(mkdirat(p->fd, name, 0755), 0);
    }
    assert_int_equal(tree_remove(p->fd, "d"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_file_link_and_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_links_inside_are_not_followed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_hostile_modes_and_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_very_deep_tree, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_names_that_are_in_the_way, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wide_tree, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
