/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/access.h"
#include "api/kit/test_facade.h"
#include "api/mcp/handlers.h"
#include "base/mem.h"
#include "sandbox/key.h"
#include "sandbox/tenant.h"

#include <stdio.h>
#include <unistd.h>

#define KEY "Authorization: Bearer key-of-the-tests\r\nContent-Type: application/json\r\n"
#define META(capabilities)                                                                                             \
    "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\"io.modelcontextprotocol/"                 \
    "clientCapabilities\":{" capabilities "}}"
#define STATELESS KEY "MCP-Protocol-Version: 2026-07-28\r\n"

static int setup(void **state)
{
    struct test_facade *f = facade_open();
    struct mcp *m = mcp_new(&(struct mcp_config){.core = f->w->core, .events = f->w->events, .version = "1"});
    key_set_builtin(f->w->core, STR("key-of-the-tests"));
    facade_claim(f, &(struct claim){.prefix = MCP_PATH, .serve = mcp_serve, .facade = m});
    *state = f;
    return 0;
}

static void free_facade(void *facade)
{
    mcp_free(facade);
}

static int teardown(void **state)
{
    return facade_close(*state, free_facade);
}

static int post(struct test_facade *f, const char *headers, const char *body, struct buf *ret_body)
{
    return facade_call(f, "POST", MCP_PATH, headers, str_of(body), NULL, ret_body);
}

static json_t *json_of(const struct buf *b)
{
    json_t *json = json_loadb(buf_data(b), buf_len(b), 0, NULL);
    if (!json)
        fail_msg("no JSON: %.*s", STR_ARG(buf_str(b)));
    return json;
}

/* "Mcp-Session-Id: ...": of a session that was just made. */
static char *session_header(struct test_facade *f, const char *capabilities)
{
    AUTO_BUF struct buf head = BUF_INIT(4096), b = BUF_INIT(1 << 20);
    AUTO_FREE char *body =
        mem_printf("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":"
                   "\"2025-06-18\",\"capabilities\":{%s},\"clientInfo\":{\"name\":\"t\",\"version\":\"1\"}}}",
                   capabilities);
    assert_int_equal(facade_call(f, "POST", MCP_PATH, KEY, str_of(body), &head, &b), 200);
    assert_has(&b, "\"protocolVersion\":\"2025-06-18\"");
    const char *at = strstr(buf_data(&head), "mcp-session-id: ");
    assert_non_null(at);
    return mem_printf(KEY "Mcp-Session-Id: %.*s\r\n", MCP_ID_LEN, at + strlen("mcp-session-id: "));
}

/* A tool in the session era; its structured content, or NULL when it was an error, of which *b has the text. */
static json_t *tool(struct test_facade *f, const char *headers, const char *name, const char *args, struct buf *b)
{
    AUTO_FREE char *body = mem_printf(
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"%s\",\"arguments\":{%s}}}",
        name, args);
    if (post(f, headers, body, b) != 200)
        fail_msg("%s: %.*s", name, STR_ARG(buf_str(b)));
    json_t *answer = json_of(b), *result = json_object_get(answer, "result"), *content = NULL;
    if (!json_is_true(json_object_get(result, "isError")))
        content = json_incref(json_object_get(result, "structuredContent"));
    json_decref(answer);
    return content;
}

static const char *sandbox_made(struct test_facade *f, const char *headers, const char *args,
                                char ret_id[ID_SANDBOX_LEN + 1])
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    AUTO_JSON json_t *made = tool(f, headers, "sandbox_create", args, &b);
    memcpy(ret_id, json_string_value(json_object_get(made, "sandbox")), ID_SANDBOX_LEN);
    ret_id[ID_SANDBOX_LEN] = 0;
    return ret_id;
}

static void who_has_no_key_gets_nothing(void **state)
{
    AUTO_BUF struct buf head = BUF_INIT(4096), b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    assert_int_equal(post(f, "Content-Type: application/json\r\n", "{}", &b), 401);
    assert_has(&b, "\"id\":null,\"error\":{\"code\":-32001,\"message\":\"an API key is needed: send it as");
    assert_int_equal(post(f, "Content-Type: application/json\r\nX-API-KEY: other\r\n", "{}", &b), 401);
    assert_int_equal(facade_call(f, "GET", MCP_PATH, KEY, STR_NULL, NULL, &b), 405);
    assert_int_equal(facade_call(f, "DELETE", MCP_PATH, KEY "Mcp-Session-Id: x\r\n", STR_NULL, NULL, &b), 404);
    assert_int_equal(
        facade_call(f, "DELETE", MCP_PATH, KEY "MCP-Protocol-Version: 2026-07-28\r\n", STR_NULL, &head, &b), 405);
    assert_has(&head, "allow: POST\r\n");
}

static void what_is_no_message_is_refused(void **state)
{
    static const struct {
        const char *headers, *body;
        int status;
        const char *says;
    } bad[] = {
        {KEY, "nonsense", 400, "-32700"},
        {KEY, "[]", 400, "-32700"},
        {KEY, "{\"id\":1,\"method\":\"ping\"}", 400, "-32600"},
        {KEY, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":[]}", 400, "-32600"},
        {KEY, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}", 400, "Mcp-Session-Id is missing"},
        {KEY "Mcp-Session-Id: x\r\n", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}", 404,
         "the session does not exist"},
        {KEY, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\"}", 400, "-32602"},
        {STATELESS, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{}}", 400, "-32602"},
        {KEY, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{" META("") "}}", 400, "-32020"},
        {STATELESS, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{" META("") "}}", 400,
         "mcp-method"},
        {STATELESS "Mcp-Method: tools/call\r\nMcp-Name: exec\r\n",
         "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"diff\"," META("") "}}", 400,
         "mcp-name"},
        {STATELESS "Mcp-Method: tools/call\r\nMcp-Name: =?base64?!?=\r\n",
         "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"diff\"," META("") "}}", 400,
         "mcp-name"},
        {STATELESS "Mcp-Method: ping\r\n",
         "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{" META("") "}}", 404, "-32601"},
        {KEY "Origin: http://evil.example\r\n", "{}", 403, "-32001"},
        {KEY "Origin: null\r\n", "{}", 403, "-32001"},
    };
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (post(f, bad[i].headers, bad[i].body, &b) != bad[i].status)
            fail_msg("%zu: %.*s", i, STR_ARG(buf_str(&b)));
        assert_has(&b, bad[i].says);
    }
    assert_int_equal(post(f, STATELESS "Origin: http://localhost:3000\r\nMcp-Method: server/discover\r\n",
                          "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{" META("") "}}",
                          &b),
                     200);
    assert_has(&b, "\"supportedVersions\":[\"2026-07-28\"");
    assert_int_equal(
        post(
            f, KEY "MCP-Protocol-Version: 2027-01-01\r\n",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":{\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":"
            "\"2027-01-01\",\"io.modelcontextprotocol/clientCapabilities\":{}}}}",
            &b),
        400);
    assert_has(&b, "-32022");
    assert_has(&b, "\"requested\":\"2027-01-01\"");
}

static void origins_are_told_apart(void **state)
{
    static const struct {
        const char *origin, *host, *domain;
        bool is_good;
    } cases[] = {
        {"http://localhost:1", "localhost:7070", NULL, true},
        {"http://127.0.0.1", "127.0.0.1:7070", NULL, true},
        {"http://[::1]:9", "[::1]:7070", NULL, true},
        {"http://10.1.2.3", "10.1.2.3:7070", NULL, true},
        {"http://10.1.2.4", "10.1.2.3:7070", NULL, false},
        {"http://evil.test:7070", "evil.test:7070", NULL, false},
        {"http://localhost", "evil.test:7070", NULL, false},
        {"https://box.a.test", "box.a.test", "a.test", true},
        {"https://a.test", "a.test", "a.test", true},
        {"https://xa.test", "xa.test", "a.test", false},
        {"https://evil.test", "box.a.test", "a.test", false},
        {"null", "localhost", NULL, false},
        {"http://localhost.evil.test", "localhost", NULL, false},
        {"http://[::1", "[::1", NULL, false},
        {"", "", NULL, false},
        {"http://", "localhost", NULL, false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        if (origin_is_good(str_of(cases[i].origin), str_of(cases[i].host), cases[i].domain) != cases[i].is_good)
            fail_msg("%s at %s", cases[i].origin, cases[i].host);
}

static void sandboxes_end_with_their_session(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    char kept[ID_SANDBOX_LEN + 1], ends[ID_SANDBOX_LEN + 1];
    AUTO_FREE char *one = session_header(f, ""), *other = session_header(f, "");
    sandbox_made(f, one, "\"keep\":true,\"metadata\":{\"a\":\"b\",\"cove.mcp/session\":\"x\"}", kept);
    sandbox_made(f, one, "", ends);
    assert_int_equal(facade_call(f, "DELETE", MCP_PATH, other, STR_NULL, NULL, &b), 204);
    assert_int_equal(sandbox_count(f->w->core), 2);
    AUTO_JSON json_t *all = tool(f, one, "sandbox_list", "", &b);
    assert_int_equal(json_array_size(json_object_get(all, "sandboxes")), 2);
    assert_null(memmem(buf_data(&b), buf_len(&b), "cove.mcp", 8));
    assert_int_equal(facade_call(f, "DELETE", MCP_PATH, one, STR_NULL, NULL, &b), 204);
    WAIT(f->w, sandbox_count(f->w->core) == 1);
    assert_non_null(sandbox_find(f->w->core, str_of(kept)));
    assert_int_equal(post(f, one, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}", &b), 404);
}

static void commands_and_files(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    AUTO_FREE char *s = session_header(f, "");
    char id[ID_SANDBOX_LEN + 1];
    sandbox_made(f, s, "", id);
    AUTO_FREE char *hi = mem_printf("\"sandbox\":\"%s\",\"argv\":[\"echo\",\"hi\"]", id);
    AUTO_JSON json_t *ran = tool(f, s, "exec", hi, &b);
    assert_int_equal(json_integer_value(json_object_get(ran, "exit_code")), 0);
    assert_string_equal(json_string_value(json_object_get(ran, "stdout")), "hi\n");
    /* The number is that of its exec.start. */
    AUTO_FREE char *start = mem_printf("\"sandbox\":\"%s\",\"from\":%s,\"kinds\":[\"exec.start\"]", id,
                                       json_string_value(json_object_get(ran, "exec")));
    AUTO_JSON json_t *events = tool(f, s, "events_since", start, &b);
    const json_t *first = json_array_get(json_object_get(events, "events"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "kind")), "exec.start");
    AUTO_FREE char *write = mem_printf("\"sandbox\":\"%s\",\"path\":\"/t/1\",\"content\":\"one two one\\n\"", id);
    json_decref(tool(f, s, "file_write", write, &b));
    AUTO_FREE char *twice = mem_printf("\"sandbox\":\"%s\",\"path\":\"/t/1\",\"search\":\"one\",\"replace\":\"1\"", id);
    assert_null(tool(f, s, "file_edit", twice, &b));
    assert_has(&b, "is in the file 2 times");
    AUTO_FREE char *second = mem_printf("%s,\"which\":\"2\"", twice);
    json_decref(tool(f, s, "file_edit", second, &b));
    AUTO_FREE char *read = mem_printf("\"environment_id\":\"%s\",\"target_file\":\"/t/1\",\"explanation\":\"x\"", id);
    AUTO_JSON json_t *content = tool(f, s, "environment_file_read", read, &b);
    assert_string_equal(json_string_value(json_object_get(content, "content")), "one two 1\n");
    AUTO_FREE char *typo = mem_printf("%s,\"linenumber\":3", hi);
    assert_null(tool(f, s, "exec", typo, &b));
    assert_has(&b, "invalid_argument");
    static const char *const elsewhere[] = {"propose", "environment_log", "environment_diff"};
    AUTO_FREE char *cell = mem_printf("\"sandbox\":\"%s\",\"code\":\"1\"", id);
    assert_null(tool(f, s, "run_code", cell, &b));
    assert_has(&b, "unimplemented");
    for (size_t i = 0; i < ARRAY_SIZE(elsewhere); i++) {
        assert_null(tool(f, s, elsewhere[i], "", &b));
        assert_has(&b, "unimplemented");
    }
    assert_null(tool(f, s, "exec", "\"sandbox\":\"i00000000000000000000\",\"command\":\"x\"", &b));
    assert_has(&b, "not_found");
}

/* ---- what is kept for all tenants ---- */

static void a_tenant_does_not_push_out_sessions_of_another(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    struct mcp *m = f->claims[0].facade;
    AUTO_FREE char *ours = session_header(f, "");
    for (size_t i = 1; i < MCP_SESSIONS_MAX; i++) {
        struct mcp_session *s = mem_new(struct mcp_session);
        (void)snprintf(s->id, sizeof(s->id), "%zu", i);
        s->actor = mem_printf("key %zu", i / 100);
        s->tenant = 99;
        s->last = clock_mono();
        list_init(&s->calls);
        list_append(&m->used, &s->node);
        (void)map_put(&m->sessions, str_of(s->id), s);
    }
    mem_free(session_header(f, ""));
    assert_int_equal(map_count(&m->sessions), MCP_SESSIONS_MAX);
    assert_null(map_get(&m->sessions, STR("1")));
    assert_int_equal(post(f, ours, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}", &b), 200);
}

/* Of a command that has ended, with its sandbox. */
static void job_done(struct test_facade *f, const char *headers, char ret_id[32])
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct mcp *m = f->claims[0].facade;
    char id[ID_SANDBOX_LEN + 1];
    const size_t n = m->n_ended;
    sandbox_made(f, headers, "", id);
    AUTO_FREE char *args = mem_printf("\"sandbox\":\"%s\",\"argv\":[\"true\"],\"background\":true", id);
    AUTO_JSON json_t *job = tool(f, headers, "exec", args, &b);
    if (!job)
        fail_msg("%.*s", STR_ARG(buf_str(&b)));
    (void)snprintf(ret_id, 32, "%s", json_string_value(json_object_get(job, "exec")));
    AUTO_FREE char *sandbox = mem_printf("\"sandbox\":\"%s\"", id);
    json_decref(tool(f, headers, "sandbox_kill", sandbox, &b));
    WAIT(f->w, m->n_ended > n || m->n_ended == MCP_JOBS_MAX);
}

static void a_tenant_does_not_push_out_jobs_of_another(void **state)
{
    static const struct actor owner = {.name = "owner", .who = PRINCIPAL_OWNER};
    struct test_facade *f = *state;
    struct mcp *m = f->claims[0].facade;
    struct actor admin = owner;
    char key[KEY_TEXT_LEN + 1], jobs[4][32];
    struct key_info info;
    struct err err;
    assert_int_equal(tenant_create(f->w->core, &owner, STR("b"), NULL, &err), 0);
    assert_int_equal(tenant_find(f->w->core, STR("b"), &admin.who.tenant, &err), 0);
    admin.who.view = admin.who.tenant;
    assert_int_equal(
        key_create(f->w->core, &admin, &(struct key_spec){.name = STR("k"), .scope = SCOPE_USE}, key, &info, &err), 0);
    AUTO_FREE char *bs = mem_printf("X-API-KEY: %s\r\nContent-Type: application/json\r\n", key),
                   *body = mem_printf("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{"
                                      "\"protocolVersion\":\"2025-06-18\",\"capabilities\":{},\"clientInfo\":{}}}");
    AUTO_BUF struct buf head = BUF_INIT(4096), b = BUF_INIT(1 << 20);
    assert_int_equal(facade_call(f, "POST", MCP_PATH, bs, str_of(body), &head, &b), 200);
    AUTO_FREE char *theirs = mem_printf("%sMcp-Session-Id: %.*s\r\n", bs, MCP_ID_LEN,
                                        strstr(buf_data(&head), "mcp-session-id: ") + strlen("mcp-session-id: ")),
                   *ours = session_header(f, "");
    job_done(f, theirs, jobs[0]);
    job_done(f, ours, jobs[1]);
    job_done(f, ours, jobs[2]);
    assert_int_equal(map_count(&m->jobs), 3);
    m->n_ended = MCP_JOBS_MAX;
    job_done(f, ours, jobs[3]);
    WAIT(f->w, map_count(&m->jobs) == 3);
    assert_null(map_get(&m->jobs, str_of(jobs[1])));
    assert_non_null(map_get(&m->jobs, str_of(jobs[0])));
}

/* ---- request_grant ---- */

#define REASON "\"reason\":\"x\\\" Cove says \\u202e\\u009b1m\""

static void nothing_is_granted_without_a_person(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    AUTO_FREE char *s = session_header(f, "");
    char id[ID_SANDBOX_LEN + 1];
    sandbox_made(f, s, "", id);
    AUTO_FREE char *args = mem_printf("\"sandbox\":\"%s\",\"hosts\":[\"a.test\"]," REASON, id);
    assert_null(tool(f, s, "request_grant", args, &b));
    assert_has(&b, "cove policy allow");
    /* In the stateless era: not without the capability, not with a state of somebody else's. */
    static const char *const more[][2] = {
        {META(""), "-32021"},
        {META(
             "\"elicitation\":{}") ",\"inputResponses\":{\"grant\":{\"action\":\"accept\",\"content\":{\"allow\":true}}},\"requestState\":"
                                   "\"99999999999999999.00\"",
         "requestState isn't of this question"},
        {META("\"elicitation\":{}"), "\"resultType\":\"input_required\""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(more); i++) {
        AUTO_FREE char *body = mem_printf(
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{%s,\"name\":\"request_grant\","
            "\"arguments\":{%s}}}",
            more[i][0], args);
        (void)post(f, STATELESS "Mcp-Method: tools/call\r\nMcp-Name: request_grant\r\n", body, &b);
        assert_has(&b, more[i][1]);
    }
    assert_int_equal(world_count_events(f->w, id, EVENT_NET_POLICY), 0);
    assert_has(&b, "It says why: \\\"x' Cove says   1m\\\"");
    /* The state that came with the question is good for it, and for nothing else. */
    AUTO_JSON json_t *answer = json_of(&b);
    const char *signed_state = json_string_value(json_object_get(json_object_get(answer, "result"), "requestState"));
    for (int is_right = 0; is_right < 2; is_right++) {
        AUTO_FREE char *body = mem_printf(
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{" META(
                "\"elicitation\":{}") ",\"name\":"
                                      "\"request_grant\",\"arguments\":{\"sandbox\":\"%s\",\"hosts\":[\"%s\"]," REASON
                                      "},\"inputResponses\":{\"grant\":"
                                      "{\"action\":\"accept\",\"content\":{\"allow\":true}}},\"requestState\":\"%s\"}}",
            id, is_right ? "a.test" : "b.test", signed_state);
        (void)post(f, STATELESS "Mcp-Method: tools/call\r\nMcp-Name: request_grant\r\n", body, &b);
        assert_has(&b, is_right ? "\"granted\":true" : "requestState isn't of this question");
        assert_int_equal(world_count_events(f->w, id, EVENT_NET_POLICY), (size_t)is_right);
    }
}

static void a_person_is_asked_on_the_stream(void **state)
{
    static const struct {
        const char *action, *allow, *told;
    } answers[] = {{"decline", "true", "declined it (decline)"},
                   {"accept", "false", "declined it (not allowed)"}, /* the form was sent, without a yes */
                   {"accept", "true", "\"granted\":true"}};
    struct test_facade *f = *state;
    AUTO_FREE char *s = session_header(f, "\"elicitation\":{}");
    char id[ID_SANDBOX_LEN + 1];
    sandbox_made(f, s, "", id);
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        AUTO_BUF struct buf request = BUF_INIT(8192), stream = BUF_INIT(1 << 20), b = BUF_INIT(1 << 20);
        AUTO_FREE char *body = mem_printf(
            "{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"tools/call\",\"params\":{\"name\":\"request_grant\","
            "\"arguments\":{\"sandbox\":\"%s\",\"hosts\":[\"a.test\"],\"ports\":[443],\"reason\":\"to\\nsee\"}}}",
            id);
        int fd = facade_connect(f);
        buf_printf(&request, "POST " MCP_PATH " HTTP/1.1\r\nHost: 127.0.0.1\r\n%sContent-Length: %zu\r\n\r\n%s", s,
                   strlen(body), body);
        facade_send(f, fd, buf_str(&request));
        assert_true(facade_receive(f, fd, &stream, "\"required\":[\"allow\"]"));
        assert_has(&stream, "elicitation/create");
        assert_has(&stream, "on ports [443]. It says why: \\\"to see\\\"");
        const char *asked = memmem(buf_data(&stream), buf_len(&stream), "\"id\":\"", 6);
        assert_non_null(asked);
        AUTO_FREE char *answer = mem_printf(
            "{\"jsonrpc\":\"2.0\",\"id\":\"%.*s\",\"result\":{\"action\":\"%s\",\"content\":{\"allow\":%s}}}",
            MCP_ID_LEN, asked + 6, answers[i].action, answers[i].allow);
        AUTO_FREE char *stranger = session_header(f, "\"elicitation\":{}");
        assert_int_equal(post(f, stranger, answer, &b), 400); /* another session was not asked */
        assert_int_equal(post(f, s, answer, &b), 202);
        assert_true(facade_receive(f, fd, &stream, answers[i].told));
        assert_int_equal(world_count_events(f->w, id, EVENT_NET_POLICY), i == 2);
        assert_int_equal(post(f, s, answer, &b), 400); /* once */
        (void)close(fd);
    }
}

/* What a client cancels, or leaves, is killed. */
static void a_cancelled_command_ends(void **state)
{
    AUTO_BUF struct buf request = BUF_INIT(8192), stream = BUF_INIT(1 << 20), b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    AUTO_FREE char *s = session_header(f, "");
    char id[ID_SANDBOX_LEN + 1];
    sandbox_made(f, s, "", id);
    AUTO_FREE char *body = mem_printf(
        "{\"jsonrpc\":\"2.0\",\"id\":\"c\",\"method\":\"tools/call\",\"params\":{\"_meta\":{\"progressToken\":5},"
        "\"name\":\"exec\",\"arguments\":{\"sandbox\":\"%s\",\"argv\":[\"cat\"]}}}",
        id);
    int fd = facade_connect(f);
    buf_printf(&request, "POST " MCP_PATH " HTTP/1.1\r\nHost: 127.0.0.1\r\n%sContent-Length: %zu\r\n\r\n%s", s,
               strlen(body), body);
    facade_send(f, fd, buf_str(&request));
    WAIT(f->w, world_count_events(f->w, id, EVENT_EXEC_STARTED) == 1);
    assert_int_equal(
        post(f, s, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":\"c\"}}", &b),
        202);
    facade_receive(f, fd, &stream, NULL);
    assert_null(memmem(buf_data(&stream) ? buf_data(&stream) : "", buf_len(&stream), "result", 6));
    WAIT(f->w, world_count_events(f->w, id, EVENT_EXEC_SIGNAL) == 1);
    (void)close(fd);
}

static void who_forks_may_leave(void **state)
{
    AUTO_BUF struct buf request = BUF_INIT(8192);
    struct test_facade *f = *state;
    AUTO_FREE char *s = session_header(f, "");
    char id[ID_SANDBOX_LEN + 1];
    sandbox_made(f, s, "\"keep\":true", id);
    AUTO_FREE char *body =
        mem_printf("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"fork\","
                   "\"arguments\":{\"sandbox\":\"%s\",\"count\":2}}}",
                   id);
    int fd = facade_connect(f);
    buf_printf(&request, "POST " MCP_PATH " HTTP/1.1\r\nHost: 127.0.0.1\r\n%sContent-Length: %zu\r\n\r\n%s", s,
               strlen(body), body);
    f->w->holds = true;
    facade_send(f, fd, buf_str(&request));
    WAIT(f->w, f->w->snapshots == 1);
    (void)close(fd);
    world_turns(f->w, 50);
    f->w->holds = false;
    world_answer_stored(f->w, 0);
    WAIT(f->w, f->w->creates == 3);
    world_turns(f->w, 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_has_no_key_gets_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_no_message_is_refused, setup, teardown),
        cmocka_unit_test(origins_are_told_apart),
        cmocka_unit_test_setup_teardown(sandboxes_end_with_their_session, setup, teardown),
        cmocka_unit_test_setup_teardown(commands_and_files, setup, teardown),
        cmocka_unit_test_setup_teardown(a_tenant_does_not_push_out_sessions_of_another, setup, teardown),
        cmocka_unit_test_setup_teardown(a_tenant_does_not_push_out_jobs_of_another, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_is_granted_without_a_person, setup, teardown),
        cmocka_unit_test_setup_teardown(a_person_is_asked_on_the_stream, setup, teardown),
        cmocka_unit_test_setup_teardown(a_cancelled_command_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(who_forks_may_leave, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
