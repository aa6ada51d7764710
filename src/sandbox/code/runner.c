/* SPDX-License-Identifier: Apache-2.0 */
/* A context's runner: how it starts, what it says, and what becomes of its cells when it ends. */
#include "base/mem.h"
#include "sandbox/code/internal.h"

#include <signal.h>

enum { RUNNER_AGAIN_MS = 1000, RUNNER_FREE_BYTES = 128 * 1024, RUNNER_PIECE_MAX = 16 * 1024 };

static const struct actor restarter = {.name = "code"}; /* somebody passed the gate for it before */

void context_signal(struct code_context *x, int signal)
{
    struct process *p = x->pid ? process_find(x->code->sb, &(struct exec_select){.pid = x->pid}) : NULL;
    if (p && !p->ended)
        process_signal(p, signal);
}

static void context_again(struct loop_alarm *alarm)
{
    struct code_context *x = container_of(alarm, struct code_context, again);
    context_signal(x, x->restarts || x->removed ? SIGKILL : SIGINT);
    loop_alarm_set(x->code->sb->core->loop, alarm, clock_mono() + RUNNER_AGAIN_MS * USEC_PER_MS, context_again);
}

void context_kill_later(struct code_context *x)
{
    loop_alarm_set(x->code->sb->core->loop, &x->again, clock_mono() + RUNNER_AGAIN_MS * USEC_PER_MS, context_again);
}

void context_interrupt(struct code_context *x)
{
    context_signal(x, SIGINT);
    context_kill_later(x);
}

/* It has no runner any more, or never got one. */
void context_over(struct code_context *x, const struct err *why)
{
    char message[sizeof(why->msg) + 128];
    bool restarts = x->restarts;
    struct code_making *m = TAKE_PTR(x->making);
    struct err again;
    exec_call_cancel(TAKE_PTR(x->feed));
    loop_alarm_clear(x->code->sb->core->loop, &x->again);
    buf_fini(&x->rest);
    charge_release(&x->charge);
    x->is_ready = x->restarts = x->is_cut = false;
    x->pid = 0;
    x->n_carry[0] = x->n_carry[1] = x->unacked = 0;
    (void)snprintf(message, sizeof(message),
                   "Connection to the execution was closed before the execution was finished: %s", why->msg);
    LIST_FOREACH (struct code_cell, cell, &x->cells, node) {
        if (cell->is_restarted)
            cell_fail(cell, "ContextRestarting", "Context was restarted");
        else if (!restarts)
            cell_fail(cell, "UnexpectedEndOfExecution", message);
    }
    if (restarts && !m && !x->removed && !x->code->sb->core->closing &&
        context_start(x, &restarter, false, &again) < 0) {
        context_over(x, &again);
        return;
    }
    if (m || x->removed)
        context_free(x);
    if (m)
        m->done(m->ctx, NULL, why);
    mem_free(m);
}

/* What was said before it ended was told in full: was it for want of memory? */
struct code_post_mortem {
    struct sandbox *sb; /* a reference */
    char id[CODE_ID_MAX + 1];
};

static void post_mortem_done(void *ctx, const struct sandbox_sample *sample, const struct err *err)
{
    struct code_post_mortem *pm = ctx;
    struct code_context *x = pm->sb->code ? context_find(pm->sb->code, str_of(pm->id)) : NULL;
    struct err why;
    (void)sample, (void)err;
    (void)err_set(&why, ERR_UNAVAILABLE, "%s",
                  x && pm->sb->oom_kills > x->oom_kills ? "the sandbox was out of memory, and the runner was killed"
                                                        : "the runner was killed by signal 9");
    if (x && !x->follow)
        context_over(x, &why);
    sandbox_unref(pm->sb);
    mem_free(pm);
}

static void runner_ended(void *ctx, const struct exec_exit *exit, const struct err *err)
{
    struct code_context *x = ctx;
    struct sandbox *sb = x->code->sb;
    struct err why;
    if (err) {
        context_over(x, err);
        return;
    }
    if (exit->signaled && exit->code == SIGKILL && !x->restarts && !x->removed && !list_empty(&x->cells)) {
        struct code_post_mortem *pm = mem_new(struct code_post_mortem);
        *pm = (struct code_post_mortem){.sb = sandbox_ref(sb)};
        memcpy(pm->id, x->id, sizeof(pm->id));
        if (sandbox_sample_now(sb, post_mortem_done, pm, &why) == 0)
            return;
        sandbox_unref(sb);
        mem_free(pm);
    }
    (void)err_set(&why, ERR_UNAVAILABLE, "the runner ended with %s %u%s%s", exit->signaled ? "signal" : "status",
                  exit->code, x->said[0] ? ": " : "", x->said);
    context_over(x, &why);
}

static void runner_started(void *ctx, uint32_t pid)
{
    struct code_context *x = ctx;
    x->pid = pid;
    if (x->restarts || x->removed)
        context_signal(x, SIGTERM);
}

/* How many bytes at the end begin a character that is not there yet. */
static size_t code_unfinished(struct str s)
{
    for (size_t k = 1; s.p && k <= 3 && k <= s.n; k++) {
        unsigned char c = (unsigned char)s.p[s.n - k];
        if ((c & 0xc0) != 0x80)
            return (c >= 0xf0 ? 4u : c >= 0xe0 ? 3u : c >= 0xc0 ? 2u : 1u) > k ? k : 0;
    }
    return 0;
}

static bool context_output(struct code_context *x, struct code_cell *cell, const struct code_frame *f, bool is_last)
{
    size_t i = f->kind == CODE_FRAME_STDERR;
    struct code_frame whole = *f;
    AUTO_BUF struct buf joined = BUF_INIT(CODE_FRAME_MAX + 8);
    cell->bytes[i] += f->text.n;
    if (x->n_carry[i]) {
        (void)buf_append(&joined, x->carry[i], x->n_carry[i]);
        if (buf_append_str(&joined, f->text) == 0)
            whole.text = buf_str(&joined);
    }
    x->n_carry[i] = is_last ? 0 : code_unfinished(whole.text);
    whole.text.n -= x->n_carry[i];
    if (x->n_carry[i])
        memcpy(x->carry[i], whole.text.p + whole.text.n, x->n_carry[i]);
    return !whole.text.n || cell_tell(cell, f->kind == CODE_FRAME_STDERR ? CODE_STDERR : CODE_STDOUT, &whole);
}

static bool runner_says(void *ctx, const struct code_frame *f)
{
    struct code_context *x = ctx;
    struct code_cell *cell = list_empty(&x->cells) ? NULL : LIST_FIRST(struct code_cell, &x->cells, node);
    if (f->kind == CODE_FRAME_READY) {
        struct code_making *m = TAKE_PTR(x->making);
        x->is_ready = true;
        if (m)
            m->done(m->ctx, &(struct code_context_info){x->id, x->language, x->cwd, false}, NULL);
        mem_free(m);
        code_next(x);
        return true;
    }
    if (!cell || !cell->sent) /* of what goes on behind a cell's back */
        return true;
    switch (f->kind) {
    case CODE_FRAME_READY:
        break;
    case CODE_FRAME_STDOUT:
    case CODE_FRAME_STDERR:
        (void)context_output(x, cell, f, false);
        break;
    case CODE_FRAME_RESULT:
        cell_note_result(cell, f);
        (void)cell_tell(cell, CODE_RESULT, f);
        break;
    case CODE_FRAME_ERROR:
        cell_note_error(cell, f);
        (void)cell_tell(cell, CODE_ERROR, f);
        break;
    case CODE_FRAME_COUNT:
        cell->count = f->count;
        (void)cell_tell(cell, CODE_COUNT, f);
        break;
    case CODE_FRAME_END:
        if (f->cell != cell->number)
            break;
        for (size_t i = 0; i < 2; i++)
            if (x->n_carry[i])
                (void)context_output(
                    x, cell, &(struct code_frame){.kind = i ? CODE_FRAME_STDERR : CODE_FRAME_STDOUT, .text = STR("")},
                    true);
        cell_end(cell);
        code_next(x);
        break;
    }
    return true;
}

/* Nobody has to read what it began, and it need not go on. */
static int context_hold(struct code_context *x, struct err *err)
{
    const size_t held = buf_len(&x->rest);
    if (held == 0)
        charge_release(&x->charge);
    if (held <= MAX(x->charge.bytes, (size_t)RUNNER_FREE_BYTES))
        return 0;
    x->charge.core = x->code->sb->core;
    x->charge.tenant = x->code->sb->info.tenant;
    return charge_memory(&x->charge, 2 * held - x->charge.bytes, err); /* a buffer doubles */
}

/* What comes before the end of the cell of nothing, whose number nobody can guess, was said to a worker before. */
static int context_join(struct code_context *x, struct str bytes)
{
    AUTO_BUF struct buf end = BUF_INIT(16);
    const struct code_cell *nothing = LIST_FIRST(struct code_cell, &x->cells, node); /* there until then */
    assert(nothing);
    wire_put_u32(&end, 8);
    wire_put_u8(&end, CODE_FRAME_END);
    wire_put_u64(&end, nothing->number);
    if (buf_append_str(&x->rest, bytes) < 0)
        return -ENOMEM;
    const char *begin = buf_data(&x->rest), *at = memmem(begin, buf_len(&x->rest), buf_data(&end), buf_len(&end));
    if (!at) {
        buf_consume(&x->rest, buf_len(&x->rest) - MIN(buf_len(&x->rest), buf_len(&end) - 1));
        return 0;
    }
    AUTO_BUF struct buf said = x->rest;
    buf_init(&x->rest, CODE_FRAME_MAX + 8);
    x->is_cut = false;
    return code_frames_feed(&x->rest, str_sub(buf_str(&said), (size_t)(at - begin)), runner_says, x);
}

static void runner_writes(void *ctx, enum wire_channel channel, struct str bytes)
{
    struct code_context *x = ctx;
    struct err err;
    if (channel != WIRE_STDOUT) {
        x->said[0] = 0;
        exec_remember(x->said, sizeof(x->said), str_trim(bytes));
    } else if ((x->is_cut ? context_join(x, bytes) : code_frames_feed(&x->rest, bytes, runner_says, x)) < 0) {
        (void)snprintf(x->said, sizeof(x->said), "it said what no runner says");
        buf_fini(&x->rest);
        context_signal(x, SIGKILL);
    } else if (context_hold(x, &err) < 0) {
        (void)snprintf(x->said, sizeof(x->said), "%.*s", CODE_SAID_MAX, err.msg);
        buf_fini(&x->rest);
        context_signal(x, SIGKILL);
    }
    struct code_cell *cell = list_empty(&x->cells) ? NULL : LIST_FIRST(struct code_cell, &x->cells, node);
    x->unacked += bytes.n;
    if (!cell || !cell->is_slow) {
        exec_ack(x->follow, x->unacked);
        x->unacked = 0;
    }
}

static size_t runner_room(void *ctx)
{
    const struct code_context *x = ctx;
    bool is_slow = !list_empty(&x->cells) && LIST_FIRST(struct code_cell, &x->cells, node)->is_slow;
    return is_slow && !x->restarts && !x->removed ? 0 : RUNNER_PIECE_MAX;
}

static const struct exec_ops runner_ops = {runner_started, runner_writes, runner_ended, runner_room};

int context_start(struct code_context *x, const struct actor *actor, bool waits, struct err *err)
{
    const struct str args[] = {str_of(x->language), STR("warm")};
    AUTO_FREE char *program = mem_printf("%s/start", x->code->directory);
    const struct exec_spec spec = {.cmd = str_of(program),
                                   .args = args,
                                   .n_args = waits ? 2 : 1,
                                   .user = STR("root"),
                                   .cwd = str_of(x->cwd),
                                   .tag = str_of(x->tag),
                                   .stdin_open = true};
    x->said[0] = 0;
    return exec_start(x->code->sb, actor, &spec, &runner_ops, x, &x->follow, err);
}

/* What they were at is lost: who is still at it when a first cell of nothing should have ended is interrupted. */
void code_adopt(struct code *code)
{
    for (struct list *it = code->sb->processes.prev, *before; it != &code->sb->processes; it = before) {
        struct process *p = container_of(it, struct process, node);
        struct str rest = p->tag ? str_of(p->tag) : STR(""), id, word;
        before = it->prev;
        if (p->ended || !p->stream || p->client || !str_starts(rest, STR(CODE_TAG)))
            continue;
        rest = str_sub(rest, strlen(CODE_TAG));
        if (!str_split(&rest, ':', &id) || !str_split(&rest, ':', &word) || !code_has(code, code_known(word)) ||
            !id.n || id.n > CODE_ID_MAX)
            continue;
        struct code_context *x = context_find(code, id);
        if (x ? x->follow != NULL : code->n >= CODE_CONTEXTS_MAX)
            continue;
        if (!x) {
            x = context_new(code, id, code_known(word), rest);
            x->is_default = id.n == ID_UUID_LEN;
        }
        x->pid = p->pid;
        x->is_ready = x->is_cut = true;
        process_follow(p, &runner_ops, x, &x->follow);
        cell_probe(x);
    }
}
