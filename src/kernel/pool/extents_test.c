/* SPDX-License-Identifier: Apache-2.0 */
/* What is told to be in one place is the same bytes; of everything that is not plainly so, nothing is told. */
#include "base/fd.h"
#include "base/mem.h"
#include "kernel/pool/btrfs.h"
#include "kernel/pool/extents.h"
#include "kernel/pool/test_disk.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { BLOCK = 4096, BLOCKS = 64, SIZE = BLOCKS * BLOCK };

static struct test_disk disk;
static bool is_btrfs;

static int set_up(void **state)
{
    (void)state;
    return chdir(disk.dir) < 0 || mkdir("t", 0755) < 0 || chdir("t") < 0;
}

static int tear_down(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        (void)unlink(names[i]);
    return chdir("..") < 0 || rmdir("t") < 0;
}

static int open_new(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    return fd;
}

static void fill(int fd, off_t at, size_t n, char with)
{
    AUTO_FREE char *bytes = mem_alloc(n);
    memset(bytes, with, n);
    assert_int_equal(pwrite(fd, bytes, n, at), n);
}

static int open_clone(const char *path, int of)
{
    int fd = open_new(path);
    assert_int_equal(ioctl(fd, FICLONE, of), 0);
    return fd;
}

static uint64_t shared_bytes(int fd)
{
    struct extents x;
    uint64_t n = 0;
    assert_int_equal(extents_read(fd, 0, SIZE, &x), 0);
    assert_int_equal(x.until, SIZE);
    for (size_t i = 0; i < x.n; i++)
        n += x.all[i].n;
    return n;
}

/* Of both as they are. '1' for each block that they have in one place. */
static void common(int fd_a, int fd_b, char ret_map[static BLOCKS + 1])
{
    static struct extent both[2 * EXTENTS_MAX];
    struct extents a, b;
    assert_int_equal(extents_settle(fd_a), 0);
    assert_int_equal(extents_settle(fd_b), 0);
    assert_int_equal(extents_read(fd_a, 0, SIZE, &a), 0);
    assert_int_equal(extents_read(fd_b, 0, SIZE, &b), 0);
    memset(ret_map, '0', BLOCKS);
    ret_map[BLOCKS] = 0;
    for (size_t i = 0, n = extents_common(&a, &b, both); i < n; i++) {
        assert_int_equal(both[i].at % BLOCK, 0);
        assert_int_equal(both[i].n % BLOCK, 0);
        memset(ret_map + both[i].at / BLOCK, '1', both[i].n / BLOCK);
    }
}

static void expect(int fd_a, int fd_b, const char *wanted_first, char wanted_rest)
{
    char map[BLOCKS + 1], wanted[BLOCKS + 1];
    memset(wanted, wanted_rest, BLOCKS);
    wanted[BLOCKS] = 0;
    memcpy(wanted, wanted_first, strlen(wanted_first));
    common(fd_a, fd_b, map);
    assert_string_equal(map, wanted);
}

static void test_a_clone_and_what_is_written_to_it(void **state)
{
    (void)state;
    AUTO_CLOSE int a = open_new("a");
    fill(a, 0, SIZE, 'a');
    AUTO_CLOSE int b = open_clone("b", a);
    expect(a, b, "", '1');
    fill(b, BLOCK + 5, 1, 'b');
    expect(a, b, "10", '1');
    fill(a, 3 * BLOCK, BLOCK, 'a'); /* the same bytes elsewhere */
    expect(a, b, "1010", '1');
}

/* Behind its end a block may hold what was there before. Once the file reaches there again, these bytes are zero, and
 * not in that place. */
static void test_shorter_and_longer_again(void **state)
{
    (void)state;
    AUTO_CLOSE int a = open_new("a");
    fill(a, 0, SIZE, 'a');
    for (int i = 0; i < 4; i++) {
        AUTO_CLOSE int b = open_clone("b", a);
        assert_int_equal(ftruncate(b, SIZE - 100), 0);
        if (i % 2)
            assert_int_equal(extents_settle(b), 0);
        if (i < 2)
            assert_int_equal(ftruncate(b, SIZE), 0);
        else
            fill(b, SIZE - 1, 1, 'a');
        char map[BLOCKS + 1], last = 'x';
        common(a, b, map);
        assert_int_equal(pread(b, &last, 1, SIZE - 100), 1);
        assert_int_equal(last, 0);
        assert_int_equal(map[BLOCKS - 2], '1');
        assert_int_equal(map[BLOCKS - 1], '0');
        assert_int_equal(unlink("b"), 0);
    }
}

static void test_what_is_not_cloned(void **state)
{
    (void)state;
    AUTO_CLOSE int a = open_new("a");
    AUTO_CLOSE int b = open_new("b");
    fill(a, 0, SIZE, 'a');
    fill(b, 0, SIZE, 'a');
    expect(a, b, "", '0');
    assert_int_equal(shared_bytes(a), 0);
}

static void test_the_same_place_at_another_offset(void **state)
{
    (void)state;
    AUTO_CLOSE int a = open_new("a");
    AUTO_CLOSE int b = open_new("b");
    fill(a, 0, SIZE, 'a');
    const struct file_clone_range range = {
        .src_fd = a, .src_offset = 0, .src_length = SIZE - BLOCK, .dest_offset = BLOCK};
    assert_int_equal(ioctl(b, FICLONERANGE, &range), 0);
    expect(a, b, "", '0');
    assert_int_equal(shared_bytes(b), SIZE - BLOCK);
}

/* btrfs and XFS tell the old place until the new one is there. Should this be otherwise one day, extents_settle() could
 * go. */
static void test_what_is_about_to_be_replaced(void **state)
{
    (void)state;
    enum { TRIES = 10 /* the kernel may be quicker to write out than we to ask */ };
    static struct extent both[2 * EXTENTS_MAX];
    struct extents x, y;
    bool is_old_seen = false;
    AUTO_CLOSE int a = open_new("a");
    fill(a, 0, SIZE, 'a');
    for (int i = 0; i < TRIES; i++) {
        AUTO_CLOSE int b = open_clone("b", a);
        fill(b, 0, SIZE, 'b');
        assert_int_equal(extents_read(a, 0, SIZE, &x), 0);
        assert_int_equal(extents_read(b, 0, SIZE, &y), 0);
        is_old_seen |= extents_common(&x, &y, both) > 0;
        expect(a, b, "", '0');
        assert_int_equal(unlink("b"), 0);
    }
    assert_true(is_old_seen);
}

static void test_what_has_no_place_of_its_own(void **state)
{
    (void)state;
    AUTO_CLOSE int a = open_new("a");
    assert_int_equal(fallocate(a, 0, 0, SIZE), 0); /* unwritten */
    AUTO_CLOSE int b = open_clone("b", a);
    expect(a, b, "", '0');
    assert_int_equal(unlink("a") | unlink("b"), 0);
    AUTO_CLOSE int c = open_new("a"); /* so small that btrfs has it beside its inode */
    fill(c, 0, 100, 'c');
    AUTO_CLOSE int d = open_clone("b", c);
    assert_int_equal(extents_settle(c), 0);
    assert_int_equal(extents_settle(d), 0);
    assert_int_equal(shared_bytes(d), is_btrfs ? 0 : BLOCK);
}

static void test_what_is_compressed(void **state)
{
    (void)state;
    struct extents x;
    int flags = FS_COMPR_FL;
    AUTO_CLOSE int a = open_new("a");
    assert_int_equal(ioctl(a, FS_IOC_SETFLAGS, &flags), 0);
    fill(a, 0, SIZE, 'a');
    AUTO_CLOSE int b = open_clone("b", a);
    assert_int_equal(extents_settle(a), 0);
    assert_int_equal(extents_read(a, 0, SIZE, &x), 0);
    assert_int_equal(x.n, 0);
    expect(a, b, "", '0');
}

static void test_in_many_pieces(void **state)
{
    (void)state;
    enum { PIECES = 4 * EXTENTS_MAX };
    struct extents x;
    AUTO_CLOSE int a = open_new("a");
    AUTO_CLOSE int b = open_new("b");
    fill(a, 0, (size_t)PIECES * BLOCK, 'a');
    /* Backwards, so that no two follow one another on disk. */
    for (uint64_t i = 0; i < PIECES; i++) {
        const struct file_clone_range range = {
            .src_fd = a, .src_offset = i * BLOCK, .src_length = BLOCK, .dest_offset = (PIECES - 1 - i) * BLOCK};
        assert_int_equal(ioctl(b, FICLONERANGE, &range), 0);
    }
    uint64_t at = 0, n = 0, looks = 0;
    for (const uint64_t end = (uint64_t)PIECES * BLOCK; at < end; looks++) {
        assert_int_equal(extents_read(b, at, end, &x), 0);
        assert_true(x.until > at && x.until <= end);
        for (size_t i = 0; i < x.n; i++) {
            assert_true(x.all[i].at >= at && x.all[i].at + x.all[i].n <= x.until);
            n += x.all[i].n;
        }
        at = x.until;
    }
    assert_int_equal(n, PIECES * BLOCK);
    assert_in_range(looks, PIECES / EXTENTS_MAX, PIECES / EXTENTS_MAX + 1);
    /* Part of one. */
    assert_int_equal(extents_read(a, 0, BLOCK, &x), 0);
    const uint64_t first = x.all[0].place;
    assert_int_equal(extents_read(a, BLOCK + 1, BLOCK + 3, &x), 0);
    assert_int_equal(x.all[0].place, first + BLOCK + 1);
    assert_int_equal(x.n, 1);
    assert_int_equal(x.all[0].at, BLOCK + 1);
    assert_int_equal(x.all[0].n, 2);
}

static void test_common_of_pieces_that_lie_otherwise(void **state)
{
    (void)state;
    static struct extent both[2 * EXTENTS_MAX];
    const struct extents a = {.n = 3, .all = {{0, 10, 100}, {10, 10, 500}, {30, 10, 900}}};
    const struct extents b = {.n = 4, .all = {{2, 3, 102}, {5, 10, 105}, {15, 5, 505}, {35, 50, 905}}};
    assert_int_equal(extents_common(&a, &b, both), 4);
    const struct extent wanted[] = {{2, 3, 102}, {5, 5, 105}, {15, 5, 505}, {35, 5, 905}};
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        assert_int_equal(both[i].at, wanted[i].at);
        assert_int_equal(both[i].n, wanted[i].n);
        assert_int_equal(both[i].place, wanted[i].place);
    }
    assert_int_equal(extents_common(&b, &a, both), 4);
}

static void test_subvolumes_are_of_one_file_system(void **state)
{
    (void)state;
    AUTO_CLOSE int top = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(btrfs_subvolume_make(top, "s"), 0);
    AUTO_CLOSE int s = open("s", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_CLOSE int a = open_new("s/f");
    fill(a, 0, SIZE, 'a');
    assert_int_equal(btrfs_snapshot(s, top, "t"), 0);
    AUTO_CLOSE int b = open("t/f", O_RDWR | O_CLOEXEC);
    struct stat x, y;
    struct extents_disk m, n;
    assert_int_equal(fstat(a, &x) | fstat(b, &y), 0);
    assert_true(x.st_dev != y.st_dev);
    assert_int_equal(extents_disk(a, &m) | extents_disk(b, &n), 0);
    assert_true(extents_on_one(&m, &n) && m.has_age && n.has_age);
    expect(a, b, "", '1');
    fill(b, 0, 1, 'b');
    expect(a, b, "0", '1');
    assert_int_equal(btrfs_subvolume_remove(top, "s") | btrfs_subvolume_remove(top, "t"), 0);
}

/* What two files share, which are gone then. */
static uint64_t use_and_free(uint64_t *ret_age)
{
    struct extents_disk disk_now;
    struct extents x;
    AUTO_CLOSE int a = open_new("a");
    fill(a, 0, SIZE, 'a');
    (void)fd_close(open_clone("b", a));
    assert_int_equal(extents_settle(a), 0);
    assert_int_equal(extents_read(a, 0, SIZE, &x), 0);
    assert_true(x.n > 0);
    assert_int_equal(extents_disk(a, &disk_now), 0);
    assert_int_equal(unlink("a") | unlink("b"), 0);
    *ret_age = disk_now.age;
    return x.all[0].place;
}

/* What was freed is given away only after the file system has grown older. */
static void test_age(void **state)
{
    (void)state;
    enum { ROUNDS = 300 };
    static uint64_t places[ROUNDS], ages[ROUNDS];
    size_t n_again = 0, n_alike = 0;
    AUTO_CLOSE int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < ROUNDS; i++) {
        places[i] = use_and_free(&ages[i]);
        for (size_t j = 0; j < i; j++) {
            n_again += places[i] == places[j];
            n_alike += ages[i] == ages[j];
            assert_true(places[i] != places[j] || ages[i] > ages[j]);
        }
        if (i % 10 == 0)
            assert_int_equal(syncfs(here), 0);
    }
    assert_true(n_again > 0 && n_alike > 0);
}

static void test_other_file_systems(void **state)
{
    (void)state;
    struct extents_disk m, n;
    AUTO_CLOSE int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_CLOSE int proc = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    AUTO_CLOSE int memory = memfd_create("memory", MFD_CLOEXEC);
    struct extents x;
    assert_int_equal(extents_disk(proc, &m), -EOPNOTSUPP);
    assert_int_equal(extents_disk(memory, &m), -EOPNOTSUPP);
    assert_int_equal(extents_read(proc, 0, SIZE, &x), -EOPNOTSUPP);
    assert_int_equal(extents_settle(proc), -EOPNOTSUPP);
    assert_int_equal(extents_read(here, SIZE, SIZE, &x), -EINVAL);
    assert_int_equal(extents_disk(here, &m), 0);
    assert_int_equal(m.has_age, is_btrfs);
    struct test_disk second;
    assert_true(test_disk_open(&second, is_btrfs ? "btrfs" : "xfs"));
    AUTO_CLOSE int there = open(second.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(extents_disk(there, &n), 0);
    assert_true(!extents_on_one(&m, &n));
    there = fd_close(there);
    test_disk_close(&second);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static int run_on(const char *kind)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_clone_and_what_is_written_to_it),
        TEST(test_shorter_and_longer_again),
        TEST(test_what_is_not_cloned),
        TEST(test_the_same_place_at_another_offset),
        TEST(test_what_is_about_to_be_replaced),
        TEST(test_what_has_no_place_of_its_own),
        TEST(test_in_many_pieces),
        TEST(test_common_of_pieces_that_lie_otherwise),
        TEST(test_other_file_systems),
    };
    const struct CMUnitTest btrfs_tests[] = {
        TEST(test_what_is_compressed),
        TEST(test_subvolumes_are_of_one_file_system),
        TEST(test_age),
    };
    const struct CMUnitTest absent[] = {cmocka_unit_test(test_disk_absent)};
    if (!test_disk_open(&disk, kind))
        return cmocka_run_group_tests_name(kind, absent, NULL, NULL);
    is_btrfs = strcmp(kind, "btrfs") == 0;
    int failed = cmocka_run_group_tests_name(kind, tests, NULL, NULL);
    if (is_btrfs)
        failed += cmocka_run_group_tests_name("btrfs alone", btrfs_tests, NULL, NULL);
    if (chdir("/") < 0)
        failed++;
    test_disk_close(&disk);
    return failed;
}

int main(void)
{
    int failed = run_on("btrfs");
    return failed + run_on("xfs");
}
