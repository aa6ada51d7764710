/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/netaddr.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

static const uint8_t mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

static struct netaddr of_v4(const void *bytes)
{
    struct netaddr a = {.family = 4};
    memcpy(a.bytes, bytes, 4);
    return a;
}

/* Keeps ::ffff:a.b.c.d as what it was written as. */
static struct netaddr of_v6(const void *bytes)
{
    struct netaddr a = {.family = 6};
    memcpy(a.bytes, bytes, 16);
    return a;
}

static bool is_mapped(const struct netaddr *a)
{
    return a->family == 6 && memcmp(a->bytes, mapped_prefix, sizeof(mapped_prefix)) == 0;
}

static struct netaddr unmapped(struct netaddr a)
{
    return is_mapped(&a) ? of_v4(a.bytes + sizeof(mapped_prefix)) : a;
}

/* inet_pton() of the C library is as strict as we want to be; it only needs its text terminated. */
static bool parse_as_written(struct str text, struct netaddr *ret_addr)
{
    char copy[NETADDR_TEXT_MAX];
    uint8_t bytes[16];
    if (text.n == 0 || text.n >= sizeof(copy) || str_has_nul(text))
        return false;
    memcpy(copy, text.p, text.n);
    copy[text.n] = '\0';
    if (inet_pton(AF_INET, copy, bytes) == 1)
        *ret_addr = of_v4(bytes);
    else if (inet_pton(AF_INET6, copy, bytes) == 1)
        *ret_addr = of_v6(bytes);
    else
        return false;
    return true;
}

bool netaddr_parse(struct str text, struct netaddr *ret_addr)
{
    struct netaddr a;
    if (!parse_as_written(text, &a))
        return false;
    *ret_addr = unmapped(a);
    return true;
}

bool netaddr_from_sockaddr(const struct sockaddr *sa, struct netaddr *ret_addr, uint16_t *ret_port)
{
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    uint16_t port;
    if (sa->sa_family == AF_INET) {
        memcpy(&in, sa, sizeof(in));
        *ret_addr = of_v4(&in.sin_addr);
        port = in.sin_port;
    } else if (sa->sa_family == AF_INET6) {
        memcpy(&in6, sa, sizeof(in6));
        *ret_addr = unmapped(of_v6(&in6.sin6_addr));
        port = in6.sin6_port;
    } else {
        return false;
    }
    if (ret_port)
        *ret_port = ntohs(port);
    return true;
}

int netaddr_own(struct netaddr **ret_all, size_t *ret_n)
{
    struct ifaddrs *list;
    struct netaddr *all = NULL, a;
    size_t n = 0;
    if (getifaddrs(&list) < 0)
        return -errno;
    for (struct ifaddrs *i = list; i; i = i->ifa_next) {
        if (!i->ifa_addr || !netaddr_from_sockaddr(i->ifa_addr, &a, NULL))
            continue;
        all = mem_realloc(all, (n + 1) * sizeof(*all));
        all[n++] = a;
    }
    freeifaddrs(list);
    *ret_all = all;
    *ret_n = n;
    return 0;
}

size_t netaddr_to_sockaddr(const struct netaddr *a, uint16_t port, struct sockaddr_storage *ret_sa)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    assert(a->family == 4 || a->family == 6);
    memset(ret_sa, 0, sizeof(*ret_sa));
    if (a->family == 4) {
        memcpy(&in.sin_addr, a->bytes, 4);
        memcpy(ret_sa, &in, sizeof(in));
        return sizeof(in);
    }
    memcpy(&in6.sin6_addr, a->bytes, 16);
    memcpy(ret_sa, &in6, sizeof(in6));
    return sizeof(in6);
}

void netaddr_print(const struct netaddr *a, char ret_text[static NETADDR_TEXT_MAX])
{
    static_assert(NETADDR_TEXT_MAX >= INET6_ADDRSTRLEN, "room for every address");
    if (a->family == 0)
        memcpy(ret_text, "none", sizeof("none"));
    else
        inet_ntop(a->family == 4 ? AF_INET : AF_INET6, a->bytes, ret_text, NETADDR_TEXT_MAX);
}

bool netaddr_eq(const struct netaddr *a, const struct netaddr *b)
{
    return a->family == b->family && memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

static unsigned width(const struct netaddr *a)
{
    return a->family == 4 ? 32 : 128;
}

static void clear_host_bits(struct netcidr *c)
{
    for (unsigned i = c->bits; i < width(&c->addr); i++)
        c->addr.bytes[i / 8] &= (uint8_t) ~(0x80 >> i % 8);
}

/* Decimal, without leading zeros, so that there is one way to write it. */
static bool parse_bits(struct str text, unsigned max, uint8_t *ret_bits)
{
    uint64_t value;
    if (text.n > 3 || (text.n > 1 && text.p[0] == '0') || str_to_u64(text, &value) < 0 || value > max)
        return false;
    *ret_bits = (uint8_t)value;
    return true;
}

bool netcidr_parse(struct str text, struct netcidr *ret_cidr)
{
    struct netcidr c = {0};
    ssize_t slash = str_find_char(text, '/');
    if (!parse_as_written(slash < 0 ? text : str_n(text.p, (size_t)slash), &c.addr))
        return false;
    c.bits = (uint8_t)width(&c.addr);
    if (slash >= 0 && !parse_bits(str_sub(text, (size_t)slash + 1), c.bits, &c.bits))
        return false;
    if (is_mapped(&c.addr) && c.bits >= 96) {
        c.addr = unmapped(c.addr);
        c.bits = (uint8_t)(c.bits - 96);
    }
    clear_host_bits(&c);
    *ret_cidr = c;
    return true;
}

bool netcidr_has(const struct netcidr *c, const struct netaddr *a)
{
    size_t whole = c->bits / 8;
    unsigned rest = c->bits % 8;
    if (c->addr.family != a->family || c->addr.family == 0 || memcmp(c->addr.bytes, a->bytes, whole) != 0)
        return false;
    return rest == 0 || (c->addr.bytes[whole] ^ a->bytes[whole]) >> (8 - rest) == 0;
}

void netcidr_print(const struct netcidr *c, char ret_text[static NETADDR_TEXT_MAX + 4])
{
    netaddr_print(&c->addr, ret_text);
    if (c->addr.family != 0 && c->bits != width(&c->addr)) {
        size_t n = strlen(ret_text);
        snprintf(ret_text + n, NETADDR_TEXT_MAX + 4 - n, "/%u", (unsigned)c->bits);
    }
}
