/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/call.h"
#include "api/kit/upload_queue.h"
#include "base/mem.h"
#include "event/event.h"
#include "http/client/connect.h"
#include "http/url.h"

enum { CALL_PIECE = 256 * 1024 };

static void call_ref(struct call *c)
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
    json_decref(c->body);
    mem_free(c);
}

static void unwatch(struct call *c)
{
    if (c->watching)
        sandbox_unwatch(&c->watch);
    c->watching = false;
}

static void on_close(struct http_request *req UNUSED, void *ctx)
{
    struct call *c = ctx;
    unwatch(c);
    timer_stop(&c->timer);
    slice_cancel(&c->slice);
    holder_fini(&c->holder);
    if (c->cleanup)
        c->cleanup(c);
    if (c->exec)
        exec_call_cancel(TAKE_PTR(c->exec));
    if (c->file)
        file_call_cancel(TAKE_PTR(c->file));
    if (c->follow)
        exec_close(TAKE_PTR(c->follow));
    code_leave(TAKE_PTR(c->cell));
    code_make_cancel(TAKE_PTR(c->making));
    if (c->uploads)
        upload_queue_free(TAKE_PTR(c->uploads));
    charge_release(&c->charge);
    buf_fini(&c->large);
    buf_fini(&c->in);
    c->req = NULL;
    call_unref(c);
}

static void call_on_timer(struct timer *t)
{
    struct call *c = container_of(t, struct call, timer);
    c->on_timer(c);
}

static void call_on_slice(struct slice *slice)
{
    struct call *c = container_of(slice, struct call, slice);
    c->on_later(c);
}

/* ---- steps ---- */

static bool call_parks(struct call *c)
{
    if (!c->req || c->is_held || !holder_waits(&c->holder))
        return false;
    http_watch_client(c->req, true);
    return c->is_held = true;
}

void call_step(struct call *c, void (*step)(struct call *c))
{
    call_ref(c);
    c->step = step;
    c->actor.holder = &c->holder;
    step(c);
    c->actor.holder = NULL;
    call_unref(c);
}

static void call_handler_step(struct call *c)
{
    c->route->handler(c);
}

void call_start(struct call *c)
{
    call_step(c, call_handler_step);
}

static void call_again(struct holder *h)
{
    struct call *c = container_of(h, struct call, holder);
    bool is_first = c->step == call_handler_step;
    c->is_held = false;
    http_watch_client(c->req, false);
    if (is_first && c->cleanup)
        TAKE_PTR(c->cleanup)(c);
    if (is_first)
        c->state = NULL;
    call_step(c, c->step);
}

void *call_state(struct call *c, size_t n, void (*cleanup)(struct call *c))
{
    c->cleanup = cleanup;
    return c->state = arena_alloc(http_arena(c->req), n);
}

struct call *call_new(struct facade *f, struct http_request *req, const char *actor)
{
    struct call *c = mem_new(struct call);
    c->facade = f;
    c->req = req;
    struct str trace = http_header_get(req, "traceparent");
    if (event_is_traceparent(trace))
        c->actor.trace = trace;
    c->actor.name = actor;
    c->refs = 1;
    holder_init(&c->holder, call_again);
    timer_init(&c->timer, call_on_timer);
    slice_init(&c->slice, call_on_slice);
    list_init(&c->node);
    http_on_close(req, on_close, c);
    http_count_queue(req, charge_queue, &c->charge);
    return c;
}

static void on_sandbox_end(struct sandbox_watch *w, struct sandbox *sb UNUSED)
{
    struct call *c = container_of(w, struct call, watch);
    c->watching = false;
    if (!c->answered && c->req && c->facade->ops->on_sandbox_end)
        c->facade->ops->on_sandbox_end(c);
    else if (!c->answered && c->req)
        http_abort(c->req);
    c->answered = true;
}

void call_use_sandbox(struct call *c, struct sandbox *sb)
{
    assert(!c->sandbox);
    c->sandbox = sandbox_ref(sb);
    c->watch.fn = on_sandbox_end;
    sandbox_watch_end(sb, &c->watch);
    c->watching = c->cuts = true;
}

struct call *call_hold(struct call *c)
{
    call_ref(c);
    return c;
}

struct call *call_back(void *ctx, const struct err *err)
{
    struct call *c = ctx;
    bool goes_on = c->req && !c->answered;
    if (goes_on && err)
        call_fail_err(c, err);
    call_unref(c); /* the request, which is not over, has a reference of its own */
    return goes_on && !err ? c : NULL;
}

void call_drop(struct call *c, const struct err *err)
{
    call_fail_err(c, err);
    call_unref(c);
}

bool call_ok(struct call *c, int r)
{
    if (r < 0)
        call_fail_err(c, &c->err);
    return r >= 0;
}

void call_held(struct call *c, int r)
{
    if (r < 0)
        call_drop(c, &c->err);
}

void call_on_file(void *call, const struct file_entry *entry, const struct err *err)
{
    struct call *c = call;
    c->file = NULL;
    if (err)
        call_fail_err(c, err);
    else if (!c->answered)
        c->on_file(c, entry);
}

void call_on_file_end(void *call, const struct file_entry *entry, const struct err *err)
{
    struct call *c = call;
    c->file = NULL;
    c->on_file_end(c, entry, err);
}

void call_on_exec(void *call, const struct err *err)
{
    struct call *c = call;
    c->exec = NULL;
    if (err)
        call_fail_err(c, err);
    else if (!c->answered)
        c->on_exec(c);
}

/* ---- streams ---- */

static void call_ack(struct call *c, size_t n)
{
    if (c->follow)
        exec_ack(c->follow, n);
    else if (c->cell)
        code_drained(c->cell);
    else if (c->file)
        file_read_ack(c->file, n);
}

static void call_drained(struct http_request *req UNUSED, void *ctx)
{
    struct call *c = ctx;
    c->on_drain(c);
}

void call_on_drain(struct call *c, void (*fn)(struct call *c))
{
    c->on_drain = fn;
    http_on_drain(c->req, call_drained, c);
}

static void call_give_back(struct call *c)
{
    size_t n = c->unacked;
    c->unacked = 0;
    c->ack(c, n);
}

void call_pace(struct call *c, void (*ack)(struct call *c, size_t n))
{
    c->ack = ack ? ack : call_ack;
    call_on_drain(c, call_give_back);
}

void call_paced(struct call *c, size_t n)
{
    c->unacked += n;
    if (http_response_queued(c->req))
        http_await_sent(c->req);
    else
        call_give_back(c);
}

size_t call_room(void *call)
{
    return http_response_full(((struct call *)call)->req) ? 0 : SIZE_MAX;
}

bool call_has_room(struct call *c)
{
    c->unacked += http_response_full(c->req);
    return !c->unacked;
}

static void call_on_data(struct http_request *req UNUSED, struct str data, void *ctx)
{
    struct call *c = ctx;
    if (!c->answered)
        c->body_ops->on_data(c, data);
}

static void call_on_body_end(struct http_request *req UNUSED, void *ctx)
{
    struct call *c = ctx;
    if (!c->answered && c->body_ops->on_end)
        c->body_ops->on_end(c);
}

void call_stream_body(struct call *c, const struct call_body_ops *ops)
{
    static const struct http_body_ops body = {.on_data = call_on_data, .on_end = call_on_body_end};
    c->body_ops = ops;
    http_stream_body(c->req, &body, c);
}

static void call_gathered(struct call *c, struct str data)
{
    if (buf_append_str(&c->in, data) == 0)
        c->on_input(c);
    else if (http_response_begun(c->req))
        http_abort(c->req);
    else
        call_refuse(c, ERR_INTERNAL, "the body came faster than it was asked for");
}

static void call_gathered_all(struct call *c)
{
    c->in_ended = true;
    c->on_input(c);
}

void call_gather_body(struct call *c, size_t max, void (*take)(struct call *c))
{
    static const struct call_body_ops ops = {call_gathered, call_gathered_all};
    buf_init(&c->in, max);
    c->on_input = take;
    call_stream_body(c, &ops);
}

void call_await_body(struct call *c, bool is_busy)
{
    if (c->in_ended)
        return;
    if (is_busy)
        http_pause_body(c->req);
    else
        http_resume_body(c->req);
}

bool call_lost(struct call *c, enum err_code code)
{
    return call_parks(c) || (c->cuts && c->facade->ops->is_lost && c->facade->ops->is_lost(c, code));
}

void call_done(struct call *c)
{
    c->answered = true;
    unwatch(c);
    timer_stop(&c->timer);
    holder_fini(&c->holder);
}

void call_end(struct call *c)
{
    call_done(c);
    (void)http_response_end(c->req);
}

bool call_takes(void *call, size_t bytes)
{
    struct call *c = call;
    return call_ok(c, charge_memory(&c->charge, bytes, &c->err));
}

void call_respond(struct call *c, int status, const char *content_type, struct str body)
{
    struct http_header header = {STR("content-type"), str_of(content_type)};
    if (c->answered || call_parks(c) || (body.n > CALL_PIECE / 4 && !call_takes(c, body.n)))
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

static void call_end_failed(struct call *c, int status, enum err_code code, struct str message, const char *hint)
{
    AUTO_BUF struct buf b = BUF_INIT(16384);
    if (c->facade->ops->answer_error) {
        if (!c->answered && !call_parks(c))
            c->facade->ops->answer_error(c, status, code, message, hint);
        return;
    }
    c->facade->ops->append_error(&b, status, code, message, hint);
    call_json(c, status, buf_str(&b));
}

bool call_fail(struct call *c, int status, const char *fmt, ...)
{
    static const struct {
        int status;
        enum err_code code;
    } codes[] = {{400, ERR_INVALID_ARGUMENT},    {422, ERR_INVALID_ARGUMENT}, {401, ERR_UNAUTHENTICATED},
                 {403, ERR_PERMISSION_DENIED},   {404, ERR_NOT_FOUND},        {405, ERR_UNIMPLEMENTED},
                 {409, ERR_FAILED_PRECONDITION}, {413, ERR_INVALID_ARGUMENT}, {429, ERR_RESOURCE_EXHAUSTED},
                 {501, ERR_UNIMPLEMENTED},       {503, ERR_UNAVAILABLE}};
    enum err_code code = ERR_INTERNAL;
    char message[1024];
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
        if (codes[i].status == status)
            code = codes[i].code;
    FORMAT_ARGS(message, fmt);
    call_end_failed(c, status, code, str_of(message), NULL);
    return false;
}

bool call_refuse(struct call *c, enum err_code code, const char *fmt, ...)
{
    struct err err = {.code = code};
    FORMAT_ARGS(err.msg, fmt);
    return call_fail_err(c, &err);
}

bool call_fail_err(struct call *c, const struct err *err)
{
    return call_fail_hint(c, err, NULL);
}

bool call_fail_hint(struct call *c, const struct err *err, const char *hint)
{
    const struct facade_ops *ops = c->facade->ops;
    struct err told = *err;
    int status;
    if (call_lost(c, err->code))
        return false;
    status = ops->malformed_status && err->reason == ERR_MALFORMED ? ops->malformed_status
             : ops->status_of                                      ? ops->status_of(c, &told)
                                                                   : connect_status(err->code);
    call_end_failed(c, status, told.code, str_of(told.msg), hint || !ops->hint ? hint : ops->hint(&told));
    return false;
}

/* ---- large answers ---- */

static void large_continue(struct call *c)
{
    while (buf_len(&c->large)) {
        size_t n = MIN(buf_len(&c->large), (size_t)CALL_PIECE);
        if (http_response_write(c->req, str_n(buf_data(&c->large), n)) < 0)
            return;
        buf_consume(&c->large, n);
        if (http_response_full(c->req) && buf_len(&c->large))
            return;
    }
    call_end(c);
}

void call_json_buf(struct call *c, int status, struct buf *body)
{
    if (buf_error(body) < 0) {
        call_fail(c, 500, "the answer is larger than %zu bytes", body->max);
        return;
    }
    if (buf_len(body) <= 4 * CALL_PIECE || !c->req || c->answered) {
        call_json(c, status, buf_str(body));
        return;
    }
    if (!call_takes(c, buf_len(body)))
        return;
    buf_fini(&c->large);
    c->large = *body;
    *body = BUF_INIT(0);
    call_on_drain(c, large_continue);
    http_count_queue(c->req, NULL, NULL); /* all of it is counted */
    http_response_begin(c->req, status, &HTTP_JSON, 1, (int64_t)buf_len(&c->large));
    large_continue(c);
}

void call_value(struct call *c, int status, json_t *json)
{
    AUTO_BUF struct buf b = BUF_INIT(CALL_REPLY_MAX);
    AUTO_FREE char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    (void)buf_append_cstr(&b, text ? text : "{}");
    call_json_buf(c, status, &b);
}

/* ---- parameters ---- */

bool call_query(struct call *c, const char *name, struct str *ret_value)
{
    return http_query_get(c->req, name, ret_value) == 1;
}

static int call_bad_query(struct call *c, const char *name, const char *wanted)
{
    struct err err;
    (void)err_set(&err, ERR_INVALID_ARGUMENT, "%s must be %s", name, wanted);
    (void)err_because(&err, ERR_MALFORMED);
    call_fail_err(c, &err);
    return -1;
}

int call_query_u64(struct call *c, const char *name, uint64_t *ret_value)
{
    struct str text;
    int r = http_query_get(c->req, name, &text);
    *ret_value = 0;
    if (r == 0 || (r > 0 && str_to_u64(text, ret_value) == 0))
        return 0;
    return call_bad_query(c, name, "a number");
}

int call_query_bool(struct call *c, const char *name, bool *ret_value)
{
    struct str text = STR_NULL;
    int r = http_query_get(c->req, name, &text);
    *ret_value = r > 0 && (text.n == 0 || str_eqc(text, "1") || str_eqc(text, "true"));
    if (r == 0 || *ret_value || (r > 0 && (str_eqc(text, "0") || str_eqc(text, "false"))))
        return 0;
    return call_bad_query(c, name, "true or false");
}

/* ---- JSON bodies ---- */

/* what is wrong with it beyond that */
static void call_bad_body(struct call *c, const struct err *err)
{
    int malformed = c->facade->ops->malformed_status;
    const char *before = c->body_error ? c->body_error : c->facade->ops->body_error;
    call_fail(c, malformed && err->reason == ERR_MALFORMED ? malformed : connect_status(err->code), "%s%s", before,
              err->msg);
}

bool call_wants(struct call *c, const struct json_want *wants, size_t n)
{
    struct err err;
    if (json_wants(c->body, wants, n, http_arena(c->req), c->facade->ops->refuses_unknown, &err) == 0)
        return true;
    call_bad_body(c, &err);
    return false;
}

bool call_has_type(const struct call *c, struct str type)
{
    struct str given = http_header_get(c->req, "content-type");
    return str_eq_nocase(str_trim(str_before(given, ';')), type);
}

/* NULL: answered, or there is nobody to answer. */
static json_t *read_json(struct call *c, int error, struct str body, bool required)
{
    const struct facade_ops *ops = c->facade->ops;
    json_t *json = NULL;
    struct err err;
    if (error == -EMSGSIZE) {
        call_fail(c, 413, "the body is larger than %zu bytes", ops->body_max);
        return NULL;
    }
    if (error < 0)
        return NULL;
    if (required && body.n == 0) {
        (void)err_set(&err, ERR_INVALID_ARGUMENT, "value is required but missing");
        (void)err_because(&err, ERR_MALFORMED);
    } else if (body.n && ops->wants_json_type && !(c->route->flags & ROUTE_ANY_TYPE) &&
               !call_has_type(c, STR("application/json")))
        (void)err_set(&err, ERR_INVALID_ARGUMENT, "header Content-Type must be application/json");
    else if (json_read_object(body, !required, &json, &err) == 0)
        return json;
    call_bad_body(c, &err);
    return NULL;
}

/* NULL: it is something else, which c->err says. */
static json_t *read_list(struct call *c, int error, struct str body)
{
    json_t *json = NULL;
    if (error < 0)
        (void)err_set(&c->err, ERR_OUT_OF_RANGE, "the body is larger than %zu bytes", c->facade->ops->body_max);
    else if (json_read(body, &json, &c->err) == 0 && !json_is_array(json))
        json_decref(TAKE_PTR(json));
    return json;
}

static void call_on_body(struct http_request *req UNUSED, int error, struct str body, void *ctx)
{
    struct call *c = ctx;
    if (c->route->flags & ROUTE_LIST)
        c->body = read_list(c, error, body);
    else
        c->body = read_json(c, error, body, c->route->flags & ROUTE_BODY);
    c->holder.bytes = json_weight(body);
    if (c->answered || !call_takes(c, c->holder.bytes - body.n))
        return;
    if (c->body || ((c->route->flags & ROUTE_LIST) && (!error || error == -EMSGSIZE)))
        c->on_body(c);
}

void call_read(struct call *c, void (*then)(struct call *c))
{
    c->on_body = then;
    if (c->route->flags & (ROUTE_BODY | ROUTE_BODY_MAY | ROUTE_LIST))
        http_read_body(c->req, c->facade->ops->body_max, call_takes, call_on_body, c);
    else
        then(c);
}

/* ---- running one ---- */

static void call_handle(struct call *c)
{
    if (c->route->flags & ROUTE_SANDBOX) {
        struct sandbox *sb = c->facade->ops->find_sandbox(c);
        if (!sb)
            return;
        c->sandbox = sandbox_ref(sb);
    }
    call_start(c);
}

void call_run(struct call *c, const struct route *route, const struct str args[static ROUTE_ARGS_MAX])
{
    c->route = route;
    for (size_t i = 0; i < ROUTE_ARGS_MAX; i++) {
        if (args[i].p &&
            (url_decode(http_arena(c->req), args[i], URL_PATH, &c->args[i]) < 0 || str_has_nul(c->args[i]))) {
            call_fail(c, 400, "validation error: malformed path");
            return;
        }
        c->args[i] = args[i].p ? arena_str(http_arena(c->req), c->args[i]) : STR_NULL;
    }
    call_read(c, call_handle);
}

void call_set_timer(struct call *c, uint64_t ms, void (*fn)(struct call *c))
{
    c->on_timer = fn;
    timer_set(&c->facade->timers, &c->timer, ms);
}

void call_later(struct call *c, void (*fn)(struct call *c))
{
    c->on_later = fn;
    slice_later(&c->facade->slices, &c->slice);
}

json_t *call_time(usec_t at)
{
    char text[CLOCK_TEXT_MAX];
    if (!at)
        return NULL;
    clock_format(at, 3, text);
    return json_string(text);
}

json_t *call_text(struct str s)
{
    AUTO_BUF struct buf b = BUF_INIT(CALL_REPLY_MAX);
    if (str_is_utf8(s))
        return json_stringn(s.p ? s.p : "", s.n);
    (void)buf_append_json_string(&b, s);
    json_t *text = json_loadb(buf_data(&b), buf_len(&b), JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    return text ? text : json_string("");
}

json_t *call_cstr(const char *s)
{
    return s ? call_text(str_of(s)) : NULL;
}
