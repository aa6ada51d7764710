/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/envd/accept_encoding.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void the_preferred_coding_wins(void **state)
{
    (void)state;
    assert_int_equal(accept_encoding_choose(STR_NULL), ACCEPT_IDENTITY);
    assert_int_equal(accept_encoding_choose(STR("")), ACCEPT_IDENTITY);
    assert_int_equal(accept_encoding_choose(STR("gzip")), ACCEPT_GZIP);
    assert_int_equal(accept_encoding_choose(STR("GZip, deflate")), ACCEPT_GZIP);
    assert_int_equal(accept_encoding_choose(STR("br, deflate")), ACCEPT_IDENTITY);
    assert_int_equal(accept_encoding_choose(STR("identity, gzip")), ACCEPT_IDENTITY);
    assert_int_equal(accept_encoding_choose(STR("identity;q=0.5, gzip;q=0.8")), ACCEPT_GZIP);
    assert_int_equal(accept_encoding_choose(STR("identity;q=0.8 , gzip; q=0.5")), ACCEPT_IDENTITY);
    assert_int_equal(accept_encoding_choose(STR("*")), ACCEPT_IDENTITY);
    assert_int_equal(accept_encoding_choose(STR("gzip;q=0")), ACCEPT_IDENTITY);
}

static void what_is_refused_is_not_chosen(void **state)
{
    (void)state;
    assert_int_equal(accept_encoding_choose(STR("identity;q=0")), ACCEPT_NONE);
    assert_int_equal(accept_encoding_choose(STR("*;q=0")), ACCEPT_NONE);
    assert_int_equal(accept_encoding_choose(STR("*;q=0, gzip;q=0.1")), ACCEPT_GZIP);
    assert_int_equal(accept_encoding_choose(STR("identity;q=0, *")), ACCEPT_GZIP);
    assert_int_equal(accept_encoding_choose(STR("identity, *;q=0")), ACCEPT_IDENTITY);
    assert_int_equal(accept_encoding_choose(STR("identity;q=0.000")), ACCEPT_NONE);
    assert_true(accept_encoding_allows_identity(STR("gzip")));
    assert_false(accept_encoding_allows_identity(STR("gzip, identity;q=0")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_preferred_coding_wins),
        cmocka_unit_test(what_is_refused_is_not_chosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
