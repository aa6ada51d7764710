/* SPDX-License-Identifier: Apache-2.0 */
/* E2B's events API: the lives of sandboxes as a list, and webhooks that are told of them, signed. */
#pragma once

#include "api/e2b/call.h"

void events_list(struct call *c); /* of all, or of the one in args[0], which may be gone */
void events_webhooks(struct call *c);
void events_webhook_create(struct call *c);
void events_webhook_get(struct call *c);
void events_webhook_set(struct call *c);
void events_webhook_remove(struct call *c);
