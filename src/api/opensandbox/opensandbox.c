/* SPDX-License-Identifier: Apache-2.0 */
#include "api/opensandbox/opensandbox.h"
#include "api/opensandbox/handlers.h"
#include "base/id.h"
#include "base/mem.h"
#include "http/client/connect.h"
#include "http/url.h"

#include <openssl/sha.h>

void opensandbox_digest(struct str text, char *to, size_t n)
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    assert(n <= sizeof(digest));
    (void)SHA256((const unsigned char *)text.p, text.n, digest);
    for (size_t i = 0; i < n; i++)
        to[i] = "abcdefghijklmnopqrstuvwxyz0123456789"[digest[i] % 36];
    to[n] = 0;
}

/* ---- answers ---- */

bool opensandbox_fail(struct call *c, int status, const char *code, const char *message)
{
    call_value(c, status, json_pack("{s:s,s:s}", "code", code, "message", message));
    return false;
}

static void append_code(struct buf *b, const char *code, struct str message)
{
    buf_printf(b, "{\"code\":\"%s\",\"message\":", code);
    buf_append_json_string(b, message);
    buf_append_char(b, '}');
}

static void lifecycle_error(struct buf *b, int status UNUSED, enum err_code code, struct str message,
                            const char *hint UNUSED)
{
    static const struct {
        enum err_code code;
        const char *name;
    } names[] = {{ERR_NOT_FOUND, "DOCKER::SANDBOX_NOT_FOUND"},
                 {ERR_INVALID_ARGUMENT, "SANDBOX::INVALID_PARAMETER"},
                 {ERR_UNAUTHENTICATED, "INVALID_API_KEY"},
                 {ERR_UNIMPLEMENTED, "SANDBOX::API_NOT_SUPPORTED"},
                 {ERR_FAILED_PRECONDITION, "SANDBOX::INVALID_STATE"},
                 {ERR_ALREADY_EXISTS, "SANDBOX::ALREADY_EXISTS"},
                 {ERR_RESOURCE_EXHAUSTED, "SANDBOX::LIMIT_REACHED"},
                 {ERR_PERMISSION_DENIED, "SANDBOX::FORBIDDEN"}};
    const char *name = "GENERAL::UNKNOWN_ERROR";
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (names[i].code == code)
            name = names[i].name;
    append_code(b, name, message);
}

static void execd_error(struct buf *b, int status, enum err_code code, struct str message, const char *hint UNUSED)
{
    if (code == ERR_UNAUTHENTICATED) {
        json_open(b, "error", message);
        buf_append_char(b, '}');
        return;
    }
    append_code(b,
                code == ERR_NOT_FOUND       ? "FILE_NOT_FOUND"
                : code == ERR_UNIMPLEMENTED ? "NOT_SUPPORTED"
                : status == 400             ? "INVALID_REQUEST_BODY"
                                            : "RUNTIME_ERROR",
                message);
}

static void egress_error(struct call *c, int status, enum err_code code UNUSED, struct str message,
                         const char *hint UNUSED)
{
    call_respond(c, status, "text/plain; charset=utf-8", message);
}

static int lifecycle_status_of(const struct call *c, struct err *err)
{
    if (err->code == ERR_RESOURCE_EXHAUSTED && c->req)
        http_add_header(c->req, STR("retry-after"), STR("1"));
    return err->code == ERR_FAILED_PRECONDITION || err->code == ERR_ALREADY_EXISTS ? 409 : connect_status(err->code);
}

/* ---- who asks, and for what ---- */

static struct str key_shown(const struct http_request *req)
{
    return http_header_get(req, "open-sandbox-api-key");
}

static bool lifecycle_authenticate(struct call *c)
{
    struct str key = key_shown(c->req);
    if (key.n && access_by_key(c, key))
        return true;
    facade_note_refusal(c->facade, c->req, key.n ? REFUSAL_WRONG_KEY : REFUSAL_NO_KEY);
    if (key.n)
        call_refuse(c, ERR_UNAUTHENTICATED, "the API key is wrong: 'cove key' prints it");
    else
        opensandbox_fail(c, 401, "MISSING_API_KEY",
                         "an API key is needed: send it as OPEN-SANDBOX-API-KEY; 'cove key' prints it");
    return false;
}

struct sandbox *opensandbox_find(struct call *c, struct str id)
{
    struct sandbox *sb = id_is_sandbox(id) ? access_find_sandbox(c, id) : NULL;
    if (sb && !sandbox_info(sb)->hidden && sandbox_info(sb)->state < SANDBOX_STOPPING)
        return sb;
    call_fail(c, 404, "there is no sandbox %.*s", STR_ARG_MAX(id, 64));
    return NULL;
}

static struct sandbox *lifecycle_find_sandbox(struct call *c)
{
    struct pending *p = pending_find(c, c->args[0]);
    if (!p)
        return opensandbox_find(c, c->args[0]);
    lifecycle_of_pending(c, p);
    return NULL;
}

static struct sandbox *execd_find_sandbox(struct call *c)
{
    struct proxied p;
    if (proxy_parse(http_raw_path(c->req), &p) && pending_token(opensandbox_of_execd(c), p.id)) {
        const char *why = pending_why(opensandbox_of_execd(c), c, p.id);
        if (why)
            opensandbox_fail(c, 403, PENDING_FAILED, why);
        else
            call_refuse(c, ERR_UNAVAILABLE, "the sandbox's image is being pulled");
        return NULL;
    }
    struct sandbox *sb = proxy_find_sandbox(c);

    if (!sb)
        return NULL;
    if (sandbox_info(sb)->state == SANDBOX_RUNNING && proxy_parse(http_raw_path(c->req), &p))
        return isolated_nest(c, sb, p.rest);
    call_refuse(c, ERR_UNAVAILABLE, "the sandbox is %s", sandbox_state_name(sandbox_info(sb)->state));
    return NULL;
}

/* ---- the façade ---- */

static const struct facade_ops lifecycle_ops = {
    .name = "opensandbox",
    .body_max = 1 << 20,
    .body_error = "",
    .refuses_unknown = true,
    .malformed_status = 422,
    .method_error = "this route has no such method",
    .method_error_status = 405,
    .authenticate = lifecycle_authenticate,
    .find_sandbox = lifecycle_find_sandbox,
    .append_error = lifecycle_error,
    .status_of = lifecycle_status_of,
};

static const struct facade_ops execd_ops = {
    .name = "opensandbox execd",
    .body_max = 4 << 20,
    .body_error = "",
    .method_error = "this route has no such method",
    .method_error_status = 405,
    .authenticate = proxy_authenticate,
    .find_sandbox = execd_find_sandbox,
    .append_error = execd_error,
};

static const struct facade_ops egress_ops = {
    .name = "opensandbox egress",
    .body_max = 1 << 20,
    .body_error = "",
    .method_error = "this route has no such method",
    .method_error_status = 405,
    .authenticate = proxy_authenticate,
    .find_sandbox = proxy_find_sandbox,
    .answer_error = egress_error,
    .status_of = lifecycle_status_of,
};

bool opensandbox_serve(void *facade, struct http_request *req)
{
    struct opensandbox *o = facade;
    struct str asked = http_header_get(req, "x-request-id");
    if (!asked.n || asked.n > 128) {
        id_uuid(o->request_id);
        asked = str_of(o->request_id);
    }
    http_add_header(req, STR("x-request-id"), asked);
    return proxy_serve(o, req) || facade_serve_at(&o->lifecycle, lifecycle_routes, lifecycle_n_routes,
                                                  str_sub(http_raw_path(req), strlen("/v1")), req);
}

struct opensandbox *opensandbox_new(const struct opensandbox_config *config)
{
    struct opensandbox *o = mem_new(struct opensandbox);
    list_init(&o->ended);
    list_init(&o->entries);
    list_init(&o->isolating);
    o->builder = config->builder;
    id_token(o->instance, COMMAND_ID_LEN);
    pendings_init(o);
    facade_init(&o->lifecycle, &lifecycle_ops, config->core, config->refusals);
    facade_init(&o->execd, &execd_ops, config->core, config->refusals);
    facade_init(&o->egress, &egress_ops, config->core, config->refusals);
    return o;
}

void opensandbox_free(struct opensandbox *o)
{
    if (!o)
        return;
    pendings_free(o);
    commands_free(o);
    isolated_free_all(o);
    hooks_free(o);
    operations_free_all(o);
    ptys_free(o);
    map_fini(&o->cells);
    facade_fini(&o->lifecycle);
    facade_fini(&o->execd);
    facade_fini(&o->egress);
    mem_free(o);
}
