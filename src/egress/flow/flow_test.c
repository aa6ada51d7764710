/* SPDX-License-Identifier: Apache-2.0 */
/* A connection in a whole egress: what is passed through, when it ends by itself, what cove-api is told and when, and
 * what many leave each other. */
#include "base/fd.h"
#include "egress/dns/names.h"
#include "egress/flow/side_tcp.h"
#include "egress/flow/test_flow.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static void test_what_stands_still(void **state)
{
    (void)state;
    struct test_flow w;
    char byte;
    test_flow_open(&w);
    usec_t start = clock_mono();
    for (int i = 0; i < 4; i++) { /* either way is enough */
        test_peer_send(i % 2 ? w.server : w.client, "x", 1);
        test_peer_expect(&w.rig, i % 2 ? w.client : w.server, STR("x"));
        (void)usleep(400000);
        uv_update_time(&w.rig.loop);
    }
    assert_int_equal(w.net->n_flows, 1);
    usec_t last = clock_mono();
    test_until(&w.rig, test_flow_is_gone, &w);
    assert_true(clock_mono() - start > 2500 * USEC_PER_MS && clock_mono() - last > 1000 * USEC_PER_MS);
    assert_int_equal(test_peer_wait(&w.rig, w.client, &byte, 1), -ECONNRESET);
    assert_int_equal(test_peer_wait(&w.rig, w.server, &byte, 1), -ECONNRESET);
    test_flow_expect_told(&w, "\"hello\"", "");
    test_flow_expect_told(&w, "\"flow\"", "\"what\":\"open\"");
    test_flow_expect_told(&w, "\"flow\"", "\"error\":\"nothing was sent for 1500 ms\"");
    assert_non_null(strstr(w.told, "\"sent\":2,\"received\":2"));
    test_flow_close(&w);
}

/* The beginning of a connection, and an end in good order, may wait for others, but not for long, and never in another
 * order. */
static void test_what_is_told_when(void **state)
{
    (void)state;
    struct test_flow w;
    test_flow_open(&w);
    test_peer_send(w.client, "x", 1);
    test_peer_expect(&w.rig, w.server, STR("x"));
    test_flow_expect_told(&w, "\"hello\"", "");
    test_flow_expect_told(&w, "\"flow\"", "\"what\":\"open\"");
    assert_int_equal(w.net->n_flows, 1);
    assert_int_equal(shutdown(w.client, SHUT_WR), 0);
    assert_int_equal(shutdown(w.server, SHUT_WR), 0);
    test_flow_expect_told(&w, "\"flow\"", "\"what\":\"close\"");
    assert_null(strstr(w.told, "error"));
    test_until(&w.rig, test_flow_is_gone, &w);
    test_flow_close(&w);

    test_flow_open(&w);
    assert_int_equal(shutdown(w.client, SHUT_WR), 0);
    assert_int_equal(shutdown(w.server, SHUT_WR), 0);
    test_flow_expect_told(&w, "\"hello\"", "");
    test_flow_expect_told(&w, "\"flow\"", "\"what\":\"open\"");
    test_flow_expect_told(&w, "\"flow\"", "\"what\":\"close\"");
    test_flow_close(&w);

    /* What was not told yet is when all of it ends. */
    test_flow_open(&w);
    test_peer_send(w.client, "x", 1);
    test_peer_expect(&w.rig, w.server, STR("x"));
    egress_free(w.egress);
    assert_non_null(strstr(test_flow_told(&w), "\"hello\""));
    assert_non_null(strstr(test_flow_told(&w), "\"what\":\"open\""));
    assert_non_null(strstr(test_flow_told(&w), "\"error\":\"the sandbox has ended\""));
    test_until_alone(&w.rig);
    const int fds[] = {w.control, w.api, w.client, w.server, w.listener};
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        (void)close(fds[i]);
    test_rig_close(&w.rig);
}

static void test_a_dial_that_fails(void **state)
{
    (void)state;
    struct test_flow w;
    test_flow_open_to(&w);
    (void)close(w.listener);
    w.listener = -1;
    flow_dial(w.flow);
    test_until(&w.rig, test_flow_is_gone, &w);
    test_flow_expect_told(&w, "\"hello\"", "");
    test_flow_expect_told(&w, "\"flow\"", "\"what\":\"open\"");
    test_flow_expect_told(&w, "\"flow\"", "refused");
    test_flow_close(&w);
}

/* It was to be reached, and the client did not wait: that somebody was dialled is told all the same. */
static void test_a_dial_that_nobody_waits_for(void **state)
{
    (void)state;
    struct test_flow w;
    char byte;
    test_flow_open_to(&w);
    flow_dial(w.flow);
    w.server = test_accept(w.listener);
    flow_end(w.flow, "the client went away");
    assert_int_equal(test_peer_wait(&w.rig, w.server, &byte, 1), -ECONNRESET);
    test_flow_expect_told(&w, "\"hello\"", "");
    test_flow_expect_told(&w, "\"flow\"", "\"what\":\"open\"");
    test_flow_expect_told(&w, "\"flow\"", "\"error\":\"the client went away\"");
    test_flow_close(&w);
}

/* One sandbox leaves others their connections, and what can't be accepted is not tried without a pause. */
static void test_a_crowd(void **state)
{
    (void)state;
    struct test_flow w;
    struct rlimit files, few;
    struct sockaddr_storage to;
    char byte;
    test_flow_open_to(&w);
    w.egress->flows_max = 1000;
    assert_int_equal(w.egress->n_flows, 1);
    assert_int_equal(net_flows_max(w.net), 499);
    w.egress->n_flows += 700;
    assert_int_equal(net_flows_max(w.net), 149);
    w.egress->n_flows += 299;
    assert_int_equal(net_flows_max(w.net), 0);
    w.egress->n_flows -= 999;
    w.egress->flows_max = 1000000;
    assert_int_equal(net_flows_max(w.net), NET_FLOWS_MAX);

    const int fds[3] = {test_listen(8, &to), socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0),
                        test_listen(1, &(struct sockaddr_storage){0})};
    net_open(w.net, fds);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), next = dup(client);
    (void)close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    few = (struct rlimit){(rlim_t)next, files.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    assert_int_equal(connect(client, (struct sockaddr *)&to, sizeof(struct sockaddr_in)), 0);
    for (int i = 0; i < 1000 && !w.net->deaf; i++)
        test_turn(&w.rig);
    assert_int_equal(fd_nonblock(client, true), 0);
    assert_true(w.net->deaf);
    assert_false(uv_is_active((uv_handle_t *)&w.net->tcp));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    assert_int_equal(test_peer_wait(&w.rig, client, &byte, 1), -ECONNRESET); /* for it was not captured */
    assert_false(w.net->deaf);
    (void)close(client);
    test_flow_close(&w);
}

/* One that is connected and begins TLS. Returns the server's end. */
static int begin_tls(struct test_flow *w, struct net *n)
{
    int client[2], server[2];
    test_tcp_pair(client);
    test_tcp_pair(server);
    struct flow *f = flow_new(n, client[1], &w->to, w->port);
    (void)snprintf(f->name, sizeof(f->name), "a.test");
    f->upstream = side_tcp_accept(&w->rig.loop, server[1]);
    flow_tls(f);
    (void)close(client[0]);
    return server[0];
}

static bool has_hello(void *ctx)
{
    char byte;
    return recv(*(int *)ctx, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
}

/* However many one sandbox begins, another's is the second. */
static void test_sandboxes_take_turns_with_tls(void **state)
{
    (void)state;
    struct test_flow w;
    int fds[6], begun = 0;
    test_flow_open_to(&w);
    struct net *other = net_get(w.egress, "i9876543210abcdefghij", true);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        fds[i] = begin_tls(&w, i + 1 < ARRAY_SIZE(fds) ? w.net : other);
    test_until(&w.rig, has_hello, &fds[ARRAY_SIZE(fds) - 1]);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        begun += has_hello(&fds[i]);
    assert_true(begun <= 3);
    flow_end(LIST_FIRST(struct flow, &w.net->turns, turn), NULL); /* one that waits */
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        (void)close(fds[i]);
    test_flow_close(&w);
}

/* Of connections that are intercepted, which take more memory, one sandbox leaves others some, too. */
static void test_a_crowd_that_is_intercepted(void **state)
{
    (void)state;
    struct test_flow w;
    test_flow_open_to(&w);
    test_flow_allow(&w, "{'rules':[{'allow':'a.test','path':'/v1*'},{'allow':'127.0.0.1'}]}");
    names_add(w.net->names, &w.to, "a.test", 60);
    names_add(w.net->names, &w.to, "b.test", 60);
    test_flow_expect_told(&w, "\"hello\"", "");
    assert_true(net_intercepted_max(w.net) >= 1000); /* of 512 MiB */
    w.egress->intercepted_max = 3;
    for (int i = 0; i < 3; i++) {
        test_flow_hello(w.client, i < 2 ? "a.test" : "b.test");
        flow_begin(w.flow);
        assert_int_equal(w.net->n_intercepted, i < 2 ? 1 : 0);
        if (i == 1)
            test_flow_expect_told(&w, "\"denied\"", "1 connections are intercepted");
        if (i > 0)
            flows_cut_all(w.net, "enough");
        assert_int_equal(w.egress->n_intercepted, i ? 0 : 1);
        if (i == 2)
            break;
        int client[2];
        (void)close(w.client);
        test_tcp_pair(client);
        w.client = client[0];
        w.flow = flow_new(w.net, client[1], &w.to, w.port);
    }
    test_flow_close(&w);
}

/* Neither are many that have begun to say something, and do not go on. */
static void test_a_crowd_that_begins(void **state)
{
    (void)state;
    enum { LONG = 6000 };
    struct test_flow w;
    char hello[LONG] = "\x16\x03\x01\x20\0\x01\0\x1f\xfc\x03\x03";
    test_flow_open_to(&w);
    test_flow_allow(&w, "{'rules':[{'allow':'a.test'}]}");
    test_flow_expect_told(&w, "\"hello\"", "");
    test_peer_send(w.client, hello, LONG);
    flow_begin(w.flow);
    assert_int_equal(w.net->n_flows, 1);
    assert_int_equal(w.net->share.held, LONG);
    test_flow_next(&w); /* the client has left, and what it had begun is judged as it is */
    test_flow_expect_told(&w, "\"denied\"", "this machine's own");
    assert_int_equal(w.net->share.held, 0);
    w.net->share.held = EXCHANGE_SHARE_MAX;
    test_peer_send(w.client, hello, FLOW_FIRST_LEAST);
    flow_begin(w.flow);
    test_turn(&w.rig);
    assert_int_equal(w.net->n_flows, 1);
    test_peer_send(w.client, hello + FLOW_FIRST_LEAST, LONG - FLOW_FIRST_LEAST);
    test_flow_expect_told(&w, "\"denied\"", "too much memory");
    assert_int_equal(w.net->share.held, EXCHANGE_SHARE_MAX);
    test_flow_close(&w);
}

static int flow_kept_bytes(const struct side *s, int option)
{
    int bytes = 0;
    socklen_t n = sizeof(bytes);
    assert_int_equal(getsockopt(side_fd(s), SOL_SOCKET, option, &bytes, &n), 0);
    return bytes / 2; /* the kernel counts its own use, too */
}

/* What stands still must not take the machine's memory of TCP, nor may it slow the few down. */
static void test_many_are_kept_small(void **state)
{
    static const struct {
        unsigned others;
        int bytes;
    } crowds[] = {{FLOW_FAST_MAX - 1, 0}, {FLOW_FAST_MAX, FLOW_MEDIUM_BYTES}, {FLOW_MEDIUM_MAX, FLOW_SLOW_BYTES}};
    (void)state;
    struct test_flow w;
    test_flow_open_to(&w);
    flow_end(w.flow, "not needed");
    for (size_t i = 0; i < ARRAY_SIZE(crowds); i++) {
        int pair[2];
        struct sockaddr_storage to;
        int server = test_listen(8, &to);
        struct netaddr addr;
        uint16_t port;
        assert_true(netaddr_from_sockaddr((struct sockaddr *)&to, &addr, &port));
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
        w.net->n_flows += crowds[i].others;
        struct flow *f = flow_new(w.net, pair[1], &addr, port);
        w.net->n_flows -= crowds[i].others;
        assert_int_equal(f->buffer_bytes, crowds[i].bytes);
        flow_connect(f, NULL);
        assert_true(side_tcp_is_connected(f->upstream));
        if (crowds[i].bytes) {
            assert_int_equal(flow_kept_bytes(f->client, SO_SNDBUF), crowds[i].bytes);
            assert_int_equal(flow_kept_bytes(f->client, SO_RCVBUF), crowds[i].bytes);
            assert_int_equal(flow_kept_bytes(f->upstream, SO_SNDBUF), crowds[i].bytes);
            assert_int_equal(flow_kept_bytes(f->upstream, SO_RCVBUF), crowds[i].bytes);
        }
        flow_end(f, "not needed");
        (void)close(pair[0]);
        (void)close(server);
        test_turn(&w.rig);
    }
    test_flow_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_stands_still),
        cmocka_unit_test(test_what_is_told_when),
        cmocka_unit_test(test_a_dial_that_fails),
        cmocka_unit_test(test_a_dial_that_nobody_waits_for),
        cmocka_unit_test(test_a_crowd),
        cmocka_unit_test(test_sandboxes_take_turns_with_tls),
        cmocka_unit_test(test_a_crowd_that_is_intercepted),
        cmocka_unit_test(test_a_crowd_that_begins),
        cmocka_unit_test(test_many_are_kept_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
