/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/workers/child.h"
#include "base/child.h"
#include "base/fd.h"
#include "kernel/mount.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CANT_START = 126, BY_SIGNAL = 128 };

/* ---- signals ---- */

int child_hold_signals(struct child_signals *ret_signals, struct err *err)
{
    static const int ending[] = {SIGINT, SIGTERM, SIGHUP};
    struct child_signals s = {.fd = -1};
    sigset_t held;
    (void)sigemptyset(&held);
    if (sigprocmask(SIG_BLOCK, NULL, &s.before) < 0)
        return err_errno(err, errno, "read which signals are blocked");
    for (size_t i = 0; i < ARRAY_SIZE(ending); i++) {
        struct sigaction now;
        if (sigaction(ending[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN && !sigismember(&s.before, ending[i]))
            (void)sigaddset(&held, ending[i]);
    }
    s.fd = signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s.fd < 0 || sigprocmask(SIG_BLOCK, &held, NULL) < 0) {
        s.fd = fd_close(s.fd);
        return err_errno(err, errno, "block signals");
    }
    (void)signal(SIGPIPE, SIG_IGN);
    *ret_signals = s;
    return 0;
}

/* It is never read from: what came stays pending. */
bool child_is_told(const struct child_signals *s)
{
    struct pollfd p = {.fd = s->fd, .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

int child_told(struct err *err)
{
    return err_set(err, ERR_CANCELED, "told to end");
}

void child_release_signals(struct child_signals *s)
{
    s->fd = fd_close(s->fd);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, &s->before, NULL);
}

/* ---- in the child ---- */

NORETURN static void execute(char *const argv[], const struct child_signals *s)
{
    (void)signal(SIGPIPE, SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, &s->before, NULL);
    (void)execvp(argv[0], argv);
    _exit(CHILD_NO_PROGRAM);
}

/* The directory may lie where device nodes and programs are not to be: nobody but the program sees it without that. */
static int open_up(const char *dir)
{
    struct mount_attr attr = {.attr_clr = MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOSUID};
    AUTO_CLOSE int fd = -1;
    int r = mount_clone(AT_FDCWD, dir, &fd);
    if (r == 0 && mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
        r = -errno;
    return r ? r : mount_attach(fd, AT_FDCWD, dir);
}

/* As the first process of a process id namespace: when it ends, all in there do. */
NORETURN static void execute_below(char *const argv[], const struct child_how *how)
{
    int status = 0;
    if (close_range(3, ~0U, 0) < 0 || mount_unshare() < 0 ||
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 || open_up(how->dir) < 0 ||
        setenv("TMPDIR", how->dir, 1) < 0)
        _exit(CANT_START);
    pid_t pid = fork();
    if (pid == 0)
        execute(argv, how->signals);
    for (pid_t ended = 0; pid > 0 && ended != pid;) {
        ended = waitpid(-1, &status, 0);
        if (ended < 0 && errno != EINTR)
            _exit(CANT_START);
    }
    _exit(pid < 0 ? CANT_START : WIFEXITED(status) ? WEXITSTATUS(status) : BY_SIGNAL + WTERMSIG(status));
}

/* parent: whose end is ours; seen from another process id namespace it has no number. */
NORETURN static void begin(char *const argv[], const struct child_how *how, int theirs, int parent)
{
    struct pollfd ended = {.fd = parent, .events = POLLIN};
    if (dup2(theirs, how->piped) < 0 || (how->to >= 0 && dup2(how->to, how->at) < 0) ||
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || poll(&ended, 1, 0) != 0)
        _exit(CANT_START);
    if (how->dir)
        execute_below(argv, how);
    execute(argv, how->signals);
}

/* ---- from outside ---- */

static pid_t clone_self(bool alone)
{
    return (pid_t)syscall(SYS_clone, (unsigned long)(SIGCHLD | (alone ? CLONE_NEWPID : 0)), NULL, NULL, NULL, NULL);
}

int child_start(char *const argv[], const struct child_how *how, struct child *ret_child, struct err *err)
{
    int p[2];
    AUTO_CLOSE int self = pidfd_open(getpid(), 0);
    if (self < 0 || pipe2(p, O_CLOEXEC) < 0)
        return err_errno(err, errno, "make a pipe");
    bool reads = how->piped == STDIN_FILENO;
    AUTO_CLOSE int theirs = p[reads ? 0 : 1];
    AUTO_CLOSE int ours = p[reads ? 1 : 0];
    pid_t pid = how->dir ? clone_self(true) : fork();
    if (pid == 0)
        begin(argv, how, theirs, self);
    if (pid < 0)
        return err_errno(err, errno, "start %s", argv[0]);
    *ret_child = (struct child){pid, TAKE_FD(ours)};
    return 0;
}

/* False: told to end before. */
static bool child_await(pid_t pid, const struct child_signals *s)
{
    AUTO_CLOSE int pidfd = pidfd_open(pid, 0);
    struct pollfd p[] = {{.fd = pidfd, .events = POLLIN}, {.fd = s->fd, .events = POLLIN}};
    if (pidfd < 0)
        return true;
    while (poll(p, ARRAY_SIZE(p), -1) < 0 && errno == EINTR)
        ;
    return p[0].revents || !p[1].revents;
}

int child_finish(struct child *c, const struct child_signals *s, const char *what, struct err *err)
{
    c->fd = fd_close(c->fd);
    if (c->pid <= 0)
        return 0;
    if (!child_await(c->pid, s))
        return child_told(err);
    int r = child_wait(c->pid);
    c->pid = 0;
    if (r < 0)
        return err_errno(err, r, "wait for %s", what);
    if (r == CHILD_NO_PROGRAM)
        return err_set(err, ERR_FAILED_PRECONDITION, "%s is not installed: apt-get install mmdebstrap tar coreutils",
                       what);
    if (r > CHILD_SIGNAL)
        return err_set(err, ERR_INTERNAL, "%s was ended by signal %d (%s); its messages are above", what,
                       r - CHILD_SIGNAL, strsignal(r - CHILD_SIGNAL));
    return r ? err_set(err, ERR_INTERNAL, "%s failed (exit code %d); its messages are above", what, r) : 0;
}

void child_abandon(struct child *c)
{
    c->fd = fd_close(c->fd);
    child_kill(c->pid);
    c->pid = 0;
}
