/* SPDX-License-Identifier: Apache-2.0 */
/* A clone of a tree is the tree: what programs, overlayfs and users can tell of it is the same. */
#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "kernel/pool/test_disk.h"
#include "kernel/tree/tree.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

enum { DEEP = 3000, MANY = 3000, LARGE = 3 << 20 };

static const char *where = "/var/tmp";
static bool share;

struct place {
    char top[128];
    int fd;
};

static int set_up(void **state)
{
    struct place *p = mem_new(struct place);
    (void)snprintf(p->top, sizeof(p->top), "%s/cove-clone-test.XXXXXX", where);
    if (geteuid() != 0 || !mkdtemp(p->top))
        return -1;
    p->fd = open(p->top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *state = p;
    return p->fd < 0 || mkdirat(p->fd, "from", 0750) < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
    struct place *p = *state;
    (void)fd_close(p->fd);
    int r = tree_remove(AT_FDCWD, p->top);
    mem_free(p);
    return r;
}

static uint64_t clone_it(struct place *p)
{
    uint64_t bytes = 0;
    assert_int_equal(tree_clone(p->fd, "from", p->fd, "to", share, &bytes), 0);
    assert_int_equal(faccessat(p->fd, ".links", F_OK, 0), -1);
    return bytes;
}

static void write_at(struct place *p, const char *path, const char *text)
{
    assert_int_equal(fd_write_file(p->fd, path, str_of(text), 0644), 0);
}

static struct stat look(struct place *p, const char *path)
{
    struct stat st;
    assert_int_equal(fstatat(p->fd, path, &st, AT_SYMLINK_NOFOLLOW), 0);
    return st;
}

/* The same name in both. */
static void is_alike(struct place *p, const char *name)
{
    char from[160], to[160];
    (void)snprintf(from, sizeof(from), "from%s", name);
    (void)snprintf(to, sizeof(to), "to%s", name);
    struct stat a = look(p, from), b = look(p, to);
    assert_int_equal(a.st_mode, b.st_mode);
    assert_int_equal(a.st_uid, b.st_uid);
    assert_int_equal(a.st_gid, b.st_gid);
    assert_int_equal(a.st_rdev, b.st_rdev);
    assert_int_equal(a.st_mtim.tv_sec, b.st_mtim.tv_sec);
    assert_int_equal(a.st_mtim.tv_nsec, b.st_mtim.tv_nsec);
    if (!S_ISDIR(a.st_mode)) {
        assert_int_equal(a.st_size, b.st_size);
        assert_int_equal(a.st_nlink, b.st_nlink);
    }
}

static void age(struct place *p, const char *path, time_t when)
{
    const struct timespec times[2] = {{when, 1}, {when, 123456789}};
    assert_int_equal(utimensat(p->fd, path, times, AT_SYMLINK_NOFOLLOW), 0);
}

static void test_owners_modes_and_times(void **state)
{
    struct place *p = *state;
    assert_int_equal(mkdirat(p->fd, "from/dir", 0755), 0);
    write_at(p, "from/dir/suid", "#!");
    assert_int_equal(fchownat(p->fd, "from/dir/suid", 1000, 1001, 0), 0);
    assert_int_equal(fchmodat(p->fd, "from/dir/suid", 06755, 0), 0);
    write_at(p, "from/dir/none", "");
    assert_int_equal(fchmodat(p->fd, "from/dir/none", 0, 0), 0);
    assert_int_equal(fchmodat(p->fd, "from/dir", 03711, 0), 0);
    assert_int_equal(fchownat(p->fd, "from/dir", 5, 6, 0), 0);
    assert_int_equal(symlinkat("/etc/passwd", p->fd, "from/link"), 0);
    assert_int_equal(fchownat(p->fd, "from/link", 7, 8, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(mkfifoat(p->fd, "from/fifo", 0622), 0);
    age(p, "from/dir/suid", 1000000);
    age(p, "from/link", 2000000);
    age(p, "from/fifo", 3000000);
    age(p, "from/dir", 4000000);
    age(p, "from", 5000000);
    clone_it(p);
    static const char *const names[] = {"", "/dir", "/dir/suid", "/dir/none", "/link", "/fifo"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        is_alike(p, names[i]);
    char target[64] = "";
    assert_int_equal(readlinkat(p->fd, "to/link", target, sizeof(target) - 1), 11);
    assert_string_equal(target, "/etc/passwd");
}

static void test_what_overlayfs_leaves(void **state)
{
    struct place *p = *state;
    AUTO_FREE char *dir = mem_printf("%s/from/opaque", p->top), *copy = mem_printf("%s/to/opaque", p->top);
    AUTO_FREE char *file = mem_printf("%s/from/ping", p->top), *file_copy = mem_printf("%s/to/ping", p->top);
    char value[64];
    /* cap_net_raw+ep, as setcap writes it */
    static const unsigned char capability[20] = {1, 0, 0, 2, 0, 32};
    assert_int_equal(mknodat(p->fd, "from/gone", S_IFCHR, makedev(0, 0)), 0);
    assert_int_equal(linkat(p->fd, "from/gone", p->fd, "from/gone too", 0), 0); /* as overlayfs does */
    assert_int_equal(mkdir(dir, 0755), 0);
    assert_int_equal(setxattr(dir, "trusted.overlay.opaque", "y", 1, 0), 0);
    write_at(p, "from/ping", "x");
    assert_int_equal(setxattr(file, "security.capability", capability, sizeof(capability), 0), 0);
    assert_int_equal(setxattr(file, "user.note", "mine", 4, 0), 0);
    assert_int_equal(setxattr(file, "trusted.other", "x", 1, 0), 0);
    clone_it(p);
    struct stat whiteout = look(p, "to/gone");
    assert_true(S_ISCHR(whiteout.st_mode) && whiteout.st_rdev == 0);
    whiteout = look(p, "to/gone too");
    assert_true(S_ISCHR(whiteout.st_mode) && whiteout.st_rdev == 0);
    assert_int_equal(getxattr(copy, "trusted.overlay.opaque", value, sizeof(value)), 1);
    assert_int_equal(getxattr(file_copy, "security.capability", value, sizeof(value)), sizeof(capability));
    assert_memory_equal(value, capability, sizeof(capability));
    assert_int_equal(getxattr(file_copy, "user.note", value, sizeof(value)), 4);
    assert_int_equal(getxattr(file_copy, "trusted.other", value, sizeof(value)), -1);
}

static void test_names_of_one_file_stay_so(void **state)
{
    struct place *p = *state;
    assert_int_equal(mkdirat(p->fd, "from/a", 0755), 0);
    assert_int_equal(mkdirat(p->fd, "from/b", 0755), 0);
    write_at(p, "from/a/one", "shared");
    assert_int_equal(linkat(p->fd, "from/a/one", p->fd, "from/b/two", 0), 0);
    assert_int_equal(linkat(p->fd, "from/a/one", p->fd, "from/three", 0), 0);
    write_at(p, "outside", "one name inside, one outside");
    assert_int_equal(linkat(p->fd, "outside", p->fd, "from/half", 0), 0);
    clone_it(p);
    struct stat one = look(p, "to/a/one"), two = look(p, "to/b/two"), three = look(p, "to/three");
    assert_true(one.st_ino == two.st_ino && two.st_ino == three.st_ino);
    assert_int_equal(one.st_nlink, 3);
    assert_int_equal(look(p, "from/a/one").st_nlink, 3);
    assert_int_equal(look(p, "to/half").st_nlink, 1);
    assert_int_equal(look(p, "outside").st_nlink, 2);
}

static void test_what_has_no_business_there_is_left_out(void **state)
{
    struct place *p = *state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/from/socket", p->fd);
    AUTO_CLOSE int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(sock, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(mknodat(p->fd, "from/null", S_IFCHR | 0666, makedev(1, 3)), 0);
    assert_int_equal(mknodat(p->fd, "from/disk", S_IFBLK | 0666, makedev(7, 99)), 0);
    clone_it(p);
    assert_int_equal(faccessat(p->fd, "to/socket", F_OK, AT_SYMLINK_NOFOLLOW), -1);
    assert_int_equal(faccessat(p->fd, "to/null", F_OK, AT_SYMLINK_NOFOLLOW), -1);
    assert_int_equal(faccessat(p->fd, "to/disk", F_OK, AT_SYMLINK_NOFOLLOW), -1);
}

static void test_bytes_and_holes(void **state)
{
    struct place *p = *state;
    AUTO_CLOSE int fd = openat(p->fd, "from/sparse", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    AUTO_FREE char *a = mem_alloc(LARGE), *b = mem_alloc(LARGE);
    for (size_t i = 0; i < LARGE; i++)
        a[i] = (char)(i * 2654435761U >> 13);
    assert_int_equal(pwrite(fd, a, LARGE, 0), LARGE);
    assert_int_equal(pwrite(fd, "end", 3, 1LL << 33), 3);
    assert_int_equal(ftruncate(fd, (1LL << 33) + 12345), 0);
    write_at(p, "from/empty", "");
    clone_it(p);
    is_alike(p, "/sparse");
    is_alike(p, "/empty");
    assert_true(look(p, "to/sparse").st_blocks * 512LL < 2 * LARGE);
    AUTO_CLOSE int copy = openat(p->fd, "to/sparse", O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(copy, b, LARGE, 0), LARGE);
    assert_memory_equal(a, b, LARGE);
    assert_int_equal(pread(copy, b, 8, 1LL << 33), 8);
    assert_memory_equal(b, "end\0\0\0\0\0", 8);
    /* Neither is the other. */
    assert_int_equal(pwrite(copy, "changed", 7, 0), 7);
    assert_int_equal(pread(fd, b, 7, 0), 7);
    assert_memory_equal(a, b, 7);
}

static void test_depth_and_width(void **state)
{
    struct place *p = *state;
    char name[32];
    int at = openat(p->fd, "from", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < DEEP; i++) {
        assert_int_equal(mkdirat(at, "directory", 0755), 0);
        assert_int_equal(mkdirat(at, "z", 0755), 0);
        int next = openat(at, "directory", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        (void)fd_close(at);
        at = next;
    }
    assert_int_equal(fd_write_file(at, "bottom", STR("deep"), 0644), 0);
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof(name), "%d", i);
        assert_int_equal(mkdirat(at, name, 0755), 0);
    }
    (void)fd_close(at);
    clone_it(p);
    at = openat(p->fd, "to", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < DEEP; i++) {
        assert_int_equal(faccessat(at, "z", F_OK, 0), 0);
        int next = openat(at, "directory", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        (void)fd_close(at);
        at = next;
        assert_true(at >= 0);
    }
    AUTO_BUF struct buf b = BUF_INIT(16);
    assert_int_equal(fd_read_file(at, "bottom", &b), 0);
    struct stat st;
    assert_int_equal(fstatat(at, "2999", &st, 0), 0);
    (void)fd_close(at);
}

static void test_what_it_takes_is_counted(void **state)
{
    enum { SIZE = 1 << 20 };
    struct place *p = *state;
    AUTO_FREE char *content = mem_zalloc(SIZE + 1);
    uint64_t empty, with;
    memset(content, 'x', SIZE);
    assert_int_equal(mkdirat(p->fd, "from/directory", 0755), 0);
    write_at(p, "from/directory/small", "s");
    empty = clone_it(p);
    assert_true(empty < SIZE / 2);
    assert_int_equal(tree_remove(p->fd, "to"), 0);
    write_at(p, "from/directory/large", content);
    assert_int_equal(linkat(p->fd, "from/directory/large", p->fd, "from/again", 0), 0); /* the same bytes */
    int fd = openat(p->fd, "from/hole", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, 16 * SIZE), 0);
    (void)fd_close(fd);
    with = clone_it(p);
    assert_in_range(with - empty, SIZE, SIZE + SIZE / 8);
}

static void test_links_lead_nowhere(void **state)
{
    struct place *p = *state;
    assert_int_equal(symlinkat("/etc", p->fd, "from/etc"), 0);
    assert_int_equal(symlinkat("..", p->fd, "from/up"), 0);
    assert_int_equal(symlinkat("from", p->fd, "alias"), 0);
    clone_it(p);
    assert_true(S_ISLNK(look(p, "to/etc").st_mode));
    assert_true(S_ISLNK(look(p, "to/up").st_mode));
    assert_int_equal(tree_clone(p->fd, "alias", p->fd, "other", share, NULL), -ENOTDIR);
    assert_int_equal(tree_clone(p->fd, "from", p->fd, "to", share, NULL), -EEXIST);
    assert_int_equal(tree_clone(p->fd, "missing", p->fd, "other", share, NULL), -ENOENT);
}

static void test_what_can_share(void **state)
{
    struct place *p = *state;
    assert_int_equal(tree_can_share(p->fd), share);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_owners_modes_and_times, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_overlayfs_leaves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_names_of_one_file_stay_so, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_has_no_business_there_is_left_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bytes_and_holes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_depth_and_width, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_it_takes_is_counted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_links_lead_nowhere, set_up, tear_down),
    };
    const struct CMUnitTest sharing[] = {cmocka_unit_test_setup_teardown(test_what_can_share, set_up, tear_down)};
    const struct CMUnitTest absent[] = {cmocka_unit_test(test_disk_absent)};
    struct test_disk disk;
    int failed = cmocka_run_group_tests_name("copied", tests, NULL, NULL);
    if (!test_disk_open(&disk, "xfs"))
        return failed + cmocka_run_group_tests_name("shared", absent, NULL, NULL);
    where = disk.dir;
    share = true;
    failed += cmocka_run_group_tests_name("shared", tests, NULL, NULL);
    failed += cmocka_run_group_tests_name("sharing", sharing, NULL, NULL);
    test_disk_close(&disk);
    return failed;
}
