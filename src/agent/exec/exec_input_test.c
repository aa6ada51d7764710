/* SPDX-License-Identifier: Apache-2.0 */
/* What goes into a process: stdin, terminals, signals. */
#include "agent/test_calls.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

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
    rig_expect_end(&rig, select_pid(WIRE_RESIZE, pid, &(struct buf){.data = (char *)"\1\0\1\0", .end = 4}),
                   ERR_INTERNAL, "error resizing tty: tty not assigned to process");
    rig_expect_end(&rig, select_pid(WIRE_CLOSE_STDIN, pid, NULL), ERR_OK, "");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_stdin),       TEST(test_stdin_that_is_not_there),
        TEST(test_input_waits), TEST(test_input_that_is_never_read),
        TEST(test_pty),         TEST(test_signal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
