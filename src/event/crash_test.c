/* SPDX-License-Identifier: Apache-2.0 */
/* The log and the store together under what happens to machines: killed writers, torn files, full disks. */
#include "base/fd.h"
#include "base/mem.h"
#include "event/test_log.h"
#include "event/verify.h"
#include "store/store.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int append(struct event_log *log, const char *sandbox, struct err *err)
{
    struct event_draft draft = {.sandbox = sandbox,
                                .kind = EVENT_EXEC_OUTPUT,
                                .source = EVENT_AGENT,
                                .grade = EVENT_CLAIMED,
                                .data = STR("{\"text\":\"x\"}")};
    return event_append(log, &draft, NULL, err);
}

/* One batch: three events of one sandbox, one of another, and the number of the batch. */
static int write_batch(struct store *store, struct event_log *log, uint64_t batch, struct err *err)
{
    char number[32];
    (void)snprintf(number, sizeof(number), "%llu", (unsigned long long)batch);
    for (int i = 0; i < 3; i++)
        if (append(log, "i1", err) < 0)
            return -1;
    if (meta_put(store, "batch", str_of(number), err) < 0 || append(log, "i2", err) < 0)
        return -1;
    return store_commit(store, err);
}

static uint64_t stored_batch(struct store *store)
{
    struct err err;
    uint64_t batch = 0;
    AUTO_BUF struct buf b = BUF_INIT(32);
    int r = meta_get(store, "batch", &b, &err);
    assert_true(r >= 0);
    if (r == 1)
        assert_int_equal(str_to_u64(buf_str(&b), &batch), 0);
    return batch;
}

static uint64_t last_seq(struct event_log *log, const char *sandbox)
{
    struct event_bounds bounds;
    struct err err;
    if (event_bounds_get(log, sandbox, &bounds, &err) < 0) {
        assert_int_equal(err.code, ERR_NOT_FOUND);
        return 0;
    }
    return bounds.last;
}

/* Every batch is there as a whole or not at all, and the chains are good. */
static uint64_t check(struct test_log *t)
{
    uint64_t batch = stored_batch(t->store);
    assert_int_equal(last_seq(t->log, "i1"), 3 * batch);
    assert_int_equal(last_seq(t->log, "i2"), batch);
    if (batch) {
        test_intact(t, "i1", 3 * batch);
        test_intact(t, "i2", batch);
    }
    return batch;
}

struct shared {
    _Atomic uint64_t committed;
    _Atomic bool broken;
};

NORETURN static void writer(const struct test_dir *dir, struct shared *shared)
{
    struct store *store;
    struct event_log *log;
    struct err err;
    if (store_open(dir->db, &store, &err) == 0 && event_log_open(store, &log, &err) == 0) {
        for (uint64_t batch = shared->committed + 1; write_batch(store, log, batch, &err) == 0; batch++) {
            shared->committed = batch;
            if (batch % 64 == 0 && store_checkpoint(dir->db, &err) < 0)
                break;
        }
    }
    shared->broken = true;
    _exit(0);
}

static void test_killed_writer(void **state)
{
    struct test_dir *dir = *state;
    struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    srand(11);
    for (int round = 0; round < 30; round++) {
        uint64_t before = shared->committed;
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            writer(dir, shared);
        /* Some rounds are killed while they open the file, the others in the middle of writing. */
        for (int i = 0; i < 5000 && round % 4 && shared->committed == before && !shared->broken; i++)
            (void)usleep(1000);
        (void)usleep((useconds_t)(rand() % 15000));
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_false(shared->broken);
        if (round % 4)
            assert_true(shared->committed > before);

        struct test_log t = test_log_open(state);
        uint64_t batch = check(&t);
        assert_true(batch >= shared->committed); /* nothing that was committed is lost */
        assert_true(batch <= shared->committed + 1);
        shared->committed = batch;
        test_log_close(&t);
    }
    assert_true(shared->committed > 30);
    assert_int_equal(munmap(shared, sizeof(*shared)), 0);
}

static void copy_file(const char *from, const char *to, size_t max)
{
    AUTO_BUF struct buf b = BUF_INIT(64 << 20);
    assert_int_equal(fd_read_file(AT_FDCWD, from, &b), 0);
    assert_int_equal(fd_write_file(AT_FDCWD, to, str_n(buf_data(&b), MIN(buf_len(&b), max)), 0600), 0);
}

/* A power cut leaves any prefix of the write-ahead log: what opens is a prefix of the batches, each of them whole. */
static void test_torn_log(void **state)
{
    struct test_log t = test_log_open(state);
    struct err err;
    char wal[128], copy[96], copy_wal[128];
    (void)snprintf(wal, sizeof(wal), "%s-wal", t.dir->db);
    (void)snprintf(copy, sizeof(copy), "%s/torn.db", t.dir->path);
    (void)snprintf(copy_wal, sizeof(copy_wal), "%s-wal", copy);
    assert_int_equal(store_checkpoint(t.dir->db, &err), 0);
    for (uint64_t batch = 1; batch <= 40; batch++)
        assert_int_equal(write_batch(t.store, t.log, batch, &err), 0);
    struct stat st;
    assert_int_equal(stat(wal, &st), 0);
    uint64_t most = 0, least = UINT64_MAX;
    for (int i = 0; i <= 40; i++) {
        size_t size = (size_t)st.st_size * (size_t)i / 40;
        struct test_dir torn = *t.dir;
        void *torn_state = &torn;
        (void)snprintf(torn.db, sizeof(torn.db), "%s", copy);
        copy_file(t.dir->db, copy, SIZE_MAX);
        copy_file(wal, copy_wal, size);
        struct test_log u = test_log_open(&torn_state);
        uint64_t batch = check(&u);
        assert_true(i == 0 || batch >= most);
        most = MAX(most, batch);
        least = MIN(least, batch);
        assert_int_equal(write_batch(u.store, u.log, batch + 1, &err), 0); /* and it goes on */
        assert_int_equal(check(&u), batch + 1);
        test_log_close(&u);
    }
    assert_int_equal(most, 40);
    assert_int_equal(least, 0);
    test_log_close(&t);
}

static bool shrunk;

/* Until the disk is full, then a while on a full disk, then with room again. */
static int child_full_disk(const struct test_dir *dir)
{
    struct store *store;
    struct event_log *log;
    struct err err = {0};
    struct rlimit limit;
    char ballast[128], block[262144];
    (void)signal(SIGXFSZ, SIG_IGN);
    (void)snprintf(ballast, sizeof(ballast), "%s/ballast", dir->path);
    memset(block, 'b', sizeof(block));
    if (shrunk &&
        (!test_dir_shrink(dir, "2m") || fd_write_file(AT_FDCWD, ballast, str_n(block, sizeof(block)), 0600) < 0))
        return TEST_DIR_SKIP;
    if (getrlimit(RLIMIT_FSIZE, &limit) < 0)
        return __LINE__;
    limit.rlim_cur = 1 << 20;
    if (!shrunk && setrlimit(RLIMIT_FSIZE, &limit) < 0)
        return __LINE__;
    if (store_open(dir->db, &store, &err) < 0 || event_log_open(store, &log, &err) < 0)
        return __LINE__;
    uint64_t batch = 0;
    int failures = 0;
    for (int i = 0; i < 20000 && failures < 20; i++) {
        if (write_batch(store, log, batch + 1, &err) == 0) {
            batch++;
            continue;
        }
        failures++;
        if (err.code != ERR_RESOURCE_EXHAUSTED)
            return __LINE__;
        if (store_pending(store) && store_commit(store, &err) == 0)
            return __LINE__;
    }
    if (failures < 20 || batch == 0)
        return __LINE__;
    limit.rlim_cur = limit.rlim_max;
    if (shrunk ? unlink(ballast) < 0 : setrlimit(RLIMIT_FSIZE, &limit) < 0)
        return __LINE__;
    for (int i = 0; i < 10; i++)
        if (write_batch(store, log, ++batch, &err) < 0)
            return __LINE__;
    struct event_verdict v;
    if (event_verify(log, "i1", &v, &err) < 0 || v.fault != EVENT_INTACT || v.last != 3 * batch)
        return __LINE__;
    if (event_verify(log, "i2", &v, &err) < 0 || v.fault != EVENT_INTACT || v.last != batch)
        return __LINE__;
    event_log_close(log);
    store_close(store);
    return 0;
}

static void test_file_too_large(void **state)
{
    shrunk = false;
    assert_true(test_in_child(child_full_disk, *state));
}

static void test_disk_full(void **state)
{
    shrunk = true;
    if (!test_in_child(child_full_disk, *state))
        skip(); /* no mount namespaces for us here */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, test_dir_setup, test_dir_teardown)
        TEST(test_killed_writer),
        TEST(test_torn_log),
        TEST(test_file_too_large),
        TEST(test_disk_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
