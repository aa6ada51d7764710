/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "build/context.h"
#include "build/spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void expanded(void **state)
{
    static const struct {
        const char *value, *want;
    } all[] = {
        {"plain", "plain"},
        {"$A-${A}", "1-1"},
        {"$MISSING.", "."},
        {"\\$A", "$A"},
        {"$", "$"},
        {"${A", "${A"},
        {"$9", "$9"},
        {"$(id)", "$(id)"},
        {"a\\b", "a\\b"},
        {"$Ax$A", "1"},
        {"/x:$PATH", "/x:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
    };
    struct build_context c = {.n_envs = 0};
    struct err err;
    (void)state;
    assert_int_equal(build_context_set(&c, STR("A"), STR("1"), &err), 0);
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        assert_int_equal(build_context_set_expanded(&c, STR("V"), str_of(all[i].value), &err), 0);
        assert_string_equal(build_context_get(&c, STR("V")), all[i].want);
    }
    /* Doubling ends at a limit, not in memory. */
    assert_int_equal(build_context_set(&c, STR("B"), STR("xxxxxxxxxxxxxxxx"), &err), 0);
    int r = 0;
    for (int i = 0; i < 40 && r == 0; i++)
        r = build_context_set_expanded(&c, STR("B"), STR("$B$B"), &err);
    assert_int_equal(r, -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    build_context_fini(&c);
}

static void formats(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), again = BUF_INIT(1 << 20);
    static const char *const lines[] = {"A=b=c", "EMPTY=", "NOTHING", "=x", "Q=\"quoted\"\n"};
    struct build_context c = {.n_envs = 0}, d = {.n_envs = 0};
    struct err err;
    (void)state;
    assert_int_equal(build_context_set_lines(&c, lines, ARRAY_SIZE(lines), &err), 0);
    assert_int_equal(c.n_envs, 3);
    build_context_set_user(&c, "me");
    build_context_set_workdir(&c, "/app");
    build_context_format(&c, &b);
    buf_append_char(&b, '\0');
    assert_int_equal(build_context_parse(&d, buf_data(&b)), 0);
    build_context_format(&d, &again);
    buf_append_char(&again, '\0');
    assert_string_equal(buf_data(&b), buf_data(&again));
    assert_int_equal(build_context_parse(&d, "[]"), -EINVAL);
    assert_int_equal(build_context_parse(&d, "{\"envs\":[[1]]}"), -EINVAL);
    for (int i = 0; i < BUILD_ENVS_MAX + 1; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "N%d", i);
        if (build_context_set(&c, str_of(name), STR(""), &err) < 0)
            break;
    }
    assert_int_equal(c.n_envs, BUILD_ENVS_MAX);
    AUTO_FREE char *large = mem_zalloc(BUILD_ENVS_BYTES / 8 + 1);
    memset(large, 'x', BUILD_ENVS_BYTES / 8);
    for (int i = 0; i < 8; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "N%d", i);
        assert_int_equal(build_context_set(&c, str_of(name), str_of(large), &err), i < 7 ? 0 : -1);
        assert_int_equal(build_context_set(&c, STR("N0"), str_of(large), &err), 0); /* which it has already */
    }
    build_context_fini(&c);
    build_context_fini(&d);
}

static void keys(void **state)
{
    char a[BUILD_KEY_LEN + 1] = "", b[BUILD_KEY_LEN + 1] = "", c[BUILD_KEY_LEN + 1] = "";
    (void)state;
    build_key_add(a, (struct str[]){STR("ab"), STR("c")}, 2);
    build_key_add(b, (struct str[]){STR("a"), STR("bc")}, 2);
    build_key_add(c, (struct str[]){STR("ab"), STR("c")}, 2);
    assert_int_equal(strlen(a), BUILD_KEY_LEN);
    assert_string_not_equal(a, b);
    assert_string_equal(a, c);
    build_key_add(c, (struct str[]){STR("ab"), STR("c")}, 2);
    assert_string_not_equal(a, c); /* what was before counts */
}

static int read_spec(const char *text, struct arena *arena, struct build_spec *spec, struct err *err)
{
    json_t *json = json_loads(text, 0, NULL);
    int r = build_spec_read(json, &build_spec_names, arena, spec, err);
    json_decref(json);
    return r;
}

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void specs(void **state)
{
    static const char *const bad[] = {
        "{}",
        "{\"image\":\"a\",\"template\":\"b\"}",
        "{\"image\":1}",
        "{\"template\":\"b\",\"steps\":{}}",
        "{\"template\":\"b\",\"steps\":[1]}",
        "{\"template\":\"b\",\"steps\":[{\"type\":\"RUN\",\"args\":[\"\"]}]}",
        "{\"template\":\"b\",\"steps\":[{\"type\":\"RUN\",\"args\":[\"a\\u0000b\"]}]}",
        "{\"template\":\"b\",\"steps\":[{\"type\":\"ENV\",\"args\":[\"A=B\",\"c\"]}]}",
        "{\"template\":\"b\",\"steps\":[{\"type\":\"COPY\",\"args\":[\"a\",\"b\"],\"files\":\"../x\"}]}",
        "{\"template\":\"b\",\"steps\":[{\"type\":\"COPY\",\"args\":[\"a\",\"b\",\"\",\"9\"],\"files\":\"" HASH "\"}]}",
        "{\"template\":\"b\",\"force\":1}",
        "{\"image\":\"b\",\"registry\":{\"type\":\"aws\"}}",
        "{\"fromArchive\":\"x\"}",
    };
    AUTO_ARENA struct arena arena = ARENA_INIT;
    struct build_spec spec;
    struct err err;
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (read_spec(bad[i], &arena, &spec, &err) == 0)
            fail_msg("taken: %s", bad[i]);
    assert_int_equal(read_spec("{\"template\":\"b\",\"force\":true,\"start_cmd\":\"\",\"future\":[],\"steps\":["
                               "{\"type\":\"copy\",\"args\":[\"a\",\"b\",\"\",\"0755\"],\"files\":\"" HASH
                               "\",\"gzip\":true},"
                               "{\"type\":\"RUN\",\"args\":[\"make all\"],\"force\":true,\"files\":null}]}",
                               &arena, &spec, &err),
                     0);
    assert_true(spec.force);
    assert_null(spec.start_cmd);
    assert_int_equal(spec.n_steps, 2);
    assert_string_equal(spec.steps[0].files_hash, HASH);
    assert_null(spec.steps[1].files_hash);
    assert_true(spec.steps[1].force);
    assert_string_equal(build_step_text(&spec.steps[0], &arena, 100), "COPY a b");
    assert_string_equal(build_step_text(&spec.steps[1], &arena, 8), "RUN make...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(expanded), cmocka_unit_test(formats), cmocka_unit_test(keys),
                                       cmocka_unit_test(specs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
