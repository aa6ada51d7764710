/* SPDX-License-Identifier: Apache-2.0 */
/* A façade of three routes, whole: what one costs, and what the kit sees to by itself. */
#include "api/kit/call.h"
#include "api/kit/test_facade.h"
#include "base/mem.h"
#include "sandbox/life/pause.h"

struct echo {
    struct facade facade;
};

/* ---- the façade ---- */

static void echo_ping(struct call *c)
{
    call_json(c, 200, STR("{}"));
}

static void echo_say(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    struct str text = STR_NULL;
    int64_t times = 1;
    if (!CALL_WANTS(c, JSON_NEED_STR("text", &text), JSON_WANT_INT("times", 1, 3, &times)))
        return;
    for (int64_t i = 0; i < times; i++)
        buf_append_str(&b, text);
    call_respond(c, 200, "text/plain", buf_str(&b));
}

static void echo_paused(void *ctx, struct sandbox *sb, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    (void)sb;
    if (c)
        call_empty(c, 204);
}

static void echo_pause(struct call *c)
{
    struct err err;
    if (sandbox_pause(c->sandbox, &c->actor, true, echo_paused, call_hold(c), &err) < 0)
        call_drop(c, &err);
}

static const struct route routes[] = {
    {HTTP_METHOD_GET, "/echo/ping", echo_ping, ROUTE_OPEN, NULL},
    {HTTP_METHOD_POST, "/echo/say", echo_say, ROUTE_BODY, NULL},
    {HTTP_METHOD_POST, "/echo/pause/{}", echo_pause, ROUTE_SANDBOX, NULL},
};

static bool echo_authenticate(struct call *c)
{
    access_as(c, "echo", &PRINCIPAL_OWNER);
    if (http_header_get(c->req, "password").n)
        return true;
    call_refuse(c, ERR_UNAUTHENTICATED, "who are you?");
    return false;
}

static struct sandbox *echo_sandbox(struct call *c)
{
    struct sandbox *sb = access_find_sandbox(c, c->args[0]);
    if (!sb)
        call_refuse(c, ERR_NOT_FOUND, "there is no %.*s", STR_ARG(c->args[0]));
    return sb;
}

static void echo_error(struct buf *b, int status, enum err_code code, struct str message, const char *hint)
{
    (void)code, (void)hint;
    buf_printf(b, "%d %.*s", status, STR_ARG(message));
}

static const struct facade_ops ops = {
    .name = "echo",
    .body_max = 1000,
    .body_error = "body: ",
    .refuses_unknown = true,
    .method_error = "not so",
    .method_error_status = 405,
    .authenticate = echo_authenticate,
    .find_sandbox = echo_sandbox,
    .append_error = echo_error,
};

static bool echo_serve(void *facade, struct http_request *req)
{
    struct echo *echo = facade;
    return facade_serve(&echo->facade, routes, ARRAY_SIZE(routes), req);
}

static void echo_free(void *facade)
{
    struct echo *echo = facade;
    facade_fini(&echo->facade);
    mem_free(echo);
}

/* ---- and what it does ---- */

static int setup(void **state)
{
    struct test_facade *f = facade_open();
    struct echo *echo = mem_new(struct echo);
    facade_init(&echo->facade, &ops, f->w->core, NULL);
    facade_claim(f, &(struct claim){.prefix = "/echo/", .serve = echo_serve, .facade = echo});
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    return facade_close(*state, echo_free);
}

static void answers(struct test_facade *f, const char *method, const char *path, const char *body, int status,
                    const char *text)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    assert_int_equal(facade_call(f, method, path, "Password: x\r\n", str_of(body), NULL, &b), status);
    assert_has(&b, text);
}

static void requests_are_answered(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(4096), head = BUF_INIT(4096);
    struct test_facade *f = *state;
    assert_int_equal(facade_call(f, "GET", "/echo/ping", "", STR_NULL, NULL, &b), 200);
    assert_int_equal(facade_call(f, "POST", "/echo/say", "", STR("{\"text\":\"a\"}"), NULL, &b), 401);
    assert_int_equal(facade_call(f, "PUT", "/echo/ping", "", STR_NULL, &head, &b), 405);
    assert_has(&head, "allow: GET, HEAD");
    answers(f, "POST", "/echo/say", "{\"text\":\"ab\",\"times\":3}", 200, "ababab");
    answers(f, "POST", "/echo/say", "{\"text\":\"ab\",\"times\":4}", 400, "body: field \"times\"");
    answers(f, "POST", "/echo/say", "{\"txt\":\"ab\"}", 400, "unknown field \"txt\"");
    answers(f, "POST", "/echo/say", "{}", 400, "property \"text\" is missing");
    answers(f, "POST", "/echo/say", "[]", 400, "must be an object");
    answers(f, "GET", "/echo/nothing", NULL, 404, "");
    assert_int_equal(f->unclaimed, 1);
}

static void sandboxes_are_found_and_waited_for(void **state)
{
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    AUTO_FREE char *path = mem_printf("/echo/pause/%s", sandbox_info(sb)->id);
    answers(f, "POST", path, NULL, 204, "");
    assert_int_equal(sandbox_info(sb)->state, SANDBOX_PAUSED);
    answers(f, "POST", path, NULL, 400, "is paused");
    answers(f, "POST", "/echo/pause/nobody", NULL, 404, "there is no nobody");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(requests_are_answered, setup, teardown),
        cmocka_unit_test_setup_teardown(sandboxes_are_found_and_waited_for, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
