/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/control/create_spec.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const uint64_t day_ms = 24 * 3600 * 1000;

static int read_spec(const char *text, enum create_version version, struct arena *arena, json_t **json,
                     struct sandbox_spec *spec, struct err *err)
{
    struct network_body network = {0};
    assert_int_equal(json_read_object(str_of(text), false, json, err), 0);
    int r = create_spec_read(*json, version, day_ms, arena, spec, &network, err);
    network_body_fini(&network);
    return r;
}

static void refused(const char *text, enum err_code code, const char *because)
{
    AUTO_ARENA struct arena arena = ARENA_INIT;
    AUTO_JSON json_t *json = NULL;
    struct sandbox_spec spec;
    struct err err;
    assert_int_equal(read_spec(text, CREATE_V1, &arena, &json, &spec, &err), -1);
    assert_int_equal(err.code, code);
    if (!strstr(err.msg, because))
        fail_msg("\"%s\" does not say \"%s\"", err.msg, because);
}

static void defaults_differ_by_version(void **state)
{
    AUTO_ARENA struct arena arena = ARENA_INIT;
    AUTO_JSON json_t *json = NULL, *json2 = NULL;
    struct sandbox_spec spec;
    struct err err;
    (void)state;
    assert_int_equal(read_spec("{\"templateID\":\"base\"}", CREATE_V1, &arena, &json, &spec, &err), 0);
    assert_true(str_eqc(spec.template_ref, "base"));
    assert_int_equal(spec.timeout_ms, 15000);
    assert_true(spec.secure);
    assert_true(spec.allow_internet);
    assert_int_equal(spec.n_metadata, 0);

    assert_int_equal(read_spec("{\"templateID\":\"base\",\"secure\":false}", CREATE_V2, &arena, &json2, &spec, &err),
                     0);
    assert_int_equal(spec.timeout_ms, 300000);
    assert_true(spec.secure);
}

static void only_who_asks_gets_an_open_one(void **state)
{
    static const struct {
        const char *body;
        enum create_version version;
        bool secure;
    } each[] = {
        {"{\"templateID\":\"base\",\"secure\":false}", CREATE_V1, false},
        {"{\"templateID\":\"base\",\"secure\":null}", CREATE_V1, true},
        {"{\"templateID\":\"base\"}", CREATE_V1_TOKENLESS, false},
        {"{\"templateID\":\"base\",\"secure\":true}", CREATE_V1_TOKENLESS, true},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(each); i++) {
        AUTO_ARENA struct arena arena = ARENA_INIT;
        AUTO_JSON json_t *json = NULL;
        struct sandbox_spec spec;
        struct err err;
        assert_int_equal(read_spec(each[i].body, each[i].version, &arena, &json, &spec, &err), 0);
        assert_int_equal(spec.secure, each[i].secure);
    }
}

static void a_misspelt_network_is_refused(void **state)
{
    static const char *const bad[] = {
        "\"allowInternetAccess\":false",
        "\"allow_internet\":false",
        "\"Network\":{}",
        "\"networks\":{}",
        "\"egress\":{}",
        "\"net\":\"none\"",
        "\"allowPublicTraffic\":false",
        "\"denyOut\":[]",
        "\"network\":{\"denyout\":[]}",
        "\"network\":{\"deny\":[\"*\"]}",
        "\"network\":{\"rules\":{\"a.test\":[{\"transforms\":{}}]}}",
        "\"network\":{\"allow_internet_access\":false}",
        "\"network\":null",
        "\"allow_internet_access\":null",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        AUTO_BUF struct buf text = BUF_INIT(1024);
        buf_printf(&text, "{\"templateID\":\"base\",%s}%c", bad[i], 0);
        refused(buf_data(&text), ERR_INVALID_ARGUMENT, "");
    }
}

static void what_the_sdks_send_is_understood(void **state)
{
    AUTO_ARENA struct arena arena = ARENA_INIT;
    AUTO_JSON json_t *json = NULL;
    struct sandbox_spec spec;
    struct err err;
    (void)state;
    assert_int_equal(read_spec("{\"templateID\":\"Base:default\",\"timeout\":60,\"secure\":true,\"autoPause\":false,"
                               "\"allow_internet_access\":false,\"metadata\":{\"k\":\"v\",\"a\":\"\"},"
                               "\"envVars\":{\"FOO\":\"bar\"},\"mcp\":null,\"network\":{\"allowPublicTraffic\":true,"
                               "\"allowOut\":[],\"rules\":{},\"egressProxy\":null},\"volumeMounts\":[],\"iam\":{},"
                               "\"autoResume\":{\"enabled\":false},\"unknown\":7}",
                               CREATE_V1, &arena, &json, &spec, &err),
                     0);
    assert_true(str_eqc(spec.template_ref, "base"));
    assert_int_equal(spec.timeout_ms, 60000);
    assert_true(spec.secure);
    assert_false(spec.allow_internet);
    assert_int_equal(spec.n_metadata, 2);
    assert_true(str_eqc(spec.metadata[0].key, "k") && str_eqc(spec.metadata[0].value, "v"));
    assert_int_equal(spec.n_envs, 1);
    assert_true(str_eqc(spec.envs[0].value, "bar"));
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    refused("{}", ERR_INVALID_ARGUMENT, "\"templateID\" is missing");
    refused("{\"templateID\":7}", ERR_INVALID_ARGUMENT, "\"templateID\" must be a string");
    refused("{\"templateID\":\"\"}", ERR_INVALID_ARGUMENT, "invalid template ID");
    refused("{\"templateID\":\"../x\"}", ERR_INVALID_ARGUMENT, "invalid");
    refused("{\"templateID\":\"a/b/c\"}", ERR_INVALID_ARGUMENT, "invalid template ID");
    refused("{\"templateID\":\"a:b c\"}", ERR_INVALID_ARGUMENT, "invalid tag");
    refused("{\"templateID\":\"base\",\"timeout\":0}", ERR_INVALID_ARGUMENT, "Timeout must be greater than 0");
    refused("{\"templateID\":\"base\",\"timeout\":-1}", ERR_INVALID_ARGUMENT, "\"timeout\"");
    refused("{\"templateID\":\"base\",\"timeout\":1.5}", ERR_INVALID_ARGUMENT, "integer");
    refused("{\"templateID\":\"base\",\"timeout\":86401}", ERR_INVALID_ARGUMENT,
            "Timeout cannot be greater than 24 hours");
    refused("{\"templateID\":\"base\",\"metadata\":{\"a\":1}}", ERR_INVALID_ARGUMENT, "\"metadata\"");
    refused("{\"templateID\":\"base\",\"envVars\":[]}", ERR_INVALID_ARGUMENT, "\"envVars\"");
    refused("{\"templateID\":\"base\",\"autoPauseMemory\":false}", ERR_INVALID_ARGUMENT, "autoPauseMemory");
    refused("{\"templateID\":\"base\",\"secure\":false,\"network\":{\"allowPublicTraffic\":false}}",
            ERR_INVALID_ARGUMENT, "secure");
}

static void what_can_not_be_done_yet_is_not_promised(void **state)
{
    (void)state;
    refused("{\"templateID\":\"base\",\"network\":{\"httpsPorts\":[8443]}}", ERR_UNIMPLEMENTED, "TLS");
    refused("{\"templateID\":\"base\",\"network\":{\"egressProxy\":{\"address\":\"a:1\"}}}", ERR_UNIMPLEMENTED,
            "proxies");
    refused("{\"templateID\":\"base\",\"network\":{\"rules\":{\"a.b\":[{\"transform\":{\"headers\":"
            "{\"x\":\"${e2b.identity.tokens.T}\"}}}]}}}",
            ERR_UNIMPLEMENTED, "identities");
    refused("{\"templateID\":\"base\",\"iam\":{\"tokens\":{\"t\":{}}}}", ERR_UNIMPLEMENTED, "identities");
}

#define MOUNTS(mounts) "{\"templateID\":\"base\",\"volumeMounts\":[" mounts "]}"
#define MOUNT(name, path) "{\"name\":\"" name "\",\"path\":\"" path "\"}"

static void lifecycle_and_volumes_are_understood(void **state)
{
    AUTO_ARENA struct arena arena = ARENA_INIT;
    AUTO_JSON json_t *json = NULL, *json2 = NULL;
    struct sandbox_spec spec;
    struct err err;
    (void)state;
    assert_int_equal(read_spec("{\"templateID\":\"base\",\"autoPause\":true,\"autoPauseMemory\":false}", CREATE_V2,
                               &arena, &json, &spec, &err),
                     0);
    assert_true(spec.pause_on_timeout && spec.pause_files_only && !spec.auto_resume);
    refused("{\"templateID\":\"base\",\"autoPause\":true,\"autoPauseMemory\":false,\"autoResume\":{\"enabled\":true}}",
            ERR_INVALID_ARGUMENT, "autoResume");
    assert_int_equal(
        read_spec(MOUNTS(MOUNT("v", "/mnt/v") "," MOUNT("w", "/w")), CREATE_V2, &arena, &json2, &spec, &err), 0);
    assert_int_equal(spec.n_mounts, 2);
    assert_true(str_eqc(spec.mounts[1].name, "w") && str_eqc(spec.mounts[0].path, "/mnt/v"));
    refused(MOUNTS("1"), ERR_INVALID_ARGUMENT, "objects");
    refused(MOUNTS("{\"name\":\"v\"}"), ERR_INVALID_ARGUMENT, "path");
    refused(MOUNTS(MOUNT("v", "v")), ERR_INVALID_ARGUMENT, "absolute");
    refused(MOUNTS(MOUNT("v", "/")), ERR_INVALID_ARGUMENT, "absolute");
    refused(MOUNTS(MOUNT("v", "/a/../b")), ERR_INVALID_ARGUMENT, "absolute");
    refused(MOUNTS(MOUNT("v", "/a/")), ERR_INVALID_ARGUMENT, "absolute");
    refused(MOUNTS(MOUNT("v", "/a") "," MOUNT("w", "/a")), ERR_INVALID_ARGUMENT, "twice");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_differ_by_version),
        cmocka_unit_test(only_who_asks_gets_an_open_one),
        cmocka_unit_test(a_misspelt_network_is_refused),
        cmocka_unit_test(what_the_sdks_send_is_understood),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(what_can_not_be_done_yet_is_not_promised),
        cmocka_unit_test(lifecycle_and_volumes_are_understood),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
