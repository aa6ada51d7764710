/* SPDX-License-Identifier: Apache-2.0 */
/* The parts that all DNS messages are made of (RFC 1035 section 4). Internal to dnsmsg.c and dnsreply.c. */
#pragma once

#include "egress/dns/dnsmsg.h"

enum {
    DNS_HEADER_SIZE = 12,
    DNS_CLASS_IN = 1,
    DNS_LABEL_MAX = 63,
    DNS_NAME_WIRE_MAX = 255,
    DNS_JUMPS_MAX = 32, /* of compression in one name; each leads backwards */
};

enum {
    DNS_FLAG_ANSWER = 0x8000,
    DNS_FLAGS_OPCODE = 0x7800,
    DNS_FLAG_CUT = 0x0200,
    DNS_FLAG_RECURSE = 0x0100,
    DNS_FLAG_RECURSION_HERE = 0x0080,
    DNS_FLAG_UNCHECKED = 0x0010,
    DNS_FLAGS_RCODE = 0x000f,
};

/* Reading beyond the end fails and gives 0; after a failure nothing more is read. */
struct dns_reader {
    const uint8_t *p;
    size_t n, at;
    bool failed;
};

uint8_t dns_u8(struct dns_reader *r);
uint16_t dns_u16(struct dns_reader *r);
uint32_t dns_u32(struct dns_reader *r);
void dns_skip(struct dns_reader *r, size_t n);

struct dns_header {
    uint16_t id, flags, questions, answers, authorities, additional;
};
int dns_header_get(struct dns_reader *r, struct dns_header *ret_header) WARN_UNUSED; /* -EBADMSG: too short */

/* A name as the text that struct dns_query describes. -EBADMSG: cut, too long, compressed though it may not be, or in a
 * circle. */
int dns_name_get(struct dns_reader *r, bool may_compress, char ret_text[static DNS_NAME_TEXT_MAX + 1]) WARN_UNUSED;
