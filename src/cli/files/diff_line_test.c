/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/files/diff_line.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define RECORD(change, type, path) "{\"change\":\"" change "\",\"type\":\"" type "\",\"path\":\"" path "\""

static int read_line(const char *text, struct buf *b)
{
    json_t *object = json_loads(text, 0, NULL);
    assert_non_null(object);
    buf_clear(b);
    int r = diff_line_read(b, object);
    json_decref(object);
    return r;
}

static void test_what_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *text, *line;
    } good[] = {
        {RECORD("added", "file", "/a b") "}", "A /a b"},
        {RECORD("modified", "directory", "/d") "}", "M /d/"},
        {RECORD("modified", "directory", "/") "}", "M /"},
        {RECORD("deleted", "link", "/l\\n\\u0007") "}", "D /l\n\a"},
        {RECORD("added", "directory", "/\xef\xbf\xbd") ",\"path_base64\":\"L/8=\"}", "A /\xff/"},
    };
    static const char *const bad[] = {
        "{}",
        "[]",
        RECORD("renamed", "file", "/a") "}",
        "{\"change\":\"added\",\"path\":\"/a\"}",
        "{\"change\":\"added\",\"type\":\"file\"}",
        RECORD("added", "file", "/a") ",\"path_base64\":\"*\"}",
        RECORD("added", "file", "/a") ",\"path_base64\":7}",
        RECORD("added", "file", "/a") ",\"path_base64\":\"LwBh\"}", /* a NUL in the middle */
    };
    AUTO_BUF struct buf b = BUF_INIT(4096);
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        assert_int_equal(read_line(good[i].text, &b), 0);
        assert_true(str_eqc(buf_str(&b), good[i].line));
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(read_line(bad[i], &b), -EILSEQ);
        assert_int_equal(buf_len(&b), 0);
    }
}

static void test_what_is_escaped(void **state)
{
    (void)state;
    static const struct {
        struct str line;
        const char *escaped;
    } cases[] = {
        {STR("A /plain \xc3\xa9"), "A /plain \xc3\xa9"},
        {STR("A /a\nD /etc/passwd"), "A /a\\x0aD /etc/passwd"},
        {STR("A /a\\x0aD"), "A /a\\\\x0aD"},
        {STR("M /\x1b[31m\x7f\t"), "M /\\x1b[31m\\x7f\\x09"},
        {STR("D /\xff\xc2\x9b"), "D /\\xff\\xc2\\x9b"},
        {STR("A /\\\\end\\"), "A /\\\\\\\\end\\\\"},
        {STR("A /\xe2\x80\xaegpj"), "A /\\xe2\\x80\\xaegpj"},
        {STR("A /\xe2\x80\x8b.\xe2\x80\x8c.\xe2\x80\x8d"), "A /\\xe2\\x80\\x8b.\\xe2\\x80\\x8c.\\xe2\\x80\\x8d"},
        {STR("A /\xe2\x81\xa0\xe2\x81\xa4\\\xef\xbb\xbf"), "A /\\xe2\\x81\\xa0\\xe2\\x81\\xa4\\\\\\xef\\xbb\\xbf"},
        {STR("A /\xe2\x80\x90\xe2\x81\x9f\xef\xbb\xbe"), "A /\xe2\x80\x90\xe2\x81\x9f\xef\xbb\xbe"},
        {STR("A /\xe2\x80"), "A /\\xe2\\x80"},
        {STR("A /\xf0\xe2\x80\x8b"), "A /\\xf0\\xe2\\x80\\x8b"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        AUTO_BUF struct buf b = BUF_INIT(4096);
        diff_line_escape(&b, cases[i].line);
        assert_true(str_eqc(buf_str(&b), cases[i].escaped));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_read),
        cmocka_unit_test(test_what_is_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
