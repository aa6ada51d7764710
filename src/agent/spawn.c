/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/spawn.h"
#include "base/fd.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

/* Read by the kernel's OOM killer: what runs in the sandbox goes before the agent does. */
#define CHILD_OOM_SCORE "100"

struct pipes { /* [0] is read from, [1] written to */
    int in[2], out[2], err[2], status[2];
    int master, slave;
};

#define PIPES_NONE ((struct pipes){{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}, -1, -1})

static void close_all(struct pipes *p)
{
    int *pairs[] = {p->in, p->out, p->err, p->status};
    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
        pairs[i][0] = fd_close(pairs[i][0]);
        pairs[i][1] = fd_close(pairs[i][1]);
    }
    p->master = fd_close(p->master);
    p->slave = fd_close(p->slave);
}

static int open_terminal(const struct spawn *s, struct pipes *p)
{
    int unlocked = 0;
    struct termios t;
    struct winsize size = {.ws_col = s->cols, .ws_row = s->rows};
    p->master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (p->master < 0 || ioctl(p->master, TIOCSPTLCK, &unlocked) < 0)
        return -errno;
    p->slave = ioctl(p->master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (p->slave < 0 || ioctl(p->slave, TIOCSWINSZ, &size) < 0 || tcgetattr(p->slave, &t) < 0)
        return -errno;
    t.c_iflag |= IUTF8;
    /* The owner, so that programs of the user can open it by its name. */
    if (tcsetattr(p->slave, TCSANOW, &t) < 0 || fchown(p->slave, s->user->uid, (gid_t)-1) < 0)
        return -errno;
    return 0;
}

static int open_pipes(const struct spawn *s, struct pipes *p)
{
    if (pipe2(p->status, O_CLOEXEC) < 0 || fd_nonblock(p->status[0], true) < 0)
        return -errno;
    if (s->pty)
        return open_terminal(s, p);
    if (s->stdin_pipe && (pipe2(p->in, O_CLOEXEC) < 0 || fd_nonblock(p->in[1], true) < 0))
        return -errno;
    if (pipe2(p->out, O_CLOEXEC) < 0 || pipe2(p->err, O_CLOEXEC) < 0)
        return -errno;
    int r = fd_nonblock(p->out[0], true);
    return r < 0 ? r : fd_nonblock(p->err[0], true);
}

static void set_oom_score(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && write(fd, CHILD_OOM_SCORE, sizeof(CHILD_OOM_SCORE) - 1) < 0) {
        /* it stays as killable as the agent then */
    }
    (void)fd_close(fd);
}

/* Only returns when nothing could be executed. */
static struct spawn_report exec_search(const struct spawn *s)
{
    char path[PATH_TEXT_MAX];
    struct str list = str_of(s->search), dir;
    int denied = 0;
    const char *cmd = s->argv[0];
    if (strchr(cmd, '/')) {
        (void)execve(cmd, s->argv, s->envp);
        return (struct spawn_report){SPAWN_EXEC, errno};
    }
    size_t n = strlen(cmd);
    while (n && str_split(&list, ':', &dir)) {
        if (dir.n == 0)
            dir = STR(".");
        if (dir.n + 1 + n >= sizeof(path))
            continue;
        memcpy(path, dir.p, dir.n);
        path[dir.n] = '/';
        memcpy(path + dir.n + 1, cmd, n + 1);
        (void)execve(path, s->argv, s->envp);
        if (errno == EACCES)
            denied = errno;
        else if (errno != ENOENT && errno != ENOTDIR)
            return (struct spawn_report){SPAWN_EXEC, errno};
    }
    return (struct spawn_report){SPAWN_SEARCH, denied ? denied : ENOENT};
}

static struct spawn_report run_child(const struct spawn *s, const struct pipes *p)
{
    sigset_t none;
    (void)sigemptyset(&none);
    /* The only one that the agent ignores (agent.c saw to the others), and the only one that this child would pass on. */
    if (signal(SIGPIPE, SIG_DFL) == SIG_ERR || sigprocmask(SIG_SETMASK, &none, NULL) < 0 || setsid() < 0)
        return (struct spawn_report){SPAWN_SETUP, errno};
    int in = s->pty ? p->slave : s->stdin_pipe ? p->in[0] : s->null_fd;
    if (s->pty && ioctl(p->slave, TIOCSCTTY, 0) < 0)
        return (struct spawn_report){SPAWN_SETUP, errno};
    if (dup2(in, 0) < 0 || dup2(s->pty ? p->slave : p->out[1], 1) < 0 || dup2(s->pty ? p->slave : p->err[1], 2) < 0)
        return (struct spawn_report){SPAWN_SETUP, errno};
    /* All are close-on-exec at birth; this is for those that came into the agent otherwise. 4: CLOSE_RANGE_CLOEXEC, Linux 5.11 */
    (void)syscall(SYS_close_range, 3, ~0U, 4);
    set_oom_score();
    (void)umask(022);
    if (setrlimit(RLIMIT_NOFILE, s->nofile) < 0)
        return (struct spawn_report){SPAWN_SETUP, errno};
    if (setgroups(s->user->n_groups, s->user->groups) < 0 || setresgid(s->user->gid, s->user->gid, s->user->gid) < 0 ||
        setresuid(s->user->uid, s->user->uid, s->user->uid) < 0)
        return (struct spawn_report){SPAWN_USER, errno};
    if (chdir(s->cwd) < 0)
        return (struct spawn_report){SPAWN_CWD, errno};
    return exec_search(s);
}

int spawn(const struct spawn *s, struct spawned *ret_spawned)
{
    struct pipes p = PIPES_NONE;
    int r = open_pipes(s, &p);
    /* One descriptor for each direction: the loop knows a descriptor by one set of events. */
    int in = r == 0 && s->pty ? fcntl(p.master, F_DUPFD_CLOEXEC, 3) : -1;
    if (r == 0 && s->pty && in < 0)
        r = -errno;
    pid_t pid = r == 0 ? fork() : -1;
    if (r == 0 && pid < 0)
        r = -errno;
    if (pid == 0) {
        struct spawn_report report = run_child(s, &p);
        _exit(write(p.status[1], &report, sizeof(report)) == sizeof(report) ? 127 : 126);
    }
    if (r == 0) {
        ret_spawned->pid = pid;
        ret_spawned->status = TAKE_FD(p.status[0]);
        if (s->pty) {
            ret_spawned->in = TAKE_FD(in);
            ret_spawned->out = TAKE_FD(p.master);
            ret_spawned->err = -1;
        } else {
            ret_spawned->in = TAKE_FD(p.in[1]);
            ret_spawned->out = TAKE_FD(p.out[0]);
            ret_spawned->err = TAKE_FD(p.err[0]);
        }
    }
    (void)fd_close(in);
    close_all(&p);
    return r;
}
