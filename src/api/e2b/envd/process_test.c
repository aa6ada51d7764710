/* SPDX-License-Identifier: Apache-2.0 */
/* process.Process and what surrounds it, against agents that do as they are told. */
#include "api/e2b/test_e2b.h"
#include "base/fd.h"
#include "http/client/connect.h"
#include "http/gzip.h"

#include <poll.h>
#include <stdio.h>

static void a_process_streams_from_start_to_end(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(64 << 20), lines = BUF_INIT(64 << 20);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    assert_int_equal(
        facade_stream(f, sb, "/process.Process/Start",
                      "{\"process\":{\"cmd\":\"echo\",\"args\":[\"hi\"],\"envs\":{\"K\":\"V\"}},\"stdin\":false}", &b),
        200);
    facade_messages(&b, &lines);
    assert_is(&lines, "0 {\"event\":{\"start\":{\"pid\":101}}}\n"
                      "0 {\"event\":{\"data\":{\"stdout\":\"aGkK\"}}}\n"
                      "0 {\"event\":{\"end\":{\"exited\":true,\"status\":\"exit status 0\"}}}\n"
                      "2 {}\n");
    assert_non_null(strstr(world_agent(f->w, sb)->last_env, "K=V;"));

    assert_int_equal(
        facade_stream(f, sb, "/process.Process/Start", "{\"process\":{\"cmd\":\"count\",\"args\":[\"3000000\"]}}", &b),
        200);
    facade_messages(&b, &lines);
    assert_has(&lines, "\"exitCode\":3");
    assert_true(buf_len(&lines) > 4000000);

    assert_int_equal(facade_stream(f, sb, "/process.Process/Start", "{\"process\":{\"cmd\":\"fail\"}}", &b), 200);
    facade_messages(&b, &lines);
    assert_is(&lines, "2 {\"error\":{\"code\":\"invalid_argument\",\"message\":\"cwd '/nowhere' does not exist\"}}\n");
}

static int start(struct test_facade *f, struct sandbox *sb, const char *message)
{
    AUTO_BUF struct buf request = BUF_INIT(65536), body = BUF_INIT(65536);
    int fd = facade_connect(f);
    facade_envelope(&body, str_of(message));
    buf_printf(&request,
               "POST /process.Process/Start HTTP/1.1\r\nHost: localhost\r\n%sContent-Type: application/connect+json\r\n"
               "Content-Length: %zu\r\n\r\n",
               facade_headers(sb, 49983), buf_len(&body));
    buf_append_str(&request, buf_str(&body));
    facade_send(f, fd, buf_str(&request));
    return fd;
}

static void a_client_that_does_not_read_holds_its_process_and_loses_nothing(void **state)
{
    AUTO_BUF struct buf answer = BUF_INIT(64 << 20);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    struct fake_agent *a = world_agent(f->w, sb);
    AUTO_CLOSE int fd = start(f, sb, "{\"process\":{\"cmd\":\"count\",\"args\":[\"24000000\"]}}");
    uint64_t sent, seen, before = 1;
    /* Until nothing moves: sockets and queues are full. */
    while (!a->processes || a->processes->sent != before) {
        before = a->processes ? a->processes->sent : 1;
        world_turns(f->w, 300);
    }
    sent = a->processes->sent;
    assert_true(sent > WIRE_WINDOW && sent < 20000000);
    assert_true(a->most_outstanding <= WIRE_WINDOW);

    /*
     * What was given back as delivered would arrive if this process died now: the kernel has it. In base64 it is
     * longer.
     */
    seen = a->processes->seen;
    while (poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 300) == 1) {
        char *to = buf_reserve(&answer, 65536);
        ssize_t n = recv(fd, to, 65536, 0);
        assert_true(n > 0);
        buf_commit(&answer, (size_t)n);
    }
    assert_true(seen > 0 && seen <= buf_len(&answer) / 4 * 3);
    facade_receive(f, fd, &answer, "\"exitCode\":3");
    assert_int_equal(a->processes->sent, 24000000);
    assert_true(buf_len(&answer) > 32000000);
}

static void a_sandbox_that_dies_ends_its_streams(void **state)
{
    AUTO_BUF struct buf answer = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    AUTO_CLOSE int fd = start(f, sb, "{\"process\":{\"cmd\":\"spew\",\"args\":[\"10\"]}}");
    char headers[512];
    snprintf(headers, sizeof(headers), "%s", facade_headers(sb, 49983));
    facade_receive(f, fd, &answer, "\"stdout\"");
    assert_int_equal(facade_call(f, "GET", "/health", headers, STR_NULL, NULL, &answer), 204);
    world_end_agent(f->w, world_agent(f->w, sb), SUP_CAUSE_SIGNALED);
    facade_receive(f, fd, &answer, "\r\n0\r\n\r\n");
    assert_has(
        &answer,
        "{\"error\":{\"code\":\"unavailable\",\"message\":\"the sandbox was killed or reached its end of life\"}}");

    assert_int_equal(facade_call(f, "GET", "/health", headers, STR_NULL, NULL, &answer), 502);
    assert_has(&answer, "\"message\":\"The sandbox was not found\",\"code\":502}");
}

static void a_process_outlives_its_client_and_is_found_again(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), headers = BUF_INIT(1024), lines = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    struct fake_agent *a = world_agent(f->w, sb);
    int fd = start(f, sb, "{\"process\":{\"cmd\":\"cat\"},\"tag\":\"t\"}");
    facade_receive(f, fd, &b, "\"pid\":101");
    fd_close(fd);
    world_turns(f->w, 50);
    buf_printf(&headers, "%sContent-Type: application/json\r\n%c", facade_headers(sb, 49983), 0);
    assert_int_equal(facade_call(f, "POST", "/process.Process/List", buf_data(&headers), STR("{}"), NULL, &b), 200);
    assert_has(&b, "\"pid\":101,\"tag\":\"t\"");
    assert_int_equal(facade_call(f, "POST", "/process.Process/SendInput", buf_data(&headers),
                                 STR("{\"process\":{\"tag\":\"t\"},\"input\":{\"stdin\":\"aGVsbG8=\"}}"), NULL, &b),
                     200);
    assert_is(&b, "{}");
    assert_int_equal(facade_call(f, "POST", "/process.Process/SendSignal", buf_data(&headers),
                                 STR("{\"process\":{\"pid\":101},\"signal\":\"SIGNAL_SIGKILL\"}"), NULL, &b),
                     200);
    assert_int_equal(a->signals, 1);
    assert_int_equal(facade_stream(f, sb, "/process.Process/Connect", "{\"process\":{\"pid\":101}}", &b), 200);
    facade_messages(&b, &lines);
    assert_has(&lines, "0 {\"event\":{\"start\":{\"pid\":101}}}\n");
    assert_has(&lines, "signal: killed");
    assert_int_equal(facade_stream(f, sb, "/process.Process/Connect", "{\"process\":{\"pid\":7}}", &b), 200);
    facade_messages(&b, &lines);
    assert_has(&lines, "2 {\"error\":{\"code\":\"not_found\"");
    assert_int_equal(facade_call(f, "POST", "/process.Process/SendSignal", buf_data(&headers),
                                 STR("{\"process\":{\"pid\":7},\"signal\":9}"), NULL, &b),
                     404);
    assert_has(&b, "{\"code\":\"not_found\"");
}

static void input_can_be_a_stream(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), body = BUF_INIT(1 << 20), headers = BUF_INIT(1024),
                        lines = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    struct fake_agent *a = world_agent(f->w, sb);
    AUTO_CLOSE int fd = start(f, sb, "{\"process\":{\"cmd\":\"cat\"}}");
    facade_receive(f, fd, &b, "\"pid\":101");
    buf_printf(&headers, "%sContent-Type: application/connect+json\r\n%c", facade_headers(sb, 49983), 0);
    facade_envelope(&body, STR("{\"start\":{\"process\":{\"pid\":101}}}"));
    for (int i = 0; i < 200; i++)
        facade_envelope(&body, STR("{\"data\":{\"input\":{\"stdin\":\"YWJj\"}}}"));
    facade_envelope(&body, STR("{\"keepalive\":{}}"));
    assert_int_equal(
        facade_call(f, "POST", "/process.Process/StreamInput", buf_data(&headers), buf_str(&body), NULL, &b), 200);
    facade_messages(&b, &lines);
    assert_is(&lines, "0 {}\n2 {}\n");
    assert_int_equal(buf_len(&a->processes->output), 600);

    buf_clear(&body);
    facade_envelope(&body, STR("{\"start\":{\"process\":{\"pid\":9}}}"));
    assert_int_equal(
        facade_call(f, "POST", "/process.Process/StreamInput", buf_data(&headers), buf_str(&body), NULL, &b), 200);
    facade_messages(&b, &lines);
    assert_has(&lines, "not_found");
    buf_clear(&body);
    facade_envelope(&body, STR("{\"data\":{\"input\":{\"stdin\":\"YWJj\"}}}"));
    assert_int_equal(
        facade_call(f, "POST", "/process.Process/StreamInput", buf_data(&headers), buf_str(&body), NULL, &b), 200);
    facade_messages(&b, &lines);
    assert_has(&lines, "invalid_argument");
    assert_int_equal(
        facade_call(f, "POST", "/process.Process/StreamInput", buf_data(&headers), STR("\0\0\0\0\x09{}"), NULL, &b),
        200);
    facade_messages(&b, &lines);
    assert_has(&lines, "protocol error");

    /* Each start leaves something behind for as long as the stream lives. */
    buf_clear(&body);
    for (int i = 0; i < 2; i++)
        facade_envelope(&body, STR("{\"start\":{\"process\":{\"pid\":101}}}"));
    assert_int_equal(
        facade_call(f, "POST", "/process.Process/StreamInput", buf_data(&headers), buf_str(&body), NULL, &b), 200);
    facade_messages(&b, &lines);
    assert_has(&lines, "has begun already");
}

static void bad_envelope(struct test_facade *f, struct sandbox *sb, struct str body, const char *because)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), headers = BUF_INIT(1024), lines = BUF_INIT(1 << 20);
    buf_printf(&headers, "%sContent-Type: application/connect+json\r\n%c", facade_headers(sb, 49983), 0);
    assert_int_equal(facade_call(f, "POST", "/process.Process/Start", buf_data(&headers), body, NULL, &b), 200);
    facade_messages(&b, &lines);
    assert_has(&lines, "2 {\"error\":{\"code\":");
    assert_has(&lines, because);
}

static void bad_envelopes_end_their_stream_with_an_error(void **state)
{
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    bad_envelope(f, sb, STR(""), "unimplemented");
    bad_envelope(f, sb, STR("\0\0\0"), "invalid_argument");
    bad_envelope(f, sb, STR("\0\0\0\0\x07{}"), "invalid_argument");
    bad_envelope(f, sb, STR("\0\xff\xff\xff\xff{}"), "resource_exhausted");
    bad_envelope(f, sb, STR("\1\0\0\0\2{}"), "internal");
    bad_envelope(f, sb, STR("\2\0\0\0\2{}"), "invalid_argument");
    bad_envelope(f, sb, STR("\0\0\0\0\2{}\0\0\0\0\2{}"), "invalid_argument");
    bad_envelope(f, sb, STR("\0\0\0\0\0"), "zero-length");
    bad_envelope(f, sb, STR("\0\0\0\0\2[]"), "must be an object");
    bad_envelope(f, sb, STR("\0\0\0\0\7{\"a\":1,"), "invalid JSON");
}

static void unary(struct test_facade *f, const char *headers, const char *path, const char *body, int status,
                  const char *because)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    assert_int_equal(facade_call(f, "POST", path, headers, str_of(body), NULL, &b), status);
    assert_has(&b, because);
}

static void bad_calls_are_told_what_is_wrong(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), head = BUF_INIT(16384);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    char routing[512], json[600], bare[256];
    const char *list = "/process.Process/List";
    snprintf(routing, sizeof(routing), "%s", facade_headers(sb, 49983));
    snprintf(json, sizeof(json), "%sContent-Type: application/json\r\n", routing);
    snprintf(bare, sizeof(bare), "E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 49983\r\nContent-Type: application/json\r\n",
             sandbox_info(sb)->id);
    unary(f, json, list, "{}", 200, "{");
    unary(f, json, list, "", 400, "zero-length payload");
    unary(f, json, list, "{\"a\":1,\"a\":2}", 400, "unmarshal message");
    unary(f, routing, list, "{}", 415, "");
    unary(f, bare, list, "{}", 401, "unauthorized access");
    unary(f, json, "/process.Process/Nothing", "{}", 404, "page not found");
    unary(f, json, "/process.Process/SendInput", "{}", 501, "unimplemented");
    unary(f, json, "/process.Process/SendInput", "{\"process\":{\"pid\":1},\"input\":{\"stdin\":\"?\"}}", 400,
          "base64");
    unary(f, json, "/process.Process/Update", "{\"process\":{\"pid\":1}}", 200, "{}");
    unary(f, json, "/init", "{}", 404, "\"code\":404}");
    unary(f, json, "/./init", "{}", 404, "\"code\":404}");
    unary(f, "E2b-Sandbox-Id: inothing\r\nE2b-Sandbox-Port: 49983\r\n", list, "{}", 502,
          "{\"sandboxId\":\"inothing\",\"message\":\"The sandbox was not found\",\"code\":502}");
    unary(f, "E2b-Sandbox-Id: inothing\r\n", list, "{}", 400, "missing header");
    snprintf(json, sizeof(json), "%sContent-Type: application/json\r\nConnect-Protocol-Version: 2\r\n", routing);
    unary(f, json, list, "{}", 400, "connect-protocol-version");
    snprintf(json, sizeof(json), "%sContent-Type: application/json\r\nConnect-Timeout-Ms: 0\r\n", routing);
    unary(f, json, list, "{}", 504, "deadline_exceeded");
    snprintf(json, sizeof(json), "%sContent-Type: application/json\r\nConnect-Timeout-Ms: soon\r\n", routing);
    unary(f, json, list, "{}", 400, "parse timeout");
    snprintf(json, sizeof(json), "%sContent-Type: application/json\r\nContent-Encoding: br\r\n", routing);
    unary(f, json, list, "{}", 501, "unknown compression");

    assert_int_equal(facade_call(f, "GET", list, routing, STR_NULL, &head, &b), 405);
    assert_has(&head, "allow: POST");
    assert_int_equal(facade_call(f, "OPTIONS", list,
                                 "E2b-Sandbox-Id: iabc\r\nE2b-Sandbox-Port: 49983\r\nOrigin: http://x\r\n"
                                 "Access-Control-Request-Method: POST\r\n",
                                 STR_NULL, &head, &b),
                     502);
    snprintf(json, sizeof(json),
             "%sOrigin: http://x\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: a, b\r\n",
             bare);
    assert_int_equal(facade_call(f, "OPTIONS", list, json, STR_NULL, &head, &b), 204);
    assert_has(&head, "access-control-allow-headers: a, b");
}

static void a_mute_agent_meets_the_deadline(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), headers = BUF_INIT(1024), lines = BUF_INIT(1 << 20),
                        body = BUF_INIT(1024);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    world_agent(f->w, sb)->deaf = true;
    fake_flush(world_agent(f->w, sb));
    buf_printf(&headers, "%sContent-Type: application/json\r\nConnect-Timeout-Ms: 50\r\n%c", facade_headers(sb, 49983),
               0);
    assert_int_equal(facade_call(f, "POST", "/process.Process/List", buf_data(&headers), STR("{}"), NULL, &b), 504);
    assert_int_equal(
        facade_call(f, "POST", "/filesystem.Filesystem/Stat", buf_data(&headers), STR("{\"path\":\"a\"}"), NULL, &b),
        504);
    buf_clear(&headers);
    buf_printf(&headers, "%sContent-Type: application/connect+json\r\nConnect-Timeout-Ms: 50\r\n%c",
               facade_headers(sb, 49983), 0);
    facade_envelope(&body, STR("{\"process\":{\"cmd\":\"echo\"}}"));
    assert_int_equal(facade_call(f, "POST", "/process.Process/Start", buf_data(&headers), buf_str(&body), NULL, &b),
                     200);
    facade_messages(&b, &lines);
    assert_has(&lines, "deadline_exceeded");
}

/* {"process":{"pid":101},"input":{"stdin":"<n bytes 'abc...' in base64>"}} and what the end is. */
static void long_input(struct buf *b, const char *begin, size_t n, const char *end)
{
    buf_clear(b);
    buf_append_cstr(b, begin);
    for (size_t i = 0; i < n; i += 3)
        buf_append_cstr(b, "YWJj");
    buf_append_cstr(b, end);
}

static void input_may_be_longer_than_what_is_kept_of_it(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), body = BUF_INIT(64 << 20), json = BUF_INIT(1024);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    struct fake_agent *a = world_agent(f->w, sb);
    AUTO_CLOSE int fd = start(f, sb, "{\"process\":{\"cmd\":\"cat\"},\"tag\":\"t\"}");
    const char *headers, *path = "/process.Process/SendInput",
                         *begin = "{\"process\":{\"pid\":101},\"input\":{\"stdin\":\"";
    const char *const wrong[][3] = {
        {"{\"process\":{\"pid\":101},\"input\":{\"stdin\":\"", "\"},\"more\":1}", "must be last"},
        {"{\"process\":{\"pid\":101},\"input\":{\"stdin\":\"", "\"}}}", "must be last"},
        {"{\"process\":{\"pid\":101},\"input\":{\"stdin\":\"", "\"}", "unexpected end"},
        {"{\"process\":{\"pid\":101},\"input\":{\"stdin\":\"", "", "unexpected end"},
        {"{\"process\":{\"pid\":101},\"input\":{\"stdin\":\"", "====\"}}", "not base64"},
        {"{\"process\":{\"pid\":101},\"input\":{\"stdin\":\"", "\\n\"}}", "not base64"},
        {"{\"input\":{\"stdin\":\"", "\"},\"process\":{\"pid\":101}}", "the input is last"},
        {"{\"process\":{\"pid\":7},\"input\":{\"stdin\":\"", "\"}}", "not found"},
        {"{\"process\":{\"pid\":101},\"input\":{\"stdin\":\"YWJj\"},\"other\":\"", "\"}", "too large"},
        {"{\"process\":{\"pid\":101},\"input\":{\"stdin\":[\"", "\"]}}", "too large"},
        {"[\"", "\"]", "too large"},
    };

    facade_receive(f, fd, &b, "\"pid\":101");
    buf_printf(&json, "%sContent-Type: application/json\r\n%c", facade_headers(sb, 49983), 0);
    headers = buf_data(&json);
    long_input(&body, begin, 12000000, "YWI=\" } }\r\n");
    assert_int_equal(facade_call(f, "POST", path, headers, buf_str(&body), NULL, &b), 200);
    assert_is(&b, "{}");
    assert_int_equal(buf_len(&a->processes->output), 12000002);

    long_input(&body, "{\"process\":{\"tag\":\"t\"},\"input\":{\"stdin\":\"", 3000000, "\\/\\/\\/\\/\"}}");
    assert_int_equal(facade_call(f, "POST", path, headers, buf_str(&body), NULL, &b), 200);
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        long_input(&body, wrong[i][0], 2000000, wrong[i][1]);
        assert_true(facade_call(f, "POST", path, headers, buf_str(&body), NULL, &b) >= 400);
        assert_has(&b, wrong[i][2]);
    }
    unary(f, headers, path, "{\"process\":{\"tag\":\"t\"},\"input\":{\"stdin\":\"YWJj\"}}", 200, "{}");
}

static void messages_may_be_compressed(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(16 << 20), body = BUF_INIT(64 << 20), packed = BUF_INIT(1 << 20),
                        head = BUF_INIT(16384), plain = BUF_INIT(1 << 20), lines = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    char headers[700];
    const char *list = "/process.Process/List";
    snprintf(headers, sizeof(headers), "%sContent-Type: application/json\r\nContent-Encoding: gzip\r\n",
             facade_headers(sb, 49983));
    assert_int_equal(gzip_append(&packed, STR("{}"), 6), 0);
    assert_int_equal(facade_call(f, "POST", list, headers, buf_str(&packed), NULL, &b), 200);
    assert_int_equal(facade_call(f, "POST", list, headers, STR("{}"), NULL, &b), 400);
    assert_has(&b, "not gzip");
    for (int i = 0; i < 8 << 20; i++)
        buf_append_char(&body, ' ');
    buf_clear(&packed);
    assert_int_equal(gzip_append(&packed, buf_str(&body), 9), 0);
    assert_int_equal(facade_call(f, "POST", list, headers, buf_str(&packed), NULL, &b), 429);
    assert_int_equal(facade_call(f, "POST", "/process.Process/SendInput", headers, buf_str(&packed), NULL, &b), 429);

    /* A stream, both ways. */
    snprintf(
        headers, sizeof(headers),
        "%sContent-Type: application/connect+json\r\nConnect-Content-Encoding: gzip\r\nConnect-Accept-Encoding: gzip\r\n",
        facade_headers(sb, 49983));
    buf_clear(&packed);
    buf_clear(&body);
    assert_int_equal(gzip_append(&packed, STR("{\"process\":{\"cmd\":\"count\",\"args\":[\"9000\"]}}"), 6), 0);
    assert_int_equal(connect_append(&body, CONNECT_FLAG_COMPRESSED, buf_str(&packed)), 0);
    assert_int_equal(facade_call(f, "POST", "/process.Process/Start", headers, buf_str(&body), &head, &b), 200);
    assert_has(&head, "connect-content-encoding: gzip");
    facade_messages(&b, &lines);
    assert_has(&lines, "0 {\"event\":{\"start\"");
    assert_has(&lines, "\"exitCode\":3");
    for (struct str in = buf_str(&b); in.n;) {
        const uint8_t *p = (const uint8_t *)in.p;
        size_t n = (size_t)p[3] << 8 | p[4];
        if (p[0] == 1)
            assert_int_equal(gunzip_append(&plain, str_n(in.p + 5, n)), 0);
        in = str_sub(in, 5 + n);
    }
    assert_has(&plain, "{\"event\":{\"data\":{\"stdout\":\"");
    assert_true(buf_len(&plain) > 12000);
}

static void a_program_that_is_not_there_ends_as_in_a_shell(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), lines = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    assert_int_equal(facade_stream(f, sb, "/process.Process/Start", "{\"process\":{\"cmd\":\"missing\"}}", &b), 200);
    facade_messages(&b, &lines);
    assert_has(&lines, "0 {\"event\":{\"start\":{\"pid\":");
    assert_has(&lines, "0 {\"event\":{\"end\":{\"exitCode\":127,");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(input_may_be_longer_than_what_is_kept_of_it, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(messages_may_be_compressed, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(a_program_that_is_not_there_ends_as_in_a_shell, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(a_process_streams_from_start_to_end, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(a_client_that_does_not_read_holds_its_process_and_loses_nothing, facade_setup,
                                        facade_teardown),
        cmocka_unit_test_setup_teardown(a_sandbox_that_dies_ends_its_streams, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(a_process_outlives_its_client_and_is_found_again, facade_setup,
                                        facade_teardown),
        cmocka_unit_test_setup_teardown(input_can_be_a_stream, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(bad_envelopes_end_their_stream_with_an_error, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(bad_calls_are_told_what_is_wrong, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(a_mute_agent_meets_the_deadline, facade_setup, facade_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
