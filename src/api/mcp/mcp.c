/* SPDX-License-Identifier: Apache-2.0 */
#include "api/mcp/mcp.h"
#include "api/mcp/handlers.h"
#include "base/id.h"
#include "base/mem.h"

enum { BODY_MAX = 4 << 20 };

static bool mcp_authenticate(struct call *c)
{
    return access_by_peer_or_key(c, mcp_of(c)->config.owner_uid);
}

static const char *mcp_hint(const struct err *err)
{
    return err->code == ERR_UNAUTHENTICATED ? "send it as 'Authorization: Bearer <key>'; 'cove key' prints it" : NULL;
}

/* A page in a browser says where it is from; whoever says nothing is no page. */
static bool mcp_turn_away(struct facade *f, struct http_request *req)
{
    struct str origin = http_header_get(req, "origin");
    if (!origin.p || origin_is_good(origin, http_header_get(req, "host"), core_config(f->core)->domain))
        return false;
    call_fail(call_new(f, req, NULL), 403, "this origin may not call this address");
    return true;
}

static const struct facade_ops mcp_ops = {
    .name = "mcp",
    .body_max = BODY_MAX,
    .body_error = "",
    .wants_json_type = true,
    .method_error = "only POST, and DELETE to end a session",
    .method_error_status = 405,
    .authenticate = mcp_authenticate,
    .answer_error = rpc_answer_error,
    .hint = mcp_hint,
    .preflight = mcp_turn_away,
};

/* What a request needs, and which sandbox it names, is in its body: tools_call() sees to that. */
const struct route mcp_routes[] = {
    {HTTP_METHOD_POST, MCP_PATH, rpc_handle, ROUTE_BODY | ROUTE_READ | ROUTE_OF_SANDBOX, NULL},
    {HTTP_METHOD_DELETE, MCP_PATH, mcp_session_end, ROUTE_READ | ROUTE_OF_SANDBOX, NULL},
};
const size_t mcp_n_routes = ARRAY_SIZE(mcp_routes);

bool mcp_serve(void *mcp, struct http_request *req)
{
    struct mcp *m = mcp;
    return facade_serve(&m->facade, mcp_routes, mcp_n_routes, req);
}

struct mcp *mcp_new(const struct mcp_config *config)
{
    struct mcp *m = mem_new(struct mcp);
    m->config = *config;
    m->tools = tools_describe();
    list_init(&m->used);
    list_init(&m->ended);
    id_random_bytes(m->secret, sizeof(m->secret));
    facade_init(&m->facade, &mcp_ops, config->core, config->refusals);
    return m;
}

void mcp_free(struct mcp *m)
{
    if (!m)
        return;
    jobs_free(m);
    mcp_sessions_free(m);
    facade_fini(&m->facade);
    json_decref(m->tools);
    mem_free(m);
}
