/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "tier/vm/remap.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PAGE = 4096, PAGES = 64, BYTES = PAGES * PAGE, PATIENCE_USEC = 20 * 1000000, SHORT_USEC = 100 * 1000 };

static int filled(char with)
{
    char page[PAGE];
    int fd = memfd_create("filled", MFD_CLOEXEC);
    memset(page, with, sizeof(page));
    for (int i = 0; i < PAGES; i++)
        assert_int_equal(write(fd, page, sizeof(page)), sizeof(page));
    return fd;
}

struct traced {
    pid_t pid;
    int pidfd, sock, file;
    char *memory;
};

/* Answers each byte with that one and the first of each end of its memory, but spins without a call when it is told
 * to. */
NORETURN static void answer(int sock, const char *memory)
{
    char asked;
    while (read(sock, &asked, 1) == 1) {
        const char said[] = {asked, memory[0], memory[BYTES - 1]};
        if (asked == 's')
            for (volatile int i = 0;; i++)
                ;
        if (write(sock, said, sizeof(said)) != sizeof(said))
            _exit(3);
    }
    _exit(7);
}

static int set_up(void **state)
{
    static struct traced t;
    int pair[2];
    AUTO_CLOSE int before = filled('a');
    t.file = filled('b');
    t.memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, before, 0); /* there in the child, too */
    assert_true(t.memory != MAP_FAILED);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    t.pid = fork();
    if (t.pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)close(pair[0]);
        memset(t.memory, 'o', BYTES);
        answer(pair[1], t.memory);
    }
    (void)close(pair[1]);
    t.sock = pair[0];
    t.pidfd = pidfd_open(t.pid, 0);
    *state = &t;
    return t.pid < 0 || t.pidfd < 0;
}

static int tear_down(void **state)
{
    const struct traced *t = *state;
    (void)kill(t->pid, SIGKILL);
    (void)waitpid(t->pid, NULL, 0);
    (void)close(t->pidfd);
    (void)close(t->sock);
    (void)close(t->file);
    return munmap(t->memory, BYTES);
}

static void assert_says(const struct traced *t, char asked, char has)
{
    char said[3] = "", wanted[3] = {asked, has, has};
    assert_int_equal(write(t->sock, &asked, 1), 1);
    assert_int_equal(read(t->sock, said, sizeof(said)), sizeof(said));
    assert_memory_equal(said, wanted, sizeof(said));
}

static int remap_all(const struct traced *t, int fd, usec_t patience)
{
    return remap(t->pidfd, t->pid, (uintptr_t)t->memory, BYTES, fd, patience);
}

static void it_has_the_file_and_goes_on_as_it_was(void **state)
{
    const struct traced *t = *state;
    assert_says(t, 'x', 'o');
    for (char i = '0'; i <= '9'; i++) { /* each time it waits in read(), and may be just about to */
        assert_int_equal(remap_all(t, t->file, PATIENCE_USEC), 0);
        assert_says(t, i, 'b');
    }
    assert_int_equal(shutdown(t->sock, SHUT_WR), 0);
    int status = 0;
    assert_int_equal(waitpid(t->pid, &status, 0), t->pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

static void what_it_has_not_open_changes_nothing(void **state)
{
    const struct traced *t = *state;
    assert_int_equal(remap_all(t, 1 << 20, PATIENCE_USEC), -EBADF);
    assert_says(t, 'x', 'o');
}

static void who_makes_no_call_is_let_go(void **state)
{
    const struct traced *t = *state;
    char status[64] = "";
    assert_int_equal(write(t->sock, "s", 1), 1);
    (void)usleep(SHORT_USEC);
    assert_int_equal(remap_all(t, t->file, SHORT_USEC), -ETIMEDOUT);
    assert_int_equal(waitpid(t->pid, NULL, WNOHANG), 0);
    (void)snprintf(status, sizeof(status), "/proc/%d/stat", t->pid);
    AUTO_CLOSE int fd = open(status, O_RDONLY | O_CLOEXEC);
    assert_true(read(fd, status, sizeof(status) - 1) > 0);
    assert_non_null(strstr(status, ") R ")); /* it runs, and nobody has stopped it */
}

static void who_ended_is_not_there(void **state)
{
    const struct traced *t = *state;
    assert_int_equal(kill(t->pid, SIGKILL), 0);
    assert_int_equal(waitpid(t->pid, NULL, 0), t->pid);
    assert_int_equal(remap_all(t, t->file, PATIENCE_USEC), -ESRCH);
}

/* Whether it has what it had or the file, it goes on. */
static void who_dies_meanwhile_takes_nobody_along(void **state)
{
    enum { ROUNDS = 400, STEP_USEC = 5, STEPS = 80 };
    const struct traced *t = *state;
    char path[64], said[3];
    (void)snprintf(path, sizeof(path), "/proc/%d/status", t->pid);
    for (int i = 0; i < ROUNDS; i++) {
        char status[512] = "";
        const pid_t caller = fork();
        if (caller == 0)
            _exit(remap_all(t, t->file, PATIENCE_USEC) ? 1 : 0);
        (void)usleep((useconds_t)(i % STEPS * STEP_USEC));
        (void)kill(caller, SIGKILL);
        assert_int_equal(waitpid(caller, NULL, 0), caller);
        do {
            AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
            assert_true(read(fd, status, sizeof(status) - 1) > 0);
        } while (!strstr(status, "\nTracerPid:\t0\n") && usleep(100) == 0);
        assert_int_equal(waitpid(t->pid, NULL, WNOHANG), 0);
        assert_int_equal(write(t->sock, "x", 1), 1);
        assert_int_equal(read(t->sock, said, sizeof(said)), sizeof(said));
        assert_true(said[0] == 'x' && (said[1] == 'o' || said[1] == 'b') && said[2] == said[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_has_the_file_and_goes_on_as_it_was, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_it_has_not_open_changes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_makes_no_call_is_let_go, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_ended_is_not_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_dies_meanwhile_takes_nobody_along, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
