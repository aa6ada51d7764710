/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/mem.h"
#include "cli/print.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* What print_json_string() writes; free with mem_free(). */
static char *printed(struct str text, size_t most)
{
    char *all = mem_alloc(most);
    FILE *out = fmemopen(all, most, "w");
    assert_non_null(out);
    print_json_string(out, text);
    assert_int_equal(fclose(out), 0);
    return all;
}

static void strings_are_escaped(void **state)
{
    (void)state;
    AUTO_FREE char *plain = printed(STR("a\"\\\n\x1b\xff"), 64), *empty = printed(STR(""), 64);
    assert_string_equal(plain, "\"a\\\"\\\\\\n\\u001b\\ufffd\"");
    assert_string_equal(empty, "\"\"");
}

/* In one piece or in several, wherever the pieces end: the same text. */
static void long_strings_are_the_same_in_pieces(void **state)
{
    (void)state;
    static const char *const parts[] = {"\xf0\x9f\x90\xa6", "\xc3\xa9", "\x80", "\x01", "\xf0\x9f\x90"};
    enum { BYTES = 300 * 1024 };
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        for (size_t shift = 0; shift < 4; shift++) {
            AUTO_BUF struct buf text = BUF_INIT(BYTES + 8), whole = BUF_INIT(8 * BYTES);
            for (size_t k = 0; k < shift; k++)
                buf_append_char(&text, 'x');
            while (buf_len(&text) < BYTES)
                buf_append_cstr(&text, parts[i]);
            buf_append_json_string(&whole, buf_str(&text));
            buf_append_char(&whole, '\0');
            AUTO_FREE char *pieces = printed(buf_str(&text), 8 * BYTES);
            assert_int_equal(buf_error(&whole), 0);
            assert_string_equal(pieces, buf_data(&whole));
        }
}

static void words_are_told_as_to_a_shell(void **state)
{
    (void)state;
    AUTO_JSON json_t *argv = json_pack("[s,s,s,s,i]", "sh", "-c", "echo it's > f", "", 1);
    AUTO_JSON json_t *long_one = json_array();
    AUTO_BUF struct buf all = BUF_INIT(64 * 1024), cut = BUF_INIT(64 * 1024), many = BUF_INIT(64 * 1024);
    print_words(&all, argv, 60);
    assert_true(str_eqc(buf_str(&all), "sh -c 'echo it'\\''s > f' '' '?'"));
    print_words(&cut, argv, 4);
    assert_true(str_eqc(buf_str(&cut), "sh -c 'echo' '' '?'"));
    AUTO_JSON json_t *login = json_pack("[s,s,s,s,s,s]", "bash", "-l", "-c", PRINT_SHELL_LINE, "make", "the test");
    AUTO_JSON json_t *other = json_pack("[s,s,s,s,s]", "./bash", "-l", "-c", PRINT_SHELL_LINE, "make");
    AUTO_JSON json_t *bare = json_pack("[s,s,s,s]", "bash", "-l", "-c", PRINT_SHELL_LINE);
    buf_clear(&all);
    print_words(&all, login, 60);
    assert_true(str_eqc(buf_str(&all), "make 'the test'"));
    buf_clear(&all);
    print_words(&all, other, 60);
    assert_true(str_starts(buf_str(&all), STR("./bash -l -c ")));
    buf_clear(&all);
    print_words(&all, bare, 60);
    assert_true(str_starts(buf_str(&all), STR("bash -l -c ")));
    for (int i = 0; i < 2000; i++)
        (void)json_array_append_new(long_one, json_string("''''''''''''"));
    print_words(&many, long_one, 60);
    assert_int_equal(buf_error(&many), 0);
    assert_true(buf_len(&many) < 17 * 1024 && str_ends(buf_str(&many), STR(" ...")));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_are_escaped),
        cmocka_unit_test(long_strings_are_the_same_in_pieces),
        cmocka_unit_test(words_are_told_as_to_a_shell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
