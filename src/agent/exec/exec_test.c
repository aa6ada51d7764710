/* SPDX-License-Identifier: Apache-2.0 */
/* EXEC: what comes out, who it runs as and with what, and what it inherits. */
#include "agent/test_calls.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void test_output_and_exit(void **state)
{
    (void)state;
    struct exit_info e = expect_output(&as_root, "echo hello", "hello\n");
    assert_true(e.pid > 1);
    assert_int_equal(e.how, WIRE_EXITED);
    assert_int_equal(e.code, 0);
    e = expect_output(&as_root, "exit 3", "");
    assert_int_equal(e.code, 3);
    e = expect_output(&as_root, "kill -TERM $$", "");
    assert_int_equal(e.how, WIRE_SIGNALED);
    assert_int_equal(e.code, SIGTERM);
}

static void test_channels(void **state)
{
    (void)state;
    struct result x;
    rig_result(&rig, EXEC(&rig, "sh", "-c", "echo out; sleep 0.1; echo err >&2; sleep 0.1; echo out"), true, &x);
    assert_text(&x.data, "out\nerr\nout\n");
    assert_text(&x.marks, "ooooeeeeoooo");
    result_fini(&x);
}

static void test_environment(void **state)
{
    (void)state;
    static const char *const env[] = {"A", "1", "A", "2", "LANG", "xx", "EMPTY", "", NULL};
    char want[512];
    (void)snprintf(
        want, sizeof(want),
        "A=2\nALIAS=i0123456789abcdefghij\nCOVE_SANDBOX=true\nCOVE_SANDBOX_ID=i0123456789abcdefghij\nCOVE_TEMPLATE_ID=base\nEMPTY=\nHOME=%s/home\nLANG=xx\nLOGNAME=user\n"
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nSHELL=/bin/sh\nUSER=user\n",
        rig.dir);
    (void)expect_output(&(struct exec_options){.env = env}, "env | grep -v -e ^PWD= -e ^_= -e ^OLDPWD= | LC_ALL=C sort",
                        want);
    static const char *const path[] = {"PATH", "/nowhere:/bin", NULL};
    (void)expect_output(&(struct exec_options){.env = path}, "echo $PATH", "/nowhere:/bin\n");
}

static void test_user(void **state)
{
    (void)state;
    char want[256];
    (void)snprintf(want, sizeof(want), "1000 1000 1000 2000\n%s/home\n0022\n", rig.dir);
    (void)expect_output(&(struct exec_options){0}, "echo $(id -u) $(id -g) $(id -G); pwd; umask", want);
    (void)expect_output(&(struct exec_options){.user = "tester", .cwd = "/"}, "echo $(id -u) $(id -G); pwd",
                        "1001 1001\n/\n");
    rig_expect_end(&rig, EXEC_AS(&rig, (&(struct exec_options){.user = "nobody here"}), "true"), ERR_UNAUTHENTICATED,
                   "invalid username: 'nobody here'");
    (void)expect_output(&(struct exec_options){.user = "1001", .cwd = "/"}, "echo $USER $(id -u) $(id -G)",
                        "tester 1001 1001\n");
    (void)expect_output(&(struct exec_options){.user = "1234"}, "echo $USER $(id -u) $(id -G); pwd",
                        "1234 1234 0\n/\n");
    (void)expect_output(&(struct exec_options){.user = "1234:99"}, "echo $(id -u) $(id -G)", "1234 99\n");
    static const char *const none[] = {"1234:staff", "tester:99", "1234:", "4294967295"};
    for (size_t i = 0; i < ARRAY_SIZE(none); i++) {
        (void)snprintf(want, sizeof(want), "invalid username: '%s'", none[i]);
        rig_expect_end(&rig, EXEC_AS(&rig, (&(struct exec_options){.user = none[i]}), "true"), ERR_UNAUTHENTICATED,
                       want);
    }
}

static void test_cwd(void **state)
{
    (void)state;
    char want[256], message[512];
    assert_int_equal(mkdir(rig_path(&rig, "home/sub"), 0755), 0);
    (void)snprintf(want, sizeof(want), "%s/home/sub\n", rig.dir);
    (void)expect_output(&(struct exec_options){.cwd = "sub"}, "pwd", want);
    (void)expect_output(&(struct exec_options){.cwd = "~/sub/."}, "pwd", want);
    rig_expect_end(&rig, EXEC_AS(&rig, (&(struct exec_options){.cwd = "/nope"}), "pwd"), ERR_INVALID_ARGUMENT,
                   "cwd '/nope' does not exist");
    rig_expect_end(&rig, EXEC_AS(&rig, (&(struct exec_options){.user = "tester"}), "pwd"), ERR_INVALID_ARGUMENT,
                   "cwd '/nonexistent' does not exist");
    rig_expect_end(&rig, EXEC_AS(&rig, (&(struct exec_options){.cwd = "/etc/hostname"}), "pwd", "-P"),
                   ERR_INVALID_ARGUMENT, "error starting process 'pwd -P': chdir /etc/hostname: not a directory");
    rig_expect_end(&rig, EXEC_AS(&rig, (&(struct exec_options){.cwd = "~other"}), "pwd"), ERR_INVALID_ARGUMENT,
                   "failed to expand path '~other' for user 'user': cannot expand user-specific home dir");
    assert_int_equal(mkdir(rig_path(&rig, "closed"), 0700), 0);
    (void)snprintf(message, sizeof(message), "error starting process 'pwd': chdir %s/closed: permission denied",
                   rig.dir);
    rig_expect_end(&rig, EXEC_AS(&rig, (&(struct exec_options){.cwd = rig_path(&rig, "closed")}), "pwd"),
                   ERR_INVALID_ARGUMENT, message);
}

static void test_what_cannot_be_executed(void **state)
{
    (void)state;
    static const char *const path[] = {"PATH", "/nowhere:/etc", NULL};
    char message[512];
    rig_expect_end(
        &rig, EXEC(&rig, "no-such-command", "x"), ERR_FAILED_PRECONDITION,
        "error starting process 'no-such-command x': exec: \"no-such-command\": executable file not found in $PATH");
    rig_expect_end(&rig, EXEC(&rig, ""), ERR_FAILED_PRECONDITION,
                   "error starting process '': exec: \"\": executable file not found in $PATH");
    rig_expect_end(&rig, EXEC(&rig, "/no/such"), ERR_FAILED_PRECONDITION,
                   "error starting process '/no/such': fork/exec /no/such: no such file or directory");
    rig_expect_end(&rig, EXEC(&rig, "/etc/passwd"), ERR_FAILED_PRECONDITION,
                   "error starting process '/etc/passwd': fork/exec /etc/passwd: permission denied");
    rig_expect_end(&rig, EXEC_AS(&rig, (&(struct exec_options){.env = path}), "passwd"), ERR_FAILED_PRECONDITION,
                   "error starting process 'passwd': exec: \"passwd\": permission denied");
    rig_write(rig_path(&rig, "junk"), "\1\2\3");
    assert_int_equal(chmod(rig_path(&rig, "junk"), 0755), 0);
    (void)snprintf(message, sizeof(message), "error starting process '%s/junk': fork/exec %s/junk: exec format error",
                   rig.dir, rig.dir);
    rig_expect_end(&rig, EXEC(&rig, rig_path(&rig, "junk")), ERR_FAILED_PRECONDITION, message);

    struct buf *b = rig_request(WIRE_EXEC);
    wire_put_str(b, STR("echo"));
    wire_put_u32(b, 1);
    wire_put_str(b, STR("a\0b"));
    wire_put_u32(b, 0);
    for (int i = 0; i < 3; i++)
        wire_put_str(b, STR(""));
    (void)buf_append(b, "\0\0\0\0\0", 5);
    rig_expect_end(&rig, rig_open(&rig, b), ERR_INVALID_ARGUMENT, "error starting process 'echo a': invalid argument");
    b = rig_request(WIRE_EXEC);
    wire_put_str(b, STR("echo"));
    wire_put_u32(b, 0);
    wire_put_u32(b, 1);
    wire_put_str(b, STR("A"));
    wire_put_str(b, STR("a\0b"));
    for (int i = 0; i < 3; i++)
        wire_put_str(b, STR(""));
    (void)buf_append(b, "\0\0\0\0\0", 5);
    rig_expect_end(&rig, rig_open(&rig, b), ERR_INVALID_ARGUMENT,
                   "error starting process 'echo': exec: environment variable contains NUL");

    /* None of them left a process behind. */
    struct result x;
    rig_result(&rig, rig_open(&rig, rig_request(WIRE_PROCESSES)), true, &x);
    assert_int_equal(buf_len(&x.data), 0);
    result_fini(&x);
}

static void test_what_a_child_inherits(void **state)
{
    (void)state;
    (void)expect_output(&as_root, "ls /proc/self/fd", "0\n1\n2\n3\n"); /* 3: ls's own */
    (void)expect_output(&as_root, "grep -E 'Sig(Blk|Ign)' /proc/self/status",
                        "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
    (void)expect_output(
        &as_root, "cut -d' ' -f5,6 /proc/$$/stat | { read g s; [ $g = $$ ] && [ $s = $$ ] && echo own; }", "own\n");
    (void)expect_output(&as_root, "readlink /proc/self/fd/0; cat /proc/self/oom_score_adj", "/dev/null\n100\n");
}

/* Whoever has the lease of a file decides how long its exec takes. */
static int hold(const char *path)
{
    rig_write(path, "#!/bin/sh\necho held\n");
    assert_int_equal(chmod(path, 0755), 0);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_SETLEASE, F_WRLCK), 0);
    return fd;
}

static void test_an_exec_that_takes_long(void **state)
{
    (void)state;
    struct result x;
    const char *first = rig_path(&rig, "first"), *second = rig_path(&rig, "second");
    assert_true(signal(SIGIO, SIG_IGN) != SIG_ERR); /* told when somebody wants the file */
    int one = hold(first), two = hold(second);
    uint32_t reads = EXEC_AS(&rig, (&(struct exec_options){.user = "root", .flags = WIRE_EXEC_STDIN}), "cat");
    uint32_t reader = rig_expect_started(&rig, reads);
    uint32_t held = EXEC(&rig, first), never = EXEC_AS(&rig, &(struct exec_options){0}, second);
    assert_true(rig_is_quiet(&rig, held, 100) && rig_is_quiet(&rig, never, 1));
    (void)expect_output(&as_root, "echo meanwhile", "meanwhile\n");
    /* What was started before them has nothing to do with them either: its input ends when it is closed. */
    assert_true(rig_is_quiet(&rig, held, 1));
    rig_expect_end(&rig, select_pid(WIRE_CLOSE_STDIN, reader, NULL), ERR_OK, "");
    rig_expect_end(&rig, reads, ERR_OK, "");
    assert_true(rig_is_quiet(&rig, held, 1));
    rig_expect_end(&rig, EXEC(&rig, "/nowhere"), ERR_FAILED_PRECONDITION,
                   "error starting process '/nowhere': fork/exec /nowhere: no such file or directory");
    assert_int_equal(fcntl(one, F_SETLEASE, F_UNLCK), 0);
    rig_result(&rig, held, true, &x);
    assert_text(&x.data, "held\n");
    result_fini(&x);
    /* The other one is still held when the agent ends. */
    assert_true(rig_is_quiet(&rig, never, 1));
    rig_stop(&rig);
    assert_int_equal(close(one), 0);
    assert_int_equal(close(two), 0);
    rig_start(&rig);
}

/* Accounts are the sandbox's to ruin. */
static void test_hostile_accounts(void **state)
{
    (void)state;
    char *passwd = rig_path(&rig, "passwd"), *group = rig_path(&rig, "group");
    const struct exec_options tester = {.user = "tester"};
    assert_int_equal(unlink(passwd), 0);
    assert_int_equal(mkfifo(passwd, 0666), 0);
    rig_expect_end(&rig, EXEC_AS(&rig, &tester, "true"), ERR_UNAUTHENTICATED, "invalid username: 'tester'");
    assert_int_equal(unlink(passwd), 0);
    assert_int_equal(symlink("/dev/zero", passwd), 0);
    rig_expect_end(&rig, EXEC_AS(&rig, &tester, "true"), ERR_UNAUTHENTICATED, "invalid username: 'tester'");
    (void)expect_output(&(struct exec_options){.user = "root", .cwd = "/"}, "id -u", "0\n");
    assert_int_equal(unlink(passwd), 0);
    char nowhere[400], message[512]; /* that the kernel doesn't give them says nothing of who is in there */
    memset(nowhere, 'x', sizeof(nowhere));
    nowhere[sizeof(nowhere) - 1] = 0;
    (void)snprintf(message, sizeof(message), "read %s: %s", passwd, errno_text(ENAMETOOLONG));
    assert_int_equal(symlink(nowhere, passwd), 0);
    rig_expect_end(&rig, EXEC_AS(&rig, &tester, "true"), ERR_UNAVAILABLE, message);
    (void)expect_output(&(struct exec_options){.user = "root", .cwd = "/"}, "id -u", "0\n");
    assert_int_equal(unlink(passwd), 0);
    rig_write(
        passwd,
        "tester:x:1001\ntester:x:-1:5::/:/bin/sh\ntester:x:4294967295:0::/:\n\n:::\ntester:x:0x0:0::/:\ntester:x:1001:1001::relative:");
    (void)expect_output(&tester, "id -u; echo $HOME $SHELL", "1001\n/ /bin/sh\n");
    assert_int_equal(unlink(group), 0);
    assert_int_equal(symlink(group, group), 0);
    (void)expect_output(&tester, "id -G", "1001\n");
    assert_int_equal(unlink(passwd), 0);
    int fd = open(passwd, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, INT64_C(1) << 40), 0);
    assert_int_equal(close(fd), 0);
    rig_expect_end(&rig, EXEC_AS(&rig, &tester, "true"), ERR_UNAUTHENTICATED, "invalid username: 'tester'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_output_and_exit),
        TEST(test_channels),
        TEST(test_environment),
        TEST(test_user),
        TEST(test_cwd),
        TEST(test_what_cannot_be_executed),
        TEST(test_what_a_child_inherits),
        TEST(test_an_exec_that_takes_long),
        TEST(test_hostile_accounts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
