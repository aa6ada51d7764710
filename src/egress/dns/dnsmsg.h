/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DNS messages (RFC 1035, 6891): the queries that a sandbox sends, the only answers that it gets, and what a resolver
 * upstream answered us.
 *
 * An answer is built anew: header, the question as it was asked (letters in the case they came in), A or AAAA records
 * of exactly that name, and an OPT record if the query had one. No other record, no CNAME, no SOA (so that no client
 * caches a "no"), nothing of upstream's bytes.
 */
#pragma once

#include "base/str.h"
#include "policy/hostname.h"
#include "policy/netaddr.h"

enum dns_type {
    DNS_A = 1,
    DNS_CNAME = 5,
    DNS_PTR = 12,
    DNS_AAAA = 28,
    DNS_OPT = 41,
    DNS_SVCB = 64,
    DNS_HTTPS = 65,
};

enum dns_rcode {
    DNS_NOERROR = 0,
    DNS_FORMERR = 1,
    DNS_SERVFAIL = 2,
    DNS_NXDOMAIN = 3,
    DNS_NOTIMP = 4,
    DNS_REFUSED = 5,
    DNS_BADVERS = 16, /* its upper bits go into OPT */
};

/* Extended errors (RFC 8914): why, for those who look (dig, systemd-resolved). */
enum dns_ede { DNS_EDE_NONE = 0, DNS_EDE_BLOCKED = 15, DNS_EDE_NOT_SUPPORTED = 21, DNS_EDE_NETWORK_ERROR = 23 };

enum {
    DNS_QUERY_MAX = 2048,   /* bytes of a query; real ones have less than 600 */
    DNS_MESSAGE_MAX = 1400, /* bytes of an answer of ours, over TCP; without its length */
    DNS_UDP_MIN = 512,      /* what every client takes */
    DNS_UDP_MAX = 1232,     /* what we send at most, whatever the client takes: no fragments */
    DNS_NAME_TEXT_MAX = 1012,
    DNS_ADDRS_MAX = 32,
    DNS_CHAIN_MAX = 16,
    DNS_EDE_TEXT_MAX = 120,
};

const char *dns_type_name(uint16_t type, char ret_buffer[static 12]); /* "TXT", "TYPE4711" */

struct dns_query {
    uint16_t id, type, class;
    bool wants_recursion, checking_disabled;
    bool has_edns;
    uint16_t udp_room; /* 512, or what EDNS says */
    /* Without the last dot; bytes other than letters, digits, '-', '_' as \DDD; "": the root. */
    char name[DNS_NAME_TEXT_MAX + 1];
    struct str question; /* to be echoed: bytes of the message; empty when there is none to echo */
};

/*
 * Strict: one question and nothing but OPT behind it, no byte left over. 0: a query; its type and class are not judged.
 * DNS_FORMERR, DNS_NOTIMP, DNS_BADVERS: answer with that. -EBADMSG: not even that much, or itself an answer: say
 * nothing.
 */
int dns_query_parse(struct str message, struct dns_query *ret_query) WARN_UNUSED;

/* Over TCP each message has its length in front. 1: there is one; 0: not whole yet; -EMSGSIZE: longer than
 * DNS_QUERY_MAX, or no message. */
int dns_frame_get(struct str bytes, struct str *ret_message) WARN_UNUSED;

struct dns_answer {
    enum dns_rcode rcode;
    const struct netaddr *addrs; /* those of the asked family are taken, DNS_ADDRS_MAX at most */
    size_t n_addrs;
    unsigned ttl_s;
    enum dns_ede ede;
    const char *text; /* of ede, UTF-8; cut at DNS_EDE_TEXT_MAX; NULL: none */
};

/*
 * Writes the answer into `to` and returns its length. Over UDP it is as long as the client takes, at most DNS_UDP_MAX;
 * records that don't fit are left out, and TC says so.
 */
size_t dns_answer_format(const struct dns_query *q, const struct dns_answer *a, bool udp,
                         uint8_t to[static DNS_MESSAGE_MAX]);

/* What upstream said about a name and a family. Names are normalised. */
struct dns_reply {
    struct netaddr addrs[DNS_ADDRS_MAX]; /* the first of them when there were more */
    size_t n_addrs;
    char chain[DNS_CHAIN_MAX][HOSTNAME_MAX + 1]; /* names that the asked one leads to by CNAME, in order */
    size_t n_chain;
    uint32_t ttl_s; /* the least of all records that were used; 0 with n_addrs == 0 */
};

/*
 * Reads the answer to a question about `name` (normalised; type DNS_A or DNS_AAAA), follows its CNAME records whatever
 * order they come in, and takes the addresses of the last name alone. n_addrs 0: there are none. -EBADMSG: cut, loops
 * in compression, names that are none where a name matters, another question. -ELOOP: CNAME records in a circle, or
 * more than DNS_CHAIN_MAX.
 */
int dns_reply_parse(struct str message, const char *name, uint16_t type, struct dns_reply *ret_reply) WARN_UNUSED;
