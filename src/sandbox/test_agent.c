/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "sandbox/test_world.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void on_poll(uv_poll_t *handle, int status, int events);

void fake_flush(struct fake_agent *a)
{
    while (a->fd >= 0 && buf_len(&a->out)) {
        ssize_t n = send(a->fd, buf_data(&a->out), buf_len(&a->out), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n <= 0)
            break;
        buf_consume(&a->out, (size_t)n);
    }
    if (a->fd >= 0)
        (void)uv_poll_start(a->poll, (a->deaf ? 0 : UV_READABLE) | (buf_len(&a->out) ? UV_WRITABLE : 0), on_poll);
}

void fake_send_raw(struct fake_agent *a, const void *p, size_t n)
{
    (void)buf_append(&a->out, p, n);
    assert(!buf_error(&a->out));
    fake_flush(a);
}

void fake_send(struct fake_agent *a, uint8_t type, uint8_t flags, uint32_t stream, const void *p, size_t n)
{
    uint8_t header[WIRE_HEADER_SIZE];
    wire_header_put(&(struct wire_frame){.size = (uint32_t)n, .stream = stream, .type = type, .flags = flags}, header);
    (void)buf_append(&a->out, header, sizeof(header));
    fake_send_raw(a, p, n);
}

static void stream_free(struct fake_agent *a, struct fake_stream *st)
{
    (void)map_del_u64(&a->streams, st->id);
    buf_fini(&st->in);
    MEM_FREE(st->path, st);
}

void fake_end(struct fake_agent *a, uint32_t stream, uint16_t code, const char *message, struct str tail)
{
    AUTO_BUF struct buf b = BUF_INIT(WIRE_PAYLOAD_MAX);
    wire_put_u16(&b, code);
    wire_put_str(&b, str_of(message));
    (void)buf_append_str(&b, tail);
    fake_send(a, WIRE_END, 0, stream, buf_data(&b), buf_len(&b));
    struct fake_stream *st = map_get_u64(&a->streams, stream);
    if (st)
        stream_free(a, st);
}

void fake_put_entry(struct buf *b, const char *path, uint64_t size)
{
    AUTO_FREE char *absolute = mem_printf("%s%s", *path == '/' ? "" : "/home/user/", path);
    wire_put_str(b, path_base(str_of(absolute)));
    wire_put_str(b, str_of(absolute));
    wire_put_u8(b, WIRE_FILE_REGULAR);
    wire_put_u32(b, 0100644);
    wire_put_u32(b, 0100644);
    wire_put_u64(b, size);
    wire_put_u32(b, 1000);
    wire_put_u32(b, 1000);
    wire_put_str(b, STR("user"));
    wire_put_str(b, STR("user"));
    wire_put_u64(b, 1234567890123456789u);
    wire_put_u8(b, 0);
    wire_put_str(b, STR(""));
    wire_put_u32(b, 1);
    wire_put_str(b, STR("key"));
    wire_put_str(b, STR("value"));
}

/* ---- processes ---- */

static struct fake_process *find_process(struct fake_agent *a, struct wire_reader *r)
{
    uint8_t by = wire_get_u8(r);
    uint32_t pid = wire_get_u32(r);
    struct str tag = wire_get_str(r);
    for (struct fake_process *p = a->processes; p; p = p->next)
        if (by ? p->tag && str_eqc(tag, p->tag) : p->pid == pid)
            return p;
    return NULL;
}

/* Sends what credit allows; true when the stream has ended. */
static bool pump(struct fake_agent *a, struct fake_stream *st)
{
    struct fake_process *p = st->process;
    while (st->offset < buf_len(&p->output) && st->credit) {
        size_t n = MIN(MIN(buf_len(&p->output) - st->offset, (size_t)st->credit), (size_t)32768);
        fake_send(a, WIRE_DATA, p->channel, st->id, buf_data(&p->output) + st->offset, n);
        st->offset += n;
        st->credit -= (uint32_t)n;
        p->sent = MAX(p->sent, st->offset);
        a->most_outstanding = MAX(a->most_outstanding, st->offset - st->acked);
    }
    if (!p->exited || st->offset < buf_len(&p->output))
        return false;
    AUTO_BUF struct buf b = BUF_INIT(64);
    wire_put_u8(&b, p->how);
    wire_put_u32(&b, p->code);
    wire_put_u64(&b, buf_len(&p->output));
    fake_end(a, st->id, 0, "", buf_str(&b));
    return true;
}

static void pump_all(struct fake_agent *a, struct fake_process *p)
{
    size_t it = 0;
    for (struct fake_stream *st; (st = map_next(&a->streams, &it));)
        if (st->process == p && pump(a, st))
            it = 0; /* the map has changed */
}

static void send_head(struct fake_agent *a, struct fake_stream *st)
{
    AUTO_BUF struct buf b = BUF_INIT(64);
    wire_put_u32(&b, st->process->pid);
    wire_put_u64(&b, st->offset);
    fake_send(a, WIRE_REPLY, 0, st->id, buf_data(&b), buf_len(&b));
    (void)pump(a, st);
}

static void start(struct fake_agent *a, struct fake_stream *st, struct wire_reader *r)
{
    struct str cmd = wire_get_str(r), arg = STR_NULL;
    uint32_t n = wire_get_count(r, 4);
    /* Its last argument is the command: of a template, and of a façade. */
    bool is_shell = str_eqc(cmd, "/bin/sh") || (str_eqc(cmd, "/bin/bash") && n == 2);
    for (uint32_t i = 0; i < n; i++) {
        struct str s = wire_get_str(r);
        if (is_shell)
            cmd = s;
        else
            arg = i == 0 ? s : arg;
    }
    a->launches += is_shell;
    n = wire_get_count(r, 8);
    a->last_env[0] = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct str k = wire_get_str(r), v = wire_get_str(r);
        size_t at = strlen(a->last_env);
        (void)snprintf(a->last_env + at, sizeof(a->last_env) - at, "%.*s=%.*s;", STR_ARG(k), STR_ARG(v));
    }
    (void)wire_get_str(r);
    (void)wire_get_str(r);
    struct str tag = wire_get_str(r);
    uint8_t flags = wire_get_u8(r);
    (void)wire_get_u16(r);
    (void)wire_get_u16(r);
    assert(wire_done(r));
    if (str_eqc(cmd, "lie")) {
        a->lie(a, st->id);
        return;
    }
    if (str_eqc(cmd, "mute"))
        return;
    if (str_eqc(cmd, "fail")) {
        fake_end(a, st->id, ERR_INVALID_ARGUMENT, "cwd '/nowhere' does not exist", STR_NULL);
        return;
    }
    if (str_eqc(cmd, "missing") && !is_shell) {
        fake_end(a, st->id, ERR_FAILED_PRECONDITION, "executable file not found in $PATH", STR_NULL);
        return;
    }
    struct fake_process *p = mem_new(struct fake_process);
    p->pid = ++a->last_pid + 100;
    p->tag = flags & WIRE_EXEC_TAG ? mem_strndup(tag.p, tag.n) : NULL;
    p->output = BUF_INIT(64 << 20);
    p->channel = flags & WIRE_EXEC_PTY ? WIRE_PTY : str_eqc(cmd, "stderr") ? WIRE_STDERR : WIRE_STDOUT;
    p->next = a->processes;
    a->processes = p;
    st->process = p;
    if (str_eqc(cmd, "echo") || str_eqc(cmd, "stderr")) {
        (void)buf_append_str(&p->output, arg);
        (void)buf_append_char(&p->output, '\n');
        p->exited = true;
    } else if (str_eqc(cmd, "count") ||
               str_eqc(cmd, "spew")) { /* that many bytes, then exit 3 (count) or go on (spew) */
        uint64_t bytes = 0;
        (void)!str_to_u64(arg, &bytes);
        for (uint64_t i = 0; i < bytes; i++)
            (void)buf_append_char(&p->output, (char)('a' + i % 23));
        p->exited = str_eqc(cmd, "count");
        p->code = 3;
    } else if (str_eqc(cmd, "missing")) { /* as a shell says it */
        p->exited = true;
        p->code = 127;
    } else if (str_eqc(cmd, "flag") || str_eqc(cmd, "bash")) { /* exit 0 when it is up */
        p->exited = true;
        p->code = !a->w->is_flag_up;
    } else if (is_shell &&
               (!cmd.n || (cmd.p[0] >= '0' && cmd.p[0] <= '9'))) { /* a script whose last argument is a mode */
        p->exited = true;
    } else if (str_eqc(cmd, "cat")) {
        p->is_cat = true;
    } else if (str_ends(cmd, STR("/start"))) { /* a runner of code: READY, then END of each cell */
        static const char ready[] = {0, 0, 0, 0, 1};
        (void)buf_append(&p->output, ready, sizeof(ready));
        p->is_runner = true;
    }
    send_head(a, st);
}

static void attach(struct fake_agent *a, struct fake_stream *st, struct wire_reader *r)
{
    struct fake_process *p = find_process(a, r);
    uint8_t from = wire_get_u8(r);
    uint64_t offset = wire_get_u64(r), oldest;
    if (!p) {
        fake_end(a, st->id, ERR_NOT_FOUND, "process with pid 1 not found", STR_NULL);
        return;
    }
    oldest = p->sent > WIRE_WINDOW ? p->sent - WIRE_WINDOW : 0;
    st->process = p;
    st->offset = from == WIRE_FROM_NOW ? p->sent : from == WIRE_FROM_UNSEEN ? p->seen : offset;
    st->offset = st->acked = MAX(st->offset, oldest);
    send_head(a, st);
}

static void list_processes(struct fake_agent *a, struct fake_stream *st)
{
    AUTO_BUF struct buf b = BUF_INIT(WIRE_WINDOW);
    for (struct fake_process *p = a->processes; p; p = p->next) {
        wire_put_u32(&b, p->pid);
        wire_put_u8(&b, (uint8_t)((p->tag ? WIRE_PROC_TAG : 0) | (p->exited ? WIRE_PROC_ENDED : 0) |
                                  (p->channel == WIRE_PTY ? WIRE_PROC_PTY : 0)));
        wire_put_u64(&b, clock_real());
        wire_put_str(&b, str_of(p->tag ? p->tag : ""));
        wire_put_str(&b, STR("cmd"));
        wire_put_u32(&b, 2);
        wire_put_str(&b, STR("arg"));
        wire_put_str(&b, STR(""));
        wire_put_u32(&b, 1);
        wire_put_str(&b, STR("K"));
        wire_put_str(&b, STR("V"));
        wire_put_str(&b, STR("/home/user"));
        wire_put_str(&b, STR("user"));
        wire_put_u64(&b, p->sent);
        wire_put_u64(&b, p->seen);
        wire_put_u8(&b, p->how);
        wire_put_u32(&b, p->code);
    }
    fake_send(a, WIRE_REPLY, 0, st->id, NULL, 0);
    size_t half = buf_len(&b) / 2 + 1; /* frames may cut records */
    if (buf_len(&b)) {
        fake_send(a, WIRE_DATA, 0, st->id, buf_data(&b), MIN(half, buf_len(&b)));
        if (buf_len(&b) > half)
            fake_send(a, WIRE_DATA, 0, st->id, buf_data(&b) + half, buf_len(&b) - half);
    }
    fake_end(a, st->id, 0, "", STR_NULL);
}

static void to_process(struct fake_agent *a, struct fake_stream *st, struct wire_reader *r)
{
    struct fake_process *p = find_process(a, r);
    if (!p || (p->exited && st->verb != WIRE_SIGNAL)) {
        fake_end(a, st->id, ERR_NOT_FOUND, "process with pid 1 not found", STR_NULL);
        return;
    }
    if (st->verb == WIRE_INPUT) {
        (void)wire_get_u8(r);
        struct str bytes = wire_get_str(r);
        assert(bytes.n <= 65536);
        if (p->is_cat)
            (void)buf_append_str(&p->output, bytes);
        if (p->is_runner && bytes.n > 13) {
            static const char end[] = {8, 0, 0, 0, 7};
            (void)buf_append(&p->output, end, sizeof(end));
            (void)buf_append(&p->output, bytes.p + 5, 8);
        }
    } else if (st->verb == WIRE_SIGNAL) {
        a->signals++;
        p->exited = true;
        p->how = WIRE_SIGNALED;
        p->code = wire_get_u32(r);
    } else if (st->verb == WIRE_CLOSE_STDIN) {
        p->exited = true;
    }
    fake_end(a, st->id, 0, "", STR_NULL);
    pump_all(a, p);
}

/* ---- files ---- */

static void pump_body(struct fake_agent *a, struct fake_stream *st)
{
    while (st->body.n && st->credit) {
        size_t n = MIN(MIN(st->body.n, (size_t)st->credit), (size_t)WIRE_PAYLOAD_MAX);
        if (st->verb == WIRE_LIST)
            n = MIN(n, (size_t)61);
        fake_send(a, WIRE_DATA, 0, st->id, st->body.p, n);
        st->body = str_sub(st->body, n);
        st->credit -= (uint32_t)n;
        st->offset += n;
        a->most_outstanding = MAX(a->most_outstanding, st->offset - st->acked);
    }
    if (!st->body.n)
        fake_end(a, st->id, 0, "", STR_NULL);
}

static void on_file(struct fake_agent *a, struct fake_stream *st, struct wire_reader *r)
{
    AUTO_BUF struct buf b = BUF_INIT(WIRE_PAYLOAD_MAX);
    (void)wire_get_str(r);
    struct str path = wire_get_str(r);
    uint64_t offset = st->verb == WIRE_READ ? wire_get_u64(r) : 0, length = st->verb == WIRE_READ ? wire_get_u64(r) : 0;
    struct buf *file = map_get(&a->files, path);
    st->path = mem_strndup(path.p, path.n);
    bool needs = st->verb == WIRE_STAT || st->verb == WIRE_CHANGE || st->verb == WIRE_READ || st->verb == WIRE_MOVE;
    if (needs && !file) {
        fake_end(a, st->id, ERR_NOT_FOUND, "path does not exist", STR_NULL);
        return;
    }
    if (str_starts(path, STR("/full/")) || str_starts(path, STR("/busy/"))) {
        bool is_full = str_starts(path, STR("/full/"));
        fake_end(a, st->id, err_pack(ERR_RESOURCE_EXHAUSTED, is_full ? ERR_NO_QUOTA : ERR_NO_REASON), "not enough",
                 STR_NULL);
        return;
    }
    switch (st->verb) {
    case WIRE_REMOVE:
        fake_end(a, st->id, 0, "", STR_NULL);
        break;
    case WIRE_READ:
        fake_put_entry(&b, st->path, buf_len(file));
        fake_send(a, WIRE_REPLY, 0, st->id, buf_data(&b), buf_len(&b));
        st->body = str_sub(buf_str(file), offset);
        st->body = str_n(st->body.p, MIN(st->body.n, length));
        pump_body(a, st);
        break;
    case WIRE_LIST:
        fake_put_entry(&st->in, "/home/user/a", 1);
        fake_put_entry(&st->in, "/home/user/b", 2);
        fake_put_entry(&st->in, "/home/user/c", 3);
        fake_send(a, WIRE_REPLY, 0, st->id, NULL, 0);
        st->body = buf_str(&st->in);
        pump_body(a, st);
        break;
    case WIRE_WRITE:
    case WIRE_UNPACK:
    case WIRE_WATCH:
        fake_send(a, WIRE_REPLY, 0, st->id, NULL, 0);
        break;
    default:
        fake_put_entry(&b, st->path, file ? buf_len(file) : 0);
        fake_end(a, st->id, 0, "", buf_str(&b));
        break;
    }
}

static struct buf *file_at(struct fake_agent *a, struct str path)
{
    struct buf *b = map_get(&a->files, path);
    if (b)
        return b;
    b = mem_new(struct buf);
    buf_init(b, 64 << 20);
    (void)map_put(&a->files, path, b);
    return b;
}

static void on_trust(struct fake_agent *a, struct fake_stream *st, struct wire_reader *r)
{
    struct str file = wire_get_str(r), bundle = wire_get_str(r), java = wire_get_str(r), pem = wire_get_str(r);
    assert(wire_done(r) && java.n);
    if (a->w->trust_refusals) {
        a->w->trust_refusals--;
        fake_end(a, st->id, ERR_INTERNAL, "read-only file system", STR_NULL);
        return;
    }
    buf_clear(file_at(a, file));
    (void)buf_append_str(file_at(a, file), pem);
    (void)buf_append_str(file_at(a, bundle), pem);
    if (a->w->trust_silence)
        a->w->trust_silence--;
    else
        fake_end(a, st->id, 0, "", STR_NULL);
}

void fake_watch_event(struct fake_agent *a, uint8_t kind, const char *name)
{
    size_t it = 0;
    for (struct fake_stream *st; (st = map_next(&a->streams, &it));) {
        if (st->verb != WIRE_WATCH)
            continue;
        AUTO_BUF struct buf b = BUF_INIT(4096);
        wire_put_u8(&b, kind);
        wire_put_str(&b, str_of(name));
        wire_put_u8(&b, kind == WIRE_WATCH_CREATE);
        if (kind == WIRE_WATCH_CREATE)
            fake_put_entry(&b, "/home/user/new", 5);
        assert(st->credit >= buf_len(&b));
        st->credit -= (uint32_t)buf_len(&b);
        st->offset += buf_len(&b);
        fake_send(a, WIRE_DATA, 0, st->id, buf_data(&b), buf_len(&b));
    }
}

static void write_done(struct fake_agent *a, struct fake_stream *st)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    struct buf *file = mem_new(struct buf);
    fake_put_entry(&b, st->path, buf_len(&st->in));
    *file = st->in;
    st->in = BUF_INIT(0);
    struct buf *old = map_put(&a->files, str_of(st->path), file);
    if (old)
        buf_fini(old);
    mem_free(old);
    fake_end(a, st->id, 0, "", buf_str(&b));
}

/* ---- frames from the host ---- */

static void open_stream(struct fake_agent *a, uint32_t id, struct str payload)
{
    struct wire_reader r = wire_reader_of(payload);
    struct fake_stream *st = mem_new(struct fake_stream);
    AUTO_BUF struct buf b = BUF_INIT(64);
    *st = (struct fake_stream){.id = id, .verb = wire_get_u8(&r), .credit = WIRE_WINDOW, .in = BUF_INIT(64 << 20)};
    assert(!map_put_u64(&a->streams, id, st));
    switch (st->verb) {
    case WIRE_EXEC:
        start(a, st, &r);
        break;
    case WIRE_ATTACH:
        attach(a, st, &r);
        break;
    case WIRE_PROCESSES:
        list_processes(a, st);
        break;
    case WIRE_INPUT:
    case WIRE_CLOSE_STDIN:
    case WIRE_SIGNAL:
    case WIRE_RESIZE:
        to_process(a, st, &r);
        break;
    case WIRE_DIAL:
        a->dials++;
        if (wire_get_u16(&r) == 80)
            fake_send(a, WIRE_REPLY, 0, id, NULL, 0);
        else
            fake_end(a, id, ERR_UNAVAILABLE, "connection refused", STR_NULL);
        break;
    case WIRE_USAGE:
        wire_put_u64(&b, 1000);
        wire_put_u64(&b, 10);
        wire_put_u32(&b, 1);
        fake_end(a, id, 0, "", buf_str(&b));
        break;
    case WIRE_TRUST:
        on_trust(a, st, &r);
        break;
    case WIRE_CONFINE:
        a->confined = wire_get_str(&r).n > 0;
        fake_end(a, id, 0, "", STR_NULL);
        break;
    case WIRE_PING:
    case WIRE_ANSWERS:
        fake_end(a, id, 0, "", STR_NULL);
        break;
    default:
        on_file(a, st, &r);
        break;
    }
}

static void give_credit(struct fake_agent *a, uint32_t stream, size_t n)
{
    AUTO_BUF struct buf b = BUF_INIT(16);
    wire_put_u32(&b, (uint32_t)n);
    fake_send(a, WIRE_CREDIT, 0, stream, buf_data(&b), buf_len(&b));
}

/* An echo server. */
static void pump_echo(struct fake_agent *a, struct fake_stream *st)
{
    size_t n = MIN(buf_len(&st->in), (size_t)st->credit);
    if (n) {
        fake_send(a, WIRE_DATA, 0, st->id, buf_data(&st->in), n);
        buf_consume(&st->in, n);
        st->credit -= (uint32_t)n;
        st->offset += n;
        give_credit(a, st->id, n);
    }
    if (st->host_eof && !buf_len(&st->in)) {
        fake_send(a, WIRE_EOF, 0, st->id, NULL, 0);
        fake_end(a, st->id, 0, "", STR_NULL);
    }
}

static void take_credit(struct fake_agent *a, struct fake_stream *st, uint8_t flags, struct str payload)
{
    struct wire_reader r = wire_reader_of(payload);
    uint32_t n = wire_get_u32(&r);
    a->credits++;
    st->credit += n;
    st->acked += n;
    assert(st->credit <= WIRE_WINDOW && st->acked <= st->offset);
    if (st->process && (flags & WIRE_CREDIT_DELIVERED))
        st->process->seen = MAX(st->process->seen, st->acked);
    if (st->process)
        (void)pump(a, st);
    else if (st->verb == WIRE_READ || st->verb == WIRE_LIST)
        pump_body(a, st);
    else if (st->verb == WIRE_DIAL)
        pump_echo(a, st);
}

static void take_data(struct fake_agent *a, struct fake_stream *st, struct str payload)
{
    if (st->verb == WIRE_WRITE || st->verb == WIRE_UNPACK) {
        (void)buf_append_str(&st->in, payload);
        give_credit(a, st->id, payload.n);
    } else if (st->verb == WIRE_DIAL) {
        (void)buf_append_str(&st->in, payload);
        pump_echo(a, st);
    }
}

static void take(struct fake_agent *a, const struct wire_frame *f, struct str payload)
{
    struct fake_stream *st = map_get_u64(&a->streams, f->stream);
    if (f->type == WIRE_HELLO) {
        struct wire_reader r = wire_reader_of(payload);
        struct str attributes = wire_get_str(&r);
        (void)snprintf(a->hello, sizeof(a->hello), "%.*s;", STR_ARG(attributes));
        for (uint32_t n = wire_get_count(&r, 8); n; n--) {
            struct str k = wire_get_str(&r), v = wire_get_str(&r);
            size_t at = strlen(a->hello);
            (void)snprintf(a->hello + at, sizeof(a->hello) - at, "%.*s=%.*s;", STR_ARG(k), STR_ARG(v));
        }
        assert(wire_done(&r) && f->stream == 0);
    } else if (f->type == WIRE_OPEN) {
        open_stream(a, f->stream, payload);
    } else if (!st) {
        return; /* crossed our END */
    } else if (f->type == WIRE_CREDIT) {
        take_credit(a, st, f->flags, payload);
    } else if (f->type == WIRE_DATA) {
        take_data(a, st, payload);
    } else if (f->type == WIRE_EOF && (st->verb == WIRE_WRITE || st->verb == WIRE_UNPACK)) {
        write_done(a, st);
    } else if (f->type == WIRE_EOF) {
        st->host_eof = true;
        pump_echo(a, st);
    } else if (f->type == WIRE_CLOSE) {
        a->closes++;
        if (!a->keep_streams)
            fake_end(a, st->id, ERR_CANCELED, "closed", STR_NULL);
    }
}

static void on_poll(uv_poll_t *handle, int status UNUSED, int events)
{
    struct fake_agent *a = handle->data;
    if (events & UV_WRITABLE)
        fake_flush(a);
    if (!(events & UV_READABLE) || a->deaf)
        return;
    char bytes[65536];
    ssize_t n = recv(a->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) {
        fake_hang_up(a);
        return;
    }
    if (n > 0)
        (void)buf_append(&a->in, bytes, (size_t)n);
    struct wire_frame f;
    while (a->fd >= 0 && buf_len(&a->in) >= WIRE_HEADER_SIZE) {
        assert(wire_header_get((uint8_t *)buf_data(&a->in), &f) == 0);
        if (buf_len(&a->in) < WIRE_HEADER_SIZE + f.size)
            break;
        take(a, &f, str_n(buf_data(&a->in) + WIRE_HEADER_SIZE, f.size));
        if (a->fd >= 0)
            buf_consume(&a->in, WIRE_HEADER_SIZE + f.size);
    }
}

/* ---- life ---- */

static void on_poll_closed(uv_handle_t *handle)
{
    mem_free(handle);
}

void fake_hang_up(struct fake_agent *a)
{
    if (a->fd < 0)
        return;
    uv_close((uv_handle_t *)a->poll, on_poll_closed);
    a->fd = fd_close(a->fd);
    size_t it = 0;
    for (struct fake_stream *st; (st = map_next(&a->streams, &it)); it = 0)
        stream_free(a, st);
    buf_clear(&a->in);
    buf_clear(&a->out);
}

void fake_attach(struct fake_agent *a, int fd)
{
    fake_hang_up(a);
    assert(fd_nonblock(fd, true) >= 0);
    a->fd = fd;
    buf_fini(&a->in);
    buf_fini(&a->out);
    a->in = BUF_INIT(64 << 20);
    a->out = BUF_INIT(64 << 20);
    a->poll = mem_new(uv_poll_t);
    a->poll->data = a;
    assert(uv_poll_init(&a->w->loop, a->poll, fd) == 0);
    if (!a->w->agents_mute)
        fake_send(a, WIRE_HELLO, 0, 0, "\2\0\0\0", 4);
    fake_flush(a);
}

void fake_free(struct fake_agent *a)
{
    fake_hang_up(a);
    while (a->processes) {
        struct fake_process *p = a->processes;
        a->processes = p->next;
        buf_fini(&p->output);
        MEM_FREE(p->tag, p);
    }
    size_t it = 0;
    for (struct buf *file; (file = map_next(&a->files, &it));) {
        buf_fini(file);
        mem_free(file);
    }
    map_fini(&a->files);
    map_fini(&a->streams);
    buf_fini(&a->in);
    buf_fini(&a->out);
    mem_free(a);
}
