/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenSandbox's API, for its SDKs and whoever speaks it: three services on our one port.
 *
 *   lifecycle  /v1/sandboxes, /v1/snapshots, ...            key: OPEN-SANDBOX-API-KEY
 *   execd      /v1/sandboxes/{id}/proxy/44772/...           the sandbox's token (X-EXECD-ACCESS-TOKEN) or the key
 *   egress     /v1/sandboxes/{id}/proxy/18080/...           the sandbox's token (OPENSANDBOX-EGRESS-AUTH) or the key
 *
 * The last two are what /endpoints/{port} answers, with the header that opens them: SDKs send it back with every call.
 * Nothing of them runs inside.
 */
#pragma once

#include "http/request.h"

struct builder;
struct core;
struct opensandbox;
struct refusals;

struct opensandbox_config {
    struct core *core;         /* borrowed, outlives the façade */
    struct builder *builder;   /* the same; NULL: images are not pulled */
    struct refusals *refusals; /* the same; NULL: nobody is told */
};

struct opensandbox *opensandbox_new(const struct opensandbox_config *config);
void opensandbox_free(struct opensandbox *o); /* all requests must have ended */

/* A claim (api/kit/facade.h) of "/v1/". */
bool opensandbox_serve(void *facade, struct http_request *req);
