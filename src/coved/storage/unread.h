/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel keeps for processes that do not read it: answers of its routing protocol (NETLINK_ROUTE), for which it takes memory that no control group
 * counts. Nothing can be set to limit that, so who has much of it is found out, and ended, when the machine loses memory.
 */
#pragma once

#include "base/clock.h"

/*
 * Whoever reads his answers stays far below UNREAD_MOST: a socket holds 416 KiB, unless net.core.rmem_max says
 * otherwise.
 */
enum { UNREAD_MOST = 64 << 20, UNREAD_TEXT_MAX = 1 << 20 };

/*
 * The sum over all sockets of the network namespace that the process is in, from its net/netlink in proc_fd. -ENOBUFS: more than UNREAD_TEXT_MAX is to be read, which is some
 * 10,000 sockets. Costs about 20 us, and 10 ms for that many.
 */
int unread_bytes(int proc_fd, pid_t pid, uint64_t *ret_bytes) WARN_UNUSED;

/* When it is looked at: zeroed at first. */
struct unread_watch {
    uint64_t there; /* of the machine's memory, at the last call of unread_is_due() */
    uint64_t since; /* the same, when it was due last */
    usec_t at;      /* monotonic: when that was; 0: never */
};

/*
 * Called about once a second: whether it has to be looked at now. It has when the machine has lost 128 MiB since the last call; and when memory is short, after each 32 MiB and
 * every 5 s. While the machine is well nothing is read.
 */
bool unread_is_due(struct unread_watch *w, bool is_short, uint64_t there, usec_t now);
