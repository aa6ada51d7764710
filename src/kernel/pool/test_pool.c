/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pool/test_pool.h"
#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "kernel/pool/pool_internal.h"
#include "kernel/pool/test_disk.h"
#include "kernel/tree/tree.h"

#include <fcntl.h>
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *kind_at = "/tmp"; /* the file system that the pools of the tests lie on */
static enum pool_kind kind_now = POOL_COPY;

bool test_pool_open(struct test_pool *p, const char *below, enum pool_kind kind)
{
    p->kind = kind;
    (void)snprintf(p->top, sizeof(p->top), "%s/cove-pool-test.XXXXXX", below);
    if (!mkdtemp(p->top) || pool_open_as(p->top, kind, &p->pool) < 0)
        return false;
    p->pool->seed_step = 16; /* counting takes time */
    return true;
}

static void trash_all(const struct test_pool *p, const char *dir)
{
    AUTO_FREE char *pattern = mem_printf("%s/%s/*", p->top, dir);
    glob_t found;
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++) {
            AUTO_FREE char *to = mem_printf("%s/trash/last-%s", p->top, strrchr(found.gl_pathv[i], '/') + 1);
            (void)rename(found.gl_pathv[i], to);
        }
    globfree(&found);
}

int test_pool_close(struct test_pool *p)
{
    static const char *const dirs[] = {"layers", "kept", "volumes", "seeds", "stock"};
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        trash_all(p, dirs[i]);
    int r = pool_reset(p->pool, NULL, NULL);
    r = r ? r : pool_sweep(p->pool);
    pool_close(p->pool);
    return r < 0 ? r : tree_remove(AT_FDCWD, p->top);
}

bool test_pool_has(const struct test_pool *p, const char *pattern)
{
    AUTO_FREE char *full = mem_printf("%s/%s", p->top, pattern);
    glob_t found;
    int r = glob(full, 0, NULL, &found);
    globfree(&found);
    return r == 0;
}

bool test_pool_reads(const struct test_pool *p, const char *path, const char *wanted)
{
    AUTO_FREE char *full = mem_printf("%s/%s", p->top, path);
    AUTO_BUF struct buf b = BUF_INIT(4096);
    return fd_read_file(AT_FDCWD, full, &b) == 0 && str_eqc(buf_str(&b), wanted);
}

int test_pool_upper(const struct test_pool *p, const char *box)
{
    AUTO_FREE char *pattern = mem_printf("%s/boxes/*/%s/u", p->top, box);
    glob_t found;
    int fd = glob(pattern, 0, NULL, &found) == 0 ? open(found.gl_pathv[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    globfree(&found);
    return fd;
}

int test_pool_set_up(void **state)
{
    struct test_pool *p = mem_new(struct test_pool);
    *state = p;
    return test_pool_open(p, kind_at, kind_now) ? 0 : -1;
}

int test_pool_tear_down(void **state)
{
    struct test_pool *p = *state;
    int r = test_pool_close(p);
    mem_free(p);
    return r;
}

int test_pool_on_each(int (*run)(const char *name, int at_limit))
{
    const struct CMUnitTest absent[] = {cmocka_unit_test(test_disk_absent)};
    static const struct {
        const char *disk, *name;
        enum pool_kind kind;
        int at_limit;
    } disks[] = {
        {"btrfs", "btrfs", POOL_BTRFS, EDQUOT},
        {"xfs", "reflink", POOL_REFLINK, 0},
        {"xfs with quotas", "reflink with quotas", POOL_REFLINK, ENOSPC},
    };
    int failed = run("copy", 0);
    for (size_t i = 0; i < ARRAY_SIZE(disks); i++) {
        struct test_disk disk;
        if (!test_disk_open(&disk, disks[i].disk)) {
            failed += cmocka_run_group_tests_name(disks[i].name, absent, NULL, NULL);
            continue;
        }
        kind_at = disk.dir;
        kind_now = disks[i].kind;
        failed += run(disks[i].name, disks[i].at_limit);
        test_disk_close(&disk);
    }
    return failed;
}

void test_pool_write(int at, const char *path, const char *text)
{
    assert_int_equal(fd_write_file(at, path, str_of(text), 0644), 0);
}

void test_pool_layer(struct test_pool *p, const char *name, const struct pool_chain *below)
{
    AUTO_CLOSE int fd = -1;
    assert_int_equal(pool_layer_begin(p->pool, "test", &fd), 0);
    test_pool_write(fd, "of", name);
    assert_int_equal(pool_layer_commit(p->pool, "test", name, below), 0);
}
