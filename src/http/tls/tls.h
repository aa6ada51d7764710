/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a TLS listener of the server shows its clients: one certificate and its key, for all names.
 *
 *   struct http_tls *tls;
 *   r = http_tls_new(chain, key, &tls);
 *   r = http_server_listen_tls(server, fd, tls);
 *
 * TLS 1.2 (ECDHE with AEAD only) and 1.3, ALPN http/1.1 or none, no renegotiation, no early data, no client
 * certificates. Sessions are resumed by tickets, whose keys are made here, live in this process alone and are replaced
 * every few hours.
 */
#pragma once

#include "base/str.h"

struct http_tls;

/*
 * Both in PEM: the certificate with what leads from it to a root behind it, and its unencrypted key. -EINVAL: not PEM,
 * or the key belongs to something else; -EKEYREJECTED: what OpenSSL would not serve with, such as a key that is too
 * short.
 */
int http_tls_new(struct str chain, struct str key, struct http_tls **ret_tls) WARN_UNUSED;

/* After the servers that listen with it are closed. */
void http_tls_free(struct http_tls *tls);
DEFINE_AUTO(struct http_tls *, http_tls_free)
