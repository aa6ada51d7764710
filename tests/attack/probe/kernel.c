/* SPDX-License-Identifier: Apache-2.0 */
/* Namespaces, the mount API, and system calls that reach into the whole machine. */
#include "probe.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Numbers are the same on all architectures from 424 on; these may be missing in the headers. */
enum {
    NR_OPEN_TREE = 428,
    NR_MOVE_MOUNT = 429,
    NR_FSOPEN = 430,
    NR_FSCONFIG = 431,
    NR_FSMOUNT = 432,
    NR_FSPICK = 433,
    NR_CLONE3 = 435,
    NR_MOUNT_SETATTR = 442,
    NR_QUOTACTL_FD = 443,
    NR_MEMFD_SECRET = 447,
    NR_STATMOUNT = 457,
    NR_LISTMOUNT = 458,
    NR_LSM_SET_SELF_ATTR = 460,
};

static int exit_at_once(pid_t pid)
{
    if (pid == 0)
        _exit(0);
    if (pid > 0)
        (void)waitpid(pid, NULL, __WALL);
    return result_of(pid);
}

static int do_unshare(int argc, char **argv)
{
    return result_of(unshare((int)number(argument(argc, argv, 0))));
}

static int do_clone(int argc, char **argv)
{
    return exit_at_once((pid_t)syscall(SYS_clone, number(argument(argc, argv, 0)) | SIGCHLD, NULL, NULL, NULL, NULL));
}

static int do_clone3(int argc, char **argv)
{
    struct clone_args args = {.flags = (uint64_t)number(argument(argc, argv, 0)), .exit_signal = SIGCHLD};
    return exit_at_once((pid_t)syscall(NR_CLONE3, &args, sizeof(args)));
}

static int do_setns(int argc, char **argv)
{
    int fd = open(argument(argc, argv, 0), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    return result_of(setns(fd, (int)number(argument(argc, argv, 1))));
}

static int do_setns_pidfd(int argc, char **argv)
{
    int fd = (int)syscall(SYS_pidfd_open, number(argument(argc, argv, 0)), 0);
    if (fd < 0)
        return errno;
    return result_of(setns(fd, CLONE_NEWNS));
}

static int do_mount(int argc, char **argv)
{
    const char *type = argument(argc, argv, 0), *on = argument(argc, argv, 1);
    int r = result_of(mount("none", on, type, 0, NULL));
    if (r == REACHED)
        (void)umount2(on, MNT_DETACH);
    return r;
}

static int do_remount(int argc, char **argv)
{
    return result_of(mount(NULL, argument(argc, argv, 0), NULL, MS_REMOUNT | MS_BIND, NULL));
}

static int do_bind(int argc, char **argv)
{
    const char *on = argument(argc, argv, 1);
    int r = result_of(mount(argument(argc, argv, 0), on, NULL, MS_BIND, NULL));
    if (r == REACHED)
        (void)umount2(on, MNT_DETACH);
    return r;
}

/* These two flags together are wrong for everybody who may unmount. */
static int do_umount(int argc, char **argv)
{
    return REACHED_IF(umount2(argument(argc, argv, 0), MNT_EXPIRE | MNT_DETACH), EINVAL);
}

static int do_pivot_root(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return REACHED_IF(syscall(SYS_pivot_root, "/", "/"), EINVAL, EBUSY);
}

static int do_open_tree(int argc, char **argv)
{
    return result_of(syscall(NR_OPEN_TREE, AT_FDCWD, argument(argc, argv, 0), 1 /* OPEN_TREE_CLONE */));
}

static int do_move_mount(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return REACHED_IF(syscall(NR_MOVE_MOUNT, AT_FDCWD, "/", AT_FDCWD, "/", 0), EINVAL, ELOOP, EBUSY);
}

static int do_fsopen(int argc, char **argv)
{
    return result_of(syscall(NR_FSOPEN, argument(argc, argv, 0), 0));
}

static int do_fsmount(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return REACHED_IF(syscall(NR_FSMOUNT, -1, 0, 0), EBADF);
}

static int do_fsconfig(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return REACHED_IF(syscall(NR_FSCONFIG, -1, 6, NULL, NULL, 0), EBADF, EINVAL);
}

static int do_fspick(int argc, char **argv)
{
    return result_of(syscall(NR_FSPICK, AT_FDCWD, argument(argc, argv, 0), 0));
}

static int do_mount_setattr(int argc, char **argv)
{
    struct {
        uint64_t set, clear, propagation, userns_fd;
    } attr = {0, 1 /* MOUNT_ATTR_RDONLY */, 0, 0};
    return REACHED_IF(syscall(NR_MOUNT_SETATTR, AT_FDCWD, argument(argc, argv, 0), 0, &attr, sizeof(attr)), EINVAL);
}

static int do_statmount(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return REACHED_IF(syscall(NR_STATMOUNT, NULL, NULL, 0, 0), EFAULT, EINVAL);
}

static int do_listmount(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return REACHED_IF(syscall(NR_LISTMOUNT, NULL, NULL, 0, 0), EFAULT, EINVAL);
}

static int do_bpf_map(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    union bpf_attr attr;
    memset(&attr, 0, sizeof(attr));
    attr.map_type = BPF_MAP_TYPE_ARRAY;
    attr.key_size = attr.value_size = 4;
    attr.max_entries = 1;
    return result_of(syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr)));
}

static int do_bpf_program(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    static const struct bpf_insn code[] = {{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0},
                                           {.code = BPF_JMP | BPF_EXIT}};
    union bpf_attr attr;
    memset(&attr, 0, sizeof(attr));
    attr.prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
    attr.insns = (uint64_t)(uintptr_t)code;
    attr.insn_cnt = COUNT(code);
    attr.license = (uint64_t)(uintptr_t) "GPL";
    return result_of(syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr)));
}

static int do_perf(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    struct perf_event_attr attr;
    memset(&attr, 0, sizeof(attr));
    attr.type = PERF_TYPE_SOFTWARE;
    attr.size = sizeof(attr);
    attr.config = PERF_COUNT_SW_CPU_CLOCK;
    return result_of(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0));
}

static int do_userfaultfd(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return result_of(syscall(SYS_userfaultfd, O_CLOEXEC));
}

static int do_io_uring(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    char params[120] = {0};
    return result_of(syscall(425, 4, params));
}

static int do_io_uring_register(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return REACHED_IF(syscall(427, -1, 0, NULL, 0), EBADF, EINVAL);
}

static int do_keyctl(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return result_of(syscall(SYS_keyctl, 0 /* GET_KEYRING_ID */, -3 /* session */, 0));
}

static int do_add_key(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    /* Into the process's own keyring, which ends with it. */
    return result_of(syscall(SYS_add_key, "user", "cove-probe", "x", 1, -2));
}

static int do_request_key(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return REACHED_IF(syscall(SYS_request_key, "user", "cove-probe-none", NULL, 0), ENOKEY);
}

static int do_init_module(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return REACHED_IF(syscall(SYS_init_module, "", 0, ""), ENOEXEC, EFAULT, EINVAL);
}

static int do_finit_module(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return REACHED_IF(syscall(SYS_finit_module, -1, "", 0), EBADF);
}

static int do_delete_module(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return REACHED_IF(syscall(SYS_delete_module, "cove_probe_none", O_NONBLOCK), ENOENT);
}

static int do_kexec_load(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return REACHED_IF(syscall(SYS_kexec_load, 0, 0, NULL, 0xdeadUL), EINVAL, EADDRNOTAVAIL);
}

static int do_kexec_file_load(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return REACHED_IF(syscall(SYS_kexec_file_load, -1, -1, 0, NULL, 0xdeadUL), EINVAL, EBADF);
}

static int do_reboot(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return REACHED_IF(syscall(SYS_reboot, 1, 2, 3, NULL), EINVAL);
}

static int do_swapon(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return REACHED_IF(syscall(SYS_swapon, "/cove-probe-none", 0), ENOENT);
}

static int do_swapoff(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return REACHED_IF(syscall(SYS_swapoff, "/cove-probe-none"), ENOENT, EINVAL);
}

static int do_acct(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return REACHED_IF(syscall(SYS_acct, "/cove-probe-none"), ENOENT);
}

static int do_quotactl(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return REACHED_IF(syscall(SYS_quotactl, 0x80000700, "/cove-probe-none", 0, NULL), ENOENT, EFAULT, ENODEV, ESRCH);
}

static int do_quotactl_fd(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return REACHED_IF(syscall(NR_QUOTACTL_FD, -1, 0x80000700, 0, NULL), EBADF, EINVAL);
}

static int do_settimeofday(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    /* Nothing is set, but the right to is asked for. */
    return result_of(syscall(SYS_settimeofday, NULL, NULL));
}

static int do_clock_settime(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    struct timespec t = {0, 0};
    return REACHED_IF(syscall(SYS_clock_settime, CLOCK_MONOTONIC, &t), EINVAL);
}

static int do_adjtimex(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    struct timex t = {.modes = ADJ_TICK, .tick = 1};
    return REACHED_IF(syscall(SYS_adjtimex, &t), EINVAL);
}

static int do_clock_adjtime(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    struct timex t = {.modes = ADJ_TICK, .tick = 1};
    return REACHED_IF(syscall(SYS_clock_adjtime, CLOCK_REALTIME, &t), EINVAL);
}

static int do_syslog(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    char text[256];
    return result_of(syscall(SYS_syslog, 3, text, sizeof(text)));
}

static int do_sethostname(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return REACHED_IF(syscall(SYS_sethostname, "x", -1), EINVAL);
}

static int do_setdomainname(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return REACHED_IF(syscall(SYS_setdomainname, "x", -1), EINVAL);
}

static int do_vhangup(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return result_of(syscall(SYS_vhangup)); /* in a session of its own, without a terminal */
}

static int do_personality(int argc, char **argv)
{
    return result_of(syscall(SYS_personality, number(argument(argc, argv, 0))));
}

static int do_nice(int argc, char **argv)
{
    return result_of(syscall(SYS_setpriority, 0, 0, -(int)number(argument(argc, argv, 0))));
}

static int do_scheduler(int argc, char **argv)
{
    struct sched_param p = {.sched_priority = 1};
    return result_of(syscall(SYS_sched_setscheduler, 0, (int)number(argument(argc, argv, 0)), &p));
}

static int do_deadline(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attr = {sizeof(attr), 6, 0, 0, 0, 1000000, 10000000, 10000000};
    return result_of(syscall(SYS_sched_setattr, 0, &attr, 0));
}

static int do_ioprio(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return result_of(syscall(SYS_ioprio_set, 1, 0, 1 << 13)); /* real time */
}

static int do_fanotify(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return result_of(syscall(SYS_fanotify_init, 0, O_RDONLY));
}

static int do_fanotify_unprivileged(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return result_of(syscall(SYS_fanotify_init, 0x200 /* FAN_REPORT_FID */, O_RDONLY));
}

static int do_move_pages(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return result_of(syscall(SYS_move_pages, 0, 0, NULL, NULL, NULL, 0));
}

static int do_migrate_pages(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    unsigned long nodes = 1;
    return result_of(syscall(SYS_migrate_pages, 0, 8, &nodes, &nodes));
}

static int do_lookup_dcookie(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    char path[64];
    return REACHED_IF(syscall(SYS_lookup_dcookie, 0ULL, path, sizeof(path)), EINVAL);
}

static int do_aio(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    unsigned long ctx = 0;
    return result_of(syscall(SYS_io_setup, 1, &ctx));
}

static int do_memfd_secret(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return result_of(syscall(NR_MEMFD_SECRET, 0));
}

static int do_lsm_set(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return REACHED_IF(syscall(NR_LSM_SET_SELF_ATTR, 0, NULL, 0, 0), EINVAL, EFAULT, EOPNOTSUPP);
}

static int do_unknown(int argc, char **argv)
{
    return REACHED_IF(syscall(number(argument(argc, argv, 0)), -1, -1, -1, -1, -1, -1), EINVAL, EFAULT, EBADF);
}

#if defined(__x86_64__)
static int do_iopl(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return result_of(syscall(SYS_iopl, 3));
}

static int do_ioperm(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return result_of(syscall(SYS_ioperm, 0x80, 1, 1));
}

static int do_modify_ldt(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    char ldt[64];
    return result_of(syscall(SYS_modify_ldt, 0, ldt, sizeof(ldt)));
}

/* The 32-bit entry: its numbers are others (keyctl is 288, getpid 20). */
static int do_int80(int argc, char **argv)
{
    long r;
    long nr = number(argument(argc, argv, 0));
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(nr), "b"(0L), "c"(-3L), "d"(0L) : "memory", "r8", "r9", "r10", "r11");
    r = (int)r;
    errno = r < 0 ? (int)-r : 0;
    return result_of(r < 0 ? -1 : 0);
}

static int do_x32(int argc, char **argv)
{
    return result_of(syscall(0x40000000 | number(argument(argc, argv, 0)), 0, -3, 0));
}

/* True when the tracee stands at the entry of getppid(), which is keyctl() then. */
static bool turn_into_keyctl(pid_t pid)
{
    struct user_regs_struct regs;
    if (ptrace(PTRACE_GETREGS, pid, 0, &regs) < 0 || regs.orig_rax != SYS_getppid || (long)regs.rax != -ENOSYS)
        return false;
    regs.orig_rax = SYS_keyctl;
    regs.rdi = 0;
    regs.rsi = (unsigned long)-3;
    regs.rdx = 0;
    return ptrace(PTRACE_SETREGS, pid, 0, &regs) == 0;
}

/* A traced child asks for its parent's pid; the tracer changes the question after it was asked. */
static int do_ptrace_rewrite(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    int status, p[2];
    long answer = 0;
    bool turned = false;
    if (pipe(p) < 0)
        return errno;
    pid_t pid = fork();
    if (pid == 0) {
        (void)ptrace(PTRACE_TRACEME, 0, 0, 0);
        (void)raise(SIGSTOP);
        answer = syscall(SYS_getppid);
        answer = answer < 0 ? -errno : answer;
        _exit(write(p[1], &answer, sizeof(answer)) == sizeof(answer) ? 0 : 1);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return errno;
    for (int i = 0; i < 20 && !turned; i++) {
        if (ptrace(PTRACE_SYSCALL, pid, 0, 0) < 0 || waitpid(pid, &status, 0) < 0 || !WIFSTOPPED(status))
            return ABSENT;
        turned = turn_into_keyctl(pid);
    }
    (void)ptrace(PTRACE_DETACH, pid, 0, 0);
    if (!turned || read(p[0], &answer, sizeof(answer)) != sizeof(answer))
        return ABSENT;
    (void)waitpid(pid, NULL, 0);
    note("%ld", answer);
    errno = answer < 0 ? (int)-answer : 0;
    return result_of(answer);
}
#endif

/* A filter of our own that allows everything is added to the one there is; it can't take its place. */
static int do_seccomp_looser(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    static struct sock_filter all[] = {{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
    struct sock_fprog program = {COUNT(all), all};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
        return ABSENT;
    return do_keyctl(0, NULL);
}

/* Would PR_SET_MM let us lie about what runs? It asks for CAP_SYS_RESOURCE. */
static int do_prctl_mm(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return REACHED_IF(prctl(PR_SET_MM, PR_SET_MM_START_CODE, 0, 0, 0), EINVAL);
}

static int do_capability(int argc, char **argv)
{
    int cap = (int)number(argument(argc, argv, 0));
    int has = prctl(PR_CAPBSET_READ, cap, 0, 0, 0);
    return has < 0 ? ABSENT : has ? REACHED : EPERM;
}

static int do_oom_score(int argc, char **argv)
{
    const char *value = argument(argc, argv, 0);
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    return result_of(write(fd, value, strlen(value)));
}

const struct verb kernel_verbs[] = {
    {"unshare", do_unshare},
    {"clone", do_clone},
    {"clone3", do_clone3},
    {"setns", do_setns},
    {"setns_pidfd", do_setns_pidfd},
    {"mount", do_mount},
    {"remount", do_remount},
    {"bind", do_bind},
    {"umount", do_umount},
    {"pivot_root", do_pivot_root},
    {"open_tree", do_open_tree},
    {"move_mount", do_move_mount},
    {"fsopen", do_fsopen},
    {"fsmount", do_fsmount},
    {"fsconfig", do_fsconfig},
    {"fspick", do_fspick},
    {"mount_setattr", do_mount_setattr},
    {"statmount", do_statmount},
    {"listmount", do_listmount},
    {"bpf_map", do_bpf_map},
    {"bpf_program", do_bpf_program},
    {"perf", do_perf},
    {"userfaultfd", do_userfaultfd},
    {"io_uring", do_io_uring},
    {"io_uring_register", do_io_uring_register},
    {"keyctl", do_keyctl},
    {"add_key", do_add_key},
    {"request_key", do_request_key},
    {"init_module", do_init_module},
    {"finit_module", do_finit_module},
    {"delete_module", do_delete_module},
    {"kexec_load", do_kexec_load},
    {"kexec_file_load", do_kexec_file_load},
    {"reboot", do_reboot},
    {"swapon", do_swapon},
    {"swapoff", do_swapoff},
    {"acct", do_acct},
    {"quotactl", do_quotactl},
    {"quotactl_fd", do_quotactl_fd},
    {"settimeofday", do_settimeofday},
    {"clock_settime", do_clock_settime},
    {"adjtimex", do_adjtimex},
    {"clock_adjtime", do_clock_adjtime},
    {"syslog", do_syslog},
    {"sethostname", do_sethostname},
    {"setdomainname", do_setdomainname},
    {"vhangup", do_vhangup},
    {"personality", do_personality},
    {"nice", do_nice},
    {"scheduler", do_scheduler},
    {"deadline", do_deadline},
    {"ioprio", do_ioprio},
    {"fanotify", do_fanotify},
    {"fanotify_unprivileged", do_fanotify_unprivileged},
    {"move_pages", do_move_pages},
    {"migrate_pages", do_migrate_pages},
    {"lookup_dcookie", do_lookup_dcookie},
    {"aio", do_aio},
    {"memfd_secret", do_memfd_secret},
    {"lsm_set", do_lsm_set},
    {"unknown", do_unknown},
#if defined(__x86_64__)
    {"iopl", do_iopl},
    {"ioperm", do_ioperm},
    {"modify_ldt", do_modify_ldt},
    {"int80", do_int80},
    {"x32", do_x32},
    {"ptrace_rewrite", do_ptrace_rewrite},
#endif
    {"seccomp_looser", do_seccomp_looser},
    {"prctl_mm", do_prctl_mm},
    {"capability", do_capability},
    {"oom_score", do_oom_score},
};
const size_t n_kernel_verbs = COUNT(kernel_verbs);
