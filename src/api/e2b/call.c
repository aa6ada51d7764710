/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/call.h"

#include "api/e2b/sandbox_json.h"
#include "api/e2b/wake.h"
#include "api/status.h"
#include "base/mem.h"
#include "http/connect.h"

#include <stdarg.h>
#include <stdio.h>

enum { PIECE = 256 * 1024 };

void call_ref(struct call *c)
{
    c->refs++;
}

void call_unref(struct call *c)
{
    assert(c->refs > 0);
    if (--c->refs)
        return;
    assert(!c->req);
    if (c->sandbox)
        sandbox_unref(c->sandbox);
    mem_free(c);
}

static void unwatch(struct call *c)
{
    if (c->watching)
        sandbox_unwatch(&c->watch);
    c->watching = false;
}

static void on_close(struct http_request *req, void *ctx)
{
    struct call *c = ctx;

    (void)req;
    unwatch(c);
    timer_stop(&c->timer);
    if (c->cleanup)
        c->cleanup(c);
    if (c->exec)
        exec_call_cancel(TAKE_PTR(c->exec));
    if (c->file)
        file_call_cancel(TAKE_PTR(c->file));
    buf_fini(&c->large);
    c->req = NULL;
    call_unref(c);
}

static void on_timer(struct timer *t)
{
    struct call *c = container_of(t, struct call, timer);

    c->on_timer(c);
}

struct call *call_new(struct e2b *e2b, struct http_request *req, const char *actor)
{
    struct call *c = mem_new(struct call);

    c->e2b = e2b;
    c->req = req;
    c->actor.name = actor;
    c->refs = 1;
    timer_init(&c->timer, on_timer);
    http_on_close(req, on_close, c);
    return c;
}

static void on_sandbox_end(struct sandbox_watch *w, struct sandbox *sb)
{
    struct call *c = container_of(w, struct call, watch);

    (void)sb;
    c->watching = false;
    if (!c->answered && c->req)
        http_abort(c->req);
    c->answered = true;
}

void call_use_sandbox(struct call *c, struct sandbox *sb)
{
    assert(!c->sandbox);
    c->sandbox = sandbox_ref(sb);
    c->watch.fn = on_sandbox_end;
    sandbox_watch_end(sb, &c->watch);
    c->watching = true;
}

bool call_lost(struct call *c, enum err_code code)
{
    const struct sandbox_info *info = c->sandbox ? sandbox_info(c->sandbox) : NULL;
    bool alive = info && sandbox_json_state(info->state);

    /* While it is paused with its memory nothing is lost: what was under way waits, and what fails otherwise fails by itself. */
    if (!info || info->state == SANDBOX_RUNNING ||
        (alive && code != ERR_UNAVAILABLE && code != ERR_FAILED_PRECONDITION))
        return false;
    if (c->req && !c->answered && alive && code == ERR_FAILED_PRECONDITION && !http_response_begun(c->req))
        wake_refuse(c->req, info);
    else if (c->req && !c->answered)
        http_abort(c->req);
    call_done(c);
    return true;
}

void call_done(struct call *c)
{
    c->answered = true;
    unwatch(c);
    timer_stop(&c->timer);
}

void call_respond(struct call *c, int status, const char *content_type, struct str body)
{
    struct http_header header = {STR("content-type"), str_of(content_type)};

    if (c->answered)
        return;
    call_done(c);
    if (c->req)
        http_respond(c->req, status, &header, content_type ? 1 : 0, body);
}

void call_json(struct call *c, int status, struct str body)
{
    call_respond(c, status, "application/json", body);
}

void call_empty(struct call *c, int status)
{
    call_respond(c, status, NULL, STR_NULL);
}

void call_fail(struct call *c, int status, const char *fmt, ...)
{
    AUTO_BUF struct buf b = BUF_INIT(16384);
    char message[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    api_error_body(&b, status, str_of(message));
    call_json(c, status, buf_str(&b));
}

void call_fail_err(struct call *c, const struct err *err)
{
    if (!call_lost(c, err->code))
        call_fail(c, connect_status(err->code), "%s", err->msg);
}

/* ---- large answers ---- */

static void large_continue(struct http_request *req, void *ctx)
{
    struct call *c = ctx;

    while (buf_len(&c->large)) {
        size_t n = MIN(buf_len(&c->large), (size_t)PIECE);

        if (http_response_write(req, str_n(buf_data(&c->large), n)) < 0)
            return;
        buf_consume(&c->large, n);
        if (http_response_full(req) && buf_len(&c->large))
            return;
    }
    call_done(c);
    http_response_end(req);
}

void call_json_buf(struct call *c, int status, struct buf *body)
{
    if (buf_error(body) < 0) {
        call_fail(c, 500, "the answer is larger than %zu bytes", body->max);
        return;
    }
    if (buf_len(body) <= 4 * PIECE || !c->req || c->answered) {
        call_json(c, status, buf_str(body));
        return;
    }
    buf_fini(&c->large);
    c->large = *body;
    *body = BUF_INIT(0);
    http_on_drain(c->req, large_continue, c);
    http_response_begin(c->req, status, &HTTP_JSON, 1, (int64_t)buf_len(&c->large));
    large_continue(c->req, c);
}

/* ---- JSON bodies ---- */

static bool is_json_type(struct str content_type)
{
    ssize_t end = str_find_char(content_type, ';');

    return str_eq_nocase(str_trim(end < 0 ? content_type : str_n(content_type.p, (size_t)end)),
                         STR("application/json"));
}

static void read_json(struct call *c, int error, struct str body, bool required)
{
    AUTO_JSON json_t *json = NULL;
    struct err err;

    if (error == -EMSGSIZE) {
        call_fail(c, 413, "the body is larger than %d bytes", BODY_MAX);
        return;
    }
    if (error < 0)
        return;
    if (required && body.n == 0) {
        call_fail(c, 400, "validation error: request body has an error: value is required but missing");
        return;
    }
    if (body.n && !is_json_type(http_header_get(c->req, "content-type"))) {
        call_fail(c, 400, "validation error: request body has an error: header Content-Type must be application/json");
        return;
    }
    if (json_read_object(body, true, &json, &err) < 0) {
        call_fail(c, 400, "validation error: request body has an error: %s", err.msg);
        return;
    }
    c->on_json(c, json);
}

static void on_required(struct http_request *req, int error, struct str body, void *ctx)
{
    (void)req;
    read_json(ctx, error, body, true);
}

static void on_optional(struct http_request *req, int error, struct str body, void *ctx)
{
    (void)req;
    read_json(ctx, error, body, false);
}

void call_read_json(struct call *c, bool required, void (*fn)(struct call *c, const json_t *body))
{
    c->on_json = fn;
    http_read_body(c->req, BODY_MAX, required ? on_required : on_optional, c);
}

void call_set_timer(struct call *c, uint64_t ms, void (*fn)(struct call *c))
{
    c->on_timer = fn;
    timer_set(&c->e2b->timers, &c->timer, ms);
}
