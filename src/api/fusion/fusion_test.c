/* SPDX-License-Identifier: Apache-2.0 */
#include "api/fusion/handlers.h"
#include "api/kit/test_facade.h"
#include "base/mem.h"
#include "sandbox/tenant.h"

#define KEY "X-API-KEY: key-of-the-tests\r\nContent-Type: application/json\r\n"
#define PYTHON "{\"language\":\"python\",\"code\":\"1\""

static struct fusion *fusion;

static int setup(void **state)
{
    struct test_facade *f = facade_open();

    fusion = fusion_new(&(struct fusion_config){.core = f->w->core});
    tenant_set_key(f->w->core, STR("key-of-the-tests"));
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

static void what_is_too_much_is_refused(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;

    fusion->n_waiting = FUSION_WAITING_MAX;
    assert_int_equal(post(f, "/run_code", PYTHON "}", &b), 429);
    fusion->n_waiting = 0;
    fusion->waiting_bytes = FUSION_WAITING_BYTES;
    assert_int_equal(post(f, "/run_code", PYTHON "}", &b), 429);
    fusion->waiting_bytes = 0;
    assert_int_equal(post(f, "/run_code", PYTHON "}", &b), 200);
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
        cmocka_unit_test_setup_teardown(what_is_too_much_is_refused, setup, teardown),
        cmocka_unit_test(code_is_found_in_answers),
        cmocka_unit_test(outputs_are_compared),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
