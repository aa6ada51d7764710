/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each operation of the pool, ended at each of its steps: by the death of the process, or by a full disk. What is found
 * afterwards is what was there before or what should come, whole, and nothing besides.
 */
#include "base/fd.h"
#include "base/mem.h"
#include "kernel/pool/pool_internal.h"
#include "kernel/pool/test_disk.h"
#include "kernel/pool/test_pool.h"

#include <fcntl.h>
#include <linux/btrfs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { DIED = 7, STEPS_MAX = 32 };

static const char *where = "/tmp";
static enum pool_kind kind = POOL_COPY;

static const struct pool_file files[] = {{"etc/hosts", "127.0.0.1 localhost\n"}};
static const struct pool_chain none, base = {1, {TEST_BASE}};

static void make_box(struct test_pool *t, const char *name, const char *text)
{
    AUTO_CLOSE int fd = -1;
    assert_int_equal(pool_box_make(t->pool, &(struct pool_box){.name = name, .chain = &base}, &fd), 0);
    AUTO_CLOSE int u = test_pool_upper(t, name);
    assert_int_equal(fd_write_file(u, "state", str_of(text), 0644), 0);
}

/* ---- the operations: what is there before, what is done, what may be found ---- */

static void begin_layer(struct test_pool *t)
{
    AUTO_CLOSE int fd = -1;
    assert_int_equal(pool_layer_begin(t->pool, "job", &fd), 0);
    assert_int_equal(fd_write_file(fd, "state", STR("new"), 0644), 0);
}

static int commit_layer(struct test_pool *t)
{
    return pool_layer_commit(t->pool, "job", TEST_SECOND, &base);
}

/* Whole, or not there; what it was made of is not touched. */
static bool layer_is_whole(const struct test_pool *t, bool *ret_done)
{
    struct pool_chain chain;
    *ret_done = test_pool_has(t, "layers/" TEST_SECOND);
    return !*ret_done || (test_pool_reads(t, "layers/" TEST_SECOND "/u/state", "new") &&
                          !test_pool_has(t, "layers/" TEST_SECOND "/w") &&
                          pool_chain_read(t->pool, TEST_SECOND, &chain) == 0 && chain.n == 2);
}

static void begin_box(struct test_pool *t)
{
    make_box(t, "a", "new");
}

static int layer_of_box(struct test_pool *t)
{
    return pool_layer_of_box(t->pool, "a", TEST_SECOND, &base);
}

static int make_new_box(struct test_pool *t)
{
    AUTO_CLOSE int fd = -1;
    const struct pool_box box = {.name = "b", .chain = &base, .files = files, .n_files = 1};
    return pool_box_make(t->pool, &box, &fd);
}

static int make_box_of_layer(struct test_pool *t)
{
    AUTO_CLOSE int fd = -1;
    const struct pool_box box = {.name = "b", .chain = &base, .from_layer = true, .files = files, .n_files = 1};
    return pool_box_make(t->pool, &box, &fd);
}

/* A box is nobody's after a start, but the layer is what it was. */
static bool base_is_whole(const struct test_pool *t, bool *ret_done)
{
    *ret_done = test_pool_has(t, "boxes/*/b/u/etc/hosts");
    return test_pool_reads(t, "layers/" TEST_BASE "/u/of", "base") && !test_pool_has(t, "layers/" TEST_BASE "/u/etc");
}

static int keep(struct test_pool *t)
{
    return pool_keep(t->pool, "a", "i1", &base);
}

static bool kept_is_whole(const struct test_pool *t, bool *ret_done)
{
    struct pool_chain below;
    *ret_done = test_pool_has(t, "kept/i1");
    return !*ret_done || (test_pool_reads(t, "kept/i1/u/state", "new") && pool_kept_chain(t->pool, "i1", &below) == 0 &&
                          below.n == 1);
}

static void begin_kept(struct test_pool *t)
{
    make_box(t, "old", "old");
    assert_int_equal(pool_keep(t->pool, "old", "i1", &base), 0);
    make_box(t, "a", "new");
}

static int keep_copy(struct test_pool *t)
{
    return pool_keep_copy(t->pool, "a", "i1", &base);
}

/* One of the two is there at any time. */
static bool one_is_kept(const struct test_pool *t, bool *ret_done)
{
    struct pool_chain below;
    *ret_done = test_pool_reads(t, "kept/i1/u/state", "new");
    return (*ret_done || test_pool_reads(t, "kept/i1/u/state", "old")) && pool_kept_chain(t->pool, "i1", &below) == 0;
}

static int make_box_of_kept(struct test_pool *t)
{
    AUTO_CLOSE int fd = -1;
    const struct pool_box box = {.name = "b", .chain = &base, .from_kept = "i1", .files = files, .n_files = 1};
    return pool_box_make(t->pool, &box, &fd);
}

/* Still kept, or the box's. */
static bool kept_or_used(const struct test_pool *t, bool *ret_done)
{
    *ret_done = !test_pool_has(t, "kept/i1");
    return *ret_done || test_pool_reads(t, "kept/i1/u/state", "old");
}

static int make_volume(struct test_pool *t)
{
    return pool_volume_make(t->pool, "vol-1", 1 << 20, 0);
}

static bool volume_is_whole(const struct test_pool *t, bool *ret_done)
{
    *ret_done = test_pool_has(t, "volumes/vol-1");
    return !*ret_done ||
           (test_pool_has(t, "volumes/vol-1/u") && test_pool_reads(t, "volumes/vol-1/limit", "1048576\n"));
}

static void begin_nothing(struct test_pool *t UNUSED)
{
}

struct operation {
    void (*begin)(struct test_pool *t);
    int (*run)(struct test_pool *t);
    bool (*is_whole)(const struct test_pool *t, bool *ret_done);
};

/* ---- what happens to them ---- */

struct trouble {
    int at, seen; /* the step that it comes at */
    int error;    /* 0: death */
};

static int on_step(void *ctx, const char *step UNUSED)
{
    struct trouble *t = ctx;
    if (t->seen++ != t->at)
        return 0;
    if (t->error == 0)
        _exit(DIED);
    return t->error;
}

static void open_pool(struct test_pool *t)
{
    AUTO_CLOSE int fd = -1;
    assert_true(test_pool_open(t, where, kind));
    assert_int_equal(pool_layer_begin(t->pool, "base", &fd), 0);
    assert_int_equal(fd_write_file(fd, "of", STR("base"), 0644), 0);
    assert_int_equal(pool_layer_commit(t->pool, "base", TEST_BASE, &none), 0);
}

/* Runs the operation in a process that dies at this step; false: it had no such step. */
static bool dies_at(const struct operation *o, int step)
{
    struct test_pool t;
    bool done = false;
    int status = 0;
    open_pool(&t);
    o->begin(&t);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct trouble death = {step, 0, 0};
        t.pool->on_step = on_step;
        t.pool->step_ctx = &death;
        _exit(o->run(&t) < 0 ? 1 : 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_true(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == DIED);

    /* The next start. */
    pool_close(t.pool);
    assert_int_equal(pool_open_as(t.top, kind, &t.pool), 0);
    assert_true(o->is_whole(&t, &done));
    assert_true(WEXITSTATUS(status) == DIED || done);
    assert_int_equal(pool_reset(t.pool, NULL, NULL), 0);
    assert_true(pool_sweep(t.pool) >= 0);
    assert_true(o->is_whole(&t, &done));
    assert_false(test_pool_has(&t, "new/*"));
    assert_false(test_pool_has(&t, "trash/*"));
    assert_false(test_pool_has(&t, "boxes/*/*"));
    assert_int_equal(test_pool_close(&t), 0);
    return WEXITSTATUS(status) == DIED;
}

/* The operation fails at this step; it can be done once more. False: it had no such step. */
static bool is_full_at(const struct operation *o, int step)
{
    struct test_pool t;
    struct trouble full = {step, 0, -ENOSPC};
    bool done = false;
    open_pool(&t);
    o->begin(&t);
    t.pool->on_step = on_step;
    t.pool->step_ctx = &full;
    int r = o->run(&t);
    t.pool->on_step = NULL;
    bool failed = full.seen > full.at;
    assert_int_equal(r, failed ? -ENOSPC : 0);
    assert_true(o->is_whole(&t, &done));
    assert_int_equal(done, !failed);
    if (o->run != commit_layer || !failed) /* that one's layer in the making is its caller's */
        assert_false(test_pool_has(&t, "new/*"));
    if (failed) {
        assert_int_equal(o->run(&t), 0);
        assert_true(o->is_whole(&t, &done));
        assert_true(done);
        assert_false(test_pool_has(&t, "new/*"));
    }
    assert_int_equal(test_pool_close(&t), 0);
    return failed;
}

static void try_all(const struct operation *o)
{
    int deaths = 0, failures = 0;
    while (deaths < STEPS_MAX && dies_at(o, deaths))
        deaths++;
    while (failures < STEPS_MAX && is_full_at(o, failures))
        failures++;
    assert_in_range(deaths, 2, STEPS_MAX - 1); /* there are steps at all */
    assert_int_equal(deaths, failures);
}

#define OPERATION(name, ...)                                                                                           \
    static void name(void **state)                                                                                     \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        try_all(&(const struct operation){__VA_ARGS__});                                                               \
    }

OPERATION(test_commit, begin_layer, commit_layer, layer_is_whole)
OPERATION(test_layer_of_box, begin_box, layer_of_box, layer_is_whole)
OPERATION(test_new_box, begin_nothing, make_new_box, base_is_whole)
OPERATION(test_box_of_layer, begin_nothing, make_box_of_layer, base_is_whole)
OPERATION(test_keep, begin_box, keep, kept_is_whole)
OPERATION(test_keep_in_place_of_another, begin_kept, keep, one_is_kept)
OPERATION(test_box_of_kept, begin_kept, make_box_of_kept, kept_or_used)
OPERATION(test_volume, begin_nothing, make_volume, volume_is_whole)

static void test_keep_copy(void **state)
{
    (void)state;
    if (kind == POOL_BTRFS)
        try_all(&(const struct operation){begin_kept, keep_copy, one_is_kept});
}

/* Nothing can be written any more, really. */
static void test_full_disk(void **state)
{
    (void)state;
    static char block[1 << 16];
    struct test_pool t;
    AUTO_CLOSE int fd = -1;
    bool done = false;
    if (kind == POOL_COPY)
        skip(); /* it lies on the machine's own disk */
    open_pool(&t);
    make_box(&t, "a", "new");
    AUTO_CLOSE int u = test_pool_upper(&t, "a");
    int big = openat(u, "big", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    while (write(big, block, sizeof(block)) > 0)
        ;
    assert_int_equal(errno, ENOSPC);
    (void)fd_close(big);
    int small = openat(u, "small", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    while (small >= 0 && write(small, block, 512) > 0)
        ;
    (void)fd_close(small);

    int r = pool_layer_of_box(t.pool, "a", TEST_SECOND, &base);
    assert_true(r == 0 || r == -ENOSPC);
    assert_true(layer_is_whole(&t, &done));
    assert_int_equal(done, r == 0);
    bool cloned = done;
    r = pool_volume_make(t.pool, "vol-1", 1 << 20, 0);
    assert_true(r == 0 || r == -ENOSPC);
    assert_true(volume_is_whole(&t, &done));
    assert_int_equal(done, r == 0);
    r = pool_box_make(t.pool, &(struct pool_box){.name = "b", .files = files, .n_files = 1}, &fd);
    assert_true(r == 0 || r == -ENOSPC);

    /* Room comes back, once nobody has anything of it open. */
    (void)fd_close(TAKE_FD(u));
    (void)fd_close(TAKE_FD(fd));
    assert_int_equal(pool_box_drop(t.pool, "a"), 0);
    if (cloned)
        assert_int_equal(pool_layer_drop(t.pool, TEST_SECOND), 0);
    if (done)
        assert_int_equal(pool_volume_drop(t.pool, "vol-1"), 0);
    assert_true(pool_sweep(t.pool) >= 0);
    int room = -ENOSPC;
    for (int i = 0; i < 300 && room < 0; i++) {             /* btrfs deletes in the background */
        (void)ioctl(pool_fd(t.pool), BTRFS_IOC_SYNC, NULL); /* wakes who does */
        room = fd_write_file(pool_fd(t.pool), "room", str_of("x"), 0600);
        if (room < 0)
            (void)usleep(100000);
    }
    assert_int_equal(room, 0);
    assert_int_equal(test_pool_close(&t), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commit),      cmocka_unit_test(test_layer_of_box),
        cmocka_unit_test(test_new_box),     cmocka_unit_test(test_box_of_layer),
        cmocka_unit_test(test_keep),        cmocka_unit_test(test_keep_in_place_of_another),
        cmocka_unit_test(test_box_of_kept), cmocka_unit_test(test_volume),
        cmocka_unit_test(test_keep_copy),   cmocka_unit_test(test_full_disk),
    };
    const struct CMUnitTest absent[] = {cmocka_unit_test(test_disk_absent)};
    static const struct {
        enum pool_kind kind;
        const char *disk, *name;
    } disks[] = {{POOL_BTRFS, "btrfs", "btrfs"},
                 {POOL_REFLINK, "xfs", "reflink"},
                 {POOL_REFLINK, "xfs with quotas", "reflink with quotas"}};
    int failed = cmocka_run_group_tests_name("copy", tests, NULL, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(disks); i++) {
        struct test_disk disk;
        kind = disks[i].kind;
        if (!test_disk_open(&disk, disks[i].disk)) {
            failed += cmocka_run_group_tests_name(disks[i].name, absent, NULL, NULL);
            continue;
        }
        where = disk.dir;
        failed += cmocka_run_group_tests_name(disks[i].name, tests, NULL, NULL);
        test_disk_close(&disk);
    }
    return failed;
}
