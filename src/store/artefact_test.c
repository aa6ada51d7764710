/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "store/artefact.h"
#include "store/test_dir.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" /* SHA-256 of "abc" */

struct kept {
    struct test_dir *dir;
    struct store *store;
    struct artefacts *a;
    char path[96];
};

static struct kept open_kept(void **state, uint64_t sandbox_max, uint64_t total_max)
{
    struct kept k = {.dir = *state};
    struct err err;
    (void)snprintf(k.path, sizeof(k.path), "%s/kept", k.dir->path);
    if (store_open(k.dir->db, &k.store, &err) < 0 ||
        artefacts_open(k.store, k.path, sandbox_max, total_max, &k.a, &err) < 0)
        fail_msg("%s", err.msg);
    return k;
}

static void close_kept(struct kept *k)
{
    artefacts_close(k->a);
    store_close(k->store);
}

static void commit(struct kept *k)
{
    struct err err;
    if (store_commit(k->store, &err) < 0)
        fail_msg("%s", err.msg);
}

static void sweep(struct kept *k)
{
    struct err err;
    int more;
    commit(k);
    while ((more = artefact_sweep(k->a, &err)) > 0)
        ;
    assert_int_equal(more, 0);
}

/* Files that are there, all folders together. */
static int files(struct kept *k)
{
    int n = 0;
    DIR *top = opendir(k->path);
    assert_non_null(top);
    for (const struct dirent *e; (e = readdir(top));) {
        AUTO_FREE char *path = mem_printf("%s/%s", k->path, e->d_name);
        DIR *d = e->d_name[0] == '.' ? NULL : opendir(path);
        for (const struct dirent *f; d && (f = readdir(d));)
            n += f->d_name[0] != '.';
        if (d)
            (void)closedir(d);
    }
    (void)closedir(top);
    return n;
}

static struct artefact_writer *writer(struct kept *k, const char *sandbox, uint64_t seq, unsigned part)
{
    struct artefact_writer *w;
    struct err err;
    const struct artefact_key key = {sandbox, seq, part};
    if (artefact_writer_new(k->a, &key, &w, &err) < 0)
        fail_msg("%s", err.msg);
    return w;
}

static void put(struct artefact_writer *w, const char *text)
{
    struct err err;
    if (artefact_write(w, str_of(text), &err) < 0)
        fail_msg("%s", err.msg);
}

static void finish(struct artefact_writer *w, uint64_t event)
{
    struct err err;
    if (artefact_finish(w, &err) < 0 || artefact_keep(w, event, &err) < 0)
        fail_msg("%s", err.msg);
    artefact_writer_free(w);
}

static void keep(struct kept *k, const char *sandbox, uint64_t seq, const char *text)
{
    struct artefact_writer *w = writer(k, sandbox, seq, 0);
    put(w, text);
    finish(w, seq + 2);
}

static void expect(struct kept *k, const char *sandbox, uint64_t seq, const char *text)
{
    struct artefact_info info;
    struct err err;
    AUTO_BUF struct buf b = BUF_INIT(4096);
    AUTO_CLOSE int fd = -1;
    if (artefact_open(k->a, &(struct artefact_key){sandbox, seq, 0}, &info, &fd, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(fd_read_all(fd, &b), 0);
    assert_int_equal(info.bytes, strlen(text));
    assert_true(buf_len(&b) >= info.bytes);
    assert_memory_equal(buf_data(&b), text, strlen(text));
}

static void expect_none(struct kept *k, const char *sandbox, struct str digest)
{
    struct artefact_info info;
    struct err err;
    int fd;
    assert_int_equal(artefact_open_digest(k->a, sandbox, digest, &info, &fd, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void test_equal_ones_are_one_file(void **state)
{
    struct kept k = open_kept(state, 0, 0);
    struct artefact_info info;
    struct err err;
    int fd;
    struct artefact_writer *w = writer(&k, "i1", 3, 0);
    put(w, "a");
    put(w, "bc");
    expect(&k, "i1", 3, "abc"); /* while it is written */
    finish(w, 5);
    expect(&k, "i1", 3, "abc"); /* before the batch ends */
    commit(&k);
    expect(&k, "i1", 3, "abc");
    keep(&k, "i1", 7, "abc");
    keep(&k, "i2", 3, "abc");
    keep(&k, "i2", 4, "other");
    commit(&k);
    assert_int_equal(files(&k), 2);
    assert_int_equal(artefact_open_digest(k.a, "i2", STR(ABC), &info, &fd, &err), 0);
    (void)fd_close(fd);
    assert_string_equal(info.digest, ABC);
    expect_none(&k, "i3", STR(ABC));
    expect_none(&k, "i2", STR("../new/i2.3.0"));
    expect_none(&k, "i2", STR_NULL);

    /* It goes with the last one that needs it, and not before that is stored. */
    assert_int_equal(artefact_forget(k.a, "i1", UINT64_MAX, &err), 0);
    assert_int_equal(artefact_forget(k.a, "i2", 6, &err), 0);
    expect(&k, "i2", 4, "other"); /* named by event 6 */
    assert_int_equal(artefact_sweep(k.a, &err), 1);
    store_rollback(k.store);
    sweep(&k);
    expect(&k, "i1", 7, "abc");
    assert_int_equal(artefact_forget(k.a, "i1", UINT64_MAX, &err), 0);
    sweep(&k);
    expect(&k, "i2", 3, "abc");
    assert_int_equal(artefact_forget(k.a, "i2", 6, &err), 0);
    sweep(&k);
    assert_int_equal(files(&k), 1);
    expect_none(&k, "i2", STR(ABC));
    expect(&k, "i2", 4, "other");
    close_kept(&k);
}

static void test_limits(void **state)
{
    struct kept k = open_kept(state, 10, 15);
    struct err err;
    struct artefact_writer *w = writer(&k, "i1", 3, 0);
    put(w, "12345678");
    put(w, "9abcdef");
    put(w, "x");
    assert_int_equal(artefact_written(w)->bytes, 10);
    assert_int_equal(artefact_written(w)->dropped, 6);
    finish(w, 4);
    w = writer(&k, "i2", 3, 0);
    put(w, "1234567");
    assert_int_equal(artefact_written(w)->bytes, 5);
    finish(w, 4);
    commit(&k);
    expect(&k, "i1", 3, "123456789a");
    expect(&k, "i2", 3, "12345");
    assert_int_equal(artefact_forget(k.a, "i1", UINT64_MAX, &err), 0);
    sweep(&k);
    close_kept(&k);
    k = open_kept(state, 10, 15);
    keep(&k, "i3", 3, "1234567890");
    commit(&k);
    expect(&k, "i3", 3, "1234567890");
    close_kept(&k);
}

static void test_another_process_goes_on(void **state)
{
    struct kept k = open_kept(state, 0, 0);
    struct err err;
    struct artefact_writer *w = writer(&k, "i1", 3, 0);
    put(w, "a");
    commit(&k);
    put(w, "lost"); /* its row is not stored */
    store_rollback(k.store);
    artefact_writer_free(w);
    close_kept(&k);
    k = open_kept(state, 0, 0);
    sweep(&k);
    w = writer(&k, "i1", 3, 0);
    assert_int_equal(artefact_written(w)->bytes, 1);
    put(w, "bc");
    finish(w, 5);
    commit(&k);
    expect(&k, "i1", 3, "abc");
    AUTO_FREE char *path = mem_printf("%s/ba/" ABC, k.path);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 3);

    /* What nobody knows of goes. */
    AUTO_FREE char *stray = mem_printf("%s/new/i9.1.0", k.path), *odd = mem_printf("%s/ba/odd", k.path);
    assert_int_equal(symlink(path, stray), 0);
    assert_int_equal(symlink(path, odd), 0);
    close_kept(&k);
    k = open_kept(state, 0, 0);
    sweep(&k);
    assert_int_equal(files(&k), 1);

    assert_int_equal(unlink(path), 0);
    struct artefact_info info;
    int fd;
    assert_int_equal(artefact_open_digest(k.a, "i1", STR(ABC), &info, &fd, &err), -1);
    assert_int_equal(err.code, ERR_DATA_LOSS);
    close_kept(&k);
}

/* ---- killed at any time: what a row with a digest names is there, whole ---- */

NORETURN static void child(void **state, unsigned seed, _Atomic unsigned *shared)
{
    struct kept k = open_kept(state, 0, 0);
    struct err err;
    srand(seed);
    for (uint64_t seq = seed * 100000ULL + 1;; seq++) {
        char id[] = "i1", text[64];
        id[1] = (char)('1' + rand() % 3);
        (void)snprintf(text, sizeof(text), "output %d", rand() % 20);
        keep(&k, id, seq, text);
        if (rand() % 10 == 0 && artefact_forget(k.a, id, UINT64_MAX, &err) < 0)
            break;
        if (rand() % 4 == 0 && store_commit(k.store, &err) < 0)
            break;
        if (rand() % 4 == 0 && artefact_sweep(k.a, &err) < 0)
            break;
        ++*shared;
    }
    _exit(1);
}

static void test_killed_at_any_time(void **state)
{
    _Atomic unsigned *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    struct kept k = open_kept(state, 0, 0);
    close_kept(&k);
    srand(9);
    for (unsigned round = 1; round <= 25; round++) {
        unsigned before = *shared;
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            child(state, round, shared);
        for (int i = 0; i < 5000 && *shared < before + 5; i++)
            (void)usleep(1000);
        (void)usleep((useconds_t)(rand() % 10000));
        assert_int_equal(kill(pid, SIGKILL), 0);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && *shared > before);

        k = open_kept(state, 0, 0);
        for (int swept = 0; swept < 2; swept++) {
            for (int i = 0; i < 3; i++) {
                char id[] = "i1";
                id[1] = (char)('1' + i);
                int64_t rows = test_sql_number(
                    k.dir->db, "SELECT count(*) FROM artefacts WHERE sandbox = '%s' AND digest <> ''", id);
                for (int64_t row = 0; row < MIN(rows, (int64_t)20); row++) {
                    int64_t seq = test_sql_number(
                        k.dir->db, "SELECT seq FROM artefacts WHERE sandbox = '%s' ORDER BY seq LIMIT 1 OFFSET %lld",
                        id, (long long)row);
                    struct artefact_info info;
                    struct err err;
                    AUTO_BUF struct buf b = BUF_INIT(4096);
                    AUTO_CLOSE int fd = -1;
                    if (artefact_open(k.a, &(struct artefact_key){id, (uint64_t)seq, 0}, &info, &fd, &err) < 0)
                        fail_msg("%s", err.msg);
                    assert_int_equal(fd_read_all(fd, &b), 0);
                    assert_int_equal(buf_len(&b), info.bytes);
                    assert_memory_equal(buf_data(&b), "output ", 7);
                }
            }
            sweep(&k);
        }
        assert_int_equal(files(&k), test_sql_number(k.dir->db, "SELECT count(DISTINCT digest) FROM artefacts"));
        close_kept(&k);
    }
    assert_int_equal(munmap((void *)shared, 4096), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_dir_setup, test_dir_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_equal_ones_are_one_file),
        TEST(test_limits),
        TEST(test_another_process_goes_on),
        TEST(test_killed_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
