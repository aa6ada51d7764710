/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/seccomp.h"
#include "kernel/test_calls.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

static int fetch(void)
{
    const struct test_call calls[] = {
        {"an option", SYS_setsockopt, {-1, SOL_SOCKET, SO_RCVBUF}, EBADF},
        {"an option of TCP", SYS_setsockopt, {-1, IPPROTO_TCP, TCP_NODELAY}, EBADF},
        {"waiting when it is closed", SYS_setsockopt, {-1, SOL_SOCKET, SO_LINGER}, EPERM},
        {"waiting when it is closed, disguised",
         SYS_setsockopt,
         {-1, SOL_SOCKET, (long)(SO_LINGER | 1ULL << 32)},
         EPERM},
        {"a raw socket", SYS_socket, {AF_INET, SOCK_RAW, IPPROTO_TCP}, EPERM},
        {"a unix socket", SYS_socket, {AF_UNIX, SOCK_STREAM}, EPERM},
        {"a file", SYS_openat, {-1, (long)"x"}, EPERM},
        {"code", SYS_mmap, {0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0}, EPERM},
        {"a program", SYS_execve, {(long)"/bin/true"}, EPERM},
        {"a terminal's input", SYS_ioctl, {-1, TIOCSTI}, EPERM},
        {"a process", SYS_kill, {1, 0}, EPERM},
    };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || seccomp_load(SECCOMP_FETCH) < 0)
        return 255;
    return test_calls(calls, ARRAY_SIZE(calls));
}

static int unpack(void)
{
    const struct test_call calls[] = {
        {"a file", SYS_openat, {-1, (long)"x"}, EBADF},
        {"a socket", SYS_socket, {AF_INET, SOCK_STREAM}, EPERM},
        {"an option", SYS_setsockopt, {-1, SOL_SOCKET, SO_RCVBUF}, EPERM},
        {"code", SYS_mprotect, {0, 4096, PROT_READ | PROT_EXEC}, EPERM},
        {"a program", SYS_execve, {(long)"/bin/true"}, EPERM},
    };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || seccomp_load(SECCOMP_UNPACK) < 0)
        return 255;
    return test_calls(calls, ARRAY_SIZE(calls));
}

static void fetch_has_the_internet_and_no_files(void **state UNUSED)
{
    test_in_child(fetch);
}

static void unpack_has_files_and_no_sockets(void **state UNUSED)
{
    test_in_child(unpack);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fetch_has_the_internet_and_no_files),
        cmocka_unit_test(unpack_has_files_and_no_sockets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
