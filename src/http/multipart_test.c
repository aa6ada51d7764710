/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "http/multipart.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define TYPE "multipart/form-data; boundary=bound"

static int on_part(const struct multipart_part *part, void *ctx)
{
    buf_printf(ctx, "[%.*s|%.*s|%.*s:", STR_ARG(part->name), part->filename.p ? (int)part->filename.n : 1,
               part->filename.p ? part->filename.p : "-", STR_ARG(part->content_type));
    return 0;
}

static int on_data(struct str data, void *ctx)
{
    assert_true(data.n > 0);
    return buf_append_str(ctx, data);
}

static int on_part_end(void *ctx)
{
    return buf_append_char(ctx, ']');
}

static const struct multipart_ops ops = {on_part, on_data, on_part_end};

/* In two pieces, or byte by byte (at SIZE_MAX). The result, or the error. */
static int run(const char *type, const struct multipart_limits *limits, struct str body, size_t at, struct buf *seen)
{
    AUTO(multipart_free) struct multipart *m = NULL;
    buf_clear(seen);
    int r = multipart_new(str_of(type), &ops, limits, seen, &m);
    if (r < 0)
        return r;
    if (at == SIZE_MAX) {
        for (size_t i = 0; i < body.n && r == 0; i++)
            r = multipart_feed(m, str_n(body.p + i, 1));
    } else {
        r = multipart_feed(m, str_n(body.p, at));
        if (r == 0)
            r = multipart_feed(m, str_sub(body, at));
    }
    if (r < 0) {
        assert_int_equal(multipart_feed(m, STR("x")), r);
        assert_int_equal(multipart_end(m), r);
        return r;
    }
    return multipart_end(m);
}

static void everywhere(const char *type, struct str body, int error, const char *wanted)
{
    AUTO_BUF struct buf seen = BUF_INIT(65536);
    for (size_t at = 0; at <= body.n + 1; at++) {
        int r = run(type, NULL, body, at > body.n ? SIZE_MAX : at, &seen);
        if (r != error || (wanted && !str_eqc(buf_str(&seen), wanted)))
            fail_msg("\"%.*s\" split at %zu: %d, \"%.*s\"", STR_ARG(body), at, r, STR_ARG(buf_str(&seen)));
    }
}

#define PART(name) "Content-Disposition: form-data; name=\"" name "\"\r\n\r\n"
#define GOOD(body, wanted) everywhere(TYPE, STR(body), 0, wanted)
#define BAD(body) everywhere(TYPE, STR(body), -EPROTO, NULL)

static void test_good(void **state)
{
    (void)state;
    GOOD("--bound\r\n" PART("a") "1\r\n--bound\r\n" PART("b") "2\r\n--bound--\r\n", "[a|-|:1][b|-|:2]");
    GOOD("--bound--", "");
    GOOD("preamble\r\n--boun\r\n--bound \t\r\n" PART("a") "\r\n--bound--epilogue --bound\r\n", "[a|-|:]");
    GOOD("--bound\r\n" PART("a") "\r\n--boun\r\n--boune\r\r\n\r\n--\r\n-\r\n\r\n--bound--",
         "[a|-|:\r\n--boun\r\n--boune\r\r\n\r\n--\r\n-\r\n]");
    GOOD("--bound\r\n" PART("a") "--bound\n--bound--\n\r--bound\r\n--bound--", "[a|-|:--bound\n--bound--\n\r--bound]");
    GOOD(
        "--bound\r\ncontent-type:  text/x \r\nX: y\r\nCONTENT-DISPOSITION: Form-Data; filename=\"/home/a b/\xc3\xa4%22q\\\"%0d%0D.txt\";name=file\r\n\r\nx\r\n--bound--",
        "[file|/home/a b/\xc3\xa4\"q\"%0d\r.txt|text/x:x]");
    GOOD("--bound\r\nContent-Disposition: form-data; name=f; filename=\"\"\r\n\r\nx\r\n--bound--", "[f||:x]");
    GOOD("--bound\r\nContent-Disposition: form-data; filename=plain\r\n\r\nx\r\n--bound--", "[|plain|:x]");
}

static void test_borders(void **state)
{
    (void)state;
    /* Boundaries that contain the beginning of the delimiter, where a naive matcher loses its place. */
    everywhere("multipart/form-data; boundary=\"--\"", STR("----\r\n" PART("a") "\r\n\r\n---\r\n---x\r\n------"), 0,
               "[a|-|:\r\n\r\n---\r\n---x]");
    everywhere("multipart/form-data; boundary=\"--\"",
               STR("----\r\n" PART("a") "-\r\n\r\n---\r\n----\r\n" PART("b") "\r\n------"), 0,
               "[a|-|:-\r\n\r\n---][b|-|:]");
    everywhere("multipart/form-data; boundary=aab", STR("--aab\r\n" PART("a") "\r\n--aaab\r\n--aa\r\n--aab--"), 0,
               "[a|-|:\r\n--aaab\r\n--aa]");
}

static void test_bad(void **state)
{
    (void)state;
    BAD("");
    BAD("nothing");
    BAD("--bound\r\n" PART("a") "1");
    BAD("--bound\r\n" PART("a") "1\r\n--bound");
    BAD("--bound\r\n" PART("a") "1\r\n--bound-");
    BAD("--bound\r\n" PART("a") "1\r\n--bound\r\n");
    BAD("--boundary\r\n" PART("a") "1\r\n--bound--");
    BAD("--bound\n" PART("a") "1\r\n--bound--");
    BAD("--bound -\r\n" PART("a") "1\r\n--bound--");
    BAD("--bound\r\n\r\nno headers\r\n--bound--");
    BAD("--bound\r\nX: y\r\n\r\nno disposition\r\n--bound--");
    BAD("--bound\r\nContent-Disposition: attachment; name=a\r\n\r\n\r\n--bound--");
    BAD("--bound\r\nContent-Disposition: form-data; name=a; name=b\r\n\r\n\r\n--bound--");
    BAD("--bound\r\nContent-Disposition: form-data; name=\"a\r\n\r\n\r\n--bound--");
    BAD("--bound\r\nContent-Disposition: form-data\r\nContent-Disposition: form-data\r\n\r\n\r\n--bound--");
    BAD("--bound\r\nContent-Disposition: form-data; name=\"a\0b\"\r\n\r\n\r\n--bound--");
    BAD("--bound\r\nContent-Disposition: form-data;\n name=a\r\n\r\n\r\n--bound--");
    BAD("--bound\r\nno colon\r\n\r\n\r\n--bound--");
    BAD("--bound\r\n: x\r\n\r\n\r\n--bound--");
}

static void test_types(void **state)
{
    (void)state;
    AUTO_BUF struct buf seen = BUF_INIT(100);
    static const char *const bad[] = {
        "",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\"\"",
        "multipart/mixed; boundary=a",
        "multipart/form-data; boundary=a; boundary=b",
        "multipart/form-data; boundary=\"a ",
        "multipart/form-data; boundary=\"a \"",
        "multipart/form-data; boundary=a\rb",
        "multipart/form-data; boundary=0123456789012345678901234567890123456789012345678901234567890123456789x"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(run(bad[i], NULL, STR("--a--"), 0, &seen), -EINVAL);
    assert_int_equal(run("Multipart/Form-Data; charset=x; BOUNDARY=\"a b\"", NULL, STR("--a b--"), 0, &seen), 0);
}

static void test_limits(void **state)
{
    (void)state;
    AUTO_BUF struct buf seen = BUF_INIT(1 << 20), body = BUF_INIT(1 << 20);
    struct str two = STR("--bound\r\n" PART("a") "123\r\n--bound\r\n" PART("b") "\r\n--bound--");
    assert_int_equal(run(TYPE, &(struct multipart_limits){.parts = 2, .part_bytes = 3}, two, 0, &seen), 0);
    assert_int_equal(run(TYPE, &(struct multipart_limits){.parts = 1}, two, 0, &seen), -E2BIG);
    assert_int_equal(run(TYPE, &(struct multipart_limits){.part_bytes = 2}, two, 0, &seen), -EFBIG);

    buf_append_cstr(&body, "--bound\r\nX: ");
    for (int i = 0; i < 9000; i++)
        buf_append_char(&body, 'x');
    assert_int_equal(run(TYPE, NULL, buf_str(&body), 0, &seen), -EMSGSIZE);
    buf_clear(&body);
    for (int i = 0; i < 70000; i++)
        buf_append_char(&body, 'x');
    assert_int_equal(run(TYPE, NULL, buf_str(&body), 0, &seen), -EPROTO);
}

static int refuse(struct str data, void *ctx)
{
    (void)data;
    (void)ctx;
    return -ENOSPC;
}

static void test_op_stops(void **state)
{
    (void)state;
    AUTO(multipart_free) struct multipart *m = NULL;
    static const struct multipart_ops refusing = {.on_data = refuse};
    assert_int_equal(multipart_new(STR(TYPE), &refusing, NULL, NULL, &m), 0);
    assert_int_equal(multipart_feed(m, STR("--bound\r\n" PART("a") "1\r\n--bound--")), -ENOSPC);
    assert_int_equal(multipart_end(m), -ENOSPC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),  cmocka_unit_test(test_borders), cmocka_unit_test(test_bad),
        cmocka_unit_test(test_types), cmocka_unit_test(test_limits),  cmocka_unit_test(test_op_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
