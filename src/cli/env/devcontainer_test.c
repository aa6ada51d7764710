/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/env/devcontainer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static json_t *parse(const char *text)
{
    json_t *o = NULL;
    struct err err = {0};
    int r = devcontainer_parse(str_of(text), "/top", &o, &err);
    if (r < 0)
        print_message("%s\n", err.msg);
    return o;
}

static void refused(const char *text, enum err_code code, const char *said)
{
    json_t *o = NULL;
    struct err err = {0};
    assert_int_equal(devcontainer_parse(str_of(text), "/top", &o, &err), -1);
    assert_int_equal(err.code, code);
    assert_non_null(strstr(err.msg, said));
}

static void says(const json_t *o, const char *expected)
{
    AUTO_FREE char *text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, expected);
}

static void test_what_is_taken(void **state)
{
    (void)state;
    AUTO_JSON json_t *image =
        parse("// a\n{\"image\": \"debian:12\", /* b, */ \"name\": \"x\", \"forwardPorts\": [3000,],\n"
              "\"containerEnv\": {\"A\": \"${containerWorkspaceFolder}//b\"}, \"remoteUser\": \"dev\","
              "\"postCreateCommand\": {\"a\": \"make /* x */\", \"b\": [\"echo\", \"it's\"]}, /**/}");
    says(
        image,
        "{\"env\":{\"A\":\"/top//b\"},\"image\":\"debian:12\",\"ports\":[3000],\"setup\":[\"make /* x */\",\"'echo' 'it'\\\\''s'\"],"
        "\"user\":\"dev\"}");
    AUTO_JSON json_t *sorted =
        parse("{\"containerUser\":\"c\",\"image\":\"x\",\"postCreateCommand\":\"2\",\"updateContentCommand\":\"1\","
              "\"remoteEnv\":{\"N\":\"/w/${containerWorkspaceFolderBasename}\"}}");
    says(sorted, "{\"env\":{\"N\":\"/w/top\"},\"image\":\"x\",\"ports\":[],\"setup\":[\"1\",\"2\"],\"user\":\"c\"}");
    AUTO_JSON json_t *build = parse("{\"build\":{\"context\":\"..\",\"args\":{\"V\":\"1\"}},\"features\":{}}");
    says(
        build,
        "{\"build\":{\"args\":{\"V\":\"1\"},\"context\":\"..\",\"dockerfile\":\"Dockerfile\"},\"env\":{},\"ports\":[],\"setup\":[]}");
}

static void test_what_is_refused_is_named(void **state)
{
    (void)state;
    refused("{\"image\":\"x\",\"features\":{\"ghcr.io/a/go:1\":{}}}", ERR_UNIMPLEMENTED, "ghcr.io/a/go:1");
    refused("{\"image\":\"x\",\"runArgs\":[\"--privileged\"]}", ERR_UNIMPLEMENTED, "runArgs");
    refused("{\"image\":\"x\",\"initializeCommand\":\"touch /tmp/x\"}", ERR_UNIMPLEMENTED, "initializeCommand");
    refused("{\"image\":\"x\",\"mounts\":[]}", ERR_UNIMPLEMENTED, "mounts");
    refused("{\"build\":{\"target\":\"dev\"}}", ERR_UNIMPLEMENTED, "build.target");
    refused("{\"image\":\"x\",\"containerEnv\":{\"KEY\":\"${localEnv:KEY}\"}}", ERR_INVALID_ARGUMENT, "KEY");
    refused("{\"image\":\"x\",\"forwardPorts\":[\"db:5432\"]}", ERR_INVALID_ARGUMENT, "forwardPorts");
    refused("{\"image\":\"x\",\"postCreateCommand\":{\"a\":{}}}", ERR_INVALID_ARGUMENT, "postCreateCommand");
    refused("{}", ERR_INVALID_ARGUMENT, "image");
    refused("{\"image\":\"\"}", ERR_INVALID_ARGUMENT, "image: not a text");
    refused("{\"image\":\"x\",\"image\":\"y\"}", ERR_INVALID_ARGUMENT, "duplicate");
    refused("/*", ERR_INVALID_ARGUMENT, "line");
    refused("\"\\", ERR_INVALID_ARGUMENT, "line");
    refused("", ERR_INVALID_ARGUMENT, "no object");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_taken),
        cmocka_unit_test(test_what_is_refused_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
