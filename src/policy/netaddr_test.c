/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/netaddr.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cmocka.h>

static struct netaddr addr(const char *text)
{
    struct netaddr a = {0};
    if (!netaddr_parse(str_of(text), &a))
        fail_msg("%s is an address", text);
    return a;
}

static struct netcidr cidr(const char *text)
{
    struct netcidr c = {0};
    if (!netcidr_parse(str_of(text), &c))
        fail_msg("%s is a network", text);
    return c;
}

static void addresses_are_read_and_written(void **state)
{
    static const struct {
        const char *text, *normal;
        int family;
    } cases[] = {
        {"0.0.0.0", "0.0.0.0", 4},
        {"1.2.3.4", "1.2.3.4", 4},
        {"255.255.255.255", "255.255.255.255", 4},
        {"::", "::", 6},
        {"::1", "::1", 6},
        {"2001:DB8:0:0:0:0:0:1", "2001:db8::1", 6},
        {"2001:0db8::0001", "2001:db8::1", 6},
        {"1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8", 6},
        {"1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0", 6},
        {"ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 6},
        {"64:ff9b::1.2.3.4", "64:ff9b::102:304", 6},
        {"::ffff:1.2.3.4", "1.2.3.4", 4},
        {"::FFFF:c633:6442", "198.51.100.66", 4},
        {"0:0:0:0:0:ffff:0102:0304", "1.2.3.4", 4},
        {"::1.2.3.4", "::1.2.3.4", 6},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct netaddr a = addr(cases[i].text), again;
        char text[NETADDR_TEXT_MAX];
        assert_int_equal(a.family, cases[i].family);
        netaddr_print(&a, text);
        assert_string_equal(text, cases[i].normal);
        again = addr(text);
        assert_true(netaddr_eq(&a, &again));
    }
}

static void what_somebody_would_guess_is_no_address(void **state)
{
    static const char *const cases[] = {
        "",
        "1",
        "127.1",
        "1.2.3",
        "1.2.3.4.",
        ".1.2.3.4",
        "1.2.3.4.5",
        "1..2.3",
        "01.2.3.4",
        "0306.0063.0144.0102",
        "1.2.3.04",
        "0x7f.0.0.1",
        "0x7f000001",
        "3325256770",
        "1.2.3.256",
        "1.2.3.-4",
        "+1.2.3.4",
        " 1.2.3.4",
        "1.2.3.4 ",
        "1.2.3.4\n",
        "1.2.3.4/32",
        "1.2.3.4:80",
        "[::1]",
        "::1%lo",
        "fe80::1%eth0",
        ":",
        ":::",
        "1::2::3",
        "12345::",
        "g::",
        "1:2:3:4:5:6:7",
        "1:2:3:4:5:6:7:8:9",
        "1:2:3:4:5:6:7:8::",
        "::1.2.3",
        "::1.2.3.4.5",
        "::01.2.3.4",
        "1.2.3.4::",
        "localhost",
        "a.b.c.d",
        "１.２.３.４",
        "1。2。3。4",
        "::ffff:1.2.3.4.5.6.7.8.9.10.11.12.13.14.15.16.17.18",
    };
    struct netaddr a = {.family = 9};
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        if (netaddr_parse(str_of(cases[i]), &a))
            fail_msg("\"%s\" was taken for an address", cases[i]);
    assert_false(netaddr_parse(str_n("1.2.3.4\0", 8), &a));
    assert_false(netaddr_parse(str_n("1.2.3.4\0evil", 12), &a));
    assert_false(netaddr_parse(STR_NULL, &a));
    assert_int_equal(a.family, 9);
}

static void socket_addresses_there_and_back(void **state)
{
    static const char *const cases[] = {"198.51.100.7", "2001:db8::7", "0.0.0.0", "::"};
    struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = htons(443)};
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    struct sockaddr_storage sa;
    struct netaddr a, b;
    uint16_t port = 0;
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        a = addr(cases[i]);
        assert_int_equal(netaddr_to_sockaddr(&a, 8080, &sa),
                         a.family == 4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
        assert_int_equal(sa.ss_family, a.family == 4 ? AF_INET : AF_INET6);
        assert_true(netaddr_from_sockaddr((struct sockaddr *)&sa, &b, &port));
        assert_true(netaddr_eq(&a, &b));
        assert_int_equal(port, 8080);
    }
    assert_int_equal(inet_pton(AF_INET6, "::ffff:10.1.2.3", &mapped.sin6_addr), 1);
    assert_true(netaddr_from_sockaddr((struct sockaddr *)&mapped, &a, &port));
    b = addr("10.1.2.3");
    assert_true(netaddr_eq(&a, &b));
    assert_int_equal(port, 443);
    assert_true(netaddr_from_sockaddr((struct sockaddr *)&mapped, &a, NULL));
    assert_false(netaddr_from_sockaddr((struct sockaddr *)&local, &a, &port));
}

static const struct {
    const char *first, *last; /* NULL: one address */
    enum net_class class;
} ranges[] = {
    {"0.0.0.0", "0.255.255.255", NET_UNSPECIFIED},
    {"1.0.0.0", "9.255.255.255", NET_PUBLIC},
    {"10.0.0.0", "10.255.255.255", NET_PRIVATE},
    {"11.0.0.0", "100.63.255.255", NET_PUBLIC},
    {"100.64.0.0", "100.100.100.199", NET_SHARED},
    {"100.100.100.200", NULL, NET_METADATA},
    {"100.100.100.201", "100.127.255.255", NET_SHARED},
    {"100.128.0.0", "126.255.255.255", NET_PUBLIC},
    {"127.0.0.0", "127.255.255.255", NET_LOOPBACK},
    {"128.0.0.0", "168.63.129.15", NET_PUBLIC},
    {"168.63.129.16", NULL, NET_METADATA},
    {"168.63.129.17", "169.253.255.255", NET_PUBLIC},
    {"169.254.0.0", "169.254.169.253", NET_LINK_LOCAL},
    {"169.254.169.254", NULL, NET_METADATA},
    {"169.254.169.255", "169.254.170.1", NET_LINK_LOCAL},
    {"169.254.170.2", NULL, NET_METADATA},
    {"169.254.170.3", "169.254.170.22", NET_LINK_LOCAL},
    {"169.254.170.23", NULL, NET_METADATA},
    {"169.254.170.24", "169.254.255.255", NET_LINK_LOCAL},
    {"169.255.0.0", "172.15.255.255", NET_PUBLIC},
    {"172.16.0.0", "172.31.255.255", NET_PRIVATE},
    {"172.32.0.0", "191.255.255.255", NET_PUBLIC},
    {"192.0.0.0", "192.0.0.191", NET_RESERVED},
    {"192.0.0.192", NULL, NET_METADATA},
    {"192.0.0.193", "192.0.0.255", NET_RESERVED},
    {"192.0.1.0", "192.0.1.255", NET_PUBLIC},
    {"192.0.2.0", "192.0.2.255", NET_RESERVED},
    {"192.0.3.0", "192.88.98.255", NET_PUBLIC},
    {"192.88.99.0", "192.88.99.255", NET_RESERVED},
    {"192.88.100.0", "192.167.255.255", NET_PUBLIC},
    {"192.168.0.0", "192.168.255.255", NET_PRIVATE},
    {"192.169.0.0", "198.17.255.255", NET_PUBLIC},
    {"198.18.0.0", "198.19.255.255", NET_RESERVED},
    {"198.20.0.0", "198.51.99.255", NET_PUBLIC},
    {"198.51.100.0", "198.51.100.255", NET_RESERVED},
    {"198.51.101.0", "203.0.112.255", NET_PUBLIC},
    {"203.0.113.0", "203.0.113.255", NET_RESERVED},
    {"203.0.114.0", "223.255.255.255", NET_PUBLIC},
    {"224.0.0.0", "239.255.255.255", NET_MULTICAST},
    {"240.0.0.0", "255.255.255.254", NET_RESERVED},
    {"255.255.255.255", NULL, NET_MULTICAST},

    {"::", NULL, NET_UNSPECIFIED},
    {"::1", NULL, NET_LOOPBACK},
    {"::0.0.0.2", NULL, NET_UNSPECIFIED},
    {"::8.8.8.8", NULL, NET_RESERVED},
    {"::1:0:0:0", "64:ff9a:ffff:ffff:ffff:ffff:ffff:ffff", NET_RESERVED},
    {"64:ff9b::1.0.0.0", "64:ff9b::9.255.255.255", NET_PUBLIC},
    {"64:ff9b::1:0:0", "64:ff9b:0:ffff:ffff:ffff:ffff:ffff", NET_RESERVED},
    {"64:ff9b:2::", "100::", NET_RESERVED},
    {"100::1", "100::ffff:ffff:ffff:ffff", NET_RESERVED},
    {"100:0:0:1::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", NET_RESERVED},
    {"2000::", "2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff", NET_PUBLIC},
    {"2001:1::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", NET_RESERVED},
    {"2001:200::", "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", NET_PUBLIC},
    {"2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", NET_RESERVED},
    {"2001:db9::", "2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff", NET_PUBLIC},
    {"2003::", "3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff", NET_PUBLIC},
    {"3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", NET_RESERVED},
    {"3fff:1000::", "3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", NET_PUBLIC},
    {"4000::", "fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", NET_RESERVED},
    {"fc00::", "fd00:ec1:ffff:ffff:ffff:ffff:ffff:ffff", NET_PRIVATE},
    {"fd00:ec2::", "fd00:ec2:ffff:ffff:ffff:ffff:ffff:ffff", NET_METADATA},
    {"fd00:ec3::", "fd20:ce::253", NET_PRIVATE},
    {"fd20:ce::254", NULL, NET_METADATA},
    {"fd20:ce::255", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", NET_PRIVATE},
    {"fe00::", "fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff", NET_RESERVED},
    {"fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", NET_LINK_LOCAL},
    {"fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", NET_LINK_LOCAL},
    {"ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", NET_MULTICAST},
};

static void both_ends_of_every_range(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(ranges); i++)
        for (int end = 0; end < 2; end++) {
            const char *text = end && ranges[i].last ? ranges[i].last : ranges[i].first;
            struct netaddr a = addr(text);
            if (netaddr_class(&a) != ranges[i].class)
                fail_msg("%s is %s, not %s", text, net_class_name(ranges[i].class), net_class_name(netaddr_class(&a)));
        }
}

/* The table above leaves no gap in IPv4. */
static void ranges_of_ipv4_are_complete(void **state)
{
    uint64_t next = 0;
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
        struct netaddr first = addr(ranges[i].first), last = addr(ranges[i].last ? ranges[i].last : ranges[i].first);
        uint32_t bytes;
        if (first.family != 4)
            continue;
        memcpy(&bytes, first.bytes, 4);
        assert_int_equal(ntohl(bytes), next);
        memcpy(&bytes, last.bytes, 4);
        next = (uint64_t)ntohl(bytes) + 1;
    }
    assert_int_equal(next, 1ULL << 32);
}

static void wrapped_addresses_are_what_they_wrap(void **state)
{
    static const struct {
        const char *text;
        enum net_class class;
    } cases[] = {
        {"::ffff:127.0.0.1", NET_LOOPBACK},
        {"::ffff:169.254.169.254", NET_METADATA},
        {"::ffff:8.8.8.8", NET_PUBLIC},
        {"::127.0.0.1", NET_LOOPBACK},
        {"::10.0.0.1", NET_PRIVATE},
        {"64:ff9b::8.8.8.8", NET_PUBLIC},
        {"64:ff9b::7f00:1", NET_LOOPBACK},
        {"64:ff9b::a9fe:a9fe", NET_METADATA},
        {"64:ff9b::10.0.0.1", NET_PRIVATE},
        {"64:ff9b::0.0.0.0", NET_UNSPECIFIED},
        {"64:ff9b::255.255.255.255", NET_MULTICAST},
        {"64:ff9b:1::8.8.8.8", NET_UNSPECIFIED}, /* below 48 bits it would be 0.0.0.0 */
        {"64:ff9b:1:a9fe:a9:fe00::", NET_METADATA},
        {"64:ff9b:1:7f:0:1::", NET_LOOPBACK},     /* below 56 bits */
        {"64:ff9b:1:1:7f:0:100::", NET_LOOPBACK}, /* below 64 bits */
        {"64:ff9b:1:1111:11:1111:a9fe:a9fe", NET_METADATA},
        {"64:ff9b:1:808:8:808:808:808", NET_RESERVED},
        {"2002:808:808::", NET_RESERVED},
        {"2002:7f00:1::", NET_LOOPBACK},
        {"2002:a9fe:a9fe::1", NET_METADATA},
        {"2002:a00:1::5", NET_PRIVATE},
        {"2001:0:808:808:0:0:f7f7:f7f7", NET_RESERVED},   /* Teredo: server 8.8.8.8, client 8.8.8.8 */
        {"2001:0:808:808:0:0:80ff:fffe", NET_LOOPBACK},   /* client 127.0.0.1 */
        {"2001:0:a9fe:a9fe:0:0:f7f7:f7f7", NET_METADATA}, /* server */
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct netaddr a = addr(cases[i].text);
        if (netaddr_class(&a) != cases[i].class)
            fail_msg("%s is %s, not %s", cases[i].text, net_class_name(cases[i].class),
                     net_class_name(netaddr_class(&a)));
    }
}

static void networks_are_read_and_written(void **state)
{
    static const struct {
        const char *text, *normal;
    } cases[] = {
        {"10.0.0.0/8", "10.0.0.0/8"},
        {"10.1.2.3/8", "10.0.0.0/8"},
        {"10.255.255.255/9", "10.128.0.0/9"},
        {"1.2.3.4", "1.2.3.4"},
        {"1.2.3.4/32", "1.2.3.4"},
        {"1.2.3.4/31", "1.2.3.4/31"},
        {"1.2.3.5/31", "1.2.3.4/31"},
        {"1.2.3.4/0", "0.0.0.0/0"},
        {"::/0", "::/0"},
        {"ffff::/0", "::/0"},
        {"2001:db8::1/32", "2001:db8::/32"},
        {"2001:db8::1", "2001:db8::1"},
        {"2001:db8::1/128", "2001:db8::1"},
        {"2001:db8::1/127", "2001:db8::/127"},
        {"fd00::ffff/113", "fd00::8000/113"},
        {"::ffff:0:0/96", "0.0.0.0/0"},
        {"::ffff:10.1.2.3/104", "10.0.0.0/8"},
        {"::ffff:10.1.2.3", "10.1.2.3"},
        {"::ffff:10.1.2.3/128", "10.1.2.3"},
        {"::ffff:10.1.2.3/95", "::fffe:0:0/95"},
        {"::ffff:10.1.2.3/64", "::/64"},
    };
    static const char *const refused[] = {"",
                                          "/8",
                                          "10.0.0.0/",
                                          "10.0.0.0/33",
                                          "10.0.0.0/08",
                                          "10.0.0.0/-1",
                                          "10.0.0.0/+8",
                                          "10.0.0.0/ 8",
                                          "10.0.0.0/8 ",
                                          "10.0.0.0//8",
                                          "10.0.0.0/8/8",
                                          "10/8",
                                          "10.0.0/24",
                                          "::/129",
                                          "::/1280",
                                          "::/00",
                                          "10.0.0.0/a",
                                          "10.0.0.0/4294967304",
                                          "10.0.0.0/255.0.0.0",
                                          "fe80::%eth0/64",
                                          "[::]/0",
                                          "*",
                                          "a/8"};
    struct netcidr c;
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[NETADDR_TEXT_MAX + 4];
        c = cidr(cases[i].text);
        netcidr_print(&c, text);
        assert_string_equal(text, cases[i].normal);
    }
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
        if (netcidr_parse(str_of(refused[i]), &c))
            fail_msg("\"%s\" was taken for a network", refused[i]);
}

static void networks_have_their_addresses(void **state)
{
    static const struct {
        const char *net, *addr;
        bool has;
    } cases[] = {
        {"10.0.0.0/8", "10.0.0.0", true},
        {"10.0.0.0/8", "10.255.255.255", true},
        {"10.0.0.0/8", "11.0.0.0", false},
        {"10.0.0.0/8", "9.255.255.255", false},
        {"10.0.0.0/8", "a00::", false},
        {"10.0.0.0/8", "::ffff:10.1.1.1", true},
        {"0.0.0.0/0", "1.2.3.4", true},
        {"0.0.0.0/0", "::", false},
        {"::/0", "2001:db8::1", true},
        {"::/0", "1.2.3.4", false},
        {"::/0", "::ffff:1.2.3.4", false},
        {"1.2.3.4", "1.2.3.4", true},
        {"1.2.3.4", "1.2.3.5", false},
        {"1.2.3.4/31", "1.2.3.5", true},
        {"1.2.3.4/31", "1.2.3.6", false},
        {"1.2.3.0/25", "1.2.3.127", true},
        {"1.2.3.0/25", "1.2.3.128", false},
        {"2001:db8::/33", "2001:db8:7fff::", true},
        {"2001:db8::/33", "2001:db8:8000::", false},
        {"2001:db8::1", "2001:db8::1", true},
        {"2001:db8::1", "2001:db8::2", false},
    };
    struct netcidr nothing = {0};
    struct netaddr none = {0};
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct netcidr c = cidr(cases[i].net);
        struct netaddr a = addr(cases[i].addr);
        if (netcidr_has(&c, &a) != cases[i].has)
            fail_msg("%s has %s%s", cases[i].net, cases[i].addr, cases[i].has ? "" : " not");
    }
    assert_false(netcidr_has(&nothing, &none));
}

static void which_networks_are_partly_public(void **state)
{
    static const struct {
        const char *net;
        bool has_public;
    } cases[] = {
        {"0.0.0.0/0", true},
        {"0.0.0.0/7", true},
        {"0.0.0.0/8", false},
        {"10.0.0.0/8", false},
        {"10.0.0.0/7", true},
        {"10.2.0.0/16", false},
        {"10.1.1.1", false},
        {"8.8.8.8", true},
        {"8.8.8.0/24", true},
        {"224.0.0.0/3", false},
        {"192.0.0.0/23", true},
        {"192.0.0.0/24", false},
        {"192.0.2.0/23", true},
        {"168.63.129.16", false},
        {"168.63.129.16/31", true},
        {"169.254.0.0/16", false},
        {"168.0.0.0/7", true},
        {"172.16.0.0/11", true},
        {"::/0", true},
        {"::/1", true},
        {"8000::/1", false},
        {"2000::/3", true},
        {"2001::/23", false},
        {"2001::/22", true},
        {"2001::/32", false},
        {"4000::/2", false},
        {"fc00::/7", false},
        {"fe80::/10", false},
        {"::/96", false},
        {"64:ff9b::/96", true},
        {"64:ff9b::10.0.0.0/104", false},
        {"64:ff9b::8.0.0.0/104", true},
        {"64:ff9b::7f00:1", false},
        {"64:ff9b::808:808", true},
        {"64:ff9b::/95", true},
        {"64:ff9b:1::/48", false},
        {"2002::/16", false},
        {"2002:808:808::/48", false},
        {"3ffe::/15", true},
        {"3fff::/20", false},
        {"2606:4700::1111", true},
        {"fd00:ec2::254", false},
        {"ff02::1", false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct netcidr c = cidr(cases[i].net);
        if (netcidr_has_public(&c) != cases[i].has_public)
            fail_msg("%s has %s address that is public", cases[i].net, cases[i].has_public ? "an" : "no");
    }
}

static void every_class_has_a_name(void **state)
{
    (void)state;
    for (int c = NET_PUBLIC; c <= NET_HOST; c++)
        assert_true(net_class_name((enum net_class)c)[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_read_and_written),   cmocka_unit_test(what_somebody_would_guess_is_no_address),
        cmocka_unit_test(socket_addresses_there_and_back),  cmocka_unit_test(both_ends_of_every_range),
        cmocka_unit_test(ranges_of_ipv4_are_complete),      cmocka_unit_test(wrapped_addresses_are_what_they_wrap),
        cmocka_unit_test(networks_are_read_and_written),    cmocka_unit_test(networks_have_their_addresses),
        cmocka_unit_test(which_networks_are_partly_public), cmocka_unit_test(every_class_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
