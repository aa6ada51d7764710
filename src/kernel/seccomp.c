/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/seccomp.h"

#include <linux/filter.h>
#include <linux/ioprio.h>
#include <linux/seccomp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel/seccomp_filters.h" /* generated: sandbox_filter, worker_filter, egress_filter, netmaker_filter */

static int seccomp_load(const struct sock_filter *filter, size_t n, unsigned flags)
{
    struct sock_fprog prog = {.len = (unsigned short)n, .filter = (struct sock_filter *)(uintptr_t)filter};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog) < 0 ? -errno : 0;
}

int seccomp_load_sandbox(void)
{
    return seccomp_load(sandbox_filter, ARRAY_SIZE(sandbox_filter), 0);
}

int seccomp_load_worker(void)
{
    return seccomp_load(worker_filter, ARRAY_SIZE(worker_filter), SECCOMP_FILTER_FLAG_TSYNC);
}

int seccomp_load_egress(void)
{
    return seccomp_load(egress_filter, ARRAY_SIZE(egress_filter), SECCOMP_FILTER_FLAG_TSYNC);
}

int seccomp_load_netmaker(void)
{
    return seccomp_load(netmaker_filter, ARRAY_SIZE(netmaker_filter), 0);
}

int seccomp_load_no_unix(void)
{
    enum { TYPE_BITS = 0xf };
    static const struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 6, 5),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socketpair, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + sizeof(uint64_t)),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, TYPE_BITS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SOCK_STREAM, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SOCK_SEQPACKET, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    return seccomp_load(filter, ARRAY_SIZE(filter), 0);
}

int seccomp_load_no_group(bool with_signals)
{
    enum { WHICH = offsetof(struct seccomp_data, args), WHO = WHICH + sizeof(uint64_t), NO_CALL = -1 };
    const uint32_t kill_call = with_signals ? SYS_kill : (uint32_t)NO_CALL;
    const struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kill_call, 8, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setpriority, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioprio_set, 2, 8),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, WHICH),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PRIO_PGRP, 2, 6),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, WHICH),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IOPRIO_WHO_PGRP, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, WHO),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, WHICH),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    return seccomp_load(filter, ARRAY_SIZE(filter), 0);
}
