/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Model Context Protocol for clients that start a program: lines on stdin and stdout, each one request of the
 * service's MCP endpoint.
 *
 *  1. Each message goes out as a request of its own, so that several are under way, and what the service says on the
 *     stream of one is a line at once.
 *  2. The headers that HTTP wants are made from the message. The session that `initialize` made is kept here, and made
 *     anew when the service has restarted.
 *  3. A request that its client cancels is cut: the service ends what it began.
 *  4. Where it was started in a Git repository, tools about that one are done here (cli/env/tools.h), and are in the
 *     list that the service gives.
 *  5. At the end of stdin, or of our own time (SIGTERM), what is under way has DRAIN_MS, and the session is ended, with
 *     the sandboxes that end with it.
 */
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/env/repo.h"
#include "cli/env/tools.h"
#include "cli/service.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define TARGET "/mcp"
#define META "io.modelcontextprotocol/protocolVersion"
enum { CALLS_MAX = 64, MCP_LINE_MAX_BYTES = 8 << 20, MCP_ANSWER_MAX = 64 << 20, DRAIN_MS = 2000 };

struct bridge_call {
    struct service *s;
    json_t *message; /* NULL: it is free */
    struct buf in;
    bool has_head, is_stream, was_again;
    struct tools_run run; /* run.pid: it is done here */
};

struct bridge {
    struct context *ctx;
    struct bridge_call calls[CALLS_MAX];
    struct buf in;
    json_t *initialize; /* what made the session; NULL: none */
    char *session, *version;
    char *top; /* of the repository that we are in; NULL: none */
    int signals;
    bool is_over; /* stdin */
};

/* ---- what the client reads ---- */

static void bridge_write(struct str line)
{
    (void)fwrite(line.p, 1, line.n, stdout);
    (void)fputc('\n', stdout);
    (void)fflush(stdout);
}

static void bridge_tell(const json_t *message)
{
    AUTO_FREE char *text = json_dumps(message, JSON_COMPACT);
    if (text)
        bridge_write(str_of(text));
}

static void bridge_fail(const json_t *request, int code, const char *message)
{
    json_t *id = json_object_get(request, "id");
    if (request && (!id || !json_object_get(request, "method")))
        return; /* a notification: nobody waits */
    AUTO_JSON json_t *answer = json_pack("{s:s,s:O,s:{s:i,s:s}}", "jsonrpc", "2.0", "id", id ? id : json_null(),
                                         "error", "code", code, "message", message);
    bridge_tell(answer);
}

/* ---- requests ---- */

/* As a header may carry it. Free with mem_free(). */
static char *header_value(const char *text)
{
    bool is_plain = *text && *text != ' ' && text[strlen(text) - 1] != ' ';
    for (const char *p = text; *p; p++)
        is_plain = is_plain && *p >= ' ' && *p <= '~';
    if (is_plain)
        return mem_strdup(text);
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    buf_append_cstr(&b, "=?base64?");
    buf_append_base64(&b, str_of(text));
    buf_append_cstr(&b, "?=");
    return buf_take(&b);
}

static const char *member(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

static int bridge_send(const struct bridge *b, struct service *s, const json_t *message)
{
    const json_t *params = json_object_get(message, "params");
    const char *method = member(message, "method"), *own = member(json_object_get(params, "_meta"), META);
    const char *name = member(params, method && strcmp(method, "resources/read") == 0 ? "uri" : "name");
    const char *version = own ? own : method && strcmp(method, "initialize") == 0 ? NULL : b->version;
    const struct {
        struct str name;
        const char *value;
    } mirrored[] = {{STR("mcp-protocol-version"), version},
                    {STR("mcp-method"), method},
                    {STR("mcp-name"), name},
                    {STR("mcp-session-id"), own ? NULL : b->session}};
    struct http_header headers[5] = {HTTP_HEADER("accept", "application/json, text/event-stream")};
    char *values[ARRAY_SIZE(mirrored)] = {NULL};
    AUTO_FREE char *body = json_dumps(message, JSON_COMPACT);
    size_t n = 1;
    for (size_t i = 0; i < ARRAY_SIZE(mirrored); i++) {
        values[i] = mirrored[i].value ? header_value(mirrored[i].value) : NULL;
        if (values[i])
            headers[n++] = (struct http_header){mirrored[i].name, str_of(values[i])};
    }
    int r = service_send(s, "POST", TARGET, headers, n, str_of(body));
    for (size_t i = 0; i < ARRAY_SIZE(mirrored); i++)
        mem_free(values[i]);
    return r;
}

static void call_end(struct bridge_call *c, bool is_whole)
{
    json_decref(c->message);
    buf_fini(&c->in);
    if (c->run.pid)
        tools_end(&c->run);
    else if (!is_whole)
        service_close(TAKE_PTR(c->s));
    *c = (struct bridge_call){.s = c->s, .in = BUF_INIT(MCP_ANSWER_MAX)};
}

static void bridge_broken(struct bridge *b, struct bridge_call *c)
{
    bridge_fail(c->message, -32000, b->ctx->err.msg);
    call_end(c, false);
}

static void bridge_say(const struct bridge_call *c, json_t *result)
{
    json_t *id = json_object_get(c->message, "id");
    if (member(json_object_get(json_object_get(c->message, "params"), "_meta"), META))
        (void)json_object_set_new(result, "resultType", json_string("complete"));
    AUTO_JSON json_t *answer =
        json_pack("{s:s,s:O,s:o}", "jsonrpc", "2.0", "id", id ? id : json_null(), "result", result);
    bridge_tell(answer);
}

/* False: it is the service's. */
static bool bridge_runs(struct bridge *b, struct bridge_call *c)
{
    const char *method = member(c->message, "method");
    const json_t *params = json_object_get(c->message, "params");
    if (!b->top || !method || strcmp(method, "tools/call") != 0 || !json_object_get(c->message, "id"))
        return false;
    int r = tools_start(b->ctx, b->top, member(params, "name"), json_object_get(params, "arguments"), &c->run);
    if (r < 0) {
        bridge_say(c,
                   json_pack("{s:[{s:s,s:s}],s:b}", "content", "type", "text", "text", b->ctx->err.msg, "isError", 1));
        b->ctx->err.code = ERR_OK;
        call_end(c, true);
    }
    return r != 0;
}

/* Takes the message. */
static void bridge_begin(struct bridge *b, json_t *message)
{
    struct bridge_call *c = NULL;
    for (size_t i = 0; i < CALLS_MAX; i++)
        if (!b->calls[i].message && (!c || (b->calls[i].s && !c->s)))
            c = &b->calls[i];
    c->message = message;
    if (bridge_runs(b, c))
        return;
    if (!c->s)
        c->s = service_open(b->ctx);
    if (!c->s || bridge_send(b, c->s, message) < 0)
        bridge_broken(b, c);
}

static void bridge_cancel(struct bridge *b, const json_t *id)
{
    for (size_t i = 0; i < CALLS_MAX; i++)
        if (b->calls[i].message && id && json_equal(json_object_get(b->calls[i].message, "id"), id))
            call_end(&b->calls[i], false);
}

static void bridge_line(struct bridge *b, struct str line)
{
    json_t *message = json_loadb(line.p, line.n, JSON_ALLOW_NUL, NULL);
    const char *method = member(message, "method");
    if (!json_is_object(message)) {
        json_decref(message);
        bridge_fail(NULL, -32700, "the line is not a JSON object");
    } else if (method && strcmp(method, "notifications/cancelled") == 0) {
        bridge_cancel(b, json_object_get(json_object_get(message, "params"), "requestId"));
        json_decref(message);
    } else {
        bridge_begin(b, message);
    }
}

/* ---- answers ---- */

/* Of `initialize`. */
static void bridge_keep_session(struct bridge *b, const json_t *request, const json_t *answer, struct str session)
{
    const char *version = member(json_object_get(answer, "result"), "protocolVersion");
    if (!version || !session.n)
        return;
    json_decref(b->initialize);
    b->initialize = json_deep_copy(request);
    MEM_FREE(b->session, b->version);
    b->session = mem_strndup(session.p, session.n);
    b->version = mem_strdup(version);
}

/* The service knows nothing of the session: it is another one. 0: there is a new one. */
static int bridge_again(struct bridge *b, struct service *s)
{
    AUTO_BUF struct buf body = BUF_INIT(MCP_ANSWER_MAX);
    AUTO_JSON json_t *initialize = json_incref(b->initialize),
                     *done = json_pack("{s:s,s:s}", "jsonrpc", "2.0", "method", "notifications/initialized");
    mem_free(TAKE_PTR(b->session));
    if (bridge_send(b, s, initialize) < 0 || http_client_receive(service_client(s)) < 0)
        return -1;
    AUTO_FREE char *session = NULL;
    struct str given = http_client_header(service_client(s), "mcp-session-id");
    session = given.n ? mem_strndup(given.p, given.n) : NULL;
    if (http_client_read_all(service_client(s), &body) < 0)
        return -1;
    AUTO_JSON json_t *answer = json_loadb(buf_data(&body), buf_len(&body), JSON_ALLOW_NUL, NULL);
    bridge_keep_session(b, initialize, answer, str_of(session));
    if (!b->session || bridge_send(b, s, done) < 0 || http_client_receive(service_client(s)) < 0)
        return -1;
    buf_clear(&body);
    return http_client_read_all(service_client(s), &body) < 0 ? -1 : 0;
}

static void bridge_answer(struct bridge *b, struct bridge_call *c)
{
    int status = http_client_status(service_client(c->s));
    const char *method = member(c->message, "method");
    AUTO_JSON json_t *answer =
        buf_len(&c->in) ? json_loadb(buf_data(&c->in), buf_len(&c->in), JSON_ALLOW_NUL, NULL) : NULL;
    bool is_gone =
        status == 404 && b->session && !member(json_object_get(json_object_get(c->message, "params"), "_meta"), META);
    if (is_gone && !c->was_again) {
        c->was_again = true;
        c->has_head = false;
        buf_clear(&c->in);
        if (bridge_again(b, c->s) < 0 || bridge_send(b, c->s, c->message) < 0)
            bridge_broken(b, c);
        return;
    }
    if (method && strcmp(method, "initialize") == 0)
        bridge_keep_session(b, c->message, answer, http_client_header(service_client(c->s), "mcp-session-id"));
    if (json_is_object(answer) && json_object_get(answer, "jsonrpc") && json_object_get(c->message, "id") && method) {
        if (json_is_null(json_object_get(answer, "id"))) /* it was refused before anybody looked at it */
            (void)json_object_set(answer, "id", json_object_get(c->message, "id"));
        if (b->top && strcmp(method, "tools/list") == 0)
            tools_describe(json_object_get(json_object_get(answer, "result"), "tools"));
        bridge_tell(answer);
    } else if (status >= 400 || (method && json_object_get(c->message, "id"))) {
        char text[64];
        (void)snprintf(text, sizeof(text), "the service answered %d %s", status, http_status_text(status));
        bridge_fail(c->message, -32000, text);
    }
    call_end(c, true);
}

static void bridge_events(struct bridge_call *c)
{
    for (ssize_t end; (end = str_find_char(buf_str(&c->in), '\n')) >= 0; buf_consume(&c->in, (size_t)end + 1)) {
        struct str line = str_n(buf_data(&c->in), (size_t)end);
        if (str_starts(line, STR("data: ")))
            bridge_write(str_sub(line, 6));
    }
}

static void bridge_read(struct bridge *b, struct bridge_call *c)
{
    struct http_client *client = service_client(c->s);
    char piece[65536];
    if (!c->has_head) {
        int r = http_client_receive(client);
        if (r < 0) {
            (void)service_broken(c->s, r, "wait for the answer");
            bridge_broken(b, c);
            return;
        }
        c->has_head = true;
        c->is_stream = str_starts(http_client_header(client, "content-type"), STR("text/event-stream"));
        if (!http_client_pending(client))
            return;
    }
    ssize_t n = http_client_read(client, piece, sizeof(piece));
    if (n > 0 && buf_append(&c->in, piece, (size_t)n) < 0)
        n = -EMSGSIZE;
    if (n > 0 && c->is_stream)
        bridge_events(c);
    if (n < 0) {
        (void)service_broken(c->s, (int)n, "read the answer");
        bridge_broken(b, c);
    } else if (n == 0 && c->is_stream) {
        call_end(c, true);
    } else if (n == 0) {
        bridge_answer(b, c);
    }
}

static void bridge_input(struct bridge *b)
{
    char *room = buf_reserve(&b->in, 65536);
    ssize_t n = room ? read(STDIN_FILENO, room, 65536) : 0;
    if (n < 0 && errno == EINTR)
        return;
    if (!room)
        bridge_fail(NULL, -32600, "the line is too long");
    b->is_over = n <= 0;
    if (n > 0)
        buf_commit(&b->in, (size_t)n);
}

/* ---- the loop ---- */

static size_t bridge_busy(const struct bridge *b)
{
    size_t n = 0;
    for (size_t i = 0; i < CALLS_MAX; i++)
        n += b->calls[i].message != NULL;
    return n;
}

/* What comes behind `initialize` is of the session that it makes: it waits, where a client doesn't. */
static bool bridge_initializes(const struct bridge *b)
{
    for (size_t i = 0; i < CALLS_MAX; i++) {
        const char *method = member(b->calls[i].message, "method");
        if (method && strcmp(method, "initialize") == 0)
            return true;
    }
    return false;
}

/* Lines that are there already, as far as there is room for them. */
static void bridge_lines(struct bridge *b)
{
    for (ssize_t end;
         bridge_busy(b) < CALLS_MAX && !bridge_initializes(b) && (end = str_find_char(buf_str(&b->in), '\n')) >= 0;) {
        AUTO_FREE char *line = mem_strndup(buf_data(&b->in), (size_t)end);
        buf_consume(&b->in, (size_t)end + 1);
        if (str_trim(str_n(line, (size_t)end)).n)
            bridge_line(b, str_n(line, (size_t)end));
    }
}

static void bridge_turn(struct bridge *b, int timeout_ms)
{
    struct pollfd fds[CALLS_MAX + 2] = {
        {.fd = b->is_over || bridge_busy(b) == CALLS_MAX ? -1 : STDIN_FILENO, .events = POLLIN}};
    for (size_t i = 0; i < CALLS_MAX; i++) {
        struct bridge_call *c = &b->calls[i];
        fds[i + 1] = (struct pollfd){.fd = c->run.pid   ? c->run.out
                                           : c->message ? http_client_fd(service_client(c->s))
                                                        : -1,
                                     .events = POLLIN};
        if (c->message && !c->run.pid && http_client_pending(service_client(c->s)))
            timeout_ms = 0;
    }
    fds[CALLS_MAX + 1] = (struct pollfd){.fd = b->signals, .events = POLLIN};
    if (poll(fds, ARRAY_SIZE(fds), timeout_ms) < 0)
        return;
    b->is_over = b->is_over || fds[CALLS_MAX + 1].revents;
    for (size_t i = 0; i < CALLS_MAX; i++)
        if (b->calls[i].run.pid && fds[i + 1].revents) {
            if (tools_read(&b->calls[i].run)) {
                bridge_say(&b->calls[i], tools_result(&b->calls[i].run));
                call_end(&b->calls[i], true);
            }
        } else if (b->calls[i].message && !b->calls[i].run.pid &&
                   (fds[i + 1].revents || http_client_pending(service_client(b->calls[i].s))))
            bridge_read(b, &b->calls[i]);
    if (fds[0].revents)
        bridge_input(b);
}

static void bridge_end(struct bridge *b)
{
    if (b->session) {
        AUTO(service_close) struct service *s = service_open(b->ctx);
        struct http_header headers[] = {HTTP_HEADER_STR("mcp-session-id", str_of(b->session)),
                                        HTTP_HEADER_STR("mcp-protocol-version", str_of(b->version))};
        if (s && service_send(s, "DELETE", TARGET, headers, ARRAY_SIZE(headers), STR_NULL) == 0)
            (void)!http_client_receive(service_client(s));
    }
    for (size_t i = 0; i < CALLS_MAX; i++)
        call_end(&b->calls[i], false);
    json_decref(b->initialize);
    MEM_FREE(b->session, b->version, b->top);
    buf_fini(&b->in);
}

static int mcp_run(struct context *ctx)
{
    if (context_read_all(ctx, NULL) < 0)
        return context_exit(ctx);
    struct bridge b = {.ctx = ctx, .in = BUF_INIT(MCP_LINE_MAX_BYTES)};
    sigset_t ends;
    (void)sigemptyset(&ends);
    (void)sigaddset(&ends, SIGTERM);
    (void)sigaddset(&ends, SIGINT);
    (void)sigaddset(&ends, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &ends, NULL);
    AUTO_CLOSE int signals = signalfd(-1, &ends, SFD_CLOEXEC);
    b.signals = signals;
    for (size_t i = 0; i < CALLS_MAX; i++)
        b.calls[i].in = BUF_INIT(MCP_ANSWER_MAX);
    b.top = repo_top(ctx, ".");
    b.calls[0].s = service_open(ctx);
    if (!b.calls[0].s)
        return context_fail(ctx, STATUS_FAILED);
    while (!b.is_over) {
        bridge_turn(&b, -1);
        bridge_lines(&b);
    }
    usec_t until = clock_mono() + DRAIN_MS * USEC_PER_MS;
    while (bridge_busy(&b) && clock_mono() < until) {
        bridge_turn(&b, 100);
        bridge_lines(&b);
    }
    bridge_end(&b);
    return STATUS_OK;
}

const struct command cmd_mcp = {
    .name = "mcp",
    .summary = "serve the Model Context Protocol on stdin and stdout",
    .text = &text_mcp,
    .operands = "",
    .run = mcp_run,
};
