/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong with the certificate of an upstream, in words. What the certificate itself says is hostile text:
 * printable ASCII of it is shown, and little. */
#include "egress/tls/tls_internal.h"

#include <openssl/x509v3.h>

/* Appends as much of `more` as fits to the NUL-terminated text, which has room for cap bytes. */
static void tls_verify_add(char *text, size_t cap, const char *more, size_t n)
{
    size_t at = strlen(text);
    for (size_t i = 0; i < n && at + 1 < cap; i++)
        text[at++] = more[i] >= ' ' && more[i] <= '~' ? more[i] : '?';
    text[at] = '\0';
}

static void add_text(char *text, size_t cap, const char *more)
{
    tls_verify_add(text, cap, more, strlen(more));
}

static void add_date(char *text, size_t cap, const ASN1_TIME *t)
{
    struct tm tm;
    char date[40] = "?";
    if (ASN1_TIME_to_tm(t, &tm) == 1)
        (void)snprintf(date, sizeof(date), "%04d-%02d-%02d", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday);
    add_text(text, cap, date);
}

/* The common name, else the organisation. */
static void add_issuer(char *text, size_t cap, const X509 *cert)
{
    static const int parts[] = {NID_commonName, NID_organizationName};
    const X509_NAME *name = X509_get_issuer_name(cert);
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        int at = X509_NAME_get_index_by_NID(name, parts[i], -1);
        if (at < 0)
            continue;
        const ASN1_STRING *s = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at));
        tls_verify_add(text, cap, (const char *)ASN1_STRING_get0_data(s), (size_t)MIN(ASN1_STRING_length(s), 64));
        return;
    }
    add_text(text, cap, "an issuer without a name");
}

/* "a.example, b.example": three at most. */
static void add_names(char *text, size_t cap, const X509 *cert)
{
    enum { SHOWN = 3 };
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    int shown = 0, n = names ? sk_GENERAL_NAME_num(names) : 0;
    for (int i = 0; i < n && shown <= SHOWN; i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type != GEN_DNS)
            continue;
        if (shown)
            add_text(text, cap, ", ");
        if (shown++ == SHOWN)
            add_text(text, cap, "...");
        else
            tls_verify_add(text, cap, (const char *)ASN1_STRING_get0_data(name->d.dNSName),
                           (size_t)MIN(ASN1_STRING_length(name->d.dNSName), 48));
    }
    if (shown == 0)
        add_text(text, cap, "no name at all");
    GENERAL_NAMES_free(names);
}

int tls_verify(int is_ok, X509_STORE_CTX *store)
{
    if (is_ok)
        return 1;
    struct tls *t = tls_of_ssl(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
    const X509 *cert = X509_STORE_CTX_get_current_cert(store);
    int error = X509_STORE_CTX_get_error(store);
    char *text = t->verdict;
    const size_t cap = sizeof(t->verdict);
    text[0] = '\0';
    t->alert = TLS_ALERT_BAD_CERTIFICATE;
    if (X509_STORE_CTX_get_error_depth(store) > 0)
        add_text(text, cap, "one of its issuers: ");
    switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        add_text(text, cap, "expired on ");
        add_date(text, cap, X509_get0_notAfter(cert));
        t->alert = TLS_ALERT_CERTIFICATE_EXPIRED;
        break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        add_text(text, cap, "not valid before ");
        add_date(text, cap, X509_get0_notBefore(cert));
        t->alert = TLS_ALERT_CERTIFICATE_EXPIRED;
        break;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
        add_text(text, cap, "self-signed");
        t->alert = TLS_ALERT_UNKNOWN_CA;
        break;
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        text[0] = '\0';
        add_text(text, cap, "issued by an unknown authority: ");
        add_issuer(text, cap, cert);
        t->alert = TLS_ALERT_UNKNOWN_CA;
        break;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        add_text(text, cap, "name mismatch: it is for ");
        add_names(text, cap, cert);
        break;
    default:
        add_text(text, cap, X509_verify_cert_error_string(error));
    }
    return 0;
}
