/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/share.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct thing {
    struct list node;
    uint64_t tenant, size;
};

static uint64_t thing_tenant(const struct list *node)
{
    return container_of(node, const struct thing, node)->tenant;
}

static uint64_t thing_size(const struct list *node)
{
    return container_of(node, const struct thing, node)->size;
}

static void test_by_size(void **state)
{
    (void)state;
    struct thing things[] = {{.tenant = 1, .size = 2}, {.tenant = 1, .size = 2}, {.tenant = 2, .size = 5}};
    struct list all = LIST_INIT(all);
    for (size_t i = 0; i < ARRAY_SIZE(things); i++)
        list_append(&all, &things[i].node);
    assert_ptr_equal(share_first(&all, thing_tenant, thing_size), &things[2].node);
    assert_ptr_equal(share_first(&all, thing_tenant, NULL), &things[0].node);
}

static void test_whoever_has_most_gives_way(void **state)
{
    (void)state;
    struct thing things[] = {{.tenant = 7}, {.tenant = 1}, {.tenant = 2}, {.tenant = 1}, {.tenant = 2}, {.tenant = 2}};
    static const size_t order[] = {2, 1, 4, 0, 3, 5}; /* where two have as many, who had them first */
    struct list all = LIST_INIT(all);
    for (size_t i = 0; i < ARRAY_SIZE(things); i++)
        list_append(&all, &things[i].node);
    for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
        struct list *first = share_first(&all, thing_tenant, NULL);
        assert_ptr_equal(first, &things[order[i]].node);
        list_remove(first);
    }
    assert_null(share_first(&all, thing_tenant, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_whoever_has_most_gives_way),
                                       cmocka_unit_test(test_by_size)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
