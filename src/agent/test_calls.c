/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/test_calls.h"
#include "base/mem.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

struct rig rig;

int rig_setup(void **state UNUSED)
{
    rig_start(&rig);
    return 0;
}

int rig_teardown(void **state UNUSED)
{
    rig_stop(&rig);
    return 0;
}

void assert_text(const struct buf *b, const char *want)
{
    AUTO_FREE char *have = mem_strndup(buf_data(b) ? buf_data(b) : "", buf_len(b));
    assert_string_equal(have, want);
}

/* Runs a shell line to its end and compares its output. */
struct exit_info expect_output(const struct exec_options *o, const char *line, const char *want)
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

const struct exec_options as_root = {.user = "root"};

uint32_t select_pid(uint8_t verb, uint32_t pid, const struct buf *rest)
{
    struct buf *b = rig_request(verb);
    wire_put_u8(b, 0);
    wire_put_u32(b, pid);
    wire_put_str(b, STR(""));
    if (rest)
        (void)buf_append_str(b, buf_str(rest));
    return rig_open(&rig, b);
}

uint32_t open_input(uint32_t pid, uint8_t channel, const void *p, size_t n)
{
    AUTO_BUF struct buf rest = BUF_INIT(WIRE_PAYLOAD_MAX);
    wire_put_u8(&rest, channel);
    wire_put_str(&rest, str_n(p, n));
    return select_pid(WIRE_INPUT, pid, &rest);
}

uint32_t open_signal(uint32_t pid, uint32_t number)
{
    AUTO_BUF struct buf rest = BUF_INIT(64);
    wire_put_u32(&rest, number);
    return select_pid(WIRE_SIGNAL, pid, &rest);
}

uint32_t open_attach(uint32_t pid, uint8_t from, uint64_t offset)
{
    AUTO_BUF struct buf rest = BUF_INIT(64);
    wire_put_u8(&rest, from);
    wire_put_u64(&rest, offset);
    return select_pid(WIRE_ATTACH, pid, &rest);
}

void expect_failure(uint8_t verb, const char *path, uint16_t code, const char *fmt, ...)
{
    char text[9000];
    struct buf *b = rig_request(verb);
    FORMAT_ARGS(text, fmt);
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

uint32_t open_read(const char *path, uint64_t offset, uint64_t length)
{
    struct buf *b = rig_request(WIRE_READ);
    wire_put_str(b, STR("user"));
    wire_put_str(b, str_of(path));
    wire_put_u64(b, offset);
    wire_put_u64(b, length);
    return rig_open(&rig, b);
}

void expect_bytes(const char *path, uint64_t offset, uint64_t length, const void *want, size_t n)
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

uint32_t open_write(const char *user, const char *path, const char *const *pairs)
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

struct entry write_file(const char *user, const char *path, const char *const *pairs, const void *p, size_t n,
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

void expect_list(const char *path, uint32_t depth, const char *want)
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
