/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Just enough of nftables to write one ruleset: a batch, which takes effect as a whole or not at all, of one table of
 * family inet, its chains and their rules. A rule is what it matches, in order, and what becomes of a packet that
 * matched all.
 */
#pragma once

#include "base/def.h"

#include <arpa/inet.h> /* before the kernel's own declarations of the same */
#include <linux/netfilter.h>

struct netlink;
struct nlattr;
struct nlmsghdr;

struct nft_chain {
    const char *name;
    const char *type; /* "filter" or "nat" */
    uint32_t hook;    /* NF_INET_... */
    int32_t priority;
    uint32_t policy; /* NF_ACCEPT or NF_DROP */
};

struct nft_rule {
    struct nlmsghdr *message;
    struct nlattr *list;
};

void nft_begin(struct netlink *nl, const char *table);
void nft_add_chain(struct netlink *nl, const char *table, const struct nft_chain *chain);
int nft_commit(struct netlink *nl) WARN_UNUSED; /* -EOPNOTSUPP: the kernel lacks a required feature */

/* One rule at the end of a chain: nft_rule(), then matches and a verdict, then nft_rule_end(). */
struct nft_rule nft_rule(struct netlink *nl, const char *table, const char *chain);
void nft_rule_end(struct nft_rule *r);

void nft_match_family(struct nft_rule *r, uint8_t nfproto); /* NFPROTO_IPV4 or NFPROTO_IPV6 */
void nft_match_protocol(struct nft_rule *r, uint8_t l4proto);
void nft_match_port(struct nft_rule *r, bool source, uint16_t port); /* of TCP or UDP: match the protocol first */
void nft_match_tcp_reset(struct nft_rule *r);
/* n bytes of the IP header, from this offset: match the family first. */
void nft_match_header(struct nft_rule *r, uint32_t offset, const void *bytes, uint32_t n);
void nft_match_ct_state(struct nft_rule *r, uint32_t any_of); /* NF_CT_STATE_BIT()s */
void nft_match_ct_status(struct nft_rule *r, uint32_t any_of);
void nft_match_rate(struct nft_rule *r, uint32_t per_second, uint32_t burst); /* as long as there are no more */

void nft_verdict(struct nft_rule *r, uint32_t verdict);
void nft_notrack(struct nft_rule *r);
void nft_dnat(struct nft_rule *r, uint8_t nfproto, const void *address, uint16_t port);
void nft_reject_tcp(struct nft_rule *r);         /* with a reset */
void nft_reject_unreachable(struct nft_rule *r); /* with "port unreachable" of either family */
