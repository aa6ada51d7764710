/* SPDX-License-Identifier: Apache-2.0 */
/* The network of a sandbox as SDKs set, change and see it, and who may reach its ports. */
#include "api/e2b/test_e2b.h"
#include "api/e2b/traffic.h"
#include "base/fd.h"

#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>

static void id_of(const struct buf *body, char ret_id[static ID_SANDBOX_LEN + 1])
{
    static const char name[] = "\"sandboxID\":\"";
    const char *at = memmem(buf_data(body), buf_len(body), name, strlen(name));
    assert_non_null(at);
    memcpy(ret_id, at + strlen(name), ID_SANDBOX_LEN);
    ret_id[ID_SANDBOX_LEN] = 0;
}

static void rules_are_made_seen_and_replaced(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    char id[ID_SANDBOX_LEN + 1], target[128], network[128];
    assert_int_equal(facade_json(f, "POST", "/v2/sandboxes",
                                 "{\"templateID\":\"base\",\"network\":{\"allowOut\":[\"1.1.1.1\"],\"denyOut\":"
                                 "[\"0.0.0.0/0\"],\"maskRequestHost\":\"localhost\"}}",
                                 &b),
                     201);
    id_of(&b, id);
    assert_non_null(strstr(egress_policy(f->w, id),
                           "{\"default\":\"allow\",\"rules\":[{\"allow\":\"1.1.1.1\"},{\"deny\":\"*\"}]}"));
    snprintf(target, sizeof(target), "/sandboxes/%s", id);
    snprintf(network, sizeof(network), "/sandboxes/%s/network", id);
    assert_int_equal(facade_json(f, "GET", target, NULL, &b), 200);
    assert_has(
        &b, "\"network\":{\"allowOut\":[\"1.1.1.1\"],\"denyOut\":[\"0.0.0.0/0\"],\"maskRequestHost\":\"localhost\"}");
    assert_has(&b, "\"allowInternetAccess\":true");

    assert_int_equal(facade_json(f, "PUT", network, "{\"denyOut\":[\"8.8.8.8\"],\"allow_internet_access\":false}", &b),
                     204);
    assert_int_equal(facade_json(f, "GET", target, NULL, &b), 200);
    assert_has(&b, "\"network\":{\"denyOut\":[\"8.8.8.8\"],\"maskRequestHost\":\"localhost\"}");
    assert_has(&b, "\"allowInternetAccess\":false");
    assert_non_null(strstr(egress_policy(f->w, id), "{\"default\":\"deny\",\"rules\":[{\"deny\":\"8.8.8.8\"}]}"));

    assert_int_equal(facade_json(f, "PUT", network, "{}", &b), 204);
    assert_non_null(strstr(egress_policy(f->w, id), "\"policy\":{\"default\":\"allow\"}"));
    assert_int_equal(facade_json(f, "PUT", network, "{\"denyOut\":[\"a b\"]}", &b), 400);
    assert_has(&b, "\"code\":400");
    assert_int_equal(facade_json(f, "PUT", network, "{\"denyOut\":7}", &b), 400);
    assert_int_equal(facade_json(f, "PUT", network, "{\"egressProxy\":{\"address\":\"a:1\"}}", &b), 501);
    assert_int_equal(facade_json(f, "PUT", "/sandboxes/i00000000000000000000/network", "{}", &b), 404);
    assert_int_equal(facade_json(f, "DELETE", target, NULL, &b), 204);
    assert_int_equal(facade_json(f, "PUT", network, "{}", &b), 404);
}

static void values_of_headers_are_not_seen_again(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    char id[ID_SANDBOX_LEN + 1], target[128];
    assert_int_equal(facade_json(f, "POST", "/v2/sandboxes",
                                 "{\"templateID\":\"base\",\"network\":{\"rules\":{\"a.example.com\":[{\"transform\":"
                                 "{\"headers\":{\"x-key\":\"hunter2\"}}}]}}}",
                                 &b),
                     201);
    id_of(&b, id);
    assert_string_equal(f->w->egress.sealed, "hunter2");
    assert_null(strstr(egress_policy(f->w, id), "hunter2"));
    snprintf(target, sizeof(target), "/sandboxes/%s", id);
    assert_int_equal(facade_json(f, "GET", target, NULL, &b), 200);
    assert_has(&b, "\"headers\":{\"x-key\":\"***\"}");
}

static void without_egress_rules_are_refused(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    egress_stop(f->w);
    world_turns(f->w, 30);
    assert_int_equal(facade_json(f, "POST", "/v2/sandboxes",
                                 "{\"templateID\":\"base\",\"network\":{\"denyOut\":[\"0.0.0.0/0\"]}}", &b),
                     503);
    assert_has(&b, "cove doctor");
    assert_int_equal(facade_json(f, "POST", "/v2/sandboxes", "{\"templateID\":\"base\"}", &b), 201);
}

static void ports_may_need_a_token(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), headers = BUF_INIT(4096);
    struct test_facade *f = *state;
    char id[ID_SANDBOX_LEN + 1];
    assert_int_equal(
        facade_json(f, "POST", "/sandboxes",
                    "{\"templateID\":\"base\",\"secure\":false,\"network\":{\"allowPublicTraffic\":false}}", &b),
        400);
    assert_int_equal(facade_json(f, "POST", "/v2/sandboxes",
                                 "{\"templateID\":\"base\",\"network\":{\"allowPublicTraffic\":false,"
                                 "\"maskRequestHost\":\"inside:${PORT}\"}}",
                                 &b),
                     201);
    assert_has(&b, "\"trafficAccessToken\":\"");
    id_of(&b, id);
    const struct sandbox_info *info = sandbox_info(sandbox_find(f->w->core, str_of(id)));
    buf_printf(&headers, "E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 3000\r\n%c", id, 0);
    assert_int_equal(facade_call(f, "GET", "/", buf_data(&headers), STR_NULL, NULL, &b), 403);
    assert_has(&b, "is missing");
    buf_clear(&headers);
    buf_printf(&headers, "E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 3000\r\nE2b-Traffic-Access-Token: wrong\r\n%c", id,
               0);
    assert_int_equal(facade_call(f, "GET", "/", buf_data(&headers), STR_NULL, NULL, &b), 403);
    assert_has(&b, "is invalid");
    assert_has(&b, "\"code\":403");
    buf_clear(&headers);
    buf_printf(&headers, "E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 3000\r\nE2b-Traffic-Access-Token: %s\r\n%c", id,
               info->traffic_token, 0);
    /* Nobody listens there, as was found out by dialling. */
    assert_int_equal(facade_call(f, "GET", "/", buf_data(&headers), STR_NULL, NULL, &b), 502);
    assert_in_range(world_agent(f->w, sandbox_find(f->w->core, str_of(id)))->dials, 1, 5);
}

/* What a request becomes inside. The agent does not read, so all that it is sent is found in its socket. */
static void inside(struct test_facade *f, struct sandbox *sb, const char *more, struct buf *ret)
{
    AUTO_BUF struct buf request = BUF_INIT(4096);
    AUTO_CLOSE int fd = facade_connect(f);
    struct fake_agent *a = world_agent(f->w, sb);
    unsigned dials = a->dials;
    ssize_t n;
    buf_clear(ret);
    buf_printf(&request, "GET /inside HTTP/1.1\r\nHost: x\r\n%s%s\r\n", facade_headers(sb, 80), more);
    facade_send(f, fd, buf_str(&request));
    WAIT(f->w, a->dials > dials);
    a->deaf = true;
    WAIT(f->w, (n = recv(a->fd, buf_reserve(ret, 65536), 65536, MSG_DONTWAIT | MSG_PEEK)) > 0 &&
                   memmem(buf_data(ret), (size_t)n, "GET /inside", 11));
    buf_commit(ret, (size_t)n);
    a->deaf = false;
    world_turns(f->w, 20);
}

static void the_key_stays_outside(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    inside(f, sb, "X-API-KEY: " TEST_KEY "\r\nAuthorization: Bearer of-its-own\r\nx-more: 1\r\n", &b);
    assert_has(&b, "Bearer of-its-own");
    assert_has(&b, "x-more: 1");
    assert_null(memmem(buf_data(&b), buf_len(&b), TEST_KEY, strlen(TEST_KEY)));
    inside(f, sb, "Authorization: Bearer " TEST_KEY "\r\nx-more: 2\r\n", &b);
    assert_has(&b, "x-more: 2");
    assert_null(memmem(buf_data(&b), buf_len(&b), TEST_KEY, strlen(TEST_KEY)));
}

/* Strangers can't use up what its owner needs. */
static void connections_to_one_sandbox_are_bounded(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), request = BUF_INIT(4096);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true), *other = facade_sandbox(f, true);
    struct rlimit files;
    static int fds[SANDBOX_RELAYS_MAX];
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    if (files.rlim_cur < 4 * SANDBOX_RELAYS_MAX) {
        print_message("not enough descriptors\n");
        skip();
    }
    world_agent(f->w, sb)->deaf = true; /* nobody in there answers */
    buf_printf(&request, "GET / HTTP/1.1\r\nHost: x\r\n%s\r\n", facade_headers(sb, 80));
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        fds[i] = facade_connect(f);
        facade_send(f, fds[i], buf_str(&request));
        world_turn(f->w);
    }
    world_turns(f->w, 20);
    assert_int_equal(facade_call(f, "GET", "/", facade_headers(sb, 80), STR_NULL, NULL, &b), 429);
    assert_has(&b, "too many open connections\",\"code\":429}");
    assert_int_equal(facade_call(f, "GET", "/", facade_headers(other, 81), STR_NULL, NULL, &b), 502);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        struct linger reset = {.l_onoff = 1};
        assert_int_equal(setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
        (void)fd_close(fds[i]);
    }
    world_agent(f->w, sb)->deaf = false;
    WAIT(f->w, http_server_connections(f->server) == 0);
    assert_int_equal(facade_call(f, "GET", "/", facade_headers(sb, 81), STR_NULL, NULL, &b), 502);
    assert_has(&b, "port is not open");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rules_are_made_seen_and_replaced, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(values_of_headers_are_not_seen_again, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(without_egress_rules_are_refused, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(ports_may_need_a_token, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(the_key_stays_outside, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(connections_to_one_sandbox_are_bounded, facade_setup, facade_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
