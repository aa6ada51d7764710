/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "kernel/namespace.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

/* It takes what is to be its own, and neither side sees what the other closes then. */
static void a_child_takes_the_low_descriptors_alone(void **state)
{
    (void)state;
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    int low = open("/dev/null", O_RDONLY | O_CLOEXEC), high = fd_lasting(dup(low)), pidfd = -1;
    if (high < FD_LASTING)
        skip();
    pid_t pid = namespace_spawn(-1, geteuid(), CLONE_FILES, &pidfd);
    if (pid == 0) {
        bool before = is_open(low) && is_open(high);
        int r = namespace_take_files();
        bool after = is_open(low) && !is_open(high);
        (void)close(low);
        _exit(!before ? 1 : r < 0 ? 2 : !after ? 3 : 0);
    }
    if (pid == -EPERM || pid == -ENOSPC)
        skip();
    assert_true(pid > 0);
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(is_open(low) && is_open(high));
    low = fd_close(low);
    high = fd_close(high);
    pidfd = fd_close(pidfd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_child_takes_the_low_descriptors_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
