/* SPDX-License-Identifier: Apache-2.0 */
/* The cells of /run_jupyter: one after the other in the Python context of a sandbox (sandbox/code/code.h). One that fails stops none that come later. */
#include "api/fusion/handlers.h"
#include "base/mem.h"

static json_t *cell_told(struct fusion_run *r)
{
    return json_array_get(r->told, r->next - 1);
}

static void cell_result(json_t *display, const struct code_frame *f)
{
    json_t *data = json_object();

    for (size_t i = 0; i < f->n_data; i++) {
        AUTO_FREE char *type = mem_strndup(f->data[i].type.p, f->data[i].type.n);
        bool is_json = str_eqc(f->data[i].type, "application/json");
        json_t *value =
            is_json ? json_loadb(f->data[i].data.p, f->data[i].data.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;

        (void)json_object_set_new(data, type, value ? value : call_text(f->data[i].data));
    }
    (void)json_array_append_new(display, data);
}

static void cell_error(json_t *errors, const struct code_frame *f)
{
    json_t *lines = json_array();
    struct str rest = f->trace, line;

    while (rest.n && str_split(&rest, '\n', &line))
        (void)json_array_append_new(lines, call_text(line));
    (void)json_array_append_new(errors, json_pack("{s:o,s:o,s:o}", "ename", call_text(f->name), "evalue",
                                                  call_text(f->value), "traceback", lines));
}

static void cell_over(struct fusion_run *r)
{
    json_t *told = cell_told(r);

    timer_stop(&r->call->timer);
    (void)json_object_set_new(told, "stdout", call_text(buf_str(&r->cell_out)));
    (void)json_object_set_new(told, "stderr", call_text(buf_str(&r->cell_err)));
    r->cell = NULL;
    call_step(r->call, fusion_run_step);
}

static bool cell_event(void *ctx, const struct code_event *e)
{
    struct fusion_run *r = ((struct call *)ctx)->state;
    json_t *told = cell_told(r);

    switch (e->kind) {
    case CODE_STDOUT:
    case CODE_STDERR: {
        struct buf *b = e->kind == CODE_STDERR ? &r->cell_err : &r->cell_out;
        (void)buf_append_str(b, str_n(e->frame->text.p, MIN(e->frame->text.n, FUSION_OUTPUT_MAX - r->cell_bytes)));
        r->cell_bytes += MIN(e->frame->text.n, FUSION_OUTPUT_MAX - r->cell_bytes);
        break;
    }
    case CODE_RESULT:
        for (size_t i = 0; i < e->frame->n_data; i++)
            r->shown_bytes += e->frame->data[i].data.n;
        if (r->shown_bytes <= FUSION_FETCH_MAX)
            cell_result(json_object_get(told, "display"), e->frame);
        break;
    case CODE_ERROR:
        cell_error(json_object_get(told, "error"), e->frame);
        break;
    case CODE_END:
        cell_over(r);
        break;
    case CODE_COUNT:
        break;
    }
    return true;
}

/* A cell has had its time, or all have. */
static void cell_late(struct call *c)
{
    struct fusion_run *r = c->state;
    usec_t now = clock_mono();
    struct err err;

    if (now < r->until) {
        (void)!code_interrupt(r->cell, &c->actor, &err);
        call_set_timer(c, (r->until - now) / USEC_PER_MS + 1, cell_late);
        return;
    }
    r->ran.status = "TimeLimitExceeded";
    code_leave(TAKE_PTR(r->cell));
    cell_over(r);
}

int fusion_cells_next(struct fusion_run *r, struct err *err)
{
    struct code_spec spec = {.language = "python"};
    usec_t now = clock_mono();

    if (r->ran.started == 0) {
        r->ran.started = now;
        r->until = now + r->run_ms * USEC_PER_MS;
        buf_init(&r->cell_out, FUSION_OUTPUT_MAX);
        buf_init(&r->cell_err, FUSION_OUTPUT_MAX);
    }
    if (r->next == json_array_size(r->cells) || r->ran.status) {
        r->ran.took = now - r->ran.started;
        r->ran.has_code = !r->ran.status;
        r->ran.status = r->ran.status ? r->ran.status : "Finished";
        return 1;
    }
    const json_t *code = json_array_get(r->cells, r->next);
    spec.code = json_str(code);
    if (code_run(r->sb, &r->call->actor, &spec, cell_event, r->call, &r->cell, err) < 0) {
        r->cell = NULL;
        return -1;
    }
    buf_clear(&r->cell_out);
    buf_clear(&r->cell_err);
    (void)json_array_append_new(r->told,
                                json_pack("{s:s,s:s,s:[],s:[]}", "stdout", "", "stderr", "", "display", "error"));
    r->next++;
    uint64_t rest = r->until > now ? (r->until - now) / USEC_PER_MS + 1 : 1;
    call_set_timer(r->call, r->cell_ms ? MIN(r->cell_ms, rest) : rest, cell_late);
    return 0;
}

void fusion_cells_fini(struct fusion_run *r)
{
    if (r->cell)
        code_leave(TAKE_PTR(r->cell));
    buf_fini(&r->cell_out);
    buf_fini(&r->cell_err);
}
