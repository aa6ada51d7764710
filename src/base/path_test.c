/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/path.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void cleans(const char *path, const char *want)
{
    char got[PATH_TEXT_MAX];
    assert_int_equal(path_clean(str_of(path), got), 0);
    if (strcmp(got, want) != 0)
        fail_msg("%s gave %s instead of %s", path, got, want);
}

static void test_clean(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"/", "/"},
        {"//", "/"},
        {"/.", "/"},
        {"/..", "/"},
        {"/../..", "/"},
        {".", "."},
        {"./", "."},
        {"..", ".."},
        {"../", ".."},
        {"../..", "../.."},
        {"a", "a"},
        {"a/", "a"},
        {"a//b", "a/b"},
        {"a/./b", "a/b"},
        {"a/../b", "b"},
        {"a/..", "."},
        {"a/../..", ".."},
        {"a/../../b", "../b"},
        {"../a/..", ".."},
        {"../a/../../b", "../../b"},
        {"/a/../../b", "/b"},
        {"/a/b/../c/", "/a/c"},
        {"...", "..."},
        {"/a/...", "/a/..."},
        {"..a", "..a"},
        {"a..", "a.."},
        {"/a/..b/..", "/a"},
        {"././.", "."},
        {"/home//user///x.txt", "/home/user/x.txt"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        cleans(cases[i][0], cases[i][1]);
    char out[PATH_TEXT_MAX] = "untouched";
    assert_int_equal(path_clean(STR(""), out), -EINVAL);
    assert_int_equal(path_clean(STR_NULL, out), -EINVAL);
    assert_int_equal(path_clean(STR("/a\0b"), out), -EINVAL);
    char big[5000];
    memset(big, 'a', sizeof(big));
    big[0] = '/';
    assert_int_equal(path_clean(str_n(big, PATH_TEXT_MAX), out), -ENAMETOOLONG);
    assert_string_equal(out, "untouched");
    assert_int_equal(path_clean(str_n(big, PATH_TEXT_MAX - 1), out), 0);
    assert_int_equal(strlen(out), PATH_TEXT_MAX - 1);
    memset(big, '/', sizeof(big)); /* long, but not when it is clean */
    assert_int_equal(path_clean(str_n(big, sizeof(big)), out), 0);
    assert_string_equal(out, "/");
}

static void joins(const char *base, const char *rest, const char *want)
{
    char got[PATH_TEXT_MAX];
    assert_int_equal(path_join(str_of(base), str_of(rest), got), 0);
    if (strcmp(got, want) != 0)
        fail_msg("%s and %s gave %s instead of %s", base, rest, got, want);
}

static void test_join(void **state)
{
    (void)state;
    joins("/home/user", "x", "/home/user/x");
    joins("/home/user/", "./x/", "/home/user/x");
    joins("/home/user", "../root", "/home/root");
    joins("/home/user", "../../../../etc", "/etc");
    joins("/home/user", "/etc", "/etc");
    joins("/home/user", "", "/home/user");
    joins("", "x", "x");
    joins("/", "..", "/");
    joins("a", "../..", "..");
    joins("..", "..", "../..");
    char out[PATH_TEXT_MAX];
    assert_int_equal(path_join(STR(""), STR(""), out), -EINVAL);
    assert_int_equal(path_join(STR("/a\0"), STR("/b"), out), -EINVAL);
}

static void test_parts(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"/a/b", "/a", "b"},   {"/a", "/", "a"}, {"/", "/", "/"},    {"a", ".", "a"},          {"a/b/", "a", "b"},
        {"/a/b//", "/a", "b"}, {"//", "/", "/"}, {"a//b", "a", "b"}, {"/a.txt", "/", "a.txt"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_true(str_eqc(path_dir(str_of(cases[i][0])), cases[i][1]));
        assert_true(str_eqc(path_base(str_of(cases[i][0])), cases[i][2]));
    }
    assert_int_equal(path_base(STR("")).n, 0);
    assert_true(str_eqc(path_dir(STR("")), "."));
}

static void test_below(void **state)
{
    (void)state;
    assert_true(path_is_below(STR("/usr"), STR("/usr")));
    assert_true(path_is_below(STR("/usr/bin"), STR("/usr")));
    assert_true(path_is_below(STR("/usr"), STR("/")));
    assert_false(path_is_below(STR("/usrx"), STR("/usr")));
    assert_false(path_is_below(STR("/us"), STR("/usr")));
    assert_false(path_is_below(STR("/"), STR("/usr")));
}

/* What comes out is clean: cleaning it again changes nothing, and an absolute path never leads above the root. */
static void test_random(void **state)
{
    (void)state;
    static const char *const parts[] = {"/", "//", ".", "..", "a", "bb", "...", "/./", "/../", "x/"};
    srand(13);
    for (int i = 0; i < 100000; i++) {
        char once[PATH_TEXT_MAX], twice[PATH_TEXT_MAX];
        AUTO_BUF struct buf made = BUF_INIT(64);
        int n = 1 + rand() % 10;
        for (int k = 0; k < n; k++)
            assert_int_equal(buf_append_cstr(&made, parts[(size_t)rand() % ARRAY_SIZE(parts)]), 0);
        struct str in = buf_str(&made);
        assert_int_equal(path_clean(in, once), 0);
        assert_int_equal(path_clean(str_of(once), twice), 0);
        assert_string_equal(once, twice);
        assert_int_equal(in.p[0] == '/', once[0] == '/');
        assert_null(strstr(once, "//"));
        assert_true(strlen(once) <= in.n);
        if (once[0] == '/') {
            assert_null(strstr(once, "/../"));
            assert_false(str_ends(str_of(once), STR("/..")));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clean), cmocka_unit_test(test_join),   cmocka_unit_test(test_parts),
        cmocka_unit_test(test_below), cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
