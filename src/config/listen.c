/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses to listen on: as they are written, and which of them may be. */
#include "base/mem.h"
#include "config/config.h"

#include <arpa/inet.h>
#include <netinet/in.h>

static bool is_loopback(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    const struct in6_addr *a = &((const struct sockaddr_in6 *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(a) || (IN6_IS_ADDR_V4MAPPED(a) && a->s6_addr[12] == 127);
}

int config_listen_parse(struct str text, struct config_listen *ret_listen, struct err *err)
{
    struct config_listen l = {0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&l.address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&l.address;
    char host[INET6_ADDRSTRLEN + 1];
    uint64_t port;
    size_t colon = text.n;
    while (colon > 0 && text.p[colon - 1] != ':')
        colon--;
    struct str name = colon > 0 ? str_n(text.p, colon - 1) : STR_NULL;
    bool bracketed = name.n >= 2 && name.p[0] == '[' && name.p[name.n - 1] == ']';
    if (bracketed)
        name = str_n(name.p + 1, name.n - 2);
    if (name.n == 0 || name.n >= sizeof(host) || str_to_u64(str_sub(text, colon), &port) < 0 || port > 65535)
        goto bad;
    memcpy(host, name.p, name.n);
    host[name.n] = '\0';

    if (bracketed) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        l.address_len = sizeof(*v6);
        if (inet_pton(AF_INET6, host, &v6->sin6_addr) != 1)
            goto bad;
    } else {
        const char *numeric = strcmp(host, "localhost") == 0 ? "127.0.0.1" : strcmp(host, "*") == 0 ? "0.0.0.0" : host;
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        l.address_len = sizeof(*v4);
        if (inet_pton(AF_INET, numeric, &v4->sin_addr) != 1)
            goto bad;
    }
    l.is_loopback = is_loopback(&l.address);
    l.text = mem_strndup(text.p, text.n);
    *ret_listen = l;
    return 0;
bad:
    return err_set(err, ERR_INVALID_ARGUMENT,
                   "\"%.*s\" is not an address to listen on; write 127.0.0.1:7070 or "
                   "[::1]:7070",
                   STR_ARG_MAX(text, 64));
}

int config_check_listen(const struct config *c, bool has_key, struct err *err)
{
    for (size_t i = 0; i < c->n_listen; i++) {
        const struct config_listen *l = &c->listen[i];
        if (l->is_loopback)
            continue;
        if (!has_key)
            return err_set(err, ERR_FAILED_PRECONDITION,
                           "other machines reach %s, but there is no API key; set COVE_API_KEY", l->text);
        if (!c->behind_tls_proxy)
            return err_set(
                err, ERR_FAILED_PRECONDITION,
                "other machines reach %s, and nothing encrypts what they send; use listen_tls and 'cove domain set', "
                "or put a TLS proxy in front and set behind_tls_proxy: true, or listen on 127.0.0.1",
                l->text);
    }
    for (size_t i = 0; i < c->n_listen_tls; i++)
        if (!c->listen_tls[i].is_loopback && !has_key)
            return err_set(err, ERR_FAILED_PRECONDITION,
                           "other machines reach %s, but there is no API key; set COVE_API_KEY", c->listen_tls[i].text);
    return 0;
}
