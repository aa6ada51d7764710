/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's side of TLS over a connected, non-blocking socket. Private to the client. TLS 1.2 and 1.3; the
 * certificate must lead to an authority that OpenSSL trusts by default (SSL_CERT_FILE and SSL_CERT_DIR name others) and
 * be for the host that was asked for.
 */
#pragma once

#include "base/def.h"

struct ssl_st;

/* Shakes hands. -EKEYREJECTED: a certificate that is not to be trusted, or for another host; -EPROTO: no TLS;
 * -ETIMEDOUT; -EPIPE. */
int client_tls_open(int fd, const char *host, int timeout_ms, struct ssl_st **ret_ssl) WARN_UNUSED;
void client_tls_free(struct ssl_st *ssl);

/* As recv() and send() that don't wait: a count, 0 at the end that the other side announced (reading), -EAGAIN,
 * -errno. */
ssize_t client_tls_read(struct ssl_st *ssl, void *p, size_t n) WARN_UNUSED;
ssize_t client_tls_write(struct ssl_st *ssl, const void *p, size_t n) WARN_UNUSED;
int client_tls_half_close(struct ssl_st *ssl) WARN_UNUSED;

/* Open, and with nothing to read. */
bool client_tls_is_quiet(struct ssl_st *ssl);
