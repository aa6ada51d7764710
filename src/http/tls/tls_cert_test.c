/* SPDX-License-Identifier: Apache-2.0 */
#include "http/tls/tls_cert.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { TEXT_MAX = 16 * 1024, DAY = 86400 };

static struct buf ca, ca_key, cert, key;

static int set_up(void **state)
{
    (void)state;
    struct buf *all[] = {&ca, &ca_key, &cert, &key};
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        buf_init(all[i], TEXT_MAX);
    assert_int_equal(tls_ca_make("box.test", &ca, &ca_key), 0);
    assert_int_equal(tls_cert_issue(buf_str(&ca), buf_str(&ca_key), "box.test", &cert, &key), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    struct buf *all[] = {&ca, &ca_key, &cert, &key};
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        buf_fini(all[i]);
    return 0;
}

static X509 *parse(struct str pem)
{
    BIO *in = BIO_new_mem_buf(pem.p, (int)pem.n);
    X509 *parsed = PEM_read_bio_X509(in, NULL, NULL, NULL);
    BIO_free(in);
    assert_non_null(parsed);
    return parsed;
}

/* As a client does that trusts our CA alone: X509_V_OK, or what it objects to. */
static int verify(struct str leaf_pem, const char *host)
{
    X509 *root = parse(buf_str(&ca)), *leaf = parse(leaf_pem);
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *ctx = X509_STORE_CTX_new();
    assert_int_equal(X509_STORE_add_cert(store, root), 1);
    assert_int_equal(X509_STORE_CTX_init(ctx, store, leaf, NULL), 1);
    X509_VERIFY_PARAM *param = X509_STORE_CTX_get0_param(ctx);
    (void)X509_VERIFY_PARAM_set_flags(param, X509_V_FLAG_X509_STRICT);
    assert_int_equal(X509_VERIFY_PARAM_set_purpose(param, X509_PURPOSE_SSL_SERVER), 1);
    assert_int_equal(X509_VERIFY_PARAM_set1_host(param, host, 0), 1);
    (void)X509_verify_cert(ctx);
    int error = X509_STORE_CTX_get_error(ctx);
    X509_STORE_CTX_free(ctx);
    X509_STORE_free(store);
    X509_free(root);
    X509_free(leaf);
    return error;
}

static void clients_that_trust_the_ca_are_content(void **state)
{
    (void)state;
    assert_int_equal(verify(buf_str(&cert), "box.test"), X509_V_OK);
    assert_int_equal(verify(buf_str(&cert), "49983-i0123456789abcdefghij.box.test"), X509_V_OK);
    assert_int_equal(verify(buf_str(&cert), "api.box.test"), X509_V_OK);
    assert_int_equal(verify(buf_str(&cert), "a.b.box.test"), X509_V_ERR_HOSTNAME_MISMATCH);
    assert_int_equal(verify(buf_str(&cert), "example.test"), X509_V_ERR_HOSTNAME_MISMATCH);
}

static void the_ca_is_good_for_its_domain_alone(void **state)
{
    (void)state;
    static const char *const others[] = {"example.test", "notbox.test", "test"};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        AUTO_BUF struct buf other = BUF_INIT(TEXT_MAX), other_key = BUF_INIT(TEXT_MAX);
        assert_int_equal(tls_cert_issue(buf_str(&ca), buf_str(&ca_key), others[i], &other, &other_key), 0);
        assert_int_equal(verify(buf_str(&other), others[i]), X509_V_ERR_PERMITTED_VIOLATION);
    }
    AUTO_BUF struct buf below = BUF_INIT(TEXT_MAX), below_key = BUF_INIT(TEXT_MAX);
    assert_int_equal(tls_cert_issue(buf_str(&ca), buf_str(&ca_key), "deep.box.test", &below, &below_key), 0);
    assert_int_equal(verify(buf_str(&below), "x.deep.box.test"), X509_V_OK);
    /* What it signed is no CA itself. */
    AUTO_BUF struct buf more = BUF_INIT(TEXT_MAX), more_key = BUF_INIT(TEXT_MAX);
    assert_int_equal(tls_cert_issue(buf_str(&cert), buf_str(&key), "box.test", &more, &more_key), -EINVAL);
    assert_int_equal(tls_cert_issue(buf_str(&ca), buf_str(&key), "box.test", &more, &more_key), -EINVAL);
    assert_int_equal(tls_cert_issue(STR_NULL, STR("x"), "box.test", &more, &more_key), -EINVAL);
}

static void dates_and_names_are_read(void **state)
{
    (void)state;
    struct tls_cert_info info;
    int64_t now = time(NULL);
    assert_int_equal(tls_cert_read(buf_str(&cert), &info), 0);
    assert_string_equal(info.names, "box.test *.box.test");
    assert_true(info.from < now && info.from > now - DAY);
    assert_true(info.until > now + (TLS_CERT_DAYS - 1) * DAY && info.until <= now + TLS_CERT_DAYS * DAY + 60);
    assert_int_equal(tls_cert_read(buf_str(&ca), &info), 0);
    assert_string_equal(info.names, "");
    assert_true(info.until > now + (int64_t)(TLS_CA_DAYS - 1) * DAY);
    assert_int_equal(tls_cert_read(buf_str(&key), &info), -EINVAL);
}

static void append_pem(EVP_PKEY *pkey, const char *password, struct buf *to)
{
    BIO *out = BIO_new(BIO_s_mem());
    char *text;
    assert_int_equal(PEM_write_bio_PKCS8PrivateKey(out, pkey, password ? EVP_aes_128_cbc() : NULL, password,
                                                   password ? (int)strlen(password) : 0, NULL, NULL),
                     1);
    long n = BIO_get_mem_data(out, &text);
    assert_int_equal(buf_append(to, text, (size_t)n), 0);
    BIO_free(out);
}

/* Self-signed by a key that is too short. */
static void make_weak(struct buf *ret_cert, struct buf *ret_key)
{
    EVP_PKEY *pkey = EVP_RSA_gen(1024);
    X509 *x = X509_new();
    char *text;
    (void)ASN1_INTEGER_set(X509_get_serialNumber(x), 7);
    (void)X509_gmtime_adj(X509_getm_notBefore(x), -60);
    (void)X509_gmtime_adj(X509_getm_notAfter(x), DAY);
    (void)X509_set_version(x, X509_VERSION_3);
    (void)X509_set_pubkey(x, pkey);
    X509_EXTENSION *e = X509V3_EXT_nconf_nid(NULL, NULL, NID_subject_alt_name, "DNS:*.box.test");
    assert_int_equal(X509_add_ext(x, e, -1), 1);
    assert_true(X509_sign(x, pkey, EVP_sha256()) > 0);
    BIO *out = BIO_new(BIO_s_mem());
    assert_int_equal(PEM_write_bio_X509(out, x), 1);
    long n = BIO_get_mem_data(out, &text);
    assert_int_equal(buf_append(ret_cert, text, (size_t)n), 0);
    append_pem(pkey, NULL, ret_key);
    BIO_free(out);
    X509_EXTENSION_free(e);
    X509_free(x);
    EVP_PKEY_free(pkey);
}

static void verdicts(void **state)
{
    (void)state;
    struct tls_cert_info info;
    int64_t now = time(NULL);
    struct str good = buf_str(&cert), its = buf_str(&key);
    assert_int_equal(tls_cert_check(good, its, "box.test", now, &info), TLS_CERT_GOOD);
    assert_string_equal(info.names, "box.test *.box.test");
    assert_int_equal(tls_cert_check(its, its, "box.test", now, &info), TLS_CERT_NONE);
    assert_int_equal(tls_cert_check(STR_NULL, its, "box.test", now, &info), TLS_CERT_NONE);
    assert_int_equal(tls_cert_check(good, good, "box.test", now, &info), TLS_CERT_NO_KEY);
    assert_int_equal(tls_cert_check(good, buf_str(&ca_key), "box.test", now, &info), TLS_CERT_OTHER_KEY);
    assert_int_equal(tls_cert_check(good, its, "example.test", now, &info), TLS_CERT_OTHER_NAME);
    assert_int_equal(tls_cert_check(good, its, "a.box.test", now, &info), TLS_CERT_OTHER_NAME);
    assert_int_equal(tls_cert_check(good, its, "box.test", now + 91 * DAY, &info), TLS_CERT_EXPIRED);
    assert_int_equal(tls_cert_check(good, its, "box.test", now - DAY, &info), TLS_CERT_NOT_YET);

    AUTO_BUF struct buf weak = BUF_INIT(TEXT_MAX), weak_key = BUF_INIT(TEXT_MAX), locked = BUF_INIT(TEXT_MAX);
    make_weak(&weak, &weak_key);
    assert_int_equal(tls_cert_check(buf_str(&weak), buf_str(&weak_key), "box.test", now, &info), TLS_CERT_WEAK);

    BIO *in = BIO_new_mem_buf(its.p, (int)its.n);
    EVP_PKEY *pkey = PEM_read_bio_PrivateKey(in, NULL, NULL, NULL);
    append_pem(pkey, "secret", &locked);
    assert_int_equal(tls_cert_check(good, buf_str(&locked), "box.test", now, &info), TLS_CERT_NO_KEY);
    EVP_PKEY_free(pkey);
    BIO_free(in);
    assert_int_equal(ERR_peek_error(), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_that_trust_the_ca_are_content),
        cmocka_unit_test(the_ca_is_good_for_its_domain_alone),
        cmocka_unit_test(dates_and_names_are_read),
        cmocka_unit_test(verdicts),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
