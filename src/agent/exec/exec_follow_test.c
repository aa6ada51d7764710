/* SPDX-License-Identifier: Apache-2.0 */
/* Following a process: back pressure, coming back, several at a time. */
#include "agent/exec/process.h"
#include "agent/test_calls.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

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

/* The session dies with bytes under way that nobody took: the next one goes on where the last was, and nothing is
 * missing. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_background_children),
        TEST(test_background_children_outlive_the_end),
        TEST(test_back_pressure),
        TEST(test_overwritten_without_followers),
        TEST(test_reattach_in_a_new_session),
        TEST(test_unseen),
        TEST(test_followers_see_the_same),
        TEST(test_follower_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
