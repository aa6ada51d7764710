/* SPDX-License-Identifier: Apache-2.0 */
/* How a TLS side begins: who it says it is, whom it expects. */
#include "base/mem.h"
#include "egress/tls/tls_internal.h"

#include <arpa/inet.h>
#include <openssl/x509v3.h>

static struct tls *tls_new(struct side *tcp, struct tls_context *context, const char *name, unsigned timeout_ms,
                           const struct side_ops *ops, void *ctx)
{
    struct tls *t = mem_new(struct tls);
    side_init(&t->side, &tls_kind, tcp->loop, ops, ctx);
    t->under = tcp;
    t->context = context;
    context->refs++;
    t->name = mem_strdup(name);
    t->timeout_ms = timeout_ms;
    t->alert = TLS_ALERT_INTERNAL_ERROR;
    buf_init(&t->out, TLS_OUT_MAX);
    buf_init(&t->first, SIDE_BUFFER);
    BIO *bio = BIO_new(context->bio);
    t->ssl = SSL_new(context->ssl);
    if (!t->ssl || !bio) {
        BIO_free(bio);
        return t;
    }
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    SSL_set_bio(t->ssl, bio, bio);
    (void)SSL_set_app_data(t->ssl, t);
    return t;
}

static bool expect_name(SSL *ssl, const char *name)
{
    uint8_t ip[16];
    X509_VERIFY_PARAM *p = SSL_get0_param(ssl);
    if (inet_pton(AF_INET, name, ip) == 1 || inet_pton(AF_INET6, name, ip) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(p, name) == 1;
    X509_VERIFY_PARAM_set_hostflags(p, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    return X509_VERIFY_PARAM_set1_host(p, name, 0) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1;
}

struct side *side_tls_client(struct side *tcp, struct tls_context *world, const char *name, struct str alpn,
                             unsigned timeout_ms, const struct side_ops *ops, void *ctx)
{
    struct tls *t = tls_new(tcp, world, name, timeout_ms, ops, ctx);
    bool is_prepared = t->ssl && name[0] != '\0' && expect_name(t->ssl, name);
    if (is_prepared && alpn.n) /* 0 is success, of this function alone */
        is_prepared = SSL_set_alpn_protos(t->ssl, (const unsigned char *)alpn.p, (unsigned)alpn.n) == 0;
    if (is_prepared)
        SSL_set_connect_state(t->ssl);
    return tls_start(t, is_prepared);
}

int tls_on_server_name(SSL *ssl, int *ret_alert, void *arg UNUSED)
{
    const struct tls *t = tls_of_ssl(ssl);
    struct str asked = str_of(SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name));
    if (asked.n && asked.p[asked.n - 1] == '.')
        asked.n--;
    if (asked.n == 0 || str_eq_nocase(asked, str_of(t->name)))
        return SSL_TLSEXT_ERR_OK;
    *ret_alert = SSL_AD_UNRECOGNIZED_NAME;
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

int tls_on_alpn(SSL *ssl, const unsigned char **ret_choice, unsigned char *ret_n, const unsigned char *offered,
                unsigned n_offered, void *arg UNUSED)
{
    struct str want = str_of(tls_of_ssl(ssl)->alpn);
    for (size_t at = 0; at < n_offered && at + 1 + offered[at] <= n_offered; at += 1u + offered[at]) {
        if (want.n && str_eq(str_n(offered + at + 1, offered[at]), want)) {
            *ret_choice = offered + at + 1;
            *ret_n = offered[at];
            return SSL_TLSEXT_ERR_OK;
        }
    }
    return want.n ? SSL_TLSEXT_ERR_ALERT_FATAL : SSL_TLSEXT_ERR_NOACK;
}

struct side *side_tls_server(struct side *tcp, struct tls_context *sandbox, const struct ca_leaf *leaf,
                             struct str first, struct str alpn, unsigned timeout_ms, const struct side_ops *ops,
                             void *ctx)
{
    struct tls *t = tls_new(tcp, sandbox, leaf->name, timeout_ms, ops, ctx);
    bool is_prepared = t->ssl && alpn.n < sizeof(t->alpn) && buf_append_str(&t->first, first) == 0 &&
                       SSL_use_certificate(t->ssl, leaf->certificate) == 1 &&
                       SSL_use_PrivateKey(t->ssl, leaf->key) == 1;
    if (is_prepared) {
        if (alpn.n)
            memcpy(t->alpn, alpn.p, alpn.n);
        SSL_set_accept_state(t->ssl);
    }
    return tls_start(t, is_prepared);
}

void side_tls_alert(struct side *tcp, enum side_tls_alert alert)
{
    /* A record of type alert, TLS 1.2 as far as the record goes, 2 bytes: fatal, and which. */
    const uint8_t record[] = {21, 3, 3, 0, 2, 2, (uint8_t)alert};
    (void)side_write(tcp, record, sizeof(record)); /* nothing was written before: it fits or the connection is broken */
}
