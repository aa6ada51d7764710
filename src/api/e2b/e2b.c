/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/e2b.h"
#include "api/e2b/call.h"
#include "api/e2b/control/control.h"
#include "api/e2b/control/sandbox_json.h"
#include "api/e2b/envd/envd.h"
#include "api/e2b/envd/rpc.h"
#include "api/e2b/names.h"
#include "api/e2b/proxy_error.h"
#include "api/e2b/target.h"
#include "api/e2b/traffic.h"
#include "api/e2b/volumes/volume_content.h"
#include "base/mem.h"
#include "base/path.h"
#include "sandbox/code/code.h"

const struct core_guest e2b_guest = {"E2B_SANDBOX", "E2B_SANDBOX_ID", "E2B_TEMPLATE_ID", E2B_ATTRIBUTES};

json_t *e2b_error(int status, struct str message)
{
    return json_pack("{s:i,s:o}", "code", status, "message", call_text(message));
}

static void e2b_answer_error(struct call *c, int status, enum err_code code, struct str message,
                             const char *hint UNUSED)
{
    if (c->route && c->route->flags & (RPC_UNARY | RPC_STREAM))
        rpc_end_failed(c, code, message);
    else
        call_value(c, status, e2b_error(status, message));
}

/* What was under way in a sandbox that is gone is cut; while it is paused with its memory nothing is lost: what was
 * under way waits, and what fails otherwise fails by itself. */
static bool e2b_is_lost(struct call *c, enum err_code code)
{
    const struct sandbox_info *info = sandbox_info(c->sandbox);
    bool alive = sandbox_json_state(info->state);
    if (info->state == SANDBOX_RUNNING || (alive && code != ERR_UNAVAILABLE && code != ERR_FAILED_PRECONDITION))
        return false;
    if (c->req && !c->answered && alive && code == ERR_FAILED_PRECONDITION && !http_response_begun(c->req))
        traffic_refuse_asleep(c->req, info);
    else if (c->req && !c->answered)
        rpc_cut(c);
    call_done(c);
    return true;
}

static const struct facade_ops e2b_ops = {
    .name = "e2b",
    .body_max = BODY_MAX,
    .body_error = "validation error: request body has an error: ",
    .wants_json_type = true,
    .method_error = "validation error: method not allowed",
    .method_error_status = 404,
    .authenticate = control_authenticate,
    .find_sandbox = control_sandbox,
    .answer_error = e2b_answer_error,
    .status_of = control_status_of,
    .is_lost = e2b_is_lost,
    .on_sandbox_end = rpc_cut,
    .preflight = control_preflight,
};

struct e2b *e2b_new(const struct e2b_config *config)
{
    struct e2b *e2b = mem_new(struct e2b);
    e2b->builder = config->builder;
    e2b->domain = mem_strdup(config->domain);
    list_init(&e2b->creations);
    e2b->creations_max = CREATIONS_MAX;
    buf_init(&e2b->scratch, SCRATCH_MAX);
    facade_init(&e2b->facade, &e2b_ops, config->core, config->refusals);
    return e2b;
}

void e2b_free(struct e2b *e2b)
{
    if (!e2b)
        return;
    envd_watchers_free(e2b);
    control_creations_free(e2b);
    facade_fini(&e2b->facade);
    buf_fini(&e2b->scratch);
    MEM_FREE(e2b->domain, e2b);
}

/*
 * SDKs of 2.7 to 2.26 name the sandbox in headers when they mean the API, too. Where the Host says nothing, a request
 * with the API's key for one of its routes is the API's: what is sent to a sandbox's daemon has no such path, and
 * nobody sends the key to a port.
 */
static bool e2b_means_api(const struct http_request *req, const struct e2b_target *target)
{
    return target->is_by_header && target->port == ENVD_PORT && http_header_get(req, "x-api-key").n &&
           control_has_route(req);
}

bool e2b_claims(const struct http_request *req)
{
    struct e2b_target target;
    return target_of(req, &target) != TARGET_CONTROL && !e2b_means_api(req, &target);
}

static bool is_internal(struct http_request *req)
{
    struct str path = http_path(req);
    char clean[PATH_TEXT_MAX];
    return path.n && path_clean(path, clean) >= 0 && envd_is_internal(str_of(clean));
}

static void handle_sandbox(struct e2b *e2b, struct http_request *req, const struct e2b_target *target)
{
    struct sandbox *sb;
    bool by_alias;
    if (target->port == ENVD_PORT && is_internal(req)) {
        proxy_error_internal_route(req, http_raw_path(req));
        return;
    }
    by_alias = id_is_port_alias(target->id);
    sb = by_alias ? sandbox_find_by_port_alias(e2b->facade.core, target->id)
                  : sandbox_find(e2b->facade.core, target->id);
    if (!sandbox_json_exists(sb))
        proxy_error_not_found(req, target->id);
    else if (target->port != ENVD_PORT && (target->port != INTERPRETER_PORT || !code_is_here(sb)))
        traffic_handle(e2b, req, sb, target->port);
    else if (by_alias)
        proxy_error_port_closed(req, target->id, target->port);
    else
        envd_handle(e2b, req, sb, target->port);
}

bool e2b_serve_sandbox(void *facade, struct http_request *req)
{
    struct e2b_target target;
    if (target_of(req, &target) == TARGET_SANDBOX)
        handle_sandbox(facade, req, &target);
    else
        proxy_error_bad_target(req, target.problem);
    return true;
}

bool e2b_serve_api(void *facade, struct http_request *req)
{
    struct e2b *e2b = facade;
    if (str_eq(http_raw_path(req), STR("/files"))) {
        envd_handle_files(e2b, req);
        return true;
    }
    return envd_handle_by_token(e2b, req) || volume_content_handle(e2b, req) || control_handle(e2b, req);
}
