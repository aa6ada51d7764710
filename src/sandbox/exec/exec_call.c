/* SPDX-License-Identifier: Apache-2.0 */
/* What is done to a running process, and the list of them: one request, one answer. */
#include "base/mem.h"
#include "sandbox/exec/exec.h"
#include "sandbox/exec/process.h"

enum { INPUT_MAX = 4 << 20, INPUT_CHUNK = 64 * 1024, INPUT_MS = 300000 /* a process may be slow to read */ };

struct exec_call {
    struct sandbox *sb; /* a reference */
    struct stream *stream;
    struct process_query *query;
    exec_done_fn done;
    exec_list_fn list;
    void *ctx;
    /* input */
    struct exec_select which;
    char *tag;
    uint8_t channel;
    struct buf input; /* what was not sent yet */
};

static struct exec_call *call_new(struct sandbox *sb, void *ctx)
{
    struct exec_call *c = mem_new(struct exec_call);
    *c = (struct exec_call){.sb = sandbox_ref(sb), .ctx = ctx, .input = BUF_INIT(INPUT_MAX)};
    return c;
}

static void exec_call_free(struct exec_call *c)
{
    sandbox_unref(c->sb);
    mem_free(c->tag);
    buf_fini(&c->input);
    mem_free(c);
}

void exec_call_cancel(struct exec_call *c)
{
    if (!c)
        return;
    if (c->query)
        process_query_cancel(c->query);
    else
        stream_close(c->stream);
    exec_call_free(c);
}

static void exec_call_on_end(void *user, struct str tail, const struct err *err)
{
    struct exec_call *c = user;
    exec_done_fn done = c->done;
    void *ctx = c->ctx;
    if (!err && tail.n)
        stream_violation(c->stream, "a tail that its verb does not have");
    exec_call_free(c);
    done(ctx, err);
}

void exec_ignore(void *ctx UNUSED, const struct err *err UNUSED)
{
}

static const struct stream_ops unary_ops = {.on_end = exec_call_on_end};

static int exec_call_begin(struct sandbox *sb, const struct actor *actor, const struct exec_select *which,
                           enum event_kind kind, struct event_data *d, struct err *err)
{
    uint64_t cause;
    if (process_check_select(which, err) < 0)
        return -1;
    process_tell_select(d, which);
    return action_begin(sb, actor, kind, event_data_end(d), &cause, err);
}

/* The action, and the request about this process, for what belongs to its verb; NULL: err. */
static struct buf *exec_call_ask(struct sandbox *sb, const struct actor *actor, const struct exec_select *which,
                                 uint8_t verb, enum event_kind kind, struct event_data *d, struct err *err)
{
    if (exec_call_begin(sb, actor, which, kind, d, err) < 0)
        return NULL;
    struct buf *b = session_request(sb->session, verb);
    process_put_select(b, which);
    return b;
}

static int send_unary(struct sandbox *sb, struct buf *request, exec_done_fn done, void *ctx,
                      struct exec_call **ret_call, struct err *err)
{
    struct exec_call *c = call_new(sb, ctx);
    c->done = done;
    if (stream_open(sb->session, request, &unary_ops, c, SESSION_UNARY_MS, &c->stream, err) < 0) {
        exec_call_free(c);
        return -1;
    }
    *ret_call = c;
    return 0;
}

/* ---- input: pieces of INPUT_CHUNK, one after the other ---- */

static void on_input_end(void *user, struct str tail, const struct err *err);
static const struct stream_ops input_ops = {.on_end = on_input_end};

static int send_input(struct exec_call *c, struct err *err)
{
    struct str piece = str_n(buf_data(&c->input), MIN(buf_len(&c->input), (size_t)INPUT_CHUNK));
    struct buf *b = session_request(c->sb->session, WIRE_INPUT);
    process_put_select(b, &c->which);
    wire_put_u8(b, c->channel);
    wire_put_str(b, piece);
    if (stream_open(c->sb->session, b, &input_ops, c, INPUT_MS, &c->stream, err) < 0)
        return -1;
    buf_consume(&c->input, piece.n);
    return 0;
}

static void on_input_end(void *user, struct str tail, const struct err *err)
{
    struct exec_call *c = user;
    struct err local;
    if (err || !buf_len(&c->input)) {
        exec_call_on_end(c, tail, err);
    } else if (!c->sb->session) {
        (void)err_set(&local, ERR_UNAVAILABLE, "the sandbox has ended");
        exec_call_on_end(c, tail, &local);
    } else if (send_input(c, &local) < 0) {
        exec_call_on_end(c, tail, &local);
    }
}

static int put_input(struct sandbox *sb, const struct exec_select *which, bool pty, struct str bytes, exec_done_fn done,
                     void *ctx, struct exec_call **ret_call, struct err *err)
{
    struct exec_call *c = call_new(sb, ctx);
    c->done = done;
    c->channel = pty ? WIRE_PTY : 0;
    c->which = *which;
    if (which->by_tag) {
        c->tag = mem_strndup(which->tag.p, which->tag.n);
        c->which.tag = str_of(c->tag);
    }
    if (buf_append_str(&c->input, bytes) < 0) {
        exec_call_free(c);
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    if (send_input(c, err) < 0) {
        exec_call_free(c);
        return -1;
    }
    *ret_call = c;
    return 0;
}

int exec_input(struct sandbox *sb, const struct actor *actor, const struct exec_select *which, bool pty,
               struct str bytes, exec_done_fn done, void *ctx, struct exec_call **ret_call, struct err *err)
{
    if (bytes.n > INPUT_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "more than %d MiB of input at once", INPUT_MAX >> 20);
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_U64("bytes", bytes.n));
    if (exec_call_begin(sb, actor, which, EVENT_EXEC_INPUT, &d, err) < 0)
        return -1;
    return put_input(sb, which, pty, bytes, done, ctx, ret_call, err);
}

int exec_feed(struct sandbox *sb, const struct exec_select *which, struct str bytes, exec_done_fn done, void *ctx,
              struct exec_call **ret_call, struct err *err)
{
    if (sandbox_usable(sb, err) < 0)
        return -1;
    return put_input(sb, which, false, bytes, done, ctx, ret_call, err);
}

/* ---- the others ---- */

int exec_close_stdin(struct sandbox *sb, const struct actor *actor, const struct exec_select *which, exec_done_fn done,
                     void *ctx, struct exec_call **ret_call, struct err *err)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    struct buf *b = exec_call_ask(sb, actor, which, WIRE_CLOSE_STDIN, EVENT_EXEC_CLOSE_STDIN, &d, err);
    return b ? send_unary(sb, b, done, ctx, ret_call, err) : -1;
}

int exec_signal(struct sandbox *sb, const struct actor *actor, const struct exec_select *which, int signal,
                exec_done_fn done, void *ctx, struct exec_call **ret_call, struct err *err)
{
    if (signal < 1 || signal > 64)
        return err_set(err, ERR_INVALID_ARGUMENT, "there is no signal %d", signal);
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_I64("signal", signal));
    struct buf *b = exec_call_ask(sb, actor, which, WIRE_SIGNAL, EVENT_EXEC_SIGNAL, &d, err);
    if (!b)
        return -1;
    wire_put_u32(b, (uint32_t)signal);
    return send_unary(sb, b, done, ctx, ret_call, err);
}

int exec_resize(struct sandbox *sb, const struct actor *actor, const struct exec_select *which, uint16_t cols,
                uint16_t rows, exec_done_fn done, void *ctx, struct exec_call **ret_call, struct err *err)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_U64("cols", cols), DATA_U64("rows", rows));
    struct buf *b = exec_call_ask(sb, actor, which, WIRE_RESIZE, EVENT_EXEC_RESIZE, &d, err);
    if (!b)
        return -1;
    wire_put_u16(b, cols);
    wire_put_u16(b, rows);
    return send_unary(sb, b, done, ctx, ret_call, err);
}

/* ---- the list ---- */

enum { LIST_ITEMS_MAX = 1 << 20 };

static void exec_call_fill(struct arena *a, const struct process_record *from, struct exec_process *to)
{
    struct wire_reader r = from->args;
    struct str *args = arena_alloc(a, (from->n_args + 1) * sizeof(*args));
    for (uint32_t i = 0; i < from->n_args; i++)
        args[i] = wire_get_str(&r);
    r = from->envs;
    struct pair *envs = arena_alloc(a, (from->n_envs + 1) * sizeof(*envs));
    for (uint32_t i = 0; i < from->n_envs; i++) {
        envs[i].key = wire_get_str(&r);
        envs[i].value = wire_get_str(&r);
    }
    *to = (struct exec_process){.pid = from->pid,
                                .has_tag = from->flags & WIRE_PROC_TAG,
                                .pty = from->flags & WIRE_PROC_PTY,
                                .tag = from->tag,
                                .cmd = from->cmd,
                                .cwd = from->cwd,
                                .user = from->user,
                                .args = args,
                                .n_args = from->n_args,
                                .envs = envs,
                                .n_envs = from->n_envs,
                                .started = from->started,
                                .output_bytes = from->output_bytes};
}

static void exec_call_on_records(void *ctx, struct str records, const struct err *err)
{
    struct exec_call *c = ctx;
    struct process_record p;
    struct err local;
    AUTO_ARENA struct arena arena = ARENA_INIT;
    size_t n = 0, items = 0;
    struct wire_reader r = wire_reader_of(records);
    while (!err && process_record_next(&r, &p)) {
        n += !(p.flags & WIRE_PROC_ENDED);
        items += p.n_args + p.n_envs;
    }
    if (r.bad)
        process_query_lie(c->query);
    if (r.bad || items > LIST_ITEMS_MAX) {
        (void)err_set(&local, r.bad ? ERR_UNAVAILABLE : ERR_RESOURCE_EXHAUSTED, "the list of processes can't be read");
        err = &local;
    }
    struct exec_process *list = arena_alloc(&arena, (n + 1) * sizeof(*list));
    n = 0;
    r = wire_reader_of(records);
    while (!err && process_record_next(&r, &p))
        if (!(p.flags & WIRE_PROC_ENDED))
            exec_call_fill(&arena, &p, &list[n++]);
    exec_list_fn done = c->list;
    void *done_ctx = c->ctx;
    exec_call_free(c);
    done(done_ctx, err ? NULL : list, n, err);
}

int exec_list(struct sandbox *sb, const struct actor *actor, exec_list_fn done, void *ctx, struct exec_call **ret_call,
              struct err *err)
{
    (void)actor; /* looking is no action: it changes nothing and clients poll it */
    if (sandbox_usable(sb, err) < 0)
        return -1;
    struct exec_call *c = call_new(sb, ctx);
    c->list = done;
    if (process_query(sb, exec_call_on_records, c, &c->query, err) < 0) {
        exec_call_free(c);
        return -1;
    }
    *ret_call = c;
    return 0;
}
