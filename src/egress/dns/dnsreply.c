/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a resolver upstream answered. It is trusted to speak for names, not to be well-formed, and the records may be
 * anybody's:
 *
 *  1. Records count by their owner: only those of the asked name, and of names that CNAME records lead to from there.
 *  2. Work is bounded: RECORDS_MAX records, DNS_JUMPS_MAX jumps in a name, DNS_CHAIN_MAX walks.
 */
#include "egress/dns/dnswire.h"
#include "policy/hostname.h"

#include <netinet/in.h>

enum { RECORDS_MAX = 256 };

struct dns_record {
    char owner[DNS_NAME_TEXT_MAX + 1];
    uint16_t type, class;
    uint32_t ttl;
    size_t size;
};

static int get_record(struct dns_reader *r, struct dns_record *ret_record)
{
    if (dns_name_get(r, true, ret_record->owner) < 0)
        return -EBADMSG;
    ret_record->type = dns_u16(r);
    ret_record->class = dns_u16(r);
    ret_record->ttl = dns_u32(r);
    ret_record->size = dns_u16(r);
    if (ret_record->ttl > INT32_MAX) /* RFC 2181 section 8 */
        ret_record->ttl = 0;
    return r->failed || r->n - r->at < ret_record->size ? -EBADMSG : 0;
}

static bool is_owned(const struct dns_record *record, const char *name, uint16_t type)
{
    return record->type == type && record->class == DNS_CLASS_IN && str_eq_nocase(str_of(record->owner), str_of(name));
}

/* The name that `name` is an alias of: 1; 0: it is none. */
static int find_alias(struct dns_reader r, unsigned n, const char *name, char ret_to[static HOSTNAME_MAX + 1],
                      uint32_t *ret_ttl)
{
    while (n--) {
        struct dns_record record;
        char target[DNS_NAME_TEXT_MAX + 1];
        if (get_record(&r, &record) < 0)
            return -EBADMSG;
        size_t end = r.at + record.size;
        if (!is_owned(&record, name, DNS_CNAME)) {
            r.at = end;
            continue;
        }
        if (dns_name_get(&r, true, target) < 0 || r.at != end || !hostname_normalise(str_of(target), ret_to))
            return -EBADMSG;
        *ret_ttl = record.ttl;
        return 1;
    }
    return 0;
}

static int get_addrs(struct dns_reader r, unsigned n, const char *name, uint16_t type, struct dns_reply *reply)
{
    for (; n && reply->n_addrs < DNS_ADDRS_MAX; n--) {
        struct dns_record record;
        if (get_record(&r, &record) < 0)
            return -EBADMSG;
        const uint8_t *data = r.p + r.at;
        r.at += record.size;
        if (!is_owned(&record, name, type))
            continue;
        struct sockaddr_in in = {.sin_family = AF_INET};
        struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
        if (record.size != (type == DNS_A ? sizeof(in.sin_addr) : sizeof(in6.sin6_addr)))
            return -EBADMSG;
        memcpy(type == DNS_A ? (void *)&in.sin_addr : (void *)&in6.sin6_addr, data, record.size);
        const void *sa = type == DNS_A ? (const void *)&in : (const void *)&in6;
        uint16_t port;
        if (!netaddr_from_sockaddr(sa, &reply->addrs[reply->n_addrs], &port))
            return -EBADMSG;
        reply->n_addrs++;
        reply->ttl_s = MIN(reply->ttl_s, record.ttl);
    }
    return 0;
}

/* From the question on, up to the records. */
static int check_question(struct dns_reader *r, const struct dns_header *h, const char *name, uint16_t type)
{
    char asked[DNS_NAME_TEXT_MAX + 1];
    unsigned wrong = h->flags & (DNS_FLAGS_OPCODE | DNS_FLAG_CUT | DNS_FLAGS_RCODE);
    if (!(h->flags & DNS_FLAG_ANSWER) || wrong || h->questions != 1 || dns_name_get(r, false, asked) < 0)
        return -EBADMSG;
    uint16_t asked_type = dns_u16(r), class = dns_u16(r);
    bool same = asked_type == type && class == DNS_CLASS_IN && str_eq_nocase(str_of(asked), str_of(name));
    return r->failed || !same ? -EBADMSG : 0;
}

int dns_reply_parse(struct str message, const char *name, uint16_t type, struct dns_reply *ret_reply)
{
    struct dns_reader r = {(const uint8_t *)message.p, message.n, 0, false};
    struct dns_header h;
    if (dns_header_get(&r, &h) < 0 || check_question(&r, &h, name, type) < 0)
        return -EBADMSG;
    unsigned n = MIN(h.answers, RECORDS_MAX);
    struct dns_reply reply = {.ttl_s = INT32_MAX};
    for (;;) {
        char next[HOSTNAME_MAX + 1];
        uint32_t ttl = 0;
        int found = find_alias(r, n, name, next, &ttl);
        if (found < 0)
            return found;
        if (!found)
            break;
        if (reply.n_chain == DNS_CHAIN_MAX)
            return -ELOOP;
        memcpy(reply.chain[reply.n_chain], next, strlen(next) + 1);
        name = reply.chain[reply.n_chain++];
        reply.ttl_s = MIN(reply.ttl_s, ttl);
    }
    int result = get_addrs(r, n, name, type, &reply);
    if (result < 0)
        return result;
    if (reply.n_addrs == 0)
        reply.ttl_s = 0;
    *ret_reply = reply;
    return 0;
}
