/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one sandbox was told in DNS: from an address to the names that it was resolved from, so that a connection to an
 * address can be held against the name that it claims. Bounded: the addresses and the names that were not used for
 * longest go first. A name is kept NAMES_KEPT_S longer than its answer lives, for clients that are late.
 */
#pragma once

#include "base/clock.h"
#include "policy/hostname.h"
#include "policy/netaddr.h"

enum { NAMES_ADDRESSES_MAX = 4096, NAMES_PER_ADDRESS_MAX = 8, NAMES_KEPT_S = 60, NAMES_TTL_MAX_S = 24 * 3600 };

struct names;

struct names *names_new(void);
void names_free(struct names *m); /* NULL is fine */

/* addr was answered for name (normalised) and may be used for ttl seconds, at most NAMES_TTL_MAX_S. */
void names_add(struct names *m, const struct netaddr *addr, const char *name, uint32_t ttl_s);

bool names_has(struct names *m, const struct netaddr *addr, const char *name);

/* Calls fn for each, the one that was answered last first, until it returns false. The map must not change
 * meanwhile. */
void names_each_of(struct names *m, const struct netaddr *addr, bool (*fn)(void *ctx, const char *name), void *ctx);

/* For tests: how many addresses, also expired ones that nobody asked for; and another clock than clock_mono(). */
size_t names_count(const struct names *m);
void names_set_clock(struct names *m, usec_t (*clock)(void));
