/* SPDX-License-Identifier: Apache-2.0 */
#include "image/registry/registry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct registry *with(const char *username, const char *password, const char *token)
{
    static struct reference ref;
    struct err err;
    struct registry_config config = {.ref = &ref, .username = username, .password = password, .token = token};
    static const struct http_hosts none;
    config.hosts = &none;
    assert_int_equal(reference_parse(STR("registry.example/a/b"), &ref, &err), 0);
    return registry_new(&config);
}

static void credentials_are_found(void **state)
{
    static const char *const bad[] = {"pa/ss%word",       "x: PA/SS%WORD!",
                                      "pa%2fss%25word",   "%70%61%2F%73%73%25%77%6F%72%64",
                                      "cGEvc3Mld29yZA==", "https://cgevc3mld29yza.example/",
                                      "dTpwYS9zcyV3b3Jk"};
    static const char *const good[] = {"", "%", "%7", "%%", "pa/ss%wor", "answers 500", "100% pa", "%00%00"};
    (void)state;
    AUTO(registry_free) struct registry *r = with("u", "pa/ss%word", NULL);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_true(registry_is_told(r, bad[i]));
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        assert_false(registry_is_told(r, good[i]));
}

static void a_long_token_is_found_where_it_was_cut(void **state)
{
    char token[2001], text[240];
    (void)state;
    memset(token, 't', sizeof(token) - 1);
    memcpy(token, "0123456789", 10);
    token[sizeof(token) - 1] = '\0';
    AUTO(registry_free) struct registry *r = with(NULL, NULL, token);
    (void)snprintf(text, sizeof(text), "it says %.60s", token);
    assert_true(registry_is_told(r, text));
    assert_false(registry_is_told(r, "it says 0123456789"));
}

static void an_error_keeps_its_code(void **state)
{
    struct err err;
    (void)state;
    AUTO(registry_free) struct registry *r = with("u", "secret", NULL);
    (void)err_set(&err, ERR_UNAVAILABLE, "SECRET.example: no answer");
    registry_withhold(r, &err);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
    assert_null(strcasestr(err.msg, "secret"));
    assert_non_null(strstr(err.msg, "registry.example"));
    (void)err_set(&err, ERR_NOT_FOUND, "no such tag");
    registry_withhold(r, &err);
    assert_string_equal(err.msg, "no such tag");
    AUTO(registry_free) struct registry *short_one = with("u", "abc", NULL); /* would be found in too much */
    assert_false(registry_is_told(short_one, "abc"));
    AUTO(registry_free) struct registry *nobody = with(NULL, NULL, NULL);
    assert_false(registry_is_told(nobody, "anything"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(credentials_are_found),
                                       cmocka_unit_test(a_long_token_is_found_where_it_was_cut),
                                       cmocka_unit_test(an_error_keeps_its_code)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
