/* SPDX-License-Identifier: Apache-2.0 */
/* A DNS server for tests, over UDP and TCP on loopback and on the test's own loop, that says what the test wants said:
 * truth, lies, or nothing. */
#pragma once

#include "base/buf.h"
#include "egress/dns/dnsmsg.h"

#include <uv.h>

struct authority;

/* Says nothing, or one or more messages. udp: how it was asked. */
typedef void (*authority_fn)(struct authority *a, const struct dns_query *q, bool udp);

struct authority {
    uv_loop_t *loop;
    uv_udp_t udp;
    uv_tcp_t tcp;
    char address[32]; /* "127.0.0.1:PORT" */
    authority_fn fn;
    unsigned asked;    /* messages received */
    char names[65536]; /* "|name/type" of each, lower case: what got out */
    struct buf reply;
    const struct sockaddr *to; /* where it goes over UDP */
    uv_stream_t *stream;       /* and over TCP */
};

void authority_start(struct authority *a, uv_loop_t *loop, authority_fn fn);
void authority_stop(struct authority *a); /* the loop must run once more */

/* Messages: begin with header and question, add records (owner "" is the asked name), send. */
void authority_begin(struct authority *a, const struct dns_query *q, unsigned rcode);
void authority_add(struct authority *a, const char *owner, uint16_t type, uint32_t ttl, const char *data);
void authority_say(struct authority *a);

bool authority_saw(const struct authority *a, const char *what); /* "name/A" */
