/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/mem.h"
#include "build/uploads.h"
#include "store/test_dir.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define OTHER "f123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void files_come_and_stay(void **state)
{
    const struct test_dir *dir = *state;
    struct uploads *u;
    struct upload *up;
    struct err err;
    uint64_t size;
    int fd;
    assert_int_equal(uploads_new(dir->path, &u, &err), 0);
    assert_false(uploads_has(u, HASH));
    assert_int_equal(uploads_open(u, HASH, &fd, &size, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(upload_begin(u, HASH, 5, &up, &err), 0);
    assert_int_equal(upload_write(up, STR("hello"), &err), 0);
    assert_false(uploads_has(u, HASH)); /* not before all of it is there */
    assert_int_equal(upload_end(up, &err), 0);
    assert_true(uploads_has(u, HASH));
    assert_int_equal(upload_begin(u, HASH, -1, &up, &err), 0); /* again, shorter */
    assert_int_equal(upload_write(up, STR("hey"), &err), 0);
    assert_int_equal(upload_end(up, &err), 0);
    assert_int_equal(uploads_open(u, HASH, &fd, &size, &err), 0);
    assert_int_equal(size, 3);
    (void)fd_close(fd);
    assert_int_equal(upload_begin(u, OTHER, -1, &up, &err), 0);
    assert_int_equal(upload_write(up, STR("half"), &err), 0);
    upload_cancel(up);
    assert_false(uploads_has(u, OTHER));
    assert_int_equal(upload_begin(u, OTHER, (int64_t)UPLOAD_BYTES_MAX + 1, &up, &err), -1);
    assert_int_equal(err.code, ERR_OUT_OF_RANGE);
    uploads_free(u);
    upload_cancel(NULL);

    /* What a crash left half is gone with the next start, the whole ones stay. */
    AUTO_FREE char *half = mem_printf("%s/uploads/part-7", dir->path);
    assert_int_equal(fd_write_file(AT_FDCWD, half, STR("x"), 0600), 0);
    assert_int_equal(uploads_new(dir->path, &u, &err), 0);
    assert_int_equal(access(half, F_OK), -1);
    assert_true(uploads_has(u, HASH));
    uploads_free(u);
}

static void tickets(void **state)
{
    const struct test_dir *dir = *state;
    char token[UPLOAD_TOKEN_LEN + 1], last[UPLOAD_TOKEN_LEN + 1];
    struct uploads *u;
    struct err err;
    assert_int_equal(uploads_new(dir->path, &u, &err), 0);
    uploads_grant(u, HASH, token);
    assert_true(uploads_is_granted(u, STR(HASH), str_of(token)));
    assert_false(uploads_is_granted(u, STR(OTHER), str_of(token)));
    assert_false(uploads_is_granted(u, STR(HASH), STR("")));
    token[3] = token[3] == 'a' ? 'b' : 'a';
    assert_false(uploads_is_granted(u, STR(HASH), str_of(token)));
    uploads_grant(u, HASH, token);
    for (int i = 0; i < 5000; i++) /* there are only so many */
        uploads_grant(u, OTHER, last);
    assert_false(uploads_is_granted(u, STR(HASH), str_of(token)));
    assert_true(uploads_is_granted(u, STR(OTHER), str_of(last)));
    uploads_free(u);
}

static int teardown(void **state)
{
    const struct test_dir *dir = *state;
    AUTO_FREE char *file = mem_printf("%s/uploads/%s", dir->path, HASH);
    AUTO_FREE char *uploads = mem_printf("%s/uploads", dir->path);
    (void)unlink(file);
    return rmdir(uploads) < 0 ? -1 : test_dir_teardown(state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_dir_setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(files_come_and_stay), TEST(tickets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
