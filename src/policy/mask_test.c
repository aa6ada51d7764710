/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/mask.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_masks(void **state)
{
    static const char *const pairs[][2] = {
        {"--password=hunter2", "--password=***"},
        {"API_KEY=abc ./run --fast", "API_KEY=*** ./run --fast"},
        {"curl -H 'Authorization: Bearer abc.def' https://x/y", "curl -H 'Authorization: Bearer ***' https://x/y"},
        {"curl -H \"x-api-key: abc\" -d '{\"password\": \"p w\"}'",
         "curl -H \"x-api-key: ***\" -d '{\"password\": \"*** w\"}'"},
        {"git clone https://me:s3cret@example.org/a", "git clone https://me:***@example.org/a"},
        {"https://x/?token=abc&page=2", "https://x/?token=***&page=2"},
        {"echo ghp_0123456789abcdefghij | tee f", "echo *** | tee f"},
        {"x --token abc --password -v", "x --token *** --password -v"},
        {"secret=x", "secret=***"},
        {"token=", "token="},
        {"", ""},
        /* And what is to be seen. */
        {"rm -rf / --no-preserve-root", "rm -rf / --no-preserve-root"},
        {"sorted(x, key=len)", "sorted(x, key=len)"},
        {"https://example.org:8080/a@b", "https://example.org:8080/a@b"},
        {"sk-short", "sk-short"},
        {"monkey=banana CACHE=1", "monkey=*** CACHE=1"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
        AUTO_BUF struct buf b = BUF_INIT(4096);
        mask_secrets(str_of(pairs[i][0]), &b);
        assert_int_equal(buf_append_char(&b, 0), 0);
        assert_string_equal(buf_data(&b), pairs[i][1]);
    }
    assert_true(mask_wants_next(STR("--password")) && mask_wants_next(STR("--auth-token")));
    assert_false(mask_wants_next(STR("--password=x")) || mask_wants_next(STR("password")) ||
                 mask_wants_next(STR("--help")));
}

/* A million of them, which nobody waits for unless it is done in one walk. */
static void test_what_repeats_is_walked_through_once(void **state)
{
    static const char *const pieces[][2] = {{"://", "://"}, {"://a:b@/", "://a:***@/"}, {"://a:b@", NULL}};
    enum { TIMES = 1 << 20 };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
        AUTO_BUF struct buf text = BUF_INIT(64 << 20), shown = BUF_INIT(64 << 20);
        for (size_t n = 0; n < TIMES; n++)
            (void)buf_append_cstr(&text, pieces[i][0]);
        mask_secrets(buf_str(&text), &shown);
        assert_int_equal(buf_error(&text) | buf_error(&shown), 0);
        if (pieces[i][1])
            assert_int_equal(buf_len(&shown), TIMES * strlen(pieces[i][1]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_masks),
                                       cmocka_unit_test(test_what_repeats_is_walked_through_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
