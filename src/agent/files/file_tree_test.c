/* SPDX-License-Identifier: Apache-2.0 */
/* Directories: MKDIR, MOVE, REMOVE, and large trees. */
#include "agent/test_calls.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

static void test_mkdir(void **state)
{
    (void)state;
    struct result x;
    struct stat st;
    rig_result(&rig, rig_open_path(&rig, WIRE_MKDIR, "user", "a/b/c"), true, &x);
    assert_string_equal(x.message, "");
    struct wire_reader r = wire_reader_of(buf_str(&x.tail));
    struct entry e = entry_get(&r);
    assert_true(str_eqc(e.path, rig_path(&rig, "home/a/b/c")) && str_eqc(e.owner, "user"));
    assert_int_equal(e.mode, S_IFDIR | 0755);
    result_fini(&x);
    assert_int_equal(stat(rig_path(&rig, "home/a"), &st), 0);
    assert_int_equal(st.st_uid, 1000);
    expect_failure(WIRE_MKDIR, "a/b", ERR_ALREADY_EXISTS, "directory already exists: %s/home/a/b", rig.dir);
    assert_int_equal(symlink("a", rig_path(&rig, "home/link")), 0);
    expect_failure(WIRE_MKDIR, "link", ERR_ALREADY_EXISTS, "directory already exists: %s/home/link", rig.dir);
    rig_write(rig_path(&rig, "home/f"), "");
    expect_failure(WIRE_MKDIR, "f", ERR_INVALID_ARGUMENT, "path already exists but it is not a directory: %s/home/f",
                   rig.dir);
}

static uint32_t open_move(const char *from, const char *to)
{
    struct buf *b = rig_request(WIRE_MOVE);
    wire_put_str(b, STR("user"));
    wire_put_str(b, str_of(from));
    wire_put_str(b, str_of(to));
    return rig_open(&rig, b);
}

static void move(const char *from, const char *to)
{
    struct result x;
    rig_result(&rig, open_move(from, to), true, &x);
    assert_string_equal(x.message, "");
    struct wire_reader r = wire_reader_of(buf_str(&x.tail));
    struct entry e = entry_get(&r);
    assert_true(str_ends(e.path, str_of(to)));
    assert_true(wire_done(&r));
    result_fini(&x);
}

static void test_move(void **state)
{
    (void)state;
    char message[600];
    rig_write(rig_path(&rig, "home/f"), "f");
    rig_write(rig_path(&rig, "home/g"), "g");
    move("f", "new/dir/f");
    assert_string_equal(rig_read(rig_path(&rig, "home/new/dir/f")), "f");
    move("new/dir/f", "g");
    assert_string_equal(rig_read(rig_path(&rig, "home/g")), "f");
    (void)snprintf(message, sizeof(message),
                   "source file not found: rename %s/home/nope %s/home/x: no such file or directory", rig.dir, rig.dir);
    rig_expect_end(&rig, open_move("nope", "x"), ERR_NOT_FOUND, message);
    (void)snprintf(message, sizeof(message), "error renaming: rename %s/home/g %s/home/new: file exists", rig.dir,
                   rig.dir);
    rig_expect_end(&rig, open_move("g", "new"), ERR_ALREADY_EXISTS, message);
    (void)snprintf(message, sizeof(message), "error renaming: rename %s/home/new %s/home/new/dir/x: invalid argument",
                   rig.dir, rig.dir);
    rig_expect_end(&rig, open_move("new", "new/dir/x"), ERR_INVALID_ARGUMENT, message);
    (void)snprintf(message, sizeof(message), "path is a file: %s/home/g", rig.dir);
    rig_expect_end(&rig, open_move("new", "g/x"), ERR_INVALID_ARGUMENT, message);
    char name[257] = {0};
    memset(name, 'n', 256);
    (void)snprintf(message, sizeof(message), "error renaming: rename %s/home/g %s/home/%s: file name too long", rig.dir,
                   rig.dir, name);
    rig_expect_end(&rig, open_move("g", name), ERR_INVALID_ARGUMENT, message);
    (void)snprintf(message, sizeof(message), "error creating directory: mkdir %s/home/%s: file name too long", rig.dir,
                   name);
    rig_expect_end(&rig, rig_open_path(&rig, WIRE_MKDIR, "user", name), ERR_INVALID_ARGUMENT, message);
    rig_expect_end(&rig, open_move("g", rig_path(&rig, "home/%s/x", name)), ERR_INVALID_ARGUMENT, message);
    assert_string_equal(rig_read(rig_path(&rig, "home/g")), "f");
}

/* Over file systems: a copy, with all there is, then the source goes. */
static void test_move_across(void **state)
{
    (void)state;
    struct stat st, moved;
    char target[32] = {0}, value[8];
    char *dir = rig_path(&rig, "other");
    assert_int_equal(mkdir(dir, 0755), 0);
    if (mount("none", dir, "tmpfs", 0, NULL) < 0)
        skip();
    assert_int_equal(mkdir(rig_path(&rig, "home/t"), 0751), 0);
    assert_int_equal(mkdir(rig_path(&rig, "home/t/sub"), 0700), 0);
    rig_write(rig_path(&rig, "home/t/sub/f"), "content");
    assert_int_equal(setxattr(rig_path(&rig, "home/t/sub/f"), "user.rig.k", "v", 1, 0), 0);
    assert_int_equal(chown(rig_path(&rig, "home/t/sub/f"), 1001, 2000), 0);
    assert_int_equal(chmod(rig_path(&rig, "home/t/sub/f"), 04711), 0);
    assert_int_equal(symlink("../away", rig_path(&rig, "home/t/link")), 0);
    assert_int_equal(mkfifo(rig_path(&rig, "home/t/fifo"), 0640), 0);
    assert_int_equal(stat(rig_path(&rig, "home/t/sub/f"), &st), 0);
    move(rig_path(&rig, "home/t"), rig_path(&rig, "other/t2"));
    assert_int_equal(lstat(rig_path(&rig, "home/t"), &moved), -1);
    assert_string_equal(rig_read(rig_path(&rig, "other/t2/sub/f")), "content");
    assert_int_equal(stat(rig_path(&rig, "other/t2/sub/f"), &moved), 0);
    assert_int_equal(moved.st_mode, st.st_mode);
    assert_int_equal(moved.st_uid, 1001);
    assert_int_equal(moved.st_gid, 2000);
    assert_int_equal(moved.st_mtim.tv_nsec, st.st_mtim.tv_nsec);
    if (getxattr(rig_path(&rig, "other/t2/sub/f"), "user.rig.k", value, sizeof(value)) != 1)
        assert_int_equal(errno, EOPNOTSUPP); /* tmpfs before Linux 6.6 */
    assert_int_equal(stat(rig_path(&rig, "other/t2"), &moved), 0);
    assert_int_equal(moved.st_mode, S_IFDIR | 0751);
    assert_int_equal(readlink(rig_path(&rig, "other/t2/link"), target, sizeof(target)), 7);
    assert_string_equal(target, "../away");
    assert_int_equal(lstat(rig_path(&rig, "other/t2/fifo"), &moved), 0);
    assert_int_equal(moved.st_mode, S_IFIFO | 0640);
    /* Nothing is left of a copy that could not take its place. */
    assert_int_equal(mkdir(rig_path(&rig, "home/full"), 0755), 0);
    rig_write(rig_path(&rig, "home/full/x"), "");
    char message[600];
    (void)snprintf(message, sizeof(message), "error renaming: rename %s/other/t2 %s/home/full: file exists", rig.dir,
                   rig.dir);
    rig_expect_end(&rig, open_move(rig_path(&rig, "other/t2"), "full"), ERR_ALREADY_EXISTS, message);
    expect_list("", 1, "/home/full ");
    assert_int_equal(umount2(rig_path(&rig, "other"), MNT_DETACH), 0);
}

static void test_remove(void **state)
{
    (void)state;
    struct stat st;
    assert_int_equal(mkdir(rig_path(&rig, "home/keep"), 0755), 0);
    rig_write(rig_path(&rig, "home/keep/f"), "");
    assert_int_equal(mkdir(rig_path(&rig, "home/d"), 0755), 0);
    assert_int_equal(mkdir(rig_path(&rig, "home/d/e"), 0), 0);
    for (int i = 0; i < 3000; i++)
        rig_write(rig_path(&rig, "home/d/e/%d", i), "");
    assert_int_equal(symlink("../keep", rig_path(&rig, "home/d/link")), 0);
    assert_int_equal(symlink("keep", rig_path(&rig, "home/link")), 0);
    expect_failure(WIRE_REMOVE, "d", ERR_OK, "%s", "");
    expect_failure(WIRE_REMOVE, "link", ERR_OK, "%s", "");
    assert_int_equal(lstat(rig_path(&rig, "home/d"), &st), -1);
    assert_int_equal(lstat(rig_path(&rig, "home/link"), &st), -1);
    assert_int_equal(stat(rig_path(&rig, "home/keep/f"), &st), 0);
    expect_failure(WIRE_REMOVE, "/", ERR_INVALID_ARGUMENT,
                   "error removing file or directory: unlinkat /: refused for the root directory");
    expect_failure(WIRE_REMOVE, "/tmp/..", ERR_INVALID_ARGUMENT,
                   "error removing file or directory: unlinkat /tmp/..: refused for the root directory");
    expect_failure(WIRE_REMOVE, "/proc/1", ERR_PERMISSION_DENIED,
                   "error removing file or directory: unlinkat /proc/1: operation not permitted");
}

/* Deeper than a path can be long, and than there are descriptors. */
static void test_deep_tree(void **state)
{
    (void)state;
    enum { DEPTH = 3000 };
    struct stat st;
    struct result x;
    char *top = rig_path(&rig, "home/deep");
    assert_int_equal(mkdir(top, 0755), 0);
    int fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < DEPTH; i++) {
        assert_int_equal(mkdirat(fd, "dd", 0755), 0);
        int next = openat(fd, "dd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        (void)close(fd);
        fd = next;
    }
    (void)close(fd);
    struct buf *b = rig_request(WIRE_LIST);
    wire_put_str(b, STR("user"));
    wire_put_str(b, STR("deep"));
    wire_put_u32(b, UINT32_MAX);
    rig_result(&rig, rig_open(&rig, b), true, &x);
    assert_string_equal(x.message, "");
    assert_true(buf_len(&x.data) > 1000 * 1000);
    result_fini(&x);
    expect_failure(WIRE_REMOVE, "deep", ERR_OK, "%s", "");
    assert_int_equal(lstat(top, &st), -1);
}

/* Many entries, slowly taken: the job is held back by credit, others are not. */
static void test_large_directory(void **state)
{
    (void)state;
    enum { FILES = 5000 };
    size_t n = 0, got = 0;
    for (int i = 0; i < FILES; i++)
        rig_write(rig_path(&rig, "home/%05d", i), "");
    struct buf *b = rig_request(WIRE_LIST);
    wire_put_str(b, STR("user"));
    wire_put_str(b, STR(""));
    wire_put_u32(b, 1);
    uint32_t id = rig_open(&rig, b);
    frame_free(rig_expect(&rig, id, WIRE_REPLY));
    AUTO_BUF struct buf all = BUF_INIT(4 << 20);
    for (struct frame *f; (f = rig_next(&rig, id, 100)); frame_free(f)) {
        assert_int_equal(f->type, WIRE_DATA);
        (void)buf_append(&all, f->payload, f->n);
    }
    assert_true(buf_len(&all) <= WIRE_WINDOW);
    rig_expect_end(&rig, rig_open(&rig, rig_request(WIRE_PING)), ERR_OK, "");
    got = buf_len(&all);
    rig_credit(&rig, id, (uint32_t)got, true);
    struct result x;
    rig_result(&rig, id, true, &x);
    (void)buf_append_str(&all, buf_str(&x.data));
    result_fini(&x);
    struct wire_reader r = wire_reader_of(buf_str(&all));
    for (; r.n; n++) {
        char want[8];
        struct entry e = entry_get(&r);
        (void)snprintf(want, sizeof(want), "%05zu", n);
        assert_true(str_eqc(e.name, want));
    }
    assert_int_equal(n, FILES);
}

/* More of them than run at a time; some are given up. */
static void test_many_jobs(void **state)
{
    (void)state;
    enum { JOBS = 200 };
    uint32_t ids[JOBS];
    for (int i = 0; i < JOBS; i++) {
        struct buf *b = rig_request(WIRE_LIST);
        wire_put_str(b, STR("user"));
        wire_put_str(b, str_of("/usr"));
        wire_put_u32(b, 3);
        ids[i] = rig_open(&rig, b);
    }
    for (int i = 0; i < JOBS; i++)
        if (i % 10)
            rig_send(&rig, WIRE_CLOSE, 0, ids[i], NULL, 0);
    for (int i = 0; i < JOBS; i++) {
        struct result x;
        rig_result(&rig, ids[i], true, &x);
        if (i % 10 == 0)
            assert_int_equal(x.code, ERR_OK);
        result_fini(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_mkdir),     TEST(test_move),      TEST(test_move_across),
        TEST(test_remove),    TEST(test_deep_tree), TEST(test_large_directory),
        TEST(test_many_jobs),
    };
    /* What is mounted here goes with the test, whatever becomes of it. */
    if (unshare(CLONE_NEWNS) == 0)
        (void)mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
