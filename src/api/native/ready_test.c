/* SPDX-License-Identifier: Apache-2.0 */
/* What is answered for what is missing. The core and coved are stood in for here. */
#include "api/native/call.h"
#include "base/mem.h"
#include "sandbox/templates.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct world {
    bool has_base;
    struct native_obstacle obstacle;
    int status;
    char body[1024];
} w;

int core_template_find(struct core *core, struct str ref, const struct template **ret_template, struct err *err)
{
    static const struct template base;
    (void)core;
    assert_true(str_eqc(ref, "base"));
    if (!w.has_base)
        return err_set(err, ERR_NOT_FOUND, "there is no template base");
    *ret_template = &base;
    return 0;
}

void native_json(struct call *c, int status, struct buf *body)
{
    (void)c;
    assert_int_equal(buf_error(body), 0);
    assert_in_range(buf_len(body), 1, sizeof(w.body) - 1);
    memcpy(w.body, buf_data(body), buf_len(body));
    w.body[buf_len(body)] = 0;
    w.status = status;
}

static struct native_obstacle supervisor(void *ctx)
{
    assert_ptr_equal(ctx, &w);
    return w.obstacle;
}

static void ask(bool has_base, const char *code)
{
    struct native native = {.config = {.supervisor = supervisor, .supervisor_ctx = &w}};
    struct call call = {.native = &native};
    w = (struct world){.has_base = has_base};
    if (code)
        w.obstacle = (struct native_obstacle){code, "a \"reason\""};
    native_ready(&call);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ready),
        cmocka_unit_test(what_coved_says),
        cmocka_unit_test(no_base_template),
        cmocka_unit_test(all_reasons_at_once),
    };
    return cmocka_run_group_tests_name("native_ready", tests, NULL, NULL);
}
