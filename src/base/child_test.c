/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/child.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

static pid_t start(int code, bool waits)
{
    pid_t pid = fork();
    if (pid == 0) {
        while (waits)
            (void)pause();
        _exit(code);
    }
    assert_true(pid > 0);
    return pid;
}

static void waits_for_exit_code_and_signal(void **state UNUSED)
{
    assert_int_equal(child_wait(start(0, false)), 0);
    assert_int_equal(child_wait(start(7, false)), 7);
    pid_t pid = start(0, true);
    assert_int_equal(kill(pid, SIGTERM), 0);
    assert_int_equal(child_wait(pid), CHILD_SIGNAL + SIGTERM);
    assert_int_equal(child_wait(pid), -ECHILD);
    assert_int_equal(child_wait(-1), -ECHILD);
}

static void kills_and_reaps(void **state UNUSED)
{
    pid_t pid = start(0, true);
    child_kill(pid);
    assert_int_equal(child_wait(pid), -ECHILD);
    child_kill(0); /* no process group of ours */
    child_kill(-1);
}

static void blocks_no_signal(void **state UNUSED)
{
    sigset_t held, now;
    (void)sigfillset(&held);
    assert_int_equal(sigprocmask(SIG_BLOCK, &held, NULL), 0);
    child_unblock();
    assert_int_equal(sigprocmask(SIG_BLOCK, NULL, &now), 0);
    assert_int_equal(sigismember(&now, SIGTERM), 0);
}

static void says_what_a_program_prints(void **state UNUSED)
{
    char *const *argv = CHILD_ARGV("sh", "-c", "printf '%s\\n' \"$0\"; exit 3", "said");
    AUTO_BUF struct buf text = BUF_INIT(64), little = BUF_INIT(2);
    assert_int_equal(child_ask("sh", argv, &text), 3);
    assert_true(str_eqc(buf_str(&text), "said\n"));
    assert_int_equal(child_ask("sh", argv, &little), -ENOBUFS);
    assert_int_equal(child_ask("/nowhere/sh", argv, &text), CHILD_NO_PROGRAM);
    /* Of many pages it is cut off, and doesn't hang. */
    char *const *many = CHILD_ARGV("sh", "-c", "while echo more; do :; done 2> /dev/null");
    assert_int_equal(child_ask("sh", many, &little), -ENOBUFS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_for_exit_code_and_signal),
        cmocka_unit_test(kills_and_reaps),
        cmocka_unit_test(blocks_no_signal),
        cmocka_unit_test(says_what_a_program_prints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
