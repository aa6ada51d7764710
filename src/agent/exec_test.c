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
    rig_result(&rig, rig_exec(&rig, o, "/bin/sh", "-c", line, NULL), true, &x);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_output_and_exit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_channels, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
