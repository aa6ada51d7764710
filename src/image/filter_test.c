/* SPDX-License-Identifier: Apache-2.0 */
#include "image/filter.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Of descriptors that are none: what passes says EBADF. */
struct call {
    const char *what;
    long nr, args[6];
    int error;
};

static int check(int (*load)(void), const struct call *calls, size_t n)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || load() < 0)
        return 255;
    for (size_t i = 0; i < n; i++) {
        const struct call *c = &calls[i];
        long r = syscall(c->nr, c->args[0], c->args[1], c->args[2], c->args[3], c->args[4], c->args[5]);
        int got = r < 0 ? errno : 0;
        if (got != c->error) {
            (void)fprintf(stderr, "%s: %s instead of %s\n", c->what, strerror(got), strerror(c->error));
            return (int)i + 1;
        }
    }
    return 0;
}

static void expect(int (*load)(void), const struct call *calls, size_t n)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(check(load, calls, n));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void fetch_has_the_internet_and_no_files(void **state UNUSED)
{
    const struct call calls[] = {
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
    expect(filter_load_fetch, calls, ARRAY_SIZE(calls));
}

static void unpack_has_files_and_no_sockets(void **state UNUSED)
{
    const struct call calls[] = {
        {"a file", SYS_openat, {-1, (long)"x"}, EBADF},
        {"a socket", SYS_socket, {AF_INET, SOCK_STREAM}, EPERM},
        {"an option", SYS_setsockopt, {-1, SOL_SOCKET, SO_RCVBUF}, EPERM},
        {"code", SYS_mprotect, {0, 4096, PROT_READ | PROT_EXEC}, EPERM},
        {"a program", SYS_execve, {(long)"/bin/true"}, EPERM},
    };
    expect(filter_load_unpack, calls, ARRAY_SIZE(calls));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fetch_has_the_internet_and_no_files),
        cmocka_unit_test(unpack_has_files_and_no_sockets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
