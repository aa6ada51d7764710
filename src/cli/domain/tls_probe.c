/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/domain/tls_probe.h"
#include "base/clock.h"
#include "base/fd.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

/* Until the descriptor is ready or the time is up: false. */
static bool wait_for(int fd, short events, usec_t until)
{
    for (;;) {
        usec_t now = clock_mono();
        struct pollfd pfd = {.fd = fd, .events = events};
        int n = now < until ? poll(&pfd, 1, (int)((until - now) / USEC_PER_MS) + 1) : 0;
        if (n > 0)
            return true;
        if (n == 0 || errno != EINTR)
            return false;
    }
}

/* -errno */
static int dial(const struct sockaddr *address, socklen_t length, usec_t until)
{
    int error = 0;
    socklen_t n = sizeof(error);
    AUTO_CLOSE int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, address, length) == 0)
        return TAKE_FD(fd);
    if (errno != EINPROGRESS)
        return -errno;
    if (!wait_for(fd, POLLOUT, until))
        return -ETIMEDOUT;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
        return -errno;
    return error ? -error : TAKE_FD(fd);
}

static X509 *first_certificate(struct str pem)
{
    BIO *bio = BIO_new_mem_buf(pem.p, (int)pem.n);
    X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    BIO_free(bio);
    return cert;
}

static enum tls_probe shake_hands(SSL *ssl, int fd, const X509 *expected, usec_t until)
{
    int r;
    while ((r = SSL_connect(ssl)) != 1) {
        int why = SSL_get_error(ssl, r);
        if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE)
            return TLS_PROBE_OTHER;
        if (!wait_for(fd, why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, until))
            return TLS_PROBE_SILENT;
    }
    X509 *shown = SSL_get1_peer_certificate(ssl);
    bool is_same = shown && X509_cmp(shown, expected) == 0;
    X509_free(shown);
    return is_same ? TLS_PROBE_SAME : TLS_PROBE_OTHER;
}

enum tls_probe tls_probe(const struct sockaddr *address, socklen_t length, const char *server_name, struct str pem,
                         int timeout_ms)
{
    usec_t until = clock_mono() + (usec_t)timeout_ms * USEC_PER_MS;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    AUTO_CLOSE int fd = dial(address, length, until);
    if (fd < 0)
        return fd == -ECONNREFUSED ? TLS_PROBE_REFUSED : TLS_PROBE_SILENT;
    enum tls_probe found = TLS_PROBE_OTHER;
    (void)sigaction(SIGPIPE, &ignore, &before); /* of a peer that leaves in the middle; OpenSSL knows no MSG_NOSIGNAL */
    X509 *expected = first_certificate(pem);
    SSL_CTX *tls = SSL_CTX_new(TLS_client_method());
    SSL *ssl = tls ? SSL_new(tls) : NULL;
    if (expected && ssl && SSL_set_fd(ssl, fd) == 1 && SSL_set_tlsext_host_name(ssl, server_name) == 1)
        found = shake_hands(ssl, fd, expected, until);
    SSL_free(ssl);
    (void)sigaction(SIGPIPE, &before, NULL);
    SSL_CTX_free(tls);
    X509_free(expected);
    ERR_clear_error();
    return found;
}
