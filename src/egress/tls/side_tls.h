/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sides that are TLS over another side, which they take: side_close() closes both. At most SIDE_BUFFER bytes of
 * ciphertext are kept here, and only while the other side does not take them; an idle connection has no buffers.
 *
 * The upstream's certificate is checked before on_ready. The sandbox's side of TLS is made after that, so no
 * certificate of ours ever vouches for a server that has not shown one of its own.
 */
#pragma once

#include "egress/flow/side.h"
#include "egress/tls/ca.h"
#include "egress/tls/tls_context.h"

/*
 * Ours towards the world. tcp may still be connecting; the time limit counts from when it is. name: normalised, becomes
 * SNI, and the certificate must be for it. alpn: a protocol list in wire form (length byte before each), empty: none.
 * on_failed says what is wrong with a certificate.
 */
struct side *side_tls_client(struct side *tcp, struct tls_context *world, const char *name, struct str alpn,
                             unsigned timeout_ms, const struct side_ops *ops, void *ctx);

/*
 * Our end of a sandbox's connection. first: what was read from tcp already (the ClientHello), SIDE_BUFFER at most. A
 * client that asks for another name than the leaf's fails. alpn: the protocol that upstream chose, side_tls_alpn() of
 * it; empty: none is chosen here either.
 */
struct side *side_tls_server(struct side *tcp, struct tls_context *sandbox, const struct ca_leaf *leaf,
                             struct str first, struct str alpn, unsigned timeout_ms, const struct side_ops *ops,
                             void *ctx);

struct str side_tls_alpn(const struct side *s); /* the chosen protocol, when ready; empty: none. Lives as long as s */

enum side_tls_alert {
    TLS_ALERT_HANDSHAKE_FAILURE = 40,
    TLS_ALERT_BAD_CERTIFICATE = 42,
    TLS_ALERT_CERTIFICATE_EXPIRED = 45,
    TLS_ALERT_UNKNOWN_CA = 48,
    TLS_ALERT_ACCESS_DENIED = 49,
    TLS_ALERT_PROTOCOL_VERSION = 70,
    TLS_ALERT_INTERNAL_ERROR = 80,
    TLS_ALERT_UNRECOGNIZED_NAME = 112,
};

/* For a client whose ClientHello was read and not answered: a fatal alert in the clear, on the plain side; then
 * side_linger() it. */
void side_tls_alert(struct side *tcp, enum side_tls_alert alert);

/* The alert that tells a client what made this side (of side_tls_client) fail. */
enum side_tls_alert side_tls_failure_alert(const struct side *s);
