/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/fd.h"
#include "kernel/mount.h"
#include "kernel/pool/btrfs.h"
#include "kernel/pool/loopfile.h"
#include "kernel/pool/test_disk.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { AWAIT_MS = 20000 };

static struct test_disk disk;

static int top(void)
{
    int fd = open(disk.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void test_snapshot_is_a_copy_of_its_moment(void **state)
{
    (void)state;
    AUTO_CLOSE int at = top();
    AUTO_BUF struct buf b = BUF_INIT(64);
    assert_true(btrfs_is(at));
    assert_int_equal(btrfs_subvolume_make(at, "one"), 0);
    assert_int_equal(btrfs_subvolume_make(at, "one"), -EEXIST);
    AUTO_CLOSE int one = openat(at, "one", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(fd_write_file(one, "f", STR("before"), 0644), 0);
    assert_int_equal(btrfs_snapshot(one, at, "two"), 0);
    assert_int_equal(btrfs_snapshot(one, at, "two"), -EEXIST);
    assert_int_equal(fd_write_file(one, "f", STR("after"), 0644), 0);
    assert_int_equal(fd_read_file(at, "two/f", &b), 0);
    assert_true(str_eqc(buf_str(&b), "before"));
    assert_int_equal(btrfs_subvolume_remove(at, "one"), 0);
    assert_int_equal(btrfs_subvolume_remove(at, "two"), 0);
    assert_int_equal(btrfs_subvolume_remove(at, "two"), -ENOENT);
}

static void test_a_directory_is_no_subvolume(void **state)
{
    (void)state;
    AUTO_CLOSE int at = top();
    AUTO_CLOSE int tmp = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char longest[5000];
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = 0;
    assert_int_equal(mkdirat(at, "plain", 0755), 0);
    assert_int_equal(btrfs_subvolume_remove(at, "plain"), -EINVAL);
    assert_int_equal(btrfs_subvolume_make(at, longest), -ENAMETOOLONG);
    assert_int_equal(unlinkat(at, "plain", AT_REMOVEDIR), 0);
    assert_false(btrfs_is(tmp));
    assert_false(btrfs_quota_is_on(tmp));
}

static void test_quotas_are_on_once(void **state)
{
    (void)state;
    AUTO_CLOSE int at = top();
    uint64_t used = 0;
    assert_true(btrfs_quota_is_on(at));
    assert_int_equal(btrfs_quota_enable(at), -EEXIST);
    assert_int_equal(btrfs_subvolume_make(at, "q"), 0);
    AUTO_CLOSE int figures = -1;
    AUTO_CLOSE int q = openat(at, "q", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(btrfs_quota_limit(at, q, 1 << 20), 0);
    assert_int_equal(btrfs_quota_limit(at, q, 0), 0);
    char block[4096] = {1};
    int fd = openat(q, "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    for (int i = 0; i < 1024; i++)
        assert_int_equal(write(fd, block, sizeof(block)), sizeof(block));
    assert_int_equal(fsync(fd), 0);
    (void)fd_close(fd);
    /* What is not on disk yet counts, where it is known. */
    if (btrfs_figures_open(at, &figures) == 0) {
        fd = openat(q, "g", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        for (int i = 0; i < 512; i++)
            assert_int_equal(write(fd, block, sizeof(block)), sizeof(block));
        assert_true(btrfs_promised(figures) >= 2 << 20);
        assert_int_equal(btrfs_quota_usage(q, figures, &used), 0);
        assert_true(used >= 6 << 20 && used < 8 << 20);
        assert_int_equal(ftruncate(fd, 0), 0);
        (void)fd_close(fd);
    }
    assert_int_equal(syncfs(at), 0);
    assert_int_equal(btrfs_quota_usage(q, -1, &used), 0);
    assert_true(used >= 4 << 20 && used < 5 << 20);
    assert_int_equal(btrfs_subvolume_remove(at, "q"), 0);
}

static void test_it_grows_while_it_is_used(void **state)
{
    (void)state;
    AUTO_CLOSE int at = top();
    struct statvfs before, after;
    uint64_t bytes = 0, allocated = 0;
    assert_int_equal(fstatvfs(at, &before), 0);
    assert_int_equal(loopfile_size(disk.file, &bytes, &allocated), 0);
    assert_true(allocated < bytes / 2); /* sparse */
    assert_int_equal(loopfile_grow(disk.file, disk.device, bytes + (256U << 20)), 0);
    assert_int_equal(btrfs_resize_max(at), 0);
    assert_int_equal(fstatvfs(at, &after), 0);
    assert_int_equal((uint64_t)(after.f_blocks - before.f_blocks) * after.f_frsize, 256U << 20);
    assert_int_equal(loopfile_grow(disk.file, disk.device, bytes), 0); /* never smaller */
    assert_int_equal(loopfile_size(disk.file, &bytes, &allocated), 0);
    assert_int_equal((uint64_t)after.f_blocks * after.f_frsize, bytes);
}

static void test_the_file_is_one_devices_alone(void **state)
{
    (void)state;
    char path[128];
    int fd = -1;
    (void)snprintf(path, sizeof(path), "%s/file", disk.top);
    assert_int_equal(loopfile_open(path, false, 50, &fd), -EWOULDBLOCK);
}

static bool is_device_of(const char *device, const char *file)
{
    char path[96];
    AUTO_BUF struct buf b = BUF_INIT(4096);
    (void)snprintf(path, sizeof(path), "/sys/block/%s/loop/backing_file", device + strlen("/dev/"));
    return fd_read_file(AT_FDCWD, path, &b) == 0 && str_starts(buf_str(&b), str_of(file));
}

/* Nobody unmounts or detaches anything: the kernel does, when the last process is gone. */
static void test_nothing_is_left_of_a_process_that_is_killed(void **state)
{
    (void)state;
    struct test_disk other;
    int p[2];
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        bool ok = mount_unshare() == 0 && test_disk_open(&other, "btrfs");
        ssize_t n UNUSED = write(p[1], &other, sizeof(other));
        while (ok)
            (void)pause();
        _exit(1);
    }
    (void)fd_close(p[1]);
    assert_int_equal(read(p[0], &other, sizeof(other)), sizeof(other));
    (void)fd_close(p[0]);
    assert_true(is_device_of(other.device_name, other.top));
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    for (int i = 0; i < AWAIT_MS / 10 && is_device_of(other.device_name, other.top); i++)
        (void)usleep(10000);
    assert_false(is_device_of(other.device_name, other.top));
    other.file = other.device = -1;
    test_disk_close(&other);
    assert_int_equal(access(other.top, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_snapshot_is_a_copy_of_its_moment),
        cmocka_unit_test(test_a_directory_is_no_subvolume),
        cmocka_unit_test(test_quotas_are_on_once),
        cmocka_unit_test(test_it_grows_while_it_is_used),
        cmocka_unit_test(test_the_file_is_one_devices_alone),
        cmocka_unit_test(test_nothing_is_left_of_a_process_that_is_killed),
    };
    const struct CMUnitTest absent[] = {cmocka_unit_test(test_disk_absent)};
    if (!test_disk_open(&disk, "btrfs"))
        return cmocka_run_group_tests(absent, NULL, NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_disk_close(&disk);
    return failed;
}
