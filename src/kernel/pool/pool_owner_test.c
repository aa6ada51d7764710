/* SPDX-License-Identifier: Apache-2.0 */
/* What an owner has, by each way in which bytes outlive whoever wrote them. */
#include "base/fd.h"
#include "kernel/pool/btrfs.h"
#include "kernel/pool/pool_internal.h"
#include "kernel/pool/test_disk.h"
#include "kernel/pool/test_pool.h"

#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>

#define LAYER TEST_BASE

enum { MIB = 1 << 20, OWNER = 7, OTHER = 8, WRITTEN = 20 * MIB, MOST = 30 * MIB, SLACK = 2 * MIB, AWAIT_MS = 60000 };

static const struct pool_chain none = {.n = 0};

/* 0, or why it ends before. */
static int fill(int at, const char *name, size_t n)
{
    static char block[MIB];
    AUTO_CLOSE int fd = openat(at, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    for (size_t done = 0; fd >= 0 && done < n; done += MIB) {
        memset(block, (int)(done / MIB) + 1, sizeof(block));
        if (write(fd, block, sizeof(block)) < 0)
            return errno;
    }
    return fd < 0 || fsync(fd) < 0 ? errno : 0;
}

static uint64_t usage(struct test_pool *p, uint64_t owner)
{
    uint64_t bytes = 0;
    assert_int_equal(syncfs(pool_fd(p->pool)), 0);
    assert_int_equal(pool_owner_usage(p->pool, owner, &bytes), 0);
    return bytes;
}

/* Until the kernel has dropped what is deleted, so much is left of the owner's. */
static void swept(struct test_pool *p, uint64_t most)
{
    assert_true(pool_sweep(p->pool) >= 0);
    assert_false(test_pool_has(p, "trash/*") || test_pool_has(p, "dying/*"));
    for (int ms = 0; usage(p, OWNER) > most + SLACK; ms += 100) {
        assert_true(ms < AWAIT_MS);
        (void)usleep(100000);
    }
}

/* The kernel has dropped all that was deleted: a box of nobody's, deleted last, is gone, too. */
static void all_dropped(struct test_pool *p)
{
    AUTO_CLOSE int fd = -1;
    assert_int_equal(pool_volume_make(p->pool, "marker", 0, OTHER), 0);
    assert_int_equal(pool_volume_open(p->pool, "marker", &fd), 0);
    assert_int_equal(fill(fd, "f", 4 * MIB), 0);
    fd = fd_close(fd);
    assert_true(usage(p, OTHER) >= 4 * MIB);
    assert_int_equal(pool_volume_drop(p->pool, "marker"), 0);
    assert_true(pool_sweep(p->pool) >= 0);
    for (int ms = 0; usage(p, OTHER); ms += 100) {
        assert_true(ms < AWAIT_MS);
        (void)usleep(100000);
    }
}

static int volume(struct test_pool *p, const char *name)
{
    int fd = -1;
    assert_int_equal(pool_volume_make(p->pool, name, 0, OWNER), 0);
    assert_int_equal(pool_volume_open(p->pool, name, &fd), 0);
    return fd;
}

static int box(struct test_pool *p, const struct pool_box *spec)
{
    AUTO_CLOSE int fd = -1;
    assert_int_equal(pool_box_make(p->pool, spec, &fd), 0);
    assert_int_equal(pool_own(p->pool, POOL_BOX, spec->name, OWNER), 0);
    assert_int_equal(pool_own(p->pool, POOL_BOX, spec->name, OWNER), 0);
    return test_pool_upper(p, spec->name);
}

/* No way leads to more: whatever there is of it besides, it has reached its limit. */
static void is_at_its_limit(struct test_pool *p)
{
    assert_true(usage(p, OWNER) >= WRITTEN && usage(p, OWNER) <= MOST);
    AUTO_CLOSE int fd = volume(p, "more");
    assert_int_equal(fill(fd, "f", WRITTEN), EDQUOT);
    fd = fd_close(fd);
    assert_int_equal(pool_volume_drop(p->pool, "more"), 0);
}

/* Volume "one", which is dropped, leaves its file to "two": a descriptor of that. */
static int clone_alone(struct test_pool *p, int one, int two)
{
    AUTO_CLOSE int from = openat(one, "f", O_RDONLY | O_CLOEXEC);
    int to = openat(two, "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_int_equal(ioctl(to, FICLONE, from), 0);
    from = fd_close(from);
    (void)fd_close(one);
    assert_int_equal(pool_volume_drop(p->pool, "one"), 0);
    assert_true(pool_sweep(p->pool) >= 0);
    all_dropped(p);
    return to;
}

static void test_a_clone_in_another_volume(void **state)
{
    struct test_pool *p = *state;
    AUTO_CLOSE int one = volume(p, "one");
    AUTO_CLOSE int two = volume(p, "two");
    assert_int_equal(fill(one, "f", WRITTEN), 0);
    AUTO_CLOSE int to = clone_alone(p, TAKE_FD(one), two);
    is_at_its_limit(p);
    assert_int_equal(unlinkat(two, "f", 0), 0);
    to = fd_close(to);
    swept(p, 0);
}

static void test_a_layer_of_a_box(void **state)
{
    struct test_pool *p = *state;
    struct pool_chain chain;
    AUTO_CLOSE int u = box(p, &(struct pool_box){.name = "a", .chain = &none});
    assert_int_equal(fill(u, "f", WRITTEN), 0);
    u = fd_close(u);
    assert_int_equal(pool_layer_of_box(p->pool, "a", LAYER, &none), 0);
    assert_int_equal(pool_box_drop(p->pool, "a"), 0);
    assert_true(pool_sweep(p->pool) >= 0);
    all_dropped(p);
    is_at_its_limit(p);

    /* A box that begins as a copy of it has the bytes, too, when the layer is gone. */
    assert_int_equal(pool_chain_read(p->pool, LAYER, &chain), 0);
    u = box(p, &(struct pool_box){.name = "b", .from_layer = true, .chain = &chain});
    assert_int_equal(pool_layer_drop(p->pool, LAYER), 0);
    assert_true(pool_sweep(p->pool) >= 0);
    all_dropped(p);
    is_at_its_limit(p);
    u = fd_close(u);
    assert_int_equal(pool_box_drop(p->pool, "b"), 0);
    swept(p, 0);
}

static void test_kept_files(void **state)
{
    struct test_pool *p = *state;
    AUTO_CLOSE int u = box(p, &(struct pool_box){.name = "a", .chain = &none});
    assert_int_equal(fill(u, "f", WRITTEN), 0);
    u = fd_close(u);
    assert_int_equal(pool_keep_copy(p->pool, "a", "copy", &none), 0);
    assert_int_equal(pool_keep(p->pool, "a", "kept", &none), 0);
    assert_int_equal(pool_own(p->pool, POOL_KEPT, "kept", OWNER), 0);
    is_at_its_limit(p);
    assert_int_equal(pool_kept_drop(p->pool, "kept"), 0);
    assert_true(pool_sweep(p->pool) >= 0);
    all_dropped(p);
    is_at_its_limit(p);
    assert_int_equal(pool_kept_drop(p->pool, "copy"), 0);
    swept(p, 0);
}

static void test_a_layer_in_the_making(void **state)
{
    struct test_pool *p = *state;
    AUTO_CLOSE int fd = -1;
    assert_int_equal(pool_layer_begin(p->pool, "image-1", &fd), 0);
    assert_int_equal(pool_own(p->pool, POOL_JOB, "image-1", OWNER), 0);
    assert_int_equal(fill(fd, "f", WRITTEN), 0);
    fd = fd_close(fd);
    assert_int_equal(pool_layer_commit(p->pool, "image-1", LAYER, &none), 0);
    is_at_its_limit(p);
    assert_int_equal(pool_layer_drop(p->pool, LAYER), 0);
    swept(p, 0);
}

/* It comes with what it has; what nobody owns counts for nobody. */
static void test_who_is_owned_later(void **state)
{
    struct test_pool *p = *state;
    AUTO_CLOSE int fd = -1;
    assert_int_equal(pool_volume_make(p->pool, "late", 0, 0), 0);
    assert_int_equal(pool_volume_open(p->pool, "late", &fd), 0);
    assert_int_equal(fill(fd, "f", WRITTEN), 0);
    assert_int_equal(usage(p, OWNER), 0);
    assert_int_equal(pool_own(p->pool, POOL_VOLUME, "late", OWNER), 0);
    is_at_its_limit(p);
    assert_int_equal(pool_owner_limit(p->pool, OWNER, 0), 0);
    assert_int_equal(fill(fd, "g", WRITTEN), 0);
    assert_int_equal(pool_own(p->pool, POOL_VOLUME, "none", OWNER), -ENOENT);
    assert_int_equal(pool_own(p->pool, POOL_VOLUME, "../late", OWNER), -EINVAL);
    assert_int_equal(pool_own(p->pool, POOL_VOLUME, "late", OWNER + 9), -EINVAL); /* nobody told of it */
    assert_int_equal(pool_own(p->pool, POOL_VOLUME, "late", 1 << 24), -ERANGE);
}

static bool is_counted(const struct test_pool *p, uint64_t id)
{
    char path[48];
    (void)snprintf(path, sizeof(path), "qgroups/0_%llu", (unsigned long long)id);
    return faccessat(p->pool->figures_fd, path, F_OK, 0) == 0;
}

static void test_what_is_gone_is_forgotten(void **state)
{
    struct test_pool *p = *state;
    if (p->pool->figures_fd < 0)
        skip();
    AUTO_CLOSE int one = volume(p, "one");
    AUTO_CLOSE int two = volume(p, "two");
    struct btrfs_ioctl_ino_lookup_args of = {.objectid = BTRFS_FIRST_FREE_OBJECTID};
    AUTO_CLOSE int inside = openat(one, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(ioctl(inside, BTRFS_IOC_INO_LOOKUP, &of), 0);
    inside = fd_close(inside);
    assert_int_equal(fill(one, "f", MIB), 0);
    AUTO_CLOSE int to = clone_alone(p, TAKE_FD(one), two);
    p->pool->is_backed = true;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pool_owners_tidy(p->pool), 0);
    assert_true(is_counted(p, of.treeid));
    assert_int_equal(ftruncate(to, 0), 0);
    swept(p, 0);
    assert_int_equal(pool_owners_tidy(p->pool), 0);
    p->pool->is_backed = false;
    assert_false(is_counted(p, of.treeid));
}

static int open_owned(void **state)
{
    int r = test_pool_set_up(state);
    struct test_pool *p = *state;
    r = r ? r : pool_owner_limit(p->pool, OWNER, MOST);
    return r ? r : pool_owner_limit(p->pool, OTHER, 0);
}

static void test_elsewhere_nothing_happens(void **state)
{
    struct test_pool *p = *state;
    uint64_t bytes = 0;
    assert_false(pool_features(p->pool)->owners);
    assert_int_equal(pool_volume_make(p->pool, "vol", 0, OWNER), 0);
    assert_int_equal(pool_own(p->pool, POOL_VOLUME, "vol", OWNER), 0);
    assert_int_equal(pool_owner_limit(p->pool, OWNER, MIB), 0);
    assert_int_equal(pool_owner_usage(p->pool, OWNER, &bytes), -EOPNOTSUPP);
    assert_int_equal(pool_owners_tidy(p->pool), 0);
}

#define OWNED(test) cmocka_unit_test_setup_teardown(test, open_owned, test_pool_tear_down)

static int run(const char *name, int limit)
{
    const struct CMUnitTest owned[] = {
        OWNED(test_a_clone_in_another_volume), OWNED(test_a_layer_of_a_box),   OWNED(test_kept_files),
        OWNED(test_a_layer_in_the_making),     OWNED(test_who_is_owned_later), OWNED(test_what_is_gone_is_forgotten),
    };
    const struct CMUnitTest elsewhere[] = {
        cmocka_unit_test_setup_teardown(test_elsewhere_nothing_happens, test_pool_set_up, test_pool_tear_down)};
    return limit == EDQUOT ? cmocka_run_group_tests_name(name, owned, NULL, NULL)
                           : cmocka_run_group_tests_name(name, elsewhere, NULL, NULL);
}

int main(void)
{
    return test_pool_on_each(run);
}
