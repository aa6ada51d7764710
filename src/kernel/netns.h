/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A network namespace that leads nowhere but to us: every route goes to lo, TCP is redirected to one listening socket (which can ask for the
 * original destination), DNS to two others, and all else is refused at once. IPv4 and IPv6. What connects to 127.0.0.0/8 and ::1 stays inside.
 *
 * The namespace belongs to the host's user namespace: no capability inside a sandbox has any power over it. Ports below 1024 can be bound by everybody in it.
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
}; /* inside, on all addresses; who asks for them directly is refused */

/* What a resolver inside is told to ask: /etc/resolv.conf says "nameserver NETNS_DNS_ADDRESS". Any other address on port 53 works as well. */
#define NETNS_ADDRESS4 "10.200.0.2"
#define NETNS_ADDRESS6 "fd00:c0fe::2"
#define NETNS_DNS_ADDRESS "10.200.0.1"

/*
 * Makes one. The calling process moves into a new namespace for it and is left there: call it from a process of its own (coved's netns maker). Needs
 * CAP_SYS_ADMIN and CAP_NET_ADMIN. -EOPNOTSUPP: the kernel lacks nf_tables or a part of it; -EAFNOSUPPORT: IPv6.
 */
int netns_make(struct netns *ret_net) WARN_UNUSED;
void netns_close(struct netns *net);

/* The destination that the client of an accepted connection asked for, as a sockaddr (IPv4 never mapped). -ENOENT: it came here directly. */
struct sockaddr_storage;
int netns_original(int fd, struct sockaddr_storage *ret_to) WARN_UNUSED;
