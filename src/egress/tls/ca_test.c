/* SPDX-License-Identifier: Apache-2.0 */
/* A sandbox's CA as a client that trusts it and nobody else sees it: OpenSSL verifies, strictly. */
#include "base/clock.h"
#include "base/mem.h"
#include "egress/tls/ca.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static struct err err;

static X509 *root_of(const struct ca *ca)
{
    AUTO_BUF struct buf pem = BUF_INIT(CA_PEM_MAX);
    assert_int_equal(ca_pem(ca, &pem, &err), 0);
    BIO *b = BIO_new_mem_buf(buf_data(&pem), (int)buf_len(&pem));
    X509 *cert = PEM_read_bio_X509(b, NULL, NULL, NULL);
    assert_non_null(cert);
    assert_null(PEM_read_bio_X509(b, NULL, NULL, NULL)); /* one, and no key beside it */
    BIO_free(b);
    return cert;
}

/* X509_V_OK or what is wrong with it, for that name, at that time from now. */
static int verify(X509 *root, X509 *between, X509 *leaf, const char *name, time_t from_now)
{
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *ctx = X509_STORE_CTX_new();
    STACK_OF(X509) *chain = sk_X509_new_null();
    assert_int_equal(X509_STORE_add_cert(store, root), 1);
    if (between)
        assert_true(sk_X509_push(chain, between) > 0);
    assert_int_equal(X509_STORE_CTX_init(ctx, store, leaf, chain), 1);
    X509_VERIFY_PARAM *p = X509_STORE_CTX_get0_param(ctx);
    assert_int_equal(X509_VERIFY_PARAM_set_flags(p, X509_V_FLAG_X509_STRICT), 1);
    assert_int_equal(X509_VERIFY_PARAM_set_purpose(p, X509_PURPOSE_SSL_SERVER), 1);
    X509_VERIFY_PARAM_set_time(p, time(NULL) + from_now);
    X509_VERIFY_PARAM_set_auth_level(p, 2);
    X509_VERIFY_PARAM_set_hostflags(p, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    assert_int_equal(X509_VERIFY_PARAM_set1_host(p, name, 0), 1);
    (void)X509_verify_cert(ctx);
    int result = X509_STORE_CTX_get_error(ctx);
    sk_X509_free(chain);
    X509_STORE_CTX_free(ctx);
    X509_STORE_free(store);
    return result;
}

static const struct ca_leaf *leaf_of(struct ca *ca, const char *name)
{
    const struct ca_leaf *leaf;
    assert_int_equal(ca_leaf(ca, name, &leaf, &err), 0);
    assert_string_equal(leaf->name, name);
    return leaf;
}

static void test_leaf_is_trusted_for_its_name(void **state)
{
    (void)state;
    static const char longest[] = "a23456789012345678901234567890123456789012345678901234567890123."
                                  "a23456789012345678901234567890123456789012345678901234567890123."
                                  "a23456789012345678901234567890123456789012345678901234567890123."
                                  "a234567890123456789012345678901234567890123456789012345678901";
    static const char *const names[] = {"api.example.com", "localhost", "xn--bcher-kva.example", longest};
    struct ca *ca, *other;
    assert_int_equal(ca_new("i0123456789abcdefghij", &ca, &err), 0);
    assert_int_equal(ca_new("i0123456789abcdefghij", &other, &err), 0);
    X509 *root = root_of(ca), *stranger = root_of(other);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const struct ca_leaf *leaf = leaf_of(ca, names[i]);
        assert_int_equal(verify(root, NULL, leaf->certificate, names[i], 0), X509_V_OK);
        assert_int_equal(X509_check_private_key(leaf->certificate, leaf->key), 1);
        assert_int_equal(verify(root, NULL, leaf->certificate, "other.example.com", 0), X509_V_ERR_HOSTNAME_MISMATCH);
        assert_int_not_equal(verify(stranger, NULL, leaf->certificate, names[i], 0), X509_V_OK);
        assert_int_equal(verify(root, NULL, leaf->certificate, names[i], -1800), X509_V_OK);
        assert_int_equal(verify(root, NULL, leaf->certificate, names[i], 47 * 3600), X509_V_OK);
        assert_int_equal(verify(root, NULL, leaf->certificate, names[i], 49 * 3600), X509_V_ERR_CERT_HAS_EXPIRED);
    }
    char text[128];
    assert_true(X509_NAME_get_text_by_NID(X509_get_subject_name(root), NID_commonName, text, sizeof(text)) > 0);
    assert_string_equal(text, "Cove sandbox i0123456789abcdefghij");
    X509_free(root);
    X509_free(stranger);
    ca_free(ca);
    ca_free(other);
    ca_free(NULL);
}

static X509 *sign(X509 *issuer, EVP_PKEY *issuer_key, EVP_PKEY *key, const char *name, const char *alternative,
                  bool is_ca)
{
    X509 *cert = X509_new();
    X509V3_CTX ctx;
    assert_int_equal(X509_set_version(cert, 2), 1);
    assert_int_equal(ASN1_INTEGER_set(X509_get_serialNumber(cert), 77), 1);
    assert_non_null(X509_gmtime_adj(X509_getm_notBefore(cert), -60));
    assert_non_null(X509_gmtime_adj(X509_getm_notAfter(cert), 3600));
    assert_int_equal(X509_set_pubkey(cert, key), 1);
    assert_int_equal(X509_NAME_add_entry_by_NID(X509_get_subject_name(cert), NID_commonName, MBSTRING_ASC,
                                                (const unsigned char *)name, -1, -1, 0),
                     1);
    assert_int_equal(X509_set_issuer_name(cert, X509_get_subject_name(issuer)), 1);
    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    const struct {
        int nid;
        const char *value;
    } extensions[] = {
        {NID_basic_constraints, is_ca ? "critical,CA:TRUE" : "critical,CA:FALSE"},
        {NID_key_usage, is_ca ? "critical,keyCertSign" : "critical,digitalSignature"},
        {NID_subject_key_identifier, "hash"},
        {NID_authority_key_identifier, "keyid:always"},
        {NID_subject_alt_name, alternative},
    };
    for (size_t i = 0; i < ARRAY_SIZE(extensions); i++) {
        X509_EXTENSION *x = X509V3_EXT_conf_nid(NULL, &ctx, extensions[i].nid, extensions[i].value);
        assert_non_null(x);
        assert_int_equal(X509_add_ext(cert, x, -1), 1);
        X509_EXTENSION_free(x);
    }
    assert_true(X509_sign(cert, issuer_key, EVP_sha256()) > 0);
    return cert;
}

/* Whoever had the key of leaves, or even that of the CA, gets no further than names of hosts. */
static void test_what_the_ca_may_not(void **state)
{
    (void)state;
    struct ca *ca;
    assert_int_equal(ca_new("i", &ca, &err), 0);
    X509 *root = root_of(ca);
    const struct ca_leaf *leaf = leaf_of(ca, "a.example");
    EVP_PKEY *own = EVP_EC_gen("P-256");
    X509 *below = sign(leaf->certificate, leaf->key, own, "b.example", "DNS:b.example", false);
    assert_int_not_equal(verify(root, leaf->certificate, below, "b.example", 0), X509_V_OK);
    X509_free(below);

    /* The key of the CA is in what is exported. */
    AUTO_BUF struct buf bytes = BUF_INIT(CA_EXPORT_MAX);
    assert_int_equal(ca_export(ca, &bytes, &err), 0);
    const unsigned char *p = (const unsigned char *)buf_data(&bytes) + 8;
    EVP_PKEY *key = d2i_PrivateKey(EVP_PKEY_EC, NULL, &p, (long)buf_len(&bytes) - 8);
    assert_non_null(key);
    X509 *middle = sign(root, key, own, "another CA", "DNS:ca.example", true);
    X509 *end = sign(middle, own, own, "b.example", "DNS:b.example", false);
    assert_int_equal(verify(root, middle, end, "b.example", 0), X509_V_ERR_PATH_LENGTH_EXCEEDED);
    X509_free(end);
    X509_free(middle);
    end = sign(root, key, own, "b.example", "DNS:b.example", false);
    assert_int_equal(verify(root, NULL, end, "b.example", 0), X509_V_OK);
    X509_free(end);
    end = sign(root, key, own, "10.0.0.1", "DNS:b.example,IP:10.0.0.1", false);
    assert_int_equal(verify(root, NULL, end, "b.example", 0), X509_V_ERR_EXCLUDED_VIOLATION);
    X509_free(end);
    end = sign(root, key, own, "::1", "DNS:b.example,IP:::1", false);
    assert_int_equal(verify(root, NULL, end, "b.example", 0), X509_V_ERR_EXCLUDED_VIOLATION);
    X509_free(end);
    EVP_PKEY_free(own);
    EVP_PKEY_free(key);
    X509_free(root);
    ca_free(ca);
}

static void test_leaves_are_kept(void **state)
{
    (void)state;
    struct ca *ca;
    char name[32];
    assert_int_equal(ca_new("i", &ca, &err), 0);
    const X509 *first = leaf_of(ca, "first.example")->certificate;
    uint64_t serial;
    assert_int_equal(ASN1_INTEGER_get_uint64(&serial, X509_get0_serialNumber(first)),
                     0); /* too large for that: 127 bits */
    BIGNUM *was = ASN1_INTEGER_to_BN(X509_get0_serialNumber(first), NULL);
    for (int i = 0; i < CA_LEAVES_MAX - 1; i++) {
        (void)snprintf(name, sizeof(name), "n%d.example", i);
        (void)leaf_of(ca, name);
    }
    assert_ptr_equal(leaf_of(ca, "first.example")->certificate, first);
    const X509 *second = leaf_of(ca, "n1.example")->certificate;
    (void)leaf_of(ca, "one-more.example"); /* n0 goes, which was not used for the longest time */
    assert_ptr_equal(leaf_of(ca, "first.example")->certificate, first);
    assert_ptr_equal(leaf_of(ca, "n1.example")->certificate, second);
    for (int i = 0; i < CA_LEAVES_MAX; i++) {
        (void)snprintf(name, sizeof(name), "m%d.example", i);
        (void)leaf_of(ca, name);
    }
    BIGNUM *now = ASN1_INTEGER_to_BN(X509_get0_serialNumber(leaf_of(ca, "first.example")->certificate), NULL);
    assert_int_not_equal(BN_cmp(was, now), 0); /* another one, with another number */
    BN_free(was);
    BN_free(now);
    ca_free(ca);
}

static usec_t later_us;

static usec_t later(void)
{
    return clock_real() + later_us;
}

/* Certificates go by the time of day, which goes on while a machine sleeps. */
static void test_leaves_are_made_anew(void **state)
{
    (void)state;
    struct ca *ca;
    assert_int_equal(ca_new("i", &ca, &err), 0);
    ca_set_clock(ca, later);
    X509 *first = leaf_of(ca, "a.example")->certificate;
    assert_int_equal(X509_up_ref(first), 1); /* so that the next one lies elsewhere */
    later_us = 23 * 3600 * USEC_PER_SEC;
    assert_ptr_equal(leaf_of(ca, "a.example")->certificate, first);
    later_us = 25 * 3600 * USEC_PER_SEC;
    assert_ptr_not_equal(leaf_of(ca, "a.example")->certificate, first);
    X509_free(first);

    /* Set back, the clock says nothing about the age of what is there. */
    first = leaf_of(ca, "b.example")->certificate;
    assert_int_equal(X509_up_ref(first), 1);
    later_us = 0;
    assert_ptr_not_equal(leaf_of(ca, "b.example")->certificate, first);
    X509_free(first);
    ca_free(ca);
}

static void test_names_that_are_none(void **state)
{
    (void)state;
    static const char *const bad[] = {"",           "a.example,DNS:b.example",
                                      "*.example",  "A.example",
                                      "a.example.", "10.0.0.1",
                                      "::1",        "a b",
                                      "a..b",       "a\nb",
                                      "-a.example"};
    struct ca *ca;
    const struct ca_leaf *leaf;
    assert_int_equal(ca_new("i", &ca, &err), 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(ca_leaf(ca, bad[i], &leaf, &err), -1);
        assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    }
    ca_free(ca);
}

static void test_export_and_import(void **state)
{
    (void)state;
    struct ca *ca, *copy, *none;
    AUTO_BUF struct buf bytes = BUF_INIT(CA_EXPORT_MAX), again = BUF_INIT(CA_EXPORT_MAX), small = BUF_INIT(100);
    assert_int_equal(ca_new("i0123456789abcdefghij", &ca, &err), 0);
    X509 *root = root_of(ca);
    assert_int_equal(ca_export(ca, &bytes, &err), 0);
    assert_int_equal(ca_export(ca, &small, &err), -1);
    assert_int_equal(ca_import(buf_str(&bytes), &copy, &err), 0);
    ca_free(ca);
    assert_int_equal(ca_export(copy, &again, &err), 0);
    assert_true(str_eq(buf_str(&bytes), buf_str(&again)));
    const struct ca_leaf *leaf = leaf_of(copy, "a.example");
    assert_int_equal(verify(root, NULL, leaf->certificate, "a.example", 0), X509_V_OK);
    assert_int_equal(X509_check_private_key(leaf->certificate, leaf->key), 1);

    /* Cut, or followed by more, or with any one bit changed that matters. */
    for (size_t n = 0; n < buf_len(&bytes); n++) {
        assert_int_equal(ca_import(str_n(buf_data(&bytes), n), &none, &err), -1);
        assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    }
    assert_int_equal(buf_append_char(&again, 'x'), 0);
    assert_int_equal(ca_import(buf_str(&again), &none, &err), -1);
    struct ca *other;
    AUTO_BUF struct buf theirs = BUF_INIT(CA_EXPORT_MAX);
    assert_int_equal(ca_new("i", &other, &err), 0);
    assert_int_equal(ca_export(other, &theirs, &err), 0);
    for (size_t i = 0; i < buf_len(&bytes); i++) {
        struct ca *bent = NULL;
        buf_data(&bytes)[i] = (char)(buf_data(&bytes)[i] ^ 0x20);
        if (ca_import(buf_str(&bytes), &bent, &err) == 0) { /* a bit of the encoding that means nothing */
            leaf = leaf_of(bent, "a.example");
            assert_int_equal(verify(root, NULL, leaf->certificate, "a.example", 0), X509_V_OK);
            ca_free(bent);
        }
        buf_data(&bytes)[i] = (char)(buf_data(&bytes)[i] ^ 0x20);
    }
    /* The key of one with the certificate of another: keys are of one length. */
    memcpy(buf_data(&bytes), buf_data(&theirs), 100);
    assert_int_equal(ca_import(buf_str(&bytes), &none, &err), -1);
    assert_int_equal(ca_import(STR_NULL, &none, &err), -1);
    X509_free(root);
    ca_free(other);
    ca_free(copy);
}

static void test_costs(void **state)
{
    (void)state;
    enum { CAS = 20, LEAVES = 200 };
    struct ca *ca = NULL;
    char name[32];
    usec_t start = clock_mono();
    for (int i = 0; i < CAS; i++) {
        ca_free(ca);
        assert_int_equal(ca_new("i", &ca, &err), 0);
    }
    usec_t made = clock_mono();
    for (int i = 0; i < LEAVES; i++) {
        (void)snprintf(name, sizeof(name), "n%d.example", i);
        (void)leaf_of(ca, name);
    }
    usec_t minted = clock_mono();
    print_message("a CA: %lu us, a leaf: %lu us\n", (unsigned long)((made - start) / CAS),
                  (unsigned long)((minted - made) / LEAVES));
    ca_free(ca);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leaf_is_trusted_for_its_name),
        cmocka_unit_test(test_what_the_ca_may_not),
        cmocka_unit_test(test_leaves_are_kept),
        cmocka_unit_test(test_leaves_are_made_anew),
        cmocka_unit_test(test_names_that_are_none),
        cmocka_unit_test(test_export_and_import),
        cmocka_unit_test(test_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
