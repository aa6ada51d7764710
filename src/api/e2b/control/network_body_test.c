/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/control/network_body.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static int read_body(const char *text, bool internet, const json_t *kept, struct network_body *body, struct err *err)
{
    json_t *json = json_loads(text, 0, NULL);
    int r;
    assert_non_null(json);
    r = network_body_read(json, internet, kept, body, err);
    if (r == 0 && body->spec.policy && network_check_policy(body->spec.policy, err) < 0) { /* as its creation does */
        network_body_fini(body);
        r = -1;
    }
    json_decref(json);
    return r;
}

static void becomes(const char *text, bool internet, const char *policy, const char *fields)
{
    struct network_body body = {0};
    struct err err;
    if (read_body(text, internet, NULL, &body, &err) < 0)
        fail_msg("%s: %s", text, err.msg);
    AUTO_FREE char *got_policy = body.spec.policy ? json_dumps(body.spec.policy, JSON_COMPACT) : NULL;
    AUTO_FREE char *got_fields = body.spec.fields ? json_dumps(body.spec.fields, JSON_COMPACT) : NULL;
    assert_string_equal(got_policy ? got_policy : "", policy);
    assert_string_equal(got_fields ? got_fields : "", fields);
    network_body_fini(&body);
}

static void refused(const char *text, enum err_code code, const char *because)
{
    struct network_body body = {0};
    struct err err;
    assert_int_equal(read_body(text, true, NULL, &body, &err), -1);
    assert_int_equal(err.code, code);
    if (!strstr(err.msg, because))
        fail_msg("\"%s\" does not say \"%s\"", err.msg, because);
}

static void what_asks_for_nothing_has_no_rules(void **state)
{
    (void)state;
    becomes("{}", true, "", "");
    becomes("{\"allowOut\":[],\"denyOut\":[],\"rules\":{},\"egressProxy\":null,\"httpsPorts\":[]}", true, "", "");
    becomes("{\"allowPublicTraffic\":true}", true, "", "{\"allowPublicTraffic\":true}");
    becomes("{\"rules\":{\"a.b\":[]}}", true, "", "");
}

static void allowing_comes_first(void **state)
{
    (void)state;
    becomes("{\"denyOut\":[\"0.0.0.0/0\"],\"allowOut\":[\"1.1.1.1\",\"10.0.0.0/8\",\"*.example.com\"]}", true,
            "{\"default\":\"allow\",\"rules\":[{\"allow\":\"1.1.1.1\"},{\"allow\":\"10.0.0.0/8\"},"
            "{\"allow\":\"*.example.com\"},{\"deny\":\"*\"}]}",
            "{\"allowOut\":[\"1.1.1.1\",\"10.0.0.0/8\",\"*.example.com\"],\"denyOut\":[\"0.0.0.0/0\"]}");
    becomes("{\"allowOut\":[\"example.com\"]}", false, "{\"default\":\"deny\",\"rules\":[{\"allow\":\"example.com\"}]}",
            "{\"allowOut\":[\"example.com\"]}");
}

static void names_can_be_denied_anywhere(void **state)
{
    (void)state;
    becomes(
        "{\"denyOut\":[\"8.8.8.8\",\"dns.google\",\"*.example.com\"]}", true,
        "{\"default\":\"allow\",\"rules\":[{\"deny\":\"8.8.8.8\"},{\"deny\":\"dns.google\"},{\"deny\":\"*.example.com\"}]}",
        "{\"denyOut\":[\"8.8.8.8\",\"dns.google\",\"*.example.com\"]}");
    refused("{\"denyOut\":[\"*\"]}", ERR_INVALID_ARGUMENT, "denyOut has something");
    refused("{\"allowOut\":[\"example.com\"],\"denyOut\":[\"a.example.com\"]}", ERR_INVALID_ARGUMENT, "0.0.0.0/0");
}

static void headers_are_injected_and_not_shown(void **state)
{
    (void)state;
    becomes(
        "{\"rules\":{\"api.example.com\":[{\"transform\":{\"headers\":{\"X-Key\":\"a$b\","
        "\"Authorization\":\"Bearer ${e2b.secrets.TOKEN}\"}}}]}}",
        true,
        "{\"default\":\"allow\",\"rules\":[],\"inject\":[{\"host\":\"api.example.com\",\"headers\":["
        "{\"name\":\"X-Key\",\"value\":\"a$$b\"},"
        "{\"name\":\"Authorization\",\"value\":\"Bearer ${secret:TOKEN}\"}]}]}",
        "{\"rules\":{\"api.example.com\":[{\"transform\":{\"headers\":{\"X-Key\":\"***\",\"Authorization\":\"***\"}}}]"
        "}}");
}

static void what_is_wrong_is_named(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    (void)state;
    refused("{\"allowOut\":[\"exa mple\"]}", ERR_INVALID_ARGUMENT, "allowOut");
    refused("{\"allowOut\":[7]}", ERR_INVALID_ARGUMENT, "allowOut");
    refused("{\"allowOut\":[\"*\"]}", ERR_INVALID_ARGUMENT, "allowOut");
    refused("{\"allowOut\":\"1.1.1.1\"}", ERR_INVALID_ARGUMENT, "\"allowOut\"");
    refused("{\"denyOut\":[\"example com\"]}", ERR_INVALID_ARGUMENT, "denyOut");
    refused("{\"allowOut\":[\"example.com\"]}", ERR_INVALID_ARGUMENT, "0.0.0.0/0");
    refused("{\"allowOut\":[\"example.com\"],\"denyOut\":[\"1.0.0.0/8\"]}", ERR_INVALID_ARGUMENT, "0.0.0.0/0");
    refused("{\"rules\":{\"1.2.3.4\":[]}}", ERR_INVALID_ARGUMENT, "rules");
    refused("{\"rules\":{\"a.b\":[{},{}]}}", ERR_INVALID_ARGUMENT, "one transform");
    refused("{\"rules\":{\"a.b\":{}}}", ERR_INVALID_ARGUMENT, "one transform");
    refused("{\"rules\":{\"a.b\":[{\"transform\":7}]}}", ERR_INVALID_ARGUMENT, "transform");
    refused("{\"rules\":{\"a.b\":[{\"transform\":{\"headers\":{\"x\":7}}}]}}", ERR_INVALID_ARGUMENT, "\"x\"");
    refused("{\"rules\":{\"a.b\":[{\"transform\":{\"headers\":{\"x\":\"\"}}}]}}", ERR_INVALID_ARGUMENT, "\"x\"");
    refused("{\"rules\":{\"a.b\":[{\"transform\":{\"headers\":{\"host\":\"y\"}}}]}}", ERR_INVALID_ARGUMENT, "header");
    refused("{\"rules\":{\"a.b\":[{\"transform\":{\"headers\":{\"x\":\"a\\r\\nb\"}}}]}}", ERR_INVALID_ARGUMENT,
            "inject[0]");
    refused("{\"maskRequestHost\":\"a b\"}", ERR_INVALID_ARGUMENT, "maskRequestHost");
    refused("{\"maskRequestHost\":\"a:${PORT}x\"}", ERR_INVALID_ARGUMENT, "maskRequestHost");
    refused("{\"denyOut\":null}", ERR_INVALID_ARGUMENT, "\"denyOut\" can't be null");
    refused("{\"deny_out\":null}", ERR_INVALID_ARGUMENT, "\"deny_out\" can't be null");
    refused("{\"allowPublicTraffic\":null}", ERR_INVALID_ARGUMENT, "null");
    refused("{\"denyOut\":[],\"deny_out\":[\"0.0.0.0/0\"]}", ERR_INVALID_ARGUMENT, "twice");
    refused("{\"httpsPorts\":[443]}", ERR_UNIMPLEMENTED, "TLS");
    refused("{\"egressProxy\":{}, \"egressProxy\":{\"address\":\"a\"}}", ERR_UNIMPLEMENTED, "proxies");

    (void)buf_append_cstr(&b, "{\"rules\":{\"a.b\":[{\"transform\":{\"headers\":{\"x\":\"");
    for (int i = 0; i < 2049; i++)
        (void)buf_append_char(&b, 'y');
    (void)buf_printf(&b, "\"}}}]}}%c", 0);
    refused(buf_data(&b), ERR_INVALID_ARGUMENT, "2048");
    buf_clear(&b);
    (void)buf_append_cstr(&b, "{\"rules\":{\"a.b\":[{\"transform\":{\"headers\":{");
    for (int i = 0; i < 21; i++)
        (void)buf_printf(&b, "%s\"x%d\":\"y\"", i ? "," : "", i);
    (void)buf_printf(&b, "}}}]}}%c", 0);
    refused(buf_data(&b), ERR_INVALID_ARGUMENT, "20 headers");
    buf_clear(&b);
    (void)buf_append_cstr(&b, "{\"rules\":{");
    for (int i = 0; i < 11; i++)
        (void)buf_printf(&b, "%s\"a%d.b\":[]", i ? "," : "", i);
    (void)buf_printf(&b, "}}%c", 0);
    refused(buf_data(&b), ERR_INVALID_ARGUMENT, "10 hosts");
}

static void a_mask_names_the_port(void **state)
{
    struct network_body body = {0}, later = {0};
    AUTO_BUF struct buf b = BUF_INIT(256);
    struct err err;
    (void)state;
    assert_int_equal(
        read_body("{\"maskRequestHost\":\"localhost:${PORT}\",\"allowPublicTraffic\":false}", true, NULL, &body, &err),
        0);
    assert_true(body.private_traffic);
    assert_true(network_mask_host(body.spec.fields, 3000, &b));
    assert_true(str_eqc(buf_str(&b), "localhost:3000"));
    assert_false(network_mask_host(NULL, 3000, &b));

    /* Kept by a later request, which says nothing of it or should not. */
    assert_int_equal(read_body("{\"maskRequestHost\":\"other\"}", true, body.spec.fields, &later, &err), 0);
    assert_string_equal(json_string_value(json_object_get(later.spec.fields, "maskRequestHost")), "localhost:${PORT}");
    assert_true(json_is_false(json_object_get(later.spec.fields, "allowPublicTraffic")));
    network_body_fini(&later);
    network_body_fini(&body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_asks_for_nothing_has_no_rules),
        cmocka_unit_test(allowing_comes_first),
        cmocka_unit_test(names_can_be_denied_anywhere),
        cmocka_unit_test(headers_are_injected_and_not_shown),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(a_mask_names_the_port),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
