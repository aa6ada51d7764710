/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks made by hand, as overlayfs would leave them and as it never would. */
#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "coved/diff.h"
#include "kernel/tree.h"
#include "wire/diff.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

enum { OUT_MAX = 1 << 20, NOBODY = 65534, WAIT_MS = 10000 };

static char top[] = "/var/tmp/cove-diff-test.XXXXXX";

static int set_up(void **state)
{
    (void)state;
    memcpy(strrchr(top, '.') + 1, "XXXXXX", 6);
    if (!mkdtemp(top) || chdir(top) < 0)
        return -1;
    (void)umask(022);
    for (int i = 0; i < 4; i++) {
        char name[2] = {(char)('0' + i), 0};
        if (mkdir(name, 0755) < 0)
            return -1;
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return chdir("/") < 0 || tree_remove(AT_FDCWD, top) < 0 ? -1 : 0;
}

static void file(const char *path, const char *text)
{
    assert_int_equal(fd_write_file(AT_FDCWD, path, str_of(text), 0644), 0);
}

static void dir(const char *path)
{
    assert_int_equal(mkdir(path, 0755), 0);
}

static void whiteout(const char *path)
{
    assert_int_equal(mknod(path, S_IFCHR, 0), 0);
}

static void mark(const char *path, const char *name, const char *value)
{
    char full[64];
    (void)snprintf(full, sizeof(full), "trusted.overlay.%s", name);
    assert_int_equal(setxattr(path, full, value, strlen(value), 0), 0);
}

/* In a child, since the pipe must be read meanwhile. a, b: layers by their digits, topmost first. */
static void run(const char *a, const char *b, size_t n_common, struct buf *out)
{
    int p[2], status;
    assert_int_equal(pipe(p), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct diff d = {.n_a = strlen(a), .n_b = strlen(b), .n_common = n_common, .out = p[1]};
        (void)close(p[0]);
        for (size_t i = 0; i < d.n_a; i++)
            d.a[i] = open((char[]){a[i], 0}, O_PATH | O_DIRECTORY);
        for (size_t i = 0; i < d.n_b; i++)
            d.b[i] = open((char[]){b[i], 0}, O_PATH | O_DIRECTORY);
        int r = diff_write(&d);
        _exit(r < 0 ? 1 : 0);
    }
    assert_true(pid > 0);
    (void)close(p[1]);
    assert_int_equal(fd_read_all(p[0], out), 0);
    (void)close(p[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* "Af path" and so on, sorted by path, joined by commas. */
static void expect(const char *a, const char *b, size_t n_common, const char *wanted)
{
    AUTO_BUF struct buf out = BUF_INIT(OUT_MAX);
    AUTO_BUF struct buf text = BUF_INIT(OUT_MAX);
    char *lines[256] = {NULL};
    size_t n = 0;
    run(a, b, n_common, &out);
    for (size_t at = 0; at < buf_len(&out);) {
        struct diff_record r;
        assert_true(at + sizeof(r) <= buf_len(&out) && n < ARRAY_SIZE(lines));
        memcpy(&r, (const char *)buf_data(&out) + at, sizeof(r));
        at += sizeof(r);
        assert_true(at + r.path_len <= buf_len(&out));
        lines[n++] = mem_printf("%.*s %c%c", (int)r.path_len, (const char *)buf_data(&out) + at, r.kind, r.type);
        at += r.path_len;
    }
    qsort(lines, n, sizeof(lines[0]), by_text);
    for (size_t i = 0; i < n; i++) {
        (void)buf_printf(&text, "%s%s", i ? ", " : "", lines[i]);
        mem_free(lines[i]);
    }
    (void)buf_append_char(&text, 0);
    assert_string_equal(buf_data(&text), wanted);
}

static void test_added_changed_deleted(void **state)
{
    (void)state;
    dir("1/d");
    file("1/d/kept", "k");
    file("1/d/changed", "before");
    file("1/d/gone", "g");
    file("1/touched", "same");
    dir("0/d");
    file("0/d/changed", "after!");
    whiteout("0/d/gone");
    whiteout("0/d/never");
    file("0/touched", "same");
    file("0/new", "n");
    assert_int_equal(symlink("/etc", "0/link"), 0);
    assert_int_equal(mkfifo("0/fifo", 0644), 0);
    expect("1", "01", 1, "d/changed Mf, d/gone Df, fifo Ap, link Al, new Af");
    expect("01", "1", 1, "d/changed Mf, d/gone Af, fifo Dp, link Dl, new Df");
    assert_int_equal(chmod("0/touched", 0600), 0);
    expect("1", "01", 1, "d/changed Mf, d/gone Df, fifo Ap, link Al, new Af, touched Mf");
    expect("01", "01", 2, "");
    expect("", "1", 0, "d Ad, d/changed Af, d/gone Af, d/kept Af, touched Af");
}

static void test_bytes_count_and_times_do_not(void **state)
{
    (void)state;
    file("1/f", "aaaa");
    file("0/f", "bbbb");
    const struct timespec same[2] = {{1000000000, 5}, {1000000000, 5}};
    assert_int_equal(utimensat(AT_FDCWD, "1/f", same, 0), 0);
    assert_int_equal(utimensat(AT_FDCWD, "0/f", same, 0), 0);
    expect("1", "01", 1, "f Mf");
    file("0/f", "aaaa");
    expect("1", "01", 1, "");
}

static void test_opaque_and_other_types(void **state)
{
    (void)state;
    dir("1/d");
    file("1/d/old", "o");
    dir("1/was-dir");
    file("1/was-dir/x", "x");
    file("1/was-file", "x");
    dir("0/d");
    mark("0/d", "opaque", "y");
    file("0/d/new", "n");
    file("0/was-dir", "x");
    dir("0/was-file");
    file("0/was-file/y", "y");
    expect("1", "01", 1, "d/new Af, d/old Df, was-dir Mf, was-file Md, was-file/y Af");
}

static void test_renamed_directories(void **state)
{
    (void)state;
    dir("2/a");
    dir("2/a/b");
    file("2/a/b/1", "1");
    file("2/a/2", "2");
    /* a -> z, and z/b -> /deep, in one layer; below, /deep is called a/b. */
    whiteout("1/a");
    dir("1/z");
    mark("1/z", "redirect", "a");
    whiteout("1/z/b");
    dir("1/deep");
    mark("1/deep", "redirect", "/a/b");
    file("1/deep/3", "3");
    expect("2", "12", 1, "a Dd, deep Ad, deep/1 Af, deep/3 Af, z Ad, z/2 Af");
    /* And once more above: what was /deep is now /z/q; z has a redirect of its own below. */
    dir("0/z");
    dir("0/z/q");
    mark("0/z/q", "redirect", "/deep");
    whiteout("0/deep");
    expect("12", "012", 2, "deep Dd, z/q Ad, z/q/1 Af, z/q/3 Af");
    expect("2", "012", 1, "a Dd, z Ad, z/2 Af, z/q Ad, z/q/1 Af, z/q/3 Af");
}

static void test_redirects_that_lead_nowhere(void **state)
{
    (void)state;
    static const char *const bad[] = {"/",       "//",  "/..",   "/../..", "..",    ".",
                                      "/a/../b", "x/y", "/none", "",       "/self", "self"};
    dir("1/a");
    file("1/a/f", "f");
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        char path[16];
        (void)snprintf(path, sizeof(path), "0/d%zu", i);
        dir(path);
        if (bad[i][0])
            mark(path, "redirect", bad[i]);
    }
    dir("0/self");
    mark("0/self", "redirect", "/self");
    expect("1", "01", 1,
           "d0 Ad, d1 Ad, d10 Ad, d11 Ad, d2 Ad, d3 Ad, d4 Ad, d5 Ad, d6 Ad, d7 Ad, d8 Ad, d9 Ad, self Ad");
}

static void test_depth_is_bounded(void **state)
{
    (void)state;
    AUTO_BUF struct buf out = BUF_INIT(OUT_MAX);
    assert_int_equal(chdir("0"), 0);
    for (int i = 0; i < 2 * DIFF_DEPTH_MAX; i++) {
        dir("d");
        assert_int_equal(chdir("d"), 0);
    }
    assert_int_equal(chdir(top), 0);
    run("1", "01", 1, &out);
    size_t n = 0;
    for (size_t at = 0; at < buf_len(&out); n++) {
        struct diff_record r;
        memcpy(&r, (const char *)buf_data(&out) + at, sizeof(r));
        at += sizeof(r) + r.path_len;
    }
    assert_int_equal(n, DIFF_DEPTH_MAX);
}

static void test_it_ends_with_its_parent(void **state)
{
    (void)state;
    int pipe_fds[2], status;
    char byte;
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    pid_t parent = fork();
    if (parent == 0) {
        pid_t child = fork();
        if (child == 0) {
            (void)alarm(60);
            bool tied = prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0 && diff_confine(NOBODY) == 0;
            if (tied && write(pipe_fds[1], "", 1) == 1)
                (void)pause();
            _exit(1);
        }
        (void)pause();
        _exit(1);
    }
    (void)fd_close(pipe_fds[1]);
    struct pollfd p = {.fd = pipe_fds[0], .events = POLLIN};
    assert_int_equal(read(pipe_fds[0], &byte, 1), 1);
    assert_int_equal(kill(parent, SIGKILL), 0);
    assert_int_equal(waitpid(parent, &status, 0), parent);
    assert_int_equal(poll(&p, 1, WAIT_MS), 1);
    assert_int_equal(read(pipe_fds[0], &byte, 1), 0); /* nobody has the other end any more */
    (void)fd_close(pipe_fds[0]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_added_changed_deleted),   TEST(test_bytes_count_and_times_do_not), TEST(test_opaque_and_other_types),
        TEST(test_renamed_directories),     TEST(test_redirects_that_lead_nowhere),  TEST(test_depth_is_bounded),
        TEST(test_it_ends_with_its_parent),
    };
    if (geteuid() != 0) {
        print_message("SKIP: whiteouts and overlayfs's attributes need root\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
