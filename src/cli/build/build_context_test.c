/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "cli/build/build_context.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void patterns(void **state)
{
    static const struct {
        const char *pattern, *path;
        bool matches;
    } all[] = {
        {"a", "a", true},
        {"a", "b", false},
        {"a", "a/b", true},
        {"a/b", "a", false},
        {"*.txt", "x.txt", true},
        {"*.txt", "d/x.txt", false},
        {"**/*.txt", "d/e/x.txt", true},
        {"**/*.txt", "x.txt", true},
        {"d/**", "d/e/f", true},
        {"d/*", "d/e", true},
        {"d/*", "d/e/f", true},
        {"?", "ab", false},
        {"[ab]c", "bc", true},
        {"**", "x/y", true},
        {"node_modules", "node_modules/x/y", true},
        {"**/x/**/y", "a/x/b/c/y", true},
        {"**/x/**/y", "a/b/c/y", false},
        {"", "a", false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        if (build_context_matches(str_of(all[i].pattern), str_of(all[i].path)) != all[i].matches)
            fail_msg("%s and %s", all[i].pattern, all[i].path);
}

static void hashes(void **state)
{
    char dir[] = "/tmp/cove-context-XXXXXX", path[128], first[65], second[65];
    struct local_context *c;
    struct err err;
    (void)state;
    assert_non_null(mkdtemp(dir));
    static const char *const names[] = {"a.txt", "b.txt", "d/c.txt", "d/skip.log", ".dockerignore"};
    (void)snprintf(path, sizeof(path), "%s/d", dir);
    assert_int_equal(mkdir(path, 0755), 0);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        struct str text = strcmp(names[i], ".dockerignore") == 0 ? STR("# no logs\n**/*.log\n!d/keep.log\n") : STR("x");
        assert_int_equal(fd_write_file(AT_FDCWD, path, text, 0644), 0);
    }
    assert_int_equal(build_context_open(dir, &c, &err), 0);
    assert_int_equal(build_context_hash(c, "*.txt", first, &err), 0);
    assert_int_equal(build_context_hash(c, "./*.txt", second, &err), 0);
    assert_string_not_equal(first, second); /* the source is part of it */
    assert_int_equal(build_context_hash(c, "d/skip.log", second, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(build_context_hash(c, "nothing", second, &err), -1);
    (void)snprintf(path, sizeof(path), "%s/packed", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(build_context_pack(c, ".", fd, &err), 0);
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    assert_true(st.st_size > 100);
    (void)fd_close(fd);
    build_context_close(c);

    (void)snprintf(path, sizeof(path), "%s/b.txt", dir);
    assert_int_equal(fd_write_file(AT_FDCWD, path, STR("y"), 0644), 0);
    assert_int_equal(build_context_open(dir, &c, &err), 0);
    assert_int_equal(build_context_hash(c, "*.txt", second, &err), 0);
    assert_string_not_equal(first, second);
    build_context_close(c);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        assert_int_equal(unlink(path), 0);
    }
    (void)snprintf(path, sizeof(path), "%s/packed", dir);
    (void)unlink(path);
    (void)snprintf(path, sizeof(path), "%s/d", dir);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(patterns), cmocka_unit_test(hashes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
