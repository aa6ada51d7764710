/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/workers/renewer.h"
#include "base/child.h"
#include "base/fd.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATIENCE_MS = 20000 };

int renewer_run(const char *program)
{
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (dup2(null, STDIN_FILENO) == STDIN_FILENO && dup2(STDERR_FILENO, STDOUT_FILENO) == STDOUT_FILENO)
            (void)execv(program, CHILD_ARGV(program, "domain", "renew"));
        _exit(127);
    }
    AUTO_CLOSE int fd = pid < 0 ? -1 : pidfd_open(pid, 0);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (fd >= 0 && poll(&p, 1, PATIENCE_MS) <= 0)
        (void)pidfd_send_signal(fd, SIGKILL, NULL, 0);
    return child_wait(pid) == 0 ? 0 : -EIO;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

NORETURN static void renewer_child(const struct renewer_spec *spec, pid_t parent)
{
    child_unblock();
    (void)prctl(PR_SET_NAME, "cove-renewer", 0, 0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    (void)close_range(STDERR_FILENO + 1, ~0U, 0);
    while (getppid() == parent) {
        struct stat before, after;
        (void)poll(NULL, 0, spec->every_ms);
        /* Nothing to say when it fails: the program has said it. */
        if (stat(spec->file, &before) == 0 && renewer_run(spec->program) == 0 && stat(spec->file, &after) == 0 &&
            !is_same(&before, &after) && getppid() == parent)
            (void)kill(parent, SIGUSR1);
    }
    _exit(0);
}

int renewer_start(const struct renewer_spec *spec, pid_t *ret_pid, struct err *err)
{
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        renewer_child(spec, parent);
    if (pid < 0)
        return err_errno(err, errno, "start the renewer");
    *ret_pid = pid;
    return 0;
}
