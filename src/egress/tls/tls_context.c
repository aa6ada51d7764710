/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/tls/tls_context.h"
#include "base/mem.h"
#include "egress/tls/tls_internal.h"

#include <openssl/err.h>
#include <unistd.h>

/* Where distributions keep the certificates of the CAs that they trust, as one file. */
static const char *const stores[] = {
    "/etc/ssl/certs/ca-certificates.crt", /* Debian, Ubuntu, Alpine, Arch */
    "/etc/pki/tls/certs/ca-bundle.crt",   /* Fedora */
    "/etc/ssl/ca-bundle.pem",             /* openSUSE */
    "/etc/ssl/cert.pem",
};

int tls_error(struct err *err, enum err_code code, const char *what)
{
    unsigned long e = ERR_peek_last_error();
    const char *reason = e ? ERR_reason_error_string(e) : NULL;
    (void)err_set(err, code, "%s: %s", what, reason ? reason : "OpenSSL does not say why");
    ERR_clear_error();
    return -1;
}

/* Bytes of a server's chain, which OpenSSL keeps as long as the connection lasts. Those of public authorities have a
 * third of it. */
enum { CHAIN_MAX = 32 << 10 };

static void configure(SSL_CTX *ctx)
{
    (void)SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    (void)SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
    (void)SSL_CTX_set_num_tickets(ctx, 0);
    (void)SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_max_early_data(ctx, 0);
    (void)SSL_CTX_set_recv_max_early_data(ctx, 0);
    (void)SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(ctx, 1);
    SSL_CTX_set_default_read_buffer_len(ctx, TLS_READ_AHEAD);
}

static int context_new(const SSL_METHOD *method, struct tls_context **ret_context, struct err *err)
{
    struct tls_context *c = mem_new(struct tls_context);
    c->refs = 1;
    buf_init(&c->scratch, TLS_OUT_MAX);
    c->ssl = SSL_CTX_new(method);
    c->bio = tls_bio_method();
    if (!c->ssl || !c->bio) {
        tls_context_unref(c);
        return tls_error(err, ERR_INTERNAL, "TLS");
    }
    configure(c->ssl);
    *ret_context = c;
    return 0;
}

static int load_system_store(SSL_CTX *ctx, struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(stores); i++) {
        if (access(stores[i], R_OK) < 0)
            continue;
        if (SSL_CTX_load_verify_file(ctx, stores[i]) == 1)
            return 0;
        return tls_error(err, ERR_FAILED_PRECONDITION, stores[i]);
    }
    return err_set(err, ERR_FAILED_PRECONDITION,
                   "no certificates of trusted CAs on this machine: install ca-certificates");
}

int tls_context_world(const char *more_anchors, struct tls_context **ret_context, struct err *err)
{
    struct tls_context *c;
    if (context_new(TLS_client_method(), &c, err) < 0)
        return -1;
    int r = load_system_store(c->ssl, err);
    if (r == 0 && more_anchors && SSL_CTX_load_verify_file(c->ssl, more_anchors) != 1)
        r = tls_error(err, ERR_FAILED_PRECONDITION, more_anchors);
    if (r < 0) {
        tls_context_unref(c);
        return -1;
    }
    SSL_CTX_set_verify(c->ssl, SSL_VERIFY_PEER, tls_verify);
    SSL_CTX_set_max_cert_list(c->ssl, CHAIN_MAX);
    *ret_context = c;
    return 0;
}

int tls_context_sandbox(struct tls_context **ret_context, struct err *err)
{
    struct tls_context *c;
    if (context_new(TLS_server_method(), &c, err) < 0)
        return -1;
    (void)SSL_CTX_set_tlsext_servername_callback(c->ssl, tls_on_server_name);
    SSL_CTX_set_alpn_select_cb(c->ssl, tls_on_alpn, NULL);
    *ret_context = c;
    return 0;
}

void tls_context_unref(struct tls_context *c)
{
    if (--c->refs > 0)
        return;
    SSL_CTX_free(c->ssl);
    BIO_meth_free(c->bio);
    buf_fini(&c->scratch);
    mem_free(c);
}

void tls_context_free(struct tls_context *c)
{
    if (c)
        tls_context_unref(c);
}
