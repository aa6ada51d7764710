/* SPDX-License-Identifier: Apache-2.0 */
#include "http/tls/tls.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/mem.h"
#include "http/conn.h"
#include "http/tls/tls_internal.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

/* ---- tickets ---- */

static void ticket_key_make(struct ticket_key *key, uint64_t now)
{
    id_random_bytes(key->name, sizeof(key->name));
    id_random_bytes(key->cipher, sizeof(key->cipher));
    id_random_bytes(key->mac, sizeof(key->mac));
    key->made = now;
}

static void tls_rotate(struct http_tls *tls)
{
    const uint64_t life = TICKET_HOURS * 3600ULL * USEC_PER_SEC;
    uint64_t now = clock_mono();
    if (now - tls->now.made > life) {
        tls->before = tls->now;
        ticket_key_make(&tls->now, now);
    }
    if (tls->before.made && now - tls->before.made > 2 * life)
        mem_wipe(&tls->before, sizeof(tls->before));
}

static bool apply_key(const struct ticket_key *key, unsigned char *iv, EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac,
                      bool encrypt)
{
    OSSL_PARAM hash[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char[]){"SHA256"}, 0),
                         OSSL_PARAM_construct_end()};
    return EVP_CipherInit_ex(cipher, EVP_aes_256_cbc(), NULL, key->cipher, iv, encrypt) == 1 &&
           EVP_MAC_init(mac, key->mac, sizeof(key->mac), hash) == 1;
}

/* SSL_CTX_set_tlsext_ticket_key_evp_cb(3): -1 is an error, 0 an unknown key, 1 fine, 2 fine but a new ticket is due. */
static int on_ticket(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac,
                     int encrypt)
{
    struct http_tls *tls = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    tls_rotate(tls);
    if (encrypt) {
        memcpy(name, tls->now.name, TICKET_NAME);
        id_random_bytes(iv, (size_t)EVP_CIPHER_get_iv_length(EVP_aes_256_cbc()));
        return apply_key(&tls->now, iv, cipher, mac, true) ? 1 : -1;
    }
    if (memcmp(name, tls->now.name, TICKET_NAME) == 0)
        return apply_key(&tls->now, iv, cipher, mac, false) ? 1 : -1;
    if (tls->before.made && memcmp(name, tls->before.name, TICKET_NAME) == 0)
        return apply_key(&tls->before, iv, cipher, mac, false) ? 2 : -1;
    return 0;
}

/* ---- ALPN ---- */

/* A client that speaks other protocols only is told so (RFC 7301 section 3.2). */
static int on_alpn(SSL *ssl UNUSED, const unsigned char **ret_name, unsigned char *ret_n, const unsigned char *offered,
                   unsigned n, void *ctx UNUSED)
{
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *name;
    if (SSL_select_next_proto(&name, ret_n, ours, sizeof(ours) - 1, offered, n) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *ret_name = name;
    return SSL_TLSEXT_ERR_OK;
}

/* ---- the certificate ---- */

/* Without it OpenSSL would ask for a passphrase at the terminal. */
static int tls_no_passphrase(char *to UNUSED, int size UNUSED, int writing UNUSED, void *ctx UNUSED)
{
    return -1;
}

static int use_chain(SSL_CTX *ctx, BIO *in)
{
    X509 *leaf = PEM_read_bio_X509(in, NULL, tls_no_passphrase, NULL), *more;
    if (!leaf)
        return -EINVAL;
    int r = SSL_CTX_use_certificate(ctx, leaf) == 1 ? 0 : -EKEYREJECTED;
    X509_free(leaf);
    while (r == 0 && (more = PEM_read_bio_X509(in, NULL, tls_no_passphrase, NULL))) {
        if (SSL_CTX_add0_chain_cert(ctx, more) != 1) {
            X509_free(more);
            r = -EKEYREJECTED;
        }
    }
    return r;
}

static int use_key(SSL_CTX *ctx, BIO *in)
{
    EVP_PKEY *key = PEM_read_bio_PrivateKey(in, NULL, tls_no_passphrase, NULL);
    if (!key)
        return -EINVAL;
    int r = SSL_CTX_use_PrivateKey(ctx, key) != 1 || SSL_CTX_check_private_key(ctx) != 1 ? -EINVAL : 0;
    EVP_PKEY_free(key);
    return r;
}

static int use_pem(SSL_CTX *ctx, struct str pem, int (*use)(SSL_CTX *ctx, BIO *in))
{
    if (pem.n == 0 || pem.n > INT32_MAX)
        return -EINVAL;
    BIO *in = BIO_new_mem_buf(pem.p, (int)pem.n);
    int r = in ? use(ctx, in) : -ENOMEM;
    BIO_free(in);
    return r;
}

static int tls_configure(struct http_tls *tls, struct str chain, struct str key)
{
    SSL_CTX *ctx = tls->ctx;
    if (SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1 ||
        SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM:ECDHE+CHACHA20") != 1 ||
        SSL_CTX_set_session_id_context(ctx, (const unsigned char *)"cove", 4) != 1 ||
        SSL_CTX_set_tlsext_ticket_key_evp_cb(ctx, on_ticket) != 1 || SSL_CTX_set_num_tickets(ctx, 1) != 1)
        return -EINVAL;
    (void)SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE |
                                       SSL_OP_PRIORITIZE_CHACHA);
    /* Idle connections hold no buffers; what is written may have moved in the queue when it is written again. */
    (void)SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                    SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_AUTO_RETRY);
    (void)SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_timeout(ctx, TICKET_HOURS * 3600);
    SSL_CTX_set_read_ahead(ctx, 1);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_NONE, NULL);
    SSL_CTX_set_alpn_select_cb(ctx, on_alpn, NULL);
    SSL_CTX_set_app_data(ctx, tls);
    int r = use_pem(ctx, chain, use_chain);
    return r < 0 ? r : use_pem(ctx, key, use_key);
}

int http_tls_new(struct str chain, struct str key, struct http_tls **ret_tls)
{
    AUTO(http_tls_free) struct http_tls *tls = mem_new(struct http_tls);
    ticket_key_make(&tls->now, clock_mono());
    tls->ctx = SSL_CTX_new(TLS_server_method());
    tls->socket = conn_tls_method();
    int r = tls->ctx && tls->socket ? tls_configure(tls, chain, key) : -ENOMEM;
    ERR_clear_error();
    if (r < 0)
        return r;
    *ret_tls = TAKE_PTR(tls);
    return 0;
}

void http_tls_free(struct http_tls *tls)
{
    if (!tls)
        return;
    SSL_CTX_free(tls->ctx);
    BIO_meth_free(tls->socket);
    mem_wipe(tls, sizeof(*tls));
    mem_free(tls);
}
