/* SPDX-License-Identifier: Apache-2.0 */
/* Who answers at an address with TLS, told by the certificate that is shown. Nothing is trusted and nothing is sent but a handshake. */
#pragma once

#include "base/def.h"
#include "base/str.h"

#include <sys/socket.h>

enum tls_probe {
    TLS_PROBE_SAME,    /* it shows the first certificate of `pem` */
    TLS_PROBE_OTHER,   /* somebody is there, who shows another one, or speaks no TLS */
    TLS_PROBE_SILENT,  /* somebody may be there, but does not answer in time */
    TLS_PROBE_REFUSED, /* nobody is */
};

/* server_name: what the client asks for (SNI). Blocks for timeout_ms at most. */
enum tls_probe tls_probe(const struct sockaddr *address, socklen_t length, const char *server_name, struct str pem,
                         int timeout_ms);
