/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/fd.h"
#include "kernel/pool/pool_internal.h"
#include "kernel/pool/test_pool.h"

#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define DIGEST "sha256-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define BASE TEST_BASE
#define SECOND TEST_SECOND
#define THIRD TEST_THIRD

static const struct pool_file box_files[] = {{"etc/hosts", "127.0.0.1 localhost\n"}, {"top", ""}};

static int at_limit; /* what who reaches one is told there */

static void make_box(struct test_pool *p, const char *name)
{
    AUTO_CLOSE int fd = -1;
    const struct pool_box box = {.name = name, .files = box_files, .n_files = ARRAY_SIZE(box_files)};
    assert_int_equal(pool_box_make(p->pool, &box, &fd), 0);
    assert_true(fd >= 0);
}

static void test_box_holds_its_files(void **state)
{
    struct test_pool *p = *state;
    make_box(p, "a");
    assert_true(test_pool_has(p, "boxes/*/a/u/etc/hosts"));
    assert_true(test_pool_has(p, "boxes/*/a/u/top"));
    assert_true(test_pool_has(p, "boxes/*/a/w"));
}

static void test_box_name_is_taken_once(void **state)
{
    struct test_pool *p = *state;
    AUTO_CLOSE int fd = -1;
    make_box(p, "a");
    assert_int_equal(pool_box_make(p->pool, &(struct pool_box){.name = "a"}, &fd), -EEXIST);
    assert_true(test_pool_has(p, "boxes/*/a/u/etc/hosts"));
}

static void test_dropped_box_is_gone_at_once_and_swept_later(void **state)
{
    struct test_pool *p = *state;
    make_box(p, "a");
    make_box(p, "b");
    assert_int_equal(pool_box_drop(p->pool, "a"), 0);
    assert_false(test_pool_has(p, "boxes/*/a"));
    assert_true(test_pool_has(p, "boxes/*/b"));
    assert_int_equal(pool_box_drop(p->pool, "a"), 0);
    make_box(p, "a");
    assert_int_equal(pool_sweep(p->pool), 1);
    assert_int_equal(pool_sweep(p->pool), 0);
    assert_true(test_pool_has(p, "boxes/*/a"));
}

static const struct pool_ops *quick;
static int removes; /* how often remove_slowly() was called */

/* Fails at first, as when it dies in the middle. */
static int remove_slowly(struct pool *p, int at, const char *name)
{
    if (p->features.kind == POOL_BTRFS)
        assert_int_not_equal(at, p->trash_fd); /* which the kernel would hold for all that time */
    return removes++ ? quick->remove(p, at, name) : -EIO;
}

static void test_who_comes_to_the_trash_waits_for_no_deletion(void **state)
{
    struct test_pool *p = *state;
    quick = p->pool->ops;
    struct pool_ops slow = *quick;
    slow.remove = remove_slowly;
    removes = 0;
    make_box(p, "a");
    assert_int_equal(pool_box_drop(p->pool, "a"), 0);
    p->pool->ops = &slow;
    assert_int_equal(pool_sweep(p->pool), -EIO);
    assert_int_equal(pool_sweep(p->pool), 1);
    p->pool->ops = quick;
    assert_false(test_pool_has(p, "trash/*") || test_pool_has(p, "dying/*"));
}

static void count(void *ctx, const char *name)
{
    (void)name;
    ++*(int *)ctx;
}

static bool spare_b(void *ctx, const char *name)
{
    count(ctx, name);
    return strcmp(name, "b") == 0;
}

static void test_reset_clears_what_a_crash_left(void **state)
{
    struct test_pool *p = *state;
    char half_made[512];
    int boxes = 0;
    make_box(p, "a");
    make_box(p, "b");
    (void)snprintf(half_made, sizeof(half_made), "%s/new/base.1", p->top);
    assert_int_equal(mkdir(half_made, 0755), 0);
    assert_int_equal(pool_reset(p->pool, spare_b, &boxes), 0);
    assert_int_equal(boxes, 2);
    assert_false(test_pool_has(p, "boxes/*/a"));
    assert_true(test_pool_has(p, "boxes/*/b"));
    assert_false(test_pool_has(p, "new/base.1"));
    assert_int_equal(pool_sweep_some(p->pool, 1), 1);
    assert_int_equal(pool_sweep(p->pool), 1);
}

static void has_text(const struct test_pool *p, const char *path, const char *wanted)
{
    assert_true(test_pool_reads(p, path, wanted));
}

static void nothing_half_made(const struct test_pool *p)
{
    assert_false(test_pool_has(p, "new/*"));
}

static void test_names_of_layers(void **state)
{
    struct test_pool *p = *state;
    struct pool_chain chain;
    assert_int_equal(pool_chain_read(p->pool, DIGEST, &chain), -ENOENT);
    test_pool_layer(p, DIGEST, NULL);
    test_pool_layer(p, BASE, NULL);
    assert_int_equal(pool_chain_read(p->pool, DIGEST, &chain), 0);
    static const char *const wrong[] = {
        "",           "..",       "../boxes", "sha256-", "sha256-../../etc",           "SHA256-" DIGEST,
        DIGEST "/..", DIGEST "0", "layer-",   BASE "0",  "layer-0000000000000000../x", "layer-0000000000000000BASE"};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        assert_false(pool_is_layer(wrong[i]));
        assert_int_equal(pool_chain_read(p->pool, wrong[i], &chain), -EINVAL);
    }
    assert_true(pool_is_digest(DIGEST));
    assert_false(pool_is_digest(BASE));
}

static void test_chain_is_topmost_first_and_complete(void **state)
{
    struct test_pool *p = *state;
    struct pool_chain chain;
    int fds[POOL_CHAIN_MAX];
    test_pool_layer(p, BASE, NULL);
    assert_int_equal(pool_chain_read(p->pool, BASE, &chain), 0);
    test_pool_layer(p, SECOND, &chain);
    assert_int_equal(pool_chain_read(p->pool, SECOND, &chain), 0);
    assert_int_equal(chain.n, 2);
    assert_string_equal(chain.names[0], SECOND);
    assert_string_equal(chain.names[1], BASE);
    assert_int_equal(pool_chain_open(p->pool, &chain, fds), 0);
    for (size_t i = 0; i < chain.n; i++) {
        AUTO_BUF struct buf b = BUF_INIT(128);
        assert_int_equal(fd_read_file(fds[i], "of", &b), 0);
        assert_true(str_eqc(buf_str(&b), chain.names[i]));
        (void)fd_close(fds[i]);
    }
    assert_int_equal(pool_layer_drop(p->pool, BASE), 0);
    assert_int_equal(pool_chain_read(p->pool, SECOND, &chain), -ENOENT);
    assert_int_equal(pool_chain_open(p->pool, &chain, fds), -ENOENT);
    nothing_half_made(p);
}

static void test_layer_is_there_when_it_is_committed_and_once(void **state)
{
    struct test_pool *p = *state;
    AUTO_CLOSE int fd = -1, other = -1;
    struct pool_chain missing = {1, {THIRD}};
    assert_int_equal(pool_layer_begin(p->pool, "one", &fd), 0);
    assert_int_equal(pool_layer_begin(p->pool, "one", &other), -EEXIST);
    assert_int_equal(pool_layer_begin(p->pool, "../one", &other), -EINVAL);
    assert_int_equal(pool_layer_begin(p->pool, "two", &other), 0);
    test_pool_write(fd, "of", "one");
    assert_false(test_pool_has(p, "layers/*"));
    assert_int_equal(pool_layer_commit(p->pool, "one", BASE, &missing), -ENOENT);
    assert_int_equal(pool_layer_commit(p->pool, "one", BASE, NULL), 0);
    assert_int_equal(pool_layer_commit(p->pool, "two", BASE, NULL), 0); /* the same is there */
    has_text(p, "layers/" BASE "/u/of", "one");
    assert_int_equal(pool_layer_commit(p->pool, "none", SECOND, NULL), -ENOENT);
    (void)fd_close(TAKE_FD(fd));
    assert_int_equal(pool_layer_begin(p->pool, "three", &fd), 0);
    assert_int_equal(pool_layer_abandon(p->pool, "three"), 0);
    nothing_half_made(p);
    assert_true(pool_sweep(p->pool) == 2);
}

static void test_layer_of_a_box_is_its_own(void **state)
{
    struct test_pool *p = *state;
    test_pool_layer(p, BASE, NULL);
    make_box(p, "a");
    AUTO_CLOSE int u = test_pool_upper(p, "a");
    struct pool_chain below = {1, {BASE}}, chain;
    test_pool_write(u, "state", "before");
    assert_int_equal(pool_box_settle(p->pool, "a"), 0);
    assert_int_equal(pool_layer_of_box(p->pool, "a", SECOND, &below), 0);
    test_pool_write(u, "state", "after");
    has_text(p, "layers/" SECOND "/u/state", "before");
    if (pool_features(p->pool)->kind !=
        POOL_BTRFS) /* counted while it was copied; there quotas say it, where they are on */
        assert_true(pool_layer_bytes(p->pool, SECOND) > 0);
    assert_false(test_pool_has(p, "layers/" SECOND "/w"));
    assert_int_equal(pool_chain_read(p->pool, SECOND, &chain), 0);
    assert_int_equal(chain.n, 2);
    assert_int_equal(pool_layer_of_box(p->pool, "a", SECOND, &below), -EEXIST);
    assert_int_equal(pool_layer_of_box(p->pool, "b", THIRD, &below), -ENOENT);
    nothing_half_made(p);
}

/* A clone that has all beside it that a layer has. What is beside a box can't be written when it is full. */
static void test_layer_of_a_box_above_others(void **state)
{
    struct test_pool *p = *state;
    AUTO_CLOSE int fd = -1, cut = -1, w = -1;
    struct pool_chain below = {1, {BASE}}, chain;
    test_pool_layer(p, BASE, NULL);
    const struct pool_box box = {.name = "a", .chain = &below, .files = box_files, .n_files = 2};
    assert_int_equal(pool_box_make(p->pool, &box, &fd), 0);
    w = openat(fd, "w", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(w >= 0);
    test_pool_write(w, "half-written", "x");
    assert_int_equal(pool_layer_of_box(p->pool, "a", SECOND, &below), 0);
    assert_int_equal(pool_layer_of_box(p->pool, "a", SECOND, &below), -EEXIST);
    assert_true(test_pool_has(p, "layers/" SECOND "/u/etc/hosts"));
    assert_false(test_pool_has(p, "layers/" SECOND "/w"));
    assert_true(test_pool_has(p, "boxes/*/a/w/half-written"));
    assert_int_equal(pool_chain_read(p->pool, SECOND, &chain), 0);
    assert_int_equal(chain.n, 2);

    /* The same of one that began as a copy of the topmost layer: it lies above the rest. */
    const struct pool_box of_layer = {.name = "b", .from_layer = true, .chain = &chain};
    assert_int_equal(pool_box_make(p->pool, &of_layer, &cut), 0);
    assert_int_equal(pool_layer_of_box(p->pool, "b", THIRD, &below), 0);
    assert_int_equal(pool_chain_read(p->pool, THIRD, &chain), 0);
    assert_int_equal(chain.n, 2);
    assert_string_equal(chain.names[1], BASE);

    /* Who says that it lies above something else is believed. */
    const struct pool_chain none = {0};
    assert_int_equal(pool_layer_of_box(p->pool, "a", DIGEST, &none), 0);
    assert_int_equal(pool_chain_read(p->pool, DIGEST, &chain), 0);
    assert_int_equal(chain.n, 1);
    nothing_half_made(p);
}

static void test_box_of_a_layer_starts_as_its_copy(void **state)
{
    struct test_pool *p = *state;
    AUTO_CLOSE int fd = -1;
    test_pool_layer(p, BASE, NULL);
    struct pool_chain chain = {1, {BASE}};
    const struct pool_box box = {.name = "a", .from_layer = true, .chain = &chain, .files = box_files, .n_files = 2};
    assert_int_equal(pool_box_make(p->pool, &box, &fd), 0);
    assert_true(test_pool_has(p, "boxes/*/a/u/of"));
    assert_true(test_pool_has(p, "boxes/*/a/u/etc/hosts"));
    assert_true(test_pool_has(p, "boxes/*/a/w"));
    AUTO_CLOSE int u = test_pool_upper(p, "a");
    test_pool_write(u, "of", "changed");
    has_text(p, "layers/" BASE "/u/of", BASE);
    assert_int_equal(pool_box_make(p->pool, &box, &fd), -EEXIST);
    nothing_half_made(p);
}

static void test_box_says_that_it_has_changed(void **state)
{
    static const char snapshot[] = "layer-aaaaaaaaaaaaaaaaaaaa", next[] = "layer-bbbbbbbbbbbbbbbbbbbb";
    struct test_pool *p = *state;
    AUTO_CLOSE int fd = -1;
    test_pool_layer(p, BASE, NULL);
    struct pool_chain chain = {1, {BASE}};
    const struct pool_box box = {.name = "a", .chain = &chain, .files = box_files, .n_files = 2};
    const bool can_tell = pool_features(p->pool)->kind == POOL_BTRFS;
    assert_int_equal(pool_box_make(p->pool, &box, &fd), 0);
    AUTO_CLOSE int u = test_pool_upper(p, "a");
    AUTO_CLOSE int file = openat(u, "file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    char block[8192] = {1};
    assert_int_equal(pwrite(file, block, sizeof(block), 0), sizeof(block));
    assert_true(pool_box_changed(p->pool, "a", snapshot)); /* there is none */
    assert_int_equal(pool_layer_of_box(p->pool, "a", snapshot, &chain), 0);
    assert_int_equal(pool_box_changed(p->pool, "a", snapshot), !can_tell);
    /* Nothing but bytes, and none of them on disk. */
    assert_int_equal(pool_box_dirty_bytes(p->pool, "a"), 0);
    assert_int_equal(pwrite(file, "2", 1, 0), 1);
    assert_true(pool_box_changed(p->pool, "a", snapshot));
    assert_int_equal(pool_box_dirty_bytes(p->pool, "a") > 0, can_tell);
    assert_int_equal(pool_layer_of_box(p->pool, "a", next, &chain), 0);
    assert_int_equal(pool_box_changed(p->pool, "a", next), !can_tell);
    assert_true(pool_box_changed(p->pool, "a", snapshot));
    assert_int_equal(mkdirat(u, "directory", 0755), 0);
    assert_true(pool_box_changed(p->pool, "a", next));
}

static void test_the_root_is_as_in_the_layer_below(void **state)
{
    struct test_pool *p = *state;
    AUTO_CLOSE int fd = -1;
    struct stat st;
    test_pool_layer(p, BASE, NULL);
    AUTO_CLOSE int below = openat(pool_fd(p->pool), "layers/" BASE "/u", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(fchown(below, 7, 8), 0);
    assert_int_equal(fchmod(below, 01770), 0);
    struct pool_chain chain = {1, {BASE}};
    const struct pool_box box = {.name = "a", .chain = &chain, .files = box_files, .n_files = 2};
    assert_int_equal(pool_box_make(p->pool, &box, &fd), 0);
    AUTO_CLOSE int u = test_pool_upper(p, "a");
    assert_int_equal(fstat(u, &st), 0);
    assert_int_equal(st.st_mode & 07777, 01770);
    assert_int_equal(st.st_uid, 7);
    assert_int_equal(st.st_gid, 8);
    assert_true(test_pool_has(p, "boxes/*/a/u/etc/hosts"));
}

static void test_files_of_a_sandbox_lead_nowhere(void **state)
{
    struct test_pool *p = *state;
    char outside[256], target[512];
    AUTO_CLOSE int fd = -1;
    (void)snprintf(outside, sizeof(outside), "%s/outside", p->top);
    (void)snprintf(target, sizeof(target), "%s/hosts", outside);
    assert_int_equal(mkdir(outside, 0755), 0);
    test_pool_write(AT_FDCWD, target, "the host's");
    const struct pool_chain none = {0};
    for (int i = 0; i < 2; i++) {
        make_box(p, "a");
        AUTO_CLOSE int u = test_pool_upper(p, "a");
        assert_int_equal(unlinkat(u, "etc/hosts", 0), 0);
        if (i == 0) {
            assert_int_equal(symlinkat(target, u, "etc/hosts"), 0);
        } else {
            assert_int_equal(unlinkat(u, "etc", AT_REMOVEDIR), 0);
            assert_int_equal(symlinkat(outside, u, "etc"), 0);
        }
        assert_int_equal(pool_keep(p->pool, "a", "i1", &none), 0);
        const struct pool_box box = {.name = "a", .from_kept = "i1", .files = box_files, .n_files = 2};
        assert_int_equal(pool_box_make(p->pool, &box, &fd), 0);
        has_text(p, "outside/hosts", "the host's");
        fd = fd_close(fd);
        assert_int_equal(pool_box_drop(p->pool, "a"), 0);
    }
}

static void test_kept_files_come_back(void **state)
{
    struct test_pool *p = *state;
    struct pool_chain below = {1, {BASE}}, chain;
    AUTO_CLOSE int fd = -1;
    int kept = 0;
    test_pool_layer(p, BASE, NULL);
    make_box(p, "a");
    AUTO_CLOSE int u = test_pool_upper(p, "a");
    test_pool_write(u, "state", "mine");
    assert_int_equal(pool_kept_chain(p->pool, "i1", &chain), -ENOENT);
    assert_int_equal(pool_keep(p->pool, "a", "i1", &below), 0);
    assert_false(test_pool_has(p, "boxes/*/a"));
    assert_int_equal(pool_kept_chain(p->pool, "i1", &chain), 0);
    assert_int_equal(chain.n, 1);
    assert_int_equal(pool_kept_each(p->pool, count, &kept), 0);
    assert_int_equal(kept, 1);
    assert_int_equal(pool_layer_of_kept(p->pool, "i1", SECOND), 0);
    has_text(p, "layers/" SECOND "/u/state", "mine");

    make_box(p, "b");
    struct pool_box box = {.name = "b", .from_kept = "i1", .chain = &chain, .files = box_files, .n_files = 2};
    assert_int_equal(pool_box_make(p->pool, &box, &fd), -EEXIST);
    assert_int_equal(pool_kept_chain(p->pool, "i1", &chain), 0);
    box.name = "c";
    assert_int_equal(pool_box_make(p->pool, &box, &fd), 0);
    assert_int_equal(pool_kept_chain(p->pool, "i1", &chain), -ENOENT);
    assert_true(test_pool_has(p, "boxes/*/c/u/state"));
    assert_true(test_pool_has(p, "boxes/*/c/w"));

    assert_int_equal(pool_keep(p->pool, "c", "i1", &below), 0);
    assert_int_equal(pool_keep(p->pool, "b", "i1", &below), 0); /* takes its place */
    assert_false(test_pool_has(p, "kept/i1/u/state"));
    assert_int_equal(pool_kept_drop(p->pool, "i1"), 0);
    assert_int_equal(pool_kept_drop(p->pool, "i1"), -ENOENT);
    nothing_half_made(p);
}

static void test_copies_are_kept_where_they_are_cheap(void **state)
{
    struct test_pool *p = *state;
    struct pool_chain none = {0};
    make_box(p, "a");
    AUTO_CLOSE int u = test_pool_upper(p, "a");
    if (!pool_features(p->pool)->cheap_clones) {
        assert_int_equal(pool_keep_copy(p->pool, "a", "i1", &none), -EOPNOTSUPP);
        return;
    }
    test_pool_write(u, "state", "1");
    assert_int_equal(pool_keep_copy(p->pool, "a", "i1", &none), 0);
    test_pool_write(u, "state", "2");
    has_text(p, "kept/i1/u/state", "1");
    assert_int_equal(pool_keep_copy(p->pool, "a", "i1", &none), 0);
    has_text(p, "kept/i1/u/state", "2");
    nothing_half_made(p);
}

static void test_volumes(void **state)
{
    struct test_pool *p = *state;
    uint64_t used = 7, limit = 7;
    int n = 0;
    struct stat st;
    AUTO_CLOSE int fd = -1;
    assert_int_equal(pool_volume_open(p->pool, "vol-1", &fd), -ENOENT);
    assert_int_equal(pool_volume_make(p->pool, "vol-1", 64 << 20, 0), 0);
    assert_int_equal(pool_volume_make(p->pool, "vol-1", 0, 0), -EEXIST);
    assert_int_equal(pool_volume_make(p->pool, "../vol", 0, 0), -EINVAL);
    assert_int_equal(pool_volume_open(p->pool, "vol-1", &fd), 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_uid, 1000);
    assert_int_equal(st.st_mode & 07777, 0755);
    assert_int_equal(pool_volume_usage(p->pool, "vol-1", &used, &limit), 0);
    assert_int_equal(limit, 64 << 20);
    assert_true(used < 1 << 20);
    assert_int_equal(pool_volume_each(p->pool, count, &n), 0);
    assert_int_equal(n, 1);
    assert_int_equal(pool_volume_drop(p->pool, "vol-1"), 0);
    assert_int_equal(pool_volume_drop(p->pool, "vol-1"), -ENOENT);
    nothing_half_made(p);
}

static void test_layers_of_an_earlier_version_are_none(void **state)
{
    struct test_pool *p = *state;
    char path[512];
    test_pool_layer(p, BASE, NULL);
    (void)snprintf(path, sizeof(path), "%s/layers/" DIGEST, p->top);
    assert_int_equal(mkdir(path, 0755), 0);
    (void)snprintf(path, sizeof(path), "%s/layers/" DIGEST "/usr", p->top);
    assert_int_equal(mkdir(path, 0755), 0);
    struct pool *again = NULL;
    assert_int_equal(pool_open_as(p->top, p->kind, &again), 0);
    pool_close(again);
    assert_false(test_pool_has(p, "layers/" DIGEST));
    assert_true(test_pool_has(p, "layers/" BASE "/u"));
    assert_int_equal(pool_sweep(p->pool), 1);
}

static void test_what_is_below_is_read_strictly(void **state)
{
    struct test_pool *p = *state;
    static const struct {
        const char *text;
        int wanted;
    } cases[] = {{"", 0},
                 {SECOND "\n", 0},
                 {SECOND "\n" THIRD "\n", 0},
                 {SECOND, -EBADMSG},
                 {"\n", -EBADMSG},
                 {SECOND "\n\n", -EBADMSG},
                 {SECOND "\n" SECOND "\n", -EBADMSG},
                 {" " SECOND "\n", -EBADMSG},
                 {"../../etc\n", -EBADMSG}};
    struct pool_chain chain;
    test_pool_layer(p, BASE, NULL);
    test_pool_layer(p, SECOND, NULL);
    test_pool_layer(p, THIRD, NULL);
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/layers/" BASE "/below", p->top);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        test_pool_write(AT_FDCWD, path, cases[i].text);
        assert_int_equal(pool_chain_read(p->pool, BASE, &chain), cases[i].wanted);
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(pool_chain_read(p->pool, BASE, &chain), -EBADMSG);
}

enum { LIMIT = 16 << 20 };

/* Writes until it is refused; how much went in. */
static size_t fill(int at, const char *name, size_t most, int *ret_error)
{
    static char block[1 << 16];
    AUTO_CLOSE int fd = openat(at, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    size_t done = 0;
    *ret_error = fd < 0 ? errno : 0;
    while (done < most && *ret_error == 0) {
        ssize_t n = write(fd, block, sizeof(block));
        done += n > 0 ? (size_t)n : 0;
        *ret_error = n < 0 ? errno : 0;
    }
    return done;
}

static void test_limit_of_a_box_holds(void **state)
{
    struct test_pool *p = *state;
    int error = 0;
    uint64_t used = 0;
    AUTO_CLOSE int fd = -1;
    const struct pool_chain none = {0};
    assert_true(pool_features(p->pool)->limits);
    const struct pool_box box = {.name = "a", .limit_bytes = LIMIT};
    assert_int_equal(pool_box_make(p->pool, &box, &fd), 0);
    AUTO_CLOSE int u = test_pool_upper(p, "a");
    size_t n = fill(u, "f", 4 * LIMIT, &error);
    assert_int_equal(error, at_limit);
    assert_true(n > LIMIT / 2 && n <= LIMIT);
    assert_int_equal(pool_box_usage(p->pool, "a", &used), 0);
    assert_true(used > LIMIT / 2 && used <= LIMIT);

    /* The limit goes with the files, and changes on request. */
    assert_int_equal(pool_keep(p->pool, "a", "i1", &none), 0);
    const struct pool_box again = {.name = "b", .from_kept = "i1", .limit_bytes = LIMIT};
    fd = fd_close(fd);
    assert_int_equal(pool_box_make(p->pool, &again, &fd), 0);
    AUTO_CLOSE int u2 = test_pool_upper(p, "b");
    (void)fill(u2, "g", 4 * LIMIT, &error);
    assert_int_equal(error, at_limit);
    assert_int_equal(pool_box_limit(p->pool, "b", 4 * LIMIT), 0);
    (void)fill(u2, "g", LIMIT, &error);
    assert_int_equal(error, 0);

    /* What is made of it says its size. */
    assert_int_equal(pool_layer_of_box(p->pool, "b", BASE, &none), 0);
    assert_true(pool_layer_bytes(p->pool, BASE) > LIMIT / 2);
}

static void test_limit_of_a_volume_holds(void **state)
{
    struct test_pool *p = *state;
    int error = 0;
    uint64_t used = 0, limit = 0;
    AUTO_CLOSE int fd = -1;
    assert_int_equal(pool_volume_make(p->pool, "vol-1", LIMIT, 0), 0);
    assert_int_equal(pool_volume_open(p->pool, "vol-1", &fd), 0);
    size_t n = fill(fd, "f", 4 * LIMIT, &error);
    assert_int_equal(error, at_limit);
    assert_true(n > LIMIT / 2 && n <= LIMIT);
    assert_int_equal(pool_volume_usage(p->pool, "vol-1", &used, &limit), 0);
    assert_int_equal(limit, LIMIT);
    assert_true(used > LIMIT / 2 && used <= LIMIT);
}

static bool waits_for_disk(int fd)
{
    union {
        struct fiemap map;
        char bytes[sizeof(struct fiemap) + sizeof(struct fiemap_extent)];
    } told = {.map = {.fm_length = FIEMAP_MAX_OFFSET, .fm_extent_count = 1}};
    return ioctl(fd, FS_IOC_FIEMAP, &told.map) == 0 && told.map.fm_mapped_extents == 1 &&
           told.map.fm_extents[0].fe_flags & FIEMAP_EXTENT_DELALLOC;
}

static void test_memory_that_lasts_is_on_disk(void **state)
{
    struct test_pool *p = *state;
    static const char block[1 << 20] = {1};
    for (int lasts = 0; lasts < 2; lasts++) {
        AUTO_CLOSE int dir = -1;
        assert_int_equal(pool_memory_begin(p->pool, "a", &dir), 0);
        AUTO_CLOSE int fd = openat(dir, "pages", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        assert_int_equal(write(fd, block, sizeof(block)), sizeof(block));
        const bool is_late = waits_for_disk(fd); /* else it can't be told on this file system */
        assert_int_equal(pool_memory_commit(p->pool, "a", lasts), 0);
        assert_true(test_pool_has(p, "memory/a/pages"));
        if (lasts || !is_late) /* else the kernel may have begun by itself meanwhile */
            assert_false(waits_for_disk(fd));
    }
}

static void count_one(void *ctx, const char *layer UNUSED)
{
    ++*(size_t *)ctx;
}

/* In a process of its own, which keeps the filter. */
static void test_a_disk_that_fails_has_not_no_layers(void **state)
{
    struct test_pool *p = *state;
    static struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getdents64, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {ARRAY_SIZE(filter), filter};
    size_t n = 0;
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0
                  ? -pool_layer_each(p->pool, count_one, &n)
                  : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), EIO);
}

/* limit: 0: there is none */
static int run(const char *name, int limit)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_box_holds_its_files, test_pool_set_up, test_pool_tear_down),
        cmocka_unit_test_setup_teardown(test_box_name_is_taken_once, test_pool_set_up, test_pool_tear_down),
        cmocka_unit_test_setup_teardown(test_dropped_box_is_gone_at_once_and_swept_later, test_pool_set_up,
                                        test_pool_tear_down),
        cmocka_unit_test_setup_teardown(test_who_comes_to_the_trash_waits_for_no_deletion, test_pool_set_up,
                                        test_pool_tear_down),
        cmocka_unit_test_setup_teardown(test_reset_clears_what_a_crash_left, test_pool_set_up, test_pool_tear_down),
        cmocka_unit_test_setup_teardown(test_names_of_layers, test_pool_set_up, test_pool_tear_down),
        cmocka_unit_test_setup_teardown(test_chain_is_topmost_first_and_complete, test_pool_set_up,
                                        test_pool_tear_down),
        cmocka_unit_test_setup_teardown(test_layer_is_there_when_it_is_committed_and_once, test_pool_set_up,
                                        test_pool_tear_down),
        cmocka_unit_test_setup_teardown(test_layer_of_a_box_is_its_own, test_pool_set_up, test_pool_tear_down),
        cmocka_unit_test_setup_teardown(test_layer_of_a_box_above_others, test_pool_set_up, test_pool_tear_down),
        cmocka_unit_test_setup_teardown(test_box_of_a_layer_starts_as_its_copy, test_pool_set_up, test_pool_tear_down),
        cmocka_unit_test_setup_teardown(test_box_says_that_it_has_changed, test_pool_set_up, test_pool_tear_down),
        cmocka_unit_test_setup_teardown(test_the_root_is_as_in_the_layer_below, test_pool_set_up, test_pool_tear_down),
        cmocka_unit_test_setup_teardown(test_files_of_a_sandbox_lead_nowhere, test_pool_set_up, test_pool_tear_down),
        cmocka_unit_test_setup_teardown(test_kept_files_come_back, test_pool_set_up, test_pool_tear_down),
        cmocka_unit_test_setup_teardown(test_copies_are_kept_where_they_are_cheap, test_pool_set_up,
                                        test_pool_tear_down),
        cmocka_unit_test_setup_teardown(test_volumes, test_pool_set_up, test_pool_tear_down),
        cmocka_unit_test_setup_teardown(test_layers_of_an_earlier_version_are_none, test_pool_set_up,
                                        test_pool_tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_below_is_read_strictly, test_pool_set_up, test_pool_tear_down),
        cmocka_unit_test_setup_teardown(test_memory_that_lasts_is_on_disk, test_pool_set_up, test_pool_tear_down),
        cmocka_unit_test_setup_teardown(test_a_disk_that_fails_has_not_no_layers, test_pool_set_up,
                                        test_pool_tear_down),
    };
    const struct CMUnitTest limits[] = {
        cmocka_unit_test_setup_teardown(test_limit_of_a_box_holds, test_pool_set_up, test_pool_tear_down),
        cmocka_unit_test_setup_teardown(test_limit_of_a_volume_holds, test_pool_set_up, test_pool_tear_down),
    };
    int failed = cmocka_run_group_tests_name(name, tests, NULL, NULL);
    at_limit = limit;
    return limit ? failed + cmocka_run_group_tests_name(name, limits, NULL, NULL) : failed;
}

int main(void)
{
    return test_pool_on_each(run);
}
