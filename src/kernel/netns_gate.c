/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gate: packets come in by one end of a veth, or by a tap, of which a stack that nobody here controls has the other.
 * So nothing is taken for granted, not even that a packet has a source that it may have. What must hold holds at
 * "prerouting", before the kernel decides where a packet goes.
 *
 *  1. Only what comes from the sandbox's two addresses passes, and nothing that goes to a loopback address. So neither
 *     the tables of neighbours, which all namespaces share, nor conntrack's can be filled with addresses of the
 *     sandbox's choice. ARP is off at our end; neighbour discovery is refused as all else is: both ends know each other
 *     for good.
 *  2. TCP, and port 53 of UDP, gets our sockets as its destination. All the rest is refused at once. The gate forwards
 *     nothing and has no other way out.
 *  3. Flows are bounded as in netns.c.
 *
 * Inside, the sandbox's addresses are those that it has everywhere. The gate's own are the resolver's.
 */
#include "base/fd.h"
#include "kernel/netns_internal.h"
#include "kernel/nft.h"

#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <linux/if_link.h>
#include <linux/if_tun.h>
#include <linux/neighbour.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter_ipv4.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define GATE_ADDRESS4 NETNS_DNS_ADDRESS
#define GATE_ADDRESS6 "fd00:c0fe::1"

enum {
    GATE_LINK = 100,
    GATE_PREFIX4 = 30,
    GATE_PREFIX6 = 126
}; /* GATE_LINK: beyond what a new namespace may have by itself */

static const uint8_t gate_mac[] = {0x02, 0xc0, 0xfe, 0, 0, 1}, sandbox_mac[] = {0x02, 0xc0, 0xfe, 0, 0, 2};

/* ---- the wire ---- */

static void gate_describe(struct nlmsghdr *h, const char *name, const uint8_t mac[static 6])
{
    mnl_attr_put_strz(h, IFLA_IFNAME, name);
    mnl_attr_put(h, IFLA_ADDRESS, 6, mac);
    mnl_attr_put_u32(h, IFLA_NUM_TX_QUEUES, 1);
    mnl_attr_put_u32(h, IFLA_NUM_RX_QUEUES, 1);
}

/* In the gate; the other end goes to `peer_ns`. */
static int gate_make_veth(int peer_ns)
{
    const struct ifinfomsg own = {.ifi_index = GATE_LINK}, peer = {.ifi_index = GATE_LINK};
    struct netlink nl;
    nl.used = nl.n = 0;
    struct nlmsghdr *h = netlink_add(&nl, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, &own, sizeof(own));
    gate_describe(h, "gate", gate_mac);
    struct nlattr *info = mnl_attr_nest_start(h, IFLA_LINKINFO);
    mnl_attr_put_strz(h, IFLA_INFO_KIND, "veth");
    struct nlattr *data = mnl_attr_nest_start(h, IFLA_INFO_DATA);
    struct nlattr *other = mnl_attr_nest_start(h, VETH_INFO_PEER);
    void *body = mnl_nlmsg_put_extra_header(h, sizeof(peer));
    memcpy(body, &peer, sizeof(peer));
    gate_describe(h, NETNS_GATE_LINK, sandbox_mac);
    mnl_attr_put_u32(h, IFLA_NET_NS_FD, (uint32_t)peer_ns);
    mnl_attr_nest_end(h, other);
    mnl_attr_nest_end(h, data);
    mnl_attr_nest_end(h, info);
    return netlink_talk(&nl, NETLINK_ROUTE);
}

static void gate_add_neighbour(struct netlink *nl, int link, uint8_t family, const void *address, size_t n,
                               const uint8_t mac[static 6])
{
    const struct ndmsg m = {.ndm_family = family, .ndm_ifindex = link, .ndm_state = NUD_PERMANENT};
    struct nlmsghdr *h = netlink_add(nl, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, &m, sizeof(m));
    mnl_attr_put(h, NDA_DST, n, address);
    mnl_attr_put(h, NDA_LLADDR, 6, mac);
}

static void gate_add_route(struct netlink *nl, int link, uint8_t family, const void *via, size_t n)
{
    const struct rtmsg m = {.rtm_family = family,
                            .rtm_table = RT_TABLE_MAIN,
                            .rtm_protocol = RTPROT_STATIC,
                            .rtm_scope = RT_SCOPE_UNIVERSE,
                            .rtm_type = RTN_UNICAST};
    struct nlmsghdr *h = netlink_add(nl, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, &m, sizeof(m));
    mnl_attr_put(h, RTA_GATEWAY, n, via);
    mnl_attr_put_u32(h, RTA_OIF, (uint32_t)link);
}

/* One end: its address, that of the other. */
static void gate_add_set_up(struct netlink *nl, int index, bool is_gate)
{
    const struct netns_addresses ends[] = {netns_addresses(NETNS_ADDRESS4, NETNS_ADDRESS6),
                                           netns_addresses(GATE_ADDRESS4, GATE_ADDRESS6)};
    const struct netns_addresses *own = &ends[is_gate], *other = &ends[!is_gate];
    const uint8_t *other_mac = is_gate ? sandbox_mac : gate_mac;
    const struct ifinfomsg lo = {.ifi_index = NETNS_LO, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    const unsigned no_arp = is_gate ? IFF_NOARP : 0;
    const struct ifinfomsg link = {.ifi_index = index, .ifi_flags = IFF_UP | no_arp, .ifi_change = IFF_UP | IFF_NOARP};
    nl->used = nl->n = 0;
    (void)netlink_add(nl, RTM_NEWLINK, NLM_F_ACK, &lo, sizeof(lo));
    netns_add_address(nl, index, own, false, GATE_PREFIX4);
    netns_add_address(nl, index, own, true, GATE_PREFIX6);
    (void)netlink_add(nl, RTM_NEWLINK, NLM_F_ACK, &link, sizeof(link));
    gate_add_neighbour(nl, index, AF_INET, &other->v4, sizeof(other->v4), other_mac);
    gate_add_neighbour(nl, index, AF_INET6, &other->v6, sizeof(other->v6), other_mac);
    if (!is_gate) {
        gate_add_route(nl, index, AF_INET, &other->v4, sizeof(other->v4));
        gate_add_route(nl, index, AF_INET6, &other->v6, sizeof(other->v6));
    }
}

static int gate_set_up(bool is_gate)
{
    struct netlink nl;
    gate_add_set_up(&nl, GATE_LINK, is_gate);
    return netlink_talk(&nl, NETLINK_ROUTE);
}

static int gate_apply(int proc_fd, const char *link)
{
    static const char *const names[][2] = {{"addr_gen_mode", "1"}, {"accept_ra", "0"}, {"accept_redirects", "0"}};
    char path[80];
    int r = 0;
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(names); i++) {
        (void)snprintf(path, sizeof(path), "sys/net/ipv6/conf/%s/%s", link, names[i][0]);
        r = netns_apply(proc_fd, &(struct netns_setting){path, names[i][1]}, 1);
    }
    return r;
}

/* ---- rules ---- */

static void gate_match(struct netlink *nl, uint8_t family, uint32_t offset, const void *bytes, uint32_t n,
                       uint32_t verdict)
{
    struct nft_rule r = nft_rule(nl, NETNS_TABLE, "track");
    nft_match_family(&r, family);
    nft_match_header(&r, offset, bytes, n);
    nft_verdict(&r, verdict);
    nft_rule_end(&r);
}

static int gate_load_rules(void)
{
    const struct netns_addresses sandbox = netns_addresses(NETNS_ADDRESS4, NETNS_ADDRESS6);
    const struct netns_addresses own = netns_addresses(GATE_ADDRESS4, GATE_ADDRESS6);
    static const struct nft_chain chains[] = {
        {"track", "filter", NF_INET_PRE_ROUTING, NF_IP_PRI_RAW, NF_DROP},
        {"capture", "nat", NF_INET_PRE_ROUTING, NF_IP_PRI_NAT_DST, NF_ACCEPT},
        {"filter", "filter", NF_INET_PRE_ROUTING, NF_IP_PRI_NAT_DST + 50, NF_DROP},
    };
    static const uint8_t loopback4 = 127;
    const uint32_t known = NF_CT_STATE_BIT(IP_CT_ESTABLISHED) | NF_CT_STATE_BIT(IP_CT_RELATED);
    struct netlink nl;
    nft_begin(&nl, NETNS_TABLE);
    for (size_t i = 0; i < ARRAY_SIZE(chains); i++)
        nft_add_chain(&nl, NETNS_TABLE, &chains[i]);
    gate_match(&nl, NFPROTO_IPV4, NETNS_V4_DESTINATION, &loopback4, sizeof(loopback4), NF_DROP);
    gate_match(&nl, NFPROTO_IPV6, NETNS_V6_DESTINATION, &in6addr_loopback, sizeof(in6addr_loopback), NF_DROP);
    gate_match(&nl, NFPROTO_IPV4, NETNS_V4_SOURCE, &sandbox.v4, sizeof(sandbox.v4), NF_ACCEPT);
    gate_match(&nl, NFPROTO_IPV6, NETNS_V6_SOURCE, &sandbox.v6, sizeof(sandbox.v6), NF_ACCEPT);
    netns_add_captures(&nl, &own);
    struct nft_rule r = nft_rule(&nl, NETNS_TABLE, "filter");
    nft_match_ct_state(&r, known);
    nft_verdict(&r, NF_ACCEPT);
    nft_rule_end(&r);
    netns_add_refusals(&nl);
    return nft_commit(&nl);
}

/* ---- both namespaces ---- */

static int gate_unshare(int proc_fd, int *ret_ns)
{
    if (unshare(CLONE_NEWNET) < 0)
        return -errno;
    *ret_ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    return *ret_ns < 0 ? -errno : netns_apply_basic(proc_fd);
}

int netns_make_gate(int proc_fd, struct netns *ret_net)
{
    struct netns net = NETNS_NONE;
    AUTO_CLOSE int gate = -1, own_proc = proc_fd < 0 ? open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    const int by = proc_fd < 0 ? own_proc : proc_fd;
    int r = by < 0 ? -errno : gate_unshare(by, &net.ns);
    r = r ? r : gate_unshare(by, &gate);
    r = r ? r : gate_make_veth(net.ns);
    r = r ? r : gate_apply(by, "gate");
    r = r ? r : gate_load_rules(); /* before a packet can come */
    r = r ? r : netns_apply_conntrack(by);
    r = r ? r : gate_set_up(true);
    r = r ? r : netns_open_sockets(&net);
    r = r ? r : setns(net.ns, CLONE_NEWNET) < 0 ? -errno : gate_apply(by, NETNS_GATE_LINK);
    r = r ? r : gate_set_up(false);
    if (r < 0) {
        netns_close(&net);
        return r;
    }
    *ret_net = net;
    return 0;
}

/* ---- a tap instead ---- */

int netns_make_gate_for_tap(int proc_fd, struct netns *ret_net)
{
    struct netns net = NETNS_NONE;
    AUTO_CLOSE int own_proc = proc_fd < 0 ? open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    const int by = proc_fd < 0 ? own_proc : proc_fd;
    int r = by < 0 ? -errno : gate_unshare(by, &net.ns);
    r = r ? r : gate_apply(by, "default");
    r = r ? r : gate_load_rules();
    r = r ? r : netns_apply_conntrack(by);
    r = r ? r : netns_open_sockets(&net);
    if (r < 0) {
        netns_close(&net);
        return r;
    }
    *ret_net = net;
    return 0;
}

static int gate_make_tap(int proc_fd, int tun_fd, int *ret_fd)
{
    const unsigned index = GATE_LINK;
    char path[32];
    struct ifreq tap, mac;
    memset(&tap, 0, sizeof(tap));
    memset(&mac, 0, sizeof(mac));
    memcpy(tap.ifr_name, "gate", 5);
    tap.ifr_flags = (short)(IFF_TAP | IFF_NO_PI | IFF_TUN_EXCL);
    mac.ifr_hwaddr.sa_family = ARPHRD_ETHER;
    memcpy(mac.ifr_hwaddr.sa_data, gate_mac, sizeof(gate_mac));
    (void)snprintf(path, sizeof(path), "self/fd/%d", tun_fd);
    AUTO_CLOSE int fd = openat(proc_fd, path, O_RDWR | O_NONBLOCK | O_CLOEXEC); /* its namespace is that of now */
    if (fd < 0 || ioctl(fd, TUNSETIFINDEX, &index) < 0 || ioctl(fd, TUNSETIFF, &tap) < 0 ||
        ioctl(fd, SIOCSIFHWADDR, &mac) < 0)
        return -errno;
    int r = gate_set_up(true);
    if (r == 0)
        *ret_fd = TAKE_FD(fd);
    return r;
}

int netns_gate_tap(struct netns *net, int home, int proc_fd, int tun_fd, int *ret_fd)
{
    if (setns(net->ns, CLONE_NEWNET) < 0)
        return -errno;
    int r = gate_make_tap(proc_fd, tun_fd, ret_fd);
    int back = setns(home, CLONE_NEWNET);
    assert(back == 0);
    net->ns = fd_close(net->ns);
    return r;
}

size_t netns_gate_describe(int link, void *buf, size_t size)
{
    struct netlink nl;
    gate_add_set_up(&nl, link, false);
    netlink_settle(&nl);
    assert(nl.used <= size);
    memcpy(buf, nl.bytes, nl.used);
    return nl.used;
}

/* ---- a stack that has but the interface ---- */

int netns_gate_move(struct netns *net, int home, pid_t pid)
{
    const struct ifinfomsg link = {.ifi_index = GATE_LINK};
    struct netlink nl;
    nl.used = nl.n = 0;
    struct nlmsghdr *h = netlink_add(&nl, RTM_SETLINK, NLM_F_ACK, &link, sizeof(link));
    mnl_attr_put_u32(h, IFLA_NET_NS_PID, (uint32_t)pid);
    if (setns(net->ns, CLONE_NEWNET) < 0)
        return -errno;
    int r = netlink_talk(&nl, NETLINK_ROUTE);
    int back = setns(home, CLONE_NEWNET);
    assert(back == 0);
    net->ns = fd_close(net->ns);
    return r;
}

int netns_gate_settle(void)
{
    return gate_set_up(false);
}
