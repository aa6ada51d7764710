/* SPDX-License-Identifier: Apache-2.0 */
/* Cells: how they wait, are sent to the runner of their context, and end. */
#include "base/mem.h"
#include "sandbox/code/internal.h"

#include <signal.h>

enum { RESULTS_TOLD = 16, CELL_REQUEST_MAX = 4 << 20 };

bool cell_tell(struct code_cell *cell, enum code_event_kind kind, const struct code_frame *f)
{
    if (!cell->fn)
        return true;
    bool goes_on = cell->fn(cell->ctx, &(struct code_event){kind, f});
    cell->is_slow = !goes_on;
    return goes_on;
}

void cell_end(struct code_cell *cell)
{
    struct code_context *x = cell->context;
    struct sandbox *sb = x->code->sb;
    if (x->cells.next == &cell->node)
        loop_alarm_clear(sb->core->loop, &x->again);
    list_remove(&cell->node);
    if (cell->seq && !sb->core->closing) {
        EVENT_DATA_PUT(&cell->told, DATA_U64("count", cell->count), DATA_U64("stdout_bytes", cell->bytes[0]),
                       DATA_U64("stderr_bytes", cell->bytes[1]));
        if (cell->n_results) {
            (void)buf_append_char(&cell->results, ']');
            event_data_json(&cell->told, "results", buf_str(&cell->results));
        }
        EVENT_DATA_PUT(&cell->told, DATA_FLAG("interrupted", cell->is_interrupted));
        action_observe(sb, cell->seq, EVENT_CODE_DONE, EVENT_CLAIMED, event_data_end(&cell->told));
    }
    (void)cell_tell(cell, CODE_END, NULL);
    event_data_fini(&cell->told);
    buf_fini(&cell->results);
    buf_fini(&cell->request);
    mem_free(cell);
}

/* The first one is recorded: a name stands in an object once. */
void cell_note_error(struct code_cell *cell, const struct code_frame *f)
{
    if (!cell->has_failed) {
        EVENT_DATA_PUT(&cell->told, DATA_STR("error", f->name), DATA_STR("message", f->value));
    }
    cell->has_failed = true;
}

void cell_fail(struct code_cell *cell, const char *name, const char *value)
{
    const struct code_frame f = {
        .kind = CODE_FRAME_ERROR, .name = str_of(name), .value = str_of(value), .trace = STR("")};
    cell_note_error(cell, &f);
    (void)cell_tell(cell, CODE_ERROR, &f);
    cell_end(cell);
}

/* [["text/plain","image/png"],["text/html"]] */
void cell_note_result(struct code_cell *cell, const struct code_frame *f)
{
    if (cell->n_results++ >= RESULTS_TOLD)
        return;
    (void)buf_append_char(&cell->results, buf_len(&cell->results) ? ',' : '[');
    for (size_t i = 0; i < f->n_data; i++) {
        (void)buf_append_char(&cell->results, i ? ',' : '[');
        (void)buf_append_json_string(&cell->results, f->data[i].type);
        if (f->is_main && !cell->has_text && str_eqc(f->data[i].type, "text/plain")) {
            event_data_str(&cell->told, "text", f->data[i].data);
            cell->has_text = true;
        }
    }
    (void)buf_append_cstr(&cell->results, f->n_data ? "]" : "[]");
}

static void on_fed(void *ctx, const struct err *err)
{
    struct code_context *x = ctx;
    x->feed = NULL;
    if (err)
        context_signal(x, SIGKILL); /* it does not read: nothing will come of it */
}

void code_next(struct code_context *x)
{
    struct code_cell *cell = list_empty(&x->cells) ? NULL : LIST_FIRST(struct code_cell, &x->cells, node);
    struct err err;
    if (!cell || cell->sent || !x->is_ready || x->feed || x->restarts || x->removed)
        return;
    cell->sent = true;
    x->oom_kills = x->code->sb->oom_kills;
    if (exec_feed(x->code->sb, &(struct exec_select){.pid = x->pid}, buf_str(&cell->request), on_fed, x, &x->feed,
                  &err) < 0)
        context_signal(x, SIGKILL);
    buf_fini(&cell->request);
}

/* The frame that it is asked by. */
static int cell_request(struct code_cell *cell, const struct code_spec *spec, struct err *err)
{
    struct buf *b = &cell->request;
    size_t size = 8 + 4 + spec->code.n + 4;
    for (size_t i = 0; i < spec->n_envs; i++) {
        if (!spec->envs[i].key.n || str_has_nul(spec->envs[i].key) || str_find_char(spec->envs[i].key, '=') >= 0 ||
            str_has_nul(spec->envs[i].value))
            return err_set(err, ERR_INVALID_ARGUMENT, "an environment variable without a proper name or value");
        size += 8 + spec->envs[i].key.n + spec->envs[i].value.n;
    }
    wire_put_u32(b, (uint32_t)size);
    wire_put_u8(b, CODE_FRAME_RUN);
    wire_put_u64(b, cell->number);
    wire_put_str(b, spec->code);
    wire_put_u32(b, (uint32_t)spec->n_envs);
    for (size_t i = 0; i < spec->n_envs; i++) {
        wire_put_str(b, spec->envs[i].key);
        wire_put_str(b, spec->envs[i].value);
    }
    return buf_error(b) ? err_set(err, ERR_INVALID_ARGUMENT, "a cell may have %d MiB", CELL_REQUEST_MAX >> 20) : 0;
}

static int cell_begin(struct code_cell *cell, const struct actor *actor, const struct code_spec *spec, struct err *err)
{
    struct code_context *x = cell->context;
    if (cell_request(cell, spec, err) < 0 || (!x->follow && context_start(x, actor, false, err) < 0))
        return -1;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("context", x->id), DATA_STR("language", x->language),
                                                     DATA_STR("code", spec->code), DATA_COUNT("envs", spec->n_envs));
    return action_begin(x->code->sb, actor, EVENT_CODE_RUN, event_data_end(&d), &cell->seq, err);
}

static struct code_cell *cell_new(struct code_context *x, code_event_fn fn, void *ctx)
{
    char number[9];
    struct code_cell *cell = mem_new(struct code_cell);
    *cell = (struct code_cell){.context = x,
                               .fn = fn,
                               .ctx = ctx,
                               .request = BUF_INIT(CELL_REQUEST_MAX),
                               .told = EVENT_DATA_INIT,
                               .results = BUF_INIT(8192)};
    list_init(&cell->node);
    id_token(number, 8);
    memcpy(&cell->number, number, sizeof(cell->number));
    return cell;
}

void cell_probe(struct code_context *x)
{
    struct code_cell *cell = cell_new(x, NULL, NULL);
    struct err err;
    (void)!cell_request(cell, &(struct code_spec){.code = STR("")}, &err);
    list_append(&x->cells, &cell->node);
    code_next(x);
    context_kill_later(x);
}

int code_run(struct sandbox *sb, const struct actor *actor, const struct code_spec *spec, code_event_fn fn, void *ctx,
             struct code_cell **ret_cell, struct err *err)
{
    if (code_usable(sb, actor, err) < 0)
        return -1;
    struct code *code = code_of(sb);
    struct code_context *x =
        spec->context.n ? context_find(code, spec->context) : context_default(code, spec->language);
    if (!x)
        return err_set(err, ERR_NOT_FOUND, "Context %.*s not found", STR_ARG_MAX(spec->context, CODE_ID_MAX));
    if (!x->follow && !list_empty(&x->cells)) { /* rule 1, while its end is looked into */
        (void)err_set(err, ERR_UNAVAILABLE, "the runner was killed");
        context_over(x, err);
    }
    size_t n = 0;
    LIST_FOREACH (struct code_cell, one, &x->cells, node)
        n += one->context == x;
    if (n >= CODE_CELLS_MAX)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "%d cells wait for this context, which is the limit",
                       CODE_CELLS_MAX);
    struct code_cell *cell = cell_new(x, fn, ctx);
    if (cell_begin(cell, actor, spec, err) < 0) {
        buf_fini(&cell->request);
        event_data_fini(&cell->told);
        mem_free(cell);
        return -1;
    }
    list_append(&x->cells, &cell->node);
    code_next(x);
    *ret_cell = cell;
    return 0;
}

void code_drained(struct code_cell *cell)
{
    struct code_context *x = cell->context;
    cell->is_slow = false;
    if (x->cells.next == &cell->node && x->follow) {
        exec_ack(x->follow, x->unacked);
        x->unacked = 0;
    }
}

void code_leave(struct code_cell *cell)
{
    if (!cell)
        return;
    cell->fn = NULL;
    code_drained(cell);
    cell->is_interrupted = true;
    if (cell->sent)
        context_interrupt(cell->context);
    else
        cell_end(cell);
}

int code_interrupt(struct code_cell *cell, const struct actor *actor, struct err *err)
{
    uint64_t cause;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("context", cell->context->id));
    if (action_begin(cell->context->code->sb, actor, EVENT_CODE_INTERRUPT, event_data_end(&d), &cause, err) < 0)
        return -1;
    cell->is_interrupted = true;
    if (cell->sent)
        context_interrupt(cell->context);
    else
        cell_fail(cell, "KeyboardInterrupt", "the cell was interrupted before it ran");
    return 0;
}
