/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper with this program as its coved, which is told by COVED what to be. */
#include "base/buf.h"
#include "base/fd.h"
#include "coved/workers/keeper.h"
#include "coved/workers/records.h"
#include "kernel/namespace.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SAID_FD = 100, NUMBER = 3, STATUS = 7, REFUSES = 5 };

/* ---- as coved ---- */

static void say(const char *what)
{
    ssize_t ignored UNUSED = write(SAID_FD, what, strlen(what));
}

static struct records *fetch(int fd)
{
    struct records *records = NULL;
    struct err err;
    if (records_open(fd, &records, &err) < 0)
        _exit(1);
    return records;
}

/* A child that ends as soon as it is recorded, with a descriptor, and one that is not recorded. */
static void leave_children(struct records *records)
{
    int pid_fd = -1, ends[2], go[2];
    if (pipe2(go, O_CLOEXEC) < 0)
        _exit(1);
    pid_t pid = namespace_fork_sibling(&pid_fd);
    if (pid == 0) {
        char c;
        (void)close(go[1]);
        (void)!read(go[0], &c, 1);
        _exit(STATUS);
    }
    if (pid < 0 || pipe2(ends, O_CLOEXEC) < 0 || write(ends[1], "in the pipe", 11) != 11)
        _exit(1);
    records_put(records, KEEPER_BOX, NUMBER, pid, "first", 5, ends, 1);
    records_put(records, KEEPER_BOX, NUMBER, pid, "second", 6, NULL, 0); /* the descriptor stays */
    (void)close(go[1]); /* one that ended before it is recorded is nobody's */
    records_put(records, KEEPER_SOCKET, NUMBER, 0, NULL, 0, ends, 1);
    if (namespace_fork_sibling(&pid_fd) == 0)
        _exit(0);
}

/* What the one before left is whole: its content, its descriptor, and how its child ended. */
static void check_left(struct records *records)
{
    size_t it = 0;
    int code = 0, status = 0;
    char text[16] = "";
    struct record *left = records_next(records, KEEPER_BOX, &it);
    if (!left || left->number != NUMBER || left->size != 6 || memcmp(left->data, "second", 6) != 0 ||
        left->n_fds != 1 || read(left->fds[0], text, sizeof(text) - 1) != 11 || strcmp(text, "in the pipe") != 0)
        _exit(1);
    left->is_taken = true;
    while (!records_exit(records, left->pid, &code, &status))
        (void)usleep(1000);
    if (code != CLD_EXITED || status != STATUS || records_next(records, KEEPER_BOX, &it) || kill(left->pid, 0) < 0)
        _exit(1);
    records_drop(records, KEEPER_BOX, NUMBER);
    if (records_exit(records, left->pid, &code, &status) || kill(left->pid, 0) == 0)
        _exit(1);            /* it was reaped */
    records_forget(records); /* and the socket, which nobody took, goes */
    say("taken over\n");
}

static int play(const char *role, int fd)
{
    struct records *records = fetch(fd);
    if (strcmp(role, "refuses") == 0)
        return REFUSES;
    if (records_are_new(records)) {
        leave_children(records);
        records_ready(records);
        say("died\n");
        if (strcmp(role, "again") == 0)
            return KEEPER_EXIT_AGAIN;
        (void)raise(SIGKILL);
    }
    check_left(records);
    records_ready(records);
    if (strcmp(role, "stops") != 0)
        return 0;
    sigset_t term;
    int number = 0;
    (void)sigemptyset(&term);
    (void)sigaddset(&term, SIGTERM);
    say("waits\n");
    (void)sigwait(&term, &number);
    say("told\n");
    return 0;
}

/* ---- as the test ---- */

static void keep(const char *role, int status, const char *wanted)
{
    char program[4096] = "";
    int said[2];
    AUTO_BUF struct buf b = BUF_INIT(4096);
    assert_true(readlink("/proc/self/exe", program, sizeof(program) - 1) > 0);
    assert_int_equal(pipe2(said, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct err err;
        if (dup2(said[1], SAID_FD) < 0 || setenv("COVED", role, 1) < 0)
            _exit(1);
        struct accepted config;
        int r = accepted_open("/tmp", &config, &err) < 0 ? -1 : keeper_run(program, &config, -1, &err);
        _exit(r < 0 ? 1 : r);
    }
    (void)fd_close(said[1]);
    if (strcmp(role, "stops") == 0) {
        while (!strstr(buf_len(&b) ? buf_data(&b) : "", "waits")) {
            char c[2] = "";
            assert_int_equal(read(said[0], c, 1), 1);
            (void)buf_append_cstr(&b, c);
            (void)buf_append(&b, "", 1);
            b.end--;
        }
        assert_int_equal(kill(pid, SIGTERM), 0);
    }
    assert_int_equal(fd_read_all(said[0], &b), 0);
    int got = 0;
    assert_int_equal(waitpid(pid, &got, 0), pid);
    assert_true(str_eqc(buf_str(&b), wanted));
    assert_true(WIFEXITED(got));
    assert_int_equal(WEXITSTATUS(got), status);
    (void)fd_close(said[0]);
}

static void test_what_a_dead_one_left_is_the_nexts(void **state)
{
    (void)state;
    keep("dies", 0, "died\ntaken over\n");
}

static void test_one_that_makes_way_is_no_failure(void **state)
{
    (void)state;
    keep("again", 0, "died\ntaken over\n");
}

static void test_who_never_served_is_not_started_again(void **state)
{
    (void)state;
    keep("refuses", REFUSES, "");
}

static void test_signals_reach_the_one_that_there_is(void **state)
{
    (void)state;
    keep("stops", 0, "died\ntaken over\nwaits\ntold\n");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_dead_one_left_is_the_nexts),
        cmocka_unit_test(test_one_that_makes_way_is_no_failure),
        cmocka_unit_test(test_who_never_served_is_not_started_again),
        cmocka_unit_test(test_signals_reach_the_one_that_there_is),
    };
    if (argc == 4 && strcmp(argv[2], "--keeper-fd") == 0)
        _exit(play(getenv("COVED"), (int)strtol(argv[3], NULL, 10))); /* without the checks that are for the test */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
