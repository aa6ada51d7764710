/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Terminals of execd: a shell that outlives its client, over a WebSocket, whose messages are told in pty_message.h.
 *
 *  1. A terminal is a row of o->ptys from POST until DELETE or the end of its sandbox. Its process begins with the
 *     first client, whose query says of which kind it is, and is begun anew by a client that comes after its end.
 *  2. One client at a time is attached (pty->client). Without one, output is taken as it comes; the last PTY_KEPT_MAX
 *     bytes are kept, and given to a client from the offset that it asks for. A client that does not read stops the
 *     process, as it does everywhere.
 *  3. What the client sends waits in client->in, as records, until the process has taken what came before; meanwhile
 *     nothing is read. Each record is an action, and a step of its call (api/kit/call.h). One that answers no ping for
 *     two rounds is cut.
 *  4. One that an operation made (operations.c) starts one process at most: who comes after its end gets the output and
 *     the end.
 *  5. After a restart of the service the row is gone, but the process has the terminal's id as its tag: who comes with
 *     the id is attached to it, and gets what nobody has got yet.
 */
#include "api/opensandbox/handlers.h"
#include "base/mem.h"
#include "http/websocket.h"

#include <signal.h>

#define PTY_TAG "opensandbox:pty:"
enum {
    PTY_KEPT_MAX = 256 * 1024,
    IN_MAX = 512 * 1024, /* one piece of the body may hold many messages */
    PTYS_MAX = 64,
    PING_MS = 30000,
    CLOSE_TAKEN_OVER = 4001,
    CLOSE_NORMAL = 1000,
};

struct pty {
    struct opensandbox *o;
    char id[COMMAND_ID_LEN + 1];
    struct sandbox *sb; /* a reference */
    struct sandbox_watch watch;
    struct str cwd, command; /* owned, as one allocation each */
    struct follow *follow;   /* NULL: no process runs */
    struct pty_client *client;
    struct buf kept;
    struct charge charge; /* of this memory */
    uint64_t written;     /* what was, in all; kept is its end */
    uint32_t pid;         /* 0: not started yet */
    int exit_code;        /* of the last process */
    bool is_pipe, was_launched, has_failed, is_once;
};

struct pty_client {
    struct pty *pty; /* NULL: it is another's, or gone */
    struct call *call;
    struct websocket *socket;
    struct buf in;
    struct exec_call *pending;
    uint64_t since;
    unsigned silent;
    bool is_connected;
};

/* ---- a terminal ---- */

static void pty_say(struct pty_client *l, json_t *message)
{
    AUTO_BUF struct buf b = BUF_INIT(8192);
    AUTO_FREE char *text = json_dumps(message, JSON_COMPACT);
    json_decref(message);
    websocket_append(&b, str_of(text));
    (void)http_response_write(l->call->req, buf_str(&b));
}

/* The client is let go; the process is not. */
static void pty_detach(struct pty_client *l, uint16_t code, const char *reason)
{
    struct pty *p = TAKE_PTR(l->pty);
    p->client = NULL;
    exec_call_cancel(TAKE_PTR(l->pending));
    if (p->follow && l->call->unacked)
        exec_ack(p->follow, l->call->unacked);
    l->call->unacked = 0;
    if (!reason)
        return;
    http_resume_body(l->call->req); /* what it still says is read and dropped */
    websocket_close_as(l->socket, code, reason);
}

static void pty_free(void *pty)
{
    struct pty *p = pty;
    if (p->client)
        pty_detach(p->client, CLOSE_NORMAL, "the terminal is gone");
    (void)map_del(&p->o->ptys, str_of(p->id));
    sandbox_unwatch(&p->watch);
    exec_close(p->follow);
    sandbox_unref(p->sb);
    buf_fini(&p->kept);
    charge_release(&p->charge);
    MEM_FREE(p->cwd.p, p->command.p, p);
}

void ptys_free(struct opensandbox *o)
{
    facade_drain(&o->ptys, pty_free);
}

static void pty_on_sandbox_end(struct sandbox_watch *w, struct sandbox *sb UNUSED)
{
    pty_free(container_of(w, struct pty, watch));
}

static struct pty *pty_new(struct call *c, const char *id, struct str cwd, struct str command)
{
    struct charge charge = {.core = call_core(c), .tenant = sandbox_info(c->sandbox)->tenant};
    if (!call_ok(c, charge_memory(&charge, PTY_KEPT_MAX + cwd.n + command.n, &c->err)))
        return NULL;
    struct pty *p = mem_new(struct pty);
    p->charge = charge;
    p->o = opensandbox_of_execd(c);
    memcpy(p->id, id, COMMAND_ID_LEN);
    p->sb = sandbox_ref(c->sandbox);
    p->watch.fn = pty_on_sandbox_end;
    sandbox_watch_end(p->sb, &p->watch);
    p->cwd = str_n(mem_strndup(cwd.p, cwd.n), cwd.n);
    p->command = str_n(mem_strndup(command.p, command.n), command.n);
    buf_init(&p->kept, PTY_KEPT_MAX);
    (void)map_put(&p->o->ptys, str_of(p->id), p);
    return p;
}

static struct pty *pty_find(struct call *c)
{
    struct pty *p = map_get(&opensandbox_of_execd(c)->ptys, c->args[0]);
    return p && p->sb == c->sandbox ? p : NULL;
}

bool pty_retire(struct opensandbox *o, const char *id)
{
    struct pty *p = map_get(&o->ptys, str_of(id));
    if (p && p->follow)
        return false;
    if (p)
        pty_free(p);
    return true;
}

static bool pty_has_room(struct call *c)
{
    size_t n = 0;
    MAP_FOREACH (struct pty, p, &opensandbox_of_execd(c)->ptys)
        n += p->sb == c->sandbox;
    return n < PTYS_MAX;
}

static void pty_unknown(struct call *c)
{
    opensandbox_fail(c, 404, "CONTEXT_NOT_FOUND", "there is no such terminal");
}

static void pty_say_error(struct pty_client *l, const char *code, const char *message)
{
    pty_say(l, json_pack("{s:s,s:s,s:s}", "type", "error", "code", code, "error", message));
}

/* ---- what its process does ---- */

static void pty_connected(struct pty_client *l)
{
    struct pty *p = l->pty;
    AUTO_BUF struct buf b = BUF_INIT(PTY_KEPT_MAX + 64);
    pty_message_replay(&b, buf_str(&p->kept), p->written, l->since);
    if (buf_len(&b))
        (void)http_response_write(l->call->req, buf_str(&b));
    l->is_connected = true;
    pty_say(l,
            json_pack("{s:s,s:s,s:s}", "type", "connected", "session_id", p->id, "mode", p->is_pipe ? "pipe" : "pty"));
    http_resume_body(l->call->req);
}

static void pty_starts(void *ctx, uint32_t pid)
{
    struct pty *p = ctx;
    p->pid = pid;
    if (p->client)
        pty_connected(p->client);
}

static void pty_writes(void *ctx, enum wire_channel channel, struct str bytes)
{
    struct pty *p = ctx;
    char kind = channel == WIRE_STDERR ? PTY_FRAME_STDERR : PTY_FRAME_STDOUT;
    struct str end = bytes.n > PTY_KEPT_MAX ? str_sub(bytes, bytes.n - PTY_KEPT_MAX) : bytes;
    size_t over = buf_len(&p->kept) + end.n > PTY_KEPT_MAX ? buf_len(&p->kept) + end.n - PTY_KEPT_MAX : 0;
    buf_consume(&p->kept, over);
    (void)buf_append_str(&p->kept, end);
    p->written += bytes.n;
    if (p->client && p->client->is_connected) {
        AUTO_BUF struct buf b = BUF_INIT(bytes.n + 64);
        websocket_append_binary(&b, str_n(&kind, 1), bytes);
        (void)http_response_write(p->client->call->req, buf_str(&b));
        call_paced(p->client->call, bytes.n);
    } else {
        exec_ack(p->follow, bytes.n);
    }
}

static void pty_tell_exit(struct pty_client *l)
{
    if (l->pty->is_once && l->pty->has_failed)
        pty_say_error(l, "START_FAILED", "it did not start");
    else
        pty_say(l, json_pack("{s:s,s:i}", "type", "exit", "exit_code", l->pty->exit_code));
    pty_detach(l, CLOSE_NORMAL, "process exited");
}

static void pty_ends(void *ctx, const struct exec_exit *exit, const struct err *err)
{
    struct pty *p = ctx;
    struct pty_client *l = p->client;
    bool is_late = p->pid != 0;
    p->pid = 0;
    p->exit_code = err || exit->signaled ? -1 : (int)exit->code;
    p->has_failed |= err && !is_late;
    if (l && !err)
        pty_tell_exit(l);
    if (!l || !err)
        return;
    pty_say_error(l,
                  is_late                      ? "RUNTIME_ERROR"
                  : err->code == ERR_NOT_FOUND ? "SESSION_GONE"
                                               : "START_FAILED",
                  err->msg);
    pty_detach(l, CLOSE_NORMAL, "no process");
}

static const struct exec_ops pty_ops = {pty_starts, pty_writes, pty_ends, NULL};

/* Who says any id makes no terminal. */
static void pty_old_ends(void *ctx, const struct exec_exit *exit, const struct err *err)
{
    struct pty *p = ctx;
    bool is_none = err && !p->pid;
    pty_ends(p, exit, err);
    if (is_none)
        pty_free(p);
}

static int pty_launch(struct pty *p, struct call *c, struct err *err)
{
    const char *script = "[ -z \"$1\" ] || exec /bin/sh -c \"$1\"; [ ! -x /bin/bash ] || exec /bin/bash; exec /bin/sh";
    const struct str args[] = {STR("-c"), str_of(script), STR("sh"), p->command};
    const struct pair term = {STR("TERM"), STR("xterm-256color")};
    const struct exec_spec spec = {.cmd = STR("/bin/sh"),
                                   .args = args,
                                   .n_args = ARRAY_SIZE(args),
                                   .envs = &term,
                                   .n_envs = !p->is_pipe,
                                   .user = STR("root"),
                                   .cwd = p->cwd,
                                   .tag = str_of(arena_printf(http_arena(c->req), PTY_TAG "%s", p->id)),
                                   .pty = !p->is_pipe,
                                   .stdin_open = p->is_pipe,
                                   .cols = 80,
                                   .rows = 24};
    int r = exec_start(p->sb, &c->actor, &spec, &pty_ops, p, &p->follow, err);
    p->was_launched |= r == 0; /* what was denied can be asked for again */
    return r;
}

/* Of a terminal that an earlier worker knew. */
static int pty_reattach(struct pty *p, struct call *c, struct err *err)
{
    const struct exec_select which = {.by_tag = true,
                                      .tag = str_of(arena_printf(http_arena(c->req), PTY_TAG "%s", p->id))};
    static const struct exec_ops ops = {pty_starts, pty_writes, pty_old_ends, NULL};
    p->was_launched = true;
    return exec_attach(p->sb, &c->actor, &which, 0, &ops, p, &p->follow, err);
}

/* ---- what the client says ---- */

static void pty_next(struct pty_client *l);

static void pty_taken(void *ctx, const struct err *err)
{
    struct pty_client *l = ctx;
    l->pending = NULL;
    if (err && l->pty)
        pty_say_error(l, "STDIN_WRITE_FAILED", err->msg);
    pty_next(l);
}

static void pty_step(struct call *c)
{
    struct pty_client *l = c->state;
    int kind;
    struct str data;
    while (l->pty && l->pty->pid && !l->pending && !c->is_held && buf_len(&l->in)) {
        const struct exec_select which = {.pid = l->pty->pid};
        struct sandbox *sb = l->pty->sb;
        struct str in = buf_str(&l->in);
        struct err err;
        uint16_t size[2];
        int r = 0;
        if (!pty_record_take(&in, &kind, &data))
            break;
        if (kind == PTY_RECORD_STDIN) {
            r = exec_input(sb, &c->actor, &which, !l->pty->is_pipe, data, pty_taken, l, &l->pending, &err);
        } else if (kind == PTY_RECORD_RESIZE) {
            memcpy(size, data.p, sizeof(size));
            r = exec_resize(sb, &c->actor, &which, size[0], size[1], pty_taken, l, &l->pending, &err);
        } else {
            r = exec_signal(sb, &c->actor, &which, data.p[0], pty_taken, l, &l->pending, &err);
        }
        if (r < 0 && err.reason == ERR_HELD && call_lost(c, err.code))
            break;
        buf_consume(&l->in, buf_len(&l->in) - in.n);
        if (r < 0)
            pty_say_error(l, "RUNTIME_ERROR", err.msg);
    }
    if (!l->pty)
        buf_clear(&l->in);
    else if (l->pending || c->is_held || !l->is_connected)
        http_pause_body(c->req);
    else
        http_resume_body(c->req);
}

static void pty_next(struct pty_client *l)
{
    if (l->call->req && !l->call->is_held)
        call_step(l->call, pty_step);
}

static void pty_on_message(void *ctx, bool is_text, struct str message)
{
    struct pty_client *l = ctx;
    struct err err;
    const bool is_told = !http_response_full(l->call->req); /* who doesn't read is not */
    if (!l->pty)
        return;
    switch (pty_message_read(is_text, message, l->pty->is_pipe, &l->in, &err)) {
    case PTY_MESSAGE_PING:
        if (is_told)
            pty_say(l, json_pack("{s:s}", "type", "pong"));
        break;
    case PTY_MESSAGE_WRONG:
        if (is_told)
            pty_say_error(l, "INVALID_FRAME", err.msg);
        break;
    case PTY_MESSAGE_TAKEN:
        break;
    }
    if (buf_error(&l->in) < 0)
        http_abort(l->call->req);
    else
        pty_next(l);
}

/* ---- clients ---- */

static void pty_gone(struct call *c)
{
    struct pty_client *l = c->state;
    if (l->pty)
        pty_detach(l, 0, NULL);
    websocket_free(l->socket);
    buf_fini(&l->in);
}

static void pty_drains(struct call *c, size_t n)
{
    const struct pty_client *l = c->state;
    if (l->pty && l->pty->follow)
        exec_ack(l->pty->follow, n);
}

static void pty_ping(struct call *c)
{
    struct pty_client *l = c->state;
    l->silent = websocket_heard(l->socket) ? 0 : l->silent + 1;
    if (l->silent > 2) {
        http_abort(c->req);
        return;
    }
    websocket_ping(l->socket);
    call_set_timer(c, PING_MS, pty_ping);
}

void pty_attach(struct call *c)
{
    struct pty *p = pty_find(c);
    struct str mode = STR(""), takeover = STR("");
    struct pty_client *l = call_state(c, sizeof(*l), pty_gone);
    struct err err;
    int r = 0;
    (void)call_query(c, "pty", &mode);
    (void)call_query(c, "takeover", &takeover);
    l->call = c;
    if (call_query_u64(c, "since", &l->since) < 0)
        return;
    if (!websocket_is_wanted(c->req)) {
        call_fail(c, 400, "a WebSocket is required here");
        return;
    }
    bool is_old = !p && command_is_id(c->args[0]) && pty_has_room(c);
    if (!p && !is_old) {
        pty_unknown(c);
        return;
    }
    if (p && p->client && !str_eqc(takeover, "1")) {
        opensandbox_fail(c, 409, "ALREADY_CONNECTED", "another client has this terminal");
        return;
    }
    if (is_old)
        p = pty_new(c, c->args[0].p, STR(""), STR(""));
    bool is_over = p->is_once && p->was_launched && !p->follow;
    if (!p->follow && !is_over)
        p->is_pipe = str_eqc(mode, "0");
    if (is_old)
        r = pty_reattach(p, c, &err);
    else if (!p->follow && !is_over)
        r = pty_launch(p, c, &err);
    if (r < 0 || websocket_accept(c->req, pty_on_message, l, &l->socket) < 0) {
        if (r < 0)
            call_fail_err(c, &err);
        else
            call_fail(c, 400, "the WebSocket handshake is invalid");
        if (is_old)
            pty_free(p);
        return;
    }
    buf_init(&l->in, IN_MAX);
    if (p->client)
        pty_detach(p->client, CLOSE_TAKEN_OVER, "TAKEN_OVER");
    p->client = l;
    l->pty = p;
    call_pace(c, pty_drains);
    call_set_timer(c, PING_MS, pty_ping);
    if (p->pid || is_over)
        pty_connected(l);
    else
        http_pause_body(c->req);
    if (is_over)
        pty_tell_exit(l);
}

/* ---- rows ---- */

void pty_make(struct call *c)
{
    struct str cwd = STR(""), command = STR("");
    if (!CALL_WANTS(c, JSON_WANT_STR("cwd", &cwd), JSON_WANT_STR("command", &command)))
        return;
    const struct pty *same = map_get(&opensandbox_of_execd(c)->ptys, str_of(command_id_once(c)));
    if (c->route->what && !pty_has_room(c)) {
        operation_full(c);
    } else if (same && !c->route->what) { /* by an operation id */
        call_value(c, 200, json_pack("{s:s}", "session_id", same->id));
    } else if (!pty_has_room(c)) {
        call_fail(c, 429, "a sandbox has at most %d terminals", PTYS_MAX);
    } else {
        struct pty *p = pty_new(c, command_id_once(c), cwd, command);
        if (p && c->route->what) {
            p->is_once = true;
            operation_claim(c, true);
        } else if (p) {
            call_value(c, 201, json_pack("{s:s}", "session_id", p->id));
        }
    }
}

void pty_status(struct call *c)
{
    const struct pty *p = pty_find(c);
    if (p)
        call_value(c, 200,
                   json_pack("{s:s,s:b,s:I,s:b,s:b}", "session_id", p->id, "running", p->pid != 0, "output_offset",
                             (json_int_t)p->written, "launch_attempted", p->was_launched, "launch_failed",
                             p->has_failed));
    else
        pty_unknown(c);
}

static void pty_killed(void *ctx, const struct err *err)
{
    struct call *c = ctx;
    struct pty *p = pty_find(c);
    c->exec = NULL;
    if (err && err->code != ERR_NOT_FOUND) {
        call_fail_err(c, err);
        return;
    }
    if (p)
        pty_free(p);
    call_empty(c, 200);
}

void pty_remove(struct call *c)
{
    struct pty *p = pty_find(c);
    if (!p)
        pty_unknown(c);
    else if (!p->pid)
        pty_killed(c, NULL);
    else
        call_ok(c, exec_signal(c->sandbox, &c->actor, &(struct exec_select){.pid = p->pid}, SIGKILL, pty_killed, c,
                               &c->exec, &c->err));
}
