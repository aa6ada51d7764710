/* SPDX-License-Identifier: Apache-2.0 */
#include "image/registry/reference.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define DIGEST "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void is(const char *text, const char *host, const char *path, const char *tag, const char *digest)
{
    struct reference r;
    struct err err;
    assert_int_equal(reference_parse(str_of(text), &r, &err), 0);
    assert_string_equal(r.host, host);
    assert_string_equal(r.path, path);
    assert_string_equal(r.tag, tag);
    assert_string_equal(r.digest, digest);
}

static void is_not(const char *text)
{
    struct reference r;
    struct err err = {0};
    assert_int_equal(reference_parse(str_of(text), &r, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
}

static void test_names(void **state)
{
    (void)state;
    is("ubuntu", "docker.io", "library/ubuntu", "latest", "");
    is("ubuntu:22.04", "docker.io", "library/ubuntu", "22.04", "");
    is("a/b", "docker.io", "a/b", "latest", "");
    is("docker.io/ubuntu", "docker.io", "library/ubuntu", "latest", "");
    is("index.docker.io/library/x", "docker.io", "library/x", "latest", "");
    is("ghcr.io/a/b/c:T_1.x-y", "ghcr.io", "a/b/c", "T_1.x-y", "");
    is("GHCR.io/a", "ghcr.io", "a", "latest", "");
    is("localhost/a", "localhost", "a", "latest", "");
    is("localhost:5000/a:t", "localhost:5000", "a", "t", "");
    is("127.0.0.1:5000/a", "127.0.0.1:5000", "a", "latest", "");
    is("[::1]:5000/a", "[::1]:5000", "a", "latest", "");
    is("[2001:db8::1]/a", "[2001:db8::1]", "a", "latest", "");
    is("a@" DIGEST, "docker.io", "library/a", "", DIGEST);
    is("r.io/a:t@" DIGEST, "r.io", "a", "t", DIGEST);
    is("a--b/c__d/e.f_g", "docker.io", "a--b/c__d/e.f_g", "latest", "");
}

static void test_no_names(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "/",
        "a/",
        "/a",
        "a//b",
        "A",
        "a/B",
        "a:",
        "a:.x",
        "a:-x",
        "a@",
        "a@sha256:12",
        "a@sha512:0123456789abcdef",
        "a..b",
        "a___b",
        "a_-b",
        "-a",
        "a-",
        "a b",
        "a/../b",
        "..",
        "../x",
        "r.io:0/a",
        "r.io:65536/a",
        "r.io:/a",
        "r.io:5x/a",
        "127.1:5/a",
        "0x7f.1/a",
        "[::1/a",
        "[::1]x/a",
        "[1.2.3.4]/a",
        "::1/a",
        "u@r.io/a",
        "http://r.io/a",
        "r.io/a?x",
        "r.io/a#x",
        "r.io/a%2e",
        "a:t:u",
        "a\n",
        "a./b",
        "r_.io:5000:5/a",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        is_not(bad[i]);
    char longer[400];
    memset(longer, 'a', sizeof(longer));
    longer[sizeof(longer) - 1] = '\0';
    is_not(longer);
    char tag[200] = "a:";
    memset(tag + 2, 't', 129);
    is_not(tag);
    tag[2 + 128] = '\0';
    struct reference r;
    struct err err;
    assert_int_equal(reference_parse(str_of(tag), &r, &err), 0);
}

static void test_server(void **state)
{
    (void)state;
    struct reference r;
    struct err err;
    assert_int_equal(reference_parse(STR("ubuntu"), &r, &err), 0);
    assert_string_equal(reference_server(&r), "registry-1.docker.io");
    assert_int_equal(reference_parse(STR("ghcr.io/x"), &r, &err), 0);
    assert_string_equal(reference_server(&r), "ghcr.io");
}

static void test_digests(void **state)
{
    (void)state;
    char text[DIGEST_TEXT_MAX];
    digest_of(STR(""), text);
    assert_string_equal(text, "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_true(digest_is(str_of(text)));
    text[70] = 'G';
    assert_false(digest_is(str_of(text)));
    assert_false(digest_is(STR("sha256:E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_no_names),
        cmocka_unit_test(test_server),
        cmocka_unit_test(test_digests),
    };
    return cmocka_run_group_tests_name("image/reference", tests, NULL, NULL);
}
