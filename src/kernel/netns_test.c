/* SPDX-License-Identifier: Apache-2.0 */
/* The program moves into the namespace that it tests: it is the sandbox, and has the sockets of the other side, too. */
#include "base/clock.h"
#include "base/fd.h"
#include "kernel/netlink.h"
#include "kernel/netns.h"
#include "kernel/probe.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

enum { WAIT_MS = 5000, ROUNDS = 20 };

static struct netns net = {-1, -1, -1, -1};

struct address {
    struct sockaddr_storage at;
    socklen_t n;
};

static struct address address(const char *text, uint16_t port)
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

static const struct sockaddr *sa(const struct address *a)
{
    return (const struct sockaddr *)&a->at;
}

static int open_for(const struct address *a, int type)
{
    int fd = socket(a->at.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    return fd;
}

static void await(int fd, short events)
{
    struct pollfd p = {.fd = fd, .events = events};
    assert_int_equal(poll(&p, 1, WAIT_MS), 1);
}

static int bind_to(int fd, const char *text, uint16_t port)
{
    static const int on = 1;
    struct address a = address(text, port);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    return bind(fd, sa(&a), a.n);
}

/* What became of a connect(), as an errno. */
static int outcome(int fd, const struct address *to)
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

static int accept_one(int listener)
{
    struct address from = {.n = sizeof(from.at)};
    await(listener, POLLIN);
    int fd = accept4(listener, (struct sockaddr *)&from.at, &from.n, SOCK_CLOEXEC | SOCK_NONBLOCK);
    assert_true(fd >= 0);
    return fd;
}

static bool is_quiet(int fd)
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

static void expect_text(int fd, const char *text)
{
    char got[64] = "";
    await(fd, POLLIN);
    assert_int_equal(recv(fd, got, sizeof(got) - 1, 0), strlen(text));
    assert_string_equal(got, text);
}

/* to: what the client connects to; original: what the other side learns of it. */
static void capture(int listener, const char *from, const char *to, const char *original, uint16_t port)
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

static void test_tcp_is_captured(void **state)
{
    (void)state;
    capture(net.tcp, NULL, "198.51.100.66", "198.51.100.66", 443);
    capture(net.tcp, NULL, "2001:db8::66", "2001:db8::66", 443);
    capture(net.tcp, NULL, "::ffff:198.51.100.66", "198.51.100.66", 80);
    capture(net.tcp, NULL, "169.254.169.254", "169.254.169.254", 80);
    capture(net.tcp, NULL, "10.200.0.1", "10.200.0.1", 80);
    capture(net.tcp, NULL, "198.51.100.66", "198.51.100.66", NETNS_TCP_PORT);
    capture(net.tcp, "127.0.0.1", "198.51.100.66", "198.51.100.66", 443);
    capture(net.tcp, NETNS_ADDRESS4, "198.51.100.66", "198.51.100.66", 65535);
}

static void test_tcp_of_port_53_is_dns(void **state)
{
    (void)state;
    capture(net.dns_tcp, NULL, NETNS_DNS_ADDRESS, NETNS_DNS_ADDRESS, 53);
    capture(net.dns_tcp, NULL, "2001:db8::53", "2001:db8::53", 53);
    assert_true(is_quiet(net.tcp));
}

static void test_fast_open_is_captured(void **state)
{
    (void)state;
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

/* Two destinations, one port of the client's, our end of the first connection in TIME-WAIT: no packet of the second may be sent twice. */
static void test_a_port_is_used_again(void **state)
{
    (void)state;
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

static void ask(const char *from, const char *to)
{
    struct address a = address(to, 53), asker = {.n = sizeof(asker.at)}, answerer = {.n = sizeof(answerer.at)};
    char got[16] = "";
    AUTO_CLOSE int client = open_for(&a, SOCK_DGRAM);
    if (from)
        assert_int_equal(bind_to(client, from, 0), 0);
    assert_int_equal(sendto(client, "who", 3, 0, sa(&a), a.n), 3);
    await(net.dns_udp, POLLIN);
    assert_int_equal(recvfrom(net.dns_udp, got, sizeof(got), 0, (struct sockaddr *)&asker.at, &asker.n), 3);
    assert_int_equal(sendto(net.dns_udp, "me", 2, 0, sa(&asker), asker.n), 2);
    await(client, POLLIN);
    assert_int_equal(recvfrom(client, got, sizeof(got), 0, (struct sockaddr *)&answerer.at, &answerer.n), 2);
    assert_int_equal(answerer.n, a.n);
    assert_memory_equal(&answerer.at, &a.at, a.n);
}

static void test_dns_is_captured(void **state)
{
    (void)state;
    ask(NULL, NETNS_DNS_ADDRESS);
    ask(NULL, "8.8.8.8");
    ask(NULL, "2001:4860:4860::8888");
    ask(NULL, "::ffff:8.8.8.8");
    ask(NETNS_ADDRESS4, "8.8.8.8");
}

/* One socket asks two servers: each answer must come from the one that was asked. */
static void test_dns_from_one_port(void **state)
{
    (void)state;
    const char *const to[] = {"8.8.8.8", "1.1.1.1"};
    struct address a = address(to[0], 53);
    AUTO_CLOSE int client = open_for(&a, SOCK_DGRAM);
    for (size_t i = 0; i < 2; i++) {
        struct address asker = {.n = sizeof(asker.at)}, answerer = {.n = sizeof(answerer.at)};
        char got[16];
        a = address(to[i], 53);
        assert_int_equal(sendto(client, "who", 3, 0, sa(&a), a.n), 3);
        await(net.dns_udp, POLLIN);
        assert_int_equal(recvfrom(net.dns_udp, got, sizeof(got), 0, (struct sockaddr *)&asker.at, &asker.n), 3);
        assert_int_equal(sendto(net.dns_udp, "me", 2, 0, sa(&asker), asker.n), 2);
        await(client, POLLIN);
        assert_int_equal(recvfrom(client, got, sizeof(got), 0, (struct sockaddr *)&answerer.at, &answerer.n), 2);
        assert_memory_equal(&answerer.at, &a.at, a.n);
    }
}

static void test_other_udp_fails_at_once(void **state)
{
    (void)state;
    static const struct {
        const char *to;
        uint16_t port;
    } attempts[] = {{"198.51.100.66", 443},        {"198.51.100.66", 123}, {"2001:db8::66", 443},
                    {"::ffff:198.51.100.66", 443}, {"224.0.0.251", 5353},  {"239.255.255.250", 1900},
                    {"255.255.255.255", 67},       {"8.8.8.8", 54},        {"ff0e::fb", 5353},
                    {"10.200.0.1", 61053},         {"fd00:c0fe::1", 61053}};
    static const int on = 1;
    for (size_t i = 0; i < ARRAY_SIZE(attempts); i++) {
        struct address to = address(attempts[i].to, attempts[i].port);
        AUTO_CLOSE int fd = open_for(&to, SOCK_DGRAM);
        AUTO_CLOSE int connected = open_for(&to, SOCK_DGRAM);
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof(on)), 0);
        assert_int_equal(setsockopt(connected, SOL_SOCKET, SO_BROADCAST, &on, sizeof(on)), 0);
        assert_int_equal(sendto(fd, "x", 1, 0, sa(&to), to.n), -1);
        assert_true(errno == EPERM || errno == ENETUNREACH);
        assert_int_equal(connect(connected, sa(&to), to.n), 0);
        assert_int_equal(write(connected, "x", 1), -1);
        assert_true(errno == EPERM || errno == ENETUNREACH || errno == ECONNREFUSED);
    }
    assert_true(is_quiet(net.dns_udp));
}

static void test_icmp_is_refused(void **state)
{
    (void)state;
    assert_int_equal(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP), -1);
    assert_int_equal(errno, EACCES);
    assert_int_equal(socket(AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6), -1);
    assert_int_equal(errno, EACCES);
    /* This program is root of the machine, a sandbox is not: it can't even have these. */
    struct icmphdr echo = {.type = ICMP_ECHO};
    struct icmp6_hdr echo6 = {.icmp6_type = ICMP6_ECHO_REQUEST};
    struct address to = address("198.51.100.66", 0), to6 = address("2001:db8::66", 0);
    AUTO_CLOSE int raw = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
    AUTO_CLOSE int raw6 = socket(AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMPV6);
    assert_int_equal(sendto(raw, &echo, sizeof(echo), 0, sa(&to), to.n), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(sendto(raw6, &echo6, sizeof(echo6), 0, sa(&to6), to6.n), -1);
    assert_int_equal(errno, EPERM);
}

static const char *const own[] = {"127.0.0.1", "127.0.1.1", "127.255.255.254", "::1", NETNS_ADDRESS4, NETNS_ADDRESS6};

static void test_what_is_local_stays_local(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
        struct address to = address(own[i], 53), from = {.n = sizeof(from.at)};
        struct sockaddr_storage original;
        AUTO_CLOSE int listener = open_for(&to, SOCK_STREAM);
        AUTO_CLOSE int client = open_for(&to, SOCK_STREAM);
        AUTO_CLOSE int socket4 = open_for(&to, SOCK_DGRAM);
        AUTO_CLOSE int asker = open_for(&to, SOCK_DGRAM);
        assert_int_equal(bind_to(listener, own[i], 53), 0);
        assert_int_equal(listen(listener, 1), 0);
        assert_int_equal(outcome(client, &to), 0);
        AUTO_CLOSE int server = accept_one(listener);
        assert_int_equal(send(server, "hello", 5, 0), 5);
        expect_text(client, "hello");
        assert_int_equal(netns_original(server, &original), -ENOENT);

        assert_int_equal(bind(socket4, sa(&to), to.n), 0);
        assert_int_equal(sendto(asker, "who", 3, 0, sa(&to), to.n), 3);
        char got[8];
        await(socket4, POLLIN);
        assert_int_equal(recvfrom(socket4, got, sizeof(got), 0, (struct sockaddr *)&from.at, &from.n), 3);
        assert_int_equal(sendto(socket4, "me", 2, 0, sa(&from), from.n), 2);
        expect_text(asker, "me");
    }
    struct address nobody = address("127.0.0.1", 9);
    AUTO_CLOSE int refused = open_for(&nobody, SOCK_STREAM);
    assert_int_equal(outcome(refused, &nobody), ECONNREFUSED);
    AUTO_CLOSE int datagram = open_for(&nobody, SOCK_DGRAM);
    assert_int_equal(connect(datagram, sa(&nobody), nobody.n), 0);
    assert_int_equal(send(datagram, "x", 1, 0), 1);
    await(datagram, POLLERR);
    assert_int_equal(send(datagram, "x", 1, 0), -1);
    assert_int_equal(errno, ECONNREFUSED);
    assert_true(is_quiet(net.tcp) && is_quiet(net.dns_tcp) && is_quiet(net.dns_udp));
}

/* Our sockets are for what was captured: nobody may use them as a relay by their own address. */
static void test_our_ports_refuse_who_comes_directly(void **state)
{
    (void)state;
    static const char *const ways[] = {
        "127.0.0.1",    "127.9.9.9",        "0.0.0.0",          "::1", "::", NETNS_ADDRESS4,
        NETNS_ADDRESS6, "::ffff:127.0.0.1", "::ffff:10.200.0.2"};
    static const uint16_t ports[] = {NETNS_TCP_PORT, NETNS_DNS_PORT};
    for (size_t i = 0; i < ARRAY_SIZE(ways); i++)
        for (size_t j = 0; j < ARRAY_SIZE(ports); j++) {
            struct address to = address(ways[i], ports[j]);
            AUTO_CLOSE int fd = open_for(&to, SOCK_STREAM);
            assert_int_equal(outcome(fd, &to), ECONNREFUSED);
            to = address(ways[i], NETNS_DNS_PORT);
            AUTO_CLOSE int datagram = open_for(&to, SOCK_DGRAM);
            assert_int_equal(sendto(datagram, "x", 1, 0, sa(&to), to.n), -1);
            assert_int_equal(errno, EPERM);
            struct address same = address(ways[i], ports[j]);
            AUTO_CLOSE int thief = open_for(&same, SOCK_STREAM);
            assert_true(bind_to(thief, ways[i], ports[j]) < 0 || listen(thief, 1) < 0);
        }
    assert_true(is_quiet(net.tcp) && is_quiet(net.dns_tcp) && is_quiet(net.dns_udp));
}

static unsigned long tracked(void)
{
    char text[32] = "";
    AUTO_CLOSE int fd = open("/proc/sys/net/netfilter/nf_conntrack_count", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
    return strtoul(text, NULL, 10);
}

static void test_local_traffic_is_not_tracked(void **state)
{
    (void)state;
    struct address to = address("127.0.0.1", 7);
    unsigned long before = tracked();
    for (int i = 0; i < 100; i++) {
        AUTO_CLOSE int fd = open_for(&to, SOCK_STREAM);
        assert_int_equal(outcome(fd, &to), ECONNREFUSED);
        AUTO_CLOSE int datagram = open_for(&to, SOCK_DGRAM);
        assert_int_equal(sendto(datagram, "x", 1, 0, sa(&to), to.n), 1);
    }
    struct address away = address("198.51.100.66", 443);
    AUTO_CLOSE int refused = open_for(&away, SOCK_DGRAM);
    for (int i = 0; i < 100; i++)
        assert_int_equal(sendto(refused, "x", 1, 0, sa(&away), away.n), -1);
    assert_true(tracked() <= before);
}

static int bind_low_port(const void *arg)
{
    AUTO_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return setresuid(65534, 65534, 65534) < 0 || bind_to(fd, "0.0.0.0", *(const uint16_t *)arg) < 0;
}

static void test_everybody_may_bind_every_port(void **state)
{
    (void)state;
    static const uint16_t ports[] = {1, 53, 80, 443};
    for (size_t i = 0; i < ARRAY_SIZE(ports); i++)
        assert_int_equal(probe_in_child(bind_low_port, &ports[i]), 0);
}

/* Distinct flows without end, as fast as can be: most are refused, and conntrack's table stays small. Last: it uses up the allowance. */
static void test_a_flood_of_flows_is_refused(void **state)
{
    (void)state;
    unsigned long sent = 0, refused = 0;
    struct address to = address("198.18.0.0", 53);
    AUTO_CLOSE int fd = open_for(&to, SOCK_DGRAM);
    for (uint32_t i = 0; i < 60000; i++) {
        struct sockaddr_in v4 = {
            .sin_family = AF_INET, .sin_port = htons(53), .sin_addr.s_addr = htonl(0xc6120000 + i)};
        ssize_t n = sendto(fd, "who", 3, 0, (const struct sockaddr *)&v4, sizeof(v4));
        sent += n == 3;
        refused += n < 0 && errno == EPERM;
    }
    print_message("%lu flows in, %lu refused, %lu tracked\n", sent, refused, tracked());
    assert_int_equal(sent + refused, 60000);
    assert_true(sent >= 8000);
    assert_true(tracked() <= sent + 64);

    /* TCP is told so at once, not by silence. */
    struct address away = address("198.51.100.66", 443);
    int through = 0, reset = 0;
    for (int i = 0; i < 100; i++) {
        for (uint32_t j = 0; j < 100; j++) {
            to = address("198.19.0.0", 53);
            ((struct sockaddr_in *)&to.at)->sin_addr.s_addr = htonl(0xc6130000 + (uint32_t)i * 100 + j);
            (void)sendto(fd, "who", 3, 0, sa(&to), to.n);
        }
        AUTO_CLOSE int client = open_for(&away, SOCK_STREAM);
        int e = outcome(client, &away);
        through += e == 0;
        reset += e == ECONNREFUSED;
    }
    print_message("%d connections in, %d refused\n", through, reset);
    assert_int_equal(through + reset, 100);
    assert_true(reset > 0);
}

static int make_some(const void *arg)
{
    (void)arg;
    usec_t best = UINT64_MAX, all = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct netns n;
        usec_t from = clock_mono();
        if (netns_make(&n) < 0)
            return 1;
        usec_t took = clock_mono() - from;
        netns_close(&n);
        best = MIN(best, took);
        all += took;
    }
    print_message("netns_make: best %llu us, mean %llu us\n", (unsigned long long)best,
                  (unsigned long long)all / ROUNDS);
    return 0;
}

static void test_time_to_make(void **state)
{
    (void)state;
    assert_int_equal(probe_in_child(make_some, NULL), 0);
}

static int without_nf_tables(const void *arg)
{
    int wanted = *(const int *)arg;
    const struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NETLINK_NETFILTER, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPROTONOSUPPORT),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {ARRAY_SIZE(filter), (struct sock_filter *)(uintptr_t)filter};
    struct netns n = NETNS_NONE;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        return 1;
    return netns_make(&n) == wanted && n.ns == -1 && n.tcp == -1 ? 0 : 2;
}

static void test_without_nf_tables(void **state)
{
    (void)state;
    static const int wanted = -EOPNOTSUPP;
    assert_int_equal(probe_in_child(without_nf_tables, &wanted), 0);
}

/* ---- the same behind a gate: the program is in the sandbox's namespace, whose stack nobody trusts ---- */

/* In the gate: whose sockets ours are. */
static int count_in_gate(const void *arg)
{
    const unsigned long most = *(const unsigned long *)arg;
    AUTO_CLOSE int ns = ioctl(net.tcp, SIOCGSKNS);
    return ns < 0 || setns(ns, CLONE_NEWNET) < 0 || tracked() > most ? 1 : 0;
}

static void test_gate_refuses_the_rest(void **state)
{
    (void)state;
    static const struct {
        const char *to;
        uint16_t port;
    } attempts[] = {{"198.51.100.66", 443},
                    {"198.51.100.66", 123},
                    {"2001:db8::66", 443},
                    {"8.8.8.8", 54},
                    {NETNS_DNS_ADDRESS, NETNS_DNS_PORT},
                    {"fd00:c0fe::1", NETNS_DNS_PORT}};
    for (size_t i = 0; i < ARRAY_SIZE(attempts); i++) {
        struct address to = address(attempts[i].to, attempts[i].port);
        AUTO_CLOSE int fd = open_for(&to, SOCK_DGRAM);
        assert_int_equal(connect(fd, sa(&to), to.n), 0);
        assert_int_equal(write(fd, "x", 1), 1);
        await(fd, POLLERR); /* told at once, by "unreachable" */
        assert_int_equal(write(fd, "x", 1), -1);
        assert_int_equal(errno, ECONNREFUSED);
    }
    static const char *const many[] = {"224.0.0.251", "239.255.255.250", "255.255.255.255", "ff0e::fb"};
    static const int on = 1;
    for (size_t i = 0; i < ARRAY_SIZE(many); i++) {
        struct address to = address(many[i], 5353);
        AUTO_CLOSE int fd = open_for(&to, SOCK_DGRAM);
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof(on)), 0);
        (void)sendto(fd, "x", 1, 0, sa(&to), to.n);
    }
    struct icmphdr echo = {.type = ICMP_ECHO, .checksum = htons(0xf7ff)};
    static const char *const pinged[] = {"198.51.100.66", NETNS_DNS_ADDRESS};
    for (size_t i = 0; i < ARRAY_SIZE(pinged); i++) {
        struct address to = address(pinged[i], 0);
        char got[256];
        AUTO_CLOSE int raw = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
        assert_int_equal(sendto(raw, &echo, sizeof(echo), 0, sa(&to), to.n), sizeof(echo));
        await(raw, POLLIN);
        assert_true(recv(raw, got, sizeof(got), 0) > 20);
        assert_int_equal(got[20], ICMP_DEST_UNREACH); /* behind the IP header; never an echo reply */
    }
}

/* Packets of our making, as a stack of the sandbox's own may send them. */
static void spoof(const char *from, const char *to, uint8_t protocol, uint16_t port)
{
    static const int on = 1;
    struct address target = address(to, 0), source = address(from, 0);
    uint8_t p[40] = {0x45, 0, 0, sizeof(p), 0, 1, 0, 0, 64, protocol};
    memcpy(p + 12, &((struct sockaddr_in *)&source.at)->sin_addr, 4);
    memcpy(p + 16, &((struct sockaddr_in *)&target.at)->sin_addr, 4);
    const uint16_t ports[2] = {htons(31000), htons(port)};
    memcpy(p + 20, ports, sizeof(ports));
    p[32] = 0x50;
    p[33] = TH_SYN;
    AUTO_CLOSE int raw = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
    assert_int_equal(setsockopt(raw, IPPROTO_IP, IP_HDRINCL, &on, sizeof(on)), 0);
    assert_int_equal(setsockopt(raw, SOL_SOCKET, SO_BINDTODEVICE, NETNS_GATE_LINK, sizeof(NETNS_GATE_LINK)), 0);
    (void)sendto(raw, p, sizeof(p), 0, sa(&target), target.n);
}

static void test_gate_drops_foreign_sources(void **state)
{
    (void)state;
    const unsigned long most = 256; /* what the tests before left */
    for (unsigned i = 0; i < 4000; i++) {
        char from[32];
        (void)snprintf(from, sizeof(from), "10.%u.%u.9", i / 200, i % 200);
        spoof(i % 2 ? from : "127.0.0.1", "198.51.100.66", i % 3 ? IPPROTO_TCP : IPPROTO_UDP, i % 5 ? 443 : 53);
    }
    for (unsigned i = 0; i < 200; i++)
        spoof(NETNS_ADDRESS4, i % 2 ? "127.0.0.1" : "127.9.9.9", IPPROTO_TCP, 7070);
    (void)poll(NULL, 0, 50);
    assert_true(is_quiet(net.tcp) && is_quiet(net.dns_tcp) && is_quiet(net.dns_udp));
    assert_int_equal(probe_in_child(count_in_gate, &most), 0);
}

static void test_gate_flood(void **state)
{
    (void)state;
    const unsigned long most = 30000;
    struct address to = address("198.18.0.0", 53);
    AUTO_CLOSE int fd = open_for(&to, SOCK_DGRAM);
    for (uint32_t i = 0; i < 60000; i++) {
        struct sockaddr_in v4 = {
            .sin_family = AF_INET, .sin_port = htons(53), .sin_addr.s_addr = htonl(0xc6120000 + i)};
        (void)sendto(fd, "who", 3, 0, (const struct sockaddr *)&v4, sizeof(v4));
    }
    assert_int_equal(probe_in_child(count_in_gate, &most), 0);
}

static const char *const own_behind_gate[] = {"127.0.0.1", "::1", NETNS_ADDRESS4, NETNS_ADDRESS6};

static void test_gate_leaves_own_addresses_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(own_behind_gate); i++) {
        struct address to = address(own_behind_gate[i], 8080);
        AUTO_CLOSE int listener = open_for(&to, SOCK_STREAM);
        AUTO_CLOSE int client = open_for(&to, SOCK_STREAM);
        assert_int_equal(bind_to(listener, own_behind_gate[i], 8080), 0);
        assert_int_equal(listen(listener, 1), 0);
        assert_int_equal(outcome(client, &to), 0);
        AUTO_CLOSE int server UNUSED = accept_one(listener);
        struct address none = address(own_behind_gate[i], NETNS_TCP_PORT);
        AUTO_CLOSE int refused = open_for(&none, SOCK_STREAM);
        assert_int_equal(outcome(refused, &none), ECONNREFUSED); /* our sockets are not there */
    }
    assert_true(is_quiet(net.tcp));
    struct address direct = address(NETNS_DNS_ADDRESS, NETNS_TCP_PORT);
    AUTO_CLOSE int fd = open_for(&direct, SOCK_STREAM);
    assert_int_equal(outcome(fd, &direct), ECONNREFUSED); /* nor do they take who asks for them */
    assert_true(is_quiet(net.tcp));
}

static void test_gate_captures(void **state)
{
    (void)state;
    capture(net.tcp, NULL, "198.51.100.66", "198.51.100.66", 443);
    capture(net.tcp, NULL, "2001:db8::66", "2001:db8::66", 443);
    capture(net.tcp, NULL, "::ffff:198.51.100.66", "198.51.100.66", 80);
    capture(net.tcp, NULL, "169.254.169.254", "169.254.169.254", 80);
    capture(net.tcp, NULL, NETNS_DNS_ADDRESS, NETNS_DNS_ADDRESS, 80);
    capture(net.tcp, NULL, "198.51.100.66", "198.51.100.66", NETNS_TCP_PORT);
    capture(net.tcp, NETNS_ADDRESS4, "198.51.100.66", "198.51.100.66", 65535);
}

static int make_gate(struct netns *ret_net)
{
    return netns_make_gate(-1, ret_net);
}

/* ---- a tap, as a machine's monitor has it ---- */

enum { FRAME = 54, GATE_MAC = 1, OTHER_MAC = 7 };

static int tap = -1;

static int make_tap(struct netns *ret_net)
{
    AUTO_CLOSE int tun = open("/dev/net/tun", O_PATH | O_CLOEXEC);
    AUTO_CLOSE int proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    AUTO_CLOSE int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    int r = tun < 0 ? -EOPNOTSUPP : netns_make_gate_for_tap(-1, ret_net);
    r = r ? r : netns_gate_tap(ret_net, home, proc_fd, tun, &tap);
    assert_int_equal(ret_net->ns, -1);
    return r;
}

static uint16_t tap_sum(const uint8_t *p, size_t n, uint32_t sum)
{
    for (size_t i = 0; i + 1 < n; i += 2)
        sum += (uint32_t)p[i] << 8 | p[i + 1];
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return htons((uint16_t)~sum);
}

static void tap_send(const char *from, const char *to, uint8_t protocol, uint16_t port, uint8_t mac)
{
    struct address target = address(to, 0), source = address(from, 0);
    uint8_t p[FRAME] = {2, 0xc0, 0xfe, 0, 0, mac, 2, 0xc0, 0xfe, 0, 0,  2,
                        8, 0,    0x45, 0, 0, 40,  0, 1,    0,    0, 64, protocol};
    memcpy(p + 26, &((struct sockaddr_in *)&source.at)->sin_addr, 4);
    memcpy(p + 30, &((struct sockaddr_in *)&target.at)->sin_addr, 4);
    const uint16_t ports[2] = {htons(31000), htons(port)}, ip_sum = tap_sum(p + 14, 20, 0);
    memcpy(p + 24, &ip_sum, 2);
    memcpy(p + 34, ports, sizeof(ports));
    p[39] = protocol == IPPROTO_UDP ? 20 : 0; /* and no sum */
    if (protocol == IPPROTO_TCP) {
        p[46] = 0x50;
        p[47] = TH_SYN;
        const uint16_t tcp_sum = tap_sum(p + 26, 28, IPPROTO_TCP + 20U);
        memcpy(p + 50, &tcp_sum, 2);
    }
    assert_int_equal(write(tap, p, sizeof(p)), sizeof(p));
}

/* The next IPv4 packet to us; false: within `ms` there is none. */
static bool tap_receive(uint8_t p[static FRAME], int ms)
{
    struct pollfd wait = {.fd = tap, .events = POLLIN};
    while (poll(&wait, 1, ms) == 1) {
        memset(p, 0, FRAME);
        if (read(tap, p, FRAME) > 34 && p[12] == 8 && p[13] == 0 && p[5] == 2)
            return true;
    }
    return false;
}

static void test_tap_captures(void **state)
{
    (void)state;
    uint8_t p[FRAME];
    tap_send(NETNS_ADDRESS4, "8.8.8.8", IPPROTO_UDP, 53, GATE_MAC);
    await(net.dns_udp, POLLIN);
    tap_send(NETNS_ADDRESS4, "198.51.100.66", IPPROTO_TCP, 443, GATE_MAC);
    assert_true(tap_receive(p, WAIT_MS));
    assert_int_equal(p[23], IPPROTO_TCP);
    assert_int_equal(p[47], TH_SYN | TH_ACK);
    assert_memory_equal(p + 26, "\xc6\x33\x64\x42", 4); /* in the name of whoever was asked for */
}

static void test_tap_refuses_the_rest(void **state)
{
    (void)state;
    static const char *const foreign[] = {"10.9.9.9", "127.0.0.1", NETNS_DNS_ADDRESS};
    uint8_t p[FRAME];
    tap_send(NETNS_ADDRESS4, "8.8.8.8", IPPROTO_UDP, 123, GATE_MAC);
    assert_true(tap_receive(p, WAIT_MS));
    assert_int_equal(p[23], IPPROTO_ICMP);
    assert_int_equal(p[34], ICMP_DEST_UNREACH);
    for (size_t i = 0; i < ARRAY_SIZE(foreign); i++)
        tap_send(foreign[i], "8.8.8.8", IPPROTO_UDP, 53, GATE_MAC);
    tap_send(NETNS_ADDRESS4, "127.0.0.1", IPPROTO_UDP, NETNS_DNS_PORT, GATE_MAC);
    tap_send(NETNS_ADDRESS4, "8.8.8.8", IPPROTO_UDP, 53, OTHER_MAC);
    uint8_t arp[60] = {2, 0xc0, 0xfe, 0, 0, 1, 2, 0xc0, 0xfe, 0, 0, 2, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1};
    assert_int_equal(write(tap, arp, sizeof(arp)), sizeof(arp));
    while (tap_receive(p, 100))
        assert_true(p[23] == IPPROTO_TCP && p[35] == (443 & 0xff)); /* of the flow above, once more */
}

static void test_tap_ends_with_its_descriptor(void **state)
{
    (void)state;
    static const char wrong[13] = {0};
    assert_int_equal(write(tap, wrong, sizeof(wrong)), -1); /* shorter than a frame's head */
    tap = fd_close(tap);
    assert_int_equal(recv(net.dns_udp, (char[64]){0}, 64, 0), 12); /* what had arrived is there, */
    assert_true(is_quiet(net.dns_udp));                            /* and nothing else has */
}

static int run(int (*make)(struct netns *), const char *name, const struct CMUnitTest *tests, size_t n)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time_to_make),
        cmocka_unit_test(test_without_nf_tables),
        cmocka_unit_test(test_tcp_is_captured),
        cmocka_unit_test(test_tcp_of_port_53_is_dns),
        cmocka_unit_test(test_fast_open_is_captured),
        cmocka_unit_test(test_a_port_is_used_again),
        cmocka_unit_test(test_dns_is_captured),
        cmocka_unit_test(test_dns_from_one_port),
        cmocka_unit_test(test_other_udp_fails_at_once),
        cmocka_unit_test(test_icmp_is_refused),
        cmocka_unit_test(test_what_is_local_stays_local),
        cmocka_unit_test(test_our_ports_refuse_who_comes_directly),
        cmocka_unit_test(test_local_traffic_is_not_tracked),
        cmocka_unit_test(test_everybody_may_bind_every_port),
        cmocka_unit_test(test_a_flood_of_flows_is_refused),
    };
    const struct CMUnitTest behind_gate[] = {
        cmocka_unit_test(test_gate_captures),
        cmocka_unit_test(test_tcp_of_port_53_is_dns),
        cmocka_unit_test(test_fast_open_is_captured),
        cmocka_unit_test(test_a_port_is_used_again),
        cmocka_unit_test(test_dns_is_captured),
        cmocka_unit_test(test_dns_from_one_port),
        cmocka_unit_test(test_gate_refuses_the_rest),
        cmocka_unit_test(test_gate_leaves_own_addresses_alone),
        cmocka_unit_test(test_everybody_may_bind_every_port),
        cmocka_unit_test(test_gate_drops_foreign_sources),
        cmocka_unit_test(test_gate_flood),
    };
    const struct CMUnitTest by_tap[] = {
        cmocka_unit_test(test_tap_captures),
        cmocka_unit_test(test_tap_refuses_the_rest),
        cmocka_unit_test(test_tap_ends_with_its_descriptor),
    };
    if (geteuid() != 0) {
        print_message("SKIP: making network namespaces needs root\n");
        return 77;
    }
    int r = run(netns_make, "captured network", tests, ARRAY_SIZE(tests));
    r = r ? r : run(make_gate, "gate", behind_gate, ARRAY_SIZE(behind_gate));
    return r ? r : run(make_tap, "tap", by_tap, ARRAY_SIZE(by_tap));
}
