/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of registries to addresses, for a process that opens no files and starts no threads: /etc/hosts and
 * /etc/resolv.conf are read by resolve_new(), questions go over sockets of our own.
 */
#pragma once

#include "base/clock.h"
#include "base/err.h"
#include "policy/netaddr.h"

enum { RESOLVE_ADDRESSES_MAX = 16, RESOLVE_WAIT_MS = 15000 };

struct resolve;

int resolve_new(struct resolve **ret_resolve, struct err *err) WARN_UNUSED;
void resolve_free(struct resolve *r);
DEFINE_AUTO(struct resolve *, resolve_free)

/* name: normalised, or an address. Blocks until RESOLVE_WAIT_MS or `until` (monotonic). Fails with ERR_NOT_FOUND or
 * ERR_UNAVAILABLE. */
int resolve_name(struct resolve *r, const char *name, usec_t until,
                 struct netaddr ret_addrs[static RESOLVE_ADDRESSES_MAX], size_t *ret_n, struct err *err) WARN_UNUSED;
