/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "image/apply/tarindex.h"
#include "image/apply/test_tar.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>

#include <cmocka.h>

static const struct tarindex_limits limits = {.files = 10, .names_bytes = 2000};

/* 0, or the code of the error. */
static int index_of(const struct buf *tar, struct tarindex **ret_index)
{
    AUTO_CLOSE int fd = memfd_create("tar", MFD_CLOEXEC);
    struct err err = {.code = ERR_OK};
    assert_int_equal(fd_write_all(fd, buf_data(tar), buf_len(tar)), 0);
    return tarindex_open(fd, &limits, ret_index, &err) < 0 ? (int)err.code : 0;
}

static void finds(const struct tarindex *t, const struct buf *tar, const char *name, const char *content)
{
    uint64_t offset, size;
    assert_true(tarindex_find(t, name, &offset, &size));
    assert_int_equal(size, strlen(content));
    assert_memory_equal(buf_data(tar) + offset, content, size);
}

static void test_names(void **state)
{
    (void)state;
    AUTO_BUF struct buf tar = BUF_INIT(1 << 16);
    AUTO(tarindex_free) struct tarindex *t = NULL;
    test_tar_add(&tar, '5', "blobs/", NULL, NULL, 0755);
    test_tar_add(&tar, '0', "./index.json", NULL, "{}", 0644);
    test_tar_add(&tar, '0', "a/layer.tar", NULL, "first", 0644);
    test_tar_add(&tar, '2', "b/layer.tar", "../a/layer.tar", NULL, 0777);
    test_tar_add(&tar, '1', "c", "a/layer.tar", NULL, 0777);
    test_tar_add(&tar, 'L', "././@LongLink", NULL, "long/name", 0);
    test_tar_add(&tar, '0', "short", NULL, "gnu", 0644);
    test_tar_add(&tar, 'x', "pax", NULL, "17 path=pax/name\n", 0);
    test_tar_add(&tar, '0', "short2", NULL, "pax", 0644);
    test_tar_add(&tar, '2', "loop", "loop", NULL, 0777);
    test_tar_add(&tar, '0', "twice", NULL, "1", 0644);
    test_tar_add(&tar, '0', "twice", NULL, "22", 0644);
    test_tar_end(&tar);
    assert_int_equal(index_of(&tar, &t), 0);
    finds(t, &tar, "index.json", "{}");
    finds(t, &tar, "b/layer.tar", "first");
    finds(t, &tar, "c", "first");
    finds(t, &tar, "long/name", "gnu");
    finds(t, &tar, "pax/name", "pax");
    finds(t, &tar, "twice", "22");
    uint64_t x;
    assert_false(tarindex_find(t, "loop", &x, &x));
    assert_false(tarindex_find(t, "short", &x, &x));
    assert_false(tarindex_find(t, "blobs/", &x, &x));
}

static void test_broken(void **state)
{
    (void)state;
    struct tarindex *t;
    AUTO_BUF struct buf tar = BUF_INIT(1 << 16);
    assert_int_equal(index_of(&tar, &t), ERR_INVALID_ARGUMENT);
    test_tar_add(&tar, '0', "f", NULL, "0123456789", 0644);
    tar.end -= 511;
    assert_int_equal(index_of(&tar, &t), ERR_INVALID_ARGUMENT);
    static const char *const pax[] = {"5 a=b\n",  "99 path=x\n",   "0 path=x\n", "9 path=x ",
                                      "nonsense", "12 size=-1 \n", "3 \n"};
    for (size_t i = 0; i < ARRAY_SIZE(pax); i++) {
        buf_clear(&tar);
        test_tar_add(&tar, 'x', "pax", NULL, pax[i], 0);
        test_tar_add(&tar, '0', "f", NULL, "1", 0644);
        assert_int_equal(index_of(&tar, &t), ERR_INVALID_ARGUMENT);
    }
    buf_clear(&tar);
    test_tar_add(&tar, '0', "f", NULL, "1", 0644);
    buf_data(&tar)[3] ^= 1;
    assert_int_equal(index_of(&tar, &t), ERR_INVALID_ARGUMENT);
    buf_clear(&tar);
    char name[] = "a";
    for (int i = 0; i < 11; i++, name[0]++)
        test_tar_add(&tar, '0', name, NULL, NULL, 0644);
    assert_int_equal(index_of(&tar, &t), ERR_OUT_OF_RANGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_broken),
    };
    return cmocka_run_group_tests_name("image/tarindex", tests, NULL, NULL);
}
