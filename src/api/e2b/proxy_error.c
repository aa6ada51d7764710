/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/proxy_error.h"
#include "api/e2b/target.h"
#include "api/kit/call.h"

#include <strings.h>

static bool contains(struct str s, const char *what)
{
    size_t n = strlen(what);
    for (size_t i = 0; i + n <= s.n; i++)
        if (strncasecmp(s.p + i, what, n) == 0)
            return true;
    return false;
}

/* A script asks with the browser's own User-Agent, so what it says about the request comes first. */
static bool proxy_error_wants_html(const struct http_request *req)
{
    static const char *const browsers[] = {"mozilla", "chrome", "safari", "firefox", "edge", "opera", "msie"};
    struct str accept = http_header_get(req, "accept"), mode = http_header_get(req, "sec-fetch-mode");
    struct str agent = http_header_get(req, "user-agent");
    if (contains(accept, "application/json") && !contains(accept, "text/html"))
        return false;
    if (!str_eq_nocase(mode, STR("navigate")) && (mode.n || http_header_get(req, "x-requested-with").n))
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(browsers); i++)
        if (contains(agent, browsers[i]))
            return true;
    return false;
}

static void append_html(struct buf *b, struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        switch (s.p[i]) {
        case '<':
            buf_append_cstr(b, "&lt;");
            break;
        case '>':
            buf_append_cstr(b, "&gt;");
            break;
        case '&':
            buf_append_cstr(b, "&amp;");
            break;
        case '"':
            buf_append_cstr(b, "&quot;");
            break;
        default:
            buf_append_char(b, s.p[i]);
            break;
        }
    }
}

static void respond_html(struct http_request *req, int status, const char *title, struct str what)
{
    AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
    buf_append_cstr(&b, "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>");
    buf_append_cstr(&b, title);
    buf_append_cstr(
        &b, "</title><style>body{font:16px/1.5 system-ui,sans-serif;max-width:36rem;margin:20vh auto;padding:0 1rem}"
            "code{background:#8882;padding:.1em .3em;border-radius:.2em}</style></head><body><h1>");
    buf_append_cstr(&b, title);
    buf_append_cstr(&b, "</h1><p><code>");
    append_html(&b, what);
    buf_append_cstr(&b, "</code></p></body></html>\n");
    http_respond(req, status, &HTTP_HEADER("content-type", "text/html; charset=utf-8"), 1, buf_str(&b));
}

void proxy_error(struct http_request *req, int status, struct str sandbox_id, const char *message, uint16_t port)
{
    AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
    struct e2b_target target;
    /* Who knows only an alias learns no id. */
    if (target_of(req, &target) == TARGET_SANDBOX)
        sandbox_id = target.id;
    if (proxy_error_wants_html(req)) {
        respond_html(req, status, message, sandbox_id);
        return;
    }
    json_put_value(&b, json_pack("{s:o,s:s,s:o*,s:i}", "sandboxId", call_text(sandbox_id), "message", message, "port",
                                 port ? json_integer(port) : NULL, "code", status));
    http_respond(req, status, &HTTP_HEADER("content-type", "application/json; charset=utf-8"), 1, buf_str(&b));
}

void proxy_error_not_found(struct http_request *req, struct str sandbox_id)
{
    proxy_error(req, 502, sandbox_id, "The sandbox was not found", 0);
}

void proxy_error_port_closed(struct http_request *req, struct str sandbox_id, uint16_t port)
{
    proxy_error(req, 502, sandbox_id, "The sandbox is running but port is not open", port);
}

void proxy_error_internal_route(struct http_request *req, struct str path)
{
    static const char message[] =
        "This endpoint is reserved for the control plane and is not reachable through the sandbox URL";
    AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
    if (proxy_error_wants_html(req)) {
        respond_html(req, 404, message, path);
        return;
    }
    json_put_value(&b, json_pack("{s:s,s:o,s:i}", "message", message, "path", call_text(path), "code", 404));
    http_respond(req, 404, &HTTP_HEADER("content-type", "application/json; charset=utf-8"), 1, buf_str(&b));
}

void proxy_error_bad_target(struct http_request *req, const char *problem)
{
    AUTO_BUF struct buf b = BUF_INIT(256);
    buf_printf(&b, "%s\n", problem);
    http_respond(req, 400, &HTTP_HEADER("content-type", "text/plain; charset=utf-8"), 1, buf_str(&b));
}
