/* SPDX-License-Identifier: Apache-2.0 */
/* The session by itself: frames cut anywhere, time-outs, credit, room, and text that an agent made. */
#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/exec/stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

struct bench {
    uv_loop_t uv;
    struct loop *loop;
    struct session *s;
    int agent;
    unsigned ready, broken, replies, ends, rooms, eofs;
    bool violation;
    struct buf data;
    struct err err, why;
    struct stream *st;
    struct str tail;
    char tail_bytes[64];
};

static void on_ready(void *ctx)
{
    ((struct bench *)ctx)->ready++;
}

static void on_broken(void *ctx, bool violation, const struct err *err)
{
    struct bench *b = ctx;
    b->broken++;
    b->violation = violation;
    b->why = *err;
}

static void on_reply(void *user, struct str head)
{
    struct bench *b = user;
    b->replies++;
    assert_true(str_eqc(head, "head"));
}

static void on_data(void *user, uint8_t flags, struct str bytes)
{
    struct bench *b = user;
    assert_int_equal(flags, 0);
    assert_int_equal(buf_append_str(&b->data, bytes), 0);
}

static void on_eof(void *user)
{
    ((struct bench *)user)->eofs++;
}

static void on_room(void *user)
{
    ((struct bench *)user)->rooms++;
}

static void on_end(void *user, struct str tail, const struct err *err)
{
    struct bench *b = user;
    b->ends++;
    b->st = NULL;
    b->err = err ? *err : (struct err){0};
    assert_true(tail.n <= sizeof(b->tail_bytes));
    if (tail.n)
        memcpy(b->tail_bytes, tail.p, tail.n);
    b->tail = str_n(b->tail_bytes, tail.n);
}

static const struct session_ops session_ops = {.on_ready = on_ready, .on_broken = on_broken};
static const struct stream_ops both_ways = {.on_reply = on_reply,
                                            .on_data = on_data,
                                            .on_eof = on_eof,
                                            .on_room = on_room,
                                            .on_end = on_end,
                                            .long_lived = true};
static const struct stream_ops unary = {.on_end = on_end};

static int setup(void **state)
{
    struct bench *b = mem_new(struct bench);
    struct err err;
    int pair[2];
    assert_int_equal(uv_loop_init(&b->uv), 0);
    b->loop = loop_new(&b->uv);
    b->data = BUF_INIT(64 << 20);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(fd_nonblock(pair[1], true) < 0, 0);
    b->agent = pair[1];
    b->s = session_new(b->loop, &session_ops, b);
    assert_int_equal(session_start(b->s, pair[0], &err), 0);
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bench *b = *state;
    struct err why = {.code = ERR_UNAVAILABLE};
    if (b->s)
        session_drop(b->s, &why);
    loop_free(b->loop);
    (void)fd_close(b->agent);
    (void)uv_run(&b->uv, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&b->uv), 0);
    buf_fini(&b->data);
    mem_free(b);
    return 0;
}

static void turns(struct bench *b, unsigned n)
{
    while (n--)
        (void)uv_run(&b->uv, UV_RUN_NOWAIT);
}

static void open_stream(struct bench *b, const struct stream_ops *ops, unsigned timeout_ms)
{
    struct err err;
    assert_int_equal(stream_open(b->s, session_request(b->s, WIRE_DIAL), ops, b, timeout_ms, &b->st, &err), 0);
}

static void put(struct buf *b, uint8_t type, uint32_t stream, const void *p, size_t n)
{
    size_t at = wire_begin(b, type, 0, stream);
    (void)buf_append(b, p, n);
    wire_end(b, at);
}

static void conversation(struct buf *b, const char *body, size_t n)
{
    put(b, WIRE_HELLO, 0, "\2\0\0\0", 4);
    put(b, WIRE_REPLY, 1, "head", 4);
    put(b, WIRE_DATA, 1, body, n);
    put(b, WIRE_DATA, 1, NULL, 0);
    put(b, WIRE_EOF, 1, NULL, 0);
    put(b, WIRE_END, 1, "\0\0\0\0\0\0tail", 10);
}

static void cut_anywhere(void **state)
{
    static const size_t sizes[] = {1, 2, 5, 11, 12, 13, 64, 1000, 1 << 20};
    (void)state;
    char body[3000];
    for (size_t i = 0; i < sizeof(body); i++)
        body[i] = (char)(i * 7);
    AUTO_BUF struct buf bytes = BUF_INIT(1 << 20);
    conversation(&bytes, body, sizeof(body));
    for (size_t k = 0; k < ARRAY_SIZE(sizes); k++) {
        void *one;
        assert_int_equal(setup(&one), 0);
        struct bench *b = one;
        open_stream(b, &both_ways, 1000);
        for (struct str s = buf_str(&bytes); s.n; s = str_sub(s, MIN(sizes[k], s.n)))
            assert_true(session_input(b->s, s.p, MIN(sizes[k], s.n)));
        assert_int_equal(b->ready, 1);
        assert_int_equal(b->replies, 1);
        assert_int_equal(b->eofs, 1);
        assert_int_equal(b->ends, 1);
        assert_true(str_eqc(b->tail, "tail"));
        assert_int_equal(buf_len(&b->data), sizeof(body));
        assert_memory_equal(buf_data(&b->data), body, sizeof(body));
        turns(b, 3);
        assert_int_equal(b->broken, 0);
        assert_int_equal(teardown(&one), 0);
    }
}

static void nothing_before_hello(void **state)
{
    struct bench *b = *state;
    char bytes[256];
    open_stream(b, &both_ways, 1000);
    turns(b, 3);
    assert_int_equal(recv(b->agent, bytes, sizeof(bytes), MSG_DONTWAIT), -1);
    assert_true(session_input(b->s, "\4\0\0\0\0\0\0\0\1\0\0\0\2\0\0\0", 16));
    turns(b, 3);
    assert_int_equal(recv(b->agent, bytes, sizeof(bytes), MSG_DONTWAIT), WIRE_HEADER_SIZE + 1);
}

static void times_out(void **state)
{
    struct bench *b = *state;
    open_stream(b, &unary, 30);
    usec_t until = clock_mono() + 10 * USEC_PER_SEC;
    while (!b->ends && clock_mono() < until)
        (void)uv_run(&b->uv, UV_RUN_ONCE);
    assert_int_equal(b->ends, 1);
    assert_int_equal(b->err.code, ERR_DEADLINE_EXCEEDED);
    /* The agent answers after all: dropped, and no lie. */
    assert_true(session_input(b->s, "\4\0\0\0\0\0\0\0\1\0\0\0\2\0\0\0", 16));
    AUTO_BUF struct buf late = BUF_INIT(100);
    put(&late, WIRE_END, 1, "\0\0\0\0\0\0", 6);
    assert_true(session_input(b->s, buf_data(&late), buf_len(&late)));
    assert_int_equal(b->ends, 1);
    assert_int_equal(map_count(&b->s->streams), 0);
}

static void sends_within_credit(void **state)
{
    struct bench *b = *state;
    char *body = mem_zalloc(1 << 20);
    assert_true(session_input(b->s, "\4\0\0\0\0\0\0\0\1\0\0\0\2\0\0\0", 16));
    open_stream(b, &both_ways, 1000);
    assert_int_equal(stream_send(b->st, str_n(body, 1 << 20)), WIRE_WINDOW);
    assert_int_equal(stream_send(b->st, STR("x")), 0);
    AUTO_BUF struct buf credit = BUF_INIT(100);
    put(&credit, WIRE_CREDIT, 1, "\0\0\1\0", 4);
    assert_true(session_input(b->s, buf_data(&credit), buf_len(&credit)));
    assert_int_equal(b->rooms, 1);
    assert_int_equal(stream_send(b->st, str_n(body, 1 << 20)), 65536);
    /* Giving back more than was sent is a lie. */
    for (int i = 0; i < 5; i++)
        (void)session_input(b->s, buf_data(&credit), buf_len(&credit));
    turns(b, 3);
    assert_int_equal(b->broken, 1);
    assert_true(b->violation);
    assert_non_null(strstr(b->why.msg, "CREDIT for more than it was sent"));
    assert_int_equal(stream_send(b->st, STR("x")), 0);
    struct err err;
    struct stream *st;
    assert_int_equal(stream_open(b->s, session_request(b->s, WIRE_PING), &unary, b, 0, &st, &err), -1);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
    mem_free(body);
}

static void outbox_has_a_limit(void **state)
{
    enum { N = 20 };
    struct bench *b = *state;
    struct stream *streams[N];
    struct err err;
    char *body = mem_zalloc(WIRE_WINDOW);
    assert_true(session_input(b->s, "\4\0\0\0\0\0\0\0\1\0\0\0\2\0\0\0", 16));
    size_t sent = 0;
    for (int i = 0; i < N; i++) {
        assert_int_equal(stream_open(b->s, session_request(b->s, WIRE_WRITE), &both_ways, b, 0, &streams[i], &err), 0);
        sent += stream_send(streams[i], str_n(body, WIRE_WINDOW));
    }
    assert_true(sent < N * WIRE_WINDOW / 2); /* though each has credit */
    assert_true(buf_len(&b->s->outbox) < 2 << 20);
    usec_t until = clock_mono() + 10 * USEC_PER_SEC;
    while (!b->rooms && clock_mono() < until) {
        (void)!read(b->agent, body, WIRE_WINDOW);
        turns(b, 1);
    }
    assert_true(b->rooms > 0);
    mem_free(body);
}

static void dies_with_streams(void **state)
{
    struct bench *b = *state;
    struct err why = {.code = ERR_UNAVAILABLE, .msg = "over"};
    open_stream(b, &unary, 1000);
    session_close(TAKE_PTR(b->s), &why);
    assert_int_equal(b->ends, 0);
    turns(b, 3);
    assert_int_equal(b->ends, 1);
    assert_string_equal(b->err.msg, "over");
    assert_int_equal(b->broken, 0);
}

static void hangs_up(void **state)
{
    struct bench *b = *state;
    b->agent = fd_close(b->agent);
    turns(b, 5);
    assert_int_equal(b->broken, 1);
    assert_false(b->violation);
}

static void messages_are_cleaned(void **state)
{
    char text[16];
    (void)state;
    text_clean(STR("plain"), text, sizeof(text));
    assert_string_equal(text, "plain");
    text_clean(STR("a\nb\0c\x1b[1m\xff"), text, sizeof(text));
    assert_string_equal(text, "a?b?c?[1m?");
    text_clean(STR("01234567890123\xc3\xa9 and more"), text, sizeof(text));
    assert_string_equal(text, "01234567890123"); /* not half a character */
    text_clean(STR(""), text, sizeof(text));
    assert_string_equal(text, "");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_anywhere),
        TEST(nothing_before_hello),
        TEST(times_out),
        TEST(sends_within_credit),
        TEST(outbox_has_a_limit),
        TEST(dies_with_streams),
        TEST(hangs_up),
        cmocka_unit_test(messages_are_cleaned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
