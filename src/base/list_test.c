/* SPDX-License-Identifier: Apache-2.0 */
#include "base/list.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct item {
    int n;
    struct list node;
};

static int as_number(struct list *l)
{
    int digits = 0, back = 0, unit = 1;
    LIST_FOREACH (struct item, i, l, node)
        digits = digits * 10 + i->n;
    for (struct list *p = l->prev; p != l; p = p->prev, unit *= 10)
        back += container_of(p, struct item, node)->n * unit;
    assert_int_equal(digits, back);
    return digits;
}

static void test_list(void **state)
{
    (void)state;
    struct list l = LIST_INIT(l), other;
    struct item items[5];
    list_init(&other);
    assert_true(list_empty(&l));
    assert_null(LIST_FIRST(struct item, &l, node));
    for (int i = 0; i < 5; i++) {
        items[i].n = i + 1;
        if (i % 2)
            list_prepend(&l, &items[i].node);
        else
            list_append(&l, &items[i].node);
    }
    assert_int_equal(as_number(&l), 42135);
    assert_int_equal(LIST_FIRST(struct item, &l, node)->n, 4);
    list_remove(&items[0].node);
    list_remove(&items[0].node); /* twice is harmless */
    assert_int_equal(as_number(&l), 4235);
    /* The current one may go, and move to another list. */
    LIST_FOREACH (struct item, i, &l, node) {
        if (i->n % 2 == 0) {
            list_remove(&i->node);
            list_append(&other, &i->node);
        }
    }
    assert_int_equal(as_number(&l), 35);
    assert_int_equal(as_number(&other), 42);
    int seen = 0;
    LIST_FOREACH (struct item, i, &l, node) {
        seen++;
        if (i->n == 3)
            break; /* leaves the loop as a whole */
    }
    assert_int_equal(seen, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_list)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
