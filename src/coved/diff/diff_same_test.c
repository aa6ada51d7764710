/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/mem.h"
#include "coved/diff/diff_same.h"
#include "coved/diff/test_rig.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

/* As the kernel takes them: version 2, entries of tag, permissions and id. */
static const char list_one[] =
    "\2\0\0\0\1\0\7\0\xff\xff\xff\xff\2\0\7\0\xe8\3\0\0\4\0\5\0\xff\xff\xff\xff\x10\0\7\0\xff\xff\xff\xff\x20\0\5\0\xff\xff\xff\xff";
static const char list_other[] =
    "\2\0\0\0\1\0\7\0\xff\xff\xff\xff\2\0\7\0\xe9\3\0\0\4\0\5\0\xff\xff\xff\xff\x10\0\7\0\xff\xff\xff\xff\x20\0\5\0\xff\xff\xff\xff";

static struct found find(int dir_fd)
{
    struct found f = {.is_there = true, .dir_fd = dir_fd, .name = "f"};
    assert_int_equal(fstatat(dir_fd, "f", &f.st, AT_SYMLINK_NOFOLLOW), 0);
    return f;
}

static void test_alike_from_outside_and_of_other_bytes(void **state)
{
    (void)state;
    struct effort effort = {.most = 100, .out = -1};
    const struct timespec then[2] = {{1000000000, 5}, {1000000000, 5}};
    diff_rig_file("0/f", "aaaa");
    diff_rig_file("1/f", "bbbb");
    assert_int_equal(utimensat(AT_FDCWD, "0/f", then, 0), 0);
    assert_int_equal(utimensat(AT_FDCWD, "1/f", then, 0), 0);
    AUTO_CLOSE int dir_a = open("0", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_CLOSE int dir_b = open("1", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct found a = find(dir_a), b = find(dir_b);
    /* As two subvolumes that began as clones have it. */
    const dev_t dev = b.st.st_dev + 1;
    b.st = a.st;
    b.st.st_dev = dev;
    assert_int_equal(diff_same(&effort, &a, &b), 0);
    assert_true(effort.used > 0);
    diff_rig_file("1/f", "aaaa");
    assert_int_equal(diff_same(&effort, &a, &b), 1);
    effort.most = effort.used + 1;
    assert_int_equal(diff_same(&effort, &a, &b), -EDQUOT);
}

static void test_one_file_is_not_read(void **state)
{
    (void)state;
    struct effort effort = {.most = 0, .out = -1};
    diff_rig_file("0/f", "aaaa");
    assert_int_equal(link("0/f", "1/f"), 0);
    AUTO_CLOSE int dir_a = open("0", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_CLOSE int dir_b = open("1", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct found a = find(dir_a), b = find(dir_b);
    assert_int_equal(diff_same(&effort, &a, &b), 1);
    assert_int_equal(effort.used, 0);
}

static void put(const char *path, const char *name, const void *value, size_t n)
{
    assert_int_equal(setxattr(path, name, value, n, 0), 0);
}

static void test_capabilities(void **state)
{
    (void)state;
    struct vfs_cap_data caps = {.magic_etc = VFS_CAP_REVISION_2, .data = {{.permitted = 1U << CAP_NET_RAW}}};
    diff_rig_file("0/f", "same");
    diff_rig_file("1/f", "same");
    put("0/f", "security.capability", &caps, sizeof(caps));
    (void)diff_rig_expect("1", "01", 1, "f Mf");
    (void)diff_rig_expect("01", "1", 1, "f Mf");
    put("1/f", "security.capability", &caps, sizeof(caps));
    (void)diff_rig_expect("1", "01", 1, "");
    caps.data[0].permitted |= 1U << CAP_SYS_ADMIN;
    put("0/f", "security.capability", &caps, sizeof(caps));
    (void)diff_rig_expect("1", "01", 1, "f Mf");
}

static void test_access_lists(void **state)
{
    (void)state;
    static const char *const lists[] = {"system.posix_acl_access", "system.posix_acl_default"};
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        const char *file_or_none = i == 0 ? "f Mf" : "";
        AUTO_FREE char *both = mem_printf("d Md%s%s", *file_or_none ? ", " : "", file_or_none);
        for (char layer = '0'; layer <= '1'; layer++) {
            char dir[] = {layer, '/', 'd', 0}, file[] = {layer, '/', 'f', 0};
            (void)mkdir(dir, 0755);
            diff_rig_file(file, "same");
            put(dir, lists[i], list_one, sizeof(list_one) - 1);
            if (i == 0)
                put(file, lists[i], list_one, sizeof(list_one) - 1);
        }
        (void)diff_rig_expect("1", "01", 1, "");
        put("0/d", lists[i], list_other, sizeof(list_other) - 1);
        if (i == 0)
            put("0/f", lists[i], list_other, sizeof(list_other) - 1);
        (void)diff_rig_expect("1", "01", 1, both);
        put("1/d", lists[i], list_other, sizeof(list_other) - 1);
        if (i == 0)
            put("1/f", lists[i], list_other, sizeof(list_other) - 1);
    }
}

static void test_other_attributes_are_not_looked_at(void **state)
{
    (void)state;
    diff_rig_dir("0/d");
    diff_rig_dir("1/d");
    diff_rig_file("0/f", "same");
    diff_rig_file("1/f", "same");
    put("0/d", "trusted.overlay.impure", "y", 1);
    put("0/f", "trusted.overlay.origin", "x", 1);
    put("0/f", "user.overlay.origin", "x", 1);
    put("0/f", "user.note", "x", 1);
    (void)diff_rig_expect("1", "01", 1, "");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, diff_rig_set_up, diff_rig_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_alike_from_outside_and_of_other_bytes),
        TEST(test_one_file_is_not_read),
        TEST(test_capabilities),
        TEST(test_access_lists),
        TEST(test_other_attributes_are_not_looked_at),
    };
    if (geteuid() != 0) {
        print_message("SKIP: these attributes need root\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
