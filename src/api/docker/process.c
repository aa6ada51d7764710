/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command and who looks at it.
 *
 *  1. The façade has the follow, no call: a command, and what is known of it, outlives its clients.
 *  2. Output goes to each stream as it comes. What came is given back to the command once no stream's queue is full, so
 *     it runs at the pace of the slowest.
 *  3. What a client sends is handed over piece by piece, each an action of its own; meanwhile, and until the command
 *     runs, its connection is not read.
 *  4. docker-py drops what comes together with the head of a 101, so output waits until the client has read that.
 *  5. A stream ends with its command, or with its client, which the command does not notice.
 */
#include "api/docker/handlers.h"

enum { IN_MAX = 512 * 1024, EARLY_MAX = 1 << 20, STILL_MS = 20, TCP_MS = 20, LOOK_MS_MAX = 100 };

struct docker_stream {
    struct call *call;
    struct docker_process *process; /* NULL: over */
    struct list node;
    struct buf early; /* for it, until it is_open */
    unsigned wants, look_ms;
    bool is_raw, is_open, eof_sent;
};

/* ---- output ---- */

static void process_pump(struct docker_process *p)
{
    LIST_FOREACH (struct docker_stream, s, &p->streams, node)
        if (!s->is_open || http_response_full(s->call->req))
            return;
    if (p->follow && p->held)
        exec_ack(p->follow, p->held);
    p->held = 0;
}

static void process_head(enum wire_channel channel, size_t n, uint8_t ret_head[static DOCKER_HEAD])
{
    memset(ret_head, 0, DOCKER_HEAD);
    ret_head[0] = channel == WIRE_STDERR ? 2 : 1;
    for (unsigned i = 0; i < 4; i++)
        ret_head[4 + i] = (uint8_t)(n >> (24 - 8 * i));
}

static void viewer_write(struct docker_stream *s, enum wire_channel channel, struct str bytes)
{
    uint8_t head[DOCKER_HEAD];
    if (!(s->wants & (channel == WIRE_STDERR ? DOCKER_STDERR : DOCKER_STDOUT)) || !bytes.n)
        return;
    process_head(channel, bytes.n, head);
    struct str frame[] = {str_n(head, s->wants & DOCKER_BARE ? 0 : sizeof(head)), bytes};
    if (s->is_open) {
        (void)http_response_writev(s->call->req, frame, 2);
        return;
    }
    buf_append_str(&s->early, frame[0]);
    buf_append_str(&s->early, bytes);
}

/* The next frame of a log, which is all there. */
static bool log_next(struct str *log, enum wire_channel *ret_channel, struct str *ret_bytes)
{
    const uint8_t *p = (const uint8_t *)log->p;
    if (!p || log->n < DOCKER_HEAD)
        return false;
    size_t n = (size_t)p[4] << 24 | (size_t)p[5] << 16 | (size_t)p[6] << 8 | p[7];
    *ret_channel = p[0] == 2 ? WIRE_STDERR : WIRE_STDOUT;
    *ret_bytes = str_n(log->p + DOCKER_HEAD, n);
    *log = str_sub(*log, DOCKER_HEAD + n);
    return true;
}

static void log_add(struct buf *log, enum wire_channel channel, struct str bytes)
{
    uint8_t head[DOCKER_HEAD];
    if (log->max < DOCKER_HEAD + 1)
        return;
    bytes = str_sub(bytes, bytes.n - MIN(bytes.n, log->max - DOCKER_HEAD));
    struct str rest = buf_str(log), oldest;
    enum wire_channel of;
    while (rest.n + DOCKER_HEAD + bytes.n > log->max && log_next(&rest, &of, &oldest))
        ;
    buf_consume(log, buf_len(log) - rest.n);
    process_head(channel, bytes.n, head);
    buf_append(log, head, sizeof(head));
    buf_append_str(log, bytes);
}

static uint64_t log_lines(struct str bytes, bool is_last)
{
    uint64_t n = is_last && bytes.n && bytes.p[bytes.n - 1] != '\n';
    for (size_t i = 0; i < bytes.n; i++)
        n += bytes.p[i] == '\n';
    return n;
}

static void viewer_replay(struct docker_stream *s, uint64_t tail)
{
    struct str log = buf_str(&s->process->log), bytes;
    enum wire_channel channel;
    uint64_t lines = 0;
    while (log_next(&log, &channel, &bytes))
        lines += log_lines(bytes, log.n == 0);
    log = buf_str(&s->process->log);
    for (uint64_t skip = lines > tail ? lines - tail : 0; log_next(&log, &channel, &bytes);) {
        for (ssize_t end; skip && (end = str_find_char(bytes, '\n')) >= 0; skip--)
            bytes = str_sub(bytes, (size_t)end + 1);
        if (!skip)
            viewer_write(s, channel, bytes);
    }
}

/* ---- input ---- */

static void viewer_end(struct docker_stream *s)
{
    list_remove(&s->node);
    s->process = NULL;
    if (!s->is_open)
        return; /* viewer_tick() comes */
    call_end(s->call);
    if (s->is_raw)
        http_resume_body(s->call->req); /* the rest is dropped */
}

static void viewer_step(struct call *c);

static void viewer_handed(void *ctx, const struct err *err UNUSED)
{
    struct call *c = ctx;
    /* a command that has just ended: its end is told */
    c->exec = NULL;
    call_step(c, viewer_step);
}

static int viewer_hand_over(struct docker_stream *s)
{
    struct call *c = s->call;
    const struct exec_select which = {.pid = s->process->pid};
    struct sandbox *sb = s->process->box->sb;
    if (buf_len(&c->in)) {
        int r =
            exec_input(sb, &c->actor, &which, s->process->tty, buf_str(&c->in), viewer_handed, c, &c->exec, &c->err);
        if (r == 0)
            buf_clear(&c->in);
        return r;
    }
    if (!(s->wants & DOCKER_STDIN) || !c->in_ended || s->eof_sent || s->process->tty)
        return 0;
    int r = exec_close_stdin(sb, &c->actor, &which, viewer_handed, c, &c->exec, &c->err);
    s->eof_sent = r == 0;
    return r;
}

static void viewer_again(struct call *c)
{
    if (!c->is_held)
        call_step(c, viewer_step);
}

/* Until the client has read the head; then what waits is sent. */
static void viewer_tick(struct call *c)
{
    struct docker_stream *s = c->state;
    if (!s->is_open && !http_client_has_read(c->req)) {
        s->look_ms = MIN(2 * s->look_ms, (unsigned)LOOK_MS_MAX);
        call_set_timer(c, s->look_ms, viewer_tick);
        return;
    }
    if (!s->is_open) {
        s->is_open = true;
        if (buf_len(&s->early))
            (void)http_response_write(c->req, buf_str(&s->early));
        buf_fini(&s->early);
    }
    if (s->process) {
        process_pump(s->process);
        viewer_again(c);
    } else {
        viewer_end(s);
    }
}

static void viewer_step(struct call *c)
{
    struct docker_stream *s = c->state;
    if (!s->process)
        return;
    bool runs = s->process->follow && s->process->pid && !c->exec && !c->is_held;
    enum sandbox_state state = sandbox_info(s->process->box->sb)->state;
    bool is_still = state == SANDBOX_PAUSING || state == SANDBOX_PAUSED || state == SANDBOX_RESUMING;
    if (runs && is_still && s->is_open) {
        call_set_timer(c, STILL_MS, viewer_tick);
    } else if (runs && is_still) {
        ; /* viewer_tick() comes */
    } else if (runs && viewer_hand_over(s) < 0 && !(c->err.reason == ERR_HELD && call_lost(c, c->err.code))) {
        if (c->err.code == ERR_PERMISSION_DENIED) {
            viewer_write(s, WIRE_STDERR, str_of(c->err.msg));
            viewer_end(s);
            return;
        }
        buf_clear(&c->in);
    }
    call_await_body(c, !runs || is_still || c->exec || c->is_held);
}

static void viewer_take(struct call *c)
{
    const struct docker_stream *s = c->state;
    if (s->wants & DOCKER_STDIN)
        viewer_again(c);
    else
        buf_clear(&c->in);
}

/* ---- streams ---- */

static void viewer_closed(struct call *c)
{
    struct docker_stream *s = c->state;
    list_remove(&s->node);
    buf_fini(&s->early);
    if (s->process)
        process_pump(s->process);
    c->cleanup = NULL;
}

static void viewer_drained(struct call *c)
{
    const struct docker_stream *s = c->state;
    if (s->process)
        process_pump(s->process);
}

void docker_stream_open(struct call *c, struct docker_process *p, unsigned wants, uint64_t tail)
{
    struct docker_stream *s = call_state(c, sizeof(*s), viewer_closed);
    const struct http_header headers[] = {
        HTTP_HEADER_STR("content-type", wants & DOCKER_BARE ? STR("application/vnd.docker.raw-stream")
                                                            : STR("application/vnd.docker.multiplexed-stream")),
        HTTP_HEADER("upgrade", "tcp")};
    *s = (struct docker_stream){.call = c, .process = p, .early = BUF_INIT(EARLY_MAX), .wants = wants};
    list_init(&s->node);
    s->is_raw = c->route->method == HTTP_METHOD_POST && http_wants_upgrade(c->req);
    if ((s->is_raw ? http_upgrade(c->req, headers, 2) : http_response_begin(c->req, 200, headers, 1, -1)) < 0) {
        http_abort(c->req);
        return;
    }
    call_on_drain(c, viewer_drained);
    s->is_open = !s->is_raw;
    if (wants & DOCKER_LOGS)
        viewer_replay(s, tail);
    if (s->is_raw) {
        struct http_peer peer;
        s->look_ms = http_peer_get(c->req, &peer) == 0 && peer.is_unix ? 1 : TCP_MS;
        call_set_timer(c, s->look_ms, viewer_tick);
    }
    if (!(wants & DOCKER_LIVE)) {
        viewer_end(s);
        return;
    }
    list_append(&p->streams, &s->node);
    if (s->is_raw)
        call_gather_body(c, IN_MAX, viewer_take);
    if (s->is_raw && (wants & DOCKER_STDIN))
        call_step(c, viewer_step);
}

static void docker_stream_say(struct docker_process *p, struct str text)
{
    LIST_FOREACH (struct docker_stream, s, &p->streams, node)
        viewer_write(s, p->tty ? WIRE_STDOUT : WIRE_STDERR, text);
}

/* ---- the command ---- */

static void process_end_streams(struct docker_process *p)
{
    LIST_FOREACH (struct docker_stream, s, &p->streams, node)
        viewer_end(s);
}

static void process_leaves(struct call *c)
{
    struct docker_process *p = c->state;
    p->starter = NULL;
}

static struct call *process_take_starter(struct docker_process *p)
{
    struct call *c = TAKE_PTR(p->starter);
    if (c)
        c->cleanup = NULL;
    return c;
}

static void process_on_start(void *ctx, uint32_t pid)
{
    struct docker_process *p = ctx;
    p->pid = pid;
    p->started(p, process_take_starter(p), NULL);
    LIST_FOREACH (struct docker_stream, s, &p->streams, node)
        if (s->is_raw && (s->wants & DOCKER_STDIN))
            call_step(s->call, viewer_step);
}

static void process_on_output(void *ctx, enum wire_channel channel, struct str bytes)
{
    struct docker_process *p = ctx;
    log_add(&p->log, channel, bytes);
    LIST_FOREACH (struct docker_stream, s, &p->streams, node)
        viewer_write(s, channel, bytes);
    p->held += bytes.n;
    process_pump(p);
}

static void docker_process_ends(void *ctx, const struct exec_exit *exit, const struct err *err)
{
    struct docker_process *p = ctx;
    bool is_over = exit || p->pid;
    if (exit)
        p->code = (int)exit->code + (exit->signaled ? 128 : 0);
    else
        p->code = is_over ? 137 : strstr(err->msg, "permission denied") ? 126 : 127;
    if (!is_over)
        docker_stream_say(p, str_of(err->msg));
    process_end_streams(p);
    if (is_over)
        p->over(p);
    else
        p->started(p, process_take_starter(p), err);
}

const struct exec_ops docker_process_ops = {process_on_start, process_on_output, docker_process_ends, NULL};

void docker_process_init(struct docker_process *p, struct docker_box *box, size_t log_max)
{
    *p = (struct docker_process){.box = box, .log = BUF_INIT(log_max)};
    list_init(&p->streams);
}

void docker_process_fini(struct docker_process *p)
{
    struct call *c = process_take_starter(p);
    if (c)
        call_refuse(c, ERR_NOT_FOUND, "the container is gone");
    process_end_streams(p);
    exec_close(TAKE_PTR(p->follow));
    buf_fini(&p->log);
}

int docker_process_start(struct docker_process *p, struct call *c, const struct exec_spec *spec,
                         docker_started_fn started)
{
    if (exec_start(p->box->sb, &c->actor, spec, &docker_process_ops, p, &p->follow, &c->err) < 0)
        return -1;
    p->pid = 0;
    p->tty = spec->pty;
    p->started = started;
    return 0;
}

void docker_process_await(struct docker_process *p, struct call *c)
{
    p->starter = c;
    c->state = p;
    c->cleanup = process_leaves;
}

void docker_signal(struct call *c, const struct docker_process *p, int signal, void (*then)(struct call *c))
{
    call_ok(c, exec_signal(p->box->sb, &c->actor, &(struct exec_select){.pid = p->pid}, signal, CALL_EXEC(c, then)));
}

static void process_resized(struct call *c)
{
    call_empty(c, 200);
}

void docker_resize(struct call *c, const struct docker_process *p)
{
    uint64_t rows, columns;
    if (call_query_u64(c, "h", &rows) < 0 || call_query_u64(c, "w", &columns) < 0)
        return;
    if (rows < 1 || rows > 10000 || columns < 1 || columns > 10000 || !p->tty || !p->pid)
        call_refuse(c, ERR_INVALID_ARGUMENT, "h and w are rows and columns of a terminal that runs");
    else
        call_ok(c, exec_resize(p->box->sb, &c->actor, &(struct exec_select){.pid = p->pid}, (uint16_t)columns,
                               (uint16_t)rows, CALL_EXEC(c, process_resized)));
}
