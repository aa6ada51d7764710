/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/agent.h"
#include "agent/exec/process.h"
#include "agent/exec/spawn.h"
#include "agent/job.h"
#include "agent/sink.h"
#include "base/fd.h"
#include "base/mem.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- signals ---- */

/* Ignored signals survive exec: those that the process which started us ignored must not reach the programs of a
 * sandbox. */
enum { SIGNALS = 64 };

/* The C library refuses to touch the two that it keeps for itself (32 and 33), which can be ignored all the same: the
 * kernel is asked. */
/* None is ignored any more. Handlers stay: they end with exec. Async-signal-safe. */
static void signals_unignore(void)
{
    struct { /* as the kernel has it on x86-64 and arm64 */
        uintptr_t handler;
        unsigned long flags;
        uintptr_t restorer;
        uint64_t mask;
    } have, none = {.handler = (uintptr_t)SIG_DFL};
    for (int i = 1; i <= SIGNALS; i++)
        if (syscall(SYS_rt_sigaction, i, NULL, &have, sizeof(have.mask)) == 0 && have.handler == (uintptr_t)SIG_IGN)
            (void)syscall(SYS_rt_sigaction, i, &none, NULL, sizeof(none.mask));
}

enum { REAPED_PER_TURN = 256, NOFILE_WANTED = 65536 };

static void agent_reap(struct agent *a)
{
    int status;
    a->zombies = true;
    for (int i = 0; i < REAPED_PER_TURN; i++) {
        pid_t pid = waitpid(-1, &status, WNOHANG | __WALL);
        if (pid <= 0) {
            a->zombies = false;
            return;
        }
        spawn_reaped(a, pid);
        if (!process_reaped(a, pid, status))
            job_reaped(a, pid);
    }
}

static void signals_ready(struct loop_io *io, uint32_t events UNUSED)
{
    struct agent *a = container_of(io, struct agent, signals);
    struct signalfd_siginfo info[8];
    while (read(io->fd, info, sizeof(info)) == sizeof(info))
        continue;
    agent_reap(a);
}

static void control_ready(struct loop_io *io, uint32_t events UNUSED)
{
    struct agent *a = container_of(io, struct agent, control);
    struct control_session order;
    int fd = -1;
    size_t n_fds = 0;
    ssize_t r = fd_recv(io->fd, &order, sizeof(order), &fd, 1, &n_fds);
    if (r == -EAGAIN)
        return;
    if (r == 0 || r == -ECONNRESET) {
        a->control_lost = true;
        return;
    }
    if (r == sizeof(order) && order.what == CONTROL_SESSION && n_fds == 1) {
        order.id[sizeof(order.id) - 1] = order.template_id[sizeof(order.template_id) - 1] = 0;
        a->identity = order;
        session_start(&a->session, TAKE_FD(fd));
    }
    if (n_fds)
        (void)fd_close(fd);
}

/* A listening socket: another session. */
static void control_accepts(struct loop_io *io, uint32_t events UNUSED)
{
    struct agent *a = container_of(io, struct agent, control);
    /* cppcheck-suppress nullPointer ; who connected may be left out: accept(2) */
    int fd = accept4(io->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        session_start(&a->session, fd);
    else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
        a->control_lost = true;
}

static int control_start(struct agent *a, int control)
{
    int is_listening = 0, type = SOCK_STREAM;
    socklen_t n = sizeof(type), m = sizeof(is_listening);
    (void)getsockopt(control, SOL_SOCKET, SO_TYPE, &type, &n);
    (void)getsockopt(control, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &m);
    int r = fd_nonblock(control, true);
    r = r ? r : fd_cloexec(control, true);
    a->control_is_session = type == SOCK_STREAM && !is_listening;
    if (r == 0 && a->control_is_session) {
        session_start(&a->session, control);
        return 0;
    }
    a->control = is_listening ? LOOP_IO(control_accepts) : LOOP_IO(control_ready);
    a->control.fd = control;
    return r ? r : loop_set(&a->loop, &a->control, EPOLLIN);
}

int agent_init(struct agent *a, const struct agent_config *config, int control)
{
    sigset_t set;
    *a = (struct agent){.config = *config,
                        .control = LOOP_IO(control_ready),
                        .signals = LOOP_IO(signals_ready),
                        .null_fd = -1,
                        .attributes = STR(WIRE_ATTRIBUTES)};
    list_init(&a->processes);
    list_init(&a->ended);
    list_init(&a->jobs);
    list_init(&a->waiting_jobs);
    list_init(&a->sinks);
    list_init(&a->launches);
    a->spawns_share = spawn_may_share();
    a->dumpable = prctl(PR_GET_DUMPABLE);
    session_init(&a->session, a);
    answers_init(a);

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    signals_unignore();
    if (sigprocmask(SIG_SETMASK, &set, NULL) < 0 || signal(SIGPIPE, SIG_IGN) == SIG_ERR)
        return -errno;
    a->signals.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    a->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (a->signals.fd < 0 || a->null_fd < 0)
        return -errno;
    if (getrlimit(RLIMIT_NOFILE, &a->nofile) < 0)
        return -errno;
    struct rlimit all = {.rlim_cur = MIN(a->nofile.rlim_max, (rlim_t)NOFILE_WANTED), .rlim_max = a->nofile.rlim_max};
    if (all.rlim_cur > a->nofile.rlim_cur && setrlimit(RLIMIT_NOFILE, &all) < 0)
        return -errno;
    int r = loop_init(&a->loop);
    if (r == 0)
        r = loop_set(&a->loop, &a->signals, EPOLLIN);
    return r ? r : control_start(a, control);
}

int agent_run(struct agent *a)
{
    bool busy = session_settle(&a->session); /* one that was there from the start: it says hello */
    while (!a->control_lost) {
        int r = loop_turn(&a->loop, busy || a->zombies);
        if (r < 0)
            return r;
        if (a->zombies)
            agent_reap(a);
        busy = session_settle(&a->session);
        a->control_lost |= a->control_is_session && a->session.io.fd < 0;
    }
    return 0;
}

void agent_fini(struct agent *a)
{
    session_fini(&a->session);
    answers_fini(a);
    process_forget_all(a);
    spawn_forget_all(a);
    sink_close_all(a);
    job_forget_all(a);
    loop_close(&a->loop, &a->control);
    loop_close(&a->loop, &a->signals);
    a->null_fd = fd_close(a->null_fd);
    mem_free(TAKE_PTR(a->hello));
    loop_fini(&a->loop);
}
