/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/files/watch_dirs.h"
#include "base/fd.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char root[] = "/tmp/cove-watch-dirs-test-XXXXXX";
static struct watch_dirs dirs;
static int notify = -1;

static int begin(void **state UNUSED)
{
    memcpy(root + sizeof(root) - 7, "XXXXXX", 6);
    notify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (notify < 0 || !mkdtemp(root))
        return -1;
    watch_dirs_init(&dirs);
    watch_dirs_open(&dirs, notify, root);
    return 0;
}

static int end(void **state UNUSED)
{
    watch_dirs_fini(&dirs);
    notify = fd_close(notify);
    return 0;
}

/* Makes it, and takes it up; its number. */
static int add(const char *parent, const char *name)
{
    char path[PATH_TEXT_MAX];
    assert_true(watch_dirs_path(&dirs, parent, name, path));
    assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
    assert_int_equal(watch_dirs_add(&dirs, parent, name, false), 0);
    const struct watch_dir *d = container_of(dirs.todo.prev, struct watch_dir, todo);
    return d->number;
}

static void drop(const char *parent, const char *name)
{
    char path[PATH_TEXT_MAX];
    assert_true(watch_dirs_path(&dirs, parent, name, path));
    assert_int_equal(rmdir(path), 0);
}

static struct inotify_event event(uint32_t mask, uint32_t cookie)
{
    return (struct inotify_event){.mask = mask | IN_ISDIR, .cookie = cookie};
}

static bool move(int from, const char *name, int to, const char *new_name)
{
    const struct inotify_event left = event(IN_MOVED_FROM, 7), came = event(IN_MOVED_TO, 7);
    watch_dirs_settle(&dirs, &left);
    assert_false(watch_dirs_moved(&dirs, watch_dirs_find(&dirs, from), &left, name));
    watch_dirs_settle(&dirs, &came);
    return watch_dirs_moved(&dirs, watch_dirs_find(&dirs, to), &came, new_name);
}

static void a_directory_keeps_its_number_under_its_new_path(void **state UNUSED)
{
    int top = add("", ""), a = add("", "a"), below = add("a", "below"), alike = add("", "a-like"), b = add("", "b");
    assert_true(move(top, "a", b, "new"));
    assert_string_equal(watch_dirs_find(&dirs, a)->path, "b/new");
    assert_string_equal(watch_dirs_find(&dirs, below)->path, "b/new/below");
    assert_string_equal(watch_dirs_find(&dirs, alike)->path, "a-like");
    assert_false(move(top, "never seen", b, "x"));
    drop("a", "below");
    drop("", "a");
    drop("", "a-like");
    drop("", "b");
    drop("", "");
}

static void one_that_left_is_forgotten_with_the_next_event(void **state UNUSED)
{
    int top = add("", ""), a = add("", "a"), below = add("a", "below");
    const struct inotify_event left = event(IN_MOVED_FROM, 7), other = event(IN_MOVED_TO, 8);
    assert_false(watch_dirs_moved(&dirs, watch_dirs_find(&dirs, top), &left, "a"));
    assert_non_null(watch_dirs_find(&dirs, a));
    watch_dirs_settle(&dirs, &other);
    assert_null(watch_dirs_find(&dirs, a));
    assert_null(watch_dirs_find(&dirs, below));
    assert_non_null(watch_dirs_find(&dirs, top));
    drop("a", "below");
    drop("", "a");
    drop("", "");
}

/* Moved again and again they would become as long as somebody likes. */
static void one_whose_path_nobody_could_name_is_forgotten(void **state UNUSED)
{
    enum { NAME = 250, DEEP = 16 };
    char name[NAME + 1], path[PATH_TEXT_MAX] = "";
    int deepest = 0, top = add("", ""), a = add("", "a");
    memset(name, 'x', NAME);
    name[NAME] = 0;
    int below = add("a", name);
    for (size_t i = 0, n = 0; i < DEEP; i++) {
        deepest = add(path, name);
        n += (size_t)snprintf(path + n, sizeof(path) - n, "%s%s", i ? "/" : "", name);
    }
    assert_true(move(top, "a", deepest, "b"));
    assert_true(strlen(path) + 2 < PATH_TEXT_MAX);
    assert_string_equal(watch_dirs_find(&dirs, a)->path + strlen(path), "/b");
    assert_null(watch_dirs_find(&dirs, below));
    drop("a", name);
    drop("", "a");
    for (int i = DEEP; i-- > 0;) {
        path[i ? i * (NAME + 1) - 1 : 0] = 0;
        drop(path, name);
    }
    drop("", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_directory_keeps_its_number_under_its_new_path, begin, end),
        cmocka_unit_test_setup_teardown(one_that_left_is_forgotten_with_the_next_event, begin, end),
        cmocka_unit_test_setup_teardown(one_whose_path_nobody_could_name_is_forgotten, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
