/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/dns/dnswire.h"

uint8_t dns_u8(struct dns_reader *r)
{
    if (r->failed || r->at >= r->n) {
        r->failed = true;
        return 0;
    }
    return r->p[r->at++];
}

uint16_t dns_u16(struct dns_reader *r)
{
    unsigned high = dns_u8(r);
    return (uint16_t)(high << 8 | dns_u8(r));
}

uint32_t dns_u32(struct dns_reader *r)
{
    uint32_t high = dns_u16(r);
    return high << 16 | dns_u16(r);
}

void dns_skip(struct dns_reader *r, size_t n)
{
    if (r->failed || r->n - r->at < n)
        r->failed = true;
    else
        r->at += n;
}

int dns_header_get(struct dns_reader *r, struct dns_header *ret_header)
{
    if (r->n < DNS_HEADER_SIZE)
        return -EBADMSG;
    uint16_t id = dns_u16(r), flags = dns_u16(r), questions = dns_u16(r), answers = dns_u16(r);
    uint16_t authorities = dns_u16(r), additional = dns_u16(r);
    *ret_header = (struct dns_header){id, flags, questions, answers, authorities, additional};
    return 0;
}

static char *put_byte(char *to, uint8_t c)
{
    if (str_set_has("A-Za-z0-9_-", (char)c)) {
        *to++ = (char)c;
        return to;
    }
    *to++ = '\\';
    *to++ = (char)('0' + c / 100);
    *to++ = (char)('0' + c / 10 % 10);
    *to++ = (char)('0' + c % 10);
    return to;
}

int dns_name_get(struct dns_reader *r, bool may_compress, char ret_text[static DNS_NAME_TEXT_MAX + 1])
{
    struct dns_reader in = *r; /* goes where compression leads; r stays behind the first jump */
    size_t wire = 1, jumps = 0, limit = r->at;
    char *to = ret_text;
    for (;;) {
        size_t size = dns_u8(&in);
        if (in.failed)
            return -EBADMSG;
        if (size >= 0xc0) {
            size_t target = (size - 0xc0) << 8 | dns_u8(&in);
            if (in.failed || !may_compress || target >= limit || jumps == DNS_JUMPS_MAX)
                return -EBADMSG;
            if (jumps++ == 0)
                r->at = in.at;
            in.at = limit = target;
            continue;
        }
        if (size == 0)
            break;
        wire += 1 + size;
        if (size > DNS_LABEL_MAX || wire > DNS_NAME_WIRE_MAX)
            return -EBADMSG;
        if (to > ret_text)
            *to++ = '.';
        while (size--)
            to = put_byte(to, dns_u8(&in));
        if (in.failed)
            return -EBADMSG;
    }
    *to = '\0';
    if (jumps == 0)
        r->at = in.at;
    return 0;
}
