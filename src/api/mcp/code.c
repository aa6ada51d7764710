/* SPDX-License-Identifier: Apache-2.0 */
/* run_code: one cell in the context that a language has; what it leaves behind, the next one finds. Results that are no
 * text are named and left out. */
#include "sandbox/code/code.h"
#include "api/mcp/handlers.h"

enum { CODE_RESULTS_MAX = 32 };

struct code_answer {
    struct buf out[2];
    uint64_t bytes[2];
    json_t *results, *error;
};

static void code_answer_closed(struct call *c)
{
    struct code_answer *a = mcp_call_of(c)->own;
    buf_fini(&a->out[0]);
    buf_fini(&a->out[1]);
    json_decref(a->results);
    json_decref(a->error);
}

static void code_answer_result(struct code_answer *a, const struct code_frame *f)
{
    json_t *one = json_object();
    for (size_t i = 0; i < f->n_data; i++) {
        const struct code_datum *d = &f->data[i];
        const bool is_text = str_starts(d->type, STR("text/")) || str_starts(d->type, STR("application/json"));
        (void)json_object_setn_new(one, d->type.p, d->type.n,
                                   is_text ? call_text(mcp_cut(d->data, MCP_TEXT_MAX / 4)) : json_null());
    }
    if (json_array_size(a->results) < CODE_RESULTS_MAX)
        (void)json_array_append_new(a->results, one);
    else
        json_decref(one);
}

static void code_answer_end(struct call *c, struct code_answer *a)
{
    static const char *const names[] = {"stdout", "stderr"};
    AUTO_BUF struct buf text = BUF_INIT(4 * MCP_TEXT_MAX);
    json_t *content = json_pack("{s:O,s:O*}", "results", a->results, "error", a->error);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        (void)json_object_set_new(content, names[i], call_text(buf_str(&a->out[i])));
        buf_append_str(&text, buf_str(&a->out[i]));
    }
    if (a->bytes[0] > buf_len(&a->out[0]) || a->bytes[1] > buf_len(&a->out[1])) {
        (void)json_object_set_new(content, "truncated", json_true());
        buf_append_cstr(&text, "\n[cut: write to a file, and read that in parts]");
    }
    for (size_t i = 0; i < json_array_size(a->results); i++) {
        const char *plain = json_string_value(json_object_get(json_array_get(a->results, i), "text/plain"));
        buf_printf(&text, "\n%s", plain ? plain : "[a result that is no text]");
    }
    if (a->error)
        buf_printf(&text, "\n%s", json_string_value(json_object_get(a->error, "traceback")));
    tool_result(c, content, buf_error(&text) ? STR_NULL : buf_len(&text) ? buf_str(&text) : STR("[no output]"));
}

static bool code_answer_event(void *ctx, const struct code_event *e)
{
    struct call *c = ctx;
    struct code_answer *a = mcp_call_of(c)->own;
    const struct code_frame *f = e->frame;
    const size_t i = e->kind == CODE_STDERR;
    if (e->kind == CODE_STDOUT || e->kind == CODE_STDERR) {
        a->bytes[i] += f->text.n;
        (void)buf_append_str(&a->out[i], str_n(f->text.p, MIN(f->text.n, MCP_TEXT_MAX - buf_len(&a->out[i]))));
        rpc_progress(c, a->bytes[0] + a->bytes[1], f->text);
    } else if (e->kind == CODE_RESULT) {
        code_answer_result(a, f);
    } else if (e->kind == CODE_ERROR && !a->error) {
        a->error = json_pack("{s:o,s:o,s:o}", "name", call_text(mcp_cut(f->name, 200)), "value",
                             call_text(mcp_cut(f->value, 4000)), "traceback", call_text(mcp_cut(f->trace, 16000)));
    } else if (e->kind == CODE_END) {
        c->cell = NULL;
        code_answer_end(c, a);
    }
    return true;
}

void run_code_tool(struct call *c)
{
    struct str language = STR("python");
    struct code_spec spec = {.context = STR("")};
    struct code_answer *a = arena_alloc(http_arena(c->req), sizeof(*a));
    struct err err;
    if (!TOOL_WANTS(c, JSON_NEED_STR("code", &spec.code), JSON_WANT_STR("language", &language)))
        return;
    spec.language = code_language(c->sandbox, language, &err);
    if (!spec.language) {
        call_fail_hint(c, &err, "exec runs an interpreter where the template has no runners, as python3 -c");
        return;
    }
    *a = (struct code_answer){.results = json_array()};
    buf_init(&a->out[0], MCP_TEXT_MAX);
    buf_init(&a->out[1], MCP_TEXT_MAX);
    mcp_call_of(c)->own = a;
    mcp_call_of(c)->cleanup = code_answer_closed;
    if (!call_ok(c, code_run(c->sandbox, &c->actor, &spec, code_answer_event, c, &c->cell, &c->err)))
        c->cell = NULL;
}
