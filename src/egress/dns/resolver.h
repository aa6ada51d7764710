/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names to addresses, for all sandboxes: by DNS servers of the host alone (its /etc/hosts and nsswitch.conf are its
 * own), over c-ares, with a small cache. Nothing here knows of policies: whoever asks has judged the name, and judges
 * the addresses.
 *
 *  1. fn is called from the loop, never from within resolver_resolve(), exactly once unless resolver_cancel() was
 *     first.
 *  2. Alike questions that are open are asked once. What upstream says, and even when it says nothing, is known within
 *     RESOLVER_WAIT_MS.
 *  3. Bounded: RESOLVER_OPEN_MAX questions upstream (beyond: -EAGAIN at once), RESOLVER_CACHE_MAX names kept. How many
 *     lookups a sandbox may have open is its caller's business, who asks resolver_room().
 */
#pragma once

#include "base/clock.h"
#include "base/err.h"
#include "policy/netaddr.h"

#include <uv.h>

enum {
    RESOLVER_OPEN_MAX = 1024,
    RESOLVER_CACHE_MAX = 4096, /* names by family; those used least lately go */
    RESOLVER_TTL_MIN_S = 5, /* also below what upstream says: a client and our dialling must see the same addresses */
    RESOLVER_TTL_MAX_S = 60,
    RESOLVER_NEGATIVE_S = 5,
    RESOLVER_TRY_MS = 2000, /* for one server to answer */
    RESOLVER_TRIES = 2,
    RESOLVER_WAIT_MS = 5000, /* for all of them */
};

struct resolver;
struct resolver_lookup;

struct resolver_answer {
    /* 0; -ENOENT: no such name; -ENODATA: it has no address of this family; -ETIMEDOUT; -ECONNREFUSED: no server there;
     * -EAGAIN: too much is open; -EPERM: never asked (localhost, not a name); -EPROTO: the servers fail, refuse, or
     * answer nonsense */
    int status;
    unsigned ttl_s;              /* RESOLVER_TTL_MIN_S to _MAX_S, less what it has been in the cache; at least 1 */
    const struct netaddr *addrs; /* of an AAAA record with ::ffff:a.b.c.d it is the IPv4 address */
    size_t n_addrs;              /* 0 unless status is 0 */
    const char *const *chain;    /* names behind it by CNAME, normalised, in order */
    size_t n_chain;
};
typedef void (*resolver_fn)(void *ctx, const struct resolver_answer *answer); /* borrowed during the call */

/* servers: "ADDRESS[:PORT][,...]", IPv6 in brackets; NULL: those of /etc/resolv.conf, read again when that changes. */
int resolver_new(uv_loop_t *loop, const char *servers, struct resolver **ret_resolver, struct err *err) WARN_UNUSED;

/* Open lookups end without a call, and their handles with them: let go of those before. Not from within fn. The loop
 * must run once more to free the handles. */
void resolver_free(struct resolver *r);

/* name: normalised; family: 4 or 6. What comes back lives until fn was called or until resolver_cancel(). */
struct resolver_lookup *resolver_resolve(struct resolver *r, const char *name, int family, resolver_fn fn, void *ctx);
void resolver_cancel(struct resolver_lookup *l);

/* How many lookups one sandbox should have open at the moment: a part of what is left for all, so that nobody takes it
 * from the others. */
size_t resolver_room(const struct resolver *r);

struct resolver_stats {
    uint64_t lookups, from_cache, asked, failed;
    size_t open, cached;
};
void resolver_stats(const struct resolver *r, struct resolver_stats *ret_stats);

void resolver_set_clock(struct resolver *r, usec_t (*now)(void)); /* for tests: what is used instead of clock_mono() */
