/* SPDX-License-Identifier: Apache-2.0 */
/* PACK and UNPACK, with the tar of this machine. */
#include "agent/test_calls.h"
#include "base/fd.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void pack(const char *user, const char *path, struct result *ret)
{
    rig_result(&rig, rig_open_path(&rig, WIRE_PACK, user, path), true, ret);
}

/* Sends the archive, `extra` bytes behind it, and EOF. */
static void unpack(const char *user, const char *path, struct str archive, struct str extra, struct result *ret)
{
    uint32_t stream = rig_open_path(&rig, WIRE_UNPACK, user, path);
    if (archive.n)
        rig_send(&rig, WIRE_DATA, 0, stream, archive.p, archive.n);
    if (extra.n)
        rig_send(&rig, WIRE_DATA, 0, stream, extra.p, extra.n);
    rig_send(&rig, WIRE_EOF, 0, stream, NULL, 0);
    rig_result(&rig, stream, true, ret);
}

static void test_there_and_back(void **state)
{
    (void)state;
    struct result packed, x;
    struct stat st;
    static const char noise[] = "noise behind the end of the archive";
    assert_int_equal(mkdir(rig_path(&rig, "home/a"), 0755), 0);
    rig_write(rig_path(&rig, "home/a/run"), "#!/bin/sh\n");
    assert_int_equal(chmod(rig_path(&rig, "home/a/run"), 0755), 0);
    assert_int_equal(symlink("run", rig_path(&rig, "home/a/link")), 0);
    pack("user", "a", &packed);
    assert_string_equal(packed.message, "");
    assert_true(packed.has_head && buf_len(&packed.data) % 512 == 0 && buf_len(&packed.data) > 1024);

    unpack("user", "new/deep", buf_str(&packed.data), str_of(noise), &x);
    assert_string_equal(x.message, "");
    struct wire_reader r = wire_reader_of(buf_str(&x.tail));
    struct entry e = entry_get(&r);
    assert_true(str_eqc(e.path, rig_path(&rig, "home/new/deep")) && str_eqc(e.owner, "user"));
    assert_string_equal(rig_read(rig_path(&rig, "home/new/deep/run")), "#!/bin/sh\n");
    assert_int_equal(lstat(rig_path(&rig, "home/new/deep/run"), &st), 0);
    assert_true(st.st_mode == (S_IFREG | 0755) && st.st_uid == 1000 && st.st_gid == 1000);
    assert_int_equal(lstat(rig_path(&rig, "home/new/deep/link"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    result_fini(&x);
    result_fini(&packed);
}

/* More than any window, both ways, so that credit has to go back. */
static void test_large(void **state)
{
    enum { SIZE = 3 << 20, PIECE = 64 * 1024 };
    static char block[SIZE];
    struct result packed, x;
    (void)state;
    for (size_t i = 0; i < sizeof(block); i++)
        block[i] = (char)('a' + i * 7 % 23);
    assert_int_equal(mkdir(rig_path(&rig, "home/a"), 0755), 0);
    AUTO_CLOSE int fd = open(rig_path(&rig, "home/a/big"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_int_equal(fd_write_all(fd, block, sizeof(block)), 0);
    pack("root", rig_path(&rig, "home/a"), &packed);
    assert_int_equal(packed.code, ERR_OK);
    assert_true(buf_len(&packed.data) > SIZE);

    uint32_t stream = rig_open_path(&rig, WIRE_UNPACK, "user", "b");
    size_t at = 0, window = WIRE_WINDOW;
    while (at < buf_len(&packed.data)) {
        size_t n = MIN(MIN(window, (size_t)PIECE), buf_len(&packed.data) - at);
        if (n == 0) {
            struct frame *f = rig_next(&rig, stream, 20000);
            assert_non_null(f);
            if (f->type == WIRE_CREDIT) {
                uint32_t more;
                memcpy(&more, f->payload, sizeof(more));
                window += more;
            } else {
                assert_int_equal(f->type, WIRE_REPLY);
            }
            frame_free(f);
            continue;
        }
        rig_send(&rig, WIRE_DATA, 0, stream, buf_data(&packed.data) + at, n);
        at += n;
        window -= n;
    }
    rig_send(&rig, WIRE_EOF, 0, stream, NULL, 0);
    rig_result(&rig, stream, true, &x);
    assert_string_equal(x.message, "");
    result_fini(&x);
    result_fini(&packed);
    expect_bytes("b/big", 0, UINT64_MAX, block, sizeof(block));
}

static void test_what_is_refused(void **state)
{
    (void)state;
    struct result x;
    rig_write(rig_path(&rig, "home/f"), "");
    expect_failure(WIRE_PACK, "f", ERR_NOT_FOUND, "path '%s/home/f' is not a directory", rig.dir);
    expect_failure(WIRE_PACK, "none", ERR_NOT_FOUND, "path '%s/home/none' is not a directory", rig.dir);
    unpack("user", "x", STR("this is no archive"), STR_NULL, &x);
    assert_int_equal(x.code, ERR_UNKNOWN);
    assert_non_null(strstr(x.message, "in the sandbox: tar: "));
    result_fini(&x);
    /* With the user's rights, not the agent's. */
    assert_int_equal(mkdir(rig_path(&rig, "root"), 0700), 0);
    unpack("user", rig_path(&rig, "root/x"), STR_NULL, STR_NULL, &x);
    assert_int_equal(x.code, ERR_UNKNOWN);
    assert_non_null(strstr(x.message, "permission denied"));
    result_fini(&x);
    pack("user", rig_path(&rig, "root"), &x);
    assert_int_equal(x.code, ERR_UNKNOWN);
    result_fini(&x);
}

/* A host that loses interest in the middle, and one that is gone: nothing stays. */
static void test_cut(void **state)
{
    (void)state;
    struct result x;
    uint32_t stream = rig_open_path(&rig, WIRE_UNPACK, "user", "x");
    rig_send(&rig, WIRE_DATA, 0, stream, "half of a header", 16);
    frame_free(rig_expect(&rig, stream, WIRE_REPLY));
    rig_send(&rig, WIRE_CLOSE, 0, stream, NULL, 0);
    rig_result(&rig, stream, true, &x);
    assert_int_not_equal(x.code, ERR_OK);
    result_fini(&x);
    stream = rig_open_path(&rig, WIRE_UNPACK, "user", "y");
    rig_send(&rig, WIRE_DATA, 0, stream, "half of a header", 16);
    frame_free(rig_expect(&rig, stream, WIRE_REPLY));
    rig_connect(&rig);
    rig_expect_end(&rig, rig_open(&rig, rig_request(WIRE_PING)), ERR_OK, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_there_and_back),
        TEST(test_large),
        TEST(test_what_is_refused),
        TEST(test_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
