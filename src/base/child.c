/* SPDX-License-Identifier: Apache-2.0 */
#include "base/child.h"
#include "base/fd.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int child_wait(pid_t pid)
{
    int status = 0;
    while (pid > 0 && waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return pid <= 0 ? -ECHILD : WIFEXITED(status) ? WEXITSTATUS(status) : CHILD_SIGNAL + WTERMSIG(status);
}

void child_kill(pid_t pid)
{
    if (pid > 0)
        (void)kill(pid, SIGKILL);
    (void)child_wait(pid);
}

void child_unblock(void)
{
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

int child_ask(const char *program, char *const argv[], struct buf *output)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0) {
        if (dup2(ends[1], STDOUT_FILENO) == STDOUT_FILENO && fd_cloexec(STDOUT_FILENO, false) == 0)
            (void)execvp(program, argv);
        _exit(CHILD_NO_PROGRAM);
    }
    int r = pid < 0 ? -errno : 0;
    (void)fd_close(ends[1]);
    r = r ? r : fd_read_all(ends[0], output);
    (void)fd_close(ends[0]); /* what it still has to say ends it */
    int status = child_wait(pid);
    return r < 0 ? r : status;
}

int child_input(struct str text)
{
    AUTO_CLOSE int fd = memfd_create("cove-input", MFD_CLOEXEC);
    int r = fd < 0 ? -errno : fd_write_all(fd, text.p, text.n);
    if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
        r = -errno;
    return r < 0 ? r : TAKE_FD(fd);
}
