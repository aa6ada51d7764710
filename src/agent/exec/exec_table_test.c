/* SPDX-License-Identifier: Apache-2.0 */
/* PROCESSES, and how many there may be. */
#include "agent/exec/process.h"
#include "agent/test_calls.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_processes),    TEST(test_many_processes),     TEST(test_live_limit),
        TEST(test_stream_limit), TEST(test_orphans_are_reaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
