/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the two ways in which connections are captured: netns.c (what a namespace itself sends), netns_gate.c (what
 * another stack sends into it). */
#pragma once

#include "kernel/netlink.h"
#include "kernel/netns.h"

#include <netinet/in.h>

#define NETNS_TABLE "cove"

enum { NETNS_LO = 1, NETNS_RATE = 2000, NETNS_BURST = 8192 }; /* new flows in a second, that are no more refused */
enum {
    NETNS_V4_SOURCE = 12,
    NETNS_V6_SOURCE = 8,
    NETNS_V4_DESTINATION = 16,
    NETNS_V6_DESTINATION = 24
}; /* in the IP header */

struct netns_addresses {
    struct in_addr v4;
    struct in6_addr v6;
};

struct netns_setting {
    const char *path;
    const char *value;
};

struct netns_addresses netns_addresses(const char *v4, const char *v6);
int netns_apply(int proc_fd, const struct netns_setting *settings, size_t n) WARN_UNUSED;
int netns_apply_conntrack(int proc_fd) WARN_UNUSED; /* once rules need it */
void netns_add_address(struct netlink *nl, int link, const struct netns_addresses *a, bool v6, uint8_t prefix);
/* Rules of chain "capture": TCP, and port 53, to our sockets at these addresses. */
void netns_add_captures(struct netlink *nl, const struct netns_addresses *to);
/* At the end of chain "filter": flows that were captured, up to the rate; all the rest is refused. */
void netns_add_refusals(struct netlink *nl);
int netns_open_sockets(struct netns *net) WARN_UNUSED;
