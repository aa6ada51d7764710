/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses and networks as text, and 16 bytes as an address: what was read can be written and read again, and a class
 * holds for all of a network. */
#include "policy/netaddr.h"

#include <arpa/inet.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_address(const struct netaddr *a)
{
    char text[NETADDR_TEXT_MAX];
    struct sockaddr_storage sa;
    struct netaddr again, inner[NETADDR_WRAPPED_MAX];
    struct netcidr alone = {*a, a->family == 4 ? 32 : 128}, nets;
    enum net_class class = netaddr_class(a);
    uint16_t port;

    netaddr_print(a, text);
    if (!netaddr_parse(str_of(text), &again) || !netaddr_eq(a, &again))
        abort();
    (void)netaddr_to_sockaddr(a, 7, &sa);
    if (!netaddr_from_sockaddr((const struct sockaddr *)&sa, &again, &port) || !netaddr_eq(a, &again) || port != 7)
        abort();
    if (netcidr_has_public(&alone) != (class == NET_PUBLIC))
        abort();
    for (size_t i = 0, n = netaddr_wrapped(a, inner); i < n; i++)
        if (netaddr_class(&inner[i]) != NET_PUBLIC && class == NET_PUBLIC)
            abort();
    for (unsigned bits = 0; bits < alone.bits; bits++) {
        netaddr_print(a, text);
        nets = alone;
        nets.bits = (uint8_t)bits;
        if (!netcidr_has(&nets, a))
            abort();
    }
}

static void check_network(const struct netcidr *c)
{
    char text[NETADDR_TEXT_MAX + 4];
    struct netcidr again;

    netcidr_print(c, text);
    if (!netcidr_parse(str_of(text), &again) || !netaddr_eq(&c->addr, &again.addr) || c->bits != again.bits)
        abort();
    if (!netcidr_has(c, &c->addr) || (netaddr_class(&c->addr) == NET_PUBLIC && !netcidr_has_public(c)))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = str_n(data, size);
    struct netaddr a = {.family = 6};
    struct netcidr c;

    if (netaddr_parse(text, &a)) {
        if (!netcidr_parse(text, &c) || !netaddr_eq(&a, &c.addr))
            abort();
        check_address(&a);
    }
    if (netcidr_parse(text, &c))
        check_network(&c);
    if (size >= sizeof(a.bytes)) {
        struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};

        memcpy(&in6.sin6_addr, data, sizeof(in6.sin6_addr));
        if (!netaddr_from_sockaddr((const struct sockaddr *)&in6, &a, NULL))
            abort();
        check_address(&a);
    }
    return 0;
}
