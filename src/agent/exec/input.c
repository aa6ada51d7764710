/* SPDX-License-Identifier: Apache-2.0 */
/* INPUT and CLOSE_STDIN. Inputs to one process are written one after the other; each stream holds its bytes until they
 * were taken. */
#include "agent/exec/process.h"
#include "agent/verb.h"
#include "base/mem.h"

#include <sys/epoll.h>
#include <unistd.h>

enum { INPUT_MAX = 64 * 1024, INPUTS_MAX = 16 * 1024 * 1024 /* of all processes together */ };

struct input {
    struct agent_stream stream;
    struct agent_process *process;
    struct list node; /* in process->inputs */
    char *bytes;      /* owned */
    size_t n, at;
};

static void input_fail(struct input *in, int errnum)
{
    if (in->process->flags & WIRE_PROC_PTY)
        stream_failf(&in->stream, ERR_INTERNAL,
                     "error writing to tty: error writing to tty of process '%d': write /dev/ptmx: %s",
                     in->process->pid, errno_text(errnum));
    else
        stream_failf(&in->stream, ERR_INTERNAL,
                     "error writing to stdin: error writing to stdin of process '%d': write |1: %s", in->process->pid,
                     errno_text(errnum));
}

void input_fail_all(struct agent_process *p, int errnum)
{
    LIST_FOREACH (struct input, in, &p->inputs, node)
        input_fail(in, errnum);
}

static void write_inputs(struct agent_process *p)
{
    while (!list_empty(&p->inputs)) {
        struct input *in = container_of(p->inputs.next, struct input, node);
        ssize_t r = in->at < in->n ? write(p->in.fd, in->bytes + in->at, in->n - in->at) : 0;
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0 && errno == EAGAIN) {
            int e = loop_set(&p->agent->loop, &p->in, EPOLLOUT);
            if (e < 0)
                input_fail_all(p, -e);
            return;
        }
        if (r < 0) {
            int why = errno;
            loop_close(&p->agent->loop, &p->in);
            input_fail_all(p, why);
            return;
        }
        in->at += (size_t)r;
        if (in->at == in->n)
            stream_end(&in->stream);
    }
    (void)loop_set(&p->agent->loop, &p->in, 0);
    if (p->close_stdin)
        loop_close(&p->agent->loop, &p->in);
}

void input_ready(struct loop_io *io, uint32_t events UNUSED)
{
    write_inputs(container_of(io, struct agent_process, in));
}

static bool refuse_channel(struct agent_stream *s, const struct agent_process *p, uint8_t channel)
{
    bool pty = p->flags & WIRE_PROC_PTY;
    const char *why = NULL;
    if (pty && channel != WIRE_PTY)
        why = "error writing to stdin: tty assigned to process — input should be written to the pty, not the stdin";
    else if (!pty && channel == WIRE_PTY)
        why = "error writing to tty: tty not assigned to process — input should be written to the stdin, not the tty";
    else if (p->in.fd < 0 || p->close_stdin)
        why = pty ? "error writing to tty: tty closed" : "error writing to stdin: stdin not enabled or closed";
    if (why)
        stream_failf(s, ERR_INTERNAL, "%s", why);
    return why;
}

static void input_open(struct agent_stream *s, struct wire_reader *r)
{
    struct input *in = container_of(s, struct input, stream);
    struct agent *a = s->session->agent;
    struct failure why;
    list_init(&in->node);
    struct agent_process *p = process_find(a, r, false, &why);
    uint8_t channel = wire_get_u8(r);
    struct str bytes = wire_get_str(r);
    if (!wire_done(r) || bytes.n > INPUT_MAX || (channel != 0 && channel != WIRE_PTY) || (!p && why.code == ERR_OK)) {
        stream_malformed(s);
        return;
    }
    if (!p) {
        stream_fail(s, &why);
        return;
    }
    if (refuse_channel(s, p, channel))
        return;
    if (a->input_bytes + bytes.n > INPUTS_MAX) {
        stream_failf(s, ERR_RESOURCE_EXHAUSTED, "%zu bytes of input are pending already", a->input_bytes);
        return;
    }
    in->process = p;
    in->bytes = mem_dup(bytes.p, bytes.n);
    in->n = bytes.n;
    a->input_bytes += in->n;
    list_append(&p->inputs, &in->node);
    if (p->inputs.next == &in->node)
        write_inputs(p);
}

static void input_fini(struct agent_stream *s)
{
    struct input *in = container_of(s, struct input, stream);
    struct agent_process *p = in->process;
    if (!p)
        return;
    list_remove(&in->node);
    mem_free(in->bytes);
    s->session->agent->input_bytes -= in->n;
    if (list_empty(&p->inputs) && p->in.fd >= 0 && p->close_stdin)
        loop_close(&p->agent->loop, &p->in);
}

static void close_stdin_open(struct agent_stream *s, struct wire_reader *r)
{
    struct failure why;
    struct agent_process *p = process_find(s->session->agent, r, false, &why);
    if (!wire_done(r) || (!p && why.code == ERR_OK)) {
        stream_malformed(s);
    } else if (!p) {
        stream_fail(s, &why);
    } else if (p->flags & WIRE_PROC_PTY) {
        stream_failf(s, ERR_UNKNOWN,
                     "error closing stdin: cannot close stdin for PTY process — send Ctrl+D (0x04) instead");
    } else {
        p->close_stdin = true;
        if (list_empty(&p->inputs))
            loop_close(&p->agent->loop, &p->in);
        stream_end(s);
    }
}

const struct verb verb_input = {.size = sizeof(struct input), .open = input_open, .fini = input_fini};
const struct verb verb_close_stdin = {.size = sizeof(struct agent_stream), .open = close_stdin_open};
