/* SPDX-License-Identifier: Apache-2.0 */
/* A captured network behind a gate: the program is in the sandbox's namespace, whose stack nobody trusts; and behind a
 * tap, as a machine's monitor has it. */
#include "base/fd.h"
#include "kernel/probe.h"
#include "kernel/test_netns.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>

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

int main(void)
{
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
    int r = run(make_gate, "gate", behind_gate, ARRAY_SIZE(behind_gate));
    return r ? r : run(make_tap, "tap", by_tap, ARRAY_SIZE(by_tap));
}
