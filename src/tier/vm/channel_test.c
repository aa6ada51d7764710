/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/vm/channel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

struct told {
    unsigned n, greeted;
    uint8_t what;
    uint64_t nonce;
};

static void on_woken(void *ctx, uint8_t what, uint64_t nonce)
{
    struct told *t = ctx;
    t->n++;
    t->what = what;
    t->nonce = nonce;
}

static void on_greeted(void *ctx)
{
    struct told *t = ctx;
    t->greeted++;
}

static void put(struct buf *b, uint8_t type, uint32_t stream, const char *payload)
{
    size_t at = wire_begin(b, type, 0, stream);
    (void)buf_append_cstr(b, payload);
    wire_end(b, at);
}

static void put_wake(struct buf *b, uint8_t what, uint64_t nonce)
{
    size_t at = wire_begin(b, WIRE_WAKE, 0, 0);
    wire_put_u8(b, what);
    wire_put_u64(b, nonce);
    wire_end(b, at);
}

/* What was under way when a session began does not reach it, to the byte, and what comes behind the answer does, in
 * pieces of any size. */
static void test_sessions_are_apart(void **state)
{
    (void)state;
    for (size_t piece = 1; piece < 64; piece++) {
        AUTO_BUF struct buf in = BUF_INIT(4096), out = BUF_INIT(4096), want = BUF_INIT(4096);
        struct told told = {0};
        struct vm_channel c = {.drops = true, .awaits = 42, .woken = on_woken, .greeted = on_greeted, .ctx = &told};
        put(&in, WIRE_HELLO, 0, "2000");
        put(&in, WIRE_DATA, 7, "of before");
        put_wake(&in, WIRE_WAKE_SESSION, 41); /* another one's */
        put(&in, WIRE_DATA, 7, "still");
        put_wake(&in, WIRE_WAKE_SETTLE, 42); /* no beginning */
        put(&in, WIRE_DATA, 7, "and still");
        put_wake(&in, WIRE_WAKE_SESSION, 42);
        put(&want, WIRE_HELLO, 0, "2000");
        put(&want, WIRE_DATA, 7, "of now");
        (void)buf_append_str(&in, buf_str(&want));
        put_wake(&in, WIRE_WAKE_SETTLE, 5);
        struct str left = buf_str(&in);
        while (left.n) {
            struct str some = str_n(left.p, MIN(piece, left.n));
            assert_int_equal(channel_feed(&c, some, &out), 0);
            left = str_sub(left, some.n);
        }
        assert_int_equal(buf_len(&out), buf_len(&want));
        assert_memory_equal(buf_data(&out), buf_data(&want), buf_len(&want));
        assert_int_equal(told.n, 4);
        assert_int_equal(told.greeted, 2);
        assert_true(told.what == WIRE_WAKE_SETTLE && told.nonce == 5);
    }
}

static void test_what_is_no_wire(void **state)
{
    (void)state;
    static const uint8_t bad[][WIRE_HEADER_SIZE] = {
        {0, 0, 0, 0, 0, 0, 0, 0, 99},             /* a type that there is not */
        {1, 0, 4, 0, 0, 0, 0, 0, WIRE_DATA},      /* larger than a frame */
        {10, 0, 0, 0, 0, 0, 0, 0, WIRE_WAKE},     /* an answer of another size */
        {9, 0, 0, 0, 1, 0, 0, 0, WIRE_WAKE},      /* on a stream */
        {0, 0, 0, 0, 0, 0, 0, 0, WIRE_EOF, 0, 1}, /* not zero */
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        AUTO_BUF struct buf out = BUF_INIT(64);
        struct vm_channel c = {.drops = false};
        assert_int_equal(channel_feed(&c, str_n((const char *)bad[i], sizeof(bad[i])), &out), -EPROTO);
    }
    AUTO_BUF struct buf in = BUF_INIT(64), out = BUF_INIT(14);
    struct vm_channel c = {.drops = false};
    put(&in, WIRE_DATA, 1, "abcdef");
    assert_int_equal(channel_feed(&c, buf_str(&in), &out), -ENOBUFS);
}

static void test_whole_frames_alone_go_in(void **state)
{
    (void)state;
    AUTO_BUF struct buf in = BUF_INIT(4096);
    assert_int_equal(channel_whole(&in, 100), 0);
    put(&in, WIRE_DATA, 1, "0123456789");
    put(&in, WIRE_EOF, 1, "");
    const size_t first = WIRE_HEADER_SIZE + 10;
    assert_int_equal(channel_whole(&in, 1), first); /* one at least */
    assert_int_equal(channel_whole(&in, 4096), buf_len(&in));
    in.end--;
    assert_int_equal(channel_whole(&in, 4096), first);
    in.end++;
    put_wake(&in, WIRE_WAKE_SESSION, 1); /* that is for the monitor to say */
    assert_int_equal(channel_whole(&in, 4096), -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sessions_are_apart),
        cmocka_unit_test(test_what_is_no_wire),
        cmocka_unit_test(test_whole_frames_alone_go_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
