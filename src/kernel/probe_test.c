/* SPDX-License-Identifier: Apache-2.0 */
/* Every probe comes to a result and leaves nothing behind; the filter does what its lists say. */
#include "base/mem.h"
#include "kernel/probe.h"
#include "kernel/seccomp.h"

#include <dirent.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

static void test_probes_end_and_clean_up(void **state)
{
    (void)state;
    char dir[] = "/tmp/cove-probe-test.XXXXXX";
    size_t n;
    const struct probe *probes = probe_list(&n);
    assert_non_null(mkdtemp(dir));
    const struct probe_env env = {dir};
    for (size_t i = 0; i < n; i++) {
        struct probe_result r = {PROBE_FAILED, ""};
        probes[i].run(&env, &r);
        print_message("%s: %s: %s\n", probes[i].name, probe_status_name(r.status), r.detail);
        assert_true(r.detail[0]);
    }
    assert_int_equal(rmdir(dir), 0);
}

static int returns(long r)
{
    return r < 0 ? errno : 0;
}

static int filtered_child(const void *arg)
{
    (void)arg;
    if (seccomp_load(SECCOMP_SANDBOX) < 0)
        return 99;
    const struct {
        int got, wanted;
    } calls[] = {
        {returns(syscall(SYS_getpid)), 0},
        {returns(syscall(SYS_mount, "", "", "", 0, NULL)), EPERM},
        {returns(syscall(SYS_keyctl, 0, 0)), EPERM},
        {returns(syscall(SYS_bpf, 0, NULL, 0)), EPERM},
        {returns(syscall(SYS_io_uring_setup, 1, NULL)), ENOSYS},
        {returns(syscall(SYS_userfaultfd, 0)), ENOSYS},
        {returns(syscall(SYS_clone3, NULL, 0)), ENOSYS},
        {returns(syscall(SYS_fsopen, "tmpfs", 0)), ENOSYS},
        {returns(syscall(1000)), ENOSYS},
        {returns(syscall(SYS_unshare, CLONE_NEWUSER)), EPERM},
        {returns(syscall(SYS_unshare, CLONE_NEWNET | CLONE_FS)), EPERM},
        {returns(syscall(SYS_unshare, CLONE_FS)), 0},
        {returns(syscall(SYS_clone, CLONE_NEWUSER | 17, 0, 0, 0, 0)), EPERM},
        {returns(syscall(SYS_setns, 0, 0)), EPERM},
        {returns(socket(AF_INET, SOCK_STREAM, 0)), 0},
        {returns(socket(AF_UNIX, SOCK_STREAM, 0)), 0},
        {returns(socket(AF_NETLINK, SOCK_RAW, 0)), 0},
        {returns(socket(AF_NETLINK, SOCK_RAW, 9)), EPROTONOSUPPORT},
        {returns(socket(AF_VSOCK, SOCK_STREAM, 0)), EAFNOSUPPORT},
        {returns(socket(AF_ALG, SOCK_SEQPACKET, 0)), EAFNOSUPPORT},
        {returns(socket(AF_PACKET, SOCK_RAW, 0)), EAFNOSUPPORT},
        {returns(ioctl(0, TIOCSTI, "x")), EPERM},
        {returns(ioctl(0, TIOCLINUX, "x")), EPERM},
        {returns(ioctl(-1, FIONREAD, NULL)), EBADF},
        {returns(personality(0xffffffff)), 0},
        {returns(personality(0x0400000)), ENOSYS},
    };
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        if (calls[i].got != calls[i].wanted) {
            print_message("call %zu: errno %d, not %d\n", i, calls[i].got, calls[i].wanted);
            return (int)i + 1;
        }
    return 0;
}

static void test_sandbox_filter(void **state)
{
    (void)state;
    assert_int_equal(probe_in_child(filtered_child, NULL), 0);
}

#if defined(__x86_64__)
static int foreign_abi_child(const void *arg)
{
    (void)arg;
    long r;
    if (seccomp_load(SECCOMP_SANDBOX) < 0)
        return 99;
    /* getpid of the 32-bit ABI, then of x32. */
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
    if (r != -ENOSYS)
        return 1;
    return syscall(0x40000000L | SYS_getpid) < 0 && errno == ENOSYS ? 0 : 2;
}

static void test_foreign_abis(void **state)
{
    (void)state;
    assert_int_equal(probe_in_child(foreign_abi_child, NULL), 0);
}
#endif

static int sleeps(const void *arg)
{
    (void)arg;
    (void)sleep(60);
    return 0;
}

static void test_a_probe_that_hangs_is_killed(void **state)
{
    (void)state;
    assert_int_equal(probe_in_child(sleeps, NULL), -ETIMEDOUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probes_end_and_clean_up),
        cmocka_unit_test(test_sandbox_filter),
#if defined(__x86_64__)
        cmocka_unit_test(test_foreign_abis),
#endif
        cmocka_unit_test(test_a_probe_that_hangs_is_killed),
    };
    if (geteuid() != 0) {
        print_message("SKIP: probing needs root\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
