/* SPDX-License-Identifier: Apache-2.0 */
#include "base/id.h"
#include "base/map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_sandbox_ids(void **state)
{
    (void)state;
    struct map seen = MAP_INIT;
    int one;
    for (int i = 0; i < 10000; i++) {
        char id[ID_SANDBOX_LEN + 1];
        memset(id, 'X', sizeof(id));
        id_sandbox(id);
        assert_int_equal(strlen(id), ID_SANDBOX_LEN);
        assert_true(id_is_sandbox(str_of(id)));
        assert_null(map_put(&seen, str_of(id), &one));
    }
    map_fini(&seen);
    static const char *const bad[] = {
        "",
        "i0123456789abcdefghi",
        "i0123456789abcdefghijk",
        "x0123456789abcdefghij",
        "i0123456789ABCDEFGHIJ",
        "i0123456789abcdefgh/.",
        "i0123456789abcdefgh\n1",
        "i0123456789abcdefgh-1",
        "../../../../etc/passw",
    };
    assert_true(id_is_sandbox(STR("i0123456789abcdefghij")));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_false(id_is_sandbox(str_of(bad[i])));
    assert_false(id_is_sandbox(STR("i0123456789abcdefghi\0")));
    assert_false(id_is_sandbox(STR_NULL));
    char alias[ID_SANDBOX_LEN + 1];
    id_port_alias(alias);
    assert_true(id_is_port_alias(str_of(alias)) && !id_is_sandbox(str_of(alias)));
    assert_false(id_is_port_alias(STR("i0123456789abcdefghij")));
}

static void test_uuids(void **state)
{
    (void)state;
    for (int i = 0; i < 1000; i++) {
        char id[ID_UUID_LEN + 1], other[ID_UUID_LEN + 1];
        id_uuid(id);
        id_uuid(other);
        assert_int_equal(strlen(id), ID_UUID_LEN);
        assert_string_not_equal(id, other);
        assert_int_equal(id[14], '4');
        assert_non_null(strchr("89ab", id[19]));
        for (int k = 0; k < ID_UUID_LEN; k++)
            assert_non_null(strchr(k == 8 || k == 13 || k == 18 || k == 23 ? "-" : "0123456789abcdef", id[k]));
    }
}

/* Each of the 36 characters is equally likely: with 360,000 draws each comes 10,000 times, give or take six sigmas. */
static void test_tokens_are_even(void **state)
{
    (void)state;
    static char token[360001];
    int counts[128] = {0};
    id_token(token, sizeof(token) - 1);
    assert_int_equal(strlen(token), sizeof(token) - 1);
    for (const char *p = token; *p; p++)
        counts[*p & 127]++;
    for (const char *p = "0123456789abcdefghijklmnopqrstuvwxyz"; *p; p++)
        assert_in_range(counts[(unsigned char)*p], 9400, 10600);
    char empty[1] = {'X'};
    id_token(empty, 0);
    assert_int_equal(empty[0], 0);
}

static void test_random_bytes(void **state)
{
    (void)state;
    unsigned char a[1000] = {0}, b[1000] = {0};
    id_random_bytes(a, sizeof(a));
    id_random_bytes(b, sizeof(b));
    assert_memory_not_equal(a, b, sizeof(a));
    id_random_bytes(a, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sandbox_ids),
        cmocka_unit_test(test_uuids),
        cmocka_unit_test(test_tokens_are_even),
        cmocka_unit_test(test_random_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
