/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One loop over: the service, our stdin, stdout and stderr, signals.
 *
 *  1. Nothing that can block is called but poll(): the connection is written without waiting, stdout and stderr when
 *     poll() says so.
 *  2. A direction stops where its receiver does: stdin is read only while nothing waits for the service, the service is
 *     read only while nothing waits for stdout or stderr.
 *  3. The terminal is restored whatever the end.
 */
#include "cli/exec/exec.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/exec/environment.h"
#include "cli/exec/exec_input.h"
#include "cli/exec/terminal.h"
#include "http/client/exec_stream.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    READ_MAX = EXEC_STREAM_PAYLOAD_MAX,
    IN_MAX = 2 * (EXEC_STREAM_HEAD + EXEC_STREAM_PAYLOAD_MAX),
    PIPE_PIECE = 4096,
    CTRL_P = 0x10,
    CTRL_Q = 0x11,
};

/* One of our stdout and stderr. */
struct sink {
    int fd;             /* -1: captured, or nobody reads any more */
    bool is_pipe;       /* takes PIPE_PIECE bytes without blocking when it is writable */
    struct str waiting; /* part of the frame at hand */
    struct buf *capture;
};

struct exec_session {
    struct context *ctx;
    struct service *service;
    const struct exec_request *request;
    const struct exec_io *io;
    struct exec_result *result;
    struct buf in, out; /* from and to the service */
    struct sink sinks[2];
    int stdin_fd; /* -1: at its end */
    int signal_fd;
    int last_signal;
    bool ended, failed;
    bool saw_escape; /* Ctrl-P was the last that was typed */
};

static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

static void signal_set(sigset_t *set)
{
    (void)sigemptyset(set);
    for (size_t i = 0; i < ARRAY_SIZE(forwarded); i++)
        (void)sigaddset(set, forwarded[i]);
    (void)sigaddset(set, SIGWINCH);
}

void exec_block_signals(void)
{
    sigset_t set;
    signal_set(&set);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
}

int exec_pending_signal(void)
{
    sigset_t set;
    struct timespec now = {0};
    (void)sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_SIZE(forwarded); i++)
        (void)sigaddset(&set, forwarded[i]);
    int sig = sigtimedwait(&set, NULL, &now);
    return sig > 0 ? sig : 0;
}

/* ---- output ---- */

static void sink_init(struct sink *k, int fd, struct buf *capture)
{
    struct stat st;
    k->fd = fd;
    k->capture = capture;
    k->is_pipe = fd >= 0 && fstat(fd, &st) == 0 && !S_ISREG(st.st_mode);
}

/* poll() said that it is writable, or it is a regular file. */
static void sink_write(struct exec_session *x, struct sink *k)
{
    size_t n = k->is_pipe ? MIN(k->waiting.n, (size_t)PIPE_PIECE) : k->waiting.n;
    ssize_t done = write(k->fd, k->waiting.p, n);
    if (done >= 0) {
        k->waiting = str_sub(k->waiting, (size_t)done);
    } else if (errno != EINTR && errno != EAGAIN) {
        /* The reader has gone, as `head` does: the command hears of it as it would without us. */
        if (errno != EPIPE)
            (void)err_errno(&x->ctx->err, errno, "write the command's output");
        x->failed = errno != EPIPE;
        k->waiting = STR_NULL;
        k->fd = -1;
        uint8_t sig = SIGPIPE;
        exec_stream_append(&x->out, EXEC_STREAM_SIGNAL, str_n(&sig, 1));
    }
}

static bool is_output_waiting(const struct exec_session *x)
{
    return x->sinks[0].waiting.n > 0 || x->sinks[1].waiting.n > 0;
}

/* ---- from the service ---- */

static void read_exit(struct exec_session *x, struct str payload)
{
    AUTO_JSON json_t *json = json_loadb(payload.p, payload.n, 0, NULL);
    const json_t *sig = json_object_get(json, "signal"), *code = json_object_get(json, "code");
    x->ended = true;
    if (!json_is_integer(sig ? sig : code)) { /* 0 would say that it worked */
        (void)err_set(&x->ctx->err, ERR_INTERNAL, "the service does not say how the command ended");
        x->failed = true;
        return;
    }
    x->result->ended = true;
    x->result->signaled = sig != NULL;
    x->result->code = (uint32_t)json_integer_value(sig ? sig : code);
}

/*
 * Which of a shell's two codes it is when a command does not start. The service has one error code for both, so here
 * the text decides: its ends are fixed, because SDKs show them to their users.
 */
static int refusal(struct str message)
{
    if (str_ends(message, STR("executable file not found in $PATH")) ||
        str_ends(message, STR("no such file or directory")))
        return STATUS_NOT_FOUND;
    if (str_ends(message, STR("permission denied")) || str_ends(message, STR("exec format error")))
        return STATUS_NOT_EXECUTABLE;
    return 0;
}

/* As Docker's run is written: with an image first, "debian:12", "app -- true". */
static bool exec_is_image(char *const *argv)
{
    return (strchr(argv[0], ':') && *argv[0] != '/') || (argv[1] && strcmp(argv[1], "--") == 0);
}

static void explain_refusal(struct exec_session *x, const char *message)
{
    struct context *ctx = x->ctx;
    x->result->refused = refusal(str_of(message));
    if (x->result->refused == STATUS_NOT_FOUND && x->request->argv && exec_is_file_here(x->request->argv[0]))
        context_hint(ctx, "it is here, but not in the sandbox: pipe it in ('cove run -- sh -s < FILE'), copy it ('cove "
                          "cp'), or use 'cove here'");
    else if (x->result->refused == STATUS_NOT_FOUND && x->request->argv && exec_is_image(x->request->argv))
        context_hint(
            ctx,
            "what a sandbox starts from is --template NAME; 'cove docker run IMAGE' takes an image as Docker does");
    else if (x->result->refused == STATUS_NOT_FOUND)
        context_hint(ctx,
                     "the sandbox has what its template has (--template NAME); what only a shell knows is written as "
                     "sh -c '...'");
    else if (x->result->refused == STATUS_NOT_EXECUTABLE)
        context_hint(ctx, "make it executable (chmod +x), run it by its interpreter, or as another user (-u root)");
}

static void read_error(struct exec_session *x, struct str payload)
{
    AUTO_JSON json_t *json = json_loadb(payload.p, payload.n, 0, NULL);
    const char *message = json_string_value(json_object_get(json, "message"));
    (void)err_set(&x->ctx->err, service_error_code(json, ERR_UNKNOWN), "%s",
                  message ? message : "the command could not be run");
    if (!x->result->started && message)
        explain_refusal(x, message);
    x->ended = x->failed = true;
}

static void capture(struct exec_session *x, struct sink *k, struct str payload)
{
    size_t room = k->capture->max - buf_len(k->capture);
    x->result->dropped |= payload.n > room;
    (void)buf_append(k->capture, payload.p, MIN(payload.n, room));
}

static void take_frame(struct exec_session *x, const struct exec_stream_frame *f)
{
    struct sink *k = &x->sinks[f->kind == EXEC_STREAM_STDERR];
    switch (f->kind) {
    case EXEC_STREAM_STARTED:
        x->result->started = true;
        if (x->request->leaves)
            x->ended = x->result->detached = true;
        break;
    case EXEC_STREAM_STDOUT:
    case EXEC_STREAM_STDERR:
    case EXEC_STREAM_PTY:
        x->result->wrote |= f->payload.n > 0;
        if (k->fd >= 0)
            k->waiting = f->payload;
        else if (k->capture)
            capture(x, k, f->payload);
        break;
    case EXEC_STREAM_EXIT:
        read_exit(x, f->payload);
        break;
    case EXEC_STREAM_ERROR:
        read_error(x, f->payload);
        break;
    case EXEC_STREAM_STDIN:
    case EXEC_STREAM_STDIN_EOF:
    case EXEC_STREAM_RESIZE:
    case EXEC_STREAM_SIGNAL:
    default:
        break;
    }
}

/* Frame by frame, while their output is taken. The frame at hand stays in `in` until it was. */
static int take_frames(struct exec_session *x)
{
    while (!x->ended && !is_output_waiting(x)) {
        struct str in = buf_str(&x->in);
        struct exec_stream_frame f;
        int r = exec_stream_next(&in, &f);
        if (r < 0)
            return service_broken(x->service, r, "run the command");
        if (r == 0)
            break;
        take_frame(x, &f);
        /* Consuming does not move bytes: `waiting` stays valid until the next append, and there is none while it
         * waits. */
        buf_consume(&x->in, buf_len(&x->in) - in.n);
    }
    return 0;
}

static int read_service(struct exec_session *x)
{
    char *room = buf_reserve(&x->in, EXEC_STREAM_PAYLOAD_MAX);
    if (!room)
        return service_broken(x->service, -EPROTO, "run the command");
    ssize_t n = http_client_read(service_client(x->service), room, EXEC_STREAM_PAYLOAD_MAX);
    if (n <= 0)
        return service_broken(x->service, n < 0 ? (int)n : -EPIPE, "run the command");
    buf_commit(&x->in, (size_t)n);
    return 0;
}

/* ---- to the service ---- */

/* Ctrl-P has gone on already, so that it comes without delay when something else follows. */
static ssize_t find_detach(struct exec_session *x, const char *bytes, ssize_t n)
{
    for (ssize_t i = 0; i < n; i++) {
        if (x->saw_escape && bytes[i] == CTRL_Q)
            return i;
        x->saw_escape = bytes[i] == CTRL_P;
    }
    return -1;
}

static void read_stdin(struct exec_session *x)
{
    char bytes[READ_MAX];
    ssize_t n = read(x->stdin_fd, bytes, sizeof(bytes));
    if (x->request->detaches && find_detach(x, bytes, n) >= 0)
        x->ended = x->result->detached = true;
    else if (n > 0) {
        exec_stream_append(&x->out, EXEC_STREAM_STDIN, str_n(bytes, (size_t)n));
    } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
        exec_stream_append(&x->out, EXEC_STREAM_STDIN_EOF, STR_NULL);
        x->stdin_fd = -1;
    }
}

static int write_service(struct exec_session *x)
{
    ssize_t n = http_client_write_some(service_client(x->service), buf_str(&x->out));
    if (n >= 0)
        buf_consume(&x->out, (size_t)n);
    else if (n == -EPIPE || n == -ECONNRESET)
        buf_clear(&x->out); /* it may have ended: what it said last is still to be read */
    else if (n != -EAGAIN && n != -EINTR)
        return service_broken(x->service, (int)n, "run the command");
    return 0;
}

static void send_size(struct exec_session *x)
{
    uint16_t columns, rows;
    if (x->request->has_pty && terminal_size(x->io->stdin_fd, &columns, &rows) == 0)
        exec_stream_append_resize(&x->out, columns, rows);
}

static void take_signal(struct exec_session *x)
{
    struct signalfd_siginfo info;
    if (read(x->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return;
    int sig = (int)info.ssi_signo;
    if (sig == SIGWINCH) {
        send_size(x);
    } else if (sig == x->last_signal) {
        x->result->interrupted = sig;
        x->ended = true;
    } else {
        uint8_t byte = (uint8_t)sig;
        exec_stream_append(&x->out, EXEC_STREAM_SIGNAL, str_n(&byte, 1));
        x->last_signal = sig;
    }
}

/* ---- the loop ---- */

static int turn(struct exec_session *x, int timeout_ms)
{
    struct http_client *client = service_client(x->service);
    bool reads_service = !is_output_waiting(x);
    bool has_bytes = reads_service && http_client_pending(client);
    struct pollfd fds[] = {
        {.fd = http_client_fd(client),
         .events = (short)((reads_service ? POLLIN : 0) | (buf_len(&x->out) ? POLLOUT : 0))},
        {.fd = x->result->started && buf_len(&x->out) == 0 ? x->stdin_fd : -1, .events = POLLIN},
        {.fd = x->sinks[0].waiting.n ? x->sinks[0].fd : -1, .events = POLLOUT},
        {.fd = x->sinks[1].waiting.n ? x->sinks[1].fd : -1, .events = POLLOUT},
        {.fd = x->signal_fd, .events = POLLIN},
    };
    if (fds[0].events == 0)
        fds[0].fd = -1; /* else its end would wake us again and again */
    if (poll(fds, ARRAY_SIZE(fds), has_bytes ? 0 : timeout_ms) < 0 && errno != EINTR)
        return err_errno(&x->ctx->err, errno, "wait for the command");

    if (fds[4].revents)
        take_signal(x);
    for (size_t i = 0; i < 2; i++)
        if (fds[2 + i].revents)
            sink_write(x, &x->sinks[i]);
    if (fds[1].revents)
        read_stdin(x);
    if ((fds[0].revents & POLLOUT) && write_service(x) < 0)
        return -1;
    if (reads_service && (has_bytes || (fds[0].revents & (POLLIN | POLLHUP | POLLERR))) && read_service(x) < 0)
        return -1;
    return take_frames(x);
}

static int loop(struct exec_session *x)
{
    usec_t period = (usec_t)x->io->tick_ms * USEC_PER_MS, due = clock_mono() + period;
    while (!x->ended) {
        usec_t now = clock_mono();
        if (x->io->tick && now >= due) {
            if (x->io->tick(x->io->tick_ctx) < 0)
                return -1;
            due = now + period;
        }
        if (turn(x, x->io->tick ? (int)((due - MIN(due, now)) / USEC_PER_MS) + 1 : -1) < 0)
            return -1;
    }
    return x->failed ? -1 : 0;
}

/* What runs there draws itself anew when its terminal changes. */
static void redraw(struct exec_session *x, uint16_t columns, uint16_t rows)
{
    exec_stream_append_resize(&x->out, columns, (uint16_t)(rows > 1 ? rows - 1 : rows + 1));
    exec_stream_append_resize(&x->out, columns, rows);
}

static json_t *exec_describe(const struct exec_request *request)
{
    if (request->attaches)
        return json_pack("{s:s, s:b}", "tag", request->tag, "pty", request->has_pty);
    json_t *cmd = json_array();
    for (char *const *arg = request->argv; *arg; arg++) {
        /* An argument that is not UTF-8 can't be said in JSON: null makes the caller refuse it. */
        json_t *text = json_string(*arg);
        if (!text) {
            json_decref(cmd);
            return NULL;
        }
        (void)json_array_append_new(cmd, text);
    }
    return json_pack(
        "{s:o,s:b,s:o*,s:o*,s:o*,s:o*}", "cmd", cmd, "stdin", request->has_stdin && !request->has_pty, "env",
        request->has_pty ? environment_of_terminal(request->env, getenv("TERM")) : json_incref(request->env), "tag",
        json_string(request->tag), "user", json_string(request->user), "cwd", json_string(request->cwd));
}

int exec_in_sandbox(struct context *ctx, struct service *s, const struct exec_request *request,
                    const struct exec_io *io, struct exec_result *result)
{
    struct exec_session x = {
        .ctx = ctx,
        .service = s,
        .request = request,
        .io = io,
        .result = result,
        .in = BUF_INIT(IN_MAX),
        .out = BUF_INIT(IN_MAX),
        .stdin_fd = request->has_stdin ? io->stdin_fd : -1,
        .signal_fd = -1,
    };
    struct terminal terminal = {0};
    sigset_t set;
    uint16_t columns = 80, rows = 24;
    int r = -1;
    *result = (struct exec_result){0};
    AUTO_JSON json_t *body = exec_describe(request);
    if (!body)
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "the command's arguments must be UTF-8");
    if (request->has_pty) {
        /* One that does not know its size is taken for 80 x 24. */
        int ignored UNUSED = terminal_size(io->stdin_fd, &columns, &rows);
        if (request->attaches)
            redraw(&x, columns, rows);
        else
            (void)json_object_set_new(body, "pty", json_pack("{s:i, s:i}", "columns", columns, "rows", rows));
    }
    char *target = service_target(request->id, request->attaches ? "/attach" : "/exec");
    r = service_upgrade(s, target, body, EXEC_STREAM_PROTOCOL);
    mem_free(target);
    if (r < 0)
        return -1;
    http_client_timeout(service_client(s), -1);

    signal_set(&set);
    if (io->forwards_signals)
        x.signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    sink_init(&x.sinks[0], io->stdout_fd, io->captured_stdout);
    sink_init(&x.sinks[1], io->stderr_fd, io->captured_stderr);
    if (request->has_pty && (r = terminal_raw(&terminal, io->stdin_fd)) < 0)
        r = err_errno(&ctx->err, r, "set the terminal to raw mode");
    else
        r = loop(&x);
    terminal_restore(&terminal);
    (void)fd_close(x.signal_fd);
    buf_fini(&x.in);
    buf_fini(&x.out);
    return r;
}

int exec_check(struct context *ctx, const struct exec_result *result, struct str said)
{
    while (said.n && strchr(" \t\r\n", said.p[said.n - 1]))
        said.n--;
    if (result->interrupted || result->signaled)
        return err_set(&ctx->err, ERR_CANCELED, "interrupted");
    return result->code == 0 ? 0 : err_set(&ctx->err, ERR_UNKNOWN, "in the sandbox: %.*s", STR_ARG_MAX(said, 180));
}

int exec_status(const struct exec_result *result, bool failed)
{
    if (result->detached)
        return STATUS_OK;
    if (result->interrupted)
        return STATUS_SIGNAL + result->interrupted;
    if (!failed)
        return result->signaled ? STATUS_SIGNAL + (int)(result->code & 0x7f) : (int)(result->code & 0xff);
    return result->refused ? result->refused : STATUS_COVE;
}
