/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How packets go. Only lo is there, so each of them passes "output" first; what must hold holds there.
 *
 *  1. What goes to an address of the sandbox itself is not tracked, and accepted, but for our own ports: those take
 *     what was captured and nothing else. So conntrack's table holds captured flows alone, and services inside can be
 *     as busy as they like.
 *  2. TCP to anywhere else, and port 53 of UDP and TCP, gets our sockets as its destination (dnat). To get the source
 *     of an answer right conntrack must see answers too: what our ports send is tracked.
 *  3. All the rest, and more new flows than NETNS_RATE, is refused: TCP with a reset, others with EPERM from the call
 *     itself. (IPv6 sends "port unreachable" as well; IPv4 would, but for the lack of a route for it.) A refused flow
 *     is never entered in conntrack's table: that happens behind the filter.
 *  4. A flow that ended is forgotten within seconds, one that lives costs somebody a socket. With 3 that bounds
 *     conntrack's memory, which no control group counts.
 *
 * Our sockets' address is the sandbox's own: an answer to it goes out with that address even when its sender doesn't
 * say so. A listening port may see one client port again at once, for another destination; while our end of the old
 * connection is in TIME-WAIT, only a younger time stamp lets the new one in. Hence time stamps without an offset for
 * each destination (tcp_timestamps = 2).
 */
#include "kernel/netns.h"
#include "base/fd.h"
#include "kernel/netns_internal.h"
#include "kernel/nft.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_cttimeout.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6/ip6_tables.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TCP_BACKLOG = 1024, DNS_BACKLOG = 64 };

struct netns_addresses netns_addresses(const char *v4, const char *v6)
{
    struct netns_addresses a;
    int ok = inet_pton(AF_INET, v4, &a.v4) == 1 && inet_pton(AF_INET6, v6, &a.v6) == 1;
    assert(ok);
    return a;
}

/* ---- settings ---- */

int netns_apply(int proc_fd, const struct netns_setting *settings, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int r = fd_write_existing(proc_fd, settings[i].path, str_of(settings[i].value));
        if (r < 0)
            return r;
    }
    return 0;
}

int netns_apply_basic(int proc_fd)
{
    static const struct netns_setting basic[] = {
        {"sys/net/ipv6/conf/all/disable_ipv6", "0"},
        {"sys/net/ipv6/conf/lo/disable_ipv6", "0"},
        {"sys/net/ipv4/ip_forward", "0"},
        {"sys/net/ipv4/ip_unprivileged_port_start", "0"},
        {"sys/net/ipv4/tcp_timestamps", "2"},
    };
    static const struct netns_setting no_ping = {"sys/net/ipv4/ping_group_range", "1 0"};
    int r = netns_apply(proc_fd, basic, ARRAY_SIZE(basic));
    if (r == 0)
        r = netns_apply(proc_fd, &no_ping, 1);
    if (r == -EINVAL) /* a user namespace without these ids; a new network has this range already */
        r = 0;
    /* Copies of sent packets, with the times at which they went, wait for being read in memory that no control group
     * counts. A message asks for them as an option would. Older kernels have one such setting for the machine. */
    static const struct netns_setting no_copies = {"sys/net/core/tstamp_allow_data", "0"};
    if (r == 0 && (r = netns_apply(proc_fd, &no_copies, 1)) == -ENOENT)
        return 0;
    return r == -ENOENT ? -EAFNOSUPPORT : r; /* IPv4's are always there */
}

/* Established and half closed connections may be silent for as long as both ends want them. */
static const struct {
    const char *name;
    uint8_t protocol;
    uint16_t attribute;
    uint32_t seconds;
} netns_timeouts[] = {
    {"tcp_timeout_syn_sent", IPPROTO_TCP, CTA_TIMEOUT_TCP_SYN_SENT, 20},
    {"tcp_timeout_syn_recv", IPPROTO_TCP, CTA_TIMEOUT_TCP_SYN_RECV, 20},
    {"tcp_timeout_fin_wait", IPPROTO_TCP, CTA_TIMEOUT_TCP_FIN_WAIT, 30},
    {"tcp_timeout_close_wait", IPPROTO_TCP, CTA_TIMEOUT_TCP_CLOSE_WAIT, 432000},
    {"tcp_timeout_last_ack", IPPROTO_TCP, CTA_TIMEOUT_TCP_LAST_ACK, 5},
    {"tcp_timeout_time_wait", IPPROTO_TCP, CTA_TIMEOUT_TCP_TIME_WAIT, 2},
    {"tcp_timeout_close", IPPROTO_TCP, CTA_TIMEOUT_TCP_CLOSE, 2},
    {"udp_timeout", IPPROTO_UDP, CTA_TIMEOUT_UDP_UNREPLIED, 15},
    {"udp_timeout_stream", IPPROTO_UDP, CTA_TIMEOUT_UDP_REPLIED, 30},
};

/* One message for a protocol instead of a file for each, which is a sixth of the time. */
static int netns_tell_timeouts(void)
{
    static const uint8_t protocols[] = {IPPROTO_TCP, IPPROTO_UDP};
    const struct nfgenmsg header = {.version = NFNETLINK_V0};
    const uint16_t type = NFNL_SUBSYS_CTNETLINK_TIMEOUT << 8 | IPCTNL_MSG_TIMEOUT_DEFAULT_SET;
    struct netlink nl;
    nl.used = nl.n = 0;
    for (size_t k = 0; k < ARRAY_SIZE(protocols); k++) {
        struct nlmsghdr *h = netlink_add(&nl, type, NLM_F_ACK, &header, sizeof(header));
        mnl_attr_put_u16(h, CTA_TIMEOUT_L3PROTO, htons(AF_INET)); /* it is that of IPv6, too */
        mnl_attr_put_u8(h, CTA_TIMEOUT_L4PROTO, protocols[k]);
        struct nlattr *data = mnl_attr_nest_start(h, CTA_TIMEOUT_DATA);
        for (size_t i = 0; i < ARRAY_SIZE(netns_timeouts); i++)
            if (netns_timeouts[i].protocol == protocols[k])
                mnl_attr_put_u32(h, netns_timeouts[i].attribute, htonl(netns_timeouts[i].seconds));
        mnl_attr_nest_end(h, data);
    }
    return netlink_talk(&nl, NETLINK_NETFILTER);
}

int netns_apply_conntrack(int proc_fd)
{
    static const struct netns_setting conntrack[] = {
        {"sys/net/netfilter/nf_conntrack_tcp_loose", "0"},
        {"sys/net/netfilter/nf_conntrack_tcp_be_liberal", "1"},
    };
    char path[80], value[16];
    int r = netns_apply(proc_fd, conntrack, ARRAY_SIZE(conntrack));
    if (r < 0 || netns_tell_timeouts() == 0)
        return r;
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(netns_timeouts); i++) { /* without CONFIG_NF_CT_NETLINK_TIMEOUT */
        (void)snprintf(path, sizeof(path), "sys/net/netfilter/nf_conntrack_%s", netns_timeouts[i].name);
        (void)snprintf(value, sizeof(value), "%u", netns_timeouts[i].seconds);
        r = netns_apply(proc_fd, &(struct netns_setting){path, value}, 1);
    }
    return r;
}

/* ---- addresses and routes ---- */

void netns_add_address(struct netlink *nl, int link, const struct netns_addresses *a, bool v6, uint8_t prefix)
{
    const struct ifaddrmsg m = {
        .ifa_family = v6 ? AF_INET6 : AF_INET,
        .ifa_prefixlen = prefix,
        .ifa_flags = IFA_F_NODAD,
        .ifa_scope = RT_SCOPE_UNIVERSE,
        .ifa_index = (unsigned)link,
    };
    const void *address = v6 ? (const void *)&a->v6 : &a->v4;
    const size_t n = v6 ? sizeof(a->v6) : sizeof(a->v4);
    struct nlmsghdr *h = netlink_add(nl, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, &m, sizeof(m));
    mnl_attr_put(h, IFA_LOCAL, n, address);
    mnl_attr_put(h, IFA_ADDRESS, n, address);
}

static void add_default_route(struct netlink *nl, uint8_t family, const void *source, size_t n)
{
    const struct rtmsg m = {
        .rtm_family = family,
        .rtm_table = RT_TABLE_MAIN,
        .rtm_protocol = RTPROT_STATIC,
        .rtm_scope = family == AF_INET ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE,
        .rtm_type = RTN_UNICAST,
    };
    struct nlmsghdr *h = netlink_add(nl, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, &m, sizeof(m));
    mnl_attr_put(h, RTA_PREFSRC, n, source);
    mnl_attr_put_u32(h, RTA_OIF, NETNS_LO);
}

static int set_up_lo(const struct netns_addresses *own)
{
    const struct ifinfomsg up = {.ifi_index = NETNS_LO, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    struct netlink nl;
    nl.used = nl.n = 0;
    (void)netlink_add(&nl, RTM_NEWLINK, NLM_F_ACK, &up, sizeof(up));
    netns_add_address(&nl, NETNS_LO, own, false, 32);
    netns_add_address(&nl, NETNS_LO, own, true, 128);
    add_default_route(&nl, AF_INET, &own->v4, sizeof(own->v4));
    add_default_route(&nl, AF_INET6, &own->v6, sizeof(own->v6));
    return netlink_talk(&nl, NETLINK_ROUTE);
}

/* ---- rules ---- */

static const struct {
    uint8_t protocol;
    uint16_t port;
} our_ports[] = {{IPPROTO_TCP, NETNS_TCP_PORT}, {IPPROTO_TCP, NETNS_DNS_PORT}, {IPPROTO_UDP, NETNS_DNS_PORT}};

static void add_track_rules(struct netlink *nl, const struct netns_addresses *own)
{
    static const uint8_t loopback4 = 127;
    const struct {
        uint8_t family;
        uint32_t offset;
        const void *bytes;
        uint32_t n;
    } local[] = {
        {NFPROTO_IPV4, NETNS_V4_DESTINATION, &loopback4, 1},
        {NFPROTO_IPV4, NETNS_V4_DESTINATION, &own->v4, sizeof(own->v4)},
        {NFPROTO_IPV6, NETNS_V6_DESTINATION, &in6addr_loopback, sizeof(in6addr_loopback)},
        {NFPROTO_IPV6, NETNS_V6_DESTINATION, &own->v6, sizeof(own->v6)},
    };
    for (size_t i = 0; i < ARRAY_SIZE(our_ports); i++) {
        struct nft_rule r = nft_rule(nl, NETNS_TABLE, "track");
        nft_match_protocol(&r, our_ports[i].protocol);
        nft_match_port(&r, true, our_ports[i].port);
        nft_verdict(&r, NF_ACCEPT);
        nft_rule_end(&r);
    }
    for (size_t i = 0; i < ARRAY_SIZE(local); i++) {
        struct nft_rule r = nft_rule(nl, NETNS_TABLE, "track");
        nft_match_family(&r, local[i].family);
        nft_match_header(&r, local[i].offset, local[i].bytes, local[i].n);
        nft_notrack(&r);
        nft_rule_end(&r);
    }
}

/* from: a port, or 0 for all. */
static void add_capture(struct netlink *nl, const struct netns_addresses *own, uint8_t protocol, uint16_t from,
                        uint16_t to)
{
    static const uint8_t families[] = {NFPROTO_IPV4, NFPROTO_IPV6};
    for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
        struct nft_rule r = nft_rule(nl, NETNS_TABLE, "capture");
        nft_match_family(&r, families[i]);
        nft_match_protocol(&r, protocol);
        if (from)
            nft_match_port(&r, false, from);
        nft_dnat(&r, families[i], families[i] == NFPROTO_IPV4 ? (const void *)&own->v4 : (const void *)&own->v6, to);
        nft_rule_end(&r);
    }
}

void netns_add_captures(struct netlink *nl, const struct netns_addresses *to)
{
    add_capture(nl, to, IPPROTO_UDP, 53, NETNS_DNS_PORT);
    add_capture(nl, to, IPPROTO_TCP, 53, NETNS_DNS_PORT);
    add_capture(nl, to, IPPROTO_TCP, 0, NETNS_TCP_PORT);
}

void netns_add_refusals(struct netlink *nl)
{
    struct nft_rule r = nft_rule(nl, NETNS_TABLE, "filter");
    nft_match_ct_status(&r, IPS_DST_NAT);
    nft_match_rate(&r, NETNS_RATE, NETNS_BURST);
    nft_verdict(&r, NF_ACCEPT);
    nft_rule_end(&r);

    r = nft_rule(nl, NETNS_TABLE, "filter");
    nft_match_protocol(&r, IPPROTO_TCP);
    nft_reject_tcp(&r);
    nft_rule_end(&r);

    r = nft_rule(nl, NETNS_TABLE, "filter");
    nft_reject_unreachable(&r);
    nft_rule_end(&r);
}

static void add_filter_rules(struct netlink *nl)
{
    const uint32_t known = NF_CT_STATE_BIT(IP_CT_ESTABLISHED) | NF_CT_STATE_BIT(IP_CT_RELATED);
    struct nft_rule r = nft_rule(nl, NETNS_TABLE, "filter");
    nft_match_ct_state(&r, known);
    nft_verdict(&r, NF_ACCEPT);
    nft_rule_end(&r);

    for (size_t i = 0; i < ARRAY_SIZE(our_ports); i++) {
        r = nft_rule(nl, NETNS_TABLE, "filter");
        nft_match_ct_state(&r, NF_CT_STATE_UNTRACKED_BIT);
        nft_match_protocol(&r, our_ports[i].protocol);
        nft_match_port(&r, false, our_ports[i].port);
        (our_ports[i].protocol == IPPROTO_TCP ? nft_reject_tcp : nft_reject_unreachable)(&r);
        nft_rule_end(&r);
    }
    r = nft_rule(nl, NETNS_TABLE, "filter");
    nft_match_ct_state(&r, NF_CT_STATE_UNTRACKED_BIT);
    nft_verdict(&r, NF_ACCEPT);
    nft_rule_end(&r);

    /* The resets of the rules above: they come from our ports and belong to no flow. */
    r = nft_rule(nl, NETNS_TABLE, "filter");
    nft_match_ct_state(&r, NF_CT_STATE_INVALID_BIT);
    nft_match_protocol(&r, IPPROTO_TCP);
    nft_match_tcp_reset(&r);
    nft_verdict(&r, NF_ACCEPT);
    nft_rule_end(&r);

    netns_add_refusals(nl);
}

static int load_rules(const struct netns_addresses *own)
{
    static const struct nft_chain chains[] = {
        {"track", "filter", NF_INET_LOCAL_OUT, NF_IP_PRI_RAW, NF_ACCEPT},
        {"capture", "nat", NF_INET_LOCAL_OUT, NF_IP_PRI_NAT_DST, NF_ACCEPT},
        {"filter", "filter", NF_INET_LOCAL_OUT, NF_IP_PRI_FILTER, NF_DROP},
    };
    struct netlink nl;
    nft_begin(&nl, NETNS_TABLE);
    for (size_t i = 0; i < ARRAY_SIZE(chains); i++)
        nft_add_chain(&nl, NETNS_TABLE, &chains[i]);
    add_track_rules(&nl, own);
    netns_add_captures(&nl, own);
    add_filter_rules(&nl);
    return nft_commit(&nl);
}

/* ---- sockets ---- */

static int open_socket(int type, uint16_t port, int backlog, int *ret_fd)
{
    static const int off = 0;
    const struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    AUTO_CLOSE int fd = socket(AF_INET6, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) < 0 ||
        bind(fd, (const struct sockaddr *)&any, sizeof(any)) < 0 || (backlog && listen(fd, backlog) < 0))
        return -errno;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int netns_open_sockets(struct netns *net)
{
    int r = open_socket(SOCK_STREAM, NETNS_TCP_PORT, TCP_BACKLOG, &net->tcp);
    r = r ? r : open_socket(SOCK_DGRAM, NETNS_DNS_PORT, 0, &net->dns_udp);
    return r ? r : open_socket(SOCK_STREAM, NETNS_DNS_PORT, DNS_BACKLOG, &net->dns_tcp);
}

int netns_make(struct netns *ret_net)
{
    AUTO_CLOSE int proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return proc_fd < 0 ? -errno : netns_make_by(proc_fd, ret_net);
}

int netns_make_by(int proc_fd, struct netns *ret_net)
{
    const struct netns_addresses own = netns_addresses(NETNS_ADDRESS4, NETNS_ADDRESS6);
    struct netns net = NETNS_NONE;
    if (unshare(CLONE_NEWNET) < 0)
        return -errno;
    net.ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    int r = net.ns < 0 ? -errno : netns_apply_basic(proc_fd);
    r = r ? r : set_up_lo(&own);
    r = r ? r : load_rules(&own);
    r = r ? r : netns_apply_conntrack(proc_fd);
    r = r ? r : netns_open_sockets(&net);
    if (r < 0) {
        netns_close(&net);
        return r;
    }
    *ret_net = net;
    return 0;
}

void netns_close(struct netns *net)
{
    net->ns = fd_close(net->ns);
    net->tcp = fd_close(net->tcp);
    net->dns_udp = fd_close(net->dns_udp);
    net->dns_tcp = fd_close(net->dns_tcp);
}

/* ---- afterwards ---- */

static void unmap(struct sockaddr_storage *a)
{
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)a;
    if (a->ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
        return;
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = v6->sin6_port};
    memcpy(&v4.sin_addr, &v6->sin6_addr.s6_addr[12], sizeof(v4.sin_addr));
    memset(a, 0, sizeof(*a));
    memcpy(a, &v4, sizeof(v4));
}

static bool same(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    struct sockaddr_in v4[2];
    struct sockaddr_in6 v6[2];
    memcpy(&v4[0], a, sizeof(v4[0]));
    memcpy(&v4[1], b, sizeof(v4[1]));
    memcpy(&v6[0], a, sizeof(v6[0]));
    memcpy(&v6[1], b, sizeof(v6[1]));
    if (a->ss_family == AF_INET)
        return v4[0].sin_port == v4[1].sin_port && v4[0].sin_addr.s_addr == v4[1].sin_addr.s_addr;
    return v6[0].sin6_port == v6[1].sin6_port && IN6_ARE_ADDR_EQUAL(&v6[0].sin6_addr, &v6[1].sin6_addr);
}

int netns_original(int fd, struct sockaddr_storage *ret_to)
{
    struct sockaddr_storage here, to;
    socklen_t n = sizeof(here);
    memset(&here, 0, sizeof(here));
    memset(&to, 0, sizeof(to));
    if (getsockname(fd, (struct sockaddr *)&here, &n) < 0)
        return -errno;
    unmap(&here);
    n = here.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    int r = here.ss_family == AF_INET ? getsockopt(fd, SOL_IP, SO_ORIGINAL_DST, &to, &n)
                                      : getsockopt(fd, SOL_IPV6, IP6T_SO_ORIGINAL_DST, &to, &n);
    if (r < 0)
        return -errno;
    if (to.ss_family != here.ss_family || same(&to, &here))
        return -ENOENT;
    *ret_to = to;
    return 0;
}
