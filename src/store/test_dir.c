/* SPDX-License-Identifier: Apache-2.0 */
#include "store/test_dir.h"
#include "base/mem.h"

#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

int test_dir_setup(void **state)
{
    struct test_dir *d = mem_new(struct test_dir);
    const char *base = getenv("TMPDIR");
    (void)snprintf(d->path, sizeof(d->path), "%s/cove-test-XXXXXX", base && strlen(base) < 32 ? base : "/tmp");
    if (!mkdtemp(d->path)) {
        mem_free(d);
        return -1;
    }
    (void)snprintf(d->db, sizeof(d->db), "%s/store.db", d->path);
    *state = d;
    return 0;
}

static int remove_one(const char *path, const struct stat *st UNUSED, int type UNUSED, struct FTW *at UNUSED)
{
    return remove(path);
}

int test_dir_teardown(void **state)
{
    struct test_dir *d = *state;
    int r = nftw(d->path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    mem_free(d);
    return r;
}

static sqlite3_stmt *prepare(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *q = NULL;
    if (sqlite3_prepare_v2(db, sql, -1, &q, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    return q;
}

static int64_t run(const char *path, const char *fmt, va_list ap)
{
    char *sql = sqlite3_vmprintf(fmt, ap);
    sqlite3 *db = NULL;
    int64_t number = 0;
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL), SQLITE_OK);
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    sqlite3_stmt *q = prepare(db, sql);
    int rc = sqlite3_step(q);
    if (rc == SQLITE_ROW)
        number = sqlite3_column_int64(q, 0);
    else if (rc != SQLITE_DONE)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    (void)sqlite3_finalize(q);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    sqlite3_free(sql);
    return number;
}

void test_sql(const char *db, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)run(db, fmt, ap);
    va_end(ap);
}

int64_t test_sql_number(const char *db, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int64_t n = run(db, fmt, ap);
    va_end(ap);
    return n;
}

bool test_in_child(int (*fn)(const struct test_dir *dir), const struct test_dir *dir)
{
    int *line = mmap(NULL, sizeof(*line), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(line != MAP_FAILED);
    *line = -1;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        *line = fn(dir);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    int got = *line;
    assert_int_equal(munmap(line, sizeof(*line)), 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    if (got != TEST_DIR_SKIP && got != 0)
        fail_msg("the child found something wrong in line %d", got);
    return got == 0;
}

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        (void)close(fd);
    return ok;
}

bool test_dir_shrink(const struct test_dir *dir, const char *size)
{
    char map[64], options[64];
    uid_t uid = getuid();
    if (unshare(uid == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) < 0)
        return false;
    (void)snprintf(map, sizeof(map), "0 %u 1", uid);
    if (uid != 0 && !write_text("/proc/self/uid_map", map))
        return false;
    (void)snprintf(options, sizeof(options), "size=%s,mode=0700", size);
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", dir->path, "tmpfs", MS_NOSUID | MS_NODEV, options) == 0;
}
