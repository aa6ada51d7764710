/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DNS as one sandbox sees it: whatever server it asks, over UDP or TCP, it is us who answer. A and AAAA of names that
 * the policy allows are resolved; all the rest is answered here and never leaves the machine:
 *
 *   localhost, *.localhost                127.0.0.1, ::1
 *   in-addr.arpa, ip6.arpa                PTR: NXDOMAIN; nobody learns what is asked about which address
 *   HTTPS, SVCB                           no data, so that no key for encrypted ClientHellos comes in
 *   any other type (TXT, MX, ANY, ...)    REFUSED, told
 *   a name that the policy refuses        REFUSED, told
 *   all addresses filtered out            no data; told by resolved(), which filters them
 *
 * REFUSED and not NXDOMAIN: it is not said that there is no such name, and glibc gives up on it at once. musl would
 * wait for its own time-out (5 s): behind REFUSED there comes NXDOMAIN, for queries over UDP and without EDNS, as
 * musl's are.
 *
 * Every answer lives for DNS_SERVER_TTL_S: lookups are cached for all sandboxes together, and what is left of that time
 * would tell that another one asked.
 *
 * An answer comes from the address that was asked. The limits below hold for the sandbox as a whole; that one is
 * exceeded is told once each time.
 */
#pragma once

#include "egress/dns/resolver.h"
#include "policy/policy.h"

enum {
    DNS_SERVER_TTL_S = 5,
    DNS_SERVER_OPEN_MAX = 64,    /* lookups under way; beyond: REFUSED */
    DNS_SERVER_RATE = 100,       /* queries a second; beyond: REFUSED */
    DNS_SERVER_BURST = 200,      /* that may come at once */
    DNS_SERVER_READ_RATE = 2000, /* messages a second that are looked at; the rest waits, or is dropped by the kernel */
    DNS_SERVER_TCP_MAX = 16,     /* connections; more are closed at once */
    DNS_SERVER_TCP_IDLE_MS = 10000,
    /*
     * Distinct names asked upstream below one rule in a minute, new ones in each minute: what a tunnel through names
     * needs many of. 300 names of 200 bytes are 1 KiB a second. Not judged: how long or how random names are, because
     * those of caches and of storage services are both.
     */
    DNS_SERVER_NAMES_MAX = 300,
    DNS_SERVER_NAMES_ALL_MAX = 2048, /* below all rules together: memory */
};

struct dns_server;

struct dns_server_ops {
    /* May this name (normalised) be resolved? Fills *ret_answer either way. */
    bool (*may)(void *ctx, const char *name, struct policy_answer *ret_answer);
    /* It has these addresses: removes those that must not be reached, and returns how many are left in front. They are
     * what the sandbox will see. */
    size_t (*resolved)(void *ctx, const char *name, struct netaddr *addrs, size_t n, unsigned ttl_s);
    /* Refused. name: normalised, or as \DDD text when it is no host's name; type: "A", "TXT", ... Called for each
     * refusal by policy, and once for each limit. */
    void (*refused)(void *ctx, const char *name, const char *type, const struct policy_answer *why);
    /* The policy allows it, but there is no such name, or the servers fail. */
    void (*failed)(void *ctx, const char *name, const char *why);
};

/* Takes both descriptors, whatever it returns; they are those of struct netns. ops and ctx must outlive it. No callback
 * comes from within a call. */
int dns_server_new(uv_loop_t *loop, struct resolver *resolver, int udp_fd, int tcp_fd, const struct dns_server_ops *ops,
                   void *ctx, struct dns_server **ret_server) WARN_UNUSED;

/*
 * Counts a name (normalised) that the sandbox makes us resolve by other means than a query, as if it had been queried.
 * rule: the one that allows it. False: it is one too many; *ret_answer, which must be a denial already, gets the
 * reason.
 */
bool dns_server_may_ask(struct dns_server *s, int rule, const char *name, struct policy_answer *ret_answer);

/* Closes the descriptors and all connections. The loop must run once more to free the handles. Not from within a
 * callback. */
void dns_server_free(struct dns_server *s);
