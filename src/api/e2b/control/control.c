/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/control/control.h"
#include "api/e2b/call.h"
#include "api/e2b/control/sandbox_json.h"
#include "api/e2b/templates/templates.h"
#include "api/e2b/volumes/volume_content.h"
#include "http/client/connect.h"
#include "sandbox/key.h"

static void control_health(struct call *c)
{
    call_respond(c, 200, "text/plain", STR("Cove is well\n"));
}

/* route->what of features that come with other building blocks. */
static void control_not_yet(struct call *c)
{
    call_fail(c, 501, "%s are not available yet", c->route->what);
}

const struct route control_routes[] = {
    {HTTP_METHOD_GET, "/health", control_health, ROUTE_OPEN, NULL},
    {HTTP_METHOD_POST, "/sandboxes", control_create, ROUTE_BODY, NULL},
    {HTTP_METHOD_POST, "/v2/sandboxes", control_create, ROUTE_BODY, "v2"},
    {HTTP_METHOD_GET, "/sandboxes", control_list, 0, NULL},
    {HTTP_METHOD_GET, "/v2/sandboxes", control_list_v2, 0, NULL},
    {HTTP_METHOD_GET, "/sandboxes/metrics", control_metrics_many, 0, NULL},
    {HTTP_METHOD_GET, "/sandboxes/{}", control_get, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_DELETE, "/sandboxes/{}", control_kill, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/sandboxes/{}/connect", control_connect, ROUTE_BODY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/v2/sandboxes/{}/connect", control_connect_v2, ROUTE_BODY_MAY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/sandboxes/{}/resume", control_resume, ROUTE_BODY_MAY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/sandboxes/{}/timeout", control_timeout, ROUTE_BODY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/sandboxes/{}/refreshes", control_refresh, ROUTE_BODY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_PUT, "/sandboxes/{}/network", control_network, ROUTE_BODY_MAY | ROUTE_SANDBOX | ROUTE_WIDE, NULL},
    {HTTP_METHOD_GET, "/sandboxes/{}/metrics", control_metrics, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/sandboxes/{}/logs", control_logs, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/v2/sandboxes/{}/logs", control_logs_v2, ROUTE_SANDBOX, NULL},

    {HTTP_METHOD_POST, "/sandboxes/{}/pause", control_pause, ROUTE_BODY_MAY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/sandboxes/{}/snapshots", control_snapshot, ROUTE_BODY_MAY | ROUTE_SANDBOX | ROUTE_WIDE, NULL},
    {HTTP_METHOD_POST, "/sandboxes/{}/fork", control_fork, ROUTE_BODY_MAY | ROUTE_SANDBOX | ROUTE_WIDE, NULL},
    {HTTP_METHOD_GET, "/snapshots", control_snapshots, 0, NULL},

    {HTTP_METHOD_GET, "/templates", templates_list, 0, NULL},
    {HTTP_METHOD_POST, "/templates", control_not_yet, 0, "builds of the first version"},
    {HTTP_METHOD_GET, "/v2/templates", templates_list_v2, 0, NULL},
    {HTTP_METHOD_POST, "/v2/templates", templates_request, ROUTE_BODY, NULL},
    {HTTP_METHOD_POST, "/v3/templates", templates_request, ROUTE_BODY, NULL},
    {HTTP_METHOD_POST, "/templates/tags", templates_tags_add, ROUTE_BODY, NULL},
    {HTTP_METHOD_DELETE, "/templates/tags", templates_tags_remove, ROUTE_BODY, NULL},
    {HTTP_METHOD_GET, "/templates/aliases/{}", templates_alias, 0, NULL},
    {HTTP_METHOD_GET, "/templates/{}", templates_get, 0, NULL},
    {HTTP_METHOD_POST, "/templates/{}", control_not_yet, 0, "builds of the first version"},
    {HTTP_METHOD_PATCH, "/templates/{}", templates_publish, ROUTE_BODY_MAY, NULL},
    {HTTP_METHOD_PATCH, "/v2/templates/{}", templates_publish, ROUTE_BODY_MAY, "names"},
    {HTTP_METHOD_DELETE, "/templates/{}", templates_delete, 0, NULL},
    {HTTP_METHOD_GET, "/templates/{}/tags", templates_tags_list, 0, NULL},
    {HTTP_METHOD_GET, "/templates/{}/files/{}", templates_upload_link, ROUTE_USE, NULL},
    {HTTP_METHOD_PUT, "/templates/{}/files/{}", templates_upload, ROUTE_OPEN, NULL},
    {HTTP_METHOD_POST, "/templates/{}/builds/{}", control_not_yet, 0, "builds of the first version"},
    {HTTP_METHOD_POST, "/v2/templates/{}/builds/{}", templates_start, ROUTE_BODY, NULL},
    {HTTP_METHOD_GET, "/templates/{}/builds/{}/status", templates_status, 0, "status"},
    {HTTP_METHOD_GET, "/templates/{}/builds/{}/logs", templates_status, 0, "logs"},

    {HTTP_METHOD_GET, "/events/sandboxes", events_list, 0, NULL},
    {HTTP_METHOD_GET, "/events/sandboxes/{}", events_list, ROUTE_OF_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/events/webhooks", events_webhooks, 0, NULL},
    {HTTP_METHOD_POST, "/events/webhooks", events_webhook_create, ROUTE_BODY, NULL},
    {HTTP_METHOD_GET, "/events/webhooks/{}", events_webhook_get, 0, NULL},
    {HTTP_METHOD_PATCH, "/events/webhooks/{}", events_webhook_set, ROUTE_BODY, NULL},
    {HTTP_METHOD_DELETE, "/events/webhooks/{}", events_webhook_remove, 0, NULL},

    {HTTP_METHOD_GET, "/volumes", control_volumes, 0, NULL},
    {HTTP_METHOD_POST, "/volumes", control_volume_make, ROUTE_BODY, NULL},
    {HTTP_METHOD_GET, "/volumes/{}", control_volume, 0, NULL},
    {HTTP_METHOD_DELETE, "/volumes/{}", control_volume_drop, 0, NULL},
    {HTTP_METHOD_GET, "/secrets", control_not_yet, 0, "secrets"},
    {HTTP_METHOD_POST, "/secrets", control_not_yet, 0, "secrets"},
    {HTTP_METHOD_GET, "/secrets/{}", control_not_yet, 0, "secrets"},
    {HTTP_METHOD_POST, "/secrets/{}", control_not_yet, 0, "secrets"},
    {HTTP_METHOD_DELETE, "/secrets/{}", control_not_yet, 0, "secrets"},
    {HTTP_METHOD_GET, "/teams", control_not_yet, 0, "teams"},
};
const size_t control_routes_n = ARRAY_SIZE(control_routes);

/* Where no key is in force, everybody is an administrator. */
bool control_authenticate(struct call *c)
{
    static const struct principal anybody = {.scope = SCOPE_OPERATOR};
    struct str given = access_key_given(c->req);
    if (given.p && access_by_key(c, given))
        return true;
    if (!keys_exist(call_core(c))) {
        access_as(c, "e2b", &anybody);
        return true;
    }
    facade_note_refusal(c->facade, c->req, given.p ? REFUSAL_WRONG_KEY : REFUSAL_NO_KEY);
    return call_fail(c, 401, "%s",
                     given.p                                      ? "Invalid API key"
                     : http_header_get(c->req, "authorization").p ? "authorization header is malformed"
                                                                  : "authorization header is missing");
}

/* Scripts of any site may call us when they have the key; without a key in force none may. */
bool control_preflight(struct facade *f, struct http_request *req)
{
    struct str headers = http_header_get(req, "access-control-request-headers");
    if (!keys_exist(f->core) || !http_header_get(req, "origin").p)
        return false;
    http_add_header(req, STR("access-control-allow-origin"), STR("*"));
    http_add_header(
        req, STR("access-control-expose-headers"),
        STR("X-Next-Token, X-Total-Running, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, Retry-After"));
    if (http_method(req) != HTTP_METHOD_OPTIONS || !http_header_get(req, "access-control-request-method").p)
        return false;
    http_add_header(req, STR("access-control-allow-methods"), STR("GET, POST, PUT, PATCH, DELETE"));
    if (headers.p)
        http_add_header(req, STR("access-control-allow-headers"), headers);
    http_add_header(req, STR("access-control-max-age"), STR("7200"));
    http_respond(req, 204, NULL, 0, STR_NULL);
    return true;
}

bool control_handle(struct e2b *e2b, struct http_request *req)
{
    return facade_serve(&e2b->facade, control_routes, control_routes_n, req);
}

bool control_has_route(const struct http_request *req)
{
    struct str args[ROUTE_ARGS_MAX];
    const struct route *route;
    return route_find(control_routes, control_routes_n, http_method(req), http_raw_path(req), &route, args, NULL) ==
               ROUTE_FOUND &&
           !(route->flags & ROUTE_OPEN);
}

struct sandbox *control_sandbox(struct call *c)
{
    struct str id = c->args[0], short_id;
    struct sandbox *sb;
    /* "<id>" or, as old clients say, "<id>-<client>". */
    str_split(&id, '-', &short_id);
    if (str_find_char(id, '-') >= 0 || short_id.n == 0 || short_id.n > 63 || !str_is_of(short_id, "a-z0-9"))
        goto invalid;
    sb = access_find_sandbox(c, short_id);
    if (sandbox_json_exists(sb))
        return sb;
    call_fail(c, 404, "Sandbox \"%.*s\" doesn't exist or you don't have access to it", STR_ARG(short_id));
    return NULL;
invalid:
    call_fail(c, 400, "Invalid sandbox ID");
    return NULL;
}

/* What was to be done to a sandbox that is in another state than that needs, or to a volume that is in use. */
int control_status_of(const struct call *c, struct err *err)
{
    bool is_of_volume = c->route && str_starts(str_of(c->route->pattern), STR("/volumes"));
    if (c->route && str_starts(str_of(c->route->pattern), STR("/volumecontent")))
        return volume_content_status_of(c, err);
    if (c->route && c->route->handler == templates_upload)
        return templates_upload_status(err);
    if (c->cuts && (err->reason == ERR_NO_SPACE || err->reason == ERR_NO_QUOTA))
        return 507;
    if (err->code != ERR_FAILED_PRECONDITION || c->cuts || (!c->sandbox && !is_of_volume))
        return connect_status(err->code);
    if (!c->sandbox || sandbox_info(c->sandbox)->state == SANDBOX_RUNNING)
        return 409;
    (void)err_set(err, err->code, "Sandbox \"%s\" is %s", sandbox_info(c->sandbox)->id,
                  sandbox_state_name(sandbox_info(c->sandbox)->state));
    return 409;
}
