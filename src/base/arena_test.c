/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_allocations_do_not_overlap(void **state)
{
    (void)state;
    AUTO_ARENA struct arena a = ARENA_INIT;
    unsigned char *blocks[500];
    size_t sizes[500];
    srand(9);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < ARRAY_SIZE(blocks); i++) {
            sizes[i] = (size_t)rand() % (rand() % 10 ? 100 : 10000);
            blocks[i] = arena_alloc(&a, sizes[i]);
            assert_non_null(blocks[i]);
            assert_int_equal((uintptr_t)blocks[i] % 16, 0);
            for (size_t k = 0; k < sizes[i]; k++)
                assert_int_equal(blocks[i][k], 0);
            memset(blocks[i], (int)(i % 255 + 1), sizes[i]);
        }
        for (size_t i = 0; i < ARRAY_SIZE(blocks); i++)
            for (size_t k = 0; k < sizes[i]; k++)
                assert_int_equal(blocks[i][k], i % 255 + 1);
        arena_fini(&a); /* usable again */
    }
}

static void test_texts(void **state)
{
    (void)state;
    AUTO_ARENA struct arena a = ARENA_INIT;
    assert_memory_equal(arena_strndup(&a, "a\0bc", 3), "a\0b", 4); /* exactly n bytes and a NUL */
    assert_string_equal(arena_strndup(&a, NULL, 0), "");
    struct str s = arena_str(&a, STR("x\0y"));
    assert_int_equal(s.n, 3);
    assert_memory_equal(s.p, "x\0y", 4);
    assert_int_equal(arena_str(&a, STR_NULL).n, 0);
    assert_string_equal(arena_printf(&a, "%s-%d", "n", 42), "n-42");
    char *longer = arena_printf(&a, "%05000d", 7);
    assert_int_equal(strlen(longer), 5000);
    assert_string_equal(arena_printf(&a, "%s", ""), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_allocations_do_not_overlap), cmocka_unit_test(test_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
