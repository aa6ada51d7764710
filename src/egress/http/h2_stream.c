/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "egress/http/h2_internal.h"

static void uncount(struct h2 *h, size_t n)
{
    assert(n <= h->x.heads);
    h->x.heads -= n;
}

struct h2_stream *h2_stream_new(struct h2 *h, int32_t client_id)
{
    struct h2_stream *s = mem_new(struct h2_stream);
    s->h = h;
    s->client_id = client_id;
    h->x.heads += H2_STREAM_COST;
    s->up = (struct h2_flow){.stream = s, .from = &h->client, .to = &h->upstream};
    s->down = (struct h2_flow){.stream = s, .from = &h->upstream, .to = &h->client};
    buf_init(&s->up.body, 2 * H2_CLIENT_WINDOW);
    buf_init(&s->down.body, 2 * H2_UPSTREAM_WINDOW);
    list_append(&h->streams, &s->node);
    h->n_streams++;
    return s;
}

static void drop_trailers(struct h2_flow *f)
{
    uncount(f->stream->h, f->kept);
    f->kept = f->n_trailers = 0;
    f->trailers = NULL;
    arena_wipe(&f->arena);
}

/* for so much more of heads */
static bool h2_has_room(const struct h2 *h, size_t n)
{
    size_t most = exchange_is_full(&h->x) ? H2_HEADS_LEAST : H2_HEADS_MAX;
    size_t heads = h->x.heads - (size_t)h->n_streams * H2_STREAM_COST;
    return heads <= most && n <= most - heads;
}

bool h2_hold(struct h2_stream *s, const struct exchange_head *head)
{
    const struct h2_block *b = &s->h->client.block;
    if (!h2_has_room(s->h, b->kept))
        return false;
    struct h2_held *held = s->held = mem_new(struct h2_held);
    held->kept = b->kept;
    s->h->x.heads += held->kept;
    held->head = *head;
    held->head.arena = &held->arena;
    held->head.fields = arena_alloc(&held->arena, (head->n_fields + 1) * sizeof(*head->fields));
    if (head->n_fields)
        memcpy(held->head.fields, head->fields, head->n_fields * sizeof(*head->fields));
    held->head.cap_fields = head->n_fields;
    exchange_keep_head(&held->head);
    held->scheme = arena_str(&held->arena, b->scheme);
    held->has_length = b->length.p && str_to_u64(b->length, &held->length) == 0;
    return true;
}

void h2_held_free(struct h2_stream *s)
{
    struct h2_held *held = TAKE_PTR(s->held);
    if (!held)
        return;
    uncount(s->h, held->kept);
    s->h->x.held -= buf_len(&s->up.body);
    s->h->x.uploads += buf_len(&s->up.body);
    arena_wipe(&held->arena);
    mem_free(held);
}

void h2_stream_free(struct h2_stream *s)
{
    h2_held_free(s);
    s->h->n_streams--;
    uncount(s->h, H2_STREAM_COST);
    list_remove(&s->node);
    buf_fini(&s->up.body);
    buf_fini(&s->down.body);
    drop_trailers(&s->up);
    drop_trailers(&s->down);
    mem_free(s);
}

void h2_stream_release(struct h2_stream *s)
{
    if (s->client_id || s->upstream_id)
        return;
    h2_flow_drop(&s->up);
    h2_flow_drop(&s->down);
    h2_tell_answer(s, 0);
    struct exchange *x = &s->h->x;
    if (x->ops->on_through && !x->closed)
        x->ops->on_through(x->ctx, s->id);
    h2_stream_free(s);
}

struct h2_stream *h2_stream_of(struct h2_half *half, int32_t id)
{
    return id > 0 ? nghttp2_session_get_stream_user_data(half->session, id) : NULL;
}

void h2_tell_answer(struct h2_stream *s, int status)
{
    struct exchange *x = &s->h->x;
    if (!s->owed)
        return;
    s->owed = false;
    if (!x->closed)
        x->ops->on_answer(x->ctx, s->id, status);
}

void h2_reset_client(struct h2_stream *s, uint32_t code)
{
    if (!s->client_id || s->reset_sent)
        return;
    s->reset_sent = true;
    h2_flow_drop(&s->down);
    (void)nghttp2_submit_rst_stream(s->h->client.session, NGHTTP2_FLAG_NONE, s->client_id, code);
}

void h2_drop_untaken(struct h2 *h, unsigned ms)
{
    uint64_t now = uv_now(h->x.loop);
    LIST_FOREACH (struct h2_stream, s, &h->streams, node) {
        if (s->answered && !s->end_sent && !s->down.waiting && now - s->down.since >= ms)
            h2_reset_client(s, NGHTTP2_ENHANCE_YOUR_CALM);
    }
}

void h2_finish_client(struct h2_stream *s)
{
    if (s->end_sent && !s->up.ended && !s->upstream_id)
        h2_reset_client(s, NGHTTP2_NO_ERROR);
}

/* ---- bodies ---- */

static int32_t id_at(const struct h2_flow *f, const struct h2_half *half)
{
    return half == &f->stream->h->client ? f->stream->client_id : f->stream->upstream_id;
}

static void give_back(struct h2_flow *f, size_t n)
{
    if (!f->from || n == 0)
        return;
    int32_t id = id_at(f, f->from);
    if (id)
        (void)nghttp2_session_consume(f->from->session, id, n);
    else
        (void)nghttp2_session_consume_connection(f->from->session, n);
}

/* Where what is in `body` is counted. */
static size_t *counter(struct h2_flow *f)
{
    struct exchange *x = &f->stream->h->x;
    return f == &f->stream->down ? &x->bodies : f->stream->held ? &x->held : &x->uploads;
}

/* What was in `body` and is not any more. */
static void h2_stream_let_go(struct h2_flow *f, size_t n)
{
    size_t own = MIN(n, f->own);
    *counter(f) -= n;
    f->own -= own;
    give_back(f, n - own);
}

static void begin_waiting(struct h2_flow *f)
{
    f->since = uv_now(f->stream->h->x.loop);
}

static void wake(struct h2_flow *f)
{
    int32_t id = id_at(f, f->to);
    if (!f->waiting || !id)
        return;
    f->waiting = false;
    begin_waiting(f);
    (void)nghttp2_session_resume_data(f->to->session, id);
}

/* It may hold a secret. */
static void h2_flow_drop_body(struct h2_flow *f)
{
    size_t n = buf_len(&f->body);
    if (f->body.data)
        mem_wipe(f->body.data, f->own ? f->body.cap : 0);
    buf_fini(&f->body);
    h2_stream_let_go(f, n);
}

/* Of a request that is held: as it doesn't go on yet, its windows must open all the same. */
static int h2_stream_collect(struct h2_flow *f, struct str piece)
{
    if (buf_append_str(&f->body, piece) < 0)
        return -1;
    *counter(f) += piece.n;
    f->own += piece.n;
    give_back(f, piece.n);
    return 0;
}

void h2_flow_replace(struct h2_flow *f, struct str body)
{
    h2_flow_drop_body(f);
    f->body.max = MAX(f->body.max, body.n);
    (void)buf_append_str(&f->body, body);
    *counter(f) += body.n;
    f->own = body.n;
}

int h2_flow_add(struct h2_flow *f, struct str piece)
{
    if (f->stream->held)
        return h2_stream_collect(f, piece);
    if (!id_at(f, f->to) || (f->to == &f->stream->h->client && f->stream->reset_sent)) {
        give_back(f, piece.n);
        return 0;
    }
    if (buf_append_str(&f->body, piece) < 0)
        return -1; /* more than the window */
    *counter(f) += piece.n;
    wake(f);
    return 0;
}

void h2_flow_end(struct h2_flow *f)
{
    f->ended = true;
    wake(f);
}

void h2_flow_drop(struct h2_flow *f)
{
    h2_flow_drop_body(f);
    drop_trailers(f);
}

nghttp2_nv h2_nv(struct str name, struct str value)
{
    bool secret = str_eqc(name, "authorization") || str_eqc(name, "cookie");
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name.p, (uint8_t *)(uintptr_t)value.p, name.n, value.n,
                        secret ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE};
}

static ssize_t send_trailers(struct h2_flow *f, int32_t id, uint32_t *flags)
{
    size_t n = f->n_trailers;
    nghttp2_nv *nv = arena_alloc(&f->arena, n * sizeof(*nv));
    for (size_t i = 0; i < n; i++)
        nv[i] = h2_nv(f->trailers[i].name, f->trailers[i].value);
    *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    int r = nghttp2_submit_trailer(f->to->session, id, nv, n);
    h2_head_queued(f->stream->h, nv, n, r);
    drop_trailers(f);
    return r ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static ssize_t read_flow(nghttp2_session *session UNUSED, int32_t id, uint8_t *to, size_t room, uint32_t *flags,
                         nghttp2_data_source *source, void *ctx UNUSED)
{
    struct h2_flow *f = source->ptr;
    begin_waiting(f);
    size_t n = MIN(buf_len(&f->body), room);
    if (n) {
        memcpy(to, buf_data(&f->body), n);
        buf_consume(&f->body, n);
        h2_stream_let_go(f, n);
    }
    if (buf_len(&f->body) == 0 && f->ended) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (f->n_trailers && send_trailers(f, id, flags) < 0)
            return NGHTTP2_ERR_CALLBACK_FAILURE;
    } else if (n == 0) {
        f->waiting = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)n;
}

nghttp2_data_provider h2_flow_provider(struct h2_flow *f)
{
    begin_waiting(f);
    return (nghttp2_data_provider){.source.ptr = f, .read_callback = read_flow};
}

/* ---- header blocks ---- */

void h2_block_end(struct h2_half *half)
{
    uncount(half->h, half->block.kept);
    arena_wipe(&half->block.arena);
    half->block = (struct h2_block){.kept = 0};
}

void h2_block_begin(struct h2_half *half, int32_t id)
{
    h2_block_end(half);
    half->block.id = id;
}

/* Of a block that nobody will use, its length alone is of interest. */
static int h2_stream_skip(struct h2_half *half, bool no_room)
{
    struct h2_block b = half->block;
    h2_block_end(half);
    half->block = (struct h2_block){.id = b.id, .bytes = b.bytes, .too_large = true, .no_room = b.no_room || no_room};
    return b.bytes > H2_LOOK_MAX ? NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE : 0;
}

static int h2_block_add(struct h2_half *half, struct str name, struct str value)
{
    struct h2_block *b = &half->block;
    size_t cost = name.n + value.n + 32;
    b->bytes += cost;
    if (b->too_large || b->n == EXCHANGE_FIELDS_MAX || b->bytes > EXCHANGE_HEAD_MAX)
        return h2_stream_skip(half, false);
    if (!h2_has_room(half->h, cost))
        return h2_stream_skip(half, true);
    half->h->x.heads += cost;
    b->kept += cost;
    struct {
        const char *name;
        struct str *to;
    } pseudo[] = {{":method", &b->method},       {":scheme", &b->scheme}, {":authority", &b->authority},
                  {":path", &b->path},           {":status", &b->status}, {":protocol", &b->protocol},
                  {"content-length", &b->length}};
    value = arena_str(&b->arena, value);
    for (size_t i = 0; i < ARRAY_SIZE(pseudo); i++) {
        if (str_eqc(name, pseudo[i].name)) {
            *pseudo[i].to = value;
            return 0;
        }
    }
    if (!b->fields)
        b->fields = arena_alloc(&b->arena, EXCHANGE_FIELDS_MAX * sizeof(*b->fields));
    b->fields[b->n++] = (struct http_header){arena_str(&b->arena, name), value};
    return 0;
}

int h2_on_header(nghttp2_session *session UNUSED, const nghttp2_frame *frame, const uint8_t *name, size_t n_name,
                 const uint8_t *value, size_t n_value, uint8_t flags UNUSED, void *ctx)
{
    struct h2_half *half = ctx;
    return h2_stream_of(half, frame->hd.stream_id) ? h2_block_add(half, str_n(name, n_name), str_n(value, n_value)) : 0;
}

void h2_flow_trailers(struct h2_flow *f, const struct h2_block *b, bool (*is_good)(struct str name))
{
    drop_trailers(f);
    if (!b->n)
        return;
    f->trailers = arena_alloc(&f->arena, b->n * sizeof(*f->trailers));
    f->kept = b->n * sizeof(*f->trailers);
    for (size_t i = 0; i < b->n; i++) {
        const struct http_header *field = &b->fields[i];
        if (is_good && !is_good(field->name))
            continue;
        f->trailers[f->n_trailers++] =
            (struct http_header){arena_str(&f->arena, field->name), arena_str(&f->arena, field->value)};
        f->kept += field->name.n + field->value.n + 32;
    }
    f->stream->h->x.heads += f->kept;
}

static size_t cost_of(const nghttp2_nv *nv, size_t n)
{
    size_t bytes = n * sizeof(*nv);
    for (size_t i = 0; i < n; i++)
        bytes += nv[i].namelen + nv[i].valuelen;
    return bytes;
}

void h2_head_queued(struct h2 *h, const nghttp2_nv *nv, size_t n, int r)
{
    if (r >= 0)
        h->x.heads += cost_of(nv, n);
}

void h2_head_gone(struct h2 *h, const nghttp2_frame *frame)
{
    if (frame->hd.type == NGHTTP2_HEADERS)
        uncount(h, cost_of(frame->headers.nva, frame->headers.nvlen));
}

int h2_on_not_sent(nghttp2_session *session UNUSED, const nghttp2_frame *frame, int why UNUSED, void *ctx)
{
    struct h2_half *half = ctx;
    h2_head_gone(half->h, frame);
    return 0;
}

/* ---- answers of our own ---- */

void h2_respond(struct h2_stream *s, int status, struct str text)
{
    assert(!s->answered && s->client_id);
    struct h2_flow *f = &s->down;
    char code[4] = {(char)('0' + status / 100 % 10), (char)('0' + status / 10 % 10), (char)('0' + status % 10), 0};
    h2_flow_drop(f);
    f->from = NULL;
    f->ended = true;
    exchange_refusal_body(&f->body, status, text);
    *counter(f) += buf_len(&f->body);
    char length[24];
    (void)snprintf(length, sizeof(length), "%zu", buf_len(&f->body));
    nghttp2_nv nv[] = {h2_nv(STR(":status"), str_n(code, 3)), h2_nv(STR("content-type"), STR("application/json")),
                       h2_nv(STR("content-length"), str_of(length))};
    nghttp2_data_provider provider = h2_flow_provider(f);
    s->answered = true;
    int r = nghttp2_submit_response(s->h->client.session, s->client_id, nv, ARRAY_SIZE(nv),
                                    s->head_only ? NULL : &provider);
    h2_head_queued(s->h, nv, ARRAY_SIZE(nv), r);
    if (s->head_only)
        h2_flow_drop(f);
    h2_tell_answer(s, status);
}
