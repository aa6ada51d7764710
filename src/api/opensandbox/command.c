/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands of execd: a process of the core, told as a stream of events.
 *
 *  1. A command is ours from its start until we end, or until ENDED_MAX have ended and it is the first of the tenant
 *     with most. Its status is told from that, or from the sandbox's log, to whoever may ask the sandbox.
 *  2. In the foreground its client reads it: output is acknowledged at the client's pace, and a client that leaves
 *     kills the process group.
 *  3. One that was begun with an operation id (X-EXECD-OPERATION-ID) has its own from that, so the same request again
 *     finds it and begins nothing. Its last COMMAND_KEPT_MAX bytes of events are kept until ORPHAN_MS after its end, it
 *     goes on for ORPHAN_MS when its client is lost, and /command/{id}/resume?after_eid=N goes on with the event behind
 *     N. Events of all are numbered from 1 ("eid").
 *  4. An operation (operations.c) has its own from that, too, and goes on until it ends, whoever reads it.
 *  5. In the background it writes to a file inside, which is what its log is read from. So the log outlives us, and
 *     costs us nothing.
 */
#include "api/opensandbox/handlers.h"
#include "base/mem.h"
#include "sandbox/share.h"

#include <signal.h>

enum {
    TERM_MS = 3000,
    ENDED_MAX = 1024,
    CONTENT_MAX = 4096,
    PIECE_MAX = 16 * 1024,
    COMMAND_KEPT_MAX = 256 * 1024,
    LINES_BYTES = 2 * SSE_LINE_MAX,
    KEPT_COMMANDS_MAX = 512,
    KEPT_PER_SANDBOX_MAX = 64,
    ORPHAN_MS = 60000
};

struct osb_command {
    struct opensandbox *o;
    char id[COMMAND_ID_LEN + 1];
    char sandbox[ID_SANDBOX_LEN + 1];
    uint64_t tenant;
    struct sandbox *sb;    /* a reference, while it runs */
    const void *there;     /* the same, to compare with */
    struct follow *follow; /* NULL: it ended */
    struct call *call;     /* whose stream it is; NULL: nobody reads it */
    struct list node;      /* in o->ended */
    struct timer kill;     /* after an interrupt */
    struct sse_lines out, err;
    struct charge charge;         /* of what they hold, while it runs: a line may come in pieces, and late */
    struct buf kept;              /* events; of those with an operation id alone */
    uint64_t n_events, n_dropped; /* in all; of those that are not kept any more */
    uint32_t pid, exit_code;
    usec_t started, ended; /* real time */
    bool is_background, is_kept, by_bash, is_operation;
    char *content;                /* owned */
    char request[DIGEST_LEN + 1]; /* of one with an operation id: a digest of what was asked for */
    char error[128];
};

/* ---- a command's life ---- */

static void command_free(void *command)
{
    struct osb_command *m = command;
    (void)map_del(&m->o->commands, str_of(m->id));
    list_remove(&m->node);
    timer_stop(&m->kill);
    exec_close(m->follow);
    if (m->sb)
        sandbox_unref(m->sb);
    buf_fini(&m->out.rest);
    buf_fini(&m->err.rest);
    buf_fini(&m->kept);
    charge_release(&m->charge);
    MEM_FREE(m->content, m);
}

void commands_free(struct opensandbox *o)
{
    facade_drain(&o->commands, command_free);
}

static uint64_t command_tenant(const struct list *node)
{
    return container_of(node, const struct osb_command, node)->tenant;
}

static void command_ends(struct osb_command *m)
{
    struct opensandbox *o = m->o;
    m->ended = clock_real();
    timer_stop(&m->kill);
    if (m->is_kept)
        timer_set(&o->execd.timers, &m->kill, ORPHAN_MS);
    sandbox_unref(TAKE_PTR(m->sb));
    buf_fini(&m->out.rest);
    buf_fini(&m->err.rest);
    charge_release(&m->charge);
    list_append(&o->ended, &m->node);
    if (o->n_ended < ENDED_MAX)
        o->n_ended++;
    else
        command_free(container_of(share_first(&o->ended, command_tenant, NULL), struct osb_command, node));
}

static void command_kill(struct osb_command *m, int signal)
{
    struct exec_select which = {.pid = m->pid};
    static const struct actor actor = {.name = "opensandbox"};
    struct exec_call *call;
    struct err err;
    if (m->pid && m->sb)
        (void)!exec_signal(m->sb, &actor, &which, signal, exec_ignore, NULL, &call, &err);
}

static void command_overdue(struct timer *t)
{
    struct osb_command *m = container_of(t, struct osb_command, kill);
    if (m->follow) {
        command_kill(m, SIGKILL);
        return;
    }
    m->is_kept = false;
    buf_fini(&m->kept);
}

/* Its client is gone: so is what it waited for. */
static void stream_closed(struct call *c)
{
    struct osb_command *m = c->state;
    if (!m)
        return;
    m->call = NULL;
    if (!m->follow)
        return;
    if (m->is_kept && !m->is_operation)
        timer_set(&m->o->execd.timers, &m->kill, ORPHAN_MS);
    else if (!m->is_operation)
        command_kill(m, SIGKILL);
    exec_ack(m->follow, c->unacked);
}

static void command_drains(struct call *c, size_t n)
{
    struct osb_command *m = c->state;
    if (m && m->follow)
        exec_ack(m->follow, n);
}

/* The call is its stream from now on. */
static void command_read_by(struct osb_command *m, struct call *c)
{
    m->call = c;
    c->state = m;
    c->cleanup = stream_closed;
    call_pace(c, command_drains);
}

/* What was gathered, with its numbers, kept if that is wanted. */
static void command_number(struct osb_command *m, struct buf *b, struct buf *to)
{
    struct str rest = buf_str(b);
    for (const char *end; rest.n && (end = memmem(rest.p, rest.n, "}\n\n", 3));) {
        size_t n = (size_t)(end - rest.p) + 3, before = buf_len(to);
        buf_printf(to, "{\"eid\":%llu,", (unsigned long long)++m->n_events);
        buf_append_str(to, str_n(rest.p + 1, n - 1));
        rest = str_sub(rest, n);
        struct str one = str_n(buf_data(to) + before, buf_len(to) - before);
        while (buf_len(&m->kept) && buf_len(&m->kept) + one.n > COMMAND_KEPT_MAX) {
            const char *first = memmem(buf_data(&m->kept), buf_len(&m->kept), "}\n\n", 3);

            buf_consume(&m->kept, (size_t)(first - buf_data(&m->kept)) + 3);
            m->n_dropped++;
        }
        if (one.n > COMMAND_KEPT_MAX) /* a line of control characters, escaped */
            m->n_dropped++;
        else if (m->is_kept)
            (void)buf_append_str(&m->kept, one);
    }
}

static void command_emit(struct osb_command *m, struct buf *b)
{
    AUTO_BUF struct buf numbered = BUF_INIT(buf_len(b) * 4 + 256);
    command_number(m, b, &numbered);
    if (m->call)
        (void)http_response_write(m->call->req, buf_str(&numbered));
}

static struct call *command_let_go(struct osb_command *m)
{
    struct call *c = TAKE_PTR(m->call);
    if (c)
        c->state = NULL;
    return c;
}

/* Ends the stream with what was gathered. */
static void stream_end(struct osb_command *m, struct buf *b)
{
    if (m->call && !http_response_begun(m->call->req))
        sse_start(m->call);
    command_emit(m, b);
    struct call *c = command_let_go(m);
    if (c)
        call_end(c);
}

/* ---- what it writes ---- */

static void command_starts(void *ctx, uint32_t pid)
{
    struct osb_command *m = ctx;
    AUTO_BUF struct buf b = BUF_INIT(1024);
    m->pid = pid;
    if (m->is_operation)
        (void)operation_settle(m->o, m->sandbox, m->id, true, command_let_go(m));
    if (!m->call && !m->is_kept && !m->is_operation) {
        command_kill(m, SIGKILL);
        return;
    }
    if (m->call && m->is_background && m->call->route->handler == isolated_run) {
        isolated_began(command_let_go(m), m->id, m->started);
        return;
    }
    if (m->call && !http_response_begun(m->call->req))
        sse_start(m->call);
    sse_text(&b, "init", str_of(m->id));
    if (m->is_background) {
        sse_complete(&b, 0);
        stream_end(m, &b);
        return;
    }
    command_emit(m, &b);
    if (m->call)
        call_set_timer(m->call, SSE_PING_MS, sse_ping);
}

static void command_writes(void *ctx, enum wire_channel channel, struct str bytes)
{
    struct osb_command *m = ctx;
    AUTO_BUF struct buf b = BUF_INIT(4 << 20);
    if (!m->call && !m->is_kept) {
        exec_ack(m->follow, bytes.n);
        return;
    }
    bool is_err = channel == WIRE_STDERR;
    sse_lines_take(is_err ? &m->err : &m->out, is_err ? "stderr" : "stdout", bytes, &b);
    if (buf_error(&b) < 0 && m->call)
        http_abort(m->call->req);
    else if (buf_len(&b))
        command_emit(m, &b);
    if (m->call)
        call_paced(m->call, bytes.n);
    else
        exec_ack(m->follow, bytes.n);
}

static void command_finish(struct osb_command *m, const char *value, const char *trace)
{
    AUTO_BUF struct buf b = BUF_INIT(2 * SSE_LINE_MAX * 6);
    if (buf_len(&m->out.rest))
        sse_line_flush(&m->out, "stdout", &b);
    if (buf_len(&m->err.rest))
        sse_line_flush(&m->err, "stderr", &b);
    if (value)
        sse_error(&b, value, trace);
    else
        sse_complete(&b, clock_real() - m->started);
    (void)snprintf(m->error, sizeof(m->error), "%s", value ? trace : "");
    stream_end(m, &b);
    command_ends(m);
}

static void command_exits(struct osb_command *m, const struct exec_exit *exit)
{
    char value[16], trace[48];
    m->exit_code = exit->signaled ? UINT32_MAX : exit->code;
    (void)snprintf(value, sizeof(value), "%d", (int)m->exit_code);
    (void)snprintf(trace, sizeof(trace), exit->signaled ? "signal: %u" : "exit status %u", exit->code);
    command_finish(m, m->exit_code ? value : NULL, trace);
}

/* ---- without bash ---- */

/* Their commands begin with a shell that looks for it. One that another one's place was given to fails once more. */
static char *command_place(struct opensandbox *o, const struct sandbox *there)
{
    const char *id = sandbox_info(there)->id;
    return o->without_bash[(unsigned char)(id[1] ^ id[2] << 2 ^ id[3] << 4) % ARRAY_SIZE(o->without_bash)];
}

bool command_has_bash(struct opensandbox *o, const struct sandbox *there)
{
    return strcmp(command_place(o, there), sandbox_info(there)->id) != 0;
}

/* False: that was not it. */
static bool command_starts_over(struct osb_command *m, const struct err *err)
{
    struct call *c = m->call;
    if (!c || http_response_begun(c->req) || err->code != ERR_FAILED_PRECONDITION || !m->by_bash ||
        !command_has_bash(m->o, c->sandbox))
        return false;
    memcpy(command_place(m->o, c->sandbox), sandbox_info(c->sandbox)->id, ID_SANDBOX_LEN + 1);
    c->state = NULL;
    command_free(m);
    call_start(c);
    return true;
}

static void command_fails(struct osb_command *m, const struct err *err)
{
    struct call *c = m->call;
    bool is_late = err->code == ERR_DEADLINE_EXCEEDED;
    if (command_starts_over(m, err))
        return;
    m->exit_code = UINT32_MAX;
    if (m->is_operation && !m->pid && operation_settle(m->o, m->sandbox, m->id, false, c)) {
        (void)command_let_go(m);
        c = NULL;
    }
    if (!c || http_response_begun(c->req)) {
        command_finish(m, is_late ? "-1" : err->msg, is_late ? "the time-out of the command has passed" : err->msg);
        return;
    }
    call_fail_err(command_let_go(m), err);
    command_ends(m);
}

static void command_over(void *ctx, const struct exec_exit *exit, const struct err *err)
{
    if (err)
        command_fails(ctx, err);
    else
        command_exits(ctx, exit);
}

/* An empty line, which is one byte, is an event of 57. */
static size_t command_room(void *ctx)
{
    const struct osb_command *m = ctx;
    return MIN(m->call ? call_room(m->call) : SIZE_MAX, (size_t)PIECE_MAX);
}

static const struct exec_ops command_ops = {command_starts, command_writes, command_over, command_room};

/* What is asked for already runs, or did: the call goes on with its events behind the one with this number. */
static void command_resume(struct call *c, struct osb_command *m, uint64_t after)
{
    struct str rest = buf_str(&m->kept);
    if (!m->is_kept || m->call || after > m->n_events || (after < m->n_dropped && !m->is_background)) {
        call_fail(c, !m->is_kept || after < m->n_dropped ? 410 : 409,
                  m->call               ? "another client reads this command"
                  : after > m->n_events ? "there is no such event yet"
                                        : "these events are not kept: only those of commands that were begun with an "
                                          "X-EXECD-OPERATION-ID are, the last of them");
        return;
    }
    for (uint64_t skip = after - MIN(after, m->n_dropped); skip; skip--) {
        const char *end = memmem(rest.p, rest.n, "}\n\n", 3);

        rest = str_sub(rest, (size_t)(end - rest.p) + 3);
    }
    sse_start(c);
    (void)http_response_write(c->req, rest);
    if (!m->follow || m->is_background) {
        call_end(c);
        return;
    }
    timer_stop(&m->kill);
    command_read_by(m, c);
    call_set_timer(c, SSE_PING_MS, sse_ping);
}

static bool command_is_again(struct call *c, const char *request, const char *id)
{
    struct osb_command *m = map_get(&opensandbox_of_execd(c)->commands, str_of(id));
    uint64_t after = 0;
    if (!m)
        return false;
    if (strcmp(request, m->request) != 0 || m->there != c->sandbox)
        call_fail(c, 409, "this operation id was used for another command");
    else if (call_query_u64(c, "after_eid", &after) == 0)
        command_resume(c, m, after);
    return true;
}

/* One sandbox doesn't take it from all others, and no tenant from another one. Of all there are KEPT_COMMANDS_MAX. */
static bool command_may_be_kept(const struct call *c)
{
    const struct sandbox_info *i = sandbox_info(c->sandbox);
    size_t n_sandbox = 0, n_tenant = 0, n = 0;
    MAP_FOREACH (const struct osb_command, m, &opensandbox_of_execd(c)->commands) {
        n_sandbox += m->is_kept && strcmp(m->sandbox, i->id) == 0;
        n_tenant += m->is_kept && m->tenant == i->tenant;
        n += m->is_kept;
    }
    return n_sandbox < KEPT_PER_SANDBOX_MAX && quota_is_share(KEPT_COMMANDS_MAX, n, n_tenant, 1);
}

void command_run(struct call *c, const struct exec_spec *spec, struct str content, bool is_background, const char *id)
{
    bool is_operation = c->route->what;
    bool is_named = !is_operation && http_header_get(c->req, COMMAND_OPERATION_HEADER).n;
    bool is_kept = is_named || (is_operation && !is_background);
    char request[DIGEST_LEN + 1] = "";
    if (is_named)
        operation_digest_body(c, request);
    if (is_named && command_is_again(c, request, id))
        return;
    if (is_kept && !command_may_be_kept(c)) {
        if (is_operation)
            operation_full(c);
        else
            call_fail(c, 429, "too many commands with an operation id run, or have just ended");
        return;
    }
    struct charge charge = {.core = call_core(c), .tenant = sandbox_info(c->sandbox)->tenant};
    if ((!is_background || is_kept) && !call_ok(c, charge_memory(&charge, LINES_BYTES, &c->err)))
        return;
    struct osb_command *m = mem_new(struct osb_command);
    struct exec_spec tagged = *spec;

    m->o = opensandbox_of_execd(c);
    memcpy(m->id, id, COMMAND_ID_LEN);
    memcpy(m->sandbox, sandbox_info(c->sandbox)->id, ID_SANDBOX_LEN);
    memcpy(m->request, request, sizeof(request));
    m->is_background = is_background;
    m->by_bash = str_eqc(spec->cmd, "/bin/bash");
    m->is_kept = is_kept;
    m->is_operation = is_operation;
    m->tenant = charge.tenant;
    m->charge = charge;
    m->started = clock_real();
    m->content = mem_strndup(content.p, MIN(content.n, (size_t)CONTENT_MAX));
    list_init(&m->node);
    timer_init(&m->kill, command_overdue);
    buf_init(&m->out.rest, SSE_LINE_MAX);
    buf_init(&m->err.rest, SSE_LINE_MAX);
    buf_init(&m->kept, COMMAND_KEPT_MAX);
    (void)map_put(&m->o->commands, str_of(m->id), m);
    const char *session = c->route->handler == isolated_run ? c->args[0].p : NULL;
    tagged.tag = str_of(session ? arena_printf(http_arena(c->req), "%s:%s", m->id, session) : m->id);
    if (!call_ok(c, exec_start(c->sandbox, &c->actor, &tagged, &command_ops, m, &m->follow, &c->err))) {
        command_free(m);
        return;
    }
    m->there = m->sb = sandbox_ref(c->sandbox);
    command_read_by(m, c);
    if (is_operation)
        operation_claim(c, false);
}

bool command_runs(const struct opensandbox *o, const char *id)
{
    const struct osb_command *m = map_get(&o->commands, str_of(id));
    return m && m->follow;
}

/* ---- what is asked of it ---- */

bool command_is_id(struct str id)
{
    return id.n == COMMAND_ID_LEN && str_is_of(id, "a-z0-9");
}

usec_t command_last(struct opensandbox *o, const struct sandbox *there)
{
    usec_t last = 0;
    MAP_FOREACH (const struct osb_command, m, &o->commands)
        if (m->there == there)
            last = MAX(last, m->follow ? UINT64_MAX : m->ended);
    return last;
}

/* Of this sandbox; NULL: none. */
static struct osb_command *command_find(struct call *c, struct str id)
{
    struct osb_command *m = map_get(&opensandbox_of_execd(c)->commands, id);
    return m && strcmp(m->sandbox, sandbox_info(c->sandbox)->id) == 0 ? m : NULL;
}

bool command_is_elsewhere(struct call *c, struct str id)
{
    const struct osb_command *m = command_find(c, id);
    return m && m->there != c->sandbox;
}

bool command_is_background(struct call *c, struct str id)
{
    const struct osb_command *m = command_find(c, id);
    return m && m->is_background && m->follow;
}

static void on_interrupted(struct call *c)
{
    call_empty(c, 200);
}

static void interrupt(struct call *c)
{
    struct str id = STR("");
    struct osb_command *m;
    (void)call_query(c, "id", &id);
    m = command_find(c, id);
    if (!m || !m->follow)
        call_fail(c, 500, "no command runs under the id '%.*s'", STR_ARG_MAX(id, 64));
    else if (call_ok(c, exec_signal(m->sb, &c->actor, &(struct exec_select){.pid = m->pid}, SIGTERM,
                                    CALL_EXEC(c, on_interrupted))))
        timer_set(&c->facade->timers, &m->kill, TERM_MS);
}

static void command_resumed(struct call *c)
{
    struct osb_command *m = command_find(c, c->args[0]);
    uint64_t after;
    if (call_query_u64(c, "after_eid", &after) < 0)
        return;
    if (m)
        command_resume(c, m, after);
    else
        call_fail(c, 404, "there is no command '%.*s'", STR_ARG_MAX(c->args[0], 64));
}

void command_status(struct call *c)
{
    const struct osb_command *m = command_find(c, c->args[0]);
    if (m)
        report_status(c, m->content, m->error, m->started, m->ended, m->follow, (int)m->exit_code);
    else
        report_recorded(c);
}

static void ping(struct call *c)
{
    call_empty(c, 200);
}

const struct route command_routes[] = {
    {HTTP_METHOD_GET, "/ping", ping, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/command", session_command, ROUTE_BODY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_DELETE, "/command", interrupt, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/command/status/{}", command_status, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/command/{}/resume", command_resumed, ROUTE_SANDBOX | ROUTE_USE, NULL},
    {HTTP_METHOD_GET, "/command/{}/logs", report_log, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/session", session_make, ROUTE_BODY_MAY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/session/{}/run", session_run_command, ROUTE_BODY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_DELETE, "/session/{}", session_remove, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/execution/instance", operation_show_instance, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/execution/operation", operation_show, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/command/operations", operation_command, ROUTE_BODY | ROUTE_SANDBOX, OPERATION_ROUTE},
    {HTTP_METHOD_POST, "/pty/operations", operation_pty, ROUTE_BODY | ROUTE_SANDBOX, OPERATION_ROUTE},
    {HTTP_METHOD_POST, "/pty", pty_make, ROUTE_BODY_MAY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/pty/{}", pty_status, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_DELETE, "/pty/{}", pty_remove, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/pty/{}/ws", pty_attach, ROUTE_SANDBOX | ROUTE_USE, NULL},
    {HTTP_METHOD_GET, "/v1/isolated/capabilities", isolated_capabilities, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/v1/isolated/sessions", isolated_list, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/v1/isolated/session", isolated_make, ROUTE_BODY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/v1/isolated/session/{}", isolated_get, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_DELETE, "/v1/isolated/session/{}", isolated_remove, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/v1/isolated/session/{}/run", isolated_run, ROUTE_BODY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/v1/isolated/session/{}/runs/{}", isolated_run_status, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/v1/isolated/session/{}/runs/{}/logs", isolated_run_log, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/v1/isolated/session/{}/diff", isolated_stub, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/v1/isolated/session/{}/commit", isolated_stub, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/metrics", report_metrics, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/metrics/watch", report_metrics_watch, ROUTE_SANDBOX, NULL},
};
const size_t command_n_routes = ARRAY_SIZE(command_routes);
