/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all TLS connections of a kind share. TLS 1.2 and 1.3 only; no session is kept or resumed, no renegotiation, no
 * early data, no compression.
 */
#pragma once

#include "base/err.h"

struct tls_context;

/*
 * For our connections to the world: certificates are judged by the CA store of this machine and those in more_anchors,
 * a PEM file (NULL: none). Reads them all now. ERR_FAILED_PRECONDITION: there is no store to be found.
 */
int tls_context_world(const char *more_anchors, struct tls_context **ret_context, struct err *err) WARN_UNUSED;

/* For connections of sandboxes that we terminate. One is enough for all: what is a sandbox's own comes with its CA. */
int tls_context_sandbox(struct tls_context **ret_context, struct err *err) WARN_UNUSED;

void tls_context_free(struct tls_context *c); /* sides that use it may live on */
