/* SPDX-License-Identifier: Apache-2.0 */
#include "api/fusion/handlers.h"
#include "api/kit/test_facade.h"
#include "base/mem.h"
#include "sandbox/key.h"
#include "sandbox/templates.h"
#include "sandbox/tenant.h"

#define KEY "X-API-KEY: key-of-the-tests\r\nContent-Type: application/json\r\n"
#define PYTHON "{\"language\":\"python\",\"code\":\"1\""

static struct fusion *fusion;

static int setup(void **state)
{
    struct test_facade *f = facade_open();
    fusion = fusion_new(&(struct fusion_config){.core = f->w->core});
    key_set_builtin(f->w->core, STR("key-of-the-tests"));
    facade_claim(f, &(struct claim){.serve = fusion_serve, .facade = fusion});
    *state = f;
    return 0;
}

static void free_facade(void *facade)
{
    fusion_free(facade);
}

static int teardown(void **state)
{
    return facade_close(*state, free_facade);
}

static int post(struct test_facade *f, const char *path, const char *body, struct buf *b)
{
    return facade_call(f, "POST", path, KEY, str_of(body), NULL, b);
}

static void without_its_template_it_says_what_makes_it(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    assert_int_equal(post(f, "/run_code", PYTHON "}", &b), 200);
    assert_has(&b, "\"status\":\"SandboxError\",\"message\":\"there is no template run-code: 'cove template add "
                   "run-code'");
    assert_int_equal(post(f, "/run_jupyter", "{\"cells\":[\"1\"]}", &b), 200);
    assert_has(&b, "'cove template add code-interpreter' makes it");
    assert_int_equal(fusion->running, 0);
}

/* The fake agent ends no such command by itself; its sandbox goes with the client. */
static void who_leaves_leaves_nothing(void **state)
{
    AUTO_BUF struct buf request = BUF_INIT(4096);
    struct test_facade *f = *state;
    static const char body[] = PYTHON ",\"files\":{\"a\":\"eA==\",\"b\":null}}";

    world_template(f->w, "run-code", NULL, NULL);
    int fds[12];
    buf_printf(&request, "POST /run_code HTTP/1.1\r\nHost: x\r\n" KEY "Content-Length: %zu\r\n\r\n%s", strlen(body),
               body);
    fusion->slots = 4;
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        fds[i] = facade_connect(f);
        facade_send(f, fds[i], buf_str(&request));
    }
    WAIT(f->w, fusion->running == 4 && fusion->n_waiting == 8 && sandbox_count(f->w->core) == 4);
    assert_true(fusion->waiting_bytes >= 8 * strlen(body));
    close(fds[11]); /* one that waits */
    WAIT(f->w, fusion->n_waiting == 7);
    for (size_t i = 0; i < 4; i++)
        close(fds[i]);
    WAIT(f->w, fusion->n_waiting == 3 && fusion->running == 4);
    for (size_t i = 4; i < 11; i++)
        close(fds[i]);
    WAIT(f->w, fusion->n_waiting == 0 && fusion->running == 0 && sandbox_count(f->w->core) == 0);
    assert_int_equal(fusion->waiting_bytes, 0);
}

/* One begins although another tenant has all places; the second one waits like anybody's. */
static void no_tenant_keeps_another_out(void **state)
{
    static const struct actor owner = {.name = "owner", .who = PRINCIPAL_OWNER};
    AUTO_BUF struct buf request = BUF_INIT(4096);
    struct test_facade *f = *state;
    struct actor other = owner;
    char key[KEY_TEXT_LEN + 1];
    struct key_info info;
    struct err err;
    int fds[5];
    world_template(f->w, "run-code", NULL, NULL);
    assert_int_equal(core_template_publish(f->w->core, &owner, STR("run-code"), true, &err), 0);
    assert_int_equal(tenant_create(f->w->core, &owner, STR("other"), NULL, &err), 0);
    assert_int_equal(tenant_find(f->w->core, STR("other"), &other.who.tenant, &err), 0);
    other.who.view = other.who.tenant;
    assert_int_equal(
        key_create(f->w->core, &other, &(struct key_spec){.name = STR("k"), .scope = SCOPE_USE}, key, &info, &err), 0);
    fusion->slots = 2;
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        buf_clear(&request);
        buf_printf(&request,
                   "POST /run_code HTTP/1.1\r\nHost: x\r\nX-API-KEY: %s\r\nContent-Type: application/json\r\n"
                   "Content-Length: %zu\r\n\r\n%s}",
                   i < 3 ? "key-of-the-tests" : key, strlen(PYTHON) + 1, PYTHON);
        fds[i] = facade_connect(f);
        facade_send(f, fds[i], buf_str(&request));
        WAIT(f->w, fusion->running + fusion->n_waiting == i + 1);
    }
    assert_int_equal(fusion->running, 3);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        close(fds[i]);
    WAIT(f->w, fusion->n_waiting == 0 && fusion->running == 0 && sandbox_count(f->w->core) == 0);
}

static void what_is_too_much_is_refused(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    fusion->n_waiting = 2 * FUSION_WAITING_MAX;
    assert_int_equal(post(f, "/run_code", PYTHON "}", &b), 429);
    fusion->n_waiting = 0;
    fusion->waiting_bytes = 2 * (size_t)FUSION_WAITING_BYTES;
    assert_int_equal(post(f, "/run_code", PYTHON "}", &b), 429);
    fusion->waiting_bytes = 0;
    assert_int_equal(post(f, "/run_code", PYTHON "}", &b), 200);
}

/* What a program prints can't make the answer too large to be sent. */
static void outputs_have_an_end_as_json(void **state)
{
    AUTO_BUF struct buf out = BUF_INIT(FUSION_OUTPUT_MAX), b = BUF_INIT(FUSION_ANSWER_MAX);
    static const struct fusion_language language;
    static struct fusion_run r;
    (void)state;
    memset(buf_reserve(&out, FUSION_OUTPUT_MAX), 1, FUSION_OUTPUT_MAX);
    buf_commit(&out, FUSION_OUTPUT_MAX);
    r = (struct fusion_run){.language = &language, .fetched = json_object()};
    r.compiled = r.ran = (struct fusion_result){.status = "Finished", .has_code = true, .out = out, .err = out};
    fusion_run_append(&b, &r, FUSION_ESCAPED_MAX);
    assert_int_equal(buf_error(&b), 0);
    assert_true(buf_len(&b) > 2 * (size_t)FUSION_ESCAPED_MAX);
    buf_clear(&b);
    fusion_run_append(&b, &r, 2);
    assert_has(&b, "\"stdout\":\"\",\"stderr\":\"\"}");
    json_decref(r.fetched);
}

static void code_is_found_in_answers(void **state)
{
    static const struct {
        const char *language, *answer, *code;
    } cases[] = {
        {"python", "a\n```js\nx\n```\n```python\ny\n```\n", "y"},
        {"python", "```\nfirst\n```\n```js\nx\n```", "first"},
        {"python", "```Py\na\n\nb\n  ```", "a\n\nb"},
        {"cpp", "```c++\nint\n```", "int"},
        {"python", "```python\nopen", "open"},
        {"python", "Sure:\nimport os\nfrom a import b\ndef f():\n\n    return 1\nThat's it",
         "import os\nfrom a import b\ndef f():\n    return 1\n"},
        {"python", "def is needed\nno", ""},
        {"bash", "ls\n", "ls\n"},
        {"go", "nothing", ""},
        {"python", "", ""},
        {"python", "```", ""},
        {"python", "```python\n```", ""},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        AUTO_ARENA struct arena arena = ARENA_INIT;
        struct str code = fusion_extract(&arena, str_of(cases[i].answer), str_of(cases[i].language));
        if (!str_eqc(code, cases[i].code))
            fail_msg("%zu: got '%.*s'", i, STR_ARG(code));
    }
}

static void outputs_are_compared(void **state)
{
    static const struct {
        const char *got, *expected;
        bool same;
    } cases[] = {{"1\n2\n", "1\n2", true},
                 {" YES \r\n", "yes", true},
                 {"0.30000004", "0.3", true},
                 {"0.31", "0.3", false},
                 {"1\n", "1\n2", false},
                 {"1\n2", "1", false},
                 {"", "", true},
                 {"", "1", false},
                 {"a b", "a  b", false},
                 {"1e400", "1e400", true},
                 {"nan", "1", false},
                 {"1\n\n2", "1\n\n2", true},
                 {"-1.000001", "-1", true},
                 {"0x10", "16", true}};
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        if (fusion_same_output(str_of(cases[i].got), str_of(cases[i].expected)) != cases[i].same)
            fail_msg("%zu: '%s'", i, cases[i].got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_its_template_it_says_what_makes_it, setup, teardown),
        cmocka_unit_test_setup_teardown(who_leaves_leaves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(no_tenant_keeps_another_out, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_too_much_is_refused, setup, teardown),
        cmocka_unit_test(outputs_have_an_end_as_json),
        cmocka_unit_test(code_is_found_in_answers),
        cmocka_unit_test(outputs_are_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
