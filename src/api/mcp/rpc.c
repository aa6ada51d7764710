/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON-RPC: which era a message is of, what it asks for, and its answer.
 *
 *  1. A message is of the stateless era when its _meta says a version, when its MCP-Protocol-Version is none of the
 *     session era's, or when it asks for server/discover. Each such message says all that it depends on, twice where a
 *     header mirrors it, and both must agree.
 *  2. Any other message but `initialize` belongs to the session that its header names.
 *  3. An answer is one JSON object; or a stream of events of which it is the last, once anything was said before it:
 *     progress, a question, or a sign of life after PATIENCE_MS, because clients give up on heads that don't come.
 *  4. In the stateless era an error has a status of its own. In the session era it is 200: there, 404 means that the
 *     session is gone.
 */
#include "api/mcp/handlers.h"
#include "base/mem.h"
#include "http/sse.h"

#define META "io.modelcontextprotocol/"
#define STATELESS "2026-07-28"
enum { PATIENCE_MS = 10000, PROGRESS_MS = 200, PROGRESS_TEXT_MAX = 512, TOKEN_MAX = 256 };

static const char *const versions[] = {STATELESS, "2025-11-25", "2025-06-18"}; /* newest first */

static const char instructions[] =
    "Sandboxes: isolated Linux machines with a recorded log of all that is done in them. sandbox_create makes one; exec, and the file tools, work in it. "
    "Nothing gets out of a new sandbox: when something needs a host, denials_list says which, and request_grant asks a person for it. "
    "Answers are bounded: what is longer says how to get the rest. A sandbox ends by its time-out, and with the session unless it was made to be kept.";

static json_t *rpc_server(const struct call *c)
{
    return json_pack("{s:s,s:s,s:s}", "name", "cove", "title", "Cove", "version", mcp_of(c)->config.version);
}

/* ---- answers ---- */

static const json_t *rpc_id(const struct call *c)
{
    const json_t *id = json_object_get(c->body, "id");
    return json_is_string(id) || json_is_number(id) ? id : NULL;
}

static bool rpc_stream(struct call *c)
{
    const struct http_header headers[] = {HTTP_HEADER("content-type", "text/event-stream"),
                                          HTTP_HEADER("cache-control", "no-store"),
                                          HTTP_HEADER("x-accel-buffering", "no")};
    if (!c->req || c->answered)
        return false;
    if (!http_response_begun(c->req))
        (void)http_response_begin(c->req, 200, headers, ARRAY_SIZE(headers), -1);
    return true;
}

void rpc_message(struct call *c, json_t *message)
{
    AUTO_BUF struct buf b = BUF_INIT(CALL_REPLY_MAX);
    AUTO_FREE char *text = json_dumps(message, JSON_COMPACT);
    json_decref(message);
    if (text && rpc_stream(c) && sse_append(&b, &(struct sse_event){.data = str_of(text)}) == 0)
        (void)http_response_write(c->req, buf_str(&b));
}

/* Takes the message. */
static void rpc_answer(struct call *c, int status, json_t *message)
{
    if (c->answered) {
        json_decref(message);
        return;
    }
    if (c->req && http_response_begun(c->req)) {
        rpc_message(c, message);
        call_end(c);
        return;
    }
    call_value(c, status, message);
}

static json_t *rpc_message_new(const struct call *c)
{
    const json_t *id = rpc_id(c);
    return json_pack("{s:s,s:o}", "jsonrpc", "2.0", "id", id ? json_deep_copy(id) : json_null());
}

void rpc_result(struct call *c, json_t *result)
{
    const struct mcp_call *m = mcp_call_of(c);
    json_t *message = rpc_message_new(c);
    if (m->is_modern) {
        if (!json_object_get(result, "resultType"))
            (void)json_object_set_new(result, "resultType", json_string("complete"));
        (void)json_object_set_new(result, "_meta", json_pack("{s:o}", META "serverInfo", rpc_server(c)));
    }
    (void)json_object_set_new(message, "result", result);
    rpc_answer(c, 200, message);
}

void rpc_error(struct call *c, int status, int code, json_t *data, const char *fmt, ...)
{
    json_t *message = rpc_message_new(c);
    char text[1024];
    FORMAT_ARGS(text, fmt);
    json_t *error = json_pack("{s:i,s:o}", "code", code, "message", call_text(str_of(text)));
    if (data)
        (void)json_object_set_new(error, "data", data);
    (void)json_object_set_new(message, "error", error);
    rpc_answer(c, status, message);
}

/* What the kit refuses, and what a tool could not do: that is for the model to read. */
void rpc_answer_error(struct call *c, int status, enum err_code code, struct str message, const char *hint)
{
    struct mcp_call *m = mcp_call_of(c);
    const char *colon = hint ? ": " : "";
    hint = hint ? hint : "";
    if (!m || !m->tool) {
        int kind = !c->body && c->route && status == 400 ? RPC_PARSE
                   : status == 400                       ? RPC_PARAMS
                   : status >= 500                       ? RPC_INTERNAL
                                                         : RPC_REFUSED;
        rpc_error(c, status, kind, NULL, "%.*s%s%s", STR_ARG_MAX(message, 700), colon, hint);
        return;
    }
    json_t *content = json_pack("{s:{s:s,s:o}}", "error", "code", err_code_name(code), "message", call_text(message));
    AUTO_FREE char *text = mem_printf("%s: %.*s%s%s", err_code_name(code), STR_ARG(message), colon, hint);
    rpc_result(c, json_pack("{s:[{s:s,s:o}],s:o,s:b}", "content", "type", "text", "text", call_text(str_of(text)),
                            "structuredContent", content, "isError", 1));
}

void rpc_progress(struct call *c, uint64_t done, struct str text)
{
    struct mcp_call *m = mcp_call_of(c);
    usec_t now = clock_mono();
    if (!m->token || now - m->told < PROGRESS_MS * USEC_PER_MS || (c->req && http_response_full(c->req)))
        return;
    m->told = now;
    text = text.n > PROGRESS_TEXT_MAX ? str_sub(text, text.n - PROGRESS_TEXT_MAX) : text;
    rpc_message(c,
                json_pack("{s:s,s:s,s:{s:O,s:I,s:o}}", "jsonrpc", "2.0", "method", "notifications/progress", "params",
                          "progressToken", m->token, "progress", (json_int_t)done, "message", call_text(text)));
}

static void rpc_alive(struct call *c)
{
    const struct mcp_call *m = mcp_call_of(c);
    if (m && m->until && clock_mono() > m->until) {
        call_refuse(c, ERR_DEADLINE_EXCEEDED, "nobody has answered the question");
        return;
    }
    if (rpc_stream(c))
        (void)http_response_write(c->req, STR(":\n\n"));
    call_set_timer(c, PATIENCE_MS, rpc_alive);
}

/* ---- the session era ---- */

static void rpc_initialize(struct call *c)
{
    const json_t *params = mcp_call_of(c)->params;
    const char *asked = json_string_value(json_object_get(params, "protocolVersion")), *version = versions[1];
    const json_t *capabilities = json_object_get(params, "capabilities");
    if (!asked) {
        rpc_error(c, 200, RPC_PARAMS, NULL, "protocolVersion is missing");
        return;
    }
    for (size_t i = 1; i < ARRAY_SIZE(versions); i++)
        version = strcmp(asked, versions[i]) == 0 ? versions[i] : version;
    (void)mcp_session_make(c, version, json_is_object(json_object_get(capabilities, "elicitation")));
    rpc_result(c, json_pack("{s:s,s:{s:{},s:{}},s:o,s:s}", "protocolVersion", version, "capabilities", "tools",
                            "resources", "serverInfo", rpc_server(c), "instructions", instructions));
}

static void rpc_ping(struct call *c)
{
    rpc_result(c, json_object());
}

/* ---- both ---- */

static void rpc_discover(struct call *c)
{
    json_t *supported = json_array();
    for (size_t i = 0; i < ARRAY_SIZE(versions); i++)
        (void)json_array_append_new(supported, json_string(versions[i]));
    rpc_result(c, json_pack("{s:o,s:{s:{},s:{}},s:s,s:i,s:s}", "supportedVersions", supported, "capabilities", "tools",
                            "resources", "instructions", instructions, "ttlMs", 3600000, "cacheScope", "public"));
}

static void rpc_tools(struct call *c)
{
    if (json_object_get(mcp_call_of(c)->params, "cursor")) {
        rpc_error(c, mcp_call_of(c)->is_modern ? 400 : 200, RPC_PARAMS, NULL,
                  "unknown cursor: all tools are on one page");
        return;
    }
    json_t *result = json_pack("{s:O}", "tools", mcp_of(c)->tools);
    if (mcp_call_of(c)->is_modern) {
        (void)json_object_set_new(result, "ttlMs", json_integer(3600000));
        (void)json_object_set_new(result, "cacheScope", json_string("public"));
    }
    rpc_result(c, result);
}

enum { OF_SESSIONS = 1, STATELESS_ONLY = 2, HAS_NAME = 4 };
static const struct {
    const char *name;
    void (*handler)(struct call *c);
    int flags;
    const char *mirrored; /* the parameter that Mcp-Name says, too */
} methods[] = {
    {"tools/call", tools_call, HAS_NAME, "name"},        {"tools/list", rpc_tools, 0, NULL},
    {"resources/list", resources_list, 0, NULL},         {"resources/templates/list", resources_templates, 0, NULL},
    {"resources/read", resources_read, HAS_NAME, "uri"}, {"server/discover", rpc_discover, STATELESS_ONLY, NULL},
    {"initialize", rpc_initialize, OF_SESSIONS, NULL},   {"ping", rpc_ping, OF_SESSIONS, NULL},
};

/* ---- which era ---- */

bool rpc_is_stateless(const struct call *c)
{
    struct str version = http_header_get(c->req, "mcp-protocol-version");
    bool is_older = !version.p || str_eqc(version, "2025-03-26"); /* what clients say before they know better */
    for (size_t i = 1; i < ARRAY_SIZE(versions); i++)
        is_older = is_older || str_eqc(version, versions[i]);
    return !is_older;
}

bool rpc_decode_header(struct str value, struct arena *arena, struct str *ret_value)
{
    AUTO_BUF struct buf b = BUF_INIT(8192);
    value = str_trim(value);
    if (!str_starts(value, STR("=?base64?")) || !str_ends(value, STR("?=")) || value.n < 11) {
        *ret_value = value;
        return true;
    }
    if (buf_append_unbase64(&b, str_n(value.p + 9, value.n - 11)) < 0)
        return false;
    *ret_value = arena_str(arena, buf_str(&b));
    return true;
}

/* The header is there and says the same. False: answered. */
static bool rpc_mirrors(struct call *c, const char *header, const char *value)
{
    struct str given = http_header_get(c->req, header), meant;
    if (given.p && value && rpc_decode_header(given, http_arena(c->req), &meant) && str_eqc(meant, value))
        return true;
    rpc_error(c, 400, RPC_HEADER, NULL, "the header %s is missing or contradicts the body", header);
    return false;
}

/* False: answered. */
static bool rpc_check_stateless(struct call *c, const char *method)
{
    struct mcp_call *m = mcp_call_of(c);
    const json_t *meta = json_object_get(m->params, "_meta");
    const char *version = json_string_value(json_object_get(meta, META "protocolVersion"));
    m->capabilities = json_object_get(meta, META "clientCapabilities");
    if (!version || !json_is_object(m->capabilities)) {
        rpc_error(c, 400, RPC_PARAMS, NULL,
                  "params._meta needs " META "protocolVersion and " META "clientCapabilities");
        return false;
    }
    if (!rpc_mirrors(c, "mcp-protocol-version", version))
        return false;
    if (strcmp(version, STATELESS) != 0) {
        json_t *supported = json_array();
        for (size_t i = 0; i < ARRAY_SIZE(versions); i++)
            (void)json_array_append_new(supported, json_string(versions[i]));
        rpc_error(c, 400, RPC_VERSION,
                  json_pack("{s:o,s:o}", "supported", supported, "requested", call_text(str_of(version))),
                  "this version of the protocol isn't supported");
        return false;
    }
    if (!rpc_mirrors(c, "mcp-method", method))
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
        if ((methods[i].flags & HAS_NAME) && strcmp(method, methods[i].name) == 0)
            return rpc_mirrors(c, "mcp-name", json_string_value(json_object_get(m->params, methods[i].mirrored)));
    return true;
}

static void rpc_closed(struct call *c)
{
    struct mcp_call *m = mcp_call_of(c);
    list_remove(&c->node);
    if (m->cleanup)
        m->cleanup(c);
}

static bool rpc_has_id(const struct call *c, const void *id)
{
    const json_t *own = rpc_id(c);
    return own && json_equal(own, id);
}

/* A notification, or the client's answer to a question of ours. */
static void rpc_take(struct call *c, const char *method)
{
    struct mcp_session *s = mcp_call_of(c)->session;
    struct call *cancelled = NULL;
    if (!method && !grant_answered(c, c->body)) {
        rpc_error(c, 400, RPC_REQUEST, NULL, "there is no question with this id");
        return;
    }
    const json_t *id = json_object_get(mcp_call_of(c)->params, "requestId");
    if (method && s && id && strcmp(method, "notifications/cancelled") == 0)
        cancelled = mcp_session_call(s, rpc_has_id, id);
    if (cancelled && cancelled->req)
        http_abort(cancelled->req); /* nothing more is said about it */
    call_empty(c, 202);
}

void rpc_handle(struct call *c)
{
    struct mcp_call *m = call_state(c, sizeof(*m), NULL);
    const char *method = json_string_value(json_object_get(c->body, "method"));
    *m = (struct mcp_call){.params = json_object_get(c->body, "params")};
    const json_t *meta = json_object_get(m->params, "_meta"), *token = json_object_get(meta, "progressToken");
    const char *version = json_string_value(json_object_get(c->body, "jsonrpc"));
    /* It is in each message, several times a second. */
    m->token =
        json_is_number(token) || (json_is_string(token) && json_string_length(token) <= TOKEN_MAX) ? token : NULL;
    m->is_modern = json_object_get(meta, META "protocolVersion") || rpc_is_stateless(c) ||
                   (method && strcmp(method, "server/discover") == 0);
    if (!version || strcmp(version, "2.0") != 0 || (m->params && !json_is_object(m->params))) {
        rpc_error(c, 400, RPC_REQUEST, NULL, "not a JSON-RPC 2.0 message with an object of params");
        return;
    }
    bool is_request = method && rpc_id(c), begins = is_request && strcmp(method, "initialize") == 0;
    if (m->is_modern && !is_request) {
        if (method)
            call_empty(c, 202);
        else
            rpc_error(c, 400, RPC_REQUEST, NULL, "the method is missing");
        return;
    }
    if (m->is_modern ? !rpc_check_stateless(c, method) : !begins && !(m->session = mcp_session_of(c)))
        return;
    if (!is_request) {
        rpc_take(c, method);
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
        if (strcmp(method, methods[i].name) != 0 || (methods[i].flags & (m->is_modern ? OF_SESSIONS : STATELESS_ONLY)))
            continue;
        if (m->session)
            list_append(&m->session->calls, &c->node);
        c->cleanup = rpc_closed;
        call_set_timer(c, PATIENCE_MS, rpc_alive);
        http_watch_client(c->req, true); /* who leaves cancels it */
        methods[i].handler(c);
        return;
    }
    rpc_error(c, m->is_modern ? 404 : 200, RPC_METHOD, NULL, "there is no method %.100s", method);
}
