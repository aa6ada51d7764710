/* SPDX-License-Identifier: Apache-2.0 */
/* Reading policies: what is taken, in which form it comes back, what is refused and where that is said to be. */
#include "base/mem.h"
#include "policy/policy.h"
#include "policy/policy_internal.h"
#include "policy/presets.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static struct policy *parse_json(json_t *json)
{
    struct policy *p = NULL;
    struct err err = {0};
    if (policy_parse(json, &p, &err) < 0)
        fail_msg("%s", err.msg);
    json_decref(json);
    return p;
}

static json_t *load(const char *text)
{
    json_error_t error;
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!json)
        fail_msg("%s: %s", text, error.text);
    return json;
}

static struct policy *parse(const char *text)
{
    return parse_json(load(text));
}

static void assert_normal(struct policy *p, const char *normal)
{
    json_t *json = policy_json(p), *wanted = load(normal);
    if (!json_equal(json, wanted)) {
        char *have = json_dumps(json, JSON_COMPACT);
        fail_msg("%s and not %s", normal, have);
    }
    json_decref(wanted);
    json_decref(json);
}

static void policies_come_back_normalised(void **state)
{
    static const struct {
        const char *text, *normal; /* NULL: the same */
    } cases[] = {
        {"{}", "{\"default\":\"deny\",\"rules\":[]}"},
        {"{\"default\":\"allow\",\"rules\":[],\"inject\":[]}", "{\"default\":\"allow\",\"rules\":[]}"},
        {"{\"default\":\"deny\",\"rules\":[{\"allow\":\"*\"},{\"deny\":\"*.example.com\"},{\"allow\":\"a.b\"},{\"deny\":\"10.0.0.0/8\"},"
         "{\"deny\":\"::1\"}]}",
         NULL},
        {"{\"rules\":[{\"allow\":\"Example.COM.\"},{\"allow\":\"*.Example.COM.\"},{\"allow\":\"10.1.2.3/8\"},{\"allow\":\"1.2.3.4/32\"},"
         "{\"allow\":\"::FFFF:1.2.3.4\"},{\"allow\":\"2001:DB8:0::/32\"}]}",
         "{\"default\":\"deny\",\"rules\":[{\"allow\":\"example.com\"},{\"allow\":\"*.example.com\"},{\"allow\":\"10.0.0.0/8\"},"
         "{\"allow\":\"1.2.3.4\"},{\"allow\":\"1.2.3.4\"},{\"allow\":\"2001:db8::/32\"}]}"},
        {"{\"rules\":[{\"allow\":\"a.b\",\"ports\":[443,\"8000-8099\",\"1-65535\",\"22-22\"],\"methods\":[\"get\",\"M-SEARCH\"],\"path\":\"/%7ea/%c3%a9*\"}]}",
         "{\"default\":\"deny\",\"rules\":[{\"allow\":\"a.b\",\"ports\":[443,\"8000-8099\",\"1-65535\",22],\"methods\":[\"GET\",\"M-SEARCH\"],"
         "\"path\":\"/~a/%C3%A9*\"}]}"},
        {"{\"rules\":[{\"ech\":\"allow\",\"allow\":\"a.b\",\"ports\":[443]}]}",
         "{\"default\":\"deny\",\"rules\":[{\"allow\":\"a.b\",\"ports\":[443],\"ech\":\"allow\"}]}"},
        {"{\"default\":\"allow\",\"rules\":[],\"inject\":[{\"host\":\"*.API.example\",\"ports\":[443],\"methods\":[\"POST\"],\"path\":\"/v1*\","
         "\"headers\":[{\"name\":\"Authorization\",\"value\":\"Bearer ${secret:EXAMPLE} $$5 ${sealed:QUJD+/==}\"},{\"name\":\"x-a\",\"value\":\"b c é\"}],"
         "\"placeholders\":[{\"sentinel\":\"sk-cove-0123\",\"secret\":\"_a.B-9\",\"headers\":[\"X-Team\",\"cookie\"]}]}]}",
         "{\"default\":\"allow\",\"rules\":[],\"inject\":[{\"host\":\"*.api.example\",\"ports\":[443],\"methods\":[\"POST\"],\"path\":\"/v1*\","
         "\"headers\":[{\"name\":\"authorization\",\"value\":\"Bearer ${secret:EXAMPLE} $$5 ${sealed:QUJD+/==}\"},{\"name\":\"x-a\",\"value\":\"b c é\"}],"
         "\"placeholders\":[{\"sentinel\":\"sk-cove-0123\",\"secret\":\"_a.B-9\",\"headers\":[\"x-team\",\"cookie\"]}]}]}"},
        {"{\"inject\":[{\"host\":\"a.b\",\"schemes\":[\"http\",\"https\"],\"placeholders\":[{\"sentinel\":\"k\",\"value\":\"${sealed:QQ==}\","
         "\"in\":[\"body\",\"query\",\"path\",\"header\"],\"headers\":[\"*\"]},{\"sentinel\":\"sk-cove-\",\"secret\":\"A\",\"in\":[\"header\"]},"
         "{\"sentinel\":\"kk\",\"value\":\"b\",\"in\":[\"header\"]}]},{\"host\":\"a.b\",\"schemes\":[\"http\"],\"headers\":[{\"name\":\"a\",\"value\":\"b\"}]},"
         "{\"host\":\"a.b\",\"schemes\":[\"https\"],\"headers\":[{\"name\":\"a\",\"value\":\"b\"}]}]}",
         "{\"default\":\"deny\",\"rules\":[],\"inject\":[{\"host\":\"a.b\",\"schemes\":[\"http\",\"https\"],\"placeholders\":[{\"sentinel\":\"k\",\"value\":\"${sealed:QQ==}\","
         "\"in\":[\"header\",\"path\",\"query\",\"body\"],\"headers\":[\"*\"]},{\"sentinel\":\"sk-cove-\",\"secret\":\"A\"},"
         "{\"sentinel\":\"kk\",\"value\":\"b\",\"in\":[\"header\"]}]},{\"host\":\"a.b\",\"schemes\":[\"http\"],\"headers\":[{\"name\":\"a\",\"value\":\"b\"}]},"
         "{\"host\":\"a.b\",\"headers\":[{\"name\":\"a\",\"value\":\"b\"}]}]}"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct policy *p, *again;
        p = parse(cases[i].text);
        assert_normal(p, cases[i].normal ? cases[i].normal : cases[i].text);
        again = parse_json(policy_json(p));
        assert_normal(again, cases[i].normal ? cases[i].normal : cases[i].text);
        policy_unref(again);
        policy_unref(p);
    }
}

static void refused(const char *text, const char *message)
{
    struct policy *p = NULL;
    struct err err = {0};
    json_t *json = load(text);
    if (policy_parse(json, &p, &err) == 0)
        fail_msg("%s was taken", text);
    assert_null(p);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    if (strcmp(err.msg, message) != 0)
        fail_msg("%s: \"%s\" and not \"%s\"", text, err.msg, message);
    json_decref(json);
}

static void presets_are_their_hosts(void **state)
{
    (void)state;
    struct policy *p = parse(
        "{\"rules\":[{\"deny\":\"a.b\"},{\"allow\":\"@debian\"},{\"allow\":\"@anthropic\",\"ports\":[8443],\"methods\":[\"GET\"]}]}");
    assert_normal(
        p,
        "{\"default\":\"deny\",\"rules\":[{\"deny\":\"a.b\"},{\"allow\":\"deb.debian.org\",\"ports\":[80,443]},"
        "{\"allow\":\"security.debian.org\",\"ports\":[80,443]},{\"allow\":\"api.anthropic.com\",\"ports\":[8443],\"methods\":[\"GET\"]},"
        "{\"allow\":\"claude.ai\",\"ports\":[8443],\"methods\":[\"GET\"]},{\"allow\":\"platform.claude.com\",\"ports\":[8443],\"methods\":[\"GET\"]}]}");
    policy_unref(p);
    for (size_t i = 0; i < presets_n; i++) {
        AUTO_FREE char *text = mem_printf("{\"rules\":[{\"allow\":\"%s\"}]}", presets[i].name);
        policy_unref(parse(text));
    }
}

/* What few bytes stand for is bounded as what is written out. */
static void presets_have_an_end(void **state)
{
    struct policy *p = NULL;
    struct err err = {0};
    json_t *rules = json_array(), *policy = json_pack("{s:o}", "rules", rules);
    (void)state;
    for (size_t i = 0; i < POLICY_RULES_MAX / 6 + 1; i++)
        (void)json_array_append_new(rules, json_pack("{s:s}", "allow", "@github"));
    assert_int_equal(policy_parse(policy, &p, &err), -1);
    assert_string_equal(err.msg, "rules: are 1026 with what presets stand for; at most 1024 are possible");
    (void)json_array_clear(rules);
    char path[1024] = "/";
    memset(path + 1, 'a', sizeof(path) - 2);
    for (size_t i = 0; i < 40; i++)
        (void)json_array_append_new(rules, json_pack("{s:s,s:s}", "allow", "@github", "path", path));
    assert_int_equal(policy_parse(policy, &p, &err), -1);
    assert_non_null(strstr(err.msg, "is more than 196608"));
    json_decref(policy);
}

static void what_is_refused_says_where(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"[]", "must be an object"},
        {"{\"rule\":[]}", "unknown member \"rule\""},
        {"{\"a\\u001b[2Jb\\u00e9\":[]}", "unknown member \"a?[2Jb??\""},
        {"{\"default\":\"Allow\"}", "default: must be \"allow\" or \"deny\""},
        {"{\"default\":true}", "default: must be a string"},
        {"{\"default\":null}", "default: must be a string"},
        {"{\"default\":\"deny\\u0000\"}", "default: has a NUL in it"},
        {"{\"rules\":{}}", "rules: must be an array"},
        {"{\"rules\":null}", "rules: must be an array"},
        {"{\"rules\":[1]}", "rules[0]: must be an object"},
        {"{\"rules\":[{}]}", "rules[0]: needs either \"allow\" or \"deny\""},
        {"{\"rules\":[{\"allow\":\"a\",\"deny\":\"a\"}]}", "rules[0]: needs either \"allow\" or \"deny\""},
        {"{\"rules\":[{\"allow\":\"a\"},{\"allow\":\"a\",\"port\":[1]}]}", "rules[1]: unknown member \"port\""},
        {"{\"rules\":[{\"allow\":1}]}", "rules[0].allow: must be a string"},
        {"{\"rules\":[{\"allow\":\"a\",\"ech\":true}]}", "rules[0].ech: must be a string"},
        {"{\"rules\":[{\"allow\":\"a\",\"ech\":\"deny\"}]}", "rules[0].ech: must be \"allow\", or not there"},
        {"{\"rules\":[{\"deny\":\"a\",\"ech\":\"allow\"}]}", "rules[0].ech: goes with \"allow\""},
        {"{\"rules\":[{\"deny\":\"\"}]}",
         "rules[0].deny: \"\" is not a name, \"*.name\", \"*\", an address or a network"},
        {"{\"rules\":[{\"deny\":\"a.b\"},{\"allow\":\"@none\"}]}",
         "rules[1].allow: \"@none\" is not a name, \"*.name\", \"*\", an address or a network ('cove policy presets' shows those there are)"},
        {"{\"rules\":[{\"deny\":\"127.1\"}]}",
         "rules[0].deny: \"127.1\" is not a name, \"*.name\", \"*\", an address or a network"},
        {"{\"rules\":[{\"deny\":\"10.0.0.0/33\"}]}",
         "rules[0].deny: \"10.0.0.0/33\" is not a name, \"*.name\", \"*\", an address or a network"},
        {"{\"rules\":[{\"deny\":\"a.*\"}]}",
         "rules[0].deny: \"a.*\" is not a name, \"*.name\", \"*\", an address or a network"},
        {"{\"rules\":[{\"allow\":\"a:443\"}]}",
         "rules[0].allow: \"a:443\" is not a name, \"*.name\", \"*\", an address or a network (ports go into \"ports\")"},
        {"{\"rules\":[{\"allow\":\"b\\u00fccher.example\"}]}",
         "rules[0].allow: \"b??cher.example\" is not a name, \"*.name\", \"*\", an address or a network"},
        {"{\"rules\":[{\"allow\":\"denied.test\\u0000.allowed.test\"}]}", "rules[0].allow: has a NUL in it"},
        {"{\"rules\":[{\"allow\":\"a\",\"ports\":443}]}", "rules[0].ports: must be an array"},
        {"{\"rules\":[{\"allow\":\"a\",\"ports\":[]}]}",
         "rules[0].ports: is empty: leave it out to say nothing about it"},
        {"{\"rules\":[{\"allow\":\"a\",\"ports\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}]}",
         "rules[0].ports: has 17 elements; at most 16 are possible"},
        {"{\"rules\":[{\"allow\":\"a\",\"ports\":[1,0]}]}", "rules[0].ports[1]: a port is a number from 1 to 65535"},
        {"{\"rules\":[{\"allow\":\"a\",\"ports\":[65536]}]}", "rules[0].ports[0]: a port is a number from 1 to 65535"},
        {"{\"rules\":[{\"allow\":\"a\",\"ports\":[-1]}]}", "rules[0].ports[0]: a port is a number from 1 to 65535"},
        {"{\"rules\":[{\"allow\":\"a\",\"ports\":[4294967739]}]}",
         "rules[0].ports[0]: a port is a number from 1 to 65535"},
        {"{\"rules\":[{\"allow\":\"a\",\"methods\":\"GET\"}]}", "rules[0].methods: must be an array"},
        {"{\"rules\":[{\"allow\":\"a\",\"methods\":[]}]}",
         "rules[0].methods: is empty: leave it out to say nothing about it"},
        {"{\"rules\":[{\"allow\":\"a\",\"methods\":[\"GET\",7]}]}", "rules[0].methods[1]: must be a string"},
        {"{\"rules\":[{\"allow\":\"a\",\"methods\":[\"*\", \"G ET\"]}]}", "rules[0].methods[1]: is not an HTTP method"},
        {"{\"rules\":[{\"allow\":\"a\",\"methods\":[\"\"]}]}", "rules[0].methods[0]: is not an HTTP method"},
        {"{\"rules\":[{\"allow\":\"a\",\"methods\":[\"ABCDEFGHIJKLMNOPQRSTUVWXYZ1234567\"]}]}",
         "rules[0].methods[0]: is not an HTTP method"},
        {"{\"rules\":[{\"allow\":\"a\",\"path\":7}]}", "rules[0].path: must be a string"},
        {"{\"rules\":[{\"allow\":\"a\",\"path\":\"v1\"}]}",
         "rules[0].path: \"v1\" is not a path: \"/whole/path\" or \"/beginning*\", without dot segments or a query"},
        {"{\"rules\":[{\"allow\":\"a\",\"path\":\"/a/../b\"}]}",
         "rules[0].path: \"/a/../b\" is not a path: \"/whole/path\" or \"/beginning*\", without dot segments or a query"},
        {"{\"inject\":[{\"headers\":[]}]}", "inject[0].host: must be a string"},
        {"{\"inject\":[{\"host\":\"*\"}]}",
         "inject[0].host: must be a name or \"*.name\": a secret is bound to its hosts"},
        {"{\"inject\":[{\"host\":\"1.2.3.4\"}]}",
         "inject[0].host: must be a name or \"*.name\": a secret is bound to its hosts"},
        {"{\"inject\":[{\"host\":\"a\"}]}", "inject[0]: needs \"headers\" or \"placeholders\""},
        {"{\"inject\":[{\"host\":\"a\",\"header\":[]}]}", "inject[0]: unknown member \"header\""},
        {"{\"inject\":[{\"host\":\"a\",\"ports\":[\"http\"],\"headers\":[]}]}",
         "inject[0].ports[0]: must be a port (443) or a range of them (\"8000-8099\")"},
        {"{\"inject\":[{\"host\":\"a\",\"headers\":[]}]}",
         "inject[0].headers: is empty: leave it out to say nothing about it"},
        {"{\"inject\":[{\"host\":\"a\",\"headers\":[{\"name\":\"a\"}]}]}",
         "inject[0].headers[0].value: must be a string"},
        {"{\"inject\":[{\"host\":\"a\",\"headers\":[{\"name\":\"a\",\"value\":\"b\",\"c\":1}]}]}",
         "inject[0].headers[0]: unknown member \"c\""},
        {"{\"inject\":[{\"host\":\"a\",\"headers\":[{\"name\":\"x-a\",\"value\":\"1\"},{\"name\":\"X-A\",\"value\":\"2\"}]}]}",
         "inject[0].headers[1]: has the same name as headers[0]"},
        {"{\"inject\":[{\"host\":\"a\",\"placeholders\":[{\"sentinel\":\"short\",\"secret\":\"A\"}]}]}",
         "inject[0].placeholders[0]: the sentinel must be 8 to 512 visible characters without \" and \\"},
        {"{\"inject\":[{\"host\":\"a\",\"placeholders\":[{\"sentinel\":\"sentinel\",\"secret\":\"A\",\"headers\":[]}]}]}",
         "inject[0].placeholders[0].headers: is empty: leave it out to say nothing about it"},
        {"{\"inject\":[{\"host\":\"a\",\"placeholders\":[{\"sentinel\":\"sentinel\",\"secret\":\"A\",\"headers\":[\"b\",\"c d\"]}]}]}",
         "inject[0].placeholders[0].headers[1]: is not the name of a header"},
        {"{\"inject\":[{\"host\":\"a\",\"placeholders\":[{\"sentinel\":\"with blank\",\"secret\":\"A\"}]}]}",
         "inject[0].placeholders[0]: the sentinel must be 8 to 512 visible characters without \" and \\"},
        {"{\"inject\":[{\"host\":\"a\",\"placeholders\":[{\"sentinel\":\"sentinel\",\"secret\":\"1A\"}]}]}",
         "inject[0].placeholders[0]: the secret must be a name of letters, digits and _.-, at most 64"},
        {"{\"inject\":[{\"host\":\"a\",\"placeholders\":[{\"sentinel\":\"sentinel\",\"secret\":\"A\"},{\"sentinel\":\"sentinel\",\"secret\":\"B\"}]}]}",
         "inject[0].placeholders[1]: its sentinel is that of placeholders[0]"},
        {"{\"inject\":[{\"host\":\"a\",\"placeholders\":[{\"sentinel\":\"sentinel\",\"secret\":\"A\",\"value\":\"b\"}]}]}",
         "inject[0].placeholders[0]: needs \"secret\" or \"value\", and not both"},
        {"{\"inject\":[{\"host\":\"a\",\"placeholders\":[{\"sentinel\":\"sentinel\"}]}]}",
         "inject[0].placeholders[0]: needs \"secret\" or \"value\", and not both"},
        {"{\"inject\":[{\"host\":\"a\",\"placeholders\":[{\"sentinel\":\"sentinel\",\"value\":\"a$b\"}]}]}",
         "inject[0].placeholders[0]: the value may hold what that of a header may"},
        {"{\"inject\":[{\"host\":\"a\",\"placeholders\":[{\"sentinel\":\"s\",\"value\":\"b\",\"in\":[\"query\",\"trailer\"]}]}]}",
         "inject[0].placeholders[0].in[1]: is none of those that are known"},
        {"{\"inject\":[{\"host\":\"a\",\"placeholders\":[{\"sentinel\":\"s\",\"value\":\"b\",\"in\":[\"path\",\"path\"]}]}]}",
         "inject[0].placeholders[0].in[1]: is there twice"},
        {"{\"inject\":[{\"host\":\"a\",\"schemes\":[],\"headers\":[{\"name\":\"a\",\"value\":\"b\"}]}]}",
         "inject[0].schemes: is empty: leave it out to say nothing about it"},
        {"{\"inject\":[{\"host\":\"a\",\"schemes\":[\"ftp\"],\"headers\":[{\"name\":\"a\",\"value\":\"b\"}]}]}",
         "inject[0].schemes[0]: is none of those that are known"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        refused(cases[i].text, cases[i].message);
}

static void ports_are_written_one_way(void **state)
{
    static const char *const cases[] = {"\"443\"",   "\"\"",     "\"-\"",          "\"1-\"",      "\"-1\"",
                                        "\"2-1\"",   "\"0-1\"",  "\"01-2\"",       "\"1-65536\"", "\"1 - 2\"",
                                        "\"1-2-3\"", "\"+1-2\"", "\"1-2\\u0000\"", "1.5",         "true",
                                        "null",      "[1]",      "\"https\""};
    char text[128];
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        snprintf(text, sizeof(text), "{\"rules\":[{\"deny\":\"a\",\"ports\":[1,%s]}]}", cases[i]);
        refused(text, "rules[0].ports[1]: must be a port (443) or a range of them (\"8000-8099\")");
    }
}

static void fields_that_frame_a_message_are_not_set(void **state)
{
    static const char *const cases[] = {"Host",
                                        "content-length",
                                        "Transfer-Encoding",
                                        "connection",
                                        "te",
                                        "Trailer",
                                        "upgrade",
                                        "keep-alive",
                                        "expect",
                                        "proxy-authorization",
                                        "Proxy-Connection",
                                        ":authority",
                                        "a b",
                                        "",
                                        "a:",
                                        "x\\r\\ny",
                                        "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklm"};
    char text[256];
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        snprintf(text, sizeof(text), "{\"inject\":[{\"host\":\"a\",\"headers\":[{\"name\":\"%s\",\"value\":\"b\"}]}]}",
                 cases[i]);
        refused(text, "inject[0].headers[0]: the name is not that of a header that can be set");
    }
}

static void templates_are_checked(void **state)
{
    static const char *const cases[] = {"",
                                        " a",
                                        "a ",
                                        "a\\r\\nb: c",
                                        "a\\nb",
                                        "a\\u0001",
                                        "a\\u007f",
                                        "$",
                                        "a$",
                                        "$a",
                                        "$$$",
                                        "${",
                                        "${}",
                                        "${secret}",
                                        "${secret:}",
                                        "${secret:A",
                                        "${secret:1A}",
                                        "${secret:A B}",
                                        "${secret:${secret:A}}",
                                        "${sealed:}",
                                        "${sealed:a b}",
                                        "${env:HOME}",
                                        "${SECRET:A}"};
    char text[256];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        snprintf(text, sizeof(text), "{\"inject\":[{\"host\":\"a\",\"headers\":[{\"name\":\"x\",\"value\":\"%s\"}]}]}",
                 cases[i]);
        refused(
            text,
            "inject[0].headers[0]: the value may hold visible characters and blanks, ${secret:NAME}, ${sealed:...} and $$ for a $");
    }
}

static json_t *rules_of(size_t n, const char *name)
{
    json_t *object = json_object(), *rules = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(rules, json_pack("{ss}", "deny", name));
    json_object_set_new(object, "rules", rules);
    return object;
}

static void assert_refused_json(json_t *json, const char *message)
{
    struct policy *p = NULL;
    struct err err = {0};
    assert_int_equal(policy_parse(json, &p, &err), -1);
    assert_string_equal(err.msg, message);
    json_decref(json);
}

static void there_is_a_most_of_everything(void **state)
{
    json_t *json, *list, *item;
    char *text;
    (void)state;
    policy_unref(parse_json(rules_of(POLICY_RULES_MAX, "example.com")));
    assert_refused_json(rules_of(POLICY_RULES_MAX + 1, "example.com"),
                        "rules: has 1025 elements; at most 1024 are possible");

    text = mem_alloc(4096);
    memset(text, 'a', 4096);
    text[0] = '/';
    text[4095] = '\0';
    json = rules_of(46, "a");
    for (size_t i = 0; i < 46; i++)
        json_object_set_new(json_array_get(json_object_get(json, "rules"), i), "path", json_string(text));
    policy_unref(parse_json(json_incref(json)));
    json_decref(json);
    mem_free(text);

    json = json_pack("{s[]}", "inject");
    list = json_object_get(json, "inject");
    for (size_t i = 0; i < POLICY_INJECT_MAX; i++)
        json_array_append_new(list, json_pack("{sss[{ssss}]}", "host", "a", "headers", "name", "x", "value", "y"));
    policy_unref(parse_json(json_incref(json)));
    json_array_append(list, json_array_get(list, 0));
    assert_refused_json(json, "inject: has 65 elements; at most 64 are possible");

    json = json_pack("{s[{sss[]s[]}]}", "inject", "host", "a", "headers", "placeholders");
    item = json_array_get(json_object_get(json, "inject"), 0);
    for (int i = 0; i < POLICY_HEADERS_MAX; i++) {
        char name[32];
        snprintf(name, sizeof(name), "sentinel-%02d", i);
        json_array_append_new(json_object_get(item, "headers"), json_pack("{ssss}", "name", name, "value", "y"));
        json_array_append_new(json_object_get(item, "placeholders"),
                              json_pack("{ssss}", "sentinel", name, "secret", "S"));
    }
    policy_unref(parse_json(json_incref(json)));
    json_array_append_new(json_object_get(item, "placeholders"),
                          json_pack("{ssss}", "sentinel", "one-more", "secret", "S"));
    assert_refused_json(json_incref(json), "inject[0].placeholders: has 21 elements; at most 20 are possible");
    json_array_append_new(json_object_get(item, "headers"), json_pack("{ssss}", "name", "one-more", "value", "y"));
    assert_refused_json(json, "inject[0].headers: has 21 elements; at most 20 are possible");
}

static void a_policy_is_no_longer_than_its_maximum(void **state)
{
    size_t n = (POLICY_JSON_MAX - 100) / 2;
    json_t *json = json_pack("{s[{sss[{ssss}]}]}", "inject", "host", "a", "headers", "name", "x", "value", "y");
    AUTO_FREE char *text = mem_alloc(n + 1);
    (void)state;
    memset(text, 'a', n);
    text[n] = '\0';
    json_object_set_new(json, "rules", json_string(text));
    assert_refused_json(json_incref(json), "rules: must be an array");
    json_object_set_new(json, "default", json_string(text));
    {
        struct policy *p = NULL;
        struct err err = {0};
        size_t size = json_dumpb(json, NULL, 0, JSON_COMPACT);
        char message[80];
        while (size <= POLICY_JSON_MAX) {
            json_object_set_new(json, "x", json_stringn(text, POLICY_JSON_MAX - size + 1));
            size = json_dumpb(json, NULL, 0, JSON_COMPACT);
        }
        snprintf(message, sizeof(message), "a policy of %zu bytes is more than %d", size, POLICY_JSON_MAX);
        assert_int_equal(policy_parse(json, &p, &err), -1);
        assert_string_equal(err.msg, message);
    }
    json_decref(json);

    /* What is short enough as given, and too long when normalised. */
    memset(text, '"', 1000);
    text[0] = '/';
    text[1000] = '\0';
    json = rules_of(80, "a");
    for (size_t i = 0; i < 80; i++)
        json_object_set_new(json_array_get(json_object_get(json, "rules"), i), "path", json_string(text));
    assert_true(json_dumpb(json, NULL, 0, JSON_COMPACT) < POLICY_JSON_MAX);
    assert_refused_json(json, "a policy of 241708 bytes is more than 196608");
}

static void a_policy_lives_as_long_as_it_is_referred_to(void **state)
{
    struct policy *p = parse("{\"default\":\"allow\"}"), *also = policy_ref(p);
    (void)state;
    policy_unref(p);
    assert_normal(also, "{\"default\":\"allow\",\"rules\":[]}");
    policy_unref(also);
    policy_unref(NULL);
}

/* Where no request will be seen: only what is allowed whatever follows. */
static void the_worst_request_decides(void **state)
{
    static const struct {
        const char *rules;
        const char *name;
        uint16_t port;
        enum policy_verdict seen_none, worst;
        int rule; /* of the worst */
    } cases[] = {
        {"[{\"allow\":\"a.test\"}]", "a.test", 443, POLICY_ALLOW, POLICY_ALLOW, 0},
        {"[{\"allow\":\"a.test\",\"path\":\"/v1*\"}]", "a.test", 443, POLICY_NEEDS_REQUEST, POLICY_DENY,
         POLICY_RULE_DEFAULT},
        {"[{\"allow\":\"a.test\",\"methods\":[\"GET\"]},{\"allow\":\"8.8.8.0/24\",\"ports\":[22]}]", "a.test", 22,
         POLICY_NEEDS_REQUEST, POLICY_ALLOW, 1},
        {"[{\"deny\":\"a.test\",\"path\":\"/admin*\"},{\"allow\":\"*\"}]", "a.test", 443, POLICY_NEEDS_REQUEST,
         POLICY_DENY, 0},
        {"[{\"deny\":\"a.test\",\"path\":\"/admin*\"},{\"allow\":\"*\"}]", "b.test", 443, POLICY_ALLOW, POLICY_ALLOW,
         1},
        {"[{\"deny\":\"a.test\",\"path\":\"/admin*\",\"ports\":[443]},{\"allow\":\"*\"}]", "a.test", 80, POLICY_ALLOW,
         POLICY_ALLOW, 1},
        {"[{\"deny\":\"8.8.8.0/24\",\"methods\":[\"POST\"]},{\"allow\":\"*\"}]", NULL, 443, POLICY_NEEDS_REQUEST,
         POLICY_DENY, 0},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        AUTO_FREE char *text = mem_printf("{\"rules\":%s}", cases[i].rules);
        struct policy *p = parse(text);
        struct policy_query q = {.name = cases[i].name, .port = cases[i].port};
        struct policy_answer answer;
        assert_true(netaddr_parse(STR("8.8.8.8"), &q.addr));
        policy_judge(p, &q, &answer);
        assert_int_equal(answer.verdict, cases[i].seen_none);
        policy_judge_worst(p, &q, &answer);
        assert_int_equal(answer.verdict, cases[i].worst);
        assert_int_equal(answer.rule, cases[i].rule);
        q.method = "GET";
        q.path = STR("/v1/x");
        policy_judge_worst(p, &q, &answer); /* a request that is seen is the worst one */
        assert_int_equal(answer.verdict, POLICY_ALLOW);
        policy_unref(p);
    }
}

/* Of a client that hides its name. */
static void the_worst_name_decides(void **state)
{
    static const struct {
        const char *policy;
        enum policy_verdict verdict;
        int rule;
    } cases[] = {
        {"{\"default\":\"allow\"}", POLICY_ALLOW, POLICY_RULE_DEFAULT},
        {"{\"rules\":[{\"allow\":\"*\"}]}", POLICY_ALLOW, 0},
        {"{\"rules\":[{\"allow\":\"8.8.8.0/24\"}]}", POLICY_ALLOW, 0},
        {"{\"rules\":[{\"allow\":\"8.8.8.0/24\"},{\"deny\":\"a.test\"}]}", POLICY_ALLOW, 0},
        {"{\"default\":\"allow\",\"rules\":[{\"deny\":\"9.9.9.9\"},{\"deny\":\"*\",\"ports\":[25]}]}", POLICY_ALLOW,
         POLICY_RULE_DEFAULT},
        {"{\"default\":\"allow\",\"rules\":[{\"deny\":\"a.test\",\"ports\":[80]}]}", POLICY_ALLOW, POLICY_RULE_DEFAULT},
        {"{\"default\":\"allow\",\"rules\":[{\"allow\":\"a.test\",\"methods\":[\"GET\"]}]}", POLICY_ALLOW,
         POLICY_RULE_DEFAULT},
        {"{\"default\":\"allow\",\"rules\":[{\"deny\":\"a.test\"}]}", POLICY_DENY, 0},
        {"{\"default\":\"allow\",\"rules\":[{\"deny\":\"*.test\"}]}", POLICY_DENY, 0},
        {"{\"default\":\"allow\",\"rules\":[{\"allow\":\"a.test\"},{\"deny\":\"a.test\",\"methods\":[\"GET\"]}]}",
         POLICY_DENY, 1},
        {"{\"rules\":[{\"allow\":\"a.test\"},{\"allow\":\"*.test\",\"ech\":\"allow\"}]}", POLICY_DENY,
         POLICY_RULE_DEFAULT},
        {"{\"rules\":[{\"allow\":\"*\",\"path\":\"/x\"}]}", POLICY_DENY, POLICY_RULE_DEFAULT},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct policy *p = parse(cases[i].policy);
        struct policy_query q = {.port = 443};
        struct policy_answer answer;
        assert_true(netaddr_parse(STR("8.8.8.8"), &q.addr));
        policy_judge_any_name(p, &q, &answer);
        if (answer.verdict != cases[i].verdict || answer.rule != cases[i].rule)
            fail_msg("%s: %d by %d", cases[i].policy, answer.verdict, answer.rule);
        policy_unref(p);
    }
}

static void a_rule_may_let_encrypted_hellos_pass(void **state)
{
    struct policy *p = parse("{\"rules\":[{\"allow\":\"a.test\",\"ech\":\"allow\"},{\"allow\":\"b.test\"}]}");
    static const char *const names[] = {"a.test", "b.test", "c.test"};
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct policy_answer answer = {.allows_ech = i};
        policy_judge(p, &(struct policy_query){.name = names[i], .port = 443}, &answer);
        assert_int_equal(answer.allows_ech, i == 0);
    }
    policy_unref(p);
}

static void half_a_host_is_warned_of(void **state)
{
    static const struct {
        const char *policy, *warning; /* NULL: none */
    } cases[] = {
        {"{\"default\":\"allow\",\"rules\":[{\"allow\":\"a.b\"},{\"deny\":\"8.8.8.8\"}]}",
         "rules[1] denies 8.8.8.8 and no IPv6 address: a host that has both stays open by the other one; deny it by its name, too"},
        {"{\"default\":\"allow\",\"rules\":[{\"deny\":\"2001:db8::1\"},{\"deny\":\"2001:db8::2\"}]}",
         "rules[0] denies 2001:db8::1 and no IPv4 address, as others do: a host that has both stays open by the other one; "
         "deny it by its name, too"},
        {"{\"default\":\"allow\",\"rules\":[{\"deny\":\"8.8.8.8\"},{\"deny\":\"2001:db8::/32\"}]}", NULL},
        {"{\"default\":\"allow\",\"rules\":[{\"deny\":\"8.8.8.8\"},{\"deny\":\"*\"}]}", NULL},
        {"{\"default\":\"allow\",\"rules\":[{\"deny\":\"8.8.8.0/24\"},{\"allow\":\"1.1.1.1\"}]}", NULL},
        {"{\"rules\":[{\"deny\":\"8.8.8.8\"}]}", NULL},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct policy *p = parse(cases[i].policy);
        json_t *warnings = policy_warnings(p);
        const char *text = json_string_value(json_array_get(warnings, 0));
        assert_int_equal(json_array_size(warnings), cases[i].warning ? 1 : 0);
        if (cases[i].warning)
            assert_string_equal(text, cases[i].warning);
        json_decref(warnings);
        policy_unref(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policies_come_back_normalised),
        cmocka_unit_test(presets_are_their_hosts),
        cmocka_unit_test(presets_have_an_end),
        cmocka_unit_test(what_is_refused_says_where),
        cmocka_unit_test(ports_are_written_one_way),
        cmocka_unit_test(fields_that_frame_a_message_are_not_set),
        cmocka_unit_test(templates_are_checked),
        cmocka_unit_test(there_is_a_most_of_everything),
        cmocka_unit_test(a_policy_is_no_longer_than_its_maximum),
        cmocka_unit_test(a_policy_lives_as_long_as_it_is_referred_to),
        cmocka_unit_test(the_worst_request_decides),
        cmocka_unit_test(the_worst_name_decides),
        cmocka_unit_test(a_rule_may_let_encrypted_hellos_pass),
        cmocka_unit_test(half_a_host_is_warned_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
