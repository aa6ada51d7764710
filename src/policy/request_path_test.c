/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "policy/request_path.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void paths_that_every_server_reads_alike(void **state)
{
    static const struct {
        const char *raw, *read;
    } cases[] = {
        {"/", "/"},
        {"/a", "/a"},
        {"/a/", "/a/"},
        {"/a/b?x=/../y", "/a/b"},
        {"/?", "/"},
        {"/a?b#c", "/a"},
        {"/.", "/"},
        {"/./", "/"},
        {"/..", "/"},
        {"/../..", "/"},
        {"/a/.", "/a/"},
        {"/a/..", "/"},
        {"/a/b/..", "/a/"},
        {"/a/./b/../c", "/a/c"},
        {"/a/../../b", "/b"},
        {"/v1/../admin", "/admin"},
        {"/v1/%2e%2e/admin", "/admin"},
        {"/v1/.%2E/admin", "/admin"},
        {"/v1/%2e/x", "/v1/x"},
        {"/...", "/..."},
        {"/.well-known/x", "/.well-known/x"},
        {"/..a", "/..a"},
        {"/%61dmin", "/admin"},
        {"/%41%5A%7e%2d", "/AZ~-"},
        {"/a%20b", "/a%20b"},
        {"/a%c3%a9", "/a%C3%A9"},
        {"/x%3fy", "/x%3Fy"},
        {"/c%23", "/c%23"},
        {"/100%25", "/100%25"},
        {"/100%25g1", "/100%25g1"},
        {"/a%3ab%40c%2Bd", "/a:b@c+d"},
        {"/@scope", "/@scope"},
        {"/%40scope", "/@scope"},
        {"/models/x:generateContent", "/models/x:generateContent"},
        {"/a[0]{1}|\"<>^`", "/a%5B0%5D%7B1%7D%7C%22%3C%3E%5E%60"},
        {"/a*b", "/a*b"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct request_path path;
        if (!request_path_read(str_of(cases[i].raw), &path))
            fail_msg("%s has a reading", cases[i].raw);
        assert_int_equal(path.n, 1);
        if (!str_eqc(path.readings[0], cases[i].read))
            fail_msg("%s is %s and not %.*s", cases[i].raw, cases[i].read, STR_ARG(path.readings[0]));
    }
}

static void paths_that_servers_read_differently(void **state)
{
    enum { SLASH = 1, PARAMETERS = 2, MERGE = 4 };
    static const struct {
        const char *raw;
        unsigned reading;
        const char *read;
    } cases[] = {
        {"/a%2fb", 0, "/a%2Fb"},
        {"/a%2Fb", SLASH, "/a/b"},
        {"/v1/..%2fadmin", 0, "/v1/..%2Fadmin"},
        {"/v1/..%2fadmin", SLASH, "/admin"},
        {"/v1/%2e%2e%2fadmin", SLASH, "/admin"},
        {"/v1%2f..%2f..%2fadmin", SLASH, "/admin"},
        {"/v1/..;/admin", 0, "/v1/..;/admin"},
        {"/v1/..;/admin", PARAMETERS, "/admin"},
        {"/v1/..;x=1/admin", PARAMETERS, "/admin"},
        {"/v1/..%3bx/admin", PARAMETERS, "/admin"},
        {"/admin;v=1/x", PARAMETERS, "/admin/x"},
        {"/admin;v=1/x", 0, "/admin;v=1/x"},
        {"/;x/admin", PARAMETERS, "//admin"},
        {"/;x/admin", PARAMETERS | MERGE, "/admin"},
        {"//admin", 0, "//admin"},
        {"//admin", MERGE, "/admin"},
        {"/a///b//", MERGE, "/a/b/"},
        {"/a///b//", 0, "/a///b//"},
        {"/a//../b", 0, "/a/b"},
        {"/a//../b", MERGE, "/b"},
        {"/a%2f%2fb", SLASH, "/a//b"},
        {"/a%2f%2fb", SLASH | MERGE, "/a/b"},
        {"/a/..;%2f..;/b", SLASH | PARAMETERS, "/b"},
        {"//", 0, "//"},
        {"//", MERGE, "/"},
        {"/%2f", SLASH | MERGE, "/"},
        {"/;", PARAMETERS, "/"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct request_path path;
        assert_true(request_path_read(str_of(cases[i].raw), &path));
        assert_int_equal(path.n, REQUEST_PATH_READINGS);
        if (!str_eqc(path.readings[cases[i].reading], cases[i].read))
            fail_msg("%s in reading %u is %s and not %.*s", cases[i].raw, cases[i].reading, cases[i].read,
                     STR_ARG(path.readings[cases[i].reading]));
    }
}

static void paths_without_a_reading(void **state)
{
    static const char *const cases[] = {
        "",
        "*",
        "a",
        "?x",
        "http://h/a",
        "./a",
        "%2fa",
        "\\a",
        "/a\\b",
        "/a\\..\\b",
        "/a%5cb",
        "/a%5C..%5Cb",
        "/a%00",
        "/a%0a",
        "/a%0d%0aX",
        "/a%1f",
        "/a%7f",
        "/a b",
        "/a\tb",
        "/a\x7f",
        "/a\x01",
        "/a\xc3\xa9",
        "/%",
        "/%2",
        "/%zz",
        "/%2x",
        "/% 20",
        "/a%2",
        "/a#b",
        "/#",
        "/%252e%252e/x",
        "/%2541",
        "/%25%34%31",
        "/%252541",
        "/a%25%32%65",
        "/%c0%ae%c0%ae/x",
        "/%c0%af",
        "/%ff",
        "/%e9",
        "/%ed%a0%80",
        "/%u002e",
    };
    char longest[REQUEST_PATH_MAX + 2];
    struct request_path path;
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        if (request_path_read(str_of(cases[i]), &path))
            fail_msg("%s has a reading: %.*s", cases[i], STR_ARG(path.readings[0]));
        assert_int_equal(path.n, 0);
    }
    assert_false(request_path_read(str_n("/a\0b", 4), &path));
    assert_false(request_path_read(STR_NULL, &path));

    memset(longest, 'a', sizeof(longest));
    longest[0] = '/';
    longest[REQUEST_PATH_MAX] = '?';
    assert_true(request_path_read(str_n(longest, sizeof(longest)), &path));
    assert_int_equal(path.readings[0].n, REQUEST_PATH_MAX);
    longest[REQUEST_PATH_MAX - 1] = '"'; /* takes three bytes */
    assert_false(request_path_read(str_n(longest, sizeof(longest)), &path));
    longest[REQUEST_PATH_MAX] = 'a';
    assert_false(request_path_read(str_n(longest, sizeof(longest)), &path));
}

static void the_longest_path_has_all_its_readings(void **state)
{
    char text[REQUEST_PATH_MAX];
    struct request_path path;
    (void)state;
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = "/;"[i % 2];
    assert_true(request_path_read(str_n(text, sizeof(text)), &path));
    assert_int_equal(path.n, REQUEST_PATH_READINGS);
    assert_int_equal(path.readings[0].n, REQUEST_PATH_MAX);
    assert_int_equal(path.readings[2].n, REQUEST_PATH_MAX / 2);
    assert_int_equal(path.readings[6].n, 1);
    memset(text, '/', sizeof(text));
    assert_true(request_path_read(str_n(text, sizeof(text)), &path));
    assert_int_equal(path.readings[0].n, REQUEST_PATH_MAX);
    assert_int_equal(path.readings[4].n, 1);
}

static void patterns_have_one_form(void **state)
{
    static const struct {
        const char *text, *pattern; /* NULL: none */
    } cases[] = {
        {"/", "/"},
        {"/*", "/*"},
        {"/v1*", "/v1*"},
        {"/v1/*", "/v1/*"},
        {"/%7euser/%41*", "/~user/A*"},
        {"/a%c3%a9", "/a%C3%A9"},
        {"/a b", NULL},
        {"/a\"", "/a%22"},
        {"/group%2fproject*", "/group%2Fproject*"},
        {"/a//b", "/a//b"},
        {"/a;b", "/a;b"},
        {"/.hidden*", "/.hidden*"},
        {"", NULL},
        {"*", NULL},
        {"v1*", NULL},
        {"/a**", NULL},
        {"/a*b", NULL},
        {"/a%2a", NULL}, /* as text it would mean something else */
        {"/a%2Ab*", NULL},
        {"/a*/b*", NULL},
        {"/a/../b", NULL},
        {"/a/..", NULL},
        {"/./a", NULL},
        {"/a/.*", NULL},
        {"/a/%2e%2e/b", NULL},
        {"/a/..%2fb", NULL},
        {"/a/..;x/b", NULL},
        {"/a?b", NULL},
        {"/a?*", NULL},
        {"/a#b", NULL},
        {"/a\\b", NULL},
        {"/a%2*", NULL},
        {"/a%00", NULL},
        {"/%2541", NULL},
        {"https://example.com/", NULL},
    };
    AUTO_ARENA struct arena arena = ARENA_INIT;
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct path_pattern pattern;
        if (path_pattern_parse(str_of(cases[i].text), &arena, &pattern) != !!cases[i].pattern)
            fail_msg("\"%s\" is %s pattern", cases[i].text, cases[i].pattern ? "a" : "no");
        if (cases[i].pattern)
            assert_string_equal(pattern.text, cases[i].pattern);
    }
    assert_false(path_pattern_parse(str_n("/a\0", 3), &arena, &(struct path_pattern){0}));
    assert_false(path_pattern_parse(STR_NULL, &arena, &(struct path_pattern){0}));
}

static void what_a_pattern_allows_and_denies(void **state)
{
    static const struct {
        const char *pattern, *raw;
        bool allows, denies;
    } cases[] = {
        {"/v1", "/v1", true, true},
        {"/v1", "/v1?x=/v2", true, true},
        {"/v1", "/v1/", false, false},
        {"/v1", "/v10", false, false},
        {"/v1", "/V1", false, false},
        {"/v1", "/%761", true, true},
        {"/v1*", "/v1", true, true},
        {"/v1*", "/v10", true, true},
        {"/v1*", "/v1/x", true, true},
        {"/v1/*", "/v1", false, false},
        {"/v1/*", "/v1/", true, true},
        {"/v1/*", "/v1/../admin", false, false},
        {"/v1/*", "/v1/%2e%2e/admin", false, false},
        {"/v1/*", "/admin/../v1/x", true, true},
        {"/v1/*", "/v1/..%2fadmin", false, true},
        {"/v1/*", "/v1/..;/admin", false, true},
        {"/v1/*", "/v1/..;x=y%2f..;/admin", false, true},
        {"/v1/*", "/v1//../admin", false, true},
        {"/v1/*", "//v1/x", false, true},
        {"/v1/*", "/v1/x;y=1", true, true},
        {"/v1/*", "/v1/a%2fb", true, true},
        {"/v1/*", "/v1/..\\admin", false, true},
        {"/v1/*", "/v1/%5c..%5cadmin", false, true},
        {"/v1/*", "/v1/%252e%252e/admin", false, true},
        {"/v1/*", "/v1/%00", false, true},
        {"/v1/*", "*", false, true},
        {"/admin*", "/%61dmin", true, true},
        {"/admin*", "//admin", false, true},
        {"/admin*", "/;/admin", false, true},
        {"/admin*", "/x/..;/admin", false, true},
        {"/admin*", "/x%2f..%2fadmin", false, true},
        {"/admin*", "/%2e/admin", true, true},
        {"/admin*", "/x", false, false},
        {"/*", "/anything%2f//;x", true, true},
        {"/*", "/a\\b", false, true},
        /* what a pattern says is read as the server reads paths */
        {"/group%2fproject*", "/group%2Fproject/x", true, true},
        {"/group%2fproject*", "/group/project/x", false, true},
        {"/group/project*", "/group%2Fproject/x", false, true},
        {"/@scope*", "/@scope%2fname", true, true},
        {"/@scope*", "/%40scope%2fname", true, true},
        {"/web//x*", "/web//x", true, true},
        {"/web//x*", "/web/x", false, true},
        {"/a;b", "/a;b", true, true},
        {"/a;b", "/a", false, true},
    };
    AUTO_ARENA struct arena arena = ARENA_INIT;
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct path_pattern pattern;
        struct request_path path;
        assert_true(path_pattern_parse(str_of(cases[i].pattern), &arena, &pattern));
        (void)request_path_read(str_of(cases[i].raw), &path);
        if (path_pattern_matches_all(&pattern, &path) != cases[i].allows)
            fail_msg("allow %s and %s", cases[i].pattern, cases[i].raw);
        if (path_pattern_matches_any(&pattern, &path) != cases[i].denies)
            fail_msg("deny %s and %s", cases[i].pattern, cases[i].raw);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_that_every_server_reads_alike),
        cmocka_unit_test(paths_that_servers_read_differently),
        cmocka_unit_test(paths_without_a_reading),
        cmocka_unit_test(the_longest_path_has_all_its_readings),
        cmocka_unit_test(patterns_have_one_form),
        cmocka_unit_test(what_a_pattern_allows_and_denies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
