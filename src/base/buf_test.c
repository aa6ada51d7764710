/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_limits(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(10);
    assert_int_equal(buf_len(&b), 0);
    assert_int_equal(buf_append(&b, NULL, 0), 0);
    assert_int_equal(buf_append_cstr(&b, "0123456"), 0);
    assert_int_equal(buf_append_cstr(&b, "789"), 0);
    assert_int_equal(buf_append_char(&b, 'x'), -ENOBUFS);
    /* The error sticks, and nothing is added by what follows. */
    buf_consume(&b, 5);
    assert_int_equal(buf_append_char(&b, 'y'), -ENOBUFS);
    assert_int_equal(buf_error(&b), -ENOBUFS);
    assert_null(buf_reserve(&b, 0));
    assert_null(buf_take(&b));
    assert_true(str_eqc(buf_str(&b), "56789"));
    buf_clear(&b);
    assert_int_equal(buf_error(&b), 0);
    assert_int_equal(buf_append_cstr(&b, "0123456789"), 0);
    assert_int_equal(buf_append(&b, "", SIZE_MAX), -ENOBUFS);

    AUTO_BUF struct buf nothing = BUF_INIT(0);
    assert_int_equal(buf_append(&nothing, "", 0), 0);
    assert_int_equal(buf_append_char(&nothing, 'x'), -ENOBUFS);
}

static void test_printf(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(8);
    assert_int_equal(buf_printf(&b, "%d-%s", 42, "ab"), 0);
    assert_int_equal(buf_printf(&b, "%s", "123"), 0); /* fills it to the last byte */
    assert_true(str_eqc(buf_str(&b), "42-ab123"));
    assert_int_equal(buf_printf(&b, "%s", ""), 0);
    assert_int_equal(buf_printf(&b, "%s", "x"), -ENOBUFS);
    assert_true(str_eqc(buf_str(&b), "42-ab123"));
    AUTO_BUF struct buf endless = BUF_INIT(SIZE_MAX);
    assert_int_equal(buf_printf(&endless, "%s", "x"), 0);
    assert_true(str_eqc(buf_str(&endless), "x"));
}

static void test_numbers_and_taking(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(64);
    assert_int_equal(buf_append_u64(&b, 0), 0);
    assert_int_equal(buf_append_char(&b, ' '), 0);
    assert_int_equal(buf_append_u64(&b, UINT64_MAX), 0);
    AUTO_FREE char *text = buf_take(&b);
    assert_string_equal(text, "0 18446744073709551615");
    assert_int_equal(buf_len(&b), 0);
    assert_int_equal(buf_append_cstr(&b, "again"), 0);
    assert_true(str_eqc(buf_str(&b), "again"));
    AUTO_BUF struct buf empty = BUF_INIT(1);
    AUTO_FREE char *nothing = buf_take(&empty);
    assert_string_equal(nothing, "");
}

/* Random appends and consumes against the plain array that it stands for. */
static void test_against_a_model(void **state)
{
    (void)state;
    enum { MAX_LEN = 3000 };
    AUTO_BUF struct buf b = BUF_INIT(MAX_LEN);
    AUTO_FREE char *model = mem_alloc(MAX_LEN);
    size_t n = 0;
    srand(3);
    for (int i = 0; i < 100000; i++) {
        size_t k = (size_t)rand() % 200;
        if (rand() % 2) {
            char piece[200];
            memset(piece, 'a' + rand() % 26, sizeof(piece));
            if (rand() % 2) {
                char *to = buf_reserve(&b, k);
                if (to) {
                    memcpy(to, piece, k);
                    buf_commit(&b, k);
                }
            } else {
                (void)buf_append(&b, piece, k);
            }
            if (n + k <= MAX_LEN) {
                assert_int_equal(buf_error(&b), 0);
                memcpy(model + n, piece, k);
                n += k;
            } else {
                assert_int_equal(buf_error(&b), -ENOBUFS);
                b.error = 0;
            }
        } else {
            k = MIN(k, n);
            buf_consume(&b, k);
            memmove(model, model + k, n - k);
            n -= k;
        }
        assert_int_equal(buf_len(&b), n);
        assert_true(b.cap <= MAX_LEN + 64);
        if (n)
            assert_memory_equal(buf_data(&b), model, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_printf),
        cmocka_unit_test(test_numbers_and_taking),
        cmocka_unit_test(test_against_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
