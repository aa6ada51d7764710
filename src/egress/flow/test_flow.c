/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/flow/test_flow.h"
#include "base/mem.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* With a connection of the sandbox to our server, of which nothing was read yet. */
void test_flow_open_to(struct test_flow *w)
{
    int control[2], api[2], client[2];
    struct err err;
    test_rig_open(&w->rig);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, api), 0);
    test_tcp_pair(client);
    const struct egress_config config = {
        .control_fd = control[1], .resolver = "127.0.0.1:1", .still_ms = TEST_FLOW_STILL_MS};
    assert_int_equal(egress_new(&w->rig.loop, &config, &w->egress, &err), 0);
    link_attach(w->egress->link, api[1]);
    w->control = control[0];
    w->api = api[0];
    w->client = client[0];
    w->server = -1;
    w->listener = test_listen(1, &w->addr);
    w->net = net_get(w->egress, TEST_FLOW_ID, true);
    assert_non_null(w->net);
    assert_true(netaddr_from_sockaddr((struct sockaddr *)&w->addr, &w->to, &w->port));
    w->flow = flow_new(w->net, client[1], &w->to, w->port);
}

void test_flow_open(struct test_flow *w)
{
    test_flow_open_to(w);
    flow_dial(w->flow);
    w->server = test_accept(w->listener);
}

void test_flow_close(struct test_flow *w)
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
const char *test_flow_told(struct test_flow *w)
{
    ssize_t n = recv(w->api, w->told, sizeof(w->told) - 1, 0);
    w->told[n < 0 ? 0 : n] = 0;
    return w->told;
}

static bool flow_is_told(void *ctx)
{
    return *test_flow_told(ctx) != 0;
}

void test_flow_expect_told(struct test_flow *w, const char *op, const char *what)
{
    test_until(&w->rig, flow_is_told, w);
    if (!strstr(w->told, op) || !strstr(w->told, what))
        fail_msg("told %s", w->told);
}

bool test_flow_is_gone(void *ctx)
{
    const struct test_flow *w = ctx;
    return w->net->n_flows == 0;
}

/* In these texts ' stands for ". */
void test_flow_allow(struct test_flow *w, const char *text)
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

/* As short as one can be. */
void test_flow_hello_with(int fd, const char *name, struct str more)
{
    AUTO_BUF struct buf b = BUF_INIT(512);
    const uint8_t n = name ? (uint8_t)strlen(name) : 0, all = (uint8_t)((name ? 9 + n : 0) + more.n), zeros[33] = {0};
    const uint8_t record[] = {22, 3, 1, 0, (uint8_t)(47 + all)}, message[] = {1, 0, 0, (uint8_t)(43 + all), 3, 3};
    const uint8_t suite[] = {0, 2, 0x13, 1, 1, 0, 0, all};
    const uint8_t extension[] = {0, 0, 0, (uint8_t)(5 + n), 0, (uint8_t)(3 + n), 0, 0, n};
    (void)buf_append(&b, record, sizeof(record));
    (void)buf_append(&b, message, sizeof(message));
    (void)buf_append(&b, zeros, sizeof(zeros));
    (void)buf_append(&b, suite, sizeof(suite));
    if (name && buf_append(&b, extension, sizeof(extension)) == 0)
        (void)buf_append(&b, name, n);
    (void)buf_append_str(&b, more);
    test_peer_send(fd, buf_data(&b), buf_len(&b));
}

void test_flow_hello(int fd, const char *name)
{
    test_flow_hello_with(fd, name, STR_NULL);
}

void test_flow_next(struct test_flow *w)
{
    int client[2];
    if (w->server >= 0)
        (void)close(w->server);
    w->server = -1;
    (void)close(w->client);
    test_until(&w->rig, test_flow_is_gone, w);
    test_tcp_pair(client);
    w->client = client[0];
    w->flow = flow_new(w->net, client[1], &w->to, w->port);
}
