/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/mem.h"
#include "config/yaml.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void becomes(const char *text, const char *json)
{
    json_t *got;
    struct err err;
    if (yaml_parse("p.yaml", str_of(text), &got, &err) < 0)
        fail_msg("%s: %s", text, err.msg);
    AUTO_FREE char *shown = json_dumps(got, JSON_COMPACT | JSON_ENCODE_ANY);
    assert_string_equal(shown, json);
    json_decref(got);
}

static void refused(const char *text, const char *because)
{
    json_t *got;
    struct err err;
    assert_int_equal(yaml_parse("p.yaml", str_of(text), &got, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    if (!strstr(err.msg, because))
        fail_msg("\"%s\" does not say \"%s\"", err.msg, because);
}

static void a_policy_is_read(void **state)
{
    (void)state;
    becomes("# what it may reach\n"
            "default: deny\n"
            "rules:\n"
            "  - allow: \"*.example.com\"\n"
            "    ports: [443, 8000-8099, \"22\"]\n"
            "  - deny: 10.0.0.0/8\n",
            "{\"default\":\"deny\",\"rules\":[{\"allow\":\"*.example.com\",\"ports\":[443,\"8000-8099\",\"22\"]},"
            "{\"deny\":\"10.0.0.0/8\"}]}");
    becomes("a: true\nb: null\nc: ~\nd:\ne: 'false'\nf: -1\n",
            "{\"a\":true,\"b\":null,\"c\":null,\"d\":null,\"e\":\"false\",\"f\":-1}");
    becomes("{by_risk: {unknown: ask}}", "{\"by_risk\":{\"unknown\":\"ask\"}}");
    becomes(" [git, \"push\"]\n", "[\"git\",\"push\"]");
    becomes(" {\"default\": \"allow\",\n\t\"rules\": []}", "{\"default\":\"allow\",\"rules\":[]}");
}

static void what_is_wrong_is_named(void **state)
{
    AUTO_BUF struct buf deep = BUF_INIT(1 << 20);
    (void)state;
    refused("", "p.yaml:1: ");
    refused("default: deny\nrules:\n  - allow: *.example.com\n", "p.yaml:3: ");
    refused("default: deny\nrules:\n  - allow: *.example.com\n", "in quotes");
    refused("a: &x 1\nb: *x\n", "anchors");
    refused("a: !!str 1\n", "tags");
    refused("a: 1\na: 2\n", "p.yaml:2: the same key");
    refused("a: 1\n---\nb: 2\n", "exactly one document");
    refused("? [a]\n: 1\n", "a key must be a text");
    refused("a: [1\n", "p.yaml:");
    refused("{\"a\":1,\"a\":2}", "p.yaml:1: ");
    refused("{a: 1, a: 2}", "the same key");
    refused("{\"a\": b}", "p.yaml:1: ");
    refused("{a: {\n", "p.yaml:");
    for (int i = 0; i < 40; i++)
        (void)buf_append_cstr(&deep, "- ");
    (void)buf_append(&deep, "x", 2);
    refused(buf_data(&deep), "too deep");
    buf_clear(&deep);
    for (int i = 0; i <= YAML_TEXT_MAX; i++)
        (void)buf_append_char(&deep, 'x');
    (void)buf_append_char(&deep, 0);
    refused(buf_data(&deep), "KiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_policy_is_read),
        cmocka_unit_test(what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
