/* SPDX-License-Identifier: Apache-2.0 */
/* Code of execd: contexts of the core (sandbox/code/code.h), cells as streams of events. A client that leaves
 * interrupts its cell. */
#include "sandbox/code/code.h"
#include "api/opensandbox/handlers.h"
#include "event/json.h"

enum { EVENT_MAX = 6 * CODE_FRAME_MAX };

struct code_stream {
    struct call *call;
    char id[COMMAND_ID_LEN + 1];
    struct sse_lines out, err;
    usec_t started;
    bool has_failed, is_java;
};

/* False: it failed, which is answered. The context with this id may not be there. */
static bool code_ok(struct call *c, struct str id, int r)
{
    if (r < 0 && c->err.code == ERR_NOT_FOUND)
        call_value(c, 404,
                   json_pack("{s:s,s:s,s:o}", "code", "CONTEXT_NOT_FOUND", "message", "there is no such context", "id",
                             call_text(str_n(id.p, MIN(id.n, (size_t)CODE_ID_MAX)))));
    else
        return call_ok(c, r);
    return false;
}

/* ---- contexts ---- */

static json_t *code_context_json(const struct code_context_info *info)
{
    return json_pack("{s:s,s:s,s:s}", "id", info->id, "language", info->language, "cwd", info->cwd);
}

struct code_search {
    struct str id;        /* empty: any */
    const char *language; /* NULL: any */
    json_t *found;
};

static bool code_search_one(void *ctx, const struct code_context_info *info)
{
    struct code_search *s = ctx;
    if ((!s->id.n || str_eqc(s->id, info->id)) && (!s->language || strcmp(s->language, info->language) == 0))
        (void)json_array_append_new(s->found, code_context_json(info));
    return true;
}

static json_t *code_find(struct call *c, struct str id, const char *language)
{
    struct code_search s = {id, language, json_array()};
    code_each(c->sandbox, code_search_one, &s);
    return s.found;
}

/* The language that the query names, once it is known which contexts there are. False: answered. */
static bool code_query_language(struct call *c, const char **ret_language)
{
    struct str name = STR("");
    *ret_language = NULL;
    if (!call_ok(c, code_settled(c->sandbox, &c->actor, &c->err)))
        return false;
    if (!call_query(c, "language", &name))
        return true;
    *ret_language = code_language(c->sandbox, name, &c->err);
    return call_ok(c, *ret_language ? 0 : -1);
}

static void code_list(struct call *c)
{
    const char *language;
    if (code_query_language(c, &language))
        call_value(c, 200, code_find(c, STR(""), language));
}

static void code_show(struct call *c)
{
    if (!call_ok(c, code_settled(c->sandbox, &c->actor, &c->err)))
        return;
    json_t *found AUTO_JSON = code_find(c, c->args[0], NULL);
    c->err.code = ERR_NOT_FOUND;
    if (code_ok(c, c->args[0], json_array_size(found) ? 0 : -1))
        call_value(c, 200, json_incref(json_array_get(found, 0)));
}

static void code_delete(struct call *c)
{
    if (code_ok(c, c->args[0], code_remove(c->sandbox, &c->actor, c->args[0], &c->err)))
        call_empty(c, 200);
}

static void code_delete_all(struct call *c)
{
    const char *language;
    if (!code_query_language(c, &language))
        return;
    if (!language) {
        opensandbox_fail(c, 400, "MISSING_QUERY", "language is missing");
        return;
    }
    json_t *found AUTO_JSON = code_find(c, STR(""), language);
    JSON_FOREACH (one, found) {
        struct str id = str_of(json_string_value(json_object_get(one, "id")));
        if (!call_ok(c, code_remove(c->sandbox, &c->actor, id, &c->err)))
            return;
    }
    call_empty(c, 200);
}

static void code_made(void *ctx, const struct code_context_info *info, const struct err *err)
{
    struct call *c = ctx;
    c->making = NULL;
    if (err)
        call_fail(c, 500, "%s", err->msg);
    else
        call_value(c, 200, code_context_json(info));
}

static void code_create(struct call *c)
{
    struct str name = STR(""), cwd = STR("");
    if (!CALL_WANTS(c, JSON_NEED_STR("language", &name), JSON_WANT_STR("cwd", &cwd)))
        return;
    const char *language = code_language(c->sandbox, name, &c->err);
    call_ok(c, language ? code_make(c->sandbox, &c->actor, str_of(command_id_once(c)), language, cwd, code_made, c,
                                    &c->making, &c->err)
                        : -1);
}

/* ---- cells ---- */

static void code_put_results(struct buf *b, const struct code_frame *f)
{
    AUTO_BUF struct buf compact = BUF_INIT(CODE_FRAME_MAX);
    sse_begin(b, "result");
    (void)buf_append_cstr(b, ",\"results\":{");
    for (size_t i = 0; i < f->n_data; i++) {
        /* Charts and tables have types of their own. */
        bool is_json = str_ends(f->data[i].type, STR("json")) ||
                       (str_starts(f->data[i].data, STR("{")) && !str_starts(f->data[i].type, STR("text/")));

        buf_printf(b, "%s\"%.*s\":", i ? "," : "",
                   STR_ARG(str_eqc(f->data[i].type, "text/plain") ? STR("text") : f->data[i].type));
        buf_clear(&compact);
        if (is_json && json_compact(f->data[i].data, &compact) == 0)
            (void)buf_append_str(b, buf_str(&compact));
        else
            (void)buf_append_json_string(b, f->data[i].data);
    }
    (void)buf_append_cstr(b, "}}\n\n");
}

/* Their Java says of every exception of the code's that it is an EvalException; the trace has its class. */
static void code_put_error(struct buf *b, const struct code_frame *f, bool is_java)
{
    struct str rest = f->trace.n ? f->trace : STR_NULL, line;
    sse_begin(b, "error");
    (void)buf_append_cstr(b, ",\"error\":{\"ename\":");
    (void)buf_append_json_string(b, is_java && str_find_char(f->name, '.') >= 0 ? STR("EvalException") : f->name);
    json_put_str(b, "evalue", f->value);
    (void)buf_append_cstr(b, ",\"traceback\":[");
    for (bool is_first = true; str_split(&rest, '\n', &line); is_first = false) {
        (void)buf_append_cstr(b, is_first ? "" : ",");
        (void)buf_append_json_string(b, line);
    }
    (void)buf_append_cstr(b, "]}}\n\n");
}

static void code_stream_end(struct code_stream *s)
{
    if (s->id[0])
        (void)map_del(&opensandbox_of_execd(s->call)->cells, str_of(s->id));
    s->id[0] = 0;
    buf_fini(&s->out.rest);
    buf_fini(&s->err.rest);
}

static void code_stream_left(struct call *c)
{
    code_stream_end(c->state);
}

static bool code_stream_event(void *ctx, const struct code_event *e)
{
    AUTO_BUF struct buf b = BUF_INIT(EVENT_MAX);
    struct call *c = ctx;
    struct code_stream *s = c->state;
    if (e->kind == CODE_END)
        c->cell = NULL;
    if (c->answered || !c->req)
        return true;
    if (e->kind != CODE_STDOUT && buf_len(&s->out.rest))
        sse_line_flush(&s->out, "stdout", &b);
    if (e->kind != CODE_STDERR && buf_len(&s->err.rest))
        sse_line_flush(&s->err, "stderr", &b);
    switch (e->kind) {
    case CODE_STDOUT:
        sse_lines_take(&s->out, "stdout", e->frame->text, &b);
        break;
    case CODE_STDERR:
        sse_lines_take(&s->err, "stderr", e->frame->text, &b);
        break;
    case CODE_RESULT:
        code_put_results(&b, e->frame);
        break;
    case CODE_COUNT:
        sse_begin(&b, "execution_count");
        buf_printf(&b, ",\"execution_count\":%u}\n\n", e->frame->count);
        break;
    case CODE_ERROR:
        s->has_failed = true;
        code_put_error(&b, e->frame, s->is_java);
        break;
    case CODE_END:
        if (!s->has_failed)
            sse_complete(&b, clock_real() - s->started);
        break;
    }
    if (buf_error(&b) < 0 || http_response_write(c->req, buf_str(&b)) < 0) {
        http_abort(c->req);
        return true;
    }
    if (e->kind != CODE_END)
        return call_has_room(c);
    code_stream_end(s);
    call_end(c);
    return true;
}

static void code_execute(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(1024);
    struct code_stream *s = call_state(c, sizeof(*s), code_stream_left);
    struct code_spec spec = {.context = STR("")};
    struct str name = STR("");
    const json_t *context = json_object_get(c->body, "context");
    *s = (struct code_stream){.call = c, .started = clock_real()};
    if (!CALL_WANTS(c, JSON_NEED_STR("code", &spec.code)))
        return;
    if (context && !json_is_null(context) &&
        (!json_is_object(context) || json_get_str(context, "id", &spec.context, &c->err) < 0 ||
         json_get_str(context, "language", &name, &c->err) < 0)) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "context must be an object with id or language");
        return;
    }
    /* Without either it is for a shell. */
    if (!spec.context.n)
        spec.language = code_language(c->sandbox, name.n ? name : STR("bash"), &c->err);
    if (!call_ok(c, spec.context.n || spec.language ? 0 : -1))
        return;
    json_t *there AUTO_JSON = code_find(c, spec.context, "java");
    s->is_java = spec.context.n ? json_array_size(there) > 0 : strcmp(spec.language, "java") == 0;
    if (!call_takes(c, 2 * (size_t)SSE_LINE_MAX)) /* a line may come in pieces, and late */
        return;
    buf_init(&s->out.rest, SSE_LINE_MAX);
    buf_init(&s->err.rest, SSE_LINE_MAX);
    if (!code_ok(c, spec.context, code_run(c->sandbox, &c->actor, &spec, code_stream_event, c, &c->cell, &c->err)))
        return;
    id_token(s->id, COMMAND_ID_LEN);
    (void)map_put(&opensandbox_of_execd(c)->cells, str_of(s->id), s);
    call_pace(c, NULL);
    http_watch_client(c->req, true);
    sse_start(c);
    sse_text(&b, "init", str_of(s->id));
    (void)http_response_write(c->req, buf_str(&b));
    call_set_timer(c, SSE_PING_MS, sse_ping);
}

static void code_stop(struct call *c)
{
    struct str id = STR("");
    struct code_stream *s;
    (void)call_query(c, "id", &id);
    s = map_get(&opensandbox_of_execd(c)->cells, id);
    if (!s || !s->call->cell || s->call->sandbox != c->sandbox)
        call_fail(c, 500, "no command runs under the id '%.*s'", STR_ARG_MAX(id, 64));
    else if (call_ok(c, code_interrupt(s->call->cell, &c->actor, &c->err)))
        call_empty(c, 200);
}

const struct route code_routes[] = {
    {HTTP_METHOD_POST, "/code", code_execute, ROUTE_BODY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_DELETE, "/code", code_stop, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/code/context", code_create, ROUTE_BODY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/code/contexts", code_list, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_DELETE, "/code/contexts", code_delete_all, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/code/contexts/{}", code_show, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_DELETE, "/code/contexts/{}", code_delete, ROUTE_SANDBOX, NULL},
};
const size_t code_n_routes = ARRAY_SIZE(code_routes);
