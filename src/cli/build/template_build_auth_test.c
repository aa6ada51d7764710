/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/build/template_build_auth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void registries(void **state)
{
    static const struct {
        const char *image, *want;
    } all[] = {
        {"ubuntu", "docker.io"},
        {"ubuntu:22.04", "docker.io"},
        {"someone/tool@sha256:00", "docker.io"},
        {"docker.io/library/base", "docker.io"},
        {"index.docker.io/someone/tool", "docker.io"},
        {"ghcr.io/someone/tool:v1", "ghcr.io"},
        {"localhost/tool", "localhost"},
        {"localhost:5000/tool", "localhost:5000"},
        {"[::1]:5000/tool", "[::1]:5000"},
        {"registry:5000/a/b/c", "registry:5000"},
        {"", "docker.io"},
    };
    AUTO_ARENA struct arena arena = ARENA_INIT;
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        assert_string_equal(registry_of(&arena, all[i].image), all[i].want);
}

#define PUBLIC "{\"auths\":{\"https://index.docker.io/v1/\":{\"auth\":\"bWU6c2VjOnJldA==\"},"

static void found(void **state)
{
    static const char text[] =
        PUBLIC "\"ghcr.io\":{\"username\":\"you\",\"password\":\"word\"},\"quay.io/team\":{\"auth\":"
               "\"bWU6dGVhbQ==\"},\"r:5000\":{}}}";
    AUTO_ARENA struct arena arena = ARENA_INIT;
    struct registry_auth a;
    struct err err;
    (void)state;
    assert_int_equal(registry_auth_parse(str_of(text), "docker.io", &arena, &a, &err), 0);
    assert_string_equal(a.user, "me");
    assert_string_equal(a.password, "sec:ret");
    assert_int_equal(registry_auth_parse(str_of(text), "ghcr.io", &arena, &a, &err), 0);
    assert_string_equal(a.user, "you");
    assert_string_equal(a.password, "word");
    for (size_t i = 0; i < 3; i++) { /* nothing is said of these: one team's is not everybody's */
        assert_int_equal(
            registry_auth_parse(str_of(text), (const char *[]){"quay.io", "r:5000", "hcr.io"}[i], &arena, &a, &err), 0);
        assert_null(a.user);
        assert_null(a.password);
    }
    for (size_t i = 0; i < 2; i++) { /* a store has none of it either */
        const char *none = (const char *[]){"{}", "{\"auths\":{\"r.io\":{}},\"credsStore\":\"desktop\"}"}[i];
        assert_int_equal(registry_auth_parse(str_of(none), "docker.io", &arena, &a, &err), 0);
        assert_null(a.user);
    }
}

static void refused(void **state)
{
    static const struct {
        const char *text;
        enum err_code code;
    } all[] = {
        {"", ERR_INVALID_ARGUMENT},
        {"[]", ERR_INVALID_ARGUMENT},
        {"{\"auths\":{\"r.io\":{\"auth\":\"secret!\"}}}", ERR_INVALID_ARGUMENT},
        {"{\"auths\":{\"r.io\":{\"auth\":\"c2VjcmV0\"}}}", ERR_INVALID_ARGUMENT},         /* no colon */
        {"{\"auths\":{\"r.io\":{\"auth\":\"OnNlY3JldA==\"}}}", ERR_INVALID_ARGUMENT},     /* no name */
        {"{\"auths\":{\"r.io\":{\"auth\":\"YQBiOnNlY3JldA==\"}}}", ERR_INVALID_ARGUMENT}, /* a NUL */
        {"{\"auths\":{\"r.io\":{\"auth\":\"bWU6\",\"identitytoken\":\"secret\"}}}", ERR_UNIMPLEMENTED},
        {"{\"auths\":{\"r.io\":{}},\"credsStore\":\"secretservice\"}", ERR_UNIMPLEMENTED},
        {"{\"credHelpers\":{\"r.io\":\"ecr-login\"}}", ERR_UNIMPLEMENTED},
    };
    AUTO_ARENA struct arena arena = ARENA_INIT;
    struct registry_auth a;
    struct err err;
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        assert_int_equal(registry_auth_parse(str_of(all[i].text), "r.io", &arena, &a, &err), -1);
        assert_int_equal(err.code, all[i].code);
        assert_null(strstr(err.msg, "secret"));
        assert_null(strstr(err.msg, "c2Vj"));
    }
    assert_int_equal(registry_auth_load("/nowhere/config.json", "r.io", &arena, &a, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(registries), cmocka_unit_test(found),
                                       cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
