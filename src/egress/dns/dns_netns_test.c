/* SPDX-License-Identifier: Apache-2.0 */
/* The DNS of a sandbox behind the redirection of its namespace: whatever server it asks seems to answer. Needs root, or
 * skips. */
#include "base/fd.h"
#include "egress/dns/dns_server.h"
#include "egress/dns/test_authority.h"
#include "kernel/netns.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static const char question[] = "\0\7\1\0\0\1\0\0\0\0\0\0\5eXact\4test\0\0\1\0\1";
enum { QUESTION = sizeof(question) - 1, ANSWER = QUESTION + 16 };

static bool may(void *ctx, const char *name, struct policy_answer *ret_answer)
{
    (void)ctx;
    *ret_answer = (struct policy_answer){.verdict = POLICY_ALLOW};
    return strcmp(name, "exact.test") == 0;
}

static size_t resolved(void *ctx, const char *name, struct netaddr *addrs, size_t n, unsigned ttl_s)
{
    (void)ctx, (void)name, (void)addrs, (void)ttl_s;
    return n;
}

static void refused(void *ctx, const char *name, const char *type, const struct policy_answer *why)
{
    (void)ctx, (void)name, (void)type, (void)why;
    fail_msg("nothing is refused here");
}

static void failed(void *ctx, const char *name, const char *why)
{
    (void)ctx, (void)name, (void)why;
    fail_msg("all is resolved here");
}

static const struct dns_server_ops ops = {may, resolved, refused, failed};

static void zone(struct authority *a, const struct dns_query *q, bool udp)
{
    (void)udp;
    authority_begin(a, q, 0);
    authority_add(a, "", DNS_A, 60, "192.0.2.1");
    authority_say(a);
}

struct world {
    uv_loop_t loop;
    struct authority authority;
    struct resolver *resolver;
    struct dns_server *server;
    struct netns net;
    int outside; /* the namespace of this program */
};

static int start(void **state)
{
    static struct world w;
    struct err err;
    w = (struct world){.net = NETNS_NONE, .outside = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC)};
    assert_true(w.outside >= 0);
    int r = netns_make(&w.net);
    if (r < 0) {
        print_message("no network namespace of a sandbox here: %s\n", strerror(-r));
        (void)setns(w.outside, CLONE_NEWNET);
        fd_close(w.outside);
        return 0;
    }
    assert_int_equal(setns(w.outside, CLONE_NEWNET), 0);
    assert_int_equal(uv_loop_init(&w.loop), 0);
    authority_start(&w.authority, &w.loop, zone);
    assert_int_equal(resolver_new(&w.loop, w.authority.address, &w.resolver, &err), 0);
    assert_int_equal(dns_server_new(&w.loop, w.resolver, w.net.dns_udp, w.net.dns_tcp, &ops, &w, &w.server), 0);
    w.net.dns_udp = w.net.dns_tcp = -1;
    alarm(50);
    *state = &w;
    return 0;
}

static int stop(void **state)
{
    struct world *w = *state;
    if (!w)
        return 0;
    dns_server_free(w->server);
    resolver_free(w->resolver);
    authority_stop(&w->authority);
    (void)uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    netns_close(&w->net);
    fd_close(w->outside);
    return 0;
}

/* A socket of the sandbox. */
static int inside(struct world *w, int family, int type)
{
    assert_int_equal(setns(w->net.ns, CLONE_NEWNET), 0);
    int fd = socket(family, type | SOCK_CLOEXEC, 0);
    assert_int_equal(setns(w->outside, CLONE_NEWNET), 0);
    assert_true(fd >= 0);
    return fd;
}

/* Until that much has come; alarm() ends what never does. */
static void expect_answer(struct world *w, int fd, size_t n, struct sockaddr_storage *ret_from)
{
    char bytes[1500];
    socklen_t size = sizeof(*ret_from);
    for (struct pollfd p = {.fd = fd, .events = POLLIN}; poll(&p, 1, 1) != 1;)
        (void)uv_run(&w->loop, UV_RUN_NOWAIT);
    assert_int_equal(recvfrom(fd, bytes, sizeof(bytes), 0, (struct sockaddr *)ret_from, &size), n);
    assert_memory_equal(bytes + n - 4, "\xc0\0\2\1", 4);
}

static void test_any_server(void **state)
{
    struct world *w = *state;
    static const char *const servers[] = {NETNS_DNS_ADDRESS,      "8.8.8.8", "1.1.1.1", "192.168.1.1",
                                          "2001:4860:4860::8888", "fd00::53"};
    if (!w)
        skip();
    for (size_t i = 0; i < ARRAY_SIZE(servers); i++) {
        struct netaddr addr, from_addr;
        struct sockaddr_storage sa, from;
        uint16_t port;
        assert_true(netaddr_parse(str_of(servers[i]), &addr));
        socklen_t size = (socklen_t)netaddr_to_sockaddr(&addr, 53, &sa);

        int fd = inside(w, sa.ss_family, SOCK_DGRAM); /* not connected: whoever answers is seen */
        assert_int_equal(sendto(fd, question, QUESTION, 0, (struct sockaddr *)&sa, size), QUESTION);
        expect_answer(w, fd, ANSWER, &from);
        assert_true(netaddr_from_sockaddr((struct sockaddr *)&from, &from_addr, &port));
        assert_true(netaddr_eq(&addr, &from_addr));
        assert_int_equal(port, 53);
        assert_int_equal(connect(fd, (struct sockaddr *)&sa, size), 0); /* and as the C library does it */
        assert_int_equal(send(fd, question, QUESTION, 0), QUESTION);
        expect_answer(w, fd, ANSWER, &from);
        close(fd);

        char frame[2 + QUESTION] = {0, QUESTION};
        memcpy(frame + 2, question, QUESTION);
        fd = inside(w, sa.ss_family, SOCK_STREAM);
        assert_int_equal(connect(fd, (struct sockaddr *)&sa, size), 0);
        assert_int_equal(send(fd, frame, sizeof(frame), 0), sizeof(frame));
        expect_answer(w, fd, 2 + ANSWER, &from);
        close(fd);
    }
    assert_int_equal(w->authority.asked, 1); /* of all that, this left the machine */
}

int main(void)
{
    const struct CMUnitTest all[] = {cmocka_unit_test_setup_teardown(test_any_server, start, stop)};
    return cmocka_run_group_tests(all, NULL, NULL);
}
