/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/mem.h"
#include "cli/net_flags.h"
#include "cli/service.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

static void rule(const char *text, const char *json)
{
    AUTO_JSON json_t *got = net_flags_rule("allow", str_of(text));
    AUTO_FREE char *shown = got ? json_dumps(got, JSON_COMPACT) : NULL;
    assert_string_equal(shown ? shown : "", json);
}

static void targets_have_ports_or_not(void **state)
{
    (void)state;
    rule("example.com", "{\"allow\":\"example.com\"}");
    rule("*.example.com:443", "{\"allow\":\"*.example.com\",\"ports\":[443]}");
    rule("10.0.0.0/8:80,8000-8099", "{\"allow\":\"10.0.0.0/8\",\"ports\":[80,\"8000-8099\"]}");
    rule("2001:db8::/32", "{\"allow\":\"2001:db8::/32\"}");
    rule("[2001:db8::1]:22", "{\"allow\":\"2001:db8::1\",\"ports\":[22]}");
    rule("[2001:db8::1]", "{\"allow\":\"2001:db8::1\"}");
    rule("", "");
    rule(":80", "");
    rule("a:", "");
    rule("a:80,", "");
    rule("[::1", "");
    rule("[::1]80", "");
    rule("\xff", "");
}

static void written(const char *json, const char *flag)
{
    AUTO_JSON json_t *one = json_loads(json, 0, NULL);
    AUTO_BUF struct buf b = BUF_INIT(4096);
    assert_non_null(one);
    assert_int_equal(net_flags_write(&b, one), *flag != '\0');
    buf_append_char(&b, '\0');
    assert_string_equal(buf_data(&b), flag);
}

static void rules_are_written_as_flags(void **state)
{
    (void)state;
    written("{\"allow\":\"a.test\"}", "--allow a.test");
    written("{\"allow\":\"a.test\",\"ports\":[443]}", "--allow a.test:443");
    written("{\"deny\":\"10.0.0.0/8\",\"ports\":[80,\"8000-8099\"]}", "--deny 10.0.0.0/8:80,8000-8099");
    written("{\"allow\":\"*.a.test\",\"ports\":[1]}", "--allow '*.a.test:1'");
    written("{\"allow\":\"2001:db8::1\",\"ports\":[22]}", "--allow '[2001:db8::1]:22'");
    written("{\"allow\":\"2001:db8::/32\"}", "--allow 2001:db8::/32");
    /* What flags can't say, and what a shell would take for more than it is. */
    written("{\"allow\":\"a.test\",\"methods\":[\"GET\"]}", "");
    written("{\"allow\":\"a.test\",\"ports\":[443],\"path\":\"/x\"}", "");
    written("{\"allow\":\"a.test\",\"ports\":[null]}", "");
    written("{\"allow\":\"$(id).test\"}", "");
    written("{\"allow\":\"a'b\"}", "");
    written("{\"allow\":\"a\\nb\"}", "");
    written("{\"ports\":[1]}", "");
    written("[]", "");
    AUTO_BUF struct buf b = BUF_INIT(4096);
    net_flags_suggest(&b, "{\"allow\":\"a.test\",\"ports\":[443]}");
    net_flags_suggest(&b, " nothing");
    buf_append_char(&b, '\0');
    assert_string_equal(buf_data(&b), "--allow a.test:443 would allow itwould be allowed by the rule  nothing");
}

struct given {
    const char *flag, *value;
};

/* The policy as text; the caller frees it. *ret_env gets the variables. NULL: refused, and err says why. */
static char *policy_of(const struct given *given, json_t **ret_env, struct err *err)
{
    struct context ctx = {0};
    struct net_flags f = {0};
    AUTO_JSON json_t *policy = NULL;
    int r = 0;
    for (; given->flag && r == 0; given++)
        r = net_flags_take(&ctx, &f, given->flag, given->value);
    if (r == 0)
        r = net_flags_policy(&ctx, &f, ret_env, &policy);
    net_flags_fini(&f);
    *err = ctx.err;
    return r < 0 ? NULL : policy ? json_dumps(policy, JSON_COMPACT) : mem_strdup("none");
}

static void is(const struct given *given, const char *want)
{
    AUTO_JSON json_t *env = NULL;
    struct err err;
    AUTO_FREE char *got = policy_of(given, &env, &err);
    if (!got)
        fail_msg("%s", err.msg);
    assert_string_equal(got, want);
    assert_null(env);
}

static void refused(const struct given *given, const char *because)
{
    AUTO_JSON json_t *env = NULL;
    struct err err;
    AUTO_FREE char *got = policy_of(given, &env, &err);
    assert_null(got);
    if (!strstr(err.msg, because))
        fail_msg("\"%s\" does not say \"%s\"", err.msg, because);
}

#define GIVEN(...) ((const struct given[]){__VA_ARGS__, {NULL, NULL}})

static void flags_make_a_policy(void **state)
{
    (void)state;
    is((const struct given[]){{NULL, NULL}}, "none");
    is(GIVEN({"net", "deny"}), "{\"rules\":[],\"default\":\"deny\"}");
    is(GIVEN({"allow", "a.b"}, {"deny", "*"}),
       "{\"rules\":[{\"allow\":\"a.b\"},{\"deny\":\"*\"}],\"default\":\"deny\"}");
    is(GIVEN({"deny", "a.b"}), "{\"rules\":[{\"deny\":\"a.b\"}],\"default\":\"allow\"}");
    refused(GIVEN({"net", "maybe"}), "allow or deny");
    refused(GIVEN({"allow", "a:"}), "--allow");
    refused(GIVEN({"policy", "/no/such/file"}), "--policy");
    /* What the service would not take: a name that is none, a port beyond all, a host that is an address. */
    refused(GIVEN({"allow", "a b"}), "--allow a b: \"a b\" is not a name");
    refused(GIVEN({"net", "deny"}, {"allow", "a.b"}, {"deny", "a.b:99999"}), "--deny a.b:99999: must be a port");
    refused(GIVEN({"secret", "KEY=10.0.0.0/8"}), "inject[0]");
    refused(GIVEN({"allow", "https://a.b/c"}), "--allow https://a.b/c: that is a URL");
    refused(GIVEN({"deny", "ftp://a.b"}), "--deny ftp://a.b: that is a URL");
    refused(GIVEN({"secret", "KEY=https://a.b"}), "the host alone");
}

static void hint_of(const char *flag, const char *value, const char *hint)
{
    struct context ctx = {0};
    struct net_flags f = {0};
    assert_int_equal(net_flags_take(&ctx, &f, flag, value), -1);
    assert_memory_equal(ctx.hint, hint, strlen(hint));
}

static void of_a_url_the_host_is_named(void **state)
{
    (void)state;
    hint_of("allow", "https://a.b/c?d", "write --allow a.b:443;");
    hint_of("allow", "http://me:pass@a.b", "write --allow a.b:80;");
    hint_of("deny", "https://a.b:8443/", "write --deny a.b:8443;");
    hint_of("deny", "https://[::1]/", "write --deny [::1]:443;");
    hint_of("allow", "ssh://a.b", "write --allow a.b;");
    hint_of("allow", "://", "");
}

static void a_file_comes_after_the_flags(void **state)
{
    char path[] = "/tmp/cove-net-flags-XXXXXX";
    AUTO_CLOSE int fd = mkstemp(path);
    static const char text[] = "default: allow\nrules:\n  - deny: x.y\n";
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
    is(GIVEN({"policy", path}, {"allow", "a.b"}),
       "{\"default\":\"allow\",\"rules\":[{\"allow\":\"a.b\"},{\"deny\":\"x.y\"}]}");
    is(GIVEN({"policy", path}, {"net", "deny"}), "{\"default\":\"deny\",\"rules\":[{\"deny\":\"x.y\"}]}");
    assert_int_equal(unlink(path), 0);
}

static void secrets_are_stood_in_for(void **state)
{
    AUTO_JSON json_t *env = NULL, *env2 = NULL;
    struct err err;
    (void)state;
    AUTO_FREE char *got = policy_of(GIVEN({"secret", "my.key-1=api.b"}, {"net", "deny"}), &env, &err);
    const char *stand_in = json_string_value(json_object_get(env, "my_key_1"));
    assert_non_null(stand_in);
    AUTO_FREE char *want =
        mem_printf("{\"rules\":[{\"allow\":\"api.b\",\"ports\":[443]}],\"inject\":[{\"host\":\"api.b\","
                   "\"placeholders\":[{\"sentinel\":\"%s\",\"secret\":\"my.key-1\"}]}],\"default\":\"deny\"}",
                   stand_in);
    assert_string_equal(got, want);
    AUTO_FREE char *of_all =
        policy_of(GIVEN({"allow", "api.b:443"}, {"allow", "10.0.0.1"}, {"secret", "KEY"}), &env2, &err);
    assert_non_null(of_all);
    assert_non_null(strstr(of_all, "\"inject\":[{\"host\":\"api.b\""));
    assert_null(strstr(of_all, "\"host\":\"10.0.0.1\""));
    refused(GIVEN({"secret", "KEY"}), "for which host");
    refused(GIVEN({"secret", "=a"}), "NAME=HOST");
    refused(GIVEN({"secret", "a="}), "NAME=HOST");
    refused(GIVEN({"secret", "A.B=x.y"}, {"secret", "A-B=x.y"}), "A_B");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_have_ports_or_not),    cmocka_unit_test(rules_are_written_as_flags),
        cmocka_unit_test(flags_make_a_policy),          cmocka_unit_test(of_a_url_the_host_is_named),
        cmocka_unit_test(a_file_comes_after_the_flags), cmocka_unit_test(secrets_are_stood_in_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
