/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/exec/spawn.h"
#include "agent/agent.h"
#include "base/fd.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

/* Read by the kernel's OOM killer: what runs in the sandbox goes before the agent does. */
#define CHILD_OOM_SCORE "100"

enum { STACK_BYTES = 8192, CHILD_STATUS = 3 };

/* System calls that touch nothing but their arguments, errno least of all: for a child that shares the agent's memory.
 * The kernel's answer: -errno when it failed. */
#if defined(__x86_64__)
static long rawcall(long number, long a, long b, long c, long d)
{
    long r;
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(r) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
    return r;
}
#elif defined(__aarch64__)
static long rawcall(long number, long a, long b, long c, long d)
{
    register long call __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(call), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
}
#else
#error "add the system call instruction of this processor here"
#endif

struct pipes { /* [0] is read from, [1] written to */
    int in[2], out[2], err[2], status[2];
    int master, slave;
};

#define PIPES_NONE ((struct pipes){{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}, -1, -1})

static void spawn_close_all(struct pipes *p)
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
    if (tcsetattr(p->slave, TCSANOW, &t) < 0 || fchown(p->slave, s->uid, (gid_t)-1) < 0)
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

/*
 * ---- the child, until it executes ----
 *
 * It shares the agent's memory: it reads what its `struct spawn_launch` says, writes to nothing but that (its stack is
 * in it), and calls no function that knows of more, such as errno.
 */

struct spawn_launch {
    struct agent *agent;
    struct list node; /* in agent->launches */
    struct arena arena;
    pid_t pid;
    const struct spawn *s;
    int in, out, err, status;
    bool is_terminal, has_slash;
    struct str cmd;           /* NUL-terminated */
    char path[PATH_TEXT_MAX]; /* that is tried */
    char stack[STACK_BYTES] __attribute__((aligned(16)));
};

/* As the kernel has it on x86-64 and arm64. */
struct kernel_sigaction {
    uintptr_t handler;
    unsigned long flags;
    uintptr_t restorer;
    uint64_t mask;
};

#define ALONE __attribute__((no_sanitize("address", "undefined")))

static inline ALONE long call(long number, long a, long b, long c, long d)
{
    return rawcall(number, a, b, c, d);
}

static inline ALONE long become(int fd, int number)
{
    return fd == number ? call(SYS_fcntl, fd, F_SETFD, 0, 0) : call(SYS_dup3, fd, number, 0, 0);
}

/* -errno of what failed; returns only then. */
static inline ALONE long spawn_prepare(struct spawn_launch *l, const struct spawn *s, enum spawn_stage *ret_stage)
{
    static const struct kernel_sigaction standard = {0};
    static const uint64_t none = 0;
    long r;
    *ret_stage = SPAWN_SETUP;
    /* The only one that the agent ignores (agent.c saw to the others), and the only one that this child would pass
     * on. */
    if ((r = call(SYS_rt_sigaction, SIGPIPE, (long)&standard, 0, sizeof(none))) < 0 ||
        (r = call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&none, 0, sizeof(none))) < 0 ||
        (r = call(SYS_setsid, 0, 0, 0, 0)) < 0)
        return r;
    if (l->is_terminal && (r = call(SYS_ioctl, l->in, TIOCSCTTY, 0, 0)) < 0)
        return r;
    if ((r = become(l->in, 0)) < 0 || (r = become(l->out, 1)) < 0 || (r = become(l->err, 2)) < 0)
        return r;
    /*
     * All others are close-on-exec, but the exec may take long, and whoever waits for the end of another process' pipe
     * would wait as long. Before Linux 5.9, which has no close_range(), that is so.
     */
    if (l->status != CHILD_STATUS && (r = call(SYS_dup3, l->status, CHILD_STATUS, O_CLOEXEC, 0)) < 0)
        return r;
    l->status = CHILD_STATUS;
    (void)call(SYS_close_range, CHILD_STATUS + 1, ~0U, 0, 0);
    (void)call(SYS_umask, 022, 0, 0, 0);
    if ((r = call(SYS_prlimit64, 0, RLIMIT_NOFILE, (long)s->nofile, 0)) < 0)
        return r;
    *ret_stage = SPAWN_USER;
    if ((r = call(SYS_setgroups, (long)s->n_groups, (long)s->groups, 0, 0)) < 0 ||
        (r = call(SYS_setresgid, s->gid, s->gid, s->gid, 0)) < 0 ||
        (r = call(SYS_setresuid, s->uid, s->uid, s->uid, 0)) < 0)
        return r;
    *ret_stage = SPAWN_CWD;
    return call(SYS_chdir, (long)s->cwd, 0, 0, 0);
}

/* The same. */
static inline ALONE long execute(struct spawn_launch *l, const struct spawn *s, enum spawn_stage *ret_stage)
{
    struct str list = s->search, dir;
    bool denied = false;
    *ret_stage = SPAWN_EXEC;
    if (l->has_slash)
        return call(SYS_execve, (long)s->argv[0], (long)s->argv, (long)s->envp, 0);
    while (l->cmd.n && str_split(&list, ':', &dir)) {
        if (dir.n == 0)
            dir = STR(".");
        if (dir.n + 1 + l->cmd.n >= sizeof(l->path))
            continue;
        memcpy(l->path, dir.p, dir.n);
        l->path[dir.n] = '/';
        memcpy(l->path + dir.n + 1, l->cmd.p, l->cmd.n + 1);
        long r = call(SYS_execve, (long)l->path, (long)s->argv, (long)s->envp, 0);
        if (r != -EACCES && r != -ENOENT && r != -ENOTDIR)
            return r;
        denied |= r == -EACCES;
    }
    *ret_stage = SPAWN_SEARCH;
    return denied ? -EACCES : -ENOENT;
}

static ALONE int spawn_run_child(void *arg)
{
    struct spawn_launch *l = arg;
    struct spawn_report report;
    long r = spawn_prepare(l, l->s, &report.stage);
    if (r >= 0)
        r = execute(l, l->s, &report.stage);
    report.errnum = (int)-r;
    bool told = call(SYS_write, l->status, (long)&report, sizeof(report), 0) == sizeof(report);
    (void)call(SYS_exit_group, told ? 127 : 126, 0, 0, 0);
    return 0; /* never */
}

/* ---- the agent ---- */

static void launch_free(struct spawn_launch *l)
{
    struct arena arena = l->arena; /* holds the launch */
    list_remove(&l->node);
    /* The child's change of ids was one of the shared memory, too. */
    (void)prctl(PR_SET_DUMPABLE, l->agent->dumpable);
    arena_fini(&arena);
}

/* False: it could not be set, and the OOM killer may choose the agent first. */
static bool prefer_to_agent(pid_t pid)
{
    char path[40];
    (void)snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)pid);
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    return fd >= 0 && write(fd, CHILD_OOM_SCORE, sizeof(CHILD_OOM_SCORE) - 1) > 0;
}

void spawn_executed(struct spawn_launch *l)
{
    (void)prefer_to_agent(l->pid);
    launch_free(l);
}

void spawn_reaped(struct agent *a, pid_t pid)
{
    LIST_FOREACH (struct spawn_launch, l, &a->launches, node)
        if (l->pid == pid)
            launch_free(l);
}

void spawn_forget_all(struct agent *a)
{
    LIST_FOREACH (struct spawn_launch, l, &a->launches, node) {
        (void)kill(l->pid, SIGKILL);
        (void)waitpid(l->pid, NULL, 0);
        launch_free(l);
    }
}

/*
 * Linux 5.16 or later? Before that a core dump ends all processes that share the memory, so whoever may send a signal
 * to the child could end the agent; and suid_dumpable 2 does not keep the child from dumping.
 */
static bool dumps_one_process(void)
{
    struct utsname u;
    uint64_t major = 0, minor = 0;
    if (uname(&u) < 0)
        return false;
    struct str release = str_of(u.release), first, second;
    return str_split(&release, '.', &first) && str_split(&release, '.', &second) && str_to_u64(first, &major) == 0 &&
           (major > 5 || (major == 5 && str_to_u64(second, &minor) == 0 && minor >= 16));
}

bool spawn_may_share(void)
{
    char text[4];
    AUTO_CLOSE int fd = open("/proc/sys/fs/suid_dumpable", O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, text, sizeof(text)) > 0 && (text[0] == '0' || (text[0] == '2' && dumps_one_process()));
}

int spawn(struct agent *a, const struct spawn *s, struct arena *arena, struct spawned *ret_spawned)
{
    struct pipes p = PIPES_NONE;
    int r = open_pipes(s, &p);
    /* One descriptor for each direction: the loop knows a descriptor by one set of events. */
    int in = r == 0 && s->pty ? fcntl(p.master, F_DUPFD_CLOEXEC, 3) : -1;
    if (r == 0 && s->pty && in < 0)
        r = -errno;
    if (r == 0) {
        struct spawn_launch *l = arena_alloc(arena, sizeof(*l));
        l->agent = a;
        l->s = s;
        l->in = s->pty ? p.slave : s->stdin_pipe ? p.in[0] : a->null_fd;
        l->out = s->pty ? p.slave : p.out[1];
        l->err = s->pty ? p.slave : p.err[1];
        l->status = p.status[1];
        l->is_terminal = s->pty;
        l->cmd = str_of(s->argv[0]);
        l->has_slash = str_find_char(l->cmd, '/') >= 0;
        l->pid = clone(spawn_run_child, l->stack + sizeof(l->stack), SIGCHLD | (a->spawns_share ? CLONE_VM : 0), l);
        if (l->pid < 0) {
            r = -errno;
        } else {
            l->arena = *arena;
            *arena = ARENA_INIT;
            list_append(&a->launches, &l->node);
            ret_spawned->launch = l;
            ret_spawned->pid = l->pid;
            ret_spawned->status = TAKE_FD(p.status[0]);
        }
    }
    if (r == 0 && s->pty) {
        ret_spawned->in = TAKE_FD(in);
        ret_spawned->out = TAKE_FD(p.master);
        ret_spawned->err = -1;
    } else if (r == 0) {
        ret_spawned->in = TAKE_FD(p.in[1]);
        ret_spawned->out = TAKE_FD(p.out[0]);
        ret_spawned->err = TAKE_FD(p.err[0]);
    }
    (void)fd_close(in);
    spawn_close_all(&p);
    return r;
}
