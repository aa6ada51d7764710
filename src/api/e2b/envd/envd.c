/* SPDX-License-Identifier: Apache-2.0 */
/* What every request to the in-sandbox daemon's API goes through: CORS, the access token, the user, the route. */
#include "api/e2b/envd/envd.h"
#include "api/e2b/call.h"
#include "api/e2b/envd/files_call.h"
#include "api/e2b/envd/rpc.h"
#include "api/e2b/proxy_error.h"
#include "api/e2b/traffic.h"

const struct route envd_routes[] = {
    {HTTP_METHOD_POST, "/process.Process/Start", envd_start, RPC_STREAM, NULL},
    {HTTP_METHOD_POST, "/process.Process/Connect", envd_connect, RPC_STREAM, NULL},
    {HTTP_METHOD_POST, "/process.Process/List", envd_list, RPC_UNARY, NULL},
    {HTTP_METHOD_POST, "/process.Process/SendInput", envd_send_input, RPC_UNARY | RPC_READS, NULL},
    {HTTP_METHOD_POST, "/process.Process/StreamInput", envd_stream_input, RPC_STREAM | RPC_READS, NULL},
    {HTTP_METHOD_POST, "/process.Process/CloseStdin", envd_close_stdin, RPC_UNARY, NULL},
    {HTTP_METHOD_POST, "/process.Process/SendSignal", envd_send_signal, RPC_UNARY, NULL},
    {HTTP_METHOD_POST, "/process.Process/Update", envd_update, RPC_UNARY, NULL},
    {HTTP_METHOD_POST, "/filesystem.Filesystem/Stat", envd_stat, RPC_UNARY, NULL},
    {HTTP_METHOD_POST, "/filesystem.Filesystem/MakeDir", envd_make_dir, RPC_UNARY, NULL},
    {HTTP_METHOD_POST, "/filesystem.Filesystem/Move", envd_move, RPC_UNARY, NULL},
    {HTTP_METHOD_POST, "/filesystem.Filesystem/ListDir", envd_list_dir, RPC_UNARY, NULL},
    {HTTP_METHOD_POST, "/filesystem.Filesystem/Remove", envd_remove, RPC_UNARY, NULL},
    {HTTP_METHOD_POST, "/filesystem.Filesystem/WatchDir", envd_watch_dir, RPC_STREAM, NULL},
    {HTTP_METHOD_POST, "/filesystem.Filesystem/CreateWatcher", envd_create_watcher, RPC_UNARY, NULL},
    {HTTP_METHOD_POST, "/filesystem.Filesystem/GetWatcherEvents", envd_get_watcher_events, RPC_UNARY, NULL},
    {HTTP_METHOD_POST, "/filesystem.Filesystem/RemoveWatcher", envd_remove_watcher, RPC_UNARY, NULL},
    {HTTP_METHOD_GET, "/files", envd_download, 0, NULL},
    {HTTP_METHOD_POST, "/files", envd_upload, 0, NULL},
    {HTTP_METHOD_POST, "/files/compose", envd_compose, ROUTE_BODY | ROUTE_ANY_TYPE, NULL},
    {HTTP_METHOD_GET, "/health", envd_health, 0, NULL},
    {HTTP_METHOD_GET, "/metrics", envd_metrics, 0, NULL},
    {HTTP_METHOD_GET, "/envs", envd_envs, 0, NULL},
};
const size_t envd_routes_n = ARRAY_SIZE(envd_routes);

bool envd_is_internal(struct str path)
{
    return str_word(path, "/init /freeze /unfreeze /fsfreeze /fsthaw /collapse /upgrade") >= 0;
}

/* True when it was a preflight, which is answered. The answers themselves are for scripts of any site: the token is
 * what counts. */
static bool handle_cors(struct http_request *req)
{
    struct str method = http_header_get(req, "access-control-request-method");
    struct str headers = http_header_get(req, "access-control-request-headers");
    http_add_header(req, STR("vary"), STR("Origin"));
    if (!http_header_get(req, "origin").p)
        return false;
    http_add_header(req, STR("access-control-allow-origin"), STR("*"));
    if (http_method(req) != HTTP_METHOD_OPTIONS || !method.p) {
        http_add_header(
            req, STR("access-control-expose-headers"),
            STR("Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin, Location, Cache-Control, X-Content-Type-Options"));
        return false;
    }
    http_add_header(req, STR("access-control-allow-methods"), method);
    if (headers.n)
        http_add_header(req, STR("access-control-allow-headers"), headers);
    http_add_header(req, STR("access-control-max-age"), STR("7200"));
    http_respond(req, 204, NULL, 0, STR_NULL);
    return true;
}

/* Of contexts, SDKs ask without the access token. */
static bool interpreter_needs_token(struct str path)
{
    return str_eq(path, STR("/execute"));
}

/* These prove their right by themselves (/files: token or signature) or need none. */
static bool needs_token(const struct http_request *req, struct str path)
{
    enum http_method method = http_method(req);
    if (str_eq(path, STR("/files")))
        return method != HTTP_METHOD_GET && method != HTTP_METHOD_HEAD && method != HTTP_METHOD_POST;
    return !(method == HTTP_METHOD_GET && str_eq(path, STR("/health")));
}

/* The user name of "Basic base64(name:password)"; empty when there is none. No header is too long for it: a name that
 * is cut is another one. */
static struct str basic_user(struct http_request *req)
{
    AUTO_BUF struct buf plain = BUF_INIT(64 * 1024);
    struct str value = http_header_get(req, "authorization");
    ssize_t colon;
    if (value.n < 6 || !str_eq_nocase(str_n(value.p, 6), STR("basic ")))
        return STR("");
    if (buf_append_unbase64(&plain, str_trim(str_sub(value, 6))) < 0)
        return STR("");
    colon = str_find_char(buf_str(&plain), ':');
    if (colon < 0)
        return STR("");
    return arena_str(http_arena(req), str_n(buf_data(&plain), (size_t)colon));
}

/* Only who could do something with it afterwards; and who asks whether it runs is told that it does not. */
static bool may_wake(struct http_request *req, const struct sandbox_info *info)
{
    struct str path = http_raw_path(req);
    if (str_eq(path, STR("/health")))
        return false;
    return !info->access_token || str_eq_secret(http_header_get(req, "x-access-token"), str_of(info->access_token)) ||
           (str_eq(path, STR("/files")) && files_is_signed(req, info));
}

static void handle(struct e2b *e2b, struct http_request *req, struct sandbox *sb, uint16_t port);

static void on_awake(void *e2b, struct http_request *req, struct sandbox *sb, uint16_t port)
{
    handle(e2b, req, sb, port);
}

static void handle(struct e2b *e2b, struct http_request *req, struct sandbox *sb, uint16_t port)
{
    const struct sandbox_info *info = sandbox_info(sb);
    struct str path = http_raw_path(req), token = http_header_get(req, "x-access-token"), user;
    struct str args[ROUTE_ARGS_MAX] = {0};
    const struct route *route = NULL;
    char allow[ROUTE_ALLOW_MAX];
    enum route_result found;
    struct call *c;
    /* A page may know the id: it is part of the names of the ports that it was shown. */
    if ((!info->access_token || (port == INTERPRETER_PORT && !token.n)) &&
        access_is_of_other_site(e2b->facade.core, req)) {
        http_respond_error(req, 403, "pages of other sites have no access to an open sandbox");
        return;
    }
    /* Who asks whether it runs hears that it does not, whatever is under way. */
    if (info->state != SANDBOX_RUNNING && str_eq(path, STR("/health"))) {
        proxy_error_not_found(req, str_of(info->id));
        return;
    }
    if (info->state != SANDBOX_RUNNING && !wake_first(&traffic_way, e2b, req, sb, port, may_wake(req, info), on_awake))
        return;
    bool is_shown = info->access_token && str_eq_secret(token, str_of(info->access_token));
    if (port == INTERPRETER_PORT && !is_shown && traffic_refuses(e2b, req, info))
        return;
    if (info->access_token && !is_shown &&
        (port == ENVD_PORT ? needs_token(req, path) : interpreter_needs_token(path))) {
        facade_note_refusal(&e2b->facade, req, token.n ? REFUSAL_WRONG_TOKEN : REFUSAL_NO_TOKEN);
        http_respond_error(req, 401,
                           "unauthorized access, please provide a valid access token or method signing if supported");
        return;
    }
    found = port == ENVD_PORT
                ? route_find(envd_routes, envd_routes_n, http_method(req), path, &route, args, allow)
                : route_find(interpreter_routes, interpreter_routes_n, http_method(req), path, &route, args, allow);
    if (found == ROUTE_UNKNOWN) {
        http_respond(req, 404, &HTTP_HEADER("content-type", "text/plain; charset=utf-8"), 1,
                     STR("404 page not found\n"));
        return;
    }
    if (found == ROUTE_WRONG_METHOD) {
        http_add_header(req, STR("allow"), str_of(allow));
        http_respond(req, 405, NULL, 0, STR_NULL);
        return;
    }
    user = basic_user(req);
    if (str_has_nul(user)) {
        http_respond_error(req, 401, "invalid username");
        return;
    }
    c = call_new(&e2b->facade, req, info->access_token ? "e2b:token" : "e2b:open");
    c->user = user;
    c->actor.who = (struct principal){.tenant = info->tenant, .view = info->tenant};
    if (!access_charge(c, info->tenant))
        return;
    c->route = route;
    call_use_sandbox(c, sb);
    if (route->flags & (RPC_UNARY | RPC_STREAM))
        rpc_run(c);
    else
        call_run(c, route, args);
}

void envd_handle(struct e2b *e2b, struct http_request *req, struct sandbox *sb, uint16_t port)
{
    if (!handle_cors(req))
        handle(e2b, req, sb, port);
}

void envd_handle_files(struct e2b *e2b, struct http_request *req)
{
    struct sandbox *sb = handle_cors(req) ? NULL : envd_find_by_signature(e2b, req);
    if (sb)
        handle(e2b, req, sb, ENVD_PORT);
}

bool envd_handle_by_token(struct e2b *e2b, struct http_request *req)
{
    struct str args[ROUTE_ARGS_MAX];
    const struct route *route;
    struct sandbox *sb;
    if (!http_header_get(req, "x-access-token").n ||
        route_find(envd_routes, envd_routes_n, http_method(req), http_raw_path(req), &route, args, NULL) != ROUTE_FOUND)
        return false;
    sb = envd_find_by_token(e2b, req);
    if (sb)
        envd_handle(e2b, req, sb, ENVD_PORT);
    return true;
}
