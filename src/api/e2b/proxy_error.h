/* SPDX-License-Identifier: Apache-2.0 */
/* What the way to a sandbox answers by itself. Clients read these texts: JSON, or a page for people who came with a
 * browser. */
#pragma once

#include "http/request.h"

/* {"sandboxId":…,"message":…[,"port":…],"code":…}, or a page. port 0: none */
void proxy_error(struct http_request *req, int status, struct str sandbox_id, const char *message, uint16_t port);
void proxy_error_not_found(struct http_request *req, struct str sandbox_id);                  /* 502 */
void proxy_error_port_closed(struct http_request *req, struct str sandbox_id, uint16_t port); /* 502 */
void proxy_error_internal_route(struct http_request *req, struct str path);                   /* 404 */
void proxy_error_bad_target(struct http_request *req, const char *problem);                   /* 400, plain text */
