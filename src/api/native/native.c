/* SPDX-License-Identifier: Apache-2.0 */
#include "api/native/native.h"

#include "api/native/call.h"
#include "api/refusals.h"
#include "api/status.h"
#include "base/mem.h"
#include "http/connect.h"
#include "http/server.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

/* What to do next, where a message says nothing of it itself. The first that fits. */
static const struct {
    enum err_code code;
    const char *about; /* only messages that hold this */
    const char *hint;
} hints[] = {
    {ERR_UNAUTHENTICATED, "", "send the API key as 'Authorization: Bearer <key>'; 'cove key' prints it"},
    {ERR_RESOURCE_EXHAUSTED, "sandboxes are running",
     "end sandboxes that are not needed ('cove rm'), or raise limits.sandboxes in the configuration"},
    {ERR_RESOURCE_EXHAUSTED, "slots for sandboxes", "end sandboxes that are not needed ('cove rm')"},
    {ERR_RESOURCE_EXHAUSTED, "disk quota exceeded",
     "remove files in the sandbox, or give it a larger disk ('cove run --disk')"},
    {ERR_RESOURCE_EXHAUSTED, "no space left on device",
     "remove files in the sandbox, or make room in the pool ('cove pool', 'cove gc')"},
    {ERR_RESOURCE_EXHAUSTED, "storage pool is full",
     "make room: 'cove rm', 'cove snapshot rm', 'cove template rm', 'cove volume rm', then 'cove gc'"},
    {ERR_UNAVAILABLE, "restart the service", NULL},
    {ERR_UNAVAILABLE, "", "try again in a moment; if it stays so, the service's log says why"},
};

static void health(struct call *c)
{
    (void)http_respond(c->req, 200, (struct http_header[]){HTTP_JSON}, 1, STR("{\"status\":\"ok\"}"));
}

static void info(struct call *c)
{
    const struct core_config *k = core_config(c->native->config.core);
    AUTO_BUF struct buf b = BUF_INIT(4096);
    buf_append_cstr(&b, "{\"version\":");
    buf_append_json_string(&b, str_of(c->native->config.version));
    buf_append_cstr(&b, ",\"domain\":");
    if (k->domain)
        buf_append_json_string(&b, str_of(k->domain));
    else
        buf_append_cstr(&b, "null");
    buf_printf(&b, ",\"scheme\":\"%s\"", c->native->config.domain_has_tls ? "https" : "http");
    buf_printf(&b,
               ",\"pid\":%d,\"sandboxes\":%zu,\"limits\":{\"sandboxes\":%u,\"timeout_ms\":%llu},"
               "\"defaults\":{\"memory_bytes\":%llu,\"cpu_milli\":%u,\"timeout_ms\":%llu}}",
               (int)getpid(), sandbox_count(c->native->config.core), k->max_sandboxes,
               (unsigned long long)k->max_timeout_ms, (unsigned long long)k->default_memory_bytes, k->default_cpu_milli,
               (unsigned long long)c->native->config.default_timeout_ms);
    native_json(c, 200, &b);
}

/* '*' stands for the id of a sandbox, or of whatever the route is about. */
static const struct route {
    enum http_method method;
    const char *pattern;
    call_fn fn;
} routes[] = {
    {HTTP_METHOD_GET, "/v1/health", health},
    {HTTP_METHOD_GET, "/v1/ready", native_ready},
    {HTTP_METHOD_GET, "/v1/info", info},
    {HTTP_METHOD_GET, "/v1/sandboxes", native_sandboxes_list},
    {HTTP_METHOD_POST, "/v1/sandboxes", native_sandboxes_create},
    {HTTP_METHOD_GET, "/v1/sandboxes/*", native_sandboxes_get},
    {HTTP_METHOD_DELETE, "/v1/sandboxes/*", native_sandboxes_kill},
    {HTTP_METHOD_POST, "/v1/sandboxes/*/timeout", native_sandboxes_timeout},
    {HTTP_METHOD_GET, "/v1/sandboxes/*/metrics", native_sandboxes_metrics},
    {HTTP_METHOD_POST, "/v1/sandboxes/*/pause", native_state_pause},
    {HTTP_METHOD_POST, "/v1/sandboxes/*/resume", native_state_resume},
    {HTTP_METHOD_POST, "/v1/sandboxes/*/snapshots", native_state_snapshot},
    {HTTP_METHOD_POST, "/v1/sandboxes/*/fork", native_state_fork},
    {HTTP_METHOD_GET, "/v1/snapshots", native_state_snapshots},
    {HTTP_METHOD_DELETE, "/v1/snapshots", native_state_snapshot_remove},
    {HTTP_METHOD_GET, "/v1/volumes", native_volumes_list},
    {HTTP_METHOD_POST, "/v1/volumes", native_volumes_create},
    {HTTP_METHOD_DELETE, "/v1/volumes/*", native_volumes_remove},
    {HTTP_METHOD_GET, "/v1/volumes/*/usage", native_volumes_usage},
    {HTTP_METHOD_GET, "/v1/diff", native_diff},
    {HTTP_METHOD_GET, "/v1/templates", native_templates_list},
    {HTTP_METHOD_PATCH, "/v1/templates", native_templates_change},
    {HTTP_METHOD_DELETE, "/v1/templates", native_templates_remove},
    {HTTP_METHOD_POST, "/v1/builds", native_builds_make},
    {HTTP_METHOD_GET, "/v1/builds/*", native_builds_get},
    {HTTP_METHOD_GET, "/v1/builds/*/log", native_builds_log},
    {HTTP_METHOD_DELETE, "/v1/builds/*", native_builds_cancel},
    {HTTP_METHOD_GET, "/v1/uploads/*", native_uploads_get},
    {HTTP_METHOD_PUT, "/v1/uploads/*", native_uploads_put},
    {HTTP_METHOD_GET, "/v1/pool", native_pool_get},
    {HTTP_METHOD_POST, "/v1/pool/collect", native_pool_collect},
    {HTTP_METHOD_POST, "/v1/warm", native_pool_warm},
    {HTTP_METHOD_GET, "/v1/sandboxes/*/network", native_network_get},
    {HTTP_METHOD_PUT, "/v1/sandboxes/*/network", native_network_set},
    {HTTP_METHOD_POST, "/v1/sandboxes/*/network/check", native_network_check},
    {HTTP_METHOD_GET, "/v1/sandboxes/*/events", native_events_stream},
    {HTTP_METHOD_GET, "/v1/events", native_events_service},
    {HTTP_METHOD_GET, "/v1/events/verify", native_events_service_verify},
    {HTTP_METHOD_GET, "/v1/sandboxes/*/logs", native_events_logs},
    {HTTP_METHOD_GET, "/v1/sandboxes/*/verify", native_events_verify},
    {HTTP_METHOD_GET, "/v1/sandboxes/*/output", native_output_get},
    {HTTP_METHOD_POST, "/v1/sandboxes/*/exec", native_exec},
    {HTTP_METHOD_GET, "/v1/sandboxes/*/processes", native_exec_processes},
    {HTTP_METHOD_GET, "/v1/sandboxes/*/files", native_files_get},
    {HTTP_METHOD_HEAD, "/v1/sandboxes/*/files", native_files_head},
    {HTTP_METHOD_PUT, "/v1/sandboxes/*/files", native_files_put},
    {HTTP_METHOD_DELETE, "/v1/sandboxes/*/files", native_files_delete},
    {HTTP_METHOD_GET, "/v1/sandboxes/*/entries", native_files_entries},
};

static bool matches(const char *pattern, struct str path, struct str *ret_id)
{
    struct str want = str_of(pattern), want_part, part;
    *ret_id = STR_NULL;
    while (str_split(&want, '/', &want_part)) {
        if (!str_split(&path, '/', &part))
            return false;
        if (str_eqc(want_part, "*"))
            *ret_id = part;
        else if (!str_eq(want_part, part))
            return false;
    }
    return path.p == NULL;
}

static void note_refusal(struct call *c, enum refusal why, const struct http_peer *peer)
{
    refusals_note(c->native->config.refusals, "native", why, peer);
}

/* Fills the actor, or answers and returns false. */
static bool authorise(struct call *c)
{
    struct native_config *k = &c->native->config;
    struct http_peer peer;
    if (http_peer_get(c->req, &peer) < 0) {
        native_refuse(c, ERR_INTERNAL, "who is connected could not be determined");
        return false;
    }
    if (peer.is_unix) {
        if (peer.uid != 0 && peer.uid != k->owner_uid) {
            note_refusal(c, REFUSAL_WRONG_USER, &peer);
            native_refuse(c, ERR_PERMISSION_DENIED, "the service is for root and its owner (uid %u), not for uid %u",
                          (unsigned)k->owner_uid, (unsigned)peer.uid);
            return false;
        }
        c->actor.name = arena_printf(http_arena(c->req), "cli:uid=%u", (unsigned)peer.uid);
        return true;
    }

    struct str given = http_header_get(c->req, "x-api-key");
    struct str authorization = http_header_get(c->req, "authorization");
    if (!given.p && authorization.n > 7 && str_eq_nocase(str_n(authorization.p, 7), STR("bearer ")))
        given = str_trim(str_sub(authorization, 7));
    if (!given.p || k->key.n == 0 || !str_eq_secret(given, k->key)) {
        note_refusal(c, given.p ? REFUSAL_WRONG_KEY : REFUSAL_NO_KEY, &peer);
        native_refuse(c, ERR_UNAUTHENTICATED, given.p ? "the API key is wrong" : "an API key is needed");
        return false;
    }
    c->actor.name = c->native->key_actor;
    return true;
}

static void on_close(struct http_request *req, void *ctx)
{
    (void)req;
    struct call *c = ctx;
    if (c->closed)
        c->closed(c);
}

void native_handle(struct native *n, struct http_request *req)
{
    struct call *c = arena_alloc(http_arena(req), sizeof(*c));
    c->native = n;
    c->req = req;
    http_on_close(req, on_close, c);

    struct str path = http_path(req), id;
    char allow[64] = "";
    const struct route *found = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
        if (!matches(routes[i].pattern, path, &id))
            continue;
        size_t used = strlen(allow);
        if (used < sizeof(allow) - 12)
            (void)snprintf(
                allow + used, sizeof(allow) - used, "%s%s", used ? ", " : "",
                ((const char *const[]){"", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})[routes[i].method]);
        if (routes[i].method == http_method(req)) {
            found = &routes[i];
            c->id = arena_str(http_arena(req), id);
        }
    }

    if (found && (found->fn == health || found->fn == native_ready)) {
        found->fn(c);
        return;
    }
    if (!authorise(c))
        return;
    if (found) {
        found->fn(c);
    } else if (*allow) {
        http_add_header(req, STR("allow"), str_of(allow));
        (void)http_respond(
            req, 405, (struct http_header[]){HTTP_JSON}, 1,
            STR("{\"error\":{\"code\":\"unimplemented\",\"message\":\"this route has no such method\"}}"));
    } else {
        native_refuse(c, ERR_NOT_FOUND, "there is no such route");
    }
}

struct native *native_new(const struct native_config *config)
{
    struct native *n = mem_new(struct native);
    n->config = *config;
    n->config.version = mem_strdup(config->version);
    n->config.key = str_n(mem_strndup(config->key.p ? config->key.p : "", config->key.n), config->key.n);
    key_name("native", n->config.key, n->key_actor);
    slices_init(&n->slices, core_loop(n->config.core));
    native_ready_init(n);
    return n;
}

void native_free(struct native *n)
{
    if (!n)
        return;
    slices_fini(&n->slices);
    native_ready_fini(n);
    mem_wipe((char *)n->config.key.p, n->config.key.n);
    mem_free((char *)n->config.key.p);
    mem_free((char *)n->config.version);
    mem_free(n);
}

/* ---- what handlers answer with ---- */

void native_json(struct call *c, int status, struct buf *body)
{
    if (buf_error(body)) {
        native_refuse(c, ERR_INTERNAL, "the answer is too large");
        return;
    }
    (void)http_respond(c->req, status, (struct http_header[]){HTTP_JSON}, 1, buf_str(body));
}

bool native_is_full(const struct call *c)
{
    return http_response_queued(c->req) >= HTTP_LIMITS_DEFAULT.write_high;
}

void native_empty(struct call *c, int status)
{
    (void)http_respond(c->req, status, NULL, 0, STR_NULL);
}

void native_append_text(struct buf *b, const char *name, const char *text)
{
    buf_printf(b, ",\"%s\":", name);
    if (text)
        buf_append_json_string(b, str_of(text));
    else
        buf_append_cstr(b, "null");
}

void native_append_time(struct buf *b, const char *name, usec_t at)
{
    char text[CLOCK_TEXT_MAX];
    if (at)
        clock_format(at, 3, text);
    native_append_text(b, name, at ? text : NULL);
}

static const char *hint_for(const struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(hints); i++)
        if (hints[i].code == err->code && strstr(err->msg, hints[i].about))
            return hints[i].hint;
    return NULL;
}

static void append_error(struct buf *b, const struct err *err, const char *hint)
{
    buf_printf(b, "{\"error\":{\"code\":\"%s\",\"message\":", err_code_name(err->code));
    buf_append_json_string(b, str_of(err->msg));
    if (!hint)
        hint = hint_for(err);
    if (hint) {
        buf_append_cstr(b, ",\"hint\":");
        buf_append_json_string(b, str_of(hint));
    }
    buf_append_cstr(b, "}}");
}

void native_error_json(struct buf *b, const struct err *err)
{
    append_error(b, err, NULL);
}

void native_error(struct call *c, const struct err *err)
{
    native_error_hint(c, err, NULL);
}

void native_error_hint(struct call *c, const struct err *err, const char *hint)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    append_error(&b, err, hint);
    (void)http_respond(c->req, connect_status(err->code), (struct http_header[]){HTTP_JSON}, 1, buf_str(&b));
}

void native_refuse(struct call *c, enum err_code code, const char *fmt, ...)
{
    struct err err = {.code = code};
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(err.msg, sizeof(err.msg), fmt, args);
    va_end(args);
    native_error(c, &err);
}

struct sandbox *native_sandbox(struct call *c)
{
    struct sandbox *sb = id_is_sandbox(c->id) ? sandbox_find(c->native->config.core, c->id) : NULL;
    if (!sb || sandbox_info(sb)->hidden)
        native_refuse(c, ERR_NOT_FOUND, "there is no sandbox %.*s", (int)MIN(c->id.n, 64), c->id.p);
    return sb && !sandbox_info(sb)->hidden ? sb : NULL;
}

bool native_query(struct call *c, const char *name, struct str *ret_value)
{
    return http_query_get(c->req, name, ret_value) == 1;
}

int native_query_u64(struct call *c, const char *name, uint64_t *value)
{
    struct str text;
    *value = 0;
    int r = http_query_get(c->req, name, &text);
    if (r == 0 || (r > 0 && str_to_u64(text, value) == 0))
        return 0;
    native_refuse(c, ERR_INVALID_ARGUMENT, "%s must be a number", name);
    return -1;
}

int native_query_bool(struct call *c, const char *name, bool *value)
{
    struct str text = STR_NULL;
    int r = http_query_get(c->req, name, &text);
    *value = r > 0 && (text.n == 0 || str_eqc(text, "1") || str_eqc(text, "true"));
    if (r == 0 || *value || (r > 0 && (str_eqc(text, "0") || str_eqc(text, "false"))))
        return 0;
    native_refuse(c, ERR_INVALID_ARGUMENT, "%s must be true or false", name);
    return -1;
}

static void wait_closed(struct call *c)
{
    struct wait *w = c->op;
    w->call = NULL;
}

struct wait *native_wait_new(struct call *c)
{
    struct wait *w = mem_new(struct wait);
    w->call = c;
    c->op = w;
    c->closed = wait_closed;
    return w;
}

struct call *native_wait_take(struct wait *w)
{
    struct call *c = w->call;
    mem_free(w);
    if (c) {
        c->op = NULL;
        c->closed = NULL;
    }
    return c;
}
