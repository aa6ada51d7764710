/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/test_rig.h"
#include "base/mem.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
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
    for (uint32_t i = 0; pairs && i < 2 * n; i++)
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

/* ---- refusals, word for word ---- */

static void test_missing(void **state)
{
    (void)state;
    char *p = rig_path(&rig, "home/nope");
    expect_failure(WIRE_STAT, "nope", ERR_NOT_FOUND, "file not found: lstat %s: no such file or directory", p);
    expect_failure(WIRE_READ, "nope", ERR_NOT_FOUND, "path '%s' does not exist", p);
    expect_failure(WIRE_LIST, "nope", ERR_NOT_FOUND, "path not found: lstat %s: no such file or directory", p);
    expect_failure(WIRE_LIST, "nope/a/b", ERR_NOT_FOUND, "path not found: lstat %s: no such file or directory", p);
    expect_failure(WIRE_WATCH, "nope", ERR_NOT_FOUND, "path %s not found: stat %s: no such file or directory", p, p);
    expect_failure(WIRE_REMOVE, "nope", ERR_OK, "%s", "");
    assert_int_equal(symlink("gone", rig_path(&rig, "home/broken")), 0);
    expect_failure(WIRE_LIST, "broken", ERR_NOT_FOUND, "path not found: lstat %s/home/gone: no such file or directory",
                   rig.dir);
    expect_failure(WIRE_READ, "broken", ERR_NOT_FOUND, "path '%s/home/broken' does not exist", rig.dir);
    struct result x;
    struct entry e = rig_stat(&rig, rig_path(&rig, "home/broken"), &x);
    assert_true(e.is_link && str_eqc(e.target, rig_path(&rig, "home/broken")));
    assert_int_equal(e.type, WIRE_FILE_UNKNOWN);
    assert_int_equal(e.mode, 0);
    result_fini(&x);
}

static void test_component_is_a_file(void **state)
{
    (void)state;
    rig_write(rig_path(&rig, "home/f"), "");
    char *p = rig_path(&rig, "home/f/x");
    expect_failure(WIRE_STAT, "f/x", ERR_INVALID_ARGUMENT, "error getting file info: lstat %s: not a directory", p);
    expect_failure(WIRE_READ, "f/x", ERR_INVALID_ARGUMENT,
                   "error checking if path exists '%s': stat %s: not a directory", p, p);
    expect_failure(WIRE_LIST, "f/x", ERR_INVALID_ARGUMENT, "error resolving symlink: not a directory");
    expect_failure(WIRE_MKDIR, "f/x", ERR_INVALID_ARGUMENT, "path is a file: %s/home/f", rig.dir);
    expect_failure(WIRE_WRITE, "f/x", ERR_INVALID_ARGUMENT, "error ensuring directories: path is a file: %s/home/f",
                   rig.dir);
    expect_failure(WIRE_REMOVE, "f/x", ERR_INVALID_ARGUMENT,
                   "error removing file or directory: unlinkat %s: not a directory", p);
    expect_failure(WIRE_WATCH, "f/x", ERR_INVALID_ARGUMENT, "error statting path %s: stat %s: not a directory", p, p);
    expect_failure(WIRE_LIST, "f", ERR_INVALID_ARGUMENT, "path is not a directory: %s/home/f", rig.dir);
    expect_failure(WIRE_WATCH, "f", ERR_INVALID_ARGUMENT, "path %s/home/f not a directory", rig.dir);
}

static void test_paths(void **state)
{
    (void)state;
    static char longest[5000];
    struct result x;
    memset(longest, 'a', sizeof(longest) - 1);
    expect_failure(WIRE_STAT, longest, ERR_INVALID_ARGUMENT, "path of 4999 bytes: file name too long");
    longest[0] = '/';
    expect_failure(WIRE_STAT, longest, ERR_INVALID_ARGUMENT, "path of 4999 bytes: file name too long");
    longest[4095] = 0;
    expect_failure(WIRE_STAT, longest, ERR_INVALID_ARGUMENT, "error getting file info: lstat %s: file name too long",
                   longest);
    expect_failure(WIRE_READ, "~other/x", ERR_INVALID_ARGUMENT,
                   "failed to expand path '~other/x' for user 'user': cannot expand user-specific home dir");
    struct buf *b = rig_request(WIRE_STAT);
    wire_put_str(b, STR("user"));
    wire_put_str(b, STR("/etc/passwd\0x"));
    rig_expect_end(&rig, rig_open(&rig, b), ERR_INVALID_ARGUMENT, "path contains a NUL byte");
    rig_expect_end(&rig, rig_open_path(&rig, WIRE_STAT, "x'y", "/"), ERR_UNAUTHENTICATED, "invalid username: 'x'y'");

    /* Absolute paths stay as they are, relative ones are cleaned. */
    rig_result(&rig, rig_open_path(&rig, WIRE_STAT, "user", rig_path(&rig, "home/../home//")), true, &x);
    struct wire_reader r = wire_reader_of(buf_str(&x.tail));
    struct entry e = entry_get(&r);
    assert_true(str_eqc(e.path, rig_path(&rig, "home/../home//")) && str_eqc(e.name, "home"));
    result_fini(&x);
    rig_result(&rig, rig_open_path(&rig, WIRE_STAT, "", "./a/..//"), true, &x);
    r = wire_reader_of(buf_str(&x.tail));
    e = entry_get(&r);
    assert_true(str_eqc(e.path, rig_path(&rig, "home")));
    result_fini(&x);

    /* Names of any bytes. */
    static const char odd[] = "\xff\n\x1b[31m \"'\\\xe2\x80\xae";
    rig_write(rig_path(&rig, "home/%s", odd), "x");
    e = rig_stat(&rig, rig_path(&rig, "home/%s", odd), &x);
    assert_true(str_eqc(e.name, odd));
    result_fini(&x);
    expect_bytes(odd, 0, UINT64_MAX, "x", 1);
}

static void test_loops(void **state)
{
    (void)state;
    char *p = rig_path(&rig, "home/loop");
    assert_int_equal(symlink("loop", p), 0);
    expect_failure(WIRE_LIST, "loop", ERR_FAILED_PRECONDITION, "cyclic symlink or chain >255 links at \"%s\"", p);
    expect_failure(WIRE_READ, "loop", ERR_FAILED_PRECONDITION,
                   "error checking if path exists '%s': stat %s: too many levels of symbolic links", p, p);
    expect_failure(WIRE_WRITE, "loop", ERR_FAILED_PRECONDITION,
                   "error opening file: open %s: too many levels of symbolic links", p);
    assert_int_equal(symlink(".", rig_path(&rig, "home/self")), 0);
    expect_list("", 50, "/home/loop /home/self ");
    expect_list("self", 50, "/home/self/loop /home/self/self ");
}

/* None of them is opened, so nothing hangs and nothing happens to whoever is at the other end. */
static void test_special_files(void **state)
{
    (void)state;
    struct result x;
    static const char *const names[] = {"fifo", "socket", "/dev/zero", "/dev/tty", "device"};
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/home/socket", rig.dir);
    assert_int_equal(bind(s, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(mkfifo(rig_path(&rig, "home/fifo"), 0644), 0);
    if (mknod(rig_path(&rig, "home/device"), S_IFCHR | 0600, 0x105) < 0)
        assert_int_equal(mkfifo(rig_path(&rig, "home/device"), 0600), 0);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char *path = *names[i] == '/' ? (char *)names[i] : rig_path(&rig, "home/%s", names[i]);
        expect_failure(WIRE_READ, names[i], ERR_INVALID_ARGUMENT, "path '%s' is not a regular file", path);
        expect_failure(WIRE_WRITE, names[i], ERR_INVALID_ARGUMENT, "path '%s' is not a regular file", path);
        struct entry e = rig_stat(&rig, path, &x);
        assert_int_equal(e.type, WIRE_FILE_UNKNOWN);
        assert_false(e.is_link);
        result_fini(&x);
    }
    assert_int_equal(symlink("fifo", rig_path(&rig, "home/to-fifo")), 0);
    expect_failure(WIRE_READ, "to-fifo", ERR_INVALID_ARGUMENT, "path '%s/home/to-fifo' is not a regular file", rig.dir);
    expect_list("", 2, "/home/device /home/fifo /home/socket /home/to-fifo ");
    expect_failure(WIRE_READ, "", ERR_INVALID_ARGUMENT, "path '%s/home' is a directory", rig.dir);
    expect_failure(WIRE_WRITE, "", ERR_INVALID_ARGUMENT, "path is a directory: %s/home", rig.dir);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (*names[i] != '/')
            expect_failure(WIRE_REMOVE, names[i], ERR_OK, "%s", "");
    (void)close(s);
}

static void test_procfs(void **state)
{
    (void)state;
    struct result x;
    rig_result(&rig, open_read("/proc/sys/kernel/ostype", 0, UINT64_MAX), true, &x);
    assert_true(str_eqc(buf_str(&x.data), "Linux\n"));
    result_fini(&x);
    rig_result(&rig, open_read("/proc/sys/kernel/ostype", 2, 2), true, &x);
    assert_true(str_eqc(buf_str(&x.data), "nu"));
    result_fini(&x);
    rig_result(&rig, open_read("/proc/self/mem", 0, 100), true, &x);
    assert_string_equal(x.message, "error reading file '/proc/self/mem': read /proc/self/mem: input/output error");
    result_fini(&x);
    rig_result(&rig, open_read("/proc/cpuinfo", 0, UINT64_MAX), true, &x);
    assert_int_equal(x.code, ERR_OK);
    assert_true(buf_len(&x.data) > 100);
    result_fini(&x);
}

/* ---- writing ---- */

static void test_metadata(void **state)
{
    (void)state;
    static const char *const two[] = {"author", "me", "empty", "", NULL}, *const one[] = {"other", "x", NULL};
    struct result x;
    char *path = rig_path(&rig, "home/f"), key[300];
    struct entry e = write_file("user", "f", two, "1", 1, &x);
    if (e.n_metadata == 0) {
        result_fini(&x);
        skip();
    }
    assert_int_equal(e.n_metadata, 2);
    result_fini(&x);
    assert_int_equal(setxattr(path, "user.foreign", "keep", 4, 0), 0);
    assert_int_equal(setxattr(path, "user.e2b.bad", "\xff", 1, 0), 0);
    e = rig_stat(&rig, path, &x);
    assert_int_equal(e.n_metadata, 2); /* foreign ones and what is no text are not told */
    bool first = str_eqc(e.metadata[0][0], "author");
    assert_true(str_eqc(e.metadata[!first][0], "author") && str_eqc(e.metadata[!first][1], "me"));
    assert_true(str_eqc(e.metadata[first][0], "empty") && str_eqc(e.metadata[first][1], ""));
    result_fini(&x);
    assert_int_equal(symlink("f", rig_path(&rig, "home/link")), 0);
    e = rig_stat(&rig, rig_path(&rig, "home/link"), &x);
    assert_int_equal(e.n_metadata, 2);
    result_fini(&x);
    e = write_file("user", "f", one, "1", 1, &x);
    assert_int_equal(e.n_metadata, 1);
    result_fini(&x);
    e = write_file("user", "f", NULL, "1", 1, &x);
    assert_int_equal(e.n_metadata, 0);
    result_fini(&x);
    assert_int_equal(getxattr(path, "user.foreign", key, sizeof(key)), 4);

    memset(key, 'k', sizeof(key));
    key[247] = 0;
    char message[400];
    (void)snprintf(message, sizeof(message), "invalid metadata: metadata key \"%s\" exceeds 246 bytes", key);
    const char *too_long[] = {key, "v", NULL};
    rig_expect_end(&rig, open_write("user", "f", too_long), ERR_INVALID_ARGUMENT, message);
    static char value[4090];
    memset(value, 'v', sizeof(value) - 1);
    const char *too_much[] = {"k", value, NULL};
    rig_expect_end(&rig, open_write("user", "new", too_much), ERR_INVALID_ARGUMENT,
                   "invalid metadata: total metadata size 4099 exceeds 4096 bytes");
    expect_failure(WIRE_STAT, "new", ERR_NOT_FOUND, "file not found: lstat %s/home/new: no such file or directory",
                   rig.dir);
}

/* In place: links are followed, hard links and the inode stay. */
static void test_write_through_links(void **state)
{
    (void)state;
    struct result x;
    struct stat st, before;
    rig_write(rig_path(&rig, "home/f"), "a longer text");
    assert_int_equal(link(rig_path(&rig, "home/f"), rig_path(&rig, "home/hard")), 0);
    assert_int_equal(symlink("f", rig_path(&rig, "home/soft")), 0);
    assert_int_equal(symlink("dangling", rig_path(&rig, "home/nowhere")), 0);
    assert_int_equal(stat(rig_path(&rig, "home/f"), &before), 0);
    struct entry e = write_file("user", "soft", NULL, "short", 5, &x);
    assert_true(e.is_link && str_eqc(e.name, "soft"));
    result_fini(&x);
    assert_int_equal(stat(rig_path(&rig, "home/hard"), &st), 0);
    assert_int_equal(st.st_ino, before.st_ino);
    assert_int_equal(st.st_size, 5);
    assert_int_equal(st.st_uid, 1000);
    (void)write_file("user", "nowhere", NULL, "made", 4, &x);
    result_fini(&x);
    assert_string_equal(rig_read(rig_path(&rig, "home/dangling")), "made");
}

static void test_write_in_pieces_and_abandoned(void **state)
{
    (void)state;
    enum { TOTAL = 3 * 1024 * 1024 };
    static char block[100000];
    struct result x;
    uint32_t id = open_write("root", rig_path(&rig, "big"), NULL);
    frame_free(rig_expect(&rig, id, WIRE_REPLY));
    size_t sent = 0, credit = WIRE_WINDOW, n = 1;
    while (sent < TOTAL) {
        n = MIN(MIN(n * 7, sizeof(block)), TOTAL - sent);
        while (credit < n) {
            struct frame *f = rig_expect(&rig, id, WIRE_CREDIT);
            struct wire_reader r = wire_reader_of(str_n(f->payload, f->n));
            credit += wire_get_u32(&r);
            assert_true(credit <= WIRE_WINDOW);
            frame_free(f);
        }
        for (size_t i = 0; i < n; i++)
            block[i] = (char)((sent + i) * 2654435761u >> 13);
        rig_send(&rig, WIRE_DATA, 0, id, block, n);
        sent += n;
        credit -= n;
    }
    rig_send(&rig, WIRE_EOF, 0, id, NULL, 0);
    rig_result(&rig, id, true, &x);
    assert_string_equal(x.message, "");
    result_fini(&x);
    rig_result(&rig, open_read(rig_path(&rig, "big"), 0, UINT64_MAX), true, &x);
    assert_int_equal(buf_len(&x.data), TOTAL);
    for (size_t i = 0; i < TOTAL; i++)
        assert_int_equal(buf_data(&x.data)[i], (char)(i * 2654435761u >> 13));
    result_fini(&x);

    id = open_write("root", rig_path(&rig, "partial"), NULL);
    frame_free(rig_expect(&rig, id, WIRE_REPLY));
    rig_send(&rig, WIRE_DATA, 0, id, "part", 4);
    rig_send(&rig, WIRE_CLOSE, 0, id, NULL, 0);
    rig_expect_end(&rig, id, ERR_CANCELED, "closed");
    assert_string_equal(rig_read(rig_path(&rig, "partial")), "part");
}

static void test_no_space(void **state)
{
    (void)state;
    static char block[128 * 1024];
    uint32_t id = open_write("root", "/dev/full", NULL);
    rig_expect_end(&rig, id, ERR_INVALID_ARGUMENT, "path '/dev/full' is not a regular file");
    char *dir = rig_path(&rig, "small");
    assert_int_equal(mkdir(dir, 0755), 0);
    if (mount("none", dir, "tmpfs", 0, "size=64k") < 0)
        skip();
    id = open_write("root", rig_path(&rig, "small/f"), NULL);
    frame_free(rig_expect(&rig, id, WIRE_REPLY));
    rig_send(&rig, WIRE_DATA, 0, id, block, sizeof(block));
    rig_expect_end(&rig, id, ERR_RESOURCE_EXHAUSTED, "not enough disk space available: no space left on device");
    rig_send(&rig, WIRE_EOF, 0, id, NULL, 0); /* crossed the END */
    rig_expect_end(&rig, rig_open(&rig, rig_request(WIRE_PING)), ERR_OK, "");
    assert_int_equal(umount2(dir, MNT_DETACH), 0);
}

static void test_shrinking_file(void **state)
{
    (void)state;
    char *path = rig_path(&rig, "f");
    rig_write(path, "x");
    assert_int_equal(truncate(path, 1024 * 1024), 0);
    uint32_t id = open_read(path, 0, UINT64_MAX);
    frame_free(rig_expect(&rig, id, WIRE_REPLY));
    frame_free(rig_expect(&rig, id, WIRE_DATA));
    assert_int_equal(truncate(path, 100), 0);
    rig_credit(&rig, id, WIRE_WINDOW, true);
    char message[200];
    (void)snprintf(message, sizeof(message), "file '%s' became shorter while it was read", path);
    rig_expect_end(&rig, id, ERR_ABORTED, message);
}

/* ---- directories ---- */

static void test_mkdir(void **state)
{
    (void)state;
    struct result x;
    struct stat st;
    rig_result(&rig, rig_open_path(&rig, WIRE_MKDIR, "user", "a/b/c"), true, &x);
    assert_string_equal(x.message, "");
    struct wire_reader r = wire_reader_of(buf_str(&x.tail));
    struct entry e = entry_get(&r);
    assert_true(str_eqc(e.path, rig_path(&rig, "home/a/b/c")) && str_eqc(e.owner, "user"));
    assert_int_equal(e.mode, S_IFDIR | 0755);
    result_fini(&x);
    assert_int_equal(stat(rig_path(&rig, "home/a"), &st), 0);
    assert_int_equal(st.st_uid, 1000);
    expect_failure(WIRE_MKDIR, "a/b", ERR_ALREADY_EXISTS, "directory already exists: %s/home/a/b", rig.dir);
    assert_int_equal(symlink("a", rig_path(&rig, "home/link")), 0);
    expect_failure(WIRE_MKDIR, "link", ERR_ALREADY_EXISTS, "directory already exists: %s/home/link", rig.dir);
    rig_write(rig_path(&rig, "home/f"), "");
    expect_failure(WIRE_MKDIR, "f", ERR_INVALID_ARGUMENT, "path already exists but it is not a directory: %s/home/f",
                   rig.dir);
}

static uint32_t open_move(const char *from, const char *to)
{
    struct buf *b = rig_request(WIRE_MOVE);
    wire_put_str(b, STR("user"));
    wire_put_str(b, str_of(from));
    wire_put_str(b, str_of(to));
    return rig_open(&rig, b);
}

static void move(const char *from, const char *to)
{
    struct result x;
    rig_result(&rig, open_move(from, to), true, &x);
    assert_string_equal(x.message, "");
    struct wire_reader r = wire_reader_of(buf_str(&x.tail));
    struct entry e = entry_get(&r);
    assert_true(str_ends(e.path, str_of(to)));
    assert_true(wire_done(&r));
    result_fini(&x);
}

static void test_move(void **state)
{
    (void)state;
    char message[600];
    rig_write(rig_path(&rig, "home/f"), "f");
    rig_write(rig_path(&rig, "home/g"), "g");
    move("f", "new/dir/f");
    assert_string_equal(rig_read(rig_path(&rig, "home/new/dir/f")), "f");
    move("new/dir/f", "g");
    assert_string_equal(rig_read(rig_path(&rig, "home/g")), "f");
    (void)snprintf(message, sizeof(message),
                   "source file not found: rename %s/home/nope %s/home/x: no such file or directory", rig.dir, rig.dir);
    rig_expect_end(&rig, open_move("nope", "x"), ERR_NOT_FOUND, message);
    (void)snprintf(message, sizeof(message), "error renaming: rename %s/home/g %s/home/new: file exists", rig.dir,
                   rig.dir);
    rig_expect_end(&rig, open_move("g", "new"), ERR_ALREADY_EXISTS, message);
    (void)snprintf(message, sizeof(message), "error renaming: rename %s/home/new %s/home/new/dir/x: invalid argument",
                   rig.dir, rig.dir);
    rig_expect_end(&rig, open_move("new", "new/dir/x"), ERR_INVALID_ARGUMENT, message);
    (void)snprintf(message, sizeof(message), "path is a file: %s/home/g", rig.dir);
    rig_expect_end(&rig, open_move("new", "g/x"), ERR_INVALID_ARGUMENT, message);
    char name[257] = {0};
    memset(name, 'n', 256);
    (void)snprintf(message, sizeof(message), "error renaming: rename %s/home/g %s/home/%s: file name too long", rig.dir,
                   rig.dir, name);
    rig_expect_end(&rig, open_move("g", name), ERR_INVALID_ARGUMENT, message);
    (void)snprintf(message, sizeof(message), "error creating directory: mkdir %s/home/%s: file name too long", rig.dir,
                   name);
    rig_expect_end(&rig, rig_open_path(&rig, WIRE_MKDIR, "user", name), ERR_INVALID_ARGUMENT, message);
    rig_expect_end(&rig, open_move("g", rig_path(&rig, "home/%s/x", name)), ERR_INVALID_ARGUMENT, message);
    assert_string_equal(rig_read(rig_path(&rig, "home/g")), "f");
}

/* Over file systems: a copy, with all there is, then the source goes. */
static void test_move_across(void **state)
{
    (void)state;
    struct stat st, moved;
    char target[32] = {0}, value[8];
    char *dir = rig_path(&rig, "other");
    assert_int_equal(mkdir(dir, 0755), 0);
    if (mount("none", dir, "tmpfs", 0, NULL) < 0)
        skip();
    assert_int_equal(mkdir(rig_path(&rig, "home/t"), 0751), 0);
    assert_int_equal(mkdir(rig_path(&rig, "home/t/sub"), 0700), 0);
    rig_write(rig_path(&rig, "home/t/sub/f"), "content");
    assert_int_equal(setxattr(rig_path(&rig, "home/t/sub/f"), "user.e2b.k", "v", 1, 0), 0);
    assert_int_equal(chown(rig_path(&rig, "home/t/sub/f"), 1001, 2000), 0);
    assert_int_equal(chmod(rig_path(&rig, "home/t/sub/f"), 04711), 0);
    assert_int_equal(symlink("../away", rig_path(&rig, "home/t/link")), 0);
    assert_int_equal(mkfifo(rig_path(&rig, "home/t/fifo"), 0640), 0);
    assert_int_equal(stat(rig_path(&rig, "home/t/sub/f"), &st), 0);
    move(rig_path(&rig, "home/t"), rig_path(&rig, "other/t2"));
    assert_int_equal(lstat(rig_path(&rig, "home/t"), &moved), -1);
    assert_string_equal(rig_read(rig_path(&rig, "other/t2/sub/f")), "content");
    assert_int_equal(stat(rig_path(&rig, "other/t2/sub/f"), &moved), 0);
    assert_int_equal(moved.st_mode, st.st_mode);
    assert_int_equal(moved.st_uid, 1001);
    assert_int_equal(moved.st_gid, 2000);
    assert_int_equal(moved.st_mtim.tv_nsec, st.st_mtim.tv_nsec);
    if (getxattr(rig_path(&rig, "other/t2/sub/f"), "user.e2b.k", value, sizeof(value)) != 1)
        assert_int_equal(errno, EOPNOTSUPP); /* tmpfs before Linux 6.6 */
    assert_int_equal(stat(rig_path(&rig, "other/t2"), &moved), 0);
    assert_int_equal(moved.st_mode, S_IFDIR | 0751);
    assert_int_equal(readlink(rig_path(&rig, "other/t2/link"), target, sizeof(target)), 7);
    assert_string_equal(target, "../away");
    assert_int_equal(lstat(rig_path(&rig, "other/t2/fifo"), &moved), 0);
    assert_int_equal(moved.st_mode, S_IFIFO | 0640);
    /* Nothing is left of a copy that could not take its place. */
    assert_int_equal(mkdir(rig_path(&rig, "home/full"), 0755), 0);
    rig_write(rig_path(&rig, "home/full/x"), "");
    char message[600];
    (void)snprintf(message, sizeof(message), "error renaming: rename %s/other/t2 %s/home/full: file exists", rig.dir,
                   rig.dir);
    rig_expect_end(&rig, open_move(rig_path(&rig, "other/t2"), "full"), ERR_ALREADY_EXISTS, message);
    expect_list("", 1, "/home/full ");
    assert_int_equal(umount2(rig_path(&rig, "other"), MNT_DETACH), 0);
}

static void test_remove(void **state)
{
    (void)state;
    struct stat st;
    assert_int_equal(mkdir(rig_path(&rig, "home/keep"), 0755), 0);
    rig_write(rig_path(&rig, "home/keep/f"), "");
    assert_int_equal(mkdir(rig_path(&rig, "home/d"), 0755), 0);
    assert_int_equal(mkdir(rig_path(&rig, "home/d/e"), 0), 0);
    for (int i = 0; i < 3000; i++)
        rig_write(rig_path(&rig, "home/d/e/%d", i), "");
    assert_int_equal(symlink("../keep", rig_path(&rig, "home/d/link")), 0);
    assert_int_equal(symlink("keep", rig_path(&rig, "home/link")), 0);
    expect_failure(WIRE_REMOVE, "d", ERR_OK, "%s", "");
    expect_failure(WIRE_REMOVE, "link", ERR_OK, "%s", "");
    assert_int_equal(lstat(rig_path(&rig, "home/d"), &st), -1);
    assert_int_equal(lstat(rig_path(&rig, "home/link"), &st), -1);
    assert_int_equal(stat(rig_path(&rig, "home/keep/f"), &st), 0);
    expect_failure(WIRE_REMOVE, "/", ERR_INVALID_ARGUMENT,
                   "error removing file or directory: unlinkat /: refused for the root directory");
    expect_failure(WIRE_REMOVE, "/tmp/..", ERR_INVALID_ARGUMENT,
                   "error removing file or directory: unlinkat /tmp/..: refused for the root directory");
    expect_failure(WIRE_REMOVE, "/proc/1", ERR_PERMISSION_DENIED,
                   "error removing file or directory: unlinkat /proc/1: operation not permitted");
}

/* Deeper than a path can be long, and than there are descriptors. */
static void test_deep_tree(void **state)
{
    (void)state;
    enum { DEPTH = 3000 };
    struct stat st;
    struct result x;
    char *top = rig_path(&rig, "home/deep");
    assert_int_equal(mkdir(top, 0755), 0);
    int fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < DEPTH; i++) {
        assert_int_equal(mkdirat(fd, "dd", 0755), 0);
        int next = openat(fd, "dd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        (void)close(fd);
        fd = next;
    }
    (void)close(fd);
    struct buf *b = rig_request(WIRE_LIST);
    wire_put_str(b, STR("user"));
    wire_put_str(b, STR("deep"));
    wire_put_u32(b, UINT32_MAX);
    rig_result(&rig, rig_open(&rig, b), true, &x);
    assert_string_equal(x.message, "");
    assert_true(buf_len(&x.data) > 1000 * 1000);
    result_fini(&x);
    expect_failure(WIRE_REMOVE, "deep", ERR_OK, "%s", "");
    assert_int_equal(lstat(top, &st), -1);
}

/* Many entries, slowly taken: the job is held back by credit, others are not. */
static void test_large_directory(void **state)
{
    (void)state;
    enum { FILES = 5000 };
    size_t n = 0, got = 0;
    for (int i = 0; i < FILES; i++)
        rig_write(rig_path(&rig, "home/%05d", i), "");
    struct buf *b = rig_request(WIRE_LIST);
    wire_put_str(b, STR("user"));
    wire_put_str(b, STR(""));
    wire_put_u32(b, 1);
    uint32_t id = rig_open(&rig, b);
    frame_free(rig_expect(&rig, id, WIRE_REPLY));
    AUTO_BUF struct buf all = BUF_INIT(4 << 20);
    for (struct frame *f; (f = rig_next(&rig, id, 100)); frame_free(f)) {
        assert_int_equal(f->type, WIRE_DATA);
        (void)buf_append(&all, f->payload, f->n);
    }
    assert_true(buf_len(&all) <= WIRE_WINDOW);
    rig_expect_end(&rig, rig_open(&rig, rig_request(WIRE_PING)), ERR_OK, "");
    got = buf_len(&all);
    rig_credit(&rig, id, (uint32_t)got, true);
    struct result x;
    rig_result(&rig, id, true, &x);
    (void)buf_append_str(&all, buf_str(&x.data));
    result_fini(&x);
    struct wire_reader r = wire_reader_of(buf_str(&all));
    for (; r.n; n++) {
        char want[8];
        struct entry e = entry_get(&r);
        (void)snprintf(want, sizeof(want), "%05zu", n);
        assert_true(str_eqc(e.name, want));
    }
    assert_int_equal(n, FILES);
}

/* More of them than run at a time; some are given up. */
static void test_many_jobs(void **state)
{
    (void)state;
    enum { JOBS = 200 };
    uint32_t ids[JOBS];
    for (int i = 0; i < JOBS; i++) {
        struct buf *b = rig_request(WIRE_LIST);
        wire_put_str(b, STR("user"));
        wire_put_str(b, str_of("/usr"));
        wire_put_u32(b, 3);
        ids[i] = rig_open(&rig, b);
    }
    for (int i = 0; i < JOBS; i++)
        if (i % 10)
            rig_send(&rig, WIRE_CLOSE, 0, ids[i], NULL, 0);
    for (int i = 0; i < JOBS; i++) {
        struct result x;
        rig_result(&rig, ids[i], true, &x);
        if (i % 10 == 0)
            assert_int_equal(x.code, ERR_OK);
        result_fini(&x);
    }
}

static void test_usage(void **state)
{
    (void)state;
    struct result x;
    rig_result(&rig, rig_open(&rig, rig_request(WIRE_USAGE)), true, &x);
    struct wire_reader r = wire_reader_of(buf_str(&x.tail));
    uint64_t total = wire_get_u64(&r), used = wire_get_u64(&r);
    assert_true(total > used && used > 0);
    assert_true(wire_get_u32(&r) >= 2);
    assert_true(wire_done(&r));
    result_fini(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_stat, setup, teardown),
        cmocka_unit_test_setup_teardown(test_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_write, setup, teardown),
        cmocka_unit_test_setup_teardown(test_list, setup, teardown),
        cmocka_unit_test_setup_teardown(test_missing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_component_is_a_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_paths, setup, teardown),
        cmocka_unit_test_setup_teardown(test_loops, setup, teardown),
        cmocka_unit_test_setup_teardown(test_special_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_procfs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_metadata, setup, teardown),
        cmocka_unit_test_setup_teardown(test_write_through_links, setup, teardown),
        cmocka_unit_test_setup_teardown(test_write_in_pieces_and_abandoned, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_space, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shrinking_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_mkdir, setup, teardown),
        cmocka_unit_test_setup_teardown(test_move, setup, teardown),
        cmocka_unit_test_setup_teardown(test_move_across, setup, teardown),
        cmocka_unit_test_setup_teardown(test_remove, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deep_tree, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large_directory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_jobs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_usage, setup, teardown),
    };
    /* What is mounted here goes with the test, whatever becomes of it. */
    if (unshare(CLONE_NEWNS) == 0)
        (void)mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
