/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands of execd: a process of the core, told as a stream of events.
 *
 *  1. A command is ours from its start until ENDED_MAX later ones have ended: its status can be asked for that long, by whoever may ask the sandbox.
 *  2. In the foreground its client reads it: output is acknowledged at the client's pace, and a client that leaves kills the process group.
 *  3. In the background it writes to a file inside, which is what its log is read from. So the log outlives us, and costs us nothing.
 */
#include "api/opensandbox/handlers.h"
#include "base/id.h"
#include "base/mem.h"

#include <signal.h>
#include <stdio.h>

enum { LINE_MAX_BYTES = SSE_LINE_MAX, PING_MS = 3000, TERM_MS = 3000, ENDED_MAX = 1024, CONTENT_MAX = 4096 };

struct command {
    struct opensandbox *o;
    char id[COMMAND_ID_LEN + 1];
    char sandbox[ID_SANDBOX_LEN + 1];
    struct sandbox *sb;    /* a reference, while it runs */
    struct follow *follow; /* NULL: it ended */
    struct call *call;     /* whose stream it is; NULL: nobody reads it */
    struct list node;      /* in o->ended */
    struct timer kill;     /* after an interrupt */
    struct sse_lines out, err;
    size_t unacked;
    uint32_t pid, exit_code;
    usec_t started, ended; /* real time */
    bool is_background, is_ok;
    char *content; /* owned */
    char error[128];
};

/* ---- events ---- */

void sse_begin(struct buf *b, const char *type)
{
    buf_printf(b, "{\"type\":\"%s\",\"timestamp\":%llu", type, (unsigned long long)(clock_real() / USEC_PER_MS));
}

void sse_text(struct buf *b, const char *type, struct str text)
{
    sse_begin(b, type);
    buf_append_cstr(b, ",\"text\":");
    buf_append_json_string(b, text);
    buf_append_cstr(b, "}\n\n");
}

void sse_complete(struct buf *b, usec_t took)
{
    sse_begin(b, "execution_complete");
    buf_printf(b, ",\"execution_time\":%llu}\n\n", (unsigned long long)(took / USEC_PER_MS));
}

static void event_error(struct buf *b, const char *value, const char *trace)
{
    sse_begin(b, "error");
    buf_append_cstr(b, ",\"error\":{\"ename\":\"CommandExecError\",\"evalue\":");
    buf_append_json_string(b, str_of(value));
    buf_append_cstr(b, ",\"traceback\":[");
    buf_append_json_string(b, str_of(trace));
    buf_append_cstr(b, "]}}\n\n");
}

void sse_start(struct call *c)
{
    const struct http_header headers[] = {HTTP_HEADER("content-type", "text/event-stream"),
                                          HTTP_HEADER("cache-control", "no-cache"),
                                          HTTP_HEADER("x-accel-buffering", "no")};

    (void)http_response_begin(c->req, 200, headers, ARRAY_SIZE(headers), -1);
}

void sse_ping(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(256);

    sse_text(&b, "ping", STR("pong"));
    (void)http_response_write(c->req, buf_str(&b));
    call_set_timer(c, PING_MS, sse_ping);
}

/* ---- a command's life ---- */

static void command_free(struct command *m)
{
    (void)map_del(&m->o->commands, str_of(m->id));
    list_remove(&m->node);
    timer_stop(&m->kill);
    exec_close(m->follow);
    if (m->sb)
        sandbox_unref(m->sb);
    buf_fini(&m->out.rest);
    buf_fini(&m->err.rest);
    mem_free(m->content);
    mem_free(m);
}

void commands_free(struct opensandbox *o)
{
    size_t it = 0;

    for (struct command *m; (m = map_next(&o->commands, &it)); it = 0)
        command_free(m);
    map_fini(&o->commands);
}

static void command_ends(struct command *m)
{
    struct opensandbox *o = m->o;

    m->follow = NULL;
    m->ended = clock_real();
    timer_stop(&m->kill);
    sandbox_unref(TAKE_PTR(m->sb));
    buf_fini(&m->out.rest);
    buf_fini(&m->err.rest);
    list_append(&o->ended, &m->node);
    struct command *oldest = LIST_FIRST(struct command, &o->ended, node);
    if (o->n_ended < ENDED_MAX)
        o->n_ended++;
    else if (oldest)
        command_free(oldest);
}

static void command_signalled(void *ctx, const struct err *err)
{
    (void)ctx, (void)err; /* its exit tells */
}

static void command_kill(struct command *m, int signal)
{
    struct exec_select which = {.pid = m->pid};
    static const struct actor actor = {.name = "opensandbox"};
    struct exec_call *call;
    struct err err;

    if (m->pid && m->sb)
        (void)!exec_signal(m->sb, &actor, &which, signal, command_signalled, NULL, &call, &err);
}

static void command_overdue(struct timer *t)
{
    command_kill(container_of(t, struct command, kill), SIGKILL);
}

/* Its client is gone: so is what it waited for. */
static void stream_closed(struct call *c)
{
    struct command *m = c->state;

    if (!m)
        return;
    m->call = NULL;
    if (m->follow) {
        command_kill(m, SIGKILL);
        exec_ack(m->follow, m->unacked);
        m->unacked = 0;
    }
}

/* Ends the stream with what was gathered. */
static void stream_end(struct command *m, struct buf *b)
{
    struct call *c = TAKE_PTR(m->call);

    if (!c)
        return;
    c->state = NULL;
    if (!http_response_begun(c->req))
        sse_start(c);
    (void)http_response_write(c->req, buf_str(b));
    call_done(c);
    (void)http_response_end(c->req);
}

/* ---- what it writes ---- */

void sse_line_flush(struct sse_lines *l, const char *type, struct buf *b)
{
    sse_text(b, type, buf_len(&l->rest) ? buf_str(&l->rest) : STR("\n"));
    buf_clear(&l->rest);
}

void sse_lines_take(struct sse_lines *l, const char *type, struct str bytes, struct buf *b)
{
    for (size_t i = 0, from = 0; i <= bytes.n; i++) {
        bool is_end = i == bytes.n || bytes.p[i] == '\n' || bytes.p[i] == '\r';

        if (!is_end && buf_len(&l->rest) + i - from < LINE_MAX_BYTES)
            continue;
        (void)buf_append_str(&l->rest, str_n(bytes.p + from, i - from));
        from = i;
        if (i == bytes.n)
            return;
        if (!is_end) {
            sse_line_flush(l, type, b);
            continue;
        }
        from++;
        if (bytes.p[i] == '\r' || !l->after_cr || buf_len(&l->rest))
            sse_line_flush(l, type, b);
        l->after_cr = bytes.p[i] == '\r';
    }
}

static void command_starts(void *ctx, uint32_t pid)
{
    struct command *m = ctx;
    AUTO_BUF struct buf b = BUF_INIT(1024);

    m->pid = pid;
    if (!m->call) {
        command_kill(m, SIGKILL);
        return;
    }
    sse_start(m->call);
    sse_text(&b, "init", str_of(m->id));
    if (m->is_background) {
        sse_complete(&b, 0);
        stream_end(m, &b);
        return;
    }
    (void)http_response_write(m->call->req, buf_str(&b));
    call_set_timer(m->call, PING_MS, sse_ping);
}

static void command_writes(void *ctx, enum wire_channel channel, struct str bytes)
{
    struct command *m = ctx;
    AUTO_BUF struct buf b = BUF_INIT(4 << 20);

    if (!m->call) {
        exec_ack(m->follow, bytes.n);
        return;
    }
    bool is_err = channel == WIRE_STDERR;
    sse_lines_take(is_err ? &m->err : &m->out, is_err ? "stderr" : "stdout", bytes, &b);
    if (buf_error(&b) < 0)
        http_abort(m->call->req);
    else if (buf_len(&b))
        (void)http_response_write(m->call->req, buf_str(&b));
    if (http_response_full(m->call->req))
        m->unacked += bytes.n;
    else
        exec_ack(m->follow, bytes.n);
}

static void command_drains(struct http_request *req, void *ctx)
{
    struct call *c = ctx;
    struct command *m = c->state;

    (void)req;
    if (!m || !m->follow)
        return;
    exec_ack(m->follow, m->unacked);
    m->unacked = 0;
}

static void command_finish(struct command *m, const char *value, const char *trace)
{
    AUTO_BUF struct buf b = BUF_INIT(2 * LINE_MAX_BYTES * 6);

    if (buf_len(&m->out.rest))
        sse_line_flush(&m->out, "stdout", &b);
    if (buf_len(&m->err.rest))
        sse_line_flush(&m->err, "stderr", &b);
    if (value)
        event_error(&b, value, trace);
    else
        sse_complete(&b, clock_real() - m->started);
    m->is_ok = !value;
    (void)snprintf(m->error, sizeof(m->error), "%s", value ? trace : "");
    stream_end(m, &b);
    command_ends(m);
}

static void command_exits(void *ctx, const struct exec_exit *exit)
{
    struct command *m = ctx;
    char value[16], trace[48];

    m->exit_code = exit->signaled ? UINT32_MAX : exit->code;
    (void)snprintf(value, sizeof(value), "%d", (int)m->exit_code);
    (void)snprintf(trace, sizeof(trace), exit->signaled ? "signal: %u" : "exit status %u", exit->code);
    command_finish(m, m->exit_code ? value : NULL, trace);
}

static void command_fails(void *ctx, const struct err *err)
{
    struct command *m = ctx;
    struct call *c = m->call;
    bool is_late = err->code == ERR_DEADLINE_EXCEEDED;

    m->exit_code = UINT32_MAX;
    if (!c || http_response_begun(c->req)) {
        command_finish(m, is_late ? "-1" : err->msg, is_late ? "the time-out of the command has passed" : err->msg);
        return;
    }
    m->call = NULL;
    c->state = NULL;
    call_fail_err(c, err);
    command_ends(m);
}

static const struct exec_ops command_ops = {command_starts, command_writes, command_exits, command_fails};

void command_run(struct call *c, const struct exec_spec *spec, struct str content, bool is_background, const char *id)
{
    struct command *m = mem_new(struct command);
    struct exec_spec tagged = *spec;
    struct err err;

    m->o = opensandbox_of_execd(c);
    memcpy(m->id, id, COMMAND_ID_LEN);
    memcpy(m->sandbox, sandbox_info(c->sandbox)->id, ID_SANDBOX_LEN);
    m->is_background = is_background;
    m->started = clock_real();
    m->content = mem_strndup(content.p, MIN(content.n, (size_t)CONTENT_MAX));
    list_init(&m->node);
    timer_init(&m->kill, command_overdue);
    buf_init(&m->out.rest, LINE_MAX_BYTES);
    buf_init(&m->err.rest, LINE_MAX_BYTES);
    (void)map_put(&m->o->commands, str_of(m->id), m);
    tagged.tag = str_of(m->id);
    if (exec_start(c->sandbox, &c->actor, &tagged, &command_ops, m, &m->follow, &err) < 0) {
        m->follow = NULL;
        command_free(m);
        call_fail_err(c, &err);
        return;
    }
    m->sb = sandbox_ref(c->sandbox);
    m->call = c;
    c->state = m;
    c->cleanup = stream_closed;
    http_on_drain(c->req, command_drains, c);
}

/* ---- what is asked for ---- */

/* "$1": id of one whose output goes to its file; "$2" and "$3": user and group by number; then the command. */
#define PRELUDE                                                                                                        \
    "if [ -n \"$1\" ]; then mkdir -p " COMMAND_DIRECTORY " && exec >" COMMAND_DIRECTORY                                \
    "/\"$1\".log 2>&1 </dev/null; fi; u=$2 g=$3; "                                                                     \
    "shift 3; [ -n \"$u\" ] || exec \"$@\"; "                                                                          \
    "exec setpriv --reuid \"$u\" --regid \"${g:-$(id -g \"$u\" 2>/dev/null || echo \"$u\")}\" --clear-groups -- \"$@\""
#define SHELL "[ ! -x /bin/bash ] || exec /bin/bash -c \"$1\"; exec /bin/sh -c \"$1\""

const char *command_id_once(struct call *c)
{
    if (!c->args[1].p) {
        char *id = arena_alloc(http_arena(c->req), COMMAND_ID_LEN + 1);

        id_token(id, COMMAND_ID_LEN);
        c->args[1] = str_of(id);
    }
    return c->args[1].p;
}

static void run_command(struct call *c)
{
    struct arena *a = http_arena(c->req);
    struct str command = STR(""), cwd = STR("");
    const struct str *argv = NULL;
    int64_t timeout_ms = 0, uid = -1, gid = -1;
    bool is_background = false;
    struct exec_spec spec = {.user = STR("root")};
    size_t argc = 0, n = 0;
    const char *id = command_id_once(c);

    if (!CALL_WANTS(c, JSON_WANT_STR("command", &command), JSON_WANT_STRS("argv", &argv, &argc),
                    JSON_WANT_STR("cwd", &cwd), JSON_WANT_BOOL("background", &is_background),
                    JSON_WANT_INT("timeout", 1, INT64_MAX / 1000, &timeout_ms),
                    JSON_WANT_INT("uid", 0, INT32_MAX, &uid), JSON_WANT_INT("gid", 0, INT32_MAX, &gid),
                    JSON_WANT_PAIRS("envs", &spec.envs, &spec.n_envs)))
        return;
    if (!command.n == !argc || (gid >= 0 && uid < 0)) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "exactly one of command and argv is needed; gid goes with uid");
        return;
    }
    struct str *args = arena_alloc(a, (argc + 12) * sizeof(*args));
    spec.cmd = STR("/bin/sh");
    spec.args = args;
    if (is_background || uid >= 0) {
        args[n++] = STR("-c");
        args[n++] = STR(PRELUDE);
        args[n++] = STR("sh");
        args[n++] = is_background ? str_of(id) : STR("");
        args[n++] = uid >= 0 ? str_of(arena_printf(a, "%lld", (long long)uid)) : STR("");
        args[n++] = gid >= 0 ? str_of(arena_printf(a, "%lld", (long long)gid)) : STR("");
        if (command.n)
            args[n++] = STR("/bin/sh");
    } else if (argc && argv) {
        spec.cmd = argv[0];
    }
    for (size_t i = n ? 0 : 1; argv && i < argc; i++)
        args[n++] = argv[i];
    if (command.n) {
        args[n++] = STR("-c");
        args[n++] = STR(SHELL);
        args[n++] = STR("sh");
        args[n++] = command;
    }
    spec.n_args = n;
    spec.cwd = cwd;
    spec.timeout_ms = (uint64_t)timeout_ms;
    command_run(c, &spec, command.n || !argv ? command : argv[0], is_background, id);
}

/* Of this sandbox; NULL: none. */
static struct command *command_find(struct call *c, struct str id)
{
    struct command *m = map_get(&opensandbox_of_execd(c)->commands, id);

    return m && strcmp(m->sandbox, sandbox_info(c->sandbox)->id) == 0 ? m : NULL;
}

static void on_interrupted(void *ctx, const struct err *err)
{
    struct call *c = ctx;

    c->exec = NULL;
    if (err)
        call_fail_err(c, err);
    else
        call_empty(c, 200);
}

static void interrupt(struct call *c)
{
    struct str id = STR("");
    struct command *m;
    struct err err;

    (void)call_query(c, "id", &id);
    m = command_find(c, id);
    if (!m || !m->follow) {
        call_fail(c, 500, "no command runs under the id '%.*s'", (int)MIN(id.n, (size_t)64), id.p);
        return;
    }
    if (exec_signal(c->sandbox, &c->actor, &(struct exec_select){.pid = m->pid}, SIGTERM, on_interrupted, c, &c->exec,
                    &err) < 0)
        call_fail_err(c, &err);
    else
        timer_set(&c->facade->timers, &m->kill, TERM_MS);
}

static void command_status(struct call *c)
{
    const struct command *m = command_find(c, c->args[0]);

    if (!m) {
        call_fail(c, 404, "there is no command '%.*s'", (int)MIN(c->args[0].n, (size_t)64), c->args[0].p);
        return;
    }
    json_t *answer = json_pack("{s:s,s:s,s:b,s:s,s:o*,s:o*}", "id", m->id, "content", m->content, "running",
                               m->follow != NULL, "error", m->error, "started_at", opensandbox_time(m->started),
                               "finished_at", opensandbox_time(m->ended));
    if (!m->follow)
        (void)json_object_set_new(answer, "exit_code", json_integer((int32_t)m->exit_code));
    opensandbox_answer(c, 200, answer);
}

/* ---- the log of one in the background ---- */

struct log_read {
    struct buf bytes;
    uint64_t from;
};

enum { LOG_PIECE = 4 << 20 };

static void log_closed(struct call *c)
{
    buf_fini(&((struct log_read *)c->state)->bytes);
}

static void log_data(void *ctx, struct str bytes)
{
    struct call *c = ctx;
    struct log_read *l = c->state;

    (void)buf_append_str(&l->bytes, bytes);
    file_read_ack(c->file, bytes.n);
}

static void log_open(void *ctx, const struct file_entry *entry)
{
    (void)ctx, (void)entry;
}

static void log_end(void *ctx, const struct err *err)
{
    struct call *c = ctx;
    struct log_read *l = c->state;
    char cursor[24];

    c->file = NULL;
    if (err) {
        call_fail(c, 400, "no output of that command is kept: only those in the background have some");
        return;
    }
    uint64_t next = l->from + buf_len(&l->bytes);
    (void)snprintf(cursor, sizeof(cursor), "%llu", (unsigned long long)next);
    http_add_header(c->req, STR("execd-commands-tail-cursor"), str_of(cursor));
    call_respond(c, 200, "text/plain; charset=utf-8", buf_str(&l->bytes));
}

bool command_is_id(struct str id)
{
    for (size_t i = 0; i < id.n; i++)
        if (!(id.p[i] >= 'a' && id.p[i] <= 'z') && !(id.p[i] >= '0' && id.p[i] <= '9'))
            return false;
    return id.n == COMMAND_ID_LEN;
}

static void command_logs(struct call *c)
{
    static const struct file_read_ops ops = {log_open, log_data, log_end};
    struct log_read *l = arena_alloc(http_arena(c->req), sizeof(*l));
    char path[64];
    struct err err;

    *l = (struct log_read){.from = 0};
    buf_init(&l->bytes, LOG_PIECE);
    c->state = l;
    c->cleanup = log_closed;
    if (call_query_u64(c, "cursor", &l->from) < 0)
        return;
    if (!command_is_id(c->args[0])) {
        call_fail(c, 400, "there is no such command");
        return;
    }
    (void)snprintf(path, sizeof(path), COMMAND_DIRECTORY "/%.*s.log", STR_ARG(c->args[0]));
    if (file_read(c->sandbox, &c->actor, STR("root"), str_of(path), l->from, LOG_PIECE, &ops, c, &c->file, &err) < 0) {
        c->file = NULL;
        call_fail_err(c, &err);
    }
}

/* ---- figures ---- */

static json_t *figures(const struct sandbox_sample *s)
{
    double pct = MIN(MAX(s->cpu_used_pct, 0), 100), mib = 1 << 20;

    return json_pack("{s:I,s:f,s:f,s:f,s:I}", "cpu_count", (json_int_t)s->cpu_count, "cpu_used_pct", pct,
                     "mem_total_mib", (double)s->memory_total / mib, "mem_used_mib", (double)s->memory_used / mib,
                     "timestamp", (json_int_t)(s->at / USEC_PER_MS));
}

static void on_sample(void *ctx, const struct sandbox_sample *s, const struct err *err)
{
    struct call *c = call_back(ctx, err);

    if (c)
        opensandbox_answer(c, 200, figures(s));
}

static void metrics(struct call *c)
{
    struct err err;

    if (sandbox_sample_now(c->sandbox, on_sample, call_hold(c), &err) < 0)
        call_drop(c, &err);
}

static void watch_next(struct call *c);

static void on_watched(void *ctx, const struct sandbox_sample *s, const struct err *err)
{
    struct call *c = ctx;
    char *text = s && c->req && !c->answered ? json_dumps(figures(s), JSON_COMPACT) : NULL;

    if (text && !http_response_full(c->req)) {
        AUTO_BUF struct buf b = BUF_INIT(1024);

        buf_printf(&b, "data: %s\n\n", text);
        (void)http_response_write(c->req, buf_str(&b));
    }
    mem_free(text);
    if (c->req && !c->answered && err)
        http_abort(c->req);
    else if (c->req && !c->answered)
        call_set_timer(c, 1000, watch_next);
    call_unref(c);
}

static void watch_next(struct call *c)
{
    struct err err;

    if (sandbox_sample_now(c->sandbox, on_watched, call_hold(c), &err) < 0) {
        http_abort(c->req);
        call_unref(c);
    }
}

static void metrics_watch(struct call *c)
{
    sse_start(c);
    watch_next(c);
}

static void ping(struct call *c)
{
    call_empty(c, 200);
}

const struct route command_routes[] = {
    {HTTP_METHOD_GET, "/ping", ping, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/command", run_command, ROUTE_BODY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_DELETE, "/command", interrupt, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/command/status/{}", command_status, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/command/{}/logs", command_logs, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/session", session_make, ROUTE_BODY_MAY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/session/{}/run", session_run_command, ROUTE_BODY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_DELETE, "/session/{}", session_remove, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/metrics", metrics, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/metrics/watch", metrics_watch, ROUTE_SANDBOX, NULL},
};
const size_t command_n_routes = ARRAY_SIZE(command_routes);
