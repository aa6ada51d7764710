/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS between a connection and its socket.
 *
 * Theory of operation
 *  1. OpenSSL reads and writes the socket through socket_read() and socket_write(), which know the connection: only
 *     what the kernel itself said (EAGAIN) ends can_read and can_write. "Wants to read" alone does not mean that the
 *     socket is empty, and a socket that is empty does not mean that OpenSSL has nothing left; so a connection is read
 *     until OpenSSL wants more *and* the socket was dry.
 *  2. One call takes at most `tls_budget` bytes from the socket, because records without data (key updates) could keep
 *     OpenSSL busy for as long as a client sends them. A connection that used it up comes again in the next turn.
 *  3. A record that the socket did not take is OpenSSL's; its bytes stay in the connection's queue and are offered
 *     again, the same or more of them, and nothing is sent before them. When the queue is given up, nothing is sent at
 *     all any more.
 *  4. An end without close_notify is a cut, not an end: conn_tls_read() fails. Whoever cuts on purpose sends none
 *     either.
 */
#include "http/conn.h"
#include "http/tls/tls_internal.h"

#include <openssl/err.h>
#include <sys/socket.h>

enum { RECORD = CONN_TLS_RECORD, RECORD_EXTRA = 64 * 1024 };

/* ---- the socket, as OpenSSL sees it ---- */

static bool looks_like_http(char first)
{
    return first >= 'A' && first <= 'Z'; /* of a method; a handshake begins with 22 (RFC 8446 section 5.1) */
}

static int socket_read(BIO *bio, char *to, int n)
{
    struct conn *c = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (c->tls_budget == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    ssize_t r;
    do
        r = recv(c->fd, to, MIN((size_t)n, (size_t)c->tls_budget), MSG_DONTWAIT);
    while (r < 0 && errno == EINTR);
    if (r < 0 && errno == EAGAIN) {
        c->tls_dry = true;
        BIO_set_retry_read(bio);
        return -1;
    }
    if (r <= 0)
        return (int)r;
    c->tls_budget -= (uint32_t)r;
    c->moved_in = true;
    if (!c->tls_begun) {
        c->tls_begun = true;
        c->tls_plain = looks_like_http(to[0]);
        if (c->tls_plain)
            return -1;
    }
    return (int)r;
}

static int socket_write(BIO *bio, const char *from, int n)
{
    struct conn *c = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    ssize_t r;
    do
        r = send(c->fd, from, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (r < 0 && errno == EINTR);
    if (r < 0 && errno == EAGAIN) {
        c->can_write = false;
        BIO_set_retry_write(bio);
    }
    c->moved_out |= r > 0;
    return (int)r;
}

static long socket_control(BIO *bio UNUSED, int what, long number UNUSED, void *pointer UNUSED)
{
    return what == BIO_CTRL_FLUSH;
}

static int socket_create(BIO *bio)
{
    BIO_set_init(bio, 1);
    return 1;
}

BIO_METHOD *conn_tls_method(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "connection");
    if (m && BIO_meth_set_read(m, socket_read) == 1 && BIO_meth_set_write(m, socket_write) == 1 &&
        BIO_meth_set_ctrl(m, socket_control) == 1 && BIO_meth_set_create(m, socket_create) == 1)
        return m;
    BIO_meth_free(m);
    return NULL;
}

/* ---- a connection ---- */

int conn_tls_open(struct conn *c, const struct http_tls *tls)
{
    SSL *ssl = SSL_new(tls->ctx);
    BIO *bio = BIO_new(tls->socket);
    if (!ssl || !bio) {
        SSL_free(ssl);
        BIO_free(bio);
        return -ENOMEM;
    }
    BIO_set_data(bio, c);
    SSL_set_bio(ssl, bio, bio);
    SSL_set_accept_state(ssl);
    c->tls = ssl;
    return 0;
}

static void tls_conn_begin(struct conn *c, size_t budget)
{
    ERR_clear_error();
    c->tls_dry = false;
    c->tls_budget = (uint32_t)budget;
}

/* OpenSSL wants something of the socket: is it to be waited for, or only this call that was enough? */
static void wait_for_socket(struct conn *c, int wanted)
{
    if (wanted == SSL_ERROR_WANT_READ && c->tls_dry)
        c->can_read = false;
    else if (wanted == SSL_ERROR_WANT_READ)
        server_schedule(c->server, c);
}

enum conn_tls_step conn_tls_handshake(struct conn *c)
{
    tls_conn_begin(c, RECORD_EXTRA);
    int r = SSL_do_handshake(c->tls);
    if (r == 1) {
        c->tls_ready = true;
        return CONN_TLS_READY;
    }
    int why = SSL_get_error(c->tls, r);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) {
        wait_for_socket(c, why);
        return CONN_TLS_WAITS;
    }
    return c->tls_plain ? CONN_TLS_PLAIN : CONN_TLS_FAILED;
}

ssize_t conn_tls_read(struct conn *c, void *to, size_t want)
{
    size_t got = 0, n;
    tls_conn_begin(c, want + RECORD_EXTRA);
    while (got < want && !c->tls_broken) {
        if (SSL_read_ex(c->tls, (char *)to + got, want - got, &n) == 1) {
            got += n;
            continue;
        }
        int why = SSL_get_error(c->tls, 0);
        if (why == SSL_ERROR_ZERO_RETURN && got == 0)
            return 0;
        if (why == SSL_ERROR_ZERO_RETURN)
            break;
        if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) {
            wait_for_socket(c, why);
            errno = EAGAIN;
            return got ? (ssize_t)got : -1;
        }
        c->tls_broken = true;
    }
    if (got)
        return (ssize_t)got;
    errno = EPROTO;
    return -1;
}

/* Up to a record of what is to be sent, in one piece. */
static struct str gather(struct conn *c, const struct iovec *v, size_t n, size_t skip)
{
    size_t filled = 0;
    for (size_t i = 0; i < n && filled < RECORD; i++) {
        if (skip >= v[i].iov_len) {
            skip -= v[i].iov_len;
            continue;
        }
        const char *from = (const char *)v[i].iov_base + skip;
        size_t part = MIN(v[i].iov_len - skip, RECORD - filled);
        skip = 0;
        if (part == RECORD)
            return str_n(from, part);
        memcpy(c->server->tls_record + filled, from, part);
        filled += part;
    }
    return str_n(c->server->tls_record, filled);
}

ssize_t conn_tls_send(struct conn *c, const struct iovec *v, size_t n)
{
    size_t sent = 0, done;
    tls_conn_begin(c, RECORD_EXTRA);
    for (struct str s; !c->tls_broken && (s = gather(c, v, n, sent)).n;) {
        if (SSL_write_ex(c->tls, s.p, s.n, &done) == 1) {
            sent += done;
            continue;
        }
        int why = SSL_get_error(c->tls, 0);
        if (why == SSL_ERROR_WANT_WRITE || why == SSL_ERROR_WANT_READ) {
            wait_for_socket(c, why);
            errno = EAGAIN;
            return sent ? (ssize_t)sent : -1;
        }
        c->tls_broken = true;
    }
    if (!c->tls_broken)
        return (ssize_t)sent;
    errno = EPIPE;
    return -1;
}

bool conn_tls_has_part(const struct conn *c)
{
    return c->tls && SSL_has_pending(c->tls);
}

bool conn_tls_notify(struct conn *c)
{
    if (!c->tls_ready || c->tls_broken || c->tls_notified)
        return true;
    if (!c->can_write)
        return false;
    tls_conn_begin(c, 0);
    int r = SSL_shutdown(c->tls);
    c->tls_notified = r >= 0 || SSL_get_error(c->tls, r) != SSL_ERROR_WANT_WRITE;
    return c->tls_notified;
}

void conn_tls_close(struct conn *c)
{
    SSL_free(c->tls);
    c->tls = NULL;
    ERR_clear_error();
}
