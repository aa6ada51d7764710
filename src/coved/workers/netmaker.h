/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The netns maker: a child of coved that does nothing but make network namespaces (kernel/netns.h), and the stock of
 * those that are nobody's yet. Making one takes half a millisecond and sometimes waits for the kernel; taking one from
 * the stock costs nothing.
 *
 * The child has an account of its own, two capabilities (CAP_SYS_ADMIN, CAP_NET_ADMIN), a network namespace without
 * anything and an allow-list of system calls that holds what this takes. It is told by one byte to make one, and
 * answers with an errno or four descriptors. When it dies, or says nothing for 10 s, there is a new one.
 */
#pragma once

#include "base/err.h"
#include "coved/loop.h"
#include "kernel/netns.h"

struct netmaker;

/*
 * Waits for the first one: whether it can be made here at all is known afterwards. `stock`: how many to keep ready.
 * Failure: nothing is running, and errnum says what the kernel lacks (-EOPNOTSUPP as netns_make() has it).
 */
int netmaker_start(struct coved_loop *loop, uid_t uid, enum netns_kind kind, size_t stock, struct netmaker **ret_maker,
                   struct err *err) WARN_UNUSED;
void netmaker_stop(struct netmaker *m);

/* 0; -EAGAIN: one will be ready after some turn of the loop; else why the last attempts failed. */
int netmaker_take(struct netmaker *m, struct netns *ret_net) WARN_UNUSED;

/* Once a turn: asks for what is missing, replaces a child that is gone. Returns when it wants to be called again. */
usec_t netmaker_tick(struct netmaker *m);
