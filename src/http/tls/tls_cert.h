/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Certificates for <port>-<sandbox>.<domain>: made here, with a CA that is made here too, or made elsewhere and
 * checked. All in PEM. Blocks for some milliseconds at most; touches no file.
 */
#pragma once

#include "base/buf.h"

enum { TLS_CERT_DAYS = 90, TLS_CERT_RENEW_DAYS = 30, TLS_CA_DAYS = 3650 };

/* A CA (EC P-256) that can sign for nothing but the domain and what is below it. */
int tls_ca_make(const char *domain, struct buf *ret_cert, struct buf *ret_key) WARN_UNUSED;

/* Signed by that CA: a certificate for <domain> and *.<domain>, and its key. -EINVAL: the CA is none. */
int tls_cert_issue(struct str ca_cert, struct str ca_key, const char *domain, struct buf *ret_cert,
                   struct buf *ret_key) WARN_UNUSED;

enum tls_verdict {
    TLS_CERT_GOOD,
    TLS_CERT_NONE,      /* no certificate in PEM where one should be */
    TLS_CERT_NO_KEY,    /* no key in PEM, or it asks for a passphrase */
    TLS_CERT_OTHER_KEY, /* the key is not this certificate's */
    TLS_CERT_OTHER_NAME,
    TLS_CERT_EXPIRED,
    TLS_CERT_NOT_YET,
    TLS_CERT_WEAK, /* OpenSSL would not serve with it: a short key, an old signature */
};

struct tls_cert_info {
    int64_t from, until; /* seconds since 1970 */
    char names[256];     /* DNS names, by blanks; cut when there are many */
};

/* May a server for *.<domain> show this chain, leaf first? *ret_info is set whenever there is a certificate. */
enum tls_verdict tls_cert_check(struct str chain, struct str key, const char *domain, int64_t now,
                                struct tls_cert_info *ret_info);

/* The dates and names of the first certificate; -EINVAL: there is none. */
int tls_cert_read(struct str pem, struct tls_cert_info *ret_info) WARN_UNUSED;
