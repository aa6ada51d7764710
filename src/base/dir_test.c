/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dir.h"
#include "base/fd.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void test_entries(void **state)
{
    (void)state;
    char path[] = "/tmp/cove-dir-XXXXXX";
    assert_non_null(mkdtemp(path));
    AUTO_CLOSE int at = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdirat(at, "..more", 0700), 0);
    assert_int_equal(fd_write_file(at, ".hidden", STR("x"), 0600), 0);
    size_t n = 0;
    for (int i = 0; i < 2; i++) { /* at is where it was */
        AUTO(dir_close) DIR *dir = dir_open(at, ".");
        for (const struct dirent *e; (e = dir_next(dir)); n++)
            assert_true(strcmp(e->d_name, "..more") == 0 || strcmp(e->d_name, ".hidden") == 0);
    }
    assert_int_equal(n, 4);
    assert_int_equal(unlinkat(at, "..more", AT_REMOVEDIR), 0);
    assert_int_equal(unlinkat(at, ".hidden", 0), 0);
    assert_int_equal(rmdir(path), 0);
}

static void test_none(void **state)
{
    (void)state;
    errno = 0;
    assert_null(dir_open(AT_FDCWD, "/there is no such directory"));
    assert_int_equal(errno, ENOENT);
    assert_null(dir_next(NULL));
    dir_close(NULL);
    int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_null(dir_take(file)); /* and it is closed */
    assert_int_equal(errno, ENOTDIR);
    assert_int_equal(fcntl(file, F_GETFD), -1);
    errno = EACCES;
    assert_null(dir_take(-1));
    assert_int_equal(errno, EACCES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_entries), cmocka_unit_test(test_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
