/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code that is run and judged: the HTTP API of SandboxFusion, at /run_code, /run_jupyter, /v1/ping, /submit and the
 * routes beside it (docs/RUN-CODE.md).
 *
 * A key is shown as X-API-KEY, as Authorization: Bearer, or as the password of an address (http://x:KEY@host): clients
 * of this API know no keys, but addresses.
 */
#pragma once

#include "http/request.h"

struct core;
struct fusion;
struct refusals;

struct fusion_config {
    struct core *core;         /* borrowed, outlives the façade */
    struct refusals *refusals; /* the same; NULL: nobody is told */
    uid_t owner_uid;           /* who may connect to the unix socket without a key */
    bool is_open;              /* who shows no key acts for the default tenant */
};

struct fusion *fusion_new(const struct fusion_config *config);
void fusion_free(struct fusion *f); /* all requests must have ended */

/* A claim (api/kit/facade.h): false for a path that isn't here. */
bool fusion_serve(void *fusion, struct http_request *req);
