/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 *  1. Every process that was started through us is followed by us for the record, for all its life: over the EXEC
 *     stream that started it, or, after a worker died, over an ATTACH stream. This is `struct process`.
 *  2. The client that started it shares that stream: output goes to the record first, then to the client, and credit
 *     returns at the client's pace (delivered). When it leaves, credit returns by itself (not delivered: the agent
 *     keeps it for the next client), a window each EXEC_PACE_MS: 25 MB/s, so that a process that writes without end and
 *     without a reader does not keep this worker busy. Bytes on their way to it when it left count as not delivered.
 *  3. Any later client has an ATTACH stream of its own, so each is as slow as it likes and none repeats another's
 *     bytes: it begins with what nobody has got, or with now while somebody else follows, or when the output went to a
 *     client to its end.
 *  4. A follow ends with on_end, or with exec_close(). The process does not notice.
 *  5. The deadline of a start belongs to the process: it fires whether the client is still there or not, and also when
 *     REPLY is late.
 *  6. A client that is full gets nothing. What comes, at most a window, is held, and so is the end; follow_goes_on()
 *     passes them on in later turns, once the client has acknowledged what it has. So its queue is bounded, whatever it
 *     makes of a byte.
 *  7. What is known of an ended process is kept for KEEP_ENDED_MS (the agent keeps its output that long), at most
 *     KEEP_ENDED_MAX per sandbox.
 */
#include "sandbox/exec/exec.h"
#include "base/mem.h"
#include "sandbox/exec/exec_life.h"
#include "sandbox/exec/process.h"

#include <signal.h>

struct follow {
    struct sandbox *sb; /* a reference */
    const struct exec_ops *ops;
    void *ctx;
    struct follow **at; /* where its owner has it */
    char *said;         /* as in struct exec_spec */
    size_t said_size;
    struct process *process; /* whose stream it shares; NULL: it has its own */
    struct stream *stream;   /* its own */
    struct list node;        /* in a process's follows */
    uint32_t pid;            /* 0 until REPLY */
    uint64_t next;           /* of its own stream: offset of what comes next */
    uint32_t owed;           /* given to the client or held for it, not acknowledged */
    struct loop_alarm alarm;
    struct buf held;          /* until it has room: struct held_head and bytes, in turn */
    struct charge charge;     /* of that */
    struct follow_over *over; /* how it ends once nothing is held; NULL: it goes on */
    struct loop_job job;
};

struct held_head {
    enum wire_channel channel;
    uint32_t n;
};

struct follow_over {
    struct exec_exit exit;
    bool failed;
    struct err err;
};

enum { EXEC_PACE_MS = 10, HELD_PIECE = 16 * 1024, HELD_MAX = 16 * WIRE_WINDOW };

#define EXEC_STREAM(reply, data, end)                                                                                  \
    {                                                                                                                  \
        .on_reply = (reply), .on_data = (data), .on_end = (end), .long_lived = true, .flags_max = WIRE_PTY             \
    }

/* ---- follows ---- */

static void follow_goes_on(struct loop_job *job);

static struct follow *follow_new(struct sandbox *sb, const struct exec_ops *ops, void *ctx, struct follow **at)
{
    struct follow *f = mem_new(struct follow);
    *f = (struct follow){.sb = sandbox_ref(sb), .ops = ops, .ctx = ctx, .at = at};
    f->charge = (struct charge){.core = sb->core, .tenant = sb->info.tenant};
    list_init(&f->node);
    loop_job_init(&f->job, follow_goes_on);
    return f;
}

static void follow_drop_held(struct follow *f)
{
    (void)charge_queue(&f->charge, f->held.cap, 0);
    buf_fini(&f->held);
}

static void follow_free(struct follow *f)
{
    loop_alarm_clear(f->sb->core->loop, &f->alarm);
    loop_job_cancel(&f->job);
    list_remove(&f->node);
    if (f->process)
        f->process->client = NULL;
    follow_drop_held(f);
    sandbox_unref(f->sb);
    MEM_FREE(f->over, f);
}

static void follow_end(struct follow *f, const struct exec_exit *exit, const struct err *err)
{
    const struct exec_ops *ops = f->ops;
    void *ctx = f->ctx;
    *f->at = NULL;
    follow_free(f);
    ops->on_end(ctx, err ? NULL : exit, err);
}

static struct stream *follow_stream(struct follow *f)
{
    return f->process ? f->process->stream : f->stream;
}

void exec_ack(struct follow *f, size_t bytes)
{
    struct stream *st = follow_stream(f);
    bytes = MIN(bytes, (size_t)f->owed);
    f->owed -= (uint32_t)bytes;
    if (st && bytes)
        stream_grant(st, bytes, true);
    if (buf_len(&f->held))
        loop_later(f->sb->core->loop, &f->job);
}

/* Its stream has ended. */
static void follow_over(struct follow *f, const struct exec_exit *exit, const struct err *err)
{
    if (!buf_len(&f->held) || f->sb->core->closing) {
        follow_end(f, exit, err);
        return;
    }
    loop_alarm_clear(f->sb->core->loop, &f->alarm);
    list_remove(&f->node);
    f->over = mem_new(struct follow_over);
    *f->over = (struct follow_over){.failed = err != NULL};
    if (err)
        f->over->err = *err;
    else
        f->over->exit = *exit;
    loop_later(f->sb->core->loop, &f->job);
}

/* One piece of what is held, or the end. */
static void follow_goes_on(struct loop_job *job)
{
    struct follow *f = container_of(job, struct follow, job);
    struct held_head head;
    char piece[HELD_PIECE];
    if (!buf_len(&f->held)) {
        const struct follow_over over = *f->over;
        follow_end(f, &over.exit, over.failed ? &over.err : NULL);
        return;
    }
    size_t room = f->ops->room(f->ctx);
    if (!room)
        return;
    memcpy(&head, buf_data(&f->held), sizeof(head));
    size_t n = MIN(MIN((size_t)head.n, room), sizeof(piece));
    memcpy(piece, buf_data(&f->held) + sizeof(head), n);
    head.n -= (uint32_t)n;
    buf_consume(&f->held, head.n ? n : sizeof(head) + n);
    if (head.n)
        memcpy(buf_data(&f->held), &head, sizeof(head));
    if (!buf_len(&f->held))
        follow_drop_held(f);
    if (buf_len(&f->held) || f->over)
        loop_later(f->sb->core->loop, job);
    f->ops->on_output(f->ctx, head.channel, str_n(piece, n));
}

static void on_pace(struct loop_alarm *alarm)
{
    struct process *p = container_of(alarm, struct process, pace);
    if (p->stream)
        stream_grant(p->stream, p->unattended, false);
    p->unattended = 0;
}

/* Credit for what nobody waits for. */
static void give_back(struct process *p, size_t bytes)
{
    p->unattended += (uint32_t)bytes;
    if (!p->pace.slot)
        loop_alarm_set(p->sb->core->loop, &p->pace, clock_mono() + EXEC_PACE_MS * USEC_PER_MS, on_pace);
}

static void follow_leave(struct follow *f)
{
    if (!f->process)
        stream_close(TAKE_PTR(f->stream));
    else if (f->process->stream && f->owed)
        give_back(f->process, f->owed);
}

void exec_close(struct follow *f)
{
    if (!f)
        return;
    follow_leave(f);
    follow_free(f);
}

static void follow_cut(struct follow *f, const struct err *err)
{
    follow_leave(f);
    if (f->process)
        TAKE_PTR(f->process)->client = NULL;
    follow_over(f, NULL, err);
}

/* False: there is no memory for it. */
static bool follow_hold(struct follow *f, enum wire_channel channel, struct str bytes)
{
    const struct held_head head = {channel, (uint32_t)bytes.n};
    size_t before = f->held.cap;
    if (!before)
        f->held = BUF_INIT(HELD_MAX);
    (void)buf_append(&f->held, &head, sizeof(head));
    if (buf_append_str(&f->held, bytes) < 0 || !charge_queue(&f->charge, before, f->held.cap))
        return false;
    loop_later(f->sb->core->loop, &f->job);
    return true;
}

static void follow_output(struct follow *f, enum wire_channel channel, struct str bytes)
{
    struct err err;
    f->owed += (uint32_t)bytes.n;
    if (!f->ops->on_output) {
        if (f->said)
            exec_remember(f->said, f->said_size, bytes);
        exec_ack(f, bytes.n);
    } else if (!f->ops->room || (!buf_len(&f->held) && bytes.n <= f->ops->room(f->ctx))) {
        f->ops->on_output(f->ctx, channel, bytes);
    } else if (!follow_hold(f, channel, bytes)) {
        (void)err_set(&err, ERR_RESOURCE_EXHAUSTED, "there is no memory for output that its client doesn't read");
        follow_cut(f, &err);
    }
}

static void deadline_error(struct err *ret_err)
{
    (void)err_set(ret_err, ERR_DEADLINE_EXCEEDED, "the deadline of the request was exceeded");
}

/* ---- frames ---- */

static bool read_head(struct str head, uint32_t *ret_pid, uint64_t *ret_offset)
{
    struct wire_reader r = wire_reader_of(head);
    *ret_pid = wire_get_u32(&r);
    *ret_offset = wire_get_u64(&r);
    return wire_done(&r) && *ret_pid != 0;
}

static bool read_tail(struct str tail, struct exec_exit *ret_exit)
{
    struct wire_reader r = wire_reader_of(tail);
    uint8_t how = wire_get_u8(&r);
    ret_exit->code = wire_get_u32(&r);
    ret_exit->output_bytes = wire_get_u64(&r);
    ret_exit->signaled = how == WIRE_SIGNALED;
    return wire_done(&r) && how <= WIRE_SIGNALED && ret_exit->code <= (how == WIRE_SIGNALED ? 64u : 255u);
}

static void malformed(struct err *ret_err)
{
    (void)err_set(ret_err, ERR_UNAVAILABLE, "the sandbox failed");
}

/* ---- the record's stream, shared with the first client ---- */

static void process_on_reply(void *user, struct str head)
{
    struct process *p = user;
    uint32_t pid;
    uint64_t offset;
    if (!read_head(head, &pid, &offset) || offset) {
        stream_violation(p->stream, "a malformed head of EXEC");
        return;
    }
    p->pid = p->log.pid = pid;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    event_data_u64(&d, p->sb->within ? "nest_pid" : "pid", pid); /* of another process namespace */
    action_observe(p->sb, p->log.cause, EVENT_EXEC_STARTED, EVENT_CLAIMED, event_data_end(&d));
    if (p->expired)
        process_signal(p, SIGKILL);
    else if (p->client && p->client->ops->on_start)
        p->client->ops->on_start(p->client->ctx, pid);
}

static void process_on_data(void *user, uint8_t flags, struct str bytes)
{
    struct process *p = user;
    if (flags == 0 || p->pty != (flags == WIRE_PTY)) {
        stream_violation(p->stream, "output on a channel that the process does not have");
        return;
    }
    exec_log_output(&p->log, flags, bytes);
    if (p->client)
        follow_output(p->client, flags, bytes);
    else
        give_back(p, bytes.n);
}

static void process_on_end(void *user, struct str tail, const struct err *err)
{
    struct process *p = user;
    struct follow *f = p->client;
    struct exec_exit exit = {0};
    struct err bad;
    if (!err && !read_tail(tail, &exit)) {
        stream_violation(p->stream, "a malformed tail of EXEC");
        malformed(&bad);
        err = &bad;
    }
    enum event_grade grade = stream_was_answered(p->stream) ? EVENT_CLAIMED : EVENT_OBSERVED_HOST;
    exit.output_bytes = p->log.base + p->log.bytes;
    p->stream = NULL;
    p->delivered = f != NULL;
    p->client = NULL;
    if (f)
        f->process = NULL;
    if (!p->sb->core->closing)
        exec_log_exit(&p->log, &exit, clock_mono() - p->started, p->expired, grade, err);
    process_ended(p, err == NULL);
    if (f)
        follow_over(f, &exit, err);
}

static const struct stream_ops process_ops = EXEC_STREAM(process_on_reply, process_on_data, process_on_end);

void process_on_deadline(struct process *p)
{
    p->expired = true;
    if (p->pid)
        process_signal(p, SIGKILL);
    if (!p->client)
        return;
    struct err err;
    deadline_error(&err);
    follow_cut(p->client, &err);
}

/* ---- starting ---- */

int exec_start(struct sandbox *sb, const struct actor *actor, const struct exec_spec *spec, const struct exec_ops *ops,
               void *ctx, struct follow **ret_follow, struct err *err)
{
    uint64_t cause;
    if (exec_spec_check(spec, err) < 0)
        return -1;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    exec_spec_describe(spec, &d);
    struct actor asker = *actor;
    asker.exec = spec;
    if (action_begin(sb, &asker, EVENT_EXEC_START, event_data_end(&d), &cause, err) < 0)
        return -1;
    struct process *p = process_new(sb, cause, spec->tag);
    p->pty = spec->pty;
    struct buf *request = session_request(sb->session, WIRE_EXEC);
    exec_spec_put(request, sb, spec);
    if (stream_open(sb->session, request, &process_ops, p, SESSION_UNARY_MS, &p->stream, err) < 0) {
        exec_log_exit(&p->log, NULL, 0, false, EVENT_OBSERVED_HOST, err);
        process_free(p);
        return -1;
    }
    process_follow(p, ops, ctx, ret_follow);
    p->client->said = spec->said;
    p->client->said_size = spec->said_size;
    if (spec->timeout_ms)
        process_arm(p, clock_add_ms(clock_mono(), spec->timeout_ms));
    return 0;
}

/* ---- taking over from another worker ---- */

static void taken_on_reply(void *user, struct str head)
{
    struct process *p = user;
    uint32_t pid;
    uint64_t offset;
    if (!read_head(head, &pid, &offset) || pid != p->pid) {
        stream_violation(p->stream, "a malformed head of ATTACH");
        return;
    }
    exec_log_resume(&p->log, offset, p->log.head_done);
    if (p->expired)
        process_signal(p, SIGKILL);
}

static const struct stream_ops taken_ops = EXEC_STREAM(taken_on_reply, process_on_data, process_on_end);

static void put_attach(struct buf *b, const struct exec_select *which, enum wire_from from, uint64_t offset)
{
    process_put_select(b, which);
    wire_put_u8(b, (uint8_t)from);
    wire_put_u64(b, offset);
}

int process_take_over(struct process *p, bool head_done, struct err *err)
{
    struct buf *request = session_request(p->sb->session, WIRE_ATTACH);
    put_attach(request, &(struct exec_select){.pid = p->pid}, WIRE_FROM_OFFSET, 0);
    p->log.head_done = head_done;
    return stream_open(p->sb->session, request, &taken_ops, p, SESSION_UNARY_MS, &p->stream, err);
}

void process_follow(struct process *p, const struct exec_ops *ops, void *ctx, struct follow **ret_follow)
{
    struct follow *f = follow_new(p->sb, ops, ctx, ret_follow);
    f->process = p;
    *ret_follow = p->client = f;
}

/* ---- attaching ---- */

static void follow_on_reply(void *user, struct str head)
{
    struct follow *f = user;
    uint32_t pid;
    uint64_t offset;
    if (!read_head(head, &pid, &offset)) {
        stream_violation(f->stream, "a malformed head of ATTACH");
        return;
    }
    struct process *p = process_find(f->sb, &(struct exec_select){.pid = pid});
    f->pid = pid;
    f->next = offset;
    if (p)
        list_append(&p->follows, &f->node);
    if (f->ops->on_start)
        f->ops->on_start(f->ctx, pid);
}

static void follow_on_data(void *user, uint8_t flags, struct str bytes)
{
    struct follow *f = user;
    if (flags == 0) {
        stream_violation(f->stream, "output on no channel");
        return;
    }
    f->next += bytes.n;
    follow_output(f, flags, bytes);
}

static void follow_on_end(void *user, struct str tail, const struct err *err)
{
    struct follow *f = user;
    struct exec_exit exit = {0};
    struct err bad;
    if (!err && !read_tail(tail, &exit)) {
        stream_violation(f->stream, "a malformed tail of ATTACH");
        malformed(&bad);
        err = &bad;
    }
    if (!list_empty(&f->node) && !err) {
        /* All of it went to a client: whoever comes later starts behind it. */
        struct process *p = process_find(f->sb, &(struct exec_select){.pid = f->pid});
        if (p)
            p->delivered = true;
    }
    f->stream = NULL;
    follow_over(f, &exit, err);
}

static const struct stream_ops follow_ops = EXEC_STREAM(follow_on_reply, follow_on_data, follow_on_end);

static void on_follow_alarm(struct loop_alarm *alarm)
{
    struct follow *f = container_of(alarm, struct follow, alarm);
    struct err err;
    deadline_error(&err);
    follow_cut(f, &err);
}

int exec_attach(struct sandbox *sb, const struct actor *actor, const struct exec_select *which, uint64_t timeout_ms,
                const struct exec_ops *ops, void *ctx, struct follow **ret_follow, struct err *err)
{
    uint64_t cause;
    if (process_check_select(which, err) < 0)
        return -1;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    process_tell_select(&d, which);
    if (action_begin(sb, actor, EVENT_EXEC_CONNECT, event_data_end(&d), &cause, err) < 0)
        return -1;
    const struct process *p = process_find(sb, which);
    bool seen = p && (p->client || !list_empty(&p->follows) || p->delivered);
    struct follow *f = follow_new(sb, ops, ctx, ret_follow);
    struct buf *request = session_request(sb->session, WIRE_ATTACH);
    put_attach(request, which, seen ? WIRE_FROM_NOW : WIRE_FROM_UNSEEN, 0);
    if (stream_open(sb->session, request, &follow_ops, f, SESSION_UNARY_MS, &f->stream, err) < 0) {
        follow_free(f);
        return -1;
    }
    if (timeout_ms)
        loop_alarm_set(sb->core->loop, &f->alarm, clock_add_ms(clock_mono(), timeout_ms), on_follow_alarm);
    *ret_follow = f;
    return 0;
}

/* ---- over to another session ---- */

static void moved_on_reply(void *user, struct str head)
{
    struct process *p = user;
    const uint64_t at = p->log.base + p->log.bytes;
    uint32_t pid;
    uint64_t offset;
    if (!read_head(head, &pid, &offset) || pid != p->pid || offset < at) {
        stream_violation(p->stream, "a malformed head of ATTACH");
        return;
    }
    p->log.lost += offset - at;
    p->log.base += offset - at;
}

static const struct stream_ops moved_ops = EXEC_STREAM(moved_on_reply, process_on_data, process_on_end);

static void follow_moved_on_reply(void *user, struct str head)
{
    struct follow *f = user;
    uint32_t pid;
    if (!read_head(head, &pid, &f->next) || pid != f->pid)
        stream_violation(f->stream, "a malformed head of ATTACH");
}

static const struct stream_ops follow_moved_ops = EXEC_STREAM(follow_moved_on_reply, follow_on_data, follow_on_end);

static void exec_move_stream(struct sandbox *sb, struct stream **stream, uint32_t pid, uint64_t at,
                             const struct stream_ops *ops, void *user)
{
    struct err err;
    stream_close(*stream);
    struct buf *request = session_request(sb->session, WIRE_ATTACH);
    put_attach(request, &(struct exec_select){.pid = pid}, WIRE_FROM_OFFSET, at);
    *stream = NULL;
    if (stream_open(sb->session, request, ops, user, SESSION_UNARY_MS, stream, &err) < 0)
        ops->on_end(user, STR_NULL, &err);
}

void exec_move(struct sandbox *sb)
{
    LIST_FOREACH (struct process, p, &sb->processes, node) {
        LIST_FOREACH (struct follow, f, &p->follows, node) {
            f->owed = 0;
            if (f->stream)
                exec_move_stream(sb, &f->stream, f->pid, f->next, &follow_moved_ops, f);
        }
        if (!p->stream || !p->pid)
            continue; /* its beginning, or its end, is still to come over the session before */
        p->unattended = 0;
        if (p->client)
            p->client->owed = 0;
        exec_move_stream(sb, &p->stream, p->pid, p->log.base + p->log.bytes, &moved_ops, p);
    }
}

void exec_let_go(struct sandbox *sb, const struct err *why)
{
    exec_recover_stop(sb);
    LIST_FOREACH (struct process, p, &sb->processes, node) {
        struct follow *f = p->client;
        if (p->ended)
            continue;
        stream_close(TAKE_PTR(p->stream));
        if (f)
            follow_end(f, NULL, why);
        process_free(p);
    }
}

void exec_remember(char *said, size_t size, struct str bytes)
{
    size_t have = strlen(said), n = MIN(bytes.n, size - 1), keep = MIN(have, size - 1 - n);
    memmove(said, said + have - keep, keep);
    for (size_t i = 0; i < n; i++) {
        char c = bytes.p[bytes.n - n + i];
        said[keep + i] = c >= ' ' && c <= '~' ? c : ' ';
    }
    said[keep + n] = 0;
}
