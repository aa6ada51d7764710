/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The same value as jansson makes of it, and as short. */
static void text_is_what_jansson_writes(void **state UNUSED)
{
    static const char *const texts[] = {
        "{}",
        "[]",
        "\"\"",
        "null",
        "true",
        "false",
        "0",
        "-9223372036854775808",
        "9223372036854775807",
        "1.5e+300",
        "0.1",
        "[[],{},[{}],\"a\\\"b\\\\c/\\n\\r\\t\\u0001\",null]",
        "{\"b\":1,\"a\":{\"x\":[true,false,null,-1.25]},\"\":\"\",\"\\u00fc\\n\":\"\\ud83d\\ude00\\u20ac\"}",
        "\"nul \\u0000 within\"",
    };
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        json_t *json = json_loads(texts[i], JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        assert_non_null(json);
        AUTO_FREE char *ours = json_text(json), *theirs = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY);
        json_t *again = json_loads(ours, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
        assert_true(json_equal(again, json));
        assert_int_equal(strlen(ours), strlen(theirs));
        json_decref(again);
        json_decref(json);
    }
}

static void too_long_is_an_error(void **state UNUSED)
{
    AUTO_BUF struct buf b = BUF_INIT(12);
    json_t *json = json_pack("{s:s}", "name", "value");
    assert_int_equal(buf_append_json(&b, json), -ENOBUFS);
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(text_is_what_jansson_writes),
                                       cmocka_unit_test(too_long_is_an_error)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
