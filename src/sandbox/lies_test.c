/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agents that lie: each way of saying what can't be is found at once, ends that sandbox and no other, answers every
 * call that waits, and is recorded. The table is the list of what the host checks.
 */
#include "base/mem.h"
#include "sandbox/exec/stream.h"
#include "sandbox/test_world.h"

#include <setjmp.h>

#include <cmocka.h>

static void reply(struct fake_agent *a, uint32_t st)
{
    static const uint8_t head[12] = {7};
    fake_send(a, WIRE_REPLY, 0, st, head, sizeof(head));
}

static void credit(struct fake_agent *a, uint32_t st, uint32_t n)
{
    uint8_t le[4] = {(uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16), (uint8_t)(n >> 24)};
    fake_send(a, WIRE_CREDIT, 0, st, le, 4);
}

static void bytes(struct fake_agent *a, uint32_t st, uint8_t flags, size_t n)
{
    char *p = mem_zalloc(n);
    fake_send(a, WIRE_DATA, flags, st, p, n);
    mem_free(p);
}

static void header(struct fake_agent *a, uint32_t size, uint32_t st, uint8_t type)
{
    uint8_t h[WIRE_HEADER_SIZE];
    wire_header_put(&(struct wire_frame){.size = size, .stream = st, .type = type}, h);
    fake_send_raw(a, h, sizeof(h));
}

static void garbage(struct fake_agent *a, uint32_t st)
{
    (void)st;
    fake_send_raw(a, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27);
}
static void huge_frame(struct fake_agent *a, uint32_t st)
{
    header(a, UINT32_MAX, st, WIRE_DATA);
}
static void slightly_huge_frame(struct fake_agent *a, uint32_t st)
{
    header(a, WIRE_PAYLOAD_MAX + 1, st, WIRE_REPLY);
}
static void unknown_type(struct fake_agent *a, uint32_t st)
{
    header(a, 0, st, 99);
}
static void reserved_bits(struct fake_agent *a, uint32_t st)
{
    uint8_t h[WIRE_HEADER_SIZE];
    wire_header_put(&(struct wire_frame){.stream = st, .type = WIRE_EOF}, h);
    h[11] = 1;
    fake_send_raw(a, h, sizeof(h));
}
static void unknown_stream(struct fake_agent *a, uint32_t st)
{
    reply(a, st + 1000);
}
static void stream_zero(struct fake_agent *a, uint32_t st)
{
    (void)st;
    reply(a, 0);
}
static void second_hello(struct fake_agent *a, uint32_t st)
{
    (void)st;
    fake_send(a, WIRE_HELLO, 0, 0, "\2\0\0\0", 4);
}
static void hello_on_stream(struct fake_agent *a, uint32_t st)
{
    fake_send(a, WIRE_HELLO, 0, st, "\2\0\0\0", 4);
}
static void host_frame_open(struct fake_agent *a, uint32_t st)
{
    fake_send(a, WIRE_OPEN, 0, st, "\1", 1);
}
static void host_frame_close(struct fake_agent *a, uint32_t st)
{
    fake_send(a, WIRE_CLOSE, 0, st, NULL, 0);
}
static void data_before_reply(struct fake_agent *a, uint32_t st)
{
    bytes(a, st, WIRE_STDOUT, 10);
}
static void data_beyond_credit(struct fake_agent *a, uint32_t st)
{
    reply(a, st);
    bytes(a, st, WIRE_STDOUT, WIRE_PAYLOAD_MAX);
    bytes(a, st, WIRE_STDOUT, WIRE_PAYLOAD_MAX); /* the client acknowledges nothing */
}
static void data_on_no_channel(struct fake_agent *a, uint32_t st)
{
    reply(a, st);
    bytes(a, st, 0, 10);
}
static void data_on_unknown_channel(struct fake_agent *a, uint32_t st)
{
    reply(a, st);
    bytes(a, st, 4, 10);
}
static void data_on_others_channel(struct fake_agent *a, uint32_t st)
{
    reply(a, st);
    bytes(a, st, WIRE_PTY, 10);
}
static void second_reply(struct fake_agent *a, uint32_t st)
{
    reply(a, st);
    reply(a, st);
}
static void reply_with_flags(struct fake_agent *a, uint32_t st)
{
    fake_send(a, WIRE_REPLY, 1, st, "\7\0\0\0\0\0\0\0\0\0\0\0", 12);
}
static void short_head(struct fake_agent *a, uint32_t st)
{
    fake_send(a, WIRE_REPLY, 0, st, "\7\0\0\0", 4);
}
static void long_head(struct fake_agent *a, uint32_t st)
{
    fake_send(a, WIRE_REPLY, 0, st, "\7\0\0\0\0\0\0\0\0\0\0\0\0", 13);
}
static void pid_zero(struct fake_agent *a, uint32_t st)
{
    fake_send(a, WIRE_REPLY, 0, st, "\0\0\0\0\0\0\0\0\0\0\0\0", 12);
}
static void offset_of_exec(struct fake_agent *a, uint32_t st)
{
    fake_send(a, WIRE_REPLY, 0, st, "\7\0\0\0\1\0\0\0\0\0\0\0", 12);
}
static void eof_on_exec(struct fake_agent *a, uint32_t st)
{
    reply(a, st);
    fake_send(a, WIRE_EOF, 0, st, NULL, 0);
}
static void credit_on_exec(struct fake_agent *a, uint32_t st)
{
    reply(a, st);
    credit(a, st, 1);
}
static void huge_credit(struct fake_agent *a, uint32_t st)
{
    reply(a, st);
    credit(a, st, UINT32_MAX);
}
static void short_credit(struct fake_agent *a, uint32_t st)
{
    reply(a, st);
    fake_send(a, WIRE_CREDIT, 0, st, "\0\0", 2);
}
static void end_without_reply(struct fake_agent *a, uint32_t st)
{
    fake_end(a, st, 0, "", STR("\0\0\0\0\0\0\0\0\0\0\0\0\0"));
}
static void second_end(struct fake_agent *a, uint32_t st)
{
    reply(a, st);
    fake_end(a, st, 0, "", STR("\0\0\0\0\0\0\0\0\0\0\0\0\0"));
    fake_end(a, st, 0, "", STR("\0\0\0\0\0\0\0\0\0\0\0\0\0"));
}
static void data_after_end(struct fake_agent *a, uint32_t st)
{
    fake_end(a, st, ERR_INTERNAL, "", STR_NULL);
    bytes(a, st, WIRE_STDOUT, 1);
}
static void unknown_code(struct fake_agent *a, uint32_t st)
{
    fake_end(a, st, ERR_CODE_MAX, "", STR_NULL);
}
static void short_end(struct fake_agent *a, uint32_t st)
{
    fake_send(a, WIRE_END, 0, st, "\5", 1);
}
static void huge_message(struct fake_agent *a, uint32_t st)
{
    fake_send(a, WIRE_END, 0, st, "\5\0\377\377\377\377", 6);
}
static void error_with_tail(struct fake_agent *a, uint32_t st)
{
    fake_end(a, st, ERR_INTERNAL, "x", STR("tail"));
}
static void short_tail(struct fake_agent *a, uint32_t st)
{
    reply(a, st);
    fake_end(a, st, 0, "", STR("\0\0"));
}
static void impossible_end(struct fake_agent *a, uint32_t st)
{
    reply(a, st);
    fake_end(a, st, 0, "", STR("\2\0\0\0\0\0\0\0\0\0\0\0\0"));
}
static void impossible_code(struct fake_agent *a, uint32_t st)
{
    reply(a, st);
    fake_end(a, st, 0, "", STR("\0\377\377\0\0\0\0\0\0\0\0\0\0"));
}

static void flood_of_nothing(struct fake_agent *a, uint32_t st)
{
    static char frames[5000 * WIRE_HEADER_SIZE];
    for (size_t i = 0; i < sizeof(frames); i += WIRE_HEADER_SIZE)
        wire_header_put(&(struct wire_frame){.stream = st, .type = WIRE_DATA, .flags = WIRE_STDOUT},
                        (uint8_t *)frames + i);
    reply(a, st);
    for (int i = 0; i < 21; i++)
        fake_send_raw(a, frames, sizeof(frames));
}

static const struct {
    const char *name;
    void (*tell)(struct fake_agent *a, uint32_t stream);
} lies[] = {
#define LIE(name)                                                                                                      \
    {                                                                                                                  \
#name, name                                                                                                    \
    }
    LIE(garbage),
    LIE(huge_frame),
    LIE(slightly_huge_frame),
    LIE(unknown_type),
    LIE(reserved_bits),
    LIE(unknown_stream),
    LIE(stream_zero),
    LIE(second_hello),
    LIE(hello_on_stream),
    LIE(host_frame_open),
    LIE(host_frame_close),
    LIE(data_before_reply),
    LIE(data_beyond_credit),
    LIE(data_on_no_channel),
    LIE(data_on_unknown_channel),
    LIE(data_on_others_channel),
    LIE(second_reply),
    LIE(reply_with_flags),
    LIE(short_head),
    LIE(long_head),
    LIE(pid_zero),
    LIE(offset_of_exec),
    LIE(eof_on_exec),
    LIE(credit_on_exec),
    LIE(huge_credit),
    LIE(short_credit),
    LIE(end_without_reply),
    LIE(second_end),
    LIE(data_after_end),
    LIE(unknown_code),
    LIE(short_end),
    LIE(huge_message),
    LIE(error_with_tail),
    LIE(short_tail),
    LIE(impossible_end),
    LIE(impossible_code),
    LIE(flood_of_nothing),
};

struct client {
    struct follow *follow;
    unsigned ends;
    enum err_code code;
};

static void on_output(void *ctx, enum wire_channel channel, struct str output)
{
    (void)ctx;
    (void)channel;
    (void)output;
}

static void on_end(void *ctx, const struct exec_exit *exit, const struct err *err)
{
    struct client *c = ctx;
    (void)exit;
    c->ends++;
    if (err)
        c->code = err->code;
}

static const struct exec_ops ops = {NULL, on_output, on_end, NULL};

static void start(struct sandbox *sb, struct client *c, const char *cmd)
{
    struct exec_spec spec = {.cmd = str_of(cmd)};
    struct err err;
    assert_int_equal(exec_start(sb, &test_actor, &spec, &ops, c, &c->follow, &err), 0);
}

static void on_entry(void *ctx, const struct file_entry *entry, const struct err *err)
{
    struct client *c = ctx;
    (void)entry;
    c->ends++;
    c->code = err ? err->code : ERR_OK;
}

static void each_lie(void **state)
{
    struct world *w = *state;
    struct sandbox *innocent = world_sandbox(w, NULL);
    struct client waiting = {0};
    start(innocent, &waiting, "sleep");
    for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
        struct sandbox *sb = world_sandbox(w, NULL);
        const char *id = sandbox_info(sb)->id;
        struct client liar = {0}, other = {0};
        world_agent(w, sb)->lie = lies[i].tell;
        unsigned kills = w->kills;
        start(sb, &other, "sleep");
        start(sb, &liar, "lie");
        WAIT(w, sandbox_info(sb)->state == SANDBOX_FAILED);
        if (liar.ends != 1 || other.ends != 1 || other.code != ERR_UNAVAILABLE || w->kills != kills + 1 ||
            world_count_events(w, id, EVENT_AGENT_VIOLATION) != 1 ||
            world_count_events(w, id, EVENT_SANDBOX_FAILED) != 1)
            fail_msg("%s: %u %u %s", lies[i].name, liar.ends, other.ends,
                     world_event_data(w, id, EVENT_AGENT_VIOLATION));
        assert_string_equal(sandbox_info(sb)->end_cause, "failed");
        assert_string_equal(world_event_grade(w, id, EVENT_EXEC_FAILED),
                            "observed-host"); /* who lied has no say in why it failed */
        assert_int_equal(waiting.ends, 0);
        assert_int_equal(sandbox_info(innocent)->state, SANDBOX_RUNNING);
    }
    exec_close(waiting.follow);
}

/* ---- lies about files: told where the host waits for an entry ---- */

static uint8_t entry_type;
static uint32_t entry_metadata;
static const char *entry_path;

static void bad_entry(struct fake_agent *a, uint32_t st)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    wire_put_str(&b, STR("name"));
    wire_put_str(&b, str_of(entry_path));
    wire_put_u8(&b, entry_type);
    for (int i = 0; i < 2; i++)
        wire_put_u32(&b, 0);
    wire_put_u64(&b, 0);
    for (int i = 0; i < 2; i++)
        wire_put_u32(&b, 0);
    wire_put_str(&b, STR_NULL);
    wire_put_str(&b, STR_NULL);
    wire_put_u64(&b, 0);
    wire_put_u8(&b, 0);
    wire_put_str(&b, STR_NULL);
    wire_put_u32(&b, entry_metadata);
    fake_end(a, st, 0, "", buf_str(&b));
}

static void entries(void **state)
{
    static const struct {
        uint8_t type;
        uint32_t metadata;
        const char *path;
    } bad[] = {{9, 0, "/a"}, {1, UINT32_MAX, "/a"}, {1, 1, "/a"}, {1, 0, "relative"}, {1, 0, ""}};
    struct world *w = *state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct sandbox *sb = world_sandbox(w, NULL);
        struct client c = {0};
        struct file_call *call;
        struct err err;
        struct fake_agent *a = world_agent(w, sb);
        a->deaf = true; /* we answer ourselves */
        fake_flush(a);
        assert_int_equal(file_stat(sb, &test_actor, STR_NULL, STR("/a"), on_entry, &c, &call, &err), 0);
        entry_type = bad[i].type;
        entry_metadata = bad[i].metadata;
        entry_path = bad[i].path;
        bad_entry(a, sb->session->last_id);
        WAIT(w, sandbox_info(sb)->state == SANDBOX_FAILED);
        assert_int_equal(c.ends, 1);
        assert_int_equal(c.code, ERR_UNAVAILABLE);
    }
}

static void on_ready(void *ctx)
{
    (void)ctx; /* it takes its time */
}

/* What was not sent yet can't be written: nobody hears that it was, who still has bytes. */
static void written_too_early(void **state)
{
    static const struct file_write_ops write_ops = {on_ready, on_entry};
    struct world *w = *state;
    for (int sent = 0; sent < 2; sent++) {
        struct sandbox *sb = world_sandbox(w, NULL);
        struct client c = {0};
        struct file_call *call;
        struct err err;
        AUTO_BUF struct buf entry = BUF_INIT(4096);
        struct fake_agent *a = world_agent(w, sb);
        assert_int_equal(file_write(sb, &test_actor, STR_NULL, STR("/a"), NULL, 0, &write_ops, &c, &call, &err), 0);
        uint32_t st = sb->session->last_id;
        world_turns(w, 10); /* REPLY */
        a->deaf = true;     /* we answer ourselves */
        fake_flush(a);
        if (sent)
            assert_int_equal(file_write_data(call, STR("bytes")), 5);
        world_turns(w, 10);
        assert_int_equal(c.ends, 0);
        fake_put_entry(&entry, "/a", 5);
        fake_end(a, st, 0, "", buf_str(&entry));
        WAIT(w, c.ends);
        assert_int_equal(c.code, ERR_UNAVAILABLE);
        WAIT(w, sandbox_info(sb)->state == SANDBOX_FAILED);
        assert_int_equal(c.ends, 1);
        assert_int_equal(world_count_events(w, sandbox_info(sb)->id, EVENT_AGENT_VIOLATION), 1);
        assert_int_equal(world_count_events(w, sandbox_info(sb)->id, EVENT_FILE_DONE), 0);
        assert_string_equal(world_event_grade(w, sandbox_info(sb)->id, EVENT_FILE_FAILED), "observed-host");
    }
}

/* An agent that reads nothing, while it makes us say much. */
static void reads_nothing(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct fake_agent *a = world_agent(w, sb);
    struct err err = {0};
    struct client stat = {0};
    struct file_call *call;
    a->deaf = true;
    fake_flush(a);
    assert_int_equal(file_stat(sb, &test_actor, STR_NULL, STR("/a"), on_entry, &stat, &call, &err), 0);
    char *big = mem_zalloc(200000);
    memset(big, 'x', 200000);
    struct str arg = str_n(big, 200000);
    struct exec_spec spec = {.cmd = STR("echo"), .args = &arg, .n_args = 1};
    struct client c[64] = {0};
    size_t n = 0;
    while (n < 64 && exec_start(sb, &test_actor, &spec, &ops, &c[n], &c[n].follow, &err) == 0) {
        n++;
        world_turn(w);
    }
    assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED); /* refused, not queued without end */
    assert_true(buf_len(&sb->session->outbox) <= 5 << 20);
    assert_int_equal(sandbox_info(sb)->state, SANDBOX_RUNNING);
    /* What is beyond the maximum ends the sandbox. */
    for (size_t i = 0; i < n; i++)
        exec_close(TAKE_PTR(c[i].follow));
    size_t left = (8 << 20) - buf_len(&sb->session->outbox);
    char *rest = buf_reserve(&sb->session->outbox, left);
    assert_non_null(rest);
    memset(rest, 0, left);
    buf_commit(&sb->session->outbox, left);
    file_call_cancel(call);
    WAIT(w, sandbox_info(sb)->state == SANDBOX_FAILED);
    assert_non_null(
        strstr(world_event_data(w, sandbox_info(sb)->id, EVENT_AGENT_VIOLATION), "it reads nothing of 8 MiB"));
    mem_free(big);
}

/* CLOSEd streams that never end stay counted, and are bounded. */
static void never_ends_streams(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct err err = {0};
    world_agent(w, sb)->keep_streams = true;
    unsigned n = 0;
    for (; n < WIRE_STREAMS_MAX + 10; n++) {
        struct client c = {0};
        struct exec_spec spec = {.cmd = STR("mute")};
        struct follow *f;
        if (exec_start(sb, &test_actor, &spec, &ops, &c, &f, &err) < 0)
            break;
        exec_close(f);
        if (n % 64 == 0)
            world_turn(w);
    }
    assert_true(n <= WIRE_STREAMS_MAX);
    assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED);
}

static void lies_in_hello(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
    } hellos[] = {
        {"\4\0\0\0\0\0\0\0\1\0\0\0\1\0\0\0", 16}, /* version 1 */
        {"\4\0\0\0\1\0\0\0\1\0\0\0\2\0\0\0", 16}, /* on a stream */
        {"\0\0\0\0\0\0\0\0\1\0\0\0", 12},         /* empty */
        {"\4\0\0\0\0\0\0\0\3\0\0\0\2\0\0\0", 16}, /* REPLY first */
        {"\377\377\377\377\0\0\0\0\1\0\0\0", 12}, /* huge */
    };
    struct world *w = *state;
    for (size_t i = 0; i < ARRAY_SIZE(hellos); i++) {
        struct client c = {0};
        struct err err;
        struct sandbox_spec spec = {.template_ref = STR("base"), .timeout_ms = 60000};
        w->agents_mute = true;
        assert_int_equal(sandbox_create(w->core, &test_actor, &spec, (sandbox_fn)on_entry, &c, &err), 0);
        WAIT(w, map_count(&w->agents) == 1);
        size_t it = 0;
        fake_send_raw(map_next(&w->agents, &it), hellos[i].bytes, hellos[i].n);
        WAIT(w, c.ends == 1 && map_count(&w->agents) == 0);
        assert_int_equal(c.code, ERR_UNAVAILABLE);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(each_lie),           TEST(entries),
                                       TEST(written_too_early),  TEST(reads_nothing),
                                       TEST(never_ends_streams), TEST(lies_in_hello)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
