/* SPDX-License-Identifier: Apache-2.0 */
/* The cells of /run_jupyter: one after the other in the Python context of a sandbox (sandbox/code/code.h). One that
 * fails stops none that come later. */
#include "api/fusion/handlers.h"
#include "event/json.h"

enum { SHOWN_LEAST = 64 }; /* bytes that a result or an error counts for, beside its own */

/* Whole or not at all: of what all cells show there is an end, however small its parts are. */
static void cell_shows(struct fusion_run *r, struct buf *list, const struct buf *one)
{
    size_t bytes = buf_len(one) + SHOWN_LEAST;
    if (buf_error(one) < 0 || bytes > FUSION_FETCH_MAX - r->shown_bytes)
        return;
    r->shown_bytes += bytes;
    json_put_comma(list);
    (void)buf_append_str(list, buf_str(one));
}

static void cell_result(struct fusion_run *r, const struct code_frame *f)
{
    AUTO_BUF struct buf b = BUF_INIT(FUSION_FETCH_MAX), compact = BUF_INIT(CODE_FRAME_MAX);
    (void)buf_append_char(&b, '{');
    for (size_t i = 0; i < f->n_data; i++) {
        bool is_json = str_eqc(f->data[i].type, "application/json");
        json_put_comma(&b);
        (void)buf_append_json_string(&b, f->data[i].type);
        (void)buf_append_char(&b, ':');
        buf_clear(&compact);
        if (is_json && json_compact(f->data[i].data, &compact) == 0)
            (void)buf_append_str(&b, buf_str(&compact));
        else
            (void)buf_append_json_string(&b, f->data[i].data);
    }
    (void)buf_append_char(&b, '}');
    cell_shows(r, &r->cell_display, &b);
}

static void cell_error(struct fusion_run *r, const struct code_frame *f)
{
    AUTO_BUF struct buf b = BUF_INIT(FUSION_FETCH_MAX);
    struct str rest = f->trace, line;
    json_open(&b, "ename", f->name);
    json_put_str(&b, "evalue", f->value);
    (void)buf_append_cstr(&b, ",\"traceback\":[");
    while (rest.n && str_split(&rest, '\n', &line)) {
        json_put_comma(&b);
        (void)buf_append_json_string(&b, line);
    }
    (void)buf_append_cstr(&b, "]}");
    cell_shows(r, &r->cell_errors, &b);
}

static void cell_over(struct fusion_run *r)
{
    timer_stop(&r->call->timer);
    json_put_comma(&r->told);
    json_open(&r->told, "stdout", buf_str(&r->cell_out));
    json_put_str(&r->told, "stderr", buf_str(&r->cell_err));
    (void)buf_append_cstr(&r->told, ",\"display\":[");
    (void)buf_append_str(&r->told, buf_str(&r->cell_display));
    (void)buf_append_cstr(&r->told, "],\"error\":[");
    (void)buf_append_str(&r->told, buf_str(&r->cell_errors));
    (void)buf_append_cstr(&r->told, "]}");
    r->cell = NULL;
    call_step(r->call, fusion_run_step);
}

static bool cell_event(void *ctx, const struct code_event *e)
{
    struct fusion_run *r = ((struct call *)ctx)->state;
    switch (e->kind) {
    case CODE_STDOUT:
    case CODE_STDERR: {
        struct buf *b = e->kind == CODE_STDERR ? &r->cell_err : &r->cell_out;
        (void)buf_append_str(b, str_n(e->frame->text.p, MIN(e->frame->text.n, FUSION_OUTPUT_MAX - r->cell_bytes)));
        r->cell_bytes += MIN(e->frame->text.n, FUSION_OUTPUT_MAX - r->cell_bytes);
        break;
    }
    case CODE_RESULT:
        cell_result(r, e->frame);
        break;
    case CODE_ERROR:
        cell_error(r, e->frame);
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
        buf_init(&r->cell_display, FUSION_FETCH_MAX);
        buf_init(&r->cell_errors, FUSION_FETCH_MAX);
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
    buf_clear(&r->cell_display);
    buf_clear(&r->cell_errors);
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
    buf_fini(&r->cell_display);
    buf_fini(&r->cell_errors);
}
