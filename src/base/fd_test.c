/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int open_fds(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void pair(int type, int fds[2])
{
    assert_int_equal(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds), 0);
}

static void test_flags_and_closing(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(fd_cloexec(fds[0], true), 0);
    assert_int_equal(fcntl(fds[0], F_GETFD), FD_CLOEXEC);
    assert_int_equal(fd_cloexec(fds[0], false), 0);
    assert_int_equal(fcntl(fds[0], F_GETFD), 0);
    assert_int_equal(fd_nonblock(fds[0], true), 0);
    assert_true(fcntl(fds[0], F_GETFL) & O_NONBLOCK);
    assert_int_equal(fd_nonblock(fds[0], false), 0);
    assert_false(fcntl(fds[0], F_GETFL) & O_NONBLOCK);
    errno = 42;
    assert_int_equal(fd_close(fds[0]), -1);
    assert_int_equal(fd_close(fds[0]), -1); /* a stale one: errno is kept all the same */
    assert_int_equal(fd_close(-1), -1);
    assert_int_equal(errno, 42);
    assert_int_equal(fd_nonblock(fds[0], true), -EBADF);
    (void)fd_close(fds[1]);
}

static void test_lasting(void **state)
{
    (void)state;
    int low = open("/dev/null", O_RDONLY), fd = fd_lasting(low);
    assert_int_equal(fd_lasting(-1), -1);
    if (fd != low) { /* there is room */
        assert_true(fd >= FD_LASTING && fcntl(low, F_GETFD) < 0);
        assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
        assert_int_equal(fd_lasting(fd), fd);
    }
    fd = fd_close(fd);
}

static void test_files(void **state)
{
    (void)state;
    char dir[] = "/tmp/cove-test-XXXXXX";
    assert_non_null(mkdtemp(dir));
    AUTO_CLOSE int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int before = open_fds();
    size_t n = 100000;
    AUTO_FREE char *content = mem_alloc(n);
    memset(content, 'c', n);
    AUTO_BUF struct buf exact = BUF_INIT(100000), small = BUF_INIT(99999);
    assert_int_equal(fd_write_file(dirfd, "f", str_n(content, n), 0600), 0);
    assert_int_equal(fd_read_file(dirfd, "f", &exact), 0); /* exactly the maximum is fine */
    assert_int_equal(buf_len(&exact), n);
    assert_int_equal(fd_read_file(dirfd, "f", &small), -ENOBUFS);
    assert_int_equal(fd_write_file(dirfd, "f", STR("short"), 0600), 0); /* truncates */
    buf_clear(&exact);
    assert_int_equal(fd_read_file(dirfd, "f", &exact), 0);
    assert_true(str_eqc(buf_str(&exact), "short"));
    assert_int_equal(fd_write_existing(dirfd, "f", STR("SH")), 0);
    assert_int_equal(fd_read_file(dirfd, "f", &exact), 0); /* appends */
    assert_true(str_eqc(buf_str(&exact), "shortSHort"));
    assert_int_equal(fd_write_existing(dirfd, "g", STR("x")), -ENOENT);
    assert_int_equal(fd_read_file(dirfd, "g", &exact), -ENOENT);
    assert_int_equal(symlinkat("f", dirfd, "link"), 0);
    assert_int_equal(fd_write_file(dirfd, "link", STR("x"), 0600), -ELOOP);
    assert_int_equal(open_fds(), before);
    assert_int_equal(unlinkat(dirfd, "f", 0), 0);
    assert_int_equal(unlinkat(dirfd, "link", 0), 0);
    assert_int_equal(rmdir(dir), 0);
}

static bool same_file(int a, int b)
{
    struct stat sa, sb;
    assert_int_equal(fstat(a, &sa), 0);
    assert_int_equal(fstat(b, &sb), 0);
    return sa.st_ino == sb.st_ino && sa.st_dev == sb.st_dev;
}

static void test_passing(void **state)
{
    (void)state;
    static const int types[] = {SOCK_SEQPACKET, SOCK_STREAM};
    int before = open_fds();
    for (size_t t = 0; t < ARRAY_SIZE(types); t++) {
        int s[2], send[FD_PASS_MAX], got[FD_PASS_MAX];
        size_t n_got = 99;
        char text[16];
        pair(types[t], s);
        for (int i = 0; i < FD_PASS_MAX; i += 2)
            assert_int_equal(pipe(send + i), 0);
        for (size_t n = 0; n <= FD_PASS_MAX; n++) {
            assert_int_equal(fd_send(s[0], "hello", 5, send, n), 0);
            assert_int_equal(fd_recv(s[1], text, sizeof(text), got, FD_PASS_MAX, &n_got), 5);
            assert_memory_equal(text, "hello", 5);
            assert_int_equal(n_got, n);
            for (size_t i = 0; i < n; i++) {
                assert_true(same_file(got[i], send[i]));
                assert_int_equal(fcntl(got[i], F_GETFD), FD_CLOEXEC);
                (void)fd_close(got[i]);
            }
        }
        for (int i = 0; i < FD_PASS_MAX; i++)
            (void)fd_close(send[i]);
        (void)fd_close(s[0]);
        assert_int_equal(fd_recv(s[1], text, sizeof(text), got, FD_PASS_MAX, &n_got), 0); /* end of file */
        assert_int_equal(fd_send(s[1], "x", 1, NULL, 0), -EPIPE);                         /* and no signal */
        (void)fd_close(s[1]);
    }
    assert_int_equal(open_fds(), before);
}

/* More descriptors than wanted, more bytes than fit: an error, and no descriptor stays behind. */
static void test_unwanted(void **state)
{
    (void)state;
    int before = open_fds(), s[2], send[4], got[FD_PASS_MAX];
    size_t n_got = 99;
    char text[4];
    pair(SOCK_SEQPACKET, s);
    assert_int_equal(pipe(send), 0);
    assert_int_equal(pipe(send + 2), 0);
    int during = open_fds();
    assert_int_equal(fd_send(s[0], "x", 1, send, 4), 0);
    assert_int_equal(fd_recv(s[1], text, sizeof(text), got, 2, &n_got), -EPROTO);
    assert_int_equal(open_fds(), during);
    assert_int_equal(fd_send(s[0], "x", 1, send, 1), 0);
    assert_int_equal(fd_recv(s[1], text, sizeof(text), NULL, 0, &n_got), -EPROTO);
    assert_int_equal(fd_send(s[0], "too long", 8, send, 2), 0);
    assert_int_equal(fd_recv(s[1], text, sizeof(text), got, FD_PASS_MAX, &n_got), -EMSGSIZE);
    assert_int_equal(open_fds(), during);

    /* A peer that sends more than FD_PASS_MAX at once. */
    int many[FD_PASS_MAX * 4] = {0};
    for (size_t i = 0; i < ARRAY_SIZE(many); i++)
        many[i] = send[0];
    char control[CMSG_SPACE(sizeof(many))] __attribute__((aligned(16))) = {0};
    struct iovec iov = {.iov_base = text, .iov_len = 1};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(many));
    memcpy(CMSG_DATA(c), many, sizeof(many));
    assert_int_equal(sendmsg(s[0], &msg, 0), 1);
    assert_int_equal(fd_recv(s[1], text, sizeof(text), got, FD_PASS_MAX, &n_got), -EPROTO);
    assert_int_equal(open_fds(), during);
    assert_int_equal(n_got, 99); /* untouched by failures */

    assert_int_equal(fd_nonblock(s[1], true), 0);
    assert_int_equal(fd_recv(s[1], text, sizeof(text), got, FD_PASS_MAX, &n_got), -EAGAIN);
    assert_int_equal(fd_nonblock(s[0], true), 0);
    int r = 0;
    for (int i = 0; i < 100000 && r == 0; i++)
        r = fd_send(s[0], "x", 1, NULL, 0);
    assert_int_equal(r, -EAGAIN);
    for (int i = 0; i < 4; i++)
        (void)fd_close(send[i]);
    (void)fd_close(s[0]);
    (void)fd_close(s[1]);
    assert_int_equal(open_fds(), before);
}

/* In a child, which tells by its exit code. */
static int standard_in_child(int flags)
{
    struct stat there, null;
    int kept = dup(STDOUT_FILENO);
    if (kept < 0 || fstat(kept, &there) < 0 || stat("/dev/null", &null) < 0)
        return 1;
    (void)close(STDIN_FILENO);
    (void)close(STDERR_FILENO);
    if (fd_standard(flags) < 0)
        return 2;
    struct stat in, out, error;
    if (fstat(STDIN_FILENO, &in) < 0 || fstat(STDOUT_FILENO, &out) < 0 || fstat(STDERR_FILENO, &error) < 0)
        return 3;
    if (in.st_rdev != null.st_rdev || error.st_rdev != null.st_rdev || out.st_ino != there.st_ino)
        return 4;
    return (write(STDERR_FILENO, "x", 1) == 1) == (flags == O_RDWR) ? 0 : 5;
}

static void test_standard(void **state)
{
    (void)state;
    static const int flags[] = {O_RDONLY, O_RDWR};
    for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
        int status = 0;
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            _exit(standard_in_child(flags[i]));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flags_and_closing), cmocka_unit_test(test_files),    cmocka_unit_test(test_passing),
        cmocka_unit_test(test_lasting),           cmocka_unit_test(test_unwanted), cmocka_unit_test(test_standard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
