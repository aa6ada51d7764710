/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds, the JSON of events, and the builder of their data. */
#include "base/mem.h"
#include "event/event.h"
#include "event/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_kinds(void **state)
{
    (void)state;
    for (unsigned k = 1; k < EVENT_KIND_MAX; k++) {
        const char *name = event_kind_name((enum event_kind)k);
        assert_non_null(name);
        assert_int_equal(event_kind_parse(str_of(name)), k); /* also: no name twice */
    }
    assert_int_equal(event_kind_parse(STR("unknown")), EVENT_KIND_UNKNOWN);
    assert_int_equal(event_kind_parse(STR("sandbox.creat")), EVENT_KIND_UNKNOWN);
    assert_string_equal(event_kind_name((enum event_kind)9999), "unknown");
    assert_string_equal(event_kind_name(EVENT_SANDBOX_CREATE), "sandbox.create");
    assert_true(event_kind_is_action(EVENT_EXEC_START));
    assert_false(event_kind_is_action(EVENT_EXEC_STARTED));
    assert_string_equal(event_source_name(EVENT_KERNEL), "kernel");
    assert_string_equal(event_grade_name(EVENT_OBSERVED_KERNEL), "observed-kernel");
    assert_string_equal(event_grade_name((enum event_grade)77), "unknown");
}

static void test_format(void **state)
{
    (void)state;
    unsigned char hash[EVENT_HASH_SIZE];
    memset(hash, 0xab, sizeof(hash));
    struct event e = {
        .sandbox = STR("i1"),
        .seq = 7,
        .time = 1790000000123456,
        .kind_name = STR("exec.exit"),
        .source = STR("agent"),
        .grade = STR("claimed"),
        .actor = STR("x\"\n\x1b[31m"),
        .cause = 5,
        .data = STR("{\"code\":0}"),
        .hash = hash,
    };
    AUTO_BUF struct buf b = BUF_INIT(EVENT_JSON_MAX);
    event_format_json(&e, &b);
    buf_append_char(&b, 0);
    assert_int_equal(buf_error(&b), 0);
    assert_string_equal(
        buf_data(&b),
        "{\"sandbox\":\"i1\",\"seq\":7,\"time\":\"2026-09-21T14:13:20.123456Z\",\"kind\":\"exec.exit\","
        "\"source\":\"agent\",\"grade\":\"claimed\",\"actor\":\"x\\\"\\n\\u001b[31m\",\"cause\":5,"
        "\"data\":{\"code\":0},\"hash\":\"abababababababababababababababababababababababababababababababab\"}");

    /* The largest that there can be fits the announced maximum. */
    char actor[EVENT_ACTOR_MAX], id[EVENT_ID_MAX];
    memset(actor, 1, sizeof(actor));
    memset(id, '"', sizeof(id));
    AUTO_FREE char *data = mem_alloc(EVENT_DATA_MAX);
    memset(data, 'd', EVENT_DATA_MAX);
    e.actor = str_n(actor, sizeof(actor));
    e.sandbox = str_n(id, sizeof(id));
    e.data = str_n(data, EVENT_DATA_MAX);
    e.seq = e.cause = UINT64_MAX;
    buf_clear(&b);
    event_format_json(&e, &b);
    assert_int_equal(buf_error(&b), 0);
}

static void data_is(struct event_data *d, const char *want)
{
    struct str got = event_data_end(d);
    AUTO_BUF struct buf again = BUF_INIT(EVENT_DATA_MAX);
    assert_int_equal(json_compact(got, &again), 0);
    assert_true(str_eq(buf_str(&again), got));
    if (!str_eqc(got, want))
        fail_msg("%.*s", STR_ARG(got));
}

static void test_data(void **state)
{
    (void)state;
    {
        AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
        data_is(&d, "{}");
    }
    {
        AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
        event_data_str(&d, "path", STR("/a\"\n\xff"));
        event_data_u64(&d, "bytes", UINT64_MAX);
        event_data_i64(&d, "least", INT64_MIN);
        event_data_i64(&d, "one", 1);
        event_data_bool(&d, "yes", true);
        event_data_bool(&d, "no", false);
        event_data_base64(&d, "raw", STR("\0\1\2"));
        event_data_json(&d, "meta", STR("{ \"a\" : [ 1 ] }"));
        data_is(
            &d,
            "{\"path\":\"/a\\\"\\n\\ufffd\",\"bytes\":18446744073709551615,\"least\":-9223372036854775808,\"one\":1,"
            "\"yes\":true,\"no\":false,\"raw\":\"AAEC\",\"meta\":{\"a\":[1]}}");
    }
    {
        AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
        event_data_json(&d, "meta", STR("{ broken"));
        event_data_u64(&d, "n", 1);
        data_is(&d, "{\"n\":1,\"truncated\":true}");
    }
    {
        AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
        event_data_json(&d, "meta", STR("[1"));
        data_is(&d, "{\"truncated\":true}");
    }
}

/* Any sequence of members of any size gives an object within the maximum. */
static void test_data_is_bounded(void **state)
{
    (void)state;
    static const unsigned char fills[] = {'a', 1, 0xff, '"'};
    AUTO_FREE char *text = mem_alloc(100000);
    for (size_t f = 0; f < ARRAY_SIZE(fills); f++) {
        memset(text, fills[f], 100000);
        for (size_t n = 0; n < 6000; n += 37) {
            AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
            for (int i = 0; i < 12; i++) {
                if (i % 3 == 2)
                    event_data_base64(&d, "b", str_n(text, n));
                else
                    event_data_str(&d, "s", str_n(text, n));
            }
            event_data_u64(&d, "n", n);
            struct str got = event_data_end(&d);
            AUTO_BUF struct buf again = BUF_INIT(EVENT_DATA_MAX);
            assert_true(got.n <= EVENT_DATA_MAX);
            assert_int_equal(json_compact(got, &again), 0);
        }
    }
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    memset(text, 'a', 100000);
    memcpy(text + EVENT_DATA_STRING_MAX - 1, "\xc3\xa4", 2); /* a character across the cut goes as a whole */
    event_data_str(&d, "s", str_n(text, 100000));
    struct str got = event_data_end(&d), s, bytes;
    assert_true(json_member(got, "s", &s));
    assert_int_equal(s.n, EVENT_DATA_STRING_MAX - 1 + 2);
    assert_true(json_member(got, "s_bytes", &bytes));
    assert_true(str_eqc(bytes, "100000"));
}

static void test_json(void **state)
{
    (void)state;
    static const char *const good[] = {
        "{}",
        "[]",
        "0",
        "-0",
        "-1.5e+10",
        "1E5",
        "0.1",
        "true",
        "false",
        "null",
        "\"\"",
        "\"\\u00e4\\ud83d\\ude00\\b\\/\"",
        " [ 1 , { \"a\" : [ ] } ] ",
        "\"\xc3\xa4\"",
        "{\"a\":1,\"a\":2}",
    };
    static const char *const bad[] = {
        "",
        " ",
        "{",
        "}",
        "[1,]",
        "[,1]",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "01",
        "1.",
        ".5",
        "+1",
        "1e",
        "-",
        "tru",
        "nul",
        "\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\t\"",
        "\"\xff\"",
        "'a'",
        "1 2",
        "{} {}",
        "[1}",
        "{\"a\":1,}",
        "\"\\ud800\"",
        "NaN",
        "\"\\udc00\"",
        "[1 2]",
        "/**/1",
        "\"\\\"",
        "\xef\xbb\xbf{}",
        "\"\\ud800\\u0041\"",
    };
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        AUTO_BUF struct buf b = BUF_INIT(1024);
        assert_int_equal(json_compact(str_of(good[i]), &b), 0);
        assert_non_null(buf_data(&b));
        assert_null(memchr(buf_data(&b), ' ', buf_len(&b)));
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        AUTO_BUF struct buf b = BUF_INIT(1024);
        if (json_compact(str_of(bad[i]), &b) != -EILSEQ)
            fail_msg("accepted: %s", bad[i]);
    }
    char deep[2 * (EVENT_JSON_DEPTH_MAX + 1)];
    AUTO_BUF struct buf b = BUF_INIT(1024);
    memset(deep, '[', EVENT_JSON_DEPTH_MAX + 1);
    memset(deep + EVENT_JSON_DEPTH_MAX + 1, ']', EVENT_JSON_DEPTH_MAX + 1);
    assert_int_equal(json_compact(str_n(deep, sizeof(deep)), &b), -EILSEQ);
    buf_clear(&b);
    assert_int_equal(json_compact(str_n(deep + 1, sizeof(deep) - 2), &b), 0);
    AUTO_BUF struct buf small = BUF_INIT(4);
    assert_int_equal(json_compact(STR("[1,2]"), &small), -ENOBUFS);

    struct str v;
    struct str object = STR("{\"aa\":{\"a\":1},\"a\":\"x\\\"y\",\"b\":[1,2]}");
    assert_true(json_member(object, "a", &v));
    assert_true(str_eqc(v, "\"x\\\"y\""));
    assert_true(json_member(object, "b", &v));
    assert_true(str_eqc(v, "[1,2]"));
    assert_false(json_member(object, "c", &v));
    assert_false(json_member(STR("[1]"), "a", &v));
    assert_false(json_member(STR("{}"), "a", &v));
    assert_false(json_member(STR_NULL, "a", &v));
    assert_int_equal(json_compact(STR_NULL, &b), -EILSEQ);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),           cmocka_unit_test(test_format), cmocka_unit_test(test_data),
        cmocka_unit_test(test_data_is_bounded), cmocka_unit_test(test_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
