/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/exec/process.h"
#include "agent/sink.h"
#include "base/mem.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READ_MAX = 64 * 1024, PROCESS_READS_PER_TURN = 4, DRAIN_MAX = 1024 * 1024 };

static struct agent_process *process_of(struct loop_timer *t)
{
    return container_of(t, struct agent_process, timer);
}

static void wake_followers(struct agent_process *p)
{
    LIST_FOREACH (struct agent_follower, f, &p->followers, node)
        stream_ready(&f->stream);
}

static void process_forget(struct agent_process *p)
{
    struct agent_loop *l = &p->agent->loop;
    assert(list_empty(&p->followers));
    list_remove(&p->node);
    list_remove(&p->ended_node);
    loop_timer_clear(&p->timer);
    loop_close(l, &p->out[0]);
    loop_close(l, &p->out[1]);
    loop_close(l, &p->in);
    loop_close(l, &p->status);
    input_fail_all(p, EPIPE);
    output_fini(&p->output);
    *(p->done ? &p->agent->n_ended : &p->agent->n_live) -= 1;
    MEM_FREE(p->record, p);
}

static void forget_ended_beyond_limit(struct agent *a)
{
    LIST_FOREACH (struct agent_process, p, &a->ended, ended_node)
        if (a->n_ended > PROCESS_ENDED_MAX && list_empty(&p->followers))
            process_forget(p);
}

static void check_done(struct agent_process *p)
{
    if (p->done || p->starting || !p->reaped || p->out[0].fd >= 0 || p->out[1].fd >= 0)
        return;
    p->done = true;
    p->agent->n_live--;
    p->agent->n_ended++;
    list_append(&p->agent->ended, &p->ended_node);
    loop_timer_set(&p->agent->loop, &p->timer, p->agent->config.keep);
    wake_followers(p);
    forget_ended_beyond_limit(p->agent);
}

/* How much may be read now (invariant 2). */
static size_t process_room(struct agent_process *p)
{
    uint64_t room = READ_MAX;
    LIST_FOREACH (struct agent_follower, f, &p->followers, node) {
        uint64_t limit = MIN(f->sent, f->start + f->granted) + WIRE_WINDOW;
        room = MIN(room, limit - MIN(limit, p->output.head));
    }
    return (size_t)(p->draining ? MIN(room, (uint64_t)p->drain_bytes) : room);
}

static bool is_empty(int fd)
{
    int n = 0;
    return ioctl(fd, FIONREAD, &n) == 0 && n == 0;
}

/* False when the end was reached. */
static bool read_output(struct agent_process *p, struct loop_io *io, uint32_t events)
{
    struct iovec iov[2];
    for (int i = 0; i < PROCESS_READS_PER_TURN; i++) {
        size_t room = process_room(p);
        if (room == 0 && p->draining && p->drain_bytes == 0)
            return false;
        /* A follower that takes nothing must not keep the end from the others. */
        if (room == 0 && (p->draining || events & EPOLLHUP) && is_empty(io->fd))
            return false;
        if (room == 0) {
            (void)loop_set(&p->agent->loop, io, 0);
            return true;
        }
        int n = output_reserve(&p->output, room, iov);
        size_t asked = iov[0].iov_len + (n > 1 ? iov[1].iov_len : 0);
        ssize_t r = readv(io->fd, iov, n);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0 && errno == EAGAIN)
            return !p->draining;
        if (r <= 0)
            return false;
        output_commit(&p->output, (size_t)r, io == &p->out[1]);
        if (p->draining)
            p->drain_bytes -= (size_t)r;
        wake_followers(p);
        /* A pipe that had less than was asked for is empty: what came is sent before anything else is looked at. */
        if ((size_t)r < asked && !p->draining && !(p->flags & WIRE_PROC_PTY))
            return true;
    }
    return true;
}

static void output_ready(struct agent_process *p, struct loop_io *io, uint32_t events)
{
    if (!read_output(p, io, events)) {
        if (p->draining)
            sink_take(p->agent, io);
        else
            loop_close(&p->agent->loop, io);
    }
    check_done(p);
}

static void first_ready(struct loop_io *io, uint32_t events)
{
    output_ready(container_of(io, struct agent_process, out[0]), io, events);
}

static void second_ready(struct loop_io *io, uint32_t events)
{
    output_ready(container_of(io, struct agent_process, out[1]), io, events);
}

static void timer_fired(struct loop_timer *t)
{
    struct agent_process *p = process_of(t);
    if (p->done) {
        if (list_empty(&p->followers))
            process_forget(p);
        else
            loop_timer_set(&p->agent->loop, t, p->agent->config.keep);
        return;
    }
    if (!p->draining) {
        p->draining = true;
        p->drain_bytes = DRAIN_MAX;
    }
    for (size_t i = 0; i < ARRAY_SIZE(p->out); i++) {
        if (p->out[i].fd >= 0 && !read_output(p, &p->out[i], 0))
            sink_take(p->agent, &p->out[i]);
        else if (p->out[i].fd >= 0 && p->out[i].events)
            loop_timer_set(&p->agent->loop, t, 0);
    }
    check_done(p);
}

void process_consumed(struct agent_process *p)
{
    bool drain = false;
    for (size_t i = 0; i < ARRAY_SIZE(p->out); i++) {
        if (p->out[i].fd < 0 || p->out[i].events || process_room(p) == 0)
            continue;
        (void)loop_set(&p->agent->loop, &p->out[i], EPOLLIN);
        drain = p->draining;
    }
    /* An empty pipe makes no event, but it is what draining waits for. */
    if (drain)
        loop_timer_set(&p->agent->loop, &p->timer, 0);
}

void process_follow(struct agent_process *p, struct agent_follower *f)
{
    f->process = p;
    list_append(&p->followers, &f->node);
    p->n_followers++;
}

void process_unfollow(struct agent_follower *f)
{
    struct agent_process *p = f->process;
    if (!p)
        return;
    list_remove(&f->node);
    p->n_followers--;
    f->process = NULL;
    process_consumed(p);
}

void process_follower_ended(struct agent_follower *f)
{
    struct agent_process *p = f->process;
    p->ended_followers[p->n_ended_followers++ % PROCESS_LATE_MAX] =
        (struct ended_follower){f->stream.id, f->start + f->granted};
}

void process_late_credit(struct agent *a, uint32_t stream, uint32_t bytes, bool delivered)
{
    LIST_FOREACH (struct agent_process, p, &a->ended, ended_node) {
        for (size_t i = 0; i < PROCESS_LATE_MAX; i++) {
            struct ended_follower *e = &p->ended_followers[i];
            if (e->stream != stream)
                continue;
            e->granted += MIN((uint64_t)bytes, p->output.head - MIN(p->output.head, e->granted));
            if (delivered)
                p->seen = MAX(p->seen, MIN(e->granted, p->output.head));
            return;
        }
    }
}

void process_session_gone(struct agent *a)
{
    LIST_FOREACH (struct agent_process, p, &a->ended, ended_node)
        memset(p->ended_followers, 0, sizeof(p->ended_followers));
}

static void started(struct agent_process *p)
{
    struct spawn_report report = {0};
    ssize_t r = read(p->status.fd, &report, sizeof(report));
    if (r < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    loop_close(&p->agent->loop, &p->status);
    p->starting = false;
    if (r == sizeof(report)) { /* its launch stays until it is reaped */
        LIST_FOREACH (struct agent_follower, f, &p->followers, node)
            follow_not_started(f, &report); /* ends the stream, which unfollows */
        /* The child is on its way out; if it is not reaped yet, that happens as for an orphan. */
        process_forget(p);
        return;
    }
    LIST_FOREACH (struct agent_follower, f, &p->followers, node)
        follow_started(f);
    if (p->launch && !p->reaped)
        spawn_executed(p->launch);
    p->launch = NULL;
    check_done(p);
}

static void status_ready(struct loop_io *io, uint32_t events UNUSED)
{
    started(container_of(io, struct agent_process, status));
}

static void supersede(struct agent *a, const struct agent_process *by)
{
    LIST_FOREACH (struct agent_process, p, &a->processes, node) {
        if (p == by || !p->reaped ||
            (p->pid != by->pid && !(by->flags & WIRE_PROC_TAG && p->flags & WIRE_PROC_TAG && str_eq(p->tag, by->tag))))
            continue;
        p->superseded = true;
        if (p->done && list_empty(&p->followers))
            process_forget(p);
    }
}

int process_start(struct agent *a, const struct spawn *s, struct arena *arena, char *record, size_t record_bytes,
                  uint8_t flags, struct agent_process **ret_process)
{
    struct spawned child;
    AUTO_FREE char *owned = record;
    int r = spawn(a, s, arena, &child);
    if (r < 0)
        return r;
    struct agent_process *p = mem_new(struct agent_process);
    *p = (struct agent_process){
        .agent = a,
        .seq = a->next_seq++,
        .pid = child.pid,
        .launch = child.launch,
        .flags = flags,
        .starting = true,
        .started = clock_real(),
        .record = TAKE_PTR(owned),
        .record_bytes = record_bytes,
        .out = {LOOP_IO(first_ready), LOOP_IO(second_ready)},
        .in = LOOP_IO(input_ready),
        .status = LOOP_IO(status_ready),
    };
    struct wire_reader reader = wire_reader_of(str_n(record, record_bytes));
    p->tag = wire_get_str(&reader);
    p->out[0].fd = child.out;
    p->out[1].fd = child.err;
    p->in.fd = child.in;
    p->status.fd = child.status;
    list_init(&p->ended_node);
    list_init(&p->followers);
    list_init(&p->inputs);
    list_init(&p->waiters);
    loop_timer_init(&p->timer, timer_fired);
    list_append(&a->processes, &p->node);
    a->n_live++;
    supersede(a, p);
    r = loop_set(&a->loop, &p->out[0], EPOLLIN);
    if (r == 0)
        r = loop_set(&a->loop, &p->out[1], EPOLLIN);
    if (r == 0)
        r = loop_set(&a->loop, &p->status, EPOLLIN);
    if (r < 0) {
        (void)kill(p->pid, SIGKILL);
        process_forget(p);
        return r;
    }
    *ret_process = p;
    /* While the child starts there is time for what its first output will need. */
    struct iovec iov[2];
    (void)output_reserve(&p->output, 1, iov);
    return 0;
}

struct agent_process *process_find(struct agent *a, struct wire_reader *r, bool ended_too, struct failure *f)
{
    uint8_t by = wire_get_u8(r);
    uint32_t pid = wire_get_u32(r);
    struct str tag = wire_get_str(r);
    f->code = ERR_OK;
    if (r->bad || by > 1)
        return NULL;
    LIST_FOREACH (struct agent_process, p, &a->processes, node) {
        bool is_it = by == 0 ? (uint32_t)p->pid == pid : p->flags & WIRE_PROC_TAG && str_eq(p->tag, tag);
        if (is_it && !p->starting && !p->superseded && (!p->reaped || ended_too))
            return p;
    }
    if (by == 0)
        (void)failure_set(f, ERR_NOT_FOUND, "process with pid %u not found", pid);
    else
        (void)failure_set(f, ERR_NOT_FOUND, "process with tag %.*s not found", STR_ARG_MAX(tag, 1024));
    return NULL;
}

bool process_reaped(struct agent *a, pid_t pid, int status)
{
    LIST_FOREACH (struct agent_process, p, &a->processes, node) {
        if (p->pid != pid || p->reaped)
            continue;
        p->reaped = true;
        p->flags |= WIRE_PROC_ENDED;
        p->how = WIFSIGNALED(status) ? WIRE_SIGNALED : WIRE_EXITED;
        p->code = (uint32_t)(WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        signal_reaped(p);
        loop_close(&a->loop, &p->in);
        input_fail_all(p, EPIPE);
        loop_timer_set(&a->loop, &p->timer, a->config.linger);
        if (p->starting)
            started(p); /* may forget it */
        else
            check_done(p);
        return true;
    }
    return false;
}

void process_forget_all(struct agent *a)
{
    LIST_FOREACH (struct agent_process, p, &a->processes, node) {
        if (!p->reaped) {
            (void)kill(-p->pid, SIGKILL);
            (void)kill(p->pid, SIGKILL);
            (void)waitpid(p->pid, NULL, 0);
            spawn_reaped(a, p->pid);
        }
        process_forget(p);
    }
}
