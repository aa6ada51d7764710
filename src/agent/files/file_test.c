/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at files: STAT, READ, LIST, USAGE, and refusals word for word. */
#include "agent/test_calls.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static void test_stat(void **state)
{
    (void)state;
    struct result x;
    char *path = rig_path(&rig, "home/a file"), *link = rig_path(&rig, "home/link");
    rig_write(path, "12345");
    assert_int_equal(chmod(path, 04751), 0);
    assert_int_equal(chown(path, 1000, 2000), 0);
    assert_int_equal(symlink("a file", link), 0);
    struct entry e = rig_stat(&rig, path, &x);
    assert_true(str_eqc(e.name, "a file") && str_eqc(e.path, path) && str_eqc(e.owner, "user") &&
                str_eqc(e.group, "extra"));
    assert_int_equal(e.type, WIRE_FILE_REGULAR);
    assert_int_equal(e.size, 5);
    assert_int_equal(e.uid, 1000);
    assert_int_equal(e.gid, 2000);
    assert_false(e.is_link);
    assert_int_equal(e.mode & 07777, 0751); /* chown took the set-id bit */
    assert_true(e.mtime > UINT64_C(1500000000) * 1000000000);
    result_fini(&x);

    e = rig_stat(&rig, link, &x);
    assert_true(e.is_link && str_eqc(e.target, path));
    assert_int_equal(e.type, WIRE_FILE_REGULAR);
    assert_true(S_ISLNK(e.link_mode) && S_ISREG(e.mode));
    assert_int_equal(e.size, 6);
    assert_true(str_eqc(e.owner, "root"));
    result_fini(&x);

    e = rig_stat(&rig, rig_path(&rig, "home"), &x);
    assert_int_equal(e.type, WIRE_FILE_DIRECTORY);
    result_fini(&x);
    e = rig_stat(&rig, "/", &x);
    assert_true(str_eqc(e.name, "/") && str_eqc(e.path, "/"));
    result_fini(&x);
}

/* What the file system can't keep, it keeps as something else, and that is what counts. */
static void expect_time(const char *path, time_t seconds)
{
    const int64_t last_s = UINT64_MAX / 1000000000;
    const struct timespec times[2] = {{seconds, 0}, {seconds, 0}};
    struct result x;
    struct stat st;
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_int_equal(stat(path, &st), 0);
    int64_t kept_s = st.st_mtim.tv_sec < 0 ? 0 : MIN((int64_t)st.st_mtim.tv_sec, last_s);
    assert_int_equal(rig_stat(&rig, path, &x).mtime, (uint64_t)kept_s * 1000000000);
    result_fini(&x);
}

static void test_times(void **state)
{
    (void)state;
    char *path = rig_path(&rig, "home/old");
    rig_write(path, "");
    expect_time(path, 0);
    expect_time(path, -1);
    expect_time(path, INT64_C(15000000000));
    expect_time(path, INT64_C(18446744072));
    expect_time(path, INT64_C(18446744073));
    expect_time(path, INT64_C(100000000000));
}

static void test_read(void **state)
{
    (void)state;
    char *path = rig_path(&rig, "home/f");
    rig_write(path, "0123456789");
    expect_bytes("f", 0, UINT64_MAX, "0123456789", 10);
    expect_bytes("~/f", 3, 4, "3456", 4);
    expect_bytes(path, 8, 100, "89", 2);
    expect_bytes(path, 10, UINT64_MAX, "", 0);
    expect_bytes(path, UINT64_MAX, UINT64_MAX, "", 0);
    expect_bytes(path, 0, 0, "", 0);
    rig_write(path, "");
    expect_bytes(path, 0, UINT64_MAX, "", 0);
}

static void test_list(void **state)
{
    (void)state;
    assert_int_equal(mkdir(rig_path(&rig, "home/b"), 0755), 0);
    assert_int_equal(mkdir(rig_path(&rig, "home/b/c"), 0755), 0);
    rig_write(rig_path(&rig, "home/b/c/d"), "");
    rig_write(rig_path(&rig, "home/b.a"), "");
    rig_write(rig_path(&rig, "home/.hidden"), "");
    rig_write(rig_path(&rig, "home/Z"), "");
    assert_int_equal(symlink("b", rig_path(&rig, "home/a")), 0);
    expect_list("", 1, "/home/.hidden /home/Z /home/a /home/b /home/b.a ");
    expect_list("~", 2, "/home/.hidden /home/Z /home/a /home/b /home/b/c /home/b.a ");
    expect_list(rig.dir, 99,
                "/group /home /home/.hidden /home/Z /home/a /home/b /home/b/c /home/b/c/d /home/b.a /passwd ");
    expect_list("a", 0, "/home/a/c ");
    expect_list("b/c/", 3, "/home/b/c/d ");
}

static void test_missing(void **state)
{
    (void)state;
    char *p = rig_path(&rig, "home/nope");
    expect_failure(WIRE_STAT, "nope", ERR_NOT_FOUND, "file not found: lstat %s: no such file or directory", p);
    expect_failure(WIRE_READ, "nope", ERR_NOT_FOUND, "path '%s' does not exist", p);
    expect_failure(WIRE_LIST, "nope", ERR_NOT_FOUND, "path not found: lstat %s: no such file or directory", p);
    expect_failure(WIRE_LIST, "nope/a/b", ERR_NOT_FOUND, "path not found: lstat %s: no such file or directory", p);
    expect_failure(WIRE_WATCH, "nope", ERR_NOT_FOUND, "path %s not found: stat %s: no such file or directory", p, p);
    expect_failure(WIRE_REMOVE, "nope", ERR_OK, "%s", "");
    assert_int_equal(symlink("gone", rig_path(&rig, "home/broken")), 0);
    expect_failure(WIRE_LIST, "broken", ERR_NOT_FOUND, "path not found: lstat %s/home/gone: no such file or directory",
                   rig.dir);
    expect_failure(WIRE_READ, "broken", ERR_NOT_FOUND, "path '%s/home/broken' does not exist", rig.dir);
    struct result x;
    struct entry e = rig_stat(&rig, rig_path(&rig, "home/broken"), &x);
    assert_true(e.is_link && str_eqc(e.target, rig_path(&rig, "home/broken")));
    assert_int_equal(e.type, WIRE_FILE_UNKNOWN);
    assert_int_equal(e.mode, 0);
    result_fini(&x);
}

static void test_component_is_a_file(void **state)
{
    (void)state;
    rig_write(rig_path(&rig, "home/f"), "");
    char *p = rig_path(&rig, "home/f/x");
    expect_failure(WIRE_STAT, "f/x", ERR_INVALID_ARGUMENT, "error getting file info: lstat %s: not a directory", p);
    expect_failure(WIRE_READ, "f/x", ERR_INVALID_ARGUMENT,
                   "error checking if path exists '%s': stat %s: not a directory", p, p);
    expect_failure(WIRE_LIST, "f/x", ERR_INVALID_ARGUMENT, "error resolving symlink: not a directory");
    expect_failure(WIRE_MKDIR, "f/x", ERR_INVALID_ARGUMENT, "path is a file: %s/home/f", rig.dir);
    expect_failure(WIRE_WRITE, "f/x", ERR_INVALID_ARGUMENT, "error ensuring directories: path is a file: %s/home/f",
                   rig.dir);
    expect_failure(WIRE_REMOVE, "f/x", ERR_INVALID_ARGUMENT,
                   "error removing file or directory: unlinkat %s: not a directory", p);
    expect_failure(WIRE_WATCH, "f/x", ERR_INVALID_ARGUMENT, "error statting path %s: stat %s: not a directory", p, p);
    expect_failure(WIRE_LIST, "f", ERR_INVALID_ARGUMENT, "path is not a directory: %s/home/f", rig.dir);
    expect_failure(WIRE_WATCH, "f", ERR_INVALID_ARGUMENT, "path %s/home/f not a directory", rig.dir);
}

static void test_paths(void **state)
{
    (void)state;
    static char longest[5000];
    struct result x;
    memset(longest, 'a', sizeof(longest) - 1);
    expect_failure(WIRE_STAT, longest, ERR_INVALID_ARGUMENT, "path of 4999 bytes: file name too long");
    longest[0] = '/';
    expect_failure(WIRE_STAT, longest, ERR_INVALID_ARGUMENT, "path of 4999 bytes: file name too long");
    longest[4095] = 0;
    expect_failure(WIRE_STAT, longest, ERR_INVALID_ARGUMENT, "error getting file info: lstat %s: file name too long",
                   longest);
    expect_failure(WIRE_READ, "~other/x", ERR_INVALID_ARGUMENT,
                   "failed to expand path '~other/x' for user 'user': cannot expand user-specific home dir");
    struct buf *b = rig_request(WIRE_STAT);
    wire_put_str(b, STR("user"));
    wire_put_str(b, STR("/etc/passwd\0x"));
    rig_expect_end(&rig, rig_open(&rig, b), ERR_INVALID_ARGUMENT, "path contains a NUL byte");
    rig_expect_end(&rig, rig_open_path(&rig, WIRE_STAT, "x'y", "/"), ERR_UNAUTHENTICATED, "invalid username: 'x'y'");

    /* Absolute paths stay as they are, relative ones are cleaned. */
    rig_result(&rig, rig_open_path(&rig, WIRE_STAT, "user", rig_path(&rig, "home/../home//")), true, &x);
    struct wire_reader r = wire_reader_of(buf_str(&x.tail));
    struct entry e = entry_get(&r);
    assert_true(str_eqc(e.path, rig_path(&rig, "home/../home//")) && str_eqc(e.name, "home"));
    result_fini(&x);
    rig_result(&rig, rig_open_path(&rig, WIRE_STAT, "", "./a/..//"), true, &x);
    r = wire_reader_of(buf_str(&x.tail));
    e = entry_get(&r);
    assert_true(str_eqc(e.path, rig_path(&rig, "home")));
    result_fini(&x);

    /* Names of any bytes. */
    static const char odd[] = "\xff\n\x1b[31m \"'\\\xe2\x80\xae";
    rig_write(rig_path(&rig, "home/%s", odd), "x");
    e = rig_stat(&rig, rig_path(&rig, "home/%s", odd), &x);
    assert_true(str_eqc(e.name, odd));
    result_fini(&x);
    expect_bytes(odd, 0, UINT64_MAX, "x", 1);
}

static void test_loops(void **state)
{
    (void)state;
    char *p = rig_path(&rig, "home/loop");
    assert_int_equal(symlink("loop", p), 0);
    expect_failure(WIRE_LIST, "loop", ERR_FAILED_PRECONDITION, "cyclic symlink or chain >255 links at \"%s\"", p);
    expect_failure(WIRE_READ, "loop", ERR_FAILED_PRECONDITION,
                   "error checking if path exists '%s': stat %s: too many levels of symbolic links", p, p);
    expect_failure(WIRE_WRITE, "loop", ERR_FAILED_PRECONDITION,
                   "error opening file: open %s: too many levels of symbolic links", p);
    assert_int_equal(symlink(".", rig_path(&rig, "home/self")), 0);
    expect_list("", 50, "/home/loop /home/self ");
    expect_list("self", 50, "/home/self/loop /home/self/self ");
}

/* None of them is opened, so nothing hangs and nothing happens to whoever is at the other end. */
static void test_special_files(void **state)
{
    (void)state;
    struct result x;
    static const char *const names[] = {"fifo", "socket", "/dev/zero", "/dev/tty", "device"};
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/home/socket", rig.dir);
    assert_int_equal(bind(s, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(mkfifo(rig_path(&rig, "home/fifo"), 0644), 0);
    if (mknod(rig_path(&rig, "home/device"), S_IFCHR | 0600, 0x105) < 0)
        assert_int_equal(mkfifo(rig_path(&rig, "home/device"), 0600), 0);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char *path = *names[i] == '/' ? (char *)names[i] : rig_path(&rig, "home/%s", names[i]);
        expect_failure(WIRE_READ, names[i], ERR_INVALID_ARGUMENT, "path '%s' is not a regular file", path);
        expect_failure(WIRE_WRITE, names[i], ERR_INVALID_ARGUMENT, "path '%s' is not a regular file", path);
        struct entry e = rig_stat(&rig, path, &x);
        assert_int_equal(e.type, WIRE_FILE_UNKNOWN);
        assert_false(e.is_link);
        result_fini(&x);
    }
    assert_int_equal(symlink("fifo", rig_path(&rig, "home/to-fifo")), 0);
    expect_failure(WIRE_READ, "to-fifo", ERR_INVALID_ARGUMENT, "path '%s/home/to-fifo' is not a regular file", rig.dir);
    expect_list("", 2, "/home/device /home/fifo /home/socket /home/to-fifo ");
    expect_failure(WIRE_READ, "", ERR_INVALID_ARGUMENT, "path '%s/home' is a directory", rig.dir);
    expect_failure(WIRE_WRITE, "", ERR_INVALID_ARGUMENT, "path is a directory: %s/home", rig.dir);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (*names[i] != '/')
            expect_failure(WIRE_REMOVE, names[i], ERR_OK, "%s", "");
    (void)close(s);
}

static void test_procfs(void **state)
{
    (void)state;
    struct result x;
    rig_result(&rig, open_read("/proc/sys/kernel/ostype", 0, UINT64_MAX), true, &x);
    assert_true(str_eqc(buf_str(&x.data), "Linux\n"));
    result_fini(&x);
    rig_result(&rig, open_read("/proc/sys/kernel/ostype", 2, 2), true, &x);
    assert_true(str_eqc(buf_str(&x.data), "nu"));
    result_fini(&x);
    rig_result(&rig, open_read("/proc/self/mem", 0, 100), true, &x);
    assert_string_equal(x.message, "error reading file '/proc/self/mem': read /proc/self/mem: input/output error");
    result_fini(&x);
    rig_result(&rig, open_read("/proc/cpuinfo", 0, UINT64_MAX), true, &x);
    assert_int_equal(x.code, ERR_OK);
    assert_true(buf_len(&x.data) > 100);
    result_fini(&x);
}

static void test_usage(void **state)
{
    (void)state;
    struct result x;
    rig_result(&rig, rig_open(&rig, rig_request(WIRE_USAGE)), true, &x);
    struct wire_reader r = wire_reader_of(buf_str(&x.tail));
    uint64_t total = wire_get_u64(&r), used = wire_get_u64(&r);
    assert_true(total > used && used > 0);
    assert_true(wire_get_u32(&r) >= 2);
    assert_true(wire_done(&r));
    result_fini(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_stat),   TEST(test_times),   TEST(test_read),
        TEST(test_list),   TEST(test_missing), TEST(test_component_is_a_file),
        TEST(test_paths),  TEST(test_loops),   TEST(test_special_files),
        TEST(test_procfs), TEST(test_usage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
