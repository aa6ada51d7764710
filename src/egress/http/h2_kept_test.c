/* SPDX-License-Identifier: Apache-2.0 */
/* What an HTTP/2 exchange keeps in memory, and for how long. */
#include "base/mem.h"
#include "egress/http/test_h2.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* One of many that keep too much together keeps little, and goes on when its client does. */
static void test_what_many_keep(void **state)
{
    (void)state;
    enum { STREAMS = 2, EACH = 140 * 1024, OTHERS = EXCHANGE_SHARE_MAX + 1 };
    struct exchange_share share = {OTHERS};
    struct ends w;
    AUTO_FREE char *body = mem_alloc(EACH + 1);
    int32_t ids[STREAMS];
    memset(body, 'x', EACH);
    body[EACH] = 0;
    ends_open(&w, NULL);
    exchange_set_share(w.r.x, &share);
    w.half[CLIENT]->no_credit = true;
    for (int i = 0; i < STREAMS; i++)
        ids[i] = ends_ask(&w, ENDS_ASK, NULL, true);
    for (int i = 0; i < STREAMS; i++) {
        ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 1 + 2 * i)->has_head);
        ends_answer(&w, 1 + 2 * i, ":status: 200\n", body, true);
    }
    ENDS_UNTIL(&w, share.held > OTHERS + EXCHANGE_SHARE_LEAST);
    for (int i = 0; i < 300; i++)
        ends_turn(&w);
    assert_true(w.r.x->bodies <= 2 * EXCHANGE_SHARE_LEAST && share.held <= OTHERS + 2 * EXCHANGE_SHARE_LEAST);
    w.half[CLIENT]->no_credit = false;
    size_t n = 0;
    for (int i = 0; i < STREAMS; i++) {
        size_t got = buf_len(&ends_at(&w, CLIENT, ids[i])->body);
        assert_int_equal(nghttp2_session_consume(w.half[CLIENT]->session, ids[i], got), 0);
        n += got;
    }
    assert_int_equal(n, 65535);
    for (int i = 0; i < STREAMS; i++) {
        ENDS_UNTIL(&w, ends_at(&w, CLIENT, ids[i])->ended);
        assert_int_equal(buf_len(&ends_at(&w, CLIENT, ids[i])->body), EACH);
    }
    (void)ends_again(&w);
    assert_int_equal(share.held, OTHERS);
    ends_close(&w);
}

/* Nothing of a request is left when it is over. */
static void expect_nothing_kept(struct ends *w)
{
    ENDS_UNTIL(w, !w->r.x->heads && !w->r.x->bodies && !w->r.x->uploads);
    const struct h2 *h = container_of(w->r.x, struct h2, x);
    assert_null(h->client.block.arena.head);
    assert_null(h->upstream.block.arena.head);
}

/* No answer's body fits into the client's window. */
static void close_window(struct ends *w)
{
    const nghttp2_settings_entry none = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0};
    assert_int_equal(nghttp2_submit_settings(w->half[CLIENT]->session, NGHTTP2_FLAG_NONE, &none, 1), 0);
}

/* A field of 4 KiB, said once and then meant by a byte each: HEADERS of 15 of them, 60 KiB. Begins with `start`, which
 * indexes nothing. */
static void put_cheap_head(struct buf *b, struct str start, unsigned stream, uint8_t flags, bool first)
{
    enum { VALUE = 4040, TIMES = 15 };
    size_t n = start.n + TIMES + (first ? 5 + VALUE - 1 + 1 : 0);
    const uint8_t frame[] = {
        (uint8_t)(n >> 16),      (uint8_t)(n >> 8),      (uint8_t)n,     1, flags, (uint8_t)(stream >> 24),
        (uint8_t)(stream >> 16), (uint8_t)(stream >> 8), (uint8_t)stream};
    static const char literal[] = "\x40\x01x\x7f\xc9\x1e";
    buf_append(b, frame, sizeof(frame));
    buf_append_str(b, start);
    if (first) {
        buf_append(b, literal, 6);
        for (int i = 0; i < VALUE; i++)
            buf_append_char(b, 'v');
    }
    for (int i = first; i < TIMES; i++)
        buf_append_char(b, '\xbe');
}

#define CHEAP_ASK                                                                                                      \
    STR("\x82\x87\x84\x01\x01"                                                                                         \
        "a")
#define CHEAP_REFUSED                                                                                                  \
    STR("\x82\x87\x04\x08/refused\x01\x01"                                                                             \
        "a")

static void say_cheap_heads(struct ends *w, struct str start, unsigned n)
{
    AUTO_BUF struct buf b = BUF_INIT(1024 * 1024);
    for (unsigned i = 0; i < n; i++)
        put_cheap_head(&b, start, 1 + 2 * i, 5, i == 0);
    w->half[CLIENT]->dead = true; /* it does not know of them */
    rig_send(&w->r, CLIENT, buf_str(&b));
}

/* What few bytes make of themselves is bounded, and heads go when they were judged. */
static void test_heads_that_cost_nothing(void **state)
{
    (void)state;
    enum { ASKED = 100, OUR_OWN = 512 };
    struct ends w;
    ends_open(&w, NULL);
    ends_turn(&w);
    close_window(&w);
    ends_turn(&w);
    say_cheap_heads(&w, CHEAP_REFUSED, ASKED);
    ENDS_UNTIL(&w, w.r.requests == ASKED);
    assert_in_range(w.r.x->heads, ASKED * H2_STREAM_COST, ASKED * H2_STREAM_COST);
    assert_in_range(w.r.x->bodies, 1, ASKED * OUR_OWN);
    ends_close(&w);

    ends_open(&w, NULL); /* upstream takes none */
    ends_turn(&w);
    w.half[UPSTREAM]->dead = w.r.stop[UPSTREAM] = true;
    say_cheap_heads(&w, CHEAP_ASK, ASKED);
    for (int i = 0; i < 300; i++)
        ends_turn(&w);
    assert_in_range(w.r.requests, 25, 40);
    assert_in_range(w.r.x->heads, H2_HEADS_MAX / 2, H2_HEADS_MAX + 2 * EXCHANGE_HEAD_MAX + ASKED * H2_STREAM_COST);
    assert_non_null(
        memmem(buf_data(&w.r.got[CLIENT]), buf_len(&w.r.got[CLIENT]), "\0\0\4\3\0\0\0\0\xc7\0\0\0\x0b", 13));
    ends_close(&w);

    ends_open(&w, NULL); /* upstream says them, and the client takes none */
    int32_t id = ends_ask(&w, ENDS_ASK, NULL, true);
    ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 1)->ended);
    w.half[UPSTREAM]->dead = w.r.stop[CLIENT] = true;
    AUTO_BUF struct buf early = BUF_INIT(1024 * 1024);
    for (int i = 0; i < H2_INFORMED_MAX; i++)
        put_cheap_head(&early,
                       STR("\x08\x03"
                           "103"),
                       1, 4, i == 0);
    rig_send(&w.r, UPSTREAM, buf_str(&early));
    for (int i = 0; i < 300; i++)
        ends_turn(&w);
    assert_in_range(w.r.x->heads, H2_STREAM_COST, H2_HEADS_MAX + 2 * EXCHANGE_HEAD_MAX);
    w.r.stop[CLIENT] = false;
    ENDS_UNTIL(&w, buf_len(&ends_at(&w, CLIENT, id)->informed) > EXCHANGE_HEAD_MAX);
    ENDS_UNTIL(&w, w.r.x->heads == H2_STREAM_COST);
    ends_close(&w);
}

/* Where all of a sandbox keep too much, one that keeps little gets through, and no other. */
static void test_heads_of_many(void **state)
{
    (void)state;
    enum { OTHERS = EXCHANGE_SHARE_MAX + 1 };
    struct exchange_share share = {OTHERS};
    struct ends w;
    AUTO_BUF struct buf large = BUF_INIT(65536);
    buf_append_cstr(&large, ENDS_ASK "x: ");
    for (int i = 0; i < H2_HEADS_LEAST; i++)
        buf_append_char(&large, 'x');
    buf_append(&large, "\n", 2);
    ends_open(&w, NULL);
    exchange_set_share(w.r.x, &share);
    int32_t id = ends_ask(&w, buf_data(&large), NULL, true);
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->closed);
    assert_int_equal(ends_at(&w, CLIENT, id)->code, NGHTTP2_ENHANCE_YOUR_CALM);
    assert_int_equal(w.r.requests, 0);
    for (int i = 0; i < H2_STREAMS_LEAST; i++)
        (void)ends_ask(&w, ENDS_ASK, NULL, true);
    ENDS_UNTIL(&w, w.r.requests == H2_STREAMS_LEAST);
    id = ends_ask(&w, ENDS_ASK, NULL, true);
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->closed);
    assert_int_equal(ends_at(&w, CLIENT, id)->code, NGHTTP2_ENHANCE_YOUR_CALM);
    for (int i = 0; i < H2_STREAMS_LEAST; i++) {
        ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 1 + 2 * i)->has_head);
        ends_answer(&w, 1 + 2 * i, ":status: 200\n", NULL, true);
    }
    ENDS_UNTIL(&w, w.r.answers == H2_STREAMS_LEAST);
    (void)ends_again(&w);
    share.held -= OTHERS; /* the others have gone */
    id = ends_ask(&w, buf_data(&large), NULL, true);
    ENDS_UNTIL(&w, w.r.requests == H2_STREAMS_LEAST + 2);
    ends_answer(&w, 3 + 2 * H2_STREAMS_LEAST, ":status: 200\n", NULL, true);
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, id)->closed);
    expect_nothing_kept(&w);
    ENDS_UNTIL(&w, share.held == 0);
    ends_close(&w);
}

/* An answer that nobody takes is given up, whatever else moves; one that does not come yet is waited for. */
static void test_answers_that_nobody_takes(void **state)
{
    (void)state;
    static const struct exchange_times blocked = {100000, 100000, 100000, 20};
    struct ends w;
    ends_open(&w, &blocked);
    close_window(&w);
    int32_t taken = ends_ask(&w, ENDS_ASK, NULL, true), refused, slow;
    refused = ends_ask(&w, ":method: GET\n:scheme: https\n:authority: a\n:path: /refused\n", NULL, true);
    slow = ends_ask(&w, ENDS_ASK, NULL, true);
    ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 3)->ended);
    ends_answer(&w, 1, ":status: 200\n", "body", false);
    for (uint64_t until = uv_hrtime() + 100000000; uv_hrtime() < until;) {
        assert_int_equal(nghttp2_submit_ping(w.half[CLIENT]->session, NGHTTP2_FLAG_NONE, NULL), 0);
        for (int i = 0; i < 10; i++)
            ends_turn(&w);
    }
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, taken)->closed && ends_at(&w, CLIENT, refused)->closed);
    assert_int_equal(ends_at(&w, CLIENT, taken)->code, NGHTTP2_ENHANCE_YOUR_CALM);
    assert_int_equal(ends_at(&w, CLIENT, refused)->code, NGHTTP2_ENHANCE_YOUR_CALM);
    ENDS_UNTIL(&w, ends_at(&w, UPSTREAM, 1)->closed);
    assert_false(ends_at(&w, CLIENT, slow)->closed);
    ends_answer(&w, 3, ":status: 204\n", NULL, true);
    ENDS_UNTIL(&w, ends_at(&w, CLIENT, slow)->closed);
    assert_true(str_starts(buf_str(&ends_at(&w, CLIENT, slow)->head), STR(":status: 204\n")));
    expect_nothing_kept(&w);
    ends_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_many_keep),
        cmocka_unit_test(test_heads_that_cost_nothing),
        cmocka_unit_test(test_heads_of_many),
        cmocka_unit_test(test_answers_that_nobody_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
