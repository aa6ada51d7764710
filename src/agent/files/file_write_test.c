/* SPDX-License-Identifier: Apache-2.0 */
/* WRITE. */
#include "agent/test_calls.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

static void test_write(void **state)
{
    (void)state;
    struct result x;
    struct stat st;
    char *path = rig_path(&rig, "home/new/dir/f");
    struct entry e = write_file("user", path, NULL, "hello", 5, &x);
    assert_true(str_eqc(e.path, path) && str_eqc(e.owner, "user") && str_eqc(e.group, "user"));
    assert_int_equal(e.size, 5);
    assert_int_equal(e.mode, S_IFREG | 0644);
    result_fini(&x);
    assert_string_equal(rig_read(path), "hello");
    assert_int_equal(stat(rig_path(&rig, "home/new"), &st), 0);
    assert_int_equal(st.st_mode, S_IFDIR | 0755);
    assert_int_equal(st.st_uid, 1000);

    assert_int_equal(chmod(path, 0700), 0);
    assert_int_equal(chown(path, 0, 0), 0);
    e = write_file("tester", path, NULL, "", 0, &x);
    assert_int_equal(e.size, 0);
    assert_int_equal(e.mode, S_IFREG | 0700);
    assert_int_equal(e.uid, 1001);
    result_fini(&x);
}

static void test_metadata(void **state)
{
    (void)state;
    static const char *const two[] = {"author", "me", "empty", "", NULL}, *const one[] = {"other", "x", NULL};
    struct result x;
    char *path = rig_path(&rig, "home/f"), key[300];
    struct entry e = write_file("user", "f", two, "1", 1, &x);
    if (e.n_metadata == 0) {
        result_fini(&x);
        skip();
    }
    assert_int_equal(e.n_metadata, 2);
    result_fini(&x);
    assert_int_equal(setxattr(path, "user.foreign", "keep", 4, 0), 0);
    assert_int_equal(setxattr(path, "user.rig.bad", "\xff", 1, 0), 0);
    e = rig_stat(&rig, path, &x);
    assert_int_equal(e.n_metadata, 2); /* foreign ones and what is no text are not told */
    bool first = str_eqc(e.metadata[0][0], "author");
    assert_true(str_eqc(e.metadata[!first][0], "author") && str_eqc(e.metadata[!first][1], "me"));
    assert_true(str_eqc(e.metadata[first][0], "empty") && str_eqc(e.metadata[first][1], ""));
    result_fini(&x);
    assert_int_equal(symlink("f", rig_path(&rig, "home/link")), 0);
    e = rig_stat(&rig, rig_path(&rig, "home/link"), &x);
    assert_int_equal(e.n_metadata, 2);
    result_fini(&x);
    e = write_file("user", "f", one, "1", 1, &x);
    assert_int_equal(e.n_metadata, 1);
    result_fini(&x);
    e = write_file("user", "f", NULL, "1", 1, &x);
    assert_int_equal(e.n_metadata, 0);
    result_fini(&x);
    assert_int_equal(getxattr(path, "user.foreign", key, sizeof(key)), 4);

    memset(key, 'k', sizeof(key));
    key[247] = 0;
    char message[400];
    (void)snprintf(message, sizeof(message), "invalid metadata: metadata key \"%s\" exceeds 246 bytes", key);
    const char *too_long[] = {key, "v", NULL};
    rig_expect_end(&rig, open_write("user", "f", too_long), ERR_INVALID_ARGUMENT, message);
    static char value[4090];
    memset(value, 'v', sizeof(value) - 1);
    const char *too_much[] = {"k", value, NULL};
    rig_expect_end(&rig, open_write("user", "new", too_much), ERR_INVALID_ARGUMENT,
                   "invalid metadata: total metadata size 4099 exceeds 4096 bytes");
    expect_failure(WIRE_STAT, "new", ERR_NOT_FOUND, "file not found: lstat %s/home/new: no such file or directory",
                   rig.dir);
}

/* In place: links are followed, hard links and the inode stay. */
static void test_write_through_links(void **state)
{
    (void)state;
    struct result x;
    struct stat st, before;
    rig_write(rig_path(&rig, "home/f"), "a longer text");
    assert_int_equal(link(rig_path(&rig, "home/f"), rig_path(&rig, "home/hard")), 0);
    assert_int_equal(symlink("f", rig_path(&rig, "home/soft")), 0);
    assert_int_equal(symlink("dangling", rig_path(&rig, "home/nowhere")), 0);
    assert_int_equal(stat(rig_path(&rig, "home/f"), &before), 0);
    struct entry e = write_file("user", "soft", NULL, "short", 5, &x);
    assert_true(e.is_link && str_eqc(e.name, "soft"));
    result_fini(&x);
    assert_int_equal(stat(rig_path(&rig, "home/hard"), &st), 0);
    assert_int_equal(st.st_ino, before.st_ino);
    assert_int_equal(st.st_size, 5);
    assert_int_equal(st.st_uid, 1000);
    (void)write_file("user", "nowhere", NULL, "made", 4, &x);
    result_fini(&x);
    assert_string_equal(rig_read(rig_path(&rig, "home/dangling")), "made");
}

static void test_write_in_pieces_and_abandoned(void **state)
{
    (void)state;
    enum { TOTAL = 3 * 1024 * 1024 };
    static char block[100000];
    struct result x;
    uint32_t id = open_write("root", rig_path(&rig, "big"), NULL);
    frame_free(rig_expect(&rig, id, WIRE_REPLY));
    size_t sent = 0, credit = WIRE_WINDOW, n = 1;
    while (sent < TOTAL) {
        n = MIN(MIN(n * 7, sizeof(block)), TOTAL - sent);
        while (credit < n) {
            struct frame *f = rig_expect(&rig, id, WIRE_CREDIT);
            struct wire_reader r = wire_reader_of(str_n(f->payload, f->n));
            credit += wire_get_u32(&r);
            assert_true(credit <= WIRE_WINDOW);
            frame_free(f);
        }
        for (size_t i = 0; i < n; i++)
            block[i] = (char)((sent + i) * 2654435761u >> 13);
        rig_send(&rig, WIRE_DATA, 0, id, block, n);
        sent += n;
        credit -= n;
    }
    rig_send(&rig, WIRE_EOF, 0, id, NULL, 0);
    rig_result(&rig, id, true, &x);
    assert_string_equal(x.message, "");
    result_fini(&x);
    rig_result(&rig, open_read(rig_path(&rig, "big"), 0, UINT64_MAX), true, &x);
    assert_int_equal(buf_len(&x.data), TOTAL);
    for (size_t i = 0; i < TOTAL; i++)
        assert_int_equal(buf_data(&x.data)[i], (char)(i * 2654435761u >> 13));
    result_fini(&x);

    id = open_write("root", rig_path(&rig, "partial"), NULL);
    frame_free(rig_expect(&rig, id, WIRE_REPLY));
    rig_send(&rig, WIRE_DATA, 0, id, "part", 4);
    rig_send(&rig, WIRE_CLOSE, 0, id, NULL, 0);
    rig_expect_end(&rig, id, ERR_CANCELED, "closed");
    assert_string_equal(rig_read(rig_path(&rig, "partial")), "part");
}

static void test_no_space(void **state)
{
    (void)state;
    static char block[128 * 1024];
    uint32_t id = open_write("root", "/dev/full", NULL);
    rig_expect_end(&rig, id, ERR_INVALID_ARGUMENT, "path '/dev/full' is not a regular file");
    char *dir = rig_path(&rig, "small");
    assert_int_equal(mkdir(dir, 0755), 0);
    if (mount("none", dir, "tmpfs", 0, "size=64k") < 0)
        skip();
    id = open_write("root", rig_path(&rig, "small/f"), NULL);
    frame_free(rig_expect(&rig, id, WIRE_REPLY));
    rig_send(&rig, WIRE_DATA, 0, id, block, sizeof(block));
    rig_expect_end(&rig, id, ERR_RESOURCE_EXHAUSTED, "not enough disk space available: no space left on device");
    rig_send(&rig, WIRE_EOF, 0, id, NULL, 0); /* crossed the END */
    rig_expect_end(&rig, rig_open(&rig, rig_request(WIRE_PING)), ERR_OK, "");
    assert_int_equal(umount2(dir, MNT_DETACH), 0);
}

static void test_no_space_for_another_file(void **state)
{
    (void)state;
    char *dir = rig_path(&rig, "few");
    assert_int_equal(mkdir(dir, 0755), 0);
    if (mount("none", dir, "tmpfs", 0, "nr_inodes=2") < 0)
        skip();
    uint32_t id = open_write("root", rig_path(&rig, "few/a"), NULL);
    frame_free(rig_expect(&rig, id, WIRE_REPLY));
    rig_send(&rig, WIRE_EOF, 0, id, NULL, 0);
    struct result x;
    rig_result(&rig, id, true, &x);
    assert_string_equal(x.message, "");
    result_fini(&x);
    id = open_write("root", rig_path(&rig, "few/b"), NULL);
    rig_expect_end(&rig, id, ERR_RESOURCE_EXHAUSTED, "not enough disk space available: no space left on device");
    assert_int_equal(umount2(dir, MNT_DETACH), 0);
}

static void test_shrinking_file(void **state)
{
    (void)state;
    char *path = rig_path(&rig, "f");
    rig_write(path, "x");
    assert_int_equal(truncate(path, 1024 * 1024), 0);
    uint32_t id = open_read(path, 0, UINT64_MAX);
    frame_free(rig_expect(&rig, id, WIRE_REPLY));
    frame_free(rig_expect(&rig, id, WIRE_DATA));
    assert_int_equal(truncate(path, 100), 0);
    rig_credit(&rig, id, WIRE_WINDOW, true);
    char message[200];
    (void)snprintf(message, sizeof(message), "file '%s' became shorter while it was read", path);
    rig_expect_end(&rig, id, ERR_ABORTED, message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_write),
        TEST(test_metadata),
        TEST(test_write_through_links),
        TEST(test_write_in_pieces_and_abandoned),
        TEST(test_no_space),
        TEST(test_no_space_for_another_file),
        TEST(test_shrinking_file),
    };
    /* What is mounted here goes with the test, whatever becomes of it. */
    if (unshare(CLONE_NEWNS) == 0)
        (void)mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
