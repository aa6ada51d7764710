/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/test_rig.h"
#include "base/mem.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

static struct rig rig;

static int setup(void **state)
{
    (void)state;
    rig_start(&rig);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rig_stop(&rig);
    return 0;
}

static void expect_failure(uint8_t verb, const char *path, uint16_t code, const char *fmt, ...) PRINTF_LIKE(4, 5);
static void expect_failure(uint8_t verb, const char *path, uint16_t code, const char *fmt, ...)
{
    char text[9000];
    struct buf *b = rig_request(verb);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    wire_put_str(b, STR("user"));
    wire_put_str(b, str_of(path));
    if (verb == WIRE_READ) {
        wire_put_u64(b, 0);
        wire_put_u64(b, UINT64_MAX);
    } else if (verb == WIRE_LIST || verb == WIRE_WRITE) {
        wire_put_u32(b, verb == WIRE_LIST);
    } else if (verb == WIRE_WATCH) {
        wire_put_u8(b, 0);
    }
    rig_expect_end(&rig, rig_open(&rig, b), code, text);
}

/* ---- STAT ---- */

static void test_stat(void **state)
{
    (void)state;
    struct result x;
    char *path = rig_path(&rig, "home/a file"), *link = rig_path(&rig, "home/link");
    rig_write(path, "12345");
    assert_int_equal(chmod(path, 04751), 0);
    assert_int_equal(chown(path, 1000, 2000), 0);
    assert_int_equal(symlink("a file", link), 0);
    struct entry e = rig_stat(&rig, path, &x);
    assert_true(str_eqc(e.name, "a file") && str_eqc(e.path, path) && str_eqc(e.owner, "user") &&
                str_eqc(e.group, "extra"));
    assert_int_equal(e.type, WIRE_FILE_REGULAR);
    assert_int_equal(e.size, 5);
    assert_int_equal(e.uid, 1000);
    assert_int_equal(e.gid, 2000);
    assert_false(e.is_link);
    assert_int_equal(e.mode & 07777, 0751); /* chown took the set-id bit */
    assert_true(e.mtime > UINT64_C(1500000000) * 1000000000);
    result_fini(&x);

    e = rig_stat(&rig, link, &x);
    assert_true(e.is_link && str_eqc(e.target, path));
    assert_int_equal(e.type, WIRE_FILE_REGULAR);
    assert_true(S_ISLNK(e.link_mode) && S_ISREG(e.mode));
    assert_int_equal(e.size, 6);
    assert_true(str_eqc(e.owner, "root"));
    result_fini(&x);

    e = rig_stat(&rig, rig_path(&rig, "home"), &x);
    assert_int_equal(e.type, WIRE_FILE_DIRECTORY);
    result_fini(&x);
    e = rig_stat(&rig, "/", &x);
    assert_true(str_eqc(e.name, "/") && str_eqc(e.path, "/"));
    result_fini(&x);
}

/* ---- READ ---- */

static uint32_t open_read(const char *path, uint64_t offset, uint64_t length)
{
    struct buf *b = rig_request(WIRE_READ);
    wire_put_str(b, STR("user"));
    wire_put_str(b, str_of(path));
    wire_put_u64(b, offset);
    wire_put_u64(b, length);
    return rig_open(&rig, b);
}

static void expect_bytes(const char *path, uint64_t offset, uint64_t length, const void *want, size_t n)
{
    struct result x;
    rig_result(&rig, open_read(path, offset, length), true, &x);
    assert_string_equal(x.message, "");
    assert_int_equal(x.code, ERR_OK);
    assert_int_equal(buf_len(&x.data), n);
    if (n)
        assert_memory_equal(buf_data(&x.data), want, n);
    result_fini(&x);
}

static void test_read(void **state)
{
    (void)state;
    char *path = rig_path(&rig, "home/f");
    rig_write(path, "0123456789");
    expect_bytes("f", 0, UINT64_MAX, "0123456789", 10);
    expect_bytes("~/f", 3, 4, "3456", 4);
    expect_bytes(path, 8, 100, "89", 2);
    expect_bytes(path, 10, UINT64_MAX, "", 0);
    expect_bytes(path, UINT64_MAX, UINT64_MAX, "", 0);
    expect_bytes(path, 0, 0, "", 0);
    rig_write(path, "");
    expect_bytes(path, 0, UINT64_MAX, "", 0);
}

/* ---- WRITE ---- */

static uint32_t open_write(const char *user, const char *path, const char *const *pairs)
{
    struct buf *b = rig_request(WIRE_WRITE);
    uint32_t n = 0;
    while (pairs && pairs[2 * n])
        n++;
    wire_put_str(b, str_of(user));
    wire_put_str(b, str_of(path));
    wire_put_u32(b, n);
    for (uint32_t i = 0; i < 2 * n; i++)
        wire_put_str(b, str_of(pairs[i]));
    return rig_open(&rig, b);
}

static struct entry write_file(const char *user, const char *path, const char *const *pairs, const void *p, size_t n,
                               struct result *keep)
{
    uint32_t id = open_write(user, path, pairs);
    frame_free(rig_expect(&rig, id, WIRE_REPLY));
    if (n)
        rig_send(&rig, WIRE_DATA, 0, id, p, n);
    rig_send(&rig, WIRE_EOF, 0, id, NULL, 0);
    rig_result(&rig, id, true, keep);
    assert_string_equal(keep->message, "");
    struct wire_reader r = wire_reader_of(buf_str(&keep->tail));
    struct entry e = entry_get(&r);
    assert_true(wire_done(&r));
    return e;
}

static void test_write(void **state)
{
    (void)state;
    struct result x;
    struct stat st;
    char *path = rig_path(&rig, "home/new/dir/f");
    struct entry e = write_file("user", path, NULL, "hello", 5, &x);
    assert_true(str_eqc(e.path, path) && str_eqc(e.owner, "user") && str_eqc(e.group, "user"));
    assert_int_equal(e.size, 5);
    assert_int_equal(e.mode, S_IFREG | 0644);
    result_fini(&x);
    assert_string_equal(rig_read(path), "hello");
    assert_int_equal(stat(rig_path(&rig, "home/new"), &st), 0);
    assert_int_equal(st.st_mode, S_IFDIR | 0755);
    assert_int_equal(st.st_uid, 1000);

    assert_int_equal(chmod(path, 0700), 0);
    assert_int_equal(chown(path, 0, 0), 0);
    e = write_file("tester", path, NULL, "", 0, &x);
    assert_int_equal(e.size, 0);
    assert_int_equal(e.mode, S_IFREG | 0700);
    assert_int_equal(e.uid, 1001);
    result_fini(&x);
}

/* ---- LIST ---- */

static void expect_list(const char *path, uint32_t depth, const char *want)
{
    struct result x;
    struct buf *b = rig_request(WIRE_LIST);
    AUTO_BUF struct buf have = BUF_INIT(1 << 20);
    wire_put_str(b, STR("user"));
    wire_put_str(b, str_of(path));
    wire_put_u32(b, depth);
    rig_result(&rig, rig_open(&rig, b), true, &x);
    assert_string_equal(x.message, "");
    assert_true(x.has_head);
    struct wire_reader r = wire_reader_of(buf_str(&x.data));
    size_t skip = strlen(rig.dir);
    while (r.n) {
        struct entry e = entry_get(&r);
        assert_true(e.path.n > skip);
        (void)buf_printf(&have, "%.*s ", (int)(e.path.n - skip), e.path.p + skip);
    }
    (void)buf_append_char(&have, 0);
    assert_string_equal(buf_data(&have), want);
    result_fini(&x);
}

static void test_list(void **state)
{
    (void)state;
    assert_int_equal(mkdir(rig_path(&rig, "home/b"), 0755), 0);
    assert_int_equal(mkdir(rig_path(&rig, "home/b/c"), 0755), 0);
    rig_write(rig_path(&rig, "home/b/c/d"), "");
    rig_write(rig_path(&rig, "home/b.a"), "");
    rig_write(rig_path(&rig, "home/.hidden"), "");
    rig_write(rig_path(&rig, "home/Z"), "");
    assert_int_equal(symlink("b", rig_path(&rig, "home/a")), 0);
    expect_list("", 1, "/home/.hidden /home/Z /home/a /home/b /home/b.a ");
    expect_list("~", 2, "/home/.hidden /home/Z /home/a /home/b /home/b/c /home/b.a ");
    expect_list(rig.dir, 99,
                "/group /home /home/.hidden /home/Z /home/a /home/b /home/b/c /home/b/c/d /home/b.a /passwd ");
    expect_list("a", 0, "/home/a/c ");
    expect_list("b/c/", 3, "/home/b/c/d ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_stat, setup, teardown),
        cmocka_unit_test_setup_teardown(test_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_write, setup, teardown),
        cmocka_unit_test_setup_teardown(test_list, setup, teardown),
    };
    (void)expect_failure;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
