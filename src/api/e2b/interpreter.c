/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/call.h"
#include "base/clock.h"
#include "event/json.h"
#include "sandbox/code/code.h"

enum { KEEPALIVE_MS = 5000, LINE_MAX_BYTES = 6 * CODE_FRAME_MAX };

/* ---- lines ---- */

/* Beyond ASCII as escapes: a client may decode each piece of the stream by itself. */
static void put_string(struct buf *b, struct str s)
{
    AUTO_BUF struct buf quoted = BUF_INIT(LINE_MAX_BYTES);
    bool is_ascii = true;
    for (size_t i = 0; i < s.n && is_ascii; i++)
        is_ascii = (unsigned char)s.p[i] < 0x80;
    if (is_ascii) {
        (void)buf_append_json_string(b, s);
        return;
    }
    (void)buf_append_json_string(&quoted, s); /* is UTF-8 from here on */
    struct str q = buf_str(&quoted);
    for (size_t i = 0, n; i < q.n; i += n) {
        unsigned char c = (unsigned char)q.p[i];
        n = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
        if (n == 1 || i + n > q.n) {
            (void)buf_append_char(b, (char)c);
            n = 1;
            continue;
        }
        uint32_t u = c & (0xffu >> (n + 1));
        for (size_t k = 1; k < n; k++)
            u = u << 6 | ((unsigned char)q.p[i + k] & 0x3f);
        if (u > 0xffff)
            buf_printf(b, "\\u%04x\\u%04x", 0xd7c0 + (u >> 10), 0xdc00 + (u & 0x3ff));
        else
            buf_printf(b, "\\u%04x", u);
    }
}

static void put_member(struct buf *b, const char *name, struct str value)
{
    buf_printf(b, ",\"%s\":", name);
    put_string(b, value);
}

static void interpreter_put_text(struct buf *b, const char *type, struct str text)
{
    char at[CLOCK_TEXT_MAX];
    clock_format(clock_real(), 6, at);
    buf_printf(b, "{\"type\":\"%s\"", type);
    put_member(b, "text", text);
    buf_printf(b, ",\"timestamp\":\"%s\"}\n", at);
}

/* JSON as it is; what claims to be and isn't, as a string. Escapes alone could be beyond ASCII there: runners send
 * none. */
static void put_json(struct buf *b, struct str name, struct str json)
{
    AUTO_BUF struct buf compact = BUF_INIT(CODE_FRAME_MAX);
    (void)buf_append_char(b, ',');
    (void)buf_append_json_string(b, name);
    (void)buf_append_char(b, ':');
    if (json_compact(json, &compact) == 0)
        (void)buf_append_str(b, buf_str(&compact));
    else
        put_string(b, json);
}

static bool ends_alike(struct str s)
{
    return s.n >= 2 && (s.p[0] == '\'' || s.p[0] == '"') && s.p[0] == s.p[s.n - 1];
}

static void put_result(struct buf *b, const struct code_frame *f)
{
    static const struct {
        const char *type, *name;
        bool is_json;
    } known[] = {{"text/plain", "text", false},        {"text/html", "html", false},
                 {"text/markdown", "markdown", false}, {"image/svg+xml", "svg", false},
                 {"image/png", "png", false},          {"image/jpeg", "jpeg", false},
                 {"application/pdf", "pdf", false},    {"text/latex", "latex", false},
                 {"application/json", "json", true},   {"application/javascript", "javascript", false},
                 {"e2b/data", "data", true},           {"e2b/chart", "chart", true}};
    AUTO_BUF struct buf extra = BUF_INIT(CODE_FRAME_MAX * 2);
    uint32_t seen = 0;
    buf_printf(b, "{\"type\":\"result\",\"is_main_result\":%s", f->is_main ? "true" : "false");
    for (size_t i = 0; i < f->n_data; i++) {
        struct str type = f->data[i].type, data = f->data[i].data;
        size_t k = 0;
        while (k < ARRAY_SIZE(known) && !str_eqc(type, known[k].type))
            k++;
        if (k == ARRAY_SIZE(known)) {
            if (str_ends(type, STR("json"))) {
                put_json(&extra, type, data);
            } else {
                (void)buf_append_char(&extra, ',');
                (void)buf_append_json_string(&extra, type);
                (void)buf_append_char(&extra, ':');
                put_string(&extra, data);
            }
            continue;
        }
        if (seen & 1u << k || (known[k].is_json && str_eqc(data, "null")))
            continue;
        seen |= 1u << k;
        if (known[k].is_json)
            put_json(b, str_of(known[k].name), data);
        else
            put_member(b, known[k].name, k == 0 && ends_alike(data) ? str_n(data.p + 1, data.n - 2) : data);
    }
    if (buf_len(&extra) && !buf_error(&extra)) {
        (void)buf_append_cstr(b, ",\"extra\":{");
        (void)buf_append_str(b, str_sub(buf_str(&extra), 1));
        (void)buf_append_char(b, '}');
    }
    (void)buf_append_cstr(b, "}\n");
}

static void put_event(struct buf *b, const struct code_event *e)
{
    switch (e->kind) {
    case CODE_STDOUT:
    case CODE_STDERR:
        interpreter_put_text(b, e->kind == CODE_STDOUT ? "stdout" : "stderr", e->frame->text);
        return;
    case CODE_RESULT:
        put_result(b, e->frame);
        return;
    case CODE_COUNT:
        buf_printf(b, "{\"type\":\"number_of_executions\",\"execution_count\":%u}\n", e->frame->count);
        return;
    case CODE_ERROR:
        (void)buf_append_cstr(b, "{\"type\":\"error\"");
        put_member(b, "name", e->frame->name);
        put_member(b, "value", e->frame->value);
        put_member(b, "traceback", e->frame->trace);
        (void)buf_append_cstr(b, "}\n");
        return;
    case CODE_END:
        (void)buf_append_cstr(b, "{\"type\":\"end_of_execution\"}\n");
        return;
    }
}

/* ---- POST /execute ---- */

struct execution {
    usec_t last;
};

static void execution_alive(struct call *c)
{
    struct execution *x = c->state;
    if (clock_mono() - x->last >= KEEPALIVE_MS * USEC_PER_MS && !http_response_full(c->req))
        (void)http_response_write(c->req, STR("{\"type\":\"keepalive\"}\n"));
    call_set_timer(c, KEEPALIVE_MS, execution_alive);
}

static bool execution_event(void *ctx, const struct code_event *e)
{
    AUTO_BUF struct buf b = BUF_INIT(LINE_MAX_BYTES);
    struct call *c = ctx;
    struct execution *x = c->state;
    if (e->kind == CODE_END)
        c->cell = NULL;
    if (c->answered || !c->req)
        return true;
    if (sandbox_info(c->sandbox)->state != SANDBOX_RUNNING && (e->kind == CODE_ERROR || e->kind == CODE_END)) {
        if (e->kind == CODE_END) /* how clients tell a sandbox that has ended from a cell that did */
            http_abort(c->req);
        return true;
    }
    put_event(&b, e);
    /* A line that is longer than what may be queued goes in pieces that are: more than one such at a time the core
     * doesn't send. */
    if (buf_error(&b) < 0 || http_response_write(c->req, buf_str(&b)) < 0) {
        http_abort(c->req);
        return true;
    }
    x->last = clock_mono();
    if (e->kind != CODE_END)
        return call_has_room(c);
    call_end(c);
    return true;
}

static void fail_plain(struct call *c, int status, const char *text)
{
    call_respond(c, status, "text/plain; charset=utf-8", str_of(text));
}

/* Errors are texts here. */
static void fail_err(struct call *c, const struct err *err)
{
    int status = err->code == ERR_NOT_FOUND            ? 404
                 : err->code == ERR_PERMISSION_DENIED  ? 403
                 : err->code == ERR_RESOURCE_EXHAUSTED ? 429
                                                       : 500;
    if (err->reason == ERR_HELD || err->code == ERR_UNAVAILABLE || err->code == ERR_FAILED_PRECONDITION)
        call_fail_err(c, err);
    else
        fail_plain(c, status, err->msg);
}

static void interpreter_execute(struct call *c)
{
    const struct http_header type = HTTP_HEADER("content-type", "application/x-ndjson");
    struct code_spec spec = {.context = STR("")};
    struct str language = STR("");
    struct execution *x = call_state(c, sizeof(*x), NULL);
    struct err err;
    if (JSON_WANTS_OF(c->body, http_arena(c->req), &err, JSON_WANT_STR("code", &spec.code),
                      JSON_WANT_STR("context_id", &spec.context), JSON_WANT_STR("language", &language),
                      JSON_WANT_PAIRS("env_vars", &spec.envs, &spec.n_envs)) < 0) {
        fail_plain(c, 422, err.msg);
        return;
    }
    if (!spec.code.p) {
        fail_plain(c, 422, "code is missing");
        return;
    }
    if (spec.context.n && language.n) {
        fail_plain(c, 400, "Only one of context_id or language can be provided");
        return;
    }
    if (!spec.context.n) {
        spec.language = code_language(c->sandbox, language.n ? language : STR("python"), &err);
        if (!spec.language) {
            fail_err(c, &err);
            return;
        }
    }
    x->last = clock_mono();
    if (code_run(c->sandbox, &c->actor, &spec, execution_event, c, &c->cell, &err) < 0) {
        c->cell = NULL;
        fail_err(c, &err);
        return;
    }
    call_pace(c, NULL);
    http_watch_client(c->req, true);
    (void)http_response_begin(c->req, 200, &type, 1, -1);
    call_set_timer(c, KEEPALIVE_MS, execution_alive);
}

/* ---- contexts ---- */

static void put_context(struct buf *b, const struct code_context_info *info)
{
    json_open(b, "id", str_of(info->id));
    put_member(b, "language", str_of(info->language));
    put_member(b, "cwd", str_of(info->cwd));
    (void)buf_append_char(b, '}');
}

static bool interpreter_list_one(void *ctx, const struct code_context_info *info)
{
    put_context(ctx, info);
    return true;
}

static void interpreter_list(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(BODY_MAX);
    if (!call_ok(c, code_settled(c->sandbox, &c->actor, &c->err)))
        return;
    (void)buf_append_char(&b, '[');
    code_each(c->sandbox, interpreter_list_one, &b);
    (void)buf_append_char(&b, ']');
    call_json_buf(c, 200, &b);
}

static void interpreter_on_made(void *ctx, const struct code_context_info *info, const struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(BODY_MAX);
    struct call *c = ctx;
    c->making = NULL;
    if (err) {
        fail_plain(c, 500, err->msg);
        return;
    }
    put_context(&b, info);
    call_json_buf(c, 200, &b);
}

static void interpreter_make(struct call *c)
{
    struct str name = STR("python"), cwd = STR("");
    const char *language;
    struct err err;
    if (JSON_WANTS_OF(c->body, NULL, &err, JSON_WANT_STR("language", &name), JSON_WANT_STR("cwd", &cwd)) < 0) {
        fail_plain(c, 422, err.msg);
        return;
    }
    if (!c->args[1].p) { /* the same when the handler runs again */
        char *id = arena_alloc(http_arena(c->req), ID_UUID_LEN + 1);

        id_uuid(id);
        id[ID_UUID_LEN - 1] = '\0'; /* one less than those that are there from the beginning */
        c->args[1] = str_of(id);
    }
    language = code_language(c->sandbox, name, &err);
    if (!language ||
        code_make(c->sandbox, &c->actor, c->args[1], language, cwd, interpreter_on_made, c, &c->making, &err) < 0)
        fail_err(c, &err);
}

static void interpreter_change(struct call *c)
{
    bool removes = http_method(c->req) == HTTP_METHOD_DELETE;
    struct err err;
    int r = removes ? code_remove(c->sandbox, &c->actor, c->args[0], &err)
                    : code_restart(c->sandbox, &c->actor, c->args[0], &err);
    if (r < 0)
        fail_err(c, &err);
    else
        call_json(c, 200, STR("null"));
}

static void interpreter_health(struct call *c)
{
    call_json(c, 200, STR("\"OK\""));
}

const struct route interpreter_routes[] = {
    {HTTP_METHOD_GET, "/health", interpreter_health, 0, NULL},
    {HTTP_METHOD_POST, "/execute", interpreter_execute, ROUTE_BODY, NULL},
    {HTTP_METHOD_GET, "/contexts", interpreter_list, 0, NULL},
    {HTTP_METHOD_POST, "/contexts", interpreter_make, ROUTE_BODY_MAY, NULL},
    {HTTP_METHOD_DELETE, "/contexts/{}", interpreter_change, 0, NULL},
    {HTTP_METHOD_POST, "/contexts/{}/restart", interpreter_change, 0, NULL},
};
const size_t interpreter_routes_n = ARRAY_SIZE(interpreter_routes);
