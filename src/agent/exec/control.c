/* SPDX-License-Identifier: Apache-2.0 */
/* PROCESSES, SIGNAL and RESIZE. */
#include "agent/exec/process.h"
#include "agent/verb.h"

#include <signal.h>
#include <sys/ioctl.h>

/* ---- PROCESSES: a record at a time, so that many large ones are never in memory together ---- */

struct control_listing {
    struct agent_stream stream;
    uint64_t next_seq;
    struct buf record; /* the rest of the record that is being sent */
};

static struct agent_process *next_process(struct agent *a, uint64_t seq)
{
    LIST_FOREACH (struct agent_process, p, &a->processes, node)
        if (p->seq >= seq && !p->starting && !p->superseded)
            return p;
    return NULL;
}

static void put_record(struct buf *b, const struct agent_process *p)
{
    wire_put_u32(b, (uint32_t)p->pid);
    wire_put_u8(b, p->flags);
    wire_put_u64(b, p->started);
    (void)buf_append(b, p->record, p->record_bytes);
    wire_put_u64(b, p->output.head);
    wire_put_u64(b, p->seen);
    wire_put_u8(b, p->how);
    wire_put_u32(b, p->code);
}

static void processes_open(struct agent_stream *s, struct wire_reader *r)
{
    struct control_listing *l = container_of(s, struct control_listing, stream);
    buf_init(&l->record, 2 * (size_t)WIRE_PAYLOAD_MAX);
    if (!wire_done(r)) {
        stream_malformed(s);
        return;
    }
    stream_reply(s);
    stream_ready(s);
}

static bool processes_produce(struct agent_stream *s)
{
    struct control_listing *l = container_of(s, struct control_listing, stream);
    struct agent_process *p;
    while (buf_len(&l->record) < WIRE_PAYLOAD_MAX / 4 && (p = next_process(s->session->agent, l->next_seq))) {
        put_record(&l->record, p);
        l->next_seq = p->seq + 1;
    }
    size_t n = MIN(buf_len(&l->record), stream_room(s));
    if (n) {
        stream_send_bytes(s, buf_data(&l->record), n);
        buf_consume(&l->record, n);
        return true;
    }
    if (buf_len(&l->record) == 0)
        stream_end(s);
    return false;
}

static void processes_fini(struct agent_stream *s)
{
    buf_fini(&container_of(s, struct control_listing, stream)->record);
}

/* ---- SIGNAL ---- */

struct control_waiter {
    struct agent_stream stream;
    struct list node; /* in process->waiters */
};

/* SIGKILL is answered when its target is reaped: whoever looks then must not find a zombie. */
static void signal_open(struct agent_stream *s, struct wire_reader *r)
{
    struct control_waiter *w = container_of(s, struct control_waiter, stream);
    struct failure why;
    list_init(&w->node);
    struct agent_process *p = process_find(s->session->agent, r, false, &why);
    uint32_t number = wire_get_u32(r);
    if (!wire_done(r) || (!p && why.code == ERR_OK)) {
        stream_malformed(s);
    } else if (!p) {
        stream_fail(s, &why);
    } else if (number < 1 || number > 64) {
        stream_failf(s, ERR_INVALID_ARGUMENT, "invalid signal: %u", number);
    } else if (kill(-p->pid, (int)number) < 0) {
        stream_failf(s, ERR_INTERNAL, "error sending signal: %s",
                     errno == ESRCH ? "os: process already finished" : errno_text(errno));
    } else if (number == SIGKILL) {
        list_append(&p->waiters, &w->node);
    } else {
        stream_end(s);
    }
}

static void signal_fini(struct agent_stream *s)
{
    list_remove(&container_of(s, struct control_waiter, stream)->node);
}

void signal_reaped(struct agent_process *p)
{
    LIST_FOREACH (struct control_waiter, w, &p->waiters, node)
        stream_end(&w->stream);
}

/* ---- RESIZE ---- */

static void resize_open(struct agent_stream *s, struct wire_reader *r)
{
    struct failure why;
    struct agent_process *p = process_find(s->session->agent, r, false, &why);
    struct winsize size = {0};
    size.ws_col = wire_get_u16(r);
    size.ws_row = wire_get_u16(r);
    if (!wire_done(r) || (!p && why.code == ERR_OK))
        stream_malformed(s);
    else if (!p)
        stream_fail(s, &why);
    else if (!(p->flags & WIRE_PROC_PTY))
        stream_failf(s, ERR_INTERNAL, "error resizing tty: tty not assigned to process");
    else if (ioctl(p->in.fd, TIOCSWINSZ, &size) < 0)
        stream_failf(s, ERR_INTERNAL, "error resizing tty: %s", errno_text(errno));
    else
        stream_end(s);
}

const struct verb verb_processes = {
    .size = sizeof(struct control_listing),
    .open = processes_open,
    .produce = processes_produce,
    .fini = processes_fini,
};
const struct verb verb_signal = {.size = sizeof(struct control_waiter), .open = signal_open, .fini = signal_fini};
const struct verb verb_resize = {.size = sizeof(struct agent_stream), .open = resize_open};
