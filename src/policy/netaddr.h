/* SPDX-License-Identifier: Apache-2.0 */
/* IP addresses and networks as values. An IPv4-mapped IPv6 address (::ffff:a.b.c.d) is the IPv4 address. */
#pragma once

#include "base/str.h"

struct sockaddr;
struct sockaddr_storage;

enum { NETADDR_TEXT_MAX = 46, NETADDR_WRAPPED_MAX = 4 };

struct netaddr {
    uint8_t family;    /* 4 or 6; 0: none */
    uint8_t bytes[16]; /* network order; the first 4 of an IPv4 address, the rest zero */
};

struct netcidr {
    struct netaddr addr; /* host bits zero */
    uint8_t bits;
};

/* Where an address leads. Everything but NET_PUBLIC is refused unless a rule names it. */
enum net_class {
    NET_PUBLIC,
    NET_UNSPECIFIED, /* 0.0.0.0/8, :: */
    NET_LOOPBACK,
    NET_PRIVATE,    /* RFC 1918, fc00::/7 */
    NET_LINK_LOCAL, /* also fec0::/10 */
    NET_SHARED,     /* 100.64.0.0/10 */
    NET_METADATA, /* where clouds tell machines about themselves: 169.254.169.254 and its like, inside and outside of link-local */
    NET_MULTICAST, /* and broadcast */
    NET_RESERVED,  /* documentation, benchmarking, 240.0.0.0/4, discard-only, ... */
    NET_HOST,      /* this machine's own; only netaddr's user can know, netaddr_class() never says it */
};

const char *net_class_name(enum net_class c);

/* Strict: four decimal numbers without leading zeros, or RFC 4291 text without zone or brackets. No shorthand that
 * inet_aton() would guess. */
bool netaddr_parse(struct str text, struct netaddr *ret_addr);
/* False: neither IPv4 nor IPv6. ret_port may be NULL. */
bool netaddr_from_sockaddr(const struct sockaddr *sa, struct netaddr *ret_addr, uint16_t *ret_port);
/* This machine's own, in a new array. -errno. */
int netaddr_own(struct netaddr **ret_all, size_t *ret_n) WARN_UNUSED;
size_t netaddr_to_sockaddr(const struct netaddr *a, uint16_t port, struct sockaddr_storage *ret_sa); /* its length */
void netaddr_print(const struct netaddr *a, char ret_text[static NETADDR_TEXT_MAX]);
bool netaddr_eq(const struct netaddr *a, const struct netaddr *b);

/*
 * Looks through what only wraps another address: 6to4 (2002::/16), NAT64 (64:ff9b::/96 and 64:ff9b:1::/48),
 * IPv4-compatible (::a.b.c.d) and Teredo (2001::/32): the class is the worse one of both.
 */
enum net_class netaddr_class(const struct netaddr *a);

/* The IPv4 addresses that it wraps in one of these ways, or may wrap (64:ff9b:1::/48 does not say where); how many
 * there are. */
size_t netaddr_wrapped(const struct netaddr *a, struct netaddr ret_inner[static NETADDR_WRAPPED_MAX]);

/* "10.0.0.0/8", "2001:db8::/32", or a single address. Host bits that are set are cleared. ::ffff:0:0/96 and longer
 * become IPv4. */
bool netcidr_parse(struct str text, struct netcidr *ret_cidr);
bool netcidr_has(const struct netcidr *c, const struct netaddr *a);
bool netcidr_has_public(const struct netcidr *c); /* is there an address in it that is NET_PUBLIC? */
void netcidr_print(const struct netcidr *c, char ret_text[static NETADDR_TEXT_MAX + 4]);
