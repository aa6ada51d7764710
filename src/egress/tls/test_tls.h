/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of TLS: certificates of all kinds of badness, contexts that trust one CA, and OpenSSL itself as the
 * peer. */
#pragma once

#include "egress/flow/test_side.h"
#include "egress/tls/ca.h"
#include "egress/tls/tls_context.h"

#include <openssl/ssl.h>

struct test_tls {
    struct test_rig rig;
    struct ca *ca; /* that `world` trusts */
    struct tls_context *world, *sandbox;
    EVP_PKEY *key; /* of test_certificate() */
};

void test_tls_open(struct test_tls *t);
void test_tls_close(struct test_tls *t);

/* Signed by t->ca's key as it is exported; from, to: seconds from now; issuer NULL: by itself. */
X509 *test_certificate(struct test_tls *t, bool by_itself, const char *alternative, long from_s, long to_s);

/* OpenSSL over a non-blocking socket; the loop runs while it waits. is_client: connects, verifying nothing. */
struct test_ssl {
    struct test_tls *t;
    SSL_CTX *ctx;
    SSL *ssl;
    int fd; /* owned */
    unsigned long error;
};

void test_ssl_open(struct test_ssl *p, struct test_tls *t, int fd, bool is_client, const struct ca_leaf *leaf);
void test_ssl_fini(struct test_ssl *p);
bool test_ssl_handshake(struct test_ssl *p); /* false: failed, with `error` */
void test_ssl_send(struct test_ssl *p, const void *data, size_t n);
/* >0 bytes, 0: close_notify, -1: anything else */
int test_ssl_receive(struct test_ssl *p, void *to, size_t room);
void test_ssl_expect(struct test_ssl *p, struct str what);
