/* SPDX-License-Identifier: Apache-2.0 */
/* How a connection is judged by what its first bytes say, and by what they hide. */
#include "base/fd.h"
#include "base/mem.h"
#include "egress/dns/names.h"
#include "egress/flow/test_flow.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* To a policy it is a port that is not known yet, which is some other one. */
static void test_port_zero(void **state)
{
    (void)state;
    struct test_flow w;
    test_flow_open_to(&w);
    test_flow_allow(&w, "{'default':'allow'}");
    test_flow_expect_told(&w, "\"hello\"", "");
    w.flow->port = 0;
    flow_begin(w.flow);
    test_flow_expect_told(&w, "\"denied\"", "there is no port 0");
    test_flow_close(&w);
}

/* Bytes, and requests without a name, to an address that is known by a name of which something is denied. */
static void test_what_hides_its_name(void **state)
{
    (void)state;
    struct test_flow w;
    char byte;
    test_flow_open_to(&w);
    test_flow_allow(&w,
                    "{'rules':[{'deny':'api.test','path':'/admin*'},{'allow':'127.0.0.1'},{'allow':'other.test'}]}");
    names_add(w.net->names, &w.to, "api.test", 60);
    test_flow_expect_told(&w, "\"hello\"", "");

    test_peer_send(w.client, "hello\n", 6);
    flow_begin(w.flow);
    test_flow_expect_told(&w, "\"denied\"", "rule 0 (deny api.test)");
    assert_int_equal(test_peer_wait(&w.rig, w.client, &byte, 1), -ECONNRESET);

    test_flow_next(&w);
    test_flow_hello(w.client, "other.test");
    flow_begin(w.flow);
    test_flow_expect_told(&w, "\"denied\"", "rule 0 (deny api.test)");

    static const char *const hosts[] = {"127.0.0.1", "other.test"};
    for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
        AUTO_FREE char *denied = mem_printf("GET /admin HTTP/1.0\r\nHost: %s\r\n\r\n", hosts[i]);
        AUTO_FREE char *fine = mem_printf("GET /x HTTP/1.0\r\nHost: %s\r\n\r\n", hosts[i]);
        test_flow_next(&w);
        test_peer_send(w.client, denied, strlen(denied));
        flow_begin(w.flow);
        test_flow_expect_told(&w, "\"denied\"", "rule 0 (deny api.test)");
        test_peer_expect(&w.rig, w.client, STR("HTTP/1.1 403 "));

        test_flow_next(&w);
        test_peer_send(w.client, fine, strlen(fine));
        flow_begin(w.flow);
        test_flow_expect_told(&w, "\"flow\"", "\"what\":\"open\"");
        w.server = test_accept(w.listener);
        test_peer_expect(&w.rig, w.server, STR("GET /x HTTP/1.1\r\n"));
        (void)close(w.server);
        w.server = -1;
        test_flow_expect_told(&w, "\"request\"", "/x");
        test_flow_expect_told(&w, "\"flow\"", "\"what\":\"close\"");
    }
    test_flow_close(&w);
}

/* A name that was only claimed keeps nothing open when the address is allowed no more. */
static void test_a_claim_and_a_new_policy(void **state)
{
    (void)state;
    struct test_flow w;
    test_flow_open_to(&w);
    assert_true(netaddr_parse(STR("8.8.8.8"), &w.flow->to));
    w.flow->state = FLOW_OPEN;
    w.flow->proto = FLOW_TLS;
    (void)snprintf(w.flow->name, sizeof(w.flow->name), "good.test");
    test_flow_allow(&w, "{'rules':[{'allow':'good.test'},{'allow':'8.8.8.8'}]}");
    assert_int_equal(w.net->n_flows, 1);
    w.flow->belongs = true;
    test_flow_allow(&w, "{'rules':[{'allow':'good.test'}]}");
    assert_int_equal(w.net->n_flows, 1);
    w.flow->belongs = false;
    test_flow_allow(&w, "{'rules':[{'allow':'good.test'}]}");
    assert_int_equal(w.net->n_flows, 0);
    test_flow_close(&w);
}

/* What hides its name is judged as the worst of names, unless a rule lets it, or our end of TLS takes the outer one. */
static void test_encrypted_hellos(void **state)
{
    (void)state;
    static const struct {
        const char *rules, *without; /* the policy that closes it again; NULL: it is refused */
    } cases[] = {
        {"{'allow':'127.0.0.1'}", "{'deny':'bad.test'},{'allow':'127.0.0.1'}"},
        {"{'deny':'bad.test','ports':[1]},{'allow':'127.0.0.1'}", "{'deny':'*.test'}"},
        {"{'allow':'127.0.0.1'},{'deny':'bad.test'}", "{'deny':'bad.test'},{'allow':'127.0.0.1'}"},
        {"{'deny':'bad.test'},{'allow':'127.0.0.1'}", NULL},
        {"{'deny':'*.bad.test'},{'allow':'127.0.0.1'}", NULL},
        {"{'deny':'bad.test','path':'/x'},{'allow':'127.0.0.1'}", NULL},
        {"{'allow':'bad.test','ech':'allow'},{'deny':'bad.test'},{'allow':'127.0.0.1'}", NULL},
        {"{'deny':'bad.test'},{'allow':'127.0.0.1','ech':'allow'}", "{'deny':'bad.test'},{'allow':'127.0.0.1'}"},
        {"{'deny':'good.test','methods':['PUT']},{'deny':'bad.test'},{'allow':'127.0.0.1'},{'allow':'*'}",
         "{'deny':'good.test'}"},
    };
    static const char ech[] = "\xfe\x0d\0\1\0", alert[] = "\x15\3\3\0\2\2\x31";
    struct test_flow w;
    test_flow_open_to(&w);
    names_add(w.net->names, &w.to, "good.test", 60);
    test_flow_expect_told(&w, "\"hello\"", "");
    for (size_t i = 0; i < 2 * ARRAY_SIZE(cases); i++) {
        AUTO_FREE char *policy = mem_printf("{'rules':[%s]}", cases[i / 2].rules);
        bool hides = i % 2, is_refused = hides && !cases[i / 2].without;
        assert_int_equal(fd_nonblock(w.listener, is_refused), 0);
        test_flow_allow(&w, policy);
        test_flow_hello_with(w.client, "good.test", hides ? str_n(ech, sizeof(ech) - 1) : STR_NULL);
        flow_begin(w.flow);
        if (is_refused) {
            test_peer_expect(&w.rig, w.client, str_n(alert, sizeof(alert) - 1));
            /* cppcheck-suppress nullPointer ; both may be, says accept(2) */
            assert_int_equal(accept4(w.listener, NULL, NULL, SOCK_CLOEXEC), -1);
        } else {
            w.server = test_accept(w.listener);
            if (cases[i / 2].without) {
                AUTO_FREE char *closed = mem_printf("{'rules':[%s]}", cases[i / 2].without);
                test_flow_allow(&w, closed);
                assert_int_equal(w.net->n_flows, hides || i / 2 == 1 || i / 2 == ARRAY_SIZE(cases) - 1 ? 0 : 1);
            }
        }
        test_flow_next(&w);
    }
    test_flow_close(&w);
}

/* Who is refused is told what would let it pass, and it does. */
static void test_an_encrypted_hello_is_told(void **state)
{
    (void)state;
    static const char ech[] = "\xfe\x0d\0\1\0";
    struct test_flow w;
    test_flow_open_to(&w);
    names_add(w.net->names, &w.to, "good.test", 60);
    test_flow_allow(&w, "{'rules':[{'deny':'bad.test'},{'allow':'127.0.0.1'}]}");
    test_flow_expect_told(&w, "\"hello\"", "");
    test_flow_hello_with(w.client, "good.test", str_n(ech, sizeof(ech) - 1));
    flow_begin(w.flow);
    test_flow_expect_told(&w, "\"denied\"", "the encrypted part of its ClientHello (ECH) may name another host");
    assert_non_null(strstr(w.told, "in the rule for good.test lets it pass\""));
    assert_non_null(strstr(w.told, "\"suggestion\":\"{\\\"allow\\\":\\\"good.test\\\",\\\"ports\\\":["));
    assert_non_null(strstr(w.told, ",\\\"ech\\\":\\\"allow\\\"}\""));
    test_flow_next(&w);
    test_flow_hello_with(w.client, NULL, str_n(ech, sizeof(ech) - 1));
    flow_begin(w.flow);
    test_flow_expect_told(&w, "\"denied\"", "an encrypted ClientHello without an outer name");
    test_flow_close(&w);
}

/* Names of ClientHellos that nobody knows of: one sandbox does not take all of the resolver. */
static void test_many_names_to_look_up(void **state)
{
    (void)state;
    struct test_flow w;
    int clients[FLOW_LOOKUPS_MAX];
    test_flow_open_to(&w);
    test_flow_allow(&w, "{'rules':[{'allow':'*.example.com'},{'allow':'127.0.0.1'}]}");
    test_flow_expect_told(&w, "\"hello\"", "");
    for (size_t i = 0; i < FLOW_LOOKUPS_MAX; i++) {
        AUTO_FREE char *name = mem_printf("n%zu.example.com", i);
        int pair[2];
        test_tcp_pair(pair);
        clients[i] = pair[0];
        test_flow_hello(pair[0], name);
        struct flow *f = flow_new(w.net, pair[1], &w.to, w.port);
        flow_begin(f);
        assert_int_equal(f->state, FLOW_RESOLVE);
        if (i == 0)
            flow_end(f, "the client went away"); /* and leaves its place */
    }
    test_flow_hello(w.client, "last.example.com");
    flow_begin(w.flow);
    assert_int_equal(w.flow->state, FLOW_RESOLVE);
    int pair[2];
    test_tcp_pair(pair);
    test_flow_hello(pair[0], "one.too.many.example.com");
    flow_begin(flow_new(w.net, pair[1], &w.to, w.port));
    (void)close(pair[0]);
    test_flow_expect_told(&w, "\"denied\"", "more than 64 names");
    flows_cut_all(w.net, "enough");
    assert_int_equal(w.net->n_lookups, 0);
    for (size_t i = 0; i < FLOW_LOOKUPS_MAX; i++)
        (void)close(clients[i]);
    test_flow_close(&w);
}

/* A busy client is waited for where a name would help it, and refused at once where none does. */
static void test_silence(void **state)
{
    (void)state;
    struct test_flow w;
    for (int is_known = 0; is_known < 2; is_known++) {
        test_flow_open_to(&w);
        test_flow_allow(&w, "{'rules':[{'allow':'a.test','ports':[443]}]}");
        assert_true(netaddr_parse(STR("8.8.8.8"), &w.flow->to));
        w.flow->port = 443;
        names_add(w.net->names, &w.flow->to, is_known ? "a.test" : "b.test", 60);
        flow_begin(w.flow);
        for (int i = 0; i < is_known; i++) {
            w.flow->timer.timer_cb(&w.flow->timer);
            assert_int_equal(w.net->n_flows, 1);
        }
        w.flow->timer.timer_cb(&w.flow->timer);
        assert_int_equal(w.net->n_flows, 0);
        test_flow_close(&w);
    }
}

/* What the client says behind its hello is for whoever answers that. */
static void test_more_than_a_hello(void **state)
{
    (void)state;
    static const char end_of_hello[] = "\x14\x03\x03\0\1\1";
    struct test_flow w;
    test_flow_open_to(&w);
    test_flow_allow(&w, "{'rules':[{'allow':'a.test','path':'/v1*'},{'allow':'127.0.0.1'}]}");
    names_add(w.net->names, &w.to, "a.test", 60);
    test_flow_hello(w.client, "a.test");
    flow_begin(w.flow);
    assert_int_equal(w.flow->state, FLOW_TLS_WORLD); /* connected at once */
    test_turn(&w.rig);
    const struct side *upstream = w.flow->upstream;
    w.server = test_accept(w.listener);
    test_peer_send(w.client, end_of_hello, sizeof(end_of_hello) - 1);
    test_turn(&w.rig);
    assert_ptr_equal(w.flow->upstream, upstream);
    assert_int_equal(fd_nonblock(w.listener, true), 0);
    /* cppcheck-suppress nullPointer ; both may be, says accept(2) */
    assert_int_equal(accept4(w.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), -1);
    test_flow_close(&w);
}

/* Its processes may live on for a moment, and go on with what they were saying. */
static void test_half_a_hello_of_a_forgotten_sandbox(void **state)
{
    (void)state;
    struct test_flow w;
    char byte;
    test_flow_open_to(&w);
    test_flow_allow(&w, "{'default':'allow'}");
    test_peer_send(w.client, "\x16\x03", 2);
    flow_begin(w.flow);
    assert_int_equal(w.flow->state, FLOW_SNIFF);
    test_flow_allow(&w, "{'default':'deny'}");
    assert_int_equal(w.net->n_flows, 1);
    net_set_policy(w.net, NULL);
    assert_int_equal(w.net->n_flows, 0);
    assert_int_equal(test_peer_wait(&w.rig, w.client, &byte, 1), -ECONNRESET);
    test_flow_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_port_zero),
        cmocka_unit_test(test_what_hides_its_name),
        cmocka_unit_test(test_a_claim_and_a_new_policy),
        cmocka_unit_test(test_encrypted_hellos),
        cmocka_unit_test(test_an_encrypted_hello_is_told),
        cmocka_unit_test(test_many_names_to_look_up),
        cmocka_unit_test(test_silence),
        cmocka_unit_test(test_more_than_a_hello),
        cmocka_unit_test(test_half_a_hello_of_a_forgotten_sandbox),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
