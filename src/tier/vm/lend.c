/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/vm/lend.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LEND_PATH_MAX = 32 };

int lend_ask(void)
{
    /*
     * Only a plain O_RDWR: what else a monitor opens is closed on exec. And of what a machine no longer needs, QEMU
     * would first punch a hole into the file of its memory, which isn't its own to change, and give up if it can't:
     * it may believe that it has, and lets go of its copy. Disks are told of no such holes (vmm_qemu.c).
     */
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 7),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, O_RDWR, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = ARRAY_SIZE(code), .filter = code};
    long fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    return fd < 0 ? -errno : (int)fd;
}

static bool lend_is_it(const struct seccomp_notif *n, const char *path)
{
    char text[LEND_PATH_MAX] = "";
    const struct iovec to = {text, strlen(path) + 1};
    const struct iovec from = {(void *)(uintptr_t)n->data.args[1], to.iov_len};
    assert(to.iov_len <= sizeof(text));
    return process_vm_readv((pid_t)n->pid, &to, 1, &from, 1, 0) == (ssize_t)to.iov_len && strcmp(text, path) == 0;
}

int lend(int listener, uint64_t asked, int fd)
{
    const struct seccomp_notif_addfd add = {
        .id = asked, .flags = SECCOMP_ADDFD_FLAG_SEND, .srcfd = (uint32_t)fd, .newfd_flags = O_CLOEXEC};
    return ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add) < 0 ? -errno : 0;
}

int lend_await(int listener, const char *path, usec_t until, uint64_t *ret_asked)
{
    for (usec_t now; (now = clock_mono()) < until;) {
        struct seccomp_notif n;
        struct pollfd p = {.fd = listener, .events = POLLIN};
        int ready = poll(&p, 1, (int)((until - now) / USEC_PER_MS) + 1);
        if (ready < 0 && errno != EINTR)
            return -errno;
        if (ready <= 0)
            continue;
        if (!(p.revents & POLLIN))
            return -ESRCH;
        memset(&n, 0, sizeof(n));
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &n) < 0)
            continue; /* it was killed meanwhile */
        if (lend_is_it(&n, path)) {
            *ret_asked = n.id;
            return 0;
        }
        const struct seccomp_notif_resp go_on = {.id = n.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        (void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &go_on);
    }
    return -ETIMEDOUT;
}
