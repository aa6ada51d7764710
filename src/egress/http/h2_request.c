/* SPDX-License-Identifier: Apache-2.0 */
/* What the client says: each stream's head is judged before a byte of it goes anywhere. */
#include "egress/http/h2_internal.h"

static int h2_request_refuse(struct h2_stream *s, int status, struct str text)
{
    h2_respond(s, status, text);
    return 0;
}

/* What the client said, before the owner edited it. */
struct h2_said {
    struct str path, scheme, length;
    const struct http_header *fields;
    size_t n;
};

/* A value that the owner put there (a secret): it is kept out of HPACK's table, so that nobody finds it by how well
 * guesses compress. */
static bool is_new(const struct h2_said *said, struct str value)
{
    for (size_t i = 0; i < said->n; i++) {
        if (said->fields[i].value.p == value.p)
            return false;
    }
    return true;
}

static int forward(struct h2_stream *s, const struct exchange_head *head, const struct h2_said *said)
{
    size_t n = 0;
    nghttp2_nv *nv = arena_alloc(head->arena, (head->n_fields + 5) * sizeof(*nv));
    nv[n++] = h2_nv(STR(":method"), head->method);
    nv[n++] = h2_nv(STR(":scheme"), said->scheme);
    nv[n++] = h2_nv(STR(":authority"), head->authority);
    nv[n] = h2_nv(STR(":path"), head->path);
    nv[n++].flags |= head->path.p != said->path.p ? NGHTTP2_NV_FLAG_NO_INDEX : 0;
    for (size_t i = 0; i < head->n_fields; i++) {
        nv[n] = h2_nv(head->fields[i].name, head->fields[i].value);
        if (is_new(said, head->fields[i].value))
            nv[n].flags |= NGHTTP2_NV_FLAG_NO_INDEX;
        n++;
    }
    if (said->length.p)
        nv[n++] = h2_nv(STR("content-length"), said->length);
    nghttp2_data_provider provider = h2_flow_provider(&s->up);
    bool is_over = s->up.ended && buf_len(&s->up.body) == 0 && s->up.n_trailers == 0;
    int32_t id = nghttp2_submit_request(s->h->upstream.session, NULL, nv, n, is_over ? NULL : &provider, s);
    h2_head_queued(s->h, nv, n, id);
    if (id < 0) { /* it said GOAWAY, or has no numbers left */
        h2_leave(s->h);
        h2_reset_client(s, NGHTTP2_REFUSED_STREAM);
        h2_tell_answer(s, 0);
        return 0;
    }
    s->upstream_id = id;
    return 0;
}

static int h2_request_release(struct h2_stream *s, bool is_whole);

static int h2_request_hold(struct h2_stream *s, const struct exchange_head *head)
{
    assert(head->body_is == EXCHANGE_BODY_UNREAD);
    if (!h2_hold(s, head)) {
        h2_reset_client(s, NGHTTP2_ENHANCE_YOUR_CALM);
        return 0;
    }
    s->up.body.max = 2 * EXCHANGE_BODY_MAX;
    return s->up.ended || (s->held->has_length && s->held->length > EXCHANGE_BODY_MAX) ? h2_request_release(s, false)
                                                                                       : 0;
}

/* Asks, and passes it on. */
static int h2_request_ask(struct h2_stream *s, struct exchange_head *head, struct str scheme, struct str length)
{
    struct exchange *x = &s->h->x;
    struct h2_said said = {head->path, scheme, length, NULL, head->n_fields};
    struct http_header *fields = arena_alloc(head->arena, (head->n_fields + 1) * sizeof(*fields));
    char text[24];
    if (head->n_fields)
        memcpy(fields, head->fields, head->n_fields * sizeof(*fields));
    said.fields = fields;

    struct exchange_refusal refusal = {.status = 403};
    s->id = s->id ? s->id : ++x->last_id;
    if (!x->ops->on_request(x->ctx, s->id, head, &refusal)) {
        if (x->closed)
            return NGHTTP2_ERR_CALLBACK_FAILURE;
        if (refusal.wants)
            return h2_request_hold(s, head);
        if (refusal.close)
            h2_leave(s->h);
        return h2_request_refuse(s, refusal.status, str_n(refusal.text, strnlen(refusal.text, sizeof(refusal.text))));
    }
    s->owed = true;
    if (x->closed)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    exchange_remove(head, STR("upgrade"));
    if (!exchange_is_sendable(head))
        return h2_request_refuse(s, 500, STR("what was put into this request can't be sent"));
    if (s->h->upstream_gone) {
        h2_leave(s->h);
        return h2_request_refuse(s, 502, str_of(s->h->why));
    }
    if (head->body_is == EXCHANGE_BODY_WHOLE) {
        h2_flow_replace(&s->up, head->body);
        (void)snprintf(text, sizeof(text), "%zu", head->body.n);
        said.length = length.p ? str_of(text) : STR_NULL;
    }
    return forward(s, head, &said);
}

/* What was collected of its body is asked about, or passed on as it is. */
static int h2_request_release(struct h2_stream *s, bool is_whole)
{
    AUTO_BUF struct buf length = BUF_INIT(24);
    struct h2_held *held = s->held;
    held->head.body_is = is_whole ? EXCHANGE_BODY_WHOLE : EXCHANGE_BODY_PASSED;
    held->head.body = is_whole ? arena_str(&held->arena, buf_str(&s->up.body)) : STR_NULL;
    if (held->has_length)
        buf_append_u64(&length, held->length);
    int r = h2_request_ask(s, &held->head, held->scheme, held->has_length ? buf_str(&length) : STR_NULL);
    h2_held_free(s);
    if (!s->upstream_id)
        h2_flow_drop(&s->up);
    return r;
}

static int h2_request_judge(struct h2_stream *s)
{
    struct h2_block *b = &s->h->client.block;
    struct exchange_head head = {.arena = &b->arena, .method = b->method, .authority = b->authority, .path = b->path};
    s->head_only = str_eqc(b->method, "HEAD");
    if (b->too_large)
        return h2_request_refuse(s, 431, STR("the head is too large"));
    if (exchange_is_refused_method(b->method) || b->protocol.p)
        return h2_request_refuse(s, 405, STR("this method is not passed on"));
    const char *wrong = exchange_fill_head(&head, b->fields, b->n);
    if (!wrong)
        wrong = exchange_check_target(&head);
    if (!wrong && !head.authority.n)
        wrong = "the authority is missing";
    if (!wrong && !str_eqc(b->scheme, "https") && !str_eqc(b->scheme, "http"))
        wrong = "the scheme is not supported";
    if (wrong)
        return h2_request_refuse(s, 400, str_of(wrong));
    exchange_remove(&head, STR("upgrade"));
    return h2_request_ask(s, &head, b->scheme, b->length);
}

static int h2_request_on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    struct h2 *h = h2_half_of(ctx)->h;
    struct h2_stream *s;
    if (frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        if (h->n_streams >= 2 * EXCHANGE_STREAMS_MAX) /* the client is done with some that upstream is not */
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        if (h->n_streams >= H2_STREAMS_LEAST && exchange_is_full(&h->x)) {
            (void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_ENHANCE_YOUR_CALM);
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        }
        s = h2_stream_new(h, frame->hd.stream_id);
        (void)nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, s);
    } else {
        s = h2_stream_of(&h->client, frame->hd.stream_id);
    }
    if (s)
        h2_block_begin(&h->client, frame->hd.stream_id);
    h->head_open = true;
    return 0;
}

/* Nothing is left out of a request in silence. */
static int on_invalid_header(nghttp2_session *session UNUSED, const nghttp2_frame *frame UNUSED,
                             const uint8_t *name UNUSED, size_t n_name UNUSED, const uint8_t *value UNUSED,
                             size_t n_value UNUSED, uint8_t flags UNUSED, void *ctx UNUSED)
{
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static int h2_request_on_frame(nghttp2_session *session UNUSED, const nghttp2_frame *frame, void *ctx)
{
    struct h2 *h = h2_half_of(ctx)->h;
    if (exchange_over(&h->x))
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (frame->hd.type == NGHTTP2_SETTINGS)
        h->opened = true;
    if (frame->hd.type == NGHTTP2_GOAWAY)
        h2_leave(h);
    if (frame->hd.type == NGHTTP2_HEADERS)
        h->head_open = false;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    struct h2_stream *s = h2_stream_of(&h->client, frame->hd.stream_id);
    if (!s)
        return 0;
    struct h2_block *b = &h->client.block;
    bool is_head = frame->hd.type == NGHTTP2_HEADERS;
    bool is_request = is_head && frame->headers.cat == NGHTTP2_HCAT_REQUEST;
    if (is_head && (is_request ? b->no_room : b->too_large)) {
        h2_reset_client(s, NGHTTP2_ENHANCE_YOUR_CALM);
        h2_block_end(&h->client);
        return 0;
    }
    if (is_head && !is_request) /* the same names are left behind as those of HTTP/1 */
        h2_flow_trailers(&s->up, b, exchange_is_trailer);
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        h2_flow_end(&s->up);
    int r = is_request ? h2_request_judge(s) : s->held && s->up.ended ? h2_request_release(s, true) : 0;
    if (is_head)
        h2_block_end(&h->client);
    return r;
}

static int h2_request_on_data(nghttp2_session *session, uint8_t flags UNUSED, int32_t id, const uint8_t *p, size_t n,
                              void *ctx)
{
    struct h2_stream *s = h2_stream_of(h2_half_of(ctx), id);
    if (!s)
        return nghttp2_session_consume_connection(session, n) ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
    if (h2_flow_add(&s->up, str_n(p, n)) < 0)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (s->held && exchange_is_full(&s->h->x) && buf_len(&s->up.body) > EXCHANGE_SHARE_LEAST)
        h2_reset_client(s, NGHTTP2_ENHANCE_YOUR_CALM);
    return s->held && !s->reset_sent && buf_len(&s->up.body) > EXCHANGE_BODY_MAX ? h2_request_release(s, false) : 0;
}

static int h2_request_on_sent(nghttp2_session *session UNUSED, const nghttp2_frame *frame, void *ctx)
{
    h2_head_gone(h2_half_of(ctx)->h, frame);
    if (frame->hd.type == NGHTTP2_RST_STREAM) /* for a block that was none, perhaps */
        h2_half_of(ctx)->h->head_open = false;
    if ((frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) ||
        !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    struct h2_stream *s = h2_stream_of(h2_half_of(ctx), frame->hd.stream_id);
    if (s) {
        s->end_sent = true;
        h2_finish_client(s);
    }
    return 0;
}

static int h2_request_on_close(nghttp2_session *session UNUSED, int32_t id, uint32_t code, void *ctx)
{
    struct h2 *h = h2_half_of(ctx)->h;
    struct h2_stream *s = h2_stream_of(&h->client, id);
    if (h->client.block.id == id)
        h2_block_end(&h->client);
    if (!s)
        return 0;
    s->client_id = 0;
    h2_flow_drop(&s->down);
    if (s->upstream_id && !(code == NGHTTP2_NO_ERROR && s->end_sent && s->up.ended))
        (void)nghttp2_submit_rst_stream(h->upstream.session, NGHTTP2_FLAG_NONE, s->upstream_id,
                                        code == NGHTTP2_NO_ERROR ? NGHTTP2_CANCEL : code);
    h2_stream_release(s);
    return 0;
}

void h2_request_callbacks(nghttp2_session_callbacks *c)
{
    nghttp2_session_callbacks_set_on_begin_frame_callback(c, h2_on_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(c, h2_request_on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(c, h2_on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(c, on_invalid_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(c, h2_request_on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(c, h2_request_on_data);
    nghttp2_session_callbacks_set_on_frame_send_callback(c, h2_request_on_sent);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(c, h2_on_not_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(c, h2_request_on_close);
}
