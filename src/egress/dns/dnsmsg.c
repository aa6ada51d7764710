/* SPDX-License-Identifier: Apache-2.0 */
/* Queries of sandboxes and our answers to them. What upstream says is read in dnsreply.c. */
#include "egress/dns/dnsmsg.h"
#include "egress/dns/dnswire.h"

enum { OPT_SIZE = 11, EDE_OPTION = 15, EDE_HEADER = 6 };

static const struct {
    uint16_t type;
    const char *name;
} types[] = {
    {DNS_A, "A"},       {2, "NS"},      {DNS_CNAME, "CNAME"}, {6, "SOA"},    {10, "NULL"},       {DNS_PTR, "PTR"},
    {13, "HINFO"},      {15, "MX"},     {16, "TXT"},          {24, "SIG"},   {25, "KEY"},        {29, "LOC"},
    {DNS_AAAA, "AAAA"}, {33, "SRV"},    {35, "NAPTR"},        {39, "DNAME"}, {43, "DS"},         {44, "SSHFP"},
    {46, "RRSIG"},      {48, "DNSKEY"}, {52, "TLSA"},         {99, "SPF"},   {DNS_SVCB, "SVCB"}, {DNS_HTTPS, "HTTPS"},
    {251, "IXFR"},      {252, "AXFR"},  {255, "ANY"},         {256, "URI"},  {257, "CAA"},
};

const char *dns_type_name(uint16_t type, char ret_buffer[static 12])
{
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        if (types[i].type == type)
            return types[i].name;
    (void)snprintf(ret_buffer, 12, "TYPE%u", type);
    return ret_buffer;
}

/* Behind the question: nothing, or one OPT. */
static int read_opt(struct dns_reader *r, struct dns_query *q)
{
    if (dns_u8(r) != 0 || dns_u16(r) != DNS_OPT)
        return DNS_FORMERR;
    uint16_t room = dns_u16(r);
    uint32_t ttl = dns_u32(r);
    size_t size = dns_u16(r), end = r->at + size;
    while (!r->failed && r->at < end) {
        (void)dns_u16(r);
        dns_skip(r, dns_u16(r));
    }
    if (r->failed || r->at != end)
        return DNS_FORMERR;
    q->has_edns = true;
    q->udp_room = MAX(room, DNS_UDP_MIN);
    return (ttl >> 16 & 0xff) == 0 ? 0 : DNS_BADVERS;
}

int dns_query_parse(struct str message, struct dns_query *ret_query)
{
    struct dns_reader r = {(const uint8_t *)message.p, message.n, 0, false};
    struct dns_header h;
    if (dns_header_get(&r, &h) < 0 || h.flags & DNS_FLAG_ANSWER)
        return -EBADMSG;
    struct dns_query *q = ret_query;
    *q = (struct dns_query){
        .id = h.id,
        .wants_recursion = h.flags & DNS_FLAG_RECURSE,
        .checking_disabled = h.flags & DNS_FLAG_UNCHECKED,
        .udp_room = DNS_UDP_MIN,
    };
    if (h.flags & DNS_FLAGS_OPCODE)
        return DNS_NOTIMP;
    if (h.flags & DNS_FLAG_CUT || h.questions != 1 || h.answers || h.authorities || h.additional > 1)
        return DNS_FORMERR;
    if (dns_name_get(&r, false, q->name) < 0)
        return DNS_FORMERR;
    q->type = dns_u16(&r);
    q->class = dns_u16(&r);
    size_t end = r.at;
    int rcode = r.failed ? DNS_FORMERR : h.additional ? read_opt(&r, q) : 0;
    if (r.at != r.n)
        rcode = DNS_FORMERR;
    if (rcode != DNS_FORMERR)
        q->question = str_n(message.p + DNS_HEADER_SIZE, end - DNS_HEADER_SIZE);
    return rcode;
}

int dns_frame_get(struct str bytes, struct str *ret_message)
{
    if (bytes.n < 2)
        return 0;
    size_t size = (size_t)(uint8_t)bytes.p[0] << 8 | (uint8_t)bytes.p[1];
    if (size < DNS_HEADER_SIZE || size > DNS_QUERY_MAX)
        return -EMSGSIZE;
    if (bytes.n - 2 < size)
        return 0;
    *ret_message = str_n(bytes.p + 2, size);
    return 1;
}

static uint8_t *put16(uint8_t *p, unsigned value)
{
    *p++ = (uint8_t)(value >> 8);
    *p++ = (uint8_t)value;
    return p;
}

static uint8_t *put_opt(uint8_t *p, const struct dns_answer *a, size_t text_len)
{
    bool says_why = a->ede != DNS_EDE_NONE;
    *p++ = 0;
    p = put16(p, DNS_OPT);
    p = put16(p, DNS_UDP_MAX);
    p = put16(p, (unsigned)a->rcode >> 4 << 8);
    p = put16(p, 0);
    p = put16(p, says_why ? (unsigned)(EDE_HEADER + text_len) : 0);
    if (!says_why)
        return p;
    p = put16(p, EDE_OPTION);
    p = put16(p, (unsigned)(2 + text_len));
    p = put16(p, a->ede);
    if (text_len)
        memcpy(p, a->text, text_len);
    return p + text_len;
}

/* As much of the text as there is room for, ending with a whole character. */
static size_t text_room(const struct dns_answer *a)
{
    size_t n = a->ede != DNS_EDE_NONE && a->text ? strlen(a->text) : 0;
    for (n = MIN(n, DNS_EDE_TEXT_MAX); n && !str_is_utf8(str_n(a->text, n)); n--)
        ;
    return n;
}

size_t dns_answer_format(const struct dns_query *q, const struct dns_answer *a, bool udp,
                         uint8_t to[static DNS_MESSAGE_MAX])
{
    size_t most = udp ? MIN(q->udp_room, DNS_UDP_MAX) : DNS_MESSAGE_MAX;
    size_t text_len = text_room(a), n_answers = 0;
    if (q->has_edns)
        most -= OPT_SIZE + (a->ede != DNS_EDE_NONE ? EDE_HEADER + text_len : 0);
    uint8_t *p = to + DNS_HEADER_SIZE;
    if (q->question.n)
        memcpy(p, q->question.p, q->question.n);
    p += q->question.n;
    bool cut = false, wanted = a->rcode == DNS_NOERROR && (q->type == DNS_A || q->type == DNS_AAAA);
    uint8_t family = q->type == DNS_A ? 4 : 6;
    size_t size = family == 4 ? 4 : 16;
    for (size_t i = 0; wanted && !cut && i < MIN(a->n_addrs, DNS_ADDRS_MAX); i++) {
        if (a->addrs[i].family != family)
            continue;
        cut = (size_t)(p - to) + 12 + size > most;
        if (cut)
            break;
        p = put16(p, 0xc000 | DNS_HEADER_SIZE); /* the name of the question */
        p = put16(p, q->type);
        p = put16(p, DNS_CLASS_IN);
        p = put16(p, a->ttl_s >> 16);
        p = put16(p, a->ttl_s);
        p = put16(p, (unsigned)size);
        memcpy(p, a->addrs[i].bytes, size);
        p += size;
        n_answers++;
    }
    if (q->has_edns)
        p = put_opt(p, a, text_len);
    unsigned flags = DNS_FLAG_ANSWER | DNS_FLAG_RECURSION_HERE | (a->rcode & 15);
    flags |= (q->wants_recursion ? DNS_FLAG_RECURSE : 0) | (q->checking_disabled ? DNS_FLAG_UNCHECKED : 0);
    uint8_t *header = put16(put16(to, q->id), flags | (cut ? DNS_FLAG_CUT : 0));
    header = put16(put16(header, q->question.n ? 1 : 0), (unsigned)n_answers);
    (void)put16(put16(header, 0), q->has_edns ? 1 : 0);
    return (size_t)(p - to);
}
