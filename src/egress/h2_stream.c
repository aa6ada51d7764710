/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/h2_internal.h"

#include "base/mem.h"

#include <string.h>

struct h2_stream *h2_stream_new(struct h2 *h, int32_t client_id)
{
    struct h2_stream *s = mem_new(struct h2_stream);
    s->h = h;
    s->client_id = client_id;
    s->up = (struct h2_flow){.stream = s, .from = &h->client, .to = &h->upstream};
    s->down = (struct h2_flow){.stream = s, .from = &h->upstream, .to = &h->client};
    buf_init(&s->up.body, 2 * H2_CLIENT_WINDOW);
    buf_init(&s->down.body, 2 * H2_UPSTREAM_WINDOW);
    list_append(&h->streams, &s->node);
    h->n_streams++;
    return s;
}

void h2_stream_free(struct h2_stream *s)
{
    s->h->n_streams--;
    list_remove(&s->node);
    buf_fini(&s->up.body);
    buf_fini(&s->down.body);
    arena_wipe(&s->arena);
    mem_free(s);
}

void h2_stream_release(struct h2_stream *s)
{
    if (s->client_id || s->upstream_id)
        return;
    h2_flow_drop(&s->up);
    h2_flow_drop(&s->down);
    h2_tell_answer(s, 0);
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

static bool is_of_answer(const struct h2_flow *f)
{
    return f->from == &f->stream->h->upstream;
}

/* What was in `body` and is not any more. */
static void let_go(struct h2_flow *f, size_t n)
{
    if (is_of_answer(f))
        f->stream->h->x.bodies -= n;
    give_back(f, n);
}

static void wake(struct h2_flow *f)
{
    int32_t id = id_at(f, f->to);
    if (!f->waiting || !id)
        return;
    f->waiting = false;
    (void)nghttp2_session_resume_data(f->to->session, id);
}

int h2_flow_add(struct h2_flow *f, struct str piece)
{
    if (!id_at(f, f->to) || (f->to == &f->stream->h->client && f->stream->reset_sent)) {
        give_back(f, piece.n);
        return 0;
    }
    if (buf_append_str(&f->body, piece) < 0)
        return -1; /* more than the window */
    if (is_of_answer(f))
        f->stream->h->x.bodies += piece.n;
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
    size_t n = buf_len(&f->body);
    buf_fini(&f->body);
    let_go(f, n);
}

nghttp2_nv h2_nv(struct str name, struct str value)
{
    bool secret = str_eqc(name, "authorization") || str_eqc(name, "cookie");
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name.p, (uint8_t *)(uintptr_t)value.p, name.n, value.n,
                        secret ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE};
}

static ssize_t send_trailers(struct h2_flow *f, int32_t id, uint32_t *flags)
{
    nghttp2_nv *nv = arena_alloc(&f->stream->arena, f->n_trailers * sizeof(*nv));
    for (size_t i = 0; i < f->n_trailers; i++)
        nv[i] = h2_nv(f->trailers[i].name, f->trailers[i].value);
    *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    return nghttp2_submit_trailer(f->to->session, id, nv, f->n_trailers) ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static ssize_t read_flow(nghttp2_session *session, int32_t id, uint8_t *to, size_t room, uint32_t *flags,
                         nghttp2_data_source *source, void *ctx)
{
    struct h2_flow *f = source->ptr;
    (void)session, (void)ctx;
    size_t n = MIN(buf_len(&f->body), room);
    if (n) {
        memcpy(to, buf_data(&f->body), n);
        buf_consume(&f->body, n);
        let_go(f, n);
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
    return (nghttp2_data_provider){.source.ptr = f, .read_callback = read_flow};
}

/* ---- header blocks ---- */

void h2_block_begin(struct h2_stream *s)
{
    s->block = (struct h2_block){.fields = NULL};
}

int h2_block_add(struct h2_stream *s, struct str name, struct str value)
{
    struct h2_block *b = &s->block;
    b->bytes += name.n + value.n + 32;
    if (b->too_large || b->n == EXCHANGE_FIELDS_MAX || b->bytes > EXCHANGE_HEAD_MAX) {
        b->too_large = true;
        return b->bytes > H2_LOOK_MAX ? NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE : 0;
    }
    struct {
        const char *name;
        struct str *to;
    } pseudo[] = {{":method", &b->method},       {":scheme", &b->scheme}, {":authority", &b->authority},
                  {":path", &b->path},           {":status", &b->status}, {":protocol", &b->protocol},
                  {"content-length", &b->length}};
    value = arena_str(&s->arena, value);
    for (size_t i = 0; i < ARRAY_SIZE(pseudo); i++) {
        if (str_eqc(name, pseudo[i].name)) {
            *pseudo[i].to = value;
            return 0;
        }
    }
    if (!b->fields)
        b->fields = arena_alloc(&s->arena, EXCHANGE_FIELDS_MAX * sizeof(*b->fields));
    b->fields[b->n++] = (struct http_header){arena_str(&s->arena, name), value};
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
    struct str length = str_of(arena_printf(&s->arena, "%zu", buf_len(&f->body)));
    nghttp2_nv nv[] = {h2_nv(STR(":status"), str_n(code, 3)), h2_nv(STR("content-type"), STR("application/json")),
                       h2_nv(STR("content-length"), length)};
    nghttp2_data_provider provider = h2_flow_provider(f);
    s->answered = true;
    (void)nghttp2_submit_response(s->h->client.session, s->client_id, nv, ARRAY_SIZE(nv),
                                  s->head_only ? NULL : &provider);
    h2_tell_answer(s, status);
}
