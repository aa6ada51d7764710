/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to ports of programs in a sandbox, as E2B has them. */
#pragma once

#include "api/e2b/call.h"
#include "api/kit/wake.h"

extern const struct port_way traffic_way;

void traffic_handle(struct e2b *e2b, struct http_request *req, struct sandbox *sb, uint16_t port);

/* True when the sandbox asks for a token with its traffic and the request has not got it; then it was answered. */
bool traffic_refuses(struct e2b *e2b, struct http_request *req, const struct sandbox_info *info);
/* What a sandbox that does not run answers: 409 on the way to or from a pause, 502 when it stays paused. */
void traffic_refuse_asleep(struct http_request *req, const struct sandbox_info *info);
