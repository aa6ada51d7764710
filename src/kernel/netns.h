/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A network namespace that leads nowhere but to us: every route goes to lo, TCP is redirected to one listening socket
 * (which can ask for the original destination), DNS to two others, and all else is refused at once. IPv4 and IPv6. What
 * connects to 127.0.0.0/8 and ::1 stays inside.
 *
 * The namespace belongs to the host's user namespace: no capability inside a sandbox has any power over it. Ports below
 * 1024 can be bound by everybody in it.
 */
#pragma once

#include "base/def.h"

struct netns {
    int ns;      /* the namespace; owned */
    int tcp;     /* listening, IPv6 with IPv4 in it; owned */
    int dns_udp; /* bound, with IP_PKTINFO/IPV6_RECVPKTINFO left to its user; owned */
    int dns_tcp; /* listening; owned */
};

#define NETNS_NONE ((struct netns){-1, -1, -1, -1})

enum {
    NETNS_TCP_PORT = 61080,
    NETNS_DNS_PORT = 61053
}; /* inside, on all addresses; direct connections to them are refused */

/* The name server in /etc/resolv.conf inside. Any other address on port 53 works as well. */
#define NETNS_ADDRESS4 "10.200.0.2"
#define NETNS_ADDRESS6 "fd00:c0fe::2"
#define NETNS_DNS_ADDRESS "10.200.0.1"

/*
 * Makes one. The calling process moves into a new namespace for it and is left there: call it from a process of its own
 * (coved's netns maker). Needs CAP_SYS_ADMIN and CAP_NET_ADMIN. -EOPNOTSUPP: the kernel lacks nf_tables or a part of
 * it; -EAFNOSUPPORT: IPv6.
 */
int netns_make(struct netns *ret_net) WARN_UNUSED;
/* Of that, what is set in any new namespace, by a procfs of it; for one that has nothing but lo, too. */
int netns_apply_basic(int proc_fd) WARN_UNUSED;

/*
 * The same, by another procfs. In each procfs the kernel keeps the names of a namespace's settings for as long as that
 * namespace lives, all under the same hash: with 500 of them, looking up the dozen that are set took longer than all
 * else. Who makes many takes a new procfs (mount_new()) now and then.
 */
int netns_make_by(int proc_fd, struct netns *ret_net) WARN_UNUSED;

/*
 * The same for a network stack that is not the kernel's of its namespace, or no part of this kernel at all: a sentry, a
 * virtual machine. `ns` is where its interface is, NETNS_GATE_LINK with the addresses above, a route and a permanent
 * neighbour; the other end lies in a second namespace, the gate, with the sockets, and lives as long as they do.
 * Whatever comes out of the interface is captured or refused there. proc_fd: as above, or -1. netns_gate.c
 */
int netns_make_gate(int proc_fd, struct netns *ret_net) WARN_UNUSED;
int netns_make_gate_for_tap(int proc_fd, struct netns *ret_net) WARN_UNUSED;
#define NETNS_GATE_LINK "eth0"

/*
 * Kinds of network that one can make, and what `ns` is. NETNS_TAP: a gate alone, whose other end comes when it is
 * known: netns_gate_tap(). It goes to a machine of its own.
 */
enum netns_kind { NETNS_CAPTURED, NETNS_GATE, NETNS_TAP, NETNS_KINDS };

/*
 * For a stack that makes do with nothing but the interface: it goes into the network namespace of that process, bare,
 * and net->ns ends. The caller is left in `home`, its own namespace. There, whoever may do so gives it what it had, and
 * lo: netns_gate_settle().
 */
int netns_gate_move(struct netns *net, int home, pid_t pid) WARN_UNUSED;
int netns_gate_settle(void) WARN_UNUSED;

/*
 * The other end as a tap, for as long as its descriptor lives: whoever has that sends and receives frames, and has no
 * other right. tun_fd: /dev/net/tun, by O_PATH; proc_fd, home, net->ns: as above. Frames have no header of virtio's, so
 * that a machine's monitor can't hand the kernel segments that it made up.
 */
int netns_gate_tap(struct netns *net, int home, int proc_fd, int tun_fd, int *ret_fd) WARN_UNUSED;
#define NETNS_GATE_MAC "02:c0:fe:00:00:02"

/* What a machine's kernel is to be told over netlink (NETLINK_ROUTE) to have its side of that, where `link` is its
 * interface. At most `size` bytes; returns how many. */
size_t netns_gate_describe(int link, void *buf, size_t size);

void netns_close(struct netns *net);

/* The destination that the client of an accepted connection asked for, as a sockaddr (IPv4 never mapped). -ENOENT: it
 * came here directly. */
struct sockaddr_storage;
int netns_original(int fd, struct sockaddr_storage *ret_to) WARN_UNUSED;
