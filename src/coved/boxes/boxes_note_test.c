/* SPDX-License-Identifier: Apache-2.0 */
/* What a coved that died leaves of sandboxes that stood still is kept by the next one, whatever is in the way. */
#include "base/buf.h"
#include "base/fd.h"
#include "base/id.h"
#include "coved/boxes/boxes.h"
#include "coved/storage/layers.h"
#include "kernel/pool/pool.h"
#include "kernel/pool/test_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define LAYER "layer-aaaaaaaaaaaaaaaaaaaa"
#define BOOT "/proc/sys/kernel/random/boot_id"

enum { SLEEPERS = 3, PROBES = 30 };

static struct test_disk disk;
static struct pool *pool;
static char ids[SLEEPERS][ID_SANDBOX_LEN + 1];

static void boot_id(char ret_boot[static 64])
{
    AUTO_CLOSE int fd = open(BOOT, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, ret_boot, 63);
    assert_true(n > 1);
    ret_boot[n - 1] = 0;
}

static void make_box(const char *name, const char *text)
{
    const struct pool_file file = {"etc/of", text};
    const struct pool_box box = {.name = name, .files = &file, .n_files = 1};
    int fd = -1;
    assert_int_equal(pool_box_make(pool, &box, &fd), 0);
    (void)fd_close(fd);
}

static void note(const char *id, const char *boot, const char *box)
{
    char text[256], path[96];
    int at = pool_fd(pool);
    (void)mkdirat(at, "asleep", 0700);
    (void)snprintf(text, sizeof(text), "%s %s ", boot, box);
    (void)snprintf(path, sizeof(path), "asleep/%s", id);
    assert_int_equal(symlinkat(text, at, path), 0);
}

static bool is_there(const char *dir, const char *name)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    return faccessat(pool_fd(pool), path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void assert_kept(const char *id, const char *text)
{
    char path[128];
    AUTO_BUF struct buf b = BUF_INIT(64);
    (void)snprintf(path, sizeof(path), "kept/%s/u/etc/of", id);
    assert_int_equal(fd_read_file(pool_fd(pool), path, &b), 0);
    assert_true(str_eqc(buf_str(&b), text));
}

static void rescue(void)
{
    struct err err;
    assert_int_equal(boxes_rescue(&(const struct tier_host){.pool = pool}, NULL, NULL, &err), 0);
}

static int setup(void **state)
{
    (void)state;
    for (size_t i = 0; i < SLEEPERS; i++)
        id_sandbox(ids[i]);
    return pool_open_as(disk.dir, POOL_BTRFS, &pool);
}

static int teardown(void **state)
{
    (void)state;
    int r = pool_reset(pool, NULL, NULL);
    for (size_t i = 0; i < SLEEPERS; i++) {
        int ignored UNUSED = pool_kept_drop(pool, ids[i]);
    }
    for (size_t i = 0; i < PROBES; i++) {
        char probe[16];
        (void)snprintf(probe, sizeof(probe), "probe-%zu", i);
        int ignored UNUSED = pool_kept_drop(pool, probe);
    }
    r = MIN(r, pool_sweep(pool));
    pool_close(pool);
    return MIN(r, 0);
}

static void test_those_of_this_boot_are_kept(void **state)
{
    (void)state;
    char boot[64];
    boot_id(boot);
    make_box("b-0", "zero");
    make_box("b-1", "one");
    make_box("b-2", "two");
    note(ids[0], boot, "b-0");
    note(ids[1], "00000000-0000-0000-0000-000000000000", "b-1");
    note("no-sandbox", boot, "b-2");
    note(ids[2], boot, "b-9"); /* there is no such box */
    rescue();
    assert_kept(ids[0], "zero");
    assert_false(is_there("kept", ids[1]));
    assert_false(is_there("kept", ids[2]));
    assert_false(is_there("kept", "no-sandbox"));
    for (size_t i = 0; i < SLEEPERS; i++)
        assert_false(is_there("asleep", ids[i]));
    assert_false(is_there("asleep", "no-sandbox"));
    rescue(); /* and once more, by one that came after a second death */
    note(ids[0], boot, "b-0");
    rescue();
    assert_kept(ids[0], "zero");
}

/* So many descriptors can still be opened; -1: as many as before. */
static void may_open(int n)
{
    static struct rlimit was;
    struct rlimit now;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    if (n < 0) {
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
        return;
    }
    AUTO_CLOSE int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(next >= 0);
    was = now;
    now.rlim_cur = (rlim_t)(next + n);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
}

static void count_layer(void *ctx, const struct sup_layer *layer)
{
    assert_string_equal(layer->layer, LAYER);
    ++*(size_t *)ctx;
}

/* What can't be listed is not taken for nothing: its files would be deleted. */
static void test_a_list_that_fails_is_no_empty_one(void **state)
{
    (void)state;
    char boot[64];
    boot_id(boot);
    struct err err;
    const struct tier_host host = {.pool = pool};
    make_box("b-0", "zero");
    note(ids[0], boot, "b-0");
    may_open(1); /* the directory, but not to read it */
    int r = boxes_rescue(&host, NULL, NULL, &err);
    may_open(-1);
    assert_int_equal(r, -1);
    assert_non_null(strstr(err.msg, "which sandboxes were frozen"));
    assert_true(is_there("asleep", ids[0]));
    rescue();
    assert_kept(ids[0], "zero");
    struct boxes *b = boxes_new(NULL, NULL, &host, 0, &(struct boxes_events){.ctx = NULL}, NULL, NULL, NULL);
    may_open(0);
    r = boxes_keep_load(b, &err);
    may_open(-1);
    assert_int_equal(r, -1);
    assert_non_null(strstr(err.msg, "list the paused sandboxes"));
    assert_int_equal(boxes_keep_load(b, &err), 0);
    /* What a layer stands on isn't known, either. */
    struct pool_layers *l = layers_new(pool, b);
    size_t n = 0;
    assert_int_equal(pool_layer_of_kept(pool, ids[0], LAYER), 0);
    may_open(1);
    r = layers_each(l, count_layer, &n, &err);
    may_open(-1);
    assert_int_equal(r, -1);
    assert_non_null(strstr(err.msg, "layer " LAYER ": read the layers below it"));
    assert_int_equal(n, 0);
    assert_int_equal(layers_each(l, count_layer, &n, &err), 0);
    assert_int_equal(n, 1);
    assert_int_equal(pool_layer_drop(pool, LAYER), 0);
    layers_free(l);
    boxes_free(b);
}

static bool fill_up(int fd, size_t step)
{
    static char bytes[1 << 20];
    static uint64_t random = 88172645463325252u;
    bool has_written = false;
    for (ssize_t n = 1; n > 0; has_written |= n > 0) {
        for (size_t i = 0; i < step; i += sizeof(random)) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            memcpy(bytes + i, &random, sizeof(random));
        }
        n = write(fd, bytes, step);
    }
    assert_int_equal(errno, ENOSPC);
    return has_written;
}

/*
 * Long links take room of the kind that names, too, are written in: how much of it there is differs from kernel to
 * kernel.
 */
static void fill_up_with_links(int dir)
{
    static char text[3800];
    static size_t n;
    char name[16] = "";
    memset(text, 'x', sizeof(text) - 1);
    do
        (void)snprintf(name, sizeof(name), "link-%zu", n++);
    while (symlinkat(text, dir, name) == 0);
    assert_int_equal(errno, ENOSPC);
}

/* Until nothing can be kept any more: what is written out takes less than was set aside for it. */
static void fill_pool(int dir)
{
    const struct pool_chain nothing = {.n = 0};
    char probe[16];
    int r = 0;
    AUTO_CLOSE int fd = openat(dir, "all", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    for (size_t i = 0; r == 0 && i < PROBES; i++) {
        (void)fill_up(fd, 1 << 20);
        while (fsync(fd) == 0 && fill_up(fd, 4096))
            ;
        fill_up_with_links(dir);
        (void)snprintf(probe, sizeof(probe), "probe-%zu", i);
        r = pool_keep(pool, probe, probe, &nothing);
    }
    assert_int_equal(r, -ENOSPC); /* or this tests nothing */
}

/* The pool is full of what one wrote that was running: it is lost, and they are not. */
static void test_in_a_full_pool(void **state)
{
    (void)state;
    char boot[64], path[96], box[16];
    boot_id(boot);
    for (size_t i = 0; i < SLEEPERS; i++) {
        (void)snprintf(box, sizeof(box), "b-%zu", i);
        make_box(box, box);
        note(ids[i], boot, box);
    }
    for (size_t i = 0; i < PROBES; i++) {
        (void)snprintf(box, sizeof(box), "probe-%zu", i);
        make_box(box, box);
    }
    const struct pool_box greedy = {.name = "greedy"};
    int fd = -1;
    assert_int_equal(pool_box_make(pool, &greedy, &fd), 0);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d/u", fd);
    AUTO_CLOSE int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    (void)fd_close(fd);
    assert_true(dir >= 0);
    fill_pool(dir);
    dir = fd_close(dir);
    rescue();
    for (size_t i = 0; i < SLEEPERS; i++) {
        (void)snprintf(box, sizeof(box), "b-%zu", i);
        assert_kept(ids[i], box);
        assert_false(is_there("asleep", ids[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_those_of_this_boot_are_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_list_that_fails_is_no_empty_one, setup, teardown),
        cmocka_unit_test_setup_teardown(test_in_a_full_pool, setup, teardown),
    };
    const struct CMUnitTest none[] = {cmocka_unit_test(test_disk_absent)};
    if (!test_disk_open(&disk, "btrfs"))
        return cmocka_run_group_tests(none, NULL, NULL);
    /* Or what is removed would be there for half a minute still. */
    if (mount(NULL, disk.dir, NULL, MS_REMOUNT | MS_NOSUID | MS_NODEV | MS_NOATIME, "commit=1") < 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_disk_close(&disk);
    return failed;
}
