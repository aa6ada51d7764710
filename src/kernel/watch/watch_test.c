/* SPDX-License-Identifier: Apache-2.0 */
/* What is executed and written is seen; what was too much is counted. */
#include "base/fd.h"
#include "base/mem.h"
#include "kernel/watch/filewatch.h"
#include "kernel/watch/procwatch.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/cove-watch-test.XXXXXX";

/* Runs a shell as the first process of a process namespace that is watched under this tag. */
static ino_t run(struct procwatch *w, const char *tag, const char *script)
{
    int go[2];
    struct stat st;
    assert_int_equal(pipe(go), 0);
    assert_int_equal(unshare(CLONE_NEWPID), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char byte;
        if (chdir(dir) < 0 || read(go[0], &byte, 1) != 1)
            _exit(125);
        (void)execl("/bin/sh", "sh", "-c", script, "with space", "", NULL);
        _exit(126);
    }
    assert_int_equal(stat("/proc/self/ns/pid_for_children", &st), 0);
    assert_int_equal(procwatch_add(w, st.st_ino, tag), 0);
    assert_int_equal(write(go[1], "", 1), 1);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), 3);
    (void)close(go[0]);
    (void)close(go[1]);
    /* Back to where forks are no business of that namespace, which has ended. */
    AUTO_CLOSE int own = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    assert_int_equal(setns(own, CLONE_NEWPID), 0);
    return st.st_ino;
}

struct seen {
    unsigned n, lost;
    char text[4096];
};

static void on_event(void *ctx, const struct procwatch_event *e)
{
    struct seen *s = ctx;
    s->n++;
    s->lost += e->lost;
    size_t at = strlen(s->text), left = sizeof(s->text) - at;
    if (e->is_exit)
        (void)snprintf(s->text + at, left, "%d: exit %u\n", e->pid, e->status);
    else
        (void)snprintf(s->text + at, left, "%d of %d: %.*s (%.*s) in %s, %zu of %u\n", e->pid, e->parent,
                       STR_ARG(e->program), STR_ARG(e->argv), e->directory, e->argv.n, e->argv_bytes);
    assert_string_equal(e->tag, "the box");
    assert_true(e->host_pid > 0 && e->uid == 0);
}

static struct procwatch *open_or_skip(void)
{
    struct procwatch *w = NULL;
    int r = procwatch_open(&w);
    if (r < 0) {
        print_message("processes can't be watched here: %s\n", strerror(-r));
        skip();
    }
    return w;
}

static void test_processes(void **state)
{
    (void)state;
    struct procwatch *w = open_or_skip();
    struct seen seen = {0};
    char wanted[512];
    (void)run(w, "the box", "(exit 9); cd /; /usr/bin/env true x; exit 3");
    int n = procwatch_read(w, 100, on_event, &seen);
    (void)snprintf(wanted, sizeof(wanted),
                   "1 of 0: /bin/sh (sh) in %s, 62 of 62\n"
                   "3 of 1: /usr/bin/env (/usr/bin/env) in /, 20 of 20\n"
                   "3 of 1: /usr/bin/true (true) in /, 7 of 7\n"
                   "3: exit 0\n"
                   "1: exit 768\n",
                   dir);
    char *at;
    while ((at = strstr(seen.text, "/usr/local")))
        memmove(at, at + 1, strlen(at));
    assert_string_equal(seen.text, wanted);
    assert_int_equal(n, 5);
    assert_int_equal(procwatch_read(w, 100, on_event, &seen), 0);
    procwatch_close(w);
}

static void test_floods_are_counted(void **state)
{
    (void)state;
    struct procwatch *w = open_or_skip();
    struct seen seen = {0};
    ino_t ns = run(w, "the box", "i=0; while [ $i -lt 2500 ]; do /bin/true; i=$((i+1)); done; exit 3");
    int n, all = 0;
    while ((n = procwatch_read(w, 100, on_event, &seen)) > 0)
        all += n;
    assert_int_equal(n, 0);
    assert_int_equal(all, seen.n);
    uint32_t left = procwatch_drop(w, ns);
    print_message("%u told, %u lost, %u of them told\n", seen.n, seen.lost + left, seen.lost);
    assert_int_equal(seen.n + seen.lost + left, 2 * 2500 + 2);
    assert_int_equal(procwatch_drop(w, ns), 0);
    procwatch_close(w);
}

static void test_who_waits_is_woken_as_asked(void **state)
{
    (void)state;
    static const struct {
        enum procwatch_wakes when;
        int wakes;
    } cases[] = {{PROCWATCH_AT_ONCE, 1}, {PROCWATCH_WHEN_FULL, 0}, {PROCWATCH_NEVER, 0}, {PROCWATCH_AT_ONCE, 1}};
    struct procwatch *w = open_or_skip();
    struct seen seen = {0};
    AUTO_CLOSE int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event edge = {.events = EPOLLIN | EPOLLET};
    assert_true(epoll_fd >= 0);
    assert_int_equal(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, procwatch_fd(w), &edge), 0);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        procwatch_wake(w, cases[i].when);
        ino_t ns = run(w, "the box", "exit 3");
        assert_int_equal(epoll_wait(epoll_fd, &edge, 1, cases[i].wakes ? 10000 : 0), cases[i].wakes);
        /* Nobody was woken by some of these, but all of them are there. */
        assert_int_equal(procwatch_read(w, 100, on_event, &seen), 2);
        (void)epoll_wait(epoll_fd, &edge, 1, 0);
        assert_int_equal(procwatch_drop(w, ns), 0);
    }
    procwatch_close(w);
}

static void on_file(void *ctx, const struct filewatch_event *e)
{
    struct seen *s = ctx;
    size_t at = strlen(s->text), left = sizeof(s->text) - at;
    uint64_t bytes = 0;
    if (e->path && !filewatch_look(e, &bytes))
        return;
    s->n++;
    s->lost += !e->path;
    if (s->n < 10)
        (void)snprintf(s->text + at, left, "%s %llu %s\n", e->path ? e->path : "lost", (unsigned long long)bytes,
                       e->from ? e->from : "");
}

static void put(const char *name, const char *text)
{
    AUTO_CLOSE int fd = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void test_files(void **state)
{
    (void)state;
    struct filewatch *w = NULL;
    struct seen seen = {0};
    assert_int_equal(unshare(CLONE_NEWNS), 0);
    assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    assert_int_equal(mount("watched", dir, "tmpfs", 0, NULL), 0);
    AUTO_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(filewatch_open(fd, &w), 0);
    assert_int_equal(fchdir(fd), 0);
    assert_int_equal(mkdir("boxes", 0700) | mkdir("boxes/a", 0700) | mkdir("boxes/c", 0700) | mkdir("other", 0700), 0);
    put("boxes/a/one", "hello");
    put("other/two", "hello");
    put("boxes/a/gone", "");
    assert_int_equal(unlink("boxes/a/gone") | rename("other/two", "boxes/a/two") | mkfifo("boxes/a/pipe", 0600) |
                         rename("boxes/a/one", "boxes/c/b"),
                     0);
    int n;
    while ((n = filewatch_read(w, "boxes/", on_file, &seen)) > 0)
        ;
    assert_int_equal(n, 0);
    assert_string_equal(seen.text, "boxes/c/b 5 boxes/a/one\n");

    seen = (struct seen){0};
    for (int i = 0; i < 20000; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "boxes/a/%d", i);
        put(name, "x");
    }
    while (filewatch_read(w, "boxes/", on_file, &seen) > 0)
        ;
    print_message("%u told of 20000, %u overflows\n", seen.n - seen.lost, seen.lost);
    assert_true(seen.lost == (seen.n - seen.lost < 20000));
    filewatch_close(w);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(umount2(dir, MNT_DETACH), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_floods_are_counted),
        cmocka_unit_test(test_who_waits_is_woken_as_asked),
        cmocka_unit_test(test_files),
    };
    if (geteuid() != 0) {
        print_message("1..0 # SKIP needs root\n");
        return 0;
    }
    if (!mkdtemp(dir))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)rmdir(dir);
    return failed;
}
