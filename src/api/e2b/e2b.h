/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The E2B façade: what the public E2B SDKs speak, over our core.
 *
 * One listener serves both planes. Data plane: a request that is addressed to a port of a sandbox (api/e2b/target.h).
 * Port 49983 is the in-sandbox daemon's API, which we answer from here; every other port is relayed to what listens
 * there. All else is the control plane.
 */
#pragma once

#include "http/request.h"
#include "sandbox/core.h"

struct e2b;
struct builder;
struct refusals;

struct e2b_config {
    struct core *core;         /* borrowed, outlives the façade */
    struct builder *builder;   /* the same; NULL: templates are not built here */
    struct refusals *refusals; /* the same: who was turned away; NULL: is not told */
    const char *domain;        /* of <port>-<id>.<domain>; NULL: none; copied */
};

/* What programs inside a sandbox are answered where they look for the daemon: its health, figures and variables. */
extern const struct core_answers e2b_answers;
/* What E2B's users look for inside a sandbox. */
extern const struct core_guest e2b_guest;
extern const struct core_webhooks e2b_webhooks;

struct e2b *e2b_new(const struct e2b_config *config);
void e2b_free(struct e2b *e2b); /* when the server it served is closed */

/*
 * Its claims, in this order (api/kit/facade.h). What is addressed to a sandbox, by headers or Host, is the sandbox's
 * whatever its path, so nobody may look at the path before; the rest is the API's when a route of it matches.
 */
bool e2b_claims(const struct http_request *req);
bool e2b_serve_sandbox(void *e2b, struct http_request *req);
bool e2b_serve_api(void *e2b, struct http_request *req);
