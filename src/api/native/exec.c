/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running a process for a client, both ways over one connection (http/client/exec_stream.h).
 *
 *  1. The process is started before the 101, so that what is refused at once is an ordinary error answer.
 *  2. Output goes to the client's queue; its credit goes back to the process when the queue is short, so the process
 *     runs at the client's pace.
 *  3. What the client sends is handled frame by frame, each when the one before is done; meanwhile its connection is
 *     not read. The call's `in` holds what was read already, at most one body piece and one frame.
 *  4. While the sandbox is paused, what the client sends waits, and is looked at again every STILL_MS.
 *  5. The follow belongs to the stream until its exit, its error or exec_close().
 */
#include "sandbox/exec/exec.h"
#include "api/native/handlers.h"
#include "http/client/exec_stream.h"

#include <signal.h>

enum { STILL_MS = 20, EXEC_IN_MAX = 256 * 1024 + EXEC_STREAM_HEAD + EXEC_STREAM_PAYLOAD_MAX };

struct exec {
    struct call *call;
    struct sandbox *sb;        /* a reference */
    struct exec_call *pending; /* the client's frame that is being handled */
    uint32_t pid;              /* 0: not started yet */
    struct timer still;        /* set while the sandbox stands still */
    bool pty, is_over;
    /* what several frames hold for stdin, handed over at once: each handing over is an action on record */
    struct buf input;
};

static void exec_closed(struct call *c)
{
    struct exec *x = c->state;
    timer_stop(&x->still);
    exec_call_cancel(TAKE_PTR(x->pending));
    x->is_over = true;
    buf_fini(&x->input);
    sandbox_unref(x->sb);
    c->cleanup = NULL;
}

static void send_frame(struct exec *x, enum exec_stream_kind kind, struct str payload)
{
    uint8_t head[EXEC_STREAM_HEAD];
    exec_stream_head(head, kind, payload.n);
    (void)http_response_writev(x->call->req, (struct str[]){str_n(head, sizeof(head)), payload}, 2);
}

static void exec_finish(struct exec *x, enum exec_stream_kind kind, struct buf *payload)
{
    x->is_over = true;
    send_frame(x, kind, buf_str(payload));
    (void)http_response_end(x->call->req);
    http_resume_body(x->call->req); /* the rest is read and dropped until the client has closed its side */
}

/* ---- what the process does ---- */

static void next_frame(struct exec *x);

static void process_start(void *ctx, uint32_t pid)
{
    struct exec *x = ctx;
    AUTO_BUF struct buf b = BUF_INIT(64);
    x->pid = pid;
    buf_printf(&b, "{\"pid\":%u}", pid);
    send_frame(x, EXEC_STREAM_STARTED, buf_str(&b));
    next_frame(x);
}

static void process_output(void *ctx, enum wire_channel channel, struct str bytes)
{
    struct exec *x = ctx;
    enum exec_stream_kind kind = channel == WIRE_STDERR ? EXEC_STREAM_STDERR
                                 : channel == WIRE_PTY  ? EXEC_STREAM_PTY
                                                        : EXEC_STREAM_STDOUT;
    size_t n = bytes.n;
    while (bytes.n > 0) {
        struct str piece = str_n(bytes.p, MIN(bytes.n, (size_t)EXEC_STREAM_PAYLOAD_MAX));
        send_frame(x, kind, piece);
        bytes = str_sub(bytes, piece.n);
    }
    call_paced(x->call, n);
}

static void process_end(void *ctx, const struct exec_exit *exit, const struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    if (exit)
        buf_printf(&b, "{\"%s\":%u}", exit->signaled ? "signal" : "code", exit->code);
    else
        json_put_value(&b, json_pack("{s:s,s:o}", "code", err_code_name(err->code), "message", call_cstr(err->msg)));
    exec_finish(ctx, exit ? EXEC_STREAM_EXIT : EXEC_STREAM_ERROR, &b);
}

static const struct exec_ops ops = {process_start, process_output, process_end, NULL};

/* ---- what the client sends ---- */

static void frame_done(void *ctx, const struct err *err)
{
    struct exec *x = ctx;
    (void)err; /* a closed stdin, a process that has just ended: the client will hear of its end */
    x->pending = NULL;
    next_frame(x);
}

/* The frame's bytes and those of all such frames behind it. */
static struct str gather_input(struct exec *x, struct str first, struct str *in)
{
    struct exec_stream_frame f;
    struct str rest = *in;
    if (exec_stream_next(&rest, &f) <= 0 || f.kind != EXEC_STREAM_STDIN)
        return first;
    buf_clear(&x->input);
    (void)buf_append_str(&x->input, first); /* all of it fits: it is part of `in` */
    do {
        (void)buf_append_str(&x->input, f.payload);
        *in = rest;
    } while (exec_stream_next(&rest, &f) > 0 && f.kind == EXEC_STREAM_STDIN);
    return buf_str(&x->input);
}

/* 1: done or without effect, 0: frame_done() follows, -EPROTO, -EAGAIN: it waits until somebody allows it. */
static int handle_frame(struct exec *x, const struct exec_stream_frame *f, struct str *in)
{
    struct exec_select which = {.pid = x->pid};
    const struct actor *actor = &x->call->actor;
    struct err err;
    uint16_t columns, rows;
    int r;
    switch (f->kind) {
    case EXEC_STREAM_STDIN: {
        struct str bytes = gather_input(x, f->payload, in);
        if (bytes.n == 0)
            return 1;
        r = exec_input(x->sb, actor, &which, x->pty, bytes, frame_done, x, &x->pending, &err);
        break;
    }
    case EXEC_STREAM_STDIN_EOF:
        r = exec_close_stdin(x->sb, actor, &which, frame_done, x, &x->pending, &err);
        break;
    case EXEC_STREAM_RESIZE:
        if (exec_stream_parse_resize(f->payload, &columns, &rows) < 0 || columns == 0 || rows == 0)
            return -EPROTO;
        r = exec_resize(x->sb, actor, &which, columns, rows, frame_done, x, &x->pending, &err);
        break;
    case EXEC_STREAM_SIGNAL:
        if (f->payload.n != 1 || f->payload.p[0] < 1 || f->payload.p[0] > 64)
            return -EPROTO;
        r = exec_signal(x->sb, actor, &which, f->payload.p[0], frame_done, x, &x->pending, &err);
        break;
    case EXEC_STREAM_STARTED:
    case EXEC_STREAM_STDOUT:
    case EXEC_STREAM_STDERR:
    case EXEC_STREAM_PTY:
    case EXEC_STREAM_EXIT:
    case EXEC_STREAM_ERROR:
    default:
        return -EPROTO;
    }
    if (r < 0 && err.reason == ERR_HELD && call_lost(x->call, err.code))
        return -EAGAIN;
    if (r < 0 && err.code == ERR_PERMISSION_DENIED) {
        exec_close(TAKE_PTR(x->call->follow));
        process_end(x, NULL, &err);
    }
    return r < 0 ? 1 : 0;
}

static void still_over(struct timer *timer)
{
    next_frame(container_of(timer, struct exec, still));
}

/* True while the sandbox is paused, or on the way; next_frame() comes again then. */
static bool stands_still(struct exec *x)
{
    enum sandbox_state state = sandbox_info(x->sb)->state;
    if (state != SANDBOX_PAUSING && state != SANDBOX_PAUSED && state != SANDBOX_RESUMING)
        return false;
    timer_set(&x->call->facade->timers, &x->still, STILL_MS);
    return true;
}

/* Handles frames until one has to be waited for or more bytes are needed. */
static void frames_step(struct call *c)
{
    struct exec *x = c->state;
    while (!x->pending && !c->is_held && x->pid != 0 && !x->is_over && buf_len(&c->in) > 0 && !stands_still(x)) {
        struct str in = buf_str(&c->in);
        struct exec_stream_frame f;
        int r = exec_stream_next(&in, &f);
        if (r == 0)
            break;
        if (r > 0)
            r = handle_frame(x, &f, &in);
        if (r == -EAGAIN)
            break;
        if (r < 0) {
            http_abort(x->call->req);
            return;
        }
        buf_consume(&c->in, buf_len(&c->in) - in.n);
    }
    if (x->is_over)
        buf_clear(&c->in);
    else
        call_await_body(c, x->pending || x->pid == 0 || !list_empty(&x->still.node) || c->is_held);
}

static void next_frame(struct exec *x)
{
    if (!x->call->is_held)
        call_step(x->call, frames_step);
}

/* A half-closed client still wants the output. */
static void exec_take(struct call *c)
{
    struct exec *x = c->state;
    if (x->is_over)
        buf_clear(&c->in);
    else
        next_frame(x);
}

/* ---- the start ---- */

static int exec_read_spec(struct call *c, struct exec_spec *spec, struct err *err)
{
    struct arena *arena = http_arena(c->req);
    const struct str *argv = NULL;
    size_t argc = 0;
    int64_t timeout_ms = 0, columns = 80, rows = 24;
    json_t *pty = NULL;
    if (JSON_WANTS(c->body, arena, err, JSON_WANT_STRS("cmd", &argv, &argc),
                   JSON_WANT_PAIRS("env", &spec->envs, &spec->n_envs), JSON_WANT_STR("user", &spec->user),
                   JSON_WANT_STR("cwd", &spec->cwd), JSON_WANT_STR("tag", &spec->tag),
                   JSON_WANT_BOOL("stdin", &spec->stdin_open), JSON_WANT_INT("timeout_ms", 0, INT64_MAX, &timeout_ms),
                   JSON_WANT_OBJECT("pty", &pty)) < 0)
        return -1;
    if (!argv || argc == 0 || argv[0].n == 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "cmd must name a program and its arguments");
    if (pty && JSON_WANTS(pty, arena, err, JSON_WANT_INT("columns", 1, 10000, &columns),
                          JSON_WANT_INT("rows", 1, 10000, &rows)) < 0)
        return -1;
    spec->cmd = argv[0];
    spec->args = argv + 1;
    spec->n_args = argc - 1;
    spec->pty = pty != NULL;
    spec->cols = (uint16_t)columns;
    spec->rows = (uint16_t)rows;
    spec->timeout_ms = (uint64_t)timeout_ms;
    return 0;
}

/* NULL: answered. */
static struct exec *exec_prepare(struct call *c)
{
    struct str upgrade = http_header_get(c->req, "upgrade");
    if (!http_wants_upgrade(c->req) || !str_eq_nocase(upgrade, STR(EXEC_STREAM_PROTOCOL))) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "send 'Connection: upgrade' and 'Upgrade: " EXEC_STREAM_PROTOCOL "'");
        return NULL;
    }
    struct exec *x = arena_alloc(http_arena(c->req), sizeof(*x));
    x->call = c;
    timer_init(&x->still, still_over);
    buf_init(&x->input, EXEC_IN_MAX);
    return x;
}

static void exec_upgrade(struct call *c, struct exec *x)
{
    x->sb = sandbox_ref(c->sandbox);
    c->state = x;
    c->cleanup = exec_closed;
    call_pace(c, NULL);
    if (http_upgrade(c->req, (struct http_header[]){HTTP_HEADER("upgrade", EXEC_STREAM_PROTOCOL)}, 1) < 0) {
        http_abort(c->req);
        return;
    }
    call_gather_body(c, EXEC_IN_MAX, exec_take);
    http_pause_body(c->req); /* until there is a process to feed */
}

void native_exec(struct call *c)
{
    struct exec_spec spec = {0};
    struct exec *x = exec_prepare(c);
    if (!x)
        return;
    if (!call_ok(c, exec_read_spec(c, &spec, &c->err)))
        return;
    x->pty = spec.pty;
    if (call_ok(c, exec_start(c->sandbox, &c->actor, &spec, &ops, x, &c->follow, &c->err)))
        exec_upgrade(c, x);
}

void native_attach(struct call *c)
{
    struct exec_select which = {0};
    int64_t pid = 0;
    struct exec *x = exec_prepare(c);
    if (!x)
        return;
    int r = JSON_WANTS(c->body, http_arena(c->req), &c->err, JSON_WANT_STR("tag", &which.tag),
                       JSON_WANT_INT("pid", 0, UINT32_MAX, &pid), JSON_WANT_BOOL("pty", &x->pty));
    which.pid = (uint32_t)pid;
    which.by_tag = which.tag.n > 0;
    if (r == 0 && which.by_tag == (pid > 0))
        r = err_set(&c->err, ERR_INVALID_ARGUMENT, "name the process: either pid or tag");
    if (call_ok(c, r) && call_ok(c, exec_attach(c->sandbox, &c->actor, &which, 0, &ops, x, &c->follow, &c->err)))
        exec_upgrade(c, x);
}

/* ---- processes ---- */

static void listed(void *ctx, const struct exec_process *processes, size_t n, const struct err *err)
{
    struct call *c = ctx;
    c->exec = NULL;
    if (err) {
        call_fail_err(c, err);
        return;
    }
    json_t *all = json_array();
    for (size_t i = 0; i < n; i++) {
        const struct exec_process *p = &processes[i];
        json_t *cmd = json_pack("[o]", call_text(p->cmd));
        for (size_t a = 0; a < p->n_args; a++)
            (void)json_array_append_new(cmd, call_text(p->args[a]));
        (void)json_array_append_new(all, json_pack("{s:i,s:o?,s:b,s:o?,s:o,s:o,s:o,s:I}", "pid", (int)p->pid,
                                                   "started_at", call_time(p->started), "pty", p->pty, "tag",
                                                   p->has_tag ? call_text(p->tag) : NULL, "cmd", cmd, "cwd",
                                                   call_text(p->cwd), "user", call_text(p->user), "output_bytes",
                                                   (json_int_t)p->output_bytes));
    }
    call_value(c, 200, json_pack("{s:o}", "processes", all));
}

void native_exec_processes(struct call *c)
{
    call_ok(c, exec_list(c->sandbox, &c->actor, listed, c, &c->exec, &c->err));
}
