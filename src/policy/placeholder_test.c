/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/policy.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void test_headers_by_their_names(void **state)
{
    (void)state;
    static const char *const yes[] = {"authorization",
                                      "Authorization",
                                      "proxy-authorization",
                                      "cookie",
                                      "x-api-key",
                                      "api-key",
                                      "apikey",
                                      "X-ApiKey",
                                      "x-goog-api-key",
                                      "xi-api-key",
                                      "dd-api-key",
                                      "DD-APPLICATION-KEY",
                                      "x-auth-token",
                                      "private-token",
                                      "job-token",
                                      "x-access-token",
                                      "x-amz-security-token",
                                      "x-shopify-access-token",
                                      "x-sentry-auth",
                                      "ocp-apim-subscription-key",
                                      "x-vault-token",
                                      "cb-access-passphrase",
                                      "x_api_key",
                                      "x-functions-key",
                                      "authtoken"};
    static const char *const no[] = {"",
                                     "-",
                                     "origin",
                                     "user-agent",
                                     "referer",
                                     "x-request-id",
                                     "anthropic-beta",
                                     "anthropic-version",
                                     "openai-organization",
                                     "x-github-api-version",
                                     "content-type",
                                     "accept",
                                     "range",
                                     "idempotency-key",
                                     "X-Idempotency-Key",
                                     "sec-websocket-key",
                                     "Sec-WebSocket-Protocol",
                                     "access-control-request-headers",
                                     "x-csrf-token",
                                     "surrogate-key",
                                     "x-cache-key",
                                     "author",
                                     "keyboard",
                                     "tokens-left",
                                     "x-a-name-that-is-longer-than-any-header-has-ever-had-and-ends-in-key"};
    const struct policy_placeholder usual = {.places = POLICY_IN_HEADER, .sentinel = "sentinel-1", .secret = "A"};
    for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
        if (!policy_placeholder_is_for(&usual, str_of(yes[i])))
            fail_msg("%s", yes[i]);
    for (size_t i = 0; i < ARRAY_SIZE(no); i++)
        if (policy_placeholder_is_for(&usual, str_of(no[i])))
            fail_msg("%s", no[i]);
}

/* Whoever names them means these and no others. */
static void test_headers_that_are_named(void **state)
{
    (void)state;
    static const char *const names[] = {"x-honeycomb-team", "accept"};
    const struct policy_placeholder named = {
        .places = POLICY_IN_HEADER, .sentinel = "sentinel-1", .secret = "A", .headers = names, .n_headers = 2};
    assert_true(policy_placeholder_is_for(&named, STR("X-Honeycomb-Team")));
    assert_true(policy_placeholder_is_for(&named, STR("accept")));
    assert_false(policy_placeholder_is_for(&named, STR("authorization")));
    assert_false(policy_placeholder_is_for(&named, STR("x-honeycomb")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers_by_their_names),
        cmocka_unit_test(test_headers_that_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
