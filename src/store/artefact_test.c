/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "store/artefact.h"
#include "store/test_dir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct store *open_ok(const struct test_dir *dir)
{
    struct store *s = NULL;
    struct err err;
    if (store_open(dir->db, &s, &err) < 0)
        fail_msg("%s", err.msg);
    return s;
}

static int append(struct store *s, const struct artefact_key *key, const void *p, size_t n)
{
    struct err err;
    int r = artefact_append(s, key, str_n(p, n), &err);
    if (r < 0)
        fail_msg("%s", err.msg);
    return r;
}

static struct artefact_info info(struct store *s, const struct artefact_key *key)
{
    struct artefact_info info;
    struct err err;
    if (artefact_stat(s, key, &info, &err) < 0)
        fail_msg("%s", err.msg);
    return info;
}

static char *noise(size_t n)
{
    char *p = mem_alloc(n);
    uint32_t x = 1;
    for (size_t i = 0; i < n; i++) {
        x = x * 1664525 + 1013904223;
        p[i] = (char)(x >> 24);
    }
    return p;
}

static void test_ranges(void **state)
{
    struct store *s = open_ok(*state);
    struct artefact_key key = {"i1", 7, 0}, other = {"i1", 7, 1}, missing = {"i1", 8, 0};
    struct err err;
    enum { N = 300000 };
    AUTO_FREE char *want = noise(N);
    static const size_t steps[] = {1, 10, 4096, 65536, 65537, 100000, 3};
    size_t at = 0;
    for (size_t i = 0; at < N; i = (i + 1) % ARRAY_SIZE(steps)) {
        size_t n = MIN(steps[i], N - at);
        assert_int_equal(append(s, &key, want + at, n), 0);
        at += n;
    }
    assert_int_equal(append(s, &other, "other", 5), 0);
    assert_int_equal(append(s, &other, "", 0), 0);
    assert_int_equal(store_commit(s, &err), 0);
    assert_int_equal(info(s, &key).stored, N);
    assert_int_equal(info(s, &key).dropped, 0);
    assert_int_equal(info(s, &other).stored, 5);
    static const size_t offsets[] = {0, 1, 10, 11, 12, 4107, 65536, 100000, 235180, N - 1, N, N + 1};
    static const size_t lengths[] = {0, 1, 100, 70000, N};
    for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
        for (size_t k = 0; k < ARRAY_SIZE(lengths); k++) {
            AUTO_BUF struct buf b = BUF_INIT(N);
            assert_int_equal(artefact_read(s, &key, offsets[i], lengths[k], &b, &err), 0);
            size_t expected = offsets[i] >= N ? 0 : MIN(lengths[k], N - offsets[i]);
            assert_int_equal(buf_len(&b), expected);
            if (expected)
                assert_memory_equal(buf_data(&b), want + offsets[i], expected);
        }
    }
    AUTO_BUF struct buf small = BUF_INIT(10);
    assert_int_equal(artefact_read(s, &key, 0, 11, &small, &err), -1);
    struct artefact_info unused;
    assert_int_equal(artefact_stat(s, &missing, &unused, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_string_equal(err.msg, "sandbox i1: no output was kept for event 8, channel stdout");
    assert_int_equal(artefact_read(s, &missing, 0, 1, &small, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    store_close(s);
}

static void test_caps(void **state)
{
    struct store *s = open_ok(*state);
    struct artefact_key key = {"i1", 1, 0};
    struct err err;
    AUTO_FREE char *block = noise(ARTEFACT_MAX);
    assert_int_equal(append(s, &key, block, ARTEFACT_MAX - 10), 0);
    assert_int_equal(append(s, &key, block, 20), 1); /* half of it */
    assert_int_equal(append(s, &key, block, 5), 1);
    assert_int_equal(info(s, &key).stored, ARTEFACT_MAX);
    assert_int_equal(info(s, &key).dropped, 15);
    assert_int_equal(store_commit(s, &err), 0);

    /* The cap of the sandbox: nobody gets more than their share, another sandbox is not concerned. */
    uint64_t stored = ARTEFACT_MAX;
    for (key.seq = 2; key.seq < 70; key.seq++) {
        (void)append(s, &key, block, ARTEFACT_MAX);
        assert_int_equal(info(s, &key).stored + info(s, &key).dropped, ARTEFACT_MAX);
        stored += info(s, &key).stored;
        assert_int_equal(store_commit(s, &err), 0);
    }
    assert_true(stored <= ARTEFACT_SANDBOX_MAX && stored > ARTEFACT_SANDBOX_MAX - ARTEFACT_MAX);
    struct artefact_key neighbour = {"i2", 1, 0};
    assert_int_equal(append(s, &neighbour, block, 1000), 0);

    /* One action's go alone, and make room for as much. */
    uint64_t seq;
    assert_int_equal(artefact_next(s, "i1", 0, &seq, &err), 0);
    assert_int_equal(seq, 1);
    assert_int_equal(artefact_next(s, "i1", 3, &seq, &err), 0);
    assert_int_equal(seq, 3);
    assert_int_equal(artefact_next(s, "i1", 70, &seq, &err), 0);
    assert_int_equal(seq, 0);
    assert_int_equal(artefact_remove(s, "i1", 3, &err), 0);
    assert_int_equal(artefact_remove(s, "i1", 3, &err), 0);
    assert_int_equal(artefact_next(s, "i1", 3, &seq, &err), 0);
    assert_int_equal(seq, 4);
    struct artefact_key later = {"i1", 71, 1};
    assert_int_equal(append(s, &later, block, ARTEFACT_MAX), 0);
    later.seq++;
    assert_int_equal(append(s, &later, block, ARTEFACT_MAX), 1);

    int calls = 0, r;
    while ((r = artefact_erase(s, "i1", &err)) == 1) {
        assert_int_equal(store_commit(s, &err), 0);
        assert_true(++calls < 100);
    }
    assert_int_equal(r, 0);
    assert_true(calls > 3); /* in steps */
    assert_int_equal(store_commit(s, &err), 0);
    assert_int_equal(artefact_erase(s, "i1", &err), 0);
    assert_int_equal(append(s, &key, block, ARTEFACT_MAX), 0); /* the share is free again */
    assert_int_equal(info(s, &neighbour).stored, 1000);
    store_close(s);
    assert_int_equal(test_sql_number(((struct test_dir *)*state)->db, "SELECT count(*) FROM artefacts"), 2);
}

/* Many tiny appends cost more than their bytes: that counts too, so the file is bounded. */
static void test_tiny_appends_are_bounded(void **state)
{
    struct store *s = open_ok(*state);
    struct artefact_key key = {"i1", 1, 0};
    for (int i = 0; i < 1000; i++)
        assert_int_equal(append(s, &key, "x", 1), 0);
    store_close(s);
    assert_true(test_sql_number(((struct test_dir *)*state)->db, "SELECT bytes FROM artefact_totals") >= 30 * 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, test_dir_setup, test_dir_teardown)
        TEST(test_ranges),
        TEST(test_caps),
        TEST(test_tiny_appends_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
