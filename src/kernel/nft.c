/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/nft.h"
#include "kernel/netlink.h"

#include <libmnl/libmnl.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <netinet/tcp.h>

/* Registers of an expression's value; each is 16 bytes. */
enum { REG_VALUE = NFT_REG_1, REG_PORT = NFT_REG_2 };

static struct nlmsghdr *nft_add(struct netlink *nl, uint16_t type, uint16_t flags)
{
    const struct nfgenmsg header = {.nfgen_family = NFPROTO_INET, .version = NFNETLINK_V0};
    return netlink_add(nl, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), flags, &header, sizeof(header));
}

static void add_edge(struct netlink *nl, uint16_t type)
{
    const struct nfgenmsg header = {.version = NFNETLINK_V0, .res_id = htons(NFNL_SUBSYS_NFTABLES)};
    (void)netlink_add(nl, type, 0, &header, sizeof(header));
}

void nft_begin(struct netlink *nl, const char *table)
{
    nl->used = nl->n = 0;
    add_edge(nl, NFNL_MSG_BATCH_BEGIN);
    struct nlmsghdr *h = nft_add(nl, NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK);
    mnl_attr_put_strz(h, NFTA_TABLE_NAME, table);
}

void nft_add_chain(struct netlink *nl, const char *table, const struct nft_chain *chain)
{
    struct nlmsghdr *h = nft_add(nl, NFT_MSG_NEWCHAIN, NLM_F_CREATE | NLM_F_EXCL);
    mnl_attr_put_strz(h, NFTA_CHAIN_TABLE, table);
    mnl_attr_put_strz(h, NFTA_CHAIN_NAME, chain->name);
    struct nlattr *hook = mnl_attr_nest_start(h, NFTA_CHAIN_HOOK);
    mnl_attr_put_u32(h, NFTA_HOOK_HOOKNUM, htonl(chain->hook));
    mnl_attr_put_u32(h, NFTA_HOOK_PRIORITY, htonl((uint32_t)chain->priority));
    mnl_attr_nest_end(h, hook);
    mnl_attr_put_u32(h, NFTA_CHAIN_POLICY, htonl(chain->policy));
    mnl_attr_put_strz(h, NFTA_CHAIN_TYPE, chain->type);
}

/* What a kernel without one of the parts answers: the protocol, the subsystem, the family, the kind of chain, the
 * expression. */
int nft_commit(struct netlink *nl)
{
    add_edge(nl, NFNL_MSG_BATCH_END);
    int r = netlink_talk(nl, NETLINK_NETFILTER);
    bool lacks = r == -EPROTONOSUPPORT || r == -EAFNOSUPPORT || r == -EOPNOTSUPP || r == -ENOENT;
    return lacks ? -EOPNOTSUPP : r;
}

struct nft_rule nft_rule(struct netlink *nl, const char *table, const char *chain)
{
    struct nlmsghdr *h = nft_add(nl, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND);
    mnl_attr_put_strz(h, NFTA_RULE_TABLE, table);
    mnl_attr_put_strz(h, NFTA_RULE_CHAIN, chain);
    return (struct nft_rule){h, mnl_attr_nest_start(h, NFTA_RULE_EXPRESSIONS)};
}

void nft_rule_end(struct nft_rule *r)
{
    mnl_attr_nest_end(r->message, r->list);
}

struct expression {
    struct nlattr *element, *data;
};

static struct expression begin(struct nft_rule *r, const char *name)
{
    struct expression e = {.element = mnl_attr_nest_start(r->message, NFTA_LIST_ELEM)};
    mnl_attr_put_strz(r->message, NFTA_EXPR_NAME, name);
    e.data = mnl_attr_nest_start(r->message, NFTA_EXPR_DATA);
    return e;
}

static void end(struct nft_rule *r, struct expression *e)
{
    mnl_attr_nest_end(r->message, e->data);
    mnl_attr_nest_end(r->message, e->element);
}

static void put_u32(struct nft_rule *r, uint16_t attribute, uint32_t value)
{
    mnl_attr_put_u32(r->message, attribute, htonl(value));
}

static void put_value(struct nft_rule *r, uint16_t attribute, const void *bytes, size_t n)
{
    struct nlattr *nest = mnl_attr_nest_start(r->message, attribute);
    mnl_attr_put(r->message, NFTA_DATA_VALUE, n, bytes);
    mnl_attr_nest_end(r->message, nest);
}

static void nft_compare(struct nft_rule *r, uint32_t how, const void *bytes, size_t n)
{
    struct expression e = begin(r, "cmp");
    put_u32(r, NFTA_CMP_SREG, REG_VALUE);
    put_u32(r, NFTA_CMP_OP, how);
    put_value(r, NFTA_CMP_DATA, bytes, n);
    end(r, &e);
}

static void match_meta(struct nft_rule *r, uint32_t key, uint8_t value)
{
    struct expression e = begin(r, "meta");
    put_u32(r, NFTA_META_DREG, REG_VALUE);
    put_u32(r, NFTA_META_KEY, key);
    end(r, &e);
    nft_compare(r, NFT_CMP_EQ, &value, sizeof(value));
}

static void load_payload(struct nft_rule *r, uint32_t base, uint32_t offset, uint32_t n)
{
    struct expression e = begin(r, "payload");
    put_u32(r, NFTA_PAYLOAD_DREG, REG_VALUE);
    put_u32(r, NFTA_PAYLOAD_BASE, base);
    put_u32(r, NFTA_PAYLOAD_OFFSET, offset);
    put_u32(r, NFTA_PAYLOAD_LEN, n);
    end(r, &e);
}

/* Of the value that was loaded. */
static void any_bit(struct nft_rule *r, const void *mask, uint32_t n)
{
    static const char zero[sizeof(uint32_t)];
    struct expression e = begin(r, "bitwise");
    put_u32(r, NFTA_BITWISE_SREG, REG_VALUE);
    put_u32(r, NFTA_BITWISE_DREG, REG_VALUE);
    put_u32(r, NFTA_BITWISE_LEN, n);
    put_value(r, NFTA_BITWISE_MASK, mask, n);
    put_value(r, NFTA_BITWISE_XOR, zero, n);
    end(r, &e);
    nft_compare(r, NFT_CMP_NEQ, zero, n);
}

/* The kernel keeps these in its own byte order. */
static void match_ct(struct nft_rule *r, uint32_t key, uint32_t any_of)
{
    struct expression e = begin(r, "ct");
    put_u32(r, NFTA_CT_DREG, REG_VALUE);
    put_u32(r, NFTA_CT_KEY, key);
    end(r, &e);
    any_bit(r, &any_of, sizeof(any_of));
}

void nft_match_family(struct nft_rule *r, uint8_t nfproto)
{
    match_meta(r, NFT_META_NFPROTO, nfproto);
}

void nft_match_protocol(struct nft_rule *r, uint8_t l4proto)
{
    match_meta(r, NFT_META_L4PROTO, l4proto);
}

void nft_match_port(struct nft_rule *r, bool source, uint16_t port)
{
    uint16_t on_wire = htons(port);
    load_payload(r, NFT_PAYLOAD_TRANSPORT_HEADER, source ? 0 : 2, sizeof(on_wire));
    nft_compare(r, NFT_CMP_EQ, &on_wire, sizeof(on_wire));
}

void nft_match_tcp_reset(struct nft_rule *r)
{
    static const uint8_t reset = TH_RST;
    load_payload(r, NFT_PAYLOAD_TRANSPORT_HEADER, 13, sizeof(reset));
    any_bit(r, &reset, sizeof(reset));
}

void nft_match_header(struct nft_rule *r, uint32_t offset, const void *bytes, uint32_t n)
{
    load_payload(r, NFT_PAYLOAD_NETWORK_HEADER, offset, n);
    nft_compare(r, NFT_CMP_EQ, bytes, n);
}

void nft_match_ct_state(struct nft_rule *r, uint32_t any_of)
{
    match_ct(r, NFT_CT_STATE, any_of);
}

void nft_match_ct_status(struct nft_rule *r, uint32_t any_of)
{
    match_ct(r, NFT_CT_STATUS, any_of);
}

void nft_match_rate(struct nft_rule *r, uint32_t per_second, uint32_t burst)
{
    struct expression e = begin(r, "limit");
    mnl_attr_put_u64(r->message, NFTA_LIMIT_RATE, htobe64(per_second));
    mnl_attr_put_u64(r->message, NFTA_LIMIT_UNIT, htobe64(1));
    put_u32(r, NFTA_LIMIT_BURST, burst);
    put_u32(r, NFTA_LIMIT_TYPE, NFT_LIMIT_PKTS);
    end(r, &e);
}

void nft_verdict(struct nft_rule *r, uint32_t verdict)
{
    struct expression e = begin(r, "immediate");
    put_u32(r, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
    struct nlattr *data = mnl_attr_nest_start(r->message, NFTA_IMMEDIATE_DATA);
    struct nlattr *nest = mnl_attr_nest_start(r->message, NFTA_DATA_VERDICT);
    put_u32(r, NFTA_VERDICT_CODE, verdict);
    mnl_attr_nest_end(r->message, nest);
    mnl_attr_nest_end(r->message, data);
    end(r, &e);
}

void nft_notrack(struct nft_rule *r)
{
    struct expression e = begin(r, "notrack");
    end(r, &e);
}

static void nft_load(struct nft_rule *r, uint32_t reg, const void *bytes, size_t n)
{
    struct expression e = begin(r, "immediate");
    put_u32(r, NFTA_IMMEDIATE_DREG, reg);
    put_value(r, NFTA_IMMEDIATE_DATA, bytes, n);
    end(r, &e);
}

void nft_dnat(struct nft_rule *r, uint8_t nfproto, const void *address, uint16_t port)
{
    uint16_t on_wire = htons(port);
    nft_load(r, REG_VALUE, address, nfproto == NFPROTO_IPV4 ? sizeof(struct in_addr) : sizeof(struct in6_addr));
    nft_load(r, REG_PORT, &on_wire, sizeof(on_wire));
    struct expression e = begin(r, "nat");
    put_u32(r, NFTA_NAT_TYPE, NFT_NAT_DNAT);
    put_u32(r, NFTA_NAT_FAMILY, nfproto);
    put_u32(r, NFTA_NAT_REG_ADDR_MIN, REG_VALUE);
    put_u32(r, NFTA_NAT_REG_PROTO_MIN, REG_PORT);
    end(r, &e);
}

void nft_reject_tcp(struct nft_rule *r)
{
    struct expression e = begin(r, "reject");
    put_u32(r, NFTA_REJECT_TYPE, NFT_REJECT_TCP_RST);
    end(r, &e);
}

void nft_reject_unreachable(struct nft_rule *r)
{
    struct expression e = begin(r, "reject");
    put_u32(r, NFTA_REJECT_TYPE, NFT_REJECT_ICMPX_UNREACH);
    mnl_attr_put_u8(r->message, NFTA_REJECT_ICMP_CODE, NFT_REJECT_ICMPX_PORT_UNREACH);
    end(r, &e);
}
