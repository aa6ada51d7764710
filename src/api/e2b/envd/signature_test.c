/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/envd/signature.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct str token = STR("0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0");

static struct signature hello(void)
{
    return (struct signature){.path = STR("hello.txt"), .operation = STR("read"), .user = STR("user")};
}

static void clients_and_we_sign_alike(void **state)
{
    struct signature what = hello();
    char text[SIGNATURE_MAX];
    (void)state;
    signature_make(&what, token, text);
    assert_string_equal(text, "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E");
    assert_true(signature_matches(&what, token, STR("v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E")));
}

static void every_part_is_signed(void **state)
{
    const struct str good = STR("v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E");
    struct signature other = hello();
    (void)state;
    other.path = STR("hello.txT");
    assert_false(signature_matches(&other, token, good));
    other = hello();
    other.operation = STR("write");
    assert_false(signature_matches(&other, token, good));
    other = hello();
    other.user = STR("");
    assert_false(signature_matches(&other, token, good));
    other = hello();
    other.expires = true;
    assert_false(signature_matches(&other, token, good));
    other = hello();
    assert_false(signature_matches(&other, STR("another"), good));
    assert_false(signature_matches(&other, token, STR("")));
    assert_false(signature_matches(&other, token, STR("v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E=")));
}

static void the_time_of_expiry_is_signed_too(void **state)
{
    struct signature what = hello();
    char a[SIGNATURE_MAX], b[SIGNATURE_MAX];
    (void)state;
    what.expires = true;
    what.expiration = 1700000000;
    signature_make(&what, token, a);
    what.expiration = 1700000001;
    signature_make(&what, token, b);
    assert_string_not_equal(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_and_we_sign_alike),
        cmocka_unit_test(every_part_is_signed),
        cmocka_unit_test(the_time_of_expiry_is_signed_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
