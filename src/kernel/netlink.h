/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to the kernel over netlink, as many as fit in one datagram. What is asked for is of our making and of a
 * known size: a buffer that is too small for it is a bug and aborts.
 */
#pragma once

#include "base/def.h"

enum { NETLINK_BYTES = 32 * 1024 };

struct nlmsghdr;

struct netlink {
    size_t used;
    uint32_t n; /* messages */
    _Alignas(8) char bytes[NETLINK_BYTES];
};

/* Appends a message with its family's own header in front of the attributes, which the caller adds with libmnl before
 * the next one. */
struct nlmsghdr *netlink_add(struct netlink *nl, uint16_t type, uint16_t flags, const void *header, size_t header_size);

/* `used` counts the last message, too; nothing is added after that. For who sends the bytes elsewhere. */
void netlink_settle(struct netlink *nl);

/* To this bus, in the network namespace we are in. 0 when all that asked for an acknowledgement (at least one) got it,
 * else the first error. */
int netlink_talk(struct netlink *nl, int bus) WARN_UNUSED;
