/* SPDX-License-Identifier: Apache-2.0 */
/* Names, in heads and trailers; what becomes of requests that have them is flow_test.c's. */
#include "egress/http/exchange_internal.h"
#include "egress/http/override.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static const struct {
    const char *name;
    enum override_kind kind;
} cases[] = {
    {"x-http-method-override", OVERRIDE_METHOD},
    {"X-HTTP-Method-Override", OVERRIDE_METHOD},
    {"x_http_method_override", OVERRIDE_METHOD},
    {"x-http_method-override", OVERRIDE_METHOD},
    {"x.http~method!override", OVERRIDE_METHOD},
    {"x-http-method", OVERRIDE_METHOD},
    {"x_method_override", OVERRIDE_METHOD},
    {"method-override", OVERRIDE_METHOD},
    {"x-original-method", OVERRIDE_METHOD},
    {"x-envoy-original-method", OVERRIDE_METHOD},
    {"x-original-url", OVERRIDE_PATH},
    {"x_original_uri", OVERRIDE_PATH},
    {"X-Rewrite-URL", OVERRIDE_PATH},
    {"x-envoy-original-path", OVERRIDE_PATH},
    {"x-ms-original-url", OVERRIDE_PATH},
    {"forwarded", OVERRIDE_ORIGIN},
    {"x-forwarded-method", OVERRIDE_ORIGIN},
    {"X_FORWARDED_URI", OVERRIDE_ORIGIN},
    {"x-forwarded-prefix", OVERRIDE_ORIGIN},
    {"x-forwarded-path", OVERRIDE_ORIGIN},
    {"x_forwarded-host", OVERRIDE_ORIGIN},
    {"x-forwarded-something-longer-than-any-name-that-is-known", OVERRIDE_ORIGIN},
    {"x-original-host", OVERRIDE_ORIGIN},
    {"script_name", OVERRIDE_ORIGIN},
    {"", OVERRIDE_NONE},
    {"x", OVERRIDE_NONE},
    {"x-forwarded-", OVERRIDE_NONE},
    {"x-forwardedfor", OVERRIDE_NONE},
    {"x-http-method-overrides", OVERRIDE_NONE},
    {"x-http-method-override-and-more-of-it", OVERRIDE_NONE},
    {"xhttpmethodoverride", OVERRIDE_NONE},
    {"x--http-method", OVERRIDE_NONE},
    {"access-control-request-method", OVERRIDE_NONE},
    {"x-request-id", OVERRIDE_NONE},
    {"host", OVERRIDE_NONE},
};

static void test_names(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        if (override_of(str_of(cases[i].name)) != cases[i].kind)
            fail_msg("%s: %d", cases[i].name, override_of(str_of(cases[i].name)));
}

static void test_trailers(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        if (cases[i].kind != OVERRIDE_NONE && exchange_is_trailer(str_of(cases[i].name)))
            fail_msg("%s may be a trailer", cases[i].name);
    assert_true(exchange_is_trailer(STR("x-sum")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_trailers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
