/* SPDX-License-Identifier: Apache-2.0 */
/* What is answered for what is missing. The core and coved are stood in for here. */
#include "api/native/handlers.h"
#include "base/mem.h"
#include "sandbox/life/layers.h"
#include "sandbox/templates.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct world {
    bool has_base, is_later, lacks_layer;
    uint64_t free_bytes;
    struct native_obstacle obstacle;
    pool_figures_fn figures;
    void *figures_ctx;
    unsigned questions, answers;
    int status;
    char body[1024];
} w;

int core_template_find(struct core *core, uint64_t view, struct str ref, const struct template **ret_template,
                       struct err *err)
{
    static const struct template base = {.layer = "sha256-1"};
    (void)core, (void)view;
    assert_true(str_eqc(ref, "base"));
    if (!w.has_base)
        return err_set(err, ERR_NOT_FOUND, "there is no template base");
    *ret_template = &base;
    return 0;
}

int pool_figures(struct core *core, const char *layer, pool_figures_fn done, void *ctx, struct err *err)
{
    (void)core;
    (void)err;
    assert_string_equal(layer, w.has_base ? "sha256-1" : "");
    w.questions++;
    w.figures = done;
    w.figures_ctx = ctx;
    return 0;
}

void call_value(struct call *c, int status, json_t *json)
{
    size_t n = json_dumpb(json, w.body, sizeof(w.body) - 1, JSON_COMPACT);
    (void)c;
    assert_in_range(n, 1, sizeof(w.body) - 1);
    w.body[n] = 0;
    json_decref(json);
    w.status = status;
    w.answers++;
}

static struct native_obstacle supervisor(void *ctx)
{
    assert_ptr_equal(ctx, &w);
    return w.obstacle;
}

static struct native native;
static uv_loop_t loop;

uv_loop_t *core_loop(const struct core *core)
{
    (void)core;
    return &loop;
}

static void end(void)
{
    native_ready_fini(&native);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
}

static void tell_figures(bool fails)
{
    struct pool_figures figures = {.free_bytes = w.free_bytes, .has_layer = !w.lacks_layer};
    struct err err = {.code = ERR_UNAVAILABLE};
    w.figures(w.figures_ctx, fails ? NULL : &figures, fails ? &err : NULL);
}

static struct call *begin(struct world with, const char *code)
{
    static struct call call;
    native = (struct native){.config = {.supervisor = supervisor, .supervisor_ctx = &w}};
    if (!loop.data) {
        assert_int_equal(uv_loop_init(&loop), 0);
        loop.data = &loop;
    }
    native_ready_init(&native, &loop);
    call = (struct call){.facade = &native.facade};
    w = with;
    if (code)
        w.obstacle = (struct native_obstacle){code, "a \"reason\""};
    native_ready(&call);
    assert_int_equal(w.answers, 0);
    return &call;
}

static void ask(bool has_base, const char *code)
{
    (void)begin((struct world){.has_base = has_base, .free_bytes = 1 << 30}, code);
    tell_figures(false);
    assert_int_equal(w.answers, 1);
    end();
}

static void ready(void **state)
{
    (void)state;
    ask(true, NULL);
    assert_int_equal(w.status, 200);
    assert_string_equal(w.body, "{\"status\":\"ready\"}");
}

static void what_coved_says(void **state)
{
    (void)state;
    ask(true, "disk");
    assert_int_equal(w.status, 503);
    assert_string_equal(
        w.body, "{\"status\":\"not ready\",\"reasons\":[{\"code\":\"disk\",\"message\":\"a \\\"reason\\\"\"}]}");
}

static void no_base_template(void **state)
{
    (void)state;
    ask(false, NULL);
    assert_int_equal(w.status, 503);
    assert_non_null(strstr(w.body, "{\"status\":\"not ready\",\"reasons\":[{\"code\":\"template\","));
}

static void all_reasons_at_once(void **state)
{
    (void)state;
    ask(false, "supervisor");
    assert_int_equal(w.status, 503);
    assert_non_null(strstr(w.body, "\"code\":\"supervisor\""));
    assert_non_null(strstr(w.body, "},{\"code\":\"template\""));
}

static void what_the_pool_says(void **state)
{
    (void)state;
    (void)begin((struct world){.has_base = true, .free_bytes = 1 << 20}, NULL);
    tell_figures(false);
    assert_int_equal(w.status, 503);
    assert_non_null(strstr(w.body, "[{\"code\":\"disk\""));
    end();
    (void)begin((struct world){.has_base = true, .free_bytes = 1 << 30, .lacks_layer = true}, NULL);
    tell_figures(false);
    assert_int_equal(w.status, 503);
    assert_non_null(strstr(w.body, "[{\"code\":\"template\",\"message\":\"the files"));
    end();
    (void)begin((struct world){.has_base = true}, NULL);
    tell_figures(true);
    assert_int_equal(w.status, 503);
    assert_non_null(strstr(w.body, "[{\"code\":\"supervisor\""));
    end();
    (void)begin((struct world){.has_base = true}, NULL);
    uv_run(&loop, UV_RUN_DEFAULT); /* nobody answers */
    assert_int_equal(w.status, 503);
    assert_non_null(strstr(w.body, "[{\"code\":\"supervisor\""));
    end();
    tell_figures(false);
}

static void many_that_ask_are_one_question(void **state)
{
    (void)state;
    struct call *first = begin((struct world){.has_base = true, .free_bytes = 1 << 30}, NULL);
    struct call more[3];
    for (size_t i = 0; i < ARRAY_SIZE(more); i++) {
        more[i] = (struct call){.facade = first->facade};
        native_ready(&more[i]);
    }
    more[0].cleanup(&more[0]); /* its client has left */
    tell_figures(false);
    assert_int_equal(w.answers, 3);
    native_ready(&more[0]);
    assert_int_equal(w.answers, 4);
    assert_int_equal(w.questions, 1);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ready),
        cmocka_unit_test(what_coved_says),
        cmocka_unit_test(no_base_template),
        cmocka_unit_test(all_reasons_at_once),
        cmocka_unit_test(what_the_pool_says),
        cmocka_unit_test(many_that_ask_are_one_question),
    };
    return cmocka_run_group_tests_name("native_ready", tests, NULL, NULL);
}
