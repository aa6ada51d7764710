/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/test_e2b.h"
#include "api/kit/slices.h"
#include "base/fd.h"
#include "base/mem.h"
#include "event/log.h"

#include <stdio.h>
#include <sys/socket.h>

/* The string member `name` of the answer's text. */
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

static void a_sandbox_is_made_seen_kept_and_killed(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    char id[64], target[128], end[64], end2[64];
    assert_int_equal(facade_json(f, "POST", "/sandboxes",
                                 "{\"templateID\":\"base\",\"timeout\":60,\"secure\":true,\"metadata\":{\"k\":\"v\"},"
                                 "\"envVars\":{\"A\":\"b\"},\"autoPause\":false,\"allow_internet_access\":true}",
                                 &b),
                     201);
    member(&b, "sandboxID", id, sizeof(id));
    assert_has(&b, "\"templateID\":\"base-1\"");
    assert_has(&b, "\"alias\":\"base\"");
    assert_has(&b, "\"envdAccessToken\":\"");
    assert_has(&b, "\"envdVersion\":\"0.6.13\"");
    assert_has(&b, "\"domain\":\"sandboxes.test\"");

    snprintf(target, sizeof(target), "/sandboxes/%s", id);
    assert_int_equal(facade_json(f, "GET", target, NULL, &b), 200);
    assert_has(&b, "\"state\":\"running\"");
    assert_has(&b, "\"metadata\":{\"k\":\"v\"}");
    assert_has(&b, "\"lifecycle\":{\"autoResume\":false,\"onTimeout\":\"kill\"}");
    member(&b, "endAt", end, sizeof(end));

    snprintf(target, sizeof(target), "/sandboxes/%s/connect", id);
    assert_int_equal(facade_json(f, "POST", target, "{\"timeout\":10}", &b), 200);
    snprintf(target, sizeof(target), "/sandboxes/%s-client", id);
    assert_int_equal(facade_json(f, "GET", target, NULL, &b), 200);
    member(&b, "endAt", end2, sizeof(end2));
    assert_string_equal(end, end2);

    snprintf(target, sizeof(target), "/v2/sandboxes/%s/connect", id);
    assert_int_equal(facade_json(f, "POST", target, "", &b), 200);
    snprintf(target, sizeof(target), "/sandboxes/%s/timeout", id);
    assert_int_equal(facade_json(f, "POST", target, "{\"timeout\":30}", &b), 204);
    snprintf(target, sizeof(target), "/sandboxes/%s/refreshes", id);
    assert_int_equal(facade_json(f, "POST", target, "{}", &b), 204);
    snprintf(target, sizeof(target), "/sandboxes/%s/resume", id);
    assert_int_equal(facade_json(f, "POST", target, "{}", &b), 409);
    snprintf(target, sizeof(target), "/sandboxes/%s/metrics?start=1&end=2", id);
    assert_int_equal(facade_json(f, "GET", target, NULL, &b), 200);
    assert_is(&b, "[]");
    snprintf(target, sizeof(target), "/v2/sandboxes/%s/logs", id);
    assert_int_equal(facade_json(f, "GET", target, NULL, &b), 200);
    assert_has(&b, "{\"logs\":[");
    snprintf(target, sizeof(target), "/v2/sandboxes/%s-client/logs?limit=1", id);
    assert_int_equal(facade_json(f, "GET", target, NULL, &b), 200);
    assert_has(&b, "\"message\":\"sandbox.timeout");
    /* The newest first, when nothing else is asked for. */
    snprintf(target, sizeof(target), "/v2/sandboxes/%s/logs?limit=1", id);
    assert_int_equal(facade_json(f, "GET", target, NULL, &b), 200);
    assert_has(&b, "\"message\":\"sandbox.timeout");
    snprintf(target, sizeof(target), "/v2/sandboxes/%s/logs?limit=1&search=sandbox.create", id);
    assert_int_equal(facade_json(f, "GET", target, NULL, &b), 200);
    assert_has(&b, "\"message\":\"sandbox.create");
    snprintf(target, sizeof(target), "/v2/sandboxes/%s/logs?limit=1&direction=forward", id);
    assert_int_equal(facade_json(f, "GET", target, NULL, &b), 200);
    assert_has(&b, "\"message\":\"sandbox.create");
    snprintf(target, sizeof(target), "/v2/sandboxes/%s/logs?cursor=1", id);
    assert_int_equal(facade_json(f, "GET", target, NULL, &b), 200);
    assert_is(&b, "{\"logs\":[]}");
    snprintf(target, sizeof(target), "/v2/sandboxes/%s/logs?limit=0", id);
    assert_int_equal(facade_json(f, "GET", target, NULL, &b), 200);
    assert_is(&b, "{\"logs\":[]}");

    snprintf(target, sizeof(target), "/sandboxes/%s", id);
    assert_int_equal(facade_json(f, "DELETE", target, NULL, &b), 204);
    assert_int_equal(facade_json(f, "DELETE", target, NULL, &b), 404);
    assert_has(&b, "doesn't exist or you don't have access to it");
    assert_int_equal(facade_json(f, "GET", "/v2/sandboxes", NULL, &b), 200);
    assert_is(&b, "[]");
}

static void others_are_answered_while_a_log_is_searched(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), found = BUF_INIT(1 << 20), text = BUF_INIT(1024);
    struct test_facade *f = *state;
    const char *id = sandbox_info(facade_sandbox(f, true))->id;
    struct err err;
    static const char *const queries[] = {"search=nowhere", "level=error", "level=error&direction=forward"};
    struct event_draft draft = {
        .sandbox = id, .kind = EVENT_SANDBOX_TIMEOUT, .source = EVENT_CLIENT, .grade = EVENT_OBSERVED_HOST};
    for (int i = 0; i < 40 * SLICE_STEPS; i++)
        assert_int_equal(event_append(f->w->events, &draft, NULL, &err), 0);
    assert_int_equal(store_commit(f->w->store, &err), 0);
    for (size_t i = 0; i < ARRAY_SIZE(queries); i++) {
        AUTO_CLOSE int searcher = facade_connect(f), other = facade_connect(f);
        buf_clear(&text);
        buf_clear(&b);
        buf_clear(&found);
        buf_printf(&text,
                   "GET /v2/sandboxes/%s/logs?%s HTTP/1.1\r\nHost: x\r\nX-API-KEY: " TEST_KEY
                   "\r\nConnection: close\r\n\r\n",
                   id, queries[i]);
        facade_send(f, searcher, buf_str(&text));
        buf_clear(&text);
        buf_printf(&text, "GET /sandboxes/%s HTTP/1.1\r\nHost: x\r\nX-API-KEY: " TEST_KEY "\r\n\r\n", id);
        facade_send(f, other, buf_str(&text));
        assert_true(facade_receive(f, other, &b, "\"state\":\"running\""));
        assert_int_equal(recv(searcher, buf_reserve(&found, 4096), 4096, 0), -1); /* still searching */
        assert_true(facade_receive(f, searcher, &found, NULL));
        assert_has(&found, "\r\n\r\n{\"logs\":[]}");
    }

    /* One that leaves meanwhile leaves nothing behind. */
    buf_clear(&text);
    buf_printf(&text, "GET /v2/sandboxes/%s/logs?search=nowhere HTTP/1.1\r\nHost: x\r\nX-API-KEY: " TEST_KEY "\r\n\r\n",
               id);
    AUTO_CLOSE int fd = facade_connect(f);
    facade_send(f, fd, buf_str(&text));
    for (int i = 0; i < 10; i++)
        world_turn(f->w);
}

static void a_time_that_is_over_ends_it(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    char target[256];
    snprintf(target, sizeof(target), "/sandboxes/%s/timeout", sandbox_info(sb)->id);
    assert_int_equal(facade_json(f, "POST", target, "{\"timeout\":-5}", &b), 204);
    snprintf(target, sizeof(target), "/sandboxes/%s", sandbox_info(sb)->id);
    WAIT(f->w, facade_json(f, "GET", target, NULL, &b) == 404);
}

static void lists_are_filtered_ordered_and_paged(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), head = BUF_INIT(16384);
    struct test_facade *f = *state;
    char target[256], token[128] = "", ids[3][32];
    const char *at;
    for (int i = 0; i < 3; i++)
        snprintf(ids[i], sizeof(ids[i]), "%s", sandbox_info(facade_sandbox(f, false))->id);
    for (int i = 0; i < 3; i++) {
        snprintf(target, sizeof(target), "/v2/sandboxes?limit=1&nextToken=%s", token);
        assert_int_equal(facade_call(f, "GET", target, "X-API-KEY: " TEST_KEY "\r\n", STR_NULL, &head, &b), 200);
        assert_has(&b, ids[2 - i]);
        assert_has(&head, "x-total-running: 3");
        buf_append_char(&head, '\0');
        at = strstr(buf_data(&head), "x-next-token: ");
        assert_int_equal(at != NULL, i < 2);
        if (at)
            snprintf(token, sizeof(token), "%.*s", (int)strcspn(at + 14, "\r"), at + 14);
    }
    assert_int_equal(facade_json(f, "GET", "/v2/sandboxes?order=asc&limit=1", NULL, &b), 200);
    assert_has(&b, ids[0]);
    assert_int_equal(facade_json(f, "GET", "/v2/sandboxes?state=paused", NULL, &b), 200);
    assert_is(&b, "[]");
    assert_int_equal(facade_json(f, "GET", "/v2/sandboxes?template=nothing", NULL, &b), 200);
    assert_is(&b, "[]");
    assert_int_equal(facade_json(f, "GET", "/v2/sandboxes?limit=0", NULL, &b), 400);
    assert_int_equal(facade_json(f, "GET", "/sandboxes", NULL, &b), 200);
    assert_has(&b, ids[1]);
    snprintf(target, sizeof(target), "/sandboxes/metrics?sandbox_ids=%s,inothing", ids[0]);
    assert_int_equal(facade_json(f, "GET", target, NULL, &b), 200);
    assert_has(&b, "{\"sandboxes\":{");
}

static void only_the_key_opens(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), head = BUF_INIT(16384);
    struct test_facade *f = *state;
    assert_int_equal(facade_call(f, "GET", "/health", "", STR_NULL, NULL, &b), 200);
    assert_int_equal(facade_call(f, "GET", "/v2/sandboxes", "", STR_NULL, NULL, &b), 401);
    assert_is(&b, "{\"code\":401,\"message\":\"authorization header is missing\"}");
    assert_int_equal(facade_call(f, "GET", "/v2/sandboxes", "X-API-KEY: e2b_0123456789abcdee\r\n", STR_NULL, NULL, &b),
                     401);
    assert_int_equal(facade_call(f, "GET", "/v2/sandboxes", "X-API-KEY: \r\n", STR_NULL, NULL, &b), 401);
    assert_int_equal(
        facade_call(f, "GET", "/v2/sandboxes", "Authorization: Bearer " TEST_KEY "\r\n", STR_NULL, NULL, &b), 200);
    assert_int_equal(
        facade_call(f, "GET", "/v2/sandboxes", "Authorization: Basic " TEST_KEY "\r\n", STR_NULL, NULL, &b), 401);
    assert_int_equal(facade_call(f, "GET", "/nothing", "", STR_NULL, NULL, &b), 404);
    assert_int_equal(f->unclaimed, 1);
    assert_int_equal(facade_call(f, "PUT", "/sandboxes", "", STR_NULL, NULL, &b), 404);
    assert_int_equal(facade_call(f, "OPTIONS", "/sandboxes",
                                 "Origin: http://x\r\nAccess-Control-Request-Method: POST\r\n", STR_NULL, &head, &b),
                     204);
    assert_has(&head, "access-control-allow-origin: *");
}

static void refused(struct test_facade *f, const char *target, const char *headers, struct str body, int status,
                    const char *because)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), all = BUF_INIT(4096);
    buf_printf(&all, "X-API-KEY: " TEST_KEY "\r\n%s%c", headers, 0);
    assert_int_equal(facade_call(f, "POST", target, buf_data(&all), body, NULL, &b), status);
    assert_has(&b, because);
}

static void malformed_requests_are_told_what_is_wrong(void **state)
{
    AUTO_BUF struct buf deep = BUF_INIT(1 << 20), large = BUF_INIT(2 << 20);
    const char *json = "Content-Type: application/json\r\n";
    struct test_facade *f = *state;
    for (int i = 0; i < 5000; i++)
        buf_append_cstr(&deep, "{\"a\":");
    for (int i = 0; i < 1100 * 1024; i++)
        buf_append_char(&large, ' ');
    refused(f, "/sandboxes", json, STR_NULL, 400, "value is required but missing");
    refused(f, "/sandboxes", json, STR("{\"templateID\":\"base\""), 400, "invalid JSON");
    refused(f, "/sandboxes", json, STR("{\"templateID\":\"base\",\"templateID\":\"x\"}"), 400, "duplicate");
    refused(f, "/sandboxes", json, STR("{\"templateID\":\"\xff\"}"), 400, "invalid JSON");
    refused(f, "/sandboxes", json, STR("[]"), 400, "must be an object");
    refused(f, "/sandboxes", json, buf_str(&deep), 400, "nested deeper");
    refused(f, "/sandboxes", json, buf_str(&large), 413, "larger than");
    refused(f, "/sandboxes", "Content-Type: text/plain\r\n", STR("{\"templateID\":\"base\"}"), 400, "Content-Type");
    refused(f, "/sandboxes", json, STR("{\"templateID\":\"unknown\"}"), 404, "unknown");
    refused(f, "/sandboxes", json, STR("{\"templateID\":\"base\",\"autoPauseMemory\":false}"), 400, "autoPause");
    refused(f, "/sandboxes/../connect", json, STR("{}"), 400, "Invalid sandbox ID");
    refused(f, "/sandboxes/a.b/timeout", json, STR("{\"timeout\":1}"), 400, "Invalid sandbox ID");
    refused(f, "/sandboxes/a-b-c/timeout", json, STR("{\"timeout\":1}"), 400, "Invalid sandbox ID");
    refused(f, "/sandboxes/%00/timeout", json, STR("{\"timeout\":1}"), 400, "path");
    refused(f, "/sandboxes/inothing/timeout", json, STR("{\"timeout\":1}"), 404, "inothing");
    refused(f, "/sandboxes/inothing/timeout", json, STR("{\"timeout\":-1}"), 404, "inothing");
    const char *id = sandbox_info(facade_sandbox(f, true))->id;
    AUTO_FREE char *timeout = mem_printf("/sandboxes/%s/timeout", id), *join = mem_printf("/sandboxes/%s/connect", id);
    refused(f, timeout, json, STR("{\"timeout\":-3000000000}"), 400, "timeout");
    refused(f, timeout, json, STR("{}"), 400, "is missing");
    refused(f, join, json, STR("{\"timeout\":-1}"), 400, "timeout");
    refused(f, "/sandboxes/inothing/pause", json, STR("{}"), 404, "inothing");
}

static void what_comes_later_says_so(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    assert_int_equal(facade_json(f, "POST", "/v3/templates", "{\"name\":\"x\"}", &b), 501);
    assert_is(&b, "{\"code\":501,\"message\":\"template builds are not available here\"}");
    assert_int_equal(facade_json(f, "GET", "/secrets", NULL, &b), 501);
}

#define TEMPLATE_HEAD                                                                                                  \
    "{\"templateID\":\"base-1\",\"aliases\":[\"base\"],\"names\":[\"base\"],\"public\":false,"                         \
    "\"createdAt\":\"1970-01-01T00:00:00.000Z\",\"updatedAt\":\"1970-01-01T00:00:00.000Z\",\"lastSpawnedAt\":null,"    \
    "\"spawnCount\":0"
#define TEMPLATE_BUILD                                                                                                 \
    "\"buildID\":\"01234567-89ab-8def-8123-456789abcdef\",\"cpuCount\":1,\"memoryMB\":256,\"diskSizeMB\":0,"           \
    "\"envdVersion\":\"0.6.13\""
#define TEMPLATE TEMPLATE_HEAD "," TEMPLATE_BUILD ",\"createdBy\":null,\"buildCount\":1,\"buildStatus\":\"ready\"}"

static void templates_are_told(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    static const char *const known[] = {"base", "base-1", "BASE", "base:default", "me%2Fbase"};
    char target[64];
    assert_int_equal(facade_json(f, "GET", "/templates?teamID=x", NULL, &b), 200);
    assert_is(&b, "[" TEMPLATE "]");
    assert_int_equal(facade_json(f, "GET", "/v2/templates?limit=1", NULL, &b), 200);
    assert_is(&b, "[" TEMPLATE "]");
    assert_int_equal(facade_json(f, "GET", "/v2/templates?nextToken=base-1", NULL, &b), 200);
    assert_is(&b, "[]");
    assert_int_equal(facade_json(f, "GET", "/v2/templates?limit=0", NULL, &b), 400);
    assert_int_equal(facade_json(f, "GET", "/v2/templates?limit=101", NULL, &b), 400);
    assert_int_equal(facade_json(f, "GET", "/templates/base-1", NULL, &b), 200);
    assert_is(
        &b, TEMPLATE_HEAD
        ",\"builds\":[{" TEMPLATE_BUILD
        ",\"status\":\"ready\",\"createdAt\":\"1970-01-01T00:00:00.000Z\",\"updatedAt\":\"1970-01-01T00:00:00.000Z\","
        "\"finishedAt\":null}]}");
    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        snprintf(target, sizeof(target), "/templates/aliases/%s", known[i]);
        assert_int_equal(facade_json(f, "GET", target, NULL, &b), 200);
        assert_is(&b, "{\"templateID\":\"base-1\",\"public\":false}");
    }
    assert_int_equal(facade_json(f, "GET", "/templates/aliases/nothing", NULL, &b), 404);
    assert_int_equal(facade_json(f, "GET", "/templates/aliases/base:other", NULL, &b), 404);
    assert_int_equal(facade_json(f, "GET", "/templates/aliases/no%20name", NULL, &b), 400);
    assert_int_equal(facade_json(f, "GET", "/templates/nothing", NULL, &b), 404);
}

static void a_repeated_request_makes_one_sandbox(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), a1 = BUF_INIT(1 << 20), a2 = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    const struct str request =
        STR("POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-API-KEY: " TEST_KEY "\r\n"
            "Content-Type: application/json\r\nIdempotency-Key: once-1\r\nContent-Length: 21\r\n\r\n"
            "{\"templateID\":\"base\"}");
    AUTO_CLOSE int first = facade_connect(f), second = facade_connect(f);
    char id[64], target[128];
    facade_send(f, first, request);
    facade_send(f, second, request);
    facade_receive(f, first, &a1, NULL);
    facade_receive(f, second, &a2, NULL);
    assert_has(&a1, "201 Created");
    member(&a1, "sandboxID", id, sizeof(id));
    assert_has(&a2, id);
    assert_int_equal(facade_call(f, "POST", "/v2/sandboxes",
                                 "X-API-KEY: " TEST_KEY
                                 "\r\nContent-Type: application/json\r\nIdempotency-Key: once-1\r\n",
                                 STR("{\"templateID\":\"base\"}"), NULL, &b),
                     201);
    assert_has(&b, id);
    assert_int_equal(f->w->creates, 1);

    snprintf(target, sizeof(target), "/sandboxes/%s", id);
    assert_int_equal(facade_json(f, "DELETE", target, NULL, &b), 204);
    assert_int_equal(facade_call(f, "POST", "/v2/sandboxes",
                                 "X-API-KEY: " TEST_KEY
                                 "\r\nContent-Type: application/json\r\nIdempotency-Key: once-1\r\n",
                                 STR("{\"templateID\":\"base\"}"), NULL, &b),
                     201);
    assert_int_equal(f->w->creates, 2);
    assert_int_equal(facade_call(f, "POST", "/v2/sandboxes",
                                 "X-API-KEY: " TEST_KEY
                                 "\r\nContent-Type: application/json\r\nIdempotency-Key: A b\r\n",
                                 STR("{\"templateID\":\"base\"}"), NULL, &b),
                     400);
}

static void a_client_that_left_gets_its_sandbox_all_the_same(void **state)
{
    struct test_facade *f = *state;
    int fd = facade_connect(f);
    f->w->agents_mute = true;
    facade_send(f, fd,
                STR("POST /sandboxes HTTP/1.1\r\nHost: x\r\nX-API-KEY: " TEST_KEY
                    "\r\nContent-Type: application/json\r\n"
                    "Content-Length: 21\r\n\r\n{\"templateID\":\"base\"}"));
    WAIT(f->w, f->w->creates == 1);
    fd_close(fd);
    world_turns(f->w, 50);
}

static void a_template_that_is_not_there_is_told_what_to_do(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(65536);
    struct test_facade *f = *state;
    assert_int_equal(facade_json(f, "POST", "/v2/sandboxes", "{\"templateID\":\"code-interpreter-v1\"}", &b), 404);
    assert_has(&b, "cove template add code-interpreter");
    assert_int_equal(facade_json(f, "POST", "/v2/sandboxes", "{\"templateID\":\"desktop\"}", &b), 404);
    assert_has(&b, "cove template add desktop");
    assert_int_equal(facade_json(f, "POST", "/v2/sandboxes", "{\"templateID\":\"mcp-gateway\"}", &b), 404);
    assert_has(&b, "cove template build --name mcp-gateway DIRECTORY");
    assert_int_equal(facade_json(f, "POST", "/sandboxes", "{\"templateID\":\"misspelt\"}", &b), 404);
    assert_has(&b, "template 'misspelt' not found: 'cove template ls' lists");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_template_that_is_not_there_is_told_what_to_do, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(a_sandbox_is_made_seen_kept_and_killed, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(others_are_answered_while_a_log_is_searched, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(a_time_that_is_over_ends_it, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(lists_are_filtered_ordered_and_paged, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(only_the_key_opens, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(malformed_requests_are_told_what_is_wrong, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(what_comes_later_says_so, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(templates_are_told, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(a_repeated_request_makes_one_sandbox, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(a_client_that_left_gets_its_sandbox_all_the_same, facade_setup,
                                        facade_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
