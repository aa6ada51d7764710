/* SPDX-License-Identifier: Apache-2.0 */
/* DNS messages, once as a query and once as upstream's answer about a.test: nothing behind the input is read, and
 * answers of ours can be read again. */
#include "egress/dns/dnsmsg.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_answer(const struct dns_query *q, const struct dns_answer *a, bool udp)
{
    uint8_t bytes[DNS_MESSAGE_MAX];
    size_t n = dns_answer_format(q, a, udp, bytes), most = udp ? MIN(q->udp_room, DNS_UDP_MAX) : DNS_MESSAGE_MAX;
    if (n > most || n < 12 || !(bytes[2] & 0x80) ||
        memcmp(bytes, (uint8_t[]){(uint8_t)(q->id >> 8), (uint8_t)q->id}, 2))
        abort();
    if (q->question.n && memcmp(bytes + 12, q->question.p, q->question.n) != 0)
        abort();
    struct dns_reply reply;
    bool readable = a->rcode == 0 && q->class == 1 && !strchr(q->name, '\\') && !(bytes[2] & 2);
    if (readable && dns_reply_parse(str_n(bytes, n), q->name, q->type, &reply) < 0 && (q->type == 1 || q->type == 28))
        abort();
}

static void as_query(struct str message, const struct dns_reply *reply)
{
    struct dns_query q;
    int r = dns_query_parse(message, &q);
    if (r < 0)
        return;
    if (strlen(q.name) > DNS_NAME_TEXT_MAX || q.question.n > 259 || (r == 0 && q.question.n < 5))
        abort();
    for (int udp = 0; udp < 2; udp++) {
        check_answer(&q, &(struct dns_answer){.rcode = r, .ede = DNS_EDE_BLOCKED, .text = q.name}, udp);
        if (r == 0)
            check_answer(&q, &(struct dns_answer){.addrs = reply->addrs, .n_addrs = reply->n_addrs, .ttl_s = 60}, udp);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dns_reply reply = {.n_addrs = 0}, other = {.n_addrs = 0};
    struct str message = str_n(data, size), frame;
    bool has = dns_reply_parse(message, "a.test", DNS_A, &reply) == 0;
    if (!has && dns_reply_parse(message, "a.test", DNS_AAAA, &other) == 0)
        reply = other;
    if (reply.n_addrs > DNS_ADDRS_MAX || reply.n_chain > DNS_CHAIN_MAX)
        abort();
    for (size_t i = 0; i < reply.n_chain; i++)
        if (strlen(reply.chain[i]) > 253 || reply.chain[i][0] == '\0')
            abort();
    as_query(message, &reply);
    for (size_t i = 0; i < DNS_ADDRS_MAX; i++)
        reply.addrs[i] = (struct netaddr){i % 3 ? 6 : 4, {(uint8_t)i}};
    reply.n_addrs = DNS_ADDRS_MAX;
    as_query(message, &reply);
    if (dns_frame_get(message, &frame) == 1)
        as_query(frame, &reply);
    return 0;
}
