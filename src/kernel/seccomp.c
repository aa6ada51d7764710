/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/seccomp.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel/seccomp_filters.h" /* generated: sandbox_filter, worker_filter, egress_filter, netmaker_filter */

static int load(const struct sock_filter *filter, size_t n, unsigned flags)
{
    struct sock_fprog prog = {.len = (unsigned short)n, .filter = (struct sock_filter *)(uintptr_t)filter};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog) < 0 ? -errno : 0;
}

int seccomp_load_sandbox(void)
{
    return load(sandbox_filter, ARRAY_SIZE(sandbox_filter), 0);
}

int seccomp_load_worker(void)
{
    return load(worker_filter, ARRAY_SIZE(worker_filter), SECCOMP_FILTER_FLAG_TSYNC);
}

int seccomp_load_egress(void)
{
    return load(egress_filter, ARRAY_SIZE(egress_filter), SECCOMP_FILTER_FLAG_TSYNC);
}

int seccomp_load_netmaker(void)
{
    return load(netmaker_filter, ARRAY_SIZE(netmaker_filter), 0);
}
