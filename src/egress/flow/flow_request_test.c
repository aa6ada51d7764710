/* SPDX-License-Identifier: Apache-2.0 */
/* Requests in a connection: those that do not look like it, that come late, that are of another origin; and URLs that
 * cove-api asks about. */
#include "base/fd.h"
#include "base/mem.h"
#include "egress/flow/test_flow.h"
#include "egress/requests.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TENANT "Host: tenant.test\r\n\r\n"

static void flow_request_open_shared(struct test_flow *w)
{
    test_flow_open_to(w);
    test_flow_allow(w, "{'rules':[{'deny':'tenant.test'},{'allow':'127.0.0.1'}]}");
}

static bool flow_request_is_open(void *ctx)
{
    const struct test_flow *w = ctx;
    assert_int_equal(w->net->n_flows, 1);
    return w->flow->state >= FLOW_WATCH;
}

static void flow_request_expect(struct test_flow *w, const char *status)
{
    char got[64];
    ssize_t n = test_peer_wait(&w->rig, w->client, got, strlen(status));
    assert_int_equal(n, strlen(status));
    assert_memory_equal(got, status, strlen(status));
}

static void test_requests_that_do_not_look_like_it(void **state)
{
    (void)state;
    static const struct {
        const char *said, *status; /* NULL: goes through as it is */
    } cases[] = {
        {"GET / HTTP/1.1\r\n" TENANT, "HTTP/1.1 403"},
        {"\r\nGET / HTTP/1.1\r\n" TENANT, "HTTP/1.1 403"},
        {"\r\n\r\n\n \tGET / HTTP/1.1\r\n" TENANT, "HTTP/1.1 403"},
        {"get / HTTP/1.1\r\n" TENANT, "HTTP/1.1 400"},
        {"GET\t/ HTTP/1.1\r\n" TENANT, "HTTP/1.1 400"},
        {"Get http://tenant.test/ HTTP/1.1\r\n" TENANT, "HTTP/1.1 400"},
        {"G1T / HTTP/1.1\r\n" TENANT, "HTTP/1.1 400"}, /* any token is a method */
        {"GET_IT / HTTP/1.1\r\n" TENANT, "HTTP/1.1 400"},
        {"X / HTTP/1.1\r\n" TENANT, "HTTP/1.1 400"},
        {"ABCDEFGHIJKLMNOPQRSTUVWXYZ / HTTP/1.1\r\n" TENANT, "HTTP/1.1 400"},
        {"get https://tenant.test/ HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 400"},
        {"get x+y.z://tenant.test/ HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 400"},
        {"get * http/1.1\r\n" TENANT, "HTTP/1.1 400"},
        {"GET x HTTP/1.1\r\n" TENANT, "HTTP/1.1 400"},
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 400"},
        {"CONNECT tenant.test:80 HTTP/1.1\r\n" TENANT, "HTTP/1.1 405"},
        {"NICK me\r\nUSER me 0 * :me\r\n", NULL},
        {"USER http://me/ 0 *\r\n", NULL},
        {"CAP LS 302\r\n", NULL},
        {"*1\r\n$4\r\nPING\r\n", NULL},
        {"get /http/1.1\r\n", NULL},
        {"get key HTTP/1.1\r\n", NULL},
        {"get /key\r\n", NULL},
        {"get hello\r\n", NULL},
        {"\r\nhello\r\n", NULL},
        {"SSH-2.0-x\r\n", NULL},
    };
    struct test_flow w;
    flow_request_open_shared(&w);
    assert_int_equal(fd_nonblock(w.listener, true), 0);
    for (size_t i = 0; i < 2 * ARRAY_SIZE(cases); i++) {
        const char *said = cases[i / 2].said, *status = cases[i / 2].status;
        size_t n = strlen(said), first = i % 2 ? 3 : n; /* whole, and in two pieces */
        test_peer_send(w.client, said, first);
        flow_begin(w.flow);
        test_turn(&w.rig);
        if (i % 2)
            test_peer_send(w.client, said + first, n - first);
        if (status) {
            flow_request_expect(&w, status);
            /* cppcheck-suppress nullPointer ; both may be, says accept(2) */
            assert_int_equal(accept4(w.listener, NULL, NULL, SOCK_CLOEXEC), -1);
        } else {
            test_until(&w.rig, flow_request_is_open, &w);
            w.server = test_accept(w.listener);
            test_peer_expect(&w.rig, w.server, str_of(said));
        }
        test_flow_next(&w);
    }
    test_flow_close(&w);
}

/* Headers by which some servers take a request for another one than its line says. */
static void test_requests_that_are_others(void **state)
{
    (void)state;
    static const struct {
        const char *line, *fields, *status; /* NULL: goes on */
    } cases[] = {
        {"POST /v1/x", "", NULL},
        {"POST /v1/x", "X-HTTP-Method-Override: GET\r\n", NULL},
        {"POST /v1/x", "X-HTTP-Method-Override: DELETE\r\n", "HTTP/1.1 403"},
        {"GET /v1/x", "x-http-method: PUT\r\n", "HTTP/1.1 403"},
        {"GET /v1/x", "x-method-override:\r\n", "HTTP/1.1 403"},
        {"GET /v1/x", "X-HTTP-Method-Override: GET, DELETE\r\n", "HTTP/1.1 403"},
        {"GET /v1/x", "X_HTTP_Method_Override: DELETE\r\n", "HTTP/1.1 403"},
        {"GET /v1/x", "X.HTTP_Method: DELETE\r\n", "HTTP/1.1 403"},
        {"GET /v1/x", "X-Original-Method: DELETE\r\n", "HTTP/1.1 403"},
        {"GET /v1/x", "X_Original-Uri: /admin\r\n", "HTTP/1.1 403"},
        {"GET /v1/x", "X-Envoy-Original-Path: /admin\r\n", "HTTP/1.1 403"},
        {"GET /v1/x", "X-Ms-Original-Url: https://127.0.0.1/admin\r\n", "HTTP/1.1 403"},
        {"GET /v1/x", "X_Original_Uri: /v1/y\r\nX_Method_Override: POST\r\n", NULL},
        {"GET /v1/x", "X-Http-Method-Override: POST\r\nX-Http-Method-Override: PATCH\r\n", "HTTP/1.1 403"},
        {"GET /v1/x", "X-Original-URL: /v1/y\r\nX-Method-Override: POST\r\n", NULL},
        {"GET /v1/x", "X-Original-URL: /admin\r\n", "HTTP/1.1 403"},
        {"GET /v1/x", "X-Rewrite-Url: /v1/../admin\r\n", "HTTP/1.1 403"},
        {"GET /v1/x", "X-Rewrite-Url: http://h/admin\r\n", "HTTP/1.1 403"},
        {"GET /v1/x", "X-HTTP-Method: GET\r\nX-HTTP-Method: GET\r\nX-HTTP-Method: GET\r\nX-HTTP-Method: GET\r\n",
         "HTTP/1.1 400"},
    };
    struct test_flow w;
    test_flow_open_to(&w);
    test_flow_allow(&w, "{'rules':[{'allow':'127.0.0.1','methods':['GET','POST'],'path':'/v1/*'}]}");
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        AUTO_FREE char *said = mem_printf("%s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n", cases[i].line, cases[i].fields);
        test_peer_send(w.client, said, strlen(said));
        flow_begin(w.flow);
        if (cases[i].status) {
            flow_request_expect(&w, cases[i].status);
        } else {
            test_turn(&w.rig);
            w.server = test_accept(w.listener);
            test_peer_expect(&w.rig, w.server, str_of(cases[i].line));
        }
        test_flow_next(&w);
    }
    test_flow_close(&w);
}

/* What proxies say of a request does not leave with one that is judged, and leaves with others; nor is a list of
 * methods compared with a denied one. */
static void test_requests_of_another_origin(void **state)
{
    (void)state;
    static const struct {
        const char *policy, *fields, *seen; /* NULL: refused */
    } cases[] = {
#define ORIGINS                                                                                                        \
    "A: 1\r\nX-Forwarded-Host: b\r\nX_Forwarded-Prefix: /admin\r\nx-forwarded-method: PUT\r\nX-Forwarded-Uri: /b\r\n"  \
    "Forwarded: host=b\r\nX-Original-Host: b\r\nSCRIPT_NAME: /v1\r\nB: 2\r\n"
        {"{'rules':[{'allow':'127.0.0.1','methods':['GET']}]}", ORIGINS, "a: 1\r\nb: 2\r\n\r\n"},
        {"{'rules':[{'deny':'127.0.0.1','path':'/admin*'},{'allow':'127.0.0.1'}]}", ORIGINS, "a: 1\r\nb: 2\r\n\r\n"},
        {"{'rules':[{'allow':'127.0.0.1'}]}", "A: 1\r\nX-Forwarded-Host: b\r\n", "a: 1\r\nx-forwarded-host: b\r\n\r\n"},
        {"{'rules':[{'allow':'127.0.0.1'}]}", "X_Method_Override: PUT, x\r\n", "x_method_override: PUT, x\r\n\r\n"},
        {"{'rules':[{'deny':'127.0.0.1','methods':['PUT']},{'allow':'127.0.0.1'}]}", "X_Method_Override: PUT, x\r\n",
         NULL},
#undef ORIGINS
    };
    struct test_flow w;
    test_flow_open_to(&w);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        test_flow_allow(&w, cases[i].policy);
        AUTO_FREE char *said = mem_printf("GET /v1/x HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n", cases[i].fields);
        test_peer_send(w.client, said, strlen(said));
        flow_begin(w.flow);
        if (cases[i].seen) {
            AUTO_FREE char *seen = mem_printf("GET /v1/x HTTP/1.1\r\nhost: 127.0.0.1\r\n%s", cases[i].seen);
            test_turn(&w.rig);
            w.server = test_accept(w.listener);
            test_peer_expect(&w.rig, w.server, str_of(seen));
        } else {
            flow_request_expect(&w, "HTTP/1.1 403");
        }
        test_flow_next(&w);
    }
    test_flow_close(&w);
}

/* Who says nothing is dialled for; what it says then is looked at, unless the server was first. */
static void test_requests_after_silence(void **state)
{
    (void)state;
    static const char tenant[] = "GET / HTTP/1.1\r\n" TENANT, own[] = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    for (int i = 0; i < 4; i++) {
        struct test_flow w;
        char byte;
        flow_request_open_shared(&w);
        flow_begin(w.flow);
        test_until(&w.rig, flow_request_is_open, &w);
        assert_int_equal(w.flow->state, FLOW_WATCH);
        w.server = test_accept(w.listener);
        switch (i) {
        case 0:
            test_peer_send(w.client, tenant, sizeof(tenant) - 1);
            flow_request_expect(&w, "HTTP/1.1 403");
            (void)close(w.client);
            w.client = -1;
            test_until(&w.rig, test_flow_is_gone, &w);
            assert_true(test_peer_wait(&w.rig, w.server, &byte, 1) <= 0);
            break;
        case 1:
            test_peer_send(w.client, own, 5);
            test_turn(&w.rig);
            test_peer_send(w.client, own + 5, sizeof(own) - 6);
            test_peer_expect(&w.rig, w.server, STR("GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n"));
            test_peer_send(w.server, "HTTP/1.1 204 No Content\r\n\r\n", 27);
            flow_request_expect(&w, "HTTP/1.1 204");
            test_flow_expect_told(&w, "\"hello\"", "");
            test_flow_expect_told(&w, "\"open\"", "\"proto\":\"tcp\"");
            test_flow_expect_told(&w, "\"request\"", "");
            (void)shutdown(w.client, SHUT_WR);
            test_flow_expect_told(&w, "\"close\"", "\"proto\":\"http\""); /* what it was in the end */
            break;
        case 2:
            test_peer_send(w.client, "ask", 3);
            test_peer_send(w.client, "?", 1);
            test_peer_expect(&w.rig, w.server, STR("ask?"));
            break;
        case 3:
            test_peer_send(w.server, "hello", 5);
            test_peer_expect(&w.rig, w.client, STR("hello"));
            test_peer_send(w.client, tenant, sizeof(tenant) - 1);
            test_peer_expect(&w.rig, w.server, str_of(tenant));
            break;
        }
        test_flow_close(&w);
    }
}

/* The sandbox may be forgotten while the name is looked up. */
static void test_a_check_and_a_forgotten_sandbox(void **state)
{
    (void)state;
    struct test_flow w;
    test_flow_open_to(&w);
    flow_end(w.flow, "not needed");
    test_flow_allow(&w, "{'rules':[{'allow':'a.test'}]}");
    test_flow_expect_told(&w, "\"hello\"", "");
    const int fds[3] = {test_listen(1, &(struct sockaddr_storage){0}), socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0),
                        test_listen(1, &(struct sockaddr_storage){0})};
    net_open(w.net, fds);
    json_t *check =
        json_pack("{s:s,s:i,s:s,s:s}", "op", "check", "tag", 7, "id", TEST_FLOW_ID, "url", "https://a.test/");
    json_t *forget = json_pack("{s:s,s:s}", "op", "forget", "id", TEST_FLOW_ID);
    assert_true(requests_handle(w.egress, check));
    assert_true(requests_handle(w.egress, forget));
    assert_null(w.net->policy);
    test_flow_expect_told(&w, "\"checked\"", "\"tag\":7");
    json_decref(check);
    json_decref(forget);
    test_flow_close(&w);
}

/* URLs as people have them: the fragment is never sent, and no rule is about the query. */
static void test_urls_to_check(void **state)
{
    (void)state;
    static const struct {
        const char *url, *verdict;
    } urls[] = {
        {"https://127.0.0.1", "allow"},
        {"https://127.0.0.1/", "allow"},
        {"https://127.0.0.1?q=/x", "allow"},
        {"https://127.0.0.1#/x", "allow"},
        {"https://127.0.0.1/?/x", "allow"},
        {"https://127.0.0.1/#/x", "allow"},
        {"https://127.0.0.1/x?q#f", "deny"},
        {"https://127.0.0.1:443?q", "allow"},
        {"https://127.0.0.1/x", "deny"},
        {"https://127.0.0.1:80/?q#f", "deny"},
        {"127.0.0.1?q", "allow"},
    };
    struct test_flow w;
    test_flow_open_to(&w);
    flow_end(w.flow, "not needed");
    test_flow_allow(&w, "{'rules':[{'deny':'127.0.0.1','path':'/x*'},{'allow':'127.0.0.1','ports':[443]}]}");
    test_flow_expect_told(&w, "\"hello\"", "");
    for (size_t i = 0; i < ARRAY_SIZE(urls); i++) {
        char verdict[32];
        (void)snprintf(verdict, sizeof(verdict), "\"verdict\":\"%s\"", urls[i].verdict);
        json_t *check = json_pack("{s:s,s:i,s:s,s:s}", "op", "check", "tag", 7, "id", TEST_FLOW_ID, "url", urls[i].url);
        assert_true(requests_handle(w.egress, check));
        json_decref(check);
        print_message("%s\n", urls[i].url);
        test_flow_expect_told(&w, "\"checked\"", verdict);
    }
    test_flow_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_that_do_not_look_like_it), cmocka_unit_test(test_requests_that_are_others),
        cmocka_unit_test(test_requests_of_another_origin),        cmocka_unit_test(test_requests_after_silence),
        cmocka_unit_test(test_a_check_and_a_forgotten_sandbox),   cmocka_unit_test(test_urls_to_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
