/* SPDX-License-Identifier: Apache-2.0 */
#include "base/child.h"
#include "coved/workers/renewer.h"
#include "kernel/tree/tree.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/cove-renewer-test-XXXXXX", file[64], program[64];

static void write_file(const char *path, const char *text, mode_t mode)
{
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, mode), 0);
}

/* Waits for SIGUSR1. */
static bool is_told(int seconds)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGUSR1);
    return sigtimedwait(&set, NULL, &(struct timespec){.tv_sec = seconds}) == SIGUSR1;
}

static void script(const char *rest)
{
    char text[400];
    (void)snprintf(text, sizeof(text), "#!/bin/sh\n[ \"$1 $2\" = 'domain renew' ] || exit 9\necho x >> %s/ran\n%s\n",
                   dir, rest);
    write_file(program, text, 0755);
}

static bool has_run(void)
{
    char path[80];
    (void)snprintf(path, sizeof(path), "%s/ran", dir);
    for (int i = 0; i < 200 && access(path, F_OK) < 0; i++)
        (void)usleep(50000);
    bool ran = access(path, F_OK) == 0;
    (void)unlink(path);
    return ran;
}

static void a_new_certificate_is_told(void **state)
{
    (void)state;
    const struct renewer_spec spec = {program, file, 50};
    struct err err;
    pid_t pid = 0;
    script("echo new > \"$0.tmp\" && mv \"$0.tmp\" \"${0%/*}/domain\"");
    write_file(file, "old", 0600);
    assert_int_equal(renewer_start(&spec, &pid, &err), 0);
    assert_true(is_told(20));
    assert_true(is_told(20)); /* and again, each time */
    child_kill(pid);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_true(has_run());
}

static void nothing_new_is_not(void **state)
{
    (void)state;
    const struct renewer_spec spec = {program, file, 20};
    struct err err;
    pid_t pid = 0;
    while (is_told(0))
        ;
    static const char *const ways[] = {"exit 0", "exit 1", "kill -9 $$"};
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        script(ways[i]);
        assert_int_equal(renewer_start(&spec, &pid, &err), 0);
        assert_true(has_run());
        assert_false(is_told(0));
        child_kill(pid);
    }
    assert_int_equal(renewer_run(program), -EIO);
    (void)unlink(program);
    assert_int_equal(renewer_run(program), -EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_new_certificate_is_told),
                                       cmocka_unit_test(nothing_new_is_not)};
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGUSR1);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    if (!mkdtemp(dir))
        return 1;
    (void)snprintf(file, sizeof(file), "%s/domain", dir);
    (void)snprintf(program, sizeof(program), "%s/cove", dir);
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    return tree_remove(AT_FDCWD, dir) == 0 ? r : 1;
}
