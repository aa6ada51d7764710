/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/exec/output.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What byte number n is, and by which channel it came. */
static char byte_at(uint64_t n)
{
    return (char)(n * 2654435761u >> 11);
}

static void put(struct output *o, size_t n, bool second)
{
    while (n) {
        struct iovec iov[2];
        size_t done = 0;
        int count = output_reserve(o, n, iov);
        for (int i = 0; i < count; i++)
            for (size_t k = 0; k < iov[i].iov_len; k++)
                ((char *)iov[i].iov_base)[k] = byte_at(o->head + done++);
        assert_true(done > 0 && done <= n);
        output_commit(o, done, second);
        n -= done;
    }
}

static void check(const struct output *o, uint64_t from, size_t step, const bool *second_at)
{
    while (from < o->head) {
        struct iovec iov[2];
        bool second;
        size_t n = 0;
        int count = output_peek(o, from, step, iov, &second);
        for (int i = 0; i < count; i++) {
            for (size_t k = 0; k < iov[i].iov_len; k++, n++) {
                assert_int_equal(((char *)iov[i].iov_base)[k], byte_at(from + n));
                assert_int_equal(second, second_at[from + n]);
            }
        }
        assert_true(n > 0 && n <= step);
        from += n;
    }
}

static void test_random_writes(void **state)
{
    (void)state;
    enum { TOTAL = 3 * WIRE_WINDOW };
    static bool second_at[TOTAL + 70000];
    for (unsigned seed = 1; seed <= 20; seed++) {
        struct output o = {0};
        srand(seed);
        while (o.head < TOTAL) {
            size_t n = (size_t)rand() % (rand() % 4 ? 300 : 70000) + 1;
            bool second = seed % 2 && rand() % 3 == 0;
            memset(second_at + o.head, second, n);
            put(&o, n, second);
            assert_int_equal(output_tail(&o), o.head > WIRE_WINDOW ? o.head - WIRE_WINDOW : 0);
            if (rand() % 20 == 0)
                check(&o, output_tail(&o), (size_t)rand() % 5000 + 1, second_at);
        }
        check(&o, output_tail(&o), WIRE_WINDOW, second_at);
        check(&o, o.head - 1, 1, second_at);
        output_fini(&o);
        assert_int_equal(output_tail(&o), o.head); /* nothing is kept any more */
    }
}

/* One run is one peek, over words of bits and over the ring's end. */
static void test_runs(void **state)
{
    (void)state;
    struct output o = {0};
    struct iovec iov[2];
    bool second;
    put(&o, WIRE_WINDOW - 10, false);
    put(&o, 100, true);
    put(&o, 5, false);
    int n = output_peek(&o, WIRE_WINDOW - 10, WIRE_WINDOW, iov, &second);
    assert_int_equal(n, 2);
    assert_true(second);
    assert_int_equal(iov[0].iov_len + iov[1].iov_len, 100);
    n = output_peek(&o, WIRE_WINDOW - 10 + 37, WIRE_WINDOW, iov, &second);
    assert_int_equal(n, 1);
    assert_int_equal(iov[0].iov_len, 63);
    n = output_peek(&o, output_tail(&o), WIRE_WINDOW, iov, &second);
    assert_int_equal(n, 1);
    assert_false(second);
    assert_int_equal(iov[0].iov_len, WIRE_WINDOW - 10 - output_tail(&o));
    output_fini(&o);
}

static void test_small_output_stays_small(void **state)
{
    (void)state;
    struct output o = {0};
    put(&o, 500, false);
    assert_true(o.size <= 1024);
    assert_null(o.second);
    put(&o, 2 * WIRE_WINDOW, true);
    assert_int_equal(o.size, WIRE_WINDOW);
    output_fini(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_writes),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_small_output_stays_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
