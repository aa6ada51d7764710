/* SPDX-License-Identifier: Apache-2.0 */
#include "image/apply/filter.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "which audit architecture is this?"
#endif

enum { PROGRAM_MAX = 512, X32_BIT = 0x40000000, TYPE_BITS = ~(SOCK_CLOEXEC | SOCK_NONBLOCK) };

struct program {
    struct sock_filter code[PROGRAM_MAX];
    size_t n;
};

static const int both[] = {
    SYS_brk,           SYS_clock_getres,
    SYS_clock_gettime, SYS_clock_nanosleep,
    SYS_close,         SYS_exit,
    SYS_exit_group,    SYS_fcntl,
    SYS_fstat,         SYS_futex,
    SYS_getpid,        SYS_getrandom,
    SYS_gettid,        SYS_gettimeofday,
    SYS_lseek,         SYS_madvise,
    SYS_mremap,        SYS_munmap,
    SYS_nanosleep,     SYS_ppoll,
    SYS_pread64,       SYS_read,
    SYS_readv,         SYS_restart_syscall,
    SYS_rt_sigaction,  SYS_rt_sigprocmask,
    SYS_rt_sigreturn,  SYS_sched_yield,
    SYS_sendto,        SYS_set_robust_list,
    SYS_sigaltstack,   SYS_tgkill,
    SYS_uname,         SYS_write,
    SYS_writev,
#ifdef SYS_poll
    SYS_poll,          SYS_time,
#endif
#ifdef SYS_rseq
    SYS_rseq,
#endif
};

static const int fetch[] = {
    SYS_connect, SYS_getpeername, SYS_getsockname, SYS_getsockopt, SYS_recvfrom,
    SYS_recvmsg, SYS_newfstatat, /* fstat() */
    SYS_sendmsg, SYS_sendmmsg,    SYS_shutdown,    SYS_geteuid,    SYS_getuid,
    SYS_getegid, SYS_getgid,      SYS_getppid,     SYS_sysinfo,
};

static const int unpack[] = {
    SYS_fchmod,    SYS_fchmodat,   SYS_fchown,    SYS_fchownat, SYS_flistxattr, SYS_fremovexattr, SYS_fsetxattr,
    SYS_ftruncate, SYS_getdents64, SYS_linkat,    SYS_mkdirat,  SYS_mknodat,    SYS_newfstatat,   SYS_openat,
    SYS_openat2,   SYS_pwrite64,   SYS_renameat2, SYS_statx,    SYS_symlinkat,  SYS_unlinkat,     SYS_utimensat,
#ifdef SYS_renameat
    SYS_renameat,
#endif
};

/* ---- writing ---- */

static void filter_put(struct program *p, uint16_t code, uint8_t jt, uint8_t jf, uint32_t k)
{
    assert(p->n < PROGRAM_MAX);
    p->code[p->n++] = (struct sock_filter){code, jt, jf, k};
}

static void filter_give(struct program *p, uint32_t what)
{
    filter_put(p, BPF_RET | BPF_K, 0, 0, what);
}

static void load_number(struct program *p)
{
    filter_put(p, BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr));
}

static void load_argument(struct program *p, int i)
{
    filter_put(p, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)(offsetof(struct seccomp_data, args) + 8 * (size_t)i));
}

static void allow(struct program *p, const int *calls, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        filter_put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, (uint32_t)calls[i]);
        filter_give(p, SECCOMP_RET_ALLOW);
    }
}

static void filter_begin(struct program *p)
{
    filter_put(p, BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, arch));
    filter_put(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, ARCH);
    filter_give(p, SECCOMP_RET_ERRNO | ENOSYS);
    load_number(p);
    filter_put(p, BPF_JMP | BPF_JGE | BPF_K, 0, 1, X32_BIT);
    filter_give(p, SECCOMP_RET_ERRNO | ENOSYS);
    allow(p, both, ARRAY_SIZE(both));
}

/* Memory may come, but not to be executed. */
static void allow_memory(struct program *p, int call)
{
    filter_put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 4, (uint32_t)call);
    load_argument(p, 2);
    filter_put(p, BPF_JMP | BPF_JSET | BPF_K, 1, 0, PROT_EXEC);
    filter_give(p, SECCOMP_RET_ALLOW);
    filter_give(p, SECCOMP_RET_ERRNO | EPERM);
}

/* TCP and UDP. */
static void allow_sockets(struct program *p)
{
    filter_put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 15, SYS_socket);
    load_argument(p, 0);
    filter_put(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, AF_INET);
    filter_put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 11, AF_INET6);
    load_argument(p, 2);
    filter_put(p, BPF_JMP | BPF_JEQ | BPF_K, 2, 0, 0);
    filter_put(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, IPPROTO_TCP);
    filter_put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 7, IPPROTO_UDP);
    load_argument(p, 1);
    filter_put(p, BPF_ALU | BPF_AND | BPF_K, 0, 0, (uint32_t)TYPE_BITS);
    filter_put(p, BPF_JMP | BPF_JEQ | BPF_K, 2, 0, SOCK_STREAM);
    filter_put(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, SOCK_DGRAM);
    filter_give(p, SECCOMP_RET_ERRNO | EPERM);
    filter_give(p, SECCOMP_RET_ALLOW);
    filter_give(p, SECCOMP_RET_ERRNO | EPERM);
    filter_give(p, SECCOMP_RET_ERRNO | EPERM);
}

static void allow_ioctls(struct program *p)
{
    filter_put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 5, SYS_ioctl);
    load_argument(p, 1);
    filter_put(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, FIONBIO);
    filter_put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, FIONREAD);
    filter_give(p, SECCOMP_RET_ALLOW);
    filter_give(p, SECCOMP_RET_ERRNO | EPERM);
}

/* A socket that lingers could be sent to cove-api, which would wait when it closes it. */
static void allow_options(struct program *p)
{
    filter_put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 4, SYS_setsockopt);
    load_argument(p, 2);
    filter_put(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, SO_LINGER);
    filter_give(p, SECCOMP_RET_ALLOW);
    filter_give(p, SECCOMP_RET_ERRNO | EPERM);
}

static int filter_load(const struct program *p)
{
    struct sock_fprog prog = {.len = (unsigned short)p->n, .filter = (struct sock_filter *)(uintptr_t)p->code};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0 ? -errno : 0;
}

int filter_load_fetch(void)
{
    static struct program p;
    p.n = 0;
    filter_begin(&p);
    allow(&p, fetch, ARRAY_SIZE(fetch));
    allow_memory(&p, SYS_mmap);
    allow_memory(&p, SYS_mprotect);
    allow_ioctls(&p);
    allow_sockets(&p);
    allow_options(&p);
    filter_give(&p, SECCOMP_RET_ERRNO | EPERM);
    return filter_load(&p);
}

int filter_load_unpack(void)
{
    static struct program p;
    p.n = 0;
    filter_begin(&p);
    allow(&p, unpack, ARRAY_SIZE(unpack));
    allow_memory(&p, SYS_mmap);
    allow_memory(&p, SYS_mprotect);
    filter_give(&p, SECCOMP_RET_ERRNO | EPERM);
    return filter_load(&p);
}
