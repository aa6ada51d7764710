/* SPDX-License-Identifier: Apache-2.0 */
#include "api/opensandbox/opensandbox.h"

#include "api/opensandbox/handlers.h"
#include "base/id.h"
#include "base/mem.h"
#include "http/client/connect.h"
#include "http/url.h"

/* ---- answers ---- */

void opensandbox_answer(struct call *c, int status, json_t *json)
{
    AUTO_BUF struct buf b = BUF_INIT(CALL_REPLY_MAX);
    char *text = json_dumps(json, JSON_COMPACT);

    json_decref(json);
    if (text)
        buf_append_cstr(&b, text);
    mem_free(text);
    call_json_buf(c, status, &b);
}

json_t *opensandbox_time(usec_t at)
{
    char text[CLOCK_TEXT_MAX];

    if (!at)
        return NULL;
    clock_format(at, 3, text);
    return json_string(text);
}

static void append_code(struct buf *b, const char *code, struct str message)
{
    buf_printf(b, "{\"code\":\"%s\",\"message\":", code);
    buf_append_json_string(b, message);
    buf_append_char(b, '}');
}

static void lifecycle_error(struct buf *b, int status, enum err_code code, struct str message, const char *hint)
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

    (void)status, (void)hint;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (names[i].code == code)
            name = names[i].name;
    append_code(b, name, message);
}

static void execd_error(struct buf *b, int status, enum err_code code, struct str message, const char *hint)
{
    (void)hint;
    if (code == ERR_UNAUTHENTICATED) {
        buf_append_cstr(b, "{\"error\":");
        buf_append_json_string(b, message);
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

static void egress_error(struct buf *b, int status, enum err_code code, struct str message, const char *hint)
{
    (void)status, (void)code, (void)hint;
    buf_append_str(b, message);
}

static int status_of(const struct call *c, struct err *err)
{
    (void)c;
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
    call_refuse(c, ERR_UNAUTHENTICATED, "%s: send it as OPEN-SANDBOX-API-KEY; 'cove key' prints it",
                key.n ? "the API key is wrong" : "an API key is needed");
    return false;
}

static struct sandbox *find(struct call *c, struct str id)
{
    struct sandbox *sb = id_is_sandbox(id) ? access_find_sandbox(c, id) : NULL;

    if (sb && !sandbox_info(sb)->hidden && sandbox_info(sb)->state < SANDBOX_STOPPING)
        return sb;
    call_fail(c, 404, "there is no sandbox %.*s", (int)MIN(id.n, (size_t)64), id.p);
    return NULL;
}

static struct sandbox *lifecycle_find_sandbox(struct call *c)
{
    return find(c, c->args[0]);
}

/* "/v1/sandboxes/{id}/proxy/{port}[/...]" */
static bool parse_proxied(struct str path, struct str *ret_id, uint64_t *ret_port, struct str *ret_rest)
{
    struct str id, word, port;

    if (!str_starts(path, STR("/v1/sandboxes/")))
        return false;
    path = str_sub(path, strlen("/v1/sandboxes/"));
    if (!str_split(&path, '/', &id) || !str_split(&path, '/', &word) || !str_eqc(word, "proxy"))
        return false;
    ssize_t slash = str_find_char(path, '/');
    port = slash < 0 ? path : str_n(path.p, (size_t)slash);
    *ret_rest = slash < 0 ? STR("/") : str_sub(path, (size_t)slash);
    *ret_id = id;
    return str_to_u64(port, ret_port) == 0 && *ret_port > 0 && *ret_port <= UINT16_MAX;
}

/* What opens execd and the egress service of one sandbox: its token, which the answer of /endpoints carries, or the key. */
static bool may_proxied(struct call *c, const char *header)
{
    struct str id, rest, given = http_header_get(c->req, header), key = key_shown(c->req);
    uint64_t port;

    if (key.n && access_by_key(c, key))
        return true;
    if (parse_proxied(http_raw_path(c->req), &id, &port, &rest) && id_is_sandbox(id)) {
        struct sandbox *sb = sandbox_find(call_core(c), id);
        const struct sandbox_info *i = sb ? sandbox_info(sb) : NULL;

        if (i && (!i->secure || (i->access_token && given.n && str_eq_secret(given, str_of(i->access_token))))) {
            const struct principal who = {.tenant = i->tenant, .view = i->tenant, .scope = SCOPE_USE};
            access_as(c, "opensandbox:token", &who);
            return true;
        }
    }
    facade_note_refusal(c->facade, c->req, given.n ? REFUSAL_WRONG_TOKEN : REFUSAL_NO_TOKEN);
    call_refuse(c, ERR_UNAUTHENTICATED, "send the headers that GET /v1/sandboxes/{id}/endpoints/{port} answers with");
    return false;
}

static struct sandbox *find_proxied(struct call *c)
{
    struct str id = STR(""), rest;
    uint64_t port;

    (void)parse_proxied(http_raw_path(c->req), &id, &port, &rest);
    return find(c, id);
}

static bool execd_authenticate(struct call *c)
{
    return may_proxied(c, "x-execd-access-token");
}

static struct sandbox *execd_find_sandbox(struct call *c)
{
    struct sandbox *sb = find_proxied(c);

    if (!sb || sandbox_info(sb)->state == SANDBOX_RUNNING)
        return sb;
    call_refuse(c, ERR_UNAVAILABLE, "the sandbox is %s", sandbox_state_name(sandbox_info(sb)->state));
    return NULL;
}

static bool egress_authenticate(struct call *c)
{
    return may_proxied(c, "opensandbox-egress-auth");
}

/* ---- the façade ---- */

static const struct facade_ops lifecycle_ops = {
    .name = "opensandbox",
    .body_max = 1 << 20,
    .body_error = "",
    .refuses_unknown = true,
    .method_error = "this route has no such method",
    .method_error_status = 405,
    .authenticate = lifecycle_authenticate,
    .find_sandbox = lifecycle_find_sandbox,
    .append_error = lifecycle_error,
    .status_of = status_of,
};

static const struct facade_ops execd_ops = {
    .name = "opensandbox execd",
    .body_max = 4 << 20,
    .body_error = "",
    .method_error = "this route has no such method",
    .method_error_status = 405,
    .authenticate = execd_authenticate,
    .find_sandbox = execd_find_sandbox,
    .append_error = execd_error,
};

static const struct facade_ops egress_ops = {
    .name = "opensandbox egress",
    .body_max = 1 << 20,
    .body_error = "",
    .method_error = "this route has no such method",
    .method_error_status = 405,
    .authenticate = egress_authenticate,
    .find_sandbox = find_proxied,
    .append_error = egress_error,
};

static bool serve_proxied(struct opensandbox *o, struct http_request *req, uint64_t port, struct str rest)
{
    if (port == OPENSANDBOX_EGRESS_PORT && facade_serve_at(&o->egress, egress_routes, egress_n_routes, rest, req))
        return true;
    if (port == OPENSANDBOX_EXECD_PORT && (facade_serve_at(&o->execd, command_routes, command_n_routes, rest, req) ||
                                           facade_serve_at(&o->execd, code_routes, code_n_routes, rest, req) ||
                                           facade_serve_at(&o->execd, file_routes, file_n_routes, rest, req)))
        return true;
    if (port == OPENSANDBOX_EGRESS_PORT || port == OPENSANDBOX_EXECD_PORT)
        call_fail(call_new(&o->execd, req, NULL), 501, "this part of the API isn't there");
    else
        call_fail(call_new(&o->lifecycle, req, NULL), 501,
                  "ports of programs are reached by the host name that 'cove url' prints");
    return true;
}

bool opensandbox_serve(void *facade, struct http_request *req)
{
    struct opensandbox *o = facade;
    struct str path = http_raw_path(req), id, rest, asked = http_header_get(req, "x-request-id");
    uint64_t port;

    if (!asked.n || asked.n > 128) {
        id_uuid(o->request_id);
        asked = str_of(o->request_id);
    }
    http_add_header(req, STR("x-request-id"), asked);
    if (parse_proxied(path, &id, &port, &rest))
        return serve_proxied(o, req, port, rest);
    return facade_serve_at(&o->lifecycle, lifecycle_routes, lifecycle_n_routes, str_sub(path, strlen("/v1")), req);
}

struct opensandbox *opensandbox_new(const struct opensandbox_config *config)
{
    struct opensandbox *o = mem_new(struct opensandbox);

    list_init(&o->ended);
    if (facade_init(&o->lifecycle, &lifecycle_ops, config->core, config->refusals) == 0 &&
        facade_init(&o->execd, &execd_ops, config->core, config->refusals) == 0 &&
        facade_init(&o->egress, &egress_ops, config->core, config->refusals) == 0)
        return o;
    opensandbox_free(o);
    return NULL;
}

void opensandbox_free(struct opensandbox *o)
{
    if (!o)
        return;
    commands_free(o);
    map_fini(&o->cells);
    facade_fini(&o->lifecycle);
    facade_fini(&o->execd);
    facade_fini(&o->egress);
    mem_free(o);
}
