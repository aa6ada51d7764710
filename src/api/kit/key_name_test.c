/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/access.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void it_is_of_the_hash_and_not_of_the_key(void **state)
{
    char name[KEY_NAME_MAX];
    (void)state;
    key_name("e2b", STR("abc"), name); /* FIPS 180-2, appendix B.1 */
    assert_string_equal(name, "e2b:ba7816bf");
    key_name("native", str_n("1, and what follows", 1), name);
    assert_string_equal(name, "native:6b86b273");
    key_name("a prefix that is far too long for this", STR("abc"), name);
    assert_string_equal(name, "a prefix that is:ba7816bf");
    key_name("e2b", STR(""), name);
    assert_string_equal(name, "e2b");
    key_name("e2b", STR_NULL, name);
    assert_string_equal(name, "e2b");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_is_of_the_hash_and_not_of_the_key)};
    return cmocka_run_group_tests_name("key_name", tests, NULL, NULL);
}
