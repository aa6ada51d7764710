/* SPDX-License-Identifier: Apache-2.0 */
/* Relays a request to a port inside a sandbox, HTTP and WebSocket. */
#pragma once

#include "api/e2b/call.h"

enum { PORT_PROXY_RELAYS_MAX = 512 }; /* of one sandbox at a time: beyond 429 */

void port_proxy_handle(struct e2b *e2b, struct http_request *req, struct sandbox *sb, uint16_t port);

/* True when the sandbox asks for a token with its traffic and the request has not got it; then it was answered. */
struct sandbox_info;
bool port_proxy_refuses(struct e2b *e2b, struct http_request *req, const struct sandbox_info *info);
