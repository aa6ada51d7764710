/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/tls/test_tls.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void test_tls_open(struct test_tls *t)
{
    struct err err;
    AUTO_BUF struct buf pem = BUF_INIT(CA_PEM_MAX), bytes = BUF_INIT(CA_EXPORT_MAX);
    char path[] = "/tmp/cove-tls-test-XXXXXX";
    /* OpenSSL opens the random device and its configuration once. */
    EVP_PKEY *first = EVP_EC_gen("P-256");
    EVP_PKEY_free(first);
    test_rig_open(&t->rig);
    assert_int_equal(ca_new("test", &t->ca, &err), 0);
    assert_int_equal(ca_pem(t->ca, &pem, &err), 0);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(fd_write_all(fd, buf_data(&pem), buf_len(&pem)), 0);
    (void)close(fd);
    if (tls_context_world(path, &t->world, &err) < 0)
        fail_msg("%s", err.msg);
    (void)unlink(path);
    assert_int_equal(tls_context_sandbox(&t->sandbox, &err), 0);
    assert_int_equal(ca_export(t->ca, &bytes, &err), 0);
    const unsigned char *p = (const unsigned char *)buf_data(&bytes) + 8;
    t->key = d2i_PrivateKey(EVP_PKEY_EC, NULL, &p, (long)buf_len(&bytes) - 8);
    assert_non_null(t->key);
}

void test_tls_close(struct test_tls *t)
{
    EVP_PKEY_free(t->key);
    tls_context_free(t->world);
    tls_context_free(t->sandbox);
    ca_free(t->ca);
    test_rig_close(&t->rig);
}

X509 *test_certificate(struct test_tls *t, bool by_itself, const char *alternative, long from_s, long to_s)
{
    struct err err;
    const struct ca_leaf *leaf;
    assert_int_equal(ca_leaf(t->ca, "issuer.example", &leaf, &err), 0);
    X509 *cert = X509_new();
    assert_int_equal(X509_set_version(cert, 2), 1);
    assert_int_equal(ASN1_INTEGER_set(X509_get_serialNumber(cert), 77), 1);
    assert_non_null(X509_gmtime_adj(X509_getm_notBefore(cert), from_s));
    assert_non_null(X509_gmtime_adj(X509_getm_notAfter(cert), to_s));
    assert_int_equal(X509_set_pubkey(cert, t->key), 1);
    X509_NAME *subject = X509_get_subject_name(cert);
    assert_int_equal(X509_NAME_add_entry_by_NID(subject, NID_commonName, MBSTRING_ASC,
                                                (const unsigned char *)"a\033[2Jb", -1, -1, 0),
                     1);
    assert_int_equal(X509_set_issuer_name(cert, by_itself ? subject : X509_get_issuer_name(leaf->certificate)), 1);
    if (alternative) {
        X509_EXTENSION *x = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, alternative);
        assert_non_null(x);
        assert_int_equal(X509_add_ext(cert, x, -1), 1);
        X509_EXTENSION_free(x);
    }
    assert_true(X509_sign(cert, t->key, EVP_sha256()) > 0);
    return cert;
}

void test_ssl_open(struct test_ssl *p, struct test_tls *t, int fd, bool is_client, const struct ca_leaf *leaf)
{
    *p = (struct test_ssl){.t = t, .fd = fd};
    p->ctx = SSL_CTX_new(TLS_method());
    assert_non_null(p->ctx);
    p->ssl = SSL_new(p->ctx);
    assert_non_null(p->ssl);
    (void)SSL_set_mode(p->ssl, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (leaf) {
        assert_int_equal(SSL_use_certificate(p->ssl, leaf->certificate), 1);
        assert_int_equal(SSL_use_PrivateKey(p->ssl, leaf->key), 1);
    }
    assert_int_equal(SSL_set_fd(p->ssl, fd), 1);
    if (is_client)
        SSL_set_connect_state(p->ssl);
    else
        SSL_set_accept_state(p->ssl);
}

void test_ssl_fini(struct test_ssl *p)
{
    SSL_free(p->ssl);
    SSL_CTX_free(p->ctx);
    (void)fd_close(p->fd);
}

/* True: try again. */
static bool wait_for(struct test_ssl *p, int r, usec_t until)
{
    int why = SSL_get_error(p->ssl, r);
    if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) {
        p->error = ERR_peek_error();
        ERR_clear_error();
        return false;
    }
    (void)uv_run(&p->t->rig.loop, UV_RUN_NOWAIT);
    (void)poll(&(struct pollfd){.fd = p->fd, .events = why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT}, 1, 1);
    if (clock_mono() > until)
        fail_msg("the TLS peer waits in vain");
    return true;
}

bool test_ssl_handshake(struct test_ssl *p)
{
    usec_t until = clock_mono() + 20 * USEC_PER_SEC;
    int r;
    do {
        ERR_clear_error();
        r = SSL_do_handshake(p->ssl);
    } while (r != 1 && wait_for(p, r, until));
    return r == 1;
}

void test_ssl_send(struct test_ssl *p, const void *data, size_t n)
{
    usec_t until = clock_mono() + 20 * USEC_PER_SEC;
    for (size_t at = 0; at < n;) {
        ERR_clear_error();
        int r = SSL_write(p->ssl, (const char *)data + at, (int)(n - at));
        if (r > 0)
            at += (size_t)r;
        else
            assert_true(wait_for(p, r, until));
    }
}

int test_ssl_receive(struct test_ssl *p, void *to, size_t room)
{
    usec_t until = clock_mono() + 20 * USEC_PER_SEC;
    for (;;) {
        ERR_clear_error();
        int r = SSL_read(p->ssl, to, (int)room);
        if (r > 0)
            return r;
        if (SSL_get_error(p->ssl, r) == SSL_ERROR_ZERO_RETURN)
            return 0;
        if (!wait_for(p, r, until))
            return -1;
    }
}

void test_ssl_expect(struct test_ssl *p, struct str what)
{
    AUTO_FREE char *got = mem_alloc(what.n + 1);
    for (size_t have = 0; have < what.n;) {
        int n = test_ssl_receive(p, got + have, what.n - have);
        assert_true(n > 0);
        have += (size_t)n;
        assert_memory_equal(got, what.p, have);
    }
}
