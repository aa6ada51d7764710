/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "kernel/pool/project_quota.h"
#include "kernel/pool/test_disk.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { MIB = 1 << 20 };

static struct test_disk disk;
static uint32_t cursor;

static int top(void)
{
    int fd = open(disk.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static int make(int at, const char *name)
{
    assert_int_equal(mkdirat(at, name, 0755), 0);
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static int make_project(int at, const char *name)
{
    int fd = make(at, name);
    assert_int_equal(project_quota_begin(fd, &cursor), 0);
    assert_int_not_equal(project_quota_id(fd), 0);
    return fd;
}

/* As much of it as goes; errno of what did not. */
static int fill(int at, const char *name, size_t bytes)
{
    static char block[1 << 16];
    AUTO_CLOSE int fd = openat(at, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0)
        return errno;
    for (ssize_t n; bytes > 0; bytes -= (size_t)n)
        if ((n = write(fd, block, MIN(bytes, sizeof(block)))) < 0)
            return errno;
    return 0;
}

static uint64_t usage(int fd)
{
    uint64_t bytes = 0;
    assert_int_equal(project_quota_usage(fd, &bytes), 0);
    return bytes;
}

static void test_it_is_off_where_there_is_none(void **state)
{
    (void)state;
    AUTO_CLOSE int tmp = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    uint64_t bytes = 0;
    assert_false(project_quota_is_on(tmp));
    assert_int_equal(project_quota_id(tmp), 0);
    assert_int_equal(project_quota_limit(tmp, MIB), -ENODATA);
    assert_int_equal(project_quota_usage(tmp, &bytes), -ENODATA);
}

static void test_each_directory_is_counted_for_itself(void **state)
{
    (void)state;
    AUTO_CLOSE int at = top();
    AUTO_CLOSE int a = make_project(at, "a");
    AUTO_CLOSE int b = make_project(at, "b");
    AUTO_CLOSE int below = make(a, "below");
    assert_true(project_quota_is_on(at));
    assert_int_not_equal(project_quota_id(a), project_quota_id(b));
    assert_int_equal(project_quota_id(below), project_quota_id(a));
    assert_int_equal(fill(below, "f", 3 * MIB), 0);
    assert_true(usage(a) >= 3 * MIB && usage(a) < 4 * MIB);
    assert_true(usage(b) < MIB);
    /* What is in one project can't be moved, or linked, into another. */
    assert_int_equal(renameat(below, "f", b, "f"), -1);
    assert_int_equal(errno, EXDEV);
    assert_int_equal(linkat(below, "f", b, "f", 0), -1);
    assert_int_equal(errno, EXDEV);
    assert_int_equal(renameat(below, "f", a, "f"), 0);
    assert_int_equal(renameat(at, "a", at, "c"), 0);
    assert_int_equal(unlinkat(a, "f", 0), 0);
    assert_int_equal(syncfs(at), 0);
    assert_true(usage(a) < MIB);
}

static void test_limits_hold_and_change(void **state)
{
    (void)state;
    AUTO_CLOSE int at = top();
    AUTO_CLOSE int a = make_project(at, "limited");
    AUTO_CLOSE int b = make_project(at, "beside");
    AUTO_CLOSE int below = make(a, "below");
    struct statvfs fs;
    assert_int_equal(project_quota_limit(a, 4 * MIB), 0);
    assert_int_equal(fill(below, "f", 8 * MIB), ENOSPC);
    assert_true(usage(a) > 3 * MIB && usage(a) <= 4 * MIB);
    assert_int_equal(fill(b, "f", 8 * MIB), 0);
    /* df shows the share. */
    assert_int_equal(fstatvfs(below, &fs), 0);
    assert_int_equal(fs.f_blocks * fs.f_frsize, 4 * MIB);
    assert_true(fs.f_bavail * fs.f_frsize < MIB / 2);
    assert_int_equal(project_quota_limit(a, 0), 0);
    assert_int_equal(fill(below, "g", 8 * MIB), 0);
    assert_int_equal(project_quota_limit(a, MIB), 0);
    assert_int_equal(fill(below, "h", 64 << 10), ENOSPC);
}

static void test_files_are_bounded_too(void **state)
{
    (void)state;
    AUTO_CLOSE int at = top();
    AUTO_CLOSE int a = make_project(at, "many");
    int made = 0, error = 0;
    assert_int_equal(project_quota_limit(a, MIB), 0);
    for (; made < 10000 && error == 0; made++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "%d", made);
        error = fill(a, name, 0);
    }
    assert_int_equal(error, ENOSPC);
    assert_true(made > 1000 && made < 6000);
}

static void test_numbers_come_back(void **state)
{
    (void)state;
    AUTO_CLOSE int at = top();
    uint32_t from = 40000;
    AUTO_CLOSE int a = make(at, "old"), b = make(at, "new"), c = make(at, "newer");
    uint32_t again = from, once_more = from;
    assert_int_equal(project_quota_begin(a, &from), 0);
    uint32_t id = project_quota_id(a);
    assert_int_equal(project_quota_limit(a, MIB), 0);
    assert_int_equal(project_quota_begin(b, &again), 0);
    assert_int_not_equal(project_quota_id(b), id);
    assert_int_equal(unlinkat(at, "old", AT_REMOVEDIR), 0);
    (void)fd_close(TAKE_FD(a));
    assert_int_equal(syncfs(at), 0);
    assert_int_equal(project_quota_begin(c, &once_more), 0);
    assert_int_equal(project_quota_id(c), id);
    assert_int_equal(fill(c, "f", 2 * MIB), 0);
}

static void test_what_is_in_one_can_be_bounded_no_further(void **state)
{
    (void)state;
    AUTO_CLOSE int at = top();
    AUTO_CLOSE int a = make_project(at, "whole");
    AUTO_CLOSE int below = make(a, "below");
    assert_false(project_quota_is_on(below));
}

/* 0: it could leave. */
static int leave(int fd)
{
    struct fsxattr attr;
    if (unshare(CLONE_NEWUSER) < 0 || ioctl(fd, FS_IOC_FSGETXATTR, &attr) < 0)
        return EIO;
    attr.fsx_projid = 0;
    if (ioctl(fd, FS_IOC_FSSETXATTR, &attr) == 0)
        return 0;
    int flags = 0;
    if (ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0)
        return EIO;
    flags ^= FS_PROJINHERIT_FL;
    return ioctl(fd, FS_IOC_SETFLAGS, &flags) == 0 ? 0 : errno;
}

static void test_who_is_inside_stays_inside(void **state)
{
    (void)state;
    AUTO_CLOSE int at = top();
    AUTO_CLOSE int a = make_project(at, "inside");
    int status = 0;
    pid_t pid = fork();
    if (pid == 0)
        _exit(leave(a));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_not_equal(WEXITSTATUS(status), 0);
    assert_int_not_equal(WEXITSTATUS(status), EIO);
    assert_int_not_equal(project_quota_id(a), 0);
}

int main(void)
{
    const struct CMUnitTest without[] = {cmocka_unit_test(test_it_is_off_where_there_is_none)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_directory_is_counted_for_itself),
        cmocka_unit_test(test_limits_hold_and_change),
        cmocka_unit_test(test_files_are_bounded_too),
        cmocka_unit_test(test_numbers_come_back),
        cmocka_unit_test(test_what_is_in_one_can_be_bounded_no_further),
        cmocka_unit_test(test_who_is_inside_stays_inside),
    };
    const struct CMUnitTest absent[] = {cmocka_unit_test(test_disk_absent)};
    int failed = cmocka_run_group_tests_name("off", without, NULL, NULL);
    if (!test_disk_open(&disk, "xfs with quotas"))
        return failed + cmocka_run_group_tests_name("on", absent, NULL, NULL);
    failed += cmocka_run_group_tests_name("on", tests, NULL, NULL);
    test_disk_close(&disk);
    return failed;
}
