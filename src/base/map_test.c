/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { KEYS = 4000, OPS = 100000 };

/* The model: the value of each possible key, or NULL. Byte keys and number keys of the same content live side by
 * side. */
static void *model[2 * KEYS];
static char values[OPS];

static void *map_do(struct map *m, int what, size_t k, void *value)
{
    uint64_t number = k / 2;
    char text[32];
    struct str key = str_n(&number, k % 3 ? 8 : 0); /* bytes that look like the number, or text of many lengths */
    if (k % 3 == 0) {
        int n = snprintf(text, sizeof(text), "%.*s%zu", (int)(k % 17), "abcdefghijklmnopq", k);
        key = str_n(text, (size_t)n);
    }
    if (k % 2)
        return what == 0 ? map_get_u64(m, number) : what == 1 ? map_put_u64(m, number, value) : map_del_u64(m, number);
    return what == 0 ? map_get(m, key) : what == 1 ? map_put(m, key, value) : map_del(m, key);
}

static void compare(struct map *m, size_t count)
{
    size_t it = 0, seen = 0;
    assert_int_equal(map_count(m), count);
    for (size_t k = 0; k < 2 * KEYS; k++)
        assert_ptr_equal(map_do(m, 0, k, NULL), model[k]);
    for (char *v; (v = map_next(m, &it)); seen++)
        assert_true(v >= values && v < values + OPS);
    assert_int_equal(seen, count);
}

static void test_against_a_model(void **state)
{
    (void)state;
    struct map m = MAP_INIT;
    size_t count = 0;
    srand(5);
    for (int i = 0; i < OPS; i++) {
        /* First mostly growing, then mostly shrinking: deletion moves entries about in full tables. */
        int what = rand() % 10 < (i / 10000 % 2 ? 3 : 6) ? 1 : 2;
        size_t k = (size_t)rand() % (2 * KEYS);
        void *was = map_do(&m, what, k, &values[i]);
        assert_ptr_equal(was, model[k]);
        count = count + (what == 1 && !was) - (what == 2 && was);
        model[k] = what == 1 ? &values[i] : NULL;
        if (i % 5000 == 0)
            compare(&m, count);
    }
    compare(&m, count);
    map_fini(&m);
    assert_int_equal(map_count(&m), 0);
}

static void test_edges(void **state)
{
    (void)state;
    struct map m = MAP_INIT;
    int a, b, c;
    size_t it = 0;
    assert_null(map_get(&m, STR("x")));
    assert_null(map_del(&m, STR("x")));
    assert_null(map_next(&m, &it));
    assert_null(map_put(&m, STR_NULL, &a));
    assert_ptr_equal(map_put(&m, STR(""), &b), &a); /* the empty key is a key */
    assert_null(map_put_u64(&m, 0, &c));
    assert_null(map_put(&m, STR("a\0b"), &a));
    assert_null(map_get(&m, STR("a\0c")));
    assert_null(map_get(&m, STR("a")));
    assert_ptr_equal(map_get(&m, STR("a\0b")), &a);
    assert_ptr_equal(map_get_u64(&m, 0), &c);
    assert_ptr_equal(map_del(&m, STR_NULL), &b);
    assert_int_equal(map_count(&m), 2);

    char key[] = "mine"; /* keys are copied */
    (void)map_put(&m, str_of(key), &b);
    memset(key, 'x', 4);
    assert_ptr_equal(map_get(&m, STR("mine")), &b);
    map_fini(&m);
    assert_null(map_put_u64(&m, UINT64_MAX, &a)); /* usable again */
    assert_ptr_equal(map_get_u64(&m, UINT64_MAX), &a);
    map_fini(&m);
}

static void test_loops(void **state)
{
    struct map m = MAP_INIT;
    int all[5] = {1, 2, 3, 4, 5}, sum = 0, n = 0;

    (void)state;
    MAP_FOREACH (int, one, &m)
        fail_msg("an empty map has %d", *one);
    assert_null(map_any(&m));
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        (void)map_put_u64(&m, (uint64_t)all[i], &all[i]);
    MAP_FOREACH (const int, one, &m) {
        if (*one == 3)
            continue;
        sum += *one;
    }
    assert_int_equal(sum, 12);
    MAP_FOREACH (int, one, &m)
        if (++n == 2)
            break;
    assert_int_equal(n, 2);
    for (int *one; (one = map_any(&m)); n++)
        assert_ptr_equal(map_del_u64(&m, (uint64_t)*one), one);
    assert_int_equal(n, 7);
    map_fini(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_a_model), cmocka_unit_test(test_edges),
                                       cmocka_unit_test(test_loops)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
