/* SPDX-License-Identifier: Apache-2.0 */
/* A connection in a whole egress: how it is judged, what is passed through, when it ends by itself, what cove-api is told and when. */
#include "base/fd.h"
#include "base/mem.h"
#include "egress/flow.h"
#include "egress/names.h"
#include "egress/requests.h"
#include "egress/side_tcp.h"
#include "egress/test_side.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STILL_MS = 1500, MESSAGE_MAX = 4096 };

#define ID "i0123456789abcdefghij"

struct world {
    struct test_rig rig;
    struct egress *egress;
    struct net *net;
    struct flow *flow;
    int control, api, client, server, listener;
    struct sockaddr_storage addr;
    struct netaddr to;
    uint16_t port;
    char told[MESSAGE_MAX];
};

/* With a connection of the sandbox to our server, of which nothing was read yet. */
static void world_open_to(struct world *w)
{
    int control[2], api[2], client[2];
    struct err err;
    test_rig_open(&w->rig);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, api), 0);
    test_tcp_pair(client);
    const struct egress_config config = {.control_fd = control[1], .resolver = "127.0.0.1:1", .still_ms = STILL_MS};
    assert_int_equal(egress_new(&w->rig.loop, &config, &w->egress, &err), 0);
    link_attach(w->egress->link, api[1]);
    w->control = control[0];
    w->api = api[0];
    w->client = client[0];
    w->server = -1;
    w->listener = test_listen(1, &w->addr);
    w->net = net_get(w->egress, ID, true);
    assert_non_null(w->net);
    assert_true(netaddr_from_sockaddr((struct sockaddr *)&w->addr, &w->to, &w->port));
    w->flow = flow_new(w->net, client[1], &w->to, w->port);
}

static void world_open(struct world *w)
{
    world_open_to(w);
    flow_dial(w->flow);
    w->server = test_accept(w->listener);
}

static void world_close(struct world *w)
{
    egress_free(w->egress);
    test_until_alone(&w->rig);
    const int fds[] = {w->control, w->api, w->client, w->server, w->listener};
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    test_rig_close(&w->rig);
}

/* The next message, or "" when there is none yet. */
static const char *told(struct world *w)
{
    ssize_t n = recv(w->api, w->told, sizeof(w->told) - 1, 0);
    w->told[n < 0 ? 0 : n] = 0;
    return w->told;
}

static bool is_told(void *ctx)
{
    return *told(ctx) != 0;
}

static void expect_told(struct world *w, const char *op, const char *what)
{
    test_until(&w->rig, is_told, w);
    if (!strstr(w->told, op) || !strstr(w->told, what))
        fail_msg("told %s", w->told);
}

static bool is_gone(void *ctx)
{
    const struct world *w = ctx;
    return w->net->n_flows == 0;
}

static void test_what_stands_still(void **state)
{
    (void)state;
    struct world w;
    char byte;
    world_open(&w);
    usec_t start = clock_mono();
    for (int i = 0; i < 4; i++) { /* either way is enough */
        test_peer_send(i % 2 ? w.server : w.client, "x", 1);
        test_peer_expect(&w.rig, i % 2 ? w.client : w.server, STR("x"));
        (void)usleep(400000);
        uv_update_time(&w.rig.loop);
    }
    assert_int_equal(w.net->n_flows, 1);
    usec_t last = clock_mono();
    test_until(&w.rig, is_gone, &w);
    assert_true(clock_mono() - start > 2500 * USEC_PER_MS && clock_mono() - last > 1000 * USEC_PER_MS);
    assert_int_equal(test_peer_wait(&w.rig, w.client, &byte, 1), -ECONNRESET);
    assert_int_equal(test_peer_wait(&w.rig, w.server, &byte, 1), -ECONNRESET);
    expect_told(&w, "\"hello\"", "");
    expect_told(&w, "\"flow\"", "\"what\":\"open\"");
    expect_told(&w, "\"flow\"", "\"error\":\"nothing was sent for 1500 ms\"");
    assert_non_null(strstr(w.told, "\"sent\":2,\"received\":2"));
    world_close(&w);
}

/* The beginning of a connection, and an end in good order, may wait for others, but not for long, and never in another order. */
static void test_what_is_told_when(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    test_peer_send(w.client, "x", 1);
    test_peer_expect(&w.rig, w.server, STR("x"));
    expect_told(&w, "\"hello\"", "");
    expect_told(&w, "\"flow\"", "\"what\":\"open\"");
    assert_int_equal(w.net->n_flows, 1);
    assert_int_equal(shutdown(w.client, SHUT_WR), 0);
    assert_int_equal(shutdown(w.server, SHUT_WR), 0);
    expect_told(&w, "\"flow\"", "\"what\":\"close\"");
    assert_null(strstr(w.told, "error"));
    test_until(&w.rig, is_gone, &w);
    world_close(&w);

    world_open(&w);
    assert_int_equal(shutdown(w.client, SHUT_WR), 0);
    assert_int_equal(shutdown(w.server, SHUT_WR), 0);
    expect_told(&w, "\"hello\"", "");
    expect_told(&w, "\"flow\"", "\"what\":\"open\"");
    expect_told(&w, "\"flow\"", "\"what\":\"close\"");
    world_close(&w);

    /* What was not told yet is when all of it ends. */
    world_open(&w);
    test_peer_send(w.client, "x", 1);
    test_peer_expect(&w.rig, w.server, STR("x"));
    egress_free(w.egress);
    assert_non_null(strstr(told(&w), "\"hello\""));
    assert_non_null(strstr(told(&w), "\"what\":\"open\""));
    assert_non_null(strstr(told(&w), "\"error\":\"the sandbox has ended\""));
    test_until_alone(&w.rig);
    const int fds[] = {w.control, w.api, w.client, w.server, w.listener};
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        (void)close(fds[i]);
    test_rig_close(&w.rig);
}

static void test_a_dial_that_fails(void **state)
{
    (void)state;
    struct world w;
    world_open_to(&w);
    (void)close(w.listener);
    w.listener = -1;
    flow_dial(w.flow);
    test_until(&w.rig, is_gone, &w);
    expect_told(&w, "\"hello\"", "");
    expect_told(&w, "\"flow\"", "\"what\":\"open\"");
    expect_told(&w, "\"flow\"", "refused");
    world_close(&w);
}

/* It was to be reached, and the client did not wait: that somebody was dialled is told all the same. */
static void test_a_dial_that_nobody_waits_for(void **state)
{
    (void)state;
    struct world w;
    char byte;
    world_open_to(&w);
    flow_dial(w.flow);
    w.server = test_accept(w.listener);
    flow_end(w.flow, "the client went away");
    assert_int_equal(test_peer_wait(&w.rig, w.server, &byte, 1), -ECONNRESET);
    expect_told(&w, "\"hello\"", "");
    expect_told(&w, "\"flow\"", "\"what\":\"open\"");
    expect_told(&w, "\"flow\"", "\"error\":\"the client went away\"");
    world_close(&w);
}

/* ---- what is judged ---- */

/* In these texts ' stands for ". */
static void allow(struct world *w, const char *text)
{
    AUTO_FREE char *copy = mem_strdup(text);
    struct policy *p;
    struct err err;
    for (char *c = copy; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *json = json_loads(copy, 0, NULL);
    if (policy_parse(json, &p, &err) < 0)
        fail_msg("%s: %s", text, err.msg);
    json_decref(json);
    net_set_policy(w->net, p);
}

/* To a policy it is a port that is not known yet, which is some other one. */
static void test_port_zero(void **state)
{
    (void)state;
    struct world w;
    world_open_to(&w);
    allow(&w, "{'default':'allow'}");
    expect_told(&w, "\"hello\"", "");
    w.flow->port = 0;
    flow_begin(w.flow);
    expect_told(&w, "\"denied\"", "there is no port 0");
    world_close(&w);
}

/* As short as one can be. */
static void say_hello_with(int fd, const char *name, struct str more)
{
    AUTO_BUF struct buf b = BUF_INIT(512);
    const uint8_t n = (uint8_t)strlen(name), all = (uint8_t)(n + more.n), zeros[33] = {0};
    const uint8_t record[] = {22, 3, 1, 0, (uint8_t)(56 + all)}, message[] = {1, 0, 0, (uint8_t)(52 + all), 3, 3};
    const uint8_t suite[] = {0, 2, 0x13, 1, 1, 0, 0, (uint8_t)(9 + all)};
    const uint8_t extension[] = {0, 0, 0, (uint8_t)(5 + n), 0, (uint8_t)(3 + n), 0, 0, n};
    (void)buf_append(&b, record, sizeof(record));
    (void)buf_append(&b, message, sizeof(message));
    (void)buf_append(&b, zeros, sizeof(zeros));
    (void)buf_append(&b, suite, sizeof(suite));
    (void)buf_append(&b, extension, sizeof(extension));
    (void)buf_append(&b, name, n);
    (void)buf_append_str(&b, more);
    test_peer_send(fd, buf_data(&b), buf_len(&b));
}

static void say_hello(int fd, const char *name)
{
    say_hello_with(fd, name, STR_NULL);
}

static void next_connection(struct world *w)
{
    int client[2];
    if (w->server >= 0)
        (void)close(w->server);
    w->server = -1;
    (void)close(w->client);
    test_until(&w->rig, is_gone, w);
    test_tcp_pair(client);
    w->client = client[0];
    w->flow = flow_new(w->net, client[1], &w->to, w->port);
}

/* Bytes, and requests without a name, to an address that is known by a name of which something is denied. */
static void test_what_hides_its_name(void **state)
{
    (void)state;
    struct world w;
    char byte;
    world_open_to(&w);
    allow(&w, "{'rules':[{'deny':'api.test','path':'/admin*'},{'allow':'127.0.0.1'},{'allow':'other.test'}]}");
    names_add(w.net->names, &w.to, "api.test", 60);
    expect_told(&w, "\"hello\"", "");

    test_peer_send(w.client, "hello\n", 6);
    flow_begin(w.flow);
    expect_told(&w, "\"denied\"", "rule 0 (deny api.test)");
    assert_int_equal(test_peer_wait(&w.rig, w.client, &byte, 1), -ECONNRESET);

    next_connection(&w);
    say_hello(w.client, "other.test");
    flow_begin(w.flow);
    expect_told(&w, "\"denied\"", "rule 0 (deny api.test)");

    static const char *const hosts[] = {"127.0.0.1", "other.test"};
    for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
        AUTO_FREE char *denied = mem_printf("GET /admin HTTP/1.0\r\nHost: %s\r\n\r\n", hosts[i]);
        AUTO_FREE char *fine = mem_printf("GET /x HTTP/1.0\r\nHost: %s\r\n\r\n", hosts[i]);
        next_connection(&w);
        test_peer_send(w.client, denied, strlen(denied));
        flow_begin(w.flow);
        expect_told(&w, "\"denied\"", "rule 0 (deny api.test)");
        test_peer_expect(&w.rig, w.client, STR("HTTP/1.1 403 "));

        next_connection(&w);
        test_peer_send(w.client, fine, strlen(fine));
        flow_begin(w.flow);
        expect_told(&w, "\"flow\"", "\"what\":\"open\"");
        w.server = test_accept(w.listener);
        test_peer_expect(&w.rig, w.server, STR("GET /x HTTP/1.1\r\n"));
        (void)close(w.server);
        w.server = -1;
        expect_told(&w, "\"request\"", "/x");
        expect_told(&w, "\"flow\"", "\"what\":\"close\"");
    }
    world_close(&w);
}

/* A name that was only claimed keeps nothing open when the address is allowed no more. */
static void test_a_claim_and_a_new_policy(void **state)
{
    (void)state;
    struct world w;
    world_open_to(&w);
    assert_true(netaddr_parse(STR("8.8.8.8"), &w.flow->to));
    w.flow->state = FLOW_OPEN;
    w.flow->proto = FLOW_TLS;
    (void)snprintf(w.flow->name, sizeof(w.flow->name), "good.test");
    allow(&w, "{'rules':[{'allow':'good.test'},{'allow':'8.8.8.8'}]}");
    assert_int_equal(w.net->n_flows, 1);
    w.flow->belongs = true;
    allow(&w, "{'rules':[{'allow':'good.test'}]}");
    assert_int_equal(w.net->n_flows, 1);
    w.flow->belongs = false;
    allow(&w, "{'rules':[{'allow':'good.test'}]}");
    assert_int_equal(w.net->n_flows, 0);
    world_close(&w);
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
    struct world w;
    world_open_to(&w);
    names_add(w.net->names, &w.to, "good.test", 60);
    expect_told(&w, "\"hello\"", "");
    for (size_t i = 0; i < 2 * ARRAY_SIZE(cases); i++) {
        AUTO_FREE char *policy = mem_printf("{'rules':[%s]}", cases[i / 2].rules);
        bool hides = i % 2, is_refused = hides && !cases[i / 2].without;
        assert_int_equal(fd_nonblock(w.listener, is_refused), 0);
        allow(&w, policy);
        say_hello_with(w.client, "good.test", hides ? str_n(ech, sizeof(ech) - 1) : STR_NULL);
        flow_begin(w.flow);
        if (is_refused) {
            test_peer_expect(&w.rig, w.client, str_n(alert, sizeof(alert) - 1));
            /* cppcheck-suppress nullPointer ; both may be, says accept(2) */
            assert_int_equal(accept4(w.listener, NULL, NULL, SOCK_CLOEXEC), -1);
        } else {
            w.server = test_accept(w.listener);
            if (cases[i / 2].without) {
                AUTO_FREE char *closed = mem_printf("{'rules':[%s]}", cases[i / 2].without);
                allow(&w, closed);
                assert_int_equal(w.net->n_flows, hides || i / 2 == 1 || i / 2 == ARRAY_SIZE(cases) - 1 ? 0 : 1);
            }
        }
        next_connection(&w);
    }
    world_close(&w);
}

/* Who is refused is told what would let it pass, and it does. */
static void test_an_encrypted_hello_is_told(void **state)
{
    (void)state;
    static const char ech[] = "\xfe\x0d\0\1\0";
    struct world w;
    world_open_to(&w);
    names_add(w.net->names, &w.to, "good.test", 60);
    allow(&w, "{'rules':[{'deny':'bad.test'},{'allow':'127.0.0.1'}]}");
    expect_told(&w, "\"hello\"", "");
    say_hello_with(w.client, "good.test", str_n(ech, sizeof(ech) - 1));
    flow_begin(w.flow);
    expect_told(&w, "\"denied\"", "the encrypted part of its ClientHello (ECH) may name another host");
    assert_non_null(strstr(w.told, "in the rule for good.test lets it pass\""));
    assert_non_null(strstr(w.told, "\"suggestion\":\"{\\\"allow\\\":\\\"good.test\\\",\\\"ports\\\":["));
    assert_non_null(strstr(w.told, ",\\\"ech\\\":\\\"allow\\\"}\""));
    world_close(&w);
}

/* Names of ClientHellos that nobody knows of: one sandbox does not take all of the resolver. */
static void test_many_names_to_look_up(void **state)
{
    (void)state;
    struct world w;
    int clients[FLOW_LOOKUPS_MAX];
    world_open_to(&w);
    allow(&w, "{'rules':[{'allow':'*.example.com'},{'allow':'127.0.0.1'}]}");
    expect_told(&w, "\"hello\"", "");
    for (size_t i = 0; i < FLOW_LOOKUPS_MAX; i++) {
        AUTO_FREE char *name = mem_printf("n%zu.example.com", i);
        int pair[2];
        test_tcp_pair(pair);
        clients[i] = pair[0];
        say_hello(pair[0], name);
        struct flow *f = flow_new(w.net, pair[1], &w.to, w.port);
        flow_begin(f);
        assert_int_equal(f->state, FLOW_RESOLVE);
        if (i == 0)
            flow_end(f, "the client went away"); /* and leaves its place */
    }
    say_hello(w.client, "last.example.com");
    flow_begin(w.flow);
    assert_int_equal(w.flow->state, FLOW_RESOLVE);
    int pair[2];
    test_tcp_pair(pair);
    say_hello(pair[0], "one.too.many.example.com");
    flow_begin(flow_new(w.net, pair[1], &w.to, w.port));
    (void)close(pair[0]);
    expect_told(&w, "\"denied\"", "more than 64 names");
    flows_cut_all(w.net, "enough");
    assert_int_equal(w.net->n_lookups, 0);
    for (size_t i = 0; i < FLOW_LOOKUPS_MAX; i++)
        (void)close(clients[i]);
    world_close(&w);
}

/* A busy client is waited for where a name would help it, and refused at once where none does. */
static void test_silence(void **state)
{
    (void)state;
    struct world w;
    for (int is_known = 0; is_known < 2; is_known++) {
        world_open_to(&w);
        allow(&w, "{'rules':[{'allow':'a.test','ports':[443]}]}");
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
        world_close(&w);
    }
}

/* What the client says behind its hello is for whoever answers that. */
static void test_more_than_a_hello(void **state)
{
    (void)state;
    static const char end_of_hello[] = "\x14\x03\x03\0\1\1";
    struct world w;
    world_open_to(&w);
    allow(&w, "{'rules':[{'allow':'a.test','path':'/v1*'},{'allow':'127.0.0.1'}]}");
    names_add(w.net->names, &w.to, "a.test", 60);
    say_hello(w.client, "a.test");
    flow_begin(w.flow);
    assert_int_equal(w.flow->state, FLOW_TLS_WORLD); /* connected at once */
    const struct side *upstream = w.flow->upstream;
    w.server = test_accept(w.listener);
    test_peer_send(w.client, end_of_hello, sizeof(end_of_hello) - 1);
    test_turn(&w.rig);
    assert_ptr_equal(w.flow->upstream, upstream);
    assert_int_equal(fd_nonblock(w.listener, true), 0);
    /* cppcheck-suppress nullPointer ; both may be, says accept(2) */
    assert_int_equal(accept4(w.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), -1);
    world_close(&w);
}

/* ---- what is said late, or not as it is written ---- */

#define TENANT "Host: tenant.test\r\n\r\n"

static void world_open_shared(struct world *w)
{
    world_open_to(w);
    allow(w, "{'rules':[{'deny':'tenant.test'},{'allow':'127.0.0.1'}]}");
}

static bool is_open(void *ctx)
{
    const struct world *w = ctx;
    assert_int_equal(w->net->n_flows, 1);
    return w->flow->state >= FLOW_WATCH;
}

static void expect_answer(struct world *w, const char *status)
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
    struct world w;
    world_open_shared(&w);
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
            expect_answer(&w, status);
            /* cppcheck-suppress nullPointer ; both may be, says accept(2) */
            assert_int_equal(accept4(w.listener, NULL, NULL, SOCK_CLOEXEC), -1);
        } else {
            test_until(&w.rig, is_open, &w);
            w.server = test_accept(w.listener);
            test_peer_expect(&w.rig, w.server, str_of(said));
        }
        next_connection(&w);
    }
    world_close(&w);
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
    struct world w;
    world_open_to(&w);
    allow(&w, "{'rules':[{'allow':'127.0.0.1','methods':['GET','POST'],'path':'/v1/*'}]}");
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        AUTO_FREE char *said = mem_printf("%s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n", cases[i].line, cases[i].fields);
        test_peer_send(w.client, said, strlen(said));
        flow_begin(w.flow);
        if (cases[i].status) {
            expect_answer(&w, cases[i].status);
        } else {
            test_turn(&w.rig);
            w.server = test_accept(w.listener);
            test_peer_expect(&w.rig, w.server, str_of(cases[i].line));
        }
        next_connection(&w);
    }
    world_close(&w);
}

/* What proxies say of a request does not leave with one that is judged, and leaves with others; nor is a list of methods compared with a denied one. */
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
    struct world w;
    world_open_to(&w);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        allow(&w, cases[i].policy);
        AUTO_FREE char *said = mem_printf("GET /v1/x HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n", cases[i].fields);
        test_peer_send(w.client, said, strlen(said));
        flow_begin(w.flow);
        if (cases[i].seen) {
            AUTO_FREE char *seen = mem_printf("GET /v1/x HTTP/1.1\r\nhost: 127.0.0.1\r\n%s", cases[i].seen);
            test_turn(&w.rig);
            w.server = test_accept(w.listener);
            test_peer_expect(&w.rig, w.server, str_of(seen));
        } else {
            expect_answer(&w, "HTTP/1.1 403");
        }
        next_connection(&w);
    }
    world_close(&w);
}

/* Who says nothing is dialled for; what it says then is looked at, unless the server was first. */
static void test_requests_after_silence(void **state)
{
    (void)state;
    static const char tenant[] = "GET / HTTP/1.1\r\n" TENANT, own[] = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    for (int i = 0; i < 4; i++) {
        struct world w;
        char byte;
        world_open_shared(&w);
        flow_begin(w.flow);
        test_until(&w.rig, is_open, &w);
        assert_int_equal(w.flow->state, FLOW_WATCH);
        w.server = test_accept(w.listener);
        switch (i) {
        case 0:
            test_peer_send(w.client, tenant, sizeof(tenant) - 1);
            expect_answer(&w, "HTTP/1.1 403");
            (void)close(w.client);
            w.client = -1;
            test_until(&w.rig, is_gone, &w);
            assert_true(test_peer_wait(&w.rig, w.server, &byte, 1) <= 0);
            break;
        case 1:
            test_peer_send(w.client, own, 5);
            test_turn(&w.rig);
            test_peer_send(w.client, own + 5, sizeof(own) - 6);
            test_peer_expect(&w.rig, w.server, STR("GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n"));
            test_peer_send(w.server, "HTTP/1.1 204 No Content\r\n\r\n", 27);
            expect_answer(&w, "HTTP/1.1 204");
            expect_told(&w, "\"hello\"", "");
            expect_told(&w, "\"open\"", "\"proto\":\"tcp\"");
            expect_told(&w, "\"request\"", "");
            (void)shutdown(w.client, SHUT_WR);
            expect_told(&w, "\"close\"", "\"proto\":\"http\""); /* what it was in the end */
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
        world_close(&w);
    }
}

/* Its processes may live on for a moment, and go on with what they were saying. */
static void test_half_a_hello_of_a_forgotten_sandbox(void **state)
{
    (void)state;
    struct world w;
    char byte;
    world_open_to(&w);
    allow(&w, "{'default':'allow'}");
    test_peer_send(w.client, "\x16\x03", 2);
    flow_begin(w.flow);
    assert_int_equal(w.flow->state, FLOW_SNIFF);
    allow(&w, "{'default':'deny'}");
    assert_int_equal(w.net->n_flows, 1);
    net_set_policy(w.net, NULL);
    assert_int_equal(w.net->n_flows, 0);
    assert_int_equal(test_peer_wait(&w.rig, w.client, &byte, 1), -ECONNRESET);
    world_close(&w);
}

/* The sandbox may be forgotten while the name is looked up. */
static void test_a_check_and_a_forgotten_sandbox(void **state)
{
    (void)state;
    struct world w;
    world_open_to(&w);
    flow_end(w.flow, "not needed");
    allow(&w, "{'rules':[{'allow':'a.test'}]}");
    expect_told(&w, "\"hello\"", "");
    const int fds[3] = {test_listen(1, &(struct sockaddr_storage){0}), socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0),
                        test_listen(1, &(struct sockaddr_storage){0})};
    net_open(w.net, fds);
    json_t *check = json_pack("{s:s,s:i,s:s,s:s}", "op", "check", "tag", 7, "id", ID, "url", "https://a.test/");
    json_t *forget = json_pack("{s:s,s:s}", "op", "forget", "id", ID);
    assert_true(requests_handle(w.egress, check));
    assert_true(requests_handle(w.egress, forget));
    assert_null(w.net->policy);
    expect_told(&w, "\"checked\"", "\"tag\":7");
    json_decref(check);
    json_decref(forget);
    world_close(&w);
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
    struct world w;
    world_open_to(&w);
    flow_end(w.flow, "not needed");
    allow(&w, "{'rules':[{'deny':'127.0.0.1','path':'/x*'},{'allow':'127.0.0.1','ports':[443]}]}");
    expect_told(&w, "\"hello\"", "");
    for (size_t i = 0; i < ARRAY_SIZE(urls); i++) {
        char verdict[32];
        (void)snprintf(verdict, sizeof(verdict), "\"verdict\":\"%s\"", urls[i].verdict);
        json_t *check = json_pack("{s:s,s:i,s:s,s:s}", "op", "check", "tag", 7, "id", ID, "url", urls[i].url);
        assert_true(requests_handle(w.egress, check));
        json_decref(check);
        print_message("%s\n", urls[i].url);
        expect_told(&w, "\"checked\"", verdict);
    }
    world_close(&w);
}

/* One sandbox leaves others their connections, and what can't be accepted is not tried without a pause. */
static void test_a_crowd(void **state)
{
    (void)state;
    struct world w;
    struct rlimit files, few;
    struct sockaddr_storage to;
    char byte;
    world_open_to(&w);
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
    world_close(&w);
}

/* Of connections that are intercepted, which take more memory, one sandbox leaves others some, too. */
static void test_a_crowd_that_is_intercepted(void **state)
{
    (void)state;
    struct world w;
    world_open_to(&w);
    allow(&w, "{'rules':[{'allow':'a.test','path':'/v1*'},{'allow':'127.0.0.1'}]}");
    names_add(w.net->names, &w.to, "a.test", 60);
    names_add(w.net->names, &w.to, "b.test", 60);
    expect_told(&w, "\"hello\"", "");
    assert_true(net_intercepted_max(w.net) >= 1000); /* of 512 MiB */
    w.egress->intercepted_max = 3;
    for (int i = 0; i < 3; i++) {
        say_hello(w.client, i < 2 ? "a.test" : "b.test");
        flow_begin(w.flow);
        assert_int_equal(w.net->n_intercepted, i < 2 ? 1 : 0);
        if (i == 1)
            expect_told(&w, "\"denied\"", "1 connections are intercepted");
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
    world_close(&w);
}

/* Neither are many that have begun to say something, and do not go on. */
static void test_a_crowd_that_begins(void **state)
{
    (void)state;
    enum { LONG = 6000 };
    struct world w;
    char hello[LONG] = "\x16\x03\x01\x20\0\x01\0\x1f\xfc\x03\x03";
    world_open_to(&w);
    allow(&w, "{'rules':[{'allow':'a.test'}]}");
    expect_told(&w, "\"hello\"", "");
    test_peer_send(w.client, hello, LONG);
    flow_begin(w.flow);
    assert_int_equal(w.net->n_flows, 1);
    assert_int_equal(w.net->share.held, LONG);
    next_connection(&w); /* the client has left, and what it had begun is judged as it is */
    expect_told(&w, "\"denied\"", "this machine's own");
    assert_int_equal(w.net->share.held, 0);
    w.net->share.held = EXCHANGE_SHARE_MAX;
    test_peer_send(w.client, hello, FLOW_FIRST_LEAST);
    flow_begin(w.flow);
    test_turn(&w.rig);
    assert_int_equal(w.net->n_flows, 1);
    test_peer_send(w.client, hello + FLOW_FIRST_LEAST, LONG - FLOW_FIRST_LEAST);
    expect_told(&w, "\"denied\"", "too much memory");
    assert_int_equal(w.net->share.held, EXCHANGE_SHARE_MAX);
    world_close(&w);
}

static int kept(const struct side *s, int option)
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
    struct world w;
    world_open_to(&w);
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
            assert_int_equal(kept(f->client, SO_SNDBUF), crowds[i].bytes);
            assert_int_equal(kept(f->client, SO_RCVBUF), crowds[i].bytes);
            assert_int_equal(kept(f->upstream, SO_SNDBUF), crowds[i].bytes);
            assert_int_equal(kept(f->upstream, SO_RCVBUF), crowds[i].bytes);
        }
        flow_end(f, "not needed");
        (void)close(pair[0]);
        (void)close(server);
        test_turn(&w.rig);
    }
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_stands_still),
        cmocka_unit_test(test_what_is_told_when),
        cmocka_unit_test(test_a_dial_that_fails),
        cmocka_unit_test(test_a_dial_that_nobody_waits_for),
        cmocka_unit_test(test_what_hides_its_name),
        cmocka_unit_test(test_a_claim_and_a_new_policy),
        cmocka_unit_test(test_encrypted_hellos),
        cmocka_unit_test(test_an_encrypted_hello_is_told),
        cmocka_unit_test(test_many_names_to_look_up),
        cmocka_unit_test(test_port_zero),
        cmocka_unit_test(test_silence),
        cmocka_unit_test(test_more_than_a_hello),
        cmocka_unit_test(test_requests_that_do_not_look_like_it),
        cmocka_unit_test(test_requests_that_are_others),
        cmocka_unit_test(test_requests_of_another_origin),
        cmocka_unit_test(test_requests_after_silence),
        cmocka_unit_test(test_half_a_hello_of_a_forgotten_sandbox),
        cmocka_unit_test(test_a_check_and_a_forgotten_sandbox),
        cmocka_unit_test(test_urls_to_check),
        cmocka_unit_test(test_a_crowd),
        cmocka_unit_test(test_a_crowd_that_is_intercepted),
        cmocka_unit_test(test_a_crowd_that_begins),
        cmocka_unit_test(test_many_are_kept_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
