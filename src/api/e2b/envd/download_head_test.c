/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/envd/download_head.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void is_disposed(struct str name, const char *expected)
{
    const struct content_type *type = content_type_by_name(name);
    AUTO_BUF struct buf b = BUF_INIT(4096);
    content_disposition_append(&b, type ? type : content_type_by_bytes(STR("text")), name);
    buf_append_char(&b, '\0');
    assert_string_equal(buf_data(&b), expected);
}

static void names_are_safe_in_a_header(void **state)
{
    (void)state;
    is_disposed(STR("a.txt"), "inline; filename=a.txt");
    is_disposed(STR("a b.txt"), "inline; filename=\"a b.txt\"");
    is_disposed(STR("a\"b\\c"), "inline; filename=\"a\\\"b\\\\c\"");
    is_disposed(STR("\xc3\xa9\r\nx: y"), "inline; filename*=utf-8''%C3%A9%0D%0Ax%3A%20y");
    is_disposed(STR(""), "inline; filename=\"\"");
}

static void what_a_browser_could_run_is_an_attachment(void **state)
{
    (void)state;
    is_disposed(STR("a.png"), "inline; filename=a.png");
    is_disposed(STR("a.json"), "inline; filename=a.json");
    is_disposed(STR("a.html"), "attachment; filename=a.html");
    is_disposed(STR("a.svg"), "attachment; filename=a.svg");
    is_disposed(STR("a.xml"), "attachment; filename=a.xml");
    is_disposed(STR("a.js"), "attachment; filename=a.js");
    is_disposed(STR("a.pdf"), "attachment; filename=a.pdf");
    assert_false(content_type_is_inert(content_type_by_bytes(STR("\x01"))));
}

static void types_follow_name_then_content(void **state)
{
    (void)state;
    assert_string_equal(content_type_by_name(STR("x/A.TXT"))->name, "text/plain; charset=utf-8");
    assert_true(content_type_by_name(STR("a.tar.gz"))->packed);
    assert_null(content_type_by_name(STR("Makefile")));
    assert_null(content_type_by_name(STR(".txt")));
    assert_string_equal(content_type_by_bytes(STR("hello\n"))->name, "text/plain; charset=utf-8");
    assert_string_equal(content_type_by_bytes(STR("\x7f"
                                                  "ELF\x02\x01"))
                            ->name,
                        "application/octet-stream");
}

static void dates_go_both_ways(void **state)
{
    char text[HTTP_DATE_MAX];
    usec_t back = 0;
    (void)state;
    http_date_format(1700000000 * USEC_PER_SEC + 999999, text);
    assert_string_equal(text, "Tue, 14 Nov 2023 22:13:20 GMT");
    assert_int_equal(http_date_parse(str_of(text), &back), 0);
    assert_int_equal(back, 1700000000 * USEC_PER_SEC);
    assert_int_equal(http_date_parse(STR("Tue, 14 Nov 2023 22:13:20 GMT "), &back), -EINVAL);
    assert_int_equal(http_date_parse(STR("yesterday"), &back), -EINVAL);
    assert_int_equal(http_date_parse(STR(""), &back), -EINVAL);
    http_date_format(UINT64_MAX, text);
    assert_true(strlen(text) < HTTP_DATE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_safe_in_a_header),
        cmocka_unit_test(what_a_browser_could_run_is_an_attachment),
        cmocka_unit_test(types_follow_name_then_content),
        cmocka_unit_test(dates_go_both_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
