/* SPDX-License-Identifier: Apache-2.0 */
/* E2B's events API: the lives of sandboxes as a list, and webhooks that are told of them, signed. */
#pragma once

#include "api/e2b/call.h"

void events_list(struct call *c); /* of all, or of the one in args[0], which may be gone */
route_handler events_webhooks, events_webhook_create, events_webhook_get, events_webhook_set, events_webhook_remove;
