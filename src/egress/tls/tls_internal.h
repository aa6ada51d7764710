/* SPDX-License-Identifier: Apache-2.0 */
/* What tls_context.c, ca.c and side_tls*.c share. */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "egress/flow/side_internal.h"
#include "egress/tls/side_tls.h"

#include <openssl/ssl.h>

enum {
    TLS_RECORD = 16 * 1024,
    /* What one turn of writing encrypts: whole records, so that with what they grow by they stay below SIDE_BUFFER. */
    TLS_WRITE = 3 * TLS_RECORD,
    TLS_OUT_MAX = SIDE_BUFFER,
    TLS_READ_AHEAD = 36 * 1024, /* two records and a bit by one system call */
};

struct tls_context {
    SSL_CTX *ssl;
    BIO_METHOD *bio;
    struct buf scratch; /* ciphertext on its way out during one call */
    unsigned refs;
};

void tls_context_unref(struct tls_context *c);

struct tls {
    struct side side;
    struct side *under; /* owned */
    struct tls_context *context;
    SSL *ssl;
    struct buf out;   /* ciphertext that `under` did not take */
    struct buf first; /* read before there was a TLS side, not consumed yet */
    char *name;       /* of the certificate: theirs must be for it, ours is for it */
    char alpn[256];   /* of a server: what it chooses */
    unsigned timeout_ms;
    int write_error;
    bool under_ended, shut_waits, read_waits; /* FIN, or side_read(), for `out` to be written */
    enum side_tls_alert alert;                /* side_tls_failure_alert() */
    char verdict[160];                        /* on the peer's certificate; "": good so far */
};

extern const struct side_kind tls_kind;

/* From here on it runs by what `under` says; a first flight goes out as soon as that can write. Not prepared: OpenSSL
 * says why, and it fails. */
struct side *tls_start(struct tls *t, bool is_prepared);

/* Puts together what was wrong with a certificate: the verify callback of the world's context. */
int tls_verify(int is_ok, X509_STORE_CTX *store);
struct tls *tls_of_ssl(const SSL *ssl);

/* What OpenSSL's last error of this thread says. Returns -1. */
int tls_error(struct err *err, enum err_code code, const char *what);

/* Callbacks of a server's context. */
int tls_on_server_name(SSL *ssl, int *ret_alert, void *arg);
int tls_on_alpn(SSL *ssl, const unsigned char **ret_choice, unsigned char *ret_n, const unsigned char *offered,
                unsigned n_offered, void *arg);
BIO_METHOD *tls_bio_method(void);
