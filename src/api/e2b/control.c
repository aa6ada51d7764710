/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/control.h"

#include "api/e2b/sandbox_json.h"
#include "api/e2b/templates.h"
#include "http/url.h"

#include <stdio.h>

/* route->what of features that come with other building blocks. */
static void not_yet(struct call *c)
{
    call_fail(c, 501, "%s are not available yet", c->route->what);
}

static const struct route routes[] = {
    {HTTP_METHOD_POST, "/sandboxes", control_create, NULL},
    {HTTP_METHOD_POST, "/v2/sandboxes", control_create_v2, NULL},
    {HTTP_METHOD_GET, "/sandboxes", control_list, NULL},
    {HTTP_METHOD_GET, "/v2/sandboxes", control_list_v2, NULL},
    {HTTP_METHOD_GET, "/sandboxes/metrics", control_metrics_many, NULL},
    {HTTP_METHOD_GET, "/sandboxes/{}", control_get, NULL},
    {HTTP_METHOD_DELETE, "/sandboxes/{}", control_kill, NULL},
    {HTTP_METHOD_POST, "/sandboxes/{}/connect", control_connect, NULL},
    {HTTP_METHOD_POST, "/v2/sandboxes/{}/connect", control_connect_v2, NULL},
    {HTTP_METHOD_POST, "/sandboxes/{}/resume", control_resume, NULL},
    {HTTP_METHOD_POST, "/sandboxes/{}/timeout", control_timeout, NULL},
    {HTTP_METHOD_POST, "/sandboxes/{}/refreshes", control_refresh, NULL},
    {HTTP_METHOD_PUT, "/sandboxes/{}/network", control_network, NULL},
    {HTTP_METHOD_GET, "/sandboxes/{}/metrics", control_metrics, NULL},
    {HTTP_METHOD_GET, "/sandboxes/{}/logs", control_logs, NULL},
    {HTTP_METHOD_GET, "/v2/sandboxes/{}/logs", control_logs_v2, NULL},

    {HTTP_METHOD_POST, "/sandboxes/{}/pause", control_pause, NULL},
    {HTTP_METHOD_POST, "/sandboxes/{}/snapshots", control_snapshot, NULL},
    {HTTP_METHOD_POST, "/sandboxes/{}/fork", control_fork, NULL},
    {HTTP_METHOD_GET, "/snapshots", control_snapshots, NULL},

    {HTTP_METHOD_GET, "/templates", templates_list, NULL},
    {HTTP_METHOD_POST, "/templates", not_yet, "builds of the first version"},
    {HTTP_METHOD_GET, "/v2/templates", templates_list_v2, NULL},
    {HTTP_METHOD_POST, "/v2/templates", templates_request, NULL},
    {HTTP_METHOD_POST, "/v3/templates", templates_request, NULL},
    {HTTP_METHOD_POST, "/templates/tags", templates_tags_add, NULL},
    {HTTP_METHOD_DELETE, "/templates/tags", templates_tags_remove, NULL},
    {HTTP_METHOD_GET, "/templates/aliases/{}", templates_alias, NULL},
    {HTTP_METHOD_GET, "/templates/{}", templates_get, NULL},
    {HTTP_METHOD_POST, "/templates/{}", not_yet, "builds of the first version"},
    {HTTP_METHOD_PATCH, "/templates/{}", templates_publish, NULL},
    {HTTP_METHOD_PATCH, "/v2/templates/{}", templates_publish_v2, NULL},
    {HTTP_METHOD_DELETE, "/templates/{}", templates_delete, NULL},
    {HTTP_METHOD_GET, "/templates/{}/tags", templates_tags_list, NULL},
    {HTTP_METHOD_GET, "/templates/{}/files/{}", templates_upload_link, NULL},
    {HTTP_METHOD_PUT, "/templates/{}/files/{}", templates_upload, NULL},
    {HTTP_METHOD_POST, "/templates/{}/builds/{}", not_yet, "builds of the first version"},
    {HTTP_METHOD_POST, "/v2/templates/{}/builds/{}", templates_start, NULL},
    {HTTP_METHOD_GET, "/templates/{}/builds/{}/status", templates_status, NULL},
    {HTTP_METHOD_GET, "/templates/{}/builds/{}/logs", templates_logs, NULL},

    {HTTP_METHOD_GET, "/volumes", control_volumes, NULL},
    {HTTP_METHOD_POST, "/volumes", control_volume_make, NULL},
    {HTTP_METHOD_GET, "/volumes/{}", control_volume, NULL},
    {HTTP_METHOD_DELETE, "/volumes/{}", control_volume_drop, NULL},
    {HTTP_METHOD_GET, "/secrets", not_yet, "secrets"},
    {HTTP_METHOD_POST, "/secrets", not_yet, "secrets"},
    {HTTP_METHOD_GET, "/secrets/{}", not_yet, "secrets"},
    {HTTP_METHOD_POST, "/secrets/{}", not_yet, "secrets"},
    {HTTP_METHOD_DELETE, "/secrets/{}", not_yet, "secrets"},
    {HTTP_METHOD_GET, "/teams", not_yet, "teams"},
};

/* NULL when the key is right, else what to tell, and *ret_why. */
static const char *check_key(const struct e2b *e2b, const struct http_request *req, enum refusal *ret_why)
{
    struct str given = e2b_key_given(req);

    if (!e2b->api_key[0] || e2b_key_is(e2b, given))
        return NULL;
    *ret_why = given.p ? REFUSAL_WRONG_KEY : REFUSAL_NO_KEY;
    if (given.p)
        return "Invalid API key";
    return http_header_get(req, "authorization").p ? "authorization header is malformed"
                                                   : "authorization header is missing";
}

/* Scripts of any site may call us when they have the key; without a key in force none may. */
static bool handle_cors(struct e2b *e2b, struct http_request *req)
{
    struct str headers = http_header_get(req, "access-control-request-headers");

    if (!e2b->api_key[0] || !http_header_get(req, "origin").p)
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
    struct str path = http_raw_path(req), args[ROUTE_ARGS_MAX] = {0};
    const struct route *route = NULL;
    enum refusal why = REFUSAL_NO_KEY;
    enum route_result found;
    const char *problem;
    struct call *c;

    if ((http_method(req) == HTTP_METHOD_GET || http_method(req) == HTTP_METHOD_HEAD) && str_eq(path, STR("/health"))) {
        http_respond(req, 200, &HTTP_HEADER("content-type", "text/plain"), 1, STR("Cove is well\n"));
        return true;
    }
    found = route_find(routes, ARRAY_SIZE(routes), http_method(req), path, &route, args);
    if (found == ROUTE_UNKNOWN)
        return false;
    if (handle_cors(e2b, req))
        return true;
    if (found == ROUTE_WRONG_METHOD) {
        http_respond_error(req, 404, "validation error: method not allowed");
        return true;
    }
    problem = route->handler == templates_upload ? NULL : check_key(e2b, req, &why); /* its link is the key */
    if (problem) {
        e2b_note_refusal(e2b, req, why);
        http_respond_error(req, 401, problem);
        return true;
    }

    c = call_new(e2b, req, e2b->control_actor);
    c->route = route;
    for (size_t i = 0; i < ROUTE_ARGS_MAX; i++) {
        if (args[i].p && (url_decode(http_arena(req), args[i], URL_PATH, &c->args[i]) < 0 || str_has_nul(c->args[i]))) {
            call_fail(c, 400, "validation error: malformed path");
            return true;
        }
    }
    route->handler(c);
    return true;
}

struct sandbox *control_sandbox(struct call *c)
{
    struct str id = c->args[0], short_id;
    struct sandbox *sb;

    /* "<id>" or, as old clients say, "<id>-<client>". */
    str_split(&id, '-', &short_id);
    if (str_find_char(id, '-') >= 0 || short_id.n == 0 || short_id.n > 63)
        goto invalid;
    for (size_t i = 0; i < short_id.n; i++) {
        char ch = short_id.p[i];

        if (!(ch >= 'a' && ch <= 'z') && !(ch >= '0' && ch <= '9'))
            goto invalid;
    }
    sb = sandbox_find(c->e2b->core, short_id);
    if (!sandbox_json_exists(sb)) {
        call_fail(c, 404, "Sandbox \"%.*s\" doesn't exist or you don't have access to it", STR_ARG(short_id));
        return NULL;
    }
    return sb;
invalid:
    call_fail(c, 400, "Invalid sandbox ID");
    return NULL;
}

void control_fail(struct call *c, const struct sandbox *sb, const struct err *err)
{
    if (err->code == ERR_FAILED_PRECONDITION && !sb)
        call_fail(c, 409, "%s", err->msg);
    else if (err->code == ERR_FAILED_PRECONDITION)
        call_fail(c, 409, "Sandbox \"%s\" is %s", sandbox_info(sb)->id, sandbox_state_name(sandbox_info(sb)->state));
    else
        call_fail_err(c, err);
}
