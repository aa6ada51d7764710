/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/job.h"
#include "base/fd.h"
#include "base/mem.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum job_message { JOB_DATA = 1, JOB_END = 2, JOB_FAIL = 3 };
enum { JOB_HEADER = 5, CHILD_PIPE = 3 };

struct agent_job {
    struct agent *agent;
    struct list node;  /* in agent->jobs, until it is reaped */
    pid_t pid;         /* -1: reaped */
    struct loop_io io; /* the pipe's end; -1 when nobody listens any more */
    struct job_stream *stream;
    struct buf in;
};

/* ---- the child ---- */

static void child_send(enum job_message kind, const struct buf *b)
{
    uint8_t header[JOB_HEADER] = {(uint8_t)kind};
    size_t n = buf_len(b);
    for (size_t i = 0; i < 4; i++)
        header[1 + i] = (uint8_t)(n >> (8 * i));
    /* When nobody listens any more the child ends: work that may outlive its stream says nothing before it is done. */
    if (fd_write_all(CHILD_PIPE, header, sizeof(header)) < 0 || fd_write_all(CHILD_PIPE, buf_data(b), n) < 0)
        _exit(1);
}

void job_flush(struct job_stream *js UNUSED, struct buf *out, size_t least)
{
    if (buf_len(out) < MAX(least, (size_t)1))
        return;
    child_send(JOB_DATA, out);
    buf_clear(out);
}

NORETURN static void job_run_child(struct job_stream *js, int pipe_fd)
{
    struct buf out = BUF_INIT(JOB_MESSAGE_MAX - JOB_HEADER);
    struct failure why = {.code = ERR_INTERNAL};
    if ((js->input_fd && dup2(js->input_fd - 1, STDIN_FILENO) < 0) ||
        (pipe_fd != CHILD_PIPE && dup2(pipe_fd, CHILD_PIPE) < 0))
        _exit(1);
    /* A copy of the session's socket would keep the session alive for the host. */
    if (syscall(SYS_close_range, CHILD_PIPE + 1, ~0U, 0) < 0)
        for (int fd = CHILD_PIPE + 1; fd < 65536; fd++)
            (void)close(fd);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    int r = js->run(js, &out, &why);
    if (r == 0 && !buf_error(&out)) {
        child_send(JOB_END, &out);
        _exit(0);
    }
    struct buf text = BUF_INIT(sizeof(why.text) + 2);
    wire_put_u16(&text, (uint16_t)why.code);
    (void)buf_append_cstr(&text, why.text);
    child_send(JOB_FAIL, &text);
    _exit(0);
}

/* ---- the agent ---- */

static void job_free(struct agent_job *j)
{
    list_remove(&j->node);
    loop_close(&j->agent->loop, &j->io);
    buf_fini(&j->in);
    if (j->stream)
        j->stream->job = NULL;
    mem_free(j);
}

static void pipe_ready(struct loop_io *io, uint32_t events UNUSED)
{
    struct agent_job *j = container_of(io, struct agent_job, io);
    (void)loop_set(&j->agent->loop, io, 0); /* until produce() has found it empty */
    stream_ready(&j->stream->stream);
}

static int job_fork(struct agent_job *j)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    AUTO_CLOSE int theirs = ends[1];
    j->io.fd = ends[0];
    int r = fd_nonblock(j->io.fd, true);
    if (r == 0)
        r = loop_set(&j->agent->loop, &j->io, EPOLLIN);
    if (r < 0)
        return r;
    j->pid = fork();
    if (j->pid == 0)
        job_run_child(j->stream, theirs);
    return j->pid < 0 ? -errno : 0;
}

static void job_start(struct job_stream *js)
{
    struct agent *a = js->stream.session->agent;
    struct agent_job *j = mem_new(struct agent_job);
    *j = (struct agent_job){
        .agent = a, .pid = -1, .io = LOOP_IO(pipe_ready), .stream = js, .in = BUF_INIT(JOB_MESSAGE_MAX)};
    list_init(&j->node);
    int r = job_fork(j);
    if (r < 0) {
        job_free(j);
        stream_failf(&js->stream, ERR_RESOURCE_EXHAUSTED, "error starting work on files: %s", errno_text(-r));
        return;
    }
    js->job = j;
    list_append(&a->jobs, &j->node);
    a->n_jobs++;
}

void job_submit(struct job_stream *js)
{
    struct agent *a = js->stream.session->agent;
    list_init(&js->waiting);
    if (a->n_jobs < JOB_MAX)
        job_start(js);
    else
        list_append(&a->waiting_jobs, &js->waiting);
}

/* The first message in j->in: 1; 0: it is not complete yet; -1: it is too long to be one. */
static int next_message(const struct agent_job *j, uint8_t *ret_kind, struct str *ret_payload)
{
    struct wire_reader r = wire_reader_of(buf_str(&j->in));
    *ret_kind = wire_get_u8(&r);
    uint32_t size = wire_get_u32(&r);
    if (r.bad)
        return 0;
    if (size > JOB_MESSAGE_MAX - JOB_HEADER)
        return -1;
    *ret_payload = str_n(r.p, size);
    return r.n >= size;
}

static void job_refuse(struct agent_stream *s, struct str payload)
{
    struct wire_reader r = wire_reader_of(payload);
    uint16_t code = wire_get_u16(&r);
    if (r.bad || code == ERR_OK || code >= ERR_CODE_MAX)
        stream_failf(s, ERR_INTERNAL, "the work on files ended without a result");
    else
        stream_failf(s, (enum err_code)code, "%.*s", (int)r.n, (const char *)r.p);
}

/* False when the stream has ended or must wait for credit. */
static bool job_relay(struct job_stream *js, uint8_t kind, struct str payload)
{
    struct agent_stream *s = &js->stream;
    if (kind == JOB_FAIL) {
        job_refuse(s, payload);
        return false;
    }
    if (js->has_head && !s->replied)
        stream_reply(s);
    if (kind == JOB_DATA) {
        if (stream_room(s) < payload.n)
            return false;
        stream_send_bytes(s, payload.p, payload.n);
        buf_consume(&js->job->in, JOB_HEADER + payload.n);
        return true;
    }
    (void)buf_append_str(stream_tail(s), payload);
    stream_tail_commit(s);
    return false;
}

bool job_stream_produce(struct agent_stream *s)
{
    struct job_stream *js = container_of(s, struct job_stream, stream);
    struct agent_job *j = js->job;
    uint8_t kind;
    struct str payload;
    int r;
    if (!j)
        return false;
    while ((r = next_message(j, &kind, &payload)) == 0) {
        size_t room = j->in.max - buf_len(&j->in);
        char *to = buf_reserve(&j->in, MIN(room, (size_t)64 * 1024));
        ssize_t n = to ? read(j->io.fd, to, MIN(room, (size_t)64 * 1024)) : 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            (void)loop_set(&j->agent->loop, &j->io, EPOLLIN);
            return false;
        }
        if (n <= 0) {
            r = -1;
            break;
        }
        buf_commit(&j->in, (size_t)n);
    }
    if (r < 0) {
        stream_failf(s, ERR_INTERNAL, "the work on files ended without a result");
        return false;
    }
    return job_relay(js, kind, payload);
}

void job_stream_fini(struct agent_stream *s)
{
    struct job_stream *js = container_of(s, struct job_stream, stream);
    if (js->waiting.next)
        list_remove(&js->waiting);
    if (!js->job)
        return;
    struct agent_job *j = js->job;
    js->job = NULL;
    j->stream = NULL;
    loop_close(&j->agent->loop, &j->io);
    buf_fini(&j->in);
    if (j->pid < 0)
        job_free(j);
    else if (!js->may_outlive)
        (void)kill(j->pid, SIGKILL);
}

void job_reaped(struct agent *a, pid_t pid)
{
    LIST_FOREACH (struct agent_job, j, &a->jobs, node) {
        if (j->pid != pid)
            continue;
        a->n_jobs--;
        j->pid = -1;
        if (!j->stream)
            job_free(j);
        while (a->n_jobs < JOB_MAX && !list_empty(&a->waiting_jobs)) {
            struct job_stream *next = container_of(a->waiting_jobs.next, struct job_stream, waiting);
            list_remove(&next->waiting);
            job_start(next);
        }
        return;
    }
}

void job_forget_all(struct agent *a)
{
    LIST_FOREACH (struct agent_job, j, &a->jobs, node) {
        if (j->pid > 0) {
            (void)kill(j->pid, SIGKILL);
            (void)waitpid(j->pid, NULL, 0);
        }
        job_free(j);
    }
}
