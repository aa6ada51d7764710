/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "image/apply/apply.h"
#include "image/apply/test_tar.h"
#include "kernel/tree/tree.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct world {
    char dir[32];
    int top, root; /* root is top/root; what lies beside it must not be touched */
    struct apply *apply;
    unsigned warnings;
};

struct image_feed {
    struct str rest;
    size_t step;
    int fail; /* -errno at the end instead of the end */
};

static void on_warning(void *ctx, const char *text)
{
    struct world *w = ctx;
    assert_true(text[0]);
    w->warnings++;
}

static void setup(struct world *w, uint64_t max_bytes, uint64_t max_entries)
{
    *w = (struct world){.dir = "/tmp/image-apply-XXXXXX"};
    assert_non_null(mkdtemp(w->dir));
    w->top = open(w->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(w->top >= 0);
    assert_int_equal(mkdirat(w->top, "root", 0755), 0);
    assert_int_equal(fd_write_file(w->top, "victim", STR("safe"), 0600), 0);
    w->root = openat(w->top, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(w->root >= 0);
    const struct apply_config config = {
        .root_fd = w->root, .max_bytes = max_bytes, .max_entries = max_entries, .warn = on_warning, .ctx = w};
    w->apply = apply_new(&config);
}

static void teardown(struct world *w)
{
    AUTO_BUF struct buf text = BUF_INIT(100);
    assert_int_equal(fd_read_file(w->top, "victim", &text), 0);
    assert_true(str_eqc(buf_str(&text), "safe"));
    apply_free(w->apply);
    (void)fd_close(w->root);
    (void)fd_close(w->top);
    assert_int_equal(tree_remove(AT_FDCWD, w->dir), 0);
}

static ssize_t read_feed(void *ctx, const void **ret_p)
{
    struct image_feed *f = ctx;
    size_t n = MIN(f->step, f->rest.n);
    *ret_p = f->rest.p;
    if (n == 0)
        return f->fail;
    f->rest = str_sub(f->rest, n);
    return (ssize_t)n;
}

static int apply_stream(struct world *w, struct buf *tar, size_t step)
{
    struct image_feed f = {.rest = buf_str(tar), .step = step};
    struct err err = {.code = ERR_OK};
    int r = apply_layer(w->apply, read_feed, &f, &err);
    assert_true(r == 0 || (err.code != ERR_OK && err.msg[0]));
    return r == 0 ? 0 : (int)err.code;
}

static bool is(struct world *w, const char *path, mode_t mode)
{
    struct stat st;
    return fstatat(w->root, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_mode == mode;
}

static void need_root(void)
{
    if (geteuid() != 0) {
        print_message("owners need root\n");
        skip();
    }
}

/* They are on the disk like what files contain. */
static void test_attributes_count(void **state)
{
    struct world w;
    char record[625 + 1];
    AUTO_BUF struct buf tar = BUF_INIT(1 << 20);
    (void)state;
    need_root();
    setup(&w, 1000, 100);
    memset(record, 'v', sizeof(record));
    memcpy(record, "625 SCHILY.xattr.user.a=", strlen("625 SCHILY.xattr.user.a="));
    memcpy(record + 624, "\n", 2);
    for (size_t i = 0; i < 2; i++) {
        test_tar_add(&tar, 'x', "x", NULL, record, 0644);
        test_tar_add(&tar, '0', i ? "b" : "a", NULL, "", 0644);
    }
    test_tar_end(&tar);
    assert_int_equal(apply_stream(&w, &tar, 512), ERR_OUT_OF_RANGE);
    assert_int_equal(apply_bytes(w.apply), 600);
    teardown(&w);
}

static void test_layers(void **state)
{
    (void)state;
    need_root();
    static const size_t steps[] = {1, 100, 512, 1 << 20};
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        struct world w;
        AUTO_BUF struct buf base = BUF_INIT(1 << 20), upper = BUF_INIT(1 << 20);
        setup(&w, 1 << 20, 100);
        test_tar_add(&base, '5', "d/", NULL, NULL, 01777);
        test_tar_add(&base, '0', "d/f", NULL, "hello", 04755);
        test_tar_add(&base, '0', "d/gone", NULL, "x", 0644);
        test_tar_add(&base, '1', "h", "d/f", NULL, 0);
        test_tar_add(&base, '2', "l", "d", NULL, 0777);
        test_tar_add(&base, '3', "dev", NULL, NULL, 0600);
        test_tar_add(&base, '6', "p", NULL, NULL, 0620);
        test_tar_end(&base);
        test_tar_add(&upper, '0', "l/through", NULL, "1", 0600);
        test_tar_add(&upper, '0', "d/.wh.gone", NULL, "", 0);
        test_tar_add(&upper, '0', "made/up/f", NULL, "", 0640);
        test_tar_end(&upper);
        assert_int_equal(apply_stream(&w, &base, steps[i]), 0);
        assert_int_equal(apply_stream(&w, &upper, steps[i]), 0);
        assert_true(is(&w, "d", S_IFDIR | 01777));
        assert_true(is(&w, "d/f", S_IFREG | 04755));
        assert_true(is(&w, "h", S_IFREG | 04755));
        assert_true(is(&w, "p", S_IFIFO | 0620));
        assert_true(is(&w, "d/through", S_IFREG | 0600));
        assert_true(is(&w, "made/up/f", S_IFREG | 0640));
        assert_int_equal(faccessat(w.root, "d/gone", F_OK, 0), -1);
        assert_int_equal(faccessat(w.root, "dev", F_OK, 0), -1);
        assert_int_equal(w.warnings, 1);
        assert_int_equal(apply_bytes(w.apply), 7);
        assert_int_equal(apply_entries(w.apply), 12);
        teardown(&w);
    }
}

static int one(struct world *w, char type, const char *name, const char *link)
{
    AUTO_BUF struct buf tar = BUF_INIT(1 << 16);
    test_tar_add(&tar, type, name, link, type == '0' ? "new" : NULL, 0644);
    test_tar_end(&tar);
    return apply_stream(w, &tar, 4096);
}

static void test_escapes(void **state)
{
    (void)state;
    need_root();
    struct world w;
    setup(&w, 1000, 100);
    assert_int_equal(one(&w, '2', "up", ".."), 0);
    assert_int_equal(one(&w, '2', "etc", "/etc"), 0);
    assert_int_equal(one(&w, '0', "../victim", NULL), ERR_INVALID_ARGUMENT);
    assert_int_equal(one(&w, '0', "a/../../victim", NULL), ERR_INVALID_ARGUMENT);
    assert_int_equal(one(&w, '1', "h", "../victim"), ERR_INVALID_ARGUMENT);
    assert_int_equal(one(&w, '1', "h", "up/victim"), ERR_INVALID_ARGUMENT);
    assert_int_equal(one(&w, '0', "up/victim", NULL), 0); /* the root's parent is the root */
    assert_true(is(&w, "victim", S_IFREG | 0644));
    assert_int_equal(one(&w, '0', "up/.wh.victim", NULL), 0);
    assert_int_equal(one(&w, '0', "etc/passwd", NULL), ERR_INVALID_ARGUMENT);
    assert_int_equal(one(&w, '0', "up/.wh...", NULL), ERR_INVALID_ARGUMENT);
    teardown(&w);
}

static void test_limits(void **state)
{
    (void)state;
    need_root();
    struct world w;
    setup(&w, 5, 3);
    assert_int_equal(one(&w, '0', "a", NULL), 0);
    assert_int_equal(one(&w, '0', "b", NULL), ERR_OUT_OF_RANGE);   /* 3 + 3 bytes */
    assert_int_equal(one(&w, '5', "x/y", NULL), ERR_OUT_OF_RANGE); /* a, b, x/y and the made x */
    teardown(&w);
}

static void test_broken_streams(void **state)
{
    (void)state;
    need_root();
    struct world w;
    AUTO_BUF struct buf tar = BUF_INIT(1 << 16);
    setup(&w, 1000, 100);
    test_tar_add(&tar, '0', "f", NULL, "0123456789", 0644);
    tar.end -= 512;
    assert_int_equal(apply_stream(&w, &tar, 100), ERR_INVALID_ARGUMENT);
    struct image_feed f = {.rest = buf_str(&tar), .step = 100, .fail = -EPIPE};
    struct err err = {.code = ERR_OK};
    assert_int_equal(apply_layer(w.apply, read_feed, &f, &err), -1);
    assert_int_equal(err.errnum, EPIPE);
    buf_clear(&tar);
    assert_int_equal(apply_stream(&w, &tar, 100), 0);
    buf_append(&tar, "rubbish", 7);
    assert_int_equal(apply_stream(&w, &tar, 100), ERR_INVALID_ARGUMENT);
    teardown(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers), cmocka_unit_test(test_attributes_count), cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_limits), cmocka_unit_test(test_broken_streams),
    };
    return cmocka_run_group_tests_name("image/apply", tests, NULL, NULL);
}
