/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traffic to sandboxes that do not run at the moment. One that is resumed by traffic is resumed for it and the request
 * is held meanwhile, unread; for the others it is answered. Whether the request may wake it (tokens!) is decided
 * before, by the caller.
 */
#pragma once

#include "api/kit/port_relay.h"

/* The sandbox runs now. */
typedef void (*wake_fn)(void *ctx, struct http_request *req, struct sandbox *sb, uint16_t port);

/* True when it runs already: the caller goes on. Else false, and fn goes on later, or way->refuse() answers. may_wake:
 * false answers at once. */
bool wake_first(const struct port_way *way, void *ctx, struct http_request *req, struct sandbox *sb, uint16_t port,
                bool may_wake, wake_fn fn);
