/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/sweeper.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "kernel/pool.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEAST_PAUSE_MS = 20, NICE = 10 };

struct sweeper {
    int pipe_fd; /* a byte: look; closed: end */
    pid_t pid;
    usec_t told;
};

NORETURN static void run(struct pool *pool, int from)
{
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    (void)setpriority(PRIO_PROCESS, 0, NICE);
    for (;;) {
        int r = pool_sweep(pool);
        if (r < 0)
            log_warn("empty the pool's trash: %s", strerror(-r));
        char told[256];
        struct pollfd p = {.fd = from, .events = POLLIN};
        if (poll(&p, 1, -1) < 0 || read(from, told, sizeof(told)) <= 0)
            _exit(0);
        /* Deleting in batches costs less than waking for each sandbox. */
        (void)poll(NULL, 0, LEAST_PAUSE_MS);
    }
}

int sweeper_start(struct pool *pool, struct sweeper **ret_sweeper, struct err *err)
{
    int p[2];
    if (pipe2(p, O_CLOEXEC | O_NONBLOCK) < 0)
        return err_errno(err, errno, "make a pipe");
    pid_t pid = fork();
    if (pid == 0) {
        (void)fd_close(p[1]);
        run(pool, p[0]);
    }
    (void)fd_close(p[0]);
    if (pid < 0) {
        (void)fd_close(p[1]);
        return err_errno(err, errno, "start the sweeper");
    }
    struct sweeper *s = mem_new(struct sweeper);
    *s = (struct sweeper){p[1], pid, 0};
    *ret_sweeper = s;
    return 0;
}

void sweeper_tick(struct sweeper *s)
{
    usec_t now = clock_mono();
    if (now - s->told < LEAST_PAUSE_MS * USEC_PER_MS)
        return;
    s->told = now;
    ssize_t ignored UNUSED = write(s->pipe_fd, "", 1); /* full: it has been told */
}

void sweeper_stop(struct sweeper *s)
{
    (void)fd_close(s->pipe_fd);
    (void)kill(s->pid, SIGTERM);
    (void)waitpid(s->pid, NULL, 0);
    mem_free(s);
}
