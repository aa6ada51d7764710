/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The service on this machine and the domain: could it listen where listen_tls says, does it know of the change, does
 * it show the new certificate? All is found out from outside, as clients will. Blocks.
 */
#pragma once

#include "cli/command.h"
#include "config/domain.h"

/* Before a domain is set: is each address of listen_tls free, or the service's already? -1: ctx->err and what to do. */
int domain_check_ports(struct context *ctx, const struct config *config) WARN_UNUSED;

/* Has the service read the domain anew. False: none runs here that can be told. */
bool domain_tell(const struct config *config);

/* Has coved started us, at its start or through its renewer? It then sees by itself what has changed. */
bool domain_is_asked_by_service(void);

/* After domain_tell(): until clients are shown its certificate at every address of listen_tls. -1: ctx->err and what to
 * do. */
int domain_await(struct context *ctx, const struct config *config, const struct domain *d) WARN_UNUSED;
