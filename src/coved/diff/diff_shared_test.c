/* SPDX-License-Identifier: Apache-2.0 */
/* What two files share is not read, and what is said of them is what reading them says, whatever was done to them. */
#include "base/fd.h"
#include "base/mem.h"
#include "coved/diff/diff_same.h"
#include "coved/diff/diff_shared.h"
#include "kernel/pool/btrfs.h"
#include "kernel/pool/test_disk.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    BLOCK = 4096,
    READ = 65536, /* what is read for one look-up */
    LARGEST = 2 << 20,
    BASES = 4,
    CASES = 600,
    ROUNDS = 100,
    LARGE = 80 << 20,
    IN_PIECES = 16 << 20
};

static struct test_disk disk;
static bool is_btrfs;
static int dirs[2]; /* "a" and "b": subvolumes, where there are any */

static unsigned dice(unsigned n)
{
    static uint64_t state = 20260101;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % n;
}

static struct found find(int dir_fd, bool lives)
{
    struct found f = {.is_there = true, .dir_fd = dir_fd, .name = "f", .lives = lives};
    assert_int_equal(fstatat(dir_fd, "f", &f.st, AT_SYMLINK_NOFOLLOW), 0);
    return f;
}

static int compare(bool a_lives, bool b_lives, uint64_t *ret_used)
{
    struct effort effort = {.most = 1000000, .out = -1};
    struct found a = find(dirs[0], a_lives), b = find(dirs[1], b_lives);
    int r = diff_same(&effort, &a, &b);
    *ret_used = effort.used;
    return r;
}

static int open_new(int dir_fd)
{
    (void)unlinkat(dir_fd, "f", 0);
    int fd = openat(dir_fd, "f", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    return fd;
}

static void write_at(int fd, off_t at, const void *p, size_t n)
{
    assert_int_equal(pwrite(fd, p, n, at), n);
}

/* Few values, so that much is alike that does not lie in one place. */
static void fill(int fd, off_t at, size_t n, unsigned values)
{
    static char bytes[LARGEST];
    assert_true(n <= sizeof(bytes));
    for (size_t i = 0; i < n; i += BLOCK)
        memset(bytes + i, 'a' + (char)dice(values), MIN(n - i, (size_t)BLOCK));
    write_at(fd, at, bytes, n);
}

static void open_clones(int from, int ret_fds[static 2])
{
    for (int i = 0; i < 2; i++) {
        ret_fds[i] = open_new(dirs[i]);
        assert_int_equal(ioctl(ret_fds[i], FICLONE, from), 0);
    }
}

static int open_base(size_t size, int flags)
{
    int fd = open(".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    if (flags)
        assert_int_equal(ioctl(fd, FS_IOC_SETFLAGS, &flags), 0);
    fill(fd, 0, size, 3);
    return fd;
}

/* ---- anything that may be done to them ---- */

struct range {
    off_t at;
    size_t n;
};

static struct range any_range(size_t size, bool of_blocks)
{
    size_t at = dice((unsigned)size), n = 1 + dice(dice(2) ? 5 * BLOCK : (unsigned)size);
    if (of_blocks) {
        at -= at % BLOCK;
        n += BLOCK - 1 - (n + BLOCK - 1) % BLOCK;
    }
    return (struct range){(off_t)at, MIN(n, size - at)};
}

static void rewrite(int fd, size_t size)
{
    static char bytes[LARGEST];
    struct range r = any_range(size, false);
    assert_int_equal(pread(fd, bytes, r.n, r.at), r.n);
    write_at(fd, r.at, bytes, r.n);
}

static void overwrite(int fd, size_t size)
{
    struct range r = any_range(size, false);
    fill(fd, r.at, r.n, 3);
}

static void change_one_byte(int fd, size_t size)
{
    char c;
    off_t at = dice((unsigned)size);
    assert_int_equal(pread(fd, &c, 1, at), 1);
    c ^= 1;
    write_at(fd, at, &c, 1);
}

static void store(int fd, size_t size)
{
    char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(p != MAP_FAILED);
    struct range r = any_range(size, false);
    memset(p + r.at, 'a' + (char)dice(3), r.n);
    if (dice(3) == 0)
        assert_int_equal(msync(p, size, MS_SYNC), 0);
    p[dice((unsigned)size)] ^= (char)dice(2);
    assert_int_equal(munmap(p, size), 0);
}

static void make_holes(int fd, size_t size)
{
    static const int modes[] = {FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE, 0};
    struct range r = any_range(size, false);
    (void)fallocate(fd, modes[dice(3)] | FALLOC_FL_KEEP_SIZE, r.at, (off_t)r.n);
}

static void cut_and_stretch(int fd, size_t size)
{
    assert_int_equal(ftruncate(fd, (off_t)(size - dice(dice(2) ? 2 * BLOCK : (unsigned)size))), 0);
    if (dice(2))
        assert_int_equal(fdatasync(fd), 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
}

static void write_direct(int fd, size_t size)
{
    char path[64];
    struct range r = any_range(size, true);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    AUTO_CLOSE int direct = open(path, O_WRONLY | O_DIRECT | O_CLOEXEC);
    void *p = NULL;
    assert_int_equal(posix_memalign(&p, BLOCK, LARGEST), 0);
    memset(p, 'a' + (char)dice(3), r.n);
    if (r.n % BLOCK == 0)
        assert_int_equal(pwrite(direct, p, r.n, r.at), r.n);
    (free)(p);
}

static void sync_it(int fd, size_t size)
{
    (void)size;
    if (dice(20) == 0)
        assert_int_equal(syncfs(fd), 0);
    else
        assert_int_equal(fdatasync(fd), 0);
}

static void clone_range(int from, int to, size_t size)
{
    struct range r = any_range(size - BLOCK, true);
    const off_t to_at = dice(2) ? r.at : any_range(size - r.n, true).at;
    const struct file_clone_range range = {
        .src_fd = from, .src_offset = (uint64_t)r.at, .src_length = r.n - r.n % BLOCK, .dest_offset = (uint64_t)to_at};
    if (range.src_length)
        (void)ioctl(to, FICLONERANGE, &range); /* refused where both are one place of one file */
}

static void any_change(int fds[static 2], size_t size)
{
    static void (*const changes[])(int fd, size_t size) = {
        rewrite, rewrite, overwrite, change_one_byte, store, make_holes, cut_and_stretch, write_direct, sync_it};
    unsigned which = dice(ARRAY_SIZE(changes) + 1);
    int fd = fds[dice(2)];
    if (which < ARRAY_SIZE(changes))
        changes[which](fd, size);
    else
        clone_range(fds[dice(2)], fd, size);
}

static int by_reading(int fds[static 2], size_t size)
{
    static char bytes[2][LARGEST];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pread(fds[i], bytes[i], size, 0), size);
    return memcmp(bytes[0], bytes[1], size) == 0;
}

static void test_it_is_what_reading_says(void **state)
{
    (void)state;
    const int flags[BASES] = {0, 0, is_btrfs ? FS_COMPR_FL : 0, is_btrfs ? FS_NOCOW_FL : 0};
    size_t n_same = 0, n_other = 0, n_less = 0, n = is_btrfs ? CASES : CASES / 2;
    for (int base = 0; base < BASES; base++) {
        const size_t size = LARGEST - (base % 2 ? dice(LARGEST / 2) : 0);
        AUTO_CLOSE int from = open_base(size, flags[base]);
        for (size_t i = 0; i < n / BASES; i++) {
            int fds[2];
            uint64_t used;
            for (int k = 0; k < 2; k++) {
                fds[k] = open_new(dirs[k]);
                if (flags[base])
                    assert_int_equal(ioctl(fds[k], FS_IOC_SETFLAGS, &flags[base]), 0);
                assert_int_equal(ioctl(fds[k], FICLONE, from), 0);
            }
            for (unsigned left = dice(6); left > 0; left--)
                any_change(fds, size);
            const bool lives[] = {dice(2), dice(2)};
            const int said = compare(lives[0], lives[1], &used), is = by_reading(fds, size);
            if (said != is)
                print_message("case %zu of %d, size %zu\n", i, base, size);
            assert_int_equal(said, is);
            n_same += is;
            n_other += !is;
            n_less += is && used < size / READ;
            for (int k = 0; k < 2; k++)
                (void)fd_close(fds[k]);
        }
    }
    print_message("%zu the same, %zu of them not read whole; %zu others\n", n_same, n_less, n_other);
    assert_true(n_same > n / 10 && n_other > n / 10 && n_less > n / 20);
}

/* ---- what it costs ---- */

static void test_what_is_shared_is_not_read(void **state)
{
    (void)state;
    int fds[2];
    uint64_t used;
    AUTO_CLOSE int from = open_base(LARGEST, 0);
    open_clones(from, fds);
    assert_int_equal(compare(false, true, &used), 1);
    assert_in_range(used, 1, 5);
    assert_int_equal(compare(true, false, &used), 1);
    assert_in_range(used, 1, 5);
    change_one_byte(fds[1], LARGEST);
    assert_int_equal(compare(false, true, &used), 0);
    assert_in_range(used, 1, 6);
    /* Who keeps them in their place when both may change? btrfs's age says that nobody needed to. */
    assert_int_equal(compare(true, true, &used), 0);
    if (is_btrfs)
        assert_in_range(used, 1, 12);
    for (int i = 0; i < 2; i++)
        (void)fd_close(fds[i]);
    open_clones(from, fds);
    assert_int_equal(compare(true, true, &used), 1);
    if (is_btrfs)
        assert_in_range(used, 1, 12);
    else
        assert_true(used >= LARGEST / READ);
    for (int i = 0; i < 2; i++)
        (void)fd_close(fds[i]);
}

/* However the pieces lie: little more than to read all. */
static void test_many_pieces(void **state)
{
    (void)state;
    for (unsigned each = 1; each <= 3; each++) {
        /* Of 128 pieces that are read in one go, every second is shared: of a block each that is not worth asking
         * again, of two it just is. */
        const uint64_t all = IN_PIECES / READ, most = each == 1 ? all + 4 : all + all / 8;
        int fds[2] = {open_new(dirs[0]), open_new(dirs[1])};
        uint64_t used;
        for (off_t at = 0; at < IN_PIECES; at += LARGEST)
            fill(fds[0], at, LARGEST, 1);
        assert_int_equal(ioctl(fds[1], FICLONE, fds[0]), 0);
        for (off_t at = BLOCK; at < IN_PIECES; at += (off_t)(each + 1) * BLOCK)
            write_at(fds[each % 2], at, "a", 1);
        assert_int_equal(compare(false, true, &used), 1);
        assert_in_range(used, 1, most);
        change_one_byte(fds[0], IN_PIECES);
        assert_int_equal(compare(false, true, &used), 0);
        assert_in_range(used, 1, most);
        for (int i = 0; i < 2; i++)
            (void)fd_close(fds[i]);
    }
}

static void test_it_ends_when_too_much_was_asked(void **state)
{
    (void)state;
    int fds[2];
    AUTO_CLOSE int from = open_base(LARGEST, 0);
    open_clones(from, fds);
    for (uint64_t most = 0; most < 4; most++) {
        struct effort effort = {.most = most, .out = -1};
        struct found a = find(dirs[0], false), b = find(dirs[1], true);
        assert_int_equal(diff_same(&effort, &a, &b), -EDQUOT);
        assert_int_equal(effort.used, most);
    }
    for (int i = 0; i < 2; i++)
        (void)fd_close(fds[i]);
}

/* ---- while they are written ---- */

/* At no time are the two the same: what is written to one has never any byte of what is written to the other. */
static NORETURN void write_again_and_again(int fds[static 2], volatile unsigned *rounds)
{
    static char bytes[LARGEST / 2];
    const off_t at = LARGEST / 4;
    for (unsigned i = 0; i < ROUNDS; i++, ++*rounds) {
        for (int k = 0; k < 2; k++) {
            memset(bytes, (char)('A' + i % 7 * 2 + (unsigned)k), sizeof(bytes));
            if (pwrite(fds[k], bytes, sizeof(bytes), at) < 0)
                _exit(1);
            if (dice(2) && fdatasync(fds[k]) < 0)
                _exit(1);
            if (dice(4) == 0 && syncfs(fds[k]) < 0)
                _exit(1);
        }
    }
    _exit(0);
}

/* Both may change, for all that is known: what was asked while the file system grew older is asked again, or read. */
static void test_while_the_file_system_grows_older(void **state)
{
    (void)state;
    int fds[2] = {open_new(dirs[0]), open_new(dirs[1])}, status;
    AUTO_CLOSE int from = open_base(LARGEST, 0);
    for (off_t at = 0; at < LARGE; at += LARGEST) {
        const struct file_clone_range range = {.src_fd = from, .dest_offset = (uint64_t)at};
        assert_int_equal(ioctl(fds[0], FICLONERANGE, &range), 0);
    }
    assert_int_equal(ioctl(fds[1], FICLONE, fds[0]), 0);
    assert_int_equal(syncfs(from), 0);
    uint64_t usual, used, n_more = 0;
    assert_int_equal(compare(false, true, &usual), 1);
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < ROUNDS; i++)
            if (pwrite(from, "x", 1, i) != 1 || syncfs(from) < 0)
                _exit(1);
        _exit(0);
    }
    assert_true(pid > 0);
    while (waitpid(pid, &status, WNOHANG) == 0) {
        assert_int_equal(compare(true, true, &used), 1);
        n_more += used > usual;
        assert_int_equal(compare(true, false, &used), 1);
        assert_int_equal(used, usual);
    }
    assert_int_equal(status, 0);
    assert_true(n_more > 0);
    for (int i = 0; i < 2; i++)
        (void)fd_close(fds[i]);
}

static void test_while_both_are_written(void **state)
{
    (void)state;
    int fds[2], status;
    AUTO_CLOSE int from = open_base(LARGEST, 0);
    open_clones(from, fds);
    for (int k = 0; k < 2; k++) {
        AUTO_FREE char *bytes = mem_alloc(LARGEST / 2);
        memset(bytes, 'A' + k, LARGEST / 2);
        write_at(fds[k], LARGEST / 4, bytes, LARGEST / 2);
    }
    volatile unsigned *rounds = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(rounds != MAP_FAILED);
    pid_t pid = fork();
    if (pid == 0)
        write_again_and_again(fds, rounds);
    assert_true(pid > 0);
    size_t seen_same = 0, n = 0;
    for (; waitpid(pid, &status, WNOHANG) == 0; n++) {
        uint64_t used;
        seen_same += compare(true, true, &used) != 0;
    }
    assert_int_equal(status, 0);
    assert_int_equal(*rounds, ROUNDS);
    assert_true(n > 0);
    (void)munmap((void *)(uintptr_t)rounds, BLOCK);
    assert_int_equal(seen_same, 0);
    for (int i = 0; i < 2; i++)
        (void)fd_close(fds[i]);
}

/* ---- what may change ---- */

static void test_what_lives(void **state)
{
    (void)state;
    static struct stack s;
    struct effort effort = {.most = 1000, .out = -1};
    struct found f;
    for (int i = 0; i < 2; i++)
        (void)fd_close(open_new(dirs[i]));
    assert_int_equal(mkdirat(dirs[1], "d", 0755), 0);
    for (int lives = 0; lives <= 1; lives++) {
        memset(&s, 0, sizeof(s));
        s.lives = lives;
        assert_int_equal(stack_open(&s, dirs, 2, &effort), 0);
        assert_int_equal(view_find(&s, &s.root, "f", &f), 0);
        assert_true(f.is_there && f.layer == 0 && f.lives == lives);
        view_close(&f.view);
        assert_int_equal(view_find(&s, &s.root, "d", &f), 0);
        assert_true(f.is_there && f.layer == 1 && !f.lives);
        view_close(&f.view);
        stack_close(&s);
    }
    assert_int_equal(unlinkat(dirs[1], "d", AT_REMOVEDIR), 0);
}

static int set_up(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b"};
    AUTO_CLOSE int top = open(disk.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0 || fchdir(top) < 0)
        return -1;
    for (int i = 0; i < 2; i++) {
        if ((is_btrfs ? btrfs_subvolume_make(top, names[i]) : mkdir(names[i], 0755)) < 0)
            return -1;
        dirs[i] = open(names[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        dirs[i] = fd_close(dirs[i]);
    return chdir("/");
}

static int run_on(const char *kind)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_is_what_reading_says),
        cmocka_unit_test(test_what_is_shared_is_not_read),
        cmocka_unit_test(test_many_pieces),
        cmocka_unit_test(test_it_ends_when_too_much_was_asked),
        cmocka_unit_test(test_while_the_file_system_grows_older),
        cmocka_unit_test(test_while_both_are_written),
        cmocka_unit_test(test_what_lives),
    };
    const struct CMUnitTest absent[] = {cmocka_unit_test(test_disk_absent)};
    if (!test_disk_open(&disk, kind))
        return cmocka_run_group_tests_name(kind, absent, NULL, NULL);
    is_btrfs = strcmp(kind, "btrfs") == 0;
    int failed = cmocka_run_group_tests_name(kind, tests, set_up, tear_down);
    test_disk_close(&disk);
    return failed;
}

int main(void)
{
    int failed = run_on("btrfs");
    return failed + run_on("xfs");
}
