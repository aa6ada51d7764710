/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/test_netns.h"
#include "base/fd.h"
#include "kernel/probe.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

struct netns net = {-1, -1, -1, -1};

struct address address(const char *text, uint16_t port)
{
    struct address a = {.n = sizeof(struct sockaddr_in)};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&a.at;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&a.at;
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
    } else {
        assert_int_equal(inet_pton(AF_INET6, text, &v6->sin6_addr), 1);
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        a.n = sizeof(*v6);
    }
    return a;
}

const struct sockaddr *sa(const struct address *a)
{
    return (const struct sockaddr *)&a->at;
}

int open_for(const struct address *a, int type)
{
    int fd = socket(a->at.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    return fd;
}

void await(int fd, short events)
{
    struct pollfd p = {.fd = fd, .events = events};
    assert_int_equal(poll(&p, 1, WAIT_MS), 1);
}

int bind_to(int fd, const char *text, uint16_t port)
{
    static const int on = 1;
    struct address a = address(text, port);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    return bind(fd, sa(&a), a.n);
}

int outcome(int fd, const struct address *to)
{
    int e = 0;
    socklen_t n = sizeof(e);
    if (connect(fd, sa(to), to->n) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return errno;
    await(fd, POLLOUT);
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n), 0);
    return e;
}

int accept_one(int listener)
{
    struct address from = {.n = sizeof(from.at)};
    await(listener, POLLIN);
    int fd = accept4(listener, (struct sockaddr *)&from.at, &from.n, SOCK_CLOEXEC | SOCK_NONBLOCK);
    assert_true(fd >= 0);
    return fd;
}

bool is_quiet(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 0;
}

static void expect_original(int fd, const char *text, uint16_t port)
{
    struct sockaddr_storage to;
    struct address wanted = address(text, port);
    memset(&to, 0, sizeof(to));
    assert_int_equal(netns_original(fd, &to), 0);
    assert_int_equal(to.ss_family, wanted.at.ss_family);
    if (to.ss_family == AF_INET) {
        struct sockaddr_in a, b;
        memcpy(&a, &to, sizeof(a));
        memcpy(&b, &wanted.at, sizeof(b));
        assert_int_equal(a.sin_addr.s_addr, b.sin_addr.s_addr);
        assert_int_equal(a.sin_port, b.sin_port);
    } else {
        struct sockaddr_in6 a, b;
        memcpy(&a, &to, sizeof(a));
        memcpy(&b, &wanted.at, sizeof(b));
        assert_memory_equal(&a.sin6_addr, &b.sin6_addr, sizeof(a.sin6_addr));
        assert_int_equal(a.sin6_port, b.sin6_port);
    }
}

void expect_text(int fd, const char *text)
{
    char got[64] = "";
    await(fd, POLLIN);
    assert_int_equal(recv(fd, got, sizeof(got) - 1, 0), strlen(text));
    assert_string_equal(got, text);
}

void capture(int listener, const char *from, const char *to, const char *original, uint16_t port)
{
    struct address a = address(to, port), peer = {.n = sizeof(peer.at)};
    AUTO_CLOSE int client = open_for(&a, SOCK_STREAM);
    if (from)
        assert_int_equal(bind_to(client, from, 0), 0);
    assert_int_equal(outcome(client, &a), 0);
    AUTO_CLOSE int server = accept_one(listener);
    expect_original(server, original, port);
    assert_int_equal(send(client, "ask", 3, 0), 3);
    expect_text(server, "ask");
    assert_int_equal(send(server, "answer", 6, 0), 6);
    expect_text(client, "answer");
    assert_int_equal(getpeername(client, (struct sockaddr *)&peer.at, &peer.n), 0);
    assert_memory_equal(&peer.at, &a.at, a.n);
}

void test_tcp_of_port_53_is_dns(void **state UNUSED)
{
    capture(net.dns_tcp, NULL, NETNS_DNS_ADDRESS, NETNS_DNS_ADDRESS, 53);
    capture(net.dns_tcp, NULL, "2001:db8::53", "2001:db8::53", 53);
    assert_true(is_quiet(net.tcp));
}

void test_fast_open_is_captured(void **state UNUSED)
{
    struct address to = address("198.51.100.66", 443);
    AUTO_CLOSE int client = open_for(&to, SOCK_STREAM);
    ssize_t n = sendto(client, "early", 5, MSG_FASTOPEN, sa(&to), to.n);
    assert_true(n == 5 || (n < 0 && errno == EINPROGRESS));
    AUTO_CLOSE int server = accept_one(net.tcp);
    expect_original(server, "198.51.100.66", 443);
    if (n < 0) {
        await(client, POLLOUT);
        assert_int_equal(send(client, "early", 5, 0), 5);
    }
    expect_text(server, "early");
}

void test_a_port_is_used_again(void **state UNUSED)
{
    const char *const to[] = {"198.51.100.1", "198.51.100.2", "198.51.100.3", "198.51.100.4"};
    for (size_t i = 0; i < ARRAY_SIZE(to); i++) {
        struct address a = address(to[i], 443);
        struct tcp_info info;
        socklen_t n = sizeof(info);
        char byte;
        AUTO_CLOSE int client = open_for(&a, SOCK_STREAM);
        assert_int_equal(bind_to(client, "0.0.0.0", 31000), 0);
        assert_int_equal(outcome(client, &a), 0);
        assert_int_equal(getsockopt(client, IPPROTO_TCP, TCP_INFO, &info, &n), 0);
        assert_int_equal(info.tcpi_total_retrans, 0);
        int server = accept_one(net.tcp);
        expect_original(server, to[i], 443);
        (void)fd_close(server); /* the active close is ours */
        await(client, POLLIN);
        assert_int_equal(recv(client, &byte, 1, 0), 0);
        if (i >= 1)
            (void)poll(NULL, 0, 2300); /* until conntrack has forgotten the connection, which TCP has not */
    }
}

static void ask_by(int client, const char *to)
{
    struct address a = address(to, 53), asker = {.n = sizeof(asker.at)}, answerer = {.n = sizeof(answerer.at)};
    char got[16] = "";
    assert_int_equal(sendto(client, "who", 3, 0, sa(&a), a.n), 3);
    await(net.dns_udp, POLLIN);
    assert_int_equal(recvfrom(net.dns_udp, got, sizeof(got), 0, (struct sockaddr *)&asker.at, &asker.n), 3);
    assert_int_equal(sendto(net.dns_udp, "me", 2, 0, sa(&asker), asker.n), 2);
    await(client, POLLIN);
    assert_int_equal(recvfrom(client, got, sizeof(got), 0, (struct sockaddr *)&answerer.at, &answerer.n), 2);
    assert_int_equal(answerer.n, a.n);
    assert_memory_equal(&answerer.at, &a.at, a.n);
}

static void ask(const char *from, const char *to)
{
    struct address a = address(to, 53);
    AUTO_CLOSE int client = open_for(&a, SOCK_DGRAM);
    if (from)
        assert_int_equal(bind_to(client, from, 0), 0);
    ask_by(client, to);
}

void test_dns_is_captured(void **state UNUSED)
{
    ask(NULL, NETNS_DNS_ADDRESS);
    ask(NULL, "8.8.8.8");
    ask(NULL, "2001:4860:4860::8888");
    ask(NULL, "::ffff:8.8.8.8");
    ask(NETNS_ADDRESS4, "8.8.8.8");
}

void test_dns_from_one_port(void **state UNUSED)
{
    struct address a = address("8.8.8.8", 53);
    AUTO_CLOSE int client = open_for(&a, SOCK_DGRAM);
    ask_by(client, "8.8.8.8");
    ask_by(client, "1.1.1.1");
}

unsigned long tracked(void)
{
    char text[32] = "";
    AUTO_CLOSE int fd = open("/proc/sys/net/netfilter/nf_conntrack_count", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
    return strtoul(text, NULL, 10);
}

static int bind_low_port(const void *arg)
{
    AUTO_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return setresuid(65534, 65534, 65534) < 0 || bind_to(fd, "0.0.0.0", *(const uint16_t *)arg) < 0;
}

void test_everybody_may_bind_every_port(void **state UNUSED)
{
    static const uint16_t ports[] = {1, 53, 80, 443};
    for (size_t i = 0; i < ARRAY_SIZE(ports); i++)
        assert_int_equal(probe_in_child(bind_low_port, &ports[i]), 0);
}

int run(int (*make)(struct netns *), const char *name, const struct CMUnitTest *tests, size_t n)
{
    int r = make(&net);
    if (r == -EOPNOTSUPP || r == -EAFNOSUPPORT || r == -EPERM || r == -EROFS) {
        print_message("SKIP: %s can't be made here: %s\n", name, strerror(-r));
        return 77;
    }
    if (r < 0) {
        print_message("make %s: %s\n", name, strerror(-r));
        return 1;
    }
    r = _cmocka_run_group_tests(name, tests, n, NULL, NULL);
    netns_close(&net);
    return r;
}
