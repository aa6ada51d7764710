/* SPDX-License-Identifier: Apache-2.0 */
#include "api/native/native.h"
#include "api/native/handlers.h"
#include "base/id.h"
#include "base/mem.h"
#include "http/client/connect.h"
#include "sandbox/key.h"

#include <unistd.h>

/* What to do next, where a message says nothing of it itself. The first that fits. */
static const struct {
    enum err_code code;
    enum err_reason reason; /* ERR_NO_REASON: any */
    const char *hint;
} hints[] = {
    {ERR_UNAUTHENTICATED, ERR_NO_REASON, "send the API key as 'Authorization: Bearer <key>'; 'cove key' prints it"},
    {ERR_RESOURCE_EXHAUSTED, ERR_SANDBOXES_FULL,
     "end sandboxes that are not needed ('cove rm'), or raise limits.sandboxes in the configuration"},
    {ERR_RESOURCE_EXHAUSTED, ERR_SLOTS_FULL, "end sandboxes that are not needed ('cove rm')"},
    {ERR_RESOURCE_EXHAUSTED, ERR_NO_QUOTA, "remove files in the sandbox, or give it a larger disk ('cove run --disk')"},
    {ERR_RESOURCE_EXHAUSTED, ERR_NO_SPACE,
     "remove files in the sandbox, or make room in the pool ('cove pool', 'cove gc')"},
    {ERR_RESOURCE_EXHAUSTED, ERR_POOL_FULL,
     "make room: 'cove rm', 'cove snapshot rm', 'cove template rm', 'cove volume rm', then 'cove gc'"},
    {ERR_UNAVAILABLE, ERR_NEEDS_RESTART, NULL},
    {ERR_UNAVAILABLE, ERR_NO_REASON, "try again in a moment; if it stays so, the service's log says why"},
};

static void native_health(struct call *c)
{
    call_json(c, 200, STR("{\"status\":\"ok\"}"));
}

static bool info_count(void *ctx, struct sandbox *sb UNUSED)
{
    ++*(size_t *)ctx;
    return true;
}

static void info(struct call *c)
{
    size_t n = 0;
    access_each_sandbox(c, info_count, &n);
    const struct core_config *k = core_config(call_core(c));
    const struct native_config *own = &native_of(c)->config;
    call_value(c, 200,
               json_pack("{s:s,s:s?,s:s,s:s,s:i,s:I,s:{s:I,s:I},s:{s:I,s:i,s:I}}", "version", own->version, "domain",
                         k->domain, "scope", scope_name(c->actor.who.scope), "scheme",
                         own->domain_has_tls ? "https" : "http", "pid", (int)getpid(), "sandboxes", (json_int_t)n,
                         "limits", "sandboxes", (json_int_t)k->max_sandboxes, "timeout_ms",
                         (json_int_t)k->max_timeout_ms, "defaults", "memory_bytes", (json_int_t)k->default_memory_bytes,
                         "cpu_milli", (int)k->default_cpu_milli, "timeout_ms", (json_int_t)own->default_timeout_ms));
}

const struct route native_routes[] = {
    {HTTP_METHOD_GET, NATIVE_PREFIX "/health", native_health, ROUTE_OPEN, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/ready", native_ready, ROUTE_OPEN, NULL},
    {HTTP_METHOD_GET, "/metrics", native_metrics, 0, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/info", info, 0, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/sandboxes", native_sandboxes_list, 0, NULL},
    {HTTP_METHOD_POST, NATIVE_PREFIX "/sandboxes", native_sandboxes_create, ROUTE_BODY_MAY, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/sandboxes/{}", native_sandboxes_get, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_DELETE, NATIVE_PREFIX "/sandboxes/{}", native_sandboxes_kill, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, NATIVE_PREFIX "/sandboxes/{}/timeout", native_sandboxes_timeout, ROUTE_BODY_MAY | ROUTE_SANDBOX,
     NULL},
    {HTTP_METHOD_POST, NATIVE_PREFIX "/sandboxes/{}/violations", native_sandboxes_violation, ROUTE_BODY | ROUTE_SANDBOX,
     NULL},
    {HTTP_METHOD_POST, NATIVE_PREFIX "/sandboxes/{}/received", native_sandboxes_received, ROUTE_BODY | ROUTE_SANDBOX,
     NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/sandboxes/{}/metrics", native_sandboxes_metrics, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, NATIVE_PREFIX "/sandboxes/{}/pause", native_state_pause, ROUTE_BODY_MAY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, NATIVE_PREFIX "/sandboxes/{}/resume", native_state_resume, ROUTE_BODY_MAY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, NATIVE_PREFIX "/sandboxes/{}/snapshots", native_state_snapshot,
     ROUTE_BODY_MAY | ROUTE_SANDBOX | ROUTE_WIDE, NULL},
    {HTTP_METHOD_POST, NATIVE_PREFIX "/sandboxes/{}/fork", native_state_fork,
     ROUTE_BODY_MAY | ROUTE_SANDBOX | ROUTE_WIDE, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/sandboxes/{}/checkpoints", native_state_checkpoints, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, NATIVE_PREFIX "/sandboxes/{}/rewind", native_state_rewind, ROUTE_BODY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/sandboxes/{}/services", native_services_list, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, NATIVE_PREFIX "/sandboxes/{}/services", native_services_add, ROUTE_BODY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/snapshots", native_state_snapshots, 0, NULL},
    {HTTP_METHOD_DELETE, NATIVE_PREFIX "/snapshots", native_state_snapshot_remove, 0, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/volumes", native_volumes_list, 0, NULL},
    {HTTP_METHOD_POST, NATIVE_PREFIX "/volumes", native_volumes_create, ROUTE_BODY_MAY, NULL},
    {HTTP_METHOD_DELETE, NATIVE_PREFIX "/volumes/{}", native_volumes_remove, 0, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/volumes/{}/usage", native_volumes_usage, 0, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/diff", native_diff, 0, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/templates", native_templates_list, 0, NULL},
    {HTTP_METHOD_PATCH, NATIVE_PREFIX "/templates", native_templates_change, ROUTE_BODY_MAY, NULL},
    {HTTP_METHOD_DELETE, NATIVE_PREFIX "/templates", native_templates_remove, 0, NULL},
    {HTTP_METHOD_POST, NATIVE_PREFIX "/builds", native_builds_make, ROUTE_BODY_MAY, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/builds/{}", native_builds_get, 0, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/builds/{}/log", native_builds_log, 0, NULL},
    {HTTP_METHOD_DELETE, NATIVE_PREFIX "/builds/{}", native_builds_cancel, 0, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/uploads/{}", native_uploads_get, 0, NULL},
    {HTTP_METHOD_PUT, NATIVE_PREFIX "/uploads/{}", native_uploads_put, 0, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/pool", native_pool_get, ROUTE_OPERATOR, NULL},
    {HTTP_METHOD_POST, NATIVE_PREFIX "/pool/collect", native_pool_collect, ROUTE_BODY_MAY | ROUTE_OPERATOR, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/warm", native_pool_warm_list, ROUTE_OPERATOR, NULL},
    {HTTP_METHOD_POST, NATIVE_PREFIX "/warm", native_pool_warm, ROUTE_BODY_MAY | ROUTE_OPERATOR, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/sandboxes/{}/network", native_network_get, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_PUT, NATIVE_PREFIX "/sandboxes/{}/network", native_network_set,
     ROUTE_BODY | ROUTE_SANDBOX | ROUTE_WIDE, NULL},
    {HTTP_METHOD_POST, NATIVE_PREFIX "/sandboxes/{}/network/check", native_network_check,
     ROUTE_BODY | ROUTE_SANDBOX | ROUTE_READ, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/sandboxes/{}/events", native_events_stream, ROUTE_OF_SANDBOX, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/events", native_events_feed, 0, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/service/events", native_events_stream, ROUTE_ADMIN, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/service/verify", native_events_verify, ROUTE_ADMIN, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/sandboxes/{}/evidence", native_events_evidence, ROUTE_OF_SANDBOX, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/service/evidence", native_events_evidence, ROUTE_ADMIN, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/evidence/key", native_events_evidence, 0, "key"},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/evidence/heads", native_events_evidence, ROUTE_OPERATOR, "heads"},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/sandboxes/{}/logs", native_events_logs, ROUTE_OF_SANDBOX, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/sandboxes/{}/verify", native_events_verify, ROUTE_OF_SANDBOX, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/sandboxes/{}/output", native_output_get, ROUTE_OF_SANDBOX, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/sandboxes/{}/artefacts/{}", native_output_artefact, ROUTE_OF_SANDBOX, NULL},
    {HTTP_METHOD_POST, NATIVE_PREFIX "/sandboxes/{}/exec", native_exec, ROUTE_BODY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, NATIVE_PREFIX "/sandboxes/{}/attach", native_attach, ROUTE_BODY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/sandboxes/{}/processes", native_exec_processes, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/guard", native_guard_get, ROUTE_OPERATOR, "service"},
    {HTTP_METHOD_PUT, NATIVE_PREFIX "/guard", native_guard_set, ROUTE_BODY | ROUTE_OPERATOR, "service"},
    {HTTP_METHOD_DELETE, NATIVE_PREFIX "/guard", native_guard_set, ROUTE_OPERATOR, "service"},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/guard/tenant", native_guard_get, 0, "tenant"},
    {HTTP_METHOD_PUT, NATIVE_PREFIX "/guard/tenant", native_guard_set, ROUTE_BODY | ROUTE_ADMIN, "tenant"},
    {HTTP_METHOD_DELETE, NATIVE_PREFIX "/guard/tenant", native_guard_set, ROUTE_ADMIN, "tenant"},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/guard/templates/{}", native_guard_get, 0, "template"},
    {HTTP_METHOD_PUT, NATIVE_PREFIX "/guard/templates/{}", native_guard_set, ROUTE_BODY | ROUTE_ADMIN, "template"},
    {HTTP_METHOD_DELETE, NATIVE_PREFIX "/guard/templates/{}", native_guard_set, ROUTE_ADMIN, "template"},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/sandboxes/{}/guard", native_guard_get, ROUTE_SANDBOX, "sandbox"},
    {HTTP_METHOD_PUT, NATIVE_PREFIX "/sandboxes/{}/guard", native_guard_set, ROUTE_BODY | ROUTE_SANDBOX | ROUTE_ADMIN,
     "sandbox"},
    {HTTP_METHOD_DELETE, NATIVE_PREFIX "/sandboxes/{}/guard", native_guard_set, ROUTE_SANDBOX | ROUTE_ADMIN, "sandbox"},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/guard/rails", native_guard_rails, 0, NULL},
    {HTTP_METHOD_POST, NATIVE_PREFIX "/guard/test", native_guard_test, ROUTE_BODY | ROUTE_READ, NULL},
    {HTTP_METHOD_POST, NATIVE_PREFIX "/sandboxes/{}/guard/test", native_guard_test,
     ROUTE_BODY | ROUTE_SANDBOX | ROUTE_READ, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/export", native_export_get, ROUTE_OPERATOR, NULL},
    {HTTP_METHOD_PUT, NATIVE_PREFIX "/export", native_export_set, ROUTE_BODY | ROUTE_OPERATOR, NULL},
    {HTTP_METHOD_DELETE, NATIVE_PREFIX "/export", native_export_set, ROUTE_OPERATOR, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/approvals", native_approvals_list, 0, NULL},
    {HTTP_METHOD_POST, NATIVE_PREFIX "/approvals/{}", native_approvals_answer, ROUTE_BODY | ROUTE_APPROVE, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/keys", native_keys_list, ROUTE_ADMIN, NULL},
    {HTTP_METHOD_POST, NATIVE_PREFIX "/keys", native_keys_create, ROUTE_BODY | ROUTE_ADMIN, NULL},
    {HTTP_METHOD_POST, NATIVE_PREFIX "/keys/{}/rotate", native_keys_rotate, ROUTE_BODY_MAY | ROUTE_ADMIN, NULL},
    {HTTP_METHOD_DELETE, NATIVE_PREFIX "/keys/{}", native_keys_revoke, ROUTE_ADMIN, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/tenants", native_tenants_list, ROUTE_OPERATOR, NULL},
    {HTTP_METHOD_POST, NATIVE_PREFIX "/tenants", native_tenants_create, ROUTE_BODY | ROUTE_OPERATOR, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/tenants/{}", native_tenants_get, ROUTE_OPERATOR, NULL},
    {HTTP_METHOD_PATCH, NATIVE_PREFIX "/tenants/{}", native_tenants_set, ROUTE_BODY | ROUTE_OPERATOR, NULL},
    {HTTP_METHOD_DELETE, NATIVE_PREFIX "/tenants/{}", native_tenants_remove, ROUTE_OPERATOR, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/sandboxes/{}/files", native_files_get, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_HEAD, NATIVE_PREFIX "/sandboxes/{}/files", native_files_head, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_PUT, NATIVE_PREFIX "/sandboxes/{}/files", native_files_put, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_DELETE, NATIVE_PREFIX "/sandboxes/{}/files", native_files_delete, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/sandboxes/{}/archive", native_files_pack, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_PUT, NATIVE_PREFIX "/sandboxes/{}/archive", native_files_unpack, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, NATIVE_PREFIX "/sandboxes/{}/entries", native_files_entries, ROUTE_SANDBOX, NULL},
};
const size_t native_routes_n = ARRAY_SIZE(native_routes);

static bool native_authenticate(struct call *c)
{
    return access_by_peer_or_key(c, native_of(c)->config.owner_uid);
}

static struct sandbox *native_find_sandbox(struct call *c)
{
    struct sandbox *sb = id_is_sandbox(c->args[0]) ? access_find_sandbox(c, c->args[0]) : NULL;
    if (sb && !sandbox_info(sb)->hidden)
        return sb;
    call_refuse(c, ERR_NOT_FOUND, "there is no sandbox %.*s", STR_ARG_MAX(c->args[0], 64));
    return NULL;
}

/* ---- what is answered ---- */

static const char *native_hint(const struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(hints); i++)
        if (hints[i].code == err->code && (!hints[i].reason || hints[i].reason == err->reason))
            return hints[i].hint;
    return NULL;
}

/* A user that the sandbox doesn't have is a mistake in the query: who asks is known, and no key would help. */
static int native_status_of(const struct call *c, struct err *err)
{
    struct str user = STR("");
    if (err->code == ERR_UNAUTHENTICATED && err->reason != ERR_KEY_GONE && c->sandbox) {
        if (http_query_get(c->req, "user", &user) <= 0 || user.n == 0)
            user = STR(WIRE_DEFAULT_USER);
        (void)err_set(err, ERR_INVALID_ARGUMENT, "there is no user '%.*s' in the sandbox", STR_ARG(user));
    }
    return connect_status(err->code);
}

json_t *native_error(const struct err *err, const char *hint)
{
    hint = hint ? hint : native_hint(err);
    return json_pack("{s:{s:s,s:o,s:s*}}", "error", "code", err_code_name(err->code), "message", call_cstr(err->msg),
                     "hint", hint);
}

static void native_append_error(struct buf *b, int status UNUSED, enum err_code code, struct str message,
                                const char *hint)
{
    json_put_value(b, json_pack("{s:{s:s,s:o,s:s*}}", "error", "code", err_code_name(code), "message",
                                call_text(message), "hint", hint));
}

/* ---- the façade ---- */

static const struct facade_ops native_ops = {
    .name = "native",
    .body_max = NATIVE_BODY_MAX,
    .body_error = "",
    .refuses_unknown = true,
    .method_error = "this route has no such method",
    .method_error_status = 405,
    .authenticate = native_authenticate,
    .find_sandbox = native_find_sandbox,
    .append_error = native_append_error,
    .status_of = native_status_of,
    .hint = native_hint,
};

bool native_serve(void *facade, struct http_request *req)
{
    struct native *n = facade;
    if (!facade_serve(&n->facade, native_routes, native_routes_n, req))
        call_refuse(call_new(&n->facade, req, NULL), ERR_NOT_FOUND, "there is no such route");
    return true;
}

struct native *native_new(const struct native_config *config)
{
    struct native *n = mem_new(struct native);
    n->config = *config;
    n->config.version = mem_strdup(config->version);
    list_init(&n->feeds);
    list_init(&n->verifying);
    native_ready_init(n, core_loop(config->core));
    facade_init(&n->facade, &native_ops, config->core, config->refusals);
    return n;
}

void native_free(struct native *n)
{
    if (!n)
        return;
    facade_fini(&n->facade);
    native_ready_fini(n);
    mem_free((char *)n->config.version);
    mem_free(n);
}
