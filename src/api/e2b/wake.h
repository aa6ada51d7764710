/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traffic to sandboxes that do not run at the moment. One that is resumed by traffic is resumed for it and the request is held meanwhile, unread; for
 * the others it is answered. Whether the request may wake it (tokens!) is decided before, by the caller.
 */
#pragma once

#include "api/e2b/call.h"

/* The sandbox runs now. */
typedef void (*wake_fn)(struct e2b *e2b, struct http_request *req, struct sandbox *sb, uint16_t port);

/*
 * True when it runs already: the caller goes on. Else false, and fn goes on later, or the request is answered: 409 on the way to or from a pause, 502 when it stays
 * paused. may_wake: false answers at once.
 */
bool wake_first(struct e2b *e2b, struct http_request *req, struct sandbox *sb, uint16_t port, bool may_wake,
                wake_fn fn);

/* What a sandbox that does not run answers. */
void wake_refuse(struct http_request *req, const struct sandbox_info *info);
