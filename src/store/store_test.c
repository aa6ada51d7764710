/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/fd.h"
#include "store/event_rows.h"
#include "store/schema.h"
#include "store/store.h"
#include "store/tenant_rows.h"
#include "store/test_dir.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static struct store *open_ok(const struct test_dir *dir)
{
    struct store *s = NULL;
    struct err err;
    if (store_open(dir->db, &s, &err) < 0)
        fail_msg("%s", err.msg);
    return s;
}

static void put(struct store *s, const char *key, const char *value)
{
    struct err err;
    if (meta_put(s, key, str_of(value), &err) < 0)
        fail_msg("%s", err.msg);
}

static void commit(struct store *s)
{
    struct err err;
    if (store_commit(s, &err) < 0)
        fail_msg("%s", err.msg);
}

static bool has(struct store *s, const char *key, const char *value)
{
    struct err err;
    AUTO_BUF struct buf b = BUF_INIT(4096);
    int r = meta_get(s, key, &b, &err);
    assert_true(r >= 0);
    return r == 1 && str_eqc(buf_str(&b), value);
}

static void refused(const struct test_dir *dir, enum err_code code, const char *says)
{
    struct store *s = NULL;
    struct err err;
    assert_int_equal(store_open(dir->db, &s, &err), -1);
    assert_null(s);
    assert_int_equal(err.code, code);
    assert_non_null(strstr(err.msg, dir->db));
    assert_non_null(strstr(err.msg, says));
}

static void test_create_and_open_again(void **state)
{
    struct test_dir *dir = *state;
    mode_t old = umask(0);
    struct store *s = open_ok(dir);
    assert_string_equal(store_path(s), dir->db);
    assert_false(store_pending(s));
    put(s, "instance", "one");
    assert_true(store_pending(s));
    commit(s);
    assert_false(store_pending(s));
    struct stat st;
    char wal[128];
    (void)snprintf(wal, sizeof(wal), "%s-wal", dir->db);
    assert_int_equal(stat(dir->db, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(stat(wal, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    store_close(s);
    (void)umask(old);
    s = open_ok(dir);
    assert_true(has(s, "instance", "one"));
    assert_false(has(s, "other", ""));
    store_close(s);
    assert_int_equal(test_sql_number(dir->db, "PRAGMA user_version"), (int64_t)schema_n_steps);
}

static void test_meta(void **state)
{
    struct store *s = open_ok(*state);
    struct err err;
    put(s, "k", "v");
    put(s, "k", "w");
    assert_int_equal(meta_put(s, "bytes", STR("a\0b"), &err), 0);
    commit(s);
    assert_true(has(s, "k", "w"));
    AUTO_BUF struct buf b = BUF_INIT(16);
    assert_int_equal(meta_get(s, "bytes", &b, &err), 1);
    assert_true(str_eq(buf_str(&b), STR("a\0b")));
    AUTO_BUF struct buf small = BUF_INIT(2);
    assert_int_equal(meta_get(s, "bytes", &small, &err), -1);
    assert_int_equal(meta_delete(s, "k", &err), 0);
    assert_int_equal(meta_delete(s, "k", &err), 0);
    assert_false(has(s, "k", "w"));
    store_close(s); /* commits */
    s = open_ok(*state);
    assert_false(has(s, "k", "w"));
    store_close(s);
}

static void test_one_writer(void **state)
{
    struct store *s = open_ok(*state);
    refused(*state, ERR_FAILED_PRECONDITION, "another process");
    store_close(s);
    store_close(open_ok(*state));
}

static void test_refuses_a_newer_format(void **state)
{
    struct test_dir *dir = *state;
    store_close(open_ok(dir));
    test_sql(dir->db, "PRAGMA user_version = 1000");
    refused(dir, ERR_FAILED_PRECONDITION, "newer Cove");
    struct store *s;
    struct err err;
    assert_int_equal(store_open_reader(dir->db, &s, &err), -1);
    assert_int_equal(err.code, ERR_FAILED_PRECONDITION);
    test_sql(dir->db, "PRAGMA user_version = %d", (int)schema_n_steps);
    store_close(open_ok(dir));
}

static void test_brings_an_older_format_up_to_date(void **state)
{
    struct test_dir *dir = *state;
    store_close(open_ok(dir));
    test_sql(dir->db, "DROP INDEX events_life");
    test_sql(dir->db, "CREATE INDEX events_life ON events (cursor) WHERE kind IN ('sandbox.create')");
    test_sql(dir->db, "ALTER TABLE template_builds DROP COLUMN image");
    test_sql(dir->db, "PRAGMA user_version = 11");
    struct store *s = open_ok(dir);
    struct err err;
    struct life_want want = {.to = 1, .tenant = TENANT_ANY};
    assert_int_equal(life_rows_each(s, &want, NULL, NULL, &err), 0);
    store_close(s);
    assert_int_equal(test_sql_number(dir->db, "PRAGMA user_version"), (int64_t)schema_n_steps);
}

static void test_refuses_what_is_no_store(void **state)
{
    struct test_dir *dir = *state;
    test_sql(dir->db, "CREATE TABLE recipes (name TEXT)");
    refused(dir, ERR_DATA_LOSS, "another program's");
    assert_int_equal(test_sql_number(dir->db, "SELECT count(*) FROM sqlite_schema"), 1); /* left as it was */

    char text[8192];
    memset(text, 'x', sizeof(text));
    assert_int_equal(fd_write_file(AT_FDCWD, dir->db, str_n(text, sizeof(text)), 0600), 0);
    refused(dir, ERR_DATA_LOSS, "damaged");

    assert_int_equal(unlink(dir->db), 0);
    assert_int_equal(mkdir(dir->db, 0700), 0);
    struct store *s;
    struct err err;
    assert_int_equal(store_open(dir->db, &s, &err), -1);
    assert_non_null(strstr(err.msg, dir->db));
    assert_int_equal(rmdir(dir->db), 0);
}

/* A page in the middle is overwritten: the header is fine, so it shows when the page is needed. */
static void test_damaged_page(void **state)
{
    struct test_dir *dir = *state;
    struct store *s = open_ok(dir);
    char value[1024] = {0};
    memset(value, 'v', sizeof(value) - 1);
    for (int i = 0; i < 200; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "key%03d", i);
        put(s, key, value);
    }
    store_close(s);
    struct stat st;
    assert_int_equal(stat(dir->db, &st), 0);
    int fd = open(dir->db, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    char noise[4096];
    memset(noise, 0xa5, sizeof(noise));
    for (off_t at = 8 * 4096; at + 4096 <= st.st_size; at += 4096)
        assert_int_equal(pwrite(fd, noise, sizeof(noise), at), sizeof(noise));
    (void)close(fd);

    struct err err;
    if (store_open(dir->db, &s, &err) == 0) {
        AUTO_BUF struct buf b = BUF_INIT(4096);
        assert_int_equal(meta_get(s, "key150", &b, &err), -1);
        store_close(s);
    }
    assert_int_equal(err.code, ERR_DATA_LOSS);
    assert_non_null(strstr(err.msg, dir->db));
}

static void test_migrates_step_by_step(void **state)
{
    struct test_dir *dir = *state;
    static const char *const steps[] = {
        "CREATE TABLE a (x INTEGER); INSERT INTO a VALUES (1)",
        "ALTER TABLE a ADD COLUMN y INTEGER NOT NULL DEFAULT 7",
        "INSERT INTO a VALUES (2, 2); INSERT INTO nowhere VALUES (1)",
    };
    sqlite3 *db = NULL;
    struct err err;
    size_t version = 99;
    assert_int_equal(sqlite3_open(dir->db, &db), SQLITE_OK);
    assert_int_equal(schema_check(db, dir->db, 2, &version, &err), 0);
    assert_int_equal(version, 0);
    assert_int_equal(schema_apply(db, dir->db, steps, 1, 0, &err), 0);
    assert_int_equal(schema_check(db, dir->db, 2, &version, &err), 0);
    assert_int_equal(version, 1);
    assert_int_equal(schema_apply(db, dir->db, steps, 2, 1, &err), 0);
    assert_int_equal(test_sql_number(dir->db, "SELECT sum(x * 10 + y) FROM a"), 17);
    /* A step that fails leaves nothing of itself. */
    assert_int_equal(schema_apply(db, dir->db, steps, 3, 2, &err), -1);
    assert_int_equal(schema_check(db, dir->db, 3, &version, &err), 0);
    assert_int_equal(version, 2);
    assert_int_equal(test_sql_number(dir->db, "SELECT count(*) FROM a"), 1);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

struct told {
    int committing, committed, rolled_back;
    bool fail;
    struct store *store;
};

static int on_committing(void *ctx, struct err *err)
{
    struct told *t = ctx;
    t->committing++;
    if (t->fail)
        return err_set(err, ERR_INTERNAL, "not today");
    return meta_put(t->store, "last", STR("word"), err);
}

static void on_committed(void *ctx)
{
    ((struct told *)ctx)->committed++;
}

static void on_rolled_back(void *ctx)
{
    ((struct told *)ctx)->rolled_back++;
}

static void test_batches_and_hooks(void **state)
{
    struct store *s = open_ok(*state);
    struct err err;
    struct told told = {.store = s};
    struct store_hook hook = {on_committing, on_committed, on_rolled_back, &told, {0}};
    store_hook_add(s, &hook);

    commit(s); /* nothing to do: nobody is told */
    assert_int_equal(told.committing + told.committed + told.rolled_back, 0);
    put(s, "a", "1");
    commit(s);
    assert_int_equal(told.committing, 1);
    assert_int_equal(told.committed, 1);
    assert_true(has(s, "last", "word"));

    put(s, "a", "2");
    assert_true(has(s, "a", "2")); /* its own writes are seen */
    store_rollback(s);
    assert_int_equal(told.rolled_back, 1);
    assert_true(has(s, "a", "1"));

    told.fail = true;
    put(s, "a", "3");
    assert_int_equal(store_commit(s, &err), -1);
    assert_string_equal(err.msg, "not today");
    assert_int_equal(told.rolled_back, 2);
    assert_int_equal(told.committed, 1);
    assert_true(has(s, "a", "1"));
    assert_false(store_pending(s));

    store_hook_remove(&hook);
    put(s, "a", "4");
    commit(s);
    assert_true(has(s, "a", "4"));
    store_close(s);
}

static void test_reader_sees_snapshots(void **state)
{
    struct test_dir *dir = *state;
    struct store *s = open_ok(dir), *reader = NULL;
    struct err err;
    put(s, "a", "1");
    commit(s);
    assert_int_equal(store_open_reader(dir->db, &reader, &err), 0);
    put(s, "a", "2");
    assert_true(has(reader, "a", "1")); /* not committed yet */
    assert_int_equal(store_read_begin(reader, &err), 0);
    assert_true(has(reader, "a", "1"));
    commit(s);
    assert_true(has(reader, "a", "1"));
    store_read_end(reader);
    assert_true(has(reader, "a", "2"));
    assert_int_equal(meta_put(reader, "a", STR("3"), &err), -1);
    assert_int_equal(err.code, ERR_FAILED_PRECONDITION);
    store_close(reader);
    store_close(s);
}

static off_t wal_size(const struct test_dir *dir)
{
    char wal[128];
    struct stat st = {0};
    (void)snprintf(wal, sizeof(wal), "%s-wal", dir->db);
    (void)stat(wal, &st);
    return st.st_size;
}

static void test_checkpoints(void **state)
{
    struct test_dir *dir = *state;
    struct store *s = open_ok(dir);
    struct err err;
    char value[3000] = {0};
    memset(value, 'v', sizeof(value) - 1);
    for (int i = 0; i < 1200; i++) { /* SQLite by itself would have folded the log at 1,000 pages */
        value[0] = (char)('a' + i % 2);
        put(s, "big", value);
        commit(s);
    }
    assert_true(store_wal_pages(s) > 1000);
    off_t size = wal_size(dir);
    put(s, "big", "x");
    commit(s);
    assert_int_equal(store_checkpoint(dir->db, &err), 0);
    put(s, "big", "y");
    commit(s);
    assert_true(store_wal_pages(s) < 10); /* begun anew */
    assert_true(wal_size(dir) <= size + 65536);
    assert_true(has(s, "big", "y"));
    store_close(s);
}

/* Fills the disk, which must be so small that this ends soon, and makes room again. Returns a line number or 0. */
static int fill_and_recover(const struct test_dir *dir, bool (*make_room)(const struct test_dir *dir))
{
    struct store *s = NULL;
    struct err err = {0};
    char value[4000] = {0}, key[16];
    memset(value, 'v', sizeof(value) - 1);
    if (store_open(dir->db, &s, &err) < 0)
        return __LINE__;
    int committed = 0;
    for (bool full = false; !full; committed += !full) {
        if (committed > 4000)
            return __LINE__; /* never full */
        (void)snprintf(key, sizeof(key), "%d-a", committed);
        full = meta_put(s, key, str_of(value), &err) < 0;
        (void)snprintf(key, sizeof(key), "%d-b", committed);
        if (!full)
            full = meta_put(s, key, str_of(value), &err) < 0;
        if (!full)
            full = store_commit(s, &err) < 0;
    }
    if (err.code != ERR_RESOURCE_EXHAUSTED || committed == 0)
        return __LINE__;
    if (store_pending(s) && store_commit(s, &err) == 0)
        return __LINE__; /* a batch whose write failed can't be committed */
    if (!make_room(dir))
        return __LINE__;
    /* Usable again, and batches are there as a whole or not at all. */
    if (meta_put(s, "after", STR("1"), &err) < 0 || store_commit(s, &err) < 0)
        return __LINE__;
    for (int i = 0; i <= committed; i++) {
        AUTO_BUF struct buf b = BUF_INIT(16384);
        (void)snprintf(key, sizeof(key), "%d-a", i);
        int a = meta_get(s, key, &b, &err);
        (void)snprintf(key, sizeof(key), "%d-b", i);
        if (a != (i < committed) || meta_get(s, key, &b, &err) != a)
            return __LINE__;
    }
    store_close(s);
    if (store_open(dir->db, &s, &err) < 0)
        return __LINE__;
    AUTO_BUF struct buf b = BUF_INIT(16);
    if (meta_get(s, "after", &b, &err) != 1)
        return __LINE__;
    store_close(s);
    return 0;
}

static bool lift_limit(const struct test_dir *dir)
{
    struct rlimit limit;
    (void)dir;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
           (limit.rlim_cur = limit.rlim_max, setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

static int child_file_limit(const struct test_dir *dir)
{
    struct rlimit limit;
    (void)signal(SIGXFSZ, SIG_IGN);
    if (getrlimit(RLIMIT_FSIZE, &limit) < 0)
        return __LINE__;
    limit.rlim_cur = 1 << 20;
    if (setrlimit(RLIMIT_FSIZE, &limit) < 0)
        return __LINE__;
    return fill_and_recover(dir, lift_limit);
}

static void test_file_too_large(void **state)
{
    assert_true(test_in_child(child_file_limit, *state));
}

static bool remove_ballast(const struct test_dir *dir)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/ballast", dir->path);
    return unlink(path) == 0;
}

static int child_disk_full(const struct test_dir *dir)
{
    if (!test_dir_shrink(dir, "2m"))
        return TEST_DIR_SKIP;
    char path[128], block[65536];
    memset(block, 'b', sizeof(block));
    (void)snprintf(path, sizeof(path), "%s/ballast", dir->path);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    for (int i = 0; i < 8; i++)
        if (fd < 0 || write(fd, block, sizeof(block)) != sizeof(block))
            return __LINE__;
    (void)close(fd);
    return fill_and_recover(dir, remove_ballast);
}

static void test_disk_full(void **state)
{
    if (!test_in_child(child_disk_full, *state))
        skip(); /* no mount namespaces for us here */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, test_dir_setup, test_dir_teardown)
        TEST(test_create_and_open_again),
        TEST(test_meta),
        TEST(test_one_writer),
        TEST(test_refuses_a_newer_format),
        TEST(test_brings_an_older_format_up_to_date),
        TEST(test_refuses_what_is_no_store),
        TEST(test_damaged_page),
        TEST(test_migrates_step_by_step),
        TEST(test_batches_and_hooks),
        TEST(test_reader_sees_snapshots),
        TEST(test_checkpoints),
        TEST(test_file_too_large),
        TEST(test_disk_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
