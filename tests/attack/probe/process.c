/* SPDX-License-Identifier: Apache-2.0 */
/* Other processes: seeing, stopping and becoming them. Arguments: a pid, a path below /proc. */
#include "probe.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NR_PIDFD_GETFD = 438, NR_PROCESS_MRELEASE = 448 };

static pid_t pid_argument(int argc, char **argv)
{
    return (pid_t)number(argument(argc, argv, 0));
}

static int do_kill(int argc, char **argv)
{
    return result_of(kill(pid_argument(argc, argv), (int)number(argument(argc, argv, 1))));
}

static int do_pidfd_signal(int argc, char **argv)
{
    int fd = (int)syscall(SYS_pidfd_open, pid_argument(argc, argv), 0);
    if (fd < 0)
        return errno;
    return result_of(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0));
}

static int do_ptrace_attach(int argc, char **argv)
{
    pid_t pid = pid_argument(argc, argv);
    int r = result_of(ptrace(PTRACE_ATTACH, pid, 0, 0));
    if (r == REACHED) {
        (void)waitpid(pid, NULL, __WALL);
        (void)ptrace(PTRACE_DETACH, pid, 0, 0);
    }
    return r;
}

static int do_ptrace_seize(int argc, char **argv)
{
    return result_of(ptrace(PTRACE_SEIZE, pid_argument(argc, argv), 0, 0));
}

static int do_vm_read(int argc, char **argv)
{
    char byte;
    struct iovec to = {&byte, 1}, from = {(void *)0x1000, 1};
    return REACHED_IF(process_vm_readv(pid_argument(argc, argv), &to, 1, &from, 1, 0), EFAULT);
}

static int do_vm_write(int argc, char **argv)
{
    char byte = 0;
    struct iovec from = {&byte, 1}, to = {(void *)0x1000, 1};
    return REACHED_IF(process_vm_writev(pid_argument(argc, argv), &from, 1, &to, 1, 0), EFAULT);
}

static int do_getfd(int argc, char **argv)
{
    int pidfd = (int)syscall(SYS_pidfd_open, pid_argument(argc, argv), 0);
    if (pidfd < 0)
        return errno;
    int fd = (int)number(argument(argc, argv, 1));
    return REACHED_IF(syscall(NR_PIDFD_GETFD, pidfd, fd, 0), EBADF);
}

static int do_kcmp(int argc, char **argv)
{
    return result_of(syscall(SYS_kcmp, pid_argument(argc, argv), getpid(), 1 /* KCMP_VM */, 0, 0));
}

static int do_prlimit(int argc, char **argv)
{
    struct rlimit now;
    return result_of(prlimit(pid_argument(argc, argv), RLIMIT_NOFILE, NULL, &now));
}

/* Raising a hard limit. */
static int do_raise_limit(int argc, char **argv)
{
    int what = (int)number(argument(argc, argv, 0));
    struct rlimit now;
    if (getrlimit(what, &now) < 0)
        return errno;
    if (now.rlim_max == RLIM_INFINITY)
        return ABSENT;
    struct rlimit more = {now.rlim_max + 1, now.rlim_max + 1};
    return result_of(setrlimit(what, &more));
}

/* Opens for reading and reads a byte. */
static int do_read_file(int argc, char **argv)
{
    char text[65] = "";
    int fd = open(argument(argc, argv, 0), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return errno;
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
        return REACHED;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    if (n < 0)
        return errno;
    for (ssize_t i = 0; i < n; i++)
        if (text[i] < ' ' || text[i] > '~')
            text[i] = '.';
    note("%zd bytes: %s", n, text);
    return n ? REACHED : ENODATA;
}

static int do_read_link(int argc, char **argv)
{
    char text[4096] = "";
    ssize_t n = readlink(argument(argc, argv, 0), text, sizeof(text) - 1);
    if (n >= 0)
        note("%s", text);
    return result_of(n);
}

static int do_open_read_write(int argc, char **argv)
{
    int fd = open(argument(argc, argv, 0), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    return result_of(fd);
}

/* As do_read_file(), of memory that is surely mapped somewhere: an error of the address is not a refusal. */
static int do_memory(int argc, char **argv)
{
    char path[64], byte;
    (void)snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid_argument(argc, argv));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return errno;
    ssize_t n = pread(fd, &byte, 1, 0x1000);
    if (n == 0) { /* what the kernel says of memory that is not ours to see, or gone */
        note("opened, but reads nothing");
        return EACCES;
    }
    return REACHED_IF(n, EIO, EFAULT);
}

static int do_mrelease(int argc, char **argv)
{
    int fd = (int)syscall(SYS_pidfd_open, pid_argument(argc, argv), 0);
    if (fd < 0)
        return errno;
    return REACHED_IF(syscall(NR_PROCESS_MRELEASE, fd, 0), EINVAL);
}

/* Positive: what debuggers do to their own children. */
static int do_ptrace_child(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    static volatile long value = 41;
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        (void)ptrace(PTRACE_TRACEME, 0, 0, 0);
        (void)raise(SIGSTOP);
        _exit((int)value);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFSTOPPED(status))
        return errno ? errno : ESRCH;
    if (ptrace(PTRACE_POKEDATA, pid, (void *)(uintptr_t)&value, 42L) < 0 || ptrace(PTRACE_CONT, pid, 0, 0) < 0)
        return errno;
    if (waitpid(pid, &status, 0) < 0)
        return errno;
    return WIFEXITED(status) && WEXITSTATUS(status) == 42 ? REACHED : EIO;
}

/* Positive: a program that is in memory only. */
static int do_memfd_exec(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    char block[65536];
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), status;
    int to = (int)syscall(SYS_memfd_create, "probe", 1U);
    if (from < 0 || to < 0)
        return errno;
    for (ssize_t n; (n = read(from, block, sizeof(block))) > 0;)
        if (write(to, block, (size_t)n) != n)
            return errno;
    pid_t pid = fork();
    if (pid == 0) {
        char *args[] = {(char[]){"probe"}, NULL}, *env[] = {NULL};
        (void)syscall(SYS_execveat, to, "", args, env, AT_EMPTY_PATH);
        _exit(1);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return errno;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? REACHED : ENOEXEC;
}

/* Writes into a running program's own file. */
static int do_overwrite_exe(int argc, char **argv)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%s/exe", argument(argc, argv, 0));
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    return REACHED_IF(fd, ETXTBSY);
}

const struct verb process_verbs[] = {
    {"kill", do_kill},
    {"pidfd_signal", do_pidfd_signal},
    {"ptrace_attach", do_ptrace_attach},
    {"ptrace_seize", do_ptrace_seize},
    {"vm_read", do_vm_read},
    {"vm_write", do_vm_write},
    {"getfd", do_getfd},
    {"kcmp", do_kcmp},
    {"prlimit", do_prlimit},
    {"raise_limit", do_raise_limit},
    {"read", do_read_file},
    {"readlink", do_read_link},
    {"open_rw", do_open_read_write},
    {"memory", do_memory},
    {"mrelease", do_mrelease},
    {"ptrace_child", do_ptrace_child},
    {"memfd_exec", do_memfd_exec},
    {"overwrite_exe", do_overwrite_exe},
};
const size_t n_process_verbs = COUNT(process_verbs);
