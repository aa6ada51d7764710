/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process.h"
#include "agent/test_rig.h"
#include "base/mem.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
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

static void assert_text(const struct buf *b, const char *want)
{
    AUTO_FREE char *have = mem_strndup(buf_data(b) ? buf_data(b) : "", buf_len(b));
    assert_string_equal(have, want);
}

/* Runs a shell line to its end and compares its output. */
static struct exit_info expect_output(const struct exec_options *o, const char *line, const char *want)
{
    struct result x;
    rig_result(&rig, EXEC_AS(&rig, o, "/bin/sh", "-c", line), true, &x);
    struct exit_info e = result_exit(&x);
    assert_text(&x.data, want);
    assert_int_equal(e.total, strlen(want));
    assert_int_equal(e.offset, 0);
    result_fini(&x);
    return e;
}

static const struct exec_options as_root = {.user = "root"};

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

/* ---- who it runs as, and with what ---- */

static void test_environment(void **state)
{
    (void)state;
    static const char *const env[] = {"A", "1", "A", "2", "LANG", "xx", "EMPTY", "", NULL};
    char want[512];
    (void)snprintf(
        want, sizeof(want),
        "A=2\nE2B_SANDBOX=true\nE2B_SANDBOX_ID=i0123456789abcdefghij\nE2B_TEMPLATE_ID=base\nEMPTY=\nHOME=%s/home\nLANG=xx\nLOGNAME=user\n"
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
    rig_expect_end(&rig, EXEC_AS(&rig, (&(struct exec_options){.user = "1000"}), "true"), ERR_UNAUTHENTICATED,
                   "invalid username: '1000'");
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
        &rig, EXEC(&rig, "no-such-command", "x"), ERR_INVALID_ARGUMENT,
        "error starting process 'no-such-command x': exec: \"no-such-command\": executable file not found in $PATH");
    rig_expect_end(&rig, EXEC(&rig, ""), ERR_INVALID_ARGUMENT,
                   "error starting process '': exec: \"\": executable file not found in $PATH");
    rig_expect_end(&rig, EXEC(&rig, "/no/such"), ERR_INVALID_ARGUMENT,
                   "error starting process '/no/such': fork/exec /no/such: no such file or directory");
    rig_expect_end(&rig, EXEC(&rig, "/etc/passwd"), ERR_INVALID_ARGUMENT,
                   "error starting process '/etc/passwd': fork/exec /etc/passwd: permission denied");
    rig_expect_end(&rig, EXEC_AS(&rig, (&(struct exec_options){.env = path}), "passwd"), ERR_INVALID_ARGUMENT,
                   "error starting process 'passwd': exec: \"passwd\": permission denied");
    rig_write(rig_path(&rig, "junk"), "\1\2\3");
    assert_int_equal(chmod(rig_path(&rig, "junk"), 0755), 0);
    (void)snprintf(message, sizeof(message), "error starting process '%s/junk': fork/exec %s/junk: exec format error",
                   rig.dir, rig.dir);
    rig_expect_end(&rig, EXEC(&rig, rig_path(&rig, "junk")), ERR_INVALID_ARGUMENT, message);

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

/* ---- input ---- */

static uint32_t select_pid(uint8_t verb, uint32_t pid, const struct buf *rest)
{
    struct buf *b = rig_request(verb);
    wire_put_u8(b, 0);
    wire_put_u32(b, pid);
    wire_put_str(b, STR(""));
    if (rest)
        (void)buf_append_str(b, buf_str(rest));
    return rig_open(&rig, b);
}

static uint32_t open_input(uint32_t pid, uint8_t channel, const void *p, size_t n)
{
    AUTO_BUF struct buf rest = BUF_INIT(WIRE_PAYLOAD_MAX);
    wire_put_u8(&rest, channel);
    wire_put_str(&rest, str_n(p, n));
    return select_pid(WIRE_INPUT, pid, &rest);
}

static uint32_t open_signal(uint32_t pid, uint32_t number)
{
    AUTO_BUF struct buf rest = BUF_INIT(64);
    wire_put_u32(&rest, number);
    return select_pid(WIRE_SIGNAL, pid, &rest);
}

static uint32_t open_attach(uint32_t pid, uint8_t from, uint64_t offset)
{
    AUTO_BUF struct buf rest = BUF_INIT(64);
    wire_put_u8(&rest, from);
    wire_put_u64(&rest, offset);
    return select_pid(WIRE_ATTACH, pid, &rest);
}

static void test_stdin(void **state)
{
    (void)state;
    uint32_t id = EXEC_AS(&rig, (&(struct exec_options){.user = "root", .flags = WIRE_EXEC_STDIN, .tag = "t"}), "cat");
    uint32_t pid = rig_expect_started(&rig, id);
    rig_expect_end(&rig, open_input(pid, 0, "one ", 4), ERR_OK, "");
    rig_expect_end(&rig, open_input(pid, 0, "", 0), ERR_OK, "");
    struct buf *b = rig_request(WIRE_INPUT);
    wire_put_u8(b, 1);
    wire_put_u32(b, 0);
    wire_put_str(b, STR("t"));
    wire_put_u8(b, 0);
    wire_put_str(b, STR("two"));
    rig_expect_end(&rig, rig_open(&rig, b), ERR_OK, "");
    rig_expect_end(
        &rig, open_input(pid, WIRE_PTY, "x", 1), ERR_INTERNAL,
        "error writing to tty: tty not assigned to process — input should be written to the stdin, not the tty");
    rig_expect_end(&rig, select_pid(WIRE_CLOSE_STDIN, pid, NULL), ERR_OK, "");
    rig_expect_end(&rig, select_pid(WIRE_RESIZE, pid, &(struct buf){.data = (char *)"\1\0\1\0", .end = 4}),
                   ERR_INTERNAL, "error resizing tty: tty not assigned to process");
    struct frame *f = rig_expect(&rig, id, WIRE_DATA);
    AUTO_BUF struct buf all = BUF_INIT(64);
    while (f->type == WIRE_DATA) {
        (void)buf_append(&all, f->payload, f->n);
        frame_free(f);
        f = rig_next(&rig, id, 5000);
        assert_non_null(f);
    }
    assert_int_equal(f->type, WIRE_END);
    frame_free(f);
    assert_text(&all, "one two");
    char message[128];
    (void)snprintf(message, sizeof(message), "process with pid %u not found", pid);
    rig_expect_end(&rig, open_input(pid, 0, "x", 1), ERR_NOT_FOUND, message);
    rig_expect_end(&rig, select_pid(WIRE_CLOSE_STDIN, pid, NULL), ERR_NOT_FOUND, message);
}

static void test_stdin_that_is_not_there(void **state)
{
    (void)state;
    uint32_t id = EXEC(&rig, "sleep", "100");
    uint32_t pid = rig_expect_started(&rig, id);
    rig_expect_end(&rig, open_input(pid, 0, "x", 1), ERR_INTERNAL,
                   "error writing to stdin: stdin not enabled or closed");
    rig_expect_end(&rig, select_pid(WIRE_CLOSE_STDIN, pid, NULL), ERR_OK, "");
    rig_expect_end(&rig, select_pid(WIRE_CLOSE_STDIN, pid, NULL), ERR_OK, "");
    rig_expect_end(&rig, open_signal(pid, SIGKILL), ERR_OK, "");

    id = EXEC_AS(&rig, (&(struct exec_options){.flags = WIRE_EXEC_STDIN}), "sh", "-c", "exec <&-; exec sleep 100");
    pid = rig_expect_started(&rig, id);
    char message[160];
    (void)snprintf(message, sizeof(message),
                   "error writing to stdin: error writing to stdin of process '%u': write |1: broken pipe", pid);
    uint16_t code = 0;
    for (int i = 0; i < 1000 && code == ERR_OK; i++) { /* until the shell has got that far */
        struct result x;
        rig_result(&rig, open_input(pid, 0, "x", 1), true, &x);
        if ((code = x.code))
            assert_string_equal(x.message, message);
        result_fini(&x);
        (void)usleep(1000);
    }
    assert_int_equal(code, ERR_INTERNAL);
    rig_expect_end(&rig, open_input(pid, 0, "x", 1), ERR_INTERNAL,
                   "error writing to stdin: stdin not enabled or closed");
    rig_expect_end(&rig, open_signal(pid, SIGKILL), ERR_OK, "");
}

/* Inputs wait for a process that does not read, in order, without blocking anything; CLOSE takes one back. */
static void test_input_waits(void **state)
{
    (void)state;
    enum { SIZE = 60 * 1024, COUNT = 10 };
    static char block[SIZE];
    uint32_t ids[COUNT],
        id = EXEC_AS(&rig, (&(struct exec_options){.flags = WIRE_EXEC_STDIN}), "sh", "-c", "read go <&-; read x; cat");
    uint32_t pid = rig_expect_started(&rig, id);
    rig_expect_end(&rig, open_signal(pid, SIGSTOP), ERR_OK, "");
    for (int i = 0; i < COUNT; i++) {
        memset(block, 'a' + i, sizeof(block));
        if (i == 0)
            block[0] = '\n';
        ids[i] = open_input(pid, 0, block, sizeof(block));
    }
    rig_expect_end(&rig, rig_open(&rig, rig_request(WIRE_PING)), ERR_OK, "");
    assert_true(rig_is_quiet(&rig, ids[COUNT - 1], 50));
    rig_send(&rig, WIRE_CLOSE, 0, ids[5], NULL, 0);
    rig_expect_end(&rig, ids[5], ERR_CANCELED, "closed");
    rig_expect_end(&rig, select_pid(WIRE_CLOSE_STDIN, pid, NULL), ERR_OK, "");
    rig_expect_end(&rig, open_input(pid, 0, "x", 1), ERR_INTERNAL,
                   "error writing to stdin: stdin not enabled or closed");
    rig_expect_end(&rig, open_signal(pid, SIGCONT), ERR_OK, "");
    AUTO_BUF struct buf all = BUF_INIT(1 << 20);
    for (struct frame *f;; frame_free(f)) {
        f = rig_next(&rig, id, 5000);
        assert_non_null(f);
        if (f->type == WIRE_END) {
            frame_free(f);
            break;
        }
        (void)buf_append(&all, f->payload, f->n);
        rig_credit(&rig, id, (uint32_t)f->n, false);
    }
    assert_int_equal(buf_len(&all), SIZE * (COUNT - 1) - 1);
    for (size_t i = 1; i < buf_len(&all); i++)
        assert_true(buf_data(&all)[i] >= buf_data(&all)[i - 1]);
    for (int i = 0; i < COUNT; i++)
        if (i != 5)
            rig_expect_end(&rig, ids[i], ERR_OK, "");
}

static void test_input_that_is_never_read(void **state)
{
    (void)state;
    static char block[60 * 1024];
    uint32_t id = EXEC_AS(&rig, (&(struct exec_options){.flags = WIRE_EXEC_STDIN}), "sleep", "100");
    uint32_t pid = rig_expect_started(&rig, id), first = open_input(pid, 0, block, sizeof(block)),
             waiting = open_input(pid, 0, block, sizeof(block));
    rig_expect_end(&rig, first, ERR_OK, "");
    assert_true(rig_is_quiet(&rig, waiting, 20));
    rig_expect_end(&rig, open_signal(pid, SIGKILL), ERR_OK, "");
    char message[160];
    (void)snprintf(message, sizeof(message),
                   "error writing to stdin: error writing to stdin of process '%u': write |1: broken pipe", pid);
    rig_expect_end(&rig, waiting, ERR_INTERNAL, message);
}

/* ---- terminals ---- */

static void read_until(uint32_t id, const char *want)
{
    AUTO_BUF struct buf all = BUF_INIT(1 << 20);
    for (;;) {
        struct frame *f = rig_expect(&rig, id, WIRE_DATA);
        assert_int_equal(f->flags, WIRE_PTY);
        (void)buf_append(&all, f->payload, f->n);
        (void)buf_append_char(&all, 0);
        frame_free(f);
        if (strstr(buf_data(&all), want))
            return;
        all.end--;
    }
}

static void test_pty(void **state)
{
    (void)state;
    static const char *const env[] = {"TERM", "xterm-256color", "PS1", "$ ", NULL};
    uint32_t id = EXEC_AS(&rig, (&(struct exec_options){.env = env, .flags = WIRE_EXEC_PTY, .cols = 80, .rows = 24}),
                          "/bin/sh", "-i");
    uint32_t pid = rig_expect_started(&rig, id);
    const char *line = "tty | cut -c1-9; stty size; echo do''ne\n";
    rig_expect_end(&rig, open_input(pid, WIRE_PTY, line, strlen(line)), ERR_OK, "");
    read_until(id, "/dev/pts/\r\n24 80\r\ndone\r\n");
    rig_expect_end(
        &rig, open_input(pid, 0, "x", 1), ERR_INTERNAL,
        "error writing to stdin: tty assigned to process — input should be written to the pty, not the stdin");
    rig_expect_end(&rig, select_pid(WIRE_CLOSE_STDIN, pid, NULL), ERR_UNKNOWN,
                   "error closing stdin: cannot close stdin for PTY process — send Ctrl+D (0x04) instead");
    rig_expect_end(&rig, select_pid(WIRE_RESIZE, pid, &(struct buf){.data = (char *)"\144\0\50\0", .end = 4}), ERR_OK,
                   "");
    line = "stty size; [ -w $(tty) ] && echo mi''ne\n";
    rig_expect_end(&rig, open_input(pid, WIRE_PTY, line, strlen(line)), ERR_OK, "");
    read_until(id, "40 100\r\nmine\r\n");
    line = "sh -c 'echo run\"\"ning; exec sleep 100'\n";
    rig_expect_end(&rig, open_input(pid, WIRE_PTY, line, strlen(line)), ERR_OK, "");
    read_until(id, "running");
    rig_expect_end(&rig, open_input(pid, WIRE_PTY, "\3", 1), ERR_OK, "");
    read_until(id, "$ ");
    rig_expect_end(&rig, open_input(pid, WIRE_PTY, "exit 5\n", 7), ERR_OK, "");
    struct result x;
    rig_result(&rig, open_attach(pid, WIRE_FROM_OFFSET, 0), true, &x);
    assert_int_equal(result_exit(&x).code, 5);
    assert_true(buf_len(&x.data) > 0);
    assert_int_equal(buf_data(&x.marks)[0], 'p');
    result_fini(&x);
}

/* ---- signals ---- */

static void test_signal(void **state)
{
    (void)state;
    char message[128];
    uint32_t id = EXEC(&rig, "sh", "-c", "sleep 1000 & echo $!; wait");
    uint32_t pid = rig_expect_started(&rig, id);
    struct frame *f = rig_expect(&rig, id, WIRE_DATA);
    pid_t child = (pid_t)strtol(f->payload, NULL, 10);
    frame_free(f);
    rig_expect_end(&rig, open_signal(pid, 0), ERR_INVALID_ARGUMENT, "invalid signal: 0");
    rig_expect_end(&rig, open_signal(pid, 65), ERR_INVALID_ARGUMENT, "invalid signal: 65");
    rig_expect_end(&rig, open_signal(pid, SIGKILL), ERR_OK, "");
    assert_int_equal(kill((pid_t)pid, 0), -1); /* reaped, not a zombie */
    for (int i = 0; i < 5000 && kill(child, 0) == 0; i++)
        (void)usleep(1000);
    assert_int_equal(kill(child, 0), -1); /* the group went with it, and the orphan was reaped */
    struct result x;
    rig_result(&rig, open_attach(pid, WIRE_FROM_NOW, 0), true, &x);
    struct exit_info e = result_exit(&x);
    assert_int_equal(e.how, WIRE_SIGNALED);
    assert_int_equal(e.code, SIGKILL);
    result_fini(&x);
    (void)snprintf(message, sizeof(message), "process with pid %u not found", pid);
    rig_expect_end(&rig, open_signal(pid, SIGTERM), ERR_NOT_FOUND, message);
    rig_expect_end(&rig, open_signal(999999, SIGTERM), ERR_NOT_FOUND, "process with pid 999999 not found");
    struct buf *b = rig_request(WIRE_SIGNAL);
    wire_put_u8(b, 1);
    wire_put_u32(b, 0);
    wire_put_str(b, STR("no tag"));
    wire_put_u32(b, 9);
    rig_expect_end(&rig, rig_open(&rig, b), ERR_NOT_FOUND, "process with tag no tag not found");
}

/* ---- following ---- */

static void test_background_children(void **state)
{
    (void)state;
    /* They hold the pipes: what comes in time is there, what comes later is dropped. */
    struct exit_info e =
        expect_output(&as_root, "(sleep 0.05; echo late; sleep 1; echo too late) & echo now", "now\nlate\n");
    assert_int_equal(e.code, 0);
}

static void test_background_children_outlive_the_end(void **state)
{
    (void)state;
    char path[64], command[160];
    (void)snprintf(path, sizeof(path), "/tmp/cove-exec-test.%d", (int)getpid());
    (void)unlink(path);
    (void)snprintf(command, sizeof(command),
                   "(sleep 0.4; echo to nobody; head -c 300000 /dev/zero; echo done >%s) & echo now", path);
    struct exit_info e = expect_output(&as_root, command, "now\n");
    assert_int_equal(e.code, 0);
    int r = -1;
    for (int i = 0; i < 1000 && (r = access(path, F_OK)) < 0; i++)
        (void)usleep(10000);
    assert_int_equal(r, 0);
    (void)unlink(path);
}

static void skip_bytes(uint32_t id, size_t n)
{
    while (n) {
        struct frame *f = rig_expect(&rig, id, WIRE_DATA);
        assert_true(f->n <= n);
        n -= f->n;
        frame_free(f);
    }
}

static void test_back_pressure(void **state)
{
    (void)state;
    uint32_t id = EXEC(&rig, "sh", "-c", "exec cat /dev/zero");
    uint32_t pid = rig_expect_started(&rig, id);
    skip_bytes(id, WIRE_WINDOW);
    assert_true(rig_is_quiet(&rig, id, 50));
    long rss = rig_agent_rss(&rig);
    rig_credit(&rig, id, 1024 * 1024, true);
    skip_bytes(id, 1024 * 1024);
    assert_true(rig_is_quiet(&rig, id, 50));
    for (int i = 0; i < 64; i++) {
        rig_credit(&rig, id, 128 * 1024, true);
        skip_bytes(id, 128 * 1024);
    }
    assert_true(rig_is_quiet(&rig, id, 50));
    assert_true(rig_agent_rss(&rig) < rss + 2048);
    /* A second one that does not read holds it too, until it leaves. */
    uint32_t other = open_attach(pid, WIRE_FROM_NOW, 0);
    (void)rig_expect_started(&rig, other);
    rig_credit(&rig, id, 4 * WIRE_WINDOW, true);
    skip_bytes(id, 2 * WIRE_WINDOW - WIRE_WINDOW);
    assert_true(rig_is_quiet(&rig, id, 50));
    rig_send(&rig, WIRE_CLOSE, 0, other, NULL, 0);
    skip_bytes(id, 3 * WIRE_WINDOW);
    rig_expect_end(&rig, open_signal(pid, SIGKILL), ERR_OK, "");
}

/* Lines of seven digits in order: whatever part of it is seen shows its own offset. */
#define COUNTING "i=0; while [ $i -lt %d ]; do printf '%%07d\\n' $i; i=$((i+1)); done"

static void assert_counting(const struct buf *data, uint64_t offset)
{
    const char *p = buf_data(data);
    char line[9] = "";
    for (size_t i = 0; i < buf_len(data); i++) {
        uint64_t at = offset + i;
        if (i == 0 || at % 8 == 0)
            (void)snprintf(line, sizeof(line), "%07u\n", (unsigned)(at / 8));
        if (p[i] != line[at % 8])
            fail_msg("byte %zu of offset %llu", i, (unsigned long long)offset);
    }
}

static void test_overwritten_without_followers(void **state)
{
    (void)state;
    char line[128];
    enum { LINES = 100000 };
    (void)snprintf(line, sizeof(line), COUNTING "; exec sleep 1000", LINES);
    uint32_t id = EXEC(&rig, "sh", "-c", line), pid = rig_expect_started(&rig, id);
    rig_send(&rig, WIRE_CLOSE, 0, id, NULL, 0);
    /* It is not blocked: all 800,000 bytes get written. */
    uint64_t total = 0;
    for (int i = 0; i < 1000 && total < LINES * 8; i++) {
        struct result x;
        uint32_t probe = open_attach(pid, WIRE_FROM_NOW, 0);
        struct frame *f = rig_expect(&rig, probe, WIRE_REPLY);
        memcpy(&total, f->payload + 4, 8);
        frame_free(f);
        rig_send(&rig, WIRE_CLOSE, 0, probe, NULL, 0);
        rig_result(&rig, probe, false, &x);
        result_fini(&x);
        (void)usleep(10000);
    }
    assert_int_equal(total, LINES * 8);
    struct result x;
    uint32_t from_start = open_attach(pid, WIRE_FROM_OFFSET, 5),
             at_offset = open_attach(pid, WIRE_FROM_OFFSET, total - 100),
             beyond = open_attach(pid, WIRE_FROM_OFFSET, UINT64_MAX), unseen = open_attach(pid, WIRE_FROM_UNSEEN, 0);
    rig_expect_end(&rig, open_signal(pid, SIGKILL), ERR_OK, "");
    rig_result(&rig, from_start, true, &x);
    assert_int_equal(result_exit(&x).offset, total - WIRE_WINDOW);
    assert_int_equal(buf_len(&x.data), WIRE_WINDOW);
    assert_counting(&x.data, total - WIRE_WINDOW);
    result_fini(&x);
    rig_result(&rig, at_offset, true, &x);
    assert_int_equal(result_exit(&x).offset, total - 100);
    assert_counting(&x.data, total - 100);
    result_fini(&x);
    rig_result(&rig, beyond, true, &x);
    assert_int_equal(result_exit(&x).offset, total);
    assert_int_equal(buf_len(&x.data), 0);
    result_fini(&x);
    rig_result(&rig, unseen, true, &x);
    assert_int_equal(result_exit(&x).offset, total - WIRE_WINDOW);
    result_fini(&x);
}

/* The session dies with bytes under way that nobody took: the next one goes on where the last was, and nothing is missing. */
static void test_reattach_in_a_new_session(void **state)
{
    (void)state;
    char line[128];
    enum { LINES = 200000 };
    (void)snprintf(line, sizeof(line), COUNTING, LINES);
    uint32_t id = EXEC(&rig, "sh", "-c", line), pid = rig_expect_started(&rig, id);
    uint64_t taken = 0;
    struct buf all = BUF_INIT(LINES * 8 + 1);
    while (taken < 400000) {
        struct frame *f = rig_expect(&rig, id, WIRE_DATA);
        (void)buf_append(&all, f->payload, f->n);
        taken += f->n;
        rig_credit(&rig, id, (uint32_t)f->n, taken < 300000);
        frame_free(f);
    }
    rig_expect_end(&rig, rig_open(&rig, rig_request(WIRE_PING)), ERR_OK, "");
    rig_connect(&rig);
    struct result x;
    rig_result(&rig, open_attach(pid, WIRE_FROM_OFFSET, taken), true, &x);
    assert_int_equal(result_exit(&x).offset, taken);
    assert_int_equal(result_exit(&x).total, LINES * 8);
    (void)buf_append_str(&all, buf_str(&x.data));
    result_fini(&x);
    assert_int_equal(buf_len(&all), LINES * 8);
    assert_counting(&all, 0);
    buf_fini(&all);
}

static void test_unseen(void **state)
{
    (void)state;
    uint32_t id = EXEC(&rig, "sh", "-c", "printf abcdef; exec sleep 1000"), pid = rig_expect_started(&rig, id);
    struct result x;
    skip_bytes(id, 6);
    rig_credit(&rig, id, 2, true);  /* a client has "ab" */
    rig_credit(&rig, id, 2, false); /* "cd" went to the log only */
    rig_connect(&rig);
    uint32_t again = open_attach(pid, WIRE_FROM_UNSEEN, 0);
    struct frame *f = rig_expect(&rig, again, WIRE_REPLY);
    assert_int_equal(f->payload[4], 2);
    frame_free(f);
    skip_bytes(again, 4);
    rig_credit(&rig, again, 1000000, true); /* more than was ever sent */
    rig_connect(&rig);
    again = open_attach(pid, WIRE_FROM_UNSEEN, 0);
    f = rig_expect(&rig, again, WIRE_REPLY);
    assert_int_equal(f->payload[4], 6);
    frame_free(f);
    rig_expect_end(&rig, open_signal(pid, SIGKILL), ERR_OK, "");
    rig_result(&rig, open_attach(pid, WIRE_FROM_OFFSET, 3), true, &x);
    assert_text(&x.data, "def");
    result_fini(&x);
}

static void test_followers_see_the_same(void **state)
{
    (void)state;
    const char *line =
        "read x; i=0; while [ $i -lt 30000 ]; do echo $i; [ $((i % 3)) = 0 ] && echo e$i >&2; i=$((i+1)); done";
    uint32_t id = EXEC_AS(&rig, (&(struct exec_options){.flags = WIRE_EXEC_STDIN}), "sh", "-c", line);
    uint32_t pid = rig_expect_started(&rig, id), second = open_attach(pid, WIRE_FROM_OFFSET, 0);
    struct result a, b, c;
    rig_expect_end(&rig, open_input(pid, 0, "\n", 1), ERR_OK, "");
    rig_result(&rig, second, true, &b);
    rig_result(&rig, id, true, &a);
    assert_int_equal(a.code, ERR_OK);
    assert_int_equal(buf_len(&a.data), result_exit(&b).total);
    assert_true(buf_len(&a.data) > WIRE_WINDOW / 2);
    assert_true(str_eq(buf_str(&a.data), buf_str(&b.data)));
    assert_true(str_eq(buf_str(&a.marks), buf_str(&b.marks)));
    assert_non_null(memchr(buf_data(&a.marks), 'e', buf_len(&a.marks)));
    rig_result(&rig, open_attach(pid, WIRE_FROM_OFFSET, 777), true, &c);
    size_t skip = (size_t)result_exit(&c).offset;
    assert_true(skip >= 777);
    assert_true(str_eq(str_sub(buf_str(&a.data), skip), buf_str(&c.data)));
    assert_true(str_eq(str_sub(buf_str(&a.marks), skip), buf_str(&c.marks)));
    result_fini(&a);
    result_fini(&b);
    result_fini(&c);
}

static void test_follower_limit(void **state)
{
    (void)state;
    char message[128];
    uint32_t id = EXEC(&rig, "sleep", "1000"), pid = rig_expect_started(&rig, id);
    for (int i = 1; i < PROCESS_FOLLOWERS_MAX; i++)
        (void)rig_expect_started(&rig, open_attach(pid, WIRE_FROM_NOW, 0));
    (void)snprintf(message, sizeof(message), "process with pid %u has %d followers already", pid,
                   PROCESS_FOLLOWERS_MAX);
    rig_expect_end(&rig, open_attach(pid, WIRE_FROM_NOW, 0), ERR_RESOURCE_EXHAUSTED, message);
    rig_expect_end(&rig, open_attach(4194304, WIRE_FROM_NOW, 0), ERR_NOT_FOUND, "process with pid 4194304 not found");
    rig_expect_end(&rig, open_signal(pid, SIGKILL), ERR_OK, "");
}

/* ---- the table ---- */

struct record {
    uint32_t pid, n_args, n_env, code;
    uint8_t flags, how;
    struct str tag, cmd, arg, cwd, user;
    uint64_t output, seen;
};

static size_t get_records(struct result *x, struct record *ret_records, size_t most)
{
    rig_result(&rig, rig_open(&rig, rig_request(WIRE_PROCESSES)), true, x);
    struct wire_reader r = wire_reader_of(buf_str(&x->data));
    size_t n = 0;
    while (r.n) {
        struct record p = {.pid = wire_get_u32(&r)};
        p.flags = wire_get_u8(&r);
        assert_true(wire_get_u64(&r) > 0);
        p.tag = wire_get_str(&r);
        p.cmd = wire_get_str(&r);
        p.n_args = wire_get_count(&r, 4);
        for (uint32_t i = 0; i < p.n_args; i++)
            p.arg = wire_get_str(&r);
        p.n_env = wire_get_count(&r, 8);
        for (uint32_t i = 0; i < 2 * p.n_env; i++)
            (void)wire_get_str(&r);
        p.cwd = wire_get_str(&r);
        p.user = wire_get_str(&r);
        p.output = wire_get_u64(&r);
        p.seen = wire_get_u64(&r);
        p.how = wire_get_u8(&r);
        p.code = wire_get_u32(&r);
        assert_false(r.bad);
        if (n < most)
            ret_records[n] = p;
        n++;
    }
    return n;
}

static void test_processes(void **state)
{
    (void)state;
    static const char *const env[] = {"A", "1", "B", "2", NULL};
    struct result x;
    struct record p[4];
    uint32_t first =
        EXEC_AS(&rig, (&(struct exec_options){.env = env, .tag = "a tag", .cwd = "/tmp", .flags = WIRE_EXEC_STDIN}),
                "sleep", "1000");
    uint32_t pid = rig_expect_started(&rig, first);
    uint32_t second = EXEC(&rig, "sh", "-c", "echo 12345; exit 7");
    rig_result(&rig, second, true, &x);
    result_fini(&x);
    rig_expect_end(&rig, rig_open(&rig, rig_request(WIRE_PING)), ERR_OK, "");
    assert_int_equal(get_records(&x, p, 4), 2);
    assert_int_equal(p[0].pid, pid);
    assert_int_equal(p[0].flags, WIRE_PROC_STDIN | WIRE_PROC_TAG);
    assert_true(str_eqc(p[0].tag, "a tag") && str_eqc(p[0].cmd, "sleep") && str_eqc(p[0].arg, "1000") &&
                str_eqc(p[0].cwd, "/tmp") && str_eqc(p[0].user, "user"));
    assert_int_equal(p[0].n_env, 2);
    assert_int_equal(p[1].flags, WIRE_PROC_ENDED);
    assert_int_equal(p[1].output, 6);
    assert_int_equal(p[1].seen, 6);
    assert_int_equal(p[1].how, WIRE_EXITED);
    assert_int_equal(p[1].code, 7);
    assert_true(str_eqc(p[1].user, "root"));
    result_fini(&x);
    /* The tag's next owner replaces an ended one. */
    rig_expect_end(&rig, open_signal(pid, SIGKILL), ERR_OK, "");
    uint32_t again = EXEC_AS(&rig, (&(struct exec_options){.tag = "a tag"}), "sleep", "1000"),
             pid2 = rig_expect_started(&rig, again);
    struct buf *b = rig_request(WIRE_ATTACH);
    wire_put_u8(b, 1);
    wire_put_u32(b, 0);
    wire_put_str(b, STR("a tag"));
    wire_put_u8(b, WIRE_FROM_NOW);
    wire_put_u64(b, 0);
    assert_int_equal(rig_expect_started(&rig, rig_open(&rig, b)), pid2);
    rig_expect_end(&rig, open_signal(pid2, SIGKILL), ERR_OK, "");
}

static void test_many_processes(void **state)
{
    (void)state;
    enum { ROUNDS = 12, WIDTH = 50 };
    uint32_t ids[WIDTH];
    struct result x;
    struct record p[1];
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < WIDTH; i++)
            ids[i] = EXEC(&rig, "sh", "-c", "echo $0; exit $0", "7");
        for (int i = 0; i < WIDTH; i++) {
            rig_result(&rig, ids[i], true, &x);
            assert_int_equal(result_exit(&x).code, 7);
            assert_text(&x.data, "7\n");
            result_fini(&x);
        }
    }
    /* Of those that ended, only so many are kept. */
    assert_int_equal(get_records(&x, p, 1), PROCESS_ENDED_MAX);
    result_fini(&x);
}

static void test_live_limit(void **state)
{
    (void)state;
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    if (files.rlim_max < 5 * PROCESS_LIVE_MAX)
        skip();
    for (int i = 0; i < PROCESS_LIVE_MAX; i++)
        (void)rig_expect_started(&rig, EXEC(&rig, "sleep", "1000"));
    rig_expect_end(&rig, EXEC(&rig, "true"), ERR_RESOURCE_EXHAUSTED,
                   "error starting process 'true': 1024 processes are running already");
    rig_expect_end(&rig, rig_open(&rig, rig_request(WIRE_PING)), ERR_OK, "");
}

static void test_stream_limit(void **state)
{
    (void)state;
    static char block[64 * 1024];
    uint32_t id = EXEC_AS(&rig, (&(struct exec_options){.flags = WIRE_EXEC_STDIN}), "sleep", "1000"),
             pid = rig_expect_started(&rig, id);
    rig_expect_end(&rig, open_input(pid, 0, block, sizeof(block)), ERR_OK, "");
    for (int i = 1; i < WIRE_STREAMS_MAX; i++)
        (void)open_input(pid, 0, "x", 1);
    assert_true(rig_is_quiet(&rig, 0, 50));
    (void)open_input(pid, 0, "x", 1);
    rig_expect_dropped(&rig);
    rig_connect(&rig);
    rig_expect_end(&rig, open_signal(pid, SIGKILL), ERR_OK, "");
}

static void test_orphans_are_reaped(void **state)
{
    (void)state;
    (void)expect_output(&as_root, "i=0; while [ $i -lt 10000 ]; do (true &); i=$((i+1)); done; echo done", "done\n");
    char path[64], want[32];
    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", rig.agent, rig.agent);
    (void)snprintf(want, sizeof(want), "%s", "");
    for (int i = 0; i < 1000 && *rig_read(path); i++)
        (void)usleep(10000);
    assert_string_equal(rig_read(path), want);
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
    /* As cove-agent's main() does: whoever runs the tests may have started them with some ignored. */
    for (int i = 1; i < 32; i++)
        (void)signal(i, SIG_DFL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_output_and_exit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_channels, setup, teardown),
        cmocka_unit_test_setup_teardown(test_environment, setup, teardown),
        cmocka_unit_test_setup_teardown(test_user, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cwd, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_executed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_a_child_inherits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stdin, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stdin_that_is_not_there, setup, teardown),
        cmocka_unit_test_setup_teardown(test_input_waits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_input_that_is_never_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pty, setup, teardown),
        cmocka_unit_test_setup_teardown(test_signal, setup, teardown),
        cmocka_unit_test_setup_teardown(test_background_children, setup, teardown),
        cmocka_unit_test_setup_teardown(test_background_children_outlive_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_back_pressure, setup, teardown),
        cmocka_unit_test_setup_teardown(test_overwritten_without_followers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reattach_in_a_new_session, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unseen, setup, teardown),
        cmocka_unit_test_setup_teardown(test_followers_see_the_same, setup, teardown),
        cmocka_unit_test_setup_teardown(test_follower_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_processes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_processes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_live_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stream_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_orphans_are_reaped, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hostile_accounts, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
