/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/vm/remap.h"
#include "base/child.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REMAP_CALL_USEC = 10 * 1000000, REMAP_SYSCALL_BYTES = 2 };

#ifdef __x86_64__

/* When it goes off we die, which ends the tracing. */
static void remap_alarm(usec_t after)
{
    const struct itimerval t = {.it_value = {(time_t)(after / USEC_PER_SEC), (suseconds_t)(after % USEC_PER_SEC)}};
    (void)setitimer(ITIMER_REAL, &t, NULL);
}

/* Until its next stop: whether that is at a system call, and which signal it is to get when it goes on. */
static int remap_wait(pid_t pid, bool *ret_is_call, int *ret_signal)
{
    int status = 0;
    while (waitpid(pid, &status, __WALL) < 0)
        if (errno != EINTR)
            return -errno;
    if (!WIFSTOPPED(status))
        return -ESRCH;
    *ret_is_call = WSTOPSIG(status) == (SIGTRAP | 0x80);
    *ret_signal = *ret_is_call || status >> 16 ? 0 : WSTOPSIG(status);
    return 0;
}

/* It goes on, with this signal or none, until it begins or ends a system call. */
static int remap_until(pid_t pid, int what, int signal)
{
    struct __ptrace_syscall_info info = {.op = 0};
    bool is_call = false;
    for (int r;;) {
        if (ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(intptr_t)signal) < 0)
            return -errno;
        if ((r = remap_wait(pid, &is_call, &signal)) < 0)
            return r;
        if (is_call && ptrace(PTRACE_GET_SYSCALL_INFO, pid, (void *)sizeof(info), &info) < 0)
            return -errno;
        if (is_call && info.op == what)
            return 0;
    }
}

static int remap_options(pid_t pid, intptr_t options)
{
    return ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)options) < 0 ? -errno : 0;
}

/*
 * At the begin of a call of its own, which it makes afterwards. From here on we don't end with who called us: then it
 * would end, too.
 */
static int remap_call(pid_t pid, uint64_t at, uint64_t bytes, int fd)
{
    struct user_regs_struct own, regs;
    int r = ptrace(PTRACE_GETREGS, pid, NULL, &own) < 0 || prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0) < 0 ? -errno : 0;
    r = r ? r : remap_options(pid, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
    if (r < 0)
        return r;
    remap_alarm(REMAP_CALL_USEC);
    regs = own;
    regs.orig_rax = SYS_mmap;
    regs.rdi = at;
    regs.rsi = bytes;
    regs.rdx = PROT_READ | PROT_WRITE;
    regs.r10 = MAP_PRIVATE | MAP_FIXED;
    regs.r8 = (unsigned long long)fd;
    regs.r9 = 0;
    if (ptrace(PTRACE_SETREGS, pid, NULL, &regs) < 0 || remap_until(pid, PTRACE_SYSCALL_INFO_EXIT, 0) < 0 ||
        ptrace(PTRACE_GETREGS, pid, NULL, &regs) < 0)
        return -ESRCH;
    own.rip -= REMAP_SYSCALL_BYTES;
    own.rax = own.orig_rax;
    own.orig_rax = UINT64_MAX; /* it is in none, so a signal restarts none */
    if (ptrace(PTRACE_SETREGS, pid, NULL, &own) < 0 || remap_options(pid, PTRACE_O_TRACESYSGOOD) < 0)
        return -ESRCH;
    return regs.rax == at ? 0 : regs.rax > UINT64_MAX - 4095 ? -(int)(UINT64_MAX - regs.rax + 1) : -EIO;
}

static int remap_trace(int pidfd, pid_t pid, uint64_t at, uint64_t bytes, int fd)
{
    bool is_call = false;
    int signal = 0;
    if (ptrace(PTRACE_SEIZE, pid, NULL, (void *)PTRACE_O_TRACESYSGOOD) < 0)
        return -errno;
    /* Had it ended before, the number may be another's now; traced, it keeps it. */
    if (pidfd_send_signal(pidfd, 0, NULL, 0) < 0 || ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) < 0)
        return -errno;
    int r = remap_wait(pid, &is_call, &signal);
    r = r ? r : remap_until(pid, PTRACE_SYSCALL_INFO_ENTRY, signal);
    return r ? r : remap_call(pid, at, bytes, fd);
}

/* By a process of its own, whose end leaves nothing traced. */
int remap(int pidfd, pid_t pid, uint64_t at, uint64_t bytes, int fd, usec_t patience)
{
    const pid_t tracer = fork();
    if (tracer == 0) {
        (void)signal(SIGALRM, SIG_DFL);
        if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
            _exit(EIO);
        remap_alarm(patience);
        _exit(-remap_trace(pidfd, pid, at, bytes, fd));
    }
    int r = tracer < 0 ? -errno : child_wait(tracer);
    return r > CHILD_SIGNAL ? -ETIMEDOUT : r > 0 ? -r : r;
}

#else

int remap(int pidfd UNUSED, pid_t pid UNUSED, uint64_t at UNUSED, uint64_t bytes UNUSED, int fd UNUSED,
          usec_t patience UNUSED)
{
    return -EOPNOTSUPP;
}

#endif
