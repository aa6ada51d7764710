/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The special purposes of addresses, after IANA's two registries (RFC 6890) with these differences: blocks of protocol
 * assignments (192.0.0.0/24, 2001::/23) are reserved as a whole, the few global addresses in them included; forms that
 * nothing uses any more (6to4, Teredo, IPv4-compatible, the 6to4 relay) are reserved, whatever they wrap; of IPv6, only
 * 2000::/3 is public.
 */
#include "policy/netaddr.h"

struct special {
    struct netcidr net;
    enum net_class class;
};

static const struct netcidr nat64 = {{6, {0x00, 0x64, 0xff, 0x9b}}, 96};

/* Only as many bytes of the prefix are given as it has. */
#define V4(class, bits, ...)                                                                                           \
    {                                                                                                                  \
        {{4, {__VA_ARGS__}}, (bits)}, (class)                                                                          \
    }
#define V6(class, bits, ...)                                                                                           \
    {                                                                                                                  \
        {{6, {__VA_ARGS__}}, (bits)}, (class)                                                                          \
    }

/* The first that has an address decides. */
static const struct special specials[] = {
    V4(NET_METADATA, 32, 169, 254, 169, 254), /* most clouds */
    V4(NET_METADATA, 32, 169, 254, 170, 2),   /* AWS: credentials of tasks */
    V4(NET_METADATA, 32, 169, 254, 170, 23),  /* AWS: credentials of pods */
    V4(NET_METADATA, 32, 100, 100, 100, 200), /* Alibaba */
    V4(NET_METADATA, 32, 168, 63, 129, 16),   /* Azure */
    V4(NET_METADATA, 32, 192, 0, 0, 192),     /* Oracle */
    V4(NET_UNSPECIFIED, 8, 0),
    V4(NET_PRIVATE, 8, 10),
    V4(NET_SHARED, 10, 100, 64),
    V4(NET_LOOPBACK, 8, 127),
    V4(NET_LINK_LOCAL, 16, 169, 254),
    V4(NET_PRIVATE, 12, 172, 16),
    V4(NET_RESERVED, 24, 192, 0, 0),   /* protocol assignments */
    V4(NET_RESERVED, 24, 192, 0, 2),   /* documentation */
    V4(NET_RESERVED, 24, 192, 88, 99), /* 6to4 relays */
    V4(NET_PRIVATE, 16, 192, 168),
    V4(NET_RESERVED, 15, 198, 18),      /* benchmarking */
    V4(NET_RESERVED, 24, 198, 51, 100), /* documentation */
    V4(NET_RESERVED, 24, 203, 0, 113),  /* documentation */
    V4(NET_MULTICAST, 4, 224),
    V4(NET_MULTICAST, 32, 255, 255, 255, 255),
    V4(NET_RESERVED, 4, 240),
    V6(NET_METADATA, 32, 0xfd, 0x00, 0x0e, 0xc2), /* AWS: fd00:ec2::254 and more */
    V6(NET_METADATA, 128, 0xfd, 0x20, 0x00, 0xce, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x02, 0x54), /* Google */
    V6(NET_UNSPECIFIED, 128, 0),
    V6(NET_LOOPBACK, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1),
    V6(NET_PUBLIC, 96, 0x00, 0x64, 0xff, 0x9b),   /* NAT64: what it wraps decides */
    V6(NET_RESERVED, 23, 0x20, 0x01),             /* protocol assignments, Teredo */
    V6(NET_RESERVED, 32, 0x20, 0x01, 0x0d, 0xb8), /* documentation */
    V6(NET_RESERVED, 16, 0x20, 0x02),             /* 6to4 */
    V6(NET_RESERVED, 20, 0x3f, 0xff),             /* documentation */
    V6(NET_PUBLIC, 3, 0x20),
    V6(NET_PRIVATE, 7, 0xfc),
    V6(NET_LINK_LOCAL, 10, 0xfe, 0x80),
    V6(NET_LINK_LOCAL, 10, 0xfe, 0xc0), /* site-local, RFC 3879 */
    V6(NET_MULTICAST, 8, 0xff),
    V6(NET_RESERVED, 0, 0),
};

const char *net_class_name(enum net_class c)
{
    static const char *const names[] = {
        [NET_PUBLIC] = "public",           [NET_UNSPECIFIED] = "unspecified", [NET_LOOPBACK] = "loopback",
        [NET_PRIVATE] = "private",         [NET_LINK_LOCAL] = "link-local",   [NET_SHARED] = "shared",
        [NET_METADATA] = "metadata",       [NET_MULTICAST] = "multicast",     [NET_RESERVED] = "reserved",
        [NET_HOST] = "this machine's own",
    };
    assert((size_t)c < ARRAY_SIZE(names));
    return names[c];
}

static enum net_class class_of_itself(const struct netaddr *a)
{
    for (size_t i = 0; i < ARRAY_SIZE(specials); i++)
        if (netcidr_has(&specials[i].net, a))
            return specials[i].class;
    return a->family == 4 ? NET_PUBLIC : NET_RESERVED;
}

/* What is worse to reach by mistake, for addresses that are two things at once. */
static enum net_class worse(enum net_class a, enum net_class b)
{
    static const uint8_t rank[] = {
        [NET_PUBLIC] = 0,  [NET_RESERVED] = 1,   [NET_MULTICAST] = 2, [NET_UNSPECIFIED] = 3, [NET_SHARED] = 4,
        [NET_PRIVATE] = 5, [NET_LINK_LOCAL] = 6, [NET_LOOPBACK] = 7,  [NET_METADATA] = 8,    [NET_HOST] = 9,
    };
    return rank[a] >= rank[b] ? a : b;
}

enum net_class netaddr_class(const struct netaddr *a)
{
    struct netaddr inner[NETADDR_WRAPPED_MAX];
    enum net_class class = class_of_itself(a);
    for (size_t i = 0, n = netaddr_wrapped(a, inner); i < n; i++)
        class = worse(class, class_of_itself(&inner[i]));
    return class;
}

static struct netaddr v4_at(const uint8_t *bytes, uint8_t flip)
{
    struct netaddr a = {.family = 4};
    for (size_t i = 0; i < 4; i++)
        a.bytes[i] = bytes[i] ^ flip;
    return a;
}

size_t netaddr_wrapped(const struct netaddr *a, struct netaddr ret_inner[static NETADDR_WRAPPED_MAX])
{
    static const struct netcidr compatible = {{6, {0}}, 96}, six_to_four = {{6, {0x20, 0x02}}, 16},
                                teredo = {{6, {0x20, 0x01, 0, 0}}, 32},
                                nat64_local = {{6, {0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}}, 48};
    const uint8_t *b = a->bytes;
    if (netcidr_has(&compatible, a) || netcidr_has(&nat64, a)) {
        ret_inner[0] = v4_at(b + 12, 0);
        return 1;
    }
    if (netcidr_has(&six_to_four, a)) {
        ret_inner[0] = v4_at(b + 2, 0);
        return 1;
    }
    if (netcidr_has(&teredo, a)) { /* its server, and itself with all bits turned over (RFC 4380) */
        ret_inner[0] = v4_at(b + 4, 0);
        ret_inner[1] = v4_at(b + 12, 0xff);
        return 2;
    }
    if (netcidr_has(&nat64_local, a)) {
        /* Where RFC 6052 puts it below prefixes of 48, 56, 64 and 96 bits; byte 8 stays free. */
        const uint8_t at48[4] = {b[6], b[7], b[9], b[10]}, at56[4] = {b[7], b[9], b[10], b[11]};
        ret_inner[0] = v4_at(at48, 0);
        ret_inner[1] = v4_at(at56, 0);
        ret_inner[2] = v4_at(b + 9, 0);
        ret_inner[3] = v4_at(b + 12, 0);
        return 4;
    }
    return 0;
}

static bool has_special_inside(const struct netcidr *c)
{
    for (size_t i = 0; i < ARRAY_SIZE(specials); i++)
        if (specials[i].net.bits > c->bits && netcidr_has(c, &specials[i].net.addr))
            return true;
    return false;
}

/* Halves the network until each part lies in one class; only halves that a special range begins in are halved again. */
bool netcidr_has_public(const struct netcidr *c)
{
    struct netcidr low = *c, high = *c;
    if (c->addr.family == 0)
        return false;
    if (c->bits >= nat64.bits && netcidr_has(&nat64, &c->addr)) {
        struct netcidr inner = {v4_at(c->addr.bytes + 12, 0), (uint8_t)(c->bits - nat64.bits)};
        return netcidr_has_public(&inner);
    }
    if (!has_special_inside(c))
        return netaddr_class(&c->addr) == NET_PUBLIC;
    low.bits++;
    high.bits++;
    high.addr.bytes[c->bits / 8] |= (uint8_t)(0x80 >> c->bits % 8);
    return netcidr_has_public(&low) || netcidr_has_public(&high);
}
