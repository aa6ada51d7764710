/* SPDX-License-Identifier: Apache-2.0 */
/* /volumecontent/{id}/...: what is in a volume, for whoever has its token. Who calls is told apart by that token alone,
 * the API's key counts for nothing here. */
#pragma once

#include "api/e2b/call.h"

extern const struct route volume_routes[]; /* run once the volume is open */
extern const size_t volume_routes_n;

int volume_content_status_of(const struct call *c, struct err *err);

/* Answers when the path is one of these; false, with nothing done, when it is not. */
bool volume_content_handle(struct e2b *e2b, struct http_request *req);
