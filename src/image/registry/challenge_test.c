/* SPDX-License-Identifier: Apache-2.0 */
#include "image/registry/challenge.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void is(const char *header, enum challenge_scheme scheme, const char *realm, const char *service,
               const char *scope)
{
    struct challenge c;
    challenge_parse(str_of(header), &c);
    assert_int_equal(c.scheme, scheme);
    assert_string_equal(c.realm, realm);
    assert_string_equal(c.service, service);
    assert_string_equal(c.scope, scope);
}

static void test_challenges(void **state)
{
    (void)state;
    is("Bearer realm=\"https://a/t\",service=\"s\",scope=\"repository:x:pull\"", CHALLENGE_BEARER, "https://a/t", "s",
       "repository:x:pull");
    is("bearer  realm = \"u\" , error=\"invalid_token\" ,,", CHALLENGE_BEARER, "u", "", "");
    is("Basic realm=x", CHALLENGE_BASIC, "x", "", "");
    is("Basic", CHALLENGE_BASIC, "", "", "");
    is("Basic realm=\"b\", Bearer realm=\"t\"", CHALLENGE_BEARER, "t", "", "");
    is("Bearer realm=\"t\", Basic realm=\"b\"", CHALLENGE_BEARER, "t", "", "");
    is("Negotiate, Basic realm=\"b\"", CHALLENGE_BASIC, "b", "", "");
    is("Bearer realm=\"a\\\"b\"", CHALLENGE_BEARER, "a\"b", "", "");
}

static void test_no_challenges(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      " ",
                                      "Digest realm=\"x\"",
                                      "Bearer",
                                      "Bearer service=\"s\"",
                                      "Bearer realm=\"unterminated",
                                      "Bearer realm=\"",
                                      "Bearer realm=\"a\nb\"",
                                      "=\"x\"",
                                      "Bearer realm=",
                                      "Bearer realm=\"x\" garbage\"",
                                      "Bearer realm=\"\\"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        is(bad[i], CHALLENGE_NONE, "", "", "");
    char longer[2 * CHALLENGE_VALUE_MAX] = "Bearer realm=\"";
    memset(longer + 14, 'x', sizeof(longer) - 16);
    longer[sizeof(longer) - 2] = '"';
    is(longer, CHALLENGE_NONE, "", "", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_challenges),
        cmocka_unit_test(test_no_challenges),
    };
    return cmocka_run_group_tests_name("image/challenge", tests, NULL, NULL);
}
