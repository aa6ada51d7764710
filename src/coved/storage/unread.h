/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel keeps for processes in memory that no control group counts: answers of its routing protocol
 * (NETLINK_ROUTE) that nobody reads; connections that nobody has accepted, with what they were sent; locks of files.
 * Nothing can be set to limit that, so who has much of it is found out, and ended, when the machine loses memory.
 *
 * The same of what all sockets of the machine have one limit for, however well it is counted: memory of TCP and of UDP,
 * and connections that no program has any more and that are not over. Beyond it, nobody's datagrams arrive, and what
 * anybody closes is cut.
 */
#pragma once

#include "base/clock.h"

/*
 * Whoever reads his answers stays far below UNREAD_MOST: a socket holds 416 KiB, unless net.core.rmem_max says
 * otherwise.
 */
enum { UNREAD_MOST = 64 << 20, UNREAD_TEXT_MAX = 1 << 20 };

/*
 * What can be told by counts, which the kernel keeps by network namespace. The tables below are the machine's: the
 * kernel looks through all of them for what is of one namespace, a millisecond of processor time for each table of TCP.
 */
struct unread_bounds {
    uint64_t netlink_socket; /* bytes that one can hold */
    uint64_t tcp;            /* bytes that all connections of the machine hold */
    uint64_t orphans;        /* connections that no program has, of one network namespace: a sixteenth of the limit */
};
void unread_bounds_read(int proc_fd, struct unread_bounds *ret_bounds);

/*
 * Whether it may be more than half of UNREAD_MOST, of which each of so many networks has its part; also where that
 * can't be told. Costs about 20 us.
 */
struct unread_may {
    bool netlink, tcp;
} unread_may(int proc_fd, pid_t pid, size_t n_networks, const struct unread_bounds *bounds);

/*
 * The sum over all sockets of the network namespace that the process is in, from its net/netlink in proc_fd. -ENOBUFS:
 * more than UNREAD_TEXT_MAX is to be read, which is some 10,000 sockets. Costs 10 ms for that many.
 */
int unread_bytes(int proc_fd, pid_t pid, uint64_t *ret_bytes) WARN_UNUSED;

/*
 * The same of its TCP connections that no program has: the sockets and what has come for them, and how many were closed
 * and are not over. Costs a second for a million. What is beyond UNREAD_MOST is not counted.
 */
struct unread_connections {
    uint64_t bytes, orphans;
};
int unread_connections(int proc_fd, pid_t pid, struct unread_connections *ret_sum) WARN_UNUSED;

/* Of the whole machine, as the kernel sees it. */
struct unread_pools {
    bool are_buffers_short; /* TCP or UDP holds half of what is called low */
    bool are_orphans_many;  /* an eighth of the limit */
};
struct unread_pools unread_pools(int proc_fd);

/*
 * Of a process, "" when it can't be told: as in its cgroup file, of version 1's "memory" or of version 2. A name that
 * is longer is cut.
 */
enum { UNREAD_GROUP_MAX = 256 };
void unread_group(int proc_fd, pid_t pid, char ret_path[static UNREAD_GROUP_MAX]);

/* The same of the device of its root file system, as /proc/locks writes it: "00:2f". */
void unread_device(int proc_fd, pid_t pid, char ret_path[static UNREAD_GROUP_MAX]);

/*
 * Locks of files: whether all of the machine's take more than UNREAD_MOST, and whose more than half of those are that
 * the kernel names first: the group of their processes, or the device of their files where they are of open files
 * (OFD), which the kernel names no process for. Costs 0.1 ms, and up to 40 ms where there are so many.
 */
bool unread_locks(int proc_fd, char ret_path[static UNREAD_GROUP_MAX]);

/* When it is looked at: zeroed at first. */
struct unread_watch {
    uint64_t most; /* that the machine had of memory, since it was due last */
    usec_t at;     /* monotonic: when that was; 0: never */
};

/*
 * is_short: of memory, or of what TCP may have of it. there: what the machine has, in bytes.
 * Called about once a second: whether it has to be looked at now, which is after each 128 MiB that the machine has
 * lost, however slowly; and when memory is short, after each 32 MiB and every 5 s.
 */
bool unread_is_due(struct unread_watch *w, bool is_short, uint64_t there, usec_t now);
