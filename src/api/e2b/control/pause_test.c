/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes that stand still, as clients see them: on the control plane, and on the way to their ports. */
#include "api/e2b/test_e2b.h"
#include "base/fd.h"

#include <stdio.h>

static char made_id[64], made_token[64];

static void member(const struct buf *body, const char *name, char *ret, size_t size)
{
    char wanted[64];
    const char *at;
    size_t n;
    n = (size_t)snprintf(wanted, sizeof(wanted), "\"%s\":\"", name);
    at = memmem(buf_data(body), buf_len(body), wanted, n);
    assert_non_null(at);
    snprintf(ret, size, "%.*s", (int)strcspn(at + n, "\""), at + n);
}

/* A sandbox with more members of the request. */
static struct sandbox *make(struct test_facade *f, const char *members)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    char body[512];
    snprintf(body, sizeof(body), "{\"templateID\":\"base\",\"timeout\":60%s}", members);
    assert_int_equal(facade_json(f, "POST", "/v2/sandboxes", body, &b), 201);
    member(&b, "sandboxID", made_id, sizeof(made_id));
    member(&b, "envdAccessToken", made_token, sizeof(made_token));
    return sandbox_find(f->w->core, str_of(made_id));
}

static int post(struct test_facade *f, const char *verb, const char *body, struct buf *b)
{
    char target[128];
    snprintf(target, sizeof(target), "/sandboxes/%s/%s", made_id, verb);
    return facade_json(f, "POST", target, body, b);
}

static int get(struct test_facade *f, const char *target, unsigned port, const char *more, struct buf *b)
{
    char headers[512];
    snprintf(headers, sizeof(headers), "E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: %u\r\n%s", made_id, port, more);
    return facade_call(f, "GET", target, headers, STR_NULL, NULL, b);
}

static void pausing_resuming_and_connecting_answer_by_state(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), head = BUF_INIT(16384);
    struct test_facade *f = *state;
    char target[128];
    make(f, ",\"autoPause\":true");
    assert_int_equal(post(f, "resume", "{}", &b), 409);
    assert_int_equal(post(f, "pause", "{\"memory\":1}", &b), 400);
    assert_int_equal(post(f, "pause", "", &b), 204);
    assert_int_equal(post(f, "pause", "{}", &b), 409);
    assert_has(&b, "\"code\":409");
    assert_int_equal(post(f, "timeout", "{\"timeout\":9}", &b), 409);

    snprintf(target, sizeof(target), "/sandboxes/%s", made_id);
    assert_int_equal(facade_json(f, "GET", target, NULL, &b), 200);
    assert_has(&b, "\"state\":\"paused\"");
    assert_has(&b, "\"lifecycle\":{\"autoResume\":false,\"onTimeout\":\"pause\"}");
    assert_int_equal(facade_json(f, "GET", "/sandboxes", NULL, &b), 200);
    assert_is(&b, "[]");
    assert_int_equal(facade_call(f, "GET", "/v2/sandboxes", "X-API-KEY: " TEST_KEY "\r\n", STR_NULL, &head, &b), 200);
    assert_has(&b, made_id);
    assert_has(&head, "x-total-running: 0");
    assert_int_equal(facade_json(f, "GET", "/v2/sandboxes?state=running", NULL, &b), 200);
    assert_is(&b, "[]");
    snprintf(target, sizeof(target), "/sandboxes/%s/metrics", made_id);
    assert_int_equal(facade_json(f, "GET", target, NULL, &b), 200);
    snprintf(target, sizeof(target), "/v2/sandboxes/%s/logs", made_id);
    assert_int_equal(facade_json(f, "GET", target, NULL, &b), 200);

    assert_int_equal(post(f, "resume", "{\"timeout\":30}", &b), 201);
    assert_has(&b, made_id);
    assert_int_equal(post(f, "pause", "{}", &b), 204);
    assert_int_equal(post(f, "connect", "{\"timeout\":30}", &b), 201);
    assert_int_equal(post(f, "connect", "{\"timeout\":30}", &b), 200);
    assert_int_equal(post(f, "pause", "{\"memory\":false}", &b), 204);
    snprintf(target, sizeof(target), "/v2/sandboxes/%s/connect", made_id);
    assert_int_equal(facade_json(f, "POST", target, "{}", &b), 201);
    assert_int_equal(post(f, "pause", "{}", &b), 204);
    snprintf(target, sizeof(target), "/sandboxes/%s", made_id);
    assert_int_equal(facade_json(f, "DELETE", target, NULL, &b), 204);
    assert_int_equal(post(f, "connect", "{\"timeout\":30}", &b), 404);
    assert_int_equal(post(f, "pause", "{}", &b), 404);
}

static void a_connect_waits_for_the_pause_that_is_under_way(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), pausing = BUF_INIT(1 << 20), connecting = BUF_INIT(1 << 20);
    AUTO_BUF struct buf request = BUF_INIT(4096);
    struct test_facade *f = *state;
    struct sandbox *sb = make(f, "");
    AUTO_CLOSE int first = facade_connect(f), second = facade_connect(f);
    char token[128];
    snprintf(token, sizeof(token), "X-Access-Token: %s\r\n", made_token);
    f->w->holds = true;
    buf_printf(
        &request,
        "POST /sandboxes/%s/pause HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\nX-API-KEY: " TEST_KEY
        "\r\n\r\n",
        made_id);
    facade_send(f, first, buf_str(&request));
    WAIT(f->w, sandbox_info(sb)->state == SANDBOX_PAUSING);
    assert_int_equal(post(f, "pause", "{}", &b), 409);
    assert_int_equal(get(f, "/x", 8000, "", &b), 409);
    assert_has(&b, "being paused");
    assert_int_equal(get(f, "/health", 49983, token, &b), 502);
    buf_clear(&request);
    buf_printf(
        &request,
        "POST /v2/sandboxes/%s/connect HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\nX-API-KEY: " TEST_KEY
        "\r\n\r\n",
        made_id);
    facade_send(f, second, buf_str(&request));
    world_turns(f->w, 30);
    f->w->holds = false;
    world_answer(f->w, ERR_OK);
    facade_receive(f, first, &pausing, NULL);
    assert_has(&pausing, "204");
    facade_receive(f, second, &connecting, NULL);
    assert_has(&connecting, "201");
    assert_int_equal(sandbox_info(sb)->state, SANDBOX_RUNNING);
}

static void traffic_to_a_paused_one_finds_nobody(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    struct sandbox *sb = make(f, "");
    char token[128];
    snprintf(token, sizeof(token), "X-Access-Token: %s\r\n", made_token);
    assert_int_equal(post(f, "pause", "{}", &b), 204);
    assert_int_equal(get(f, "/health", 49983, token, &b), 502);
    assert_has(&b, "\"message\":\"The sandbox was not found\",\"code\":502");
    assert_int_equal(get(f, "/envs", 49983, token, &b), 502);
    assert_int_equal(get(f, "/", 8000, "", &b), 502);
    assert_has(&b, "\"message\":\"The sandbox was not found\",\"code\":502");
    assert_int_equal(sandbox_info(sb)->state, SANDBOX_PAUSED);
}

static void traffic_wakes_one_that_wants_it(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    struct sandbox *sb = make(f, ",\"autoPause\":true,\"autoResume\":{\"enabled\":true},"
                                 "\"network\":{\"allowPublicTraffic\":false}");
    char token[128], traffic[128];
    snprintf(token, sizeof(token), "X-Access-Token: %s\r\n", made_token);
    snprintf(traffic, sizeof(traffic), "E2B-Traffic-Access-Token: %s\r\n", sandbox_info(sb)->traffic_token);
    assert_int_equal(post(f, "pause", "{}", &b), 204);
    /* Who may not use it may not wake it either, and who asks whether it runs does not. */
    assert_int_equal(get(f, "/", 8000, "", &b), 403);
    assert_int_equal(get(f, "/envs", 49983, "X-Access-Token: wrong\r\n", &b), 502);
    assert_int_equal(get(f, "/health", 49983, token, &b), 502);
    assert_int_equal(get(f, "/files?path=x", 49983, "", &b), 502);
    assert_int_equal(sandbox_info(sb)->state, SANDBOX_PAUSED);

    assert_int_equal(get(f, "/envs", 49983, token, &b), 200);
    assert_int_equal(sandbox_info(sb)->state, SANDBOX_RUNNING);
    assert_int_equal(post(f, "pause", "{}", &b), 204);
    (void)get(f, "/", 8000, traffic, &b);
    assert_int_equal(sandbox_info(sb)->state, SANDBOX_RUNNING);
}

static void a_client_that_leaves_while_it_is_held_is_forgotten(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), request = BUF_INIT(4096);
    struct test_facade *f = *state;
    struct sandbox *sb = make(f, ",\"autoPause\":true,\"autoResume\":{\"enabled\":true}");
    int fd;
    assert_int_equal(post(f, "pause", "{}", &b), 204);
    f->w->holds = true;
    fd = facade_connect(f);
    buf_printf(&request, "GET / HTTP/1.1\r\nHost: 8000-%s.sandboxes.test\r\n\r\n", made_id);
    facade_send(f, fd, buf_str(&request));
    WAIT(f->w, sandbox_info(sb)->state == SANDBOX_RESUMING);
    assert_int_equal(get(f, "/health", 49983, "", &b), 502);
    fd_close(fd);
    world_turns(f->w, 50);
    f->w->holds = false;
    world_answer(f->w, ERR_OK);
    WAIT(f->w, sandbox_info(sb)->state == SANDBOX_RUNNING);
}

static void a_stream_stays_open_over_a_pause_and_ends_without_memory(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), answer = BUF_INIT(1 << 20), request = BUF_INIT(4096),
                        body = BUF_INIT(4096);
    struct test_facade *f = *state;
    struct sandbox *sb = make(f, "");
    AUTO_CLOSE int fd = facade_connect(f);
    facade_envelope(&body, STR("{\"process\":{\"cmd\":\"cat\"},\"stdin\":true}"));
    buf_printf(&request,
               "POST /process.Process/Start HTTP/1.1\r\nHost: x\r\n%sContent-Type: application/connect+json\r\n"
               "Keepalive-Ping-Interval: 1\r\nContent-Length: %zu\r\n\r\n",
               facade_headers(sb, 49983), buf_len(&body));
    buf_append_str(&request, buf_str(&body));
    facade_send(f, fd, buf_str(&request));
    assert_true(facade_receive(f, fd, &answer, "\"start\""));
    assert_int_equal(post(f, "pause", "{}", &b), 204);
    buf_clear(&answer);
    assert_true(facade_receive(f, fd, &answer, "keepalive"));
    assert_int_equal(post(f, "connect", "{\"timeout\":30}", &b), 201);
    assert_int_equal(facade_call(f, "POST", "/process.Process/List", facade_headers(sb, 49983), STR_NULL, NULL, &b),
                     415);
    buf_clear(&answer);
    assert_true(facade_receive(f, fd, &answer, "keepalive"));

    assert_int_equal(post(f, "pause", "{\"memory\":false}", &b), 204);
    buf_clear(&answer);
    assert_true(facade_receive(f, fd, &answer, "\r\n0\r\n\r\n"));
    assert_has(&answer, "{\"error\":{\"code\":\"unavailable\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pausing_resuming_and_connecting_answer_by_state, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(a_connect_waits_for_the_pause_that_is_under_way, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(traffic_to_a_paused_one_finds_nobody, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(traffic_wakes_one_that_wants_it, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(a_client_that_leaves_while_it_is_held_is_forgotten, facade_setup,
                                        facade_teardown),
        cmocka_unit_test_setup_teardown(a_stream_stays_open_over_a_pause_and_ends_without_memory, facade_setup,
                                        facade_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
