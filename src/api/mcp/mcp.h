/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Model Context Protocol at MCP_PATH: sandboxes as tools and resources for agents.
 *
 * Two eras of it, told apart for each request (rpc.c):
 *   2026-07-28                stateless: each request says its version and what its client can
 *   2025-06-18, 2025-11-25    sessions (session.c): `initialize` makes one, DELETE ends it
 *
 * Keys are those of the native API: Authorization: Bearer, or X-API-KEY; root and the service's owner over the unix
 * socket.
 */
#pragma once

#include "http/request.h"

#define MCP_PATH "/mcp"

struct builder;
struct core;
struct event_log;
struct mcp;
struct refusals;

struct mcp_config {
    struct core *core;         /* borrowed, outlives the façade */
    struct event_log *events;  /* the same */
    struct builder *builder;   /* the same; NULL: images are not pulled */
    struct refusals *refusals; /* the same; NULL: nobody is told */
    uid_t owner_uid;
    const char *version;
};

struct mcp *mcp_new(const struct mcp_config *config);
void mcp_free(struct mcp *m); /* all requests must have ended */

/* A claim (api/kit/facade.h) of MCP_PATH. */
bool mcp_serve(void *mcp, struct http_request *req);
