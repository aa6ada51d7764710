/* SPDX-License-Identifier: Apache-2.0 */
#include "http/tls/tls_cert.h"
#include "base/id.h"
#include "base/mem.h"
#include "http/tls/tls.h"

#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <time.h>

enum { SERIAL_BYTES = 16, HOUR_S = 3600, DOMAIN_MAX = 253 };

DEFINE_AUTO(X509 *, X509_free)
DEFINE_AUTO(EVP_PKEY *, EVP_PKEY_free)
DEFINE_AUTO(BIO *, BIO_free_all)
DEFINE_AUTO(GENERAL_NAMES *, GENERAL_NAMES_free)

static int tls_cert_no_passphrase(char *to UNUSED, int size UNUSED, int writing UNUSED, void *ctx UNUSED)
{
    return -1;
}

static BIO *reader(struct str pem)
{
    return pem.n == 0 || pem.n > INT32_MAX ? NULL : BIO_new_mem_buf(pem.p, (int)pem.n);
}

static X509 *first_cert(struct str pem)
{
    AUTO(BIO_free_all) BIO *in = reader(pem);
    X509 *cert = in ? PEM_read_bio_X509(in, NULL, tls_cert_no_passphrase, NULL) : NULL;
    ERR_clear_error();
    return cert;
}

static EVP_PKEY *private_key(struct str pem)
{
    AUTO(BIO_free_all) BIO *in = reader(pem);
    EVP_PKEY *key = in ? PEM_read_bio_PrivateKey(in, NULL, tls_cert_no_passphrase, NULL) : NULL;
    ERR_clear_error();
    return key;
}

static int take_pem(BIO *out, struct buf *to)
{
    char *text;
    long n = BIO_get_mem_data(out, &text);
    int r = n > 0 ? buf_append(to, text, (size_t)n) : -ENOMEM;
    if (n > 0)
        mem_wipe(text, (size_t)n);
    return r;
}

static int append_cert(const X509 *cert, struct buf *to)
{
    AUTO(BIO_free_all) BIO *out = BIO_new(BIO_s_mem());
    return out && PEM_write_bio_X509(out, cert) == 1 ? take_pem(out, to) : -ENOMEM;
}

static int append_key(const EVP_PKEY *key, struct buf *to)
{
    AUTO(BIO_free_all) BIO *out = BIO_new(BIO_s_mem());
    return out && PEM_write_bio_PKCS8PrivateKey(out, key, NULL, NULL, 0, NULL, NULL) == 1 ? take_pem(out, to) : -ENOMEM;
}

/* ---- making ---- */

static bool extend(X509 *cert, X509 *issuer, int what, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_nconf_nid(NULL, &ctx, what, value);
    bool ok = e && X509_add_ext(cert, e, -1) == 1;
    X509_EXTENSION_free(e);
    return ok;
}

static bool tls_cert_number(X509 *cert)
{
    unsigned char bytes[SERIAL_BYTES];
    id_random_bytes(bytes, sizeof(bytes));
    bytes[0] = (bytes[0] & 0x7f) | 0x40; /* positive, and always as long */
    BIGNUM *n = BN_bin2bn(bytes, sizeof(bytes), NULL);
    bool ok = n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(cert));
    BN_free(n);
    return ok;
}

/* Valid since an hour ago: clocks differ. */
static X509 *blank(const char *name, EVP_PKEY *key, int days)
{
    AUTO(X509_free) X509 *cert = X509_new();
    if (!cert || X509_set_version(cert, X509_VERSION_3) != 1 || !tls_cert_number(cert) ||
        !X509_gmtime_adj(X509_getm_notBefore(cert), -HOUR_S) ||
        !X509_time_adj_ex(X509_getm_notAfter(cert), days, 0, NULL) || X509_set_pubkey(cert, key) != 1)
        return NULL;
    /* A common name ends at 64 characters (RFC 5280 upper bounds); nobody reads it for the host's name any more. */
    AUTO_FREE char *common = mem_strndup(name, 64);
    X509_NAME *subject = X509_get_subject_name(cert);
    if (X509_NAME_add_entry_by_txt(subject, "O", MBSTRING_UTF8, (const unsigned char *)"Cove", -1, -1, 0) != 1 ||
        X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, (const unsigned char *)common, -1, -1, 0) != 1)
        return NULL;
    return TAKE_PTR(cert);
}

static int tls_cert_finish(X509 *cert, EVP_PKEY *signer, EVP_PKEY *key, struct buf *ret_cert, struct buf *ret_key)
{
    if (X509_sign(cert, signer, EVP_sha256()) == 0)
        return -ENOMEM;
    int r = append_cert(cert, ret_cert);
    return r < 0 ? r : append_key(key, ret_key);
}

int tls_ca_make(const char *domain, struct buf *ret_cert, struct buf *ret_key)
{
    if (strlen(domain) > DOMAIN_MAX)
        return -EINVAL;
    AUTO_FREE char *name = mem_printf("Local CA for %s", domain);
    /* A constraint on DNS names says nothing about other kinds of names, so addresses are excluded by one of their own
     * (RFC 5280 section 4.2.1.10). */
    AUTO_FREE char *only = mem_printf("critical,permitted;DNS:%s,excluded;IP:0.0.0.0/0.0.0.0,"
                                      "excluded;IP:0:0:0:0:0:0:0:0/0:0:0:0:0:0:0:0",
                                      domain);
    AUTO(EVP_PKEY_free) EVP_PKEY *key = EVP_EC_gen("P-256");
    AUTO(X509_free) X509 *cert = key ? blank(name, key, TLS_CA_DAYS) : NULL;
    int r = -ENOMEM;
    if (cert && X509_set_issuer_name(cert, X509_get_subject_name(cert)) == 1 &&
        extend(cert, cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
        extend(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign") &&
        extend(cert, cert, NID_subject_key_identifier, "hash") && extend(cert, cert, NID_name_constraints, only))
        r = tls_cert_finish(cert, key, key, ret_cert, ret_key);
    ERR_clear_error();
    return r;
}

int tls_cert_issue(struct str ca_cert, struct str ca_key, const char *domain, struct buf *ret_cert, struct buf *ret_key)
{
    AUTO(X509_free) X509 *ca = first_cert(ca_cert);
    AUTO(EVP_PKEY_free) EVP_PKEY *signer = private_key(ca_key);
    if (!ca || !signer || X509_check_private_key(ca, signer) != 1 || X509_check_ca(ca) != 1 ||
        strlen(domain) > DOMAIN_MAX) {
        ERR_clear_error();
        return -EINVAL;
    }
    AUTO_FREE char *names = mem_printf("DNS:%s,DNS:*.%s", domain, domain);
    AUTO(EVP_PKEY_free) EVP_PKEY *key = EVP_EC_gen("P-256");
    AUTO(X509_free) X509 *cert = key ? blank(domain, key, TLS_CERT_DAYS) : NULL;
    int r = -ENOMEM;
    if (cert && X509_set_issuer_name(cert, X509_get_subject_name(ca)) == 1 &&
        extend(cert, ca, NID_basic_constraints, "critical,CA:FALSE") &&
        extend(cert, ca, NID_key_usage, "critical,digitalSignature") &&
        extend(cert, ca, NID_ext_key_usage, "serverAuth") && extend(cert, ca, NID_subject_key_identifier, "hash") &&
        extend(cert, ca, NID_authority_key_identifier, "keyid:always") && extend(cert, ca, NID_subject_alt_name, names))
        r = tls_cert_finish(cert, signer, key, ret_cert, ret_key);
    ERR_clear_error();
    return r;
}

/* ---- reading ---- */

static int64_t seconds(const ASN1_TIME *time)
{
    struct tm tm;
    return time && ASN1_TIME_to_tm(time, &tm) == 1 ? (int64_t)timegm(&tm) : 0;
}

static void list_names(const X509 *cert, char *names, size_t size)
{
    AUTO(GENERAL_NAMES_free) GENERAL_NAMES *all = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    size_t used = 0;
    names[0] = 0;
    for (int i = 0; i < (all ? sk_GENERAL_NAME_num(all) : 0); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(all, i);
        if (name->type != GEN_DNS)
            continue;
        const unsigned char *text = ASN1_STRING_get0_data(name->d.dNSName);
        size_t n = (size_t)ASN1_STRING_length(name->d.dNSName);
        if (n == 0 || used + n + 2 > size)
            continue;
        if (used)
            names[used++] = ' ';
        for (size_t k = 0; k < n; k++) /* it goes to terminals */
            names[used++] = text[k] > ' ' && text[k] < 0x7f ? (char)text[k] : '?';
        names[used] = 0;
    }
}

static void read_info(const X509 *cert, struct tls_cert_info *ret_info)
{
    ret_info->from = seconds(X509_get0_notBefore(cert));
    ret_info->until = seconds(X509_get0_notAfter(cert));
    list_names(cert, ret_info->names, sizeof(ret_info->names));
}

int tls_cert_read(struct str pem, struct tls_cert_info *ret_info)
{
    AUTO(X509_free) X509 *cert = first_cert(pem);
    if (!cert)
        return -EINVAL;
    read_info(cert, ret_info);
    ERR_clear_error();
    return 0;
}

/* Clients look at alternative names alone, and a wildcard stands for one label. */
static bool covers(X509 *cert, const char *domain)
{
    AUTO_FREE char *host = mem_printf("49983-i0.%s", domain);
    return X509_check_host(cert, host, 0, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, NULL) == 1;
}

enum tls_verdict tls_cert_check(struct str chain, struct str key_pem, const char *domain, int64_t now,
                                struct tls_cert_info *ret_info)
{
    AUTO(X509_free) X509 *cert = first_cert(chain);
    AUTO(EVP_PKEY_free) EVP_PKEY *key = private_key(key_pem);
    AUTO(http_tls_free) struct http_tls *tls = NULL;
    if (!cert)
        return TLS_CERT_NONE;
    read_info(cert, ret_info);
    enum tls_verdict verdict = !key                                     ? TLS_CERT_NO_KEY
                               : X509_check_private_key(cert, key) != 1 ? TLS_CERT_OTHER_KEY
                               : !covers(cert, domain)                  ? TLS_CERT_OTHER_NAME
                               : ret_info->until <= now                 ? TLS_CERT_EXPIRED
                               : ret_info->from > now                   ? TLS_CERT_NOT_YET
                               : http_tls_new(chain, key_pem, &tls) < 0 ? TLS_CERT_WEAK
                                                                        : TLS_CERT_GOOD;
    ERR_clear_error();
    return verdict;
}
