/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/fd.h"
#include "kernel/probe.h"
#include "kernel/test_netns.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <netinet/icmp6.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

enum { ROUNDS = 20 };

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

static void test_flows_are_forgotten(void **state)
{
    (void)state;
    static const char *const settings[][2] = {{"tcp_loose", "0\n"},
                                              {"tcp_be_liberal", "1\n"},
                                              {"tcp_timeout_syn_sent", "20\n"},
                                              {"tcp_timeout_syn_recv", "20\n"},
                                              {"tcp_timeout_fin_wait", "30\n"},
                                              {"tcp_timeout_close_wait", "432000\n"},
                                              {"tcp_timeout_last_ack", "5\n"},
                                              {"tcp_timeout_time_wait", "2\n"},
                                              {"tcp_timeout_close", "2\n"},
                                              {"udp_timeout", "15\n"},
                                              {"udp_timeout_stream", "30\n"}};
    for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
        char path[80], text[16] = "";
        (void)snprintf(path, sizeof(path), "/proc/sys/net/netfilter/nf_conntrack_%s", settings[i][0]);
        AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
        assert_string_equal(text, settings[i][1]);
    }
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

/* Distinct flows without end, as fast as can be: most are refused, and conntrack's table stays small. Last: it uses up
 * the allowance. */
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
        cmocka_unit_test(test_flows_are_forgotten),
        cmocka_unit_test(test_everybody_may_bind_every_port),
        cmocka_unit_test(test_a_flood_of_flows_is_refused),
    };
    if (geteuid() != 0) {
        print_message("SKIP: making network namespaces needs root\n");
        return 77;
    }
    return run(netns_make, "captured network", tests, ARRAY_SIZE(tests));
}
