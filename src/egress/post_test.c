/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the machine itself: to a server of ours, to where the policy lets nobody, with answers that are none. */
#include "base/fd.h"
#include "egress/flow/test_flow.h"
#include "egress/requests.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ALLOWED "{\"default\":\"allow\",\"rules\":[{\"allow\":\"127.0.0.1\"}]}"

static void post_open(struct test_flow *w)
{
    test_flow_open_to(w);
    flow_end(w->flow, "not needed");
    test_flow_expect_told(w, "\"hello\"", "");
}

static void post_send_of(struct test_flow *w, int tenant, const char *policy, const char *url, const char *name,
                         const char *value)
{
    json_t *request = json_pack("{s:s,s:i,s:i,s:o,s:s,s:{s:s},s:s}", "op", "post", "tag", 5, "tenant", tenant, "policy",
                                json_loads(policy, 0, NULL), "url", url, "headers", name, value, "body", "{}");
    assert_non_null(request);
    assert_true(requests_handle(w->egress, request));
    json_decref(request);
}

static void post_send(struct test_flow *w, const char *policy, const char *url, const char *name, const char *value)
{
    post_send_of(w, 0, policy, url, name, value);
}

static void post_url(const struct test_flow *w, const char *host, char ret_url[static 64])
{
    (void)snprintf(ret_url, 64, "http://%s:%u/hook?a=b#c", host, (unsigned)w->port);
}

static void test_answers(void **state)
{
    (void)state;
    static const struct {
        const char *said, *told, *what;
    } cases[] = {
        {"HTTP/1.1 204 No Content\r\n\r\n", "\"posted\"", "\"status\":204"},
        {"HTTP/1.0 500\r\n", "\"posted\"", "\"status\":500"},
        {"HTTP/1.1 30", "\"failed\"", "without an answer"},
        {"HTTP/2.0 200 OK\r\n", "\"failed\"", "does not speak"},
        {"SSH-2.0-OpenSSH_9.2\r\n", "\"failed\"", "does not speak"},
        {"HTTP/1.1 2o4 No\r\n", "\"failed\"", "does not speak"},
    };
    char url[64], want[256];
    struct test_flow w;
    post_open(&w);
    post_url(&w, "127.0.0.1", url);
    (void)snprintf(want, sizeof(want),
                   "POST /hook?a=b HTTP/1.1\r\nhost: 127.0.0.1:%u\r\nconnection: close\r\ncontent-length: 2\r\n"
                   "x-a: b\r\n\r\n{}",
                   (unsigned)w.port);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        post_send(&w, ALLOWED, url, "x-a", "b");
        int fd = test_accept(w.listener);
        test_peer_expect(&w.rig, fd, str_of(want));
        test_peer_send(fd, cases[i].said, strlen(cases[i].said));
        assert_int_equal(shutdown(fd, SHUT_WR), 0);
        test_flow_expect_told(&w, cases[i].told, cases[i].what);
        (void)fd_close(fd);
    }
    assert_int_equal(w.egress->n_posts, 0);
    test_flow_close(&w);
}

static void test_refused(void **state)
{
    (void)state;
    static const char open_policy[] = "{\"default\":\"allow\"}";
    static const struct {
        const char *policy, *url, *name, *value, *what;
    } cases[] = {
        {open_policy, "http://127.0.0.1:1/", "a", "b", "permission_denied"},
        {open_policy, "http://[::1]:1/", "a", "b", "permission_denied"},
        {open_policy, "http://169.254.169.254/latest/", "a", "b", "permission_denied"},
        {open_policy, "http://10.1.2.3/", "a", "b", "permission_denied"},
        {open_policy, "http://localhost/", "a", "b", "unavailable"},
        {"{\"rules\":[{\"allow\":\"127.0.0.1\"}]}", "https://hook.test/", "a", "b", "permission_denied"},
        {ALLOWED, "http://127.0.0.1:1/", "a", "b", "unavailable"}, /* nobody listens */
        {ALLOWED, "http://127.0.0.1:1/ HTTP/1.1\r\nx: y", "a", "b", "the URL"},
        {ALLOWED, "http://user@127.0.0.1:1/", "a", "b", "the URL"},
        {ALLOWED, "ftp://127.0.0.1/", "a", "b", "the URL"},
        {ALLOWED, "http://127.0.0.1:1/", "a\r\nx", "b", "an invalid header"},
        {ALLOWED, "http://127.0.0.1:1/", "a", "b\r\nx: y", "an invalid header"},
        {"{\"default\":\"maybe\"}", "http://127.0.0.1:1/", "a", "b", "invalid_argument"},
    };
    struct test_flow w;
    post_open(&w);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        print_message("%s\n", cases[i].url);
        post_send(&w, cases[i].policy, cases[i].url, cases[i].name, cases[i].value);
        test_flow_expect_told(&w, "\"failed\"", cases[i].what);
    }
    test_flow_close(&w);
}

/* Where nobody answers, requests stay for as long as they may: not all can be one tenant's. */
static void test_a_tenant_leaves_room(void **state)
{
    (void)state;
    char url[64];
    struct test_flow w;
    post_open(&w);
    post_url(&w, "127.0.0.1", url);
    for (int i = 0; i < 128; i++)
        post_send(&w, ALLOWED, url, "x-a", "b");
    post_send(&w, ALLOWED, url, "x-a", "b");
    test_flow_expect_told(&w, "\"failed\"", "resource_exhausted");
    post_send_of(&w, 7, ALLOWED, url, "x-a", "b");
    assert_int_equal(w.egress->n_posts, 129);
    test_flow_close(&w);
}

static void test_the_end_in_the_middle(void **state)
{
    (void)state;
    char url[64];
    struct test_flow w;
    post_open(&w);
    post_url(&w, "127.0.0.1", url);
    post_send(&w, ALLOWED, url, "x-a", "b");
    post_send(&w, "{\"default\":\"allow\"}", "https://a.test/", "x-a", "b");
    assert_int_equal(w.egress->n_posts, 2);
    test_flow_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_a_tenant_leaves_room),
                                       cmocka_unit_test(test_the_end_in_the_middle)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
