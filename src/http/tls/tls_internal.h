/* SPDX-License-Identifier: Apache-2.0 */
/* What tls.c and tls_conn.c share. */
#pragma once

#include "http/tls/tls.h"

#include <openssl/ssl.h>

enum { TICKET_NAME = 16, TICKET_KEY = 32, TICKET_HOURS = 6 };

struct ticket_key {
    unsigned char name[TICKET_NAME], cipher[TICKET_KEY], mac[TICKET_KEY];
    uint64_t made; /* monotonic, us; 0: there is none */
};

struct http_tls {
    SSL_CTX *ctx;
    BIO_METHOD *socket;            /* of connections, see tls_conn.c */
    struct ticket_key now, before; /* before: still decrypts */
};
