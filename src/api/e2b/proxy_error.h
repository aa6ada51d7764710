/* SPDX-License-Identifier: Apache-2.0 */
/* What the way to a sandbox answers by itself. Clients read these texts: JSON, or a page for people who came with a browser. */
#pragma once

#include "http/request.h"

void proxy_error_not_found(struct http_request *req, struct str sandbox_id);                   /* 502 */
void proxy_error_changing(struct http_request *req, struct str sandbox_id, bool pausing);      /* 409 */
void proxy_error_port_closed(struct http_request *req, struct str sandbox_id, uint16_t port);  /* 502 */
void proxy_error_too_many(struct http_request *req, struct str sandbox_id);                    /* 429 */
void proxy_error_bad_answer(struct http_request *req, struct str sandbox_id, uint16_t port);   /* 502 */
void proxy_error_traffic_token(struct http_request *req, struct str sandbox_id, bool missing); /* 403 */
void proxy_error_internal_route(struct http_request *req, struct str path);                    /* 404 */
void proxy_error_bad_target(struct http_request *req, const char *problem);                    /* 400, plain text */

/* Does the client want a page? */
