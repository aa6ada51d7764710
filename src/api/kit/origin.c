/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/origin.h"
#include "policy/netaddr.h"

/* "name:80", "[::1]:80": without the port, in brackets or not. */
static struct str origin_host(struct str authority)
{
    ssize_t end = authority.n && authority.p[0] == '[' ? str_find_char(authority, ']') : str_find_char(authority, ':');
    if (authority.n && authority.p[0] == '[')
        return end < 0 ? STR_NULL : str_n(authority.p + 1, (size_t)end - 1);
    return end < 0 ? authority : str_n(authority.p, (size_t)end);
}

static bool origin_parse_addr(struct str host, struct netaddr *ret)
{
    return host.n && host.n < 64 && netaddr_parse(host, ret);
}

static bool origin_is_loopback(struct str host)
{
    struct netaddr addr;
    if (origin_parse_addr(host, &addr))
        return netaddr_class(&addr) == NET_LOOPBACK;
    return str_eq_nocase(host, STR("localhost")) ||
           (host.n > 10 && str_eq_nocase(str_sub(host, host.n - 10), STR(".localhost")));
}

static bool origin_is_under(struct str host, struct str domain)
{
    return str_eq_nocase(host, domain) || (host.n > domain.n && host.p[host.n - domain.n - 1] == '.' &&
                                           str_eq_nocase(str_sub(host, host.n - domain.n), domain));
}

/* A name that we don't know could be anybody's who makes it lead here: addresses and our own names can't. */
bool origin_is_good(struct str origin, struct str host, const char *domain)
{
    struct netaddr addr;
    struct str asked = origin_host(host);
    if (str_starts(origin, STR("http://")))
        origin = str_sub(origin, 7);
    else if (str_starts(origin, STR("https://")))
        origin = str_sub(origin, 8);
    else
        return false;
    origin = origin_host(origin);
    if (!origin.n || !asked.n)
        return false;
    bool is_ours = origin_is_loopback(asked) || origin_parse_addr(asked, &addr) ||
                   (domain && origin_is_under(asked, str_of(domain)));
    return is_ours && (origin_is_loopback(origin) || str_eq_nocase(origin, asked));
}
