/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *  1. A context lives as long as its sandbox, or until it is removed. Its runner is another matter: it is started when a cell wants it, and may end at any time. Then the
 *     cells that there are end with an error that says how, and the next one starts another runner under the same id.
 *  2. Cells are a queue; the first one is sent when the runner has said READY and the one before has ended. It ends with END of its number, which nobody can guess beforehand, or
 *     with its runner.
 *  3. Output is acknowledged when the client has it. What comes of a cell whose client has gone is dropped; that cell gets SIGINT, again and again until it ends.
 *  4. Runners pass the gate as processes do (exec.start, exec.signal), cells as code.run. What is fed to a runner is no action of its own.
 *  5. Whatever a runner says that is no frame, or comes where it can't, ends it.
 *  6. The tag of a runner says which context it is of, so that another worker can take it over (code_adopt()).
 */
#include "sandbox/code/code.h"

#include "base/mem.h"
#include "sandbox/exec/process.h"

#include <signal.h>
#include <stdio.h>

enum { AGAIN_MS = 1000, SAID_MAX = 200, RESULTS_TOLD = 16, REQUEST_MAX = 4 << 20 };

#define TAG "code:"
#define HOME "/home/user"

struct code {
    struct sandbox *sb;
    struct list contexts; /* in order of creation */
    size_t n;
    const char *directory; /* of the runners; in the sandbox's variables, as the languages */
    struct str languages;  /* blanks between them */
};

struct code_making {
    struct code_context *of;
    code_made_fn done;
    void *ctx;
};

struct code_context {
    struct code *code;
    struct list node;
    char id[CODE_ID_MAX + 1];
    const char *language;
    char *cwd, *tag;
    struct follow *follow; /* NULL: no runner */
    uint32_t pid;
    bool is_ready, is_default;
    bool restarts, removed; /* its runner is on its way out, for this reason */
    struct buf rest;        /* a frame that has begun */
    struct buf joined;
    char carry[2][4]; /* of STDOUT and STDERR: a character that has begun */
    size_t n_carry[2];
    size_t unacked;
    struct list cells;
    struct exec_call *feed;
    struct code_making *making;
    struct loop_alarm again;
    char said[SAID_MAX + 1]; /* by the runner itself, on its stderr */
};

struct code_cell {
    struct code_context *context;
    struct list node;
    uint64_t number, seq;
    code_event_fn fn; /* NULL: its client has gone */
    void *ctx;
    struct buf request;                               /* until it is sent */
    bool sent, is_slow, is_interrupted, is_restarted; /* its context was, under it */
    uint64_t bytes[2];
    uint32_t count, n_results;
    struct event_data told;
    struct buf results;
};

static void code_next(struct code_context *x);

/* ---- what there is ---- */

static struct str code_variable(const struct sandbox *sb)
{
    for (size_t i = 0; i < sb->info.n_envs; i++)
        if (str_eqc(sb->info.envs[i].key, "COVE_CODE"))
            return sb->info.envs[i].value;
    return STR("");
}

bool code_is_here(const struct sandbox *sb)
{
    struct str value = code_variable(sb);
    return value.n && value.p[0] == '/';
}

static const char *code_known(struct str name)
{
    static const char *const names[] = {"python", "javascript", "typescript", "bash", "r", "java"};

    if (str_eqc(name, "js") || str_eqc(name, "ts"))
        return name.p[0] == 'j' ? names[1] : names[2];
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (str_eqc(name, names[i]))
            return names[i];
    return NULL;
}

static bool code_has(const struct code *code, const char *language)
{
    struct str all = code->languages, one;
    while (language && str_split(&all, ' ', &one))
        if (str_eqc(one, language))
            return true;
    return language && str_eqc(all, language);
}

static struct code_context *context_new(struct code *code, struct str id, const char *language, struct str cwd)
{
    struct code_context *x = mem_new(struct code_context);
    *x = (struct code_context){.code = code,
                               .language = language,
                               .rest = BUF_INIT(CODE_FRAME_MAX + 8),
                               .joined = BUF_INIT(CODE_FRAME_MAX + 8)};
    memcpy(x->id, id.p, MIN(id.n, (size_t)CODE_ID_MAX));
    x->cwd = cwd.n ? mem_strndup(cwd.p, cwd.n) : mem_strdup(HOME);
    x->tag = mem_printf(TAG "%s:%s:%s", x->id, language, x->cwd);
    list_init(&x->cells);
    list_append(&code->contexts, &x->node);
    code->n++;
    return x;
}

static void context_free(struct code_context *x)
{
    assert(list_empty(&x->cells));
    exec_close(x->follow);
    exec_call_cancel(x->feed);
    loop_alarm_clear(x->code->sb->core->loop, &x->again);
    list_remove(&x->node);
    x->code->n--;
    if (x->making)
        x->making->of = NULL;
    buf_fini(&x->rest);
    buf_fini(&x->joined);
    mem_free(x->cwd);
    mem_free(x->tag);
    mem_free(x);
}

static struct code_context *context_find(struct code *code, struct str id)
{
    LIST_FOREACH (struct code_context, x, &code->contexts, node)
        if (!x->removed && str_eqc(id, x->id))
            return x;
    return NULL;
}

static struct code_context *context_default(struct code *code, const char *language)
{
    char id[ID_UUID_LEN + 1];
    LIST_FOREACH (struct code_context, x, &code->contexts, node)
        if (x->is_default && !x->removed && strcmp(x->language, language) == 0)
            return x;
    id_uuid(id);
    struct code_context *x = context_new(code, str_of(id), language, STR(""));
    x->is_default = true;
    return x;
}

static void code_adopt(struct code *code);

static struct code *code_of(struct sandbox *sb)
{
    struct code *code = sb->code;
    struct str value = code_variable(sb), directory;

    if (code)
        return code;
    code = sb->code = mem_new(struct code);
    code->sb = sb;
    list_init(&code->contexts);
    if (str_split(&value, ' ', &directory)) {
        code->directory = arena_strndup(&sb->arena, directory.p, directory.n);
        code->languages = value;
    } else {
        code->directory = arena_strndup(&sb->arena, value.p, value.n);
    }
    code_adopt(code);
    static const char *const first[] = {"python", "javascript"};
    for (size_t i = 0; i < ARRAY_SIZE(first); i++)
        if (code_has(code, first[i]))
            (void)context_default(code, first[i]);
    return code;
}

void code_each(struct sandbox *sb, bool (*fn)(void *ctx, const struct code_context_info *info), void *ctx)
{
    if (!code_is_here(sb))
        return;
    LIST_FOREACH (struct code_context, x, &code_of(sb)->contexts, node)
        if (!x->removed && !fn(ctx, &(struct code_context_info){x->id, x->language, x->cwd, !list_empty(&x->cells)}))
            return;
}

static int code_missing(struct err *err)
{
    return err_set(err, ERR_UNIMPLEMENTED,
                   "the sandbox's template runs no code: make one from \"code-interpreter\" (cove template add)");
}

const char *code_language(struct sandbox *sb, struct str name, struct err *err)
{
    if (!code_is_here(sb)) {
        (void)code_missing(err);
        return NULL;
    }
    struct code *code = code_of(sb);
    const char *language = code_known(name);

    if (code_has(code, language))
        return language;
    (void)err_set(err, ERR_INVALID_ARGUMENT, "the language \"%.*s\" is not in this template; there is %.*s",
                  (int)MIN(name.n, (size_t)64), name.p, STR_ARG(code->languages));
    return NULL;
}

/* ---- cells ---- */

static bool cell_tell(struct code_cell *cell, enum code_event_kind kind, const struct code_frame *f)
{
    if (!cell->fn)
        return true;
    bool goes_on = cell->fn(cell->ctx, &(struct code_event){kind, f});
    cell->is_slow = !goes_on;
    return goes_on;
}

static void cell_end(struct code_cell *cell)
{
    struct code_context *x = cell->context;
    struct sandbox *sb = x->code->sb;

    if (x->cells.next == &cell->node)
        loop_alarm_clear(sb->core->loop, &x->again);
    list_remove(&cell->node);
    if (cell->seq && !sb->core->closing) {
        event_data_u64(&cell->told, "count", cell->count);
        event_data_u64(&cell->told, "stdout_bytes", cell->bytes[0]);
        event_data_u64(&cell->told, "stderr_bytes", cell->bytes[1]);
        if (cell->n_results) {
            (void)buf_append_char(&cell->results, ']');
            event_data_json(&cell->told, "results", buf_str(&cell->results));
        }
        if (cell->is_interrupted)
            event_data_bool(&cell->told, "interrupted", true);
        action_observe(sb, cell->seq, EVENT_CODE_DONE, EVENT_CLAIMED, event_data_end(&cell->told));
    }
    (void)cell_tell(cell, CODE_END, NULL);
    event_data_fini(&cell->told);
    buf_fini(&cell->results);
    buf_fini(&cell->request);
    mem_free(cell);
}

static void cell_fail(struct code_cell *cell, const char *name, const char *value)
{
    const struct code_frame f = {
        .kind = CODE_FRAME_ERROR, .name = str_of(name), .value = str_of(value), .trace = STR("")};

    event_data_str(&cell->told, "error", f.name);
    event_data_str(&cell->told, "message", f.value);
    (void)cell_tell(cell, CODE_ERROR, &f);
    cell_end(cell);
}

/* [["text/plain","image/png"],["text/html"]] */
static void cell_note_result(struct code_cell *cell, const struct code_frame *f)
{
    if (cell->n_results++ >= RESULTS_TOLD)
        return;
    (void)buf_append_char(&cell->results, buf_len(&cell->results) ? ',' : '[');
    for (size_t i = 0; i < f->n_data; i++) {
        (void)buf_append_char(&cell->results, i ? ',' : '[');
        (void)buf_append_json_string(&cell->results, f->data[i].type);
        if (f->is_main && str_eqc(f->data[i].type, "text/plain"))
            event_data_str(&cell->told, "text", f->data[i].data);
    }
    (void)buf_append_cstr(&cell->results, f->n_data ? "]" : "[]");
}

/* ---- runners ---- */

static const struct actor restarter = {.name = "code"}; /* somebody passed the gate for it before */
static int context_start(struct code_context *x, const struct actor *actor, struct err *err);

static void context_signal(struct code_context *x, int signal)
{
    struct process *p = x->pid ? process_find(x->code->sb, &(struct exec_select){.pid = x->pid}) : NULL;

    if (p && !p->ended)
        process_signal(p, signal);
}

static void context_again(struct loop_alarm *alarm)
{
    struct code_context *x = container_of(alarm, struct code_context, again);
    context_signal(x, x->restarts || x->removed ? SIGKILL : SIGINT);
    loop_alarm_set(x->code->sb->core->loop, alarm, clock_mono() + AGAIN_MS * USEC_PER_MS, context_again);
}

static void context_interrupt(struct code_context *x)
{
    context_signal(x, SIGINT);
    loop_alarm_set(x->code->sb->core->loop, &x->again, clock_mono() + AGAIN_MS * USEC_PER_MS, context_again);
}

/* It has no runner any more, or never got one. */
static void context_over(struct code_context *x, const struct err *why)
{
    char message[sizeof(why->msg) + 128];
    bool restarts = x->restarts;
    struct code_making *m = TAKE_PTR(x->making);
    struct err again;

    exec_call_cancel(TAKE_PTR(x->feed));
    loop_alarm_clear(x->code->sb->core->loop, &x->again);
    buf_fini(&x->rest);
    x->is_ready = x->restarts = false;
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
    if (restarts && !m && !x->removed && !x->code->sb->core->closing && context_start(x, &restarter, &again) < 0) {
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
    uint32_t oom_kills;
};

static void post_mortem_done(void *ctx, const struct sandbox_sample *sample, const struct err *err)
{
    struct code_post_mortem *pm = ctx;
    struct code_context *x = pm->sb->code ? context_find(pm->sb->code, str_of(pm->id)) : NULL;
    struct err why;

    (void)sample, (void)err;
    (void)err_set(&why, ERR_UNAVAILABLE, "%s",
                  pm->sb->oom_kills > pm->oom_kills ? "the sandbox was out of memory, and the runner was killed"
                                                    : "the runner was killed by signal 9");
    if (x && !x->follow)
        context_over(x, &why);
    sandbox_unref(pm->sb);
    mem_free(pm);
}

static void runner_exited(void *ctx, const struct exec_exit *exit)
{
    struct code_context *x = ctx;
    struct sandbox *sb = x->code->sb;
    struct err why;

    x->follow = NULL;
    if (exit->signaled && exit->code == SIGKILL && !x->restarts && !x->removed && !list_empty(&x->cells)) {
        struct code_post_mortem *pm = mem_new(struct code_post_mortem);

        *pm = (struct code_post_mortem){.sb = sandbox_ref(sb), .oom_kills = sb->oom_kills};
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

static void runner_failed(void *ctx, const struct err *err)
{
    struct code_context *x = ctx;
    x->follow = NULL;
    context_over(x, err);
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
    for (size_t k = 1; k <= 3 && k <= s.n; k++) {
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

    cell->bytes[i] += f->text.n;
    if (x->n_carry[i]) {
        buf_clear(&x->joined);
        (void)buf_append(&x->joined, x->carry[i], x->n_carry[i]);
        if (buf_append_str(&x->joined, f->text) == 0)
            whole.text = buf_str(&x->joined);
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
        event_data_str(&cell->told, "error", f->name);
        event_data_str(&cell->told, "message", f->value);
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

static void runner_writes(void *ctx, enum wire_channel channel, struct str bytes)
{
    struct code_context *x = ctx;
    if (channel != WIRE_STDOUT) {
        struct str s = str_trim(bytes);
        size_t n = MIN(s.n, (size_t)SAID_MAX);

        for (size_t i = 0; i < n; i++)
            x->said[i] = s.p[s.n - n + i] >= ' ' && s.p[s.n - n + i] <= '~' ? s.p[s.n - n + i] : ' ';
        x->said[n] = 0;
    } else if (code_frames_feed(&x->rest, bytes, runner_says, x) < 0) {
        (void)snprintf(x->said, sizeof(x->said), "it said what no runner says");
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

static const struct exec_ops runner_ops = {runner_started, runner_writes, runner_exited, runner_failed};

static int context_start(struct code_context *x, const struct actor *actor, struct err *err)
{
    struct str args[] = {str_of(x->language)};
    AUTO_FREE char *program = mem_printf("%s/start", x->code->directory);
    const struct exec_spec spec = {.cmd = str_of(program),
                                   .args = args,
                                   .n_args = 1,
                                   .user = STR("root"),
                                   .cwd = str_of(x->cwd),
                                   .tag = str_of(x->tag),
                                   .stdin_open = true};

    x->said[0] = 0;
    return exec_start(x->code->sb, actor, &spec, &runner_ops, x, &x->follow, err);
}

/* Runners of a worker before us. What they were at is lost; they are asked to end it. */
static void code_adopt(struct code *code)
{
    for (struct list *it = code->sb->processes.prev, *before; it != &code->sb->processes; it = before) {
        struct process *p = container_of(it, struct process, node);
        struct str rest = p->tag ? str_of(p->tag) : STR(""), id, word;

        before = it->prev;
        if (p->ended || !p->stream || p->client || !str_starts(rest, STR(TAG)))
            continue;
        rest = str_sub(rest, strlen(TAG));
        if (!str_split(&rest, ':', &id) || !str_split(&rest, ':', &word) || !code_has(code, code_known(word)) ||
            !id.n || id.n > CODE_ID_MAX || code->n >= CODE_CONTEXTS_MAX)
            continue;
        struct code_context *x = context_new(code, id, code_known(word), rest);
        x->is_default = id.n == ID_UUID_LEN;
        x->pid = p->pid;
        x->is_ready = true;
        x->follow = process_follow(p, &runner_ops, x);
        context_signal(x, SIGINT);
    }
}

/* ---- contexts for façades ---- */

static int code_usable(struct sandbox *sb, struct err *err)
{
    return sandbox_usable(sb, err) < 0 ? -1 : code_is_here(sb) ? 0 : code_missing(err);
}

int code_make(struct sandbox *sb, const struct actor *actor, struct str id, const char *language, struct str cwd,
              code_made_fn done, void *ctx, struct code_making **ret_making, struct err *err)
{
    if (code_usable(sb, err) < 0)
        return -1;
    struct code *code = code_of(sb);
    if (!id.n || id.n > CODE_ID_MAX || context_find(code, id))
        return err_set(err, ERR_ALREADY_EXISTS, "there is such a context");
    if (code->n >= CODE_CONTEXTS_MAX)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "the sandbox has %d contexts, which is the limit",
                       CODE_CONTEXTS_MAX);
    if (cwd.n && (cwd.p[0] != '/' || cwd.n > 512))
        return err_set(err, ERR_INVALID_ARGUMENT, "cwd must be an absolute path of 512 bytes at most");
    struct code_context *x = context_new(code, id, language, cwd);
    if (context_start(x, actor, err) < 0) {
        context_free(x);
        return -1;
    }
    x->making = mem_new(struct code_making);
    *x->making = (struct code_making){x, done, ctx};
    *ret_making = x->making;
    return 0;
}

void code_make_cancel(struct code_making *m)
{
    if (!m)
        return;
    if (m->of)
        m->of->making = NULL;
    mem_free(m);
}

/* Its runner goes: with SIGTERM, which those that stand for another process understand, then with SIGKILL. */
static int context_stop(struct sandbox *sb, const struct actor *actor, struct str id, bool removes, struct err *err)
{
    if (code_usable(sb, err) < 0)
        return -1;
    struct code_context *x = context_find(code_of(sb), id);
    if (!x)
        return err_set(err, ERR_NOT_FOUND, "Context %.*s not found", (int)MIN(id.n, (size_t)CODE_ID_MAX), id.p);
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    uint64_t cause;
    event_data_str(&d, "context", str_of(x->id));
    if (action_begin(sb, actor, removes ? EVENT_CODE_REMOVE : EVENT_CODE_RESTART, event_data_end(&d), &cause, err) < 0)
        return -1;
    x->removed = removes;
    if (!x->follow) {
        if (removes && list_empty(&x->cells))
            context_free(x);
        return 0;
    }
    x->restarts = !removes;
    LIST_FOREACH (struct code_cell, cell, &x->cells, node)
        cell->is_restarted = true;
    context_signal(x, SIGTERM);
    loop_alarm_set(sb->core->loop, &x->again, clock_mono() + AGAIN_MS * USEC_PER_MS, context_again);
    return 0;
}

int code_restart(struct sandbox *sb, const struct actor *actor, struct str id, struct err *err)
{
    return context_stop(sb, actor, id, false, err);
}

int code_remove(struct sandbox *sb, const struct actor *actor, struct str id, struct err *err)
{
    return context_stop(sb, actor, id, true, err);
}

/* ---- running ---- */

static void on_fed(void *ctx, const struct err *err)
{
    struct code_context *x = ctx;
    x->feed = NULL;
    if (err)
        context_signal(x, SIGKILL); /* it does not read: nothing will come of it */
}

static void code_next(struct code_context *x)
{
    struct code_cell *cell = list_empty(&x->cells) ? NULL : LIST_FIRST(struct code_cell, &x->cells, node);
    struct err err;

    if (!cell || cell->sent || !x->is_ready || x->feed || x->restarts || x->removed)
        return;
    cell->sent = true;
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
    return buf_error(b) ? err_set(err, ERR_INVALID_ARGUMENT, "a cell may have %d MiB", REQUEST_MAX >> 20) : 0;
}

static int cell_begin(struct code_cell *cell, const struct actor *actor, const struct code_spec *spec, struct err *err)
{
    struct code_context *x = cell->context;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;

    if (cell_request(cell, spec, err) < 0 || (!x->follow && context_start(x, actor, err) < 0))
        return -1;
    event_data_str(&d, "context", str_of(x->id));
    event_data_str(&d, "language", str_of(x->language));
    event_data_str(&d, "code", spec->code);
    if (spec->n_envs)
        event_data_u64(&d, "envs", spec->n_envs);
    return action_begin(x->code->sb, actor, EVENT_CODE_RUN, event_data_end(&d), &cell->seq, err);
}

int code_run(struct sandbox *sb, const struct actor *actor, const struct code_spec *spec, code_event_fn fn, void *ctx,
             struct code_cell **ret_cell, struct err *err)
{
    char number[9];
    if (code_usable(sb, err) < 0)
        return -1;
    struct code *code = code_of(sb);
    struct code_context *x =
        spec->context.n ? context_find(code, spec->context) : context_default(code, spec->language);
    if (!x)
        return err_set(err, ERR_NOT_FOUND, "Context %.*s not found", (int)MIN(spec->context.n, (size_t)CODE_ID_MAX),
                       spec->context.p);
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
    struct code_cell *cell = mem_new(struct code_cell);
    *cell = (struct code_cell){.context = x,
                               .fn = fn,
                               .ctx = ctx,
                               .request = BUF_INIT(REQUEST_MAX),
                               .told = EVENT_DATA_INIT,
                               .results = BUF_INIT(8192)};
    list_init(&cell->node);
    id_token(number, 8);
    memcpy(&cell->number, number, sizeof(cell->number));
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
    if (x->cells.next == &cell->node && x->follow && x->unacked) {
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
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    uint64_t cause;

    event_data_str(&d, "context", str_of(cell->context->id));
    if (action_begin(cell->context->code->sb, actor, EVENT_CODE_INTERRUPT, event_data_end(&d), &cause, err) < 0)
        return -1;
    cell->is_interrupted = true;
    if (cell->sent)
        context_interrupt(cell->context);
    else
        cell_fail(cell, "KeyboardInterrupt", "the cell was interrupted before it ran");
    return 0;
}

void code_free(struct sandbox *sb)
{
    struct code *code = TAKE_PTR(sb->code);
    const struct err why = {.code = ERR_UNAVAILABLE, .msg = "the sandbox has ended"};

    if (!code)
        return;
    while (!list_empty(&code->contexts)) {
        struct code_context *x = LIST_FIRST(struct code_context, &code->contexts, node);

        x->removed = true;
        context_over(x, &why);
    }
    mem_free(code);
}
