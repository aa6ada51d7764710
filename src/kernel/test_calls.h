/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of filters: what a process can call behind one. */
#pragma once

#include "base/def.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

struct test_call {
    const char *what;
    long nr, args[6];
    int error; /* errno; 0: it works. Of a descriptor that is none, what the filter lets through says EBADF */
};

/* 0, or the number of the first that ends otherwise, which is said on stderr. */
static inline int test_calls(const struct test_call *calls, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct test_call *c = &calls[i];
        long r = syscall(c->nr, c->args[0], c->args[1], c->args[2], c->args[3], c->args[4], c->args[5]);
        int got = r < 0 ? errno : 0;
        if (got != c->error) {
            (void)fprintf(stderr, "%s: %s instead of %s\n", c->what, strerror(got), strerror(c->error));
            return (int)i + 1;
        }
    }
    return 0;
}

/* A filter can't be taken off again: fn loads it in a child, which ends with the number that fn returns, and that must
 * be 0. */
static inline void test_in_child(int (*fn)(void))
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(fn());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status))
        fail_msg("ended by signal %d", WTERMSIG(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}
