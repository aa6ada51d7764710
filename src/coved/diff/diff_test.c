/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks made by hand, as overlayfs would leave them and as it never would. */
#include "base/fd.h"
#include "coved/diff/diff.h"
#include "coved/diff/test_rig.h"
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

static void test_added_changed_deleted(void **state)
{
    (void)state;
    diff_rig_dir("1/d");
    diff_rig_file("1/d/kept", "k");
    diff_rig_file("1/d/changed", "before");
    diff_rig_file("1/d/gone", "g");
    diff_rig_file("1/touched", "same");
    diff_rig_dir("0/d");
    diff_rig_file("0/d/changed", "after!");
    diff_rig_whiteout("0/d/gone");
    diff_rig_whiteout("0/d/never");
    diff_rig_file("0/touched", "same");
    diff_rig_file("0/new", "n");
    assert_int_equal(symlink("/etc", "0/link"), 0);
    assert_int_equal(mkfifo("0/fifo", 0644), 0);
    (void)diff_rig_expect("1", "01", 1, "d/changed Mf, d/gone Df, fifo Ap, link Al, new Af");
    (void)diff_rig_expect("01", "1", 1, "d/changed Mf, d/gone Af, fifo Dp, link Dl, new Df");
    assert_int_equal(chmod("0/touched", 0600), 0);
    (void)diff_rig_expect("1", "01", 1, "d/changed Mf, d/gone Df, fifo Ap, link Al, new Af, touched Mf");
    (void)diff_rig_expect("01", "01", 2, "");
    (void)diff_rig_expect("", "1", 0, "d Ad, d/changed Af, d/gone Af, d/kept Af, touched Af");
}

static void test_bytes_count_and_times_do_not(void **state)
{
    (void)state;
    diff_rig_file("1/f", "aaaa");
    diff_rig_file("0/f", "bbbb");
    const struct timespec same[2] = {{1000000000, 5}, {1000000000, 5}};
    assert_int_equal(utimensat(AT_FDCWD, "1/f", same, 0), 0);
    assert_int_equal(utimensat(AT_FDCWD, "0/f", same, 0), 0);
    (void)diff_rig_expect("1", "01", 1, "f Mf");
    diff_rig_file("0/f", "aaaa");
    (void)diff_rig_expect("1", "01", 1, "");
}

static void test_opaque_and_other_types(void **state)
{
    (void)state;
    diff_rig_dir("1/d");
    diff_rig_file("1/d/old", "o");
    diff_rig_dir("1/was-dir");
    diff_rig_file("1/was-dir/x", "x");
    diff_rig_file("1/was-file", "x");
    diff_rig_dir("0/d");
    diff_rig_mark("0/d", "opaque", "y");
    diff_rig_file("0/d/new", "n");
    diff_rig_file("0/was-dir", "x");
    diff_rig_dir("0/was-file");
    diff_rig_file("0/was-file/y", "y");
    (void)diff_rig_expect("1", "01", 1, "d/new Af, d/old Df, was-dir Mf, was-file Md, was-file/y Af");
}

static void test_renamed_directories(void **state)
{
    (void)state;
    diff_rig_dir("2/a");
    diff_rig_dir("2/a/b");
    diff_rig_file("2/a/b/1", "1");
    diff_rig_file("2/a/2", "2");
    /* a -> z, and z/b -> /deep, in one layer; below, /deep is called a/b. */
    diff_rig_whiteout("1/a");
    diff_rig_dir("1/z");
    diff_rig_mark("1/z", "redirect", "a");
    diff_rig_whiteout("1/z/b");
    diff_rig_dir("1/deep");
    diff_rig_mark("1/deep", "redirect", "/a/b");
    diff_rig_file("1/deep/3", "3");
    (void)diff_rig_expect("2", "12", 1, "a Dd, deep Ad, deep/1 Af, deep/3 Af, z Ad, z/2 Af");
    /* And once more above: what was /deep is now /z/q; z has a redirect of its own below. */
    diff_rig_dir("0/z");
    diff_rig_dir("0/z/q");
    diff_rig_mark("0/z/q", "redirect", "/deep");
    diff_rig_whiteout("0/deep");
    (void)diff_rig_expect("12", "012", 2, "deep Dd, z/q Ad, z/q/1 Af, z/q/3 Af");
    (void)diff_rig_expect("2", "012", 1, "a Dd, z Ad, z/2 Af, z/q Ad, z/q/1 Af, z/q/3 Af");
}

static void test_what_is_renamed_on_the_way_to_what_was_renamed(void **state)
{
    (void)state;
    diff_rig_dir("2/a");
    diff_rig_dir("2/a/b");
    diff_rig_dir("2/a/b/c");
    diff_rig_file("2/a/b/c/f", "f");
    diff_rig_dir("2/o");
    diff_rig_dir("2/o/b");
    diff_rig_file("2/o/b/hidden", "h");
    diff_rig_dir("2/w");
    diff_rig_dir("2/w/b");
    diff_rig_file("2/w/b/hidden", "h");
    /* a -> z and z/b -> z/y beside, each by a name alone; o is another one now, and there is no w. */
    diff_rig_dir("1/z");
    diff_rig_mark("1/z", "redirect", "a");
    diff_rig_whiteout("1/a");
    diff_rig_dir("1/z/y");
    diff_rig_mark("1/z/y", "redirect", "b");
    diff_rig_whiteout("1/z/b");
    diff_rig_dir("1/o");
    diff_rig_mark("1/o", "opaque", "y");
    diff_rig_whiteout("1/w");
    diff_rig_dir("0/c");
    diff_rig_mark("0/c", "redirect", "/z/y/c");
    diff_rig_dir("0/d");
    diff_rig_mark("0/d", "redirect", "/o/b");
    diff_rig_dir("0/e");
    diff_rig_mark("0/e", "redirect", "/w/b");
    (void)diff_rig_expect("12", "012", 2, "c Ad, c/f Af, d Ad, e Ad");
}

static void test_redirects_that_lead_nowhere(void **state)
{
    (void)state;
    static const char *const bad[] = {"/",       "//",  "/..",   "/../..", "..",    ".",
                                      "/a/../b", "x/y", "/none", "",       "/self", "self"};
    diff_rig_dir("1/a");
    diff_rig_file("1/a/f", "f");
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        char path[16];
        (void)snprintf(path, sizeof(path), "0/d%zu", i);
        diff_rig_dir(path);
        if (bad[i][0])
            diff_rig_mark(path, "redirect", bad[i]);
    }
    diff_rig_dir("0/self");
    diff_rig_mark("0/self", "redirect", "/self");
    (void)diff_rig_expect(
        "1", "01", 1, "d0 Ad, d1 Ad, d10 Ad, d11 Ad, d2 Ad, d3 Ad, d4 Ad, d5 Ad, d6 Ad, d7 Ad, d8 Ad, d9 Ad, self Ad");
}

static void test_depth_is_bounded(void **state)
{
    (void)state;
    AUTO_BUF struct buf out = BUF_INIT(OUT_MAX);
    uint64_t lookups;
    assert_int_equal(chdir("0"), 0);
    for (int i = 0; i < 2 * DIFF_DEPTH_MAX; i++) {
        diff_rig_dir("d");
        assert_int_equal(chdir("d"), 0);
    }
    assert_int_equal(chdir(diff_rig_top()), 0);
    assert_int_equal(diff_rig_run(&(struct diff_rig_run){0}, "1", "01", 1, &out, &lookups), -ENAMETOOLONG);
    size_t n = 0;
    for (size_t at = 0; at < buf_len(&out); n++) {
        struct diff_record r;
        memcpy(&r, (const char *)buf_data(&out) + at, sizeof(r));
        at += sizeof(r) + r.path_len;
    }
    assert_int_equal(n, DIFF_DEPTH_MAX);
}

static void make_deep(const char *layer, const char *name, int depth)
{
    assert_int_equal(chdir(layer), 0);
    for (int i = 0; i < depth; i++) {
        diff_rig_dir(name);
        assert_int_equal(chdir(name), 0);
    }
    assert_int_equal(chdir(diff_rig_top()), 0);
}

static void test_what_is_left_out_is_an_error_and_what_is_not_is_none(void **state)
{
    (void)state;
    char name[200];
    AUTO_BUF struct buf out = BUF_INIT(OUT_MAX);
    uint64_t lookups;
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = 0;
    make_deep("0", "d", DIFF_DEPTH_MAX); /* just fits */
    make_deep("2", name, DIFF_PATH_MAX / (int)sizeof(name));
    make_deep("4", name, DIFF_PATH_MAX / (int)sizeof(name) + 1);
    const struct diff_rig_run usual = {0};
    assert_int_equal(diff_rig_run(&usual, "1", "01", 1, &out, &lookups), 0);
    assert_int_equal(diff_rig_run(&usual, "3", "23", 1, &out, &lookups), 0);
    assert_int_equal(diff_rig_run(&usual, "3", "43", 1, &out, &lookups), -ENAMETOOLONG);
    assert_int_equal(diff_rig_run(&usual, "43", "43", 2, &out, &lookups), 0);
    assert_int_equal(diff_rig_run(&usual, "43", "3", 1, &out, &lookups), 0); /* gone with all in it */
}

static void test_a_path_below_that_is_too_long_is_an_error(void **state)
{
    (void)state;
    char name[251], path[64] = "1", from[64] = "";
    AUTO_BUF struct buf out = BUF_INIT(OUT_MAX);
    uint64_t lookups;
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = 0;
    for (int i = 0; i < 20; i++) { /* each is called by a long name below */
        memcpy(path + strlen(path), "/d", 3);
        memcpy(from + strlen(from), "/d", 3);
        diff_rig_dir(path);
        diff_rig_mark(path, "redirect", name);
    }
    diff_rig_dir("0/t");
    diff_rig_mark("0/t", "redirect", from);
    diff_rig_file("0/z", "told all the same");
    assert_int_equal(diff_rig_run(&(struct diff_rig_run){0}, "12", "012", 2, &out, &lookups), -ENAMETOOLONG);
    assert_int_equal(buf_len(&out), sizeof(struct diff_record) + 1);
}

static void test_the_root_counts(void **state)
{
    (void)state;
    assert_int_equal(chmod("0", 0700), 0);
    (void)diff_rig_expect("1", "01", 1, " Md");
    assert_int_equal(chmod("0", 0755), 0);
    assert_int_equal(chown("0", 0, 1000), 0);
    (void)diff_rig_expect("1", "01", 1, " Md");
    (void)diff_rig_expect("01", "01", 2, "");
    (void)diff_rig_expect("", "01", 0, "");
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, diff_rig_set_up, diff_rig_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_added_changed_deleted),
        TEST(test_bytes_count_and_times_do_not),
        TEST(test_opaque_and_other_types),
        TEST(test_renamed_directories),
        TEST(test_what_is_renamed_on_the_way_to_what_was_renamed),
        TEST(test_redirects_that_lead_nowhere),
        TEST(test_depth_is_bounded),
        TEST(test_what_is_left_out_is_an_error_and_what_is_not_is_none),
        TEST(test_a_path_below_that_is_too_long_is_an_error),
        TEST(test_the_root_counts),
        TEST(test_it_ends_with_its_parent),
    };
    if (geteuid() != 0) {
        print_message("SKIP: whiteouts and overlayfs's attributes need root\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
