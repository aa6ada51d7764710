/* SPDX-License-Identifier: Apache-2.0 */
#include "http/tls/client_tls.h"
#include "base/clock.h"
#include "http/endpoint.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

/* ---- a BIO whose writes raise no SIGPIPE, as OpenSSL's own do ---- */

static int client_bio_fd(BIO *bio)
{
    return (int)(intptr_t)BIO_get_data(bio);
}

static int client_bio_read(BIO *bio, char *p, int n)
{
    ssize_t r = recv(client_bio_fd(bio), p, (size_t)MAX(n, 0), MSG_DONTWAIT);
    BIO_clear_retry_flags(bio);
    if (r < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_read(bio);
    return (int)r;
}

static int client_bio_write(BIO *bio, const char *p, int n)
{
    ssize_t r = send(client_bio_fd(bio), p, (size_t)MAX(n, 0), MSG_DONTWAIT | MSG_NOSIGNAL);
    BIO_clear_retry_flags(bio);
    if (r < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_write(bio);
    return (int)r;
}

static long client_bio_control(BIO *bio UNUSED, int command, long number UNUSED, void *pointer UNUSED)
{
    return command == BIO_CTRL_FLUSH;
}

/* Made once; the process that ends frees it. */
static BIO_METHOD *client_bio_method(void)
{
    static BIO_METHOD *method;
    if (method)
        return method;
    method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    if (method &&
        (BIO_meth_set_read(method, client_bio_read) != 1 || BIO_meth_set_write(method, client_bio_write) != 1 ||
         BIO_meth_set_ctrl(method, client_bio_control) != 1)) {
        BIO_meth_free(method);
        method = NULL;
    }
    return method;
}

static BIO *client_bio_new(int fd)
{
    BIO_METHOD *method = client_bio_method();
    BIO *bio = method ? BIO_new(method) : NULL;
    if (!bio)
        return NULL;
    BIO_set_data(bio, (void *)(intptr_t)fd);
    BIO_set_init(bio, 1);
    return bio;
}

/* ---- the connection ---- */

/* An address stands in the certificate as one; names alone are told to the server. */
static bool client_tls_expect(SSL *ssl, const char *host)
{
    unsigned char address[sizeof(struct in6_addr)];
    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

static SSL *client_tls_new(int fd, const char *host)
{
    static const unsigned char alpn[] = "\x08http/1.1";
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl = NULL;
    if (ctx && SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) == 1 && SSL_CTX_set_default_verify_paths(ctx) == 1) {
        SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
        (void)SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        ssl = SSL_new(ctx);
    }
    SSL_CTX_free(ctx);
    BIO *bio = ssl ? client_bio_new(fd) : NULL;
    if (bio)
        SSL_set_bio(ssl, bio, bio);
    if (bio && client_tls_expect(ssl, host) && SSL_set_alpn_protos(ssl, alpn, sizeof(alpn) - 1) == 0)
        return ssl;
    SSL_free(ssl);
    return NULL;
}

/* What SSL_get_error() said, as errno says it. */
static int client_tls_error(SSL *ssl, int r)
{
    int why = SSL_get_error(ssl, r), saved = errno;
    bool is_untrusted = SSL_get_verify_result(ssl) != X509_V_OK;
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE)
        return -EAGAIN;
    ERR_clear_error();
    if (why == SSL_ERROR_SYSCALL)
        return saved && saved != ECONNRESET ? -saved : -EPIPE;
    return is_untrusted ? -EKEYREJECTED : -EPROTO;
}

int client_tls_open(int fd, const char *host, int timeout_ms, struct ssl_st **ret_ssl)
{
    usec_t end = clock_mono() + (usec_t)MAX(timeout_ms, 0) * USEC_PER_MS;
    SSL *ssl = client_tls_new(fd, host);
    int r = ssl ? -EAGAIN : -ENOMEM, got;
    while (r == -EAGAIN) {
        usec_t now = clock_mono();
        short events;
        errno = 0;
        got = SSL_connect(ssl);
        r = got == 1 ? 0 : client_tls_error(ssl, got);
        int left = timeout_ms < 0 ? -1 : (int)((end - MIN(now, end)) / USEC_PER_MS);
        if (r == -EAGAIN) {
            int w = endpoint_wait(fd, SSL_want_write(ssl) ? POLLOUT : POLLIN, left, &events);
            r = w < 0 ? w : r;
        }
    }
    if (r < 0) {
        SSL_free(ssl);
        return r;
    }
    *ret_ssl = ssl;
    return 0;
}

void client_tls_free(struct ssl_st *ssl)
{
    if (!ssl) /* so that nothing of OpenSSL is called for plain connections (cli/openssl.c) */
        return;
    if (SSL_is_init_finished(ssl))
        (void)SSL_shutdown(ssl); /* told, not waited for */
    ERR_clear_error();
    SSL_free(ssl);
}

ssize_t client_tls_read(struct ssl_st *ssl, void *p, size_t n)
{
    size_t done = 0;
    errno = 0;
    int r = SSL_read_ex(ssl, p, n, &done);
    if (r == 1)
        return (ssize_t)done;
    return SSL_get_error(ssl, r) == SSL_ERROR_ZERO_RETURN ? 0 : client_tls_error(ssl, r);
}

ssize_t client_tls_write(struct ssl_st *ssl, const void *p, size_t n)
{
    size_t done = 0;
    errno = 0;
    int r = SSL_write_ex(ssl, p, n, &done);
    return r == 1 ? (ssize_t)done : client_tls_error(ssl, r);
}

int client_tls_half_close(struct ssl_st *ssl)
{
    int r = SSL_shutdown(ssl);
    return r >= 0 ? 0 : client_tls_error(ssl, r);
}

bool client_tls_is_quiet(struct ssl_st *ssl)
{
    char peek;
    size_t done;
    errno = 0;
    int r = SSL_peek_ex(ssl, &peek, sizeof(peek), &done); /* takes in what is no data, as tickets */
    return r != 1 && client_tls_error(ssl, r) == -EAGAIN;
}
