/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/tls/ca.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "egress/tls/tls_internal.h"
#include "policy/hostname.h"

#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

enum {
    BACKDATED_S = 3600,           /* for clocks that differ */
    CA_LIFE_S = 3650 * 24 * 3600, /* nobody but its sandbox trusts it, which may be paused for years */
    LEAF_LIFE_S = 48 * 3600,
    LEAF_FRESH_S = 24 * 3600, /* then another one is made */
    COMMON_NAME_MAX = 64,     /* RFC 5280, upper bounds */
    VERSION_3 = 2,
    EXPORT_MAGIC = 0x31414343, /* "CCA1" */
};

struct leaf {
    struct ca_leaf shown;
    struct list node; /* of ca.used: the latest first */
    usec_t made_at;   /* by the time of day, as certificates go: it goes on while the machine sleeps */
};

struct ca {
    EVP_PKEY *key, *leaf_key;
    X509 *certificate;
    struct map leaves; /* name -> struct leaf, owned */
    struct list used;
    usec_t (*now)(void);
};

DEFINE_AUTO(X509 *, X509_free)
DEFINE_AUTO(EVP_PKEY *, EVP_PKEY_free)
DEFINE_AUTO(GENERAL_NAMES *, GENERAL_NAMES_free)
DEFINE_AUTO(GENERAL_NAME *, GENERAL_NAME_free)
DEFINE_AUTO(X509_EXTENSION *, X509_EXTENSION_free)
DEFINE_AUTO(BIO *, BIO_free_all)
DEFINE_AUTO(struct ca *, ca_free)

static int ca_failed(struct err *err, const char *what)
{
    return tls_error(err, ERR_INTERNAL, what);
}

/* Certificates. */

static bool set_serial(X509 *cert)
{
    uint8_t bytes[16];
    if (RAND_bytes(bytes, sizeof(bytes)) != 1)
        return false;
    bytes[0] = (uint8_t)((bytes[0] & 0x7f) | 0x40); /* positive, and of one length */
    BIGNUM *n = BN_bin2bn(bytes, sizeof(bytes), NULL);
    bool is_set = n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(cert));
    BN_free(n);
    return is_set;
}

static bool set_common_name(X509 *cert, const char *text)
{
    return X509_NAME_add_entry_by_NID(X509_get_subject_name(cert), NID_commonName, MBSTRING_ASC,
                                      (const unsigned char *)text, -1, -1, 0) == 1;
}

static bool add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    AUTO(X509_EXTENSION_free) X509_EXTENSION *x = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    return x && X509_add_ext(cert, x, -1) == 1;
}

/* A name never goes through OpenSSL's configuration language, where a comma would begin another one. */
static bool add_alternative_name(X509 *cert, const char *name, bool is_critical)
{
    AUTO(GENERAL_NAMES_free) GENERAL_NAMES *names = GENERAL_NAMES_new();
    AUTO(GENERAL_NAME_free) GENERAL_NAME *one = GENERAL_NAME_new();
    ASN1_IA5STRING *text = ASN1_IA5STRING_new();
    if (!names || !one || !text || ASN1_STRING_set(text, name, -1) != 1) {
        ASN1_IA5STRING_free(text);
        return false;
    }
    GENERAL_NAME_set0_value(one, GEN_DNS, text);
    if (sk_GENERAL_NAME_push(names, one) <= 0)
        return false;
    one = NULL;
    return X509_add1_ext_i2d(cert, NID_subject_alt_name, names, is_critical, 0) == 1;
}

static X509 *certificate_new(EVP_PKEY *key, long life_s)
{
    AUTO(X509_free) X509 *cert = X509_new();
    if (!cert || X509_set_version(cert, VERSION_3) != 1 || !set_serial(cert) ||
        !X509_gmtime_adj(X509_getm_notBefore(cert), -BACKDATED_S) ||
        !X509_gmtime_adj(X509_getm_notAfter(cert), life_s) || X509_set_pubkey(cert, key) != 1)
        return NULL;
    return TAKE_PTR(cert);
}

static int make_certificate(struct ca *ca, const char *sandbox_id, struct err *err)
{
    static const struct {
        int nid;
        const char *value;
    } extensions[] = {
        {NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
        {NID_key_usage, "critical,keyCertSign"},
        {NID_ext_key_usage, "serverAuth"},
        {NID_name_constraints, "critical,excluded;IP:0.0.0.0/0.0.0.0,excluded;IP:::/::"},
        {NID_subject_key_identifier, "hash"},
        {NID_authority_key_identifier, "keyid:always"},
    };
    char name[COMMON_NAME_MAX + 1];
    (void)snprintf(name, sizeof(name), "Cove sandbox %s", sandbox_id);
    AUTO(X509_free) X509 *cert = certificate_new(ca->key, CA_LIFE_S);
    if (!cert || !set_common_name(cert, name) || X509_set_issuer_name(cert, X509_get_subject_name(cert)) != 1)
        return ca_failed(err, "make a CA");
    for (size_t i = 0; i < ARRAY_SIZE(extensions); i++) {
        if (!add_extension(cert, cert, extensions[i].nid, extensions[i].value))
            return ca_failed(err, "make a CA");
    }
    if (X509_sign(cert, ca->key, EVP_sha256()) <= 0)
        return ca_failed(err, "make a CA");
    ca->certificate = TAKE_PTR(cert);
    return 0;
}

static X509 *make_leaf(const struct ca *ca, const char *name)
{
    bool is_named = strlen(name) <= COMMON_NAME_MAX; /* else the subject stays empty */
    AUTO(X509_free) X509 *cert = certificate_new(ca->leaf_key, LEAF_LIFE_S);
    if (!cert || (is_named && !set_common_name(cert, name)) ||
        X509_set_issuer_name(cert, X509_get_subject_name(ca->certificate)) != 1 ||
        !add_extension(cert, ca->certificate, NID_basic_constraints, "critical,CA:FALSE") ||
        !add_extension(cert, ca->certificate, NID_key_usage, "critical,digitalSignature") ||
        !add_extension(cert, ca->certificate, NID_ext_key_usage, "serverAuth") ||
        !add_extension(cert, ca->certificate, NID_subject_key_identifier, "hash") ||
        !add_extension(cert, ca->certificate, NID_authority_key_identifier, "keyid:always") ||
        !add_alternative_name(cert, name, !is_named) || X509_sign(cert, ca->key, EVP_sha256()) <= 0)
        return NULL;
    /* A leaf does not outlive its CA. */
    if (ASN1_TIME_compare(X509_get0_notAfter(cert), X509_get0_notAfter(ca->certificate)) > 0) {
        if (X509_set1_notAfter(cert, X509_get0_notAfter(ca->certificate)) != 1 ||
            X509_sign(cert, ca->key, EVP_sha256()) <= 0)
            return NULL;
    }
    return TAKE_PTR(cert);
}

/* The CA. */

static struct ca *ca_alloc(EVP_PKEY *key)
{
    struct ca *ca = mem_new(struct ca);
    ca->key = key;
    ca->leaf_key = EVP_EC_gen("P-256");
    ca->leaves = MAP_INIT;
    ca->now = clock_real;
    list_init(&ca->used);
    return ca;
}

int ca_new(const char *sandbox_id, struct ca **ret_ca, struct err *err)
{
    AUTO(ca_free) struct ca *ca = ca_alloc(EVP_EC_gen("P-256"));
    if (!ca->key || !ca->leaf_key)
        return ca_failed(err, "make a key");
    if (make_certificate(ca, sandbox_id, err) < 0)
        return -1;
    *ret_ca = TAKE_PTR(ca);
    return 0;
}

static void leaf_free(struct ca *ca, struct leaf *leaf)
{
    (void)map_del(&ca->leaves, str_of(leaf->shown.name));
    list_remove(&leaf->node);
    X509_free(leaf->shown.certificate);
    mem_free((char *)leaf->shown.name);
    mem_free(leaf);
}

void ca_free(struct ca *ca)
{
    if (!ca)
        return;
    LIST_FOREACH (struct leaf, leaf, &ca->used, node)
        leaf_free(ca, leaf);
    map_fini(&ca->leaves);
    X509_free(ca->certificate);
    EVP_PKEY_free(ca->leaf_key);
    EVP_PKEY_free(ca->key);
    mem_free(ca);
}

int ca_leaf(struct ca *ca, const char *name, const struct ca_leaf **ret_leaf, struct err *err)
{
    char normalised[HOSTNAME_MAX + 1];
    if (!hostname_normalise(str_of(name), normalised) || strcmp(name, normalised) != 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "a certificate needs a valid host name");
    struct leaf *leaf = map_get(&ca->leaves, str_of(name));
    usec_t now = ca->now();
    /* One that the clock was set back behind is as old as can be. */
    if (leaf && now - leaf->made_at > LEAF_FRESH_S * USEC_PER_SEC) {
        leaf_free(ca, leaf);
        leaf = NULL;
    }
    if (!leaf) {
        X509 *cert = make_leaf(ca, name);
        if (!cert)
            return ca_failed(err, "make a certificate");
        if (map_count(&ca->leaves) >= CA_LEAVES_MAX)
            leaf_free(ca, container_of(ca->used.prev, struct leaf, node));
        leaf = mem_new(struct leaf);
        leaf->shown = (struct ca_leaf){.name = mem_strdup(name), .certificate = cert, .key = ca->leaf_key};
        leaf->made_at = now;
        list_init(&leaf->node);
        (void)map_put(&ca->leaves, str_of(name), leaf);
    }
    list_remove(&leaf->node);
    list_prepend(&ca->used, &leaf->node);
    *ret_leaf = &leaf->shown;
    return 0;
}

void ca_set_clock(struct ca *ca, usec_t (*now)(void))
{
    ca->now = now;
}

int ca_pem(const struct ca *ca, struct buf *to, struct err *err)
{
    AUTO(BIO_free_all) BIO *b = BIO_new(BIO_s_mem());
    char *p = NULL;
    if (!b || PEM_write_bio_X509(b, ca->certificate) != 1)
        return ca_failed(err, "write a certificate");
    long n = BIO_get_mem_data(b, &p);
    int r = buf_append(to, p, (size_t)n);
    return r < 0 ? err_errno(err, r, "write a certificate") : 0;
}

/*
 * Exported: "CCA1", then key and certificate as DER, each behind its length (32 bits, little-endian). Leaves are not in
 * it: they are signed by another key of the next process.
 */

static void put_u32(uint8_t to[static 4], uint32_t v)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(v >> (8 * i));
}

static bool cut_u32(struct str *from, uint32_t *ret_v)
{
    if (from->n < 4)
        return false;
    const uint8_t *p = (const uint8_t *)from->p;
    *ret_v = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    *from = str_sub(*from, 4);
    return true;
}

static bool cut_part(struct str *from, struct str *ret_part)
{
    uint32_t n;
    if (!cut_u32(from, &n) || n == 0 || n > from->n)
        return false;
    *ret_part = str_n(from->p, n);
    *from = str_sub(*from, n);
    return true;
}

int ca_export(const struct ca *ca, struct buf *to, struct err *err)
{
    unsigned char *der[2] = {NULL, NULL};
    int n[2] = {i2d_PrivateKey(ca->key, &der[0]), i2d_X509(ca->certificate, &der[1])};
    uint8_t word[4];
    int r = -EIO;
    if (n[0] > 0 && n[1] > 0) {
        put_u32(word, EXPORT_MAGIC);
        r = buf_append(to, word, sizeof(word));
        for (size_t i = 0; i < 2 && r == 0; i++) {
            put_u32(word, (uint32_t)n[i]);
            r = buf_append(to, word, sizeof(word));
            if (r == 0)
                r = buf_append(to, der[i], (size_t)n[i]);
        }
    }
    if (n[0] > 0)
        OPENSSL_clear_free(der[0], (size_t)n[0]);
    OPENSSL_free(der[1]);
    return r < 0 ? err_errno(err, r, "export a CA") : 0;
}

static X509 *read_certificate(struct str der)
{
    const unsigned char *p = (const unsigned char *)der.p;
    AUTO(X509_free) X509 *cert = d2i_X509(NULL, &p, (long)der.n);
    return cert && p == (const unsigned char *)der.p + der.n ? TAKE_PTR(cert) : NULL;
}

/* The encoding has a private key and its public one; that they belong together is not checked by reading it. */
static bool key_is_whole(EVP_PKEY *key)
{
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
    bool is_whole = ctx && EVP_PKEY_check(ctx) == 1;
    EVP_PKEY_CTX_free(ctx);
    return is_whole;
}

static EVP_PKEY *ca_read_key(struct str der)
{
    const unsigned char *p = (const unsigned char *)der.p;
    char group[32] = "";
    AUTO(EVP_PKEY_free) EVP_PKEY *key = d2i_PrivateKey(EVP_PKEY_EC, NULL, &p, (long)der.n);
    if (!key || p != (const unsigned char *)der.p + der.n ||
        EVP_PKEY_get_group_name(key, group, sizeof(group), NULL) != 1 || strcmp(group, SN_X9_62_prime256v1) != 0 ||
        !key_is_whole(key))
        return NULL;
    return TAKE_PTR(key);
}

int ca_import(struct str bytes, struct ca **ret_ca, struct err *err)
{
    struct str key_der, cert_der;
    uint32_t magic = 0;
    bool is_whole = bytes.n <= CA_EXPORT_MAX && cut_u32(&bytes, &magic) && magic == EXPORT_MAGIC &&
                    cut_part(&bytes, &key_der) && cut_part(&bytes, &cert_der) && bytes.n == 0;
    AUTO(X509_free) X509 *cert = is_whole ? read_certificate(cert_der) : NULL;
    AUTO(EVP_PKEY_free) EVP_PKEY *key = is_whole ? ca_read_key(key_der) : NULL;
    if (!cert || !key || X509_check_private_key(cert, key) != 1 || X509_verify(cert, key) != 1 ||
        X509_check_ca(cert) != 1) {
        ERR_clear_error();
        return err_set(err, ERR_INVALID_ARGUMENT, "not a sandbox's CA, or a damaged one");
    }
    if (X509_cmp_current_time(X509_get0_notAfter(cert)) <= 0)
        return err_set(err, ERR_FAILED_PRECONDITION, "the sandbox's CA has expired");
    AUTO(ca_free) struct ca *ca = ca_alloc(TAKE_PTR(key));
    ca->certificate = TAKE_PTR(cert);
    if (!ca->leaf_key)
        return ca_failed(err, "make a key");
    *ret_ca = TAKE_PTR(ca);
    return 0;
}
