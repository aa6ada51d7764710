/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Build-time program: writes the system call filters as C arrays to stdout.
 *
 * The sandbox's list is what ordinary programs, package managers, compilers, debuggers of own children and language
 * runtimes call. Left out on purpose, thus ENOSYS: io_uring (its own, unfiltered system call path), keyrings (not
 * namespaced), bpf, perf_event_open, userfaultfd, clone3 (its flags lie in memory, which a filter can't read; C
 * libraries fall back to clone), the mount API, io_setup (one pool for the whole machine, which anybody can empty;
 * programs fall back to threads), and all that is not known here. Refused with EPERM: what needs privilege over the
 * machine and what programs probe for, so that they say "not permitted" and not "not supported".
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/btrfs.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Calls that this libseccomp may not know by name; numbers from 424 on are the same on all architectures. */
enum {
    NR_CACHESTAT = 451,
    NR_FCHMODAT2 = 452,
    NR_MAP_SHADOW_STACK = 453,
    NR_FUTEX_WAKE = 454,
    NR_FUTEX_WAIT = 455,
    NR_FUTEX_REQUEUE = 456,
    NR_MSEAL = 462,
    NR_SETXATTRAT = 463,
    NR_GETXATTRAT = 464,
    NR_LISTXATTRAT = 465,
    NR_REMOVEXATTRAT = 466,
};

enum { CALLS_MAX = 512 };

/* The same for options and commands. */
enum {
    OPT_TCP_AO_ADD_KEY = 38,
    CMD_F_SETDELEG = 1040,
    OPT_IPV6_FLOWLABEL_MGR = 32,
    OPT_IPV6_RECVERR_RFC4884 = 31,
    OPT_IP_RECVERR_RFC4884 = 26,
    OPT_SO_TIMESTAMPING_NEW = 65,
    OPT_SO_TXTIME = 61,
};

/* Options of multicast routing, of both families (linux/mroute.h, which is at odds with the C library's headers). */
enum { OPT_MRT_FIRST = 200, OPT_MRT_LAST = 212 };

/* Requests of wireless extensions (linux/wireless.h), of a device's own, and one of wide area networks. */
enum { IO_WIRELESS_FIRST = 0x8b00, IO_WIRELESS_LAST = 0x8bff, IO_PRIVATE_LAST = SIOCDEVPRIVATE + 15, IO_WAN = 0x894a };

static const int newer[] = {NR_CACHESTAT,     NR_FCHMODAT2, NR_MAP_SHADOW_STACK, NR_FUTEX_WAKE, NR_FUTEX_WAIT,
                            NR_FUTEX_REQUEUE, NR_MSEAL,     NR_SETXATTRAT,       NR_GETXATTRAT, NR_LISTXATTRAT,
                            NR_REMOVEXATTRAT};

/* clang-format off */
static const char *const sandbox_allowed[] = {
    "_llseek", "_newselect", "accept", "accept4", "access", "alarm", "arch_prctl", "bind", "brk", "capget", "capset", "chdir", "chmod",
    "chown", "chroot", "clock_adjtime", "clock_getres", "clock_gettime", "clock_nanosleep", "clone", "close", "close_range", "connect",
    "copy_file_range", "creat", "dup", "dup2", "dup3", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2",
    "epoll_wait", "eventfd", "eventfd2", "execve", "execveat", "exit", "exit_group", "faccessat", "faccessat2", "fadvise64",
    "fallocate", "fchdir", "fchmod", "fchmodat", "fchown", "fchownat", "fcntl", "fdatasync", "fgetxattr", "flistxattr", "flock",
    "fork", "fremovexattr", "fsetxattr", "fstat", "fstatfs", "fsync", "ftruncate", "futex", "futex_waitv", "futimesat",
    "get_mempolicy", "get_robust_list", "get_thread_area", "getcpu", "getcwd", "getdents", "getdents64", "getegid", "geteuid",
    "getgid", "getgroups", "getitimer", "getpeername", "getpgid", "getpgrp", "getpid", "getppid", "getpriority", "getrandom",
    "getresgid", "getresuid", "getrlimit", "getrusage", "getsid", "getsockname", "getsockopt", "gettid", "gettimeofday", "getuid",
    "getxattr", "inotify_add_watch", "inotify_init", "inotify_init1", "inotify_rm_watch", "ioctl", "ioprio_get", "ioprio_set", "kcmp", "kill", "landlock_add_rule",
    "landlock_create_ruleset", "landlock_restrict_self", "lchown", "lgetxattr", "link", "linkat", "listen", "listxattr",
    "llistxattr", "lremovexattr", "lseek", "lsetxattr", "lstat", "madvise", "mbind", "membarrier", "memfd_create", "mincore",
    "mkdir", "mkdirat", "mknod", "mknodat", "mlock", "mlock2", "mlockall", "mmap", "mprotect", "mq_getsetattr", "mq_notify",
    "mq_open", "mq_timedreceive", "mq_timedsend", "mq_unlink", "mremap", "msgctl", "msgget", "msgrcv", "msgsnd", "msync", "munlock",
    "munlockall", "munmap", "nanosleep", "newfstatat", "open", "openat", "openat2", "pause", "personality", "pidfd_getfd", "pidfd_open",
    "pidfd_send_signal", "pipe", "pipe2", "pkey_alloc", "pkey_free", "pkey_mprotect", "poll", "ppoll", "prctl", "pread64",
    "preadv", "preadv2", "prlimit64", "process_madvise", "process_mrelease", "process_vm_readv", "process_vm_writev", "pselect6",
    "ptrace", "pwrite64", "pwritev", "pwritev2", "read", "readahead", "readlink", "readlinkat", "readv", "recvfrom", "recvmmsg",
    "recvmsg", "remap_file_pages", "removexattr", "rename", "renameat", "renameat2", "restart_syscall", "rmdir", "rseq",
    "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait",
    "rt_tgsigqueueinfo", "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity", "sched_getattr", "sched_getparam",
    "sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler",
    "sched_yield", "seccomp", "select", "semctl", "semget", "semop", "semtimedop", "sendfile", "sendmmsg", "sendmsg", "sendto",
    "set_mempolicy", "set_robust_list", "set_thread_area", "set_tid_address", "setfsgid", "setfsuid", "setgid", "setgroups",
    "setitimer", "setpgid", "setpriority", "setregid", "setresgid", "setresuid", "setreuid", "setrlimit", "setsid", "setsockopt",
    "setuid", "setxattr", "shmat", "shmctl", "shmdt", "shmget", "shutdown", "sigaltstack", "signalfd", "signalfd4", "socket", "socketpair",
    "splice", "stat", "statfs", "statx", "symlink", "symlinkat", "sync_file_range", "syncfs", "sysinfo", "tee", "tgkill",
    "time", "timer_create", "timer_delete", "timer_getoverrun", "timer_gettime", "timer_settime", "timerfd_create",
    "timerfd_gettime", "timerfd_settime", "times", "tkill", "truncate", "umask", "uname", "unlink", "unlinkat", "unshare", "utime",
    "utimensat", "utimes", "vfork", "vmsplice", "wait4", "waitid", "write", "writev",
};

static const char *const sandbox_refused[] = {
    "acct", "adjtimex", "clock_settime", "delete_module", "fanotify_init", "fanotify_mark", "finit_module", "init_module", "ioperm", "iopl",
    "kexec_file_load", "kexec_load", "lookup_dcookie", "mount", "name_to_handle_at", "open_by_handle_at", "pivot_root", "quotactl",
    "quotactl_fd", "reboot", "setdomainname", "sethostname", "setns", "settimeofday", "swapoff", "swapon", "syslog", "umount2",
    "vhangup", "add_key", "keyctl", "request_key", "bpf", "perf_event_open", "modify_ldt", "move_pages", "migrate_pages",
};

static const char *const worker_allowed[] = {
    "accept4", "access", "arch_prctl", "brk", "clock_getres", "clock_gettime", "clock_nanosleep", "close",
    "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_wait", "eventfd2", "exit", "exit_group", "faccessat", "faccessat2",
    "fallocate", "fchmod", "fchown", "fcntl", "fdatasync", "flock", "fstat", "fstatfs", "fsync", "ftruncate", "futex",
    "getcwd", "getdents64", "getegid", "geteuid", "getgid", "getpeername", "getpid", "getppid", "getrandom", "getrusage",
    "getsockname", "getsockopt", "gettid", "gettimeofday", "getuid", "ioctl", "listen", "lseek", "lstat", "madvise", "membarrier",
    "mkdir", "mkdirat", "mmap", "mprotect", "mremap", "munmap", "nanosleep", "newfstatat", "open", "openat", "pipe2", "poll", "ppoll",
    "pread64", "preadv", "prlimit64", "pwrite64", "pwritev", "read", "readlink", "readv", "recvfrom", "recvmsg", "rename",
    "restart_syscall", "rseq", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sched_getaffinity", "sched_yield", "sendmsg",
    "sendto", "set_robust_list", "setsockopt", "shutdown", "sigaltstack", "stat", "statx", "sysinfo", "tgkill",
    "timerfd_create", "timerfd_settime", "uname", "unlink", "unlinkat", "write", "writev",
};

/* cove-egress: sockets of the internet, a few files. mmap, mprotect, socket, ioctl, prlimit64 and clone are allowed by
 * argument (below). */
static const char *const egress_allowed[] = {
    "accept4", "access", "arch_prctl", "bind", "brk", "clock_getres", "clock_gettime", "clock_nanosleep", "close", "connect", "dup",
    "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_wait", "eventfd2", "exit", "exit_group", "faccessat", "faccessat2", "fcntl",
    "flock", "fstat", "fsync", "futex", "getdents64", "getegid", "geteuid", "getgid", "getpeername", "getpid", "getppid", "getrandom",
    "getrusage", "getsockname", "getsockopt", "gettid", "gettimeofday", "getuid", "linkat", "listen", "lseek", "madvise",
    "membarrier", "mlock", "mlock2", "mremap", "munlock", "munmap", "nanosleep", "newfstatat", "openat", "pipe2", "poll", "ppoll",
    "pread64", "read", "readlink", "readlinkat", "readv", "recvfrom", "recvmmsg", "recvmsg", "renameat", "renameat2", "restart_syscall",
    "rseq", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sched_getaffinity", "sched_yield", "sendmmsg", "sendmsg", "sendto",
    "set_robust_list", "setsockopt", "shutdown", "sigaltstack", "splice", "statx", "sysinfo", "tgkill", "timerfd_create",
    "timerfd_settime", "uname", "unlinkat", "write", "writev",
};

/* The maker of network namespaces: a few files of a procfs of its own, netlink, three sockets. unshare, setns and
 * socket are allowed by argument (below). */
static const char *const netmaker_allowed[] = {
    "bind", "brk", "clock_gettime", "close", "exit", "exit_group", "fcntl", "fsconfig", "fsmount", "fsopen", "fstat", "futex", "getpid",
    "getrandom", "getsockname", "gettid", "listen", "lseek", "madvise", "mremap", "munmap", "newfstatat", "openat", "poll", "ppoll", "read", "recvfrom", "recvmsg",
    "restart_syscall", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sendmsg", "sendto", "setsockopt", "sigaltstack", "tgkill", "write",
    "writev",
};

/* Both halves of cove-image: neither starts a process or a thread, executes a file, or makes memory executable. */
static const char *const image_allowed[] = {
    "brk", "clock_getres", "clock_gettime", "clock_nanosleep", "close", "exit", "exit_group", "fcntl", "fstat", "futex",
    "getpid", "getrandom", "gettid", "gettimeofday", "lseek", "madvise", "mremap", "munmap", "nanosleep", "poll",
    "ppoll", "pread64", "read", "readv", "restart_syscall", "rseq", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn",
    "sched_yield", "sendto", "set_robust_list", "sigaltstack", "tgkill", "time", "uname", "write", "writev",
};

/* Descriptors that it has, and sockets of the internet; it opens no file. */
static const char *const fetch_allowed[] = {
    "connect", "getegid", "geteuid", "getgid", "getpeername", "getppid", "getsockname", "getsockopt", "getuid",
    "newfstatat", "recvfrom", "recvmsg", "sendmmsg", "sendmsg", "shutdown", "sysinfo",
};

/* Files, and no socket but those it has. */
static const char *const unpack_allowed[] = {
    "fchmod", "fchmodat", "fchown", "fchownat", "flistxattr", "fremovexattr", "fsetxattr", "ftruncate", "getdents64",
    "linkat", "mkdirat", "mknodat", "newfstatat", "openat", "openat2", "pwrite64", "renameat", "renameat2", "statx",
    "symlinkat", "unlinkat", "utimensat",
};

/* clang-format on */

static void gen_seccomp_must(int r, const char *what)
{
    if (r < 0) {
        (void)fprintf(stderr, "gen_seccomp: %s: %d\n", what, r);
        exit(1);
    }
}

static void add_names(scmp_filter_ctx f, uint32_t action, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int nr = seccomp_syscall_resolve_name(names[i]);
        if (nr >= 0) /* else: not a call of this architecture */
            gen_seccomp_must(seccomp_rule_add(f, action, nr, 0), names[i]);
    }
}

static const uint64_t namespaces =
    CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;

/* What each call of a sandbox comes to, by its number. */
static uint32_t calls[CALLS_MAX];

static void calls_set(uint32_t action, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int nr = seccomp_syscall_resolve_name(names[i]);
        if (nr >= CALLS_MAX)
            exit(1);
        if (nr >= 0) /* else: not a call of this architecture */
            calls[nr] = action;
    }
}

static void make_calls(void)
{
    for (size_t i = 0; i < CALLS_MAX; i++)
        calls[i] = SECCOMP_RET_ERRNO | ENOSYS;
    calls_set(SECCOMP_RET_ALLOW, sandbox_allowed, COUNT(sandbox_allowed));
    calls_set(SECCOMP_RET_ERRNO | EPERM, sandbox_refused, COUNT(sandbox_refused));
    for (size_t i = 0; i < COUNT(newer); i++)
        calls[newer[i]] = SECCOMP_RET_ALLOW;
    /* It writes back every file system of the machine. A sandbox's own files need none of it: they are gone after a
     * power cut anyway. */
    calls[SYS_sync] = SECCOMP_RET_ERRNO;
}

/*
 * What depends on arguments. It stands in front of what goes by number alone, and before the architecture is checked,
 * which can only refuse more. Arguments are compared by their low 32 bits, as the kernel reads them.
 */
enum verdict {
    NO_PERMISSION,
    NO_REQUEST,
    NO_PROTOCOL,
    NO_FAMILY,
    NO_SUPPORT,
    NO_CALL,
    NO_MEMORY,
    NO_ARGUMENT,
    AS_IF_DONE,
    GO_ON,
    N_VERDICTS
};

enum { PROLOGUE_MAX = 192 };

static struct sock_filter prologue[PROLOGUE_MAX];
static size_t n_prologue;
static uint8_t when[PROLOGUE_MAX]; /* what a jump leads to when it is taken, plus 1; 0: it says so itself */

static void gen_seccomp_put(struct sock_filter f, unsigned leads_to)
{
    if (n_prologue == COUNT(prologue))
        exit(1);
    when[n_prologue] = (uint8_t)leads_to;
    prologue[n_prologue++] = f;
}

static void gen_seccomp_load(size_t offset)
{
    gen_seccomp_put((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset), 0);
}

static void load_argument(size_t n)
{
    gen_seccomp_load(offsetof(struct seccomp_data, args) + n * sizeof(uint64_t));
}

static void if_equal(uint64_t value, enum verdict verdict)
{
    gen_seccomp_put((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)value, 0, 0), verdict + 1);
}

static void if_between(uint64_t first, uint64_t last, enum verdict verdict)
{
    gen_seccomp_put((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, (uint32_t)last, 1, 0), 0);
    gen_seccomp_put((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)first, 0, 0), verdict + 1);
}

static void if_any_bit(uint64_t bits, enum verdict verdict)
{
    gen_seccomp_put((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (uint32_t)bits, 0, 0), verdict + 1);
}

static void otherwise(enum verdict verdict)
{
    gen_seccomp_put((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JA, 0, 0, 0), verdict + 1);
}

/* So many of what follows are for other values. */
static void skip_if_equal(uint64_t value, uint8_t n)
{
    gen_seccomp_put((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)value, n, 0), 0);
}

/* What follows, up to call_end(), is about this call. */
static size_t call_begin(uint32_t nr)
{
    gen_seccomp_put((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 0), 0);
    return n_prologue;
}

static void call_end(size_t begin, enum verdict verdict)
{
    otherwise(verdict);
    prologue[begin - 1].jf = (uint8_t)(n_prologue - begin);
}

/* The same, with its argument loaded. */
static size_t call_begin_by(uint32_t nr, size_t argument)
{
    const size_t begin = call_begin(nr);
    load_argument(argument);
    return begin;
}

static void refuse_bits(uint32_t nr, size_t argument, uint64_t bits, enum verdict verdict)
{
    const size_t call = call_begin_by(nr, argument);
    if_any_bit(bits, verdict);
    call_end(call, GO_ON);
}

static void any_of(const uint32_t *values, size_t n, enum verdict verdict)
{
    for (size_t i = 0; i < n; i++)
        if_equal(values[i], verdict);
}

static void end_prologue(void)
{
    static const int errors[] = {[NO_PERMISSION] = EPERM,    [NO_REQUEST] = ENOTTY,     [NO_PROTOCOL] = EPROTONOSUPPORT,
                                 [NO_FAMILY] = EAFNOSUPPORT, [NO_SUPPORT] = EOPNOTSUPP, [NO_CALL] = ENOSYS,
                                 [NO_MEMORY] = ENOMEM,       [NO_ARGUMENT] = EINVAL,    [AS_IF_DONE] = 0};
    size_t at[N_VERDICTS];
    at[GO_ON] = n_prologue + COUNT(errors) + 1;
    otherwise(GO_ON); /* another call */
    for (size_t i = 0; i < COUNT(errors); i++) {
        at[i] = n_prologue;
        gen_seccomp_put((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)errors[i]), 0);
    }
    for (size_t i = 0; i < n_prologue; i++) {
        if (!when[i])
            continue;
        size_t far = at[when[i] - 1] - i - 1;
        if (far > UINT8_MAX)
            exit(1);
        if (prologue[i].code == (BPF_JMP | BPF_JA))
            prologue[i].k = (uint32_t)far;
        else
            prologue[i].jt = (uint8_t)far;
    }
}

/*
 * Of the level of a socket's option, which is loaded. Joining a group of multicast and asking for one's sources take
 * the one lock of all networks of the machine (rtnl), and so does the end of a socket that has joined; groups are
 * memory that no control group counts. A few hundred threads that do nothing else make everybody who makes or ends a
 * network wait for seconds. Multicast leads nowhere in a sandbox; its routing takes the lock before it looks at the
 * right to. Flow labels are a pool of a few thousand for the whole machine.
 *
 * What the kernel tells of packets that a socket has sent (errors, and below times) waits for being read in memory that
 * no control group counts either: up to twice net.core.rmem_max for each socket. Resolvers ask for errors, and fail
 * where that is refused; those of connected sockets are told without it.
 */
static void refuse_groups(bool is_set)
{
    size_t level = call_begin_by(IPPROTO_IP, 2);
    if_between(IP_ADD_MEMBERSHIP, MCAST_MSFILTER, NO_PERMISSION);
    if_between(OPT_MRT_FIRST, OPT_MRT_LAST, NO_PERMISSION);
    if_equal(IP_ROUTER_ALERT, NO_PERMISSION);
    if (is_set) {
        if_equal(IP_RECVERR, AS_IF_DONE);
        if_equal(OPT_IP_RECVERR_RFC4884, AS_IF_DONE);
    }
    call_end(level, GO_ON);
    level = call_begin_by(IPPROTO_IPV6, 2);
    if_between(IPV6_JOIN_GROUP, IPV6_ROUTER_ALERT, NO_PERMISSION);
    if_between(IPV6_JOIN_ANYCAST, IPV6_LEAVE_ANYCAST, NO_PERMISSION);
    if_between(MCAST_JOIN_GROUP, MCAST_MSFILTER, NO_PERMISSION);
    if_between(OPT_MRT_FIRST, OPT_MRT_LAST, NO_PERMISSION);
    if_equal(IPV6_ADDRFORM, NO_PERMISSION);
    if_equal(OPT_IPV6_FLOWLABEL_MGR, NO_PERMISSION);
    if (is_set) {
        if_equal(IPV6_RECVERR, AS_IF_DONE);
        if_equal(OPT_IPV6_RECVERR_RFC4884, AS_IF_DONE);
    }
    call_end(level, GO_ON);
}

static void make_prologue(void)
{
    /* They type into a terminal, or reconfigure it. */
    static const uint32_t terminal[] = {TIOCSTI, TIOCLINUX, TIOCSETD, TIOCCONS};
    /* Of bridges, VLANs and frame relay: asking loads their modules into the host's kernel, before any privilege is
     * looked at. */
    static const uint32_t modules[] = {SIOCGIFBR,   SIOCSIFBR,   SIOCBRADDBR, SIOCBRDELBR, SIOCBRADDIF,
                                       SIOCBRDELIF, SIOCGIFVLAN, SIOCSIFVLAN, SIOCADDDLCI, SIOCDELDLCI};
    /* They take that lock, too, and are about hardware: "not supported" is what lo says to most of them. */
    static const uint32_t hardware[] = {SIOCETHTOOL,       SIOCGHWTSTAMP, SIOCBONDSLAVEINFOQUERY,
                                        SIOCBONDINFOQUERY, IO_WAN,        SIOCGARP};
    static const uint32_t personalities[] = {0x0, 0x8, 0x20000, 0x20008, 0x40000, 0xffffffff};
    static const uint32_t clones[] = {FICLONE, FICLONERANGE, FIDEDUPERANGE};
    static const uint32_t protocols[] = {0, IPPROTO_ICMP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMPV6};
    /* Programs for packets: their machine code lies in one small pool of the whole machine, which also has the filters
     * of system calls. */
    static const uint32_t programs[] = {SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF,
                                        SO_ATTACH_REUSEPORT_EBPF};
    /* TLS in the kernel and signed segments: code of the host's that nobody inside needs, and some of it is a module of
     * a name that the caller chooses. */
    static const uint32_t crypto[] = {TCP_ULP, TCP_MD5SIG, TCP_MD5SIG_EXT, OPT_TCP_AO_ADD_KEY};
    /* The times of sent packets, and what is told of those that were not sent in time. */
    static const uint32_t times[] = {SO_TIMESTAMPING, OPT_SO_TIMESTAMPING_NEW, OPT_SO_TXTIME, SO_WIFI_STATUS};
    /* Who may read a file keeps all others, in other sandboxes too, from opening it for most of a minute, as often as
     * he likes. */
    static const uint32_t leases[] = {F_SETLEASE, CMD_F_SETDELEG};
    gen_seccomp_load(offsetof(struct seccomp_data, nr));

    size_t call = call_begin_by(SYS_ioctl, 1);
    any_of(terminal, COUNT(terminal), NO_PERMISSION);
    any_of(modules, COUNT(modules), NO_PERMISSION);
    any_of(hardware, COUNT(hardware), NO_SUPPORT);
    if_between(SIOCDEVPRIVATE, IO_PRIVATE_LAST, NO_SUPPORT);
    if_between(IO_WIRELESS_FIRST, IO_WIRELESS_LAST, NO_SUPPORT);
    /* Requests of btrfs, as on any other file system: a subvolume made in a volume would lie beyond the volume's limit.
     * Clones are not its alone. */
    any_of(clones, COUNT(clones), GO_ON);
    gen_seccomp_put((struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xff00), 0);
    if_equal(BTRFS_IOCTL_MAGIC << 8, NO_REQUEST);
    call_end(call, GO_ON);

    refuse_bits(SYS_clone, 0, namespaces, NO_PERMISSION);

    refuse_bits(SYS_unshare, 0, namespaces | CLONE_NEWTIME, NO_PERMISSION);

    call = call_begin(SYS_personality);
    gen_seccomp_load(offsetof(struct seccomp_data, args) + sizeof(uint32_t));
    skip_if_equal(0, 1);
    otherwise(NO_CALL);
    load_argument(0);
    any_of(personalities, COUNT(personalities), GO_ON);
    call_end(call, NO_CALL);

    call = call_begin_by(SYS_socket, 0);
    if_equal(AF_UNIX, GO_ON);
    /*
     * Of netlink, the routing protocol alone (0): it is per network namespace, and its writes need a capability that
     * nobody has.
     */
    size_t family = call_begin_by(AF_NETLINK, 2);
    if_equal(NETLINK_ROUTE, GO_ON);
    call_end(family, NO_PROTOCOL);
    skip_if_equal(AF_INET, 2);
    skip_if_equal(AF_INET6, 1);
    otherwise(NO_FAMILY);
    /*
     * Internet protocols but TCP, UDP and ICMP: asking for one loads its module into the host's kernel (SCTP, DCCP,
     * L2TP).
     */
    load_argument(2);
    any_of(protocols, COUNT(protocols), GO_ON);
    call_end(call, NO_PROTOCOL);

    /* A pair is made of two sockets of its family even where the family then says that it has no pairs. */
    call = call_begin_by(SYS_socketpair, 0);
    if_equal(AF_UNIX, GO_ON);
    call_end(call, NO_FAMILY);

    call = call_begin_by(SYS_getsockopt, 1);
    refuse_groups(false);
    call_end(call, GO_ON);

    call = call_begin_by(SYS_setsockopt, 1);
    refuse_groups(true);
    size_t level = call_begin_by(IPPROTO_TCP, 2);
    any_of(crypto, COUNT(crypto), NO_PROTOCOL);
    /*
     * A connection that nobody has any more is kept for longer than it lasts in a table where it costs next to nothing:
     * with a few of its processes one sandbox had more than the machine allows (net.ipv4.tcp_max_orphans), and then the
     * kernel cuts whatever anybody on it closes.
     */
    if_equal(TCP_LINGER2, AS_IF_DONE);
    call_end(level, GO_ON);
    skip_if_equal(SOL_SOCKET, 1);
    otherwise(GO_ON);
    load_argument(2);
    any_of(programs, COUNT(programs), NO_PERMISSION);
    any_of(times, COUNT(times), NO_SUPPORT);
    /*
     * Whoever closes such a socket last waits, for as long as its owner liked. Sent through a unix socket and left
     * there, that is the kernel's one thread that closes what others leave: nothing of that kind would be freed on the
     * whole machine any more. Or it is a process of ours.
     */
    if_equal(SO_LINGER, AS_IF_DONE);
    call_end(call, GO_ON);

    call = call_begin_by(SYS_fcntl, 1);
    any_of(leases, COUNT(leases), NO_PERMISSION);
    call_end(call, GO_ON);

    /*
     * Huge pages that somebody has set aside (vm.nr_hugepages) are a pool of the machine's, which no group's memory
     * counts.
     */
    refuse_bits(SYS_mmap, 3, MAP_HUGETLB, NO_MEMORY);

    /* Chromium asks for all flags at once, and ends unless it hears that there are no such. Up to 16 is MFD_EXEC. */
    call = call_begin_by(SYS_memfd_create, 1);
    if_any_bit(~(0x1fU | 63U << MAP_HUGE_SHIFT), NO_ARGUMENT);
    if_any_bit(MFD_HUGETLB, NO_MEMORY);
    call_end(call, GO_ON);

    /* A thread with a cookie of its own has the core for itself: what it leaves idle, others pay, and no limit
     * counts. */
    call = call_begin_by(SYS_prctl, 0);
    if_equal(PR_SCHED_CORE, NO_PERMISSION);
    call_end(call, GO_ON);
    end_prologue();
}

static void print_all(const struct sock_filter *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        (void)printf("    {%u, %u, %u, %uU},\n", p[i].code, p[i].jt, p[i].jf, p[i].k);
}

static struct sock_filter program[4096];
static size_t n_program;

static void program_put(struct sock_filter f)
{
    if (n_program == COUNT(program))
        exit(1);
    program[n_program++] = f;
}

/*
 * A tree of runs of calls that come to the same, by their first numbers. The kernel makes machine code of it for each
 * sandbox, while that is being made, so it has few instructions.
 */
static void put_calls(const uint32_t *starts, size_t n)
{
    if (n == 1) {
        program_put((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, calls[starts[0]]));
        return;
    }
    const size_t at = n_program, half = n / 2;
    program_put((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, starts[half], 0, 0));
    put_calls(starts, half);
    if (n_program - at - 1 > UINT8_MAX)
        exit(1);
    program[at].jt = (uint8_t)(n_program - at - 1);
    put_calls(starts + half, n - half);
}

static void emit_sandbox(void)
{
    uint32_t starts[CALLS_MAX];
    size_t n = 0;
    for (uint32_t nr = 0; nr < CALLS_MAX; nr++) /* the last run is of all that is not known, too */
        if (nr == 0 || calls[nr] != calls[nr - 1])
            starts[n++] = nr;
    if (calls[CALLS_MAX - 1] != (SECCOMP_RET_ERRNO | ENOSYS))
        exit(1);
    program_put((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)));
    program_put((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, seccomp_arch_native(), 1, 0));
    program_put((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS));
    program_put((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    put_calls(starts, n);
    (void)printf("static const struct sock_filter sandbox_filter[] = {\n");
    print_all(prologue, n_prologue);
    print_all(program, n_program);
    (void)printf("};\n");
}

static void emit(scmp_filter_ctx f, const char *name)
{
    FILE *tmp = tmpfile();
    if (!tmp)
        exit(1);
    gen_seccomp_must(seccomp_export_bpf(f, fileno(tmp)), "export");
    rewind(tmp);
    size_t n = fread(program, sizeof(program[0]), COUNT(program), tmp);
    (void)fclose(tmp);
    if (n == 0 || n == COUNT(program))
        exit(1);
    (void)printf("static const struct sock_filter %s[] = {\n", name);
    print_all(program, n);
    (void)printf("};\n");
    seccomp_release(f);
}

static void allow_if(scmp_filter_ctx f, int nr, struct scmp_arg_cmp argument)
{
    gen_seccomp_must(seccomp_rule_add_array(f, SCMP_ACT_ALLOW, nr, 1, &argument), "a rule about an argument");
}

/* Threads, and nothing else that clone() makes: neither processes nor namespaces. clone3() hides its flags; libc falls
 * back. */
static void add_threads(scmp_filter_ctx f)
{
    const uint64_t thread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;
    allow_if(f, SCMP_SYS(clone), SCMP_A0(SCMP_CMP_MASKED_EQ, thread | namespaces, thread));
    gen_seccomp_must(seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0), "clone3");
}

/* TCP and UDP. Other types and protocols would load modules; a unix socket could talk to services of this machine. */
static void add_internet_sockets(scmp_filter_ctx f)
{
    static const int families[] = {AF_INET, AF_INET6};
    static const int sockets[][2] = {
        {SOCK_STREAM, 0}, {SOCK_STREAM, IPPROTO_TCP}, {SOCK_DGRAM, 0}, {SOCK_DGRAM, IPPROTO_UDP}};
    const scmp_datum_t type_bits = ~(scmp_datum_t)(SOCK_CLOEXEC | SOCK_NONBLOCK) & UINT32_MAX;
    for (size_t i = 0; i < COUNT(families); i++)
        for (size_t k = 0; k < COUNT(sockets); k++)
            gen_seccomp_must(seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(socket), 3,
                                              SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)families[i]),
                                              SCMP_A1(SCMP_CMP_MASKED_EQ, type_bits, (scmp_datum_t)sockets[k][0]),
                                              SCMP_A2(SCMP_CMP_EQ, (scmp_datum_t)sockets[k][1])),
                             "socket");
}

/* No new code. */
static void add_plain_memory(scmp_filter_ctx f)
{
    allow_if(f, SCMP_SYS(mmap), SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    allow_if(f, SCMP_SYS(mprotect), SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
}

static void add_netlink(scmp_filter_ctx f, int protocol)
{
    gen_seccomp_must(seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(socket), 2, SCMP_A0(SCMP_CMP_EQ, AF_NETLINK),
                                      SCMP_A2(SCMP_CMP_EQ, (scmp_datum_t)protocol)),
                     "netlink");
}

static void add_egress_rules(scmp_filter_ctx f)
{
    add_names(f, SCMP_ACT_ALLOW, egress_allowed, COUNT(egress_allowed));
    add_threads(f);
    add_internet_sockets(f);
    /* getifaddrs() asks which addresses are this machine's own. */
    add_netlink(f, NETLINK_ROUTE);

    static const uint64_t ioctls[] = {FIONBIO, FIOCLEX, FIONREAD, TIOCOUTQ, TCGETS, SIOCGIFNAME, SIOCGIFINDEX};
    for (size_t i = 0; i < COUNT(ioctls); i++)
        allow_if(f, SCMP_SYS(ioctl), SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, ioctls[i]));

    add_plain_memory(f);
    allow_if(f, SCMP_SYS(prlimit64), SCMP_A0(SCMP_CMP_EQ, 0));
}

static void add_netmaker_rules(scmp_filter_ctx f)
{
    add_names(f, SCMP_ACT_ALLOW, netmaker_allowed, COUNT(netmaker_allowed));
    allow_if(f, SCMP_SYS(unshare), SCMP_A0(SCMP_CMP_EQ, CLONE_NEWNET));
    allow_if(f, SCMP_SYS(setns), SCMP_A1(SCMP_CMP_EQ, CLONE_NEWNET));
    add_internet_sockets(f);
    add_netlink(f, NETLINK_ROUTE);
    add_netlink(f, NETLINK_NETFILTER);
    add_plain_memory(f);
}

static void add_image_rules(scmp_filter_ctx f, const char *const *names, size_t n)
{
    add_names(f, SCMP_ACT_ALLOW, image_allowed, COUNT(image_allowed));
    add_names(f, SCMP_ACT_ALLOW, names, n);
    add_plain_memory(f);
}

static void add_fetch_rules(scmp_filter_ctx f)
{
    add_image_rules(f, fetch_allowed, COUNT(fetch_allowed));
    add_internet_sockets(f);
    allow_if(f, SCMP_SYS(ioctl), SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, FIONBIO));
    allow_if(f, SCMP_SYS(ioctl), SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, FIONREAD));
    /* A socket that lingers could be sent to cove-api, which would wait when it closes it. Any other option differs in
     * one of the 32 bits that the kernel reads. */
    for (uint64_t bit = 1; bit <= UINT32_MAX; bit <<= 1)
        allow_if(f, SCMP_SYS(setsockopt), SCMP_A2(SCMP_CMP_MASKED_EQ, bit, ~(uint64_t)SO_LINGER & bit));
}

static scmp_filter_ctx gen_seccomp_begin(uint32_t action)
{
    scmp_filter_ctx f = seccomp_init(action);
    if (!f)
        exit(1);
    gen_seccomp_must(seccomp_attr_set(f, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS)), "foreign architectures");
    gen_seccomp_must(seccomp_attr_set(f, SCMP_FLTATR_CTL_OPTIMIZE, 2), "binary tree");
    return f;
}

int main(void)
{
    make_calls();
    make_prologue();
    emit_sandbox();

    scmp_filter_ctx f = gen_seccomp_begin(SCMP_ACT_ERRNO(EPERM));
    add_names(f, SCMP_ACT_ALLOW, worker_allowed, COUNT(worker_allowed));
    /* One end of a pair goes to whoever is to talk with it: the process that unpacks an image, the one that looks what
     * differs. */
    allow_if(f, SCMP_SYS(socketpair), SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
    add_threads(f);
    emit(f, "worker_filter");

    f = gen_seccomp_begin(SCMP_ACT_ERRNO(EPERM));
    add_egress_rules(f);
    emit(f, "egress_filter");

    f = gen_seccomp_begin(SCMP_ACT_ERRNO(EPERM));
    add_netmaker_rules(f);
    emit(f, "netmaker_filter");

    f = gen_seccomp_begin(SCMP_ACT_ERRNO(EPERM));
    add_fetch_rules(f);
    emit(f, "fetch_filter");

    f = gen_seccomp_begin(SCMP_ACT_ERRNO(EPERM));
    add_image_rules(f, unpack_allowed, COUNT(unpack_allowed));
    emit(f, "unpack_filter");
    return 0;
}
