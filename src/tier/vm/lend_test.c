/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "tier/vm/lend.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATIENCE_USEC = 20 * 1000000, SHORT_USEC = 50 * 1000 };

#define LENT "/lent-and-not-there"

/*
 * Opens another file for writing, then the one that it is lent: 0 if the first wasn't there and the second says "ours",
 * though a hole was punched into it, and can't be written.
 */
NORETURN static void borrower(int to, bool asks)
{
    char text[8] = "";
    const int r = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : lend_ask();
    if (r < 0 || fd_send(to, "", 1, &r, 1) < 0)
        _exit(2);
    if (open("/neither-there", O_RDWR) >= 0 || errno != ENOENT)
        _exit(3);
    const int fd = asks ? open(LENT, O_RDWR) : -1;
    if (fd >= 0 && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4) < 0)
        _exit(5);
    _exit(fd >= 0 && read(fd, text, sizeof(text)) == 4 && strcmp(text, "ours") == 0 && write(fd, "x", 1) < 0 ? 0 : 4);
}

static pid_t lend_start(bool asks, int *ret_listener)
{
    int pair[2];
    char byte;
    size_t n_fds = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        borrower(pair[1], asks);
    assert_int_equal(fd_recv(pair[0], &byte, 1, ret_listener, 1, &n_fds), 1);
    assert_int_equal(n_fds, 1);
    (void)close(pair[0]);
    (void)close(pair[1]);
    return pid;
}

static int lend_ended(pid_t pid)
{
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static int lend_file(void)
{
    char path[32];
    int fd = memfd_create("ours", MFD_CLOEXEC);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int read_only = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(write(fd, "ours", 4), 4);
    (void)close(fd);
    return read_only;
}

static void who_asks_waits_for_it_and_gets_ours(void **state UNUSED)
{
    AUTO_CLOSE int listener = -1, file = lend_file();
    uint64_t asked = 0;
    pid_t pid = lend_start(true, &listener);
    assert_int_equal(lend_await(listener, LENT, clock_mono() + PATIENCE_USEC, &asked), 0);
    (void)usleep(SHORT_USEC);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
    assert_int_equal(lend(listener, asked, file), 0);
    assert_int_equal(lend_ended(pid), 0);
}

static void who_ends_gets_nothing(void **state UNUSED)
{
    AUTO_CLOSE int early = -1, other = -1, late = -1, file = lend_file();
    uint64_t asked = 0;
    pid_t pid = lend_start(false, &early);
    assert_int_equal(lend_await(early, LENT, clock_mono() + PATIENCE_USEC, &asked), -ESRCH);
    assert_int_equal(WEXITSTATUS(lend_ended(pid)), 4);
    pid = lend_start(true, &other);
    assert_int_equal(lend_await(other, LENT "-either", clock_mono() + PATIENCE_USEC, &asked), -ESRCH);
    assert_int_equal(WEXITSTATUS(lend_ended(pid)), 4);
    pid = lend_start(true, &late);
    assert_int_equal(lend_await(late, LENT, clock_mono() + PATIENCE_USEC, &asked), 0);
    (void)kill(pid, SIGKILL);
    assert_int_equal(WTERMSIG(lend_ended(pid)), SIGKILL);
    assert_int_equal(lend(late, asked, file), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_asks_waits_for_it_and_gets_ours),
        cmocka_unit_test(who_ends_gets_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
