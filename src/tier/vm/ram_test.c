/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "tier/vm/ram.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PAGE = 4096, BYTES = 3 * 1024 * PAGE, PATIENCE_USEC = 20 * 1000000, SHORT_USEC = 50 * 1000 };

struct place {
    char dir[64];
    int dir_fd, proc_fd;
};

static int set_up(void **state)
{
    static struct place p;
    (void)snprintf(p.dir, sizeof(p.dir), "/tmp/memory-test-XXXXXX");
    if (!mkdtemp(p.dir))
        return -1;
    p.dir_fd = open(p.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    p.proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *state = &p;
    return 0;
}

static int tear_down(void **state)
{
    struct place *p = *state;
    static const char *const names[] = {"one", "two", "three"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        (void)unlinkat(p->dir_fd, names[i], 0);
    (void)rmdir(p->dir);
    (void)fd_close(p->dir_fd);
    (void)fd_close(p->proc_fd);
    return 0;
}

/* A "monitor" that has memory from `from`, and writes `mark` into every `step`th page; into page 1, too, once it is
 * told. */
static pid_t start(int from, char mark, size_t step)
{
    int pair[2];
    char byte;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, from, 0);
        if (memory == MAP_FAILED || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
            _exit(1);
        for (size_t i = 0; i < BYTES / PAGE; i += step)
            memset(memory + i * PAGE, mark, PAGE);
        (void)!write(pair[1], "", 1);
        for (;;)
            (void)pause();
    }
    (void)close(pair[1]);
    assert_int_equal(read(pair[0], &byte, 1), 1);
    (void)close(pair[0]);
    return pid;
}

static void end(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static char byte_at(const struct place *p, const char *name, size_t page)
{
    char byte = 0;
    AUTO_CLOSE int fd = openat(p->dir_fd, name, O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, &byte, 1, (off_t)(page * PAGE + 17)), 1);
    return byte;
}

static void test_what_was_written_is_saved_over_and_over(void **state)
{
    const struct place *p = *state;
    struct stat st;
    uint64_t own = 0;
    AUTO_CLOSE int zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
    if (geteuid() != 0)
        skip(); /* what a process maps can't be opened */
    pid_t pid = start(zero, 'a', 3);
    assert_int_equal(ram_save(p->proc_fd, getpid(), getuid(), BYTES, p->dir_fd, "one", &own), 0);
    end(pid);
    assert_int_equal(fstatat(p->dir_fd, "one", &st, 0), 0);
    assert_int_equal(st.st_size, BYTES);
    assert_true(st.st_blocks * 512 < BYTES / 2); /* what was never written takes no room */
    assert_int_equal(st.st_mode & 0777, 0444);
    assert_int_equal(own, BYTES / 3);
    assert_int_equal(byte_at(p, "one", 0), 'a');
    assert_int_equal(byte_at(p, "one", 1), 0);
    assert_int_equal(byte_at(p, "one", 3), 'a');

    AUTO_CLOSE int one = openat(p->dir_fd, "one", O_RDONLY | O_CLOEXEC); /* for reading alone is enough */
    pid = start(one, 'b', 2);
    assert_int_equal(ram_save(p->proc_fd, getpid(), getuid(), BYTES, p->dir_fd, "two", &own), 0);
    end(pid);
    assert_int_equal(byte_at(p, "two", 0), 'b');
    assert_int_equal(byte_at(p, "two", 3), 'a');
    assert_int_equal(byte_at(p, "two", 1), 0);
    assert_int_equal(byte_at(p, "two", 4), 'b');
    assert_int_equal(byte_at(p, "one", 0), 'a'); /* as it was */

    AUTO_CLOSE int two = openat(p->dir_fd, "two", O_RDONLY | O_CLOEXEC);
    pid = start(two, 0, 4); /* zeros over what isn't */
    assert_int_equal(ram_save(p->proc_fd, getpid(), getuid(), BYTES, p->dir_fd, "three", &own), 0);
    end(pid);
    assert_int_equal(byte_at(p, "three", 4), 0);
    assert_int_equal(byte_at(p, "three", 2), 'b');
}

static void test_only_that_process_and_that_size(void **state)
{
    const struct place *p = *state;
    uint64_t own = 0;
    AUTO_CLOSE int zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
    pid_t pid = start(zero, 'a', 1);
    assert_int_equal(ram_save(p->proc_fd, getpid(), getuid() + 1, BYTES, p->dir_fd, "one", &own), -ESRCH);
    assert_int_equal(ram_save(p->proc_fd, getpid(), getuid(), BYTES, p->dir_fd, "one", &own), -EEXIST);
    assert_int_equal(ram_save(p->proc_fd, getpid(), getuid(), BYTES + PAGE, p->dir_fd, "two", &own), -ENODATA);
    end(pid);
    assert_int_equal(ram_save(p->proc_fd, getpid(), getuid(), BYTES, p->dir_fd, "three", &own), -ESRCH);
}

static void test_what_was_saved_is_shared(void **state)
{
    const struct place *p = *state;
    uint64_t own = 0;
    AUTO_CLOSE int zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
    if (geteuid() != 0)
        skip();
    /* What the child is to have open is made before it begins. */
    AUTO_CLOSE int given = openat(p->dir_fd, "one", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    pid_t pid = start(zero, 'a', 3);
    assert_int_equal(ram_save(p->proc_fd, getpid(), getuid(), BYTES, p->dir_fd, "two", &own), 0);
    AUTO_CLOSE int two = openat(p->dir_fd, "two", O_RDONLY | O_CLOEXEC);
    assert_int_equal(ram_share(p->proc_fd, getpid(), getuid(), BYTES, two, SHORT_USEC), -EAGAIN);
    assert_int_equal(ftruncate(given, BYTES), 0);
    assert_int_equal(ram_clone(two, given), 0);
    assert_int_equal(ram_share(p->proc_fd, getpid(), getuid(), BYTES, given, PATIENCE_USEC), 0);

    assert_int_equal(ram_save(p->proc_fd, getpid(), getuid(), BYTES, p->dir_fd, "three", &own), 0);
    assert_int_equal(own, 0);
    assert_int_equal(byte_at(p, "three", 0), 'a');
    assert_int_equal(byte_at(p, "three", 1), 0);
    assert_int_equal(byte_at(p, "three", 3), 'a');
    end(pid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_was_written_is_saved_over_and_over, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_was_saved_is_shared, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_only_that_process_and_that_size, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
