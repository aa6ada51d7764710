/* SPDX-License-Identifier: Apache-2.0 */
/* What upstream says: answers to streams that are open, and how it ends them. */
#include "egress/http/h2_internal.h"

static int h2_answer_on_begin_headers(nghttp2_session *session UNUSED, const nghttp2_frame *frame, void *ctx)
{
    struct h2_stream *s = h2_stream_of(h2_half_of(ctx), frame->hd.stream_id);
    if (s)
        h2_block_begin(h2_half_of(ctx), frame->hd.stream_id);
    return 0;
}

static void tell_fields(struct h2_stream *s)
{
    struct h2_block *b = &s->h->upstream.block;
    const struct exchange *x = &s->h->x;
    if (x->ops->on_fields && b->n)
        x->ops->on_fields(x->ctx, s->id, &b->arena, b->fields, b->n);
}

static void relay_head(struct h2_stream *s)
{
    struct h2_block *b = &s->h->upstream.block;
    nghttp2_session *client = s->h->client.session;
    uint64_t status = 0;
    if (str_to_u64(b->status, &status) < 0 || status < 100 || status > 599 || b->too_large ||
        s->informed > H2_INFORMED_MAX) {
        (void)nghttp2_submit_rst_stream(s->h->upstream.session, NGHTTP2_FLAG_NONE, s->upstream_id, NGHTTP2_CANCEL);
        h2_respond(s, 502, STR("the server's answer is not valid: its head is too large, or there are too many"));
        return;
    }
    tell_fields(s);
    size_t n = 0;
    nghttp2_nv *nv = arena_alloc(&b->arena, (b->n + 2) * sizeof(*nv));
    nv[n++] = h2_nv(STR(":status"), b->status);
    for (size_t i = 0; i < b->n; i++)
        nv[n++] = h2_nv(b->fields[i].name, b->fields[i].value);
    if (b->length.p && status >= 200)
        nv[n++] = h2_nv(STR("content-length"), b->length);
    if (status < 200) {
        s->informed++;
        h2_head_queued(s->h, nv, n, nghttp2_submit_headers(client, NGHTTP2_FLAG_NONE, s->client_id, NULL, nv, n, NULL));
        return;
    }
    nghttp2_data_provider provider = h2_flow_provider(&s->down);
    s->answered = true;
    h2_head_queued(s->h, nv, n, nghttp2_submit_response(client, s->client_id, nv, n, s->down.ended ? NULL : &provider));
    h2_tell_answer(s, (int)status);
}

static int h2_answer_on_frame(nghttp2_session *session UNUSED, const nghttp2_frame *frame, void *ctx)
{
    struct h2 *h = h2_half_of(ctx)->h;
    if (exchange_over(&h->x))
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (frame->hd.type == NGHTTP2_GOAWAY)
        h2_leave(h);
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    struct h2_stream *s = h2_stream_of(&h->upstream, frame->hd.stream_id);
    if (!s || !s->down.from)
        return 0;
    bool is_head = frame->hd.type == NGHTTP2_HEADERS && !s->answered;
    if (frame->hd.type == NGHTTP2_HEADERS && !is_head)
        tell_fields(s);
    if (frame->hd.type == NGHTTP2_HEADERS && !is_head)
        h2_flow_trailers(&s->down, &h->upstream.block, NULL);
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        h2_flow_end(&s->down);
    if (is_head && s->client_id)
        relay_head(s);
    if (frame->hd.type == NGHTTP2_HEADERS)
        h2_block_end(&h->upstream);
    return h->x.closed ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int h2_answer_on_data(nghttp2_session *session, uint8_t flags UNUSED, int32_t id, const uint8_t *p, size_t n,
                             void *ctx)
{
    struct h2_stream *s = h2_stream_of(h2_half_of(ctx), id);
    if (!s || !s->down.from) /* answered by us meanwhile */
        return nghttp2_session_consume(session, id, n) ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
    return h2_flow_add(&s->down, str_n(p, n)) < 0 ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int h2_answer_on_sent(nghttp2_session *session UNUSED, const nghttp2_frame *frame, void *ctx)
{
    h2_head_gone(h2_half_of(ctx)->h, frame);
    return 0;
}

static int h2_answer_on_close(nghttp2_session *session UNUSED, int32_t id, uint32_t code, void *ctx)
{
    struct h2 *h = h2_half_of(ctx)->h;
    struct h2_stream *s = h2_stream_of(&h->upstream, id);
    if (h->upstream.block.id == id)
        h2_block_end(&h->upstream);
    if (!s)
        return 0;
    s->upstream_id = 0;
    h2_flow_drop(&s->up);
    if (s->client_id && s->down.from && !(s->answered && s->down.ended))
        h2_reset_client(s, code == NGHTTP2_NO_ERROR ? NGHTTP2_INTERNAL_ERROR : code);
    else if (s->client_id)
        h2_finish_client(s);
    h2_stream_release(s);
    return h->x.closed ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

void h2_answer_callbacks(nghttp2_session_callbacks *c)
{
    nghttp2_session_callbacks_set_on_begin_frame_callback(c, h2_on_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(c, h2_answer_on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(c, h2_on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(c, h2_answer_on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(c, h2_answer_on_data);
    nghttp2_session_callbacks_set_on_frame_send_callback(c, h2_answer_on_sent);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(c, h2_on_not_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(c, h2_answer_on_close);
}
