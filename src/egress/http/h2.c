/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation.
 *
 *  1. Two nghttp2 sessions, a server's towards the client and a client's towards upstream; each stream of the one is
 *     one of the other, made behind on_request and by nothing else. Header blocks are taken apart and put together; no
 *     frame is passed on.
 *  2. Bytes of a body are given back to their sender's window when nghttp2 has taken them for the other side. So the
 *     windows bound what is kept here.
 *  3. Input of either side is not looked at while output for either side waits: no frame can make us keep more than one
 *     read makes.
 *  4. A stream that ends badly on one side is reset on the other; one that upstream never answered is answered 502 when
 *     its connection is lost.
 *  5. A head is kept while it is read (one of each side) and while nghttp2 has it for the other side; so are trailers,
 *     until their body is through. All of it is counted in x.heads: what does not fit into h2_has_room() costs its
 *     stream.
 *  6. An answer that is there and of which the client takes nothing is reset, whatever else moves: h2_drop_untaken().
 *  7. nghttp2 calls back from within h2_round() alone; sessions live until the exchange is released.
 */
#include "base/mem.h"
#include "egress/http/h2_internal.h"

enum { SETTINGS_MAX = 32 };

static struct h2 *h2_of(struct exchange *x)
{
    return container_of(x, struct h2, x);
}

/* Frames that make work and bring nothing are counted. */
int h2_on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *ctx)
{
    struct h2_half *half = ctx;
    uint64_t now = uv_now(half->h->x.loop);
    if (half == &half->h->client && hd->type != NGHTTP2_CONTINUATION)
        half->h->head_open = false;
    bool is_empty_data = hd->type == NGHTTP2_DATA && hd->length == 0 && !(hd->flags & NGHTTP2_FLAG_END_STREAM);
    if (hd->type != NGHTTP2_PING && hd->type != NGHTTP2_SETTINGS && hd->type != NGHTTP2_PRIORITY &&
        hd->type != NGHTTP2_RST_STREAM && !is_empty_data)
        return 0;
    uint64_t more = (now - half->frames_at) * H2_FRAMES_PER_S / 1000;
    if (more) {
        half->frames = (unsigned)MIN(half->frames + more, (uint64_t)H2_FRAMES_BURST);
        half->frames_at = now;
    }
    if (half->frames == 0)
        return nghttp2_session_terminate_session(session, NGHTTP2_ENHANCE_YOUR_CALM) ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
    half->frames--;
    return 0;
}

void h2_leave(struct h2 *h)
{
    if (h->leaving)
        return;
    h->leaving = true;
    nghttp2_session *s = h->client.session;
    (void)nghttp2_submit_goaway(s, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(s), NGHTTP2_NO_ERROR,
                                NULL, 0);
}

static void tell_all(struct h2 *h)
{
    LIST_FOREACH (struct h2_stream, s, &h->streams, node)
        h2_tell_answer(s, 0);
}

static void h2_finish(struct h2 *h)
{
    bool open = h->n_streams > 0;
    tell_all(h);
    end_linger(&h->x.client);
    if (open)
        end_reset(&h->x.upstream);
    else
        end_linger(&h->x.upstream);
    exchange_end(&h->x, NULL);
}

static void cut(struct h2 *h, const struct err *why)
{
    struct err err = *why;
    tell_all(h);
    end_reset(&h->x.client);
    end_reset(&h->x.upstream);
    exchange_end(&h->x, &err);
}

/* Every stream learns it: with an answer of ours where there was none, with a reset where there was a part of one. */
static void lose_upstream(struct h2 *h, const char *why)
{
    if (h->upstream_gone)
        return;
    h->upstream_gone = true;
    (void)snprintf(h->why, sizeof(h->why), "no answer from the server: %s", why);
    end_reset(&h->x.upstream);
    LIST_FOREACH (struct h2_stream, s, &h->streams, node) {
        if (!s->upstream_id)
            continue;
        (void)nghttp2_session_set_stream_user_data(h->upstream.session, s->upstream_id, NULL);
        s->upstream_id = 0;
        h2_flow_drop(&s->up);
        if (s->client_id && !s->answered)
            h2_respond(s, 502, str_of(h->why));
        else if (s->client_id && s->down.from && !s->down.ended)
            h2_reset_client(s, NGHTTP2_INTERNAL_ERROR);
        else if (s->client_id)
            h2_finish_client(s);
        h2_stream_release(s);
        if (h->x.closed)
            return;
    }
    if (h->x.last_id)
        h2_leave(h);
}

/* ---- bytes ---- */

/* nghttp2 takes all that it is given, or fails for good. */
static bool h2_feed(struct h2_half *half)
{
    struct h2 *h = half->h;
    struct buf *in = &half->end->in;
    if (buf_len(in) == 0 || buf_len(&h->x.client.out) >= END_OUT_HIGH || buf_len(&h->x.upstream.out) >= END_OUT_HIGH)
        return false;
    ssize_t n = nghttp2_session_mem_recv(half->session, (const uint8_t *)buf_data(in), buf_len(in));
    if (exchange_over(&h->x))
        return true;
    if (n < 0 && half == &h->client) {
        struct err err;
        (void)err_set(&err, ERR_INVALID_ARGUMENT, "the client's HTTP/2 is not valid: %s", nghttp2_strerror((int)n));
        cut(h, &err);
    } else if (n < 0) {
        lose_upstream(h, nghttp2_strerror((int)n));
    } else {
        buf_consume(in, (size_t)n);
    }
    return true;
}

static bool h2_fetch(struct h2_half *half)
{
    bool moved = false;
    struct h2 *h = half->h;
    while (!exchange_over(&h->x) && buf_len(&half->end->out) < END_OUT_HIGH) {
        const uint8_t *p;
        ssize_t n = nghttp2_session_mem_send(half->session, &p);
        if (n <= 0) {
            assert(n == 0 || n == NGHTTP2_ERR_CALLBACK_FAILURE || n == NGHTTP2_ERR_NOMEM);
            break;
        }
        end_put(half->end, str_n(p, (size_t)n));
        moved = true;
    }
    return moved;
}

static bool h2_is_over(const struct h2_half *half)
{
    return !nghttp2_session_want_read(half->session) && !nghttp2_session_want_write(half->session);
}

static void h2_settle(struct exchange *x, bool moved)
{
    struct h2 *h = h2_of(x);
    enum h2_phase phase = !h->opened ? H2_OPENING : h->head_open ? H2_READING_HEAD : h->n_streams ? H2_BUSY : H2_IDLE;
    const struct exchange_times *t = &h->x.times;
    const unsigned ms[] = {t->head_ms, t->idle_ms, t->head_ms, t->stall_ms};
    uint64_t now = uv_now(x->loop);
    if (phase != h->phase || (moved && phase == H2_BUSY) || !h->until) {
        h->phase = phase;
        h->until = now + ms[phase];
    }
    if (h->n_streams == 0)
        h->look_at = 0;
    else if (!h->look_at)
        h->look_at = now + t->blocked_ms;
    uint64_t next = h->look_at ? MIN(h->until, h->look_at) : h->until;
    exchange_deadline(x, next > now ? (unsigned)(next - now) : 1);
}

/* Is the connection over, and what there was to say said? */
static void look_for_end(struct h2 *h)
{
    struct exchange *x = &h->x;
    if (x->client.failed || x->client.unwritable) {
        struct err err = {.code = ERR_ABORTED, .msg = "the client went away"};
        cut(h, x->client.failed ? &x->client.err : &err);
        return;
    }
    if (!h->upstream_gone && buf_len(&x->upstream.in) == 0) {
        if (x->upstream.failed)
            lose_upstream(h, x->upstream.err.msg);
        else if (x->upstream.eof || h2_is_over(&h->upstream))
            lose_upstream(h, "the server closed the connection");
        if (x->closed)
            return;
    }
    bool silent = buf_len(&x->client.out) == 0 && !nghttp2_session_want_write(h->client.session);
    if ((x->client.eof && buf_len(&x->client.in) == 0) ||
        (silent && (h2_is_over(&h->client) || (h->leaving && h->n_streams == 0))))
        h2_finish(h);
}

static bool h2_round(struct exchange *x)
{
    struct h2 *h = h2_of(x);
    bool moved = end_read(&x->client);
    moved |= h2_feed(&h->client);
    if (!exchange_over(x) && !h->upstream_gone) {
        moved |= end_read(&x->upstream);
        moved |= h2_feed(&h->upstream);
    }
    moved |= h2_fetch(&h->client);
    if (!h->upstream_gone)
        moved |= h2_fetch(&h->upstream);
    bool was_gone = h->upstream_gone;
    if (!exchange_over(x))
        look_for_end(h);
    return moved || h->upstream_gone != was_gone; /* then there is something to tell */
}

static void h2_on_timeout(struct exchange *x)
{
    struct h2 *h = h2_of(x);
    uint64_t now = uv_now(x->loop);
    if (h->look_at && now >= h->look_at) {
        h->look_at = 0;
        h2_drop_untaken(h, x->times.blocked_ms);
    }
    if (now < h->until)
        return;
    h->until = now + x->times.head_ms;
    if (h->phase == H2_BUSY || h->phase == H2_OPENING || h->leaving) {
        struct err err;
        (void)err_set(&err, ERR_DEADLINE_EXCEEDED, "nothing moved for too long");
        cut(h, &err);
    } else {
        h2_leave(h);
        if (h->phase == H2_READING_HEAD)
            (void)nghttp2_session_terminate_session(h->client.session, NGHTTP2_ENHANCE_YOUR_CALM);
    }
}

static void h2_on_no_upstream(struct exchange *x, const char *why)
{
    lose_upstream(h2_of(x), why ? why : "it could not be reached");
}

static void h2_release(struct exchange *x)
{
    struct h2 *h = h2_of(x);
    nghttp2_session_del(h->client.session);
    nghttp2_session_del(h->upstream.session);
    struct h2_stream *s;
    while ((s = LIST_FIRST(struct h2_stream, &h->streams, node)))
        h2_stream_free(s);
    h2_block_end(&h->client);
    h2_block_end(&h->upstream);
    mem_free(h);
}

static const struct exchange_kind h2_kind = {h2_round, h2_settle, h2_on_timeout, h2_on_no_upstream, h2_release};

/* ---- sessions ---- */

static void session_open(struct h2_half *half, struct h2 *h, struct exchange_end *end)
{
    static const nghttp2_settings_entry client_settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, EXCHANGE_STREAMS_MAX},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, H2_CLIENT_WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, EXCHANGE_HEAD_MAX},
    };
    static const nghttp2_settings_entry upstream_settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, H2_UPSTREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, EXCHANGE_HEAD_MAX},
    };
    bool is_client = half == &h->client;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    *half = (struct h2_half){.h = h, .end = end, .frames = H2_FRAMES_BURST, .frames_at = uv_now(h->x.loop)};
    int r = nghttp2_session_callbacks_new(&callbacks);
    if (r == 0)
        r = nghttp2_option_new(&option);
    assert(r == 0); /* out of memory, as everywhere */
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_max_reserved_remote_streams(option, 0);
    nghttp2_option_set_max_settings(option, SETTINGS_MAX);
    nghttp2_option_set_max_send_header_block_length(option, END_OUT_MAX / 2);
    if (is_client)
        h2_request_callbacks(callbacks);
    else
        h2_answer_callbacks(callbacks);
    r = is_client ? nghttp2_session_server_new2(&half->session, callbacks, half, option)
                  : nghttp2_session_client_new2(&half->session, callbacks, half, option);
    assert(r == 0);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    if (is_client)
        r = nghttp2_submit_settings(half->session, NGHTTP2_FLAG_NONE, client_settings, ARRAY_SIZE(client_settings));
    else
        r = nghttp2_submit_settings(half->session, NGHTTP2_FLAG_NONE, upstream_settings, ARRAY_SIZE(upstream_settings));
    if (r == 0)
        r = nghttp2_session_set_local_window_size(half->session, NGHTTP2_FLAG_NONE, 0,
                                                  is_client ? H2_CLIENT_WINDOW_ALL : H2_UPSTREAM_WINDOW_ALL);
    assert(r == 0);
}

struct exchange *h2_exchange_timed(uv_loop_t *loop, struct side *client, struct side *upstream, struct str first,
                                   const struct exchange_ops *ops, void *ctx, const struct exchange_times *times)
{
    struct h2 *h = mem_new(struct h2);
    assert(upstream);
    list_init(&h->streams);
    exchange_init(&h->x, &h2_kind, loop, client, upstream, first, ops, ctx, times);
    session_open(&h->client, h, &h->x.client);
    session_open(&h->upstream, h, &h->x.upstream);
    return &h->x;
}

struct exchange *h2_exchange(uv_loop_t *loop, struct side *client, struct side *upstream, struct str first,
                             const struct exchange_ops *ops, void *ctx)
{
    return h2_exchange_timed(loop, client, upstream, first, ops, ctx, NULL);
}
