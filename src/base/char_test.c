/* SPDX-License-Identifier: Apache-2.0 */
#include "base/char.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_each(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        const unsigned n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
        char s[4];
        uint32_t rest = c;
        for (unsigned i = n; i-- > 1; rest >>= 6)
            s[i] = (char)(0x80 | (rest & 0x3f));
        s[0] = (char)(first[n] | rest);
        struct str text = str_n(s, n);
        if (char_take(&text) != c || text.n)
            fail_msg("U+%04X", c);
    }
}

/* What is cut short hides nothing that stands behind it. */
static void test_broken(void **state)
{
    (void)state;
    static const char bytes[] = "\xf3\xe2\x80\xae\x61\x9b\xe2\x80";
    static const uint32_t taken[] = {0xf3, 0x202e, 'a', 0x9b, 0xe2, 0x80};
    struct str text = str_n(bytes, sizeof(bytes) - 1);
    for (size_t i = 0; i < ARRAY_SIZE(taken); i++)
        assert_int_equal(char_take(&text), taken[i]);
    assert_int_equal(text.n, 0);
}

static void test_hidden(void **state)
{
    (void)state;
    static const uint32_t hidden[] = {0xad, 0x61c, 0x200b, 0x202e, 0x2066, 0x3164, 0xfe00, 0xfeff, 0xe0001, 0xe0100};
    static const uint32_t seen[] = {'a', 0xe4, 0x20ac, 0xfe0f, 0x1f600};
    for (size_t i = 0; i < ARRAY_SIZE(hidden); i++)
        assert_true(char_is_hidden(hidden[i]));
    for (size_t i = 0; i < ARRAY_SIZE(seen); i++)
        assert_false(char_is_hidden(seen[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each), cmocka_unit_test(test_broken),
                                       cmocka_unit_test(test_hidden)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
